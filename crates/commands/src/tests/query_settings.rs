//! What is set for all queries of one shape.

use super::*;
use bson::Bson;

fn filled() -> Bench {
    let bench = Bench::member(true);
    fill(&bench);
    bench
}

fn fill(bench: &Bench) {
    let documents: Vec<_> = (0..200)
        .map(|id| doc! { "_id": id, "a": id % 10, "b": id % 100, "t": "words" })
        .collect();
    bench.insert("c", &documents);
    let index = |name: &str, key: Document| doc! { "key": key, "name": name };
    let indexes = [
        index("a_1", doc! { "a": 1 }),
        index("b_1", doc! { "b": 1 }),
        index("ab", doc! { "a": 1, "b": 1 }),
    ];
    bench.ok(doc! { "createIndexes": "c", "indexes": indexes.to_vec() });
}

fn hints(allowed: impl Into<Bson>) -> Document {
    doc! { "indexHints": { "ns": { "db": "test", "coll": "c" }, "allowedIndexes": allowed.into() } }
}

fn find(filter: Document) -> Document {
    doc! { "find": "c", "filter": filter }
}

fn for_test(mut query: Document) -> Document {
    query.insert("$db", "test");
    query
}

fn set(bench: &Bench, query: Document, settings: Document) -> Document {
    bench.admin(doc! { "setQuerySettings": for_test(query), "settings": settings })
}

fn remove(bench: &Bench, query: Document) {
    succeeded(bench.admin(doc! { "removeQuerySettings": for_test(query) }));
}

fn shown(bench: &Bench, options: Document) -> Vec<Document> {
    let stage = doc! { "$querySettings": options };
    first_batch(&succeeded(
        bench.admin(doc! { "aggregate": 1, "pipeline": [stage], "cursor": {} }),
    ))
}

fn planned(bench: &Bench, query: Document) -> Document {
    let explained = bench.ok(doc! { "explain": query, "verbosity": "queryPlanner" });
    match explained.get_array("stages") {
        Ok(stages) => {
            let first = stages[0].as_document().unwrap().get_document("$cursor").unwrap();
            first.get_document("queryPlanner").unwrap().clone()
        }
        Err(_) => explained.get_document("queryPlanner").unwrap().clone(),
    }
}

/// The index that the winning plan uses, or how the collection is read.
fn used(bench: &Bench, query: Document) -> String {
    let plan = planned(bench, query).get_document("winningPlan").unwrap().to_string();
    let name = ["a_1", "b_1", "ab"]
        .into_iter()
        .find(|name| plan.contains(&format!("\"{name}\"")));
    match name {
        Some(name) => name.to_owned(),
        None if plan.contains("\"backward\"") => "backward".to_owned(),
        None => "forward".to_owned(),
    }
}

#[test]
fn indexes_are_kept_to() {
    let bench = filled();
    let both = || find(doc! { "a": 1, "b": 1 });
    let reads = [
        both(),
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1, "b": 1 } }, { "$group": { "_id": "$t" } }], "cursor": {} },
        doc! { "distinct": "c", "key": "t", "query": { "a": 1, "b": 1 } },
    ];
    for read in reads {
        let before = used(&bench, read.clone());
        for (allowed, expected) in [
            (bson::bson!(["a_1"]), "a_1"),
            (bson::bson!([{ "b": 1 }]), "b_1"),
            (bson::bson!(["none", "ab"]), "ab"),
            (bson::bson!([{ "$natural": 1 }]), "forward"),
            (bson::bson!([{ "$natural": -1 }]), "backward"),
            // What is allowed beside an index is for when there is none that would do.
            (bson::bson!(["a_1", { "$natural": -1 }]), "a_1"),
            (bson::bson!(["none", { "$natural": -1 }]), "backward"),
            (bson::bson!(["none"]), before.as_str()),
        ] {
            succeeded(set(&bench, read.clone(), hints(allowed.clone())));
            assert_eq!(used(&bench, read.clone()), expected, "{read} {allowed}");
            // The client's own hint is not heard, whatever it is.
            if expected != before && !read.contains_key("distinct") {
                let mut hinted = read.clone();
                hinted.insert("hint", "nonesuch");
                assert_eq!(used(&bench, hinted), expected, "{read} {allowed}");
            }
        }
        remove(&bench, read.clone());
        assert_eq!(used(&bench, read), before);
    }
    // Queries of another shape are planned as ever; those of this one whatever their values are.
    succeeded(set(&bench, both(), hints(bson::bson!(["b_1"]))));
    assert_eq!(used(&bench, find(doc! { "a": 5, "b": 77 })), "b_1");
    assert_ne!(used(&bench, find(doc! { "a": 5, "b": "x" })), "b_1");
    // The results are the same, by plans that are remembered, too.
    for _ in 0..3 {
        assert_eq!(first_batch(&bench.ok(both())).len(), 2);
    }
}

/// Which index gives the values of a `distinct` is no matter of its own: another one is not taken where one that is
/// allowed answers the query.
#[test]
fn values_are_read_by_what_is_allowed() {
    let bench = filled();
    let distinct = |filter: Document| doc! { "distinct": "c", "key": "a", "query": filter };
    let query = distinct(doc! { "a": { "$gt": 0 }, "b": 5 });
    assert_eq!(used(&bench, query.clone()), "ab");
    for (allowed, expected) in [
        ("b_1", "b_1"),
        ("a_1", "a_1"),
        ("ab", "ab"),
        ("none", "ab"),
        // It cannot answer the query.
        ("_id_", "ab"),
    ] {
        succeeded(set(&bench, query.clone(), hints(bson::bson!([allowed]))));
        assert_eq!(used(&bench, query.clone()), expected, "{allowed}");
        let values = bench.ok(query.clone()).get_array("values").unwrap().clone();
        assert_eq!(values, [Bson::from(5)], "{allowed}");
    }
    // Without a filter an index is of use for its values alone.
    succeeded(set(&bench, distinct(doc! {}), hints(bson::bson!(["b_1"]))));
    assert_eq!(used(&bench, distinct(doc! {})), "a_1");
}

/// Benches draw the same uuids one after the other, and remembered plans are the process's: this one has a collection
/// with a uuid that no other test has.
#[test]
fn plans_are_remembered_for_what_was_set() {
    let bench = Bench::new();
    for _ in 0..300 {
        bench.ok(doc! { "create": "drawn" });
        bench.ok(doc! { "drop": "drawn" });
    }
    fill(&bench);
    let stats = |bench: &Bench| bench.aggregate("c", &[doc! { "$planCacheStats": {} }]);
    let both = || assert_eq!(first_batch(&bench.ok(find(doc! { "a": 1, "b": 1 }))).len(), 2);
    both();
    succeeded(set(
        &bench,
        find(doc! { "a": 1, "b": 1 }),
        hints(bson::bson!(["a_1", "b_1"])),
    ));
    both();
    let plans = stats(&bench);
    let of_settings: Vec<_> = plans.iter().filter(|plan| plan.contains_key("querySettings")).collect();
    assert_eq!((plans.len(), of_settings.len()), (2, 1), "{plans:?}");
    assert!(!of_settings[0].get_bool("indexFilterSet").unwrap());
    let shown = of_settings[0].get_document("querySettings").unwrap().to_string();
    assert!(shown.contains("a_1") && shown.contains("b_1"), "{shown}");
    // With others it is planned anew, and without any as before.
    succeeded(set(
        &bench,
        find(doc! { "a": 1, "b": 1 }),
        hints(bson::bson!(["ab", "b_1"])),
    ));
    both();
    assert_eq!(stats(&bench).len(), 3);
    remove(&bench, find(doc! { "a": 1, "b": 1 }));
    both();
    assert_eq!(stats(&bench).len(), 3);
}

#[test]
fn they_go_before_index_filters() {
    let bench = filled();
    let query = || find(doc! { "a": 2, "b": 2 });
    bench.ok(doc! { "planCacheSetFilter": "c", "query": { "a": 1, "b": 1 }, "indexes": ["a_1"] });
    let section = planned(&bench, query());
    assert!(section.get_bool("indexFilterSet").unwrap() && !section.contains_key("querySettings"));
    let settings = hints(bson::bson!(["b_1"]));
    succeeded(set(&bench, query(), settings));
    let section = planned(&bench, query());
    assert!(!section.get_bool("indexFilterSet").unwrap());
    let expected = doc! { "indexHints": [{ "ns": { "db": "test", "coll": "c" }, "allowedIndexes": ["b_1"] }] };
    assert_eq!(section.get_document("querySettings").unwrap(), &expected);
    assert_eq!(used(&bench, query()), "b_1");
    remove(&bench, query());
    assert_eq!(used(&bench, query()), "a_1");
    bench.ok(doc! { "planCacheClearFilters": "c" });
}

#[test]
fn an_index_of_its_kind_is_found_nevertheless() {
    let bench = filled();
    bench.ok(doc! { "createIndexes": "c", "indexes": [
        { "key": { "t": "text" }, "name": "t_text" }, { "key": { "p": "2d" }, "name": "p_2d" },
    ] });
    for (filter, count) in [
        (doc! { "$text": { "$search": "words" } }, 200),
        (doc! { "p": { "$near": [0, 0] } }, 0),
    ] {
        succeeded(set(&bench, find(filter.clone()), hints(bson::bson!(["a_1"]))));
        let mut query = find(filter.clone());
        query.insert("batchSize", 1000);
        assert_eq!(first_batch(&bench.ok(query)).len(), count, "{filter}");
    }
    // By a single value no planner is asked: but for what is set.
    succeeded(set(
        &bench,
        find(doc! { "b": 1 }),
        hints(bson::bson!([{ "$natural": 1 }])),
    ));
    assert_eq!(first_batch(&bench.ok(find(doc! { "b": 5 }))).len(), 2);
    assert_eq!(used(&bench, find(doc! { "b": 5 })), "forward");
    // Bounds of an index are those of the one that the client names.
    let mut bounded = find(doc! {});
    bounded.extend(doc! { "min": { "b": 98 }, "hint": "b_1" });
    succeeded(set(&bench, bounded.clone(), hints(bson::bson!(["a_1"]))));
    assert_eq!(first_batch(&bench.ok(bounded)).len(), 4);
}

#[test]
fn what_stages_open_is_read_so_too() {
    let bench = filled();
    bench.insert("d", &[doc! { "_id": 1, "a": 1 }]);
    let join = |stage: Document| doc! { "aggregate": "d", "pipeline": [stage], "cursor": {} };
    let lookups = [
        doc! { "$lookup": { "from": "c", "localField": "a", "foreignField": "a", "as": "found" } },
        doc! { "$lookup": { "from": "c", "pipeline": [{ "$match": { "a": 1 } }], "as": "found" } },
        doc! { "$unionWith": { "coll": "c", "pipeline": [{ "$match": { "a": 1 } }] } },
        doc! { "$graphLookup": {
            "from": "c", "startWith": "$a", "connectFromField": "none", "connectToField": "a", "as": "found",
        } },
    ];
    for lookup in lookups {
        let query = join(lookup.clone());
        let examined = |bench: &Bench| {
            let before = examined_by_all(bench);
            let rows = first_batch(&bench.ok(query.clone()));
            let found = rows[0].get_array("found").map_or(rows.len() - 1, Vec::len);
            assert_eq!(found, 20, "{lookup}");
            examined_by_all(bench) - before
        };
        let by_index = examined(&bench);
        assert!(by_index < 50, "{lookup}: {by_index}");
        succeeded(set(&bench, query.clone(), hints(bson::bson!([{ "$natural": 1 }]))));
        let by_scan = examined(&bench);
        assert!(by_scan >= 200, "{lookup}: {by_scan}");
        remove(&bench, query.clone());
        assert_eq!(examined(&bench), by_index, "{lookup}");
    }
}

#[test]
fn views_and_time_series_are_read_so() {
    let bench = filled();
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "t": "words" } }] });
    let mut query = find(doc! { "a": 1, "b": 1 });
    query.insert("find", "v");
    for allowed in ["a_1", "b_1"] {
        succeeded(set(&bench, query.clone(), hints(bson::bson!([allowed]))));
        assert_eq!(used(&bench, query.clone()), allowed);
    }
    let section = planned(&bench, query.clone());
    assert!(section.contains_key("querySettings"), "{section}");
    succeeded(set(&bench, query.clone(), doc! { "reject": true }));
    assert_eq!(bench.code(query), 411);
    bench.ok(find(doc! { "a": 1, "b": 1 }));

    bench.ok(doc! { "create": "s", "timeseries": { "timeField": "t", "metaField": "m" } });
    let measurements: Vec<_> = (0..50)
        .map(|n| doc! { "t": bson::DateTime::from_millis(n * 1000), "m": n as i32 % 5, "x": n as i32 })
        .collect();
    bench.insert("s", &measurements);
    bench.ok(doc! { "createIndexes": "s", "indexes": [
        { "key": { "m": 1 }, "name": "a_1" }, { "key": { "m": -1 }, "name": "b_1" },
    ] });
    let query = doc! { "find": "s", "filter": { "m": 3 } };
    for allowed in ["a_1", "b_1"] {
        let hints = doc! { "ns": { "db": "test", "coll": "s" }, "allowedIndexes": [allowed] };
        succeeded(set(&bench, query.clone(), doc! { "indexHints": hints }));
        assert_eq!(used(&bench, query.clone()), allowed);
        assert_eq!(first_batch(&bench.ok(query.clone())).len(), 10);
    }
}

/// Documents that all operations have looked at.
fn examined_by_all(bench: &Bench) -> i64 {
    let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
    let metrics = status.get_document("metrics").unwrap();
    let executor = metrics.get_document("queryExecutor").unwrap();
    executor.get_i64("scannedObjects").unwrap()
}

#[test]
fn queries_are_rejected() {
    let bench = filled();
    let others = || find(doc! { "a": "x" });
    for (query, alike) in [
        (find(doc! { "a": 1 }), find(doc! { "a": 77 })),
        (
            doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }], "cursor": {} },
            doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 5.5 } }], "cursor": { "batchSize": 1 } },
        ),
        (
            doc! { "distinct": "c", "key": "a", "query": { "b": 1 } },
            doc! { "distinct": "c", "key": "a", "query": { "b": 2 } },
        ),
    ] {
        let name = query.keys().next().unwrap().clone();
        let counted = |bench: &Bench, what: &str| {
            let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
            let commands = status
                .get_document("metrics")
                .unwrap()
                .get_document("commands")
                .unwrap();
            commands.get_document(&name).unwrap().get_i64(what).unwrap()
        };
        bench.ok(alike.clone());
        let (rejected, failed) = (counted(&bench, "rejected"), counted(&bench, "failed"));
        succeeded(set(&bench, query.clone(), doc! { "reject": true }));
        for refused in [&query, &alike] {
            let reply = bench.run(refused.clone());
            assert_eq!(code(&reply), 411, "{reply}");
            assert_eq!(reply.get_str("codeName").unwrap(), "QueryRejectedBySettings");
        }
        assert_eq!(counted(&bench, "rejected"), rejected + 2);
        assert_eq!(counted(&bench, "failed"), failed);
        let section = planned(&bench, alike.clone());
        assert_eq!(section.get_document("querySettings").unwrap(), &doc! { "reject": true });
        bench.ok(others());
        bench.ok(doc! { "count": "c", "query": { "a": 1 } });
        remove(&bench, alike);
        bench.ok(query);
    }
    let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
    let section = status.get_document("querySettings").unwrap();
    assert_eq!(section, &doc! { "count": 0_i64, "size": 0_i64, "rejectCount": 0_i64 });
}

#[test]
fn they_are_set_changed_shown_and_removed() {
    let bench = filled();
    let query = || for_test(find(doc! { "a": 15 }));
    let reply = set(
        &bench,
        find(doc! { "a": 15 }),
        doc! { "queryFramework": "classic", "comment": "slow" },
    );
    let hash = reply.get_str("queryShapeHash").unwrap().to_owned();
    let shape = doc! { "queryFramework": "classic", "comment": "slow" };
    assert_eq!(reply.get_document("settings").unwrap(), &shape);
    assert_eq!(reply.get_document("representativeQuery").unwrap(), &query());
    assert_eq!(
        shown(&bench, doc! { "showDebugQueryShape": true }),
        [doc! {
            "queryShapeHash": &hash, "settings": shape, "representativeQuery": query(),
            "debugQueryShape": {
                "cmdNs": { "db": "test", "coll": "c" }, "command": "find", "filter": { "a": { "$eq": "?number" } },
            },
        }]
    );
    let explained = bench.ok(doc! { "explain": find(doc! { "a": 1 }) });
    assert_eq!(explained.get_str("queryShapeHash").unwrap(), hash);
    // What is not given stays; the query that was given first does, too.
    let by_hash = |settings: Document| bench.admin(doc! { "setQuerySettings": &hash, "settings": settings });
    succeeded(by_hash(doc! { "reject": true }));
    succeeded(set(
        &bench,
        find(doc! { "a": 99 }),
        doc! { "comment": 5, "queryFramework": "sbe" },
    ));
    let now = doc! { "queryFramework": "sbe", "reject": true, "comment": 5 };
    let kept = doc! { "queryShapeHash": &hash, "settings": now, "representativeQuery": query() };
    assert_eq!(shown(&bench, doc! {}), std::slice::from_ref(&kept));
    let stored = first_batch(&succeeded(bench.run_on("config", doc! { "find": "clusterParameters" })));
    assert_eq!(stored[0].get_str("_id").unwrap(), "querySettings");
    assert_eq!(stored[0].get_array("settingsArray").unwrap(), &[Bson::from(kept)]);
    succeeded(by_hash(doc! { "reject": false }));
    bench.ok(find(doc! { "a": 7 }));
    succeeded(bench.admin(doc! { "removeQuerySettings": &hash }));
    succeeded(bench.admin(doc! { "removeQuerySettings": &hash }));
    assert!(shown(&bench, doc! {}).is_empty());
    // By the hash of a shape that nobody has seen: a query of it comes with the next change.
    succeeded(by_hash(doc! { "queryFramework": "sbe" }));
    assert!(!shown(&bench, doc! { "showDebugQueryShape": true })[0].contains_key("representativeQuery"));
    succeeded(set(&bench, find(doc! { "a": 3 }), doc! { "reject": true }));
    assert_eq!(
        shown(&bench, doc! {})[0].get_document("representativeQuery").unwrap(),
        &for_test(find(doc! { "a": 3 }))
    );
    assert_eq!(bench.code(find(doc! { "a": 4 })), 411);
    // Whoever changes them otherwise, a restore for one, is heard, too.
    succeeded(bench.run_on("config", doc! { "drop": "clusterParameters" }));
    bench.ok(find(doc! { "a": 4 }));
}

/// A newer version may have kept what this one knows nothing of.
#[test]
fn what_cannot_be_made_sense_of_is_kept() {
    let bench = filled();
    succeeded(set(&bench, find(doc! { "a": 1 }), doc! { "reject": true }));
    let config = |command: Document| succeeded(bench.run_on("config", command));
    let stored = || {
        let kept = first_batch(&config(doc! { "find": "clusterParameters" }));
        kept[0].get_array("settingsArray").unwrap().clone()
    };
    let hash_of = |filter: Document| {
        let explained = bench.ok(doc! { "explain": find(filter) });
        explained.get_str("queryShapeHash").unwrap().to_owned()
    };
    let known = hash_of(doc! { "b": 1 });
    let others = [
        Bson::from(doc! { "queryShapeHash": "F".repeat(64), "settings": { "reject": true, "newer": 1 } }),
        doc! { "queryShapeHash": &known, "settings": { "newer": [1, 2] } }.into(),
        doc! { "settings": { "reject": true } }.into(),
        "no document".into(),
    ];
    let change = doc! { "$push": { "settingsArray": { "$each": others.to_vec() } } };
    config(doc! { "update": "clusterParameters", "updates": [{ "q": {}, "u": change }] });
    assert_eq!(shown(&bench, doc! {}).len(), 1);
    // Each change writes all of them.
    succeeded(set(&bench, find(doc! { "t": "x" }), doc! { "reject": true }));
    assert_eq!(stored().len(), 6);
    assert!(others.iter().all(|other| stored().contains(other)));
    remove(&bench, find(doc! { "a": 1 }));
    assert_eq!(stored().len(), 5);
    // What is set for a shape anew takes the place of what was there; so does what is removed.
    succeeded(set(&bench, find(doc! { "b": 1 }), doc! { "reject": true }));
    let now = stored();
    assert_eq!((now.len(), now.contains(&others[1])), (5, false));
    assert!(now.contains(&others[0]) && now.contains(&others[3]));
    succeeded(bench.admin(doc! { "removeQuerySettings": "F".repeat(64) }));
    let now = stored();
    assert_eq!((now.len(), now.contains(&others[0])), (4, false));
}

#[test]
fn all_of_them_fit_into_a_document() {
    let bench = Bench::new();
    let long = || doc! { "reject": true, "comment": "x".repeat(9 << 20) };
    succeeded(set(&bench, find(doc! { "a": 1 }), long()));
    let reply = set(&bench, find(doc! { "b": 1 }), long());
    assert_eq!(code(&reply), 10334, "{}", reply.get_str("errmsg").unwrap());
    assert_eq!(bench.code(find(doc! { "a": 1 })), 411);
    bench.ok(find(doc! { "b": 1 }));
    let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
    let section = status.get_document("querySettings").unwrap();
    assert_eq!(
        section.get_i64("count").ok().zip(section.get_i64("rejectCount").ok()),
        Some((1, 1))
    );
    assert!(section.get_i64("size").unwrap() > 9 << 20);
}

#[test]
fn what_runs_shows_its_shape() {
    let bench = Bench::new();
    let command = doc! { "aggregate": 1, "pipeline": [{ "$currentOp": {} }], "cursor": {}, "$db": "admin" };
    let operations = first_batch(&succeeded(bench.admin(command.clone())));
    let explained = succeeded(bench.admin(doc! { "explain": command, "$db": "admin" }));
    let hash = explained.get_str("queryShapeHash").unwrap();
    assert!(
        operations
            .iter()
            .any(|operation| operation.get_str("queryShapeHash").is_ok_and(|shown| shown == hash)),
        "{operations:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = filled();
    let ns = doc! { "db": "test", "coll": "c" };
    let hint = |hint: Document| doc! { "indexHints": [hint] };
    let good = || find(doc! { "a": 1 });
    for (query, settings, expected) in [
        (good(), doc! {}, 7_746_604),
        (good(), doc! { "reject": false }, 7_746_604),
        (good(), doc! { "comment": "alone" }, 7_746_604),
        (good(), hints(Vec::<Bson>::new()), 7_746_604),
        (good(), doc! { "reject": 1 }, 14),
        (good(), doc! { "queryFramework": "other" }, 2),
        (good(), doc! { "queryFramework": 1 }, 14),
        (good(), doc! { "nonesuch": 1 }, 40415),
        (good(), doc! { "indexHints": 5 }, 14),
        (good(), hint(doc! { "allowedIndexes": ["a_1"] }), 40414),
        (good(), hint(doc! { "ns": ns.clone() }), 40414),
        (
            good(),
            hint(doc! { "ns": { "coll": "c" }, "allowedIndexes": ["a_1"] }),
            8_727_500,
        ),
        (
            good(),
            hint(doc! { "ns": { "db": "test" }, "allowedIndexes": ["a_1"] }),
            8_727_501,
        ),
        (
            good(),
            hint(doc! { "ns": { "db": 1, "coll": "c" }, "allowedIndexes": ["a_1"] }),
            14,
        ),
        (good(), hint(doc! { "ns": ns.clone(), "allowedIndexes": "a_1" }), 14),
        (good(), hint(doc! { "ns": ns.clone(), "allowedIndexes": [42] }), 9),
        (good(), hint(doc! { "ns": ns.clone(), "allowedIndexes": [{}] }), 9),
        (
            good(),
            hint(doc! { "ns": ns.clone(), "allowedIndexes": [{ "$natural": 2 }] }),
            2,
        ),
        (
            good(),
            doc! { "indexHints": [
                { "ns": ns.clone(), "allowedIndexes": ["a_1"] }, { "ns": ns.clone(), "allowedIndexes": ["b_1"] },
            ] },
            7_746_608,
        ),
        (doc! { "unknown": "c" }, doc! { "reject": true }, 7_746_402),
        (doc! { "count": "c" }, doc! { "reject": true }, 7_746_402),
        (find(doc! { "_id": 1 }), doc! { "reject": true }, 7_746_606),
        (find(doc! { "a": { "$nonesuch": 1 } }), doc! { "reject": true }, 2),
        (doc! { "find": "c", "nonesuch": 1 }, doc! { "reject": true }, 40415),
        (doc! { "find": "system.views" }, doc! { "reject": true }, 8_584_901),
        (
            doc! { "aggregate": 1, "pipeline": [{ "$querySettings": {} }], "cursor": {} },
            doc! { "reject": true },
            8_705_200,
        ),
    ] {
        let reply = set(&bench, query.clone(), settings.clone());
        assert_eq!(code(&reply), expected, "{query} {settings}: {reply}");
    }
    let admin = |command: Document| code(&bench.admin(command));
    let reject = || doc! { "reject": true };
    let of = |database: &str| doc! { "find": "c", "$db": database };
    for database in ["admin", "config", "local"] {
        assert_eq!(
            admin(doc! { "setQuerySettings": of(database), "settings": reject() }),
            8_584_900
        );
    }
    assert_eq!(admin(doc! { "setQuerySettings": of(""), "settings": reject() }), 73);
    assert_eq!(
        admin(doc! { "setQuerySettings": { "find": "c" }, "settings": reject() }),
        40414
    );
    assert_eq!(admin(doc! { "setQuerySettings": {}, "settings": reject() }), 7_746_402);
    assert_eq!(admin(doc! { "setQuerySettings": of("test") }), 40414);
    assert_eq!(admin(doc! { "setQuerySettings": 5, "settings": reject() }), 14);
    for command in ["setQuerySettings", "removeQuerySettings"] {
        let run = |hash: &str| {
            let mut command = doc! { command: hash };
            if command.contains_key("setQuerySettings") {
                command.insert("settings", reject());
            }
            admin(command)
        };
        assert_eq!((run(""), run("ABCD"), run(&"G".repeat(64))), (16, 16, 2));
        assert_eq!(
            code(&bench.run(doc! { command: "A".repeat(64), "settings": reject() })),
            13
        );
    }
    assert_eq!(
        admin(doc! { "removeQuerySettings": of("test"), "settings": reject() }),
        40415
    );
    let pipeline = |stages: Vec<Document>| doc! { "aggregate": 1, "pipeline": stages, "cursor": {} };
    let stage = doc! { "$querySettings": {} };
    assert_eq!(admin(pipeline(vec![doc! { "$documents": [] }, stage.clone()])), 40602);
    for (options, wanted) in [
        (doc! { "nonesuch": 1 }, 40415),
        (doc! { "": 1 }, 40415),
        (doc! { "showDebugQueryShape": null }, 14),
    ] {
        assert_eq!(admin(pipeline(vec![doc! { "$querySettings": options }])), wanted);
    }
    assert_eq!(
        bench.code(doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} }),
        73
    );
    assert!(shown(&bench, doc! {}).is_empty());
}
