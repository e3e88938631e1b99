//! Whether the engine runs. It stops for good at [`Status::close`], and at the first error after which what is in
//! memory or on disk cannot be relied on.

use engine::{EngineError, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module. Invariant: a reason is there before `is_stopped` tells that there may be one.
#[derive(Default)]
pub(crate) struct Status {
    is_stopped: AtomicBool,
    /// Why the engine stopped; `None` for one that was closed.
    reason: Mutex<Option<String>>,
}

impl Status {
    /// An error after [`Status::stop`] and [`Status::close`].
    #[inline]
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.is_stopped.load(Ordering::Acquire) {
            let reason = self.reason.lock().clone();
            return Err(reason.map_or(EngineError::Closed, EngineError::Stopped));
        }
        Ok(())
    }

    /// Nothing works after this, and nothing has failed.
    pub(crate) fn close(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Nothing works after this. The first reason stays.
    pub(crate) fn stop(&self, reason: &str) {
        self.reason.lock().get_or_insert_with(|| reason.to_owned());
        self.is_stopped.store(true, Ordering::Release);
    }
}
