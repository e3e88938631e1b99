//! Bounds of what updates make.

/// Largest document that an update may make: what clients may send.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Deepest nesting that an update may make, in levels of documents and arrays: what an insert may store, so that every
/// stored document can be inserted again. MongoDB's figure: a document in a message may have twenty levels more.
pub const DEPTH_MAX: usize = 180;
/// Most nulls that setting an element beyond an array's end puts in between.
pub(super) const BACKFILL_MAX: u32 = 1_500_000;
