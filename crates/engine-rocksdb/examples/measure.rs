//! Nanoseconds per call of the engine: `cargo run --release -p engine-rocksdb --example measure -- [rows]`.

use engine_rocksdb::{RocksEngine, RocksOptions};
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
    let options = RocksOptions {
        cache_size_bytes: 1 << 30,
        ..RocksOptions::default()
    };
    let engine = RocksEngine::open(&env, directory.path(), options).expect("opens");
    engine_tests::measure(&engine, rows);
}
