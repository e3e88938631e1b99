use super::*;

#[test]
fn elements_and_slices() {
    gives(doc! {"$arrayElemAt": [[1, 2, 3], 0]}, 1);
    gives(doc! {"$arrayElemAt": [[1, 2, 3], -1]}, 3);
    missing(doc! {"$arrayElemAt": [[1, 2, 3], 3]}, doc! {});
    missing(doc! {"$arrayElemAt": [[1, 2, 3], -4]}, doc! {});
    gives(doc! {"$arrayElemAt": [Bson::Null, 3]}, Bson::Null);
    gives_on(
        doc! {"$arrayElemAt": ["$a", 1.0]},
        doc! {"a": [{"x": 1}, {"x": 2}]},
        doc! {"x": 2},
    );
    fails(doc! {"$arrayElemAt": ["a", 0]}, 28689);
    fails(doc! {"$arrayElemAt": [[1], "a"]}, 28690);
    fails(doc! {"$arrayElemAt": [[1], 1.5]}, 28691);
    gives(doc! {"$first": [[7, 8]]}, 7);
    gives(doc! {"$last": [[7, 8]]}, 8);
    missing(doc! {"$first": [[]]}, doc! {});
    gives(doc! {"$size": [[1, 2]]}, 2);
    gives(doc! {"$slice": [[1, 2, 3], 2]}, vec![1, 2]);
    gives(doc! {"$slice": [[1, 2, 3], -2]}, vec![2, 3]);
    gives(doc! {"$slice": [[1, 2, 3], 1, 1]}, vec![2]);
    gives(doc! {"$slice": [[1, 2, 3], -5, 2]}, vec![1, 2]);
    gives(doc! {"$slice": [[1, 2, 3], 5, 2]}, Vec::<i32>::new());
    fails(doc! {"$slice": ["a", 1]}, 28724);
    fails(doc! {"$slice": [[1], "a"]}, 28725);
    fails(doc! {"$slice": [[1], 1.5]}, 28726);
    fails(doc! {"$slice": [[1], 1, "a"]}, 28727);
    fails(doc! {"$slice": [[1], 1, 0]}, 28729);
}

#[test]
fn building() {
    gives(doc! {"$concatArrays": [[1], [2, 3], []]}, vec![1, 2, 3]);
    gives(doc! {"$concatArrays": [[1], Bson::Null]}, Bson::Null);
    gives(doc! {"$reverseArray": [[1, 2, 3]]}, vec![3, 2, 1]);
    gives(doc! {"$range": [0, 10, 3]}, vec![0, 3, 6, 9]);
    gives(doc! {"$range": [3, 0, -1]}, vec![3, 2, 1]);
    gives(doc! {"$range": [0, 3]}, vec![0, 1, 2]);
    gives(doc! {"$range": [3, 0]}, Vec::<i32>::new());
    fails(doc! {"$range": ["a", 1]}, 34443);
    fails(doc! {"$range": [0.5, 1]}, 34444);
    fails(doc! {"$range": [0, "a"]}, 34445);
    fails(doc! {"$range": [0, 1e10]}, 34446);
    fails(doc! {"$range": [0, 1, "a"]}, 34447);
    fails(doc! {"$range": [0, 1, 0]}, 34449);
    fails(doc! {"$range": [i32::MIN, i32::MAX]}, 146);
    gives(
        doc! {"$zip": {"inputs": [[1, 2], ["a"]]}},
        Bson::Array(vec![vec![Bson::from(1), "a".into()].into()]),
    );
    gives(
        doc! {"$zip": {"inputs": [[1, 2], ["a"]], "useLongestLength": true, "defaults": [0, "z"]}},
        Bson::Array(vec![
            vec![Bson::from(1), "a".into()].into(),
            vec![Bson::from(2), "z".into()].into(),
        ]),
    );
    gives(doc! {"$zip": {"inputs": [[1], Bson::Null]}}, Bson::Null);
    fails(doc! {"$zip": 1}, 34460);
    fails(doc! {"$zip": {"inputs": 1}}, 34461);
    fails(doc! {"$zip": {"inputs": []}}, 34465);
    fails(doc! {"$zip": {"inputs": [[1]], "defaults": [1]}}, 34466);
    fails(doc! {"$zip": {"inputs": [[1]], "useLongestLength": 1}}, 34463);
    fails(doc! {"$zip": {"inputs": [1]}}, 34468);
}

#[test]
fn searching() {
    gives(doc! {"$in": [2, [1, 2.0]]}, true);
    gives(doc! {"$in": ["$nothing", [Bson::Null]]}, false);
    fails(doc! {"$in": [1, 2]}, 40081);
    gives(doc! {"$indexOfArray": [[1, 2, 3, 2], 2]}, 1);
    gives(doc! {"$indexOfArray": [[1, 2, 3, 2], 2, 2]}, 3);
    gives(doc! {"$indexOfArray": [[1, 2, 3, 2], 2, 2, 3]}, -1);
    gives(doc! {"$indexOfArray": [Bson::Null, 2]}, Bson::Null);
    fails(doc! {"$indexOfArray": ["a", 2]}, 40090);
    gives(doc! {"$isArray": [[1]]}, true);
    gives(doc! {"$isArray": "a"}, false);
}

#[test]
fn the_n_family_and_sorting() {
    gives(doc! {"$firstN": {"n": 2, "input": [1, 2, 3]}}, vec![1, 2]);
    gives(doc! {"$lastN": {"n": 2, "input": [1, 2, 3]}}, vec![2, 3]);
    gives(doc! {"$minN": {"n": 2, "input": [3, Bson::Null, 1, 2]}}, vec![1, 2]);
    gives(doc! {"$maxN": {"n": 2, "input": [3, Bson::Null, 1, 2]}}, vec![3, 2]);
    fails(doc! {"$firstN": {"n": 0, "input": [1]}}, 5787908);
    fails(doc! {"$firstN": {"n": "a", "input": [1]}}, 5787902);
    fails(doc! {"$firstN": {"n": 1.5, "input": [1]}}, 5787903);
    fails(doc! {"$maxN": {"n": f64::INFINITY, "input": [1]}}, 31109);
    fails(doc! {"$firstN": {"n": 1, "input": 1}}, 5788200);
    gives(doc! {"$sortArray": {"input": [3, 1, 2], "sortBy": 1}}, vec![1, 2, 3]);
    gives(doc! {"$sortArray": {"input": [3, 1, 2], "sortBy": -1}}, vec![3, 2, 1]);
    gives(
        doc! {"$sortArray": {"input": [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 0}], "sortBy": {"a": 1, "b": -1}}},
        vec![doc! {"a": 0}, doc! {"a": 1, "b": 2}, doc! {"a": 1, "b": 1}],
    );
    gives(doc! {"$sortArray": {"input": Bson::Null, "sortBy": 1}}, Bson::Null);
    fails(doc! {"$sortArray": {"input": "a", "sortBy": 1}}, 2942504);
    fails(doc! {"$sortArray": {"input": [1]}}, 2942503);
    fails(doc! {"$sortArray": {"input": [1], "sortBy": "a"}}, 2942507);
    for bad in [0.into(), 1.5.into(), 2_i64.into(), dec("-2")] {
        fails(doc! {"$sortArray": {"input": [1], "sortBy": bad}}, 2942506);
    }
    for bad in [
        doc! {},
        doc! {"a": 2},
        doc! {"a": 1.9},
        doc! {"a": "asc"},
        doc! {"a..b": 1},
        doc! {"a": {"$meta": "textScore"}},
    ] {
        fails(doc! {"$sortArray": {"input": [1], "sortBy": bad}}, 2942505);
    }
    // Arrays and documents as a whole, null where there is no field; names may begin with `$`.
    gives_on(
        doc! {"$sortArray": {"input": "$a", "sortBy": {"x.y": 1, "$n": -1}}},
        doc! {"a": [{"x": {"y": [3, 1]}}, {"x": {"y": [2]}}, {"x": [{"y": 0}]}, 7, {"x": {"y": Bson::Null}, "$n": 1}]},
        vec![
            Bson::from(doc! {"x": {"y": Bson::Null}, "$n": 1}),
            doc! {"x": [{"y": 0}]}.into(),
            7.into(),
            doc! {"x": {"y": [2]}}.into(),
            doc! {"x": {"y": [3, 1]}}.into(),
        ],
    );
    // Numbers are positions in arrays, but in one that is an element itself.
    gives(
        doc! {"$sortArray": {"input": [{"a": [{"b": 2}]}, {"a": [{"b": 1}]}, [[]], {"a": {"0": {"b": 0}}}], "sortBy": {"a.0.b": 1}}},
        vec![
            Bson::from(vec![Bson::Array(vec![])]),
            doc! {"a": {"0": {"b": 0}}}.into(),
            doc! {"a": [{"b": 1}]}.into(),
            doc! {"a": [{"b": 2}]}.into(),
        ],
    );
}

#[test]
fn sets() {
    gives(doc! {"$setEquals": [[1, 2, 2], [2.0, 1]]}, true);
    gives(doc! {"$setEquals": [[1], [1, 2]]}, false);
    fails(doc! {"$setEquals": [[1]]}, 17045);
    fails(doc! {"$setEquals": [Bson::Null]}, 17045);
    fails_on(doc! {"$setEquals": [[1], "$a"]}, doc! {"a": 1}, 17044);
    fails(doc! {"$setEquals": ["$nothing", [1]]}, 17044);
    fails(doc! {"$setEquals": [[1], 1]}, 5887502);
    fails(doc! {"$setEquals": ["$nothing", [1], Bson::Null]}, 5887502);
    gives(doc! {"$setUnion": [[1, 2], [2, 3]]}, vec![1, 2, 3]);
    gives(doc! {"$setIntersection": [[3, 1, 2], [2, 3]]}, vec![2, 3]);
    gives(doc! {"$setDifference": [[1, 2, 2, 3], [3]]}, vec![1, 2]);
    fails(doc! {"$setDifference": [1, [3]]}, 17048);
    fails(doc! {"$setDifference": [[1], 3]}, 17049);
    gives(doc! {"$setIsSubset": [[1, 1], [1, 2]]}, true);
    fails(doc! {"$setIsSubset": [1, [1]]}, 17046);
    fails(doc! {"$setIsSubset": [[1], 1]}, 17042);
    gives(doc! {"$anyElementTrue": [[0, Bson::Null, 1]]}, true);
    gives(doc! {"$allElementsTrue": [[1, 0]]}, false);
    gives(doc! {"$allElementsTrue": [[]]}, true);
}

#[test]
fn objects() {
    gives(
        doc! {"$mergeObjects": [{"a": 1, "b": 1}, Bson::Null, {"b": 2, "c": 3}]},
        doc! {"a": 1, "b": 2, "c": 3},
    );
    gives(doc! {"$mergeObjects": []}, doc! {});
    gives_on(
        doc! {"$mergeObjects": "$a"},
        doc! {"a": [{"x": 1}, {"y": 2}]},
        doc! {"x": 1, "y": 2},
    );
    gives(
        doc! {"$objectToArray": {"a": 1, "b": [2]}},
        vec![doc! {"k": "a", "v": 1}, doc! {"k": "b", "v": [2]}],
    );
    gives(
        doc! {"$arrayToObject": [[{"k": "a", "v": 1}, {"k": "a", "v": 2}]]},
        doc! {"a": 2},
    );
    gives(
        doc! {"$arrayToObject": {"$literal": [["a", 1], ["b", 2]]}},
        doc! {"a": 1, "b": 2},
    );
    fails(
        doc! {"$arrayToObject": {"$literal": [["a", 1], {"k": "a", "v": 1}]}},
        40396,
    );
    fails(
        doc! {"$arrayToObject": {"$literal": [{"k": "a", "v": 1}, ["a", 1]]}},
        40391,
    );
    fails(doc! {"$arrayToObject": {"$literal": [[1, 1]]}}, 40395);
    fails(doc! {"$arrayToObject": {"$literal": [["a"]]}}, 40397);
    fails(doc! {"$arrayToObject": {"$literal": [{"k": "a"}]}}, 40392);
    fails(doc! {"$arrayToObject": {"$literal": [{"k": 1, "v": 1}]}}, 40394);
    fails(doc! {"$arrayToObject": {"$literal": [1]}}, 40398);
    gives_on(doc! {"$getField": "a.b"}, doc! {"a.b": 5}, 5);
    gives_on(
        doc! {"$getField": {"field": "$x", "input": {"$literal": {"$x": 1}}}},
        doc! {"x": "$x"},
        1,
    );
    missing(doc! {"$getField": {"field": "z", "input": {"a": 1}}}, doc! {});
    gives(doc! {"$getField": {"field": "z", "input": Bson::Null}}, Bson::Null);
    fails(doc! {"$getField": {"field": 1, "input": {}}}, 3041704);
    gives(
        doc! {"$setField": {"field": "a.b", "input": {"x": 1}, "value": 2}},
        doc! {"x": 1, "a.b": 2},
    );
    gives(
        doc! {"$setField": {"field": "x", "input": {"x": 1, "y": 1}, "value": "$$REMOVE"}},
        doc! {"y": 1},
    );
    gives(
        doc! {"$unsetField": {"field": "x", "input": {"x": 1, "y": 1}}},
        doc! {"y": 1},
    );
    fails(doc! {"$setField": {"field": "x", "input": 1, "value": 2}}, 4161105);
    fails(doc! {"$setField": {"field": "x", "input": {}}}, 4161103);
    fails(
        doc! {"$setField": {"field": {"$toLower": "X"}, "input": {}, "value": 1}},
        4161106,
    );
    for operator in ["$setField", "$unsetField"] {
        let mut arguments = doc! {"field": {}, "input": {}};
        if operator == "$setField" {
            arguments.insert("value", 1);
        }
        fails(doc! {operator: arguments.clone()}, 4161107);
        for field in ["\0a", "a\0b", "\0"] {
            arguments.insert("field", field);
            fails(doc! {operator: arguments.clone()}, 9534700);
        }
    }
    fails(doc! {"$getField": {"field": "x"}}, 3041703);
}

/// They compared strings byte by byte, whatever the collation was.
#[test]
fn the_greatest_and_the_least_are_those_of_the_collation() {
    let collation = bson::rawdoc! {"locale": "en", "numericOrdering": true};
    let collation = collation::Collation::parse(&collation).unwrap().unwrap();
    let context = context().with_collation(Some(Arc::new(collation)));
    for (operator, expected) in [("$maxN", "10"), ("$minN", "9")] {
        let expression = shared(&doc! {"": {operator: {"n": 1, "input": ["10", "9"]}}});
        let raw = expression.iter().next().unwrap().unwrap().1;
        let expression = Expression::parse(raw, &context).unwrap();
        let root = SharedDocument::empty();
        let evaluation = EvaluationContext::uninterrupted();
        let value = expression.evaluate_on(&root, &evaluation).unwrap();
        let found = value.as_array().unwrap().to_vec().unwrap();
        assert_eq!(found[0].as_str(), Some(expected), "{operator}");
    }
}

#[test]
fn arguments_that_are_no_documents() {
    for (name, code) in [
        ("$firstN", 5787801),
        ("$lastN", 5787801),
        ("$minN", 5787900),
        ("$maxN", 5787900),
        ("$median", 7436201),
        ("$percentile", 7436200),
    ] {
        fails(doc! {name: 5}, code);
        fails(doc! {name: [1, 2]}, code);
    }
}
