use super::*;

#[test]
fn choice() {
    gives(doc! {"$cond": [true, 1, 2]}, 1);
    gives(doc! {"$cond": {"if": "$nothing", "then": 1, "else": 2}}, 2);
    fails(doc! {"$cond": [1, 2]}, 16020);
    fails(doc! {"$cond": {"then": 1, "else": 2}}, 17080);
    fails(doc! {"$cond": {"if": 1, "else": 2}}, 17081);
    fails(doc! {"$cond": {"if": 1, "then": 2}}, 17082);
    fails(doc! {"$cond": {"if": 1, "then": 2, "else": 3, "x": 1}}, 17083);
    gives(doc! {"$ifNull": ["$nothing", Bson::Null, 3]}, 3);
    gives(doc! {"$ifNull": [1, 2]}, 1);
    missing(doc! {"$ifNull": [Bson::Null, "$nothing"]}, doc! {});
    gives(
        doc! {"$switch": {"branches": [{"case": false, "then": 1}, {"case": 1, "then": 2}], "default": 3}},
        2,
    );
    gives(
        doc! {"$switch": {"branches": [{"case": false, "then": 1}], "default": 3}},
        3,
    );
    fails(doc! {"$switch": {"branches": [{"case": false, "then": 1}]}}, 40066);
    fails(doc! {"$switch": 1}, 40060);
    fails(doc! {"$switch": {"branches": 1}}, 40061);
    fails(doc! {"$switch": {"branches": [1]}}, 40062);
    fails(doc! {"$switch": {"branches": [{"x": 1}]}}, 40063);
    fails(doc! {"$switch": {"branches": [{"then": 1}]}}, 40064);
    fails(doc! {"$switch": {"branches": [{"case": 1}]}}, 40065);
    fails(doc! {"$switch": {"x": 1}}, 40067);
    fails(doc! {"$switch": {"branches": []}}, 40068);
}

#[test]
fn variables() {
    gives(
        doc! {"$let": {"vars": {"a": 1, "b": 2}, "in": {"$add": ["$$a", "$$b"]}}},
        3,
    );
    // Bindings do not see each other, but do see what is around.
    gives(
        doc! {"$let": {"vars": {"a": 1}, "in": {"$let": {"vars": {"a": 2, "b": "$$a"}, "in": ["$$a", "$$b"]}}}},
        vec![2, 1],
    );
    gives_on(
        doc! {"$let": {"vars": {"CURRENT": "$a"}, "in": "$b"}},
        doc! {"a": {"b": 5}, "b": 1},
        5,
    );
    gives_on(
        doc! {"$let": {"vars": {"x": "$a"}, "in": "$$x.b"}},
        doc! {"a": [{"b": 1}, {"b": 2}]},
        vec![1, 2],
    );
    fails(doc! {"$let": {"vars": {"A": 1}, "in": 1}}, 9);
    fails(doc! {"$let": {"vars": {"a-b": 1}, "in": 1}}, 9);
    fails(doc! {"$let": {"vars": {"a": 1, "b": "$$a"}, "in": 1}}, 17276);
    fails(doc! {"$let": 1}, 16874);
    fails(doc! {"$let": {"x": 1}}, 16875);
    fails(doc! {"$let": {"in": 1}}, 16876);
    fails(doc! {"$let": {"vars": {}}}, 16877);
    fails(doc! {"$let": {"vars": 1, "in": 1}}, 10065);
    fails(doc! {"$let": {"vars": [1, 2], "in": 1}}, 9);
    fails(doc! {"$let": {"vars": {"a": 1}, "in": "$$a."}}, 40353);
}

#[test]
fn over_elements() {
    gives(
        doc! {"$map": {"input": [1, 2], "as": "x", "in": {"$multiply": ["$$x", 10]}}},
        vec![10, 20],
    );
    gives(doc! {"$map": {"input": [1, 2], "in": "$$this"}}, vec![1, 2]);
    gives(doc! {"$map": {"input": [1], "in": "$nothing"}}, vec![Bson::Null]);
    gives(doc! {"$map": {"input": Bson::Null, "in": 1}}, Bson::Null);
    fails(doc! {"$map": {"input": "a", "in": 1}}, 16883);
    for name in [1.into(), Bson::Null, "".into()] {
        fails(doc! {"$map": {"input": [1], "as": name.clone(), "in": 1}}, 9);
        fails(doc! {"$filter": {"input": [1], "as": name, "cond": 1}}, 9);
    }
    fails(doc! {"$map": 1}, 16878);
    fails(doc! {"$map": {"z": 1}}, 16879);
    fails(doc! {"$map": {"in": 1}}, 16880);
    fails(doc! {"$map": {"input": [1]}}, 16882);
    gives(
        doc! {"$filter": {"input": [1, 5, 3], "as": "x", "cond": {"$gt": ["$$x", 2]}}},
        vec![5, 3],
    );
    gives(
        doc! {"$filter": {"input": [1, 5, 3], "cond": {"$gt": ["$$this", 2]}, "limit": 1}},
        vec![5],
    );
    gives(doc! {"$filter": {"input": Bson::Null, "cond": 1}}, Bson::Null);
    fails(doc! {"$filter": {"input": "a", "cond": 1}}, 28651);
    fails(doc! {"$filter": 1}, 28646);
    fails(doc! {"$filter": {"cond": 1}}, 28648);
    fails(doc! {"$filter": {"input": [1]}}, 28650);
    fails(doc! {"$filter": {"input": [1], "cond": 1, "limit": 0}}, 327392);
    fails(doc! {"$filter": {"input": [1], "cond": 1, "limit": "a"}}, 327391);
    gives(
        doc! {"$reduce": {"input": [1, 2, 3], "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}},
        6,
    );
    gives(doc! {"$reduce": {"input": [], "initialValue": 7, "in": 1}}, 7);
    gives(
        doc! {"$reduce": {"input": Bson::Null, "initialValue": 7, "in": 1}},
        Bson::Null,
    );
    fails(doc! {"$reduce": {"input": 1, "initialValue": 7, "in": 1}}, 40080);
    fails(doc! {"$reduce": 1}, 40075);
    fails(doc! {"$reduce": {"initialValue": 7, "in": 1}}, 40077);
    fails(doc! {"$reduce": {"input": [], "in": 1}}, 40078);
    fails(doc! {"$reduce": {"input": [], "initialValue": 1}}, 40079);
    // Scopes inside scopes.
    gives(
        doc! {"$map": {"input": [1, 2], "as": "a", "in": {"$map": {"input": [10, 20], "as": "b", "in": {"$add": ["$$a", "$$b"]}}}}},
        Bson::Array(vec![
            vec![Bson::from(11), 21.into()].into(),
            vec![Bson::from(12), 22.into()].into(),
        ]),
    );
}

#[test]
fn results_stay_bounded() {
    // Arrays nested by computing.
    fails(
        doc! {"$reduce": {"input": {"$range": [0, 1000]}, "initialValue": [], "in": ["$$value"]}},
        15,
    );
    // Text doubled again and again.
    fails(
        doc! {"$reduce": {"input": {"$range": [0, 60]}, "initialValue": "x", "in": {"$concat": ["$$value", "$$value"]}}},
        16493,
    );
    fails(
        doc! {"$reduce": {"input": {"$range": [0, 60]}, "initialValue": [1], "in": {"$concatArrays": ["$$value", "$$value"]}}},
        146,
    );
}

#[test]
fn random_numbers_are_in_range() {
    let Some(Bson::Double(n)) = evaluate(doc! {"$rand": {}}, &doc! {}).unwrap() else {
        panic!("no double")
    };
    assert!((0.0..1.0).contains(&n));
    fails(doc! {"$rand": [1]}, 3040501);
    fails(doc! {"$rand": {"a": 1}}, 3040501);
    fails(doc! {"$rand": 1}, 10065);
    fails(doc! {"$rand": "$a"}, 10065);
}

#[test]
fn variables_of_redact_are_of_no_other_stage() {
    for name in ["$$KEEP", "$$PRUNE", "$$DESCEND"] {
        fails(name, 17276);
    }
}
