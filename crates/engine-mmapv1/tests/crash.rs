//! Crashes, full disks and flipped bits under work that moves everything: records that grow and move, tables and
//! databases that come and go, files that are added and given back, loads, compactions.
//!
//! Every position's state is known; whatever comes back after a crash is exactly the state at the recovered position,
//! every byte of every extent is accounted for, and the work goes on. `TENON_SEED=n` repeats a run, with
//! `TENON_OPERATION=n` that crash alone.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{
    Batch, Direction, Engine, ErrorKind, FillLimits, KeyRange, Maintenance, Result, Rows, Seq, TableId, TableKind,
    TableSpec,
};
use engine_mmapv1::{Allocation, Mmapv1Engine, Mmapv1Options};
use engine_tests::encrypted;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, Random, SeededRandom, SimulatedClock, SimulatedFs, SystemRandom};

const DIRECTORY: &str = "/data";
const STEPS: u64 = 40;
/// Crashes of one run, spread over its operations.
const CRASHES: u64 = 120;

type Rows1 = BTreeMap<Vec<u8>, Vec<u8>>;
type State = BTreeMap<u32, Rows1>;

struct Dice(SeededRandom);

impl Dice {
    fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    fn bytes(&self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.0.fill(&mut bytes);
        bytes
    }
}

fn seeds(name: &str, count: usize) -> Vec<u64> {
    let asked = std::env::var("TENON_SEED")
        .ok()
        .map(|text| text.parse().expect("TENON_SEED is a number"));
    let seeds = asked.map_or_else(
        || (0..count).map(|_| SystemRandom::new().next_u64()).collect(),
        |seed| vec![seed],
    );
    println!("{name}: TENON_SEED is one of {seeds:?}");
    seeds
}

/// Options by the seed: both allocations, directories or none.
fn options(seed: u64) -> Mmapv1Options {
    Mmapv1Options {
        first_file_bytes: 64 << 10,
        file_bytes_max: 512 << 10,
        namespace_bytes: 64 << 10,
        preallocate: seed & 1 == 1,
        directory_per_database: seed & 2 == 2,
        allocation: if seed & 4 == 4 {
            Allocation::Exact
        } else {
            Allocation::PowersOfTwo
        },
        ..Mmapv1Options::with_cache(if seed & 8 == 8 { 1 << 20 } else { 16 << 20 })
    }
}

fn new_disk(seed: u64) -> SimulatedFs {
    let fs = SimulatedFs::new(seed);
    fs.create_directory_all(Path::new(DIRECTORY)).unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    fs
}

fn open(fs: &SimulatedFs, seed: u64) -> Result<Mmapv1Engine> {
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    // Every other seed's files are encrypted.
    let env = if seed & 16 == 16 { encrypted(&env) } else { env };
    Mmapv1Engine::open(&env, Path::new(DIRECTORY), options(seed))
}

/// The table that takes a slot now: no id is used twice.
fn table_of(state: &State, slot: u32) -> Option<u32> {
    state.keys().copied().find(|id| id % 10 == slot)
}

fn new_id(seq: Seq, slot: u32) -> u32 {
    10 * seq.0 as u32 + slot
}

/// Of slots 1 to 6 in two databases, every other one of records.
fn spec(table: u32) -> TableSpec {
    TableSpec {
        kind: if table.is_multiple_of(2) {
            TableKind::Records
        } else {
            TableKind::Index
        },
        name: format!("{}.table{table}", ["one", "two"][table as usize / 4]),
        compressor: None,
    }
}

fn key(table: u32, dice: &Dice) -> Vec<u8> {
    let number = dice.below(60);
    match (table % 2, dice.below(12)) {
        (0, 0) => format!("stray{number}").into_bytes(),
        (0, _) => number.to_be_bytes().to_vec(),
        (_, 0) => [vec![b'k'; 1500], number.to_be_bytes().to_vec()].concat(),
        _ => format!("{:04}", number * 37 % 100).into_bytes(),
    }
}

/// One position's batch, drawn by the position and the seed alone, and the state it leads to.
fn batch_at(seed: u64, seq: Seq, state: &State) -> (Batch, State) {
    let dice = Dice(SeededRandom::new(seed ^ seq.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let (mut batch, mut state, mut dropped) = (Batch::new(), state.clone(), Vec::new());
    for _ in 0..1 + dice.below(12) {
        let slot = 1 + dice.below(6) as u32;
        let Some(table) = table_of(&state, slot) else {
            let id = new_id(seq, slot);
            if !dropped.contains(&id) {
                batch.create_table(TableId(id), spec(slot));
                state.insert(id, Rows1::new());
            }
            continue;
        };
        let id = TableId(table);
        let rows = state.get_mut(&table).unwrap();
        let key = key(slot, &dice);
        match dice.below(40) {
            0 => {
                batch.drop_table(id);
                state.remove(&table);
                dropped.push(table);
            }
            1 => {
                batch.delete_range(id, KeyRange::all());
                rows.clear();
            }
            2 => {
                let range = KeyRange {
                    start: Bound::Included(key.clone()),
                    end: Bound::Unbounded,
                };
                rows.retain(|row, _| *row < key);
                batch.delete_range(id, range);
            }
            3..=9 => {
                batch.delete(id, key.clone());
                rows.remove(&key);
            }
            10..=12 => {
                let old = rows
                    .get(&key)
                    .map_or(0, |old| old[..].try_into().map_or(0, i64::from_le_bytes));
                batch.add(id, key.clone(), 7);
                rows.insert(key, (old + 7).to_le_bytes().to_vec());
            }
            _ => {
                let longest = [40, 300, 3000, 30_000][dice.below(4) as usize];
                let value = dice.bytes(dice.below(longest));
                batch.put(id, key.clone(), value.clone());
                rows.insert(key, value);
            }
        }
    }
    (batch, state)
}

struct Work {
    seed: u64,
    states: BTreeMap<Seq, State>,
    acknowledged: Seq,
}

impl Work {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            states: [(Seq::ZERO, State::new())].into(),
            acknowledged: Seq::ZERO,
        }
    }

    /// Works until the end or the first failure.
    fn run(&mut self, engine: &Mmapv1Engine, steps: u64) -> Result<()> {
        let mut last = engine.durable_seq();
        for _ in 0..steps {
            let (batch, state) = batch_at(self.seed, last.next(), &self.states[&last]);
            last = last.next();
            self.states.insert(last, state);
            engine.apply(&batch, last)?;
            engine.publish(last);
            match (self.seed ^ last.0.wrapping_mul(0x2545_F491_4F6C_DD1D)) >> 20 & 15 {
                0..=2 => self.acknowledged = engine.checkpoint()?,
                3 => drop(engine.maintain(&Maintenance::Compact(None))?),
                4 => self.load(engine, &mut last)?,
                _ => {}
            }
        }
        self.acknowledged = engine.checkpoint()?;
        Ok(())
    }

    /// A table made by a load.
    fn load(&mut self, engine: &Mmapv1Engine, last: &mut Seq) -> Result<()> {
        let mut state = self.states[last].clone();
        let mut batch = Batch::new();
        if let Some(old) = table_of(&state, 9) {
            batch.drop_table(TableId(old));
            state.remove(&old);
        }
        *last = last.next();
        let (short_lived, id) = (TableId(new_id(*last, 8)), new_id(*last, 9));
        batch.create_table(short_lived, spec(3));
        batch.drop_table(short_lived);
        batch.create_table(TableId(id), spec(4));
        state.insert(id, Rows1::new());
        engine.apply(&batch, *last)?;
        engine.publish(*last);
        self.states.insert(*last, state.clone());
        let rows: Rows1 = (0..200u64)
            .map(|number| (number.to_be_bytes().to_vec(), vec![number as u8; number as usize]))
            .collect();
        *last = last.next();
        state.insert(id, rows.clone());
        // A crash keeps all of it or nothing; that is the caller's to tell apart, as the storage layer does.
        self.states.insert(*last, state);
        engine.bulk_load(TableId(id), &mut rows.into_iter(), *last)?;
        engine.publish(*last);
        Ok(())
    }

    /// What came back is the state at the engine's mark.
    fn check(&mut self, engine: &Mmapv1Engine, what: &str) {
        let mark = engine.durable_seq();
        assert!(
            mark >= self.acknowledged,
            "{what}: {:?} was durable, {mark:?} came back",
            self.acknowledged
        );
        let expected = self
            .states
            .get(&mark)
            .unwrap_or_else(|| panic!("{what}: nobody wrote {mark:?}"));
        assert_eq!(read(engine).unwrap(), *expected, "{what}: at {mark:?}");
        let report = engine.maintain(&Maintenance::Verify(None)).unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{what}");
    }
}

fn read(engine: &dyn Engine) -> Result<State> {
    let snapshot = engine.snapshot()?;
    let mut state = State::new();
    for (id, _) in engine.tables()? {
        let mut both = Vec::new();
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = snapshot.clone().cursor(id, KeyRange::all(), direction)?;
            let (mut rows, mut found) = (Rows::new(), Rows1::new());
            while cursor.fill(&mut rows, FillLimits::default())? {
                found.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), rows.value(row).to_vec())));
            }
            both.push(found);
        }
        assert_eq!(both[0], both[1], "both ways lead through the same rows");
        for (key, value) in &both[0] {
            assert_eq!(snapshot.get(id, key)?.as_deref(), Some(&value[..]));
        }
        state.insert(id.0, both.remove(0));
    }
    Ok(state)
}

#[test]
fn a_crash_at_any_operation_leaves_a_fold() {
    let only: Option<u64> = std::env::var("TENON_OPERATION")
        .ok()
        .map(|text| text.parse().expect("a number"));
    for seed in seeds("a_crash_at_any_operation_leaves_a_fold", 6) {
        let fs = new_disk(seed);
        let mut work = Work::new(seed);
        let engine = open(&fs, seed).unwrap();
        work.run(&engine, STEPS).unwrap();
        work.check(&engine, "undisturbed");
        drop(engine);
        let operations = fs.operations();
        assert!(operations > 50, "there is something to crash in");
        let crashes = (1..=CRASHES).map(|number| 1 + number * operations / CRASHES);
        for operation in crashes.filter(|operation| only.is_none_or(|only| only == *operation)) {
            let what = format!("TENON_SEED={seed} TENON_OPERATION={operation}");
            let fs = new_disk(seed ^ operation);
            fs.crash_at(operation);
            let mut work = Work::new(seed);
            if let Ok(engine) = open(&fs, seed) {
                let _ = work.run(&engine, STEPS);
            }
            // A second crash, while the first one's traces are cleared away.
            fs.restart();
            fs.crash_at(fs.operations() + 1 + operation % 9);
            drop(open(&fs, seed));
            fs.restart();
            let engine = open(&fs, seed).unwrap();
            work.check(&engine, &what);
            let mark = engine.durable_seq();
            work.states.retain(|seq, _| *seq <= mark);
            work.run(&engine, 6).unwrap();
            work.check(&engine, &what);
            drop(engine);
            fs.restart();
            work.check(&open(&fs, seed).unwrap(), &what);
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_and_passes() {
    for seed in seeds("a_full_disk_loses_nothing_and_passes", 6) {
        for free in [0, 500, 5_000, 20_000, 60_000, 100_000, 150_000, 300_000] {
            let what = format!("TENON_SEED={seed}, {free} bytes");
            let fs = new_disk(seed);
            let mut work = Work::new(seed);
            let mut engine = open(&fs, seed).unwrap();
            work.run(&engine, 10).unwrap();
            fs.set_free_bytes(Some(free));
            let stopped = work.run(&engine, STEPS);
            if let Err(error) = &stopped {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{what}: {error}");
            }
            // Compactions, and writers that are held up, have checkpoints made, too.
            assert!(engine.durable_seq() >= work.acknowledged, "{what}");
            fs.set_free_bytes(None);
            // Nothing is wrong with the engine: the same checkpoint works now.
            work.acknowledged = engine.checkpoint().unwrap();
            work.check(&engine, &what);
            drop(engine);
            fs.restart();
            engine = open(&fs, seed).unwrap();
            work.check(&engine, &what);
        }
    }
}

fn files(fs: &SimulatedFs, directory: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for name in fs.list(directory).unwrap() {
        let path = directory.join(name);
        match fs.open(&path, Access::Read) {
            Ok(file) => found.push((path, file.len().unwrap())),
            Err(_) => files(fs, &path, found),
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_or_harmless() {
    for seed in seeds("a_flipped_bit_anywhere_is_found_or_harmless", 4) {
        let fs = new_disk(seed);
        let mut work = Work::new(seed);
        let engine = open(&fs, seed).unwrap();
        work.run(&engine, STEPS).unwrap();
        let mark = engine.durable_seq();
        let expected = read(&engine).unwrap();
        drop(engine);
        let mut all = Vec::new();
        files(&fs, Path::new(DIRECTORY), &mut all);
        assert!(all.len() > 5, "{all:?}");
        let dice = Dice(SeededRandom::new(seed));
        let mut found_in = BTreeMap::new();
        for round in 0..400 {
            // Each file in turn; the first bytes of it, its maps, more often than their share.
            let (path, bytes) = &all[round % all.len()];
            if *bytes == 0 {
                continue;
            }
            let within = if round % 3 == 0 { (*bytes).min(200) } else { *bytes };
            let (offset, bit) = (dice.below(within), dice.below(8) as u8);
            let damaged = fs.after_crash(1);
            damaged.flip_bit(path, offset, bit).unwrap();
            let what = format!("TENON_SEED={seed}: bit {bit} of {offset} in {path:?}");
            let result = open(&damaged, seed).and_then(|engine| {
                let state = read(&engine)?;
                assert_eq!(engine.durable_seq(), mark, "{what}");
                // What reading does not touch, verification finds.
                let problems = engine.maintain(&Maintenance::Verify(None))?.problems;
                Ok((state, problems))
            });
            match result {
                Ok((state, problems)) => {
                    assert_eq!(state, expected, "{what}");
                    *found_in.entry(path.clone()).or_insert(0) += usize::from(!problems.is_empty());
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
                    *found_in.entry(path.clone()).or_insert(0) += 1;
                }
            }
        }
        let is_found = |ending: &str| {
            found_in
                .iter()
                .any(|(path, count)| path.to_string_lossy().ends_with(ending) && *count > 0)
        };
        assert!(is_found(".ns") && is_found("one.0"), "{found_in:?}");
    }
}

#[test]
fn a_missing_file_is_said() {
    let seed = 6;
    let fs = new_disk(seed);
    let mut work = Work::new(seed);
    let engine = open(&fs, seed).unwrap();
    work.run(&engine, STEPS).unwrap();
    drop(engine);
    let mut all = Vec::new();
    files(&fs, Path::new(DIRECTORY), &mut all);
    let mut said = 0;
    for (path, _) in &all {
        let damaged = fs.after_crash(1);
        damaged.remove_file(path).unwrap();
        match open(&damaged, seed) {
            Ok(engine) => work.check(&engine, &format!("without {path:?}")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                said += 1;
            }
        }
    }
    assert!(
        said >= all.len() - 3,
        "all but a root and the journal are needed: {said} of {all:?}"
    );
    // Neither root: nothing is taken for a new engine.
    let damaged = fs.after_crash(1);
    for root in ["root.0", "root.1", "journal"] {
        damaged.remove_file(&Path::new(DIRECTORY).join(root)).unwrap();
    }
    assert_eq!(open(&damaged, seed).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
}
