//! When writers have to wait for flushes and compactions.
//!
//! RocksDB lets them wait inside the write, where the caller has locks. It tells by properties that it would, and how
//! fast they may be; looking takes its mutex, so that is done now and then only.

use crate::stats::property;
use parking_lot::Mutex;
use rocksdb::DB;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vfs::Clock;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Longest wait of one call: what the engine's interface allows.
const WAIT_MAX: Duration = Duration::from_millis(10);

/// What was seen at the last look.
#[derive(Default)]
struct Seen {
    at: Duration,
    /// Bytes that had been written.
    written: u64,
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
enum State {
    #[default]
    Free,
    /// So many bytes a second.
    Delayed(u64),
    Stopped,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Pressure {
    seen: Mutex<Seen>,
    /// Microseconds that writers have waited.
    waited_us: AtomicU64,
}

impl Pressure {
    /// Waits in proportion, if at all. True when the writer may go on. `written`: bytes of all batches until now.
    pub(crate) fn wait(&self, db: &DB, clock: &dyn Clock, written: u64) -> bool {
        let now = clock.monotonic();
        let (state, bytes) = {
            // Who finds it taken is not the one to look.
            let Some(mut seen) = self.seen.try_lock() else {
                return true;
            };
            if now < seen.at + LOOK_EVERY && seen.state != State::Stopped {
                return true;
            }
            let bytes = written.saturating_sub(seen.written);
            *seen = Seen {
                at: now,
                written,
                state: look(db),
            };
            (seen.state, bytes)
        };
        let wait = wait_for(state, bytes);
        if !wait.is_zero() {
            std::thread::park_timeout(wait);
            self.waited_us.fetch_add(wait.as_micros() as u64, Relaxed);
        }
        state != State::Stopped
    }

    /// Microseconds that writers have waited.
    pub(crate) fn waited_us(&self) -> u64 {
        self.waited_us.load(Relaxed)
    }
}

fn look(db: &DB) -> State {
    // After a failure in the background nothing need get better: the write tells.
    if property(db, "rocksdb.is-write-stopped") > 0 && property(db, "rocksdb.background-errors") == 0 {
        return State::Stopped;
    }
    match property(db, "rocksdb.actual-delayed-write-rate") {
        0 => State::Free,
        rate => State::Delayed(rate),
    }
}

/// What so many bytes since the last look cost.
fn wait_for(state: State, bytes: u64) -> Duration {
    match state {
        State::Free => Duration::ZERO,
        State::Delayed(rate) => Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64).min(WAIT_MAX),
        State::Stopped => WAIT_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_in_proportion_and_bounded() {
        assert_eq!(wait_for(State::Free, 1 << 40), Duration::ZERO);
        assert_eq!(wait_for(State::Delayed(1 << 20), 0), Duration::ZERO);
        assert_eq!(wait_for(State::Delayed(1_000_000), 4000), Duration::from_millis(4));
        assert_eq!(wait_for(State::Delayed(1), 1 << 40), WAIT_MAX);
        assert_eq!(wait_for(State::Stopped, 0), WAIT_MAX);
    }
}
