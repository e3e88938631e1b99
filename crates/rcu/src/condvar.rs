//! A condition variable for [`crate::Mutex`]. Under the schedule checker a wait with a bound never ends by its bound:
//! what is only found by looking again after a while counts as lost there.

use crate::MutexGuard;
use std::time::Duration;

/// Where threads sleep until they are told that something has changed.
#[derive(Default, Debug)]
pub struct Condvar {
    #[cfg(not(feature = "shuttle"))]
    inner: parking_lot::Condvar,
    #[cfg(feature = "shuttle")]
    inner: shuttle::sync::Condvar,
}

impl Condvar {
    /// One that nobody sleeps on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes every sleeper.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }

    /// Gives the lock back, sleeps, and takes the lock again. May return without a reason.
    #[cfg(not(feature = "shuttle"))]
    pub fn wait<'l, T>(&self, mut guard: MutexGuard<'l, T>) -> MutexGuard<'l, T> {
        self.inner.wait(&mut guard);
        guard
    }

    /// As [`Condvar::wait`], for at most `bound`.
    #[cfg(not(feature = "shuttle"))]
    pub fn wait_for<'l, T>(&self, mut guard: MutexGuard<'l, T>, bound: Duration) -> MutexGuard<'l, T> {
        self.inner.wait_for(&mut guard, bound);
        guard
    }

    /// Gives the lock back, sleeps, and takes the lock again.
    #[cfg(feature = "shuttle")]
    pub fn wait<'l, T>(&self, guard: MutexGuard<'l, T>) -> MutexGuard<'l, T> {
        self.inner
            .wait(guard)
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As [`Condvar::wait`]: the checker knows no time.
    #[cfg(feature = "shuttle")]
    pub fn wait_for<'l, T>(&self, guard: MutexGuard<'l, T>, _bound: Duration) -> MutexGuard<'l, T> {
        self.wait(guard)
    }
}
