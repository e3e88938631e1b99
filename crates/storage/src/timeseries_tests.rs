//! Time-series collections: the view and its buckets are one thing, and what that means for sessions and TTL.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{Calls, Machine, ns};
use crate::{DropReport, SessionKey, Storage};
use bson::oid::ObjectId;
use bson::{DateTime, rawdoc};
use std::sync::Arc;
use vfs::Clock;

fn view(namespace: &Namespace) -> TimeseriesView<'_> {
    TimeseriesView {
        namespace,
        pipeline: RawArrayBuf::from_iter([rawdoc! { "$unpack": {} }]),
        options: rawdoc! {},
    }
}

fn make(storage: &Storage, op: &Operation, options: &RawDocument) -> Result<(), StorageError> {
    let x = ns("x");
    let new = NewTimeseries {
        view: view(&x),
        bucket_options: options,
        index: Some(IndexSpec::from_document(&rawdoc! { "v": 2, "key": { "meta": 1 }, "name": "m" }).unwrap()),
    };
    storage.create_timeseries(op, &new)
}

fn bucket(begin_ms: i64, unique: u8) -> RawDocumentBuf {
    let mut id = [unique; 12];
    let seconds = u32::try_from(begin_ms.div_euclid(1000).max(0)).unwrap_or(u32::MAX);
    id[..4].copy_from_slice(&seconds.to_be_bytes());
    let begin = DateTime::from_millis(begin_ms);
    rawdoc! { "_id": ObjectId::from_bytes(id), "begin": begin, "control": { "max": { "t": begin } } }
}

#[test]
fn a_view_and_its_buckets_come_and_go_together() {
    let machine = Machine::new(1);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    let options = rawdoc! { "timeseries": { "timeField": "t" } };
    make(&storage, &op, &options).unwrap();
    assert!(matches!(
        make(&storage, &op, &options),
        Err(StorageError::NamespaceExists(_))
    ));
    for reopened in [false, true] {
        if reopened {
            storage.close(true).unwrap();
            storage = machine.open().unwrap();
        }
        let buckets = storage.catalog().buckets(&ns("x")).unwrap();
        assert_eq!(buckets.namespace(), &ns("system.buckets.x"));
        assert_eq!(buckets.timeseries().unwrap().time_field, "t");
        assert_eq!(buckets.indexes().len(), 2);
    }
    let change = CollectionChange {
        set_options: rawdoc! { "timeseries": { "timeField": "t", "granularity": "hours" } },
        ..CollectionChange::default()
    };
    let pipeline = RawArrayBuf::from_iter([rawdoc! { "$unpack": 1 }]);
    storage
        .modify_timeseries(&op, &ns("x"), Some(pipeline.clone()), &change)
        .unwrap();
    let buckets = storage.catalog().buckets(&ns("x")).unwrap();
    assert_eq!(buckets.timeseries().unwrap().span_seconds, 2_592_000);
    assert_eq!(storage.catalog().view(&ns("x")).unwrap().pipeline(), &*pipeline);
    let dropped = storage.drop_collection(&op, &ns("x")).unwrap();
    let report = DropReport {
        n_indexes_was: 1,
        was_view: false,
    };
    assert_eq!(dropped, Some(report));
    assert!(!storage.catalog().database_exists("test"));
}

/// The view was made by a second change, and not at all where there had been one: buckets stayed behind that nobody
/// could see or drop.
#[test]
fn buckets_that_replace_others_have_a_view() {
    let machine = Machine::new(1);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    let options = rawdoc! { "timeseries": { "timeField": "t" } };
    for there in [true, false] {
        if there {
            make(&storage, &op, &options).unwrap();
            let meta = storage.catalog().buckets(&ns("x")).unwrap().indexes()[1]
                .parsed_spec()
                .clone();
            storage.make(&op, "made", options.clone());
            storage.create_indexes(&op, &ns("made"), &[meta]).unwrap();
        } else {
            storage.drop_collection(&op, &ns("x")).unwrap();
            storage.make(&op, "made", options.clone());
        }
        let uuid = storage.catalog().collection(&ns("made")).unwrap().uuid();
        storage.replace_buckets(&op, &ns("made"), &view(&ns("x"))).unwrap();
        storage.close(true).unwrap();
        storage = machine.open().unwrap();
        assert_eq!(storage.catalog().buckets(&ns("x")).unwrap().uuid(), uuid);
    }
    storage.drop_collection(&op, &ns("x")).unwrap();
    storage.make(&op, "x", rawdoc! {});
    storage.make(&op, "made", options);
    let taken = storage.replace_buckets(&op, &ns("made"), &view(&ns("x")));
    assert!(matches!(taken, Err(StorageError::NamespaceExists(_))), "{taken:?}");
    assert!(storage.catalog().collection(&ns("made")).is_some());
}

/// Inserts of several statements may be one change of one bucket: a retry must know all of them, after a crash, too.
#[test]
fn statements_that_share_a_change_are_all_known() {
    let machine = Machine::new(1);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.keep_sessions().unwrap();
    make(&storage, &op, &rawdoc! { "timeseries": { "timeField": "t" } }).unwrap();
    let key = SessionKey {
        id: [1; 16],
        user: [2; 32],
    };
    {
        let guard = storage.locked(&op, "system.buckets.x");
        let mut unit = storage.begin_write(&op);
        unit.in_session(key, 5);
        unit.statements(&[0, 2, 3]);
        unit.insert(&guard, &bucket(0, 1)).unwrap();
        // What is begun and not carried out is not known.
        unit.statements(&[7, 8]);
        unit.statements(&[1]);
        unit.insert(&guard, &bucket(0, 2)).unwrap();
        unit.commit().unwrap();
    }
    let known = |storage: &Arc<Storage>| -> Vec<i32> {
        let record = storage.session(&key).unwrap();
        let is_known = |n: &i32| storage.statement(&record, &key, *n).unwrap().is_some();
        (0..10).filter(is_known).collect()
    };
    assert_eq!(known(&storage), [0, 1, 2, 3]);
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(storage);
    machine.fs.restart();
    storage = machine.open().unwrap();
    assert_eq!(known(&storage), [0, 1, 2, 3]);
}

#[test]
fn buckets_go_when_all_that_they_may_have_has_expired() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let options = rawdoc! { "timeseries": { "timeField": "t" }, "expireAfterSeconds": 60_i64 };
    make(&storage, &op, &options).unwrap();
    let now = machine.clock.now_ms();
    let expired = now - 3_660_000;
    let begins = [
        i64::MIN,
        -5000,
        expired - 1_000_000,
        expired - 1000,
        expired + 1000,
        now,
        5_000_000_000_000,
    ];
    for (n, begin_ms) in begins.into_iter().enumerate() {
        storage.put(&op, "system.buckets.x", bucket(begin_ms, n as u8)).unwrap();
    }
    assert_eq!(storage.run_ttl_pass().unwrap(), 4);
    let left = storage.all("system.buckets.x");
    let begin = |document: &bson::Document| document.get_datetime("begin").unwrap().timestamp_millis();
    let left: Vec<_> = left.iter().map(|(_, document)| begin(document)).collect();
    assert_eq!(left, begins[4..]);
}

/// Ids of buckets before 1970 have no time of their own: to keep measurements for longer than since then deletes none.
#[test]
fn buckets_before_1970_stay_while_nothing_has_expired() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let longer_than_since_1970 = machine.clock.now_ms() / 1000 + 86_400;
    let options = rawdoc! { "timeseries": { "timeField": "t" }, "expireAfterSeconds": longer_than_since_1970 };
    make(&storage, &op, &options).unwrap();
    for (n, begin_ms) in [-5000, -1_000_000_000, 0].into_iter().enumerate() {
        storage.put(&op, "system.buckets.x", bucket(begin_ms, n as u8)).unwrap();
    }
    assert_eq!(storage.run_ttl_pass().unwrap(), 0);
    assert_eq!(storage.all("system.buckets.x").len(), 3);
}

#[test]
fn a_bucket_with_a_younger_measurement_than_its_id_says_stays() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let options = rawdoc! { "timeseries": { "timeField": "t" }, "expireAfterSeconds": 60_i64 };
    make(&storage, &op, &options).unwrap();
    let now = DateTime::from_millis(machine.clock.now_ms());
    let mut expected = Vec::new();
    // More than one unit of them stay, and those behind them go.
    for n in 0..100_u8 {
        let id = ObjectId::from_bytes([0, 0, 0, 1, n, 0, 0, 0, 0, 0, 0, 0]);
        let young = rawdoc! { "_id": id, "control": { "max": { "t": now } } };
        expected.push(storage.put(&op, "system.buckets.x", young).unwrap());
    }
    storage.put(&op, "system.buckets.x", bucket(5000, 1)).unwrap();
    assert_eq!(storage.run_ttl_pass().unwrap(), 1);
    assert_eq!(storage.all("system.buckets.x").len(), expected.len());
}
