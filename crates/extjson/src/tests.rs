#![allow(clippy::unwrap_used)]

use crate::{JsonError, JsonForm, indent, parse, write};

fn json(document: &[u8], form: JsonForm) -> String {
    let mut out = String::new();
    write(document, form, &mut out).unwrap();
    out
}

/// Every type of BSON, in canonical form.
const EVERY_TYPE: &str = concat!(
    r#"{"double":{"$numberDouble":"1.5"},"whole":{"$numberDouble":"-0.0"},"inf":{"$numberDouble":"-Infinity"},"#,
    r#""nan":{"$numberDouble":"NaN"},"string":"a\"\\\n\u0001é","document":{"b":null,"a":true},"array":["x",[],{}],"#,
    r#""binary":{"$binary":{"base64":"AQID","subType":"00"}},"old":{"$binary":{"base64":"AQID","subType":"02"}},"#,
    r#""user":{"$binary":{"base64":"","subType":"80"}},"undefined":{"$undefined":true},"#,
    r#""id":{"$oid":"5f1d7f3a9b1e8a0001c0ffee"},"date":{"$date":{"$numberLong":"-1"}},"#,
    r#""regex":{"$regularExpression":{"pattern":"^a/b","options":"im"}},"#,
    r#""pointer":{"$dbPointer":{"$ref":"d.c","$id":{"$oid":"5f1d7f3a9b1e8a0001c0ffee"}}},"#,
    r#""code":{"$code":"f()"},"symbol":{"$symbol":"s"},"scoped":{"$code":"g()","$scope":{"n":{"$numberInt":"1"}}},"#,
    r#""int":{"$numberInt":"-2147483648"},"stamp":{"$timestamp":{"t":4294967295,"i":7}},"#,
    r#""long":{"$numberLong":"9223372036854775807"},"decimal":{"$numberDecimal":"1.20E+10"},"#,
    r#""min":{"$minKey":1},"max":{"$maxKey":1}}"#
);

#[test]
fn canonical_text_comes_back_as_it_was() {
    assert_eq!(
        json(parse(EVERY_TYPE).unwrap().as_bytes(), JsonForm::Canonical),
        EVERY_TYPE
    );
}

#[test]
fn relaxed_text_has_plain_numbers_and_dates() {
    let text = r#"{"i":1,"l":4294967296,"d":1.0,"t":{"$date":"2020-01-02T03:04:05.678Z"},"x":{"$numberDouble":"NaN"}}"#;
    let document = parse(text).unwrap();
    assert_eq!(json(document.as_bytes(), JsonForm::Relaxed), text);
    assert_eq!(document.get_i32("i").unwrap(), 1);
    assert_eq!(document.get_i64("l").unwrap(), 1 << 32);
    assert_eq!(document.get_f64("d").unwrap().to_bits(), 1f64.to_bits());
    assert_eq!(
        document.get_datetime("t").unwrap().timestamp_millis(),
        1_577_934_245_678
    );
}

#[test]
fn numbers_beyond_all_doubles_are_refused() {
    for text in [
        r#"{"a":1e999}"#,
        r#"{"a":-1e999}"#,
        r#"{"a":{"$numberDouble":"1e999"}}"#,
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    let infinite = parse(r#"{"a":{"$numberDouble":"Infinity"}}"#).unwrap();
    assert_eq!(infinite.get_f64("a").unwrap(), f64::INFINITY);
}

#[test]
fn filters_are_documents_like_others() {
    let text = r#"{"a":{"$gt":1},"$or":[{"b":{"$regex":"^x","$options":"i"}}]}"#;
    assert_eq!(json(parse(text).unwrap().as_bytes(), JsonForm::Relaxed), text);
}

#[test]
fn pairs_of_surrogates_are_one_character() {
    assert_eq!(parse(r#"{"a":"\ud83d\ude00"}"#).unwrap().get_str("a").unwrap(), "😀");
    assert!(parse(r#"{"a":"\ud83dx"}"#).is_err());
}

#[test]
fn bad_text_is_an_error() {
    for text in [
        "",
        "[]",
        "1",
        "{",
        "{\"a\"}",
        "{\"a\":1,}",
        "{\"a\":1}x",
        "{\"a\":-}",
        "{\"a\":\"\\u00",
        "{\"a\":tru}",
    ] {
        assert!(matches!(parse(text), Err(JsonError::Syntax { .. })), "{text}");
    }
    for text in [
        r#"{"a":{"$oid":"5"}}"#,
        r#"{"a":{"$date":true}}"#,
        r#"{"a":{"$numberInt":"2147483648"}}"#,
        r#"{"a":{"$binary":{"base64":"*","subType":"00"}}}"#,
        r#"{"a":{"$uuid":"+0000000-0000-0000-0000-000000000000"}}"#,
    ] {
        assert!(matches!(parse(text), Err(JsonError::Value { .. })), "{text}");
    }
    assert!(matches!(parse(r#"{"a\u0000b":1}"#), Err(JsonError::Nul(_))));
    let deep = format!("{}{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    assert_eq!(parse(&deep).unwrap_err(), JsonError::TooDeep);
}

#[test]
fn bytes_that_are_no_document_are_an_error() {
    assert!(write(&[7, 0, 0, 0, 2, 0, 0], JsonForm::Canonical, &mut String::new()).is_err());
}

#[test]
fn indented_text_is_the_same_document() {
    let mut out = String::new();
    indent(r#"{"a":[1,{"b":"{,:\"[\\"}],"c":{},"d":[]}"#, &mut out);
    let lines =
        "{\n\t\"a\": [\n\t\t1,\n\t\t{\n\t\t\t\"b\": \"{,:\\\"[\\\\\"\n\t\t}\n\t],\n\t\"c\": {},\n\t\"d\": []\n}";
    assert_eq!(out, lines);
    out.clear();
    indent(EVERY_TYPE, &mut out);
    assert_eq!(parse(&out).unwrap(), parse(EVERY_TYPE).unwrap());
}
