//! What each stage does.

use super::*;

#[test]
fn match_limit_skip_count() {
    let input = numbers(0..10);
    gives(
        &[doc! {"$match": {"x": 1}}, doc! {"$limit": 2}],
        &input,
        &[doc! {"_id": 1, "x": 1}, doc! {"_id": 4, "x": 1}],
    );
    gives(&[doc! {"$skip": 8_i64}], &input, &input[8..]);
    gives(&[doc! {"$skip": 20}], &input, &[]);
    gives(
        &[
            doc! {"$match": {"$expr": {"$gt": ["$_id", "$x"]}}},
            doc! {"$count": "n"},
        ],
        &input,
        &[doc! {"n": 7}],
    );
    gives(&[doc! {"$match": {"x": 9}}, doc! {"$count": "n"}], &input, &[]);
}

#[test]
fn groups() {
    let input = [
        doc! {"k": 1, "v": 10},
        doc! {"k": 1.0, "v": 20},
        doc! {"k": "a", "v": 1},
        doc! {"v": 5},
        doc! {"k": Bson::Null, "v": 6},
        doc! {"k": [1, 2]},
        doc! {"k": [1, 2.0]},
        doc! {"k": 1_i64},
    ];
    // 1, 1.0 and 1 (long) are one group under the first; missing and null are one.
    gives(
        &[doc! {"$group": {"_id": "$k", "n": {"$sum": 1}, "v": {"$sum": "$v"}, "f": {"$first": "$v"}}}],
        &input,
        &[
            doc! {"_id": 1, "n": 3, "v": 30, "f": 10},
            doc! {"_id": "a", "n": 1, "v": 1, "f": 1},
            doc! {"_id": Bson::Null, "n": 2, "v": 11, "f": 5},
            doc! {"_id": [1, 2], "n": 2, "v": 0, "f": Bson::Null},
        ],
    );
    gives(
        &[doc! {"$group": {"_id": Bson::Null, "n": {"$count": {}}}}],
        &input,
        &[doc! {"_id": Bson::Null, "n": 8}],
    );
    gives(&[doc! {"$group": {"_id": Bson::Null}}], &[], &[]);
    gives(
        &[
            doc! {"$group": {"_id": {"k": "$k", "z": "$zzz"}, "all": {"$push": "$v"}}},
            doc! {"$limit": 1},
        ],
        &input,
        &[doc! {"_id": {"k": 1}, "all": [10, 20]}],
    );
    gives(
        &[doc! {"$sortByCount": "$k"}, doc! {"$limit": 2}],
        &input,
        &[doc! {"_id": 1, "count": 3}, doc! {"_id": Bson::Null, "count": 2}],
    );
}

#[test]
fn buckets() {
    let input = numbers(0..10);
    gives(
        &[doc! {"$bucket": {"groupBy": "$_id", "boundaries": [0, 3, 7], "default": "rest"}}],
        &input,
        &[
            doc! {"_id": 0, "count": 3},
            doc! {"_id": 3, "count": 4},
            doc! {"_id": "rest", "count": 3},
        ],
    );
    gives(
        &[doc! {"$bucket": {"groupBy": "$_id", "boundaries": [0, 20], "output": {"most": {"$max": "$_id"}}}}],
        &input,
        &[doc! {"_id": 0, "most": 9}],
    );
    let code = |spec: Document| parse(&[doc! {"$bucket": spec}]).unwrap_err().code().unwrap().0;
    assert_eq!(code(doc! {"groupBy": "$x"}), 40198);
    assert_eq!(code(doc! {"groupBy": 1, "boundaries": [0, 1]}), 40202);
    assert_eq!(code(doc! {"groupBy": "$x", "boundaries": [0]}), 40192);
    assert_eq!(code(doc! {"groupBy": "$x", "boundaries": [0, "a"]}), 40193);
    assert_eq!(code(doc! {"groupBy": "$x", "boundaries": [1, 0]}), 40194);
    assert_eq!(code(doc! {"groupBy": "$x", "boundaries": [0, 5], "default": 3}), 40199);
    assert_eq!(code(doc! {"groupBy": "$x", "boundaries": [0, 5], "x": 3}), 40197);
    // The time is no constant, whatever is made of it.
    for now in [Bson::from("$$NOW"), doc! {"$year": "$$NOW"}.into()] {
        assert_eq!(
            code(doc! {"groupBy": "$x", "boundaries": [now.clone(), 3000]}),
            40191,
            "{now}"
        );
        assert_eq!(
            code(doc! {"groupBy": "$x", "boundaries": [0, 5], "default": now.clone()}),
            40195,
            "{now}"
        );
    }
}

/// In a key of one field what is missing is null; in one of several it stays missing.
#[test]
fn group_by_a_document() {
    let input = [doc! {"a": 1, "b": 1}, doc! {"b": 1}, doc! {"a": null, "b": 1}];
    let of = |id: Document| doc! {"$group": {"_id": id, "n": {"$sum": 1}}};
    gives(
        &[of(doc! {"x": "$a"})],
        &input,
        &[doc! {"_id": {"x": 1}, "n": 1}, doc! {"_id": {"x": null}, "n": 2}],
    );
    gives(&[of(doc! {"x": "$c"})], &input, &[doc! {"_id": {"x": null}, "n": 3}]);
    gives(
        &[of(doc! {"x": {"y": "$c"}})],
        &input,
        &[doc! {"_id": {"x": {}}, "n": 3}],
    );
    gives(
        &[of(doc! {"x": "$a", "b": "$b"})],
        &input,
        &[
            doc! {"_id": {"x": 1, "b": 1}, "n": 1},
            doc! {"_id": {"b": 1}, "n": 1},
            doc! {"_id": {"x": null, "b": 1}, "n": 1},
        ],
    );
}

/// `$group`, and with it `$bucket`, keeps the last of equal values, `$bucketAuto` the first.
#[test]
fn extremes_that_are_equal() {
    let input: Vec<Document> = [Bson::from(5), 5_i64.into(), 5.0.into()].map(|v| doc! {"v": v}).into();
    for operator in ["$min", "$max"] {
        let output = doc! {"r": {operator: "$v"}};
        let mut group = output.clone();
        group.insert("_id", Bson::Null);
        for (stage, expected) in [
            (doc! {"$group": group}, Bson::from(5.0)),
            (
                doc! {"$bucket": {"groupBy": "$v", "boundaries": [0, 9], "output": output.clone()}},
                5.0.into(),
            ),
            (
                doc! {"$bucketAuto": {"groupBy": "$v", "buckets": 1, "output": output}},
                5.into(),
            ),
        ] {
            assert_eq!(
                run(std::slice::from_ref(&stage), &input)[0].get("r"),
                Some(&expected),
                "{stage}"
            );
        }
    }
}

#[test]
fn sorting() {
    let input = [
        doc! {"_id": 0, "a": 2},
        doc! {"_id": 1},
        doc! {"_id": 2, "a": 1},
        doc! {"_id": 3, "a": 2},
        doc! {"_id": 4, "a": [0, 9]},
    ];
    let ids = |stages: &[Document]| {
        run(stages, &input)
            .iter()
            .map(|d| d.get_i32("_id").unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&[doc! {"$sort": {"a": 1}}]), [1, 4, 2, 0, 3]);
    assert_eq!(ids(&[doc! {"$sort": {"a": -1}}]), [4, 0, 3, 2, 1]);
    assert_eq!(ids(&[doc! {"$sort": {"a": 1, "_id": -1}}]), [1, 4, 2, 3, 0]);
    gives(
        &[doc! {"$sort": {"a": 1}}, doc! {"$skip": 1}, doc! {"$limit": 2}],
        &input,
        &[doc! {"_id": 4, "a": [0, 9]}, doc! {"_id": 2, "a": 1}],
    );
}

#[test]
fn unwinding() {
    let input = [
        doc! {"_id": 0, "a": [1, 2], "z": 1},
        doc! {"_id": 1, "a": []},
        doc! {"_id": 2, "a": Bson::Null},
        doc! {"_id": 3},
        doc! {"_id": 4, "a": "x"},
        doc! {"_id": 5, "a": [[7], {"b": 1}]},
    ];
    gives(
        &[doc! {"$unwind": "$a"}],
        &input,
        &[
            doc! {"_id": 0, "a": 1, "z": 1},
            doc! {"_id": 0, "a": 2, "z": 1},
            doc! {"_id": 4, "a": "x"},
            doc! {"_id": 5, "a": [7]},
            doc! {"_id": 5, "a": {"b": 1}},
        ],
    );
    gives(
        &[
            doc! {"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"}},
            doc! {"$limit": 6},
        ],
        &input,
        &[
            doc! {"_id": 0, "a": 1, "z": 1, "i": 0_i64},
            doc! {"_id": 0, "a": 2, "z": 1, "i": 1_i64},
            doc! {"_id": 1, "i": Bson::Null},
            doc! {"_id": 2, "a": Bson::Null, "i": Bson::Null},
            doc! {"_id": 3, "i": Bson::Null},
            doc! {"_id": 4, "a": "x", "i": Bson::Null},
        ],
    );
    gives(
        &[doc! {"$unwind": "$o.l"}],
        &[doc! {"o": {"l": [1, 2], "k": 1}}, doc! {"o": [{"l": [1]}]}],
        &[doc! {"o": {"l": 1, "k": 1}}, doc! {"o": {"l": 2, "k": 1}}],
    );
}

#[test]
fn reshaping() {
    let input = [doc! {"_id": 1, "a": {"b": 2, "c": 3}, "d": [{"e": 1, "f": 2}]}];
    gives(
        &[doc! {"$project": {"a.b": 1}}],
        &input,
        &[doc! {"_id": 1, "a": {"b": 2}}],
    );
    gives(
        &[doc! {"$project": {"_id": 0, "s": {"$add": ["$a.b", "$a.c"]}}}],
        &input,
        &[doc! {"s": 5}],
    );
    gives(
        &[doc! {"$addFields": {"a.x": "$a.b", "y": 1}}],
        &input,
        &[doc! {"_id": 1, "a": {"b": 2, "c": 3, "x": 2}, "d": [{"e": 1, "f": 2}], "y": 1}],
    );
    gives(
        &[doc! {"$set": {"d.e": 9}}, doc! {"$unset": ["a", "_id"]}],
        &input,
        &[doc! {"d": [{"e": 9, "f": 2}]}],
    );
    gives(
        &[doc! {"$unset": "d.f"}, doc! {"$project": {"a": 0}}],
        &input,
        &[doc! {"_id": 1, "d": [{"e": 1}]}],
    );
    gives(
        &[doc! {"$replaceRoot": {"newRoot": "$a"}}],
        &input,
        &[doc! {"b": 2, "c": 3}],
    );
    gives(
        &[doc! {"$replaceWith": {"$mergeObjects": ["$a", {"z": "$_id"}]}}],
        &input,
        &[doc! {"b": 2, "c": 3, "z": 1}],
    );
    gives(
        &[
            doc! {"$addFields": {"a": "$$REMOVE"}},
            doc! {"$project": {"_id": 1, "a": 1}},
        ],
        &input,
        &[doc! {"_id": 1}],
    );
}

#[test]
fn redacting() {
    let input = [doc! {"l": 1, "in": {"l": 5, "x": 1}, "all": [{"l": 1}, {"l": 9}, 3]}];
    let redact = doc! {"$redact": {"$cond": [{"$gt": ["$l", 3]}, "$$PRUNE", "$$DESCEND"]}};
    gives(&[redact], &input, &[doc! {"l": 1, "all": [{"l": 1}, 3]}]);
    gives(&[doc! {"$redact": "$$KEEP"}], &input, &input);
    gives(&[doc! {"$redact": "$$PRUNE"}], &input, &[]);
}

#[test]
fn samples() {
    let input = numbers(0..100);
    let mut found = run(&[doc! {"$sample": {"size": 10}}], &input);
    assert_eq!(found.len(), 10);
    found.sort_by_key(|d| d.get_i32("_id").unwrap());
    found.dedup();
    assert_eq!(found.len(), 10, "no document twice");
    assert_eq!(run(&[doc! {"$sample": {"size": 1000}}], &input).len(), 100);
}

#[test]
fn documents_without_a_collection() {
    let stages = [
        doc! {"$documents": [{"a": 1}, {"a": {"$add": [1, 1]}}]},
        doc! {"$match": {"a": 2}},
    ];
    assert_eq!(run(&stages, &numbers(0..3)), [doc! {"a": 2}]);
    assert_eq!(parse(&stages).unwrap().initial().unwrap().0, "$documents");
}

fn orders() -> Memory {
    let mut memory = Memory::default();
    let items = vec![
        doc! {"_id": 1, "k": "a", "n": 5},
        doc! {"_id": 2, "k": "b", "n": 7},
        doc! {"_id": 3},
        doc! {"_id": 4, "k": ["a", "z"], "n": 1},
    ];
    memory.collections.insert("items".to_owned(), items);
    memory
}

#[test]
fn lookup_by_equality() {
    let stage = doc! {"$lookup": {"from": "items", "localField": "k", "foreignField": "k", "as": "found"}};
    let input = [doc! {"k": "a"}, doc! {"k": ["b", "z"]}, doc! {}, doc! {"k": "q"}];
    let found = drain(parse(&[stage]).unwrap(), &input, &orders()).unwrap();
    let ids = |document: &Document| {
        let found = document.get_array("found").unwrap().iter();
        found
            .map(|item| item.as_document().unwrap().get_i32("_id").unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found.iter().map(ids).collect::<Vec<_>>(),
        [vec![1, 4], vec![2, 4], vec![3], vec![]]
    );
}

#[test]
fn lookup_by_pipeline() {
    let memory = orders();
    let stage = doc! {"$lookup": {
        "from": "items", "let": {"least": "$least"}, "as": "found.here",
        "pipeline": [{"$match": {"$expr": {"$gte": ["$n", "$$least"]}}}, {"$project": {"_id": 1}}],
    }};
    let input = [doc! {"least": 5}, doc! {"least": 7}];
    let found = drain(parse(&[stage]).unwrap(), &input, &memory).unwrap();
    assert_eq!(
        found[0].get_document("found").unwrap(),
        &doc! {"here": [{"_id": 1}, {"_id": 2}]}
    );
    assert_eq!(found[1].get_document("found").unwrap(), &doc! {"here": [{"_id": 2}]});
    assert_eq!(memory.opened.get(), 2);
    // Both forms together, and a pipeline that is the same for every document: opened once.
    let both = doc! {"$lookup": {
        "from": "items", "localField": "k", "foreignField": "k", "pipeline": [{"$match": {"n": {"$gt": 2}}}], "as": "f",
    }};
    let found = drain(parse(&[both]).unwrap(), &[doc! {"k": "a"}], &memory).unwrap();
    assert_eq!(found[0].get_array("f").unwrap().len(), 1);
    memory.opened.set(0);
    let same = doc! {"$lookup": {"from": "items", "pipeline": [{"$count": "n"}], "as": "f"}};
    let found = drain(parse(&[same]).unwrap(), &numbers(0..5), &memory).unwrap();
    assert_eq!(found.len(), 5);
    assert_eq!(found[4].get("f").unwrap(), &array(vec![doc! {"n": 4}]));
    assert_eq!(memory.opened.get(), 1);
}

#[test]
fn unions() {
    let stages = [
        doc! {"$unionWith": {"coll": "items", "pipeline": [{"$match": {"_id": {"$lt": 3}}}, {"$project": {"_id": 1}}]}},
    ];
    let found = drain(parse(&stages).unwrap(), &[doc! {"_id": 9}], &orders()).unwrap();
    assert_eq!(found, [doc! {"_id": 9}, doc! {"_id": 1}, doc! {"_id": 2}]);
    assert_eq!(
        parse(&stages).unwrap().foreign_collections(),
        [(None, "items".to_owned())]
    );
}

#[test]
fn stages_move() {
    let and = |stages: &[Document]| optimized(stages);
    assert_eq!(and(&[doc! {"$limit": 5}, doc! {"$limit": 3}]), [doc! {"$limit": 3_i64}]);
    assert_eq!(and(&[doc! {"$skip": 5}, doc! {"$skip": 3}]), [doc! {"$skip": 8_i64}]);
    assert_eq!(and(&[doc! {"$match": {}}]), Vec::<Document>::new());
    assert_eq!(
        and(&[doc! {"$sort": {"a": 1}}, doc! {"$limit": 3}]),
        [doc! {"$sort": {"sortKey": {"a": 1}, "limit": 3_i64}}]
    );
    let names = |stages: &[Document]| {
        let found = optimized(stages).into_iter();
        found
            .map(|stage| stage.keys().next().unwrap().clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&[doc! {"$sort": {"a": 1}}, doc! {"$match": {"b": 1}}]),
        ["$match", "$sort"]
    );
    assert_eq!(
        names(&[doc! {"$addFields": {"c": 1}}, doc! {"$match": {"b": 1}}]),
        ["$match", "$addFields"]
    );
    assert_eq!(
        names(&[doc! {"$addFields": {"b.c": 1}}, doc! {"$match": {"b": 1}}]),
        ["$addFields", "$match"]
    );
    assert_eq!(
        names(&[doc! {"$addFields": {"c": 1}}, doc! {"$match": {"b": 1, "c": 1}}]),
        ["$match", "$addFields", "$match"]
    );
    assert_eq!(
        names(&[doc! {"$unwind": "$a"}, doc! {"$match": {"b": 1}}]),
        ["$match", "$unwind"]
    );
    assert_eq!(
        names(&[doc! {"$unwind": "$a"}, doc! {"$match": {"a.x": 1}}]),
        ["$unwind", "$match"]
    );
    assert_eq!(
        names(&[doc! {"$project": {"a": 1}}, doc! {"$limit": 1}]),
        ["$limit", "$project"]
    );
    assert_eq!(
        names(&[doc! {"$limit": 1}, doc! {"$match": {"b": 1}}]),
        ["$limit", "$match"]
    );
    // All of a row become one, wherever its parts go.
    let row_behind = |first: Document| {
        let (a, b, c) = (doc! {"a": 1}, doc! {"b": 2}, doc! {"c": 3});
        names(&[first, doc! {"$match": a}, doc! {"$match": b}, doc! {"$match": c}])
    };
    assert_eq!(row_behind(doc! {"$limit": 1}), ["$limit", "$match"]);
    assert_eq!(row_behind(doc! {"$unwind": "$b"}), ["$match", "$unwind", "$match"]);
    // $expr on the whole document stays behind.
    let whole = doc! {"$match": {"$expr": {"$eq": ["$$ROOT", {}]}}};
    assert_eq!(names(&[doc! {"$addFields": {"c": 1}}, whole]), ["$addFields", "$match"]);
}

#[test]
fn pushdowns() {
    let mut pipeline = parse(&[
        doc! {"$match": {"a": 1}},
        doc! {"$sort": {"b": -1}},
        doc! {"$skip": 2},
        doc! {"$limit": 5},
        doc! {"$group": {"_id": "$c", "n": {"$sum": "$d.e"}}},
    ])
    .unwrap();
    pipeline.optimize();
    let pushdown = pipeline.take_pushdown();
    assert_eq!(Document::try_from(&pushdown.filter.unwrap().0).unwrap(), doc! {"a": 1});
    assert_eq!(
        Document::try_from(pushdown.sort.unwrap().document()).unwrap(),
        doc! {"b": -1}
    );
    assert_eq!((pushdown.skip, pushdown.limit), (2, Some(5)));
    assert_eq!(
        pushdown.dependencies.paths.into_iter().collect::<Vec<_>>(),
        ["c", "d.e"]
    );
    assert!(!pushdown.dependencies.whole_document);
    assert!(pushdown.count.is_none());
    assert_eq!(pipeline.stages().len(), 1);

    let mut count = parse(&[doc! {"$match": {"a": 1}}, doc! {"$group": {"_id": 1, "n": {"$sum": 1}}}]).unwrap();
    let pushdown = count.take_pushdown();
    let result = pushdown.count.unwrap().document(7).unwrap().unwrap();
    assert_eq!(Document::try_from(result.as_raw()).unwrap(), doc! {"_id": 1, "n": 7});

    let mut sample = parse(&[doc! {"$sample": {"size": 3}}]).unwrap();
    let pushdown = sample.take_pushdown();
    assert_eq!(pushdown.sample, Some(3));
    assert!(pushdown.dependencies.whole_document);
    // Limit, then skip more than that: nothing.
    let mut none = parse(&[doc! {"$limit": 3}, doc! {"$skip": 5}]).unwrap();
    assert_eq!(none.take_pushdown().limit, Some(0));
}

/// `$match` does not go ahead of what changes the fields it reads, a number in its path or not.
#[test]
fn a_match_stays_behind_what_changes_its_fields() {
    let input = [doc! {"a": [{"b": 1}]}, doc! {"a": [{"b": 1}, {"c": 1}]}];
    for change in [doc! {"$unset": "a.b"}, doc! {"$project": {"a.b": 0}}] {
        let stages = [change, doc! {"$match": {"a.0.b": 1}}];
        let mut pipeline = parse(&stages).unwrap();
        pipeline.optimize();
        assert_eq!(
            drain(pipeline, &input, &Memory::default()).unwrap(),
            [] as [Document; 0]
        );
    }
    // So does what stands in the way of the place of an element.
    let stages = [
        doc! {"$unwind": {"path": "$c", "includeArrayIndex": "a.x"}},
        doc! {"$match": {"a.b": {"$ne": 1}}},
    ];
    let mut pipeline = parse(&stages).unwrap();
    pipeline.optimize();
    let found = drain(pipeline, &[doc! {"a": [{"b": 1}], "c": [7]}], &Memory::default()).unwrap();
    assert_eq!(found, [doc! {"a": {"x": 0_i64}, "c": 7}]);
    // A scalar on the way becomes a document: {a: [1]} has a field a.b then, and no a.c.
    let stages = [doc! {"$addFields": {"a.b": 1}}, doc! {"$match": {"a.c": Bson::Null}}];
    let mut pipeline = parse(&stages).unwrap();
    pipeline.optimize();
    let found = drain(pipeline, &[doc! {"a": [1]}], &Memory::default()).unwrap();
    assert_eq!(found, [doc! {"a": [{"b": 1}]}]);
}

#[test]
fn redacting_knows_the_root() {
    let input = [doc! {"top": true, "child": {"top": false, "data": 1}}];
    let redact = doc! {"$redact": {"$cond": [{"$eq": ["$$ROOT.top", true]}, "$$DESCEND", "$$PRUNE"]}};
    gives(&[redact], &input, &input);
    let current = doc! {"$redact": {"$cond": [{"$eq": ["$$CURRENT.top", true]}, "$$DESCEND", "$$PRUNE"]}};
    gives(&[current], &input, &[doc! {"top": true}]);
}

/// Positions in `localField`, and what an empty array joins.
#[test]
fn lookup_by_positions_and_empty_arrays() {
    let mut memory = Memory::default();
    let foreign = vec![doc! {"k": "x"}, doc! {"k": "y"}, doc! {"k": Bson::Null}, doc! {"z": 1}];
    memory.collections.insert("f".to_owned(), foreign);
    let joined = |local: &str, document: Document| -> Vec<Bson> {
        let lookup = doc! {"$lookup": {"from": "f", "localField": local, "foreignField": "k", "as": "j"}};
        let found = drain(parse(&[lookup]).unwrap(), &[document], &memory).unwrap();
        let documents = found[0].get_array("j").unwrap().iter();
        documents
            .map(|document| {
                document
                    .as_document()
                    .unwrap()
                    .get("k")
                    .cloned()
                    .unwrap_or(Bson::Undefined)
            })
            .collect()
    };
    let (x, y): (Bson, Bson) = ("x".into(), "y".into());
    let nothing = [Bson::Null, Bson::Undefined];
    let array = doc! {"arr": ["x", "y"]};
    assert_eq!(joined("arr.0", array.clone()), std::slice::from_ref(&x));
    assert_eq!(joined("arr", array.clone()), [x.clone(), y.clone()]);
    assert_eq!(joined("arr.99", array), nothing);
    assert_eq!(joined("arr", doc! {"arr": []}), nothing);
    assert_eq!(joined("arr", doc! {}), nothing);
    assert_eq!(
        joined("arr.k", doc! {"arr": [{"k": "x"}, 1, {"k": ["y"]}]}),
        [x, y.clone()]
    );
    assert_eq!(joined("arr.0.1", doc! {"arr": [["x", "y"]]}), [y]);
}

#[test]
fn sub_pipelines_have_no_stages_that_write_or_watch() {
    for stage in ["$out", "$merge", "$changeStream"] {
        let inner = vec![doc! {stage: {}}];
        let lookup = doc! {"$lookup": {"from": "f", "pipeline": inner.clone(), "as": "j"}};
        assert_eq!(parse(&[lookup]).unwrap_err().code(), Some(ErrorCode(51047)), "{stage}");
        let union = doc! {"$unionWith": {"coll": "f", "pipeline": inner.clone()}};
        assert_eq!(parse(&[union]).unwrap_err().code(), Some(ErrorCode(31441)), "{stage}");
        let facet = doc! {"$facet": {"x": inner}};
        assert_eq!(parse(&[facet]).unwrap_err().code(), Some(ErrorCode(40600)), "{stage}");
    }
}

#[test]
fn fields_of_nothing_and_a_sample_of_a_decimal() {
    let documents: Vec<Document> = (0..5).map(|id| doc! {"_id": id}).collect();
    gives(&[doc! {"$addFields": {}}], &documents, &documents);
    let half: bson::Decimal128 = "2.7".parse().unwrap();
    assert_eq!(run(&[doc! {"$sample": {"size": half}}], &documents).len(), 3);
    for all in ["Infinity", "1E+6144", "9223372036854775808"] {
        let all: bson::Decimal128 = all.parse().unwrap();
        assert_eq!(run(&[doc! {"$sample": {"size": all}}], &documents).len(), 5);
    }
    let constant = [doc! {"$group": {"_id": {"a": {"$literal": 1}}}}];
    gives(&constant, &documents, &[doc! {"_id": {"a": 1}}]);
}

#[test]
fn a_sample_is_taken_where_it_is_written() {
    let input: Vec<_> = (0..1000).map(|n| doc! {"_id": n, "a": [1, 2]}).collect();
    let stages = [doc! {"$unwind": "$a"}, doc! {"$match": {"$sampleRate": 0.5}}];
    assert_eq!(optimized(&stages)[0].keys().next().unwrap(), "$unwind");
    let found = run(&stages, &input);
    assert!((800..1200).contains(&found.len()), "{} of 2000", found.len());
    // Of some documents one element has stayed.
    let mut ids: Vec<_> = found.iter().map(|document| document.get_i32("_id").unwrap()).collect();
    ids.dedup();
    assert!(ids.len() < found.len());
    for (rate, count) in [(0.0, 0), (1.0, 1000)] {
        assert_eq!(run(&[doc! {"$match": {"$sampleRate": rate}}], &input).len(), count);
    }
    for wrong in [Bson::from("x"), (-0.1).into(), 2.into()] {
        code(doc! {"$match": {"$sampleRate": wrong}}, 2);
    }
}

/// They were taken for a constant that is missing when the pipeline was checked.
#[test]
fn variables_of_a_lookup_are_no_constants() {
    let lookup = |variable: &str, stage: Document| {
        doc! {"$lookup": {
            "from": "items", "let": {"x": variable}, "pipeline": [stage], "as": "found",
        }}
    };
    let found = |stage: Document| {
        let input = [doc! {"n": 2, "l": ["z", "a"]}];
        let mut found = drain(parse(&[stage]).unwrap(), &input, &orders()).unwrap();
        found.remove(0).get_array("found").unwrap().clone()
    };
    let equals = doc! {"$match": {"$expr": {"$and": [{"$isArray": "$k"}, {"$setEquals": [["a", "z"], "$$x"]}]}}};
    assert_eq!(found(lookup("$l", equals)).len(), 1);
    let first = |id: Bson| doc! {"$group": {"_id": id, "r": {"$firstN": {"n": "$$x", "input": "$_id"}}}};
    let one = array(vec![doc! {"_id": Bson::Null, "r": [1, 2]}]);
    assert_eq!(Bson::from(found(lookup("$n", first(Bson::Null)))), one);
    let buckets = doc! {"$bucketAuto": {
        "groupBy": "$_id", "buckets": 1, "output": {"r": {"$lastN": {"n": "$$x", "input": "$_id"}}},
    }};
    let bucket = array(vec![doc! {"_id": {"min": 1, "max": 4}, "r": [3, 4]}]);
    assert_eq!(Bson::from(found(lookup("$n", buckets))), bucket);
    let bucket = |field: &str, value: Bson| {
        let mut bucket = doc! {"groupBy": "$n", "boundaries": [0, 5], "default": 9};
        bucket.insert(field, value);
        lookup("$n", doc! {"$bucket": bucket})
    };
    code(bucket("boundaries", vec!["$$x"].into()), 40191);
    code(bucket("default", "$$x".into()), 40195);
    let percentile = doc! {"$percentile": {"input": "$n", "p": ["$$x"], "method": "approximate"}};
    code(lookup("$n", doc! {"$group": {"_id": 1, "p": percentile}}), 7750300);
    code(
        lookup("$n", doc! {"$geoNear": {"near": "$$x", "distanceField": "d"}}),
        238,
    );
}

#[test]
fn stages_make_documents_as_deep_as_bson() {
    for (stage, levels) in [
        (doc! {"$replaceWith": {"a": "$$ROOT"}}, 1),
        (doc! {"$project": {"a.b": "$$ROOT"}}, 2),
        (doc! {"$set": {"a": "$$ROOT"}}, 1),
        (doc! {"$group": {"_id": Bson::Null, "a": {"$push": "$$ROOT"}}}, 2),
        (doc! {"$facet": {"a": []}}, 2),
        (
            doc! {"$bucketAuto": {"groupBy": "$x", "buckets": 1, "output": {"a": {"$first": "$$ROOT"}}}},
            1,
        ),
        (doc! {"$setWindowFields": {"output": {"a": {"$first": "$$ROOT"}}}}, 1),
    ] {
        let most = vec![stage.clone(); 199 / levels];
        run(&most, &[doc! {}]);
        assert_eq!(
            run_error(&[most, vec![stage.clone()]].concat(), &[doc! {}]),
            15,
            "{stage}"
        );
    }
}

/// A sort behind it by the score of a text search did not sort.
#[test]
fn unwinding_keeps_what_is_known_beside_the_fields() {
    let unwound = |unwind: Document, input: Document| {
        let known = crate::metadata::Metadata {
            text_score: Some(1.5),
            ..Default::default()
        };
        let input = shared(&input).with_metadata(Some(Arc::new(known)));
        let stages = [
            doc! {"$unwind": unwind},
            doc! {"$project": {"s": {"$meta": "textScore"}}},
        ];
        let stages = stages.map(|stage| RawDocumentBuf::try_from(&stage).unwrap());
        let pipeline = Pipeline::parse_stages(&stages, &context(), 0).unwrap();
        let mut top = pipeline.run(Box::new(IteratorSource::new(vec![input]))).unwrap();
        let (memory, evaluation) = (Memory::default(), EvaluationContext::uninterrupted());
        let mut context = StageContext {
            execution: &memory,
            evaluation: &evaluation,
        };
        let document = top.next(&mut context).unwrap().unwrap();
        document.get_f64("s").unwrap()
    };
    let indexed = || doc! {"path": "$a", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true};
    for (unwind, input) in [
        (indexed(), doc! {"a": 1}),
        (indexed(), doc! {}),
        (indexed(), doc! {"a": []}),
        (indexed(), doc! {"a": [1]}),
        (doc! {"path": "$a", "preserveNullAndEmptyArrays": true}, doc! {"a": []}),
        (doc! {"path": "$a"}, doc! {"a": 1}),
    ] {
        assert_eq!(unwound(unwind.clone(), input.clone()), 1.5, "{unwind} of {input}");
    }
}

#[test]
fn a_stage_that_no_other_goes_past() {
    let inhibit = || doc! {"$_internalInhibitOptimization": {}};
    let stages = [
        doc! {"$match": {"x": 1}},
        inhibit(),
        doc! {"$match": {"_id": {"$gt": 1}}},
        doc! {"$limit": 1_i64},
        inhibit(),
    ];
    gives(&stages, &numbers(0..9), &[doc! {"_id": 4, "x": 1}]);
    assert_eq!(optimized(&stages), stages);
    let pushdown = parse(&stages).unwrap().take_pushdown();
    assert_eq!((pushdown.filter.is_some(), pushdown.limit), (true, None));
    gives(
        &[doc! {"$facet": {"a": [inhibit(), {"$count": "n"}]}}],
        &numbers(0..2),
        &[doc! {"a": [{"n": 2}]}],
    );
}
