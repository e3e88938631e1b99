//! The log's side of the write-ahead rule: no state survives a crash before the log that led to it does.

use crate::{Result, Seq};
use std::sync::{Arc, OnceLock};

/// Returns when every log entry up to and including the given position is on disk; an error when it cannot be.
pub type WriteAhead = Arc<dyn Fn(Seq) -> Result<()> + Send + Sync>;

/// What an engine keeps of [`crate::Engine::set_write_ahead`].
#[derive(Default)]
pub struct WriteAheadRule(OnceLock<WriteAhead>);

impl WriteAheadRule {
    /// Sets the log's part. Only the first call counts: a rule that changes under a checkpoint would be none.
    pub fn set(&self, log: WriteAhead) {
        let first = self.0.set(log).is_ok();
        debug_assert!(first, "the write-ahead rule is set once");
    }

    /// Waits until the log is durable up to `seq`. At once where there is no log. Does I/O: to be called without a lock
    /// that a batch needs.
    pub fn wait_for_log(&self, seq: Seq) -> Result<()> {
        self.0.get().map_or(Ok(()), |log| log(seq))
    }
}

impl std::fmt::Debug for WriteAheadRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = if self.0.get().is_some() { "set" } else { "not set" };
        write!(f, "WriteAheadRule({set})")
    }
}
