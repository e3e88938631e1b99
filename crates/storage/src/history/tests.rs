//! What history tells, against the data itself.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{Calls, Machine, index, ns, pick, seed_of};
use crate::{Namespace, RecordId};
use bson::{Bson, Document, RawDocument, doc, rawdoc};
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::{FileSystem, SeededRandom};

type Collections = BTreeMap<String, BTreeMap<i32, Document>>;

/// A storage whose log is read as history.
pub(super) fn member(machine: &Machine) -> Arc<Storage> {
    let storage = machine.open().unwrap();
    storage.keep_history();
    storage
}

fn document(bytes: &[u8]) -> Document {
    Document::try_from(RawDocument::from_bytes(bytes).unwrap()).unwrap()
}

/// What follows from a unit.
fn follow(collections: &mut Collections, unit: &HistoryUnit) {
    for operation in &unit.operations {
        let name = || operation.ns.as_ref().unwrap().as_str().to_owned();
        let collection = |collections: &mut Collections| -> *mut BTreeMap<i32, Document> {
            collections
                .get_mut(&name())
                .unwrap_or_else(|| panic!("{} was created", name()))
        };
        let id = |bytes: &[u8]| document(bytes).get_i32("_id").unwrap();
        match &operation.change {
            HistoryChange::Insert { document: new } => {
                let was = collections.get_mut(&name()).unwrap().insert(id(new), document(new));
                assert_eq!(was, None);
            }
            HistoryChange::Replace {
                document: new,
                pre_image,
            } => {
                let was = collections.get_mut(&name()).unwrap().insert(id(new), document(new));
                assert!(was.is_some());
                assert!(pre_image.is_none() || pre_image.as_deref().map(document) == was);
            }
            HistoryChange::Update { key, difference, .. } => {
                let documents = collections.get_mut(&name()).unwrap();
                let was = documents.get_mut(&id(key)).expect("it is there");
                let old = bson::RawDocumentBuf::try_from(&*was).unwrap().into_bytes();
                *was = document(&crate::diff::apply(difference, &old).unwrap());
                let (before, after) = operation.images().unwrap();
                if let (Some(before), Some(after)) = (before, after) {
                    assert_eq!((&*before, document(&after)), (&*old, was.clone()));
                }
            }
            HistoryChange::Delete { key, .. } => {
                assert!(collections.get_mut(&name()).unwrap().remove(&id(key)).is_some());
            }
            HistoryChange::Command { document: told } => command(collections, &document(told)),
            HistoryChange::Note { .. } => {}
        }
        let _ = collection;
    }
}

fn command(collections: &mut Collections, told: &Document) {
    let db = told.get_str("ns").unwrap().strip_suffix(".$cmd").unwrap();
    let o = told.get_document("o").unwrap();
    let named = |name: &str| format!("{db}.{}", o.get_str(name).unwrap());
    match o.keys().next().unwrap().as_str() {
        "create" => assert!(collections.insert(named("create"), BTreeMap::new()).is_none()),
        "drop" => {
            let gone = collections.remove(&named("drop")).expect("it was there");
            let n = told.get_document("o2").unwrap().get_i64("numRecords").unwrap();
            assert_eq!(n, gone.len() as i64);
        }
        "renameCollection" => {
            let documents = collections.remove(o.get_str("renameCollection").unwrap()).unwrap();
            let over = collections.insert(o.get_str("to").unwrap().to_owned(), documents);
            assert_eq!(over.is_some(), o.contains_key("dropTarget"));
        }
        "dropDatabase" => assert!(!collections.keys().any(|name| name.starts_with(&format!("{db}.")))),
        "createIndexes" | "dropIndexes" | "collMod" => {}
        other => panic!("{other}"),
    }
}

fn now(storage: &Arc<Storage>) -> Collections {
    let names = storage.catalog().collections("test").into_iter();
    names
        .map(|collection| {
            let name = collection.namespace();
            let documents = storage.all(name.collection()).into_iter();
            let documents = documents.map(|(_, document)| (document.get_i32("_id").unwrap(), document));
            (name.as_str().to_owned(), documents.collect())
        })
        .collect()
}

fn step(storage: &Arc<Storage>, op: &Operation, random: &SeededRandom, next_id: &mut i32) {
    let name = ["a", "b", "c"][pick(random, 3) as usize];
    let exists = storage.catalog().collection(&ns(name)).is_some();
    match pick(random, 40) {
        _ if !exists => {
            let images = rawdoc! { "changeStreamPreAndPostImages": { "enabled": true } };
            let options = if pick(random, 2) == 0 {
                rawdoc! {}
            } else {
                images
            };
            storage.make(op, name, options);
        }
        0 => drop(storage.drop_collection(op, &ns(name)).unwrap()),
        1 => drop(storage.drop_database(op, "test").unwrap()),
        2 => {
            let to = ["a", "b", "c"][pick(random, 3) as usize];
            if to != name {
                storage.rename_collection(op, &ns(name), &ns(to), true).unwrap();
            }
        }
        3 => {
            let spec = index("n_1", rawdoc! { "n": 1 }, rawdoc! {});
            storage.create_indexes(op, &ns(name), &[spec]).unwrap();
        }
        4 => drop(storage.drop_index(op, &ns(name), "n_1")),
        5 => drop(storage.write_note(&rawdoc! { "msg": "x" }).unwrap()),
        6..=20 => {
            let guard = storage.locked(op, name);
            let mut unit = storage.begin_write(op);
            for _ in 0..=pick(random, 3) {
                *next_id += 1;
                let n = pick(random, 10) as i32;
                unit.insert(&guard, &rawdoc! { "_id": *next_id, "n": n, "a": [1, n] })
                    .unwrap();
            }
            unit.commit().unwrap();
        }
        chosen => {
            let all = storage.all(name);
            if all.is_empty() {
                return;
            }
            let (id, old) = &all[pick(random, all.len() as u64) as usize];
            change(storage, op, name, (id.clone(), old), (chosen, pick(random, 100) as i32));
        }
    }
}

fn change(
    storage: &Arc<Storage>,
    op: &Operation,
    name: &str,
    (id, old): (RecordId, &Document),
    (chosen, n): (u64, i32),
) {
    let guard = storage.locked(op, name);
    let mut unit = storage.begin_write(op);
    let stored = unit.lock_record(&guard, &id).unwrap().unwrap();
    let stored = RawDocument::from_bytes(stored.as_ref()).unwrap();
    let key = old.get_i32("_id").unwrap();
    match chosen {
        21..=30 => {
            let mut new = old.clone();
            new.insert("n", n);
            new.insert(format!("f{}", n % 5), n);
            let new = bson::RawDocumentBuf::try_from(&new).unwrap();
            unit.update(&guard, &id, stored, &new).unwrap();
        }
        31..=35 => unit
            .update_as(
                &guard,
                &id,
                stored,
                &rawdoc! { "_id": key, "new": n },
                crate::UpdateForm::Replacement,
            )
            .unwrap(),
        _ => unit.delete(&guard, &id, stored).unwrap(),
    }
    unit.commit().unwrap();
}

/// A reader, what follows from what it has read, and the time of that.
struct Follower {
    reader: HistoryReader,
    collections: Collections,
    time: ClusterTime,
}

impl Follower {
    fn new(storage: &Arc<Storage>, from: Seq, collections: Collections) -> Self {
        Self {
            reader: storage.history(from, HistoryExtent::Applied),
            collections,
            time: ClusterTime::default(),
        }
    }

    fn read(&mut self, units: u64) {
        for _ in 0..units {
            let Some(unit) = self.reader.next_unit().unwrap() else {
                return;
            };
            let documents = unit.documents();
            for (time, part) in &documents {
                assert!(*time > self.time && !part.is_empty());
                self.time = *time;
            }
            assert_eq!(self.time, unit.time);
            assert_eq!(
                documents.iter().map(|(_, part)| part.len()).sum::<usize>(),
                unit.operations.len()
            );
            follow(&mut self.collections, &unit);
        }
    }
}

#[test]
fn the_data_follow_from_their_history() {
    let seed = seed_of("TENON_HISTORY_SEED");
    let random = SeededRandom::new(seed);
    let machine = Machine::new(seed);
    let mut next_id = 0;
    for _ in 0..3 {
        let (storage, op) = (member(&machine), machine.operation());
        let mut followers = vec![Follower::new(&storage, Seq(1), Collections::new())];
        for _ in 0..400 {
            step(&storage, &op, &random, &mut next_id);
            match pick(&random, 30) {
                0 => followers.push(Follower::new(&storage, storage.last_seq().next(), now(&storage))),
                1 => followers.push(Follower::new(&storage, Seq(1), Collections::new())),
                2 if followers.len() > 3 => drop(followers.swap_remove(1)),
                _ => {}
            }
            let chosen = pick(&random, followers.len() as u64) as usize;
            followers[chosen].read(pick(&random, 40));
            if pick(&random, 5) == 0 {
                followers[chosen].reader.rest();
            }
        }
        let expected = now(&storage);
        for follower in &mut followers {
            follower.read(u64::MAX);
            assert_eq!(follower.collections, expected);
        }
        storage.wait_durable(storage.last_seq()).unwrap();
        drop(followers);
        drop(storage);
        machine.fs.restart();
    }
}

#[test]
fn positions_are_found_by_time() {
    let machine = Machine::new(5);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut times = Vec::new();
    for n in 0..200 {
        storage.put(&op, "c", rawdoc! { "_id": n }).unwrap();
        times.push((storage.applied().time, storage.last_seq()));
    }
    for (time, seq) in times {
        assert_eq!(storage.history_position(time).unwrap(), seq);
        let mut reader = storage.history(seq, HistoryExtent::Applied);
        assert_eq!(reader.next_unit().unwrap().unwrap().time, time);
    }
    let end = storage.last_seq().next();
    assert_eq!(storage.history_position(ClusterTime(u64::MAX)).unwrap(), end);
    assert_eq!(storage.history_position(ClusterTime(0)).unwrap(), Seq(1));
}

#[test]
fn what_a_crash_may_take_back_is_not_durable_history() {
    let machine = Machine::new(6);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    storage.wait_durable(storage.last_seq()).unwrap();
    let (mut durable, mut applied) = (
        storage.history(storage.last_seq().next(), HistoryExtent::Durable),
        storage.history(storage.last_seq().next(), HistoryExtent::Applied),
    );
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    assert!(applied.next_unit().unwrap().is_some());
    assert!(durable.next_unit().unwrap().is_none());
    let wait = |storage: &Arc<Storage>| storage.wait_history(&op, durable.position(), Duration::ZERO).unwrap();
    assert!(!wait(&storage));
    storage.wait_durable(storage.last_seq()).unwrap();
    assert!(durable.next_unit().unwrap().is_some());
}

#[test]
fn recycled_history_is_lost_and_said_so() {
    let machine = Machine::new(7);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut slow = storage.history(Seq(1), HistoryExtent::Applied);
    assert!(slow.next_unit().unwrap().is_some());
    slow.rest();
    let first = storage.applied().time;
    let text = "x".repeat(60_000);
    for n in 0..400 {
        storage
            .put(&op, "c", rawdoc! { "_id": n, "text": text.as_str() })
            .unwrap();
        if n % 50 == 0 {
            storage.checkpoint().unwrap();
        }
    }
    assert!(storage.log().first_seq() > Seq(2), "{:?}", storage.log().first_seq());
    // It was in front of what is kept for all.
    let mut read = Ok(None);
    for _ in 0..500 {
        read = slow.next_unit();
        if !matches!(read, Ok(Some(_))) {
            break;
        }
    }
    assert!(matches!(read, Err(StorageError::HistoryLost)), "{read:?}");
    assert!(matches!(
        storage.history_position(first),
        Err(StorageError::HistoryLost)
    ));
    let kept = storage.history_position(storage.applied().time).unwrap();
    assert_eq!(kept, storage.last_seq());
}

#[test]
fn a_unit_has_a_point_of_time_for_each_document_it_becomes() {
    let machine = Machine::new(8);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut follower = Follower::new(&storage, storage.last_seq().next(), now(&storage));
    for (size, count) in [
        (15 << 20, 2),
        (9 << 20, 4),
        (100, 1000),
        (16 << 20, 1),
        ((5 << 20) + 1, 7),
    ] {
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        let text = "y".repeat(size - 40);
        let first = storage.applied().seq.0 as i32 * 10_000;
        for n in 0..count {
            unit.insert(&guard, &rawdoc! { "_id": first + n, "t": text.as_str() })
                .unwrap();
        }
        unit.commit().unwrap();
        storage.put(&op, "c", rawdoc! { "_id": first + 9_999 }).unwrap();
        drop(guard);
    }
    follower.read(u64::MAX);
    assert_eq!(follower.collections, now(&storage));
}

#[test]
fn commands_say_what_was_done() {
    let machine = Machine::new(9);
    let (storage, op) = (member(&machine), machine.operation());
    let mut reader = storage.history(storage.last_seq().next(), HistoryExtent::Applied);
    storage.make(&op, "c", rawdoc! { "capped": true, "size": 4096 });
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    let spec = index("n_1", rawdoc! { "n": 1 }, rawdoc! { "sparse": true });
    storage.create_indexes(&op, &ns("c"), &[spec]).unwrap();
    let hide = crate::CollectionChange {
        index: Some(crate::IndexChange {
            name: "n_1".to_owned(),
            hidden: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    };
    storage.modify_collection(&op, &ns("c"), &hide).unwrap();
    storage.drop_index(&op, &ns("c"), "n_1").unwrap();
    storage.make(&op, "d", rawdoc! {});
    storage.rename_collection(&op, &ns("c"), &ns("d"), true).unwrap();
    let view = Namespace::new("test", "v").unwrap();
    storage
        .create_view(&op, &view, "d", bson::RawArrayBuf::new(), &rawdoc! {})
        .unwrap();
    storage.drop_collection(&op, &ns("d")).unwrap();
    let mut told = Vec::new();
    while let Some(unit) = reader.next_unit().unwrap() {
        for operation in &unit.operations {
            if let HistoryChange::Command { document: told_of } = &operation.change {
                told.push(document(told_of).get_document("o").unwrap().clone());
            }
        }
    }
    let id_index = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
    let uuid = told[5].get("dropTarget").cloned().unwrap_or(Bson::Null);
    let expected = [
        doc! { "create": "c", "capped": true, "size": 4096, "idIndex": id_index.clone() },
        doc! { "createIndexes": "c", "v": 2, "key": { "n": 1 }, "name": "n_1", "sparse": true },
        doc! { "collMod": "c", "index": { "name": "n_1", "hidden": true } },
        doc! { "dropIndexes": "c", "index": "n_1" },
        doc! { "create": "d", "idIndex": id_index },
        doc! { "renameCollection": "test.c", "to": "test.d", "stayTemp": false, "dropTarget": uuid.clone() },
        doc! { "create": "v", "viewOn": "d", "pipeline": [] },
        doc! { "drop": "d" },
    ];
    assert_eq!(told, expected);
    assert_ne!(uuid, Bson::Null);
}

/// A reader that fell behind was told that its place is lost; the next one at that place waited for ever for a reader
/// of the log that had ended.
#[test]
fn every_reader_of_a_lost_place_is_told_so() {
    let machine = Machine::new(10);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut ahead = storage.history(Seq(1), HistoryExtent::Applied);
    while ahead.next_unit().unwrap().is_some() {}
    let place = ahead.position();
    for n in 0..100 {
        let document = rawdoc! { "_id": n, "text": "x".repeat(1_000) };
        storage.put(&op, "c", document).unwrap();
        if n % 10 == 0 {
            storage.checkpoint().unwrap();
        }
    }
    assert!(storage.log().first_seq() > place, "the log has been recycled");
    // The one that stands at the end of what is kept for all, again, and one that comes to it.
    for _ in 0..2 {
        assert!(matches!(ahead.next_unit(), Err(StorageError::HistoryLost)));
        let mut other = storage.history(place, HistoryExtent::Applied);
        assert!(matches!(other.next_unit(), Err(StorageError::HistoryLost)));
    }
}

/// A slow reader had a segment open that was recycled. What the segment's tables were called then is forgotten with it,
/// so that the reader told of changes under later names, or took them for damage.
#[test]
fn no_history_is_told_under_later_names() {
    for is_dropped in [false, true] {
        let machine = Machine::new(11);
        let (storage, op) = (member(&machine), machine.operation());
        storage.make(&op, "first", rawdoc! {});
        let begin = storage.last_seq().next();
        for n in 0..20 {
            storage.put(&op, "first", rawdoc! { "_id": n }).unwrap();
        }
        storage.wait_durable(storage.last_seq()).unwrap();
        // In front of what is kept for all: it reads by itself, and has read ahead.
        let end = storage.last_seq().next();
        let _newest = storage.history(end, HistoryExtent::Applied).next_unit().unwrap();
        let mut kept = storage.history(end, HistoryExtent::Applied);
        let mut slow = storage.history(begin, HistoryExtent::Applied);
        storage
            .rename_collection(&op, &ns("first"), &ns("second"), false)
            .unwrap();
        assert!(kept.next_unit().unwrap().is_some());
        let unit = slow.next_unit().unwrap().unwrap();
        assert_eq!(unit.operations[0].ns, Some(ns("first")));
        if is_dropped {
            storage.drop_collection(&op, &ns("second")).unwrap();
        }
        storage.make(&op, "filler", rawdoc! {});
        for n in 0..100 {
            let document = rawdoc! { "_id": n, "text": "x".repeat(1_000) };
            storage.put(&op, "filler", document).unwrap();
            if n % 10 == 0 {
                storage.checkpoint().unwrap();
            }
        }
        storage.checkpoint().unwrap();
        assert!(storage.log().first_seq() > end, "the log has been recycled");
        for _ in 0..2 {
            let next = slow.next_unit();
            assert!(matches!(next, Err(StorageError::HistoryLost)), "{next:?}");
        }
    }
}

/// A member whose log has so many documents, and readers that stand in front of what is kept for all.
fn with_old_history(documents: i32, machine: &Machine) -> (Arc<Storage>, Seq) {
    let (storage, op) = (member(machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let begin = storage.last_seq().next();
    for n in 0..documents {
        storage.put(&op, "c", rawdoc! { "_id": n }).unwrap();
    }
    storage.wait_durable(storage.last_seq()).unwrap();
    (storage, begin)
}

pub(super) fn inserted_id(unit: &HistoryUnit) -> i32 {
    match &unit.operations[0].change {
        HistoryChange::Insert { document: new } => document(new).get_i32("_id").unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Each idle cursor on old history had a file of the log open, until there were no descriptors left for the log.
#[test]
fn few_idle_readers_have_a_file_open() {
    let machine = Machine::new(12);
    let (storage, begin) = with_old_history(20, &machine);
    // The units that are kept for all begin behind the readers.
    let mut kept = storage.history(storage.last_seq(), HistoryExtent::Applied);
    assert_eq!(inserted_id(&kept.next_unit().unwrap().unwrap()), 19);
    let mut readers: Vec<_> = (0..100)
        .map(|_| storage.history(begin, HistoryExtent::Applied))
        .collect();
    for n in 0..10 {
        for reader in &mut readers {
            assert_eq!(inserted_id(&reader.next_unit().unwrap().unwrap()), n);
        }
        let open = readers.iter().filter(|reader| reader.holds_log()).count();
        assert!((1..=20).contains(&open), "{open}");
    }
    // Those that are used one after the other keep theirs.
    for _ in 0..2 {
        readers[..3]
            .iter_mut()
            .for_each(|reader| drop(reader.next_unit().unwrap()));
        assert!(readers[..3].iter().all(HistoryReader::holds_log));
    }
    machine
        .fs
        .inject(vfs::Fault::new(vfs::FaultKind::NoDescriptors).on("/").times(1));
    let refused = readers[50].next_unit();
    assert!(matches!(refused, Err(StorageError::OutOfDescriptors(_))), "{refused:?}");
    assert_eq!(inserted_id(&readers[50].next_unit().unwrap().unwrap()), 10);
}

/// The server ended when a change stream met a sector that cannot be read, and when it was resumed, again.
#[test]
fn old_history_that_cannot_be_read_is_an_error_of_the_reader_alone() {
    let machine = Machine::new(13);
    let (storage, begin) = with_old_history(20, &machine);
    let mut kept = storage.history(storage.last_seq(), HistoryExtent::Applied);
    kept.next_unit().unwrap().unwrap();
    let mut reader = storage.history(begin, HistoryExtent::Applied);
    machine
        .fs
        .inject(vfs::Fault::new(vfs::FaultKind::ReadError).times(1_000));
    for _ in 0..2 {
        let read = reader.next_unit();
        assert!(
            matches!(read, Err(StorageError::Log(oplog::LogError::Io { .. }))),
            "{read:?}"
        );
    }
    machine.fs.clear_faults();
    assert_eq!(inserted_id(&reader.next_unit().unwrap().unwrap()), 0);
    storage.put(&machine.operation(), "c", rawdoc! { "_id": 20 }).unwrap();
}

/// It ended the server, whose next start had the same before it.
#[test]
fn a_segment_that_cannot_be_recycled_waits_for_the_next_checkpoint() {
    let machine = Machine::new(14);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let before = storage.log().first_seq();
    let directory = std::path::Path::new("/db/journal");
    let mut files = machine.fs.list(directory).unwrap();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "log"));
    let oldest = files.iter().min().unwrap();
    machine.fs.inject(
        vfs::Fault::new(vfs::FaultKind::MetadataError)
            .on(directory.join(oldest))
            .times(1),
    );
    let checkpoint = |n: i32| {
        storage
            .put(&op, "c", rawdoc! { "_id": n, "text": "x".repeat(1_000) })
            .unwrap();
        storage.checkpoint()
    };
    let failed = (0..100).find_map(|n| checkpoint(n).err());
    let is_io = matches!(failed, Some(StorageError::Log(oplog::LogError::Io { .. })));
    assert!(is_io, "{failed:?}");
    assert_eq!(storage.log().first_seq(), before);
    checkpoint(100).unwrap();
    assert!(storage.log().first_seq() > before);
}

/// What tells of a document has its `_id` twice: a piece of history was longer than any reply may be, and whoever
/// followed the log could not pass it.
#[test]
fn what_is_told_of_long_ids_fits_into_documents() {
    let machine = Machine::new(19);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut reader = storage.history(storage.last_seq().next(), HistoryExtent::Applied);
    let before = storage.applied().time;
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    for n in 0..20_000 {
        let id = format!("{n:01000}");
        unit.insert(&guard, &rawdoc! { "_id": id.as_str() }).unwrap();
    }
    unit.commit().unwrap();
    let unit = reader.next_unit().unwrap().unwrap();
    let documents = unit.documents();
    assert!(documents.len() > 2, "{}", documents.len());
    assert!(documents[0].0 > before && documents[documents.len() - 1].0 == unit.time);
    for (_, part) in documents {
        let told = |operation: &HistoryOperation| match &operation.change {
            HistoryChange::Insert { document } => document.len() + document_key(document).unwrap().len(),
            other => panic!("{other:?}"),
        };
        let bytes: usize = part.iter().map(told).sum();
        assert!(bytes <= DOCUMENT_OPERATION_BYTES_MAX, "{bytes}");
    }
    // One alone is refused.
    let mut unit = storage.begin_write(&op);
    let inserted = unit.insert(&guard, &rawdoc! { "_id": "x".repeat(9 << 20) });
    assert!(
        matches!(inserted, Err(StorageError::DocumentTooLarge { .. })),
        "{inserted:?}"
    );
    unit.insert(&guard, &rawdoc! { "_id": 1, "text": "x".repeat((16 << 20) - 40) })
        .unwrap();
}

/// What became visible while a reader looked was taken for looked at.
#[test]
fn a_reader_says_up_to_where_it_looked() {
    let machine = Machine::new(20);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let mut reader = storage.history(storage.last_seq().next(), HistoryExtent::Applied);
    let end = storage.last_seq();
    assert!(reader.next_unit().unwrap().is_none());
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
    assert_eq!(reader.looked_up_to(), end);
    assert!(reader.next_unit().unwrap().is_some());
}

/// Each stream that was behind had a copy of its own of a transaction.
#[test]
fn readers_share_a_large_unit() {
    let machine = Machine::new(21);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let from = storage.last_seq().next();
    storage
        .put(&op, "c", rawdoc! { "_id": 1, "text": "x".repeat(2 << 20) })
        .unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 2 }).unwrap();
    // In front of what is kept for all.
    let mut kept = storage.history(storage.last_seq(), HistoryExtent::Applied);
    kept.next_unit().unwrap().unwrap();
    let next = |_| {
        storage
            .history(from, HistoryExtent::Applied)
            .next_unit()
            .unwrap()
            .unwrap()
    };
    let units: Vec<_> = (0..3).map(next).collect();
    assert!(units.iter().all(|unit| Arc::ptr_eq(unit, &units[0])));
    assert_eq!(inserted_id(&units[0]), 1);
}
