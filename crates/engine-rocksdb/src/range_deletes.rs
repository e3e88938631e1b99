//! Deletes of ranges: of few rows one by one.
//!
//! RocksDB keeps the ranges that were deleted beside a memtable's rows. The first read behind each new one, of whatever
//! table, sorts all of the memtable's ranges anew: with thousands of them every read takes milliseconds. Small ranges
//! come often, as the rows of a session's last command go with its next one; large ones do not.

use crate::layout::{stored_key, stored_range};
use engine::{Batch, KeyRange, Op, TableId};
use rocksdb::{DB, ReadOptions, WriteBatch};
use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

/// Rows of a range that are deleted one by one, which costs what writing them did.
const SINGLE_ROWS_MAX: usize = 1024;
/// And of all ranges of a batch: a range of RocksDB's is better than a batch that holds all others up.
const BATCH_ROWS_MAX: usize = 65_536;

/// A row's key with its table.
type Key<'b> = (TableId, &'b [u8]);

/// Those of a batch.
pub(crate) struct RangeDeletes<'b> {
    batch: &'b Batch,
    /// Operations of the batch that `written` has.
    noted: usize,
    /// What the batch itself writes, which RocksDB does not have yet.
    written: BTreeSet<Key<'b>>,
    /// Rows deleted one by one so far.
    singles: usize,
}

impl<'b> RangeDeletes<'b> {
    pub(crate) fn new(batch: &'b Batch) -> Self {
        Self {
            batch,
            noted: 0,
            written: BTreeSet::new(),
            singles: 0,
        }
    }

    /// Adds the batch's operation at `place`, which deletes a range, to what RocksDB gets. Answers whether that is a
    /// range there, too.
    pub(crate) fn add(
        &mut self,
        db: &DB,
        (place, table, range): (usize, TableId, &'b KeyRange),
        out: &mut WriteBatch,
    ) -> bool {
        let (from, to) = stored_range(table, range);
        if from >= to {
            return false;
        }
        for op in &self.batch.ops()[self.noted..place] {
            if let Op::Put(table, key, _) | Op::Add(table, key, _) = op {
                self.written.insert((*table, &key[..]));
            }
        }
        self.noted = place;
        let own = self
            .written
            .range(bounds(table, range))
            .map(|(_, key)| stored_key(table, key));
        let most = SINGLE_ROWS_MAX.min(BATCH_ROWS_MAX - self.singles);
        let own: Vec<Vec<u8>> = own.take(most + 1).collect();
        match few_rows(db, &from, &to, most) {
            Some(rows) if rows.len() + own.len() <= most => {
                self.singles += rows.len() + own.len();
                rows.iter().chain(&own).for_each(|key| out.delete(key));
                false
            }
            _ => {
                out.delete_range(from, to);
                true
            }
        }
    }
}

/// A range of a table that is not empty.
fn bounds(table: TableId, range: &KeyRange) -> impl RangeBounds<Key<'_>> {
    let start = match &range.start {
        Bound::Included(key) => Bound::Included((table, &key[..])),
        Bound::Excluded(key) => Bound::Excluded((table, &key[..])),
        Bound::Unbounded => Bound::Included((table, &[][..])),
    };
    let end = match &range.end {
        Bound::Included(key) => Bound::Included((table, &key[..])),
        Bound::Excluded(key) => Bound::Excluded((table, &key[..])),
        Bound::Unbounded => Bound::Excluded((TableId(table.0 + 1), &[][..])),
    };
    (start, end)
}

/// The keys that RocksDB has between two, as long as they are `most` and can be read.
fn few_rows(db: &DB, from: &[u8], to: &[u8], most: usize) -> Option<Vec<Vec<u8>>> {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options.set_total_order_seek(true);
    let mut iterator = db.raw_iterator_opt(options);
    iterator.seek_to_first();
    let mut rows = Vec::new();
    while let Some(key) = iterator.key() {
        if rows.len() == most {
            return None;
        }
        rows.push(key.to_vec());
        iterator.next();
    }
    iterator.status().ok()?;
    Some(rows)
}
