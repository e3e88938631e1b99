//! Names that collide, disks that are full, descriptors that run out, directories whose names are not durable.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Batch, CloseMode, Engine, ErrorKind, Maintenance, Result, StatValue, TableId, TableKind, TableSpec};
use engine_mmapv1::{Allocation, Mmapv1Engine, Mmapv1Options};
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, Fault, FaultKind, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const DIRECTORY: &str = "/data";

fn new_disk() -> SimulatedFs {
    disk_of(1)
}

fn disk_of(seed: u64) -> SimulatedFs {
    let fs = SimulatedFs::new(seed);
    fs.create_directory_all(Path::new(DIRECTORY)).unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    fs
}

fn small() -> Mmapv1Options {
    Mmapv1Options {
        first_file_bytes: 64 << 10,
        file_bytes_max: 1 << 20,
        namespace_bytes: 64 << 10,
        preallocate: false,
        ..Mmapv1Options::with_cache(16 << 20)
    }
}

fn open(fs: &SimulatedFs, options: &Mmapv1Options) -> Result<Mmapv1Engine> {
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    Mmapv1Engine::open(&env, Path::new(DIRECTORY), options.clone())
}

fn apply(engine: &Mmapv1Engine, batch: &Batch) {
    let seq = engine.snapshot().unwrap().seq().next();
    engine.apply(batch, seq).unwrap();
    engine.publish(seq);
}

fn spec(name: &str) -> TableSpec {
    TableSpec {
        kind: TableKind::Records,
        name: name.into(),
        compressor: None,
    }
}

fn create(engine: &Mmapv1Engine, table: u32, name: &str) {
    let mut batch = Batch::new();
    batch.create_table(TableId(table), spec(name));
    apply(engine, &batch);
}

fn put(engine: &Mmapv1Engine, table: u32, id: u64, bytes: usize) {
    let mut batch = Batch::new();
    batch.put(TableId(table), id.to_be_bytes().to_vec(), vec![id as u8; bytes]);
    apply(engine, &batch);
}

fn delete(engine: &Mmapv1Engine, table: u32, id: u64) {
    let mut batch = Batch::new();
    batch.delete(TableId(table), id.to_be_bytes().to_vec());
    apply(engine, &batch);
}

fn value_bytes(engine: &Mmapv1Engine, table: u32, id: u64) -> Option<usize> {
    let snapshot = engine.snapshot().unwrap();
    snapshot
        .get(TableId(table), &id.to_be_bytes())
        .unwrap()
        .map(|value| value.len())
}

fn verify(engine: &Mmapv1Engine) {
    let report = engine.maintain(&Maintenance::Verify(None)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// The first data file of a database `root` was the engine's first root file: no start came behind it. With a directory
/// for each database, that of `journal` could not be made where the journal is: each checkpoint failed.
#[test]
fn databases_may_be_called_like_the_engines_own_files() {
    for directory_per_database in [false, true] {
        let options = Mmapv1Options {
            directory_per_database,
            ..small()
        };
        let fs = new_disk();
        let engine = open(&fs, &options).unwrap();
        for (table, name) in (1..).zip(["root.a", "journal.a", "other.a"]) {
            create(&engine, table, name);
            // Enough for a second data file.
            (0..20).for_each(|id| put(&engine, table, id, 10_000));
        }
        engine.close(CloseMode::Checkpoint).unwrap();
        drop(engine);
        let engine = open(&fs, &options).unwrap();
        (1..=3).for_each(|table| assert_eq!(value_bytes(&engine, table, 19), Some(10_000)));
        verify(&engine);
        // Their files go, and not the engine's.
        let mut batch = Batch::new();
        batch.drop_table(TableId(1));
        batch.drop_table(TableId(2));
        apply(&engine, &batch);
        engine.checkpoint().unwrap();
        engine.close(CloseMode::Checkpoint).unwrap();
        drop(engine);
        let root_files = ["root.0", "root.1", "journal"];
        root_files
            .iter()
            .for_each(|name| assert!(fs.exists(&Path::new(DIRECTORY).join(name)).unwrap(), "{name}"));
        let engine = open(&fs, &options).unwrap();
        assert_eq!(value_bytes(&engine, 3, 19), Some(10_000));
        assert_eq!(engine.tables().unwrap().len(), 1);
    }
}

/// Of a list of free slots only the first was looked at: one that was too short hid all behind it, and each round took
/// new room.
#[test]
fn room_of_deleted_records_is_used_again() {
    for (allocation, sizes) in [
        (Allocation::PowersOfTwo, [2_500_000, 1_500_000]),
        (Allocation::Exact, [2_500_000, 2_200_000]),
        (Allocation::Exact, [900, 600]),
    ] {
        let fs = new_disk();
        let options = Mmapv1Options { allocation, ..small() };
        let engine = open(&fs, &options).unwrap();
        create(&engine, 1, "db.records");
        put(&engine, 1, 0, 100);
        let round = || {
            (1..).zip(sizes).for_each(|(id, bytes)| put(&engine, 1, id, bytes));
            (1..=2).for_each(|id| delete(&engine, 1, id));
            engine.table_stats(TableId(1)).unwrap().storage_bytes
        };
        let first = round();
        let last = (0..30).fold(first, |_, _| round());
        assert_eq!(first, last, "{allocation:?} {sizes:?}");
        put(&engine, 1, 1, sizes[0]);
        verify(&engine);
        assert_eq!(value_bytes(&engine, 1, 1), Some(sizes[0]));
    }
}

fn checkpoint_error(engine: &Mmapv1Engine) -> ErrorKind {
    engine.checkpoint().unwrap_err().kind()
}

fn exists(fs: &SimulatedFs, name: &str) -> bool {
    fs.exists(&Path::new(DIRECTORY).join(name)).unwrap()
}

/// A data file was reserved whole or not at all: with less space than that no checkpoint succeeded, however little was
/// to be written.
#[test]
fn a_disk_that_has_no_room_for_a_whole_file_has_room_for_what_is_in_it() {
    let options = Mmapv1Options {
        first_file_bytes: 64 << 20,
        namespace_bytes: 16 << 20,
        preallocate: true,
        ..small()
    };
    let fs = new_disk();
    let engine = open(&fs, &options).unwrap();
    fs.set_free_bytes(Some(2 << 20));
    create(&engine, 1, "db.a");
    put(&engine, 1, 1, 10_000);
    engine.checkpoint().unwrap();
    // Page by page, until it is full; then it is as any full disk.
    (2..=50).for_each(|id| put(&engine, 1, id, 10_000));
    engine.checkpoint().unwrap();
    (51..=400).for_each(|id| put(&engine, 1, id, 10_000));
    assert_eq!(checkpoint_error(&engine), ErrorKind::OutOfSpace);
    fs.set_free_bytes(Some(64 << 20));
    engine.checkpoint().unwrap();
    drop(engine);
    // After a start nobody knows that the file was not reserved whole.
    fs.restart();
    let engine = open(&fs, &options).unwrap();
    assert_eq!(value_bytes(&engine, 1, 400), Some(10_000));
    verify(&engine);
    fs.set_free_bytes(Some(500_000));
    (401..=500).for_each(|id| put(&engine, 1, id, 10_000));
    assert_eq!(checkpoint_error(&engine), ErrorKind::OutOfSpace);
    fs.set_free_bytes(None);
    engine.checkpoint().unwrap();
    verify(&engine);
}

/// What attempts had made for a database that was dropped before any checkpoint succeeded, and files that were given
/// back before, stayed until the next start: dropping made no room on a full disk.
#[test]
fn files_of_checkpoints_that_failed_are_removed_when_nothing_needs_them() {
    for directory_per_database in [false, true] {
        let options = Mmapv1Options {
            directory_per_database,
            ..small()
        };
        let path = |name: &str| match directory_per_database {
            true => format!("{}/{name}", name.split_once('.').unwrap().0),
            false => name.to_owned(),
        };
        let fs = new_disk();
        let engine = open(&fs, &options).unwrap();
        create(&engine, 1, "kept.a");
        put(&engine, 1, 0, 10);
        engine.checkpoint().unwrap();
        fs.set_free_bytes(Some(900_000));
        create(&engine, 2, "large.a");
        (0..100).for_each(|id| put(&engine, 2, id, 10_000));
        create(&engine, 4, "kept.b");
        (1..40).for_each(|id| put(&engine, 4, id, 10_000));
        assert_eq!(checkpoint_error(&engine), ErrorKind::OutOfSpace);
        assert!(exists(&fs, &path("large.ns")) && exists(&fs, &path("kept.2")));
        let mut batch = Batch::new();
        batch.drop_table(TableId(2));
        batch.drop_table(TableId(4));
        apply(&engine, &batch);
        engine.maintain(&Maintenance::Compact(Some(vec![TableId(1)]))).unwrap();
        engine.checkpoint().unwrap();
        assert!(!exists(&fs, &path("large.ns")) && !exists(&fs, &path("large.0")));
        assert!(!exists(&fs, "large") && !exists(&fs, &path("kept.2")));
        // It comes again, with the same paths.
        create(&engine, 3, "large.b");
        put(&engine, 3, 1, 10_000);
        engine.checkpoint().unwrap();
        drop(engine);
        fs.restart();
        let engine = open(&fs, &options).unwrap();
        assert_eq!(value_bytes(&engine, 1, 0), Some(10));
        assert_eq!(value_bytes(&engine, 3, 1), Some(10_000));
        verify(&engine);
    }
}

/// With a full disk a load went on into memory, and so did writers.
#[test]
fn a_full_disk_bounds_what_is_dirty() {
    let options = Mmapv1Options {
        cache_bytes: 2 << 20,
        ..small()
    };
    let fs = new_disk();
    let engine = open(&fs, &options).unwrap();
    create(&engine, 1, "db.loaded");
    create(&engine, 2, "db.written");
    engine.checkpoint().unwrap();
    fs.set_free_bytes(Some(0));
    let mut loaded = 0;
    let mut rows = (0..2_000u64).map(|id| {
        loaded += 1;
        (id.to_be_bytes().to_vec(), vec![1; 30_000])
    });
    let failed = engine.bulk_load(TableId(1), &mut rows, engine.snapshot().unwrap().seq());
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert!(loaded < 200, "{loaded}");
    let mut written = 0;
    while !engine.is_full() && written < 2_000 {
        while !engine.throttle() {}
        put(&engine, 2, written, 30_000);
        written += 1;
    }
    assert!(engine.is_full() && written < 200, "{written}");
    fs.set_free_bytes(None);
    engine.checkpoint().unwrap();
    assert!(!engine.is_full());
    assert_eq!(value_bytes(&engine, 2, written - 1), Some(30_000));
    verify(&engine);
}

/// New databases opened files up to the last descriptor, also those that are kept. Of these a checkpoint may take:
/// where connections had all others, a database that needed one more data file made it fail for all.
#[test]
fn new_databases_leave_the_descriptors_that_checkpoints_need() {
    let fs = new_disk();
    let engine = open(&fs, &small()).unwrap();
    // A new database takes those of its first files before anything of it is in the log.
    fs.inject(Fault::new(FaultKind::NoDescriptors).on(format!("{DIRECTORY}/root.0")));
    let refused = engine.prepare_tables(&[spec("db.a")]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfSpace);
    // All that one entry makes.
    engine.prepare_tables(&[spec("db.a"), spec("other.a")]).unwrap();
    fs.inject(Fault::new(FaultKind::NoDescriptors).on("/").times(u64::MAX));
    create(&engine, 1, "db.a");
    create(&engine, 2, "other.a");
    put(&engine, 1, 1, 10);
    put(&engine, 2, 1, 10);
    engine.checkpoint().unwrap();
    // A second data file, and a database that nobody prepared, as on a follower.
    (2..20).for_each(|id| put(&engine, 1, id, 10_000));
    create(&engine, 3, "followed.a");
    put(&engine, 3, 1, 10);
    engine.checkpoint().unwrap();
    assert!(exists(&fs, "db.1") && exists(&fs, "followed.0"));
    // Who decides leaves others' descriptors alone.
    let refused = engine.check_new_table(&spec("more.a"));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfSpace);
    // Where none is left at all, it is tried again.
    let next = (2..).find(|number| !exists(&fs, &format!("db.{number}"))).unwrap();
    fs.inject(Fault::new(FaultKind::NoDescriptors).on(format!("{DIRECTORY}/db.{next}")));
    (20..200).for_each(|id| put(&engine, 1, id, 10_000));
    assert_eq!(checkpoint_error(&engine), ErrorKind::OutOfSpace);
    engine.checkpoint().unwrap();
    verify(&engine);
}

/// Where one root file was damaged a start wrote both anew, the good one first: a crash in that left none.
#[test]
fn a_start_mends_a_root_file_without_touching_the_other() {
    for (damaged, good) in [("root.0", "root.1"), ("root.1", "root.0")] {
        let fs = new_disk();
        let engine = open(&fs, &small()).unwrap();
        create(&engine, 1, "db.a");
        put(&engine, 1, 1, 10);
        engine.close(CloseMode::Checkpoint).unwrap();
        drop(engine);
        fs.flip_bit(&Path::new(DIRECTORY).join(damaged), 30, 1).unwrap();
        fs.inject(Fault::new(FaultKind::WriteError).on(format!("{DIRECTORY}/{good}")));
        drop(open(&fs, &small()).unwrap());
        fs.clear_faults();
        // Either is enough again.
        fs.remove_file(&Path::new(DIRECTORY).join(good)).unwrap();
        let engine = open(&fs, &small()).unwrap();
        assert_eq!(value_bytes(&engine, 1, 1), Some(10));
    }
}

/// The directory of a database whose name could not be synced was taken to be durable by the next checkpoint.
#[test]
fn a_directory_that_was_not_synced_is_not_taken_to_be_durable() {
    let options = Mmapv1Options {
        directory_per_database: true,
        ..small()
    };
    // Whether what was not synced is lost is drawn by the seed.
    for seed in 0..16 {
        let fs = disk_of(seed);
        let engine = open(&fs, &options).unwrap();
        create(&engine, 1, "db.a");
        fs.inject(Fault::new(FaultKind::SyncError).on(DIRECTORY));
        assert!(engine.checkpoint().is_err());
        assert_eq!(fs.faults_struck(), 1);
        let is_durable = engine.checkpoint().is_ok();
        drop(engine);
        fs.crash();
        fs.restart();
        let engine = open(&fs, &options).unwrap();
        assert_eq!(engine.tables().unwrap().len(), usize::from(is_durable));
    }
}

/// Of long rows a load made gigabytes dirty between two looks at the cache. Where nobody else wrote it waited for ever
/// for a checkpoint that found nothing to do.
#[test]
fn a_load_of_long_rows_on_an_idle_engine_keeps_to_the_cache() {
    const CACHE_BYTES: i64 = 4 << 20;
    let options = Mmapv1Options {
        cache_bytes: CACHE_BYTES as u64,
        ..small()
    };
    let fs = new_disk();
    let engine = open(&fs, &options).unwrap();
    create(&engine, 1, "db.loaded");
    engine.checkpoint().unwrap();
    let mut most = 0;
    let mut rows = (0..60u64).map(|id| {
        engine.stats(&mut |name, value| {
            if let (StatValue::Number(bytes), "cache.dirty_bytes") = (value, name) {
                most = bytes.max(most);
            }
        });
        (id.to_be_bytes().to_vec(), vec![id as u8; 500_000])
    });
    let seq = engine.snapshot().unwrap().seq();
    assert_eq!(engine.bulk_load(TableId(1), &mut rows, seq).unwrap(), 60);
    assert!(most > 0 && most < CACHE_BYTES, "{most}");
    engine.checkpoint().unwrap();
    drop(engine);
    fs.restart();
    let engine = open(&fs, &options).unwrap();
    assert_eq!(value_bytes(&engine, 1, 59), Some(500_000));
    verify(&engine);
}

/// A compaction took a checkpoint whenever it gave files back, also while somebody copied the files one by one: the
/// copy was of two states. So did who asked for another one, at the same position.
#[test]
fn nothing_is_written_while_files_are_kept() {
    let fs = new_disk();
    let engine = open(&fs, &small()).unwrap();
    create(&engine, 1, "db.a");
    create(&engine, 2, "db.b");
    put(&engine, 1, 1, 10);
    (0..40).for_each(|id| put(&engine, 2, id, 10_000));
    engine.checkpoint().unwrap();
    let mut batch = Batch::new();
    batch.drop_table(TableId(2));
    apply(&engine, &batch);
    engine.keep_files(true).unwrap();
    engine.checkpoint().unwrap();
    let before = fs.operations();
    engine.maintain(&Maintenance::Compact(None)).unwrap();
    assert_eq!(fs.operations(), before);
    engine.keep_files(true).unwrap();
    engine.checkpoint().unwrap();
    engine.keep_files(false).unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(fs.operations(), before);
    assert!(exists(&fs, "db.2"));
    engine.keep_files(false).unwrap();
    engine.checkpoint().unwrap();
    assert!(!exists(&fs, "db.2"));
    verify(&engine);
}
