//! Names with a dollar in front, and paths that lead through values without fields.

use super::*;

#[test]
fn fields_may_begin_with_a_dollar() {
    gives(
        doc! {"$set": {"a.$k": 1}},
        doc! {"_id": 1},
        doc! {"_id": 1, "a": {"$k": 1}},
    );
    gives(
        doc! {"$inc": {"$k.a": 2}},
        doc! {"_id": 1, "$k": {"a": 1}},
        doc! {"_id": 1, "$k": {"a": 3}},
    );
    gives(
        doc! {"$max": {"a.$k.b": 5}},
        doc! {"a": {"$k": {"b": 4}}},
        doc! {"a": {"$k": {"b": 5}}},
    );
    gives(doc! {"$unset": {"a.$k": ""}}, doc! {"a": {"$k": 1}}, doc! {"a": {}});
    // These are no names.
    fails(doc! {"$set": {"$": 1}}, doc! {}, ErrorCode::BadValue, "first position");
    fails(
        doc! {"$set": {"a.$[x]": 1}},
        doc! {"a": [1]},
        ErrorCode::BadValue,
        "No array filter found for identifier 'x'",
    );
}

#[test]
fn paths_through_values_without_fields() {
    let not_viable = ErrorCode::PathNotViable;
    for update in [doc! {"$pop": {"a.b": 1}}, doc! {"$pull": {"a.b": 1}}] {
        fails(
            update.clone(),
            doc! {"a": 1},
            not_viable,
            "Cannot use the part (b) of (a.b) to traverse the element ({a: 1})",
        );
        fails(
            update.clone(),
            doc! {"a": [{"b": [1]}]},
            not_viable,
            "Cannot use the part (b) of (a.b) to traverse the element ({a: [ { b: [ 1 ] } ]})",
        );
        keeps(update.clone(), doc! {"a": {}});
        keeps(update, doc! {});
    }
    fails(
        doc! {"$pullAll": {"x.a.b.c": [1]}},
        doc! {"x": {"a": "s"}},
        not_viable,
        "Cannot use the part (b) of (x.a.b.c) to traverse the element ({a: \"s\"})",
    );
    fails(
        doc! {"$rename": {"a.b": "c"}},
        doc! {"a": 1},
        not_viable,
        "(b) of (a.b)",
    );
    fails(
        doc! {"$rename": {"a.b": "c"}},
        doc! {"a": [1]},
        not_viable,
        "(b) of (a.b)",
    );
    // What takes away finds nothing to take away.
    keeps(doc! {"$unset": {"a.b": ""}}, doc! {"a": 1});
    keeps(doc! {"$unset": {"a.b": ""}}, doc! {"a": [1]});
    keeps(doc! {"$rename": {"x": "a.b"}}, doc! {"a": 1});
}
