//! Applying from the log what other servers have appended.
//!
//! Entries before `queue_from` have no effects in the queue: they came from another leader, or were found in the log at
//! the start. Once they stay, one thread reads them in order, derives from each unit what it does as recovery does, and
//! takes it into the engine. A server that was elected goes on so until it has reached its own first entry.

use crate::catalog::rows::{FORMAT_VERSION, Meta};
use crate::definition::Definition;
use crate::effect::Effect;
use crate::entry::EntryReader;
use crate::limits::FULL_DISK_PAUSE;
use crate::operation::Operation;
use crate::pipeline::Leads;
use crate::recovery::Chain;
use crate::storage::Storage;
use crate::{Collection, KillFlag, StorageError};
use bytes::Bytes;
use engine::Seq;
use oplog::LogError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Entries are read from the log at most so many at a time: the thread then looks whether it still follows.
const ENTRIES_AT_ONCE: usize = 1024;

/// Where it is in the log.
pub(crate) struct Follower {
    next: Seq,
    chain: Chain,
    op: Operation,
    /// It has applied all that may be applied now: the next entry waits for the delay.
    waits_for_time: bool,
    /// The log could not open the file that has the next entry.
    waits_for_descriptors: bool,
}

impl Follower {
    pub(crate) fn new(storage: &Storage, kill: Arc<KillFlag>) -> Self {
        Self {
            next: Seq(storage.pipeline.followed.load(Ordering::Acquire)).next(),
            chain: Chain::default(),
            op: Operation::with_kill_flag(storage.env.clock.clone(), 0, kill),
            waits_for_time: false,
            waits_for_descriptors: false,
        }
    }

    /// Whether the next entry can be read only when there are file descriptors again.
    pub(crate) fn waits_for_descriptors(&self) -> bool {
        self.waits_for_descriptors
    }

    /// Whether the next entry waits for the delay with which this member applies.
    pub(crate) fn waits_for_time(&self) -> bool {
        self.waits_for_time
    }

    /// Applies what stays and is not in the queue. Answers whether there was something.
    ///
    /// # Errors
    /// Those of a storage that has stopped, which damage makes it do; the thread is to end.
    pub(crate) fn follow(&mut self, storage: &Storage) -> Result<bool, StorageError> {
        let pipeline = &storage.pipeline;
        // In this order: whoever ceases to lead says where to begin before he empties the queue.
        let queue_from = pipeline.queue_from.load(Ordering::Acquire);
        let anew = pipeline.follow_from.swap(0, Ordering::AcqRel);
        if anew > 0 {
            self.next = Seq(anew);
            self.chain = Chain::default();
        }
        let committed = pipeline.committed.load(Ordering::Acquire);
        let last = Seq(committed
            .min(queue_from.saturating_sub(1))
            .min(storage.log.last_seq().0));
        if self.next > last {
            return Ok(false);
        }
        let entries = match storage.log.read_appended(self.next) {
            Ok(entries) => entries,
            Err(error) => return Err(storage.stop(&format!("what other members wrote cannot be read: {error}"))),
        };
        let mut bytes_applied = 0;
        let applied = self.apply(storage, entries.take(ENTRIES_AT_ONCE), last, &mut bytes_applied);
        storage.has_followed(bytes_applied);
        applied
    }

    /// Applies entries up to `last`, as far as they may be applied now, and says how long they are. Answers whether
    /// there may be more.
    fn apply(
        &mut self,
        storage: &Storage,
        entries: impl Iterator<Item = Result<(Seq, Bytes), LogError>>,
        last: Seq,
        bytes_applied: &mut u64,
    ) -> Result<bool, StorageError> {
        let pipeline = &storage.pipeline;
        let delay_ms = pipeline.apply_delay_ms.load(Ordering::Acquire) as i64;
        self.waits_for_descriptors = false;
        for entry in entries {
            let (seq, bytes) = match entry {
                Ok(entry) => entry,
                // It is asked again after a while: clients may have taken all there are.
                Err(LogError::NoDescriptors { .. }) => {
                    self.waits_for_descriptors = true;
                    return Ok(*bytes_applied > 0);
                }
                // The log's end was taken back while it was read. What stays is before that.
                Err(LogError::Truncated { .. }) => break,
                Err(error) => return Err(storage.log_error(error)),
            };
            if seq > last {
                break;
            }
            // It is asked again after a while: nobody rings when there is space.
            if storage.is_full() {
                return Ok(false);
            }
            // It is asked again when the time has come. The log has the entry, and so it counts for those who wait.
            if delay_ms > 0 {
                let written_ms = EntryReader::new(seq, &bytes)?.header().time.wall_ms;
                self.waits_for_time = written_ms + delay_ms > storage.env.clock.now_ms();
                if self.waits_for_time {
                    return Ok(false);
                }
            }
            *bytes_applied += bytes.len() as u64;
            let unit = self.chain.push(seq, bytes)?;
            if let Some(unit) = unit {
                let mut meta = Meta {
                    format: FORMAT_VERSION,
                    next_table: *storage.definitions.lock(),
                };
                while !storage.engine.throttle() {}
                let effect = storage
                    .read_unit(seq, &unit, &mut meta)
                    .map_err(|error| storage.stop(&format!("what another member wrote does not fit: {error}")))?;
                storage.enter_followed(&self.op, seq, effect, &meta)?;
            }
            self.next = seq.next();
            pipeline.followed.store(seq.0, Ordering::Release);
        }
        Ok(true)
    }
}

impl Storage {
    /// Applies what another server has written. Readers of a collection whose definition it changes are waited for.
    fn enter_followed(&self, op: &Operation, seq: Seq, effect: Effect, meta: &Meta) -> Result<(), StorageError> {
        if effect.definitions.is_empty() {
            return self.enter_unbarred(op, seq, effect);
        }
        let definitions = || effect.definitions.iter().map(|(definition, _)| definition);
        let concerned = concerned_by(definitions());
        let mut has_told = false;
        // No barrier rises in the turn.
        let (mut next_table, guards) = loop {
            let locked = self.lock_in_turn(op, || Ok(concerned.clone()))?;
            let error = match self.prepare_followed(definitions()) {
                Err(error) if error.passes() => error,
                prepared => {
                    prepared?;
                    break locked;
                }
            };
            // As where the engine is full: it is applied when there is space again.
            drop(locked);
            if let Some(handler) = &self.options.on_apply_wait
                && !std::mem::replace(&mut has_told, true)
            {
                handler(&error);
            }
            let mut changes = self.definition_changes.lock();
            self.definitions_changed.wait_for(&mut changes, FULL_DISK_PAUSE);
            drop(changes);
            op.check_now()?;
            self.check_not_stopped()?;
        };
        let changes = self.changes_by(definitions());
        let mut applied = self.pipeline.applying.lock();
        self.check_not_stopped()?;
        self.enter(&mut applied, seq, effect)?;
        drop(applied);
        *next_table = meta.next_table.max(*next_table);
        drop((next_table, guards));
        self.tell_definitions_changed();
        op.note_catalog_changes(changes);
        self.tell_unasked(op);
        Ok(())
    }

    /// Counts towards the next checkpoint what others wrote and is applied.
    fn has_followed(&self, bytes: u64) {
        let mut order = self.pipeline.order.lock();
        order.log_bytes += bytes;
        let due = self.log_has_grown(order.log_bytes);
        drop(order);
        if due {
            self.checkpointer.wake();
        }
    }

    /// Not while files are copied.
    fn enter_unbarred(&self, op: &Operation, seq: Seq, effect: Effect) -> Result<(), StorageError> {
        loop {
            self.wait_for_barrier(op)?;
            let mut applied = self.pipeline.applying.lock();
            if self.barriers.load(Ordering::Acquire) == 0 {
                self.check_not_stopped()?;
                return self.enter(&mut applied, seq, effect);
            }
        }
    }

    /// The last entry that has taken effect, or is part of a chain whose end has not.
    pub(crate) fn reached(&self) -> Seq {
        self.pipeline
            .installed()
            .max(Seq(self.pipeline.followed.load(Ordering::Acquire)))
    }

    /// Applies what others write so long after they wrote it (`secondaryDelaySecs`).
    pub fn set_apply_delay(&self, delay: Duration) {
        self.pipeline
            .apply_delay_ms
            .store(delay.as_millis() as u64, Ordering::Release);
    }

    /// Whether it applies what others write with a delay.
    pub(crate) fn is_delayed(&self) -> bool {
        self.pipeline.apply_delay_ms.load(Ordering::Acquire) > 0
    }

    /// Whether this server appends to the log, as far as is known without waiting.
    pub fn leads(&self) -> bool {
        self.pipeline.leads.load(Ordering::Acquire)
    }

    /// Appends nothing of its own before it is elected. Before anybody uses the storage.
    pub(crate) fn wait_for_leader(&self) {
        let mut order = self.pipeline.order.lock();
        let _applied = self.pipeline.applying.lock();
        self.set_leads(&mut order.leads, Leads::No);
        self.pending.begin_use();
        self.pipeline.await_commits();
        self.pipeline.followed.store(self.last_seq().0, Ordering::Release);
        self.pipeline.queue_from.store(u64::MAX, Ordering::Release);
    }

    pub(crate) fn set_leads(&self, leads: &mut Leads, now: Leads) {
        *leads = now;
        self.pipeline.leads.store(now == Leads::Yes, Ordering::Release);
    }
}

/// The collections as they were before an entry. An entry may define one several times, and its lock is to be taken
/// once.
fn concerned_by<'d>(definitions: impl Iterator<Item = &'d Definition>) -> Vec<Arc<Collection>> {
    let mut concerned: Vec<Arc<Collection>> = Vec::new();
    for collection in definitions.filter_map(former) {
        if !concerned
            .iter()
            .any(|known| Arc::ptr_eq(&known.shared, &collection.shared))
        {
            concerned.push(collection);
        }
    }
    concerned
}

/// The collection as it was before a definition.
fn former(definition: &Definition) -> Option<Arc<Collection>> {
    match definition {
        Definition::PutCollection { former, .. } => former.clone(),
        Definition::DropCollection(collection) => Some(collection.clone()),
        Definition::PutView(_) | Definition::DropView(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Machine;

    /// A member that had to read from a file what others had written, and found no descriptor, ended.
    #[test]
    fn entries_that_no_descriptor_is_left_for_are_asked_for_again() {
        let machine = Machine::new(1);
        let storage = machine.open().unwrap();
        let mut follower = Follower::new(&storage, Arc::default());
        let refused = LogError::NoDescriptors {
            operation: "open",
            path: "1.log".into(),
            source: std::io::ErrorKind::QuotaExceeded.into(),
        };
        let applied = follower.apply(&storage, [Err(refused)].into_iter(), Seq(9), &mut 0);
        assert!(matches!(applied, Ok(false)), "{applied:?}");
        assert!(follower.waits_for_descriptors());
        let applied = follower.apply(&storage, std::iter::empty(), Seq(9), &mut 0);
        assert!(matches!(applied, Ok(true)) && !follower.waits_for_descriptors());
        storage.check_running().unwrap();
    }
}
