//! What can go wrong, with the place.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, SpillError>;

/// An operation cannot go on in its temporary files. Only that operation fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// The disk is full, or would have less free space than has to stay free.
    #[error("not enough disk space to spill to {path}: {reason}")]
    NoSpace {
        /// The file or the directory.
        path: PathBuf,
        /// What was wanted and what there is.
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
    /// Bytes read back are not those that were written.
    #[error("{path}: block at byte {offset}: {what} is {found}, {expected} expected")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the block begins.
        offset: u64,
        /// The field.
        what: &'static str,
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A row is larger than any may be.
    #[error("a row of {bytes} bytes cannot be spilled, the limit is {bytes_max}")]
    RowTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

impl SpillError {
    pub(crate) fn io(operation: &'static str, path: &Path, source: std::io::Error) -> Self {
        let is_full = matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        match is_full && !vfs::is_out_of_descriptors(&source) {
            true => Self::NoSpace {
                path: path.to_owned(),
                reason: source.to_string(),
            },
            false => Self::Io {
                operation,
                path: path.to_owned(),
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quota that was used up where a file was to be made was told as a failure of the disk.
    #[test]
    fn a_quota_that_is_used_up_is_a_full_disk() {
        for operation in ["create", "write"] {
            for kind in [ErrorKind::QuotaExceeded, ErrorKind::StorageFull] {
                let error = SpillError::io(operation, Path::new("/spill"), kind.into());
                assert!(matches!(error, SpillError::NoSpace { .. }), "{operation}: {error}");
            }
        }
    }
}
