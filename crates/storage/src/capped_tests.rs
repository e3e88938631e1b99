//! Capped collections: limits, order, tailing.

#![allow(clippy::unwrap_used)]

use crate::testing::{Calls, Machine, ns};
use crate::{CollectionChange, Interrupted, RecordId, StorageError};
use bson::rawdoc;
use engine::Seq;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn ids(all: Vec<(RecordId, bson::Document)>) -> Vec<i32> {
    all.into_iter()
        .map(|(_, document)| document.get_i32("_id").unwrap())
        .collect()
}

#[test]
fn the_oldest_go_by_count_and_by_size() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "n", rawdoc! { "capped": true, "size": 1_000_000, "max": 3 });
    storage.make(&op, "s", rawdoc! { "capped": true, "size": 250 });
    assert_eq!(
        storage
            .catalog()
            .collection(&ns("s"))
            .unwrap()
            .is_capped()
            .unwrap()
            .size_bytes,
        250
    );
    let filler = "x".repeat(100 - rawdoc! { "_id": 0, "s": "" }.as_bytes().len());
    for id in 0..10 {
        storage.put(&op, "n", rawdoc! { "_id": id }).unwrap();
        storage.put(&op, "s", rawdoc! { "_id": id, "s": &*filler }).unwrap();
    }
    assert_eq!(ids(storage.all("n")), [7, 8, 9]);
    assert_eq!(ids(storage.all("s")), [8, 9], "two documents of 100 bytes fit into 250");
    let large = "x".repeat(5000);
    storage.put(&op, "s", rawdoc! { "_id": 10, "s": &*large }).unwrap();
    assert_eq!(ids(storage.all("s")), [10], "one that is larger than the cap is alone");
    storage.put(&op, "s", rawdoc! { "_id": 11 }).unwrap();
    assert_eq!(ids(storage.all("s")), [11]);
    storage.assert_valid(&op, "n");
    storage.assert_valid(&op, "s");
}

#[test]
fn one_unit_may_push_out_its_own_documents() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "n", rawdoc! { "capped": true, "size": 1_000_000, "max": 3 });
    storage.put(&op, "n", rawdoc! { "_id": -1 }).unwrap();
    let guard = storage.locked(&op, "n");
    for round in 0..3 {
        let mut unit = storage.begin_write(&op);
        for id in 0..20 {
            unit.insert(&guard, &rawdoc! { "_id": round * 20 + id }).unwrap();
            if id % 5 == 0 {
                // What is refused takes no room.
                unit.insert(&guard, &rawdoc! { "_id": round * 20 + id }).unwrap_err();
            }
        }
        unit.commit().unwrap();
    }
    drop(guard);
    assert_eq!(ids(storage.all("n")), [57, 58, 59]);
    storage.assert_valid(&op, "n");
}

#[test]
fn deletes_and_lower_limits_count_at_the_next_insert() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "n", rawdoc! { "capped": true, "size": 1_000_000, "max": 5 });
    for id in 0..5 {
        storage.put(&op, "n", rawdoc! { "_id": id }).unwrap();
    }
    storage.remove(&op, "n", RecordId::Number(3)).unwrap();
    storage.put(&op, "n", rawdoc! { "_id": 5 }).unwrap();
    assert_eq!(ids(storage.all("n")), [0, 1, 3, 4, 5], "room was left");
    let change = CollectionChange {
        capped_max: Some(2),
        ..CollectionChange::default()
    };
    storage.modify_collection(&op, &ns("n"), &change).unwrap();
    assert_eq!(storage.all("n").len(), 5);
    storage.put(&op, "n", rawdoc! { "_id": 6 }).unwrap();
    assert_eq!(ids(storage.all("n")), [5, 6]);
    storage.assert_valid(&op, "n");
}

/// Each insert waited for a majority with the lock that the next one needed.
#[test]
fn inserts_do_not_wait_for_each_other_to_be_decided() {
    let machine = Machine::new(1);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    storage.commit_to(Seq(storage.last_seq().0 + 5)).unwrap();
    let filler = "x".repeat(100 - rawdoc! { "_id": 0, "s": "" }.as_bytes().len());
    storage.make(&op, "n", rawdoc! { "capped": true, "size": 1_000_000, "max": 3 });
    storage.make(&op, "s", rawdoc! { "capped": true, "size": 250 });
    for id in 0..3 {
        storage.put(&op, "n", rawdoc! { "_id": id }).unwrap();
    }
    let insert = |name: &str, ids: std::ops::Range<i32>| {
        // Whoever would wait for it to be decided is told to end.
        let op = machine.operation();
        let guard = storage.locked(&op, name);
        let mut unit = storage.begin_write(&op);
        for id in ids {
            unit.insert(&guard, &rawdoc! { "_id": id, "s": &*filler }).unwrap();
        }
        op.kill();
        unit.commit_ahead().unwrap();
    };
    for id in (3..30).step_by(3) {
        for name in ["n", "s"] {
            // One alone, and two of which the second may push out the first.
            insert(name, id..id + 1);
            insert(name, id + 1..id + 3);
        }
    }
    // What is deleted meanwhile leaves room for one.
    let guard = storage.locked(&op, "n");
    let mut unit = storage.begin_write(&op);
    let last = RecordId::Number(30);
    let old = unit.lock_record(&guard, &last).unwrap().unwrap();
    let old = bson::RawDocument::from_bytes(old.as_ref()).unwrap();
    assert_eq!(old.get_i32("_id").unwrap(), 29);
    unit.delete(&guard, &last, old).unwrap();
    unit.commit_ahead().unwrap();
    drop(guard);
    insert("n", 30..31);
    assert_eq!(ids(storage.all("n")), [0, 1, 2], "nobody sees what is not decided");
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!(ids(storage.all("n")), [27, 28, 30]);
    assert_eq!(ids(storage.all("s")), [28, 29]);
    storage.commit_to(Seq(storage.last_seq().0 + 1)).unwrap();
    storage.put(&op, "n", rawdoc! { "_id": 31 }).unwrap();
    assert_eq!(ids(storage.all("n")), [28, 30, 31]);
    storage.assert_valid(&op, "n");
    storage.assert_valid(&op, "s");
}

#[test]
fn a_tailer_misses_none() {
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    storage.make(
        &machine.operation(),
        "n",
        rawdoc! { "capped": true, "size": 100_000_000 },
    );
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (storage, machine) = (&storage, &machine);
                scope.spawn(move || {
                    let op = machine.operation();
                    for n in 0..300 {
                        storage.put(&op, "n", rawdoc! { "_id": writer * 1000 + n }).unwrap();
                    }
                })
            })
            .collect();
        let tailer = scope.spawn(|| {
            let op = machine.operation();
            let collection = storage.catalog().collection(&ns("n")).unwrap();
            let (waiter, mut last, mut seen) = (collection.capped_waiter().unwrap(), RecordId::Number(0), 0);
            while seen < 900 && (writing.load(Ordering::SeqCst) || collection.count() > seen) {
                waiter.wait(&op, last.number(), Duration::from_secs(3600)).unwrap();
                let view = storage.read().unwrap();
                let from = std::ops::Bound::Excluded(last.clone());
                let mut cursor = view
                    .records(&collection, from, std::ops::Bound::Unbounded, crate::Direction::Forward)
                    .unwrap();
                let mut batch = crate::RecordBatch::new();
                while cursor.fill(&mut batch, crate::FillLimits::default()).unwrap() {
                    seen += batch.len() as u64;
                    last = batch.id(batch.len() - 1);
                }
            }
            seen
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        writing.store(false, Ordering::SeqCst);
        assert_eq!(tailer.join().unwrap(), 900);
    });
}

#[test]
fn waiting_ends_by_timeout_by_kill_and_by_drop() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "n", rawdoc! { "capped": true, "size": 1000 });
    let id = storage.put(&op, "n", rawdoc! { "_id": 1 }).unwrap();
    let collection = storage.catalog().collection(&ns("n")).unwrap();
    let waiter = collection.capped_waiter().unwrap();
    assert_eq!(waiter.wait(&op, 0, Duration::ZERO), Ok(true));
    assert_eq!(waiter.wait(&op, id.number(), Duration::ZERO), Ok(false));
    let killed = machine.operation();
    killed.kill();
    assert_eq!(
        waiter.wait(&killed, id.number(), Duration::from_secs(9)),
        Err(Interrupted::Killed)
    );
    storage.drop_collection(&op, &ns("n")).unwrap();
    assert_eq!(waiter.wait(&op, id.number(), Duration::from_secs(9)), Ok(false));
    let gone = storage.validate(&op, &ns("n"), false);
    assert!(matches!(gone, Err(StorageError::NamespaceNotFound(_))));
}
