//! What an engine is opened with.

use codec::Codec;

/// Sizes, compressors and threads.
#[derive(Clone, Debug)]
pub struct BetreeOptions {
    /// Memory for all of it: messages that are in memory only, and what was read or written lately.
    pub cache_bytes: u64,
    /// Compressor of tables of records that name none.
    pub collection_compressor: Codec,
    /// Compressor of other tables that name none.
    pub index_compressor: Codec,
    /// Bytes of a leaf before compression, at most (but for one long row).
    pub node_bytes: u32,
    /// Bytes of a basement, the part of a leaf that is read by itself, before compression.
    pub basement_bytes: u32,
    /// Bytes of messages that an inner node holds for all its children together before it passes some on.
    pub buffer_bytes: u32,
    /// Children of an inner node, at most.
    pub fanout: u32,
    /// Memory for messages that are in memory only; a quarter of the cache when `None`, and at most half of it.
    pub memtable_bytes: Option<u64>,
    /// Threads in the background; as many as suit the machine when `None`. With 0 the callers do the work, for tests.
    pub threads: Option<usize>,
    /// Segment length of new files, in bytes.
    pub segment_bytes: u32,
    /// Read single pieces past the system's cache, for a cache that has most of the memory.
    pub direct_io: bool,
}

impl BetreeOptions {
    /// Smallest cache.
    pub const CACHE_BYTES_MIN: u64 = 1 << 20;
    /// Fewest and most children of an inner node.
    pub const FANOUT: std::ops::RangeInclusive<u32> = 4..=64;

    /// Memory for messages that are in memory only.
    pub(crate) fn messages_bytes(&self) -> u64 {
        self.memtable_bytes
            .unwrap_or(self.cache_bytes / 4)
            .min(self.cache_bytes / 2)
    }

    /// Brings every size into its bounds.
    pub(crate) fn bounded(mut self) -> Self {
        self.cache_bytes = self.cache_bytes.max(Self::CACHE_BYTES_MIN);
        self.fanout = self.fanout.clamp(*Self::FANOUT.start(), *Self::FANOUT.end());
        self.basement_bytes = self.basement_bytes.clamp(256, 16 << 20);
        self.node_bytes = self.node_bytes.clamp(self.basement_bytes, 64 << 20);
        self.buffer_bytes = self.buffer_bytes.clamp(1024, 256 << 20);
        self
    }
}

impl Default for BetreeOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            collection_compressor: Codec::Zstd,
            index_compressor: Codec::Zstd,
            node_bytes: 1 << 20,
            basement_bytes: 16 << 10,
            buffer_bytes: 2 << 20,
            fanout: 16,
            memtable_bytes: None,
            threads: None,
            segment_bytes: 512 << 10,
            direct_io: false,
        }
    }
}
