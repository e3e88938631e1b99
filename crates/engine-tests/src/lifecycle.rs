//! Opening, closing, tables that come and go.

use crate::driver::{Driver, OTHER, TABLE, expect_kind, fresh, key, scan, spec};
use crate::fixture::{Fixture, tests};
use engine::{
    Batch, CheckpointCost, CloseMode, Direction, ErrorKind, KeyRange, Maintenance, Seq, TableId, TableKind, TableSpec,
};

tests![
    a_new_engine_is_empty,
    info_is_constant,
    a_clean_close_keeps_everything,
    an_abandoned_engine_keeps_its_durable_mark,
    tables_are_listed_by_id_with_their_options,
    creating_a_table_twice_is_fine,
    creating_a_table_as_another_kind_is_invalid,
    dropping_a_missing_table_is_fine,
    a_missing_table_is_an_error,
    a_dropped_table_stays_readable_to_older_snapshots,
    a_table_is_created_filled_and_dropped_by_batches_alone,
    after_close_calls_answer_closed,
    closing_with_a_checkpoint_needs_no_replay,
    many_tables,
];

fn a_new_engine_is_empty(fixture: &dyn Fixture) {
    let site = fixture.site();
    let driver = Driver::open(&*site);
    assert_eq!(driver.engine.tables().unwrap(), vec![]);
    assert_eq!(driver.engine.durable_seq(), Seq::ZERO);
    assert_eq!(driver.snapshot().seq(), Seq::ZERO);
}

fn info_is_constant(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let before = format!("{:?}", driver.engine.info());
    driver.put(TABLE, b"a", b"1");
    assert_eq!(format!("{:?}", driver.engine.info()), before);
    assert_ne!(driver.engine.info().name, "");
    assert_ne!(driver.engine.info().format_version, 0);
    let never = driver.engine.info().capabilities.checkpoint_cost == CheckpointCost::Never;
    assert_eq!(never, !fixture.keeps_data());
}

fn a_clean_close_keeps_everything(fixture: &dyn Fixture) {
    if !fixture.keeps_data() {
        return;
    }
    let (mut driver, site) = fresh(fixture);
    for number in 0..1000 {
        driver.put(TABLE, &key(number), &[number as u8; 100]);
    }
    let before = driver.rows(TABLE);
    let last = driver.last;
    driver.engine.close(CloseMode::Checkpoint).unwrap();
    drop(driver);
    let driver = Driver::open(&*site);
    assert_eq!(driver.last, last);
    assert_eq!(driver.snapshot().seq(), last);
    assert_eq!(driver.rows(TABLE), before);
    assert_eq!(before.len(), 1000);
    assert_eq!(driver.rows(OTHER), vec![]);
}

fn an_abandoned_engine_keeps_its_durable_mark(fixture: &dyn Fixture) {
    let (mut driver, site) = fresh(fixture);
    driver.put(TABLE, b"kept", b"1");
    let mark = driver.engine.checkpoint().unwrap();
    driver.put(TABLE, b"after", b"2");
    driver.engine.close(CloseMode::Abandon).unwrap();
    drop(driver);
    let driver = Driver::open(&*site);
    assert!(driver.last >= mark);
    if fixture.keeps_data() {
        assert_eq!(driver.get(TABLE, b"kept").as_deref(), Some(&b"1"[..]));
    }
}

fn tables_are_listed_by_id_with_their_options(fixture: &dyn Fixture) {
    let site = fixture.site();
    let mut driver = Driver::open(&*site);
    let kinds = [
        (90, TableKind::Small),
        (4, TableKind::Records),
        (300, TableKind::Index),
        (301, TableKind::Clustered),
    ];
    let named = |(id, kind)| {
        let spec = TableSpec {
            kind,
            name: format!("db.täble{id}"),
            compressor: Some("none".into()),
        };
        (TableId(id), spec)
    };
    let specs: Vec<(TableId, TableSpec)> = kinds.map(named).to_vec();
    driver.commit(|batch| {
        specs
            .iter()
            .for_each(|(id, spec)| batch.create_table(*id, spec.clone()))
    });
    let mut expected = specs;
    expected.sort_by_key(|table| table.0);
    assert_eq!(driver.engine.tables().unwrap(), expected);
    driver.commit(|batch| batch.drop_table(TableId(90)));
    expected.remove(1);
    assert_eq!(driver.engine.tables().unwrap(), expected);
    if fixture.keeps_data() {
        driver.engine.close(CloseMode::Checkpoint).unwrap();
        drop(driver);
        assert_eq!(Driver::open(&*site).engine.tables().unwrap(), expected);
    }
}

fn creating_a_table_twice_is_fine(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.put(TABLE, b"a", b"1");
    driver.commit(|batch| {
        batch.create_table(
            TABLE,
            TableSpec {
                name: "other".into(),
                ..spec(TableKind::Records)
            },
        )
    });
    assert_eq!(driver.get(TABLE, b"a").as_deref(), Some(&b"1"[..]));
    assert_eq!(driver.engine.tables().unwrap()[0].1, spec(TableKind::Records));
}

fn creating_a_table_as_another_kind_is_invalid(fixture: &dyn Fixture) {
    let (driver, _site) = fresh(fixture);
    let mut batch = Batch::new();
    batch.create_table(TABLE, spec(TableKind::Small));
    expect_kind(driver.engine.apply(&batch, driver.last.next()), ErrorKind::Invalid);
}

fn dropping_a_missing_table_is_fine(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| batch.drop_table(TableId(99)));
    assert_eq!(driver.engine.tables().unwrap().len(), 2);
}

fn a_missing_table_is_an_error(fixture: &dyn Fixture) {
    let (driver, _site) = fresh(fixture);
    let missing = TableId(99);
    let snapshot = driver.snapshot();
    expect_kind(snapshot.get(missing, b"a"), ErrorKind::Invalid);
    expect_kind(
        snapshot.clone().cursor(missing, KeyRange::all(), Direction::Forward),
        ErrorKind::Invalid,
    );
    expect_kind(snapshot.estimate(missing, &KeyRange::all(), 3), ErrorKind::Invalid);
    expect_kind(driver.engine.table_stats(missing), ErrorKind::Invalid);
    expect_kind(
        driver.engine.maintain(&Maintenance::Verify(Some(missing))),
        ErrorKind::Invalid,
    );
    expect_kind(
        driver.engine.bulk_load(missing, &mut std::iter::empty(), driver.last),
        ErrorKind::Invalid,
    );
    let mut batch = Batch::new();
    batch.put(missing, &b"a"[..], &b"1"[..]);
    expect_kind(driver.engine.apply(&batch, driver.last.next()), ErrorKind::Invalid);
}

fn a_dropped_table_stays_readable_to_older_snapshots(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..500).for_each(|number| batch.put(TABLE, key(number), key(number))));
    let before = driver.snapshot();
    let mut open = crate::driver::open_cursor(&before, TABLE, KeyRange::all(), Direction::Forward);
    driver.commit(|batch| batch.drop_table(TABLE));
    // Whatever clears dropped tables away gets its chance.
    driver.engine.checkpoint().unwrap();
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    for number in 0..100 {
        driver.put(OTHER, &key(number), b"x");
    }
    expect_kind(driver.snapshot().get(TABLE, &key(1)), ErrorKind::Invalid);
    assert_eq!(before.get(TABLE, &key(1)).unwrap().as_deref(), Some(&key(1)[..]));
    assert_eq!(scan(&before, TABLE, KeyRange::all(), Direction::Reverse).len(), 500);
    assert_eq!(
        crate::driver::drain(&mut *open, engine::FillLimits::default()).len(),
        500
    );
}

fn a_table_is_created_filled_and_dropped_by_batches_alone(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let before = driver.snapshot();
    let table = TableId(20);
    driver.commit(|batch| {
        batch.create_table(table, spec(TableKind::Index));
        batch.put(table, &b"a"[..], &b"1"[..]);
    });
    let between = driver.snapshot();
    driver.commit(|batch| {
        batch.put(table, &b"a"[..], &b"2"[..]);
        batch.drop_table(table);
    });
    expect_kind(before.get(table, b"a"), ErrorKind::Invalid);
    assert_eq!(between.get(table, b"a").unwrap().as_deref(), Some(&b"1"[..]));
    expect_kind(driver.snapshot().get(table, b"a"), ErrorKind::Invalid);
}

fn after_close_calls_answer_closed(fixture: &dyn Fixture) {
    for mode in [CloseMode::Checkpoint, CloseMode::Abandon] {
        let (driver, _site) = fresh(fixture);
        let failures = driver.failures();
        driver.engine.close(mode).unwrap();
        expect_everything_closed(&driver);
        assert!(failures.lock().unwrap().is_empty(), "an end that was asked for is none");
    }
}

/// Every call that can fail answers `Closed`.
pub(crate) fn expect_everything_closed(driver: &Driver) {
    let engine = &driver.engine;
    expect_kind(engine.tables(), ErrorKind::Closed);
    expect_kind(engine.snapshot(), ErrorKind::Closed);
    expect_kind(engine.apply(&Batch::new(), driver.last.next()), ErrorKind::Closed);
    expect_kind(engine.checkpoint(), ErrorKind::Closed);
    expect_kind(
        engine.bulk_load(TABLE, &mut std::iter::empty(), driver.last),
        ErrorKind::Closed,
    );
    expect_kind(engine.table_stats(TABLE), ErrorKind::Closed);
    expect_kind(engine.maintain(&Maintenance::Verify(None)), ErrorKind::Closed);
    expect_kind(engine.backup().map(|_| ()), ErrorKind::Closed);
    expect_kind(engine.close(CloseMode::Checkpoint), ErrorKind::Closed);
}

fn closing_with_a_checkpoint_needs_no_replay(fixture: &dyn Fixture) {
    if !fixture.keeps_data() {
        return;
    }
    let (mut driver, site) = fresh(fixture);
    let last = driver.put(TABLE, b"a", b"1");
    // Log entries without a batch count too.
    let last = Seq(last.0 + 5);
    driver.engine.publish(last);
    driver.engine.close(CloseMode::Checkpoint).unwrap();
    drop(driver);
    assert_eq!(site.open().unwrap().durable_seq(), last);
}

fn many_tables(fixture: &dyn Fixture) {
    const TABLES: u32 = 10_000;
    let site = fixture.site();
    let mut driver = Driver::open(&*site);
    for first in (1..=TABLES).step_by(1000) {
        driver.commit(|batch| {
            for id in first..first + 1000 {
                batch.create_table(TableId(id), spec(TableKind::Index));
                batch.put(TableId(id), &b"id"[..], key(id.into()));
            }
        });
    }
    if fixture.keeps_data() {
        driver.engine.close(CloseMode::Checkpoint).unwrap();
        drop(driver);
        driver = Driver::open(&*site);
    }
    assert_eq!(driver.engine.tables().unwrap().len(), TABLES as usize);
    let snapshot = driver.snapshot();
    for id in [1, 2, 255, 256, 257, 9_999, 10_000] {
        assert_eq!(
            scan(&snapshot, TableId(id), KeyRange::all(), Direction::Forward),
            [(b"id".to_vec(), key(id.into()))]
        );
    }
}
