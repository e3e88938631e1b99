//! What a member of a replica set says it is.

use bson::Document;

/// What a member says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows and answers reads.
    Secondary,
    /// Anything else; one that does not answer, too.
    Neither,
}

impl Role {
    /// The role in a reply to `hello`.
    pub fn of(hello: &Document) -> Self {
        let is = |name: &str| hello.get_bool(name).unwrap_or(false);
        match (is("isWritablePrimary"), is("secondary")) {
            (true, _) => Role::Primary,
            (_, true) => Role::Secondary,
            _ => Role::Neither,
        }
    }
}
