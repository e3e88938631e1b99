//! From log entries to what they do: one engine batch, and changes of what is kept in memory beside the engine.
//!
//! The only derivation there is. A unit derives its effect change by change while it is evaluated; recovery derives the
//! same from the entry's bytes by [`Effect::add_entry`]. What differs between the two is an [`Evaluation`]: a unit locks
//! and checks unique keys, recovery knows that this was done. An effect owns what it holds: it outlives the unit.
//!
//! Applying never fails on data: an entry that does not fit the state it was made for is damage.

use crate::apply::Definition;
use crate::catalog::rows::{self, CATALOG, CollectionRow, Meta, STATISTICS};
use crate::commit::Applied;
use crate::diff;
use crate::entry::{ClusterTime, EntryHeader, EntryOp, EntryReader, NewVersion};
use crate::error::duplicate_key;
use crate::index_keys::{IndexWrites, owner};
use crate::limits::FORGOTTEN_NAMES_MAX;
use crate::overlay::Overlay;
use crate::storage::Storage;
use crate::{Collection, Index, Namespace, RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Batch, Direction, FillLimits, KeyRange, Rows, Seq, Snapshot, TableId};
use keys::MultikeyPaths;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What evaluating a change stands on.
pub(crate) trait Evaluation {
    /// Locks the unique keys that the rows take, and makes sure that [`Evaluation::row`] shows the newest state.
    fn lock_unique(&mut self, writes: &IndexWrites) -> Result<(), StorageError>;

    /// A row in its newest version, those of `overlay` included.
    fn row(&mut self, overlay: &mut Overlay, table: TableId, key: &[u8]) -> Result<Option<Bytes>, StorageError>;

    /// Bytes of memory that index rows may take.
    fn row_bytes_left(&self) -> u64;

    /// Whether somebody else may have a unique key.
    const CHECKS_UNIQUE: bool;
}

/// Evaluation of what was checked before it was logged, on the state before its entry.
pub(crate) struct Replay(pub(crate) Arc<dyn Snapshot>);

impl Evaluation for Replay {
    const CHECKS_UNIQUE: bool = false;

    fn lock_unique(&mut self, _writes: &IndexWrites) -> Result<(), StorageError> {
        Ok(())
    }

    /// What was logged has had room.
    fn row_bytes_left(&self) -> u64 {
        u64::MAX
    }

    fn row(&mut self, overlay: &mut Overlay, table: TableId, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        overlay.get(self.0.as_ref(), table, key)
    }
}

/// What is done to one collection.
pub(crate) struct CollectionEffect {
    pub(crate) collection: Arc<Collection>,
    pub(crate) count: i64,
    pub(crate) bytes: i64,
    pub(crate) last_inserted: RecordId,
    /// Capped: the first record that was there before and has not been evicted.
    pub(crate) evict_from: RecordId,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Effect {
    pub(crate) overlay: Overlay,
    collections: Vec<CollectionEffect>,
    multikey: Vec<(Arc<Index>, MultikeyPaths)>,
    /// Each with the entry that makes it.
    definitions: Vec<(Definition, Seq)>,
    /// Names of tables that are no longer needed.
    forgotten_names: Vec<(TableId, Seq)>,
    /// All counts have been written down: what has changed since is told by the entries from behind this one on.
    counted_at: Option<Seq>,
}

impl Effect {
    /// What is done to a collection so far.
    pub(crate) fn of(&mut self, collection: &Arc<Collection>) -> &mut CollectionEffect {
        let shared = &collection.shared;
        let found = self
            .collections
            .iter()
            .position(|effect| Arc::ptr_eq(&effect.collection.shared, shared));
        let place = found.unwrap_or_else(|| {
            self.collections.push(CollectionEffect {
                collection: collection.clone(),
                count: 0,
                bytes: 0,
                last_inserted: RecordId::default(),
                evict_from: RecordId::default(),
            });
            self.collections.len() - 1
        });
        &mut self.collections[place]
    }

    /// Derives the index rows of a change, and leaves out what the state does not want. Changes nothing.
    pub(crate) fn evaluate<E: Evaluation>(
        &mut self,
        evaluation: &mut E,
        collection: &Collection,
        id: RecordId,
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        writes.bytes_max = evaluation.row_bytes_left();
        writes.derive(collection, id, old, new)?;
        self.settle(evaluation, collection, id, writes)
    }

    /// Checks that nobody else has the unique keys of `writes`, and takes out removals of rows of other records (see
    /// `IndexWrite::check_owner`).
    pub(crate) fn settle<E: Evaluation>(
        &mut self,
        evaluation: &mut E,
        collection: &Collection,
        id: RecordId,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        evaluation.lock_unique(writes)?;
        let mut place = 0;
        while let Some(write) = writes.writes.get(place) {
            let takes_key = E::CHECKS_UNIQUE && write.unique && write.value.is_some();
            if takes_key || write.check_owner {
                let found = evaluation.row(&mut self.overlay, write.table, &write.key)?;
                let holder = found.as_deref().and_then(owner);
                if write.check_owner && holder != Some(id) {
                    writes.writes.remove(place);
                    continue;
                }
                if write.value.is_some() && holder.is_some_and(|holder| holder != id) {
                    return Err(duplicate_key(collection, write));
                }
            }
            place += 1;
        }
        Ok(())
    }

    /// Takes an evaluated change of a record in: its rows, and the counts. Answers [`Effect::put_index_rows`].
    pub(crate) fn change(
        &mut self,
        collection: &Arc<Collection>,
        id: RecordId,
        old_bytes: Option<usize>,
        new: Option<Bytes>,
        writes: &mut IndexWrites,
    ) -> (u64, u64) {
        let of = self.of(collection);
        of.count += i64::from(new.is_some()) - i64::from(old_bytes.is_some());
        of.bytes += new.as_ref().map_or(0, Bytes::len) as i64 - old_bytes.unwrap_or(0) as i64;
        if old_bytes.is_none() {
            of.last_inserted = of.last_inserted.max(id);
        }
        let key = Bytes::copy_from_slice(&id.to_key());
        match new {
            Some(new) => self.overlay.batch.put(collection.table(), key, new),
            None => self.overlay.batch.delete(collection.table(), key),
        }
        self.put_index_rows(writes)
    }

    /// Moves index rows into the batch; how many are put and how many deleted.
    pub(crate) fn put_index_rows(&mut self, writes: &mut IndexWrites) -> (u64, u64) {
        let (mut put, mut deleted) = (0, 0);
        self.overlay.batch.reserve(writes.writes.len());
        for write in writes.writes.drain(..) {
            match write.value {
                Some(value) => {
                    put += 1;
                    self.overlay.batch.put(write.table, write.key, value);
                }
                None => {
                    deleted += 1;
                    self.overlay.batch.delete(write.table, write.key);
                }
            }
        }
        (put, deleted)
    }

    /// An index's path has met an array.
    pub(crate) fn set_multikey(&mut self, index: &Arc<Index>, field: u8, part: u8) {
        let key = rows::multikey_key(index.table(), field, part);
        self.overlay
            .batch
            .put(CATALOG, Bytes::copy_from_slice(&key), Bytes::new());
        let (field, part) = (usize::from(field), usize::from(part));
        match self.multikey.iter_mut().find(|(noted, _)| Arc::ptr_eq(noted, index)) {
            Some((_, places)) => {
                places.insert(field, part);
            }
            None => {
                let mut places = MultikeyPaths::new();
                places.insert(field, part);
                self.multikey.push((index.clone(), places));
            }
        }
    }

    /// A change of the catalog by the entry at `seq`.
    pub(crate) fn define(&mut self, storage: &Storage, definition: Definition, seq: Seq, meta: &mut Meta) {
        storage.apply_definition(&mut self.overlay.batch, &definition, seq, meta);
        self.definitions.push((definition, seq));
    }

    /// The tables of the storage layer itself, in a format.
    pub(crate) fn initialise(&mut self, format: u32, meta: &mut Meta) {
        meta.format = format;
        rows::create_tables(&mut self.overlay.batch);
        self.overlay.batch.put(CATALOG, rows::META_KEY, rows::meta_row(meta));
    }

    /// Writes counts down as those of the entry at `seq`, and, if all others have been, the entry from which on they were.
    pub(crate) fn statistics(
        &mut self,
        storage: &Storage,
        (seq, time): (Seq, ClusterTime),
        (as_of, names_from): (Option<Seq>, Seq),
        counts: impl Iterator<Item = (TableId, i64, i64)>,
    ) {
        let batch = &mut self.overlay.batch;
        for (table, count, bytes) in counts {
            let key = Bytes::copy_from_slice(&rows::counts_key(table));
            batch.put(STATISTICS, key, rows::counts_row(count, bytes, seq));
        }
        if let Some(as_of) = as_of {
            batch.put(STATISTICS, rows::AS_OF_KEY, rows::as_of_row(as_of, time));
        }
        self.counted_at = as_of;
        self.forgotten_names = storage.catalog.former_names_before(names_from, FORGOTTEN_NAMES_MAX);
        for (table, until) in &self.forgotten_names {
            batch.delete(CATALOG, rows::former_name_key(*table, *until));
        }
    }

    /// Directories of format 1 count by additions in every batch.
    pub(crate) fn add_counts(&mut self) {
        for effect in &self.collections {
            for (suffix, amount) in [(rows::COUNT_SUFFIX, effect.count), (rows::BYTES_SUFFIX, effect.bytes)] {
                if amount != 0 {
                    let key = rows::statistics_key(effect.collection.table(), suffix);
                    self.overlay.batch.add(STATISTICS, Bytes::copy_from_slice(&key), amount);
                }
            }
        }
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.overlay.batch
    }

    /// What it changes in the counts: table, documents, bytes.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (TableId, i64, i64)> {
        let of = |effect: &CollectionEffect| (effect.collection.table(), effect.count, effect.bytes);
        self.collections.iter().map(of)
    }

    /// Changes what is kept in memory. By who applies, when the batch has been published: what it shows to others changes in
    /// the order of the log.
    pub(crate) fn install(self, storage: &Storage, applied: &mut Applied) {
        for (index, places) in &self.multikey {
            index.multikey_logged(places);
        }
        for effect in &self.collections {
            effect.install(applied);
        }
        for (definition, seq) in self.definitions {
            storage.install_definition(definition, seq);
        }
        if !self.forgotten_names.is_empty() {
            storage.catalog.forget_names(&self.forgotten_names);
        }
        applied.counted_at = self.counted_at.unwrap_or(applied.counted_at);
    }

    /// Adds the operations of an entry to what it does to the state of `replay`. Of a chain, every entry in turn, each with
    /// the position of the last.
    pub(crate) fn add_entry(
        &mut self,
        storage: &Storage,
        seq: Seq,
        bytes: &[u8],
        replay: &mut Replay,
        meta: &mut Meta,
    ) -> Result<(), StorageError> {
        let mut reader = EntryReader::new(seq, bytes)?;
        let header = *reader.header();
        let mut writes = IndexWrites::take();
        loop {
            let at = reader.offset();
            let Some(op) = reader.next_op()? else { break };
            self.add_op(storage, (seq, header), op, replay, &mut writes, meta)
                .map_err(|error| match error {
                    StorageError::CorruptEntry { reason, .. } => reader.damaged_at(at, reason),
                    StorageError::CannotMakeKey(reason)
                    | StorageError::CannotIndexParallelArrays(reason)
                    | StorageError::CannotCreateIndex(reason) => reader.damaged_at(at, reason),
                    other => other,
                })?;
        }
        writes.give_back();
        Ok(())
    }

    fn add_op(
        &mut self,
        storage: &Storage,
        (seq, header): (Seq, EntryHeader),
        op: EntryOp<'_>,
        replay: &mut Replay,
        writes: &mut IndexWrites,
        meta: &mut Meta,
    ) -> Result<(), StorageError> {
        let definition = match op {
            EntryOp::Insert { table, id, document } => {
                let collection = storage.catalog.collection_of(table).ok_or_else(|| unknown(table))?;
                self.old_version(replay, &collection, id, false)?;
                let new = Bytes::copy_from_slice(document.as_bytes());
                return self.replay_change(replay, &collection, id, None, Some(new), writes);
            }
            EntryOp::Update {
                table, id, grown, new, ..
            } => {
                let collection = storage.catalog.collection_of(table).ok_or_else(|| unknown(table))?;
                let old = self.old_version(replay, &collection, id, true)?;
                let old = old.expect("an old version was demanded");
                let new = match new {
                    NewVersion::Whole(document) => Bytes::copy_from_slice(document.as_bytes()),
                    NewVersion::Difference { diff, .. } => diff::apply(diff.as_bytes(), &old)
                        .map_err(|error| misfit(format!("{id:?}: {}", error.0)))?
                        .into(),
                };
                let found = new.len() as i64 - old.len() as i64;
                if let Some(grown) = grown
                    && i64::from(grown) != found
                {
                    return Err(misfit(format!("{id:?} grows by {found} bytes, the entry says {grown}")));
                }
                return self.replay_change(replay, &collection, id, Some(&old), Some(new), writes);
            }
            EntryOp::Delete {
                table, id, old: said, ..
            } => {
                let collection = storage.catalog.collection_of(table).ok_or_else(|| unknown(table))?;
                let old = self.old_version(replay, &collection, id, true)?;
                let old = old.expect("an old version was demanded");
                if let Some((bytes, _)) = said
                    && bytes as usize != old.len()
                {
                    let found = old.len();
                    return Err(misfit(format!("{id:?} has {found} bytes, the entry says {bytes}")));
                }
                return self.replay_change(replay, &collection, id, Some(&old), None, writes);
            }
            EntryOp::SetMultikey {
                index_table,
                field,
                part,
            } => {
                let index = storage.catalog.index_of(index_table);
                self.set_multikey(&index.ok_or_else(|| unknown(index_table))?, field, part);
                return Ok(());
            }
            EntryOp::BuildChunk {
                table,
                first,
                last,
                indexes,
            } => {
                let tables: Vec<_> = indexes.iter().collect();
                let collection = storage.catalog.collection_of(table).ok_or_else(|| unknown(table))?;
                return self.build_chunk(replay, &collection, (first, last), &tables, writes);
            }
            EntryOp::Initialise => {
                self.initialise(u32::from(header.version), meta);
                return Ok(());
            }
            EntryOp::Statement { .. } => return Ok(()),
            EntryOp::Statistics {
                as_of,
                names_from,
                counts,
            } => {
                let place = (seq, header.time.cluster);
                self.statistics(storage, place, (as_of, names_from), counts.iter());
                return Ok(());
            }
            EntryOp::PutCollection { row } => storage.define(CollectionRow::parse(row).map_err(misfit)?)?,
            EntryOp::DropCollection { uuid } => match storage.catalog.collection_by_uuid(&uuid) {
                Some(collection) => Definition::DropCollection(collection),
                None => return Err(misfit(format!("no collection has the uuid {uuid:02x?}"))),
            },
            EntryOp::PutView { row } => Definition::PutView(rows::parse_view_row(row).map_err(misfit)?),
            EntryOp::DropView { namespace } => {
                Definition::DropView(Namespace::parse(namespace).map_err(|error| misfit(error.to_string()))?)
            }
        };
        self.define(storage, definition, seq, meta);
        Ok(())
    }

    /// The version of a record before the operation. It must be there, or must not.
    fn old_version(
        &mut self,
        replay: &mut Replay,
        collection: &Collection,
        id: RecordId,
        exists: bool,
    ) -> Result<Option<Bytes>, StorageError> {
        let old = replay.row(&mut self.overlay, collection.table(), &id.to_key())?;
        if old.is_some() != exists {
            let state = if exists { "does not exist" } else { "exists already" };
            return Err(misfit(format!("{id:?} {state} in {}", collection.namespace())));
        }
        Ok(old)
    }

    fn replay_change(
        &mut self,
        replay: &mut Replay,
        collection: &Arc<Collection>,
        id: RecordId,
        old: Option<&Bytes>,
        new: Option<Bytes>,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let document = |bytes| {
            RawDocument::from_bytes::<[u8]>(bytes).map_err(|error| StorageError::CorruptRecord {
                namespace: collection.namespace().clone(),
                record: id,
                reason: error.to_string(),
            })
        };
        let old_document = old.map(|old| document(old)).transpose()?;
        let new_document = new.as_deref().map(document).transpose()?;
        self.evaluate(replay, collection, id, old_document, new_document, writes)?;
        self.change(collection, id, old.map(Bytes::len), new, writes);
        Ok(())
    }

    fn build_chunk(
        &mut self,
        replay: &mut Replay,
        collection: &Collection,
        (first, last): (RecordId, RecordId),
        indexes: &[TableId],
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let range = KeyRange {
            start: Bound::Included(first.to_key().to_vec()),
            end: Bound::Included(last.to_key().to_vec()),
        };
        let mut cursor = replay.0.clone().cursor(collection.table(), range, Direction::Forward)?;
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
                self.settle(replay, collection, id, writes)?;
                self.put_index_rows(writes);
            }
        }
        Ok(())
    }
}

impl CollectionEffect {
    fn install(&self, applied: &mut Applied) {
        let shared = &self.collection.shared;
        if self.count != 0 || self.bytes != 0 {
            shared.count.fetch_add(self.count, Ordering::AcqRel);
            shared.data_bytes.fetch_add(self.bytes, Ordering::AcqRel);
            applied.counts_changed(&self.collection);
        }
        if self.last_inserted > RecordId::default() {
            // Who logged the insert took the id himself.
            if shared.next_record.load(Ordering::Relaxed) <= self.last_inserted.0 {
                shared.saw_record(self.last_inserted);
            }
            shared.capped_first.fetch_max(self.evict_from.0, Ordering::Relaxed);
            shared.published(self.last_inserted);
        }
    }
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
#[path = "effect_tests.rs"]
mod tests;
