//! Every bound of the protocol, with where it comes from.

/// Longest message in bytes, header included: what `hello` announces as `maxMessageSizeBytes`.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// Longest document in bytes that clients may store: `maxBsonObjectSize`.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest document in bytes in a message: a command that carries a document of [`DOCUMENT_BYTES_MAX`] needs room
/// around it.
pub const DOCUMENT_INTERNAL_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;
/// Write statements in one command: `maxWriteBatchSize`.
pub const WRITE_BATCH_MAX: usize = 100_000;
/// Levels of nesting in a document, the outermost counted as one: MongoDB's 200 below that. Bounds the recursion of all
/// readers.
pub const NESTING_MAX: usize = 201;
/// Document sequences in one message. Commands use two at most (`bulkWrite`); the rest is room for newer ones.
pub const SEQUENCES_MAX: usize = 8;
/// Bytes of a namespace in OP_QUERY: MongoDB's 255 and the longest suffix clients add.
pub const NAMESPACE_BYTES_MAX: usize = 255;
