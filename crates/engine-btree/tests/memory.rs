//! What the engine says about its memory is what the allocator says, and stays within the limit whoever reads.
//!
//! On real files: simulated ones would be on the heap, too.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Batch, Direction, Engine, FillLimits, KeyRange, Rows, Seq, StatValue, TableId, TableKind, TableSpec};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::Dice;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, Random, RealFs, SystemClock, SystemRandom};

const TABLE: TableId = TableId(1);
const MIB: u64 = 1 << 20;
const BATCH_ROWS: u64 = 100;

fn seed() -> u64 {
    let seed =
        std::env::var("TENON_SEED").map_or_else(|_| SystemRandom::new().next_u64(), |text| text.parse().unwrap());
    println!("TENON_SEED={seed}");
    seed
}

fn open(directory: &Path, cache_bytes: u64, threads: usize) -> BtreeEngine {
    open_with(directory, |options| {
        options.cache_bytes = cache_bytes;
        options.threads = Some(threads);
    })
}

fn open_with(directory: &Path, choose: impl FnOnce(&mut BtreeOptions)) -> BtreeEngine {
    let env = Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    let mut options = BtreeOptions::default();
    choose(&mut options);
    BtreeEngine::open(&env, directory, options).unwrap()
}

fn stat(engine: &BtreeEngine, wanted: &str) -> u64 {
    let mut found = None;
    engine.stats(&mut |name, value| {
        if name == wanted
            && let StatValue::Number(number) = value
        {
            found = Some(number.unsigned_abs());
        }
    });
    found.unwrap()
}

fn key(row: u64) -> Vec<u8> {
    row.to_be_bytes().to_vec()
}

/// Writes a batch as storage does, and publishes it.
fn write(engine: &BtreeEngine, batch: &Batch, seq: Seq) {
    while !engine.throttle() {}
    engine.apply(batch, seq).unwrap();
    engine.publish(seq);
}

/// Rows of 50 to 500 bytes, in order.
fn load(engine: &BtreeEngine, rows: u64, dice: &Dice) {
    load_values(engine, rows, |_| {
        let mut value = vec![0; dice.within(50, 500) as usize];
        value.iter_mut().for_each(|byte| *byte = dice.below(16) as u8);
        value
    });
}

/// Rows with these values, in order.
fn load_values(engine: &BtreeEngine, rows: u64, value: impl Fn(u64) -> Vec<u8>) {
    let mut batch = Batch::new();
    let spec = TableSpec {
        kind: TableKind::Records,
        name: "one.rows".into(),
        compressor: None,
    };
    batch.create_table(TABLE, spec);
    for row in 0..rows {
        batch.put(TABLE, key(row), value(row));
        if row % BATCH_ROWS == BATCH_ROWS - 1 {
            write(engine, &batch, Seq(1 + row / BATCH_ROWS));
            batch.clear();
        }
    }
}

/// One after the other in one thread: another's would give memory back while this one counts.
#[test]
fn memory_is_counted_and_bounded() {
    accounted_bytes_are_the_heaps();
    leaves_that_left_memory_are_not_kept_for_the_next_checkpoint();
    readers_take_a_page_each_beyond_the_limit_at_most();
    leaves_that_are_read_once_stay_compressed();
    leaves_are_in_sections_where_that_costs_little();
    what_is_read_ahead_is_what_a_walk_comes_to();
    a_long_walk_leaves_what_is_read_often();
    a_cursor_that_seeks_reads_a_leaf_once();
    what_is_walked_over_again_comes_into_memory();
    inner_pages_leave_memory();
}

fn accounted_bytes_are_the_heaps() {
    let directory = tempfile::tempdir().unwrap();
    let before = allocator::heap_use().used;
    let engine = open(directory.path(), 256 * MIB, 0);
    let dice = Dice::new(seed());
    load(&engine, 60_000, &dice);
    let close = |what: &str| {
        // What was replaced goes back first.
        (0..1000).for_each(|_| rcu::pin().flush());
        let accounted = stat(&engine, "cache.bytes");
        let real = allocator::heap_use().used - before;
        assert!(accounted > 10 * MIB, "{what}: there is something to count: {accounted}");
        // Besides: buffers for writing and for folding, of some megabytes however large the cache.
        let (least, most) = (accounted - accounted / 20, accounted + accounted / 20 + 4 * MIB);
        assert!(
            (least..most).contains(&real),
            "{what}: {accounted} accounted, {real} on the heap"
        );
    };
    close("loaded");
    engine.checkpoint().unwrap();
    // A sixty-fourth of the cache may wait, and what came after the last flush.
    let replaced = stat(&engine, "cache.replacedBytes");
    assert!(
        replaced <= 5 * MIB,
        "{replaced} bytes of what a checkpoint replaced wait to be freed"
    );
    close("written");
    let mut batch = Batch::new();
    for _ in 0..20_000 {
        batch.put(TABLE, key(dice.below(60_000)), vec![7; dice.within(50, 500) as usize]);
    }
    engine.apply(&batch, Seq(10_000)).unwrap();
    engine.publish(Seq(10_000));
    drop(batch);
    close("updated");
}

/// Between two checkpoints many times the cache may be written.
fn leaves_that_left_memory_are_not_kept_for_the_next_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path(), 8 * MIB, 0);
    load(&engine, 200_000, &Dice::new(seed()));
    let written = stat(&engine, "cache.pagesWritten");
    assert!(written > 3_000, "most leaves went to disk: {written}");
    let (listed, held) = (stat(&engine, "cache.dirtyLeaves"), stat(&engine, "cache.leaves"));
    assert!(listed <= 2 * held + 100, "{listed} leaves listed, {held} in memory");
    engine.checkpoint().unwrap();
    // What the last batch made too long was split by that, into leaves of their own.
    engine.checkpoint().unwrap();
    assert_eq!(stat(&engine, "cache.dirtyLeaves"), 0);
}

fn readers_take_a_page_each_beyond_the_limit_at_most() {
    const READERS: u64 = 3;
    const WORKERS: usize = 2;
    const ROWS: u64 = 100_000;
    /// The longest leaf with all that hangs at it.
    const PAGE_BYTES: u64 = 40 << 10;
    let directory = tempfile::tempdir().unwrap();
    let seed = seed();
    let engine = open(directory.path(), 8 * MIB, WORKERS);
    load(&engine, ROWS, &Dice::new(seed));
    engine.checkpoint().unwrap();
    // Each reader, and the workers of both crews, which read ahead.
    let most = stat(&engine, "cache.limitBytes") + (READERS + 2 * WORKERS as u64) * PAGE_BYTES;
    let check = || {
        let bytes = stat(&engine, "cache.bytes");
        assert!(bytes <= most, "{bytes} bytes, {most} allowed");
    };
    let point_reads = |reader: u64| {
        let dice = Dice::new(seed ^ reader);
        for _ in 0..5_000 {
            let row = dice.below(ROWS);
            let view = engine.snapshot().unwrap();
            assert!(view.get(TABLE, &key(row)).unwrap().is_some(), "row {row}");
            check();
        }
    };
    std::thread::scope(|scope| {
        for reader in 1..READERS {
            scope.spawn(move || point_reads(reader));
        }
        scope.spawn(|| {
            for _ in 0..3 {
                let view = engine.snapshot().unwrap();
                let mut cursor = view.cursor(TABLE, KeyRange::all(), Direction::Forward).unwrap();
                let limits = FillLimits {
                    rows_max: 100,
                    bytes_max: 1 << 20,
                };
                let (mut rows, mut seen, mut more) = (Rows::new(), 0, true);
                while more {
                    rows.clear();
                    more = cursor.fill(&mut rows, limits).unwrap();
                    seen += rows.len() as u64;
                    check();
                }
                assert_eq!(seen, ROWS);
            }
        });
    });
    assert!(stat(&engine, "cache.pagesRead") > 5_000, "most had no room");
}

/// The values of a walk.
fn values(engine: &BtreeEngine, range: KeyRange, direction: Direction) -> Vec<Vec<u8>> {
    let view = engine.snapshot().unwrap();
    let mut cursor = view.cursor(TABLE, range, direction).unwrap();
    let limits = FillLimits {
        rows_max: 1000,
        bytes_max: 1 << 20,
    };
    let (mut rows, mut values) = (Rows::new(), Vec::new());
    while cursor.fill(&mut rows, limits).unwrap() {
        values.extend((0..rows.len()).map(|index| rows.value(index).to_vec()));
    }
    values
}

/// A walk over part of a table reads the leaves of that part, and all that it shows is right, whoever loads them.
fn what_is_read_ahead_is_what_a_walk_comes_to() {
    const ROWS: u64 = 60_000;
    /// Fewer rows than a leaf of 16 KiB has of 50 to 500 bytes.
    const LEAF_ROWS: u64 = 45;
    let directory = tempfile::tempdir().unwrap();
    let dice = Dice::new(seed());
    let engine = open(directory.path(), 64 * MIB, 2);
    load(&engine, ROWS, &dice);
    let expected = values(&engine, KeyRange::all(), Direction::Forward);
    engine.checkpoint().unwrap();
    drop(engine);
    for (count, direction) in [(ROWS, Direction::Forward), (ROWS, Direction::Reverse)]
        .into_iter()
        .chain([300, 2000, 9000].map(|count| (count, Direction::Forward)))
        .chain([300, 2000, 9000].map(|count| (count, Direction::Reverse)))
    {
        let engine = open(directory.path(), 64 * MIB, 2);
        let first = dice.below(ROWS - count + 1);
        let range = KeyRange {
            start: Bound::Included(key(first)),
            end: Bound::Excluded(key(first + count)),
        };
        let mut wanted = expected[first as usize..(first + count) as usize].to_vec();
        if direction == Direction::Reverse {
            wanted.reverse();
        }
        let before = stat(&engine, "cache.pagesRead");
        assert!(
            values(&engine, range, direction) == wanted,
            "{count} rows {direction:?} from {first}"
        );
        let read = stat(&engine, "cache.pagesRead") - before;
        // Two leaves at the ends, and inner nodes.
        let most = count / LEAF_ROWS + 2 + count / LEAF_ROWS / 48 + 6;
        assert!(
            read <= most,
            "{read} pages read for {count} rows {direction:?}, {most} at most"
        );
    }
}

/// Queries that read all of a large collection pushed all out that others read all the time.
fn a_long_walk_leaves_what_is_read_often() {
    const ROWS: u64 = 100_000;
    const HOT_ROWS: u64 = 5_000;
    let directory = tempfile::tempdir().unwrap();
    let dice = Dice::new(seed());
    let engine = open(directory.path(), 8 * MIB, 1);
    load(&engine, ROWS, &dice);
    // Some of the others have values of their own blocks, and some are in memory as writes only.
    let mut seq = Seq(1 + ROWS / BATCH_ROWS);
    let mut expected = values(&engine, KeyRange::all(), Direction::Forward);
    for round in 0..2 {
        for row in (HOT_ROWS..ROWS).step_by(3_001 - round) {
            expected[row as usize] = vec![row as u8; if round == 0 { 40_000 } else { 100 }];
            let mut batch = Batch::new();
            batch.put(TABLE, key(row), expected[row as usize].clone());
            seq = seq.next();
            write(&engine, &batch, seq);
        }
        if round == 0 {
            engine.checkpoint().unwrap();
        }
    }
    let read_hot = |times: u64| {
        let before = stat(&engine, "cache.pagesRead");
        let view = engine.snapshot().unwrap();
        for _ in 0..times * HOT_ROWS {
            let row = dice.below(HOT_ROWS);
            assert_eq!(
                view.get(TABLE, &key(row)).unwrap().as_deref(),
                Some(&*expected[row as usize])
            );
        }
        stat(&engine, "cache.pagesRead") - before
    };
    read_hot(10);
    assert!(read_hot(1) < 5, "what is read often is in memory");
    let mut wanted = expected.clone();
    for direction in [Direction::Forward, Direction::Reverse, Direction::Forward] {
        assert!(
            values(&engine, KeyRange::all(), direction) == wanted,
            "a walk {direction:?}"
        );
        wanted.reverse();
        let read = read_hot(1);
        // The hot rows lie in some 85 leaves.
        assert!(read <= 8, "{read} pages read again after a walk {direction:?}");
    }
    let walked = stat(&engine, "cache.pagesWalked");
    assert!(
        walked > ROWS / 100,
        "{walked} leaves were read for the walks and nobody else"
    );
    assert!(stat(&engine, "cache.bytes") <= 8 * MIB);
}

/// A join looks up with one cursor what it is asked for, and a scan that skips seeks: neither is a long walk, whatever
/// the cursor has walked over before.
fn a_cursor_that_seeks_reads_a_leaf_once() {
    const ROWS: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let dice = Dice::new(seed());
    let engine = open(directory.path(), 8 * MIB, 1);
    load(&engine, ROWS, &dice);
    engine.checkpoint().unwrap();
    let view = engine.snapshot().unwrap();
    let limits = |rows_max| FillLimits {
        rows_max,
        bytes_max: 1 << 20,
    };
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = view.clone().cursor(TABLE, KeyRange::all(), direction).unwrap();
        let mut rows = Rows::new();
        for _ in 0..100 {
            assert!(cursor.fill(&mut rows, limits(100)).unwrap());
        }
        let read = || stat(&engine, "cache.pagesRead") + stat(&engine, "cache.pagesReadAgain");
        let before = read();
        let first = dice.within(ROWS / 3, ROWS / 2);
        for round in 0..100 {
            // Of twenty rows, in two leaves at most.
            let row = first + round * 7 % 20;
            cursor.seek(&key(row)).unwrap();
            assert!(cursor.fill(&mut rows, limits(1)).unwrap());
            assert_eq!(rows.key(0), key(row));
        }
        let read = read() - before;
        // Inner nodes, and what was being read ahead.
        assert!(read <= 10, "{direction:?}: {read} pages for a hundred seeks");
    }
}

/// Where there is room, a second walk finds blocks in memory and makes pages of them, and a third reads nothing.
fn what_is_walked_over_again_comes_into_memory() {
    const ROWS: u64 = 20_000;
    let directory = tempfile::tempdir().unwrap();
    let dice = Dice::new(seed());
    let engine = open(directory.path(), 64 * MIB, 1);
    load(&engine, ROWS, &dice);
    let expected = values(&engine, KeyRange::all(), Direction::Forward);
    engine.checkpoint().unwrap();
    drop(engine);
    let engine = open(directory.path(), 64 * MIB, 1);
    let walk = || {
        let figures = ["cache.pagesRead", "cache.pagesReadAgain", "cache.leaves"];
        let before = figures.map(|name| stat(&engine, name));
        assert!(values(&engine, KeyRange::all(), Direction::Forward) == expected);
        let after = figures.map(|name| stat(&engine, name));
        [0, 1, 2].map(|figure| after[figure] - before[figure])
    };
    let [read, again, leaves] = walk();
    assert!(read > 250 && again == 0, "{read}, {again}");
    assert_eq!(leaves, 8, "the first of a walk");
    let [read, again, leaves] = walk();
    assert!(read < 20 && again > 250 && leaves > 250, "{read}, {again}, {leaves}");
    assert_eq!(walk(), [0, 0, 0]);
    assert_eq!(stat(&engine, "cache.keptBytes"), 0, "a leaf is in memory once");
}

/// Rows come right from blocks that are kept, from pages made of them, and below fresh writes; and all is counted.
fn leaves_that_are_read_once_stay_compressed() {
    const ROWS: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let dice = Dice::new(seed());
    let engine = open(directory.path(), 8 * MIB, 1);
    load(&engine, ROWS, &dice);
    engine.checkpoint().unwrap();
    let mut expected = values(&engine, KeyRange::all(), Direction::Forward);
    assert_eq!(expected.len() as u64, ROWS);
    let again_before = stat(&engine, "cache.pagesReadAgain");
    let mut seq = Seq(1 + ROWS / BATCH_ROWS);
    for round in 0..20_000 {
        let row = dice.below(ROWS);
        if round % 10 == 0 {
            let mut batch = Batch::new();
            expected[row as usize] = vec![9; dice.within(50, 500) as usize];
            batch.put(TABLE, key(row), expected[row as usize].clone());
            seq = Seq(seq.0 + 1);
            write(&engine, &batch, seq);
        }
        // The row, one beside it, and one that is not there.
        let view = engine.snapshot().unwrap();
        for row in [row, (row + 1) % ROWS] {
            let found = view.get(TABLE, &key(row)).unwrap();
            assert_eq!(
                found.as_deref(),
                Some(&*expected[row as usize]),
                "row {row}, round {round}"
            );
        }
        let between = [&key(row)[..], &[0]].concat();
        assert_eq!(view.get(TABLE, &between).unwrap(), None);
    }
    let (kept, limit) = (stat(&engine, "cache.keptBytes"), stat(&engine, "cache.limitBytes"));
    assert!(
        (1..limit * 3 / 4).contains(&kept),
        "{kept} bytes of kept blocks, {limit} in all"
    );
    let again = stat(&engine, "cache.pagesReadAgain") - again_before;
    assert!(again > 1000, "{again} reads found a kept block");
}

/// Sections of leaves whose rows are alike would have to tell again what they have in common.
fn leaves_are_in_sections_where_that_costs_little() {
    const ROWS: u64 = 50_000;
    let dice = Dice::new(seed());
    let alike: Vec<u8> = (0..400).map(|_| dice.below(256) as u8).collect();
    let of_rows_alike = |row: u64| [&alike, &row.to_be_bytes()[..]].concat();
    let of_rows_unlike = |row: u64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().repeat(51);
    // In parts, not in parts; from memory as from disk.
    let reads = [
        ("a row", &of_rows_unlike as &dyn Fn(u64) -> Vec<u8>, 1000, 0),
        ("rows", &of_rows_alike, 0, 1000),
    ];
    for (what, value, least_in_part, least_whole) in reads {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(directory.path(), MIB, 1);
        load_values(&engine, ROWS, value);
        engine.checkpoint().unwrap();
        let figures = ["cache.pagesRead", "cache.pagesReadAgain", "cache.pagesReadInPart"];
        let before = figures.map(|name| stat(&engine, name));
        let view = engine.snapshot().unwrap();
        for _ in 0..5_000 {
            let row = dice.below(ROWS);
            assert_eq!(
                view.get(TABLE, &key(row)).unwrap().as_deref(),
                Some(&*value(row)),
                "{what}: {row}"
            );
        }
        let after = figures.map(|name| stat(&engine, name));
        let [read, again, in_part] = [0, 1, 2].map(|figure| after[figure] - before[figure]);
        let whole = (read + again) - in_part;
        assert!(
            in_part >= least_in_part && whole >= least_whole,
            "{what} alike: {in_part} in part, {whole} as a whole"
        );
        assert!(in_part == 0 || least_in_part > 0, "{what} alike: {in_part} in part");
    }
}

/// A table whose inner pages alone are several times the cache: they come and go like leaves, whether they changed or
/// not, and what cannot go makes nobody wait.
fn inner_pages_leave_memory() {
    const ROWS: u64 = 80_000;
    const CACHE: u64 = MIB;
    let directory = tempfile::tempdir().unwrap();
    let dice = Dice::new(seed());
    // Leaves of a few rows: as many inner pages as a hundred times the data would have.
    let engine = open_with(directory.path(), |options| {
        options.cache_bytes = CACHE;
        options.threads = Some(0);
        options.record_leaf_bytes = 300;
    });
    load(&engine, ROWS, &dice);
    engine.checkpoint().unwrap();
    let mut seq = Seq(1 + ROWS / BATCH_ROWS);
    let mut expected = std::collections::HashMap::new();
    let mut most = 0;
    for round in 0..16_000_u64 {
        let view = engine.snapshot().unwrap();
        let row = dice.below(ROWS);
        let found = view.get(TABLE, &key(row)).unwrap().unwrap();
        if let Some(value) = expected.get(&row) {
            assert_eq!(&*found, value, "row {row}, round {round}");
        }
        drop(view);
        if round % 4 == 0 {
            let row = dice.below(ROWS);
            let value = vec![round as u8; dice.within(50, 500) as usize];
            let mut batch = Batch::new();
            batch.put(TABLE, key(row), value.clone());
            seq = Seq(seq.0 + 1);
            write(&engine, &batch, seq);
            expected.insert(row, value);
        }
        if round % 4_000 == 0 {
            engine.checkpoint().unwrap();
        }
        most = most.max(stat(&engine, "cache.bytes"));
    }
    let evicted = stat(&engine, "cache.innerPagesEvicted");
    assert!(evicted > 5_000, "{evicted} inner pages left memory");
    assert!(most <= CACHE * 115 / 100, "{most} bytes");
    assert_eq!(stat(&engine, "apply.delays"), 0);
    engine.checkpoint().unwrap();
    assert_eq!(engine.check_space().unwrap(), Vec::<String>::new());
    drop(engine);
    let engine = open(directory.path(), 64 * MIB, 0);
    assert_eq!(values(&engine, KeyRange::all(), Direction::Forward).len() as u64, ROWS);
    let view = engine.snapshot().unwrap();
    for (row, value) in expected {
        assert_eq!(
            view.get(TABLE, &key(row)).unwrap().as_deref(),
            Some(&*value),
            "row {row}"
        );
    }
}
