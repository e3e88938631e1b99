//! `$out` and `$merge`.

use super::{Bench, code, first_batch};
use bson::{Bson, Document, bson, doc};
use storage::Temporary;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.insert(
        "c",
        &[
            doc! { "_id": 1, "a": 5 },
            doc! { "_id": 2, "a": 6 },
            doc! { "_id": 3, "a": 7 },
        ],
    );
    bench
}

fn merge(options: Document) -> Document {
    doc! { "$merge": options }
}

#[test]
fn out_takes_the_place_of_what_was_there() {
    let bench = bench();
    let big = doc! { "$match": { "a": { "$gt": 5 } } };
    assert_eq!(
        bench.aggregate("c", &[big.clone(), doc! { "$out": "d" }]),
        [] as [Document; 0]
    );
    assert_eq!(
        bench.find("d", doc! {}),
        [doc! { "_id": 2, "a": 6 }, doc! { "_id": 3, "a": 7 }]
    );
    bench.ok(doc! { "createIndexes": "d", "indexes": [{ "key": { "a": 1 }, "name": "by_a", "unique": true }] });
    bench.aggregate(
        "c",
        &[doc! { "$limit": 1 }, doc! { "$out": { "db": "test", "coll": "d" } }],
    );
    assert_eq!(bench.find("d", doc! {}), [doc! { "_id": 1, "a": 5 }]);
    let indexes = super::first_batch(&bench.ok(doc! { "listIndexes": "d" }));
    assert!(
        indexes.iter().any(|index| index.get_str("name").unwrap() == "by_a"),
        "{indexes:?}"
    );
    // What fails leaves everything as it was, and nothing behind.
    let same = doc! { "$set": { "a": 1 } };
    assert_eq!(bench.aggregate_code("c", &[same, doc! { "$out": "d" }]), 11000);
    assert_eq!(bench.find("d", doc! {}), [doc! { "_id": 1, "a": 5 }]);
    let names = super::first_batch(&bench.ok(doc! { "listCollections": 1, "nameOnly": true }));
    assert_eq!(names.len(), 2, "{names:?}");
    // Onto itself, and from nothing.
    bench.aggregate("c", &[doc! { "$set": { "b": 1 } }, doc! { "$out": "c" }]);
    assert_eq!(bench.find("c", doc! { "b": 1 }).len(), 3);
    bench.aggregate("none", &[doc! { "$out": "d" }]);
    assert_eq!(bench.find("d", doc! {}).len(), 0);
}

#[test]
fn merge_in_every_mode() {
    for (matched, not_matched, expected, code) in [
        (
            bson!("merge"),
            "insert",
            vec![
                doc! { "_id": 1, "x": 0, "a": 5 },
                doc! { "_id": 2, "a": 6 },
                doc! { "_id": 3, "a": 7 },
            ],
            0,
        ),
        (bson!("merge"), "discard", vec![doc! { "_id": 1, "x": 0, "a": 5 }], 0),
        (bson!("merge"), "fail", vec![doc! { "_id": 1, "x": 0, "a": 5 }], 13113),
        (
            bson!("replace"),
            "insert",
            vec![
                doc! { "_id": 1, "a": 5 },
                doc! { "_id": 2, "a": 6 },
                doc! { "_id": 3, "a": 7 },
            ],
            0,
        ),
        (bson!("replace"), "discard", vec![doc! { "_id": 1, "a": 5 }], 0),
        (
            bson!("keepExisting"),
            "insert",
            vec![
                doc! { "_id": 1, "x": 0 },
                doc! { "_id": 2, "a": 6 },
                doc! { "_id": 3, "a": 7 },
            ],
            0,
        ),
        (bson!("keepExisting"), "discard", vec![doc! { "_id": 1, "x": 0 }], 51181),
        (
            bson!("fail"),
            "insert",
            vec![
                doc! { "_id": 1, "x": 0 },
                doc! { "_id": 2, "a": 6 },
                doc! { "_id": 3, "a": 7 },
            ],
            11000,
        ),
        (
            bson!([{ "$set": { "x": { "$add": ["$x", "$$new.a"] }, "text": "$$new._id" } }]),
            "discard",
            vec![doc! { "_id": 1, "x": 5, "text": 1 }],
            0,
        ),
    ] {
        let bench = bench();
        bench.insert("d", &[doc! { "_id": 1, "x": 0 }]);
        let stage = merge(doc! { "into": "d", "whenMatched": matched.clone(), "whenNotMatched": not_matched });
        let reply = bench.run(doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} });
        match code {
            0 => assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}"),
            _ => assert_eq!(super::code(&reply), code, "{matched} {not_matched}: {reply}"),
        }
        assert_eq!(bench.find("d", doc! {}), expected, "{matched} {not_matched}");
    }
    let bench = bench();
    bench.aggregate(
        "c",
        &[merge(
            doc! { "into": "d", "let": Bson::Null, "whenNotMatched": Bson::Null },
        )],
    );
    assert_eq!(bench.find("d", doc! {}), bench.find("c", doc! {}));
}

/// Names of fields are what they are to `$set`, whether there is a document to merge with or not.
#[test]
fn merge_sets_fields() {
    let of = |source: Document, existing: Option<Document>, matched: &str| {
        let bench = Bench::new();
        bench.insert("c", &[doc! { "_id": 1 }]);
        existing
            .iter()
            .for_each(|existing| bench.insert("d", std::slice::from_ref(existing)));
        let source = doc! { "$replaceWith": { "$literal": source } };
        let stages = vec![source, merge(doc! { "into": "d", "whenMatched": matched })];
        let reply = bench.run(doc! { "aggregate": "c", "pipeline": stages, "cursor": {} });
        match reply.get_i32("code").unwrap_or(0) {
            0 => Ok(bench.find("d", doc! {}).remove(0)),
            code => Err(code),
        }
    };
    let dotted = || doc! { "_id": 1, "a.b": 2 };
    let with_b = |b: i32| Ok(doc! { "_id": 1, "a": { "b": b } });
    assert_eq!(
        of(dotted(), Some(doc! { "_id": 1, "a": { "b": 1 } }), "merge"),
        with_b(2)
    );
    assert_eq!(
        of(dotted(), Some(doc! { "_id": 1, "a": { "b": 1 } }), "keepExisting"),
        with_b(1)
    );
    assert_eq!(of(dotted(), None, "merge"), with_b(2));
    assert_eq!(of(dotted(), None, "keepExisting"), with_b(2));
    let ordered =
        |source| of(source, Some(doc! { "_id": 1, "q": 0 }), "merge").map(|found| found.keys().cloned().collect());
    assert_eq!(
        ordered(doc! { "_id": 1, "z": 1, "b": 2 }),
        Ok(["_id", "q", "b", "z"].map(str::to_owned).to_vec())
    );
    let existing = || Some(doc! { "_id": 1, "a": 1 });
    assert_eq!(of(doc! { "_id": 1, "$d": 1 }, existing(), "merge"), Err(52));
    assert_eq!(of(doc! { "_id": 1, "": 1 }, existing(), "merge"), Err(56));
    assert_eq!(of(doc! { "_id": 1, "": 1 }, None, "merge"), Err(56));
}

#[test]
fn merge_on_other_fields_with_variables() {
    let bench = bench();
    assert_eq!(
        bench.aggregate_code("c", &[merge(doc! { "into": "d", "on": "k" })]),
        51183
    );
    bench.ok(doc! { "createIndexes": "d", "indexes": [{ "key": { "k": 1, "l.m": 1 }, "name": "k", "unique": true }] });
    bench.insert("d", &[doc! { "_id": "one", "k": 5, "l": { "m": 1 }, "n": 1 }]);
    let keyed = doc! { "$project": { "_id": 0, "k": "$a", "l": { "m": { "$literal": 1 } }, "text": "$$ROOT.a" } };
    let stage = merge(doc! {
        "into": "d", "on": ["k", "l.m"],
        "let": { "sum": { "$add": ["$k", 100] }, "dollar": { "$literal": "$n" } },
        "whenMatched": [{ "$set": { "n": { "$add": ["$n", "$$sum"] }, "said": "$$dollar", "new": "$$new.k" } }],
    });
    bench.aggregate("c", &[keyed.clone(), stage]);
    let found = bench.find("d", doc! { "k": 5 });
    assert_eq!(
        found,
        [doc! { "_id": "one", "k": 5, "l": { "m": 1 }, "n": 106, "said": "$n", "new": 5 }]
    );
    assert_eq!(bench.find("d", doc! {}).len(), 3);
    let missing = doc! { "$project": { "k": 1 } };
    assert_eq!(
        bench.aggregate_code("c", &[missing, merge(doc! { "into": "d", "on": ["k", "l.m"] })]),
        51132
    );
    // Paths do not lead into arrays, and do not end at one.
    for (found, wanted) in [(bson!([{ "m": 1 }]), 51132), (bson!({ "m": [1] }), 51185)] {
        let stages = [
            doc! { "$set": { "k": 1, "l": found } },
            merge(doc! { "into": "d", "on": ["k", "l.m"] }),
        ];
        assert_eq!(bench.aggregate_code("c", &stages), wanted);
    }
    // Its `_id` is another one.
    let replaced = merge(doc! { "into": "d", "on": ["k", "l.m"], "whenMatched": "replace" });
    let with_id = doc! { "$project": { "k": "$a", "l": { "m": { "$literal": 1 } } } };
    assert_eq!(bench.aggregate_code("c", &[with_id, replaced]), 66);
}

#[test]
fn merge_knows_the_variables_of_its_command() {
    let bench = bench();
    bench.insert("d", &[doc! { "_id": 1, "n": 1 }]);
    let run = |stage: Document| {
        let pipeline = [
            doc! { "$project": { "_id": { "$literal": 1 }, "a": 1 } },
            doc! { "$limit": 1 },
            stage,
        ];
        bench.ok(doc! {
            "aggregate": "c", "pipeline": pipeline.to_vec(), "cursor": {},
            "let": { "v": { "$add": [3, 5] }, "w": { "$literal": "$n" }, "new": 1 },
        });
        bench.find("d", doc! {}).remove(0)
    };
    let set = |fields: Document| vec![doc! { "$set": fields }];
    let alone = run(merge(
        doc! { "into": "d", "whenMatched": set(doc! { "r": "$$v", "s": "$$w", "t": "$$new._id" }) },
    ));
    assert_eq!(alone, doc! { "_id": 1, "n": 1, "r": 8, "s": "$n", "t": 1 });
    let both = run(merge(doc! {
        "into": "d", "let": { "q": { "$add": ["$$v", 1] }, "w": "own" },
        "whenMatched": set(doc! { "r": "$$q", "s": "$$w", "t": "$$v" }),
    }));
    assert_eq!(both, doc! { "_id": 1, "n": 1, "r": 9, "s": "own", "t": 8 });
}

/// It is parsed once, with the values of none of them.
#[test]
fn the_pipeline_of_merge_sees_the_values_of_each_document_of_a_batch() {
    let bench = Bench::new();
    let documents: Vec<Document> = (0..50).map(|n| doc! { "_id": n, "a": n, "by": n % 5 }).collect();
    bench.insert("c", &documents);
    let there: Vec<Document> = (0..50).map(|n| doc! { "_id": n, "n": 1 }).collect();
    bench.insert("d", &there);
    let stage = merge(doc! {
        "into": "d", "let": { "twice": { "$multiply": ["$a", 2] }, "list": ["$a", "$gone"] },
        "whenMatched": [
            { "$set": { "n": { "$add": ["$n", "$$twice", "$$plus"] }, "list": "$$list" } },
            // What divides by zero is not computed for those that would.
            { "$set": { "by": { "$cond": [{ "$eq": ["$$new.by", 0] }, null, { "$divide": [60, "$$new.by"] }] } } },
            { "$replaceWith": { "$mergeObjects": ["$$ROOT", { "same": { "$eq": ["$$new.by", "$$new.a"] } }] } },
        ],
    });
    bench.ok(doc! { "aggregate": "c", "pipeline": [stage], "cursor": {}, "let": { "plus": 100, "twice": "hidden" } });
    let wanted: Vec<Document> = (0..50)
        .map(|n| {
            let by = match n % 5 {
                0 => Bson::Null,
                by => Bson::Double(60.0 / f64::from(by)),
            };
            doc! { "_id": n, "n": 101 + 2 * n, "list": [n, null], "by": by, "same": n % 5 == n }
        })
        .collect();
    assert_eq!(bench.find("d", doc! {}), wanted);
    // A value that is not there is no variable, for its document alone.
    bench.ok(doc! { "update": "c", "updates": [{ "q": { "_id": 7 }, "u": { "$unset": { "a": 1 } } }] });
    let stage = merge(doc! {
        "into": "d", "let": { "a": "$a" }, "whenMatched": [{ "$set": { "seen": "$$a" } }], "whenNotMatched": "fail",
    });
    assert_eq!(bench.aggregate_code("c", &[stage]), 17276);
    assert_eq!(bench.find("d", doc! { "seen": { "$exists": true } }).len(), 49);
    assert_eq!(bench.find("d", doc! { "seen": 8 }).len(), 1);
}

#[test]
fn merge_into_what_it_reads_ends() {
    let bench = bench();
    bench.aggregate(
        "c",
        &[
            doc! { "$project": { "_id": 0, "a": { "$add": ["$a", 100] } } },
            doc! { "$merge": "c" },
        ],
    );
    assert_eq!(bench.find("c", doc! {}).len(), 6);
    bench.aggregate(
        "c",
        &[
            doc! { "$set": { "a": { "$add": ["$a", 1] } } },
            doc! { "$merge": { "into": "c" } },
        ],
    );
    let mut values: Vec<Bson> = bench
        .find("c", doc! {})
        .iter()
        .map(|found| found.get("a").cloned().unwrap())
        .collect();
    values.sort_by_key(|value| value.as_i32());
    assert_eq!(values, [6, 7, 8, 106, 107, 108].map(Bson::Int32));
}

/// A stream has no end: the operation waited for one, and could only be killed.
#[test]
fn a_stream_is_not_written() {
    let bench = Bench::member(true);
    bench.ok(doc! { "create": "c" });
    for stage in [doc! { "$out": "d" }, merge(doc! { "into": "d" })] {
        let stages = [doc! { "$changeStream": {} }, stage];
        assert_eq!(bench.aggregate_code("c", &stages), 20, "{stages:?}");
    }
}

#[test]
fn a_null_of_out_is_as_nothing() {
    let bench = bench();
    let out = doc! { "$out": { "db": "test", "coll": "d", "timeseries": null } };
    assert_eq!(bench.aggregate("c", &[out]), []);
    assert_ne!(bench.find("d", doc! {}).len(), 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let bench = bench();
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    bench.ok(doc! { "create": "capped", "capped": true, "size": 4096 });
    for (stage, wanted) in [
        (doc! { "$out": 1 }, 16990),
        (doc! { "$out": { "db": "x" } }, 40414),
        (doc! { "$out": { "coll": "x", "junk": 1 } }, 40415),
        (doc! { "$out": { "coll": "x", "timeseries": {} } }, 40414),
        (doc! { "$out": { "coll": "x", "timeseries": 1 } }, 14),
        (doc! { "$out": { "coll": "x" } }, 40414),
        (doc! { "$out": { "db": null, "coll": "x" } }, 40414),
        (doc! { "$out": { "db": "x", "coll": null } }, 40414),
        (doc! { "$out": { "db": "x", "coll": 1 } }, 14),
        (doc! { "$out": "$x" }, 20),
        (doc! { "$out": "x".repeat(255) }, 20),
        (doc! { "$out": "" }, 73),
        (doc! { "$out": ".x" }, 73),
        (
            doc! { "$out": { "db": "test", "coll": "v", "timeseries": { "timeField": "t" } } },
            7_268_700,
        ),
        (doc! { "$merge": { "into": { "coll": "x", "timeseries": {} } } }, 40415),
        (doc! { "$out": "capped" }, 17152),
        (doc! { "$out": "v" }, 166),
        (doc! { "$out": "system.x" }, 17385),
        (doc! { "$out": { "db": "config", "coll": "x" } }, 31321),
        (doc! { "$merge": 1 }, 51182),
        (merge(doc! {}), 40414),
        (merge(doc! { "into": 1 }), 51178),
        (merge(doc! { "into": "d", "junk": 1 }), 40415),
        (merge(doc! { "into": "d", "on": [] }), 51187),
        (merge(doc! { "into": "d", "on": 1 }), 51186),
        (merge(doc! { "into": "d", "on": ["a", "a"] }), 31465),
        (merge(doc! { "into": "d", "on": [1] }), 51134),
        (merge(doc! { "into": "d", "whenMatched": "x" }), 2),
        (merge(doc! { "into": "d", "whenMatched": 1 }), 51191),
        (merge(doc! { "into": "d", "whenNotMatched": "x" }), 2),
        (merge(doc! { "into": "d", "let": { "a": 1 } }), 51199),
        (merge(doc! { "into": "d", "whenMatched": [], "let": { "Abc": 1 } }), 9),
        (merge(doc! { "into": "d", "whenMatched": [], "let": { "a.b": 1 } }), 9),
        (
            merge(doc! { "into": "d", "whenMatched": [], "let": { "new": 1 } }),
            51273,
        ),
        (
            merge(doc! { "into": "d", "whenMatched": [{ "$group": { "_id": 1 } }] }),
            72,
        ),
        (
            merge(doc! { "into": "d", "whenMatched": "fail", "whenNotMatched": "fail" }),
            51181,
        ),
        (
            merge(doc! { "into": "d", "whenMatched": "keepExisting", "whenNotMatched": "discard" }),
            51181,
        ),
        (doc! { "$merge": "v" }, 166),
        (merge(doc! { "into": { "db": "admin", "coll": "x" } }), 31319),
    ] {
        assert_eq!(
            bench.aggregate_code("c", std::slice::from_ref(&stage)),
            wanted,
            "{stage}"
        );
    }
    for name in ["$out", "$merge"] {
        let early = [doc! { name: "d" }, doc! { "$limit": 1 }];
        assert_eq!(bench.aggregate_code("c", &early), 40601);
        for last in [doc! { "$out": "e" }, merge(doc! { "into": "e" })] {
            assert_eq!(bench.aggregate_code("c", &[doc! { name: "d" }, last]), 40601);
        }
        let view = doc! { "create": "w", "viewOn": "c", "pipeline": [{ name: "d" }] };
        assert_eq!(code(&bench.run(view)), 167);
        let explained = doc! { "aggregate": "c", "pipeline": [{ name: "d" }], "cursor": {} };
        bench.ok(doc! { "explain": explained.clone(), "verbosity": "queryPlanner" });
        let run = doc! { "explain": explained, "verbosity": "executionStats" };
        assert_eq!(code(&bench.run(run)), 51029);
    }
    assert_eq!(bench.find("d", doc! {}).len(), 0);
}

/// What a crash left of `$out` and `convertToCapped` is dropped by who begins to write; what somebody fills just now
/// stays, and so does what only has a similar name.
#[test]
fn temporary_collections_that_are_nobodys_are_dropped() {
    let bench = Bench::new();
    let digits = "0123456789abcdef0123456789ABCDEF";
    let stay = [
        "tmp.agg_out.mine".to_owned(),
        format!("tmp.other.{digits}"),
        format!("tmp.agg_out.{digits}0"),
    ];
    let go = [format!("tmp.agg_out.{digits}"), format!("tmp.convertToCapped.{digits}")];
    for name in stay.iter().chain(&go) {
        bench.ok(doc! { "create": name });
    }
    let used = bench.server.storage.temporary_name("test", Temporary::Out).unwrap();
    bench.ok(doc! { "create": used.namespace().collection() });
    let names = || {
        let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "nameOnly": true }));
        let mut names: Vec<_> = listed.iter().map(|of| of.get_str("name").unwrap().to_owned()).collect();
        names.sort();
        names
    };
    bench.server.begin_to_write().unwrap();
    let mut expected = stay.to_vec();
    expected.push(used.namespace().collection().to_owned());
    expected.sort();
    assert_eq!(names(), expected);
    drop(used);
    bench.server.begin_to_write().unwrap();
    assert_eq!(names().len(), stay.len());
}

#[test]
fn a_document_that_cannot_be_merged_does_not_keep_others_from_it() {
    let bench = Bench::new();
    bench.insert(
        "c",
        &[doc! { "_id": 1 }, doc! { "_id": 2, "a": 1 }, doc! { "_id": 3, "a": 2 }],
    );
    bench.ok(doc! { "create": "d", "validator": { "a": { "$ne": 1 } } });
    let ids = |bench: &Bench| -> Vec<i32> {
        let found = bench.find("d", doc! {});
        found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
    };
    assert_eq!(bench.aggregate_code("c", &[merge(doc! { "into": "d" })]), 121);
    assert_eq!(ids(&bench), [1, 3]);
    // What is wrong with a document is told before that another one has none to be merged with.
    bench.ok(doc! { "drop": "d" });
    bench.ok(doc! { "create": "d", "validator": { "a": { "$ne": 2 } } });
    bench.insert("d", &[doc! { "_id": 2 }, doc! { "_id": 3 }]);
    let strict = merge(doc! { "into": "d", "whenNotMatched": "fail" });
    assert_eq!(bench.aggregate_code("c", &[strict]), 121);
    assert_eq!(bench.find("d", doc! { "a": 1 }).len(), 1);
    let only = merge(doc! { "into": "d", "whenMatched": "fail" });
    assert_eq!(bench.aggregate_code("c", &[doc! { "$sort": { "_id": -1 } }, only]), 121);
    assert_eq!(ids(&bench), [1, 2, 3]);
    // One that cannot be looked for has nothing of the batch written.
    bench.ok(doc! { "drop": "d" });
    bench.ok(doc! { "createIndexes": "d", "indexes": [{ "key": { "a": 1 }, "name": "a", "unique": true }] });
    let last = doc! { "$sort": { "a": -1 } };
    assert_eq!(
        bench.aggregate_code("c", &[last, merge(doc! { "into": "d", "on": "a" })]),
        51132
    );
    assert_eq!(ids(&bench), [0; 0]);
}

#[test]
fn merge_wants_an_index_of_its_collation() {
    let bench = Bench::new();
    let caseless = doc! { "locale": "en", "strength": 2 };
    bench.insert("c", &[doc! { "_id": 1, "a": "X" }, doc! { "_id": 2, "a": "y" }]);
    let run = |on: &str, collation: &Document| {
        let stages = [doc! { "$unset": "_id" }, merge(doc! { "into": "d", "on": on })];
        let reply = bench.run(doc! { "aggregate": "c", "pipeline": stages, "cursor": {}, "collation": collation });
        reply.get_i32("code").unwrap_or(0)
    };
    let index = |options: Document| {
        bench.run(doc! { "drop": "d" });
        let mut index = doc! { "key": { "a": 1 }, "name": "a", "unique": true };
        index.extend(options);
        bench.ok(doc! { "createIndexes": "d", "indexes": [index] });
    };
    index(doc! { "collation": caseless.clone() });
    bench.insert("d", &[doc! { "_id": "there", "a": "x" }]);
    assert_eq!(run("a", &doc! {}), 51183);
    assert_eq!(run("a", &doc! { "locale": "en", "strength": 1 }), 51183);
    assert_eq!(run("a", &caseless), 0);
    assert_eq!(
        bench.find("d", doc! { "_id": "there" }),
        [doc! { "_id": "there", "a": "X" }]
    );
    assert_eq!(bench.find("d", doc! {}).len(), 2);
    // The index for `_id` is no exception, where it is asked for by name.
    assert_eq!(run("_id", &caseless), 51183);
    assert_eq!(run("_id", &doc! {}), 11000);
    index(doc! { "sparse": true });
    assert_eq!(run("a", &caseless), 51183);
    assert_eq!(run("a", &doc! {}), 0);
    bench.insert("c", &[doc! { "_id": 3 }]);
    assert_eq!(run("a", &doc! {}), 51132);
    bench.ok(doc! { "findAndModify": "c", "query": { "_id": 3 }, "update": { "a": ["z"] } });
    assert_eq!(run("a", &doc! {}), 51185);
    index(doc! { "partialFilterExpression": { "a": { "$gt": "" } } });
    assert_eq!(run("a", &doc! {}), 51183);
}

/// One step that a secondary asks for.
fn step(bench: &Bench, step: &str, stage: &Document, more: Document) -> Document {
    let mut command = doc! { "_tenonWriteResults": step, "stage": stage.clone() };
    command.extend(more);
    bench.run(command)
}

#[test]
fn a_secondary_has_results_written_step_by_step() {
    let bench = bench();
    let (stage, documents) = (
        merge(doc! { "into": "c" }),
        doc! { "documents": [{ "_id": 1, "b": 1 }, { "_id": 9 }] },
    );
    assert_eq!(
        code(&step(&bench, "begin", &merge(doc! { "into": "c", "on": "a" }), doc! {})),
        51183
    );
    assert!(!step(&bench, "begin", &stage, doc! {}).contains_key("temporary"));
    for name in ["write", "finish"] {
        super::succeeded(step(&bench, name, &stage, documents.clone()));
    }
    assert_eq!(bench.find("c", doc! { "_id": 1 }), [doc! { "_id": 1, "a": 5, "b": 1 }]);
    assert_eq!(bench.find("c", doc! { "_id": 9 }).len(), 1);

    let stage = doc! { "$out": "d" };
    let begin = || {
        let begun = step(&bench, "begin", &stage, doc! {});
        let place = doc! { "temporary": begun["temporary"].clone(), "uuid": begun["uuid"].clone() };
        (begun.get_str("temporary").unwrap().to_owned(), place)
    };
    let with = |place: &Document, documents: &Document| {
        let mut more = place.clone();
        more.extend(documents.clone());
        more
    };
    let (_, place) = begin();
    super::succeeded(step(&bench, "write", &stage, with(&place, &documents)));
    assert_eq!(bench.find("d", doc! {}).len(), 0, "not before it is finished");
    super::succeeded(step(&bench, "finish", &stage, place.clone()));
    assert_eq!(bench.find("d", doc! {}).len(), 2);
    // What is given up leaves nothing, and another collection of the name is none of it.
    let (name, place) = begin();
    super::succeeded(step(&bench, "abandon", &stage, place.clone()));
    bench.ok(doc! { "create": &name });
    for name in ["write", "finish"] {
        assert_eq!(code(&step(&bench, name, &stage, with(&place, &documents))), 26);
        assert_eq!(code(&step(&bench, name, &stage, documents.clone())), 26);
    }
    assert_eq!(bench.find("d", doc! {}).len(), 2);
    // What the collection has got meanwhile would be lost.
    let (_, place) = begin();
    bench.ok(doc! { "createIndexes": "d", "indexes": [{ "key": { "b": 1 }, "name": "b", "unique": true }] });
    assert_eq!(code(&step(&bench, "finish", &stage, place.clone())), 125);
    super::succeeded(step(&bench, "abandon", &stage, place));
    assert_eq!(first_batch(&bench.ok(doc! { "listIndexes": "d" })).len(), 2);
    let (_, place) = begin();
    super::succeeded(step(&bench, "finish", &stage, place));
    assert_eq!(first_batch(&bench.ok(doc! { "listIndexes": "d" })).len(), 2);
    assert_eq!(code(&step(&bench, "rest", &merge(doc! { "into": "c" }), doc! {})), 2);
    assert_eq!(code(&step(&bench, "begin", &doc! { "$match": {} }, doc! {})), 2);
}

/// Its measurements were where nobody could see or drop them.
#[test]
fn measurements_are_seen_whatever_was_dropped_meanwhile() {
    let bench = Bench::new();
    let make = || bench.ok(doc! { "create": "x", "timeseries": { "timeField": "t", "metaField": "m" } });
    let measurements = doc! { "documents": [{ "t": bson::DateTime::from_millis(0), "m": 1 }] };
    let write = |stage: &Document, meanwhile: &dyn Fn()| {
        let begun = step(&bench, "begin", stage, doc! {});
        let place = doc! { "temporary": begun["temporary"].clone(), "uuid": begun["uuid"].clone() };
        let mut batch = place.clone();
        batch.extend(measurements.clone());
        super::succeeded(step(&bench, "write", stage, batch));
        meanwhile();
        let finished = step(&bench, "finish", stage, place.clone());
        if !finished.contains_key("code") {
            return 0;
        }
        super::succeeded(step(&bench, "abandon", stage, place));
        code(&finished)
    };
    let plain = doc! { "$out": "x" };
    let of_series =
        doc! { "$out": { "db": "test", "coll": "x", "timeseries": { "timeField": "t", "metaField": "m" } } };
    let names = || {
        let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "nameOnly": true }));
        let names = listed.iter().map(|entry| entry.get_str("name").unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let drop_it = || drop(bench.ok(doc! { "drop": "x" }));
    for stage in [&plain, &of_series] {
        make();
        assert_eq!(write(stage, &drop_it), 0);
        assert_eq!(bench.find("x", doc! {}).len(), 1);
        assert_eq!(bench.code(doc! { "drop": "system.buckets.x" }), 20);
        drop_it();
        assert_eq!(names(), [] as [String; 0]);
    }
    assert_eq!(write(&of_series, &|| bench.insert("x", &[doc! { "_id": 1 }])), 48);
    assert_eq!(names(), ["x"]);
}
