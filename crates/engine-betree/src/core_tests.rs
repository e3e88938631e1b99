//! What calls from outside reach by chance only: stages that meet, errors in the middle of something.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use crate::change::Change;
use crate::core::Core;
use crate::flush::{flush_above, flush_down};
use crate::node::{Basement, Child, Inner, Leaf, Node, Segment, Slot, UnitRef};
use crate::options::BetreeOptions;
use crate::push::replace_child;
use crate::run::{Key, OpRef, RunBuilder};
use crate::{BetreeEngine, table::Table};
use blocks::BlockAddr;
use codec::Codec;
use engine::{
    Batch, Direction, Engine, ErrorKind, FillLimits, KeyRange, Maintenance, Rows, Seq, TableId, TableKind, TableSpec,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;
use vfs::{Env, Fault, FaultKind, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const TABLE: TableId = TableId(3);
const OTHER: TableId = TableId(4);
/// A checkpoint comes to it before the others.
const BEFORE: TableId = TableId(2);

/// So small that few rows make several levels; nothing happens in the background.
fn options() -> BetreeOptions {
    BetreeOptions {
        cache_bytes: 1 << 20,
        node_bytes: 4 << 10,
        basement_bytes: 600,
        buffer_bytes: 6 << 10,
        fanout: 4,
        memtable_bytes: Some(64 << 10),
        collection_compressor: Codec::None,
        threads: Some(0),
        segment_bytes: 32 << 10,
        ..BetreeOptions::default()
    }
}

fn open(fs: &SimulatedFs, clock: Arc<SimulatedClock>, options: BetreeOptions) -> BetreeEngine {
    fs.create_directory_all(Path::new("/data")).unwrap();
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock,
        random: Arc::new(SeededRandom::new(1)),
    };
    BetreeEngine::open(&env, Path::new("/data"), options).unwrap()
}

fn apply(engine: &BetreeEngine, seq: u64, batch: &Batch) {
    engine.apply(batch, Seq(seq)).unwrap();
    engine.publish(Seq(seq));
}

/// An engine with two tables, at position 1.
fn begun(fs: &SimulatedFs, options: BetreeOptions) -> BetreeEngine {
    begun_at(fs, Arc::new(SimulatedClock::new(0)), options)
}

fn begun_at(fs: &SimulatedFs, clock: Arc<SimulatedClock>, options: BetreeOptions) -> BetreeEngine {
    let engine = open(fs, clock, options);
    let mut batch = Batch::new();
    for table in [BEFORE, TABLE, OTHER] {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: format!("db.rows{}", table.0),
            compressor: None,
        };
        batch.create_table(table, spec);
    }
    apply(&engine, 1, &batch);
    engine
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Rows of a hundred bytes.
fn puts(table: TableId, numbers: impl Iterator<Item = u64>, version: u8) -> Batch {
    let mut batch = Batch::new();
    numbers.for_each(|number| batch.put(table, key(number), vec![version; 100]));
    batch
}

/// A compaction plans anew what is to move while another asks for each basement: a leaf was written anew although
/// messages waited for it, and those were gone.
#[test]
fn what_waits_for_a_child_stays_when_the_child_is_replaced() {
    let engine = begun(&SimulatedFs::new(1), options());
    let core: &Core = &engine.core;
    let table: Arc<Table> = core.catalog.live(TABLE).unwrap();
    let _shared = core.structure.read();
    let mut change = Change::new(core, &table);
    let basement = |low: &[u8], number: u8| Basement {
        low: low.into(),
        unit: UnitRef {
            first: BlockAddr::decode(&[number, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]).unwrap(),
            rest: None,
        },
        entries: 1,
        bytes: 100,
        has_history: false,
    };
    let leaf = |low: &[u8], number| {
        let basements = vec![basement(low, number)];
        (Key::from(low), Child::Memory(Arc::new(Node::Leaf(Leaf { basements }))))
    };
    let mut builder = RunBuilder::new(Seq(1));
    builder.push(b"c", Seq(1), OpRef::Put(b"waits"));
    let mut slot = Slot::of(leaf(b"", 1).1);
    slot.buffer = vec![Segment::pending(builder.finish())];
    let mut inner = Inner {
        height: 1,
        pivots: vec![b"x"[..].into()],
        slots: vec![slot, Slot::of(leaf(b"x", 2).1)],
    };
    replace_child(&mut change, &mut inner, 0, vec![leaf(b"", 3), leaf(b"m", 4)]).unwrap();
    assert_eq!((inner.slots.len(), inner.slots[0].buffer.len()), (2, 1));
    let Child::Memory(node) = &inner.slots[0].child else {
        panic!("it was made just now")
    };
    let Node::Leaf(leaf) = &**node else { panic!("a leaf") };
    let lows: Vec<&[u8]> = leaf.basements.iter().map(|basement| &*basement.low).collect();
    assert_eq!(lows, [&b""[..], b"m"]);
    replace_child(&mut change, &mut inner, 0, Vec::new()).unwrap();
    assert_eq!((inner.slots.len(), inner.slots[0].buffer.len()), (2, 1));
}

/// Two at once over tables for whose leaves much waits.
#[test]
fn two_compactions_at_once_lose_nothing() {
    for round in 0..6 {
        let engine = begun(&SimulatedFs::new(round), options());
        let mut seq = 1;
        let mut write = |table, numbers: std::ops::Range<u64>, step: usize, version| {
            for start in numbers.clone().step_by(100) {
                seq += 1;
                let numbers = (start..(start + 100).min(numbers.end)).step_by(step);
                apply(&engine, seq, &puts(table, numbers, version));
            }
        };
        for table in [TABLE, OTHER] {
            write(table, 0..2500, 1, 1);
        }
        engine.checkpoint().unwrap();
        // Much of the file becomes free, and much waits in buffers.
        write(OTHER, 0..2500, 1, 2);
        write(TABLE, 0..2500, 7, 2);
        engine.checkpoint().unwrap();
        write(TABLE, 0..2500, 11, 3);
        std::thread::scope(|scope| {
            for table in [TABLE, OTHER] {
                let engine = &engine;
                scope.spawn(move || engine.maintain(&Maintenance::Compact(Some(vec![table]))).unwrap());
            }
        });
        let view = engine.snapshot().unwrap();
        for number in 0..2500 {
            let version = match number % 100 {
                at if at % 11 == 0 => 3,
                at if at % 7 == 0 => 2,
                _ => 1,
            };
            assert_eq!(
                view.get(TABLE, &key(number)).unwrap().unwrap(),
                vec![version; 100],
                "{number}"
            );
            assert_eq!(
                view.get(OTHER, &key(number)).unwrap().unwrap(),
                vec![2; 100],
                "{number}"
            );
        }
        assert_eq!(engine.check_space().unwrap(), Vec::<String>::new());
        assert_eq!(engine.check_durable().unwrap(), Vec::<String>::new());
    }
}

/// Fills the memory for messages without a word to whoever flushes.
fn fill_quietly(engine: &BetreeEngine, table: TableId) {
    let core = &engine.core;
    let batch = puts(table, 0..1000, 1);
    let seq = {
        let mut applied = core.applied.lock();
        let seq = applied.last.next();
        crate::apply::apply(core, &mut applied, &batch, seq).unwrap();
        applied.last = seq;
        seq
    };
    engine.publish(seq);
    assert!(core.held.bytes() >= core.options.messages_bytes());
}

/// All writers wait, and nobody is left to wake those that flush: a batch larger than the memory was not published yet
/// when they looked. A start that replayed such a batch hung for ever.
#[test]
fn who_waits_for_memory_wakes_who_flushes() {
    let options = BetreeOptions {
        threads: Some(1),
        ..options()
    };
    let engine = begun(&SimulatedFs::new(1), options);
    fill_quietly(&engine, TABLE);
    assert!((0..3000).any(|_| engine.throttle()), "the writers wait for ever");
    assert!(engine.core.held.bytes() < engine.core.options.messages_bytes());
}

/// A table that is compacted is locked nearly all the time: who looked for something to flush passed it over, and its
/// messages filled the memory.
#[test]
fn what_is_being_compacted_is_flushed_too() {
    let engine = begun(&SimulatedFs::new(1), options());
    fill_quietly(&engine, TABLE);
    let core = &*engine.core;
    let table = core.catalog.live(TABLE).unwrap();
    std::thread::scope(|scope| {
        let step = table.change.lock();
        let (ended, end) = channel();
        scope.spawn(move || {
            flush_down(core);
            let _ = ended.send(());
        });
        // It waits for the step, or finds nothing and ends.
        let _ = end.recv_timeout(Duration::from_millis(200));
        drop(step);
    });
    assert!(core.held.bytes() <= flush_above(core));
}

/// A flush of gigabytes takes a minute. Who looked for something to flush meanwhile waited for it to end, and what came
/// to all other tables filled the memory.
#[test]
fn beside_a_long_flush_other_tables_are_flushed() {
    let engine = begun(&SimulatedFs::new(1), options());
    let core = &*engine.core;
    let [table, other] = [TABLE, OTHER].map(|table| core.catalog.live(table).unwrap());
    fill_quietly(&engine, TABLE);
    let mut is_flushed = false;
    std::thread::scope(|scope| {
        let long_flush = table.change.lock();
        let (ended, end) = channel();
        scope.spawn(move || {
            flush_down(core);
            let _ = ended.send(());
        });
        // It has looked at all tables.
        let _ = end.recv_timeout(Duration::from_millis(200));
        fill_quietly(&engine, OTHER);
        for _ in 0..1000 {
            let _ = end.recv_timeout(Duration::from_millis(10));
            is_flushed = other.memory_bytes() == 0;
            if is_flushed {
                break;
            }
        }
        drop(long_flush);
    });
    assert!(is_flushed);
    assert!(core.held.bytes() <= flush_above(core));
}

/// `dropDatabase` and sessions that expire bring one range for each of thousands of indexes, in one batch: each was
/// compared with all before it, again and again, and nobody wrote for half an hour.
#[test]
fn a_batch_may_take_thousands_of_ranges_away() {
    const RANGES: u64 = 6000;
    let engine = begun(&SimulatedFs::new(1), options());
    for start in (0..2 * RANGES).step_by(100) {
        apply(&engine, 2 + start, &puts(TABLE, start..start + 100, 1));
    }
    engine.checkpoint().unwrap();
    let mut batch = Batch::new();
    for number in 0..RANGES {
        batch.delete_range(TABLE, KeyRange::prefix(&key(2 * number)));
    }
    apply(&engine, 2 + 2 * RANGES, &batch);
    engine.checkpoint().unwrap();
    let view = engine.snapshot().unwrap();
    for number in 0..2 * RANGES {
        let found = view.get(TABLE, &key(number)).unwrap();
        assert_eq!(found.is_some(), number % 2 == 1, "{number}");
    }
    assert_eq!(engine.check_space().unwrap(), Vec::<String>::new());
}

/// Who reads one table for long kept all blocks that any table retired: the file grew by all that was written.
#[test]
fn a_reader_of_one_table_keeps_no_blocks_of_others() {
    let engine = begun(&SimulatedFs::new(1), options());
    let core = &engine.core;
    let rewrite = |table, seq, version| {
        apply(&engine, seq, &puts(table, 0..500, version));
        engine.checkpoint().unwrap();
    };
    rewrite(TABLE, 5, 1);
    rewrite(OTHER, 6, 1);
    let read = core.catalog.live(TABLE).unwrap().state();
    rewrite(TABLE, 10, 2);
    let kept = core.retired.lock().blocks().count();
    assert!(kept > 0);
    for version in 3..10 {
        rewrite(OTHER, 10 + u64::from(version), version);
    }
    assert_eq!(core.retired.lock().blocks().count(), kept);
    assert_eq!(engine.check_space().unwrap(), Vec::<String>::new());
    drop(read);
    core.free_unread();
    assert_eq!(core.retired.lock().blocks().count(), 0);
}

/// Many times the leaves that are checked at once: nothing is passed over, nothing is told twice.
#[test]
fn a_check_in_steps_finds_each_damage() {
    let fs = SimulatedFs::new(1);
    let engine = begun(&fs, options());
    for start in (0..6000).step_by(100) {
        apply(&engine, 2 + start, &puts(TABLE, start..start + 100, 1));
    }
    engine.checkpoint().unwrap();
    apply(&engine, 9000, &puts(TABLE, (0..6000).step_by(40), 2));
    engine.checkpoint().unwrap();
    let report = engine.maintain(&Maintenance::Verify(Some(TABLE))).unwrap();
    assert_eq!((report.problems, report.rows_checked), (Vec::new(), 6000));
    let table = engine.core.catalog.live(TABLE).unwrap();
    let blocks = crate::checkpoint::all_blocks(&engine.core, &table).unwrap();
    // The nodes are kept: what is below them would be passed over.
    let (mut damaged, mut scratch) = (0, blocks::ReadScratch::default());
    for addr in blocks.iter().step_by(3) {
        let store = &engine.core.store;
        let is_unit = store.read(crate::core::VOLUME, addr, TABLE.0, crate::core::KIND_ROWS, &mut scratch);
        if is_unit.is_ok() {
            let path = Path::new("/data/main.blocks");
            fs.flip_bit(path, addr.sector() * 512 + addr.bytes() / 2, 1).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 100, "{damaged}");
    let mut problems = engine.maintain(&Maintenance::Verify(Some(TABLE))).unwrap().problems;
    // The rows are counted besides, up to the first damage.
    let counted = problems.pop().unwrap();
    assert!(problems.contains(&counted), "{counted}");
    let mut distinct = problems.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!((problems.len(), distinct.len()), (damaged, damaged));
}

/// Each flush and each checkpoint that failed left a memtable behind, which every lookup had to ask, and memory grew
/// without a bound until a checkpoint told of the full disk.
#[test]
fn a_full_disk_neither_fills_the_memory_nor_crowds_it() {
    let (fs, clock) = (SimulatedFs::new(1), Arc::new(SimulatedClock::new(0)));
    let engine = begun_at(&fs, clock.clone(), options());
    let core = &engine.core;
    engine.checkpoint().unwrap();
    fs.set_free_bytes(Some(0));
    let (mut seq, mut number, mut refused) = (1, 0, 0);
    // A checkpoint now and then, too.
    while engine.check_growth(TABLE, 100).is_ok() {
        assert!(core.held.bytes() < 2 * core.options.messages_bytes(), "no end");
        seq += 1;
        apply(&engine, seq, &puts(TABLE, number..number + 10, 1));
        number += 10;
        clock.advance(Duration::from_millis(300));
        // At first the file has some room.
        if seq % 5 == 0
            && let Err(error) = engine.checkpoint()
        {
            assert_eq!(error.kind(), ErrorKind::OutOfSpace);
            refused += 1;
        }
    }
    assert!(refused > 4, "{refused}");
    assert_eq!(
        engine.check_growth(TABLE, 100).unwrap_err().kind(),
        ErrorKind::OutOfSpace
    );
    let table = core.catalog.live(TABLE).unwrap();
    let frozen = || [&table, &core.directory].map(|table| table.state().frozen.len());
    assert!(frozen().iter().all(|frozen| *frozen <= 4), "{:?}", frozen());
    // What is not frozen belongs to a checkpoint as well.
    fs.set_free_bytes(None);
    clock.advance(Duration::from_secs(1));
    engine.check_growth(TABLE, 100).unwrap();
    assert_eq!(engine.checkpoint().unwrap(), Seq(seq));
    assert_eq!((frozen(), table.memory_bytes()), ([0, 0], 0));
    drop(engine);
    let engine = open(&fs, clock, options());
    let view = engine.snapshot().unwrap();
    for number in 0..number {
        assert!(view.get(TABLE, &key(number)).unwrap().is_some(), "{number}");
    }
}

/// A table with many frozen memtables went on writing to the one that the checkpoint took messages from: versions that
/// were newer took the place of those at its position, which then had neither.
#[test]
fn a_checkpoint_has_its_position_beside_writers_of_a_crowded_table() {
    let (fs, clock) = (SimulatedFs::new(1), Arc::new(SimulatedClock::new(0)));
    let engine = begun_at(&fs, clock.clone(), options());
    let core = &*engine.core;
    let table = core.catalog.live(TABLE).unwrap();
    for seq in 2..6 {
        apply(&engine, seq, &puts(TABLE, 0..2, seq as u8));
        table.freeze();
    }
    apply(&engine, 6, &puts(TABLE, 0..2, 6));
    // The checkpoint comes to this table first. Little enough is written meanwhile that nothing is flushed.
    apply(&engine, 7, &puts(BEFORE, 0..2, 7));
    let before = core.catalog.live(BEFORE).unwrap();
    std::thread::scope(|scope| {
        let held_up = before.change.lock();
        let checkpoint = scope.spawn(|| engine.checkpoint().unwrap());
        while !core.catalog.is_unchanged() {
            std::thread::yield_now();
        }
        for seq in 8..60 {
            apply(&engine, seq, &puts(TABLE, 0..2, seq as u8));
        }
        drop(held_up);
        assert_eq!(checkpoint.join().unwrap(), Seq(7));
    });
    let crashed = open(&fs.after_crash(1), clock, options());
    let view = crashed.snapshot().unwrap();
    for number in 0..2 {
        assert_eq!(
            view.get(TABLE, &key(number)).unwrap().unwrap(),
            vec![6; 100],
            "{number}"
        );
    }
    let view = engine.snapshot().unwrap();
    for number in 0..2 {
        assert_eq!(
            view.get(TABLE, &key(number)).unwrap().unwrap(),
            vec![59; 100],
            "{number}"
        );
    }
}

/// A checkpoint before the position of a load left out where the loaded rows had been before the compaction: other
/// tables' blocks by then, which were free after a crash.
#[test]
fn rows_that_are_not_published_yet_are_not_compacted() {
    let (fs, clock) = (SimulatedFs::new(1), Arc::new(SimulatedClock::new(0)));
    let engine = begun_at(&fs, clock.clone(), options());
    apply(&engine, 2, &puts(OTHER, 0..500, 1));
    engine.checkpoint().unwrap();
    let mut rows = (0..2000).map(|number| (key(number), vec![7; 100]));
    engine.bulk_load(TABLE, &mut rows, Seq(50)).unwrap();
    apply(&engine, 3, &puts(OTHER, 0..500, 2));
    engine.maintain(&Maintenance::Compact(None)).unwrap();
    apply(&engine, 4, &puts(OTHER, 0..2000, 3));
    assert_eq!(engine.checkpoint().unwrap(), Seq(4));
    assert_eq!(engine.check_durable().unwrap(), Vec::<String>::new());
    // A crash takes the load back, and nothing else.
    let crashed = open(&fs.after_crash(1), clock, options());
    let view = crashed.snapshot().unwrap();
    for number in 0..2000 {
        assert_eq!(view.get(TABLE, &key(number)).unwrap(), None);
        assert_eq!(view.get(OTHER, &key(number)).unwrap().unwrap(), vec![3; 100]);
    }
    assert_eq!(crashed.check_space().unwrap(), Vec::<String>::new());
    engine.publish(Seq(50));
    engine.maintain(&Maintenance::Compact(None)).unwrap();
    assert_eq!(engine.check_durable().unwrap(), Vec::<String>::new());
    let view = engine.snapshot().unwrap();
    let right = (0..2000).all(|number| view.get(TABLE, &key(number)).unwrap().as_deref() == Some(&[7; 100][..]));
    assert!(right);
}

/// The head of a queue: what was taken from it is gone before each reader has passed all of it, be it in memory, on its
/// way down a tree of several levels, or in a leaf; and whoever reads an older state sees it.
#[test]
fn readers_of_a_queue_do_not_pass_all_that_was_taken() {
    let engine = begun(
        &SimulatedFs::new(1),
        BetreeOptions {
            node_bytes: 64 << 10,
            buffer_bytes: 1 << 20,
            memtable_bytes: Some(512 << 10),
            ..options()
        },
    );
    apply(&engine, 2, &puts(TABLE, 0..20_000, 1));
    engine.checkpoint().unwrap();
    let first = || {
        let view = engine.snapshot().unwrap();
        let mut cursor = view.cursor(TABLE, KeyRange::all(), Direction::Forward).unwrap();
        let mut rows = Rows::default();
        let one = FillLimits {
            rows_max: 1,
            ..FillLimits::default()
        };
        cursor.fill(&mut rows, one).unwrap();
        rows.key(0).to_vec()
    };
    let take = |number: u64| {
        assert_eq!(first(), key(number));
        let mut batch = Batch::new();
        batch.delete(TABLE, key(number));
        apply(&engine, 3 + number, &batch);
    };
    (0..4000).for_each(take);
    // Eight millions if nobody saw to it.
    let passed = engine.core.counters.passed_keys.load(Ordering::Relaxed);
    assert!(passed < 2_000_000, "{passed}");
    // Whoever reads an older state sees what was taken since, and nobody tries in vain to take it away.
    let old = engine.snapshot().unwrap();
    let sinks = engine.core.counters.sinks.load(Ordering::Relaxed);
    (4000..5000).for_each(take);
    assert!(engine.core.counters.sinks.load(Ordering::Relaxed) <= sinks + 1);
    assert_eq!(old.get(TABLE, &key(4500)).unwrap().as_deref(), Some(&[1; 100][..]));
    assert_eq!(old.get(TABLE, &key(3999)).unwrap(), None);
    drop(old);
    (5000..6000).for_each(take);
    let passed = || engine.core.counters.passed_keys.load(Ordering::Relaxed);
    let before = passed();
    assert_eq!(first(), key(6000));
    assert!(passed() - before < 1000, "what was kept for the old state is gone");
    assert_eq!(engine.check_durable().unwrap(), Vec::<String>::new());
}

#[test]
fn what_came_behind_a_reader_is_not_deleted() {
    let engine = begun(&SimulatedFs::new(1), options());
    let view = engine.snapshot().unwrap();
    apply(&engine, 2, &puts(TABLE, 0..5000, 1));
    let mut cursor = view.cursor(TABLE, KeyRange::all(), Direction::Forward).unwrap();
    assert!(!cursor.fill(&mut Rows::default(), FillLimits::default()).unwrap());
    assert_eq!(engine.core.counters.passed_keys.load(Ordering::Relaxed), 0);
}

/// Rows of the windows before the one that could not be read were left out where somebody asked again.
#[test]
fn a_cursor_that_met_an_error_goes_on_where_it_was() {
    const COUNT: u64 = 1000;
    let limits = FillLimits {
        rows_max: 300,
        bytes_max: usize::MAX,
    };
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut failures = 0;
        for reads in 0..12 {
            let fs = SimulatedFs::new(reads);
            let engine = begun(&fs, options());
            apply(&engine, 2, &puts(TABLE, 0..COUNT, 1));
            engine.checkpoint().unwrap();
            drop(engine);
            let engine = open(&fs, Arc::new(SimulatedClock::new(0)), options());
            let view = engine.snapshot().unwrap();
            let mut cursor = view.cursor(TABLE, KeyRange::all(), direction).unwrap();
            let mut rows = Rows::new();
            fs.inject(Fault::new(FaultKind::ReadError).after(reads).times(u64::MAX));
            if cursor.fill(&mut rows, limits).is_err() {
                failures += 1;
                assert!(rows.is_empty());
            } else {
                cursor
                    .seek(&key(if direction == Direction::Forward { 0 } else { COUNT }))
                    .unwrap();
            }
            fs.clear_faults();
            let mut found = Vec::new();
            while cursor.fill(&mut rows, limits).unwrap() {
                found.extend((0..rows.len()).map(|at| rows.key(at).to_vec()));
            }
            if direction == Direction::Reverse {
                found.reverse();
            }
            assert!(
                found == (0..COUNT).map(key).collect::<Vec<_>>(),
                "{} rows after {reads} reads",
                found.len()
            );
        }
        assert!(failures > 6, "{failures} reads failed");
    }
}
