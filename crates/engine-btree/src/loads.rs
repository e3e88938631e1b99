//! Blocks of loads that have not ended: no checkpoint that begins meanwhile may hold them, as after a crash they must
//! be free. So each one's beginning hands them on to the next.

use blocks::{BlockAddr, BlockStore, VolumeId};
use parking_lot::Mutex;
use rcu::{RwLock, RwLockReadGuard};
use std::collections::HashSet;

/// See the module.
#[derive(Default)]
pub(crate) struct LoadsInProgress {
    /// Held for reading by whoever appends and notes a block, for writing by a checkpoint that begins.
    beginning: RwLock<()>,
    blocks: Mutex<Vec<(VolumeId, BlockAddr)>>,
}

impl LoadsInProgress {
    /// Begins a checkpoint with `begin`: what was loaded so far is for a later one.
    pub(crate) fn hand_on<R>(&self, store: &BlockStore, begin: impl FnOnce() -> R) -> R {
        let _beginning = self.beginning.write();
        let begun = begin();
        for (volume, address) in self.blocks.lock().iter() {
            store.postpone(*volume, *address);
        }
        begun
    }

    /// No checkpoint begins as long as the guard lives.
    pub(crate) fn hold_off_beginning(&self) -> RwLockReadGuard<'_, ()> {
        self.beginning.read()
    }

    /// Notes a block that was just appended, while [`LoadsInProgress::hold_off_beginning`] is in force.
    pub(crate) fn add(&self, volume: VolumeId, address: BlockAddr) {
        self.blocks.lock().push((volume, address));
    }

    /// A load has ended, whose blocks these are.
    pub(crate) fn end(&self, volume: VolumeId, ours: &HashSet<BlockAddr>) {
        let is_ours = |at: VolumeId, address: &BlockAddr| at == volume && ours.contains(address);
        self.blocks.lock().retain(|(at, address)| !is_ours(*at, address));
    }

    /// All of them.
    pub(crate) fn blocks(&self) -> Vec<(VolumeId, BlockAddr)> {
        self.blocks.lock().clone()
    }
}
