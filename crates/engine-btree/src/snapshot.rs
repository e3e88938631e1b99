//! Snapshots and cursors.
//!
//! A cursor remembers the key it has come to, not a place in a leaf: each fill walks down again, which costs little beside the
//! rows it yields and leaves every leaf free to change in between.

use crate::ahead::{Ahead, Place, is_past};
use crate::core::{Core, Looked, Rows as LoadRows, look_up};
use crate::leaf::{Base, Found, LeafView, found_in, with_added};
use crate::page::{CellValue, LeafImage};
use crate::tables::Table;
use crate::tree::{Child, Fence, Target, Tree};
use crate::version::{Ground, Value};
use bytes::Bytes;
use engine::{
    Cursor, Direction, EngineError, Estimate, FillLimits, KeyRange, Result, Rows, SampledRange, Sampling, Seq,
    Snapshot, TableId, estimate_by_sampling,
};
use pins::{Holder, Pin};
use rcu::Guard;
use std::ops::Bound;
use std::sync::Arc;

/// A view of all tables at one position.
pub(crate) struct BtreeSnapshot {
    core: Arc<Core>,
    seq: Seq,
    /// Taken when it is dropped.
    pin: Option<Pin>,
}

impl BtreeSnapshot {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let pin = core.pins.pin(Holder::Reader);
        core.counters.snapshots.add(1);
        Self {
            core,
            seq: pin.seq(),
            pin: Some(pin),
        }
    }

    /// What was read, unless the snapshot was ended meanwhile: then it may be wrong.
    #[inline]
    fn checked<T>(&self, result: Result<T>) -> Result<T> {
        match &self.pin {
            Some(pin) if self.core.pins.is_expired(pin) => Err(EngineError::SnapshotTooOld(self.seq)),
            _ => result,
        }
    }

    fn look_up(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let (tree, on_disk) = {
            let guard = rcu::pin();
            let table = self
                .core
                .tables
                .get(table, &guard)
                .filter(|table| table.lives_at(self.seq))
                .ok_or(EngineError::NoSuchTable(table))?;
            match look_up(&table.tree, key, self.seq, &guard) {
                Looked::Known(value) => return Ok(value),
                // Only what waits for the disk pays for the table's count of users.
                Looked::OnDisk(on_disk) => (table.tree.clone(), on_disk),
            }
        };
        self.core.get_from_disk(&tree, key, self.seq, on_disk)
    }

    fn table(&self, id: TableId) -> Result<Arc<Table>> {
        let guard = rcu::pin();
        let table = self.core.tables.get(id, &guard);
        table
            .filter(|table| table.lives_at(self.seq))
            .cloned()
            .ok_or(EngineError::NoSuchTable(id))
    }
}

impl Drop for BtreeSnapshot {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.core.unpin(pin);
        }
    }
}

impl Snapshot for BtreeSnapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        self.core.check_running()?;
        self.core.counters.gets.add(1);
        self.checked(self.look_up(table, key))
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        self.core.check_running()?;
        let table = self.checked(self.table(table))?;
        Ok(Box::new(BtreeCursor::new(self, table.tree.clone(), range, direction)))
    }

    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        self.core.check_running()?;
        let table = self.checked(self.table(table))?;
        let mut sampled = Sampled {
            core: &self.core,
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
    core: &'a Core,
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
            walk.fill(self.core, self.tree, self.at, &mut self.rows, limits)?;
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
        walk.fill(self.core, self.tree, self.at, &mut self.rows, limits)?;
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
        self.snapshot.core.check_running()?;
        self.walk.seek(key);
        self.snapshot.checked(Ok(()))
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        self.snapshot.core.check_running()?;
        let core = self.snapshot.core.clone();
        let filled = self.walk.fill(&core, &self.tree, self.snapshot.seq, rows, limits);
        let filled = self.snapshot.checked(filled.map(|()| !rows.is_empty()));
        if filled.is_err() {
            rows.clear();
        }
        filled
    }
}

/// Where a walk over a range goes on.
enum Position {
    At(Bound<Vec<u8>>),
    Ended,
}

/// A walk over a range of a tree in one direction.
pub(crate) struct Walk {
    range: KeyRange,
    direction: Direction,
    position: Position,
    ahead: Ahead,
}

impl Walk {
    pub(crate) fn new(range: KeyRange, direction: Direction) -> Self {
        let start = match direction {
            Direction::Forward => range.start.clone(),
            Direction::Reverse => range.end.clone(),
        };
        Self {
            range,
            direction,
            position: Position::At(start),
            ahead: Ahead::default(),
        }
    }

    /// Goes on at the first row at or after `key` in the direction, inside the range.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        let start = match self.direction {
            Direction::Forward => match &self.range.start {
                Bound::Included(start) if start.as_slice() >= key => self.range.start.clone(),
                Bound::Excluded(start) if start.as_slice() >= key => self.range.start.clone(),
                _ => Bound::Included(key.to_vec()),
            },
            Direction::Reverse => match &self.range.end {
                Bound::Included(end) if end.as_slice() <= key => self.range.end.clone(),
                Bound::Excluded(end) if end.as_slice() <= key => self.range.end.clone(),
                _ => Bound::Included(key.to_vec()),
            },
        };
        self.position = Position::At(start);
    }

    /// The key that the walk has come to; `None` at its start without a bound.
    pub(crate) fn position_key(&self) -> Option<Vec<u8>> {
        match &self.position {
            Position::At(Bound::Included(key) | Bound::Excluded(key)) => Some(key.clone()),
            _ => None,
        }
    }

    /// Clears `rows` and fills them up to the limits.
    pub(crate) fn fill(
        &mut self,
        core: &Core,
        tree: &Arc<Tree>,
        at: Seq,
        rows: &mut Rows,
        limits: FillLimits,
    ) -> Result<()> {
        rows.clear();
        while let Position::At(bound) = &self.position {
            let bound = bound.clone();
            let target = match (self.direction, &bound) {
                (Direction::Forward, Bound::Unbounded) => Target::First,
                (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => Target::At(key),
                (Direction::Reverse, Bound::Unbounded) => Target::Last,
                (Direction::Reverse, Bound::Included(key)) => Target::At(key),
                (Direction::Reverse, Bound::Excluded(key)) => Target::Before(key),
            };
            let guard = rcu::pin();
            let descent = tree.descend(target, 0, &guard);
            let place = Place {
                descent: &descent,
                direction: self.direction,
                range: &self.range,
            };
            let leaf = match descent.child {
                Child::Leaf(leaf) => {
                    self.ahead.pass(core, tree, place, &guard);
                    leaf
                }
                Child::Stored { address, level } => {
                    let (address, level) = (*address, *level);
                    if level == 0 {
                        self.ahead.plan(core, tree, place, &guard);
                        drop(guard);
                        self.ahead.bring_in(core, tree, target, address)?;
                    } else {
                        drop(guard);
                        core.bring_in(tree, target, address, level, LoadRows::Wanted)?;
                    }
                    continue;
                }
                Child::Nothing => {
                    self.position = Position::Ended;
                    break;
                }
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            };
            let view = leaf.view.load(&guard);
            if view.retired {
                continue;
            }
            if let Err(address) = view.base_at(at) {
                let leaf = leaf.clone();
                drop(guard);
                core.bring_base_in(tree, &leaf, address)?;
                continue;
            }
            match self.take_rows(view, &bound, at, rows, limits, &guard).stop {
                None => {
                    let fence = match self.direction {
                        Direction::Forward => descent.high,
                        Direction::Reverse => descent.low,
                    };
                    self.position = match (fence.map(Fence::to_vec), self.direction) {
                        (None, _) => Position::Ended,
                        (Some(fence), direction) if is_past(&fence, direction, &self.range) => Position::Ended,
                        (Some(high), Direction::Forward) => Position::At(Bound::Included(high)),
                        (Some(low), Direction::Reverse) => Position::At(Bound::Excluded(low)),
                    };
                }
                Some(Stop::Limits) => {
                    let last = rows.key(rows.len() - 1).to_vec();
                    self.position = Position::At(Bound::Excluded(last));
                }
                Some(Stop::Large(key, cell)) => {
                    // The snapshot keeps the value's blocks.
                    drop(guard);
                    let value = core.read_large(tree, &cell)?;
                    rows.push_shared(&key, value);
                    // What comes next is in this leaf still: the walk goes on here unless the limits are reached.
                    self.position = Position::At(Bound::Excluded(key));
                }
            }
            if limits.are_reached_by(rows) && !rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Takes rows of one leaf from `position` on.
    fn take_rows(
        &self,
        view: &LeafView,
        position: &Bound<Vec<u8>>,
        at: Seq,
        rows: &mut Rows,
        limits: FillLimits,
        guard: &Guard,
    ) -> Taken {
        let image = match &view.base {
            Base::Image(image) if at < view.hidden_from => Some(image),
            _ => None,
        };
        let span = Span::new(view, image, self.direction, position, &self.range);
        match (view.order.len(), image) {
            (0, None) => Taken::default(),
            (0, Some(image)) => take_base(image, span.rows, self.direction, rows, limits),
            _ => take_merged(view, image, span, self.direction, at, rows, limits, guard),
        }
    }
}

enum Stop {
    Limits,
    /// A large value comes next: its key and cell.
    Large(Vec<u8>, Bytes),
}

#[derive(Default)]
struct Taken {
    stop: Option<Stop>,
}

/// The rows and entries of a leaf that a walk may yet take.
struct Span {
    rows: std::ops::Range<usize>,
    entries: std::ops::Range<usize>,
}

impl Span {
    fn new(
        view: &LeafView,
        image: Option<&LeafImage>,
        direction: Direction,
        position: &Bound<Vec<u8>>,
        range: &KeyRange,
    ) -> Self {
        let (start, end) = match direction {
            Direction::Forward => (position, &range.end),
            Direction::Reverse => (&range.start, position),
        };
        // First place at or after (or after) a key.
        let row = |key: &[u8], past: bool| {
            image.map_or(0, |image| match image.find(key) {
                Ok(index) => index + usize::from(past),
                Err(index) => index,
            })
        };
        let entry = |key: &[u8], past: bool| match view.find(key) {
            Ok(index) => index + usize::from(past),
            Err(index) => index,
        };
        let rows = image.map_or(0, LeafImage::len);
        let entries = view.order.len();
        let (row_start, entry_start) = match start {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => (row(key, false), entry(key, false)),
            Bound::Excluded(key) => (row(key, true), entry(key, true)),
        };
        let (row_end, entry_end) = match end {
            Bound::Unbounded => (rows, entries),
            Bound::Included(key) => (row(key, true), entry(key, true)),
            Bound::Excluded(key) => (row(key, false), entry(key, false)),
        };
        Self {
            rows: row_start..row_end.max(row_start),
            entries: entry_start..entry_end.max(entry_start),
        }
    }
}

/// Rows of a leaf without a delta.
fn take_base(
    image: &LeafImage,
    span: std::ops::Range<usize>,
    direction: Direction,
    rows: &mut Rows,
    limits: FillLimits,
) -> Taken {
    if span.is_empty() {
        return Taken::default();
    }
    let page = rows.add_page(image.data());
    let mut take = |index: usize| {
        let (key, value) = image.row(index);
        match value {
            CellValue::Inline(range) => {
                rows.push_of_page([key.prefix, key.suffix], page, range);
                limits.are_reached_by(rows).then_some(Stop::Limits)
            }
            CellValue::Large(large) => Some(Stop::Large(key.to_vec(), image.data().slice_ref(large.cell()))),
        }
    };
    let stop = match direction {
        Direction::Forward => span.into_iter().find_map(&mut take),
        Direction::Reverse => span.rev().find_map(&mut take),
    };
    Taken { stop }
}

/// Rows of a leaf's base and delta together.
#[expect(
    clippy::too_many_arguments,
    reason = "one step of `take_rows`, split off for its length"
)]
fn take_merged(
    view: &LeafView,
    image: Option<&LeafImage>,
    span: Span,
    direction: Direction,
    at: Seq,
    rows: &mut Rows,
    limits: FillLimits,
    guard: &Guard,
) -> Taken {
    let page = image.map(|image| rows.add_page(image.data()));
    let (mut row, mut row_end) = (span.rows.start, span.rows.end);
    let (mut entry, mut entry_end) = (span.entries.start, span.entries.end);
    while row < row_end || entry < entry_end {
        let (next_row, next_entry) = match direction {
            Direction::Forward => (row, entry),
            Direction::Reverse => (row_end.wrapping_sub(1), entry_end.wrapping_sub(1)),
        };
        // Which comes first in the direction: the base's row, the entry, or both as one.
        let order = if row == row_end {
            std::cmp::Ordering::Greater
        } else if entry == entry_end {
            std::cmp::Ordering::Less
        } else {
            let order = image
                .expect("it has rows")
                .key(next_row)
                .cmp(&view.entry(next_entry).key);
            if direction == Direction::Forward {
                order
            } else {
                order.reverse()
            }
        };
        let has_row = order.is_le();
        let has_entry = order.is_ge();
        match direction {
            Direction::Forward => {
                row += usize::from(has_row);
                entry += usize::from(has_entry);
            }
            Direction::Reverse => {
                row_end -= usize::from(has_row);
                entry_end -= usize::from(has_entry);
            }
        }
        if !has_entry {
            let image = image.expect("it has rows");
            let (key, value) = image.row(next_row);
            match value {
                CellValue::Inline(range) => {
                    rows.push_of_page([key.prefix, key.suffix], page.expect("with the image"), range)
                }
                CellValue::Large(large) => {
                    return Taken {
                        stop: Some(Stop::Large(key.to_vec(), image.data().slice_ref(large.cell()))),
                    };
                }
            }
        } else {
            let entry = view.entry(next_entry);
            let sight = entry.chain.see(at, guard);
            let ground = match sight.ground {
                Ground::Gone => Found::Nothing,
                Ground::Value(Value::Inline(bytes)) => Found::Inline(bytes.clone()),
                Ground::Value(Value::Large(cell, _)) => Found::Large(cell.clone()),
                Ground::Base if has_row => found_in(image.expect("it has rows"), next_row),
                Ground::Base => Found::Nothing,
            };
            match with_added(ground, sight.added) {
                Found::Nothing => continue,
                Found::Inline(bytes) => rows.push_shared(&entry.key, bytes),
                Found::Large(cell) => {
                    return Taken {
                        stop: Some(Stop::Large(entry.key.to_vec(), cell)),
                    };
                }
                Found::NotLoaded(..) => unreachable!("the base was looked at"),
            }
        }
        if limits.are_reached_by(rows) {
            return Taken {
                stop: Some(Stop::Limits),
            };
        }
    }
    Taken::default()
}
