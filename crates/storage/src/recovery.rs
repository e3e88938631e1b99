//! Opening: load the catalog at the engine's durable mark, then fold the log's later entries into the engine.
//!
//! The mark is exact, so each entry is applied once and finds the state it was made for; an entry that does not fit (an
//! update of a record that is not there, an unknown table) is damage and refuses to open, naming entry and byte.

use crate::apply::{Definition, count_change, put_multikey};
use crate::catalog::rows::{self, CATALOG, CollectionRow, STATISTICS};
use crate::entry::{EntryOp, EntryReader, EntryWriter};
use crate::index_keys::{IndexWrites, owner};
use crate::overlay::Overlay;
use crate::storage::Storage;
use crate::{Collection, Index, Namespace, RecordId, RecoveryProgress, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Batch, Direction, FillLimits, KeyRange, Rows, Seq, Snapshot, TableId, TableKind, TableSpec};
use hashbrown::HashMap;
use keys::MultikeyPaths;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time between two reports of progress.
const REPORT_PERIOD: Duration = Duration::from_secs(3);

impl Storage {
    pub(crate) fn report_progress(&self, progress: RecoveryProgress) {
        if let Some(report) = &self.options.on_progress {
            report(progress);
        }
    }

    pub(crate) fn recover(&self) -> Result<(), StorageError> {
        let durable = self.engine.durable_seq();
        self.published.store(durable.0, Ordering::Release);
        let mut next_table = self.definitions.lock();
        let mut initialised = self.engine.tables()?.iter().any(|(table, _)| *table == CATALOG);
        if initialised {
            *next_table = self.load_catalog()?;
        }
        let last = self.log.last_seq();
        if last > durable {
            self.report_progress(RecoveryProgress::Started { durable, last });
            let entries = self.replay_log(durable, last, &mut next_table)?;
            self.report_progress(RecoveryProgress::Finished { entries });
            initialised |= entries > 0;
        }
        if !initialised {
            let (mut entry, mut batch) = (EntryWriter::default(), Batch::new());
            entry.initialise();
            initialise(&mut batch, *next_table);
            self.commit_entry(&mut entry, &batch, || {})?;
        }
        Ok(())
    }

    fn replay_log(&self, durable: Seq, last: Seq, next_table: &mut u32) -> Result<u64, StorageError> {
        let reader = self
            .log
            .read_ahead(durable.next())
            .map_err(|error| self.log_error(error))?;
        let mut replayer = Replayer::new(self);
        let mut entries = 0;
        let mut reported = self.env.clock.monotonic();
        for entry in reader {
            let (seq, bytes) = entry.map_err(|error| self.log_error(error))?;
            let snapshot = self.engine.snapshot()?;
            let mut effect = replayer.evaluate(seq, &bytes, snapshot, next_table)?;
            effect.finish();
            self.engine.apply(&effect.overlay.batch, seq)?;
            self.engine.publish(seq);
            self.published.store(seq.0, Ordering::Release);
            let redefined = !effect.definitions.is_empty();
            effect.install(self);
            if redefined {
                replayer.refresh(self);
            }
            entries += 1;
            self.commit.lock().log_bytes += bytes.len() as u64;
            self.figures.replayed_entries.store(entries, Ordering::Relaxed);
            let now = self.env.clock.monotonic();
            if now.saturating_sub(reported) >= REPORT_PERIOD {
                reported = now;
                self.report_progress(RecoveryProgress::Replayed { durable, seq, last });
            }
        }
        Ok(entries)
    }

    /// Fills the catalog from its table. Answers the next table id.
    fn load_catalog(&self) -> Result<u32, StorageError> {
        let snapshot = self.engine.snapshot()?;
        let mut cursor = snapshot.clone().cursor(CATALOG, KeyRange::all(), Direction::Forward)?;
        let (mut rows, mut next_table) = (Rows::new(), None);
        let (mut collections, mut multikey) = (Vec::new(), BTreeMap::<TableId, MultikeyPaths>::new());
        while cursor.fill(&mut rows, FillLimits::default())? {
            for row in 0..rows.len() {
                let (key, value) = (rows.key(row), rows.value(row));
                let parsed = || RawDocument::from_bytes(value).map_err(|error| rows::corrupt(key, error.to_string()));
                match key {
                    rows::META_KEY => next_table = Some(rows::read_meta_row(value)?),
                    [rows::COLLECTION_PREFIX, ..] => {
                        let row = CollectionRow::parse(parsed()?).map_err(|reason| rows::corrupt(key, reason))?;
                        collections.push(row);
                    }
                    [rows::VIEW_PREFIX, ..] => {
                        let view = rows::parse_view_row(parsed()?).map_err(|reason| rows::corrupt(key, reason))?;
                        self.catalog.put_view(view);
                    }
                    [rows::MULTIKEY_PREFIX, a, b, c, d, field, part] => {
                        let table = TableId(u32::from_be_bytes([*a, *b, *c, *d]));
                        multikey
                            .entry(table)
                            .or_default()
                            .insert(usize::from(*field), usize::from(*part));
                    }
                    _ => return Err(rows::corrupt(key, "unknown kind of row".to_owned())),
                }
            }
        }
        let (compiler, now_ms) = (self.options.predicates.as_ref(), self.env.clock.now_ms());
        for row in collections {
            let collection = self
                .catalog
                .put_collection(row.build(None, &multikey, compiler, now_ms)?);
            self.load_counts(&collection, &snapshot)?;
            if collection.capped.is_some() {
                self.know_next_record(&collection)?;
            }
        }
        next_table.ok_or_else(|| rows::corrupt(rows::META_KEY, "the row is missing".to_owned()))
    }

    fn load_counts(&self, collection: &Collection, snapshot: &Arc<dyn Snapshot>) -> Result<(), StorageError> {
        let shared = &collection.shared;
        for (suffix, counter) in [
            (rows::COUNT_SUFFIX, &shared.count),
            (rows::BYTES_SUFFIX, &shared.data_bytes),
        ] {
            let key = rows::statistics_key(collection.table(), suffix);
            let Some(value) = snapshot.get(STATISTICS, &key)? else {
                continue;
            };
            let value = value.as_ref().try_into();
            let value = value.map_err(|_| rows::corrupt(&key, "a count does not have 8 bytes".to_owned()))?;
            counter.store(i64::from_le_bytes(value), Ordering::Release);
        }
        Ok(())
    }
}

/// The tables of the storage layer itself.
fn initialise(batch: &mut Batch, next_table: u32) {
    for (table, name) in [(CATALOG, "catalog"), (STATISTICS, "statistics")] {
        batch.create_table(
            table,
            TableSpec {
                kind: TableKind::Small,
                name: name.to_owned(),
                compressor: None,
            },
        );
    }
    batch.put(CATALOG, rows::META_KEY, rows::meta_row(next_table));
}

/// Turns entries into batches, knowing which table belongs to whom.
pub(crate) struct Replayer<'s> {
    storage: &'s Storage,
    records: HashMap<TableId, Arc<Collection>>,
    indexes: HashMap<TableId, Arc<Index>>,
}

/// What an entry does: to the engine, and to what is kept in memory.
#[derive(Default)]
pub(crate) struct Effect {
    pub(crate) overlay: Overlay,
    definitions: Vec<Definition>,
    counts: Vec<(Arc<Collection>, i64, i64)>,
    multikey: Vec<(Arc<Index>, u8, u8)>,
    inserted: Vec<(Arc<Collection>, RecordId)>,
}

impl Effect {
    fn count(&mut self, collection: &Arc<Collection>, count: i64, bytes: i64) {
        match self
            .counts
            .iter_mut()
            .find(|(counted, ..)| Arc::ptr_eq(counted, collection))
        {
            Some((_, count_so_far, bytes_so_far)) => {
                *count_so_far += count;
                *bytes_so_far += bytes;
            }
            None => self.counts.push((collection.clone(), count, bytes)),
        }
    }

    /// Adds the change of the counts to the batch.
    pub(crate) fn finish(&mut self) {
        for (collection, count, bytes) in &self.counts {
            count_change(&mut self.overlay.batch, collection.table(), *count, *bytes);
        }
    }

    fn install(self, storage: &Storage) {
        for (collection, count, bytes) in self.counts {
            collection.shared.count.fetch_add(count, Ordering::AcqRel);
            collection.shared.data_bytes.fetch_add(bytes, Ordering::AcqRel);
        }
        for (index, field, part) in self.multikey {
            let mut place = MultikeyPaths::new();
            place.insert(usize::from(field), usize::from(part));
            index.multikey_logged(&place);
        }
        for (collection, id) in self.inserted {
            collection.shared.saw_record(id);
            collection.shared.published(id);
        }
        self.definitions
            .into_iter()
            .for_each(|definition| storage.install_definition(definition));
    }
}

/// A change of one record in an entry.
struct RecordChange<'e> {
    table: TableId,
    id: RecordId,
    new: Option<&'e RawDocument>,
    /// The record exists before.
    exists: bool,
}

impl<'s> Replayer<'s> {
    pub(crate) fn new(storage: &'s Storage) -> Self {
        let mut replayer = Self {
            storage,
            records: HashMap::new(),
            indexes: HashMap::new(),
        };
        replayer.refresh(storage);
        replayer
    }

    fn refresh(&mut self, storage: &Storage) {
        let collections = storage.catalog.all_collections();
        self.indexes = collections
            .iter()
            .flat_map(|c| c.maintained().map(|i| (i.table(), i.clone())))
            .collect();
        self.records = collections
            .into_iter()
            .map(|collection| (collection.table(), collection))
            .collect();
    }

    /// The effect of an entry on the state that `snapshot` shows.
    pub(crate) fn evaluate(
        &mut self,
        seq: Seq,
        bytes: &[u8],
        snapshot: Arc<dyn Snapshot>,
        next_table: &mut u32,
    ) -> Result<Effect, StorageError> {
        let mut reader = EntryReader::new(seq, bytes)?;
        let mut effect = Effect::default();
        let mut writes = IndexWrites::take();
        loop {
            let at = reader.offset();
            let Some(op) = reader.next_op()? else { break };
            self.evaluate_op(op, &snapshot, &mut effect, &mut writes, next_table)
                .map_err(|error| match error {
                    StorageError::CorruptEntry { reason, .. } => reader.damaged_at(at, reason),
                    StorageError::CannotMakeKey(reason)
                    | StorageError::CannotIndexParallelArrays(reason)
                    | StorageError::CannotCreateIndex(reason) => reader.damaged_at(at, reason),
                    other => other,
                })?;
        }
        writes.give_back();
        Ok(effect)
    }

    fn evaluate_op(
        &self,
        op: EntryOp<'_>,
        snapshot: &Arc<dyn Snapshot>,
        effect: &mut Effect,
        writes: &mut IndexWrites,
        next_table: &mut u32,
    ) -> Result<(), StorageError> {
        let definition = match op {
            EntryOp::Insert { table, id, document } => {
                let change = RecordChange {
                    table,
                    id,
                    new: Some(document),
                    exists: false,
                };
                return self.change(change, snapshot.as_ref(), effect, writes);
            }
            EntryOp::Update { table, id, document } => {
                let change = RecordChange {
                    table,
                    id,
                    new: Some(document),
                    exists: true,
                };
                return self.change(change, snapshot.as_ref(), effect, writes);
            }
            EntryOp::Delete { table, id } => {
                let change = RecordChange {
                    table,
                    id,
                    new: None,
                    exists: true,
                };
                return self.change(change, snapshot.as_ref(), effect, writes);
            }
            EntryOp::SetMultikey {
                index_table,
                field,
                part,
            } => {
                let index = self.indexes.get(&index_table).ok_or_else(|| unknown(index_table))?;
                put_multikey(&mut effect.overlay.batch, index_table, field, part);
                effect.multikey.push((index.clone(), field, part));
                return Ok(());
            }
            EntryOp::BuildChunk {
                table,
                first,
                last,
                indexes,
            } => {
                let tables: Vec<_> = indexes.iter().collect();
                return self.build_chunk(table, (first, last), &tables, snapshot, effect, writes);
            }
            EntryOp::Initialise => {
                initialise(&mut effect.overlay.batch, *next_table);
                return Ok(());
            }
            EntryOp::PutCollection { row } => self.storage.define(CollectionRow::parse(row).map_err(misfit)?)?,
            EntryOp::DropCollection { uuid } => match self.storage.catalog.collection_by_uuid(&uuid) {
                Some(collection) => Definition::DropCollection(collection),
                None => return Err(misfit(format!("no collection has the uuid {uuid:02x?}"))),
            },
            EntryOp::PutView { row } => Definition::PutView(rows::parse_view_row(row).map_err(misfit)?),
            EntryOp::DropView { namespace } => {
                Definition::DropView(Namespace::parse(namespace).map_err(|error| misfit(error.to_string()))?)
            }
        };
        self.storage
            .apply_definition(&mut effect.overlay.batch, &definition, next_table);
        effect.definitions.push(definition);
        Ok(())
    }

    fn change(
        &self,
        change: RecordChange<'_>,
        snapshot: &dyn Snapshot,
        effect: &mut Effect,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let RecordChange { table, id, new, exists } = change;
        let collection = self.records.get(&table).ok_or_else(|| unknown(table))?;
        let key = id.to_key();
        let old = effect.overlay.get(snapshot, table, &key)?;
        if old.is_some() != exists {
            let state = if exists { "does not exist" } else { "exists already" };
            return Err(misfit(format!("{id:?} {state} in {}", collection.namespace())));
        }
        let old_document = match &old {
            Some(old) => Some(
                RawDocument::from_bytes(old.as_ref()).map_err(|error| StorageError::CorruptRecord {
                    namespace: collection.namespace().clone(),
                    record: id,
                    reason: error.to_string(),
                })?,
            ),
            None => None,
        };
        writes.derive(collection, id, old_document, new)?;
        let key = Bytes::copy_from_slice(&key);
        match new {
            Some(new) => effect
                .overlay
                .batch
                .put(table, key, Bytes::copy_from_slice(new.as_bytes())),
            None => effect.overlay.batch.delete(table, key),
        }
        let old_bytes = old.as_ref().map_or(0, Bytes::len) as i64;
        let new_bytes = new.map_or(0, |new| new.as_bytes().len()) as i64;
        effect.count(
            collection,
            i64::from(new.is_some()) - i64::from(exists),
            new_bytes - old_bytes,
        );
        if !exists {
            effect.inserted.push((collection.clone(), id));
        }
        write_rows(id, snapshot, effect, writes)
    }

    fn build_chunk(
        &self,
        table: TableId,
        (first, last): (RecordId, RecordId),
        indexes: &[TableId],
        snapshot: &Arc<dyn Snapshot>,
        effect: &mut Effect,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let collection = self.records.get(&table).ok_or_else(|| unknown(table))?;
        let range = KeyRange {
            start: Bound::Included(first.to_key().to_vec()),
            end: Bound::Included(last.to_key().to_vec()),
        };
        let mut cursor = snapshot.clone().cursor(table, range, Direction::Forward)?;
        let mut rows = Rows::new();
        while cursor.fill(&mut rows, FillLimits::default())? {
            for row in 0..rows.len() {
                let id =
                    RecordId::from_key(rows.key(row)).ok_or_else(|| misfit("a record key is damaged".to_owned()))?;
                let document = RawDocument::from_bytes(rows.value(row)).map_err(|error| misfit(error.to_string()))?;
                writes.clear();
                for (position, index) in collection.maintained().enumerate() {
                    if indexes.contains(&index.table()) {
                        writes.derive_one(position, index, id, None, Some(document))?;
                    }
                }
                write_rows(id, snapshot.as_ref(), effect, writes)?;
            }
        }
        Ok(())
    }
}

/// Moves derived index rows into the batch. Array places come by operations of their own.
fn write_rows(
    id: RecordId,
    snapshot: &dyn Snapshot,
    effect: &mut Effect,
    writes: &mut IndexWrites,
) -> Result<(), StorageError> {
    for write in writes.writes.drain(..) {
        let overlay = &mut effect.overlay;
        match write.value {
            Some(value) => overlay.batch.put(write.table, write.key, value),
            None if write.check_owner
                && overlay
                    .get(snapshot, write.table, &write.key)?
                    .as_deref()
                    .and_then(owner)
                    != Some(id) => {}
            None => overlay.batch.delete(write.table, write.key),
        }
    }
    Ok(())
}

/// An operation that does not fit the state; the place is filled in by the caller.
fn misfit(reason: String) -> StorageError {
    StorageError::CorruptEntry {
        seq: Seq::ZERO,
        offset: 0,
        reason,
    }
}

fn unknown(table: TableId) -> StorageError {
    misfit(format!("{table:?} belongs to no collection or index"))
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
