//! The lock between those who append blocks and a checkpoint that records what is used.
//!
//! It is held for reading from the first block that is appended to its flush, and for writing by a checkpoint's commit:
//! what that records as used has been flushed.

use rcu::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;

rcu::thread_local! {
    /// Holds of this thread, on whichever engine's lock.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// See the module.
pub(super) struct UnflushedLock(RwLock<()>);

impl UnflushedLock {
    pub(super) fn new() -> Self {
        Self(RwLock::new(()))
    }

    /// A hold that keeps a checkpoint from becoming durable. Waits behind one that waits for this lock: writers that
    /// overlap would otherwise never let it have it. Not where this thread has a hold already, for another writer: the
    /// checkpoint waits for that.
    pub(super) fn hold(&self) -> Unflushed<'_> {
        let held = HELD.with(|held| held.replace(held.get() + 1));
        Unflushed {
            _hold: if held == 0 {
                self.0.read()
            } else {
                self.0.read_recursive()
            },
        }
    }

    /// Whether a checkpoint has it, or waits for it.
    #[cfg(test)]
    pub(super) fn keeps_writers_out(&self) -> bool {
        self.0.try_read().is_none()
    }

    /// Waits until nobody has blocks that are not flushed, and keeps it so.
    pub(super) fn all_flushed(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write()
    }
}

/// See [`UnflushedLock::hold`].
pub(super) struct Unflushed<'c> {
    _hold: RwLockReadGuard<'c, ()>,
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        HELD.with(|held| held.set(held.get() - 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn writers_that_overlap_let_a_checkpoint_through() {
        let lock = UnflushedLock::new();
        let is_durable = AtomicBool::new(false);
        let first = lock.hold();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _all_is_flushed = lock.all_flushed();
                is_durable.store(true, Ordering::SeqCst);
            });
            while lock.0.try_read().is_some() {
                std::thread::yield_now();
            }
            // The checkpoint waits. Another writer of this thread must not wait for it, one of another thread must.
            drop(lock.hold());
            let second = scope.spawn(|| {
                let _second = lock.hold();
                is_durable.load(Ordering::SeqCst)
            });
            drop(first);
            assert!(second.join().expect("it ends"), "it came before the checkpoint");
        });
    }
}
