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
    /// getting colder. Fewer come when a whole round found no more.
    pub(crate) fn take_cold(&self, count: usize) -> Vec<Place> {
        let mut places = self.places.lock();
        let mut cold = Vec::with_capacity(count);
        for _ in 0..places.len() {
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
