//! How fast leaves become dirty between two checkpoints, and how many of them may be written by now: the arithmetic of
//! `write_behind`.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the time between two checkpoints is taken for: at first, and at least and at most whatever it was the last
/// time.
const CYCLE_AT_START: Duration = Duration::from_secs(60);
const CYCLE_MIN: Duration = Duration::from_secs(5);
const CYCLE_MAX: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Default)]
pub(crate) struct WritePace {
    /// Leaves that became dirty in this round, and since the last checkpoint.
    newly_dirty: AtomicU64,
    dirtied: AtomicU64,
    /// Leaves that were written behind since the last checkpoint.
    written: AtomicU64,
    cycle: Mutex<Cycle>,
}

/// From one checkpoint to the next.
struct Cycle {
    began: Duration,
    length: Duration,
}

impl Default for Cycle {
    fn default() -> Self {
        Self {
            began: Duration::ZERO,
            length: CYCLE_AT_START,
        }
    }
}

impl WritePace {
    /// A leaf became dirty.
    pub(crate) fn became_dirty(&self) {
        self.newly_dirty.fetch_add(1, Ordering::Relaxed);
        self.dirtied.fetch_add(1, Ordering::Relaxed);
    }

    /// Leaves that became dirty in this round.
    pub(crate) fn newly_dirty(&self) -> u64 {
        self.newly_dirty.load(Ordering::Relaxed)
    }

    /// A round begins.
    pub(crate) fn begin_round(&self) {
        self.newly_dirty.store(0, Ordering::Relaxed);
    }

    /// So many leaves were written behind.
    pub(crate) fn note_written(&self, leaves: u64) {
        self.written.fetch_add(leaves, Ordering::Relaxed);
    }

    /// A checkpoint has begun.
    pub(crate) fn begin_cycle(&self, now: Duration) {
        let mut cycle = self.cycle.lock();
        if cycle.began > Duration::ZERO {
            cycle.length = now.saturating_sub(cycle.began).clamp(CYCLE_MIN, CYCLE_MAX);
        }
        cycle.began = now;
        self.dirtied.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
    }

    /// Leaves that may be written by now.
    pub(crate) fn allowance(&self, now: Duration) -> u64 {
        let mut cycle = self.cycle.lock();
        if cycle.began == Duration::ZERO {
            cycle.began = now;
        }
        let passed = now.saturating_sub(cycle.began).min(cycle.length);
        let dirtied = u128::from(self.dirtied.load(Ordering::Relaxed));
        let allowed = dirtied * passed.as_micros() / cycle.length.as_micros().max(1);
        (allowed as u64).saturating_sub(self.written.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_written_than_time_has_passed() {
        let seconds = Duration::from_secs;
        let pace = WritePace::default();
        pace.dirtied.store(600, Ordering::Relaxed);
        let allowance = |at| pace.allowance(seconds(at));
        assert_eq!((allowance(7), allowance(13), allowance(100)), (0, 60, 600));
        pace.written.store(50, Ordering::Relaxed);
        assert_eq!(allowance(13), 10);
        pace.begin_cycle(seconds(27));
        assert_eq!(allowance(40), 0, "nothing became dirty since");
        pace.dirtied.store(600, Ordering::Relaxed);
        assert_eq!(allowance(37), 300, "the one before took 20 seconds");
        pace.begin_cycle(seconds(28));
        pace.dirtied.store(600, Ordering::Relaxed);
        assert_eq!(allowance(29), 120, "a checkpoint on demand");
    }
}
