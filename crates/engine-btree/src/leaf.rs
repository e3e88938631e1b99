//! A leaf: an immutable base, what was written since (`delta`), and where its image lies on disk.
//!
//! Readers load the [`LeafView`] and need nothing else. Writers hold the leaf's lock, whose data ([`LeafState`])
//! readers never see. A leaf is *retired* when others took its place in the tree; whoever meets a retired one starts
//! again from the root.
//!
//! Invariants:
//! - the state of the leaf's key range at any readable `Seq` is base and delta together, by the rules of `version`;
//! - `disk_image`, if there is one, is the range's exact state at every `Seq` in `[valid_from, valid_to)`; the leaf is
//!   *clean* when `valid_to` is the end of time. It may be the state nowhere: a large value that moves is written again
//!   at the published position, at which the image may begin;
//! - a base that is only on disk (`Base::OnDisk`) is that image.

use crate::budget::good_size;
use crate::delta::{Arena, Entry, Order, UNREADABLE_WRITES_MAX, WRITES_MAX};
use crate::history_file::Spilled;
use crate::page::{CellValue, LeafImage, head_u64};
use crate::running::CheckpointPosition;
use crate::version::{Change, Ground, NEWEST, SEQ_MAX, Sight, Taken, Value, change_bytes, sum};
use blocks::BlockAddr;
use bytes::Bytes;
use engine::Seq;
use pins::Horizon;
use rcu::{Guard, Mutex, Rcu};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Values up to this length are copied when they are read: sharing the leaf's memory counts its users in a cache line
/// that nobody else needs, and a value that somebody keeps would keep the leaf's rows.
const COPIED_BYTES_MAX: usize = 1024;

/// Versions that a push leaves in a chain, looking for those that nobody needs. What is left beyond them goes when the
/// leaf is consolidated.
const PRUNED_PAST: usize = 16;
/// Entries a delta may gather before it is consolidated.
pub(crate) const CONSOLIDATE_ENTRIES: usize = 128;
/// Versions that a delta may gather before it is consolidated, beside those it was left with: two for each of as many
/// entries.
pub(crate) const CONSOLIDATE_VERSIONS: usize = 2 * CONSOLIDATE_ENTRIES;

/// What a leaf held when its delta began.
#[derive(Clone)]
pub(crate) enum Base {
    Empty,
    Image(LeafImage),
    /// On disk only.
    OnDisk(BlockAddr),
}

/// What readers see of a leaf.
pub(crate) struct LeafView {
    pub(crate) base: Base,
    /// From this `Seq` on the base's rows are gone (a range delete); `SEQ_MAX` when they are not.
    pub(crate) range_tombstone: Seq,
    /// The entries; none were put as long as there is no arena, and `order` is full then.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) order: Order,
    pub(crate) retired: bool,
}

/// A leaf is consolidated when its delta has so many entries, or versions, or bytes of rows. In 32 bits, see
/// [`LEAF_BYTES_MAX`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsolidateAt {
    entries: u32,
    versions: u32,
    rows: u32,
}

impl ConsolidateAt {
    pub(crate) fn new(entries: usize, versions: usize, rows: usize) -> Self {
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            entries: narrow(entries),
            versions: narrow(versions),
            rows: narrow(rows),
        }
    }

    pub(crate) fn entries(self) -> usize {
        self.entries as usize
    }

    pub(crate) fn versions(self) -> usize {
        self.versions as usize
    }

    pub(crate) fn rows(self) -> usize {
        self.rows as usize
    }

    pub(crate) fn set_versions(&mut self, versions: usize) {
        *self = Self::new(self.entries(), versions, self.rows());
    }
}

/// A leaf and the counts of its `Arc` take no more, hence 224 bytes of the allocator. The next size is 256: the first
/// lines of leaves, which each read needs, would then share a quarter of a cache's sets, and cached reads at random
/// take a sixth longer.
const LEAF_BYTES_MAX: usize = 224;
const _: () = assert!(size_of::<Leaf>() + 2 * size_of::<usize>() <= LEAF_BYTES_MAX || cfg!(feature = "shuttle"));

/// A leaf of a tree. What readers need comes first, in one cache line.
#[repr(C)]
pub(crate) struct Leaf {
    pub(crate) view: Rcu<LeafView>,
    /// For the replacement policy: rises when read, falls when the hand passes.
    pub(crate) warmth: AtomicU8,
    /// 0; or the level of the inner page whose place it has, as that is damaged: the delta is what was written below
    /// it, and the base never comes into memory, as the block (`disk_image`) is no leaf's.
    pub(crate) level: u8,
    /// A key that belongs here, and none that is written through a short cut lies below it; finds the leaf's place in
    /// the tree.
    pub(crate) low: Box<[u8]>,
    pub(crate) state: Mutex<LeafState>,
}

/// What writers know of a leaf.
pub(crate) struct LeafState {
    pub(crate) disk_image: Option<BlockAddr>,
    pub(crate) valid_from: Seq,
    pub(crate) valid_to: Seq,
    /// The base in memory, if there is one, is the image on disk and nothing else.
    pub(crate) base_is_disk_image: bool,
    /// The image a running checkpoint uses whatever becomes of `disk_image`, and that checkpoint's number. It is still
    /// `disk_image` where the checkpoint saves what that lacks.
    pub(crate) checkpoint: Option<(u64, Option<BlockAddr>)>,
    /// Entries in the arena.
    pub(crate) entries: u16,
    /// Heap bytes of entries and versions.
    pub(crate) delta_bytes: usize,
    /// Key and value bytes in the delta: how much a consolidation may add to the base.
    pub(crate) delta_rows: usize,
    /// Versions in the delta.
    pub(crate) versions: usize,
    /// Undo in the delta, see `history`, which knows of the leaf when there is some.
    pub(crate) undo_bytes: usize,
    pub(crate) in_history: bool,
    pub(crate) consolidate_at: ConsolidateAt,
    /// The newest change in the base.
    pub(crate) base_newest: Seq,
    /// The newest change in the delta, or one that has been there.
    pub(crate) newest: Seq,
    /// Its image is on the way to disk: the oldest change which that does not have.
    pub(crate) writing: Option<Seq>,
    /// Cells of large values that the image on disk has and the base has not.
    pub(crate) dropped_large: Vec<Bytes>,
    /// In the tree's list of leaves to write.
    pub(crate) listed: bool,
    /// In the replacement policy's clock_list.
    pub(crate) in_clock: bool,
    /// In the queue of those to be consolidated.
    pub(crate) queued: bool,
    /// Its rows on disk could not be read when they were needed: its delta may become longer than others.
    pub(crate) is_unreadable: bool,
    /// What checkpoints have paid, in bytes of rows, for saving beside the image on disk.
    pub(crate) saved_bytes: u32,
}

impl LeafState {
    /// Whether everything that was written is in the image on disk.
    pub(crate) fn is_clean(&self) -> bool {
        self.disk_image.is_some() && self.valid_to == SEQ_MAX
    }

    /// Whether the delta has become so large that the leaf is to be consolidated.
    pub(crate) fn delta_has_grown(&self) -> bool {
        usize::from(self.entries) >= self.consolidate_at.entries()
            || self.delta_rows >= self.consolidate_at.rows()
            || self.has_many_versions()
    }

    /// Whether there are so many versions that the leaf is to be consolidated.
    pub(crate) fn has_many_versions(&self) -> bool {
        self.versions >= self.consolidate_at.versions()
    }

    /// Whether the delta is so much larger that whoever wrote to it last is to consolidate the leaf; `leaf_bytes` is
    /// what a leaf should have.
    pub(crate) fn delta_is_overdue(&self, leaf_bytes: usize) -> bool {
        usize::from(self.entries) >= self.consolidate_at.entries() + 2 * CONSOLIDATE_ENTRIES
            || self.delta_rows >= self.consolidate_at.rows() + 2 * leaf_bytes
            || self.has_many_versions()
    }

    /// Whether the image on disk is the leaf's state at `seq`.
    pub(crate) fn has_state_at(&self, seq: Seq) -> bool {
        self.disk_image.is_some() && self.valid_from <= seq && seq < self.valid_to
    }

    /// Whether the leaf has another image than its own for a checkpoint, or had none then.
    pub(crate) fn is_noted_for(&self, position: CheckpointPosition) -> bool {
        self.checkpoint.is_some_and(|(number, _)| number == position.number)
    }

    /// Whether a checkpoint saves what the image on disk lacks.
    pub(crate) fn is_saved_for(&self, position: CheckpointPosition) -> bool {
        self.disk_image.is_some() && self.checkpoint == Some((position.number, self.disk_image))
    }

    /// Where the running checkpoint finds the leaf at its position, or what it was before the changes that it saves.
    pub(crate) fn address_for(&self, position: CheckpointPosition) -> Option<BlockAddr> {
        match self.checkpoint {
            Some((number, address)) if number == position.number => address,
            _ => self.disk_image.filter(|_| self.has_state_at(position.seq)),
        }
    }

    /// The invariants between the fields, in debug builds. Under the leaf's lock.
    pub(crate) fn check_invariants(&self, view: &LeafView) {
        debug_assert!(
            self.valid_from <= self.valid_to || self.disk_image.is_none(),
            "an image does not end before it begins, as from {:?} to {:?} (base {:?}, newest {:?})",
            self.valid_from,
            self.valid_to,
            self.base_newest,
            self.newest
        );
        debug_assert!(
            self.undo_bytes == 0 || self.in_history,
            "history knows every leaf with undo"
        );
        debug_assert!(
            view.order.len() <= usize::from(self.entries),
            "an entry for each number in the order"
        );
        if let Base::OnDisk(address) = view.base {
            debug_assert_eq!(self.disk_image, Some(address), "a base on disk is the leaf's image");
            debug_assert!(self.base_is_disk_image, "a base on disk is the leaf's image");
        }
    }
}

/// Where a value lies that is not in a leaf. To be read without latch and epoch, see [`crate::pages::Pages::fetch`].
pub(crate) enum Elsewhere {
    /// In blocks of its own: its cell.
    Large(Bytes),
    /// In the file of history.
    Spilled(Spilled),
}

/// What a read found.
pub(crate) enum Found {
    Nothing,
    Inline(Bytes),
    Elsewhere(Elsewhere),
    /// The image at this address has to be loaded first; the number, if any, counts on top of what it holds.
    NotLoaded(BlockAddr, Option<i64>),
}

impl LeafView {
    pub(crate) fn new(base: Base) -> Self {
        Self {
            base,
            range_tombstone: SEQ_MAX,
            arena: None,
            order: Order::with_capacity(0),
            retired: false,
        }
    }

    /// The same with another base.
    pub(crate) fn with_base(&self, base: Base) -> Self {
        Self {
            base,
            range_tombstone: self.range_tombstone,
            arena: self.arena.clone(),
            order: self.order.copy(),
            retired: false,
        }
    }

    /// What a leaf that left the tree shows.
    pub(crate) fn retired() -> Self {
        let mut view = Self::new(Base::Empty);
        view.retired = true;
        view
    }

    /// Whether nothing was written since the base.
    pub(crate) fn has_no_delta(&self) -> bool {
        self.order.len() == 0 && self.range_tombstone == SEQ_MAX
    }

    /// Row bytes of the leaf, at most: updates count as if they were new rows.
    pub(crate) fn rows_at_most(&self, state: &LeafState) -> usize {
        let base = match &self.base {
            Base::Image(image) => image.row_bytes(),
            Base::Empty | Base::OnDisk(_) => 0,
        };
        base + state.delta_rows
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
            _ if at >= self.range_tombstone => Ok(None),
            Base::Empty => Ok(None),
            Base::Image(image) => Ok(Some(image)),
            Base::OnDisk(address) => Err(*address),
        }
    }

    /// Whether the base has a large value with this cell under `key`, and the delta nothing.
    pub(crate) fn has_large_in_base(&self, key: &[u8], cell: &[u8]) -> bool {
        let Base::Image(image) = &self.base else {
            return false;
        };
        let is_there = |index| matches!(image.value(index), CellValue::Large(large) if large.cell() == cell);
        self.range_tombstone == SEQ_MAX && self.find(key).is_err() && image.find(key).is_ok_and(is_there)
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

/// What a reader finds in a version.
pub(crate) fn found(value: &Value) -> Found {
    match value {
        Value::Inline(bytes) => Found::Inline(bytes.clone()),
        Value::Large(cell, _) => Found::Elsewhere(Elsewhere::Large(cell.clone())),
        Value::Spilled(spilled) => Found::Elsewhere(Elsewhere::Spilled(spilled.clone())),
    }
}

/// The value of a base's row.
pub(crate) fn found_in(image: &LeafImage, index: usize) -> Found {
    shared_from(image, image.value(index))
}

fn shared_from(image: &LeafImage, value: CellValue<'_>) -> Found {
    match value {
        CellValue::Inline(range) => Found::Inline(image.data().slice(range)),
        CellValue::Large(large) => Found::Elsewhere(Elsewhere::Large(image.data().slice_ref(large.cell()))),
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

/// Additions on top of what they stand on. Values that lie elsewhere are not numbers.
pub(crate) fn with_added(ground: Found, added: Option<i64>) -> Found {
    match (added, ground) {
        (None, ground) => ground,
        (Some(amount), Found::Inline(bytes)) => Found::Inline(sum(&bytes, amount)),
        (Some(amount), _) => Found::Inline(sum(&[], amount)),
    }
}

/// Heap bytes of a base.
pub(crate) fn base_bytes(base: &Base) -> usize {
    match base {
        Base::Image(image) => image.memory_bytes(),
        Base::Empty | Base::OnDisk(_) => 0,
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

    /// A leaf whose image is on disk, or what takes writes in the place of a damaged inner page of a level.
    pub(crate) fn on_disk(low: Box<[u8]>, address: BlockAddr, level: u8) -> Self {
        let mut leaf = Self::with(low, Base::OnDisk(address), Some(address));
        leaf.level = level;
        leaf
    }

    pub(crate) fn with(low: Box<[u8]>, base: Base, disk_image: Option<BlockAddr>) -> Self {
        Self {
            low,
            view: Rcu::new(LeafView::new(base)),
            state: Mutex::new(LeafState {
                disk_image,
                valid_from: Seq::ZERO,
                valid_to: SEQ_MAX,
                base_is_disk_image: disk_image.is_some(),
                checkpoint: None,
                entries: 0,
                delta_bytes: 0,
                delta_rows: 0,
                versions: 0,
                undo_bytes: 0,
                in_history: false,
                consolidate_at: ConsolidateAt::new(CONSOLIDATE_ENTRIES, CONSOLIDATE_VERSIONS, 8 << 10),
                base_newest: Seq::ZERO,
                newest: Seq::ZERO,
                writing: None,
                dropped_large: Vec::new(),
                listed: false,
                in_clock: false,
                queued: false,
                is_unreadable: false,
                saved_bytes: 0,
            }),
            warmth: AtomicU8::new(1),
            level: 0,
        }
    }

    /// Heap bytes of a leaf without its base and delta.
    pub(crate) fn overhead_bytes(&self) -> usize {
        good_size(size_of::<Self>() + 16) + good_size(size_of::<LeafView>()) + good_size(self.low.len()) + 256
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
        let most = if state.is_unreadable {
            UNREADABLE_WRITES_MAX
        } else {
            WRITES_MAX
        };
        usize::from(state.entries) < most
    }

    /// Writes a change of a key; what nobody sees any more by `horizon` is forgotten. The caller holds the lock
    /// (`state`), has seen that the view is not retired and that there is room.
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
                let entry = Entry::new(key, chain);
                bytes += Entry::bytes(key) as isize;
                let number = state.entries;
                let at_end = place == view.order.len() && !view.order.is_full();
                if at_end && let Some(arena) = &view.arena {
                    arena.put(usize::from(number), entry);
                    view.order.append(number);
                } else {
                    let arena = view.arena.clone().unwrap_or_default();
                    arena.put(usize::from(number), entry);
                    self.view.replace(
                        LeafView {
                            base: view.base.clone(),
                            range_tombstone: view.range_tombstone,
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
        Found::Nothing | Found::Elsewhere(_) => Change::Put(Value::Inline(sum(&[], amount))),
        Found::NotLoaded(..) => Change::Add(amount),
    }
}
