#![allow(clippy::unwrap_used)]

use super::*;
use bson::{Bson, doc};

#[test]
fn elements_are_the_documents_bytes() {
    let document = RawDocumentBuf::try_from(&doc! {"a": 1, "long name": "x", "c": [1, {"d": Bson::Null}]}).unwrap();
    let elements: Vec<_> = Elements::new(&document).collect::<Result<_, _>>().unwrap();
    let joined: Vec<u8> = elements.iter().flat_map(|element| element.whole().to_vec()).collect();
    assert_eq!(joined, document.as_bytes()[4..document.as_bytes().len() - 1]);
    assert_eq!(
        elements.iter().map(|element| element.name_lossy()).collect::<Vec<_>>(),
        ["a", "long name", "c"]
    );
    for (element, value) in elements.iter().zip(document.iter()) {
        assert_eq!(element.value().unwrap(), value.unwrap().1);
        assert_eq!(Constant::new(element.value().unwrap()).bytes(), element.value_bytes());
    }
}

/// An array was found by walking its document from the start, which for all arrays of a document is quadratic: in a
/// document that is damaged in front of it, that walk ended.
#[test]
fn a_value_is_decoded_from_its_own_bytes() {
    let binary = |subtype: bson::spec::BinarySubtype| {
        Bson::Binary(bson::Binary {
            subtype,
            bytes: vec![1, 2, 3],
        })
    };
    let regex = bson::Regex {
        pattern: bson::raw::CString::try_from("a").unwrap(),
        options: bson::raw::CString::try_from("i").unwrap(),
    };
    let code = bson::JavaScriptCodeWithScope {
        code: "x".into(),
        scope: doc! {"x": 1},
    };
    let document = doc! {
        "first": "text",
        "array": [1, [2]],
        "empty": [],
        "regex": regex,
        "int": 7,
        "document": {"x": [2]},
        "code": code,
        "old": binary(bson::spec::BinarySubtype::BinaryOld),
        "generic": binary(bson::spec::BinarySubtype::Generic),
        "last": [3],
    };
    let mut whole = RawDocumentBuf::try_from(&document).unwrap().into_bytes();
    // A DBPointer, which `bson` has no constructor for: `a.b`, and twelve bytes.
    whole.pop();
    append(&mut whole, 0x0C, b"pointer", b"\x04\0\0\0a.b\0abcdefghijkl");
    whole.push(0);
    let length = whole.len() as u32;
    whole[..4].copy_from_slice(&length.to_le_bytes());

    let document = RawDocument::from_bytes(&whole).unwrap();
    // Behind the type, the name and the text's length: the text ends too late, for `bson`'s walk alone.
    let mut damaged = whole.clone();
    damaged[4] = 0x55;
    let damaged = RawDocument::from_bytes(&damaged).unwrap();
    let mut decoded = 0;
    for (element, expected) in Elements::new(document).zip(document.iter()) {
        let (element, expected) = (element.unwrap(), expected.unwrap().1);
        assert_eq!(element.value().unwrap(), expected);
        assert_eq!(element.to_owned_value().unwrap(), RawBson::from(expected));
        let constant = Constant::of(element).unwrap();
        assert_eq!((constant.value(), constant.bytes()), (expected, element.value_bytes()));
        if element.start() > 4 {
            let again = Elements::from_offset(damaged, element.start()).next().unwrap().unwrap();
            assert_eq!(again.value().unwrap(), expected);
        }
        decoded += 1;
    }
    assert_eq!(decoded, 11);
}

#[test]
fn values_that_do_not_fit_their_bytes_are_malformed() {
    let cases: [(u8, &[u8]); 7] = [
        (0x04, b"\x06\0\0\0\0"),
        (0x05, b"\x05\0\0\0\x02\x02\0\0\0a"),
        (0x0B, b"a"),
        (0x0C, b"abcdefghijkl"),
        (0x0F, b"\x10\0\0\0\x09\0\0\0a\0\x05\0\0\0\0"),
        (0x0F, b"\x10\0\0\0\xFF\xFF\xFF\xFFa\0\x05\0\0\0\0"),
        (0x14, b""),
    ];
    for (kind, bytes) in cases {
        assert!(composed::value(kind, bytes).is_err(), "{kind:#x} {bytes:?}");
    }
}

#[test]
fn frames_nest() {
    let mut out = Vec::new();
    let document = Frame::begin(&mut out);
    let array = Frame::begin_field(&mut out, kind::ARRAY, b"a");
    for index in 0..12 {
        append_indexed(&mut out, 0x10, index, &(index as i32).to_le_bytes());
    }
    array.finish(&mut out);
    document.finish(&mut out);
    let expected = RawDocumentBuf::try_from(&doc! {"a": (0..12).collect::<Vec<i32>>()}).unwrap();
    assert_eq!(out, expected.as_bytes());
}

#[test]
fn depth_counts_documents_and_arrays() {
    let depth = |document| nesting_depth(&RawDocumentBuf::try_from(&document).unwrap()).unwrap();
    assert_eq!(depth(doc! {"a": 1}), 1);
    assert_eq!(depth(doc! {"a": [{"b": 1}], "c": {}}), 3);
}

#[test]
fn values_are_described_as_in_the_shell() {
    let text = |value: Bson| {
        let document = RawDocumentBuf::try_from(&doc! {"v": value}).unwrap();
        describe(document.get("v").unwrap().unwrap())
    };
    assert_eq!(
        text(Bson::Document(doc! {"a": 1, "b": ["x", 1.0, Bson::Null]})),
        "{ a: 1, b: [ \"x\", 1.0, null ] }"
    );
    assert_eq!(text(Bson::Array(vec![])), "[]");
}
