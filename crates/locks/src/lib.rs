//! Locks: intent locks of collections and the table of document and unique-key locks.
//!
//! They know nothing of the catalog, of operations, or of what they protect: who waits is a [`Waiter`]. The order in
//! which they may be taken is `docs/locks.md`. With the feature `shuttle` locks and threads are the schedule checker's,
//! see `tests/schedules.rs`.

mod collection;
mod mode;
mod stats;
mod table;
#[cfg(all(test, not(feature = "shuttle")))]
mod test_waiter;
mod waiter;

pub use collection::{Claims, CollectionLock, CollectionLockState, Held};
pub use mode::LockMode;
pub use stats::{LevelStats, LockCounts, LockStats, ModeStats};
pub use table::{Changed, LockKey, LockTable, Taken, key_hash};
pub use waiter::Waiter;
