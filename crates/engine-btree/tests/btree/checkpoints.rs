//! Every checkpoint is read from disk as a start after a crash would, beside everything that changes trees: rows with
//! long keys, whose trees are high, range deletes, tables that come and go, write-back, and a cache far too small.
//!
//! `TENON_CHECKPOINTS=n` goes on for so many.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Batch, Engine, KeyRange, Maintenance, Seq, TableId, TableKind, TableSpec};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::{Dice, Place, check};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Random, SystemRandom};

/// Rows of a table, about.
const KEYS: u64 = 400;
/// Tables at one time.
const TABLES: u32 = 3;

/// One of [`KEYS`] keys, from 8 bytes to 30 kB: an inner node has two or three children, or a hundred.
fn key(number: u64, long: bool) -> Vec<u8> {
    let mut key = vec![
        b'k';
        if long {
            20_000 + (number % 11) as usize * 1000
        } else {
            0
        }
    ];
    key.extend(number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn write(engine: &BtreeEngine, dice: &Dice, is_over: &AtomicBool) {
    let spec = TableSpec {
        kind: TableKind::Index,
        name: "one.rows".into(),
        compressor: None,
    };
    let mut next_table = 0;
    let mut tables: Vec<TableId> = Vec::new();
    for seq in 1.. {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let mut batch = Batch::new();
        if tables.len() < TABLES as usize {
            next_table += 1;
            tables.push(TableId(next_table));
            batch.create_table(TableId(next_table), spec.clone());
        }
        let place = dice.below(tables.len() as u64) as usize;
        let table = tables[place];
        // Tables of short keys, too.
        let key = |number| key(number, !table.0.is_multiple_of(3));
        match dice.below(200) {
            0 => {
                batch.drop_table(table);
                tables.swap_remove(place);
            }
            1..10 => {
                let ends = [key(dice.below(KEYS)), key(dice.below(KEYS))];
                let [start, end] = if ends[0] < ends[1] {
                    ends
                } else {
                    [ends[1].clone(), ends[0].clone()]
                };
                let (start, end) = (Bound::Included(start), Bound::Excluded(end));
                batch.delete_range(table, KeyRange { start, end });
            }
            10..60 => (0..20).for_each(|_| batch.delete(table, key(dice.below(KEYS)))),
            _ => {
                for _ in 0..1 + dice.below(8) {
                    let length = dice.one_of(&[0, 10, 100, 1000, 3000, 40_000]);
                    batch.put(table, key(dice.below(KEYS)), dice.bytes(length));
                }
            }
        }
        engine.apply(&batch, Seq(seq)).unwrap();
        engine.publish(Seq(seq));
    }
}

#[test]
fn every_checkpoint_is_whole() {
    let seed = SystemRandom::new().next_u64();
    let checkpoints: u64 = std::env::var("TENON_CHECKPOINTS").map_or(12, |text| text.parse().unwrap());
    println!("seed {seed}, {checkpoints} checkpoints");
    let place = Place::simulated(seed);
    let options = BtreeOptions {
        cache_bytes: 2 << 20,
        segment_bytes: 128 << 10,
        threads: Some(2),
        ..BtreeOptions::default()
    };
    let engine = BtreeEngine::open(&place.env(), &place.directory(), options.clone()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = scope.spawn(|| {
            // Over when this thread ends, however it does.
            let _over = SetAtEnd(&is_over);
            let (mut number, mut last) = (0, Seq(0));
            while number < checkpoints {
                let cut = engine.checkpoint().unwrap();
                if cut == last {
                    // The writer has not come on.
                    std::thread::yield_now();
                    continue;
                }
                (number, last) = (number + 1, cut);
                let problems = engine.check_durable().unwrap();
                assert!(problems.is_empty(), "seed {seed}, checkpoint {number}: {problems:#?}");
                if number % 10 == 0 {
                    engine.maintain(&Maintenance::Compact(None)).unwrap();
                }
            }
        });
        write(&engine, &Dice::new(seed), &is_over);
        over.join().unwrap();
    });
    engine.checkpoint().unwrap();
    check::engine_is_sound(&engine, "at the end").unwrap();
    drop(engine);
    let Place::Simulated(fs) = &place else {
        unreachable!("the disk is simulated")
    };
    let copy = Place::Simulated(fs.after_crash(seed));
    let engine = BtreeEngine::open(&copy.env(), &copy.directory(), options).unwrap();
    check::engine_is_sound(&engine, "after a crash").unwrap();
}

/// Sets a flag when it goes.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
