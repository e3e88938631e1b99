//! `find`, `count`, `distinct`, `aggregate`, `explain`.

use super::{Bench, code, first_batch};
use bson::{Bson, Document, bson, doc};

fn bench() -> Bench {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1, "a": 5 }, doc! { "_id": 2, "a": 6 }]);
    bench
}

#[test]
fn a_look_up_by_id_is_checked_like_any_other() {
    let bench = bench();
    let find = |rest: Document| {
        let mut command = doc! { "find": "c", "filter": { "_id": 1 } };
        command.extend(rest);
        bench.run(command)
    };
    assert_eq!(code(&find(doc! { "sort": { "a": 7 } })), 15975);
    assert_eq!(code(&find(doc! { "let": { "a": "$$nonesuch" } })), 17276);
    assert_eq!(
        first_batch(&find(doc! { "sort": { "a": 1 }, "let": { "a": 1 } })).len(),
        1
    );
}

#[test]
fn numbers_below_zero_are_refused_with_their_code() {
    let bench = bench();
    for command in [
        doc! { "find": "c", "skip": -1 },
        doc! { "find": "c", "limit": -1 },
        doc! { "find": "c", "batchSize": -1 },
        doc! { "count": "c", "skip": -1 },
        doc! { "aggregate": "c", "pipeline": [], "cursor": { "batchSize": -1 } },
    ] {
        assert_eq!(bench.code(command.clone()), 2, "{command}");
    }
}

#[test]
fn distinct_wants_a_path() {
    let bench = bench();
    assert_eq!(bench.code(doc! { "distinct": "c", "key": "" }), 40352);
    assert_eq!(bench.code(doc! { "distinct": "c", "key": "$a" }), 16410);
    assert_eq!(bench.code(doc! { "distinct": "c" }), 40414);
    assert_eq!(bench.code(doc! { "distinct": "c", "key": "a\0b" }), 31032);
    let values = bench.ok(doc! { "distinct": "c", "key": "a" });
    assert_eq!(values, doc! { "values": [5, 6] });
}

#[test]
fn distinct_values_are_in_their_order() {
    let bench = Bench::new();
    let values = ["Banana", "apple", "Cherry"].map(|value| doc! { "x": value });
    bench.insert("c", &values);
    bench.insert(
        "c",
        &[doc! { "x": true }, doc! { "x": [2, 1] }, doc! { "x": Bson::Null }],
    );
    let values = |collation: Document| {
        let reply = bench.ok(doc! { "distinct": "c", "key": "x", "collation": collation });
        reply.get_array("values").unwrap().clone()
    };
    let of = |values: Document| values.into_iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(
        values(doc! {}),
        of(doc! { "0": Bson::Null, "1": 1, "2": 2, "3": "Banana", "4": "Cherry", "5": "apple", "6": true })
    );
    assert_eq!(
        values(doc! { "locale": "en" }),
        of(doc! { "0": Bson::Null, "1": 1, "2": 2, "3": "apple", "4": "Banana", "5": "Cherry", "6": true })
    );
}

#[test]
fn what_is_read_is_named_in_several_ways() {
    let bench = bench();
    let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": "c" } }));
    let uuid = listed[0].get_document("info").unwrap().get("uuid").unwrap().clone();
    assert_eq!(bench.ok(doc! { "count": uuid.clone() }), doc! { "n": 2 });
    assert_eq!(
        bench.ok(doc! { "distinct": uuid.clone(), "key": "a" }),
        doc! { "values": [5, 6] }
    );
    assert_eq!(first_batch(&bench.ok(doc! { "find": uuid.clone() })).len(), 2);
    assert_eq!(code(&bench.run_on("elsewhere", doc! { "count": uuid.clone() })), 26);
    let read = |uuid: Bson| doc! { "aggregate": "c", "pipeline": [], "cursor": {}, "collectionUUID": uuid };
    assert_eq!(first_batch(&bench.ok(read(uuid.clone()))).len(), 2);
    assert_eq!(first_batch(&bench.ok(read(Bson::Null))).len(), 2);
    assert_eq!(bench.code(read(1.into())), 14);
    let mut other = read(uuid.clone());
    other.insert("aggregate", "none");
    let mismatch = bench.run(other);
    assert_eq!(code(&mismatch), 361);
    assert_eq!(mismatch.get_str("actualCollection").ok(), Some("c"));
    let short = bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: vec![1, 2, 3],
    };
    assert_eq!(bench.code(doc! { "count": short }), 207);
    let long = "x".repeat(1000);
    for name in ["$hello", "$cmd", "a$b", &long] {
        assert_eq!(bench.aggregate(name, &[]), [] as [Document; 0]);
        assert_eq!(bench.ok(doc! { "count": name }), doc! { "n": 0 });
    }
    for name in ["", ".a", "a\0b", "$cmd.aggregate"] {
        assert_eq!(bench.aggregate_code(name, &[]), 73, "{name:?}");
    }
    for (target, code) in [
        (Bson::Null, 73),
        (true.into(), 73),
        (2.into(), 2),
        (1.5.into(), 2),
        (f64::NAN.into(), 2),
    ] {
        let command = doc! { "aggregate": target, "pipeline": [], "cursor": {} };
        assert_eq!(bench.code(command.clone()), code, "{command}");
    }
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    assert_eq!(bench.code(doc! { "count": "v", "limit": 0 }), 15958);
    assert_eq!(bench.ok(doc! { "count": "c", "limit": 0 }), doc! { "n": 2 });
}

#[test]
fn lists_of_names_have_nothing_else() {
    let bench = bench();
    let names = |command: Document| {
        let reply = bench.run_on("admin", command);
        reply.get_array("databases").unwrap().len()
    };
    let sized = doc! { "sizeOnDisk": { "$gte": 0 } };
    assert_eq!(
        names(doc! { "listDatabases": 1, "nameOnly": true, "filter": sized.clone() }),
        0
    );
    assert_eq!(names(doc! { "listDatabases": 1, "filter": sized }), 4);
    let list =
        |filter: Document| first_batch(&bench.ok(doc! { "listCollections": 1, "nameOnly": true, "filter": filter }));
    assert_eq!(list(doc! { "info.readOnly": false }), [] as [Document; 0]);
    assert_eq!(
        list(doc! { "options": { "$exists": false } }),
        [doc! { "name": "c", "type": "collection" }]
    );
    assert_eq!(bench.code(doc! { "listCollections": 1, "nameOnly": 1 }), 14);
}

/// A document that no client could take is an error, not a reply.
#[test]
fn documents_over_the_limit_are_not_answered() {
    let bench = Bench::new();
    let half: Vec<Document> = (0..2).map(|id| doc! { "_id": id, "s": "x".repeat(9 << 20) }).collect();
    for document in half {
        bench.insert("c", &[document]);
    }
    let together = [doc! { "$group": { "_id": Bson::Null, "s": { "$push": "$s" } } }];
    assert_eq!(bench.aggregate_code("c", &together), 10334);
    let sizes = [together[0].clone(), doc! { "$unwind": "$s" }, doc! { "$count": "n" }];
    assert_eq!(
        bench.aggregate("c", &sizes),
        [doc! { "n": 2 }],
        "in between they may be"
    );
    // After the first batch, too.
    let later = [
        doc! { "$unionWith": { "coll": "c", "pipeline": together.to_vec() } },
        doc! { "$set": { "t": "$s" } },
        doc! { "$skip": 2 },
    ];
    let reply = bench.ok(doc! { "aggregate": "c", "pipeline": later.to_vec(), "cursor": { "batchSize": 0 } });
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    assert_eq!(bench.code(doc! { "getMore": id, "collection": "c" }), 10334);
    assert_eq!(
        bench.code(doc! { "getMore": id, "collection": "c" }),
        43,
        "the cursor is gone"
    );
    // Two documents of 9 MiB make two batches.
    assert_eq!(bench.find("c", doc! {}).len(), 1);
}

#[test]
fn explain_of_writes_knows_their_variables() {
    let bench = bench();
    let filter = doc! { "$expr": { "$eq": ["$a", "$$v"] } };
    let variables = doc! { "v": 5 };
    for command in [
        doc! { "update": "c", "updates": [{ "q": filter.clone(), "u": { "$set": { "x": 1 } } }], "let": variables.clone() },
        doc! { "delete": "c", "deletes": [{ "q": filter.clone(), "limit": 0 }], "let": variables.clone() },
        doc! { "findAndModify": "c", "query": filter.clone(), "remove": true, "let": variables.clone() },
    ] {
        let explained = bench.ok(doc! { "explain": command.clone(), "verbosity": "executionStats" });
        let stages = explained
            .get_document("executionStats")
            .and_then(|stats| stats.get_document("executionStages"))
            .unwrap();
        let input = stages.get_document("inputStage").unwrap();
        assert_eq!(input.get_i32("nReturned").ok(), Some(1), "{command}: {stages}");
    }
}

/// `explain` counted what an update leaves as it is, and had neither the document that is returned nor the one that
/// would be inserted.
#[test]
fn explain_tells_what_a_write_would_do() {
    let bench = bench();
    let figures = |command: Document| {
        let explained = bench.ok(doc! { "explain": command, "verbosity": "executionStats" });
        let stats = explained.get_document("executionStats").unwrap().clone();
        let mut write = stats.get_document("executionStages").unwrap().clone();
        let mut names = write.get_str("stage").unwrap().to_owned();
        if names == "PROJECTION_DEFAULT" {
            write = write.get_document("inputStage").unwrap().clone();
            names = format!("{names}/{}", write.get_str("stage").unwrap());
        }
        let figure = |name: &str| write.get_i32(name).unwrap_or(-1);
        (
            names,
            stats.get_i32("nReturned").unwrap(),
            [
                figure("nMatched"),
                figure("nWouldModify"),
                figure("nWouldUpsert"),
                figure("nWouldDelete"),
            ],
        )
    };
    let update = |filter: Document, change: Document, upsert: bool| {
        doc! { "update": "c", "updates": [{ "q": filter, "u": change, "upsert": upsert, "multi": true }] }
    };
    let modify = |filter: Document, new: bool| {
        let change = doc! { "$set": { "x": 1 } };
        doc! { "findAndModify": "c", "query": filter, "update": change, "upsert": true, "new": new }
    };
    let (one, none) = (doc! { "a": 5 }, doc! { "a": "none" });
    let (as_update, as_delete) = ("UPDATE".to_owned(), "DELETE".to_owned());
    for (command, wanted) in [
        (
            update(one.clone(), doc! { "$set": { "x": 1 } }, true),
            (as_update.clone(), 0, [1, 1, 0, -1]),
        ),
        (
            update(one.clone(), doc! { "$set": { "a": 5 } }, true),
            (as_update.clone(), 0, [1, 0, 0, -1]),
        ),
        (
            update(none.clone(), doc! { "$set": { "a": 5 } }, false),
            (as_update.clone(), 0, [0, 0, 0, -1]),
        ),
        (
            update(none.clone(), doc! { "$set": { "a": 5 } }, true),
            (as_update.clone(), 0, [0, 0, 1, -1]),
        ),
        (modify(one.clone(), false), (as_update.clone(), 1, [1, 1, 0, -1])),
        (modify(none.clone(), false), (as_update.clone(), 0, [0, 0, 1, -1])),
        (modify(none.clone(), true), (as_update, 1, [0, 0, 1, -1])),
        (
            doc! { "findAndModify": "c", "query": one.clone(), "remove": true, "fields": { "a": 1 } },
            (format!("PROJECTION_DEFAULT/{as_delete}"), 1, [-1, -1, -1, 1]),
        ),
        (
            doc! { "findAndModify": "c", "query": none, "remove": true },
            (as_delete, 0, [-1, -1, -1, 0]),
        ),
    ] {
        assert_eq!(figures(command.clone()), wanted, "{command}");
    }
    assert_eq!(bench.find("c", doc! { "x": 1 }).len(), 0, "nothing is written");
    // What the update fails with is told beside the plan.
    let failing = update(one, doc! { "$inc": { "a.b": 1 } }, false);
    let explained = bench.ok(doc! { "explain": failing, "verbosity": "executionStats" });
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_bool("executionSuccess").ok(), Some(false));
    assert!(
        stats.get_i32("errorCode").is_ok() && stats.get_str("errorMessage").is_ok(),
        "{stats}"
    );
    let elsewhere = doc! { "findAndModify": "c", "remove": true };
    assert_eq!(code(&bench.run_on("none", doc! { "explain": elsewhere })), 26);
}

/// Counts are 32 bits where they fit: typed clients insist.
#[test]
fn counts_are_narrow() {
    let bench = bench();
    let explained = bench.ok(doc! { "explain": { "find": "c", "filter": { "a": 5 } }, "verbosity": "executionStats" });
    let stats = explained.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("nReturned").ok(), Some(1));
    assert_eq!(stats.get_i32("totalDocsExamined").ok(), Some(2));
    let stats = bench.ok(doc! { "collStats": "c" });
    assert!(
        ["count", "size", "storageSize", "scaleFactor", "avgObjSize"]
            .iter()
            .all(|name| stats.get_i32(name).is_ok()),
        "{stats}"
    );
    assert_eq!(
        bench.code(doc! { "validate": "c", "full": true, "background": true }),
        72
    );
    let report = bench.ok(doc! { "validate": "c", "background": true });
    assert_eq!(
        (
            report.get_i32("nrecords").ok(),
            report.get_i32("nInvalidDocuments").ok()
        ),
        (Some(2), Some(0))
    );
    let size = bench.ok(doc! { "dataSize": "test.c" });
    assert_eq!(size.get_i64("numObjects").ok(), Some(2));
    assert!(size.get_i64("size").is_ok_and(|size| size > 0) && size.get_i64("millis").is_ok());
}

#[test]
fn validate_takes_options_together_that_go_together() {
    let bench = bench();
    for (more, expected) in [
        (doc! { "full": true, "background": true }, 72),
        (doc! { "background": 1, "repair": true }, 72),
        (doc! { "background": true, "enforceFastCount": "x" }, 72),
        (doc! { "checkBSONConformance": true, "repair": true }, 72),
        (doc! { "metadata": true, "full": true }, 72),
        (doc! { "metadata": {}, "background": [] }, 72),
        (doc! { "metadata": true, "repair": true }, 72),
        (doc! { "nonesuch": true }, 40415),
    ] {
        let mut command = doc! { "validate": "c" };
        command.extend(more);
        assert_eq!(bench.code(command.clone()), expected, "{command}");
    }
    for (more, repair_mode) in [
        (doc! { "full": "x", "background": Bson::Null, "repair": false }, "None"),
        (
            doc! { "enforceFastCount": true, "scandata": {}, "checkBSONConformance": 1 },
            "None",
        ),
        (doc! { "repair": true, "full": true }, "FixErrors"),
        (doc! { "fixMultikey": [] }, "AdjustMultikey"),
    ] {
        let mut command = doc! { "validate": "c" };
        command.extend(more);
        let report = bench.ok(command.clone());
        assert_eq!(report.get_str("repairMode").ok(), Some(repair_mode), "{command}");
        assert_eq!(
            (report.get_bool("valid").ok(), report.get_bool("repaired").ok()),
            (Some(true), Some(false))
        );
        for entries in ["extraIndexEntries", "missingIndexEntries"] {
            assert!(report.get_array(entries).is_ok_and(Vec::is_empty));
        }
    }
    let report = bench.ok(doc! { "validate": "c", "metadata": true });
    assert!(report.get_bool("valid").is_ok_and(|valid| valid));
    let details = report.get_document("indexDetails").unwrap();
    assert_eq!(report.get_i32("nIndexes").ok(), Some(details.len() as i32));
    assert!(
        details
            .get_document("_id_")
            .is_ok_and(|index| index.get_document("spec").is_ok())
    );
    for records in ["nrecords", "nInvalidDocuments", "nNonCompliantDocuments"] {
        assert!(!report.contains_key(records), "{report}");
    }
}

#[test]
fn sizes_of_data_between_two_keys() {
    let bench = Bench::new();
    let documents: Vec<_> = (0..100)
        .map(|x| doc! { "_id": x, "x": x, "y": { "z": x % 10 } })
        .collect();
    bench.insert("c", &documents);
    bench.insert("c", &[doc! { "_id": "array", "x": [10, 11, 500] }]);
    let size = |more: Document| {
        let mut command = doc! { "dataSize": "test.c" };
        command.extend(more);
        let reply = bench.ok(command);
        (reply.get_i64("numObjects").unwrap(), reply.get_i64("size").unwrap())
    };
    let all = size(doc! {});
    let of_one = size(doc! { "min": { "x": 20 }, "max": { "x": 21 } }).1;
    for (more, expected) in [
        (
            doc! { "keyPattern": { "x": 1 }, "min": { "x": 12 }, "max": { "x": 50 } },
            (38, 38 * of_one),
        ),
        (
            doc! { "keyPattern": { "x": -1 }, "min": { "x": 50 }, "max": { "x": 12 } },
            (38, 38 * of_one),
        ),
        (
            doc! { "keyPattern": { "_id": 1 }, "min": { "_id": 0 }, "max": { "_id": 100 } },
            (100, 100 * of_one),
        ),
        (
            doc! { "keyPattern": { "y.z": 1, "x": 1 }, "min": { "y.z": 3, "x": 50 }, "max": { "y.z": 4 } },
            (5, 5 * of_one),
        ),
        (
            doc! { "keyPattern": { "x": 1 }, "min": { "x": 50 }, "max": { "x": 10 } },
            (0, 0),
        ),
        (
            doc! { "keyPattern": { "x": 1 }, "min": { "x": 5 }, "max": { "x": 5 } },
            (0, 0),
        ),
        (doc! { "keyPattern": { "nonesuch": 1 } }, all),
        (
            doc! { "keyPattern": { "x": 1 }, "min": Bson::Null, "max": Bson::Null },
            all,
        ),
        (doc! { "keyPattern": { "x": 1 }, "min": {} }, all),
    ] {
        assert_eq!(size(more.clone()), expected, "{more}");
    }
    // An array is there once, with each of its elements.
    assert_eq!(size(doc! { "min": { "x": 10 }, "max": { "x": 12 } }).0, 3);
    for (more, expected) in [
        (doc! { "min": { "x": 1 } }, 2),
        (
            doc! { "keyPattern": { "x": 1 }, "min": { "y": 1 }, "max": { "y": 2 } },
            2,
        ),
        (doc! { "keyPattern": { "x": 1 }, "min": 1, "max": { "x": 2 } }, 14),
        (doc! { "keyPattern": "x" }, 14),
    ] {
        let mut command = doc! { "dataSize": "test.c" };
        command.extend(more.clone());
        assert_eq!(bench.code(command), expected, "{more}");
    }
    let estimate = bench.ok(doc! { "dataSize": "test.c", "estimate": true });
    assert_eq!(estimate.get_bool("estimate").ok(), Some(true));
    let none = bench.ok(doc! { "dataSize": "test.none", "min": { "x": 1 }, "max": { "x": 2 } });
    assert_eq!(none.get_i64("numObjects").ok(), Some(0));
}

/// Stages that make documents by themselves do so inside other pipelines, too, or are refused there.
#[test]
fn initial_stages_work_inside_other_pipelines() {
    let bench = bench();
    bench.insert("x", &[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]);
    let lookup = |stage: Document| {
        let pipeline = vec![stage];
        doc! { "$lookup": { "from": "x", "pipeline": pipeline, "as": "j" } }
    };
    let first = |stage: Document| {
        let found = bench.aggregate("c", &[doc! { "$limit": 1 }, lookup(stage)]);
        found[0].get_array("j").unwrap().clone()
    };
    let indexes = first(doc! { "$indexStats": {} });
    assert_eq!(indexes.len(), 1);
    assert_eq!(indexes[0].as_document().unwrap().get_str("name").unwrap(), "_id_");
    let sizes = first(doc! { "$collStats": { "count": {} } });
    assert_eq!(sizes.len(), 1);
    assert_eq!(sizes[0].as_document().unwrap().get_i32("count").unwrap(), 3);
    for (stage, wanted) in [
        (doc! { "$currentOp": {} }, 73),
        (doc! { "$changeStream": {} }, 51047),
        (doc! { "$listSessions": {} }, 73),
        (doc! { "$listLocalSessions": {} }, 73),
        (doc! { "$planCacheStats": { "junk": 1 } }, 40415),
        (doc! { "$backupCursor": {} }, 73),
    ] {
        assert_eq!(bench.aggregate_code("c", &[lookup(stage.clone())]), wanted, "{stage}");
    }
    let union = doc! { "$unionWith": { "coll": "x", "pipeline": [{ "$collStats": { "count": {} } }] } };
    assert_eq!(bench.aggregate("c", &[union]).len(), 3);
    bench.ok(doc! { "create": "v", "viewOn": "x", "pipeline": [{ "$indexStats": {} }] });
    assert_eq!(bench.aggregate("v", &[doc! { "$count": "n" }]), [doc! { "n": 1 }]);
    assert_eq!(first_batch(&bench.ok(doc! { "find": "v" })).len(), 1);
    assert_eq!(bench.aggregate("x", &[doc! { "$indexStats": {} }]).len(), 1);
    assert_eq!(
        bench.aggregate_code("x", &[doc! { "$indexStats": { "junk": 1 } }]),
        28803
    );
    // A view without stages answers with the indexes of what it stands on.
    bench.ok(doc! { "create": "same", "viewOn": "x", "pipeline": [] });
    bench.ok(doc! { "create": "same_again", "viewOn": "same", "pipeline": [] });
    bench.ok(doc! { "create": "other", "viewOn": "x", "pipeline": [{ "$match": {} }] });
    for view in ["same", "same_again"] {
        assert_eq!(bench.aggregate(view, &[doc! { "$indexStats": {} }]).len(), 1, "{view}");
    }
    assert_eq!(bench.aggregate_code("other", &[doc! { "$indexStats": {} }]), 40602);
}

/// `$documents` and the equality of a `$lookup` together.
#[test]
fn a_lookup_of_documents_joins_by_its_fields() {
    let bench = bench();
    let documents = vec![doc! { "k": 5, "n": 1 }, doc! { "k": 7, "n": 2 }];
    let lookup = doc! { "$lookup": {
        "localField": "a", "foreignField": "k", "pipeline": [{ "$documents": documents }], "as": "j",
    } };
    let found = bench.aggregate("c", &[doc! { "$sort": { "_id": 1 } }, lookup]);
    let joined: Vec<usize> = found
        .iter()
        .map(|document| document.get_array("j").unwrap().len())
        .collect();
    assert_eq!(joined, [1, 0]);
}

#[test]
fn graphs_are_followed() {
    let bench = Bench::new();
    bench.insert(
        "staff",
        &[
            doc! { "_id": 1, "name": "Ada" },
            doc! { "_id": 2, "name": "Ben", "under": "Ada" },
            doc! { "_id": 3, "name": "Cem", "under": ["Ben", "Ada"] },
            doc! { "_id": 4, "name": "Dag", "under": "Cem", "left": true },
            doc! { "_id": 5, "name": "Eva", "under": "Dag" },
        ],
    );
    let stage = |more: Document| {
        let mut options = doc! {
            "from": "staff", "startWith": "$name", "connectFromField": "name", "connectToField": "under", "as": "team",
        };
        options.extend(more);
        doc! { "$graphLookup": options }
    };
    let team = |of: &str, more: Document| -> Vec<(i32, Option<i64>)> {
        let found = bench.aggregate("staff", &[doc! { "$match": { "name": of } }, stage(more)]);
        let team = found[0].get_array("team").unwrap().iter();
        let member = |member: &Bson| {
            let member = member.as_document().unwrap();
            (member.get_i32("_id").unwrap(), member.get_i64("depth").ok())
        };
        let mut team: Vec<_> = team.map(member).collect();
        team.sort_unstable();
        team
    };
    let plain = |ids: &[i32]| ids.iter().map(|id| (*id, None)).collect::<Vec<_>>();
    assert_eq!(team("Ada", doc! {}), plain(&[2, 3, 4, 5]));
    let depths = vec![(2, Some(0)), (3, Some(0)), (4, Some(1)), (5, Some(2))];
    assert_eq!(team("Ada", doc! { "depthField": "depth" }), depths);
    assert_eq!(team("Ada", doc! { "maxDepth": 0 }), plain(&[2, 3]));
    assert_eq!(team("Ada", doc! { "maxDepth": 1.0 }), plain(&[2, 3, 4]));
    let present = doc! { "restrictSearchWithMatch": { "left": { "$ne": true } } };
    assert_eq!(team("Ada", present), plain(&[2, 3]));
    assert_eq!(team("Eva", doc! {}), []);
    assert_eq!(team("Eva", doc! { "startWith": ["Cem", "Ben"] }), plain(&[3, 4, 5]));
    assert_eq!(team("Eva", doc! { "startWith": "$none" }), []);
    assert_eq!(team("Eva", doc! { "from": "nothing" }), []);
    // Upwards, through an array; the second time with an index.
    let up = doc! { "startWith": "$under", "connectFromField": "under", "connectToField": "name" };
    assert_eq!(team("Eva", up.clone()), plain(&[1, 2, 3, 4]));
    bench.ok(doc! { "createIndexes": "staff", "indexes": [{ "key": { "name": 1 }, "name": "name" }] });
    assert_eq!(team("Eva", up), plain(&[1, 2, 3, 4]));
    // Circles end; numbers are equal whatever their type.
    bench.insert(
        "ring",
        &[
            doc! { "_id": 1, "to": 2.0 },
            doc! { "_id": 2, "to": 3_i64 },
            doc! { "_id": 3, "to": 1 },
        ],
    );
    let ring = stage(
        doc! { "from": "ring", "startWith": { "$literal": 1 }, "connectFromField": "to", "connectToField": "_id" },
    );
    let found = bench.aggregate("ring", &[doc! { "$limit": 1 }, ring]);
    assert_eq!(found[0].get_array("team").unwrap().len(), 3);
    for (more, wanted) in [
        (doc! { "maxDepth": -1 }, 40101),
        (doc! { "maxDepth": 1.5 }, 40102),
        (doc! { "maxDepth": "x" }, 40100),
        (doc! { "as": 1 }, 40103),
        (doc! { "junk": 1 }, 40104),
        (doc! { "restrictSearchWithMatch": 1 }, 40185),
        (doc! { "restrictSearchWithMatch": { "$nonsense": 1 } }, 2),
        (doc! { "as": "$x" }, 16410),
    ] {
        assert_eq!(bench.aggregate_code("staff", &[stage(more.clone())]), wanted, "{more}");
    }
    assert_eq!(
        bench.aggregate_code("staff", &[doc! { "$graphLookup": { "from": "staff" } }]),
        40105
    );
    assert_eq!(bench.aggregate_code("staff", &[doc! { "$graphLookup": 1 }]), 9);
}

/// They leave out what has no geometry, or no such field.
#[test]
fn indexes_without_all_documents_are_read_where_they_are_asked_for() {
    let bench = Bench::new();
    let point = doc! { "type": "Point", "coordinates": [1, 2] };
    bench.insert(
        "c",
        &[
            doc! { "_id": 1, "loc": point, "a": 1 },
            doc! { "_id": 2, "a": 2 },
            doc! { "_id": 3 },
        ],
    );
    bench.ok(doc! { "createIndexes": "c", "indexes": [
        { "key": { "loc": "2dsphere" }, "name": "sphere" },
        { "key": { "a": 1 }, "name": "sparse", "sparse": true },
    ] });
    let ids = |command: Document| {
        let found = first_batch(&bench.ok(command));
        found
            .iter()
            .map(|found| found.get_i32("_id").unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(doc! { "find": "c", "hint": "sphere" }), [1]);
    assert_eq!(
        ids(doc! { "find": "c", "filter": { "a": { "$gt": 0 } }, "hint": { "loc": "2dsphere" } }),
        [1]
    );
    assert_eq!(
        bench.ok(doc! { "count": "c", "query": {}, "hint": "sphere" }),
        doc! { "n": 1 }
    );
    let exists = doc! { "find": "c", "filter": { "a": { "$exists": true } } };
    assert_eq!(ids(exists.clone()), [1, 2]);
    let plan = bench.ok(doc! { "explain": exists, "verbosity": "queryPlanner" });
    let planner = plan.get_document("queryPlanner").unwrap();
    assert!(
        planner
            .get_document("winningPlan")
            .unwrap()
            .to_string()
            .contains("IXSCAN"),
        "{planner}"
    );
    assert_eq!(
        ids(doc! { "find": "c", "filter": { "loc": { "$exists": false } } }),
        [2, 3]
    );
}

#[test]
fn what_cannot_be_explained_has_its_code() {
    let bench = bench();
    assert_eq!(bench.code(doc! { "explain": {} }), 59);
    assert_eq!(bench.code(doc! { "explain": { "nonesuch": 1 } }), 59);
    assert_eq!(
        bench.code(doc! { "explain": { "find": "c" }, "verbosity": "nonesuch" }),
        2
    );
    assert_eq!(bench.code(doc! { "explain": { "find": "c" }, "verbosity": 1 }), 14);
    assert_eq!(bench.code(doc! { "explain": { "find": "c", "$db": "other" } }), 73);
    bench.ok(doc! { "explain": { "find": "c", "$db": "test" } });
}

#[test]
fn a_databases_views_have_a_collection() {
    let bench = bench();
    let stats = |bench: &Bench| bench.ok(doc! { "dbStats": 1 });
    assert_eq!(stats(&bench).get_i64("collections").ok(), Some(1));
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let stats = stats(&bench);
    assert_eq!(
        (stats.get_i64("collections").ok(), stats.get_i64("views").ok()),
        (Some(2), Some(1))
    );
    assert_eq!(stats.get_i64("scaleFactor").ok(), Some(1));
}

/// No document is less than the empty one, so that a wildcard index has a key of all that is not greater.
#[test]
fn wildcard_indexes_find_empty_documents() {
    let bench = Bench::new();
    let values = [bson!({}), bson!({ "b": 1 }), bson!([{}]), bson!(1)];
    for (id, value) in values.into_iter().enumerate() {
        bench.insert("c", &[doc! { "_id": id as i32, "a": value }]);
    }
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "$**": 1 }, "name": "all" }] });
    let find = |operator: &str| doc! { "find": "c", "filter": { "a": { operator: {} } }, "hint": "all" };
    for operator in ["$lte", "$eq"] {
        let found = first_batch(&bench.ok(find(operator)));
        let ids: Vec<_> = found.iter().map(|document| document.get_i32("_id").unwrap()).collect();
        assert_eq!(ids, [0, 2], "{operator}");
    }
    assert_eq!(bench.code(find("$gte")), 291);
}
