//! Loading a fresh table from sorted rows: leaves built on the caller's thread, compressed and written by all workers,
//! inner nodes on top of them at the end.
//!
//! No checkpoint that runs meanwhile may hold the blocks (after a crash they must be free), so each one's beginning
//! hands them on to the next (`hand_on`), until the tree gets its root between two checkpoints.

use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::checkpoint::Checkpointer;
use crate::foundation::Foundation;
use crate::leaf::Base;
use crate::loads::LoadsInProgress;
use crate::page::{
    KeyParts, LARGE_CHUNK_BYTES, LargeRef, LeafBuilder, LeafImage, NewValue, Separators, shortest_separator,
};
use crate::restructure::Structure;
use crate::tree::{CHILDREN_MAX, Child, Inner, Tree, may_take};
use crate::workers::{Class, Workers};
use crate::write_back::WriteBack;
use blocks::{BlockAddr, BlockStore, Purpose, Referenced};
use engine::{EngineError, KEY_BYTES_MAX, Result, Seq, TableId, VALUE_BYTES_MAX};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Leaves that are built before all workers write them. The first round is one unit: it tells how long blocks get.
const ROUND_LEAVES: usize = 256;
/// Leaves that one worker writes in a row.
const UNIT_LEAVES: usize = 32;

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "bulk_load",
        reason,
    }
}

struct BuiltLeaf {
    low: Vec<u8>,
    image: LeafImage,
}

struct Load<'c> {
    loader: &'c Loader,
    tree: Arc<Tree>,
    builder: LeafBuilder,
    /// Lowest key of the leaf being built; empty for the first.
    low: Vec<u8>,
    last: Vec<u8>,
    round: Vec<BuiltLeaf>,
    /// Finished leaves in key order.
    leaves: Vec<(Vec<u8>, BlockAddr)>,
    /// Every block, flushed or not.
    appended: Mutex<Vec<BlockAddr>>,
    /// Blocks that were flushed: those that may be freed.
    blocks: Vec<BlockAddr>,
    rows: u64,
    loaded_bytes: usize,
}

/// See the module.
pub(crate) struct Loader {
    store: Arc<BlockStore>,
    cache: Arc<PageCache>,
    catalog: Arc<Catalog>,
    structure: Arc<Structure>,
    write_back: Arc<WriteBack>,
    checkpointer: Arc<Checkpointer>,
    workers: Arc<Workers>,
    loads: Arc<LoadsInProgress>,
}

impl Loader {
    pub(crate) fn new(
        base: &Foundation,
        structure: Arc<Structure>,
        write_back: Arc<WriteBack>,
        checkpointer: Arc<Checkpointer>,
        loads: Arc<LoadsInProgress>,
    ) -> Self {
        Self {
            store: base.store.clone(),
            cache: base.cache.clone(),
            catalog: base.catalog.clone(),
            structure,
            write_back,
            checkpointer,
            workers: base.workers.clone(),
            loads,
        }
    }

    /// See [`engine::Engine::bulk_load`].
    pub(crate) fn load(
        &self,
        id: TableId,
        rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
        seq: Seq,
    ) -> Result<u64> {
        let table = self.catalog.live(id)?;
        if seq < table.created {
            return Err(invalid(format!("{seq:?} lies below the table's creation")));
        }
        let tree = &table.tree;
        if !is_fresh(tree) {
            return Err(invalid(format!("{id:?} is not empty")));
        }
        let mut load = Load {
            loader: self,
            tree: tree.clone(),
            builder: LeafBuilder::new(),
            low: Vec::new(),
            last: Vec::new(),
            round: Vec::new(),
            leaves: Vec::new(),
            appended: Mutex::new(Vec::new()),
            blocks: Vec::new(),
            rows: 0,
            loaded_bytes: 0,
        };
        let result = load.run(rows).and_then(|()| load.inner_levels());
        let ours: HashSet<BlockAddr> = load.appended.lock().iter().copied().collect();
        // Between two checkpoints: the next one finds all of it.
        let between = self.checkpointer.hold();
        // One may have given the table's blocks back meanwhile, and looks for no more.
        let result = result.and_then(|root| {
            if tree.is_dead() {
                Err(EngineError::NoSuchTable(id))
            } else {
                Ok(root)
            }
        });
        match result {
            Ok(root) => {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                if let Some(root) = root {
                    self.structure.replace_fresh_root(tree, root, &guard);
                }
                self.loads.end(tree.shape.volume, &ours);
                self.catalog.table_changed(id);
                Ok(load.rows)
            }
            Err(error) => {
                drop(between);
                // No checkpoint begins in between, and takes blocks for its own that are about to go.
                let _no_beginning = self.loads.hold_off_beginning();
                self.loads.end(tree.shape.volume, &ours);
                for address in &load.blocks {
                    tree.free_block(&self.store, *address, Referenced::No);
                }
                Err(error)
            }
        }
    }
}

fn is_fresh(tree: &Tree) -> bool {
    let guard = rcu::pin();
    match tree.root.load(&guard) {
        Child::Nothing => true,
        Child::Leaf(leaf) => {
            let state = leaf.state.lock();
            let view = leaf.view.load(&guard);
            state.disk_image.is_none() && matches!(view.base, Base::Empty) && view.order.len() == 0
        }
        _ => false,
    }
}

impl Load<'_> {
    fn run(&mut self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<()> {
        let target = self.tree.shape.leaf_bytes;
        let mut full_at = target;
        for (key, value) in rows {
            if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
                return Err(invalid(format!("a row of {} and {} bytes", key.len(), value.len())));
            }
            if self.rows > 0 && key <= self.last {
                return Err(invalid(format!("row {} does not rise above the one before", self.rows)));
            }
            let large = if value.len() >= self.tree.shape.large_bytes_min {
                Some(self.store_large(&key, &value)?)
            } else {
                None
            };
            let value_bytes = large.as_ref().map_or(value.len(), Vec::len);
            let filled = self.builder.row_bytes();
            if !self.builder.is_empty() && (filled >= full_at || filled + key.len() + value_bytes > target) {
                let low = shortest_separator(&self.last, &key);
                self.finish_leaf(low)?;
                full_at = self.tree.fill.full_at(target, self.loaded_bytes / self.rows as usize);
            }
            let new_value = match &large {
                Some(cell) => NewValue::Large(LargeRef::from_cell(cell).expect("it was just made")),
                None => NewValue::Inline(&value),
            };
            self.builder.push(KeyParts::from(key.as_slice()), new_value);
            self.last = key;
            self.rows += 1;
        }
        if !self.builder.is_empty() {
            self.finish_leaf(Vec::new())?;
        }
        self.write_round()
    }

    fn finish_leaf(&mut self, next_low: Vec<u8>) -> Result<()> {
        let image = self.builder.finish();
        self.loaded_bytes += image.row_bytes();
        self.round.push(BuiltLeaf {
            low: std::mem::replace(&mut self.low, next_low),
            image,
        });
        let round = if self.leaves.is_empty() {
            UNIT_LEAVES
        } else {
            ROUND_LEAVES
        };
        if self.round.len() == round {
            self.write_round()?;
        }
        Ok(())
    }

    fn store_large(&mut self, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        self.tree.has_large.store(true, Ordering::Release);
        let loader = self.loader;
        let mut writer = loader.write_back.writer();
        let mut addresses = Vec::new();
        for piece in value.chunks(LARGE_CHUNK_BYTES) {
            addresses.push(append(loader, &self.tree, &self.appended, || {
                writer.append_piece(&self.tree, Purpose::Later, key, piece)
            })?);
        }
        writer.flush()?;
        self.blocks.extend(&addresses);
        Ok(LargeRef::encode(value.len(), &addresses))
    }

    fn write_round(&mut self) -> Result<()> {
        let round = std::mem::take(&mut self.round);
        let done: Mutex<Vec<(usize, BlockAddr)>> = Mutex::new(Vec::with_capacity(round.len()));
        let units: Vec<(usize, &[BuiltLeaf])> = round
            .chunks(UNIT_LEAVES)
            .enumerate()
            .map(|(unit, leaves)| (unit * UNIT_LEAVES, leaves))
            .collect();
        let (loader, tree, appended) = (self.loader, &self.tree, &self.appended);
        let result = loader
            .workers
            .for_each(Class::Background, units, |(first, leaves)| -> Result<()> {
                let mut writer = loader.write_back.writer();
                let mut written = Vec::with_capacity(leaves.len());
                for (index, leaf) in leaves.iter().enumerate() {
                    let address = append(loader, tree, appended, || {
                        writer.append_leaf(tree, Purpose::Later, &leaf.image, &leaf.low)
                    })?;
                    written.push((first + index, address));
                }
                writer.flush()?;
                done.lock().extend(written);
                Ok(())
            });
        let mut done = done.into_inner();
        self.blocks.extend(done.iter().map(|(_, address)| *address));
        result?;
        done.sort_unstable_by_key(|(index, _)| *index);
        let lows = round.into_iter().map(|leaf| leaf.low);
        self.leaves
            .extend(lows.zip(done.into_iter().map(|(_, address)| address)));
        Ok(())
    }

    /// The inner nodes above the leaves, in memory; the next checkpoint writes them. `None` without rows.
    fn inner_levels(&mut self) -> Result<Option<Child>> {
        let mut level = 0;
        let mut nodes: Vec<(Vec<u8>, Child)> = std::mem::take(&mut self.leaves)
            .into_iter()
            .map(|(low, address)| (low, Child::OnDisk { address, level: 0 }))
            .collect();
        while nodes.len() > 1 {
            level += 1;
            let size = nodes.len().div_ceil(nodes.len().div_ceil(CHILDREN_MAX));
            let mut above = Vec::with_capacity(nodes.len().div_ceil(size));
            let mut nodes_left = nodes.into_iter().peekable();
            while let Some(node) = nodes_left.next() {
                let (mut group, mut key_bytes) = (vec![node], 0);
                while group.len() < size
                    && let Some((low, node)) = nodes_left.next_if(|(low, _)| may_take(group.len(), key_bytes, low))
                {
                    key_bytes += low.len();
                    group.push((low, node));
                }
                let separators =
                    Separators::from_iter(group.iter().skip(1).map(|(low, _)| KeyParts::from(low.as_slice())));
                let low = group[0].0.clone();
                let inner = Inner::new(level, separators, group.into_iter().map(|(_, child)| child).collect());
                self.loader
                    .cache
                    .account_inner(&self.tree, inner.memory_bytes() as isize);
                above.push((low, Child::Inner(Arc::new(inner))));
            }
            nodes = above;
        }
        Ok(nodes.pop().map(|(_, root)| root))
    }
}

/// Appends a block that no running checkpoint holds, by calling `append`, and notes it in `appended`.
fn append(
    loader: &Loader,
    tree: &Tree,
    appended: &Mutex<Vec<BlockAddr>>,
    append: impl FnOnce() -> Result<BlockAddr>,
) -> Result<BlockAddr> {
    let _no_beginning = loader.loads.hold_off_beginning();
    let address = append()?;
    appended.lock().push(address);
    loader.loads.add(tree.shape.volume, address);
    Ok(address)
}
