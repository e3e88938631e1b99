//! What a member of a replica set knows of itself and of the others.

use engine::Seq;
use repl::Role;

/// How far another member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberProgress {
    /// Whose number in consensus.
    pub id: u64,
    /// Its log agrees with the leader's up to here, on its disk.
    pub durable: Seq,
    /// Its readers see entries up to here.
    pub applied: Seq,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Standing {
    /// This member's number in consensus.
    pub id: u64,
    /// What it is.
    pub role: Role,
    /// It leads, and what the leaders before it left is applied.
    pub is_writable: bool,
    /// It shows all that it may have shown before it was started.
    pub is_caught_up: bool,
    /// The newest term it has seen.
    pub term: u64,
    /// The leader that it knows of.
    pub leader: Option<u64>,
    /// Of the others, while it leads.
    pub progress: Vec<MemberProgress>,
    /// Members, of those, whose next entry is not in the log any more: they need a copy of the data.
    pub left_behind: Vec<u64>,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            id: 0,
            role: Role::Follower,
            is_writable: false,
            is_caught_up: false,
            term: 0,
            leader: None,
            progress: Vec::new(),
            left_behind: Vec::new(),
        }
    }
}

impl Standing {
    /// Whether others are to hear of the difference.
    pub(crate) fn differs(&self, other: &Self) -> bool {
        (self.role, self.is_writable, self.is_caught_up, self.term, self.leader)
            != (
                other.role,
                other.is_writable,
                other.is_caught_up,
                other.term,
                other.leader,
            )
    }
}
