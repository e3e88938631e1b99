//! Counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Entries appended.
    pub entries: u64,
    /// Bytes of those entries.
    pub entry_bytes: u64,
    /// Bytes written to segments, headers and padding included.
    pub written_bytes: u64,
    /// Bytes of frames before compression.
    pub raw_bytes: u64,
    /// Bytes of frames after compression.
    pub stored_bytes: u64,
    /// Groups flushed: one write and one sync each.
    pub groups: u64,
    /// Frames written.
    pub frames: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
    /// Time spent in those syncs, in microseconds.
    pub sync_us: u64,
    /// Bytes appended and not yet durable.
    pub buffered_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Segments made from recycled files.
    pub segments_recycled: u64,
    /// Times a caller had to wait for room.
    pub waits_for_room: u64,
    /// There is no room for the next segment, or was none for what is in memory.
    pub is_short: bool,
    /// Times that it came to that.
    pub shortages: u64,
    /// Bytes of history that went because of it, though they were to be kept.
    pub history_given_up_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub entries: AtomicU64,
    pub entry_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub raw_bytes: AtomicU64,
    pub stored_bytes: AtomicU64,
    pub groups: AtomicU64,
    pub frames: AtomicU64,
    pub syncs: AtomicU64,
    pub sync_us: AtomicU64,
    pub segments_recycled: AtomicU64,
    pub waits_for_room: AtomicU64,
    pub shortages: AtomicU64,
    pub history_given_up_bytes: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counters {
    /// The public form; gauges are filled in by the caller.
    pub fn read(&self) -> LogStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogStats {
            entries: get(&self.entries),
            entry_bytes: get(&self.entry_bytes),
            written_bytes: get(&self.written_bytes),
            raw_bytes: get(&self.raw_bytes),
            stored_bytes: get(&self.stored_bytes),
            groups: get(&self.groups),
            frames: get(&self.frames),
            syncs: get(&self.syncs),
            sync_us: get(&self.sync_us),
            buffered_bytes: 0,
            segments: 0,
            segments_recycled: get(&self.segments_recycled),
            waits_for_room: get(&self.waits_for_room),
            is_short: false,
            shortages: get(&self.shortages),
            history_given_up_bytes: get(&self.history_given_up_bytes),
        }
    }
}
