//! Why writing stopped for good, and who wants to know. Apart from the storage, so that an engine can tell of its own
//! end without keeping the storage alive.

use crate::StorageError;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Told once why writing stopped for good. It must not call the storage.
pub type FailureHandler = Box<dyn Fn(&str) + Send + Sync>;

/// See the module.
#[derive(Default)]
pub(crate) struct Failure {
    reason: OnceLock<Arc<str>>,
    handlers: Mutex<Vec<FailureHandler>>,
}

impl Failure {
    /// Tells `handler` once when writing stops for good. At once, if it has.
    pub(crate) fn subscribe(&self, handler: FailureHandler) {
        let mut handlers = self.handlers.lock();
        match self.reason.get() {
            Some(reason) => handler(reason),
            None => handlers.push(handler),
        }
    }

    /// An error after [`Failure::stop`].
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        match self.reason.get() {
            Some(reason) => Err(StorageError::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    /// Stops writing for good and tells who wants to know. The first reason stays, and is answered.
    pub(crate) fn stop(&self, reason: &str) -> StorageError {
        let mut handlers = self.handlers.lock();
        if self.reason.set(reason.into()).is_ok() {
            for handler in handlers.drain(..) {
                handler(reason);
            }
        }
        StorageError::Stopped(self.reason.get().cloned().unwrap_or_else(|| reason.into()))
    }
}
