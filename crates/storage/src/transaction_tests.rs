use crate::overlay_view::{ChangedRows, OverlaySnapshot};
use crate::testing::*;
use crate::{Direction, FillLimits, LockMode, Operation, ReadView, RecordId, Storage, StorageError, Transaction};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use bytes::Bytes;
use engine::{Batch, Engine, KeyRange, Rows, Seq, Snapshot, TableId, TableKind, TableSpec};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::SeededRandom;

fn insert(
    transaction: &mut Transaction,
    storage: &Arc<Storage>,
    op: &Operation,
    document: &RawDocument,
) -> Result<RecordId, StorageError> {
    let guard = storage.locked(op, "c");
    let mut unit = transaction.resume(op);
    let id = unit.insert(&guard, document)?;
    unit.commit()?;
    Ok(id)
}

/// Sets `n`; answers what it was.
fn set(
    transaction: &mut Transaction,
    storage: &Arc<Storage>,
    op: &Operation,
    id: RecordId,
    change: impl Fn(i32) -> i32,
) -> Result<i32, StorageError> {
    let guard = storage.locked(op, "c");
    let mut unit = transaction.resume(op);
    let old = unit.lock_record(&guard, &id)?.expect("it is there");
    let old = RawDocument::from_bytes(old.as_ref()).unwrap();
    let n = old.get_i32("n").unwrap();
    let mut new = RawDocumentBuf::new();
    for (name, value) in old.iter().flatten() {
        match name.as_str() {
            "n" => new.append(name, change(n)),
            _ => new.append(name, value),
        }
    }
    unit.update(&guard, &id, old, &new)?;
    unit.commit()?;
    Ok(n)
}

fn numbers(view: &ReadView, storage: &Arc<Storage>) -> Vec<i32> {
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let mut cursor = view
        .records(&collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let (mut batch, mut all) = (crate::RecordBatch::new(), Vec::new());
    while cursor.fill(&mut batch, FillLimits::default()).unwrap() {
        for row in 0..batch.len() {
            let document = RawDocument::from_bytes(batch.document(row)).unwrap();
            all.push(document.get_i32("n").unwrap());
        }
    }
    all
}

/// A collection with a unique index on `n` and documents 0, 1 and 2.
fn three(machine: &Machine) -> (Arc<Storage>, Vec<RecordId>) {
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let unique = index("n_1", rawdoc! { "n": 1 }, rawdoc! { "unique": true });
    storage.create_indexes(&op, &ns("c"), &[unique]).unwrap();
    let put = |n: i32| storage.put(&op, "c", rawdoc! { "_id": n, "n": n }).unwrap();
    let ids = (0..3).map(put).collect();
    (storage, ids)
}

#[test]
fn a_transaction_sees_its_own_changes_and_nobody_else_does_before_it_commits() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let (first, second) = (machine.operation(), machine.operation());
    let mut transaction = storage.begin_transaction().unwrap();
    let before = transaction.view();
    insert(&mut transaction, &storage, &first, &rawdoc! { "_id": 3, "n": 30 }).unwrap();
    set(&mut transaction, &storage, &second, ids[1].clone(), |_| 10).unwrap();
    // Its own value is taken, and the one it gave up is free.
    let taken = insert(&mut transaction, &storage, &second, &rawdoc! { "_id": 4, "n": 10 });
    assert!(matches!(taken, Err(StorageError::DuplicateKey(_))), "{taken:?}");
    insert(&mut transaction, &storage, &second, &rawdoc! { "_id": 4, "n": 1 }).unwrap();
    let view = transaction.view();
    assert_eq!(numbers(&view, &storage), [0, 10, 2, 30, 1]);
    assert_eq!(numbers(&before, &storage), [0, 1, 2], "a view does not move");
    assert_eq!(numbers(&storage.read().unwrap(), &storage), [0, 1, 2]);
    drop((view, before));
    let seq = transaction.commit(&first).unwrap();
    assert_eq!(seq, storage.last_seq());
    assert_eq!(numbers(&storage.read().unwrap(), &storage), [0, 10, 2, 30, 1]);
    assert_eq!(storage.stats().locks_held, 0);
    assert_eq!(storage.locks.remembered(), 0);
    storage.assert_valid(&first, "c");
}

#[test]
fn a_statement_that_fails_takes_its_own_changes_back() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let op = machine.operation();
    let mut transaction = storage.begin_transaction().unwrap();
    insert(&mut transaction, &storage, &op, &rawdoc! { "_id": 3, "n": 3 }).unwrap();
    {
        let guard = storage.locked(&op, "c");
        let mut unit = transaction.resume(&op);
        unit.insert(&guard, &rawdoc! { "_id": 4, "n": 4 }).unwrap();
        let old = unit.lock_record(&guard, &ids[0]).unwrap().unwrap();
        unit.delete(&guard, &ids[0], RawDocument::from_bytes(old.as_ref()).unwrap())
            .unwrap();
        let failed = unit.insert(&guard, &rawdoc! { "_id": 5, "n": 2 });
        assert!(matches!(failed, Err(StorageError::DuplicateKey(_))));
    }
    assert_eq!(numbers(&transaction.view(), &storage), [0, 1, 2, 3]);
    insert(&mut transaction, &storage, &op, &rawdoc! { "_id": 6, "n": 4 }).unwrap();
    assert_eq!(numbers(&transaction.view(), &storage), [0, 1, 2, 3, 4]);
    transaction.commit(&op).unwrap();
    storage.assert_valid(&op, "c");
    let before = storage.all("c");
    storage.log().flush().unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    assert_eq!(machine.open().unwrap().all("c"), before, "the entry says the same");
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let op = machine.operation();
    let before = (storage.last_seq(), storage.all("c"));
    let mut transaction = storage.begin_transaction().unwrap();
    insert(&mut transaction, &storage, &op, &rawdoc! { "_id": 3, "n": 3 }).unwrap();
    set(&mut transaction, &storage, &op, ids[0].clone(), |_| 7).unwrap();
    assert!(storage.stats().locks_held > 0);
    drop(transaction);
    assert_eq!((storage.last_seq(), storage.all("c")), before);
    assert_eq!((storage.stats().locks_held, storage.locks.remembered()), (0, 0));
    // The collection's lock is free, too, and so are the keys.
    storage.put(&op, "c", rawdoc! { "_id": 3, "n": 3 }).unwrap();
    storage.drop_collection(&op, &ns("c")).unwrap();
}

#[test]
fn the_first_who_commits_wins() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let op = machine.operation();
    let conflict = |result: Result<(), StorageError>| {
        assert!(matches!(result, Err(StorageError::WriteConflict)), "{result:?}");
    };
    let mut changed = storage.begin_transaction().unwrap();
    let mut deleted = storage.begin_transaction().unwrap();
    let mut inserted = storage.begin_transaction().unwrap();
    let mut by_unique_key = storage.begin_transaction().unwrap();
    let mut elsewhere = storage.begin_transaction().unwrap();
    storage
        .replace(&op, "c", ids[0].clone(), rawdoc! { "_id": 0, "n": 100 })
        .unwrap();
    storage.remove(&op, "c", ids[1].clone()).unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 9, "n": 9 }).unwrap();
    conflict(set(&mut changed, &storage, &op, ids[0].clone(), |n| n + 1).map(drop));
    conflict(set(&mut deleted, &storage, &op, ids[1].clone(), |n| n + 1).map(drop));
    conflict(insert(&mut inserted, &storage, &op, &rawdoc! { "_id": 9, "n": 90 }).map(drop));
    conflict(insert(&mut by_unique_key, &storage, &op, &rawdoc! { "_id": 90, "n": 9 }).map(drop));
    set(&mut elsewhere, &storage, &op, ids[2].clone(), |n| n + 5).unwrap();
    elsewhere.commit(&op).unwrap();
    drop((changed, deleted, inserted, by_unique_key));
    assert_eq!(storage.locks.remembered(), 0, "nobody needs to know any more");
    // One that begins now sees all that.
    let mut later = storage.begin_transaction().unwrap();
    assert_eq!(set(&mut later, &storage, &op, ids[0].clone(), |n| n + 1).unwrap(), 100);
    later.commit(&op).unwrap();
    storage.assert_valid(&op, "c");
}

#[test]
fn of_two_open_transactions_the_second_to_touch_a_document_loses_and_others_wait() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let (op, other) = (machine.operation(), machine.operation());
    let mut first = storage.begin_transaction().unwrap();
    let mut second = storage.begin_transaction().unwrap();
    set(&mut first, &storage, &op, ids[0].clone(), |_| 50).unwrap();
    assert!(matches!(
        set(&mut second, &storage, &other, ids[0].clone(), |_| 60),
        Err(StorageError::WriteConflict)
    ));
    // A client without a transaction waits for the end of one, as long as it may.
    let plain = machine.operation();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| storage.replace(&plain, "c", ids[0].clone(), rawdoc! { "_id": 0, "n": 70 }));
        while storage.stats().conflicts < 2 {
            std::thread::yield_now();
        }
        first.commit(&op).unwrap();
        waiting.join().unwrap().unwrap();
    });
    drop(second);
    assert_eq!(numbers(&storage.read().unwrap(), &storage), [70, 1, 2]);
}

/// Snapshot isolation, not serialisability.
#[test]
fn two_that_read_what_the_other_writes_both_commit() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let op = machine.operation();
    let (mut a, mut b) = (
        storage.begin_transaction().unwrap(),
        storage.begin_transaction().unwrap(),
    );
    assert_eq!(numbers(&a.view(), &storage), numbers(&b.view(), &storage));
    set(&mut a, &storage, &op, ids[0].clone(), |_| 10).unwrap();
    set(&mut b, &storage, &op, ids[1].clone(), |_| 11).unwrap();
    a.commit(&op).unwrap();
    b.commit(&op).unwrap();
    assert_eq!(numbers(&storage.read().unwrap(), &storage), [10, 11, 2]);
}

#[test]
fn capped_collections_are_not_for_transactions() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! { "capped": true, "size": 4096 });
    let mut transaction = storage.begin_transaction().unwrap();
    let refused = insert(&mut transaction, &storage, &op, &rawdoc! { "_id": 1 });
    assert!(matches!(refused, Err(StorageError::NotInTransaction(_))), "{refused:?}");
}

#[test]
fn a_transaction_lets_its_own_statements_pass_a_waiting_definition() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let op = machine.operation();
    let mut transaction = storage.begin_transaction().unwrap();
    set(&mut transaction, &storage, &op, ids[0].clone(), |_| 10).unwrap();
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| storage.drop_collection(&machine.operation(), &ns("c")));
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        while !collection.shared.lock.is_waited_for() {
            std::thread::yield_now();
        }
        let next = machine.operation();
        let mut unit = transaction.resume(&next);
        let guard = storage
            .collection(&next, &ns("c"), LockMode::IntentExclusive)
            .unwrap()
            .unwrap();
        unit.insert(&guard, &rawdoc! { "_id": 8, "n": 8 }).unwrap();
        unit.commit().unwrap();
        drop((guard, collection));
        transaction.commit(&next).unwrap();
        assert!(dropping.join().unwrap().unwrap().is_some());
    });
}

/// Transfers between accounts by transactions beside plain updates, with entries that stay at once and with some that
/// wait.
#[test]
fn no_update_is_lost_between_transactions_and_others() {
    let seed = seed_of("TENON_TRANSACTION_SEED");
    for decides_alone in [true, false] {
        let machine = Machine::new(seed);
        let storage = machine
            .open_with(|options| options.decides_alone = decides_alone)
            .unwrap();
        let present = AtomicU64::new(1);
        let (given, conflicts) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let random = SeededRandom::new(seed ^ 1);
                while !decides_alone && present.load(Ordering::SeqCst) > 0 {
                    let (published, last) = (storage.last_seq().0, storage.log().last_seq().0);
                    storage
                        .commit_to(Seq(published + pick(&random, last - published + 1)))
                        .unwrap();
                }
            });
            let op = machine.operation();
            storage.make(&op, "c", rawdoc! {});
            let ids: Vec<_> = (0..4)
                .map(|n| storage.put(&op, "c", rawdoc! { "_id": n, "n": 0 }).unwrap())
                .collect();
            present.fetch_add(4, Ordering::SeqCst);
            for thread in 0..4 {
                let (storage, machine, ids) = (&storage, &machine, ids.clone());
                let (present, given, conflicts) = (&present, &given, &conflicts);
                scope.spawn(move || {
                    struct Leaving<'a>(&'a AtomicU64);
                    impl Drop for Leaving<'_> {
                        fn drop(&mut self) {
                            self.0.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                    let _leaving = Leaving(present);
                    let random = SeededRandom::new(seed ^ (thread + 2));
                    for _ in 0..200 {
                        let op = machine.operation();
                        let (from, to) = (pick(&random, 4) as usize, pick(&random, 4) as usize);
                        if pick(&random, 3) == 0 {
                            let guard = storage.locked(&op, "c");
                            let mut unit = storage.begin_write(&op);
                            let old = unit.lock_record(&guard, &ids[to]).unwrap().unwrap();
                            let old = RawDocument::from_bytes(old.as_ref()).unwrap();
                            let n = old.get_i32("n").unwrap() + 1;
                            unit.update(&guard, &ids[to], old, &rawdoc! { "_id": to as i32, "n": n })
                                .unwrap();
                            unit.commit().unwrap();
                            given.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                        let mut transaction = storage.begin_transaction().unwrap();
                        let sum: i32 = numbers(&transaction.view(), storage).iter().sum();
                        let moved = set(&mut transaction, storage, &op, ids[from].clone(), |n| n - 1)
                            .and_then(|_| set(&mut transaction, storage, &op, ids[to].clone(), |n| n + 1));
                        match moved {
                            Ok(_) => {
                                assert_eq!(numbers(&transaction.view(), storage).iter().sum::<i32>(), sum);
                                transaction.commit(&op).unwrap();
                            }
                            Err(StorageError::WriteConflict) => {
                                conflicts.fetch_add(1, Ordering::SeqCst);
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
            present.fetch_sub(1, Ordering::SeqCst);
        });
        let sum: i32 = numbers(&storage.read().unwrap(), &storage).iter().sum();
        assert_eq!(sum as u64, given.into_inner(), "decides_alone: {decides_alone}");
        assert!(conflicts.into_inner() > 0, "nobody met: the test shows nothing");
        assert_eq!(storage.stats().locks_held, 0);
        if decides_alone {
            assert_eq!(storage.locks.remembered(), 0);
        }
        storage.assert_valid(&machine.operation(), "c");
    }
}

const TABLE: TableId = TableId(40);

fn key(n: u64) -> Vec<u8> {
    format!("{n:04}").into_bytes()
}

/// What a snapshot with changes on it answers is what a map with the same changes does.
#[test]
fn a_merged_cursor_reads_as_if_the_changes_were_applied() {
    let seed = seed_of("TENON_TRANSACTION_SEED");
    for round in 0..60 {
        let random = SeededRandom::new(seed.wrapping_add(round));
        let machine = Machine::new(1);
        let storage = machine.open().unwrap();
        let engine: &Arc<dyn Engine> = storage.engine();
        let mut model = BTreeMap::new();
        let mut batch = Batch::new();
        batch.create_table(
            TABLE,
            TableSpec {
                kind: TableKind::Records,
                name: "t".to_owned(),
                compressor: None,
            },
        );
        let keys = 1 + pick(&random, 200);
        for _ in 0..pick(&random, 300) {
            let n = pick(&random, keys);
            batch.put(TABLE, key(n), format!("base {n}").into_bytes());
            model.insert(key(n), format!("base {n}").into_bytes());
        }
        let seq = storage.log().last_seq().next();
        engine.apply(&batch, seq).unwrap();
        engine.publish(seq);
        let (mut changes, mut rows) = (Batch::new(), ChangedRows::default());
        for part in 0..3 {
            for _ in 0..pick(&random, 80) {
                let n = pick(&random, keys);
                if pick(&random, 3) == 0 {
                    changes.delete(TABLE, key(n));
                    model.remove(&key(n));
                } else {
                    changes.put(TABLE, key(n), format!("own {part} {n}").into_bytes());
                    model.insert(key(n), format!("own {part} {n}").into_bytes());
                }
            }
            let view = Arc::new(OverlaySnapshot::new(engine.snapshot().unwrap(), rows.of(&changes)));
            for n in 0..keys {
                let found = view.get(TABLE, &key(n)).unwrap();
                assert_eq!(found.as_deref(), model.get(&key(n)).map(Vec::as_slice), "key {n}");
            }
            for _ in 0..12 {
                compare(&random, &view, &model, keys);
            }
        }
    }
}

fn bound(random: &SeededRandom, keys: u64) -> Bound<Vec<u8>> {
    match pick(random, 3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(pick(random, keys))),
        _ => Bound::Excluded(key(pick(random, keys))),
    }
}

fn compare(random: &SeededRandom, view: &Arc<OverlaySnapshot>, model: &BTreeMap<Vec<u8>, Vec<u8>>, keys: u64) {
    let range = KeyRange {
        start: bound(random, keys),
        end: bound(random, keys),
    };
    let is_reverse = pick(random, 2) == 0;
    let direction = if is_reverse {
        Direction::Reverse
    } else {
        Direction::Forward
    };
    let contains = |key: &Vec<u8>| {
        let above = match &range.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        let below = match &range.end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
        };
        above && below
    };
    let mut expected: Vec<_> = model.iter().filter(|(key, _)| contains(key)).collect();
    if is_reverse {
        expected.reverse();
    }
    let mut cursor = view.clone().cursor(TABLE, range.clone(), direction).unwrap();
    let mut rows = Rows::new();
    let limits = FillLimits {
        rows_max: 1 + pick(random, 9) as usize,
        bytes_max: 1 + pick(random, 200) as usize,
    };
    if pick(random, 2) == 0 {
        // Anywhere, after some rows or none.
        for _ in 0..pick(random, 3) {
            cursor.fill(&mut rows, limits).unwrap();
        }
        let to = key(pick(random, keys));
        cursor.seek(&to).unwrap();
        expected.retain(|(key, _)| if is_reverse { **key <= to } else { **key >= to });
    }
    let mut found = Vec::new();
    while cursor.fill(&mut rows, limits).unwrap() {
        assert!(!rows.is_empty() && rows.len() <= limits.rows_max);
        found.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), Bytes::copy_from_slice(rows.value(row)))));
    }
    assert!(rows.is_empty(), "nothing is left");
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(k, v)| (k.clone(), Bytes::copy_from_slice(v)))
        .collect();
    assert_eq!(found, expected, "{range:?} {direction:?}");
}

/// A statement of many documents works in several units. When one of them fails and others are in, it takes all of them
/// back, what a view has shown in between included, and nothing of the statements before.
#[test]
fn a_statement_of_several_units_is_kept_or_taken_back_as_a_whole() {
    let machine = Machine::new(1);
    let (storage, ids) = three(&machine);
    let op = machine.operation();
    let mut transaction = storage.begin_transaction().unwrap();
    insert(&mut transaction, &storage, &op, &rawdoc! { "_id": 3, "n": 3 }).unwrap();
    for is_kept in [false, true] {
        let guard = storage.locked(&op, "c");
        let mut statement = transaction.statement();
        for first in [100, 200] {
            let mut unit = statement.unit(&op);
            for n in first..first + 20 {
                unit.insert(&guard, &rawdoc! { "_id": n, "n": n }).unwrap();
            }
            unit.commit().unwrap();
        }
        let mut unit = statement.unit(&op);
        let old = unit.lock_record(&guard, &ids[0]).unwrap().unwrap();
        unit.delete(&guard, &ids[0], RawDocument::from_bytes(old.as_ref()).unwrap())
            .unwrap();
        unit.commit().unwrap();
        assert_eq!(numbers(&statement.view(), &storage).len(), 43);
        let mut unit = statement.unit(&op);
        unit.insert(&guard, &rawdoc! { "_id": 300, "n": 300 }).unwrap();
        let failed = unit.insert(&guard, &rawdoc! { "_id": 301, "n": 110 });
        assert!(matches!(failed, Err(StorageError::DuplicateKey(_))), "{failed:?}");
        drop(unit);
        if is_kept {
            statement.keep();
        } else {
            drop(statement);
            assert_eq!(numbers(&transaction.view(), &storage), [0, 1, 2, 3]);
        }
    }
    assert_eq!(numbers(&transaction.view(), &storage).len(), 43);
    transaction.commit(&op).unwrap();
    storage.assert_valid(&op, "c");
    let before = storage.all("c");
    assert_eq!(before.len(), 43);
    storage.log().flush().unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    assert_eq!(machine.open().unwrap().all("c"), before, "the entry says the same");
}

#[test]
fn names_are_what_they_were_when_the_transaction_began() {
    use LockMode::{IntentExclusive as Write, IntentShared as Read};
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    for name in ["dropped", "replaced", "renamed", "kept"] {
        storage.make(&op, name, rawdoc! {});
        storage.put(&op, name, rawdoc! { "_id": name, "n": 1 }).unwrap();
    }
    let begin = || (storage.begin_transaction().unwrap(), storage.read_pinned().unwrap());
    let (mut unchanged, pinned) = begin();
    assert!(unchanged.collection(&op, &ns("gone"), Write).unwrap().is_none());
    drop(unchanged);
    let (mut reading, _) = begin();
    let (mut writing, _) = begin();
    for name in ["dropped", "replaced"] {
        storage.drop_collection(&op, &ns(name)).unwrap();
    }
    storage.make(&op, "replaced", rawdoc! {});
    storage.make(&op, "new", rawdoc! {});
    storage.put(&op, "new", rawdoc! { "_id": 1, "n": 1 }).unwrap();
    storage
        .rename_collection(&op, &ns("renamed"), &ns("moved"), false)
        .unwrap();
    for name in ["dropped", "replaced", "renamed", "moved"] {
        let read = reading.collection(&op, &ns(name), Read);
        assert!(matches!(read, Err(StorageError::SnapshotUnavailable(_))), "{name}");
        let now = storage.collection(&op, &ns(name), Read).unwrap();
        let read = pinned.readable(storage.catalog(), &ns(name), now);
        assert!(matches!(read, Err(StorageError::SnapshotUnavailable(_))), "{name}");
        let written = writing.collection(&op, &ns(name), Write);
        assert!(matches!(written, Err(StorageError::WriteConflict)), "{name}");
    }
    let written = writing.collection(&op, &ns("new"), Write);
    assert!(matches!(written, Err(StorageError::WriteConflict)));
    // It came later, and nobody had its name: there is nothing in it.
    let new = reading.collection(&op, &ns("new"), Read).unwrap().unwrap();
    assert!(reading.view().record(&new, &RecordId::Number(1)).unwrap().is_none());
    assert!(reading.collection(&op, &ns("gone"), Read).unwrap().is_none());
    assert!(writing.collection(&op, &ns("gone"), Write).unwrap().is_none());
    assert!(writing.collection(&op, &ns("kept"), Write).unwrap().is_some());
    drop((reading, writing, new));
    let (mut newer, pinned) = begin();
    for name in ["replaced", "moved", "new", "dropped"] {
        let now = newer.collection(&op, &ns(name), Write).unwrap();
        assert_eq!(now.is_some(), name != "dropped", "{name}");
        assert!(pinned.readable(storage.catalog(), &ns(name), now).is_ok());
    }
}
