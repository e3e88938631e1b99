//! Blocks that are in use and that the checkpoint does not refer to: values of readers, deltas and later checkpoints,
//! and tables that came after the position. They are excluded from what it records as used, so that a crash makes them
//! free.

use super::Run;
use crate::large_values::NotedForCheckpoint;
use crate::leaf::{Elsewhere, Found};
use crate::page::LargeRef;
use crate::running::CheckpointPosition;
use crate::tables::Table;
use crate::tree::{Child, Target, Tree};
use blocks::{BlockAddr, Near};
use engine::{Seq, TableId};
use rcu::Guard;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where large values lie, by the leaves whose images refer to them.
pub(super) type LargeOfLater = HashMap<(TableId, BlockAddr), Vec<BlockAddr>>;

impl Run<'_> {
    /// What [`Run::exclude_others`] would have to read, as far as it is there: that has others wait.
    pub(super) fn read_large_of_later(&self) -> LargeOfLater {
        let mut large = LargeOfLater::new();
        for table in self.later_tables() {
            let (_, leaves) = self.blocks_of_later(&table.tree);
            let read = |leaf| Some(((table.id, leaf), self.large_of(&table.tree, leaf)?));
            large.extend(leaves.into_iter().filter_map(read));
        }
        large
    }

    /// Tables that came after the position, and were loaded or written back already.
    fn later_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.changed.iter().filter(|table| table.created > self.position.seq)
    }

    /// Where the large values lie that a leaf's image refers to; `None` for one that was written anew meanwhile, which
    /// is of the checkpoint after this one.
    fn large_of(&self, tree: &Tree, leaf: BlockAddr) -> Option<Vec<BlockAddr>> {
        let image = self.parts.pages.read_leaf(tree, leaf, Near::Others).ok()?;
        let addresses = image
            .large_values()
            .flat_map(|large| large.addresses().collect::<Vec<_>>());
        Some(addresses.collect())
    }

    /// Excludes blocks that are in use and that the checkpoint does not refer to. No block is on its way. `known` are
    /// large values that were read before.
    pub(super) fn exclude_others(&self, known: &LargeOfLater) {
        let (parts, seq) = (self.parts, self.position.seq);
        let absent = parts
            .large_values
            .not_in(seq, |standing| self.is_in_place(standing, seq));
        for (volume, cell) in absent {
            for address in LargeRef::from_cell(&cell).iter().flat_map(LargeRef::addresses) {
                parts.store.exclude(volume, address);
            }
        }
        for table in self.later_tables() {
            let tree = &table.tree;
            let (mut blocks, leaves) = self.blocks_of_later(tree);
            for leaf in leaves {
                match known.get(&(table.id, leaf)) {
                    Some(large) => blocks.extend(large),
                    None => blocks.extend(self.large_of(tree, leaf).into_iter().flatten()),
                }
            }
            for address in blocks {
                parts.store.exclude(tree.shape.volume, address);
            }
        }
    }

    /// Every block of a tree of which the checkpoint has nothing, but for large values; and those of its leaves that
    /// may refer to such.
    fn blocks_of_later(&self, tree: &Tree) -> (Vec<BlockAddr>, Vec<BlockAddr>) {
        let (mut blocks, mut leaves) = (Vec::new(), Vec::new());
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        blocks_below(tree.root.load(&guard), self.position, &mut blocks, &mut leaves, &guard);
        if !tree.has_large.load(Ordering::Acquire) {
            leaves.clear();
        }
        (blocks, leaves)
    }

    /// Whether a large value that only a delta held when it was looked up there is what a reader at `at` finds.
    pub(super) fn is_in_place(&self, standing: &NotedForCheckpoint, at: Seq) -> bool {
        let Some(row) = &standing.row else { return false };
        let (tree, key) = match self.parts.catalog.get(row.table, &rcu::pin()) {
            Some(table) => (table.tree.clone(), &row.key),
            None => return false,
        };
        loop {
            let guard = rcu::pin();
            if tree.is_dead() {
                return false;
            }
            let in_base = || {
                self.parts
                    .large_values
                    .is_in_base(tree.shape.volume, &standing.cell, at)
            };
            let Child::Leaf(leaf) = tree.descend(Target::At(key), 0, &guard).child else {
                return in_base();
            };
            let view = leaf.view.load(&guard);
            if view.retired {
                continue;
            }
            return match view.get(key, at, &guard) {
                Found::Elsewhere(Elsewhere::Large(cell)) => cell == standing.cell,
                Found::NotLoaded(..) => in_base(),
                _ => false,
            };
        }
    }
}

/// Where everything below a child lies that is not a large value, and its leaves apart.
fn blocks_below(
    child: &Child,
    position: CheckpointPosition,
    blocks: &mut Vec<BlockAddr>,
    leaves: &mut Vec<BlockAddr>,
    guard: &Guard,
) {
    match child {
        Child::Nothing => {}
        Child::Leaf(leaf) => {
            let state = leaf.state.lock();
            let of_position = state.checkpoint.filter(|(number, _)| *number == position.number);
            let kept = of_position.and_then(|(_, address)| address);
            blocks.extend(kept.filter(|_| kept != state.disk_image));
            blocks.extend(state.disk_image);
            leaves.extend(state.disk_image);
        }
        Child::Inner(inner) => {
            blocks.extend(inner.disk.lock().address);
            for cell in &inner.children {
                blocks_below(cell.load(guard), position, blocks, leaves, guard);
            }
        }
        Child::OnDisk { address, level } => {
            // A tree that no checkpoint has written yet has its inner nodes in memory.
            blocks.push(*address);
            if *level == 0 {
                leaves.push(*address);
            }
        }
    }
}
