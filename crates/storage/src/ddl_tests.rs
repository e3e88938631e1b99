//! Definitions: names, options, changes, and that they survive.

#![allow(clippy::unwrap_used)]

use super::*;

use crate::testing::{Calls, Machine, index, ns};
use crate::{IndexChange, RecordId, ViewChange};
use bson::{doc, rawdoc};
use engine::Seq;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

fn names(collections: &[Arc<Collection>]) -> Vec<&str> {
    collections
        .iter()
        .map(|collection| collection.namespace().collection())
        .collect()
}

#[test]
fn the_catalog_lists_what_was_made_and_finds_it_after_reopening() {
    let machine = Machine::new(1);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "b", rawdoc! { "validator": { "x": 1 } });
    storage.make(&op, "a", rawdoc! {});
    let pipeline = bson::RawArrayBuf::from_iter([rawdoc! { "$match": {} }]);
    storage
        .create_view(
            &op,
            &ns("v"),
            "a",
            pipeline,
            &rawdoc! { "collation": { "locale": "simple" } },
        )
        .unwrap();
    let uuid = storage.catalog().collection(&ns("a")).unwrap().uuid();
    for reopened in [false, true] {
        if reopened {
            storage.close(true).unwrap();
            storage = machine.open().unwrap();
        }
        let catalog = storage.catalog();
        assert_eq!(catalog.databases(), ["test"]);
        assert_eq!(names(&catalog.collections("test")), ["a", "b"]);
        assert_eq!(
            catalog
                .views("test")
                .iter()
                .map(|view| view.view_on())
                .collect::<Vec<_>>(),
            ["a"]
        );
        assert_eq!(
            catalog.collection(&ns("b")).unwrap().options(),
            &*rawdoc! { "validator": { "x": 1 } }
        );
        let a = catalog.collection(&ns("a")).unwrap();
        assert_eq!((a.uuid(), uuid[6] >> 4, uuid[8] >> 6), (uuid, 4, 2));
        assert_eq!(
            a.id_index().spec(),
            &*rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }
        );
        assert!(a.id_index().unique() && a.id_index().is_id());
    }
}

#[test]
fn taken_names_are_refused() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let view = storage.create_view(&op, &ns("c"), "x", RawArrayBuf::new(), &rawdoc! {});
    assert!(matches!(view, Err(StorageError::NamespaceExists(_))));
    let other_case = Namespace::new("TEST", "c").unwrap();
    let refused = storage.create_collection(&op, &other_case, &rawdoc! {});
    assert!(
        matches!(refused, Err(StorageError::DatabaseDiffersInCase { .. })),
        "{refused:?}"
    );
    assert_eq!(storage.catalog().case_conflict("TEST").as_deref(), Some("test"));
}

#[test]
fn drops_report_what_went_and_table_ids_are_not_used_again() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    assert_eq!(storage.drop_collection(&op, &ns("c")).unwrap(), None);
    storage
        .create_indexes(&op, &ns("c"), &[index("a", rawdoc! { "a": 1 }, rawdoc! {})])
        .unwrap();
    let old = storage.catalog().collection(&ns("c")).unwrap();
    let report = storage.drop_collection(&op, &ns("c")).unwrap();
    assert_eq!(
        report,
        Some(DropReport {
            n_indexes_was: 2,
            was_view: false
        })
    );
    assert!(old.is_dropped() && !storage.catalog().database_exists("test"));
    let highest = old.maintained().map(|index| index.table()).max().unwrap();
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    storage.make(&op, "c", rawdoc! {});
    assert!(storage.catalog().collection(&ns("c")).unwrap().table() > highest);
}

#[test]
fn a_database_is_dropped_as_a_whole() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "a", rawdoc! {});
    storage.make(&op, "b", rawdoc! {});
    storage
        .create_view(&op, &ns("v"), "a", RawArrayBuf::new(), &rawdoc! {})
        .unwrap();
    let other = Namespace::new("other", "c").unwrap();
    storage.create_collection(&op, &other, &rawdoc! {}).unwrap();
    let before = storage.last_seq();
    assert!(storage.drop_database(&op, "test").unwrap());
    assert_eq!(
        (storage.last_seq(), storage.catalog().databases()),
        (before.next(), vec!["other".to_owned()])
    );
    assert!(!storage.drop_database(&op, "test").unwrap());
}

#[test]
fn renaming_keeps_documents_and_may_drop_the_target() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "a", rawdoc! {});
    storage.make(&op, "b", rawdoc! {});
    storage.put(&op, "a", rawdoc! { "_id": 1 }).unwrap();
    let missing = storage.rename_collection(&op, &ns("x"), &ns("y"), false);
    assert!(matches!(missing, Err(StorageError::NamespaceNotFound(_))));
    let taken = storage.rename_collection(&op, &ns("a"), &ns("b"), false);
    assert!(matches!(taken, Err(StorageError::NamespaceExists(_))));
    let same = storage.rename_collection(&op, &ns("a"), &ns("a"), true);
    assert!(matches!(same, Err(StorageError::NamespaceExists(_))));
    let uuid = storage.catalog().collection(&ns("a")).unwrap().uuid();
    storage.rename_collection(&op, &ns("a"), &ns("b"), true).unwrap();
    assert_eq!(names(&storage.catalog().collections("test")), ["b"]);
    assert_eq!(storage.catalog().collection(&ns("b")).unwrap().uuid(), uuid);
    let elsewhere = Namespace::new("other", "c").unwrap();
    storage.rename_collection(&op, &ns("b"), &elsewhere, false).unwrap();
    assert_eq!(storage.catalog().databases(), ["other"]);
    assert_eq!(storage.catalog().collection(&elsewhere).unwrap().count(), 1);
}

#[test]
fn options_change_and_stay_changed() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(
        &op,
        "c",
        rawdoc! { "capped": true, "size": 1000, "validator": { "x": 1 } },
    );
    storage
        .create_indexes(
            &op,
            &ns("c"),
            &[index("t", rawdoc! { "t": 1 }, rawdoc! { "expireAfterSeconds": 10 })],
        )
        .unwrap();
    let change = CollectionChange {
        index: Some(IndexChange {
            name: "t".to_owned(),
            expire_after_seconds: Some(20),
            hidden: Some(true),
            ..IndexChange::default()
        }),
        set_options: rawdoc! { "validationLevel": "off" },
        unset_options: vec!["validator".to_owned()],
        capped_size: Some(2000),
        capped_max: Some(7),
        default_options: rawdoc! { "validationLevel": "strict", "validationAction": "error" },
        requested: RawDocumentBuf::new(),
        view: None,
    };
    storage.modify_collection(&op, &ns("c"), &change).unwrap();
    // Of two changes neither takes the other's back.
    let other = CollectionChange {
        set_options: rawdoc! { "validationAction": "warn" },
        default_options: rawdoc! { "validationLevel": "strict" },
        ..CollectionChange::default()
    };
    storage.modify_collection(&op, &ns("c"), &other).unwrap();
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let options = bson::Document::try_from(collection.options()).unwrap();
    assert_eq!(
        options,
        doc! {
            "capped": true, "validationLevel": "off", "size": 2000_i64, "max": 7_i64, "validationAction": "warn",
        }
    );
    let limits = collection.is_capped().unwrap();
    assert_eq!((limits.size_bytes, limits.max_documents), (2000, Some(7)));
    let index = collection.index("t").unwrap();
    assert_eq!((index.expire_after_seconds(), index.hidden()), (Some(20), true));
    let spec = rawdoc! { "v": 2, "key": { "t": 1 }, "name": "t", "expireAfterSeconds": 20, "hidden": true };
    assert_eq!(index.spec(), &*spec);
    let wrong = CollectionChange {
        index: Some(IndexChange {
            name: "no".to_owned(),
            ..IndexChange::default()
        }),
        ..change
    };
    assert!(matches!(
        storage.modify_collection(&op, &ns("c"), &wrong),
        Err(StorageError::IndexNotFound(_))
    ));
}

/// What `collMod` makes of an index named `n`.
fn change_n(storage: &Storage, op: &Operation, change: IndexChange) -> Result<(), StorageError> {
    let change = CollectionChange {
        index: Some(IndexChange {
            name: "n".to_owned(),
            ..change
        }),
        ..CollectionChange::default()
    };
    storage.modify_collection(op, &ns("c"), &change)
}

fn prepared(prepare: bool) -> IndexChange {
    IndexChange {
        prepare_unique: Some(prepare),
        ..IndexChange::default()
    }
}

fn unique_as_of(version: u64) -> IndexChange {
    IndexChange {
        unique_as_of: Some(version),
        ..IndexChange::default()
    }
}

/// The numbers that are `_id`s of documents which share keys.
fn shared(storage: &Storage, op: &Operation) -> (Vec<Vec<i32>>, u64) {
    let mut found = Vec::new();
    let version = storage.duplicates(op, &ns("c"), "n", &mut |ids| {
        found.push(ids.iter().filter_map(|id| id.as_i32()).collect());
        true
    });
    (found, version.unwrap())
}

#[test]
fn an_index_becomes_unique_when_no_keys_are_shared() {
    let machine = Machine::new(3);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    // More than one chunk of the walk, and a key that reaches over its end.
    let count = crate::limits::BUILD_CHUNK_DOCUMENTS as i32 + 50;
    let put = |id: i32| {
        let n = if id < count - 150 { id } else { 1_000_000 };
        storage.put(&op, "c", rawdoc! { "_id": id, "n": [n, -1 - id] }).unwrap()
    };
    let records: Vec<RecordId> = (0..count).map(put).collect();
    storage
        .create_indexes(&op, &ns("c"), &[index("n", rawdoc! { "n": 1 }, rawdoc! {})])
        .unwrap();
    let (found, version) = shared(&storage, &op);
    assert_eq!(found, [(count - 150..count).collect::<Vec<_>>()]);
    let refused = change_n(&storage, &op, unique_as_of(version));
    assert!(
        matches!(refused, Err(StorageError::InvalidOptions(_))),
        "it is not prepared"
    );
    change_n(&storage, &op, prepared(true)).unwrap();
    let refused = change_n(&storage, &op, unique_as_of(version));
    assert!(
        matches!(refused, Err(StorageError::WriteConflict)),
        "it was checked in another definition"
    );
    // In one unit: what it has put itself counts, and so does what it has taken away.
    let duplicate = |storage: &Arc<Storage>, first: i32, second: i32| -> Result<(), StorageError> {
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        unit.insert(&guard, &rawdoc! { "_id": -1, "n": first })?;
        unit.insert(&guard, &rawdoc! { "_id": -2, "n": second })?;
        Ok(())
    };
    assert!(duplicate(&storage, -5_000_000, -6_000_000).is_ok());
    for (first, second) in [(-5_000_000, -5_000_000), (3, -5_000_000), (-5_000_000, 1_000_000)] {
        let refused = duplicate(&storage, first, second);
        assert!(
            matches!(refused, Err(StorageError::DuplicateKey(_))),
            "{first} {second}: {refused:?}"
        );
    }
    for record in records.into_iter().rev().take(149) {
        storage.remove(&op, "c", record).unwrap();
    }
    let (found, version) = shared(&storage, &op);
    assert_eq!(found, [[0; 0]; 0]);
    change_n(&storage, &op, unique_as_of(version)).unwrap();
    for reopened in [false, true] {
        if reopened {
            storage.close(true).unwrap();
            storage = machine.open().unwrap();
        }
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        let index = collection.index("n").unwrap();
        assert!(index.unique() && !index.prepares_unique() && !index.has_unique_rows());
        let spec = rawdoc! { "v": 2, "key": { "n": 1 }, "name": "n", "unique": true };
        assert_eq!(index.spec(), &*spec);
        let refused = duplicate(&storage, 1_000_000, -5_000_000);
        assert!(matches!(refused, Err(StorageError::DuplicateKey(_))), "{refused:?}");
        assert_eq!(shared(&storage, &op).0, [[0; 0]; 0]);
    }
}

#[test]
fn no_two_indexes_become_the_same() {
    let machine = Machine::new(5);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "n": 1 }).unwrap();
    let both = [
        index("n", rawdoc! { "n": 1 }, rawdoc! {}),
        index("unique", rawdoc! { "n": 1 }, rawdoc! { "unique": true }),
    ];
    storage.create_indexes(&op, &ns("c"), &both).unwrap();
    let refused = storage.make_index_non_unique(&op, &ns("c"), "unique");
    assert!(
        matches!(refused, Err(StorageError::IndexOptionsConflict(_))),
        "{refused:?}"
    );
    change_n(&storage, &op, prepared(true)).unwrap();
    let version = storage.catalog().collection(&ns("c")).unwrap().version();
    let refused = change_n(&storage, &op, unique_as_of(version));
    assert!(
        matches!(refused, Err(StorageError::IndexOptionsConflict(_))),
        "{refused:?}"
    );
    storage.drop_index(&op, &ns("c"), "unique").unwrap();
    let version = storage.catalog().collection(&ns("c")).unwrap().version();
    change_n(&storage, &op, unique_as_of(version)).unwrap();
    storage.make_index_non_unique(&op, &ns("c"), "n").unwrap();
}

/// Who had a key in one part of the walk has another one in the next: together they never had it.
#[test]
fn documents_that_had_a_key_at_different_times_do_not_share_it() {
    let machine = Machine::new(4);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let chunk = crate::limits::BUILD_CHUNK_DOCUMENTS as i32;
    // The first two share a key, the last one's ends the first part.
    let records: Vec<RecordId> = (0..chunk)
        .map(|id| storage.put(&op, "c", rawdoc! { "_id": id, "n": id.max(1) }).unwrap())
        .collect();
    storage
        .create_indexes(&op, &ns("c"), &[index("n", rawdoc! { "n": 1 }, rawdoc! {})])
        .unwrap();
    let mut found: Vec<Vec<i32>> = Vec::new();
    let walked = storage.duplicates(&op, &ns("c"), "n", &mut |ids| {
        if found.is_empty() {
            let other = machine.operation();
            let last = records[chunk as usize - 1].clone();
            let moved = rawdoc! { "_id": chunk - 1, "n": chunk + 1 };
            storage.replace(&other, "c", last, moved).unwrap();
            storage
                .put(&other, "c", rawdoc! { "_id": chunk, "n": chunk - 1 })
                .unwrap();
        }
        found.push(ids.iter().filter_map(|id| id.as_i32()).collect());
        true
    });
    walked.unwrap();
    assert_eq!(found, [[0, 1]]);
}

#[test]
fn a_unique_index_takes_duplicates_again() {
    let machine = Machine::new(5);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    // More than one chunk of the walk.
    let count = crate::limits::BUILD_CHUNK_DOCUMENTS as i32 + 50;
    for id in 0..count {
        storage.put(&op, "c", rawdoc! { "_id": id, "n": id, "m": -id }).unwrap();
    }
    let unique = rawdoc! { "unique": true };
    let specs = [
        index("n", rawdoc! { "n": 1 }, unique.clone()),
        index("m", rawdoc! { "m": 1 }, rawdoc! {}),
    ];
    storage.create_indexes(&op, &ns("c"), &specs).unwrap();
    let names = |storage: &Storage| -> Vec<String> {
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        assert!(collection.building_indexes().is_empty());
        collection
            .indexes()
            .iter()
            .map(|index| index.name().to_owned())
            .collect()
    };
    for refused in [
        storage.make_index_non_unique(&op, &ns("c"), "_id_"),
        storage.make_index_non_unique(&op, &ns("c"), "none"),
        storage.make_index_non_unique(&op, &ns("none"), "n"),
    ] {
        assert!(refused.is_err());
    }
    let before = storage.catalog().collection(&ns("c")).unwrap().version();
    storage.make_index_non_unique(&op, &ns("c"), "m").unwrap();
    assert_eq!(
        storage.catalog().collection(&ns("c")).unwrap().version(),
        before,
        "it is none"
    );
    storage.make_index_non_unique(&op, &ns("c"), "n").unwrap();
    storage.put(&op, "c", rawdoc! { "_id": "twice", "n": 7 }).unwrap();
    // One that became unique has room for duplicates as it is.
    storage
        .create_indexes(
            &op,
            &ns("c"),
            &[index("k", rawdoc! { "k": 1 }, rawdoc! { "sparse": true })],
        )
        .unwrap();
    let of_k = |change: IndexChange| CollectionChange {
        index: Some(IndexChange {
            name: "k".to_owned(),
            ..change
        }),
        ..CollectionChange::default()
    };
    storage.modify_collection(&op, &ns("c"), &of_k(prepared(true))).unwrap();
    let version = storage.catalog().collection(&ns("c")).unwrap().version();
    storage
        .modify_collection(&op, &ns("c"), &of_k(unique_as_of(version)))
        .unwrap();
    let table = |storage: &Storage| {
        storage
            .catalog()
            .collection(&ns("c"))
            .unwrap()
            .index("k")
            .unwrap()
            .table()
    };
    let of_unique = table(&storage);
    storage.make_index_non_unique(&op, &ns("c"), "k").unwrap();
    assert_eq!(table(&storage), of_unique);
    for reopened in [false, true] {
        if reopened {
            storage.close(true).unwrap();
            storage = machine.open().unwrap();
        }
        assert_eq!(names(&storage), ["_id_", "n", "m", "k"], "each has its place");
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        for name in ["n", "k"] {
            let index = collection.index(name).unwrap();
            assert!(!index.unique() && !index.has_unique_rows() && !index.prepares_unique());
        }
        for id in 0..2 {
            let id = format!("{reopened} {id}");
            storage.put(&op, "c", rawdoc! { "_id": id, "n": 7, "k": 1 }).unwrap();
        }
        let (found, _) = shared(&storage, &op);
        assert_eq!(found, [[7]], "those of numbers among the documents that share a key");
    }
}

#[test]
fn a_view_is_changed_and_dropped_as_one() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_view(&op, &ns("v"), "a", RawArrayBuf::new(), &rawdoc! {})
        .unwrap();
    let former = storage.catalog().view(&ns("v"));
    let change = |view_on: &str| {
        let view = ViewChange {
            view_on: view_on.to_owned(),
            pipeline: RawArrayBuf::new(),
            former: former.clone(),
        };
        let change = CollectionChange {
            view: Some(view),
            ..CollectionChange::default()
        };
        storage.modify_collection(&op, &ns("v"), &change)
    };
    change("b").unwrap();
    assert!(
        matches!(change("c"), Err(StorageError::WriteConflict)),
        "it is another one"
    );
    assert_eq!(storage.catalog().view(&ns("v")).unwrap().view_on(), "b");
    let no_collection = storage.modify_collection(&op, &ns("v"), &CollectionChange::default());
    assert!(matches!(no_collection, Err(StorageError::IsView(_))));
    let dropped = storage.drop_collection(&op, &ns("v")).unwrap();
    assert_eq!(
        dropped,
        Some(DropReport {
            n_indexes_was: 0,
            was_view: true
        })
    );
}

#[test]
fn the_id_index_stays() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    assert!(matches!(
        storage.drop_index(&op, &ns("c"), "_id_"),
        Err(StorageError::CannotDropIdIndex)
    ));
    assert!(matches!(
        storage.drop_index(&op, &ns("c"), "x"),
        Err(StorageError::IndexNotFound(_))
    ));
}

/// Such an index was taken for `_id_`: it was unique, and nobody could drop it.
#[test]
fn an_index_on_id_in_another_order_is_one_like_any_other() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "b", rawdoc! {});
    storage.make(&op, "c", crate::testing::clustered_options());
    let spec = || index("other", rawdoc! { "_id": -2 }, rawdoc! {});
    for name in ["b", "c"] {
        storage.put(&op, name, rawdoc! { "_id": 1 }).unwrap();
        let made = storage.create_indexes(&op, &ns(name), &[spec()]).unwrap();
        assert!(!made.all_existed && made.after == made.before + 1);
    }
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    for name in ["b", "c"] {
        let collection = storage.catalog().collection(&ns(name)).unwrap();
        let index = collection.index("other").unwrap();
        assert!(!index.is_id() && !index.unique());
        assert_eq!(index.spec(), &*spec().normalised().spec);
        storage.put(&op, name, rawdoc! { "_id": 2 }).unwrap();
        storage.assert_valid(&op, name);
        // Those of builds before are unique, and do not say so.
        let mut row = CollectionRow::of(&collection);
        let mut stored = bson::Document::try_from(row.to_document()).unwrap();
        let last = stored.get_array_mut("indexes").unwrap().last_mut().unwrap();
        assert_eq!(last.as_document_mut().unwrap().remove("unique"), Some(false.into()));
        let read = CollectionRow::parse(&RawDocumentBuf::try_from(&stored).unwrap()).unwrap();
        let former = row.indexes.pop().unwrap();
        let read = read.indexes.last().unwrap().clone();
        assert!(read.spec.unique && read.spec.spec.get_bool("unique").unwrap() && read.table == former.table);
        assert_eq!(storage.drop_all_indexes(&op, &ns(name)).unwrap(), 2);
        assert_eq!(storage.catalog().collection(&ns(name)).unwrap().access_paths().len(), 1);
        assert_eq!(storage.drop_all_indexes(&op, &ns(name)).unwrap(), 1);
        // Whoever makes it at every start goes on doing so.
        let unique = crate::testing::index("other", rawdoc! { "_id": -2 }, rawdoc! { "unique": true });
        storage.create_indexes(&op, &ns(name), &[unique]).unwrap();
        assert!(storage.create_indexes(&op, &ns(name), &[spec()]).unwrap().all_existed);
    }
}

#[test]
fn a_closed_storage_refuses_writes() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let guard = storage.locked(&op, "c");
    storage.close(true).unwrap();
    storage.close(true).unwrap();
    let mut unit = storage.begin_write(&op);
    assert!(matches!(
        unit.insert(&guard, &rawdoc! { "_id": 1 }),
        Err(StorageError::Closed)
    ));
}

/// A checkpoint at close that finds no space must not cost what the log still can keep.
#[test]
fn closing_on_a_full_disk_keeps_the_log() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.wait_durable(storage.last_seq()).unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    machine.fs.set_free_bytes(Some(0));
    assert!(matches!(storage.close(true), Err(StorageError::OutOfSpace(_))));
    machine.fs.set_free_bytes(None);
    let storage = machine.open().unwrap();
    assert_eq!(storage.all("c").len(), 1);
    storage.assert_valid(&op, "c");
}

#[test]
fn a_definition_that_waits_for_a_collection_holds_up_no_other() {
    // A long reader of one collection, a drop that waited for it: every definition on the server stood still behind the
    // drop, the implicit creation of collections in other databases included.
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    let op = machine.operation();
    storage.make(&op, "read", rawdoc! {});
    storage.make(&op, "other", rawdoc! {});
    storage.put(&op, "other", rawdoc! { "_id": 1, "a": 1 }).unwrap();
    let elsewhere = Namespace::new("elsewhere", "c").unwrap();
    type Change<'c> = Box<dyn Fn(&Operation) + Send + Sync + 'c>;
    let waiting: Vec<Change<'_>> = vec![
        Box::new(|op| {
            storage
                .create_indexes(op, &ns("read"), &[index("a", rawdoc! { "a": 1 }, rawdoc! {})])
                .unwrap();
        }),
        Box::new(|op| {
            storage
                .modify_collection(op, &ns("read"), &CollectionChange::default())
                .unwrap()
        }),
        Box::new(|op| assert_eq!(storage.drop_indexes(op, &ns("read"), &["a".to_owned()]).unwrap(), 2)),
        Box::new(|op| storage.rename_collection(op, &ns("read"), &ns("other"), true).unwrap()),
        Box::new(|op| storage.rename_collection(op, &ns("other"), &ns("read"), false).unwrap()),
        Box::new(|op| assert!(storage.drop_collection(op, &ns("read")).unwrap().is_some())),
        Box::new(|op| assert!(storage.drop_database(op, "test").unwrap())),
    ];
    for (place, change) in waiting.iter().enumerate() {
        let reader = machine.operation();
        if place == 6 {
            storage.make(&op, "read", rawdoc! {});
        }
        let read = match place {
            4 => "other",
            _ => "read",
        };
        let guard = storage
            .collection(&reader, &ns(read), LockMode::IntentShared)
            .unwrap()
            .unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| change(&machine.operation()));
            while !guard.shared.lock.is_waited_for() {
                assert!(!waits.is_finished(), "change {place} did not wait for the reader");
                std::thread::yield_now();
            }
            // Time does not pass here: an operation that may not wait at all.
            assert!(
                storage.definitions.try_lock().is_some(),
                "change {place} waits in its turn"
            );
            storage.create_collection(&op, &elsewhere, &rawdoc! {}).unwrap();
            assert!(storage.drop_database(&op, "elsewhere").unwrap());
            drop(guard);
            waits.join().unwrap();
        });
    }
    assert!(storage.catalog().databases().is_empty());
}

#[test]
fn of_two_definitions_that_wait_for_one_collection_the_second_sees_what_the_first_did() {
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    let op = machine.operation();
    storage.make(&op, "c", rawdoc! {});
    let guard = storage
        .collection(&op, &ns("c"), LockMode::IntentShared)
        .unwrap()
        .unwrap();
    let dropped = std::thread::scope(|scope| {
        let drops: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| storage.drop_collection(&machine.operation(), &ns("c")).unwrap()))
            .collect();
        while !guard.shared.lock.is_waited_for() {
            std::thread::yield_now();
        }
        drop(guard);
        drops.into_iter().filter_map(|drop| drop.join().unwrap()).count()
    });
    assert_eq!(dropped, 1);
}

/// It took one lock after the other, and gave it back for the next: readers that follow each other in two collections
/// kept it waiting for ever.
#[test]
fn collections_that_always_have_a_reader_are_dropped() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let names = ["a", "b"];
    names.iter().for_each(|name| storage.make(&op, name, rawdoc! {}));
    let (done, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for name in names {
            let collection = storage.catalog().collection(&ns(name)).unwrap();
            let (machine, done, begun) = (&machine, &done, &begun);
            scope.spawn(move || {
                let mut reader = None;
                while !done.load(Ordering::SeqCst) {
                    // It waits for a moment only; then the one before it ends.
                    let next = machine.operation();
                    next.kill();
                    let lock = &collection.shared.lock;
                    let is_first = reader.is_none();
                    reader = Held::take(lock, &next, LockMode::IntentShared).ok();
                    begun.fetch_add(usize::from(is_first && reader.is_some()), Ordering::SeqCst);
                }
            });
        }
        while begun.load(Ordering::SeqCst) < names.len() {
            std::thread::yield_now();
        }
        let dropping = machine.operation();
        let kill = dropping.kill_handle();
        let (told, ended) = mpsc::channel::<()>();
        // Otherwise it would wait for ever.
        scope.spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(20)) {
                kill.set(crate::Interrupted::Killed);
            }
        });
        let dropped = storage.drop_database(&dropping, "test");
        done.store(true, Ordering::SeqCst);
        drop(told);
        assert!(dropped.unwrap());
    });
    assert!(storage.catalog().databases().is_empty());
}

/// The one was taken out of the catalog before the other came in: whoever looked in between was told that there is
/// nothing.
#[test]
fn a_name_that_a_collection_takes_from_another_always_stands_for_one() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let (done, name) = (AtomicBool::new(false), ns("c"));
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = (0, 0);
            while !done.load(Ordering::SeqCst) {
                looks.0 += 1;
                looks.1 += usize::from(storage.catalog().collection(&name).is_none());
            }
            looks
        });
        for _ in 0..5000 {
            storage.make(&op, "next", rawdoc! {});
            storage.rename_collection(&op, &ns("next"), &ns("c"), true).unwrap();
        }
        done.store(true, Ordering::SeqCst);
        let (looks, missing) = looks.join().unwrap();
        assert!(looks > 0);
        assert_eq!(missing, 0, "of {looks} looks");
    });
}

/// 1,024 were forgotten with a checkpoint, and all others stayed, in memory and on disk, where more were dropped in
/// between.
#[test]
fn names_of_many_dropped_tables_are_forgotten_with_one_checkpoint() {
    let mut machine = Machine::new(1);
    // What no log tells of needs no name.
    machine.journal = false;
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    for _ in 0..1_500 {
        storage.make(&op, "c", rawdoc! {});
        storage.drop_collection(&op, &ns("c")).unwrap();
    }
    let names = || storage.catalog().former_names_before(Seq(u64::MAX), usize::MAX).len();
    assert_eq!(names(), 1_500);
    storage.checkpoint().unwrap();
    assert_eq!(names(), 0);
}
