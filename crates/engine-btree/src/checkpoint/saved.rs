//! Leaves whose images stay: what changed of them goes to pages of saved deltas.

use super::leaves::mark_place;
use super::{CheckpointParts, Run};
use crate::leaf::{Base, Leaf, LeafState, LeafView};
use crate::page::CellValue;
use crate::saved_deltas::{FullPage, SavedBlock, SavedPages, encode_index};
use crate::tree::Tree;
use crate::version::{Ground, SEQ_MAX, Value, see_from};
use crate::write_back::PageWriter;
use blocks::{BlockAddr, Referenced};
use engine::{Result, Seq};
use rcu::Guard;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Checkpoints that save changes of a leaf before one writes it, at most.
const SAVES_MAX: usize = 8;

/// What a row that is gone counts for, as a part of a leaf, where the leaf's rows are not in memory.
const GONE_PART: usize = 64;

/// Memory that deltas may take over a checkpoint.
pub(super) struct KeptDeltas {
    left: AtomicU64,
}

impl KeptDeltas {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            left: AtomicU64::new(bytes),
        }
    }

    /// Takes so many bytes, if they are left.
    fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}

impl Run<'_> {
    /// The same for a leaf whose rows on disk cannot be read, whatever it costs. The checkpoint then has all that the
    /// leaf has, and only those who read its rows meet the damage. The error is that of the read where it cannot be.
    pub(super) fn save_unreadable(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, pages: &mut SavedPages) -> Result<()> {
        if self.save(tree, leaf, None, pages) {
            return Ok(());
        }
        self.tell_unreadable(tree, leaf)
    }

    /// The error of a read that has failed. Where it does not fail any more, the inner nodes above the leaf are looked
    /// at again, and miss its image.
    pub(super) fn tell_unreadable(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) -> Result<()> {
        let base = leaf.view.load(&rcu::pin()).base.clone();
        if let Base::OnDisk(address) = base {
            self.parts.pages.bring_base_in(tree, leaf, address, None)?;
        }
        mark_place(tree, leaf);
        Ok(())
    }

    /// Leaves an image where it is and puts what it lacks into `pages`, if that can be and pays; otherwise the leaf is
    /// to be written.
    ///
    /// Rows that are saved again and again come to cost more than an image that has them. So an image stays until what
    /// was saved beside it has as many bytes as all its rows: together they are never twice of what the better of the
    /// two ways would have cost (the ski rental problem). A few rows count for a part of all at least, as a delta also
    /// takes memory from what is read.
    pub(super) fn save_delta(&self, tree: &Tree, leaf: &Leaf, keeps: &KeptDeltas, pages: &mut SavedPages) -> bool {
        let all_bytes = match &leaf.view.load(&rcu::pin()).base {
            Base::Image(rows) => rows.row_bytes(),
            Base::OnDisk(_) | Base::Empty => tree.shape.leaf_bytes,
        };
        self.save(tree, leaf, Some((keeps, all_bytes)), pages)
    }

    /// The same, up to so many bytes of memory and of rows saved in all; without bounds, whatever it costs.
    fn save(&self, tree: &Tree, leaf: &Leaf, bounds: Option<(&KeptDeltas, usize)>, pages: &mut SavedPages) -> bool {
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let Some(image) = self.image_that_stays(tree, &state, view) else {
            return false;
        };
        let Some(bytes) = lacking_bytes(tree, &state, view, self.position.seq, &guard) else {
            return false;
        };
        let saved = bounds.map_or(0, |(_, most)| state.saved_bytes as usize + bytes.max(most / SAVES_MAX));
        let is_within = bounds.is_none_or(|(_, most)| saved <= most);
        let Some(saved) = u32::try_from(saved).ok().filter(|_| is_within) else {
            return false;
        };
        // The directory is no table: its rows are in its leaves alone.
        let Some(table) = self.parts.catalog.get(tree.id, &guard) else {
            return false;
        };
        // One that came to the leaf while the checkpoint began belongs to the next.
        let volume = tree.shape.volume;
        if self.parts.store.find_unrecorded(volume, &[image]).is_some() {
            return false;
        }
        // Last, as nothing gives it back.
        if bounds.is_some_and(|(keeps, _)| !keeps.take(state.delta_bytes as u64)) {
            return false;
        }
        // A start gives the blocks of a table back that was dropped, and needs no rows of it.
        let lives = table.lives_at(self.position.seq);
        for (key, value) in lacking(&state, view, self.position.seq, &guard).filter(|_| lives) {
            let value = match value {
                Lacking::Put(bytes) => Some(bytes),
                Lacking::Gone | Lacking::Elsewhere => None,
            };
            pages.push(tree.id, key, value);
        }
        state.saved_bytes = saved;
        state.checkpoint = Some((self.position.number, Some(image)));
        self.parts.counters.deltas_saved.add(1);
        true
    }

    /// The image of a leaf that a checkpoint lacks, where deltas may stand beside it: it has nothing that came after
    /// the position, and the rows in memory, if any, are its.
    fn image_that_stays(&self, tree: &Tree, state: &LeafState, view: &LeafView) -> Option<BlockAddr> {
        let position = self.position;
        let is_lacking = !state.has_state_at(position.seq) && !state.is_noted_for(position);
        let is_base = state.base_is_disk_image && matches!(view.base, Base::Image(_) | Base::OnDisk(_));
        let is_plain = view.range_tombstone == SEQ_MAX && state.dropped_large.is_empty();
        let is_there = !view.retired && !tree.is_dead() && !tree.is_settled_for(position.number);
        let may_stay = is_lacking && is_base && is_plain && is_there && state.writing.is_none();
        state
            .disk_image
            .filter(|_| may_stay && state.valid_from <= position.seq)
    }

    /// Appends pages of saved deltas, flushes, and notes where they lie.
    pub(super) fn write_saved(&self, pages: SavedPages, writer: &mut PageWriter<'_>) -> Result<()> {
        let mut blocks = Vec::new();
        for FullPage { raw, tables } in pages.finish() {
            let address = writer.append_saved(self.parts.catalog.directory_tree(), &raw)?;
            blocks.push(SavedBlock { address, tables });
        }
        writer.flush()?;
        self.saved.lock().extend(blocks);
        Ok(())
    }

    /// Writes the index of the pages, and gives back what the checkpoint before saved.
    pub(super) fn write_saved_index(&self) -> Result<Option<BlockAddr>> {
        let (parts, pages) = (self.parts, self.saved.lock().clone());
        let directory = parts.catalog.directory_tree();
        let mut index = None;
        if !pages.is_empty() {
            let mut writer = parts.write_back.writer();
            let address = writer.append_saved(directory, &encode_index(&pages))?;
            writer.flush()?;
            self.saved.lock().push(SavedBlock::index(address));
            index = Some(address);
        }
        let before = parts
            .saved_deltas
            .replace_blocks(std::mem::take(&mut *self.saved.lock()));
        free_saved(self, before);
        Ok(index)
    }

    /// What a checkpoint saved that failed.
    pub(super) fn give_up_saved(&self) {
        free_saved(self, std::mem::take(&mut *self.saved.lock()));
    }
}

fn free_saved(run: &Run<'_>, blocks: Vec<SavedBlock>) {
    let (store, directory) = (&run.parts.store, run.parts.catalog.directory_tree());
    for SavedBlock { address, .. } in blocks {
        directory.free_block(store, address, Referenced::No);
    }
}

/// What an image lacks of a key.
enum Lacking<'g> {
    Put(&'g [u8]),
    Gone,
    /// A value that is not a row's, or that only the image tells.
    Elsewhere,
}

/// The keys whose state at `at` a leaf's image lacks: those that changed since it was made.
fn lacking<'g>(
    state: &LeafState,
    view: &'g LeafView,
    at: Seq,
    guard: &'g Guard,
) -> impl Iterator<Item = (&'g [u8], Lacking<'g>)> {
    let first = state.valid_to;
    (0..view.order.len()).filter_map(move |place| {
        let entry = view.entry(place);
        let sight = see_from(entry.chain.head(guard), at, guard);
        sight.seen.filter(|seen| seen.seq >= first)?;
        let lacking = match sight.ground {
            _ if sight.added.is_some() => Lacking::Elsewhere,
            Ground::Value(Value::Inline(bytes)) => Lacking::Put(bytes),
            Ground::Value(Value::Large(..) | Value::Spilled(_)) => Lacking::Elsewhere,
            Ground::Gone => Lacking::Gone,
            Ground::Base => return None,
        };
        Some((&*entry.key, lacking))
    })
}

/// Bytes of keys and values that a leaf's image lacks at `at`; `None` where not all of them can be saved. A row that is
/// gone counts for the room that its image still takes.
fn lacking_bytes(tree: &Tree, state: &LeafState, view: &LeafView, at: Seq, guard: &Guard) -> Option<usize> {
    let has_large = tree.has_large.load(Ordering::Acquire);
    // The image would refer to a large value that nobody finds at the position, whose blocks are given back.
    let may_be_over_large = |key: &[u8]| match &view.base {
        Base::Image(image) => image
            .find(key)
            .is_ok_and(|row| matches!(image.value(row), CellValue::Large(_))),
        Base::OnDisk(_) => true,
        Base::Empty => false,
    };
    let row_bytes = match &view.base {
        Base::Image(image) => image.row_bytes() / image.len().max(1),
        Base::OnDisk(_) | Base::Empty => tree.shape.leaf_bytes / GONE_PART,
    };
    let mut rows = lacking(state, view, at, guard);
    rows.try_fold(0, |bytes, (key, value)| match value {
        _ if has_large && may_be_over_large(key) => None,
        Lacking::Put(value) if value.len() < tree.shape.large_bytes_min => Some(bytes + key.len() + value.len()),
        Lacking::Gone => Some(bytes + key.len() + row_bytes),
        Lacking::Put(_) | Lacking::Elsewhere => None,
    })
}

impl CheckpointParts {
    /// Lists the leaves whose changes the last checkpoint saved: they are in no image.
    pub(super) fn list_saved(&self) {
        for (tree, leaf) in self.saved_deltas.take_leaves() {
            let is_dirty = {
                let guard = rcu::pin();
                let state = leaf.state.lock();
                !state.is_clean() && !leaf.view.load(&guard).retired
            };
            if is_dirty && !tree.is_dead() {
                self.catalog.list(&tree, &leaf);
            }
        }
    }
}

#[cfg(test)]
mod tests;
