//! What one walk has of the file for itself, counted in the budget as long as the walk has it: the raw bytes of a leaf,
//! and stretches of blocks as they are on disk.

use crate::budget::{Use, good_size};
use crate::cache::PageCache;
use blocks::{BlockAddr, Stretch, VolumeId};
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Heap bytes of a walk.
pub(crate) struct WalkMemory {
    /// Weak: what a worker has in its queue must not hold what the workers belong to.
    cache: Weak<PageCache>,
    bytes: usize,
}

impl WalkMemory {
    pub(crate) fn new(cache: &Arc<PageCache>, bytes: usize) -> Self {
        cache.budget().add(Use::Walks, bytes as isize);
        Self {
            cache: Arc::downgrade(cache),
            bytes,
        }
    }
}

impl Drop for WalkMemory {
    fn drop(&mut self) {
        if let Some(cache) = self.cache.upgrade() {
            cache.budget().add(Use::Walks, -(self.bytes as isize));
        }
    }
}

/// See the module.
pub(crate) struct RawLeaf {
    bytes: Bytes,
    memory: WalkMemory,
}

impl RawLeaf {
    pub(crate) fn new(cache: &Arc<PageCache>, raw: Vec<u8>) -> Self {
        Self {
            memory: WalkMemory::new(cache, good_size(raw.capacity())),
            bytes: raw.into(),
        }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether its memory can be used for other leaves: it is not longer than a leaf should need, and no row is in it
    /// that somebody has.
    pub(crate) fn is_reusable(&self) -> bool {
        self.memory.bytes <= blocks::RAW_BUFFER_BYTES_MAX && self.bytes.is_unique()
    }

    /// Its memory, not counted any more.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes.try_into_mut().map(Vec::from).unwrap_or_default()
    }
}

/// A stretch in memory.
pub(crate) struct HeldStretch {
    sectors: Range<u64>,
    stretch: Stretch,
    _memory: WalkMemory,
}

impl HeldStretch {
    /// `memory` counts what it takes.
    pub(crate) fn new(sectors: Range<u64>, stretch: Stretch, memory: WalkMemory) -> Self {
        Self {
            sectors,
            stretch,
            _memory: memory,
        }
    }

    /// The sectors that were asked for.
    pub(crate) fn sectors(&self) -> &Range<u64> {
        &self.sectors
    }

    /// A block of it, not checked.
    pub(crate) fn block(&self, volume: VolumeId, block: &BlockAddr) -> Option<&[u8]> {
        self.stretch.block(volume, block)
    }

    /// Its memory, for another one.
    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.stretch.into_buffer()
    }
}
