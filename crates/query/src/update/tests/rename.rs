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

/// Whether the new name can be made is found by a look at the old one: an end of the operation there says nothing.
#[test]
fn a_rename_whose_operation_ends_loses_no_field() {
    let update = parse_with(&Bson::from(doc! {"$rename": {"x": "a.b"}}), &[]).unwrap();
    for a in [Bson::from(1), Bson::from(doc! {})] {
        // So long that each look at the old name is one at the operation.
        let document = raw_of(&doc! {"x": 5, "a": a, "long": "x".repeat(300_000)});
        let whole = update.apply(&document, &NOW, &EvaluationContext::uninterrupted());
        for look in 1..10 {
            let looks = std::cell::Cell::new(0);
            let check = || {
                looks.set(looks.get() + 1);
                match looks.get() == look {
                    true => Err(storage::Interrupted::Killed.into()),
                    false => Ok(()),
                }
            };
            match update.apply(&document, &NOW, &EvaluationContext::checked(&check)) {
                Ok(changed) => assert!(whole.as_ref().is_ok_and(|whole| *whole == changed), "look {look}"),
                Err(error) => assert!(
                    whole.is_err() || crate::evaluation::is_interruption(&error),
                    "look {look}: {error}"
                ),
            }
        }
    }
}
