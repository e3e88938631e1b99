//! Times whose state somebody waits for: whoever applies the entry of one calls them before the next one is applied.
//! The time of a state is that of its last entry.

use crate::cluster_time::ClusterTime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

type Waiter = Arc<dyn Fn() + Send + Sync>;

/// Those that are waited for.
#[derive(Default)]
pub(crate) struct AwaitedTimes {
    /// Entries of `waiters`, for who applies. Changes with those locked.
    count: AtomicUsize,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    by_time: BTreeMap<(ClusterTime, u64), Waiter>,
    /// Numbers given.
    given: u64,
}

impl AwaitedTimes {
    /// From here on `waiter` is called when the entry of `time` has taken effect. Answers the number to leave with.
    pub(crate) fn enter(&self, time: ClusterTime, waiter: Waiter) -> u64 {
        let mut waiters = self.waiters.lock();
        waiters.given += 1;
        let number = waiters.given;
        waiters.by_time.insert((time, number), waiter);
        self.count.store(waiters.by_time.len(), Ordering::Relaxed);
        number
    }

    pub(crate) fn leave(&self, time: ClusterTime, number: u64) {
        let mut waiters = self.waiters.lock();
        let gone = waiters.by_time.remove(&(time, number));
        self.count.store(waiters.by_time.len(), Ordering::Relaxed);
        // What it keeps ends without the lock.
        drop(waiters);
        drop(gone);
    }

    /// The entry of a time has taken effect. Between two entries.
    #[inline]
    pub(crate) fn come(&self, time: ClusterTime) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.call(time);
        }
    }

    #[cold]
    fn call(&self, time: ClusterTime) {
        let of_time = (time, 0)..=(time, u64::MAX);
        let called: Vec<Waiter> = self
            .waiters
            .lock()
            .by_time
            .range(of_time)
            .map(|(_, waiter)| waiter.clone())
            .collect();
        called.iter().for_each(|waiter| waiter());
    }

    /// How many wait, for tests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
