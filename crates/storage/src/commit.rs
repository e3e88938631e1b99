//! The one way into log and engine: the log gives an entry its place, then its effect is applied, published and installed.

use crate::StorageError;
use crate::effect::Effect;
use crate::entry::{ClusterTime, EntryTime, EntryWriter};
use crate::limits::COUNTS_WRITTEN_MAX;
use crate::storage::{CommitState, Storage};
use crate::{Collection, catalog::collection::CollectionShared};
use engine::{Seq, TableId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl CommitState {
    /// The counts of a collection differ from those written down last. Free when that was known.
    pub(crate) fn counts_changed(&mut self, collection: &Collection) {
        let shared = &collection.shared;
        // Only the holder of the commit mutex looks at the flag.
        if !shared.counts_changed.load(Ordering::Relaxed) {
            shared.counts_changed.store(true, Ordering::Relaxed);
            self.changed_counts.push((collection.table(), shared.clone()));
        }
    }

    /// Cluster time that others have seen is not given again.
    pub(crate) fn saw_time(&mut self, time: ClusterTime) {
        self.cluster_time = self.cluster_time.max(time);
    }
}

impl Storage {
    /// Appends an entry, applies its effect, publishes it, and changes what is kept in memory beside the engine, before
    /// anybody else may commit.
    ///
    /// Errors: before the log has the entry, an error leaves everything as it was. After that, a failure stops the storage.
    pub(crate) fn commit_effect(&self, entry: &mut EntryWriter, effect: Effect) -> Result<Seq, StorageError> {
        self.commit_derived(entry, |_| effect)
    }

    /// As [`Storage::commit_effect`], for effects that depend on the entry's place in the log.
    pub(crate) fn commit_derived(
        &self,
        entry: &mut EntryWriter,
        derive: impl FnOnce(Seq) -> Effect,
    ) -> Result<Seq, StorageError> {
        let mut commit = self.lock_commit();
        self.check_running()?;
        let effect = derive(self.place_of(entry));
        let seq = self.commit_under(&mut commit, entry, effect)?;
        let due = self.checkpoint_due(commit.log_bytes);
        drop(commit);
        if due {
            self.checkpointer.wake();
        }
        Ok(seq)
    }

    /// The position that an entry's effect will have: that of the last entry of its chain. Under the commit mutex.
    pub(crate) fn place_of(&self, entry: &EntryWriter) -> Seq {
        Seq(self.log.last_seq().0 + entry.entries())
    }

    /// The time of the next entry. Under the commit mutex.
    pub(crate) fn next_time(&self, commit: &CommitState) -> EntryTime {
        let wall_ms = self.env.clock.now_ms();
        EntryTime {
            wall_ms,
            cluster: commit.cluster_time.next(wall_ms),
        }
    }

    /// The steps, by the holder of the commit mutex.
    pub(crate) fn commit_under(
        &self,
        commit: &mut CommitState,
        entry: &mut EntryWriter,
        effect: Effect,
    ) -> Result<Seq, StorageError> {
        let (bytes, place) = (entry.byte_len(), self.place_of(entry));
        let time = self.next_time(commit);
        let first = self.log.last_seq().next();
        let seq = entry
            .hand_over(first, time, |pieces| self.log.append(pieces))
            .map_err(|error| self.log_error(error))?;
        // Appends are made under the commit mutex only; effects of definitions name the place.
        assert_eq!(seq, place, "the entry's place in the log");
        commit.cluster_time = time.cluster;
        if let Err(error) = self.engine.apply(effect.batch(), seq) {
            return Err(self.stop(&format!("the storage engine failed to apply {seq:?}: {error}")));
        }
        self.engine.publish(seq);
        self.published.store(seq.0, Ordering::Release);
        effect.install(self, commit);
        commit.log_bytes += bytes as u64;
        Ok(seq)
    }

    /// Writes the counts down that have changed since they were written last, by entries of their own. The caller is about to
    /// take a checkpoint, whose position lies at these entries or behind them; what the engine then holds that was counted
    /// later is told by the entries from the first of these on, see [`Storage::recover`].
    ///
    /// Others commit between two entries, so that nobody waits for the counts of a hundred thousand collections.
    pub(crate) fn write_counts(&self) -> Result<(), StorageError> {
        let (mut left, mut first) = (None, None);
        loop {
            let mut commit = self.commit.lock();
            // While writes are held back nothing is written; the log then keeps what tells the counts.
            let is_barred = self.barriers.load(Ordering::Acquire) > 0 && !self.closed.load(Ordering::Acquire);
            if left.is_none() && (is_barred || self.last_seq() == commit.counts_written) {
                return Ok(());
            }
            let left = left.get_or_insert_with(|| std::mem::take(&mut commit.changed_counts));
            let some = left.split_off(left.len().saturating_sub(COUNTS_WRITTEN_MAX));
            let is_last = left.is_empty();
            let written = match is_barred {
                false => self.write_some_counts(&mut commit, &some, &mut first, is_last),
                true => Ok(()),
            };
            if is_barred || written.is_err() {
                // They still differ, as their flags say: nobody else has put them into the list.
                commit.changed_counts.extend(some);
                commit.changed_counts.append(left);
                return written;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn write_some_counts(
        &self,
        commit: &mut CommitState,
        some: &[(TableId, Arc<CollectionShared>)],
        first: &mut Option<Seq>,
        is_last: bool,
    ) -> Result<(), StorageError> {
        let names_from = match self.options.journal {
            true => self.log.first_seq(),
            false => self.last_seq().next(),
        };
        let live = some
            .iter()
            .filter(|(_, shared)| !shared.dropped.load(Ordering::Relaxed));
        let counts: Vec<_> = live
            .map(|(table, shared)| {
                let (count, bytes) = (&shared.count, &shared.data_bytes);
                (*table, count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
            })
            .collect();
        // One operation: the entry has the next place.
        let (seq, time) = (self.log.last_seq().next(), self.next_time(commit));
        let as_of = is_last.then(|| first.unwrap_or(seq));
        let (mut entry, mut effect) = (EntryWriter::default(), Effect::default());
        entry.statistics(as_of, names_from, &counts);
        let place = (seq, time.cluster);
        effect.statistics(self, place, (as_of, names_from), counts.iter().copied());
        self.commit_under(commit, &mut entry, effect)?;
        for (_, shared) in some {
            shared.counts_changed.store(false, Ordering::Relaxed);
        }
        first.get_or_insert(seq);
        commit.counts_written = seq;
        if let Some(as_of) = as_of {
            commit.counted_at = as_of;
        }
        Ok(())
    }
}
