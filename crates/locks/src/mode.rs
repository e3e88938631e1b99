//! The modes of locks.

/// How a collection is locked. MongoDB shows them as `r w R W`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Reading documents.
    IntentShared = 0,
    /// Writing documents.
    IntentExclusive = 1,
    /// Nobody may write.
    Shared = 2,
    /// Nobody else may use it.
    Exclusive = 3,
}
