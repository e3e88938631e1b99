//! The conformance kit, with sizes so small that splits, write-back and eviction happen all the time, and with the
//! usual ones.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Engine, Result};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_tests::{Opened, encrypted, run_all};
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

#[test]
fn with_the_usual_sizes() {
    run_all(&Opened(open_usual));
}

#[test]
fn with_tiny_pages_and_no_threads() {
    run_all(&Opened(open_tiny));
}

#[test]
fn encrypted_with_tiny_pages() {
    run_all(&Opened(|env, directory| open_tiny(&encrypted(env), directory)));
}
