//! `MONGODB-X509`: the certificate that a client has shown proves who it is. TLS has verified it; here its name becomes
//! that of a user of `$external`, or of a member of the cluster.

use super::attempt::Attempt;
use super::authenticate::{admit, failed};
use super::user_store;
use crate::authentication::Identity;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::server::Server;
use auth::{INTERNAL_DATABASE, INTERNAL_USER, SubjectName};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Document, doc};
use wire::ErrorCode;

pub use crate::attempt_metrics::X509;

/// The database of users who prove themselves by something that the server does not keep.
pub const EXTERNAL: &str = "$external";

/// The fields of `authenticate` beside the mechanism, also inside `hello`.
pub struct Request<'r> {
    database: &'r str,
    user: Option<&'r str>,
    is_speculative: bool,
}

impl<'r> Request<'r> {
    /// A request on `database` by who says it is `user`, or leaves that to the certificate.
    pub fn new(database: &'r str, user: Option<&'r str>) -> Self {
        Self {
            database,
            user,
            is_speculative: false,
        }
    }

    /// `speculativeAuthenticate` of `hello`; `None` when it is about another mechanism.
    pub fn speculative(request: &'r RawDocument) -> Option<Self> {
        let text = |name| match request.get(name) {
            Ok(Some(RawBsonRef::String(text))) => Some(text),
            _ => None,
        };
        request.get("authenticate").ok()??;
        (text("mechanism") == Some(X509)).then(|| Self {
            is_speculative: true,
            ..Self::new(text("db").unwrap_or(EXTERNAL), text("user"))
        })
    }
}

impl Server {
    /// Is this the name of another member's certificate?
    pub(crate) fn is_members_name(&self, name: &SubjectName) -> bool {
        let own = self.settings.tls.as_ref().and_then(|tls| tls.own_name());
        own.is_some_and(|own| name.is_of_cluster(&own))
    }

    /// Do members prove themselves by certificates?
    pub(crate) fn takes_members_certificates(&self) -> bool {
        let auth = self.settings.cluster_auth.as_ref();
        auth.is_some_and(|auth| auth.mode.takes_certificates())
    }
}

/// Logs the client in by its certificate, and answers what the reply tells.
///
/// # Errors
/// `AuthenticationFailed`, with a reason that tells nothing of users.
pub fn authenticate(call: &mut Invocation<'_>, request: &Request<'_>) -> Result<Document> {
    let refused = |reason: &str| CommandError::new(ErrorCode::AuthenticationFailed, reason);
    let verifies = call.server.settings.tls.as_ref().map(|tls| tls.verifies_clients());
    match verifies {
        None => return Err(refused("SSL support is required for the MONGODB-X509 mechanism.")),
        Some(false) => {
            return Err(refused(
                "no certificate is verified here: the server has no net.tls.CAFile",
            ));
        }
        Some(true) => {}
    }
    if request.database != EXTERNAL {
        return Err(CommandError::new(
            ErrorCode::ProtocolError,
            "X.509 authentication must always use the $external database.",
        ));
    }
    let Some(name) = call.client.certificate_name().filter(|name| !name.is_empty()).cloned() else {
        return Err(refused("No verified subject name available from client"));
    };
    let subject = name.to_string();
    let is_members = call.server.is_members_name(&name);
    let (database, user) = match is_members {
        true => (INTERNAL_DATABASE, INTERNAL_USER),
        false => (EXTERNAL, &*subject),
    };
    let attempt = Attempt::new(X509, database, user).speculative(request.is_speculative);
    attempt.begin(call);
    if request.user.is_some_and(|user| user != subject) {
        attempt.fail(call, "the certificate has another name than the client says");
        return Err(failed());
    }
    let claimed = match is_members {
        false => user_store::find_one(call, EXTERNAL, &subject)?
            .filter(user_store::is_external)
            .map(|document| user_store::identity(EXTERNAL, &subject, &document)),
        true if call.server.takes_members_certificates() => Some(Identity {
            user: INTERNAL_USER.to_owned(),
            database: INTERNAL_DATABASE.to_owned(),
            id: None,
        }),
        true => {
            attempt.fail(call, "the certificate is a member's, and clusterAuthMode takes none");
            return Err(refused(
                "the certificate is that of a member of the cluster (O, OU and DC are the server's own): it is no user's, and \
                 clusterAuthMode takes no certificates of members",
            ));
        }
    };
    admit(call, &attempt, claimed)?;
    Ok(doc! { "dbname": EXTERNAL, "user": subject })
}
