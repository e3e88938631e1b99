//! Views that stand still.

use crate::driver::{Dice, Driver, OTHER, Row, TABLE, expect_kind, for_seeds, fresh, key, open_cursor, scan};
use crate::fixture::{Fixture, tests};
use engine::{Direction, ErrorKind, FillLimits, KeyRange, Maintenance, Rows, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

tests![
    a_snapshot_does_not_change,
    snapshots_at_every_position_stay_exact,
    a_cursor_keeps_its_snapshot_alive,
    a_snapshot_outlives_the_callers_handle_of_the_engine,
    old_versions_go_when_nobody_sees_them,
    a_snapshot_that_holds_too_much_is_ended_or_lasts,
    what_is_expected_is_as_before,
];

/// Keys that a snapshot is told of are read as they are: those that are there, others, and those of no table.
fn what_is_expected_is_as_before(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..3000).for_each(|number| batch.put(TABLE, key(number * 2), vec![number as u8; 300])));
    driver.engine.checkpoint().unwrap();
    driver.commit(|batch| (0..300).for_each(|number| batch.put(TABLE, key(number * 20), vec![7; 30])));
    let snapshot = driver.snapshot();
    driver.commit(|batch| (0..300).for_each(|number| batch.delete(TABLE, key(number * 20))));
    let expected = scan(&snapshot, TABLE, KeyRange::all(), Direction::Forward);
    for step in [1, 7, 500, 6000] {
        let keys: Vec<_> = (0..6100).step_by(step).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for table in [TABLE, engine::TableId(987_654)] {
            snapshot.expect(table, &keys);
            snapshot.expect(table, &[]);
        }
        for wanted in keys {
            let row = expected.binary_search_by(|(key, _)| key[..].cmp(wanted)).ok();
            assert_eq!(
                snapshot.get(TABLE, wanted).unwrap().as_deref(),
                row.map(|row| &expected[row].1[..])
            );
        }
    }
    assert_eq!(scan(&snapshot, TABLE, KeyRange::all(), Direction::Forward), expected);
}

fn a_snapshot_does_not_change(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..2000).for_each(|number| batch.put(TABLE, key(number * 2), key(number))));
    let snapshot = driver.snapshot();
    let before = scan(&snapshot, TABLE, KeyRange::all(), Direction::Forward);
    let mut half_read = open_cursor(&snapshot, TABLE, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    half_read
        .fill(
            &mut rows,
            FillLimits {
                rows_max: 1000,
                bytes_max: usize::MAX,
            },
        )
        .unwrap();
    driver.commit(|batch| {
        (0..2000).for_each(|number| batch.put(TABLE, key(number * 2 + 1), key(0)));
        (0..1000).for_each(|number| batch.delete(TABLE, key(number * 4)));
        batch.add(TABLE, key(2), 1);
        batch.delete_range(
            TABLE,
            KeyRange {
                start: std::ops::Bound::Included(key(3000)),
                end: std::ops::Bound::Unbounded,
            },
        );
    });
    driver.engine.checkpoint().unwrap();
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    assert_eq!(scan(&snapshot, TABLE, KeyRange::all(), Direction::Forward), before);
    let rest = crate::driver::drain(&mut *half_read, FillLimits::default());
    assert_eq!(rest, before[1000..]);
    assert_eq!(snapshot.get(TABLE, &key(4)).unwrap().as_deref(), Some(&key(2)[..]));
    assert_eq!(snapshot.get(TABLE, &key(1)).unwrap(), None);
}

fn snapshots_at_every_position_stay_exact(fixture: &dyn Fixture) {
    for_seeds("snapshots_at_every_position_stay_exact", 2, |seed| {
        let dice = Dice::new(seed);
        let (mut driver, _site) = fresh(fixture);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut views: Vec<(Arc<dyn Snapshot>, Vec<Row>)> = Vec::new();
        for _ in 0..300 {
            let (number, action) = (dice.below(20), dice.below(4));
            driver.commit(|batch| match action {
                0 => batch.delete(TABLE, key(number)),
                _ => batch.put(TABLE, key(number), dice.bytes(8)),
            });
            let rows = driver.rows(TABLE);
            model.clear();
            model.extend(rows);
            views.push((driver.snapshot(), model.clone().into_iter().collect()));
            if views.len() > 40 {
                views.swap_remove(dice.below(40) as usize);
            }
            if dice.below(20) == 0 {
                driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
            }
        }
        for (snapshot, rows) in &views {
            assert_eq!(
                scan(snapshot, TABLE, KeyRange::all(), Direction::Forward),
                *rows,
                "at {:?}",
                snapshot.seq()
            );
        }
        assert_eq!(
            driver.engine.maintain(&Maintenance::Verify(None)).unwrap().problems,
            Vec::<String>::new()
        );
    });
}

fn a_cursor_keeps_its_snapshot_alive(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..1000).for_each(|number| batch.put(TABLE, key(number), key(number))));
    let mut cursor = driver
        .snapshot()
        .cursor(TABLE, KeyRange::all(), Direction::Forward)
        .unwrap();
    driver.commit(|batch| batch.delete_range(TABLE, KeyRange::all()));
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    assert_eq!(crate::driver::drain(&mut *cursor, FillLimits::default()).len(), 1000);
}

fn a_snapshot_outlives_the_callers_handle_of_the_engine(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.put(TABLE, b"a", b"1");
    let snapshot = driver.snapshot();
    let Driver { engine, .. } = driver;
    drop(engine);
    assert_eq!(snapshot.get(TABLE, b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// With nothing allowed for history an engine ends snapshots that hold some, or keeps them whole; none ever shows
/// anything else.
fn a_snapshot_that_holds_too_much_is_ended_or_lasts(fixture: &dyn Fixture) {
    const ROWS: u64 = 500;
    const ROUNDS_MAX: u8 = 200;
    let (mut driver, _site) = fresh(fixture);
    let ends = driver.engine.info().capabilities.ends_snapshots;
    let write = |driver: &mut Driver, round: u8| {
        for part in 0..5 {
            driver.commit(|batch| {
                (0..ROWS / 5).for_each(|number| batch.put(TABLE, key(part * ROWS / 5 + number), vec![round; 200]));
            });
        }
    };
    write(&mut driver, 0);
    // As much as usual is allowed: this is not much.
    let usual = driver.snapshot();
    (1..20).for_each(|round| write(&mut driver, round));
    assert!(
        scan(&usual, TABLE, KeyRange::all(), Direction::Forward)
            .iter()
            .all(|row| row.1[0] == 0)
    );
    drop(usual);
    driver.engine.set_history_percent(0);
    write(&mut driver, 0);
    let held = driver.snapshot();
    let mut cursor = open_cursor(&held, TABLE, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    let few = FillLimits {
        rows_max: 1,
        bytes_max: usize::MAX,
    };
    assert!(cursor.fill(&mut rows, few).unwrap());
    let mut ended = false;
    for round in 1..=ROUNDS_MAX {
        write(&mut driver, round);
        if round == 3 {
            driver.engine.checkpoint().unwrap();
        }
        match held.get(TABLE, &key(u64::from(round) % ROWS)) {
            Ok(value) => assert!(!ended && value.unwrap()[..] == [0; 200], "round {round}"),
            Err(error) => {
                assert!(ends, "this engine's snapshots last: {error}");
                assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                ended = true;
            }
        }
        match cursor.fill(&mut rows, few) {
            Ok(true) => assert!(!ended && rows.value(0) == [0; 200], "round {round}"),
            Ok(false) => panic!("there are more rows than rounds"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                assert!(rows.is_empty());
                // It may have been ended since the look above.
                ended = true;
            }
        }
        let newest = driver.snapshot();
        assert_eq!(
            newest.get(TABLE, &key(1)).unwrap().as_deref(),
            Some(&[round; 200][..]),
            "the newest lasts"
        );
        if ended {
            break;
        }
    }
    assert_eq!(ended, ends, "after {ROUNDS_MAX} rounds");
    if ended {
        expect_kind(held.get(TABLE, &key(1)), ErrorKind::SnapshotTooOld);
        expect_kind(
            Arc::clone(&held)
                .cursor(TABLE, KeyRange::all(), Direction::Forward)
                .map(drop),
            ErrorKind::SnapshotTooOld,
        );
        expect_kind(held.estimate(TABLE, &KeyRange::all(), 0), ErrorKind::SnapshotTooOld);
        expect_kind(cursor.fill(&mut rows, few), ErrorKind::SnapshotTooOld);
    }
    // A checkpoint is as exact as ever, and what follows is allowed again.
    driver.engine.set_history_percent(engine::HISTORY_PERCENT_DEFAULT);
    driver.engine.checkpoint().unwrap();
    let before = driver.rows(TABLE);
    let lasting = driver.snapshot();
    write(&mut driver, 0);
    assert_eq!(scan(&lasting, TABLE, KeyRange::all(), Direction::Forward), before);
    assert_eq!(
        driver.engine.maintain(&Maintenance::Verify(None)).unwrap().problems,
        Vec::<String>::new()
    );
}

fn old_versions_go_when_nobody_sees_them(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..1000).for_each(|number| batch.put(TABLE, key(number), vec![1; 1000])));
    driver.commit(|batch| (0..1000).for_each(|number| batch.put(OTHER, key(number), vec![1; 1000])));
    let weigh = |driver: &Driver| {
        driver.engine.checkpoint().unwrap();
        driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
        let stats = driver.engine.table_stats(TABLE).unwrap();
        stats.memory_bytes.max(stats.storage_bytes - stats.free_bytes)
    };
    let single = weigh(&driver);
    let held = driver.snapshot();
    for round in 0..20 {
        driver.commit(|batch| (0..1000).for_each(|number| batch.put(TABLE, key(number), vec![round; 1000])));
    }
    assert!(
        scan(&held, TABLE, KeyRange::all(), Direction::Forward)
            .iter()
            .all(|row| row.1 == [1; 1000])
    );
    drop(held);
    driver.commit(|_| {});
    assert!(
        weigh(&driver) <= single + single / 2,
        "{single} bytes became {}: {:?}",
        weigh(&driver),
        driver.engine.table_stats(TABLE)
    );
}
