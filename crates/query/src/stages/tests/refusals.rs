//! What cannot be parsed, with MongoDB's codes; and bounds.

use super::*;

#[test]
fn names() {
    code(doc! {"$nothing": 1}, 40324);
    code(doc! {"match": {}}, 40324);
    code(doc! {}, 40323);
    code(doc! {"$match": {}, "$limit": 1}, 40323);
    code(doc! {"$geoNear": {}}, 16606);
    code(doc! {"$listCatalog": {}}, 238);
    code(doc! {"$search": {}}, 31082);
    code(doc! {"$listSearchIndexes": {}}, 31082);
    let error = parse(&[doc! {"$nothing": 1}]).unwrap_err();
    assert_eq!(error.to_string(), "Unrecognized pipeline stage name: '$nothing'");
    let late = parse(&[doc! {"$limit": 1}, doc! {"$indexStats": {}}]).unwrap_err();
    assert_eq!(late.code().unwrap().0, 40602);
    assert_eq!(
        parse(&[doc! {"$currentOp": {"allUsers": true}}])
            .unwrap()
            .initial()
            .unwrap()
            .0,
        "$currentOp"
    );
}

#[test]
fn arguments() {
    code(doc! {"$match": 1}, 15959);
    code(doc! {"$project": 1}, 15969);
    code(doc! {"$project": {}}, 51272);
    code(doc! {"$addFields": 1}, 40272);
    code(doc! {"$addFields": {"a": {"x.y": 1}}}, 40183);
    code(doc! {"$group": {"_id": {"a": 1}}}, 17390);
    code(doc! {"$group": {"_id": {"a": "$b", "c": true}}}, 17390);
    code(doc! {"$unset": 1}, 31002);
    code(doc! {"$unset": []}, 31119);
    code(doc! {"$unset": [1]}, 31120);
    code(doc! {"$sort": 1}, 15973);
    code(doc! {"$sort": {}}, 15976);
    code(doc! {"$sort": {"a": 0}}, 15975);
    code(doc! {"$limit": 0}, 15958);
    code(doc! {"$limit": -1}, 5107201);
    code(doc! {"$limit": "a"}, 5107201);
    code(doc! {"$limit": 1.5}, 5107201);
    code(doc! {"$skip": -1}, 5107200);
    code(doc! {"$skip": "a"}, 5107200);
    code(doc! {"$count": 1}, 40156);
    code(doc! {"$count": ""}, 40157);
    code(doc! {"$count": "$a"}, 40158);
    code(doc! {"$count": "a.b"}, 40160);
    code(doc! {"$sample": 1}, 28745);
    code(doc! {"$sample": {"size": "a"}}, 28746);
    code(doc! {"$sample": {"size": -1}}, 28747);
    code(doc! {"$sample": {"x": 1}}, 28748);
    code(doc! {"$sample": {"size": -1, "x": 1}}, 28748);
    code(doc! {"$sample": {}}, 28749);
    code(doc! {"$replaceRoot": 1}, 40229);
    code(doc! {"$replaceRoot": {"x": 1}}, 40415);
    code(doc! {"$replaceRoot": {}}, 40414);
    code(doc! {"$sortByCount": "a"}, 40148);
    code(doc! {"$sortByCount": {"a": 1}}, 40147);
    code(doc! {"$sortByCount": 1}, 40149);
    code(doc! {"$documents": 1}, 5858203);
    code(doc! {"$_internalInhibitOptimization": 1}, 14);
    code(doc! {"$_internalInhibitOptimization": {"a": 1}}, 9);
    for (stage, wanted) in [
        ("$changeStream", 6_188_500),
        ("$collStats", 5_447_000),
        ("$indexStats", 28803),
        ("$querySettings", 7_746_800),
        ("$currentOp", 9),
        ("$listSessions", 14),
    ] {
        for argument in [Bson::Null, 1.into(), "x".into(), Bson::Array(vec![])] {
            code(doc! {stage: argument}, wanted);
        }
    }
}

#[test]
fn near() {
    let stage = |field: &str, value: Bson| {
        let mut near = doc! {"near": [0, 0], "distanceField": "d"};
        near.insert(field, value);
        doc! {"$geoNear": near}
    };
    code(stage("near", "a".into()), 5_860_401);
    code(stage("near", "$x".into()), 5_860_402);
    code(stage("minDistance", "$x".into()), 7_555_701);
    code(stage("maxDistance", "$x".into()), 7_555_702);
    code(stage("maxDistance", "x".into()), 14);
    code(stage("collation", doc! {"locale": "en"}.into()), 40227);
    code(stage("key", "$a".into()), 16410);
    code(stage("key", "a\0b".into()), 16411);
    let late = parse(&[doc! {"$limit": 1}, stage("minDistance", 0.into())]).unwrap_err();
    assert_eq!(late.code().unwrap().0, 40603);
}

#[test]
fn groups_and_unwinds() {
    code(doc! {"$group": 1}, 15947);
    code(doc! {"$group": {"n": {"$sum": 1}}}, 15955);
    code(doc! {"$group": {"_id": 1, "n": 1}}, 40234);
    code(doc! {"$group": {"_id": 1, "a.b": {"$sum": 1}}}, 40235);
    code(doc! {"$group": {"_id": 1, "$a": {"$sum": 1}}}, 40236);
    code(doc! {"$group": {"_id": 1, "a": {"$sum": 1, "$avg": 1}}}, 40238);
    code(doc! {"$group": {"_id": 1, "a": {"$foo": 1}}}, 15952);
    code(doc! {"$unwind": 1}, 15981);
    code(doc! {"$unwind": {"path": 1}}, 28808);
    code(doc! {"$unwind": {"path": "$a", "preserveNullAndEmptyArrays": 1}}, 28809);
    code(doc! {"$unwind": {"path": "$a", "includeArrayIndex": ""}}, 28810);
    code(doc! {"$unwind": {"path": "$a", "x": 1}}, 28811);
    code(doc! {"$unwind": {}}, 28812);
    code(doc! {"$unwind": ""}, 28812);
    code(doc! {"$unwind": "a"}, 28818);
    code(doc! {"$unwind": "$a\0b"}, 16419);
    let index = |path: &str, index: &str| doc! {"path": path, "includeArrayIndex": index};
    code(doc! {"$unwind": index("a", "b..c")}, 28818);
    code(doc! {"$unwind": index("$a..b", "x.")}, 40353);
    code(doc! {"$unwind": index("$a", "x\0y")}, 16411);
    let mut late = index("$a", "b..c");
    late.insert("preserveNullAndEmptyArrays", 1);
    code(doc! {"$unwind": late}, 28809);
    code(doc! {"$unwind": {"path": "$a", "includeArrayIndex": "$i"}}, 28822);
}

#[test]
fn sub_pipelines() {
    code(doc! {"$facet": 1}, 40169);
    code(doc! {"$facet": {}}, 40169);
    code(doc! {"$facet": {"a": 1}}, 40170);
    code(doc! {"$facet": {"a": [{"$facet": {"b": []}}]}}, 40600);
    code(doc! {"$facet": {"a": [{"$indexStats": {}}]}}, 40600);
    code(doc! {"$facet": {"a": [1]}}, 40171);
    code(doc! {"$facet": {"": []}}, 15998);
    for inner in ["$changeStreamSplitLargeEvent", "$listCatalog", "$queryStats"] {
        code(doc! {"$facet": {"a": [{inner: {}}]}}, 40600);
    }
    // What pipelines inside others refuse has the same code inside a facet.
    for inner in [doc! {"$out": "o"}, doc! {"$merge": {"into": "o"}}] {
        let lookup = doc! {"$lookup": {"from": "c", "pipeline": [inner.clone()], "as": "as"}};
        code(doc! {"$facet": {"a": [lookup]}}, 51047);
        let union = doc! {"$unionWith": {"coll": "c", "pipeline": [inner]}};
        code(doc! {"$facet": {"a": [union]}}, 31441);
    }
    for inner in [
        doc! {"$facet": {"b": []}},
        doc! {"$documents": []},
        doc! {"$geoNear": {}},
        doc! {"$match": {"$and": [{"$text": {"$search": "x"}}]}},
        doc! {"$unionWith": {"coll": "c", "pipeline": [{"$facet": {"b": []}}]}},
    ] {
        let lookup = doc! {"$lookup": {"from": "c", "pipeline": [inner.clone()], "as": "as"}};
        code(doc! {"$facet": {"a": [lookup]}}, 40600);
        code(
            doc! {"$facet": {"a": [{"$unionWith": {"coll": "c", "pipeline": [inner]}}]}},
            40600,
        );
    }
    for bad in [
        doc! {"from": "c"},
        doc! {"from": "c", "as": "x"},
        doc! {"from": "c", "localField": "a", "as": "x"},
        doc! {"localField": "a", "foreignField": "b", "as": "x"},
        doc! {"from": 1, "pipeline": [], "as": "x"},
        doc! {"from": "c", "pipeline": [], "as": "x", "zzz": 1},
        doc! {"from": "c", "localField": 1, "foreignField": "b", "as": "x"},
    ] {
        code(doc! {"$lookup": bad}, 9);
    }
    code(
        doc! {"$lookup": {"from": "c", "pipeline": [{"$zzz": 1}], "as": "x"}},
        40324,
    );
    code(
        doc! {"$lookup": {"from": "c", "pipeline": [{"$match": {"$expr": "$$v"}}], "as": "x"}},
        17276,
    );
    code(doc! {"$unionWith": {"zzz": 1}}, 40415);
    // Nesting is bounded.
    let mut deep = doc! {"$limit": 1};
    for _ in 0..25 {
        deep = doc! {"$unionWith": {"coll": "c", "pipeline": [deep]}};
    }
    code(deep, 232);
}

#[test]
fn bounds() {
    let stages = vec![doc! {"$skip": 1}; STAGES_MAX + 1];
    assert!(parse(&stages[..STAGES_MAX]).is_ok());
    assert_eq!(parse(&stages).unwrap_err().code().unwrap().0, 7749501);
    // 110 documents of 1 MiB do not fit into a blocking stage's 100 MiB.
    let big = "x".repeat(1 << 20);
    let input = vec![doc! {"s": big}; 110];
    let failing = |stage: Document| {
        drain(parse(&[stage]).unwrap(), &input, &Memory::default())
            .unwrap_err()
            .code()
            .unwrap()
            .0
    };
    assert_eq!(failing(doc! {"$sort": {"a": 1}}), 292);
    assert_eq!(
        failing(doc! {"$group": {"_id": Bson::Null, "all": {"$push": "$s"}}}),
        292
    );
    assert_eq!(
        run(&[doc! {"$sort": {"a": 1}}, doc! {"$limit": 3}], &input[..3]).len(),
        3
    );
    let mut top = parse(&[doc! {"$sort": {"a": 1}}, doc! {"$limit": 3}]).unwrap();
    top.optimize();
    assert_eq!(drain(top, &input, &Memory::default()).unwrap().len(), 3);
    let replace = drain(
        parse(&[doc! {"$replaceRoot": {"newRoot": "$s"}}]).unwrap(),
        &[doc! {"s": 1}],
        &Memory::default(),
    );
    assert_eq!(replace.unwrap_err().code().unwrap().0, 40228);
}
