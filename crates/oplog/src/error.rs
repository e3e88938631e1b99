//! What can go wrong in the log, sorted by what the caller will do about it.

use codec::CodecError;
use crypt::SealError;
use engine::{ErrorKind, Seq};
use std::path::PathBuf;
use std::sync::Arc;

/// The result of a log call.
pub type Result<T> = std::result::Result<T, LogError>;

/// The log's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// An option is out of its range.
    #[error("log option {option}: {value} is not between {min} and {max}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was asked for.
        value: u64,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// The entry is longer than [`crate::ENTRY_BYTES_MAX`].
    #[error("log entry of {bytes} bytes exceeds the limit of {max}")]
    EntryTooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A wait for an entry that was never appended.
    #[error("{seq:?} has not been appended, the last entry is {last:?}")]
    NotAppended {
        /// The position waited for.
        seq: Seq,
        /// The last entry.
        last: Seq,
    },
    /// An entry for a place that is not the next one, or of a term that lies behind.
    #[error("an entry for {given:?} of term {term}, but the next one is {next:?} after term {last_term}")]
    NotNext {
        /// The entry's place.
        given: Seq,
        /// Its term.
        term: u64,
        /// The place of the next entry.
        next: Seq,
        /// The term of the last one.
        last_term: u64,
    },
    /// The entry waited for, or to be read next, was taken back.
    #[error("the log was truncated at {from:?}, {wanted:?} is gone")]
    Truncated {
        /// The entry wanted.
        wanted: Seq,
        /// The first one that was taken back.
        from: Seq,
    },
    /// Entries that were wanted have been purged.
    #[error("{wanted:?} has been purged, the first entry is {first:?}")]
    Purged {
        /// The position wanted.
        wanted: Seq,
        /// The first one there is.
        first: Seq,
    },
    /// The log is switched off (`storage.journal.enabled: false`).
    #[error("the log is switched off")]
    NoJournal,
    /// The buffer is far beyond its bound: callers append without waiting for room.
    #[error("the log's buffer holds {bytes} bytes")]
    BufferFull {
        /// Bytes not yet on disk.
        bytes: usize,
    },
    /// The disk is full. What was appended stays in memory; works again when space returns.
    #[error("no space to {operation} {path}: {source}")]
    OutOfSpace {
        /// The verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// No file descriptor is left. What was appended stays in memory; works again when others have given theirs back.
    /// The disk may have all the space that is wanted.
    #[error("no file descriptor is left to {operation} {path}: {source}")]
    NoDescriptors {
        /// The verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The log was closed with entries that could not be brought to disk. Waits for them have failed, but whoever did
    /// not wait was told that they were taken.
    #[error(
        "{entries} entries of the log are given up, writes that were acknowledged without being journaled: {source}"
    )]
    GivenUp {
        /// How many.
        entries: u64,
        /// Why they could not be.
        source: Box<LogError>,
    },
    /// A file operation failed.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A segment is damaged where a crash cannot have done it.
    #[error("{path}: at offset {offset}: {damage}")]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// Damage that was stepped over may have held what consensus depends on.
    #[error(
        "{path}: at offset {offset}: what is damaged may have held what this member of a replica set has voted for"
    )]
    ConsensusLost {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        offset: u64,
    },
    /// A segment was written by a newer format.
    #[error("{path} has format version {found}, this program reads up to {supported}")]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest one known.
        supported: u32,
    },
    /// A segment between two others is missing.
    #[error("{directory}: log segment {number} is missing")]
    MissingSegment {
        /// The log's directory.
        directory: PathBuf,
        /// The missing segment's number.
        number: u64,
    },
    /// Entries between the engine's durable mark and the log's first entry are missing.
    #[error("{directory}: the log starts at {first:?}, but the data files end at {durable:?}")]
    Gap {
        /// The log's directory.
        directory: PathBuf,
        /// The engine's durable mark.
        durable: Seq,
        /// The first entry of the log.
        first: Seq,
    },
    /// The log ends before the engine's durable mark: the end of it is missing.
    #[error(
        "{directory}: the log ends at {last:?}, but the data files hold everything up to {durable:?}: log files were lost, removed, or replaced by older ones, and writes that were acknowledged since may have been only there"
    )]
    Behind {
        /// The log's directory.
        directory: PathBuf,
        /// The engine's durable mark.
        durable: Seq,
        /// The last entry of the log.
        last: Seq,
    },
    /// The log has not got what it once had, though it reaches the engine's durable mark; or it is another one.
    #[error(
        "{directory}: the log ends at {last:?}, but it had reached {reached:?}: log files were lost, or replaced by older ones or by those of another log, and writes that were acknowledged since may have been only there"
    )]
    Older {
        /// The log's directory.
        directory: PathBuf,
        /// An entry that was durable.
        reached: Seq,
        /// The last entry of the log.
        last: Seq,
    },
    /// The compressor named in the options cannot be made.
    #[error("{0}")]
    Compressor(#[source] CodecError),
    /// A write or sync failed earlier; the log is unusable until the process starts again.
    #[error("the log failed: {0}")]
    Failed(Arc<str>),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The caller ended its wait. What it waited for may still come.
    #[error("the wait for the log was ended")]
    Interrupted,
}

/// What is wrong at a place of a segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file is shorter than its format demands.
    #[error("{found} bytes, {expected} expected")]
    Length {
        /// Bytes demanded.
        expected: u64,
        /// Bytes there.
        found: u64,
    },
    /// The file is no segment of a log.
    #[error("no log segment (wrong magic)")]
    Magic,
    /// The segment header's checksum does not match.
    #[error("segment header checksum {found:#010x}, {expected:#010x} expected")]
    HeaderChecksum {
        /// Computed from the bytes.
        expected: u32,
        /// Stored.
        found: u32,
    },
    /// A field of the segment header has a value it cannot have.
    #[error("segment header: {field} is {found}, {expected} expected")]
    HeaderField {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// No valid frame where entries must be.
    #[error("no valid frame, but later entries exist")]
    Frame,
    /// A valid frame that is not the next one.
    #[error("frame starts at {found:?}, {expected:?} expected")]
    FrameSeq {
        /// The position due.
        expected: Seq,
        /// The frame's.
        found: Seq,
    },
    /// A valid frame whose group cannot be.
    #[error("frame claims a group that starts at offset {found}")]
    FrameGroup {
        /// The group's offset by the frame.
        found: u64,
    },
    /// A frame with valid checksums does not decompress.
    #[error("frame does not decompress: {0}")]
    Decompress(CodecError),
    /// The log has keys and the segment is not encrypted, or the other way round.
    #[error("the segment is {}", if *.is_sealed { "encrypted, and there is no key" } else { "not encrypted, and the log is" })]
    Sealing {
        /// The segment is encrypted.
        is_sealed: bool,
    },
    /// What is encrypted is not what was written here, or its key is not there.
    #[error("encryption: {0}")]
    Seal(SealError),
    /// A frame's raw bytes do not split into its entries.
    #[error("frame's entries do not fill it")]
    Entries,
}

impl LogError {
    /// Entries that are needed are damaged or missing, so that the log ends before them
    /// ([`LogOptions::ends_at_damage`](crate::LogOptions::ends_at_damage)). Not where a key is missing or another one
    /// was given: with the right one they are there.
    pub fn can_be_cut(&self) -> bool {
        match self {
            Self::Corrupt { damage, .. } => !matches!(damage, Damage::Sealing { .. } | Damage::Seal(_)),
            Self::MissingSegment { .. } | Self::Gap { .. } | Self::ConsensusLost { .. } => true,
            _ => false,
        }
    }

    /// Whether nothing was lost and the same works again: when there is space, or a file descriptor.
    pub fn passes(&self) -> bool {
        matches!(self, Self::OutOfSpace { .. } | Self::NoDescriptors { .. })
    }

    /// The sort of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Option { .. }
            | Self::EntryTooLarge { .. }
            | Self::NotAppended { .. }
            | Self::NotNext { .. }
            | Self::Purged { .. }
            | Self::Truncated { .. } => ErrorKind::Invalid,
            Self::NoJournal | Self::Version { .. } | Self::Compressor(_) => ErrorKind::Unsupported,
            Self::Corrupt { .. }
            | Self::ConsensusLost { .. }
            | Self::MissingSegment { .. }
            | Self::Gap { .. }
            | Self::Behind { .. }
            | Self::Older { .. } => ErrorKind::Corrupt,
            Self::OutOfSpace { .. } | Self::NoDescriptors { .. } | Self::BufferFull { .. } => ErrorKind::OutOfSpace,
            Self::GivenUp { source, .. } => source.kind(),
            Self::Io { .. } => ErrorKind::Io,
            Self::Failed(_) | Self::Closed | Self::Interrupted => ErrorKind::Closed,
        }
    }
}
