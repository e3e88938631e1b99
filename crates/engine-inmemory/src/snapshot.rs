//! Reading: a snapshot is a position, a cursor is what is left of a range.

use crate::key::Key;
use crate::shared::Shared;
use crate::table::{Span, Table, Visit};
use bytes::Bytes;
use engine::{
    Cursor, Direction, EngineError, Estimate, FillLimits, KeyRange, Result, Rows, SampledRange, Sampling, Seq,
    Snapshot, TableId, estimate_by_sampling,
};
use pins::{Holder, Pin};
use std::sync::Arc;

/// A view of all tables at a position, registered as open until it is dropped.
pub(crate) struct InMemorySnapshot {
    shared: Arc<Shared>,
    seq: Seq,
    /// Taken when it is dropped.
    pin: Option<Pin>,
}

impl InMemorySnapshot {
    pub(crate) fn new(shared: &Arc<Shared>, holder: Holder) -> Self {
        let pin = shared.pins.pin(holder);
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

    /// The tables of the view, by id.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.shared.tables_at(self.seq)
    }
}

impl Drop for InMemorySnapshot {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.shared.pins.unpin(pin);
        }
    }
}

impl Snapshot for InMemorySnapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let key = Key::new(key);
        let found = self
            .shared
            .with_table(table, self.seq, |table| table.get(&key, self.seq));
        self.checked(found)
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let table = self.checked(self.shared.with_table(table, self.seq, Arc::clone))?;
        let range = Span::of(&range);
        Ok(Box::new(InMemoryCursor {
            table,
            left: range.clone(),
            range,
            direction,
            snapshot: self,
        }))
    }

    /// Exact for a whole table when this is the newest view; otherwise counted or sampled.
    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        let table = self.checked(self.shared.with_table(table, self.seq, Arc::clone))?;
        if splits == 0 && *range == KeyRange::all() {
            let size = table.size();
            return Ok(Estimate {
                rows: size.rows,
                bytes: size.bytes,
                split_keys: Vec::new(),
            });
        }
        let mut sampled = Sampled {
            table: &table,
            span: Span::of(range),
            seq: self.seq,
        };
        let estimate = estimate_by_sampling(&mut sampled, splits);
        self.checked(estimate)
    }
}

/// A range being estimated.
struct Sampled<'a> {
    table: &'a Table,
    span: Span,
    seq: Seq,
}

impl SampledRange for Sampled<'_> {
    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()> {
        let mut left = self.span.clone();
        left.start_at(Key::new(from), Direction::Forward);
        self.table.scan(&mut left, Direction::Forward, self.seq, |key, value| {
            match visit(key.as_slice(), value.len()) {
                Sampling::More => Visit::More,
                Sampling::Enough => Visit::Enough,
            }
        });
        Ok(())
    }

    fn last_key(&mut self) -> Result<Option<Vec<u8>>> {
        let mut last = None;
        self.table
            .scan(&mut self.span.clone(), Direction::Reverse, self.seq, |key, _| {
                last = Some(key.as_slice().to_vec());
                Visit::Enough
            });
        Ok(last)
    }
}

/// A position in a range of a table.
struct InMemoryCursor {
    table: Arc<Table>,
    /// All it may return.
    range: Span,
    /// What it has not returned yet.
    left: Span,
    direction: Direction,
    snapshot: Arc<InMemorySnapshot>,
}

impl Cursor for InMemoryCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.left = self.range.clone();
        self.left.start_at(Key::new(key), self.direction);
        self.snapshot.checked(Ok(()))
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        rows.clear();
        self.table
            .scan(&mut self.left, self.direction, self.snapshot.seq, |key, value| {
                rows.push_shared(key.as_slice(), value.clone());
                if limits.are_reached_by(rows) {
                    Visit::Enough
                } else {
                    Visit::More
                }
            });
        let filled = self.snapshot.checked(Ok(!rows.is_empty()));
        if filled.is_err() {
            rows.clear();
        }
        filled
    }
}
