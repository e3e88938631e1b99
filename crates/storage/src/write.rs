//! The write path: evaluate, log, apply.
//!
//! A unit gathers changes against the newest state and its own earlier changes. Everything that can fail does so while it
//! is gathered, under locks: what is committed has been checked and its engine batch is complete, index rows included.
//! Commit then takes one log entry and one batch through the short commit mutex: append (a copy in memory), apply (in
//! memory), publish. Nothing is visible before; a unit that is dropped leaves nothing behind.
//!
//! Locks (see `docs/locks.md`): a unit that holds none waits for what it needs; one that holds some never waits, it
//! answers [`StorageError::WouldWait`], and the operation's next unit waits for that lock first.

use crate::apply::{count_change, put_multikey};
use crate::entry::EntryWriter;
use crate::error::duplicate_key;
use crate::index_keys::{IndexWrite, IndexWrites, owner};
use crate::limits::{STORED_DOCUMENT_BYTES_MAX, UNIT_BYTES_MAX};
use crate::locks::{LockKey, Taken, key_hash};
use crate::overlay::Overlay;
use crate::storage::Storage;
use crate::{Collection, CollectionGuard, Index, LockMode, Operation, RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Direction, FillLimits, KeyRange, Rows, Seq, Snapshot};
use keys::MultikeyPaths;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub struct WriteUnit<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) op: &'a Operation,
    owner: u64,
    locks: Vec<LockKey>,
    pub(crate) overlay: Overlay,
    pub(crate) entry: EntryWriter,
    pub(crate) touched: Vec<Touched>,
    snapshot: Option<Arc<dyn Snapshot>>,
    multikey: Vec<(Arc<Index>, MultikeyPaths)>,
}

/// What a unit does to one collection.
pub(crate) struct Touched {
    pub(crate) guard: CollectionGuard,
    pub(crate) count: i64,
    pub(crate) bytes: i64,
    pub(crate) last_inserted: RecordId,
    /// Capped: the first record of the snapshot not yet evicted by this unit.
    pub(crate) evict_from: RecordId,
    /// Capped: records this unit inserted and has not evicted again.
    pub(crate) inserted: VecDeque<RecordId>,
}

impl<'a> WriteUnit<'a> {
    pub(crate) fn new(storage: &'a Storage, op: &'a Operation) -> Self {
        Self {
            storage,
            op,
            owner: storage.owners.fetch_add(1, Ordering::Relaxed),
            locks: Vec::new(),
            overlay: Overlay::default(),
            entry: EntryWriter::default(),
            touched: Vec::new(),
            snapshot: None,
            multikey: Vec::new(),
        }
    }

    /// Inserts a document whose first field is `_id`. Checks its size and unique keys. On error the unit is as before the
    /// call: [`StorageError::DuplicateKey`], [`StorageError::DocumentTooLarge`], [`StorageError::CannotIndexParallelArrays`],
    /// [`StorageError::WouldWait`], [`StorageError::UnitTooLarge`].
    pub fn insert(&mut self, c: &CollectionGuard, document: &RawDocument) -> Result<RecordId, StorageError> {
        self.check_document(document)?;
        if !matches!(document.iter().next(), Some(Ok((name, _))) if name.as_str() == "_id") {
            return Err(StorageError::InvalidDocument(
                "the first field of a stored document is _id".to_owned(),
            ));
        }
        let place = self.begin_change(c)?;
        let locks_before = self.locks.len();
        if c.is_capped().is_some() {
            self.take_locks(&[LockKey {
                table: c.table(),
                key: 0,
            }])?;
        }
        let id = c.shared.take_record_id();
        let mut writes = IndexWrites::take();
        let result = self.evaluate(c, id, None, Some(document), &mut writes).and_then(|()| {
            if let Some(limits) = c.is_capped() {
                self.make_room_in_capped(c, place, limits, document.as_bytes().len())?;
                self.touched[place].inserted.push_back(id);
            }
            let stored = Bytes::copy_from_slice(document.as_bytes());
            self.entry.insert(c.table(), id, stored.clone());
            self.change(c, place, id, 0, Some(stored), &mut writes);
            self.touched[place].last_inserted = id;
            Ok(())
        });
        writes.give_back();
        if result.is_err() {
            self.release_from(locks_before);
        }
        result.map(|()| id)
    }

    /// Locks a document until the unit ends, and answers its newest version, this unit's own changes included; `None`
    /// when it is gone.
    pub fn lock_record(&mut self, c: &CollectionGuard, id: RecordId) -> Result<Option<Bytes>, StorageError> {
        self.begin_change(c)?;
        self.take_locks(&[LockKey {
            table: c.table(),
            key: id.0,
        }])?;
        self.refresh_snapshot()?;
        self.row(c.table(), &id.to_key())
    }

    /// Replaces a document. The record has been locked by this unit, and `old` is what [`WriteUnit::lock_record`] answered.
    /// Errors as for [`WriteUnit::insert`]; the unit is then as before the call.
    pub fn update(
        &mut self,
        c: &CollectionGuard,
        id: RecordId,
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<(), StorageError> {
        debug_assert!(self.has_locked(c, id), "the record is locked");
        self.check_document(new)?;
        let place = self.begin_change(c)?;
        let locks_before = self.locks.len();
        let mut writes = IndexWrites::take();
        let result = self.evaluate(c, id, Some(old), Some(new), &mut writes);
        match result {
            Ok(()) => {
                let stored = Bytes::copy_from_slice(new.as_bytes());
                self.entry.update(c.table(), id, stored.clone());
                self.change(c, place, id, old.as_bytes().len(), Some(stored), &mut writes);
            }
            Err(_) => self.release_from(locks_before),
        }
        writes.give_back();
        result
    }

    /// Deletes a document. The record has been locked by this unit, and `old` is what [`WriteUnit::lock_record`] answered.
    pub fn delete(&mut self, c: &CollectionGuard, id: RecordId, old: &RawDocument) -> Result<(), StorageError> {
        debug_assert!(self.has_locked(c, id), "the record is locked");
        self.check_room(0)?;
        let place = self.begin_change(c)?;
        let mut writes = IndexWrites::take();
        let result = self.evaluate(c, id, Some(old), None, &mut writes);
        if result.is_ok() {
            self.entry.delete(c.table(), id);
            self.change(c, place, id, old.as_bytes().len(), None, &mut writes);
        }
        writes.give_back();
        result
    }

    /// True without changes.
    pub fn is_empty(&self) -> bool {
        self.entry.count() == 0
    }

    /// Changes gathered.
    pub fn operations(&self) -> usize {
        self.entry.count()
    }

    /// Bytes gathered: about what the log entry will have.
    pub fn bytes(&self) -> usize {
        self.entry.byte_len()
    }

    /// Takes the changes into the log and the engine, as one entry and one batch, visible as a whole on return. Gives the
    /// locks back. Without changes it answers the newest published `Seq`.
    ///
    /// Errors: the log has no room ([`StorageError::OutOfSpace`]) or has stopped; nothing has happened then. An engine that
    /// fails after the log took the entry stops the storage: whether the entry survives is only known after a restart.
    pub fn commit(mut self) -> Result<Seq, StorageError> {
        if self.entry.count() == 0 {
            return Ok(self.storage.last_seq());
        }
        self.finish();
        // What it pins could not be pruned by the engine while applying.
        self.snapshot = None;
        let (touched, multikey) = (&self.touched, &self.multikey);
        let seq = self.storage.commit_entry(&mut self.entry, &self.overlay.batch, || {
            for (index, places) in multikey {
                index.multikey_logged(places);
            }
            for touched in touched {
                touched.publish();
            }
        })?;
        self.storage.figures.commits.fetch_add(1, Ordering::Relaxed);
        Ok(seq)
    }

    /// Adds what belongs to the unit as a whole: array places met, and the change of the counts.
    fn finish(&mut self) {
        for (index, places) in &self.multikey {
            for (field, part) in places.iter() {
                self.entry.set_multikey(index.table(), field as u8, part as u8);
                put_multikey(&mut self.overlay.batch, index.table(), field as u8, part as u8);
            }
        }
        for touched in &self.touched {
            count_change(
                &mut self.overlay.batch,
                touched.guard.table(),
                touched.count,
                touched.bytes,
            );
        }
    }

    /// Checks that the unit may go on, makes room in the log, and notes the collection. Answers its place in `touched`.
    fn begin_change(&mut self, c: &CollectionGuard) -> Result<usize, StorageError> {
        debug_assert!(
            matches!(c.mode(), LockMode::IntentExclusive | LockMode::Exclusive),
            "locked for writing"
        );
        self.op.check()?;
        if let Some(place) = self
            .touched
            .iter()
            .position(|touched| Arc::ptr_eq(&touched.guard.shared, &c.shared))
        {
            return Ok(place);
        }
        if self.touched.is_empty() {
            self.storage.check_running()?;
            self.storage.wait_for_barrier(self.op)?;
            self.storage
                .log
                .wait_for_room()
                .map_err(|error| self.storage.log_error(error))?;
        }
        self.storage.know_next_record(c)?;
        self.touched.push(Touched {
            guard: c.clone(),
            count: 0,
            bytes: 0,
            last_inserted: RecordId::default(),
            evict_from: RecordId::default(),
            inserted: VecDeque::new(),
        });
        Ok(self.touched.len() - 1)
    }

    fn check_document(&self, document: &RawDocument) -> Result<(), StorageError> {
        let bytes = document.as_bytes().len();
        if bytes > STORED_DOCUMENT_BYTES_MAX {
            return Err(StorageError::DocumentTooLarge {
                bytes,
                bytes_max: STORED_DOCUMENT_BYTES_MAX,
            });
        }
        self.check_room(bytes)
    }

    /// A unit's first change always has room.
    fn check_room(&self, bytes: usize) -> Result<(), StorageError> {
        if !self.is_empty() && self.entry.byte_len() + bytes > UNIT_BYTES_MAX {
            return Err(StorageError::UnitTooLarge {
                bytes_max: UNIT_BYTES_MAX,
            });
        }
        Ok(())
    }

    fn has_locked(&self, c: &CollectionGuard, id: RecordId) -> bool {
        self.locks.contains(&LockKey {
            table: c.table(),
            key: id.0,
        })
    }

    /// Takes all of the locks or none: waiting only while the unit holds none at all.
    pub(crate) fn take_locks(&mut self, keys: &[LockKey]) -> Result<(), StorageError> {
        let before = self.locks.len();
        if before == 0 && self.op.has_awaited.load(Ordering::Relaxed) {
            self.op.has_awaited.store(false, Ordering::Relaxed);
            let awaited = self.op.awaited.lock().take();
            if let Some(key) = awaited {
                self.storage.locks.wait_until_free(key, self.op)?;
            }
        }
        'again: loop {
            for &key in keys {
                match self.storage.locks.try_take(key, self.owner) {
                    Taken::New => self.locks.push(key),
                    Taken::Already => {}
                    Taken::Busy => {
                        self.release_from(before);
                        self.storage.figures.conflicts.fetch_add(1, Ordering::Relaxed);
                        if before == 0 {
                            self.storage.locks.wait_until_free(key, self.op)?;
                            self.op.check_now()?;
                            continue 'again;
                        }
                        self.op.counters().write_conflicts.add(1);
                        *self.op.awaited.lock() = Some(key);
                        self.op.has_awaited.store(true, Ordering::Relaxed);
                        return Err(StorageError::WouldWait);
                    }
                }
            }
            return Ok(());
        }
    }

    /// Gives back the locks taken since the unit held `kept`.
    fn release_from(&mut self, kept: usize) {
        self.storage.locks.release(&self.locks[kept..], self.owner);
        self.locks.truncate(kept);
    }

    /// Makes the snapshot show everything that was published before now: call it after taking locks.
    pub(crate) fn refresh_snapshot(&mut self) -> Result<(), StorageError> {
        let newest = self.storage.last_seq();
        if self.snapshot.as_ref().is_none_or(|snapshot| snapshot.seq() < newest) {
            self.snapshot = Some(self.storage.engine.snapshot()?);
        }
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> &Arc<dyn Snapshot> {
        self.snapshot.as_ref().expect("refreshed after the first lock")
    }

    /// A row in its newest version, own changes included.
    pub(crate) fn row(&mut self, table: engine::TableId, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let snapshot = self.snapshot.as_ref().expect("refreshed after the first lock");
        self.overlay.get(snapshot.as_ref(), table, key)
    }

    /// Derives the index rows of a change, locks the unique keys it adds and checks them. Changes nothing else.
    fn evaluate(
        &mut self,
        c: &CollectionGuard,
        id: RecordId,
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        writes.derive(c, id, old, new)?;
        self.check_unique(c, id, writes)
    }

    /// Locks the unique keys of `writes` and checks that no other record has them.
    pub(crate) fn check_unique(
        &mut self,
        c: &CollectionGuard,
        id: RecordId,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let lock = |write: &IndexWrite| LockKey {
            table: write.table,
            key: key_hash(&write.key),
        };
        let mut unique = writes
            .writes
            .iter()
            .filter(|write| write.unique && write.value.is_some());
        match (unique.next(), unique.next()) {
            (None, _) => {}
            (Some(only), None) => self.take_locks(&[lock(only)])?,
            _ => {
                let unique = writes
                    .writes
                    .iter()
                    .filter(|write| write.unique && write.value.is_some());
                let mut locks: Vec<_> = unique.map(lock).collect();
                locks.sort_unstable();
                self.take_locks(&locks)?;
            }
        }
        if !writes.writes.iter().any(|write| write.unique) {
            return Ok(());
        }
        self.refresh_snapshot()?;
        let mut place = 0;
        while let Some(write) = writes.writes.get(place) {
            let looked_up = (write.unique && write.value.is_some()) || write.check_owner;
            let found = if looked_up {
                self.row(write.table, &write.key)?
            } else {
                None
            };
            let holder = found.as_deref().and_then(owner);
            if write.check_owner && holder != Some(id) {
                writes.writes.remove(place);
                continue;
            }
            if write.value.is_some() && holder.is_some_and(|holder| holder != id) {
                return Err(duplicate_key(c, write));
            }
            place += 1;
        }
        Ok(())
    }

    /// Puts an evaluated change of a record into the batch and the counts. The entry has it already.
    pub(crate) fn change(
        &mut self,
        c: &CollectionGuard,
        place: usize,
        id: RecordId,
        old_bytes: usize,
        new: Option<Bytes>,
        writes: &mut IndexWrites,
    ) {
        let key = Bytes::copy_from_slice(&id.to_key());
        let touched = &mut self.touched[place];
        touched.count += i64::from(new.is_some()) - i64::from(old_bytes > 0);
        touched.bytes += new.as_ref().map_or(0, |new| new.len() as i64) - old_bytes as i64;
        match new {
            Some(new) => self.overlay.batch.put(c.table(), key, new),
            None => self.overlay.batch.delete(c.table(), key),
        }
        self.write_index_rows(c, writes);
    }

    pub(crate) fn write_index_rows(&mut self, c: &CollectionGuard, writes: &mut IndexWrites) {
        let (mut inserted, mut deleted) = (0, 0);
        for write in writes.writes.drain(..) {
            match write.value {
                Some(value) => {
                    inserted += 1;
                    self.overlay.batch.put(write.table, write.key, value);
                }
                None => {
                    deleted += 1;
                    self.overlay.batch.delete(write.table, write.key);
                }
            }
        }
        let counters = self.op.counters();
        counters.keys_inserted.add(inserted);
        counters.keys_deleted.add(deleted);
        for (position, places) in writes.multikey.drain(..) {
            let index = c
                .maintained()
                .nth(position)
                .expect("positions come from the same collection");
            if !index.announce_multikey(&places) {
                continue;
            }
            match self.multikey.iter_mut().find(|(noted, _)| Arc::ptr_eq(noted, index)) {
                Some((_, noted)) => {
                    noted.merge(&places);
                }
                None => self.multikey.push((index.clone(), places)),
            }
        }
    }
}

impl Storage {
    /// Finds out which records of a collection there are, when it is changed for the first time: opening does not read anything of
    /// collections that nobody uses. Changes of several threads may do it at once; none of them goes on before it has.
    pub(crate) fn know_next_record(&self, collection: &Collection) -> Result<(), StorageError> {
        let shared = &collection.shared;
        if shared.next_is_known.load(Ordering::Acquire) {
            return Ok(());
        }
        let snapshot = self.engine.snapshot()?;
        let mut cursor = snapshot.cursor(collection.table(), KeyRange::all(), Direction::Reverse)?;
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        if cursor.fill(&mut rows, limits)?
            && let Some(last) = RecordId::from_key(rows.key(0))
        {
            shared.saw_record(last);
            shared.published(last);
        }
        shared.next_is_known.store(true, Ordering::Release);
        Ok(())
    }
}

impl Touched {
    /// The unit's effect on the collection's counts, under the commit mutex after publishing.
    pub(crate) fn publish(&self) {
        let shared = &self.guard.shared;
        if self.count != 0 {
            shared.count.fetch_add(self.count, Ordering::AcqRel);
        }
        if self.bytes != 0 {
            shared.data_bytes.fetch_add(self.bytes, Ordering::AcqRel);
        }
        if self.guard.is_capped().is_some() && self.last_inserted > RecordId::default() {
            shared.capped_first.fetch_max(self.evict_from.0, Ordering::Relaxed);
            shared.published(self.last_inserted);
        }
    }
}

impl Drop for WriteUnit<'_> {
    fn drop(&mut self) {
        self.storage.locks.release(&self.locks, self.owner);
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
