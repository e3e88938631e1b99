//! Collections made over: a capped one of another's newest documents, and indexes from the start.
//!
//! A collection becomes capped in these steps:
//!
//! 1. A collection of a name of its own is made, capped, with the options of the one that it is to be.
//! 2. That one is locked exclusively, until the end: what is written meanwhile would be lost.
//! 3. Its newest documents are copied in their order.
//! 4. The new one takes its place, as one change. Whatever fails before leaves it alone.

use crate::build::Build;
use crate::catalog::rows::{CollectionRow, IndexRow};
use crate::definition::Definition;
use crate::limits::{BUILD_CHUNK_BYTES, BUILD_CHUNK_DOCUMENTS, WAIT_SLICE};
use crate::storage::Storage;
use crate::{
    Collection, CollectionGuard, LockMode, Namespace, Operation, ReadView, RecordBatch, RecordId, StorageError,
    Temporary,
};
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use engine::{Direction, FillLimits, TableId};
use locks::Held;
use std::ops::Bound;
use std::sync::Arc;

const CHUNK: FillLimits = FillLimits {
    rows_max: BUILD_CHUNK_DOCUMENTS,
    bytes_max: BUILD_CHUNK_BYTES,
};

impl Storage {
    /// Makes `to`, capped at `size_bytes`, of the newest documents of `from` that fit, in their order.
    ///
    /// Errors: [`StorageError::NamespaceNotFound`] and [`StorageError::IsView`] of `from`,
    /// [`StorageError::NamespaceExists`] of `to`. Then, and when it fails later, `to` is as it was.
    pub fn clone_as_capped(
        &self,
        op: &Operation,
        from: &Namespace,
        to: &Namespace,
        size_bytes: u64,
    ) -> Result<(), StorageError> {
        let options = {
            let source = self.existing(op, from, LockMode::IntentShared)?;
            capped_options(&source, size_bytes)
        };
        self.create_collection(op, to, &options)?;
        let copied = (|| {
            let source = self.existing(op, from, LockMode::IntentShared)?;
            self.copy_newest(op, &source, to, size_bytes)
        })();
        copied.or_else(|error| self.give_up(op, to, error))
    }

    /// Makes a collection a capped one of `size_bytes`, of its newest documents that fit, with the `_id_` index alone.
    /// It has another uuid then. Nobody reads or writes it meanwhile.
    ///
    /// Errors: [`StorageError::NamespaceNotFound`], [`StorageError::IsView`]. When it fails it is as it was.
    pub fn convert_to_capped(&self, op: &Operation, ns: &Namespace, size_bytes: u64) -> Result<(), StorageError> {
        loop {
            let options = {
                let source = self.existing(op, ns, LockMode::IntentShared)?;
                capped_options(&source, size_bytes)
            };
            let name = self.temporary_name(ns.db(), Temporary::ConvertToCapped)?;
            let temporary = name.namespace();
            self.create_collection(op, temporary, &options)?;
            let replaced = (|| {
                let source = self.existing(op, ns, LockMode::Exclusive)?;
                // Somebody changed its options before it was locked.
                if capped_options(&source, size_bytes) != options {
                    return Ok(false);
                }
                // A writer that gave up waiting holds no lock any more, and what it proposed is still under way.
                self.settle(&|| Ok(op.check_now()?))?;
                self.copy_newest(op, &source, temporary, size_bytes)?;
                self.take_place(op, &source, temporary)?;
                Ok(true)
            })();
            match replaced {
                Ok(true) => return Ok(()),
                Ok(false) => drop(self.drop_collection(op, temporary)?),
                Err(error) => return self.give_up(op, temporary, error),
            }
        }
    }

    /// Makes all indexes but `_id_` anew, in new tables, and answers how many indexes there are. Each new one takes the
    /// place of the old one, which serves reads and refuses duplicates until then, and stays when this fails. A crash
    /// lets them be made at the next start.
    ///
    /// Errors: [`StorageError::NamespaceNotFound`], [`StorageError::IsView`], [`StorageError::DuplicateKey`] where a
    /// unique index had missed a document, [`StorageError::IndexBuildAborted`].
    pub fn rebuild_indexes(&self, op: &Operation, ns: &Namespace) -> Result<usize, StorageError> {
        let (build, indexes) = self.start_rebuild(op, ns)?;
        if !build.tables.is_empty() {
            self.run_build(op, &build)?;
        }
        Ok(indexes)
    }

    /// Enters the new indexes into the definition: what is to be built, and how many indexes there are.
    fn start_rebuild(&self, op: &Operation, ns: &Namespace) -> Result<(Build, usize), StorageError> {
        let (mut next_table, guard) = self.lock_existing(op, ns)?;
        let mut row = CollectionRow::of(&guard);
        let is_empty = self.is_empty(&guard)?;
        let mut tables = Vec::new();
        for place in 0..row.indexes.len() {
            let index = &row.indexes[place];
            let is_of_name = |other: &&IndexRow| other.spec.name == index.spec.name;
            // Those that are being built are new, in the place of others too.
            let has_successor = row.indexes.iter().filter(is_of_name).count() > 1;
            if !index.ready || index.spec.is_id() || has_successor {
                continue;
            }
            let made = IndexRow {
                table: TableId(next_table.saturating_add(tables.len() as u32)),
                ready: is_empty,
                spec: index.spec.clone(),
            };
            tables.push(made.table);
            match is_empty {
                true => row.indexes[place] = made,
                false => row.indexes.push(made),
            }
        }
        let (uuid, indexes) = (row.uuid, row.index_count());
        if !tables.is_empty() {
            self.commit_definitions(op, vec![self.define(row)?], &mut next_table)?;
        }
        if is_empty {
            tables.clear();
        }
        Ok((Build { uuid, tables }, indexes))
    }

    fn give_up(&self, op: &Operation, made: &Namespace, error: StorageError) -> Result<(), StorageError> {
        // The operation may have been interrupted.
        let unhurried = Operation::new(self.env.clock.clone(), op.id);
        let dropped = self.drop_collection(&unhurried, made);
        op.note_catalog_changes(unhurried.take_catalog_changes());
        dropped.and(Err(error))
    }

    fn copy_newest(
        &self,
        op: &Operation,
        source: &CollectionGuard,
        into: &Namespace,
        size_bytes: u64,
    ) -> Result<(), StorageError> {
        let view = self.read()?;
        let Some(first) = first_that_fits(op, &view, source, size_bytes)? else {
            return Ok(());
        };
        let mut cursor = view.records(source, Bound::Included(first), Bound::Unbounded, Direction::Forward)?;
        let mut batch = RecordBatch::new();
        while cursor.fill(&mut batch, CHUNK)? {
            let guard = self.existing(op, into, LockMode::IntentExclusive)?;
            loop {
                op.check_now()?;
                match self.insert_batch(op, &guard, &batch) {
                    Err(StorageError::WouldWait) => {}
                    done => break done?,
                }
            }
        }
        self.wait_ahead(op)
    }

    fn insert_batch(&self, op: &Operation, guard: &CollectionGuard, batch: &RecordBatch) -> Result<(), StorageError> {
        let mut unit = self.begin_write(op);
        for row in 0..batch.len() {
            let document = RawDocument::from_bytes(batch.document(row))
                .map_err(|error| StorageError::InvalidDocument(error.to_string()))?;
            unit.insert(guard, document)?;
        }
        unit.commit_ahead()?;
        Ok(())
    }

    /// Step 4. Waiting for the turn with a lock held closes no circle, see [`Storage::lock_for_definition`]. Where
    /// writes are held back meanwhile, readers wait with it: what it has copied must stay all that there is.
    fn take_place(&self, op: &Operation, source: &CollectionGuard, temporary: &Namespace) -> Result<(), StorageError> {
        loop {
            let mut next_table = self.next_turn(op)?;
            let made = self
                .catalog
                .collection(temporary)
                .ok_or_else(|| StorageError::NamespaceNotFound(temporary.clone()))?;
            if let Some(held) = Held::try_take(&made.shared.lock, op, LockMode::Exclusive) {
                let guard = CollectionGuard::from_parts(made, held);
                self.settle(&|| Ok(op.check_now()?))?;
                let mut row = CollectionRow::of(&guard);
                row.namespace = source.namespace().clone();
                let dropped = Definition::DropCollection(Arc::clone(source.definition()));
                self.commit_definitions(op, vec![dropped, self.define(row)?], &mut next_table)?;
                return Ok(());
            }
            // Somebody looks at the new collection. Its lock is not waited for with the other one held.
            drop(next_table);
            let mut changes = self.definition_changes.lock();
            self.definitions_changed.wait_for(&mut changes, WAIT_SLICE);
        }
    }
}

/// The oldest of the newest records that together have no more bytes than that.
fn first_that_fits(
    op: &Operation,
    view: &ReadView,
    source: &Collection,
    size_bytes: u64,
) -> Result<Option<RecordId>, StorageError> {
    let mut cursor = view.records(source, Bound::Unbounded, Bound::Unbounded, Direction::Reverse)?;
    let (mut batch, mut left, mut first) = (RecordBatch::new(), size_bytes, None);
    while cursor.fill(&mut batch, CHUNK)? {
        op.check_now()?;
        for row in 0..batch.len() {
            match left.checked_sub(batch.document(row).len() as u64) {
                Some(rest) => (left, first) = (rest, Some(batch.id(row))),
                None => return Ok(first),
            }
        }
    }
    Ok(first)
}

/// The options of a collection, capped: in the order of insertion, whatever order it had.
fn capped_options(collection: &Collection, size_bytes: u64) -> RawDocumentBuf {
    let mut options = rawdoc! { "capped": true };
    match i32::try_from(size_bytes) {
        Ok(size) => options.append(cstr!("size"), size),
        Err(_) => options.append(cstr!("size"), size_bytes as i64),
    }
    for (name, value) in collection.options().iter().flatten() {
        let is_of_clustered = matches!(name.as_str(), "clusteredIndex" | "expireAfterSeconds");
        if !is_of_clustered && !matches!(name.as_str(), "capped" | "size" | "max") {
            options.append(name, value);
        }
    }
    options
}

#[cfg(test)]
#[path = "remake_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
