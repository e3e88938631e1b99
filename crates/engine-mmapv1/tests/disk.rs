//! Names that collide, disks that are full, descriptors that run out, directories whose names are not durable.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Batch, CloseMode, Engine, Maintenance, Result, TableId, TableKind, TableSpec};
use engine_mmapv1::{Allocation, Mmapv1Engine, Mmapv1Options};
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const DIRECTORY: &str = "/data";

fn new_disk() -> SimulatedFs {
    let fs = SimulatedFs::new(1);
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
        let last = (0..30).map(|_| round()).last().unwrap();
        assert_eq!(first, last, "{allocation:?} {sizes:?}");
        put(&engine, 1, 1, sizes[0]);
        verify(&engine);
        assert_eq!(value_bytes(&engine, 1, 1), Some(sizes[0]));
    }
}
