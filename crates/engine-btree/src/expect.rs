//! Hints to the system of what will be read soon, so that the disk has several reads to do at once instead of one after
//! the other.

use crate::leaf::{Base, Leaf};
use crate::pages::Pages;
use crate::tree::{Child, Target, Tree};
use blocks::BlockAddr;

/// Of several keys: where so many, all over them, are in memory, the others will be, too.
const TRIED_KEYS: usize = 8;

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
    /// disk and not in memory, where they are two and more.
    pub(crate) fn expect_keys(&self, tree: &Tree, keys: &[&[u8]]) {
        let mut tried = (0..TRIED_KEYS).filter_map(|number| keys.get(number * keys.len() / TRIED_KEYS));
        if tried.all(|key| address_of(tree, key).is_none_or(|address| self.has_block(tree, address))) {
            return;
        }
        let mut last = None;
        // Whoever reads one block asks for it just as soon.
        let mut first = None;
        for key in keys {
            let Some(address) = address_of(tree, key).filter(|address| last != Some(*address)) else {
                continue;
            };
            last = Some(address);
            if self.has_block(tree, address) {
                continue;
            }
            match &mut first {
                None => first = Some(Some(address)),
                Some(first) => {
                    let untold = first.take().into_iter().chain([address]);
                    untold.for_each(|address| self.expect_block(tree, address));
                }
            }
        }
    }

    /// Whether a block is in memory as it is on disk.
    fn has_block(&self, tree: &Tree, address: BlockAddr) -> bool {
        self.cache().has_block(&(tree.shape.volume, address))
    }
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
