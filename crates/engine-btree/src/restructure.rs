//! Changes of a tree's structure: splitting leaves, merging them, taking empty ones out.
//!
//! All of them replace some leaves by others, by one protocol ([`Structure::replace`]). Its caller holds the tree's
//! `structure`, then the locks of the leaves that go:
//!
//! 1. take the lock of the running checkpoint: none begins or ends before the last step;
//! 2. change the inner nodes;
//! 3. ask whether the running checkpoint has the tree already (`Tree::is_settled_for`): if so, what goes is kept for
//!    it;
//! 4. retire the leaves that go, and give their images and those of replaced inner nodes back;
//! 5. put the table into the list of changed ones, and let go of the checkpoint's lock and the leaves';
//! 6. keep the accounts, and make the CLOCK and the list of dirty leaves know the new ones.
//!
//! Nothing here compresses, reads or writes.

use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::consolidation::{Consolidated, Piece, is_huge};
use crate::consolidator::{Consolidator, NotConsolidated, tombstone_after};
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::leaf::{Base, Leaf, LeafState, LeafView, base_bytes};
use crate::page::{LeafBuilder, LeafImage};
use crate::readers::Readers;
use crate::running::{CheckpointPosition, RunningCheckpoint};
use crate::tree::{Child, Fence, Replaced, Target, Tree};
use blocks::{BlockAddr, BlockStore, Referenced};
use engine::Seq;
use rcu::{Guard, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of a leaf that was to be split.
pub(crate) enum Split {
    /// It was consolidated, turned out not to be too large, and is still there.
    NotNeeded,
    /// Others took its place; the image of the first with rows.
    Done(Option<LeafImage>),
    /// Its rows are on disk.
    OnDisk(BlockAddr),
    /// It is not in the tree any more.
    Retired,
}

impl From<NotConsolidated> for Split {
    fn from(why: NotConsolidated) -> Self {
        match why {
            NotConsolidated::OnDisk(address) => Self::OnDisk(address),
            NotConsolidated::Retired => Self::Retired,
        }
    }
}

/// A leaf that goes, locked.
type Going<'a> = (&'a Arc<Leaf>, MutexGuard<'a, LeafState>);

/// Children for the place of one: the first, and others with their lowest keys.
type Children = (Child, Vec<(Vec<u8>, Child)>);

/// See the module.
pub(crate) struct Structure {
    store: Arc<BlockStore>,
    cache: Arc<PageCache>,
    catalog: Arc<Catalog>,
    readers: Arc<Readers>,
    consolidator: Arc<Consolidator>,
    running: Arc<RunningCheckpoint>,
    counters: Arc<Counters>,
}

impl Structure {
    pub(crate) fn new(base: &Foundation, consolidator: Arc<Consolidator>) -> Self {
        Self {
            store: base.store.clone(),
            cache: base.cache.clone(),
            catalog: base.catalog.clone(),
            readers: base.readers.clone(),
            consolidator,
            running: base.running.clone(),
            counters: base.counters.clone(),
        }
    }

    pub(crate) fn consolidator(&self) -> &Consolidator {
        &self.consolidator
    }

    /// The protocol of the module: puts the leaves `new` in the place of `going`, `change` being what that comes to in
    /// the inner nodes. Where `change` answers `None`, nothing has happened. Under `structure`.
    fn replace(
        &self,
        tree: &Arc<Tree>,
        mut going: Vec<Going<'_>>,
        new: &[Arc<Leaf>],
        change: impl FnOnce() -> Option<Replaced>,
        guard: &Guard,
    ) -> bool {
        let (mut images, mut deltas) = (0, 0);
        // Before anybody finds them: who writes to them from then on accounts for that.
        for leaf in new {
            let state = leaf.state.lock();
            let view = leaf.view.load(guard);
            state.check_invariants(view);
            images += (base_bytes(&view.base) + leaf.overhead_bytes()) as isize;
            deltas += state.delta_bytes as isize;
        }
        let running = self.running.lock();
        let Some(replaced) = change() else { return false };
        // After the change: it takes back what that checkpoint had written of the nodes above.
        let is_settled = running.is_some_and(|position| tree.is_settled_for(position.number));
        for (leaf, state) in &mut going {
            let base = self.retire(leaf, state, guard);
            images -= (base + leaf.overhead_bytes()) as isize;
            deltas -= state.delta_bytes as isize;
            self.free_image(tree, state, *running, is_settled);
        }
        self.free_inner(tree, &replaced, is_settled);
        // Under the checkpoint's lock: one that begins from now on writes this tree.
        self.catalog.table_changed(tree.id);
        drop(running);
        drop(going);
        self.cache.account(tree, images, deltas);
        self.cache.account_inner(tree, replaced.memory);
        for leaf in new {
            self.cache.clock_list().push(tree.clone(), leaf.clone());
            self.catalog.list_dirty(tree, leaf.clone(), guard);
        }
        if !new.is_empty() {
            // Again: a checkpoint may have begun before it could find them in the list.
            self.catalog.table_changed(tree.id);
        }
        true
    }

    /// Has a leaf say that it left the tree, and answers the bytes of its base. Its delta counts until its state goes.
    /// Under its lock.
    pub(crate) fn retire(&self, leaf: &Leaf, state: &mut LeafState, guard: &Guard) -> usize {
        let view = leaf.view.load(guard);
        let base = base_bytes(&view.base);
        leaf.view
            .replace_large(LeafView::retired(), base + state.delta_bytes, guard);
        self.readers.history().set_undo(state, 0);
        if state.in_clock {
            self.cache.clock_list().note_gone();
        }
        base
    }

    /// Splits a leaf that has grown too large, or consolidates it when it turns out not to be. `appending` tells that
    /// its new rows came at the right end of the tree.
    pub(crate) fn split(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, appending: bool) -> Split {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        // Of a table that has just gone nobody may find anything again, though the leaf does not know it yet.
        if view.retired || tree.is_dead() {
            return Split::Retired;
        }
        if let Base::OnDisk(address) = view.base {
            return Split::OnDisk(address);
        }
        let is_huge = is_huge(view, &state, tree.shape.large_bytes_min, &guard);
        if state.writing.is_some() && is_huge {
            return Split::NotNeeded;
        }
        if state.writing.is_some() || (tree.is_still() && Leaf::has_room(&state) && !is_huge) {
            // Its image is on the way to disk, and the writer looks at the size again when it is there; or whoever
            // writes it next does, when the tree need not be still any more.
            let consolidated = self.consolidator.consolidate_leaf(tree, leaf, &mut state, None, &guard);
            return consolidated.map_or_else(Split::from, |_| Split::NotNeeded);
        }
        let (merged, through) = self.consolidator.merge_for_split(tree, view, appending, &guard);
        if merged.pieces.len() == 1 {
            let _ = self
                .consolidator
                .install(tree, leaf, &mut state, merged, through, &guard);
            return Split::NotNeeded;
        }
        let sample = merged
            .pieces
            .iter()
            .map(|piece| &piece.image)
            .find(|image| !image.is_empty());
        let sample = sample.cloned();
        let new = self.leaves_of(tree, leaf, &mut state, merged, through, &guard);
        let (first, more) = children_of(&new);
        let change = || Some(tree.replace_child(&leaf.low, 0, first, more, &guard));
        self.replace(tree, vec![(leaf, state)], &new, change, &guard);
        self.counters.consolidations.add(1);
        self.counters.splits.add(1);
        Split::Done(sample)
    }

    /// A leaf for each piece of a leaf that is split.
    fn leaves_of(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        merged: Consolidated,
        through: Seq,
        guard: &Guard,
    ) -> Vec<Arc<Leaf>> {
        let tombstone = tombstone_after(leaf.view.load(guard), through);
        let newest = state.base_newest.max(merged.newest);
        let make = |mut piece: Piece| {
            // The range may begin below `leaf.low`, when a left neighbour went.
            let low = piece.low.take().unwrap_or_else(|| {
                let fence = tree.descend(Target::At(&leaf.low), 0, guard).low;
                fence.map_or_else(Vec::new, Fence::to_vec)
            });
            let made = Arc::new(Leaf::empty(low.into()));
            let mut made_state = made.state.lock();
            let view = self
                .consolidator
                .take_over(tree, &made, &mut made_state, piece, tombstone);
            made_state.base_newest = newest;
            made_state.newest = state.newest;
            made_state.listed = true;
            made_state.in_clock = true;
            drop(made_state);
            made.view.replace(view, guard);
            made.warmth
                .store(leaf.warmth.load(Ordering::Relaxed), Ordering::Relaxed);
            made
        };
        let leaves: Vec<Arc<Leaf>> = merged.pieces.into_iter().map(make).collect();
        // What the leaf's image dropped is given back with the first piece's next image.
        let mut first = leaves[0].state.lock();
        first.dropped_large = std::mem::take(&mut state.dropped_large);
        first
            .dropped_large
            .extend(self.consolidator.note_dropped(tree, merged.dropped_large));
        drop(first);
        leaves
    }

    /// Takes a leaf out of the tree when it has no rows for anybody and there are others.
    pub(crate) fn remove_if_empty(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) -> bool {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let is_empty = !view.retired
            && matches!(view.base, Base::Empty)
            && view.order.len() == 0
            && state.writing.is_none()
            && state.dropped_large.is_empty();
        if !is_empty || tree.is_still() || tree.is_dead() || matches!(tree.root.load(&guard), Child::Leaf(_)) {
            return false;
        }
        let change = || tree.remove_child(&leaf.low, 0, &guard);
        let is_removed = self.replace(tree, vec![(leaf, state)], &[], change, &guard);
        self.counters.merges.add(u64::from(is_removed));
        is_removed
    }

    /// Puts the rows of two neighbours into one leaf. False when one has left the tree, has versions that must stay, or
    /// when they are not under one inner node, or are one: the leaf between them was removed since the caller found
    /// them.
    pub(crate) fn merge(&self, tree: &Arc<Tree>, left: &Arc<Leaf>, right: &Arc<Leaf>) -> bool {
        if Arc::ptr_eq(left, right) {
            return false;
        }
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        if tree.is_still() || tree.is_dead() {
            return false;
        }
        let mut going = vec![(left, left.state.lock()), (right, right.state.lock())];
        for (leaf, state) in &mut going {
            let consolidated = state.writing.is_none()
                && self
                    .consolidator
                    .consolidate_leaf(tree, leaf, state, None, &guard)
                    .is_ok();
            if !consolidated || !leaf.view.load(&guard).has_no_delta() {
                return false;
            }
        }
        let parents = [left, right].map(|leaf| tree.descend(Target::At(&leaf.low), 0, &guard).parent);
        let [Some((a, at)), Some((b, next))] = parents else {
            return false;
        };
        if !Arc::ptr_eq(a, b) || at + 1 != next {
            return false;
        }
        let mut builder = LeafBuilder::new();
        for leaf in [left, right] {
            if let Base::Image(image) = &leaf.view.load(&guard).base {
                (0..image.len()).for_each(|index| builder.push_from(image, index));
            }
        }
        let image = builder.finish();
        let base = if image.is_empty() {
            Base::Empty
        } else {
            Base::Image(image)
        };
        let made = Arc::new(Leaf::with(left.low.clone(), base, None));
        {
            let mut state = made.state.lock();
            state.listed = true;
            state.in_clock = true;
            for (_, old) in &mut going {
                state.base_newest = state.base_newest.max(old.base_newest);
                state.newest = state.newest.max(old.newest);
                state.dropped_large.append(&mut old.dropped_large);
            }
        }
        let change = || tree.merge_with_previous(&right.low, 0, Child::Leaf(made.clone()), &guard);
        let is_merged = self.replace(tree, going, std::slice::from_ref(&made), change, &guard);
        assert!(is_merged, "the two are under one node");
        self.counters.merges.add(1);
        true
    }

    /// Puts `root` in the place of that of a tree without rows, whose image no checkpoint has. Under `structure`.
    pub(crate) fn replace_fresh_root(&self, tree: &Arc<Tree>, root: Child, guard: &Guard) {
        let old = match tree.root.load(guard) {
            Child::Leaf(old) => Some(old.clone()),
            _ => None,
        };
        tree.last_leaf.lock().take();
        let going = old.iter().map(|old| (old, old.state.lock())).collect();
        let change = || {
            tree.root.replace(root, guard);
            Some(Replaced::default())
        };
        self.replace(tree, going, &[], change, guard);
    }

    /// Gives back the image of a leaf that leaves the tree, or is replaced. `is_settled` tells whether the running
    /// checkpoint refers, or will refer, to it where it is good for its position. Under the leaf's lock and the
    /// checkpoint's.
    pub(crate) fn free_image(
        &self,
        tree: &Tree,
        state: &mut LeafState,
        position: Option<CheckpointPosition>,
        is_settled: bool,
    ) {
        // Once an image was replaced for it, the checkpoint refers to that one.
        let on_disk = state.disk_image;
        let is_good = position.is_some_and(|position| on_disk.is_some() && state.address_for(position) == on_disk);
        if let Some(address) = state.disk_image.take() {
            tree.free_block(&self.store, address, referenced(is_good && is_settled));
        }
        if !is_settled
            && !is_good
            && let Some(position) = position
            && let Some((number, Some(address))) = state.checkpoint
            && number == position.number
        {
            // It stayed for the checkpoint, which writes what takes the leaf's place instead.
            self.store.forsake(tree.shape.volume, address);
        }
    }

    /// Gives back where replaced inner nodes lay; `is_settled` as for [`Structure::free_image`].
    fn free_inner(&self, tree: &Tree, replaced: &Replaced, is_settled: bool) {
        for address in replaced.freed.iter().filter_map(|disk| disk.address) {
            tree.free_block(&self.store, address, referenced(is_settled));
        }
    }
}

fn referenced(by_running: bool) -> Referenced {
    if by_running {
        Referenced::ByRunningCheckpoint
    } else {
        Referenced::No
    }
}

/// The children that stand for these leaves.
fn children_of(leaves: &[Arc<Leaf>]) -> Children {
    let child = |leaf: &Arc<Leaf>| Child::Leaf(leaf.clone());
    let more = leaves[1..].iter().map(|leaf| (leaf.low.to_vec(), child(leaf)));
    (child(&leaves[0]), more.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store};
    use crate::options::BtreeOptions;
    use crate::page::LEAF_ROW_BYTES_MAX;
    use engine::Engine as _;

    /// A store without threads, its tree, and the leaf of its one row.
    fn store_of_one_leaf() -> (Store, Arc<Tree>, Arc<Leaf>) {
        let mut store = Store::new(BtreeOptions {
            threads: Some(0),
            ..BtreeOptions::default()
        });
        store.write(|batch| batch.put(ROWS, b"key".to_vec(), b"value".to_vec()));
        let tree = store.tree(ROWS);
        let leaf = tree.leaf_in_memory(b"key", &rcu::pin()).expect("it was just written");
        (store, tree, leaf)
    }

    /// A worker was about to split a leaf when the table's root was taken out: the leaves that it made were the root of
    /// a tree that nobody frees any more.
    #[test]
    fn a_leaf_of_a_table_that_has_gone_is_not_split() {
        let mut store = Store::new(BtreeOptions {
            threads: Some(0),
            record_leaf_bytes: 64 << 10,
            ..BtreeOptions::default()
        });
        for number in 0..100_u8 {
            store.write(|batch| batch.put(ROWS, vec![number], vec![number; 500]));
        }
        let structure = &store.parts().structure;
        let tree = store.tree(ROWS);
        let small = Arc::new(Tree::new(
            ROWS,
            crate::tree::Shape {
                leaf_bytes: 1000,
                ..tree.shape
            },
            tree.root.load(&rcu::pin()).clone(),
        ));
        let leaf = small.leaf_in_memory(&[], &rcu::pin()).expect("the root");
        small.dead.store(true, Ordering::Release);
        small.root.replace(Child::Nothing, &rcu::pin());
        assert!(matches!(structure.split(&small, &leaf, false), Split::Retired));
        assert!(matches!(small.root.load(&rcu::pin()), Child::Nothing));
        assert!(!structure.remove_if_empty(&small, &leaf));
        // As long as it is there it is split.
        small.dead.store(false, Ordering::Release);
        small.root.replace(Child::Leaf(leaf.clone()), &rcu::pin());
        assert!(matches!(structure.split(&small, &leaf, false), Split::Done(_)));
    }

    /// While its image is on the way to disk a leaf is not split: many long keys came together in one image, which
    /// cannot be that long.
    #[test]
    fn long_keys_wait_for_a_split_apart() {
        let (mut store, _tree, leaf) = store_of_one_leaf();
        leaf.state.lock().writing = Some(crate::version::SEQ_MAX);
        let long_key = |number: u8| [vec![b'k'; 1 << 20], vec![number]].concat();
        let count = (LEAF_ROW_BYTES_MAX >> 20) as u8 + 1;
        for number in 0..count {
            store.write(|batch| batch.put(ROWS, long_key(number), b"value".to_vec()));
        }
        assert!(!leaf.view.load(&rcu::pin()).retired, "it was not split");
        leaf.state.lock().writing = None;
        store.checkpoint();
        assert!(leaf.view.load(&rcu::pin()).retired);
        let snapshot = store.engine.snapshot().expect("a snapshot");
        for number in 0..count {
            let value = snapshot.get(ROWS, &long_key(number)).expect("a read");
            assert_eq!(value.as_deref(), Some(&b"value"[..]), "{number}");
        }
    }

    /// A document with an array has an entry in an index for each element, and each of these may begin with a long
    /// text. Where their leaf was on disk they came to be parted all at once: that ended the engine, and each start
    /// after it.
    #[test]
    fn many_long_keys_come_to_a_leaf_on_disk_in_one_batch() {
        let options = || BtreeOptions {
            threads: Some(0),
            cache_bytes: 1 << 30,
            ..BtreeOptions::default()
        };
        let long_key = |number: u32| [vec![b'k'; 200 << 10], number.to_be_bytes().to_vec()].concat();
        let count = (crate::page::SEPARATOR_BYTES_MAX / (200 << 10)) as u32 + 200;
        let mut store = Store::new(options());
        store.write(|batch| {
            batch.put(ROWS, b"a".to_vec(), b"first".to_vec());
            batch.put(ROWS, b"z".to_vec(), b"last".to_vec());
        });
        let mut store = store.reopened(options());
        store.write(|batch| {
            (0..count).for_each(|number| batch.put(ROWS, long_key(number), number.to_be_bytes().to_vec()))
        });
        store.checkpoint();
        let store = store.reopened(options());
        let snapshot = store.engine.snapshot().expect("a snapshot");
        for number in 0..count {
            let value = snapshot.get(ROWS, &long_key(number)).expect("a read");
            assert_eq!(value.as_deref(), Some(&number.to_be_bytes()[..]));
        }
        let report = store.engine.maintain(&engine::Maintenance::Verify(Some(ROWS)));
        let report = report.expect("a verification");
        assert_eq!(
            (report.rows_checked, report.problems),
            (u64::from(count) + 2, Vec::new())
        );
    }

    /// The leaf that began where this one ended was removed as empty after the caller had seen the end: what is found
    /// there now is this leaf. Both locks were taken, for ever, under that of the tree.
    #[test]
    fn a_leaf_is_not_merged_with_itself() {
        let (store, tree, leaf) = store_of_one_leaf();
        assert!(!store.parts().structure.merge(&tree, &leaf, &leaf));
        assert!(!leaf.view.load(&rcu::pin()).retired);
    }
}
