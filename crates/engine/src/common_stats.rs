//! Figures that mean the same on every engine.

/// What whoever watches a server asks of any engine. `None` is a figure that the engine does not count or has no
/// occasion for; which ones those are **must** not change while it is open. What only it has is in
/// [`crate::Engine::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommonStats {
    /// Bytes in its cache, or in memory for an engine that keeps all of it there.
    pub cache_bytes: Option<u64>,
    /// What the cache may have. None where nothing is ever evicted.
    pub cache_bytes_max: Option<u64>,
    /// Bytes in memory that its next checkpoint or flush writes.
    pub dirty_bytes: Option<u64>,
    /// Pages in the cache.
    pub pages_cached: Option<u64>,
    /// Those of them that have changed.
    pub pages_dirty: Option<u64>,
    /// Bytes of inner pages in the cache.
    pub inner_bytes: Option<u64>,
    /// Bytes of leaf pages in the cache.
    pub leaf_bytes: Option<u64>,
    /// Pages read into the cache since the start.
    pub pages_read: Option<u64>,
    /// Pages written from it.
    pub pages_written: Option<u64>,
    /// Pages evicted from it.
    pub pages_evicted: Option<u64>,
    /// Bytes of its files.
    pub file_bytes: Option<u64>,
    /// Blocks read from them since the start, and their bytes.
    pub blocks_read: Option<u64>,
    /// See `blocks_read`.
    pub bytes_read: Option<u64>,
    /// Blocks written to them, and their bytes.
    pub blocks_written: Option<u64>,
    /// See `blocks_written`.
    pub bytes_written: Option<u64>,
    /// Syncs of them.
    pub syncs: Option<u64>,
    /// Microseconds for which writers were held back because it could not keep up.
    pub write_delay_us: Option<u64>,
    /// Bytes of versions that are kept for open snapshots.
    pub history_bytes: Option<u64>,
    /// Snapshots open.
    pub snapshots_open: Option<u64>,
}

impl CommonStats {
    /// Those that are there, by the names that they are shown under.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self {
            cache_bytes,
            cache_bytes_max,
            dirty_bytes,
            pages_cached,
            pages_dirty,
            inner_bytes,
            leaf_bytes,
            pages_read,
            pages_written,
            pages_evicted,
            file_bytes,
            blocks_read,
            bytes_read,
            blocks_written,
            bytes_written,
            syncs,
            write_delay_us,
            history_bytes,
            snapshots_open,
        } = *self;
        [
            ("cacheBytes", cache_bytes),
            ("cacheBytesMax", cache_bytes_max),
            ("dirtyBytes", dirty_bytes),
            ("pagesCached", pages_cached),
            ("pagesDirty", pages_dirty),
            ("innerBytes", inner_bytes),
            ("leafBytes", leaf_bytes),
            ("pagesRead", pages_read),
            ("pagesWritten", pages_written),
            ("pagesEvicted", pages_evicted),
            ("fileBytes", file_bytes),
            ("blocksRead", blocks_read),
            ("bytesRead", bytes_read),
            ("blocksWritten", blocks_written),
            ("bytesWritten", bytes_written),
            ("syncs", syncs),
            ("writeDelayMicros", write_delay_us),
            ("historyBytes", history_bytes),
            ("snapshotsOpen", snapshots_open),
        ]
        .into_iter()
        .filter_map(|(name, figure)| Some((name, figure?)))
    }
}
