//! A stretch of a table's keys, as a snapshot sees it: at most one basement, and the messages for its keys.
//!
//! 1. Walk from the root to a basement, and make the window as narrow as each step asks.
//! 2. Copy what memtables have of it, a bounded number of keys: it becomes narrower still where they have many.
//! 3. Sort the messages of the window, and merge them with the rows.
//!
//! A cursor reads one window after the other and keeps nothing in between.

use crate::core::Core;
use crate::fold::{Seeing, Seen, Sweep};
use crate::memtable::Wanted;
use crate::merge::{end_of_key, sorted};
use crate::node::{Node, Segment, SegmentPlace};
use crate::run::{Entry, Key, OpRef, Run, behind};
use crate::table::Table;
use engine::{Direction, Result, Seq};
use std::sync::Arc;

/// Basements that a scan reads ahead, at most.
const READ_AHEAD: usize = 16;

/// See the module.
pub(crate) struct Window {
    pub(crate) low: Key,
    pub(crate) high: Option<Key>,
    /// Newest first.
    messages: Vec<Arc<Run>>,
    rows: Option<Arc<Run>>,
}

/// Where a cursor stands, and how.
pub(crate) struct Reading<'r> {
    pub(crate) core: &'r Core,
    pub(crate) table: &'r Table,
    pub(crate) direction: Direction,
    pub(crate) wanted: Wanted,
    /// The window before was read to its end: more will be read.
    pub(crate) is_scan: bool,
}

impl Reading<'_> {
    /// The window that begins at the end of `low..high` where the cursor goes in.
    pub(crate) fn window(&self, low: &Key, high: Option<&Key>) -> Result<Window> {
        let state = self.table.state();
        let mut window = Window {
            low: low.clone(),
            high: high.cloned(),
            messages: Vec::new(),
            rows: None,
        };
        if let Some(root) = &state.tree.root {
            let node = self.core.load_node(self.table.id, root, None)?;
            self.descend(node, &mut window)?;
        }
        let mut newest = Vec::new();
        for memtable in state.memtables().filter(|memtable| !memtable.is_empty()) {
            let (low, high) = (&window.low, window.high.as_deref());
            let (run, cut) = match self.direction {
                Direction::Forward => memtable.copy_forward(low, high, self.wanted),
                Direction::Reverse => memtable.copy_backward(low, high, self.wanted),
            };
            window.cut(cut, self.direction);
            if !run.is_empty() {
                newest.push(Arc::new(run));
            }
        }
        newest.append(&mut window.messages);
        window.messages = newest;
        Ok(window)
    }

    fn descend(&self, mut node: Arc<Node>, window: &mut Window) -> Result<()> {
        // Segments are read when it is known how narrow the window is.
        let mut segments: Vec<Segment> = Vec::new();
        let (mut low, mut high): (Key, Option<Key>) = (Key::from(&[][..]), None);
        loop {
            let below = match &*node {
                Node::Leaf(leaf) => {
                    let index = match self.direction {
                        Direction::Forward => leaf.find(&window.low),
                        Direction::Reverse => leaf.find_below(window.high.as_deref()),
                    };
                    if let Some(index) = index {
                        let (row_low, row_high) = leaf.range(index, &low, high.as_deref());
                        window.narrow(row_low, row_high);
                        if self.is_scan {
                            let ahead = match self.direction {
                                Direction::Forward => index..leaf.basements.len().min(index + READ_AHEAD),
                                Direction::Reverse => (index + 1).saturating_sub(READ_AHEAD)..index + 1,
                            };
                            if !self.core.cache.has(&leaf.basements[index].unit.first) {
                                let mut units = leaf.basements[ahead].iter().map(|basement| &basement.unit);
                                self.core.read_ahead(self.table.id, &mut units);
                            }
                        }
                        let run = self.core.load_run(self.table.id, &leaf.basements[index].unit)?;
                        self.cut_at_row(&run, window);
                        window.rows = Some(run);
                    } else {
                        window.narrow(&low, high.as_deref());
                    }
                    break;
                }
                Node::Inner(inner) => {
                    let index = match self.direction {
                        Direction::Forward => inner.find(&window.low),
                        Direction::Reverse => inner.find_below(window.high.as_deref()),
                    };
                    let (child_low, child_high) = inner.range(index, &low, high.as_deref());
                    let (child_low, child_high) = (Key::from(child_low), child_high.map(Key::from));
                    window.narrow(&child_low, child_high.as_deref());
                    (low, high) = (child_low, child_high);
                    let slot = &inner.slots[index];
                    let here = |segment: &&Segment| segment.concerns(&window.low, window.high.as_deref());
                    segments.extend(slot.buffer.iter().filter(here).cloned());
                    self.core
                        .load_node(self.table.id, &slot.child, Some(inner.height - 1))?
                }
            };
            node = below;
        }
        for segment in segments
            .iter()
            .filter(|s| s.concerns(&window.low, window.high.as_deref()))
        {
            let SegmentPlace::Disk(unit) = &segment.place else {
                unreachable!("segments of a tree that is installed are written")
            };
            window.messages.push(self.core.load_run(self.table.id, unit)?);
        }
        Ok(())
    }

    /// Few rows are wanted: the messages for the others need not be looked at.
    fn cut_at_row(&self, run: &Arc<Run>, window: &mut Window) {
        match self.direction {
            Direction::Forward => {
                let start = run.start_bound(&window.low);
                let end = start + self.wanted.keys;
                if end < run.len() && run.key(end) > run.key(start) {
                    window.narrow(&[], Some(run.key(end)));
                }
            }
            Direction::Reverse => {
                let end = run.end_bound(window.high.as_deref());
                if let Some(start) = end.checked_sub(self.wanted.keys + 1)
                    && run.key(start) < run.key(end - 1)
                {
                    window.narrow(&behind(run.key(start)), None);
                }
            }
        }
    }
}

/// A row that is seen.
pub(crate) struct Found<'w> {
    pub(crate) key: &'w [u8],
    pub(crate) value: Seen<'w>,
    /// The value lies in the basement.
    pub(crate) is_of_rows: bool,
}

/// Keys of a window that a reader passes over, as they were deleted.
#[derive(Default)]
pub(crate) struct Deleted<'w> {
    pub(crate) keys: u64,
    /// The first of them, and the position of the oldest deletion.
    pub(crate) first: Option<(&'w [u8], Seq)>,
}

impl<'w> Deleted<'w> {
    fn add(&mut self, key: &'w [u8], seq: Seq) {
        self.keys += 1;
        let (_, oldest) = self.first.get_or_insert((key, seq));
        *oldest = seq.min(*oldest);
    }
}

impl Window {
    fn cut(&mut self, at: Option<Key>, direction: Direction) {
        match (at, direction) {
            (None, _) => {}
            (Some(at), Direction::Forward) => self.high = Some(at),
            (Some(at), Direction::Reverse) => self.low = at,
        }
    }

    fn narrow(&mut self, low: &[u8], high: Option<&[u8]>) {
        if *self.low < *low {
            self.low = low.into();
        }
        if let Some(high) = high
            && self.high.as_ref().is_none_or(|own| **own > *high)
        {
            self.high = Some(high.into());
        }
    }

    /// The basement, for values that lie in it.
    pub(crate) fn rows(&self) -> Option<&Arc<Run>> {
        self.rows.as_ref()
    }

    /// Shows the rows that a reader at `seq` sees, in rising order, until `each` answers false. Answers what was
    /// deleted before.
    pub(crate) fn visit<'w>(&'w self, seq: Seq, mut each: impl FnMut(Found<'w>) -> bool) -> Deleted<'w> {
        let messages = sorted(self.messages.iter(), &self.low, self.high.as_deref());
        let tombstones = self.messages.iter().flat_map(|run| run.tombstones());
        let mut sweep = Sweep::new(tombstones.filter(|tombstone| tombstone.seq <= seq));
        let (mut row, rows_end) = self.rows.as_ref().map_or((0, 0), |run| {
            (run.start_bound(&self.low), run.end_bound(self.high.as_deref()))
        });
        let entry_of = |row: usize| self.rows.as_ref().expect("it has rows").entry(row);
        let mut current = (row < rows_end).then(|| entry_of(row));
        let mut message = 0;
        let mut deleted = Deleted::default();
        loop {
            let key = match (&current, messages.get(message)) {
                (Some(entry), Some(message)) => entry.key.min(message.key),
                (Some(entry), None) => entry.key,
                (None, Some(message)) => message.key,
                (None, None) => return deleted,
            };
            let mut state = Deciding {
                seq,
                covered: sweep.covering(key).first().copied(),
                seeing: Seeing::default(),
                seen: None,
                decided_by: None,
            };
            if messages.get(message).is_some_and(|entry| entry.key == key) {
                let end = end_of_key(&messages, message);
                messages[message..end].iter().for_each(|entry| state.take(entry));
                message = end;
            }
            let is_decided = state.seen.is_some();
            while let Some(entry) = current.filter(|entry| entry.key == key) {
                state.take(&entry);
                row += 1;
                current = (row < rows_end).then(|| entry_of(row));
            }
            let value = state.seen.unwrap_or_else(|| state.seeing.end());
            if value == Seen::Nothing {
                // Else all that there is of it came behind the reader.
                if let Some(seq) = state.decided_by {
                    deleted.add(key, seq);
                }
                continue;
            }
            let found = Found {
                key,
                value,
                is_of_rows: !is_decided,
            };
            if !each(found) {
                return deleted;
            }
        }
    }
}

/// What is known of one key.
struct Deciding<'w> {
    seq: Seq,
    covered: Option<Seq>,
    seeing: Seeing,
    seen: Option<Seen<'w>>,
    decided_by: Option<Seq>,
}

impl<'w> Deciding<'w> {
    #[inline]
    fn take(&mut self, entry: &Entry<'w>) {
        if self.seen.is_some() || entry.seq > self.seq {
            return;
        }
        let is_covered = self.covered.is_some_and(|covered| covered > entry.seq);
        self.seen = self.seeing.take(if is_covered { OpRef::Delete } else { entry.op });
        if self.seen.is_some() {
            self.decided_by = self.covered.filter(|_| is_covered).or(Some(entry.seq));
        }
    }
}
