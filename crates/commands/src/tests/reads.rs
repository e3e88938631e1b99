//! `find`, `count`, `distinct`, `aggregate`, `explain`.

use super::{Bench, code, first_batch};
use bson::{Bson, Document, doc};

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
    let values = bench.ok(doc! { "distinct": "c", "key": "a" });
    assert_eq!(values, doc! { "values": [5, 6] });
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
    assert_eq!(size.get_i32("numObjects").ok(), Some(2));
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

/// The time of the log, which only a member of a set has.
#[test]
fn the_cluster_time_is_known_to_members() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! { "_id": 1 }]);
    let found = bench.aggregate("c", &[doc! { "$project": { "t": "$$CLUSTER_TIME" } }]);
    assert!(found[0].get_timestamp("t").is_ok_and(|time| time.time > 0), "{found:?}");
    let update = doc! { "q": {}, "u": [{ "$set": { "t": "$$CLUSTER_TIME" } }] };
    bench.ok(doc! { "update": "c", "updates": [update] });
    assert!(bench.find("c", doc! {})[0].get_timestamp("t").is_ok());
    assert_eq!(
        bench.aggregate_code("c", &[doc! { "$redact": "$$CLUSTER_TIME" }]),
        17053
    );
    let alone = self::bench();
    assert_eq!(
        alone.aggregate_code("c", &[doc! { "$project": { "t": "$$CLUSTER_TIME" } }]),
        51144
    );
}
