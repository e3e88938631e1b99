//! Random operations against an oracle: a map of rows for every position that was ever written.
//!
//! One run mixes writes to several tables, snapshots kept open, scans both ways, drops, checkpoints, maintenance, clean
//! reopenings and crashes. After a crash the state must be the oracle's at exactly the recovered durable mark; the run
//! goes on from there, as a replay would.

use crate::driver::{Dice, Driver, drain, for_seeds, key, open_cursor, spec};
use crate::fixture::{Fixture, Site, tests};
use engine::{Batch, CloseMode, Direction, FillLimits, KeyRange, Maintenance, Op, Seq, Snapshot, TableId, TableKind};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

tests![
    random_operations_agree_with_the_oracle,
    random_operations_on_few_keys_agree_with_the_oracle
];

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// All tables at one position.
type State = BTreeMap<TableId, Table>;

fn random_operations_agree_with_the_oracle(fixture: &dyn Fixture) {
    for_seeds("random_operations_agree_with_the_oracle", 4, |seed| {
        Run::new(fixture, seed, 400).steps(400)
    });
}

fn random_operations_on_few_keys_agree_with_the_oracle(fixture: &dyn Fixture) {
    for_seeds("random_operations_on_few_keys_agree_with_the_oracle", 4, |seed| {
        Run::new(fixture, seed, 6).steps(400)
    });
}

struct Run<'a> {
    fixture: &'a dyn Fixture,
    dice: Dice,
    keys: u64,
    driver: Option<Driver>,
    /// The state at every position since the oldest that a crash could lead back to.
    history: BTreeMap<Seq, State>,
    views: Vec<Arc<dyn Snapshot>>,
    next_table: u32,
    site: Box<dyn Site>,
}

/// What an operation makes of the oracle's state: the specification of `apply`.
fn fold(state: &mut State, op: &Op) {
    match op {
        Op::Put(table, key, value) => drop(state.get_mut(table).unwrap().insert(key.to_vec(), value.to_vec())),
        Op::Delete(table, key) => drop(state.get_mut(table).unwrap().remove(&key[..])),
        Op::DeleteRange(table, range) => state.get_mut(table).unwrap().retain(|key, _| !range.contains(key)),
        Op::Add(table, key, amount) => {
            let value = state.get_mut(table).unwrap().entry(key.to_vec()).or_default();
            let old = value[..].try_into().map_or(0, i64::from_le_bytes);
            *value = old.wrapping_add(*amount).to_le_bytes().to_vec();
        }
        Op::CreateTable(table, _) => drop(state.entry(*table).or_default()),
        Op::DropTable(table) => drop(state.remove(table)),
    }
}

impl<'a> Run<'a> {
    fn new(fixture: &'a dyn Fixture, seed: u64, keys: u64) -> Self {
        let site = fixture.site();
        let driver = Driver::open(&*site);
        let history = BTreeMap::from([(Seq::ZERO, State::new())]);
        Self {
            fixture,
            dice: Dice::new(seed),
            keys,
            driver: Some(driver),
            history,
            views: Vec::new(),
            next_table: 1,
            site,
        }
    }

    fn driver(&mut self) -> &mut Driver {
        self.driver.as_mut().expect("an engine is open between steps")
    }

    fn steps(mut self, count: usize) {
        for _ in 0..count {
            match self.dice.below(100) {
                0..60 => self.write(),
                60..68 => self.take_view(),
                68..76 => self.check_a_view(),
                76..84 => self.check_now(),
                84..90 => self.checkpoint(),
                90..93 => drop(self.driver().engine.maintain(&Maintenance::Compact(None)).unwrap()),
                93..95 => self.reopen(),
                95..98 => self.crash(),
                _ => self.verify(),
            }
        }
        self.check_now();
        self.verify();
    }

    fn random_key(&self) -> Vec<u8> {
        let number = self.dice.below(self.keys);
        // Keys of different lengths that are each other's prefixes.
        let mut key = key(number);
        key.truncate(8);
        key.extend(vec![b'x'; (number % 5 * 9) as usize]);
        key
    }

    fn random_range(&self) -> KeyRange {
        let bound = || match self.dice.below(6) {
            0 => Bound::Unbounded,
            1..4 => Bound::Included(self.random_key()),
            _ => Bound::Excluded(self.random_key()),
        };
        KeyRange {
            start: bound(),
            end: bound(),
        }
    }

    fn random_table(&self, state: &State) -> Option<TableId> {
        state
            .keys()
            .nth(self.dice.below(state.len().max(1) as u64) as usize)
            .copied()
    }

    fn write(&mut self) {
        let mut state = self.history.last_key_value().expect("there is a first state").1.clone();
        let mut batch = Batch::new();
        for _ in 0..1 + self.dice.below(6) {
            let mut one = Batch::new();
            match (self.random_table(&state), self.dice.below(40)) {
                (None, _) | (_, 0) => {
                    let kind = match self.dice.below(2) {
                        0 => TableKind::Index,
                        _ => TableKind::Clustered,
                    };
                    one.create_table(TableId(self.next_table), spec(kind));
                    self.next_table += 1;
                }
                (Some(table), 1) => one.drop_table(table),
                (Some(table), 2..5) => one.delete_range(table, self.random_range()),
                (Some(table), 5..13) => one.delete(table, self.random_key()),
                (Some(table), 13..18) => one.add(table, self.random_key(), self.dice.below(1000) as i64 - 500),
                (Some(table), _) => {
                    let length = [0, 1, 8, 30, 300, 5000][self.dice.below(6) as usize];
                    one.put(table, self.random_key(), self.dice.bytes(length));
                }
            }
            for op in one.ops() {
                fold(&mut state, op);
                push(&mut batch, op);
            }
        }
        let driver = self.driver();
        driver.last = driver.last.next();
        let last = driver.last;
        driver.engine.apply(&batch, last).unwrap();
        driver.engine.publish(last);
        self.history.insert(last, state);
    }

    fn take_view(&mut self) {
        let snapshot = self.driver().snapshot();
        self.views.push(snapshot);
        if self.views.len() > 6 {
            let index = self.dice.below(6) as usize;
            self.views.remove(index);
        }
    }

    fn check_a_view(&mut self) {
        if !self.views.is_empty() {
            let view = Arc::clone(&self.views[self.dice.below(self.views.len() as u64) as usize]);
            self.check(&view);
        }
    }

    fn check_now(&mut self) {
        let snapshot = self.driver().snapshot();
        assert_eq!(snapshot.seq(), self.driver().last);
        self.check(&snapshot);
        let state = &self.history[&snapshot.seq()];
        let tables: Vec<TableId> = self
            .driver
            .as_ref()
            .expect("open")
            .engine
            .tables()
            .unwrap()
            .into_iter()
            .map(|table| table.0)
            .collect();
        assert!(tables.iter().eq(state.keys()), "tables are {tables:?}");
    }

    /// Compares a view with the oracle's state at its position.
    fn check(&self, snapshot: &Arc<dyn Snapshot>) {
        let state = &self.history[&snapshot.seq()];
        for (table, expected) in state {
            let range = self.random_range();
            let direction = if self.dice.below(2) == 0 {
                Direction::Forward
            } else {
                Direction::Reverse
            };
            let limits = FillLimits {
                rows_max: 1 + self.dice.below(40) as usize,
                bytes_max: 1 + self.dice.below(20_000) as usize,
            };
            for range in [KeyRange::all(), range] {
                let found = drain(&mut *open_cursor(snapshot, *table, range.clone(), direction), limits);
                let mut rows: Vec<_> = expected
                    .clone()
                    .into_iter()
                    .filter(|row| range.contains(&row.0))
                    .collect();
                if direction == Direction::Reverse {
                    rows.reverse();
                }
                assert_eq!(found, rows, "{table:?} at {:?} {range:?} {direction:?}", snapshot.seq());
            }
            let key = self.random_key();
            assert_eq!(
                snapshot.get(*table, &key).unwrap().as_deref(),
                expected.get(&key).map(Vec::as_slice)
            );
        }
        for id in 1..self.next_table + 1 {
            let there = snapshot.get(TableId(id), b"").is_ok();
            assert_eq!(
                there,
                state.contains_key(&TableId(id)),
                "table {id} at {:?}",
                snapshot.seq()
            );
        }
    }

    fn checkpoint(&mut self) {
        let driver = self.driver();
        let mark = driver.engine.checkpoint().unwrap();
        assert_eq!(mark, driver.engine.durable_seq());
        if self.fixture.keeps_data() {
            assert_eq!(mark, self.driver().last);
        }
    }

    fn verify(&mut self) {
        let report = self.driver().engine.maintain(&Maintenance::Verify(None)).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }

    fn reopen(&mut self) {
        self.views.clear();
        let driver = self.driver.take().expect("an engine is open between steps");
        let mode = if self.dice.below(2) == 0 {
            CloseMode::Checkpoint
        } else {
            CloseMode::Abandon
        };
        driver.engine.close(mode).unwrap();
        let last = driver.last;
        drop(driver);
        self.recover();
        if mode == CloseMode::Checkpoint && self.fixture.keeps_data() {
            assert_eq!(self.driver().last, last);
        }
    }

    fn crash(&mut self) {
        self.views.clear();
        let driver = self.driver.take().expect("an engine is open between steps");
        let mark = driver.engine.durable_seq();
        self.site.crash(driver.engine);
        self.recover();
        assert!(self.driver().last >= mark, "the mark was {mark:?}");
    }

    /// Opens again and goes on from the durable mark; what came after it never happened.
    fn recover(&mut self) {
        let driver = Driver::open(&*self.site);
        let last = driver.last;
        self.driver = Some(driver);
        self.history.retain(|seq, _| *seq <= last);
        assert!(
            self.history.contains_key(&last),
            "{last:?} is a position that was written"
        );
        self.check_now();
    }
}

fn push(batch: &mut Batch, op: &Op) {
    match op.clone() {
        Op::Put(table, key, value) => batch.put(table, key, value),
        Op::Delete(table, key) => batch.delete(table, key),
        Op::DeleteRange(table, range) => batch.delete_range(table, range),
        Op::Add(table, key, amount) => batch.add(table, key, amount),
        Op::CreateTable(table, spec) => batch.create_table(table, spec),
        Op::DropTable(table) => batch.drop_table(table),
    }
}
