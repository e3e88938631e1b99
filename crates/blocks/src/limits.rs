//! Bounds, and why they are what they are.

/// Unit of allocation, in bytes: what disks write whole.
pub const SECTOR_BYTES: usize = 512;
/// In front of each block.
pub(crate) const BLOCK_HEADER_BYTES: usize = 40;
/// Longest root of a checkpoint: it lies in the superblock's 2 KiB, behind the other fields.
pub(crate) const ROOT_BYTES_MAX: usize = 1024;
/// Longest block on disk: its length in sectors has 16 bits.
pub(crate) const BLOCK_SECTORS_MAX: usize = u16::MAX as usize;
/// Longest block before compression, which fits uncompressed: 552 bytes less than 32 MiB. What a reader allocates for a
/// block whose checksum is right.
pub(crate) const RAW_BYTES_MAX: usize = BLOCK_SECTORS_MAX * SECTOR_BYTES - BLOCK_HEADER_BYTES;
/// Longest label of a block: its length has eight bits.
pub(crate) const LABEL_BYTES_MAX: usize = u8::MAX as usize;
/// Longest section of a block, and most of them: their lengths, and their number, have sixteen bits.
pub(crate) const SECTION_BYTES_MAX: usize = u16::MAX as usize;
pub(crate) const SECTIONS_MAX: usize = u16::MAX as usize;
/// Shortest segment: its map is whole words, and the volume's head fits in.
pub(crate) const SEGMENT_BYTES_MIN: u32 = 32 << 10;
/// Longest segment: a map page describes whole ones.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 16 << 20;
/// Longest name of a volume, as file systems have it for a directory.
pub(crate) const VOLUME_NAME_BYTES_MAX: usize = 255;
/// Bytes collected before they are written, and most bytes read with one call.
pub(crate) const IO_BYTES_MAX: usize = 1 << 20;
/// A buffer of a reader or writer that has become longer, for a long block, is given back.
pub(crate) const BUFFER_BYTES_MAX: usize = 4 * IO_BYTES_MAX;
/// A reader's buffer for raw bytes that has become longer is given back: pages and pieces of large values are shorter.
pub const RAW_BUFFER_BYTES_MAX: usize = IO_BYTES_MAX / 2;
/// Bytes between two blocks that are read for nothing rather than read apart.
pub(crate) const READ_GAP_BYTES_MAX: u64 = 32 << 10;
/// Least and greatest step in which a file grows.
pub(crate) const GROWTH_BYTES: std::ops::RangeInclusive<u64> = (64 << 10)..=(8 << 20);
/// Shortest run a writer reserves, in sectors, where there is room.
pub(crate) const RUN_SECTORS_MIN: u64 = 64;
/// Longest run a writer reserves, in sectors.
pub(crate) const RUN_SECTORS_MAX: u64 = 2048;
/// Least number of segments whose worth of blocks one plan in the background may have moved: enough for a small store
/// to become small within a few checkpoints, and little work for a disk.
pub(crate) const BACKGROUND_SEGMENTS: u64 = 16;
/// Segments at the end of a file that one plan in the background empties though they are no emptier than others, beside
/// one in so many of all. Where much is written they are soon rewritten anyway, and the room is needed.
pub(crate) const TAIL_SEGMENTS: usize = 2;
pub(crate) const TAIL_SHARE: usize = 128;
/// One plan in the background may have one part in so many of all blocks moved.
pub(crate) const BACKGROUND_SHARE: u64 = 20;
