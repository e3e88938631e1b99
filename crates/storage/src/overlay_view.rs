//! A snapshot with changes on top of it that are nobody else's yet: a transaction reads its own writes.
//!
//! The cursor merges two ordered sources: where both have a key, the change rules; a removal hides the row.

use bytes::Bytes;
use engine::{
    Batch, Cursor, Direction, EngineError, Estimate, FillLimits, KeyRange, Op, Result, Rows, Seq, Snapshot, TableId,
};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;

type Table = BTreeMap<Bytes, Option<Bytes>>;

/// Rows that are changed, by table and in order; `None` where a row goes.
pub(crate) type Changed = BTreeMap<TableId, Arc<Table>>;

/// Follows a batch that grows, and shrinks when a statement takes back what has been shown.
#[derive(Default)]
pub(crate) struct ChangedRows {
    rows: Arc<Changed>,
    operations: usize,
}

impl ChangedRows {
    /// The rows that a batch changes. Only puts and removals of keys: transactions make no others.
    pub(crate) fn of(&mut self, batch: &Batch) -> Arc<Changed> {
        let ops = batch.ops();
        debug_assert!(self.operations <= ops.len(), "told of what was taken back");
        if self.operations < ops.len() {
            // Views that are still open keep what they have.
            let rows = Arc::make_mut(&mut self.rows);
            for op in &ops[self.operations..] {
                let (table, key, value) = match op {
                    Op::Put(table, key, value) => (*table, key, Some(value.clone())),
                    Op::Delete(table, key) => (*table, key, None),
                    _ => continue,
                };
                Arc::make_mut(rows.entry(table).or_default()).insert(key.clone(), value);
            }
            self.operations = ops.len();
        }
        self.rows.clone()
    }

    /// The batch has been cut to so many operations. What they changed is found again when it is asked for.
    pub(crate) fn forget_behind(&mut self, operations: usize) {
        if operations < self.operations {
            *self = Self::default();
        }
    }
}

/// See the module.
pub(crate) struct OverlaySnapshot {
    base: Arc<dyn Snapshot>,
    rows: Arc<Changed>,
}

impl OverlaySnapshot {
    pub(crate) fn new(base: Arc<dyn Snapshot>, rows: Arc<Changed>) -> Self {
        Self { base, rows }
    }
}

impl Snapshot for OverlaySnapshot {
    fn seq(&self) -> Seq {
        self.base.seq()
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        match self.rows.get(&table).and_then(|rows| rows.get(key)) {
            Some(value) => Ok(value.clone()),
            None => known(self.base.get(table, key)).map(Option::flatten),
        }
    }

    fn expect(&self, table: TableId, keys: &[&[u8]]) {
        self.base.expect(table, keys);
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let base = known(self.base.clone().cursor(table, range.clone(), direction))?;
        let changed = self.rows.get(&table);
        match (base, changed) {
            (Some(base), None) => Ok(base),
            (base, changed) => Ok(Box::new(MergedCursor {
                is_base_over: base.is_none(),
                base,
                rows: Rows::new(),
                at: 0,
                changed: changed.cloned().unwrap_or_default(),
                left: range.clone(),
                range,
                direction,
            })),
        }
    }

    /// That of the state below: own changes are few beside it.
    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        Ok(known(self.base.estimate(table, range, splits))?.unwrap_or_default())
    }
}

/// A table that came after the snapshot has no rows in it.
fn known<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(EngineError::NoSuchTable(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Rows asked from the state below at once.
const BASE_LIMITS: FillLimits = FillLimits {
    rows_max: 64,
    bytes_max: 64 << 10,
};

struct MergedCursor {
    base: Option<Box<dyn Cursor>>,
    /// Rows of `base`, of which those before `at` have been given.
    rows: Rows,
    at: usize,
    is_base_over: bool,
    changed: Arc<Table>,
    range: KeyRange,
    /// The changed keys that have not been given.
    left: KeyRange,
    direction: Direction,
}

/// Which source has the next row.
enum Next {
    Base,
    Changed,
    Both,
}

impl MergedCursor {
    /// The next changed row.
    fn changed(&self) -> Option<(&Bytes, &Option<Bytes>)> {
        let KeyRange { start, end } = &self.left;
        if is_empty(start, end) {
            return None;
        }
        let mut rows = self.changed.range::<[u8], _>((as_slice(start), as_slice(end)));
        match self.direction {
            Direction::Forward => rows.next(),
            Direction::Reverse => rows.next_back(),
        }
    }

    /// Goes on behind a changed key.
    fn pass(&mut self, key: &[u8]) {
        let passed = Excluded(key.to_vec());
        match self.direction {
            Direction::Forward => self.left.start = passed,
            Direction::Reverse => self.left.end = passed,
        }
    }

    fn load(&mut self) -> Result<()> {
        if self.at == self.rows.len() && !self.is_base_over {
            self.is_base_over = match &mut self.base {
                Some(base) => !base.fill(&mut self.rows, BASE_LIMITS)?,
                None => true,
            };
            self.at = 0;
        }
        Ok(())
    }

    fn next(&self) -> Option<Next> {
        let base = (self.at < self.rows.len()).then(|| self.rows.key(self.at));
        match (base, self.changed()) {
            (None, None) => None,
            (Some(_), None) => Some(Next::Base),
            (None, Some(_)) => Some(Next::Changed),
            (Some(base), Some((key, _))) if base == key.as_ref() => Some(Next::Both),
            (Some(base), Some((key, _))) => Some(match (base < key.as_ref(), self.direction) {
                (true, Direction::Forward) | (false, Direction::Reverse) => Next::Base,
                _ => Next::Changed,
            }),
        }
    }
}

impl Cursor for MergedCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some(base) = &mut self.base {
            base.seek(key)?;
        }
        self.rows.clear();
        (self.at, self.is_base_over) = (0, self.base.is_none());
        let key = key.to_vec();
        let KeyRange { start, end } = self.range.clone();
        self.left = match self.direction {
            Direction::Forward => KeyRange {
                start: tighter(start, Included(key), Ordering::Greater),
                end,
            },
            Direction::Reverse => KeyRange {
                start,
                end: tighter(end, Included(key), Ordering::Less),
            },
        };
        Ok(())
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        rows.clear();
        while !limits.are_reached_by(rows) {
            self.load()?;
            let Some(next) = self.next() else { break };
            if let Next::Base = next {
                rows.push_shared(self.rows.key(self.at), self.rows.value_bytes(self.at));
                self.at += 1;
                continue;
            }
            self.at += usize::from(matches!(next, Next::Both));
            let (key, value) = self.changed().expect("it was chosen");
            let (key, value) = (key.clone(), value.clone());
            if let Some(value) = value {
                rows.push_shared(&key, value);
            }
            self.pass(&key);
        }
        Ok(!rows.is_empty())
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// A map's `range` panics on these.
fn is_empty(start: &Bound<Vec<u8>>, end: &Bound<Vec<u8>>) -> bool {
    match (start, end) {
        (Unbounded, _) | (_, Unbounded) => false,
        (Included(start), Included(end)) => start > end,
        (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
    }
}

/// The bound of two that lets less in: from below the one whose key is `Greater`, from above the one whose key is
/// `Less`.
fn tighter(a: Bound<Vec<u8>>, b: Bound<Vec<u8>>, tighter: Ordering) -> Bound<Vec<u8>> {
    match (&a, &b) {
        (Unbounded, _) => b,
        (_, Unbounded) => a,
        (Included(x) | Excluded(x), Included(y) | Excluded(y)) => match x.cmp(y) {
            Ordering::Equal if matches!(a, Excluded(_)) => a,
            order if order == tighter => a,
            _ => b,
        },
    }
}
