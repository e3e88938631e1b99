//! Changes of the catalog: from a definition to what the engine is told, and into the catalog in memory.

use crate::catalog::Entry;
use crate::catalog::rows::{self, CATALOG, CollectionRow, FORMAT_VERSION, Meta, STATISTICS};
use crate::catalog_change::CatalogChange;
use crate::definition::Definition;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::history::commands::commands_of;
use crate::limits::DOCUMENT_BYTES_MAX;
use crate::storage::Storage;
use crate::table_options;
use crate::user_writes::is_bound;
use crate::{Collection, Namespace, Operation, StorageError};
use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use engine::{Batch, KeyRange, Seq, TableId, TableKind, TableSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Storage {
    /// Checks a collection's new definition and builds it.
    pub(crate) fn define(&self, row: CollectionRow) -> Result<Definition, StorageError> {
        let former = self.catalog.collection_by_uuid(&row.uuid);
        self.define_over(row, former)
    }

    /// As [`Storage::define`], of what was defined otherwise before.
    pub(crate) fn define_over(
        &self,
        row: CollectionRow,
        former: Option<Arc<Collection>>,
    ) -> Result<Definition, StorageError> {
        let collection = self.build_collection(&row, former.as_deref())?;
        Ok(Definition::PutCollection {
            row,
            collection,
            former,
        })
    }

    fn build_collection(
        &self,
        row: &CollectionRow,
        former: Option<&Collection>,
    ) -> Result<Arc<Collection>, StorageError> {
        let compiler = self.options.predicates.as_ref();
        let now_ms = self.env.clock.now_ms();
        Ok(Arc::new(row.build(former, &BTreeMap::new(), compiler, now_ms)?))
    }

    /// Checks a definition, and that its tables can be made: what may fail of them fails here.
    pub(crate) fn prepare_collection(
        &self,
        row: &CollectionRow,
        former: Option<&Collection>,
    ) -> Result<Arc<Collection>, StorageError> {
        check_bytes(&row.to_document(), former)?;
        let collection = self.build_collection(row, former)?;
        let tables = self.new_tables(row, former).into_iter();
        self.prepare_own_tables(&tables.map(|(_, spec)| spec).collect::<Vec<_>>())?;
        Ok(collection)
    }

    /// As the last thing before the entry with the definitions: what is prepared is given up when something else is.
    pub(crate) fn prepare_definitions<'d>(
        &self,
        definitions: impl Iterator<Item = &'d Definition>,
    ) -> Result<(), StorageError> {
        self.prepare_own_tables(&self.tables_made_by(definitions))
    }

    /// As [`Storage::prepare_definitions`], of what another server has decided: no limit of this one refuses it.
    pub(crate) fn prepare_followed<'d>(
        &self,
        definitions: impl Iterator<Item = &'d Definition>,
    ) -> Result<(), StorageError> {
        Ok(self.engine.prepare_tables(&self.tables_made_by(definitions))?)
    }

    fn prepare_own_tables(&self, specs: &[TableSpec]) -> Result<(), StorageError> {
        for spec in specs {
            self.engine.check_new_table(spec)?;
        }
        Ok(self.engine.prepare_tables(specs)?)
    }

    fn tables_made_by<'d>(&self, definitions: impl Iterator<Item = &'d Definition>) -> Vec<TableSpec> {
        definitions
            .filter_map(|definition| match definition {
                Definition::PutCollection { row, former, .. } => Some(self.new_tables(row, former.as_deref())),
                _ => None,
            })
            .flatten()
            .map(|(_, spec)| spec)
            .collect()
    }

    /// Adds the operations of a definition that the entry at `seq` makes to a batch. The next table rises above those
    /// it makes, on disk as well.
    pub(crate) fn apply_definition(&self, batch: &mut Batch, definition: &Definition, seq: Seq, meta: &mut Meta) {
        match definition {
            Definition::PutCollection { row, former, .. } => {
                if let Some(former) = former
                    && former.namespace != row.namespace
                {
                    put_former_name(batch, former, seq);
                }
                self.apply_collection(batch, row, former.as_deref(), meta);
            }
            Definition::DropCollection(collection) => {
                put_former_name(batch, collection, seq);
                batch.delete(CATALOG, rows::collection_key(&collection.uuid));
                batch.drop_table(collection.table);
                batch.delete(STATISTICS, rows::counts_key(collection.table).to_vec());
                for suffix in [rows::COUNT_SUFFIX, rows::BYTES_SUFFIX] {
                    batch.delete(
                        STATISTICS,
                        Bytes::copy_from_slice(&rows::statistics_key(collection.table, suffix)),
                    );
                }
                collection
                    .maintained()
                    .for_each(|index| drop_index_table(batch, index.table()));
            }
            Definition::PutView(view) => {
                batch.put(
                    CATALOG,
                    rows::view_key(view.namespace.as_str()),
                    rows::view_row(view).into_bytes(),
                );
            }
            Definition::DropView(namespace) => batch.delete(CATALOG, rows::view_key(namespace.as_str())),
        }
    }

    /// The tables that a collection's definition has and its former one has not.
    fn new_tables(&self, row: &CollectionRow, former: Option<&Collection>) -> Vec<(TableId, TableSpec)> {
        let engine = self.engine.info();
        let spec = |kind, compressor: Option<String>| TableSpec {
            kind,
            name: row.namespace.as_str().to_owned(),
            compressor: compressor.filter(|name| engine.capabilities.compressors.contains(&name.as_str())),
        };
        let mut tables = Vec::new();
        if former.is_none() {
            let compressor = table_options::named_in(&row.options, engine.name);
            let compressor = compressor.or_else(|| self.options.collection_compressor.clone());
            let kind = match row.is_clustered() {
                true => TableKind::Clustered,
                false => TableKind::Records,
            };
            tables.push((row.table, spec(kind, compressor)));
        }
        let had = |table| former.is_some_and(|former| former.maintained().any(|index| index.table() == table));
        for index in row.indexes.iter().filter(|index| !had(index.table)) {
            let defaults = row.options.get_document("indexOptionDefaults").ok();
            let compressor = table_options::named_in(&index.spec.spec, engine.name)
                .or_else(|| table_options::named_in(defaults?, engine.name));
            tables.push((index.table, spec(TableKind::Index, compressor)));
        }
        tables
    }

    fn apply_collection(&self, batch: &mut Batch, row: &CollectionRow, former: Option<&Collection>, meta: &mut Meta) {
        batch.put(CATALOG, rows::collection_key(&row.uuid), row.to_document().into_bytes());
        let new_tables = self.new_tables(row, former);
        let above = new_tables.iter().map(|(table, _)| table.0.saturating_add(1)).max();
        for (table, spec) in new_tables {
            debug_assert!(!self.catalog.has_table(table), "{table:?} is somebody's");
            batch.create_table(table, spec);
        }
        for index in former.into_iter().flat_map(Collection::maintained) {
            if !row.indexes.iter().any(|kept| kept.table == index.table()) {
                drop_index_table(batch, index.table());
            }
        }
        // Whatever memory has: there the next table may be above these already, for a transaction that was aborted or
        // an entry that was lost, and nothing on disk tells of that.
        if let Some(above) = above {
            meta.next_table = meta.next_table.max(above);
            batch.put(CATALOG, rows::META_KEY, rows::meta_row(meta));
        }
    }

    /// Makes definitions, each by the entry at its position, those in the catalog, as one: a name that one collection
    /// takes from another always stands for one of the two. By who applies, after publishing.
    pub(crate) fn install_definitions(&self, definitions: Vec<(Definition, Seq)>) {
        let name = |collection: &Collection| (collection.namespace.clone(), collection.uuid);
        let mut dropped = Vec::new();
        self.catalog.change(|names| {
            for (definition, seq) in definitions {
                match definition {
                    Definition::PutCollection { collection, former, .. } => {
                        if let Some(former) = former.filter(|former| former.namespace != collection.namespace) {
                            names.put_former_name(former.table, seq, name(&former));
                        }
                        names.put_collection(collection);
                    }
                    Definition::DropCollection(collection) => {
                        names.put_former_name(collection.table, seq, name(&collection));
                        names.remove_collection(&collection);
                        dropped.push(collection);
                    }
                    Definition::PutView(view) => names.put_view(view),
                    Definition::DropView(namespace) => names.remove_view(&namespace),
                }
            }
        });
        for collection in dropped {
            if let Some(tail) = &collection.shared.tail {
                tail.close();
            }
            let db = collection.namespace.db();
            // What a member has of its own in a database ends with that; the primary is told to drop it.
            if !self.leads() && !self.catalog.database_exists(db) {
                for local in self.local_capped_of(db) {
                    self.drop_local_capped(local.namespace());
                }
            }
        }
    }

    /// Logs, applies and installs definitions as one entry. The caller holds `definitions` (whose value `next_table`
    /// is) and the exclusive locks of the collections concerned.
    pub(crate) fn commit_definitions(
        &self,
        op: &Operation,
        definitions: Vec<Definition>,
        next_table: &mut u32,
    ) -> Result<Seq, StorageError> {
        let commands = commands_of(&definitions, None);
        self.commit_commands(op, definitions, &commands, next_table)
    }

    /// As [`Storage::commit_definitions`], told by other commands.
    pub(crate) fn commit_commands(
        &self,
        op: &Operation,
        definitions: Vec<Definition>,
        commands: &[RawDocumentBuf],
        next_table: &mut u32,
    ) -> Result<Seq, StorageError> {
        for definition in &definitions {
            self.check_user_write(op, definition.namespace())?;
        }
        self.wait_for_log_room()?;
        let mut entry = EntryWriter::default();
        entry.is_users = definitions
            .iter()
            .any(|definition| is_bound(op, definition.namespace()));
        entry.epoch = Some(self.definitions_epoch.load(Ordering::Acquire));
        for definition in &definitions {
            match definition {
                Definition::PutCollection { row, former, .. } => {
                    let row = row.to_document();
                    check_bytes(&row, former.as_deref())?;
                    entry.put_collection(&row);
                }
                Definition::DropCollection(collection) => entry.drop_collection(collection.uuid),
                Definition::PutView(view) => {
                    let row = rows::view_row(view);
                    check_bytes(&row, None)?;
                    entry.put_view(&row);
                }
                Definition::DropView(namespace) => entry.drop_view(namespace.as_str()),
            }
        }
        commands.iter().for_each(|command| entry.command(command));
        // What may fail about tables fails here: once the log has the entry, applying it must succeed.
        self.prepare_definitions(definitions.iter())?;
        let changes = self.changes_by(definitions.iter());
        let mut meta = Meta {
            format: FORMAT_VERSION,
            next_table: *next_table,
        };
        let only_adds = definitions.iter().all(Definition::adds);
        let seq = self.propose(&mut entry, |seq| {
            let mut effect = Effect::default();
            for definition in definitions {
                effect.define(self, definition, seq, &mut meta);
            }
            effect
        })?;
        *next_table = meta.next_table;
        // What else the operation is to change belongs to this.
        op.outlives_client();
        self.wait_defined(op, seq, &entry, only_adds)?;
        op.note_catalog_changes(changes);
        self.tell_definitions_changed();
        Ok(seq)
    }

    /// Waits until definitions have taken effect. Who only adds some may give up: they go their way, and whoever has
    /// the turn next waits for them. Of what is there already others must see nothing before it is what the entry
    /// says, and the locks that keep them away are the caller's: that wait ends with the leadership alone.
    pub(crate) fn wait_defined(
        &self,
        op: &Operation,
        seq: Seq,
        entry: &EntryWriter,
        only_adds: bool,
    ) -> Result<(), StorageError> {
        if !only_adds {
            return self.wait_stays(seq, entry.epoch);
        }
        let waited = self.wait_applied_in(op, seq, entry.epoch);
        if waited.is_err() {
            *self.defined_meanwhile.lock() = Some((seq, entry.epoch));
        }
        waited
    }

    /// What definitions are going to change. The caller holds their locks.
    pub(crate) fn changes_by<'d>(&self, definitions: impl Iterator<Item = &'d Definition>) -> Vec<CatalogChange> {
        let view = |namespace: &Namespace| match self.catalog.entry(namespace) {
            Some(Entry::View(view)) => Some(view),
            _ => None,
        };
        definitions
            .map(|definition| match definition {
                Definition::PutCollection { collection, former, .. } => CatalogChange::Collection {
                    before: former.clone(),
                    after: Some(Arc::clone(collection)),
                },
                Definition::DropCollection(collection) => CatalogChange::Collection {
                    before: Some(Arc::clone(collection)),
                    after: None,
                },
                Definition::PutView(after) => CatalogChange::View {
                    namespace: after.namespace.clone(),
                    before: view(&after.namespace),
                    after: Some(Arc::clone(after)),
                },
                Definition::DropView(namespace) => CatalogChange::View {
                    namespace: namespace.clone(),
                    before: view(namespace),
                    after: None,
                },
            })
            .collect()
    }

    /// Tells the handler what was changed for nobody.
    pub(crate) fn tell_unasked(&self, op: &Operation) {
        let changes = op.take_catalog_changes();
        if let Some(handler) = &self.options.on_catalog_change {
            changes.iter().for_each(|change| handler(change));
        }
    }

    /// Wakes those who wait for a definition.
    pub(crate) fn tell_definitions_changed(&self) {
        *self.definition_changes.lock() += 1;
        self.definitions_changed.notify_all();
    }
}

/// A definition is told as a document, and is one row. One that is longer already may become shorter.
///
/// Errors: [`StorageError::DocumentTooLarge`].
fn check_bytes(row: &RawDocument, former: Option<&Collection>) -> Result<(), StorageError> {
    let (bytes, bytes_max) = (row.as_bytes().len(), DOCUMENT_BYTES_MAX);
    let before = || former.map_or(0, |former| CollectionRow::of(former).to_document().as_bytes().len());
    match bytes > bytes_max && bytes > before() {
        true => Err(StorageError::DocumentTooLarge { bytes, bytes_max }),
        false => Ok(()),
    }
}

/// Entries before `seq` were made when the table had this name.
fn put_former_name(batch: &mut Batch, collection: &Collection, seq: Seq) {
    let row = rows::former_name_row(&collection.namespace, collection.uuid);
    batch.put(CATALOG, rows::former_name_key(collection.table, seq), row);
}

fn drop_index_table(batch: &mut Batch, table: TableId) {
    batch.drop_table(table);
    batch.delete_range(CATALOG, KeyRange::prefix(&rows::multikey_prefix(table)));
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
