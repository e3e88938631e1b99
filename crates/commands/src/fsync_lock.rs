//! The lock of `fsync`: counted, each `fsync` with `lock: true` needs its own `fsyncUnlock`.

use parking_lot::Mutex;
use storage::WriteBarrier;

/// The barriers held by `fsync` with `lock: true`, one each call.
#[derive(Default)]
pub struct FsyncLock {
    held: Mutex<Vec<WriteBarrier>>,
}

impl FsyncLock {
    /// How often writes are locked.
    pub fn count(&self) -> usize {
        self.held.lock().len()
    }

    /// Locks once more and answers how often writes are locked now.
    pub fn push(&self, barrier: WriteBarrier) -> usize {
        let mut held = self.held.lock();
        held.push(barrier);
        held.len()
    }

    /// Unlocks once and answers how often writes are locked still; `None` when they were not.
    pub fn pop(&self) -> Option<usize> {
        let mut held = self.held.lock();
        held.pop().map(|_| held.len())
    }

    /// Lets all writes go on (shutdown).
    pub fn release(&self) {
        self.held.lock().clear();
    }
}
