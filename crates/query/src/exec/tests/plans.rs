//! Which plans are chosen, and what is told of them.

use super::cases::{aggregated, array, empty, ids, numbers};
use super::fixture::{Fixture, ns, plain};
use super::{count, distinct};
use crate::exec::{ExecState, explain, find};
use crate::plan::{
    AggregateRequest, CountRequest, DistinctRequest, ExplainRequest, ExplainedWrite, FindRequest, Hint, Verbosity,
    WriteKind,
};
use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, doc, rawdoc};
use storage::IndexSpec;
use wire::ErrorCode;

pub(super) fn explained(fixture: &Fixture, request: &ExplainRequest<'_>, verbosity: Verbosity) -> Document {
    plain(
        &fixture
            .with(|context| explain(context, request, verbosity))
            .expect("explained"),
    )
}

pub(super) fn winning(fixture: &Fixture, request: &FindRequest<'_>) -> Document {
    let document = explained(fixture, &ExplainRequest::Find(request), Verbosity::QueryPlanner);
    document
        .get_document("queryPlanner")
        .and_then(|planner| planner.get_document("winningPlan"))
        .expect("a plan")
        .clone()
}

/// `FETCH/IXSCAN`.
pub(super) fn stages(plan: &Document) -> String {
    let mut names = vec![plan.get_str("stage").expect("a stage").to_owned()];
    if let Ok(input) = plan.get_document("inputStage") {
        names.push(stages(input));
    }
    if let Ok(inputs) = plan.get_array("inputStages") {
        let inputs: Vec<String> = inputs
            .iter()
            .map(|input| stages(input.as_document().expect("a stage")))
            .collect();
        names.push(format!("({})", inputs.join(",")));
    }
    names.join("/")
}

#[test]
fn plans_have_the_expected_stages() {
    let fixture = numbers(200);
    let plan = |filter: &RawDocument, sort: Option<&RawDocument>, projection: Option<&RawDocument>| {
        stages(&winning(
            &fixture,
            &FindRequest {
                sort,
                projection,
                ..FindRequest::new(ns("c"), filter)
            },
        ))
    };
    let cases: [(RawDocumentBuf, Option<RawDocumentBuf>, &str); 9] = [
        (rawdoc! {}, None, "COLLSCAN"),
        (rawdoc! { "_id": 4 }, None, "EXPRESS_IXSCAN"),
        (rawdoc! { "b": 3 }, None, "COLLSCAN"),
        (rawdoc! { "a": 3 }, None, "FETCH/IXSCAN"),
        (rawdoc! { "b": 3 }, Some(rawdoc! { "b": 1 }), "SORT/COLLSCAN"),
        (rawdoc! { "a": 3 }, Some(rawdoc! { "b": 1 }), "FETCH/IXSCAN"),
        (
            rawdoc! { "a": { "$in": [3, 4] } },
            Some(rawdoc! { "b": 1 }),
            "SORT_MERGE/(FETCH/IXSCAN,FETCH/IXSCAN)",
        ),
        (
            rawdoc! { "$or": [{ "a": 3 }, { "_id": 5 }] },
            None,
            "FETCH/OR/(IXSCAN,IXSCAN)",
        ),
        (rawdoc! { "$or": [{ "a": 3 }, { "b": 5 }] }, None, "COLLSCAN"),
    ];
    for (filter, sort, wanted) in cases {
        assert_eq!(plan(&filter, sort.as_deref(), None), wanted, "{filter:?} {sort:?}");
    }
    let bounds = winning(
        &fixture,
        &FindRequest::new(ns("c"), &rawdoc! { "a": 3, "b": { "$gt": 2 } }),
    );
    let scan = bounds.get_document("inputStage").expect("an input");
    assert_eq!(
        scan.get_document("indexBounds").expect("bounds"),
        &doc! { "a": ["[3, 3]"], "b": ["[inf.0, 2)"] }
    );
    assert!(!bounds.contains_key("filter"), "the bounds are exact");
}

#[test]
fn an_or_of_many_branches_looks_each_up() {
    let fixture = numbers(2000);
    let or = |branches: i32, branch: fn(i32) -> RawDocumentBuf| {
        let mut list = RawArrayBuf::new();
        (0..branches).for_each(|i| list.push(branch(i)));
        rawdoc! { "$or": list }
    };
    let beginning = |request: &FindRequest<'_>| {
        let plan = stages(&winning(&fixture, request));
        plan.split(',').next().expect("a part").to_owned()
    };
    let filter = or(1500, |i| rawdoc! { "_id": i, "b": { "$exists": true } });
    let request = FindRequest::new(ns("c"), &filter);
    assert_eq!(beginning(&request), "FETCH/OR/(FETCH/IXSCAN");
    assert_eq!(ids(&fixture, &request), (0..1500).collect::<Vec<_>>());
    // What a branch finds and does not match, another may; the rest of the filter holds for all.
    let both = |i| rawdoc! { "a": i % 10, "b": i % 7, "_id": { "$mod": [16, i] } };
    let mut filter = or(16, both);
    filter.append(bson::raw::cstr!("c"), rawdoc! { "$exists": false });
    filter.append(bson::raw::cstr!("_id"), rawdoc! { "$lt": 1000 });
    let request = FindRequest::new(ns("c"), &filter);
    let wanted: Vec<i32> = (0..1000)
        .filter(|i| (i % 16) % 10 == i % 10 && (i % 16) % 7 == i % 7)
        .collect();
    let mut found = ids(&fixture, &request);
    found.sort_unstable();
    assert_eq!(found, wanted);
    // Scans that are merged are all open.
    let by_b = rawdoc! { "b": -1 };
    for (branches, wanted) in [(1000, "SORT_MERGE/(FETCH/IXSCAN"), (1001, "SORT/FETCH/OR/(IXSCAN")] {
        let filter = or(branches, |i| rawdoc! { "a": i, "b": { "$lt": 1000 } });
        let request = FindRequest {
            sort: Some(&by_b),
            ..FindRequest::new(ns("c"), &filter)
        };
        assert_eq!(beginning(&request), wanted);
        assert_eq!(ids(&fixture, &request).len(), 2000);
    }
}

/// Each of them was matched with all branches, as many as there are.
#[test]
fn what_a_branch_of_a_merged_or_finds_is_matched_with_that_branch_alone() {
    let fixture = numbers(200);
    let by_b = rawdoc! { "b": -1 };
    let or = rawdoc! {
        "$or": [{ "a": 1, "b": { "$mod": [2, 0] } }, { "a": 1, "_id": { "$mod": [3, 0] } }, { "a": 3 }],
    };
    let mut both = or.clone();
    both.append(bson::raw::cstr!("_id"), rawdoc! { "$lt": 150 });
    for (filter, below, shape, has_rest) in [
        (&or, 200, "FETCH/IXSCAN", false),
        (&both, 150, "FETCH/FETCH/IXSCAN", true),
    ] {
        let request = FindRequest {
            sort: Some(&by_b),
            ..FindRequest::new(ns("c"), filter)
        };
        let plan = winning(&fixture, &request);
        assert_eq!(stages(&plan), format!("SORT_MERGE/({shape},{shape},{shape})"));
        let mut filters = Vec::new();
        for branch in plan.get_array("inputStages").expect("branches") {
            let branch = branch.as_document().expect("a stage");
            let own = match has_rest {
                true => branch.get_document("inputStage").expect("a stage"),
                false => branch,
            };
            filters.push(own.get_document("filter").ok().map(Document::to_string));
        }
        let tells = |branch: usize, text: &str| filters[branch].as_ref().is_some_and(|own| own.contains(text));
        assert!(
            tells(0, "[2, 0]") && !tells(0, "[3, 0]") && !tells(0, "$or"),
            "{filters:?}"
        );
        assert!(
            tells(1, "[3, 0]") && !tells(1, "[2, 0]") && !tells(1, "$lt"),
            "{filters:?}"
        );
        // Its bounds say it all, where nothing stands beside the branches.
        assert_eq!(filters[2].is_some(), has_rest);
        let wanted: Vec<i32> = (0..below)
            .filter(|i| i % 10 == 3 || i % 10 == 1 && (i % 7 % 2 == 0 || i % 3 == 0))
            .collect();
        let mut found = ids(&fixture, &request);
        assert!(found.is_sorted_by_key(|i| -(i % 7)), "{found:?}");
        found.sort_unstable();
        assert_eq!(found, wanted);
    }
}

/// An index that was hinted at was passed over, or the order was that of the hint.
#[test]
fn an_order_as_stored_goes_with_no_other_hint() {
    let fixture = numbers(10);
    let filter = empty();
    let (forward, reverse) = (rawdoc! { "$natural": 1 }, rawdoc! { "$natural": -1 });
    let key = rawdoc! { "a": 1, "b": -1 };
    let found = |hint: Option<Hint<'_>>| {
        let request = FindRequest {
            sort: Some(&reverse),
            hint,
            ..FindRequest::new(ns("c"), &filter)
        };
        fixture
            .with(|context| find(context, &request))
            .map(|_| ids(&fixture, &request))
    };
    let all: Vec<i32> = (0..10).rev().collect();
    let code = |hint: Hint<'_>| found(Some(hint)).expect_err("refused").code();
    assert_eq!(found(None).ok().as_ref(), Some(&all));
    assert_eq!(found(Some(Hint::Key(&reverse))).ok().as_ref(), Some(&all));
    assert_eq!(code(Hint::Key(&forward)), Some(ErrorCode::BadValue));
    assert_eq!(code(Hint::Key(&key)), Some(ErrorCode::BadValue));
    assert_eq!(code(Hint::Name("_id_")), Some(ErrorCode::BadValue));
}

#[test]
fn counts_come_from_where_they_are_cheapest() {
    let fixture = numbers(100);
    let n = |filter: &RawDocument, skip: u64, limit: Option<u64>| {
        let request = CountRequest {
            skip,
            limit,
            ..CountRequest::new(ns("c"), filter)
        };
        fixture.with(|context| count(context, &request)).expect("counted")
    };
    assert_eq!(n(&empty(), 0, None), 100);
    assert_eq!(n(&empty(), 90, Some(30)), 10);
    assert_eq!(n(&rawdoc! { "a": 3 }, 0, None), 10);
    assert_eq!(n(&rawdoc! { "a": 3 }, 2, Some(5)), 5);
    assert_eq!(n(&rawdoc! { "_id": 3 }, 0, None), 1);
    assert_eq!(n(&rawdoc! { "_id": 300 }, 0, None), 0);
    assert_eq!(n(&rawdoc! { "b": 300 }, 0, None), 0);
    let plan = |filter: &RawDocument| {
        let request = CountRequest::new(ns("c"), filter);
        let document = explained(&fixture, &ExplainRequest::Count(&request), Verbosity::ExecutionStats);
        let stats = document.get_document("executionStats").expect("statistics");
        let plan = document
            .get_document("queryPlanner")
            .and_then(|p| p.get_document("winningPlan"))
            .expect("a plan");
        (stages(plan), stats.get_i32("totalDocsExamined").expect("a figure"))
    };
    assert_eq!(plan(&empty()), ("RECORD_STORE_FAST_COUNT".to_owned(), 0));
    assert_eq!(plan(&rawdoc! { "a": 3 }), ("COUNT/COUNT_SCAN".to_owned(), 0));
    assert_eq!(plan(&rawdoc! { "b": 3 }), ("COUNT/COLLSCAN".to_owned(), 100));
}

#[test]
fn distinct_skips_through_an_index() {
    let fixture = numbers(1000);
    let filter = empty();
    let request = DistinctRequest::new(ns("c"), "a", &filter);
    let values = fixture.with(|context| distinct(context, &request)).expect("values");
    assert_eq!(values, (0..10).map(Bson::Int32).collect::<Vec<_>>());
    let document = explained(&fixture, &ExplainRequest::Distinct(&request), Verbosity::ExecutionStats);
    let stats = document.get_document("executionStats").expect("statistics");
    assert_eq!(
        stats
            .get_document("executionStages")
            .and_then(|s| s.get_str("stage"))
            .ok(),
        Some("DISTINCT_SCAN")
    );
    assert!(stats.get_i32("totalKeysExamined").expect("a figure") < 30);
}

#[test]
fn explain_tells_what_ran() {
    let fixture = numbers(100);
    let filter = rawdoc! { "a": 3 };
    let request = FindRequest::new(ns("c"), &filter);
    let document = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::AllPlansExecution);
    let planner = document.get_document("queryPlanner").expect("a planner section");
    assert_eq!(planner.get_str("namespace").ok(), Some("test.c"));
    assert_eq!(
        planner.get_document("parsedQuery").ok(),
        Some(&doc! { "a": { "$eq": 3 } })
    );
    assert_eq!(planner.get_array("rejectedPlans").map(Vec::len).ok(), Some(1));
    let stats = document.get_document("executionStats").expect("statistics");
    for (name, wanted) in [("nReturned", 10), ("totalKeysExamined", 10), ("totalDocsExamined", 10)] {
        assert_eq!(stats.get_i32(name).ok(), Some(wanted), "{name}");
    }
    // The winner and the one that it was chosen over.
    assert_eq!(stats.get_array("allPlansExecution").map(Vec::len).ok(), Some(2));
    let one = FindRequest {
        limit: Some(1),
        for_write: true,
        ..request
    };
    for (kind, name) in [
        (WriteKind::Update, "UPDATE/LIMIT/FETCH/IXSCAN"),
        (WriteKind::Delete, "DELETE/LIMIT/FETCH/IXSCAN"),
    ] {
        let document = explained(
            &fixture,
            &ExplainRequest::Write(&one, ExplainedWrite::of(kind)),
            Verbosity::ExecutionStats,
        );
        let stats = document.get_document("executionStats").expect("statistics");
        assert_eq!(stages(stats.get_document("executionStages").expect("stages")), name);
    }
    let count = fixture
        .with(|context| count(context, &CountRequest::new(ns("c"), &filter)))
        .expect("counted");
    assert_eq!(count, 10, "explain changes nothing");
}

/// The plan of a query that fails was lost with it.
#[test]
fn explain_tells_the_plan_of_what_fails() {
    let fixture = numbers(100);
    let filter = rawdoc! { "a": 3, "$expr": { "$divide": [1, { "$subtract": ["$b", 3] }] } };
    let request = FindRequest::new(ns("c"), &filter);
    let document = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::ExecutionStats);
    let planner = document.get_document("queryPlanner").expect("a planner section");
    assert_eq!(
        stages(planner.get_document("winningPlan").expect("a plan")),
        "FETCH/IXSCAN"
    );
    let stats = document.get_document("executionStats").expect("statistics");
    assert_eq!(stats.get_bool("executionSuccess").ok(), Some(false));
    assert_eq!(stats.get_i32("errorCode").ok(), Some(ErrorCode::BadValue.0));
    assert!(
        stats
            .get_str("errorMessage")
            .is_ok_and(|text| text.contains("divide by zero")),
        "{stats}"
    );
    assert_eq!(
        stages(stats.get_document("executionStages").expect("stages")),
        "FETCH/IXSCAN"
    );
}

/// Rejected plans were run to their ends.
#[test]
fn explain_tells_how_far_candidates_came() {
    let fixture = numbers(3000);
    let filter = rawdoc! { "a": 3, "_id": { "$gte": 0 } };
    let request = FindRequest::new(ns("c"), &filter);
    let document = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::AllPlansExecution);
    let stats = document.get_document("executionStats").expect("statistics");
    assert_eq!(stats.get_i32("nReturned").ok(), Some(300));
    let tried = stats.get_array("allPlansExecution").expect("candidates");
    let returned = |plan: &Bson| plan.as_document().and_then(|plan| plan.get_i32("nReturned").ok());
    assert_eq!(tried.len(), 3, "{tried:?}");
    assert!(
        tried.iter().all(|plan| returned(plan).is_some_and(|n| n < 300)),
        "{tried:?}"
    );
    assert_eq!(returned(&tried[0]), Some(101), "{tried:?}");
}

#[test]
fn pipelines_start_from_a_plan() {
    let fixture = numbers(100);
    let found = aggregated(
        &fixture,
        "c",
        &[
            doc! { "$match": { "a": 3 } },
            doc! { "$sort": { "_id": -1 } },
            doc! { "$limit": 2 },
        ],
    );
    assert_eq!(
        found
            .iter()
            .map(|d| d.get_i32("_id").expect("an _id"))
            .collect::<Vec<_>>(),
        [93, 83]
    );
    let counted = aggregated(&fixture, "c", &[doc! { "$match": { "a": 3 } }, doc! { "$count": "n" }]);
    assert_eq!(counted, [doc! { "n": 10 }]);
    let grouped = aggregated(&fixture, "c", &[doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }]);
    assert_eq!(grouped, [doc! { "_id": 1, "n": 100 }]);
    assert_eq!(
        aggregated(&fixture, "none", &[doc! { "$count": "n" }]),
        Vec::<Document>::new()
    );
    let sums = [
        doc! { "$match": { "a": { "$lt": 2 } } },
        doc! { "$group": { "_id": "$a", "n": { "$sum": "$b" } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let sum = |a: i32| (0..100).filter(|i| i % 10 == a).map(|i| i % 7).sum::<i32>();
    assert_eq!(
        aggregated(&fixture, "c", &sums),
        [doc! { "_id": 0, "n": sum(0) }, doc! { "_id": 1, "n": sum(1) }]
    );
    let pipeline = array(&sums);
    let request = AggregateRequest::new(ns("c"), "test", &pipeline);
    let document = explained(&fixture, &ExplainRequest::Aggregate(&request), Verbosity::QueryPlanner);
    let cursor = document.get_array("stages").expect("stages")[0]
        .as_document()
        .and_then(|s| s.get_document("$cursor").ok());
    let plan = cursor.and_then(|c| {
        c.get_document("queryPlanner")
            .and_then(|p| p.get_document("winningPlan"))
            .ok()
    });
    assert_eq!(stages(plan.expect("a plan")), "PROJECTION_COVERED/IXSCAN");
}

#[test]
fn fields_below_one_array_are_bound_together_only_inside_one_element() {
    let fixture = Fixture::new(9);
    fixture.create("c", empty());
    fixture
        .index("c", rawdoc! { "d.x": 1, "d.y": 1 }, empty())
        .expect("indexed");
    fixture
        .insert(
            "c",
            &rawdoc! { "_id": 1, "d": [{ "x": 1, "y": 2 }, { "x": 3, "y": 4 }] },
        )
        .expect("inserted");
    let bounds = |filter: &RawDocument| {
        let plan = winning(&fixture, &FindRequest::new(ns("c"), filter));
        let scan = plan.get_document("inputStage").expect("an input");
        scan.get_document("indexBounds").expect("bounds").clone()
    };
    let apart = rawdoc! { "d.x": 1, "d.y": 4 };
    assert_eq!(bounds(&apart), doc! { "d.x": ["[1, 1]"], "d.y": ["[MinKey, MaxKey]"] });
    assert_eq!(ids(&fixture, &FindRequest::new(ns("c"), &apart)), [1]);
    let together = rawdoc! { "d": { "$elemMatch": { "x": 1, "y": 4 } } };
    assert_eq!(bounds(&together), doc! { "d.x": ["[1, 1]"], "d.y": ["[4, 4]"] });
    assert_eq!(ids(&fixture, &FindRequest::new(ns("c"), &together)), Vec::<i32>::new());
    assert_eq!(
        ids(
            &fixture,
            &FindRequest::new(ns("c"), &rawdoc! { "d": { "$elemMatch": { "x": 3, "y": 4 } } })
        ),
        [1]
    );
}

/// Which documents a partial index holds is told by its own order of strings: in English `a` comes before `Z`, in
/// binary order behind it.
#[test]
fn a_partial_index_with_a_collation_does_not_answer_by_the_order_of_other_strings() {
    let fixture = Fixture::new(10);
    fixture.create("c", empty());
    let partial = |filter: RawDocumentBuf| {
        let collation = rawdoc! { "locale": "en" };
        rawdoc! { "partialFilterExpression": filter, "collation": collation }
    };
    for (key, filter) in [
        (rawdoc! { "b": 1 }, rawdoc! { "a": { "$gt": "Z" } }),
        (rawdoc! { "d": 1 }, rawdoc! { "a": { "$in": ["a", "b", "Z"] } }),
        (
            rawdoc! { "e": 1 },
            rawdoc! { "a": { "$exists": true }, "f": { "$gte": 5 } },
        ),
    ] {
        fixture.index("c", key, partial(filter)).expect("indexed");
    }
    for (id, a) in ["B", "a", "b", "Z", "zz"].into_iter().enumerate() {
        let document = rawdoc! { "_id": id as i32, "a": a, "b": 1, "d": 1, "e": 1, "f": 5 };
        fixture.insert("c", &document).expect("inserted");
    }
    let cases = [
        (rawdoc! { "b": 1, "a": { "$gt": "Z" } }, "COLLSCAN", vec![1, 2, 4]),
        (rawdoc! { "d": 1, "a": { "$in": ["a", "Z"] } }, "COLLSCAN", vec![1, 3]),
        // Where no strings are compared, one order is as good as the other.
        (
            rawdoc! { "e": 1, "a": { "$lt": "Z" }, "f": { "$gt": 4.5, "$gte": 5 } },
            "FETCH/IXSCAN",
            vec![0],
        ),
    ];
    for (filter, plan, wanted) in cases {
        let request = FindRequest::new(ns("c"), &filter);
        assert_eq!(stages(&winning(&fixture, &request)), plan, "{filter:?}");
        assert_eq!(ids(&fixture, &request), wanted, "{filter:?}");
    }
}

/// It was parsed for each plan.
#[test]
fn the_filter_of_a_partial_index_is_not_read_to_plan_a_query() {
    let fixture = Fixture::new(12);
    fixture.create("c", empty());
    let mut list = RawArrayBuf::new();
    (0..5000).for_each(|i| list.push(i));
    let partial = rawdoc! { "a": { "$in": list } };
    let spec = rawdoc! { "v": 2, "key": { "b": 1 }, "name": "by_b", "partialFilterExpression": partial };
    let spec = IndexSpec::from_document(&spec).expect("a specification");
    fixture
        .storage
        .create_indexes(&fixture.op(), &ns("c"), &[spec])
        .expect("indexed");
    for (a, plan) in [(7, "IXSCAN { b: 1 }"), (7000, "COLLSCAN")] {
        let filter = rawdoc! { "a": a, "b": 1 };
        let request = FindRequest::new(ns("c"), &filter);
        let walked = crate::raw::walked::most(|| {
            let executor = fixture.with(|context| find(context, &request)).expect("planned");
            assert_eq!(executor.plan_summary().text, plan);
        });
        assert!(walked < 1000, "{walked} elements");
    }
}

#[test]
fn a_tailable_query_takes_no_plan_that_another_of_its_shape_has_found() {
    let fixture = Fixture::new(11);
    fixture.create("log", rawdoc! { "capped": true, "size": 1 << 20 });
    for key in [rawdoc! { "a": 1 }, rawdoc! { "b": 1 }] {
        fixture.index("log", key, empty()).expect("indexed");
    }
    for i in 0..200 {
        let document = rawdoc! { "_id": i, "a": i % 3, "b": i % 5 };
        fixture.insert("log", &document).expect("inserted");
    }
    let filter = rawdoc! { "a": 1, "b": 2 };
    let plain = FindRequest::new(ns("log"), &filter);
    assert_eq!(ids(&fixture, &plain).len(), 13);
    let summary = |request: &FindRequest<'_>| {
        let found = fixture.with(|context| find(context, request)).expect("planned");
        found.plan_summary().text
    };
    assert!(summary(&plain).starts_with("IXSCAN"), "remembered");
    let tailable = FindRequest {
        tailable: true,
        ..plain
    };
    let mut tail = fixture.with(|context| find(context, &tailable)).expect("planned");
    assert_eq!(tail.plan_summary().text, "COLLSCAN");
    let mut documents = Vec::new();
    assert_eq!(fixture.batch(&mut tail, 100, &mut documents), ExecState::CaughtUp);
    assert_eq!(documents.len(), 13);
}

/// Each path was a candidate, found by walking over all others: a filter of 12,000 fields was planned for minutes.
#[test]
fn a_wildcard_index_is_asked_for_the_paths_that_promise_most() {
    let fixture = Fixture::new(12);
    fixture.create("c", empty());
    fixture.index("c", rawdoc! { "$**": 1 }, empty()).expect("indexed");
    for i in 0..20 {
        let fields = (0..200).map(|field| (format!("f{field}"), Bson::Int32(field % 7 + i)));
        let document: Document = [("_id".to_owned(), Bson::Int32(i))].into_iter().chain(fields).collect();
        let document = RawDocumentBuf::try_from(&document).expect("BSON");
        fixture.insert("c", &document).expect("inserted");
    }
    for count in [2, 64, 65, 200] {
        // All but the last are ranges.
        let mut filter: Document = (0..count)
            .map(|field| (format!("f{field}"), doc! { "$gte": 3 }.into()))
            .collect();
        let last = count - 1;
        filter.insert(format!("f{last}"), last % 7 + 5);
        let filter = RawDocumentBuf::try_from(&filter).expect("BSON");
        let request = FindRequest::new(ns("c"), &filter);
        assert_eq!(ids(&fixture, &request), [5], "{count}");
        let document = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::QueryPlanner);
        let planner = document.get_document("queryPlanner").expect("a section");
        let rejected = planner.get_array("rejectedPlans").expect("a list").len();
        assert_eq!(rejected + 1, usize::try_from(count.min(64)).expect("positive"));
        let scanned = planner
            .get_document("winningPlan")
            .and_then(|plan| plan.get_document("inputStage"));
        let keys = scanned
            .and_then(|scan| scan.get_document("keyPattern"))
            .expect("a scan");
        assert!(keys.contains_key(format!("f{last}")), "{keys} is no equality");
    }
}

/// Each of many scans showed the whole `$or`, so that an explanation grew with the square of its branches.
#[test]
fn an_explanation_grows_with_the_branches_and_not_with_their_square() {
    let fixture = Fixture::new(1);
    fixture.create("c", rawdoc! {});
    fixture
        .index("c", rawdoc! { "a": 1, "b": 1 }, rawdoc! {})
        .expect("indexed");
    for i in 0..50 {
        fixture
            .insert("c", &rawdoc! { "_id": i, "a": i, "b": 50 - i })
            .expect("inserted");
    }
    let mut branches = RawArrayBuf::new();
    for i in 0..900 {
        branches.push(rawdoc! { "a": i, "c": format!("{i}{}", "x".repeat(100)) });
    }
    let (filter, sort) = (rawdoc! { "$or": branches }, rawdoc! { "b": 1 });
    let request = FindRequest {
        sort: Some(&sort),
        ..FindRequest::new(ns("c"), &filter)
    };
    let document = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::AllPlansExecution);
    let bytes = RawDocumentBuf::try_from(&document).expect("BSON").as_bytes().len();
    assert!(bytes < 4 << 20, "{bytes}");
    let planner = document.get_document("queryPlanner").expect("a planner section");
    assert!(planner.contains_key("parsedQuery") && planner.contains_key("winningPlan"));
    assert!(document.contains_key("executionStats"));
    assert!(!document.to_string().contains("warning"), "all of it is told");
}

/// After the last plan that there was room for, others could be missing without a warning.
#[test]
fn rejected_plans_that_are_left_out_have_a_warning_in_their_place() {
    let fixture = Fixture::new(1);
    fixture.create("c", empty());
    for key in [
        rawdoc! { "a": 1 },
        rawdoc! { "b": 1 },
        rawdoc! { "c": 1 },
        rawdoc! { "d": 1 },
        rawdoc! { "e": 1 },
        rawdoc! { "f": 1 },
    ] {
        fixture.index("c", key, empty()).expect("indexed");
    }
    for i in 0..20 {
        fixture
            .insert(
                "c",
                &rawdoc! { "_id": i, "a": i, "b": i, "c": i, "d": i, "e": i, "f": i },
            )
            .expect("inserted");
    }
    // Two of 10 MiB are for the query, and two for each plan: the third one of the five rejected ones has the last.
    let long = "x".repeat(2 << 20);
    let filter = rawdoc! { "a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "x": long };
    let request = FindRequest::new(ns("c"), &filter);
    let document = explained(&fixture, &ExplainRequest::Find(&request), Verbosity::QueryPlanner);
    let rejected = document
        .get_document("queryPlanner")
        .and_then(|planner| planner.get_array("rejectedPlans"))
        .expect("a list");
    let is_warning = |plan: &Bson| plan.as_document().is_some_and(|plan| plan.contains_key("warning"));
    let warnings: Vec<bool> = rejected.iter().map(is_warning).collect();
    assert_eq!(warnings, [false, false, false, true]);
}
