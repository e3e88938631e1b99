//! Every bound of the tool's input, with where it comes from.

/// Longest settings file in bytes: far beyond what a person writes.
pub const SETTINGS_BYTES_MAX: usize = 1 << 20;
/// Documents of one test: 2^36 of 16 KiB are a pebibyte, the largest capped collection.
pub const DOCUMENTS_MAX: u64 = 1 << 36;
/// Smallest document in bytes: its fields beside the filling take less.
pub const DOCUMENT_BYTES_MIN: u64 = 256;
/// Largest document in bytes: a batch of one must fit a message.
pub const DOCUMENT_BYTES_MAX: u64 = wire::limits::DOCUMENT_BYTES_MAX as u64;
/// Documents in a batch: what a server takes in one command.
pub const BATCH_MAX: u64 = wire::limits::WRITE_BATCH_MAX as u64;
/// Bytes of the documents of a batch: the longest message, less room for the command around it.
pub const BATCH_BYTES_MAX: u64 = wire::limits::MESSAGE_BYTES_MAX as u64 - 16 * 1024;
/// Bytes of the documents of a read: a server fills the first batch of a cursor up to 16 MiB, frames included.
pub const READ_BATCH_BYTES_MAX: u64 = 15 << 20;
/// Threads that write, and as many that read.
pub const THREADS_MAX: u64 = 1024;
/// Smallest memory in bytes that a server is limited to: below it a server does not start properly.
pub const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Largest memory in bytes that a server is limited to: more than any machine has.
pub const MEMORY_BYTES_MAX: u64 = 1 << 50;
/// Longest reply in bytes: the longest message.
pub const REPLY_BYTES_MAX: usize = wire::limits::MESSAGE_BYTES_MAX;
/// `--scale`: a thousandth of a millionth up to a million times.
pub const SCALE_MIN: f64 = 1e-9;
/// Largest `--scale`.
pub const SCALE_MAX: f64 = 1e6;
/// Bytes of a server's log that a message quotes.
pub const LOG_QUOTE_BYTES: u64 = 64 * 1024;
/// Fewest members of a set: one alone is a server.
pub const MEMBERS_MIN: u64 = 2;
/// Most members of a set: those that can have a vote.
pub const MEMBERS_MAX: u64 = 7;
/// Shortest election timeout in milliseconds: a busy machine needs some.
pub const ELECTION_MS_MIN: u64 = 500;
/// Longest election timeout in milliseconds.
pub const ELECTION_MS_MAX: u64 = 600_000;
/// Engines named in one run.
pub const ENGINES_MAX: usize = 32;
