//! Rows that carry documents: whatever happens to a document, its rows say what it is now.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::index_keys::{IndexWrites, Versions};
use crate::testing::{Calls, Kind, Machine, index, ns, pick, seed_of};
use crate::{IndexBatch, IndexSpec, Storage};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use engine::{Direction, FillLimits, KeyRange};
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::SeededRandom;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn clustering(name: &str, key: RawDocumentBuf, options: RawDocumentBuf) -> IndexSpec {
    let mut options = options;
    options.append(bson::raw::cstr!("clustering"), true);
    index(name, key, options)
}

fn specs() -> Vec<IndexSpec> {
    vec![
        clustering("a", rawdoc! { "a": 1 }, rawdoc! {}),
        clustering("u", rawdoc! { "u": -1 }, rawdoc! { "unique": true, "sparse": true }),
        clustering(
            "p",
            rawdoc! { "a": -1, "b": 1 },
            rawdoc! { "partialFilterExpression": { "p": true } },
        ),
        clustering("t", rawdoc! { "t": 1 }, rawdoc! {}),
        index("plain", rawdoc! { "b": 1 }, rawdoc! {}),
    ]
}

/// Entries of clustering indexes, each of which carries the document that its record is.
fn check_carried(storage: &Arc<Storage>, name: &str) -> usize {
    let collection = storage.catalog().collection(&ns(name)).unwrap();
    let view = storage.read().unwrap();
    let (mut batch, mut entries) = (IndexBatch::new(), 0);
    for index in collection.maintained() {
        let mut cursor = view.index_entries(index, KeyRange::all(), Direction::Forward).unwrap();
        while cursor.fill(&mut batch, FillLimits::default()).unwrap() {
            for at in 0..batch.len() {
                if !index.clustering() {
                    assert_eq!(batch.document(at), None, "{}", index.name());
                    continue;
                }
                let record = view.record(&collection, &batch.id(at)).unwrap();
                assert!(record.is_some(), "{}: {:?}", index.name(), batch.id(at));
                assert_eq!(batch.document_bytes(at), record, "{}", index.name());
                assert_eq!(batch.document(at), record.as_deref(), "{}", index.name());
                let values = keys::key::decode_key(batch.key(at), batch.type_bits(at), index.pattern().ordering());
                assert!(values.is_ok(), "{}: {values:?}", index.name());
                entries += 1;
            }
        }
    }
    entries
}

fn some_document(random: &SeededRandom, id: i32) -> Document {
    let number = |below| match pick(random, 3) {
        0 => Bson::Int64(pick(random, below) as i64),
        1 => Bson::Double(pick(random, below) as f64),
        _ => Bson::Int32(pick(random, below) as i32),
    };
    let mut document = doc! { "_id": id, "a": number(20), "b": number(5), "p": pick(random, 2) == 0 };
    if pick(random, 2) == 0 {
        document.insert("u", number(1000));
    }
    if pick(random, 2) == 0 {
        let elements: Vec<Bson> = (0..pick(random, 12)).map(|_| number(100)).collect();
        document.insert("t", elements);
    }
    document.insert("pad", "x".repeat(pick(random, 300) as usize));
    document
}

/// Changes that leave the keys of all indexes as they are, and others.
fn change(random: &SeededRandom, document: &Document) -> Document {
    let id = document.get_i32("_id").unwrap();
    let mut changed = document.clone();
    match pick(random, 4) {
        0 => return some_document(random, id),
        1 => drop(changed.insert("pad", "y".repeat(pick(random, 300) as usize))),
        2 => drop(changed.insert("n", pick(random, 1000) as i32)),
        // The key's bytes stay, its type does not.
        _ => drop(changed.insert("a", f64::from(document.get_i32("a").unwrap_or(7)))),
    }
    changed
}

/// Random changes over a storage that crashes now and then.
fn changes_and_crashes(kind: Kind, seed: u64) {
    let random = SeededRandom::new(seed);
    let mut machine = Machine::new(seed);
    machine.kind = kind;
    let op = machine.operation();
    let mut storage = machine.open().unwrap();
    let specs = specs();
    // Two are built over documents that are there.
    storage.create_indexes(&op, &ns("c"), &specs[..3]).unwrap();
    let mut stored = BTreeMap::<i32, (RecordId, Document)>::new();
    let mut entries = 0;
    for round in 0..6 {
        for _ in 0..150 {
            let id = pick(&random, 60) as i32;
            match stored.get(&id).cloned() {
                None => {
                    let document = some_document(&random, id);
                    if let Ok(record) = storage.put(&op, "c", raw(&document)) {
                        stored.insert(id, (record, document));
                    }
                }
                Some((record, _)) if pick(&random, 8) == 0 => {
                    storage.remove(&op, "c", record).unwrap();
                    stored.remove(&id);
                }
                Some((record, document)) => {
                    let changed = change(&random, &document);
                    if storage.replace(&op, "c", record.clone(), raw(&changed)).is_ok() {
                        stored.insert(id, (record, changed));
                    }
                }
            }
        }
        if round == 1 {
            storage.create_indexes(&op, &ns("c"), &specs).unwrap();
        }
        if round == 3 {
            storage.engine().checkpoint().unwrap();
        }
        entries += check_carried(&storage, "c");
        storage.assert_valid(&op, "c");
        storage.wait_durable(storage.last_seq()).unwrap();
        machine.fs.crash();
        machine.fs.restart();
        storage = machine.open().unwrap();
        check_carried(&storage, "c");
        storage.assert_valid(&op, "c");
        let found: Vec<Document> = storage.all("c").into_iter().map(|(_, document)| document).collect();
        let mut expected: Vec<_> = stored.values().cloned().collect();
        expected.sort_by_key(|(record, _)| record.clone());
        let expected: Vec<Document> = expected.into_iter().map(|(_, document)| document).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
    assert!(entries > 500, "{entries} entries were looked at");
}

#[test]
fn rows_carry_what_documents_are_now() {
    let seed = seed_of("TENON_SEED");
    changes_and_crashes(Kind::InMemory, seed);
    changes_and_crashes(Kind::Btree, seed ^ 1);
}

/// An update that no key shows writes the rows of clustering indexes, and no others.
#[test]
fn every_change_writes_the_rows_of_clustering_indexes() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.create_indexes(&op, &ns("c"), &specs()).unwrap();
    let guard = storage.locked(&op, "c");
    let old = rawdoc! { "_id": 1, "a": 1, "b": 1, "p": true, "u": 1, "t": [1, 2, 3], "n": 1 };
    let new = rawdoc! { "_id": 1, "a": 1, "b": 1, "p": true, "u": 1, "t": [1, 2, 3], "n": 2 };
    let mut difference = Vec::new();
    assert!(crate::diff::between(
        old.as_bytes(),
        new.as_bytes(),
        crate::diff::Detail::Compact,
        &mut difference
    ));
    let mut writes = IndexWrites::take();
    let written = |writes: &IndexWrites| {
        let mut rows = BTreeMap::<String, usize>::new();
        for row in writes.rows.iter() {
            let index = guard.maintained().nth(row.position).unwrap();
            let value = RowShape::of(index).split(row.value.unwrap()).unwrap();
            assert_eq!(value.document, Some(new.as_bytes()));
            assert_eq!(value.owner.is_some(), index.unique());
            *rows.entry(index.name().to_owned()).or_default() += 1;
        }
        rows
    };
    for difference in [None, Some(&*difference)] {
        let versions = Versions {
            old: Some(&old),
            new: Some(&new),
            difference,
        };
        writes.derive(&guard, &RecordId::Number(1), versions).unwrap();
        let expected = [("a", 1), ("p", 1), ("t", 3), ("u", 1)].map(|(name, rows)| (name.to_owned(), rows));
        assert_eq!(written(&writes), BTreeMap::from(expected));
    }
    let same = Versions {
        old: Some(&new),
        new: Some(&new),
        difference: None,
    };
    writes.derive(&guard, &RecordId::Number(1), same).unwrap();
    assert!(writes.rows.is_empty());
}

/// Documents in rows count as memory of the operation.
#[test]
fn rows_of_many_keys_are_bounded() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.create_indexes(&op, &ns("c"), &specs()).unwrap();
    let guard = storage.locked(&op, "c");
    let elements: Vec<i32> = (0..200).collect();
    let document = raw(&doc! { "_id": 1, "t": elements, "pad": "x".repeat(10 << 10) });
    let mut writes = IndexWrites::take();
    writes.rows.bytes_max = 1 << 20;
    let derived = writes.derive(&guard, &RecordId::Number(1), Versions::inserted(&document));
    assert!(
        matches!(
            derived,
            Err(StorageError::MemoryExceeded(MemoryExceeded::Operation { .. }))
        ),
        "{derived:?}"
    );
    writes.rows.bytes_max = 4 << 20;
    writes
        .derive(&guard, &RecordId::Number(1), Versions::inserted(&document))
        .unwrap();
    assert!(writes.rows.bytes() > 2 << 20);
    let rows = writes
        .rows
        .iter()
        .filter(|row| guard.maintained().nth(row.position).unwrap().name() == "t");
    let carried = rows.filter(|row| row.value.unwrap() == document.as_bytes()).count();
    assert_eq!(carried, 200);
}

/// An index that carries documents is another one than the same without.
#[test]
fn the_option_is_part_of_the_definition() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let plain = |name| index(name, rawdoc! { "a": 1 }, rawdoc! { "clustering": false });
    let carrying = |name| clustering(name, rawdoc! { "a": 1 }, rawdoc! {});
    let make = |spec: IndexSpec| storage.create_indexes(&op, &ns("c"), &[spec]);
    make(carrying("a_1")).unwrap();
    assert!(make(carrying("a_1")).unwrap().all_existed);
    for refused in [make(plain("a_1")), make(plain("other"))] {
        assert!(
            matches!(refused, Err(StorageError::IndexOptionsConflict(_))),
            "{refused:?}"
        );
    }
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let made = collection.index("a_1").unwrap();
    assert!(made.clustering() && made.spec().get_bool("clustering").unwrap());
    storage.drop_index(&op, &ns("c"), "a_1").unwrap();
    make(plain("a_1")).unwrap();
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let made = collection.index("a_1").unwrap();
    assert!(!made.clustering() && made.spec().get("clustering").unwrap().is_none());
}

#[test]
fn damaged_values_are_told() {
    let document = rawdoc! { "a": 1 };
    let (id, bytes) = (RecordId::Number(7).to_key(), document.as_bytes());
    let both = RowShape {
        ids: RecordIds::Numbers,
        is_collection: false,
        unique: true,
        clustering: true,
    };
    let value = [&id, bytes, &[2, 1]].concat();
    let split = both.split(&value).unwrap();
    let expected = RowValue {
        owner: Some(&7_u64.to_be_bytes()),
        document: Some(bytes),
        types: &[2, 1],
    };
    assert_eq!(split, expected);
    for length in 0..id.len() + bytes.len() {
        assert!(both.split(&value[..length]).is_err(), "{length} bytes");
    }
    let mut long = value.clone();
    long[8] += 3;
    assert!(both.split(&long).is_err());
}
