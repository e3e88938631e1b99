//! Repair of a data directory whose files are damaged: what can be read is served again, and indexes agree with
//! documents.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test on the machine's own files: a failed step is a failed test"
)]

use bson::{RawDocument, rawdoc};
use oplog::EngineAhead;
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

fn configured_for(path: &Path, engine: &str) -> Config {
    let text = format!("storage:\n  dbPath: {}\n  engine: {engine}\n", path.display());
    config::from_file_text(&text, Path::new("/")).unwrap()
}

fn open(config: &Config) -> (DataDirectory, Arc<Storage>) {
    open_with(config, EngineAhead::Refuse)
}

fn open_with(config: &Config, engine_ahead: EngineAhead) -> (DataDirectory, Arc<Storage>) {
    let env = env();
    let name = Registry::built_in().choose(config.storage.engine.as_deref()).unwrap();
    let wanted = Metadata {
        engine: name.to_owned(),
        directory_per_db: false,
    };
    let directory = DataDirectory::open(&*env.fs, &config.storage.db_path, &wanted, None).unwrap();
    let engine = Registry::built_in()
        .open(name, &env, &directory.engine(name), &config.storage)
        .unwrap();
    let mut log = oplog::LogOptions::new(directory.journal());
    log.engine_ahead = engine_ahead;
    let log = oplog::Log::open(&env, log, engine.durable_seq()).unwrap();
    directory.note_opened(&*env.fs, true).unwrap();
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

fn repaired(config: &Config) -> bool {
    repair::run(config, &Registry::built_in()) == ExitCode::SUCCESS
}

/// As if checkpoints had purged the log: it begins behind what the engine has.
fn purge_log(config: &Config) {
    let journal = config.storage.db_path.join("journal");
    std::fs::remove_dir_all(&journal).unwrap();
    let (directory, storage) = open_with(config, EngineAhead::BeginBehind);
    storage.close(true).unwrap();
    directory.close().unwrap();
    assert!(std::fs::read_dir(&journal).unwrap().next().is_some());
}

fn is_whole(config: &Config, ns: &Namespace) -> bool {
    let (directory, storage) = open(config);
    let documents = content(&storage, ns);
    storage.close(true).unwrap();
    directory.close().unwrap();
    documents.len() == DOCUMENTS as usize && documents.iter().all(|(id, bytes)| bytes == document(*id).as_bytes())
}

/// The names of all files, and how long they are.
fn files(path: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let inner = files(&entry.path()).into_iter();
            found.extend(inner.map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
        } else if name != "tenond.lock" {
            found.insert(name, entry.metadata().unwrap().len());
        }
    }
    found
}

/// Files that had gone, with a volume that was not mounted perhaps, were called whole: the log was put aside, and the
/// directory served with nothing in it.
#[test]
fn an_engine_whose_files_are_gone_is_not_repaired_to_nothing() {
    for engine in ["btree", "betree", "mmapv1", "inMemory"] {
        println!("{engine}");
        let place = tempfile::tempdir().unwrap();
        let (config, ns) = (
            configured_for(place.path(), engine),
            Namespace::new("shop", "orders").unwrap(),
        );
        make(&config, &ns);
        purge_log(&config);
        let (folder, aside) = (place.path().join(engine), tempfile::tempdir().unwrap());
        copy(&folder, aside.path());
        for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                std::fs::remove_dir_all(entry).unwrap();
            } else {
                std::fs::remove_file(entry).unwrap();
            }
        }
        for _ in 0..2 {
            assert!(!repaired(&config));
            assert!(!place.path().join("journal.damaged").exists() && !place.path().join("repair.bson").exists());
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!repaired(&config));
        // They come back.
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        copy(aside.path(), &folder);
        assert!(repaired(&config) && is_whole(&config, &ns));
    }
}

/// A log that had every document was put aside for an engine that had none of them.
#[test]
fn a_log_that_has_everything_makes_the_data_anew() {
    for engine in ["btree", "betree", "mmapv1"] {
        for is_removed in [true, false] {
            println!("{engine}, removed: {is_removed}");
            let place = tempfile::tempdir().unwrap();
            let (config, ns) = (
                configured_for(place.path(), engine),
                Namespace::new("shop", "orders").unwrap(),
            );
            make(&config, &ns);
            let folder = place.path().join(engine);
            for (name, bytes) in files(&folder) {
                let path = folder.join(name);
                match is_removed {
                    true => std::fs::remove_file(path).unwrap(),
                    false => std::fs::write(path, vec![0; bytes as usize]).unwrap(),
                }
            }
            assert!(repaired(&config));
            assert!(is_whole(&config, &ns), "{engine}");
            let aside = place.path().join(format!("{engine}.damaged"));
            assert_eq!(aside.exists(), !is_removed, "what was damaged is kept");
            assert!(repaired(&config), "and once more");
        }
    }
}

/// Folder and metadata had gone, and all data were in the log: nothing led back to them.
#[test]
fn a_log_alone_makes_the_data_anew_for_an_engine_that_is_named() {
    let place = tempfile::tempdir().unwrap();
    let (config, ns) = (configured(place.path()), Namespace::new("shop", "orders").unwrap());
    make(&config, &ns);
    std::fs::remove_dir_all(place.path().join("btree")).unwrap();
    std::fs::remove_file(place.path().join("storage.bson")).unwrap();
    assert!(!repaired(&config), "no engine is named");
    assert!(!place.path().join("storage.bson.new").exists());
    assert!(repaired(&configured_for(place.path(), "btree")));
    assert!(is_whole(&config, &ns));
}

/// What was written without a log is in the files alone.
#[test]
fn a_log_that_lacks_writes_is_not_taken_for_all() {
    let place = tempfile::tempdir().unwrap();
    let (config, ns) = (configured(place.path()), Namespace::new("shop", "orders").unwrap());
    make(&config, &ns);
    let (directory, storage) = open(&config);
    directory.note_opened(&*env().fs, false).unwrap();
    storage.close(true).unwrap();
    directory.close().unwrap();
    let blocks = place.path().join("btree/main.blocks");
    let mut headless = std::fs::read(&blocks).unwrap();
    headless[..8192].fill(0);
    std::fs::write(&blocks, headless).unwrap();
    assert!(repaired(&config));
    assert!(
        place.path().join("journal.damaged").exists(),
        "what was salvaged counts"
    );
}

/// A salvage that found nothing at all answered 0, and put an empty engine in the damaged one's place.
#[test]
fn where_nothing_can_be_read_nothing_is_changed() {
    let place = tempfile::tempdir().unwrap();
    let (config, ns) = (configured(place.path()), Namespace::new("shop", "orders").unwrap());
    make(&config, &ns);
    purge_log(&config);
    let blocks = place.path().join("btree/main.blocks");
    let bytes = std::fs::read(&blocks).unwrap();
    std::fs::write(&blocks, vec![0; bytes.len()]).unwrap();
    let before = files(place.path());
    assert!(!repaired(&config));
    assert_eq!(files(place.path()), before);
    // Superblocks alone are not all.
    let mut headless = bytes.clone();
    headless[..8192].fill(0);
    std::fs::write(&blocks, headless).unwrap();
    assert!(repaired(&config) && place.path().join("btree.damaged").exists());
}

#[test]
fn metadata_that_is_lost_is_written_anew_for_the_engine_that_is_there() {
    for is_damaged in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let (config, ns) = (
            configured_for(place.path(), "betree"),
            Namespace::new("shop", "orders").unwrap(),
        );
        make(&config, &ns);
        let file = place.path().join("storage.bson");
        match is_damaged {
            true => std::fs::write(&file, b"damaged").unwrap(),
            false => std::fs::remove_file(&file).unwrap(),
        }
        let before = files(place.path());
        assert!(!repaired(&configured(place.path())) && !repaired(&configured_for(place.path(), "mmapv1")));
        assert_eq!(files(place.path()), before);
        assert!(repaired(&config));
        assert!(is_whole(&config, &ns) && repaired(&configured(place.path())));
    }
}

/// Where a repair had lost the catalog, and with it who the others are, the directory stayed a member's.
#[test]
fn a_member_that_lost_its_catalog_is_a_member_no_more() {
    let place = tempfile::tempdir().unwrap();
    let (config, ns) = (configured(place.path()), Namespace::new("shop", "orders").unwrap());
    make(&config, &ns);
    let (directory, storage) = open(&config);
    directory.instance(&*env().fs, &SystemRandom::new()).unwrap();
    storage.close(true).unwrap();
    directory.close().unwrap();
    purge_log(&config);
    let blocks = place.path().join("btree/main.blocks");
    let mut bytes = std::fs::read(&blocks).unwrap();
    bytes[..8192].fill(0);
    std::fs::write(&blocks, bytes).unwrap();
    assert!(repaired(&config));
    let (directory, _storage) = open(&config);
    assert!(directory.repair_mark(&*env().fs).unwrap().left_set);
}
