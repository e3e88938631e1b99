//! What members send each other.

use bytes::Bytes;
use engine::Seq;
use raft::eraftpb;

/// A message from one member to another. How it travels is the driver's business.
#[derive(Clone, Debug)]
pub struct Message(pub(crate) eraftpb::Message);

/// An entry that arrived from another leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log.
    pub seq: Seq,
    /// The term in which a leader appended it.
    pub term: u64,
    /// What it says; see [`Message::fill`].
    pub bytes: Bytes,
}

impl Message {
    /// The member that it is from.
    pub fn from(&self) -> u64 {
        self.0.from
    }

    /// The member that it is for.
    pub fn to(&self) -> u64 {
        self.0.to
    }

    /// Puts in what the entries say. To be done before it is sent, from the log: there the entries stay as they are
    /// while the sender leads, and an entry's place and term say which it is.
    pub fn fill(&mut self, mut bytes: impl FnMut(Seq) -> Bytes) {
        for entry in self.0.entries.iter_mut() {
            entry.data = bytes(Seq(entry.index));
        }
    }

    /// Whether it asks the receiver to append to its log: that is for leaders, whose log it is not.
    pub(crate) fn proposes(&self) -> bool {
        self.0.msg_type == eraftpb::MessageType::MsgPropose
    }
}

impl Entry {
    pub(crate) fn of(entry: eraftpb::Entry) -> Self {
        Self {
            seq: Seq(entry.index),
            term: entry.term,
            bytes: entry.data,
        }
    }
}
