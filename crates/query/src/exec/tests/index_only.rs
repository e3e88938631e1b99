//! Pipelines that an index answers by itself, and those that skip through one, give what they give over a scan of the
//! collection.

use super::cases::array;
use super::distinct;
use super::fixture::{Fixture, ns, pick, plain, seeds};
use super::generate::raw;
use super::plans::{explained, stages};
use crate::exec::aggregate;
use crate::plan::{AggregateRequest, DistinctRequest, ExplainRequest, Hint, Verbosity};
use bson::{Bson, Decimal128, Document, RawDocument, doc, rawdoc};
use std::collections::BTreeMap;
use vfs::SeededRandom;

const PATHS: [&str; 5] = ["a", "b", "c", "d.x", "d.y"];

/// What keys of equal bytes may stand for, and what is easily taken for something else.
fn value(random: &SeededRandom, has_arrays: bool) -> Option<Bson> {
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal"));
    Some(match pick(random, 18) {
        0..=3 => Bson::Int32(pick(random, 4) as i32),
        4 => Bson::Int64(pick(random, 4) as i64),
        5 => Bson::Double(1.0),
        6 => Bson::Double(-0.0),
        7 => Bson::Double(0.5),
        8 => decimal("1.0"),
        9 => decimal("-0"),
        10 => Bson::Null,
        11 => Bson::Undefined,
        12 => "x".into(),
        13 => Bson::Symbol("x".to_owned()),
        14 => doc! { "y": 1, "x": 1.0 }.into(),
        15 => Bson::Double(f64::NAN),
        16 if has_arrays && pick(random, 4) == 0 => Bson::Array(vec![1.into(), "x".into()]),
        17 if has_arrays && pick(random, 4) == 0 => Bson::Array(Vec::new()),
        _ => return None,
    })
}

fn document(random: &SeededRandom, id: i32, has_arrays: bool) -> Document {
    let mut document = doc! { "_id": id };
    let fields = ["a", "b", "c"];
    // In any order.
    let first = pick(random, 3) as usize;
    for i in 0..3 {
        let value = value(random, has_arrays);
        document.extend(value.map(|value| (fields[(first + i) % 3].to_owned(), value)));
    }
    match pick(random, 6) {
        0 => {}
        1 => document.extend(value(random, has_arrays).map(|value| ("d".to_owned(), value))),
        _ => {
            let mut inner = Document::new();
            for name in ["y", "x"] {
                inner.extend(value(random, false).map(|value| (name.to_owned(), value)));
            }
            document.insert("d", inner);
        }
    }
    document
}

fn filter(random: &SeededRandom) -> Document {
    match pick(random, 9) {
        0 => doc! { "a": { "$lt": 3 } },
        1 => doc! { "a": 1 },
        2 => doc! { "a": { "$in": [0, 1, "x"] } },
        3 => doc! { "a": { "$gte": 0 }, "c": { "$gt": 0 } },
        4 => doc! { "d.x": { "$gte": 1 } },
        5 => doc! { "b": { "$gte": "" } },
        6 => doc! { "a": { "$exists": true } },
        7 => doc! { "a": 1, "b": { "$gte": 0 } },
        _ => doc! { "a": Bson::Null },
    }
}

/// A pipeline, and whether its results come in one order alone.
fn pipeline(random: &SeededRandom) -> (Vec<Document>, bool) {
    let path = || PATHS[pick(random, PATHS.len() as u64) as usize];
    let field = || format!("${}", path());
    let kind = |field: String| doc! { "$type": field };
    let order = || doc! { "$sort": { "a": 1, "b": -1, "_id": 1 } };
    let mut stages = Vec::new();
    if pick(random, 4) != 0 {
        stages.push(doc! { "$match": filter(random) });
    }
    let mut is_ordered = false;
    match pick(random, 9) {
        0 => stages.push(doc! { "$group": {
            "_id": field(), "n": { "$sum": 1 }, "kind": { "$max": kind(field()) }, "sum": { "$sum": field() },
        } }),
        1 | 2 => stages.push(doc! { "$group": { "_id": field() } }),
        3 => stages.push(doc! { "$project": { "_id": 0, path(): 1 } }),
        4 => stages.push(doc! { "$project": { "_id": 0, "v": field(), "kind": kind(field()) } }),
        5 => stages.push(doc! { "$project": { "a": 1, "c": 1 } }),
        6 => {
            let mut group = doc! { "_id": "$a", "b": { "$first": "$b" }, "kind": { "$first": kind(field()) } };
            if pick(random, 2) == 0 {
                group.insert("all", doc! { "$first": "$$ROOT" });
            }
            let order = match pick(random, 2) {
                0 => order(),
                _ => doc! { "$sort": { "a": -1, "b": 1, "_id": -1 } },
            };
            stages.extend([order, doc! { "$group": group }]);
        }
        7 => {
            is_ordered = true;
            stages.extend([order(), doc! { "$project": { "_id": 1, "a": 1 } }]);
        }
        _ => stages.push(doc! { "$facet": {
            "kinds": [{ "$group": { "_id": Bson::Null, "kind": { "$max": kind(field()) } } }],
            "n": [{ "$count": "n" }],
        } }),
    }
    (stages, is_ordered)
}

/// A result, with the key of a group as what it is told from others by: which of equal values it shows depends on the
/// order of the documents.
fn told(document: &RawDocument, is_group: bool) -> String {
    let mut document = plain(document);
    if is_group && let Some(id) = document.remove("_id") {
        let raw = bson::RawBson::try_from(id).expect("encodable");
        let key = crate::plan::encode::encode_with(raw.as_raw_bson_ref(), None);
        document.insert("_id", format!("{key:?}"));
    }
    format!("{document:?}")
}

fn results(fixture: &Fixture, pipeline: &[Document], hint: Option<Hint<'_>>, is_ordered: bool) -> Vec<String> {
    let list = array(pipeline);
    let request = AggregateRequest {
        hint,
        ..AggregateRequest::new(ns("c"), "test", &list)
    };
    let mut executor = fixture
        .with(|context| aggregate(context, &request))
        .expect("a pipeline");
    let is_group = pipeline.iter().any(|stage| stage.contains_key("$group"));
    let documents = fixture.all(&mut executor, 7);
    let mut told: Vec<String> = documents.iter().map(|document| told(document, is_group)).collect();
    if !is_ordered {
        told.sort_unstable();
    }
    told
}

/// The stages of the plan under a pipeline.
fn plan_of(fixture: &Fixture, pipeline: &[Document]) -> String {
    let list = array(pipeline);
    let request = AggregateRequest::new(ns("c"), "test", &list);
    let document = explained(fixture, &ExplainRequest::Aggregate(&request), Verbosity::QueryPlanner);
    let cursor = match document.get_array("stages") {
        Ok(list) => list[0]
            .as_document()
            .and_then(|first| first.get_document("$cursor").ok()),
        Err(_) => Some(&document),
    };
    let planner = cursor.and_then(|cursor| cursor.get_document("queryPlanner").ok());
    let winning = planner.and_then(|planner| planner.get_document("winningPlan").ok());
    stages(winning.expect("a plan"))
}

#[test]
fn an_index_answers_as_the_documents_do() {
    let mut plans: BTreeMap<String, usize> = BTreeMap::new();
    let natural = rawdoc! { "$natural": 1 };
    for seed in seeds(40) {
        let random = SeededRandom::new(seed);
        let has_arrays = seed.is_multiple_of(4);
        let fixture = Fixture::new(seed);
        fixture.create("c", rawdoc! {});
        for key in [
            rawdoc! { "a": 1, "c": 1 },
            rawdoc! { "a": 1, "b": -1, "_id": 1 },
            rawdoc! { "d.x": 1, "d.y": -1 },
            rawdoc! { "b": 1 },
            rawdoc! { "c": -1, "d.x": 1 },
        ] {
            if pick(&random, 3) != 0 {
                let options = match pick(&random, 6) {
                    0 => rawdoc! { "sparse": true },
                    1 => rawdoc! { "partialFilterExpression": { "a": { "$exists": true } } },
                    _ => rawdoc! {},
                };
                fixture.index("c", key, options).expect("built");
            }
        }
        for id in 0..60 {
            // Two arrays in one document may not be indexed together.
            let _ = fixture.insert("c", &raw(&document(&random, id, has_arrays)));
        }
        for _ in 0..40 {
            let (pipeline, is_ordered) = pipeline(&random);
            let found = results(&fixture, &pipeline, None, is_ordered);
            let wanted = results(&fixture, &pipeline, Some(Hint::Key(&natural)), is_ordered);
            let plan = plan_of(&fixture, &pipeline);
            assert_eq!(found, wanted, "seed {seed}: {pipeline:?} by {plan}");
            if !found.is_empty() {
                *plans.entry(plan).or_default() += 1;
            }
            let (filter, key) = (raw(&filter(&random)), PATHS[pick(&random, PATHS.len() as u64) as usize]);
            let values = |hint| {
                let request = DistinctRequest {
                    hint,
                    ..DistinctRequest::new(ns("c"), key, &filter)
                };
                let values = fixture.with(|context| distinct(context, &request)).expect("values");
                let encode = |value: &Bson| {
                    let raw = bson::RawBson::try_from(value.clone()).expect("encodable");
                    crate::plan::encode::encode_with(raw.as_raw_bson_ref(), None)
                };
                values.iter().map(encode).collect::<Vec<_>>()
            };
            let wanted = values(Some(Hint::Key(&natural)));
            assert_eq!(values(None), wanted, "seed {seed}: distinct {key} of {filter:?}");
        }
    }
    println!("{plans:?}");
    for plan in [
        "PROJECTION_COVERED/IXSCAN",
        "PROJECTION_COVERED/DISTINCT_SCAN",
        "FETCH/DISTINCT_SCAN",
    ] {
        assert!(
            plans.get(plan).is_some_and(|times| *times > 10),
            "no {plan} had results"
        );
    }
}

/// What is asked for of an index on a, b and c, whose documents have c in front of a.
#[test]
fn plans_read_documents_only_for_what_keys_do_not_tell() {
    let fixture = Fixture::new(1);
    fixture.create("c", rawdoc! {});
    let key = rawdoc! { "a": 1, "b": 1, "c": 1 };
    fixture.index("c", key, rawdoc! {}).expect("built");
    for i in 0..40 {
        let document = rawdoc! { "_id": i, "c": i, "a": i % 4, "b": i % 8 };
        fixture.insert("c", &document).expect("inserted");
    }
    let few = doc! { "$match": { "a": { "$lt": 2 } } };
    let covered = "PROJECTION_COVERED/IXSCAN";
    let fetched = "FETCH/IXSCAN";
    let sum = doc! { "$group": { "_id": "$b", "n": { "$sum": "$c" } } };
    let project = |fields: Document| doc! { "$project": fields };
    for (pipeline, plan) in [
        (vec![few.clone(), sum.clone()], covered),
        (
            vec![few.clone(), doc! { "$sort": { "a": -1, "b": -1 } }, sum.clone()],
            covered,
        ),
        (vec![few.clone(), project(doc! { "_id": 0, "c": 1 })], covered),
        (
            vec![few.clone(), project(doc! { "_id": 0, "v": { "$add": ["$a", "$c"] } })],
            covered,
        ),
        // Only the documents know which of the fields is first, unless nobody asks.
        (vec![few.clone(), project(doc! { "_id": 0, "a": 1, "c": 1 })], fetched),
        (
            vec![
                few.clone(),
                project(doc! { "_id": 0, "a": 1, "b": 1, "c": 1 }),
                sum.clone(),
            ],
            covered,
        ),
        (vec![few.clone(), project(doc! { "c": 1 })], fetched),
        (
            vec![
                few.clone(),
                doc! { "$group": { "_id": "$b", "all": { "$push": "$$ROOT" } } },
            ],
            fetched,
        ),
        (vec![sum], "COLLSCAN"),
        (
            vec![doc! { "$group": { "_id": "$a" } }],
            "PROJECTION_COVERED/DISTINCT_SCAN",
        ),
        (
            vec![doc! { "$match": { "a": 1 } }, doc! { "$group": { "_id": "$b" } }],
            "PROJECTION_COVERED/DISTINCT_SCAN",
        ),
        (
            vec![
                doc! { "$sort": { "a": -1, "b": -1 } },
                doc! { "$group": { "_id": "$a", "b": { "$first": "$b" } } },
            ],
            "PROJECTION_COVERED/DISTINCT_SCAN",
        ),
        (
            vec![
                doc! { "$sort": { "a": 1 } },
                doc! { "$group": { "_id": "$a", "d": { "$first": "$$ROOT" } } },
            ],
            "FETCH/DISTINCT_SCAN",
        ),
        (
            vec![doc! { "$group": { "_id": "$a", "b": { "$first": "$b" } } }],
            "COLLSCAN",
        ),
    ] {
        assert_eq!(plan_of(&fixture, &pipeline), plan, "{pipeline:?}");
    }
    let filter = rawdoc! { "a": { "$in": [1, 3] } };
    let request = DistinctRequest::new(ns("c"), "b", &filter);
    let document = explained(&fixture, &ExplainRequest::Distinct(&request), Verbosity::ExecutionStats);
    let run = document.get_document("executionStats").expect("figures");
    assert_eq!(run.get_i32("totalDocsExamined").ok(), Some(0));
    // Four values, and where a seek for the next one ended.
    assert!(run.get_i32("totalKeysExamined").is_ok_and(|keys| keys < 10), "{run}");
}
