//! Bounding history: beyond its share of the cache values go to a file (`history_file`); where that is not enough, the
//! oldest snapshot is ended ([`pins::Pins::expire_oldest`]), and its undo dropped. The engine's own snapshots, a
//! checkpoint's for one, are never ended: they go by themselves.

use crate::cache::PageCache;
use crate::consolidation::is_huge;
use crate::consolidator::Consolidator;
use crate::counters::Counters;
use crate::foundation::Foundation;
use crate::history_file::{SegmentBuffer, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use crate::job::Job;
use crate::leaf::{Base, Leaf};
use crate::readers::Readers;
use crate::tree::Tree;
use crate::version::{Change, Value};
use crate::workers::{Class, Workers};
use bytes::Bytes;
use engine::{EngineStatus, Result, Seq};
use pins::Horizon;
use std::sync::Arc;

/// See the module.
pub(crate) struct HistoryLimit {
    cache: Arc<PageCache>,
    readers: Arc<Readers>,
    consolidator: Arc<Consolidator>,
    workers: Arc<Workers>,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
    job: Arc<Job>,
}

impl HistoryLimit {
    pub(crate) fn new(base: &Foundation, consolidator: Arc<Consolidator>) -> Arc<Self> {
        let limit = Arc::new(Self {
            cache: base.cache.clone(),
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
            let takes_more = history.bytes() <= history.limit() || self.spill();
            if history.bytes() <= history.limit() {
                return Ok(());
            }
            // What is left is what the engine's own work sees, too, for the most part: nobody is ended for what stays
            // anyway. That work ends by itself, and then it goes to the file.
            if takes_more && self.readers.oldest_of_engine() < self.readers.published() {
                history.set_floor(true);
                return Ok(());
            }
            if self.readers.expire_oldest().is_none() {
                history.set_floor(true);
                return Ok(());
            }
            self.counters.snapshots_ended.add(1);
        }
    }

    /// Moves values that only old snapshots see to the file, until a quarter of history's share is free. False when the
    /// file takes no more.
    fn spill(&self) -> bool {
        let history = self.readers.history();
        let target = history.limit() - history.limit() / 4;
        // What the engine's own work sees, now or later, may become a base's row.
        let covered_max = self.readers.oldest_of_engine();
        let leaves = history.take_leaves();
        let mut segment = history.file().buffer();
        let mut places: Vec<PlaceOfValue<'_>> = Vec::new();
        let mut takes_more = true;
        'leaves: for (tree, leaf) in &leaves {
            for (key, seq, value) in spillable(leaf, covered_max) {
                if !segment.push(&value) {
                    takes_more = self.write_segment(&mut segment, &mut places);
                    if !takes_more || history.bytes() <= target {
                        break 'leaves;
                    }
                    segment.push(&value);
                }
                places.push(PlaceOfValue {
                    tree,
                    leaf,
                    key,
                    seq,
                    value,
                });
            }
        }
        if history.bytes() > target && !segment.is_empty() {
            takes_more = self.write_segment(&mut segment, &mut places);
        }
        drop(places);
        history.put_back(leaves);
        takes_more
    }

    /// Writes values to the file and has their versions refer to it, as far as those are there still. False when the
    /// file takes no more.
    fn write_segment(&self, segment: &mut SegmentBuffer, places: &mut Vec<PlaceOfValue<'_>>) -> bool {
        let history = self.readers.history();
        let Some(spilled) = history.file().write(segment, history.file_limit()) else {
            places.clear();
            self.counters.spills_refused.add(1);
            return false;
        };
        let guard = rcu::pin();
        for (place, spilled) in places.drain(..).zip(spilled) {
            let mut state = place.leaf.state.lock();
            let view = place.leaf.view.load(&guard);
            let Ok(at) = view.find(&place.key) else { continue };
            let chain = &view.entry(at).chain;
            match chain.at(place.seq, &guard) {
                Some(Change::Put(Value::Inline(value))) if value.as_ptr() == place.value.as_ptr() => {}
                _ => continue,
            }
            let saved = chain.replace_at(place.seq, Change::Put(Value::Spilled(spilled)), &guard);
            state.delta_bytes = state.delta_bytes.saturating_sub(saved);
            let left = state.undo_bytes.saturating_sub(saved);
            history.set_undo(&mut state, left);
            drop(state);
            self.cache.account(place.tree, 0, -(saved as isize));
            self.counters.values_spilled.add(1);
        }
        true
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
                // One that is huge has a split before it, which makes its images.
                if matches!(view.base, Base::OnDisk(_)) || is_huge(view, &state, tree.shape.large_bytes_min, &guard) {
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

/// Where a value is that is on its way to the file.
struct PlaceOfValue<'l> {
    tree: &'l Arc<Tree>,
    leaf: &'l Arc<Leaf>,
    key: Box<[u8]>,
    seq: Seq,
    value: Bytes,
}

/// Keys, positions and values of a leaf's undo that are long enough for the file and that nobody sees at `covered_max`
/// and behind it.
fn spillable(leaf: &Leaf, covered_max: Seq) -> Vec<(Box<[u8]>, Seq, Bytes)> {
    let mut found = Vec::new();
    let guard = rcu::pin();
    let state = leaf.state.lock();
    let view = leaf.view.load(&guard);
    if view.retired || state.undo_bytes == 0 {
        return found;
    }
    // What is covered by something newer than the base was written since, and is not undo.
    let covered_max = covered_max.min(state.base_newest);
    for at in 0..view.order.len() {
        let entry = view.entry(at);
        let mut newer = entry.chain.head(&guard);
        while let Some(version) = newer {
            let older = version.older(&guard);
            if let Some(older) = older
                && version.seq <= covered_max
                && let Change::Put(Value::Inline(value)) = &older.change
                && (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len())
            {
                found.push(((*entry.key).into(), older.seq, value.clone()));
            }
            newer = older;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store};
    use crate::leaf::Found;
    use crate::options::BtreeOptions;
    use engine::{Direction, Engine, ErrorKind, FillLimits, KeyRange, Maintenance, Rows, Snapshot};
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

    const ROUND_BYTES: u64 = COUNT as u64 * 8000;

    /// Rewrites all rows, with a snapshot open from before; answers the snapshots.
    fn rounds(store: &mut Store, rounds: std::ops::Range<u8>) -> Vec<(u8, Arc<dyn Snapshot>)> {
        let mut open = Vec::new();
        for value in rounds {
            for number in 0..COUNT {
                store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![value; 8000]));
            }
            open.push((value, store.engine.snapshot().expect("a snapshot")));
        }
        open
    }

    fn all_values(snapshot: &Arc<dyn Snapshot>, direction: Direction) -> Vec<u8> {
        let mut cursor = snapshot
            .clone()
            .cursor(ROWS, KeyRange::all(), direction)
            .expect("a cursor");
        let (mut rows, mut values) = (Rows::new(), Vec::new());
        let limits = FillLimits {
            rows_max: 100,
            bytes_max: 1 << 20,
        };
        while cursor.fill(&mut rows, limits).expect("rows") {
            for index in 0..rows.len() {
                let value = rows.value(index);
                assert!(value.len() == 8000 && value.iter().all(|&byte| byte == value[0]));
                values.push(value[0]);
            }
        }
        values
    }

    #[test]
    fn values_go_to_the_file_before_a_snapshot_is_ended() {
        let mut store = store();
        let limit = |store: &Store| store.base().readers.history().limit();
        store.engine.set_history_percent(1);
        assert!(limit(&store) < 2 * ROUND_BYTES, "{} bytes", limit(&store));
        let open = rounds(&mut store, 1..8);
        store.checkpoint();
        for (value, snapshot) in &open {
            assert_eq!(first(snapshot), Ok(Some(*value)));
            for direction in [Direction::Forward, Direction::Reverse] {
                assert_eq!(all_values(snapshot, direction), vec![*value; COUNT as usize]);
            }
        }
        let on_disk = store.base().readers.history().file().bytes();
        let history = store.base().readers.history().bytes();
        assert!(on_disk > 3 * ROUND_BYTES, "{on_disk} on disk");
        // The checkpoint left some that no batch has had bounded yet.
        assert!(history <= limit(&store) + ROUND_BYTES / 4, "{history} in memory");
        let verified = store
            .engine
            .maintain(&Maintenance::Verify(None))
            .expect("a verification");
        assert_eq!(verified.problems, Vec::<String>::new());
        // Its room comes back with the snapshots.
        drop(open);
        store.parts().history_limit.drop_undo();
        assert_eq!(store.base().readers.history().bytes(), 0);
        // What was replaced goes when no reader can hold it, those of tests beside this one included.
        let file = store.base().readers.history().file();
        while file.bytes() > 0 {
            drop(rcu::pin());
            std::thread::yield_now();
        }
    }

    /// A checkpoint's image is made of what was there when it began: none of that may lie in the file.
    #[test]
    fn what_a_running_checkpoint_sees_stays_in_memory() {
        let mut store = store();
        store.engine.set_history_percent(1);
        rounds(&mut store, 1..2).clear();
        let checkpoint = store.base().readers.pin(Holder::Engine);
        let open = rounds(&mut store, 2..9);
        let tree = store.tree(ROWS);
        for number in 0..COUNT {
            let guard = rcu::pin();
            let leaf = tree
                .leaf_in_memory(&number.to_be_bytes(), &guard)
                .expect("it is in memory");
            let found = leaf
                .view
                .load(&guard)
                .get(&number.to_be_bytes(), checkpoint.seq(), &guard);
            assert!(matches!(found, Found::Inline(_)), "row {number}");
        }
        store.base().readers.unpin(checkpoint);
        drop(open);
    }

    /// It sees what the snapshot sees, so that nothing would be freed; and once it is over that goes to the file.
    #[test]
    fn nobody_is_ended_for_what_a_running_checkpoint_sees() {
        let mut store = store();
        store.engine.set_history_percent(1);
        rounds(&mut store, 1..2).clear();
        let open = store.engine.snapshot().expect("a snapshot");
        store.write(|batch| batch.put(ROWS, b"another".to_vec(), b"row".to_vec()));
        let checkpoint = store.base().readers.pin(Holder::Engine);
        drop(rounds(&mut store, 2..6));
        let history = store.base().readers.history();
        assert!(history.bytes() + history.file().bytes() > ROUND_BYTES);
        assert_eq!(store.base().counters.snapshots_ended.get(), 0);
        store.base().readers.unpin(checkpoint);
        let newer = rounds(&mut store, 6..9);
        assert_eq!(all_values(&open, Direction::Forward), vec![1; COUNT as usize]);
        let history = store.base().readers.history();
        assert!(history.file().bytes() > 0 && history.bytes() <= history.limit());
        drop(newer);
    }

    #[test]
    fn where_the_file_takes_no_more_the_oldest_snapshots_end() {
        let mut store = store();
        store.engine.set_history_percent(1);
        let mut open = rounds(&mut store, 1..40);
        let ended = store.base().counters.snapshots_ended.get();
        assert!((1..39).contains(&ended), "{ended} were ended");
        let lasting = open.split_off(ended as usize);
        assert!(
            open.iter()
                .all(|(_, snapshot)| first(snapshot) == Err(ErrorKind::SnapshotTooOld))
        );
        assert!(
            lasting
                .iter()
                .all(|(value, snapshot)| first(snapshot) == Ok(Some(*value)))
        );
        let history = store.base().readers.history();
        assert!(history.file().bytes() <= history.file_limit());
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
