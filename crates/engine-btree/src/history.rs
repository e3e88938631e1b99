//! Bounding what is kept for old snapshots.
//!
//! A fold keeps, of what it merges, the values that open snapshots see (undo, see `fold`). That is *history*: it cannot leave
//! memory before those snapshots go. Beyond its share of the cache the oldest snapshot is ended ([`pins::Pins::expire_oldest`]), and
//! its undo dropped. The engine's own snapshots, a checkpoint's for one, are never ended: they go by themselves.
//!
//! What was written and not folded yet is not history. It is bounded as deltas are, and becomes history, or nothing, by the fold.

use crate::core::Core;
use crate::leaf::{Base, Leaf, LeafState};
use crate::tree::Tree;
use crate::workers::Class;
use engine::{HISTORY_PERCENT_DEFAULT, Result, history_bytes};
use parking_lot::Mutex as PlainMutex;
use pins::Horizon;
use rcu::Guard;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Undo of all leaves.
pub(crate) struct History {
    bytes: AtomicI64,
    /// Leaves that have some, or had when they were last folded.
    leaves: PlainMutex<Vec<(Arc<Tree>, Arc<Leaf>)>>,
    /// What it may take of the memory, in percent.
    percent: AtomicU32,
    /// A job that bounds it is queued or runs.
    running: AtomicBool,
    /// What was left the last time, when only the engine's own snapshots needed it: no use to try again before there is noticeably more.
    floor: AtomicU64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            bytes: AtomicI64::new(0),
            leaves: PlainMutex::default(),
            percent: AtomicU32::new(HISTORY_PERCENT_DEFAULT),
            running: AtomicBool::new(false),
            floor: AtomicU64::new(0),
        }
    }
}

impl History {
    pub(crate) fn set_percent(&self, percent: u32) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

impl LeafState {
    /// Undo in the leaf becomes so many bytes.
    pub(crate) fn set_undo(&mut self, core: &Core, bytes: usize) {
        let before = std::mem::replace(&mut self.undo_bytes, bytes);
        core.history
            .bytes
            .fetch_add(bytes as i64 - before as i64, Ordering::Relaxed);
    }
}

impl Core {
    /// Bytes that history may take.
    pub(crate) fn history_limit(&self) -> u64 {
        history_bytes(self.budget.limit(), self.history.percent.load(Ordering::Relaxed))
    }

    /// Takes in the undo that a fold left in a leaf. Under the leaf's lock (`state`).
    pub(crate) fn note_undo(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, state: &mut LeafState, bytes: usize) {
        state.set_undo(self, bytes);
        if bytes > 0 && !std::mem::replace(&mut state.in_history, true) {
            self.history.leaves.lock().push((tree.clone(), leaf.clone()));
        }
    }

    /// Has a background thread bound history where it has grown beyond its share. With no threads the caller does the work.
    pub(crate) fn bound_history_soon(&self) {
        let (bytes, limit) = (self.history.bytes(), self.history_limit());
        let floor = self.history.floor.load(Ordering::Relaxed);
        if bytes > limit && bytes > floor + floor / 16 {
            self.run_soon(
                Class::Urgent,
                |core| &core.history.running,
                "history",
                Self::bound_history,
            );
        }
    }

    fn bound_history(&self) -> Result<()> {
        self.history.floor.store(0, Ordering::Relaxed);
        loop {
            self.check_running()?;
            self.drop_undo();
            if self.history.bytes() <= self.history_limit() {
                return Ok(());
            }
            if self.pins.expire_oldest().is_none() {
                self.history.floor.store(self.history.bytes(), Ordering::Relaxed);
                return Ok(());
            }
            self.counters.snapshots_ended.add(1);
        }
    }

    /// Drops undo that nobody reads any more, in every leaf that has some.
    fn drop_undo(&self) {
        let mut horizon = Horizon::default();
        self.pins.update(&mut horizon);
        let leaves = std::mem::take(&mut *self.history.leaves.lock());
        let mut kept = Vec::with_capacity(leaves.len());
        for (tree, leaf) in leaves {
            let guard = rcu::pin();
            let mut state = leaf.state.lock();
            let view = leaf.view.load(&guard);
            if !view.retired && state.undo_bytes > 0 {
                if matches!(view.base, Base::Stored(_)) {
                    self.prune_leaf(&tree, &leaf, &mut state, &horizon, &guard);
                } else {
                    let _ = self.fold_in_place(&tree, &leaf, &mut state, None, &guard);
                }
            }
            state.in_history = state.undo_bytes > 0 && !leaf.view.load(&guard).retired;
            let stays = state.in_history;
            drop(state);
            if stays {
                kept.push((tree, leaf));
            }
        }
        self.history.leaves.lock().append(&mut kept);
    }

    /// Forgets versions of a leaf whose rows are on disk, as far as nobody needs them: a fold would have to read the rows. Under the
    /// leaf's lock (`state`).
    fn prune_leaf(&self, tree: &Tree, leaf: &Leaf, state: &mut LeafState, horizon: &Horizon, guard: &Guard) {
        let view = leaf.view.load(guard);
        let mut freed = 0;
        for at in 0..view.order.len() {
            let gone = view
                .entry(at)
                .chain
                .prune(horizon, usize::MAX, state.base_newest, guard);
            freed += gone.bytes;
            state.versions = state.versions.saturating_sub(gone.versions);
            state.delta_rows = state.delta_rows.saturating_sub(gone.rows);
        }
        state.delta_bytes = state.delta_bytes.saturating_sub(freed);
        // What is left is the newest version of each key, or what somebody sees.
        let left = match horizon.open().first() {
            Some(&oldest) if oldest < state.newest => state.undo_bytes.saturating_sub(freed),
            _ => 0,
        };
        state.set_undo(self, left);
        self.account(tree, 0, -(freed as isize));
    }
}
