//! Checking a collection, its figures, and compaction.
//!
//! `validate` works on one view beside ongoing writes: every document is walked, every index row it should have is looked
//! up, and every index row is led back to a document that has it. The counts are those of the same moment.

use crate::catalog::rows::{self, STATISTICS};
use crate::index_keys::{IndexWrites, row_owner};
use crate::limits::NESTING_DEPTH_MAX;
use crate::storage::Storage;
use crate::{
    CappedLimits, Collection, Index, LockMode, Namespace, Operation, ReadView, RecordBatch, RecordId, StorageError,
};
use bson::RawDocument;
use bson::raw::RawBsonRef;
use engine::{Direction, EngineError, ErrorKind, FillLimits, KeyRange, Maintenance, Rows, TableId};
use std::ops::Bound;

/// Sentences of one kind kept in a report.
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
    /// Records that cannot be read as documents.
    pub corrupt_records: Vec<RecordId>,
}

impl ValidateReport {
    /// True without errors.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn error(&mut self, text: String) {
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
        let mut expected = vec![0u64; guard.maintained().count()];
        let records = check_records(op, &guard, &view, &mut report, &mut expected);
        // Without all records, counts and indexes cannot be compared with them.
        if let Some(data_bytes) = unless_damaged(records, &mut report)? {
            check_counts(&guard, &view, &mut report, data_bytes)?;
            for (index, expected) in guard.maintained().zip(expected) {
                let checked = check_index(op, &guard, index, &view, expected, &mut report);
                unless_damaged(checked, &mut report)?;
            }
        }
        if full {
            let tables = std::iter::once(guard.table()).chain(guard.maintained().map(|index| index.table()));
            for table in tables {
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
                building: !index.ready(),
            });
        }
        Ok(CollectionStats {
            count: collection.count(),
            data_bytes: collection.data_bytes(),
            storage_bytes: table.storage_bytes,
            free_bytes: table.free_bytes,
            indexes,
            capped: collection.is_capped(),
        })
    }

    /// Gives space back to the file system. An engine that cannot says so ([`EngineError::Unsupported`]).
    pub fn compact(&self, op: &Operation, ns: &Namespace) -> Result<CompactReport, StorageError> {
        let guard = self.existing(op, ns, LockMode::IntentShared)?;
        let mut report = CompactReport::default();
        let tables = std::iter::once(guard.table()).chain(guard.maintained().map(|index| index.table()));
        for table in tables {
            op.check_now()?;
            report.bytes_freed += self.engine.maintain(&Maintenance::Compact(Some(table)))?.bytes_freed;
        }
        Ok(report)
    }
}

/// What a check found, or `None` when it met a block that cannot be read, which is then in the report.
fn unless_damaged<T>(found: Result<T, StorageError>, report: &mut ValidateReport) -> Result<Option<T>, StorageError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(StorageError::Engine(error)) if error.kind() == ErrorKind::Corrupt => {
            report.error(error.to_string());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Walks the documents and looks up the index rows each should have. Answers the bytes of all documents.
fn check_records(
    op: &Operation,
    collection: &Collection,
    view: &ReadView,
    report: &mut ValidateReport,
    expected: &mut [u64],
) -> Result<u64, StorageError> {
    let mut cursor = view.records(collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
    let (mut batch, mut writes, mut data_bytes) = (RecordBatch::new(), IndexWrites::take(), 0);
    while cursor.fill(&mut batch, FillLimits::default())? {
        for row in 0..batch.len() {
            op.check()?;
            report.n_records += 1;
            data_bytes += batch.document(row).len() as u64;
            let (id, checked) = (batch.id(row), check_document(batch.document(row)));
            let document = match checked {
                Ok(document) => document,
                Err(problem) => {
                    report.n_invalid_documents += 1;
                    report.corrupt_records.push(id);
                    report.error(format!("{id:?}: {problem}"));
                    continue;
                }
            };
            if let Err(error) = writes.derive(collection, id, None, Some(document)) {
                report.error(format!("{id:?}: {error}"));
                continue;
            }
            for write in &writes.writes {
                expected[write.position] += 1;
                let found = view.snapshot().get(write.table, &write.key)?;
                let index = collection
                    .maintained()
                    .nth(write.position)
                    .expect("positions come from this collection");
                if found.as_deref() != write.value.as_deref() && index.ready() {
                    report.missing_entries += 1;
                    report.error(format!(
                        "index {}: no row for {id:?}, key {:02x?}",
                        index.name(),
                        write.key
                    ));
                }
            }
            for (position, places) in &writes.multikey {
                let index = collection
                    .maintained()
                    .nth(*position)
                    .expect("positions come from this collection");
                if index.multikey().iter().count() == 0 || !places.iter().all(|(f, p)| index.multikey().contains(f, p))
                {
                    report.error(format!(
                        "index {}: {id:?} has an array that its multikey paths lack",
                        index.name()
                    ));
                }
            }
        }
    }
    writes.give_back();
    Ok(data_bytes)
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

/// Counts an index's rows, and leads them back to documents when there are more than there should be.
fn check_index(
    op: &Operation,
    collection: &Collection,
    index: &Index,
    view: &ReadView,
    expected: u64,
    report: &mut ValidateReport,
) -> Result<(), StorageError> {
    let before = report.errors.len();
    let mut cursor = view
        .snapshot()
        .clone()
        .cursor(index.table(), KeyRange::all(), Direction::Forward)?;
    let (mut rows, mut writes, mut keys, mut found) = (Rows::new(), IndexWrites::take(), 0, 0);
    while cursor.fill(&mut rows, FillLimits::default())? {
        for row in 0..rows.len() {
            op.check()?;
            keys += 1;
            let id = row_owner(index, rows.key(row), rows.value(row));
            let document = match id {
                Some(id) => view.record(collection, id)?,
                None => None,
            };
            let document = document
                .as_ref()
                .and_then(|bytes| RawDocument::from_bytes(bytes.as_ref()).ok());
            writes.clear();
            let yields = match (document, id) {
                (Some(document), Some(id)) => {
                    writes.derive_one(0, index, id, None, Some(document)).is_ok()
                        && writes.writes.iter().any(|write| write.key == rows.key(row))
                }
                _ => false,
            };
            if yields {
                found += 1;
            } else {
                report.extra_entries += 1;
                report.error(format!(
                    "index {}: no document yields the row {:02x?}",
                    index.name(),
                    rows.key(row)
                ));
            }
        }
    }
    writes.give_back();
    if index.ready() && found != expected {
        report.error(format!("index {}: {found} rows, {expected} expected", index.name()));
    }
    let valid = report.errors.len() == before;
    report.indexes.push(IndexReport {
        name: index.name().to_owned(),
        keys,
        valid,
    });
    Ok(())
}

/// Walks a document to its last element, without recursion.
fn check_document(bytes: &[u8]) -> Result<&RawDocument, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    let mut open = vec![document.iter()];
    while let Some(level) = open.last_mut() {
        let Some(element) = level.next() else {
            open.pop();
            continue;
        };
        let nested = match element.map_err(|error| error.to_string())?.1 {
            RawBsonRef::Document(document) => document,
            RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes()).map_err(|error| error.to_string())?,
            RawBsonRef::JavaScriptCodeWithScope(code) => code.scope,
            _ => continue,
        };
        if open.len() >= NESTING_DEPTH_MAX {
            return Err(format!("nested deeper than {NESTING_DEPTH_MAX}"));
        }
        open.push(nested.iter());
    }
    Ok(document)
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
