//! Index builds: conflicts, failures, writers beside them, interruptions.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::PinnedView;
use crate::testing::{Calls, Machine, index, ns};
use bson::{doc, rawdoc};
use engine::Seq;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

fn unique_u() -> IndexSpec {
    index("u_1", rawdoc! { "u": 1 }, rawdoc! { "unique": true })
}

#[test]
fn reports_and_conflicts() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let make = |specs: &[IndexSpec]| storage.create_indexes(&op, &ns("c"), specs);
    let a = index("a_1", rawdoc! { "a": 1 }, rawdoc! {});
    let report = make(std::slice::from_ref(&a)).unwrap();
    assert_eq!(
        report,
        CreateIndexesReport {
            before: 1,
            after: 2,
            created_collection: true,
            all_existed: false,
            was_built: false
        }
    );
    let report = make(std::slice::from_ref(&a)).unwrap();
    assert_eq!(
        report,
        CreateIndexesReport {
            before: 2,
            after: 2,
            created_collection: false,
            all_existed: true,
            was_built: false
        }
    );
    let renamed = make(&[index("other", rawdoc! { "a": 1 }, rawdoc! {})]);
    assert!(
        matches!(renamed, Err(StorageError::IndexOptionsConflict(_))),
        "{renamed:?}"
    );
    let rekeyed = make(&[index("a_1", rawdoc! { "b": 1 }, rawdoc! {})]);
    assert!(
        matches!(rekeyed, Err(StorageError::IndexKeySpecsConflict(_))),
        "{rekeyed:?}"
    );
    let changed = make(&[index("a_1", rawdoc! { "a": 1 }, rawdoc! { "unique": true })]);
    assert!(
        matches!(changed, Err(StorageError::IndexKeySpecsConflict(_))),
        "{changed:?}"
    );
    let unknown = make(&[index("t", rawdoc! { "a": "text" }, rawdoc! {})]);
    assert!(
        matches!(unknown, Err(StorageError::CannotCreateIndex(_))),
        "{unknown:?}"
    );
    let numbered = |n: usize| {
        let key = RawDocumentBuf::try_from(&doc! { format!("f{n}"): 1 }).unwrap();
        index(&format!("i{n}"), key, rawdoc! {})
    };
    let many: Vec<_> = (0..INDEXES_MAX).map(numbered).collect();
    assert!(matches!(make(&many), Err(StorageError::CannotCreateIndex(_))));
    make(&many[..INDEXES_MAX - 2]).unwrap();
    assert_eq!(
        storage.catalog().collection(&ns("c")).unwrap().indexes().len(),
        INDEXES_MAX
    );
}

#[test]
fn a_duplicate_or_parallel_array_ends_the_build_and_the_indexes_are_gone() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    for id in 0..300 {
        storage
            .put(&op, "c", rawdoc! { "_id": id, "u": id % 299, "a": [1], "b": [id] })
            .unwrap();
    }
    let tables = storage.engine().tables().unwrap().len();
    let good = index("good", rawdoc! { "a": 1 }, rawdoc! {});
    let failed = storage.create_indexes(&op, &ns("c"), &[good.clone(), unique_u()]);
    assert!(
        matches!(&failed, Err(StorageError::DuplicateKey(facts)) if facts.key_value == rawdoc! { "u": 0 }),
        "{failed:?}"
    );
    let failed = storage.create_indexes(&op, &ns("c"), &[index("ab", rawdoc! { "a": 1, "b": 1 }, rawdoc! {})]);
    assert!(
        matches!(failed, Err(StorageError::CannotIndexParallelArrays(_))),
        "{failed:?}"
    );
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert_eq!(
        (collection.indexes().len(), collection.building_indexes().len()),
        (1, 0)
    );
    assert_eq!(storage.engine().tables().unwrap().len(), tables);
    assert_eq!(storage.create_indexes(&op, &ns("c"), &[good]).unwrap().after, 2);
    storage.assert_valid(&op, "c");
}

#[test]
fn writers_go_on_beside_a_build() {
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    let op = machine.operation();
    storage.make(&op, "c", rawdoc! {});
    for id in 0..1000 {
        storage
            .put(&op, "c", rawdoc! { "_id": id, "u": id, "n": [id % 7, id % 3] })
            .unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (storage, machine, done) = (&storage, &machine, &done);
            scope.spawn(move || {
                let op = machine.operation();
                let mut n = 0;
                // Not for ever: where other programs take the processors, they outrun the builds.
                while n < 200 || (!done.load(Ordering::SeqCst) && n < 20_000) {
                    let id = RecordId::Number(1 + (n * 37 + writer) % 1000);
                    let _id = id.number() as i32 - 1;
                    match n % 3 {
                        0 => storage.remove(&op, "c", id).unwrap(),
                        1 => {
                            let fresh = (5000 + n * 2 + writer) as i32;
                            storage
                                .put(&op, "c", rawdoc! { "_id": fresh, "u": fresh, "n": [1] })
                                .unwrap();
                        }
                        _ => {
                            let guard = storage.locked(&op, "c");
                            let mut unit = storage.begin_write(&op);
                            if let Some(old) = unit.lock_record(&guard, &id).unwrap() {
                                let old = RawDocument::from_bytes(old.as_ref()).unwrap();
                                let u = 100_000 + (n * 2 + writer) as i32;
                                let new = rawdoc! { "_id": _id, "u": u, "n": u % 5 };
                                match unit.update(&guard, &id, old, &new) {
                                    Ok(()) | Err(StorageError::WouldWait) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                            unit.commit().unwrap();
                        }
                    }
                    n += 1;
                }
            });
        }
        let specs = [unique_u(), index("n_1_u_-1", rawdoc! { "n": 1, "u": -1 }, rawdoc! {})];
        for _ in 0..5 {
            storage.create_indexes(&op, &ns("c"), &specs).unwrap();
            storage
                .drop_indexes(&op, &ns("c"), &["u_1".to_owned(), "n_1_u_-1".to_owned()])
                .unwrap();
        }
        storage.create_indexes(&op, &ns("c"), &specs).unwrap();
        done.store(true, Ordering::SeqCst);
    });
    storage.assert_valid(&op, "c");
    let expected = storage.all("c");
    storage.wait_durable(storage.last_seq()).unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!(storage.all("c"), expected);
    storage.assert_valid(&op, "c");
}

/// While a unique index is being built, a document may give up a key that another one holds in the index.
#[test]
fn a_hidden_duplicate_does_not_take_the_other_ones_row_away() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let first = storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let second = storage.put(&op, "c", rawdoc! { "_id": 2, "u": 7 }).unwrap();
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    let guard = storage.build_guard(&op, &build).unwrap();
    storage
        .build_chunk(&op, &guard, &build, [first.clone()].into_iter(), (&first, &first))
        .unwrap();
    drop(guard);
    storage.remove(&op, "c", second).unwrap();
    // The walk would find nothing more.
    storage.end_build(&op, &build, true).unwrap();
    storage.assert_valid(&op, "c");
    assert_eq!(storage.catalog().collection(&ns("c")).unwrap().indexes().len(), 2);
}

#[test]
fn a_dropped_index_or_collection_ends_its_build() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    storage.drop_index(&op, &ns("c"), "u_1").unwrap();
    assert!(matches!(
        storage.run_build(&op, &build),
        Err(StorageError::IndexBuildAborted(_))
    ));
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    storage.drop_collection(&op, &ns("c")).unwrap();
    assert!(matches!(
        storage.run_build(&op, &build),
        Err(StorageError::IndexBuildAborted(_))
    ));
}

/// The others of its command stayed as they were, building, with nobody to build them.
#[test]
fn a_dropped_index_takes_the_others_of_its_build_along() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let v = index("v_1", rawdoc! { "v": 1 }, rawdoc! {});
    let started = storage.start_build(&op, &ns("c"), &[unique_u(), v.clone()]);
    let build = started.unwrap().build.unwrap();
    storage.drop_index(&op, &ns("c"), "u_1").unwrap();
    let ended = storage.run_build(&op, &build);
    assert!(matches!(ended, Err(StorageError::IndexBuildAborted(_))), "{ended:?}");
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert_eq!(collection.maintained().count(), 1);
    assert!(storage.create_indexes(&op, &ns("c"), &[v]).unwrap().was_built);
    storage.assert_valid(&op, "c");
}

/// A start makes one build of all that was being built: one that failed took those of other commands along.
#[test]
fn a_resumed_build_that_fails_leaves_those_of_other_commands() {
    let machine = Machine::new(1);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    for id in 0..2 {
        storage.put(&op, "c", rawdoc! { "_id": id, "u": 7, "v": id }).unwrap();
    }
    for spec in [unique_u(), index("v_1", rawdoc! { "v": 1 }, rawdoc! {})] {
        storage.start_build(&op, &ns("c"), &[spec]).unwrap();
    }
    storage.close(true).unwrap();
    storage = machine.open().unwrap();
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let names: Vec<_> = collection.maintained().map(|index| index.name()).collect();
    assert_eq!(names, ["_id_", "v_1"]);
    assert!(collection.building_indexes().is_empty());
    storage.assert_valid(&op, "c");
}

#[test]
fn a_killed_build_is_taken_back() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    let killed = machine.operation();
    killed.kill();
    assert!(matches!(
        storage.run_build(&killed, &build),
        Err(StorageError::Interrupted(Interrupted::Killed))
    ));
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert_eq!(
        (collection.indexes().len(), collection.building_indexes().len()),
        (1, 0)
    );
}

/// It waited for a reader for as long as that read, though its time was over, and no other reader came in meanwhile.
#[test]
fn a_build_whose_time_is_over_waits_for_no_reader_to_be_given_up() {
    let mut machine = Machine::new(1);
    machine.background = true;
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let started = storage.start_build(&op, &ns("c"), &[unique_u()]);
    let build = started.unwrap().build.unwrap();
    let building = || storage.catalog().collection(&ns("c")).unwrap().building_indexes().len();
    let read = || storage.collection(&machine.operation(), &ns("c"), LockMode::IntentShared);
    let reader = read().unwrap().unwrap();
    let killed = machine.operation();
    killed.kill();
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| storage.run_build(&killed, &build));
        while !ended.is_finished() {
            machine.clock.advance(std::time::Duration::from_millis(100));
            std::thread::yield_now();
        }
        let ended = ended.join().unwrap();
        assert!(
            matches!(ended, Err(StorageError::Interrupted(Interrupted::Killed))),
            "{ended:?}"
        );
    });
    assert_eq!(building(), 1);
    drop(reader);
    let again = storage.wait_for_builds(&op, &build);
    assert!(matches!(again, Err(StorageError::IndexBuildAborted(_))), "{again:?}");
    assert_eq!(building(), 0);
    storage.close(true).unwrap();
}

/// Who gave a build up and waited while leadership went and came back dropped what another builder had made ready.
#[test]
fn an_index_that_is_ready_is_not_given_up() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let started = storage.start_build(&op, &ns("c"), &[unique_u()]);
    let build = started.unwrap().build.unwrap();
    storage.run_build(&op, &build).unwrap();
    storage.end_build(&op, &build, false).unwrap();
    assert!(storage.catalog().collection(&ns("c")).unwrap().index("u_1").is_some());
    storage.assert_valid(&op, "c");
}

/// A build that met a full disk could not be given up either, for want of space for that entry: its indexes were
/// building for ever, by nobody, and whoever asked for them again waited for ever.
#[test]
fn a_build_that_meets_a_full_disk_is_given_up_when_there_is_room() {
    let mut machine = Machine::new(1);
    machine.background = true;
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let put = |id: i32| storage.put(&op, "c", rawdoc! { "_id": id, "u": id, "s": "x".repeat(3000) });
    put(0).unwrap();
    // It ends in the walk, or behind it.
    for walks in [true, false] {
        let build = storage
            .start_build(&op, &ns("c"), &[unique_u()])
            .unwrap()
            .build
            .unwrap();
        if !walks {
            storage.walk(&op, &build).unwrap();
        }
        machine.fs.set_free_bytes(Some(0));
        let mut id = storage.all("c").len() as i32;
        while put(id).is_ok() {
            id += 1;
        }
        // What is left has no room for a small entry either.
        while storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).is_ok() {
            id += 1;
        }
        let ended = match walks {
            true => storage.run_build(&op, &build),
            false => storage
                .end_build(&op, &build, true)
                .or_else(|error| storage.give_build_up(&op, &build, error)),
        };
        assert!(matches!(ended, Err(StorageError::OutOfSpace(_))), "{ended:?}");
        let building = || storage.catalog().collection(&ns("c")).unwrap().building_indexes().len();
        assert_eq!(building(), 1, "there is no room to say that it is not");
        machine.fs.set_free_bytes(None);
        let again = storage.wait_for_builds(&op, &build);
        assert!(matches!(again, Err(StorageError::IndexBuildAborted(_))), "{again:?}");
        assert_eq!(building(), 0);
    }
    storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
    storage.assert_valid(&op, "c");
    storage.close(true).unwrap();
}

#[test]
fn an_interrupted_build_goes_on_after_reopening() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    for id in 0..10 {
        storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).unwrap();
    }
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    let guard = storage.build_guard(&op, &build).unwrap();
    let half = (1..=5).map(RecordId::Number);
    storage
        .build_chunk(&op, &guard, &build, half, (&RecordId::Number(1), &RecordId::Number(5)))
        .unwrap();
    drop(guard);
    storage.put(&op, "c", rawdoc! { "_id": 10, "u": 10 }).unwrap();
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert!(collection.index("u_1").is_some());
    storage.assert_valid(&op, "c");
}

#[test]
fn the_successor_of_a_unique_index_takes_its_place_after_reopening() {
    let machine = Machine::new(1);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    for id in 0..10 {
        storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).unwrap();
    }
    storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
    // One that is dropped is dropped with its successor.
    let (build, _) = storage.start_successor(&op, &ns("c"), "u_1").unwrap();
    storage.drop_index(&op, &ns("c"), "u_1").unwrap();
    let gone = storage.run_build(&op, &build);
    assert!(matches!(gone, Err(StorageError::IndexBuildAborted(_))), "{gone:?}");
    storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
    // One whose build is given up stays as it is.
    let (build, _) = storage.start_successor(&op, &ns("c"), "u_1").unwrap();
    let killed = machine.operation();
    killed.kill();
    assert!(storage.run_build(&killed, &build).is_err());
    let (build, elsewhere) = storage.start_successor(&op, &ns("c"), "u_1").unwrap();
    assert_eq!((build.tables.len(), elsewhere.tables.len()), (1, 0));
    let guard = storage.build_guard(&op, &build).unwrap();
    let half = (1..=5).map(RecordId::Number);
    storage
        .build_chunk(&op, &guard, &build, half, (&RecordId::Number(1), &RecordId::Number(5)))
        .unwrap();
    drop(guard);
    let duplicate = storage.put(&op, "c", rawdoc! { "_id": 11, "u": 3 });
    assert!(matches!(duplicate, Err(StorageError::DuplicateKey(_))), "not yet");
    storage.put(&op, "c", rawdoc! { "_id": 10, "u": 10 }).unwrap();
    let (build, elsewhere) = storage.start_successor(&op, &ns("c"), "u_1").unwrap();
    assert_eq!(
        (build.tables.len(), elsewhere.tables.len()),
        (0, 1),
        "it waits for the first one"
    );
    // What changes of the index meanwhile changes of both.
    let hidden = crate::CollectionChange {
        index: Some(crate::IndexChange {
            name: "u_1".to_owned(),
            hidden: Some(true),
            ..crate::IndexChange::default()
        }),
        ..crate::CollectionChange::default()
    };
    storage.modify_collection(&op, &ns("c"), &hidden).unwrap();
    storage.close(true).unwrap();
    storage = machine.open().unwrap();
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    assert_eq!(
        (collection.indexes().len(), collection.building_indexes().len()),
        (2, 0)
    );
    let index = collection.index("u_1").unwrap();
    assert!(!index.unique() && index.hidden());
    storage.put(&op, "c", rawdoc! { "_id": 11, "u": 3 }).unwrap();
    storage.assert_valid(&op, "c");
}

/// In a snapshot from the middle of a build the index has a part of the documents.
#[test]
fn what_was_built_later_is_not_read_in_an_older_snapshot() {
    for makes_non_unique in [false, true] {
        let machine = Machine::new(1);
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "c", rawdoc! {});
        for id in 0..10 {
            storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).unwrap();
        }
        let build = match makes_non_unique {
            true => {
                storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
                storage.start_successor(&op, &ns("c"), "u_1").unwrap().0
            }
            false => storage
                .start_build(&op, &ns("c"), &[unique_u()])
                .unwrap()
                .build
                .unwrap(),
        };
        let guard = storage.build_guard(&op, &build).unwrap();
        let half = (1..=5).map(RecordId::Number);
        storage
            .build_chunk(&op, &guard, &build, half, (&RecordId::Number(1), &RecordId::Number(5)))
            .unwrap();
        drop(guard);
        let mut older = storage.begin_transaction().unwrap();
        let pinned = storage.read_pinned().unwrap();
        storage.run_build(&op, &build).unwrap();
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        let read = |pinned: &PinnedView| {
            let guard = storage.collection(&op, &ns("c"), LockMode::IntentShared).unwrap();
            pinned.readable(storage.catalog(), &ns("c"), guard).unwrap().unwrap()
        };
        let shown = read(&pinned);
        assert_eq!((shown.indexes().len(), shown.building_indexes().len()), (1, 0));
        // Their plans are not kept as one.
        assert_eq!((shown.indexes_left_out(), collection.indexes_left_out()), (1, 0));
        let index = collection.index("u_1").unwrap().clone();
        let read_anew = older.collection(&op, &ns("c"), LockMode::IntentShared);
        assert!(matches!(read_anew, Err(StorageError::SnapshotUnavailable(_))));
        drop((older, shown));
        let mut newer = storage.begin_transaction().unwrap();
        assert!(newer.collection(&op, &ns("c"), LockMode::IntentShared).is_ok());
        let pinned = storage.read_pinned().unwrap();
        drop(newer);
        storage.create_indexes(&op, &ns("c"), &[index_of("later")]).unwrap();
        let left: Vec<_> = read(&pinned).indexes()[1..].iter().map(|index| index.table()).collect();
        assert_eq!(left, [index.table()], "what was ready then stays");
    }
}

fn index_of(field: &str) -> IndexSpec {
    let mut key = RawDocumentBuf::new();
    key.append(bson::raw::CString::try_from(field.to_owned()).unwrap(), 1);
    index(field, key, rawdoc! {})
}

/// A build waited for a majority behind each chunk: between servers far apart it took hours for that alone.
#[test]
fn chunks_wait_together_where_others_decide() {
    let machine = Machine::new(1);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    let documents = 5 * BUILD_CHUNK_DOCUMENTS as i64;
    // The collection, its documents, and the beginning of the build.
    let decided = Seq(storage.last_seq().0 + 2 + documents as u64);
    storage.commit_to(decided).unwrap();
    storage.make(&op, "c", rawdoc! {});
    for id in 0..documents {
        storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).unwrap();
    }
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    assert_eq!(storage.last_seq(), decided);
    std::thread::scope(|scope| {
        let built = scope.spawn(|| storage.run_build(&op, &build));
        while storage.log().last_seq().0 < decided.0 + 5 {
            std::thread::yield_now();
        }
        assert_eq!(storage.last_seq(), decided, "nothing of it was decided");
        while !built.is_finished() {
            storage.commit_to(storage.log().last_seq()).unwrap();
        }
        built.join().unwrap().unwrap();
    });
    assert!(storage.catalog().collection(&ns("c")).unwrap().index("u_1").is_some());
    storage.assert_valid(&op, "c");
}

#[test]
fn an_operation_tells_how_far_its_build_is() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let walked = 2 * BUILD_CHUNK_DOCUMENTS as u64;
    let documents = walked + 2;
    for id in 0..documents as i64 {
        // The last two are alike.
        let u = id.min(documents as i64 - 2);
        storage.put(&op, "c", rawdoc! { "_id": id, "u": u }).unwrap();
    }
    let builder = machine.operation();
    assert_eq!(builder.build_progress(), None);
    let failed = storage.create_indexes(&builder, &ns("c"), &[unique_u()]);
    assert!(matches!(failed, Err(StorageError::DuplicateKey(_))), "{failed:?}");
    assert_eq!(builder.build_progress(), Some((walked, documents)));
    storage
        .create_indexes(&builder, &ns("c"), &[index_of("u"), index_of("v")])
        .unwrap();
    assert_eq!(builder.build_progress(), Some((documents, documents)));
    // The count may be an older one, and others may write meanwhile.
    builder.begins_walk(0);
    assert_eq!(builder.build_progress(), Some((0, 1)));
    builder.has_walked(5);
    assert_eq!(builder.build_progress(), Some((5, 5)));
}

#[test]
fn a_second_command_waits_for_the_first_ones_build() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let build = storage
        .start_build(&op, &ns("c"), &[unique_u()])
        .unwrap()
        .build
        .unwrap();
    let impatient = machine.operation();
    impatient.kill();
    let waits = storage.wait_for_builds(&impatient, &build);
    assert!(matches!(waits, Err(StorageError::Interrupted(_))), "{waits:?}");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| storage.create_indexes(&machine.operation(), &ns("c"), &[unique_u()]));
        storage.run_build(&op, &build).unwrap();
        assert!(second.join().unwrap().unwrap().all_existed);
    });
    let same = index("u_1", rawdoc! { "u": 1.0 }, rawdoc! { "unique": true });
    assert!(
        storage.create_indexes(&op, &ns("c"), &[same]).unwrap().all_existed,
        "1.0 is 1"
    );
}

/// It waited for every transaction that had touched the collection, and everybody else waited for it.
#[test]
fn what_exists_or_conflicts_is_told_without_a_lock() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
    let build = || storage.start_build(&op, &ns("c"), &[index("v_1", rawdoc! { "v": 1 }, rawdoc! {})]);
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": 7 }).unwrap();
    let unfinished = build().unwrap().build.unwrap();
    let other = machine.operation();
    let guard = storage.collection(&other, &ns("c"), LockMode::IntentExclusive).unwrap();
    let asking = machine.operation();
    let id = index("_id_", rawdoc! { "_id": 1 }, rawdoc! {});
    let other_options = index("u_1", rawdoc! { "u": 1 }, rawdoc! {});
    let (done, told) = mpsc::channel::<()>();
    let (existing, conflicting) = std::thread::scope(|scope| {
        // Otherwise it would wait forever.
        let kill = || asking.kill();
        scope.spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = told.recv_timeout(Duration::from_secs(20)) {
                kill();
            }
        });
        let existing = storage.create_indexes(&asking, &ns("c"), &[unique_u(), id]);
        let conflicting = storage.create_indexes(&asking, &ns("c"), &[other_options]);
        drop(done);
        (existing, conflicting)
    });
    let report = existing.unwrap();
    assert!(report.all_existed, "{report:?}");
    assert_eq!((report.before, report.after), (3, 3));
    assert!(
        matches!(conflicting, Err(StorageError::IndexKeySpecsConflict(_))),
        "{conflicting:?}"
    );
    assert_eq!(build().unwrap().elsewhere.tables, unfinished.tables);
    drop(guard);
}

/// Without a journal a crash may leave an older count: at 0, indexes were made without a walk and had nothing in them.
#[test]
fn whether_there_is_anything_to_build_from_does_not_go_by_the_count() {
    for (makes_non_unique, rebuilds) in [(false, false), (true, false), (false, true)] {
        let mut machine = Machine::new(9);
        machine.journal = false;
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "c", rawdoc! {});
        let is_there_before = makes_non_unique || rebuilds;
        if is_there_before {
            storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
        }
        storage.checkpoint().unwrap();
        for id in 0..3 {
            storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).unwrap();
        }
        // The engine's own checkpoint, a moment later.
        storage.engine().checkpoint().unwrap();
        machine.fs.crash();
        machine.fs.restart();
        let storage = machine.open().unwrap();
        assert_eq!(storage.catalog().collection(&ns("c")).unwrap().count(), 0);
        if !is_there_before {
            let report = storage.create_indexes(&op, &ns("c"), &[unique_u()]).unwrap();
            assert!(report.was_built);
        }
        if makes_non_unique {
            storage.make_index_non_unique(&op, &ns("c"), "u_1").unwrap();
        }
        if rebuilds {
            storage.rebuild_indexes(&op, &ns("c")).unwrap();
        }
        let again = storage.put(&op, "c", rawdoc! { "_id": 9, "u": 1 });
        assert_eq!(again.is_ok(), makes_non_unique);
        let report = storage.validate(&op, &ns("c"), true).unwrap();
        assert!(report.is_valid(), "{report:?}");
    }
}
