//! The conformance kit on the mmapv1 engine, with files small enough that a flipped bit can be tried in each of their
//! bytes.

use engine::{Engine, Result};
use engine_mmapv1::{Allocation, Mmapv1Engine, Mmapv1Options};
use engine_tests::{Opened, encrypted, run_all};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

fn small() -> Mmapv1Options {
    Mmapv1Options {
        first_file_bytes: 64 << 10,
        file_bytes_max: 4 << 20,
        preallocate: false,
        ..Mmapv1Options::with_cache(64 << 20)
    }
}

fn open(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Mmapv1Engine::open(env, directory, small())?))
}

/// Exact room for records, a directory for each database, files reserved whole, and a cache that is far too small.
fn open_otherwise(env: &Env, directory: &Path) -> Result<Arc<dyn Engine>> {
    let options = Mmapv1Options {
        cache_bytes: 1 << 20,
        namespace_bytes: 64 << 10,
        preallocate: true,
        directory_per_database: true,
        allocation: Allocation::Exact,
        ..small()
    };
    Ok(Arc::new(Mmapv1Engine::open(env, directory, options)?))
}

#[test]
fn with_small_files() {
    run_all(&Opened(open));
}

#[test]
fn with_every_option_turned() {
    run_all(&Opened(open_otherwise));
}

#[test]
fn encrypted_with_small_files() {
    run_all(&Opened(|env, directory| open(&encrypted(env), directory)));
}

#[test]
fn encrypted_with_every_option_turned() {
    run_all(&Opened(|env, directory| open_otherwise(&encrypted(env), directory)));
}
