//! What is made over keeps its documents, its order and its name, and is sound after the next start, too.

use super::*;
use crate::CollectionChange;
use crate::testing::{Calls, Machine, index, ns};

fn ids(storage: &Arc<Storage>, name: &str) -> Vec<i32> {
    let documents = storage.all(name).into_iter();
    documents
        .map(|(_, document)| document.get_i32("_id").unwrap())
        .collect()
}

/// A document of 256 bytes.
fn document(id: i32, x: i32) -> RawDocumentBuf {
    rawdoc! { "_id": id, "x": x, "pad": "p".repeat(225) }
}

fn filled(machine: &Machine) -> (Arc<Storage>, Operation) {
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! { "validator": { "x": 1 } });
    storage
        .create_indexes(
            &op,
            &ns("c"),
            &[index("x_1", rawdoc! { "x": 1 }, rawdoc! { "unique": true })],
        )
        .unwrap();
    // Not in the order of `_id`.
    for id in [3, 1, 2, 5, 4] {
        storage.put(&op, "c", document(id, id)).unwrap();
    }
    (storage, op)
}

#[test]
fn the_newest_that_fit_take_the_place_in_their_order() {
    let machine = Machine::new(1);
    let (mut storage, op) = filled(&machine);
    let before = storage.catalog().collection(&ns("c")).unwrap();
    let one = 256;
    assert_eq!(document(1, 1).as_bytes().len() as u64, one);
    storage.convert_to_capped(&op, &ns("c"), 3 * one).unwrap();
    storage.put(&op, "c", document(6, 2)).unwrap();
    for reopened in [false, true] {
        if reopened {
            storage.close(true).unwrap();
            storage = machine.open().unwrap();
        }
        let after = storage.catalog().collection(&ns("c")).unwrap();
        assert_ne!(after.uuid(), before.uuid());
        assert_eq!(after.options().get_document("validator").unwrap(), &*rawdoc! { "x": 1 });
        assert_eq!(after.is_capped().unwrap().size_bytes, 3 * one);
        assert_eq!(after.indexes().len(), 1);
        assert_eq!(ids(&storage, "c"), [5, 4, 6]);
        assert_eq!(storage.catalog().collections("test").len(), 1, "nothing else is left");
        storage.assert_valid(&op, "c");
    }
    // Again, larger and smaller, and to where nothing fits.
    storage.convert_to_capped(&op, &ns("c"), 1024).unwrap();
    assert_eq!(ids(&storage, "c"), [5, 4, 6]);
    storage.convert_to_capped(&op, &ns("c"), one - 1).unwrap();
    assert_eq!(storage.catalog().collection(&ns("c")).unwrap().count(), 0);
    let missing = storage.convert_to_capped(&op, &ns("none"), 1000);
    assert!(matches!(missing, Err(StorageError::NamespaceNotFound(_))));
}

#[test]
fn a_clone_leaves_its_source_and_takes_no_name_that_is_taken() {
    let machine = Machine::new(1);
    let (storage, op) = filled(&machine);
    storage.clone_as_capped(&op, &ns("c"), &ns("d"), 1 << 20).unwrap();
    assert_eq!(
        (ids(&storage, "c"), ids(&storage, "d")),
        (vec![3, 1, 2, 5, 4], vec![3, 1, 2, 5, 4])
    );
    assert!(storage.catalog().collection(&ns("c")).unwrap().is_capped().is_none());
    let taken = storage.clone_as_capped(&op, &ns("d"), &ns("c"), 1 << 20);
    assert!(matches!(taken, Err(StorageError::NamespaceExists(_))));
    assert_eq!(ids(&storage, "c").len(), 5);
}

#[test]
fn who_gives_up_leaves_all_as_it_was() {
    let machine = Machine::new(1);
    let (storage, op) = filled(&machine);
    let held = storage.locked(&op, "c");
    let hurried = machine.operation();
    hurried.kill_handle().set(crate::Interrupted::Killed);
    assert!(storage.convert_to_capped(&hurried, &ns("c"), 1 << 20).is_err());
    drop(held);
    assert_eq!(storage.catalog().collections("test").len(), 1);
    assert!(storage.catalog().collection(&ns("c")).unwrap().is_capped().is_none());
}

#[test]
fn indexes_are_made_anew_in_tables_of_their_own() {
    let machine = Machine::new(1);
    let (mut storage, op) = filled(&machine);
    let tables = |storage: &Arc<Storage>| -> Vec<_> {
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        collection
            .indexes()
            .iter()
            .map(|index| (index.name().to_owned(), index.table()))
            .collect()
    };
    let before = tables(&storage);
    assert_eq!(storage.rebuild_indexes(&op, &ns("c")).unwrap(), 2);
    let after = tables(&storage);
    assert_eq!((&after[0], &after[1].0), (&before[0], &before[1].0));
    assert_ne!(after[1].1, before[1].1);
    for reopened in [false, true] {
        if reopened {
            storage.close(true).unwrap();
            storage = machine.open().unwrap();
        }
        assert_eq!(tables(&storage), after);
        storage.assert_valid(&op, "c");
        let again = storage.put(&op, "c", rawdoc! { "_id": 9, "x": 3 });
        assert!(matches!(again, Err(StorageError::DuplicateKey(_))));
    }
    storage.make(&op, "empty", rawdoc! {});
    assert_eq!(storage.rebuild_indexes(&op, &ns("empty")).unwrap(), 1);
}

/// Each index was replaced by an empty one, and then built: what the walk had not met yet could come twice, and when it
/// met that, all indexes were dropped.
#[test]
fn the_old_indexes_serve_until_the_new_ones_are_ready_and_stay_when_that_fails() {
    let machine = Machine::new(1);
    let (storage, op) = filled(&machine);
    let y = index("y_1", rawdoc! { "y": 1 }, rawdoc! {});
    storage.create_indexes(&op, &ns("c"), &[y]).unwrap();
    let tables = || -> Vec<_> {
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        collection.indexes().iter().map(|index| index.table()).collect()
    };
    let before = tables();
    let (build, indexes) = storage.start_rebuild(&op, &ns("c")).unwrap();
    assert_eq!((build.tables.len(), indexes), (2, 3));
    assert_eq!(tables(), before, "they are read");
    let duplicate = storage.put(&op, "c", document(6, 3));
    assert!(matches!(duplicate, Err(StorageError::DuplicateKey(_))), "{duplicate:?}");
    let (again, indexes) = storage.start_rebuild(&op, &ns("c")).unwrap();
    assert_eq!((again.tables.len(), indexes), (0, 3), "they are being made");
    let killed = machine.operation();
    killed.kill();
    assert!(storage.run_build(&killed, &build).is_err());
    assert_eq!(tables(), before);
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert!(collection.building_indexes().is_empty());
    storage.assert_valid(&op, "c");
    // Who wants another one with the same name waits for the new one, and makes that over.
    let (build, _) = storage.start_rebuild(&op, &ns("c")).unwrap();
    std::thread::scope(|scope| {
        let changed = scope.spawn(|| storage.make_index_non_unique(&machine.operation(), &ns("c"), "x_1"));
        storage.run_build(&op, &build).unwrap();
        changed.join().unwrap().unwrap();
    });
    storage.put(&op, "c", document(6, 3)).unwrap();
    storage.assert_valid(&op, "c");
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert_eq!((collection.indexes().len(), tables()[2]), (3, build.tables[1]));
}

/// What others had given it meanwhile, a unique index or a validator, was lost.
#[test]
fn a_collection_replaces_only_what_it_was_made_after() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let options = rawdoc! { "validator": { "x": 1 } };
    let by = |field| index("by", field, rawdoc! { "unique": true });
    let changes: [&dyn Fn(); 3] = [
        &|| {
            assert!(
                !storage
                    .create_indexes(&op, &ns("c"), &[by(rawdoc! { "a": 1 })])
                    .unwrap()
                    .all_existed
            )
        },
        &|| assert_eq!(storage.drop_all_indexes(&op, &ns("c")).unwrap(), 2),
        &|| {
            let change = CollectionChange {
                unset_options: vec!["validator".to_owned()],
                ..CollectionChange::default()
            };
            storage.modify_collection(&op, &ns("c"), &change).unwrap();
        },
    ];
    storage.make(&op, "c", options.clone());
    for change in changes {
        let there = storage.catalog().collection(&ns("c")).unwrap();
        storage.make(&op, "made", there.options().to_owned());
        let specs: Vec<_> = there
            .indexes()
            .iter()
            .map(|index| index.parsed_spec().clone())
            .collect();
        storage.create_indexes(&op, &ns("made"), &specs[1..]).unwrap();
        change();
        let replaced = storage.replace_collection(&op, &ns("made"), &ns("c"));
        assert!(matches!(replaced, Err(StorageError::TargetChanged(..))), "{replaced:?}");
        assert_eq!(storage.catalog().collection(&ns("c")).unwrap().uuid(), there.uuid());
        storage.drop_collection(&op, &ns("made")).unwrap();
    }
    storage.make(&op, "made", rawdoc! {});
    storage.replace_collection(&op, &ns("made"), &ns("c")).unwrap();
    assert!(storage.catalog().collection(&ns("made")).is_none());
}
