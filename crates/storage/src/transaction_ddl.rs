//! Collections and indexes that a transaction makes.
//!
//! They are the transaction's alone until it is committed: its unit defines them before it fills them, and nobody else
//! finds them in the catalog. Their names are kept for it meanwhile (`reserved.rs`): another transaction that wants
//! one is told of a conflict, everybody else waits. A statement that fails does not take them back: that ends the
//! transaction.

use crate::build::{Added, CreateIndexesReport, add_indexes};
use crate::catalog::rows::CollectionRow;
use crate::definition::Definition;
use crate::history::commands::commands_of;
use crate::limits::INDEXES_MAX;
use crate::{Collection, CollectionGuard, IndexSpec, LockMode, Namespace, Operation, StorageError, Transaction};
use bson::RawDocument;
use locks::Held;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Transaction {
    /// A collection that the transaction has made.
    pub fn created(&self, ns: &Namespace) -> Option<&Arc<Collection>> {
        let definitions = self.parts.changes.definitions.iter().rev();
        definitions
            .map(|(_, collection)| collection)
            .find(|collection| collection.namespace == *ns)
    }

    /// As [`crate::Storage::create_collection`], for this transaction until it is committed.
    ///
    /// Errors: those, and [`StorageError::WriteConflict`] when another transaction makes a collection of the name.
    pub fn create_collection(
        &mut self,
        op: &Operation,
        ns: &Namespace,
        options: &RawDocument,
    ) -> Result<(), StorageError> {
        if self.created(ns).is_some() {
            return Err(StorageError::NamespaceExists(ns.clone()));
        }
        let storage = self.storage.clone();
        storage.check_user_write(op, ns)?;
        // Whoever has the turn waits for no collection, so that it may be waited for with some.
        let mut next_table = storage.next_turn(op)?;
        storage.check_new_name(ns)?;
        let row = storage.new_collection_row(ns, options, *next_table)?;
        let collection = storage.prepare_collection(&row, None)?;
        storage.reserved.reserve(ns, self.parts.holding.owner);
        self.has_reserved = true;
        *next_table = next_table.saturating_add(2);
        drop(next_table);
        // There are no records to be found out about.
        collection.shared.next_is_known.store(true, Ordering::Release);
        self.define(op, row, collection, None)
    }

    /// As [`crate::Storage::create_indexes`], for this transaction until it is committed; of collections that it has
    /// made and not written to, and of those that do not exist.
    ///
    /// Errors: those, and [`StorageError::NotInTransaction`] for other collections.
    pub fn create_indexes(
        &mut self,
        op: &Operation,
        ns: &Namespace,
        specs: &[IndexSpec],
    ) -> Result<CreateIndexesReport, StorageError> {
        let existing = match self.created(ns).cloned() {
            None => self
                .collection(op, ns, LockMode::IntentShared)?
                .map(|guard| guard.definition().clone()),
            created => created,
        };
        let created_collection = existing.is_none();
        let former = match existing {
            Some(former) => former,
            None => {
                self.create_collection(op, ns, RawDocument::from_bytes(&EMPTY).expect("it is a document"))?;
                self.created(ns).expect("it was made").clone()
            }
        };
        let mut row = CollectionRow::of(&former);
        let before = row.index_count();
        let storage = self.storage.clone();
        let mut next_table = storage.next_turn(op)?;
        let Added { tables, .. } = add_indexes(&mut row, specs, *next_table, true)?;
        let report = CreateIndexesReport {
            before,
            after: row.index_count(),
            created_collection,
            all_existed: tables.is_empty(),
            was_built: false,
        };
        if tables.is_empty() {
            return Ok(report);
        }
        let refused = |what: &str| {
            Err(StorageError::NotInTransaction(format!(
                "Cannot create new indexes on {what} collection {ns} in a multi-document transaction."
            )))
        };
        if self.created(ns).is_none() {
            return refused("existing");
        }
        if self.parts.changes.has_touched(&former) {
            return refused("non-empty");
        }
        if row.index_count() > INDEXES_MAX {
            let text = format!("add index fails, too many indexes for {ns}, the limit is {INDEXES_MAX}");
            return Err(StorageError::CannotCreateIndex(text));
        }
        let collection = storage.prepare_collection(&row, Some(&former))?;
        *next_table = next_table.saturating_add(tables.len() as u32);
        drop(next_table);
        self.define(op, row, collection, Some(former))?;
        Ok(report)
    }

    /// Takes a definition into the unit, and access to the collection as it defines it.
    fn define(
        &mut self,
        op: &Operation,
        row: CollectionRow,
        collection: Arc<Collection>,
        former: Option<Arc<Collection>>,
    ) -> Result<(), StorageError> {
        let is_other = |guard: &CollectionGuard| !Arc::ptr_eq(&guard.shared, &collection.shared);
        self.collections.retain(is_other);
        let held =
            Held::try_take(&collection.shared.lock, op, LockMode::IntentExclusive).expect("nobody else knows of it");
        collection.shared.version.store(collection.version, Ordering::Release);
        self.collections
            .push(CollectionGuard::from_parts(collection.clone(), held));
        let definition = Definition::PutCollection {
            row: row.clone(),
            collection: collection.clone(),
            former,
        };
        let changes = &mut self.parts.changes;
        changes.entry.put_collection(&row.to_document());
        let commands = commands_of(std::slice::from_ref(&definition), None);
        commands.iter().for_each(|command| changes.entry.command(command));
        changes.definitions.push((definition, collection));
        Ok(())
    }
}

const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];

#[cfg(test)]
#[path = "transaction_ddl_tests.rs"]
mod tests;
