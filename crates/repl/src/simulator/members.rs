//! Who the members are, as an entry of the log says it: what the configuration is to a server.

use bytes::Bytes;
use std::fmt::Write;

/// The members from an entry on, once that is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    pub voters: Vec<u64>,
    pub learners: Vec<u64>,
}

const PREFIX: &str = "members ";

impl Members {
    pub fn encode(&self) -> Bytes {
        let mut text = PREFIX.to_owned();
        for id in &self.voters {
            let _ = write!(text, "{id}v ");
        }
        for id in &self.learners {
            let _ = write!(text, "{id}l ");
        }
        Bytes::from(text)
    }

    /// `None` for an entry that says something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_prefix(PREFIX)?;
        let mut members = Self::default();
        for word in text.split_whitespace() {
            let (id, votes) = word.split_at(word.len() - 1);
            let id = id.parse().ok()?;
            match votes {
                "v" => members.voters.push(id),
                _ => members.learners.push(id),
            }
        }
        Some(members)
    }

    pub fn has(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.learners.contains(&id)
    }

    /// Without a member.
    pub fn without(&self, id: u64) -> Self {
        let others = |of: &[u64]| of.iter().copied().filter(|other| *other != id).collect();
        Self {
            voters: others(&self.voters),
            learners: others(&self.learners),
        }
    }

    /// A member votes from now on, or does not.
    pub fn with(&self, id: u64, votes: bool) -> Self {
        let mut members = self.without(id);
        match votes {
            true => members.voters.push(id),
            false => members.learners.push(id),
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_back() {
        let members = Members::default().with(1, true).with(20, true).with(3, false);
        assert_eq!(Members::decode(&members.encode()), Some(members.clone()));
        assert_eq!(Members::decode(b"12"), None);
        let demoted = members.with(20, false);
        assert_eq!((demoted.voters, demoted.learners), (vec![1], vec![3, 20]));
        assert!(members.has(3) && !members.without(3).has(3));
    }
}
