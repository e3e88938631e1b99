//! Opens the btree engine with the options users gave.

use crate::config::StorageConfig;
use crate::memory;
use codec::Codec;
use engine::{Engine, EngineError};
use engine_btree::{BtreeEngine, BtreeOptions, SalvageReport};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// The compressor of collections when none is named.
pub const COMPRESSOR: &str = "snappy";

/// Opens the engine on its directory.
pub fn open(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let options = options(storage, memory::bytes(&*env.fs))?;
    Ok(Arc::new(BtreeEngine::open(env, directory, options)?))
}

/// Rebuilds what is readable of damaged files.
pub fn salvage(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<SalvageReport, EngineError> {
    let options = options(storage, memory::bytes(&*env.fs))?;
    BtreeEngine::salvage(env, directory, options)
}

fn options(storage: &StorageConfig, memory_bytes: u64) -> Result<BtreeOptions, EngineError> {
    let name = storage.block_compressor.as_deref().unwrap_or(COMPRESSOR);
    let collection_compressor = name.parse::<Codec>().map_err(|error| EngineError::Invalid {
        operation: "open",
        reason: error.to_string(),
    })?;
    let percent = |percent: f64| (memory_bytes as f64 * percent / 100.0) as u64;
    let cache_bytes = match (storage.cache_bytes, storage.cache_percent) {
        (Some(bytes), _) => bytes,
        (None, Some(share)) => percent(share),
        (None, None) => BtreeOptions::default_cache_bytes(memory_bytes),
    };
    Ok(BtreeOptions {
        cache_bytes,
        collection_compressor,
        zstd_level: storage.zstd_level,
        directory_per_db: storage.directory_per_db,
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
             collectionConfig:\n      blockCompressor: zstd\n",
            64 << 30,
        );
        assert_eq!(
            (given.cache_bytes, given.collection_compressor),
            (512 << 20, Codec::Zstd)
        );
        assert_eq!((given.zstd_level, given.directory_per_db), (Some(9), true));
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
    }
}
