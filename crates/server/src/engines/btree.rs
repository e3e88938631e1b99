//! Opens the btree engine with the options users gave.

use crate::config::StorageConfig;
use crate::memory;
use codec::Codec;
use engine::{Engine, EngineError};
use engine_btree::{BtreeEngine, BtreeOptions, Heap, HeapBytes, SalvagedStore};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// The compressor of collections when none is named.
pub const COMPRESSOR: &str = "snappy";
/// Smaller caches deserve a warning.
const CACHE_BYTES_ADVISED: u64 = 256 << 20;
/// A larger part of memory deserves a warning.
const MEMORY_PERCENT_ADVISED: u64 = 80;

/// Opens the engine on its directory.
pub fn open(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let options = options(storage, memory::bytes(&*env.fs))?;
    Ok(Arc::new(BtreeEngine::open(env, directory, options)?))
}

/// Rebuilds what is readable of damaged files, beside them.
pub fn salvage(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<SalvagedStore, EngineError> {
    let options = options(storage, memory::bytes(&*env.fs))?;
    BtreeEngine::salvage(env, directory, options)
}

/// The cache's size. 0 stands for the default, as in MongoDB.
pub fn cache_bytes(storage: &StorageConfig, memory_bytes: u64) -> u64 {
    let share = storage.cache_percent.filter(|percent| *percent > 0.0);
    match (storage.cache_bytes.filter(|bytes| *bytes > 0), share) {
        (Some(bytes), _) => bytes,
        (None, Some(percent)) => (memory_bytes as f64 * percent / 100.0) as u64,
        (None, None) => memory::default_cache_bytes(memory_bytes),
    }
}

/// What is unwise about a cache's size.
pub fn cache_warning(storage: &StorageConfig, memory_bytes: u64) -> Option<String> {
    let bytes = cache_bytes(storage, memory_bytes);
    let reason = if bytes < CACHE_BYTES_ADVISED {
        "that is little: everything that does not fit is read from disk, and writers wait for room"
    } else if bytes > memory_bytes / 100 * MEMORY_PERCENT_ADVISED {
        "that leaves little memory for connections, sorts and the system's file cache"
    } else {
        return None;
    };
    let mib = |bytes: u64| bytes >> 20;
    Some(format!(
        "the cache has {} MiB of {} MiB of memory: {reason}",
        mib(bytes),
        mib(memory_bytes)
    ))
}

/// The server's heap.
const HEAP: Heap = Heap {
    bytes: || {
        let heap = allocator::heap_use();
        HeapBytes {
            resident: heap.resident,
            idle: heap.idle(),
        }
    },
    give_back: allocator::give_back,
};

fn options(storage: &StorageConfig, memory_bytes: u64) -> Result<BtreeOptions, EngineError> {
    let name = storage.block_compressor.as_deref().unwrap_or(COMPRESSOR);
    let collection_compressor = name.parse::<Codec>().map_err(|error| EngineError::Invalid {
        operation: "open",
        reason: error.to_string(),
    })?;
    Ok(BtreeOptions {
        cache_bytes: cache_bytes(storage, memory_bytes),
        collection_compressor,
        zstd_level: storage.zstd_level,
        direct_io: storage.direct_io.unwrap_or(false),
        directory_per_db: storage.directory_per_db,
        heap: Some(HEAP),
        ..BtreeOptions::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(text: &str, memory_bytes: u64) -> BtreeOptions {
        let config = crate::config::from_file_text(text, Path::new("/")).unwrap();
        options(&config.storage, memory_bytes).unwrap()
    }

    #[test]
    fn options_of_wired_tiger_reach_the_engine() {
        let given = of(
            "storage:\n  directoryPerDB: true\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 0.5\n      zstdCompressionLevel: 9\n    \
             collectionConfig:\n      blockCompressor: zstd\n  btree:\n    directIO: true\n",
            64 << 30,
        );
        assert_eq!(
            (given.cache_bytes, given.collection_compressor),
            (512 << 20, Codec::Zstd)
        );
        assert_eq!((given.zstd_level, given.directory_per_db), (Some(9), true));
        assert!(given.direct_io && !of("", 8 << 30).direct_io);
        let share = of(
            "storage:\n  wiredTiger:\n    engineConfig:\n      cacheSizePct: 25\n",
            8 << 30,
        );
        assert_eq!(share.cache_bytes, 2 << 30);
        let nothing = of("", 8 << 30);
        assert_eq!(
            (nothing.cache_bytes, nothing.collection_compressor),
            (7 << 29, Codec::Snappy)
        );
        assert_eq!(of("", 1 << 30).cache_bytes, 256 << 20, "never less");
        let zeros = "storage:\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 0\n      cacheSizePct: 0\n";
        assert_eq!(of(zeros, 8 << 30).cache_bytes, 7 << 29, "0 is the default");
    }

    #[test]
    fn an_unwise_cache_is_told_of() {
        let warning = |gb: &str| {
            let text = format!("storage:\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: {gb}\n");
            let config = crate::config::from_file_text(&text, Path::new("/")).unwrap();
            cache_warning(&config.storage, 8 << 30)
        };
        assert!(
            warning("0.1")
                .unwrap()
                .contains("102 MiB of 8192 MiB of memory: that is little")
        );
        assert!(warning("7").unwrap().contains("leaves little memory"));
        assert_eq!([warning("0"), warning("0.25"), warning("6")], [None, None, None]);
    }
}
