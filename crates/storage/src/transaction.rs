//! Transactions of several statements: a unit's changes, locks and snapshot between two statements.
//!
//! A transaction sees the state of its beginning and its own changes ([`Transaction::view`]). Each statement works on
//! it as a [`WriteUnit`] ([`Transaction::resume`]), or as several of them in turn ([`Transaction::statement`]); one
//! that fails takes all of its changes back. Whoever changes first wins: what somebody else has changed since the
//! beginning, or is changing, is [`StorageError::WriteConflict`].
//!
//! It owns what it holds: it may wait for its next statement for as long as its owner lets it, and keeps its locks,
//! those of its collections included, meanwhile. Dropping it takes everything back.

use crate::effect::EffectSavepoint;
use crate::entry::{EntrySavepoint, EntrySession};
use crate::operation::BriefWaiter;
use crate::overlay_view::{ChangedRows, OverlaySnapshot};
use crate::pinned::DatedSnapshot;
use crate::storage::Storage;
use crate::write::{Changes, Extent, Holding};
use crate::{CollectionGuard, LockMode, Namespace, Operation, ReadView, SessionKey, StorageError, WriteUnit};
use engine::Seq;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a transaction waits for a collection, unless told otherwise.
const LOCK_TIMEOUT_DEFAULT: Duration = Duration::from_millis(5);

/// See the module.
pub struct Transaction {
    pub(crate) storage: Arc<Storage>,
    /// What it is registered by with those who give locks back.
    opened: Seq,
    /// The state of its beginning.
    began: DatedSnapshot,
    pub(crate) parts: Parts,
    /// Its changes so far in the order of keys.
    rows: ChangedRows,
    lock_timeout: Duration,
    /// Collections that it has used: their definitions stay as they are until it ends.
    pub(crate) collections: Vec<CollectionGuard>,
    owner: u64,
    /// Names of collections are.
    pub(crate) has_reserved: bool,
}

/// A statement that works in several units, as one of many documents does. What its units commit is the transaction's
/// when [`Statement::keep`] ends it; dropping it takes the changes of all of them back.
pub struct Statement<'t> {
    transaction: &'t mut Transaction,
    before: Option<Savepoint>,
}

/// What a transaction's changes were at some point.
struct Savepoint {
    effect: EffectSavepoint,
    entry: EntrySavepoint,
    holding: Extent,
}

impl Savepoint {
    fn of(parts: &Parts) -> Self {
        Self {
            effect: parts.changes.effect.savepoint(),
            entry: parts.changes.entry.savepoint(),
            holding: parts.holding.extent(),
        }
    }

    /// Locks stay until the transaction ends.
    fn roll_back(self, parts: &mut Parts) {
        parts.changes.effect.roll_back(self.effect);
        parts.changes.entry.roll_back(&self.entry);
        parts.holding.forget_rows(self.holding);
    }
}

/// What a unit of a statement takes over, and gives back.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) holding: Holding,
    pub(crate) changes: Changes,
}

/// Where a statement's unit gives back what it took over.
pub(crate) struct Home<'a> {
    parts: &'a mut Parts,
    before: Savepoint,
    /// Collection locks that the transaction has lent to the operation.
    locks_held: u32,
}

impl Home<'_> {
    /// What the transaction held when the unit began.
    pub(crate) fn locks_before(&self) -> Extent {
        self.before.holding
    }

    pub(crate) fn take_back(self, op: &Operation, mut parts: Parts, is_kept: bool) {
        if !is_kept {
            self.before.roll_back(&mut parts);
        }
        op.locks_held.fetch_sub(self.locks_held, Ordering::Relaxed);
        *self.parts = parts;
    }
}

impl Storage {
    /// Begins a transaction on the newest published state.
    pub fn begin_transaction(self: &Arc<Self>) -> Result<Transaction, StorageError> {
        // Before the snapshot, too: what others write while this server follows no lock keeps away.
        let epoch = self.pipeline.epoch();
        let opened = self.last_seq();
        // Before the snapshot: from here on what is changed behind it is remembered.
        self.locks.open(opened);
        let began = match DatedSnapshot::newest(self) {
            Ok(began) => began,
            Err(error) => {
                self.locks.close(opened, self.last_seq());
                return Err(error);
            }
        };
        let mut transaction = Transaction {
            storage: self.clone(),
            opened,
            began,
            parts: Parts::default(),
            rows: ChangedRows::default(),
            lock_timeout: LOCK_TIMEOUT_DEFAULT,
            collections: Vec::new(),
            owner: self.owners.fetch_add(1, Ordering::Relaxed),
            has_reserved: false,
        };
        transaction.parts.holding.owner = transaction.owner;
        transaction.parts.changes.entry.epoch = Some(epoch);
        transaction.parts.holding.snapshot = Some(transaction.began.snapshot.clone());
        Ok(transaction)
    }
}

impl Transaction {
    /// Its changes belong to a session's transaction number: call it first.
    pub fn in_session(&mut self, key: SessionKey, txn_number: i64) {
        self.parts.changes.in_session(EntrySession { key, txn_number });
    }

    /// It becomes a chain of entries of about so many bytes: call it before anything else.
    #[cfg(test)]
    pub(crate) fn in_small_parts(&mut self, part_bytes: usize) {
        self.parts.changes.entry = crate::entry::EntryWriter::with_part_bytes(part_bytes);
    }

    /// How long it waits for a collection.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.lock_timeout = timeout;
    }

    /// Access to a collection, as [`Storage::collection`] gives it, until the transaction ends. Waits only briefly
    /// ([`crate::Interrupted::LockTimeout`]): whoever waits for an exclusive lock may wait for this transaction.
    /// [`StorageError::SnapshotUnavailable`] when its indexes are newer than the transaction's snapshot, or the name
    /// was another collection's in it; then, and when the collection is newer, [`StorageError::WriteConflict`] for
    /// writing.
    ///
    /// It locks rows on every engine. With whole collections a transaction that had read one could not write to it: its
    /// own S would keep its X out.
    pub fn collection(
        &mut self,
        op: &Operation,
        ns: &Namespace,
        mode: LockMode,
    ) -> Result<Option<CollectionGuard>, StorageError> {
        if mode != LockMode::IntentShared {
            self.storage.check_user_write(op, ns)?;
        }
        let suits = |guard: &&CollectionGuard| {
            guard.namespace() == ns && (guard.mode() == mode || guard.mode() != LockMode::IntentShared)
        };
        if let Some(guard) = self.collections.iter().find(suits) {
            return Ok(Some(guard.clone()));
        }
        let lent = self.collections.len() as u32;
        op.locks_held.fetch_add(lent, Ordering::Relaxed);
        let waiter = BriefWaiter::of_transaction(op, self.lock_timeout);
        let found = self.storage.collection_for(op, &waiter, ns, mode);
        op.locks_held.fetch_sub(lent, Ordering::Relaxed);
        let guard = found?;
        let writes = mode != LockMode::IntentShared;
        self.began.check(&self.storage.catalog, ns, guard.as_deref(), writes)?;
        let Some(guard) = guard else { return Ok(None) };
        self.collections.push(guard.clone());
        Ok(Some(guard))
    }

    /// A statement of several units.
    pub fn statement(&mut self) -> Statement<'_> {
        Statement {
            before: Some(Savepoint::of(&self.parts)),
            transaction: self,
        }
    }

    /// A statement of one unit, on behalf of an operation. [`WriteUnit::commit`] keeps its changes, dropping it takes
    /// them back.
    pub fn resume<'a>(&'a mut self, op: &'a Operation) -> WriteUnit<'a> {
        let parts = std::mem::take(&mut self.parts);
        // Whoever holds a collection lock never queues behind a waiting exclusive one: that one waits for him.
        let locks_held = parts.changes.touched.len() as u32;
        op.locks_held.fetch_add(locks_held, Ordering::Relaxed);
        let home = Home {
            parts: &mut self.parts,
            before: Savepoint::of(&parts),
            locks_held,
        };
        WriteUnit::of_transaction(&self.storage, op, home, parts)
    }

    /// The state of its beginning with its own changes. Later changes do not show in it.
    pub fn view(&mut self) -> ReadView {
        let snapshot = self.parts.holding.snapshot.clone();
        let snapshot = snapshot.expect("it has one until it ends");
        let rows = self.rows.of(&self.parts.changes.effect.overlay.batch);
        ReadView::new(Arc::new(OverlaySnapshot::new(snapshot, rows)))
    }

    /// Whether it has changed nothing.
    pub fn is_empty(&self) -> bool {
        self.parts.changes.entry.count() == 0
    }

    /// Bytes that its changes take.
    pub fn bytes(&self) -> u64 {
        self.parts.changes.entry.byte_len() as u64
    }

    /// Takes the changes into the log and the engine, as [`WriteUnit::commit`] does.
    pub fn commit(mut self, op: &Operation) -> Result<Seq, StorageError> {
        let storage = self.storage.clone();
        if self.is_empty() {
            return Ok(storage.last_seq());
        }
        storage.check_running()?;
        storage.wait_for_barrier(op)?;
        storage.wait_for_log_room()?;
        while !storage.engine.throttle() {
            op.check_now()?;
        }
        storage.flow_control.wait(op)?;
        WriteUnit::of_parts(&storage, op, std::mem::take(&mut self.parts)).commit()
    }
}

impl Statement<'_> {
    /// Its next unit. [`WriteUnit::commit`] hands the unit's changes to the statement, dropping it takes them back.
    pub fn unit<'a>(&'a mut self, op: &'a Operation) -> WriteUnit<'a> {
        self.transaction.resume(op)
    }

    /// As [`Transaction::view`], the statement's own changes so far included.
    pub fn view(&mut self) -> ReadView {
        self.transaction.view()
    }

    /// Leaves the changes to the transaction.
    pub fn keep(mut self) {
        self.before = None;
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let Transaction { parts, rows, .. } = &mut *self.transaction;
            before.roll_back(parts);
            rows.forget_behind(parts.changes.effect.batch().ops().len());
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let Holding { locks, owner, .. } = &self.parts.holding;
        self.storage.locks.release(locks, *owner, None);
        self.storage.locks.close(self.opened, self.storage.last_seq());
        if self.has_reserved {
            self.storage.reserved.give_back(self.owner);
        }
    }
}

#[cfg(test)]
#[path = "transaction_tests.rs"]
mod tests;
