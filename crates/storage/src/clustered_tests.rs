#![allow(clippy::unwrap_used)]

use crate::testing::{Calls, Kind, Machine, clustered_options as options, index, ns};
use crate::{
    CollectionChange, Direction, FillLimits, IndexBatch, KeyRange, Operation, RecordBatch, RecordId, Storage,
    StorageError, limits,
};
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use engine::{Batch, Seq, TableKind};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vfs::Clock;

fn put(storage: &Arc<Storage>, op: &Operation, document: Document) -> Result<RecordId, StorageError> {
    storage.put(op, "c", RawDocumentBuf::try_from(&document).unwrap())
}

fn ids(storage: &Arc<Storage>) -> Vec<Bson> {
    let all = storage.all("c").into_iter();
    all.map(|(_, document)| document.get("_id").unwrap().clone()).collect()
}

/// The `n` of the documents that an index leads to, in its order.
fn through_index(storage: &Arc<Storage>, name: &str, direction: Direction) -> Vec<i32> {
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let index = collection.index(name).unwrap();
    let view = storage.read().unwrap();
    let mut cursor = view.index_entries(index, KeyRange::all(), direction).unwrap();
    let (mut batch, mut found) = (IndexBatch::new(), Vec::new());
    while cursor.fill(&mut batch, FillLimits::default()).unwrap() {
        for row in 0..batch.len() {
            let document = view.record(&collection, &batch.id(row)).unwrap().unwrap();
            let document = RawDocument::from_bytes(document.as_ref()).unwrap();
            found.push(document.get_i32("n").unwrap());
        }
    }
    found
}

#[test]
fn documents_are_in_the_order_of_their_ids_and_there_is_no_index_on_it() {
    for kind in [Kind::InMemory, Kind::Btree] {
        let mut machine = Machine::new(1);
        machine.kind = kind;
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "c", options());
        let wanted = [
            Bson::Null,
            Bson::Int32(-5),
            Bson::Double(2.5),
            Bson::Int64(7),
            Bson::String(String::new()),
            Bson::String("a".to_owned()),
            Bson::Document(doc! { "x": 1 }),
            Bson::Boolean(true),
            Bson::DateTime(DateTime::from_millis(0)),
        ];
        for place in [4, 0, 8, 2, 6, 1, 7, 3, 5] {
            put(&storage, &op, doc! { "_id": wanted[place].clone() }).unwrap();
        }
        assert_eq!(ids(&storage), wanted);
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        assert!(collection.indexes().is_empty());
        assert_eq!(collection.tables().count(), 1);
        let tables = storage.engine().tables().unwrap();
        let own: Vec<_> = tables.iter().filter(|(_, spec)| spec.name == "test.c").collect();
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].0, own[0].1.kind), (collection.table(), TableKind::Clustered));
        for equal in [
            Bson::Int32(7),
            Bson::Double(7.0),
            Bson::Null,
            Bson::String("a".to_owned()),
        ] {
            let again = put(&storage, &op, doc! { "_id": equal.clone(), "n": 1 });
            let Err(StorageError::DuplicateKey(duplicate)) = again else {
                panic!("{equal}: {again:?}");
            };
            assert_eq!(duplicate.index, "_id_");
            assert_eq!(duplicate.key_pattern, rawdoc! { "_id": 1 });
            assert_eq!(Document::try_from(&duplicate.key_value).unwrap(), doc! { "_id": equal });
        }
        assert_eq!(storage.stats().locks_held, 0);
        assert_eq!(collection.count(), 9);
        storage.assert_valid(&op, "c");
    }
}

#[test]
fn indexes_lead_to_documents_by_their_ids() {
    let machine = Machine::new(2);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", options());
    let early = [
        index("n", rawdoc! { "n": 1 }, rawdoc! {}),
        index("u", rawdoc! { "u": -1 }, rawdoc! { "unique": true }),
    ];
    storage.create_indexes(&op, &ns("c"), &early).unwrap();
    let long = "x".repeat(70_000);
    for n in 0..300 {
        let id = match n % 3 {
            0 => Bson::Int32(n),
            1 => Bson::String(format!("{n}{}", &long[..if n % 50 == 1 { long.len() } else { 10 }])),
            _ => Bson::Document(doc! { "a": n, "b": "" }),
        };
        put(
            &storage,
            &op,
            doc! { "_id": id, "n": n / 2, "u": n, "tags": [n, n % 7, n % 7] },
        )
        .unwrap();
    }
    let late = [
        index("tags", rawdoc! { "tags": 1 }, rawdoc! {}),
        index("carried", rawdoc! { "n": -1 }, rawdoc! { "clustering": true }),
        index(
            "both",
            rawdoc! { "u": 1 },
            rawdoc! { "clustering": true, "unique": true },
        ),
    ];
    let report = storage.create_indexes(&op, &ns("c"), &late).unwrap();
    assert_eq!((report.before, report.after), (3, 6), "the clustered one counts");
    let again = storage
        .create_indexes(&op, &ns("c"), &[index("other", rawdoc! { "_id": 1 }, rawdoc! {})])
        .unwrap();
    assert!(again.all_existed);
    assert_eq!((again.before, again.after), (6, 6));
    let rising: Vec<i32> = (0..300).map(|n| n / 2).collect();
    let falling: Vec<i32> = rising.iter().rev().copied().collect();
    assert_eq!(through_index(&storage, "n", Direction::Forward), rising);
    assert_eq!(through_index(&storage, "n", Direction::Reverse), falling);
    assert_eq!(through_index(&storage, "carried", Direction::Forward), falling);
    assert_eq!(through_index(&storage, "u", Direction::Forward), falling);
    assert_eq!(through_index(&storage, "both", Direction::Reverse), falling);
    let taken = put(&storage, &op, doc! { "_id": "new", "u": 17, "n": 0 });
    assert!(matches!(taken, Err(StorageError::DuplicateKey(duplicate)) if duplicate.index == "u"));
    storage.assert_valid(&op, "c");

    let all = storage.all("c");
    for (id, document) in &all {
        let n = document.get_i32("u").unwrap();
        let mut changed = document.clone();
        changed.insert("n", n);
        match n % 4 {
            0 => storage.remove(&op, "c", id.clone()).unwrap(),
            1 => storage
                .replace(&op, "c", id.clone(), RawDocumentBuf::try_from(&changed).unwrap())
                .unwrap(),
            _ => {}
        }
    }
    storage.assert_valid(&op, "c");
    assert_eq!(storage.rebuild_indexes(&op, &ns("c")).unwrap(), 6);
    storage.assert_valid(&op, "c");
    let left = through_index(&storage, "u", Direction::Reverse);
    assert_eq!(left.len(), 225);
    assert!(matches!(
        storage.drop_index(&op, &ns("c"), "_id_"),
        Err(StorageError::CannotDropIdIndex)
    ));
}

#[test]
fn a_document_stays_at_its_id() {
    let machine = Machine::new(3);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", options());
    let id = put(&storage, &op, doc! { "_id": 1, "n": 1 }).unwrap();
    storage
        .replace(&op, "c", id.clone(), rawdoc! { "_id": 1.0, "n": 2 })
        .unwrap();
    assert_eq!(storage.all("c")[0].1, doc! { "_id": 1.0, "n": 2 });
    let moved = storage.replace(&op, "c", id, rawdoc! { "_id": 2, "n": 3 });
    assert!(matches!(moved, Err(StorageError::InvalidDocument(_))), "{moved:?}");
    assert_eq!(storage.all("c").len(), 1);
    storage.assert_valid(&op, "c");
}

#[test]
fn a_key_may_have_8_mib() {
    let machine = Machine::new(4);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", options());
    storage
        .create_indexes(&op, &ns("c"), &[index("n", rawdoc! { "n": 1 }, rawdoc! {})])
        .unwrap();
    // The key of a string has a byte before it and some behind.
    let text = |bytes: usize| "a".repeat(bytes);
    let longest = limits::CLUSTERED_KEY_BYTES_MAX - 16;
    put(&storage, &op, doc! { "_id": text(longest), "n": 1 }).unwrap();
    let refused = put(&storage, &op, doc! { "_id": text(longest + 16), "n": 1 });
    assert!(matches!(refused, Err(StorageError::CannotMakeKey(_))));
    assert_eq!(through_index(&storage, "n", Direction::Forward), [1]);
    assert_eq!(storage.stats().locks_held, 0);
    storage.log().flush().unwrap();
    drop(storage);
    let storage = machine.open().unwrap();
    assert_eq!(storage.all("c").len(), 1);
    storage.assert_valid(&op, "c");
}

#[test]
fn of_those_who_insert_the_same_id_one_succeeds() {
    let machine = Machine::new(5);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", options());
    let (made, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let op = machine.operation();
                for id in 0..200 {
                    match put(&storage, &op, doc! { "_id": id }) {
                        Ok(_) => made.fetch_add(1, Ordering::Relaxed),
                        Err(StorageError::DuplicateKey(_)) => refused.fetch_add(1, Ordering::Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                }
            });
        }
    });
    assert_eq!((made.into_inner(), refused.into_inner()), (200, 600));
    assert_eq!(storage.all("c").len(), 200);
    storage.assert_valid(&op, "c");
}

#[test]
fn transactions_conflict_where_they_insert_the_same_id() {
    let machine = Machine::new(6);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", options());
    let other = machine.operation();
    let insert = |transaction: &mut crate::Transaction, op: &Operation, id: i32| {
        let guard = storage.locked(op, "c");
        let mut unit = transaction.resume(op);
        unit.insert(&guard, &rawdoc! { "_id": id })?;
        unit.commit().map(drop)
    };
    let (mut first, mut second) = (
        storage.begin_transaction().unwrap(),
        storage.begin_transaction().unwrap(),
    );
    insert(&mut first, &op, 1).unwrap();
    assert!(matches!(insert(&mut first, &op, 1), Err(StorageError::DuplicateKey(_))));
    // Not committed yet, and then after the snapshot.
    let mut third = storage.begin_transaction().unwrap();
    assert!(matches!(
        insert(&mut second, &other, 1),
        Err(StorageError::WriteConflict)
    ));
    first.commit(&op).unwrap();
    assert!(matches!(
        insert(&mut third, &other, 1),
        Err(StorageError::WriteConflict)
    ));
    let mut fourth = storage.begin_transaction().unwrap();
    assert!(matches!(
        insert(&mut fourth, &other, 1),
        Err(StorageError::DuplicateKey(_))
    ));
    insert(&mut fourth, &other, 0).unwrap();
    // It sees its own document in its place.
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let view = fourth.view();
    let mut cursor = view
        .records(&collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let mut batch = RecordBatch::new();
    cursor.fill(&mut batch, FillLimits::default()).unwrap();
    let seen: Vec<_> = (0..batch.len())
        .map(|row| {
            RawDocument::from_bytes(batch.document(row))
                .unwrap()
                .get_i32("_id")
                .unwrap()
        })
        .collect();
    assert_eq!(seen, [0, 1]);
    drop((cursor, view));
    fourth.commit(&other).unwrap();
    drop((second, third));
    assert_eq!(ids(&storage), [Bson::Int32(0), Bson::Int32(1)]);
    assert_eq!(storage.stats().locks_held, 0);
    storage.assert_valid(&op, "c");
}

#[test]
fn what_was_logged_is_there_after_a_crash() {
    for kind in [Kind::InMemory, Kind::Btree] {
        let mut machine = Machine::new(7);
        machine.kind = kind;
        let op = machine.operation();
        let storage = machine.open().unwrap();
        storage.make(&op, "c", options());
        storage
            .create_indexes(&op, &ns("c"), &[index("n", rawdoc! { "n": 1 }, rawdoc! {})])
            .unwrap();
        let made: Vec<_> = (0..100)
            .map(|n| {
                put(
                    &storage,
                    &op,
                    doc! { "_id": format!("{:03}", n * 37 % 100), "n": n, "text": "…" },
                )
                .unwrap()
            })
            .collect();
        storage.checkpoint().unwrap();
        for (n, id) in made.iter().enumerate() {
            match n % 3 {
                0 => storage.remove(&op, "c", id.clone()).unwrap(),
                1 => {
                    let document = storage.all("c").into_iter().find(|(found, _)| found == id).unwrap().1;
                    let mut changed = document.clone();
                    changed.insert("n", 1000 + n as i32);
                    storage
                        .replace(&op, "c", id.clone(), RawDocumentBuf::try_from(&changed).unwrap())
                        .unwrap();
                }
                _ => {}
            }
        }
        storage
            .create_indexes(&op, &ns("c"), &[index("late", rawdoc! { "n": -1 }, rawdoc! {})])
            .unwrap();
        let before = storage.all("c");
        storage.log().flush().unwrap();
        drop(storage);
        machine.fs.crash();
        machine.fs.restart();
        let storage = machine.open().unwrap();
        assert_eq!(storage.all("c"), before);
        assert_eq!(before.len(), 66);
        storage.assert_valid(&op, "c");
        let mut rising = through_index(&storage, "late", Direction::Reverse);
        assert_eq!(rising.len(), 66);
        assert!(rising.is_sorted());
        put(&storage, &op, doc! { "_id": "000", "n": 0 }).unwrap();
        rising.insert(0, 0);
        assert_eq!(through_index(&storage, "n", Direction::Forward), rising);
    }
}

#[test]
fn strings_are_in_the_order_of_the_collation() {
    let machine = Machine::new(8);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let mut asked = options();
    asked.append(bson::raw::cstr!("collation"), rawdoc! { "locale": "en", "strength": 2 });
    storage.make(&op, "c", asked);
    for id in ["b", "C", "a"] {
        put(&storage, &op, doc! { "_id": id }).unwrap();
    }
    assert!(matches!(
        put(&storage, &op, doc! { "_id": "B" }),
        Err(StorageError::DuplicateKey(_))
    ));
    let wanted = ["a", "b", "C"].map(|id| Bson::String(id.to_owned()));
    assert_eq!(ids(&storage), wanted);
    storage.assert_valid(&op, "c");
    storage.log().flush().unwrap();
    drop(storage);
    let storage = machine.open().unwrap();
    assert_eq!(ids(&storage), wanted);
    storage.assert_valid(&op, "c");
}

#[test]
fn dates_expire_and_other_ids_stay() {
    let machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let mut asked = options();
    asked.append(bson::raw::cstr!("expireAfterSeconds"), 60_i64);
    storage.make(&op, "c", asked);
    let now = machine.clock.now_ms();
    let at = |seconds: i64| Bson::DateTime(DateTime::from_millis(now + seconds * 1000));
    for id in [
        at(-3600),
        at(-60),
        at(-59),
        at(3600),
        Bson::Int32(1),
        Bson::String("2001".to_owned()),
    ] {
        put(&storage, &op, doc! { "_id": id }).unwrap();
    }
    assert_eq!(storage.run_ttl_pass().unwrap(), 2);
    assert_eq!(
        ids(&storage),
        [Bson::Int32(1), Bson::String("2001".to_owned()), at(-59), at(3600)]
    );
    let mut later = CollectionChange::default();
    later.set_options.append(bson::raw::cstr!("expireAfterSeconds"), 10_i64);
    storage.modify_collection(&op, &ns("c"), &later).unwrap();
    assert_eq!(storage.run_ttl_pass().unwrap(), 1);
    let mut never = CollectionChange::default();
    never.unset_options.push("expireAfterSeconds".to_owned());
    storage.modify_collection(&op, &ns("c"), &never).unwrap();
    machine.clock.advance(std::time::Duration::from_secs(100_000));
    assert_eq!(storage.run_ttl_pass().unwrap(), 0);
    storage.assert_valid(&op, "c");
}

#[test]
fn a_document_at_another_id_is_found() {
    let machine = Machine::new(10);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", options());
    put(&storage, &op, doc! { "_id": 1 }).unwrap();
    let RecordId::Key(key) = put(&storage, &op, doc! { "_id": 2 }).unwrap() else {
        panic!("records have keys");
    };
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let mut batch = Batch::new();
    batch.put(collection.table(), key.to_vec(), rawdoc! { "_id": 3 }.into_bytes());
    let seq: Seq = storage.last_seq().next();
    storage.engine().apply(&batch, seq).unwrap();
    storage.engine().publish(seq);
    let report = storage.validate(&op, &ns("c"), false).unwrap();
    assert_eq!(report.errors.len(), 1, "{report:?}");
    assert!(report.errors[0].contains("has the _id of"), "{report:?}");
}
