//! Disks that fill up, fail and lie under trees of several levels, in every stage of the engine's work: basements,
//! segments of messages with their filters, and a value of several blocks.
//!
//! A row says its key and the version it was written with, so that whatever a read yields can be judged: right, or
//! wrong. `TENON_SEED=n` repeats a random test.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use blocks::{BlockKind, BlockStore, SalvagedBlock};
use engine::{
    Batch, CloseMode, Direction, Engine, EngineError, ErrorKind, FillLimits, KeyRange, Maintenance, Result, Seq,
    TableId, TableKind, TableSpec,
};
use engine_betree::{BetreeEngine, BetreeOptions};
use engine_soak::check::{Written, expect_content};
use engine_soak::{Dice, check, seeds};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, Env, Fault, FaultKind, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const DIRECTORY: &str = "/data";
const RECORDS: TableId = TableId(3);
const INDEX: TableId = TableId(4);
/// A table that is loaded in bulk.
const LOADED: TableId = TableId(5);
const TABLES: [(TableId, TableKind); 2] = [(RECORDS, TableKind::Records), (INDEX, TableKind::Index)];
const ROWS: u64 = 1500;
const SECTOR_BYTES: u64 = 512;

/// So small that a table of [`ROWS`] rows has three levels, and that most segments have filters.
fn options() -> BetreeOptions {
    BetreeOptions {
        cache_bytes: 1 << 20,
        collection_compressor: codec::Codec::None,
        index_compressor: codec::Codec::Lz4,
        node_bytes: 4 << 10,
        basement_bytes: 600,
        buffer_bytes: 6 << 10,
        fanout: 4,
        memtable_bytes: Some(256 << 10),
        threads: Some(0),
        segment_bytes: 32 << 10,
        direct_io: true,
    }
}

fn env(fs: &SimulatedFs) -> Env {
    Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    }
}

fn open(fs: &SimulatedFs) -> Result<BetreeEngine> {
    BetreeEngine::open(&env(fs), Path::new(DIRECTORY), options())
}

fn disk(seed: u64) -> SimulatedFs {
    let fs = SimulatedFs::new(seed);
    vfs::create_directory_durably(&fs, Path::new(DIRECTORY)).unwrap();
    fs
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(version as u32).to_be_bytes());
    bytes
}

/// Makes the tables.
fn begin(engine: &BetreeEngine) -> Written {
    let mut batch = Batch::new();
    for (table, kind) in TABLES {
        batch.create_table(table, spec(table, kind));
    }
    engine.apply(&batch, Seq(1)).unwrap();
    engine.publish(Seq(1));
    Written::begun()
}

fn spec(table: TableId, kind: TableKind) -> TableSpec {
    TableSpec {
        kind,
        name: format!("db.rows{}", table.0),
        compressor: None,
    }
}

/// Writes version `version` to every row whose number `picks` takes, in batches, each of them a position.
fn write(engine: &BetreeEngine, written: &mut Written, version: u64, picks: impl Fn(u64) -> bool) -> Result<()> {
    let mut seq = written.newest();
    let numbers: Vec<u64> = (0..ROWS).filter(|number| picks(*number)).collect();
    for numbers in numbers.chunks(100) {
        let mut state = written.at(seq).clone();
        let mut batch = Batch::new();
        for &number in numbers {
            for (table, _) in TABLES {
                batch.put(table, key(number), value(number, version));
                state.insert((table, key(number)), value(number, version));
            }
        }
        seq = seq.next();
        engine.apply(&batch, seq)?;
        engine.publish(seq);
        written.states.insert(seq, state);
    }
    Ok(())
}

fn all(_: u64) -> bool {
    true
}

/// Everything once, and then every third row again, of which much waits in buffers. One durable checkpoint holds it.
fn filled() -> (SimulatedFs, Written) {
    let fs = disk(1);
    let engine = open(&fs).unwrap();
    let mut written = begin(&engine);
    write(&engine, &mut written, 1, all).unwrap();
    engine.maintain(&Maintenance::Compact(None)).unwrap();
    write(&engine, &mut written, 2, |number| number % 3 == 0).unwrap();
    engine.close(CloseMode::Checkpoint).unwrap();
    (fs, written)
}

/// Opens what is on the disk and compares it with what was written up to the position it stands at.
#[track_caller]
fn expect_recovery(fs: &SimulatedFs, written: &Written, at_least: Seq, what: &str) -> BetreeEngine {
    let engine = open(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let at = engine.durable_seq();
    assert!(at >= at_least, "{what}: {at_least:?} was durable, {at:?} came back");
    expect_content(&engine, written.at(at), what);
    check::engine_is_sound(&engine, what).unwrap();
    engine
}

#[track_caller]
fn expect_corrupt(error: &EngineError, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
}

/// Reads a damaged store by each key and by scans: what is read is right, or an error that names the damage. Answers
/// whether there was one.
fn is_noticed(fs: &SimulatedFs, written: &Written, what: &str) -> bool {
    let engine = match open(fs) {
        Ok(engine) => engine,
        Err(error) => {
            expect_corrupt(&error, what);
            return true;
        }
    };
    let mut noticed = false;
    let expected = written.at(engine.durable_seq());
    let view = engine.snapshot().unwrap();
    for (table, _) in engine.tables().unwrap() {
        for number in 0..ROWS {
            match view.get(table, &key(number)) {
                Ok(found) => {
                    let right = expected.get(&(table, key(number)));
                    let found = found.as_deref();
                    assert_eq!(found, right.map(Vec::as_slice), "{what}: row {number} of {table:?}");
                }
                Err(error) => {
                    expect_corrupt(&error, what);
                    noticed = true;
                }
            }
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            match check::scan(&view, table, &KeyRange::all(), direction, FillLimits::default()) {
                Ok(rows) => {
                    let count = expected.keys().filter(|(at, _)| *at == table).count();
                    assert_eq!(rows.len(), count, "{what}: {table:?} {direction:?}");
                }
                Err(error) => {
                    expect_corrupt(&error, what);
                    noticed = true;
                }
            }
        }
    }
    // The check looks at more than reads need, and does not stop the engine.
    match engine.maintain(&Maintenance::Verify(None)) {
        Ok(report) => {
            assert!(
                !noticed || !report.problems.is_empty(),
                "{what}: the check found nothing"
            );
            noticed |= !report.problems.is_empty();
        }
        Err(error) => {
            expect_corrupt(&error, what);
            noticed = true;
        }
    }
    engine.snapshot().unwrap();
    noticed
}

fn blocks_of(fs: &SimulatedFs) -> Vec<SalvagedBlock> {
    let mut found = Vec::new();
    BlockStore::salvage_scan(&env(fs), Path::new(DIRECTORY), &mut |block| found.push(block)).unwrap();
    found
}

/// What of the tree or the store a block is; filters are the tables' own blocks of the kind that the store uses, too.
fn name_of(block: &SalvagedBlock) -> &'static str {
    let is_of_table = TABLES.iter().any(|(table, _)| table.0 == block.owner);
    match (block.kind, is_of_table) {
        (BlockKind::Leaf, true) => "rows or messages",
        (BlockKind::Inner, true) => "node",
        (BlockKind::Meta, true) => "filter",
        (BlockKind::Meta, false) => "directory of the store",
        (BlockKind::Map, _) => "map of used sectors",
        _ => "table of tables",
    }
}

/// Bits of each kind of block: in the head, in the content, at the end.
#[test]
fn a_flipped_bit_in_every_kind_of_block_is_noticed_or_harmless() {
    for seed in seeds(1) {
        println!("TENON_SEED={seed}");
        let dice = Dice::new(seed);
        let (fs, written) = filled();
        let mut kinds: BTreeMap<&str, Vec<SalvagedBlock>> = BTreeMap::new();
        for block in blocks_of(&fs) {
            kinds.entry(name_of(&block)).or_default().push(block);
        }
        let names: Vec<&str> = kinds.keys().copied().collect();
        let expected = [
            "directory of the store",
            "filter",
            "map of used sectors",
            "node",
            "rows or messages",
            "table of tables",
        ];
        assert_eq!(names, expected);
        let path = Path::new(DIRECTORY).join("main.blocks");
        for (name, blocks) in kinds {
            // Freed blocks, which nothing has overwritten, are among them: the newest are in use.
            let newest = blocks.iter().map(|block| block.checkpoint).max().unwrap();
            let live: Vec<_> = blocks.iter().filter(|block| block.checkpoint == newest).collect();
            let mut noticed = 0;
            for round in 0..12 {
                let block = live[dice.below(live.len() as u64) as usize];
                let offset = match round % 3 {
                    0 => dice.below(40),
                    1 => block.addr.bytes() - 1 - dice.below(8),
                    _ => dice.below(block.addr.bytes()),
                };
                let at = block.addr.sector() * SECTOR_BYTES + offset;
                let damaged = fs.after_crash(1);
                damaged.flip_bit(&path, at, dice.below(8) as u8).unwrap();
                let what = format!("{name} at sector {}, byte {offset}", block.addr.sector());
                noticed += usize::from(is_noticed(&damaged, &written, &what));
            }
            assert!(noticed > 0, "{name}: none of 12 damages was noticed");
        }
        drop(expect_recovery(
            &fs,
            &written,
            written.newest(),
            "with all bits as they were",
        ));
    }
}

/// Each of many writes of the second checkpoint is lost, or goes elsewhere: what is missing here, or was overwritten
/// there, is damage and never read as something else.
fn lying_writes(kind: FaultKind) {
    let (mut struck, mut noticed) = (0, 0);
    for skipped in (0..200).step_by(3) {
        let what = format!("{kind:?} {skipped}");
        let fs = disk(skipped);
        let engine = open(&fs).unwrap();
        let mut written = begin(&engine);
        write(&engine, &mut written, 1, all).unwrap();
        engine.checkpoint().unwrap();
        let before = fs.faults_struck();
        fs.inject(Fault::new(kind).after(skipped));
        // What was written before it is lost is read again on the way, out of the file or the cache.
        let result = write(&engine, &mut written, 2, |number| number % 2 == 0).and_then(|()| engine.checkpoint());
        if let Err(error) = result {
            assert!(
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Closed),
                "{what}: {error}"
            );
        }
        drop(engine);
        if fs.faults_struck() == before {
            break;
        }
        struck += 1;
        fs.restart();
        noticed += usize::from(is_noticed(&fs, &written, &what));
    }
    assert!(struck > 3, "{kind:?} struck {struck} writes");
    assert!(noticed > 1, "{kind:?}: {noticed} of {struck} were noticed");
}

#[test]
fn lost_writes_are_noticed() {
    lying_writes(FaultKind::LostWrite);
}

#[test]
fn misdirected_writes_are_noticed() {
    lying_writes(FaultKind::MisdirectedWrite { by: 512 });
    lying_writes(FaultKind::MisdirectedWrite { by: 16 << 10 });
}

/// What is done when the disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Flush,
    Checkpoint,
    BulkLoad,
    Compaction,
}

const STAGES: [Stage; 4] = [Stage::Flush, Stage::Checkpoint, Stage::BulkLoad, Stage::Compaction];

/// Does it; an error is the engine's.
fn run_stage(stage: Stage, engine: &BetreeEngine, written: &mut Written) -> Result<()> {
    match stage {
        // More than memtables may hold; flushes are nobody's call, and the calls after one that failed fail.
        Stage::Flush => (10..16).try_for_each(|version| write(engine, written, version, all)),
        Stage::Checkpoint => engine.checkpoint().map(|_| ()),
        Stage::BulkLoad => {
            let seq = written.newest().next();
            let mut batch = Batch::new();
            batch.create_table(LOADED, spec(LOADED, TableKind::Records));
            engine.apply(&batch, seq)?;
            let mut state = written.at(seq).clone();
            let rows: Vec<_> = (0..ROWS).map(|number| (key(number), value(number, 7))).collect();
            let loaded = engine.bulk_load(LOADED, &mut rows.clone().into_iter(), seq);
            if loaded.is_ok() {
                state.extend(rows.into_iter().map(|(key, value)| ((LOADED, key), value)));
            }
            written.states.insert(seq, state);
            engine.publish(seq);
            loaded.map(|_| ())
        }
        Stage::Compaction => engine.maintain(&Maintenance::Compact(None)).map(|_| ()),
    }
}

/// Two versions, of which the second is not durable yet.
fn prepared(seed: u64) -> (SimulatedFs, BetreeEngine, Written, Seq) {
    let fs = disk(seed);
    let engine = open(&fs).unwrap();
    let mut written = begin(&engine);
    write(&engine, &mut written, 1, all).unwrap();
    // The file has no room to spare.
    engine.maintain(&Maintenance::Compact(None)).unwrap();
    let acknowledged = engine.durable_seq();
    write(&engine, &mut written, 2, |number| number % 3 == 0).unwrap();
    (fs, engine, written, acknowledged)
}

/// After a fault that has passed: the engine goes on, or has stopped and is opened anew; nothing durable is lost, and
/// what is written then is durable as ever.
fn expect_it_goes_on(fs: &SimulatedFs, engine: BetreeEngine, mut written: Written, acknowledged: Seq, what: &str) {
    let engine = match engine.snapshot() {
        Ok(_) => {
            expect_content(&engine, written.at(written.newest()), what);
            engine
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Closed, "{what}: {error}");
            drop(engine);
            fs.restart();
            let engine = expect_recovery(fs, &written, acknowledged, what);
            let at = engine.durable_seq();
            written.states.retain(|seq, _| *seq <= at);
            engine
        }
    };
    write(&engine, &mut written, 30, |number| number % 5 == 0).unwrap();
    assert_eq!(engine.checkpoint().unwrap(), written.newest(), "{what}");
    expect_content(&engine, written.at(written.newest()), what);
    // A second one frees what the first one replaced: no block of the failed attempt is left behind.
    write(&engine, &mut written, 31, |number| number % 50 == 0).unwrap();
    engine.checkpoint().unwrap();
    check::engine_is_sound(&engine, what).unwrap();
    drop(engine);
    fs.restart();
    drop(expect_recovery(fs, &written, written.newest(), what));
}

#[test]
fn a_disk_that_is_full_at_any_stage_loses_nothing() {
    for stage in STAGES {
        let mut failed = 0;
        for free in [0, 1, 3 << 10, 12 << 10, 30 << 10, 60 << 10, 120 << 10] {
            let what = format!("{stage:?} with {free} bytes free");
            let (fs, engine, mut written, acknowledged) = prepared(free);
            fs.set_free_bytes(Some(free));
            if let Err(error) = run_stage(stage, &engine, &mut written) {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{what}: {error}");
                failed += 1;
            }
            // What a crash would leave while the disk is full.
            drop(expect_recovery(&fs.after_crash(free), &written, acknowledged, &what));
            fs.set_free_bytes(None);
            expect_it_goes_on(&fs, engine, written, acknowledged, &what);
        }
        // Flushes are nobody's call, so they fail none.
        assert_eq!(failed > 1, stage != Stage::Flush, "{stage:?} failed {failed} times");
    }
}

/// A read, a write or a sync that fails, in every stage and at many moments: an error that passes, or the end of this
/// engine; never a wrong row, and nothing that was durable is lost.
#[test]
fn a_failed_operation_at_any_stage_loses_nothing() {
    for kind in [FaultKind::ReadError, FaultKind::WriteError, FaultKind::SyncError] {
        let mut struck = 0;
        for stage in STAGES {
            for skipped in [0, 1, 2, 3, 5, 9, 17, 40] {
                let what = format!("{kind:?} {skipped} in {stage:?}");
                let (fs, mut engine, mut written, acknowledged) = prepared(skipped);
                if kind == FaultKind::ReadError {
                    // Nothing of it is in the cache.
                    drop(engine);
                    fs.restart();
                    engine = open(&fs).unwrap();
                    written.states.retain(|seq, _| *seq <= acknowledged);
                    write(&engine, &mut written, 3, |number| number % 3 == 0).unwrap();
                }
                let before = fs.faults_struck();
                fs.inject(Fault::new(kind).after(skipped));
                if let Err(error) = run_stage(stage, &engine, &mut written) {
                    let is_its = matches!(error.kind(), ErrorKind::Io | ErrorKind::Closed);
                    assert!(is_its, "{what}: {error}");
                }
                struck += fs.faults_struck() - before;
                fs.clear_faults();
                expect_it_goes_on(&fs, engine, written, acknowledged, &what);
            }
        }
        assert!(struck > 6, "{kind:?} struck {struck} times");
    }
}

/// A row of more than one block: a flipped bit in any of them is noticed.
#[test]
fn a_value_of_several_blocks_is_whole_or_damaged() {
    let fs = disk(1);
    let engine = open(&fs).unwrap();
    begin(&engine);
    let long: Vec<u8> = (0..9_u32 << 20).map(|at| (at ^ (at >> 9)) as u8).collect();
    let mut batch = Batch::new();
    batch.put(RECORDS, key(1), long.clone());
    engine.apply(&batch, Seq(2)).unwrap();
    engine.publish(Seq(2));
    engine.close(CloseMode::Checkpoint).unwrap();
    let get = |fs: &SimulatedFs| open(fs).and_then(|engine| engine.snapshot()?.get(RECORDS, &key(1)));
    assert!(get(&fs).unwrap().as_deref() == Some(&long[..]));
    let path = Path::new(DIRECTORY).join("main.blocks");
    let parts: Vec<_> = blocks_of(&fs)
        .into_iter()
        .filter(|block| name_of(block) == "rows or messages")
        .collect();
    assert!(parts.len() >= 3, "{} blocks", parts.len());
    for block in parts {
        let at = block.addr.sector() * SECTOR_BYTES + block.addr.bytes() / 2;
        fs.flip_bit(&path, at, 3).unwrap();
        expect_corrupt(&get(&fs).unwrap_err(), "a part of a value");
        fs.flip_bit(&path, at, 3).unwrap();
    }
    assert!(get(&fs).unwrap().as_deref() == Some(&long[..]));
}

/// All that is left to do with a collection whose nodes are damaged is to drop it. Each checkpoint failed then, and
/// ended the server, and so did what was flushed before the drop was replayed.
#[test]
fn a_damaged_table_can_be_dropped() {
    let (fs, before) = filled();
    let path = Path::new(DIRECTORY).join("main.blocks");
    let is_its_node = |block: &SalvagedBlock| block.kind == BlockKind::Inner && block.owner == RECORDS.0;
    let nodes: Vec<SalvagedBlock> = blocks_of(&fs).into_iter().filter(is_its_node).collect();
    for (at, node) in nodes.iter().enumerate() {
        // Once all of its nodes, the root among them, and then each by itself.
        for picked in [&nodes[..], &nodes[at..=at]].iter().skip(usize::from(at > 0)) {
            let damaged = fs.after_crash(1);
            for node in *picked {
                let at = node.addr.sector() * SECTOR_BYTES + node.addr.bytes() / 2;
                damaged.flip_bit(&path, at, 3).unwrap();
            }
            let what = format!("{} damaged, {:?}", picked.len(), node.addr);
            let engine = open(&damaged).unwrap();
            let mut written = Written {
                states: before.states.clone(),
            };
            // So much that it has to be flushed.
            write(&engine, &mut written, 3, all).unwrap();
            (4..9).for_each(|version| write(&engine, &mut written, version, all).unwrap());
            assert!(engine.throttle(), "{what}: nothing gives memory back");
            engine.snapshot().unwrap();
            let seq = written.newest().next();
            let mut batch = Batch::new();
            batch.drop_table(RECORDS);
            engine.apply(&batch, seq).unwrap();
            engine.publish(seq);
            let mut state = written.at(written.newest()).clone();
            state.retain(|(table, _), _| *table != RECORDS);
            written.states.insert(seq, state);
            assert_eq!(engine.checkpoint().unwrap(), seq, "{what}");
            expect_content(&engine, written.at(seq), &what);
            engine.close(CloseMode::Checkpoint).unwrap();
            drop(engine);
            let engine = open(&damaged).unwrap();
            expect_content(&engine, written.at(seq), &what);
            engine.checkpoint().unwrap();
        }
    }
}

/// One block that could not be read, of a collection that nobody drops, ended the server at each checkpoint. What is
/// for it waits above it now, and only a root has nobody above it: nothing is lost, and once the block can be read
/// again, everything is as it was written.
#[test]
fn what_is_below_damage_waits_above_it() {
    let (fs, before) = filled();
    let path = Path::new(DIRECTORY).join("main.blocks");
    let is_its = |block: &SalvagedBlock| block.kind != BlockKind::Meta && block.owner == RECORDS.0;
    let blocks: Vec<SalvagedBlock> = blocks_of(&fs).into_iter().filter(is_its).collect();
    let (mut passed, mut roots) = (0, 0);
    for block in blocks.iter().step_by(3) {
        let damaged = fs.after_crash(1);
        let at = block.addr.sector() * SECTOR_BYTES + block.addr.bytes() / 2;
        damaged.flip_bit(&path, at, 3).unwrap();
        let content = || {
            let mut bytes = vec![0; block.addr.bytes() as usize];
            let file = damaged.open(&path, Access::Read).unwrap();
            file.read_exact_at(&mut bytes, block.addr.sector() * SECTOR_BYTES)
                .unwrap();
            bytes
        };
        let as_damaged = content();
        let what = format!("{} at {:?}", name_of(block), block.addr);
        let engine = open(&damaged).unwrap();
        let mut written = Written {
            states: before.states.clone(),
        };
        for version in 3..6 {
            write(&engine, &mut written, version, |number| number % version == 0).unwrap();
        }
        match engine.checkpoint() {
            Ok(seq) => {
                assert_eq!(seq, written.newest(), "{what}");
                passed += 1;
            }
            Err(error) => {
                expect_corrupt(&error, &what);
                roots += 1;
                continue;
            }
        }
        // It goes on, and so does the next start.
        write(&engine, &mut written, 7, |number| number % 7 == 0).unwrap();
        engine.close(CloseMode::Checkpoint).unwrap();
        drop(engine);
        // Some were free, and have been written over.
        if content() == as_damaged {
            damaged.flip_bit(&path, at, 3).unwrap();
        }
        expect_recovery(&damaged, &written, written.newest(), &what);
    }
    assert!(passed > 10 && roots <= 1, "{passed} passed, {roots} were roots");
}

/// A checkpoint cannot do without the messages of a table that is damaged: it tells whose the damage is.
#[test]
fn a_checkpoint_names_the_damaged_table() {
    let (fs, mut written) = filled();
    let path = Path::new(DIRECTORY).join("main.blocks");
    for block in blocks_of(&fs) {
        if block.kind == BlockKind::Inner && block.owner == INDEX.0 {
            let at = block.addr.sector() * SECTOR_BYTES + block.addr.bytes() / 2;
            fs.flip_bit(&path, at, 3).unwrap();
        }
    }
    let engine = open(&fs).unwrap();
    (3..9).for_each(|version| write(&engine, &mut written, version, all).unwrap());
    let error = engine.checkpoint().unwrap_err();
    expect_corrupt(&error, "a checkpoint");
    assert!(error.to_string().contains("db.rows4"), "{error}");
}
