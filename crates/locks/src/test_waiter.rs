//! A waiter for tests.

use crate::{LockMode, Waiter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Waits until it is killed.
#[derive(Default)]
pub(crate) struct Client {
    held: Arc<AtomicU32>,
    killed: AtomicBool,
    is_long: bool,
}

impl Client {
    /// One that keeps what it takes, as far as others know.
    pub(crate) fn long() -> Self {
        Self {
            is_long: true,
            ..Self::default()
        }
    }

    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
    }
}

impl Waiter for Client {
    type Interrupted = ();
    type Wait = ();

    fn check(&self) -> Result<(), ()> {
        if self.killed.load(Ordering::Relaxed) {
            Err(())
        } else {
            Ok(())
        }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn locks_held(&self) -> &Arc<AtomicU32> {
        &self.held
    }

    fn holds_for_long(&self) -> bool {
        self.is_long
    }

    fn number(&self) -> u32 {
        7
    }

    fn begins_to_wait(&self, _: LockMode) {}

    fn waits_on(&self) {}

    fn ends_to_wait(&self) {}

    fn waited_for_document(&self, _: Duration) {}
}
