#![allow(clippy::unwrap_used)]

use super::*;
use bson::{RawDocumentBuf, doc};

/// What the walk gives, as text.
fn walk(document: &bson::Document, path: &str, leaf: LeafArray) -> Vec<String> {
    let raw = RawDocumentBuf::try_from(document).unwrap();
    let mut given = Vec::new();
    any(&raw, &Path::new(path).unwrap(), leaf, |element, index| {
        let value = element.map_or("-".to_owned(), |element| raw::describe(element.value().unwrap()));
        given.push(index.map_or(value.clone(), |index| format!("{value}@{index}")));
        Ok(false)
    })
    .unwrap();
    given
}

#[test]
fn walks_as_mongodb_does() {
    let cases: &[(bson::Document, &str, &[&str])] = &[
        (doc! {"a": 1}, "a", &["1"]),
        (doc! {}, "a", &["-"]),
        (doc! {"a": [1, 2]}, "a", &["1@0", "2@1", "[ 1, 2 ]"]),
        (doc! {"a": {"b": 1}}, "a.b", &["1"]),
        (doc! {"a": 1}, "a.b", &["-"]),
        (doc! {"a": [{"b": 1}, 5, {"c": 1}]}, "a.b", &["1@0", "-@2"]),
        (doc! {"a": [{"b": [1, 2]}]}, "a.b", &["1@0", "2@0", "[ 1, 2 ]@0"]),
        (doc! {"a": [5, [2, 4]]}, "a.1", &["[ 2, 4 ]"]),
        (doc! {"a": [5, {"1": 4}]}, "a.1", &["4@1", "{ 1: 4 }"]),
        (doc! {"a": [[1, 2]]}, "a.0.1", &["2"]),
        (doc! {"a": [[{"b": 1}]]}, "a.b", &[]),
        (
            doc! {"a": [[{"b": 1}, {"c": 1}], {"b": 2}]},
            "a.0.b",
            &["1@0", "-@1", "-@1"],
        ),
        (doc! {"a": [[5, [{"b": 1}]]]}, "a.0.1.b", &["1@0"]),
        (doc! {"a": [[1]]}, "a.0.b", &[]),
    ];
    for (document, path, expected) in cases {
        assert_eq!(
            walk(document, path, LeafArray::Expand),
            *expected,
            "{path} in {document}"
        );
    }
    assert_eq!(walk(&doc! {"a": [1, 2]}, "a", LeafArray::Whole), ["[ 1, 2 ]"]);
}

#[test]
fn indexes_are_written_without_leading_zeros() {
    for (name, index) in [
        ("0", Some(0)),
        ("12", Some(12)),
        ("01", None),
        ("", None),
        ("1a", None),
        ("-1", None),
    ] {
        assert_eq!(array_index(name.as_bytes()), index, "{name}");
    }
    assert_eq!(array_index(b"9999999999"), None);
}

#[test]
fn components_are_limited() {
    assert!(Path::new(&vec!["a"; COMPONENTS_MAX].join(".")).is_ok());
    assert!(Path::new(&vec!["a"; COMPONENTS_MAX + 1].join(".")).is_err());
}
