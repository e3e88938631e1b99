#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use super::super::Run;
use crate::budget::Use;
use crate::fixture::{DIRECTORY, ROWS, Store};
use crate::options::BtreeOptions;
use crate::pages::LoadRows;
use crate::saved_deltas::SavedPages;
use crate::tree::{Child, Target};
use engine::{Direction, Engine, FillLimits, KeyRange, Rows, TableId};
use pins::Horizon;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

const COUNT: u32 = 3000;

fn options() -> BtreeOptions {
    BtreeOptions {
        threads: Some(0),
        large_value_bytes: 2000,
        ..BtreeOptions::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u32, version: u8) -> Vec<u8> {
    let mut value = vec![version; 60];
    value[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    value
}

/// A store with rows that a checkpoint has written, and what it holds.
fn written() -> (Store, BTreeMap<Vec<u8>, Vec<u8>>) {
    written_with(options())
}

fn written_with(options: BtreeOptions) -> (Store, BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut store = Store::new(options);
    let rows: BTreeMap<_, _> = (0..COUNT).map(|number| (key(number), value(number, 1))).collect();
    store.write(|batch| {
        rows.iter()
            .for_each(|(key, value)| batch.put(ROWS, key.clone(), value.clone()))
    });
    store.checkpoint();
    (store, rows)
}

fn content(store: &Store, table: TableId) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let snapshot = store.engine.snapshot().unwrap();
    let mut cursor = snapshot.cursor(table, KeyRange::all(), Direction::Forward).unwrap();
    let (mut rows, mut all) = (Rows::new(), BTreeMap::new());
    loop {
        cursor.fill(&mut rows, FillLimits::default()).unwrap();
        if rows.is_empty() {
            return all;
        }
        all.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), rows.value(row).to_vec())));
    }
}

fn saved(store: &Store) -> u64 {
    store.base().counters.deltas_saved.get()
}

fn assert_whole(store: &Store) {
    assert_eq!(store.engine.check_durable().unwrap(), [""; 0]);
    assert_eq!(store.engine.check_space().unwrap(), [""; 0]);
}

#[test]
fn few_changes_are_saved_beside_the_image_and_come_back() {
    let (mut store, mut rows) = written();
    // The directory's is there, too.
    let leaves = store.base().cache.clock_list().len() as u64 - 1;
    let written = store.base().counters.pages_written.get();
    for number in (0..COUNT).step_by(40) {
        rows.insert(key(number), value(number, 2));
        rows.remove(&key(number + 1));
        rows.insert([&key(number)[..], b"new"].concat(), value(number, 3));
        store.write(|batch| {
            batch.put(ROWS, key(number), value(number, 2));
            batch.delete(ROWS, key(number + 1));
            batch.put(ROWS, [&key(number)[..], b"new"].concat(), value(number, 3));
        });
    }
    store.checkpoint();
    assert!(leaves > 5, "{leaves} leaves");
    assert_eq!(saved(&store), leaves, "each leaf has a few changes");
    let pages = store.base().counters.pages_written.get() - written;
    assert!(pages < leaves / 2 + 3, "{pages} pages for {leaves} leaves");
    assert_whole(&store);
    // Nothing but the checkpoint is left.
    let store = store.crashed(options());
    assert_eq!(content(&store, ROWS), rows);
    // And again from what came back.
    let mut store = store;
    store.write(|batch| batch.put(ROWS, key(7), value(7, 9)));
    rows.insert(key(7), value(7, 9));
    store.checkpoint();
    assert_whole(&store);
    let store = store.crashed(options());
    assert_eq!(content(&store, ROWS), rows);
    assert_whole(&store);
}

#[test]
fn nothing_is_written_again_while_nobody_writes() {
    let (mut store, _) = written();
    store.write(|batch| batch.put(ROWS, key(5), value(5, 2)));
    store.checkpoint();
    assert_eq!(saved(&store), 1);
    let written = store.base().store.stats().bytes_written;
    let seq = store.engine.checkpoint().unwrap();
    assert_eq!((store.engine.checkpoint().unwrap(), saved(&store)), (seq, 1));
    assert_eq!(store.base().store.stats().bytes_written, written);
    // A change elsewhere does not lose it.
    store.create(TableId(9), "other.rows");
    store.checkpoint();
    assert_eq!(saved(&store), 2);
    assert_eq!(content(&store.crashed(options()), ROWS)[&key(5)], value(5, 2));
}

#[test]
fn an_image_is_written_before_it_costs_more_to_save_beside_it() {
    let (mut store, _) = written();
    let image = |store: &Store| {
        let leaf = store.tree(ROWS).leaf_in_memory(&key(100), &rcu::pin()).unwrap();
        let state = leaf.state.lock();
        (state.disk_image.unwrap(), u64::from(state.saved_bytes))
    };
    let (first, _) = image(&store);
    let leaf = store.tree(ROWS).leaf_in_memory(&key(100), &rcu::pin()).unwrap();
    let all_bytes = crate::leaf::base_bytes(&leaf.view.load(&rcu::pin()).base) as u64;
    let mut rounds = 0;
    let most = loop {
        rounds += 1;
        let (_, most) = image(&store);
        store.write(|batch| (0..10).for_each(|number| batch.put(ROWS, key(100 + number), value(number, rounds))));
        store.checkpoint();
        let (now, saved) = image(&store);
        assert!(saved <= all_bytes);
        if now != first {
            assert_eq!(saved, 0);
            break most;
        }
        assert!(rounds < 200);
    };
    assert!(most > all_bytes / 2, "{most} of {all_bytes}");
    assert!(rounds > 2);
    assert_whole(&store);
}

#[test]
fn what_is_no_row_is_written() {
    let (mut store, mut rows) = written();
    store.write(|batch| batch.put(ROWS, key(5), vec![7; 5000]));
    rows.insert(key(5), vec![7; 5000]);
    store.checkpoint();
    assert_eq!(saved(&store), 0, "a value with blocks of its own");
    store.write(|batch| batch.delete(ROWS, key(5)));
    rows.remove(&key(5));
    store.checkpoint();
    assert_eq!(saved(&store), 0, "and what takes its place");
    let range = KeyRange {
        start: Bound::Included(key(1000)),
        end: Bound::Excluded(key(2000)),
    };
    store.write(|batch| batch.delete_range(ROWS, range));
    rows.retain(|row, _| !(key(1000)..key(2000)).contains(row));
    store.checkpoint();
    assert_whole(&store);
    let store = store.crashed(options());
    assert_eq!(content(&store, ROWS), rows);
}

/// Leaves split, go and are written anew between the look at their changes and the end of the checkpoint.
#[test]
fn a_saved_leaf_may_change_in_any_way_before_the_checkpoint_ends() {
    for (step, what) in ["split", "removed", "written back", "dropped"].into_iter().enumerate() {
        let (mut store, mut rows) = written();
        store.write(|batch| batch.put(ROWS, key(100), value(100, 2)));
        rows.insert(key(100), value(100, 2));
        let checkpointer = store.parts().checkpointer.clone();
        let parts = &checkpointer.parts;
        let (position, pin, changed) = parts.take_position();
        let run = Run::new(parts, position, &changed);
        let (written, oldest): (Vec<_>, _) = (changed.iter().collect(), run.oldest_reader());
        run.write_dirty_leaves(&written).unwrap();
        assert_eq!(saved(&store), 1, "{what}");
        match step {
            0 => (0..40_u32).for_each(|more| {
                store.write(|batch| {
                    (0..20_u32).for_each(|row| {
                        let key = [&key(100)[..], &more.to_be_bytes(), &row.to_be_bytes()].concat();
                        batch.put(ROWS, key, value(row, 5));
                    });
                });
            }),
            1 => store.write(|batch| batch.delete_range(ROWS, KeyRange::all())),
            2 => {
                store.write(|batch| batch.put(ROWS, key(101), value(101, 3)));
                let tree = store.tree(ROWS);
                let leaf = tree.leaf_in_memory(&key(100), &rcu::pin()).unwrap();
                parts.write_back.write_dirty(vec![(tree, leaf)]).unwrap();
            }
            _ => store.write(|batch| batch.drop_table(ROWS)),
        }
        run.complete(&written, oldest, checkpointer.write_ahead()).unwrap();
        *parts.running.lock() = None;
        parts.readers.unpin(pin);
        assert_whole(&store);
        let after = store.crashed(options());
        assert_eq!(
            content(&after, ROWS),
            rows,
            "{what}: the state at the checkpoint's position"
        );
        // The next one has what came since.
        store.checkpoint();
        assert_whole(&store);
    }
}

/// What was saved in a large cache comes back into a small one: it has to leave it as it comes.
#[test]
fn what_comes_back_leaves_a_smaller_cache_again() {
    let large = BtreeOptions {
        cache_bytes: 256 << 20,
        ..options()
    };
    let count = 100_000;
    let long = |number: u32, version: u8| value(number, version).repeat(5);
    let mut store = Store::new(large);
    let mut rows: BTreeMap<_, _> = (0..count).map(|number| (key(number), long(number, 1))).collect();
    store.write(|batch| {
        rows.iter()
            .for_each(|(key, value)| batch.put(ROWS, key.clone(), value.clone()))
    });
    store.checkpoint();
    for number in (0..count).step_by(8) {
        rows.insert(key(number), long(number, 2));
        store.write(|batch| batch.put(ROWS, key(number), long(number, 2)));
    }
    store.checkpoint();
    let small = BtreeOptions {
        cache_bytes: BtreeOptions::CACHE_BYTES_MIN,
        threads: Some(1),
        ..options()
    };
    let store = store.crashed(small);
    let (used, limit) = (store.base().cache.budget().total(), BtreeOptions::CACHE_BYTES_MIN);
    assert!(used <= limit + limit / 4, "{used} bytes of {limit}");
    assert!(saved_memory(&store) > 0, "some of it is there");
    assert_eq!(content(&store, ROWS), rows);
}

fn saved_memory(store: &Store) -> u64 {
    store.base().cache.budget().used(Use::Deltas)
}

/// A store of which one leaf, that of the key 1500, cannot be read.
fn damaged() -> (Store, BTreeMap<Vec<u8>, Vec<u8>>) {
    let (store, rows) = written();
    let store = store.reopened(options());
    let place = {
        // The way down comes into memory.
        store.engine.snapshot().unwrap().get(ROWS, &key(0)).unwrap();
        let (tree, guard) = (store.tree(ROWS), rcu::pin());
        match tree.descend(Target::At(&key(1500)), 0, &guard).child {
            Child::OnDisk { address, level: 0 } => address.sector() * blocks::SECTOR_BYTES as u64 + 40,
            _ => panic!("its rows are on disk only"),
        }
    };
    let file = Path::new(DIRECTORY).join("main.blocks");
    store.fs.flip_bit(&file, place, 3).unwrap();
    (store.crashed(options()), rows)
}

fn get(store: &Store, key: &[u8]) -> engine::Result<Option<bytes::Bytes>> {
    store.engine.snapshot()?.get(ROWS, key)
}

/// The server ended at the first checkpoint after a write to such a leaf, and after each start.
#[test]
fn a_leaf_that_cannot_be_read_keeps_nobody_else_from_going_on() {
    let (mut store, mut rows) = damaged();
    assert!(get(&store, &key(1501)).is_err());
    for version in 2..14 {
        for number in [5, 1500] {
            rows.insert(key(number), value(number, version));
            store.write(|batch| batch.put(ROWS, key(number), value(number, version)));
        }
        store.checkpoint();
    }
    assert!(store.base().counters.leaves_unreadable.get() > 0);
    // Nor does eviction end the engine.
    let leaf = store.tree(ROWS).leaf_in_memory(&key(1500), &rcu::pin()).unwrap();
    let write_back = &store.parts().checkpointer.parts.write_back;
    assert!(write_back.write_dirty(vec![(store.tree(ROWS), leaf)]).is_ok());
    let store = store.crashed(options());
    for number in [5, 1500] {
        let expected = rows.get(&key(number)).map(Vec::as_slice);
        assert_eq!(get(&store, &key(number)).unwrap().as_deref(), expected);
    }
    assert!(get(&store, &key(1501)).is_err());
    store.engine.close(engine::CloseMode::Checkpoint).unwrap();
}

/// With small leaves: the root is above two levels.
fn deep() -> BtreeOptions {
    BtreeOptions {
        record_leaf_bytes: 1024,
        ..options()
    }
}

/// Where the inner page of a level lies that is above a key, on a disk that nobody has read.
fn inner_above(store: &Store, key: &[u8], level: u8) -> u64 {
    let tree = store.tree(ROWS);
    loop {
        let (address, found) = match tree.descend(Target::At(key), level, &rcu::pin()).child {
            Child::OnDisk { address, level } => (*address, *level),
            _ => panic!("it is on disk only"),
        };
        if found == level {
            return address.sector() * blocks::SECTOR_BYTES as u64 + 40;
        }
        let pages = &store.base().pages;
        pages
            .bring_in(&tree, Target::At(key), address, found, LoadRows::Wanted)
            .unwrap();
    }
}

/// Each write below such a page ended the server, and so did each start that had one to replay.
#[test]
fn what_is_written_below_a_damaged_inner_page_stays() {
    let file = Path::new(DIRECTORY).join("main.blocks");
    for level in [1, 2] {
        let (store, mut rows) = written_with(deep());
        let store = store.reopened(deep());
        let place = inner_above(&store, &key(1500), level);
        store.fs.flip_bit(&file, place, 3).unwrap();
        let mut store = store.crashed(deep());
        assert!(get(&store, &key(1501)).is_err());
        for version in 2..14 {
            for number in [1500, 1502] {
                rows.insert(key(number), value(number, version));
                store.write(|batch| batch.put(ROWS, key(number), value(number, version)));
            }
            store.checkpoint();
        }
        rows.remove(&key(1503));
        store.write(|batch| batch.delete(ROWS, key(1503)));
        store.checkpoint();
        let check = |store: &Store| {
            for number in [1500, 1502, 1503] {
                let expected = rows.get(&key(number)).map(Vec::as_slice);
                assert_eq!(get(store, &key(number)).unwrap().as_deref(), expected, "level {level}");
            }
            assert!(get(store, &key(1501)).is_err());
            let is_elsewhere = |number| get(store, &key(number)).is_ok();
            assert_eq!([5, COUNT - 5].into_iter().any(is_elsewhere), level == 1);
        };
        check(&store);
        let store = store.crashed(deep());
        check(&store);
        let store = store.reopened(deep());
        check(&store);
        // Nothing of it has taken the place of what is damaged.
        store.fs.flip_bit(&file, place, 3).unwrap();
        let store = store.crashed(deep());
        assert_eq!(content(&store, ROWS), rows, "level {level}");
        assert_whole(&store);
    }
}

/// The rows of the directory are in its leaves alone: a checkpoint would have become durable without the tables' new
/// roots, whose old ones were given back.
#[test]
fn a_leaf_of_the_directory_is_not_saved() {
    let (mut store, _) = written();
    store.write(|batch| batch.put(ROWS, key(5), value(5, 2)));
    let checkpointer = store.parts().checkpointer.clone();
    let parts = &checkpointer.parts;
    let (position, pin, changed) = parts.take_position();
    let run = Run::new(parts, position, &changed);
    let directory = parts.catalog.directory_tree();
    let (row, change) = crate::directory::removed(TableId(77));
    let mut horizon = Horizon::default();
    parts.readers.update(&mut horizon);
    parts
        .applier
        .write(directory, &row, change, position.seq, &horizon)
        .unwrap();
    let leaf = directory.leaf_in_memory(&row, &rcu::pin()).unwrap();
    assert!(leaf.state.lock().disk_image.is_some());
    let mut pages = SavedPages::default();
    run.save_unreadable(directory, &leaf, &mut pages).unwrap();
    assert!(!leaf.state.lock().is_noted_for(position), "the checkpoint lacks it");
    parts.store.abandon_checkpoint();
    *parts.running.lock() = None;
    parts.readers.unpin(pin);
}

/// Whoever does not wait for the end of a clean shutdown has nothing to replay.
#[test]
fn a_clean_end_saves_before_it_writes_whole() {
    let (mut store, rows) = written();
    store.write(|batch| batch.put(ROWS, key(5), value(5, 2)));
    let seq = store.base().readers.published();
    store.parts().checkpointer.checkpoint_whole().unwrap();
    assert_eq!(saved(&store), 1, "the first checkpoint");
    assert!(!store.base().saved_deltas.are_there(), "the second one");
    assert_eq!(store.engine.durable_seq(), seq);
    assert_whole(&store);
    assert_eq!(content(&store.crashed(options()), ROWS).len(), rows.len());
}

/// More keys than a leaf takes that can be consolidated.
#[test]
fn a_leaf_that_cannot_be_read_takes_thousands_of_keys() {
    let (mut store, _) = damaged();
    let new = |number: u32| [&key(1500)[..], &number.to_be_bytes()].concat();
    for number in 0..3000 {
        store.write(|batch| batch.put(ROWS, new(number), value(number, 2)));
    }
    store.checkpoint();
    let mut store = store.crashed(options());
    store.write(|batch| batch.put(ROWS, new(3000), value(3000, 2)));
    for number in [0, 700, 2999, 3000] {
        assert_eq!(
            get(&store, &new(number)).unwrap().as_deref(),
            Some(&value(number, 2)[..])
        );
    }
}

/// The next start did not know the table whose rows were saved.
#[test]
fn a_damaged_table_that_readers_still_have_can_be_dropped() {
    let (mut store, _) = damaged();
    let reader = store.engine.snapshot().unwrap();
    store.write(|batch| batch.put(ROWS, key(1500), value(1500, 2)));
    store.checkpoint();
    store.write(|batch| batch.drop_table(ROWS));
    store.checkpoint();
    drop(store.crashed(options()));
    drop(reader);
    store.checkpoint();
    drop(store.crashed(options()));
}
