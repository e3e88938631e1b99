//! What checks and figures of collections tell.

use crate::{CappedLimits, RecordId, StorageError};
use bson::{RawDocument, RawDocumentBuf};
use engine::StatValue;

/// Sentences, or records, of one kind kept in a report.
const PROBLEMS_MAX: usize = 100;

/// What [`crate::Storage::validate`] found.
#[derive(Clone, Debug, Default)]
pub struct ValidateReport {
    /// Documents.
    pub n_records: u64,
    /// Of those, malformed ones.
    pub n_invalid_documents: u64,
    /// By index.
    pub indexes: Vec<IndexReport>,
    /// What is damaged, one sentence each (a bounded number).
    pub errors: Vec<String>,
    /// What is odd, one sentence each.
    pub warnings: Vec<String>,
    /// Index rows that no document yields.
    pub extra_entries: u64,
    /// Index rows that are missing.
    pub missing_entries: u64,
    /// Records that cannot be read as documents (a bounded number).
    pub corrupt_records: Vec<RecordId>,
}

impl ValidateReport {
    /// True without errors.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn corrupt(&mut self, id: RecordId) {
        if self.corrupt_records.len() < PROBLEMS_MAX {
            self.corrupt_records.push(id);
        }
    }

    pub(crate) fn error(&mut self, text: String) {
        if self.errors.len() < PROBLEMS_MAX {
            self.errors.push(text);
        }
    }
}

/// An index in a [`ValidateReport`].
#[derive(Clone, Debug, Default)]
pub struct IndexReport {
    /// Its name.
    pub name: String,
    /// Rows in it.
    pub keys: u64,
    /// Nothing wrong with it.
    pub valid: bool,
}

/// Figures of one collection.
#[derive(Clone, Debug, Default)]
pub struct CollectionStats {
    /// Documents, exactly.
    pub count: u64,
    /// Bytes of documents, exactly.
    pub data_bytes: u64,
    /// Bytes on disk of the documents' table.
    pub storage_bytes: u64,
    /// Of those, reusable.
    pub free_bytes: u64,
    /// Bytes of the documents' table in memory.
    pub memory_bytes: u64,
    /// What the engine alone can tell of the documents' table.
    pub details: Vec<(String, StatValue)>,
    /// By index.
    pub indexes: Vec<IndexStats>,
    /// Limits of a capped collection.
    pub capped: Option<CappedLimits>,
    /// Name and specification of a clustered collection's index, which has no table of its own.
    pub clustered_index: Option<(String, RawDocumentBuf)>,
}

/// Figures of one index.
#[derive(Clone, Debug, Default)]
pub struct IndexStats {
    /// Its name.
    pub name: String,
    /// Bytes on disk.
    pub storage_bytes: u64,
    /// Of those, reusable.
    pub free_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Being built.
    pub building: bool,
}

/// What [`crate::Storage::validate_with`] calls for each document.
pub type Inspect<'i> = &'i mut dyn FnMut(&RecordId, &RawDocument) -> Result<(), StorageError>;

/// What [`crate::Storage::compact`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Bytes given back.
    pub bytes_freed: u64,
}

/// What a check found, or `None` when it met a block that cannot be read, which is then in the report.
pub(crate) fn unless_damaged<T>(
    found: Result<T, StorageError>,
    report: &mut ValidateReport,
) -> Result<Option<T>, StorageError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StorageError::Engine(error)) if error.is_of_disk() => {
            report.error(error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
