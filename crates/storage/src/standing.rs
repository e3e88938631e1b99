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

/// Why a member stood for the election that it won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ElectionReason {
    /// It had not heard of a leader for long.
    Timeout = 0,
    /// It was asked to.
    StepUp = 1,
    /// The leader gave leadership up.
    Handover = 2,
    /// The leader's priority is lower.
    Priority = 3,
}

impl ElectionReason {
    /// The one with a number; of a leader that does not tell, that it was asked to.
    pub(crate) fn of_number(number: Option<u8>) -> Self {
        let all = [Self::Timeout, Self::Handover, Self::Priority];
        let told = all.into_iter().find(|reason| Some(*reason as u8) == number);
        told.unwrap_or(Self::StepUp)
    }
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
    /// Why it stood for election last.
    pub reason: ElectionReason,
    /// Of the others, while it leads.
    pub progress: Vec<MemberProgress>,
    /// Members, of those, whose next entry is not in the log any more, or cannot be sent as damage is right before it:
    /// they need a copy of the data.
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
            reason: ElectionReason::Timeout,
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
