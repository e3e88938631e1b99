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

type Place = (Arc<Tree>, Arc<Leaf>);

/// See the module.
#[derive(Default)]
pub(crate) struct Ring {
    places: Mutex<VecDeque<Place>>,
}

impl Ring {
    pub(crate) fn push(&self, tree: Arc<Tree>, leaf: Arc<Leaf>) {
        self.places.lock().push_back((tree, leaf));
    }

    pub(crate) fn len(&self) -> usize {
        self.places.lock().len()
    }

    /// Takes up to `count` cold leaves out; the caller clears `in_ring` or puts them back. Warm ones are passed over, each
    /// getting colder. Fewer come when `looks_max` leaves were looked at: whoever writes or reads may wait for this lock, and the
    /// next call goes on where this one ends.
    pub(crate) fn take_cold(&self, count: usize, looks_max: usize) -> Vec<Place> {
        let mut places = self.places.lock();
        let mut cold = Vec::with_capacity(count);
        for _ in 0..places.len().min(looks_max) {
            if cold.len() == count {
                break;
            }
            let Some(place) = places.pop_front() else { break };
            let warmth = place.1.warmth.load(Ordering::Relaxed);
            if warmth == 0 || place.0.dead.load(Ordering::Relaxed) {
                cold.push(place);
            } else {
                place.1.warmth.store(warmth - 1, Ordering::Relaxed);
                places.push_back(place);
            }
        }
        cold
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.places.lock().clear();
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
        let ring = Ring::default();
        leaves.iter().for_each(|leaf| ring.push(tree.clone(), leaf.clone()));
        let cold = || {
            leaves
                .iter()
                .filter(|leaf| leaf.warmth.load(Ordering::Relaxed) == 0)
                .count()
        };
        // Leaves are warm when they come.
        assert_eq!((ring.take_cold(1, 100).len(), cold()), (0, 100));
        // The hand goes on, and comes round.
        assert_eq!((ring.take_cold(1, COUNT - 100).len(), cold()), (0, COUNT));
        assert_eq!(ring.take_cold(50, 100).len(), 50);
        assert_eq!(ring.len(), COUNT - 50);
    }
}
