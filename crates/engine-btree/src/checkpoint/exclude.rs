//! Blocks that are in use and that the checkpoint does not refer to: values of readers, deltas and later checkpoints,
//! and tables that came after the position. They are excluded from what it records as used, so that a crash makes them
//! free.

use super::Run;
use crate::large_values::NotedForCheckpoint;
use crate::leaf::{Elsewhere, Found};
use crate::page::LargeRef;
use crate::running::CheckpointPosition;
use crate::tree::{Child, Target, Tree};
use blocks::{BlockAddr, Near};
use engine::{Result, Seq};
use rcu::Guard;
use std::sync::atomic::Ordering;

impl Run<'_> {
    /// Excludes blocks that are in use and that the checkpoint does not refer to. No block is on its way.
    pub(super) fn exclude_others(&self) -> Result<()> {
        let (parts, seq) = (self.parts, self.position.seq);
        let absent = parts
            .large_values
            .not_in(seq, |standing| self.is_in_place(standing, seq));
        for (volume, cell) in absent {
            for address in LargeRef::from_cell(&cell).iter().flat_map(LargeRef::addresses) {
                parts.store.exclude(volume, address);
            }
        }
        // Tables that came after the position, and were loaded or written back already.
        for table in self.changed.iter().filter(|table| table.created > seq) {
            for address in self.blocks_of_later(&table.tree) {
                parts.store.exclude(table.tree.shape.volume, address);
            }
        }
        Ok(())
    }

    /// Every block of a tree of which the checkpoint has nothing.
    fn blocks_of_later(&self, tree: &Tree) -> Vec<BlockAddr> {
        let (mut blocks, mut leaves) = (Vec::new(), Vec::new());
        {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            blocks_below(tree.root.load(&guard), self.position, &mut blocks, &mut leaves, &guard);
        }
        if tree.has_large.load(Ordering::Acquire) {
            // One that was written anew meanwhile is of the checkpoint after this one.
            let read = |leaf| self.parts.pages.read_leaf(tree, leaf, Near::Others).ok();
            for image in leaves.into_iter().filter_map(read) {
                blocks.extend(
                    image
                        .large_values()
                        .flat_map(|large| large.addresses().collect::<Vec<_>>()),
                );
            }
        }
        blocks
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
