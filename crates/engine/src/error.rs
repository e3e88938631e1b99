//! What can go wrong in an engine, sorted by what the caller will do about it.

use crate::{Seq, TableId};
use std::path::PathBuf;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, EngineError>;

/// What the caller will do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong.
    Invalid,
    /// The engine cannot do it.
    Unsupported,
    /// Stored bytes are damaged.
    Corrupt,
    /// The disk, a quota or a configured limit is full, or there are too many open files; works again when there is
    /// room.
    OutOfSpace,
    /// Input or output failed.
    Io,
    /// The engine was closed or stopped after a failure.
    Closed,
    /// The engine ended the snapshot: the same may be asked of a new one.
    SnapshotTooOld,
    /// Who asked for it does not want it any more.
    Interrupted,
}

/// An engine's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No table of that id.
    #[error("{0:?} does not exist")]
    NoSuchTable(TableId),
    /// The request breaks a rule of the API.
    #[error("{operation}: {reason}")]
    Invalid {
        /// The call.
        operation: &'static str,
        /// The rule.
        reason: String,
    },
    /// The engine lacks the ability.
    #[error("{engine} does not support {operation}")]
    Unsupported {
        /// The engine's name.
        engine: &'static str,
        /// What was asked.
        operation: &'static str,
    },
    /// A stored structure is damaged.
    #[error("{path}: at offset {offset}: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// Expected and found.
        reason: String,
    },
    /// A file operation failed.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A library below the engine reported an error.
    #[error("{operation}: {message}")]
    Backend {
        /// The call.
        operation: &'static str,
        /// Its sort.
        kind: ErrorKind,
        /// The library's words.
        message: String,
    },
    /// The engine was closed.
    #[error("the storage engine is closed")]
    Closed,
    /// The engine stopped itself after a failure: which, with file and place.
    #[error("the storage engine has stopped: {0}")]
    Stopped(String),
    /// The engine ended the snapshot, see [`crate::Snapshot`].
    #[error("the snapshot at position {} is too old: what it sees was given up, because it took too much memory", .0.0)]
    SnapshotTooOld(Seq),
    /// The caller ended it, see [`crate::Engine::maintain_while`].
    #[error("the work was interrupted")]
    Interrupted,
}

/// `Interrupted` unless `goes_on`: see [`crate::Engine::maintain_while`].
pub fn check_wanted(goes_on: &dyn Fn() -> bool) -> Result<()> {
    match goes_on() {
        true => Ok(()),
        false => Err(EngineError::Interrupted),
    }
}

impl EngineError {
    /// Whether it tells of what cannot be read, or written, at one place of a disk.
    pub fn is_of_disk(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt | ErrorKind::Io)
    }

    /// The sort of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchTable(_) | Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
                _ => ErrorKind::Io,
            },
            Self::Backend { kind, .. } => *kind,
            Self::Closed | Self::Stopped(_) => ErrorKind::Closed,
            Self::SnapshotTooOld(_) => ErrorKind::SnapshotTooOld,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}
