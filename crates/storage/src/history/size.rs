//! How much of the log goes into one document of history.

/// Bytes of operations that one document of history holds: with what surrounds them it stays below 16 MiB and 16 KiB.
pub const DOCUMENT_OPERATION_BYTES_MAX: usize = 16 << 20;
/// What a document adds to each operation, at most: names, numbers, the identity of the collection.
pub const OPERATION_FRAME_BYTES: usize = 512;

/// Documents that a unit of so many bytes and operations becomes, at most. Two neighbours together have more than one
/// may hold.
pub(crate) fn documents_max(bytes: usize, operations: usize) -> u64 {
    1 + (2 * (bytes + operations * OPERATION_FRAME_BYTES) / DOCUMENT_OPERATION_BYTES_MAX) as u64
}
