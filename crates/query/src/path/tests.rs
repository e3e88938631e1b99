#![allow(clippy::unwrap_used)]

use super::*;
use bson::{RawDocumentBuf, doc};

/// What the walk gives, as text.
fn walk(document: &bson::Document, path: &str, leaf: LeafArray) -> Vec<String> {
    let raw = RawDocumentBuf::try_from(document).unwrap();
    let mut given = Vec::new();
    let (path, context) = (Path::new(path).unwrap(), EvaluationContext::uninterrupted());
    any(&raw, &path, leaf, &context, |element, index| {
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

/// `a: [{0: [{0: ... [1]}]}]`, in which each 0 is an element's position and a field's name.
fn forks(levels: usize) -> bson::Document {
    let mut inner = bson::Bson::Array(vec![1.into()]);
    for _ in 0..levels {
        inner = bson::Bson::Array(vec![doc! {"0": inner}.into()]);
    }
    doc! {"a": inner}
}

/// One small document and a path of numbers took for ever: each level of such an array doubled the ways to the next.
#[test]
fn numbers_that_are_names_and_positions_are_no_doubling() {
    for levels in 0..90 {
        let given = walk(
            &forks(levels),
            &format!("a{}", ".0".repeat(2 * levels + 1)),
            LeafArray::Whole,
        );
        assert!(
            given.iter().any(|value| value == "1"),
            "{levels}: position and name at each level"
        );
        // By name each time: the outermost array is then the first one.
        let given = walk(
            &forks(levels),
            &format!("a{}", ".0".repeat(levels + 1)),
            LeafArray::Whole,
        );
        assert!(given.iter().any(|value| value.starts_with('1')), "{levels}");
        assert!(
            given.len() <= 16 * (levels + 1) * (levels + 1),
            "{levels}: {} values",
            given.len()
        );
    }
}

/// Arrays that are reached with many numbers of names left are remembered once.
#[test]
fn what_a_walk_remembers_is_no_more_than_the_arrays() {
    let leaves: Vec<bson::Bson> = (0..20_000).map(|_| doc! {"0": [0]}.into()).collect();
    let mut inner = bson::Bson::Array(leaves);
    for _ in 0..12 {
        inner = bson::Bson::Array(vec![doc! {"0": inner}.into()]);
    }
    let raw = RawDocumentBuf::try_from(&doc! {"a": inner}).unwrap();
    let budget = storage::MemoryBudget::new(u64::MAX, 4 << 20);
    let clock = std::sync::Arc::new(crate::evaluation::tests::LookedAt::default());
    let operation = storage::Operation::within(clock, 1, &budget);
    let context = EvaluationContext::new(&operation);
    let path = Path::new(&format!("a{}", ".0".repeat(24))).unwrap();
    assert!(!any(&raw, &path, LeafArray::Whole, &context, |_, _| Ok(false)).unwrap());
}

#[test]
fn walks_end_with_their_operation() {
    let wide = doc! {"a": (0..5000).map(|i| doc! {"b": {"c": i}}).collect::<Vec<_>>()};
    for (document, path) in [
        (wide.clone(), "a.x"),
        (wide, "a.b.c"),
        (doc! {"a": vec![1; 5000]}, "a.x"),
        (forks(90), &*format!("a{}", ".0".repeat(150))),
    ] {
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let looks = std::cell::Cell::new(0);
        let check = || {
            looks.set(looks.get() + 1);
            match looks.get() {
                2 => Err(storage::Interrupted::Killed.into()),
                _ => Ok(()),
            }
        };
        let (path, context) = (Path::new(path).unwrap(), EvaluationContext::checked(&check));
        let ended = any(&raw, &path, LeafArray::Whole, &context, |_, _| Ok(false));
        assert!(crate::evaluation::is_interruption(&ended.unwrap_err()), "{path:?}");
    }
}
