//! The leaves that take memory, in the order in which the replacement policy looks at them.
//!
//! CLOCK (Corbató, 1968) with a small count instead of one bit: a leaf that was read since the hand came by goes round
//! again, colder by one; the first cold one is the victim. Scans leave leaves cold.

use crate::leaf::Leaf;
use crate::tree::Tree;
use rcu::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A leaf and its tree.
pub(crate) type ClockEntry = (Arc<Tree>, Arc<Leaf>);

/// See the module.
#[derive(Default)]
pub(crate) struct ClockList {
    entries: Mutex<VecDeque<ClockEntry>>,
    /// About so many of them have left their trees.
    gone: AtomicUsize,
}

/// One in so many entries may be of a leaf that left its tree, before they are looked for.
const GONE_PART: usize = 8;
/// Entries looked at under one hold of the lock.
const LOOKS: usize = 256;

impl ClockList {
    pub(crate) fn push(&self, tree: Arc<Tree>, leaf: Arc<Leaf>) {
        self.entries.lock().push_back((tree, leaf));
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Takes up to `count` cold leaves out; the caller clears `in_clock` or puts them back. Warm ones are passed over,
    /// each getting colder. Fewer come when `looks_max` leaves were looked at: whoever writes or reads may wait for
    /// this lock, and the next call goes on where this one ends.
    pub(crate) fn take_cold(&self, count: usize, looks_max: usize) -> Vec<ClockEntry> {
        let mut entries = self.entries.lock();
        let mut cold = Vec::with_capacity(count);
        for _ in 0..entries.len().min(looks_max) {
            if cold.len() == count {
                break;
            }
            let Some(entry) = entries.pop_front() else { break };
            let warmth = entry.1.warmth.load(Ordering::Relaxed);
            if warmth == 0 || entry.0.dead.load(Ordering::Relaxed) {
                cold.push(entry);
            } else {
                entry.1.warmth.store(warmth - 1, Ordering::Relaxed);
                entries.push_back(entry);
            }
        }
        cold
    }

    /// A leaf on the list has left its tree.
    pub(crate) fn note_gone(&self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes out the leaves that left their trees, when they are many. Eviction does where there is too little memory;
    /// where there is enough nobody else looks at the list.
    pub(crate) fn forget_gone(&self) {
        let mut left = self.len();
        if self.gone.load(Ordering::Relaxed) * GONE_PART <= left {
            return;
        }
        self.gone.store(0, Ordering::Relaxed);
        while left > 0 {
            let looks = LOOKS.min(left);
            left -= looks;
            // Freed when the lock is.
            let _gone = self.take_gone(looks);
        }
    }

    fn take_gone(&self, looks: usize) -> Vec<ClockEntry> {
        let guard = rcu::pin();
        let mut entries = self.entries.lock();
        let mut gone = Vec::new();
        for _ in 0..looks {
            let Some(entry) = entries.pop_front() else { break };
            match entry.0.is_dead() || entry.1.view.load(&guard).retired {
                true => gone.push(entry),
                false => entries.push_back(entry),
            }
        }
        gone
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store, lone_tree};
    use crate::options::BtreeOptions;
    use crate::tree::Child;
    use engine::TableId;

    #[test]
    fn a_step_looks_at_few_leaves_however_many_are_warm() {
        const COUNT: usize = 1000;
        let tree = Arc::new(lone_tree(Child::Nothing));
        let leaves: Vec<Arc<Leaf>> = (0..COUNT).map(|_| Arc::new(Leaf::empty(Box::default()))).collect();
        let clock_list = ClockList::default();
        leaves
            .iter()
            .for_each(|leaf| clock_list.push(tree.clone(), leaf.clone()));
        let cold = || {
            leaves
                .iter()
                .filter(|leaf| leaf.warmth.load(Ordering::Relaxed) == 0)
                .count()
        };
        // Leaves are warm when they come.
        assert_eq!((clock_list.take_cold(1, 100).len(), cold()), (0, 100));
        // The hand goes on, and comes round.
        assert_eq!((clock_list.take_cold(1, COUNT - 100).len(), cold()), (0, COUNT));
        assert_eq!(clock_list.take_cold(50, 100).len(), 50);
        assert_eq!(clock_list.len(), COUNT - 50);
    }

    /// Queues and collections with a TTL never fill the memory, and go through many leaves.
    #[test]
    fn leaves_that_left_their_trees_are_forgotten_without_eviction() {
        let mut store = Store::new(BtreeOptions {
            threads: Some(1),
            ..BtreeOptions::default()
        });
        let len = |store: &Store| store.base().cache.clock_list().len();
        let mut most = 0;
        for round in 0..20_u32 {
            let other = TableId(100 + round);
            store.create(other, "other");
            let keys = |table: TableId| (0..300_u32).map(move |n| (table, (round * 300 + n).to_be_bytes().to_vec()));
            for (table, key) in keys(ROWS).chain(keys(other)) {
                store.write(|batch| batch.put(table, key, vec![1; 4000]));
            }
            store.checkpoint();
            if round == 0 {
                most = len(&store);
                assert!(most > 50, "{most} leaves");
            }
            for (table, key) in keys(ROWS) {
                store.write(|batch| batch.delete(table, key));
            }
            store.write(|batch| batch.drop_table(other));
            store.base().workers.drain().expect("leaves are merged");
            store.checkpoint();
            store.checkpoint();
        }
        assert!(
            len(&store) <= 2 * most,
            "{} leaves are known, {most} were there",
            len(&store)
        );
    }
}
