//! Putting batches in, and clearing away what nobody sees any more.
//!
//! Records are changed where they lie. What an open snapshot sees of them is copied to the table's history first;
//! when none is open, nothing is. A batch is visible as soon as it is in: the gate keeps new snapshots out until
//! then, and the batch publishes itself.
//!
//! Invariants: a key with history has one entry on the queue, which rises in `Seq`; extents of dropped tables go back
//! to their database only when no snapshot is older than the drop and their pages have left the cache.

use crate::database::Database;
use crate::history::Noted;
use crate::namespaces::slots_for;
use crate::shared::Shared;
use crate::space::{Extent, Owner};
use crate::store::{Store, Visit};
use crate::table::{State, Table};
use bytes::Bytes;
use engine::{
    Batch, Direction, EngineError, KEY_BYTES_MAX, KeyRange, Op, Result, Seq, TableId, TableSpec, VALUE_BYTES_MAX,
};
use pins::Horizon;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Queue entries a batch works off beside two for each of its operations.
const SWEEP_BASE: usize = 32;
/// And those that a batch works off when too much was left behind.
const SWEEP_BOUNDED: usize = 1024;
/// Pages of extents that are given back with one batch.
const RELEASED_PAGES: usize = 512;
/// And with one checkpoint.
const RELEASED_BY_CHECKPOINT: usize = 128 << 10;
/// Keys a range delete removes under one lock.
const DELETE_SLICE: usize = 256;

/// The writing side: one batch at a time, and no checkpoint's cut in the middle of one.
pub(crate) struct Applier {
    pub(crate) last: Seq,
    horizon: Horizon,
    /// Snapshots are open: what they see is kept.
    keeps: bool,
    residue: VecDeque<(Seq, Left)>,
    /// Extents that nobody reads any more, with the first page that is still to leave the cache.
    released: VecDeque<(Arc<Database>, Extent, u32)>,
    history_bytes: usize,
    history_max: usize,
    /// Snapshots that were ended for it.
    ended: u64,
    /// Tables whose stores changed since a checkpoint drew its cut.
    pub(crate) changed: BTreeSet<TableId>,
}

/// What is to be cleared away once no snapshot is older than its `Seq`.
enum Left {
    Row(Arc<Table>, Box<[u8]>),
    Table(TableId),
}

impl Applier {
    pub(crate) fn new(last: Seq, history_max: usize) -> Self {
        Self {
            last,
            horizon: Horizon::default(),
            keeps: false,
            residue: VecDeque::new(),
            released: VecDeque::new(),
            history_bytes: 0,
            history_max,
            ended: 0,
            changed: BTreeSet::new(),
        }
    }

    pub(crate) fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    pub(crate) fn set_history_max(&mut self, bytes: usize) {
        self.history_max = bytes;
    }

    /// Entries waiting to be cleared away.
    pub(crate) fn pending(&self) -> usize {
        self.residue.len() + self.released.len()
    }

    /// Whether extents wait to be given back that nobody reads any more.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// Puts a batch in as of `seq`. After an error part of it is in: the engine must stop.
    pub(crate) fn apply(&mut self, shared: &Shared, batch: &Batch, seq: Seq) -> Result<()> {
        if seq <= self.last {
            return Err(invalid(format!("{seq:?} does not follow {:?}", self.last)));
        }
        let _no_snapshot_begins = shared.gate.write();
        self.last = seq;
        self.keeps = shared.has_snapshots();
        if self.keeps || !self.residue.is_empty() {
            shared.pins.update(&mut self.horizon);
            self.sweep(shared, SWEEP_BASE + 2 * batch.ops().len());
        }
        self.release_some(shared, RELEASED_PAGES);
        for op in batch.ops() {
            self.apply_one(shared, op, seq)?;
        }
        self.bound_history(shared);
        shared.pins.publish(seq);
        Ok(())
    }

    /// Ends the oldest snapshot when too much was kept for it. What it alone needed goes piece by piece, with this
    /// batch and the next ones; only then it is told whether that was enough.
    fn bound_history(&mut self, shared: &Shared) {
        if self.history_bytes <= self.history_max {
            return;
        }
        shared.pins.update(&mut self.horizon);
        if !self.sweep(shared, SWEEP_BOUNDED) && self.history_bytes > self.history_max {
            self.ended += u64::from(shared.pins.expire_oldest().is_some());
        }
    }

    fn apply_one(&mut self, shared: &Shared, op: &Op, seq: Seq) -> Result<()> {
        match op {
            Op::Put(table, key, value) => {
                check_length("value", value.len(), VALUE_BYTES_MAX)?;
                let table = self.table(shared, *table, key)?;
                self.put(shared, &table, key, value, seq)
            }
            Op::Delete(table, key) => {
                let table = self.table(shared, *table, key)?;
                self.delete(shared, &table, key, seq)
            }
            Op::Add(table, key, amount) => {
                let table = self.table(shared, *table, key)?;
                let before = table
                    .state
                    .read()
                    .store
                    .get(&table.pager(shared), table.spec.kind, key, |value| {
                        value.try_into().map_or(0, i64::from_le_bytes)
                    })?;
                let sum = before.unwrap_or(0).wrapping_add(*amount);
                self.put(shared, &table, key, &sum.to_le_bytes(), seq)
            }
            Op::DeleteRange(table, range) => {
                let table = shared.live_table(*table)?;
                self.delete_range(shared, &table, range, seq)
            }
            Op::CreateTable(table, spec) => self.create_table(shared, *table, spec, seq),
            Op::DropTable(table) => {
                self.drop_table(shared, *table, seq);
                Ok(())
            }
        }
    }

    fn table(&self, shared: &Shared, id: TableId, key: &[u8]) -> Result<Arc<Table>> {
        check_length("key", key.len(), KEY_BYTES_MAX)?;
        shared.live_table(id)
    }

    fn put(&mut self, shared: &Shared, table: &Arc<Table>, key: &[u8], value: &[u8], seq: Seq) -> Result<()> {
        let mut state = table.change();
        self.note(shared, table, &mut state, key, seq)?;
        state.store.put(&table.pager(shared), table.spec.kind, key, value)?;
        self.changed.insert(table.id);
        Ok(())
    }

    fn delete(&mut self, shared: &Shared, table: &Arc<Table>, key: &[u8], seq: Seq) -> Result<()> {
        let mut state = table.change();
        self.note(shared, table, &mut state, key, seq)?;
        if state.store.delete(&table.pager(shared), table.spec.kind, key)? {
            self.changed.insert(table.id);
            self.reset_if_empty(table, &mut state);
        }
        Ok(())
    }

    /// Keeps what snapshots see of a row that is about to change.
    fn note(&mut self, shared: &Shared, table: &Arc<Table>, state: &mut State, key: &[u8], seq: Seq) -> Result<()> {
        if !self.keeps {
            return Ok(());
        }
        let State { store, history, .. } = state;
        let bytes = history.bytes();
        let noted = history.note(key, seq, self.horizon.open(), || {
            store.get(&table.pager(shared), table.spec.kind, key, Bytes::copy_from_slice)
        })?;
        self.history_bytes = self.history_bytes + history.bytes() - bytes;
        if noted == Noted::First {
            self.residue.push_back((seq, Left::Row(Arc::clone(table), key.into())));
        }
        Ok(())
    }

    fn delete_range(&mut self, shared: &Shared, table: &Arc<Table>, range: &KeyRange, seq: Seq) -> Result<()> {
        if *range == KeyRange::all() && !self.keeps {
            let mut state = table.change();
            state.store.rows = 0;
            self.changed.insert(table.id);
            self.reset_if_empty(table, &mut state);
            return Ok(());
        }
        let mut left = range.clone();
        loop {
            // The newest rows: no history concerns the position of this batch.
            let mut keys = Vec::new();
            table.scan(shared, &left, Direction::Forward, seq, &mut |key, _| {
                keys.push(key.to_vec());
                Ok(if keys.len() == DELETE_SLICE {
                    Visit::Enough
                } else {
                    Visit::More
                })
            })?;
            for key in &keys {
                self.delete(shared, table, key, seq)?;
            }
            match keys.pop() {
                Some(last) if keys.len() + 1 == DELETE_SLICE => left.start = Bound::Excluded(last),
                _ => return Ok(()),
            }
        }
    }

    /// A table without rows gives back all its extents.
    fn reset_if_empty(&mut self, table: &Table, state: &mut State) {
        if state.store.rows > 0 {
            return;
        }
        let emptied = std::mem::take(&mut state.store);
        state.store.moves = emptied.moves;
        self.release(&table.database, &emptied.extents);
    }

    /// Gives extents back. From the next checkpoint on they are free on disk.
    pub(crate) fn release(&mut self, database: &Arc<Database>, extents: &[Extent]) {
        let mut space = database.space.lock();
        for &extent in extents {
            space.set_owner(extent, Owner::NOBODY);
            self.released.push_back((Arc::clone(database), extent, 0));
        }
    }

    fn create_table(&mut self, shared: &Shared, id: TableId, spec: &TableSpec, seq: Seq) -> Result<()> {
        match shared.live_table(id) {
            Ok(table) if table.spec.kind == spec.kind => Ok(()),
            Ok(table) => Err(invalid(format!(
                "{id:?} exists as {:?}, not {:?}",
                table.spec.kind, spec.kind
            ))),
            Err(_) => {
                let slots = slots_for(spec).ok_or_else(|| invalid(format!("the name of {id:?} is too long")))?;
                let database = shared.database_for(&spec.name);
                database.namespaces.lock().add(id, spec, slots);
                shared.insert_table(Table::new(id, spec.clone(), database, seq, Store::default()));
                Ok(())
            }
        }
    }

    fn drop_table(&mut self, shared: &Shared, id: TableId, seq: Seq) {
        if let Ok(table) = shared.live_table(id) {
            table.drop_at(seq);
            table.database.namespaces.lock().remove(id);
            self.changed.remove(&id);
            let state = table.state.read();
            let mut space = table.database.space.lock();
            for &extent in &state.store.extents {
                space.set_owner(extent, Owner::NOBODY);
            }
            drop((space, state));
            self.residue.push_back((seq, Left::Table(id)));
        }
    }

    /// Clears away everything that the open snapshots allow.
    pub(crate) fn sweep_all(&mut self, shared: &Shared) {
        self.sweep_history(shared);
        self.release_some(shared, usize::MAX);
    }

    /// As [`Applier::sweep_all`], but of extents no more than goes quickly.
    pub(crate) fn sweep_history(&mut self, shared: &Shared) {
        shared.pins.update(&mut self.horizon);
        while self.sweep(shared, SWEEP_BOUNDED) {}
        self.release_some(shared, RELEASED_BY_CHECKPOINT);
    }

    /// Works off up to `budget` entries. True when more could be done at once.
    fn sweep(&mut self, shared: &Shared, budget: usize) -> bool {
        let is_due = |seq: Seq, horizon: &Horizon| seq <= horizon.oldest();
        for _ in 0..budget.min(self.residue.len()) {
            if !self.residue.front().is_some_and(|(seq, _)| is_due(*seq, &self.horizon)) {
                return false;
            }
            match self.residue.pop_front() {
                Some((_, Left::Row(table, key))) => {
                    let mut state = table.write();
                    let bytes = state.history.bytes();
                    let is_left = state.history.clear(&key, self.horizon.open());
                    self.history_bytes = self.history_bytes + state.history.bytes() - bytes;
                    drop(state);
                    if is_left {
                        // Behind all there are: nothing was written later.
                        self.residue.push_back((self.last, Left::Row(table, key)));
                    }
                }
                Some((_, Left::Table(id))) => {
                    if let Some(table) = shared.remove_table(id) {
                        let state = std::mem::take(&mut *table.write());
                        self.history_bytes -= state.history.bytes();
                        self.release(&table.database, &state.store.extents);
                    }
                }
                None => break,
            }
        }
        self.residue.front().is_some_and(|(seq, _)| is_due(*seq, &self.horizon))
    }

    /// Takes up to `budget` pages of released extents out of the cache, and gives back the extents that are through.
    fn release_some(&mut self, shared: &Shared, mut budget: usize) {
        while let Some((database, extent, next)) = self.released.front_mut() {
            for page in extent.page_locs().skip(*next as usize).take(budget) {
                if let Ok(id) = database.page_id(page) {
                    shared.cache.forget(id);
                }
                *next += 1;
                budget -= 1;
            }
            if *next < extent.pages {
                return;
            }
            database.space.lock().free(*extent);
            self.released.pop_front();
        }
    }
}

fn check_length(what: &str, length: usize, max: usize) -> Result<()> {
    if length <= max {
        Ok(())
    } else {
        Err(invalid(format!("a {what} of {length} bytes is longer than {max}")))
    }
}

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "apply",
        reason,
    }
}
