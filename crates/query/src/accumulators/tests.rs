#![allow(clippy::unwrap_used)]
//! Every accumulator over the same documents, whole and merged from parts.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use vfs::SeededRandom;

use super::*;
use crate::evaluation::EvaluationContext;
use crate::value::SharedDocument;

fn context() -> ExpressionContext {
    ExpressionContext::new(0, Arc::new(SeededRandom::new(1)))
}

fn shared(document: &Document) -> SharedDocument {
    SharedDocument::from(RawDocumentBuf::try_from(document).unwrap())
}

fn parse(spec: &Document) -> Result<AccumulatorSpec, QueryError> {
    let spec = shared(spec);
    let (name, raw) = spec.iter().next().unwrap().unwrap();
    AccumulatorSpec::parse(name.as_str(), raw, &context())
}

fn over(spec: &AccumulatorSpec, documents: &[Document]) -> Accumulator {
    let mut state = spec.start();
    for document in documents {
        let document = shared(document);
        spec.accumulate(
            &mut state,
            &mut Evaluation::new(&document, &EvaluationContext::uninterrupted()),
        )
        .unwrap();
    }
    state
}

fn plain(value: Value<'_>) -> Bson {
    let wrapped = Document::try_from(value.wrapped().as_raw()).unwrap();
    wrapped.get("").cloned().unwrap_or(Bson::Undefined)
}

/// Checks the result over all documents, and merged from every split in two.
#[track_caller]
fn gives(spec: Document, documents: &[Document], expected: impl Into<Bson>) {
    let (parsed, expected) = (parse(&spec).unwrap(), expected.into());
    assert_eq!(plain(over(&parsed, documents).finish().unwrap()), expected, "{spec}");
    for split in 0..=documents.len() {
        let (first, second) = documents.split_at(split);
        let mut state = over(&parsed, first);
        state.merge(over(&parsed, second), &Comparer::default()).unwrap();
        assert_eq!(plain(state.finish().unwrap()), expected, "{spec} split at {split}");
    }
}

fn documents() -> Vec<Document> {
    vec![
        doc! {"x": 3, "s": "c", "o": {"a": 1}},
        doc! {"x": 1.5, "s": "a", "o": {"b": 2}},
        doc! {"s": "b"},
        doc! {"x": Bson::Null, "s": "a", "o": Bson::Null},
        doc! {"x": 4_i64, "s": "d", "o": {"a": 3}},
    ]
}

#[test]
fn numbers() {
    let all = documents();
    gives(doc! {"$sum": "$x"}, &all, 8.5);
    gives(doc! {"$sum": 1}, &all, 5);
    gives(doc! {"$count": {}}, &all, 5);
    gives(doc! {"$sum": "$x"}, &[], 0);
    gives(doc! {"$sum": "$s"}, &all, 0);
    gives(doc! {"$avg": "$x"}, &all, 8.5 / 3.0);
    gives(doc! {"$avg": "$s"}, &all, Bson::Null);
    gives(doc! {"$min": "$x"}, &all, 1.5);
    gives(doc! {"$max": "$x"}, &all, 4_i64);
    gives(doc! {"$min": "$nothing"}, &all, Bson::Null);
    gives(doc! {"$max": "$s"}, &all, "d");
    gives(
        doc! {"$sum": "$v"},
        &[doc! {"v": i32::MAX}, doc! {"v": 1}],
        2_147_483_648_i64,
    );
    gives(
        doc! {"$sum": "$v"},
        &[doc! {"v": i64::MAX}, doc! {"v": i64::MAX}],
        1.8446744073709552e19,
    );
    gives(doc! {"$stdDevPop": "$v"}, &[doc! {"v": 1}, doc! {"v": 3}], 1.0);
    gives(doc! {"$stdDevSamp": "$v"}, &[doc! {"v": 1}], Bson::Null);
    gives(
        doc! {"$stdDevSamp": "$v"},
        &[doc! {"v": 1}, doc! {"v": 3}],
        2.0_f64.sqrt(),
    );
    let decimals = [doc! {"v": Bson::Decimal128("0.1".parse().unwrap())}, doc! {"v": 1}];
    gives(doc! {"$sum": "$v"}, &decimals, Bson::Decimal128("1.1".parse().unwrap()));
}

#[test]
fn positions_and_collections() {
    let all = documents();
    gives(doc! {"$first": "$s"}, &all, "c");
    gives(doc! {"$last": "$s"}, &all, "d");
    gives(doc! {"$first": "$x"}, &all[2..], Bson::Undefined);
    gives(
        doc! {"$push": "$x"},
        &all,
        vec![3.into(), 1.5.into(), Bson::Null, 4_i64.into()],
    );
    gives(doc! {"$addToSet": "$s"}, &all, vec!["c", "a", "b", "d"]);
    gives(
        doc! {"$addToSet": "$v"},
        &[doc! {"v": 1}, doc! {"v": 1.0}, doc! {}],
        vec![1],
    );
    gives(doc! {"$mergeObjects": "$o"}, &all, doc! {"a": 3, "b": 2});
    gives(doc! {"$firstN": {"n": 2, "input": "$s"}}, &all, vec!["c", "a"]);
    gives(
        doc! {"$lastN": {"n": 2, "input": "$x"}},
        &all,
        vec![Bson::Null, 4_i64.into()],
    );
    gives(
        doc! {"$minN": {"n": 2, "input": "$x"}},
        &all,
        vec![Bson::from(1.5), 3.into()],
    );
    gives(doc! {"$maxN": {"n": 2, "input": "$s"}}, &all, vec!["d", "c"]);
}

#[test]
fn ordered_by_other_fields() {
    let all = documents();
    gives(doc! {"$top": {"sortBy": {"s": 1}, "output": "$x"}}, &all, 1.5);
    gives(doc! {"$bottom": {"sortBy": {"s": 1}, "output": "$x"}}, &all, 4_i64);
    gives(
        doc! {"$topN": {"n": 2, "sortBy": {"s": -1}, "output": "$s"}},
        &all,
        vec!["d", "c"],
    );
    gives(
        doc! {"$bottomN": {"n": 2, "sortBy": {"s": -1}, "output": "$x"}},
        &all,
        vec![Bson::from(1.5), Bson::Null],
    );
    gives(
        doc! {"$topN": {"n": 1, "sortBy": {"s": 1}, "output": "$nothing"}},
        &all,
        vec![Bson::Null],
    );
}

#[test]
fn what_is_refused() {
    let code = |spec: Document| parse(&spec).unwrap_err().code().unwrap().0;
    assert_eq!(code(doc! {"$nothing": 1}), 15952);
    assert_eq!(code(doc! {"$accumulator": {}}), 4544707);
    assert_eq!(code(doc! {"$concatArrays": {}}), 238);
    for name in [
        "$sum",
        "$firstN",
        "$lastN",
        "$minN",
        "$maxN",
        "$median",
        "$percentile",
        "$topN",
        "$bottom",
    ] {
        assert_eq!(code(doc! {name: [1, 2]}), 40237, "{name}");
    }
    assert_eq!(code(doc! {"$median": 5}), 7436100);
    assert_eq!(code(doc! {"$percentile": 5}), 7429703);
    assert_eq!(code(doc! {"$count": 1}), 14);
    assert_eq!(code(doc! {"$firstN": 1}), 5787801);
    assert_eq!(code(doc! {"$maxN": 1}), 5787900);
    assert_eq!(code(doc! {"$firstN": {"x": 1}}), 5787901);
    assert_eq!(code(doc! {"$firstN": {"input": 1}}), 5787906);
    assert_eq!(code(doc! {"$firstN": {"n": 1}}), 5787907);
    assert_eq!(code(doc! {"$firstN": {"n": 0, "input": 1}}), 5787908);
    assert_eq!(code(doc! {"$top": {"n": 1}}), 5788002);
    assert_eq!(code(doc! {"$topN": {"sortBy": {"a": 1}, "output": 1}}), 5788003);
    assert_eq!(code(doc! {"$top": {"sortBy": {"a": 1}}}), 5788004);
    assert_eq!(code(doc! {"$top": {"output": 1}}), 5788005);
    let spec = parse(&doc! {"$mergeObjects": "$x"}).unwrap();
    let document = shared(&doc! {"x": 1});
    let error = spec
        .accumulate(
            &mut spec.start(),
            &mut Evaluation::new(&document, &EvaluationContext::uninterrupted()),
        )
        .unwrap_err();
    assert_eq!(error.code().unwrap().0, 40400);
}

#[test]
fn equal_values_of_other_types() {
    let documents: Vec<Document> = [Bson::from(5), 5_i64.into(), 5.0.into()].map(|x| doc! {"x": x}).into();
    for operator in ["$min", "$max"] {
        gives(doc! {operator: "$x"}, &documents, 5);
        let spec = parse(&doc! {operator: "$x"}).unwrap().with_ties(Ties::Last);
        for split in 0..=documents.len() {
            let (first, second) = documents.split_at(split);
            let mut state = over(&spec, first);
            state.merge(over(&spec, second), &Comparer::default()).unwrap();
            assert_eq!(
                plain(state.finish().unwrap()),
                Bson::from(5.0),
                "{operator} split at {split}"
            );
        }
    }
}

#[test]
fn of_equal_keys_the_first_is_kept() {
    let all: Vec<_> = (0..5).map(|id| doc! {"_id": id, "s": 1}).collect();
    let of = |operator: &str| doc! {operator: {"output": "$_id", "sortBy": {"s": 1}}};
    let of_n = |operator: &str| doc! {operator: {"n": 2, "output": "$_id", "sortBy": {"s": 1}}};
    gives(of("$top"), &all, 0);
    gives(of("$bottom"), &all, 0);
    gives(of_n("$topN"), &all, vec![0, 1]);
    gives(of_n("$bottomN"), &all, vec![0, 1]);
    let numbers = [doc! {"v": 1}, doc! {"v": 1.0}, doc! {"v": 1_i64}];
    let expected: Vec<Bson> = vec![1.0.into(), 1.into()];
    gives(doc! {"$maxN": {"n": 2, "input": "$v"}}, &numbers, expected);
}

#[test]
fn many_documents_are_merged_as_one_by_one() {
    let field = |i: i32| doc! {"o": {format!("k{}", i % 40): i, "all": i}};
    let all: Vec<_> = (0..100).map(field).collect();
    let mut expected = Document::new();
    for document in &all {
        expected.extend(document.get_document("o").unwrap().clone());
    }
    gives(doc! {"$mergeObjects": "$o"}, &all, expected.clone());
    // What it holds is what it has told of.
    let spec = parse(&doc! {"$mergeObjects": "$o"}).unwrap();
    let (mut state, mut told) = (spec.start(), 0);
    for document in all.iter().cycle().take(10_000) {
        let document = shared(document);
        let context = EvaluationContext::uninterrupted();
        told += spec
            .accumulate(&mut state, &mut Evaluation::new(&document, &context))
            .unwrap();
    }
    assert!(told < 8192, "{told}");
    assert_eq!(plain(state.finish().unwrap()), expected.into());
}
