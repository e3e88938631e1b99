//! Writing leaves: fold, encode, compress, append, flush, and only then make the new image the leaf's own.
//!
//! While a checkpoint runs, an image that is good for its cut is written for every leaf that has none; only after that may a
//! newer one be written, which the checkpoint does not see (`Purpose::Later`). The leaf stays readable and writable all the
//! time; nobody's lock is held while blocks are compressed or written.

use crate::apply::is_dead;
use crate::core::{Core, Line};
use crate::fold::{homeless, image_at, row_bytes};
use crate::large_values::{LargeOwner, Place};
use crate::leaf::{Base, Leaf, LeafState, SEQ_MAX};
use crate::page::{LARGE_CHUNK_BYTES, LargeRef, LeafImage};
use crate::relocate::Fate;
use crate::restructure::{FoldedBase, Restructured};
use crate::tree::Tree;
use crate::version::{Change, Value};
use blocks::{BlockAddr, BlockKind, BlockStore, Purpose, Referenced, RunWriter, VolumeId};
use bytes::Bytes;
use engine::{EngineError, Result, Seq};
use pins::Horizon;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of images after which what was appended is flushed and published.
const FLUSH_BYTES: usize = 1 << 20;
/// How long a flush waits at most until what it replaced can be freed.
const FREE_PATIENCE: Duration = Duration::from_millis(20);

/// Which leaves to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Those that the running checkpoint lacks an image of.
    Checkpoint,
    /// Those with changes that are not on disk.
    Dirty,
    /// Any: their blocks shall lie elsewhere.
    Move,
}

/// What became of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It has the image it needed, or will have with the next flush.
    Done,
    /// It left the tree; others are listed in its place.
    Retired,
    /// Somebody else is writing it.
    Busy,
}

struct Prepared {
    tree: Arc<Tree>,
    leaf: Arc<Leaf>,
    image: LeafImage,
    valid_from: Seq,
    dropped_large: Vec<Bytes>,
    purpose: Purpose,
    /// Number of the checkpoint that ran when the image was made, 0 for none.
    line_number: u64,
}

/// The volume that a writer writes to, and whether for later.
type WriterName = (VolumeId, bool);

fn writer_name(tree: &Tree, purpose: Purpose) -> WriterName {
    (tree.shape.volume, purpose == Purpose::Later)
}

fn writer_of<'w>(
    writers: &'w mut HashMap<WriterName, RunWriter>,
    core: &Core,
    tree: &Tree,
    purpose: Purpose,
) -> &'w mut RunWriter {
    writers
        .entry(writer_name(tree, purpose))
        .or_insert_with(|| core.store.writer(tree.shape.volume, purpose))
}

/// The label of a block that is found by a key. Without one it may stay where it is for good.
fn label(key: &[u8]) -> &[u8] {
    if key.len() <= BlockStore::LABEL_BYTES_MAX {
        key
    } else {
        &[]
    }
}

/// How blocks of a tree are compressed.
fn codec_of(tree: &Tree, kind: BlockKind) -> (codec::Codec, Option<i32>) {
    match kind {
        BlockKind::Inner => (codec::Codec::Lz4, None),
        _ => (tree.shape.codec, tree.shape.level),
    }
}

/// An image that was appended.
struct Appended {
    prepared: Prepared,
    address: BlockAddr,
    /// The leaf's rows came into memory only to be written, and go again.
    came_in: bool,
}

rcu::thread_local! {
    /// Holds of this thread on `unflushed`, of whichever engine.
    static UNFLUSHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A hold on the lock that keeps a checkpoint from becoming durable.
struct Unflushed<'c> {
    _hold: rcu::RwLockReadGuard<'c, ()>,
}

impl<'c> Unflushed<'c> {
    /// Waits behind a checkpoint that waits for this lock: writers that overlap would otherwise never let it have it. Not where this
    /// thread has a hold already, for another writer: the checkpoint waits for that.
    fn begin(lock: &'c rcu::RwLock<()>) -> Self {
        let held = UNFLUSHED.with(|held| held.replace(held.get() + 1));
        Self {
            _hold: if held == 0 { lock.read() } else { lock.read_recursive() },
        }
    }
}

impl Drop for Unflushed<'_> {
    fn drop(&mut self) {
        UNFLUSHED.with(|held| held.set(held.get() - 1));
    }
}

/// Writes pages with buffers of its own. Everything appended is published by [`PageWriter::flush`]; dropped before, it leaves
/// the leaves as they were.
pub(crate) struct PageWriter<'c> {
    core: &'c Core,
    writers: HashMap<WriterName, RunWriter>,
    pending: Vec<Appended>,
    /// Every block since the last flush.
    appended: Vec<(WriterName, BlockAddr)>,
    pending_bytes: usize,
    raw: Vec<u8>,
    /// From the first block that is appended to the flush.
    unflushed: Option<Unflushed<'c>>,
}

impl<'c> PageWriter<'c> {
    pub(crate) fn new(core: &'c Core) -> Self {
        Self {
            core,
            writers: HashMap::new(),
            pending: Vec::new(),
            appended: Vec::new(),
            pending_bytes: 0,
            raw: Vec::new(),
            unflushed: None,
        }
    }

    /// Tells the tree how long the block of a leaf would get.
    pub(crate) fn sample_leaf(&mut self, tree: &Tree, image: &LeafImage) {
        self.raw.clear();
        image.encode(&mut self.raw);
        let (codec, level) = codec_of(tree, BlockKind::Leaf);
        let writer = writer_of(&mut self.writers, self.core, tree, Purpose::Later);
        // An error is told when the leaf is written.
        if let Ok(block_bytes) = writer.block_bytes(codec, level, &self.raw) {
            tree.fill.note(image.row_bytes(), block_bytes, tree.shape.leaf_bytes);
        }
    }

    /// Appends a leaf whose range begins at `low`. It may be referred to after a flush.
    pub(crate) fn append_leaf(
        &mut self,
        tree: &Tree,
        purpose: Purpose,
        image: &LeafImage,
        low: &[u8],
    ) -> Result<BlockAddr> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        image.encode(&mut raw);
        let label = if image.is_empty() { label(low) } else { &[] };
        let appended = self.append(tree, BlockKind::Leaf, purpose, &raw, label);
        self.pending_bytes += raw.len();
        self.raw = raw;
        let (address, block_bytes) = appended?;
        tree.fill.note(image.row_bytes(), block_bytes, tree.shape.leaf_bytes);
        Ok(address)
    }

    /// Appends an inner node of the running checkpoint, whose range begins at `low`. It may be referred to after a flush.
    pub(crate) fn append_inner(
        &mut self,
        tree: &Tree,
        page: &[u8],
        separators: usize,
        low: &[u8],
    ) -> Result<BlockAddr> {
        let label = if separators == 0 { label(low) } else { &[] };
        self.append(tree, BlockKind::Inner, Purpose::Checkpoint, page, label)
            .map(|(address, _)| address)
    }

    /// Appends one piece of a large value of a row. It may be referred to after a flush.
    pub(crate) fn append_piece(
        &mut self,
        tree: &Tree,
        purpose: Purpose,
        key: &[u8],
        piece: &[u8],
    ) -> Result<BlockAddr> {
        self.append(tree, BlockKind::Large, purpose, piece, label(key))
            .map(|(address, _)| address)
    }

    /// The address of a new block, and its bytes without what is left of the last sector.
    fn append(
        &mut self,
        tree: &Tree,
        kind: BlockKind,
        purpose: Purpose,
        raw: &[u8],
        label: &[u8],
    ) -> Result<(BlockAddr, usize)> {
        self.hold_off_checkpoint();
        let (codec, level) = codec_of(tree, kind);
        let writer = writer_of(&mut self.writers, self.core, tree, purpose);
        match writer.append_labelled(kind, tree.id.0, codec, level, raw, label) {
            Ok(address) => {
                let block_bytes = writer.last_block_bytes();
                self.appended.push((writer_name(tree, purpose), address));
                tree.stored_bytes.fetch_add(address.bytes(), Ordering::Relaxed);
                self.core.counters.pages_written.add(1);
                Ok((address, block_bytes))
            }
            Err(error) => {
                self.give_up_all();
                Err(error.into())
            }
        }
    }

    /// No checkpoint becomes durable from here to the next flush. A block for later, too, is one of the next checkpoint when that comes
    /// before the flush. And a tree that is not dead now keeps its volume until then.
    fn hold_off_checkpoint(&mut self) {
        if self.unflushed.is_none() {
            self.unflushed = Some(Unflushed::begin(&self.core.unflushed));
        }
    }

    /// What was appended and not flushed is void: nodes and leaves keep, or lack, an image.
    fn give_up_all(&mut self) {
        for appended in self.pending.drain(..) {
            give_up(self.core, &appended.prepared);
        }
        self.appended.clear();
        // Their blocks with them.
        self.writers.clear();
        self.unflushed = None;
    }

    /// Writes a leaf where `need` says so.
    pub(crate) fn write(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, need: Need) -> Result<Written> {
        let (mut came_in, mut may_split) = (false, true);
        loop {
            // Before the leaf is marked as being written, for which others wait.
            self.hold_off_checkpoint();
            match self.prepare(tree, leaf, need, may_split)? {
                Step::Again => {}
                Step::CameIn => came_in = true,
                Step::DoesNotSplit => may_split = false,
                Step::Over(written) => return Ok(written),
                Step::Append(prepared) => {
                    if is_dead(tree) {
                        give_up(self.core, &prepared);
                        return Ok(Written::Retired);
                    }
                    match self.append_leaf(tree, prepared.purpose, &prepared.image, &leaf.low) {
                        Ok(address) => self.pending.push(Appended {
                            prepared: *prepared,
                            address,
                            came_in,
                        }),
                        Err(error) => {
                            // A failed append voids what was appended before it, too.
                            give_up(self.core, &prepared);
                            return Err(error);
                        }
                    }
                    if self.pending_bytes >= FLUSH_BYTES {
                        self.flush()?;
                    }
                    return Ok(Written::Done);
                }
            }
        }
    }

    fn prepare(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, need: Need, may_split: bool) -> Result<Step> {
        let core = self.core;
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if view.retired || is_dead(tree) {
            return Ok(Step::Over(Written::Retired));
        }
        if state.writing.is_some() {
            return Ok(Step::Over(Written::Busy));
        }
        let line = *core.line.lock();
        let is_good = |line: Line| state.stored.is_some() && state.valid_from <= line.cut && line.cut < state.valid_to;
        // A checkpoint that has the tree's root, or does not write the tree, needs nothing more of it.
        let lacks_cut = line.filter(|&line| {
            !is_good(line)
                && state.checkpoint.is_none_or(|(number, _)| number != line.number)
                && !tree.is_settled_for(line.number)
        });
        let is_clean = state.stored.is_some() && state.valid_to == SEQ_MAX;
        let is_needed = match need {
            Need::Checkpoint => lacks_cut.is_some(),
            Need::Dirty => !is_clean,
            Need::Move => true,
        };
        if !is_needed {
            return Ok(Step::Over(Written::Done));
        }
        if let Base::Stored(address) = view.base {
            drop(state);
            drop(guard);
            core.bring_base_in(tree, leaf, address)?;
            return Ok(Step::CameIn);
        }
        let target = tree.shape.leaf_bytes;
        if may_split
            && Core::rows_at_most(view, &state) > target + target / 2
            && row_bytes(view, tree.shape.large_bytes_min, &guard) > target + target / 2
        {
            drop(state);
            return Ok(match core.split(tree, leaf, false) {
                Restructured::Split | Restructured::Retired => Step::Over(Written::Retired),
                Restructured::NotLoaded(_) => Step::Again,
                // Others may have written it meanwhile, and dropped its base.
                Restructured::Folded => Step::DoesNotSplit,
            });
        }
        let through = lacks_cut.map(|line| line.cut);
        let seen_at = through.unwrap_or_else(|| core.pins.published());
        let large = homeless(view, seen_at, tree.shape.large_bytes_min, &guard);
        if !large.is_empty() {
            state.writing = Some(SEQ_MAX);
            drop(state);
            drop(guard);
            let housed = self.house(tree, leaf, large);
            leaf.state.lock().writing = None;
            housed?;
            return Ok(Step::Again);
        }
        let prepared = |folded: FoldedBase, dropped_large| Prepared {
            tree: tree.clone(),
            leaf: leaf.clone(),
            image: folded.image,
            valid_from: folded.newest,
            dropped_large,
            purpose: match line {
                Some(_) if lacks_cut.is_none() => Purpose::Later,
                _ => Purpose::Checkpoint,
            },
            line_number: line.map_or(0, |line| line.number),
        };
        if let Some(cut) = through
            && state.base_newest > cut
        {
            state.writing = Some(cut.next());
            let folded = FoldedBase {
                image: image_at(view, cut, &guard),
                newest: cut,
                valid_to: cut.next(),
            };
            return Ok(Step::Append(Box::new(prepared(folded, Vec::new()))));
        }
        match core.fold_in_place(tree, leaf, &mut state, through, &guard) {
            Err(_) => Ok(Step::Again),
            Ok(folded) => {
                let dropped = std::mem::take(&mut state.dropped_large);
                if folded.image.is_empty() && dropped.is_empty() {
                    drop(state);
                    if core.remove_if_empty(tree, leaf) {
                        return Ok(Step::Over(Written::Retired));
                    }
                    state = leaf.state.lock();
                    if state.writing.is_some() || leaf.view.load(&guard).retired {
                        return Ok(Step::Again);
                    }
                    if state.base_newest > folded.newest {
                        return Ok(Step::Again);
                    }
                }
                if folded.image.is_empty() && state.stored.is_none() && lacks_cut.is_none() && need == Need::Dirty {
                    // A page without rows where there is none yet: it would free nothing.
                    state.dropped_large.extend(dropped);
                    return Ok(Step::Over(Written::Done));
                }
                // Changes that came since the fold lie above the published position it went through.
                state.writing = Some(folded.valid_to.min(oldest_above(leaf, folded.newest, &guard)));
                Ok(Step::Append(Box::new(prepared(folded, dropped))))
            }
        }
    }

    /// Writes large values of a leaf's delta to blocks of their own and leaves their cells in the delta.
    fn house(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, large: Vec<(Box<[u8]>, Seq, Bytes)>) -> Result<()> {
        self.hold_off_checkpoint();
        if is_dead(tree) {
            return Ok(());
        }
        tree.has_large.store(true, Ordering::Release);
        let (book, volume) = (self.core.book.clone(), tree.shape.volume);
        let mut cells: Vec<(Box<[u8]>, Seq, Bytes)> = Vec::with_capacity(large.len());
        let appended = large.into_iter().try_for_each(|(key, seq, bytes)| {
            let cell = self.append_large(tree, &key, &bytes, seq)?;
            cells.push((key, seq, cell));
            Ok(())
        });
        if let Err(error) = appended.and_then(|()| self.flush()) {
            cells.iter().for_each(|(_, _, cell)| book.forget(volume, cell));
            return Err(error);
        }
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let mut freed = 0;
        for (key, seq, cell) in cells {
            let owner = Arc::new(LargeOwner::new(book.clone(), volume, cell.clone()));
            let view = leaf.view.load(&guard);
            if let Ok(place) = view.find(&key) {
                let change = Change::Put(Value::Large(cell, Some(owner)));
                freed += view.entry(place).chain.replace_at(seq, change, &guard);
            }
        }
        state.delta_bytes = state.delta_bytes.saturating_sub(freed);
        drop(state);
        self.core.account(tree, 0, -(freed as isize));
        Ok(())
    }

    /// Appends a large value of a row, which stands in the book as written at `seq` and in a delta from then on. Answers its cell.
    fn append_large(&mut self, tree: &Arc<Tree>, key: &[u8], value: &[u8], seq: Seq) -> Result<Bytes> {
        let mut addresses = Vec::with_capacity(value.len().div_ceil(LARGE_CHUNK_BYTES));
        for piece in value.chunks(LARGE_CHUNK_BYTES) {
            addresses.push(self.append_piece(tree, Purpose::Checkpoint, key, piece)?);
        }
        let cell = Bytes::from(LargeRef::encode(value.len(), &addresses));
        // Before the flush: no checkpoint records what is used in between.
        let place = Place {
            tree: Arc::downgrade(tree),
            key: key.into(),
        };
        self.core.book.house(tree.shape.volume, &cell, seq, place);
        Ok(cell)
    }

    /// Writes a large value anew elsewhere, `cell` being the one in the leaf's base, and flushes. The copy is another version of
    /// the row, as if the same had been written again at the published position: never while a checkpoint runs, whose cut may be
    /// there.
    pub(crate) fn move_large(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, key: &[u8], cell: &[u8]) -> Result<Fate> {
        let core = self.core;
        if core.line.lock().is_some() {
            return Ok(Fate::Waits);
        }
        let value = core.read_large(tree, cell)?;
        self.hold_off_checkpoint();
        if is_dead(tree) {
            return Ok(Fate::Goes);
        }
        let (book, volume) = (core.book.clone(), tree.shape.volume);
        let copy = self.append_large(tree, key, &value, core.pins.published())?;
        if let Err(error) = self.flush() {
            book.forget(volume, &copy);
            return Err(error);
        }
        // Unless the delta takes it over, the copy is given back, after the locks.
        let owner = Arc::new(LargeOwner::new(book, volume, copy.clone()));
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let line = core.line.lock();
        let view = leaf.view.load(&guard);
        let is_as_before = view.has_large_in_base(key, cell) && Leaf::has_room(&state);
        if line.is_some() {
            return Ok(Fate::Waits);
        }
        if view.retired || !is_as_before {
            return Ok(Fate::Stays);
        }
        // No cut lies at or after the published position before the line is free again: every later one finds the copy.
        let change = Change::Put(Value::Large(copy, Some(owner.clone())));
        let pushed = leaf.push(
            &mut state,
            key,
            change,
            core.pins.published(),
            &Horizon::default(),
            &guard,
        );
        if !std::mem::replace(&mut state.listed, true) {
            core.list_dirty(tree, leaf.clone(), &guard);
        }
        core.table_changed(tree.id);
        drop(line);
        drop(state);
        core.account(tree, 0, pushed.bytes);
        core.counters.relocated.add(1);
        core.keep_in_ring(tree, leaf);
        Ok(Fate::Goes)
    }

    /// Everything appended gets to the disk's cache, and the leaves get their new images.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.pending_bytes = 0;
        let mut flushed: Vec<WriterName> = Vec::with_capacity(self.writers.len());
        let result: blocks::Result<()> = self.writers.iter_mut().try_for_each(|(name, writer)| {
            writer.flush()?;
            flushed.push(*name);
            Ok(())
        });
        if let Err(error) = result {
            // What other writers have flushed is as unwanted.
            let unwanted = self.appended.drain(..).filter(|(name, _)| flushed.contains(name));
            for ((volume, _), address) in unwanted {
                self.core.store.free(volume, address, Referenced::No);
            }
            self.give_up_all();
            return Err(EngineError::from(error));
        }
        self.appended.clear();
        for appended in std::mem::take(&mut self.pending) {
            let cold = appended
                .came_in
                .then(|| (appended.prepared.tree.clone(), appended.prepared.leaf.clone()));
            publish(self.core, appended.prepared, appended.address);
            if let Some((tree, leaf)) = cold {
                self.core.drop_base(&tree, &leaf);
            }
        }
        self.unflushed = None;
        // What the leaves had before goes back to the allocator now, not some time.
        self.core.free_replaced_in_background(FREE_PATIENCE);
        Ok(())
    }
}

impl Drop for PageWriter<'_> {
    fn drop(&mut self) {
        self.give_up_all();
    }
}

enum Step {
    Append(Box<Prepared>),
    Again,
    /// As `Again`; the leaf's rows have come into memory.
    CameIn,
    /// As `Again`; the leaf is long for one row, which its lock was given up to find out.
    DoesNotSplit,
    Over(Written),
}

/// The oldest change in a leaf's delta above `newest`.
fn oldest_above(leaf: &Leaf, newest: Seq, guard: &rcu::Guard) -> Seq {
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
    if view.hidden_from > newest {
        oldest.min(view.hidden_from)
    } else {
        oldest
    }
}

/// An image did not get to disk: the leaf keeps what it had.
fn give_up(core: &Core, prepared: &Prepared) {
    let mut state = prepared.leaf.state.lock();
    state.writing = None;
    let dropped_large = prepared.dropped_large.clone();
    keep_dropped(core, &prepared.tree, &prepared.leaf, &mut state, dropped_large);
}

/// Large values that a leaf's stored image has still. Of one that left the tree nobody stores another image.
fn keep_dropped(core: &Core, tree: &Tree, leaf: &Leaf, state: &mut LeafState, dropped_large: Vec<Bytes>) {
    if leaf.view.load(&rcu::pin()).retired {
        for cell in dropped_large {
            core.book.lose(tree.shape.volume, cell);
        }
    } else {
        state.dropped_large.extend(dropped_large);
    }
}

/// Makes an image that is on disk the leaf's own.
fn publish(core: &Core, mut prepared: Prepared, address: BlockAddr) {
    let dropped_large = std::mem::take(&mut prepared.dropped_large);
    let Prepared { tree, leaf, image, .. } = &prepared;
    let guard = rcu::pin();
    let structure = tree.structure.lock();
    let mut state = leaf.state.lock();
    let line = core.line.lock();
    let valid_to = state.writing.take().unwrap_or(Seq::ZERO);
    let view = leaf.view.load(&guard);
    // An image for later is good only for the checkpoint after the one that ran when it was made.
    let is_late = prepared.purpose == Purpose::Later && line.map_or(0, |line| line.number) != prepared.line_number;
    if view.retired || is_dead(tree) || is_late {
        core.free_block(tree, address, Referenced::No);
        keep_dropped(core, tree, leaf, &mut state, dropped_large);
        drop(line);
        if is_dead(tree) {
            drop(state);
            drop(structure);
            drop(guard);
            // The block may have been what kept it.
            return core.remove_volume_if_unused(tree.shape.volume);
        }
        if !view.retired && !std::mem::replace(&mut state.listed, true) {
            drop(state);
            drop(structure);
            core.list_dirty(tree, leaf.clone(), &guard);
            core.table_changed(tree.id);
        }
        return;
    }
    let mut checkpoint = state.checkpoint;
    if let Some(line) = *line {
        let is_replaced = checkpoint.is_some_and(|(number, _)| number == line.number);
        let is_stored_good = state.stored.is_some() && state.valid_from <= line.cut && line.cut < state.valid_to;
        let was_good = is_replaced || is_stored_good;
        if is_stored_good && !is_replaced {
            checkpoint = Some((line.number, state.stored));
        }
        let is_good = prepared.valid_from <= line.cut && line.cut < valid_to;
        // It refers to another image, to none of this leaf, or to the leaf as it was before.
        let is_unwanted = !is_good || was_good || tree.is_settled_for(line.number);
        if prepared.purpose == Purpose::Checkpoint && is_unwanted {
            core.store.postpone(tree.shape.volume, address);
        }
    }
    core.free_image(tree, &mut state, *line, true);
    state.checkpoint = checkpoint;
    // With the line: a checkpoint that begins from now on writes this tree.
    core.table_changed(tree.id);
    drop(line);
    state.stored = Some(address);
    state.valid_from = prepared.valid_from;
    state.valid_to = valid_to;
    state.base_is_stored = match &view.base {
        Base::Image(base) => base.is_same(image),
        Base::Empty => image.is_empty(),
        Base::Stored(_) => false,
    };
    for cell in dropped_large {
        core.book.lose(tree.shape.volume, cell);
    }
    let relist = valid_to != SEQ_MAX && !std::mem::replace(&mut state.listed, true);
    drop(state);
    tree.mark_path(&leaf.low, &guard);
    drop(structure);
    if relist {
        core.list_dirty(tree, leaf.clone(), &guard);
        core.table_changed(tree.id);
    } else if image.is_empty() {
        // It had to be written, because the image before had large values.
        core.remove_if_empty(tree, leaf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn writers_that_overlap_let_a_checkpoint_through() {
        let lock = rcu::RwLock::new(());
        let is_durable = AtomicBool::new(false);
        let first = Unflushed::begin(&lock);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _all_is_flushed = lock.write();
                is_durable.store(true, Ordering::SeqCst);
            });
            while lock.try_read().is_some() {
                std::thread::yield_now();
            }
            // The checkpoint waits. Another writer of this thread must not wait for it, one of another thread must.
            drop(Unflushed::begin(&lock));
            let second = scope.spawn(|| {
                let _second = Unflushed::begin(&lock);
                is_durable.load(Ordering::SeqCst)
            });
            drop(first);
            assert!(second.join().expect("it ends"), "it came before the checkpoint");
        });
    }
}
