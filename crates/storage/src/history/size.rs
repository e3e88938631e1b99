//! How much of the log goes into one document of history.

use bson::RawDocument;

/// Bytes of operations that one document of history holds: with what surrounds them it stays below 16 MiB and 16 KiB.
pub const DOCUMENT_OPERATION_BYTES_MAX: usize = 16 << 20;
/// What a document adds to each operation, at most: names, numbers, the identity of the collection.
pub const OPERATION_FRAME_BYTES: usize = 512;
const EMPTY_DOCUMENT_BYTES: usize = 5;
const ELEMENT_TYPE_BYTES: usize = 1;

/// Documents that a unit of so many bytes and operations becomes, at most. Two neighbours together have more than one
/// may hold, and of a whole document its `_id` is told a second time, which is no longer than that.
pub(crate) fn documents_max(bytes: usize, operations: usize) -> u64 {
    1 + (2 * (2 * bytes + operations * OPERATION_FRAME_BYTES) / DOCUMENT_OPERATION_BYTES_MAX) as u64
}

/// Bytes of what is told of a change of a document.
pub(crate) fn told_change_bytes(document: &[u8], difference: &[u8]) -> usize {
    key_bytes(document) + difference.len() + OPERATION_FRAME_BYTES
}

/// Bytes of `{_id: …}` of a document, 0 where that is not its first field.
fn key_bytes(document: &[u8]) -> usize {
    let document = RawDocument::from_bytes(document).ok();
    let first = document.and_then(|document| document.iter_elements().next()?.ok());
    first.filter(|first| first.key().as_str() == "_id").map_or(0, |first| {
        EMPTY_DOCUMENT_BYTES + ELEMENT_TYPE_BYTES + "_id\0".len() + first.size()
    })
}

/// Bytes of what is told of a document as a whole: itself, and its key.
pub(crate) fn told_bytes(document: &[u8]) -> usize {
    document.len() + key_bytes(document) + OPERATION_FRAME_BYTES
}
