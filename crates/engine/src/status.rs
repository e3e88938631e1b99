//! Whether an engine runs. It stops for good when it is closed, and at the first failure after which what is in memory
//! or on disk cannot be relied on; whoever meets that failure, in a call or in the background, it is told to
//! [`crate::Engine::set_failure_handler`]'s handler.

use crate::{EngineError, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Told once why an engine stopped. It must call neither the engine nor its snapshots, which may hold any lock.
pub type FailureHandler = Box<dyn Fn(&str) + Send + Sync>;

/// What an engine keeps of its running and of [`crate::Engine::set_failure_handler`].
#[derive(Default)]
pub struct EngineStatus {
    /// Set once the engine answers no more: the failure, or `None` when it was closed.
    stopped: OnceLock<Option<String>>,
    handler: OnceLock<FailureHandler>,
    is_told: AtomicBool,
}

impl EngineStatus {
    /// An error after [`EngineStatus::stop`] and [`EngineStatus::close`].
    #[inline]
    pub fn check_running(&self) -> Result<()> {
        match self.stopped.get() {
            None => Ok(()),
            Some(None) => Err(EngineError::Closed),
            Some(Some(failure)) => Err(EngineError::Stopped(failure.clone())),
        }
    }

    /// Neither stopped nor closed.
    pub fn is_running(&self) -> bool {
        self.stopped.get().is_none()
    }

    /// Why it stopped; `None` also for one that was closed.
    pub fn failure(&self) -> Option<&str> {
        self.stopped.get()?.as_deref()
    }

    /// Nothing works after this failure, and the handler hears of it. Nothing after the first, or when it was closed.
    pub fn stop(&self, failure: String) {
        if self.stopped.set(Some(failure)).is_ok() {
            self.tell();
        }
    }

    /// Nothing works after this, and nothing has failed.
    pub fn close(&self) {
        // A failure stands.
        let _ = self.stopped.set(None);
    }

    /// Sets who is told of the failure; at once where there was one. Only the first call counts.
    pub fn set_failure_handler(&self, handler: FailureHandler) {
        let first = self.handler.set(handler).is_ok();
        debug_assert!(first, "the failure handler is set once");
        self.tell();
    }

    /// Handler and failure come in either order, each before a look at the other: one of the two sees both.
    fn tell(&self) {
        // Without it both looks could come before both stores.
        fence(Ordering::SeqCst);
        if let (Some(handler), Some(failure)) = (self.handler.get(), self.failure())
            && !self.is_told.swap(true, Ordering::AcqRel)
        {
            handler(failure);
        }
    }
}

impl std::fmt::Debug for EngineStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.stopped.get() {
            None => write!(f, "EngineStatus(running)"),
            Some(None) => write!(f, "EngineStatus(closed)"),
            Some(Some(failure)) => write!(f, "EngineStatus({failure})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn handler_of(told: &Arc<Mutex<Vec<String>>>) -> FailureHandler {
        let told = told.clone();
        Box::new(move |failure| told.lock().expect("nobody panicked").push(failure.to_owned()))
    }

    #[test]
    fn the_first_failure_is_told_once() {
        let told = Arc::default();
        let status = EngineStatus::default();
        status.set_failure_handler(handler_of(&told));
        assert!(status.is_running() && status.check_running().is_ok());
        status.stop("first".to_owned());
        status.stop("second".to_owned());
        status.close();
        assert_eq!(*told.lock().expect("nobody panicked"), ["first"]);
        assert!(matches!(status.check_running(), Err(EngineError::Stopped(failure)) if failure == "first"));
    }

    #[test]
    fn a_handler_that_comes_late_hears_of_it() {
        let told = Arc::default();
        let status = EngineStatus::default();
        status.stop("early".to_owned());
        status.set_failure_handler(handler_of(&told));
        assert_eq!(*told.lock().expect("nobody panicked"), ["early"]);
    }

    #[test]
    fn an_engine_that_is_closed_has_not_failed() {
        let told = Arc::default();
        let status = EngineStatus::default();
        status.set_failure_handler(handler_of(&told));
        status.close();
        status.stop("late".to_owned());
        assert!(told.lock().expect("nobody panicked").is_empty());
        assert!(matches!(status.check_running(), Err(EngineError::Closed)));
    }
}
