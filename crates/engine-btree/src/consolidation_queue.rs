//! Leaves whose deltas have grown, to be consolidated by a worker while their writers go on.
//!
//! A consolidation is as long as some ten writes. Its leaf is put here when the delta has grown, and the worker is
//! woken when some have come together, so that waking it costs a writer little. Nothing depends on when it comes: a
//! leaf that waits works as it is, only its delta takes memory. A writer that finds a delta much too large has
//! overtaken the worker and consolidates by itself.
//!
//! Invariant: a leaf is in the queue once at most, as its state says (`LeafState::queued`).

use crate::clock_list::ClockEntry;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::job::Job;
use crate::leaf::{Base, Leaf};
use crate::restructure::Structure;
use crate::tree::Tree;
use crate::workers::{Class, Workers};
use engine::{EngineStatus, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// Leaves that come together before the worker is woken.
const WAKE_AT: usize = 16;

/// See the module.
pub(crate) struct ConsolidationQueue {
    leaves: Mutex<Vec<ClockEntry>>,
    structure: Arc<Structure>,
    status: Arc<EngineStatus>,
    workers: Arc<Workers>,
    counters: Arc<Counters>,
    job: Arc<Job>,
}

impl ConsolidationQueue {
    pub(crate) fn new(base: &Foundation, structure: Arc<Structure>) -> Arc<Self> {
        let queue = Arc::new(Self {
            leaves: Mutex::default(),
            structure,
            status: base.status.clone(),
            workers: base.workers.clone(),
            counters: base.counters.clone(),
            // At the usual priority: a thread that seldom runs would keep the leaf's lock for as long.
            job: Job::new(Class::Urgent),
        });
        queue
            .job
            .set_work(&queue, &queue.status, "consolidation", Self::consolidate_all);
        queue
    }

    /// Puts a leaf in that was not there, as its state says already. Not under its lock.
    pub(crate) fn push(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let waiting = {
            let mut leaves = self.leaves.lock();
            leaves.push((tree.clone(), leaf.clone()));
            leaves.len()
        };
        if waiting >= WAKE_AT {
            self.job.soon(&self.workers);
        }
    }

    fn consolidate_all(&self) -> Result<()> {
        loop {
            let leaves = std::mem::take(&mut *self.leaves.lock());
            if leaves.is_empty() {
                return Ok(());
            }
            for (tree, leaf) in leaves {
                self.status.check_running()?;
                self.consolidate(&tree, &leaf);
            }
        }
    }

    /// Consolidates a leaf if its delta is as large as it was, and splits it if it is too large.
    fn consolidate(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        state.queued = false;
        let view = leaf.view.load(&guard);
        if view.retired || tree.is_dead() || matches!(view.base, Base::OnDisk(_)) || !state.delta_has_grown() {
            return;
        }
        self.counters.consolidations_queued.add(1);
        if view.rows_at_most(&state) > tree.split_above() {
            drop(state);
            self.structure.split(tree, leaf, false);
        } else {
            // It is neither on disk nor retired.
            let _ = self
                .structure
                .consolidator()
                .consolidate_leaf(tree, leaf, &mut state, None, &guard);
        }
    }

    /// Has nobody consolidate anything.
    #[cfg(test)]
    pub(crate) fn hold(&self) {
        self.job.hold();
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{ROWS, Store};
    use crate::options::BtreeOptions;
    use engine::Engine;

    const ROWS_IN_ALL: u32 = 4000;
    const VALUE_BYTES: usize = 200;

    fn store() -> Store {
        let mut store = Store::new(BtreeOptions {
            threads: Some(1),
            ..BtreeOptions::default()
        });
        write(&mut store, 0);
        store.checkpoint();
        store.base().workers.drain().expect("it comes to an end");
        store
    }

    /// Each round has keys of its own, between those of the others.
    fn key(row: u32, round: u8) -> Vec<u8> {
        [&row.to_be_bytes()[..], &[round]].concat()
    }

    fn write(store: &mut Store, round: u8) {
        for number in 0..ROWS_IN_ALL {
            // Neighbours far apart, so that many leaves grow at once.
            let row = number.wrapping_mul(1201) % ROWS_IN_ALL;
            store.write(|batch| batch.put(ROWS, key(row, round), vec![round; VALUE_BYTES]));
        }
    }

    fn check(store: &Store, rounds: u8) {
        let snapshot = store.engine.snapshot().expect("a snapshot");
        for (row, round) in (0..ROWS_IN_ALL).flat_map(|row| (0..rounds).map(move |round| (row, round))) {
            let value = snapshot.get(ROWS, &key(row, round)).expect("a read");
            assert_eq!(
                value.as_deref(),
                Some(&[round; VALUE_BYTES][..]),
                "row {row} of round {round}"
            );
        }
    }

    #[test]
    fn a_worker_consolidates_what_has_grown() {
        let mut store = store();
        write(&mut store, 1);
        store.base().workers.drain().expect("it comes to an end");
        assert!(store.base().counters.consolidations_queued.get() > 0);
        check(&store, 2);
    }

    /// With nobody at work, deltas stay within a few times the size of their leaf, and nothing is lost.
    #[test]
    fn a_writer_that_is_ahead_consolidates_by_itself() {
        const ROUNDS: u8 = 6;
        let mut store = store();
        store.parts().applier.consolidation_queue().hold();
        let counters = &store.base().counters;
        let before = (counters.consolidations.get(), counters.consolidations_queued.get());
        for round in 1..ROUNDS {
            write(&mut store, round);
        }
        let counters = &store.base().counters;
        assert!(counters.consolidations.get() > before.0, "writers did");
        assert_eq!(counters.consolidations_queued.get(), before.1, "the worker did not");
        check(&store, ROUNDS);
        let (tree, guard) = (store.tree(ROWS), rcu::pin());
        for row in 0..ROWS_IN_ALL {
            let leaf = tree.leaf_in_memory(&key(row, 0), &guard).expect("it was written");
            let rows = leaf.state.lock().delta_rows;
            assert!(rows <= 4 * tree.shape.leaf_bytes, "{rows} bytes of rows in a delta");
        }
    }
}
