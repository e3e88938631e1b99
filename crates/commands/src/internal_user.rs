//! `__system` of `local`, the user that other members of the cluster are. It may do everything, and no collection holds it:
//! neither users' commands nor a restored dump reach it.

use crate::server::Server;
use auth::{Credentials, INTERNAL_DATABASE, INTERNAL_USER, Mechanism};
use bson::{Document, doc};
use std::sync::OnceLock;

/// What keys are checked against, worked out when the first member comes.
#[derive(Default)]
pub struct InternalVerifiers {
    sha_1: OnceLock<Vec<Credentials>>,
    sha_256: OnceLock<Vec<Credentials>>,
}

impl Server {
    /// Is this the user that members are? There are none without `keyFile` or `clusterAuthMode`.
    pub(crate) fn is_internal_user(&self, database: &str, user: &str) -> bool {
        self.settings.cluster_auth.is_some() && database == INTERNAL_DATABASE && user == INTERNAL_USER
    }

    /// What proofs of the cluster's keys are checked against; `None` where no key is a proof. The salt is that of `pretended`,
    /// as if there were no such user.
    pub(crate) fn internal_verifiers(&self, mechanism: Mechanism, pretended: &Credentials) -> Option<&[Credentials]> {
        let keys = self.settings.cluster_auth.as_ref()?.accepted_keys()?;
        let slot = match mechanism {
            Mechanism::ScramSha1 => &self.access.internal.sha_1,
            Mechanism::ScramSha256 => &self.access.internal.sha_256,
        };
        Some(slot.get_or_init(|| keys.verifiers(mechanism, pretended.salt())))
    }
}

/// As if it were one of the users' documents.
pub fn document() -> Document {
    doc! {
        "user": INTERNAL_USER, "db": INTERNAL_DATABASE, "roles": [{ "role": "__system", "db": "admin" }],
    }
}
