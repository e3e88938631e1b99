//! What the kit needs from an engine, and what a test of it is.

use crate::RealSite;
use crypt::Keys;
use engine::{Engine, Result};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use vfs::{Env, KeyedFs};

/// How the kit gets at an engine.
pub trait Fixture {
    /// A place with no files yet.
    fn site(&self) -> Box<dyn Site>;

    /// False for an engine that keeps nothing when it is closed.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Opens the engine on `directory` of `env`, for tests that inject faults below it; `None` when the engine does its
    /// own input and output.
    fn open_on(&self, env: &Env, directory: &Path) -> Option<Result<Arc<dyn Engine>>> {
        let _ = (env, directory);
        None
    }
}

/// An engine that is opened by a function, on whatever file system.
pub struct Opened(pub fn(&Env, &Path) -> Result<Arc<dyn Engine>>);

impl Fixture for Opened {
    fn site(&self) -> Box<dyn Site> {
        Box::new(RealSite::new(self.0))
    }

    fn open_on(&self, env: &Env, directory: &Path) -> Option<Result<Arc<dyn Engine>>> {
        Some((self.0)(env, directory))
    }
}

/// The same files with keys, for a run of the kit on an engine that encrypts. The keys are the process's: what it has
/// written it reads again.
pub fn encrypted(env: &Env) -> Env {
    static KEYS: LazyLock<Arc<Keys>> = LazyLock::new(|| Arc::new(Keys::ephemeral()));
    Env {
        fs: Arc::new(KeyedFs::new(env.fs.clone(), KEYS.clone())),
        ..env.clone()
    }
}

/// A directory for one engine at a time. Its files outlive the engine, not the site.
pub trait Site {
    /// Opens an engine on the files that are there.
    fn open(&self) -> Result<Arc<dyn Engine>>;

    /// Ends the engine as a crash of the machine would: what it had not made durable may be gone. The next
    /// [`Site::open`] finds what the crash left.
    fn crash(&mut self, engine: Arc<dyn Engine>);

    /// Copies a backup's files to a place of their own.
    fn restore(&self, backup: &dyn engine::Backup) -> Box<dyn Site>;

    /// Flips one bit of one of the files; which one, `choice` decides. The engine is closed. False when there are none.
    fn flip_bit(&self, choice: u64) -> bool;

    /// Bytes of all files.
    fn bytes_on_disk(&self) -> u64;
}

/// A test of the kit.
pub(crate) type Test = fn(&dyn Fixture);

/// Names each function by itself, for a theme's table of tests.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[(&str, crate::fixture::Test)] = &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}
pub(crate) use tests;
