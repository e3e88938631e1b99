//! Counters for the engine's statistics: nothing reads them to decide anything.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that many threads raise.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds one, and answers how many there are now.
    pub(crate) fn add_one(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// What has happened since the engine was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: Counter,
    pub(crate) operations: Counter,
    pub(crate) gets: Counter,
    pub(crate) pages_read: Counter,
    pub(crate) read_again: Counter,
    /// Of these and those read from disk, those of which not all was decompressed.
    pub(crate) read_in_part: Counter,
    /// Rows of a leaf that the same thread had decompressed last.
    pub(crate) read_from_last: Counter,
    /// Leaves that walks read for themselves.
    pub(crate) pages_walked: Counter,
    pub(crate) pages_written: Counter,
    pub(crate) pages_evicted: Counter,
    pub(crate) inner_evicted: Counter,
    pub(crate) consolidations: Counter,
    /// Those that a worker did for a writer.
    pub(crate) consolidations_queued: Counter,
    pub(crate) splits: Counter,
    pub(crate) merges: Counter,
    pub(crate) blind_writes: Counter,
    pub(crate) buffers_merged: Counter,
    pub(crate) checkpoints: Counter,
    /// Leaves whose changes a checkpoint saved beside their images.
    pub(crate) deltas_saved: Counter,
    /// Times that a leaf could not be written as its rows on disk could not be read.
    pub(crate) leaves_unreadable: Counter,
    pub(crate) checkpoint_ms: Counter,
    pub(crate) checkpoint_ms_last: Counter,
    pub(crate) delays: Counter,
    pub(crate) delay_us: Counter,
    pub(crate) prefetched: Counter,
    /// Single blocks that the system was told of before they were read.
    pub(crate) expected: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) relocated: Counter,
    pub(crate) written_behind: Counter,
    pub(crate) snapshots_ended: Counter,
    pub(crate) values_spilled: Counter,
    /// Times that the file took no more.
    pub(crate) spills_refused: Counter,
}
