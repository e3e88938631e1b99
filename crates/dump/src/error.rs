//! What can go wrong, by what the caller does about it.

use crate::namespace::Namespace;
use std::io;

/// What servers answer whose state it is, or the user's rights, and not what was asked for: another command would fare
/// no better. Codes of networks, of rights, of time, of write concerns, of roles in a set, of full disks, memory and
/// descriptors, of faults inside, of writes that are blocked, and of others that are at the same thing.
const NOT_OF_WHAT_WAS_ASKED: [i32; 31] = [
    1, 6, 7, 13, 18, 24, 46, 50, 64, 79, 89, 91, 100, 109, 112, 117, 146, 189, 215, 246, 262, 264, 371, 9001, 10107,
    11600, 11601, 11602, 13435, 13436, 14031,
];

/// See the variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
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
    Server(#[from] bench::Error),
    /// As [`DumpError::Server`], while a collection was being worked on.
    #[error("{namespace}")]
    Collection {
        /// Which one.
        namespace: Namespace,
        /// What happened.
        source: Box<DumpError>,
    },
    /// A file or a stream is not what it should be.
    #[error("{subject}: {fault}")]
    Format {
        /// The file, or "archive".
        subject: String,
        /// What is wrong, with the place.
        fault: String,
    },
    /// A document that is none, in a file or an archive.
    #[error("{subject}: byte {offset}")]
    Bson {
        /// The file, or "archive".
        subject: String,
        /// Where the document begins.
        offset: u64,
        /// What is wrong.
        source: wire::BsonError,
    },
    /// A document with text that is not UTF-8.
    #[error("{place}: {what}")]
    InvalidText {
        /// Where the document begins.
        place: String,
        /// Which document it is, and which field.
        what: String,
    },
    /// A bucket of a time series that cannot be made anew.
    #[error(transparent)]
    Bucket(#[from] query::QueryError),
    /// Metadata that cannot be written or read.
    #[error("metadata of {subject}")]
    Metadata {
        /// The collection or file.
        subject: String,
        /// What is wrong.
        source: extjson::JsonError,
    },
    /// The user's choice is not possible.
    #[error("{0}")]
    Choice(String),
}

/// Either a value or a [`DumpError`].
pub type Result<T> = std::result::Result<T, DumpError>;

impl DumpError {
    /// Did the server refuse a command with this code?
    pub(crate) fn is_refusal(&self, wanted: i32) -> bool {
        matches!(self, Self::Server(bench::Error::Refused { code, .. }) if *code == wanted)
    }

    /// Did the server refuse what the command says, so that others may go well?
    pub fn is_of_what_was_asked(&self) -> bool {
        matches!(self, Self::Server(bench::Error::Refused { code, .. }) if !NOT_OF_WHAT_WAS_ASKED.contains(code))
    }

    /// Is it a document with text that is not UTF-8?
    pub(crate) fn is_invalid_text(&self) -> bool {
        match self {
            Self::InvalidText { .. } => true,
            Self::Collection { source, .. } => source.is_invalid_text(),
            _ => false,
        }
    }

    /// The same error, with the collection that it is about.
    pub(crate) fn of(self, namespace: &Namespace) -> Self {
        Self::Collection {
            namespace: namespace.clone(),
            source: Box::new(self),
        }
    }
}

/// Says what was tried when the operating system refused it.
pub(crate) trait Doing<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| DumpError::Io {
            action: action(),
            source,
        })
    }
}
