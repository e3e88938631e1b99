//! The leaves that take memory, in the order in which the replacement policy looks at them.
//!
//! CLOCK (Corbató, 1968) with a small count instead of one bit: a leaf that was read since the hand came by goes round
//! again, colder by one; the first cold one is the victim. Scans leave leaves cold.

use crate::leaf::Leaf;
use crate::tree::Tree;
use rcu::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A leaf and its tree.
pub(crate) type ClockEntry = (Arc<Tree>, Arc<Leaf>);

/// See the module.
#[derive(Default)]
pub(crate) struct ClockList {
    entries: Mutex<VecDeque<ClockEntry>>,
}

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

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Child, Shape};

    #[test]
    fn a_step_looks_at_few_leaves_however_many_are_warm() {
        const COUNT: usize = 1000;
        let shape = Shape {
            codec: codec::Codec::None,
            level: None,
            leaf_bytes: 100,
            large_bytes_min: 1000,
            volume: blocks::VolumeId::MAIN,
        };
        let tree = Arc::new(Tree::new(engine::TableId(1), shape, Child::Nothing));
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
}
