//! TTL passes on the simulated clock.

#![allow(clippy::unwrap_used)]

use crate::RecordId;
use crate::testing::{Calls, Machine, index, ns};
use bson::{Bson, DateTime, doc, rawdoc};
use engine::{Batch, Seq};
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vfs::Clock;

#[test]
fn expired_dates_go_and_everything_else_stays() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    for (name, key) in [("up", rawdoc! { "t": 1 }), ("down", rawdoc! { "t": -1 })] {
        storage
            .create_indexes(&op, &ns(name), &[index("t", key, rawdoc! { "expireAfterSeconds": 60 })])
            .unwrap();
    }
    let now = machine.clock.now_ms();
    let at = |seconds: i64| Bson::DateTime(DateTime::from_millis(now + seconds * 1000));
    let values = [
        at(-3600),
        at(-60),
        at(-59),
        at(3600),
        Bson::Array(vec![at(0), at(-100)]),
        Bson::Array(vec![at(0), Bson::Int32(5)]),
        Bson::Int32(1),
        Bson::Null,
        Bson::String("2001".to_owned()),
        Bson::Timestamp(bson::Timestamp { time: 1, increment: 1 }),
    ];
    for (id, value) in values.into_iter().enumerate() {
        for name in ["up", "down"] {
            let document = doc! { "_id": id as i32, "t": value.clone() };
            storage
                .put(&op, name, bson::RawDocumentBuf::try_from(&document).unwrap())
                .unwrap();
        }
    }
    let left = |name| {
        storage
            .all(name)
            .into_iter()
            .map(|(_, d)| d.get_i32("_id").unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(storage.run_ttl_pass().unwrap(), 6);
    assert_eq!(
        (left("up"), left("down")),
        (vec![2, 3, 5, 6, 7, 8, 9], vec![2, 3, 5, 6, 7, 8, 9])
    );
    assert_eq!(storage.run_ttl_pass().unwrap(), 0);
    machine.clock.advance(Duration::from_secs(60));
    assert_eq!(storage.run_ttl_pass().unwrap(), 4);
    assert_eq!(left("up"), [3, 6, 7, 8, 9]);
    assert_eq!((storage.stats().ttl_passes, storage.stats().ttl_deleted), (3, 10));
    storage.assert_valid(&op, "up");
}

#[test]
fn many_go_in_small_units() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 0 });
    storage.create_indexes(&op, &ns("c"), &[spec]).unwrap();
    let now = machine.clock.now_ms();
    for id in 0..300 {
        storage
            .put(&op, "c", rawdoc! { "_id": id, "t": DateTime::from_millis(now - 1) })
            .unwrap();
    }
    let before = storage.last_seq().0;
    assert_eq!(storage.run_ttl_pass().unwrap(), 300);
    assert_eq!(storage.last_seq().0 - before, 5, "300 documents, 64 at a time");
    assert!(storage.all("c").is_empty());
}

/// A pass waited for a majority behind each unit: between servers far apart it fell behind what expires.
#[test]
fn units_wait_together_where_others_decide() {
    let machine = Machine::new(1);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    let decided = Seq(storage.last_seq().0 + 1_000);
    storage.commit_to(decided).unwrap();
    let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 0 });
    storage.create_indexes(&op, &ns("c"), &[spec]).unwrap();
    let expired = DateTime::from_millis(machine.clock.now_ms() - 1);
    // What is decided is used up.
    let mut id = 0_i64;
    while storage.last_seq() < decided {
        storage.put(&op, "c", rawdoc! { "_id": id, "t": expired }).unwrap();
        id += 1;
    }
    std::thread::scope(|scope| {
        let pass = scope.spawn(|| storage.run_ttl_pass());
        while storage.log().last_seq().0 < decided.0 + 8 {
            std::thread::yield_now();
        }
        assert_eq!(storage.last_seq(), decided, "nothing of it was decided");
        while !pass.is_finished() {
            storage.commit_to(storage.log().last_seq()).unwrap();
        }
        assert_eq!(pass.join().unwrap().unwrap(), id as u64);
    });
    assert!(storage.all("c").is_empty());
    storage.assert_valid(&op, "c");
}

/// Each pass would end at the same record, and nothing behind it would ever go.
#[test]
fn what_cannot_be_read_stays_and_the_pass_goes_on() {
    let machine = Machine::new(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = told.clone();
    let storage = machine.open_with(|options| {
        options.on_ttl_failure = Some(Arc::new(move |namespace, error| {
            teller.lock().unwrap().push(format!("{namespace}: {error}"));
        }));
    });
    let (storage, op) = (storage.unwrap(), machine.operation());
    let now = machine.clock.now_ms();
    let mut damaged = Vec::new();
    for name in ["a", "b"] {
        let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 0 });
        storage.create_indexes(&op, &ns(name), &[spec]).unwrap();
        for id in 0..300_i64 {
            let document = rawdoc! { "_id": id, "t": DateTime::from_millis(now - 1000 + id) };
            let record = storage.put(&op, name, document).unwrap();
            // More than the first step looks at.
            if name == "a" && id < 100 {
                damaged.push(record);
            }
        }
    }
    let table = storage.catalog().collection(&ns("a")).unwrap().table();
    let mut batch = Batch::new();
    for record in &damaged {
        batch.put(table, record.to_key().to_vec(), b"\x05\0\0\0\x01".to_vec());
    }
    let seq = storage.log.append(&[b"damage"]).unwrap();
    storage.engine().apply(&batch, seq).unwrap();
    storage.engine().publish(seq);
    for pass in 1..3 {
        assert_eq!(storage.run_ttl_pass().unwrap(), if pass == 1 { 500 } else { 0 });
        let stats = storage.stats();
        assert_eq!(
            (stats.ttl_passes, stats.ttl_deleted, stats.ttl_failures),
            (pass, 500, 100 * pass)
        );
    }
    let told = told.lock().unwrap();
    assert!(
        told.len() == 200 && told.iter().all(|told| told.starts_with("test.a")),
        "{:?}",
        told[0]
    );
    assert!(storage.all("b").is_empty());
}

/// A damaged entry is nowhere: as the last one of a step it sent the next step back to the range's start, for ever
/// where any other entry stayed.
#[test]
fn a_damaged_entry_keeps_no_pass_going() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 0 });
    storage.create_indexes(&op, &ns("c"), &[spec]).unwrap();
    let now = machine.clock.now_ms();
    for id in 0..3 {
        let date = DateTime::from_millis(now - 1_000_000_000);
        storage.put(&op, "c", rawdoc! { "_id": id, "t": date }).unwrap();
    }
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let index = collection
        .access_paths()
        .iter()
        .find(|index| index.name() == "t")
        .unwrap();
    let keys = super::dates(index, now);
    let (Bound::Included(last) | Bound::Excluded(last)) = &keys.end else {
        panic!("dates end");
    };
    // Too short for a record id, and behind all others.
    let mut batch = Batch::new();
    batch.put(index.table(), last[..7].to_vec(), b"\0".to_vec());
    let seq = storage.log.append(&[b"damage"]).unwrap();
    storage.engine().apply(&batch, seq).unwrap();
    storage.engine().publish(seq);
    let mut position = None;
    let first = storage.expired_records(index, &keys, &mut position).unwrap();
    assert_eq!(first.map(|ids| ids.len()), Some(4));
    assert_eq!(storage.expired_records(index, &keys, &mut position).unwrap(), None);
    assert_eq!(storage.run_ttl_pass().unwrap(), 3);
    assert!(storage.all("c").is_empty());
    assert_eq!(storage.run_ttl_pass().unwrap(), 0);
}

/// A transaction that had changed one expired document kept all others, of all collections, from going.
#[test]
fn what_is_locked_is_left_to_the_next_pass() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let expired = DateTime::from_millis(machine.clock.now_ms() - 1);
    for name in ["a", "b"] {
        let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 0 });
        storage.create_indexes(&op, &ns(name), &[spec]).unwrap();
        for id in 0..100 {
            storage.put(&op, name, rawdoc! { "_id": id, "t": expired }).unwrap();
        }
    }
    let guard = storage.locked(&op, "a");
    let mut unit = storage.begin_write(&op);
    let locked = [RecordId::Number(1), RecordId::Number(50)];
    for id in &locked {
        unit.lock_record(&guard, id).unwrap().unwrap();
    }
    let deleted = std::thread::scope(|scope| {
        let pass = scope.spawn(|| storage.run_ttl_pass());
        while !pass.is_finished() {
            machine.clock.advance(Duration::from_millis(100));
            std::thread::yield_now();
        }
        pass.join().unwrap().unwrap()
    });
    assert_eq!((deleted, storage.stats().ttl_passes), (198, 1));
    drop((unit, guard));
    assert_eq!(storage.run_ttl_pass().unwrap(), 2);
    storage.assert_valid(&op, "a");
}

/// What TTL takes out of the middle of a capped collection leaves room; eviction goes on in the order of insertion.
#[test]
fn documents_of_a_capped_collection_expire() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! { "capped": true, "size": 1_000_000, "max": 4 });
    let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 60 });
    storage.create_indexes(&op, &ns("c"), &[spec]).unwrap();
    let now = machine.clock.now_ms();
    let put = |id: i32, seconds: i64| {
        let time = DateTime::from_millis(now + seconds * 1000);
        storage.put(&op, "c", rawdoc! { "_id": id, "t": time }).unwrap();
    };
    let left = || {
        let all = storage.all("c").into_iter();
        all.map(|(_, document)| document.get_i32("_id").unwrap())
            .collect::<Vec<_>>()
    };
    for (id, seconds) in [(0, 0), (1, -100), (2, 0), (3, -100)] {
        put(id, seconds);
    }
    assert_eq!(storage.run_ttl_pass().unwrap(), 2);
    assert_eq!(left(), [0, 2]);
    (4..6).for_each(|id| put(id, 0));
    assert_eq!(left(), [0, 2, 4, 5], "there was room for two");
    (6..8).for_each(|id| put(id, 0));
    assert_eq!(left(), [4, 5, 6, 7]);
    machine.clock.advance(Duration::from_secs(120));
    assert_eq!(storage.run_ttl_pass().unwrap(), 4);
    put(8, 1000);
    assert_eq!(left(), [8]);
    storage.assert_valid(&op, "c");
}

/// Each step began at the range's start, and passed over all that the ones before it had deleted: the more a pass
/// deleted, the slower it was.
#[test]
fn a_step_goes_on_behind_the_one_before() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let now = machine.clock.now_ms();
    for (name, key) in [
        ("up", rawdoc! { "t": 1 }),
        ("down", rawdoc! { "t": -1 }),
        ("one", rawdoc! { "t": 1, "_id": 1 }),
    ] {
        storage
            .create_indexes(&op, &ns(name), &[index("t", key, rawdoc! {})])
            .unwrap();
        let count = 2 * crate::limits::TTL_STEP_DOCUMENTS + 100;
        for id in 0..count as i64 {
            // The first 700 have one key.
            let date = DateTime::from_millis(now - 1_000_000 + (id - 700).max(0));
            storage.put(&op, name, rawdoc! { "_id": id, "t": date }).unwrap();
        }
        let collection = storage.catalog().collection(&ns(name)).unwrap();
        let index = collection
            .access_paths()
            .iter()
            .find(|index| index.name() == "t")
            .unwrap();
        let (keys, mut position) = (super::dates(index, now), None);
        let mut steps = Vec::new();
        while let Some(ids) = storage.expired_records(index, &keys, &mut position).unwrap() {
            steps.push(ids);
        }
        let sizes: Vec<usize> = steps.iter().map(Vec::len).collect();
        assert_eq!(sizes.iter().sum::<usize>(), count, "{name}: each once, {sizes:?}");
        assert!(steps.len() <= 4, "{name}: {sizes:?}");
        let all: std::collections::BTreeSet<RecordId> = steps.into_iter().flatten().collect();
        assert_eq!(all.len(), count, "{name}");
    }
}

/// An entry that carries a long document fills a step by itself: where such a document stayed, so did all behind it.
#[test]
fn a_long_entry_that_stays_is_passed() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let spec = index("t", rawdoc! { "t": 1 }, rawdoc! { "clustering": true });
    storage.create_indexes(&op, &ns("c"), &[spec]).unwrap();
    let now = machine.clock.now_ms();
    let (date, text) = (DateTime::from_millis(now - 1_000_000), "x".repeat(2 << 20));
    for id in 0..3 {
        let document = rawdoc! { "_id": id, "t": date, "x": text.as_str() };
        storage.put(&op, "c", document).unwrap();
    }
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let index = collection
        .access_paths()
        .iter()
        .find(|index| index.name() == "t")
        .unwrap();
    let (keys, mut position) = (super::dates(index, now), None);
    let mut found = 0;
    while let Some(ids) = storage.expired_records(index, &keys, &mut position).unwrap() {
        found += ids.len();
    }
    assert_eq!(found, 3);
}
