//! Tables: a filter, documents that match, documents that do not. One test per rule of the language.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, RawDocumentBuf, Regex, Timestamp, doc, oid::ObjectId};
use wire::ErrorCode;

use super::*;

mod bits;

/// A context without variables.
pub(crate) fn context() -> ExpressionContext {
    ExpressionContext::new(1_700_000_000_000, Arc::new(vfs::SeededRandom::new(1)))
}

/// A document as raw bytes.
pub(crate) fn raw_of(document: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn matcher(filter: &bson::Document) -> Matcher {
    Matcher::parse(&raw_of(filter), &context()).unwrap_or_else(|error| panic!("{filter}: {error}"))
}

/// Every filter must also survive being written and read again.
fn check(filter: bson::Document, yes: &[bson::Document], no: &[bson::Document]) {
    let first = matcher(&filter);
    let again = Matcher::parse(&first.to_document(), &context());
    let again = again.unwrap_or_else(|error| panic!("{filter} -> {:?}: {error}", first.to_document()));
    for matcher in [&first, &again] {
        for document in yes {
            assert!(
                matcher
                    .matches(&raw_of(document), &EvaluationContext::uninterrupted())
                    .unwrap(),
                "{filter} should match {document}: {matcher:?}"
            );
        }
        for document in no {
            assert!(
                !matcher
                    .matches(&raw_of(document), &EvaluationContext::uninterrupted())
                    .unwrap(),
                "{filter} should not match {document}: {matcher:?}"
            );
        }
    }
}

fn fails(filter: bson::Document, code: ErrorCode, text: &str) {
    match Matcher::parse(&raw_of(&filter), &context()) {
        Ok(matcher) => panic!("{filter} parsed as {matcher:?}"),
        Err(error) => {
            assert_eq!(error.code(), Some(code), "{filter}: {error}");
            assert!(error.to_string().contains(text), "{filter}: {error}");
        }
    }
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(Regex {
        pattern: pattern.to_owned().try_into().unwrap(),
        options: options.to_owned().try_into().unwrap(),
    })
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

#[test]
fn equality_compares_numbers_by_value() {
    check(
        doc! {"a": 5},
        &[
            doc! {"a": 5},
            doc! {"a": 5_i64},
            doc! {"a": 5.0},
            doc! {"a": decimal("5.00")},
            doc! {"b": 1, "a": 5},
        ],
        &[
            doc! {"a": 6},
            doc! {"a": "5"},
            doc! {"a": Bson::Null},
            doc! {},
            doc! {"a": {"b": 5}},
        ],
    );
    check(
        doc! {"a": 9_007_199_254_740_993_i64},
        &[doc! {"a": 9_007_199_254_740_993_i64}],
        &[doc! {"a": 9_007_199_254_740_992.0}],
    );
    check(
        doc! {"a": 0.0},
        &[doc! {"a": -0.0}, doc! {"a": 0}],
        &[doc! {"a": f64::NAN}],
    );
    check(
        doc! {"a": f64::NAN},
        &[doc! {"a": f64::NAN}, doc! {"a": decimal("NaN")}],
        &[doc! {"a": 0}],
    );
}

#[test]
fn equality_of_documents_minds_field_order() {
    check(
        doc! {"a": {"x": 1, "y": 2}},
        &[
            doc! {"a": {"x": 1, "y": 2}},
            doc! {"a": {"x": 1.0, "y": 2}},
            doc! {"a": [{"x": 1, "y": 2}]},
        ],
        &[
            doc! {"a": {"y": 2, "x": 1}},
            doc! {"a": {"x": 1}},
            doc! {"a": {"x": 1, "y": 2, "z": 3}},
        ],
    );
    check(doc! {"a": {}}, &[doc! {"a": {}}], &[doc! {"a": {"b": 1}}, doc! {}]);
}

#[test]
fn equality_on_every_type() {
    let values: Vec<Bson> = vec![
        Bson::String("x".into()),
        Bson::ObjectId(ObjectId::from_bytes([1; 12])),
        Bson::Boolean(true),
        Bson::DateTime(DateTime::from_millis(5)),
        Bson::Timestamp(Timestamp { time: 1, increment: 2 }),
        Bson::Binary(Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![7; 16],
        }),
        Bson::Binary(Binary {
            subtype: BinarySubtype::BinaryOld,
            bytes: vec![7; 3],
        }),
        Bson::JavaScriptCode("f".into()),
        Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: "f".into(),
            scope: doc! {"a": 1},
        }),
        Bson::MinKey,
        Bson::MaxKey,
        Bson::Array(vec![Bson::Int32(1), Bson::Int32(2)]),
        Bson::Int64(1 << 40),
        decimal("1.5"),
        Bson::Null,
    ];
    for (i, value) in values.iter().enumerate() {
        for (j, other) in values.iter().enumerate() {
            let document = doc! {"a": other.clone()};
            for filter in [
                doc! {"a": value.clone()},
                doc! {"a": {"$in": [value.clone(), "none", 77]}},
            ] {
                let expected = i == j;
                assert_eq!(
                    matcher(&filter)
                        .matches(&raw_of(&document), &EvaluationContext::uninterrupted())
                        .unwrap(),
                    expected,
                    "{filter} on {document}"
                );
            }
        }
    }
}

#[test]
fn null_matches_missing_but_not_undefined() {
    check(
        doc! {"a": Bson::Null},
        &[
            doc! {"a": Bson::Null},
            doc! {},
            doc! {"a": [Bson::Null]},
            doc! {"a": [1, Bson::Null]},
        ],
        &[
            doc! {"a": 1},
            doc! {"a": []},
            doc! {"a": [1]},
            doc! {"a": Bson::Undefined},
        ],
    );
    check(
        doc! {"a.b": Bson::Null},
        &[
            doc! {},
            doc! {"a": 1},
            doc! {"a": {}},
            doc! {"a": {"b": Bson::Null}},
            doc! {"a": [{"b": 1}, {"c": 1}]},
        ],
        &[
            doc! {"a": []},
            doc! {"a": [1, 2]},
            doc! {"a": {"b": 1}},
            doc! {"a": [{"b": 1}]},
        ],
    );
    check(
        doc! {"a": {"$ne": Bson::Null}},
        &[doc! {"a": 1}, doc! {"a": []}],
        &[doc! {}, doc! {"a": Bson::Null}],
    );
    check(
        doc! {"a": {"$in": [Bson::Null, 3]}},
        &[doc! {}, doc! {"a": 3}],
        &[doc! {"a": 1}],
    );
    check(
        doc! {"a": {"$gte": Bson::Null}},
        &[doc! {}, doc! {"a": Bson::Null}],
        &[doc! {"a": 1}],
    );
    check(
        doc! {"a": {"$gt": Bson::Null}},
        &[],
        &[doc! {}, doc! {"a": Bson::Null}, doc! {"a": 1}],
    );
}

#[test]
fn comparisons_stay_within_the_type() {
    check(
        doc! {"a": {"$gt": 5}},
        &[
            doc! {"a": 6},
            doc! {"a": 5.5},
            doc! {"a": decimal("5.000001")},
            doc! {"a": f64::INFINITY},
            doc! {"a": [1, 9]},
        ],
        &[
            doc! {"a": 5},
            doc! {"a": "9"},
            doc! {},
            doc! {"a": Bson::Null},
            doc! {"a": f64::NAN},
            doc! {"a": [1, 2]},
        ],
    );
    check(
        doc! {"a": {"$lt": 5}},
        &[doc! {"a": 4}, doc! {"a": f64::NEG_INFINITY}],
        &[doc! {"a": f64::NAN}, doc! {"a": decimal("NaN")}, doc! {"a": 5}],
    );
    check(
        doc! {"a": {"$gte": f64::NAN}},
        &[doc! {"a": f64::NAN}],
        &[doc! {"a": 1}],
    );
    check(
        doc! {"a": {"$gt": f64::NAN}},
        &[],
        &[doc! {"a": f64::NAN}, doc! {"a": 1}],
    );
    check(
        doc! {"a": {"$gt": "b", "$lte": "d"}},
        &[doc! {"a": "c"}, doc! {"a": "d"}],
        &[doc! {"a": "b"}, doc! {"a": 3}],
    );
    check(
        doc! {"a": {"$gt": Bson::MinKey}},
        &[doc! {"a": 1}, doc! {}, doc! {"a": "x"}],
        &[doc! {"a": Bson::MinKey}],
    );
    check(
        doc! {"a": {"$lt": Bson::MaxKey}},
        &[doc! {"a": 1}, doc! {"a": {}}],
        &[doc! {"a": Bson::MaxKey}],
    );
    check(
        doc! {"a": {"$gt": {"b": 1}}},
        &[doc! {"a": {"b": 2}}],
        &[doc! {"a": {"b": 1}}, doc! {"a": {"b": 0}}],
    );
    check(
        doc! {"a": {"$gte": [2]}},
        &[doc! {"a": [2]}, doc! {"a": [3]}, doc! {"a": [[2]]}],
        &[doc! {"a": [1]}, doc! {"a": 3}],
    );
}

#[test]
fn arrays_match_whole_or_by_an_element_one_level() {
    check(
        doc! {"a": [1, 2]},
        &[doc! {"a": [1, 2]}, doc! {"a": [[1, 2], 3]}, doc! {"a": [1.0, 2_i64]}],
        &[doc! {"a": [2, 1]}, doc! {"a": [1, 2, 3]}, doc! {"a": [[[1, 2]]]}],
    );
    check(
        doc! {"a": 1},
        &[doc! {"a": [3, 1]}],
        &[doc! {"a": [[1]]}, doc! {"a": []}],
    );
    check(
        doc! {"a": {"$gt": 5, "$lt": 3}},
        &[doc! {"a": [1, 9]}],
        &[doc! {"a": [4]}],
    );
    check(
        doc! {"a": {"$ne": 1}},
        &[doc! {"a": [2]}, doc! {}],
        &[doc! {"a": [1, 2]}, doc! {"a": 1}],
    );
    check(
        doc! {"a.b": 1},
        &[doc! {"a": [{"b": 1}]}, doc! {"a": [{"b": [1]}]}],
        &[doc! {"a": [[{"b": 1}]]}],
    );
}

#[test]
fn numbers_in_paths_are_indexes_and_names() {
    check(
        doc! {"a.0": 1},
        &[doc! {"a": [1, 2]}, doc! {"a": {"0": 1}}, doc! {"a": [{"0": 1}]}],
        &[doc! {"a": [2, 1]}, doc! {"a": [[1]]}],
    );
    check(
        doc! {"a.1.b": 5},
        &[doc! {"a": [{}, {"b": 5}]}],
        &[doc! {"a": [{"b": 5}]}],
    );
    check(doc! {"a.0.1": 2}, &[doc! {"a": [[1, 2]]}], &[doc! {"a": [[2, 1]]}]);
    check(doc! {"a.0": [1]}, &[doc! {"a": [[1]]}], &[doc! {"a": [1]}]);
    check(doc! {"a.00": 1}, &[doc! {"a": {"00": 1}}], &[doc! {"a": [1]}]);
}

#[test]
fn in_and_nin() {
    check(
        doc! {"a": {"$in": [3, "x", 3.0, regex("^b", "i")]}},
        &[
            doc! {"a": 3_i64},
            doc! {"a": "x"},
            doc! {"a": "Bcd"},
            doc! {"a": [9, "x"]},
            doc! {"a": regex("^b", "i")},
        ],
        &[doc! {"a": 4}, doc! {}, doc! {"a": "ab"}],
    );
    check(doc! {"a": {"$in": []}}, &[], &[doc! {}, doc! {"a": 1}]);
    check(
        doc! {"a": {"$nin": [1, 2]}},
        &[doc! {}, doc! {"a": 3}],
        &[doc! {"a": 2}, doc! {"a": [5, 1]}],
    );
    check(
        doc! {"a": {"$in": [[1]]}},
        &[doc! {"a": [1]}, doc! {"a": [[1]]}],
        &[doc! {"a": 1}],
    );
}

#[test]
fn logic() {
    check(
        doc! {"$and": [{"a": 1}, {"b": 2}]},
        &[doc! {"a": 1, "b": 2}],
        &[doc! {"a": 1}],
    );
    check(
        doc! {"$or": [{"a": 1}, {"b": 2}]},
        &[doc! {"a": 1}, doc! {"b": 2}],
        &[doc! {}],
    );
    check(
        doc! {"$nor": [{"a": 1}, {"b": 2}]},
        &[doc! {}],
        &[doc! {"a": 1}, doc! {"b": 2}],
    );
    check(doc! {"$nor": [{"a": 1}]}, &[doc! {}], &[doc! {"a": 1}]);
    check(
        doc! {"a": {"$not": {"$gt": 1, "$lt": 5}}},
        &[doc! {"a": 7}, doc! {}],
        &[doc! {"a": 2}],
    );
    check(
        doc! {"a": {"$not": regex("^x", "")}},
        &[doc! {"a": "y"}, doc! {}],
        &[doc! {"a": "xy"}],
    );
    check(doc! {}, &[doc! {}, doc! {"a": 1}], &[]);
    check(doc! {"$comment": "x", "a": {"$eq": 1}}, &[doc! {"a": 1}], &[doc! {}]);
    check(doc! {"$alwaysFalse": 1}, &[], &[doc! {}]);
}

#[test]
fn nested_and_is_flat_and_single_or_unwrapped() {
    let tree = matcher(&doc! {"$and": [{"a": 1}, {"$and": [{"b": 2}, {"$or": [{"c": 3}]}]}]});
    assert_eq!(tree.root().conjuncts().len(), 3, "{tree:?}");
    let written = tree.to_document();
    assert_eq!(
        written,
        raw_of(&doc! {"$and": [{"a": {"$eq": 1}}, {"b": {"$eq": 2}}, {"c": {"$eq": 3}}]})
    );
}

#[test]
fn exists_type_size_mod() {
    check(
        doc! {"a": {"$exists": true}},
        &[doc! {"a": Bson::Null}, doc! {"a": []}],
        &[doc! {}],
    );
    check(
        doc! {"a.b": {"$exists": false}},
        &[doc! {}, doc! {"a": [1]}],
        &[doc! {"a": [{"b": 1}]}],
    );
    check(
        doc! {"a": {"$type": "number"}},
        &[doc! {"a": 1.5}, doc! {"a": [1]}],
        &[doc! {"a": "1"}, doc! {}],
    );
    check(
        doc! {"a": {"$type": ["string", 10]}},
        &[doc! {"a": "x"}, doc! {"a": Bson::Null}],
        &[doc! {"a": 1}, doc! {}],
    );
    check(
        doc! {"a": {"$type": "array"}},
        &[doc! {"a": []}, doc! {"a": [1]}],
        &[doc! {"a": 1}],
    );
    check(
        doc! {"a": {"$type": -1}},
        &[doc! {"a": Bson::MinKey}],
        &[doc! {"a": Bson::MaxKey}],
    );
    check(
        doc! {"a": {"$type": 127}},
        &[doc! {"a": Bson::MaxKey}],
        &[doc! {"a": Bson::MinKey}],
    );
    check(
        doc! {"a": {"$size": 2.0}},
        &[doc! {"a": [1, [2, 3]]}],
        &[doc! {"a": [1]}, doc! {"a": 2}, doc! {"a": [[1, 2]]}],
    );
    check(
        doc! {"a": {"$mod": [4, 1]}},
        &[
            doc! {"a": 5},
            doc! {"a": 5.9},
            doc! {"a": decimal("9")},
            doc! {"a": [2, 5]},
        ],
        &[doc! {"a": 6}, doc! {"a": "5"}, doc! {"a": f64::NAN}, doc! {"a": -3}],
    );
    check(
        doc! {"a": {"$mod": [-1, 0]}},
        &[doc! {"a": i64::MIN}],
        &[doc! {"a": "x"}],
    );
}

#[test]
fn regular_expressions() {
    check(
        doc! {"a": regex("^ab", "i")},
        &[
            doc! {"a": "ABc"},
            doc! {"a": ["x", "abc"]},
            doc! {"a": Bson::Symbol("abc".into())},
            doc! {"a": regex("^ab", "i")},
        ],
        &[doc! {"a": "xab"}, doc! {"a": regex("^ab", "")}, doc! {"a": 1}],
    );
    check(
        doc! {"a": {"$regex": "b$", "$options": "m"}},
        &[doc! {"a": "ab\nc"}],
        &[doc! {"a": "bc"}],
    );
    check(
        doc! {"a": {"$options": "s", "$regex": "a.b"}},
        &[doc! {"a": "a\nb"}],
        &[doc! {"a": "ab"}],
    );
    check(
        doc! {"a": {"$regex": regex("A", "i")}},
        &[doc! {"a": "a"}],
        &[doc! {"a": "b"}],
    );
    check(
        doc! {"a": {"$eq": regex("x", "")}},
        &[doc! {"a": regex("x", "")}],
        &[doc! {"a": "x"}],
    );
}

#[test]
fn element_match() {
    check(
        doc! {"a": {"$elemMatch": {"b": 1, "c": {"$gt": 2}}}},
        &[doc! {"a": [{"b": 1}, {"b": 1, "c": 3}]}],
        &[doc! {"a": [{"b": 1}, {"c": 3}]}, doc! {"a": {"b": 1, "c": 3}}],
    );
    check(
        doc! {"a": {"$elemMatch": {"$gt": 2, "$lt": 5}}},
        &[doc! {"a": [1, 4]}],
        &[doc! {"a": [1, 9]}, doc! {"a": 3}],
    );
    check(
        doc! {"a": {"$elemMatch": {"$nin": [1, 2]}}},
        &[doc! {"a": [1, 3]}],
        &[doc! {"a": [1, 2]}, doc! {"a": []}],
    );
    check(
        doc! {"a": {"$elemMatch": {"$not": {"$gt": 2}}}},
        &[doc! {"a": [1, 3]}],
        &[doc! {"a": [3]}],
    );
    check(
        doc! {"a": {"$elemMatch": {"$or": [{"b": 1}, {"c": 1}]}}},
        &[doc! {"a": [{"c": 1}]}],
        &[doc! {"a": [{"d": 1}]}],
    );
    check(
        doc! {"a": {"$elemMatch": {"$elemMatch": {"$eq": 1}}}},
        &[doc! {"a": [[1]]}],
        &[doc! {"a": [1]}],
    );
    check(
        doc! {"a.b": {"$elemMatch": {"$eq": 1}}},
        &[doc! {"a": [{"b": [1]}]}],
        &[doc! {"a": [{"b": 1}]}],
    );
    check(doc! {"a": {"$elemMatch": {"$gt": 2}}}, &[], &[doc! {"a": [[3]]}]);
    // The first name says that elements are documents.
    check(
        doc! {"a": {"$elemMatch": {"$comment": "x"}}},
        &[doc! {"a": [{"k": 1}]}, doc! {"a": [["n"]]}],
        &[doc! {"a": ["x"]}],
    );
}

#[test]
fn fields_of_references() {
    let reference = doc! {"$ref": "c", "$id": 7, "$db": "d"};
    let there = doc! {"a": [reference.clone(), {"$ref": "x", "$id": 8}]};
    let other = [doc! {"a": [{"$id": 9}]}];
    check(
        doc! {"a": {"$elemMatch": {"$id": 7}}},
        std::slice::from_ref(&there),
        &other,
    );
    check(
        doc! {"a": {"$elemMatch": {"$ref": "c", "$id": 7}}},
        std::slice::from_ref(&there),
        &other,
    );
    check(
        doc! {"a": {"$elemMatch": {"$ref": "x", "$db": "d"}}},
        &[],
        std::slice::from_ref(&there),
    );
    check(doc! {"a": reference.clone()}, std::slice::from_ref(&there), &[]);
    check(doc! {"a": {"$in": [reference]}}, &[there], &[]);
    check(doc! {"$id": 7}, &[doc! {"$id": 7}], &[doc! {"a": {"$id": 7}}]);
    fails(doc! {"a": {"$id": 7}}, ErrorCode::BadValue, "unknown operator: $id");
}

#[test]
fn all() {
    check(
        doc! {"a": {"$all": [1, 2]}},
        &[doc! {"a": [2, 3, 1]}],
        &[doc! {"a": [1]}, doc! {"a": 1}],
    );
    check(doc! {"a": {"$all": [1]}}, &[doc! {"a": 1}], &[doc! {}]);
    check(
        doc! {"a": {"$all": [[1, 2]]}},
        &[doc! {"a": [1, 2]}, doc! {"a": [[1, 2]]}],
        &[doc! {"a": [2, 1]}],
    );
    check(doc! {"a": {"$all": []}}, &[], &[doc! {"a": []}, doc! {}]);
    check(
        doc! {"a": {"$all": [{"$elemMatch": {"b": 1}}, {"$elemMatch": {"b": 2}}]}},
        &[doc! {"a": [{"b": 2}, {"b": 1}]}],
        &[doc! {"a": [{"b": 1}]}],
    );
    check(
        doc! {"a": {"$all": [regex("^x", "")]}},
        &[doc! {"a": ["xy"]}],
        &[doc! {"a": ["y"]}],
    );
}

#[test]
fn expr_compares_across_types_and_fields() {
    check(
        doc! {"$expr": {"$gt": ["$a", "$b"]}},
        &[doc! {"a": 2, "b": 1}, doc! {"a": "x", "b": 9}],
        &[doc! {"a": 1, "b": 2}],
    );
    check(doc! {"$expr": true, "a": 1}, &[doc! {"a": 1}], &[doc! {}]);
}

#[test]
fn refusals_have_mongodbs_codes_and_texts() {
    let bad = ErrorCode::BadValue;
    fails(doc! {"$foo": 1}, bad, "unknown top level operator: $foo");
    fails(
        doc! {"$not": {"a": 1}},
        bad,
        "If you are trying to negate an entire expression, use $nor",
    );
    fails(doc! {"a": {"$foo": 1}}, bad, "unknown operator: $foo");
    fails(doc! {"a": {"$gt": 1, "b": 2}}, bad, "unknown operator: b");
    fails(doc! {"a": {"$in": 1}}, bad, "$in needs an array");
    fails(doc! {"a": {"$nin": {}}}, bad, "$nin needs an array");
    fails(doc! {"a": {"$in": [{"$gt": 1}]}}, bad, "cannot nest $ under $in");
    fails(doc! {"a": {"$all": 1}}, bad, "$all needs an array");
    fails(doc! {"a": {"$all": [1, {"$gt": 1}]}}, bad, "no $ expressions in $all");
    fails(doc! {"$and": []}, bad, "must be a nonempty array");
    fails(doc! {"$or": {}}, bad, "$or must be an array");
    fails(doc! {"$nor": [1]}, bad, "entries need to be full objects");
    fails(doc! {"a": {"$mod": [1]}}, bad, "malformed mod, not enough elements");
    fails(doc! {"a": {"$mod": [1, 2, 3]}}, bad, "malformed mod, too many elements");
    fails(doc! {"a": {"$mod": [0, 1]}}, bad, "divisor cannot be 0");
    fails(doc! {"a": {"$mod": ["x", 1]}}, bad, "divisor not a number");
    fails(doc! {"a": {"$size": -1}}, bad, "$size");
    fails(doc! {"a": {"$size": 1.5}}, bad, "$size");
    fails(doc! {"a": {"$size": i64::from(i32::MAX) + 1}}, bad, "$size");
    fails(doc! {"a": {"$size": "1"}}, bad, "$size");
    fails(doc! {"a": {"$type": "foo"}}, bad, "Unknown type name alias: foo");
    fails(doc! {"a": {"$type": 42}}, bad, "Invalid numerical type code: 42");
    fails(
        doc! {"a": {"$type": []}},
        ErrorCode::FailedToParse,
        "must match at least one type",
    );
    fails(doc! {"a": {"$not": {}}}, bad, "$not cannot be empty");
    fails(doc! {"a": {"$not": 1}}, bad, "$not needs a regex or a document");
    fails(
        doc! {"a": {"$ne": regex("x", "")}},
        bad,
        "Can't have regex as arg to $ne.",
    );
    fails(doc! {"a": {"$gt": regex("x", "")}}, bad, "Can't have RegEx");
    fails(doc! {"a": Bson::Undefined}, bad, "undefined");
    fails(doc! {"a": {"$elemMatch": 1}}, bad, "$elemMatch needs an Object");
    fails(doc! {"a": {"$options": "i"}}, bad, "$options needs a $regex");
    fails(doc! {"a": {"$regex": 1}}, bad, "$regex has to be a string");
    fails(
        doc! {"a": {"$regex": "("}},
        ErrorCode(51091),
        "Regular expression is invalid",
    );
    matcher(&doc! {"a": {"$regex": "a".repeat(16_384)}});
    fails(doc! {"a": {"$regex": "a".repeat(16_385)}}, ErrorCode(51091), "16384");
    fails(
        doc! {"a": {"$regex": "a", "$options": "q"}},
        ErrorCode(51108),
        "invalid flag in regex options: q",
    );
    fails(
        doc! {"a": {"$regex": regex("a", "i"), "$options": "m"}},
        ErrorCode(51075),
        "options set in both",
    );
    fails(
        doc! {"$where": "1"},
        ErrorCode::BadValue,
        "$where is not allowed in this context",
    );
    fails(
        doc! {"$text": {"$search": "x"}},
        ErrorCode::BadValue,
        "$text is not allowed",
    );
    fails(
        doc! {"a": {"$near": [1, 1]}},
        ErrorCode(5626500),
        "not allowed in this context",
    );
    fails(doc! {"a": {"$elemMatch": {"$expr": true}}}, bad, "top-level");
    for filter in [
        doc! {"a": {"$comment": "x"}},
        doc! {"a": {"$eq": 1, "$comment": "x"}},
        doc! {"a": {"$not": {"$comment": "x"}}},
        doc! {"a": {"$elemMatch": {"$eq": 1, "$comment": "x"}}},
    ] {
        fails(filter, bad, "unknown operator: $comment");
    }
    fails(
        doc! {"a": {"$elemMatch": {"$comment": "x", "$eq": 1}}},
        bad,
        "unknown top level operator: $eq",
    );
}

#[test]
fn depth_is_limited() {
    let mut filter = doc! {"a": 1};
    for _ in 0..DEPTH_MAX {
        filter = doc! {"$nor": [filter, {"b": 1}]};
    }
    matcher(&filter);
    fails(doc! {"$nor": [filter]}, ErrorCode::BadValue, "depth");
}

#[test]
fn details_tell_the_outermost_index() {
    let index = |filter: bson::Document, document: bson::Document| {
        let mut details = MatchDetails { array_index: Some(99) };
        assert!(
            matcher(&filter)
                .matches_with_details(&raw_of(&document), &EvaluationContext::uninterrupted(), &mut details)
                .unwrap()
        );
        details.array_index
    };
    assert_eq!(index(doc! {"a": 7}, doc! {"a": [5, 7, 7]}), Some(1));
    assert_eq!(index(doc! {"a.b": 7}, doc! {"a": [{"b": 1}, {"b": [3, 7]}]}), Some(1));
    assert_eq!(
        index(doc! {"a": {"$elemMatch": {"b": 7}}}, doc! {"a": [{"b": 1}, {"b": 7}]}),
        Some(1)
    );
    assert_eq!(index(doc! {"a": 7}, doc! {"a": 7}), None);
    // The last test in normal order tells, wherever the client wrote it.
    let range = doc! {"$and": [{"a": {"$gt": 1}}, {"a": {"$lt": 5}}]};
    assert_eq!(index(range, doc! {"a": [1, 2, 3, 4, 5]}), Some(1));
    let two = doc! {"b": 2, "a": 1};
    assert_eq!(index(two, doc! {"a": [1], "b": [1, 2]}), Some(1));
    assert_eq!(index(doc! {"$or": [{"a": 7}, {"b": 1}]}, doc! {"a": [5, 7]}), None);
    // Of one path it is an `$in`.
    assert_eq!(index(doc! {"$or": [{"a": 7}, {"a": 1}]}, doc! {"a": [5, 7]}), Some(1));
    let failed_branch = doc! {"$or": [{"a": 7, "b": 1}, {"c": 1}]};
    assert_eq!(index(failed_branch, doc! {"a": [7], "c": 1}), None);
    assert_eq!(index(doc! {"a": {"$ne": 7}}, doc! {"a": [1]}), None);
}

#[test]
fn partial_filters_allow_what_the_planner_understands() {
    use storage::PredicateCompiler;
    let compile = |filter: bson::Document| MatcherCompiler.compile(&raw_of(&filter), None);
    let predicate =
        compile(doc! {"a": {"$gt": 5}, "$or": [{"b": {"$exists": true}}, {"c": {"$type": "int"}}]}).unwrap();
    let matches =
        |predicate: &dyn storage::Predicate, document| predicate.matches(&raw_of(&document), &|| Ok(())).unwrap();
    assert!(matches(&*predicate, doc! {"a": 6, "b": 1}));
    assert!(!matches(&*predicate, doc! {"a": 6}));
    let near = compile(doc! {"loc": {"$geoWithin": {"$centerSphere": [[0, 0], 1]}}}).unwrap();
    assert!(matches(&*near, doc! {"loc": [1, 1]}));
    assert!(!matches(&*near, doc! {"loc": [170, 1]}));
    for refused in [
        doc! {"a": {"$ne": 1}},
        doc! {"a": {"$exists": false}},
        doc! {"a": regex("x", "")},
        doc! {"$nor": [{"a": 1}]},
        doc! {"$expr": {"$gt": ["$a", 1]}},
    ] {
        assert!(compile(refused.clone()).is_err(), "{refused}");
    }
    // It was passed over once: what is stored has it.
    let commented = doc! {"a": {"$gt": 5, "$comment": "x"}};
    super::check_partial_filter(&raw_of(&commented)).expect_err("a new one");
    let stored = compile(commented).unwrap();
    assert!(!stored.matches(&raw_of(&doc! {"a": 5}), &|| Ok(())).unwrap());
}

#[test]
fn malformed_documents_are_errors_not_panics() {
    let filters = [
        doc! {"a.b": 5},
        doc! {"a": {"$gt": "x"}},
        doc! {"a": {"$elemMatch": {"b": 1}}},
        doc! {"a": {"$size": 3}},
    ];
    let whole = raw_of(&doc! {"x": "text", "a": [{"b": 1}, "x", {"b": [1, 2, regex("a", "i")]}], "z": 1.5});
    let matchers: Vec<_> = filters.iter().map(matcher).collect();
    for position in 4..whole.as_bytes().len() - 1 {
        for value in [0, 1, 3, 4, 5, 0x0B, 0x0C, 0x0F, 0x7F, 0xFF] {
            let mut bytes = whole.as_bytes().to_vec();
            bytes[position] = value;
            if let Ok(damaged) = bson::RawDocument::from_bytes(&bytes) {
                for matcher in &matchers {
                    let _ = matcher.matches(damaged, &EvaluationContext::uninterrupted());
                }
            }
        }
    }
}
