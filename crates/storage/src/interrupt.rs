//! Why operations end before they are done, and the flag that tells them to.

use std::sync::atomic::{AtomicU8, Ordering};

/// Why an operation has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// `killOp`, or the client is gone (11601).
    #[error("operation was interrupted")]
    Killed,
    /// The server stops (11600).
    #[error("interrupted at shutdown")]
    Shutdown,
    /// The cursor it works for was killed (237).
    #[error("the cursor was killed")]
    CursorKilled,
    /// `maxTimeMS` has passed (50).
    #[error("operation exceeded time limit")]
    TimeExpired,
    /// A transaction's operation waits only briefly for a collection (24).
    #[error("Unable to acquire the collection's lock within {0} ms")]
    LockTimeout(u32),
    /// The server is no longer the primary (11602).
    #[error("operation was interrupted because the server's role changed")]
    RoleChanged,
    /// The transaction that it works in has lasted too long (290).
    #[error("operation was interrupted because its transaction exceeded transactionLifetimeLimitSeconds")]
    TransactionExpired,
}

/// Tells an operation to end. Shared between the operation and those who may kill it.
#[derive(Debug, Default)]
pub struct KillFlag(AtomicU8);

impl KillFlag {
    /// Ends the operation for this reason; the first reason given stays.
    pub fn set(&self, reason: Interrupted) {
        let code = match reason {
            Interrupted::Killed => 1,
            Interrupted::Shutdown => 2,
            Interrupted::CursorKilled => 3,
            Interrupted::TimeExpired => 4,
            Interrupted::RoleChanged => 5,
            Interrupted::TransactionExpired => 6,
            Interrupted::LockTimeout(_) => unreachable!("nobody else times a lock out"),
        };
        let _ = self.0.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The reason given, if any.
    pub fn get(&self) -> Option<Interrupted> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Interrupted::Killed),
            2 => Some(Interrupted::Shutdown),
            3 => Some(Interrupted::CursorKilled),
            5 => Some(Interrupted::RoleChanged),
            6 => Some(Interrupted::TransactionExpired),
            _ => Some(Interrupted::TimeExpired),
        }
    }
}
