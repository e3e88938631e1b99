//! What comes from a filter: the names of array filters, and the `_id` of an upsert.

use super::*;

/// The name is that of the filter as it is written, where it is always true too.
#[test]
fn array_filters_name_their_elements_where_they_are_always_true() {
    for filter in [doc! {"$or": [{"x": 9}, {"$and": [{}]}]}, doc! {"x": {"$nin": []}}] {
        let changed = apply_with(
            doc! {"$set": {"a.$[x]": 0}},
            std::slice::from_ref(&filter),
            &doc! {"a": [1, 2]},
            &NOW,
        );
        assert_eq!(changed.unwrap(), Some(doc! {"a": [0, 0]}), "{filter}");
    }
    for filter in [
        doc! {},
        doc! {"$or": [{}]},
        doc! {"$and": [{"x": 1}, {"$or": [{"y.a": 1}, {}]}]},
    ] {
        let changed = apply_with(
            doc! {"$set": {"a.$[x]": 0}},
            std::slice::from_ref(&filter),
            &doc! {"a": [1, 2]},
            &NOW,
        );
        assert_eq!(changed.unwrap_err().code(), Some(ErrorCode::FailedToParse), "{filter}");
    }
}

#[test]
fn a_replacement_leaves_array_filters_aside() {
    let replaced = apply_with(
        doc! {"b": 1},
        &[doc! {"x.a": {"$gt": 85}}],
        &doc! {"_id": 7, "a": 1},
        &NOW,
    );
    assert_eq!(replaced.unwrap(), Some(doc! {"_id": 7, "b": 1}));
}

#[test]
fn a_replacement_takes_its_id_as_a_whole() {
    let parts = [
        doc! {"_id": 1, "_id.x": 1},
        doc! {"_id": {"x": 1}, "_id.x": 1},
        doc! {"_id.x": 1, "_id.y": 2},
    ];
    for filter in parts {
        let code = upsert(filter.clone(), doc! {}).unwrap_err().code();
        assert_eq!(code, Some(ErrorCode::NotExactValueField), "{filter}");
    }
    let made = upsert(doc! {"_id.x": 1, "_id.y": 2}, doc! {"$set": {"a": 1}});
    assert_eq!(made.unwrap(), doc! {"_id": {"x": 1, "y": 2}, "a": 1});
    let twice = upsert(doc! {"$and": [{"_id": 1}, {"_id": 2}]}, doc! {});
    assert_eq!(twice.unwrap_err().code(), Some(ErrorCode::NotSingleValueField));
    let others = upsert(doc! {"_id": 1, "x": 1, "x.y": 1}, doc! {});
    assert_eq!(others.unwrap(), doc! {"_id": 1});
}

#[test]
fn equalities_that_overlap_are_refused_wherever_they_stand() {
    let many = || (0..300).map(|n| (format!("f{n}"), Bson::from(n)));
    for (one, other) in [("f7", "f7.x"), ("f9.1.a", "f9"), ("a.b", "a.b.c.d"), ("10.a", "10")] {
        let filter: bson::Document = [(one.to_owned(), 1.into()), ("a-b".to_owned(), 1.into())]
            .into_iter()
            .chain(many().filter(|(name, _)| name != one && name != other))
            .chain([(other.to_owned(), 1.into())])
            .collect();
        let refused = upsert(filter, doc! {"$set": {"z": 1}}).unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::NotSingleValueField), "{one} {other}");
    }
    let apart: bson::Document = many()
        .chain([("f7-x".to_owned(), 1.into()), ("f7x".to_owned(), 1.into())])
        .collect();
    let made = upsert(apart, doc! {"$set": {"z": 1}}).unwrap();
    assert_eq!(made.len(), 304);
}

#[test]
fn upserts_start_from_the_filters_equalities() {
    let id = ObjectId::from_bytes([5; 12]);
    let cases: Vec<(bson::Document, Bson, bson::Document)> = vec![
        (
            doc! {"a": 1},
            bson!({"$set": {"b": 2}}),
            doc! {"_id": id, "a": 1, "b": 2},
        ),
        (
            doc! {"_id": 7, "a": {"$gt": 1}},
            bson!({"$inc": {"b": 2}}),
            doc! {"_id": 7, "b": 2},
        ),
        (
            doc! {"a": 1},
            bson!({"$setOnInsert": {"b": 2}}),
            doc! {"_id": id, "a": 1, "b": 2},
        ),
        (
            doc! {"a.b": 1, "a.c": {"$eq": 2}},
            bson!({"$set": {"_id": 3}}),
            doc! {"_id": 3, "a": {"b": 1, "c": 2}},
        ),
        (
            doc! {"$and": [{"a": 1}, {"b": {"$in": [2]}}]},
            bson!({"$set": {"a": 9}}),
            doc! {"_id": id, "a": 9, "b": 2},
        ),
        (
            doc! {"a": {"$all": [1]}, "b": {"$in": [1, 2]}},
            bson!({"$set": {}}),
            doc! {"_id": id, "a": 1},
        ),
        (
            doc! {"$or": [{"a": 1}, {"b": 1}]},
            bson!({"$set": {"c": 1}}),
            doc! {"_id": id, "c": 1},
        ),
        (
            doc! {"$or": [{"a": 1}]},
            bson!({"$unset": {"x": 1}}),
            doc! {"_id": id, "a": 1},
        ),
        (doc! {"_id": 7, "a": 1}, bson!({"x": 1}), doc! {"_id": 7, "x": 1}),
        (doc! {"a": 1}, bson!({"x": 1, "_id": 8}), doc! {"_id": 8, "x": 1}),
        (
            doc! {"a": 1},
            bson!([{"$set": {"b": "$a"}}]),
            doc! {"_id": id, "a": 1, "b": 1},
        ),
        (
            doc! {"a": {"$not": {"$eq": 1}}},
            bson!({"$push": {"l": 1}}),
            doc! {"_id": id, "l": [1]},
        ),
    ];
    for (filter, update, expected) in cases {
        let made = upsert(filter.clone(), update.clone()).unwrap_or_else(|error| panic!("{filter} {update}: {error}"));
        assert_eq!(format!("{made:?}"), format!("{expected:?}"), "{filter} {update}");
    }
    let code = |filter, update: Bson| upsert(filter, update).unwrap_err().code();
    assert_eq!(
        code(doc! {"$and": [{"a": 1}, {"a": 2}]}, bson!({"$set": {}})),
        Some(ErrorCode::NotSingleValueField)
    );
    assert_eq!(
        code(doc! {"a": {}, "a.b": 2}, bson!({"$set": {}})),
        Some(ErrorCode::NotSingleValueField)
    );
    assert_eq!(
        code(doc! {"_id": 1}, bson!({"$set": {"_id": 2}})),
        Some(ErrorCode::ImmutableField)
    );
    assert_eq!(
        code(doc! {"_id": 1}, bson!({"_id": 2})),
        Some(ErrorCode::ImmutableField)
    );
    assert_eq!(
        code(doc! {}, bson!({"$set": {"_id": [1]}})),
        Some(ErrorCode::InvalidIdField)
    );
    assert_eq!(
        code(doc! {"a": 1}, bson!({"$set": {"a.b": 1}})),
        Some(ErrorCode::PathNotViable)
    );
    assert_eq!(
        code(doc! {"a": 1}, bson!({"$set": {"b.$": 1}})),
        Some(ErrorCode::BadValue)
    );
}
