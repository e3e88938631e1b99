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

/// The first bucket, as it is stored.
fn bucket(bench: &Bench, filter: Document) -> Document {
    bench.find("system.buckets.x", filter).remove(0)
}

fn update_many(bench: &Bench, filter: Document, meta: impl Into<Bson>) -> Document {
    let update = doc! { "q": filter, "u": { "$set": { "m": meta.into() } }, "multi": true };
    bench.run(doc! { "update": "x", "updates": [update] })
}

/// An update stored the metaField as the client wrote it. What wrote the bucket next sorted its fields, and with them
/// changed measurements that nobody had asked about.
#[test]
fn a_meta_field_has_its_fields_in_order_after_an_update_too() {
    let bench = made();
    let measurements: Vec<_> = (0..10)
        .map(|n| doc! { "_id": n, "t": at(n.into()), "m": "s" })
        .collect();
    bench.insert("x", &measurements);
    let updated = update_many(&bench, doc! {}, doc! { "b": 1, "a": [{ "d": 1, "c": 2 }] });
    assert_eq!(updated.get_i32("nModified").ok(), Some(10), "{updated}");
    let ordered = doc! { "a": [{ "c": 2, "d": 1 }], "b": 1 };
    let count = || bench.find("x", doc! { "m": ordered.clone() }).len();
    assert_eq!(count(), 10);
    bench.insert(
        "x",
        &[doc! { "_id": 10, "t": at(3), "m": { "b": 1, "a": [{ "d": 1, "c": 2 }] } }],
    );
    assert_eq!((count(), buckets(&bench, doc! {})), (11, Some(1)));
    bench.ok(doc! { "delete": "x", "deletes": [{ "q": { "_id": 4 }, "limit": 1 }] });
    assert_eq!(count(), 10);
    // The same in another order is no change.
    let again = update_many(&bench, doc! {}, doc! { "b": 1, "a": [{ "d": 1, "c": 2 }] });
    assert_eq!(
        (again.get_i32("n").ok(), again.get_i32("nModified").ok()),
        (Some(10), Some(0))
    );
}

#[test]
fn a_bucket_of_others_gets_its_meta_field_in_order() {
    let bench = made();
    bench.insert("x", &[doc! { "_id": 1, "t": at(0), "m": { "a": 1, "b": 2 } }]);
    let mut unordered = bucket(&bench, doc! {});
    bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    unordered.insert("meta", doc! { "b": 2, "a": 1 });
    bench.insert("system.buckets.x", &[unordered]);
    assert_eq!(bench.find("x", doc! { "m": { "a": 1, "b": 2 } }).len(), 1);
    let change = doc! { "q": {}, "u": { "$set": { "meta": { "d": 4, "c": 3 } } } };
    bench.ok(doc! { "update": "system.buckets.x", "updates": [change] });
    assert_eq!(bench.find("x", doc! { "m": { "c": 3, "d": 4 } }).len(), 1);
}

/// Values stand two levels deeper in a bucket than in a measurement, and a bucket that is restored is a document that
/// is inserted.
#[test]
fn a_bucket_of_the_deepest_measurements_can_be_inserted() {
    let bench = made();
    let deep = (1..query::update::DEPTH_MAX).fold(Bson::Int32(1), |inner, _| Bson::Document(doc! { "a": inner }));
    bench.insert("x", &[doc! { "_id": 1, "t": at(0), "m": 1, "v": deep.clone() }]);
    let stored = bucket(&bench, doc! {});
    bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    bench.insert("system.buckets.x", &[stored]);
    assert_eq!(bench.find("x", doc! { "_id": 1 }).len(), 1);
    // A long path is what makes a result be measured.
    let path = format!("m.{}", ["a"; 172].join("."));
    for change in [doc! { "m": {} }, doc! { path: 1 }] {
        let update = doc! { "q": {}, "u": { "$set": change }, "multi": true };
        let updated = bench.run(doc! { "update": "x", "updates": [update] });
        assert_eq!(updated.get_i32("nModified").ok(), Some(1), "{updated}");
    }
    let refused = bench.run(doc! { "insert": "x", "documents": [{ "t": at(0), "v": { "a": deep } }] });
    assert_eq!(write_errors(&refused), [(0, 15)]);
}

#[test]
fn what_reads_no_field_reads_no_other_than_the_meta_field() {
    let bench = made();
    let measurements: Vec<_> = (0..4).map(|n| doc! { "t": at(n), "m": n, "v": n }).collect();
    bench.insert("x", &measurements);
    for (filter, n) in [
        (doc! { "m": { "$in": [] } }, 0),
        (doc! { "$and": [{ "m": 1 }, { "m": { "$in": [] } }] }, 0),
        (doc! { "$or": [{ "m": 1 }, { "m": { "$in": [] } }] }, 1),
        (doc! { "m": { "$nin": [] } }, 4),
    ] {
        let updated = update_many(&bench, filter.clone(), 7);
        assert_eq!(
            (updated.get_i32("n").ok(), write_errors(&updated)),
            (Some(n), vec![]),
            "{filter}: {updated}"
        );
        bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
        bench.insert("x", &measurements);
    }
    let index = doc! { "key": { "v": 1 }, "name": "v", "partialFilterExpression": { "m": { "$in": [] } } };
    bench.ok(doc! { "createIndexes": "x", "indexes": [index] });
    assert_eq!(bench.find("x", doc! { "v": 2 }).len(), 1);
    let of_meta = update_many(&bench, doc! { "$expr": { "$eq": ["$m", 1] } }, 8);
    assert_eq!(write_errors(&of_meta), [(0, 238)]);
    let of_value = update_many(&bench, doc! { "$expr": { "$eq": ["$v", 1] } }, 8);
    assert_eq!(write_errors(&of_value), [(0, 72)]);
}

/// A bucket whose rows are 0, 2 and 1, as a log can leave it that was replayed in part.
#[test]
fn a_bucket_that_is_none_is_told_and_blocks_nothing() {
    let bench = made();
    let measurements: Vec<_> = (0..3).map(|n| doc! { "_id": n, "t": at(n.into()), "m": 1 }).collect();
    bench.insert("x", &measurements);
    let mut broken = bucket(&bench, doc! {});
    let id = broken.get_object_id("_id").expect("an id");
    let times = doc! { "0": at(0), "2": at(2), "1": at(1) };
    broken.insert("data", doc! { "t": times });
    let operation = |op: &str, o: Document| doc! { "op": op, "ns": "test.system.buckets.x", "o": o };
    let operations = [operation("d", doc! { "_id": id }), operation("i", broken)];
    succeeded(bench.admin(doc! { "applyOps": operations.to_vec() }));
    let told = bench.ok(doc! { "validate": "x" });
    assert_eq!(told.get_bool("valid").ok(), Some(false), "{told}");
    let error = told.get_array("errors").expect("errors")[0].as_str().expect("a text");
    assert!(
        error.starts_with("test.system.buckets.x, _id ObjectId(") && error.contains(&id.to_hex()),
        "{error}"
    );
    // Another bucket takes what is inserted.
    bench.insert("x", &[doc! { "_id": 7, "t": at(1), "m": 1 }]);
    assert_eq!(buckets(&bench, doc! {}), Some(2));
    let updated = update_many(&bench, doc! {}, 2);
    assert!(
        updated.get_array("writeErrors").is_ok() && updated.to_string().contains(&id.to_hex()),
        "{updated}"
    );
    bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    assert_eq!(buckets(&bench, doc! {}), Some(0));
    assert_eq!(bench.ok(doc! { "validate": "x" }).get_bool("valid").ok(), Some(true));
}

/// A deletion looks at it like at all others that may have what is looked for.
#[test]
fn a_bucket_that_is_none_keeps_no_others_from_being_deleted() {
    let bench = made();
    let measurements = [1, 9, 3].map(|v| doc! { "_id": v, "t": at(0), "m": 1, "v": v });
    bench.insert("x", &measurements);
    let mut broken = bucket(&bench, doc! {});
    let id = broken.get_object_id("_id").expect("an id");
    broken.insert("data", doc! { "t": { "0": at(0), "2": at(2), "1": at(1) } });
    let operation = |op: &str, o: Document| doc! { "op": op, "ns": "test.system.buckets.x", "o": o };
    let operations = [operation("d", doc! { "_id": id }), operation("i", broken)];
    succeeded(bench.admin(doc! { "applyOps": operations.to_vec() }));
    let delete = |filter: Document| {
        let deleted = bench.run(doc! { "delete": "x", "deletes": [{ "q": filter, "limit": 0 }] });
        (deleted.get_i32("n").ok(), write_errors(&deleted))
    };
    bench.insert("x", &[doc! { "_id": 7, "t": at(1), "m": 1, "v": 5 }]);
    assert_eq!(buckets(&bench, doc! {}), Some(2));
    assert_eq!(delete(doc! { "v": 5 }), (Some(1), vec![]));
    // What stays of it cannot be written.
    bench.insert("x", &[doc! { "_id": 8, "t": at(0), "m": 1, "v": 5 }]);
    assert_eq!(delete(doc! { "t": at(0) }), (Some(1), vec![(0, 2)]));
    assert_eq!(buckets(&bench, doc! {}), Some(1));
    assert_eq!(delete(doc! {}).1, vec![]);
    assert_eq!(buckets(&bench, doc! {}), Some(0));
}

/// Whatever is stored can be dumped and inserted again.
#[test]
fn a_measurement_whose_bucket_would_be_no_document_is_refused() {
    let bench = made();
    let inserted = |text: usize, meta: usize| {
        let measurement = doc! { "_id": 1, "t": at(0), "m": "m".repeat(meta), "v": "v".repeat(text) };
        bench.run(doc! { "insert": "x", "documents": [measurement] })
    };
    let refused = inserted(5_594_900, 1);
    assert_eq!(write_errors(&refused), [(0, 10334)]);
    assert!(
        refused
            .to_string()
            .contains("a measurement of a time-series collection is too large")
    );
    // The metaField is in it once.
    for (text, meta) in [(5_592_000, 1), (1 << 20, 7 << 20)] {
        let reply = inserted(text, meta);
        assert_eq!(reply.get_i32("n").ok(), Some(1), "{reply}");
        let stored = bucket(&bench, doc! {});
        bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
        bench.insert("system.buckets.x", &[stored]);
        bench.ok(doc! { "delete": "x", "deletes": [{ "q": {}, "limit": 0 }] });
    }
}

/// The counter in the `_id`s of buckets comes round, and buckets of one hour may have its next numbers.
#[test]
fn a_bucket_whose_id_is_taken_gets_another_one() {
    // Other tests count on at the same time, and can pass the numbers that are taken.
    assert!((0..20).any(|_| gets_a_random_id()));
}

fn gets_a_random_id() -> bool {
    let bench = made();
    bench.insert("x", &[doc! { "_id": 0, "t": at(0), "m": 0 }]);
    let first = bucket(&bench, doc! {});
    let id = first.get_object_id("_id").expect("an id").bytes();
    let counter = u32::from_be_bytes([0, id[9], id[10], id[11]]);
    let ahead: Vec<_> = (1..=500)
        .map(|n| {
            let mut id = id;
            id[9..].copy_from_slice(&(counter + n).to_be_bytes()[1..]);
            let mut other = first.clone();
            other.insert("_id", bson::oid::ObjectId::from_bytes(id));
            other.insert("meta", format!("ahead {n}"));
            other
        })
        .collect();
    bench.insert("system.buckets.x", &ahead);
    let measurements: Vec<_> = (1..=20).map(|n| doc! { "_id": n, "t": at(0), "m": n }).collect();
    bench.insert("x", &measurements);
    assert_eq!(buckets(&bench, doc! {}), Some(521));
    let is_random = |bucket: &Document| {
        let other = bucket.get_object_id("_id").expect("an id").bytes();
        other[4..9] != id[4..9]
    };
    let made = bench.find("system.buckets.x", doc! { "meta": { "$gte": 1, "$lte": 20 } });
    made.iter().any(is_random)
}
