//! Cursors: windows, one after the other.

use crate::fold::Seen;
use crate::memtable::Wanted;
use crate::run::{Key, behind, half_open};
use crate::snapshot::BetreeSnapshot;
use crate::table::Table;
use crate::window::{Found, Reading, Window};
use engine::{Cursor, Direction, FillLimits, KeyRange, PageIndex, Result, Rows};
use std::sync::Arc;

/// Keys of one window, at least and at most.
const KEYS_MIN: usize = 16;
const KEYS_MAX: usize = 2048;
/// Bytes of one window that memtables give, at least, unless they have fewer.
const BYTES_MIN: usize = 16 << 10;

/// See the module. Holds nothing of the tree between two calls: only its snapshot.
pub(crate) struct BetreeCursor {
    snapshot: Arc<BetreeSnapshot>,
    table: Arc<Table>,
    direction: Direction,
    range_low: Key,
    range_high: Option<Key>,
    /// What is left.
    low: Key,
    high: Option<Key>,
    is_at_end: bool,
    is_scan: bool,
}

impl BetreeCursor {
    pub(crate) fn new(
        snapshot: Arc<BetreeSnapshot>,
        table: Arc<Table>,
        range: &KeyRange,
        direction: Direction,
    ) -> Self {
        let (low, high) = half_open(range);
        let is_at_end = high.as_ref().is_some_and(|high| *high <= low);
        Self {
            snapshot,
            table,
            direction,
            range_low: low.clone(),
            range_high: high.clone(),
            low,
            high,
            is_at_end,
            is_scan: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Appends the rows of a window; false when a limit is reached.
    fn take(&mut self, window: &Window, rows: &mut Rows, limits: FillLimits) -> bool {
        let seq = self.snapshot.position();
        let mut page: Option<PageIndex> = None;
        let mut push = |found: &Found<'_>, rows: &mut Rows| match (found.value, window.rows()) {
            (Seen::Value(value), Some(run)) if found.is_of_rows => {
                let page = *page.get_or_insert_with(|| rows.add_page(run.raw()));
                rows.push_of_page([found.key, &[]], page, run.place_of(value));
            }
            (Seen::Value(value), _) => rows.push(found.key, value),
            (Seen::Number(number), _) => rows.push(found.key, &number.to_le_bytes()),
            (Seen::Nothing, _) => {}
        };
        let mut is_full = false;
        let deleted = match self.direction {
            Direction::Forward => window.visit(seq, |found| {
                push(&found, rows);
                is_full = limits.are_reached_by(rows);
                if is_full {
                    self.low = behind(found.key);
                }
                !is_full
            }),
            Direction::Reverse => {
                let mut all: Vec<Found<'_>> = Vec::new();
                let deleted = window.visit(seq, |found| {
                    all.push(found);
                    true
                });
                for found in all.iter().rev() {
                    push(found, rows);
                    is_full = limits.are_reached_by(rows);
                    if is_full {
                        self.high = Some(found.key.into());
                        break;
                    }
                }
                deleted
            }
        };
        if let Some((first, oldest)) = deleted.first {
            self.snapshot
                .core()
                .note_passed(&self.table, deleted.keys, first, oldest);
        }
        !is_full
    }
}

impl Cursor for BetreeCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        (self.low, self.high) = (self.range_low.clone(), self.range_high.clone());
        self.is_scan = false;
        match self.direction {
            Direction::Forward if *key > *self.low => self.low = key.into(),
            Direction::Reverse => {
                let end = behind(key);
                if self.high.as_ref().is_none_or(|high| end < *high) {
                    self.high = Some(end);
                }
            }
            Direction::Forward => {}
        }
        self.is_at_end = self.is_empty();
        Ok(())
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        rows.clear();
        let mut before = None;
        let filled = self.take_windows(rows, limits, &mut before);
        if filled.is_err() {
            // Who asks again gets the same error, or all of these rows.
            rows.clear();
            if let Some(before) = before {
                (self.low, self.high) = before;
            }
        }
        filled.map(|()| !rows.is_empty())
    }
}

impl BetreeCursor {
    /// Appends the rows of one window after the other until a limit is reached. Where it goes on to another window, it
    /// leaves in `before` the bounds that it began with: an error comes before the first one changes, or from a later
    /// window.
    fn take_windows(
        &mut self,
        rows: &mut Rows,
        limits: FillLimits,
        before: &mut Option<(Key, Option<Key>)>,
    ) -> Result<()> {
        let mut keys_min = KEYS_MIN;
        while !self.is_at_end {
            let keys = limits.rows_max.saturating_sub(rows.len());
            let bytes = limits.bytes_max.saturating_sub(rows.byte_size());
            let reading = Reading {
                core: self.snapshot.core(),
                table: &self.table,
                direction: self.direction,
                wanted: Wanted {
                    keys: keys.clamp(keys_min, KEYS_MAX),
                    bytes: bytes.max(BYTES_MIN),
                },
                is_scan: self.is_scan,
            };
            let window = reading.window(&self.low, self.high.as_ref())?;
            if !self.take(&window, rows, limits) {
                self.is_at_end = self.is_empty();
                self.is_scan = true;
                break;
            }
            self.is_scan = true;
            // On to the next window. Where little is found in one, much is passed over: each costs a walk from the top.
            keys_min = (keys_min * 2).min(KEYS_MAX);
            match self.direction {
                Direction::Forward => match window.high {
                    Some(high) => {
                        let low = std::mem::replace(&mut self.low, high);
                        before.get_or_insert_with(|| (low, self.high.clone()));
                    }
                    None => self.is_at_end = true,
                },
                Direction::Reverse if window.low.is_empty() => self.is_at_end = true,
                Direction::Reverse => {
                    let high = self.high.replace(window.low);
                    before.get_or_insert_with(|| (self.low.clone(), high));
                }
            }
            self.is_at_end |= self.is_empty();
        }
        Ok(())
    }
}
