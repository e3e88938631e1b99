//! Why a call gave no result.

use crate::limits::TOLD_CHARS_MAX;

/// As much of a script's text as an error tells.
pub(crate) fn told(text: &str) -> &str {
    match text.char_indices().nth(TOLD_CHARS_MAX) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// An error of a script or of what it returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// It threw, or it is no JavaScript: the exception with the place where it was thrown.
    #[error("{0}")]
    Exception(String),
    /// It was told to end.
    #[error("JavaScript execution interrupted")]
    Interrupted,
    /// The source of a function is too large.
    #[error("JavaScript source of {bytes} bytes exceeds the limit of {max} bytes")]
    SourceTooLarge {
        /// What it has.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The stack that the scope is measured from is too far away: see [`crate::Scope::is_within_reach`].
    #[error("JavaScript cannot run at this place of the pipeline")]
    OutOfReach,
    /// Its heap is full.
    #[error("Out of memory")]
    OutOfMemory,
    /// What it returned is no BSON: the property.
    #[error("unable to convert JavaScript property to mongo element {0}")]
    NotBson(String),
    /// A name in what it returned has a zero byte.
    #[error("JavaScript property (name) contains a null char which is not allowed in BSON. originalParent: {0:?}")]
    ZeroInName(String),
    /// What it returned nests too deep.
    #[error("Exceeded depth limit of {max} when converting js object to BSON. Do you have a cycle?")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// What it returned is too large.
    #[error("Converting from JavaScript to BSON failed: Object size {bytes} exceeds limit of {max} bytes.")]
    TooLarge {
        /// What it had when it was given up.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// `emit` was called with so many arguments.
    #[error("emit takes 2 args")]
    EmitArguments,
    /// What one call emitted is too much.
    #[error("Size of emitted values exceeds the set size limit of {max} bytes")]
    EmittedTooMuch {
        /// The limit.
        max: usize,
    },
    /// A value that it was given is damaged.
    #[error("malformed BSON")]
    Malformed,
}
