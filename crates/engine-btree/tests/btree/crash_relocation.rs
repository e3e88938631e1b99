//! Crashes while blocks move: collections with indexes that are filled, thinned out, compacted and filled again,
//! stopped at every k-th operation of the file system.
//!
//! A collection is a table of records and two indexes over their values, written by one batch each time. Whatever comes
//! back after a crash, the indexes hold exactly the records' values, everything is as it was at the recovered position,
//! no page is damaged and no space is used twice; and the same work goes on from there. `TENON_SEED=n` repeats a run,
//! with `TENON_OPERATION=n` that crash alone.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{
    Batch, CloseMode, Direction, Engine, FillLimits, KeyRange, Maintenance, Result, Seq, TableId, TableKind, TableSpec,
};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::{Dice, Place, check};
use std::collections::BTreeMap;
use std::ops::Bound;
use vfs::{Random, SimulatedFs, SystemRandom};

const COLLECTIONS: u32 = 2;
const RECORDS: u64 = 400;
/// Crashes of one run, spread over its operations.
const CRASHES: u64 = 60;

/// Records by collection and number.
type State = BTreeMap<(u32, u64), Vec<u8>>;

fn records(collection: u32) -> TableId {
    TableId(10 * collection + 1)
}

/// By value, and by the value's end.
fn indexes(collection: u32) -> [TableId; 2] {
    [TableId(10 * collection + 2), TableId(10 * collection + 3)]
}

fn index_key(index: usize, number: u64, value: &[u8]) -> Vec<u8> {
    let part = if index == 0 {
        &value[..6]
    } else {
        &value[value.len() - 4..]
    };
    [part, &number.to_be_bytes()].concat()
}

fn options() -> BtreeOptions {
    BtreeOptions {
        cache_bytes: 1 << 20,
        record_leaf_bytes: 600,
        index_leaf_bytes: 400,
        large_value_bytes: 1500,
        threads: Some(0),
        segment_bytes: 32 << 10,
        ..BtreeOptions::default()
    }
}

struct Work {
    place: Place,
    engine: Option<BtreeEngine>,
    dice: Dice,
    /// Values that get blocks of their own, in percent.
    large_percent: u64,
    states: BTreeMap<Seq, State>,
    acknowledged: Seq,
}

impl Work {
    fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        Self {
            place: Place::simulated(seed),
            engine: None,
            large_percent: dice.one_of(&[3, 40]),
            dice,
            states: [(Seq::ZERO, State::new())].into(),
            acknowledged: Seq::ZERO,
        }
    }

    fn fs(&self) -> SimulatedFs {
        match &self.place {
            Place::Simulated(fs) => fs.clone(),
            Place::Real { .. } => unreachable!("the disk is simulated"),
        }
    }

    fn engine(&self) -> &BtreeEngine {
        self.engine.as_ref().expect("it is open")
    }

    /// Applies a batch that leads to `state`.
    fn commit(&mut self, batch: &Batch, state: State) -> Result<()> {
        let seq = self.states.last_key_value().expect("there is the empty state").0.next();
        self.states.insert(seq, state);
        self.engine().apply(batch, seq)?;
        self.engine().publish(seq);
        Ok(())
    }

    /// Puts a record, or deletes it, with its index entries.
    fn change(batch: &mut Batch, state: &mut State, collection: u32, number: u64, value: Option<Vec<u8>>) {
        let place = (collection, number);
        if let Some(old) = state.remove(&place) {
            for (index, table) in indexes(collection).into_iter().enumerate() {
                batch.delete(table, index_key(index, number, &old));
            }
        }
        match value {
            None => batch.delete(records(collection), number.to_be_bytes().to_vec()),
            Some(value) => {
                for (index, table) in indexes(collection).into_iter().enumerate() {
                    batch.put(table, index_key(index, number, &value), b"".to_vec());
                }
                batch.put(records(collection), number.to_be_bytes().to_vec(), value.clone());
                state.insert(place, value);
            }
        }
    }

    fn fill(&mut self, percent: u64) -> Result<()> {
        for first in (0..RECORDS).step_by(50) {
            let mut state = self.states.last_key_value().expect("there is one").1.clone();
            let mut batch = Batch::new();
            for number in first..first + 50 {
                let collection = self.dice.below(u64::from(COLLECTIONS)) as u32;
                if self.dice.percent(percent) {
                    let length = if self.dice.percent(self.large_percent) {
                        2000
                    } else {
                        20 + self.dice.below(60)
                    };
                    let value = self.dice.bytes(length as usize);
                    Self::change(&mut batch, &mut state, collection, number, Some(value));
                }
            }
            self.commit(&batch, state)?;
        }
        Ok(())
    }

    /// Deletes most records, some of them by range.
    fn thin_out(&mut self) -> Result<()> {
        for collection in 0..COLLECTIONS {
            let mut state = self.states.last_key_value().expect("there is one").1.clone();
            let mut batch = Batch::new();
            let low = self.dice.below(RECORDS / 2);
            let high = low + RECORDS / 3;
            for number in 0..RECORDS {
                let inside = (low..high).contains(&number);
                if !inside && self.dice.percent(15) {
                    continue;
                }
                // The records of the range go by one operation, their entries one by one.
                let mut single = Batch::new();
                if state.contains_key(&(collection, number)) {
                    Self::change(
                        if inside { &mut single } else { &mut batch },
                        &mut state,
                        collection,
                        number,
                        None,
                    );
                }
                for op in single.ops() {
                    if let engine::Op::Delete(table, key) = op
                        && *table != records(collection)
                    {
                        batch.delete(*table, key.to_vec());
                    }
                }
            }
            batch.delete_range(
                records(collection),
                KeyRange {
                    start: Bound::Included(low.to_be_bytes().to_vec()),
                    end: Bound::Excluded(high.to_be_bytes().to_vec()),
                },
            );
            self.commit(&batch, state)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.acknowledged = self.engine().checkpoint()?;
        Ok(())
    }

    fn compact(&mut self) -> Result<()> {
        self.engine().maintain(&Maintenance::Compact(None))?;
        self.acknowledged = self.acknowledged.max(self.engine().durable_seq());
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        self.engine = Some(BtreeEngine::open(
            &self.place.env(),
            &self.place.directory(),
            options(),
        )?);
        Ok(())
    }

    /// Everything, as long as the disk lets it.
    fn all(&mut self) -> Result<()> {
        self.open()?;
        let mut batch = Batch::new();
        for collection in 0..COLLECTIONS {
            let tables = indexes(collection).map(|table| (table, TableKind::Index));
            for (table, kind) in tables.into_iter().chain([(records(collection), TableKind::Records)]) {
                batch.create_table(
                    table,
                    TableSpec {
                        kind,
                        name: format!("db.c{}", table.0),
                        compressor: None,
                    },
                );
            }
        }
        self.commit(&batch, State::new())?;
        for round in 0..2 {
            self.fill(80)?;
            self.checkpoint()?;
            let view = self.engine().snapshot()?;
            self.thin_out()?;
            // Background relocation is planned by a checkpoint, and goes on with the next ones.
            for _ in 0..3 {
                self.checkpoint()?;
                self.fill(5)?;
            }
            if round == 1 {
                drop(view);
            }
            self.compact()?;
            self.fill(30)?;
            self.checkpoint()?;
        }
        self.compact()
    }

    /// Opens what a crash left and compares.
    fn recover(&mut self, what: &str) {
        self.engine = None;
        self.place.restart();
        self.open().unwrap_or_else(|error| panic!("{what}: {error}"));
        let at = self.engine().durable_seq();
        assert!(
            at >= self.acknowledged,
            "{what}: {:?} was durable, {at:?} came back",
            self.acknowledged
        );
        self.states.retain(|seq, _| *seq <= at);
        self.compare(what);
    }

    fn compare(&self, what: &str) {
        let state = self.states.last_key_value().expect("there is one").1;
        let view = self.engine().snapshot().unwrap();
        let known: Vec<TableId> = self
            .engine()
            .tables()
            .unwrap()
            .into_iter()
            .map(|(table, _)| table)
            .collect();
        let scan = |table: TableId| match known.contains(&table) {
            true => check::scan(
                &view,
                table,
                &KeyRange::all(),
                Direction::Forward,
                FillLimits::default(),
            )
            .unwrap(),
            false => Vec::new(),
        };
        for collection in 0..COLLECTIONS {
            let expected: Vec<_> = state
                .range((collection, 0)..(collection, u64::MAX))
                .map(|((_, number), value)| (number.to_be_bytes().to_vec(), value.clone().into()))
                .collect();
            check::expect_same(&scan(records(collection)), &expected, &format!("{what}, records"));
            for (index, table) in indexes(collection).into_iter().enumerate() {
                let mut expected: Vec<_> = state
                    .range((collection, 0)..(collection, u64::MAX))
                    .map(|((_, number), value)| (index_key(index, *number, value), bytes::Bytes::new()))
                    .collect();
                expected.sort();
                check::expect_same(&scan(table), &expected, &format!("{what}, index {index}"));
            }
        }
        check::engine_is_sound(self.engine(), what).unwrap();
    }
}

fn crash_at(seed: u64, at: u64) {
    let what = format!("TENON_SEED={seed}, operation {at}");
    let mut work = Work::new(seed);
    let fs = work.fs();
    fs.crash_at(at);
    let ended = work.all();
    assert!(ended.is_ok() || fs.has_crashed(), "{what}: {ended:?}");
    work.recover(&what);
    if work.engine().tables().unwrap().is_empty() {
        return;
    }
    // The same goes on, and a second crash comes soon.
    fs.crash_at(fs.operations() + 1 + at % 40);
    let ended = work
        .thin_out()
        .and_then(|()| work.compact())
        .and_then(|()| work.fill(20));
    assert!(ended.is_ok() || fs.has_crashed(), "{what}, again: {ended:?}");
    work.recover(&what);
    work.fill(20).unwrap();
    work.compact().unwrap();
    work.compare(&what);
    let engine = work.engine.take().expect("it is open");
    engine.close(CloseMode::Checkpoint).unwrap();
    drop(engine);
    work.acknowledged = *work.states.last_key_value().expect("there is one").0;
    work.recover(&what);
}

#[test]
fn a_crash_while_blocks_move_leaves_records_and_indexes_that_agree() {
    let seed =
        std::env::var("TENON_SEED").map_or_else(|_| SystemRandom::new().next_u64(), |text| text.parse().unwrap());
    println!("TENON_SEED={seed}");
    if let Ok(at) = std::env::var("TENON_OPERATION") {
        return crash_at(seed, at.parse().unwrap());
    }
    let mut whole = Work::new(seed);
    whole.all().unwrap();
    whole.compare("undisturbed");
    let last = whole.fs().operations();
    assert!(last > 100, "the work has operations to crash in, not {last}");
    let stride = last.div_ceil(CRASHES).max(1);
    for at in (1 + seed % stride..=last).step_by(stride as usize) {
        crash_at(seed, at);
    }
}
