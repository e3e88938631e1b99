#![allow(clippy::unwrap_used)]
//! Values to bytes and back, hostile bytes, sort keys.

use std::cmp::Ordering;

use crate::exec::tests::fixture::generated;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, JavaScriptCodeWithScope, RawDocument, RawDocumentBuf, Regex, Timestamp, doc};
use proptest::prelude::*;

use super::*;
use crate::evaluation::EvaluationContext;

fn shared(document: &Document) -> SharedDocument {
    SharedDocument::from(RawDocumentBuf::try_from(document).unwrap())
}

fn every_type() -> Document {
    let regex = Regex {
        pattern: bson::raw::cstr!("^a").into(),
        options: bson::raw::cstr!("i").into(),
    };
    let scoped = JavaScriptCodeWithScope {
        code: "f()".into(),
        scope: doc! {"x": 1},
    };
    doc! {
        "double": 1.5, "string": "text", "document": {"a": {"b": 1}}, "array": [1, [2, "x"]],
        "binary": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] },
        "old": Binary { subtype: BinarySubtype::BinaryOld, bytes: vec![1, 2] },
        "undefined": Bson::Undefined, "id": bson::oid::ObjectId::from_bytes([3; 12]), "bool": true,
        "date": bson::DateTime::from_millis(-5), "null": Bson::Null, "regex": regex, "code": Bson::JavaScriptCode("g()".into()),
        "symbol": Bson::Symbol("s".into()), "scoped": scoped, "int": 1, "stamp": Timestamp { time: 9, increment: 8 },
        "long": 1_i64 << 40, "decimal": Bson::Decimal128("1.10".parse().unwrap()), "min": Bson::MinKey, "max": Bson::MaxKey,
    }
}

#[test]
fn every_type_keeps_its_bytes() {
    let document = shared(&every_type());
    let mut out = Vec::new();
    let mut writer = DocumentWriter::new(&mut out);
    let mut owned = Vec::new();
    for element in Elements::new(&document) {
        let element = element.unwrap();
        let value = Value::from_element(element).unwrap();
        writer.append(element.name_str().unwrap(), &value);
        owned.push((element.name_str().unwrap(), value.into_owned()));
    }
    writer.finish();
    assert_eq!(out, document.as_bytes());
    // The same from owned values, and through `RawBsonRef`.
    let mut out = Vec::new();
    let mut writer = DocumentWriter::new(&mut out);
    for (name, value) in &owned {
        let raw = document.get(*name).unwrap().unwrap();
        assert_eq!(
            Comparer::default().compare(&Value::from_raw(raw), value),
            Ordering::Equal,
            "{name}"
        );
        writer.append(name, value);
    }
    writer.finish();
    assert_eq!(out, document.as_bytes());
}

#[test]
fn a_db_pointer_is_walked_over() {
    // {p: DBPointer("a.b", 12 bytes), x: 1}, written by hand: the `bson` crate keeps its parts private.
    let mut bytes = vec![0, 0, 0, 0, 0x0C, b'p', 0, 4, 0, 0, 0, b'a', b'.', b'b', 0];
    bytes.extend_from_slice(&[5; 12]);
    bytes.extend_from_slice(&[0x10, b'x', 0, 1, 0, 0, 0, 0]);
    bytes[0] = bytes.len() as u8;
    let document = RawDocument::from_bytes(&bytes).unwrap();
    assert_eq!(Value::field(document, "p").unwrap().type_name(), "dbPointer");
    assert!(matches!(Value::field(document, "x").unwrap(), Value::Int32(1)));
}

#[test]
fn shared_parts_share_memory() {
    let document = shared(&doc! {"a": {"b": {"c": 1}}, "l": [{"x": 1}, {"x": 2}]});
    let value = Value::document(document.clone());
    let inner = value.get_field("a").unwrap().get_field("b").unwrap();
    let Value::Document(DocumentValue::Shared(part)) = &inner else {
        panic!("not shared")
    };
    assert!(document.bytes().as_ptr_range().contains(&part.bytes().as_ptr()));
    let Value::Array(list) = value.get_field("l").unwrap() else {
        panic!("no array")
    };
    let second = list.get(1).unwrap().unwrap();
    assert!(matches!(second.get_field("x").unwrap(), Value::Int32(2)));
    assert_eq!(list.len().unwrap(), 2);
}

#[test]
fn truth() {
    for (value, expected) in [
        (Value::Missing, false),
        (Value::Null, false),
        (Value::Boolean(false), false),
        (Value::Int32(0), false),
        (Value::Double(-0.0), false),
        (Value::Decimal("0.00".parse().unwrap()), false),
        (Value::Double(f64::NAN), true),
        (Value::borrowed_str(""), true),
        (Value::empty_array(), true),
        (Value::Int64(2), true),
    ] {
        assert_eq!(value.is_true(), expected, "{value:?}");
    }
}

#[test]
fn setting_paths() {
    let document = shared(&doc! {"a": {"b": 1, "c": 2}, "d": 3});
    let set = |path: &str, value: &Value<'_>| {
        let parts: Vec<Box<str>> = path.split('.').map(Box::from).collect();
        Document::try_from(with_path(&document, &parts, value).unwrap().as_raw()).unwrap()
    };
    assert_eq!(set("a.b", &Value::Int32(9)), doc! {"a": {"b": 9, "c": 2}, "d": 3});
    assert_eq!(set("a.b", &Value::Missing), doc! {"a": {"c": 2}, "d": 3});
    assert_eq!(
        set("a.x.y", &Value::Int32(9)),
        doc! {"a": {"b": 1, "c": 2, "x": {"y": 9}}, "d": 3}
    );
    assert_eq!(
        set("d.e", &Value::Int32(9)),
        doc! {"a": {"b": 1, "c": 2}, "d": {"e": 9}}
    );
    assert_eq!(set("z.z", &Value::Missing), doc! {"a": {"b": 1, "c": 2}, "d": 3});
    assert_eq!(
        set("e", &Value::Null),
        doc! {"a": {"b": 1, "c": 2}, "d": 3, "e": Bson::Null}
    );
}

fn key(pattern: Document, document: Document) -> Vec<u8> {
    let pattern = SortPattern::parse(&shared(&pattern), &Comparer::default()).unwrap();
    let mut key = Vec::new();
    pattern
        .append_key(
            &shared(&document),
            &EvaluationContext::uninterrupted(),
            &mut keys::KeySet::new(),
            &mut key,
        )
        .unwrap();
    key
}

#[test]
fn sort_keys_of_arrays_and_missing_fields() {
    let rising = [
        doc! {"a": []},
        doc! {},
        doc! {"a": [5, 1]},
        doc! {"a": 2},
        doc! {"a": [3, 9]},
        doc! {"a": "x"},
    ];
    for pair in rising.windows(2) {
        assert!(
            key(doc! {"a": 1}, pair[0].clone()) < key(doc! {"a": 1}, pair[1].clone()),
            "{pair:?}"
        );
    }
    // Descending an array counts by its largest element.
    assert!(key(doc! {"a": -1}, doc! {"a": [3, 9]}) < key(doc! {"a": -1}, doc! {"a": 5}));
    // Two fields of the same array go together.
    let both = key(
        doc! {"a.x": 1, "a.y": 1},
        doc! {"a": [{"x": 1, "y": 5}, {"x": 2, "y": 0}]},
    );
    assert_eq!(both, key(doc! {"a.x": 1, "a.y": 1}, doc! {"a": {"x": 1, "y": 5}}));
    let code = |pattern: Document| {
        SortPattern::parse(&shared(&pattern), &Comparer::default())
            .unwrap_err()
            .code()
            .unwrap()
            .0
    };
    assert_eq!(code(doc! {}), 15976);
    assert_eq!(code(doc! {"a": 2}), 15975);
    assert_eq!(code(doc! {"a": "x"}), 15974);
    assert_eq!(code(doc! {"a..b": 1}), 15998);
    assert_eq!(code(doc! {"": 1}), 40352);
    assert_eq!(code(doc! {"a.": 1}), 40353);
    assert_eq!(code(doc! {["a"; 201].join("."): 1}), 15);
    for meta in ["nonsense", "", "recordId", "searchHighlights"] {
        assert_eq!(code(doc! {"a": {"$meta": meta}}), 31138, "{meta}");
    }
    let many = |count| (0..count).map(|n| (format!("f{n}"), 1.into())).collect::<Document>();
    assert_eq!(code(many(33)), 13103);
    let is_taken = |pattern: &RawDocument| SortPattern::parse(pattern, &Comparer::default()).is_ok();
    assert!(is_taken(&shared(&many(32))));
    assert!(is_taken(&shared(
        &doc! {"a": 1, "b": {"$meta": "randVal"}, "c": {"$meta": "searchScore"}}
    )));
    let mut more = many(32);
    more.insert("m", doc! {"$meta": "randVal"});
    assert!(is_taken(&shared(&more)));
    let twice = bson::rawdoc! {"a": 1, "b": 1, "a": -1};
    let refused = SortPattern::parse(&twice, &Comparer::default()).unwrap_err();
    assert_eq!(refused.code().unwrap().0, 7_472_500);
    // Doubles are cut off, decimals rounded half to even.
    let decimal = |text: &str| bson::Bson::from(text.parse::<bson::Decimal128>().unwrap());
    for (direction, wanted) in [
        (1.9.into(), 1),
        ((-1.9).into(), -1),
        (decimal("0.51"), 1),
        (decimal("1.5"), 0),
        (decimal("1.49"), 1),
        (decimal("-0.51"), -1),
        (decimal("0.5"), 0),
        (decimal("NaN"), 0),
    ] {
        let pattern = shared(&doc! {"a": direction});
        let order = SortPattern::parse(&pattern, &Comparer::default());
        let order = order.map(|pattern| pattern.document().get_i32("a").unwrap());
        assert_eq!(order.unwrap_or(0), wanted, "{pattern:?}");
    }
}

/// A sine of 9.99E+6000 takes as long as thousands of others: nobody was asked for seconds while some were computed.
#[test]
fn decimals_of_large_exponents_are_many_steps() {
    for (number, least, most) in [
        ("1", 0, 0),
        ("-12.5", 0, 10),
        ("1E+100", 60, 100),
        ("9.99E+6000", 5000, 6200),
        ("1E-6000", 5000, 6200),
        ("NaN", 0, 0),
        ("-Infinity", 0, 0),
    ] {
        let steps = Value::Decimal(number.parse().unwrap()).steps();
        assert!((least..=most).contains(&steps), "{number}: {steps}");
    }
}

/// What a sort keeps of a page held all of the page.
#[test]
fn a_document_that_is_kept_lets_go_of_what_it_was_read_from() {
    let one = RawDocumentBuf::try_from(&doc! {"a": "x".repeat(100)})
        .unwrap()
        .into_bytes();
    let large = RawDocumentBuf::try_from(&doc! {"a": "x".repeat(COPIED_BYTES)})
        .unwrap()
        .into_bytes();
    for (document, is_copied) in [(one, true), (large, false)] {
        let length = document.len();
        let page = bytes::Bytes::from([document.clone(), vec![0; 1000]].concat());
        let read = SharedDocument::new(page.slice(..length)).unwrap();
        let kept = read.clone().kept();
        assert_eq!(kept.as_bytes(), document);
        assert_eq!(kept.as_bytes().as_ptr() != read.as_bytes().as_ptr(), is_copied);
        drop((read, kept));
        assert!(page.is_unique());
    }
}

proptest! {
    #![proptest_config(generated(256))]

    /// Whatever bytes come in: an error or an end, never a panic, and never an element outside the frame.
    #[test]
    fn hostile_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 5..80), flip in any::<bool>(), at in 0_usize..80) {
        if flip {
            bytes = shared(&every_type()).as_bytes().to_vec();
            let at = 4 + at * 5 % (bytes.len() - 5);
            bytes[at] = bytes[at].wrapping_add(1);
        }
        let length = bytes.len();
        bytes[..4].copy_from_slice(&(length as i32).to_le_bytes());
        bytes[length - 1] = 0;
        let document = RawDocument::from_bytes(&bytes).unwrap();
        for element in Elements::new(document).flatten() {
            if let Ok(value) = Value::from_element(element) {
                let _ = value.render();
                let _ = value.into_owned().approximate_bytes();
            }
        }
    }

    /// The order by key bytes is the order of comparison.
    #[test]
    fn keys_order_as_values(a in numbers(), b in numbers()) {
        let comparer = Comparer::default();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        comparer.append_key(&a, &mut x);
        comparer.append_key(&b, &mut y);
        prop_assert_eq!(x.cmp(&y), comparer.compare(&a, &b));
    }

    /// Sums do not depend on how they are grouped.
    #[test]
    fn sums_merge(values in proptest::collection::vec(-1_000_000_i64..1_000_000, 0..20), split in 0_usize..20) {
        let split = split.min(values.len());
        let sum = |values: &[i64]| {
            let mut sum = number::Sum::default();
            values.iter().for_each(|n| sum.add(number::Number::Double(*n as f64 / 8.0)));
            sum
        };
        let mut parts = sum(&values[..split]);
        parts.merge(&sum(&values[split..]));
        let whole = sum(&values);
        prop_assert_eq!(parts.total().to_f64(), whole.total().to_f64());
    }
}

fn numbers() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<f64>().prop_map(Value::Double),
        "[a-z]{0,3}".prop_map(Value::string),
        proptest::collection::vec(any::<i32>().prop_map(Value::Int32), 0..3)
            .prop_map(|items| Value::array(items).unwrap()),
        Just(Value::Null),
        Just(Value::Missing),
    ]
}
