//! How expressions fail.

use crate::error::QueryError;
use wire::ErrorCode;

/// Fails with `code` and `message`.
pub(crate) fn failure<T>(code: i32, message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::new(ErrorCode(code), message.into()))
}
