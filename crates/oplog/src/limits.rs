//! Every bound of the log, with where it comes from.

/// Longest entry in bytes: the longest wire message (48 MB) as one write, and 1 MiB for what the server adds.
pub const ENTRY_BYTES_MAX: usize = 49 * 1024 * 1024;

/// Smallest segment that can be asked for. Production uses 64 to 128 MiB; tests use small ones to reach the seams.
pub const SEGMENT_BYTES_MIN: u64 = 8 * 1024;

/// Largest segment that can be asked for.
pub const SEGMENT_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The default of `frame_bytes`: large enough for compression to see repetition, small enough that a reader
/// decompresses little beyond what it seeks.
pub(crate) const FRAME_RAW_BYTES_TARGET: usize = 1024 * 1024;

/// What a frame takes beside its payload: header (48), seal (44) and padding.
pub(crate) const FRAME_EXTRA_BYTES_MAX: usize = 104;

/// Where no other segment can be made, one part in so many of a segment is left to what a checkpoint writes: it is the
/// checkpoint that lets segments go. A thousand collections' counts take 20 kB.
pub(crate) const CHECKPOINT_PART_OF_SEGMENT: u64 = 8;

/// Where the disk has room for fewer segments than this, each that is made is told of: the checkpoint that lets others
/// go needs room for what the engine has to write, and comes too late where the log has taken the last of it.
pub(crate) const FEW_SEGMENTS: u64 = 4;

/// Largest `frame_bytes`.
pub(crate) const FRAME_RAW_BYTES_TARGET_MAX: usize = 16 * 1024 * 1024;

/// Length field before each entry of a raw frame.
pub(crate) const ENTRY_LENGTH_BYTES: usize = 4;

/// Largest raw frame: one entry of the greatest length and its length field.
pub(crate) const FRAME_RAW_BYTES_MAX: usize = ENTRY_BYTES_MAX + ENTRY_LENGTH_BYTES;

/// Frames below this are not worth compressing.
pub(crate) const COMPRESS_RAW_BYTES_MIN: usize = 4 * 1024;

/// The buffer's bound by default, and the largest and least that [`crate::LogOptions::buffer_bytes_for`] answers. What
/// is appended during a sync of some ten milliseconds has to find room.
pub(crate) const BUFFER_BYTES_MOST: u64 = 64 * 1024 * 1024;
pub(crate) const BUFFER_BYTES_LEAST: u64 = 4 * 1024 * 1024;

/// It is one part in so many of the cache: little beside it.
pub(crate) const BUFFER_PART_OF_CACHE: u64 = 16;

/// A group (frames that share one write and one sync) is closed at so many bytes, so that nobody waits for more.
const GROUP_BYTES_MOST: usize = 8 * 1024 * 1024;
const GROUP_BYTES_LEAST: usize = 1024 * 1024;

/// So many buffered bytes wake the background flusher early.
const FLUSH_SOON_BYTES_MOST: usize = 4 * 1024 * 1024;

/// The bound of a group where the buffer has this one: a group takes memory beside the buffer.
pub(crate) fn group_bytes(buffer_bytes_max: usize) -> usize {
    (buffer_bytes_max / 4).clamp(GROUP_BYTES_LEAST, GROUP_BYTES_MOST)
}

/// Buffered bytes that wake the background flusher, where the buffer has this bound: long before it is full.
pub(crate) fn flush_soon_bytes(buffer_bytes_max: usize) -> usize {
    (buffer_bytes_max / 4).clamp(1, FLUSH_SOON_BYTES_MOST)
}

/// The default of `buffer_bytes_refused`: some entries of the greatest length beyond the bound that `wait_for_room`
/// keeps.
pub(crate) const BUFFER_BYTES_REFUSED: usize = 256 * 1024 * 1024;

/// Emptied chunks with more memory than this are not kept for reuse.
pub(crate) const CHUNK_KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Emptied chunks kept for reuse.
pub(crate) const SPARE_CHUNKS_MAX: usize = 4;

/// Bytes of spare chunks where the buffer has this bound: beside a small cache, four full chunks would be much to keep
/// while little is written.
pub(crate) fn spare_bytes(buffer_bytes_max: usize) -> usize {
    buffer_bytes_max / 4
}

/// A group's buffer with more memory than this is given back after the group: a burst must not take memory for good.
pub(crate) const GROUP_KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Raw bytes between two remembered frame positions of a segment.
pub(crate) const MARK_INTERVAL_BYTES: u64 = 1024 * 1024;

/// Bytes read from a segment at once while scanning.
pub(crate) const SCAN_WINDOW_BYTES: usize = 256 * 1024;
