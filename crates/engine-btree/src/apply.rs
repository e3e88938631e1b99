//! Putting batches into the trees.
//!
//! Writes are blind: a leaf whose rows are on disk takes them into its delta all the same, and a worker merges the
//! buffered writes with the rows later, many at a time. One batch at a time (`Capabilities::concurrent_apply` is
//! false), so that only background threads contend for a leaf.

use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::consolidation_queue::ConsolidationQueue;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::leaf::{Base, Leaf, LeafView};
use crate::page::{KeyParts, LeafImage};
use crate::pages::{LoadRows, Pages, if_readable};
use crate::restructure::{Split, Structure};
use crate::tables::Table;
use crate::tree::{Child, Fence, Target, Tree};
use crate::version::{Change, SEQ_MAX, Value};
use crate::write_back::WriteBack;
use blocks::BlockAddr;
use bytes::Bytes;
use engine::{Batch, EngineError, KEY_BYTES_MAX, KeyRange, Op, Result, Seq, TableId, VALUE_BYTES_MAX};
use pins::Horizon;
use rcu::Guard;
use std::ops::Bound;
use std::sync::Arc;

/// Keys, and bytes of rows in leaves, buffered for a leaf that is not in memory before a worker merges them; versions
/// have a bound, too, see `CONSOLIDATE_VERSIONS`.
const BUFFER_ENTRIES: usize = 96;
const BUFFER_LEAVES: usize = 8;
/// Leaves' worth of rows that one batch may append to a leaf before it is split.
const UNPUBLISHED_LEAVES: usize = 16;
/// Room that must be left in the arena of a leaf whose base is not in memory; below it the writer brings the base in
/// itself.
const FULL_ENTRIES: usize = crate::delta::WRITES_MAX - 8;

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "apply",
        reason,
    }
}

/// What became of a write to a leaf.
enum Wrote {
    Done,
    /// The leaf has left the tree.
    Retired,
    /// Room has to be made first, which may have to read: not while pinned.
    Full,
}

/// See the module.
pub(crate) struct Applier {
    catalog: Arc<Catalog>,
    pages: Arc<Pages>,
    cache: Arc<PageCache>,
    structure: Arc<Structure>,
    queue: Arc<ConsolidationQueue>,
    write_back: Arc<WriteBack>,
    counters: Arc<Counters>,
}

impl Applier {
    pub(crate) fn new(base: &Foundation, structure: Arc<Structure>, write_back: Arc<WriteBack>) -> Self {
        Self {
            catalog: base.catalog.clone(),
            pages: base.pages.clone(),
            cache: base.cache.clone(),
            queue: ConsolidationQueue::new(base, structure.clone()),
            structure,
            write_back,
            counters: base.counters.clone(),
        }
    }

    /// Applies a batch at `seq`. `horizon` tells what may be forgotten on the way.
    pub(crate) fn apply(&self, batch: &Batch, seq: Seq, horizon: &Horizon) -> Result<()> {
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
                        horizon,
                    )?;
                }
                Op::Delete(table, key) => {
                    let table = self.table_to_write(&mut last, *table)?;
                    self.write(&table.tree, key, Change::Delete, seq, horizon)?;
                }
                Op::Add(table, key, amount) => {
                    let table = self.table_to_write(&mut last, *table)?;
                    self.write(&table.tree, key, Change::Add(*amount), seq, horizon)?;
                }
                Op::DeleteRange(table, range) => {
                    let table = self.table_to_write(&mut last, *table)?.clone();
                    self.delete_range(&table.tree, range, seq, horizon)?;
                }
                Op::CreateTable(table, spec) => {
                    last = None;
                    self.catalog.create_table(*table, spec, seq)?;
                }
                Op::DropTable(table) => {
                    last = None;
                    self.catalog.drop_table(*table, seq);
                }
            }
        }
        Ok(())
    }

    fn table_to_write<'t>(&self, last: &'t mut Option<Arc<Table>>, id: TableId) -> Result<&'t Arc<Table>> {
        if last.as_ref().is_none_or(|table| table.id != id) {
            *last = Some(self.catalog.live(id)?);
        }
        Ok(last.as_ref().expect("it was just looked up"))
    }

    /// Writes a change of a key.
    pub(crate) fn write(
        &self,
        tree: &Arc<Tree>,
        key: &[u8],
        change: Change,
        seq: Seq,
        horizon: &Horizon,
    ) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(invalid(format!("a key of {} bytes", key.len())));
        }
        let mut change = Some(change);
        loop {
            let guard = rcu::pin();
            // Appends go to the last leaf, without a way down.
            let last = tree.last_leaf.lock().as_ref().filter(|leaf| *leaf.low <= *key).cloned();
            if let Some(leaf) = last {
                match self.write_to(tree, &leaf, true, key, &mut change, seq, horizon, &guard) {
                    Wrote::Done => return Ok(()),
                    Wrote::Retired => {}
                    Wrote::Full => {
                        drop(guard);
                        self.make_room_in(tree, &leaf, true)?;
                    }
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
                    match self.write_to(tree, leaf, at_end, key, &mut change, seq, horizon, &guard) {
                        Wrote::Done => return Ok(()),
                        Wrote::Retired => {}
                        Wrote::Full => {
                            let leaf = leaf.clone();
                            drop(guard);
                            self.make_room_in(tree, &leaf, at_end)?;
                        }
                    }
                    *tree.last_leaf.lock() = None;
                }
                Child::OnDisk { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    self.pages
                        .bring_in(tree, Target::At(key), address, level, LoadRows::NotYet)?;
                }
                Child::Nothing => self.pages.begin_tree(tree),
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            }
        }
    }

    /// Writes to a leaf.
    #[expect(clippy::too_many_arguments, reason = "one step of `write`, split off for its length")]
    fn write_to(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        at_end: bool,
        key: &[u8],
        change: &mut Option<Change>,
        seq: Seq,
        horizon: &Horizon,
        guard: &Guard,
    ) -> Wrote {
        let mut state = leaf.state.lock();
        let view = leaf.view.load(guard);
        if view.retired {
            return Wrote::Retired;
        }
        if !Leaf::has_room(&state) {
            return Wrote::Full;
        }
        let change = change.take().expect("a change is written once");
        let (rows_before, newest_before) = (state.delta_rows, state.newest);
        let pushed = leaf.push(&mut state, key, change, seq, horizon, guard);
        leaf.warm_a_little();
        let newly_listed = !std::mem::replace(&mut state.listed, true);
        let newly_in_clock = !std::mem::replace(&mut state.in_clock, true);
        let is_on_disk = matches!(view.base, Base::OnDisk(_));
        let rows = view.rows_at_most(&state);
        let target = tree.shape.leaf_bytes;
        // An append goes on until the leaf is full, and until the next batch, as one that is at work is not published:
        // each row is then merged once.
        let is_first_of_batch = newest_before < seq;
        let appending = at_end && (rows < target || !(is_first_of_batch || rows >= UNPUBLISHED_LEAVES * target));
        let many_versions = state.has_many_versions();
        let entries = usize::from(state.entries);
        let is_full = entries >= FULL_ENTRIES;
        // Appends leave one version a row: more are of rows that are written again and again.
        let grown = is_full
            || if appending {
                many_versions && state.versions >= 2 * entries
            } else {
                state.delta_has_grown()
            };
        let (mut split, mut queue) = (false, false);
        if grown && !is_on_disk {
            let can_wait = self.cache.has_workers() && !is_full && !at_end && !state.delta_is_overdue(target);
            if can_wait {
                queue = !std::mem::replace(&mut state.queued, true);
            } else {
                split = rows > tree.split_above() || (at_end && rows >= target) || is_full;
            }
            if !can_wait && !split {
                let _ = self
                    .structure
                    .consolidator()
                    .consolidate_leaf(tree, leaf, &mut state, None, guard);
            }
        }
        let mut buffer_full = false;
        if is_on_disk {
            // Each time a bound is passed: the worker that was told may find nothing to do, or others at work.
            let rows_max = BUFFER_LEAVES * target;
            buffer_full = (pushed.new_entry && entries == BUFFER_ENTRIES)
                || (rows_before < rows_max && state.delta_rows >= rows_max)
                || many_versions;
            if many_versions {
                let versions = 2 * state.versions;
                state.consolidate_at.set_versions(versions);
            }
        }
        drop(state);
        self.cache.account(tree, 0, pushed.bytes);
        if newly_listed {
            self.catalog.list_dirty(tree, leaf.clone(), guard);
            self.catalog.table_changed(tree.id);
        }
        if newly_in_clock {
            self.cache.clock_list().push(tree.clone(), leaf.clone());
        }
        if is_on_disk {
            self.counters.blind_writes.add(1);
        }
        if split {
            self.split(tree, leaf, at_end);
            *tree.last_leaf.lock() = None;
        } else if queue {
            self.queue.push(tree, leaf);
        } else if buffer_full {
            self.cache.merge_soon(tree, leaf);
        }
        Wrote::Done
    }

    /// Leaves that wait for a worker.
    #[cfg(test)]
    pub(crate) fn consolidation_queue(&self) -> &ConsolidationQueue {
        &self.queue
    }

    /// A delta is full. The base has to be in memory to make it smaller.
    pub(crate) fn make_room_in(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, at_end: bool) -> Result<()> {
        if let Some(address) = self.split(tree, leaf, at_end) {
            let read = self.pages.bring_base_in(tree, leaf, address, None);
            if read.is_err() && !std::mem::replace(&mut leaf.state.lock().is_unreadable, true) {
                // It takes more for now: whoever reads its rows is told, and not everybody who writes.
                return if_readable(read).map(|_| ());
            }
            read?;
            self.split(tree, leaf, at_end);
        }
        if !Leaf::has_room(&leaf.state.lock()) {
            // Its image is on the way to disk, and nothing in it is published that could be consolidated, or all of it
            // is too much for one image: the thread that writes it needs a processor, perhaps this one.
            rcu::yield_now();
        }
        Ok(())
    }

    /// Splits a leaf that has grown; the address of its rows when those are on disk.
    fn split(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, at_end: bool) -> Option<BlockAddr> {
        match self.structure.split(tree, leaf, at_end) {
            Split::OnDisk(address) => return Some(address),
            Split::Done(Some(image)) if at_end && tree.fill.wants(image.row_bytes(), tree.shape.leaf_bytes) => {
                self.write_back.writer().sample_leaf(tree, &image);
            }
            Split::Done(_) | Split::NotNeeded | Split::Retired => {}
        }
        None
    }

    /// Removes the keys of a range: whole leaves by one mark, those at its ends key by key.
    fn delete_range(&self, tree: &Arc<Tree>, range: &KeyRange, seq: Seq, horizon: &Horizon) -> Result<()> {
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
                Child::OnDisk { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    self.pages
                        .bring_in(tree, Target::At(&from), address, level, LoadRows::NotYet)?;
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
                if !self.put_range_tombstone(tree, &leaf, seq, horizon, &guard) {
                    continue;
                }
            } else {
                let keys = match keys_in(&leaf, range, &guard) {
                    KeysIn::Known(keys) => keys,
                    KeysIn::Retired => continue,
                    KeysIn::OnDisk(address) => {
                        drop(guard);
                        self.pages.bring_base_in(tree, &leaf, address, None)?;
                        continue;
                    }
                };
                drop(guard);
                for key in keys {
                    self.write(tree, &key, Change::Delete, seq, horizon)?;
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
    fn put_range_tombstone(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        seq: Seq,
        horizon: &Horizon,
        guard: &Guard,
    ) -> bool {
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
            let key = view.entry(at).key.to_vec();
            bytes += leaf.push(&mut state, &key, Change::Delete, seq, horizon, guard).bytes;
        }
        let view = leaf.view.load(guard);
        if !matches!(view.base, Base::Empty) && view.range_tombstone == SEQ_MAX {
            let mut with_tombstone = view.with_base(view.base.clone());
            with_tombstone.range_tombstone = seq;
            leaf.view.replace(with_tombstone, guard);
        }
        state.valid_to = state.valid_to.min(seq);
        state.newest = state.newest.max(seq);
        state.writing = state.writing.map(|valid_to| valid_to.min(seq));
        drop(state);
        self.cache.account(tree, 0, bytes);
        self.catalog.list(tree, leaf);
        self.cache.add_to_clock(tree, leaf);
        true
    }
}

/// The keys of a leaf in a range.
enum KeysIn {
    Known(Vec<Vec<u8>>),
    Retired,
    OnDisk(BlockAddr),
}

/// The keys of a leaf in a range, whether they are there still or not.
fn keys_in(leaf: &Leaf, range: &KeyRange, guard: &Guard) -> KeysIn {
    let view = leaf.view.load(guard);
    if view.retired {
        return KeysIn::Retired;
    }
    let image: Option<&LeafImage> = match &view.base {
        Base::OnDisk(address) => return KeysIn::OnDisk(*address),
        Base::Empty => None,
        Base::Image(image) => Some(image),
    };
    KeysIn::Known(keys_of(view, image, range))
}

fn keys_of(view: &LeafView, image: Option<&LeafImage>, range: &KeyRange) -> Vec<Vec<u8>> {
    crate::consolidation::merged(view, image)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Use;
    use crate::fixture::{ROWS, Store};
    use crate::options::BtreeOptions;
    use engine::{Engine, Snapshot};

    const KEY: &[u8] = b"counted";
    const WRITES: u64 = 4000;

    fn store() -> Store {
        Store::new(BtreeOptions {
            threads: Some(0),
            ..BtreeOptions::default()
        })
    }

    fn leaf_of(store: &Store, key: &[u8]) -> (Arc<Tree>, Arc<Leaf>) {
        let guard = rcu::pin();
        let tree = store.tree(ROWS);
        let leaf = tree.leaf_in_memory(key, &guard).expect("it was just used");
        (tree, leaf)
    }

    /// A store with one small leaf whose rows are on disk only.
    fn evicted() -> Store {
        let mut store = store();
        for key in [KEY, b"other"] {
            store.write(|batch| batch.put(ROWS, key.to_vec(), 7_i64.to_le_bytes().to_vec()));
        }
        store.checkpoint();
        let (tree, leaf) = leaf_of(&store, KEY);
        store.base().cache.drop_base(&tree, &leaf);
        assert!(
            matches!(leaf.view.load(&rcu::pin()).base, Base::OnDisk(_)),
            "its rows are on disk"
        );
        store
    }

    fn versions(store: &Store) -> usize {
        leaf_of(store, KEY).1.state.lock().versions
    }

    fn number(snapshot: &Arc<dyn Snapshot>) -> i64 {
        let value = snapshot.get(ROWS, KEY).expect("a read").expect("the row");
        crate::version::number(&value)
    }

    #[test]
    fn a_counter_on_an_evicted_leaf_stays_short() {
        for hold in [false, true] {
            let mut store = evicted();
            let open = hold.then(|| store.engine.snapshot().expect("a snapshot"));
            for _ in 0..WRITES {
                store.write(|batch| batch.add(ROWS, KEY.to_vec(), 1));
                assert!(
                    versions(&store) <= 32,
                    "{} versions, a snapshot open: {hold}",
                    versions(&store)
                );
            }
            assert!(store.base().cache.budget().used(Use::Deltas) < 8 << 10);
            assert!(open.is_none_or(|open| number(&open) == 7));
            assert_eq!(number(&store.engine.snapshot().expect("a snapshot")), 7 + WRITES as i64);
        }
    }

    #[test]
    fn rows_that_a_batch_appends_are_merged_once_it_is_published() {
        let mut store = store();
        let append = |store: &mut Store, from: u64, rows: u64| {
            store.write(|batch| {
                (from..from + rows).for_each(|row| batch.put(ROWS, row.to_be_bytes().to_vec(), vec![1; 200]));
            });
        };
        let splits = |store: &Store| store.base().counters.splits.get();
        append(&mut store, 0, 200);
        assert_eq!(splits(&store), 0, "more than two leaves' worth");
        append(&mut store, 200, 1);
        assert_eq!(splits(&store), 1);
        let in_deltas = store.base().cache.budget().used(Use::Deltas);
        assert!(
            in_deltas < 2000,
            "all but the last row are in images: {in_deltas} bytes"
        );
        append(&mut store, 201, 2000);
        assert!(splits(&store) > 2, "a large batch does not wait");
        let snapshot = store.engine.snapshot().expect("a snapshot");
        for row in [0, 199, 200, 2200_u64] {
            assert!(
                snapshot.get(ROWS, &row.to_be_bytes()).expect("a read").is_some(),
                "{row}"
            );
        }
    }

    #[test]
    fn a_hot_row_beside_open_snapshots_keeps_what_they_see() {
        for evict in [false, true] {
            let mut store = if evict { evicted() } else { store() };
            let mut open = Vec::new();
            for number in 0..WRITES {
                store.write(|batch| batch.put(ROWS, KEY.to_vec(), number.to_le_bytes().to_vec()));
                if number % 100 == 0 {
                    open.push((number, store.engine.snapshot().expect("a snapshot")));
                }
                // Those of the snapshots, and what came since they were last looked for.
                let bound = 2 * (open.len() + crate::leaf::CONSOLIDATE_VERSIONS);
                assert!(
                    versions(&store) <= bound,
                    "{} with {} open",
                    versions(&store),
                    open.len()
                );
            }
            let bytes = store.base().cache.budget().used(Use::Deltas);
            assert!(bytes < 64 << 10, "{bytes} bytes, evicted: {evict}");
            for (seen, snapshot) in &open {
                assert_eq!(number(snapshot), *seen as i64);
            }
        }
    }

    #[test]
    fn a_hot_row_beside_one_old_snapshot_stays_short() {
        for evict in [false, true] {
            let mut store = if evict { evicted() } else { store() };
            store.write(|batch| batch.put(ROWS, KEY.to_vec(), 7_i64.to_le_bytes().to_vec()));
            let open = store.engine.snapshot().expect("a snapshot");
            for _ in 0..WRITES {
                store.write(|batch| batch.put(ROWS, KEY.to_vec(), vec![1; 100]));
                assert!(
                    versions(&store) <= 32,
                    "{} versions, evicted: {evict}",
                    versions(&store)
                );
            }
            assert_eq!(number(&open), 7);
        }
    }

    /// Each further key costs a leaf on disk nothing but memory, up to a bound in bytes.
    #[test]
    fn buffered_writes_are_merged_by_their_bytes() {
        let mut store = evicted();
        let rows_max = BUFFER_LEAVES * leaf_of(&store, KEY).0.shape.leaf_bytes;
        for number in 0..60_u8 {
            store.write(|batch| batch.put(ROWS, vec![b'd', number], vec![number; 8 << 10]));
        }
        let rows = leaf_of(&store, KEY).1.state.lock().delta_rows;
        assert!(rows < rows_max, "{rows} bytes of rows are buffered");
        assert!(store.base().counters.buffers_merged.get() > 0);
    }

    /// Rows that come and go while a snapshot stays that has seen none of them.
    #[test]
    fn no_undo_is_kept_for_rows_that_nobody_can_see() {
        let mut store = store();
        let open = store.engine.snapshot().expect("a snapshot");
        for number in 0..20_000_u64 {
            store.write(|batch| {
                batch.put(ROWS, number.to_be_bytes().to_vec(), vec![7; 100]);
                if number >= 100 {
                    batch.delete(ROWS, (number - 100).to_be_bytes().to_vec());
                }
            });
        }
        let bytes = store.base().cache.budget().used(Use::Deltas);
        assert!(bytes < 256 << 10, "{bytes} bytes for 100 rows");
        assert_eq!(open.get(ROWS, &5_u64.to_be_bytes()).expect("a read"), None);
        let newest = store.engine.snapshot().expect("a snapshot");
        let there = (0..20_000_u64).filter(|number| newest.get(ROWS, &number.to_be_bytes()).expect("a read").is_some());
        assert_eq!(there.count(), 100);
    }
}
