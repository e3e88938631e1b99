//! Sorting against a reference; optimised pipelines against themselves.

use proptest::prelude::*;

use super::*;
use crate::exec::tests::fixture::generated;
use crate::value::{Comparer, Value};

fn scalar() -> impl Strategy<Value = Bson> {
    prop_oneof![
        (-3_i32..4).prop_map(Bson::from),
        (-3_i64..4).prop_map(Bson::from),
        (-6_i32..7).prop_map(|n| Bson::from(f64::from(n) / 2.0)),
        "[ab]{0,2}".prop_map(Bson::from),
        Just(Bson::Null),
        any::<bool>().prop_map(Bson::from),
    ]
}

fn field() -> impl Strategy<Value = Option<Bson>> {
    prop_oneof![
        4 => scalar().prop_map(Some),
        1 => proptest::collection::vec(scalar(), 0..3).prop_map(|items| Some(Bson::Array(items))),
        1 => Just(None),
    ]
}

fn document() -> impl Strategy<Value = Document> {
    (prop_oneof![field(), below().prop_map(Some)], field(), scalar()).prop_map(|(a, b, c)| {
        let mut document = Document::new();
        for (name, value) in [("a", a), ("b", b), ("c", Some(c))] {
            if let Some(value) = value {
                document.insert(name, value);
            }
        }
        document
    })
}

/// What is below `a`: documents, arrays of them, and what is neither.
fn below() -> impl Strategy<Value = Bson> {
    let inner = || {
        (field(), field()).prop_map(|(b, zero)| {
            let mut document = Document::new();
            b.into_iter().for_each(|b| drop(document.insert("b", b)));
            zero.into_iter().for_each(|zero| drop(document.insert("0", zero)));
            Bson::Document(document)
        })
    };
    prop_oneof![
        inner(),
        proptest::collection::vec(prop_oneof![3 => inner(), 1 => scalar()], 0..3).prop_map(Bson::Array),
    ]
}

fn stage() -> impl Strategy<Value = Document> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let path = || {
        prop_oneof![
            Just("a"),
            Just("a.b"),
            Just("a.0"),
            Just("a.0.b"),
            Just("a.b.0"),
            Just("a.c")
        ]
    };
    prop_oneof![
        2 => (path(), scalar()).prop_map(|(path, value)| doc! {"$match": {path: value}}),
        2 => (path(), any::<bool>()).prop_map(|(path, there)| doc! {"$match": {path: {"$exists": there}}}),
        2 => path().prop_map(|path| doc! {"$unset": path}),
        1 => path().prop_map(|path| doc! {"$project": {path: 0}}),
        1 => (path(), scalar()).prop_map(|(path, value)| doc! {"$addFields": {path: {"$literal": value}}}),
        8 => plain_stage(name),
    ]
}

fn plain_stage<N: Strategy<Value = &'static str> + 'static>(name: impl Fn() -> N) -> impl Strategy<Value = Document> {
    prop_oneof![
        (name(), scalar()).prop_map(|(name, value)| doc! {"$match": {name: value}}),
        (name(), name(), scalar())
            .prop_map(|(x, y, value)| doc! {"$match": {"$and": [{x: {"$gte": value}}, {y: {"$exists": true}}]}}),
        (name(), name()).prop_map(|(x, y)| doc! {"$match": {"$expr": {"$lte": [format!("${x}"), format!("${y}")]}}}),
        (1_i32..6).prop_map(|n| doc! {"$limit": n}),
        (0_i32..4).prop_map(|n| doc! {"$skip": n}),
        (name(), prop_oneof![Just(1), Just(-1)])
            .prop_map(|(name, direction)| doc! {"$sort": {name: direction, "c": 1}}),
        (name(), any::<bool>()).prop_map(|(name, preserve)| {
            doc! {"$unwind": {"path": format!("${name}"), "preserveNullAndEmptyArrays": preserve}}
        }),
        (name(), name()).prop_map(|(to, from)| doc! {"$addFields": {to: format!("${from}")}}),
        name().prop_map(|name| doc! {"$unset": name}),
        name().prop_map(|name| doc! {"$project": {name: 1}}),
    ]
}

/// The value a field sorts by: the least of an array ascending, its greatest descending.
fn sort_value(document: &Document, name: &str, descending: bool) -> Value<'static> {
    let comparer = Comparer::default();
    let shared = shared(document);
    match Value::field(&shared, name).unwrap() {
        Value::Missing => Value::Null,
        Value::Array(array) => {
            let mut items = array.to_vec().unwrap();
            items.sort_by(|a, b| comparer.compare(a, b));
            let end = if descending {
                items.pop()
            } else {
                items.into_iter().next()
            };
            end.map_or(Value::Undefined, Value::into_owned)
        }
        other => other.into_owned(),
    }
}

proptest! {
    #![proptest_config(generated(256))]

    #[test]
    fn sort_is_the_reference_sort(
        documents in proptest::collection::vec(document(), 0..25),
        descending in any::<bool>(),
        limit in 1_usize..30,
    ) {
        let mut tagged = documents.clone();
        tagged.iter_mut().enumerate().for_each(|(index, document)| { document.insert("_id", index as i32); });
        let mut expected = tagged.clone();
        let comparer = Comparer::default();
        expected.sort_by(|x, y| {
            let order = comparer.compare(&sort_value(x, "a", descending), &sort_value(y, "a", descending));
            if descending { order.reverse() } else { order }
        });
        let sort = doc! {"$sort": {"a": if descending { -1 } else { 1 }}};
        prop_assert_eq!(run(std::slice::from_ref(&sort), &tagged), expected.clone());
        // With a limit, by the heap.
        let mut top = parse(&[sort, doc! {"$limit": limit as i32}]).unwrap();
        top.optimize();
        expected.truncate(limit);
        prop_assert_eq!(drain(top, &tagged, &Memory::default()).unwrap(), expected);
    }

    #[test]
    fn optimising_changes_nothing(
        documents in proptest::collection::vec(document(), 0..12),
        stages in proptest::collection::vec(stage(), 0..7),
    ) {
        let plain = parse(&stages).unwrap();
        let expected = drain(plain, &documents, &Memory::default());
        let mut optimized = parse(&stages).unwrap();
        optimized.optimize();
        let shown = optimized.to_documents();
        let found = drain(optimized, &documents, &Memory::default());
        match (found, expected) {
            (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected, "{:?} as {:?}", stages, shown),
            // Sorting by parallel arrays fails; a filter that goes first may take those documents away.
            (_, Err(_)) => {}
            (found, expected) => prop_assert!(false, "{stages:?} as {shown:?}: {found:?} / {expected:?}"),
        }
    }

    #[test]
    fn a_source_that_pauses_changes_nothing(
        documents in proptest::collection::vec(document(), 0..12),
        stages in proptest::collection::vec(stage(), 0..7),
    ) {
        let expected = drain(parse(&stages).unwrap(), &documents, &Memory::default());
        let found = drain_pausing(parse(&stages).unwrap(), &documents, &Memory::default());
        match (found, expected) {
            (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected, "{:?}", stages),
            (found, expected) => prop_assert_eq!(found.is_ok(), expected.is_ok(), "{:?}", stages),
        }
    }

    /// Taking the front off and doing it as a find does not change the result.
    #[test]
    fn pushdown_changes_nothing(
        documents in proptest::collection::vec(document(), 0..12),
        stages in proptest::collection::vec(stage(), 0..6),
    ) {
        // Sorting by parallel arrays fails; a filter that goes first may take those documents away.
        let Ok(expected) = drain(parse(&stages).unwrap(), &documents, &Memory::default()) else {
            return Ok(());
        };
        let mut rest = parse(&stages).unwrap();
        rest.optimize();
        let pushdown = rest.take_pushdown();
        let mut front = Vec::new();
        if let Some((filter, _)) = &pushdown.filter {
            front.push(doc! {"$match": Document::try_from(filter).unwrap()});
        }
        if let Some(sort) = &pushdown.sort {
            front.push(doc! {"$sort": Document::try_from(sort.document()).unwrap()});
        }
        front.push(doc! {"$skip": pushdown.skip as i64});
        let mut found = run(&front, &documents);
        if let Some(limit) = pushdown.limit {
            found.truncate(limit as usize);
        }
        let result = drain(rest, &found, &Memory::default()).unwrap();
        prop_assert_eq!(result, expected, "{:?}", stages);
    }
}
