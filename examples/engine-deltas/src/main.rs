//! A server with the engine `deltas` beside its own: `engine-deltas --storageEngine deltas --dbpath DIR`.

// For its global allocator.
use allocator as _;
use engine_deltas::DeltaEngine;
use server::engines::Registry;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    let engines = Registry::built_in().with("deltas", |env, directory| {
        Ok(Arc::new(DeltaEngine::open(env, directory)?))
    });
    server::process::main(&engines)
}
