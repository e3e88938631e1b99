//! What `createIndexes` takes and refuses.

use super::{Bench, code, first_batch, succeeded};
use bson::{Document, doc};

#[test]
fn specifications_of_indexes() {
    let bench = Bench::new();
    let index = |spec: Document| doc! { "createIndexes": "c", "indexes": [spec] };
    for option in ["unique", "sparse", "hidden", "background"] {
        let mut spec = doc! { "key": { "_id": 1 }, "name": "_id_" };
        spec.insert(option, true);
        assert_eq!(bench.code(index(spec)), 197, "{option}");
    }
    assert_eq!(bench.code(index(doc! { "key": { "_id": -1 }, "name": "x" })), 2);
    succeeded(bench.run(index(doc! { "key": { "_id": 1 }, "name": "x" })));
    succeeded(bench.run(index(doc! { "key": { "a": 1 }, "name": "a_1" })));
    // Another number is another key, of whatever type it is.
    let twice = succeeded(bench.run(index(doc! { "key": { "a": 2.0 }, "name": "a_2" })));
    assert_eq!(twice.get_i32("numIndexesAfter").ok(), Some(3));
    assert_eq!(bench.code(index(doc! { "key": { "a": 2 }, "name": "a_3" })), 85);
    assert_eq!(bench.code(doc! { "find": "c", "hint": { "a": 3 } }), 2);
    succeeded(bench.run(doc! { "find": "c", "hint": { "a": 2_i64 } }));
    succeeded(bench.run(doc! { "dropIndexes": "c", "index": { "a": 2 } }));
    assert_eq!(
        bench.code(index(doc! { "key": { "a": 1 }, "name": "a_1", "hidden": true })),
        85
    );
    let nested = |depth: usize| (0..depth).fold(doc! { "x": 3 }, |inner, _| doc! { "$and": [inner] });
    let deep = doc! { "key": { "d": 1 }, "name": "d_1", "partialFilterExpression": nested(3) };
    succeeded(bench.run(index(deep)));
    let many: Document = (0..33).map(|field| (format!("f{field}"), 1.into())).collect();
    for (spec, code) in [
        (doc! { "key": { "h": 1 }, "hidden": 1 }, 14),
        (doc! { "key": { "t": 1 }, "expireAfterSeconds": f64::NAN }, 67),
        (doc! { "key": { "t": 1 }, "expireAfterSeconds": "$$NOW" }, 67),
        (doc! { "key": { "h": 1 }, "partialFilterExpression": { "$and": [] } }, 2),
        (
            doc! { "key": { "h": 1 }, "partialFilterExpression": { "$where": "true" } },
            2,
        ),
        (
            doc! { "key": { "h": 1 }, "partialFilterExpression": { "$expr": true } },
            224,
        ),
        (
            doc! { "key": { "h": 1 }, "partialFilterExpression": { "a": { "$mod": [2, 0] } } },
            67,
        ),
        (doc! { "key": { "h": 1 }, "partialFilterExpression": nested(4) }, 67),
        (doc! { "key": { "h": 1 }, "weights": { "d": 1 } }, 67),
        (doc! { "key": { "h": 1 }, "weights": "$**" }, 67),
        (doc! { "key": { "_fts": 1 } }, 67),
        (doc! { "key": { "a.$**": "text" } }, 67),
        (doc! { "key": { "a.$custom": "text" } }, 67),
        (
            doc! { "key": { "h": 1 }, "collation": { "locale": "en", "version": "1" } },
            161,
        ),
        (doc! { "key": { "a": "hashed", "b": "hashed" } }, 31303),
        (doc! { "key": many }, 13103),
        (doc! { "key": { "a": "wildcard" } }, 7_246_202),
        (doc! { "key": { "$**": "wildcard" } }, 67),
        (doc! { "key": { "$**": 1 }, "v": 1 }, 67),
        (doc! { "key": { "$**": 1, "a.$**": 1 } }, 7_246_201),
        (
            doc! { "key": { "$**": 1, "a": 1 }, "wildcardProjection": { "b": 0 } },
            7_246_209,
        ),
        (doc! { "key": { "$**": 1 }, "wildcardProjection": { "b": "x" } }, 51271),
        (doc! { "key": { "a.$**": 1 }, "wildcardProjection": { "b": 1 } }, 9),
        (doc! { "key": { "a": "2d" }, "bits": 0 }, 72),
        (doc! { "key": { "a": "2d" }, "bits": 33 }, 72),
        (doc! { "key": { "a": "2d" }, "min": 5, "max": 5 }, 72),
        (doc! { "key": { "a": "2d" }, "min": f64::NEG_INFINITY }, 72),
        (doc! { "key": { "a": "2d", "b": "2d" } }, 16800),
        (doc! { "key": { "a": 1, "b": "2d" } }, 16801),
        (doc! { "key": { "a": "2dsphere", "b": "2d" } }, 67),
        (doc! { "key": { "a": "2dsphere" }, "2dsphereIndexVersion": "x" }, 14),
        (doc! { "key": { "a": "2d" }, "min": 180 }, 72),
        (doc! { "key": { "h": 1 }, "v": 2.5 }, 67),
        (doc! { "key": { "h": 1 }, "unique": true, "prepareUnique": true }, 67),
        (
            doc! { "key": { "$**": 1 }, "wildcardProjection": { "a": 1, "a.b": 1 } },
            31249,
        ),
        (
            doc! { "key": { "$**": 1 }, "wildcardProjection": { "a.b": 0, "a": 0 } },
            31250,
        ),
        (
            doc! { "key": { "$**": 1 }, "wildcardProjection": { "a": { "b": 1 }, "a.b": 1 } },
            31250,
        ),
    ] {
        let mut spec = spec;
        spec.insert("name", "x");
        assert_eq!(bench.code(index(spec.clone())), code, "{spec}");
    }
    assert_eq!(bench.code(index(doc! { "key": { "h": 1 }, "name": "h\0" })), 67);
    let own = doc! { "createIndexes": "transactions", "indexes": [{ "key": { "h": 1 }, "name": "h" }] };
    assert_eq!(code(&bench.run_on("config", own)), 20);
    let paths = doc! { "a": { "b": 1, "c": 1 }, "ab": 1, "a.d": 1 };
    let paths = doc! { "key": { "$**": 1 }, "name": "paths", "wildcardProjection": paths };
    succeeded(bench.run(index(paths)));
    succeeded(bench.run(doc! { "dropIndexes": "c", "index": "paths" }));
    succeeded(bench.run(index(doc! { "key": { "b": 1 }, "name": "b", "background": true })));
    let reply = succeeded(bench.run(doc! { "listIndexes": "c" }));
    let cursor: Vec<_> = reply.get_document("cursor").unwrap().keys().cloned().collect();
    assert_eq!(cursor, ["id", "ns", "firstBatch"]);
    let last = first_batch(&reply).pop().unwrap();
    assert_eq!(
        last,
        doc! { "v": 2, "key": { "b": 1 }, "name": "b", "background": true }
    );
    let listed = succeeded(bench.run(doc! { "listIndexes": "c", "cursor": { "batchSize": 1 } }));
    let id = listed.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = succeeded(bench.run(doc! { "getMore": id, "collection": "c" }));
    assert_eq!(
        more.get_document("cursor")
            .unwrap()
            .get_array("nextBatch")
            .unwrap()
            .len(),
        3
    );
    for id_index in [
        doc! { "key": { "_id": 1 } },
        doc! { "key": { "_id": 1 }, "name": "_id_", "x": 1 },
    ] {
        let code = bench.code(doc! { "create": "d", "idIndex": id_index });
        assert!([9, 197].contains(&code), "{code}");
    }
    succeeded(bench.run(doc! { "create": "d", "idIndex": { "key": { "_id": 1 }, "name": "_id_", "ns": "test.d" } }));
}

#[test]
fn the_reply_tells_what_was_made() {
    let run = |bench: &Bench, index: &str| {
        let key = doc! { index: 1 };
        bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": key, "name": index }] })
    };
    let made = |created: bool, before: i32| {
        doc! { "numIndexesBefore": before, "numIndexesAfter": before + 1, "createdCollectionAutomatically": created }
    };
    for bench in [Bench::new(), Bench::member(true)] {
        assert_eq!(run(&bench, "a"), made(true, 1));
        assert_eq!(run(&bench, "b"), made(false, 2));
        let existing = doc! { "numIndexesBefore": 3, "numIndexesAfter": 3, "note": "all indexes already exist" };
        assert_eq!(run(&bench, "b"), existing);
        bench.insert("c", &[doc! { "_id": 1 }]);
        let mut built = made(false, 3);
        if bench.server.replica_set().is_some() {
            built.insert("commitQuorum", "votingMembers");
        }
        assert_eq!(run(&bench, "d"), built);
    }
}
