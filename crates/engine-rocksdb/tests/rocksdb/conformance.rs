//! The conformance kit on the rocksdb engine. Its buffers are small, so that flushes and compactions happen.

use engine::{Engine, Result};
use engine_rocksdb::{RocksEngine, RocksOptions};
use engine_tests::{Fixture, RealSite, Site, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn open(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    let options = RocksOptions {
        cache_size_bytes: 16 << 20,
        ..RocksOptions::default()
    };
    Ok(Arc::new(RocksEngine::open(env, directory, options)?))
}

struct Rocks;

impl Fixture for Rocks {
    fn site(&self) -> Box<dyn Site> {
        Box::new(RealSite::new(open))
    }
}

#[test]
fn conformance() {
    run_all(&Rocks);
}
