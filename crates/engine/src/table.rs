//! Names of positions and tables.

use std::fmt;

/// A position in the log, and the version of everything an engine holds. Rises by one per log entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first entry.
    pub const ZERO: Seq = Seq(0);

    /// The position after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seq:{}", self.0)
    }
}

/// A table of an engine. Ids are given by the storage layer, rise, and are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl fmt::Debug for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table:{}", self.0)
    }
}

/// What a table is used for: a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// 8-byte big-endian record ids, mostly appended; values are documents.
    Records,
    /// Index keys in random order; values are short.
    Index,
    /// Keys of any bytes in any order; values are documents.
    Clustered,
    /// Few rows (catalog).
    Small,
}

/// How a table is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The hint.
    pub kind: TableKind,
    /// The namespace it serves, for messages and for engines that keep a directory per database.
    pub name: String,
    /// Compressor by name (`none`, `snappy`, `lz4`, `zlib`, `zstd`), or `None` for the engine's own choice.
    pub compressor: Option<String>,
}
