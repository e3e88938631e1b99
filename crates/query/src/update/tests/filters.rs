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
