//! Nanoseconds per call of the engine: `cargo run --release -p engine-inmemory --example measure -- [rows]`.

use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use std::sync::Arc;

fn main() {
    let rows = std::env::args()
        .nth(1)
        .map_or(200_000, |text| text.parse().expect("a number of rows"));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let env = vfs::Env {
        fs: Arc::new(vfs::RealFs),
        clock: Arc::new(vfs::SystemClock::new()),
        random: Arc::new(vfs::SystemRandom::new()),
    };
    let options = InMemoryOptions::default();
    let engine = InMemoryEngine::open(&env, directory.path(), options).expect("opens");
    engine_tests::measure(&engine, rows);
}
