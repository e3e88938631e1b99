//! Recovery, case by case: what does not fit, what an old directory holds, counts, names, and logs that are gone.

#![allow(clippy::unwrap_used)]

use super::model_tests::specs;
use super::*;
use crate::testing::{Calls, Machine, index, ns};
use crate::{Predicate, RecordId, entry::Deletion, index_keys::Versions};
use bson::rawdoc;
use oplog::AppendPurpose;
use std::path::Path;
use vfs::FileSystem;

/// Puts entries into the log that nobody applies.
fn append(storage: &Storage, entry: &mut EntryWriter) {
    let first = storage.log().last_seq().next();
    entry
        .hand_over(first, Default::default(), |entries| {
            storage.log().append_all(None, entries, AppendPurpose::Write)
        })
        .unwrap();
}

#[test]
fn an_entry_that_does_not_fit_refuses_to_open() {
    let machine = Machine::new(9);
    let storage = machine.open().unwrap();
    storage.make(&machine.operation(), "c", rawdoc! {});
    let table = storage.catalog().collection(&ns("c")).unwrap().table();
    let mut entry = EntryWriter::default();
    entry.delete(
        table,
        &RecordId::Number(77),
        &rawdoc! { "_id": 1 },
        Deletion::Asked,
        None,
    );
    append(&storage, &mut entry);
    storage.log().flush().unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let Err(StorageError::CorruptEntry { seq, offset, reason }) = machine.open() else {
        panic!("opened")
    };
    assert_eq!((seq, offset), (Seq(3), crate::entry::HEADER_BYTES));
    assert!(reason.contains("record:77 does not exist"), "{reason}");
}

/// A unit of several entries is there as a whole or not at all, wherever the log ends.
#[test]
fn a_chain_of_entries_is_applied_as_one() {
    let machine = Machine::new(9);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let big = |id: i32| rawdoc! { "_id": id, "s": "x".repeat(100) };
    {
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        unit.changes.entry = EntryWriter::with_part_bytes(300);
        for id in 0..10 {
            unit.insert(&guard, &big(id)).unwrap();
        }
        let before = storage.last_seq();
        assert_eq!(unit.commit().unwrap().0, before.0 + 5, "two documents an entry");
    }
    // Another chain whose last entry never comes, and units after it.
    let table = storage.catalog().collection(&ns("c")).unwrap().table();
    let mut cut_off = EntryWriter::with_part_bytes(300);
    (100..105).for_each(|id| cut_off.insert(table, &RecordId::Number(id), Bytes::from(big(id as i32).into_bytes())));
    let first = storage.log().last_seq().next();
    cut_off.hand_over(first, Default::default(), |entries| {
        assert!(entries.len() > 2, "{entries:?}");
        let cut = &entries[..2];
        storage.log().append_all(None, cut, AppendPurpose::Write).unwrap();
    });
    for round in 0..2 {
        storage.put(&op, "c", big(50 + round)).unwrap();
        storage.wait_durable(storage.last_seq()).unwrap();
        let last = storage.last_seq();
        machine.fs.crash();
        machine.fs.restart();
        storage = machine.open().unwrap();
        let ids: Vec<_> = storage
            .all("c")
            .iter()
            .map(|(_, d)| d.get_i32("_id").unwrap())
            .collect();
        assert_eq!(ids, (0..10).chain(50..=50 + round).collect::<Vec<_>>());
        assert_eq!(storage.last_seq(), last);
        storage.assert_valid(&op, "c");
    }
    // At the log's end it is dropped by what comes next.
    let mut cut_off = EntryWriter::with_part_bytes(300);
    (100..105).for_each(|id| cut_off.insert(table, &RecordId::Number(id), Bytes::from(big(id as i32).into_bytes())));
    let first = storage.log().last_seq().next();
    let mut entries = Vec::new();
    cut_off.hand_over(first, Default::default(), |all| {
        entries.extend(all.iter().map(|pieces| pieces.concat()));
    });
    assert_eq!(entries.len(), 3);
    for entry in &entries[..2] {
        storage.log().append(&[entry]).unwrap();
    }
    storage.log().flush().unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!(storage.all("c").len(), 12);
    storage.put(&op, "c", big(60)).unwrap();
    storage.assert_valid(&op, "c");
    // One that goes on what is not there is damage.
    storage.log().append(&[&entries[2]]).unwrap();
    storage.log().flush().unwrap();
    machine.fs.crash();
    machine.fs.restart();
    assert!(matches!(machine.open(), Err(StorageError::CorruptEntry { .. })));
}

/// Cluster time rises over restarts too, though the clock goes back.
#[test]
fn cluster_time_never_falls() {
    let machine = Machine::new(9);
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut seen = ClusterTime::default();
    for round in 0..6 {
        storage.put(&op, "c", rawdoc! { "_id": round }).unwrap();
        let time = storage.pipeline.order.lock().cluster_time;
        assert!(time > seen && time.0 >> 32 == 1_700_000_000, "{time:?} after {seen:?}");
        seen = time;
        match round % 3 {
            0 => storage.checkpoint().map(drop).unwrap(),
            1 => {
                storage.wait_durable(storage.last_seq()).unwrap();
                machine.fs.crash();
                machine.fs.restart();
            }
            _ => storage.close(true).unwrap(),
        }
        if round % 3 > 0 {
            seen = seen.max(storage.pipeline.order.lock().cluster_time);
            storage = machine.open().unwrap();
            assert_eq!(storage.pipeline.order.lock().cluster_time, seen);
        }
    }
}

/// The log's readers learn what a table was called when an entry was made, for as long as the log has the entry.
#[test]
fn names_of_tables_are_known_while_the_log_has_them() {
    let machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "first", rawdoc! {});
    let collection = storage.catalog().collection(&ns("first")).unwrap();
    let (table, uuid, made) = (collection.table(), collection.uuid(), storage.last_seq());
    storage
        .rename_collection(&op, &ns("first"), &ns("second"), false)
        .unwrap();
    let renamed = storage.last_seq();
    storage.put(&op, "second", rawdoc! { "_id": 1 }).unwrap();
    storage.drop_collection(&op, &ns("second")).unwrap();
    let dropped = storage.last_seq();
    let check = |storage: &Storage| {
        let name = |at| storage.name_of_table(table, at);
        assert_eq!(name(made), Some((ns("first"), uuid)));
        assert_eq!(name(renamed), Some((ns("first"), uuid)), "the entry that renames it");
        assert_eq!(name(renamed.next()), Some((ns("second"), uuid)));
        assert_eq!(name(dropped), Some((ns("second"), uuid)));
        assert_eq!(name(dropped.next()), None);
    };
    check(&storage);
    storage.wait_durable(dropped).unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    check(&storage);
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    check(&storage);
    // Fill segments until the log has let the entries go.
    storage.make(&op, "filler", rawdoc! {});
    let mut id = 0;
    while storage.log().first_seq() <= dropped {
        storage
            .put(&op, "filler", rawdoc! { "_id": id, "s": "x".repeat(1000) })
            .unwrap();
        id += 1;
        storage.checkpoint().unwrap();
    }
    storage.put(&op, "filler", rawdoc! { "_id": id }).unwrap();
    storage.checkpoint().unwrap();
    assert_eq!(storage.name_of_table(table, made), None);
    let snapshot = storage.engine().snapshot().unwrap();
    let key = rows::former_name_key(table, dropped);
    assert_eq!(snapshot.get(CATALOG, &key).unwrap(), None);
}

/// A directory as version 1 left it: counts by additions, entries without sizes, some or all not in the engine yet.
#[test]
fn a_directory_of_format_1_is_taken_over() {
    for (crash_before_open, engine_has_some) in [(false, true), (true, true), (false, false), (true, false)] {
        let machine = Machine::new(9);
        let storage = machine.open().unwrap();
        storage.make(&machine.operation(), "c", rawdoc! {});
        let row = CollectionRow::of(&storage.catalog().collection(&ns("c")).unwrap());
        drop(storage);
        let machine = Machine::new(10);
        let env = machine.env();
        let directory = std::path::Path::new("/db/inMemory");
        let engine = engine_inmemory::InMemoryEngine::open(&env, directory, Default::default()).unwrap();
        let mut log = oplog::LogOptions::new("/db/journal");
        log.segment_bytes = oplog::SEGMENT_BYTES_MIN;
        log.background = false;
        let log = oplog::Log::open(&env, log, Seq::ZERO).unwrap();
        let v1_entry = crate::entry::tests::v1_entry;
        let append = |operations: &[&[u8]]| log.append(&[&v1_entry(operations)]).unwrap();
        let of_record = |tag: u8, id: u8| [tag, 16, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0];
        let insert = |id: u8, document: &RawDocument| [of_record(1, id).as_slice(), document.as_bytes()].concat();
        let document = |id: i32, text: &str| rawdoc! { "_id": id, "s": text };
        // What the engine has: the tables, the collection, and a document.
        let mut batch = engine::Batch::new();
        rows::create_tables(&mut batch);
        let meta = Meta {
            format: 1,
            next_table: 18,
        };
        batch.put(CATALOG, rows::META_KEY, rows::meta_row(&meta));
        engine::Engine::apply(&engine, &batch, append(&[&[10]])).unwrap();
        let mut batch = engine::Batch::new();
        batch.put(CATALOG, rows::collection_key(&row.uuid), row.to_document().into_bytes());
        for (table, kind) in [(16, engine::TableKind::Records), (17, engine::TableKind::Index)] {
            let spec = engine::TableSpec {
                kind,
                name: "c".to_owned(),
                compressor: None,
            };
            batch.create_table(TableId(table), spec);
        }
        let put_collection = [&[6], row.to_document().as_bytes()].concat();
        engine::Engine::apply(&engine, &batch, append(&[&put_collection])).unwrap();
        let first = document(1, "one");
        let mut batch = engine::Batch::new();
        batch.put(
            TableId(16),
            RecordId::Number(1).to_key().to_vec(),
            first.as_bytes().to_vec(),
        );
        let collection = machine_index_row(&row, RecordId::Number(1), &first);
        batch.put(TableId(17), collection.0, collection.1);
        batch.add(STATISTICS, rows::statistics_key(TableId(16), 0).to_vec(), 1);
        batch.add(
            STATISTICS,
            rows::statistics_key(TableId(16), 1).to_vec(),
            first.as_bytes().len() as i64,
        );
        let third = append(&[&insert(1, &first)]);
        engine::Engine::apply(&engine, &batch, third).unwrap();
        engine::Engine::publish(&engine, third);
        if engine_has_some {
            engine::Engine::checkpoint(&engine).unwrap();
        }
        // What the log alone has.
        append(&[&insert(2, &document(2, "two")), &insert(3, &document(3, "three"))]);
        append(&[&[of_record(2, 1).as_slice(), document(1, "a longer text").as_bytes()].concat()]);
        append(&[&of_record(3, 2)]);
        log.flush().unwrap();
        log.close().unwrap();
        engine::Engine::close(&engine, engine::CloseMode::Abandon).unwrap();
        let check = |storage: &Arc<Storage>, more: usize| {
            let ids: Vec<_> = storage.all("c").into_iter().map(|(id, _)| id.number()).collect();
            assert_eq!(ids.len(), 2 + more);
            assert_eq!(ids[..2], [1, 3]);
            storage.assert_valid(&machine.operation(), "c");
        };
        let storage = machine.open().unwrap();
        check(&storage, 0);
        if crash_before_open {
            machine.fs.crash();
            machine.fs.restart();
            check(&machine.open().unwrap(), 0);
            continue;
        }
        storage.put(&machine.operation(), "c", rawdoc! { "_id": 9 }).unwrap();
        storage.wait_durable(storage.last_seq()).unwrap();
        for clean in [false, true, true] {
            let storage = match clean {
                true => {
                    let storage = machine.open().unwrap();
                    storage.close(true).unwrap();
                    machine.open().unwrap()
                }
                false => {
                    machine.fs.crash();
                    machine.fs.restart();
                    machine.open().unwrap()
                }
            };
            check(&storage, 1);
            let snapshot = storage.engine().snapshot().unwrap();
            let meta = snapshot.get(CATALOG, rows::META_KEY).unwrap().unwrap();
            assert_eq!(rows::read_meta_row(&meta).unwrap().format, FORMAT_VERSION);
            storage.close(false).unwrap();
        }
    }
}

/// Counts are written down in several entries, between which others commit; the engine's mark lies behind any of them.
#[test]
fn counts_are_exact_wherever_writes_and_checkpoints_meet() {
    let machine = Machine::new(9);
    let names = ["a", "b", "c", "d", "e"];
    let (mut storage, op) = (machine.open().unwrap(), machine.operation());
    names.iter().for_each(|name| storage.make(&op, name, rawdoc! {}));
    let mut id = 0;
    for _ in 0..8 {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let op = machine.operation();
                for _ in 0..150 {
                    id += 1;
                    let name = names[id as usize % names.len()];
                    let record = storage.put(&op, name, rawdoc! { "_id": id, "s": "x" }).unwrap();
                    match id % 3 {
                        0 => storage
                            .replace(&op, name, record, rawdoc! { "_id": id, "s": "longer" })
                            .unwrap(),
                        1 => storage.remove(&op, name, record).unwrap(),
                        _ => {}
                    }
                }
            });
            while !writer.is_finished() {
                storage.checkpoint().unwrap();
            }
        });
        // Some changes behind the counts, in the engine and behind its mark.
        for behind_the_mark in [false, true] {
            for name in ["b", "e"] {
                id += 1;
                storage.put(&op, name, rawdoc! { "_id": id }).unwrap();
            }
            storage.wait_durable(storage.last_seq()).unwrap();
            if !behind_the_mark {
                storage.engine().checkpoint().unwrap();
            }
        }
        let counts = |storage: &Storage| names.map(|name| storage.catalog().collection(&ns(name)).unwrap().count());
        let before = counts(&storage);
        machine.fs.crash();
        machine.fs.restart();
        storage = machine.open().unwrap();
        assert_eq!(counts(&storage), before);
        names.iter().for_each(|name| storage.assert_valid(&op, name));
    }
}

/// The `_id_` row of a document.
fn machine_index_row(row: &CollectionRow, id: RecordId, document: &RawDocument) -> (Bytes, Bytes) {
    let collection = row
        .build(None, &BTreeMap::new(), &crate::testing::EqualCompiler, 0)
        .unwrap();
    let mut writes = crate::index_keys::IndexWrites::take();
    writes.derive(&collection, &id, Versions::inserted(document)).unwrap();
    let row = writes.rows.iter().last().unwrap();
    (row.key.to_vec().into(), row.value.unwrap().to_vec().into())
}

/// Without a log the counts after a crash are those written down last; `validate` puts them right.
#[test]
fn without_a_journal_validate_mends_the_counts() {
    let mut machine = Machine::new(9);
    machine.journal = false;
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    storage.checkpoint().unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 2 }).unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 3 }).unwrap();
    // The engine's own checkpoint, a moment later.
    storage.engine().checkpoint().unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    let count = || storage.catalog().collection(&ns("c")).unwrap().count();
    assert_eq!((storage.all("c").len(), count()), (3, 1));
    let report = storage.validate(&op, &ns("c"), false).unwrap();
    assert!(report.is_valid(), "{report:?}");
    assert!(
        report.warnings[0].contains("counts 1 documents, there are 3"),
        "{report:?}"
    );
    assert_eq!(count(), 3);
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    storage.assert_valid(&op, "c");
}

/// A checkpoint of the engine, whoever asks for it, makes entries durable that the log has only in its buffer. A crash
/// then would leave an engine ahead of its log, and a hole in the log's history.
#[test]
fn a_checkpoint_is_never_ahead_of_the_log() {
    let machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    for id in 0..20 {
        storage.put(&op, "c", rawdoc! { "_id": id }).unwrap();
        assert!(
            storage.log().durable_seq() < storage.last_seq(),
            "nobody has flushed it"
        );
        let mark = storage.engine().checkpoint().unwrap();
        assert_eq!(mark, storage.last_seq());
        assert!(storage.log().durable_seq() >= mark, "{:?}", storage.log().durable_seq());
    }
    let last = storage.last_seq();
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!(
        (storage.last_seq(), storage.log().first_seq()),
        (last, Seq(1)),
        "all of the history"
    );
    let read = storage.log().read(Seq(1)).unwrap().map(|entry| entry.unwrap().0.0);
    assert!(read.eq(1..=last.0));
}

/// Somebody removes the log after a crash, as if it were in the way.
#[test]
fn a_log_that_is_gone_is_refused() {
    let machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let seq = storage
        .put(&op, "c", rawdoc! { "_id": 1 })
        .map(|_| storage.last_seq())
        .unwrap();
    storage.wait_durable(seq).unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let journal = Path::new("/db/journal");
    for name in machine.fs.list(journal).unwrap() {
        machine.fs.remove_file(&journal.join(name)).unwrap();
    }
    let error = machine.open().err().unwrap();
    assert!(
        matches!(error, StorageError::Log(oplog::LogError::Behind { .. })),
        "{error}"
    );
}

#[test]
fn multikey_paths_survive() {
    let machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage
        .create_indexes(&op, &ns("c"), &[index("i", rawdoc! { "a.b": 1, "c": 1 }, rawdoc! {})])
        .unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 1, "a": [{ "b": 1 }] }).unwrap();
    let seq = storage.last_seq();
    storage.wait_durable(seq).unwrap();
    let places = |storage: &Arc<Storage>| {
        let collection = storage.catalog().collection(&ns("c")).unwrap();
        collection.index("i").unwrap().multikey().iter().collect::<Vec<_>>()
    };
    assert_eq!(places(&storage), [(0, 0)]);
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!((places(&storage), storage.last_seq()), (vec![(0, 0)], seq));
    storage.put(&op, "c", rawdoc! { "_id": 2, "a": { "b": [1] } }).unwrap();
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    assert_eq!(places(&storage), [(0, 0), (0, 1)]);
    storage.drop_index(&op, &ns("c"), "i").unwrap();
    storage
        .create_indexes(&op, &ns("d"), &[index("i", rawdoc! { "a.b": 1 }, rawdoc! {})])
        .unwrap();
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    assert!(
        storage
            .catalog()
            .collection(&ns("d"))
            .unwrap()
            .index("i")
            .unwrap()
            .multikey()
            .is_empty()
    );
}

#[test]
fn without_a_journal_a_checkpoint_is_what_survives() {
    let mut machine = Machine::new(9);
    machine.journal = false;
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    assert!(matches!(
        storage.wait_durable(storage.last_seq()),
        Err(StorageError::NoJournal)
    ));
    let durable = storage.checkpoint().unwrap();
    assert_eq!(durable, storage.last_seq());
    storage.put(&op, "c", rawdoc! { "_id": 2 }).unwrap();
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!((storage.last_seq(), storage.all("c").len()), (durable, 1));
    let second = storage.put(&op, "c", rawdoc! { "_id": 3 }).unwrap();
    assert_eq!((second, storage.last_seq()), (RecordId::Number(2), durable.next()));
    storage.close(true).unwrap();
    let storage = machine.open().unwrap();
    assert_eq!(storage.all("c").len(), 2);
    storage.assert_valid(&op, "c");
}

/// The threads go on with a build, take checkpoints and end at close, under load.
#[test]
fn background_threads_work_and_end() {
    let mut machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    for id in 0..500 {
        storage.put(&op, "c", rawdoc! { "_id": id, "n": id }).unwrap();
    }
    // A build that a stop interrupted: its indexes are in the catalog, its walk has not begun.
    let mut row = CollectionRow::of(&storage.catalog().collection(&ns("c")).unwrap());
    let table = TableId(*storage.definitions.lock());
    let [spec, ..] = specs();
    row.indexes.push(rows::IndexRow {
        table,
        ready: false,
        spec,
    });
    let definition = storage.define(row).unwrap();
    storage
        .commit_definitions(&op, vec![definition], &mut storage.definitions.lock())
        .unwrap();
    storage.close(true).unwrap();
    machine.background = true;
    let storage = machine.open().unwrap();
    for id in 500..600 {
        storage.put(&op, "c", rawdoc! { "_id": id, "n": id }).unwrap();
    }
    while storage.catalog().collection(&ns("c")).unwrap().index("n_1").is_none() {
        std::thread::yield_now();
    }
    storage.assert_valid(&op, "c");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let op = machine.operation();
            let ended = (1000..).find_map(|id| storage.put(&op, "c", rawdoc! { "_id": id, "n": id }).err());
            assert!(matches!(ended, Some(StorageError::Closed)), "{ended:?}");
        });
        while storage.catalog().collection(&ns("c")).unwrap().count() < 700 {
            std::thread::yield_now();
        }
        storage.checkpoint().unwrap();
        storage.close(true).unwrap();
    });
    let last = storage.last_seq();
    assert_eq!(Arc::strong_count(&storage), 1);
    let storage = machine.open().unwrap();
    assert_eq!((storage.last_seq(), storage.stats().replayed_entries), (last, 0));
    storage.assert_valid(&op, "c");
    storage.close(true).unwrap();
}

/// A predicate that takes a second of the clock, for each document it looks at.
struct Slow(Arc<vfs::SimulatedClock>);

impl Predicate for Slow {
    fn matches(&self, _: &RawDocument, _: &crate::Check<'_>) -> Result<bool, StorageError> {
        self.0.advance(Duration::from_secs(1));
        Ok(true)
    }
}

impl crate::PredicateCompiler for Slow {
    fn compile(&self, _: &RawDocument, _: Option<Arc<dyn keys::Collator>>) -> Result<Arc<dyn Predicate>, String> {
        Ok(Arc::new(Self(self.0.clone())))
    }
}

/// However slow the entries are, somebody who waits hears of it every three seconds.
#[test]
fn a_long_replay_tells_how_far_it_is() {
    let machine = Machine::new(1);
    let slow = Arc::new(Slow(machine.clock.clone()));
    let storage = machine.open_with(|options| options.predicates = slow.clone()).unwrap();
    let op = machine.operation();
    let partial = rawdoc! { "partialFilterExpression": { "p": true } };
    storage
        .create_indexes(&op, &ns("c"), &[index("s", rawdoc! { "s": 1 }, partial)])
        .unwrap();
    for id in 0..10 {
        storage.put(&op, "c", rawdoc! { "_id": id }).unwrap();
    }
    let (first, last) = (storage.engine().durable_seq(), storage.last_seq());
    storage.close(false).unwrap();
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let teller = told.clone();
    machine
        .open_with(|options| {
            options.predicates = slow;
            options.on_progress = Some(Arc::new(move |step| teller.lock().push(step)));
        })
        .unwrap();
    let told = told.lock();
    assert_eq!(told[0], RecoveryProgress::Started { durable: first, last });
    let entries = last.0 - first.0;
    assert_eq!(told.last(), Some(&RecoveryProgress::Finished { entries }));
    let between: Vec<u64> = told[1..told.len() - 1]
        .iter()
        .map(|step| match step {
            RecoveryProgress::Replayed {
                durable,
                seq,
                last: all,
            } => {
                assert_eq!((*durable, *all), (first, last));
                seq.0
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        between,
        [last.0 - 7, last.0 - 4, last.0 - 1],
        "ten documents, a second each"
    );
}

/// Members that followed once wrote the next table's number down only when it was new to their memory, where it can be
/// ahead: two collections got one table.
#[test]
fn no_table_is_given_twice_where_the_row_fell_behind() {
    let machine = Machine::new(17);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    let behind = Meta {
        format: FORMAT_VERSION,
        next_table: storage.catalog().collection(&ns("c")).unwrap().table().0,
    };
    let (mut entry, mut effect) = (EntryWriter::default(), Effect::default());
    entry.note(&rawdoc! {});
    let batch = &mut effect.overlay.batch;
    batch.put(CATALOG, rows::META_KEY, rows::meta_row(&behind));
    storage.commit_derived(&mut entry, |_| effect).unwrap();
    storage.close(true).unwrap();
    drop(storage);
    let storage = machine.open().unwrap();
    storage.make(&op, "d", rawdoc! {});
    storage.put(&op, "d", rawdoc! { "_id": 2 }).unwrap();
    for (name, n) in [("c", 1), ("d", 2)] {
        let all = storage.all(name);
        assert_eq!((all.len(), all[0].1.get_i32("_id").ok()), (1, Some(n)), "{name}");
        storage.assert_valid(&op, name);
    }
    let collection = storage.catalog().collection(&ns("d")).unwrap();
    let row = storage
        .engine()
        .snapshot()
        .unwrap()
        .get(CATALOG, rows::META_KEY)
        .unwrap()
        .unwrap();
    let next_table = rows::read_meta_row(&row).unwrap().next_table;
    assert!(collection.tables().all(|table| table.0 < next_table));
}
