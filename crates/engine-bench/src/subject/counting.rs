//! The machine's file system, with its syncs counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{RealFs, Watch, WatchedFs};

/// Syncs of files and directories.
#[derive(Default)]
pub(super) struct SyncCount(AtomicU64);

impl SyncCount {
    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Watch for SyncCount {
    type Held<'w> = ();

    fn change(&self) {}

    fn sync(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts the syncs of files and directories.
pub(super) type CountingFs = WatchedFs<SyncCount>;

/// With the count at zero.
pub(super) fn counting_fs() -> CountingFs {
    WatchedFs::new(Arc::new(RealFs::new()), SyncCount::default())
}
