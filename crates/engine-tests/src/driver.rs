//! Short forms for what tests do all the time.

use crate::fixture::{Fixture, Site};
use bytes::Bytes;
use engine::{
    Batch, Cursor, Direction, Engine, EngineError, ErrorKind, FillLimits, KeyRange, Rows, Seq, Snapshot, TableId,
    TableKind, TableSpec,
};
use std::sync::{Arc, Mutex};
use vfs::{Random, SeededRandom};

/// A row, owned.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

pub(crate) const TABLE: TableId = TableId(7);
pub(crate) const OTHER: TableId = TableId(8);

/// An engine and the next position to write at.
pub(crate) struct Driver {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) last: Seq,
}

impl Driver {
    pub(crate) fn open(site: &dyn Site) -> Self {
        let engine = site.open().unwrap();
        let last = engine.durable_seq();
        Self { engine, last }
    }

    /// An engine with the tables [`TABLE`] and [`OTHER`].
    pub(crate) fn with_tables(site: &dyn Site) -> Self {
        let mut driver = Self::open(site);
        driver.commit(|batch| {
            batch.create_table(TABLE, spec(TableKind::Records));
            batch.create_table(OTHER, spec(TableKind::Index));
        });
        driver
    }

    /// Applies and publishes a batch at the next position.
    pub(crate) fn commit(&mut self, fill: impl FnOnce(&mut Batch)) -> Seq {
        let mut batch = Batch::new();
        fill(&mut batch);
        self.last = self.last.next();
        self.engine.apply(&batch, self.last).unwrap();
        self.engine.publish(self.last);
        self.last
    }

    pub(crate) fn put(&mut self, table: TableId, key: &[u8], value: &[u8]) -> Seq {
        self.commit(|batch| batch.put(table, key.to_vec(), value.to_vec()))
    }

    /// What the engine says of its failures from now on. Once for each engine.
    pub(crate) fn failures(&self) -> Arc<Mutex<Vec<String>>> {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let failures = told.clone();
        self.engine.set_failure_handler(Box::new(move |failure| {
            told.lock().unwrap().push(failure.to_owned());
        }));
        failures
    }

    pub(crate) fn snapshot(&self) -> Arc<dyn Snapshot> {
        self.engine.snapshot().unwrap()
    }

    pub(crate) fn get(&self, table: TableId, key: &[u8]) -> Option<Bytes> {
        self.snapshot().get(table, key).unwrap()
    }

    /// All rows of a table now.
    pub(crate) fn rows(&self, table: TableId) -> Vec<Row> {
        scan(&self.snapshot(), table, KeyRange::all(), Direction::Forward)
    }
}

/// A fresh site with the usual tables. The site comes second, to be dropped last.
pub(crate) fn fresh(fixture: &dyn Fixture) -> (Driver, Box<dyn Site>) {
    let site = fixture.site();
    (Driver::with_tables(&*site), site)
}

pub(crate) fn spec(kind: TableKind) -> TableSpec {
    TableSpec {
        kind,
        name: "test.rows".into(),
        compressor: None,
    }
}

/// Big-endian, so that numbers order as keys.
pub(crate) fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub(crate) fn open_cursor(
    snapshot: &Arc<dyn Snapshot>,
    table: TableId,
    range: KeyRange,
    direction: Direction,
) -> Box<dyn Cursor> {
    Arc::clone(snapshot).cursor(table, range, direction).unwrap()
}

/// Everything a cursor has left, by fills of the given size.
pub(crate) fn drain(cursor: &mut dyn Cursor, limits: FillLimits) -> Vec<Row> {
    let mut rows = Rows::new();
    let mut found = Vec::new();
    while cursor.fill(&mut rows, limits).unwrap() {
        assert!(!rows.is_empty(), "fill said there are rows and gave none");
        found.extend((0..rows.len()).map(|index| (rows.key(index).to_vec(), rows.value(index).to_vec())));
    }
    assert!(rows.is_empty(), "fill said there is nothing left and gave rows");
    found
}

pub(crate) fn scan(snapshot: &Arc<dyn Snapshot>, table: TableId, range: KeyRange, direction: Direction) -> Vec<Row> {
    drain(
        &mut *open_cursor(snapshot, table, range, direction),
        FillLimits::default(),
    )
}

#[track_caller]
pub(crate) fn expect_kind<T>(result: Result<T, EngineError>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("expected an error of kind {kind:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

/// Random numbers for tests.
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// Below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    pub(crate) fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0.fill(&mut bytes);
        bytes
    }
}

/// The seeds a random test runs with: the one asked for, or `count` of them from the machine. Each is printed when its
/// run begins, so that a failure can be replayed.
pub(crate) fn for_seeds(test: &str, count: usize, run: impl Fn(u64)) {
    let asked = std::env::var("TENON_KIT_SEED")
        .ok()
        .map(|text| text.parse().expect("TENON_KIT_SEED is a number"));
    let seeds = match asked {
        Some(seed) => vec![seed],
        None => (0..count).map(|_| vfs::SystemRandom::new().next_u64()).collect(),
    };
    for seed in seeds {
        println!("{test}: TENON_KIT_SEED={seed}");
        run(seed);
    }
}
