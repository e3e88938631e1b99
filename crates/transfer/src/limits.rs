//! Bounds of what is read, with where each comes from.

/// Longest text of one document in bytes. A document of 16 MiB is six times as long in JSON when it is all NULs
/// (`\u0000`); the rest is room for indentation.
pub const TEXT_BYTES_MAX: usize = 128 << 20;
/// Columns of one line. A document with more fields is larger than 16 MiB with names of usual length.
pub const COLUMNS_MAX: usize = 100_000;
/// A batch is sent at so many bytes or documents; one document more always fits into a message of 48 MB.
pub const BATCH_BYTES: usize = 8 << 20;
/// See [`BATCH_BYTES`].
pub const BATCH_DOCUMENTS: usize = 1000;
