//! The storage engines of this build: names, choice, opening, and which options each cannot honour.

mod betree;
mod btree;
mod mmapv1;
#[cfg(feature = "rocksdb")]
mod rocks;

use crate::config::{Config, StorageConfig, suggestion};
use crate::memory;
use engine::{Engine, EngineError};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::LogOptions;
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, Env, FileSystem};

/// The engines that can be chosen, by the names users write; the first is the default.
#[cfg(feature = "rocksdb")]
pub const NAMES: &[&str] = &["btree", "betree", "inMemory", "mmapv1", "rocksdb"];
/// The engines that can be chosen, by the names users write; the first is the default.
#[cfg(not(feature = "rocksdb"))]
pub const NAMES: &[&str] = &["btree", "betree", "inMemory", "mmapv1"];

/// Names of engines that MongoDB, Percona's builds or Tenon's plans know, and what each means here.
const KNOWN: [(&str, &str); 10] = [
    ("wiredTiger", "btree"),
    ("btree", "btree"),
    ("inMemory", "inMemory"),
    ("ephemeralForTest", "inMemory"),
    ("rocksdb", "rocksdb"),
    ("PerconaFT", "betree"),
    ("tokuft", "betree"),
    ("tokumx", "betree"),
    ("betree", "betree"),
    ("mmapv1", "mmapv1"),
];

/// How an engine that does not come with the server is opened: on its directory, which exists.
type Open = dyn Fn(&Env, &Path) -> Result<Arc<dyn Engine>, EngineError> + Send + Sync;

/// The engines that a program can open: those of this build, and what its `main` puts beside them.
#[derive(Clone, Default)]
pub struct Registry {
    others: Vec<(&'static str, Arc<Open>)>,
}

impl Registry {
    /// The engines that come with the server.
    pub fn built_in() -> Self {
        Self::default()
    }

    /// Puts an engine beside them. Its name is what `--storageEngine` takes and what its folder in the data directory
    /// is called: letters and digits, and none of the names that mean an engine already.
    #[must_use]
    pub fn with(
        mut self,
        name: &'static str,
        open: impl Fn(&Env, &Path) -> Result<Arc<dyn Engine>, EngineError> + Send + Sync + 'static,
    ) -> Self {
        let is_word = !name.is_empty() && name.chars().all(|character| character.is_ascii_alphanumeric());
        assert!(is_word, "{name:?} is no name of an engine: letters and digits are");
        let is_taken = KNOWN.iter().any(|(known, _)| *known == name) || self.find(name).is_some();
        assert!(!is_taken, "{name:?} means an engine already");
        self.others.push((name, Arc::new(open)));
        self
    }

    fn find(&self, name: &str) -> Option<&(&'static str, Arc<Open>)> {
        self.others.iter().find(|(other, _)| *other == name)
    }

    /// Names that can be chosen, as users write them; the first is the default.
    pub fn names(&self) -> Vec<&'static str> {
        let others = self.others.iter().map(|(name, _)| *name);
        NAMES.iter().copied().chain(others).collect()
    }

    /// The engine of a name as users write it, by its own name; `None` for the default.
    pub fn choose(&self, given: Option<&str>) -> Result<&'static str, String> {
        let Some(given) = given else {
            return Ok(NAMES[0]);
        };
        if let Some((name, _)) = self.find(given) {
            return Ok(name);
        }
        let have = self.names().join(", ");
        match KNOWN.iter().find(|(name, _)| *name == given) {
            None => {
                let known = KNOWN.iter().map(|(name, _)| *name);
                let others = self.others.iter().map(|(name, _)| *name);
                let meant = match suggestion::nearest(given, known.chain(others)) {
                    Some(name) => format!("; did you mean {name}?"),
                    None => ".".to_owned(),
                };
                Err(format!(
                    "Unknown storage engine '{given}'{meant} This build has: {have}."
                ))
            }
            Some((_, name)) if NAMES.contains(name) => Ok(name),
            Some((_, name)) => Err(format!(
                "Storage engine '{name}' was left out of this build (cargo feature {name}). This build has: {have}."
            )),
        }
    }

    /// Whether what an engine writes can be encrypted.
    ///
    /// # Errors
    /// A sentence: it cannot, and why.
    pub fn check_encryption(&self, name: &str) -> Result<(), String> {
        let reason = match name {
            "btree" | "betree" | "inMemory" | "mmapv1" => return Ok(()),
            "rocksdb" => "the RocksDB library opens its files itself, and its C interface has no place for a cipher",
            _ => "it does not come with this server, which cannot tell what it writes",
        };
        Err(format!(
            "security.enableEncryption (--enableEncryption): the storage engine {name} cannot encrypt: {reason}"
        ))
    }

    /// Opens an engine by its own name on its directory, which must exist.
    pub fn open(
        &self,
        name: &str,
        env: &Env,
        directory: &Path,
        storage: &StorageConfig,
    ) -> Result<Arc<dyn Engine>, EngineError> {
        if let Some((_, open)) = self.find(name) {
            return open(env, directory);
        }
        match name {
            #[cfg(feature = "rocksdb")]
            "rocksdb" => rocks::open(env, directory, storage),
            "betree" => betree::open(env, directory, storage),
            "mmapv1" => mmapv1::open(env, directory, storage),
            "inMemory" => Ok(Arc::new(InMemoryEngine::open(
                env,
                directory,
                InMemoryOptions {
                    memory_bytes: storage
                        .in_memory_bytes
                        .unwrap_or_else(|| memory::default_cache_bytes(memory::bytes(&*env.fs))),
                    memory_bytes_max: storage.in_memory_bytes,
                    ..InMemoryOptions::default()
                },
            )?)),
            _ => {
                debug_assert_eq!(name, "btree", "choose() gives only names of this build");
                btree::open(env, directory, storage)
            }
        }
    }
}

/// Whether an engine's folder has files from the first time on that it was open. That of `inMemory` has none before its
/// first checkpoint, and of an engine that does not come with the server nobody knows.
pub fn leaves_files(name: &str) -> bool {
    ["btree", "betree", "mmapv1", "rocksdb"].contains(&name)
}

/// Rebuilds what is readable of a damaged engine's files, beside them; `None` for an engine that cannot.
pub fn salvage(
    name: &str,
    env: &Env,
    directory: &Path,
    storage: &StorageConfig,
) -> Option<Result<engine_btree::SalvagedStore, EngineError>> {
    (name == "btree").then(|| btree::salvage(env, directory, storage))
}

/// Bytes that the log may keep in memory beside the engine's cache; `None` where the log's own bound will do.
pub fn log_buffer_bytes(name: &str, storage: &StorageConfig, memory_bytes: u64) -> Option<usize> {
    let cache_bytes = match name {
        "btree" => btree::cache_bytes(storage, memory_bytes),
        "betree" => betree::cache_bytes(storage, memory_bytes),
        _ => return None,
    };
    Some(LogOptions::buffer_bytes_for(cache_bytes))
}

/// The compressor that new collections are given by name, so that they keep it when the option changes.
pub fn collection_compressor(name: &str, storage: &StorageConfig) -> Option<String> {
    let (given, usual) = match name {
        "btree" => (&storage.block_compressor, btree::COMPRESSOR),
        "betree" => (&storage.betree.collection_compressor, betree::COMPRESSOR),
        _ => return None,
    };
    Some(given.clone().unwrap_or_else(|| usual.to_owned()))
}

/// The memory that an engine has which writes to disk what has no room there.
pub fn cache_bytes(name: &str, storage: &StorageConfig, memory_bytes: u64) -> Option<u64> {
    match name {
        "btree" => Some(btree::cache_bytes(storage, memory_bytes)),
        "betree" => Some(betree::cache_bytes(storage, memory_bytes)),
        "mmapv1" => Some(mmapv1::cache_bytes(storage, memory_bytes)),
        _ => None,
    }
}

/// Warnings for options that were given and that the chosen engine cannot honour, and for unwise ones.
pub fn warnings(name: &str, config: &Config, memory_bytes: u64) -> Vec<String> {
    let mut warnings = without_effect(name, config);
    if name == "btree" {
        warnings.extend(btree::cache_warning(&config.storage, memory_bytes));
    }
    warnings
}

/// A warning where direct reads were asked for and the file system of `probe`, a file beside the data, or its disk has
/// none for the sectors that data comes in.
pub fn direct_io_warning(name: &str, storage: &StorageConfig, fs: &dyn FileSystem, probe: &Path) -> Option<String> {
    let (option, is_wanted) = match name {
        "btree" => ("storage.btree.directIO", storage.direct_io),
        "betree" => ("storage.PerconaFT.engineOptions.directio", storage.betree.direct_io),
        _ => return None,
    };
    let is_direct = || fs.open(probe, Access::ReadDirect).is_ok_and(|file| file.is_direct());
    (is_wanted == Some(true) && !is_direct()).then(|| {
        format!("{option} has no effect: the file system or the disk of dbPath does not read single sectors of 512 bytes past the system's cache")
    })
}

fn without_effect(name: &str, config: &Config) -> Vec<String> {
    let storage = &config.storage;
    // Options of one engine by the end of their names, and which of them were given.
    let of_wired_tiger = [
        ("engineConfig.cacheSizeGB", storage.cache_bytes.is_some()),
        ("engineConfig.cacheSizePct", storage.cache_percent.is_some()),
        ("engineConfig.zstdCompressionLevel", storage.zstd_level.is_some()),
        ("indexConfig.prefixCompression", storage.prefix_compression.is_some()),
        ("collectionConfig.blockCompressor", storage.block_compressor.is_some()),
    ];
    let of_rocksdb = [
        ("cacheSizeGB", storage.rocksdb_cache_bytes.is_some()),
        ("compression", storage.rocksdb_compression.is_some()),
        ("configString", storage.rocksdb_config.is_some()),
    ];
    let mmapv1 = &storage.mmapv1;
    let of_mmapv1 = [
        ("cacheSizeGB", mmapv1.cache_bytes.is_some()),
        ("noPadding", mmapv1.no_padding.is_some()),
        ("nsSize", mmapv1.namespace_mb.is_some()),
        ("preallocDataFiles", mmapv1.preallocate.is_some()),
        ("quota.enforced", mmapv1.quota.is_some()),
        ("quota.maxFilesPerDB", mmapv1.files_per_database_max.is_some()),
        ("smallFiles", mmapv1.small_files.is_some()),
    ];
    let of_betree = [
        ("engineOptions.cacheSize", storage.betree.cache_bytes.is_some()),
        (
            "collectionOptions.compression",
            storage.betree.collection_compressor.is_some(),
        ),
        ("collectionOptions.pageSize", storage.betree.page_bytes.is_some()),
        (
            "collectionOptions.readPageSize",
            storage.betree.read_page_bytes.is_some(),
        ),
        ("collectionOptions.fanout", storage.betree.fanout.is_some()),
        ("indexOptions.compression", storage.betree.index_compressor.is_some()),
        ("engineOptions.directio", storage.betree.direct_io.is_some()),
    ];
    let of_none = [(
        "wiredTiger.engineConfig.directoryForIndexes",
        storage.directory_for_indexes,
    )];
    let of_in_memory = [(
        "inMemory.engineConfig.inMemorySizeGB",
        storage.in_memory_bytes.is_some(),
    )];
    let mut ignored = Vec::new();
    let mut add = |prefix: &str, options: &[(&str, bool)]| {
        let given = options.iter().filter(|(_, given)| *given);
        ignored.extend(given.map(|(option, _)| format!("storage.{prefix}{option}")));
    };
    if !["btree", "mmapv1"].contains(&name) {
        add("", &[("directoryPerDB", storage.directory_per_db)]);
    }
    if name != "mmapv1" {
        add("mmapv1.", &of_mmapv1);
    }
    if name != "btree" {
        add("wiredTiger.", &of_wired_tiger);
        add("btree.", &[("directIO", storage.direct_io.is_some())]);
    }
    if name != "inMemory" {
        add("", &of_in_memory);
    }
    if name != "rocksdb" {
        add("rocksdb.", &of_rocksdb);
    }
    if name != "betree" {
        add("PerconaFT.", &of_betree);
    }
    add("", &of_none);
    let mut warnings: Vec<String> = ignored
        .iter()
        .map(|option| format!("{option} has no effect: the storage engine {name} does not have this option"))
        .collect();
    if name == "btree" && storage.prefix_compression == Some(false) {
        warnings.push(
            "storage.wiredTiger.indexConfig.prefixCompression: false has no effect: the storage engine btree always stores common beginnings of keys once"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen_or_refused_with_a_reason() {
        let choose = |given: Option<&str>| Registry::built_in().choose(given);
        assert_eq!(choose(None), Ok("btree"));
        assert_eq!(choose(Some("wiredTiger")), Ok("btree"));
        assert_eq!(choose(Some("btree")), Ok("btree"));
        assert_eq!(choose(Some("ephemeralForTest")), Ok("inMemory"));
        for name in ["betree", "PerconaFT", "tokuft", "tokumx"] {
            assert_eq!(choose(Some(name)), Ok("betree"));
        }
        assert_eq!(choose(Some("mmapv1")), Ok("mmapv1"));
        assert_eq!(choose(Some("rocksdb")).is_ok(), cfg!(feature = "rocksdb"));
        assert!(
            choose(Some("nonesuch"))
                .expect_err("unknown")
                .contains("Unknown storage engine 'nonesuch'")
        );
    }

    #[test]
    fn engines_encrypt_or_say_why_not() {
        let engines = Registry::built_in().with("mine", |_, _| Err(EngineError::Closed));
        for name in ["btree", "betree", "inMemory", "mmapv1"] {
            assert_eq!(engines.check_encryption(name), Ok(()));
        }
        for (name, reason) in [
            ("rocksdb", "opens its files itself"),
            ("mine", "does not come with this server"),
        ] {
            let refusal = engines.check_encryption(name).expect_err("it cannot");
            assert!(refusal.contains(name) && refusal.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn others_stand_beside_those_of_the_build() {
        let engines = Registry::built_in().with("mine", |_, _| Err(EngineError::Closed));
        assert_eq!(engines.choose(Some("mine")), Ok("mine"));
        assert_eq!(engines.choose(Some("btree")), Ok("btree"));
        assert_eq!(engines.choose(None), Ok("btree"));
        assert_eq!(engines.names().last(), Some(&"mine"));
        let refusal = engines.choose(Some("nonesuch")).expect_err("unknown");
        assert!(refusal.ends_with("mine."), "{refusal}");
        let env = Env {
            fs: Arc::new(vfs::SimulatedFs::new(1)),
            clock: Arc::new(vfs::SimulatedClock::new(0)),
            random: Arc::new(vfs::SeededRandom::new(1)),
        };
        let opened = engines.open("mine", &env, Path::new("/"), &config("").storage);
        assert!(matches!(opened.err(), Some(EngineError::Closed)));
        for name in ["wiredTiger", "mine", "a b", "", "../x"] {
            let engines = engines.clone();
            let with = move || engines.with(name, |_, _| Err(EngineError::Closed));
            assert!(
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(with)).is_err(),
                "{name}"
            );
        }
    }

    fn config(storage: &str) -> Config {
        crate::config::from_file_text(storage, Path::new("/")).expect("it parses")
    }

    #[test]
    fn direct_reads_that_cannot_be_had_are_told_of() {
        let able: Arc<dyn FileSystem> = Arc::new(vfs::SimulatedFs::new(1));
        let probe = Path::new("/probe");
        able.open(probe, Access::CreateNew).expect("an empty disk");
        let unable = vfs::OverlayFs::new(able.clone());
        let both =
            config("storage:\n  btree:\n    directIO: true\n  PerconaFT:\n    engineOptions:\n      directio: true\n");
        for (name, option) in [("btree", "storage.btree.directIO"), ("betree", "storage.PerconaFT")] {
            assert_eq!(direct_io_warning(name, &both.storage, &*able, probe), None);
            let warning = direct_io_warning(name, &both.storage, &unable, probe).expect("it cannot");
            assert!(warning.starts_with(option), "{warning}");
            assert_eq!(direct_io_warning(name, &config("").storage, &unable, probe), None);
        }
        assert_eq!(direct_io_warning("mmapv1", &both.storage, &unable, probe), None);
    }

    #[test]
    fn what_an_engine_cannot_honour_is_said() {
        let all = config(
            "storage:\n  directoryPerDB: true\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 8\n      directoryForIndexes: true\n    \
             collectionConfig:\n      blockCompressor: zlib\n    indexConfig:\n      prefixCompression: false\n",
        );
        let of_btree = warnings("btree", &all, 64 << 30);
        assert_eq!(of_btree.len(), 2, "{of_btree:?}");
        assert!(of_btree[0].contains("directoryForIndexes") && of_btree[1].contains("prefixCompression: false"));
        let toku = config("storage:\n  PerconaFT:\n    collectionOptions:\n      fanout: 8\n      compression: lz4\n");
        assert_eq!(warnings("betree", &toku, 64 << 30), Vec::<String>::new());
        assert_eq!(warnings("btree", &toku, 64 << 30).len(), 2);
        assert_eq!(collection_compressor("betree", &toku.storage).as_deref(), Some("lz4"));
        let of_memory = warnings("inMemory", &all, 64 << 30);
        assert_eq!(of_memory.len(), 5, "{of_memory:?}");
        let of_mmapv1 = config(
            "storage:\n  directoryPerDB: true\n  mmapv1:\n    smallFiles: true\n    quota:\n      enforced: true\n",
        );
        assert_eq!(warnings("mmapv1", &of_mmapv1, 64 << 30), Vec::<String>::new());
        let direct =
            config("storage:\n  btree:\n    directIO: true\n  PerconaFT:\n    engineOptions:\n      directio: true\n");
        for (name, expected) in [
            ("btree", "PerconaFT.engineOptions.directio"),
            ("betree", "btree.directIO"),
        ] {
            let ignored = warnings(name, &direct, 64 << 30);
            assert!(ignored.len() == 1 && ignored[0].contains(expected), "{ignored:?}");
        }
        let ignored = warnings("btree", &of_mmapv1, 64 << 30);
        assert!(
            ignored.len() == 2 && ignored[0].contains("storage.mmapv1.quota.enforced"),
            "{ignored:?}"
        );
        let honoured = config("storage:\n  wiredTiger:\n    indexConfig:\n      prefixCompression: true\n");
        assert_eq!(warnings("btree", &honoured, 64 << 30), Vec::<String>::new());
        assert_eq!(collection_compressor("btree", &all.storage).as_deref(), Some("zlib"));
        assert_eq!(
            collection_compressor("btree", &honoured.storage).as_deref(),
            Some("snappy")
        );
        assert_eq!(collection_compressor("inMemory", &all.storage), None);
    }
}
