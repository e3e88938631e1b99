//! What the kit needs from an engine, and the run over all tests.

use engine::{Engine, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// How the kit gets at an engine.
pub trait Fixture {
    /// A place with no files yet.
    fn site(&self) -> Box<dyn Site>;

    /// False for an engine that keeps nothing when it is closed.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Opens the engine on `directory` of `env`, for tests that inject faults below it; `None` when the engine does its own
    /// input and output.
    fn open_on(&self, env: &Env, directory: &Path) -> Option<Result<Arc<dyn Engine>>> {
        let _ = (env, directory);
        None
    }
}

/// A directory for one engine at a time. Its files outlive the engine, not the site.
pub trait Site {
    /// Opens an engine on the files that are there.
    fn open(&self) -> Result<Arc<dyn Engine>>;

    /// Ends the engine as a crash of the machine would: what it had not made durable may be gone. The next
    /// [`Site::open`] finds what the crash left.
    fn crash(&mut self, engine: Arc<dyn Engine>);

    /// Copies a backup's files to a place of their own.
    fn restore(&self, backup: &dyn engine::Backup) -> Box<dyn Site>;

    /// Flips one bit of one of the files; which one, `choice` decides. The engine is closed. False when there are none.
    fn flip_bit(&self, choice: u64) -> bool;

    /// Bytes of all files.
    fn bytes_on_disk(&self) -> u64;
}

/// A test of the kit.
pub(crate) type Test = fn(&dyn Fixture);

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

/// Names each function by itself, for a theme's table of tests.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, crate::fixture::Test)] = &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}
pub(crate) use tests;
