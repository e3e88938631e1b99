//! Tables: a projection, a document, what goes out.
#![allow(clippy::unwrap_used)]

use bson::{Bson, RawDocumentBuf, bson, doc};

use super::*;
use crate::matcher::tests::{context, raw_of};

fn run(projection: &Projection, matcher: Option<&Matcher>, document: &bson::Document) -> Result<String, QueryError> {
    // What is in the buffer already must stay.
    let mut out = b"before".to_vec();
    projection.apply(
        &raw_of(document),
        matcher,
        &EvaluationContext::uninterrupted(),
        &mut out,
    )?;
    let result: bson::Document = RawDocumentBuf::from_bytes(out[6..].to_vec())
        .unwrap()
        .try_into()
        .unwrap();
    Ok(format!("{result:?}"))
}

fn find(spec: bson::Document, before: bson::Document, after: bson::Document) {
    let projection = Projection::parse(&raw_of(&spec), &context()).unwrap_or_else(|e| panic!("{spec}: {e}"));
    assert_eq!(
        run(&projection, None, &before).unwrap(),
        format!("{after:?}"),
        "{spec} on {before}"
    );
}

fn project(spec: bson::Document, before: bson::Document, after: bson::Document) {
    let projection = Projection::parse_project(&raw_of(&spec), &context()).unwrap_or_else(|e| panic!("{spec}: {e}"));
    assert_eq!(
        run(&projection, None, &before).unwrap(),
        format!("{after:?}"),
        "{spec} on {before}"
    );
}

fn add(spec: bson::Document, before: bson::Document, after: bson::Document) {
    let projection = Projection::parse_add_fields(&raw_of(&spec), &context()).unwrap_or_else(|e| panic!("{spec}: {e}"));
    assert_eq!(
        run(&projection, None, &before).unwrap(),
        format!("{after:?}"),
        "{spec} on {before}"
    );
}

fn fails(spec: bson::Document, code: i32) {
    let error = Projection::parse(&raw_of(&spec), &context()).expect_err(&spec.to_string());
    assert_eq!(error.code(), Some(ErrorCode(code)), "{spec}: {error}");
}

#[test]
fn inclusion() {
    let whole = doc! {"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "e": [{"c": 1, "x": 1}, 5, {"x": 2}, [{"c": 7}]]};
    find(doc! {}, whole.clone(), whole.clone());
    find(doc! {"a": 1}, whole.clone(), doc! {"_id": 1, "a": 1});
    find(
        doc! {"e": true, "a": 1.5, "_id": 0},
        doc! {"_id": 1, "a": 1, "e": 2},
        doc! {"a": 1, "e": 2},
    );
    find(doc! {"b.c": 1}, whole.clone(), doc! {"_id": 1, "b": {"c": 2}});
    find(doc! {"b": {"c": 1}}, whole.clone(), doc! {"_id": 1, "b": {"c": 2}});
    find(
        doc! {"e.c": 1, "_id": 0},
        whole.clone(),
        doc! {"e": [{"c": 1}, {}, [{"c": 7}]]},
    );
    find(doc! {"a.x": 1, "missing": 1}, whole.clone(), doc! {"_id": 1});
    find(doc! {"_id": 1}, whole.clone(), doc! {"_id": 1});
    find(doc! {"b.x": 1}, whole, doc! {"_id": 1, "b": {}});
}

#[test]
fn exclusion() {
    let whole = doc! {"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "e": [{"c": 1, "x": 1}, 5, [{"c": 7}]]};
    find(
        doc! {"a": 0, "b": false},
        whole.clone(),
        doc! {"_id": 1, "e": [{"c": 1, "x": 1}, 5, [{"c": 7}]]},
    );
    find(
        doc! {"_id": 0, "e": 0},
        whole.clone(),
        doc! {"a": 1, "b": {"c": 2, "d": 3}},
    );
    find(doc! {"_id": 0}, doc! {"_id": 1, "a": 1}, doc! {"a": 1});
    find(
        doc! {"b.c": 0, "e.c": 0},
        whole,
        doc! {"_id": 1, "a": 1, "b": {"d": 3}, "e": [{"x": 1}, 5, [{}]]},
    );
    find(
        doc! {"a": 0, "_id": 1},
        doc! {"_id": 1, "a": 1, "b": 1},
        doc! {"_id": 1, "b": 1},
    );
}

#[test]
fn slice() {
    let list = || doc! {"_id": 1, "a": [1, 2, 3, 4], "b": 5};
    let sliced = |items: Bson| doc! {"_id": 1, "a": items, "b": 5};
    find(doc! {"a": {"$slice": 2}}, list(), sliced(bson!([1, 2])));
    find(doc! {"a": {"$slice": -3}}, list(), sliced(bson!([2, 3, 4])));
    find(doc! {"a": {"$slice": [1, 2]}}, list(), sliced(bson!([2, 3])));
    find(doc! {"a": {"$slice": [-2, 1]}}, list(), sliced(bson!([3])));
    find(doc! {"a": {"$slice": [-9, 2]}}, list(), sliced(bson!([1, 2])));
    find(doc! {"a": {"$slice": [9, 2]}}, list(), sliced(bson!([])));
    find(
        doc! {"a": {"$slice": 1}, "b": 1},
        list(),
        doc! {"_id": 1, "a": [1], "b": 5},
    );
    find(doc! {"b": {"$slice": 1}}, list(), list());
    find(
        doc! {"a.c": {"$slice": 1}},
        doc! {"a": {"c": [1, 2]}},
        doc! {"a": {"c": [1]}},
    );
    // Beside $elemMatch it decides what becomes of the other fields, but for `_id: 1`.
    let document = || doc! {"_id": 1, "x": [1, 2], "y": [3, 4], "z": 5};
    let first = doc! {"$elemMatch": {"$gt": 1}};
    let kept = doc! {"_id": 1, "x": [2], "y": [3], "z": 5};
    find(doc! {"x": &first, "y": {"$slice": 1}}, document(), kept.clone());
    find(doc! {"y": {"$slice": 1}, "x": &first}, document(), kept);
    find(
        doc! {"_id": 0, "x": &first, "y": {"$slice": 1}},
        document(),
        doc! {"x": [2], "y": [3], "z": 5},
    );
    find(
        doc! {"_id": 1, "x": first, "y": {"$slice": 1}},
        document(),
        doc! {"_id": 1, "y": [3], "x": [2]},
    );
    fails(doc! {"a": {"$slice": "x"}}, 28667);
    fails(doc! {"a": {"$slice": [1, 0]}}, 28724);
}

#[test]
fn element_match_and_positional() {
    let document = doc! {"_id": 1, "a": [{"b": 1}, {"b": 2, "c": 1}, {"b": 2}], "d": 1};
    find(
        doc! {"a": {"$elemMatch": {"b": 2}}},
        document.clone(),
        doc! {"_id": 1, "a": [{"b": 2, "c": 1}]},
    );
    find(doc! {"a": {"$elemMatch": {"b": 9}}}, document.clone(), doc! {"_id": 1});
    find(
        doc! {"a": {"$elemMatch": {"$gt": 2}}, "_id": 0},
        doc! {"_id": 1, "a": [1, 3, 4]},
        doc! {"a": [3]},
    );
    // It comes behind what is included.
    find(
        doc! {"a": {"$elemMatch": {"b": 2}}, "d": 1},
        document.clone(),
        doc! {"_id": 1, "d": 1, "a": [{"b": 2, "c": 1}]},
    );
    find(
        doc! {"e": "$d", "a": {"$elemMatch": {"b": 1}}, "f": {"$add": ["$d", 1]}},
        document.clone(),
        doc! {"_id": 1, "e": 1, "a": [{"b": 1}], "f": 2},
    );
    let matcher = Matcher::parse(&raw_of(&doc! {"a.b": 2}), &context()).unwrap();
    let projection = Projection::parse(&raw_of(&doc! {"a.$": 1}), &context()).unwrap();
    assert!(projection.is_positional());
    let expected = format!("{:?}", doc! {"_id": 1, "a": [{"b": 2, "c": 1}]});
    assert_eq!(run(&projection, Some(&matcher), &document).unwrap(), expected);
    // The index is that of the array in the filter, whichever array is projected.
    let other = Projection::parse(&raw_of(&doc! {"d.$": 1}), &context()).unwrap();
    let both = doc! {"_id": 1, "a": [{"b": 1}, {"b": 2}], "d": [5, 6]};
    assert_eq!(
        run(&other, Some(&matcher), &both).unwrap(),
        format!("{:?}", doc! {"_id": 1, "d": [6]})
    );
    fails(doc! {"a.$": 1, "b.$": 1}, 31276);
    fails(doc! {".$": 1}, 5392900);
    fails(doc! {"a.$.b": 1}, 31394);
    fails(doc! {"b": 0, "a.$": 1}, 31395);
    fails(doc! {"a": {"$elemMatch": 1}}, 31274);
    fails(doc! {"a.b": {"$elemMatch": {"c": 1}}}, 31275);
    let matcher = Matcher::parse(&raw_of(&doc! {"a": []}), &context()).unwrap();
    let projection = Projection::parse(&raw_of(&doc! {"a.$": 1}), &context()).unwrap();
    assert_eq!(
        run(&projection, Some(&matcher), &doc! {"a": []}).unwrap_err().code(),
        Some(ErrorCode(51246))
    );
}

#[test]
fn computed_fields() {
    find(
        doc! {"x": {"$add": ["$a", 1]}, "b": 1},
        doc! {"_id": 1, "a": 1, "b": 2},
        doc! {"_id": 1, "b": 2, "x": 2},
    );
    find(
        doc! {"x": "$a", "y": "text"},
        doc! {"_id": 1, "a": 1},
        doc! {"_id": 1, "x": 1, "y": "text"},
    );
    project(doc! {"b": "$a", "a": 1}, doc! {"a": 1, "b": 2}, doc! {"a": 1, "b": 1});
    project(
        doc! {"a.x": "$b"},
        doc! {"a": [{"y": 1}, 5], "b": 2},
        doc! {"a": [{"x": 2}, {"x": 2}]},
    );
    project(
        doc! {"a": {"x": "$b", "y": 1}},
        doc! {"a": {"y": 1, "z": 1}, "b": 2},
        doc! {"a": {"y": 1, "x": 2}},
    );
    project(doc! {"a.x": "$b"}, doc! {"b": 2}, doc! {"a": {"x": 2}});
    project(doc! {"_id": "$a"}, doc! {"_id": 1, "a": 2}, doc! {"_id": 2});
    // What is known to searches and internal sorts alone is not known here.
    for never in ["randVal", "searchScore", "searchHighlights"] {
        project(doc! {"a": 1, "b": {"$meta": never}}, doc! {"a": 1}, doc! {"a": 1});
        project(doc! {"a": 0, "b": {"$meta": never}}, doc! {"a": 1}, doc! {});
    }
    // By itself `$meta` is an inclusion in a stage, and says nothing about the others in find.
    let meta = doc! {"$meta": "recordId"};
    let document = || doc! {"_id": 1, "x": 2};
    project(doc! {"m": &meta}, document(), doc! {"_id": 1});
    project(doc! {"m": {"n": &meta}}, document(), doc! {"_id": 1, "m": {}});
    project(doc! {"_id": 0, "m.n": &meta}, document(), doc! {"m": {}});
    project(doc! {"x": 0, "m": &meta}, document(), doc! {"_id": 1});
    find(doc! {"m": meta}, document(), document());
    project(doc! {"x": "$missing", "l": {"$literal": 1}}, doc! {}, doc! {"l": 1});
}

#[test]
fn add_fields() {
    add(
        doc! {"b": "$a", "z": 1},
        doc! {"_id": 1, "b": 9, "a": 2},
        doc! {"_id": 1, "b": 2, "a": 2, "z": 1},
    );
    add(doc! {"a.b": 5}, doc! {"a": {"c": 1}}, doc! {"a": {"c": 1, "b": 5}});
    add(
        doc! {"a.b": 5},
        doc! {"a": [{"b": 1}, 7]},
        doc! {"a": [{"b": 5}, {"b": 5}]},
    );
    add(doc! {"a.b": 5}, doc! {"a": 1}, doc! {"a": {"b": 5}});
    add(
        doc! {"a": {"b": 5, "c": "$x"}},
        doc! {"x": 1},
        doc! {"x": 1, "a": {"b": 5, "c": 1}},
    );
    add(doc! {"a": "$$REMOVE"}, doc! {"a": 1, "b": 2}, doc! {"b": 2});
    add(doc! {"a": true}, doc! {"a": 1}, doc! {"a": true});
}

#[test]
fn unset_leaves_out() {
    let projection = Projection::excluding(&["a", "b.c", "_id"]).unwrap();
    let whole = doc! {"_id": 1, "a": 1, "b": {"c": 1, "d": 2}};
    assert_eq!(
        run(&projection, None, &whole).unwrap(),
        format!("{:?}", doc! {"b": {"d": 2}})
    );
}

#[test]
fn refusals() {
    fails(doc! {"a": 1, "b": 0}, 31254);
    fails(doc! {"a": 0, "b": 1}, 31253);
    fails(doc! {"a": 1, "a.b": 1}, 31249);
    fails(doc! {"a.b": 1, "a": 1}, 31250);
    fails(doc! {"a": {"b": 1}, "a.b": 1}, 31250);
    fails(doc! {"a": 0, "b": {"$add": ["$c", 1]}}, 31252);
    for value in [bson!("$c"), bson!(["$c"]), Bson::Null, bson!("$$REMOVE")] {
        fails(doc! {"a": 0, "b": value.clone()}, 31310);
        fails(doc! {"a": {"b": 0, "c": value}}, 31310);
    }
    // What is wrong with a name goes before what its value asks for.
    fails(doc! {"a": 1, "": 0}, 40352);
    fails(doc! {"a": {"$add": [1, 2], "$abs": 1}}, 16410);
    fails(doc! {"a": {"$add": [1, 2], "x": 1}}, 16410);
    fails(doc! {"a": {}}, 51270);
    fails(doc! {"a.": 1}, 40353);
    fails(doc! {"a..b": 1}, 15998);
    fails(doc! {"$a": 1}, 16410);
    fails(doc! {"a": {"$meta": "scoreDetails"}}, ErrorCode::NotImplemented.0);
    fails(doc! {"a": {"$meta": "nonsense"}}, 17308);
    fails(doc! {"a": {"$meta": 5}}, 17307);
    fails(doc! {"a": {"$foo": 1}}, 31325);
    let code = |result: Result<Projection, QueryError>| result.unwrap_err().code();
    assert_eq!(
        code(Projection::parse_project(&raw_of(&doc! {}), &context())),
        Some(ErrorCode(51272))
    );
    for (spec, wanted) in [
        (doc! {"a": {"x.y": 1}}, 40183),
        (doc! {"a": 1, "a.b": 2}, 40176),
        (doc! {"a.b": 1, "a": 2}, 40176),
        (doc! {"a": {"b": 1}, "a.b": 2}, 40176),
        (doc! {"a": {"$add": [1], "b": 1}}, 40181),
        (doc! {"a": {"$add": [1], "$abs": 1}}, 40181),
        (doc! {"a": {"b": 1, "$add": [1]}}, 40181),
        (doc! {"a": {"$foo": 1}}, 168),
    ] {
        let refused = code(Projection::parse_add_fields(&raw_of(&spec), &context()));
        assert_eq!(refused, Some(ErrorCode(wanted)), "{spec}");
    }
}

#[test]
fn facts_for_the_planner() {
    let parse = |spec: bson::Document| Projection::parse(&raw_of(&spec), &context()).unwrap();
    assert_eq!(
        parse(doc! {"a": 1, "b.c": 1}).simple_inclusion(),
        Some(vec!["_id".into(), "a".into(), "b.c".into()])
    );
    assert_eq!(
        parse(doc! {"a": 1, "_id": 0}).simple_inclusion(),
        Some(vec!["a".into()])
    );
    assert_eq!(parse(doc! {"a": 0}).simple_inclusion(), None);
    assert_eq!(parse(doc! {"a": 1, "x": "$b"}).simple_inclusion(), None);
    assert!(parse(doc! {}).is_identity());
    let mut read = Dependencies::default();
    parse(doc! {"a": 1, "x": "$b.c", "_id": 0}).add_dependencies(&mut read);
    assert_eq!(read.paths.into_iter().collect::<Vec<_>>(), ["a", "b.c"]);
    assert!(!read.whole_document);
}

#[test]
fn damaged_documents_are_errors_not_panics() {
    let whole = raw_of(&doc! {"_id": 1, "a": [{"b": 1}, "x", [1]], "c": {"d": {"e": "text"}}, "z": 1.5});
    let projections: Vec<_> = [
        doc! {"a.b": 1, "c.d.e": 1},
        doc! {"a.b": 0, "c.d": 0},
        doc! {"a": {"$slice": 1}, "x": "$c.d"},
    ]
    .iter()
    .map(|spec| {
        Projection::parse_project(&raw_of(spec), &context())
            .or_else(|_| Projection::parse(&raw_of(spec), &context()))
            .unwrap()
    })
    .collect();
    for position in 4..whole.as_bytes().len() - 1 {
        for value in [0, 1, 2, 3, 4, 5, 0x0B, 0x0F, 0x7F, 0xFF] {
            let mut bytes = whole.as_bytes().to_vec();
            bytes[position] = value;
            let damaged = RawDocument::from_bytes(&bytes).unwrap();
            for projection in &projections {
                let _ = projection.apply(damaged, None, &EvaluationContext::uninterrupted(), &mut Vec::new());
            }
        }
    }
}

/// As many as are found by a table, and more than there are bits for those that were met.
#[test]
fn many_fields_are_projected_as_few_are() {
    for count in [7, 8, 9, 63, 64, 65, 200] {
        let fields = |value: fn(i32) -> Bson| (0..count).map(move |i| (format!("f{i}"), value(i)));
        let whole: bson::Document = [("_id".to_owned(), 7.into()), ("x".to_owned(), 8.into())]
            .into_iter()
            .chain(fields(|i| i.into()))
            .collect();
        let mut included = whole.clone();
        included.remove("x");
        find(fields(|_| 1.into()).collect(), whole.clone(), included);
        find(fields(|_| 0.into()).collect(), whole.clone(), doc! {"_id": 7, "x": 8});
        // The last one is new.
        let mut before = whole.clone();
        before.remove(format!("f{}", count - 1));
        let mut after = whole.clone();
        for i in 0..count {
            after.insert(format!("f{i}"), -i);
        }
        add(fields(|i| bson!({"$subtract": [0, i]})).collect(), before, after);
        let twice: bson::Document = fields(|_| 1.into()).chain([("f0.a".to_owned(), 1.into())]).collect();
        fails(twice, 31249);
    }
}
