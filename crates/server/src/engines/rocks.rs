//! Opens the rocksdb engine with the options users gave.

use crate::config::StorageConfig;
use crate::descriptors::Descriptors;
use crate::memory;
use engine::{Engine, EngineError};
use engine_rocksdb::{RocksEngine, RocksOptions};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// Opens the engine on its directory.
pub fn open(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let mut options = RocksOptions {
        cache_size_bytes: storage
            .rocksdb_cache_bytes
            .filter(|bytes| *bytes > 0)
            .unwrap_or_else(|| memory::default_cache_bytes(memory::bytes(&*env.fs))),
        open_files_max: Some(Descriptors::raise().table_files_max()),
        ..RocksOptions::default()
    };
    if let Some(compression) = &storage.rocksdb_compression {
        options.compression.clone_from(compression);
    }
    if let Some(config) = &storage.rocksdb_config {
        options.config_string.clone_from(config);
    }
    Ok(Arc::new(RocksEngine::open(env, directory, options)?))
}
