//! The checkpoint that runs, for whoever replaces or gives back what it may refer to.
//!
//! Its lock is taken after a leaf's `state`, and for short. Who replaces an image, or gives a block back, holds it
//! meanwhile and until the table is in the list of changed ones: what goes belongs to that checkpoint or does not, and
//! none may begin in between.

use engine::Seq;
use rcu::{Mutex, MutexGuard};

/// A checkpoint, and the position whose state it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckpointPosition {
    pub(crate) number: u64,
    pub(crate) seq: Seq,
}

/// See the module.
#[derive(Default)]
pub(crate) struct RunningCheckpoint {
    position: Mutex<Option<CheckpointPosition>>,
}

impl RunningCheckpoint {
    /// No checkpoint begins or ends as long as the guard lives.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<CheckpointPosition>> {
        self.position.lock()
    }

    /// As of now.
    pub(crate) fn get(&self) -> Option<CheckpointPosition> {
        *self.position.lock()
    }
}
