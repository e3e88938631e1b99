//! Pipelines of as many stages, and as many levels, as there may be, on the stack of a thread.

use super::fixture::{Fixture, ns, plain};
use super::generate::raw;
use crate::exec::{ExecState, aggregate};
use crate::plan::AggregateRequest;
use crate::stages::{PIPELINE_DEPTH_MAX, STAGES_MAX};
use bson::{Document, RawArrayBuf, doc, rawdoc};

/// Stages that all wait for the one before them, over a collection of one document.
fn run(stages: &[Document]) -> Vec<Document> {
    let fixture = Fixture::new(1);
    fixture.create("c", rawdoc! {});
    fixture.insert("c", &rawdoc! { "_id": 1, "v": 1 }).expect("inserted");
    let mut pipeline = RawArrayBuf::new();
    stages.iter().for_each(|stage| pipeline.push(raw(stage)));
    let request = AggregateRequest::new(ns("c"), "test", &pipeline);
    let mut executor = fixture.with(|context| aggregate(context, &request).expect("planned"));
    let results = fixture.all(&mut executor, 10);
    results.iter().map(|result| plain(result)).collect()
}

/// Sorts of which none can take the place of another.
fn sorts(count: usize) -> Vec<Document> {
    let order = |place: usize| if place.is_multiple_of(2) { 1 } else { -1 };
    (0..count)
        .map(|place| doc! { "$sort": { "v": order(place) } })
        .collect()
}

#[test]
fn as_many_stages_as_there_may_be() {
    let each = |stage: Document| vec![stage; STAGES_MAX];
    for stages in [
        sorts(STAGES_MAX),
        each(doc! { "$group": { "_id": "$_id", "v": { "$first": "$v" } } }),
        each(doc! { "$unwind": "$v" }),
        each(doc! { "$lookup": { "from": "c", "localField": "v", "foreignField": "v", "as": "l" } }),
        each(
            doc! { "$lookup": { "from": "c", "let": { "v": "$v" }, "pipeline": [{ "$match": { "x": 1 } }], "as": "l" } },
        ),
        each(doc! { "$setWindowFields": { "sortBy": { "v": 1 }, "output": { "n": { "$sum": 1 } } } })[..STAGES_MAX / 2]
            .to_vec(),
    ] {
        let found = run(&stages);
        assert_eq!(found.len(), 1, "{}", stages[0]);
        assert_eq!(found[0].get_i32("v").ok(), Some(1), "{}", stages[0]);
    }
}

#[test]
fn as_many_levels_as_there_may_be() {
    let levels = 0..PIPELINE_DEPTH_MAX;
    let looked_up = levels.clone().fold(sorts(100), |pipeline, _| {
        let lookup = doc! { "$lookup": { "from": "c", "let": { "v": "$v" }, "pipeline": pipeline, "as": "l" } };
        let mut stages = sorts(100);
        stages.push(lookup);
        stages.push(doc! { "$project": { "v": { "$first": "$l.v" } } });
        stages
    });
    let united = levels.fold(sorts(100), |pipeline, _| {
        let mut stages = sorts(100);
        stages.push(doc! { "$unionWith": { "coll": "c", "pipeline": pipeline } });
        stages.push(doc! { "$limit": 1 });
        stages
    });
    for stages in [looked_up, united] {
        let found = run(&stages);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].get_i32("v").ok(), Some(1));
    }
}

/// Levels that each have nothing of their own to show, so that the innermost one is open in all others.
fn united_levels(innermost: Vec<Document>, beside: &Document, count: usize) -> Vec<Document> {
    (1..PIPELINE_DEPTH_MAX).fold(innermost, |pipeline, _| {
        let mut stages = vec![doc! { "$match": { "x": 1 } }];
        stages.push(doc! { "$unionWith": { "coll": "c", "pipeline": pipeline } });
        stages.extend(std::iter::repeat_n(beside.clone(), count));
        stages
    })
}

/// Less than any thread of the server has.
const SMALL_STACK_BYTES: usize = 512 << 10;

/// Stages that are boxes inside one another were dropped by recursion, when the cursor was killed.
#[test]
fn as_many_stages_as_there_may_be_are_dropped_on_a_small_stack() {
    let fixture = Fixture::new(1);
    fixture.create("c", rawdoc! {});
    for id in 0..3 {
        fixture.insert("c", &rawdoc! { "_id": id, "v": 1 }).expect("inserted");
    }
    let mut pipeline = RawArrayBuf::new();
    let stages = united_levels(Vec::new(), &doc! { "$unwind": "$v" }, STAGES_MAX - 2);
    stages.iter().for_each(|stage| pipeline.push(raw(stage)));
    let request = AggregateRequest::new(ns("c"), "test", &pipeline);
    let mut executor = fixture.with(|context| aggregate(context, &request).expect("planned"));
    let mut documents = Vec::new();
    assert_eq!(fixture.batch(&mut executor, 1, &mut documents), ExecState::More);
    assert_eq!(documents.len(), 1);
    let dropping = std::thread::Builder::new()
        .stack_size(SMALL_STACK_BYTES)
        .spawn(|| drop(executor));
    dropping.expect("a thread").join().expect("no panic");
}

/// The engine measured the stack from where the first function had run: one that calls itself left another piece of
/// stack, and the process was gone.
#[test]
fn functions_run_wherever_the_stack_is() {
    let function = |body: &str| doc! { "$function": { "body": body, "args": ["$v"], "lang": "js" } };
    let simple = doc! { "$set": { "v": function("function(v) { return v + 1 }") } };
    let recursion = "function(v) { let n = 0; function f() { n++; return f() + 1 } try { f() } catch (e) {} return n > 50 ? v + 1 : 0 }";
    let recursive = doc! { "$set": { "v": function(recursion) } };
    for (innermost, outermost) in [(&simple, &recursive), (&recursive, &simple)] {
        let mut stages = united_levels(vec![innermost.clone()], &doc! { "$unwind": "$v" }, STAGES_MAX / 2);
        stages.push(outermost.clone());
        assert_eq!(run(&stages), [doc! { "_id": 1, "v": 3.0 }]);
    }
}
