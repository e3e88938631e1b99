//! Step 3: every inner node above a changed address, and the root.
//!
//! A node's children are looked at together under `structure`, so that they part its range without gap or overlap; a
//! child that has no image for this checkpoint (because a split just made it) is written first, and the node looked at
//! again. A change of structure takes back what was written of the nodes above it, as that refers to blocks which are
//! given back, and they are written again. When the root is written and nothing was taken back, the checkpoint has the
//! tree.

use super::{Run, UNIT_PAGES};
use crate::directory::RootAddress;
use crate::leaf::{Base, Leaf};
use crate::page::encode_inner;
use crate::running::CheckpointPosition;
use crate::tree::{Child, Fence, Inner, Target, Tree};
use crate::write_back::PageWriter;
use blocks::{BlockAddr, Referenced};
use engine::Result;
use rcu::Guard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rounds over a tree's levels, and looks at one node, after which the tree is to be still.
const ROUNDS_BEFORE_STILL: u32 = 2;
const LOOKS_BEFORE_STILL: u32 = 3;

/// A node that was appended and not flushed: what it holds begins at `from`.
pub(super) struct AppendedInner {
    inner: Arc<Inner>,
    from: Option<Vec<u8>>,
    address: BlockAddr,
    /// Where its children lie, as the node says.
    children: Vec<BlockAddr>,
}

/// A node of a tree as the checkpoint has to find it.
enum Gathered {
    /// Nothing below changed, or it was written already.
    Has,
    /// All children have addresses.
    Ready(Arc<Inner>, Vec<BlockAddr>),
    /// These leaves must be written first.
    Leaves(Vec<Arc<Leaf>>),
    /// An inner node of this level must be written first.
    Below(u8),
}

impl Run<'_> {
    /// Writes every inner node whose children's addresses changed, and answers where the root lies. Leaves split
    /// meanwhile, and what is above those has to be written again, until there is a moment in which all of the tree is
    /// on disk.
    pub(super) fn write_inner_nodes(&self, tree: &Arc<Tree>) -> Result<Option<RootAddress>> {
        let mut writer = self.parts.write_back.writer();
        let _moves_again = Moving(tree);
        for round in 1.. {
            if round > ROUNDS_BEFORE_STILL {
                tree.is_still.store(true, Ordering::Release);
            }
            let level = {
                let guard = rcu::pin();
                match tree.root.load(&guard) {
                    Child::Leaf(_) | Child::Nothing => 0,
                    Child::Inner(inner) => inner.level,
                    // Nothing of it is in memory, so nothing changed.
                    Child::OnDisk { .. } => 0,
                }
            };
            // Level by level, so that a node's children are there when it is looked at.
            for level in 1..=level {
                self.write_level(tree, level, &mut writer)?;
            }
            let guard = rcu::pin();
            let structure = tree.structure.lock();
            let root = tree.root.load(&guard).clone();
            let found = match &root {
                Child::OnDisk { address, level } => Some(RootAddress {
                    address: *address,
                    level: *level,
                }),
                Child::Nothing => None,
                Child::Leaf(leaf) => leaf.state.lock().address_for(self.position).map(|address| RootAddress {
                    address,
                    level: leaf.level,
                }),
                Child::Inner(inner) => inner.address_for(self.position.number).map(|address| RootAddress {
                    address,
                    level: inner.level,
                }),
            };
            if let Some(found) = found {
                self.expect_recorded(tree, &[found.address])?;
                tree.root_taken.store(self.position.number, Ordering::Release);
                return Ok(Some(found));
            }
            if has_nothing(&root) {
                tree.root_taken.store(self.position.number, Ordering::Release);
                return Ok(None);
            }
            if let Child::Leaf(leaf) = &root {
                // Its base may have to be read: neither under the latch nor while what others replace has to wait.
                drop(structure);
                drop(guard);
                self.write_for_checkpoint(tree, std::slice::from_ref(leaf), &mut writer)?;
            }
        }
        unreachable!("the rounds have no end")
    }

    /// An error when the running checkpoint is about to refer to blocks that it does not record as used: they were
    /// given back, or are for the next one. It would be durable and could not be read after a crash, and nobody would
    /// notice before. Under `structure`.
    fn expect_recorded(&self, tree: &Tree, addresses: &[BlockAddr]) -> Result<()> {
        match self.parts.store.find_unrecorded(tree.shape.volume, addresses) {
            None => Ok(()),
            Some(address) => Err(self.parts.pages.corrupt(
                Some(address),
                format!(
                    "a checkpoint refers to {address:?} of {:?}, which is not in use",
                    tree.id
                ),
            )),
        }
    }

    /// Writes the changed nodes of one level, from the left to the right.
    pub(super) fn write_level(&self, tree: &Arc<Tree>, level: u8, writer: &mut PageWriter<'_>) -> Result<()> {
        let mut appended = Vec::new();
        self.append_level(tree, level, writer, &mut appended)?;
        self.flush_inner(tree, &mut appended, writer)
    }

    pub(super) fn append_level(
        &self,
        tree: &Arc<Tree>,
        level: u8,
        writer: &mut PageWriter<'_>,
        appended: &mut Vec<AppendedInner>,
    ) -> Result<()> {
        let mut raw = Vec::new();
        let mut from: Option<Vec<u8>> = None;
        let mut looks = 0;
        loop {
            looks += 1;
            if looks > LOOKS_BEFORE_STILL {
                tree.is_still.store(true, Ordering::Release);
            }
            let target = from.as_deref().map_or(Target::First, Target::At);
            let (gathered, high) = {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                // Only under dirty nodes there is something to do.
                let mut stop_level = level;
                let mut child = tree.root.load(&guard);
                while let Child::Inner(inner) = child
                    && inner.level > level
                {
                    if inner.address_for(self.position.number).is_some() {
                        stop_level = inner.level;
                        break;
                    }
                    let index = match target {
                        Target::At(key) => inner.separators.child_for(key),
                        _ => 0,
                    };
                    child = inner.children[index].load(&guard);
                }
                let descent = tree.descend(target, stop_level, &guard);
                let high = descent.high.map(Fence::to_vec);
                let gathered = match descent.child {
                    Child::Inner(inner) if inner.level == level => Some(gather(inner, self.position, &guard)),
                    _ => None,
                };
                (gathered, high)
            };
            if matches!(gathered, Some(Gathered::Leaves(_) | Gathered::Below(_))) {
                // What follows has the same writer: after an error nobody could tell which of these blocks are flushed.
                // And nodes that are written are not looked at again.
                self.flush_inner(tree, appended, writer)?;
            }
            match gathered {
                Some(Gathered::Leaves(leaves)) => {
                    self.write_for_checkpoint(tree, &leaves, writer)?;
                    continue;
                }
                Some(Gathered::Below(below)) => {
                    self.write_level(tree, below, writer)?;
                    continue;
                }
                Some(Gathered::Ready(inner, addresses)) => {
                    raw.clear();
                    encode_inner(inner.level, &inner.separators, &addresses, &mut raw);
                    let low = from.as_deref().unwrap_or_default();
                    let address = writer.append_inner(tree, &raw, inner.separators.len(), low)?;
                    appended.push(AppendedInner {
                        inner,
                        from: from.clone(),
                        address,
                        children: addresses,
                    });
                    if appended.len() == UNIT_PAGES {
                        self.flush_inner(tree, appended, writer)?;
                    }
                }
                Some(Gathered::Has) | None => {}
            }
            match high {
                None => return Ok(()),
                Some(high) => from = Some(high),
            }
            looks = 0;
        }
    }

    /// Gives appended and flushed nodes their addresses. Before the flush nobody may learn them: a split would free a
    /// block whose bytes are on their way, and they would be written over whatever took its place.
    fn install_inner(&self, tree: &Arc<Tree>, appended: Vec<AppendedInner>) -> Result<()> {
        for AppendedInner {
            inner,
            from,
            address,
            children,
        } in appended
        {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            let target = from.as_deref().map_or(Target::First, Target::At);
            let child = tree.descend(target, inner.level, &guard).child;
            let is_there = matches!(child, Child::Inner(now) if Arc::ptr_eq(now, &inner));
            // A change of structure replaced it, or something below it: its successors are written instead, or itself
            // again.
            if !is_there || !has_children(&inner, &children, self.position, &guard) {
                tree.free_block(&self.parts.store, address, Referenced::No);
                continue;
            }
            self.expect_recorded(tree, &children)?;
            inner
                .dirty
                .store(!is_current(&inner, &children, &guard), Ordering::Release);
            let old = inner.disk.lock().address.replace(address);
            inner.set_address_for(self.position.number, address);
            if let Some(old) = old {
                tree.free_block(&self.parts.store, old, Referenced::No);
            }
        }
        Ok(())
    }

    /// Flushes what was appended and installs it; after an error the nodes are still to be written.
    pub(super) fn flush_inner(
        &self,
        tree: &Arc<Tree>,
        appended: &mut Vec<AppendedInner>,
        writer: &mut PageWriter<'_>,
    ) -> Result<()> {
        writer.flush()?;
        self.install_inner(tree, std::mem::take(appended))
    }
}

/// Whether the children of a node lie where its appended image says, as far as the checkpoint goes, and nothing was
/// replaced on any level below them. Under `structure`.
fn has_children(inner: &Inner, addresses: &[BlockAddr], position: CheckpointPosition, guard: &Guard) -> bool {
    let mut children = inner.children.iter().zip(addresses);
    children.all(|(cell, address)| match cell.load(guard) {
        Child::OnDisk { address: now, .. } => now == address,
        Child::Leaf(leaf) => leaf.state.lock().address_for(position) == Some(*address),
        Child::Nothing => false,
        Child::Inner(child) => child.address_for(position.number) == Some(*address),
    })
}

/// Whether the next checkpoint, too, finds every child where this one does. Under `structure`.
fn is_current(inner: &Inner, addresses: &[BlockAddr], guard: &Guard) -> bool {
    let mut children = inner.children.iter().zip(addresses);
    children.all(|(cell, address)| match cell.load(guard) {
        Child::OnDisk { address: now, .. } => now == address,
        Child::Leaf(leaf) => leaf.state.lock().disk_image == Some(*address),
        Child::Nothing => false,
        Child::Inner(child) => !child.dirty.load(Ordering::Acquire) && child.disk.lock().address == Some(*address),
    })
}

/// Has a tree's structure change as usual again, when it goes.
struct Moving<'t>(&'t Tree);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.is_still.store(false, Ordering::Release);
    }
}

/// True for a root that never had an image and has no rows.
fn has_nothing(root: &Child) -> bool {
    let leaf = match root {
        Child::Nothing => return true,
        Child::Leaf(leaf) => leaf,
        Child::Inner(_) | Child::OnDisk { .. } => return false,
    };
    let guard = rcu::pin();
    let state = leaf.state.lock();
    let view = leaf.view.load(&guard);
    state.disk_image.is_none() && state.writing.is_none() && matches!(view.base, Base::Empty) && view.order.len() == 0
}

/// Looks at the children of a node. Under `structure`.
fn gather(inner: &Arc<Inner>, position: CheckpointPosition, guard: &Guard) -> Gathered {
    if inner.address_for(position.number).is_some() {
        return Gathered::Has;
    }
    let mut addresses: Vec<BlockAddr> = Vec::with_capacity(inner.children.len());
    let mut missing = Vec::new();
    for cell in &inner.children {
        let address = match cell.load(guard) {
            Child::OnDisk { address, .. } => *address,
            Child::Leaf(leaf) => match leaf.state.lock().address_for(position) {
                Some(address) => address,
                None => {
                    missing.push(leaf.clone());
                    continue;
                }
            },
            Child::Nothing => unreachable!("only a root is that"),
            Child::Inner(child) => match child.address_for(position.number) {
                Some(address) => {
                    // Leaves below one that was not written may change from now on.
                    child.set_address_for(position.number, address);
                    address
                }
                None => return Gathered::Below(child.level),
            },
        };
        addresses.push(address);
    }
    if !missing.is_empty() {
        return Gathered::Leaves(missing);
    }
    Gathered::Ready(inner.clone(), addresses)
}
