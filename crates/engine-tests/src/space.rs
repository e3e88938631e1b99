//! Space comes back.

use crate::driver::{Driver, TABLE, fresh, key};
use crate::fixture::{Fixture, tests};
use engine::{KeyRange, Maintenance};

tests![
    deleting_everything_gives_the_space_back,
    dropping_a_table_gives_the_space_back,
    updates_over_and_over_take_bounded_space
];

const ROWS: u64 = 4000;

fn fill(driver: &mut Driver, round: u64) {
    let dice = crate::driver::Dice::new(round);
    for first in (0..ROWS).step_by(500) {
        driver.commit(|batch| (first..first + 500).for_each(|number| batch.put(TABLE, key(number), dice.bytes(1000))));
    }
}

/// What the engine holds after it had every chance to give back: on disk, and in memory by its own account.
fn held(driver: &mut Driver, site: &dyn crate::fixture::Site) -> u64 {
    driver.commit(|_| {});
    driver.engine.checkpoint().unwrap();
    driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
    driver.commit(|_| {});
    driver.engine.checkpoint().unwrap();
    let tables = driver.engine.tables().unwrap();
    let memory: u64 = tables
        .iter()
        .map(|table| driver.engine.table_stats(table.0).unwrap().memory_bytes)
        .sum();
    site.bytes_on_disk() + memory
}

fn deleting_everything_gives_the_space_back(fixture: &dyn Fixture) {
    let (mut driver, site) = fresh(fixture);
    let empty = held(&mut driver, &*site);
    fill(&mut driver, 1);
    let full = held(&mut driver, &*site);
    assert!(
        full > empty + ROWS * 1000,
        "{ROWS} rows of 1000 random bytes are there somewhere"
    );
    driver.commit(|batch| batch.delete_range(TABLE, KeyRange::all()));
    let after = held(&mut driver, &*site);
    assert!(
        after < empty + (full - empty) / 10,
        "{empty} empty, {full} full, {after} after deleting all"
    );
}

fn dropping_a_table_gives_the_space_back(fixture: &dyn Fixture) {
    let (mut driver, site) = fresh(fixture);
    let empty = held(&mut driver, &*site);
    fill(&mut driver, 1);
    let full = held(&mut driver, &*site);
    driver.commit(|batch| batch.drop_table(TABLE));
    let after = held(&mut driver, &*site);
    assert!(
        after < empty + (full - empty) / 10,
        "{empty} empty, {full} full, {after} after the drop"
    );
}

fn updates_over_and_over_take_bounded_space(fixture: &dyn Fixture) {
    let (mut driver, site) = fresh(fixture);
    let empty = held(&mut driver, &*site);
    fill(&mut driver, 1);
    let once = held(&mut driver, &*site) - empty;
    for round in 2..12 {
        fill(&mut driver, round);
    }
    let after = held(&mut driver, &*site) - empty;
    assert!(
        after <= once + once / 2,
        "{once} bytes became {after} by ten rounds of updates"
    );
}
