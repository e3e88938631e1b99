//! Putting batches in, and clearing away what nobody sees any more.
//!
//! A write leaves the version it covers behind, because snapshots may need it. Whoever leaves the first one of a key
//! puts the key on a queue; every later batch works off a bounded piece of the queue, as far as the open snapshots
//! allow. A dropped table goes the same way: out of the list of tables when no snapshot sees it, then row by row, so
//! that no batch pays for freeing it all.
//!
//! What is left behind is *history*. Beyond its bound the oldest snapshot is ended, and what it alone saw goes the same
//! way.
//!
//! Invariant: a chain with more than one version has one entry on the queue. The queue rises in `Seq`; when no snapshot
//! is older than an entry, nothing that was covered up to there is needed. What was covered later keeps the key on the
//! queue, at its end.

use crate::key::Key;
use crate::shared::Shared;
use crate::table::{Residue, RowMap, Span, Table};
use bytes::Bytes;
use engine::{Batch, EngineError, KEY_BYTES_MAX, KeyRange, Op, Result, Seq, TableId, TableSpec, VALUE_BYTES_MAX};
use pins::Horizon;
use std::collections::VecDeque;
use std::sync::Arc;

/// Queue entries a batch works off beside two for each of its operations.
const SWEEP_BASE: usize = 32;
/// And those that a batch works off when too much was left behind.
const SWEEP_BOUNDED: usize = 1024;
/// Keys a range delete removes under one lock.
const DELETE_SLICE: usize = 256;

/// The writing side: one batch at a time.
pub(crate) struct Applier {
    last: Seq,
    horizon: Horizon,
    residue: VecDeque<(Seq, Left)>,
    /// Rows of dropped tables, being freed. Until they are, they count in [`Shared::memory_bytes`].
    graves: Vec<RowMap>,
    /// Memory of what was left behind, and what it may take.
    history_bytes: usize,
    history_max: usize,
    /// Snapshots that were ended for it.
    ended: u64,
    /// The table of the last operation: batches tend to stay with one or two.
    recent: Option<Arc<Table>>,
}

/// What is to be cleared away once no snapshot is older than its `Seq`.
enum Left {
    Row(Arc<Table>, Key),
    Table(TableId),
}

impl Applier {
    pub(crate) fn new(last: Seq, history_max: usize) -> Self {
        Self {
            last,
            horizon: Horizon::default(),
            residue: VecDeque::new(),
            graves: Vec::new(),
            history_bytes: 0,
            history_max,
            ended: 0,
            recent: None,
        }
    }

    /// Memory of what was left behind.
    pub(crate) fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// Positions whose snapshots were ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// Bounds what may be left behind.
    pub(crate) fn set_history_max(&mut self, bytes: usize) {
        self.history_max = bytes;
    }

    /// Entries waiting to be cleared away.
    pub(crate) fn pending(&self) -> usize {
        self.residue.len() + self.graves.len()
    }

    /// Puts a batch in as of `seq`. After an error part of it is in: the engine must stop.
    pub(crate) fn apply(&mut self, shared: &Shared, batch: &Batch, seq: Seq) -> Result<()> {
        if seq <= self.last {
            return Err(invalid(format!("{seq:?} does not follow {:?}", self.last)));
        }
        self.last = seq;
        shared.pins.refresh(&mut self.horizon);
        self.sweep(shared, SWEEP_BASE + 2 * batch.ops().len());
        for op in batch.ops() {
            self.apply_one(shared, op, seq)?;
        }
        self.recent = None;
        self.bound_history(shared);
        Ok(())
    }

    /// Ends the oldest snapshot when too much was left behind for it. What it alone needed goes piece by piece, with
    /// this batch and the next ones; only then it is told whether that was enough.
    fn bound_history(&mut self, shared: &Shared) {
        if self.history_bytes <= self.history_max {
            return;
        }
        shared.pins.update(&mut self.horizon);
        if !self.sweep(shared, SWEEP_BOUNDED) && self.history_bytes > self.history_max {
            self.ended += u64::from(shared.pins.expire_oldest().is_some());
        }
    }

    /// Takes in what a write of a key left behind.
    fn note(&mut self, table: &Arc<Table>, seq: Seq, key: impl FnOnce() -> Key, residue: Residue) {
        self.history_bytes = self.history_bytes.saturating_add_signed(residue.bytes);
        if residue.is_new {
            self.residue.push_back((seq, Left::Row(Arc::clone(table), key())));
        }
    }

    fn apply_one(&mut self, shared: &Shared, op: &Op, seq: Seq) -> Result<()> {
        match op {
            Op::Put(table, key, value) => {
                check_length("value", value.len(), VALUE_BYTES_MAX)?;
                let value = Bytes::copy_from_slice(value);
                self.write(shared, *table, key, seq, |table, horizon| {
                    table.write(key, Some(value), seq, horizon)
                })
            }
            Op::Delete(table, key) => self.write(shared, *table, key, seq, |table, horizon| {
                table.write(key, None, seq, horizon)
            }),
            Op::Add(table, key, amount) => self.write(shared, *table, key, seq, |table, horizon| {
                table.add(key, *amount, seq, horizon)
            }),
            Op::DeleteRange(table, range) => self.delete_range(shared, *table, range, seq),
            Op::CreateTable(table, spec) => self.create_table(shared, *table, spec, seq),
            Op::DropTable(table) => {
                self.drop_table(shared, *table, seq);
                Ok(())
            }
        }
    }

    fn write(
        &mut self,
        shared: &Shared,
        table: TableId,
        key: &[u8],
        seq: Seq,
        write: impl FnOnce(&Table, &Horizon) -> Residue,
    ) -> Result<()> {
        check_length("key", key.len(), KEY_BYTES_MAX)?;
        let table = self.find(shared, table)?;
        let residue = write(&table, &self.horizon);
        self.note(&table, seq, || Key::new(key), residue);
        self.recent = Some(table);
        Ok(())
    }

    fn delete_range(&mut self, shared: &Shared, table: TableId, range: &KeyRange, seq: Seq) -> Result<()> {
        let table = self.find(shared, table)?;
        let mut span = Span::of(range);
        while !span.is_empty() {
            let mut left = Vec::new();
            table.delete_span(&mut span, DELETE_SLICE, seq, &self.horizon, |key, residue| {
                left.push((key, residue));
            });
            for (key, residue) in left {
                self.note(&table, seq, || key, residue);
            }
        }
        Ok(())
    }

    fn create_table(&mut self, shared: &Shared, id: TableId, spec: &TableSpec, seq: Seq) -> Result<()> {
        match shared.live_table(id) {
            Ok(table) if table.spec.kind == spec.kind => Ok(()),
            Ok(table) => Err(invalid(format!(
                "{id:?} exists as {:?}, not {:?}",
                table.spec.kind, spec.kind
            ))),
            Err(_) => {
                shared.insert_table(Table::new(id, spec.clone(), seq));
                Ok(())
            }
        }
    }

    fn drop_table(&mut self, shared: &Shared, id: TableId, seq: Seq) {
        self.recent = None;
        if let Ok(table) = shared.live_table(id) {
            table.drop_at(seq);
            self.residue.push_back((seq, Left::Table(id)));
        }
    }

    fn find(&mut self, shared: &Shared, id: TableId) -> Result<Arc<Table>> {
        match self.recent.take() {
            Some(table) if table.id == id => Ok(table),
            _ => shared.live_table(id),
        }
    }

    /// Clears away as much as the open snapshots allow; locks nothing for long.
    pub(crate) fn sweep_slice(&mut self, shared: &Shared) -> bool {
        shared.pins.update(&mut self.horizon);
        self.sweep(shared, 1024)
    }

    /// Works off up to `budget` entries. Returns true when more could be done at once.
    fn sweep(&mut self, shared: &Shared, budget: usize) -> bool {
        if let Some(grave) = self.graves.last_mut() {
            let before = grave.memory_bytes();
            let has_more = grave.free_some(budget);
            shared.forget_memory(before - grave.memory_bytes());
            if !has_more {
                self.graves.pop();
            }
        }
        for _ in 0..budget.min(self.residue.len()) {
            match self.residue.front() {
                Some((seq, _)) if *seq <= self.horizon.oldest() => {}
                _ => return !self.graves.is_empty(),
            }
            match self.residue.pop_front() {
                Some((_, Left::Row(table, key))) => {
                    let residue = table.prune(&key, &self.horizon);
                    self.history_bytes = self.history_bytes.saturating_add_signed(residue.bytes);
                    if residue.is_left {
                        // Behind all there are: nothing was written later.
                        self.residue.push_back((self.last, Left::Row(table, key)));
                    }
                }
                Some((_, Left::Table(id))) => {
                    if let Some(table) = shared.remove_table(id) {
                        let rows = table.take_rows();
                        self.history_bytes = self.history_bytes.saturating_sub(rows.history_bytes());
                        self.graves.push(rows);
                    }
                }
                None => break,
            }
        }
        !self.graves.is_empty()
            || self
                .residue
                .front()
                .is_some_and(|(seq, _)| *seq <= self.horizon.oldest())
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
