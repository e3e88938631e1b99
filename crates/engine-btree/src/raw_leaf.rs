//! The raw bytes of a leaf that one walk has for itself, counted in the budget as long as the walk has them.

use crate::budget::{Use, good_size};
use crate::cache::PageCache;
use bytes::Bytes;
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
