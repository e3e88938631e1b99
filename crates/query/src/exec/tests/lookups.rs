//! Look-ups by a value that a single index is on: what is found without a planner is what a scan finds, by the plan
//! that the planner makes.

use super::fixture::{Fixture, ns, pick, seeds};
use super::generate::{document, raw, wildcard};
use crate::exec::executor::Body;
use crate::exec::find::expression_context;
use crate::exec::{PlanExecutor, find};
use crate::plan::index_filters::IndexFilters;
use crate::plan::query::Query;
use crate::plan::{FindRequest, Hint};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use vfs::SeededRandom;

/// Whether the plan was known without a planner: then nothing was parsed, and there is no filter.
fn is_known(executor: &PlanExecutor) -> bool {
    matches!(&executor.body, Body::Plan(planned) if planned.query.filter.is_none())
}

fn executor(fixture: &Fixture, request: &FindRequest<'_>) -> PlanExecutor {
    fixture.with(|context| find(context, request).expect("planned"))
}

fn found(fixture: &Fixture, request: &FindRequest<'_>, batch: usize) -> (Vec<i32>, String, (u64, u64)) {
    let mut executor = executor(fixture, request);
    let summary = executor.plan_summary().text.into_owned();
    let results = fixture.all(&mut executor, batch);
    let mut found: Vec<i32> = results
        .iter()
        .map(|result| result.get_i32("_id").expect("an _id"))
        .collect();
    found.sort_unstable();
    (found, summary, executor.examined())
}

#[test]
fn they_find_what_a_scan_finds() {
    for seed in seeds(40) {
        let random = SeededRandom::new(seed);
        let fixture = Fixture::new(seed);
        let path = ["a", "b", "d.x", "d.z.w", "e"][pick(&random, 5) as usize];
        fixture.create("c", rawdoc! {});
        let keys = [
            doc! { path: 1 },
            doc! { path: -1 },
            doc! { path: 1, "c": 1 },
            doc! { "c": 1, path: 1 },
        ];
        for _ in 0..1 + pick(&random, 2) {
            let mut options = match pick(&random, 4) {
                0 => doc! { "sparse": true },
                1 => doc! { "partialFilterExpression": { "c": { "$exists": true } } },
                _ => doc! {},
            };
            let key = match pick(&random, 6) {
                0 => wildcard(&random, &mut options),
                other => keys[other as usize % keys.len()].clone(),
            };
            // The same one twice is refused.
            let _ = fixture.index("c", raw(&key), raw(&options));
        }
        let documents: Vec<Document> = (0..80).map(|id| document(&random, id)).collect();
        for document in &documents {
            let _ = fixture.insert("c", &raw(document));
        }
        let all = RawDocumentBuf::new();
        let natural = rawdoc! { "$natural": 1 };
        let values = documents
            .iter()
            .filter_map(|document| document.get(path.split('.').next()?));
        // Undefined is nothing to compare with.
        for value in values.filter(|value| **value != Bson::Undefined) {
            let filter = raw(&doc! { path: value.clone() });
            let scan = FindRequest {
                hint: Some(Hint::Key(&natural)),
                ..FindRequest::new(ns("c"), &filter)
            };
            let limit = [None, Some(1), Some(3)][pick(&random, 3) as usize];
            let request = FindRequest {
                limit,
                sort: Some(&all),
                ..FindRequest::new(ns("c"), &filter)
            };
            let (by_scan, ..) = found(&fixture, &scan, 100);
            let (by_index, summary, _) = found(&fixture, &request, 1 + pick(&random, 5) as usize);
            match limit {
                None => assert_eq!(by_index, by_scan, "seed {seed}: {filter:?} by {summary}"),
                Some(limit) => {
                    assert_eq!(
                        by_index.len(),
                        by_scan.len().min(limit as usize),
                        "seed {seed}: {filter:?} by {summary}"
                    );
                    assert!(
                        by_index.iter().all(|id| by_scan.contains(id)),
                        "seed {seed}: {filter:?} by {summary}"
                    );
                }
            }
        }
    }
}

#[test]
fn they_examine_what_they_find() {
    let fixture = Fixture::new(1);
    fixture.create("c", rawdoc! {});
    fixture.index("c", rawdoc! { "k": -1 }, rawdoc! {}).expect("indexed");
    for id in 0..100 {
        fixture
            .insert("c", &rawdoc! { "_id": id, "k": [id / 2, -1 - id], "s": "x" })
            .expect("inserted");
    }
    let filter = rawdoc! { "k": 7.0 };
    let request = FindRequest::new(ns("c"), &filter);
    assert_eq!(
        found(&fixture, &request, 1),
        (vec![14, 15], "IXSCAN { k: -1 }".to_owned(), (2, 2))
    );
    let one = FindRequest {
        limit: Some(1),
        ..request.clone()
    };
    let (by_one, _, examined) = found(&fixture, &one, 1);
    assert_eq!((by_one.len(), examined), (1, (1, 1)));
    assert!(is_known(&executor(&fixture, &request)));
    let by_two = rawdoc! { "k": 7.0, "s": "x" };
    for planned in [
        FindRequest::new(ns("c"), &by_two),
        FindRequest {
            skip: 1,
            ..request.clone()
        },
    ] {
        assert!(!is_known(&executor(&fixture, &planned)));
    }
    let uses = |fixture: &Fixture| {
        let collection = fixture.storage.catalog().collection(&ns("c")).expect("there");
        collection.access_paths()[1].accesses().0
    };
    // Two that ran, and three that were only planned.
    assert_eq!(uses(&fixture), 5);
    // With an order of strings of its own the keys are not those of the index.
    let collation = rawdoc! { "locale": "en" };
    let collated = FindRequest {
        collation: Some(&collation),
        ..request
    };
    assert!(!is_known(&executor(&fixture, &collated)));
    assert_eq!(found(&fixture, &collated, 1).0, [14, 15]);
}

/// Index filters change what a planner makes of a query: while there are any it is asked, and when they are gone it is
/// not.
#[test]
fn index_filters_have_the_planner_asked_as_long_as_there_are_any() {
    let fixture = Fixture::new(2);
    fixture.create("c", rawdoc! {});
    fixture.index("c", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
    let filters = IndexFilters::default();
    let collection = fixture.storage.catalog().collection(&ns("c")).expect("there");
    let filter = rawdoc! { "k": 1 };
    let request = FindRequest::new(ns("c"), &filter);
    let query = fixture.with(|context| {
        let expressions = expression_context(context, None, None).expect("a context");
        Query::parse(&request, &expressions).expect("parsed")
    });
    let set = |storage| {
        filters.set(storage, collection.uuid(), &query, rawdoc! {}, Vec::new());
    };
    assert!(!filters.are_used());
    set(&fixture.storage);
    assert!(filters.are_used() && filters.find(collection.uuid(), &query).is_some());
    filters.clear(collection.uuid(), Some(&query));
    assert!(!filters.are_used());
    // Of a storage that is no more.
    set(&fixture.storage);
    drop(fixture);
    filters.clear([0; 16], None);
    assert!(!filters.are_used());
}
