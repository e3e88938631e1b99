//! What a driver does wrong on purpose, to see that the checks find it.

/// A fault of every member's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Followers answer for what is not on disk.
    AnswersBeforeSync,
    /// A leader counts itself for what is not on its disk.
    CountsItselfBeforeSync,
    /// A restart forgets whom the member voted for.
    ForgetsVotes,
    /// A restart forgets the term, but for that of the log.
    ForgetsTerms,
    /// Entries that another leader replaced stay.
    KeepsReplaced,
    /// What a leader appended and told nobody stays when it leads no more.
    KeepsUntold,
    /// A restart takes the whole log for committed.
    TakesLogForCommitted,
    /// A client is answered when the leader has its entry on disk.
    AcknowledgesAlone,
    /// A member whose disk was emptied comes back as the one it was.
    ComesBackEmpty,
    /// A change of members changes several votes at once.
    ChangesManyVotes,
    /// A leader changes members before an entry of its term is committed.
    ChangesBeforeItsTerm,
    /// A copy for a new member takes all that its source has for applied.
    CopiesUncommitted,
    /// Who stands for election asks the members of long ago: changes that it has applied are taken up when it leads.
    AsksFormerMembers,
}

impl Fault {
    pub const ALL: [Self; 13] = [
        Self::AnswersBeforeSync,
        Self::CountsItselfBeforeSync,
        Self::ForgetsVotes,
        Self::ForgetsTerms,
        Self::KeepsReplaced,
        Self::KeepsUntold,
        Self::TakesLogForCommitted,
        Self::AcknowledgesAlone,
        Self::ComesBackEmpty,
        Self::ChangesManyVotes,
        Self::ChangesBeforeItsTerm,
        Self::CopiesUncommitted,
        Self::AsksFormerMembers,
    ];
}
