//! `insert`, `update`, `delete`, `bulkWrite`, `findAndModify`.

use super::{Bench, code, first_batch, succeeded, write_errors};
use crate::invocation::Invocation;
use bson::{Bson, Document, Timestamp, doc};
use query::update::DEPTH_MAX;

fn three() -> Bench {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]);
    bench
}

/// Without its filter a statement would write to everything: `{ delete: 0, multi: true }` emptied the collection.
#[test]
fn bulk_write_needs_a_filter() {
    let bench = three();
    let bulk = |operation: Document| {
        let namespaces = [doc! { "ns": "test.c" }];
        bench.admin(doc! { "bulkWrite": 1, "ops": [operation], "nsInfo": namespaces.to_vec() })
    };
    assert_eq!(code(&bulk(doc! { "delete": 0, "multi": true })), 40414);
    let no_filter = doc! { "update": 0, "multi": true, "updateMods": { "$set": { "x": 1 } } };
    assert_eq!(code(&bulk(no_filter)), 40414);
    assert_eq!(code(&bulk(doc! { "update": 0, "filter": {} })), 40414);
    assert_eq!(code(&bulk(doc! { "update": 0, "filter": {}, "updateMods": 1 })), 9);
    assert_eq!(code(&bulk(doc! { "insert": 0, "filter": {} })), 40415);
    assert_eq!(bench.find("c", doc! { "x": { "$exists": false } }).len(), 3);
    let deleted = succeeded(bulk(doc! { "delete": 0, "filter": { "_id": 2 } }));
    assert_eq!(deleted.get_i32("nDeleted").ok(), Some(1));
}

/// A statement that cannot be read fails the command, and none of the statements before it has run.
#[test]
fn statements_are_read_before_any_runs() {
    let bench = three();
    let good = doc! { "q": { "_id": 1 }, "limit": 1 };
    for bad in [
        doc! { "limit": 1 },
        doc! { "q": {} },
        doc! { "q": {}, "limit": Bson::Null },
        doc! { "q": 1, "limit": 1 },
        doc! { "q": {}, "limit": 2 },
        doc! { "q": {}, "limit": 1, "nonesuch": 1 },
    ] {
        let reply = bench.run(doc! { "delete": "c", "deletes": [good.clone(), bad.clone()] });
        assert!([40414, 40415, 14, 9].contains(&code(&reply)), "{bad}: {reply}");
    }
    let good_change = || doc! { "$set": { "x": 1 } };
    let good = doc! { "q": {}, "u": good_change() };
    for (bad, wanted) in [
        (doc! { "u": {} }, 40414),
        (doc! { "q": {} }, 40414),
        (doc! { "q": {}, "u": [{ "$nonesuch": 1 }] }, 40324),
        (doc! { "q": {}, "u": {}, "multi": 1 }, 14),
        (doc! { "q": {}, "u": 1 }, 9),
        (doc! { "q": {}, "u": [1] }, 14),
        (doc! { "q": {}, "u": good_change(), "arrayFilters": [1] }, 14),
    ] {
        let command = doc! { "update": "c", "updates": [good.clone(), bad.clone()] };
        assert_eq!(bench.code(command), wanted, "{bad}");
    }
    assert_eq!(bench.find("c", doc! { "x": { "$exists": false } }).len(), 3);
}

#[test]
fn errors_of_documents_are_write_errors() {
    let bench = three();
    let reply = bench.run(doc! {
        "update": "c",
        "updates": [{ "q": {}, "u": { "$inc": { "_id": 1 } } }, { "q": { "_id": 1 }, "u": { "$set": { "x": 1 } } }],
        "ordered": false,
    });
    assert_eq!(write_errors(&reply), [(0, 66)]);
    assert_eq!(reply.get_i32("nModified").ok(), Some(1));
}

/// `w: 0` asks for no answer: nothing in it tells how the write went.
#[test]
fn unacknowledged_writes_tell_nothing() {
    let bench = three();
    let concern = doc! { "w": 0 };
    let inserted = bench.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": concern.clone() });
    assert_eq!(inserted, doc! { "n": 0 });
    let updates = [doc! { "q": {}, "u": { "$inc": { "_id": 1 } } }];
    let updated = bench.ok(doc! { "update": "c", "updates": updates.to_vec(), "writeConcern": concern.clone() });
    assert_eq!(updated, doc! { "n": 0, "nModified": 0 });
    let deletes = [doc! { "q": {}, "limit": 0 }];
    let deleted = bench.ok(doc! { "delete": "c", "deletes": deletes.to_vec(), "writeConcern": concern });
    assert_eq!(deleted, doc! { "n": 0 });
    assert!(bench.find("c", doc! {}).is_empty(), "they are carried out all the same");
}

/// Others tell by it whether something was written: a replacement counts as it was sent.
#[test]
fn a_replacement_changes_nothing_where_it_is_the_document() {
    let bench = three();
    bench.insert("r", &[doc! { "_id": 1, "a": 1 }]);
    let replaced = |replacement: Document| {
        let reply = bench.ok(doc! { "update": "r", "updates": [{ "q": { "_id": 1 }, "u": replacement }] });
        assert_eq!(bench.find("r", doc! {}), [doc! { "_id": 1, "a": 1 }]);
        reply.get_i32("nModified").ok()
    };
    assert_eq!(replaced(doc! { "_id": 1, "a": 1 }), Some(0));
    assert_eq!(replaced(doc! { "a": 1 }), Some(1));
    assert_eq!(replaced(doc! { "a": 1, "_id": 1 }), Some(1));
    let set = bench.ok(doc! { "update": "r", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] });
    assert_eq!(set.get_i32("nModified").ok(), Some(0));
}

#[test]
fn empty_timestamps_stay_when_asked_for() {
    let bench = three();
    let empty = Bson::Timestamp(Timestamp { time: 0, increment: 0 });
    let replacement = doc! { "t": empty.clone() };
    let stored = |id: i32| bench.find("c", doc! { "_id": id })[0].get("t").cloned();
    for (id, keep) in [(1, true), (2, false)] {
        bench.ok(doc! {
            "update": "c",
            "updates": [{ "q": { "_id": id }, "u": replacement.clone() }],
            "bypassEmptyTsReplacement": keep,
        });
        assert_eq!(stored(id) == Some(empty.clone()), keep);
    }
    bench.ok(doc! {
        "findAndModify": "c", "query": { "_id": 3 }, "update": replacement.clone(), "bypassEmptyTsReplacement": true,
    });
    assert_eq!(stored(3), Some(empty.clone()));
    let operations = [doc! { "insert": 0, "document": { "_id": 4, "t": empty.clone() } }];
    let namespaces = [doc! { "ns": "test.c" }];
    succeeded(bench.admin(doc! {
        "bulkWrite": 1, "ops": operations.to_vec(), "nsInfo": namespaces.to_vec(), "bypassEmptyTsReplacement": true,
    }));
    assert_eq!(stored(4), Some(empty));
}

#[test]
fn inserts_put_the_id_first_and_fill_in_timestamps() {
    let bench = three();
    let (empty, code) = (
        Timestamp { time: 0, increment: 0 },
        Bson::JavaScriptCode("x".to_owned()),
    );
    let sent = doc! { "l": [1, { "t": empty }], "t": empty, "_id": 9, "c": code.clone(), "n": { "t": empty } };
    bench.insert("c", &[sent, doc! { "a": [] }]);
    let stored = bench.find("c", doc! { "_id": 9 }).remove(0);
    assert!(stored.get_timestamp("t").is_ok_and(|filled| filled != empty));
    let expected = doc! {
        "_id": 9, "l": [1, { "t": empty }], "t": stored.get("t"), "c": code, "n": { "t": empty },
    };
    assert_eq!(stored.to_string(), expected.to_string(), "the order is part of it");
    let made = bench.find("c", doc! { "a": [] }).remove(0);
    assert_eq!(made.keys().collect::<Vec<_>>(), ["_id", "a"]);
    assert!(made.get_object_id("_id").is_ok());
}

fn nested(levels: usize) -> Document {
    (1..levels).fold(Document::new(), |inner, _| doc! { "a": inner })
}

/// What an update stores can be inserted again: one limit of nesting for both.
#[test]
fn updates_nest_as_deep_as_inserts() {
    let bench = three();
    bench.insert("deep", &[nested(DEPTH_MAX)]);
    let too_deep = bench.run(doc! { "insert": "deep", "documents": [nested(DEPTH_MAX + 1)] });
    assert_eq!(write_errors(&too_deep), [(0, 15)]);
    let update = |change: Bson| {
        let reply = bench.run(doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": change }] });
        write_errors(&reply)
    };
    let path = ["a"; DEPTH_MAX - 2].join(".");
    for deepest in [
        doc! { "$set": { path.as_str(): {} } }.into(),
        Bson::Document(nested(DEPTH_MAX)),
        Bson::Array(vec![
            doc! { "$set": { "b": { "$literal": nested(DEPTH_MAX - 1) } } }.into(),
        ]),
        Bson::Array(vec![doc! { "$set": { "b": nested(DEPTH_MAX - 1) } }.into()]),
    ] {
        assert_eq!(update(deepest), []);
    }
    for deeper in [
        doc! { "$set": { format!("{path}.x"): { "y": {} } } }.into(),
        Bson::Document(nested(DEPTH_MAX + 1)),
        Bson::Array(vec![doc! { "$set": { "b": { "$literal": nested(DEPTH_MAX) } } }.into()]),
    ] {
        assert_eq!(update(deeper), [(0, 15)]);
    }
}

/// One command has one time, however long it takes.
#[test]
fn now_is_the_same_for_all_statements_of_a_command() {
    let bench = Bench::new();
    let statements: Vec<Document> = (0..50)
        .map(|id| {
            let stages = vec![Bson::Document(doc! { "$set": { "now": "$$NOW" } })];
            doc! { "q": { "_id": id }, "u": stages, "upsert": true }
        })
        .collect();
    // The simulated clock goes on by itself while other threads advance it.
    let clock = bench.clock.clone();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ticking = std::thread::spawn({
        let stop = stop.clone();
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                clock.advance(std::time::Duration::from_millis(1));
                std::thread::yield_now();
            }
        }
    });
    bench.ok(doc! { "update": "c", "updates": statements });
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    ticking.join().unwrap();
    let times: std::collections::BTreeSet<_> = bench
        .find("c", doc! {})
        .iter()
        .map(|document| document.get_datetime("now").unwrap().timestamp_millis())
        .collect();
    assert_eq!(times.len(), 1);
}

#[test]
fn constants_of_a_pipeline_are_no_expressions() {
    let bench = three();
    let set = |extra: Document| {
        let mut update = doc! { "q": { "_id": 1 }, "u": [{ "$set": { "x": "$$given" } }] };
        update.extend(extra);
        bench.run(doc! { "update": "c", "updates": [update] })
    };
    for given in [Bson::from("$_id"), doc! { "$add": [1, 1] }.into(), 5.into()] {
        succeeded(set(doc! { "c": { "given": given.clone() } }));
        assert_eq!(bench.find("c", doc! { "_id": 1 })[0].get("x"), Some(&given));
    }
    assert_eq!(write_errors(&set(doc! { "c": { "Given": 1 } }))[0].1, 9);
    let no_pipeline = doc! { "q": {}, "u": { "$set": { "x": 1 } }, "c": {} };
    let reply = bench.run(doc! { "update": "c", "updates": [no_pipeline] });
    assert_eq!(write_errors(&reply)[0].1, 51198);
}

#[test]
fn an_upsert_inserts_what_it_is_given() {
    let bench = three();
    let upsert = |id: i32, constants: Document| {
        let update = doc! {
            "q": { "_id": id, "from": "the filter" },
            "u": [{ "$set": { "x": "$$new.x" } }],
            "c": constants,
            "upsert": true,
            "upsertSupplied": true,
        };
        bench.run(doc! { "update": "c", "updates": [update] })
    };
    let new = |id: i32| doc! { "new": { "_id": id, "x": 7, "y": "$x" } };
    succeeded(upsert(9, new(9)));
    assert_eq!(
        bench.find("c", doc! { "_id": 9 }),
        [doc! { "_id": 9, "x": 7, "y": "$x" }]
    );
    assert_eq!(write_errors(&upsert(10, doc! { "new": 1 }))[0].1, 9);
}

#[test]
fn expressions_are_refused_where_no_document_is_there_for_them() {
    let bench = three();
    let filter = || doc! { "$and": [{ "_id": 1 }, { "$expr": { "$eq": ["$_id", 1] } }] };
    let update = |extra: Document| {
        let mut update = doc! { "q": filter(), "u": { "$set": { "x": 1 } } };
        update.extend(extra);
        let reply = bench.run(doc! { "update": "c", "updates": [update] });
        write_errors(&reply).first().map(|error| error.1)
    };
    assert_eq!(
        update(doc! { "upsert": true }),
        Some(224),
        "though there is such a document"
    );
    assert_eq!(update(doc! {}), None);
    let filtered = doc! { "u": { "$set": { "l.$[i]": 1 } }, "arrayFilters": [{ "i": 1, "$expr": true }] };
    assert_eq!(update(filtered), Some(224));
    let modify = |extra: Document| {
        let mut command = doc! { "findAndModify": "c", "query": filter() };
        command.extend(extra);
        bench.code(command)
    };
    assert_eq!(modify(doc! { "update": { "$set": { "x": 2 } }, "upsert": true }), 224);
    assert_eq!(modify(doc! { "remove": true, "arrayFilters": [] }), 9);
    let removed = bench.ok(doc! { "findAndModify": "c", "query": filter(), "remove": true });
    assert_eq!(removed.get_document("value").unwrap().get_i32("_id").unwrap(), 1);
}

#[test]
fn an_id_has_no_dollars_but_those_of_a_reference() {
    let bench = Bench::new();
    let reference = || doc! { "$ref": "other", "$id": 1, "$db": "shop" };
    for id in [
        doc! { "$x": 1 },
        doc! { "a": { "$x": 1 } },
        doc! { "a": [1, { "b": { "$x": 1 } }] },
        doc! { "$id": 1, "$ref": "other" },
        doc! { "$ref": 1, "$id": 1 },
        doc! { "a": 1, "$ref": "other", "$id": 1 },
    ] {
        let reply = bench.run(doc! { "insert": "c", "documents": [{ "_id": id.clone() }] });
        assert_eq!(write_errors(&reply), [(0, 52)], "{id}");
    }
    bench.insert(
        "c",
        &[
            doc! { "_id": reference() },
            doc! { "_id": { "a": [reference()], "b.c": 1 } },
        ],
    );
}

/// Writes that are meant for a collection by its UUID go to no other one, and make none.
#[test]
fn writes_to_a_collection_by_its_uuid() {
    let bench = three();
    let listed = super::first_batch(&bench.ok(doc! { "listCollections": 1 }));
    let uuid = listed[0].get_document("info").unwrap().get("uuid").unwrap().clone();
    bench.insert("d", &[doc! { "_id": 1 }]);
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let writes = |collection: &str| {
        let change = doc! { "$set": { "x": 1 } };
        [
            doc! { "insert": collection, "documents": [{ "_id": 4 }] },
            doc! { "update": collection, "updates": [{ "q": { "_id": 1 }, "u": change.clone() }] },
            doc! { "update": collection, "updates": [{ "q": { "_id": 5 }, "u": change, "upsert": true }] },
            doc! { "delete": collection, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
        ]
    };
    let by_uuid = |mut command: Document, uuid: &Bson| {
        command.insert("collectionUUID", uuid.clone());
        command
    };
    for collection in ["d", "none", "v"] {
        for write in writes(collection) {
            let reply = bench.run(by_uuid(write.clone(), &uuid));
            assert_eq!(code(&reply), 361, "{write}");
            assert_eq!(
                (
                    reply.get_str("expectedCollection").ok(),
                    reply.get_str("actualCollection").ok()
                ),
                (Some(collection), Some("c"))
            );
            let elsewhere = bench.run_on("other", by_uuid(write, &uuid));
            assert_eq!(
                (code(&elsewhere), elsewhere.get("actualCollection")),
                (361, Some(&Bson::Null))
            );
        }
    }
    assert_eq!(bench.find("d", doc! {}), [doc! { "_id": 1 }]);
    assert_eq!(bench.ok(doc! { "count": "none" }), doc! { "n": 0 });
    for write in writes("c") {
        assert_eq!(
            bench.ok(by_uuid(write.clone(), &uuid)).get_i32("n").ok(),
            Some(1),
            "{write}"
        );
    }
    let ids: Vec<_> = bench
        .find("c", doc! {})
        .iter()
        .map(|found| found.get_i32("_id").unwrap())
        .collect();
    assert_eq!(ids, [2, 3, 4, 5]);
}

/// In a `bulkWrite` each entry of `nsInfo` may name its collection by a UUID, also two of them the same one.
#[test]
fn bulk_writes_to_collections_by_their_uuids() {
    let bench = three();
    bench.insert("d", &[doc! { "_id": 1 }]);
    let listed = super::first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": "c" } }));
    let uuid = listed[0].get_document("info").unwrap().get("uuid").unwrap().clone();
    let places = [
        doc! { "ns": "test.c", "collectionUUID": uuid.clone() },
        doc! { "ns": "test.d" },
        doc! { "ns": "test.d", "collectionUUID": uuid.clone() },
        doc! { "ns": "test.none", "collectionUUID": uuid.clone() },
        doc! { "ns": "other.c", "collectionUUID": uuid.clone() },
    ];
    let set = doc! { "$set": { "x": 1 } };
    let bulk = |ordered: bool| {
        succeeded(bench.admin(
            doc! { "bulkWrite": 1, "ordered": ordered, "nsInfo": places.to_vec(), "ops": [
                { "insert": 1, "document": { "_id": 2 } },
                { "insert": 2, "document": { "_id": 3 } },
                { "insert": 2, "document": { "_id": 4 } },
                { "update": 2, "filter": { "_id": 1 }, "updateMods": set.clone() },
                { "update": 3, "filter": { "_id": 1 }, "updateMods": set.clone(), "upsert": true },
                { "delete": 2, "filter": { "_id": 1 } },
                { "insert": 4, "document": { "_id": 5 } },
                { "insert": 0, "document": { "_id": 5 } },
                { "update": 0, "filter": { "_id": 1 }, "updateMods": set.clone() },
                { "delete": 0, "filter": { "_id": 2 } },
            ] },
        ))
    };
    let codes = |reply: &Document| -> Vec<_> {
        super::first_batch(reply)
            .iter()
            .map(|result| result.get_i32("code").unwrap_or(0))
            .collect()
    };
    let reply = bulk(false);
    assert_eq!(codes(&reply), [0, 361, 361, 361, 361, 361, 361, 0, 0, 0]);
    let results = super::first_batch(&reply);
    let actual = |place: usize| {
        (
            results[place].get("expectedCollection"),
            results[place].get("actualCollection"),
        )
    };
    assert_eq!(actual(1), (Some(&"d".into()), Some(&"c".into())));
    assert_eq!(actual(6), (Some(&"c".into()), Some(&Bson::Null)));
    assert_eq!(bench.find("d", doc! {}), [doc! { "_id": 1 }, doc! { "_id": 2 }]);
    assert_eq!(bench.ok(doc! { "count": "none" }), doc! { "n": 0 });
    let ids: Vec<_> = bench
        .find("c", doc! {})
        .iter()
        .map(|found| found.get_i32("_id").unwrap())
        .collect();
    assert_eq!(ids, [1, 3, 5]);

    bench.ok(doc! { "delete": "d", "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] });
    assert_eq!(codes(&bulk(true)), [0, 361]);
}

/// Where the filter matched says nothing of the document after the change.
#[test]
fn a_positional_projection_is_of_the_document_before() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1, "a": [1, 2] }]);
    let modify = |new: bool| {
        doc! {
            "findAndModify": "c", "query": { "a": 2 }, "fields": { "a.$": 1 }, "update": { "$set": { "b": 1 } }, "new": new,
        }
    };
    assert_eq!(bench.code(modify(true)), 2);
    let before = bench.ok(modify(false));
    assert_eq!(before.get_document("value").unwrap(), &doc! { "_id": 1, "a": [2] });
}

#[test]
fn constants_are_known_to_the_filter() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1, "a": "old" }, doc! { "_id": 2, "a": "$x" }]);
    let filter = || doc! { "$expr": { "$eq": ["$a", "$$before"] } };
    let change = || vec![doc! { "$set": { "a": "$$after" } }];
    bench.ok(doc! { "update": "c", "updates": [
        { "q": filter(), "u": change(), "c": { "before": "$x", "after": "$y" } },
    ] });
    succeeded(bench.admin(doc! {
        "bulkWrite": 1, "nsInfo": [{ "ns": "test.c" }], "ops": [
            { "update": 0, "filter": filter(), "updateMods": change(), "constants": { "before": "old", "after": "new" } },
        ],
    }));
    assert_eq!(
        bench.find("c", doc! {}),
        [doc! { "_id": 1, "a": "new" }, doc! { "_id": 2, "a": "$y" }]
    );
}

/// An insert that met a view ended the command, and what was written before was not told.
#[test]
fn an_operation_on_a_view_fails_alone() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "view", "viewOn": "c", "pipeline": [] });
    let insert = |namespace: i32| doc! { "insert": namespace, "document": {} };
    let run = |ordered: bool| {
        let operations = [insert(0), insert(1), insert(1), insert(2), insert(0)];
        let reply = succeeded(bench.admin(doc! {
            "bulkWrite": 1, "ordered": ordered, "ops": operations.to_vec(),
            "nsInfo": [{ "ns": "test.c" }, { "ns": "test.view" }, { "ns": "TEST.c" }],
        }));
        let codes: Vec<_> = first_batch(&reply)
            .iter()
            .map(|result| (result.get_i32("idx").unwrap(), result.get_i32("code").unwrap_or(0)))
            .collect();
        (
            codes,
            reply.get_i32("nInserted").unwrap(),
            reply.get_i32("nErrors").unwrap(),
        )
    };
    assert_eq!(run(false), (vec![(0, 0), (1, 166), (2, 166), (3, 13297), (4, 0)], 2, 3));
    assert_eq!(run(true), (vec![(0, 0), (1, 166)], 1, 1));
    assert_eq!(bench.find("c", doc! {}).len(), 3);
    // Names that take no documents are refused as a whole.
    let system = bench.admin(doc! { "bulkWrite": 1, "ops": [insert(0)], "nsInfo": [{ "ns": "test.system.x" }] });
    assert_eq!(code(&system), 73);
}

#[test]
fn a_supplied_document_has_the_id_of_the_filter() {
    let bench = Bench::new();
    let statement = |filter: Document, new: Document| {
        doc! {
            "q": filter, "u": [{ "$set": { "x": 1 } }], "upsert": true, "upsertSupplied": true, "c": { "new": new },
        }
    };
    let run = |statement: Document| bench.ok(doc! { "update": "c", "updates": [statement] });
    run(statement(doc! { "_id": "sd", "y": 1 }, doc! { "sd": true }));
    run(statement(doc! { "_id": 2 }, doc! { "sd": 1, "_id": 2 }));
    assert_eq!(
        bench.find("c", doc! {}),
        [doc! { "_id": 2, "sd": 1 }, doc! { "_id": "sd", "sd": true }]
    );
    let other = run(statement(doc! { "_id": 3 }, doc! { "_id": 4 }));
    assert_eq!(write_errors(&other), [(0, 66)]);
    let mut without = statement(doc! { "_id": 2 }, doc! {});
    without.insert("upsert", false);
    assert_eq!(write_errors(&run(without)), [(0, 9)]);
    let mut without = statement(doc! { "_id": 2 }, doc! {});
    without.remove("c");
    assert_eq!(write_errors(&run(without)), [(0, 9)]);
}

#[test]
fn operations_of_a_bulk_write_are_checked_as_updates_are() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let run = |options: Document| {
        let mut operation = doc! { "update": 0, "filter": {}, "updateMods": { "$set": { "h": 1 } } };
        operation.extend(options);
        bench.admin(doc! { "bulkWrite": 1, "ops": [operation], "nsInfo": [{ "ns": "test.c" }] })
    };
    assert_eq!(code(&run(doc! { "sort": { "_id": -1 }, "multi": true })), 9);
    let constants = succeeded(run(doc! { "constants": {} }));
    assert_eq!(first_batch(&constants)[0].get_i32("code").ok(), Some(51198));
    assert_eq!(bench.find("c", doc! { "h": 1 }), [] as [Document; 0]);
}

/// What was inserted was not told, as the errors of the rest did not fit into a reply.
#[test]
fn however_many_statements_fail_what_was_written_is_told() {
    let bench = Bench::new();
    let long = |id: i32| format!("{id:05}").repeat(400);
    let documents: Vec<_> = (0..12_000).map(|id| doc! { "_id": long(id) }).collect();
    for part in documents.chunks(6_000) {
        bench.insert("c", part);
    }
    let mut again = vec![doc! { "_id": 1 }];
    again.extend(documents);
    let reply = bench.ok(doc! { "insert": "c", "documents": again, "ordered": false });
    assert_eq!(reply.get_i32("n").ok(), Some(1));
    let errors = reply.get_array("writeErrors").unwrap();
    assert_eq!(errors.len(), 12_000);
    let (first, last) = (errors[0].as_document().unwrap(), errors[11_999].as_document().unwrap());
    assert!(first.get_str("errmsg").unwrap().contains("E11000") && first.contains_key("keyValue"));
    assert_eq!(last, &doc! { "index": 12_000, "code": 11000, "errmsg": "" });
}

/// A command whose operations all failed had its results in memory however many they were, and their cursor as well.
#[test]
fn a_bulk_write_ends_where_its_results_have_no_room() {
    let bench = Bench::new();
    let id = "i".repeat(3_000);
    bench.insert("c", &[doc! { "_id": &id }]);
    let insert = |_| doc! { "insert": 0, "document": { "_id": &id } };
    let run = |operations: Vec<Document>| {
        let command = doc! {
            "bulkWrite": 1, "ops": operations, "nsInfo": [{ "ns": "test.c" }], "ordered": false,
            "cursor": { "batchSize": 1 },
        };
        succeeded(bench.admin(command))
    };
    let mut operations: Vec<_> = (0..10_000).map(insert).collect();
    operations.push(doc! { "insert": 0, "document": { "_id": 1 } });
    let before = bench.server.memory().used();
    let reply = run(operations);
    assert_eq!(
        (reply.get_i32("nErrors").ok(), reply.get_i32("nInserted").ok()),
        (Some(8193), Some(0)),
        "what is behind the limit is not tried"
    );
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let kept = bench.server.memory().used() - before;
    assert!(kept > 40_000_000, "{kept} bytes of an open cursor are charged");
    let (mut last, mut is_open) = (None, true);
    while is_open {
        let more = succeeded(bench.admin(doc! { "getMore": cursor, "collection": "$cmd.bulkWrite" }));
        let cursor = more.get_document("cursor").unwrap();
        last = cursor.get_array("nextBatch").unwrap().last().cloned().or(last);
        is_open = cursor.get_i64("id").unwrap() != 0;
    }
    let last = last.as_ref().and_then(Bson::as_document).unwrap();
    assert_eq!(
        (last.get_i32("idx").ok(), last.get_i32("code").ok()),
        (Some(8192), Some(146))
    );
    assert_eq!(bench.server.memory().used(), before);
    assert_eq!(run(vec![insert(0)]).get_i32("nErrors").ok(), Some(1));
}

/// The reply had no room for what was written, or was so large that the connection was closed.
#[test]
fn duplicates_of_large_keys_are_told() {
    let bench = Bench::new();
    let ids = [b'a', b'b'].map(|byte| {
        let bytes = vec![byte; 9 << 20];
        let subtype = bson::spec::BinarySubtype::Generic;
        bson::Binary { subtype, bytes }
    });
    for id in &ids {
        bench.insert("c", &[doc! { "_id": id }]);
    }
    let documents = vec![doc! { "_id": 1 }, doc! { "_id": &ids[0] }, doc! { "_id": &ids[1] }];
    let reply = bench.ok(doc! { "insert": "c", "documents": documents, "ordered": false });
    assert_eq!(reply.get_i32("n").ok(), Some(1));
    assert_eq!(write_errors(&reply), [(1, 11000), (2, 11000)]);
    let modify = doc! {
        "findAndModify": "c", "query": { "_id": 2 }, "update": { "$setOnInsert": { "x": 1 } }, "upsert": true,
    };
    bench.ok(
        doc! { "createIndexes": "c", "indexes": [{ "key": { "x": 1 }, "name": "x", "unique": true, "sparse": true }] },
    );
    bench.ok(doc! { "insert": "c", "documents": [{ "_id": 3, "x": &ids[0] }] });
    let mut large = modify;
    large.insert("update", doc! { "$setOnInsert": { "x": &ids[0] } });
    let refused = bench.run(large);
    assert_eq!(code(&refused), 11000);
    assert_eq!(refused.get_document("keyPattern").unwrap(), &doc! { "x": 1 });
    assert!(!refused.contains_key("keyValue") && refused.get_str("errmsg").unwrap().len() < 100_000);
    // Those of usual length are whole.
    let usual = "u".repeat(2_000);
    bench.insert("c", &[doc! { "_id": &usual }]);
    let reply = bench.ok(doc! { "insert": "c", "documents": [{ "_id": &usual }] });
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert!(error.get_str("errmsg").unwrap().contains(&usual) && error.contains_key("keyValue"));
}

/// An update whose upserts had identifiers of more than a reply holds answered with an error alone, though all was
/// written.
#[test]
fn what_was_upserted_is_told_however_long_its_identifiers_are() {
    let bench = Bench::new();
    let id = |number: i32| format!("{number:02}{}", "z".repeat(1_000_000));
    let upserts: Vec<Document> = (0..20)
        .map(|number| doc! { "q": { "_id": id(number) }, "u": { "$set": { "a": 1 } }, "upsert": true })
        .collect();
    let reply = bench.ok(doc! { "update": "c", "updates": upserts });
    let told = reply.get_array("upserted").unwrap().len() as i32;
    assert!((10..16).contains(&told));
    assert_eq!(write_errors(&reply), [(told, 146)]);
    assert_eq!(
        (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap()),
        (told, 0)
    );
    assert_eq!(bench.ok(doc! { "count": "c" }).get_i32("n").unwrap(), told);
}

/// The last identifier was not counted before it was written, and of an unordered batch all behind it was passed over.
#[test]
fn each_statement_of_an_unordered_update_has_a_result_however_long_identifiers_are() {
    const MB: usize = 1_000_000;
    let upsert = |(number, bytes): (usize, &usize)| {
        let id = format!("{number:02}{}", "z".repeat(*bytes));
        doc! { "q": { "_id": id }, "u": { "$set": { "a": 1 } }, "upsert": true }
    };
    let mut growing = [MB; 14];
    growing[12] = 8 * MB;
    for (lengths, refused) in [(&[9 * MB, 9 * MB, MB][..], 1), (&growing[..], 12)] {
        let bench = Bench::new();
        let upserts: Vec<Document> = lengths.iter().enumerate().map(upsert).collect();
        let reply = bench.ok(doc! { "update": "c", "updates": upserts.clone(), "ordered": false });
        let upserted = reply.get_array("upserted").unwrap();
        let told = upserted
            .iter()
            .map(|entry| entry.as_document().unwrap().get_i32("index").unwrap());
        let others = (0..lengths.len() as i32).filter(|index| *index != refused);
        assert!(told.eq(others));
        assert_eq!(write_errors(&reply), [(refused, 146)]);
        let count = bench.ok(doc! { "count": "c" }).get_i32("n").unwrap();
        assert_eq!(count, lengths.len() as i32 - 1);
        let alone = [upserts[refused as usize].clone()];
        let reply = bench.ok(doc! { "update": "c", "updates": alone.to_vec() });
        assert_eq!(reply.get_array("upserted").unwrap().len(), 1);
    }
}

/// A message of millions of empty documents was taken apart before it was refused.
#[test]
fn of_too_many_documents_none_is_kept() {
    let bench = Bench::new();
    let documents = vec![Document::new(); wire::limits::WRITE_BATCH_MAX + 1];
    let body = bson::RawDocumentBuf::try_from(&doc! { "insert": "c", "documents": documents }).unwrap();
    let (command, _) = bench.server.commands.find("insert").unwrap();
    let call = Invocation::of_server(&bench.server, &bench.client, command, &body, "test");
    let error = call.documents("documents").map(drop).unwrap_err();
    assert_eq!(error.code, wire::ErrorCode::InvalidLength);
    assert!(error.message.contains("Got 100001 operations"), "{}", error.message);
}
