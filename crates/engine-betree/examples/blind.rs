//! What a blind addition to a row that is not in memory costs, beside reading the row and writing it: rows of
//! 300 bytes, four times as much data as cache. `cargo run --profile fast -p engine-betree --example blind --
//! 500000`
//!
//! Rows that are added to hold numbers and are as many as the others; both tables are written to disk before.

#![allow(clippy::unwrap_used, reason = "a measurement: a failed step ends it")]

use engine::{Batch, Engine, Seq, TableId, TableKind, TableSpec};
use engine_betree::{BetreeEngine, BetreeOptions};
use std::sync::Arc;
use vfs::{Clock, Env, Random, RealFs, SeededRandom, SystemClock, SystemRandom};

const ROWS: TableId = TableId(1);
const NUMBERS: TableId = TableId(2);

struct Work {
    engine: BetreeEngine,
    seq: Seq,
}

impl Work {
    fn write(&mut self, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        fill(&mut batch);
        while !self.engine.throttle() {}
        self.seq = self.seq.next();
        self.engine.apply(&batch, self.seq).unwrap();
        self.engine.publish(self.seq);
    }
}

fn main() {
    let rows: u64 = std::env::args().nth(1).map_or(500_000, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let clock = SystemClock::new();
    let env = Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    let options = BetreeOptions {
        cache_bytes: rows * 320 / 4,
        ..BetreeOptions::default()
    };
    let engine = BetreeEngine::open(&env, directory.path(), options).unwrap();
    let mut work = Work { engine, seq: Seq(0) };
    let random = SeededRandom::new(1);
    let spec = |kind| TableSpec {
        kind,
        name: "example.rows".to_owned(),
        compressor: None,
    };
    work.write(|batch| {
        batch.create_table(ROWS, spec(TableKind::Records));
        batch.create_table(NUMBERS, spec(TableKind::Records));
    });
    let mut value = vec![0; 300];
    for number in 0..rows {
        random.fill(&mut value[..150]);
        work.write(|batch| {
            batch.put(ROWS, number.to_be_bytes().to_vec(), value.clone());
            batch.put(NUMBERS, number.to_be_bytes().to_vec(), number.to_le_bytes().to_vec());
        });
    }
    work.engine.checkpoint().unwrap();
    let report = |name: &str, count: u64, since: std::time::Duration| {
        let took = (clock.monotonic() - since).as_secs_f64();
        println!("{name:<40} {:>10.0} a second", count as f64 / took);
    };
    let count = rows / 2;
    let since = clock.monotonic();
    for _ in 0..count {
        let key = (random.next_u64() % rows).to_be_bytes().to_vec();
        work.write(|batch| batch.add(NUMBERS, key, 1));
    }
    report("blind additions", count, since);
    let count = rows / 20;
    let since = clock.monotonic();
    for _ in 0..count {
        let key = (random.next_u64() % rows).to_be_bytes().to_vec();
        let mut value = work
            .engine
            .snapshot()
            .unwrap()
            .get(ROWS, &key)
            .unwrap()
            .unwrap()
            .to_vec();
        value[0] = value[0].wrapping_add(1);
        work.write(|batch| batch.put(ROWS, key, value));
    }
    report("read and write of a row of 300 bytes", count, since);
}
