//! Counts written down, so that a checkpoint has them and the log need not be kept to tell them.

use crate::StorageError;
use crate::catalog::collection::CollectionShared;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::limits::COUNTS_WRITTEN_MAX;
use crate::pipeline::{Applied, Leads, Order};
use crate::storage::Storage;
use engine::{Seq, TableId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Storage {
    /// Writes the counts down that have changed since they were written last, by entries of their own. The caller is
    /// about to take a checkpoint, whose position lies at these entries or behind them; what the engine then holds that
    /// was counted later is told by the entries from the first of these on, see [`Storage::recover`].
    ///
    /// Others commit between two entries, so that nobody waits for the counts of a hundred thousand collections.
    pub(crate) fn write_counts(&self) -> Result<(), StorageError> {
        let (mut left, mut first) = (None, None);
        loop {
            let mut order = self.pipeline.order.lock();
            let mut applied = self.pipeline.applying.lock();
            self.apply_committed(&mut applied)?;
            // While writes are held back nothing is written; the log then keeps what tells the counts.
            let is_barred = self.barriers.load(Ordering::Acquire) > 0 && !self.closed.load(Ordering::Acquire);
            if left.is_none() && (is_barred || self.log.last_seq() == order.counts_proposed) {
                return Ok(());
            }
            // The leader writes them for all members.
            if order.leads != Leads::Yes {
                if let Some(left) = &mut left {
                    applied.changed_counts.append(left);
                }
                return Ok(());
            }
            let left = left.get_or_insert_with(|| {
                self.note_proposed_counts(&mut applied);
                std::mem::take(&mut applied.changed_counts)
            });
            let some = left.split_off(left.len().saturating_sub(COUNTS_WRITTEN_MAX));
            let is_last = left.is_empty();
            let written = match is_barred {
                false => self.write_some_counts(&mut order, &mut applied, &some, &mut first, is_last),
                true => Ok(()),
            };
            if is_barred || written.is_err() {
                // They still differ, as their flags say: nobody else has put them into the list.
                applied.changed_counts.extend(some);
                applied.changed_counts.append(left);
                return written;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// What is proposed changes counts, too: the entries to come say that all counts up to their place are written
    /// down.
    fn note_proposed_counts(&self, applied: &mut Applied) {
        for proposed in &*self.pipeline.queue.lock() {
            for effect in &proposed.effect.collections {
                applied.counts_changed(&effect.collection);
            }
        }
    }

    fn write_some_counts(
        &self,
        order: &mut Order,
        applied: &mut Applied,
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
        // As they will be at the entry's place: behind all that is proposed.
        let proposed = self.proposed_counts();
        let counts: Vec<_> = live
            .map(|(table, shared)| {
                let (count, bytes) = proposed.get(table).copied().unwrap_or_default();
                (
                    *table,
                    shared.count.load(Ordering::Relaxed) + count,
                    shared.data_bytes.load(Ordering::Relaxed) + bytes,
                )
            })
            .collect();
        // One operation: the entry has the next place.
        let (seq, time) = (self.log.last_seq().next(), self.next_time(order, 1));
        let as_of = is_last.then(|| first.unwrap_or(seq));
        let (mut entry, mut effect) = (EntryWriter::default(), Effect::default());
        entry.statistics(as_of, names_from, &counts);
        let place = (seq, time.cluster);
        effect.statistics(self, place, (as_of, names_from), counts.iter().copied());
        // What is counted from here on counts as a change again.
        for (_, shared) in some {
            shared.counts_changed.store(false, Ordering::Relaxed);
        }
        let written = self.propose_under(order, applied, &mut entry, effect);
        if written.is_err() {
            for (_, shared) in some {
                shared.counts_changed.store(true, Ordering::Relaxed);
            }
        }
        written?;
        first.get_or_insert(seq);
        order.counts_proposed = seq;
        Ok(())
    }
}
