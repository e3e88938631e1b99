//! Updates of many fields: children are then looked up, not looked through.

use super::*;

/// Names whose order as positions and as names goes in a circle are met all the same, each once.
#[test]
fn every_one_of_many_named_fields_is_met() {
    let mut names: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    names.extend(["9", "10", "1a", "2", "20", "1b"].map(str::to_owned));
    let fields =
        |value: i32| -> bson::Document { names.iter().map(|name| (name.clone(), Bson::from(value))).collect() };
    let mut before = fields(1);
    before.insert("other", 1);
    let mut after = fields(2);
    after.insert("other", 1);
    gives(doc! {"$set": fields(2)}, before.clone(), after.clone());
    gives(doc! {"$set": {"other": 1}, "$inc": fields(1)}, before.clone(), after);
    gives(doc! {"$unset": fields(1)}, before, doc! {"other": 1});
    let nested = |value: i32| doc! {"_id": 1, "a": fields(value)};
    let paths: bson::Document = names.iter().map(|name| (format!("a.{name}"), Bson::from(2))).collect();
    gives(doc! {"$set": paths}, nested(1), nested(2));
}

#[test]
fn every_one_of_many_positions_is_met() {
    let paths = |positions: std::ops::Range<i32>| -> bson::Document {
        positions.map(|n| (format!("a.{n}"), Bson::from(n))).collect()
    };
    let before = doc! {"a": vec![-1; 40]};
    let array = |numbers: Vec<i32>| doc! {"a": numbers};
    gives(doc! {"$set": paths(0..40)}, before.clone(), array((0..40).collect()));
    let half = [vec![-1; 20], (20..60).collect()].concat();
    gives(doc! {"$set": paths(20..60)}, before, array(half));
}

/// Whatever order they come in, fields are made in the tree's.
#[test]
fn many_fields_are_made_in_order() {
    let fields =
        |numbers: &[i32]| -> bson::Document { numbers.iter().map(|n| (format!("f{n}"), (*n).into())).collect() };
    let rising: Vec<i32> = (1000..3000).collect();
    let falling: Vec<i32> = rising.iter().rev().copied().collect();
    for names in [&rising, &falling] {
        gives(doc! {"$set": fields(names)}, doc! {"_id": 1}, {
            let mut made = doc! {"_id": 1};
            made.extend(fields(&rising));
            made
        });
    }
    let nested = |prefix: &str| -> bson::Document { (0..20).map(|n| (format!("{prefix}{n}"), n.into())).collect() };
    let mut both = nested("a.f");
    both.insert("a.f7.x", 1);
    fails(
        doc! {"$set": both},
        doc! {},
        ErrorCode::ConflictingUpdateOperators,
        "'a.f7'",
    );
    let mut both = nested("a.f");
    both.insert("a.$[]", 1);
    fails(
        doc! {"$set": both},
        doc! {},
        ErrorCode::ConflictingUpdateOperators,
        "'a'",
    );
    let mut both = nested("a.f");
    both.insert("a", 1);
    fails(
        doc! {"$set": both},
        doc! {},
        ErrorCode::ConflictingUpdateOperators,
        "'a'",
    );
}

/// Each of the filters was looked for in all of them, and each of the operators that meet in an element was copied for
/// each of the others.
#[test]
fn many_array_filters_meet_in_one_element() {
    const FILTERS: i32 = 3000;
    let mut update: bson::Document = (0..FILTERS)
        .map(|n| (format!("a.$[f{n}].x{}", 1000 + n / 2), n.into()))
        .collect();
    let filters: Vec<bson::Document> = (0..FILTERS)
        .map(|n| doc! {format!("f{n}.n"): {"$mod": [2, n % 2]}})
        .collect();
    let before = doc! {"a": [{"n": 0}, {"n": 1}, {"n": 0.5}]};
    let element = |n: i32| {
        let mut element = doc! {"n": n};
        element.extend((0..FILTERS / 2).map(|x| (format!("x{}", 1000 + x), (2 * x + n).into())));
        element
    };
    let changed = apply_with(doc! {"$set": update.clone()}, &filters, &before, &NOW).unwrap();
    // Half of 1 is no whole number: it is cut to 0.
    let mut third = element(0);
    third.insert("n", 0.5);
    assert_eq!(changed, Some(doc! {"a": [element(0), element(1), third]}));
    update.insert("a.$[]", 1);
    let error = apply_with(doc! {"$set": update.clone()}, &filters, &before, &NOW).unwrap_err();
    assert!(error.to_string().contains("conflict at 'a.0'"), "{error}");
    update.insert("a.$[g]", 1);
    let error = apply_with(doc! {"$set": update}, &filters, &before, &NOW).unwrap_err();
    assert!(error.to_string().contains("identifier 'g'"), "{error}");
}

/// Fields are made in the tree's order, whichever filter they come from, and inner operators meet as the outer ones do.
#[test]
fn operators_of_several_filters_meet_in_order() {
    let filters = [doc! {"f.n": 0}, doc! {"g.n": 0}, doc! {"h.n": 1}];
    let update = doc! {"$set": {
        "a.$[f].y": 1, "a.$[f].b.y": 2, "a.$[g].b.x": 3, "a.$[g].10": 4, "a.$[h].z": 5, "a.$[g].9": 6,
        "a.$[f].e.$[].v": 7, "a.$[g].e.$[].u": 8,
    }};
    let before = doc! {"a": [{"n": 0, "e": [{}]}, {"n": 1}]};
    let changed = apply_with(update, &filters, &before, &NOW).unwrap().unwrap();
    let first = doc! {"n": 0, "e": [{"u": 8, "v": 7}], "9": 6, "10": 4, "b": {"x": 3, "y": 2}, "y": 1};
    let after = doc! {"a": [first, {"n": 1, "z": 5}]};
    assert_eq!(format!("{changed:?}"), format!("{after:?}"));
    let update = doc! {"$set": {"a.$[f].b.x": 1, "a.$[g].b.x": 2}};
    let error = apply_with(update, &filters[..2], &before, &NOW).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::ConflictingUpdateOperators), "{error}");
}

/// What leaves fields that are not there alone still refuses to go through arrays that are not there.
#[test]
fn operators_that_only_remove_insist_on_arrays() {
    for update in [doc! {"$unset": {"a.b.$[].x": 1}}, doc! {"$pull": {"a.b.$[]": 1}}] {
        fails(update.clone(), doc! {"a": {}}, ErrorCode::BadValue, "'a.b' must exist");
        fails(update, doc! {}, ErrorCode::BadValue, "'a.b' must exist");
    }
    keeps(
        doc! {"$unset": {"a.b": 1, "a.c": 1}, "$pull": {"b.c": 1}},
        doc! {"a": {}},
    );
    gives(
        doc! {"$unset": {"a": 1}, "$setOnInsert": {"b": 1}},
        doc! {"a": 1},
        doc! {},
    );
}
