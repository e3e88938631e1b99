//! Making a leaf's delta part of its base in memory, and forgetting undo that nobody reads any more.
//!
//! A writer consolidates the leaf it wrote to when the delta has grown: the merge of one leaf's worth of bytes costs
//! less than handing it to another thread. Nothing here compresses, reads or writes, or changes the structure of a
//! tree. What a merge yields is told by `consolidation`; this makes it the leaf's own, under its lock, and keeps the
//! accounts.

use crate::cache::PageCache;
use crate::consolidation::{Consolidated, ConsolidationPlan, Piece, consolidate, view_of};
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::large_values::LargeValues;
use crate::leaf::{
    Base, CONSOLIDATE_ENTRIES, CONSOLIDATE_VERSIONS, ConsolidateAt, Leaf, LeafState, LeafView, base_bytes,
};
use crate::page::LeafImage;
use crate::readers::Readers;
use crate::tree::Tree;
use crate::version::SEQ_MAX;
use blocks::BlockAddr;
use bytes::Bytes;
use engine::Seq;
use pins::Horizon;
use rcu::Guard;
use std::sync::Arc;

/// A leaf's new base, ready to be written.
pub(crate) struct NewBase {
    pub(crate) image: LeafImage,
    pub(crate) newest: Seq,
    /// The oldest change that the image does not have.
    pub(crate) valid_to: Seq,
}

/// Why a leaf could not be consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotConsolidated {
    /// Its rows are on disk.
    OnDisk(BlockAddr),
    /// It is not in the tree any more.
    Retired,
}

/// Versions at which a leaf that was left with so many is consolidated again. Each time all of them are looked at, and
/// with half as many new ones that costs each push no more than a few.
fn consolidate_versions(left: usize) -> usize {
    left + CONSOLIDATE_VERSIONS.max(left / 2)
}

/// See the module.
pub(crate) struct Consolidator {
    cache: Arc<PageCache>,
    readers: Arc<Readers>,
    large_values: Arc<LargeValues>,
    counters: Arc<Counters>,
}

impl Consolidator {
    pub(crate) fn new(base: &Foundation) -> Self {
        Self {
            cache: base.cache.clone(),
            readers: base.readers.clone(),
            large_values: base.large_values.clone(),
            counters: base.counters.clone(),
        }
    }

    /// Brings a leaf's base up to the published position, or to `through` where that is older, without splitting. Under
    /// the leaf's lock (`state`).
    pub(crate) fn consolidate_leaf(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        through: Option<Seq>,
        guard: &Guard,
    ) -> Result<NewBase, NotConsolidated> {
        let view = leaf.view.load(guard);
        if view.retired {
            return Err(NotConsolidated::Retired);
        }
        if let Base::OnDisk(address) = view.base {
            return Err(NotConsolidated::OnDisk(address));
        }
        if let Base::Image(image) = &view.base
            && view.order.len() == 0
            && view.range_tombstone == SEQ_MAX
        {
            // Nothing to merge.
            return Ok(NewBase {
                image: image.clone(),
                newest: state.base_newest,
                valid_to: SEQ_MAX,
            });
        }
        let (consolidated, through) = self.readers.with_positions(|published, readers| {
            let through = through.map_or(published, |through| through.min(published));
            let plan = ConsolidationPlan {
                through,
                readers,
                large_bytes_min: tree.shape.large_bytes_min,
                target_bytes: usize::MAX,
                appending: None,
            };
            (consolidate(view, &plan, guard), through)
        });
        Ok(self.install(tree, leaf, state, consolidated, through, guard))
    }

    /// The merge of a leaf's delta with its base in as many pieces as leaves shall come of it, and the position it went
    /// through.
    pub(crate) fn merge_for_split(
        &self,
        tree: &Tree,
        view: &LeafView,
        appending: bool,
        guard: &Guard,
    ) -> (Consolidated, Seq) {
        self.readers.with_positions(|published, readers| {
            let plan = ConsolidationPlan {
                through: published,
                readers,
                large_bytes_min: tree.shape.large_bytes_min,
                target_bytes: tree.shape.leaf_bytes,
                appending: appending.then_some(&tree.fill),
            };
            (consolidate(view, &plan, guard), published)
        })
    }

    /// Makes the one piece of a consolidation a leaf's base and delta.
    pub(crate) fn install(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        consolidated: Consolidated,
        through: Seq,
        guard: &Guard,
    ) -> NewBase {
        let view = leaf.view.load(guard);
        let Consolidated {
            mut pieces,
            newest,
            dropped_large,
        } = consolidated;
        let piece = pieces.pop().expect("a consolidation yields a piece");
        debug_assert!(pieces.is_empty(), "several pieces are leaves of their own");
        self.counters.consolidations.add(1);
        let (bytes_before, deltas_before) = (base_bytes(&view.base), state.delta_bytes);
        state.base_newest = state.base_newest.max(newest);
        state.base_is_disk_image = false;
        state.dropped_large.extend(self.note_dropped(tree, dropped_large));
        let (image, valid_to) = (piece.image.clone(), piece.valid_to);
        let tombstone = tombstone_after(view, through);
        let view = self.take_over(tree, leaf, state, piece, tombstone);
        let pages = base_bytes(&view.base) as isize - bytes_before as isize;
        let deltas = state.delta_bytes as isize - deltas_before as isize;
        leaf.view.replace_large(view, bytes_before + deltas_before, guard);
        self.cache.account(tree, pages, deltas);
        NewBase {
            image,
            newest: state.base_newest,
            valid_to,
        }
    }

    /// What a leaf shows, and its state says, when it has become a piece of a consolidation. Under the leaf's lock
    /// (`state`).
    pub(crate) fn take_over(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        piece: Piece,
        range_tombstone: Seq,
    ) -> LeafView {
        let entries = piece.retained.len();
        state.entries = u16::try_from(entries).expect("a delta's entries are numbered in 16 bits");
        state.delta_bytes = piece.retained_bytes;
        state.delta_rows = piece.retained_rows;
        state.versions = piece.retained_versions;
        self.readers.history().note_undo(tree, leaf, state, piece.undo_bytes);
        state.consolidate_at = ConsolidateAt::new(
            entries + CONSOLIDATE_ENTRIES,
            consolidate_versions(state.versions),
            state.delta_rows + new_rows(tree.shape.leaf_bytes, &piece.image),
        );
        // Before anybody sees the base: a checkpoint asks the values, not the leaf, who has them
        // (`LargeValues::is_in_base`).
        piece.owners.iter().for_each(|owner| owner.now_in_base());
        let base = if piece.image.is_empty() {
            Base::Empty
        } else {
            Base::Image(piece.image)
        };
        view_of(base, range_tombstone, piece.retained)
    }

    /// Notes which large values a base has not any more, and answers their cells.
    pub(crate) fn note_dropped(&self, tree: &Tree, dropped: Vec<(Bytes, Seq)>) -> Vec<Bytes> {
        let note = |(cell, gone): (Bytes, Seq)| {
            self.large_values.drop_from_base(tree.shape.volume, &cell, gone);
            cell
        };
        dropped.into_iter().map(note).collect()
    }

    /// Drops the undo of a leaf when its image has all that anybody still reads.
    pub(crate) fn shed_undo(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let is_clean = state.is_clean() && state.writing.is_none();
        if view.retired || view.order.len() == 0 || !is_clean || state.valid_from > self.readers.oldest() {
            return;
        }
        if !state.base_is_disk_image && !matches!(view.base, Base::OnDisk(_)) {
            // The base has moved on since the image was written, or holds what blocks of their own should.
            let _ = self.consolidate_leaf(tree, leaf, &mut state, None, &guard);
            return;
        }
        let bytes = std::mem::take(&mut state.delta_bytes);
        state.entries = 0;
        state.delta_rows = 0;
        state.versions = 0;
        self.readers.history().set_undo(&mut state, 0);
        leaf.view.replace_large(LeafView::new(view.base.clone()), bytes, &guard);
        self.cache.account(tree, 0, -(bytes as isize));
    }

    /// Forgets versions of a leaf whose rows are on disk, as far as nobody needs them: a consolidation would have to
    /// read the rows. Under the leaf's lock (`state`).
    pub(crate) fn prune(&self, tree: &Tree, leaf: &Leaf, state: &mut LeafState, horizon: &Horizon, guard: &Guard) {
        let view = leaf.view.load(guard);
        let mut freed = 0;
        for at in 0..view.order.len() {
            let gone = view
                .entry(at)
                .chain
                .prune(horizon, usize::MAX, state.base_newest, guard);
            freed += gone.bytes;
            state.versions = state.versions.saturating_sub(gone.versions);
            state.delta_rows = state.delta_rows.saturating_sub(gone.rows);
        }
        state.delta_bytes = state.delta_bytes.saturating_sub(freed);
        // What is left is the newest version of each key, or what somebody sees.
        let left = match horizon.open().first() {
            Some(&oldest) if oldest < state.newest => state.undo_bytes.saturating_sub(freed),
            _ => 0,
        };
        self.readers.history().set_undo(state, left);
        self.cache.account(tree, 0, -(freed as isize));
    }
}

/// Bytes of new rows that make a consolidation worth while. Where rows are large, one that is written again and again
/// would else be copied each time: of a key there are two versions at least, the published one and the next.
fn new_rows(leaf_bytes: usize, base: &LeafImage) -> usize {
    let row = base.row_bytes() / base.len().max(1);
    (leaf_bytes / 2).max(4 * row)
}

/// The range tombstone that is left when a base holds everything up to `through`.
pub(crate) fn tombstone_after(view: &LeafView, through: Seq) -> Seq {
    if view.range_tombstone <= through {
        SEQ_MAX
    } else {
        view.range_tombstone
    }
}
