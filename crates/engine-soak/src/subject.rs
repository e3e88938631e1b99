//! The engines that runs are for: those that can tell about their own space.

use crate::plan::Plan;
use engine::{Engine, Result};
use engine_betree::BetreeEngine;
use engine_btree::BtreeEngine;
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// An engine on the block store, which its trees must account for.
pub trait Subject: Engine {
    /// What is marked as used and is not, or the other way round.
    fn check_space(&self) -> Result<Vec<String>>;

    /// The same of the durable checkpoint, read from disk.
    fn check_durable(&self) -> Result<Vec<String>>;
}

impl Subject for BtreeEngine {
    fn check_space(&self) -> Result<Vec<String>> {
        BtreeEngine::check_space(self)
    }

    fn check_durable(&self) -> Result<Vec<String>> {
        BtreeEngine::check_durable(self)
    }
}

impl Subject for BetreeEngine {
    fn check_space(&self) -> Result<Vec<String>> {
        BetreeEngine::check_space(self)
    }

    fn check_durable(&self) -> Result<Vec<String>> {
        BetreeEngine::check_durable(self)
    }
}

impl Plan {
    /// Opens the plan's engine.
    pub fn open(&self, env: &Env, directory: &Path) -> Result<Arc<dyn Subject>> {
        Ok(match &self.betree {
            Some(options) => Arc::new(BetreeEngine::open(env, directory, options.clone())?),
            None => Arc::new(BtreeEngine::open(env, directory, self.options.clone())?),
        })
    }
}
