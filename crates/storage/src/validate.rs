//! Checking a collection, its figures, and compaction.
//!
//! `validate` works on one view beside ongoing writes, and reads each table once, from end to end: see `consistency`. The
//! counts are those of the same moment.

use crate::catalog::rows::{self, STATISTICS};
use crate::consistency;
use crate::storage::Storage;
use crate::{CappedLimits, Collection, LockMode, Namespace, Operation, ReadView, RecordId, StorageError};
use engine::{EngineError, ErrorKind, Maintenance, TableId};
use std::iter;

/// Sentences, or records, of one kind kept in a report.
const PROBLEMS_MAX: usize = 100;

/// What [`Storage::validate`] found.
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
    /// By index.
    pub indexes: Vec<IndexStats>,
    /// Limits of a capped collection.
    pub capped: Option<CappedLimits>,
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

/// What [`Storage::compact`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Bytes given back.
    pub bytes_freed: u64,
}

impl Storage {
    /// Checks a collection: see the module. `full` also has the engine check the tables' blocks. Errors are about the
    /// call; damage is in the report.
    pub fn validate(&self, op: &Operation, ns: &Namespace, full: bool) -> Result<ValidateReport, StorageError> {
        let guard = self.existing(op, ns, LockMode::IntentShared)?;
        let view = self.read()?;
        let mut report = ValidateReport::default();
        let checked = consistency::check(op, &guard, &view, &mut report);
        // Without all records, the counts cannot be compared with them.
        if let Some(Some(data_bytes)) = unless_damaged(checked, &mut report)? {
            check_counts(&guard, &view, &mut report, data_bytes)?;
        }
        if full {
            for table in tables(&guard) {
                op.check_now()?;
                self.verify_table(table, &mut report)?;
            }
        }
        Ok(report)
    }

    fn verify_table(&self, table: TableId, report: &mut ValidateReport) -> Result<(), StorageError> {
        match self.engine.maintain(&Maintenance::Verify(Some(table))) {
            Ok(found) => found.problems.into_iter().for_each(|problem| report.error(problem)),
            Err(EngineError::Unsupported { .. }) => {
                report
                    .warnings
                    .push(format!("the engine cannot verify {table:?} by itself"));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Figures of a collection. [`StorageError::NamespaceNotFound`], [`StorageError::IsView`].
    pub fn collection_stats(&self, ns: &Namespace) -> Result<CollectionStats, StorageError> {
        if self.catalog.view(ns).is_some() {
            return Err(StorageError::IsView(ns.clone()));
        }
        let collection = self
            .catalog
            .collection(ns)
            .ok_or_else(|| StorageError::NamespaceNotFound(ns.clone()))?;
        let table = self.engine.table_stats(collection.table())?;
        let mut indexes = Vec::new();
        for index in collection.maintained() {
            let table = self.engine.table_stats(index.table())?;
            indexes.push(IndexStats {
                name: index.name().to_owned(),
                storage_bytes: table.storage_bytes,
                free_bytes: table.free_bytes,
                memory_bytes: table.memory_bytes,
                building: !index.ready(),
            });
        }
        Ok(CollectionStats {
            count: collection.count(),
            data_bytes: collection.data_bytes(),
            storage_bytes: table.storage_bytes,
            free_bytes: table.free_bytes,
            memory_bytes: table.memory_bytes,
            indexes,
            capped: collection.is_capped(),
        })
    }

    /// Gives space back to the file system. An engine that cannot says so ([`EngineError::Unsupported`]).
    pub fn compact(&self, op: &Operation, ns: &Namespace) -> Result<CompactReport, StorageError> {
        let guard = self.existing(op, ns, LockMode::IntentShared)?;
        op.check_now()?;
        let task = Maintenance::Compact(Some(tables(&guard).collect()));
        let bytes_freed = self.engine.maintain(&task)?.bytes_freed;
        Ok(CompactReport { bytes_freed })
    }
}

/// A collection's tables: its documents', then its indexes'.
fn tables(collection: &Collection) -> impl Iterator<Item = TableId> {
    iter::once(collection.table()).chain(collection.maintained().map(|index| index.table()))
}

/// What a check found, or `None` when it met a block that cannot be read, which is then in the report.
pub(crate) fn unless_damaged<T>(
    found: Result<T, StorageError>,
    report: &mut ValidateReport,
) -> Result<Option<T>, StorageError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StorageError::Engine(error)) if error.kind() == ErrorKind::Corrupt => {
            report.error(error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn check_counts(
    collection: &Collection,
    view: &ReadView,
    report: &mut ValidateReport,
    data_bytes: u64,
) -> Result<(), StorageError> {
    for (suffix, found, what) in [
        (rows::COUNT_SUFFIX, report.n_records, "documents"),
        (rows::BYTES_SUFFIX, data_bytes, "bytes of documents"),
    ] {
        let row = view
            .snapshot()
            .get(STATISTICS, &rows::statistics_key(collection.table(), suffix))?;
        let stored = row
            .and_then(|row| row.as_ref().try_into().ok().map(i64::from_le_bytes))
            .unwrap_or(0);
        if stored != found as i64 {
            report.error(format!("the catalog counts {stored} {what}, there are {found}"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
