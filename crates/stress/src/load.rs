//! One phase of a cell: threads that share a row of batches, and a watcher that counts by the second.
//!
//! 1. Batches are numbered from 0. Each thread takes the next number until there is none, a batch has failed, or the
//!    user wants to stop. Batches therefore begin in order.
//! 2. Meanwhile the calling thread tells how far it is, and notes each second what was done and what the server used.
//! 3. The phase ends when the last thread has finished its last batch.

use crate::event::{Event, Observer};
use crate::link::LinkError;
use bench::interrupt::Interrupt;
use bench::procfs::{self, Usage};
use hdrhistogram::Histogram;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Between two looks.
const TICK: Duration = Duration::from_millis(100);
/// An interval of the series, in ticks.
const TICKS_PER_INTERVAL: u32 = 10;

/// Batches of documents, first to last number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batches {
    pub(crate) documents: u64,
    pub(crate) size: u64,
}

impl Batches {
    fn count(self) -> u64 {
        self.documents.div_ceil(self.size)
    }

    /// Numbers of a batch, counted from the lowest.
    pub(crate) fn upwards(self, batch: u64) -> RangeInclusive<u64> {
        let first = batch * self.size + 1;
        first..=(first + self.size - 1).min(self.documents)
    }

    /// Numbers of a batch, counted from the highest.
    pub(crate) fn downwards(self, batch: u64) -> RangeInclusive<u64> {
        let last = self.documents - batch * self.size;
        last.saturating_sub(self.size - 1).max(1)..=last
    }
}

/// What a phase showed.
#[derive(Debug)]
pub struct PhaseResult {
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
    /// How long it took.
    pub seconds: f64,
    /// Documents that were written or asked for.
    pub documents: u64,
    /// Time of each batch in nanoseconds.
    pub latency: Histogram<u64>,
    /// By the second.
    pub series: report::Series,
    /// What the server used of the processor, in microseconds.
    pub server_cpu_us: Option<u64>,
    /// What this tool used of the processor, in microseconds.
    pub generator_cpu_us: Option<u64>,
    /// Bytes that the server fetched from storage.
    pub read_bytes: Option<u64>,
    /// Bytes that the server sent to storage until all that was written was durable; of the writers' phase alone.
    pub written_bytes: Option<u64>,
    /// The most memory that the server held.
    pub rss_peak_bytes: Option<u64>,
}

/// How a phase ended before its end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The user wanted it.
    Stopped,
    /// A batch failed.
    Failed(LinkError),
}

/// Runs a phase: `work` does one batch. The result is what was measured, whole or not.
pub(crate) fn run<W: Send>(
    workers: Vec<W>,
    batches: Batches,
    name: &str,
    server_pid: u32,
    interrupt: &Interrupt,
    observer: Observer<'_>,
    work: impl Fn(&mut W, u64) -> Result<u64, LinkError> + Sync,
) -> (PhaseResult, Vec<W>, Option<Broken>) {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let failure: Mutex<Option<LinkError>> = Mutex::new(None);
    let started_ms = procfs::now_ms();
    let mut watch = Watch::new(name, server_pid);
    let start = watch.start;
    let shared = Shared {
        next: &next,
        done: &done,
        over: &over,
        failure: &failure,
        batches: batches.count(),
        interrupt,
    };
    let mut back = Vec::with_capacity(workers.len());
    let mut latency = histogram();
    let mut end = start;
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for mut worker in workers {
            let (sender, work, shared) = (sender.clone(), &work, &shared);
            scope.spawn(move || {
                let times = shared.take_batches(&mut worker, work);
                // The receiver is there until all senders are gone.
                let _ = sender.send((worker, times, Instant::now()));
            });
        }
        drop(sender);
        let mut ticks = 0;
        loop {
            let tick_at = start + TICK * (ticks + 1);
            match receiver.recv_timeout(tick_at.saturating_duration_since(Instant::now())) {
                Ok((worker, times, at)) => {
                    back.push(worker);
                    // Both have the same bounds.
                    latency.add(times).expect("equal histograms add up");
                    end = end.max(at);
                }
                Err(RecvTimeoutError::Timeout) => {
                    ticks += 1;
                    let documents = done.load(Ordering::Relaxed);
                    observer(Event::At { documents });
                    watch.tick(documents, ticks % TICKS_PER_INTERVAL == 0);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let documents = done.load(Ordering::Relaxed);
    observer(Event::At { documents });
    let failure = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let broken = match failure {
        Some(LinkError::Stopped) => Some(Broken::Stopped),
        Some(_) | None if interrupt.asked() && documents < batches.documents => Some(Broken::Stopped),
        Some(error) => Some(Broken::Failed(error)),
        None => None,
    };
    let result = watch.finish(started_ms, end.duration_since(start).as_secs_f64(), documents, latency);
    (result, back, broken)
}

/// Nanoseconds up to an hour, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are possible")
}

struct Shared<'s> {
    next: &'s AtomicU64,
    done: &'s AtomicU64,
    over: &'s AtomicBool,
    failure: &'s Mutex<Option<LinkError>>,
    batches: u64,
    interrupt: &'s Interrupt,
}

impl Shared<'_> {
    fn take_batches<W>(&self, worker: &mut W, work: &impl Fn(&mut W, u64) -> Result<u64, LinkError>) -> Histogram<u64> {
        let mut times = histogram();
        while !self.over.load(Ordering::Relaxed) && !self.interrupt.asked() {
            let batch = self.next.fetch_add(1, Ordering::Relaxed);
            if batch >= self.batches {
                break;
            }
            let start = Instant::now();
            match work(worker, batch) {
                Ok(documents) => {
                    times.saturating_record(start.elapsed().as_nanos() as u64);
                    self.done.fetch_add(documents, Ordering::Relaxed);
                }
                Err(error) => {
                    self.over.store(true, Ordering::Relaxed);
                    let mut failure = self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    // The first one is the cause, later ones follow from it.
                    failure.get_or_insert(error);
                    break;
                }
            }
        }
        times
    }
}

/// Counts by the second.
struct Watch {
    start: Instant,
    name: String,
    pid: u32,
    series: report::Series,
    first: Option<Usage>,
    last: Option<Usage>,
    last_documents: u64,
    generator: Option<Usage>,
    rss_peak: Option<u64>,
    column: Vec<u64>,
}

impl Watch {
    fn new(name: &str, pid: u32) -> Self {
        let first = procfs::usage(pid).ok();
        Self {
            name: name.to_owned(),
            pid,
            series: report::Series::default(),
            first,
            last: first,
            last_documents: 0,
            generator: procfs::usage(std::process::id()).ok(),
            rss_peak: first.map(|usage| usage.resident_bytes),
            column: Vec::new(),
            start: Instant::now(),
        }
    }

    fn tick(&mut self, documents: u64, is_interval: bool) {
        // A primary that was killed is gone, and the time without one is of the phase all the same.
        let usage = procfs::usage(self.pid).ok();
        self.rss_peak = self.rss_peak.max(usage.map(|usage| usage.resident_bytes));
        if !is_interval || self.column.len() >= report::limits::POINTS_MAX {
            return;
        }
        self.column.push(documents - self.last_documents);
        self.last_documents = documents;
        let Some(usage) = usage else { return };
        let before = self.last.unwrap_or_default();
        let series = &mut self.series;
        series.server_cpu_us.push(micros(usage.cpu.saturating_sub(before.cpu)));
        series.rss_bytes.push(usage.resident_bytes);
        if let Some(bytes) = since(before.read_bytes, usage.read_bytes) {
            series.read_bytes.push(bytes);
        }
        if let Some(bytes) = since(before.written_bytes, usage.written_bytes) {
            series.written_bytes.push(bytes);
        }
        self.last = Some(usage);
    }

    fn finish(mut self, started_ms: i64, seconds: f64, documents: u64, latency: Histogram<u64>) -> PhaseResult {
        let end = procfs::usage(self.pid).ok();
        let both = self.first.zip(end);
        let generator = self.generator.zip(procfs::usage(std::process::id()).ok());
        let series = &mut self.series;
        for column in [
            &mut series.server_cpu_us,
            &mut series.rss_bytes,
            &mut series.read_bytes,
            &mut series.written_bytes,
        ] {
            // A column with holes says nothing about when.
            if column.len() != self.column.len() {
                column.clear();
            }
        }
        if !self.column.is_empty() {
            self.series.operations.insert(self.name, self.column);
        }
        let cpu = |(before, after): (Usage, Usage)| micros(after.cpu.saturating_sub(before.cpu));
        PhaseResult {
            started_ms,
            seconds,
            documents,
            latency,
            series: self.series,
            server_cpu_us: both.map(cpu),
            generator_cpu_us: generator.map(cpu),
            read_bytes: both.and_then(|(before, after)| since(before.read_bytes, after.read_bytes)),
            written_bytes: None,
            rss_peak_bytes: self.rss_peak.max(end.map(|usage| usage.resident_bytes)),
        }
    }
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

fn since(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::stalls;

    #[test]
    fn batches_cover_every_number_once_both_ways() {
        for (documents, size) in [(1, 1), (1, 256), (10, 3), (9, 3), (256, 256), (257, 256)] {
            let batches = Batches { documents, size };
            let up: Vec<u64> = (0..batches.count()).flat_map(|batch| batches.upwards(batch)).collect();
            assert_eq!(up, (1..=documents).collect::<Vec<_>>(), "{batches:?}");
            let down: Vec<u64> = (0..batches.count())
                .flat_map(|batch| batches.downwards(batch).rev())
                .collect();
            assert_eq!(down, (1..=documents).rev().collect::<Vec<_>>(), "{batches:?}");
        }
    }

    fn run_batches(
        interrupt: &Interrupt,
        work: impl Fn(&mut Vec<u64>, u64) -> Result<u64, LinkError> + Sync,
    ) -> (PhaseResult, Vec<Vec<u64>>, Option<Broken>) {
        let batches = Batches {
            documents: 1000,
            size: 10,
        };
        let workers = vec![Vec::new(); 4];
        run(
            workers,
            batches,
            "write",
            std::process::id(),
            interrupt,
            &mut |_| {},
            work,
        )
    }

    #[test]
    fn threads_share_the_batches() {
        let work = |mine: &mut Vec<u64>, batch| {
            mine.push(batch);
            Ok(10)
        };
        let (result, workers, broken) = run_batches(&Interrupt::new(), work);
        assert!(broken.is_none());
        assert_eq!((result.documents, result.latency.len(), workers.len()), (1000, 100, 4));
        let mut all: Vec<u64> = workers.concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        assert!(result.rss_peak_bytes > Some(0));
    }

    /// The chart of a failover ended at the kill.
    #[test]
    fn a_phase_goes_on_when_its_server_is_gone() {
        let mut watch = Watch::new("write", std::process::id());
        watch.tick(100, true);
        // Of no process: the id of the one that was killed.
        watch.pid = u32::MAX;
        watch.tick(100, true);
        watch.tick(250, true);
        let result = watch.finish(0, 3.0, 250, histogram());
        assert_eq!(result.series.total(), [100, 0, 150]);
        assert!(result.series.rss_bytes.is_empty() && result.series.server_cpu_us.is_empty());
        assert_eq!(
            stalls(&result.series, result.documents),
            [report::Span {
                at_seconds: 1.0,
                seconds: 1.0
            }]
        );
    }

    #[test]
    fn a_failure_ends_the_phase_and_what_was_done_counts() {
        let work = |_: &mut Vec<u64>, batch| match batch {
            50 => Err(LinkError::Silent { seconds: 120 }),
            _ => Ok(10),
        };
        let (result, _, broken) = run_batches(&Interrupt::new(), work);
        assert!(
            matches!(broken, Some(Broken::Failed(LinkError::Silent { .. }))),
            "{broken:?}"
        );
        // All before it were begun before it, and it does not count.
        assert!((500..=990).contains(&result.documents), "{}", result.documents);
    }

    #[test]
    fn the_user_can_stop_a_phase() {
        let interrupt = Interrupt::new();
        let work = |_: &mut Vec<u64>, batch| {
            if batch >= 20 {
                interrupt.ask();
            }
            Ok(10)
        };
        let (result, _, broken) = run_batches(&interrupt, work);
        assert!(matches!(broken, Some(Broken::Stopped)), "{broken:?}");
        // Twenty batches, and at most one more of each thread.
        assert!((200..=240).contains(&result.documents), "{}", result.documents);
    }
}
