//! Reading: a view of all tables, which nothing changes any more, and cursors over it.

use crate::table::{Place, Table};
use bytes::Bytes;
use engine::{Cursor, Direction, EngineError, Estimate, FillLimits, KeyRange, Result, Rows, Seq, Snapshot, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything at one position.
#[derive(Clone, Default)]
pub(crate) struct View {
    pub(crate) seq: Seq,
    /// Rises with every change, with that of bulk loads, too, which have no position of their own.
    pub(crate) changes: u64,
    pub(crate) tables: BTreeMap<TableId, Arc<Table>>,
}

impl View {
    pub(crate) fn table(&self, id: TableId) -> Result<&Arc<Table>> {
        self.tables.get(&id).ok_or(EngineError::NoSuchTable(id))
    }
}

pub(crate) struct DeltaSnapshot(pub(crate) Arc<View>);

impl Snapshot for DeltaSnapshot {
    fn seq(&self) -> Seq {
        self.0.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.0.table(table)?.get(key).cloned())
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let table = self.0.table(table)?.clone();
        let (start, end) = table.places(&range);
        Ok(Box::new(DeltaCursor {
            table,
            range: (start, end),
            rest: (start, end),
            direction,
        }))
    }

    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        let table = self.0.table(table)?;
        let (start, end) = table.places(range);
        let (first, last) = (table.rank(start), table.rank(end));
        let rows = last - first;
        let parts = (splits + 1).min(rows.max(1));
        let split = |part: usize| table.at_rank(first + rows * part / parts).map(|(key, _)| key.to_vec());
        Ok(Estimate {
            rows: rows as u64,
            bytes: (u128::from(table.bytes) * rows as u128 / u128::from(table.rows.max(1))) as u64,
            split_keys: (1..parts).filter_map(split).collect(),
        })
    }
}

/// Places stay valid, as the table does not change.
struct DeltaCursor {
    table: Arc<Table>,
    range: (Place, Place),
    /// What has not been read.
    rest: (Place, Place),
    direction: Direction,
}

impl Cursor for DeltaCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let (start, end) = self.range;
        self.rest = match self.direction {
            Direction::Forward => (self.table.find(key, false).clamp(start, end), end),
            Direction::Reverse => (start, self.table.find(key, true).clamp(start, end)),
        };
        Ok(())
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        rows.clear();
        while self.rest.0 < self.rest.1 {
            let at = match self.direction {
                Direction::Forward => self.rest.0,
                Direction::Reverse => self.table.previous(self.rest.1),
            };
            match self.direction {
                Direction::Forward => self.rest.0 = self.table.next(at),
                Direction::Reverse => self.rest.1 = at,
            }
            let (key, value) = self.table.row(at);
            rows.push_shared(key, value.clone());
            if limits.are_reached_by(rows) {
                break;
            }
        }
        Ok(!rows.is_empty())
    }
}
