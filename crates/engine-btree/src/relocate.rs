//! Emptying segments of the files, so that files get shorter: what lies in them is written anew elsewhere.
//!
//! The block store chooses segments after each checkpoint, and bounds what they cost. One is read as a whole, and each block
//! in it is looked up in its tree by a key of its content, so that the work goes by what is moved and not by all there is. One without a
//! key (a leaf without rows, an inner node with one child) has the key that its range begins with as a label. A leaf gets a new
//! image at once; an inner node is marked, and the next checkpoint writes it. Their old blocks are free with that
//! checkpoint, which also cuts the file.
//!
//! A large value is found by the key that its blocks have as a label, and moves as a whole, as if the same had been written again: the old
//! blocks are free when no reader can have their addresses. That has to wait while a checkpoint runs.
//!
//! Where a block's key is too long for a label, or the block cannot be read, the segment is given up, used like any other, and not chosen
//! again before an eighth of what is in it has gone.

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

/// A leaf that came into memory only to be moved.
type Cold = (Arc<Tree>, Arc<Leaf>);

impl Core {
    /// Has a background thread empty the segments that were chosen. With no threads the caller does the work.
    pub(crate) fn relocate_soon(&self) {
        if !self.is_compacting() && !self.store.segments_to_empty().is_empty() {
            self.run_soon(
                Class::Background,
                |core| &core.relocating,
                "moving blocks",
                |core| core.relocate(|| !core.is_compacting()),
            );
        }
    }

    fn is_compacting(&self) -> bool {
        self.compactions.load(Ordering::Acquire) > 0
    }

    /// Writes anew what lies in the segments that the block store wants to empty, as long as `goes_on`.
    pub(crate) fn relocate(&self, goes_on: impl Fn() -> bool) -> Result<()> {
        let _alone = self.emptying.lock();
        let mut writer = PageWriter::new(self);
        for (volume, segment) in self.store.segments_to_empty() {
            self.check_running()?;
            if !goes_on() {
                return Ok(());
            }
            let blocks = self.store.read_segment_to_empty(volume, segment)?;
            let mut cold = Vec::new();
            let mut fate = Fate::Goes;
            for step in blocks.chunks(STEP) {
                for block in step {
                    fate = fate.max(self.move_block(block, &mut writer, &mut cold)?);
                }
                writer.flush()?;
                if fate == Fate::Waits || !goes_on() {
                    fate = Fate::Waits;
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
                // The checkpoint or compaction that runs chooses segments again.
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
                self.move_leaf_of(&self.directory_tree, &image, &block, &mut writer, &mut Vec::new())?;
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
                if self.move_leaf_of(&tree, &image, block, writer, cold)? || !image.is_empty() {
                    return Ok(Fate::Goes);
                }
                Ok(self.fate_of_unfound(&tree, block))
            }
            BlockKind::Inner => {
                let Ok(page) = decode_inner(&block.raw) else {
                    return Ok(Fate::Stays);
                };
                let separator = (page.separators.len() > 0).then(|| page.separators.get(0).to_vec());
                let target = separator.as_deref().map_or(target_of(block), Target::At);
                if self.move_inner(&tree, target, block.addr, page.level)? || separator.is_some() {
                    return Ok(Fate::Goes);
                }
                Ok(self.fate_of_unfound(&tree, block))
            }
            BlockKind::Large if block.label.is_empty() => Ok(Fate::Stays),
            BlockKind::Large => self.move_large(&tree, block, writer),
            BlockKind::Map | BlockKind::Meta => Ok(Fate::Stays),
        }
    }

    /// A leaf or inner node without a key in it is not at the start of its label's range.
    fn fate_of_unfound(&self, tree: &Tree, block: &MovingBlock) -> Fate {
        if !block.label.is_empty() || !self.store.is_in_use(tree.shape.volume, &block.addr) {
            // It has been given back.
            Fate::Goes
        } else if self.line.lock().is_some() {
            // It may be a node that the checkpoint has written and that does not know yet where.
            Fate::Waits
        } else {
            Fate::Stays
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
                Child::Nothing => return Ok(None),
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

    /// Writes the leaf anew whose image this is; false when it is not there any more.
    fn move_leaf_of(
        &self,
        tree: &Arc<Tree>,
        image: &LeafImage,
        block: &MovingBlock,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<Cold>,
    ) -> Result<bool> {
        let key = (!image.is_empty()).then(|| image.key(0).to_vec());
        let target = key.as_deref().map_or(target_of(block), Target::At);
        self.move_leaf(tree, target, block.addr, writer, cold)
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
                    Child::Nothing => return Ok(false),
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
                    Child::Inner(_) | Child::Leaf(_) | Child::Nothing => return Ok(false),
                }
            };
            if found_level < level || (found_level == level && found != address) {
                return Ok(false);
            }
            self.bring_in(tree, target, found, found_level, Rows::NotYet)?;
        }
    }
}

/// Where to look for a leaf or inner node without a key in it.
fn target_of(block: &MovingBlock) -> Target<'_> {
    if block.label.is_empty() {
        Target::First
    } else {
        Target::At(&block.label)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store};
    use crate::options::BtreeOptions;
    use crate::page::encode_inner;
    use engine::{Engine, Maintenance, Seq};

    /// A store whose root has one child, as is left when most rows are deleted.
    fn with_one_leaf_under_a_root() -> Store {
        let mut store = Store::new(BtreeOptions {
            threads: Some(0),
            ..BtreeOptions::default()
        });
        store.write(|batch| {
            (0..1000_u32).for_each(|number| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![1; 200]));
        });
        store.checkpoint();
        store.write(|batch| {
            (1..1000_u32).for_each(|number| batch.delete(ROWS, number.to_be_bytes().to_vec()));
        });
        store.checkpoint();
        let merged = store.engine.maintain(&Maintenance::Compact(None));
        merged.expect("merged leaves");
        store
    }

    /// The tree's root, and the block it lies in.
    fn root(core: &Core, tree: &Tree) -> (Arc<crate::tree::Inner>, MovingBlock) {
        let guard = rcu::pin();
        let Child::Inner(inner) = tree.root.load(&guard).clone() else {
            panic!("the root is an inner node");
        };
        assert_eq!(inner.separators.len(), 0, "it has one child");
        let Child::Leaf(leaf) = inner.children[0].load(&guard) else {
            panic!("the child is a leaf");
        };
        let mut raw = Vec::new();
        let child = leaf.state.lock().stored.expect("it is written");
        encode_inner(inner.level, &inner.separators, &[child], &mut raw);
        let addr = inner.disk.lock().address.expect("it is written");
        let block = MovingBlock {
            addr,
            kind: BlockKind::Inner,
            owner: ROWS.0,
            raw,
            label: Vec::new(),
        };
        assert!(core.store.is_in_use(tree.shape.volume, &addr));
        (inner, block)
    }

    /// A checkpoint between reading a segment and looking for its blocks is no reason to give the segment up.
    #[test]
    fn nodes_without_keys_that_were_written_meanwhile_have_gone() {
        let store = with_one_leaf_under_a_root();
        let core = store.core();
        let tree = core.tables.get(ROWS, &rcu::pin()).expect("the table").tree.clone();
        let (inner, block) = root(core, &tree);
        let mut writer = PageWriter::new(core);
        let mut fate = |block: &MovingBlock| {
            core.move_block(block, &mut writer, &mut Vec::new())
                .expect("it can be looked for")
        };
        assert!(!inner.dirty.load(Ordering::Acquire));
        assert_eq!(fate(&block), Fate::Goes);
        assert!(
            inner.dirty.load(Ordering::Acquire),
            "the next checkpoint writes it elsewhere"
        );
        core.checkpoint(true).expect("a checkpoint");
        assert_ne!(inner.disk.lock().address, Some(block.addr));
        assert_eq!(fate(&block), Fate::Goes, "its block was given back");

        // One in use that is not there: nobody can find it, unless it is about to be there.
        let leaf = tree.leaf_in_memory(&[], &rcu::pin()).expect("it was just written");
        let elsewhere = MovingBlock {
            addr: leaf.state.lock().stored.expect("it is written"),
            ..block
        };
        assert_eq!(fate(&elsewhere), Fate::Stays);
        *core.line.lock() = Some(crate::core::Line {
            number: 99,
            cut: Seq(2),
        });
        assert_eq!(fate(&elsewhere), Fate::Waits);
        *core.line.lock() = None;
        let labelled = MovingBlock {
            label: vec![1],
            ..elsewhere
        };
        assert_eq!(fate(&labelled), Fate::Goes, "whatever has its label lies elsewhere");
    }
}
