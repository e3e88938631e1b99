//! The storage engines of this build: names, choice, opening, and which options each cannot honour.

#[cfg(feature = "rocksdb")]
mod rocks;

use crate::config::{Config, StorageConfig};
use engine::{Engine, EngineError};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// The engines that can be chosen, by the names users write; the first is the default.
#[cfg(feature = "rocksdb")]
pub const NAMES: &[&str] = &["rocksdb", "inMemory"];
/// The engines that can be chosen, by the names users write; the first is the default.
#[cfg(not(feature = "rocksdb"))]
pub const NAMES: &[&str] = &["inMemory"];

/// Names of engines that MongoDB, Percona's builds or Tenon's plans know, and what each means here.
const KNOWN: [(&str, &str); 9] = [
    ("inMemory", "inMemory"),
    ("ephemeralForTest", "inMemory"),
    ("rocksdb", "rocksdb"),
    ("wiredTiger", "btree"),
    ("btree", "btree"),
    ("PerconaFT", "betree"),
    ("tokuft", "betree"),
    ("betree", "betree"),
    ("mmapv1", "mmapv1"),
];

/// The engine of a name as users write it, by its own name; `None` for the default.
pub fn choose(given: Option<&str>) -> Result<&'static str, String> {
    let Some(given) = given else {
        return Ok(NAMES[0]);
    };
    let have = NAMES.join(", ");
    match KNOWN.iter().find(|(name, _)| *name == given) {
        None => Err(format!("Unknown storage engine '{given}'. This build has: {have}.")),
        Some((_, name)) if NAMES.contains(name) => Ok(name),
        Some((_, "rocksdb")) => Err(format!(
            "Storage engine 'rocksdb' was left out of this build (cargo feature rocksdb). This build has: {have}."
        )),
        Some((_, name)) if *name == given => Err(format!(
            "Storage engine '{given}' is not built yet. This build has: {have}."
        )),
        Some((_, name)) => Err(format!(
            "Storage engine '{given}' means Tenon's engine '{name}', which is not built yet. This build has: {have}."
        )),
    }
}

/// Opens an engine by its own name on its directory, which must exist.
pub fn open(name: &str, env: &Env, directory: &Path, storage: &StorageConfig) -> Result<Arc<dyn Engine>, EngineError> {
    #[cfg(feature = "rocksdb")]
    if name == "rocksdb" {
        return rocks::open(env, directory, storage);
    }
    debug_assert_eq!(name, "inMemory", "choose() gives only names of this build");
    let _ = storage;
    Ok(Arc::new(InMemoryEngine::open(
        env,
        directory,
        InMemoryOptions::default(),
    )?))
}

/// Warnings for options that were given and that the chosen engine cannot honour.
pub fn warnings(name: &str, config: &Config) -> Vec<String> {
    let storage = &config.storage;
    let given = [
        (storage.directory_per_db, "storage.directoryPerDB", &[][..]),
        (
            storage.directory_for_indexes,
            "storage.wiredTiger.engineConfig.directoryForIndexes",
            &[],
        ),
        (
            storage.cache_bytes.is_some(),
            "storage.wiredTiger.engineConfig.cacheSizeGB",
            &[],
        ),
        (
            storage.prefix_compression.is_some(),
            "storage.wiredTiger.indexConfig.prefixCompression",
            &[],
        ),
        (
            storage.block_compressor.is_some(),
            "storage.wiredTiger.collectionConfig.blockCompressor",
            &[],
        ),
        (
            storage.rocksdb_cache_bytes.is_some(),
            "storage.rocksdb.cacheSizeGB",
            &["rocksdb"][..],
        ),
        (
            storage.rocksdb_compression.is_some(),
            "storage.rocksdb.compression",
            &["rocksdb"],
        ),
        (
            storage.rocksdb_config.is_some(),
            "storage.rocksdb.configString",
            &["rocksdb"],
        ),
        (
            storage.in_memory_bytes.is_some(),
            "storage.inMemory.engineConfig.inMemorySizeGB",
            &[],
        ),
    ];
    given
        .iter()
        .filter(|(given, _, engines)| *given && !engines.contains(&name))
        .map(|(_, option, _)| format!("{option} has no effect: the storage engine {name} does not have this option"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen_or_refused_with_a_reason() {
        assert_eq!(choose(None), Ok(NAMES[0]));
        assert_eq!(choose(Some("ephemeralForTest")), Ok("inMemory"));
        for name in ["wiredTiger", "btree", "mmapv1", "PerconaFT"] {
            let refusal = choose(Some(name)).expect_err("not built");
            assert!(refusal.contains(name) && refusal.contains("not built yet"), "{refusal}");
            assert!(
                refusal.contains("This build has") && refusal.contains("inMemory"),
                "{refusal}"
            );
        }
        assert!(
            choose(Some("nonesuch"))
                .expect_err("unknown")
                .contains("Unknown storage engine 'nonesuch'")
        );
    }
}
