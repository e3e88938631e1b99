//! Merging a leaf's delta into its base: the work behind splits, write-back and checkpoints.
//!
//! A consolidation brings the base to one position, `through`, and keeps in the new delta only
//! 1. versions above it, which the published position has not reached,
//! 2. for each key that changed while a snapshot was open below its newest change, what those snapshots see (undo), and
//! 3. values too large for a leaf that have no blocks of their own yet.
//!
//! It touches no lock, no file, and nothing of the leaf it reads: readers go on there until the result is published.

use crate::delta::{Arena, Entry, Order};
use crate::fill::Fill;
use crate::large_values::LargeOwner;
use crate::leaf::{Base, LeafState, LeafView};
use crate::page::{
    CellValue, KeyParts, LEAF_ROW_BYTES_MAX, LargeRef, LeafBuilder, LeafImage, NewValue, shortest_separator,
};
use crate::version::{Change, Ground, SEQ_MAX, Value, Version, chain_of, change_bytes, see_from, sum};
use engine::Seq;
use rcu::Guard;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::sync::Arc;

/// Retained entries of one piece, at most about: half of what a delta holds.
const RETAINED_MAX: usize = crate::delta::WRITES_MAX / 2;

/// Rows that a leaf may have whose split has to wait: a block has room for no more than half of what an image has.
const UNSPLIT_BYTES_MAX: usize = LEAF_ROW_BYTES_MAX / 4;

/// What a consolidation shall do.
pub(crate) struct ConsolidationPlan<'a> {
    /// The base's new position.
    pub(crate) through: Seq,
    /// Positions of open snapshots, rising.
    pub(crate) readers: &'a [Seq],
    /// Values of this many bytes and more stay out of leaves.
    pub(crate) large_bytes_min: usize,
    /// Row bytes a leaf should have at most; `usize::MAX` never splits.
    pub(crate) target_bytes: usize,
    /// New rows came at the right end: leave full leaves behind, which end where this says.
    pub(crate) appending: Option<&'a Fill>,
}

/// A leaf that a consolidation made.
pub(crate) struct Piece {
    /// Lowest key; `None` for the first piece, which begins where the consolidated leaf did.
    pub(crate) low: Option<Vec<u8>>,
    pub(crate) image: LeafImage,
    pub(crate) retained: Vec<Entry>,
    /// Heap bytes of the retained entries.
    pub(crate) retained_bytes: usize,
    /// Key and value bytes of the retained entries, what came before the image not among them.
    pub(crate) retained_rows: usize,
    pub(crate) retained_versions: usize,
    /// Heap bytes of undo among the retained entries.
    pub(crate) undo_bytes: usize,
    /// The oldest change that is not in the image.
    pub(crate) valid_to: Seq,
    /// Owners of large values whose cells the image holds: tell them before anybody sees it.
    pub(crate) owners: Vec<Arc<LargeOwner>>,
}

/// The result of a consolidation.
pub(crate) struct Consolidated {
    pub(crate) pieces: Vec<Piece>,
    /// The newest change that went into the images; `ZERO` when none did.
    pub(crate) newest: Seq,
    /// Cells of large values that the base had and the images do not, and since when something else is there.
    pub(crate) dropped_large: Vec<(bytes::Bytes, Seq)>,
}

rcu::thread_local! {
    static BUILDER: RefCell<LeafBuilder> = RefCell::new(LeafBuilder::new());
}

/// A row of the merge: of the base, of the delta, or of both.
pub(crate) struct Merged<'v> {
    pub(crate) row: Option<usize>,
    pub(crate) entry: Option<&'v Entry>,
}

/// Walks base and delta in key order.
pub(crate) fn merged<'v>(view: &'v LeafView, image: Option<&'v LeafImage>) -> impl Iterator<Item = Merged<'v>> {
    let rows = image.map_or(0, LeafImage::len);
    let entries = view.order.len();
    let (mut row, mut entry) = (0, 0);
    std::iter::from_fn(move || {
        let order = match (row < rows, entry < entries) {
            (false, false) => return None,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => image.expect("it has rows").key(row).cmp(&view.entry(entry).key),
        };
        let merged = Merged {
            row: (order != Ordering::Greater).then_some(row),
            entry: (order != Ordering::Less).then(|| view.entry(entry)),
        };
        row += usize::from(merged.row.is_some());
        entry += usize::from(merged.entry.is_some());
        Some(merged)
    })
}

/// A base row's value.
pub(crate) fn base_value(image: &LeafImage, row: usize) -> Value {
    match image.value(row) {
        CellValue::Inline(range) => Value::Inline(image.data().slice(range)),
        CellValue::Large(large) => Value::Large(image.data().slice_ref(large.cell()), None),
    }
}

/// Row bytes of a leaf with its newest changes, written or not. The base must be in memory.
pub(crate) fn row_bytes(view: &LeafView, large_bytes_min: usize, guard: &Guard) -> usize {
    let image = match &view.base {
        Base::Image(image) if view.range_tombstone == SEQ_MAX => Some(image),
        _ => None,
    };
    let mut total = image.map_or(0, LeafImage::row_bytes);
    for at in 0..view.order.len() {
        let entry = view.entry(at);
        let newest = entry.chain.head(guard).map(|version| &version.change);
        if matches!(newest, Some(Change::AsBase)) {
            // Its row is counted.
            continue;
        }
        let below = image.and_then(|image| image.find(&entry.key).ok().map(|row| image.row(row)));
        if let Some((key, value)) = below {
            let value = match value {
                CellValue::Inline(range) => range.len(),
                CellValue::Large(large) => large.cell().len(),
            };
            total = total.saturating_sub(key.len() + value);
        }
        total += match newest {
            Some(Change::Put(value)) => entry.key.len() + value.bytes().min(large_bytes_min),
            Some(Change::Add(_)) => entry.key.len() + size_of::<i64>(),
            Some(Change::Delete | Change::AsBase) | None => 0,
        };
    }
    total
}

/// Whether an image of the leaf, as of whatever position, could have so many bytes that it has to be in pieces: keys of
/// a few MiB each. Under its lock.
pub(crate) fn is_huge(view: &LeafView, state: &LeafState, large_bytes_min: usize, guard: &Guard) -> bool {
    view.rows_at_most(state) > UNSPLIT_BYTES_MAX && image_bytes_max(view, large_bytes_min, guard) > UNSPLIT_BYTES_MAX
}

/// No image of the leaf, as of whatever position, has more.
fn image_bytes_max(view: &LeafView, large_bytes_min: usize, guard: &Guard) -> usize {
    let base = match &view.base {
        Base::Image(image) => image.row_bytes(),
        Base::Empty | Base::OnDisk(_) => 0,
    };
    (0..view.order.len()).fold(base, |total, at| {
        let entry = view.entry(at);
        let versions = std::iter::successors(entry.chain.head(guard), |version| version.older(guard));
        let values = versions.map(|version| match &version.change {
            Change::Put(value) => value.bytes().min(large_bytes_min),
            Change::Add(_) => size_of::<i64>(),
            Change::Delete | Change::AsBase => 0,
        });
        total + entry.key.len() + values.max().unwrap_or(0)
    })
}

/// What `at` sees of a key whose versions from `head` on it may see: its value and since when it is so (`ZERO`: since
/// before the base), and the version.
fn state_at<'v>(
    head: Option<&'v Version>,
    below: Option<&Value>,
    range_tombstone: Seq,
    at: Seq,
    guard: &'v Guard,
) -> Visible<'v> {
    let sight = see_from(head, at, guard);
    let newest = sight.seen.map_or(Seq::ZERO, |version| version.seq);
    let (ground, since) = match sight.ground {
        Ground::Value(value) => (Some(value.clone()), newest),
        Ground::Gone => (None, newest),
        Ground::Base if at >= range_tombstone => (None, newest.max(range_tombstone)),
        Ground::Base => (below.cloned(), newest),
    };
    let value = match sight.added {
        None => ground,
        Some(amount) => {
            let before: &[u8] = match &ground {
                Some(Value::Inline(bytes)) => bytes,
                _ => &[],
            };
            Some(Value::Inline(sum(before, amount)))
        }
    };
    Visible {
        value,
        since,
        seen: sight.seen,
        is_base_row: sight.added.is_none() && matches!(sight.ground, Ground::Base),
    }
}

/// See [`state_at`].
struct Visible<'v> {
    value: Option<Value>,
    since: Seq,
    seen: Option<&'v Version>,
    /// The value is the base's row, and shares its image.
    is_base_row: bool,
}

/// Since when a base's large value is not there any more.
fn gone_since(entry: Option<&Entry>, cell: &[u8], range_tombstone: Seq, guard: &Guard) -> Seq {
    let mut gone = SEQ_MAX;
    let mut next = entry.and_then(|entry| entry.chain.head(guard));
    while let Some(version) = next {
        let is_base = match &version.change {
            Change::AsBase => true,
            Change::Put(Value::Large(here, _)) => here == cell,
            _ => false,
        };
        if is_base {
            // The base's own version, and undo below it.
            return gone;
        }
        gone = version.seq;
        next = version.older(guard);
    }
    gone.min(range_tombstone)
}

/// The value in memory of its own.
fn unshared(value: Value) -> Value {
    match value {
        Value::Inline(bytes) => Value::Inline(bytes::Bytes::copy_from_slice(&bytes)),
        Value::Large(cell, owner) => Value::Large(bytes::Bytes::copy_from_slice(&cell), owner),
        Value::Spilled(spilled) => Value::Spilled(spilled),
    }
}

fn new_value(value: &Value) -> NewValue<'_> {
    match value {
        Value::Inline(bytes) => NewValue::Inline(bytes),
        Value::Large(cell, _) => {
            NewValue::Large(LargeRef::from_cell(cell).expect("a cell is checked when it comes in"))
        }
        Value::Spilled(_) => unreachable!("what a checkpoint or the newest reader sees is not in the file of history"),
    }
}

/// Consolidates a leaf. The base must be in memory.
pub(crate) fn consolidate(view: &LeafView, plan: &ConsolidationPlan<'_>, guard: &Guard) -> Consolidated {
    BUILDER.with(|builder| Consolidation::new(view, plan, &mut builder.borrow_mut(), guard).run())
}

struct Consolidation<'a> {
    view: &'a LeafView,
    image: Option<&'a LeafImage>,
    plan: &'a ConsolidationPlan<'a>,
    builder: &'a mut LeafBuilder,
    guard: &'a Guard,
    result: Consolidated,
    /// Start of the piece being built.
    low: Option<Vec<u8>>,
    retained: Vec<Entry>,
    retained_bytes: usize,
    retained_rows: usize,
    retained_versions: usize,
    undo_bytes: usize,
    valid_to: Seq,
    owners: Vec<Arc<LargeOwner>>,
}

impl<'a> Consolidation<'a> {
    fn new(
        view: &'a LeafView,
        plan: &'a ConsolidationPlan<'a>,
        builder: &'a mut LeafBuilder,
        guard: &'a Guard,
    ) -> Self {
        let image = match &view.base {
            Base::Empty => None,
            Base::Image(image) => Some(image),
            Base::OnDisk(_) => unreachable!("a consolidation needs the base in memory"),
        };
        Self {
            view,
            image,
            plan,
            builder,
            guard,
            result: Consolidated {
                pieces: Vec::new(),
                newest: Seq::ZERO,
                dropped_large: Vec::new(),
            },
            low: None,
            retained: Vec::new(),
            retained_bytes: 0,
            retained_rows: 0,
            retained_versions: 0,
            undo_bytes: 0,
            valid_to: SEQ_MAX,
            owners: Vec::new(),
        }
    }

    /// Bytes at which a piece is full.
    fn piece_bytes(&self) -> usize {
        let target = self.plan.target_bytes;
        if target == usize::MAX {
            return usize::MAX;
        }
        let total = row_bytes(self.view, self.plan.large_bytes_min, self.guard);
        if let Some(fill) = self.plan.appending {
            let rows = self.image.map_or(0, LeafImage::len) + self.view.order.len();
            return match fill.full_at(target, total / rows.max(1)) {
                full if total > full => full,
                _ => usize::MAX,
            };
        }
        if total <= target + target / 2 {
            usize::MAX
        } else {
            total.div_ceil(total.div_ceil(target)).max(1)
        }
    }

    fn run(mut self) -> Consolidated {
        let piece_bytes = self.piece_bytes();
        let view = self.view;
        let image = self.image;
        let is_deleted = view.range_tombstone <= self.plan.through;
        let mut last: Option<Merged<'_>> = None;
        for merged in merged(view, image) {
            let full =
                self.builder.row_bytes() + self.retained_rows >= piece_bytes || self.retained.len() >= RETAINED_MAX;
            if full
                && self.plan.target_bytes != usize::MAX
                && let Some(last) = &last
            {
                let low = shortest_separator(&self.key(last).to_vec(), &self.key(&merged).to_vec());
                self.finish_piece(Some(low));
            }
            match (merged.row, merged.entry) {
                (Some(row), None) if !is_deleted => {
                    let image = image.expect("the row is its");
                    self.builder.push_from(image, row);
                }
                (row, entry) => self.take(row, entry),
            }
            last = Some(merged);
        }
        if view.range_tombstone > self.plan.through {
            self.valid_to = self.valid_to.min(view.range_tombstone);
            self.result
                .pieces
                .iter_mut()
                .for_each(|piece| piece.valid_to = piece.valid_to.min(view.range_tombstone));
        } else {
            self.result.newest = self.result.newest.max(view.range_tombstone);
        }
        self.finish_piece(None);
        self.result
    }

    fn key(&self, merged: &Merged<'a>) -> KeyParts<'a> {
        match (merged.entry, merged.row) {
            (Some(entry), _) => KeyParts::from(&*entry.key),
            (None, Some(row)) => self.image.expect("the row is its").key(row),
            (None, None) => unreachable!("a merged row is of the base or of the delta"),
        }
    }

    /// The newest value of an entry, where that is all there is to take: short, in the new base, and no snapshot is
    /// older.
    fn only_value(&self, row: Option<usize>, entry: Option<&'a Entry>) -> Option<(&'a Entry, Seq, &'a [u8])> {
        let entry = entry?;
        let head = entry.chain.head(self.guard)?;
        let Change::Put(Value::Inline(bytes)) = &head.change else {
            return None;
        };
        let is_settled = head.seq <= self.plan.through && bytes.len() < self.plan.large_bytes_min;
        let is_undo = self.plan.readers.first().is_some_and(|&oldest| oldest < head.seq);
        let over_large = match (row, self.image) {
            (Some(row), Some(image)) => matches!(image.value(row), CellValue::Large(_)),
            _ => false,
        };
        (is_settled && !is_undo && !over_large).then_some((entry, head.seq, &**bytes))
    }

    fn take(&mut self, row: Option<usize>, entry: Option<&'a Entry>) {
        if let Some((entry, seq, value)) = self.only_value(row, entry) {
            self.result.newest = self.result.newest.max(seq);
            self.builder.push(KeyParts::from(&*entry.key), NewValue::Inline(value));
            return;
        }
        let (through, range_tombstone) = (self.plan.through, self.view.range_tombstone);
        let image = self.image;
        let below = row.map(|row| base_value(image.expect("the row is its"), row));
        let head = entry.and_then(|entry| entry.chain.head(self.guard));
        let Visible { value, since, seen, .. } = state_at(head, below.as_ref(), range_tombstone, through, self.guard);
        self.result.newest = self.result.newest.max(since);
        let mut retained: Vec<(Seq, Change)> = Vec::new();
        let mut next = head;
        while let Some(version) = next
            && version.seq > through
        {
            retained.push((version.seq, version.change.clone()));
            self.valid_to = self.valid_to.min(version.seq);
            next = version.older(self.guard);
        }
        // Additions above `through` count from what they stood on; now they stand on what is below them here, or on the
        // new base.
        if let Some(Change::Add(in_base)) = seen.map(|version| &version.change) {
            for (_, change) in retained.iter_mut().rev() {
                let Change::Add(amount) = change else { break };
                *amount = amount.wrapping_sub(*in_base);
            }
        }
        let above = retained.len();
        let without_blocks = matches!(&value, Some(Value::Inline(bytes)) if bytes.len() >= self.plan.large_bytes_min);
        let undo = self.plan.readers.first().is_some_and(|&oldest| oldest < since);
        if undo || without_blocks {
            let newest = match &value {
                None => Change::Delete,
                Some(value) if without_blocks => Change::Put(value.clone()),
                // The new base has it: a second copy would be history that nobody needs.
                Some(_) => Change::AsBase,
            };
            retained.push((since, newest));
        }
        if undo {
            let (mut seen_since, mut from) = (since, seen);
            for &reader in self.plan.readers.iter().rev() {
                if reader >= seen_since {
                    continue;
                }
                // Nothing above what a newer reader sees is seen from here on.
                let state = state_at(from, below.as_ref(), range_tombstone, reader, self.guard);
                debug_assert!(state.since <= reader, "a reader sees nothing newer than itself");
                // A value of the base shares its image, which would stay in memory as a whole for it.
                let value = match state.is_base_row {
                    true => state.value.map(unshared),
                    false => state.value,
                };
                retained.push((state.since, value.map_or(Change::Delete, Change::Put)));
                (seen_since, from) = (state.since, state.seen);
            }
            // Without a row in the new base, nobody need be told that there was none before.
            while value.is_none() && retained.len() > above && matches!(retained.last(), Some((_, Change::Delete))) {
                retained.pop();
            }
        }
        if let Some(Value::Large(cell, None)) = &below
            && !matches!(&value, Some(Value::Large(now, _)) if now == cell)
        {
            let gone = gone_since(entry, cell, range_tombstone, self.guard);
            self.result.dropped_large.push((cell.clone(), gone));
        }
        let key = match (entry, row) {
            (Some(entry), _) => KeyParts::from(&*entry.key),
            (None, row) => image.expect("the row is its").key(row.expect("of base or delta")),
        };
        if without_blocks {
            // The image does not hold it yet.
            self.valid_to = self.valid_to.min(since);
        } else if let Some(value) = &value {
            if let Value::Large(_, owner) = value {
                self.owners.extend(owner.clone());
            }
            self.builder.push(key, new_value(value));
        }
        if !retained.is_empty() {
            let key = key.to_vec();
            self.retained_bytes +=
                Entry::bytes(&key) + retained.iter().map(|(_, change)| change_bytes(change)).sum::<usize>();
            self.retained_versions += retained.len();
            if undo && retained.len() > above {
                let bytes = retained[above..].iter().map(|(_, change)| change_bytes(change));
                self.undo_bytes += bytes.sum::<usize>() + if above == 0 { Entry::bytes(&key) } else { 0 };
            }
            self.retained_rows += key.len();
            // What versions above `through` have will be a row, too: a batch of many rows must not make one huge leaf.
            for (_, change) in &retained[..above] {
                if let Change::Put(value) = change {
                    self.retained_rows += value.bytes().min(self.plan.large_bytes_min);
                }
            }
            self.retained.push(Entry::new(&key, chain_of(retained.into_iter())));
        }
    }

    fn finish_piece(&mut self, next_low: Option<Vec<u8>>) {
        self.result.pieces.push(Piece {
            low: std::mem::replace(&mut self.low, next_low),
            image: self.builder.finish(),
            retained: std::mem::take(&mut self.retained),
            retained_bytes: std::mem::take(&mut self.retained_bytes),
            retained_rows: std::mem::take(&mut self.retained_rows),
            retained_versions: std::mem::take(&mut self.retained_versions),
            undo_bytes: std::mem::take(&mut self.undo_bytes),
            valid_to: std::mem::replace(&mut self.valid_to, SEQ_MAX),
            owners: std::mem::take(&mut self.owners),
        });
    }
}

/// The view of a leaf after a consolidation: the image as base, the retained entries as delta.
pub(crate) fn view_of(base: Base, range_tombstone: Seq, retained: Vec<Entry>) -> LeafView {
    let order = Order::ascending(retained.len());
    let arena = (!retained.is_empty()).then(|| {
        let arena = Arena::default();
        for (index, entry) in retained.into_iter().enumerate() {
            arena.put(index, entry);
        }
        Arc::new(arena)
    });
    LeafView {
        base,
        range_tombstone,
        arena,
        order,
        retired: false,
    }
}

/// The image of a leaf as of `at`, for a checkpoint whose position the base has passed: a snapshot at `at` is open, so
/// that the delta has all it takes. The base must be in memory, and no value in it at `at` may be without_blocks (see
/// [`without_blocks`]).
pub(crate) fn image_at(view: &LeafView, at: Seq, guard: &Guard) -> LeafImage {
    let image = match &view.base {
        Base::Empty => None,
        Base::Image(image) => Some(image),
        Base::OnDisk(_) => unreachable!("the base is in memory"),
    };
    BUILDER.with(|builder| {
        let builder = &mut *builder.borrow_mut();
        for merged in merged(view, image) {
            let below = merged.row.map(|row| base_value(image.expect("the row is its"), row));
            let head = merged.entry.and_then(|entry| entry.chain.head(guard));
            let value = state_at(head, below.as_ref(), view.range_tombstone, at, guard).value;
            let key = match (merged.entry, merged.row) {
                (Some(entry), _) => KeyParts::from(&*entry.key),
                (None, row) => image.expect("the row is its").key(row.expect("of base or delta")),
            };
            if let Some(value) = &value {
                builder.push(key, new_value(value));
            }
        }
        builder.finish()
    })
}

/// Keys, positions and bytes of the large values in the delta that have no blocks yet and that `at` sees. What only
/// older snapshots see stays in memory.
pub(crate) fn without_blocks(
    view: &LeafView,
    at: Seq,
    large_bytes_min: usize,
    guard: &Guard,
) -> Vec<(Box<[u8]>, Seq, bytes::Bytes)> {
    let mut found = Vec::new();
    for place in 0..view.order.len() {
        let entry = view.entry(place);
        let mut next = entry.chain.head(guard);
        while let Some(version) = next {
            if version.seq <= at {
                if let Change::Put(Value::Inline(bytes)) = &version.change
                    && bytes.len() >= large_bytes_min
                {
                    found.push(((*entry.key).into(), version.seq, bytes.clone()));
                }
                break;
            }
            next = version.older(guard);
        }
    }
    found
}
