//! The write path: evaluate, log, apply.
//!
//! A unit gathers changes against the newest state and its own earlier changes. Everything that can fail does so while
//! it is gathered, under locks: what is committed has been checked and its engine batch is complete, index rows
//! included. Commit then takes one log entry and one effect through `commit.rs`. Nothing is visible before; a unit that
//! is dropped leaves nothing behind.
//!
//! Locks (see `docs/locks.md`): a unit that holds none waits for what it needs; one that holds some never waits, it
//! answers [`StorageError::WouldWait`], and the operation's next unit waits for that lock first.

use crate::capped_evict::check_growth;
use crate::clustered::keeps_id;
use crate::definition::Definition;
use crate::diff::{self, Detail, Targets};
use crate::effect::{CollectionEffect, Effect, Evaluation};
use crate::entry::{Deletion, EntrySession, EntryWriter};
use crate::history::size::{told_bytes, told_change_bytes};
use crate::index_keys::{IndexWrites, Versions};
use crate::limits::{STORED_DOCUMENT_BYTES_MAX, TRANSACTION_BYTES_MAX, UNIT_BYTES_MAX};
use crate::mutations::mutated;
use crate::operation::BriefWaiter;
use crate::session_key::Kept;
use crate::sessions::SessionEffect;
use crate::storage::Storage;
use crate::transaction::{Home, Parts};
use crate::user_writes::is_bound;
use crate::{Charge, Collection, CollectionGuard, Index, Interrupted, Operation, RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Seq, Snapshot};
use keys::MultikeyPaths;
use locks::{Changed, LockKey, Taken};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub struct WriteUnit<'a> {
    pub(crate) evaluator: Evaluator<'a>,
    pub(crate) changes: Changes,
    /// Of a statement of a transaction.
    pub(crate) home: Option<Home<'a>>,
}

/// How a client asked for an update. Who follows the log is told accordingly.
#[derive(Clone, Copy)]
pub enum UpdateForm<'t> {
    /// By operators, which change these places.
    Operators(&'t dyn Targets),
    /// By a pipeline.
    Pipeline,
    /// By a new document.
    Replacement,
}

/// What a unit has gathered.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) effect: Effect,
    pub(crate) entry: EntryWriter,
    /// Of a transaction: what it makes, in order.
    pub(crate) definitions: Vec<(Definition, Arc<Collection>)>,
    pub(crate) touched: Vec<Touched>,
    /// The session's statements of the changes that follow, until the entry has them.
    pub(crate) statements: Vec<(i32, Kept)>,
    multikey: Vec<(Arc<Index>, MultikeyPaths)>,
}

/// The locks of a unit, and the state it is evaluated on.
pub(crate) struct Evaluator<'a> {
    storage: &'a Storage,
    op: &'a Operation,
    pub(crate) holding: Holding,
    /// The unit sees this state and its own changes, and nobody may have changed since what it changes.
    isolated_at: Option<Seq>,
}

/// What a unit holds until it ends.
#[derive(Default)]
pub(crate) struct Holding {
    pub(crate) owner: u64,
    pub(crate) locks: Vec<LockKey>,
    pub(crate) snapshot: Option<Arc<dyn Snapshot>>,
    /// Bytes of index rows, and what of them is charged to the operation's memory: those of a few documents are not.
    row_bytes: u64,
    memory: Option<Charge>,
}

/// How much of [`Holding`] there is.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    locks: usize,
    row_bytes: u64,
}

impl Holding {
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            locks: self.locks.len(),
            row_bytes: self.row_bytes,
        }
    }

    /// The rows gathered since are gone.
    pub(crate) fn forget_rows(&mut self, since: Extent) {
        self.row_bytes = since.row_bytes;
        if let Some(memory) = &mut self.memory {
            memory.shrink(memory.bytes().saturating_sub(since.row_bytes));
        }
    }
}

/// Bytes of index rows that a unit gathers before they are charged.
const UNCHARGED_ROW_BYTES: u64 = 64 << 10;

/// A collection that a unit changes.
pub(crate) struct Touched {
    guard: CollectionGuard,
    /// Capped: the numbers of records this unit inserted and has not evicted again.
    pub(crate) inserted: VecDeque<u64>,
    /// Capped: documents and bytes without this unit's changes, as they were when it had taken the insert lock.
    pub(crate) others: Option<(i64, i64)>,
}

impl Changes {
    /// What is gathered on the state of an epoch.
    pub(crate) fn begun_in(epoch: u64) -> Self {
        let mut changes = Self::default();
        changes.entry.epoch = Some(epoch);
        changes
    }

    /// All changes belong to a session's transaction number.
    pub(crate) fn in_session(&mut self, session: EntrySession) {
        self.entry.session(&session);
        self.effect.session = Some(Box::new(SessionEffect::new(session)));
    }

    /// Refused when the leadership of that epoch is over.
    pub(crate) fn begin_in(&mut self, epoch: u64) {
        self.entry.epoch = Some(epoch);
    }

    /// Whether documents of the collection are changed.
    pub(crate) fn has_touched(&self, collection: &Collection) -> bool {
        let mut touched = self.touched.iter();
        touched.any(|touched| Arc::ptr_eq(&touched.guard.shared, &collection.shared))
    }

    /// Where the next change is logged, under its statement.
    fn entry(&mut self) -> &mut EntryWriter {
        for (statement, kept) in self.statements.drain(..) {
            self.entry.statement(statement, kept);
        }
        &mut self.entry
    }
}

impl<'a> WriteUnit<'a> {
    pub(crate) fn new(storage: &'a Storage, op: &'a Operation) -> Self {
        let holding = Holding {
            owner: storage.owners.fetch_add(1, Ordering::Relaxed),
            ..Holding::default()
        };
        Self {
            evaluator: Evaluator {
                storage,
                op,
                holding,
                isolated_at: None,
            },
            changes: Changes::begun_in(storage.pipeline.epoch()),
            home: None,
        }
    }

    /// A statement that goes on with what a transaction holds.
    pub(crate) fn of_transaction(storage: &'a Storage, op: &'a Operation, home: Home<'a>, parts: Parts) -> Self {
        let mut unit = Self::of_parts(storage, op, parts);
        unit.home = Some(home);
        unit
    }

    /// All that a transaction holds.
    pub(crate) fn of_parts(storage: &'a Storage, op: &'a Operation, parts: Parts) -> Self {
        let isolated_at = parts.holding.snapshot.as_ref().map(|snapshot| snapshot.seq());
        Self {
            evaluator: Evaluator {
                storage,
                op,
                holding: parts.holding,
                isolated_at,
            },
            changes: parts.changes,
            home: None,
        }
    }

    /// Inserts a document whose first field is `_id`. Checks its size and unique keys. On error the unit is as before
    /// the call: [`StorageError::DuplicateKey`], [`StorageError::DocumentTooLarge`],
    /// [`StorageError::CannotIndexParallelArrays`], [`StorageError::WouldWait`], [`StorageError::UnitTooLarge`].
    pub fn insert(&mut self, c: &CollectionGuard, document: &RawDocument) -> Result<RecordId, StorageError> {
        self.check_document(document)?;
        // Behind the document's length and the element's type.
        if document.as_bytes().get(5..9) != Some(b"_id\0") {
            return Err(StorageError::InvalidDocument(
                "the first field of a stored document is _id".to_owned(),
            ));
        }
        let place = self.begin_change(c)?;
        check_growth(&*self.evaluator.storage.engine, c, document.as_bytes().len())?;
        let before = self.evaluator.holding.extent();
        if c.is_capped().is_some() {
            self.evaluator.take_locks(&[LockKey {
                table: c.table(),
                key: 0,
            }])?;
        }
        let id = match c.clustered_index() {
            None => c.shared.take_record_id(),
            Some(index) => self.take_clustered_id(c, index, document)?,
        };
        let mut writes = IndexWrites::take();
        let evaluated =
            self.changes
                .effect
                .evaluate(&mut self.evaluator, c, &id, Versions::inserted(document), &mut writes);
        let result = evaluated.and_then(|()| {
            if let Some(limits) = c.is_capped() {
                self.make_room_in_capped(c, place, limits, document.as_bytes().len())?;
                self.changes.touched[place].inserted.push_back(id.number());
            }
            let stored = Bytes::copy_from_slice(document.as_bytes());
            self.changes.entry().insert(c.table(), &id, stored.clone());
            self.change(c, &id, None, Some(stored), &mut writes);
            Ok(())
        });
        writes.give_back();
        if result.is_err() {
            self.evaluator.fall_back(before);
            // The insert lock may be free again.
            self.changes.touched[place].others = None;
        }
        result.map(|()| id)
    }

    /// Locks a document until the unit ends, and answers its newest version, this unit's own changes included; `None`
    /// when it is gone.
    pub fn lock_record(&mut self, c: &CollectionGuard, id: &RecordId) -> Result<Option<Bytes>, StorageError> {
        self.begin_change(c)?;
        self.lock_newest(c, id)
    }

    /// Ends the unit, which has changed nothing: the locks that it took are free again, those of a transaction too.
    pub fn release(mut self) {
        if let Some(home) = &self.home {
            let before = home.locks_before();
            self.evaluator.fall_back(before);
        }
    }

    /// Changes fields of a document. The record has been locked by this unit, and `old` is what
    /// [`WriteUnit::lock_record`] answered. Errors as for [`WriteUnit::insert`]; the unit is then as before the call.
    pub fn update(
        &mut self,
        c: &CollectionGuard,
        id: &RecordId,
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<(), StorageError> {
        self.update_as(c, id, old, new, UpdateForm::Pipeline)
    }

    /// As [`WriteUnit::update`]; keeps the new version's memory.
    ///
    /// Errors: it is no document ([`StorageError::InvalidDocument`]), and as above.
    pub fn update_to(
        &mut self,
        c: &CollectionGuard,
        id: &RecordId,
        old: &RawDocument,
        new: &Bytes,
    ) -> Result<(), StorageError> {
        let document = RawDocument::from_bytes(new.as_ref());
        let document = document.map_err(|error| StorageError::InvalidDocument(error.to_string()))?;
        self.update_stored(c, id, old, document, Some(new), UpdateForm::Pipeline)
    }

    /// As [`WriteUnit::update`], asked for in one of several forms.
    pub fn update_as(
        &mut self,
        c: &CollectionGuard,
        id: &RecordId,
        old: &RawDocument,
        new: &RawDocument,
        form: UpdateForm<'_>,
    ) -> Result<(), StorageError> {
        self.update_stored(c, id, old, new, None, form)
    }

    fn update_stored(
        &mut self,
        c: &CollectionGuard,
        id: &RecordId,
        old: &RawDocument,
        new: &RawDocument,
        memory: Option<&Bytes>,
        form: UpdateForm<'_>,
    ) -> Result<(), StorageError> {
        debug_assert!(self.has_locked(c, id), "the record is locked");
        self.check_document(new)?;
        if let Some(index) = c.clustered_index() {
            keeps_id(index, id, old, new)?;
        }
        self.check_room(new.as_bytes().len() + pre_image_bytes(c, old))?;
        self.begin_change(c)?;
        let before = self.evaluator.holding.extent();
        let mut writes = IndexWrites::take();
        let mut difference = std::mem::take(&mut writes.difference);
        let is_told = self.evaluator.storage.keeps_history();
        let detail = match form {
            _ if !is_told => Detail::Compact,
            UpdateForm::Operators(targets) => Detail::ToldAs(targets),
            UpdateForm::Pipeline | UpdateForm::Replacement => Detail::Told,
        };
        let differs = diff::between(old.as_bytes(), new.as_bytes(), detail, &mut difference)
            && (!is_told || told_change_bytes(new.as_bytes(), &difference) <= STORED_DOCUMENT_BYTES_MAX);
        let versions = Versions {
            old: Some(old),
            new: Some(new),
            difference: differs.then_some(&*difference),
        };
        let result = self
            .changes
            .effect
            .evaluate(&mut self.evaluator, c, id, versions, &mut writes);
        match result {
            Ok(()) => {
                let stored = memory.map_or_else(|| Bytes::copy_from_slice(new.as_bytes()), Bytes::clone);
                let old_bytes = old.as_bytes().len();
                let logged = versions
                    .difference
                    .filter(|_| !is_told || !matches!(form, UpdateForm::Replacement));
                self.changes
                    .entry()
                    .update(c.table(), id, old_bytes, &stored, logged, pre_image(c, old));
                self.change(c, id, Some(old), Some(stored), &mut writes);
            }
            Err(_) => self.evaluator.fall_back(before),
        }
        writes.difference = difference;
        writes.give_back();
        result
    }

    /// Deletes a document. The record has been locked by this unit, and `old` is what [`WriteUnit::lock_record`]
    /// answered.
    pub fn delete(&mut self, c: &CollectionGuard, id: &RecordId, old: &RawDocument) -> Result<(), StorageError> {
        debug_assert!(self.has_locked(c, id), "the record is locked");
        self.check_room(pre_image_bytes(c, old))?;
        self.begin_change(c)?;
        let before = self.evaluator.holding.extent();
        let mut writes = IndexWrites::take();
        let result = self
            .changes
            .effect
            .evaluate(&mut self.evaluator, c, id, Versions::deleted(old), &mut writes);
        match result {
            Ok(()) => self.log_delete(c, id, old, Deletion::Asked, &mut writes),
            Err(_) => self.evaluator.fall_back(before),
        }
        writes.give_back();
        result
    }

    /// Takes an evaluated deletion in.
    pub(crate) fn log_delete(
        &mut self,
        c: &CollectionGuard,
        id: &RecordId,
        old: &RawDocument,
        reason: Deletion,
        writes: &mut IndexWrites,
    ) {
        let pre_image = pre_image(c, old).filter(|_| reason == Deletion::Asked);
        self.changes.entry().delete(c.table(), id, old, reason, pre_image);
        self.change(c, id, Some(old), None, writes);
    }

    /// True without changes.
    pub fn is_empty(&self) -> bool {
        self.changes.entry.count() == 0
    }

    /// Changes gathered.
    pub fn operations(&self) -> usize {
        self.changes.entry.count()
    }

    /// Bytes gathered: about what the log entry will have.
    pub fn bytes(&self) -> usize {
        self.changes.entry.byte_len()
    }

    /// Of a statement of a transaction: its changes are the transaction's from now on. Dropping the unit forgets them.
    ///
    /// Else takes the changes into the log and the engine, as one entry and one batch, visible as a whole on return;
    /// for an operation without the patience to wait for that, it is ahead then ([`Operation::is_ahead`]). Gives the
    /// locks back, once the entry has its place in the log. Without changes it answers the newest published `Seq`.
    ///
    /// Errors: the log has no room ([`StorageError::OutOfSpace`]), no descriptor for its next file
    /// ([`StorageError::OutOfDescriptors`]), or has stopped; nothing has happened then. An engine that fails after the
    /// log took the entry stops the storage: whether the entry survives is only known after a restart.
    pub fn commit(mut self) -> Result<Seq, StorageError> {
        let (storage, op) = (self.evaluator.storage, self.evaluator.op);
        let (seq, epoch) = self.hand_in()?;
        if let Some(epoch) = epoch {
            storage.wait_committed(op, seq, epoch)?;
        }
        Ok(seq)
    }

    /// All of a commit but the last wait: with an epoch the entry has its place, and its effect is still to come.
    fn hand_in(&mut self) -> Result<(Seq, Option<u64>), StorageError> {
        let storage = self.evaluator.storage;
        if self.home.is_some() {
            self.end_statement(true);
            return Ok((storage.last_seq(), None));
        }
        if self.changes.entry.count() == 0 {
            return Ok((storage.last_seq(), None));
        }
        let op = self.evaluator.op;
        let changed = self.changes.touched.iter().map(|touched| touched.guard.namespace());
        let defined = self
            .changes
            .definitions
            .iter()
            .map(|(definition, _)| definition.namespace());
        self.changes.entry.is_users = changed.chain(defined).any(|namespace| is_bound(op, namespace));
        self.finish();
        // What it pins could not be pruned by the engine while applying.
        self.evaluator.holding.snapshot = None;
        let effect = std::mem::take(&mut self.changes.effect);
        if !self.changes.definitions.is_empty() {
            return Ok((self.commit_definitions(effect)?, None));
        }
        let evicted = effect.evicted();
        let seq = storage.propose(&mut self.changes.entry, |_| effect)?;
        storage.figures.commits.fetch_add(1, Ordering::Relaxed);
        let epoch = self.changes.entry.epoch;
        for (shared, from) in evicted {
            *shared.capped_ahead.lock() = (epoch.unwrap_or_default(), from);
        }
        // Whoever changes the same rows next finds them pending, and so does who makes room in a capped collection.
        self.evaluator.release_changed(seq);
        Ok((seq, epoch))
    }

    /// Definitions come before what fills them. They are everybody's on return, unless the operation gives up waiting.
    fn commit_definitions(&mut self, effect: Effect) -> Result<Seq, StorageError> {
        let storage = self.evaluator.storage;
        let turn = storage.next_turn(self.evaluator.op)?;
        // Others have defined something since a statement of the transaction did this.
        storage.prepare_definitions(self.changes.definitions.iter().map(|(definition, _)| definition))?;
        let definitions = std::mem::take(&mut self.changes.definitions);
        let changes = storage.changes_by(definitions.iter().map(|(definition, _)| definition));
        let definitions = definitions.into_iter().map(|(definition, _)| definition);
        let next_table = *turn;
        let entry = &mut self.changes.entry;
        let seq = storage.propose(entry, |seq| effect.behind(storage, definitions, seq, next_table))?;
        storage.figures.commits.fetch_add(1, Ordering::Relaxed);
        // They only add. Whoever gives up waiting leaves the rest on its way, as of a transaction without them.
        let waited = storage.wait_defined(self.evaluator.op, seq, entry, true);
        drop(turn);
        self.evaluator.release_changed(seq);
        waited?;
        self.evaluator.op.note_catalog_changes(changes);
        storage.tell_definitions_changed();
        Ok(seq)
    }

    /// Gives what a statement of a transaction holds back to the transaction, what it has changed only to be kept.
    pub(crate) fn end_statement(&mut self, is_kept: bool) {
        let Some(home) = self.home.take() else { return };
        let op = self.evaluator.op;
        let (holding, changes) = (&mut self.evaluator.holding, &mut self.changes);
        let parts = Parts {
            holding: std::mem::take(holding),
            changes: std::mem::take(changes),
        };
        home.take_back(op, parts, is_kept);
    }

    /// Adds what belongs to the unit as a whole: array places met.
    fn finish(&mut self) {
        for (index, places) in &self.changes.multikey {
            for (field, part) in places.iter() {
                let (field, part) = (field as u8, part as u8);
                self.changes.entry.set_multikey(index.table(), field, part);
                self.changes.effect.set_multikey(index, field, part);
            }
        }
    }

    /// Checks that the unit may go on, makes room in the log, and notes the collection. Answers its place in `touched`.
    fn begin_change(&mut self, c: &CollectionGuard) -> Result<usize, StorageError> {
        debug_assert!(c.is_for_writers(), "locked for writing");
        let Evaluator { storage, op, .. } = self.evaluator;
        op.check()?;
        let is_it = |touched: &Touched| Arc::ptr_eq(&touched.guard.shared, &c.shared);
        if let Some(place) = self.changes.touched.iter().position(is_it) {
            return Ok(place);
        }
        if self.changes.touched.is_empty() {
            storage.check_running()?;
            storage.wait_for_barrier(op)?;
            storage.wait_for_room()?;
            // Before the first document is locked: whoever waits here keeps no other writer waiting.
            while !storage.engine.throttle() {
                op.check_now()?;
            }
            storage.flow_control.wait(op)?;
        }
        if self.home.is_some() && c.is_capped().is_some() {
            return Err(StorageError::NotInTransaction(format!(
                "Collection '{}' is a capped collection. Writes in transactions are not allowed on capped collections.",
                c.namespace()
            )));
        }
        storage.know_next_record(c)?;
        self.changes.touched.push(Touched {
            guard: c.clone(),
            inserted: VecDeque::new(),
            others: None,
        });
        Ok(self.changes.touched.len() - 1)
    }

    fn check_document(&self, document: &RawDocument) -> Result<(), StorageError> {
        let bytes = document.as_bytes().len();
        // Whoever reads history gets it in one document, with its `_id` besides.
        let told = match self.evaluator.storage.keeps_history() {
            true => told_bytes(document.as_bytes()),
            false => bytes,
        };
        if told > STORED_DOCUMENT_BYTES_MAX {
            return Err(StorageError::DocumentTooLarge {
                bytes: told,
                bytes_max: STORED_DOCUMENT_BYTES_MAX,
            });
        }
        self.check_room(bytes)
    }

    /// A unit's first change always has room.
    fn check_room(&self, bytes: usize) -> Result<(), StorageError> {
        let bytes_max = match self.home {
            Some(_) => TRANSACTION_BYTES_MAX,
            None => UNIT_BYTES_MAX,
        };
        match !self.is_empty() && self.changes.entry.byte_len() + bytes > bytes_max {
            true => Err(StorageError::UnitTooLarge { bytes_max }),
            false => Ok(()),
        }
    }

    fn has_locked(&self, c: &CollectionGuard, id: &RecordId) -> bool {
        self.evaluator.holding.locks.contains(&LockKey {
            table: c.table(),
            key: id.lock_key(),
        })
    }

    /// Locks a record and reads its newest version, own changes included.
    pub(crate) fn lock_newest(&mut self, c: &CollectionGuard, id: &RecordId) -> Result<Option<Bytes>, StorageError> {
        self.evaluator.take_locks(&[LockKey {
            table: c.table(),
            key: id.lock_key(),
        }])?;
        self.evaluator.refresh_snapshot()?;
        self.evaluator
            .row(&mut self.changes.effect.overlay, c.table(), &id.to_key())
    }

    /// What the unit does to a collection so far.
    pub(crate) fn effect_on(&mut self, c: &CollectionGuard) -> &mut CollectionEffect {
        self.changes.effect.of(c.definition())
    }

    /// Takes an evaluated change of a record in. The entry has it already.
    fn change(
        &mut self,
        c: &CollectionGuard,
        id: &RecordId,
        old: Option<&RawDocument>,
        new: Option<Bytes>,
        writes: &mut IndexWrites,
    ) {
        let old_bytes = old.map(|old| old.as_bytes().len());
        if let Some(session) = &mut self.changes.effect.session {
            session.note(old, new.as_deref());
        }
        let (put, deleted) = self.changes.effect.change(c.definition(), id, old_bytes, new, writes);
        self.note_index_rows(c, (put, deleted), writes);
    }

    /// Counts index rows that were written, and keeps the array places that they met for the entry's end.
    pub(crate) fn note_index_rows(
        &mut self,
        c: &CollectionGuard,
        (put, deleted): (u64, u64),
        writes: &mut IndexWrites,
    ) {
        let counters = self.evaluator.op.counters();
        counters.keys_inserted.add(put);
        counters.keys_deleted.add(deleted);
        for (position, places) in writes.multikey.drain(..) {
            let index = c
                .maintained()
                .nth(position)
                .expect("positions come from the same collection");
            if !index.announce_multikey(&places) {
                continue;
            }
            match self
                .changes
                .multikey
                .iter_mut()
                .find(|(noted, _)| Arc::ptr_eq(noted, index))
            {
                Some((_, noted)) => {
                    noted.merge(&places);
                }
                None => self.changes.multikey.push((index.clone(), places)),
            }
        }
    }
}

impl Evaluator<'_> {
    /// Takes all of the locks or none: waiting only while the unit holds none at all.
    pub(crate) fn take_locks(&mut self, keys: &[LockKey]) -> Result<(), StorageError> {
        let before = self.holding.locks.len();
        if before == 0 && self.op.has_awaited.load(Ordering::Relaxed) {
            self.op.has_awaited.store(false, Ordering::Relaxed);
            let awaited = self.op.awaited.lock().take().filter(|_| !self.op.passes_over());
            if let Some(key) = awaited {
                self.wait_until_free(key)?;
            }
        }
        'again: loop {
            for &key in keys {
                match self.storage.locks.try_take(key, self.holding.owner) {
                    Taken::New => self.holding.locks.push(key),
                    Taken::Already => {}
                    Taken::Busy => {
                        self.release_from(before);
                        self.storage.figures.conflicts.fetch_add(1, Ordering::Relaxed);
                        self.op.counters().write_conflicts.add(1);
                        if self.isolated_at.is_some() {
                            return Err(StorageError::WriteConflict);
                        }
                        if before == 0 {
                            self.wait_until_free(key)?;
                            self.op.check_now()?;
                            continue 'again;
                        }
                        *self.op.awaited.lock() = Some(key);
                        self.op.has_awaited.store(true, Ordering::Relaxed);
                        return Err(StorageError::WouldWait);
                    }
                }
            }
            return self.check_unchanged(keys, before);
        }
    }

    fn wait_until_free(&self, key: LockKey) -> Result<(), StorageError> {
        let locks = &self.storage.locks;
        match self.op.document_patience() {
            None => locks.wait_until_free(key, self.op)?,
            Some(_) if self.op.passes_over() => return Err(Interrupted::LockTimeout(0).into()),
            Some(patience) => locks.wait_until_free(key, &BriefWaiter::new(self.op, patience))?,
        }
        Ok(())
    }

    /// In a transaction: nobody may have changed what is locked since its snapshot.
    fn check_unchanged(&mut self, keys: &[LockKey], locks_before: usize) -> Result<(), StorageError> {
        let Some(at) = self.isolated_at else { return Ok(()) };
        if mutated!(MissesConflicts) {
            return Ok(());
        }
        if keys.iter().any(|key| self.storage.locks.has_changed_since(*key, at)) {
            self.release_from(locks_before);
            self.op.counters().write_conflicts.add(1);
            return Err(StorageError::WriteConflict);
        }
        Ok(())
    }

    /// Notes that the unit gathers so many bytes of index rows more.
    fn charge(&mut self, bytes: u64) -> Result<(), StorageError> {
        self.holding.row_bytes += bytes;
        if self.holding.row_bytes > UNCHARGED_ROW_BYTES {
            let op = self.op;
            let memory = self.holding.memory.get_or_insert_with(|| Charge::new(op.memory()));
            memory.grow(self.holding.row_bytes.saturating_sub(memory.bytes()))?;
        }
        Ok(())
    }

    /// Gives back what a change that failed has taken.
    pub(crate) fn fall_back(&mut self, to: Extent) {
        self.release_from(to.locks);
        self.holding.forget_rows(to);
    }

    /// Gives back the locks taken since the unit held `kept`.
    fn release_from(&mut self, kept: usize) {
        let (locks, owner) = (&self.holding.locks[kept..], self.holding.owner);
        self.storage.locks.release(locks, owner, None);
        self.holding.locks.truncate(kept);
    }

    /// Gives all locks back: what they stand for was changed by the entry at `seq`.
    fn release_changed(&mut self, seq: Seq) {
        let published = self.storage.last_seq();
        let changed = Some(Changed { seq, published });
        self.storage
            .locks
            .release(&self.holding.locks, self.holding.owner, changed);
        self.holding.locks.clear();
    }

    /// Makes the snapshot show everything that was published before now: call it after taking locks.
    pub(crate) fn refresh_snapshot(&mut self) -> Result<(), StorageError> {
        if self.isolated_at.is_some() {
            return Ok(());
        }
        let newest = self.storage.last_seq();
        if self
            .holding
            .snapshot
            .as_ref()
            .is_none_or(|snapshot| snapshot.seq() < newest)
        {
            self.holding.snapshot = Some(self.storage.engine.snapshot()?);
        }
        Ok(())
    }

    pub(crate) fn storage(&self) -> &Storage {
        self.storage
    }

    pub(crate) fn snapshot(&self) -> &Arc<dyn Snapshot> {
        self.holding.snapshot.as_ref().expect("refreshed after the first lock")
    }
}

/// The document before a change, where the collection keeps it.
fn pre_image(c: &CollectionGuard, old: &RawDocument) -> Option<Bytes> {
    if mutated!(LosesPreImages) {
        return None;
    }
    c.keeps_pre_images().then(|| Bytes::copy_from_slice(old.as_bytes()))
}

fn pre_image_bytes(c: &CollectionGuard, old: &RawDocument) -> usize {
    if c.keeps_pre_images() { old.as_bytes().len() } else { 0 }
}

impl Storage {
    /// A unit of changes.
    pub fn begin_write<'a>(&'a self, op: &'a Operation) -> WriteUnit<'a> {
        WriteUnit::new(self, op)
    }
}

impl Drop for WriteUnit<'_> {
    fn drop(&mut self) {
        self.end_statement(false);
    }
}

impl Drop for Evaluator<'_> {
    fn drop(&mut self) {
        self.release_from(0);
    }
}

mod ahead;
mod unique;

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
