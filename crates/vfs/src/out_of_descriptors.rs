//! Running out of file descriptors, told apart from a full disk.
//!
//! Both are errors of the kind `QuotaExceeded`: nothing was done, and the same works later. What helps against them
//! differs.

use std::error::Error as StdError;
use std::io::{Error, ErrorKind};

/// What is inside such an error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct OutOfDescriptors(Box<dyn StdError + Send + Sync>);

/// The error of an operation that no file descriptor is left for.
pub(crate) fn out_of_descriptors(reason: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    Error::new(ErrorKind::QuotaExceeded, OutOfDescriptors(reason.into()))
}

/// Whether an operation failed because no file descriptor is left, see [`crate::FileSystem`].
pub fn is_out_of_descriptors(error: &Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<OutOfDescriptors>())
}
