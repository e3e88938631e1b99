//! Indexed paths that lead through arrays.

use super::cases::{empty, ids};
use super::fixture::{Fixture, ns};
use crate::plan::FindRequest;
use bson::{RawDocumentBuf, doc, rawdoc};

/// A number in a path is a position for the keys and a position or a name for the matcher: where the two disagree, an
/// index must not be believed.
#[test]
fn positions_in_indexed_paths_agree_with_a_scan() {
    let cases = [
        (
            "a.0",
            rawdoc! { "_id": 1, "a": [0, { "b": 0 }] },
            rawdoc! { "a.0": bson::RawBson::Null },
        ),
        (
            "b.0",
            rawdoc! { "_id": 1, "b": [[4, 0], [1]] },
            rawdoc! { "b.0": { "$elemMatch": { "$gte": 1 } } },
        ),
        (
            "a.0.b",
            rawdoc! { "_id": 1, "a": [4, 3] },
            rawdoc! { "a.0.b": { "$ne": bson::RawBson::Null } },
        ),
        (
            "a.0.b",
            rawdoc! { "_id": 1, "a": [{ "b": 1 }] },
            rawdoc! { "a.0.b": bson::RawBson::Null },
        ),
        (
            "a.0.b",
            rawdoc! { "_id": 1, "a": [[{ "b": "a" }]] },
            rawdoc! { "a.0.b": "a" },
        ),
        (
            "b.0",
            rawdoc! { "_id": 1, "b": [{ "y": 1 }] },
            rawdoc! { "b.0": bson::RawBson::Null },
        ),
        (
            "b.0",
            rawdoc! { "_id": 1, "b": [1, { "y": 2 }] },
            rawdoc! { "b.0": { "$in": [bson::RawBson::Null, bson::RawBson::Int32(7)] } },
        ),
        (
            "b.0",
            rawdoc! { "_id": 1, "b": [{}] },
            rawdoc! { "b.0": { "$gte": bson::RawBson::Null } },
        ),
        ("a.0.1", rawdoc! { "_id": 1, "a": [[0, [5]]] }, rawdoc! { "a.0.1": 5 }),
        ("a.0", rawdoc! { "_id": 1, "a": [7] }, rawdoc! { "a.0": 7 }),
        // An array in an array is one key as a whole.
        (
            "a",
            rawdoc! { "_id": 1, "a": [[1, 2]] },
            rawdoc! { "a": { "$elemMatch": { "$elemMatch": { "$gt": 1 } } } },
        ),
        (
            "a",
            rawdoc! { "_id": 1, "a": [[1, 2], 3] },
            rawdoc! { "a": { "$elemMatch": { "$size": 2 } } },
        ),
    ];
    let natural = rawdoc! { "$natural": 1 };
    for (path, document, filter) in cases {
        let fixture = Fixture::new(1);
        fixture.create("c", empty());
        fixture.insert("c", &document).expect("inserted");
        // Another document makes the index one with arrays.
        fixture
            .insert("c", &rawdoc! { "_id": 2, "a": [4, 3], "b": [[9]] })
            .expect("inserted");
        let key = RawDocumentBuf::try_from(&doc! { path: 1 }).expect("a key");
        fixture.index("c", key.clone(), empty()).expect("indexed");
        let request = FindRequest::new(ns("c"), &filter);
        let by_scan = FindRequest {
            hint: Some(crate::plan::Hint::Key(&natural)),
            ..request.clone()
        };
        let by_index = FindRequest {
            hint: Some(crate::plan::Hint::Key(&key)),
            ..request.clone()
        };
        let wanted = sorted(ids(&fixture, &by_scan));
        assert_eq!(sorted(ids(&fixture, &request)), wanted, "{path}: {filter:?}");
        assert_eq!(sorted(ids(&fixture, &by_index)), wanted, "{path}: {filter:?}");
    }
}

/// An array without documents on the way leads nowhere: a sparse index has no key for that, and "not null" is true of
/// it.
#[test]
fn not_null_below_a_path_is_no_reason_for_a_sparse_index() {
    let fixture = Fixture::new(1);
    fixture.create("c", empty());
    fixture
        .index("c", rawdoc! { "a.b": 1, "c": 1 }, rawdoc! { "sparse": true })
        .expect("indexed");
    let document = rawdoc! { "_id": 1, "a": ["A", [[]]] };
    fixture.insert("c", &document).expect("inserted");
    let filter = rawdoc! {
        "a": { "$elemMatch": { "b": bson::RawBson::Null } },
        "a.b": { "$nin": [bson::RawBson::Null] }
    };
    assert_eq!(ids(&fixture, &FindRequest::new(ns("c"), &filter)), [1]);
}

fn sorted(mut ids: Vec<i32>) -> Vec<i32> {
    ids.sort_unstable();
    ids
}
