//! Rows that take many times the cache: a point read looks into blocks that are kept compressed, or not at all.
//!
//! `TENON_SEED=n` repeats a run.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Batch, CloseMode, Engine, Maintenance, Seq, Snapshot, TableId, TableKind, TableSpec};
use engine_betree::{BetreeEngine, BetreeOptions};
use engine_soak::{Dice, check, seeds};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const TABLE: TableId = TableId(3);
const ROWS: u64 = 12_000;

type Rows = BTreeMap<u64, Vec<u8>>;

/// Every fourth row is a counter.
fn value(number: u64, version: u8) -> Vec<u8> {
    match number % 4 {
        0 => (number as i64).to_le_bytes().to_vec(),
        _ => [&number.to_le_bytes()[..], &[version; 300]].concat(),
    }
}

fn expect_rows(view: &Arc<dyn Snapshot>, rows: &Rows, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let found = view.get(TABLE, &number.to_be_bytes()).unwrap();
        let right = rows.get(&number).map(Vec::as_slice);
        assert_eq!(found.as_deref(), right, "row {number} at {:?}", view.seq());
    }
}

#[test]
fn point_reads_find_every_version() {
    for seed in seeds(2) {
        println!("TENON_SEED={seed}");
        let dice = Dice::new(seed);
        let fs = SimulatedFs::new(seed);
        fs.create_directory_all(Path::new("/data")).unwrap();
        let env = Env {
            fs: Arc::new(fs),
            clock: Arc::new(SimulatedClock::new(0)),
            random: Arc::new(SeededRandom::new(1)),
        };
        let options = BetreeOptions {
            cache_bytes: 1 << 20,
            basement_bytes: 4 << 10,
            node_bytes: 64 << 10,
            buffer_bytes: 16 << 10,
            threads: Some(0),
            ..BetreeOptions::default()
        };
        let open = || BetreeEngine::open(&env, Path::new("/data"), options.clone()).unwrap();
        let engine = open();
        let mut seq = Seq::ZERO;
        let mut apply = |engine: &BetreeEngine, batch: &Batch| {
            seq = seq.next();
            engine.apply(batch, seq).unwrap();
            engine.publish(seq);
        };
        let mut batch = Batch::new();
        let spec = TableSpec {
            kind: TableKind::Records,
            name: "db.rows".into(),
            compressor: None,
        };
        batch.create_table(TABLE, spec);
        let mut rows = Rows::new();
        for number in 0..ROWS {
            batch.put(TABLE, number.to_be_bytes().to_vec(), value(number, 1));
            rows.insert(number, value(number, 1));
            if number % 100 == 99 {
                apply(&engine, &batch);
                batch.clear();
            }
        }
        let before = rows.clone();
        let old = engine.snapshot().unwrap();
        for number in (0..ROWS).filter(|_| dice.percent(30)) {
            let key = number.to_be_bytes().to_vec();
            match (number % 4, dice.below(3)) {
                (_, 0) => {
                    batch.delete(TABLE, key);
                    rows.remove(&number);
                }
                (0, _) => {
                    batch.add(TABLE, key, 5);
                    rows.insert(number, (number as i64 + 5).to_le_bytes().to_vec());
                }
                _ => {
                    batch.put(TABLE, key, value(number, 2));
                    rows.insert(number, value(number, 2));
                }
            }
        }
        apply(&engine, &batch);
        let check_both = |engine: &BetreeEngine| {
            let new = engine.snapshot().unwrap();
            // Some rows again and again, so that their basements are worth their room.
            let hot = dice.below(ROWS - 50);
            for _ in 0..4 {
                for (view, rows) in [(&old, &before), (&new, &rows)] {
                    expect_rows(view, rows, (0..400).map(|_| dice.below(ROWS + 10)));
                    expect_rows(view, rows, hot..hot + 50);
                }
            }
        };
        check_both(&engine);
        // Both versions are in basements now.
        engine.maintain(&Maintenance::Compact(None)).unwrap();
        check_both(&engine);
        expect_rows(&old, &before, 0..ROWS);
        drop(old);
        engine.close(CloseMode::Checkpoint).unwrap();
        let engine = open();
        expect_rows(&engine.snapshot().unwrap(), &rows, 0..ROWS + 10);
        check::engine_is_sound(&engine, "at the end").unwrap();
    }
}
