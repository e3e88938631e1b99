//! Locks: intent locks of collections and the table of document and unique-key locks.
//!
//! They know nothing of the catalog or of what they protect. The order in which they may be taken is `docs/locks.md`.

mod collection;
mod stats;
mod table;

pub use collection::LockMode;
pub(crate) use collection::{CollectionLock, Held};
pub(crate) use stats::LockCounts;
pub use stats::{LevelStats, LockStats, ModeStats};
pub(crate) use table::{Changed, LockKey, LockTable, Taken, key_hash};
