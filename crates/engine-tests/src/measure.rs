//! A small measurement of one engine by itself: one thread, rows of 1.1 KB, the calls the server makes most.
//!
//! What is measured is the calling thread's processor time: other work on the machine disturbs it little, and an
//! engine's background threads are not in it.
//!
//! For comparing two states of the code on one machine, not for comparing engines with each other on yours: that is
//! what `tenon bench` is for.

use crate::driver::{Dice, OTHER, TABLE, key, spec};
use engine::{Batch, Direction, Engine, FillLimits, KeyRange, Maintenance, Rows, Seq, TableKind};
use rustix::time::{ClockId, clock_gettime};

const VALUE_BYTES: usize = 1100;

/// Processor time of this thread so far, in nanoseconds.
fn thread_time_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Bytes of memory the process holds.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status.split_whitespace().nth(1);
    pages.and_then(|text| text.parse().ok()).unwrap_or(0) * rustix::param::page_size() as u64
}

/// Prints nanoseconds per call for a table of `rows` rows. The engine is fresh.
pub fn measure(engine: &dyn Engine, rows: u64) {
    let dice = Dice::new(1);
    let value = dice.bytes(VALUE_BYTES);
    let resident_before = resident_bytes();
    let mut seq = Seq(1);
    let mut batch = Batch::new();
    batch.create_table(TABLE, spec(TableKind::Records));
    batch.create_table(OTHER, spec(TableKind::Index));
    engine.apply(&batch, seq).unwrap();
    engine.publish(seq);
    let report = |name: &str, calls: u64, start: u64| {
        let each = (thread_time_ns() - start) / calls;
        println!("{:>10} {name:<66} {each:>7} ns", engine.info().name);
    };
    let mut write = |engine: &dyn Engine, fill: &dyn Fn(&mut Batch)| {
        batch.clear();
        fill(&mut batch);
        seq = seq.next();
        engine.apply(&batch, seq).unwrap();
        engine.publish(seq);
    };

    let start = thread_time_ns();
    for number in 0..rows {
        write(engine, &|batch| batch.put(TABLE, key(number), value.clone()));
    }
    report("insert one row, building the batch included", rows, start);

    let start = thread_time_ns();
    for number in 0..rows {
        let index_key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        write(engine, &|batch| {
            batch.put(OTHER, [&index_key[..], b"12345"].concat(), key(number))
        });
    }
    report("insert one random index entry", rows, start);

    let start = thread_time_ns();
    for _ in 0..rows / 4 {
        let number = dice.below(rows);
        write(engine, &|batch| batch.put(TABLE, key(number), value.clone()));
    }
    report("update one random row", rows / 4, start);

    let start = thread_time_ns();
    for _ in 0..rows {
        drop(engine.snapshot().unwrap());
    }
    report("snapshot", rows, start);

    for pass in ["as written", "after checkpoint and compaction"] {
        let snapshot = engine.snapshot().unwrap();
        for (name, bound) in [("get one of 1000 rows", 1000), ("get a random row", rows)] {
            let start = thread_time_ns();
            for _ in 0..rows {
                assert!(snapshot.get(TABLE, &key(dice.below(bound))).unwrap().is_some());
            }
            report(&format!("{name}, {pass}"), rows, start);
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let start = thread_time_ns();
            let mut cursor = snapshot.clone().cursor(TABLE, KeyRange::all(), direction).unwrap();
            let mut read = Rows::new();
            let mut seen = 0;
            while cursor.fill(&mut read, FillLimits::default()).unwrap() {
                seen += read.len() as u64;
            }
            assert_eq!(seen, rows);
            report(&format!("scan {direction:?}, per row, {pass}"), rows, start);
        }
        let start = thread_time_ns();
        let mut read = Rows::new();
        for _ in 0..rows / 10 {
            let from = key(dice.below(rows));
            let range = KeyRange {
                start: std::ops::Bound::Included(from),
                end: std::ops::Bound::Unbounded,
            };
            let mut cursor = snapshot.clone().cursor(TABLE, range, Direction::Forward).unwrap();
            cursor
                .fill(
                    &mut read,
                    FillLimits {
                        rows_max: 10,
                        bytes_max: usize::MAX,
                    },
                )
                .unwrap();
        }
        report(&format!("open a cursor and read 10 rows, {pass}"), rows / 10, start);
        let start = thread_time_ns();
        engine.checkpoint().unwrap();
        engine.maintain(&Maintenance::Compact(None)).unwrap();
        report("checkpoint and compact, per row", rows, start);
    }
    let held = resident_bytes().saturating_sub(resident_before);
    let data = rows * (VALUE_BYTES as u64 + 8 + 13 + 8);
    println!(
        "{:>10} holds {held} bytes for {data} bytes in {} rows",
        engine.info().name,
        2 * rows
    );
    engine.stats(&mut |name, value| {
        if name == "cache.bytes" {
            println!("{:>10} {name} {value:?}", engine.info().name);
        }
    });
}
