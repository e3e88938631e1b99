//! A copy of a backup's files is the state of one moment, whatever goes on while they are copied.

#![allow(clippy::unwrap_used)]

use crate::testing::{Calls, EqualCompiler, Machine, index, ns};
use crate::{Storage, StorageBackup, StorageError, StorageOptions};
use bson::rawdoc;
use engine::{Engine, ErrorKind};
use engine_btree::{BtreeEngine, BtreeOptions};
use oplog::{EngineAhead, Log, LogOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use vfs::{Access, Env, FileSystem};

/// A storage on the btree engine, in `<directory>/btree` and `<directory>/journal`.
fn open(env: &Env, directory: &Path) -> Arc<Storage> {
    let engine_directory = directory.join("btree");
    env.fs.create_directory_all(&engine_directory).unwrap();
    let options = BtreeOptions {
        threads: Some(0),
        ..BtreeOptions::default()
    };
    let engine = Arc::new(BtreeEngine::open(env, &engine_directory, options).unwrap());
    let mut log = LogOptions::new(directory.join("journal"));
    log.segment_bytes = oplog::SEGMENT_BYTES_MIN;
    log.background = false;
    // A copy has no lock file, so it counts as ended cleanly; its log may be empty.
    log.engine_ahead = EngineAhead::BeginBehind;
    let log = Arc::new(Log::open(env, log, engine.durable_seq()).unwrap());
    let mut options = StorageOptions::new(Arc::new(EqualCompiler));
    options.background = false;
    options.sync_period = Duration::ZERO;
    Storage::open(env.clone(), engine, log, options).unwrap()
}

fn copy(fs: &dyn FileSystem, from: &Path, to: &Path, bytes: u64) {
    let mut content = vec![0; bytes as usize];
    let source = fs.open(from, Access::Read).unwrap();
    source.read_exact_at(&mut content, 0).unwrap();
    fs.create_directory_all(to.parent().unwrap()).unwrap();
    fs.open(to, Access::CreateNew)
        .unwrap()
        .write_all_at(&content, 0)
        .unwrap();
}

fn copy_engine(fs: &dyn FileSystem, from: &Path, to: &Path, backup: &StorageBackup) {
    for (name, bytes) in backup.engine_files() {
        copy(
            fs,
            &from.join("btree").join(&name),
            &to.join("btree").join(&name),
            bytes,
        );
    }
}

fn copy_log(fs: &dyn FileSystem, to: &Path, backup: &StorageBackup) {
    for (path, bytes) in backup.log_files() {
        copy(fs, &path, &to.join("journal").join(path.file_name().unwrap()), bytes);
    }
}

#[test]
fn a_copy_is_the_moment_of_the_backup() {
    let machine = Machine::new(1);
    let (env, op) = (machine.env(), machine.operation());
    let (directory, to) = (Path::new("/db"), Path::new("/copy"));
    let storage = open(&env, directory);
    storage.make(&op, "c", rawdoc! {});
    storage
        .create_indexes(&op, &ns("c"), &[index("n_1", rawdoc! { "n": 1 }, rawdoc! {})])
        .unwrap();
    let write = |from: i32, count: i32| {
        for id in from..from + count {
            storage
                .put(&op, "c", rawdoc! { "_id": id, "n": id % 7, "pad": "x".repeat(400) })
                .unwrap();
        }
    };
    write(0, 200);
    let before = storage.all("c");
    let backup = storage.backup().unwrap();
    assert!(storage.is_backup_open());
    assert!(matches!(storage.backup().map(drop), Err(StorageError::BackupOpen)));

    // What was written is overwritten, moved and purged, half of it before the copy and half of it in its midst.
    let disturb = |from: i32| {
        write(from, 100);
        for (id, _) in storage.all("c").into_iter().step_by(3) {
            storage.remove(&op, "c", id).unwrap();
        }
        storage.checkpoint().unwrap();
        storage.make(&op, &format!("later{from}"), rawdoc! {});
        storage.checkpoint().unwrap();
    };
    disturb(1_000);
    copy_engine(&*env.fs, directory, to, &backup);
    disturb(2_000);
    copy_log(&*env.fs, to, &backup);

    let copied = open(&env, to);
    assert_eq!(copied.all("c"), before);
    assert_eq!(copied.catalog().all_collections().len(), 1);
    copied.assert_valid(&op, "c");
    copied.put(&op, "c", rawdoc! { "_id": "it goes on" }).unwrap();
    copied.close(true).unwrap();

    drop(backup);
    assert!(!storage.is_backup_open());
    drop(storage.backup().unwrap());
    storage.close(true).unwrap();
}

#[test]
fn backups_beside_a_writer_end_with_a_whole_entry() {
    let machine = Machine::new(1);
    let (env, op) = (machine.env(), machine.operation());
    let storage = open(&env, Path::new("/db"));
    storage.make(&op, "c", rawdoc! {});
    let (acknowledged, stop) = (AtomicI32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let op = machine.operation();
            while !stop.load(Ordering::SeqCst) {
                let id = acknowledged.load(Ordering::SeqCst);
                storage
                    .put(&op, "c", rawdoc! { "_id": id, "pad": "x".repeat(400) })
                    .unwrap();
                acknowledged.store(id + 1, Ordering::SeqCst);
            }
        });
        // Whatever becomes of this thread, the writer stops.
        let _stop = scopeguard::guard(&stop, |stop| stop.store(true, Ordering::SeqCst));
        let (mut round, mut with_log) = (0, 0);
        while round < 5 || with_log == 0 {
            let before = acknowledged.load(Ordering::SeqCst);
            let backup = storage.backup().unwrap();
            let to = PathBuf::from(format!("/copy-{round}"));
            copy_engine(&*env.fs, Path::new("/db"), &to, &backup);
            copy_log(&*env.fs, &to, &backup);
            with_log += usize::from(!backup.log_files().is_empty());
            drop(backup);
            let copied = open(&env, &to);
            let found = copied.all("c");
            assert!(
                found.len() >= before as usize,
                "{before} acknowledged, {} found",
                found.len()
            );
            for (id, (_, document)) in found.iter().enumerate() {
                assert_eq!(document.get_i32("_id").unwrap(), id as i32);
            }
            copied.assert_valid(&op, "c");
            copied.close(true).unwrap();
            round += 1;
        }
    });
    storage.close(true).unwrap();
}

#[test]
fn what_the_checkpoint_lacks_comes_from_the_log_or_there_is_no_backup() {
    let machine = Machine::new(1);
    let (env, op) = (machine.env(), machine.operation());
    let storage = open(&env, Path::new("/db"));
    storage.make(&op, "c", rawdoc! {});
    let write = |count: i32| {
        for _ in 0..count {
            let id = storage.last_seq().0 as i64;
            storage
                .put(&op, "c", rawdoc! { "_id": id, "pad": "x".repeat(400) })
                .unwrap();
            storage.log().flush().unwrap();
        }
    };
    // While this lives, the engine's backups are of the same checkpoint.
    let older = storage.engine().backup().unwrap();
    write(5);
    let backup = storage.backup().unwrap();
    assert!(backup.seq() < storage.last_seq() && !backup.log_files().is_empty());
    let to = Path::new("/copy");
    copy_engine(&*env.fs, Path::new("/db"), to, &backup);
    copy_log(&*env.fs, to, &backup);
    let before = storage.all("c");
    drop(backup);
    let copied = open(&env, to);
    assert_eq!(copied.all("c"), before);
    copied.close(true).unwrap();

    write(100);
    storage.checkpoint().unwrap();
    let refused = storage.backup().map(drop);
    assert!(
        matches!(refused, Err(StorageError::Log(oplog::LogError::Purged { .. }))),
        "{refused:?}"
    );
    assert!(!storage.is_backup_open());
    drop(older);
    assert_eq!(storage.backup().unwrap().seq(), storage.last_seq());
    storage.close(true).unwrap();
}

#[test]
fn an_engine_without_backups_says_so() {
    let machine = Machine::new(1);
    let storage = machine.open().unwrap();
    for _ in 0..2 {
        match storage.backup().map(drop) {
            Err(StorageError::Engine(error)) => assert_eq!(error.kind(), ErrorKind::Unsupported),
            other => panic!("{other:?}"),
        }
    }
    assert!(!storage.is_backup_open());
}
