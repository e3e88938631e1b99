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
fn operators_write_no_field_at_the_top_that_begins_with_a_dollar() {
    let refused = [
        doc! {"$set": {"$x": 2}},
        doc! {"$set": {"$new": 1}},
        doc! {"$set": {"$new.a": 1}},
        doc! {"$inc": {"$x": 1}},
        doc! {"$push": {"$new": 1}},
        doc! {"$addToSet": {"$array": 9}},
        doc! {"$rename": {"a": "$new"}},
    ];
    for update in refused {
        let old = doc! {"_id": 1, "a": 1, "$x": 1, "$array": [1, 2]};
        fails(update, old, ErrorCode::DollarPrefixedFieldName, "dollar ($) prefixed");
    }
    let made = upsert(doc! {"_id": 1}, doc! {"$set": {"$new": 1}});
    assert_eq!(
        made.unwrap(),
        doc! {"_id": 1, "$new": 1},
        "a new document may have such"
    );
    keeps(doc! {"$set": {"$x": 1}}, doc! {"_id": 1, "$x": 1});
    gives(doc! {"$unset": {"$x": 1}}, doc! {"_id": 1, "$x": 1}, doc! {"_id": 1});
    gives(
        doc! {"$pop": {"$x": 1}},
        doc! {"_id": 1, "$x": [1, 2]},
        doc! {"_id": 1, "$x": [1]},
    );
    gives(
        doc! {"$rename": {"$x": "x"}},
        doc! {"_id": 1, "$x": 1},
        doc! {"_id": 1, "x": 1},
    );
    gives(
        doc! {"$set": {"a.$x": 1}},
        doc! {"_id": 1},
        doc! {"_id": 1, "a": {"$x": 1}},
    );
    gives(
        doc! {"$set": {"$x.a": 2}},
        doc! {"_id": 1, "$x": {"a": 1}},
        doc! {"_id": 1, "$x": {"a": 2}},
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

/// They changed nothing, or told of another error.
#[test]
fn elements_of_arrays_that_no_document_leads_to() {
    let value = doc! {"$each": [1]};
    for (operator, argument) in [
        ("$set", bson::Bson::from(1)),
        ("$unset", 1.into()),
        ("$inc", 1.into()),
        ("$pop", 1.into()),
        ("$pull", 1.into()),
        ("$push", value.into()),
    ] {
        for (path, document, array) in [
            ("a.b.$[]", doc! {"a": 5}, "a.b"),
            ("a.b.$[].c", doc! {"a": [1]}, "a.b"),
            ("a.b.c.$[].d", doc! {"a": 5}, "a.b.c"),
            ("a.3.$[]", doc! {"a": [1]}, "a.3"),
            ("a.b.$[]", doc! {}, "a.b"),
        ] {
            fails(
                doc! {operator: {path: argument.clone()}},
                document,
                ErrorCode::BadValue,
                &format!("The path '{array}' must exist in the document in order to apply array updates."),
            );
        }
    }
}
