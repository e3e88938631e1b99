//! Comparing an engine with the model.

use crate::dice::Dice;
use crate::model::{Model, Row};
use crate::subject::Subject;
use bytes::Bytes;
use engine::{
    Direction, Engine, EngineError, FillLimits, KeyRange, Maintenance, Result, Rows, Seq, Snapshot, TableId, TableKind,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Rows by table and key.
pub type Content = BTreeMap<(TableId, Vec<u8>), Vec<u8>>;

/// What was written to an engine, by position.
pub struct Written {
    /// The empty state among them.
    pub states: BTreeMap<Seq, Content>,
}

impl Written {
    /// Of an engine whose tables were made at 1.
    pub fn begun() -> Self {
        Self {
            states: [(Seq::ZERO, Content::new()), (Seq(1), Content::new())].into(),
        }
    }

    /// The last position that was written at.
    pub fn newest(&self) -> Seq {
        *self.states.last_key_value().expect("there is the empty state").0
    }

    /// What there was at a position.
    pub fn at(&self, seq: Seq) -> &Content {
        let below = self.states.range(..=seq).next_back();
        below.expect("there is the empty state").1
    }
}

/// Every row of every table of the newest view.
pub fn read_all(engine: &dyn Engine) -> Result<Content> {
    let view = engine.snapshot()?;
    let mut content = Content::new();
    for (table, _) in engine.tables()? {
        let rows = scan(
            &view,
            table,
            &KeyRange::all(),
            Direction::Forward,
            FillLimits::default(),
        )?;
        content.extend(rows.into_iter().map(|(key, value)| ((table, key), value.to_vec())));
    }
    Ok(content)
}

/// Panics when an engine holds something else.
#[track_caller]
pub fn expect_content(engine: &dyn Engine, expected: &Content, what: &str) {
    let found = read_all(engine).unwrap();
    if found != *expected {
        let differs = expected.iter().find(|(key, value)| found.get(*key) != Some(value));
        let more = found.iter().find(|(key, _)| !expected.contains_key(*key));
        panic!(
            "{what}: {} rows of {}; differs {:02x?}; too many {:02x?}",
            found.len(),
            expected.len(),
            differs.map(|row| row.0),
            more.map(|row| row.0)
        );
    }
}

/// All rows of a range, in the cursor's order.
pub fn scan(
    view: &Arc<dyn Snapshot>,
    table: TableId,
    range: &KeyRange,
    direction: Direction,
    limits: FillLimits,
) -> Result<Vec<Row>> {
    let mut cursor = view.clone().cursor(table, range.clone(), direction)?;
    let mut rows = Rows::new();
    let mut found = Vec::new();
    while cursor.fill(&mut rows, limits)? {
        assert!(!rows.is_empty(), "fill said there are rows and gave none");
        found.extend((0..rows.len()).map(|at| (rows.key(at).to_vec(), Bytes::copy_from_slice(rows.value(at)))));
    }
    Ok(found)
}

/// Panics where two lists of rows differ, naming the first row that does.
pub fn expect_same(found: &[Row], expected: &[Row], what: &str) {
    if found == expected {
        return;
    }
    let at = found.iter().zip(expected).position(|(a, b)| a != b);
    let at = at.unwrap_or(found.len().min(expected.len()));
    let describe = |rows: &[Row]| match rows.get(at) {
        None => "the end".to_owned(),
        Some((key, value)) => {
            let head = &value[..value.len().min(16)];
            format!("key {key:02x?} with {} bytes {head:02x?}", value.len())
        }
    };
    panic!(
        "{what}: row {at} of {} is {}, and must be (of {}) {}",
        found.len(),
        describe(found),
        expected.len(),
        describe(expected)
    );
}

/// Compares every row of every table of a view with the model.
pub fn view_is_the_model(view: &Arc<dyn Snapshot>, model: &Model, what: &str) -> Result<()> {
    let at = view.seq();
    for (table, _) in model.tables_at(at) {
        let found = scan(view, table, &KeyRange::all(), Direction::Forward, FillLimits::default())?;
        let expected = model.rows(table, &KeyRange::all(), at);
        expect_same(&found, &expected, &format!("{what}, {table:?} at {at:?}"));
    }
    Ok(())
}

/// Compares random ranges, both ways and with all kinds of limits, and single rows of one table.
pub fn ranges_are_the_model(view: &Arc<dyn Snapshot>, model: &Model, keys: u64, dice: &Dice, what: &str) -> Result<()> {
    let at = view.seq();
    let tables = model.tables_at(at);
    if tables.is_empty() {
        return Ok(());
    }
    let (table, kind) = dice.one_of(&tables);
    let range = random_range(dice, kind, keys);
    let direction = dice.one_of(&[Direction::Forward, Direction::Reverse]);
    let limits = FillLimits {
        rows_max: dice.one_of(&[0, 1, 2, 7, 100, 10_000]),
        bytes_max: dice.one_of(&[1, 100, 4000, 1 << 20]),
    };
    let found = scan(view, table, &range, direction, limits)?;
    let mut expected = model.rows(table, &range, at);
    if direction == Direction::Reverse {
        expected.reverse();
    }
    expect_same(
        &found,
        &expected,
        &format!("{what}, {table:?} at {at:?}, {range:?} {direction:?} {limits:?}"),
    );
    for _ in 0..4 {
        let key = crate::plan::key_of(kind, dice.below(keys));
        let found = view.get(table, &key)?;
        let expected = model.get(table, &key, at);
        assert!(
            found == expected,
            "{what}, {table:?} at {at:?}: get {key:02x?} is {:?}, and must be {:?}",
            found.map(|value| value.len()),
            expected.map(|value| value.len())
        );
    }
    Ok(())
}

/// A range over a table's keys.
pub fn random_range(dice: &Dice, kind: TableKind, keys: u64) -> KeyRange {
    let bound = |dice: &Dice| {
        let key = crate::plan::key_of(kind, dice.below(keys));
        match dice.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(key),
            _ => Bound::Included(key),
        }
    };
    let (mut start, mut end) = (bound(dice), bound(dice));
    let key_in = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    if key_in(&start).zip(key_in(&end)).is_some_and(|(start, end)| start > end) {
        std::mem::swap(&mut start, &mut end);
    }
    KeyRange { start, end }
}

/// Compares all of an engine that stands at `at`: the list of tables, and every row.
pub fn engine_is_the_model(engine: &dyn Engine, model: &Model, at: Seq, what: &str) -> Result<()> {
    let tables: Vec<TableId> = engine.tables()?.into_iter().map(|(id, _)| id).collect();
    let expected: Vec<TableId> = model.tables_at(at).into_iter().map(|(id, _)| id).collect();
    assert_eq!(tables, expected, "{what}: tables at {at:?}");
    let view = engine.snapshot()?;
    assert_eq!(view.seq(), at, "{what}: position of a snapshot");
    view_is_the_model(&view, model, what)
}

/// Looks at the space once more so often, with such a pause between.
const SPACE_TRIES: usize = 1500;
const SPACE_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// What a simulated file system says then.
const CRASHED: &str = "the simulated machine has crashed";

/// Asks the engine whether all is well: pages, order of keys, the marks of used space, and what the durable checkpoint
/// is on disk.
pub fn engine_is_sound(engine: &dyn Subject, what: &str) -> Result<()> {
    let report = engine.maintain(&Maintenance::Verify(None))?;
    // A file that cannot be read any more is a problem to the engine: that is no fault of its own where a run has the
    // machine crash.
    if report.problems.iter().any(|problem| problem.contains(CRASHED)) {
        return Err(EngineError::Stopped(CRASHED.into()));
    }
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
    let lost = |problem: &String| {
        problem.contains("marked as used for nothing") || problem.contains("a large value that nothing holds")
    };
    let mut problems = engine.check_space()?;
    // Large values give their blocks back when readers' epochs have passed, and epochs belong to the process: an engine
    // of another test may hold them up.
    for _ in 0..SPACE_TRIES {
        if !problems.iter().any(lost) {
            break;
        }
        std::thread::park_timeout(SPACE_PAUSE);
        problems = engine.check_space()?;
    }
    assert!(problems.is_empty(), "{what}: space: {problems:#?}");
    let problems = engine.check_durable()?;
    assert!(problems.is_empty(), "{what}: on disk: {problems:#?}");
    Ok(())
}
