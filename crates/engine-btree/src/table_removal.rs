//! Giving back every block of a dropped table that nobody reads any more.
//!
//! The root is taken out first: who goes down the tree from then on finds nothing, and nobody replaces what hangs
//! below. Then all of it is gone through, without a lock but a leaf's, since pages are read from disk for their
//! addresses.

use crate::cache::PageCache;
use crate::foundation::Foundation;
use crate::large_values::LargeValues;
use crate::leaf::{Base, Leaf};
use crate::page::{LargeRef, LeafImage};
use crate::pages::{Pages, if_readable};
use crate::restructure::Structure;
use crate::running::RunningCheckpoint;
use crate::tables::Table;
use crate::tree::{Child, Inner, Tree};
use blocks::{BlockAddr, BlockStore, Near, Referenced};
use engine::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// See the module.
pub(crate) struct TableRemoval {
    store: Arc<BlockStore>,
    pages: Arc<Pages>,
    cache: Arc<PageCache>,
    structure: Arc<Structure>,
    large_values: Arc<LargeValues>,
    running: Arc<RunningCheckpoint>,
}

impl TableRemoval {
    pub(crate) fn new(base: &Foundation, structure: Arc<Structure>) -> Self {
        Self {
            store: base.store.clone(),
            pages: base.pages.clone(),
            cache: base.cache.clone(),
            structure,
            large_values: base.large_values.clone(),
            running: base.running.clone(),
        }
    }

    /// Gives back every block of a table, but leaves its volume. For a checkpoint that does not have it any more.
    pub(crate) fn free_table(&self, table: &Table) -> Result<()> {
        let tree = &table.tree;
        let root = {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            tree.dead.store(true, Ordering::Release);
            drop(tree.take_dirty());
            *tree.last_leaf.lock() = None;
            let root = tree.root.load(&guard).clone();
            tree.root.replace(Child::Nothing, &guard);
            root
        };
        let mut deltas = 0;
        self.free_child(tree, &root, &mut deltas)?;
        let bytes = tree.memory_bytes.load(Ordering::Relaxed) as usize;
        self.cache
            .account(tree, -(bytes.saturating_sub(deltas) as isize), -(deltas as isize));
        Ok(())
    }

    /// Everything below a child, and itself. Not while pinned: this reads what is on disk.
    fn free_child(&self, tree: &Tree, child: &Child, deltas: &mut usize) -> Result<()> {
        match child {
            Child::Nothing => {}
            Child::Leaf(leaf) => *deltas += self.free_leaf(tree, leaf)?,
            Child::Inner(inner) => {
                self.cache.account_inner(tree, -(inner.memory_bytes() as isize));
                self.free_children(tree, inner, deltas)?;
                if let Some(address) = inner.disk.lock().address.take() {
                    tree.free_block(&self.store, address, Referenced::No);
                }
            }
            Child::OnDisk { address, level: 0 } => {
                self.free_large_of_image_at(tree, *address)?;
                tree.free_block(&self.store, *address, Referenced::No);
            }
            Child::OnDisk { address, level } => {
                // As of a leaf that cannot be read, what lies below one stays.
                if let Some(inner) = if_readable(self.pages.read_inner(tree, *address, *level))? {
                    self.free_children(tree, &inner, deltas)?;
                }
                tree.free_block(&self.store, *address, Referenced::No);
            }
        }
        Ok(())
    }

    fn free_children(&self, tree: &Tree, inner: &Inner, deltas: &mut usize) -> Result<()> {
        for cell in &inner.children {
            let child = cell.load(&rcu::pin()).clone();
            self.free_child(tree, &child, deltas)?;
        }
        Ok(())
    }

    /// A leaf in memory. Answers the bytes of its delta.
    fn free_leaf(&self, tree: &Tree, leaf: &Leaf) -> Result<usize> {
        // Retired first, so that nothing is read under the lock.
        let (on_disk, for_checkpoint, base, dropped_large, delta) = {
            let guard = rcu::pin();
            let mut state = leaf.state.lock();
            let base = leaf.view.load(&guard).base.clone();
            self.structure.retire(leaf, &mut state, &guard);
            let dropped = std::mem::take(&mut state.dropped_large);
            (
                state.disk_image.take(),
                state.checkpoint.take(),
                base,
                dropped,
                state.delta_bytes,
            )
        };
        // Those of its base, and those that a base before had and whose image is on disk still. Values in its delta
        // have owners of their own.
        match &base {
            Base::Empty => {}
            Base::Image(image) => self.free_large_of(tree, image),
            Base::OnDisk(address) => self.free_large_of_image_at(tree, *address)?,
        }
        dropped_large.iter().for_each(|cell| self.free_large(tree, cell));
        if let Some(address) = on_disk {
            tree.free_block(&self.store, address, Referenced::No);
        }
        if let Some((number, Some(address))) = for_checkpoint
            && on_disk != Some(address)
            && self.running.get().is_some_and(|position| position.number == number)
        {
            // It stayed for the checkpoint that takes the table out.
            self.store.forsake(tree.shape.volume, address);
        }
        Ok(delta)
    }

    /// Gives back the blocks of the large values that a leaf's image on disk points to.
    fn free_large_of_image_at(&self, tree: &Tree, address: BlockAddr) -> Result<()> {
        if tree.has_large.load(Ordering::Acquire) {
            // Of one that cannot be read the values stay where they are: space that is lost, but no reason to end.
            if let Some(image) = if_readable(self.pages.read_leaf(tree, address, Near::Nothing))? {
                self.free_large_of(tree, &image);
            }
        }
        Ok(())
    }

    fn free_large_of(&self, tree: &Tree, image: &LeafImage) {
        image
            .large_values()
            .for_each(|large| self.free_large(tree, large.cell()));
    }

    fn free_large(&self, tree: &Tree, cell: &[u8]) {
        self.large_values.forget(tree.shape.volume, cell);
        for address in LargeRef::from_cell(cell).iter().flat_map(LargeRef::addresses) {
            tree.free_block(&self.store, address, Referenced::No);
        }
    }
}
