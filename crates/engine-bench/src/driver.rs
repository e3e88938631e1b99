//! Calls operations on client threads and times them.
//!
//! In a closed loop the next call begins when the last one ends. In an open loop every call has an intended time, and
//! its latency counts from there: a stall delays all calls that were due in it, and none of them is left out: those
//! that the end finds undone count by how long they have been due. Waiting for the intended time is a spin, because a
//! sleeping thread's wake-up would be measured instead.

use crate::machine::Usage;
use crate::statistics::SLICE;
use crate::subject::{Session, Subject};
use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One call; answers how many operations it did, 0 when there is nothing left to do.
pub type Operation<'a> = Box<dyn FnMut(&mut dyn Session) -> Result<u64> + 'a>;

/// When calls are made.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Each after the one before it.
    Closed,
    /// So many per second, over all threads, whatever happens.
    Open {
        /// Calls per second.
        rate: f64,
    },
}

/// When a phase ends: at the first of these.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// After this time.
    pub seconds: f64,
    /// After so many calls of all threads.
    pub calls: u64,
    /// When somebody says so.
    pub stop: Option<&'a AtomicBool>,
}

impl Limits<'_> {
    /// Time only.
    pub fn seconds(seconds: f64) -> Self {
        Self {
            seconds,
            calls: u64::MAX,
            stop: None,
        }
    }
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Operations done.
    pub operations: u64,
    /// Calls made.
    pub calls: u64,
    /// From the first call to the end of the last.
    pub seconds: f64,
    /// What the process used meanwhile.
    pub usage: Usage,
    /// Latency of calls in nanoseconds.
    pub latency: Histogram<u64>,
    /// Operations that ended in each [`SLICE`].
    pub slices: Vec<u64>,
}

impl Phase {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }

    /// A percentile of the latency in microseconds.
    pub fn latency_us(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1e3
    }

    /// The longest call in microseconds.
    pub fn latency_max_us(&self) -> f64 {
        self.latency.max() as f64 / 1e3
    }
}

/// What one thread measured.
struct Share {
    operations: u64,
    calls: u64,
    ended: Instant,
    latency: Histogram<u64>,
    slices: Vec<u64>,
}

/// A histogram up to a minute, three digits.
fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("the bounds of the histogram")
}

/// Runs a phase: `make` gives each thread its operation.
pub fn drive<'a>(
    subject: &dyn Subject,
    threads: usize,
    limits: Limits<'_>,
    pace: Pace,
    make: &(dyn Fn(usize) -> Operation<'a> + Sync),
) -> Result<Phase> {
    let threads = threads.max(1);
    let ready = Barrier::new(threads + 1);
    let shares = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..threads)
            .map(|thread| {
                let ready = &ready;
                scope.spawn(move || {
                    let session = subject.session();
                    ready.wait();
                    let mut session = session?;
                    let mut operation = make(thread);
                    let calls = limits.calls / threads as u64;
                    let interval = match pace {
                        Pace::Closed => None,
                        Pace::Open { rate } => Some(Duration::from_secs_f64(threads as f64 / rate.max(1.0))),
                    };
                    run_client(&mut *session, &mut operation, Limits { calls, ..limits }, interval)
                })
            })
            .collect();
        ready.wait();
        let before = Usage::now();
        let start = Instant::now();
        let shares: Vec<Result<Share>> = clients
            .into_iter()
            .map(|client| {
                client
                    .join()
                    .unwrap_or_else(|_| Err(anyhow!("a client thread panicked")))
            })
            .collect();
        (start, Usage::now().since(&before), shares)
    });
    let (start, usage, shares) = shares;
    let mut phase = Phase {
        operations: 0,
        calls: 0,
        seconds: 0.0,
        usage,
        latency: new_histogram()?,
        slices: Vec::new(),
    };
    for share in shares {
        let share = share?;
        phase.operations += share.operations;
        phase.calls += share.calls;
        phase.seconds = phase.seconds.max(share.ended.duration_since(start).as_secs_f64());
        phase.latency.add(&share.latency).context("adding histograms")?;
        phase.slices.resize(phase.slices.len().max(share.slices.len()), 0);
        for (sum, count) in phase.slices.iter_mut().zip(&share.slices) {
            *sum += count;
        }
    }
    Ok(phase)
}

fn run_client(
    session: &mut dyn Session,
    operation: &mut Operation<'_>,
    limits: Limits<'_>,
    interval: Option<Duration>,
) -> Result<Share> {
    let start = Instant::now();
    let mut share = Share {
        operations: 0,
        calls: 0,
        ended: start,
        latency: new_histogram()?,
        slices: Vec::new(),
    };
    let end = start + Duration::from_secs_f64(limits.seconds);
    let mut due = start;
    while share.calls < limits.calls && share.ended < end {
        if limits.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            break;
        }
        match interval {
            // The end of one call is the beginning of the next: one look at the clock per call.
            None => due = share.ended,
            Some(interval) => {
                due = if share.calls == 0 { start } else { due + interval };
                if due >= end {
                    break;
                }
                while Instant::now() < due {
                    std::hint::spin_loop();
                }
            }
        }
        let done = operation(session)?;
        share.ended = Instant::now();
        if done == 0 {
            break;
        }
        share.calls += 1;
        share.operations += done;
        share
            .latency
            .saturating_record(share.ended.duration_since(due).as_nanos() as u64);
        let slice = (share.ended.duration_since(start).as_nanos() / SLICE.as_nanos()) as usize;
        if slice >= share.slices.len() {
            share.slices.resize(slice + 1, 0);
        }
        share.slices[slice] += done;
    }
    if let Some(interval) = interval
        && share.ended >= end
    {
        record_overdue(&mut share.latency, due + interval, interval, end, share.ended);
    }
    Ok(share)
}

/// Counts calls that were due before the end of the phase, from `due` on, and were not made because an earlier one
/// lasted until `ended`: each by how long it had been due by then.
fn record_overdue(latency: &mut Histogram<u64>, due: Instant, interval: Duration, end: Instant, ended: Instant) {
    let mut due = due;
    while due < end {
        latency.saturating_record(ended.duration_since(due).as_nanos() as u64);
        due += interval.max(Duration::from_nanos(1));
    }
}

/// What the driver itself costs per call: an operation that does nothing, in microseconds of CPU.
pub fn own_cost_us(subject: &dyn Subject) -> Result<f64> {
    const CALLS: u64 = 50_000;
    let limits = Limits {
        seconds: 10.0,
        calls: CALLS,
        stop: None,
    };
    let phase = drive(subject, 1, limits, Pace::Closed, &|_| {
        Box::new(|_: &mut dyn Session| Ok(std::hint::black_box(1)))
    })?;
    Ok(phase.usage.cpu.as_secs_f64() * 1e6 / CALLS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loop ended with the call that stalled, and those that were due meanwhile were in no latency.
    #[test]
    fn what_was_due_in_a_last_stall_counts() {
        let mut latency = new_histogram().unwrap();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        record_overdue(&mut latency, at(200), Duration::from_millis(100), at(1000), at(3000));
        assert_eq!(latency.len(), 8);
        let close = |value: u64, ms: u64| value.abs_diff(ms * 1_000_000) < ms * 10_000;
        assert!(close(latency.max(), 2800) && close(latency.min(), 2100), "{latency:?}");
        record_overdue(&mut latency, at(1000), Duration::from_millis(100), at(1000), at(3000));
        assert_eq!(latency.len(), 8, "it was due when the phase was over");
    }
}
