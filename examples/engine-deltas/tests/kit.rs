//! The conformance kit on this engine.

use engine::{Engine, Result};
use engine_deltas::DeltaEngine;
use engine_tests::{Opened, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn open(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(DeltaEngine::open(env, directory)?))
}

#[test]
fn the_kit() {
    run_all(&Opened(open));
}
