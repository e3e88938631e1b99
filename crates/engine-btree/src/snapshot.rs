//! Snapshots and cursors: the reading side of the engine, which cannot write.

use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::pages::{Lookup, Pages, look_up};
use crate::readers::Readers;
use crate::tables::Table;
use crate::tree::Tree;
use crate::walk::Walk;
use bytes::Bytes;
use engine::{
    Cursor, Direction, EngineError, EngineStatus, Estimate, FillLimits, KeyRange, Result, Rows, SampledRange, Sampling,
    Seq, Snapshot, TableId, estimate_by_sampling,
};
use pins::{Holder, Pin};
use std::sync::Arc;

/// What readers share.
pub(crate) struct ReadSide {
    catalog: Arc<Catalog>,
    pages: Arc<Pages>,
    readers: Arc<Readers>,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
}

impl ReadSide {
    pub(crate) fn new(base: &Foundation) -> Arc<Self> {
        Arc::new(Self {
            catalog: base.catalog.clone(),
            pages: base.pages.clone(),
            readers: base.readers.clone(),
            status: base.status.clone(),
            counters: base.counters.clone(),
        })
    }
}

/// A view of all tables at one position.
pub(crate) struct BtreeSnapshot {
    side: Arc<ReadSide>,
    seq: Seq,
    /// Taken when it is dropped.
    pin: Option<Pin>,
}

impl BtreeSnapshot {
    pub(crate) fn new(side: Arc<ReadSide>) -> Self {
        let pin = side.readers.pin(Holder::Reader);
        side.counters.snapshots.add(1);
        Self {
            side,
            seq: pin.seq(),
            pin: Some(pin),
        }
    }

    /// What was read, unless the snapshot was ended meanwhile: then it may be wrong.
    #[inline]
    fn checked<T>(&self, result: Result<T>) -> Result<T> {
        match &self.pin {
            Some(pin) if self.side.readers.is_expired(pin) => Err(EngineError::SnapshotTooOld(self.seq)),
            _ => result,
        }
    }

    fn look_up(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let (tree, missing) = {
            let guard = rcu::pin();
            let table = self
                .side
                .catalog
                .get(table, &guard)
                .filter(|table| table.lives_at(self.seq))
                .ok_or(EngineError::NoSuchTable(table))?;
            match look_up(&table.tree, key, self.seq, &guard) {
                Lookup::Known(value) => return Ok(value),
                // Only what waits for the disk pays for the table's count of users.
                Lookup::Missing(missing) => (table.tree.clone(), missing),
            }
        };
        self.side.pages.get_from_disk(&tree, key, self.seq, missing)
    }

    fn table(&self, id: TableId) -> Result<Arc<Table>> {
        let guard = rcu::pin();
        let table = self.side.catalog.get(id, &guard);
        table
            .filter(|table| table.lives_at(self.seq))
            .cloned()
            .ok_or(EngineError::NoSuchTable(id))
    }
}

impl Drop for BtreeSnapshot {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.side.readers.unpin(pin);
        }
    }
}

impl Snapshot for BtreeSnapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        self.side.status.check_running()?;
        self.side.counters.gets.add(1);
        self.checked(self.look_up(table, key))
    }

    fn expect(&self, table: TableId, keys: &[&[u8]]) {
        if let Ok(table) = self.table(table) {
            self.side.pages.expect_keys(&table.tree, keys);
        }
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        self.side.status.check_running()?;
        let table = self.checked(self.table(table))?;
        Ok(Box::new(BtreeCursor::new(self, table.tree.clone(), range, direction)))
    }

    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        self.side.status.check_running()?;
        let table = self.checked(self.table(table))?;
        let mut sampled = Sampled {
            pages: &self.side.pages,
            tree: &table.tree,
            at: self.seq,
            range,
            rows: Rows::new(),
        };
        let estimate = estimate_by_sampling(&mut sampled, splits);
        self.checked(estimate)
    }
}

struct Sampled<'a> {
    pages: &'a Arc<Pages>,
    tree: &'a Arc<Tree>,
    at: Seq,
    range: &'a KeyRange,
    rows: Rows,
}

impl SampledRange for Sampled<'_> {
    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()> {
        const STEP: usize = 64;
        let mut walk = Walk::new(self.range.clone(), Direction::Forward);
        walk.seek(from);
        loop {
            let limits = FillLimits {
                rows_max: STEP,
                bytes_max: 1 << 20,
            };
            walk.fill(self.pages, self.tree, self.at, &mut self.rows, limits)?;
            if self.rows.is_empty() {
                return Ok(());
            }
            for index in 0..self.rows.len() {
                if visit(self.rows.key(index), self.rows.value(index).len()) == Sampling::Enough {
                    return Ok(());
                }
            }
        }
    }

    fn last_key(&mut self) -> Result<Option<Vec<u8>>> {
        let mut walk = Walk::new(self.range.clone(), Direction::Reverse);
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        walk.fill(self.pages, self.tree, self.at, &mut self.rows, limits)?;
        Ok((!self.rows.is_empty()).then(|| self.rows.key(0).to_vec()))
    }
}

struct BtreeCursor {
    snapshot: Arc<BtreeSnapshot>,
    tree: Arc<Tree>,
    walk: Walk,
}

impl BtreeCursor {
    fn new(snapshot: Arc<BtreeSnapshot>, tree: Arc<Tree>, range: KeyRange, direction: Direction) -> Self {
        Self {
            snapshot,
            tree,
            walk: Walk::new(range, direction),
        }
    }
}

impl Cursor for BtreeCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.snapshot.side.status.check_running()?;
        self.walk.seek(key);
        self.snapshot.checked(Ok(()))
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        self.snapshot.side.status.check_running()?;
        let side = self.snapshot.side.clone();
        let filled = self.walk.fill(&side.pages, &self.tree, self.snapshot.seq, rows, limits);
        let filled = self.snapshot.checked(filled.map(|()| !rows.is_empty()));
        if filled.is_err() {
            // Whoever goes on has not seen them.
            if !rows.is_empty() {
                self.walk.seek(rows.key(0));
            }
            rows.clear();
        }
        filled
    }
}
