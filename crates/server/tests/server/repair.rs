//! Repair of a data directory whose files are damaged: what can be read is served again, and indexes agree with
//! documents.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test on the machine's own files: a failed step is a failed test"
)]

use bson::{RawDocument, rawdoc};
use server::config::{self, Config};
use server::data_directory::{DataDirectory, Metadata};
use server::engines::Registry;
use server::repair;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use storage::{
    Direction, FillLimits, IndexSpec, LockMode, Namespace, NoPartialIndexes, Operation, RecordBatch, Storage,
    StorageOptions,
};
use vfs::{Env, RealFs, SystemClock, SystemRandom};

const DOCUMENTS: i32 = 1000;

fn env() -> Env {
    Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    }
}

fn configured(path: &Path) -> Config {
    let text = format!("storage:\n  dbPath: {}\n", path.display());
    config::from_file_text(&text, Path::new("/")).unwrap()
}

fn open(config: &Config) -> (DataDirectory, Arc<Storage>) {
    let env = env();
    let wanted = Metadata {
        engine: "btree".to_owned(),
        directory_per_db: false,
    };
    let directory = DataDirectory::open(&*env.fs, &config.storage.db_path, &wanted, None).unwrap();
    let engine = Registry::built_in()
        .open("btree", &env, &directory.engine("btree"), &config.storage)
        .unwrap();
    let log = oplog::Log::open(&env, oplog::LogOptions::new(directory.journal()), engine.durable_seq()).unwrap();
    let mut options = StorageOptions::new(Arc::new(NoPartialIndexes));
    options.background = false;
    let storage = Storage::open(env, engine, Arc::new(log), options).unwrap();
    (directory, storage)
}

fn document(number: i32) -> bson::RawDocumentBuf {
    rawdoc! { "_id": number, "x": number % 97, "text": format!("{number:0>200}") }
}

fn insert(storage: &Storage, ns: &Namespace, numbers: std::ops::Range<i32>) {
    let op = Operation::new(env().clock, 0);
    let guard = storage.collection(&op, ns, LockMode::IntentExclusive).unwrap().unwrap();
    let mut unit = storage.begin_write(&op);
    for number in numbers {
        unit.insert(&guard, &document(number)).unwrap();
    }
    unit.commit().unwrap();
}

/// The documents by `_id`, once validation has found nothing.
fn content(storage: &Storage, ns: &Namespace) -> BTreeMap<i32, Vec<u8>> {
    let op = Operation::new(env().clock, 0);
    let report = storage.validate(&op, ns, true).unwrap();
    assert_eq!(report.errors, Vec::<String>::new());
    let collection = storage.catalog().collection(ns).unwrap();
    assert_eq!(collection.indexes().len(), 2, "both indexes are there");
    let view = storage.read().unwrap();
    let mut cursor = view
        .records(&collection, Bound::Unbounded, Bound::Unbounded, Direction::Forward)
        .unwrap();
    let (mut batch, mut documents) = (RecordBatch::new(), BTreeMap::new());
    while cursor.fill(&mut batch, FillLimits::default()).unwrap() {
        for index in 0..batch.len() {
            let bytes = batch.document(index);
            let id = RawDocument::from_bytes(bytes).unwrap().get_i32("_id").unwrap();
            assert!(documents.insert(id, bytes.to_vec()).is_none(), "{id} twice");
        }
    }
    assert_eq!(collection.count(), documents.len() as u64);
    documents
}

/// A directory with a collection of all documents and an index on `x`.
fn make(config: &Config, ns: &Namespace) {
    let (directory, storage) = open(config);
    let op = Operation::new(env().clock, 0);
    storage.create_collection(&op, ns, &rawdoc! {}).unwrap();
    insert(&storage, ns, 0..DOCUMENTS);
    let spec = rawdoc! { "v": 2, "key": { "x": 1 }, "name": "x_1" };
    let spec = IndexSpec::from_document(&spec).unwrap();
    storage.create_indexes(&op, ns, &[spec]).unwrap();
    storage.close(true).unwrap();
    directory.close().unwrap();
}

#[test]
fn what_is_whole_stays_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let (config, ns) = (configured(place.path()), Namespace::new("shop", "orders").unwrap());
    make(&config, &ns);
    assert_eq!(repair::run(&config, &Registry::built_in()), ExitCode::SUCCESS);
    assert!(!place.path().join("btree.damaged").exists());
    let (_directory, storage) = open(&config);
    assert_eq!(content(&storage, &ns).len(), DOCUMENTS as usize);
    storage.close(true).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Damage at many places, one after the other: whatever it hits, the result is consistent and has only what was
/// written.
#[test]
fn damaged_files_are_repaired() {
    damage_and_repair(&Namespace::new("shop", "orders").unwrap(), &[1, 3, 5, 7]);
}

/// Its name has no room for more: the repair failed, however often it was repeated.
#[test]
fn a_collection_of_the_longest_name_is_repaired() {
    damage_and_repair(&Namespace::new("shop", &"o".repeat(250)).unwrap(), &[1, 3, 5, 7]);
}

fn damage_and_repair(ns: &Namespace, parts: &[usize]) {
    let original = tempfile::tempdir().unwrap();
    make(&configured(original.path()), ns);
    let blocks = std::fs::read(original.path().join("btree/main.blocks")).unwrap();
    let used = blocks.iter().rposition(|byte| *byte != 0).unwrap();
    let (mut salvaged, mut lossy) = (0, 0);
    for part in parts {
        let place = tempfile::tempdir().unwrap();
        let config = configured(place.path());
        copy(original.path(), place.path());
        let file = place.path().join("btree/main.blocks");
        let mut blocks = blocks.clone();
        let at = (8192 + (used - 8192) * part / 8).min(blocks.len() - 16);
        blocks[at..at + 16].iter_mut().for_each(|byte| *byte ^= 0x5a);
        std::fs::write(&file, blocks).unwrap();
        assert_eq!(
            repair::run(&config, &Registry::built_in()),
            ExitCode::SUCCESS,
            "at {at}"
        );
        salvaged += usize::from(place.path().join("btree.damaged/main.blocks").exists());
        let (directory, storage) = open(&config);
        if storage.catalog().collection(ns).is_some() {
            let documents = content(&storage, ns);
            lossy += usize::from(documents.len() < DOCUMENTS as usize);
            for (id, bytes) in &documents {
                assert_eq!(bytes.as_slice(), document(*id).as_bytes());
            }
            assert!(
                documents.len() > DOCUMENTS as usize / 2,
                "{} documents",
                documents.len()
            );
            insert(&storage, ns, DOCUMENTS..DOCUMENTS + 10);
            assert_eq!(content(&storage, ns).len(), documents.len() + 10);
        } else {
            lossy += 1;
        }
        storage.close(true).unwrap();
        directory.close().unwrap();
    }
    assert!(salvaged > 0 && lossy > 0, "{salvaged} salvaged, {lossy} with losses");
}
