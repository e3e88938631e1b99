//! Eviction of inner nodes.
//!
//! An inner node can leave memory when none of its children is there. A hand goes round all tables, from the leaves'
//! parents upwards, so that a node's children have been looked at before it; nodes that were gone through to a leaf on
//! disk since it came by last are passed over, each getting colder. Which nodes there are the tree tells: nothing is
//! registered, and a node that a split replaced is simply not met.
//!
//! A node that is on disk as it is gives its cell back to its address, under `structure`. A dirty one is written first,
//! as long as no checkpoint runs (`checkpointing` is held meanwhile, so that none begins): its children are on disk, so
//! its image is what the next checkpoint would write. While one runs, it writes them itself, and they can go then.
//!
//! Of a node that leaves, the running checkpoint needs no more than its address: that it has written the node is
//! forgotten, and should the node come back and change, it is written once more.

use crate::budget::Use;
use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::checkpoint::Checkpointer;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::page::encode_inner;
use crate::readers::Readers;
use crate::running::RunningCheckpoint;
use crate::tables::Table;
use crate::tree::{Child, Fence, Inner, Target, Tree};
use crate::write_back::WriteBack;
use blocks::{BlockAddr, BlockStore, Referenced};
use engine::{Result, TableId};
use parking_lot::{Mutex, MutexGuard};
use rcu::{Guard, Rcu};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Nodes that are looked at in one step, tables and parents that are passed, and nodes under one lock of a tree.
const STEP: usize = 64;
const PASSED_MAX: usize = 256;
const LOCKED_MAX: usize = 16;
/// Inner nodes that take less than one part in so many of the limit stay; but not under the schedule checker, whose
/// trees are small.
const SPARED_PART: u64 = if cfg!(feature = "shuttle") { u64::MAX } else { 64 };
/// What one takes, about.
const NODE_BYTES: u64 = 4 << 10;
/// After so many rounds of the hand nothing more can be had.
pub(crate) const ROUNDS_MAX: usize = 5;

/// Where the hand is: beyond this key of a level of a table.
#[derive(Default)]
struct Hand {
    table: Option<TableId>,
    level: u8,
    key: Option<Vec<u8>>,
    /// Nodes that it is behind the leaves' hand, times leaves in memory.
    behind: usize,
}

/// What one look at a tree leaves to do.
enum Next {
    At(Vec<u8>),
    Level,
    Table,
}

/// A dirty node to be written: what it holds begins at `from`.
struct Dirty {
    inner: Arc<Inner>,
    from: Option<Vec<u8>>,
    children: Vec<BlockAddr>,
}

/// A step of the hand.
struct EvictionStep {
    /// Nodes that may yet be looked at.
    looks: usize,
    freed: usize,
    /// Dirty ones without resident children, to be written; of one table at a time.
    dirty: Vec<Dirty>,
    /// Dirty ones may be written.
    writes: bool,
}

/// See the module.
pub(crate) struct InnerEviction {
    store: Arc<BlockStore>,
    cache: Arc<PageCache>,
    catalog: Arc<Catalog>,
    readers: Arc<Readers>,
    write_back: Arc<WriteBack>,
    checkpointer: Arc<Checkpointer>,
    running: Arc<RunningCheckpoint>,
    counters: Arc<Counters>,
    /// Where it goes on.
    hand: Mutex<Hand>,
}

impl InnerEviction {
    pub(crate) fn new(base: &Foundation, write_back: Arc<WriteBack>, checkpointer: Arc<Checkpointer>) -> Self {
        Self {
            store: base.store.clone(),
            cache: base.cache.clone(),
            catalog: base.catalog.clone(),
            readers: base.readers.clone(),
            write_back,
            checkpointer,
            running: base.running.clone(),
            counters: base.counters.clone(),
            hand: Mutex::default(),
        }
    }

    /// Inner nodes in memory, about.
    pub(crate) fn count(&self) -> usize {
        (self.cache.budget().used(Use::Inner) / NODE_BYTES) as usize
    }

    /// One step: inner nodes without resident children leave memory. Returns the bytes they gave. One caller at a time
    /// gets any.
    pub(crate) fn evict(&self) -> Result<usize> {
        match self.take_hand() {
            Some(hand) => self.look_at(hand, STEP),
            None => Ok(0),
        }
    }

    /// As [`InnerEviction::evict`], of no more nodes than makes their hand go round as fast as the leaves' hand, which
    /// has passed `passed` of them at most. There are a hundred leaves to a node: with a step for each of theirs, most
    /// of the work would be looks at nodes whose leaves are all still there.
    pub(crate) fn keep_pace(&self, passed: usize) -> Result<usize> {
        let Some(mut hand) = self.take_hand() else {
            return Ok(0);
        };
        let leaves = self.cache.clock_list().len().max(1);
        hand.behind += passed * self.count();
        let looks = (hand.behind / leaves).min(STEP);
        // Some at a time: those that are dirty are written together.
        if looks < LOCKED_MAX {
            return Ok(0);
        }
        hand.behind %= leaves;
        self.look_at(hand, looks)
    }

    /// The hand, where inner nodes are many and nobody else has it.
    fn take_hand(&self) -> Option<MutexGuard<'_, Hand>> {
        let budget = self.cache.budget();
        if budget.used(Use::Inner) <= budget.limit() / SPARED_PART {
            return None;
        }
        self.hand.try_lock()
    }

    fn look_at(&self, mut hand: MutexGuard<'_, Hand>, looks: usize) -> Result<usize> {
        let between_checkpoints = self.checkpointer.try_hold();
        let mut step = EvictionStep {
            looks,
            freed: 0,
            dirty: Vec::new(),
            writes: between_checkpoints.is_some(),
        };
        for _ in 0..PASSED_MAX {
            let table = hand.table.and_then(|id| self.catalog.get(id, &rcu::pin()).cloned());
            let next = match &table {
                Some(table) => self.pass(table, &hand, &mut step),
                None => Next::Table,
            };
            if let Some(table) = &table {
                let dirty = std::mem::take(&mut step.dirty);
                step.freed += self.write_and_evict(&table.tree, dirty)?;
            }
            match next {
                Next::At(key) => hand.key = Some(key),
                Next::Level => (hand.level, hand.key) = (hand.level + 1, None),
                Next::Table => {
                    *hand = Hand {
                        table: self.catalog.id_after(hand.table),
                        level: 1,
                        key: None,
                        behind: hand.behind,
                    }
                }
            }
            // At the end of a round, too: a small tree's nodes would only get colder several times in one step.
            if step.looks == 0 || hand.table.is_none() {
                break;
            }
        }
        Ok(step.freed)
    }

    /// Looks at the resident children of the next node above the hand's level.
    fn pass(&self, table: &Table, hand: &Hand, step: &mut EvictionStep) -> Next {
        let tree = &table.tree;
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let position = self.running.get();
        // A checkpoint whose position lies before the table finds its blocks from the root in memory
        // (`exclude_others`).
        if table.created > position.map_or(self.readers.published(), |position| position.seq) {
            return Next::Table;
        }
        let Child::Inner(root) = tree.root.load(&guard) else {
            return Next::Table;
        };
        if root.level <= hand.level {
            if root.level == hand.level {
                self.look_at_inner(tree, &tree.root, root, None, step, &guard);
            }
            return Next::Table;
        }
        let target = hand.key.as_deref().map_or(Target::First, Target::At);
        let descent = tree.descend(target, hand.level + 1, &guard);
        if let Child::Inner(parent) = descent.child
            && parent.level == hand.level + 1
        {
            let first = hand.key.as_deref().map_or(0, |key| parent.separators.child_for(key));
            let low = |index: usize| match index.checked_sub(1) {
                Some(separator) => Some(parent.separators.get(separator).to_vec()),
                None => descent.low.map(Fence::to_vec),
            };
            let mut locked = 0;
            for index in first..parent.children.len() {
                let cell = &parent.children[index];
                let Child::Inner(inner) = cell.load(&guard) else {
                    continue;
                };
                if (locked == LOCKED_MAX || step.looks == 0)
                    && let Some(low) = low(index)
                {
                    return Next::At(low);
                }
                locked += 1;
                self.look_at_inner(tree, cell, inner, low(index), step, &guard);
            }
        }
        match descent.high.map(Fence::to_vec) {
            Some(high) => Next::At(high),
            None => Next::Level,
        }
    }

    /// Has a node leave memory that can, or be written first. Under `structure`.
    fn look_at_inner(
        &self,
        tree: &Tree,
        cell: &Rcu<Child>,
        inner: &Arc<Inner>,
        from: Option<Vec<u8>>,
        step: &mut EvictionStep,
        guard: &Guard,
    ) {
        step.looks = step.looks.saturating_sub(1);
        let has_resident = |cell: &Rcu<Child>| !matches!(cell.load(guard), Child::OnDisk { .. });
        if inner.children.iter().any(has_resident) || !inner.cool() {
            return;
        }
        if inner.dirty.load(Ordering::Acquire) {
            if step.writes
                && let Some(children) = children_on_disk(inner, guard)
            {
                step.dirty.push(Dirty {
                    inner: inner.clone(),
                    from,
                    children,
                });
            }
            return;
        }
        let Some(address) = inner.disk.lock().address else {
            debug_assert!(false, "a node that is not dirty is on disk");
            return;
        };
        step.freed += self.take_out(tree, cell, inner, address, guard);
    }

    /// Puts the address of a node in its place. Under `structure`.
    fn take_out(&self, tree: &Tree, cell: &Rcu<Child>, inner: &Inner, address: BlockAddr, guard: &Guard) -> usize {
        let bytes = inner.memory_bytes();
        let level = inner.level;
        cell.replace_large(Child::OnDisk { address, level }, bytes, guard);
        self.cache.account_inner(tree, -(bytes as isize));
        self.counters.inner_evicted.add(1);
        bytes
    }

    /// Writes nodes of one tree and has them leave memory where nothing changed meanwhile. No checkpoint runs.
    fn write_and_evict(&self, tree: &Arc<Tree>, nodes: Vec<Dirty>) -> Result<usize> {
        if nodes.is_empty() {
            return Ok(0);
        }
        let mut writer = self.write_back.writer();
        let mut raw = Vec::new();
        let written: Result<Vec<BlockAddr>> =
            nodes
                .iter()
                .try_fold(Vec::with_capacity(nodes.len()), |mut addresses, node| {
                    raw.clear();
                    let inner = &node.inner;
                    encode_inner(inner.level, &inner.separators, &node.children, &mut raw);
                    let low = node.from.as_deref().unwrap_or_default();
                    addresses.push(writer.append_inner(tree, &raw, inner.separators.len(), low)?);
                    Ok(addresses)
                });
        let addresses = written?;
        writer.flush()?;
        let guard = rcu::pin();
        let mut freed = 0;
        for (node, address) in nodes.into_iter().zip(addresses) {
            let inner = &node.inner;
            let _structure = tree.structure.lock();
            let target = node.from.as_deref().map_or(Target::First, Target::At);
            let descent = tree.descend(target, inner.level, &guard);
            let is_there = matches!(descent.child, Child::Inner(now) if Arc::ptr_eq(now, inner));
            if !is_there || children_on_disk(inner, &guard).as_ref() != Some(&node.children) {
                // It was replaced, or a child has come in or was written elsewhere.
                tree.free_block(&self.store, address, Referenced::No);
                continue;
            }
            let old = inner.disk.lock().address.replace(address);
            if let Some(old) = old {
                tree.free_block(&self.store, old, Referenced::No);
            }
            // It may have been marked meanwhile by what changed and is as it was.
            inner.dirty.store(false, Ordering::Release);
            freed += self.take_out(tree, descent.cell, inner, address, &guard);
        }
        Ok(freed)
    }
}

/// Where the children of a node lie, when none is in memory. Under `structure`.
fn children_on_disk(inner: &Inner, guard: &Guard) -> Option<Vec<BlockAddr>> {
    let mut addresses = Vec::with_capacity(inner.children.len());
    for cell in &inner.children {
        let Child::OnDisk { address, .. } = cell.load(guard) else {
            return None;
        };
        addresses.push(*address);
    }
    Some(addresses)
}
