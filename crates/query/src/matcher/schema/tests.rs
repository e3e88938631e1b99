//! Tables: a schema, values of `a` that conform, values that do not. Then what is told, what is refused, and a model.
#![allow(clippy::unwrap_used)]

use crate::exec::tests::fixture::generated;
use bson::oid::ObjectId;
use bson::spec::{BinarySubtype, ElementType};
use bson::{Decimal128, Regex};
use proptest::prelude::*;

use super::*;
use crate::matcher::Matcher;
use crate::matcher::tests::{context, raw_of};

fn schema(schema: &Document) -> Schema {
    Schema::parse(&raw_of(schema)).unwrap_or_else(|error| panic!("{schema}: {error}"))
}

fn conforms(schema: &Schema, document: &Document) -> bool {
    schema
        .matches(&raw_of(document), &EvaluationContext::uninterrupted())
        .unwrap()
}

/// A schema of the field `a`, values that conform and values that do not. A missing field always does.
fn check(of_a: Document, yes: &[Bson], no: &[Bson]) {
    let schema = schema(&doc! { "properties": { "a": of_a.clone() } });
    assert!(conforms(&schema, &doc! {}), "{of_a}");
    for (values, expected) in [(yes, true), (no, false)] {
        for value in values {
            assert_eq!(
                conforms(&schema, &doc! { "a": value.clone() }),
                expected,
                "{of_a}: {value}"
            );
        }
    }
}

fn list<T: Into<Bson>, const N: usize>(values: [T; N]) -> Bson {
    Bson::Array(values.into_iter().map(Into::into).collect())
}

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().unwrap())
}

#[test]
fn types_are_asked_for_by_either_name() {
    let id = Bson::ObjectId(ObjectId::new());
    check(
        doc! { "bsonType": "objectId" },
        std::slice::from_ref(&id),
        &["x".into()],
    );
    check(
        doc! { "bsonType": ["int", "null"] },
        &[1.into(), Bson::Null],
        &[1_i64.into(), 1.5.into()],
    );
    check(doc! { "bsonType": "bool" }, &[true.into()], &[0.into()]);
    check(doc! { "type": "boolean" }, &[true.into()], &[0.into()]);
    for number in ["type", "bsonType"] {
        let numbers = [1.into(), 1_i64.into(), 1.5.into(), decimal("1")];
        check(doc! { number: "number" }, &numbers, &["1".into()]);
    }
    // Arrays are not walked into.
    check(doc! { "type": "string" }, &["x".into()], &[list(["x"])]);
    check(
        doc! { "type": ["array", "object"] },
        &[list(["x"]), doc! {}.into()],
        &["x".into()],
    );
}

/// Validators of collections whose clients encrypt fields were refused.
#[test]
fn encrypted_values_are_known_by_their_subtype_and_tell_their_type() {
    let binary = |subtype, of: ElementType| {
        let mut bytes = vec![1; 17];
        bytes.extend([of as u8, 9, 9]);
        Bson::Binary(bson::Binary { subtype, bytes })
    };
    let (string, number) = (
        binary(BinarySubtype::Encrypted, ElementType::String),
        binary(BinarySubtype::Encrypted, ElementType::Int32),
    );
    let short = Bson::Binary(bson::Binary {
        subtype: BinarySubtype::Encrypted,
        bytes: vec![1],
    });
    let plain = binary(BinarySubtype::Generic, ElementType::String);
    let list = Bson::Array(vec![string.clone()]);
    check(
        doc! { "encrypt": { "algorithm": "AEAD_AES_256_CBC_HMAC_SHA_512-Random", "keyId": "/key" } },
        &[string.clone(), number.clone(), short.clone()],
        &[plain.clone(), list, "x".into()],
    );
    check(
        doc! { "encrypt": { "bsonType": ["string", "bool"] } },
        std::slice::from_ref(&string),
        &[number, short, plain],
    );
    check(doc! { "encryptMetadata": { "keyId": [] } }, &[1.into(), string], &[]);
}

#[test]
fn limits_hold_for_numbers_only() {
    let other = ["x".into(), Bson::Null, list([-1])];
    let of = |rest: &[Bson]| [rest, &other].concat();
    check(
        doc! { "minimum": 2 },
        &of(&[2.into(), 2.5.into(), decimal("1e3")]),
        &[1.into(), decimal("1.99")],
    );
    check(
        doc! { "minimum": 2, "exclusiveMinimum": true },
        &of(&[3_i64.into()]),
        &[2.into(), 2.0.into()],
    );
    check(
        doc! { "minimum": 2, "exclusiveMinimum": false },
        &of(&[2.into()]),
        &[1.into()],
    );
    check(doc! { "maximum": 2.5 }, &of(&[2.into(), 2.5.into()]), &[3.into()]);
    check(
        doc! { "maximum": 2, "exclusiveMaximum": true },
        &of(&[1.into()]),
        &[2.into()],
    );
    check(doc! { "minimum": 0 }, &[], &[f64::NAN.into()]);
    check(
        doc! { "multipleOf": 3 },
        &of(&[0.into(), 9_i64.into(), 6.0.into()]),
        &[1.into(), 4.5.into()],
    );
    check(
        doc! { "multipleOf": 0.1 },
        &of(&[0.3.into(), 1.into()]),
        &[0.35.into(), f64::INFINITY.into()],
    );
}

#[test]
fn lengths_count_characters_and_items() {
    let other = [7.into(), Bson::Null];
    let of = |rest: &[Bson]| [rest, &other].concat();
    check(
        doc! { "minLength": 2 },
        &of(&["ab".into(), "äö".into()]),
        &["".into(), "ä".into()],
    );
    check(doc! { "maxLength": 2 }, &of(&["".into(), "äö".into()]), &["abc".into()]);
    check(
        doc! { "pattern": "^a.*z$" },
        &of(&["a to z".into()]),
        &["z to a".into()],
    );
    check(doc! { "minItems": 1 }, &of(&[list([1])]), &[list::<i32, 0>([])]);
    check(doc! { "maxItems": 1_i64 }, &of(&[list([1])]), &[list([1, 2])]);
    check(
        doc! { "minProperties": 1 },
        &of(&[doc! { "b": 1 }.into()]),
        &[doc! {}.into()],
    );
    check(
        doc! { "maxProperties": 1.0 },
        &of(&[doc! {}.into()]),
        &[doc! { "b": 1, "c": 1 }.into()],
    );
}

#[test]
fn unique_items_compare_by_value_and_without_the_order_of_fields() {
    let unique = doc! { "uniqueItems": true };
    let mixed: Bson = list::<Bson, _>([1.into(), "1".into(), list([1]), doc! { "x": 1 }.into()]);
    check(unique.clone(), &[list::<i32, 0>([]), mixed, 5.into()], &[]);
    check(
        unique.clone(),
        &[],
        &[list::<Bson, _>([1.into(), 1.0.into()]), list(["a", "b", "a"])],
    );
    let swapped = list([
        doc! { "x": 1, "y": { "p": 1, "q": 2 } },
        doc! { "y": { "q": 2, "p": 1_i64 }, "x": 1 },
    ]);
    check(unique, &[], &[swapped]);
    // But for the order of an array's elements.
    check(doc! { "uniqueItems": true }, &[list([list([1, 2]), list([2, 1])])], &[]);
    check(doc! { "uniqueItems": false }, &[list([1, 1])], &[]);
}

#[test]
fn items_are_described_together_or_one_by_one() {
    check(
        doc! { "items": { "type": "string" } },
        &[list::<i32, 0>([]), list(["x"]), 5.into()],
        &[list([1])],
    );
    let pair = doc! { "items": [{ "type": "string" }, { "type": "number" }] };
    let (right, longer): (Bson, Bson) = (
        list::<Bson, _>(["x".into(), 1.into()]),
        list::<Bson, _>(["x".into(), 1.into(), true.into()]),
    );
    check(
        pair.clone(),
        &[list(["x"]), right.clone(), longer.clone()],
        &[list([1]), list(["x", "y"])],
    );
    let mut closed = pair.clone();
    closed.insert("additionalItems", false);
    check(closed, std::slice::from_ref(&right), std::slice::from_ref(&longer));
    let mut open = pair;
    open.insert("additionalItems", doc! { "type": "boolean" });
    check(
        open,
        &[right.clone(), longer],
        &[list::<Bson, _>(["x".into(), 1.into(), 2.into()])],
    );
    // Without a list of schemas there are no further items.
    check(doc! { "additionalItems": false }, std::slice::from_ref(&right), &[]);
    check(doc! { "items": {}, "additionalItems": false }, &[right], &[]);
}

#[test]
fn objects_are_described_by_name_pattern_and_the_rest() {
    let object =
        doc! { "properties": { "n": { "type": "number" } }, "patternProperties": { "^s_": { "type": "string" } } };
    let good: Bson = doc! { "n": 1, "s_x": "x" }.into();
    check(
        object.clone(),
        &[good.clone(), doc! { "o": true }.into(), 5.into()],
        &[doc! { "n": "x" }.into(), doc! { "s_x": 1 }.into()],
    );
    let mut closed = object.clone();
    closed.insert("additionalProperties", false);
    check(
        closed,
        &[good.clone(), doc! {}.into()],
        &[doc! { "n": 1, "o": true }.into()],
    );
    let mut open = object;
    open.insert("additionalProperties", doc! { "type": "boolean" });
    check(open, &[good, doc! { "o": true }.into()], &[doc! { "o": 1 }.into()]);
    check(
        doc! { "required": ["x", "y"] },
        &[doc! { "y": Bson::Null, "x": 1 }.into(), 5.into()],
        &[doc! { "x": 1 }.into()],
    );
    let wants = doc! { "dependencies": { "x": ["y"], "z": { "properties": { "y": { "type": "number" } } } } };
    check(
        wants,
        &[
            doc! {}.into(),
            doc! { "x": 1, "y": "s" }.into(),
            doc! { "z": 1, "y": 2 }.into(),
            doc! { "z": 1 }.into(),
        ],
        &[doc! { "x": 1 }.into(), doc! { "z": 1, "y": "s" }.into()],
    );
    // Names with dots are names.
    check(
        doc! { "properties": { "x.y": { "type": "number" } } },
        &[doc! { "x": { "y": "s" } }.into()],
        &[doc! { "x.y": "s" }.into()],
    );
}

#[test]
fn schemas_combine() {
    let (small, even) = (doc! { "maximum": 10 }, doc! { "multipleOf": 2 });
    check(
        doc! { "allOf": [small.clone(), even.clone()] },
        &[4.into()],
        &[3.into(), 12.into()],
    );
    check(
        doc! { "anyOf": [small.clone(), even.clone()] },
        &[3.into(), 12.into()],
        &[13.into()],
    );
    check(
        doc! { "oneOf": [small.clone(), even] },
        &[3.into(), 12.into()],
        &[4.into(), 13.into()],
    );
    check(doc! { "not": small }, &[12.into()], &[4.into(), "x".into()]);
    check(doc! { "not": {} }, &[], &[4.into()]);
    let values = doc! { "enum": [1, "x", [1, 2], { "p": 1, "q": 2 }] };
    let yes = [1.0.into(), "x".into(), list([1, 2]), doc! { "q": 2, "p": 1 }.into()];
    check(
        values,
        &yes,
        &[2.into(), list([2, 1]), list(["x"]), doc! { "p": 1 }.into(), Bson::Null],
    );
}

#[test]
fn as_a_filter_it_stands_among_others() {
    let filter = doc! { "$or": [{ "$jsonSchema": { "required": ["a"] } }, { "b": 1 }], "c": { "$exists": false } };
    let matcher = Matcher::parse(&raw_of(&filter), &context()).unwrap();
    let matches = |document: Document| {
        let raw = raw_of(&document);
        matcher.matches(&raw, &EvaluationContext::uninterrupted()).unwrap()
    };
    assert!(matches(doc! { "a": 1 }) && matches(doc! { "b": 1 }));
    assert!(!matches(doc! { "b": 2 }) && !matches(doc! { "a": 1, "c": 1 }));
    // It is written as it was read.
    let again = Matcher::parse(&matcher.to_document(), &context()).unwrap();
    assert_eq!(again.to_document(), matcher.to_document());
    assert!(
        !conforms(&schema(&doc! { "type": "string" }), &doc! {}),
        "no document is a string"
    );
    assert!(conforms(
        &schema(&doc! { "bsonType": ["string", "object"], "minimum": 5 }),
        &doc! {}
    ));
}

fn refused(schema: Document, code: ErrorCode, text: &str) {
    match Schema::parse(&raw_of(&schema)) {
        Ok(_) => panic!("{schema} was taken"),
        Err(error) => {
            assert_eq!(error.code(), Some(code), "{schema}: {error}");
            assert!(error.to_string().contains(text), "{schema}: {error}");
        }
    }
}

#[test]
fn malformed_schemas_are_refused() {
    let (parse, wrong, bad) = (ErrorCode::FailedToParse, ErrorCode::TypeMismatch, ErrorCode::BadValue);
    refused(doc! { "unheard": 1 }, parse, "Unknown $jsonSchema keyword: unheard");
    for name in UNSUPPORTED {
        let text = format!("$jsonSchema keyword '{name}' is not currently supported");
        refused(doc! { name: "x" }, parse, &text);
    }
    for keyword in ["encrypt", "encryptMetadata"] {
        refused(doc! { keyword: 1 }, ErrorCode::TypeMismatch, keyword);
        refused(doc! { keyword: { "key": 1 } }, ErrorCode(40415), keyword);
    }
    for stated in ["type", "bsonType"] {
        let both = doc! { "encrypt": {}, stated: "object" };
        refused(both, ErrorCode::FailedToParse, "encrypt");
    }
    refused(
        doc! { "type": 1 },
        wrong,
        "'type' must be either a string or an array of strings",
    );
    refused(
        doc! { "type": "integer" },
        parse,
        "$jsonSchema type 'integer' is not currently supported",
    );
    refused(doc! { "type": "objectId" }, bad, "Unknown type name alias: objectId");
    refused(doc! { "bsonType": "unheard" }, bad, "Unknown type name alias: unheard");
    refused(doc! { "bsonType": [] }, parse, "must name at least one type");
    refused(doc! { "bsonType": [1] }, wrong, "array elements must be strings");
    refused(doc! { "bsonType": ["int", "int"] }, parse, "has duplicate value: int");
    refused(
        doc! { "type": "string", "bsonType": "string" },
        parse,
        "Cannot specify both",
    );
    for name in ["minimum", "maximum", "multipleOf"] {
        refused(doc! { name: "x" }, wrong, "must be a number");
    }
    refused(doc! { "multipleOf": 0 }, parse, "must have a positive value");
    refused(doc! { "multipleOf": -1.5 }, parse, "must have a positive value");
    refused(doc! { "exclusiveMinimum": true }, parse, "'minimum' must be present");
    refused(doc! { "maximum": 1, "exclusiveMaximum": 1 }, wrong, "must be a boolean");
    for name in [
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    ] {
        refused(doc! { name: "x" }, parse, "Expected a number");
        refused(doc! { name: -1 }, parse, "Expected a non-negative number");
        refused(doc! { name: 1.5 }, parse, "Expected an integer");
    }
    refused(doc! { "pattern": 1 }, wrong, "must be a string");
    refused(
        doc! { "pattern": "(" },
        ErrorCode(51091),
        "Regular expression is invalid",
    );
    refused(doc! { "uniqueItems": 1 }, wrong, "must be a boolean");
    refused(doc! { "items": 1 }, wrong, "must be an array or an object");
    refused(doc! { "items": [1] }, wrong, "each element of the array is an object");
    refused(doc! { "additionalItems": 1 }, wrong, "either an object or a boolean");
    refused(doc! { "additionalItems": { "unheard": 1 } }, parse, "Unknown");
    refused(doc! { "properties": 1 }, wrong, "must be an object");
    refused(
        doc! { "properties": { "x": 1 } },
        wrong,
        "property 'x' must be an object",
    );
    refused(doc! { "properties": { "x": { "unheard": 1 } } }, parse, "Unknown");
    refused(
        doc! { "patternProperties": { "(": {} } },
        bad,
        "invalid regular expression",
    );
    refused(
        doc! { "additionalProperties": 1 },
        wrong,
        "must be an object or a boolean",
    );
    refused(doc! { "required": "x" }, wrong, "must be an array");
    refused(doc! { "required": [] }, parse, "cannot be an empty array");
    refused(doc! { "required": ["x", 1] }, wrong, "an array of strings");
    refused(doc! { "required": ["x", "y", "x"] }, parse, "duplicate values");
    refused(doc! { "dependencies": { "x": 1 } }, wrong, "an object or an array");
    refused(doc! { "dependencies": { "x": [] } }, parse, "empty");
    for name in ["allOf", "anyOf", "oneOf"] {
        refused(doc! { name: {} }, wrong, "must be an array");
        refused(doc! { name: [] }, bad, "must be a non-empty array");
        refused(doc! { name: [1] }, wrong, "an array of objects");
    }
    refused(doc! { "not": [] }, wrong, "must be an object");
    refused(doc! { "enum": 1 }, wrong, "must be an array");
    refused(doc! { "enum": [] }, parse, "empty array");
    refused(
        doc! { "enum": [{ "x": 1, "y": 2 }, { "y": 2, "x": 1.0 }] },
        parse,
        "duplicate values",
    );
    refused(doc! { "title": 1 }, wrong, "must be of type string");
    let mut twice = RawDocumentBuf::new();
    twice.append(bson::raw::cstr!("title"), "x");
    twice.append(bson::raw::cstr!("title"), "y");
    let error = Schema::parse(&twice).unwrap_err();
    assert!(
        error.to_string().contains("Duplicate $jsonSchema keyword: title"),
        "{error}"
    );
    let deep = (0..=DEPTH_MAX).fold(doc! {}, |inner, _| doc! { "not": inner });
    refused(deep, ErrorCode::Overflow, "nests deeper");
    let regex = Bson::RegularExpression(Regex {
        pattern: "x".to_owned().try_into().unwrap(),
        options: String::new().try_into().unwrap(),
    });
    refused(doc! { "pattern": regex }, wrong, "must be a string");
}

/// What is told of `{ a: value }` under `properties.a`.
fn told(of_a: Document, value: impl Into<Bson>) -> Vec<Document> {
    let schema = schema(&doc! { "properties": { "a": of_a } });
    let document = raw_of(&doc! { "a": value.into() });
    let context = EvaluationContext::uninterrupted();
    let reporter = Reporter {
        context: &context,
        is_brief: false,
    };
    let report = schema.explain_document(&document, false, &reporter).unwrap();
    let rules = report.get_array("schemaRulesNotSatisfied").unwrap();
    let properties = rules[0]
        .as_document()
        .unwrap()
        .get_array("propertiesNotSatisfied")
        .unwrap();
    let details = properties[0].as_document().unwrap().get_array("details").unwrap();
    details
        .iter()
        .map(|detail| detail.as_document().unwrap().clone())
        .collect()
}

#[test]
fn a_report_has_the_keyword_its_argument_the_reason_and_the_value() {
    let both = told(doc! { "maximum": 1, "minimum": 9, "exclusiveMinimum": true }, 5);
    assert_eq!(
        both,
        [
            doc! { "operatorName": "maximum", "specifiedAs": { "maximum": 1 }, "reason": "comparison failed", "consideredValue": 5 },
            doc! { "operatorName": "minimum", "specifiedAs": { "minimum": 9, "exclusiveMinimum": true },
            "reason": "comparison failed", "consideredValue": 5 },
        ]
    );
    // What is about other values than those of the stated type says nothing.
    let typed = told(doc! { "bsonType": "string", "minLength": 3, "minimum": 9 }, 5);
    assert_eq!(
        typed,
        [
            doc! { "operatorName": "bsonType", "specifiedAs": { "bsonType": "string" },
            "reason": "type did not match", "consideredValue": 5, "consideredType": "int" }
        ]
    );
    let described = told(
        doc! { "anyOf": [{ "type": "string", "title": "T", "description": "D" }] },
        5,
    );
    let first = described[0].get_array("schemasNotSatisfied").unwrap()[0]
        .as_document()
        .unwrap();
    assert_eq!(
        first.keys().collect::<Vec<_>>(),
        ["index", "title", "description", "details"]
    );
}

#[test]
fn reports_of_arrays_tell_which_item() {
    let strings = doc! { "type": "string" };
    let no_string = |value: i32| {
        doc! { "operatorName": "type", "specifiedAs": { "type": "string" }, "reason": "type did not match",
        "consideredValue": value, "consideredType": "int" }
    };
    let each = told(
        doc! { "items": strings.clone() },
        list::<Bson, _>(["x".into(), 1.into(), 2.into()]),
    );
    assert_eq!(
        each,
        [
            doc! { "operatorName": "items", "reason": "At least one item did not match the sub-schema",
            "itemIndex": 1, "details": [no_string(1)] }
        ]
    );
    let listed = told(
        doc! { "items": [strings.clone(), strings.clone()], "additionalItems": strings.clone() },
        list([1, 2, 3]),
    );
    assert_eq!(
        listed,
        [
            doc! { "operatorName": "items", "details": [
            { "itemIndex": 0, "details": [no_string(1)] }, { "itemIndex": 1, "details": [no_string(2)] }] },
            doc! { "operatorName": "additionalItems", "reason": "At least one additional item did not match the sub-schema",
            "itemIndex": 2, "details": [no_string(3)] },
        ]
    );
    let closed = told(doc! { "items": [{}], "additionalItems": false }, list([1, 2, 3]));
    assert_eq!(
        closed,
        [
            doc! { "operatorName": "additionalItems", "specifiedAs": { "additionalItems": false },
            "reason": "found additional items", "additionalItems": [2, 3] }
        ]
    );
    let twice = told(doc! { "uniqueItems": true }, list([7, 8, 9, 9, 7]));
    assert_eq!(
        twice,
        [
            doc! { "operatorName": "uniqueItems", "specifiedAs": { "uniqueItems": true },
            "reason": "found a duplicate item", "consideredValue": [7, 8, 9, 9, 7], "duplicatedValue": 9 }
        ]
    );
}

#[test]
fn reports_of_objects_name_the_properties() {
    let object = doc! {
        "required": ["z", "y"], "minProperties": 9, "additionalProperties": false,
        "patternProperties": { "^n": { "maximum": 1 } }, "dependencies": { "n": ["w", "n"] },
    };
    let reports = told(object, doc! { "n": 5, "other": 1 });
    let names: Vec<_> = reports
        .iter()
        .map(|report| report.get_str("operatorName").unwrap())
        .collect();
    let expected = [
        "additionalProperties",
        "patternProperties",
        "required",
        "minProperties",
        "dependencies",
    ];
    assert_eq!(names, expected, "in MongoDB's order");
    assert_eq!(reports[0].get_array("additionalProperties").unwrap(), &["other".into()]);
    let matched = reports[1].get_array("details").unwrap()[0].as_document().unwrap();
    assert_eq!(
        (
            matched.get_str("propertyName").ok(),
            matched.get_str("regexMatched").ok()
        ),
        (Some("n"), Some("^n"))
    );
    assert_eq!(
        reports[2],
        doc! { "operatorName": "required", "specifiedAs": { "required": ["z", "y"] },
        "missingProperties": ["y", "z"] }
    );
    assert_eq!(reports[3].get_i32("numberOfProperties").ok(), Some(2));
    assert_eq!(
        reports[4],
        doc! { "operatorName": "dependencies", "failingDependencies": [
        { "conditionalProperty": "n", "missingProperties": ["w"] }] }
    );
    let rest = told(
        doc! { "additionalProperties": { "type": "string" } },
        doc! { "s": "x", "n": 1 },
    );
    assert_eq!(rest[0].get_str("failingProperty").ok(), Some("n"));
    let one = told(doc! { "oneOf": [{ "minimum": 1 }, { "maximum": 5 }] }, 3);
    assert_eq!(
        one,
        [
            doc! { "operatorName": "oneOf", "reason": "more than one subschema matched",
            "matchingSchemaIndexes": [0, 1] }
        ]
    );
    assert_eq!(
        told(doc! { "not": {} }, 3),
        [doc! { "operatorName": "not", "reason": "child expression matched" }]
    );
}

/// A schema as the model knows it, beside the one that is compiled.
#[derive(Clone, Debug)]
enum Modelled {
    Type(&'static str),
    Minimum(i32),
    MinLength(usize),
    Items(Box<Modelled>),
    Property(Box<Modelled>),
    Required,
    Not(Box<Modelled>),
    All(Vec<Modelled>),
    Any(Vec<Modelled>),
    One(Vec<Modelled>),
}

impl Modelled {
    fn to_schema(&self) -> Document {
        let several = |schemas: &[Self]| -> Vec<Document> { schemas.iter().map(Self::to_schema).collect() };
        match self {
            Self::Type(name) => doc! { "bsonType": *name },
            Self::Minimum(limit) => doc! { "minimum": *limit },
            Self::MinLength(length) => doc! { "minLength": *length as i32 },
            Self::Items(schema) => doc! { "items": schema.to_schema() },
            Self::Property(schema) => doc! { "properties": { "p": schema.to_schema() } },
            Self::Required => doc! { "required": ["p"] },
            Self::Not(schema) => doc! { "not": schema.to_schema() },
            Self::All(schemas) => doc! { "allOf": several(schemas) },
            Self::Any(schemas) => doc! { "anyOf": several(schemas) },
            Self::One(schemas) => doc! { "oneOf": several(schemas) },
        }
    }

    fn allows(&self, value: &Bson) -> bool {
        let count = |schemas: &[Self]| schemas.iter().filter(|schema| schema.allows(value)).count();
        match (self, value) {
            (Self::Type(name), value) => raw_name(value) == *name,
            (Self::Minimum(limit), Bson::Int32(number)) => number >= limit,
            (Self::MinLength(length), Bson::String(text)) => text.chars().count() >= *length,
            (Self::Items(schema), Bson::Array(items)) => items.iter().all(|item| schema.allows(item)),
            (Self::Property(schema), Bson::Document(document)) => document.get("p").is_none_or(|p| schema.allows(p)),
            (Self::Required, Bson::Document(document)) => document.contains_key("p"),
            (Self::Not(schema), value) => !schema.allows(value),
            (Self::All(schemas), _) => count(schemas) == schemas.len(),
            (Self::Any(schemas), _) => count(schemas) > 0,
            (Self::One(schemas), _) => count(schemas) == 1,
            _ => true,
        }
    }
}

fn raw_name(value: &Bson) -> &'static str {
    crate::raw::type_name(value.element_type())
}

fn schemas() -> impl Strategy<Value = Modelled> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["int", "string", "array", "object"]).prop_map(Modelled::Type),
        (-2..3).prop_map(Modelled::Minimum),
        (0_usize..3).prop_map(Modelled::MinLength),
        Just(Modelled::Required),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            inner.clone().prop_map(|schema| Modelled::Items(Box::new(schema))),
            inner.clone().prop_map(|schema| Modelled::Property(Box::new(schema))),
            inner.prop_map(|schema| Modelled::Not(Box::new(schema))),
            several.clone().prop_map(Modelled::All),
            several.clone().prop_map(Modelled::Any),
            several.prop_map(Modelled::One),
        ]
    })
}

fn values() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        (-3..4).prop_map(Bson::Int32),
        prop::sample::select(vec!["", "ä", "ab"]).prop_map(Bson::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Bson::Array),
            inner.clone().prop_map(|value| Bson::Document(doc! { "p": value })),
            inner.prop_map(|value| Bson::Document(doc! { "q": value })),
        ]
    })
}

proptest! {
    #![proptest_config(generated(256))]

    #[test]
    fn it_agrees_with_a_model(modelled in schemas(), value in values()) {
        let schema = schema(&doc! { "properties": { "a": modelled.to_schema() } });
        let document = doc! { "a": value.clone() };
        let conforms = conforms(&schema, &document);
        prop_assert_eq!(conforms, modelled.allows(&value), "{:?}", modelled.to_schema());
        // Who is turned down is told why, and nobody else.
        let context = EvaluationContext::uninterrupted();
        let reporter = Reporter { context: &context, is_brief: false };
        let raw = raw_of(&document);
        let reports = schema.explain(Subject::Root(&raw), &reporter).unwrap();
        prop_assert_eq!(reports.is_empty(), conforms);
    }
}

#[test]
fn reports_count_items_and_tell_of_notes() {
    let short = told(doc! { "minItems": 3 }, list([1, 2]));
    assert_eq!(
        short,
        [doc! { "operatorName": "minItems", "specifiedAs": { "minItems": 3 },
        "reason": "array did not match specified length", "consideredValue": [1, 2], "numberOfItems": 2 }]
    );
    let long = told(doc! { "maxItems": 1 }, list([1, 2]));
    assert_eq!(long[0].get_i32("numberOfItems").ok(), Some(2));
    // Arrays and schemas under these names are about properties.
    let noted = doc! { "dependencies": { "title": "t", "a": ["b"], "description": ["c"] } };
    assert_eq!(
        told(noted, doc! { "a": 1, "description": 2 }),
        [
            doc! { "operatorName": "dependencies", "title": "t", "failingDependencies": [
                { "conditionalProperty": "a", "missingProperties": ["b"] },
                { "conditionalProperty": "description", "missingProperties": ["c"] },
            ] }
        ]
    );
}

/// Behind the first few, names are looked up in what one walk has met.
#[test]
fn many_names_are_looked_for() {
    let names = |range: std::ops::Range<i32>| -> Vec<Bson> { range.map(|n| Bson::String(format!("f{n}"))).collect() };
    let object = |range: std::ops::Range<i32>| -> Bson {
        let fields: Document = range.map(|n| (format!("f{n}"), Bson::from(n))).collect();
        Bson::Document(fields)
    };
    check(
        doc! { "required": names(0..100) },
        &[object(0..100), object(0..130)],
        &[object(1..100), object(0..99), object(0..0)],
    );
    let missing = told(doc! { "required": names(0..100) }, object(0..98));
    assert_eq!(missing[0].get_array("missingProperties").unwrap(), &names(98..100));
    let rules: Document = (0..30)
        .map(|n| (format!("f{n}"), Bson::Array(names(n + 1..n + 3))))
        .collect();
    check(
        doc! { "dependencies": rules },
        &[object(0..32), object(40..50), object(0..0)],
        &[object(0..31), object(5..20)],
    );
}
