//! The one way into log and engine: the log gives an entry its place, then its effect is applied, published and installed.

use crate::StorageError;
use crate::effect::Effect;
use crate::entry::{ClusterTime, EntryTime, EntryWriter};
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

    /// The counts that differ from those written down last; collections that are gone have none.
    pub(crate) fn take_changed_counts(&mut self) -> Vec<(TableId, i64, i64)> {
        let changed = self.changed_counts.drain(..);
        let counts = |(table, shared): (TableId, Arc<CollectionShared>)| {
            shared.counts_changed.store(false, Ordering::Relaxed);
            let (count, bytes) = (&shared.count, &shared.data_bytes);
            let counts = (table, count.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
            (!shared.dropped.load(Ordering::Relaxed)).then_some(counts)
        };
        changed.filter_map(counts).collect()
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

    /// Writes the counts down, as an entry of their own, if any entry came since they were written down last. What the
    /// engine holds at a later position is then told by the entries between, see [`Storage::recover`]. The caller is
    /// about to take a checkpoint, whose position lies at this entry or behind it.
    pub(crate) fn write_counts(&self, commit: &mut CommitState) -> Result<(), StorageError> {
        if self.last_seq() == commit.counted_at {
            return Ok(());
        }
        let names_from = match self.options.journal {
            true => self.log.first_seq(),
            false => self.last_seq().next(),
        };
        let counts = commit.take_changed_counts();
        let mut entry = EntryWriter::default();
        entry.statistics(names_from, &counts);
        let (seq, time) = (self.place_of(&entry), self.next_time(commit));
        let mut effect = Effect::default();
        effect.statistics(self, (seq, time.cluster), names_from, counts.iter().copied());
        match self.commit_under(commit, &mut entry, effect) {
            Ok(seq) => {
                commit.counted_at = seq;
                Ok(())
            }
            Err(error) => {
                for (table, ..) in counts {
                    if let Some(collection) = self.catalog.collection_of(table) {
                        commit.counts_changed(&collection);
                    }
                }
                Err(error)
            }
        }
    }
}
