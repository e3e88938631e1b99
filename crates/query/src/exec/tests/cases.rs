//! Executors, one behaviour at a time.

use super::fixture::{Fixture, ns, plain};
use super::plans::{stages, winning};
use super::{count, distinct};
use crate::QueryError;
use crate::exec::{DocumentSink, ExecState, PlanExecutor, SinkState, aggregate, check_view, find};
use crate::plan::{AggregateRequest, CountRequest, DistinctRequest, FindRequest, Hint};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use std::collections::BTreeSet;
use storage::{LockMode, RecordId};
use wire::ErrorCode;

pub(super) fn empty() -> RawDocumentBuf {
    RawDocumentBuf::new()
}

/// `{_id: i, a: i % 10, b: i % 7}` for `i` below `count`, with an index on `a` and one on `a, b`.
pub(super) fn numbers(count: i32) -> Fixture {
    let fixture = Fixture::new(7);
    fixture.create("c", empty());
    fixture.index("c", rawdoc! { "a": 1 }, empty()).expect("indexed");
    fixture
        .index("c", rawdoc! { "a": 1, "b": -1 }, empty())
        .expect("indexed");
    for i in 0..count {
        fixture
            .insert("c", &rawdoc! { "_id": i, "a": i % 10, "b": i % 7 })
            .expect("inserted");
    }
    fixture
}

/// A plan put aside before it runs.
fn start(fixture: &Fixture, request: &FindRequest<'_>) -> PlanExecutor {
    let mut executor = fixture.with(|context| find(context, request)).expect("planned");
    executor.release();
    executor
}

pub(super) fn ids(fixture: &Fixture, request: &FindRequest<'_>) -> Vec<i32> {
    let results = fixture.all(&mut start(fixture, request), 50);
    results
        .iter()
        .map(|document| document.get_i32("_id").expect("an _id"))
        .collect()
}

fn code(error: QueryError) -> i32 {
    error.code().expect("a code of the language").0
}

#[test]
fn executors_move_between_threads() {
    fn check<T: Send + 'static>() {}
    check::<PlanExecutor>();
}

#[test]
fn a_find_locks_its_collection_once_and_not_while_it_is_put_aside() {
    let fixture = numbers(30);
    let op = fixture.op();
    let context = fixture.context(&op);
    let locked = || op.counters().lock(LockMode::IntentShared).acquired.get();
    let filters = [rawdoc! { "_id": 7 }, rawdoc! { "a": 3 }, empty()];
    for (runs, filter) in (1..).zip(&filters) {
        let mut executor = find(&context, &FindRequest::new(ns("c"), filter)).expect("planned");
        assert!(executor.next_record(&context).expect("run").is_some());
        assert_eq!(locked(), runs, "{filter:?}");
    }
    let mut aside: Vec<_> = filters
        .iter()
        .map(|filter| find(&context, &FindRequest::new(ns("c"), filter)).expect("planned"))
        .collect();
    aside.iter_mut().for_each(PlanExecutor::release);
    // Would wait for ever otherwise.
    let dropped = fixture.storage.drop_collection(&fixture.op(), &ns("c"));
    assert!(dropped.expect("dropped").is_some());
}

#[test]
fn what_writes_by_id_locks_its_collection_once() {
    let fixture = numbers(30);
    let op = fixture.op();
    let context = fixture.context(&op);
    let locks_kept = |filter, for_write| {
        let mut request = FindRequest::new(ns("c"), filter);
        request.for_write = for_write;
        let mut executor = find(&context, &request).expect("planned");
        let before = executor.take_lock().is_some();
        let found = executor.next_record(&context).expect("run").is_some();
        (before, found, executor.take_lock().is_some())
    };
    let acquired = |mode| op.counters().lock(mode).acquired.get();
    let (by_id, missing, by_value) = (rawdoc! { "_id": 7 }, rawdoc! { "_id": 99 }, rawdoc! { "a": 3 });
    assert_eq!(locks_kept(&by_id, true), (false, true, true));
    assert_eq!(locks_kept(&missing, true), (false, false, false));
    assert_eq!(acquired(LockMode::IntentExclusive), 2);
    assert_eq!(acquired(LockMode::IntentShared), 0);
    assert_eq!(locks_kept(&by_id, false), (false, true, false));
    assert_eq!(locks_kept(&by_value, true), (false, true, false));
    assert_eq!(acquired(LockMode::IntentExclusive), 2);
}

#[test]
fn an_id_is_looked_up_without_a_plan() {
    let fixture = numbers(30);
    let filter = rawdoc! { "_id": 7.0 };
    let request = FindRequest::new(ns("c"), &filter);
    let mut executor = start(&fixture, &request);
    assert_eq!(executor.plan_summary().text, "IDHACK");
    assert_eq!(fixture.all(&mut executor, 10).len(), 1);
    assert_eq!(executor.examined(), (1, 1));
    assert_eq!(
        ids(&fixture, &FindRequest::new(ns("c"), &rawdoc! { "_id": 31 })),
        Vec::<i32>::new()
    );
    assert_eq!(
        ids(
            &fixture,
            &FindRequest::new(ns("c"), &rawdoc! { "_id": { "$in": [3, 5, 99] } })
        ),
        [3, 5]
    );
    assert_eq!(ids(&fixture, &FindRequest::new(ns("none"), &filter)), Vec::<i32>::new());
    let mut executor = start(&fixture, &request);
    let record = fixture
        .with(|context| executor.next_record(context))
        .expect("found")
        .expect("there");
    assert_eq!(record, RecordId::Number(8));
    assert!(
        fixture
            .with(|context| executor.next_record(context))
            .expect("ended")
            .is_none()
    );
}

#[test]
fn a_compound_index_is_skipped_through() {
    let fixture = Fixture::new(1);
    fixture.create("c", empty());
    fixture
        .index("c", rawdoc! { "a": 1, "b": 1 }, empty())
        .expect("indexed");
    for i in 0..2000 {
        fixture
            .insert("c", &rawdoc! { "_id": i, "a": i % 4, "b": i / 4 })
            .expect("inserted");
    }
    let filter = rawdoc! { "a": { "$gte": 1 }, "b": 77 };
    let request = FindRequest::new(ns("c"), &filter);
    let mut executor = start(&fixture, &request);
    assert_eq!(fixture.all(&mut executor, 10).len(), 3);
    let (keys, _) = executor.examined();
    assert!(keys < 20, "{keys} keys examined");
}

#[test]
fn hints_name_an_index_or_are_refused() {
    let fixture = numbers(50);
    let filter = rawdoc! { "b": 3 };
    let with = |hint| FindRequest {
        hint: Some(hint),
        ..FindRequest::new(ns("c"), &filter)
    };
    let key = rawdoc! { "a": 1, "b": -1 };
    assert!(
        start(&fixture, &with(Hint::Key(&key)))
            .plan_summary()
            .text
            .starts_with("IXSCAN { a: 1, b: -1 }")
    );
    let natural = rawdoc! { "$natural": -1 };
    let down = ids(&fixture, &with(Hint::Key(&natural)));
    assert!(down.len() > 1 && down.windows(2).all(|pair| pair[0] > pair[1]));
    let unknown = rawdoc! { "z": 1 };
    for hint in [Hint::Key(&unknown), Hint::Name("nothing")] {
        let error = fixture
            .with(|context| find(context, &with(hint)).map(|_| ()))
            .expect_err("no such index");
        assert!(
            error
                .to_string()
                .contains("hint provided does not correspond to an existing index")
        );
        assert_eq!(code(error), 2);
    }
}

#[test]
fn min_and_max_bound_the_hinted_index() {
    let fixture = numbers(100);
    let (filter, key, min, max) = (empty(), rawdoc! { "a": 1 }, rawdoc! { "a": 3 }, rawdoc! { "a": 5 });
    let request = FindRequest {
        hint: Some(Hint::Key(&key)),
        min: Some(&min),
        max: Some(&max),
        ..FindRequest::new(ns("c"), &filter)
    };
    let found = ids(&fixture, &request);
    assert_eq!(found.len(), 20);
    assert!(found.iter().all(|id| (3..5).contains(&(id % 10))));
    let natural = rawdoc! { "$natural": 1 };
    for (hint, wanted) in [(None, 51173), (Some(Hint::Key(&natural)), 291)] {
        let unhinted = FindRequest {
            hint,
            ..request.clone()
        };
        let refused = fixture.with(|context| find(context, &unhinted).map(|_| ()));
        assert_eq!(code(refused.expect_err("no index")), wanted);
    }
    let keys = FindRequest {
        return_key: true,
        show_record_id: true,
        ..request
    };
    let first = fixture.all(&mut start(&fixture, &keys), 100).remove(0);
    assert_eq!(plain(&first), doc! { "a": 3 }, "nothing but the key");
    // The sort's key goes along.
    let sort = rawdoc! { "a": -1 };
    let projection = rawdoc! { "b": 1, "k": { "$meta": "sortKey" }, "c": { "d": { "$meta": "sortKey" } } };
    let sorted = FindRequest {
        sort: Some(&sort),
        projection: Some(&projection),
        ..keys
    };
    let first = fixture.all(&mut start(&fixture, &sorted), 100).remove(0);
    assert_eq!(plain(&first), doc! { "a": 4, "k": [4], "c": { "d": [4] } });
}

/// An array is sorted by its least or greatest element, which may be out of bounds.
#[test]
fn arrays_are_sorted_between_min_and_max_as_elsewhere() {
    let fixture = Fixture::new(12);
    fixture.create("c", empty());
    let key = rawdoc! { "b": 1, "a": 1 };
    fixture.index("c", key.clone(), empty()).expect("indexed");
    for document in [
        rawdoc! { "_id": 1, "b": 1, "a": [1, 10] },
        rawdoc! { "_id": 2, "b": 1, "a": 5 },
        rawdoc! { "_id": 3, "b": 2, "a": 3 },
    ] {
        fixture.insert("c", &document).expect("inserted");
    }
    let (filter, min) = (empty(), rawdoc! { "b": 1, "a": 4 });
    let plan = |sort: &RawDocument| {
        let request = FindRequest {
            hint: Some(Hint::Key(&key)),
            min: Some(&min),
            sort: Some(sort),
            ..FindRequest::new(ns("c"), &filter)
        };
        (stages(&winning(&fixture, &request)), ids(&fixture, &request))
    };
    let by_both = |order: i32| plan(&rawdoc! { "b": order, "a": order });
    assert_eq!(by_both(1), ("SORT/FETCH/IXSCAN".to_owned(), vec![1, 2, 3]));
    assert_eq!(by_both(-1).1, [3, 1, 2]);
    assert_eq!(plan(&rawdoc! { "b": -1 }).0, "FETCH/IXSCAN", "which has no arrays");
}

#[test]
fn a_refused_document_comes_again() {
    struct Picky(Vec<i32>, bool);
    impl DocumentSink for Picky {
        fn push(&mut self, document: &RawDocument) -> SinkState {
            self.1 = !self.1;
            if self.1 {
                return SinkState::Refused;
            }
            self.0.push(document.get_i32("_id").expect("an _id"));
            SinkState::Continue
        }
    }
    let fixture = numbers(9);
    let filter = empty();
    let request = FindRequest {
        limit: Some(5),
        ..FindRequest::new(ns("c"), &filter)
    };
    let mut executor = start(&fixture, &request);
    let mut sink = Picky(Vec::new(), false);
    while fixture
        .with(|context| executor.next_documents(context, &mut sink))
        .expect("results")
        == ExecState::More
    {}
    assert_eq!(sink.0, [0, 1, 2, 3, 4]);
}

#[test]
fn untouched_documents_come_once_while_others_change() {
    let fixture = Fixture::new(3);
    fixture.create("c", empty());
    fixture.index("c", rawdoc! { "a": 1 }, empty()).expect("indexed");
    for i in 0..300 {
        fixture
            .insert("c", &rawdoc! { "_id": i, "a": (i * 37) % 300, "keep": i % 3 == 0 })
            .expect("inserted");
    }
    let (all, by_index) = (empty(), rawdoc! { "a": { "$gte": 0 } });
    for (round, filter) in [&all, &by_index, &all].into_iter().enumerate() {
        let sort = rawdoc! { "a": -1 };
        let request = FindRequest {
            sort: (round == 2).then_some(&*sort),
            ..FindRequest::new(ns("c"), filter)
        };
        let mut executor = start(&fixture, &request);
        let mut seen = Vec::new();
        let mut change = 0;
        loop {
            let mut batch = Vec::new();
            let state = fixture.batch(&mut executor, 7, &mut batch);
            seen.extend(
                batch
                    .iter()
                    .filter(|d| d.get_bool("keep").expect("a mark"))
                    .map(|d| d.get_i32("_id").expect("an _id")),
            );
            for _ in 0..9 {
                change += 1;
                let id = (change * 7) % 300;
                if id % 3 != 0 {
                    let record = RecordId::Number(id as u64 + 1);
                    fixture.replace(
                        "c",
                        record,
                        &rawdoc! { "_id": id, "a": (change * 101) % 300, "keep": false },
                    );
                }
            }
            fixture
                .insert(
                    "c",
                    &rawdoc! { "_id": 1000 * (round as i32 + 1) + change, "a": 5, "keep": false },
                )
                .expect("inserted");
            if state != ExecState::More {
                break;
            }
        }
        let once: BTreeSet<i32> = seen.iter().copied().collect();
        assert_eq!(once.len(), seen.len(), "round {round}: a document came twice");
        assert_eq!(once, (0..300).filter(|i| i % 3 == 0).collect(), "round {round}");
    }
}

#[test]
fn writers_get_each_record_once_however_its_keys_move() {
    let fixture = numbers(200);
    let filter = rawdoc! { "a": { "$gte": 0 } };
    let request = FindRequest {
        for_write: true,
        ..FindRequest::new(ns("c"), &filter)
    };
    let mut executor = start(&fixture, &request);
    assert!(executor.plan_summary().text.starts_with("IXSCAN"));
    let mut given = 0;
    while let Some(record) = fixture.with(|context| executor.next_record(context)).expect("records") {
        let id = record.number() as i32 - 1;
        fixture.replace("c", record, &rawdoc! { "_id": id, "a": id % 10 + 1000, "b": id % 7 });
        given += 1;
    }
    assert_eq!(given, 200);
}

#[test]
fn a_dropped_collection_or_index_kills_the_plan() {
    let fixture = numbers(100);
    let filter = rawdoc! { "a": { "$gte": 0 } };
    let request = FindRequest::new(ns("c"), &filter);
    let next = |executor: &mut PlanExecutor| {
        let mut documents: Vec<RawDocumentBuf> = Vec::new();
        fixture
            .with(|context| executor.next_documents(context, &mut documents))
            .map(|_| documents.len())
    };
    let mut by_index = start(&fixture, &request);
    let mut scan = start(
        &fixture,
        &FindRequest {
            filter: &empty(),
            ..request.clone()
        },
    );
    fixture.batch(&mut by_index, 5, &mut Vec::new());
    fixture.batch(&mut scan, 5, &mut Vec::new());
    let names: Vec<String> = fixture.storage.catalog().collection(&ns("c")).expect("there").indexes()[1..]
        .iter()
        .map(|index| index.name().to_owned())
        .collect();
    fixture
        .storage
        .drop_indexes(&fixture.op(), &ns("c"), &names)
        .expect("dropped");
    assert_eq!(
        code(next(&mut by_index).expect_err("its index is gone")),
        ErrorCode::QueryPlanKilled.0
    );
    fixture.batch(&mut scan, 5, &mut Vec::new());
    fixture
        .storage
        .drop_collection(&fixture.op(), &ns("c"))
        .expect("dropped");
    assert_eq!(
        code(next(&mut scan).expect_err("its collection is gone")),
        ErrorCode::QueryPlanKilled.0
    );
    fixture.create("c", empty());
    let mut scan = start(
        &fixture,
        &FindRequest {
            filter: &empty(),
            ..request
        },
    );
    assert_eq!(next(&mut scan).expect("a new collection"), 0);
}

#[test]
fn tailable_cursors_follow_a_capped_collection() {
    let fixture = Fixture::new(5);
    fixture.create("log", rawdoc! { "capped": true, "size": 4096_i64, "max": 5_i64 });
    fixture.create("plain", empty());
    let filter = empty();
    let request = |name: &str| FindRequest {
        tailable: true,
        await_data: true,
        ..FindRequest::new(ns(name), &filter)
    };
    let refused = fixture
        .with(|context| find(context, &request("plain")).map(|_| ()))
        .expect_err("not capped");
    assert_eq!(code(refused), 2);
    let mut documents = Vec::new();
    let mut dead = start(&fixture, &request("log"));
    assert_eq!(
        fixture.batch(&mut dead, 10, &mut documents),
        ExecState::Exhausted,
        "nothing to tail"
    );
    for i in 0..3 {
        fixture.insert("log", &rawdoc! { "_id": i }).expect("inserted");
    }
    let mut tail = start(&fixture, &request("log"));
    let mut lost = start(&fixture, &request("log"));
    assert_eq!(fixture.batch(&mut tail, 10, &mut documents), ExecState::CaughtUp);
    assert_eq!(fixture.batch(&mut lost, 2, &mut Vec::new()), ExecState::More);
    assert_eq!(documents.len(), 3);
    let waited = fixture
        .with(|context| tail.wait_for_data(context, std::time::Duration::ZERO))
        .expect("waited");
    assert!(!waited, "there is nothing new");
    fixture.insert("log", &rawdoc! { "_id": 3 }).expect("inserted");
    assert!(
        fixture
            .with(|context| tail.wait_for_data(context, std::time::Duration::ZERO))
            .expect("waited")
    );
    assert_eq!(fixture.batch(&mut tail, 10, &mut documents), ExecState::CaughtUp);
    assert_eq!(
        documents.last().map(|document| plain(document)),
        Some(doc! { "_id": 3 })
    );
    for i in 4..12 {
        fixture.insert("log", &rawdoc! { "_id": i }).expect("inserted");
    }
    let mut rest: Vec<RawDocumentBuf> = Vec::new();
    let error = fixture
        .with(|context| lost.next_documents(context, &mut rest))
        .expect_err("its place is gone");
    assert_eq!(code(error), ErrorCode::CappedPositionLost.0);
}

#[test]
fn a_remembered_plan_is_used_while_it_serves() {
    let fixture = Fixture::new(77);
    fixture.create("c", empty());
    fixture.index("c", rawdoc! { "a": 1 }, empty()).expect("indexed");
    fixture.index("c", rawdoc! { "b": 1 }, empty()).expect("indexed");
    for i in 0..2000 {
        fixture
            .insert("c", &rawdoc! { "_id": i, "a": i % 2, "b": i % 500 })
            .expect("inserted");
    }
    let filter = rawdoc! { "a": 1, "b": 33 };
    let request = FindRequest::new(ns("c"), &filter);
    for _ in 0..2 {
        let mut executor = start(&fixture, &request);
        assert_eq!(executor.plan_summary().text, "IXSCAN { b: 1 }");
        assert_eq!(fixture.all(&mut executor, 100).len(), 4);
    }
    let collection = fixture.storage.catalog().collection(&ns("c")).expect("there");
    let shape = crate::plan::shape::hash_shape(collection.uuid(), collection.version(), &request, None);
    assert!(
        crate::plan::cache::plan_cache().get(shape).is_some(),
        "the winner is remembered"
    );
    let name = collection.indexes()[2].name().to_owned();
    fixture
        .storage
        .drop_indexes(&fixture.op(), &ns("c"), &[name])
        .expect("dropped");
    assert_eq!(start(&fixture, &request).plan_summary().text, "IXSCAN { a: 1 }");
}

pub(super) fn aggregated(fixture: &Fixture, name: &str, stages: &[Document]) -> Vec<Document> {
    let pipeline = array(stages);
    let request = AggregateRequest::new(ns(name), "test", &pipeline);
    let mut executor = fixture.with(|context| aggregate(context, &request)).expect("planned");
    fixture
        .all(&mut executor, 3)
        .iter()
        .map(|document| plain(document))
        .collect()
}

pub(super) fn array(stages: &[Document]) -> bson::RawArrayBuf {
    let mut array = bson::RawArrayBuf::new();
    stages
        .iter()
        .for_each(|stage| array.push(RawDocumentBuf::try_from(stage).expect("encodable")));
    array
}

#[test]
fn lookup_uses_the_foreign_index() {
    let fixture = numbers(50);
    fixture.create("f", empty());
    fixture.index("f", rawdoc! { "k": 1 }, empty()).expect("indexed");
    for i in 0..200 {
        fixture
            .insert("f", &rawdoc! { "_id": i, "k": i % 50 })
            .expect("inserted");
    }
    let join = doc! { "$lookup": { "from": "f", "localField": "_id", "foreignField": "k", "as": "found" } };
    let found = aggregated(&fixture, "c", &[doc! { "$match": { "_id": { "$lt": 3 } } }, join]);
    assert_eq!(found.len(), 3);
    assert!(
        found
            .iter()
            .all(|document| document.get_array("found").is_ok_and(|list| list.len() == 4)),
        "{found:?}"
    );
    let sub = doc! { "$lookup": {
        "from": "f",
        "let": { "id": "$_id" },
        "pipeline": [{ "$match": { "$expr": { "$eq": ["$k", "$$id"] } } }, { "$count": "n" }],
        "as": "found",
    } };
    let found = aggregated(&fixture, "c", &[doc! { "$match": { "_id": 7 } }, sub]);
    assert_eq!(
        found[0].get_array("found").ok(),
        Some(&vec![Bson::from(doc! { "n": 4 })])
    );
}

/// A comment among the operators of a field was passed over once, and views were stored with it.
#[test]
fn what_views_were_stored_with_is_taken_in_them_alone() {
    let fixture = numbers(20);
    let commented = doc! { "$match": { "a": { "$eq": 3, "$comment": "x" } } };
    let stages = array(std::slice::from_ref(&commented));
    fixture
        .storage
        .create_view(&fixture.op(), &ns("v"), "c", stages, &empty())
        .expect("created");
    let filter = rawdoc! { "b": 3 };
    assert_eq!(ids(&fixture, &FindRequest::new(ns("v"), &filter)), [3]);
    let join = |pipeline: Vec<Document>| doc! { "$lookup": { "from": "v", "pipeline": pipeline, "as": "found" } };
    let found = aggregated(
        &fixture,
        "c",
        &[doc! { "$limit": 1 }, join(vec![doc! { "$count": "n" }])],
    );
    assert_eq!(
        found[0].get_array("found").ok(),
        Some(&vec![Bson::from(doc! { "n": 2 })])
    );
    let filter = rawdoc! { "a": { "$eq": 3, "$comment": "x" } };
    for name in ["c", "v"] {
        let refused = fixture.with(|context| find(context, &FindRequest::new(ns(name), &filter)).map(|_| ()));
        assert_eq!(code(refused.expect_err("of a client")), 2, "{name}");
    }
    let stages = array(&[join(vec![commented])]);
    let refused = fixture.with(|context| {
        let request = AggregateRequest::new(ns("v"), "test", &stages);
        aggregate(context, &request).map(|_| ())
    });
    assert_eq!(code(refused.expect_err("of a client")), 2);
}

#[test]
fn views_are_read_through_their_pipelines() {
    let fixture = numbers(100);
    let view = |name: &str, on: &str, stages: &[Document]| {
        fixture
            .storage
            .create_view(&fixture.op(), &ns(name), on, array(stages), &empty())
            .expect("created");
    };
    view("v", "c", &[doc! { "$match": { "a": 3 } }]);
    view("w", "v", &[doc! { "$match": { "b": { "$gte": 2 } } }]);
    let wanted: Vec<i32> = (0..100).filter(|i| i % 10 == 3 && i % 7 >= 2).collect();
    let filter = rawdoc! { "_id": { "$gt": 20 } };
    let sort = rawdoc! { "_id": 1 };
    let over_20: Vec<i32> = wanted.iter().copied().filter(|i| *i > 20).collect();
    assert_eq!(
        ids(
            &fixture,
            &FindRequest {
                sort: Some(&sort),
                ..FindRequest::new(ns("w"), &filter)
            }
        ),
        over_20
    );
    assert_eq!(
        ids(&fixture, &FindRequest::new(ns("w"), &rawdoc! { "_id": wanted[0] })),
        wanted[..1]
    );
    let n = fixture
        .with(|context| count(context, &CountRequest::new(ns("w"), &empty())))
        .expect("counted");
    assert_eq!(n, wanted.len() as u64);
    let values = fixture
        .with(|context| distinct(context, &DistinctRequest::new(ns("w"), "a", &empty())))
        .expect("values");
    assert_eq!(values, [Bson::Int32(3)]);
    assert_eq!(
        aggregated(&fixture, "w", &[doc! { "$count": "n" }]),
        [doc! { "n": wanted.len() as i32 }]
    );
    let check = |name: &str, on: &str, stages: &[Bson]| {
        fixture.with(|context| check_view(context, &ns(name), on, stages, None))
    };
    let cycle = check("v", "w", &[]).expect_err("w stands on v");
    assert_eq!(code(cycle), ErrorCode::GraphContainsCycle.0);
    check("x", "w", &[doc! { "$match": {} }.into()]).expect("no cycle");
}

#[test]
fn deleted_records_do_not_stop_a_scan() {
    let fixture = numbers(60);
    let filter = empty();
    let mut executor = start(&fixture, &FindRequest::new(ns("c"), &filter));
    let mut documents = Vec::new();
    fixture.batch(&mut executor, 10, &mut documents);
    for id in 5..30 {
        fixture.delete("c", RecordId::Number(id));
    }
    let rest = fixture.all(&mut executor, 100);
    assert_eq!(
        rest[0].get_i32("_id").ok(),
        Some(29),
        "the scan goes on behind what was deleted"
    );
    assert_eq!(documents.len() + rest.len(), 10 + 31);
}

#[test]
fn points_of_a_unique_index_are_given_once_in_order() {
    const COUNT: i32 = 30_000;
    let fixture = Fixture::new(3);
    fixture.create("c", empty());
    let unique = rawdoc! { "unique": true };
    fixture.index("c", rawdoc! { "u": -1 }, unique).expect("indexed");
    // Every third is not there, or not yet.
    for i in (0..COUNT).filter(|i| i % 3 != 1) {
        let document = rawdoc! { "_id": i, "u": (i * 7919) % COUNT, "even": i % 2 == 0 };
        fixture.insert("c", &document).expect("inserted");
    }
    let asked: Vec<i32> = (0..COUNT).filter(|i| i % 2 == 0 || i % 5 == 0).collect();
    let of_ids = rawdoc! { "_id": { "$in": bson::RawArrayBuf::from_iter(asked.iter().copied()) } };
    let of_values = rawdoc! { "u": { "$in": bson::RawArrayBuf::from_iter(asked.iter().copied()) } };
    for (filter, field) in [(&of_ids, "_id"), (&of_values, "u")] {
        for (direction, is_even) in [(1, None), (-1, None), (1, Some(true)), (-1, Some(false))] {
            let value = |id: i32| if field == "_id" { id } else { id * 7919 % COUNT };
            let wanted = |id: &i32| is_even.is_none_or(|is_even| (id % 2 == 0) == is_even);
            let ids = (0..COUNT).filter(|i| i % 3 != 1).filter(wanted);
            let mut expected: Vec<i32> = ids
                .map(value)
                .filter(|value| asked.binary_search(value).is_ok())
                .collect();
            expected.sort_unstable();
            if direction < 0 {
                expected.reverse();
            }
            let mut filter = filter.clone();
            if let Some(is_even) = is_even {
                filter.append(bson::raw::cstr!("even"), is_even);
            }
            let sort = RawDocumentBuf::try_from(&doc! { field: direction }).expect("a sort");
            let request = FindRequest {
                sort: Some(&sort),
                ..FindRequest::new(ns("c"), &filter)
            };
            assert_eq!(stages(&winning(&fixture, &request)), "FETCH/IXSCAN");
            for (batch, enough) in [(1, 300), (7, 1500), (3000, usize::MAX), (usize::MAX, usize::MAX)] {
                let mut executor = start(&fixture, &request);
                let mut found = Vec::new();
                while fixture.batch(&mut executor, batch, &mut found) == ExecState::More && found.len() < enough {}
                let found: Vec<i32> = found.iter().map(|found| found.get_i32(field).expect("there")).collect();
                assert_eq!(
                    found,
                    expected[..found.len()],
                    "{field} {direction} {is_even:?} {batch}"
                );
                assert!(found.len() == expected.len() || found.len() >= enough);
            }
        }
    }
    // What changes behind a cursor's place is seen, as in a walk; what goes before it is given, or is not.
    let request = FindRequest::new(ns("c"), &of_ids);
    let mut executor = start(&fixture, &request);
    let mut found = Vec::new();
    fixture.batch(&mut executor, 10, &mut found);
    let last = found[9].get_i32("_id").expect("an id");
    for i in (last + 1..last + 200).filter(|i| i % 3 == 1) {
        fixture.insert("c", &rawdoc! { "_id": i, "u": -i }).expect("inserted");
    }
    while fixture.batch(&mut executor, 10, &mut found) == ExecState::More && found.len() < 200 {}
    let found: Vec<i32> = found.iter().map(|found| found.get_i32("_id").expect("an id")).collect();
    let there = |i: &&i32| *i % 3 != 1 || (last + 1..last + 200).contains(*i);
    let expected: Vec<i32> = asked.iter().filter(there).copied().collect();
    assert_eq!(found, expected[..found.len()]);
}

#[test]
fn documents_read_ahead_are_of_the_state_that_is_read() {
    let fixture = Fixture::new(5);
    fixture.create("c", empty());
    fixture.index("c", rawdoc! { "n": 1 }, empty()).expect("indexed");
    let text = |bytes: usize| "x".repeat(bytes);
    // In another order than that of the index; some are so long that a group has only a few of them.
    let length = |n: i32| match n % 50 {
        0 => 300_000,
        1..5 => 20_000,
        _ => 10,
    };
    let ids: Vec<(i32, RecordId)> = (0..600)
        .map(|i| i * 7 % 600)
        .map(|n| {
            let document = rawdoc! { "_id": n, "n": n, "turn": 0, "text": text(length(n)) };
            (n, fixture.insert("c", &document).expect("inserted"))
        })
        .collect();
    let by_n = |direction| rawdoc! { "n": direction };
    let mut turn = 0;
    for (direction, batch) in [(1, 7), (-1, 7), (1, 90), (-1, 90), (1, usize::MAX)] {
        let filter = rawdoc! { "n": { "$gte": 0 } };
        let sort = by_n(direction);
        let request = FindRequest {
            sort: Some(&sort),
            ..FindRequest::new(ns("c"), &filter)
        };
        let mut executor = start(&fixture, &request);
        let mut found = Vec::new();
        loop {
            let known = found.len();
            let state = fixture.batch(&mut executor, batch, &mut found);
            for document in &found[known..] {
                let n = document.get_i32("n").expect("a number");
                assert_eq!(document.get_i32("turn").ok(), Some(turn), "{n}");
                let bytes = document.get_str("text").expect("a text").len();
                assert_eq!(bytes, length(n));
            }
            if state != ExecState::More {
                break;
            }
            // Each document changes, the ones that may have been read ahead among them.
            turn += 1;
            for (n, id) in &ids {
                let document = rawdoc! { "_id": *n, "n": *n, "turn": turn, "text": text(length(*n)) };
                fixture.replace("c", id.clone(), &document);
            }
        }
        let found: Vec<i32> = found.iter().map(|found| found.get_i32("n").expect("there")).collect();
        let mut expected: Vec<i32> = (0..600).collect();
        if direction < 0 {
            expected.reverse();
        }
        assert_eq!(found, expected);
    }
}
