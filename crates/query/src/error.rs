//! What the query language answers when a request or a document cannot be processed.
//!
//! A [`QueryError`] is either an error of the language, which carries MongoDB's code and text, or one of the storage
//! below, kept whole so that the command layer can translate it in its one table.

use bson::RawDocumentBuf;
use storage::StorageError;
use wire::ErrorCode;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The language's own: a malformed request, or an operation that a document does not allow.
    #[error("{}", .0.message)]
    Code(Box<CodedError>),
    /// The storage's: interrupted, write conflict, duplicate key, I/O.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A pipeline's source has no more documents for now, see [`crate::stages::Stage::next`]. No operation fails with
    /// it.
    #[error("more documents of the pipeline's source are to come")]
    Paused,
}

/// The facts of [`QueryError::Code`].
#[derive(Clone, Debug)]
pub struct CodedError {
    /// The reply's `code`.
    pub code: ErrorCode,
    /// The reply's `errmsg`.
    pub message: String,
    /// Further fields of the reply, when the code has any.
    pub extra: Option<RawDocumentBuf>,
}

impl QueryError {
    /// An error with a code and a text.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Code(Box::new(CodedError {
            code,
            message: message.into(),
            extra: None,
        }))
    }

    /// 2 BadValue.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    /// 9 FailedToParse.
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedToParse, message)
    }

    /// 14 TypeMismatch.
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TypeMismatch, message)
    }

    /// 238 NotImplemented, naming what a real server has and Tenon has not.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(ErrorCode::NotImplemented, format!("{what} is not implemented"))
    }

    /// The code, when it is the language's own error.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Code(error) => Some(error.code),
            Self::Storage(_) | Self::Paused => None,
        }
    }
}
