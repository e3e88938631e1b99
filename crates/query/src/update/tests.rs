//! Tables: an update, a document, what comes out. One test per rule; random ones are in `random`.
#![allow(clippy::unwrap_used)]

use bson::{Bson, DateTime, RawDocumentBuf, bson, doc};

use super::*;
use crate::matcher::tests::{context, raw_of};

mod conflicts;
mod filters;
mod many;
mod numbers;
mod paths;
mod random;
mod rename;

const NOW: UpdateContext = UpdateContext {
    now_ms: 1_000_000,
    timestamp: Timestamp { time: 7, increment: 9 },
    keep_empty_timestamps: false,
    details: MatchDetails { array_index: None },
};

fn parse_with(update: &Bson, filters: &[bson::Document]) -> Result<Update, QueryError> {
    let holder = raw_of(&doc! {"u": update.clone(), "f": filters.to_vec()});
    let filters = holder.get_array("f").unwrap();
    let filters = (!filters.is_empty()).then_some(filters);
    Update::parse(holder.get("u").unwrap().unwrap(), filters, &context())
}

fn apply_with(
    update: impl Into<Bson>,
    filters: &[bson::Document],
    document: &bson::Document,
    now: &UpdateContext,
) -> Result<Option<bson::Document>, QueryError> {
    let changed =
        parse_with(&update.into(), filters)?.apply(&raw_of(document), now, &EvaluationContext::uninterrupted())?;
    Ok(changed.map(|bytes| RawDocumentBuf::from_bytes(bytes).unwrap().try_into().unwrap()))
}

fn apply(update: impl Into<Bson>, document: &bson::Document) -> Result<Option<bson::Document>, QueryError> {
    apply_with(update, &[], document, &NOW)
}

/// `after` compares as text, so that types and field order count.
fn gives(update: impl Into<Bson>, before: bson::Document, after: bson::Document) {
    let update = update.into();
    let changed = apply(update.clone(), &before).unwrap_or_else(|error| panic!("{update} on {before}: {error}"));
    let changed = changed.unwrap_or_else(|| panic!("{update} on {before} changed nothing"));
    assert_eq!(format!("{changed:?}"), format!("{after:?}"), "{update} on {before}");
}

fn keeps(update: impl Into<Bson>, document: bson::Document) {
    let update = update.into();
    assert_eq!(
        apply(update.clone(), &document).unwrap(),
        None,
        "{update} on {document}"
    );
}

fn fails(update: impl Into<Bson>, document: bson::Document, code: ErrorCode, text: &str) {
    let update = update.into();
    match apply(update.clone(), &document) {
        Ok(changed) => panic!("{update} on {document} gave {changed:?}"),
        Err(error) => {
            assert_eq!(error.code(), Some(code), "{update} on {document}: {error}");
            assert!(error.to_string().contains(text), "{update} on {document}: {error}");
        }
    }
}

#[test]
fn set_keeps_the_place_of_fields_and_appends_new_ones() {
    gives(
        doc! {"$set": {"b": 9}},
        doc! {"_id": 1, "a": 1, "b": 2, "c": 3},
        doc! {"_id": 1, "a": 1, "b": 9, "c": 3},
    );
    gives(
        doc! {"$set": {"z": 1, "x": 2}},
        doc! {"_id": 1},
        doc! {"_id": 1, "x": 2, "z": 1},
    );
    gives(
        doc! {"$set": {"10": 1, "9": 2, "a": 3}},
        doc! {},
        doc! {"9": 2, "10": 1, "a": 3},
    );
    gives(
        doc! {"$set": {"a.b.c": 1}},
        doc! {"_id": 1},
        doc! {"_id": 1, "a": {"b": {"c": 1}}},
    );
    gives(
        doc! {"$set": {"a.b": 1, "a.c": 2}},
        doc! {"a": {"c": 0, "x": 5}},
        doc! {"a": {"c": 2, "x": 5, "b": 1}},
    );
    gives(doc! {"$set": {"a": 1_i64}}, doc! {"a": 1}, doc! {"a": 1_i64});
    keeps(doc! {"$set": {"a": 1}}, doc! {"a": 1});
    keeps(doc! {"$set": {"a.b": {"c": [1]}}}, doc! {"a": {"b": {"c": [1]}}});
    keeps(doc! {"$set": {}}, doc! {"a": 1});
}

#[test]
fn set_in_arrays() {
    gives(doc! {"$set": {"a.1": 9}}, doc! {"a": [1, 2, 3]}, doc! {"a": [1, 9, 3]});
    gives(
        doc! {"$set": {"a.4": 9}},
        doc! {"a": [1, 2]},
        doc! {"a": [1, 2, Bson::Null, Bson::Null, 9]},
    );
    gives(
        doc! {"$set": {"a.0.b": 9}},
        doc! {"a": [{"b": 1}, {"b": 2}]},
        doc! {"a": [{"b": 9}, {"b": 2}]},
    );
    gives(doc! {"$set": {"a.0": 9}}, doc! {}, doc! {"a": {"0": 9}});
    fails(
        doc! {"$set": {"a.b": 1}},
        doc! {"a": [1]},
        ErrorCode::PathNotViable,
        "Cannot create field 'b' in element {a: [ 1 ]}",
    );
    fails(
        doc! {"$set": {"a.2000000": 1}},
        doc! {"a": []},
        ErrorCode::BadValue,
        "backfill",
    );
}

#[test]
fn scalars_have_no_fields() {
    fails(
        doc! {"$set": {"a.b": 1}},
        doc! {"a": 1},
        ErrorCode::PathNotViable,
        "Cannot create field 'b' in element {a: 1}",
    );
    fails(
        doc! {"$inc": {"a.b.c": 1}},
        doc! {"a": {"b": Bson::Null}},
        ErrorCode::PathNotViable,
        "in element {b: null}",
    );
    keeps(doc! {"$unset": {"a.b": 1}}, doc! {"a": 1});
}

#[test]
fn unset() {
    gives(
        doc! {"$unset": {"a": "", "c.d": 1}},
        doc! {"a": 1, "b": 2, "c": {"d": 1}},
        doc! {"b": 2, "c": {}},
    );
    gives(
        doc! {"$unset": {"a.1": 1}},
        doc! {"a": [1, 2, 3]},
        doc! {"a": [1, Bson::Null, 3]},
    );
    keeps(doc! {"$unset": {"x": 1, "a.7": 1, "b.c": 1}}, doc! {"a": [1]});
}

#[test]
fn push() {
    gives(doc! {"$push": {"a": 3}}, doc! {"a": [1, 2]}, doc! {"a": [1, 2, 3]});
    gives(doc! {"$push": {"a": [3]}}, doc! {"a": [1]}, doc! {"a": [1, [3]]});
    gives(doc! {"$push": {"a": {"b": 1}}}, doc! {}, doc! {"a": [{"b": 1}]});
    gives(
        doc! {"$push": {"a": {"$each": [3, 4]}}},
        doc! {"a": [1]},
        doc! {"a": [1, 3, 4]},
    );
    keeps(doc! {"$push": {"a": {"$each": []}}}, doc! {"a": [1]});
    gives(doc! {"$push": {"a": {"$each": []}}}, doc! {}, doc! {"a": []});
    gives(
        doc! {"$push": {"a": {"$each": [8, 9], "$position": 1}}},
        doc! {"a": [1, 2]},
        doc! {"a": [1, 8, 9, 2]},
    );
    gives(
        doc! {"$push": {"a": {"$each": [8], "$position": -1}}},
        doc! {"a": [1, 2]},
        doc! {"a": [1, 8, 2]},
    );
    gives(
        doc! {"$push": {"a": {"$each": [8], "$position": -9}}},
        doc! {"a": [1, 2]},
        doc! {"a": [8, 1, 2]},
    );
    gives(
        doc! {"$push": {"a": {"$each": [3], "$slice": -2}}},
        doc! {"a": [1, 2]},
        doc! {"a": [2, 3]},
    );
    gives(
        doc! {"$push": {"a": {"$each": [3], "$slice": 0}}},
        doc! {"a": [1, 2]},
        doc! {"a": []},
    );
    keeps(doc! {"$push": {"a": {"$each": [3], "$slice": 2}}}, doc! {"a": [1, 2]});
    gives(
        doc! {"$push": {"a": {"$each": [2], "$sort": -1}}},
        doc! {"a": [1, 3]},
        doc! {"a": [3, 2, 1]},
    );
    gives(
        doc! {"$push": {"a": {"$each": [{"s": 1, "n": "x"}], "$sort": {"s": 1, "n": -1}, "$slice": 2}}},
        doc! {"a": [{"s": 5}, {"s": 1, "n": "y"}]},
        doc! {"a": [{"s": 1, "n": "y"}, {"s": 1, "n": "x"}]},
    );
    // Numbers are positions in arrays, but in one that is an element itself.
    gives(
        doc! {"$push": {"a": {"$each": [[[]]], "$sort": {"s.0.n": 1}}}},
        doc! {"a": [{"s": [{"n": 2}]}, {"s": [{"n": 1}]}, {"s": {"0": {"n": 0}}}]},
        doc! {"a": [[[]], {"s": {"0": {"n": 0}}}, {"s": [{"n": 1}]}, {"s": [{"n": 2}]}]},
    );
    let bad = ErrorCode::BadValue;
    fails(
        doc! {"$push": {"a": 1}},
        doc! {"_id": 1, "a": "x"},
        bad,
        "The field 'a' must be an array but is of type string in document {_id: 1}",
    );
    fails(
        doc! {"$push": {"a": {"$each": 1}}},
        doc! {},
        bad,
        "The argument to $each in $push must be an array",
    );
    fails(
        doc! {"$push": {"a": {"$each": [], "$foo": 1}}},
        doc! {},
        bad,
        "Unrecognized clause in $push: $foo",
    );
    fails(
        doc! {"$push": {"a": {"$each": [], "$slice": "x"}}},
        doc! {},
        bad,
        "The value for $slice must be an integer value but was given type: string",
    );
    fails(
        doc! {"$push": {"a": {"$each": [], "$sort": 2}}},
        doc! {},
        bad,
        "must be either 1 or -1",
    );
}

#[test]
fn add_to_set_pop_pull() {
    gives(doc! {"$addToSet": {"a": 3}}, doc! {"a": [1]}, doc! {"a": [1, 3]});
    keeps(doc! {"$addToSet": {"a": 1.0}}, doc! {"a": [1]});
    gives(
        doc! {"$addToSet": {"a": {"x": 1, "y": 2}}},
        doc! {"a": [{"y": 2, "x": 1}]},
        doc! {"a": [{"y": 2, "x": 1}, {"x": 1, "y": 2}]},
    );
    gives(
        doc! {"$addToSet": {"a": {"$each": [1, 2, 2.0, 3]}}},
        doc! {"a": [1]},
        doc! {"a": [1, 2, 3]},
    );
    gives(doc! {"$addToSet": {"a": {"$each": [1, 1]}}}, doc! {}, doc! {"a": [1]});
    // So many that their keys are compared.
    let twice: Vec<i32> = (0..20).rev().chain(0..20).collect();
    let rest: Vec<i32> = (0..20).rev().filter(|n| ![3, 5].contains(n)).collect();
    let several = doc! {"$addToSet": {"a": {"$each": twice.clone()}}};
    let there: Vec<Bson> = vec![Bson::Int32(3), Bson::Int32(3), Bson::Double(5.0), "x".into()];
    let mut added = there.clone();
    added.extend(rest.into_iter().map(Bson::Int32));
    gives(several.clone(), doc! {"a": there}, doc! {"a": added});
    gives(several.clone(), doc! {}, doc! {"a": twice[..20].to_vec()});
    keeps(several, doc! {"a": twice});
    fails(
        doc! {"$addToSet": {"a": 1}},
        doc! {"a": "x"},
        ErrorCode::BadValue,
        "Cannot apply $addToSet to non-array field. Field named 'a' has non-array type string",
    );
    gives(doc! {"$pop": {"a": 1}}, doc! {"a": [1, 2]}, doc! {"a": [1]});
    gives(doc! {"$pop": {"a": -1.0}}, doc! {"a": [1, 2]}, doc! {"a": [2]});
    keeps(doc! {"$pop": {"a": 1, "b": 1}}, doc! {"a": []});
    fails(
        doc! {"$pop": {"a": 2}},
        doc! {},
        ErrorCode::FailedToParse,
        "$pop expects 1 or -1, found: 2",
    );
    fails(
        doc! {"$pop": {"a": 1}},
        doc! {"a": 1},
        ErrorCode::TypeMismatch,
        "non-array type 'int'",
    );
    gives(doc! {"$pull": {"a": 2}}, doc! {"a": [1, 2, 3, 2.0]}, doc! {"a": [1, 3]});
    gives(
        doc! {"$pull": {"a": {"$gt": 2}}},
        doc! {"a": [1, 3, "x"]},
        doc! {"a": [1, "x"]},
    );
    gives(
        doc! {"$pull": {"a": {"b": {"$in": [1, 2]}}}},
        doc! {"a": [{"b": 1}, {"b": 3}, 5]},
        doc! {"a": [{"b": 3}, 5]},
    );
    gives(
        doc! {"$pull": {"a": {"$in": ["x", 1]}}},
        doc! {"a": ["x", 2, 1]},
        doc! {"a": [2]},
    );
    // Operators look at an element as at a field: at the elements of an array, too.
    let nested = || doc! {"a": [[1, 2], [1, 2, 3], [2, 3]]};
    gives(doc! {"$pull": {"a": {"$all": [1, 2]}}}, nested(), doc! {"a": [[2, 3]]});
    gives(doc! {"$pull": {"a": {"$gt": 2}}}, nested(), doc! {"a": [[1, 2]]});
    gives(doc! {"$pull": {"a": {"$size": 2}}}, nested(), doc! {"a": [[1, 2, 3]]});
    keeps(doc! {"$pull": {"a": 9, "b": 1}}, doc! {"a": [1]});
    fails(
        doc! {"$pull": {"a": 1}},
        doc! {"a": 1},
        ErrorCode::BadValue,
        "Cannot apply $pull to a non-array value",
    );
    gives(
        doc! {"$pullAll": {"a": [1, {"b": 1}]}},
        doc! {"a": [1, {"b": 1}, {"b": 1, "c": 1}, 2]},
        doc! {"a": [{"b": 1, "c": 1}, 2]},
    );
    for not in [Bson::from(doc! {"$gte": 2}), 1.into()] {
        fails(
            doc! {"$pull": {"a": {"$not": not}}},
            doc! {"a": [1, 2]},
            ErrorCode::BadValue,
            "unknown top level operator: $not",
        );
    }
    let always = doc! {"$expr": {"$eq": [1, 1]}};
    for condition in [
        always.clone(),
        doc! {"$or": [always.clone()]},
        doc! {"b": 1, "$nor": [always]},
    ] {
        fails(
            doc! {"$pull": {"a": condition}},
            doc! {"a": [1]},
            ErrorCode::QueryFeatureNotAllowed,
            "$expr is not allowed in this context",
        );
    }
    fails(
        doc! {"$pullAll": {"a": 1}},
        doc! {},
        ErrorCode::BadValue,
        "$pullAll requires an array argument",
    );
}

#[test]
fn conflicts_and_bad_paths() {
    let conflict = ErrorCode::ConflictingUpdateOperators;
    fails(
        doc! {"$set": {"a": 1}, "$inc": {"a": 1}},
        doc! {},
        conflict,
        "Updating the path 'a' would create a conflict at 'a'",
    );
    fails(
        doc! {"$set": {"a": 1, "a.b": 1}},
        doc! {},
        conflict,
        "Updating the path 'a.b' would create a conflict at 'a'",
    );
    fails(
        doc! {"$set": {"a.b.c": 1, "a.b": 1}},
        doc! {},
        conflict,
        "Updating the path 'a.b' would create a conflict at 'a.b'",
    );
    fails(doc! {"$rename": {"a": "b"}, "$set": {"b": 1}}, doc! {}, conflict, "'b'");
    fails(
        doc! {"$set": {"": 1}},
        doc! {},
        ErrorCode::EmptyFieldName,
        "empty update path",
    );
    fails(
        doc! {"$set": {"a..b": 1}},
        doc! {},
        ErrorCode::EmptyFieldName,
        "'a..b' contains an empty field name",
    );
    fails(doc! {"$set": {"$": 1}}, doc! {}, ErrorCode::BadValue, "first position");
    fails(
        doc! {"$set": {"a.$.b.$": 1}},
        doc! {},
        ErrorCode::BadValue,
        "Too many positional",
    );
    fails(
        doc! {"$foo": {"a": 1}},
        doc! {},
        ErrorCode::FailedToParse,
        "Unknown modifier: $foo. Expected a valid update modifier",
    );
    fails(
        doc! {"$set": {"a": 1}, "b": 1},
        doc! {},
        ErrorCode::FailedToParse,
        "Unknown modifier: b",
    );
    fails(
        doc! {"$set": "x"},
        doc! {},
        ErrorCode::FailedToParse,
        "Modifiers operate on fields but we found type string instead",
    );
    fails(
        5,
        doc! {},
        ErrorCode::FailedToParse,
        "must be either an object or an array",
    );
    let long = vec!["a"; 300].join(".");
    fails(doc! {"$set": {long: 1}}, doc! {}, ErrorCode::Overflow, "too long");
}

#[test]
fn id_is_immutable() {
    let immutable = ErrorCode::ImmutableField;
    let text = "Performing an update on the path '_id' would modify the immutable field '_id'";
    fails(doc! {"$set": {"_id": 2}}, doc! {"_id": 1}, immutable, text);
    fails(doc! {"$unset": {"_id": 1}}, doc! {"_id": 1}, immutable, text);
    fails(doc! {"$set": {"_id.a": 2}}, doc! {"_id": {"a": 1}}, immutable, text);
    keeps(doc! {"$set": {"_id": 1}}, doc! {"_id": 1});
    fails(
        doc! {"_id": 2, "a": 1},
        doc! {"_id": 1},
        immutable,
        "'_id' was found to have been altered to _id: 2",
    );
}

#[test]
fn positional() {
    let matched = UpdateContext {
        details: MatchDetails { array_index: Some(1) },
        ..NOW
    };
    let at = |update: bson::Document, document: &bson::Document| apply_with(update, &[], document, &matched);
    assert_eq!(
        at(doc! {"$set": {"a.$": 9}}, &doc! {"a": [1, 2]}).unwrap(),
        Some(doc! {"a": [1, 9]})
    );
    assert_eq!(
        at(doc! {"$inc": {"a.$.b": 1}}, &doc! {"a": [{}, {"b": 1}]}).unwrap(),
        Some(doc! {"a": [{}, {"b": 2}]})
    );
    assert_eq!(
        at(doc! {"$set": {"a.$.b": 1, "a.1.c": 2}}, &doc! {"a": [{}, {}]}).unwrap(),
        Some(doc! {"a": [{}, {"b": 1, "c": 2}]})
    );
    assert_eq!(
        at(doc! {"$unset": {"a.$": 1}}, &doc! {"a": [1, 2]}).unwrap(),
        Some(doc! {"a": [1, Bson::Null]})
    );
    fails(
        doc! {"$set": {"a.$": 9}},
        doc! {"a": [1]},
        ErrorCode::BadValue,
        "The positional operator did not find the match needed from the query.",
    );
    fails(
        doc! {"$set": {"a.$": 9}},
        doc! {"a": 1},
        ErrorCode::BadValue,
        "The positional operator did not find the match",
    );
    fails(
        doc! {"$set": {"a.$": 9}},
        doc! {},
        ErrorCode::BadValue,
        "The positional operator did not find the match",
    );
}

#[test]
fn all_elements_and_array_filters() {
    gives(doc! {"$inc": {"a.$[]": 1}}, doc! {"a": [1, 2]}, doc! {"a": [2, 3]});
    gives(
        doc! {"$set": {"a.$[].b.$[]": 0}},
        doc! {"a": [{"b": [1]}, {"b": [2, 3]}]},
        doc! {"a": [{"b": [0]}, {"b": [0, 0]}]},
    );
    keeps(doc! {"$set": {"a.$[]": 1}}, doc! {"a": []});
    let with = |update: bson::Document, filters: &[bson::Document], document: bson::Document| {
        apply_with(update, filters, &document, &NOW)
    };
    let filter = doc! {"x": {"$gte": 2}};
    assert_eq!(
        with(
            doc! {"$set": {"a.$[x]": 0}},
            std::slice::from_ref(&filter),
            doc! {"a": [1, 2, 3]}
        )
        .unwrap(),
        Some(doc! {"a": [1, 0, 0]})
    );
    assert_eq!(
        with(
            doc! {"$set": {"a.$[x].c": 0}},
            &[doc! {"x.b": 1}],
            doc! {"a": [{"b": 1}, {"b": 2}]}
        )
        .unwrap(),
        Some(doc! {"a": [{"b": 1, "c": 0}, {"b": 2}]})
    );
    assert_eq!(
        with(
            doc! {"$set": {"a.$[x].c": 0, "a.$[].d": 1}},
            &[doc! {"$or": [{"x.b": 1}, {"x.b": 3}]}],
            doc! {"a": [{"b": 1}, {"b": 2}]}
        )
        .unwrap(),
        Some(doc! {"a": [{"b": 1, "c": 0, "d": 1}, {"b": 2, "d": 1}]})
    );
    let code = |update, filters: &[bson::Document], document| with(update, filters, document).unwrap_err().code();
    assert_eq!(
        code(
            doc! {"$set": {"a.$[x]": 0, "a.$[]": 1}},
            std::slice::from_ref(&filter),
            doc! {"a": [5]}
        ),
        Some(ErrorCode::ConflictingUpdateOperators)
    );
    assert_eq!(
        code(doc! {"$set": {"a": 0}}, std::slice::from_ref(&filter), doc! {}),
        Some(ErrorCode::FailedToParse)
    );
    assert_eq!(
        code(doc! {"$set": {"a.$[y]": 0}}, &[], doc! {}),
        Some(ErrorCode::BadValue)
    );
    assert_eq!(
        code(doc! {"$set": {"a.$[x]": 0}}, &[filter.clone(), filter], doc! {}),
        Some(ErrorCode::FailedToParse)
    );
    assert_eq!(
        code(doc! {"$set": {"a.$[x]": 0}}, &[doc! {"x": 1, "y": 1}], doc! {}),
        Some(ErrorCode::FailedToParse)
    );
    assert_eq!(
        code(doc! {"$set": {"a.$[X]": 0}}, &[doc! {"X": 1}], doc! {}),
        Some(ErrorCode::BadValue)
    );
    fails(
        doc! {"$set": {"a.$[]": 0}},
        doc! {},
        ErrorCode::BadValue,
        "The path 'a' must exist in the document in order to apply array updates.",
    );
    fails(
        doc! {"$set": {"a.$[]": 0}},
        doc! {"a": 1},
        ErrorCode::BadValue,
        "Cannot apply array updates to non-array element a: 1",
    );
}

#[test]
fn replacement() {
    gives(doc! {"x": 1}, doc! {"_id": 7, "a": 1}, doc! {"_id": 7, "x": 1});
    gives(
        doc! {"x": 1, "_id": 7},
        doc! {"_id": 7, "a": 1},
        doc! {"_id": 7, "x": 1},
    );
    gives(doc! {}, doc! {"_id": 7, "a": 1}, doc! {"_id": 7});
    keeps(doc! {"_id": 7, "a": 1}, doc! {"_id": 7, "a": 1});
    // As it was sent it is another document.
    gives(doc! {"a": 1}, doc! {"_id": 7, "a": 1}, doc! {"_id": 7, "a": 1});
    gives(
        doc! {"t": Timestamp { time: 0, increment: 0 }, "d": {"t": Timestamp { time: 0, increment: 0 }}},
        doc! {"_id": 1},
        doc! {"_id": 1, "t": Timestamp { time: 7, increment: 9 }, "d": {"t": Timestamp { time: 0, increment: 0 }}},
    );
    fails(
        doc! {"a": 1, "$b": 1},
        doc! {},
        ErrorCode::DollarPrefixedFieldName,
        "'$b'",
    );
    assert!(parse_with(&bson!({"a": 1}), &[]).unwrap().is_replacement());
}

#[test]
fn pipelines() {
    gives(
        bson!([{"$set": {"b": {"$add": ["$a", 1]}}}]),
        doc! {"_id": 1, "a": 1},
        doc! {"_id": 1, "a": 1, "b": 2},
    );
    gives(
        bson!([{"$set": {"a": "$b", "b": "$a"}}]),
        doc! {"_id": 1, "a": 1, "b": 2},
        doc! {"_id": 1, "a": 2, "b": 1},
    );
    gives(
        bson!([{"$unset": ["a", "b.c"]}]),
        doc! {"_id": 1, "a": 1, "b": {"c": 1}},
        doc! {"_id": 1, "b": {}},
    );
    gives(
        bson!([{"$replaceWith": {"x": "$a"}}]),
        doc! {"_id": 1, "a": 1},
        doc! {"_id": 1, "x": 1},
    );
    gives(
        bson!([{"$project": {"a": 1}}, {"$addFields": {"z": 1}}]),
        doc! {"_id": 1, "a": 1, "b": 1},
        doc! {"_id": 1, "a": 1, "z": 1},
    );
    keeps(bson!([{"$set": {"a": 1}}]), doc! {"_id": 1, "a": 1});
    keeps(bson!([]), doc! {"_id": 1});
    for stage in ["$match", "$indexStats"] {
        fails(
            bson!([{stage: {}}]),
            doc! {},
            ErrorCode::InvalidOptions,
            &format!("{stage} is not allowed to be used within an update"),
        );
    }
    fails(
        bson!([{"$foo": {}}]),
        doc! {},
        ErrorCode(40324),
        "Unrecognized pipeline stage name: '$foo'",
    );
    fails(
        bson!([{"$set": {"a": 1}, "$unset": "b"}]),
        doc! {},
        ErrorCode(40323),
        "exactly one field",
    );
    fails(
        bson!([{"$replaceWith": "$a"}]),
        doc! {"a": 1},
        ErrorCode(40228),
        "must evaluate to an object",
    );
    fails(
        bson!([{"$set": {"_id": 2}}]),
        doc! {"_id": 1},
        ErrorCode::ImmutableField,
        "_id",
    );
}

fn upsert(filter: bson::Document, update: impl Into<Bson>) -> Result<bson::Document, QueryError> {
    let matcher = Matcher::parse(&raw_of(&filter), &context()).unwrap();
    let bytes = parse_with(&update.into(), &[])?.upsert(
        &matcher,
        ObjectId::from_bytes([5; 12]),
        &NOW,
        &EvaluationContext::uninterrupted(),
    )?;
    Ok(RawDocumentBuf::from_bytes(bytes).unwrap().try_into().unwrap())
}

#[test]
fn set_on_insert_does_nothing_to_documents_that_are_there() {
    keeps(doc! {"$setOnInsert": {"a": 1, "b.c": 2}}, doc! {"_id": 1, "b": 5});
}

#[test]
fn size_and_depth_are_limited() {
    let big = "x".repeat(9 * 1024 * 1024);
    fails(
        doc! {"$set": {"b": big.clone()}},
        doc! {"a": big},
        ErrorCode(17419),
        "larger than 16777216",
    );
    let mut deep = doc! {};
    for _ in 0..150 {
        deep = doc! {"a": deep};
    }
    let path = vec!["b"; 40].join(".");
    fails(
        doc! {"$set": {path.clone(): deep.clone()}},
        doc! {},
        ErrorCode::Overflow,
        "depth",
    );
    fails(
        doc! {"$rename": {"x": path}},
        doc! {"x": deep},
        ErrorCode::Overflow,
        "depth",
    );
}
