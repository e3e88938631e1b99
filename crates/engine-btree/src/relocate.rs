//! Emptying segments of the files, so that files get shorter: what lies in them is written anew elsewhere.
//!
//! The block store chooses segments after each checkpoint, and bounds what they cost. One is read as a whole, and each block
//! in it is looked up in its tree by a key of its content, so that the work goes by what is moved and not by all there is. A leaf gets a new
//! image at once; an inner node is marked, and the next checkpoint writes it. Their old blocks are free with that
//! checkpoint, which also cuts the file.
//!
//! A large value is found by the key that its blocks have as a label, and moves as a whole, as if the same had been written again: the old
//! blocks are free when no reader can have their addresses. That has to wait while a checkpoint runs. Where it cannot be (a block has no
//! label) the segment is given up, used like any other, and not chosen again before an eighth of what is in it has gone.

use crate::core::{Core, Rows};
use crate::directory::{DIRECTORY, is_live};
use crate::leaf::{Base, Found, Leaf, NEWEST};
use crate::page::{LargeRef, LeafImage, decode_inner};
use crate::tree::{Child, Target, Tree};
use crate::workers::Class;
use crate::write_back::{Need, PageWriter};
use blocks::{BlockAddr, BlockKind, MovingBlock};
use engine::{ErrorKind, Result, TableId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks that are moved with one flush. Few: a checkpoint that needs a leaf waits until it is written, and this runs only when
/// nobody else wants a processor.
const STEP: usize = 16;

/// Looks for the leaf of a large value before it stays where it is.
const LOOKS_MAX: usize = 16;

/// What becomes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It has been written elsewhere, or has gone already.
    Goes,
    /// Nobody can tell where it belongs, or it cannot be moved.
    Stays,
    /// It cannot be moved while a checkpoint runs.
    Waits,
}

impl Fate {
    /// `false` stands for a block that may lie there still, unfound.
    fn of(goes: bool) -> Self {
        if goes { Self::Goes } else { Self::Stays }
    }
}

/// A leaf that came into memory only to be moved.
type Cold = (Arc<Tree>, Arc<Leaf>);

impl Core {
    /// Has a background thread empty the segments that were chosen. With no threads the caller does the work.
    pub(crate) fn relocate_soon(&self) {
        if self.store.segments_to_empty().is_empty() || self.relocating.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.workers.threads() == 0 {
            return self.relocate_now();
        }
        let core = self.me.clone();
        let submitted = self.workers.submit(Class::Background, move || {
            if let Some(core) = core.upgrade() {
                core.relocate_now();
            }
        });
        if submitted.is_err() {
            self.relocating.store(false, Ordering::Release);
        }
    }

    /// An error stops the engine unless the disk is full.
    fn relocate_now(&self) {
        let result = self.relocate();
        self.relocating.store(false, Ordering::Release);
        if let Err(error) = result
            && !matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Closed)
        {
            self.stop(&format!("moving blocks failed: {error}"));
        }
    }

    /// Writes anew what lies in the segments that the block store wants to empty.
    pub(crate) fn relocate(&self) -> Result<()> {
        let mut writer = PageWriter::new(self);
        for (volume, segment) in self.store.segments_to_empty() {
            self.check_running()?;
            let blocks = self.store.read_segment_to_empty(volume, segment)?;
            let mut cold = Vec::new();
            let mut fate = Fate::Goes;
            for step in blocks.chunks(STEP) {
                for block in step {
                    fate = fate.max(self.move_block(block, &mut writer, &mut cold)?);
                }
                writer.flush()?;
                if fate == Fate::Waits {
                    break;
                }
            }
            for (tree, leaf) in cold {
                self.drop_base(&tree, &leaf);
                self.unlink(&tree, &leaf);
            }
            match fate {
                Fate::Goes => {}
                Fate::Stays => self.store.give_up_emptying(volume, segment),
                // The checkpoint that runs chooses segments again.
                Fate::Waits => return Ok(()),
            }
        }
        Ok(())
    }

    /// Writes leaves of the directory anew that a relocation has met. For the running checkpoint, when it has written its rows.
    pub(crate) fn move_directory_leaves(&self) -> Result<()> {
        let blocks = std::mem::take(&mut *self.directory_moves.lock());
        let mut writer = PageWriter::new(self);
        for block in blocks {
            // One that cannot be read stands in nobody's way.
            if let Ok(image) = LeafImage::decode(&block.raw) {
                self.move_leaf_of(&self.directory_tree, &image, block.addr, &mut writer, &mut Vec::new())?;
            }
        }
        writer.flush()
    }

    /// Has one block written elsewhere.
    fn move_block(&self, block: &MovingBlock, writer: &mut PageWriter<'_>, cold: &mut Vec<Cold>) -> Result<Fate> {
        let tree = if block.owner == DIRECTORY.0 {
            if block.kind == BlockKind::Leaf {
                // Its state at a checkpoint's cut comes to be while that runs: only the checkpoint itself may write it.
                self.directory_moves.lock().push(block.clone());
                return Ok(Fate::Goes);
            }
            self.directory_tree.clone()
        } else {
            let guard = rcu::pin();
            match self.tables.get(TableId(block.owner), &guard) {
                // A row is written where it is read already.
                Some(table) if block.kind == BlockKind::Large && !table.lives_at(self.pins.published()) => {
                    return Ok(Fate::Stays);
                }
                Some(table) if is_live(table) => table.tree.clone(),
                // It goes with its table.
                _ => return Ok(Fate::Goes),
            }
        };
        match block.kind {
            BlockKind::Leaf => {
                let Ok(image) = LeafImage::decode(&block.raw) else {
                    return Ok(Fate::Stays);
                };
                self.move_leaf_of(&tree, &image, block.addr, writer, cold).map(Fate::of)
            }
            BlockKind::Inner => {
                let Ok(page) = decode_inner(&block.raw) else {
                    return Ok(Fate::Stays);
                };
                if page.separators.len() == 0 {
                    return self
                        .move_inner(&tree, Target::First, block.addr, page.level)
                        .map(Fate::of);
                }
                let key = page.separators.get(0).to_vec();
                self.move_inner(&tree, Target::At(&key), block.addr, page.level)?;
                Ok(Fate::Goes)
            }
            BlockKind::Large if block.label.is_empty() => Ok(Fate::Stays),
            BlockKind::Large => self.move_large(&tree, block, writer),
            BlockKind::Map | BlockKind::Meta => Ok(Fate::Stays),
        }
    }

    /// Has the large value written anew that a block belongs to.
    fn move_large(&self, tree: &Arc<Tree>, block: &MovingBlock, writer: &mut PageWriter<'_>) -> Result<Fate> {
        let key = &block.label[..];
        let Some(leaf) = self.leaf_with_rows(tree, key)? else {
            return Ok(Fate::Stays);
        };
        let cell = {
            let guard = rcu::pin();
            let view = leaf.view.load(&guard);
            if view.retired {
                // The next plan finds the block again.
                return Ok(Fate::Goes);
            }
            let Found::Large(cell) = view.get(key, NEWEST, &guard) else {
                // Something else is there: the block goes when nobody reads it.
                return Ok(Fate::Goes);
            };
            let has_block = |large: LargeRef<'_>| large.addresses().any(|address| address == block.addr);
            if !LargeRef::from_cell(&cell).is_some_and(has_block) {
                return Ok(Fate::Goes);
            }
            if !view.has_large_in_base(key, &cell) {
                return Ok(Fate::Stays);
            }
            cell
        };
        match writer.move_large(tree, &leaf, key, &cell) {
            // One that cannot be read stands in nobody's way.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Fate::Stays),
            moved => moved,
        }
    }

    /// The leaf of a key with its rows in memory and room in its delta, unless it changes all the time. One that comes in for this is
    /// the first to go again; the next checkpoint needs it.
    fn leaf_with_rows(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Arc<Leaf>>> {
        let target = Target::At(key);
        let mut is_cold = false;
        for _ in 0..LOOKS_MAX {
            self.check_running()?;
            let guard = rcu::pin();
            let leaf = match tree.descend(target, 0, &guard).child {
                Child::Leaf(leaf) => leaf.clone(),
                Child::Stored { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    is_cold = level == 0;
                    self.bring_in(tree, target, address, level, Rows::Wanted)?;
                    continue;
                }
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            };
            if let Base::Stored(address) = leaf.view.load(&guard).base {
                drop(guard);
                self.bring_base_in(tree, &leaf, address)?;
                continue;
            }
            if !Leaf::has_room(&leaf.state.lock()) {
                drop(guard);
                self.make_room(tree, &leaf, false)?;
                continue;
            }
            if is_cold {
                leaf.warmth.store(0, Ordering::Relaxed);
            }
            return Ok(Some(leaf));
        }
        Ok(None)
    }

    /// Writes the leaf anew whose image this is, if it lies at `address` still. False when it may lie there unfound.
    fn move_leaf_of(
        &self,
        tree: &Arc<Tree>,
        image: &LeafImage,
        address: BlockAddr,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<Cold>,
    ) -> Result<bool> {
        if image.is_empty() {
            // Without rows it may be anywhere; the only leaf of a tree is found.
            return self.move_leaf(tree, Target::First, address, writer, cold);
        }
        let key = image.key(0).to_vec();
        self.move_leaf(tree, Target::At(&key), address, writer, cold)?;
        // One that is not there has been given back.
        Ok(true)
    }

    /// Writes a leaf anew if its image lies at `address`; false when that is not so.
    fn move_leaf(
        &self,
        tree: &Arc<Tree>,
        target: Target<'_>,
        address: BlockAddr,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<Cold>,
    ) -> Result<bool> {
        let mut is_cold = false;
        loop {
            self.check_running()?;
            let (found, level) = {
                let guard = rcu::pin();
                match tree.descend(target, 0, &guard).child {
                    Child::Leaf(leaf) => {
                        let leaf = leaf.clone();
                        drop(guard);
                        if leaf.state.lock().stored != Some(address) {
                            return Ok(false);
                        }
                        if is_cold {
                            leaf.warmth.store(0, Ordering::Relaxed);
                            cold.push((tree.clone(), leaf.clone()));
                        }
                        writer.write(tree, &leaf, Need::Move)?;
                        self.counters.relocated.add(1);
                        return Ok(true);
                    }
                    Child::Stored { address, level } => (*address, *level),
                    Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
                }
            };
            if level == 0 && found != address {
                return Ok(false);
            }
            is_cold = level == 0;
            self.bring_in(tree, target, found, level, Rows::Wanted)?;
        }
    }

    /// Has the next checkpoint write an inner node anew if it lies at `address`; false when that is not so.
    fn move_inner(&self, tree: &Arc<Tree>, target: Target<'_>, address: BlockAddr, level: u8) -> Result<bool> {
        loop {
            self.check_running()?;
            let (found, found_level) = {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                match tree.descend(target, level, &guard).child {
                    Child::Inner(inner) if inner.level == level => {
                        if inner.disk.lock().address != Some(address) {
                            return Ok(false);
                        }
                        mark_down_to(tree, level, target, &guard);
                        self.table_changed(tree.id);
                        return Ok(true);
                    }
                    Child::Stored { address, level } => (*address, *level),
                    // The tree has become lower.
                    Child::Inner(_) | Child::Leaf(_) => return Ok(false),
                }
            };
            if found_level < level || (found_level == level && found != address) {
                return Ok(false);
            }
            self.bring_in(tree, target, found, found_level, Rows::NotYet)?;
        }
    }
}

/// Marks the inner nodes from the root down to one of a level dirty. Under `structure`.
fn mark_down_to(tree: &Tree, level: u8, target: Target<'_>, guard: &rcu::Guard) {
    let mut child = tree.root.load(guard);
    while let Child::Inner(inner) = child
        && inner.level >= level
    {
        inner.dirty.store(true, Ordering::Release);
        let index = match target {
            Target::At(key) => inner.separators.child_for(key),
            _ => 0,
        };
        child = inner.children[index].load(guard);
    }
}
