//! Hints to the system of what will be read soon, so that the disk has several reads to do at once instead of one after
//! the other.

use crate::leaf::{Base, Leaf};
use crate::pages::Pages;
use crate::tree::{Child, Target, Tree};
use blocks::BlockAddr;

/// Where so many, all over the others, are in memory, these will be, too.
const TRIED: usize = 8;

impl Pages {
    /// Tells the system that a leaf's rows will be read soon, where they are on disk and not in memory as a compressed
    /// block.
    pub(crate) fn expect_base(&self, tree: &Tree, leaf: &Leaf) {
        let base = match leaf.view.load(&rcu::pin()).base {
            Base::OnDisk(address) => address,
            Base::Empty | Base::Image(_) => return,
        };
        if !self.has_block(tree, base) {
            self.expect_block(tree, base);
        }
    }

    /// Tells the system of the blocks in which some keys, in rising order, will be looked up soon: of those that are on
    /// disk and not in memory, where they are two and more. Each is a call of the system, in vain where its cache has
    /// the block: of some it is asked before.
    pub(crate) fn expect_keys(&self, tree: &Tree, keys: &[&[u8]]) {
        let block_of = |key: &[u8]| address_of(tree, key).filter(|address| !self.has_block(tree, *address));
        if !tried(keys).any(|key| block_of(key).is_some()) {
            return;
        }
        let mut blocks: Vec<BlockAddr> = keys.iter().filter_map(|key| block_of(key)).collect();
        blocks.dedup();
        // Whoever reads one block asks for it just as soon.
        if blocks.len() > 1 && tried(&blocks).any(|address| self.would_wait(tree, *address)) {
            blocks.iter().for_each(|address| self.expect_block(tree, *address));
        }
    }

    /// Whether a block is in memory as it is on disk.
    fn has_block(&self, tree: &Tree, address: BlockAddr) -> bool {
        self.cache().has_block(&(tree.shape.volume, address))
    }
}

/// Some of all.
fn tried<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let step = all.len().div_ceil(TRIED).max(1);
    all.iter().step_by(step)
}

/// The block that has to be read for a key, or on the way to it, unless its leaf is in memory.
fn address_of(tree: &Tree, key: &[u8]) -> Option<BlockAddr> {
    let guard = rcu::pin();
    let descent = tree.descend(Target::At(key), 0, &guard);
    match descent.child {
        Child::Leaf(leaf) => match leaf.view.load(&guard).base {
            Base::OnDisk(address) => Some(address),
            Base::Empty | Base::Image(_) => None,
        },
        Child::OnDisk { address, .. } => Some(*address),
        Child::Nothing | Child::Inner(_) => None,
    }
}
