//! Reading: a snapshot is a position, a cursor is what is left of a range.

use crate::shared::Shared;
use crate::store::Visit;
use crate::table::Table;
use bytes::Bytes;
use engine::{
    Cursor, Direction, EngineError, Estimate, FillLimits, KeyRange, Result, Rows, SampledRange, Sampling, Seq,
    Snapshot, TableId, estimate_by_sampling,
};
use pins::Pin;
use std::ops::Bound;
use std::sync::Arc;

/// A view of all tables at a position, registered as open until it is dropped.
pub(crate) struct Mmapv1Snapshot {
    shared: Arc<Shared>,
    seq: Seq,
    /// Taken when it is dropped.
    pin: Option<Pin>,
}

impl Mmapv1Snapshot {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let pin = shared.pin();
        Self {
            seq: pin.seq(),
            pin: Some(pin),
            shared: Arc::clone(shared),
        }
    }

    /// What was read, unless the snapshot was ended meanwhile: then it may lack what it saw.
    fn checked<T>(&self, result: Result<T>) -> Result<T> {
        match &self.pin {
            Some(pin) if self.shared.pins.is_expired(pin) => Err(EngineError::SnapshotTooOld(self.seq)),
            _ => result,
        }
    }

    fn table(&self, id: TableId) -> Result<Arc<Table>> {
        self.checked(self.shared.table_at(id, self.seq))
    }
}

impl Drop for Mmapv1Snapshot {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.shared.unpin(pin);
        }
    }
}

impl Snapshot for Mmapv1Snapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let found = self.table(table)?.get(&self.shared, key, self.seq);
        self.checked(found)
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(Mmapv1Cursor {
            table: self.table(table)?,
            left: Some(range.clone()),
            range,
            direction,
            snapshot: self,
        }))
    }

    /// Exact for a whole table when this is the newest view; otherwise counted or sampled.
    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        let table = self.table(table)?;
        if splits == 0 && *range == KeyRange::all() {
            let state = table.state.read();
            return Ok(Estimate {
                rows: state.store.rows,
                bytes: state.store.data_bytes,
                split_keys: Vec::new(),
            });
        }
        let mut sampled = Sampled {
            shared: &self.shared,
            table: &table,
            range,
            seq: self.seq,
        };
        let estimate = estimate_by_sampling(&mut sampled, splits);
        self.checked(estimate)
    }
}

/// A range being estimated.
struct Sampled<'a> {
    shared: &'a Shared,
    table: &'a Table,
    range: &'a KeyRange,
    seq: Seq,
}

impl SampledRange for Sampled<'_> {
    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()> {
        let left = begin_at(self.range, from, Direction::Forward);
        let pager = self.table.pager(self.shared);
        self.table
            .scan(self.shared, &left, Direction::Forward, self.seq, &mut |key, value| {
                Ok(match visit(key, value.len(&pager)?) {
                    Sampling::More => Visit::More,
                    Sampling::Enough => Visit::Enough,
                })
            })
    }

    fn last_key(&mut self) -> Result<Option<Vec<u8>>> {
        let mut last = None;
        self.table
            .scan(self.shared, self.range, Direction::Reverse, self.seq, &mut |key, _| {
                last = Some(key.to_vec());
                Ok(Visit::Enough)
            })?;
        Ok(last)
    }
}

/// What of a range is at or behind `key` in a direction.
fn begin_at(range: &KeyRange, key: &[u8], direction: Direction) -> KeyRange {
    let mut left = range.clone();
    let bound = match direction {
        Direction::Forward => &mut left.start,
        Direction::Reverse => &mut left.end,
    };
    let beyond = |old: &[u8]| match direction {
        Direction::Forward => old > key,
        Direction::Reverse => old < key,
    };
    let stands = match &*bound {
        Bound::Included(old) => beyond(old),
        Bound::Excluded(old) => old == key || beyond(old),
        Bound::Unbounded => false,
    };
    if !stands {
        *bound = Bound::Included(key.to_vec());
    }
    left
}

/// A position in a range of a table.
struct Mmapv1Cursor {
    table: Arc<Table>,
    /// All it may return.
    range: KeyRange,
    /// What it has not returned yet; `None` at the end.
    left: Option<KeyRange>,
    direction: Direction,
    snapshot: Arc<Mmapv1Snapshot>,
}

impl Cursor for Mmapv1Cursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.left = Some(begin_at(&self.range, key, self.direction));
        self.snapshot.checked(Ok(()))
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        rows.clear();
        let shared = &self.snapshot.shared;
        let pager = self.table.pager(shared);
        let mut result = Ok(());
        if let Some(mut left) = self.left.take() {
            let mut is_full = false;
            result = self
                .table
                .scan(shared, &left, self.direction, self.snapshot.seq, &mut |key, value| {
                    value.with(&pager, |value| rows.push(key, value))?;
                    is_full = limits.are_reached_by(rows);
                    Ok(if is_full { Visit::Enough } else { Visit::More })
                });
            if result.is_err() {
                // Who asks again gets the same error, or the rows.
                self.left = Some(left);
            } else if is_full {
                let last = Bound::Excluded(rows.key(rows.len() - 1).to_vec());
                match self.direction {
                    Direction::Forward => left.start = last,
                    Direction::Reverse => left.end = last,
                }
                self.left = Some(left);
            }
        }
        let filled = self.snapshot.checked(result.map(|()| !rows.is_empty()));
        if filled.is_err() {
            rows.clear();
        }
        filled
    }
}
