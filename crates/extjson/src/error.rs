//! Why text is no document, or a document no text.

/// See the variants.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is no JSON.
    #[error("no JSON at byte {offset}: expected {expected}")]
    Syntax {
        /// Where, in bytes of the text.
        offset: usize,
        /// What would have been right.
        expected: &'static str,
    },
    /// JSON that names a type of BSON, but has no value of it.
    #[error("{wrapper} has no value of its type")]
    Value {
        /// The field that names the type, such as `$date`.
        wrapper: String,
    },
    /// A field's name or a regular expression with a NUL in it, which BSON cannot have.
    #[error("{0:?} has a NUL in it")]
    Nul(String),
    /// More levels than a document may have.
    #[error("more than {} levels", wire::limits::NESTING_MAX)]
    TooDeep,
    /// More bytes than a document may have.
    #[error("the document is too large")]
    TooLarge,
    /// The bytes are no BSON.
    #[error(transparent)]
    Bson(#[from] wire::BsonError),
}
