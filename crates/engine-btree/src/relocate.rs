//! Emptying segments of the files, so that files get shorter: what lies in them is written anew elsewhere.
//!
//! The block store chooses segments after each checkpoint, and bounds what they cost. One is read as a whole, and each block
//! in it is looked up in its tree by a key of its content, so that the work goes by what is moved and not by all there is. A leaf gets a new
//! image at once; an inner node is marked, and the next checkpoint writes it. Their old blocks are free with that
//! checkpoint, which also cuts the file.
//!
//! Large values do not move: nothing says which leaf one belongs to, and addresses of its blocks are in the hands of readers. A segment that has
//! one is given up at the first look, used like any other, and not chosen again before an eighth of what is in it has gone.

use crate::core::{Core, Rows};
use crate::directory::{DIRECTORY, is_live};
use crate::leaf::Leaf;
use crate::page::{LeafImage, decode_inner};
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
            let is_movable = |block: &MovingBlock| block.kind != BlockKind::Large;
            let mut can_be_emptied = blocks.iter().all(is_movable);
            let mut cold = Vec::new();
            if can_be_emptied {
                for step in blocks.chunks(STEP) {
                    for block in step {
                        can_be_emptied &= self.move_block(block, &mut writer, &mut cold)?;
                    }
                    writer.flush()?;
                }
            }
            for (tree, leaf) in cold {
                self.drop_base(&tree, &leaf);
                self.unlink(&tree, &leaf);
            }
            if !can_be_emptied {
                self.store.give_up_emptying(volume, segment);
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

    /// Has one block written elsewhere. False when nobody can tell where it belongs.
    fn move_block(&self, block: &MovingBlock, writer: &mut PageWriter<'_>, cold: &mut Vec<Cold>) -> Result<bool> {
        let tree = if block.owner == DIRECTORY.0 {
            if block.kind == BlockKind::Leaf {
                // Its state at a checkpoint's cut comes to be while that runs: only the checkpoint itself may write it.
                self.directory_moves.lock().push(block.clone());
                return Ok(true);
            }
            self.directory_tree.clone()
        } else {
            let guard = rcu::pin();
            match self.tables.get(TableId(block.owner), &guard) {
                Some(table) if is_live(table) => table.tree.clone(),
                // It goes with its table.
                _ => return Ok(true),
            }
        };
        match block.kind {
            BlockKind::Leaf => {
                let Ok(image) = LeafImage::decode(&block.raw) else {
                    return Ok(false);
                };
                self.move_leaf_of(&tree, &image, block.addr, writer, cold)
            }
            BlockKind::Inner => {
                let Ok(page) = decode_inner(&block.raw) else {
                    return Ok(false);
                };
                if page.separators.len() == 0 {
                    return self.move_inner(&tree, Target::First, block.addr, page.level);
                }
                let key = page.separators.get(0).to_vec();
                self.move_inner(&tree, Target::At(&key), block.addr, page.level)?;
                Ok(true)
            }
            BlockKind::Large | BlockKind::Map | BlockKind::Meta => Ok(false),
        }
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
