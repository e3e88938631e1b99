//! The run over all tests, and the table of themes.

use crate::fixture::{Fixture, Test};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the whole kit and panics with the names of the tests that failed.
pub fn run_all(fixture: &dyn Fixture) {
    let only = std::env::var("TENON_KIT_ONLY").unwrap_or_default();
    let mut failed = Vec::new();
    let mut ran = 0;
    for (name, test) in all_tests() {
        if !name.contains(&only) {
            continue;
        }
        ran += 1;
        println!("kit: {name}");
        if catch_unwind(AssertUnwindSafe(|| test(fixture))).is_err() {
            eprintln!("kit: {name} FAILED");
            failed.push(name);
        }
    }
    assert!(ran > 0, "no test of the kit is named like {only:?}");
    assert!(failed.is_empty(), "{} of {ran} tests failed: {failed:?}", failed.len());
}

fn all_tests() -> impl Iterator<Item = (&'static str, Test)> {
    [
        crate::lifecycle::TESTS,
        crate::points::TESTS,
        crate::batches::TESTS,
        crate::snapshots::TESTS,
        crate::cursors::TESTS,
        crate::ranges::TESTS,
        crate::bulk::TESTS,
        crate::durability::TESTS,
        crate::write_ahead::TESTS,
        crate::faults::TESTS,
        crate::space::TESTS,
        crate::resources::TESTS,
        crate::maintenance::TESTS,
        crate::concurrency::TESTS,
        crate::model::TESTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}
