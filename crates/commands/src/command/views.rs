//! What commands say when they are pointed at a view.

use crate::error::CommandError;
use storage::Namespace;
use wire::ErrorCode;

/// The error for commands that work on collections only; tools match its text.
pub fn refused(namespace: &Namespace) -> CommandError {
    CommandError::new(
        ErrorCode::CommandNotSupportedOnView,
        format!("Namespace {namespace} is a view, not a collection"),
    )
}
