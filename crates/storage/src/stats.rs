//! Figures of the storage layer.

use std::sync::atomic::{AtomicU64, Ordering};

/// Figures since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageStats {
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Milliseconds they took, all together.
    pub checkpoint_ms: u64,
    /// Milliseconds the last one took.
    pub checkpoint_last_ms: u64,
    /// Milliseconds the longest one took.
    pub checkpoint_max_ms: u64,
    /// Milliseconds the shortest one took; 0 before the first.
    pub checkpoint_min_ms: u64,
    /// Checkpoints that could not be taken, because the disk was full or the engine stopped.
    pub checkpoints_failed: u64,
    /// A checkpoint is being taken.
    pub checkpoint_running: bool,
    /// Units committed.
    pub commits: u64,
    /// Times a unit met a lock it could not wait for.
    pub conflicts: u64,
    /// Document and unique-key locks held now.
    pub locks_held: u64,
    /// TTL passes.
    pub ttl_passes: u64,
    /// Documents deleted by TTL.
    pub ttl_deleted: u64,
    /// Records and indexes that TTL passes left because they could not be read.
    pub ttl_failures: u64,
    /// Log entries replayed at open.
    pub replayed_entries: u64,
    /// Index builds running now.
    pub index_builds: u64,
    /// Operations applied from the log, which others wrote or a crash left to be applied again: inserts, updates,
    /// deletes, definitions.
    pub followed_operations: [u64; 4],
}

#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoint_ms: AtomicU64,
    pub(crate) checkpoint_last_ms: AtomicU64,
    pub(crate) checkpoint_max_ms: AtomicU64,
    /// One more than the milliseconds; 0 before the first.
    pub(crate) checkpoint_min_ms: AtomicU64,
    pub(crate) checkpoints_failed: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) ttl_passes: AtomicU64,
    pub(crate) ttl_deleted: AtomicU64,
    pub(crate) ttl_failures: AtomicU64,
    pub(crate) replayed_entries: AtomicU64,
    pub(crate) index_builds: AtomicU64,
    pub(crate) followed_operations: [AtomicU64; 4],
}

impl Figures {
    /// A checkpoint was taken. One at a time.
    pub(crate) fn checkpoint_took(&self, ms: u64) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.checkpoint_ms.fetch_add(ms, Ordering::Relaxed);
        self.checkpoint_last_ms.store(ms, Ordering::Relaxed);
        self.checkpoint_max_ms.fetch_max(ms, Ordering::Relaxed);
        let shortest = self.checkpoint_min_ms.load(Ordering::Relaxed);
        if shortest == 0 || ms < shortest {
            self.checkpoint_min_ms.store(ms + 1, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self, locks_held: u64, checkpoint_running: bool) -> StorageStats {
        let get = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        StorageStats {
            checkpoints: get(&self.checkpoints),
            checkpoint_ms: get(&self.checkpoint_ms),
            checkpoint_last_ms: get(&self.checkpoint_last_ms),
            checkpoint_max_ms: get(&self.checkpoint_max_ms),
            checkpoint_min_ms: get(&self.checkpoint_min_ms).saturating_sub(1),
            checkpoints_failed: get(&self.checkpoints_failed),
            checkpoint_running,
            commits: get(&self.commits),
            conflicts: get(&self.conflicts),
            locks_held,
            ttl_passes: get(&self.ttl_passes),
            ttl_deleted: get(&self.ttl_deleted),
            ttl_failures: get(&self.ttl_failures),
            replayed_entries: get(&self.replayed_entries),
            index_builds: get(&self.index_builds),
            followed_operations: self.followed_operations.each_ref().map(get),
        }
    }
}
