//! Readers, checkpoints, compaction and write-back beside a writer, in caches far too small.
//!
//! Each batch writes one number to a row of two tables and moves an amount between two rows of a third, so that every
//! snapshot must find the pairs equal and the sum constant.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Batch, Direction, Engine, FillLimits, KeyRange, Maintenance, Seq, TableId, TableKind, TableSpec};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::{Dice, Place, check};
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Random, SystemRandom};

const LEFT: TableId = TableId(1);
const RIGHT: TableId = TableId(2);
const ACCOUNTS: TableId = TableId(3);
const KEYS: u64 = 4000;
const ACCOUNTS_COUNT: u64 = 300;
const BATCHES: u64 = 3000;

fn spec(kind: TableKind) -> TableSpec {
    TableSpec {
        kind,
        name: "one.rows".into(),
        compressor: None,
    }
}

/// A row's key: of many lengths, in an order that has nothing to do with the number's.
fn key(number: u64) -> Vec<u8> {
    let mut key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
    key.extend(std::iter::repeat_n(b'k', number as usize % 20));
    key
}

fn value(number: u64, length: usize) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + length, number as u8);
    value
}

fn look(engine: &BtreeEngine, dice: &Dice) {
    let view = engine.snapshot().unwrap();
    let limits = FillLimits {
        rows_max: dice.one_of(&[1, 17, 1000]),
        bytes_max: 1 << 20,
    };
    match dice.below(4) {
        0 => {
            let left = check::scan(&view, LEFT, &KeyRange::all(), Direction::Forward, limits).unwrap();
            let mut right = check::scan(&view, RIGHT, &KeyRange::all(), Direction::Reverse, limits).unwrap();
            right.reverse();
            check::expect_same(&left, &right, &format!("two tables at {:?}", view.seq()));
        }
        1 => {
            let rows = check::scan(&view, ACCOUNTS, &KeyRange::all(), Direction::Forward, limits).unwrap();
            let sum: i64 = rows
                .iter()
                .map(|(_, value)| i64::from_le_bytes(value[..].try_into().unwrap()))
                .sum();
            assert_eq!(sum, 0, "the sum at {:?}", view.seq());
        }
        _ => {
            for _ in 0..50 {
                let key = key(dice.below(KEYS));
                assert_eq!(
                    view.get(LEFT, &key).unwrap(),
                    view.get(RIGHT, &key).unwrap(),
                    "{key:02x?} at {:?}",
                    view.seq()
                );
            }
        }
    }
}

fn write(engine: &BtreeEngine, dice: &Dice) {
    let mut batch = Batch::new();
    batch.create_table(LEFT, spec(TableKind::Index));
    batch.create_table(RIGHT, spec(TableKind::Records));
    batch.create_table(ACCOUNTS, spec(TableKind::Small));
    engine.apply(&batch, Seq(1)).unwrap();
    engine.publish(Seq(1));
    for seq in 2..BATCHES {
        batch.clear();
        for _ in 0..dice.within(1, 12) {
            let key = key(dice.below(KEYS));
            if dice.percent(15) {
                batch.delete(LEFT, key.clone());
                batch.delete(RIGHT, key);
            } else {
                let length = if dice.percent(3) {
                    6000
                } else {
                    dice.below(500) as usize
                };
                batch.put(LEFT, key.clone(), value(seq, length));
                batch.put(RIGHT, key, value(seq, length));
            }
        }
        if dice.percent(1) {
            let (low, high) = (dice.next().to_be_bytes(), dice.next().to_be_bytes());
            let range = KeyRange {
                start: std::ops::Bound::Included(low.min(high).to_vec()),
                end: std::ops::Bound::Excluded(low.max(high)[..1].to_vec()),
            };
            batch.delete_range(LEFT, range.clone());
            batch.delete_range(RIGHT, range);
        }
        let amount = dice.below(1000) as i64;
        batch.add(ACCOUNTS, key(dice.below(ACCOUNTS_COUNT)), amount);
        batch.add(ACCOUNTS, key(dice.below(ACCOUNTS_COUNT)), -amount);
        engine.apply(&batch, Seq(seq)).unwrap();
        engine.publish(Seq(seq));
    }
}

fn everything_at_once(threads: usize) {
    let seed =
        std::env::var("TENON_SEED").map_or_else(|_| SystemRandom::new().next_u64(), |text| text.parse().unwrap());
    println!("TENON_SEED={seed}");
    let place = Place::simulated(seed);
    let options = BtreeOptions {
        cache_bytes: 1 << 20,
        record_leaf_bytes: 1024,
        index_leaf_bytes: 700,
        large_value_bytes: 4000,
        threads: Some(threads),
        segment_bytes: 64 << 10,
        ..BtreeOptions::default()
    };
    let engine = BtreeEngine::open(&place.env(), &place.directory(), options).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |number: u64| {
            let (engine, done) = (&engine, &done);
            move || {
                let dice = Dice::new(seed ^ number);
                while !done.load(Ordering::Acquire) {
                    if engine.tables().unwrap().len() == 3 {
                        look(engine, &dice);
                    }
                }
            }
        };
        let mut readers = vec![scope.spawn(reader(1)), scope.spawn(reader(2))];
        readers.push(scope.spawn(|| {
            let dice = Dice::new(seed ^ 3);
            while !done.load(Ordering::Acquire) {
                engine.checkpoint().unwrap();
                if dice.percent(5) {
                    engine.maintain(&Maintenance::Compact(None)).unwrap();
                } else if dice.percent(5) {
                    assert_eq!(
                        engine.maintain(&Maintenance::Verify(None)).unwrap().problems,
                        Vec::<String>::new()
                    );
                }
            }
        }));
        let writer = scope.spawn(|| {
            // Whatever becomes of the writer, the others stop.
            let _stop = scopeguard::guard(&done, |done| done.store(true, Ordering::Release));
            write(&engine, &Dice::new(seed));
        });
        writer.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    look(&engine, &Dice::new(seed));
    engine.checkpoint().unwrap();
    check::engine_is_sound(&engine, "after everything").unwrap();
}

#[test]
fn every_snapshot_is_consistent_beside_a_writer_and_checkpoints() {
    everything_at_once(0);
}

#[test]
fn every_snapshot_is_consistent_beside_background_threads_too() {
    everything_at_once(2);
}
