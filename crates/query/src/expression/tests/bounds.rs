//! One expression can neither run on when its operation is to end, nor take memory without a bound.
//!
//! A client sent `$replaceAll` of a megabyte by a megabyte, `$map` over `$range` inside `$map`, `$regexFindAll` on a
//! long text: the server took gigabytes, or a core for hours, and neither `maxTimeMS` nor `killOp` ended it. Each of
//! these is here. Time is a clock that moves on by a millisecond with every look at it, so that a deadline is a number
//! of looks.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use storage::{Interrupted, Operation, StorageError};

use super::super::{Expression, operator};
use super::{context, evaluate, fails, gives, gives_on, shared};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::evaluation::tests::LookedAt;
use crate::value::SharedDocument;

/// An operation that is asked so many times before its time is over.
fn ending_after(looks: u64) -> Arc<Operation> {
    let operation = Operation::new(Arc::new(LookedAt::default()), 1);
    operation.set_deadline_ms(looks);
    Arc::new(operation)
}

/// Looks that a walk through everything below would need hundreds of times over.
const LOOKS: u64 = 200;

fn parse(expression: &Document, operation: &Arc<Operation>) -> Result<Expression, QueryError> {
    let wrapped = shared(&doc! {"": expression.clone()});
    let raw = wrapped.iter().next().unwrap().unwrap().1;
    Expression::parse(raw, &context().for_operation(operation))
}

/// What ends the evaluation of an expression: at parsing, or on a document.
fn end_of(expression: &Document, root: &SharedDocument) -> String {
    let operation = ending_after(LOOKS);
    let evaluation = EvaluationContext::new(&operation);
    let ended = match parse(expression, &operation) {
        Err(error) => error,
        Ok(expression) => match expression.evaluate_on(root, &evaluation) {
            Err(error) => error,
            Ok(_) => return "a value".to_owned(),
        },
    };
    match ended {
        QueryError::Storage(StorageError::Interrupted(Interrupted::TimeExpired)) => "time".to_owned(),
        other => format!("{}", other.code().expect("the language's own error").0),
    }
}

fn range(n: i32) -> Document {
    doc! {"$range": [0, n]}
}

/// `$reduce` over n numbers.
fn reduce(n: i32, initial: impl Into<Bson>, body: impl Into<Bson>) -> Document {
    doc! {"$reduce": {"input": range(n), "initialValue": initial.into(), "in": body.into()}}
}

#[test]
fn a_single_expression_ends_with_its_operation_or_its_memory() {
    let long = "x".repeat(1 << 20);
    let needle = format!("{}y", "x".repeat(1 << 19));
    let han: String = (0..200_000)
        .filter_map(|i| char::from_u32(0x4e00 + i % 20_000))
        .chain(['x'])
        .collect();
    let root = shared(&doc! {"long": &long, "needle": &needle, "n": 3000});
    let map = |input: Document, body: Bson| doc! {"$map": {"input": input, "in": body}};
    let doubled = || doc! {"$concatArrays": ["$$value", "$$value"]};
    let cases: Vec<(&str, Document, &str)> = vec![
        // What grows is refused before it is there.
        (
            "concat",
            reduce(60, "xxxxxxxxxxxxxxxx", doc! {"$concat": ["$$value", "$$value"]}),
            "16493",
        ),
        (
            "replaceAll",
            doc! {"$strLenBytes": {"$replaceAll": {"input": &long, "find": "x", "replacement": &long}}},
            "16493",
        ),
        (
            "replaceAll of a field",
            doc! {"$strLenBytes": {"$replaceAll": {"input": "$long", "find": "", "replacement": "$long"}}},
            "16493",
        ),
        (
            "concatArrays",
            doc! {"$size": reduce(60, vec![1, 2, 3, 4], doubled())},
            "146 or time",
        ),
        ("range", doc! {"$range": [i32::MIN, i32::MAX]}, "146"),
        (
            "arrays that share their elements",
            doc! {"$let": {"vars": {"v": reduce(40, vec![1], vec!["$$value", "$$value"])}, "in": "$$v"}},
            "146",
        ),
        (
            "objects in arrays",
            reduce(
                60,
                doc! {"a": 1},
                doc! {"$objectToArray": {"a": "$$value", "b": "$$value"}},
            ),
            "10334",
        ),
        // What multiplies is ended in between.
        (
            "map of ranges",
            doc! {"$size": map(range(3000), range(1_000_000).into())},
            "146 or time",
        ),
        (
            "map of ranges that vary",
            map(range(3000), doc! {"$range": ["$$this", 1_000_000]}.into()),
            "146 or time",
        ),
        (
            "zip",
            doc! {"$size": {"$zip": {"inputs": vec![Bson::from(range(100_000)); 100], "useLongestLength": true}}},
            "146 or time",
        ),
        ("split", doc! {"$size": {"$split": ["$long", "x"]}}, "146 or time"),
        (
            "a field in arrays of arrays",
            map(range(3000), map(range(3000), "$$this.a".into()).into()),
            "time",
        ),
        (
            "filter in filter",
            doc! {"$filter": {"input": range(100_000), "cond": {"$in": ["$$this", {"$range": [0, "$n"]}]}}},
            "time",
        ),
        (
            "reduce",
            reduce(2_000_000, 0, doc! {"$add": ["$$value", "$$this"]}),
            "time",
        ),
        (
            "reduce over a constant",
            reduce(2_000_000, 0, doc! {"$size": range(100_000)}),
            "time",
        ),
        (
            "map in map",
            map(
                range(100_000),
                doc! {"$size": map(range(100_000), doc! {"$add": ["$$this", 1]}.into())}.into(),
            ),
            "time",
        ),
        (
            "merged objects",
            reduce(
                300_000,
                doc! {"a": 1},
                doc! {"$mergeObjects": ["$$value", {"$arrayToObject": [[{"k": {"$toString": "$$this"}, "v": 1}]]}]},
            ),
            "time",
        ),
        (
            "union",
            doc! {"$size": {"$setUnion": [range(1_000_000), map(range(1_000_000), doc! {"$add": ["$$this", 0.5]}.into())]}},
            "146 or time",
        ),
        (
            "difference",
            doc! {"$setDifference": [{"$range": [0, 1_000_000]}, {"$range": ["$n", 1_000_000]}]},
            "146 or time",
        ),
        (
            "sort",
            doc! {"$size": {"$sortArray": {"input": map(range(1_000_000), doc! {"$rand": {}}.into()), "sortBy": 1}}},
            "146 or time",
        ),
        (
            "all matches",
            doc! {"$size": {"$regexFindAll": {"input": "$long", "regex": "x"}}},
            "146 or time",
        ),
        (
            "all empty matches",
            doc! {"$size": {"$regexFindAll": {"input": "$long", "regex": ""}}},
            "146 or time",
        ),
        (
            "matches again and again",
            doc! {"$filter": {"input": range(1_000_000), "cond": {"$regexMatch": {"input": "$long", "regex": "y"}}}},
            "time",
        ),
        (
            "trim",
            map(
                range(1000),
                doc! {"$strLenBytes": {"$trim": {"input": "$long", "chars": &han}}}.into(),
            ),
            "time",
        ),
        (
            "length again and again",
            map(range(1_000_000), doc! {"$strLenCP": "$long"}.into()),
            "time",
        ),
        (
            "search again and again",
            map(range(1_000_000), doc! {"$indexOfCP": ["$long", "$needle"]}.into()),
            "time",
        ),
        (
            "sum",
            map(range(1_000_000), doc! {"$sum": {"$range": [0, "$n"]}}.into()),
            "time",
        ),
    ];
    for (name, expression, expected) in cases {
        let ended = end_of(&expression, &root);
        assert!(
            expected.split(" or ").any(|one| one == ended),
            "{name}: ended by {ended}, not {expected}"
        );
    }
}

#[test]
fn searches_are_linear() {
    let long = "x".repeat(1 << 20);
    let needle = format!("{}y", "x".repeat(1 << 19));
    let root = shared(&doc! {"a": "é".repeat(10_000), "b": &long, "c": &needle, "d": format!("{long}{needle}")});
    for (expression, expected) in [
        (doc! {"$indexOfBytes": ["$b", "$c"]}, -1),
        (doc! {"$indexOfCP": ["$b", "$c"]}, -1),
        (doc! {"$indexOfBytes": ["$d", "$c"]}, 1 << 20),
        (doc! {"$indexOfCP": ["$d", "$c"]}, 1 << 20),
        (doc! {"$indexOfCP": [{"$concat": ["$a", "yz"]}, "z"]}, 10_001),
        (
            doc! {"$size": {"$regexFindAll": {"input": {"$concat": ["$a", "$a", "$a"]}, "regex": "é"}}},
            30_000,
        ),
        (
            doc! {"$getField": {"field": "idx", "input": {"$last": {"$regexFindAll": {"input": "$a", "regex": "é"}}}}},
            9_999,
        ),
    ] {
        let operation = Arc::new(Operation::new(Arc::new(LookedAt::default()), 1));
        let evaluation = EvaluationContext::new(&operation);
        let parsed = parse(&expression, &operation).unwrap();
        match parsed.evaluate_on(&root, &evaluation).unwrap() {
            crate::value::Value::Int32(found) => assert_eq!(found, expected, "{expression}"),
            other => panic!("{expression} gives {other:?}"),
        }
    }
}

#[test]
fn classes_mean_the_same_whether_one_match_is_wanted_or_all() {
    // All matches are searched for by a pattern compiled in another way; what it means must not change.
    for (text, regex) in [
        ("aé1 ٣_", r"\w"),
        ("aé1 ٣_", r"\d"),
        ("a\u{a0}b c", r"\s"),
        ("éa é", r"\b"),
        ("aéÉ", r"(?i)É"),
        ("aé", r"[[:alpha:]]"),
        ("aé", r"(*UCP)\w"),
        ("aé", r"(*NO_JIT)(*UCP)[[:alpha:]]"),
        ("aé", r"(*NO_JIT)\w"),
        ("ab", r"(*ACCEPT)"),
    ] {
        let root = shared(&doc! {"t": text});
        let first = doc! {"$regexFind": {"input": "$t", "regex": regex}};
        let all = doc! {"$first": {"$regexFindAll": {"input": "$t", "regex": regex}}};
        let value = |expression: &Document| {
            let operation = ending_after(LOOKS);
            let evaluation = EvaluationContext::new(&operation);
            let parsed = parse(expression, &operation).unwrap();
            let value = parsed.evaluate_on(&root, &evaluation).unwrap();
            if value.is_nullish() {
                String::new()
            } else {
                value.render()
            }
        };
        assert_eq!(value(&first), value(&all), "{regex} in {text}");
    }
}

#[test]
fn every_operator_heeds_the_end_of_its_operation() {
    let numbers: Vec<i32> = (0..20_000).collect();
    let fields: Document = (0..2_000).map(|i| (format!("f{i}"), Bson::Int32(i))).collect();
    let root = shared(&doc! {"array": numbers, "text": "ab".repeat(100_000), "document": fields, "n": 3});
    let operands = ["$array", "$text", "$document", "$n"];
    let mut walked = 0;
    let check = |name: &str, argument: Bson| {
        let expression = doc! {name: argument};
        let free = Arc::new(Operation::new(Arc::new(LookedAt::default()), 1));
        // A combination that cannot be parsed is another test's business.
        let Ok(parsed) = parse(&expression, &free) else {
            return 0;
        };
        let killed = Operation::new(Arc::new(LookedAt::default()), 1);
        killed.kill();
        let evaluation = EvaluationContext::new(&killed);
        match parsed.evaluate_on(&root, &evaluation) {
            Err(QueryError::Storage(StorageError::Interrupted(Interrupted::Killed))) => {}
            Err(other) => panic!("{name} answers {other} to a killed operation"),
            Ok(value) => panic!("{name} answers {} to a killed operation", value.type_name()),
        }
        1
    };
    for operator in operator::all_positional() {
        for first in operands {
            for second in operands {
                walked += check(operator.name, vec![first].into());
                walked += check(operator.name, vec![first, second].into());
                walked += check(operator.name, vec![first, second, "$n"].into());
            }
        }
    }
    for operator in operator::all_named() {
        for operand in operands {
            let arguments: Document = operator
                .fields
                .iter()
                .map(|(name, _)| ((*name).to_owned(), Bson::from(operand)))
                .collect();
            walked += check(operator.name, arguments.into());
        }
    }
    for (name, argument) in [
        ("$map", doc! {"input": "$array", "in": "$$this"}),
        ("$filter", doc! {"input": "$array", "cond": true}),
        ("$reduce", doc! {"input": "$array", "initialValue": 0, "in": "$$this"}),
        ("$sortArray", doc! {"input": "$array", "sortBy": 1}),
        ("$regexMatch", doc! {"input": "$text", "regex": "c"}),
        ("$regexFind", doc! {"input": "$text", "regex": "c"}),
        ("$regexFindAll", doc! {"input": "$text", "regex": "b"}),
    ] {
        walked += check(name, argument.into());
    }
    assert!(walked > 500, "only {walked} combinations could be parsed");
}

#[test]
fn what_walks_counts_its_steps() {
    let numbers: Vec<i32> = (0..50_000).collect();
    let fields: Document = (0..50_000).map(|i| (format!("f{i}"), Bson::Int32(i))).collect();
    let root = shared(&doc! {"a": numbers, "d": fields, "t": "b".repeat(50_000)});
    for expression in [
        doc! {"$map": {"input": "$a", "in": "$$this"}},
        doc! {"$filter": {"input": "$a", "cond": false}},
        doc! {"$reduce": {"input": "$a", "initialValue": 0, "in": 1}},
        doc! {"$range": [0, {"$size": "$a"}]},
        doc! {"$zip": {"inputs": ["$a", "$a"]}},
        doc! {"$split": ["$t", "b"]},
        doc! {"$trim": {"input": "$t", "chars": "b"}},
        doc! {"$concatArrays": ["$a", "$a"]},
        doc! {"$setUnion": ["$a", "$a"]},
        doc! {"$setIntersection": ["$a", "$a"]},
        doc! {"$setDifference": ["$a", "$a"]},
        doc! {"$setEquals": ["$a", "$a"]},
        doc! {"$setIsSubset": ["$a", "$a"]},
        doc! {"$sortArray": {"input": "$a", "sortBy": -1}},
        doc! {"$objectToArray": "$d"},
        doc! {"$mergeObjects": {"$map": {"input": "$a", "in": {"k": "$$this"}}}},
        doc! {"$regexFindAll": {"input": "$t", "regex": "b"}},
        doc! {"$in": [-1, "$a"]},
        doc! {"$indexOfArray": ["$a", -1]},
        doc! {"$reverseArray": "$a"},
        doc! {"$slice": ["$a", 50_000]},
        doc! {"$maxN": {"n": 5, "input": "$a"}},
        doc! {"$max": "$a"},
    ] {
        let clock = Arc::new(LookedAt::default());
        let operation = Arc::new(Operation::new(clock.clone(), 1));
        operation.set_deadline_ms(1 << 40);
        let evaluation = EvaluationContext::new(&operation);
        let parsed = parse(&expression, &Arc::new(Operation::new(clock.clone(), 2))).unwrap();
        let before = clock.looks();
        parsed.evaluate_on(&root, &evaluation).unwrap();
        let looks = clock.looks() - before;
        assert!(looks >= 50_000 / 2048, "{expression} looked {looks} times");
        assert_eq!(evaluation.held(), 0, "{expression} holds nothing any more");
    }
}

#[test]
fn constants_of_all_expressions_together_are_bounded() {
    // Each would be kept in the parsed expression: 1,000 of them 4 GB.
    let operation = Arc::new(Operation::new(Arc::new(LookedAt::default()), 1));
    let context = context().for_operation(&operation);
    let wrapped = shared(&doc! {"": range(50_000)});
    let raw = wrapped.iter().next().unwrap().unwrap().1;
    let parsed: Vec<Expression> = (0..20).map(|_| Expression::parse(raw, &context).unwrap()).collect();
    let kept = parsed.iter().filter(|parsed| parsed.as_constant().is_some()).count();
    assert!((1..20).contains(&kept), "{kept} of 20 were kept");
    let evaluation = EvaluationContext::new(&operation);
    let empty = SharedDocument::empty();
    for parsed in &parsed {
        let value = parsed.evaluate_on(&empty, &evaluation).unwrap();
        assert_eq!(value.as_array().unwrap().len().unwrap(), 50_000);
    }
}

/// A string of 16 MiB is an error wherever an expression has it, also where little is left of it.
#[test]
fn strings_are_shorter_than_16_mib() {
    const MIB: usize = 1 << 20;
    let long = "x".repeat(16 * MIB);
    let half = "\u{e9}".repeat(4 * MIB);
    let root = doc! {"half": &half, "bytes": bson::Binary { subtype: 0.into(), bytes: vec![b'x'; 12 * MIB] }};
    for (case, expression) in [
        doc! {"$strLenBytes": &long},
        doc! {"$toBool": {"$literal": &long}},
        doc! {"$cond": [true, 1, &long]},
        doc! {"$strLenBytes": {"$concat": ["$half", "$half"]}},
        doc! {"$size": {"$split": [{"$concat": ["$half", &half]}, "-"]}},
        doc! {"$strLenCP": {"$replaceAll": {"input": "$half", "find": "\u{e9}", "replacement": "xxxx"}}},
        doc! {"$convert": {"input": "$bytes", "to": "string", "format": "utf8", "onError": &long}},
    ]
    .into_iter()
    .enumerate()
    {
        match evaluate(expression, &root) {
            Ok(_) => panic!("case {case} is taken"),
            Err(error) => assert_eq!(error.code().unwrap().0, 16493, "case {case}"),
        }
    }
    gives(doc! {"$strLenBytes": &long[1..]}, 16 * MIB as i32 - 1);
    gives_on(
        doc! {"$strLenBytes": {"$concat": ["$half", &half[2..], "x"]}},
        root.clone(),
        16 * MIB as i32 - 1,
    );
    // Null comes before the length, and a conversion that needs too much room can be handled.
    gives_on(
        doc! {"$concat": ["$half", "$half", Bson::Null]},
        root.clone(),
        Bson::Null,
    );
    for format in ["base64", "base64url"] {
        let convert = |input: &str| doc! {"$convert": {"input": input, "to": "string", "format": format}};
        match evaluate(convert("$bytes"), &root) {
            Ok(_) => panic!("{format} is taken"),
            Err(error) => assert_eq!(error.code().unwrap().0, 241, "{format}"),
        }
    }
}

/// A reader sent `$reduce` that wraps a document in another a thousand times: drivers could not read the reply, and
/// what rendered or hashed the value overflowed the stack.
#[test]
fn computed_documents_nest_as_deep_as_bson() {
    let deep = |levels, inner: Document| reduce(levels, doc! {}, inner);
    let object = || doc! {"a": "$$value"};
    evaluate(deep(199, object()), &doc! {}).unwrap();
    for (levels, inner) in [
        (200, object()),
        (100, doc! {"a": ["$$value"]}),
        (3000, object()),
        (300, doc! {"$setField": {"field": "a", "input": {}, "value": "$$value"}}),
        (300, doc! {"$arrayToObject": [[{"k": "a", "v": "$$value"}]]}),
    ] {
        let error = evaluate(deep(levels, inner.clone()), &doc! {}).unwrap_err();
        assert_eq!(error.code().unwrap().0, 15, "{levels} levels of {inner}");
    }
    // The deepest value that there is, in a message and hashed.
    let lists = reduce(249, deep(199, object()), bson::bson!(["$$value"]));
    fails(doc! {"$trim": {"input": lists.clone()}}, 50699);
    evaluate(doc! {"$toHashedIndexKey": lists}, &doc! {}).unwrap();
}
