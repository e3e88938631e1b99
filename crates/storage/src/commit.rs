//! Behind evaluation: propose, commit, apply. The one way into log and engine.
//!
//! - *Propose*: the log gives an entry its place, and its effect queues up in the same order ([`Order`]).
//! - *Commit*: the entry stays. A server that decides alone commits what it proposes; else [`Storage::commit_to`] says
//!   so.
//! - *Apply*: what is committed goes into the engine, is published, and changes what is kept in memory beside the
//!   engine ([`Applied`]), in the order of the log. Whoever applies works for those behind him in the queue, too.
//!
//! Two mutexes, so that one entry is appended while the one before it is applied. `order` is taken before `applying`,
//! the queue's own mutex last of all.
//!
//! Invariants: effects queue up in the order of the log; `published` is the last one applied, and every committed one
//! up to it has been. `installed` follows it when memory has the effect, too: whoever waits for an entry waits for
//! that, as what comes next is derived from the catalog and the sessions in memory. A failure of the engine stops the
//! storage: nothing is applied any more.

use crate::Collection;
use crate::Interrupted;
use crate::Operation;
use crate::StorageError;
use crate::cluster_time::EntryTime;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::limits::WAIT_SLICE;
use crate::mutations::mutated;
use crate::pipeline::{Applied, Leads, Order, Proposed};
use crate::storage::Storage;
use engine::{Seq, TableId};
use hashbrown::HashMap;
use oplog::AppendPurpose;
use parking_lot::MutexGuard;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Storage {
    /// Takes an entry through all three steps: its effect is visible on return.
    ///
    /// Errors: before the log has the entry, an error leaves everything as it was. After that, a failure stops the
    /// storage.
    pub(crate) fn commit_derived(
        &self,
        entry: &mut EntryWriter,
        derive: impl FnOnce(Seq) -> Effect,
    ) -> Result<Seq, StorageError> {
        let seq = self.propose(entry, derive)?;
        self.wait_stays(seq, entry.epoch)?;
        Ok(seq)
    }

    /// Gives an entry its place in the log; its effect may depend on that. Where this server decides alone, the effect
    /// is visible on return; else [`Storage::wait_applied`] waits for it.
    ///
    /// Errors as for [`Storage::commit_derived`].
    pub(crate) fn propose(
        &self,
        entry: &mut EntryWriter,
        derive: impl FnOnce(Seq) -> Effect,
    ) -> Result<Seq, StorageError> {
        let order = self.lock_order_with_room(entry.byte_len(), entry.entries() as usize)?;
        self.propose_in(order, entry, derive)
    }

    /// As [`Storage::propose`], by the holder of the mutex `order`.
    pub(crate) fn propose_in(
        &self,
        mut order: MutexGuard<'_, Order>,
        entry: &mut EntryWriter,
        derive: impl FnOnce(Seq) -> Effect,
    ) -> Result<Seq, StorageError> {
        self.check_running()?;
        self.check_leads(&order, entry)?;
        self.check_entry(entry)?;
        let (place, time) = (self.place_of(entry), self.next_time(&order, entry.ticks()));
        let mut effect = derive(place);
        if effect.changes_members() {
            self.check_no_members_change()?;
        }
        effect.finish(self, place, time)?;
        effect.check_lengths()?;
        let before = self.log.last_seq();
        let seq = self.append(&mut order, entry, time)?;
        let due = self.log_has_grown(order.log_bytes);
        let pipeline = &self.pipeline;
        if self.pending.is_used() {
            self.add_pending(seq, &effect);
            if mutated!(ForgetsPending) {
                self.pending.remove(seq, effect.batch());
            }
            pipeline.enqueue(seq, effect);
            entry.epoch = Some(pipeline.epoch());
            drop(order);
            self.consensus.wake();
            // Who said meanwhile that it stays did not find it in the queue.
            if pipeline.is_committed(seq) {
                self.apply_committed(&mut pipeline.applying.lock())?;
            }
            if due {
                self.checkpointer.wake();
            }
            return Ok(seq);
        }
        match pipeline.applying.try_lock() {
            // All before it has been applied: it need not queue up.
            Some(mut applied) if pipeline.published() == before => {
                drop(order);
                self.enter(&mut applied, seq, effect)?;
            }
            busy => {
                drop(busy);
                pipeline.enqueue(seq, effect);
                drop(order);
                let mut applied = pipeline.applying.lock();
                self.apply_committed(&mut applied)?;
            }
        }
        if due {
            self.checkpointer.wake();
        }
        Ok(seq)
    }

    /// Shows those who evaluate the next changes what is proposed. Under `order`.
    fn add_pending(&self, seq: Seq, effect: &Effect) {
        self.pending.add(seq, effect.batch());
        let session = effect.session.as_deref();
        self.sessions.propose(seq, session, &effect.forgotten_sessions);
    }

    /// The position that an entry's effect will have: that of the last entry of its chain. Under `order`.
    pub(crate) fn place_of(&self, entry: &EntryWriter) -> Seq {
        Seq(self.log.last_seq().0 + entry.entries())
    }

    /// The time of the next entry, the last of the points that it takes.
    pub(crate) fn next_time(&self, order: &Order, ticks: u64) -> EntryTime {
        let wall_ms = self.env.clock.now_ms();
        EntryTime {
            wall_ms,
            cluster: order.cluster_time.next(wall_ms).later_by(ticks - 1),
        }
    }

    fn append(&self, order: &mut Order, entry: &mut EntryWriter, time: EntryTime) -> Result<Seq, StorageError> {
        let place = self.place_of(entry);
        let first = self.log.last_seq().next();
        let purpose = match entry.for_checkpoint {
            true => AppendPurpose::Checkpoint,
            false => AppendPurpose::Write,
        };
        let new_term = order.new_term.take().map(|term| (first, term));
        let seq = entry
            .hand_over(first, time, |entries| self.log.append_all(new_term, entries, purpose))
            .map_err(|error| self.log_error(error))?;
        // Appends are made under `order` only; effects of definitions name the place.
        assert_eq!(seq, place, "the entry's place in the log");
        order.cluster_time = time.cluster;
        order.log_bytes += entry.byte_len() as u64;
        Ok(seq)
    }

    /// Proposes an entry, and applies its effect if it is committed, by the holder of both mutexes.
    pub(crate) fn propose_under(
        &self,
        order: &mut Order,
        applied: &mut Applied,
        entry: &mut EntryWriter,
        mut effect: Effect,
    ) -> Result<Seq, StorageError> {
        let (place, time) = (self.place_of(entry), self.next_time(order, entry.ticks()));
        effect.finish(self, place, time)?;
        effect.check_lengths()?;
        let seq = self.append(order, entry, time)?;
        if self.pending.is_used() {
            self.add_pending(seq, &effect);
        }
        self.pipeline.enqueue(seq, effect);
        self.consensus.wake();
        self.apply_committed(applied)?;
        Ok(seq)
    }

    /// Whether this server appends to the log, and has done so since the entry was evaluated.
    pub(crate) fn check_leads(&self, order: &Order, entry: &EntryWriter) -> Result<(), StorageError> {
        let is_outdated = entry.epoch.is_some_and(|epoch| epoch != self.pipeline.epoch());
        match order.leads == Leads::Yes && !is_outdated {
            true => Ok(()),
            false => Err(Interrupted::RoleChanged.into()),
        }
    }

    /// Applies what is committed, in the order of the queue.
    pub(crate) fn apply_committed(&self, applied: &mut Applied) -> Result<(), StorageError> {
        self.check_not_stopped()?;
        while let Some(Proposed { seq, effect, .. }) = self.take_committed() {
            self.enter(applied, seq, effect)?;
        }
        Ok(())
    }

    /// What is proposed and not applied yet changes in the counts: by table, documents and bytes. Under both mutexes.
    pub(crate) fn proposed_counts(&self) -> HashMap<TableId, (i64, i64)> {
        let mut counts = HashMap::new();
        for proposed in &*self.pipeline.queue.lock() {
            for (table, documents, bytes) in proposed.effect.counts() {
                let sum: &mut (i64, i64) = counts.entry(table).or_default();
                *sum = (sum.0 + documents, sum.1 + bytes);
            }
        }
        counts
    }

    /// Documents and bytes of a collection once all that is proposed has taken effect.
    pub(crate) fn counts_to_come(&self, collection: &Collection) -> (i64, i64) {
        // What leaves the queue is counted on its way. Who decides alone has done both when it gives its locks back.
        let _applied = self.pending.is_used().then(|| self.pipeline.applying.lock());
        let shared = &collection.shared;
        let mut counts = (
            shared.count.load(Ordering::Acquire),
            shared.data_bytes.load(Ordering::Acquire),
        );
        for proposed in &*self.pipeline.queue.lock() {
            for (table, documents, bytes) in proposed.effect.counts() {
                if table == collection.table() {
                    counts = (counts.0 + documents, counts.1 + bytes);
                }
            }
        }
        counts
    }

    fn take_committed(&self) -> Option<Proposed> {
        if !self.pipeline.is_drained() {
            return None;
        }
        self.pipeline.dequeue_committed()
    }

    /// Applies, publishes and installs an effect. By recovery, too.
    pub(crate) fn enter(&self, applied: &mut Applied, seq: Seq, effect: Effect) -> Result<(), StorageError> {
        debug_assert!(
            self.pipeline.published() < seq,
            "effects are applied in the order of the log"
        );
        if let Err(error) = self.engine.apply(effect.batch(), seq) {
            return Err(self.stop(&format!("the storage engine failed to apply {seq:?}: {error}")));
        }
        let awaited = self.pending.is_used();
        let changes_members = awaited && effect.changes_members();
        if changes_members {
            self.consensus.change_members(seq);
        }
        // No view shows an array that its index does not tell of. Whoever evaluated the effect has said so already.
        effect.announce_multikey();
        self.engine.publish(seq);
        let time = effect.time;
        self.pipeline.set_published(seq, time);
        if awaited {
            self.pending.remove(seq, effect.batch());
        }
        let changes_access = effect.changes_access();
        effect.install(self, seq, applied);
        self.awaited_times.come(time);
        // Not before readers see the change: whoever counts first and reads then would keep what was there before.
        if changes_access {
            self.access_changes.fetch_add(1, Ordering::SeqCst);
        }
        // Behind what it tells of, and before those are woken who wait for it.
        self.pipeline.set_installed(seq, time);
        // Where this server decides alone, those who follow history may wait for what is on disk already.
        self.pipeline.wake();
        if changes_members {
            self.consensus.wake();
        }
        Ok(())
    }

    /// Entries up to `seq` stay: applies them. Where this server decides alone there is nothing to do.
    ///
    /// Errors: those of a storage that has stopped.
    pub fn commit_to(&self, seq: Seq) -> Result<(), StorageError> {
        self.pipeline.committed.fetch_max(seq.0, Ordering::AcqRel);
        let mut applied = self.pipeline.applying.lock();
        self.apply_committed(&mut applied)
    }

    /// Waits until an entry has taken effect, as long as the operation may, and not beyond `until` (monotonic).
    /// Answers whether it has: a follower takes the log long before where it applies with a delay. With an epoch as
    /// [`Storage::wait_applied_in`].
    pub(crate) fn wait_applied(
        &self,
        op: &Operation,
        seq: Seq,
        epoch: Option<u64>,
        until: Duration,
    ) -> Result<bool, StorageError> {
        let is_late = Cell::new(false);
        let waited = self.wait_installed(seq, epoch, &|| {
            op.check_now()?;
            is_late.set(op.clock().monotonic() >= until);
            match is_late.get() {
                true => Err(StorageError::WouldWait),
                false => Ok(()),
            }
        });
        match waited {
            Err(_) if is_late.get() => Ok(false),
            waited => waited.map(|()| true),
        }
    }

    /// Waits until the entry has taken effect that was proposed in an epoch, as long as the operation may: its end is
    /// [`StorageError::Interrupted`], and says nothing of the entry, which goes its way; [`Interrupted::RoleChanged`]
    /// when it may have been lost with its epoch.
    pub(crate) fn wait_applied_in(&self, op: &Operation, seq: Seq, epoch: Option<u64>) -> Result<(), StorageError> {
        self.wait_installed(seq, epoch, &|| Ok(op.check_now()?))
    }

    /// As [`Storage::wait_applied_in`], and no longer than the operation has patience. Answers whether the entry has
    /// taken effect; else it goes its way, and may stay in memory for long: where much does, patience does not end.
    pub(crate) fn wait_applied_patiently(&self, op: &Operation, seq: Seq, epoch: u64) -> Result<bool, StorageError> {
        match op.patient_until() {
            Some(until) if !self.pipeline.is_full() => self.wait_applied(op, seq, Some(epoch), until),
            _ => self.wait_applied_in(op, seq, Some(epoch)).map(|()| true),
        }
    }

    /// Waits until the entry has taken effect that was proposed in an epoch, whatever becomes of the operation.
    pub(crate) fn wait_stays(&self, seq: Seq, epoch: Option<u64>) -> Result<(), StorageError> {
        self.wait_installed(seq, epoch, &|| Ok(()))
    }

    /// Waits until what the operation has seen before it took effect does.
    pub fn wait_observed(&self, op: &Operation) -> Result<(), StorageError> {
        match op.observed() {
            (Seq::ZERO, _) => Ok(()),
            (seq, epoch) => self.wait_applied_in(op, seq, Some(epoch)),
        }
    }

    /// As [`Storage::wait_observed`], and no longer than the operation has patience. Answers whether all of it has
    /// taken effect.
    pub fn wait_observed_patiently(&self, op: &Operation) -> Result<bool, StorageError> {
        match op.observed() {
            (Seq::ZERO, _) => Ok(true),
            (seq, epoch) => self.wait_applied_patiently(op, seq, epoch),
        }
    }

    /// Waits until what readers see of documents now is in the catalog as well, as long as the operation may.
    pub fn wait_shown(&self, op: &Operation) -> Result<(), StorageError> {
        // Of an entry the time is told first, the position a moment later: who goes by the time may be here between.
        let time = self.pipeline.published_time();
        loop {
            self.wait_installed(self.pipeline.published(), None, &|| Ok(op.check_now()?))?;
            if self.pipeline.applied_time() >= time {
                return Ok(());
            }
            op.check_now()?;
            self.check_running()?;
            std::thread::yield_now();
        }
    }

    /// Waits until all that has been proposed so far has taken effect, as long as the operation may.
    pub fn wait_settled(&self, op: &Operation) -> Result<(), StorageError> {
        self.settle(&|| Ok(op.check_now()?))
    }

    /// Waits until all that has been proposed so far has taken effect, as long as `go_on` answers no error.
    pub(crate) fn settle(&self, go_on: &dyn Fn() -> Result<(), StorageError>) -> Result<(), StorageError> {
        let (last, epoch) = {
            // Whoever ceases to lead empties the queue under this.
            let mut applied = self.pipeline.applying.lock();
            self.apply_committed(&mut applied)?;
            let last = self.pipeline.queue.lock().back().map(|proposed| proposed.seq);
            (last, Some(self.pipeline.epoch()))
        };
        // Of a server that was elected and has not applied yet what was before: that may wait for the caller.
        if last.is_some() && !self.pipeline.is_drained() {
            return Err(Interrupted::RoleChanged.into());
        }
        last.map_or(Ok(()), |last| self.wait_installed(last, epoch, go_on))
    }

    fn wait_installed(
        &self,
        seq: Seq,
        epoch: Option<u64>,
        go_on: &dyn Fn() -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let pipeline = &self.pipeline;
        // Asked after what is installed was looked at: it may be another's entry by then.
        let is_kept = || match epoch.is_none_or(|epoch| pipeline.is_kept(seq, epoch)) {
            true => Ok(()),
            false => Err(StorageError::from(Interrupted::RoleChanged)),
        };
        if pipeline.installed() >= seq {
            return is_kept();
        }
        let _asleep = vfs::asleep();
        let mut waiting = pipeline.waiting.lock();
        pipeline.waiters.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            if pipeline.installed() >= seq {
                break is_kept();
            }
            if let Err(error) = is_kept().and_then(|()| go_on()).and_then(|()| self.check_running()) {
                break Err(error);
            }
            pipeline.advanced.wait_for(&mut waiting, WAIT_SLICE);
        };
        pipeline.waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

#[cfg(test)]
#[path = "commit_tests.rs"]
mod tests;
