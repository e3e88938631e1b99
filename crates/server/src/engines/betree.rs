//! Opens the betree engine with the options users gave, by the names that Percona's builds have for them.

use crate::config::StorageConfig;
use crate::memory;
use codec::Codec;
use engine::{Engine, EngineError};
use engine_betree::{BetreeEngine, BetreeOptions};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// The compressor of collections when none is named.
pub const COMPRESSOR: &str = "zstd";

/// Opens the engine on its directory.
pub fn open(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let options = options(storage, memory::bytes(&*env.fs))?;
    Ok(Arc::new(BetreeEngine::open(env, directory, options)?))
}

/// The cache's size; 0 stands for the default.
pub fn cache_bytes(storage: &StorageConfig, memory_bytes: u64) -> u64 {
    let given = storage.betree.cache_bytes.filter(|bytes| *bytes > 0);
    given.unwrap_or_else(|| memory::default_cache_bytes(memory_bytes))
}

fn options(storage: &StorageConfig, memory_bytes: u64) -> Result<BetreeOptions, EngineError> {
    let given = &storage.betree;
    let codec = |name: Option<&str>| {
        name.unwrap_or(COMPRESSOR)
            .parse::<Codec>()
            .map_err(|error| EngineError::Invalid {
                operation: "open",
                reason: error.to_string(),
            })
    };
    let usual = BetreeOptions::default();
    Ok(BetreeOptions {
        cache_bytes: cache_bytes(storage, memory_bytes),
        collection_compressor: codec(given.collection_compressor.as_deref())?,
        index_compressor: codec(given.index_compressor.as_deref())?,
        node_bytes: given.page_bytes.unwrap_or(usual.node_bytes),
        basement_bytes: given.read_page_bytes.unwrap_or(usual.basement_bytes),
        fanout: given.fanout.unwrap_or(usual.fanout),
        direct_io: given.direct_io.unwrap_or(usual.direct_io),
        ..usual
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_percona_ft_reach_the_engine() {
        let text = "storage:\n  PerconaFT:\n    engineOptions:\n      cacheSize: 536870912\n      directio: true\n    collectionOptions:\n      compression: zlib\n      \
                    pageSize: 4194304\n      readPageSize: 65536\n      fanout: 8\n    indexOptions:\n      compression: lz4\n";
        let config = crate::config::from_file_text(text, Path::new("/")).expect("it parses");
        let given = options(&config.storage, 8 << 30).expect("all of it is known");
        assert_eq!((given.cache_bytes, given.fanout), (512 << 20, 8));
        assert!(given.direct_io);
        assert_eq!(
            (given.collection_compressor, given.index_compressor),
            (Codec::Zlib, Codec::Lz4)
        );
        assert_eq!((given.node_bytes, given.basement_bytes), (4 << 20, 64 << 10));
        let nothing = crate::config::from_file_text("", Path::new("/")).expect("it parses");
        let usual = options(&nothing.storage, 8 << 30).expect("the defaults are known");
        assert_eq!((usual.cache_bytes, usual.collection_compressor), (7 << 29, Codec::Zstd));
    }
}
