//! Threads, descriptors, idle work.

use crate::driver::{Driver, TABLE, fresh, key};
use crate::fixture::{Fixture, tests};
use engine::CloseMode;

tests![
    opening_and_closing_leaks_no_threads_or_descriptors,
    an_idle_engine_writes_nothing,
    statistics_are_sane_and_counters_rise
];

fn entries(path: &str) -> usize {
    std::fs::read_dir(path).map_or(0, Iterator::count)
}

fn opening_and_closing_leaks_no_threads_or_descriptors(fixture: &dyn Fixture) {
    let (driver, site) = fresh(fixture);
    let cycle = || {
        let mut driver = Driver::open(&*site);
        if driver.engine.tables().unwrap().is_empty() {
            return;
        }
        driver.put(TABLE, b"a", b"1");
        driver.engine.close(CloseMode::Checkpoint).unwrap();
    };
    driver.engine.close(CloseMode::Checkpoint).unwrap();
    drop(driver);
    // The first rounds fill pools that live as long as the process.
    (0..3).for_each(|_| cycle());
    let counts = || (entries("/proc/self/fd"), entries("/proc/self/task"));
    let before = counts();
    (0..30).for_each(|_| cycle());
    let mut after = counts();
    let has_leaks = |after: (usize, usize)| after.0 > before.0 + 5 || after.1 > before.1 + 3;
    // The process may run the kit on other engines meanwhile, whose descriptors and threads go: a leak only grows.
    for _ in 0..10_000 {
        if !has_leaks(after) {
            break;
        }
        cycle();
        after = counts();
    }
    assert!(
        !has_leaks(after),
        "descriptors and threads: {before:?} became {after:?}"
    );
}

fn an_idle_engine_writes_nothing(fixture: &dyn Fixture) {
    let (mut driver, site) = fresh(fixture);
    driver.put(TABLE, b"a", b"1");
    driver.engine.checkpoint().unwrap();
    let before = site.bytes_on_disk();
    for _ in 0..50 {
        driver.engine.checkpoint().unwrap();
        driver.engine.stats(&mut |_, _| {});
        driver.rows(TABLE);
    }
    assert_eq!(site.bytes_on_disk(), before);
}

fn statistics_are_sane_and_counters_rise(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let read = |driver: &Driver| {
        let mut found = std::collections::BTreeMap::new();
        driver.engine.stats(&mut |name, value| {
            assert!(found.insert(name.to_owned(), value).is_none(), "{name} comes twice");
        });
        found
    };
    let number = |found: &std::collections::BTreeMap<String, engine::StatValue>, name: &str| match found.get(name) {
        Some(engine::StatValue::Number(number)) => *number,
        other => panic!("{name} is {other:?}"),
    };
    let before = read(&driver);
    driver.commit(|batch| (0..100).for_each(|row| batch.put(TABLE, key(row), vec![0; 100])));
    let after = read(&driver);
    assert!(before.keys().eq(after.keys()), "the set of names is constant");
    for (name, rise) in [("apply.batches", 1), ("apply.operations", 100)] {
        assert_eq!(number(&after, name) - number(&before, name), rise, "{name}");
    }
    assert!(number(&after, "cache.bytes") >= 0);
    assert!(driver.engine.table_stats(TABLE).is_ok());
}
