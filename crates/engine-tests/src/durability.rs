//! The durable mark: what a crash leaves is the exact fold of the batches up to it.

use crate::driver::{Driver, OTHER, TABLE, fresh, key, spec};
use crate::fixture::{Fixture, tests};
use engine::{Seq, TableId, TableKind};

tests![
    the_durable_mark_never_passes_what_was_applied,
    a_checkpoint_makes_everything_published_durable,
    a_checkpoint_with_nothing_new_keeps_the_mark,
    a_crash_leaves_the_fold_up_to_the_mark_in_every_table,
    a_crash_before_any_checkpoint_leaves_a_fold,
    created_and_dropped_tables_are_part_of_the_fold,
    replay_after_a_crash_reaches_the_same_state,
    the_mark_counts_entries_without_a_batch,
    ten_crashes_in_a_row,
];

/// The batch at every position writes its position to both tables, so that the fold up to `mark` is known.
pub(crate) fn write_up_to(driver: &mut Driver, last: u64) {
    while driver.last.0 < last {
        let number = driver.last.0 + 1;
        driver.commit(|batch| {
            if number == 1 {
                batch.create_table(TABLE, spec(TableKind::Records));
                batch.create_table(OTHER, spec(TableKind::Index));
            }
            batch.put(TABLE, key(number), vec![number as u8; 200]);
            batch.put(OTHER, &b"last"[..], key(number));
            batch.add(OTHER, &b"count"[..], 1);
            batch.delete(TABLE, key(number / 2));
        });
    }
}

/// The state is that of [`write_up_to`] the durable mark, in both tables.
pub(crate) fn expect_fold(driver: &Driver) {
    let mark = driver.engine.durable_seq().0;
    assert_eq!(driver.snapshot().seq(), Seq(mark));
    if mark == 0 {
        assert_eq!(driver.engine.tables().unwrap(), vec![]);
        return;
    }
    assert_eq!(driver.get(OTHER, b"last").as_deref(), Some(&key(mark)[..]));
    assert_eq!(driver.get(OTHER, b"count").as_deref(), Some(&mark.to_le_bytes()[..]));
    let expected: Vec<_> = (mark / 2 + 1..=mark)
        .map(|number| (key(number), vec![number as u8; 200]))
        .collect();
    assert_eq!(driver.rows(TABLE), expected, "at mark {mark}");
}

fn crash(driver: Driver, site: &mut dyn crate::fixture::Site) -> Driver {
    site.crash(driver.engine);
    Driver::open(site)
}

fn the_durable_mark_never_passes_what_was_applied(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let mut before = driver.engine.durable_seq();
    for number in 0..50 {
        driver.put(TABLE, &key(number), &[0; 1000]);
        if number % 7 == 0 {
            driver.engine.checkpoint().unwrap();
        }
        let mark = driver.engine.durable_seq();
        assert!(before <= mark && mark <= driver.last);
        before = mark;
    }
}

fn a_checkpoint_makes_everything_published_durable(fixture: &dyn Fixture) {
    if !fixture.keeps_data() {
        let (driver, _site) = fresh(fixture);
        assert_eq!(driver.engine.checkpoint().unwrap(), Seq::ZERO);
        return;
    }
    let site = fixture.site();
    let mut driver = Driver::open(&*site);
    for last in [1, 2, 50, 51] {
        write_up_to(&mut driver, last);
        assert_eq!(driver.engine.checkpoint().unwrap(), Seq(last));
        assert_eq!(driver.engine.durable_seq(), Seq(last));
    }
}

fn a_checkpoint_with_nothing_new_keeps_the_mark(fixture: &dyn Fixture) {
    let (driver, site) = fresh(fixture);
    let mark = driver.engine.checkpoint().unwrap();
    let bytes = site.bytes_on_disk();
    assert_eq!(driver.engine.checkpoint().unwrap(), mark);
    assert_eq!(driver.engine.checkpoint().unwrap(), mark);
    assert_eq!(site.bytes_on_disk(), bytes);
}

fn a_crash_leaves_the_fold_up_to_the_mark_in_every_table(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::open(&*site);
    write_up_to(&mut driver, 100);
    let mark = driver.engine.checkpoint().unwrap();
    write_up_to(&mut driver, 150);
    let driver = crash(driver, &mut *site);
    assert!(driver.engine.durable_seq() >= mark);
    expect_fold(&driver);
}

fn a_crash_before_any_checkpoint_leaves_a_fold(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::open(&*site);
    write_up_to(&mut driver, 30);
    expect_fold(&crash(driver, &mut *site));
}

fn created_and_dropped_tables_are_part_of_the_fold(fixture: &dyn Fixture) {
    let (mut driver, mut site) = fresh(fixture);
    driver.put(TABLE, b"a", b"1");
    let mark = driver.engine.checkpoint().unwrap();
    driver.commit(|batch| batch.drop_table(TABLE));
    driver.commit(|batch| batch.create_table(TableId(50), spec(TableKind::Small)));
    let mut driver = crash(driver, &mut *site);
    if driver.last == mark && mark > Seq::ZERO {
        let ids: Vec<u32> = driver.engine.tables().unwrap().iter().map(|table| table.0.0).collect();
        assert_eq!(ids, [TABLE.0, OTHER.0]);
        assert_eq!(
            driver.get(TABLE, b"a").as_deref(),
            Some(&b"1"[..]),
            "a drop that was not durable took nothing away"
        );
        driver.commit(|batch| batch.drop_table(TABLE));
        driver.engine.checkpoint().unwrap();
        let driver = crash(driver, &mut *site);
        assert_eq!(
            driver.engine.tables().unwrap().len(),
            1,
            "a drop that was durable stays"
        );
    }
}

fn replay_after_a_crash_reaches_the_same_state(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::open(&*site);
    write_up_to(&mut driver, 60);
    driver.engine.checkpoint().unwrap();
    write_up_to(&mut driver, 90);
    let expected = (driver.rows(TABLE), driver.rows(OTHER));
    let mut driver = crash(driver, &mut *site);
    write_up_to(&mut driver, 90);
    assert_eq!((driver.rows(TABLE), driver.rows(OTHER)), expected);
}

fn the_mark_counts_entries_without_a_batch(fixture: &dyn Fixture) {
    if !fixture.keeps_data() {
        return;
    }
    let (driver, mut site) = fresh(fixture);
    let last = Seq(driver.last.0 + 100);
    driver.engine.publish(last);
    assert_eq!(driver.engine.checkpoint().unwrap(), last);
    let driver = crash(driver, &mut *site);
    assert_eq!(driver.engine.durable_seq(), last);
    assert_eq!(driver.engine.tables().unwrap().len(), 2);
}

fn ten_crashes_in_a_row(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::open(&*site);
    for round in 1..=10 {
        let last = driver.last.0 + 20 + round;
        write_up_to(&mut driver, last);
        if round % 3 != 0 {
            driver.engine.checkpoint().unwrap();
        }
        let last = driver.last.0 + round;
        write_up_to(&mut driver, last);
        driver = crash(driver, &mut *site);
        expect_fold(&driver);
    }
    assert!(!fixture.keeps_data() || driver.last > Seq(100));
}
