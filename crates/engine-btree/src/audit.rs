//! Comparing the block store's marks with what the trees refer to: no block lost, none in two places.
//!
//! It knows the places where an address may be: inner nodes and leaves in memory, pages on disk below them, cells of
//! large values in images and deltas, values that were dropped and wait for their last reader, and loads that have not
//! ended.

use crate::consolidation::{base_value, merged};
use crate::leaf::{Base, Leaf};
use crate::page::{LargeRef, LeafImage};
use crate::pages::Pages;
use crate::parts::Parts;
use crate::tree::{Child, Tree};
use crate::version::{Change, Value};
use blocks::{BlockAddr, Near, VolumeId};
use engine::{EngineError, Result};
use std::collections::BTreeSet;

/// Times that the epoch is moved on. The versions of a chain are given up one after the other, each an epoch or two
/// after the one above it, and a step takes only a few of the bags of garbage that threads left behind.
const EPOCHS: usize = 2048;

/// Blocks that are referred to.
struct Audit<'c> {
    pages: &'c Pages,
    blocks: Vec<(VolumeId, BlockAddr)>,
    /// Of large values, which a leaf's image and its delta may both refer to: once each.
    large: BTreeSet<(u32, u64, u32)>,
}

/// A sentence for each block that is marked as used for nothing, is used without a mark, or is used twice. Nobody may
/// write, and no checkpoint or load run meanwhile.
pub(crate) fn check_space(parts: &Parts) -> Result<Vec<String>> {
    let _no_checkpoint = parts.checkpointer.hold();
    let base = &parts.base;
    base.workers.drain().map_err(EngineError::from)?;
    // Owners of large values wait for readers' epochs to pass before they give blocks back.
    for _ in 0..EPOCHS {
        rcu::pin().flush();
    }
    let mut audit = Audit {
        pages: &base.pages,
        blocks: Vec::new(),
        large: BTreeSet::new(),
    };
    audit.add_tree(base.catalog.directory_tree())?;
    for table in base.catalog.all() {
        audit.add_tree(&table.tree)?;
    }
    for (volume, cell) in base.large_values.waiting() {
        audit.add_large(volume, &cell);
    }
    audit.blocks.extend(parts.loads.blocks());
    let saved = base.saved_deltas.blocks_of(None).into_iter();
    audit.blocks.extend(saved.map(|address| (VolumeId::MAIN, address)));
    let mut problems = Vec::new();
    for (volume, cell) in base.large_values.all() {
        let known = |address: BlockAddr| audit.large.contains(&(volume.0, address.sector(), address.sectors()));
        if !LargeRef::from_cell(&cell).is_some_and(|large| large.addresses().all(known)) {
            problems.push(format!(
                "{volume:?}: a large value is noted that nothing holds: {cell:02x?}"
            ));
        }
    }
    problems.extend(base.store.verify(audit.blocks.into_iter()));
    let ignored = base.store.stats().ignored_frees;
    if ignored > 0 {
        problems.push(format!("{ignored} blocks were given back that were not in use"));
    }
    Ok(problems)
}

impl Audit<'_> {
    fn add_tree(&mut self, tree: &Tree) -> Result<()> {
        let root = tree.root.load(&rcu::pin()).clone();
        self.add_child(tree, &root)
    }

    fn add(&mut self, tree: &Tree, address: BlockAddr) {
        self.blocks.push((tree.shape.volume, address));
    }

    fn add_large(&mut self, volume: VolumeId, cell: &[u8]) {
        let Some(large) = LargeRef::from_cell(cell) else { return };
        for address in large.addresses() {
            if self.large.insert((volume.0, address.sector(), address.sectors())) {
                self.blocks.push((volume, address));
            }
        }
    }

    fn add_child(&mut self, tree: &Tree, child: &Child) -> Result<()> {
        match child {
            Child::Nothing => Ok(()),
            Child::Leaf(leaf) => self.add_leaf(tree, leaf),
            Child::Inner(inner) => {
                if let Some(address) = inner.disk.lock().address {
                    self.add(tree, address);
                }
                for cell in &inner.children {
                    let child = cell.load(&rcu::pin()).clone();
                    self.add_child(tree, &child)?;
                }
                Ok(())
            }
            Child::OnDisk { address, level: 0 } => self.add_stored_leaf(tree, *address),
            Child::OnDisk { address, level } => {
                self.add(tree, *address);
                let inner = self.pages.read_inner(tree, *address, *level)?;
                for cell in &inner.children {
                    let child = cell.load(&rcu::pin()).clone();
                    self.add_child(tree, &child)?;
                }
                Ok(())
            }
        }
    }

    fn add_stored_leaf(&mut self, tree: &Tree, address: BlockAddr) -> Result<()> {
        self.add(tree, address);
        let image = self.pages.read_leaf(tree, address, Near::Others)?;
        self.add_image(tree, &image);
        Ok(())
    }

    fn add_image(&mut self, tree: &Tree, image: &LeafImage) {
        for large in image.large_values() {
            self.add_large(tree.shape.volume, large.cell());
        }
    }

    fn add_leaf(&mut self, tree: &Tree, leaf: &Leaf) -> Result<()> {
        let (on_disk, dropped) = {
            let state = leaf.state.lock();
            (state.disk_image, state.dropped_large.clone())
        };
        if let Some(address) = on_disk {
            self.add(tree, address);
        }
        for cell in dropped {
            self.add_large(tree.shape.volume, &cell);
        }
        // Nobody writes or loads: what the view says now is so later.
        let rows_on_disk = match leaf.view.load(&rcu::pin()).base {
            Base::OnDisk(address) => Some(address),
            Base::Image(_) | Base::Empty => None,
        };
        if let Some(address) = rows_on_disk {
            let image = self.pages.read_leaf(tree, address, Near::Others)?;
            self.add_image(tree, &image);
        }
        let guard = rcu::pin();
        let view = leaf.view.load(&guard);
        let image = match &view.base {
            Base::Image(image) => Some(image),
            Base::Empty | Base::OnDisk(_) => None,
        };
        for merged in merged(view, image) {
            if let (Some(row), Some(image)) = (merged.row, image)
                && let Value::Large(cell, _) = base_value(image, row)
            {
                self.add_large(tree.shape.volume, &cell);
            }
            let mut next = merged.entry.and_then(|entry| entry.chain.head(&guard));
            while let Some(version) = next {
                // Blocks that a base had are its, or wait for readers.
                if let Change::Put(Value::Large(cell, Some(owner))) = &version.change
                    && !owner.is_in_base()
                {
                    self.add_large(tree.shape.volume, cell);
                }
                next = version.older(&guard);
            }
        }
        Ok(())
    }
}
