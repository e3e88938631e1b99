//! Whose a session is, and what a write keeps for it.

/// A logical session, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The session's UUID.
    pub id: [u8; 16],
    /// SHA-256 of its user's name.
    pub user: [u8; 32],
}

/// What of a statement's change a retry has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// That there was one.
    Nothing = 0,
    /// Whether it was an upsert, and of which `_id`.
    Key = 1,
    /// As `Key`, and the document as it was before.
    Before = 2,
    /// As `Key`, and the document as it is.
    After = 3,
}

impl Kept {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Nothing, Self::Key, Self::Before, Self::After]
            .into_iter()
            .find(|kept| *kept as u8 == byte)
    }
}
