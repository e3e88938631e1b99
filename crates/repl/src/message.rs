//! What members send each other.

use crate::ReplError;
use bytes::Bytes;
use engine::Seq;
use protobuf::Message as _;
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

    /// As bytes for the way.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>, ReplError> {
        let bytes = self.0.write_to_bytes();
        bytes.map_err(|error| ReplError::Message(error.to_string()))
    }

    /// From bytes that another member sent.
    ///
    /// # Errors
    /// They are no message.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReplError> {
        let message = eraftpb::Message::parse_from_bytes(bytes);
        message.map(Self).map_err(|error| ReplError::Message(error.to_string()))
    }

    /// The leader asks the receiver to stand for election at once.
    pub fn asks_to_stand(&self) -> bool {
        self.0.msg_type == eraftpb::MessageType::MsgTimeoutNow
    }

    /// Why it does, as its sender put it.
    pub fn reason(&self) -> Option<u8> {
        self.0.context.first().copied()
    }

    /// Has it say why it asks for that.
    pub fn set_reason(&mut self, reason: u8) {
        self.0.context = vec![reason].into();
    }

    /// It is one that only leaders send.
    pub fn is_of_leader(&self) -> bool {
        use eraftpb::MessageType::{MsgAppend, MsgHeartbeat, MsgSnapshot};
        matches!(self.0.msg_type, MsgAppend | MsgHeartbeat | MsgSnapshot)
    }

    /// How far the receiver's log has to reach for it to be taken; `None`: it is no part of the log.
    pub fn follows(&self) -> Option<Seq> {
        (self.0.msg_type == eraftpb::MessageType::MsgAppend).then_some(Seq(self.0.index))
    }

    /// How long its entries are, which are at least one byte each.
    pub fn entry_bytes(&self) -> usize {
        self.0.entries.iter().map(|entry| entry.data.len().max(1)).sum()
    }

    /// The entries whose contents are missing: the first place, and how many.
    pub fn unfilled(&self) -> Option<(Seq, usize)> {
        let first = self.0.entries.first().filter(|entry| entry.data.is_empty())?;
        Some((Seq(first.index), self.0.entries.len()))
    }

    /// Keeps the first entries only: the receiver asks for the others again.
    pub fn keep(&mut self, entries: usize) {
        self.0.entries.truncate(entries);
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
