//! Holding writes back while files are copied (`fsync` with `lock: true`).
//!
//! The count of barriers changes only under the mutex `order`, so that when [`Storage::block_writes`] returns no commit
//! is under way and none begins before the barrier is dropped. Units notice at their first change, where waiting heeds
//! the operation's deadline; what is past that point waits at its commit, as long as this server leads. What the server
//! writes now and then of itself is left out meanwhile: the threads that do it have other things to do.
//!
//! It rises only in the turn to change definitions. Those wait for a barrier before they have the turn, and without a
//! lock of a collection: one that waited at its commit would keep all readers of its collections waiting.
//!
//! The log of a member of a replica set stays as well: what others write is appended, and acknowledged, when the
//! barrier has fallen ([`Storage::keeps_log_still`]). Term and vote are written all the same: without this member's
//! vote nobody might be elected. The files are still when the thread that appends has taken note of the barrier.
//!
//! Compactions write to files for as long as they run, and cannot be held up on their way: who wants the files to stay
//! waits for them before the barrier rises. They are counted under `order`, too.

use crate::limits::ROOM_TRIES_MAX;
use crate::pipeline::{Leads, Order};
use crate::storage::Storage;
use crate::{Interrupted, LockMode, Operation, StorageError};
use locks::Waiter;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a waiter sleeps between two looks at its operation.
const WAIT_SLICE: Duration = Duration::from_millis(10);

/// While one of these exists, no write is committed.
pub struct WriteBarrier {
    storage: Arc<Storage>,
    keeps_log: bool,
    keeps_files: bool,
}

impl Storage {
    /// Holds all later writes back until the barrier is dropped, and waits for what is under way, compactions first, as
    /// long as the operation may. The engine's files stay as they are meanwhile, and so does the log when what was
    /// appended before is on disk.
    pub fn block_writes(self: &Arc<Self>, op: &Operation) -> Result<WriteBarrier, StorageError> {
        let is_compacting = || self.compactions.load(Ordering::Acquire) > 0;
        let led_in = self.led_epoch();
        let mut barrier = loop {
            self.wait_while(op, &is_compacting)?;
            // Another one may have begun: only under `order` is it known.
            if let Some(barrier) = self.raise_barrier(op, &|| !is_compacting())? {
                break barrier;
            }
        };
        self.settle(&|| Ok(op.check_now()?))?;
        self.file_barriers.fetch_add(1, Ordering::AcqRel);
        barrier.keeps_log = true;
        self.tell_of_barrier(op)?;
        // Elected while the barrier rose: the term's first entry may be written behind it, and nobody could write.
        if self.consensus.link().is_some() && self.begins_to_lead_since(led_in) {
            return Err(Interrupted::RoleChanged.into());
        }
        // Whoever looked before that is through.
        drop(self.noting_commit.lock());
        self.engine.keep_files(true)?;
        barrier.keeps_files = true;
        Ok(barrier)
    }

    /// The epoch in which this server leads, if it does.
    fn led_epoch(&self) -> Option<u64> {
        let order = self.pipeline.order.lock();
        (order.leads == Leads::Yes).then(|| self.pipeline.epoch())
    }

    /// Whether it leads, or is about to, and did not when [`Storage::led_epoch`] answered `before`.
    fn begins_to_lead_since(&self, before: Option<u64>) -> bool {
        let order = self.pipeline.order.lock();
        order.leads != Leads::No && before != Some(self.pipeline.epoch())
    }

    /// Holds back what others write until the barrier is dropped: it goes to the log, and is not applied.
    pub fn stop_applying(self: &Arc<Self>, op: &Operation) -> Result<Option<WriteBarrier>, StorageError> {
        self.raise_barrier(op, &|| true)
    }

    /// Waits for the writes that are under way, as long as the operation may; later ones are held back meanwhile.
    pub fn wait_for_writes(self: &Arc<Self>, op: &Operation) -> Result<(), StorageError> {
        let _barrier = self.raise_barrier(op, &|| true)?;
        self.settle(&|| Ok(op.check_now()?))
    }

    fn raise_barrier(
        self: &Arc<Self>,
        op: &Operation,
        may_rise: &dyn Fn() -> bool,
    ) -> Result<Option<WriteBarrier>, StorageError> {
        let _turn = self.next_turn_behind_barrier(op)?;
        let _order = self.pipeline.order.lock();
        if !may_rise() {
            return Ok(None);
        }
        self.barriers.fetch_add(1, Ordering::AcqRel);
        Ok(Some(WriteBarrier {
            storage: Arc::clone(self),
            keeps_log: false,
            keeps_files: false,
        }))
    }

    /// Waits while writes are held back, as long as the operation may; none are before the compaction has ended that
    /// begins now.
    pub(crate) fn begin_compaction(&self, op: &Operation) -> Result<Compaction<'_>, StorageError> {
        loop {
            self.wait_for_barrier(op)?;
            let _order = self.pipeline.order.lock();
            if !self.holds_writes_back() {
                self.compactions.fetch_add(1, Ordering::AcqRel);
                return Ok(Compaction(self));
            }
        }
    }

    /// Waits while writes are held back, as long as the operation may.
    pub(crate) fn wait_for_barrier(&self, op: &Operation) -> Result<(), StorageError> {
        self.wait_while(op, &|| self.holds_writes_back())
    }

    /// Waits for what ends under `order`, and rings `unblocked`.
    fn wait_while(&self, op: &Operation, lasts: &dyn Fn() -> bool) -> Result<(), StorageError> {
        if !lasts() {
            return Ok(());
        }
        let _wait = op.begins_to_wait(LockMode::IntentExclusive);
        let ended = self.wait_in_slices(op, lasts);
        op.ends_to_wait();
        ended
    }

    fn wait_in_slices(&self, op: &Operation, lasts: &dyn Fn() -> bool) -> Result<(), StorageError> {
        let mut order = self.pipeline.order.lock();
        while lasts() {
            op.check_now()?;
            self.check_running()?;
            self.unblocked.wait_for(&mut order, WAIT_SLICE);
        }
        Ok(())
    }

    /// As [`Storage::lock_order`], once the log takes so many bytes in so many entries, too: many may have found room
    /// at once, and have large ones.
    ///
    /// Errors: [`StorageError::OutOfSpace`], [`StorageError::OutOfDescriptors`]; the log has stopped.
    pub(crate) fn lock_order_with_room(
        &self,
        bytes: usize,
        entries: usize,
    ) -> Result<MutexGuard<'_, Order>, StorageError> {
        let mut order = self.lock_order();
        // Where others were faster each time the log itself says whether it takes them.
        for _ in 0..ROOM_TRIES_MAX {
            if !self.log.is_overfull() && !self.log.lacks_room_for(bytes, entries) {
                break;
            }
            drop(order);
            self.wait_for_log_room_for(bytes, entries)?;
            order = self.lock_order();
        }
        Ok(order)
    }

    /// Whether a barrier stands.
    pub fn holds_writes_back(&self) -> bool {
        self.barriers.load(Ordering::Acquire) > 0
    }

    /// Whether what others write is not to go to the log.
    pub(crate) fn keeps_log_still(&self) -> bool {
        self.file_barriers.load(Ordering::Acquire) > 0
    }

    /// The mutex `order`, where a proposal would wait neither for a barrier nor for room in the log.
    pub(crate) fn order_at_once(&self) -> Option<MutexGuard<'_, Order>> {
        let order = self.pipeline.order.lock();
        (!self.holds_writes_back() && !self.log.is_overfull()).then_some(order)
    }

    /// The mutex `order`, once no barrier stands, or nothing is to be proposed any more.
    pub(crate) fn lock_order(&self) -> MutexGuard<'_, Order> {
        let mut order = self.pipeline.order.lock();
        let is_held_back = || self.holds_writes_back() && !self.closed.load(Ordering::Acquire);
        while is_held_back() && order.leads == Leads::Yes {
            self.unblocked.wait(&mut order);
        }
        order
    }
}

impl Drop for WriteBarrier {
    fn drop(&mut self) {
        if self.keeps_files {
            // An engine that has stopped, or cannot, keeps them until it is opened again.
            let _ = self.storage.engine.keep_files(false);
        }
        if self.keeps_log {
            self.storage.file_barriers.fetch_sub(1, Ordering::AcqRel);
        }
        let order = self.storage.pipeline.order.lock();
        self.storage.barriers.fetch_sub(1, Ordering::AcqRel);
        self.storage.unblocked.notify_all();
        drop(order);
        // What was kept for later goes to the log.
        self.storage.consensus.wake();
    }
}

/// While one of these exists, no barrier rises that keeps files.
pub(crate) struct Compaction<'a>(&'a Storage);

impl Drop for Compaction<'_> {
    fn drop(&mut self) {
        let _order = self.0.pipeline.order.lock();
        self.0.compactions.fetch_sub(1, Ordering::AcqRel);
        self.0.unblocked.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use crate::{Interrupted, LockMode, StorageError};

    #[test]
    fn a_barrier_holds_writes_back_until_it_is_dropped() {
        let machine = Machine::new(1);
        let storage = machine.open().unwrap();
        storage
            .create_collection(&machine.operation(), &ns("db.c"), &bson::rawdoc! {})
            .unwrap();
        let barrier = storage.block_writes(&machine.operation()).unwrap();
        let before = storage.last_seq();
        let late = machine.operation();
        late.set_deadline_ms(1);
        machine.clock.advance(std::time::Duration::from_millis(5));
        let guard = storage
            .collection(&late, &ns("db.c"), crate::LockMode::IntentExclusive)
            .unwrap()
            .unwrap();
        let mut unit = storage.begin_write(&late);
        let error = unit.insert(&guard, &bson::rawdoc! { "_id": 1 }).unwrap_err();
        assert!(
            matches!(error, StorageError::Interrupted(Interrupted::TimeExpired)),
            "{error}"
        );
        drop((unit, guard));
        assert_eq!(storage.last_seq(), before);
        drop(barrier);
        let op = machine.operation();
        let guard = storage
            .collection(&op, &ns("db.c"), crate::LockMode::IntentExclusive)
            .unwrap()
            .unwrap();
        let mut unit = storage.begin_write(&op);
        unit.insert(&guard, &bson::rawdoc! { "_id": 1 }).unwrap();
        unit.commit().unwrap();
        assert_eq!(storage.last_seq().0, before.0 + 1);
    }

    /// A thread at its commit waited for the barrier, and closing for the thread: nobody dropped the barrier any more.
    #[test]
    fn closing_waits_for_no_barrier() {
        let machine = Machine::new(1);
        let storage = machine.open().unwrap();
        storage.make(&machine.operation(), "c", bson::rawdoc! {});
        let (at_commit, told) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        let op = machine.operation();
        storage.spawn("writer", op.kill_handle(), move |storage| {
            let guard = storage.locked(&op, "c");
            let mut unit = storage.begin_write(&op);
            unit.insert(&guard, &bson::rawdoc! { "_id": 1 }).unwrap();
            at_commit.send(()).unwrap();
            may_go_on.recv().unwrap();
            let refused = unit.commit();
            assert!(matches!(refused, Err(StorageError::Closed)), "{refused:?}");
        });
        told.recv().unwrap();
        let _barrier = storage.block_writes(&machine.operation()).unwrap();
        go_on.send(()).unwrap();
        storage.close(true).unwrap();
    }

    #[test]
    fn notes_wait_behind_a_barrier_as_long_as_they_may() {
        let machine = Machine::new(1);
        let storage = machine.open().unwrap();
        let note = bson::rawdoc! { "msg": "x" };
        let barrier = storage.block_writes(&machine.operation()).unwrap();
        let before = storage.last_seq();
        assert_eq!(storage.write_note_at_once(&note).unwrap(), None);
        let late = machine.operation();
        late.set_deadline_ms(1);
        machine.clock.advance(std::time::Duration::from_millis(5));
        let error = storage.write_note_in(&late, &note, None).unwrap_err();
        assert!(
            matches!(error, StorageError::Interrupted(Interrupted::TimeExpired)),
            "{error}"
        );
        assert_eq!(storage.last_seq(), before);
        drop(barrier);
        assert_eq!(storage.write_note_at_once(&note).unwrap(), Some(before.next()));
        let seq = storage.write_note_in(&machine.operation(), &note, None).unwrap();
        assert_eq!(storage.applied().seq, seq);
    }

    /// A definition waited at its commit, with its collection locked: neither its deadline nor being killed ended it,
    /// and nobody read the collection before the files were copied.
    #[test]
    fn definitions_wait_behind_a_barrier_with_no_collection_locked() {
        let machine = Machine::new(1);
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "c", bson::rawdoc! {});
        storage.put(&op, "c", bson::rawdoc! { "_id": 1 }).unwrap();
        let read = || {
            storage
                .collection(&op, &ns("c"), LockMode::IntentShared)
                .unwrap()
                .unwrap()
        };
        let reader = read();
        std::thread::scope(|scope| {
            // It waits for the reader when writes are held back, and has the lock afterwards.
            let drops = scope.spawn(|| storage.drop_index(&machine.operation(), &ns("c"), "a_1"));
            while !reader.shared.lock.is_waited_for() {
                std::thread::yield_now();
            }
            let barrier = storage.block_writes(&machine.operation()).unwrap();
            drop(reader);
            drop(read());
            let late = machine.operation();
            late.set_deadline_ms(1);
            machine.clock.advance(std::time::Duration::from_millis(5));
            let specs = [index("a_1", bson::rawdoc! { "a": 1 }, bson::rawdoc! {})];
            let ended = storage.create_indexes(&late, &ns("c"), &specs);
            assert!(
                matches!(ended, Err(StorageError::Interrupted(Interrupted::TimeExpired))),
                "{ended:?}"
            );
            assert!(!drops.is_finished());
            drop(read());
            drop(barrier);
            let dropped = drops.join().unwrap();
            assert!(matches!(dropped, Err(StorageError::IndexNotFound(_))), "{dropped:?}");
        });
        storage.checkpoint().unwrap();
    }
}
