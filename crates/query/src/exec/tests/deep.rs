//! Pipelines of as many stages, and as many levels, as there may be, on the stack of a thread.

use super::fixture::{Fixture, ns, plain};
use super::generate::raw;
use crate::exec::aggregate;
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
