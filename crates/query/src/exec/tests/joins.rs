//! `$lookup` by equality: an index, a hash table and a filter for each document find the same.

use super::fixture::{Fixture, ns, pick, plain, seeds};
use super::generate::{collation, document, raw};
use crate::exec::{ExecState, aggregate};
use crate::plan::AggregateRequest;
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use storage::RecordId;
use vfs::SeededRandom;

const PATHS: [&str; 9] = ["_id", "a", "b", "d", "d.x", "d.y", "d.z.w", "e", "d.0.x"];

/// The `_id`s that each document of `outer` finds, in their order, and the figures of keys and documents examined.
fn found(
    fixture: &Fixture,
    lookup: &Document,
    collation: Option<&RawDocumentBuf>,
    batch: usize,
) -> (Vec<Vec<String>>, u64, u64) {
    let mut pipeline = RawArrayBuf::new();
    pipeline.push(rawdoc! { "$lookup": raw(lookup) });
    let request = AggregateRequest {
        collation: collation.map(|collation| &**collation),
        ..AggregateRequest::new(ns("outer"), "test", &pipeline)
    };
    let op = fixture.op();
    let context = fixture.context(&op);
    let mut executor = aggregate(&context, &request).expect("planned");
    let mut results: Vec<RawDocumentBuf> = Vec::new();
    loop {
        let mut sink = super::fixture::Limited(&mut results, batch);
        if executor.next_documents(&context, &mut sink).expect("results") != ExecState::More {
            break;
        }
    }
    let ids = |result: &RawDocumentBuf| {
        let result = plain(result);
        let found = result.get_array("found").expect("an array").iter();
        found
            .map(|document| match document {
                Bson::Document(document) => document["_id"].to_string(),
                other => panic!("{other} is found"),
            })
            .collect()
    };
    let counters = op.counters();
    (
        results.iter().map(ids).collect(),
        counters.keys_examined.get(),
        counters.docs_examined.get(),
    )
}

/// A stage that changes nothing, and that no join can have found the documents for: it asks for what a plan tells.
fn by_filter_alone() -> Document {
    doc! { "$match": { "$expr": { "$ne": [{ "$meta": "recordId" }, "none"] } } }
}

fn sorted((mut found, ..): (Vec<Vec<String>>, u64, u64)) -> Vec<Vec<String>> {
    found.iter_mut().for_each(|ids| ids.sort_unstable());
    found
}

#[test]
fn an_index_and_a_table_find_what_a_filter_finds() {
    for seed in seeds(40) {
        let random = SeededRandom::new(seed);
        let path = || PATHS[pick(&random, PATHS.len() as u64) as usize];
        let (local, foreign, asked) = (path(), path(), collation(&random).map(|collation| raw(&collation)));
        let fixture = Fixture::new(seed);
        let order = [1, -1][pick(&random, 2) as usize];
        let of_index = match pick(&random, 2) {
            0 => asked.clone(),
            _ => collation(&random).map(|collation| raw(&collation)),
        };
        let options = of_index.map_or_else(RawDocumentBuf::new, |collation| rawdoc! { "collation": collation });
        fixture.create("outer", rawdoc! {});
        for (name, key) in [
            ("none", None),
            ("single", Some(raw(&doc! { foreign: order }))),
            ("compound", Some(raw(&doc! { foreign: order, "c": 1 }))),
        ] {
            fixture.create(name, rawdoc! {});
            if let Some(key) = key.filter(|_| foreign != "_id") {
                fixture.index(name, key, options.clone()).expect("indexed");
            }
        }
        let outer = 1 + pick(&random, 60) as i32;
        (0..outer).for_each(|id| drop(fixture.insert("outer", &raw(&document(&random, id))).expect("inserted")));
        for id in 0..40 {
            let document = raw(&document(&random, id));
            let into = |name| fixture.insert(name, &document).is_ok();
            // Parallel arrays, and ambiguous positions, are refused by some.
            if into("compound") && into("single") {
                assert!(into("none"), "seed {seed}");
            }
        }
        let batch = 1 + pick(&random, 30) as usize;
        let by_filter = doc! {
            "from": "none", "localField": local, "foreignField": foreign, "pipeline": [by_filter_alone()], "as": "found",
        };
        let expected = sorted(super::joins::found(&fixture, &by_filter, asked.as_ref(), batch));
        assert_eq!(expected.len(), outer as usize);
        let wanted = |from: &str| doc! { "from": from, "localField": local, "foreignField": foreign, "as": "found" };
        let story = format!("seed {seed}: {local} = {foreign} with {asked:?}, index {options:?}");
        let table = found_in(&fixture, &wanted("none"), asked.as_ref(), batch);
        assert_eq!(table, expected, "a table, {story}");
        for name in ["single", "compound"] {
            let reference = sorted(super::joins::found(
                &fixture,
                &doc! { "from": name, "localField": local, "foreignField": foreign, "pipeline": [by_filter_alone()], "as": "found" },
                asked.as_ref(),
                batch,
            ));
            assert_eq!(
                found_in(&fixture, &wanted(name), asked.as_ref(), batch),
                reference,
                "{name}, {story}"
            );
        }
    }
}

fn found_in(
    fixture: &Fixture,
    lookup: &Document,
    collation: Option<&RawDocumentBuf>,
    batch: usize,
) -> Vec<Vec<String>> {
    sorted(found(fixture, lookup, collation, batch))
}

/// 100 documents that each find two of 200, which are these records.
fn pairs() -> (Fixture, Document, Vec<RecordId>) {
    let fixture = Fixture::new(1);
    for name in ["outer", "inner"] {
        fixture.create(name, rawdoc! {});
    }
    for id in 0..100 {
        fixture
            .insert("outer", &rawdoc! { "_id": id, "k": id })
            .expect("inserted");
    }
    let inner = |id: i32| fixture.insert("inner", &rawdoc! { "_id": id, "k": id % 100, "s": -id });
    let records = (0..200).map(|id| inner(id).expect("inserted")).collect();
    let lookup = doc! { "from": "inner", "localField": "k", "foreignField": "k", "as": "found" };
    (fixture, lookup, records)
}

#[test]
fn a_collection_without_an_index_is_read_twice_whatever_the_number_of_documents() {
    let (fixture, lookup, _) = pairs();
    let (found, keys, documents) = found(&fixture, &lookup, None, 7);
    assert_eq!(found[3], ["3", "103"]);
    assert!(found.iter().all(|ids| ids.len() == 2));
    assert_eq!((keys, documents), (0, 100 + 2 * 200));
}

#[test]
fn an_index_leads_to_what_is_found_and_nothing_else() {
    let (fixture, lookup, _) = pairs();
    let key = rawdoc! { "k": -1, "s": 1 };
    fixture.index("inner", key, rawdoc! {}).expect("indexed");
    let (found_by_two, keys, documents) = found(&fixture, &lookup, None, 7);
    assert_eq!(found_by_two[3], ["103", "3"], "in the order of the index");
    assert_eq!((keys, documents), (200, 100 + 200));
    let by_id = doc! { "from": "inner", "localField": "k", "foreignField": "_id", "as": "found" };
    let (found_by_id, keys, documents) = found(&fixture, &by_id, None, 7);
    assert!(found_by_id.iter().all(|ids| ids.len() == 1));
    assert_eq!((keys, documents), (100, 100 + 100));
}

/// A cursor that rests keeps no state of the collection: the next batch of an index join sees what is there then. A
/// table stays what it was.
#[test]
fn between_two_batches_an_index_join_sees_what_was_written() {
    for (has_index, sees) in [(true, 0), (false, 2)] {
        let (fixture, lookup, records) = pairs();
        if has_index {
            fixture.index("inner", rawdoc! { "k": 1 }, rawdoc! {}).expect("indexed");
        }
        let mut pipeline = RawArrayBuf::new();
        pipeline.push(rawdoc! { "$lookup": raw(&lookup) });
        let request = AggregateRequest::new(ns("outer"), "test", &pipeline);
        let mut executor = fixture.with(|context| aggregate(context, &request).expect("planned"));
        let mut results = Vec::new();
        fixture.batch(&mut executor, 20, &mut results);
        records.into_iter().for_each(|id| fixture.delete("inner", id));
        fixture.batch(&mut executor, 100, &mut results);
        let last = plain(results.last().expect("results"));
        assert_eq!(
            last.get_array("found").expect("an array").len(),
            sees,
            "index: {has_index}"
        );
    }
}
