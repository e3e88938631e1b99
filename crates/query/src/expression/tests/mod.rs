#![allow(clippy::unwrap_used)]
//! Every operator: the usual case, null and missing, the wrong type with its code.

mod arrays;
mod bounds;
mod dates;
mod numbers;
mod scopes;
mod strings;
mod types;

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use vfs::SeededRandom;

use super::{Expression, ExpressionContext};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::SharedDocument;

/// 2026-01-02T03:04:05.006Z
pub(super) const NOW_MS: i64 = 1_767_323_045_006;

pub(super) fn context() -> ExpressionContext {
    ExpressionContext::new(NOW_MS, Arc::new(SeededRandom::new(7)))
}

fn shared(document: &Document) -> SharedDocument {
    SharedDocument::from(RawDocumentBuf::try_from(document).unwrap())
}

/// Parses and evaluates; `None` is a missing value.
pub(super) fn evaluate(expression: impl Into<Bson>, root: &Document) -> Result<Option<Bson>, QueryError> {
    let wrapped = shared(&doc! {"": expression.into()});
    let raw = wrapped.iter().next().unwrap().unwrap().1;
    let expression = Expression::parse(raw, &context())?;
    let root = shared(root);
    let evaluation = EvaluationContext::uninterrupted();
    let value = expression.evaluate_on(&root, &evaluation)?;
    let wrapped = value.wrapped();
    let decoded = Document::try_from(wrapped.as_raw()).unwrap();
    Ok(decoded.get("").cloned())
}

/// Checks expressions without fields.
#[track_caller]
pub(super) fn gives(expression: impl Into<Bson>, expected: impl Into<Bson>) {
    gives_on(expression, doc! {}, expected);
}

#[track_caller]
pub(super) fn gives_on(expression: impl Into<Bson>, root: Document, expected: impl Into<Bson>) {
    let (expression, expected) = (expression.into(), expected.into());
    match evaluate(expression.clone(), &root) {
        Ok(Some(found)) => assert_eq!(found, expected, "{expression} on {root}"),
        Ok(None) => panic!("{expression} on {root} gives nothing, not {expected}"),
        Err(error) => panic!("{expression} on {root} fails: {error}"),
    }
}

#[track_caller]
pub(super) fn missing(expression: impl Into<Bson>, root: Document) {
    let expression = expression.into();
    assert_eq!(evaluate(expression.clone(), &root).unwrap(), None, "{expression}");
}

#[track_caller]
pub(super) fn fails(expression: impl Into<Bson>, code: i32) {
    fails_on(expression, doc! {}, code);
}

#[track_caller]
pub(super) fn fails_on(expression: impl Into<Bson>, root: Document, code: i32) {
    let expression = expression.into();
    match evaluate(expression.clone(), &root) {
        Ok(found) => panic!("{expression} gives {found:?}, not error {code}"),
        Err(error) => assert_eq!(error.code().unwrap().0, code, "{expression}: {error}"),
    }
}

/// Decimal128 from text.
pub(super) fn dec(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap())
}

/// A date from milliseconds.
pub(super) fn date(ms: i64) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(ms))
}

#[test]
fn operators_with_a_null_operand() {
    let unary = [
        "$abs",
        "$ceil",
        "$floor",
        "$round",
        "$trunc",
        "$sqrt",
        "$exp",
        "$ln",
        "$log10",
        "$sin",
        "$cos",
        "$tan",
        "$asin",
        "$acos",
        "$atan",
        "$sinh",
        "$cosh",
        "$tanh",
        "$asinh",
        "$acosh",
        "$atanh",
        "$degreesToRadians",
        "$bitNot",
        "$first",
        "$last",
        "$reverseArray",
        "$toInt",
        "$toLong",
        "$toDouble",
        "$toDecimal",
        "$toBool",
        "$toDate",
        "$toString",
        "$toObjectId",
        "$year",
        "$month",
        "$hour",
        "$objectToArray",
        "$arrayToObject",
        "$binarySize",
        "$bsonSize",
        "$tsSecond",
    ];
    for operator in unary {
        gives(doc! {operator: Bson::Null}, Bson::Null);
        gives(doc! {operator: "$nothing"}, Bson::Null);
    }
    let binary = [
        "$add",
        "$subtract",
        "$multiply",
        "$divide",
        "$mod",
        "$pow",
        "$log",
        "$atan2",
        "$concat",
        "$concatArrays",
        "$setUnion",
        "$bitAnd",
    ];
    for operator in binary {
        gives(doc! {operator: [Bson::Null, 1]}, Bson::Null);
        gives(doc! {operator: ["$nothing", "$nothing"]}, Bson::Null);
    }
}

#[test]
fn operators_with_a_wrong_type() {
    let text = [
        ("$add", 14),
        ("$multiply", 14),
        ("$abs", 28765),
        ("$ceil", 28765),
        ("$floor", 28765),
        ("$sqrt", 28765),
        ("$exp", 28765),
        ("$ln", 28765),
        ("$log10", 28765),
        ("$sin", 28765),
        ("$round", 51081),
        ("$trunc", 51081),
        ("$size", 17124),
        ("$first", 28689),
        ("$last", 28689),
        ("$reverseArray", 34435),
        ("$concatArrays", 28664),
        ("$objectToArray", 40390),
        ("$arrayToObject", 40386),
        ("$mergeObjects", 40400),
        ("$year", 16006),
        ("$setUnion", 17043),
        ("$setIntersection", 17047),
        ("$anyElementTrue", 17041),
        ("$allElementsTrue", 17040),
        ("$bitNot", 28765),
        ("$bitAnd", 14),
        ("$bsonSize", 31393),
        ("$tsSecond", 5687301),
        ("$tsIncrement", 5687302),
    ];
    for (operator, code) in text {
        fails_on(doc! {operator: "$x"}, doc! {"x": "text"}, code);
    }
    fails_on(doc! {"$concat": ["a", "$x"]}, doc! {"x": 1}, 16702);
    fails_on(doc! {"$toUpper": "$x"}, doc! {"x": {"a": 1}}, 16007);
    fails_on(doc! {"$strLenCP": "$x"}, doc! {"x": 1}, 34471);
    fails_on(doc! {"$strLenBytes": "$x"}, doc! {}, 34473);
}

#[test]
fn paths_and_objects() {
    let root =
        doc! {"a": {"b": 1, "c": [{"d": 1}, {"d": 2}, 5, {"e": 3}]}, "n": Bson::Null, "arr": [[{"x": 1}], {"x": 2}]};
    gives_on("$a.b", root.clone(), 1);
    gives_on("$a.c.d", root.clone(), vec![1, 2]);
    gives_on("$arr.x", root.clone(), vec![2]);
    // Digits are names, not indexes.
    gives_on("$a.c.0", root.clone(), Vec::<i32>::new());
    missing("$a.z", root.clone());
    missing("$a.b.c", root.clone());
    gives_on("$n", root.clone(), Bson::Null);
    missing("$n.x", root.clone());
    gives_on(
        doc! {"x": "$a.b", "y": "$zzz", "z": {"w": "$$REMOVE"}},
        root.clone(),
        doc! {"x": 1, "z": {}},
    );
    gives_on(
        vec![Bson::from("$a.b"), Bson::from("$zzz")],
        root.clone(),
        vec![Bson::Int32(1), Bson::Null],
    );
    gives_on("$$ROOT.a.b", root.clone(), 1);
    gives_on("$$CURRENT.a.b", root.clone(), 1);
    gives_on("$$ROOT", root.clone(), root);
    gives("$$NOW", date(NOW_MS));
    gives(doc! {"$literal": "$a"}, "$a");
    gives(doc! {"$const": {"$add": [1]}}, doc! {"$add": [1]});
}

#[test]
fn what_cannot_be_parsed() {
    fails(doc! {"$foo": 1}, 168);
    fails(doc! {"$function": {}}, 4660800);
    fails(doc! {"$sigmoid": 1}, 238);
    fails(doc! {"$add": 1, "$subtract": 1}, 15983);
    fails(doc! {"a": 1, "$add": 1}, 16410);
    fails(doc! {"a.b": 1}, 16412);
    fails("$", 16872);
    fails("$a.", 40353);
    fails("$a..b", 15998);
    fails("$a.$b", 16410);
    fails("$$nothing", 17276);
    fails("$$", 9);
    fails("$$.", 9);
    fails(doc! {"$subtract": [1]}, 16020);
    fails(doc! {"$round": [1, 2, 3]}, 28667);
    fails(doc! {"$ifNull": [1]}, 1257300);
    fails("$$CLUSTER_TIME", 51144);
    // Depth is bounded, whatever comes in.
    let mut deep = Bson::from(1);
    for _ in 0..250 {
        deep = doc! {"$not": [deep]}.into();
    }
    fails(deep, 15);
}

#[test]
fn dependencies_are_the_fields_read() {
    let wrapped = shared(&doc! {"": {"$let": {"vars": {"x": "$a.b"}, "in": {"$add": ["$$x.c", "$d", "$$CURRENT.e"]}}}});
    let raw = wrapped.iter().next().unwrap().unwrap().1;
    let expression = Expression::parse(raw, &context()).unwrap();
    let mut found = super::Dependencies::default();
    expression.add_dependencies(&mut found);
    assert!(!found.whole_document);
    assert_eq!(found.paths.into_iter().collect::<Vec<_>>(), ["a.b", "d", "e"]);
}

#[test]
fn let_of_a_command() {
    let variables = shared(&doc! {"x": {"$add": [1, 2]}, "o": {"a": {"b": 7}}, "y": "$$x"});
    let scoped = context().with_let(&variables).unwrap();
    let wrapped = shared(&doc! {"": ["$$x", "$$o.a.b", "$$y"]});
    let raw = wrapped.iter().next().unwrap().unwrap().1;
    let expression = Expression::parse(raw, &scoped).unwrap();
    assert_eq!(expression.as_constant().unwrap().render(), "[3, 7, 3]");
    // A later one hides an earlier one of its name, and those of the context around.
    let inner = scoped.with_let(&shared(&doc! {"x": 5, "z": "$$y"})).unwrap();
    let raw = wrapped.iter().next().unwrap().unwrap().1;
    let expression = Expression::parse(raw, &inner).unwrap();
    assert_eq!(expression.as_constant().unwrap().render(), "[5, 7, 3]");
    for reads in [
        doc! {"x": "$a"},
        doc! {"x": {"$add": [1, "$a.b"]}},
        doc! {"x": "$$ROOT"},
    ] {
        assert_eq!(
            context().with_let(&shared(&reads)).unwrap_err().code().unwrap().0,
            4890500
        );
    }
    let bad = shared(&doc! {"X": 1});
    assert_eq!(context().with_let(&bad).unwrap_err().code().unwrap().0, 9);
}
