//! Bounding history: beyond its share of the cache the oldest snapshot is ended ([`pins::Pins::expire_oldest`]), and
//! its undo dropped. The engine's own snapshots, a checkpoint's for one, are never ended: they go by themselves.

use crate::consolidator::Consolidator;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::job::Job;
use crate::leaf::Base;
use crate::readers::Readers;
use crate::status::Status;
use crate::workers::{Class, Workers};
use engine::Result;
use pins::Horizon;
use std::sync::Arc;

/// See the module.
pub(crate) struct HistoryLimit {
    readers: Arc<Readers>,
    consolidator: Arc<Consolidator>,
    workers: Arc<Workers>,
    status: Arc<Status>,
    counters: Arc<Counters>,
    job: Arc<Job>,
}

impl HistoryLimit {
    pub(crate) fn new(base: &Foundation, consolidator: Arc<Consolidator>) -> Arc<Self> {
        let limit = Arc::new(Self {
            readers: base.readers.clone(),
            consolidator,
            workers: base.workers.clone(),
            status: base.status.clone(),
            counters: base.counters.clone(),
            job: Job::new(Class::Urgent),
        });
        limit.job.set_work(&limit, &limit.status, "history", Self::enforce);
        limit
    }

    /// Has a background thread bound history where it has grown beyond its share. With no threads the caller does the
    /// work.
    pub(crate) fn enforce_soon(&self) {
        if self.readers.history().has_grown() {
            self.job.soon(&self.workers);
        }
    }

    fn enforce(&self) -> Result<()> {
        let history = self.readers.history();
        history.set_floor(false);
        loop {
            self.status.check_running()?;
            self.drop_undo();
            if history.bytes() <= history.limit() {
                return Ok(());
            }
            if self.readers.expire_oldest().is_none() {
                history.set_floor(true);
                return Ok(());
            }
            self.counters.snapshots_ended.add(1);
        }
    }

    /// Drops undo that nobody reads any more, in every leaf that has some.
    fn drop_undo(&self) {
        let history = self.readers.history();
        let mut horizon = Horizon::default();
        self.readers.update(&mut horizon);
        let leaves = history.take_leaves();
        let mut with_undo = Vec::with_capacity(leaves.len());
        for (tree, leaf) in leaves {
            let guard = rcu::pin();
            let mut state = leaf.state.lock();
            let view = leaf.view.load(&guard);
            if !view.retired && state.undo_bytes > 0 {
                if matches!(view.base, Base::OnDisk(_)) {
                    self.consolidator.prune(&tree, &leaf, &mut state, &horizon, &guard);
                } else {
                    let _ = self
                        .consolidator
                        .consolidate_leaf(&tree, &leaf, &mut state, None, &guard);
                }
            }
            state.in_history = state.undo_bytes > 0 && !leaf.view.load(&guard).retired;
            let stays = state.in_history;
            drop(state);
            if stays {
                with_undo.push((tree, leaf));
            }
        }
        history.put_back(with_undo);
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
        assert_eq!(store.base().readers.history().bytes(), 0);
        let open = store.engine.snapshot().expect("a snapshot");
        (2..6).for_each(|value| write_all(&mut store, value));
        let bytes = store.base().readers.history().bytes();
        // A value and the one it covers for most rows, those apart that no consolidation has seen.
        let rows = u64::from(COUNT) * 200;
        assert!((rows / 2..6 * rows).contains(&bytes), "{bytes} of rows of {rows}");
        assert_eq!(first(&open), Ok(Some(1)));
        drop(open);
        store.parts().history_limit.drop_undo();
        assert_eq!(store.base().readers.history().bytes(), 0);
        assert!(store.base().readers.history().take_leaves().is_empty());
    }

    /// What newer snapshots see is in the leaf's base, and in the delta only that it is.
    #[test]
    fn a_row_that_comes_or_changes_beside_a_snapshot_is_in_memory_once() {
        const VALUE_BYTES: u64 = 2000;
        let mut store = store();
        let write_all = |store: &mut Store, value: u8| {
            for number in 0..COUNT {
                let row = vec![value; VALUE_BYTES as usize];
                store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), row));
            }
        };
        let consolidated = |store: &Store| {
            store.parts().checkpoint(true).expect("a checkpoint");
            store.base().readers.history().bytes()
        };
        let before = store.engine.snapshot().expect("a snapshot");
        write_all(&mut store, 1);
        let bytes = consolidated(&store);
        let rows = u64::from(COUNT) * VALUE_BYTES;
        assert!((1..rows / 4).contains(&bytes), "{bytes} for {rows} of rows that came");
        let between = store.engine.snapshot().expect("a snapshot");
        write_all(&mut store, 2);
        let bytes = consolidated(&store);
        assert!(
            (rows..rows + rows / 2).contains(&bytes),
            "{bytes} for {rows} of rows that changed"
        );
        let newest = store.engine.snapshot().expect("a snapshot");
        assert_eq!(
            [&before, &between, &newest].map(first),
            [Ok(None), Ok(Some(1)), Ok(Some(2))]
        );
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
        assert_eq!(store.base().counters.snapshots_ended.get(), 2);
        assert_eq!(store.base().readers.history().bytes(), 0);
        assert_eq!(first(&store.engine.snapshot().expect("a snapshot")), Ok(Some(6)));
    }

    #[test]
    fn nobody_is_ended_for_what_the_engine_itself_needs() {
        let mut store = store();
        store.engine.set_history_percent(0);
        write_all(&mut store, 1);
        let checkpoint = store.base().readers.pin(Holder::Engine);
        write_all(&mut store, 2);
        let reader = store.engine.snapshot().expect("a snapshot");
        (3..6).for_each(|value| write_all(&mut store, value));
        assert!(store.base().readers.history().bytes() > 0);
        assert_eq!(first(&reader), Ok(Some(2)));
        store.base().readers.unpin(checkpoint);
        (6..9).for_each(|value| write_all(&mut store, value));
        assert_eq!(first(&reader), Err(ErrorKind::SnapshotTooOld));
        assert_eq!(store.base().readers.history().bytes(), 0);
    }
}
