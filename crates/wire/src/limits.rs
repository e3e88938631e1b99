//! Every bound of the protocol, with where it comes from.

/// Longest message in bytes, header included: what `hello` announces as `maxMessageSizeBytes`.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;
/// Longest message in bytes of a client that has still to prove who it is. What is said until then is some hundred
/// bytes, or a few thousand: who sets up a server may name a set of 50 members. Whoever sends a message piece by piece
/// has the server keep the pieces, and is to be known before that is much.
pub const STRANGER_MESSAGE_BYTES_MAX: usize = 64 * 1024;
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
