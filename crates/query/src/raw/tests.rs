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
