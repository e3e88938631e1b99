//! Verify, compact, backup, damage.

use crate::driver::{Dice, Driver, OTHER, TABLE, expect_kind, for_seeds, fresh, key};
use crate::fixture::{Fixture, tests};
use engine::{CloseMode, ErrorKind, Maintenance, MaintenanceReport};
use std::cell::Cell;

tests![
    verify_looks_at_every_row_and_finds_nothing,
    compaction_changes_no_row,
    a_flipped_bit_is_found_or_harmless,
    a_backup_under_load_is_the_fold_up_to_its_seq,
    what_is_not_supported_says_so,
    maintenance_that_nobody_wants_any_more_ends,
];

fn filled(fixture: &dyn Fixture) -> (Driver, Box<dyn crate::fixture::Site>) {
    let (mut driver, site) = fresh(fixture);
    let dice = Dice::new(5);
    driver.commit(|batch| (0..2000).for_each(|number| batch.put(TABLE, key(number), dice.bytes(100))));
    driver.commit(|batch| (0..1000).for_each(|number| batch.put(OTHER, key(number), key(number))));
    (driver, site)
}

fn verify_looks_at_every_row_and_finds_nothing(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture);
    for _ in 0..2 {
        let one = driver.engine.maintain(&Maintenance::Verify(Some(OTHER))).unwrap();
        assert_eq!(
            one,
            MaintenanceReport {
                rows_checked: 1000,
                ..MaintenanceReport::default()
            }
        );
        let all = driver.engine.maintain(&Maintenance::Verify(None)).unwrap();
        assert_eq!(
            all,
            MaintenanceReport {
                rows_checked: 3000,
                ..MaintenanceReport::default()
            }
        );
        driver.engine.checkpoint().unwrap();
    }
}

fn compaction_changes_no_row(fixture: &dyn Fixture) {
    let (mut driver, _site) = filled(fixture);
    driver.commit(|batch| (0..2000).step_by(3).for_each(|number| batch.delete(TABLE, key(number))));
    let before = driver.rows(TABLE);
    driver
        .engine
        .maintain(&Maintenance::Compact(Some(vec![TABLE])))
        .unwrap();
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    assert_eq!(driver.rows(TABLE), before);
}

fn maintenance_that_nobody_wants_any_more_ends(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture);
    let before = driver.rows(TABLE);
    for task in [
        Maintenance::Verify(None),
        Maintenance::Verify(Some(TABLE)),
        Maintenance::Compact(None),
        Maintenance::Compact(Some(vec![TABLE])),
    ] {
        for looks in [0, 1, 3] {
            let asked = Cell::new(0);
            let done = driver.engine.maintain_while(&task, &|| {
                asked.set(asked.get() + 1);
                asked.get() <= looks
            });
            match done {
                // It is so soon over that it does not ask, or not again.
                Ok(_) => assert!(asked.get() <= looks, "{task:?} went on"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{task:?}: {error}"),
            }
        }
    }
    assert_eq!(driver.rows(TABLE), before);
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    let report = driver.engine.maintain(&Maintenance::Verify(None)).unwrap();
    assert_eq!((report.problems, report.rows_checked), (Vec::new(), 3000));
}

/// Flips single bits of the closed engine's files. The bit may lie where nothing depends on it; but the engine never
/// answers with rows nobody wrote.
fn a_flipped_bit_is_found_or_harmless(fixture: &dyn Fixture) {
    for_seeds("a_flipped_bit_is_found_or_harmless", 1, |seed| {
        let dice = Dice::new(seed);
        let mut found = 0;
        for _ in 0..25 {
            let (driver, site) = filled(fixture);
            let expected = (driver.rows(TABLE), driver.rows(OTHER));
            driver.engine.close(CloseMode::Checkpoint).unwrap();
            drop(driver);
            if !site.flip_bit(dice.below(u64::MAX)) {
                return;
            }
            match read_everything(&*site) {
                Ok(rows) => assert_eq!(rows, expected, "damage came back as data"),
                Err(kind) => {
                    assert!(
                        matches!(kind, ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::Invalid),
                        "{kind:?}"
                    );
                    found += 1;
                }
            }
        }
        assert!(found > 0, "25 flipped bits, and none was noticed");
    });
}

type AllRows = (Vec<crate::driver::Row>, Vec<crate::driver::Row>);

fn read_everything(site: &dyn crate::fixture::Site) -> Result<AllRows, ErrorKind> {
    let read = || -> engine::Result<AllRows> {
        let engine = site.open()?;
        let snapshot = engine.snapshot()?;
        let mut read = Vec::new();
        for table in [TABLE, OTHER] {
            let mut cursor = snapshot
                .clone()
                .cursor(table, engine::KeyRange::all(), engine::Direction::Forward)?;
            let mut rows = engine::Rows::new();
            let mut all = Vec::new();
            while cursor.fill(&mut rows, engine::FillLimits::default())? {
                all.extend((0..rows.len()).map(|index| (rows.key(index).to_vec(), rows.value(index).to_vec())));
            }
            read.push(all);
        }
        Ok((read.remove(0), read.remove(0)))
    };
    read().map_err(|error| error.kind())
}

fn a_backup_under_load_is_the_fold_up_to_its_seq(fixture: &dyn Fixture) {
    let (mut driver, site) = filled(fixture);
    if !driver.engine.info().capabilities.hot_backup {
        return;
    }
    let at_start = driver.last;
    let backup = driver.engine.backup().unwrap();
    assert!(backup.seq() >= at_start);
    let expected = (driver.rows(TABLE), driver.rows(OTHER));
    // The pinned files stay as they are, whatever happens meanwhile.
    driver.commit(|batch| batch.drop_table(OTHER));
    driver.commit(|batch| (0..2000).for_each(|number| batch.delete(TABLE, key(number))));
    driver.engine.checkpoint().unwrap();
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    assert!(!backup.files().is_empty());
    let copy = site.restore(&*backup);
    let restored = Driver::open(&*copy);
    assert_eq!(restored.last, backup.seq());
    assert_eq!((restored.rows(TABLE), restored.rows(OTHER)), expected);
    drop(backup);
    driver.put(TABLE, b"goes on", b"1");
}

fn what_is_not_supported_says_so(fixture: &dyn Fixture) {
    let (driver, _site) = fresh(fixture);
    if !driver.engine.info().capabilities.hot_backup {
        expect_kind(driver.engine.backup().map(|_| ()), ErrorKind::Unsupported);
    }
}
