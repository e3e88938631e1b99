//! How an engine is opened.

use codec::Codec;

/// What a table without a compressor of its own uses, and how large things are.
#[derive(Clone, Debug)]
pub struct BtreeOptions {
    /// Memory for pages, in bytes.
    pub cache_bytes: u64,
    /// Compressor of record tables whose specification names none.
    pub collection_compressor: Codec,
    /// Compressor of index and small tables.
    pub index_compressor: Codec,
    /// Level of zlib (0 to 9), where the default is not wanted.
    pub zlib_level: Option<i32>,
    /// Level of zstd (1 to 22), where the default is not wanted.
    pub zstd_level: Option<i32>,
    /// Row bytes of a leaf of a record table: what is read and decompressed at once.
    pub record_leaf_bytes: usize,
    /// Row bytes of a leaf of an index.
    pub index_leaf_bytes: usize,
    /// Values of so many bytes and more get blocks of their own.
    pub large_value_bytes: usize,
    /// One folder for each database.
    pub directory_per_db: bool,
    /// Background threads; `None` takes as many as the machine's processors suggest. With 0 the work is done by whoever
    /// needs it done, which tests use to repeat a run exactly.
    pub threads: Option<usize>,
    /// The process's heap, whose bytes beside those of pages are the cache's to bear. `None` where nobody knows, and
    /// where several engines share a process.
    pub heap: Option<Heap>,
    /// Segment length of new files, in bytes.
    pub segment_bytes: u32,
    /// Read single pages past the system's cache, for a cache that has most of the memory.
    pub direct_io: bool,
}

/// What the heap of the process takes, whoever uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapBytes {
    /// In memory.
    pub resident: u64,
    /// Of it, about: freed, and not given back to the system.
    pub idle: u64,
}

/// How the heap is asked, and told.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// What it takes now.
    pub bytes: fn() -> HeapBytes,
    /// Gives what is freed back to the system.
    pub give_back: fn(),
}

impl BtreeOptions {
    /// Smallest cache.
    pub const CACHE_BYTES_MIN: u64 = 1 << 20;

    /// The level for a codec.
    pub(crate) fn level(&self, codec: Codec) -> Option<i32> {
        match codec {
            Codec::Zlib => self.zlib_level,
            Codec::Zstd => self.zstd_level,
            Codec::None | Codec::Snappy | Codec::Lz4 => None,
        }
    }
}

impl Default for BtreeOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            collection_compressor: Codec::Snappy,
            index_compressor: Codec::Lz4,
            zlib_level: None,
            zstd_level: None,
            record_leaf_bytes: 16 << 10,
            index_leaf_bytes: 16 << 10,
            large_value_bytes: 32 << 10,
            directory_per_db: false,
            threads: None,
            heap: None,
            segment_bytes: 1 << 20,
            direct_io: false,
        }
    }
}
