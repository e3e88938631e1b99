//! Reading text: what it gives, and what is refused where. Every type of BSON comes back from its text as it was.

#![allow(clippy::unwrap_used)]

use crate::limits::COLUMNS_MAX;
use crate::separated::write_line;
use crate::{Columns, Decoded, Decoder, Fault, Grace, Reader, Separator, TextForm, TransferError, TypedNames};
use bson::raw::RawDocumentBuf;
use bson::{Document, bson, doc};
use extjson::{JsonForm, parse};
use proptest::prelude::*;

type Read = (Vec<(u64, Result<Decoded, Fault>)>, Option<TransferError>);

fn read(text: &[u8], form: TextForm, decoder: &Decoder) -> Read {
    let mut reader = Reader::new(text, form);
    let mut found = Vec::new();
    loop {
        match reader.next_item() {
            Ok(Some(item)) => found.push((item.line, decoder.decode(&item))),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

fn documents(text: &str, form: TextForm, decoder: &Decoder) -> Vec<Document> {
    let (found, error) = read(text.as_bytes(), form, decoder);
    assert!(error.is_none(), "{error:?}");
    found
        .into_iter()
        .map(|(_, decoded)| match decoded.unwrap() {
            Decoded::Document(document) => Document::try_from(&*document).unwrap(),
            Decoded::Skipped(why) => panic!("{why}"),
        })
        .collect()
}

fn columns(names: &str, typed: TypedNames, grace: Grace) -> Columns {
    Columns::new(&Columns::names(names).unwrap(), typed, grace).unwrap()
}

fn plain(names: &str) -> Decoder {
    Decoder::Columns(columns(names, TypedNames::No, Grace::Stop))
}

fn fault_line(error: Option<TransferError>) -> u64 {
    match error {
        Some(TransferError::Text { line, .. }) => line,
        other => panic!("{other:?}"),
    }
}

#[test]
fn json_documents_with_any_space_between() {
    let text = "\u{feff}{\"a\":1}\n\n {\"a\":\n \"}]\\\"\"} {\"a\":[{}]}";
    let (found, error) = read(text.as_bytes(), TextForm::Json, &Decoder::Json);
    assert!(error.is_none());
    let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 3, 4]);
    assert_eq!(
        documents(text, TextForm::Json, &Decoder::Json),
        [doc! {"a": 1}, doc! {"a": "}]\""}, doc! {"a": [{}]}]
    );
    assert_eq!(documents(" \n", TextForm::Json, &Decoder::Json), []);
}

#[test]
fn json_arrays() {
    for text in ["[]", "[ ]\n"] {
        assert_eq!(documents(text, TextForm::JsonArray, &Decoder::Json), [], "{text}");
    }
    assert_eq!(
        documents("[{\"a\":1}\n,\n{}]\n", TextForm::JsonArray, &Decoder::Json),
        [doc! {"a": 1}, doc! {}]
    );
    for (text, line) in [
        ("", 1),
        (" \n", 2),
        ("{}", 1),
        ("[", 1),
        ("[{}", 1),
        ("[{}\n{}]", 2),
        ("[{},\n]", 2),
        ("[{}]\n[", 2),
        ("[1]", 1),
        ("[,{}]", 1),
    ] {
        let (_, error) = read(text.as_bytes(), TextForm::JsonArray, &Decoder::Json);
        assert_eq!(fault_line(error), line, "{text}");
    }
}

#[test]
fn text_that_is_no_json_is_told_with_its_line() {
    for (text, line) in [
        ("{}\n[{}]", 2),
        ("{}\nx", 2),
        ("{}\n\n{\"a\":1", 3),
        ("{}{\"a\":\"}", 1),
    ] {
        let (_, error) = read(text.as_bytes(), TextForm::Json, &Decoder::Json);
        assert_eq!(fault_line(error), line, "{text}");
    }
    for (text, line, is_final) in [
        (&b"{}\n{\"a\":\n tru}"[..], 3, true),
        (b"{\"a\":]", 1, true),
        (b"\n{\"a\":\n\"\xff\"}", 3, false),
        (b"\n{\"a\":{\"$oid\":\"x\"}}", 2, false),
        (b"{\"a\\u0000b\":1}", 1, false),
    ] {
        let (found, error) = read(text, TextForm::Json, &Decoder::Json);
        assert!(error.is_none(), "{error:?}");
        let fault = found.last().unwrap().1.clone().unwrap_err();
        assert_eq!((fault.line, fault.is_final), (line, is_final), "{fault:?}");
    }
}

#[test]
fn deep_and_large_documents_are_refused() {
    let deep = format!("{}{}", "{\"a\":".repeat(100_000), "}".repeat(100_001));
    let (found, _) = read(deep.as_bytes(), TextForm::Json, &Decoder::Json);
    assert!(found[0].1.is_err());
    let size = wire::limits::DOCUMENT_BYTES_MAX;
    for (length, fits) in [(size - 14, true), (size - 13, false)] {
        // Length, type, name, length, text, two ends: 4 + 1 + 2 + 4 + 1 + 1 bytes beside the text.
        let text = format!("{{\"a\":\"{}\"}}", "x".repeat(length + 1));
        let (found, _) = read(text.as_bytes(), TextForm::Json, &Decoder::Json);
        assert_eq!(found[0].1.is_ok(), fits, "{length}");
    }
    let wide = ",".repeat(COLUMNS_MAX);
    let (_, error) = read(wide.as_bytes(), TextForm::Lines(Separator::Comma), &plain("a"));
    assert_eq!(fault_line(error), 1);
}

#[test]
fn lines_of_csv() {
    let text = "1,\"a \"\"b\"\"\nc\", x y \r\n\n,\"\",\n2\n3,b,c,d,4.5";
    assert_eq!(
        documents(text, TextForm::Lines(Separator::Comma), &plain("a,b.c,b.d")),
        [
            doc! {"a": 1, "b": {"c": "a \"b\"\nc", "d": "x y "}},
            doc! {"a": "", "b": {"c": "", "d": ""}},
            doc! {"a": 2},
            doc! {"a": 3, "b": {"c": "b", "d": "c"}, "field3": "d", "field4": 4.5},
        ]
    );
    for (text, line) in [("1\n\"a", 2), ("1\n\n\"a\"b,c", 3), ("\"a\n\"\n\"b", 3)] {
        let (_, error) = read(text.as_bytes(), TextForm::Lines(Separator::Comma), &plain("a,b"));
        assert_eq!(fault_line(error), line, "{text:?}");
    }
    let (found, error) = read(b"1\n\xff\n3", TextForm::Lines(Separator::Comma), &plain("a"));
    assert!(error.is_none());
    let fault = found[1].1.clone().unwrap_err();
    assert_eq!((fault.line, fault.is_final, found.len()), (2, false, 3));
}

#[test]
fn a_column_without_a_name_replaces_no_other() {
    let (found, _) = read(b"1,2\n3", TextForm::Lines(Separator::Comma), &plain("field1"));
    let fault = found[0].1.clone().unwrap_err();
    assert_eq!((fault.line, fault.is_final), (1, false));
    assert!(found[1].1.is_ok());
}

#[test]
fn lines_of_tsv_have_no_quotes() {
    let text = "1\t\"a\n\t b \n";
    assert_eq!(
        documents(text, TextForm::Lines(Separator::Tab), &plain("a,b")),
        [doc! {"a": 1, "b": "\"a"}, doc! {"a": "", "b": " b "}]
    );
}

#[test]
fn blanks_and_arrays() {
    let decoder = Decoder::Columns(
        columns("a,b.0.x,b.0.y,b.1.x,c", TypedNames::No, Grace::Stop)
            .ignoring_blanks()
            .with_arrays()
            .unwrap(),
    );
    assert_eq!(
        documents("1,2,3,4,5\n1,,,,\n", TextForm::Lines(Separator::Comma), &decoder),
        [doc! {"a": 1, "b": [{"x": 2, "y": 3}, {"x": 4}], "c": 5}, doc! {"a": 1}]
    );
    for names in ["a.1,a.2", "a.0,a.2", "a.1,a.0", "a.0,a.b"] {
        assert!(
            columns(names, TypedNames::No, Grace::Stop).with_arrays().is_err(),
            "{names}"
        );
    }
}

#[test]
fn impossible_columns() {
    for names in ["a,a", "a,a.b", "a.b,a", "a..b", "a.", "", "a,"] {
        let split = Columns::names(names).unwrap();
        assert!(Columns::new(&split, TypedNames::No, Grace::Stop).is_err(), "{names}");
    }
    for names in [
        "a",
        "a.int32",
        "a.int32(x)",
        "a.nothing()",
        ".int32()",
        "a.date()",
        "a.binary()",
    ] {
        let split = Columns::names(names).unwrap();
        assert!(Columns::new(&split, TypedNames::Yes, Grace::Stop).is_err(), "{names}");
    }
}

#[test]
fn values_that_are_not_of_their_type() {
    let names = "a.int32(),b.string(),\"c.d.date(Jan 2, (2006))\"";
    let form = TextForm::Lines(Separator::Comma);
    let text = "1,2,\"Feb 3, (2021)\"\nx,y,\"Feb 3, (2021)\"\n3,4,\"Feb 4, (2021)\"\n";
    let outcome = |grace| {
        let decoder = Decoder::Columns(columns(names, TypedNames::Yes, grace));
        let (found, _) = read(text.as_bytes(), form, &decoder);
        found
    };
    let date = |text| bson::DateTime::parse_rfc3339_str(text).unwrap();
    let as_document = |decoded: &Result<Decoded, Fault>| match decoded {
        Ok(Decoded::Document(document)) => Document::try_from(&**document).unwrap(),
        other => panic!("{other:?}"),
    };
    let first = doc! {"a": 1, "b": "2", "c": {"d": date("2021-02-03T00:00:00Z")}};
    let stopped = outcome(Grace::Stop);
    assert_eq!(as_document(&stopped[0].1), first);
    let fault = stopped[1].1.clone().unwrap_err();
    assert_eq!((fault.line, fault.is_final), (2, true));
    assert!(matches!(outcome(Grace::SkipRow)[1].1, Ok(Decoded::Skipped(_))));
    let day = date("2021-02-03T00:00:00Z");
    assert_eq!(
        as_document(&outcome(Grace::SkipField)[1].1),
        doc! {"b": "y", "c": {"d": day}}
    );
    assert_eq!(
        as_document(&outcome(Grace::AutoCast)[1].1),
        doc! {"a": "x", "b": "y", "c": {"d": day}}
    );
}

fn name() -> impl Strategy<Value = String> {
    // A document whose first name has a dollar may be the text of another type.
    "[a-z.é\"\\\\\n\u{7f}]{0,6}"
}

/// Every type of BSON in canonical Extended JSON, with values at their bounds.
fn value() -> impl Strategy<Value = String> {
    let quoted = |text: String| {
        let mut out = String::new();
        extjson::write(
            RawDocumentBuf::try_from(&doc! {"": text}).unwrap().as_bytes(),
            JsonForm::Canonical,
            &mut out,
        )
        .unwrap();
        out[4..out.len() - 1].to_owned()
    };
    let text = any::<String>().prop_map(quoted);
    let base64 = proptest::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(bytes)
    });
    let pattern = "[a-z^$./\\\\\"]{0,6}".prop_map(quoted);
    let oid =
        any::<[u8; 12]>().prop_map(|bytes| format!("{{\"$oid\":\"{}\"}}", bson::oid::ObjectId::from_bytes(bytes)));
    let leaf = prop_oneof![
        any::<f64>().prop_map(|value| format!("{{\"$numberDouble\":\"{value:?}\"}}")),
        text.clone(),
        (base64, any::<u8>()).prop_map(|(text, kind)| {
            format!("{{\"$binary\":{{\"base64\":\"{text}\",\"subType\":\"{kind:02x}\"}}}}")
        }),
        Just("{\"$undefined\":true}".to_owned()),
        oid.clone(),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| format!("{{\"$date\":{{\"$numberLong\":\"{value}\"}}}}")),
        Just("null".to_owned()),
        (pattern, "[imsx]{0,4}").prop_map(|(pattern, options)| {
            format!("{{\"$regularExpression\":{{\"pattern\":{pattern},\"options\":\"{options}\"}}}}")
        }),
        (text.clone(), oid).prop_map(|(text, oid)| format!("{{\"$dbPointer\":{{\"$ref\":{text},\"$id\":{oid}}}}}")),
        text.clone().prop_map(|text| format!("{{\"$code\":{text}}}")),
        text.clone().prop_map(|text| format!("{{\"$symbol\":{text}}}")),
        any::<i32>().prop_map(|value| format!("{{\"$numberInt\":\"{value}\"}}")),
        any::<(u32, u32)>().prop_map(|(t, i)| format!("{{\"$timestamp\":{{\"t\":{t},\"i\":{i}}}}}")),
        any::<i64>().prop_map(|value| format!("{{\"$numberLong\":\"{value}\"}}")),
        "-?[1-9][0-9]{0,33}E[-+][0-9]{1,3}".prop_map(|text| format!("{{\"$numberDecimal\":\"{text}\"}}")),
        Just("{\"$minKey\":1}".to_owned()),
        Just("{\"$maxKey\":1}".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        let fields = proptest::collection::vec((name().prop_map(quoted), inner.clone()), 0..5)
            .prop_map(|fields| {
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", fields.join(","))
            })
            .boxed();
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
            (text.clone(), fields.clone()).prop_map(|(text, scope)| format!("{{\"$code\":{text},\"$scope\":{scope}}}")),
            fields,
        ]
    })
}

proptest! {
    /// Export and import: documents come back byte by byte from canonical text, however it stands in the file; relaxed
    /// text comes back as the same text.
    #[test]
    fn every_type_comes_back(values in proptest::collection::vec(value(), 1..6), is_pretty: bool, is_array: bool) {
        let written: Vec<RawDocumentBuf> = values
            .iter()
            .map(|value| parse(&format!("{{\"_id\":1,\"v\":{value}}}")).unwrap())
            .collect();
        for form in [JsonForm::Canonical, JsonForm::Relaxed] {
            let texts: Vec<String> = written
                .iter()
                .map(|document| {
                    let (mut compact, mut pretty) = (String::new(), String::new());
                    extjson::write(document.as_bytes(), form, &mut compact).unwrap();
                    extjson::indent(&compact, &mut pretty);
                    if is_pretty { pretty } else { compact }
                })
                .collect();
            let (text, reading) = if is_array {
                (format!("[{}]", texts.join(",\n")), TextForm::JsonArray)
            } else {
                (texts.join("\n"), TextForm::Json)
            };
            let (found, error) = read(text.as_bytes(), reading, &Decoder::Json);
            prop_assert!(error.is_none());
            prop_assert_eq!(found.len(), written.len());
            for ((_, decoded), document) in found.into_iter().zip(&written) {
                let Ok(Decoded::Document(decoded)) = decoded else { panic!("{decoded:?}") };
                if form == JsonForm::Canonical {
                    prop_assert_eq!(decoded.as_bytes(), document.as_bytes());
                } else {
                    let (mut before, mut after) = (String::new(), String::new());
                    extjson::write(document.as_bytes(), form, &mut before).unwrap();
                    extjson::write(decoded.as_bytes(), form, &mut after).unwrap();
                    prop_assert_eq!(before, after);
                }
            }
        }
    }

    /// What is written as a line of CSV or TSV is read as the same values.
    #[test]
    fn lines_come_back(rows in proptest::collection::vec(proptest::collection::vec(any::<String>(), 3), 1..5)) {
        for separator in [Separator::Comma, Separator::Tab] {
            let mut text = String::new();
            let mut kept = Vec::new();
            for row in &rows {
                let mut line = String::new();
                if write_line(row, separator, &mut line).is_ok() {
                    text.push_str(&line);
                    kept.push(row);
                }
            }
            let decoder = Decoder::Columns(columns("a.string(),b.string(),c.string()", TypedNames::Yes, Grace::Stop));
            let found = documents(&text, TextForm::Lines(separator), &decoder);
            prop_assert_eq!(found.len(), kept.len());
            for (document, row) in found.iter().zip(kept) {
                let values: Vec<&str> = document.values().map(|value| value.as_str().unwrap()).collect();
                prop_assert_eq!(values, row.iter().map(String::as_str).collect::<Vec<_>>());
            }
        }
    }

    /// No text ends the process.
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for form in [TextForm::Json, TextForm::JsonArray] {
            read(&bytes, form, &Decoder::Json);
        }
        for separator in [Separator::Comma, Separator::Tab] {
            read(&bytes, TextForm::Lines(separator), &plain("a,b.c"));
        }
    }
}

#[test]
fn bson_macro_values_are_what_columns_give() {
    assert_eq!(bson!({"a": [1, 2.5, "x"]}).as_document().unwrap(), &{
        let decoder = Decoder::Columns(
            columns("a.0,a.1,a.2", TypedNames::No, Grace::Stop)
                .with_arrays()
                .unwrap(),
        );
        documents("1,2.5,x", TextForm::Lines(Separator::Comma), &decoder).remove(0)
    });
}
