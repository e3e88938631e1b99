//! The write path: what a unit sees, checks, locks and leaves behind.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::catalog::rows::Meta;
use crate::fold::Replay;
use crate::testing::{Calls, EqualCompiler, Kind, Machine, index, ns};
use crate::{DuplicateKey, LockMode, Namespace, StorageOptions};
use bson::{RawDocumentBuf, doc, rawdoc};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;

fn duplicate(result: Result<impl std::fmt::Debug, StorageError>) -> DuplicateKey {
    match result {
        Err(StorageError::DuplicateKey(facts)) => *facts,
        other => panic!("expected a duplicate key, got {other:?}"),
    }
}

fn parsed(bytes: &Bytes) -> &RawDocument {
    RawDocument::from_bytes(bytes.as_ref()).unwrap()
}

#[test]
fn inserted_documents_are_found_by_id_and_record() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let id = storage.put(&op, "c", rawdoc! { "_id": 5, "a": 1 }).unwrap();
    let guard = storage.locked(&op, "c");
    let view = storage.read().unwrap();
    let mut key = Vec::new();
    keys::key::encode_value(
        &mut key,
        bson::raw::RawBsonRef::Int32(5),
        keys::FieldOrder::Ascending,
        None,
    );
    assert_eq!(view.find_unique(guard.id_index(), &key).unwrap(), Some(id.clone()));
    assert_eq!(
        view.record(&guard, &id).unwrap().unwrap(),
        rawdoc! { "_id": 5, "a": 1 }.as_bytes()
    );
    assert_eq!(
        (guard.count(), guard.data_bytes()),
        (1, rawdoc! { "_id": 5, "a": 1 }.as_bytes().len() as u64)
    );
    drop(guard);
    storage.assert_valid(&op, "c");
}

#[test]
fn record_ids_go_on_where_they_were_when_the_collection_was_opened() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    for name in ["removed", "raced"] {
        storage.make(&op, name, rawdoc! {});
        for n in 1..=3 {
            storage.put(&op, name, rawdoc! { "_id": n }).unwrap();
        }
    }
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    // Whoever reads on behind the last record misses none that comes later, even if that one has gone.
    storage.remove(&op, "removed", RecordId::Number(3)).unwrap();
    assert_eq!(
        storage.put(&op, "removed", rawdoc! { "_id": 4 }).unwrap(),
        RecordId::Number(4)
    );
    let start = Barrier::new(8);
    let mut ids: Vec<RecordId> = std::thread::scope(|scope| {
        let insert = |n: i32| {
            start.wait();
            storage
                .put(&machine.operation(), "raced", rawdoc! { "_id": n })
                .unwrap()
        };
        let threads: Vec<_> = (10..18).map(|n| scope.spawn(move || insert(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    ids.sort_unstable();
    assert_eq!(ids, (4..12).map(RecordId::Number).collect::<Vec<_>>());
    storage.assert_valid(&op, "removed");
    storage.assert_valid(&op, "raced");
}

#[test]
fn a_dropped_unit_leaves_nothing() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let (guard, before) = (storage.locked(&op, "c"), storage.last_seq());
    let mut unit = storage.begin_write(&op);
    unit.insert(&guard, &rawdoc! { "_id": 1 }).unwrap();
    assert!(!unit.is_empty() && unit.operations() == 1 && unit.bytes() > 20);
    drop(unit);
    assert_eq!(
        (storage.last_seq(), guard.count(), storage.stats().locks_held),
        (before, 0, 0)
    );
    assert!(
        storage.begin_write(&op).commit().unwrap() == before,
        "an empty unit is no entry"
    );
    drop(guard);
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
}

#[test]
fn duplicates_are_reported_with_their_facts_and_change_nothing() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(
            &op,
            &ns("c"),
            &[index(
                "u_1_v_-1",
                rawdoc! { "u": 1, "v": -1 },
                rawdoc! { "unique": true },
            )],
        )
        .unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 1, "u": "x" }).unwrap();
    let facts = duplicate(storage.put(&op, "c", rawdoc! { "_id": 1, "u": "y" }));
    assert_eq!((facts.index.as_str(), facts.key_value), ("_id_", rawdoc! { "_id": 1 }));
    let facts = duplicate(storage.put(&op, "c", rawdoc! { "_id": 2, "u": "x" }));
    assert_eq!(facts.key_value, rawdoc! { "u": "x", "v": null });
    assert_eq!(
        (facts.key_pattern, facts.namespace),
        (rawdoc! { "u": 1, "v": -1 }, ns("c"))
    );

    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.insert(&guard, &rawdoc! { "_id": 3, "u": "z" }).unwrap();
    let (operations, bytes, locks) = (unit.operations(), unit.bytes(), unit.evaluator.holding.locks.len());
    duplicate(unit.insert(&guard, &rawdoc! { "_id": 4, "u": "z" }));
    assert_eq!(
        (unit.operations(), unit.bytes(), unit.evaluator.holding.locks.len()),
        (operations, bytes, locks),
        "as before the call"
    );
    unit.insert(&guard, &rawdoc! { "_id": 4, "u": "w" }).unwrap();
    unit.commit().unwrap();
    assert_eq!(guard.count(), 3);
    drop(guard);
    storage.assert_valid(&op, "c");
}

#[test]
fn a_unit_sees_its_own_changes() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let first = storage.put(&op, "c", rawdoc! { "_id": 1, "n": 0 }).unwrap();
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    for n in 1..40 {
        let old = unit.lock_record(&guard, &first).unwrap().unwrap();
        assert_eq!(parsed(&old).get_i32("n").unwrap(), n - 1);
        unit.update(&guard, &first, parsed(&old), &rawdoc! { "_id": 1, "n": n })
            .unwrap();
        unit.insert(&guard, &rawdoc! { "_id": 100 + n }).unwrap();
        duplicate(unit.insert(&guard, &rawdoc! { "_id": 100 + n }));
    }
    let old = unit.lock_record(&guard, &first).unwrap().unwrap();
    unit.delete(&guard, &first, parsed(&old)).unwrap();
    assert!(unit.lock_record(&guard, &first).unwrap().is_none());
    unit.insert(&guard, &rawdoc! { "_id": 1, "again": true }).unwrap();
    assert_eq!(guard.count(), 1, "nothing is visible before the commit");
    unit.commit().unwrap();
    assert_eq!(guard.count(), 40);
    drop(guard);
    storage.assert_valid(&op, "c");
}

#[test]
fn one_field_arrays_in_two_fields_are_refused() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(&op, &ns("c"), &[index("ab", rawdoc! { "a": 1, "b": 1 }, rawdoc! {})])
        .unwrap();
    storage
        .put(&op, "c", rawdoc! { "_id": 1, "a": [1, 2], "b": 3 })
        .unwrap();
    let refused = storage.put(&op, "c", rawdoc! { "_id": 2, "a": [1], "b": [2] });
    assert!(
        matches!(refused, Err(StorageError::CannotIndexParallelArrays(_))),
        "{refused:?}"
    );
    let guard = storage.locked(&op, "c");
    let multikey = guard.index("ab").unwrap().multikey();
    assert_eq!(multikey.iter().collect::<Vec<_>>(), [(0, 0)]);
    drop(guard);
    storage.assert_valid(&op, "c");
}

#[test]
fn documents_without_id_in_front_or_too_large_are_refused() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    assert!(matches!(
        storage.put(&op, "c", rawdoc! { "a": 1, "_id": 1 }),
        Err(StorageError::InvalidDocument(_))
    ));
    let fitting = STORED_DOCUMENT_BYTES_MAX - rawdoc! { "_id": 1, "s": "" }.as_bytes().len();
    storage
        .put(&op, "c", rawdoc! { "_id": 1, "s": "x".repeat(fitting) })
        .unwrap();
    let refused = storage.put(&op, "c", rawdoc! { "_id": 2, "s": "x".repeat(fitting + 1) });
    assert!(matches!(refused, Err(StorageError::DocumentTooLarge { .. })));
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.insert(&guard, &rawdoc! { "_id": 3, "s": "x".repeat(fitting) })
        .unwrap();
    unit.insert(&guard, &rawdoc! { "_id": 4, "s": "x".repeat(fitting) })
        .unwrap();
    let full = unit.insert(&guard, &rawdoc! { "_id": 5, "s": "x".repeat(fitting) });
    assert!(matches!(full, Err(StorageError::UnitTooLarge { .. })), "{full:?}");
    unit.commit().unwrap();
    assert_eq!(guard.count(), 3);
}

/// The batch a unit prepares is the one replay builds from its entry.
#[test]
fn prepared_batches_equal_replayed_ones() {
    let machine = Machine::new(3);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let specs = [
        index("a", rawdoc! { "a": 1 }, rawdoc! {}),
        index("u", rawdoc! { "u": 1 }, rawdoc! { "unique": true, "sparse": true }),
        index(
            "p",
            rawdoc! { "a": -1, "b.c": 1 },
            rawdoc! { "partialFilterExpression": { "p": true } },
        ),
    ];
    storage.create_indexes(&op, &ns("c"), &specs).unwrap();
    storage.make(&op, "capped", rawdoc! { "capped": true, "size": 4096, "max": 3 });
    let first = storage
        .put(&op, "c", rawdoc! { "_id": 1, "a": [1, 2], "u": 1, "p": true })
        .unwrap();
    let second = storage.put(&op, "c", rawdoc! { "_id": 2, "a": 5, "u": 2 }).unwrap();
    let (guard, capped) = (storage.locked(&op, "c"), storage.locked(&op, "capped"));
    let mut unit = storage.begin_write(&op);
    let old = unit.lock_record(&guard, &first).unwrap().unwrap();
    let new = rawdoc! { "_id": 1, "a": [2.0, 3], "u": 3, "b": { "c": [1, 1] } };
    unit.update(&guard, &first, parsed(&old), &new).unwrap();
    let again = rawdoc! { "_id": 1, "a": 2, "b": [{ "c": 7 }], "p": true };
    unit.update(&guard, &first, &new, &again).unwrap();
    let old = unit.lock_record(&guard, &second).unwrap().unwrap();
    unit.delete(&guard, &second, parsed(&old)).unwrap();
    for n in 0..30 {
        unit.insert(&guard, &rawdoc! { "_id": 10 + n, "a": n, "u": 50 + n, "p": true })
            .unwrap();
        unit.insert(&capped, &rawdoc! { "_id": n }).unwrap();
    }
    unit.finish();
    let (seq, mut bytes) = (storage.last_seq().next(), Vec::new());
    unit.changes.entry.hand_over(seq, Default::default(), |entries| {
        assert_eq!(entries.len(), 1);
        bytes = entries[0].concat();
    });
    let (mut replayed, mut replay) = (Effect::default(), Replay(storage.engine().snapshot().unwrap()));
    replayed
        .add_entry(&storage, seq, &bytes, &mut replay, &mut Meta::default())
        .unwrap();
    assert_eq!(unit.changes.effect.batch().ops().len(), replayed.batch().ops().len());
    for (prepared, replayed) in unit.changes.effect.batch().ops().iter().zip(replayed.batch().ops()) {
        assert_eq!(prepared, replayed);
    }
    for c in [&guard, &capped] {
        let (prepared, replayed) = (unit.changes.effect.of(c.definition()), replayed.of(c.definition()));
        assert_eq!(
            (prepared.count, prepared.bytes, prepared.last_inserted),
            (replayed.count, replayed.bytes, replayed.last_inserted)
        );
    }
}

#[test]
fn one_hot_document_loses_no_update() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let id = storage.put(&op, "c", rawdoc! { "_id": 1, "n": 0 }).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let op = machine.operation();
                let guard = storage.locked(&op, "c");
                for _ in 0..200 {
                    let mut unit = storage.begin_write(&op);
                    let old = unit.lock_record(&guard, &id).unwrap().unwrap();
                    let n = parsed(&old).get_i32("n").unwrap();
                    unit.update(&guard, &id, parsed(&old), &rawdoc! { "_id": 1, "n": n + 1 })
                        .unwrap();
                    unit.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(storage.all("c"), [(id, doc! { "_id": 1, "n": 1600 })]);
    assert_eq!(storage.stats().locks_held, 0);
}

#[test]
fn of_racing_inserts_of_one_key_exactly_one_wins() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(
            &op,
            &ns("c"),
            &[index("u", rawdoc! { "u": 1 }, rawdoc! { "unique": true })],
        )
        .unwrap();
    let (wins, barrier) = (AtomicU64::new(0), Barrier::new(6));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (storage, machine, wins, barrier) = (&storage, &machine, &wins, &barrier);
            scope.spawn(move || {
                let op = machine.operation();
                for round in 0..100 {
                    barrier.wait();
                    match storage.put(&op, "c", rawdoc! { "_id": thread * 1000 + round, "u": round }) {
                        Ok(_) => {
                            wins.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(StorageError::DuplicateKey(facts)) => assert_eq!(facts.index, "u"),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(wins.load(Ordering::SeqCst), 100);
    storage.assert_valid(&op, "c");
}

/// Two units that each hold what the other wants: one is told to come back, and its next unit waits for the other.
#[test]
fn crossing_units_do_not_deadlock() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let ids = [1, 2].map(|id| storage.put(&op, "c", rawdoc! { "_id": id, "n": 0 }).unwrap());
    std::thread::scope(|scope| {
        for order in [[0, 1], [1, 0]] {
            let (storage, machine, ids) = (&storage, &machine, &ids);
            scope.spawn(move || {
                let op = machine.operation();
                let guard = storage.locked(&op, "c");
                for _ in 0..300 {
                    'unit: loop {
                        let mut unit = storage.begin_write(&op);
                        for place in order {
                            let old = match unit.lock_record(&guard, &ids[place]) {
                                Err(StorageError::WouldWait) => continue 'unit,
                                other => other.unwrap().unwrap(),
                            };
                            let document = parsed(&old);
                            let (id, n) = (document.get_i32("_id").unwrap(), document.get_i32("n").unwrap());
                            unit.update(&guard, &ids[place], document, &rawdoc! { "_id": id, "n": n + 1 })
                                .unwrap();
                        }
                        unit.commit().unwrap();
                        break;
                    }
                }
            });
        }
    });
    assert_eq!(
        storage
            .all("c")
            .into_iter()
            .map(|(_, d)| d.get_i32("n").unwrap())
            .collect::<Vec<_>>(),
        [600, 600]
    );
}

#[test]
fn a_killed_operation_stops_waiting_for_a_document() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let id = storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.lock_record(&guard, &id).unwrap();
    let other = machine.operation();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let guard = storage.locked(&other, "c");
            storage.begin_write(&other).lock_record(&guard, &id).map(drop)
        });
        other.kill();
        assert!(matches!(waiting.join().unwrap(), Err(StorageError::Interrupted(_))));
    });
    drop(unit);
    assert_eq!(storage.stats().locks_held, 0);
}

#[test]
fn a_collection_may_be_dropped_and_made_again_under_writers_and_readers() {
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (storage, machine, written) = (&storage, &machine, &written);
            scope.spawn(move || {
                let op = machine.operation();
                for n in 0..300 {
                    let Some(guard) = storage.collection(&op, &ns("c"), LockMode::IntentExclusive).unwrap() else {
                        continue;
                    };
                    let mut unit = storage.begin_write(&op);
                    match unit.insert(&guard, &rawdoc! { "_id": thread * 1000 + n }) {
                        Ok(_) | Err(StorageError::DuplicateKey(_)) => {}
                        Err(other) => panic!("{other}"),
                    }
                    unit.commit().unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                    let view = storage.read().unwrap();
                    view.record(&guard, &RecordId::Number(1)).unwrap();
                }
            });
        }
        scope.spawn(|| {
            let op = machine.operation();
            for _ in 0..60 {
                match storage.create_collection(&op, &ns("c"), &RawDocumentBuf::new()) {
                    Ok(()) | Err(StorageError::NamespaceExists(_)) => {}
                    Err(other) => panic!("{other}"),
                }
                storage.drop_collection(&op, &ns("c")).unwrap();
            }
            storage.make(&op, "c", rawdoc! {});
        });
    });
    let op = machine.operation();
    storage.assert_valid(&op, "c");
    let tables = storage.engine().tables().unwrap();
    assert_eq!(tables.len(), 4, "catalog, statistics, records and _id_: {tables:?}");
}

#[test]
fn a_failed_log_stops_writing_and_tells() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let told = Arc::new(AtomicU64::new(0));
    let teller = told.clone();
    storage.subscribe_failure(Box::new(move |_| {
        teller.fetch_add(1, Ordering::SeqCst);
    }));
    machine.fs.inject(vfs::Fault::new(vfs::FaultKind::SyncError).times(100));
    let id = storage.put(&op, "c", rawdoc! { "_id": 1 });
    assert!(id.is_ok());
    assert!(storage.wait_durable(storage.last_seq()).is_err());
    machine.fs.clear_faults();
    let refused = storage.put(&op, "c", rawdoc! { "_id": 2 });
    assert!(matches!(refused, Err(StorageError::Stopped(_))), "{refused:?}");
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert!(storage.read().is_ok(), "reading goes on");
}

/// An engine that stopped in the background, or for somebody else, left a server that answered nothing and did not end.
#[test]
fn an_engine_that_stops_by_itself_stops_the_storage() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.checkpoint().unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let teller = told.clone();
    storage.subscribe_failure(Box::new(move |_| {
        teller.fetch_add(1, Ordering::SeqCst);
    }));
    let mut batch = engine::Batch::new();
    batch.put(engine::TableId(u32::MAX), b"key".to_vec(), b"value".to_vec());
    let failed = storage.engine().apply(&batch, storage.last_seq().next());
    assert!(failed.is_err(), "there is no such table");
    assert_eq!(told.load(Ordering::SeqCst), 1);
    let refused = storage.put(&op, "c", rawdoc! { "_id": 1 });
    assert!(matches!(refused, Err(StorageError::Stopped(_))), "{refused:?}");
}

#[test]
fn names_of_views_are_no_collections() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage
        .create_view(&op, &ns("v"), "c", bson::RawArrayBuf::new(), &rawdoc! {})
        .unwrap();
    let view = storage.collection(&op, &ns("v"), LockMode::IntentShared);
    assert!(matches!(view, Err(StorageError::IsView(_))));
    assert!(
        storage
            .collection(&op, &Namespace::new("test", "none").unwrap(), LockMode::IntentShared)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_full_disk_is_an_error_that_passes() {
    let machine = Machine::new(1);
    let told = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let teller = told.clone();
    let storage = machine.open_with(|options| {
        // Then this engine, too, takes a checkpoint each period.
        options.journal = false;
        options.on_checkpoint_failure = Some(Arc::new(move |error| {
            assert!(matches!(error, StorageError::OutOfSpace(_)), "{error:?}");
            teller.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
    });
    let (storage, op) = (storage.unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.wait_durable(storage.last_seq()).unwrap();
    machine.fs.set_free_bytes(Some(0));
    let mut taken = 0_i32;
    let full = loop {
        let document = rawdoc! { "_id": taken + 1, "s": "x".repeat(3000) };
        match storage.put(&op, "c", document) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 100, "the disk never fills");
    };
    assert!(matches!(full, StorageError::OutOfSpace(_)), "{full:?}");
    assert!(matches!(storage.checkpoint(), Err(StorageError::OutOfSpace(_))));
    storage.scheduled_checkpoint();
    let tells = || told.load(std::sync::atomic::Ordering::Relaxed);
    let is_stuck = || storage.checkpointer.is_stuck.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((tells(), storage.stats().checkpoints_failed), (1, 2));
    assert!(is_stuck(), "the log had room for a checkpoint, and the engine has none");
    machine.fs.set_free_bytes(Some(1 << 30));
    storage.put(&op, "c", rawdoc! { "_id": 0 }).unwrap();
    storage.wait_durable(storage.last_seq()).unwrap();
    storage.scheduled_checkpoint();
    assert_eq!((tells(), storage.stats().checkpoints_failed), (1, 2));
    assert!(storage.stats().checkpoints > 0 && !is_stuck());
    storage.assert_valid(&op, "c");
    assert_eq!(storage.all("c").len(), taken as usize + 1);
}

/// Any number of writers find room in the log before they evaluate. Of large entries that then came at once the last
/// were refused as if the disk were full.
#[test]
fn a_commit_waits_for_room_in_the_log() {
    let mut machine = Machine::new(1);
    machine.buffer_bytes = Some((1_000, 50_000));
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let guard = storage.locked(&op, "c");
    let units: Vec<_> = (0..6)
        .map(|id| {
            let mut unit = storage.begin_write(&op);
            unit.insert(&guard, &rawdoc! { "_id": id, "s": "x".repeat(20_000) })
                .unwrap();
            unit
        })
        .collect();
    for unit in units {
        unit.commit().unwrap();
    }
    drop(guard);
    assert_eq!(storage.all("c").len(), 6);
}

/// The engine's volume is full, the log's is not: what was acknowledged piled up in memory without a bound, and each
/// restart brought it all back there.
#[test]
fn what_an_engine_without_space_holds_in_memory_is_bounded() {
    let mut machine = Machine::new(1);
    machine.kind = Kind::Btree;
    let storage = machine.open_with(|options| options.unwritten_bytes_max = 20_000);
    let (storage, op) = (storage.unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.checkpoint().unwrap();
    let put = |id: i32| storage.put(&op, "c", rawdoc! { "_id": id, "s": "x".repeat(1000) });
    put(0).unwrap();
    // As by a checkpoint that found no space: both are of one disk here, and the log would be full, too.
    let find_no_space = || storage.engine_found_space(false);
    let wants_one = || storage.log_has_grown(storage.pipeline.order.lock().log_bytes);
    find_no_space();
    let full = (1..100).find(|id| {
        put(*id).unwrap();
        wants_one()
    });
    let full = full.expect("another is tried before writes are refused");
    assert!((10..30).contains(&full), "{full} documents were taken");
    find_no_space();
    let error = put(full + 1).unwrap_err();
    assert!(
        matches!(&error, StorageError::OutOfSpace(reason) if reason.contains("storage engine")),
        "{error:?}"
    );
    assert!(!wants_one(), "the thread tries again by itself");
    storage.checkpoint().unwrap();
    put(full + 1).unwrap();
    storage.assert_valid(&op, "c");
    assert_eq!(storage.all("c").len(), full as usize + 2);
}

/// A capped collection at its size was refused inserts, though it deletes as much as it adds.
#[test]
fn a_capped_collection_at_its_size_takes_documents_where_an_engine_may_not_grow() {
    let machine = Machine::new(1);
    let (env, op) = (machine.env(), machine.operation());
    let bounded = InMemoryOptions {
        memory_bytes_max: Some(200_000),
        ..InMemoryOptions::default()
    };
    let engine = InMemoryEngine::open(&env, Path::new("/db/inMemory"), bounded).unwrap();
    let log = oplog::Log::open(&env, machine.log_options(), Seq::ZERO).unwrap();
    let mut options = StorageOptions::new(Arc::new(EqualCompiler));
    options.background = false;
    let storage = Storage::open(env, Arc::new(engine), Arc::new(log), options).unwrap();
    storage.make(&op, "c", rawdoc! {});
    storage.make(&op, "capped", rawdoc! { "capped": true, "size": 100_000, "max": 3 });
    storage.make(&op, "sized", rawdoc! { "capped": true, "size": 3_500 });
    storage.make(&op, "has_room", rawdoc! { "capped": true, "size": 100_000 });
    let put = |name: &str, id: i32| storage.put(&op, name, rawdoc! { "_id": id, "s": "x".repeat(1000) });
    for id in 0..3 {
        put("capped", id).unwrap();
        put("sized", id).unwrap();
    }
    let full = (0..1000).find_map(|id| put("c", id).err());
    assert!(matches!(full, Some(StorageError::OutOfSpace(_))), "{full:?}");
    for id in 3..9 {
        put("capped", id).unwrap();
        put("sized", id).unwrap();
    }
    assert_eq!((storage.all("capped").len(), storage.all("sized").len()), (3, 3));
    let grows = storage.put(&op, "has_room", rawdoc! { "_id": 0, "s": "x".repeat(5000) });
    assert!(matches!(grows, Err(StorageError::OutOfSpace(_))), "{grows:?}");
}

/// Each NUL of a string takes two bytes in a key, so that a document within its limit may have a key beyond the
/// engine's.
#[test]
fn a_key_beyond_the_engines_limit_is_refused_while_evaluating() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(&op, &ns("c"), &[index("s", rawdoc! { "s": 1 }, rawdoc! {})])
        .unwrap();
    let refused = storage.put(&op, "c", rawdoc! { "_id": 1, "s": "\0".repeat(10 << 20) });
    assert!(matches!(refused, Err(StorageError::CannotMakeKey(_))), "{refused:?}");
    storage
        .put(&op, "c", rawdoc! { "_id": 1, "s": "x".repeat(10 << 20) })
        .unwrap();
    storage.assert_valid(&op, "c");
}

#[test]
fn a_lock_taken_later_shows_what_was_committed_meanwhile() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(
            &op,
            &ns("c"),
            &[index("u", rawdoc! { "u": 1 }, rawdoc! { "unique": true })],
        )
        .unwrap();
    let ids = [1, 2].map(|id| storage.put(&op, "c", rawdoc! { "_id": id, "u": id }).unwrap());
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.lock_record(&guard, &ids[0]).unwrap();
    let other = machine.operation();
    storage
        .replace(&other, "c", ids[1].clone(), rawdoc! { "_id": 2, "u": 7 })
        .unwrap();
    let newest = unit.lock_record(&guard, &ids[1]).unwrap().unwrap();
    assert_eq!(parsed(&newest).get_i32("u").unwrap(), 7);
    storage.put(&other, "c", rawdoc! { "_id": 3, "u": 8 }).unwrap();
    let facts = duplicate(unit.insert(&guard, &rawdoc! { "_id": 4, "u": 8 }));
    assert_eq!(facts.index, "u");
    unit.insert(&guard, &rawdoc! { "_id": 4, "u": 2 }).unwrap();
    unit.commit().unwrap();
    drop(guard);
    storage.assert_valid(&op, "c");
}

/// A unit of which documents are refused, as an unordered insert of duplicates, has only the rows of those it took.
#[test]
fn changes_that_fail_give_the_memory_of_their_rows_back() {
    let machine = Machine::new(1);
    let (storage, free) = (machine.open().unwrap(), machine.operation());
    let indexes = [
        index("n", rawdoc! { "n": 1 }, rawdoc! {}),
        index("u", rawdoc! { "u": 1 }, rawdoc! { "unique": true }),
    ];
    storage.create_indexes(&free, &ns("c"), &indexes).unwrap();
    storage.put(&free, "c", rawdoc! { "_id": 1, "u": 1 }).unwrap();
    let document = |id: i32, u: i32| {
        RawDocumentBuf::try_from(&doc! { "_id": id, "u": u, "n": (0..1000).collect::<Vec<_>>() }).unwrap()
    };
    let budget = crate::MemoryBudget::new(u64::MAX, 1 << 20);
    let op = Operation::within(machine.clock.clone(), 1, &budget);
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.insert(&guard, &document(2, 2)).unwrap();
    for id in 3..60 {
        duplicate(unit.insert(&guard, &document(id, 1)));
    }
    unit.insert(&guard, &document(60, 60)).unwrap();
    unit.commit().unwrap();
    drop(guard);
    assert_eq!((op.memory().used(), storage.all("c").len()), (0, 3));
}

#[test]
fn index_keys_of_one_write_are_bounded() {
    // An array of a million elements under six indexes took 2.4 GB, and nothing said no.
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    let free = machine.operation();
    storage.make(&free, "c", rawdoc! {});
    let indexes = [
        rawdoc! { "n": 1, "a": 1 },
        rawdoc! { "n": -1 },
        rawdoc! { "b": 1, "n": 1 },
    ];
    let indexes: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .zip(indexes)
        .map(|(name, key)| index(name, key, rawdoc! {}))
        .collect();
    storage.create_indexes(&free, &ns("c"), &indexes).unwrap();
    let unique = index("u", rawdoc! { "n": 1 }, rawdoc! { "unique": true });
    storage.create_indexes(&free, &ns("c"), &[unique]).unwrap();
    let document = |id: i32, from: i32| {
        RawDocumentBuf::try_from(&doc! { "_id": id, "n": (from..from + 5000).collect::<Vec<_>>() }).unwrap()
    };
    let budget = crate::MemoryBudget::new(u64::MAX, 1 << 20);
    let op = Operation::within(machine.clock.clone(), 1, &budget);
    let before = storage.last_seq();
    match storage.put(&op, "c", document(1, 0)) {
        Err(StorageError::MemoryExceeded(crate::MemoryExceeded::Operation { bytes, bytes_max })) => {
            assert!(bytes > bytes_max && bytes_max <= 1 << 20, "{bytes} of {bytes_max}");
        }
        other => panic!("expected too much memory, got {other:?}"),
    }
    assert_eq!(storage.last_seq(), before, "nothing was written");
    assert_eq!((op.memory().used(), budget.used()), (0, 0), "the unit has given back");
    // Many small changes of one unit are counted together.
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    let refused = (10..40)
        .map(|id| {
            let numbers: Vec<i32> = (id * 1000..id * 1000 + 100).collect();
            unit.insert(
                &guard,
                &RawDocumentBuf::try_from(&doc! { "_id": id, "n": numbers }).unwrap(),
            )
        })
        .find_map(Result::err);
    assert!(matches!(refused, Some(StorageError::MemoryExceeded(_))), "{refused:?}");
    drop(unit);
    drop(guard);
    assert_eq!(budget.used(), 0);
    // With enough it is written, and the rows are those of every index.
    budget.set_operation_bytes_max(8 << 20);
    let id = storage.put(&op, "c", document(1, 0)).unwrap();
    storage.put(&op, "c", document(2, 5000)).unwrap();
    storage.replace(&op, "c", id.clone(), document(1, 10_000)).unwrap();
    storage.assert_valid(&free, "c");
    assert_eq!(budget.used(), 0);
    storage.remove(&op, "c", id).unwrap();
    storage.assert_valid(&free, "c");
}
