//! Bulk loads.

use crate::driver::{Driver, OTHER, Row, TABLE, expect_kind, fresh, key, scan, spec};
use crate::fixture::{Fixture, tests};
use engine::{Direction, ErrorKind, KeyRange, Maintenance, Seq, TableId, TableKind, VALUE_BYTES_MAX};

tests![
    a_bulk_load_equals_batches,
    an_empty_bulk_load_is_fine,
    unsorted_and_duplicate_keys_are_invalid_and_leave_the_table_empty,
    a_row_past_the_limit_is_invalid,
    a_table_with_rows_is_refused,
    a_loaded_table_takes_batches_and_drops,
    a_dropped_loaded_table_stays_readable_to_older_snapshots,
    a_crash_keeps_all_or_nothing_and_all_after_a_checkpoint,
    a_load_runs_beside_batches,
    loads_between_checkpoints_are_gone_on_with,
];

const LOADED: TableId = TableId(40);

fn sample(rows: u64) -> Vec<Row> {
    (0..rows)
        .map(|number| (key(number * 3), vec![number as u8; (number % 300) as usize]))
        .collect()
}

fn load(driver: &mut Driver, rows: &[Row]) -> engine::Result<u64> {
    driver.commit(|batch| batch.create_table(LOADED, spec(TableKind::Index)));
    driver.last = driver.last.next();
    let result = driver.engine.bulk_load(LOADED, &mut rows.iter().cloned(), driver.last);
    driver.engine.publish(driver.last);
    result
}

fn a_bulk_load_equals_batches(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let rows = sample(5000);
    assert_eq!(load(&mut driver, &rows).unwrap(), 5000);
    driver.commit(|batch| {
        rows.iter()
            .for_each(|row| batch.put(TABLE, row.0.clone(), row.1.clone()))
    });
    assert_eq!(driver.rows(LOADED), rows);
    assert_eq!(driver.rows(LOADED), driver.rows(TABLE));
    assert_eq!(driver.get(LOADED, &key(30)).as_deref(), Some(&[10u8; 10][..]));
    assert_eq!(driver.get(LOADED, &key(31)), None);
}

fn an_empty_bulk_load_is_fine(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    assert_eq!(load(&mut driver, &[]).unwrap(), 0);
    assert_eq!(driver.rows(LOADED), vec![]);
    driver.put(LOADED, b"a", b"1");
    assert_eq!(driver.rows(LOADED).len(), 1);
}

fn unsorted_and_duplicate_keys_are_invalid_and_leave_the_table_empty(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let mut unsorted = sample(1000);
    unsorted.swap(998, 999);
    expect_kind(load(&mut driver, &unsorted), ErrorKind::Invalid);
    let mut twice = sample(1000);
    twice.push(twice[999].clone());
    expect_kind(load(&mut driver, &twice), ErrorKind::Invalid);
    assert_eq!(driver.rows(LOADED), vec![]);
    // The engine goes on, and the table can still be loaded.
    assert_eq!(load(&mut driver, &sample(10)).unwrap(), 10);
    assert_eq!(driver.rows(LOADED), sample(10));
}

fn a_row_past_the_limit_is_invalid(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    expect_kind(
        load(&mut driver, &[(key(1), vec![0; VALUE_BYTES_MAX + 1])]),
        ErrorKind::Invalid,
    );
    assert_eq!(driver.rows(LOADED), vec![]);
}

fn a_table_with_rows_is_refused(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.put(TABLE, b"a", b"1");
    driver.last = driver.last.next();
    expect_kind(
        driver.engine.bulk_load(TABLE, &mut sample(3).into_iter(), driver.last),
        ErrorKind::Invalid,
    );
    assert_eq!(driver.rows(TABLE).len(), 1);
}

fn a_loaded_table_takes_batches_and_drops(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    load(&mut driver, &sample(1000)).unwrap();
    let before = driver.snapshot();
    driver.commit(|batch| {
        batch.put(LOADED, key(0), &b"new"[..]);
        batch.delete(LOADED, key(3));
        batch.delete_range(
            LOADED,
            KeyRange {
                start: std::ops::Bound::Included(key(6)),
                end: std::ops::Bound::Unbounded,
            },
        );
    });
    assert_eq!(driver.rows(LOADED), [(key(0), b"new".to_vec())]);
    driver.commit(|batch| batch.drop_table(LOADED));
    expect_kind(driver.snapshot().get(LOADED, &key(0)), ErrorKind::Invalid);
    assert_eq!(before.get(LOADED, &key(3)).unwrap().as_deref(), Some(&[1u8][..]));
}

/// A loaded table may have files of its own, which the engine can remove whole: not before the last snapshot is gone.
fn a_dropped_loaded_table_stays_readable_to_older_snapshots(fixture: &dyn Fixture) {
    let (mut driver, mut site) = fresh(fixture);
    let rows = sample(3000);
    load(&mut driver, &rows).unwrap();
    driver.engine.checkpoint().unwrap();
    let before = driver.snapshot();
    driver.commit(|batch| batch.drop_table(LOADED));
    for _ in 0..2 {
        driver.engine.checkpoint().unwrap();
        driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
        driver.put(TABLE, b"a", b"1");
    }
    assert_eq!(scan(&before, LOADED, KeyRange::all(), Direction::Forward), rows);
    drop(before);
    driver.put(TABLE, b"b", b"1");
    driver.engine.checkpoint().unwrap();
    let Driver { engine, .. } = driver;
    site.crash(engine);
    let driver = Driver::open(&*site);
    expect_kind(driver.snapshot().get(LOADED, &key(0)), ErrorKind::Invalid);
}

fn a_crash_keeps_all_or_nothing_and_all_after_a_checkpoint(fixture: &dyn Fixture) {
    for checkpoint in [false, true] {
        let (mut driver, mut site) = fresh(fixture);
        load(&mut driver, &sample(3000)).unwrap();
        if checkpoint {
            driver.engine.checkpoint().unwrap();
        }
        let Driver { engine, .. } = driver;
        site.crash(engine);
        let mut driver = Driver::open(&*site);
        // Replay makes the table again where the crash took it.
        driver.commit(|batch| batch.create_table(LOADED, spec(TableKind::Index)));
        let rows = driver.rows(LOADED);
        assert!(rows.is_empty() || rows == sample(3000), "{} rows of 3000", rows.len());
        if checkpoint && fixture.keeps_data() {
            assert_eq!(rows.len(), 3000);
        }
    }
}

fn a_load_runs_beside_batches(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| batch.create_table(LOADED, spec(TableKind::Index)));
    let rows = sample(2000);
    let seq = driver.last.next();
    driver.last = seq;
    // The iterator itself writes to another table: the load must not hold what `apply` needs.
    let engine = driver.engine.clone();
    let mut beside = rows.iter().cloned().inspect(|_| {
        driver.commit(|batch| batch.add(OTHER, &b"n"[..], 1));
    });
    engine.bulk_load(LOADED, &mut beside, seq).unwrap();
    assert_eq!(driver.rows(LOADED), rows);
    assert_eq!(driver.get(OTHER, b"n").as_deref(), Some(&2000i64.to_le_bytes()[..]));
}

/// Tables are loaded one after another, each at a position of its own that no batch has, and crashes cut that short:
/// what a checkpoint has said to be durable is, what is there is whole, and the rest can be loaded again.
fn loads_between_checkpoints_are_gone_on_with(fixture: &dyn Fixture) {
    if !fixture.keeps_data() {
        return;
    }
    let tables = [40, 41, 42, 43].map(TableId);
    let mut site = fixture.site();
    for crash_after in 0..=tables.len() {
        let mut driver = Driver::open(&*site);
        if driver.last == Seq::ZERO {
            driver.commit(|batch| {
                for table in tables {
                    batch.create_table(table, spec(TableKind::Index));
                }
            });
        }
        let durable = driver.engine.durable_seq();
        for (seq, table) in (2..).map(Seq).zip(tables) {
            let rows = driver.rows(table);
            assert!(
                rows == sample(500) || rows.is_empty() && durable < seq,
                "{table:?}: {} rows",
                rows.len()
            );
            if rows.is_empty() {
                driver
                    .engine
                    .bulk_load(table, &mut sample(500).into_iter(), seq)
                    .unwrap();
            }
            // Loaded, and neither published nor kept by a checkpoint.
            if seq.0 == 2 + crash_after as u64 {
                break;
            }
            driver.engine.publish(seq);
            assert!(driver.engine.checkpoint().unwrap() >= seq);
        }
        let Driver { engine, .. } = driver;
        site.crash(engine);
    }
    let driver = Driver::open(&*site);
    for table in tables {
        assert_eq!(driver.rows(table), sample(500), "{table:?}");
    }
}
