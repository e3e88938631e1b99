//! Damage put into the engine behind the storage's back is found.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::consistency::check_document;
use crate::limits::NESTING_DEPTH_MAX;
use crate::testing::{Calls, Kind, Machine, index, ns};
use crate::{Interrupted, RecordId};
use bson::rawdoc;
use engine::{Batch, KeyRange};
use std::sync::Arc;

/// A storage with one document and one index, and a batch applied beside the log.
fn damaged(damage: impl FnOnce(&Collection, RecordId, &mut Batch)) -> ValidateReport {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(&op, &ns("c"), &[index("a", rawdoc! { "a": 1 }, rawdoc! {})])
        .unwrap();
    let id = storage.put(&op, "c", rawdoc! { "_id": 1, "a": 5 }).unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 2, "a": 6 }).unwrap();
    storage.assert_valid(&op, "c");
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let mut batch = Batch::new();
    damage(&collection, id, &mut batch);
    let seq = storage.last_seq().next();
    storage.engine().apply(&batch, seq).unwrap();
    storage.engine().publish(seq);
    let report = storage.validate(&op, &ns("c"), true).unwrap();
    assert!(!report.is_valid());
    report
}

#[test]
fn a_lost_record_leaves_extra_entries_and_wrong_counts() {
    let report = damaged(|c, id, batch| batch.delete(c.table(), id.to_key().to_vec()));
    assert_eq!(
        (report.n_records, report.extra_entries, report.missing_entries),
        (1, 2, 0)
    );
    assert!(
        report
            .errors
            .iter()
            .any(|error| error.contains("counts 2 documents, there are 1")),
        "{report:?}"
    );
}

#[test]
fn a_lost_index_row_is_missing() {
    let report = damaged(|c, _, batch| batch.delete_range(c.index("a").unwrap().table(), KeyRange::all()));
    assert_eq!((report.missing_entries, report.extra_entries), (2, 0));
    assert!(!report.indexes[1].valid && report.indexes[0].valid);
}

#[test]
fn a_changed_record_does_not_fit_its_index_rows() {
    let report = damaged(|c, id, batch| {
        batch.put(
            c.table(),
            id.to_key().to_vec(),
            rawdoc! { "_id": 1, "a": 8 }.into_bytes(),
        );
    });
    assert_eq!((report.missing_entries, report.extra_entries), (1, 1));
}

/// Key and record are right, and the document is that of before a change.
#[test]
fn another_document_in_a_clustering_index_is_found() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let indexes = [
        index("a", rawdoc! { "a": 1 }, rawdoc! { "clustering": true }),
        index("u", rawdoc! { "u": 1 }, rawdoc! { "clustering": true, "unique": true }),
    ];
    storage.create_indexes(&op, &ns("c"), &indexes).unwrap();
    let old = rawdoc! { "_id": 1, "a": 5, "u": 1, "n": 1 };
    storage.put(&op, "c", old.clone()).unwrap();
    storage
        .put(&op, "c", rawdoc! { "_id": 2, "a": 6, "u": 2, "n": 1 })
        .unwrap();
    let id = &storage.all("c")[0].0;
    storage
        .replace(&op, "c", id.clone(), rawdoc! { "_id": 1, "a": 5, "u": 1, "n": 2 })
        .unwrap();
    storage.assert_valid(&op, "c");
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let mut writes = crate::index_keys::IndexWrites::take();
    let versions = crate::index_keys::Versions::inserted(&old);
    writes.derive(&collection, id, versions).unwrap();
    let mut batch = Batch::new();
    for row in writes.rows.iter().filter(|row| row.position > 0) {
        batch.put(row.table, row.key.to_vec(), row.value.unwrap().to_vec());
    }
    let seq = storage.last_seq().next();
    storage.engine().apply(&batch, seq).unwrap();
    storage.engine().publish(seq);
    let report = storage.validate(&op, &ns("c"), false).unwrap();
    let valid: Vec<bool> = report.indexes.iter().map(|index| index.valid).collect();
    assert_eq!(valid, [true, false, false], "{report:?}");
    for name in ["index a: another document", "index u: another document"] {
        assert!(report.errors.iter().any(|error| error.starts_with(name)), "{report:?}");
    }
    assert_eq!(report.errors.len(), 2, "{report:?}");
}

/// Rows with the same bytes as others, but for one, in an index that is otherwise sound: that one is named, and no
/// other.
#[test]
fn one_row_among_many_is_found() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let indexes = [
        index("a", rawdoc! { "a": 1 }, rawdoc! {}),
        index("b", rawdoc! { "b": 1 }, rawdoc! {}),
    ];
    storage.create_indexes(&op, &ns("c"), &indexes).unwrap();
    let ids: Vec<RecordId> = (0..3000)
        .map(|i: i32| {
            let document = rawdoc! { "_id": i, "a": [i % 7, i % 5 + 10], "b": i % 3 };
            storage.put(&op, "c", document).unwrap()
        })
        .collect();
    storage.assert_valid(&op, "c");
    let collection = storage.catalog().collection(&ns("c")).unwrap();
    let table = collection.index("b").unwrap().table();
    let mut cursor = storage
        .engine()
        .snapshot()
        .unwrap()
        .cursor(table, KeyRange::all(), engine::Direction::Forward)
        .unwrap();
    let mut rows = engine::Rows::new();
    assert!(cursor.fill(&mut rows, engine::FillLimits::default()).unwrap());
    // The row of the first record goes to the one after the last.
    let lost = rows.key(0).to_vec();
    let mut strange = lost.clone();
    let at = strange.len() - 8;
    assert_eq!(strange[at..], *ids[0].to_key());
    strange[at..].copy_from_slice(&RecordId::Number(ids[2999].number() + 1).to_key());
    let mut batch = Batch::new();
    batch.delete(table, lost);
    batch.put(table, strange, rows.value(0).to_vec());
    let seq = storage.last_seq().next();
    storage.engine().apply(&batch, seq).unwrap();
    storage.engine().publish(seq);
    let report = storage.validate(&op, &ns("c"), false).unwrap();
    assert_eq!((report.missing_entries, report.extra_entries), (1, 1), "{report:?}");
    assert_eq!(report.errors.len(), 2, "{report:?}");
    let valid: Vec<bool> = report.indexes.iter().map(|index| index.valid).collect();
    assert_eq!(valid, [true, true, false]);
    assert_eq!(report.indexes[1].keys, 6000);
}

#[test]
fn a_malformed_record_is_named() {
    let report = damaged(|c, id, batch| batch.put(c.table(), id.to_key().to_vec(), b"\x05\0\0\0\x01".to_vec()));
    assert_eq!((report.n_invalid_documents, report.corrupt_records.len()), (1, 1));
}

#[test]
fn nesting_is_bounded_without_recursion() {
    let nested = |depth: usize| {
        let mut document = rawdoc! {};
        for _ in 1..depth {
            document = rawdoc! { "a": document };
        }
        document.into_bytes()
    };
    assert!(check_document(&nested(NESTING_DEPTH_MAX)).is_ok());
    assert!(check_document(&nested(NESTING_DEPTH_MAX + 1)).is_err());
}

#[test]
fn figures_of_a_collection() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! { "capped": true, "size": 4096 });
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    let stats = storage.collection_stats(&ns("c")).unwrap();
    let bytes = rawdoc! { "_id": 1 }.as_bytes().len() as u64;
    assert_eq!((stats.count, stats.data_bytes, stats.indexes.len()), (1, bytes, 1));
    assert_eq!(stats.capped.unwrap().size_bytes, 4096);
    let locks = storage.lock_stats();
    assert!(locks.collection.modes[1].acquire_count > 0 && locks.global.modes[1].acquire_count > 0);
    assert!(Arc::strong_count(&storage) == 1, "no thread holds an idle storage");
}

/// Compaction wrote to files that somebody was copying, as `fsync` with `lock: true` lets one do.
#[test]
fn a_compaction_waits_while_writes_are_held_back() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.create_collection(&op, &ns("c"), &rawdoc! {}).unwrap();
    let barrier = storage.block_writes(&op).unwrap();
    let late = machine.operation();
    late.set_deadline_ms(1);
    machine.clock.advance(std::time::Duration::from_millis(5));
    let error = storage.compact(&late, &ns("c")).unwrap_err();
    assert!(
        matches!(error, StorageError::Interrupted(crate::Interrupted::TimeExpired)),
        "{error}"
    );
    drop(barrier);
    let compacted = storage.compact(&op, &ns("c"));
    assert!(
        matches!(
            compacted,
            Ok(_) | Err(StorageError::Engine(EngineError::Unsupported { .. }))
        ),
        "{compacted:?}"
    );
}

/// The second compaction waited for the first, for hours, with its own collection's lock: whoever wanted that for
/// itself waited too, and all who came later behind them. Nobody could end it.
#[test]
fn who_waits_to_compact_keeps_nobody_from_the_collection() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let turn = storage.compacting.lock();
    let second = machine.operation();
    let kill = second.kill_handle();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| storage.compact(&second, &ns("c")));
        storage.drop_collection(&op, &ns("c")).unwrap().unwrap();
        kill.set(crate::Interrupted::Killed);
        let ended = waiting.join().unwrap();
        assert!(matches!(ended, Err(StorageError::Interrupted(_))), "{ended:?}");
    });
    drop(turn);
    storage.make(&op, "c", rawdoc! {});
    storage.compact(&op, &ns("c")).unwrap();
    storage.compact(&op, &ns("c")).unwrap();
}

/// A compaction that was under way when writes were held back went on writing to the files that were copied.
#[test]
fn writes_are_held_back_for_a_copy_once_no_compaction_runs() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.create_collection(&op, &ns("c"), &rawdoc! {}).unwrap();
    let in_the_way = storage.collection(&op, &ns("c"), LockMode::Exclusive).unwrap().unwrap();
    let copies = machine.operation();
    std::thread::scope(|scope| {
        let compaction = scope.spawn(|| storage.compact(&machine.operation(), &ns("c")).map(drop));
        while !in_the_way.shared.lock.is_waited_for() {
            std::thread::yield_now();
        }
        let copy = scope.spawn(|| storage.block_writes(&copies).map(drop));
        while copies.waiting_for_lock().is_none() && !copy.is_finished() {
            std::thread::yield_now();
        }
        copies.kill_handle().set(Interrupted::Killed);
        let refused = copy.join().unwrap();
        assert!(
            matches!(refused, Err(StorageError::Interrupted(Interrupted::Killed))),
            "{refused:?}"
        );
        assert!(!storage.holds_writes_back());
        // Who only waits for writes does not wait for it.
        storage.wait_for_writes(&machine.operation()).unwrap();
        drop(in_the_way);
        let compacted = compaction.join().unwrap();
        let is_unsupported = matches!(compacted, Err(StorageError::Engine(EngineError::Unsupported { .. })));
        assert!(compacted.is_ok() || is_unsupported, "{compacted:?}");
    });
    drop(storage.block_writes(&op).unwrap());
}

/// Neither killOp nor a time limit ended what the engine did for an operation.
#[test]
fn maintenance_ends_with_its_operation() {
    for kind in [Kind::Btree, Kind::InMemory] {
        let mut machine = Machine::new(1);
        machine.kind = kind;
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "c", rawdoc! {});
        storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
        let killed = machine.operation();
        killed.kill();
        for task in [Maintenance::Verify(None), Maintenance::Compact(None)] {
            match storage.maintain_for(&killed, &task) {
                Ok(_) => assert_eq!(kind, Kind::InMemory, "{task:?}"),
                Err(error) => assert!(
                    matches!(error, StorageError::Interrupted(Interrupted::Killed)),
                    "{error}"
                ),
            }
        }
        assert!(storage.validate(&op, &ns("c"), true).unwrap().is_valid());
    }
}
