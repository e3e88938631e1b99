//! Continuous write-back: leaves that have been filled and left alone get to disk before a checkpoint comes, in the
//! background.
//!
//! A leaf that changes again after it was written is written twice, so only those go that will hardly change: leaves
//! that hold much which is not on disk (they have no image yet, or a quarter of their rows is new), and that nobody has
//! changed while many others became dirty. A load of rows in order leaves hardly anything to its checkpoint that way;
//! updates all over a table leave all of it, as there each leaf would be written many times.
//!
//! Quiet is what did not change in the last two *rounds*: a round is over when [`WriteBehind::dirty_round`] leaves have
//! become dirty in it.
//!
//! The work is spread over the time between two checkpoints: of the leaves that became dirty since the last one, no
//! larger part is written than of that time has passed. A short burst of writes has the processors to itself.

use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::job::Job;
use crate::leaf::{Base, Leaf};
use crate::readers::Readers;
use crate::running::RunningCheckpoint;
use crate::tables::Table;
use crate::tree::Tree;
use crate::workers::{Class, Workers};
use crate::write_back::{Need, WriteBack};
use engine::{EngineStatus, Result, Seq};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leaves written with one flush. Few, as for relocation: a checkpoint waits for them, and this runs when nobody else
/// does.
const STEP: usize = 16;
/// Listed leaves that are looked at in one go.
const LOOKS: usize = 256;
/// A round is a part in so many of the cache, in leaves of 16 KiB,
const ROUND_PART: u64 = 64;
const LEAF_BYTES: u64 = 16 << 10;
/// and no fewer than this.
const ROUND_MIN: u64 = 32;
/// What is new in a leaf that has an image is at least a part in so many of it.
const NEW_PART: usize = 4;

/// See the module.
pub(crate) struct WriteBehind {
    catalog: Arc<Catalog>,
    cache: Arc<PageCache>,
    readers: Arc<Readers>,
    running: Arc<RunningCheckpoint>,
    write_back: Arc<WriteBack>,
    workers: Arc<Workers>,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
    clock: Arc<dyn vfs::Clock>,
    /// As configured, in bytes.
    cache_bytes: u64,
    job: Arc<Job>,
    /// The published positions at which this round and the one before began.
    rounds: Mutex<[Seq; 2]>,
    /// Which of the changed tables comes next: one with a long list may take up a round alone.
    next_table: AtomicUsize,
}

impl WriteBehind {
    pub(crate) fn new(base: &Foundation, write_back: Arc<WriteBack>, cache_bytes: u64) -> Arc<Self> {
        let behind = Arc::new(Self {
            catalog: base.catalog.clone(),
            cache: base.cache.clone(),
            readers: base.readers.clone(),
            running: base.running.clone(),
            write_back,
            workers: base.workers.clone(),
            status: base.status.clone(),
            counters: base.counters.clone(),
            clock: base.clock.clone(),
            cache_bytes,
            job: Job::new(Class::Background),
            rounds: Mutex::default(),
            next_table: AtomicUsize::new(0),
        });
        let status = &behind.status;
        behind
            .job
            .set_work(&behind, status, "write-back", Self::write_quiet_leaves);
        behind
    }

    /// Leaves that become dirty in one round.
    pub(crate) fn dirty_round(&self) -> u64 {
        (self.cache_bytes / (ROUND_PART * LEAF_BYTES)).max(ROUND_MIN)
    }

    /// Has a background thread write quiet leaves when a round is over. With no threads the caller does the work.
    pub(crate) fn write_soon(&self) {
        if self.catalog.pace().newly_dirty() >= self.dirty_round() {
            self.job.soon(&self.workers);
        }
    }

    fn write_quiet_leaves(&self) -> Result<()> {
        self.catalog.pace().begin_round();
        let quiet_since = {
            let mut rounds = self.rounds.lock();
            let [this, before] = *rounds;
            *rounds = [self.readers.published(), this];
            before
        };
        if self.must_rest() {
            return self.status.check_running();
        }
        // What a round costs goes by what became dirty in it: of a long list, and of many tables, the next rounds see
        // the rest.
        let mut looks = 4 * self.dirty_round() as usize;
        let mut tables = self.catalog.changed_count();
        while tables > 0
            && looks > 0
            && let Some(table) = self.next_changed_table()
        {
            tables -= 1;
            looks -= 1;
            let tree = &table.tree;
            let mut left = tree.dirty.lock().leaves.len();
            while left > 0 && looks > 0 {
                if self.must_rest() {
                    return self.status.check_running();
                }
                let some = tree.next_dirty(left.min(LOOKS));
                left -= some.leaves.len().max(1);
                looks = looks.saturating_sub(some.leaves.len());
                let is_wanted = |leaf: &&Arc<Leaf>| is_quiet(tree, leaf, quiet_since);
                let mut quiet: Vec<&Arc<Leaf>> = some.leaves.iter().filter(is_wanted).collect();
                quiet.sort_unstable_by(|a, b| a.low.cmp(&b.low));
                self.write_behind_leaves(tree, &quiet)?;
                let clean = some.leaves.iter().filter(|leaf| unlist_if_clean(leaf));
                tree.unlist(&some, clean.map(Arc::as_ptr).collect());
            }
        }
        Ok(())
    }

    fn next_changed_table(&self) -> Option<Arc<Table>> {
        self.catalog
            .changed_in_turn(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// A checkpoint writes everything anyway, when memory is short the cold leaves go, and there is time. With no
    /// threads time says nothing.
    fn must_rest(&self) -> bool {
        let pace = self.catalog.pace();
        (self.workers.threads() > 0 && pace.allowance(self.clock.monotonic()) < STEP as u64)
            || self.running.get().is_some()
            || self.cache.eviction().is_under_way()
            || self.workers.check().is_err()
            || self.status.check_running().is_err()
    }

    fn write_behind_leaves(&self, tree: &Arc<Tree>, leaves: &[&Arc<Leaf>]) -> Result<()> {
        let mut writer = self.write_back.writer();
        for step in leaves.chunks(STEP) {
            if self.must_rest() {
                return Ok(());
            }
            for leaf in step {
                writer.write(tree, leaf, Need::Dirty)?;
            }
            writer.flush()?;
            self.counters.written_behind.add(step.len() as u64);
            self.catalog.pace().note_written(step.len() as u64);
        }
        Ok(())
    }
}

/// Whether there is nothing to write; then it is not listed any more.
fn unlist_if_clean(leaf: &Leaf) -> bool {
    let mut state = leaf.state.lock();
    let is_clean = state.is_clean() && state.writing.is_none() && state.dropped_large.is_empty();
    state.listed &= !is_clean;
    is_clean
}

/// Whether a leaf holds much that is not on disk, and nobody has changed it since.
fn is_quiet(tree: &Tree, leaf: &Leaf, since: Seq) -> bool {
    let guard = rcu::pin();
    let state = leaf.state.lock();
    let view = leaf.view.load(&guard);
    let is_in_memory = matches!(view.base, Base::Image(_) | Base::Empty);
    let is_dirty = !state.is_clean();
    let has_much = state.disk_image.is_none() || state.delta_rows >= tree.shape.leaf_bytes / NEW_PART;
    let newest = state.newest.max(state.base_newest);
    !view.retired && is_in_memory && is_dirty && has_much && state.writing.is_none() && newest <= since
}

#[cfg(test)]
mod tests {
    use crate::fixture::{ROWS, Store, lone_tree};
    use crate::leaf::Leaf;
    use crate::options::BtreeOptions;
    use crate::tree::Child;
    use engine::TableId;
    use std::sync::Arc;
    use vfs::{Random, SeededRandom};

    const COUNT: u32 = 60_000;

    fn store() -> Store {
        Store::new(BtreeOptions {
            cache_bytes: 64 << 20,
            threads: Some(0),
            ..BtreeOptions::default()
        })
    }

    fn put(store: &mut Store, number: u32) {
        store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![number as u8; 200]));
    }

    /// Pages written behind, and all that were written.
    fn written(store: &Store) -> (u64, u64) {
        let counters = &store.base().counters;
        (counters.written_behind.get(), counters.pages_written.get())
    }

    #[test]
    fn rows_in_order_are_on_disk_before_the_checkpoint() {
        let mut store = store();
        (0..COUNT).for_each(|number| put(&mut store, number));
        let (behind, before) = written(&store);
        assert_eq!(behind, before, "nothing else has written");
        let tree = store.tree(ROWS);
        let listed = tree.dirty.lock().leaves.len() as u64;
        store.checkpoint();
        let (_, all) = written(&store);
        // Those of the last two rounds and a bit, and what is above the leaves.
        let rounds = 3 * store.parts().write_behind.dirty_round();
        assert!(listed <= rounds, "{listed} leaves are still listed");
        assert!(all - before <= rounds + 20, "{behind} of {all} before the checkpoint");
        assert!(behind > 2 * rounds);
    }

    #[test]
    fn all_that_are_clean_leave_the_list() {
        let tree = lone_tree(Child::Nothing);
        for number in 0..100_u8 {
            tree.list_dirty(Arc::new(Leaf::empty([number].into())), &rcu::pin());
        }
        let some = tree.next_dirty(64);
        let clean = some.leaves.iter().filter(|leaf| leaf.low[0] != 7);
        tree.unlist(&some, clean.map(Arc::as_ptr).collect());
        let mut left: Vec<u8> = tree.take_dirty().iter().map(|leaf| leaf.low[0]).collect();
        left.sort_unstable();
        assert_eq!(left, [7].into_iter().chain(64..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_table_that_always_changes_does_not_keep_others_waiting() {
        const LOADED: TableId = TableId(2);
        let mut store = store();
        store.create(LOADED, "one.loaded");
        let changing = COUNT / 2;
        (0..changing).for_each(|number| put(&mut store, number));
        store.checkpoint();
        let random = SeededRandom::new(7);
        // More of its leaves are listed than a round looks at.
        (0..changing).for_each(|_| put(&mut store, random.next_u64() as u32 % changing));
        let (before, _) = written(&store);
        for number in 0..COUNT {
            put(&mut store, random.next_u64() as u32 % changing);
            store.write(|batch| batch.put(LOADED, number.to_be_bytes().to_vec(), vec![number as u8; 200]));
        }
        let listed = |table| store.tree(table).dirty.lock().leaves.len() as u64;
        let round = store.parts().write_behind.dirty_round();
        assert!(listed(ROWS) > 4 * round, "{} leaves change", listed(ROWS));
        assert!(listed(LOADED) <= 4 * round, "{} leaves are left alone", listed(LOADED));
        assert!(written(&store).0 - before > 4 * round);
    }

    #[test]
    fn leaves_that_change_now_and_again_are_left_to_the_checkpoint() {
        let mut store = store();
        (0..COUNT).for_each(|number| put(&mut store, number));
        store.checkpoint();
        let (behind, before) = written(&store);
        let random = SeededRandom::new(7);
        for _ in 0..COUNT / 4 {
            put(&mut store, random.next_u64() as u32 % COUNT);
        }
        assert_eq!(written(&store), (behind, before));
    }
}
