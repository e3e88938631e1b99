//! Which queries are of one shape.

use super::*;
use bson::{Bson, Document, doc};

fn shape(command: Document) -> QueryShape {
    QueryShape::of(&RawDocumentBuf::try_from(&command).unwrap(), "d").unwrap()
}

fn shown(command: Document) -> Document {
    Document::try_from(shape(command).document()).unwrap()
}

fn of_filter(filter: Document) -> Document {
    let shape = shown(doc! { "find": "c", "filter": filter });
    shape.get_document("filter").unwrap().clone()
}

fn of_stages(stages: Vec<Document>) -> Vec<Bson> {
    let shape = shown(doc! { "aggregate": "c", "pipeline": stages });
    shape.get_array("pipeline").unwrap().clone()
}

#[test]
fn values_become_the_names_of_their_types() {
    assert_eq!(
        shown(doc! { "find": "c", "filter": { "evil": true } }),
        doc! {
            "cmdNs": { "db": "d", "coll": "c" }, "command": "find", "filter": { "evil": { "$eq": "?bool" } },
        }
    );
    for (filter, expected) in [
        (doc! { "a": null, "$comment": "x" }, doc! { "a": { "$eq": "?null" } }),
        (
            doc! { "a": { "$in": [1, 2.5, 7_i64] } },
            doc! { "a": { "$in": "?array<?number>" } },
        ),
        (doc! { "a": { "$in": ["x", 1] } }, doc! { "a": { "$in": "?array<>" } }),
        (doc! { "a": [] }, doc! { "a": { "$eq": "[]" } }),
        (doc! { "a": { "b": 1 } }, doc! { "a": { "$eq": "?object" } }),
        (
            doc! { "a": { "$gt": 1, "$lt": "x" } },
            doc! { "$and": [{ "a": { "$gt": "?number" } }, { "a": { "$lt": "?string" } }] },
        ),
        (
            doc! { "a": { "$not": { "$regex": "^x", "$options": "i" } }, "$or": [{ "b": 1 }, { "c": 2, "d": 3 }] },
            doc! { "$and": [
                { "a": { "$not": { "$regex": "?string", "$options": "?string" } } },
                { "$or": [
                    { "b": { "$eq": "?number" } },
                    { "$and": [{ "c": { "$eq": "?number" } }, { "d": { "$eq": "?number" } }] },
                ] },
            ] },
        ),
        (
            doc! { "a": { "$elemMatch": { "b": 1, "c": { "$gt": 2 } } } },
            doc! { "a": { "$elemMatch": { "$and": [{ "b": { "$eq": "?number" } }, { "c": { "$gt": "?number" } }] } } },
        ),
        (
            doc! { "a": { "$elemMatch": { "$gt": 1, "$lt": 5 } } },
            doc! { "a": { "$elemMatch": { "$gt": "?number", "$lt": "?number" } } },
        ),
        (
            doc! { "$expr": { "$eq": ["$a", { "$literal": "$b" }] } },
            doc! { "$expr": { "$eq": ["$a", { "$literal": "?string" }] } },
        ),
    ] {
        assert_eq!(of_filter(filter.clone()), expected, "{filter}");
    }
}

#[test]
fn stages_keep_their_names_and_paths() {
    assert_eq!(
        of_stages(vec![
            doc! { "$match": { "qty": { "$lt": 5 }, "maker": { "$in": ["Acme", "Umbrella"] } } },
            doc! { "$lookup": {
                "from": "stock", "localField": "item", "foreignField": "sku", "as": "docs",
                "let": { "n": 5 }, "pipeline": [{ "$match": { "x": 1 } }, { "$limit": 3 }],
            } },
            doc! { "$sort": { "a": 1_i64, "b": -1.0 } },
            doc! { "$group": { "_id": "$maker", "n": { "$sum": 1 }, "all": { "$push": "$a" } } },
            doc! { "$project": { "a": 1, "b": false, "c": { "d": 1 }, "e": { "$add": ["$a", 7] } } },
            doc! { "$facet": { "one": [{ "$match": { "y": "x" } }] } },
            doc! { "$unwind": "$all" },
        ]),
        vec![
            Bson::from(doc! { "$match": { "$and": [
                { "qty": { "$lt": "?number" } }, { "maker": { "$in": "?array<?string>" } },
            ] } }),
            doc! { "$lookup": {
                "from": "stock", "localField": "item", "foreignField": "sku", "as": "docs",
                "let": { "n": "?number" },
                "pipeline": [{ "$match": { "x": { "$eq": "?number" } } }, { "$limit": "?number" }],
            } }
            .into(),
            doc! { "$sort": { "a": 1, "b": -1 } }.into(),
            doc! { "$group": { "_id": "$maker", "n": { "$sum": "?number" }, "all": { "$push": "$a" } } }.into(),
            doc! { "$project": { "a": true, "b": false, "c": { "d": true }, "e": { "$add": ["$a", "?number"] } } }
                .into(),
            doc! { "$facet": { "one": [{ "$match": { "y": { "$eq": "?string" } } }] } }.into(),
            doc! { "$unwind": "$all" }.into(),
        ]
    );
}

#[test]
fn what_makes_another_query_makes_another_shape() {
    let find = |more: Document| {
        let mut command = doc! { "find": "c", "filter": { "a": 1 } };
        command.extend(more);
        shape(command).hash()
    };
    let same = [
        doc! {},
        doc! { "filter": { "a": 99.5 } },
        doc! { "filter": { "a": { "$eq": 7_i64 } } },
        doc! { "hint": "a_1", "batchSize": 5, "comment": "x", "maxTimeMS": 100, "readConcern": {}, "$db": "other" },
        doc! { "sort": {}, "projection": {}, "skip": 0, "limit": 0, "singleBatch": false },
    ];
    for more in same {
        assert_eq!(find(more.clone()), find(doc! {}), "{more}");
    }
    let others = [
        doc! {},
        doc! { "filter": { "a": "x" } },
        doc! { "filter": { "b": 1 } },
        doc! { "filter": { "a": { "$gt": 1 } } },
        doc! { "filter": { "a": { "$in": [1] } } },
        doc! { "sort": { "a": 1 } },
        doc! { "sort": { "a": -1 } },
        doc! { "projection": { "a": 1 } },
        doc! { "projection": { "a": 0 } },
        doc! { "limit": 1 },
        doc! { "skip": 1 },
        doc! { "limit": 1, "singleBatch": true },
        doc! { "collation": { "locale": "de" } },
        doc! { "let": { "x": 1 } },
    ];
    let hashes: Vec<ShapeHash> = others.iter().map(|more| find(more.clone())).collect();
    for (number, hash) in hashes.iter().enumerate() {
        assert!(!hashes[number + 1..].contains(hash), "{}", others[number]);
    }
    let of = |command: Document, database: &str| {
        QueryShape::of(&RawDocumentBuf::try_from(&command).unwrap(), database).map(|shape| shape.hash())
    };
    let query = doc! { "find": "c", "filter": { "a": 1 } };
    assert_ne!(of(query.clone(), "e"), of(query.clone(), "d"));
    assert_ne!(of(doc! { "find": "e", "filter": { "a": 1 } }, "d"), of(query, "d"));
    assert_ne!(
        of(doc! { "distinct": "c", "key": "a" }, "d"),
        of(doc! { "distinct": "c", "key": "b" }, "d")
    );
    assert_eq!(of(doc! { "count": "c" }, "d"), None);
    assert_eq!(of(doc! {}, "d"), None);
}

/// The parsers of commands take the last of several: a query gets no other shape by what is not run.
#[test]
fn the_last_of_repeated_fields_counts() {
    let repeated = |first: Document, last: Document| {
        let mut bytes = RawDocumentBuf::try_from(&first).unwrap().into_bytes();
        let last = RawDocumentBuf::try_from(&last).unwrap();
        bytes.pop();
        bytes.extend_from_slice(&last.as_bytes()[4..]);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        QueryShape::of(&RawDocumentBuf::from_bytes(bytes).unwrap(), "d").unwrap()
    };
    let filter = doc! { "a": 1 };
    let expected = shape(doc! { "find": "c", "filter": filter.clone() });
    let other = doc! { "find": "c", "filter": { "b": 1 } };
    assert_eq!(repeated(other.clone(), doc! { "filter": filter.clone() }), expected);
    assert_eq!(
        repeated(
            doc! { "find": "c", "filter": filter.clone(), "sort": { "a": 1 } },
            doc! { "sort": null }
        ),
        expected
    );
    let pipeline = |stages: [Document; 1]| doc! { "aggregate": "c", "pipeline": stages.to_vec() };
    let (first, last) = ([doc! { "$limit": 1 }], [doc! { "$match": { "a": 1 } }]);
    assert_eq!(
        repeated(pipeline(first), doc! { "pipeline": last.to_vec() }),
        shape(pipeline(last))
    );
    let distinct = doc! { "distinct": "c", "key": "a", "query": filter };
    assert_eq!(repeated(distinct.clone(), doc! { "query": null }), shape(distinct));
}

/// What a client's driver adds, or writes for nothing, makes no other query.
#[test]
fn what_is_empty_is_as_what_is_not_there() {
    let find = doc! { "find": "c" };
    let distinct = doc! { "distinct": "c", "key": "a" };
    let pipeline = [doc! { "$lookup": { "from": "d", "pipeline": [], "as": "x" } }].to_vec();
    let aggregate = doc! { "aggregate": "c", "pipeline": pipeline };
    let nothing = || doc! { "let": {}, "collation": {} };
    let null = || doc! { "let": null, "collation": null };
    for (command, more) in [
        (&find, doc! { "filter": {} }),
        (&find, doc! { "filter": { "$comment": "x" } }),
        (
            &find,
            doc! { "sort": null, "projection": null, "min": null, "max": null },
        ),
        (&find, doc! { "sort": {}, "projection": {}, "min": {}, "max": {} }),
        (&find, nothing()),
        (&find, null()),
        (&distinct, doc! { "query": {} }),
        (&distinct, doc! { "query": null, "collation": null }),
        (&aggregate, nothing()),
        (&aggregate, null()),
    ] {
        let mut with_more = command.clone();
        with_more.extend(more);
        assert_eq!(
            shape(with_more.clone()).hash(),
            shape(command.clone()).hash(),
            "{with_more}"
        );
    }
    let mut with_let = aggregate.clone();
    let lookup = doc! { "from": "d", "let": {}, "pipeline": [], "as": "x" };
    with_let.insert("pipeline", vec![doc! { "$lookup": lookup }]);
    assert_eq!(shape(with_let).hash(), shape(aggregate).hash());
    assert_ne!(shape(doc! { "find": "c", "filter": { "a": 1 } }), shape(find));
}

/// Names, directions, units and the words that stages know are no values.
#[test]
fn the_words_of_stages_stay() {
    let accumulated = |accumulator: Document| doc! { "$group": { "_id": null, "x": accumulator } };
    let set = |expression: Document| doc! { "$set": { "x": expression } };
    let densify = |range: Document| doc! { "$densify": { "field": "a", "range": range } };
    let fill = |method: &str| doc! { "$fill": { "sortBy": { "t": 1 }, "output": { "x": { "method": method } } } };
    let window =
        |function: Document| doc! { "$setWindowFields": { "sortBy": { "t": 1 }, "output": { "x": function } } };
    let over = |window_of: Document| window(doc! { "$sum": "$a", "window": window_of });
    let mut pairs = vec![
        (doc! { "$unionWith": "a" }, doc! { "$unionWith": "b" }),
        (doc! { "$merge": "a" }, doc! { "$merge": "b" }),
        (fill("locf"), fill("linear")),
        (
            densify(doc! { "step": 1, "unit": "hour", "bounds": "full" }),
            densify(doc! { "step": 1, "unit": "day", "bounds": "full" }),
        ),
        (
            densify(doc! { "step": 1, "bounds": "full" }),
            densify(doc! { "step": 1, "bounds": "partition" }),
        ),
        (
            over(doc! { "documents": ["unbounded", "current"] }),
            over(doc! { "documents": ["current", "unbounded"] }),
        ),
        (
            over(doc! { "range": [-1, "current"], "unit": "hour" }),
            over(doc! { "range": [-1, "current"], "unit": "day" }),
        ),
        (
            window(doc! { "$derivative": { "input": "$a", "unit": "hour" } }),
            window(doc! { "$derivative": { "input": "$a", "unit": "day" } }),
        ),
        (
            window(doc! { "$top": { "output": "$a", "sortBy": { "b": 1 } } }),
            window(doc! { "$top": { "output": "$a", "sortBy": { "b": -1 } } }),
        ),
        (
            set(doc! { "$sortArray": { "input": "$a", "sortBy": 1 } }),
            set(doc! { "$sortArray": { "input": "$a", "sortBy": -1 } }),
        ),
        (
            set(doc! { "$sortArray": { "input": "$a", "sortBy": { "b": 1 } } }),
            set(doc! { "$sortArray": { "input": "$a", "sortBy": { "b": -1 } } }),
        ),
        (
            set(doc! { "$setField": { "field": "a", "input": "$$ROOT", "value": 1 } }),
            set(doc! { "$setField": { "field": "b", "input": "$$ROOT", "value": 1 } }),
        ),
        (
            doc! { "$changeStream": { "fullDocument": "required" } },
            doc! { "$changeStream": { "fullDocument": "updateLookup" } },
        ),
    ];
    for name in ["$top", "$topN", "$bottom", "$bottomN"] {
        let of = |direction: i32| accumulated(doc! { name: { "n": 1, "output": "$a", "sortBy": { "b": direction } } });
        pairs.push((of(1), of(-1)));
    }
    for (one, other) in pairs {
        assert_ne!(of_stages(vec![one.clone()]), of_stages(vec![other]), "{one}");
    }
    // Values are none of them.
    for (one, other) in [
        (
            accumulated(doc! { "$topN": { "n": 1, "output": "x", "sortBy": { "b": 1_i64 } } }),
            accumulated(doc! { "$topN": { "n": 5, "output": "y", "sortBy": { "b": 1.0 } } }),
        ),
        (
            densify(doc! { "step": 1, "bounds": [1, 5] }),
            densify(doc! { "step": 2, "bounds": [3, 9] }),
        ),
        (
            over(doc! { "documents": [-1, "current"] }),
            over(doc! { "documents": [-5, "current"] }),
        ),
        (
            set(doc! { "$setField": { "field": "a", "input": "$$ROOT", "value": 1 } }),
            set(doc! { "$setField": { "field": "a", "input": "$$ROOT", "value": 2 } }),
        ),
        (
            doc! { "$fill": { "output": { "x": { "value": "none" } } } },
            doc! { "$fill": { "output": { "x": { "value": "?" } } } },
        ),
    ] {
        assert_eq!(of_stages(vec![one.clone()]), of_stages(vec![other]), "{one}");
    }
}

/// Settings are kept by the hash: a server that computes another one would lose them.
#[test]
fn hashes_stay_the_same_for_ever() {
    let hash = shape(doc! { "find": "c", "filter": { "a": 1, "b": { "$in": ["x"] } }, "sort": { "c": -1 } }).hash();
    assert_eq!(
        hash.to_string(),
        "4658556F53E47242CCB012C7E7FE80994FAE070983C8C50B381D160BE2312FBC"
    );
    let of_pipeline = shape(doc! {
        "aggregate": "c",
        "pipeline": [{ "$match": { "a": 1 } }, { "$group": { "_id": "$b", "n": { "$sum": 1 } } }],
    });
    assert_eq!(
        of_pipeline.hash().to_string(),
        "29C35B16D95BC3F53A0A004C8E4B87A7596EB29EDC09197D1C6FFBCE2BAA3D78"
    );
    assert_eq!(ShapeHash::parse(&hash.to_string()), Some(hash));
    assert_eq!(ShapeHash::parse(&hash.to_string().to_lowercase()), Some(hash));
    for wrong in ["", "AB", &"G".repeat(64), &"A".repeat(63), &"é".repeat(32)] {
        assert_eq!(ShapeHash::parse(wrong), None, "{wrong}");
    }
}
