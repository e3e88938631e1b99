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
    /// The engine's own work has given back a position: what was kept for it may go.
    pub(crate) fn try_again(&self) {
        self.floor.store(0, Ordering::Relaxed);
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store};
    use crate::options::BtreeOptions;
    use engine::{Engine, ErrorKind, Snapshot};
    use pins::Holder;

    const COUNT: u32 = 500;

    fn store() -> Store {
        Store::new(BtreeOptions {
            threads: Some(0),
            ..BtreeOptions::default()
        })
    }

    fn write_all(store: &mut Store, value: u8) {
        for number in 0..COUNT {
            store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![value; 200]));
        }
    }

    fn first(snapshot: &Arc<dyn Snapshot>) -> std::result::Result<Option<u8>, ErrorKind> {
        let found = snapshot.get(ROWS, &0_u32.to_be_bytes());
        found
            .map(|value| value.map(|value| value[0]))
            .map_err(|error| error.kind())
    }

    #[test]
    fn undo_is_counted_and_goes_with_its_snapshot() {
        let mut store = store();
        write_all(&mut store, 1);
        assert_eq!(store.core().history.bytes(), 0);
        let open = store.engine.snapshot().expect("a snapshot");
        (2..6).for_each(|value| write_all(&mut store, value));
        let bytes = store.core().history.bytes();
        // A value and the one it covers for most rows, those apart that no fold has seen.
        let rows = u64::from(COUNT) * 200;
        assert!((rows / 2..6 * rows).contains(&bytes), "{bytes} of rows of {rows}");
        assert_eq!(first(&open), Ok(Some(1)));
        drop(open);
        store.core().drop_undo();
        assert_eq!(store.core().history.bytes(), 0);
        assert!(store.core().history.leaves.lock().is_empty());
    }

    #[test]
    fn beyond_its_bound_the_oldest_snapshots_end() {
        let mut store = store();
        write_all(&mut store, 1);
        let oldest = store.engine.snapshot().expect("a snapshot");
        write_all(&mut store, 2);
        let second = store.engine.snapshot().expect("a snapshot");
        (3..6).for_each(|value| write_all(&mut store, value));
        assert_eq!((first(&oldest), first(&second)), (Ok(Some(1)), Ok(Some(2))));
        store.engine.set_history_percent(0);
        write_all(&mut store, 6);
        assert_eq!(
            (first(&oldest), first(&second)),
            (Err(ErrorKind::SnapshotTooOld), Err(ErrorKind::SnapshotTooOld))
        );
        assert_eq!(store.core().counters.snapshots_ended.get(), 2);
        assert_eq!(store.core().history.bytes(), 0);
        assert_eq!(first(&store.engine.snapshot().expect("a snapshot")), Ok(Some(6)));
    }

    #[test]
    fn nobody_is_ended_for_what_the_engine_itself_needs() {
        let mut store = store();
        store.engine.set_history_percent(0);
        write_all(&mut store, 1);
        let checkpoint = store.core().pins.pin(Holder::Engine);
        write_all(&mut store, 2);
        let reader = store.engine.snapshot().expect("a snapshot");
        (3..6).for_each(|value| write_all(&mut store, value));
        assert!(store.core().history.bytes() > 0);
        assert_eq!(first(&reader), Ok(Some(2)));
        store.core().unpin(checkpoint);
        (6..9).for_each(|value| write_all(&mut store, value));
        assert_eq!(first(&reader), Err(ErrorKind::SnapshotTooOld));
        assert_eq!(store.core().history.bytes(), 0);
    }
}
