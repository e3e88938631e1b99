//! What can go wrong, with the place.

use engine::{EngineError, ErrorKind};
use std::path::{Path, PathBuf};

/// The result of a call of the store.
pub type Result<T> = std::result::Result<T, BlockError>;

/// The store's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// A file operation failed. A full disk is one of them, see [`BlockError::kind`].
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Stored bytes are not what they must be.
    #[error("{path}: sector {sector}: {what} is {found}, {expected} expected")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the structure starts.
        sector: u64,
        /// The field.
        what: &'static str,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The call breaks a rule.
    #[error("{operation}: {reason}")]
    Invalid {
        /// The call.
        operation: &'static str,
        /// The rule.
        reason: String,
    },
    /// The store stopped itself after a failure that leaves in doubt what is durable.
    #[error("the block store is closed: {0}")]
    Closed(String),
}

impl BlockError {
    /// The sort of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
                _ => ErrorKind::Io,
            },
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::Closed(_) => ErrorKind::Closed,
        }
    }

    /// For `map_err` of a file operation.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            operation,
            path: path.to_owned(),
            source,
        }
    }
}

impl From<BlockError> for EngineError {
    fn from(error: BlockError) -> Self {
        match error {
            BlockError::Io {
                operation,
                path,
                source,
            } => EngineError::Io {
                operation,
                path,
                source,
            },
            BlockError::Damaged {
                path,
                sector,
                what,
                expected,
                found,
            } => EngineError::Corrupt {
                path,
                offset: sector.saturating_mul(crate::SECTOR_BYTES as u64),
                reason: format!("{what} is {found}, {expected} expected"),
            },
            BlockError::Invalid { operation, reason } => EngineError::Invalid { operation, reason },
            BlockError::Closed(reason) => EngineError::Stopped(reason),
        }
    }
}
