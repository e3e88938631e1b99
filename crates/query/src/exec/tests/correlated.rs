//! `$lookup` with a sub-pipeline and `$graphLookup`: however the documents of the other side are found, they are those
//! that a loop over the documents finds, which runs the sub-pipeline with constants for each.

use super::fixture::{Fixture, ns, pick, plain, seeds};
use super::generate::{collation, document, raw};
use crate::exec::{ExecContext, ExecState, aggregate};
use crate::plan::{AggregateRequest, IndexHints, QuerySettings};
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use std::sync::Arc;
use storage::Operation;
use vfs::SeededRandom;

const PATHS: [&str; 8] = ["_id", "a", "b", "c", "d.x", "d.z.w", "e", "d"];
/// What the foreign side is: a name, and the key and the options of its index.
const FOREIGN: [&str; 9] = [
    "none", "single", "compound", "hashed", "sparse", "partial", "wildcard", "collated", "view",
];

fn array(stages: &[Document]) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    stages.iter().for_each(|stage| array.push(raw(stage)));
    array
}

/// The results of a pipeline, in batches.
fn run(
    fixture: &Fixture,
    on: &str,
    stages: &[Document],
    variables: Option<&Document>,
    collation: Option<&RawDocumentBuf>,
    batch: usize,
) -> Result<Vec<Document>, String> {
    let (pipeline, variables) = (array(stages), variables.map(raw));
    let request = AggregateRequest {
        collation: collation.map(|collation| &**collation),
        variables: variables.as_deref(),
        ..AggregateRequest::new(ns(on), "test", &pipeline)
    };
    let op = fixture.op();
    let context = fixture.context(&op);
    let mut executor = aggregate(&context, &request).map_err(|error| error.to_string())?;
    let mut results: Vec<RawDocumentBuf> = Vec::new();
    loop {
        let mut sink = super::fixture::Limited(&mut results, batch);
        let state = executor.next_documents(&context, &mut sink);
        if state.map_err(|error| error.to_string())? != ExecState::More {
            return Ok(results.iter().map(|result| plain(result)).collect());
        }
    }
}

fn shown(documents: &[Document], is_ordered: bool) -> Vec<String> {
    // Debug tells the types and the bits of numbers.
    let mut shown: Vec<String> = documents.iter().map(|document| format!("{document:?}")).collect();
    if !is_ordered {
        shown.sort_unstable();
    }
    shown
}

/// A sub-pipeline that reads `$$v` and `$$w`, and whether its results have an order.
fn sub_pipeline(random: &SeededRandom, path: &str) -> (Vec<Document>, bool) {
    let field = format!("${path}");
    let equality = match pick(random, 6) {
        0 => doc! { "$eq": ["$$v", &field] },
        1 => doc! { "$eq": [&field, { "$ifNull": ["$$v", 1] }] },
        2 => doc! { "$and": [{ "$eq": [&field, "$$v"] }, { "$ne": ["$c", "$$w"] }] },
        3 => doc! { "$and": [{ "$gt": ["$_id", 3] }, { "$and": [{ "$eq": ["$$v", &field] }, true] }] },
        4 => doc! { "$or": [{ "$eq": [&field, "$$v"] }, { "$eq": ["$_id", 2] }] },
        _ => doc! { "$eq": [&field, "$$v"] },
    };
    let matches = match pick(random, 3) {
        0 => doc! { "$match": { "_id": { "$gte": 2 }, "$expr": equality } },
        1 => doc! { "$match": { "$and": [{ "$expr": equality }, { "$expr": { "$lte": ["$_id", 35] } }] } },
        _ => doc! { "$match": { "$expr": equality } },
    };
    let less = doc! { "$match": { "$expr": { "$lt": ["$a", "$$v"] } } };
    let by_id = doc! { "$sort": { "_id": 1 } };
    match pick(random, 16) {
        0 => (
            vec![matches, doc! { "$project": { "a": 1, "v": "$$v", "w": "$$w.x" } }],
            false,
        ),
        1 => (vec![matches, by_id, doc! { "$skip": 1 }, doc! { "$limit": 2 }], true),
        2 => (
            vec![doc! { "$addFields": { "s": { "$type": "$a" } } }, matches, by_id],
            true,
        ),
        3 => {
            let group = doc! { "_id": { "$type": "$b" }, "n": { "$sum": 1 }, "v": { "$max": "$$v" } };
            (vec![matches, doc! { "$group": group }], false)
        }
        4 => (
            vec![matches, doc! { "$unwind": "$d" }, doc! { "$set": { "w": "$$w" } }],
            false,
        ),
        5 => (vec![matches, doc! { "$count": "n" }], false),
        6 => (vec![by_id, doc! { "$limit": 20 }, matches], true),
        7 => (
            vec![
                doc! { "$match": { "a": { "$gte": 1 } } },
                by_id,
                less,
                doc! { "$limit": 3 },
            ],
            true,
        ),
        8 => (vec![less], false),
        9 => (vec![by_id, doc! { "$limit": 5 }], true),
        10 => (
            vec![
                matches,
                by_id,
                doc! { "$facet": { "all": [{ "$project": { "w": "$$w" } }] } },
            ],
            true,
        ),
        11 => {
            let inner = doc! {
                "from": "outer", "let": { "id": "$_id" }, "as": "again",
                "pipeline": [{ "$match": { "$expr": { "$and": [{ "$eq": ["$_id", "$$id"] }, { "$ne": ["$a", "$$v"] }] } } }],
            };
            (vec![matches, by_id, doc! { "$lookup": inner }], true)
        }
        12 => {
            let inner = doc! {
                "from": "outer", "as": "again",
                "pipeline": [{ "$sort": { "_id": 1 } }, { "$limit": 4 }, { "$project": { "v": "$$v" } }],
            };
            (vec![less, by_id, doc! { "$lookup": inner }], true)
        }
        13 => (
            vec![matches, by_id, doc! { "$replaceWith": { "id": "$_id", "v": "$$v" } }],
            true,
        ),
        14 => {
            let more = doc! { "coll": "outer", "pipeline": [{ "$match": { "$expr": { "$eq": ["$a", "$$v"] } } }] };
            (vec![matches, doc! { "$unionWith": more }], false)
        }
        _ => (vec![matches], false),
    }
}

fn fixture(random: &SeededRandom, seed: u64, path: &str) -> Fixture {
    let fixture = Fixture::new(seed);
    fixture.create("outer", rawdoc! {});
    for name in &FOREIGN[..8] {
        fixture.create(name, rawdoc! {});
    }
    let indexed = if path == "_id" { "a" } else { path };
    let order = [1, -1][pick(random, 2) as usize];
    let none = rawdoc! {};
    for (name, key, options) in [
        ("single", doc! { indexed: order }, none.clone()),
        ("compound", doc! { indexed: order, "k": 1 }, none.clone()),
        ("hashed", doc! { indexed: "hashed" }, none.clone()),
        ("sparse", doc! { indexed: order }, rawdoc! { "sparse": true }),
        (
            "partial",
            doc! { indexed: order },
            rawdoc! { "partialFilterExpression": { "c": { "$gte": 1 } } },
        ),
        ("wildcard", doc! { "$**": 1 }, none),
        (
            "collated",
            doc! { indexed: order },
            rawdoc! { "collation": { "locale": "en", "strength": 2 } },
        ),
    ] {
        fixture.index(name, raw(&key), options).expect("indexed");
    }
    fixture
        .storage
        .create_view(
            &fixture.op(),
            &ns("view"),
            "none",
            array(&[doc! { "$match": {} }]),
            &rawdoc! {},
        )
        .expect("created");
    for id in 0..1 + pick(random, 40) as i32 {
        fixture.insert("outer", &raw(&document(random, id))).expect("inserted");
    }
    for id in 0..40 {
        let document = raw(&document(random, id));
        // A hashed index takes no arrays, and others may refuse some, too: all have the same documents.
        let mut names = FOREIGN[..8].iter();
        let refused = names.find(|name| fixture.insert(name, &document).is_err());
        if let Some(refused) = refused {
            for name in FOREIGN.iter().take_while(|name| *name != refused) {
                remove(&fixture, name, id);
            }
        }
    }
    fixture
}

fn remove(fixture: &Fixture, name: &str, id: i32) {
    let filter = rawdoc! { "_id": id };
    let request = crate::plan::FindRequest::new(ns(name), &filter);
    let record = fixture.with(|context| {
        let mut executor = crate::exec::find(context, &request).expect("planned");
        executor.next_record(context).expect("read")
    });
    fixture.delete(name, record.expect("there"));
}

#[test]
fn a_sub_pipeline_finds_what_a_loop_finds() {
    for seed in seeds(60) {
        let random = SeededRandom::new(seed);
        let path = || PATHS[pick(&random, PATHS.len() as u64) as usize];
        let (local, foreign) = (path(), path());
        let fixture = fixture(&random, seed, foreign);
        let asked = collation(&random).map(|collation| raw(&collation));
        let asked = asked.as_ref();
        let (stages, is_ordered) = sub_pipeline(&random, foreign);
        let batch = 1 + pick(&random, 30) as usize;
        let values = doc! { "$project": { "_id": 0, "v": format!("${local}"), "w": "$d" } };
        let values = run(&fixture, "outer", &[values], None, None, 100).expect("values");
        for from in FOREIGN {
            if from == "view" && asked.is_some() {
                continue;
            }
            let story = format!("seed {seed}: {from}, {local} and {foreign}, {asked:?}, {stages:?}");
            let lookup = doc! {
                "from": from, "let": { "v": format!("${local}"), "w": "$d" }, "pipeline": &stages, "as": "found",
            };
            let joined = run(&fixture, "outer", &[doc! { "$lookup": lookup }], None, asked, batch);
            let by_loop = values.iter().map(|values| {
                let literal = |name: &str| match values.get(name) {
                    Some(value) => Bson::Document(doc! { "$literal": value.clone() }),
                    None => "$$REMOVE".into(),
                };
                let variables = doc! { "v": literal("v"), "w": literal("w") };
                let found = run(&fixture, from, &stages, Some(&variables), asked, 100)?;
                Ok(shown(&found, is_ordered))
            });
            let by_loop: Result<Vec<_>, String> = by_loop.collect();
            match (joined, by_loop) {
                (Ok(joined), Ok(by_loop)) => {
                    assert_eq!(joined.len(), by_loop.len(), "{story}");
                    for (document, expected) in joined.iter().zip(by_loop) {
                        let found = document.get_array("found").expect("an array").iter();
                        let found: Vec<Document> = found.map(|one| one.as_document().expect("one").clone()).collect();
                        assert_eq!(shown(&found, is_ordered), expected, "{story}\n{document}");
                    }
                }
                (Err(_), Err(_)) => {}
                (joined, by_loop) => panic!("{story}\n{joined:?}\n{by_loop:?}"),
            }
        }
    }
}

/// With `localField` and `foreignField` as well, and over a graph, a view is asked by filters alone.
#[test]
fn a_collection_finds_what_a_view_of_it_finds() {
    for seed in seeds(60) {
        let random = SeededRandom::new(seed);
        let path = || PATHS[pick(&random, PATHS.len() as u64) as usize];
        let (local, foreign) = (path(), path());
        let fixture = fixture(&random, seed, foreign);
        let (stages, is_ordered) = sub_pipeline(&random, path());
        let batch = 1 + pick(&random, 30) as usize;
        let lookup = doc! {
            "localField": local, "foreignField": foreign, "let": { "v": format!("${}", path()), "w": "$d" },
            "pipeline": &stages, "as": "found",
        };
        let mut graph = doc! {
            "startWith": format!("${local}"), "connectFromField": path(), "connectToField": foreign,
            "as": "found", "depthField": "depth",
        };
        if pick(&random, 2) == 0 {
            graph.insert("maxDepth", pick(&random, 4) as i32);
        }
        if pick(&random, 3) == 0 {
            graph.insert(
                "restrictSearchWithMatch",
                doc! { "$expr": { "$gt": ["$_id", 7] }, "a": { "$ne": 3 } },
            );
        }
        for (stage, argument, is_ordered) in [("$lookup", lookup, is_ordered), ("$graphLookup", graph, false)] {
            let found = |from: &str| {
                let mut argument = argument.clone();
                argument.insert("from", from);
                let found = run(&fixture, "outer", &[doc! { stage: argument }], None, None, batch)?;
                let found = found.iter().map(|document| {
                    let found = document.get_array("found").expect("an array").iter();
                    let found: Vec<Document> = found.map(|one| one.as_document().expect("one").clone()).collect();
                    shown(&found, is_ordered)
                });
                Ok::<_, String>(found.collect::<Vec<_>>())
            };
            let expected = found("view");
            for from in &FOREIGN[..8] {
                match (found(from), &expected) {
                    (Ok(found), Ok(expected)) => assert_eq!(found, *expected, "seed {seed}: {from}, {argument:?}"),
                    (Err(_), Err(_)) => {}
                    (found, expected) => panic!("seed {seed}: {from}, {argument:?}\n{found:?}\n{expected:?}"),
                }
            }
        }
    }
}

/// 100 documents, whose `k` two of 200 have each; `parent` leads from document to document.
fn pairs() -> Fixture {
    let fixture = Fixture::new(1);
    for name in ["outer", "inner"] {
        fixture.create(name, rawdoc! {});
    }
    for id in 0..100 {
        fixture
            .insert("outer", &rawdoc! { "_id": id, "k": id })
            .expect("inserted");
    }
    for id in 0..200 {
        let document = rawdoc! { "_id": id, "k": id % 100, "parent": id / 2 };
        fixture.insert("inner", &document).expect("inserted");
    }
    fixture
}

/// The results of one stage on `outer`, and the keys and documents examined.
fn examined(fixture: &Fixture, stage: &Document) -> (Vec<Document>, u64, u64) {
    examined_with(fixture, stage, None)
}

fn examined_with(
    fixture: &Fixture,
    stage: &Document,
    settings: Option<&Arc<QuerySettings>>,
) -> (Vec<Document>, u64, u64) {
    let pipeline = array(std::slice::from_ref(stage));
    let request = AggregateRequest::new(ns("outer"), "test", &pipeline);
    let op: Arc<Operation> = fixture.op();
    let context = ExecContext {
        settings,
        ..fixture.context(&op)
    };
    let mut executor = aggregate(&context, &request).expect("planned");
    let mut results: Vec<RawDocumentBuf> = Vec::new();
    while executor.next_documents(&context, &mut results).expect("results") == ExecState::More {}
    let counters = op.counters();
    (
        results.iter().map(|result| plain(result)).collect(),
        counters.keys_examined.get(),
        counters.docs_examined.get(),
    )
}

fn by_expr(rest: &[Document]) -> Document {
    let mut stages = vec![doc! { "$match": { "$expr": { "$eq": ["$k", "$$k"] } } }];
    stages.extend_from_slice(rest);
    doc! { "$lookup": { "from": "inner", "let": { "k": "$k" }, "pipeline": stages, "as": "found" } }
}

#[test]
fn an_equality_in_expr_is_a_join() {
    for rest in [
        vec![],
        vec![doc! { "$sort": { "parent": 1 } }, doc! { "$project": { "of": "$$k" } }],
    ] {
        let fixture = pairs();
        let (found, keys, documents) = examined(&fixture, &by_expr(&rest));
        assert!(
            found
                .iter()
                .all(|document| document.get_array("found").expect("an array").len() == 2)
        );
        // Once for the first document, once for all others.
        assert_eq!((keys, documents), (0, 100 + 2 * 200));
        fixture.index("inner", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
        let (by_index, keys, documents) = examined(&fixture, &by_expr(&rest));
        assert_eq!(by_index, found);
        assert_eq!((keys, documents), (200, 100 + 200));
    }
}

#[test]
fn what_is_the_same_for_every_document_is_read_twice_at_most() {
    let fixture = pairs();
    let lookup = |stages: Vec<Document>| {
        doc! { "$lookup": { "from": "inner", "let": { "k": "$k" }, "pipeline": stages, "as": "found" } }
    };
    let few = doc! { "$match": { "k": { "$lt": 3 } } };
    let sum = doc! { "$project": { "sum": { "$add": ["$k", "$$k"] } } };
    let (found, _, documents) = examined(&fixture, &lookup(vec![few.clone(), sum]));
    let of_last = found[99].get_array("found").expect("an array");
    assert_eq!(
        (of_last.len(), &of_last[0]),
        (6, &Bson::from(doc! { "_id": 0, "sum": 99 }))
    );
    assert_eq!(documents, 100 + 2 * 200);
    // Variables that nothing reads.
    let (_, _, documents) = examined(&fixture, &lookup(vec![few]));
    assert_eq!(documents, 100 + 200);
}

#[test]
fn a_graph_is_searched_by_index() {
    let fixture = pairs();
    let graph = doc! { "$graphLookup": {
        "from": "inner", "startWith": "$k", "connectFromField": "parent", "connectToField": "_id", "as": "found",
    } };
    let (found, keys, documents) = examined(&fixture, &graph);
    let chain: Vec<usize> = found
        .iter()
        .map(|one| one.get_array("found").expect("an array").len())
        .collect();
    assert_eq!((chain[0], chain[1], chain[99]), (1, 2, 8), "99 49 24 12 6 3 1 0");
    let all = chain.iter().sum::<usize>() as u64;
    assert_eq!((keys, documents), (all, 100 + all));
}

/// Where no join can be, the plan of the document before is taken with the bounds of other values.
#[test]
fn comparisons_in_expr_bound_an_index() {
    let fixture = pairs();
    fixture.index("inner", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
    let stages = array(&[doc! { "$match": {} }]);
    let created = fixture
        .storage
        .create_view(&fixture.op(), &ns("view"), "inner", stages, &rawdoc! {});
    created.expect("created");
    let range = doc! { "$and": [{ "$gte": ["$k", "$$k"] }, { "$lt": ["$k", { "$add": ["$$k", 2] }] }] };
    let equal = doc! { "$eq": ["$$k", "$k"] };
    for (from, predicate, found_by_each) in [("inner", range, 4), ("view", equal, 2)] {
        let stages = [doc! { "$match": { "$expr": predicate } }];
        let lookup = doc! { "from": from, "let": { "k": "$k" }, "pipeline": &stages[..], "as": "found" };
        let (found, keys, documents) = examined(&fixture, &doc! { "$lookup": lookup });
        let found: Vec<usize> = found
            .iter()
            .map(|one| one.get_array("found").expect("an array").len())
            .collect();
        assert_eq!(
            (found[0], found[50], found[99]),
            (found_by_each, found_by_each, 2),
            "{from}"
        );
        let all = found.iter().sum::<usize>() as u64;
        assert_eq!(documents, 100 + all, "{from}");
        // A scan of a range looks at the key behind it, too.
        assert!((all..=all + 100).contains(&keys), "{from}: {keys}");
    }
    let filter = rawdoc! { "$expr": { "$gt": [3, "$k"] } };
    let request = crate::plan::FindRequest::new(ns("inner"), &filter);
    let mut executor = fixture.with(|context| crate::exec::find(context, &request).expect("planned"));
    assert_eq!(executor.plan_summary().text, "IXSCAN { k: 1 }");
    assert_eq!(fixture.all(&mut executor, 100).len(), 6);
}

/// What the operator allows holds for every document, not for the first one only.
#[test]
fn restricted_indexes_stay_so_for_all_documents() {
    let fixture = pairs();
    fixture.index("inner", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
    let mut allowed = RawArrayBuf::new();
    allowed.push(rawdoc! { "$natural": 1 });
    let hints = IndexHints::parse(ns("inner"), &allowed).expect("hints");
    let settings = Arc::new(QuerySettings {
        hints: vec![hints],
        ..QuerySettings::default()
    });
    let (found, keys, documents) = examined_with(&fixture, &by_expr(&[]), Some(&settings));
    let twos = |document: &Document| document.get_array("found").expect("an array").len() == 2;
    assert!(found.iter().all(twos));
    assert_eq!((keys, documents), (0, 100 + 100 * 200));
}

/// Bounds that are right without arrays only are not used again once there is one.
#[test]
fn an_array_that_comes_meanwhile_is_found() {
    let fixture = pairs();
    fixture.index("inner", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
    let stages = [
        doc! { "$set": { "of": "$$k" } },
        doc! { "$match": { "k": { "$gte": 40, "$lte": 41 } } },
    ];
    let lookup = doc! { "from": "inner", "let": { "k": "$k" }, "pipeline": &stages[..], "as": "found" };
    let pipeline = array(&[doc! { "$lookup": lookup }]);
    let request = AggregateRequest::new(ns("outer"), "test", &pipeline);
    let mut executor = fixture.with(|context| aggregate(context, &request).expect("planned"));
    let mut found = Vec::new();
    fixture.batch(&mut executor, 1, &mut found);
    fixture
        .insert("inner", &rawdoc! { "_id": "arrays", "k": [1, 99] })
        .expect("inserted");
    while fixture.batch(&mut executor, 100, &mut found) == ExecState::More {}
    let found: Vec<usize> = found
        .iter()
        .map(|one| plain(one).get_array("found").expect("an array").len())
        .collect();
    assert_eq!((found.len(), found[0], found[1], found[99]), (100, 4, 5, 5));
}

/// A `$match` that reads variables bounds an index, wherever it is written: its stages ahead are not gathered.
#[test]
fn a_match_that_gets_to_the_front_bounds_an_index() {
    let fixture = Fixture::new(1);
    for name in ["outer", "inner"] {
        fixture.create(name, rawdoc! {});
    }
    for id in 0..300 {
        let document = rawdoc! { "_id": id, "kind": "A", "at": id };
        fixture.insert("inner", &document).expect("inserted");
    }
    for id in 0..10 {
        let document = rawdoc! { "_id": id, "at": id * 20 };
        fixture.insert("outer", &document).expect("inserted");
    }
    let key = rawdoc! { "kind": 1, "at": 1 };
    fixture.index("inner", key, rawdoc! {}).expect("indexed");
    let of_kind = doc! { "$match": { "kind": "A" } };
    let later = doc! { "$match": { "$expr": { "$gt": ["$at", "$$at"] } } };
    let (sort, first) = (doc! { "$sort": { "at": 1 } }, doc! { "$limit": 1 });
    for stages in [
        vec![of_kind.clone(), later.clone(), first.clone()],
        vec![of_kind, sort, later, first],
    ] {
        let lookup = doc! { "from": "inner", "let": { "at": "$at" }, "pipeline": &stages, "as": "found" };
        let (found, _, documents) = examined(&fixture, &doc! { "$lookup": lookup });
        for (id, document) in (0..).zip(&found) {
            let next = 20 * id + 1;
            let expected = vec![Bson::from(doc! { "_id": next, "kind": "A", "at": next })];
            assert_eq!(document.get_array("found").expect("an array"), &expected);
        }
        assert_eq!((found.len(), documents), (10, 20), "{stages:?}");
    }
}

/// What a join finds may be more than is gathered of it, where the stages behind it need no more than one by one.
#[test]
fn a_sub_pipeline_may_run_on_more_than_a_stage_holds() {
    let fixture = Fixture::new(1);
    for name in ["outer", "inner"] {
        fixture.create(name, rawdoc! {});
    }
    fixture.index("inner", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
    let pad = "x".repeat(4 << 20);
    for id in 0..30 {
        let document = rawdoc! { "_id": id, "k": 1, "pad": pad.as_str() };
        fixture.insert("inner", &document).expect("inserted");
    }
    for id in 0..3 {
        fixture
            .insert("outer", &rawdoc! { "_id": id, "k": 1 })
            .expect("inserted");
    }
    let count = doc! { "$group": { "_id": "$k", "n": { "$sum": 1 } } };
    let (found, ..) = examined(&fixture, &by_expr(&[count]));
    for document in &found {
        let expected = vec![Bson::from(doc! { "_id": 1, "n": 30 })];
        assert_eq!(document.get_array("found").expect("an array"), &expected);
    }
    assert_eq!(found.len(), 3);
    let (found, ..) = examined(&fixture, &by_expr(&[doc! { "$limit": 2 }]));
    assert!(
        found
            .iter()
            .all(|document| document.get_array("found").expect("an array").len() == 2)
    );
}
