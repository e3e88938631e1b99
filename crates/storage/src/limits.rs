//! The bounds of this crate, each with its derivation.

use std::time::Duration;

/// Largest document a client may store: 16 MiB, MongoDB's limit.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest document stored at all: what the server adds to a client's document (16 KiB) included.
pub const STORED_DOCUMENT_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;
/// Bytes of changes one unit gathers at most: two largest documents and what the entry adds to them.
pub const UNIT_BYTES_MAX: usize = 40 * 1024 * 1024;
/// Bytes of changes a transaction gathers at most: a chain of entries that the log's buffer takes at once, beside what
/// may be in it. Whether the disk has room for all of it is asked before the first of them is appended.
pub const TRANSACTION_BYTES_MAX: usize = 160 * 1024 * 1024;
/// A log entry that would grow beyond so many bytes goes on in another one of its chain. One operation has at most two
/// largest documents: below the log's limit of 49 MiB.
pub(crate) const ENTRY_BYTES_MAX: usize = 40 * 1024 * 1024;
/// Collections whose counts one entry writes down: others commit in between. Tests have few collections.
pub(crate) const COUNTS_WRITTEN_MAX: usize = if cfg!(test) { 2 } else { 1024 };
/// Former names of tables that one entry forgets. There is one such entry a checkpoint, once a minute: more drops than
/// these, 270 a second, would let the names grow for as long as that lasts. So many deletions hold writers up for some
/// milliseconds.
pub(crate) const FORGOTTEN_NAMES_MAX: usize = 16_384;
/// Sessions that one entry forgets, but for those of one millisecond. Twice a second there may be such an entry, which
/// holds writers up for some milliseconds: a million sessions of half an hour need six hundred a second.
pub(crate) const FORGOTTEN_SESSIONS_MAX: usize = if cfg!(test) { 2 } else { 1024 };
/// Milliseconds that fewer sessions than that may wait to be forgotten: each such entry is a look at all sessions, on
/// all members.
pub(crate) const FORGOTTEN_LATE_MS: i64 = if cfg!(test) { 0 } else { 30_000 };
/// Longest key of an `_id` in a clustered collection, MongoDB's limit: an operation has it beside two largest documents
/// at most, and the log takes that.
pub const CLUSTERED_KEY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest namespace in bytes (MongoDB since 4.4).
pub const NAMESPACE_BYTES_MAX: usize = 255;
/// Longest database name in bytes, exclusive bound of MongoDB's 64.
pub const DATABASE_NAME_BYTES_MAX: usize = 63;
/// Indexes of a collection, `_id_` included.
pub const INDEXES_MAX: usize = 64;
/// Deepest nesting of a stored document (200 as in MongoDB's storage; clients are held to 180 above).
pub const NESTING_DEPTH_MAX: usize = 200;
/// Documents an index build takes per chunk: a chunk's locks are held for well under a millisecond.
pub const BUILD_CHUNK_DOCUMENTS: usize = 128;
/// Bytes of documents an index build takes per chunk (at least one document).
pub const BUILD_CHUNK_BYTES: usize = 1024 * 1024;
/// Units that an operation commits ahead before it waits for the last of them: between servers 30 ms apart that is
/// 8,000 units a second, and a round of the majority is little beside the work for so many.
pub const UNITS_AHEAD_MAX: u32 = 256;
/// Bytes of rows in such units at which it waits, too: they stay in memory until a majority has them.
pub const BYTES_AHEAD_MAX: u64 = 4 * 1024 * 1024;
/// Bytes of rows that are proposed and not applied from which on writers wait for a majority whatever their `wtimeout`
/// says: else each one that is answered without it leaves a largest document in memory, until the primary steps down.
/// Beside these there is what each connection waits for.
pub(crate) const QUEUED_BYTES_MAX: u64 = if cfg!(test) { 1024 * 1024 } else { 256 * 1024 * 1024 };
/// Documents a TTL pass deletes in one unit.
pub const TTL_UNIT_DOCUMENTS: usize = 64;
/// Documents a TTL pass looks up at once: the units that delete them wait together.
pub const TTL_STEP_DOCUMENTS: usize = 8 * TTL_UNIT_DOCUMENTS;

/// Records of one index that a TTL pass leaves because they are locked or cannot be read; at so many it goes on with
/// the next index.
pub const TTL_LEFT_MAX: usize = 1024;
/// How long a TTL pass waits for a document that somebody else has locked, before it leaves that and all others that it
/// finds locked to the next pass.
pub const TTL_PATIENCE_MS: u32 = 1_000;
/// Documents a capped insert evicts at most besides what it makes room for: bounds the entry after `cappedSize` shrank.
pub const CAPPED_EVICT_DOCUMENTS_MAX: usize = 10_000;
/// So often a proposal looks for room in the log that others have taken meanwhile.
pub(crate) const ROOM_TRIES_MAX: usize = 100;
/// How long a waiter sleeps at most before it looks at its deadline and kill flag again.
pub const WAIT_SLICE: Duration = Duration::from_millis(10);
/// How long a full disk is waited for before it is tried again.
pub const FULL_DISK_PAUSE: Duration = Duration::from_millis(100);
/// How long a build that failed waits for its collection to drop its indexes, before that is left for later.
pub const GIVE_UP_PATIENCE_MS: u64 = 1_000;
/// First table id of collections and indexes; those below are the storage layer's own.
pub const FIRST_USER_TABLE: u32 = 16;
