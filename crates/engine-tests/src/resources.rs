//! Threads, descriptors, idle work.

use crate::driver::{Driver, TABLE, fresh, key};
use crate::fixture::{Fixture, tests};
use engine::CloseMode;
use std::collections::BTreeMap;

tests![
    opening_and_closing_leaks_no_threads_or_descriptors,
    an_idle_engine_writes_nothing,
    statistics_are_sane_and_counters_rise,
    common_figures_are_there_from_the_start_and_move
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
        let mut found = BTreeMap::new();
        driver.engine.stats(&mut |name, value| {
            assert!(found.insert(name.to_owned(), value).is_none(), "{name} comes twice");
        });
        found
    };
    let number = |found: &BTreeMap<String, engine::StatValue>, name: &str| match found.get(name) {
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

fn common_figures_are_there_from_the_start_and_move(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let read = |driver: &Driver| driver.engine.common_stats().named().collect::<BTreeMap<_, _>>();
    let start = read(&driver);
    assert!(start.contains_key("cacheBytes"), "{start:?}");
    driver.commit(|batch| (0..1000).for_each(|row| batch.put(TABLE, key(row), vec![row as u8; 1000])));
    let snapshot = driver.engine.snapshot().unwrap();
    let written = read(&driver);
    driver.engine.checkpoint().unwrap();
    let saved = read(&driver);
    drop(snapshot);
    for later in [&written, &saved] {
        assert!(start.keys().eq(later.keys()), "the set of figures is constant");
    }
    // What the engine does not claim is not looked at.
    let grew = |name: &str, from: &BTreeMap<_, u64>, to: &BTreeMap<_, u64>| {
        if let Some(before) = from.get(name) {
            assert!(to[name] > *before, "{name}: {} after {before}", to[name]);
        }
    };
    // What is dirty may be written back at once.
    for name in ["cacheBytes", "snapshotsOpen"] {
        grew(name, &start, &written);
    }
    for name in ["bytesWritten", "blocksWritten", "pagesWritten", "syncs"] {
        grew(name, &written, &saved);
    }
    assert!(saved.get("fileBytes").is_none_or(|bytes| *bytes >= 1000), "{saved:?}");
    if let Some(most) = saved.get("cacheBytesMax") {
        assert!(saved["dirtyBytes"] <= written["dirtyBytes"] && *most > 0, "{saved:?}");
    }
}
