//! Folding and splitting leaves in memory, and taking empty ones out of the tree.
//!
//! A writer folds the leaf it wrote to when the delta has grown: the merge of one leaf's worth of bytes costs less than
//! handing it to another thread. Nothing here compresses, reads or writes.

use crate::core::{Core, Line};
use crate::fold::{FoldPlan, Folded, fold, view_of};
use crate::leaf::{Base, FOLD_VERSIONS, Leaf, LeafState, LeafView, SEQ_MAX};
use crate::tree::{Child, Replaced, Target, Tree, base_bytes, leaf_overhead};
use crate::write_back::PageWriter;
use blocks::{BlockAddr, Referenced};
use engine::Seq;
use pins::Horizon;
use rcu::Guard;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries a delta may gather before it is folded.
pub(crate) const FOLD_ENTRIES: usize = 128;

rcu::thread_local! {
    static HORIZON: RefCell<Horizon> = RefCell::new(Horizon::default());
}

/// Versions at which a leaf that has kept so many is folded again. Each fold looks at all of them, and with half as many new ones
/// that costs each push no more than a few.
fn fold_versions(kept: usize) -> usize {
    kept + FOLD_VERSIONS.max(kept / 2)
}

/// Whether a leaf had to be left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restructured {
    /// It was folded and is still there.
    Folded,
    /// Others took its place.
    Split,
    /// Its rows are on disk.
    NotLoaded(BlockAddr),
    /// It is not in the tree any more.
    Retired,
}

impl Core {
    /// Calls `work` with the published position and those of open snapshots.
    pub(crate) fn with_readers<R>(&self, work: impl FnOnce(Seq, &[Seq]) -> R) -> R {
        HORIZON.with(|horizon| {
            let horizon = &mut *horizon.borrow_mut();
            self.pins.update(horizon);
            work(horizon.published(), horizon.open())
        })
    }

    fn plan<'a>(&self, tree: &Tree, through: Seq, readers: &'a [Seq]) -> FoldPlan<'a> {
        FoldPlan {
            through,
            readers,
            large_bytes_min: tree.shape.large_bytes_min,
            target_bytes: usize::MAX,
            appending: None,
        }
    }

    /// Brings a leaf's base up to the published position, or to `through` where that is older, without splitting. Under the
    /// leaf's lock (`state`).
    pub(crate) fn fold_in_place(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        through: Option<Seq>,
        guard: &Guard,
    ) -> Result<FoldedBase, Restructured> {
        let view = leaf.view.load(guard);
        if view.retired {
            return Err(Restructured::Retired);
        }
        if let Base::Stored(address) = view.base {
            return Err(Restructured::NotLoaded(address));
        }
        if let Base::Image(image) = &view.base
            && view.order.len() == 0
            && view.hidden_from == SEQ_MAX
        {
            // Nothing to merge.
            return Ok(FoldedBase {
                image: image.clone(),
                newest: state.base_newest,
                valid_to: SEQ_MAX,
            });
        }
        let (folded, through) = self.with_readers(|published, readers| {
            let through = through.map_or(published, |through| through.min(published));
            (fold(view, &self.plan(tree, through, readers), guard), through)
        });
        Ok(self.install(tree, leaf, state, folded, through, guard))
    }

    /// Makes the one piece of a fold a leaf's base and delta.
    fn install(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        folded: Folded,
        through: Seq,
        guard: &Guard,
    ) -> FoldedBase {
        let view = leaf.view.load(guard);
        self.counters.folds.add(1);
        let Folded {
            mut pieces,
            newest,
            dropped_large,
        } = folded;
        let piece = pieces.pop().expect("a fold yields a piece");
        let hidden = if view.hidden_from <= through {
            SEQ_MAX
        } else {
            view.hidden_from
        };
        let image = piece.image;
        let replaced = base_bytes(&view.base) + state.delta_bytes;
        let pages = image.memory_bytes() as isize - base_bytes(&view.base) as isize;
        let deltas = piece.retained_bytes as isize - state.delta_bytes as isize;
        let base = if image.is_empty() {
            Base::Empty
        } else {
            Base::Image(image.clone())
        };
        let pages = if image.is_empty() {
            -(base_bytes(&view.base) as isize)
        } else {
            pages
        };
        state.entries = piece.retained.len();
        state.delta_bytes = piece.retained_bytes;
        state.delta_rows = piece.retained_rows;
        state.versions = piece.retained_versions;
        self.note_undo(tree, leaf, state, piece.undo_bytes);
        state.fold_entries = state.entries + FOLD_ENTRIES;
        state.fold_versions = fold_versions(state.versions);
        state.fold_rows = state.delta_rows + tree.shape.leaf_bytes / 2;
        state.base_newest = state.base_newest.max(newest);
        state.base_is_stored = false;
        state.dropped_large.extend(self.note_dropped(tree, dropped_large));
        piece.owners.iter().for_each(|owner| owner.adopt());
        leaf.view
            .replace_large(view_of(base, hidden, piece.retained), replaced, guard);
        self.account(tree, pages, deltas);
        FoldedBase {
            image,
            newest: state.base_newest,
            valid_to: piece.valid_to,
        }
    }

    /// Row bytes of a leaf, at most: updates count as if they were new rows.
    pub(crate) fn rows_at_most(view: &LeafView, state: &LeafState) -> usize {
        let base = match &view.base {
            Base::Image(image) => image.row_bytes(),
            Base::Empty | Base::Stored(_) => 0,
        };
        base + state.delta_rows
    }

    /// Splits a leaf that has grown too large, or folds it when it turns out not to be. `key` belongs to it.
    pub(crate) fn split(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, appending: bool) -> Restructured {
        let guard = rcu::pin();
        let structure = tree.structure.lock();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if view.retired {
            return Restructured::Retired;
        }
        if let Base::Stored(address) = view.base {
            return Restructured::NotLoaded(address);
        }
        if state.writing.is_some() || (tree.is_still() && Leaf::has_room(&state)) {
            // Its image is on the way to disk, and the writer looks at the size again when it is there; or whoever writes it next
            // does, when the tree need not be still any more.
            return match self.fold_in_place(tree, leaf, &mut state, None, &guard) {
                Ok(_) => Restructured::Folded,
                Err(why) => why,
            };
        }
        let (folded, through) = self.with_readers(|published, readers| {
            let plan = FoldPlan {
                target_bytes: tree.shape.leaf_bytes,
                appending: appending.then_some(&tree.fill),
                ..self.plan(tree, published, readers)
            };
            (fold(view, &plan, &guard), published)
        });
        if folded.pieces.len() == 1 {
            let _ = self.install(tree, leaf, &mut state, folded, through, &guard);
            return Restructured::Folded;
        }
        let hidden = if view.hidden_from <= through {
            SEQ_MAX
        } else {
            view.hidden_from
        };
        let newest = state.base_newest.max(folded.newest);
        let mut pages = -(base_bytes(&view.base) as isize) - leaf_overhead(leaf) as isize;
        let mut deltas = -(state.delta_bytes as isize);
        let mut leaves: Vec<(Vec<u8>, Arc<Leaf>)> = Vec::with_capacity(folded.pieces.len());
        let mut full = None;
        self.counters.folds.add(1);
        self.counters.splits.add(1);
        for piece in folded.pieces {
            // The range may begin below `leaf.low`, when a left neighbour went.
            let low = piece.low.unwrap_or_else(|| {
                let fence = tree.descend(Target::At(&leaf.low), 0, &guard).low;
                fence.map_or_else(Vec::new, crate::tree::Fence::to_vec)
            });
            piece.owners.iter().for_each(|owner| owner.adopt());
            let base = if piece.image.is_empty() {
                Base::Empty
            } else {
                let image = piece.image;
                full.get_or_insert_with(|| image.clone());
                Base::Image(image)
            };
            let made = Arc::new(Leaf::empty(low.clone().into()));
            pages += (base_bytes(&base) + leaf_overhead(&made)) as isize;
            deltas += piece.retained_bytes as isize;
            {
                let mut made_state = made.state.lock();
                made_state.entries = piece.retained.len();
                made_state.delta_bytes = piece.retained_bytes;
                made_state.delta_rows = piece.retained_rows;
                made_state.versions = piece.retained_versions;
                self.note_undo(tree, &made, &mut made_state, piece.undo_bytes);
                made_state.fold_entries = made_state.entries + FOLD_ENTRIES;
                made_state.fold_versions = fold_versions(made_state.versions);
                made_state.fold_rows = made_state.delta_rows + tree.shape.leaf_bytes / 2;
                made_state.base_newest = newest;
                made_state.newest = state.newest;
                made_state.listed = true;
                made_state.in_ring = true;
            }
            made.view.replace(view_of(base, hidden, piece.retained), &guard);
            made.warmth
                .store(leaf.warmth.load(Ordering::Relaxed), Ordering::Relaxed);
            leaves.push((low, made));
        }
        // What the leaf's image dropped is given back with the first piece's next image.
        {
            let mut first = leaves[0].1.state.lock();
            first.dropped_large = std::mem::take(&mut state.dropped_large);
            first
                .dropped_large
                .extend(self.note_dropped(tree, folded.dropped_large));
        }
        let mut children = leaves
            .iter()
            .map(|(low, leaf)| (low.clone(), Child::Leaf(leaf.clone())));
        let (_, first) = children.next().expect("a fold yields a piece");
        let line = self.line.lock();
        let running = line.map(|line| line.number);
        let replaced = tree.replace_child(&leaf.low, 0, first, children.collect(), &guard);
        let written = running.is_some_and(|number| tree.is_settled_for(number));
        leaf.view
            .replace_large(LeafView::retired(), base_bytes(&view.base) + state.delta_bytes, &guard);
        state.set_undo(self, 0);
        self.free_image(tree, &mut state, *line, written);
        self.free_inner(tree, &replaced, written);
        // With the line: a checkpoint that begins from now on writes this tree.
        self.table_changed(tree.id);
        drop(line);
        drop(state);
        self.account(tree, pages, deltas);
        self.account_inner(tree, replaced.memory);
        for (_, leaf) in leaves {
            self.ring.push(tree.clone(), leaf.clone());
            self.list_dirty(tree, leaf, &guard);
        }
        // Again: a checkpoint may have begun before it could find them in the list.
        self.table_changed(tree.id);
        if let Some(image) = full.filter(|image| appending && tree.fill.wants(image.row_bytes(), tree.shape.leaf_bytes))
        {
            drop(structure);
            PageWriter::new(self).sample_leaf(tree, &image);
        }
        Restructured::Split
    }

    /// Gives back the image of a leaf that leaves the tree, or is replaced. `written` tells whether the running checkpoint
    /// refers, or will refer, to it where it is good for its cut. Under the leaf's lock and `line`.
    pub(crate) fn free_image(&self, tree: &Tree, state: &mut LeafState, line: Option<Line>, written: bool) {
        if let Some(address) = state.stored.take() {
            // Once an image was replaced for it, the checkpoint refers to that one.
            let good = line.is_some_and(|line| {
                let replaced = state.checkpoint.is_some_and(|(number, _)| number == line.number);
                !replaced && state.valid_from <= line.cut && line.cut < state.valid_to
            });
            self.free_block(
                tree,
                address,
                if good && written {
                    Referenced::ByRunningCheckpoint
                } else {
                    Referenced::No
                },
            );
        }
        if !written
            && let Some(line) = line
            && let Some((number, Some(address))) = state.checkpoint
            && number == line.number
        {
            // It was kept for the checkpoint, which writes what takes the leaf's place instead.
            self.store.forsake(tree.shape.volume, address);
        }
    }

    /// Tells the book of large values which of them a base has not any more, and answers their cells.
    fn note_dropped(&self, tree: &Tree, dropped: Vec<(bytes::Bytes, Seq)>) -> Vec<bytes::Bytes> {
        let note = |(cell, gone): (bytes::Bytes, Seq)| {
            self.book.drop_from_base(tree.shape.volume, &cell, gone);
            cell
        };
        dropped.into_iter().map(note).collect()
    }

    /// Gives back where replaced inner nodes lay; `written` as for [`Core::free_image`].
    fn free_inner(&self, tree: &Tree, replaced: &Replaced, written: bool) {
        for disk in &replaced.freed {
            if let Some(address) = disk.address {
                self.free_block(
                    tree,
                    address,
                    if written {
                        Referenced::ByRunningCheckpoint
                    } else {
                        Referenced::No
                    },
                );
            }
        }
    }

    pub(crate) fn free_block(&self, tree: &Tree, address: BlockAddr, referenced: Referenced) {
        let is_freed = self.store.free(tree.shape.volume, address, referenced);
        debug_assert!(
            is_freed,
            "{address:?} of {:?} is given back once, as long as it is in use",
            tree.id
        );
        let bytes = address.bytes();
        let _ = tree
            .stored_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
                Some(sum.saturating_sub(bytes))
            });
    }

    /// Takes a leaf out of the tree when it has no rows for anybody and there are others.
    pub(crate) fn remove_if_empty(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) -> bool {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let empty = !view.retired
            && matches!(view.base, Base::Empty)
            && view.order.len() == 0
            && state.writing.is_none()
            && state.dropped_large.is_empty();
        if !empty || tree.is_still() || matches!(tree.root.load(&guard), Child::Leaf(_)) {
            return false;
        }
        let line = self.line.lock();
        let running = line.map(|line| line.number);
        let Some(replaced) = tree.remove_child(&leaf.low, 0, &guard) else {
            return false;
        };
        let written = running.is_some_and(|number| tree.is_settled_for(number));
        leaf.view.replace(LeafView::retired(), &guard);
        self.free_image(tree, &mut state, *line, written);
        self.free_inner(tree, &replaced, written);
        self.table_changed(tree.id);
        drop(line);
        self.account(tree, -(leaf_overhead(leaf) as isize), -(state.delta_bytes as isize));
        self.account_inner(tree, replaced.memory);
        drop(state);
        self.counters.merges.add(1);
        true
    }

    /// Puts the rows of two neighbours into one leaf. False when one has left the tree, has versions that must stay, or when they
    /// are not under one inner node.
    pub(crate) fn merge(&self, tree: &Arc<Tree>, left: &Arc<Leaf>, right: &Arc<Leaf>) -> bool {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        if tree.is_still() {
            return false;
        }
        let mut states = (left.state.lock(), right.state.lock());
        for (leaf, state) in [(left, &mut states.0), (right, &mut states.1)] {
            if state.writing.is_some() || self.fold_in_place(tree, leaf, state, None, &guard).is_err() {
                return false;
            }
            let view = leaf.view.load(&guard);
            if view.order.len() > 0 || view.hidden_from != SEQ_MAX {
                return false;
            }
        }
        let mut builder = crate::page::LeafBuilder::new();
        for leaf in [left, right] {
            if let Base::Image(image) = &leaf.view.load(&guard).base {
                (0..image.len()).for_each(|index| builder.push_from(image, index));
            }
        }
        let line = self.line.lock();
        let running = line.map(|line| line.number);
        let parents = [left, right].map(|leaf| tree.descend(Target::At(&leaf.low), 0, &guard).parent);
        let [Some((a, at)), Some((b, next))] = parents else {
            return false;
        };
        if !Arc::ptr_eq(a, b) || at + 1 != next {
            return false;
        }
        let image = builder.finish();
        let base = if image.is_empty() {
            Base::Empty
        } else {
            Base::Image(image)
        };
        let made = Leaf::with(left.low.clone(), base, None);
        let mut images = (base_bytes(&made.view.load(&guard).base) + leaf_overhead(&made)) as isize;
        {
            let mut state = made.state.lock();
            state.base_newest = states.0.base_newest.max(states.1.base_newest);
            state.newest = states.0.newest.max(states.1.newest);
            state.listed = true;
            state.in_ring = true;
            for old in [&mut states.0, &mut states.1] {
                let dropped = std::mem::take(&mut old.dropped_large);
                state.dropped_large.extend(dropped);
            }
        }
        let made = Arc::new(made);
        let replaced = tree
            .merge_with_previous(&right.low, 0, Child::Leaf(made.clone()), &guard)
            .expect("the two are under one node");
        let written = running.is_some_and(|number| tree.is_settled_for(number));
        for (leaf, state) in [(left, &mut *states.0), (right, &mut *states.1)] {
            images -= (base_bytes(&leaf.view.load(&guard).base) + leaf_overhead(leaf)) as isize;
            leaf.view.replace(LeafView::retired(), &guard);
            self.free_image(tree, state, *line, written);
        }
        self.free_inner(tree, &replaced, written);
        self.table_changed(tree.id);
        drop(line);
        drop(states);
        self.account(tree, images, 0);
        self.account_inner(tree, replaced.memory);
        self.counters.merges.add(1);
        self.ring.push(tree.clone(), made.clone());
        self.list_dirty(tree, made, &guard);
        self.table_changed(tree.id);
        true
    }

    /// Puts a leaf into the list of those to be written.
    pub(crate) fn list(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let mut state = leaf.state.lock();
        if !state.listed {
            state.listed = true;
            drop(state);
            self.list_dirty(tree, leaf.clone(), &rcu::pin());
            self.table_changed(tree.id);
        }
    }

    /// The next checkpoint has to look at a table.
    pub(crate) fn table_changed(&self, id: engine::TableId) {
        let guard = rcu::pin();
        if let Some(table) = self.tables.get(id, &guard)
            && !table.listed.swap(true, Ordering::AcqRel)
        {
            self.changed.lock().push(table.clone());
        }
    }
}

/// A leaf's new base, ready to be written.
pub(crate) struct FoldedBase {
    pub(crate) image: crate::page::LeafImage,
    pub(crate) newest: Seq,
    pub(crate) valid_to: Seq,
}
