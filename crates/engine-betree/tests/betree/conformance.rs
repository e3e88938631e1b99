//! The conformance kit, with sizes so small that every structural change happens all the time, and with the
//! usual ones.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Engine, Result};
use engine_betree::{BetreeEngine, BetreeOptions};
use engine_tests::{Opened, encrypted, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn open_usual(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    let options = BetreeOptions::default();
    Ok(Arc::new(BetreeEngine::open(env, directory, options)?))
}

fn open_tiny(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    let options = BetreeOptions {
        cache_bytes: 1 << 20,
        collection_compressor: codec::Codec::None,
        node_bytes: 8 << 10,
        basement_bytes: 1 << 10,
        buffer_bytes: 8 << 10,
        fanout: 4,
        threads: Some(0),
        segment_bytes: 32 << 10,
        direct_io: true,
        ..BetreeOptions::default()
    };
    Ok(Arc::new(BetreeEngine::open(env, directory, options)?))
}

#[test]
fn with_the_usual_sizes() {
    run_all(&Opened(open_usual));
}

#[test]
fn with_tiny_nodes_and_no_threads() {
    run_all(&Opened(open_tiny));
}

#[test]
fn encrypted_with_tiny_pages() {
    run_all(&Opened(|env, directory| open_tiny(&encrypted(env), directory)));
}
