//! What goes wrong.

use engine::Seq;
use thiserror::Error;

/// An error of a [`Member`](crate::Member). After one it must not be driven further.
#[derive(Debug, Error)]
pub enum ReplError {
    /// The configuration contradicts itself, or the log.
    #[error("a member of the replica set cannot start: {0}")]
    Start(String),
    /// The state machine refused, or entries could not be read.
    #[error("consensus failed: {0}")]
    Protocol(String),
    /// What arrived is no message, or a message cannot be sent.
    #[error("a message between members is malformed: {0}")]
    Message(String),
    /// The only voter stands for election while something that it wrote is not on disk.
    #[error("what was written is not on disk yet")]
    Unsynced,
    /// A leader's entry is not of its term.
    #[error("entry {seq:?} of the leader is of term {term}, not of {expected}")]
    WrongTerm {
        /// The entry.
        seq: Seq,
        /// Its term.
        term: u64,
        /// That of the leader.
        expected: u64,
    },
}

impl From<raft::Error> for ReplError {
    fn from(error: raft::Error) -> Self {
        Self::Protocol(error.to_string())
    }
}
