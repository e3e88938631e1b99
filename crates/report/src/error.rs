//! What can go wrong with results. A message leaves its cause to [`std::error::Error::source`].

use std::io;
use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why results could not be written, read or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be written or read.
    #[error("{action} {}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file is not JSON of this shape.
    #[error("{} is not a file of results", path.display())]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where in it, and why.
        source: serde_json::Error,
    },
    /// The file is of another format.
    #[error("{}: format {found}, this program reads format {expected}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The one that can be read.
        expected: u64,
    },
    /// More of something than its limit.
    #[error("{place}: {found} {what}, at most {limit} are possible")]
    TooMany {
        /// Where, such as `runs[3].series`.
        place: String,
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many are possible.
        limit: u64,
    },
    /// A value that contradicts another one or is impossible.
    #[error("{place}: {problem}")]
    Invalid {
        /// Where, such as `runs[3].seconds`.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
}
