//! The conformance kit on the inMemory engine, with checkpoints and without.

use engine::{Engine, Result};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use engine_tests::{Fixture, Opened, RealSite, Site, encrypted, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn open_kept(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(InMemoryEngine::open(
        env,
        directory,
        InMemoryOptions::default(),
    )?))
}

fn open_ephemeral(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(InMemoryEngine::open(
        env,
        directory,
        InMemoryOptions {
            ephemeral: true,
            ..InMemoryOptions::default()
        },
    )?))
}

struct Ephemeral;

impl Fixture for Ephemeral {
    fn site(&self) -> Box<dyn Site> {
        Box::new(RealSite::new(open_ephemeral))
    }

    fn keeps_data(&self) -> bool {
        false
    }
}

#[test]
fn with_checkpoints() {
    run_all(&Opened(open_kept));
}

#[test]
fn ephemeral() {
    run_all(&Ephemeral);
}

#[test]
fn encrypted_with_checkpoints() {
    run_all(&Opened(|env, directory| open_kept(&encrypted(env), directory)));
}
