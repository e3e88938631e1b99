//! `__system` of `local`, the user that other members of the cluster are. It may do everything, and no collection holds
//! it: neither users' commands nor a restored dump reach it.

use auth::{ClusterAuth, ClusterKeys, Credentials, INTERNAL_DATABASE, INTERNAL_USER, Mechanism};
use bson::{Document, doc};
use std::sync::OnceLock;

/// What keys are checked against, worked out when the first member comes.
#[derive(Default)]
pub struct InternalVerifiers {
    sha_1: OnceLock<Vec<Credentials>>,
    sha_256: OnceLock<Vec<Credentials>>,
}

impl InternalVerifiers {
    /// What proofs of the keys are checked against; `None` where no key is a proof. The salt is that of `pretended`, as
    /// if there were no such user.
    pub fn get(&self, auth: &ClusterAuth, mechanism: Mechanism, pretended: &Credentials) -> Option<&[Credentials]> {
        let keys = auth.accepted_keys()?;
        let slot = match mechanism {
            Mechanism::ScramSha1 => &self.sha_1,
            Mechanism::ScramSha256 => &self.sha_256,
        };
        Some(slot.get_or_init(|| keys.verifiers(mechanism, pretended.salt())))
    }
}

/// Is this the user that members are, where there are any?
pub fn is_internal(auth: Option<&ClusterAuth>, database: &str, user: &str) -> bool {
    auth.is_some() && database == INTERNAL_DATABASE && user == INTERNAL_USER
}

/// May somebody come to be a member by guessing? Where nobody can, whoever tries must hold up no member that comes from
/// the same address.
pub fn is_guessable(auth: &ClusterAuth) -> bool {
    auth.accepted_keys().is_some_and(ClusterKeys::are_guessable)
}

/// As if it were one of the users' documents.
pub fn document() -> Document {
    doc! {
        "user": INTERNAL_USER, "db": INTERNAL_DATABASE, "roles": [{ "role": "__system", "db": "admin" }],
    }
}
