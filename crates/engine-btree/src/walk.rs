//! A walk over a range of a tree.
//!
//! It remembers the key it has come to, not a place in a leaf: each fill walks down again, which costs little beside
//! the rows it yields and leaves every leaf free to change in between.

use crate::coming::{WalkPosition, fence_behind, is_past};
use crate::leaf::{Base, Elsewhere, Found, Leaf, LeafView, found, found_in, with_added};
use crate::leaf_part::{LeafPart, Wanted};
use crate::page::{CellValue, LargeRef, LeafImage, LeafStream, PageDamage};
use crate::pages::{LoadRows, Pages};
use crate::raw_leaf::{RawLeaf, WalkMemory};
use crate::read_ahead::ReadAhead;
use crate::tree::{Child, Target, Tree};
use crate::version::Ground;
use blocks::BlockAddr;
use engine::{Direction, FillLimits, KeyRange, Result, Rows, Seq};
use rcu::Guard;
use std::ops::Bound;
use std::sync::Arc;

/// Rows whose memory is asked for at once: about as many as a processor core waits for at a time.
const FETCHED_ROWS: usize = 16;

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
    ahead: ReadAhead,
    /// The leaf that it is in, where that was read for it alone.
    page: Option<WalkPage>,
    /// Or so much of it as it wanted.
    part: Option<LeafPart>,
}

/// A leaf on disk that is not in memory but for one walk.
struct WalkPage {
    address: BlockAddr,
    rows: PageRows,
    /// What the rows of a stream are in.
    raw: Option<RawLeaf>,
    /// The memory of an image.
    _memory: Option<WalkMemory>,
}

/// Its rows.
enum PageRows {
    /// As they come, for a walk forward. The walk's position is the last that came, unless it is before all.
    Stream(Box<LeafStream>),
    /// All at once: to be walked backwards.
    View(Box<LeafView>),
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
            ahead: ReadAhead::default(),
            page: None,
            part: None,
        }
    }

    /// Goes on at the first row at or after `key` in the direction, inside the range. What it has read ahead goes, and
    /// it is not long any more: who seeks does not pass leaves in their order, and may come to one of them many times,
    /// which is why a part of one stays.
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
        self.page = None;
        self.ahead = ReadAhead::default();
    }

    /// The key that the walk has come to; `None` at its start without a bound.
    pub(crate) fn position_key(&self) -> Option<Vec<u8>> {
        match &self.position {
            Position::At(Bound::Included(key) | Bound::Excluded(key)) => Some(key.clone()),
            _ => None,
        }
    }

    /// Clears `rows` and fills them up to the limits. After an error they are those that came before it, and the walk
    /// goes on where it was met.
    pub(crate) fn fill(
        &mut self,
        pages: &Arc<Pages>,
        tree: &Arc<Tree>,
        at: Seq,
        rows: &mut Rows,
        limits: FillLimits,
    ) -> Result<()> {
        rows.clear();
        let filled = self.take_leaves(pages, tree, at, rows, limits);
        if filled.is_err() {
            // Its rows may have come out further than the walk's position.
            self.page = None;
        }
        filled
    }

    fn take_leaves(
        &mut self,
        pages: &Arc<Pages>,
        tree: &Arc<Tree>,
        at: Seq,
        rows: &mut Rows,
        limits: FillLimits,
    ) -> Result<()> {
        while let Position::At(bound) = &self.position {
            let bound = bound.clone();
            let position = bound.as_ref().map(Vec::as_slice);
            let direction = self.direction;
            let target = match (direction, position) {
                (Direction::Forward, Bound::Unbounded) => Target::First,
                (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) => Target::At(key),
                (Direction::Reverse, Bound::Unbounded) => Target::Last,
                (Direction::Reverse, Bound::Included(key)) => Target::At(key),
                (Direction::Reverse, Bound::Excluded(key)) => Target::Before(key),
            };
            let guard = rcu::pin();
            let descent = tree.descend(target, 0, &guard);
            // What was written of the leaf, if that is in memory, and where its rows are, if they are not.
            let (leaf, view, on_disk) = match descent.child {
                Child::Leaf(leaf) => {
                    let view = leaf.view.load(&guard);
                    if view.retired {
                        continue;
                    }
                    (Some(leaf), Some(view), view.base_at(at).err())
                }
                Child::OnDisk { address, level: 0 } => (None, None, Some(*address)),
                Child::OnDisk { address, level } => {
                    let (address, level) = (*address, *level);
                    drop(guard);
                    pages.bring_in(tree, target, address, level, LoadRows::Wanted)?;
                    continue;
                }
                Child::Nothing => {
                    self.position = Position::Ended;
                    break;
                }
                Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
            };
            let here = WalkPosition {
                descent: &descent,
                direction,
                range: &self.range,
                address: on_disk,
            };
            let far = far_end(&self.range, direction);
            // Why it stopped in the leaf, if it did; and where the rows end that it has seen, unless the leaf does.
            let (stop, fence) = if let Some(address) = on_disk {
                if let Some(part) = self.part.as_ref().filter(|part| part.has(address, direction, position)) {
                    let view = view.unwrap_or(part.view());
                    let far = part.far_end(direction, far);
                    let stop = take_rows(
                        view,
                        Some(part.image()),
                        direction,
                        position,
                        far,
                        at,
                        rows,
                        limits,
                        &guard,
                    );
                    (stop, part.fence(direction).map(<[u8]>::to_vec))
                } else if let Some(page) = self
                    .page
                    .as_mut()
                    .filter(|page| page.address == address && view.is_none())
                {
                    // As long as it is there, it is what its block has, for every snapshot.
                    let taken = page.take_rows(direction, position, far, at, rows, limits, &guard);
                    (taken.map_err(|damage| pages.damaged(address, damage))?, None)
                } else {
                    let leaf = leaf.cloned();
                    if leaf.is_none()
                        && let Some(raw) = self.page.take().and_then(|page| page.raw)
                    {
                        self.ahead.pass_raw(pages, raw);
                    }
                    let is_short = self.ahead.meet(pages, tree, here, &guard);
                    if let Some((parent, _)) = descent.parent {
                        parent.warm();
                    }
                    drop(guard);
                    let rows_max = limits.rows_max.saturating_sub(rows.len());
                    let has_part = is_short && self.read_part(pages, tree, position, address, rows_max);
                    if !has_part {
                        self.read_leaf(pages, tree, target, leaf, address)?;
                    }
                    continue;
                }
            } else {
                let view = view.expect("what is not on disk is in memory");
                self.ahead.pass(pages, tree, here, &guard);
                let image = view.base_at(at).ok().flatten();
                (
                    take_rows(view, image, direction, position, far, at, rows, limits, &guard),
                    None,
                )
            };
            let fence = match (&stop, fence) {
                (Some(_), _) => None,
                (None, Some(fence)) => Some(fence),
                (None, None) => {
                    self.ahead.leave_leaf();
                    self.part = None;
                    fence_behind(&descent, direction)
                }
            };
            drop(guard);
            self.go_on(pages, tree, stop, fence, rows)?;
            if matches!(self.position, Position::Ended) {
                self.part = None;
            }
            if limits.are_reached_by(rows) && !rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Reads what comes next of a leaf on disk; false where all of the leaf shall be read.
    fn read_part(
        &mut self,
        pages: &Pages,
        tree: &Tree,
        position: Bound<&[u8]>,
        address: BlockAddr,
        rows_max: usize,
    ) -> bool {
        let wanted = Wanted {
            direction: self.direction,
            position,
            far: far_end(&self.range, self.direction),
            rows_max,
        };
        let before = self.part.take();
        let is_next = before.is_some_and(|part| part.is_of(address));
        let part = pages.read_part(tree, address, wanted, is_next);
        self.part = part.filter(|part| part.has(address, self.direction, position));
        self.part.is_some()
    }

    /// Reads the rows of a leaf on disk, of which only changes are in memory, or nothing: into memory, or for this walk
    /// alone. Or the walk looks again.
    fn read_leaf(
        &mut self,
        pages: &Arc<Pages>,
        tree: &Arc<Tree>,
        target: Target<'_>,
        leaf: Option<Arc<Leaf>>,
        address: BlockAddr,
    ) -> Result<()> {
        match leaf {
            Some(leaf) => self.ahead.fetch_base(pages, tree, &leaf, address),
            None => {
                self.page = match self.ahead.fetch(pages, tree, target, address)? {
                    None => None,
                    Some(raw) => {
                        let page = WalkPage::new(address, raw, self.direction, pages, &self.ahead);
                        Some(page.map_err(|damage| pages.damaged(address, damage))?)
                    }
                };
                Ok(())
            }
        }
    }

    /// Where the walk goes on after rows of a leaf: behind their end, if nothing stopped it there, else behind the last
    /// row.
    fn go_on(
        &mut self,
        pages: &Pages,
        tree: &Tree,
        stop: Option<Stop>,
        fence: Option<Vec<u8>>,
        rows: &mut Rows,
    ) -> Result<()> {
        self.position = match (stop, fence) {
            (None, None) => Position::Ended,
            (None, Some(fence)) if is_past(&fence, self.direction, &self.range) => Position::Ended,
            (None, Some(fence)) => Position::At(match self.direction {
                Direction::Forward => Bound::Included(fence),
                Direction::Reverse => Bound::Excluded(fence),
            }),
            (Some(Stop::Limits), _) => {
                let last = rows.key(rows.len() - 1).to_vec();
                Position::At(Bound::Excluded(last))
            }
            (Some(Stop::Elsewhere(key, place)), _) => {
                // The snapshot keeps the value where it is.
                let value = pages.fetch(tree, &place)?;
                rows.push_shared(&key, value);
                // What comes next is in this leaf still: the walk goes on here unless the limits are reached.
                Position::At(Bound::Excluded(key))
            }
        };
        Ok(())
    }
}

/// The end of a range that a walk comes to.
fn far_end(range: &KeyRange, direction: Direction) -> Bound<&[u8]> {
    match direction {
        Direction::Forward => range.end.as_ref().map(Vec::as_slice),
        Direction::Reverse => range.start.as_ref().map(Vec::as_slice),
    }
}

impl WalkPage {
    fn new(
        address: BlockAddr,
        raw: RawLeaf,
        direction: Direction,
        pages: &Pages,
        ahead: &ReadAhead,
    ) -> std::result::Result<Self, PageDamage> {
        Ok(match direction {
            Direction::Forward => Self {
                address,
                rows: PageRows::Stream(Box::new(LeafStream::new(raw.bytes().clone())?)),
                raw: Some(raw),
                _memory: None,
            },
            Direction::Reverse => {
                let image = LeafImage::decode(raw.bytes())?;
                ahead.reuse(pages, raw);
                Self {
                    address,
                    _memory: Some(WalkMemory::new(pages.cache(), image.memory_bytes())),
                    rows: PageRows::View(Box::new(LeafView::new(Base::Image(image)))),
                    raw: None,
                }
            }
        })
    }

    /// Takes its rows from `position` on.
    #[expect(clippy::too_many_arguments, reason = "those of `take_rows`")]
    fn take_rows(
        &mut self,
        direction: Direction,
        position: Bound<&[u8]>,
        far: Bound<&[u8]>,
        at: Seq,
        rows: &mut Rows,
        limits: FillLimits,
        guard: &Guard,
    ) -> std::result::Result<Option<Stop>, PageDamage> {
        match &mut self.rows {
            PageRows::Stream(stream) => take_stream(stream, position, far, rows, limits),
            PageRows::View(view) => {
                let image = view.base_at(at).ok().flatten();
                Ok(take_rows(
                    view, image, direction, position, far, at, rows, limits, guard,
                ))
            }
        }
    }
}

/// Takes rows of a leaf, forward, from `position` on: where the last row came, or ahead of it.
fn take_stream(
    stream: &mut LeafStream,
    position: Bound<&[u8]>,
    far: Bound<&[u8]>,
    rows: &mut Rows,
    limits: FillLimits,
) -> std::result::Result<Option<Stop>, PageDamage> {
    let raw = stream.raw().clone();
    let page = rows.add_page(&raw);
    let mut is_ahead = false;
    while let Some(value) = stream.next()? {
        let value = match value {
            CellValue::Inline(place) => Ok(place),
            CellValue::Large(large) => Err(large.cell().len()),
        };
        let key = stream.key();
        if !is_ahead {
            is_ahead = match position {
                Bound::Unbounded => true,
                Bound::Included(start) => key >= start,
                Bound::Excluded(start) => key > start,
            };
            if !is_ahead {
                continue;
            }
        }
        let is_inside = match far {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
        };
        if !is_inside {
            return Ok(None);
        }
        match value {
            Ok(place) => rows.push_of_page([key, &[]], page, place),
            Err(cell_len) => {
                let place = Elsewhere::Large(raw.slice(stream.at() - cell_len..stream.at()));
                return Ok(Some(Stop::Elsewhere(key.to_vec(), place)));
            }
        }
        if limits.are_reached_by(rows) {
            return Ok(Some(Stop::Limits));
        }
    }
    Ok(None)
}

/// Takes rows of a leaf, those of `image` and what was written since, from `position` to `far`.
#[expect(clippy::too_many_arguments, reason = "one step of `Walk::fill`")]
fn take_rows(
    view: &LeafView,
    image: Option<&LeafImage>,
    direction: Direction,
    position: Bound<&[u8]>,
    far: Bound<&[u8]>,
    at: Seq,
    rows: &mut Rows,
    limits: FillLimits,
    guard: &Guard,
) -> Option<Stop> {
    let span = Span::new(view, image, direction, position, far);
    match (view.order.len(), image) {
        (0, None) => None,
        (0, Some(image)) => take_base(image, span.rows, direction, rows, limits),
        _ => take_merged(view, image, span, direction, at, rows, limits, guard),
    }
}

/// Why a walk took no more rows of a leaf.
enum Stop {
    Limits,
    /// A value comes next that is not in the leaf: its key and place.
    Elsewhere(Vec<u8>, Elsewhere),
}

fn stop_at_large(image: &LeafImage, key: Vec<u8>, large: LargeRef<'_>) -> Stop {
    Stop::Elsewhere(key, Elsewhere::Large(image.data().slice_ref(large.cell())))
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
        position: Bound<&[u8]>,
        far: Bound<&[u8]>,
    ) -> Self {
        let (start, end) = match direction {
            Direction::Forward => (position, far),
            Direction::Reverse => (far, position),
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
) -> Option<Stop> {
    if span.is_empty() {
        return None;
    }
    let page = rows.add_page(image.data());
    let mut rows_len = rows.len();
    let mut take = |index: usize| {
        let (key, value) = image.row(index);
        match value {
            CellValue::Inline(range) => {
                rows.push_of_page([key.prefix, key.suffix], page, range);
                limits.are_reached_by(rows).then_some(Stop::Limits)
            }
            CellValue::Large(large) => Some(stop_at_large(image, key.to_vec(), large)),
        }
    };
    let mut left = span;
    while !left.is_empty() {
        let wanted = limits.rows_max.saturating_sub(rows_len).clamp(1, FETCHED_ROWS);
        let count = left.len().min(wanted);
        let mut next = match direction {
            Direction::Forward => left.start..left.start + count,
            Direction::Reverse => left.end - count..left.end,
        };
        image.fetch(next.clone());
        let stop = match direction {
            Direction::Forward => {
                left.start = next.end;
                next.find_map(&mut take)
            }
            Direction::Reverse => {
                left.end = next.start;
                next.rev().find_map(&mut take)
            }
        };
        if stop.is_some() {
            return stop;
        }
        rows_len += count;
    }
    None
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
) -> Option<Stop> {
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
                    return Some(stop_at_large(image, key.to_vec(), large));
                }
            }
        } else {
            let entry = view.entry(next_entry);
            let sight = entry.chain.see(at, guard);
            let ground = match sight.ground {
                Ground::Gone => Found::Nothing,
                Ground::Value(value) => found(value),
                Ground::Base if has_row => found_in(image.expect("it has rows"), next_row),
                Ground::Base => Found::Nothing,
            };
            match with_added(ground, sight.added) {
                Found::Nothing => continue,
                Found::Inline(bytes) => rows.push_shared(&entry.key, bytes),
                Found::Elsewhere(place) => return Some(Stop::Elsewhere(entry.key.to_vec(), place)),
                Found::NotLoaded(..) => unreachable!("the base was looked at"),
            }
        }
        if limits.are_reached_by(rows) {
            return Some(Stop::Limits);
        }
    }
    None
}

#[cfg(test)]
mod tests;
