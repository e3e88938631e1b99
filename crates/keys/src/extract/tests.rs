#![allow(clippy::unwrap_used)]

use super::*;
use crate::key::{FieldOrder, decode_key};
use crate::testing;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, bson, doc};
use proptest::prelude::*;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn extractor(pattern: &Document, sparse: bool) -> KeyExtractor {
    KeyExtractor::new(IndexPattern::parse(&raw(pattern)).unwrap(), sparse, None)
}

/// The keys decoded, a missing field as the string "missing".
fn decoded(extractor: &KeyExtractor, keys: &KeySet) -> Vec<Vec<Bson>> {
    let decode = |key: ExtractedKey<'_>| decode_key(key.key, key.types, extractor.pattern().ordering()).unwrap();
    let or_missing = |value: Option<Bson>| value.unwrap_or_else(|| Bson::String("missing".to_owned()));
    keys.iter()
        .map(|key| decode(key).into_iter().map(or_missing).collect())
        .collect()
}

#[track_caller]
fn assert_keys(pattern: Document, document: Document, expected: Vec<Vec<Bson>>, multikey: &[(usize, usize)]) {
    let extractor = extractor(&pattern, false);
    let mut keys = KeySet::new();
    extractor.extract(&raw(&document), &mut keys).unwrap();
    assert_eq!(decoded(&extractor, &keys), expected, "{pattern} of {document}");
    assert_eq!(
        keys.multikey().iter().collect::<Vec<_>>(),
        multikey,
        "{pattern} of {document}"
    );
}

#[track_caller]
fn single(pattern: Document, document: Document, expected: Vec<Bson>, multikey: &[(usize, usize)]) {
    assert_keys(
        pattern,
        document,
        expected.into_iter().map(|value| vec![value]).collect(),
        multikey,
    );
}

fn missing() -> Bson {
    Bson::String("missing".to_owned())
}

#[test]
fn scalars_and_missing_fields() {
    single(doc! { "a": 1 }, doc! { "b": 1, "a": 5 }, vec![5.into()], &[]);
    single(doc! { "a": 1 }, doc! { "b": 1 }, vec![missing()], &[]);
    single(doc! { "a": 1 }, doc! { "a": null }, vec![Bson::Null], &[]);
    single(
        doc! { "a": 1 },
        doc! { "aa": 1, "ab": 2, "": 3, "a": { "b": 1 } },
        vec![doc! { "b": 1 }.into()],
        &[],
    );
    single(doc! { "a.b": 1 }, doc! { "a": { "b": 7_i64 } }, vec![7_i64.into()], &[]);
    single(doc! { "a.b": 1 }, doc! { "a": 7 }, vec![missing()], &[]);
    single(doc! { "a.b": 1 }, doc! { "a": { "c": 7 } }, vec![missing()], &[]);
    single(doc! { "a.b": 1 }, doc! { "a.b": 7 }, vec![missing()], &[]);
    assert_keys(
        doc! { "a": 1, "b.c": -1, "d": 1 },
        doc! { "d": "x", "b": { "c": 2.5 } },
        vec![vec![missing(), 2.5.into(), "x".into()]],
        &[],
    );
}

#[test]
fn arrays_give_a_key_for_each_element() {
    single(
        doc! { "a": 1 },
        doc! { "a": [3, 1, 2, 1, 1.0] },
        vec![1.into(), 2.into(), 3.into()],
        &[(0, 0)],
    );
    single(
        doc! { "a": -1 },
        doc! { "a": [1, 2] },
        vec![2.into(), 1.into()],
        &[(0, 0)],
    );
    single(doc! { "a": 1 }, doc! { "a": [] }, vec![Bson::Undefined], &[(0, 0)]);
    single(
        doc! { "a": 1 },
        doc! { "a": [[1, 2], 3] },
        vec![3.into(), vec![1, 2].into()],
        &[(0, 0)],
    );
    single(
        doc! { "a": 1 },
        doc! { "a": [[]] },
        vec![Bson::Array(vec![])],
        &[(0, 0)],
    );
    single(
        doc! { "a": 1 },
        doc! { "a": [{ "b": 1 }] },
        vec![doc! { "b": 1 }.into()],
        &[(0, 0)],
    );
    single(
        doc! { "a.b": 1 },
        doc! { "a": { "b": [1, 2] } },
        vec![1.into(), 2.into()],
        &[(0, 1)],
    );
}

#[test]
fn paths_go_through_arrays_of_documents() {
    single(
        doc! { "a.b": 1 },
        doc! { "a": [{ "b": 2 }, { "b": 1 }] },
        vec![1.into(), 2.into()],
        &[(0, 0)],
    );
    single(
        doc! { "a.b": 1 },
        doc! { "a": [{ "b": 2 }, { "c": 1 }] },
        vec![missing(), 2.into()],
        &[(0, 0)],
    );
    single(doc! { "a.b": 1 }, doc! { "a": [1, 2] }, vec![missing()], &[(0, 0)]);
    single(doc! { "a.b": 1 }, doc! { "a": [] }, vec![missing()], &[(0, 0)]);
    single(
        doc! { "a.b": 1 },
        doc! { "a": [[{ "b": 1 }]] },
        vec![missing()],
        &[(0, 0)],
    );
    single(
        doc! { "a.b": 1 },
        doc! { "a": [{ "b": [1, 2] }, { "b": 3 }, { "b": [] }] },
        vec![Bson::Undefined, 1.into(), 2.into(), 3.into()],
        &[(0, 0), (0, 1)],
    );
    single(
        doc! { "a.b.c": 1 },
        doc! { "a": [{ "b": [{ "c": 1 }, { "c": 2 }] }] },
        vec![1.into(), 2.into()],
        &[(0, 0), (0, 1)],
    );
}

#[test]
fn positions_in_arrays() {
    single(doc! { "a.0": 1 }, doc! { "a": [5, 6] }, vec![5.into()], &[]);
    single(doc! { "a.2": 1 }, doc! { "a": [5, 6] }, vec![missing()], &[(0, 0)]);
    single(doc! { "a.0": 1 }, doc! { "a": { "0": 7 } }, vec![7.into()], &[]);
    single(doc! { "a.0": 1 }, doc! { "a": [[1, 2]] }, vec![vec![1, 2].into()], &[]);
    single(doc! { "a.0.1": 1 }, doc! { "a": [[1, 2]] }, vec![2.into()], &[]);
    single(
        doc! { "a.0.b": 1 },
        doc! { "a": [{ "b": 1 }, { "b": 2 }] },
        vec![1.into()],
        &[],
    );
    single(
        doc! { "a.0.b": 1 },
        doc! { "a": [[{ "b": 1 }, { "b": 2 }]] },
        vec![1.into(), 2.into()],
        &[(0, 1)],
    );
    single(doc! { "a.0": 1 }, doc! { "a": [] }, vec![missing()], &[(0, 0)]);
    single(doc! { "a.0": 1 }, doc! { "a": [3, { "1": 1 }] }, vec![3.into()], &[]);
    // Where no element has the position, it is a name.
    single(doc! { "a.5": 1 }, doc! { "a": [{ "5": 1 }] }, vec![1.into()], &[(0, 0)]);
    assert_keys(
        doc! { "a.0": 1, "a.b": 1 },
        doc! { "a": [{ "b": 1 }, { "b": 2 }] },
        vec![
            vec![doc! { "b": 1 }.into(), 1.into()],
            vec![doc! { "b": 1 }.into(), 2.into()],
        ],
        &[(1, 0)],
    );
    let mut keys = KeySet::new();
    let document = doc! { "a": [{ "x": 1 }, { "0": 2 }] };
    assert_eq!(
        extractor(&doc! { "a.0": 1 }, false).extract(&raw(&document), &mut keys),
        Err(ExtractError::AmbiguousPosition {
            field: "0".to_owned(),
            path: "a.0".to_owned()
        })
    );
}

#[test]
fn fields_of_one_array_go_together() {
    let document = doc! { "x": 9, "a": [{ "b": 1, "c": 2 }, { "b": 3, "c": [4, 5] }, 7] };
    assert_keys(
        doc! { "a.b": 1, "x": 1, "a.c": 1 },
        document,
        vec![
            vec![missing(), 9.into(), missing()],
            vec![1.into(), 9.into(), 2.into()],
            vec![3.into(), 9.into(), 4.into()],
            vec![3.into(), 9.into(), 5.into()],
        ],
        &[(0, 0), (2, 0), (2, 1)],
    );
    // The array itself, and fields of its elements.
    assert_keys(
        doc! { "a": 1, "a.b": 1 },
        doc! { "a": [{ "b": 1 }] },
        vec![vec![doc! { "b": 1 }.into(), 1.into()]],
        &[(0, 0), (1, 0)],
    );
    assert_keys(
        doc! { "a": 1, "a.b": 1 },
        doc! { "a": [] },
        vec![vec![Bson::Undefined, missing()]],
        &[(0, 0), (1, 0)],
    );
}

#[test]
fn parallel_arrays_are_refused() {
    let refusal = |pattern: Document, document: Document| {
        extractor(&pattern, false)
            .extract(&raw(&document), &mut KeySet::new())
            .unwrap_err()
            .to_string()
    };
    let message = "cannot index parallel arrays [b] [a]";
    assert_eq!(refusal(doc! { "a": 1, "b": 1 }, doc! { "a": [1], "b": [2] }), message);
    assert_eq!(refusal(doc! { "a": 1, "b": 1 }, doc! { "a": [], "b": [] }), message);
    assert_eq!(
        refusal(doc! { "x.a": 1, "x.b": 1 }, doc! { "x": [{ "a": [1], "b": [1] }] }),
        message
    );
    assert_eq!(
        refusal(doc! { "a.c": 1, "b": 1 }, doc! { "a": [{ "c": 1 }], "b": [2] }),
        message
    );
}

#[test]
fn sparse_indexes_leave_documents_out() {
    let count = |pattern: Document, document: Document| {
        let mut keys = KeySet::new();
        extractor(&pattern, true).extract(&raw(&document), &mut keys).unwrap();
        keys.len()
    };
    assert_eq!(count(doc! { "a": 1 }, doc! { "b": 1 }), 0);
    assert_eq!(count(doc! { "a": 1 }, doc! { "a": null }), 1);
    assert_eq!(count(doc! { "a": 1, "b": 1 }, doc! { "b": 1 }), 1);
    assert_eq!(count(doc! { "a": 1, "b": 1 }, doc! { "c": 1 }), 0);
    assert_eq!(count(doc! { "a": 1 }, doc! { "a": [] }), 1);
    assert_eq!(count(doc! { "a.b": 1 }, doc! { "a": [{ "b": 1 }, { "c": 1 }, 5] }), 1);
    assert_eq!(count(doc! { "a.b": 1 }, doc! { "a": [] }), 0);
}

#[test]
fn patterns_that_are_no_index() {
    let refusal = |pattern: Document| IndexPattern::parse(&raw(&pattern)).unwrap_err();
    let path = |path: &str| path.to_owned();
    assert_eq!(refusal(doc! {}), PatternError::Empty);
    assert_eq!(refusal(doc! { "": 1 }), PatternError::EmptyPart { path: path("") });
    assert_eq!(
        refusal(doc! { "a..b": 1 }),
        PatternError::EmptyPart { path: path("a..b") }
    );
    assert_eq!(refusal(doc! { "a.": 1 }), PatternError::EmptyPart { path: path("a.") });
    assert_eq!(refusal(doc! { "$a": 1 }), PatternError::DollarPart { path: path("$a") });
    assert_eq!(
        refusal(doc! { "a.$b": 1 }),
        PatternError::DollarPart { path: path("a.$b") }
    );
    assert_eq!(refusal(doc! { "a": 0 }), PatternError::Zero { path: path("a") });
    assert_eq!(refusal(doc! { "a": -0.0 }), PatternError::Zero { path: path("a") });
    assert_eq!(refusal(doc! { "a": f64::NAN }), PatternError::Zero { path: path("a") });
    assert_eq!(
        refusal(doc! { "a": testing::decimal("0.0") }),
        PatternError::Zero { path: path("a") }
    );
    assert_eq!(
        refusal(doc! { "a": true }),
        PatternError::WrongType {
            path: path("a"),
            found: "bool"
        }
    );
    assert_eq!(refusal(doc! { "a": "wildcard" }), PatternError::WildcardPlugin);
    assert_eq!(refusal(doc! { "a": "hashed", "b": "hashed" }), PatternError::ManyHashed);
    assert_eq!(refusal(doc! { "a.$**": 1, "$**": 1 }), PatternError::ManyWildcards);
    for combination in [
        doc! { "a": "text" },
        doc! { "_fts": "text" },
        doc! { "_fts": "text", "_ftsx": 1, "a": "2d" },
        doc! { "$**": "hashed" },
        doc! { "a": "hashed", "b": "2dsphere" },
        doc! { "a": "2dsphere", "b": "2d" },
    ] {
        assert!(matches!(refusal(combination), PatternError::Combination(_)));
    }
    assert_eq!(refusal(doc! { "a": "2d", "b": "2d" }), PatternError::ManyPlanes);
    assert_eq!(refusal(doc! { "a": 1, "b": "2d" }), PatternError::PlaneNotFirst);
    assert_eq!(refusal(doc! { "$**": 0 }), PatternError::Zero { path: path("$**") });
    assert_eq!(
        refusal(doc! { "a.$**.b": 1 }),
        PatternError::DollarPart { path: path("a.$**.b") }
    );
    assert_eq!(
        refusal(doc! { "a": "btree" }),
        PatternError::UnknownPlugin {
            plugin: "btree".to_owned()
        }
    );
    let fields = |count: usize| Document::from_iter((0..count).map(|i| (format!("f{i}"), Bson::Int32(1))));
    assert_eq!(IndexPattern::parse(&raw(&fields(32))).unwrap().fields().len(), 32);
    assert_eq!(refusal(fields(33)), PatternError::TooManyFields { count: 33 });
    let deep = |parts: usize| doc! { vec!["a"; parts].join("."): 1 };
    assert!(IndexPattern::parse(&raw(&deep(200))).is_ok());
    assert!(matches!(refusal(deep(201)), PatternError::PathTooLong { .. }));
}

#[test]
fn hashed_fields() {
    let hash = |value: RawBsonRef<'_>| Bson::Int64(crate::hash(value));
    let pattern = || doc! { "a": 1, "b.c": "hashed" };
    let of_five = hash(RawBsonRef::Int32(5));
    let document = doc! { "a": 7, "b": { "c": 5.0 } };
    assert_keys(pattern(), document, vec![vec![7.into(), of_five]], &[]);
    let of_nothing = hash(RawBsonRef::Null);
    assert_keys(pattern(), doc! { "b": 1 }, vec![vec![missing(), of_nothing]], &[]);
    for array in [doc! { "a": [1] }, doc! { "b": [{ "c": 1 }] }, doc! { "b": { "c": [] } }] {
        let extracted = extractor(&pattern(), false).extract(&raw(&array), &mut KeySet::new());
        assert!(matches!(extracted, Err(ExtractError::HashedArray { .. })), "{array}");
    }
    let mut keys = KeySet::new();
    extractor(&pattern(), true).extract(&raw(&doc! {}), &mut keys).unwrap();
    assert!(keys.is_empty(), "sparse");
}

#[test]
fn geometries_give_cells_and_other_fields_their_values() {
    let point = |x: f64, y: f64| doc! { "type": "Point", "coordinates": [x, y] };
    let cell = |x: f64, y: f64| {
        let point = geometry::sphere::Geometry::of_point(geometry::sphere::point(x, y));
        let Ok(keys) = point.keys(&mut geometry::uncounted);
        Bson::Int64(keys[0])
    };
    let pattern = || doc! { "at.loc": "2dsphere", "tags": 1 };
    let here = cell(13.0, 52.0);
    let document = doc! { "at": { "loc": point(13.0, 52.0) } };
    assert_keys(pattern(), document, vec![vec![here.clone(), missing()]], &[]);
    let document = doc! { "at": { "loc": [13, 52] }, "tags": ["x", "y"] };
    let both = vec![vec![here.clone(), "x".into()], vec![here.clone(), "y".into()]];
    assert_keys(pattern(), document, both, &[(1, 0)]);
    let document = doc! { "at": [{ "loc": point(13.0, 52.0) }, { "loc": point(-1.0, 2.0) }, 5] };
    let mut places = vec![vec![here, missing()], vec![cell(-1.0, 2.0), missing()]];
    places.sort_by_key(|key| key[0].as_i64());
    assert_keys(pattern(), document, places, &[(0, 0)]);
    for (tags, keys) in [
        (Bson::from(Vec::<Bson>::new()), vec![Bson::Undefined]),
        (
            Bson::from(vec![Bson::from(vec![1]), 2.into()]),
            vec![2.into(), Bson::from(vec![1])],
        ),
    ] {
        let document = doc! { "at": { "loc": [13, 52] }, "tags": tags };
        let keys = keys.into_iter().map(|key| vec![cell(13.0, 52.0), key]).collect();
        assert_keys(pattern(), document, keys, &[(1, 0)]);
    }
    for nothing in [
        doc! { "tags": 1 },
        doc! { "at": { "loc": null } },
        doc! { "at": { "loc": [] } },
    ] {
        assert_keys(pattern(), nothing, vec![], &[]);
    }
    for wrong in [doc! { "at": { "loc": 5 } }, doc! { "at": { "loc": point(190.0, 0.0) } }] {
        let extracted = extractor(&pattern(), false).extract(&raw(&wrong), &mut KeySet::new());
        assert!(matches!(extracted, Err(ExtractError::NoGeometry { .. })), "{wrong}");
    }
    // Many cells times many tags: whoever watches hears of them, and may end it.
    let square = doc! { "type": "Polygon", "coordinates": [[[0, 0], [7, 0], [7, 7], [0, 7], [0, 0]]] };
    let tags: Vec<Bson> = (0..10_000).map(Bson::Int32).collect();
    let many = raw(&doc! { "at": { "loc": square }, "tags": tags });
    let ended = extractor(&pattern(), false).extract_watched(&many, &mut KeySet::new(), &mut |_| false);
    assert!(matches!(ended, Err(ExtractError::Ended)));
}

#[test]
fn points_of_the_plane() {
    let grid = geometry::plane::Grid::new(-10.0, 10.0, 20).unwrap();
    let pattern = IndexPattern::parse(&raw(&doc! { "p": "2d", "k": 1 })).unwrap();
    let extractor = KeyExtractor::new(pattern.with_grid(grid), false, None);
    let key = |x: f64, y: f64| Bson::Int64(grid.key(&geometry::plane::PlanePoint { x, y }));
    let keys_of = |document: Document| {
        let mut keys = KeySet::new();
        extractor
            .extract(&raw(&document), &mut keys)
            .map(|()| decoded(&extractor, &keys))
    };
    assert_eq!(
        keys_of(doc! { "p": [1, 2], "k": 5 }).unwrap(),
        [[key(1.0, 2.0), 5.into()]]
    );
    let two = keys_of(doc! { "p": [[-3, 4], { "x": 5, "y": 6 }] }).unwrap();
    assert_eq!(two, [[key(-3.0, 4.0), missing()], [key(5.0, 6.0), missing()]]);
    assert_eq!(keys_of(doc! { "k": 1 }).unwrap(), Vec::<Vec<Bson>>::new());
    assert!(matches!(
        keys_of(doc! { "p": [11, 0] }),
        Err(ExtractError::OutOfGrid { .. })
    ));
    // Empty places count as none.
    let one = keys_of(doc! { "p": [[], [1, 2], {}] }).unwrap();
    assert_eq!(one, [[key(1.0, 2.0), missing()]]);
    assert_eq!(keys_of(doc! { "p": [[], []] }).unwrap(), Vec::<Vec<Bson>>::new());
    let refusal = |value: Bson| keys_of(doc! { "p": value }).unwrap_err();
    for no_location in [
        bson!(["a", 0]),
        bson!([[1, 2], 5]),
        bson!([null, [1, 2]]),
        bson!({ "type": "Point", "coordinates": [1, 2] }),
    ] {
        assert!(matches!(refusal(no_location), ExtractError::NoLocation { .. }));
    }
    for one_coordinate in [bson!([1]), bson!([[1]]), bson!({ "x": 1 })] {
        assert!(matches!(refusal(one_coordinate), ExtractError::OneCoordinate { .. }));
    }
    for no_point in [bson!([1, "a"]), bson!([["a", 0]]), bson!([{ "x": 1, "y": null }])] {
        assert!(matches!(refusal(no_point), ExtractError::NoPoint { .. }));
    }
}

#[test]
fn patterns_that_are() {
    let pattern = doc! { "a": 1, "b.c": -1.5, "r.$id": 7_i64, "d": testing::decimal("-2E+30") };
    let pattern = IndexPattern::parse(&raw(&pattern)).unwrap();
    let orders: Vec<_> = pattern
        .fields()
        .iter()
        .map(|field| (field.path(), field.order()))
        .collect();
    use FieldOrder::{Ascending, Descending};
    assert_eq!(
        orders,
        [
            ("a", Ascending),
            ("b.c", Descending),
            ("r.$id", Ascending),
            ("d", Descending)
        ]
    );
    assert_eq!(pattern.ordering().field(1), Descending);
    assert_eq!(pattern.ordering().field(2), Ascending);
}

#[test]
fn damaged_documents_are_errors() {
    let mut bytes = raw(&doc! { "x": "text", "a": 1 }).into_bytes();
    bytes[7] = 200;
    let damaged = RawDocument::from_bytes(&bytes).unwrap();
    let error = ExtractError::Malformed { path: "a".to_owned() };
    assert_eq!(
        extractor(&doc! { "a": 1 }, false).extract(damaged, &mut KeySet::new()),
        Err(error)
    );
}

#[test]
fn multikey_places_gather() {
    let mut all = MultikeyPaths::new();
    assert!(all.is_empty() && all.insert(1, 2) && !all.insert(1, 2));
    let mut other = MultikeyPaths::new();
    other.insert(0, 1);
    assert!(all.merge(&other) && !all.merge(&other));
    assert!(all.contains(0, 1) && all.field_is_multikey(1) && !all.field_is_multikey(2));
    assert_eq!(all.iter().collect::<Vec<_>>(), [(0, 1), (1, 2)]);
}

/// What a single-field index should have, said another way: MongoDB's rules read off one path at a time.
fn expected(value: Option<&Bson>, path: &[&str]) -> Vec<Option<Bson>> {
    match (value, path) {
        (Some(Bson::Array(elements)), []) if elements.is_empty() => vec![Some(Bson::Undefined)],
        (Some(Bson::Array(elements)), []) => elements.iter().cloned().map(Some).collect(),
        (Some(Bson::Array(elements)), path) => {
            let inner = |element: &Bson| match element {
                Bson::Document(document) => expected(document.get(path[0]), &path[1..]),
                _ => vec![None],
            };
            if elements.is_empty() {
                vec![None]
            } else {
                elements.iter().flat_map(inner).collect()
            }
        }
        (Some(Bson::Document(document)), [first, rest @ ..]) => expected(document.get(first), rest),
        (Some(value), []) => vec![Some(value.clone())],
        _ => vec![None],
    }
}

fn shape() -> impl Strategy<Value = Bson> {
    let leaf = prop_oneof![
        (0..4).prop_map(Bson::Int32),
        Just(Bson::Null),
        "[xy]".prop_map(Bson::String)
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(("[ab]", inner.clone()), 0..3).prop_map(|fields| Document::from_iter(fields).into()),
            prop::collection::vec(inner, 0..3).prop_map(Bson::Array),
        ]
    })
}

proptest! {
    #![proptest_config(testing::config())]

    #[test]
    fn fields_beside_a_point_have_the_keys_of_an_index_of_their_own(
        value in shape(), path in prop::sample::select(vec!["a", "a.b", "a.a.b", "a.1.b"])
    ) {
        let document = raw(&doc! { "p": [1, 2], "a": value });
        let (mut alone, mut beside) = (KeySet::new(), KeySet::new());
        if extractor(&doc! { path: 1 }, false).extract(&document, &mut alone).is_err() {
            return Ok(());
        }
        extractor(&doc! { "p": "2d", path: 1 }, false).extract(&document, &mut beside).unwrap();
        let point = geometry::plane::PlanePoint { x: 1.0, y: 2.0 };
        let mut square = Vec::new();
        let number = RawBsonRef::Int64(geometry::plane::Grid::default().key(&point));
        crate::key::encode_value(&mut square, number, FieldOrder::Ascending, None);
        let behind_the_point: Vec<&[u8]> = beside.iter().map(|key| &key.key[square.len()..]).collect();
        prop_assert_eq!(behind_the_point, alone.iter().map(|key| key.key).collect::<Vec<_>>());
    }

    #[test]
    fn single_fields_agree_with_the_rules(value in shape(), path in prop::sample::select(vec!["a", "a.b", "a.a.b"])) {
        let parts: Vec<&str> = path.split('.').collect();
        let mut wanted: Vec<(Vec<u8>, bool)> = expected(Some(&value), &parts[1..])
            .into_iter()
            .map(|value| {
                let mut key = Vec::new();
                let holder = bson::raw::RawBson::try_from(value.clone().unwrap_or(Bson::Null)).unwrap();
                crate::key::encode_value(&mut key, holder.as_raw_bson_ref(), FieldOrder::Ascending, None);
                (key, value.is_none())
            })
            .collect();
        let document = raw(&doc! { "a": value });
        for sparse in [false, true] {
            wanted.retain(|(_, missing)| !sparse || !missing);
            let mut sorted: Vec<Vec<u8>> = wanted.iter().map(|(key, _)| key.clone()).collect();
            sorted.sort();
            sorted.dedup();
            let mut keys = KeySet::new();
            extractor(&doc! { path: 1 }, sparse).extract(&document, &mut keys).unwrap();
            prop_assert_eq!(keys.iter().map(|key| key.key.to_vec()).collect::<Vec<_>>(), sorted);
        }
    }

    #[test]
    fn any_document_gives_keys_or_a_named_refusal(
        fields in prop::collection::vec(("[ab01]", shape()), 0..4),
        damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = raw(&Document::from_iter(fields)).into_bytes();
        if let Some((at, byte)) = damage {
            let at = 4 + at.index(bytes.len() - 4);
            bytes[at] = byte;
        }
        let Ok(document) = RawDocument::from_bytes(&bytes) else { return Ok(()) };
        let extractor = extractor(&doc! { "a.0.b": 1, "a.a": -1, "b": 1, "a.1": 1, "0": 1 }, false);
        let mut keys = KeySet::new();
        if extractor.extract(document, &mut keys).is_ok() {
            let all: Vec<_> = keys.iter().map(|key| key.key).collect();
            prop_assert!(!all.is_empty() && all.windows(2).all(|pair| pair[0] < pair[1]));
        }
        crate::order::compare(RawBsonRef::Document(document), RawBsonRef::Document(document));
    }
}

fn text_extractor(pattern: &Document, spec: &Document) -> KeyExtractor {
    let spec = TextSpec::parse(&raw(spec)).unwrap();
    extractor(pattern, false).with_text(Arc::new(spec))
}

fn keys_of(extractor: &KeyExtractor, document: &Document) -> Result<Vec<Vec<Bson>>, ExtractError> {
    let mut keys = KeySet::new();
    extractor.extract(&raw(document), &mut keys)?;
    Ok(decoded(extractor, &keys))
}

/// Terms and scores are on disk: these never change.
#[test]
fn the_keys_of_a_text_never_change() {
    let pattern = doc! { "p": 1, "_fts": "text", "_ftsx": 1, "s": -1 };
    let extractor = text_extractor(&pattern, &doc! { "weights": { "a": 1, "b.c": 2 } });
    let found = keys_of(
        &extractor,
        &doc! { "p": 7, "a": "The running dogs run", "b": [{ "c": ["Café", "dog food"] }, { "c": 5 }] },
    );
    let key = |term: &str, score: f64| vec![7.into(), term.into(), Bson::Double(score), missing()];
    let wanted = vec![
        key("cafe", 2.0),
        key("dog", 0.5 + 0.5 / 3.0 + 1.5),
        key("food", 1.5),
        key("run", 1.5 * (0.5 + 1.0 / 3.0)),
    ];
    assert_eq!(found, Ok(wanted));
    assert_eq!(
        keys_of(&extractor, &doc! { "a": 5, "b": "x" }),
        Ok(Vec::new()),
        "no text, no keys"
    );
}

/// A tree of a node a part used up the stack, or gigabytes.
#[test]
fn paths_of_texts_that_no_document_is_deep_enough_for_lead_nowhere() {
    let path_of = |parts: usize| vec!["a"; parts].join(".");
    let long = path_of(20_000);
    let spec = raw(&doc! { "weights": { &long: 1, path_of(PATH_PARTS_MAX): 1, "b.c": 1 } });
    let spec = TextSpec::parse(&spec).unwrap();
    let touched = |change: &str| spec.is_touched(&mut |path| path == change);
    for path in [
        "b.c",
        "b.language",
        "b.c.language",
        "language",
        &path_of(PATH_PARTS_MAX),
        "a.a.language",
    ] {
        assert!(touched(path), "{path}");
    }
    for path in ["b", "c", &long, &path_of(PATH_PARTS_MAX + 1), "a.a"] {
        assert!(!touched(path), "{path}");
    }
}

#[test]
fn texts_beside_arrays_and_in_no_language_are_refused() {
    let pattern = doc! { "p": 1, "_fts": "text", "_ftsx": 1 };
    let extractor = text_extractor(&pattern, &doc! { "weights": { "a": 1 } });
    let refused = |document| keys_of(&extractor, &document).unwrap_err();
    let array = ExtractError::ArrayBesideText { path: "p".to_owned() };
    assert_eq!(refused(doc! { "p": [1], "a": "x" }), array);
    assert_eq!(refused(doc! { "language": 1, "a": "x" }), ExtractError::LanguageType);
    let unknown = ExtractError::UnknownLanguage {
        language: "klingon".to_owned(),
    };
    assert_eq!(refused(doc! { "language": "klingon", "a": "x" }), unknown);
}

#[test]
fn languages_of_documents_inside_count_for_what_is_in_them() {
    let pattern = doc! { "_fts": "text", "_ftsx": 1 };
    let extractor = text_extractor(
        &pattern,
        &doc! { "weights": { "$**": 1 }, "language_override": "idioma" },
    );
    let document = doc! { "a": "the dogs", "b": { "idioma": "none", "c": ["the dogs"] }, "d": { "e": "cats" } };
    let found = keys_of(&extractor, &document).unwrap();
    let terms: Vec<&str> = found.iter().filter_map(|key| key[0].as_str()).collect();
    assert_eq!(terms, ["cat", "dog", "dogs", "the"]);
}

#[test]
fn long_terms_keep_their_beginning_and_a_hash() {
    let pattern = doc! { "_fts": "text", "_ftsx": 1 };
    let extractor = text_extractor(&pattern, &doc! { "weights": { "a": 1 }, "default_language": "none" });
    for length in [255, 256, 257, 5000] {
        let word = "ж".repeat(length / 2) + &"x".repeat(length % 2);
        let found = keys_of(&extractor, &doc! { "a": &word }).unwrap();
        let term = found[0][0].as_str().unwrap();
        assert_eq!(term == word, length <= 256, "{length}");
        assert!(term.len() <= 256 && word.starts_with(&term[..222]), "{length}: {term}");
        assert_eq!(key_term(&word), term);
    }
    assert_ne!(key_term(&("x".repeat(300) + "a")), key_term(&("x".repeat(300) + "b")));
}

fn wildcard(pattern: Document, projection: Option<Document>, document: Document) -> Vec<String> {
    let field = pattern.keys().find(|name| name.ends_with("$**")).unwrap();
    let projection = projection.as_ref().map(raw);
    let spec = WildcardSpec::parse(field, projection.as_deref()).unwrap();
    let extractor = extractor(&pattern, false).with_wildcard(Arc::new(spec));
    let shown = |key: Vec<Bson>| key.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    keys_of(&extractor, &document).unwrap().into_iter().map(shown).collect()
}

#[test]
fn arrays_beside_a_wildcard_are_refused() {
    let spec = WildcardSpec::parse("c.$**", None).unwrap();
    let extractor = extractor(&doc! { "a.0.b": 1, "c.$**": 1, "d": 1 }, false).with_wildcard(Arc::new(spec));
    let refused = |document: Document| {
        let extracted = extractor.extract(&raw(&document), &mut KeySet::new());
        match extracted {
            Ok(()) => None,
            Err(ExtractError::ArrayBesideWildcard { path }) => Some(path),
            Err(other) => panic!("{other}"),
        }
    };
    for document in [
        doc! {},
        doc! { "a": 1, "c": [1, 2], "d": { "e": [1] } },
        doc! { "a": { "0": { "b": 2 } }, "c": { "d": [{}] } },
    ] {
        assert_eq!(refused(document.clone()), None, "{document}");
    }
    for (document, path) in [
        (doc! { "a": [{ "b": 1 }] }, "a.0.b"),
        (doc! { "a": { "0": [] } }, "a.0.b"),
        (doc! { "a": { "0": { "b": [1] } }, "c": 1 }, "a.0.b"),
        (doc! { "d": [] }, "d"),
    ] {
        assert_eq!(refused(document.clone()).as_deref(), Some(path), "{document}");
    }
}

#[test]
fn wildcards_have_a_key_for_each_value() {
    let document = doc! {
        "_id": 1, "a": 5, "b": { "c": [1, [2], {}, { "d": null }, []], "e": {} }, "f": [], "g.h": 1, "i": { "j.k": 1 },
    };
    let all = |projection| wildcard(doc! { "$**": 1 }, projection, document.clone());
    let wanted = [
        "\"a\" 5",
        "\"b.c\" 1",
        "\"b.c\" {}",
        "\"b.c\" []",
        "\"b.c\" [2]",
        "\"b.c.d\" null",
        "\"b.e\" {}",
        "\"f\" undefined",
        "\"i\" {}",
    ];
    assert_eq!(all(None), wanted);
    assert_eq!(
        all(Some(doc! { "b.c": 1, "_id": 1 })),
        [
            "\"_id\" 1",
            "\"b.c\" 1",
            "\"b.c\" {}",
            "\"b.c\" []",
            "\"b.c\" [2]",
            "\"b.c.d\" null"
        ]
    );
    assert_eq!(
        all(Some(doc! { "b": { "c": false }, "f": 0, "i": 0 })),
        ["\"a\" 5", "\"b.e\" {}"]
    );
    assert_eq!(wildcard(doc! { "b.e.$**": -1 }, None, document.clone()), ["\"b.e\" {}"]);
    let beside = wildcard(doc! { "a": 1, "f.$**": 1, "z": 1 }, None, document.clone());
    assert_eq!(beside, ["5 \"f\" undefined \"missing\""]);
    let none = wildcard(doc! { "b.c": 1, "q.$**": 1 }, None, doc! { "b": { "c": 1 } });
    assert_eq!(none, ["1 MinKey MinKey"]);
}

#[test]
fn the_places_of_paths_with_arrays_never_change() {
    let extract = |document: Document| {
        let spec = WildcardSpec::parse("$**", None).unwrap();
        let extractor = extractor(&doc! { "$**": 1 }, false).with_wildcard(Arc::new(spec));
        let mut keys = KeySet::new();
        extractor.extract(&raw(&document), &mut keys).unwrap();
        keys.multikey().iter().collect::<Vec<_>>()
    };
    assert_eq!(extract(doc! { "a": { "b": 1 } }), []);
    let mut wanted = vec![path_place("a"), path_place("a.b")];
    wanted.sort_unstable();
    assert_eq!(extract(doc! { "a": [{ "b": [1] }], "c": 1 }), wanted);
    assert_eq!(
        [path_place("a"), path_place("a.b.c"), path_place("поле")],
        [(3, 161), (18, 7), (28, 110)]
    );
}
