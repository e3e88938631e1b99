//! A leaf: an immutable base, what was written since (`delta`), and where its image lies on disk.
//!
//! Readers load the [`LeafView`] and need nothing else. Writers hold the leaf's lock, whose data ([`LeafState`]) readers never
//! see. A leaf is *retired* when others took its place in the tree; whoever meets a retired one starts again from the root.
//!
//! Invariants:
//! - the state of the leaf's key range at any readable `Seq` is base and delta together, by the rules of `version`;
//! - `stored`, if there is one, is the range's exact state at every `Seq` in `[valid_from, valid_to)`; the leaf is *clean* when
//!   `valid_to` is the end of time;
//! - a base that is only stored (`Base::Stored`) is that image.

use crate::delta::{Arena, Entry, Order, WRITES_MAX};
use crate::page::{CellValue, LeafImage, head_u64};
use crate::version::{Change, Ground, Sight, Taken, Value, change_bytes, sum};
use blocks::BlockAddr;
use bytes::Bytes;
use engine::Seq;
use pins::Horizon;
use rcu::{Guard, Mutex, Rcu};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The end of time: no version is that new.
pub(crate) const SEQ_MAX: Seq = Seq(u64::MAX);
/// A reader here sees every version.
pub(crate) const NEWEST: Seq = Seq(u64::MAX - 1);

/// Values up to this length are copied when they are read: sharing the leaf's memory counts its users in a cache line that
/// nobody else needs, and a value that somebody keeps would keep the leaf's rows.
const COPIED_BYTES_MAX: usize = 1024;

/// Versions that a push leaves in a chain, looking for those that nobody needs. What is left beyond them goes when the leaf is folded.
const PRUNED_PAST: usize = 16;
/// Versions that a delta may gather before it is folded, beside what it kept then: two for each of as many entries.
pub(crate) const FOLD_VERSIONS: usize = 2 * crate::restructure::FOLD_ENTRIES;

/// What a leaf held when its delta began.
#[derive(Clone)]
pub(crate) enum Base {
    Empty,
    Image(LeafImage),
    /// On disk only.
    Stored(BlockAddr),
}

/// What readers see of a leaf.
pub(crate) struct LeafView {
    pub(crate) base: Base,
    /// From this `Seq` on the base's rows are gone (a range delete); `SEQ_MAX` when they are not.
    pub(crate) hidden_from: Seq,
    /// The entries; none were put as long as there is no arena, and `order` is full then.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) order: Order,
    pub(crate) retired: bool,
}

/// A leaf of a tree. What readers need comes first, in one cache line.
#[repr(C)]
pub(crate) struct Leaf {
    pub(crate) view: Rcu<LeafView>,
    /// For the replacement policy: rises when read, falls when the hand passes.
    pub(crate) warmth: AtomicU8,
    /// A key that belongs here, and none that is written through a short cut lies below it; finds the leaf's place in the tree.
    pub(crate) low: Box<[u8]>,
    pub(crate) state: Mutex<LeafState>,
}

/// What writers know of a leaf.
pub(crate) struct LeafState {
    pub(crate) stored: Option<BlockAddr>,
    pub(crate) valid_from: Seq,
    pub(crate) valid_to: Seq,
    /// The base in memory, if there is one, is the stored image and nothing else.
    pub(crate) base_is_stored: bool,
    /// The image a running checkpoint uses instead of `stored`, and that checkpoint's number.
    pub(crate) checkpoint: Option<(u64, Option<BlockAddr>)>,
    /// Entries in the arena.
    pub(crate) entries: usize,
    /// Heap bytes of entries and versions.
    pub(crate) delta_bytes: usize,
    /// Key and value bytes in the delta: how much a fold may add to the base.
    pub(crate) delta_rows: usize,
    /// Versions in the delta.
    pub(crate) versions: usize,
    /// Undo in the delta, see `history`, which knows of the leaf when there is some.
    pub(crate) undo_bytes: usize,
    pub(crate) in_history: bool,
    /// Fold when there are so many entries, or versions, or bytes of rows in the delta.
    pub(crate) fold_entries: usize,
    pub(crate) fold_versions: usize,
    pub(crate) fold_rows: usize,
    /// The newest change in the base.
    pub(crate) base_newest: Seq,
    /// The newest change in the delta, or one that has been there.
    pub(crate) newest: Seq,
    /// Its image is on the way to disk: the oldest change which that does not have.
    pub(crate) writing: Option<Seq>,
    /// Cells of large values that the stored image has and the base has not.
    pub(crate) dropped_large: Vec<Bytes>,
    /// In the tree's list of leaves to write.
    pub(crate) listed: bool,
    /// In the replacement policy's ring.
    pub(crate) in_ring: bool,
}

/// What a read found.
pub(crate) enum Found {
    Nothing,
    Inline(Bytes),
    /// The cell of a large value.
    Large(Bytes),
    /// The image at this address has to be loaded first; the number, if any, counts on top of what it holds.
    NotLoaded(BlockAddr, Option<i64>),
}

impl LeafView {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            base,
            hidden_from: SEQ_MAX,
            arena: None,
            order: Order::with_capacity(0),
            retired: false,
        }
    }

    /// The place of `key` in the order, or where it would go.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let len = self.order.len();
        let (mut low, mut high) = (0, len);
        let head = head_u64(key);
        // Appends come most often: look at the end first.
        if len > 0 {
            match self.entry(len - 1).compare(key, head) {
                std::cmp::Ordering::Less => return Err(len),
                std::cmp::Ordering::Equal => return Ok(len - 1),
                std::cmp::Ordering::Greater => high = len - 1,
            }
        }
        while low < high {
            let middle = (low + high) / 2;
            match self.entry(middle).compare(key, head) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The entry at a place of the order.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> &Entry {
        let arena = self.arena.as_deref().expect("with the first entry");
        arena.get(self.order.get(at))
    }

    /// The base's rows as a snapshot at `at` may see them; `Err` when they must be loaded.
    #[inline]
    pub(crate) fn base_at(&self, at: Seq) -> Result<Option<&LeafImage>, BlockAddr> {
        match &self.base {
            _ if at >= self.hidden_from => Ok(None),
            Base::Empty => Ok(None),
            Base::Image(image) => Ok(Some(image)),
            Base::Stored(address) => Err(*address),
        }
    }

    /// Whether the base has a large value with this cell under `key`, and the delta nothing.
    pub(crate) fn has_large_in_base(&self, key: &[u8], cell: &[u8]) -> bool {
        let Base::Image(image) = &self.base else {
            return false;
        };
        let is_there = |index| matches!(image.value(index), CellValue::Large(large) if large.cell() == cell);
        self.hidden_from == SEQ_MAX && self.find(key).is_err() && image.find(key).is_ok_and(is_there)
    }

    /// What a snapshot at `at` finds under `key`.
    pub(crate) fn get(&self, key: &[u8], at: Seq, guard: &Guard) -> Found {
        let sight = match self.find(key) {
            Ok(place) => self.entry(place).chain.see(at, guard),
            Err(_) => Sight::NOTHING,
        };
        let ground = match sight.ground {
            Ground::Gone => Found::Nothing,
            Ground::Value(value) => found(value),
            Ground::Base => match self.base_at(at) {
                Err(address) => return Found::NotLoaded(address, sight.added),
                Ok(None) => Found::Nothing,
                Ok(Some(image)) => match image.get(key) {
                    None => Found::Nothing,
                    Some(value) => copied_from(image, value),
                },
            },
        };
        with_added(ground, sight.added)
    }
}

fn found(value: &Value) -> Found {
    match value {
        Value::Inline(bytes) => Found::Inline(bytes.clone()),
        Value::Large(cell, _) => Found::Large(cell.clone()),
    }
}

/// The value of a base's row.
pub(crate) fn found_in(image: &LeafImage, index: usize) -> Found {
    shared_from(image, image.value(index))
}

fn shared_from(image: &LeafImage, value: CellValue<'_>) -> Found {
    match value {
        CellValue::Inline(range) => Found::Inline(image.data().slice(range)),
        CellValue::Large(large) => Found::Large(image.data().slice_ref(large.cell())),
    }
}

/// As [`shared_from`], for a reader of few rows: a short value is copied.
fn copied_from(image: &LeafImage, value: CellValue<'_>) -> Found {
    match value {
        CellValue::Inline(range) if range.len() <= COPIED_BYTES_MAX => {
            Found::Inline(Bytes::copy_from_slice(&image.data()[range]))
        }
        value => shared_from(image, value),
    }
}

/// Additions on top of what they stand on. Large values are not numbers.
pub(crate) fn with_added(ground: Found, added: Option<i64>) -> Found {
    match (added, ground) {
        (None, ground) => ground,
        (Some(amount), Found::Inline(bytes)) => Found::Inline(sum(&bytes, amount)),
        (Some(amount), _) => Found::Inline(sum(&[], amount)),
    }
}

/// What [`Leaf::push`] did to the leaf's size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pushed {
    /// Change of heap bytes.
    pub(crate) bytes: isize,
    /// The key had no entry.
    pub(crate) new_entry: bool,
}

impl Leaf {
    /// A leaf with no rows and no image.
    pub(crate) fn empty(low: Box<[u8]>) -> Self {
        Self::with(low, Base::Empty, None)
    }

    /// A leaf whose image is on disk.
    pub(crate) fn stored(low: Box<[u8]>, address: BlockAddr) -> Self {
        Self::with(low, Base::Stored(address), Some(address))
    }

    pub(crate) fn with(low: Box<[u8]>, base: Base, stored: Option<BlockAddr>) -> Self {
        Self {
            low,
            view: Rcu::new(LeafView::new(base)),
            state: Mutex::new(LeafState {
                stored,
                valid_from: Seq::ZERO,
                valid_to: SEQ_MAX,
                base_is_stored: stored.is_some(),
                checkpoint: None,
                entries: 0,
                delta_bytes: 0,
                delta_rows: 0,
                versions: 0,
                undo_bytes: 0,
                in_history: false,
                fold_entries: crate::restructure::FOLD_ENTRIES,
                fold_versions: FOLD_VERSIONS,
                fold_rows: 8 << 10,
                base_newest: Seq::ZERO,
                newest: Seq::ZERO,
                writing: None,
                dropped_large: Vec::new(),
                listed: false,
                in_ring: false,
            }),
            warmth: AtomicU8::new(1),
        }
    }

    /// Reading a leaf makes it stay longer.
    #[inline]
    pub(crate) fn warm(&self) {
        const HOT: u8 = 3;
        let warmth = self.warmth.load(Ordering::Relaxed);
        if warmth < HOT {
            self.warmth.store(warmth + 1, Ordering::Relaxed);
        }
    }

    /// So does writing to it, a little: it goes round once more.
    #[inline]
    pub(crate) fn warm_a_little(&self) {
        if self.warmth.load(Ordering::Relaxed) == 0 {
            self.warmth.store(1, Ordering::Relaxed);
        }
    }

    /// Whether [`Leaf::push`] of a new key finds room.
    pub(crate) fn has_room(state: &LeafState) -> bool {
        state.entries < WRITES_MAX
    }

    /// Writes a change of a key; what nobody sees any more by `horizon` is forgotten. The caller holds the lock (`state`), has seen
    /// that the view is not retired and that there is room.
    pub(crate) fn push(
        &self,
        state: &mut LeafState,
        key: &[u8],
        change: Change,
        seq: Seq,
        horizon: &Horizon,
        guard: &Guard,
    ) -> Pushed {
        let view = self.view.load(guard);
        debug_assert!(!view.retired, "nobody writes to a retired leaf");
        let change = match change {
            Change::Add(amount) => settled(view, key, amount, guard),
            change => change,
        };
        let value_bytes = match &change {
            Change::Put(value) => value.bytes(),
            _ => 0,
        };
        let mut bytes = change_bytes(&change) as isize;
        let entries = state.entries;
        match view.find(key) {
            Ok(place) => {
                let chain = &view.entry(place).chain;
                let base = state.base_newest;
                let replaced = chain.push(seq, change, base, guard);
                let pruned = chain.prune(horizon, PRUNED_PAST, base, guard);
                for Taken {
                    versions,
                    bytes: freed,
                    rows,
                } in [replaced, pruned]
                {
                    bytes -= freed as isize;
                    state.versions = state.versions.saturating_sub(versions);
                    state.delta_rows = state.delta_rows.saturating_sub(rows);
                }
            }
            Err(place) => {
                let chain = crate::version::chain_of(std::iter::once((seq, change)));
                let entry = Entry::new(key.into(), chain);
                bytes += Entry::bytes(key) as isize;
                let number = state.entries as u16;
                let at_end = place == view.order.len() && !view.order.is_full();
                if at_end && let Some(arena) = &view.arena {
                    arena.put(state.entries, entry);
                    view.order.append(number);
                } else {
                    let arena = view.arena.clone().unwrap_or_default();
                    arena.put(state.entries, entry);
                    self.view.replace(
                        LeafView {
                            base: view.base.clone(),
                            hidden_from: view.hidden_from,
                            arena: Some(arena),
                            order: view.order.with_inserted(place, number),
                            retired: false,
                        },
                        guard,
                    );
                }
                state.entries += 1;
                state.delta_rows += key.len();
            }
        }
        state.versions += 1;
        state.delta_rows += value_bytes;
        state.delta_bytes = state.delta_bytes.saturating_add_signed(bytes);
        state.valid_to = state.valid_to.min(seq);
        state.newest = state.newest.max(seq);
        state.writing = state.writing.map(|valid_to| valid_to.min(seq));
        Pushed {
            bytes,
            new_entry: state.entries > entries,
        }
    }
}

/// An addition as the value it comes to, where that can be told without reading from disk.
fn settled(view: &LeafView, key: &[u8], amount: i64, guard: &Guard) -> Change {
    match view.get(key, NEWEST, guard) {
        Found::Inline(bytes) => Change::Put(Value::Inline(sum(&bytes, amount))),
        Found::Nothing | Found::Large(_) => Change::Put(Value::Inline(sum(&[], amount))),
        Found::NotLoaded(..) => Change::Add(amount),
    }
}
