//! Inserts into time-series collections: what is one unit, and which errors are told.

use super::*;
use bson::DateTime;

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn made() -> Bench {
    let bench = Bench::new();
    let made = bench.run(doc! { "create": "x", "timeseries": { "timeField": "t", "metaField": "m" } });
    assert_eq!(made.get_f64("ok").ok(), Some(1.0), "{made}");
    bench
}

/// Inserts, and answers how many units that took.
fn units(bench: &Bench, measurements: impl Iterator<Item = Document>) -> u64 {
    let measurements: Vec<_> = measurements.map(Bson::Document).collect();
    let count = measurements.len() as i32;
    let before = bench.server.storage.last_seq().0;
    let reply = bench.run(doc! { "insert": "x", "documents": measurements });
    assert_eq!(reply.get_i32("n").ok(), Some(count), "{reply}");
    bench.server.storage.last_seq().0 - before
}

fn buckets(bench: &Bench, filter: Document) -> Option<i32> {
    let counted = bench.run(doc! { "count": "system.buckets.x", "query": filter });
    counted.get_i32("n").ok()
}

/// A bucket for each of many hours: a unit has some of them, whichever of them a source has.
#[test]
fn buckets_of_one_source_are_filled_in_few_units() {
    let bench = made();
    let hours = |second: i64| (0..1100).map(move |hour: i64| doc! { "t": at(hour * 3600 + second), "m": 1 });
    assert_eq!(units(&bench, hours(1)), 2, "units of 1024 buckets");
    assert_eq!(buckets(&bench, doc! {}), Some(1100));
    // Of one source four buckets are remembered; of those that are looked for nobody knows how large they are.
    let found = units(&bench, hours(2));
    assert!((3..=1100_u64.div_ceil(32)).contains(&found), "{found} units");
    assert_eq!(buckets(&bench, doc! {}), Some(1100));
}

/// Measurements of many sources in turn: each bucket is written once, by one unit.
#[test]
fn sources_in_turn_are_gathered_by_their_buckets() {
    let bench = made();
    let inserted = |round: i64| {
        let measurement = move |n: i64| doc! { "t": at(round * 10 + n / 100), "m": n * 37 % 100, "v": n };
        units(&bench, (0..1000).map(measurement))
    };
    for round in 0..3 {
        assert_eq!(inserted(round), 1);
    }
    assert_eq!(buckets(&bench, doc! { "data.t.29": { "$exists": true } }), Some(100));
    assert_eq!(buckets(&bench, doc! {}), Some(100));
    // The rest of a bucket, and the next one, which begins with what comes earliest then.
    let one_source = |n: i64| doc! { "t": at((n * 7 % 30) * 60), "m": 0_i64, "v": n };
    assert_eq!(units(&bench, (0..1500).map(one_source)), 1);
    assert_eq!(buckets(&bench, doc! { "meta": 0 }), Some(2));
    assert_eq!(
        buckets(&bench, doc! { "meta": 0, "data.t.999": { "$exists": true } }),
        Some(1)
    );
}

/// Units that want the same buckets in other orders take them in one.
#[test]
fn writers_of_the_same_sources_do_not_begin_again_and_again() {
    let bench = made();
    let conflicts = || bench.server.storage.stats().conflicts;
    units(&bench, (0..50_i64).map(|m| doc! { "t": at(0), "m": m }));
    let before = conflicts();
    std::thread::scope(|scope| {
        for writer in 0..2_i64 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..20 {
                    let of = |n: i64| if writer == 0 { n } else { 49 - n };
                    let measurements = (0..50).map(|n| Bson::Document(doc! { "t": at(round), "m": of(n) }));
                    let reply = bench.run(doc! { "insert": "x", "documents": measurements.collect::<Vec<_>>() });
                    assert_eq!(reply.get_i32("n").ok(), Some(50), "{reply}");
                }
            });
        }
    });
    // One waits for the first bucket of the other at most; it never gives back what it has.
    assert!(conflicts() - before <= 40, "{} conflicts", conflicts() - before);
    assert_eq!(buckets(&bench, doc! { "data.t.40": { "$exists": true } }), Some(50));
}

#[test]
fn an_ordered_insert_tells_its_first_error() {
    let bench = made();
    // The first fails when it is stored, the other when it is looked at.
    let large = doc! { "t": at(0), "v": "x".repeat(7 << 20) };
    let documents = [doc! { "t": at(0) }, large, doc! { "v": 1 }, doc! { "t": at(1) }];
    for (ordered, n, places) in [(true, 1, vec![1]), (false, 2, vec![1, 2])] {
        let reply = bench.run(doc! { "insert": "x", "documents": documents.to_vec(), "ordered": ordered });
        assert_eq!(reply.get_i32("n").ok(), Some(n), "{reply}");
        let errors = reply.get_array("writeErrors").expect("errors");
        let found: Vec<_> = errors
            .iter()
            .map(|error| error.as_document().and_then(|error| error.get_i32("index").ok()))
            .collect();
        assert_eq!(found, places.into_iter().map(Some).collect::<Vec<_>>());
    }
}

#[test]
fn a_field_without_a_name_is_one() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "x", "timeseries": { "timeField": "t", "metaField": "" } });
    bench.insert(
        "x",
        &[
            doc! { "_id": 1, "t": at(0), "": 5, "v": 1 },
            doc! { "_id": 2, "t": at(1), "": 6, "v": 2 },
        ],
    );
    let found = bench.find("x", doc! { "v": 1 });
    assert_eq!(found, [doc! { "_id": 1, "t": at(0), "": 5, "v": 1 }]);
    assert_eq!(bench.find("x", doc! { "": 6 })[0].get_i32("_id").ok(), Some(2));
    bench.ok(doc! { "create": "y", "timeseries": { "timeField": "" } });
    bench.insert("y", &[doc! { "_id": 1, "": at(0), "v": 1 }]);
    assert_eq!(bench.find("y", doc! {}), [doc! { "_id": 1, "": at(0), "v": 1 }]);
}

#[test]
fn closed_buckets_stay_as_they_are() {
    let bench = made();
    bench.insert("x", &[doc! { "t": at(0), "m": 1 }]);
    let close = doc! { "q": {}, "u": { "$set": { "control.closed": true } } };
    bench.ok(doc! { "update": "system.buckets.x", "updates": [close] });
    bench.insert("x", &[doc! { "t": at(0), "m": 2 }]);
    let update = doc! { "q": {}, "u": { "$set": { "m": 3 } }, "multi": true };
    assert_eq!(
        bench.ok(doc! { "update": "x", "updates": [update] }).get_i32("n").ok(),
        Some(1)
    );
    let metas = |found: Vec<Document>| {
        found
            .iter()
            .map(|found| found.get_i32("m").unwrap())
            .collect::<Vec<_>>()
    };
    let mut found = metas(bench.find("x", doc! {}));
    found.sort_unstable();
    assert_eq!(found, [1, 3]);
    let deleted = bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    assert_eq!(deleted.get_i32("n").ok(), Some(1));
    let deleted = bench.ok(doc! { "delete": "x", "deletes": [{ "q": { "m": 1 }, "limit": 0 }] });
    assert_eq!(deleted.get_i32("n").ok(), Some(0));
    assert_eq!(metas(bench.find("x", doc! {})), [1]);
}

#[test]
fn indexes_of_buckets_are_made_on_them() {
    let bench = made();
    let index = |collection: &str, key: Document| {
        doc! { "createIndexes": collection, "indexes": [{ "key": key, "name": "made" }] }
    };
    let names = |collection: &str| {
        let listed = first_batch(&bench.ok(doc! { "listIndexes": collection }));
        listed
            .iter()
            .map(|index| index.get_str("name").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    bench.ok(index(
        "system.buckets.x",
        doc! { "control.min.y": 1, "control.max.y": 1 },
    ));
    assert_eq!(names("x"), ["m_1_t_1", "made"]);
    bench.ok(doc! { "dropIndexes": "system.buckets.x", "index": "made" });
    bench.ok(index("system.buckets.x", doc! { "other": 1 }));
    assert_eq!(names("x"), ["m_1_t_1"]);
    assert!(names("system.buckets.x").contains(&"made".to_owned()));
    assert_eq!(bench.code(index("system.buckets.none", doc! { "a": 1 })), 73);
    // One of measurements.
    bench.ok(doc! { "createIndexes": "x", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] });
    let inserted = bench.run(doc! { "insert": "x", "documents": [{ "t": at(0), "a": [1] }] });
    assert_eq!(write_errors(&inserted), [(0, 5_930_501)]);
    let on_value = doc! { "v": { "$gt": 1 } };
    let expiring =
        doc! { "key": { "t": 1 }, "name": "t", "expireAfterSeconds": 1, "partialFilterExpression": on_value };
    assert_eq!(bench.code(doc! { "createIndexes": "x", "indexes": [expiring] }), 72);
    let near = doc! { "$geoNear": { "near": [0, 0], "key": "m.loc", "distanceField": "far" } };
    assert_eq!(bench.aggregate_code("x", &[near]), 238);
}

/// Of an index by which measurements expire buckets have another key than of others.
#[test]
fn indexes_are_known_by_the_keys_that_are_shown() {
    let bench = made();
    let expiring = doc! {
        "key": { "t": 1 }, "name": "expires", "expireAfterSeconds": 1, "partialFilterExpression": { "m.a": 1 },
    };
    bench.ok(doc! { "createIndexes": "x", "indexes": [expiring, { "key": { "v": -1 }, "name": "v" }] });
    let by_key = |key: Document| doc! { "collMod": "x", "index": { "keyPattern": key, "hidden": true } };
    bench.ok(by_key(doc! { "t": 1 }));
    assert_eq!(bench.code(by_key(doc! { "t": -1 })), 27);
    let hinted = doc! { "find": "x", "filter": { "t": at(0), "m.a": 1 }, "hint": { "t": 1 } };
    assert_eq!(bench.code(hinted), 2, "it is hidden");
    for key in [doc! { "t": 1 }, doc! { "v": -1 }] {
        bench.ok(doc! { "dropIndexes": "x", "index": key.clone() });
        assert_eq!(bench.code(doc! { "dropIndexes": "x", "index": key }), 27);
    }
}

/// Without an index on them all buckets of the time were read for each source.
#[test]
fn buckets_of_a_source_are_looked_for_by_an_index_alone() {
    let bench = made();
    let inserted = |second: i64| {
        bench.insert("x", &[doc! { "t": at(second), "m": 1 }]);
        let collection = bench
            .server
            .storage
            .catalog()
            .buckets(&storage::Namespace::new("test", "x").unwrap());
        bench.server.open_buckets.forget(collection.unwrap().uuid());
        buckets(&bench, doc! {})
    };
    assert_eq!((inserted(0), inserted(1)), (Some(1), Some(1)));
    bench.ok(doc! { "collMod": "x", "index": { "name": "m_1_t_1", "hidden": true } });
    assert_eq!(inserted(2), Some(2));
    bench.ok(doc! { "dropIndexes": "x", "index": "*" });
    bench.ok(doc! { "createIndexes": "x", "indexes": [{ "key": { "m.a": 1, "t": 1 }, "name": "other" }] });
    assert_eq!(inserted(3), Some(3));
    bench.ok(doc! { "createIndexes": "x", "indexes": [{ "key": { "m": 1, "t": -1 }, "name": "newest" }] });
    assert_eq!(inserted(4), Some(3));
}

#[test]
fn operations_are_counted_under_the_name_that_clients_use() {
    let bench = made();
    bench.insert("x", &[doc! { "t": at(0) }]);
    let found = bench.aggregate("x", &[doc! { "$collStats": { "latencyStats": {} } }]);
    let writes = found[0]
        .get_document("latencyStats")
        .unwrap()
        .get_document("writes")
        .unwrap();
    assert_eq!(writes.get_i64("ops").ok(), Some(1));
    bench.ok(doc! { "create": "c" });
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let status = bench.admin(doc! { "serverStatus": 1 });
    let stats = status.get_document("catalogStats").unwrap();
    let count = |name: &str| stats.get_i32(name).unwrap();
    assert_eq!((count("collections"), count("views"), count("timeseries")), (1, 1, 1));
    // No storage is looked at for it.
    let found = bench.aggregate("none", &[doc! { "$collStats": { "latencyStats": {} } }]);
    assert_eq!(found[0].get_str("ns").ok(), Some("test.none"));
    assert_eq!(
        bench.aggregate_code("none", &[doc! { "$collStats": { "count": {} } }]),
        26
    );
}

/// Where one measurement of many was refused each of the others was a unit, and a wait for the majority.
#[test]
fn what_is_refused_leaves_the_others_together() {
    let bench = made();
    let mut measurements: Vec<_> = (0..256).map(|n| doc! { "t": at(n), "m": n as i32, "v": 1 }).collect();
    measurements[100].insert("v", "x".repeat(7 << 20));
    for (ordered, n) in [(false, 255), (true, 100)] {
        let before = bench.server.storage.last_seq().0;
        let reply = bench.run(doc! { "insert": "x", "documents": measurements.clone(), "ordered": ordered });
        assert_eq!(
            (reply.get_i32("n").ok(), write_errors(&reply)[0].0),
            (Some(n), 100),
            "ordered: {ordered}"
        );
        let units = bench.server.storage.last_seq().0 - before;
        assert!(units <= 10, "{units} units");
    }
}
