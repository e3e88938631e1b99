//! Fields that move.

use super::*;

#[test]
fn rename() {
    gives(
        doc! {"$rename": {"a": "b"}},
        doc! {"a": 1, "c": 2},
        doc! {"c": 2, "b": 1},
    );
    gives(doc! {"$rename": {"a": "b"}}, doc! {"b": 5, "a": [1]}, doc! {"b": [1]});
    gives(
        doc! {"$rename": {"a.x": "b.y"}},
        doc! {"a": {"x": 1}},
        doc! {"a": {}, "b": {"y": 1}},
    );
    keeps(doc! {"$rename": {"x": "y"}}, doc! {"a": 1, "y": 2});
    fails(
        doc! {"$rename": {"a": "a"}},
        doc! {},
        ErrorCode::BadValue,
        "must differ",
    );
    fails(
        doc! {"$rename": {"a": 1}},
        doc! {},
        ErrorCode::BadValue,
        "must be a string",
    );
    fails(
        doc! {"$rename": {"a.0": "b"}},
        doc! {"a": [1]},
        ErrorCode::BadValue,
        "array",
    );
    fails(
        doc! {"$rename": {"a": "b.0"}},
        doc! {"a": 1, "b": [1]},
        ErrorCode::BadValue,
        "array",
    );
    fails(
        doc! {"$rename": {"a.$": "b"}},
        doc! {},
        ErrorCode::BadValue,
        "may not be dynamic",
    );
    fails(
        doc! {"$rename": {"_id": "b"}},
        doc! {"_id": 1},
        ErrorCode::ImmutableField,
        "'_id'",
    );
    fails(
        doc! {"$rename": {"a": "_id"}},
        doc! {"_id": 1, "a": 2},
        ErrorCode::ImmutableField,
        "'_id'",
    );
    gives(doc! {"$rename": {"a": "_id"}}, doc! {"_id": 1, "a": 1}, doc! {"_id": 1});
}
