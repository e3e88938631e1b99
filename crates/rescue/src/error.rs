//! Why nothing can be rescued. What is merely damaged is a [`crate::Finding`].

use std::io;
use std::path::PathBuf;

/// See the variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RescueError {
    /// The operating system refused something without which there is nothing to read.
    #[error("{action}")]
    Io {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// There is no file of MMAPv1.
    #[error("{} has no files of MMAPv1 (NAME.ns, NAME.0)", path.display())]
    NoFiles {
        /// The directory.
        path: PathBuf,
    },
    /// Another engine wrote it.
    #[error("{} belongs to the storage engine {engine}, not to mmapv1", path.display())]
    OtherEngine {
        /// The directory.
        path: PathBuf,
        /// As `storage.bson` names it.
        engine: String,
    },
    /// The database that was asked for.
    #[error("there is no database {database} in the directory")]
    NoDatabase {
        /// Its name.
        database: String,
    },
    /// Whoever takes the documents failed.
    #[error("{0}")]
    Output(String),
}

/// Either a value or a [`RescueError`].
pub type Result<T> = std::result::Result<T, RescueError>;

/// Says what was tried when the operating system refused it.
pub(crate) trait Doing<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| RescueError::Io {
            action: action(),
            source,
        })
    }
}
