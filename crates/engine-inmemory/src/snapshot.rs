//! Reading: a snapshot is a position, a cursor is what is left of a range.

use crate::key::Key;
use crate::shared::Shared;
use crate::table::{Span, Table, Visit};
use bytes::Bytes;
use engine::{Cursor, Direction, Estimate, FillLimits, KeyRange, Result, Rows, Seq, Snapshot, TableId};
use std::ops::Bound;
use std::sync::Arc;

/// A view of all tables at a position, registered as open until it is dropped.
pub(crate) struct InMemorySnapshot {
    shared: Arc<Shared>,
    seq: Seq,
}

impl InMemorySnapshot {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            seq: shared.pins.pin(),
            shared: Arc::clone(shared),
        }
    }

    /// The tables of the view, by id.
    pub(crate) fn tables(&self) -> Vec<Arc<Table>> {
        self.shared.tables_at(self.seq)
    }
}

impl Drop for InMemorySnapshot {
    fn drop(&mut self) {
        self.shared.pins.unpin(self.seq);
    }
}

impl Snapshot for InMemorySnapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let key = Key::new(key);
        self.shared
            .with_table(table, self.seq, |table| table.get(&key, self.seq))
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let table = self.shared.with_table(table, self.seq, Arc::clone)?;
        let range = Span::of(&range);
        Ok(Box::new(InMemoryCursor {
            table,
            left: range.clone(),
            range,
            direction,
            snapshot: self,
        }))
    }

    /// Walks the range, in proportion to its rows, unless it is the whole table and no splits are asked for.
    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        let table = self.shared.with_table(table, self.seq, Arc::clone)?;
        if splits == 0 && *range == KeyRange::all() {
            let size = table.size();
            return Ok(Estimate {
                rows: size.rows,
                bytes: size.bytes,
                split_keys: Vec::new(),
            });
        }
        let mut estimate = Estimate::default();
        table.scan(&mut Span::of(range), Direction::Forward, self.seq, |key, value| {
            estimate.rows += 1;
            estimate.bytes += (key.len() + value.len()) as u64;
            Visit::More
        });
        let parts = (splits as u64 + 1).min(estimate.rows.max(1));
        let mut row = 0;
        let rows = estimate.rows;
        if parts > 1 {
            table.scan(&mut Span::of(range), Direction::Forward, self.seq, |key, _| {
                let part = estimate.split_keys.len() as u64 + 1;
                if row == rows * part / parts {
                    estimate.split_keys.push(key.as_slice().to_vec());
                }
                row += 1;
                if part == parts { Visit::Enough } else { Visit::More }
            });
        }
        Ok(estimate)
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
        let key = Key::new(key);
        self.left = self.range.clone();
        match self.direction {
            Direction::Forward => {
                let starts_after = match &self.range.lower {
                    Bound::Included(lower) => *lower > key,
                    Bound::Excluded(lower) => *lower >= key,
                    Bound::Unbounded => false,
                };
                if !starts_after {
                    self.left.lower = Bound::Included(key);
                }
            }
            Direction::Reverse => {
                let ends_before = match &self.range.upper {
                    Bound::Included(upper) => *upper < key,
                    Bound::Excluded(upper) => *upper <= key,
                    Bound::Unbounded => false,
                };
                if !ends_before {
                    self.left.upper = Bound::Included(key);
                }
            }
        }
        Ok(())
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
        Ok(!rows.is_empty())
    }
}
