//! How large the values of expressions may be, constant or computed.

use wire::ErrorCode;

use crate::error::QueryError;
use crate::value::{SharedDocument, Value};

/// The largest document an expression may compute, in bytes: it must fit into a message.
const RESULT_BYTES_MAX: usize = 64 << 20;

/// Bytes of constants that parsing computes and keeps, for all expressions of an operation; beyond them an expression
/// that is the same for every document is computed for each.
pub(super) const FOLDED_BYTES_MAX: usize = 16 << 20;

/// Strings in expressions, constant or computed, are shorter than this, in bytes, as MongoDB's are.
const STRING_BYTES_END: usize = 16 << 20;

/// A document value of written bytes; fails when it is too large or too deep ever to be sent.
pub(crate) fn finished_document<'a>(bytes: Vec<u8>) -> Result<Value<'a>, QueryError> {
    check_result_bytes(bytes.len())?;
    Ok(Value::document(SharedDocument::computed(bytes)?))
}

/// The value, unless it is a string that is too long.
#[inline]
pub(super) fn bounded(value: Value<'_>) -> Result<Value<'_>, QueryError> {
    if let Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) = &value {
        check_string_bytes(text.len())?;
    }
    Ok(value)
}

/// Whether a string may have so many bytes.
#[inline]
pub(super) fn is_string_length(bytes: usize) -> bool {
    bytes < STRING_BYTES_END
}

#[inline]
pub(super) fn check_string_bytes(bytes: usize) -> Result<(), QueryError> {
    match is_string_length(bytes) {
        true => Ok(()),
        false => Err(QueryError::new(
            ErrorCode(16493),
            "Tried to create string longer than 16MB",
        )),
    }
}

pub(crate) fn check_result_bytes(bytes: usize) -> Result<(), QueryError> {
    if bytes > RESULT_BYTES_MAX {
        return Err(QueryError::new(
            ErrorCode::BSONObjectTooLarge,
            format!("an expression's result of {bytes} bytes exceeds {RESULT_BYTES_MAX} bytes"),
        ));
    }
    Ok(())
}
