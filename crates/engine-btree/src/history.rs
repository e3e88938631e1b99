//! History: what leaves keep for old snapshots, and how much of it there is.
//!
//! A consolidation keeps, of what it merges, the values that open snapshots see (undo, see `consolidation`). That is
//! *history*: it cannot leave memory before those snapshots go. This is the count of it and the list of leaves that
//! have some; `history_limit` bounds it: by values that go to a file (`history_file`), then by ending snapshots.
//!
//! What was written and not consolidated yet is not history. It is bounded as deltas are, and becomes history, or
//! nothing, by the consolidation.

use crate::cache::PageCache;
use crate::clock_list::ClockEntry;
use crate::history_file::HistoryFile;
use crate::leaf::{Leaf, LeafState};
use crate::tree::Tree;
use engine::{HISTORY_PERCENT_DEFAULT, history_bytes};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The file may have so many times what history may take of memory: about what comes of rows of 1 KiB whose keys and
/// versions stay.
const FILE_PER_MEMORY: u64 = 10;

/// Undo of all leaves. Invariant: `bytes` is the sum of the leaves' `undo_bytes`, and a leaf with some is in the list
/// (`in_history`).
pub(crate) struct History {
    cache: Arc<PageCache>,
    /// Where values go that memory has no room for.
    file: Arc<HistoryFile>,
    bytes: AtomicI64,
    /// Leaves that have some, or had when they were last consolidated.
    leaves: Mutex<Vec<ClockEntry>>,
    /// What it may take of the memory, in percent.
    percent: AtomicU32,
    /// What was left the last time, when only the engine's own snapshots needed it: no use to try again before there is
    /// noticeably more.
    floor: AtomicU64,
}

impl History {
    pub(crate) fn new(cache: Arc<PageCache>, file: Arc<HistoryFile>) -> Self {
        Self {
            cache,
            file,
            bytes: AtomicI64::new(0),
            leaves: Mutex::default(),
            percent: AtomicU32::new(HISTORY_PERCENT_DEFAULT),
            floor: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_percent(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Bytes that history may take.
    pub(crate) fn limit(&self) -> u64 {
        history_bytes(self.cache.budget().limit(), self.percent.load(Ordering::Relaxed))
    }

    pub(crate) fn file(&self) -> &Arc<HistoryFile> {
        &self.file
    }

    /// Bytes that the file may have.
    pub(crate) fn file_limit(&self) -> u64 {
        self.limit() * FILE_PER_MEMORY
    }

    /// Whether there is too much, and noticeably more than nothing could be done about the last time.
    pub(crate) fn has_grown(&self) -> bool {
        let (bytes, floor) = (self.bytes(), self.floor.load(Ordering::Relaxed));
        bytes > self.limit() && bytes > floor + floor / 16
    }

    /// Of what is left, nothing can go (true), or perhaps something can: the engine's own work has given back a
    /// position.
    pub(crate) fn set_floor(&self, nothing_can_go: bool) {
        let floor = if nothing_can_go { self.bytes() } else { 0 };
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// Undo in a leaf becomes so many bytes.
    pub(crate) fn set_undo(&self, state: &mut LeafState, bytes: usize) {
        let before = std::mem::replace(&mut state.undo_bytes, bytes);
        self.bytes.fetch_add(bytes as i64 - before as i64, Ordering::Relaxed);
    }

    /// Takes in the undo that a consolidation left in a leaf. Under the leaf's lock (`state`).
    pub(crate) fn note_undo(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, state: &mut LeafState, bytes: usize) {
        self.set_undo(state, bytes);
        if bytes > 0 && !std::mem::replace(&mut state.in_history, true) {
            self.leaves.lock().push((tree.clone(), leaf.clone()));
        }
    }

    /// The leaves with undo, whose list is empty then; those that still have some come back with [`History::put_back`].
    pub(crate) fn take_leaves(&self) -> Vec<ClockEntry> {
        std::mem::take(&mut *self.leaves.lock())
    }

    pub(crate) fn put_back(&self, mut leaves: Vec<ClockEntry>) {
        self.leaves.lock().append(&mut leaves);
    }
}
