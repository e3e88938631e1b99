//! What can go wrong, with the facts a reply needs. The numbers of MongoDB's codes stand in `commands`, in one table.

use crate::{Interrupted, MemoryExceeded, Namespace, RecordId};
use bson::RawDocumentBuf;
use engine::{EngineError, ErrorKind, Seq};
use oplog::LogError;
use std::sync::Arc;

/// An error of the storage layer. The comment of each variant names MongoDB's code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A unique index has the key already (11000).
    #[error("E11000 duplicate key error collection: {} index: {}", .0.namespace, .0.index)]
    DuplicateKey(Box<DuplicateKey>),
    /// There is a collection or view of that name (48).
    #[error("namespace {0} already exists")]
    NamespaceExists(Namespace),
    /// There is no collection of that name (26).
    #[error("ns does not exist: {0}")]
    NamespaceNotFound(Namespace),
    /// The name breaks a rule (73).
    #[error("Invalid namespace specified '{name}': {reason}")]
    InvalidNamespace {
        /// The name.
        name: String,
        /// The rule.
        reason: String,
    },
    /// A database's name differs only in case from an existing one's (13297).
    #[error("db already exists with different case already have: [{existing}] trying to create [{wanted}]")]
    DatabaseDiffersInCase {
        /// The one there.
        existing: String,
        /// The one asked for.
        wanted: String,
    },
    /// The namespace is a view (166 for most commands).
    #[error("namespace {0} is a view, not a collection")]
    IsView(Namespace),
    /// There is no index of that name or key (27).
    #[error("index not found with name [{0}]")]
    IndexNotFound(String),
    /// An index of the same key and name has other options, or the same key another name (85).
    #[error("{0}")]
    IndexOptionsConflict(String),
    /// An index of the same name has another key (86).
    #[error("{0}")]
    IndexKeySpecsConflict(String),
    /// The index cannot be made as specified (67).
    #[error("{0}")]
    CannotCreateIndex(String),
    /// The option cannot be changed or combined so (72).
    #[error("{0}")]
    InvalidOptions(String),
    /// The `_id_` index cannot be dropped or hidden (72).
    #[error("cannot drop _id index")]
    CannotDropIdIndex,
    /// A document has arrays in two fields of a compound index (171).
    #[error("{0}")]
    CannotIndexParallelArrays(String),
    /// A value does not go into an index of its kind: hashed, `2dsphere` or `2d`. With MongoDB's code for it.
    #[error("{1}")]
    CannotIndex(i32, String),
    /// An index key cannot be made from the document for another reason (2 or 67).
    #[error("{0}")]
    CannotMakeKey(String),
    /// What was to be replaced is no longer what the new collection was made after: its options, or its indexes (125).
    #[error("collection {1} of target collection {0} changed during processing")]
    TargetChanged(Namespace, &'static str),
    /// An index build ended because its index or collection was dropped (276).
    #[error("Index build failed: {0}")]
    IndexBuildAborted(String),
    /// A document is larger than the limit (10334).
    #[error("object to insert too large. size in bytes: {bytes}, max size: {bytes_max}")]
    DocumentTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The unit has gathered as much as one log entry holds: commit it and go on in a new one (257).
    #[error("the changes of one unit exceed {bytes_max} bytes")]
    UnitTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A document without `_id` in first place, or malformed: callers prepare documents (2).
    #[error("{0}")]
    InvalidDocument(String),
    /// The operation was killed or ran out of time (50, 11600, 11601, 237).
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// More memory would be gathered than may be (146).
    #[error(transparent)]
    MemoryExceeded(#[from] MemoryExceeded),
    /// A lock is held elsewhere and this unit holds some already. Commit or drop the unit, begin a new one under the
    /// same [`crate::Operation`] (it will wait for that lock first) and evaluate again (112 when it ever reached a
    /// client).
    #[error("write conflict: a lock is held by another operation")]
    WouldWait,
    /// Somebody has changed, or is changing, what a transaction wants to change on its older snapshot (112).
    #[error("Write conflict: please retry the operation or the multi-document transaction.")]
    WriteConflict,
    /// A collection's definition is newer than a transaction's snapshot (246).
    #[error(
        "Unable to read from a snapshot due to pending collection catalog changes; please retry the operation. {0}"
    )]
    SnapshotUnavailable(Namespace),
    /// A transaction may not do this (263).
    #[error("{0}")]
    NotInTransaction(String),
    /// The collection was dropped or renamed meanwhile (175 for cursors).
    #[error("collection {0} was dropped")]
    CollectionDropped(Namespace),
    /// The disk or a configured limit is full (14031).
    #[error("out of space: {0}")]
    OutOfSpace(String),
    /// No file descriptor is left (264).
    #[error("out of file descriptors: {0}")]
    OutOfDescriptors(String),
    /// A backup is open (50886).
    #[error("The existing backup cursor must be closed before $backupCursor can succeed.")]
    BackupOpen,
    /// A copy of another member's data was not completed.
    #[error("the copy of the data was not completed: {0}")]
    CloneFailed(String),
    /// A change of the set's members is on its way, and none is made beside it (109).
    #[error("a change of the replica set's members is not in force yet")]
    MembersAreChanging,
    /// Users' writes are held off (371).
    #[error("User writes blocked")]
    UserWritesBlocked,
    /// `j: true` without a journal (2).
    #[error("cannot wait for the journal: journaling is off")]
    NoJournal,
    /// What is to be read of the log has been recycled (286).
    #[error("the log does not reach back so far")]
    HistoryLost,
    /// The engine ended the view that the operation read, to bound memory: the operation may begin again (239).
    #[error("{0}")]
    SnapshotTooOld(String),
    /// A log entry cannot be understood or does not fit the data.
    #[error("log entry {seq:?}, byte {offset}: {reason}")]
    CorruptEntry {
        /// The entry.
        seq: Seq,
        /// Byte within it.
        offset: usize,
        /// Expected and found.
        reason: String,
    },
    /// A row of the catalog cannot be understood.
    #[error("catalog row {key}: {reason}")]
    CorruptCatalog {
        /// Its key, in hexadecimal.
        key: String,
        /// Expected and found.
        reason: String,
    },
    /// A record or index row is not what it should be.
    #[error("{namespace}, record {record:?}: {reason}")]
    CorruptRecord {
        /// The collection.
        namespace: Namespace,
        /// The record.
        record: RecordId,
        /// Expected and found.
        reason: String,
    },
    /// An index row is not what it should be.
    #[error("index {index}: {reason}")]
    CorruptIndexEntry {
        /// The index's name.
        index: String,
        /// Expected and found.
        reason: String,
    },
    /// The files were written by a newer version.
    #[error("the data is of format {found}, this program reads up to {supported}")]
    NewerFormat {
        /// The version in the catalog.
        found: u32,
        /// The newest one known.
        supported: u32,
    },
    /// Writing stopped for good after this failure; every later write answers it too (the server ends).
    #[error("storage has stopped: {0}")]
    Stopped(Arc<str>),
    /// The storage was closed (91).
    #[error("storage is closed")]
    Closed,
    /// An engine error.
    #[error(transparent)]
    Engine(EngineError),
    /// A log error.
    #[error(transparent)]
    Log(LogError),
}

/// The facts of [`StorageError::DuplicateKey`].
#[derive(Clone, Debug)]
pub struct DuplicateKey {
    /// The collection.
    pub namespace: Namespace,
    /// The index's name.
    pub index: String,
    /// The index's key pattern.
    pub key_pattern: RawDocumentBuf,
    /// The pattern's field names with the values that collided; of strings of an index with a collation there are only
    /// their sort keys.
    pub key_value: RawDocumentBuf,
    /// The index's collation.
    pub collation: Option<RawDocumentBuf>,
}

impl From<EngineError> for StorageError {
    fn from(error: EngineError) -> Self {
        match error {
            // While storage opens, nothing else tells why.
            EngineError::Stopped(failure) => Self::Stopped(failure.into()),
            error if lacks_descriptors(&error) => Self::OutOfDescriptors(error.to_string()),
            error => match error.kind() {
                ErrorKind::OutOfSpace => Self::OutOfSpace(error.to_string()),
                ErrorKind::Closed => Self::Closed,
                ErrorKind::SnapshotTooOld => Self::SnapshotTooOld(error.to_string()),
                _ => Self::Engine(error),
            },
        }
    }
}

/// Whether it is a file descriptor that an engine lacks, and no space.
pub(crate) fn lacks_descriptors(error: &EngineError) -> bool {
    matches!(error, EngineError::Io { source, .. } if vfs::is_out_of_descriptors(source))
}

impl StorageError {
    /// Whether nothing is lost and the same works again: when there is space, or a file descriptor.
    pub fn passes(&self) -> bool {
        matches!(self, Self::OutOfSpace(_) | Self::OutOfDescriptors(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_failed_is_not_one_that_was_closed() {
        let failure = "a batch failed: /data/btree/main.blocks: at offset 512: checksum is 00000001, 00000002 expected";
        let error = StorageError::from(EngineError::Stopped(failure.to_owned()));
        assert_eq!(error.to_string(), format!("storage has stopped: {failure}"));
        assert!(matches!(StorageError::from(EngineError::Closed), StorageError::Closed));
    }
}
