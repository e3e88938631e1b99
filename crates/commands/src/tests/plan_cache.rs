//! Plans that are remembered, and index filters.

use super::*;

/// Benches draw the same uuids one after the other, and plans and filters are the process's: who asks about them has a
/// collection with a uuid that no other test has.
fn filled(drawn_before: usize) -> Bench {
    let bench = Bench::new();
    for _ in 0..drawn_before {
        bench.ok(doc! { "create": "drawn" });
        bench.ok(doc! { "drop": "drawn" });
    }
    let documents: Vec<_> = (0..200)
        .map(|id| doc! { "_id": id, "a": id % 10, "b": id % 100 })
        .collect();
    bench.insert("c", &documents);
    let index = |name: &str, key: Document| doc! { "key": key, "name": name };
    let indexes = [
        index("a_1", doc! { "a": 1 }),
        index("b_1", doc! { "b": 1 }),
        index("ab", doc! { "a": 1, "b": 1 }),
    ];
    bench.ok(doc! { "createIndexes": "c", "indexes": indexes.to_vec() });
    bench
}

fn plan(bench: &Bench, find: Document) -> (String, bool) {
    let explained = bench.ok(doc! { "explain": find, "verbosity": "queryPlanner" });
    let section = explained.get_document("queryPlanner").unwrap();
    let winning = section.get_document("winningPlan").unwrap().to_string();
    let name = ["a_1", "b_1", "ab"]
        .into_iter()
        .find(|name| winning.contains(&format!("\"{name}\"")));
    (
        name.unwrap_or("COLLSCAN").to_owned(),
        section.get_bool("indexFilterSet").unwrap(),
    )
}

fn remembered(bench: &Bench) -> Vec<Document> {
    bench.aggregate("c", &[doc! { "$planCacheStats": {} }])
}

#[test]
fn what_is_remembered_is_shown_and_forgotten() {
    let bench = filled(100);
    assert!(remembered(&bench).is_empty());
    bench.find("c", doc! { "a": 1, "b": 1 });
    bench.find("c", doc! { "a": 2, "b": { "$gt": 5 } });
    let plans = remembered(&bench);
    assert_eq!(plans.len(), 2);
    let explained = bench.ok(doc! { "explain": { "find": "c", "filter": { "a": 7, "b": 7 }, "sort": { "_id": 1 } } });
    let hash = explained
        .get_document("queryPlanner")
        .unwrap()
        .get_str("queryHash")
        .unwrap();
    let of_first: Vec<_> = plans
        .iter()
        .filter(|plan| plan.get_str("queryHash").unwrap() == hash)
        .collect();
    assert_eq!(of_first.len(), 1);
    let query = of_first[0].get_document("createdFromQuery").unwrap();
    assert_eq!(query.get_document("query").unwrap(), &doc! { "a": 1, "b": 1 });
    assert!(
        of_first[0]
            .get_document("cachedPlan")
            .unwrap()
            .to_string()
            .contains("IXSCAN")
    );
    assert_eq!(of_first[0].get_str("host").unwrap(), "host:27017");
    // Of one shape, whatever its values.
    bench.ok(doc! { "planCacheClear": "c", "query": { "a": 0, "b": 0 }, "sort": { "_id": 1 } });
    assert_eq!(remembered(&bench).len(), 1);
    bench.ok(doc! { "planCacheClear": "c" });
    assert!(remembered(&bench).is_empty());
    bench.ok(doc! { "planCacheClear": "none" });
    bench.ok(doc! { "planCacheClear": "none", "query": "x", "sort": 1 });
    bench.ok(doc! { "planCacheClearFilters": "none", "projection": { "a": 1 } });
    bench.ok(doc! { "planCacheListFilters": "c", "unknown": 1 });
    for bad in [
        doc! { "query": 42, "indexes": ["a_1"] },
        doc! { "query": {}, "indexes": 1 },
    ] {
        let mut filter = doc! { "planCacheSetFilter": "c" };
        filter.extend(bad);
        assert_eq!(bench.code(filter.clone()), 2, "{filter}");
    }
    assert_eq!(bench.code(doc! { "planCacheClear": "c", "sort": { "a": 1 } }), 2);
    assert_eq!(
        bench.code(doc! { "planCacheClear": "c", "query": { "$nonesuch": 1 } }),
        2
    );
}

/// The memory was full of the values of others' queries.
#[test]
fn of_large_queries_only_the_choice_is_remembered() {
    let bench = filled(180);
    let many: Vec<i32> = (0..5000).collect();
    bench.find("c", doc! { "a": 1, "b": { "$in": many } });
    let plans = remembered(&bench);
    assert_eq!(plans.len(), 1);
    assert!(plans[0].get_i64("works").unwrap() > 0);
    assert!(!plans[0].contains_key("createdFromQuery") && !plans[0].contains_key("cachedPlan"));
}

#[test]
fn the_planner_considers_what_a_filter_allows() {
    let bench = filled(110);
    let find = |hint: Option<&str>| {
        let mut find = doc! { "find": "c", "filter": { "a": 3, "b": 3 } };
        hint.map(|hint| find.insert("hint", hint));
        find
    };
    assert_eq!(plan(&bench, find(None)), ("ab".to_owned(), false));
    let set = |query: Document, indexes: Vec<Bson>| {
        bench.ok(doc! { "planCacheSetFilter": "c", "query": query, "indexes": indexes });
    };
    // By key, by name; it goes before a hint, and a query of another shape is free.
    set(doc! { "a": 0, "b": 0 }, vec![doc! { "b": 1 }.into()]);
    assert_eq!(plan(&bench, find(None)), ("b_1".to_owned(), true));
    assert_eq!(plan(&bench, find(Some("ab"))), ("b_1".to_owned(), true));
    assert!(!plan(&bench, doc! { "find": "c", "filter": { "a": 3 } }).1);
    assert_eq!(bench.find("c", doc! { "a": 3, "b": 3 }).len(), 2);
    set(doc! { "a": 0, "b": 0 }, vec!["a_1".into()]);
    assert_eq!(plan(&bench, find(None)), ("a_1".to_owned(), true));
    // One that allows no index that helps.
    set(doc! { "a": 0 }, vec!["b_1".into(), "none".into()]);
    assert_eq!(
        plan(&bench, doc! { "find": "c", "filter": { "a": 3 } }),
        ("COLLSCAN".to_owned(), true)
    );
    assert_eq!(bench.find("c", doc! { "a": 3 }).len(), 20);
    let listed = bench.ok(doc! { "planCacheListFilters": "c" });
    let filters = listed.get_array("filters").unwrap();
    assert_eq!(filters.len(), 2);
    assert!(filters.contains(&Bson::from(doc! {
        "query": { "a": 0, "b": 0 }, "sort": {}, "projection": {}, "indexes": ["a_1"],
    })));
    bench.ok(doc! { "planCacheClearFilters": "c", "query": { "a": 5, "b": 5 } });
    assert_eq!(plan(&bench, find(None)), ("ab".to_owned(), false));
    bench.ok(doc! { "planCacheClearFilters": "c" });
    assert_eq!(bench.ok(doc! { "planCacheListFilters": "c" }), doc! { "filters": [] });
    for (command, wanted) in [
        (doc! { "planCacheSetFilter": "c", "query": {}, "indexes": [] }, 2),
        (doc! { "planCacheSetFilter": "c", "query": {}, "indexes": [1] }, 2),
        (doc! { "planCacheSetFilter": "c", "query": {} }, 2),
        (doc! { "planCacheSetFilter": "c", "indexes": ["a_1"] }, 2),
        (
            doc! { "planCacheSetFilter": "none", "query": {}, "indexes": ["a_1"] },
            2,
        ),
    ] {
        assert_eq!(bench.code(command.clone()), wanted, "{command}");
    }
    assert_eq!(
        bench.ok(doc! { "planCacheListFilters": "none" }),
        doc! { "filters": [] }
    );
}

/// A filter was found for queries of every order of strings: one that has an index of its own scanned the collection.
#[test]
fn a_filter_is_for_one_order_of_strings() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1, "s": "a" }]);
    let orders = [("en", "a_1"), ("fr", "b_1")];
    for (locale, name) in orders {
        let index = doc! { "key": { "s": 1 }, "name": name, "collation": { "locale": locale } };
        bench.ok(doc! { "createIndexes": "c", "indexes": [index] });
    }
    for (locale, name) in orders {
        bench.ok(doc! {
            "planCacheSetFilter": "c", "query": { "s": "x" }, "collation": { "locale": locale }, "indexes": [name],
        });
        for (locale, name) in orders {
            let find = doc! { "find": "c", "filter": { "s": "a" }, "collation": { "locale": locale } };
            assert_eq!(plan(&bench, find).0, name);
        }
    }
    let listed = bench.ok(doc! { "planCacheListFilters": "c" });
    assert_eq!(listed.get_array("filters").unwrap().len(), 2);
}

/// Counts, writes, pipelines and `distinct` are planned alike.
#[test]
fn a_filter_counts_for_all_commands() {
    let bench = filled(120);
    bench.ok(doc! { "planCacheSetFilter": "c", "query": { "a": 0 }, "indexes": ["b_1"] });
    for command in [
        doc! { "count": "c", "query": { "a": 1 } },
        doc! { "distinct": "c", "key": "a", "query": { "a": 1 } },
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": 1 } }], "cursor": {} },
        doc! { "delete": "c", "deletes": [{ "q": { "a": 1 }, "limit": 0 }] },
        doc! { "update": "c", "updates": [{ "q": { "a": 1 }, "u": { "$set": { "x": 1 } }, "multi": true }] },
    ] {
        let explained = bench
            .ok(doc! { "explain": command.clone(), "verbosity": "queryPlanner" })
            .to_string();
        assert!(
            explained.contains("COLLSCAN") && !explained.contains("IXSCAN"),
            "{command}: {explained}"
        );
    }
}
