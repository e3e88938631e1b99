//! The images of leaves: which one is written, and how it becomes the leaf's own.
//!
//! While a checkpoint runs, an image that is good for its position is written for every leaf that has none; only after
//! that may a newer one be written, which the checkpoint does not see (`Purpose::Later`). The leaf stays readable and
//! writable all the time.

use super::{Appended, Need, PageWriter, WriteBack, Written};
use crate::consolidation::{image_at, row_bytes, without_blocks};
use crate::consolidator::NewBase;
use crate::leaf::{Base, Leaf, LeafState, LeafView};
use crate::page::LeafImage;
use crate::pages::if_readable;
use crate::restructure::Split;
use crate::running::CheckpointPosition;
use crate::tree::Tree;
use crate::version::SEQ_MAX;
use blocks::{BlockAddr, Purpose, Referenced};
use bytes::Bytes;
use engine::{Result, Seq};
use rcu::{Guard, MutexGuard};
use std::sync::Arc;

/// Bytes of images after which what was appended is flushed and published.
const FLUSH_BYTES: usize = 1 << 20;

/// An image, ready to be appended; its leaf is marked as being written.
pub(super) struct Prepared {
    pub(super) tree: Arc<Tree>,
    pub(super) leaf: Arc<Leaf>,
    image: LeafImage,
    valid_from: Seq,
    dropped_large: Vec<Bytes>,
    purpose: Purpose,
    /// Number of the checkpoint that ran when the image was made, 0 for none.
    checkpoint_number: u64,
}

/// What a look at a leaf comes to.
enum PrepareStep {
    Append(Box<Prepared>),
    /// Something changed: look again.
    Again,
    /// As `Again`; the leaf's rows have come into memory.
    CameIn,
    /// As `Again`; the leaf is long for one row, which its lock was given up to find out.
    DoesNotSplit,
    Over(Written),
}

/// Why a leaf is written.
#[derive(Clone, Copy)]
struct Wanted {
    need: Need,
    /// The checkpoint that runs.
    running: Option<CheckpointPosition>,
    /// The same if it lacks an image of the leaf: then that comes first.
    missing_at: Option<CheckpointPosition>,
}

impl Wanted {
    /// Whether, and why, a leaf has to be written. Under its lock.
    fn of(tree: &Tree, state: &LeafState, need: Need, running: Option<CheckpointPosition>) -> Option<Self> {
        // A checkpoint that has the tree's root, or does not write the tree, needs nothing more of it.
        let missing_at = running.filter(|&position| {
            !state.has_state_at(position.seq) && !state.is_noted_for(position) && !tree.is_settled_for(position.number)
        });
        let is_needed = match need {
            Need::Checkpoint => missing_at.is_some(),
            Need::Dirty => !state.is_clean(),
            Need::Move => true,
        };
        is_needed.then_some(Self {
            need,
            running,
            missing_at,
        })
    }

    fn prepared(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, base: NewBase, dropped_large: Vec<Bytes>) -> PrepareStep {
        PrepareStep::Append(Box::new(Prepared {
            tree: tree.clone(),
            leaf: leaf.clone(),
            image: base.image,
            valid_from: base.newest,
            dropped_large,
            purpose: match self.running {
                Some(_) if self.missing_at.is_none() => Purpose::Later,
                _ => Purpose::Checkpoint,
            },
            checkpoint_number: self.running.map_or(0, |position| position.number),
        }))
    }
}

impl PageWriter<'_> {
    /// Writes a leaf where `need` says so.
    pub(crate) fn write(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, need: Need) -> Result<Written> {
        let (mut came_in, mut may_split) = (false, true);
        loop {
            // Before the leaf is marked as being written, for which others wait.
            self.hold_off_checkpoint();
            match self.prepare(tree, leaf, need, may_split)? {
                PrepareStep::Again => {}
                PrepareStep::CameIn => came_in = true,
                PrepareStep::DoesNotSplit => may_split = false,
                PrepareStep::Over(written) => return Ok(written),
                PrepareStep::Append(prepared) => return self.append_prepared(*prepared, came_in),
            }
        }
    }

    fn append_prepared(&mut self, prepared: Prepared, came_in: bool) -> Result<Written> {
        if prepared.tree.is_dead() {
            self.shared.give_up(&prepared);
            return Ok(Written::Retired);
        }
        let (tree, low) = (&prepared.tree, &prepared.leaf.low);
        match self.append_leaf(tree, prepared.purpose, &prepared.image, low) {
            Ok(address) => self.pending.push(Appended {
                prepared,
                address,
                came_in,
            }),
            Err(error) => {
                // A failed append voids what was appended before it, too.
                self.shared.give_up(&prepared);
                return Err(error);
            }
        }
        if self.pending_bytes >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(Written::Done)
    }

    /// Looks at a leaf and does what has to be done first, if anything; otherwise makes its image and marks it as being
    /// written.
    fn prepare(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, need: Need, may_split: bool) -> Result<PrepareStep> {
        let shared = self.shared;
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if view.retired || tree.is_dead() {
            return Ok(PrepareStep::Over(Written::Retired));
        }
        if state.writing.is_some() {
            return Ok(PrepareStep::Over(Written::Busy));
        }
        let Some(wanted) = Wanted::of(tree, &state, need, shared.running.get()) else {
            return Ok(PrepareStep::Over(Written::Done));
        };
        if let Base::OnDisk(address) = view.base {
            // Neither locked nor pinned: this reads.
            drop(state);
            drop(guard);
            let came_in = if_readable(shared.pages.bring_base_in(tree, leaf, address, None))?;
            if came_in.is_none() {
                shared.counters.leaves_unreadable.add(1);
                return Ok(PrepareStep::Over(Written::Unreadable));
            }
            return Ok(PrepareStep::CameIn);
        }
        if may_split && is_too_large(tree, view, &state, &guard) {
            drop(state);
            return Ok(shared.split_first(tree, leaf));
        }
        let through = wanted.missing_at.map(|position| position.seq);
        let seen_at = through.unwrap_or_else(|| shared.readers.published());
        let large = without_blocks(view, seen_at, tree.shape.large_bytes_min, &guard);
        if !large.is_empty() {
            // Nobody else may write the leaf meanwhile, and give the same values blocks.
            state.writing = Some(SEQ_MAX);
            drop(state);
            drop(guard);
            let given = self.give_blocks(tree, leaf, large);
            leaf.state.lock().writing = None;
            return given.map(|()| PrepareStep::Again);
        }
        match through {
            Some(seq) if state.base_newest > seq => {
                Ok(shared.prepare_older(tree, leaf, &mut state, wanted, seq, &guard))
            }
            _ => Ok(shared.prepare_newest(tree, leaf, state, wanted, seen_at, &guard)),
        }
    }
}

impl WriteBack {
    /// A leaf that has grown too large is split before it is written.
    fn split_first(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) -> PrepareStep {
        match self.structure.split(tree, leaf, false) {
            Split::Done(_) | Split::Retired => PrepareStep::Over(Written::Retired),
            // Others may have written it meanwhile, and dropped its base.
            Split::OnDisk(_) => PrepareStep::Again,
            Split::NotNeeded => PrepareStep::DoesNotSplit,
        }
    }

    /// The leaf as it was at the running checkpoint's position `seq`, which its base has passed.
    fn prepare_older(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        state: &mut LeafState,
        wanted: Wanted,
        seq: Seq,
        guard: &Guard,
    ) -> PrepareStep {
        state.writing = Some(seq.next());
        let base = NewBase {
            image: image_at(leaf.view.load(guard), seq, guard),
            newest: seq,
            valid_to: seq.next(),
        };
        wanted.prepared(tree, leaf, base, Vec::new())
    }

    /// The leaf as it is at `seen_at`, where its base has not got beyond that: the running checkpoint's position if
    /// that lacks an image, otherwise the published one of a moment ago. What was published since may be large and
    /// have no blocks, so that no image can hold it.
    fn prepare_newest<'l>(
        &self,
        tree: &Arc<Tree>,
        leaf: &'l Arc<Leaf>,
        mut state: MutexGuard<'l, LeafState>,
        wanted: Wanted,
        seen_at: Seq,
        guard: &Guard,
    ) -> PrepareStep {
        let consolidator = self.structure.consolidator();
        let Ok(base) = consolidator.consolidate_leaf(tree, leaf, &mut state, Some(seen_at), guard) else {
            return PrepareStep::Again;
        };
        let dropped = std::mem::take(&mut state.dropped_large);
        if base.image.is_empty() && dropped.is_empty() {
            let delta = (state.entries, state.versions);
            drop(state);
            if self.structure.remove_if_empty(tree, leaf) {
                return PrepareStep::Over(Written::Retired);
            }
            state = leaf.state.lock();
            // While it was not locked, others may have done all of this, or have written: a start does so at the
            // published position.
            let is_written = (state.entries, state.versions) != delta;
            let is_changed = state.writing.is_some() || state.base_newest > base.newest || is_written;
            if is_changed || leaf.view.load(guard).retired {
                return PrepareStep::Again;
            }
        }
        let is_nothing = base.image.is_empty() && state.disk_image.is_none();
        if is_nothing && wanted.missing_at.is_none() && wanted.need == Need::Dirty {
            // A page without rows where there is none yet: it would free nothing.
            state.dropped_large.extend(dropped);
            return PrepareStep::Over(Written::Done);
        }
        // Changes that came since the merge lie above the published position it went through.
        let valid_to = base.valid_to.min(oldest_above(leaf, base.newest, guard));
        debug_assert!(base.newest < valid_to, "an image is made as the state somewhere");
        state.writing = Some(valid_to);
        wanted.prepared(tree, leaf, base, dropped)
    }

    /// An image did not get to disk: the leaf keeps what it had.
    pub(super) fn give_up(&self, prepared: &Prepared) {
        let mut state = prepared.leaf.state.lock();
        state.writing = None;
        let dropped_large = prepared.dropped_large.clone();
        self.keep_dropped(&prepared.tree, &prepared.leaf, &mut state, dropped_large);
    }

    /// Large values that a leaf's image on disk still has. Of one that left the tree nobody writes another image.
    fn keep_dropped(&self, tree: &Tree, leaf: &Leaf, state: &mut LeafState, dropped_large: Vec<Bytes>) {
        if leaf.view.load(&rcu::pin()).retired {
            for cell in dropped_large {
                self.large_values.free_later(tree.shape.volume, cell);
            }
        } else {
            state.dropped_large.extend(dropped_large);
        }
    }

    /// Makes an image that is on disk the leaf's own.
    pub(super) fn publish(&self, mut prepared: Prepared, address: BlockAddr) {
        let dropped_large = std::mem::take(&mut prepared.dropped_large);
        let Prepared { tree, leaf, image, .. } = &prepared;
        let guard = rcu::pin();
        let structure = tree.structure.lock();
        let mut state = leaf.state.lock();
        let running = self.running.lock();
        let valid_to = state.writing.take().unwrap_or(Seq::ZERO);
        let view = leaf.view.load(&guard);
        // An image for later is good only for the checkpoint after the one that ran when it was made.
        let number_now = running.map_or(0, |position| position.number);
        let is_late = prepared.purpose == Purpose::Later && number_now != prepared.checkpoint_number;
        let is_dead = tree.is_dead();
        if view.retired || is_dead || is_late {
            let is_to_list = !view.retired && !is_dead && !state.listed;
            state.listed |= is_to_list;
            tree.free_block(&self.store, address, Referenced::No);
            self.keep_dropped(tree, leaf, &mut state, dropped_large);
            drop(running);
            drop(state);
            drop(structure);
            if is_dead {
                drop(guard);
                // The block may have been what kept it.
                self.catalog.remove_unused_volumes([tree.shape.volume].into());
            } else if is_to_list {
                self.catalog.list_dirty(tree, leaf.clone(), &guard);
                self.catalog.table_changed(tree.id);
            }
            return;
        }
        let noted = self.note_for_running(&state, &prepared, address, *running, valid_to);
        self.structure.free_image(tree, &mut state, *running, true);
        state.checkpoint = noted;
        // Under the checkpoint's lock: one that begins from now on writes this tree.
        self.catalog.table_changed(tree.id);
        drop(running);
        state.disk_image = Some(address);
        state.saved_bytes = 0;
        state.valid_from = prepared.valid_from;
        state.valid_to = valid_to;
        state.base_is_disk_image = match &view.base {
            Base::Image(base) => base.is_same(image),
            Base::Empty => image.is_empty(),
            Base::OnDisk(_) => false,
        };
        state.check_invariants(view);
        for cell in dropped_large {
            self.large_values.free_later(tree.shape.volume, cell);
        }
        let relist = valid_to != SEQ_MAX && !std::mem::replace(&mut state.listed, true);
        drop(state);
        tree.mark_path(&leaf.low, &guard);
        drop(structure);
        if relist {
            self.catalog.list_dirty(tree, leaf.clone(), &guard);
            self.catalog.table_changed(tree.id);
        } else if image.is_empty() {
            // It had to be written, because the image before had large values.
            self.structure.remove_if_empty(tree, leaf);
        }
    }

    /// Which image the running checkpoint refers to once a new one lies at `address`. Under the leaf's lock and the
    /// checkpoint's.
    fn note_for_running(
        &self,
        state: &LeafState,
        prepared: &Prepared,
        address: BlockAddr,
        running: Option<CheckpointPosition>,
        valid_to: Seq,
    ) -> Option<(u64, Option<BlockAddr>)> {
        let Some(position) = running else {
            return state.checkpoint;
        };
        let is_noted = state.is_noted_for(position);
        let was_good = is_noted || state.has_state_at(position.seq);
        let is_good = prepared.valid_from <= position.seq && position.seq < valid_to;
        // It refers to another image, to none of this leaf, or to the leaf as it was before.
        let is_unwanted = !is_good || was_good || prepared.tree.is_settled_for(position.number);
        if prepared.purpose == Purpose::Checkpoint && is_unwanted {
            self.store.postpone(prepared.tree.shape.volume, address);
        }
        if was_good && !is_noted {
            Some((position.number, state.disk_image))
        } else {
            state.checkpoint
        }
    }
}

/// Whether a leaf should be split before it is written.
fn is_too_large(tree: &Tree, view: &LeafView, state: &LeafState, guard: &Guard) -> bool {
    let most = tree.split_above();
    view.rows_at_most(state) > most && row_bytes(view, tree.shape.large_bytes_min, guard) > most
}

/// The oldest change in a leaf's delta above `newest`.
fn oldest_above(leaf: &Leaf, newest: Seq, guard: &Guard) -> Seq {
    let view = leaf.view.load(guard);
    let mut oldest = SEQ_MAX;
    for at in 0..view.order.len() {
        let mut next = view.entry(at).chain.head(guard);
        while let Some(version) = next
            && version.seq > newest
        {
            oldest = oldest.min(version.seq);
            next = version.older(guard);
        }
    }
    if view.range_tombstone > newest {
        oldest.min(view.range_tombstone)
    } else {
        oldest
    }
}
