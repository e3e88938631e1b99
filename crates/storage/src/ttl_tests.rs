//! TTL passes on the simulated clock.

#![allow(clippy::unwrap_used)]

use crate::testing::{Calls, Machine, index, ns};
use bson::{Bson, DateTime, doc, rawdoc};
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
