//! Who waits for a lock.

use crate::LockMode;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// How often a waiter looks whether it has to end.
pub(crate) const WAIT_SLICE: Duration = Duration::from_millis(10);

/// An operation, as locks know it.
pub trait Waiter {
    /// Why it had to end.
    type Interrupted;
    /// What is kept while it waits.
    type Wait;

    /// Whether it may go on waiting.
    fn check(&self) -> Result<(), Self::Interrupted>;

    /// A time that never goes back.
    fn now(&self) -> Duration;

    /// Collection locks it holds. Who holds one never queues behind a waiting exclusive lock.
    fn locks_held(&self) -> &Arc<AtomicU32>;

    /// Whether it may keep what it takes while it does nothing, as a transaction does between its statements.
    fn holds_for_long(&self) -> bool {
        false
    }

    /// The number that it is known by.
    fn number(&self) -> u32;

    /// It begins to wait for a lock in that mode.
    fn begins_to_wait(&self, mode: LockMode) -> Self::Wait;

    /// It has waited for a while and waits on. Called again and again, and never with a mutex held.
    fn waits_on(&self);

    /// It has the lock, or gave up.
    fn ends_to_wait(&self);

    /// So long it waited for a document or a unique key, whatever came of it.
    fn waited_for_document(&self, time: Duration);
}
