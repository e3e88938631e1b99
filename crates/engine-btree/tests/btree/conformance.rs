//! The conformance kit, with sizes so small that splits, write-back and eviction happen all the time, and with the
//! usual ones.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Engine, Result};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_tests::{Fixture, RealSite, Site, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn open_usual(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    let options = BtreeOptions::default();
    Ok(Arc::new(BtreeEngine::open(env, directory, options)?))
}

fn open_tiny(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    let options = BtreeOptions {
        cache_bytes: 1 << 20,
        // So that space can be counted: rows of one length, several to a leaf, not compressed.
        record_leaf_bytes: 4096,
        index_leaf_bytes: 512,
        collection_compressor: codec::Codec::None,
        large_value_bytes: 2048,
        threads: Some(0),
        segment_bytes: 32 << 10,
        ..BtreeOptions::default()
    };
    Ok(Arc::new(BtreeEngine::open(env, directory, options)?))
}

struct Btree(fn(&Env, &Path) -> Result<Arc<dyn Engine>>);

impl Fixture for Btree {
    fn site(&self) -> Box<dyn Site> {
        Box::new(RealSite::new(self.0))
    }

    fn open_on(&self, env: &Env, directory: &Path) -> Option<Result<Arc<dyn Engine>>> {
        Some((self.0)(env, directory))
    }
}

#[test]
fn with_the_usual_sizes() {
    run_all(&Btree(open_usual));
}

#[test]
fn with_tiny_pages_and_no_threads() {
    run_all(&Btree(open_tiny));
}
