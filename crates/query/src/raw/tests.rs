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

/// An array was found by walking its document from the start, which for all arrays of a document is quadratic.
#[test]
fn values_of_all_types_are_decoded_in_order() {
    let mut document = doc! {"_id": 1};
    for (number, value) in Bson::Array(vec![
        Bson::Array(vec![1.into()]),
        Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::CString::try_from("a").unwrap(),
            options: bson::raw::CString::try_from("i").unwrap(),
        }),
        Bson::Int32(7),
        Bson::Document(doc! {"x": [2]}),
        Bson::Array(Vec::new()),
    ])
    .as_array()
    .unwrap()
    .iter()
    .enumerate()
    {
        document.insert(format!("field {number}"), value.clone());
    }
    let document = RawDocumentBuf::try_from(&document).unwrap();
    let mut values = Values::of(&document);
    let mut decoded = 0;
    for (element, expected) in Elements::new(&document).zip(document.iter()) {
        let (element, expected) = (element.unwrap(), expected.unwrap().1);
        assert_eq!(values.value(element).unwrap(), expected);
        assert_eq!(element.to_owned_value().unwrap(), RawBson::from(expected));
        let constant = Constant::of(element).unwrap();
        assert_eq!((constant.value(), constant.bytes()), (expected, element.value_bytes()));
        decoded += 1;
    }
    assert_eq!(decoded, 6);
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
