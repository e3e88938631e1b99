//! Moving single blocks: what lies in one is written anew elsewhere.
//!
//! A block is looked up in its tree by a key of its content, so that the work goes by what is moved and not by all
//! there is. One without a key (a leaf without rows, an inner node with one child) has the key that its range begins
//! with as a label. A leaf gets a new image at once; an inner node is marked, and the next checkpoint writes it.
//!
//! A large value is found by the key that its blocks have as a label, and moves as a whole, as if the same had been
//! written again: the old blocks are free when no reader can have their addresses. That has to wait while a checkpoint
//! runs.

use crate::apply::Applier;
use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::clock_list::ClockEntry;
use crate::counters::Counters;
use crate::directory::DIRECTORY;
use crate::foundation::Foundation;
use crate::leaf::{Base, Elsewhere, Found, Leaf};
use crate::page::{LargeRef, LeafImage, decode_inner};
use crate::pages::{LoadRows, Pages, if_readable};
use crate::readers::Readers;
use crate::running::RunningCheckpoint;
use crate::tree::{Child, Target, Tree};
use crate::version::NEWEST;
use crate::write_back::{Move, Need, PageWriter, WriteBack, Written};
use blocks::{BlockAddr, BlockKind, BlockStore, MovingBlock};
use engine::{EngineStatus, ErrorKind, Result, TableId};
use parking_lot::Mutex;
use rcu::Guard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks for the leaf of a large value before it stays where it is.
const LOOKS_MAX: usize = 16;

/// See the module.
pub(crate) struct BlockMover {
    store: Arc<BlockStore>,
    pages: Arc<Pages>,
    cache: Arc<PageCache>,
    catalog: Arc<Catalog>,
    readers: Arc<Readers>,
    applier: Arc<Applier>,
    write_back: Arc<WriteBack>,
    running: Arc<RunningCheckpoint>,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
    /// Leaves of the directory that the next checkpoint moves.
    directory_moves: Mutex<Vec<MovingBlock>>,
}

impl BlockMover {
    pub(crate) fn new(base: &Foundation, applier: Arc<Applier>, write_back: Arc<WriteBack>) -> Self {
        Self {
            store: base.store.clone(),
            pages: base.pages.clone(),
            cache: base.cache.clone(),
            catalog: base.catalog.clone(),
            readers: base.readers.clone(),
            applier,
            write_back,
            running: base.running.clone(),
            status: base.status.clone(),
            counters: base.counters.clone(),
            directory_moves: Mutex::default(),
        }
    }

    /// A writer for [`BlockMover::move_block`].
    pub(crate) fn writer(&self) -> PageWriter<'_> {
        self.write_back.writer()
    }

    /// Has a leaf leave memory again that came in only to be moved.
    pub(crate) fn drop_again(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        self.cache.drop_base(tree, leaf);
        self.pages.unlink(tree, leaf);
    }

    /// Writes leaves of the directory anew that a relocation has met. For the running checkpoint, when it has written
    /// its rows.
    pub(crate) fn move_directory_leaves(&self) -> Result<()> {
        let blocks = std::mem::take(&mut *self.directory_moves.lock());
        let mut writer = self.write_back.writer();
        for block in blocks {
            // One that cannot be read stands in nobody's way.
            if let Ok(image) = LeafImage::decode(&block.raw) {
                self.move_leaf_of(
                    self.catalog.directory_tree(),
                    &image,
                    &block,
                    &mut writer,
                    &mut Vec::new(),
                )?;
            }
        }
        writer.flush()
    }

    /// Has one block written elsewhere.
    pub(crate) fn move_block(
        &self,
        block: &MovingBlock,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<ClockEntry>,
    ) -> Result<Move> {
        let tree = if block.owner == DIRECTORY.0 {
            if block.kind == BlockKind::Large {
                // Saved deltas: the next checkpoint writes them elsewhere.
                return Ok(Move::Done);
            }
            if block.kind == BlockKind::Leaf {
                // Its state at a checkpoint's position comes to be while that runs: only the checkpoint itself may
                // write it.
                self.directory_moves.lock().push(block.clone());
                return Ok(Move::Done);
            }
            self.catalog.directory_tree().clone()
        } else {
            let guard = rcu::pin();
            match self.catalog.get(TableId(block.owner), &guard) {
                // A row is written where it is read already.
                Some(table) if block.kind == BlockKind::Large && !table.lives_at(self.readers.published()) => {
                    return Ok(Move::Impossible);
                }
                Some(table) if table.is_live() => table.tree.clone(),
                // It goes with its table.
                _ => return Ok(Move::Done),
            }
        };
        match self.move_block_of(&tree, block, writer, cold) {
            // Its volume went with its tables meanwhile.
            Err(error) if error.kind() == ErrorKind::Invalid && tree.is_dead() => Ok(Move::Done),
            moved => moved,
        }
    }

    fn move_block_of(
        &self,
        tree: &Arc<Tree>,
        block: &MovingBlock,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<ClockEntry>,
    ) -> Result<Move> {
        match block.kind {
            BlockKind::Leaf => {
                let Ok(image) = LeafImage::decode(&block.raw) else {
                    return Ok(Move::Impossible);
                };
                Ok(match self.move_leaf_of(tree, &image, block, writer, cold)? {
                    LeafMove::Unreadable => Move::Impossible,
                    LeafMove::NotThere if image.is_empty() => self.when_not_found(tree, block),
                    LeafMove::Moved | LeafMove::NotThere => Move::Done,
                })
            }
            BlockKind::Inner => {
                let Ok(page) = decode_inner(&block.raw) else {
                    return Ok(Move::Impossible);
                };
                let separator = (page.separators.len() > 0).then(|| page.separators.get(0).to_vec());
                let target = separator.as_deref().map_or(target_of(block), Target::At);
                if self.move_inner(tree, target, block.addr, page.level)? || separator.is_some() {
                    return Ok(Move::Done);
                }
                Ok(self.when_not_found(tree, block))
            }
            BlockKind::Large if block.label.is_empty() => Ok(Move::Impossible),
            BlockKind::Large => self.move_large(tree, block, writer),
            BlockKind::Map | BlockKind::Meta => Ok(Move::Impossible),
        }
    }

    /// A leaf or inner node without a key in it is not at the start of its label's range.
    fn when_not_found(&self, tree: &Tree, block: &MovingBlock) -> Move {
        if !block.label.is_empty() || !self.store.is_in_use(tree.shape.volume, &block.addr) {
            // It has been given back.
            Move::Done
        } else if self.running.get().is_some() {
            // It may be a node that the checkpoint has written and that does not know yet where.
            Move::NotNow
        } else {
            Move::Impossible
        }
    }

    /// Has the large value written anew that a block belongs to.
    fn move_large(&self, tree: &Arc<Tree>, block: &MovingBlock, writer: &mut PageWriter<'_>) -> Result<Move> {
        let key = &block.label[..];
        let Some(leaf) = self.leaf_with_rows(tree, key)? else {
            return Ok(Move::Impossible);
        };
        let cell = {
            let guard = rcu::pin();
            let view = leaf.view.load(&guard);
            if view.retired {
                // The next plan finds the block again.
                return Ok(Move::Done);
            }
            let Found::Elsewhere(Elsewhere::Large(cell)) = view.get(key, NEWEST, &guard) else {
                // Something else is there: the block goes when nobody reads it.
                return Ok(Move::Done);
            };
            let has_block = |large: LargeRef<'_>| large.addresses().any(|address| address == block.addr);
            if !LargeRef::from_cell(&cell).is_some_and(has_block) {
                return Ok(Move::Done);
            }
            if !view.has_large_in_base(key, &cell) {
                return Ok(Move::Impossible);
            }
            cell
        };
        writer.move_large(tree, &leaf, key, &cell)
    }

    /// The leaf of a key with its rows in memory and room in its delta, unless it changes all the time. One that comes
    /// in for this is the first to go again; the next checkpoint needs it.
    fn leaf_with_rows(&self, tree: &Arc<Tree>, key: &[u8]) -> Result<Option<Arc<Leaf>>> {
        let target = Target::At(key);
        let mut is_cold = false;
        for _ in 0..LOOKS_MAX {
            self.status.check_running()?;
            let guard = rcu::pin();
            let leaf = match tree.descend(target, 0, &guard).child {
                Child::Leaf(leaf) => leaf.clone(),
                Child::OnDisk { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    is_cold = level == 0;
                    let read = self.pages.bring_in(tree, target, address, level, LoadRows::Wanted);
                    if if_readable(read)?.is_none() {
                        return Ok(None);
                    }
                    continue;
                }
                Child::Nothing => return Ok(None),
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            };
            if let Base::OnDisk(address) = leaf.view.load(&guard).base {
                drop(guard);
                if if_readable(self.pages.bring_base_in(tree, &leaf, address, None))?.is_none() {
                    return Ok(None);
                }
                continue;
            }
            if !Leaf::has_room(&leaf.state.lock()) {
                drop(guard);
                self.applier.make_room_in(tree, &leaf, false)?;
                continue;
            }
            if is_cold {
                leaf.warmth.store(0, Ordering::Relaxed);
            }
            return Ok(Some(leaf));
        }
        Ok(None)
    }

    /// Writes the leaf anew whose image this is.
    fn move_leaf_of(
        &self,
        tree: &Arc<Tree>,
        image: &LeafImage,
        block: &MovingBlock,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<ClockEntry>,
    ) -> Result<LeafMove> {
        let key = (!image.is_empty()).then(|| image.key(0).to_vec());
        let target = key.as_deref().map_or(target_of(block), Target::At);
        self.move_leaf(tree, target, block.addr, writer, cold)
    }

    /// Writes a leaf anew if its image lies at `address`.
    fn move_leaf(
        &self,
        tree: &Arc<Tree>,
        target: Target<'_>,
        address: BlockAddr,
        writer: &mut PageWriter<'_>,
        cold: &mut Vec<ClockEntry>,
    ) -> Result<LeafMove> {
        let mut is_cold = false;
        loop {
            self.status.check_running()?;
            let (found, level) = {
                let guard = rcu::pin();
                match tree.descend(target, 0, &guard).child {
                    Child::Leaf(leaf) => {
                        let leaf = leaf.clone();
                        drop(guard);
                        if leaf.state.lock().disk_image != Some(address) {
                            return Ok(LeafMove::NotThere);
                        }
                        if is_cold {
                            leaf.warmth.store(0, Ordering::Relaxed);
                            cold.push((tree.clone(), leaf.clone()));
                        }
                        if writer.write(tree, &leaf, Need::Move)? == Written::Unreadable {
                            return Ok(LeafMove::Unreadable);
                        }
                        self.counters.relocated.add(1);
                        return Ok(LeafMove::Moved);
                    }
                    Child::OnDisk { address, level } => (*address, *level),
                    Child::Nothing => return Ok(LeafMove::NotThere),
                    Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
                }
            };
            if level == 0 && found != address {
                return Ok(LeafMove::NotThere);
            }
            is_cold = level == 0;
            let read = self.pages.bring_in(tree, target, found, level, LoadRows::Wanted);
            if if_readable(read)?.is_none() {
                return Ok(LeafMove::Unreadable);
            }
        }
    }

    /// Has the next checkpoint write an inner node anew if it lies at `address`; false when that is not so.
    fn move_inner(&self, tree: &Arc<Tree>, target: Target<'_>, address: BlockAddr, level: u8) -> Result<bool> {
        loop {
            self.status.check_running()?;
            let (found, found_level) = {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                match tree.descend(target, level, &guard).child {
                    Child::Inner(inner) if inner.level == level => {
                        if inner.disk.lock().address != Some(address) {
                            return Ok(false);
                        }
                        mark_down_to(tree, level, target, &guard);
                        self.catalog.table_changed(tree.id);
                        return Ok(true);
                    }
                    Child::OnDisk { address, level } => (*address, *level),
                    // The tree has become lower.
                    Child::Inner(_) | Child::Leaf(_) | Child::Nothing => return Ok(false),
                }
            };
            if found_level < level || (found_level == level && found != address) {
                return Ok(false);
            }
            let read = self.pages.bring_in(tree, target, found, found_level, LoadRows::NotYet);
            if if_readable(read)?.is_none() {
                return Ok(false);
            }
        }
    }
}

/// What became of a leaf that is to be written elsewhere.
enum LeafMove {
    Moved,
    NotThere,
    /// It stays where it is.
    Unreadable,
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
fn mark_down_to(tree: &Tree, level: u8, target: Target<'_>, guard: &Guard) {
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
    use crate::running::CheckpointPosition;
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
    fn root(store: &BlockStore, tree: &Tree) -> (Arc<crate::tree::Inner>, MovingBlock) {
        let guard = rcu::pin();
        let Child::Inner(inner) = tree.root.load(&guard).clone() else {
            panic!("the root is an inner node");
        };
        assert_eq!(inner.separators.len(), 0, "it has one child");
        let Child::Leaf(leaf) = inner.children[0].load(&guard) else {
            panic!("the child is a leaf");
        };
        let mut raw = Vec::new();
        let child = leaf.state.lock().disk_image.expect("it is written");
        encode_inner(inner.level, &inner.separators, &[child], &mut raw);
        let addr = inner.disk.lock().address.expect("it is written");
        let block = MovingBlock {
            addr,
            kind: BlockKind::Inner,
            owner: ROWS.0,
            raw,
            label: Vec::new(),
        };
        assert!(store.is_in_use(tree.shape.volume, &addr));
        (inner, block)
    }

    /// A checkpoint between reading a segment and looking for its blocks is no reason to give the segment up.
    #[test]
    fn nodes_without_keys_that_were_written_meanwhile_have_gone() {
        let store = with_one_leaf_under_a_root();
        let base = store.base();
        let tree = store.tree(ROWS);
        let (inner, block) = root(&base.store, &tree);
        let mover = &store.parts().mover;
        let mut writer = mover.writer();
        let mut outcome = |block: &MovingBlock| {
            mover
                .move_block(block, &mut writer, &mut Vec::new())
                .expect("it can be looked for")
        };
        assert!(!inner.dirty.load(Ordering::Acquire));
        assert_eq!(outcome(&block), Move::Done);
        assert!(
            inner.dirty.load(Ordering::Acquire),
            "the next checkpoint writes it elsewhere"
        );
        store.parts().checkpoint(true).expect("a checkpoint");
        assert_ne!(inner.disk.lock().address, Some(block.addr));
        assert_eq!(outcome(&block), Move::Done, "its block was given back");

        // One in use that is not there: nobody can find it, unless it is about to be there.
        let leaf = tree.leaf_in_memory(&[], &rcu::pin()).expect("it was just written");
        let elsewhere = MovingBlock {
            addr: leaf.state.lock().disk_image.expect("it is written"),
            ..block
        };
        assert_eq!(outcome(&elsewhere), Move::Impossible);
        *base.running.lock() = Some(CheckpointPosition {
            number: 99,
            seq: Seq(2),
        });
        assert_eq!(outcome(&elsewhere), Move::NotNow);
        *base.running.lock() = None;
        let labelled = MovingBlock {
            label: vec![1],
            ..elsewhere
        };
        assert_eq!(outcome(&labelled), Move::Done, "whatever has its label lies elsewhere");
    }
}
