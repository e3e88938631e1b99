//! What can be measured, by name, and where it keeps its files.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The engines of Tenon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Everything in memory.
    InMemory,
    /// RocksDB.
    Rocksdb,
    /// The default engine.
    Btree,
    /// Extents and in-place updates.
    Mmapv1,
    /// The buffer tree.
    Betree,
}

impl EngineKind {
    /// Whether it is in this build.
    pub fn is_built(self) -> bool {
        match self {
            Self::InMemory | Self::Mmapv1 | Self::Betree => true,
            Self::Rocksdb => cfg!(feature = "rocksdb"),
            Self::Btree => cfg!(feature = "btree"),
        }
    }
}

/// Where a subject keeps what, below the run's directory.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Tables.
    pub data: PathBuf,
    /// The log.
    pub log: PathBuf,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[value(rename_all = "kebab-case")]
pub enum SubjectKind {
    /// Tenon's default engine.
    Btree,
    /// Tenon's buffer tree.
    Betree,
    /// RocksDB behind the engine API.
    Rocksdb,
    /// Tenon's engine in memory.
    #[value(name = "inMemory", alias = "in-memory")]
    InMemory,
    /// Tenon's engine of extents and in-place updates.
    Mmapv1,
    /// WiredTiger, configured as mongod does.
    #[value(name = "wiredtiger")]
    #[serde(rename = "wiredtiger")]
    WiredTiger,
    /// WiredTiger with a high dirty limit and smaller leaf pages.
    #[value(name = "wiredtiger-tuned")]
    #[serde(rename = "wiredtiger-tuned")]
    WiredTigerTuned,
}

impl SubjectKind {
    /// Every kind, in the order of the tables.
    pub const ALL: [SubjectKind; 7] = [
        Self::Btree,
        Self::Betree,
        Self::Rocksdb,
        Self::InMemory,
        Self::Mmapv1,
        Self::WiredTiger,
        Self::WiredTigerTuned,
    ];

    /// The name users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Btree => "btree",
            Self::Betree => "betree",
            Self::Rocksdb => "rocksdb",
            Self::InMemory => "inMemory",
            Self::Mmapv1 => "mmapv1",
            Self::WiredTiger => "wiredtiger",
            Self::WiredTigerTuned => "wiredtiger-tuned",
        }
    }

    /// Whether this build can open it.
    pub fn is_available(self) -> bool {
        match self.engine() {
            Some(engine) => engine.is_built(),
            None => cfg!(wiredtiger),
        }
    }

    /// The engine of Tenon it stands for.
    pub fn engine(self) -> Option<EngineKind> {
        match self {
            Self::Btree => Some(EngineKind::Btree),
            Self::Betree => Some(EngineKind::Betree),
            Self::Rocksdb => Some(EngineKind::Rocksdb),
            Self::InMemory => Some(EngineKind::InMemory),
            Self::Mmapv1 => Some(EngineKind::Mmapv1),
            Self::WiredTiger | Self::WiredTigerTuned => None,
        }
    }

    /// Whether it has the compressor.
    pub fn has_codec(self, codec: codec::Codec) -> bool {
        use codec::Codec::{None, Snappy, Zlib};
        self.engine().is_some() || matches!(codec, None | Snappy | Zlib)
    }

    /// Where it keeps its files.
    pub fn layout(self, directory: &Path) -> Layout {
        if self.engine().is_some() {
            Layout {
                data: directory.join("engine"),
                log: directory.join("log"),
            }
        } else {
            Layout {
                data: directory.join("wt"),
                log: directory.join("wt").join("journal"),
            }
        }
    }
}

impl std::fmt::Display for SubjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
