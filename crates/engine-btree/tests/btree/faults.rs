//! Disks that fill up, fail and lie under trees of hundreds of leaves, in every stage of the engine's work.
//!
//! Three tables of the same keys: records, an index of short leaves, and rows of which every eighth is a large value. A
//! row says its key and the version it was written with, so that whatever a read yields can be judged: right, of an
//! earlier checkpoint, or wrong. `TENON_SEED=n` repeats a random test.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

mod damage;

use blocks::{BlockKind, BlockStore, SalvagedBlock};
use bytes::Bytes;
use engine::{
    Batch, CloseMode, Direction, Engine, EngineError, ErrorKind, FillLimits, KeyRange, Maintenance, Result, Rows, Seq,
    TableId, TableKind, TableSpec,
};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::check::{Content, Written, expect_content, read_all};
use engine_soak::{Dice, check};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, Fault, FaultKind, FileSystem, Random, SeededRandom, SimulatedClock, SimulatedFs, SystemRandom};

const DIRECTORY: &str = "/data";
const TABLES: [(TableId, TableKind); 3] = [
    (TableId(3), TableKind::Records),
    (TableId(4), TableKind::Index),
    (TableId(5), TableKind::Records),
];
/// The table with large values.
const LARGE: TableId = TableId(5);
/// A table that is loaded in bulk.
const LOADED: TableId = TableId(6);
const ROWS: u64 = 1200;
const SECTOR_BYTES: u64 = 512;
/// Leaves of a table at least: else a test proves less than it says.
const LEAVES_MIN: usize = 60;

fn options() -> BtreeOptions {
    BtreeOptions {
        cache_bytes: 1 << 20,
        record_leaf_bytes: 1024,
        index_leaf_bytes: 600,
        collection_compressor: codec::Codec::None,
        index_compressor: codec::Codec::Lz4,
        large_value_bytes: 2048,
        threads: Some(0),
        segment_bytes: 32 << 10,
        ..BtreeOptions::default()
    }
}

fn env(fs: &SimulatedFs) -> Env {
    Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    }
}

fn open_with(fs: &SimulatedFs, options: BtreeOptions) -> Result<BtreeEngine> {
    BtreeEngine::open(&env(fs), Path::new(DIRECTORY), options)
}

fn open(fs: &SimulatedFs) -> Result<BtreeEngine> {
    open_with(fs, options())
}

fn disk(seed: u64) -> SimulatedFs {
    let fs = SimulatedFs::new(seed);
    vfs::create_directory_durably(&fs, Path::new(DIRECTORY)).unwrap();
    fs
}

fn seeds(count: usize) -> Vec<u64> {
    match std::env::var("TENON_SEED") {
        Ok(text) => vec![text.parse().unwrap()],
        Err(_) => (0..count).map(|_| SystemRandom::new().next_u64()).collect(),
    }
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(table: TableId, number: u64, version: u64) -> Vec<u8> {
    let random = SeededRandom::new(number * 1000 + version);
    let length = if table == LARGE && number.is_multiple_of(8) {
        2500
    } else {
        60
    };
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..16].copy_from_slice(&version.to_be_bytes());
    bytes
}

fn spec(table: TableId, kind: TableKind) -> TableSpec {
    TableSpec {
        kind,
        name: format!("db{}.rows", table.0),
        compressor: None,
    }
}

/// Makes the tables.
fn begin(engine: &BtreeEngine) -> Written {
    let mut batch = Batch::new();
    for (table, kind) in TABLES {
        batch.create_table(table, spec(table, kind));
    }
    engine.apply(&batch, Seq(1)).unwrap();
    engine.publish(Seq(1));
    Written::begun()
}

/// Writes version `version` to every row whose number `picks` takes, and deletes those that `goes` takes; all published
/// at the end.
fn write(
    engine: &BtreeEngine,
    written: &mut Written,
    version: u64,
    picks: impl Fn(u64) -> bool,
    goes: impl Fn(u64) -> bool,
) {
    let mut state = written.at(Seq(u64::MAX)).clone();
    let mut seq = written.newest();
    let tables: Vec<TableId> = engine.tables().unwrap().into_iter().map(|(table, _)| table).collect();
    for numbers in (0..ROWS).collect::<Vec<_>>().chunks(100) {
        let mut batch = Batch::new();
        for &number in numbers {
            for table in tables.iter().copied().filter(|table| *table != LOADED) {
                if goes(number) {
                    batch.delete(table, key(number));
                    state.remove(&(table, key(number)));
                } else if picks(number) {
                    batch.put(table, key(number), value(table, number, version));
                    state.insert((table, key(number)), value(table, number, version));
                }
            }
        }
        if batch.ops().is_empty() {
            continue;
        }
        seq = seq.next();
        engine.apply(&batch, seq).unwrap();
        // One position for all of it: nothing between may be recovered.
    }
    engine.publish(seq);
    written.states.insert(seq, state);
}

fn all(_: u64) -> bool {
    true
}

fn none(_: u64) -> bool {
    false
}

#[track_caller]
fn expect_sound(engine: &BtreeEngine, what: &str) {
    check::engine_is_sound(engine, what).unwrap();
}

fn expect_closed<T>(result: Result<T>, what: &str) {
    match result {
        Ok(_) => panic!("{what}: a stopped engine answered"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed, "{what}: {error}"),
    }
}

/// A stopped engine stops all of its calls.
fn expect_everything_closed(engine: &BtreeEngine, what: &str) {
    expect_closed(engine.snapshot(), what);
    expect_closed(engine.tables(), what);
    expect_closed(engine.apply(&Batch::new(), Seq(u64::MAX - 1)), what);
    expect_closed(engine.checkpoint(), what);
    expect_closed(
        engine.bulk_load(TABLES[0].0, &mut std::iter::empty(), Seq(u64::MAX - 1)),
        what,
    );
    expect_closed(engine.table_stats(TABLES[0].0), what);
    expect_closed(engine.maintain(&Maintenance::Verify(None)), what);
    expect_closed(engine.maintain(&Maintenance::Compact(None)), what);
    expect_closed(engine.backup(), what);
    expect_closed(engine.check_space(), what);
}

/// Opens what is on the disk and compares it with what was written up to the position it stands at.
#[track_caller]
fn expect_recovery(fs: &SimulatedFs, written: &Written, at_least: Seq, what: &str) -> BtreeEngine {
    let engine = open(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let at = engine.durable_seq();
    assert!(at >= at_least, "{what}: {at_least:?} was durable, {at:?} came back");
    expect_content(&engine, written.at(at), what);
    expect_sound(&engine, what);
    engine
}

/// Every whole block of the files.
fn blocks_of(fs: &SimulatedFs) -> Vec<SalvagedBlock> {
    let mut found = Vec::new();
    BlockStore::salvage_scan(&env(fs), Path::new(DIRECTORY), &mut |block| found.push(block)).unwrap();
    found
}

/// One checkpoint of all tables, and nothing else on the disk that could be taken for a part of it.
fn one_checkpoint() -> (SimulatedFs, Written) {
    let fs = disk(1);
    let roomy = BtreeOptions {
        cache_bytes: 64 << 20,
        ..options()
    };
    let engine = open_with(&fs, roomy).unwrap();
    let mut written = begin(&engine);
    write(&engine, &mut written, 1, all, none);
    engine.close(CloseMode::Checkpoint).unwrap();
    for (table, _) in TABLES {
        let leaves = leaves_of(&fs, table);
        assert!(leaves >= LEAVES_MIN, "{leaves} leaves of {table:?}");
    }
    (fs, written)
}

/// Leaves were cut by the rows that were published; what a batch had put into them and was not published yet went
/// uncounted, so that a batch of many rows left leaves of eight times their size on disk.
#[test]
fn a_batch_of_many_rows_makes_leaves_of_the_usual_size() {
    let (fs, _) = one_checkpoint();
    let longest = blocks_of(&fs)
        .into_iter()
        .filter(|block| block.kind == BlockKind::Leaf && block.owner == TABLES[0].0.0)
        .map(|block| block.raw.len())
        .max();
    let bound = options().record_leaf_bytes * 2;
    assert!(
        longest.is_some_and(|longest| longest <= bound),
        "{longest:?} bytes in one leaf"
    );
}

fn leaves_of(fs: &SimulatedFs, table: TableId) -> usize {
    let blocks = blocks_of(fs);
    let leaves = blocks
        .iter()
        .filter(|block| block.kind == BlockKind::Leaf && block.owner == table.0);
    leaves.count()
}

/// What is done while the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    WriteBack,
    Checkpoint,
    BulkLoad,
    Compaction,
}

/// Does it; an error is the engine's.
fn run_stage(stage: Stage, engine: &BtreeEngine, written: &mut Written) -> Result<()> {
    match stage {
        // More than the cache holds: memory is made room in by writing, which cannot be.
        Stage::WriteBack => {
            for version in 10..16 {
                write(engine, written, version, all, none);
                expect_content(engine, written.at(Seq(u64::MAX)), "while the disk is full");
            }
            Ok(())
        }
        Stage::Checkpoint => engine.checkpoint().map(|_| ()),
        Stage::BulkLoad => {
            let seq = written.newest().next();
            let mut batch = Batch::new();
            batch.create_table(LOADED, spec(LOADED, TableKind::Records));
            engine.apply(&batch, seq)?;
            let mut state = written.at(seq).clone();
            let rows: Vec<_> = (0..ROWS).map(|number| (key(number), value(LARGE, number, 7))).collect();
            let loaded = engine.bulk_load(LOADED, &mut rows.clone().into_iter(), seq);
            if loaded.is_ok() {
                state.extend(rows.into_iter().map(|(key, value)| ((LOADED, key), value)));
            }
            written.states.insert(seq, state);
            engine.publish(seq);
            loaded.map(|_| ())
        }
        Stage::Compaction => {
            write(engine, written, 5, none, |number| number % 16 > 2);
            engine.maintain(&Maintenance::Compact(None)).map(|_| ())
        }
    }
}

fn full_disk(stage: Stage, free: u64) -> bool {
    let what = format!("{stage:?} with {free} bytes free");
    let fs = disk(free);
    let engine = open(&fs).unwrap();
    let mut written = begin(&engine);
    write(&engine, &mut written, 1, all, none);
    let acknowledged = engine.checkpoint().unwrap();
    assert!(leaves_of(&fs, TABLES[0].0) >= LEAVES_MIN && leaves_of(&fs, LARGE) >= LEAVES_MIN);
    write(&engine, &mut written, 2, |number| number % 3 == 0, none);
    fs.set_free_bytes(Some(free));
    let result = run_stage(stage, &engine, &mut written);
    let failed = result.is_err();
    if let Err(error) = result {
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{what}: {error}");
    }
    // What a crash would leave while the disk is full.
    drop(expect_recovery(&fs.after_crash(free), &written, acknowledged, &what));
    let engine = match engine.snapshot() {
        // It goes on: nothing was lost, and with room everything becomes durable.
        Ok(_) => {
            expect_content(&engine, written.at(written.newest()), &what);
            fs.set_free_bytes(None);
            engine
        }
        Err(_) => {
            expect_everything_closed(&engine, &what);
            drop(engine);
            fs.set_free_bytes(None);
            fs.restart();
            let engine = expect_recovery(&fs, &written, acknowledged, &what);
            let at = engine.durable_seq();
            written.states.retain(|seq, _| *seq <= at);
            engine
        }
    };
    write(&engine, &mut written, 3, |number| number % 5 == 0, none);
    assert_eq!(engine.checkpoint().unwrap(), written.newest(), "{what}");
    expect_content(&engine, written.at(written.newest()), &what);
    // A second one frees what the first one replaced: no block of the failed attempt is left behind.
    write(&engine, &mut written, 4, |number| number % 50 == 0, none);
    engine.checkpoint().unwrap();
    expect_sound(&engine, &what);
    drop(engine);
    fs.restart();
    drop(expect_recovery(&fs, &written, written.newest(), &what));
    failed
}

fn full_disks(stage: Stage) {
    let mut failed = 0;
    for free in [0, 1, 3 << 10, 20 << 10, 60 << 10, 120 << 10, 300 << 10] {
        failed += usize::from(full_disk(stage, free));
    }
    // Write-back is nobody's call, so it fails no call.
    assert!(
        (failed > 1) == (stage != Stage::WriteBack),
        "{stage:?} failed {failed} times"
    );
}

#[test]
fn a_disk_that_is_full_at_write_back_loses_nothing() {
    full_disks(Stage::WriteBack);
}

#[test]
fn a_disk_that_is_full_at_a_checkpoint_loses_nothing() {
    full_disks(Stage::Checkpoint);
}

#[test]
fn a_disk_that_is_full_at_a_bulk_load_loses_nothing() {
    full_disks(Stage::BulkLoad);
}

#[test]
fn a_disk_that_is_full_at_a_compaction_loses_nothing() {
    full_disks(Stage::Compaction);
}

/// Failed checkpoints take no room for good, and one that needs next to none goes through on a full disk: a table whose
/// changes filled it can be dropped.
#[test]
fn dropping_a_table_makes_room_on_a_full_disk() {
    let fs = disk(1);
    let engine = open(&fs).unwrap();
    let mut written = begin(&engine);
    write(&engine, &mut written, 1, all, none);
    engine.checkpoint().unwrap();
    fs.set_free_bytes(Some(48 << 10));
    let mut batch = Batch::new();
    for number in 0..ROWS {
        batch.put(LARGE, key(number), value(LARGE, number, 2));
    }
    let seq = written.newest().next();
    engine.apply(&batch, seq).unwrap();
    engine.publish(seq);
    for _ in 0..5 {
        assert_eq!(engine.checkpoint().unwrap_err().kind(), ErrorKind::OutOfSpace);
    }
    let seq = seq.next();
    let mut batch = Batch::new();
    batch.drop_table(LARGE);
    engine.apply(&batch, seq).unwrap();
    engine.publish(seq);
    let mut state = written.at(seq).clone();
    state.retain(|(table, _), _| *table != LARGE);
    written.states.insert(seq, state);
    assert_eq!(engine.checkpoint().unwrap(), seq);
    expect_content(&engine, written.at(seq), "after the drop");
    // Its room is there for the others.
    write(&engine, &mut written, 3, all, none);
    assert_eq!(engine.checkpoint().unwrap(), written.newest());
    expect_content(&engine, written.at(written.newest()), "in its room");
    expect_sound(&engine, "after the drop");
}

/// Each sync of a checkpoint fails once: files of three volumes, the superblocks, directories.
#[test]
fn every_failed_sync_of_a_checkpoint_stops_the_engine() {
    let options = BtreeOptions {
        directory_per_db: true,
        ..options()
    };
    let mut syncs = 0;
    for skipped in 0.. {
        let what = format!("sync {skipped}");
        let fs = disk(skipped);
        let engine = open_with(&fs, options.clone()).unwrap();
        let mut written = begin(&engine);
        write(&engine, &mut written, 1, all, none);
        let before = engine.checkpoint().unwrap();
        write(&engine, &mut written, 2, |number| number % 2 == 0, none);
        let view = engine.snapshot().unwrap();
        let mut cursor = view.cursor(TABLES[0].0, KeyRange::all(), Direction::Forward).unwrap();
        let struck = fs.faults_struck();
        fs.inject(Fault::new(FaultKind::SyncError).after(skipped));
        let result = engine.checkpoint();
        if fs.faults_struck() == struck {
            assert_eq!(result.unwrap(), written.newest());
            break;
        }
        syncs += 1;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Io, "{what}");
        expect_everything_closed(&engine, &what);
        expect_closed(cursor.fill(&mut Rows::new(), FillLimits::default()), &what);
        drop((cursor, engine));
        fs.restart();
        let engine = open_with(&fs, options.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let at = engine.durable_seq();
        assert!(at == before || at == written.newest(), "{what}: {at:?} came back");
        expect_content(&engine, written.at(at), &what);
        expect_sound(&engine, &what);
    }
    assert!(
        syncs >= 4,
        "a checkpoint of three volumes syncs them and its superblocks, not {syncs} files"
    );
}

/// A sync or a change of names that fails while a store is made or opened: an error, and the next opening works.
#[test]
fn a_failed_sync_or_name_at_opening_passes() {
    for kind in [FaultKind::SyncError, FaultKind::MetadataError, FaultKind::WriteError] {
        for filled in [false, true] {
            for skipped in 0.. {
                let what = format!("{kind:?} {skipped}, filled: {filled}");
                let fs = disk(skipped);
                let mut written = Written {
                    states: [(Seq::ZERO, Content::new())].into(),
                };
                if filled {
                    let engine = open(&fs).unwrap();
                    written = begin(&engine);
                    write(&engine, &mut written, 1, |number| number < 50, none);
                    engine.close(CloseMode::Checkpoint).unwrap();
                }
                fs.inject(Fault::new(kind).after(skipped));
                let result = open(&fs);
                let struck = fs.faults_struck() > 0;
                fs.clear_faults();
                match result {
                    Ok(engine) => expect_content(&engine, written.at(engine.durable_seq()), &what),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}"),
                }
                drop(expect_recovery(&fs, &written, written.newest(), &what));
                fs.restart();
                drop(expect_recovery(&fs, &written, written.newest(), &what));
                if !struck {
                    break;
                }
            }
        }
    }
}

/// With a file for each database the file is made and opened before anything is logged: without descriptors, or on a
/// full disk, that is an error of this one creation, and what was prepared is not opened again when the batch comes.
#[test]
fn a_table_that_is_prepared_needs_no_more_files() {
    let options = BtreeOptions {
        directory_per_db: true,
        ..options()
    };
    let spec = |name: &str| TableSpec {
        kind: TableKind::Records,
        name: name.to_owned(),
        compressor: None,
    };
    let fs = disk(1);
    let engine = open_with(&fs, options.clone()).unwrap();
    let prepare = |names: &[&str]| engine.prepare_tables(&names.iter().map(|name| spec(name)).collect::<Vec<_>>());
    let create = |number: u32, name: &str| {
        let mut batch = Batch::new();
        batch.create_table(TableId(number), spec(name));
        batch.put(TableId(number), &b"key"[..], &b"value"[..]);
        let seq = Seq(u64::from(number));
        engine.apply(&batch, seq).unwrap();
        engine.publish(seq);
    };
    let no_descriptors = |opened| Fault::new(FaultKind::NoDescriptors).after(opened).times(u64::MAX);

    prepare(&["first.rows"]).unwrap();
    fs.inject(no_descriptors(0));
    create(10, "first.rows");
    prepare(&["first.more"]).unwrap();
    create(11, "first.more");
    fs.clear_faults();
    // Wherever the descriptors run out.
    for opened in 0.. {
        fs.inject(no_descriptors(opened));
        let result = prepare(&["second.rows"]);
        fs.clear_faults();
        match result {
            Ok(()) => {
                assert!(opened >= 2);
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}"),
        }
    }
    fs.set_free_bytes(Some(0));
    let error = prepare(&["third.rows"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    fs.set_free_bytes(None);
    // Prepared, not created, and then something else is: nothing of it is left.
    prepare(&["fourth.rows"]).unwrap();
    prepare(&["second.rows"]).unwrap();
    create(12, "second.rows");
    engine.checkpoint().unwrap();
    assert!(!fs.exists(&Path::new(DIRECTORY).join("fourth/data.blocks")).unwrap());
    // A checkpoint does not take away what was prepared before it.
    prepare(&["fifth.rows"]).unwrap();
    engine.checkpoint().unwrap();
    fs.inject(no_descriptors(0));
    create(13, "fifth.rows");
    fs.clear_faults();
    // All that one entry makes, or none of it.
    fs.inject(
        Fault::new(FaultKind::NoDescriptors)
            .on("/data/seventh/data.blocks")
            .times(u64::MAX),
    );
    let error = prepare(&["sixth.rows", "seventh.rows"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    fs.clear_faults();
    engine.checkpoint().unwrap();
    assert!(!fs.exists(&Path::new(DIRECTORY).join("sixth/data.blocks")).unwrap());
    prepare(&["sixth.rows", "seventh.rows", "fifth.more", "sixth.more"]).unwrap();
    engine.checkpoint().unwrap();
    fs.inject(no_descriptors(0));
    create(14, "seventh.rows");
    create(15, "fifth.more");
    create(16, "sixth.rows");
    create(17, "sixth.more");
    fs.clear_faults();
    engine.close(CloseMode::Checkpoint).unwrap();
    let engine = open_with(&fs, options).unwrap();
    let view = engine.snapshot().unwrap();
    for number in 10..=17 {
        assert_eq!(view.get(TableId(number), b"key").unwrap().unwrap()[..], *b"value");
    }
}
