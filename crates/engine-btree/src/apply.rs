//! Putting batches into the trees.
//!
//! Writes are blind: a leaf whose rows are on disk takes them into its delta all the same, and a worker merges the buffered
//! writes with the rows later, many at a time. One batch at a time (`Capabilities::concurrent_apply` is false), so that only
//! background threads contend for a leaf.

use crate::core::{Core, Rows};
use crate::leaf::{Base, Leaf, LeafView, SEQ_MAX};
use crate::page::{KeyParts, LeafImage};
use crate::restructure::Restructured;
use crate::tables::Table;
use crate::tree::{Child, Fence, Shape, Target, Tree};
use crate::version::{Change, Value};
use bytes::Bytes;
use codec::Codec;
use engine::{
    Batch, EngineError, KEY_BYTES_MAX, KeyRange, Op, Result, Seq, TableId, TableKind, TableSpec, VALUE_BYTES_MAX,
};
use rcu::Guard;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writes buffered for a leaf that is not in memory before a worker merges them.
const BUFFER_ENTRIES: usize = 96;
/// Room that must be left in the arena of a leaf whose base is not in memory; below it the writer brings the base in itself.
const FULL_ENTRIES: usize = crate::delta::WRITES_MAX - 8;

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "apply",
        reason,
    }
}

impl Core {
    /// Applies a batch at `seq`.
    pub(crate) fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        self.counters.batches.add(1);
        self.counters.operations.add(batch.ops().len() as u64);
        let mut last: Option<Arc<Table>> = None;
        for op in batch.ops() {
            match op {
                Op::Put(table, key, value) => {
                    let table = self.table_to_write(&mut last, *table)?;
                    if value.len() > VALUE_BYTES_MAX {
                        return Err(invalid(format!("a value of {} bytes", value.len())));
                    }
                    self.write(
                        &table.tree,
                        key,
                        Change::Put(Value::Inline(Bytes::copy_from_slice(value))),
                        seq,
                    )?;
                }
                Op::Delete(table, key) => {
                    let table = self.table_to_write(&mut last, *table)?;
                    self.write(&table.tree, key, Change::Delete, seq)?;
                }
                Op::Add(table, key, amount) => {
                    let table = self.table_to_write(&mut last, *table)?;
                    self.write(&table.tree, key, Change::Add(*amount), seq)?;
                }
                Op::DeleteRange(table, range) => {
                    let table = self.table_to_write(&mut last, *table)?.clone();
                    self.delete_range(&table.tree, range, seq)?;
                }
                Op::CreateTable(table, spec) => {
                    last = None;
                    self.create_table(*table, spec, seq)?;
                }
                Op::DropTable(table) => {
                    last = None;
                    self.drop_table(*table, seq);
                }
            }
        }
        Ok(())
    }

    fn table_to_write<'t>(&self, last: &'t mut Option<Arc<Table>>, id: TableId) -> Result<&'t Arc<Table>> {
        if last.as_ref().is_none_or(|table| table.id != id) {
            let guard = rcu::pin();
            let table = self.tables.get(id, &guard).filter(|table| table.dropped() == SEQ_MAX);
            *last = Some(table.ok_or(EngineError::NoSuchTable(id))?.clone());
        }
        Ok(last.as_ref().expect("it was just looked up"))
    }

    /// How a table of this specification is kept.
    pub(crate) fn shape_in(&self, spec: &TableSpec, volume: blocks::VolumeId) -> Result<Shape> {
        let codec = match &spec.compressor {
            None if spec.kind == TableKind::Records => self.options.collection_compressor,
            None => self.options.index_compressor,
            Some(name) => name
                .parse::<Codec>()
                .map_err(|_| invalid(format!("unknown compressor {name:?}")))?,
        };
        Ok(Shape {
            codec,
            level: self.options.level(codec),
            leaf_bytes: match spec.kind {
                TableKind::Records => self.options.record_leaf_bytes,
                TableKind::Index | TableKind::Small => self.options.index_leaf_bytes,
            },
            large_bytes_min: self.options.large_value_bytes,
            volume,
        })
    }

    fn create_table(&self, id: TableId, spec: &TableSpec, seq: Seq) -> Result<()> {
        let guard = rcu::pin();
        if let Some(table) = self.tables.get(id, &guard) {
            if table.dropped() != SEQ_MAX {
                return Err(invalid(format!("{id:?} was dropped; ids are not used twice")));
            }
            if table.kind != spec.kind {
                return Err(invalid(format!("{id:?} exists and is of kind {:?}", table.kind)));
            }
            return Ok(());
        }
        let _volumes = self.volumes.lock();
        let volume = match spec.name.split_once('.') {
            Some((database, _)) if self.options.directory_per_db => self.store.volume(database)?,
            _ => blocks::VolumeId::MAIN,
        };
        let tree = Arc::new(Tree::new(id, self.shape_in(spec, volume)?, Child::Nothing));
        self.tables.put(Arc::new(Table::new(spec, tree, seq)));
        self.table_changed(id);
        Ok(())
    }

    fn drop_table(&self, id: TableId, seq: Seq) {
        let guard = rcu::pin();
        if let Some(table) = self.tables.get(id, &guard)
            && table.dropped() == SEQ_MAX
        {
            table.set_dropped(seq);
            self.table_changed(id);
        }
    }

    /// Writes a change of a key.
    pub(crate) fn write(&self, tree: &Arc<Tree>, key: &[u8], change: Change, seq: Seq) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(invalid(format!("a key of {} bytes", key.len())));
        }
        let mut change = Some(change);
        loop {
            let guard = rcu::pin();
            // Appends go to the last leaf, without a way down.
            let last = tree.last_leaf.lock().as_ref().filter(|leaf| *leaf.low <= *key).cloned();
            if let Some(leaf) = last {
                if self.write_to(tree, &leaf, true, key, &mut change, seq, &guard)? {
                    return Ok(());
                }
                *tree.last_leaf.lock() = None;
                continue;
            }
            let descent = tree.descend(Target::At(key), 0, &guard);
            match descent.child {
                Child::Leaf(leaf) => {
                    let at_end = descent.high.is_none();
                    if at_end {
                        *tree.last_leaf.lock() = Some(leaf.clone());
                    }
                    if self.write_to(tree, leaf, at_end, key, &mut change, seq, &guard)? {
                        return Ok(());
                    }
                    *tree.last_leaf.lock() = None;
                }
                Child::Stored { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    self.bring_in(tree, Target::At(key), address, level, Rows::NotYet)?;
                }
                Child::Nothing => self.begin_tree(tree),
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            }
        }
    }

    /// Writes to a leaf; false when the leaf has left the tree, or made room first: try again.
    #[expect(clippy::too_many_arguments, reason = "one step of `write`, split off for its length")]
    fn write_to(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        at_end: bool,
        key: &[u8],
        change: &mut Option<Change>,
        seq: Seq,
        guard: &Guard,
    ) -> Result<bool> {
        let mut state = leaf.state.lock();
        let view = leaf.view.load(guard);
        if view.retired {
            return Ok(false);
        }
        if !Leaf::has_room(&state) {
            drop(state);
            self.make_room(tree, leaf, at_end)?;
            return Ok(false);
        }
        let change = change.take().expect("a change is written once");
        let pushed = leaf.push(&mut state, key, change, seq, self.pins.low(), guard);
        let newly_listed = !std::mem::replace(&mut state.listed, true);
        let newly_in_ring = !std::mem::replace(&mut state.in_ring, true);
        let stored_only = match view.base {
            Base::Stored(address) => Some(address),
            Base::Empty | Base::Image(_) => None,
        };
        let rows = Self::rows_at_most(view, &state);
        let target = tree.shape.leaf_bytes;
        // An append goes on until the leaf is full: each row is then merged once.
        let appending = at_end && rows < target;
        let grown = if appending {
            state.entries >= FULL_ENTRIES
        } else {
            state.entries >= state.fold_entries.min(FULL_ENTRIES) || state.delta_rows >= state.fold_rows
        };
        let mut split = false;
        if grown && stored_only.is_none() {
            split = rows > target + target / 2 || (at_end && rows >= target) || state.entries >= FULL_ENTRIES;
            if !split {
                let _ = self.fold_in_place(tree, leaf, &mut state, None, guard);
            }
        }
        let buffer_full = stored_only.is_some() && state.entries == BUFFER_ENTRIES;
        drop(state);
        self.account(tree, 0, pushed.bytes);
        if newly_listed {
            self.list_dirty(tree, leaf.clone(), guard);
            self.table_changed(tree.id);
        }
        if newly_in_ring {
            self.ring.push(tree.clone(), leaf.clone());
        }
        if stored_only.is_some() {
            self.counters.blind_writes.add(1);
        }
        if split {
            self.split(tree, leaf, at_end);
            *tree.last_leaf.lock() = None;
        } else if buffer_full {
            self.merge_soon(tree, leaf);
        }
        Ok(true)
    }

    /// A delta is full. The base has to be in memory to make it smaller.
    pub(crate) fn make_room(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, at_end: bool) -> Result<()> {
        if let Restructured::NotLoaded(address) = self.split(tree, leaf, at_end) {
            self.bring_base_in(tree, leaf, address)?;
            self.split(tree, leaf, at_end);
        }
        Ok(())
    }

    /// Removes the keys of a range: whole leaves by one mark, those at its ends key by key.
    fn delete_range(&self, tree: &Arc<Tree>, range: &KeyRange, seq: Seq) -> Result<()> {
        let mut from = match &range.start {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Vec::new(),
        };
        *tree.last_leaf.lock() = None;
        loop {
            let guard = rcu::pin();
            let descent = tree.descend(Target::At(&from), 0, &guard);
            let (leaf, low, high) = match descent.child {
                Child::Leaf(leaf) => (
                    leaf.clone(),
                    descent.low.map(Fence::to_vec),
                    descent.high.map(Fence::to_vec),
                ),
                Child::Stored { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    self.bring_in(tree, Target::At(&from), address, level, Rows::NotYet)?;
                    continue;
                }
                Child::Nothing => return Ok(()),
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            };
            let whole = match &range.start {
                Bound::Unbounded => true,
                Bound::Included(start) => low.as_ref().is_some_and(|low| low >= start) || start.is_empty(),
                Bound::Excluded(start) => low.as_ref().is_some_and(|low| low > start),
            } && match (&range.end, &high) {
                (Bound::Unbounded, _) => true,
                (_, None) => false,
                (Bound::Included(end) | Bound::Excluded(end), Some(high)) => high <= end,
            };
            if whole {
                if !self.hide(tree, &leaf, seq, &guard) {
                    continue;
                }
            } else {
                let Some(keys) = self.keys_in(tree, &leaf, range, &guard)? else {
                    continue;
                };
                for key in keys {
                    self.write(tree, &key, Change::Delete, seq)?;
                }
            }
            let Some(high) = high else { return Ok(()) };
            let past_end = match &range.end {
                Bound::Unbounded => false,
                Bound::Included(end) => high > *end,
                Bound::Excluded(end) => high >= *end,
            };
            if past_end {
                return Ok(());
            }
            from = high;
        }
    }

    /// Makes a leaf empty from `seq` on, whatever its base holds. False when the leaf has left the tree.
    fn hide(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, seq: Seq, guard: &Guard) -> bool {
        let mut state = leaf.state.lock();
        let view = leaf.view.load(guard);
        if view.retired {
            return false;
        }
        let nothing = matches!(view.base, Base::Empty) && view.order.len() == 0;
        if nothing {
            return true;
        }
        let mut bytes = 0;
        for at in 0..view.order.len() {
            let key = view.entry(at).key.clone();
            bytes += leaf
                .push(&mut state, &key, Change::Delete, seq, self.pins.low(), guard)
                .bytes;
        }
        let view = leaf.view.load(guard);
        if !matches!(view.base, Base::Empty) && view.hidden_from == SEQ_MAX {
            let mut hidden = view.with_base(view.base.clone());
            hidden.hidden_from = seq;
            leaf.view.replace(hidden, guard);
        }
        state.valid_to = state.valid_to.min(seq);
        state.newest = state.newest.max(seq);
        state.writing = state.writing.map(|valid_to| valid_to.min(seq));
        drop(state);
        self.account(tree, 0, bytes);
        self.list(tree, leaf);
        self.keep_in_ring(tree, leaf);
        true
    }

    /// The keys of a leaf in a range, whether they are there still or not. `None` when it has left the tree.
    fn keys_in(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        range: &KeyRange,
        guard: &Guard,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let view = leaf.view.load(guard);
        if view.retired {
            return Ok(None);
        }
        let image: Option<&LeafImage> = match &view.base {
            Base::Stored(address) => {
                self.bring_base_in(tree, leaf, *address)?;
                return Ok(None);
            }
            Base::Empty => None,
            Base::Image(image) => Some(image),
        };
        Ok(Some(keys_of(view, image, range)))
    }

    /// Has a worker merge the writes that were buffered for a leaf with its rows.
    fn merge_soon(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        self.merge_queue.push(tree.clone(), leaf.clone());
    }
}

fn keys_of(view: &LeafView, image: Option<&LeafImage>, range: &KeyRange) -> Vec<Vec<u8>> {
    crate::fold::merged(view, image)
        .map(|merged| match (merged.entry, merged.row) {
            (Some(entry), _) => entry.key.to_vec(),
            (None, row) => {
                let key: KeyParts<'_> = image.expect("the row is its").key(row.expect("of base or delta"));
                key.to_vec()
            }
        })
        .filter(|key| range.contains(key))
        .collect()
}

/// Whether a tree is that of a table nobody can see any more.
pub(crate) fn is_dead(tree: &Tree) -> bool {
    tree.dead.load(Ordering::Acquire)
}
