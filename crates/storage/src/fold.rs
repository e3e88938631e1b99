//! From log entries and definitions to what they do, and what effects change in memory beside the engine.
//!
//! Recovery derives from an entry's bytes ([`Effect::add_entry`]) what the unit that wrote it derived change by change.
//! Applying never fails on data: an entry that does not fit the state it was made for is damage.

use crate::catalog::rows::{self, CATALOG, CollectionRow, FORMAT_VERSION, Meta, STATISTICS};
use crate::cluster_time::ClusterTime;
use crate::definition::Definition;
use crate::diff;
use crate::effect::{CollectionEffect, Effect, Evaluation};
use crate::entry::{EntryHeader, EntryOp, EntryReader, NewVersion};
use crate::index_keys::{IndexWrites, Versions};
use crate::limits::FORGOTTEN_NAMES_MAX;
use crate::overlay::Overlay;
use crate::pipeline::Applied;
use crate::sessions::SessionEffect;
use crate::storage::Storage;
use crate::{Collection, Index, Namespace, RecordId, RecordIds, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Direction, EngineError, FillLimits, KeyRange, Rows, Seq, Snapshot, TableId};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Evaluation of what was checked before it was logged, on the state before its entry.
pub(crate) struct Replay(pub(crate) Arc<dyn Snapshot>);

impl Evaluation for Replay {
    const CHECKS_UNIQUE: bool = false;

    fn lock_unique(&mut self, _ids: RecordIds, _writes: &IndexWrites) -> Result<(), StorageError> {
        Ok(())
    }

    /// What was logged was checked.
    fn is_held_by_another(
        &mut self,
        _overlay: &mut Overlay,
        _table: TableId,
        _key: &[u8],
        _own: &[u8],
    ) -> Result<bool, StorageError> {
        Ok(false)
    }

    /// What was logged is applied.
    fn check(&self) -> Result<(), StorageError> {
        Ok(())
    }

    /// What was logged has had room.
    fn row_bytes_left(&self) -> u64 {
        u64::MAX
    }

    fn row(&mut self, overlay: &mut Overlay, table: TableId, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        match overlay.get(self.0.as_ref(), table, key) {
            // Of a collection that the same entry makes.
            Err(StorageError::Engine(EngineError::NoSuchTable(_))) => Ok(None),
            found => found,
        }
    }
}

impl Effect {
    /// A change of the catalog by the entry at `seq`.
    pub(crate) fn define(&mut self, storage: &Storage, definition: Definition, seq: Seq, meta: &mut Meta) {
        storage.apply_definition(&mut self.overlay.batch, &definition, seq, meta);
        self.definitions.push((definition, seq));
    }

    /// All of this behind definitions, of which `next_table` is above all tables.
    pub(crate) fn behind(
        mut self,
        storage: &Storage,
        definitions: impl Iterator<Item = Definition>,
        seq: Seq,
        next_table: u32,
    ) -> Self {
        let mut filled = std::mem::take(&mut self.overlay).batch;
        let format = FORMAT_VERSION;
        let mut meta = Meta { format, next_table };
        definitions.for_each(|definition| self.define(storage, definition, seq, &mut meta));
        self.overlay.batch.append(&mut filled);
        self
    }

    /// What an entry before has made, or the entry itself.
    fn collection_of(&self, storage: &Storage, table: TableId) -> Result<Arc<Collection>, StorageError> {
        let own = self.defined().find(|collection| collection.table == table).cloned();
        own.or_else(|| storage.catalog.collection_of(table))
            .ok_or_else(|| unknown(table))
    }

    fn index_of(&self, storage: &Storage, table: TableId) -> Result<Arc<Index>, StorageError> {
        let mut own = self.defined().flat_map(|collection| collection.maintained());
        let own = own.find(|index| index.table() == table).cloned();
        own.or_else(|| storage.catalog.index_of(table))
            .ok_or_else(|| unknown(table))
    }

    /// Collections that it defines, the newest definition first.
    fn defined(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.definitions
            .iter()
            .rev()
            .filter_map(|(definition, _)| match definition {
                Definition::PutCollection { collection, .. } => Some(collection),
                _ => None,
            })
    }

    /// The tables of the storage layer itself, in a format.
    pub(crate) fn initialise(&mut self, format: u32, meta: &mut Meta) {
        meta.format = format;
        rows::create_tables(&mut self.overlay.batch);
        self.overlay.batch.put(CATALOG, rows::META_KEY, rows::meta_row(meta));
    }

    /// Makes the table of sessions.
    pub(crate) fn keep_sessions(&mut self) {
        rows::create_sessions(&mut self.overlay.batch);
        self.keeps_sessions = true;
    }

    /// Writes counts down as those of the entry at `seq`, and, if all others have been, the entry from which on they
    /// were. Forgets names of tables that no entry from `names_from` on needs, nor this server's own log, which may
    /// reach back farther than the log of whoever wrote the entry.
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
        let names_from = match storage.options.journal {
            true => names_from.min(storage.log.first_seq()),
            false => names_from,
        };
        self.forgotten_names = storage.catalog.former_names_before(names_from, FORGOTTEN_NAMES_MAX);
        for (table, until) in &self.forgotten_names {
            batch.delete(CATALOG, rows::former_name_key(*table, *until));
        }
        let known_from = names_from.max(storage.catalog.names_from());
        batch.put(STATISTICS, rows::NAMES_FROM_KEY, names_from_row(known_from, seq));
        self.names_from = Some(known_from);
    }

    /// Tells readers of the arrays that it has. Before it is published.
    pub(crate) fn announce_multikey(&self) {
        for (index, places) in &self.multikey {
            index.announce_multikey(places);
        }
    }

    /// Changes what is kept in memory. By who applies, when the batch has been published: what it shows to others
    /// changes in the order of the log.
    pub(crate) fn install(self, storage: &Storage, seq: Seq, applied: &mut Applied) {
        for (index, places) in &self.multikey {
            index.multikey_logged(places);
        }
        for effect in &self.collections {
            effect.install(applied);
        }
        if !self.definitions.is_empty() {
            storage.install_definitions(self.definitions);
        }
        if let Some(from) = self.names_from {
            storage.catalog.forget_names(from, &self.forgotten_names);
        }
        if self.keeps_sessions {
            storage.sessions.set_kept();
        }
        if let Some(session) = self.session {
            storage.sessions.install(*session);
        }
        if !self.forgotten_sessions.is_empty() {
            storage.sessions.forget(seq, &self.forgotten_sessions);
        }
        applied.counted_at = self.counted_at.unwrap_or(applied.counted_at);
    }

    /// Adds the operations of an entry to what it does to the state of `replay`. Of a chain, every entry in turn, each
    /// with the position of the last.
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
        if let Some(session) = header.session {
            self.session = Some(Box::new(SessionEffect::new(session)));
        }
        let mut writes = IndexWrites::take();
        loop {
            let at = reader.offset();
            let Some(op) = reader.next_op()? else { break };
            let kind = match op {
                EntryOp::Insert { .. } => Some(0),
                EntryOp::Update { .. } => Some(1),
                EntryOp::Delete { .. } => Some(2),
                EntryOp::Command { .. } => Some(3),
                _ => None,
            };
            if let Some(kind) = kind {
                storage.figures.followed_operations[kind].fetch_add(1, Ordering::Relaxed);
            }
            self.add_op(storage, (seq, header), op, replay, &mut writes, meta)
                .map_err(|error| match error {
                    StorageError::CorruptEntry { reason, .. } => reader.damaged_at(at, reason),
                    StorageError::CannotMakeKey(reason)
                    | StorageError::CannotIndex(_, reason)
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
                let collection = self.collection_of(storage, table)?;
                self.old_version(replay, &collection, &id, false)?;
                let new = Bytes::copy_from_slice(document.as_bytes());
                return self.replay_change(replay, &collection, &id, (None, Some(new), None), writes);
            }
            EntryOp::Update {
                table, id, grown, new, ..
            } => {
                let collection = self.collection_of(storage, table)?;
                let old = self.old_version(replay, &collection, &id, true)?;
                let old = old.expect("an old version was demanded");
                let (new, difference) = match new {
                    NewVersion::Whole(document) => (Bytes::copy_from_slice(document.as_bytes()), None),
                    NewVersion::Difference { diff, .. } => {
                        let new = diff::apply(diff.as_bytes(), &old)
                            .map_err(|error| misfit(format!("{id:?}: {}", error.0)))?;
                        (new.into(), Some(diff.as_bytes()))
                    }
                };
                let found = new.len() as i64 - old.len() as i64;
                if let Some(grown) = grown
                    && i64::from(grown) != found
                {
                    return Err(misfit(format!("{id:?} grows by {found} bytes, the entry says {grown}")));
                }
                return self.replay_change(replay, &collection, &id, (Some(&old), Some(new), difference), writes);
            }
            EntryOp::Delete {
                table, id, old: said, ..
            } => {
                let collection = self.collection_of(storage, table)?;
                let old = self.old_version(replay, &collection, &id, true)?;
                let old = old.expect("an old version was demanded");
                if let Some((bytes, _)) = said
                    && bytes as usize != old.len()
                {
                    let found = old.len();
                    return Err(misfit(format!("{id:?} has {found} bytes, the entry says {bytes}")));
                }
                return self.replay_change(replay, &collection, &id, (Some(&old), None, None), writes);
            }
            EntryOp::SetMultikey {
                index_table,
                field,
                part,
            } => {
                let index = self.index_of(storage, index_table)?;
                self.set_multikey(&index, field, part);
                return Ok(());
            }
            EntryOp::BuildChunk {
                table,
                first,
                last,
                indexes,
            } => {
                let tables: Vec<_> = indexes.iter().collect();
                let collection = self.collection_of(storage, table)?;
                return self.build_chunk(replay, &collection, (first, last), &tables, writes);
            }
            EntryOp::Initialise => {
                self.initialise(u32::from(header.version), meta);
                return Ok(());
            }
            EntryOp::Statement { id, kept } => {
                let session = self.session.as_mut();
                let session = session.ok_or_else(|| misfit("a statement of no session".to_owned()))?;
                session.replay_statement(id, kept);
                return Ok(());
            }
            EntryOp::Note { .. } | EntryOp::Command { .. } => return Ok(()),
            EntryOp::KeepSessions => {
                self.keep_sessions();
                return Ok(());
            }
            EntryOp::ForgetSessions { before_ms } => {
                self.forget_sessions(&storage.sessions, before_ms);
                return Ok(());
            }
            EntryOp::Statistics {
                as_of,
                names_from,
                counts,
            } => {
                let place = (seq, header.time.cluster);
                self.statistics(storage, place, (as_of, names_from), counts.iter());
                return Ok(());
            }
            EntryOp::PutCollection { row } => {
                let row = CollectionRow::parse(row).map_err(misfit)?;
                match self.defined().find(|collection| collection.uuid == row.uuid).cloned() {
                    Some(former) => storage.define_over(row, Some(former))?,
                    None => storage.define(row)?,
                }
            }
            EntryOp::DropCollection { uuid } => match storage.catalog.collection_by_uuid(&uuid) {
                Some(collection) => Definition::DropCollection(collection),
                None => return Err(misfit(format!("no collection has the uuid {uuid:02x?}"))),
            },
            EntryOp::PutView { row } => Definition::PutView(Arc::new(rows::parse_view_row(row).map_err(misfit)?)),
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
        id: &RecordId,
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
        id: &RecordId,
        (old, new, difference): (Option<&Bytes>, Option<Bytes>, Option<&[u8]>),
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let document = |bytes| {
            RawDocument::from_bytes::<[u8]>(bytes).map_err(|error| StorageError::CorruptRecord {
                namespace: collection.namespace().clone(),
                record: id.clone(),
                reason: error.to_string(),
            })
        };
        let versions = Versions {
            old: old.map(|old| document(old)).transpose()?,
            new: new.as_deref().map(document).transpose()?,
            difference,
        };
        self.evaluate(replay, collection, id, versions, writes)?;
        if let Some(session) = &mut self.session {
            session.note(versions.old, new.as_deref());
        }
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
        let (mut rows, ids) = (Rows::new(), collection.record_ids());
        while cursor.fill(&mut rows, FillLimits::default())? {
            for row in 0..rows.len() {
                let id = RecordId::from_key(ids, rows.key(row))
                    .ok_or_else(|| misfit("a record key is damaged".to_owned()))?;
                let document = RawDocument::from_bytes(rows.value(row)).map_err(|error| misfit(error.to_string()))?;
                writes.clear();
                for (position, index) in collection.maintained().enumerate() {
                    if indexes.contains(&index.table()) {
                        writes.derive_one(position, index, &id, None, Some(document))?;
                    }
                }
                self.settle(replay, collection, &id, writes)?;
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
        if self.last_inserted > 0 {
            // Who logged the insert took the id himself.
            if shared.next_record.load(Ordering::Relaxed) <= self.last_inserted {
                shared.saw_record(self.last_inserted);
            }
            shared.capped_first.fetch_max(self.evict_from, Ordering::Relaxed);
            shared.published(self.last_inserted);
        }
    }
}

/// The row at [`rows::NAMES_FROM_KEY`]: from which entry on names are known, and the entry that wrote that down: builds
/// that know nothing of the row forget names all the same.
pub(crate) fn names_from_row(known_from: Seq, written_by: Seq) -> Vec<u8> {
    [rows::names_from_row(known_from), rows::names_from_row(written_by)].concat()
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
#[path = "fold_tests.rs"]
mod tests;
