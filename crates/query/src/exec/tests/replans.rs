//! Plans of the cache that are bad for the values of a query.

use super::cases::{array, empty};
use super::fixture::{Fixture, ns, plain};
use super::{count, distinct};
use crate::exec::{ExecContext, ExecState, aggregate, find};
use crate::plan::{AggregateRequest, CountRequest, DistinctRequest, FindRequest};
use bson::{Bson, RawDocumentBuf, doc, rawdoc};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::{LockMode, Operation};
use vfs::Clock;

const DOCUMENTS: i32 = 4000;
/// Less than the bad plan looks at. What a failed trial and a race look at is not counted.
const EXAMINED_MAX: u64 = 1500;

/// `a` and `b` are 1 in one document each, and 0 in all others. Both are indexed.
fn skewed(seed: u64) -> Fixture {
    let fixture = Fixture::new(seed);
    fixture.create("c", empty());
    fixture.index("c", rawdoc! { "a": 1 }, empty()).expect("indexed");
    fixture.index("c", rawdoc! { "b": 1 }, empty()).expect("indexed");
    for i in 0..DOCUMENTS {
        let document = rawdoc! { "_id": i, "a": i32::from(i == 5), "b": i32::from(i == 7) };
        fixture.insert("c", &document).expect("inserted");
    }
    fixture
}

/// Each of these is dear by the other's plan.
fn filters() -> [(RawDocumentBuf, i32); 2] {
    [(rawdoc! { "a": 1, "b": 0 }, 5), (rawdoc! { "a": 0, "b": 1 }, 7)]
}

/// What an operation that runs `query` has examined, replans and plans of the cache.
fn figures<T>(fixture: &Fixture, query: impl FnOnce(&ExecContext<'_>) -> T) -> (T, u64, u64, u64) {
    let op = fixture.op();
    let found = query(&fixture.context(&op));
    let counters = op.counters();
    let examined = counters.keys_examined.get() + counters.docs_examined.get();
    (
        found,
        examined,
        counters.replanned.get(),
        counters.plan_cache_hits.get(),
    )
}

fn ids(context: &ExecContext<'_>, request: &FindRequest<'_>) -> Vec<i32> {
    let mut documents: Vec<RawDocumentBuf> = Vec::new();
    let mut executor = find(context, request).expect("planned");
    while executor.next_documents(context, &mut documents).expect("run") == ExecState::More {}
    let id = |document: &RawDocumentBuf| document.get_i32("_id").expect("an _id");
    documents.iter().map(id).collect()
}

/// Every other query of a shape ran by the plan of the one before, to its end.
#[test]
fn finds_are_planned_anew_when_the_cached_plan_works_too_much() {
    let fixture = skewed(9101);
    for turn in 0..6 {
        for (filter, id) in filters() {
            let request = FindRequest::new(ns("c"), &filter);
            let (found, examined, replanned, hits) = figures(&fixture, |context| ids(context, &request));
            assert_eq!(found, [id]);
            assert!(examined < EXAMINED_MAX, "{filter:?} in turn {turn}: {examined}");
            let is_first = turn == 0 && id == 5;
            assert_eq!((replanned, hits), (u64::from(!is_first), u64::from(!is_first)));
        }
    }
    // What is good for the values stays.
    let (filter, _) = &filters()[1];
    let request = FindRequest::new(ns("c"), filter);
    let (_, _, replanned, hits) = figures(&fixture, |context| ids(context, &request));
    assert_eq!((replanned, hits), (0, 1));
}

/// What failed was the query and not its plan, which all others of the shape lost.
#[test]
fn a_query_that_fails_leaves_the_plan_to_others() {
    let fixture = skewed(9105);
    let divisor = rawdoc! { "_id": DOCUMENTS, "a": 2, "b": 0, "d": 0 };
    fixture.insert("c", &divisor).expect("inserted");
    let filter = |a: i32| rawdoc! { "a": a, "b": 0, "$expr": { "$ne": [{ "$divide": [1, "$d"] }, 2] } };
    let (good, bad) = (filter(1), filter(2));
    for known in [false, true, true] {
        let request = FindRequest::new(ns("c"), &good);
        let (found, _, replanned, hits) = figures(&fixture, |context| ids(context, &request));
        assert_eq!((found, replanned, hits), (vec![5], 0, u64::from(known)));
        if known {
            let request = FindRequest::new(ns("c"), &bad);
            let mut executor = fixture.with(|context| find(context, &request)).expect("planned");
            executor.release();
            fixture
                .with(|context| executor.next_documents(context, &mut Vec::new()))
                .expect_err("it divides by zero");
        }
    }
}

/// Scripts do not run in a race: what a projection made without them failed, and with it all candidates, so that none
/// was ever remembered.
#[test]
fn what_is_made_by_scripts_fails_no_candidate() {
    let fixture = skewed(9107);
    let filter = rawdoc! { "a": 1, "b": 0 };
    let text = rawdoc! { "$function": { "body": "function() { return 'x' }", "args": [], "lang": "js" } };
    let projection = rawdoc! { "length": { "$strLenCP": text } };
    let request = FindRequest {
        projection: Some(&projection),
        ..FindRequest::new(ns("c"), &filter)
    };
    for is_known in [false, true] {
        let (found, _, _, hits) = figures(&fixture, |context| ids(context, &request));
        assert_eq!((found, hits), (vec![5], u64::from(is_known)));
    }
}

#[test]
fn all_who_run_plans_have_them_planned_anew() {
    let fixture = skewed(9102);
    for _ in 0..3 {
        for (filter, id) in filters() {
            let plain = bson::Document::try_from(filter.as_ref()).expect("BSON");
            let request = CountRequest {
                limit: Some(10),
                ..CountRequest::new(ns("c"), &filter)
            };
            let (counted, examined, ..) = figures(&fixture, |context| count(context, &request).expect("run"));
            assert_eq!(counted, 1);
            assert!(examined < EXAMINED_MAX, "count of {filter:?}: {examined}");

            let request = DistinctRequest::new(ns("c"), "_id", &filter);
            let (values, examined, ..) = figures(&fixture, |context| distinct(context, &request).expect("run"));
            assert_eq!(values, [id.into()]);
            assert!(examined < EXAMINED_MAX, "distinct of {filter:?}: {examined}");

            let pipeline = array(&[doc! { "$match": plain }, doc! { "$set": { "x": 1 } }]);
            let request = AggregateRequest::new(ns("c"), "test", &pipeline);
            let (found, examined, ..) = figures(&fixture, |context| {
                let mut documents: Vec<RawDocumentBuf> = Vec::new();
                let mut executor = aggregate(context, &request).expect("planned");
                while executor.next_documents(context, &mut documents).expect("run") == ExecState::More {}
                documents
            });
            assert_eq!(
                found,
                [rawdoc! { "_id": id, "a": i32::from(id == 5), "b": i32::from(id == 7), "x": 1 }]
            );
            assert!(examined < EXAMINED_MAX, "aggregate of {filter:?}: {examined}");

            for takes_one in [false, true] {
                let request = FindRequest {
                    for_write: true,
                    takes_one,
                    ..FindRequest::new(ns("c"), &filter)
                };
                let (records, examined, ..) = figures(&fixture, |context| {
                    let mut executor = find(context, &request).expect("planned");
                    let mut next = || executor.next_record(context).expect("run");
                    // Who takes one does not go on behind it. It is among the first by each index.
                    let records_max = if takes_one { 1 } else { usize::MAX };
                    std::iter::from_fn(&mut next).take(records_max).count()
                });
                assert_eq!(records, 1);
                let examined_max = if takes_one { 300 } else { EXAMINED_MAX };
                assert!(examined < examined_max, "write to {filter:?}: {examined}");
            }
        }
    }
}

#[test]
fn rows_of_a_trial_are_memory_until_they_are_given() {
    let fixture = skewed(9106);
    let filter = rawdoc! { "a": 0, "b": { "$lte": 0 } };
    let request = FindRequest::new(ns("c"), &filter);
    let mut charged = Vec::new();
    for _ in 0..2 {
        let op = fixture.op();
        let mut executor = find(&fixture.context(&op), &request).expect("planned");
        executor.release();
        charged.push(op.memory().used());
        assert_eq!(fixture.all(&mut executor, 1000).len(), DOCUMENTS as usize - 2);
        drop(executor);
        assert_eq!(op.memory().used(), 0);
    }
    // The second has its plan from the cache.
    assert!(charged[1] > charged[0], "{charged:?}");
}

/// Rows that a trial has read ahead come first, each once, and are gone with their collection.
#[test]
fn rows_of_a_trial_are_given_like_others() {
    let fixture = skewed(9104);
    let filter = rawdoc! { "a": 0, "b": { "$lte": 0 } };
    let sort = rawdoc! { "_id": -1 };
    for (sort, batch) in [(None, 1000), (None, 7), (Some(&*sort), 3), (Some(&*sort), 101)] {
        let request = FindRequest {
            sort,
            limit: Some(if sort.is_some() { 300 } else { 4000 }),
            ..FindRequest::new(ns("c"), &filter)
        };
        let wanted: Vec<i32> = match sort {
            None => (0..DOCUMENTS).filter(|i| ![5, 7].contains(i)).collect(),
            Some(_) => (0..DOCUMENTS).rev().take(300).collect(),
        };
        for from_cache in [false, true] {
            let mut executor = fixture.with(|context| find(context, &request)).expect("planned");
            executor.release();
            let results = fixture.all(&mut executor, batch);
            let ids: Vec<i32> = results.iter().map(|d| d.get_i32("_id").expect("an _id")).collect();
            assert_eq!(ids, wanted, "{sort:?}, {from_cache}");
        }
    }
    let request = FindRequest::new(ns("c"), &filter);
    let mut cut_off = Vec::new();
    for _ in 0..2 {
        let mut executor = fixture.with(|context| find(context, &request)).expect("planned");
        executor.release();
        assert_eq!(fixture.batch(&mut executor, 2, &mut Vec::new()), ExecState::More);
        cut_off.push(executor);
    }
    fixture
        .storage
        .drop_collection(&fixture.op(), &ns("c"))
        .expect("dropped");
    for mut executor in cut_off {
        let error = fixture
            .with(|context| executor.next_documents(context, &mut Vec::new()))
            .expect_err("its collection is gone");
        assert_eq!(error.code(), Some(wire::ErrorCode::QueryPlanKilled));
    }
}

/// From the third document on all were looked up by the plan of the second, however much it worked for them.
#[test]
fn a_sub_pipeline_is_planned_anew_for_a_document_for_which_its_plan_works_too_much() {
    let fixture = skewed(9107);
    fixture.create("o", empty());
    let turned = |i: i32| (2..9).contains(&i);
    for i in 0..10 {
        let (x, y) = if turned(i) { (0, 1) } else { (1, 0) };
        let document = rawdoc! { "_id": i, "x": x, "y": y };
        fixture.insert("o", &document).expect("inserted");
    }
    // Equalities would be joined.
    let bounds = [
        doc! { "$gte": ["$a", "$$x"] },
        doc! { "$lte": ["$a", "$$x"] },
        doc! { "$gte": ["$b", "$$y"] },
        doc! { "$lte": ["$b", "$$y"] },
    ];
    let matching = doc! { "$match": { "$expr": { "$and": bounds.to_vec() } } };
    let counting = doc! { "$count": "n" };
    let by_id = doc! { "$sort": { "_id": 1 } };
    for counts in [false, true] {
        let stages = match counts {
            true => vec![matching.clone(), counting.clone()],
            false => vec![matching.clone()],
        };
        let lookup = doc! { "from": "c", "let": { "x": "$x", "y": "$y" }, "pipeline": stages, "as": "found" };
        let pipeline = array(&[by_id.clone(), doc! { "$lookup": lookup }]);
        let request = AggregateRequest::new(ns("o"), "test", &pipeline);
        let (documents, examined, replanned, _) = figures(&fixture, |context| {
            let mut documents: Vec<RawDocumentBuf> = Vec::new();
            let mut executor = aggregate(context, &request).expect("planned");
            while executor.next_documents(context, &mut documents).expect("run") == ExecState::More {}
            documents
        });
        for (document, i) in documents.iter().zip(0..) {
            let found = match (counts, turned(i)) {
                (true, _) => doc! { "n": 1 },
                (false, false) => doc! { "_id": 5, "a": 1, "b": 0 },
                (false, true) => doc! { "_id": 7, "a": 0, "b": 1 },
            };
            assert_eq!(plain(document).get("found"), Some(&Bson::from(vec![found])), "{i}");
        }
        assert_eq!(documents.len(), 10);
        assert!(examined < EXAMINED_MAX, "{examined}");
        assert_eq!(replanned, 2);
    }
}

/// What is more than a batch goes on behind its trial.
#[test]
fn a_sub_pipeline_that_stands_its_trials_gives_all_it_finds() {
    let fixture = skewed(9109);
    fixture.create("o", empty());
    for i in 0..5 {
        fixture
            .insert("o", &rawdoc! { "_id": i, "x": 0, "y": 0 })
            .expect("inserted");
    }
    let bounds = [doc! { "$lte": ["$a", "$$x"] }, doc! { "$lte": ["$b", "$$y"] }];
    let matching = doc! { "$match": { "$expr": { "$and": bounds.to_vec() } } };
    let last = [
        doc! { "$count": "n" },
        doc! { "$group": { "_id": null, "n": { "$sum": 1 }, "ids": { "$addToSet": "$_id" } } },
    ];
    for last in last {
        let stages = vec![matching.clone(), last];
        let lookup = doc! { "from": "c", "let": { "x": "$x", "y": "$y" }, "pipeline": stages, "as": "found" };
        let pipeline = array(&[
            doc! { "$lookup": lookup },
            doc! { "$unwind": "$found" },
            doc! { "$project": { "n": "$found.n", "ids": { "$size": { "$ifNull": ["$found.ids", []] } } } },
        ]);
        let request = AggregateRequest::new(ns("o"), "test", &pipeline);
        let mut executor = fixture.with(|context| aggregate(context, &request)).expect("planned");
        let results = fixture.all(&mut executor, 100);
        assert_eq!(results.len(), 5);
        for result in &results {
            assert_eq!(result.get_i32("n").ok(), Some(DOCUMENTS - 2), "{result:?}");
            assert!([0, DOCUMENTS - 2].contains(&result.get_i32("ids").expect("a number")));
        }
    }
}

/// A clock by which each look at it takes ten milliseconds.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(10, Ordering::Relaxed))
    }
}

/// It went on for a second, in which all who came behind the one that waits had to wait, too.
#[test]
fn a_trial_ends_when_somebody_waits_for_the_collection() {
    let fixture = skewed(9108);
    let [(good, id), (bad, _)] = filters();
    let found = fixture.with(|context| ids(context, &FindRequest::new(ns("c"), &good)));
    assert_eq!(found, [id]);
    let op = Arc::new(Operation::new(Arc::new(Ticking(AtomicU64::new(0))), 1));
    let context = fixture.context(&op);
    let guard = fixture.storage.collection(&op, &ns("c"), LockMode::IntentShared);
    let guard = guard.expect("locked").expect("there");
    std::thread::scope(|scope| {
        let drops = scope.spawn(|| fixture.storage.drop_collection(&fixture.op(), &ns("c")));
        while !guard.keeps_others_out() {
            assert!(!drops.is_finished(), "it did not wait for the reader");
            std::thread::yield_now();
        }
        let executor = find(&context, &FindRequest::new(ns("c"), &bad)).expect("planned");
        let counters = op.counters();
        assert_eq!((counters.plan_cache_hits.get(), counters.replanned.get()), (1, 0));
        drop((executor, guard));
        assert!(drops.join().expect("ended").expect("dropped").is_some());
    });
}

/// While a definition waited for an idle transaction no query of the collection was planned anew.
#[test]
fn a_trial_goes_on_when_who_waits_for_the_collection_waits_for_a_transaction() {
    let fixture = skewed(9110);
    let [(good, id), (bad, other)] = filters();
    let found = fixture.with(|context| ids(context, &FindRequest::new(ns("c"), &good)));
    assert_eq!(found, [id]);
    let mut transaction = fixture.storage.begin_transaction().expect("begun");
    let read = transaction.collection(&fixture.op(), &ns("c"), LockMode::IntentShared);
    assert!(read.expect("locked").is_some());
    let op = Arc::new(Operation::new(Arc::new(Ticking(AtomicU64::new(0))), 1));
    std::thread::scope(|scope| {
        let drops = scope.spawn(|| fixture.storage.drop_collection(&fixture.op(), &ns("c")));
        let locks = || fixture.storage.collection_locks();
        while locks().iter().all(|(_, state)| state.waiting.is_empty()) {
            assert!(!drops.is_finished(), "it did not wait for the transaction");
            std::thread::yield_now();
        }
        let found = ids(&fixture.context(&op), &FindRequest::new(ns("c"), &bad));
        assert_eq!(found, [other]);
        let counters = op.counters();
        assert_eq!((counters.plan_cache_hits.get(), counters.replanned.get()), (1, 1));
        drop(transaction);
        assert!(drops.join().expect("ended").expect("dropped").is_some());
    });
}
