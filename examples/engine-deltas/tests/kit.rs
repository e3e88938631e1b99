//! The conformance kit on this engine.

use engine::{Engine, Result};
use engine_deltas::DeltaEngine;
use engine_tests::{Fixture, RealSite, Site, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn open(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(DeltaEngine::open(env, directory)?))
}

struct Deltas;

impl Fixture for Deltas {
    fn site(&self) -> Box<dyn Site> {
        Box::new(RealSite::new(open))
    }

    fn open_on(&self, env: &Env, directory: &Path) -> Option<Result<Arc<dyn Engine>>> {
        Some(open(env, directory))
    }
}

#[test]
fn the_kit() {
    run_all(&Deltas);
}
