//! What ends an export or an import. What is wrong with one document alone is a [`crate::Fault`].

use dump::DumpError;
use std::io;

/// See the variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The operating system refused something.
    #[error("{action}")]
    Io {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The connection broke, or the server refused a command.
    #[error(transparent)]
    Server(#[from] DumpError),
    /// A batch was sent, and what became of it is not known.
    #[error("the documents of lines {first_line} to {last_line} may be imported or not")]
    Unknown {
        /// Line of the batch's first document.
        first_line: u64,
        /// Line on which the batch's last document begins.
        last_line: u64,
        /// What happened.
        source: DumpError,
    },
    /// Text in which the next document cannot be found.
    #[error("line {line}: {fault}")]
    Text {
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        fault: String,
    },
    /// A document that cannot be written in the chosen form.
    #[error("document {number}: {fault}")]
    Form {
        /// Its place in the export, from 1.
        number: u64,
        /// Why not.
        fault: String,
    },
    /// The user's choice is not possible.
    #[error("{0}")]
    Choice(String),
}

/// Either a value or a [`TransferError`].
pub type Result<T> = std::result::Result<T, TransferError>;

/// Says what was tried when the operating system refused it.
pub(crate) trait Doing<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| TransferError::Io {
            action: action(),
            source,
        })
    }
}
