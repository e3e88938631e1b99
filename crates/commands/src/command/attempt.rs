//! Attempts to prove to be a user: counted, logged, audited.

use crate::attempt_metrics::AttemptCounters;
use crate::audited::AuditEvent;
use crate::authentication::Identity;
use crate::client::Client;
use crate::counter::Counter;
use crate::invocation::Invocation;
use crate::logger::id;
use crate::server::Server;
use auth::{INTERNAL_DATABASE, INTERNAL_USER};
use bson::{Bson, doc};
use wire::ErrorCode;

/// Somebody tries to be a user.
pub struct Attempt<'a> {
    mechanism: &'static str,
    database: &'a str,
    user: &'a str,
    is_speculative: bool,
}

impl<'a> Attempt<'a> {
    /// By this mechanism, to be `user` of `database`.
    pub fn new(mechanism: &'static str, database: &'a str, user: &'a str) -> Self {
        Self {
            mechanism,
            database,
            user,
            is_speculative: false,
        }
    }

    /// Whether it began in `hello`.
    pub fn speculative(self, is_speculative: bool) -> Self {
        Self { is_speculative, ..self }
    }

    /// It begins.
    pub fn begin(&self, call: &Invocation<'_>) {
        self.count(call, |counters| &counters.received);
    }

    /// The client has proven to be the user.
    pub fn succeed(&self, call: &Invocation<'_>) {
        self.count(call, |counters| &counters.successful);
        self.tell(call, None);
    }

    /// It has not.
    pub fn fail(&self, call: &Invocation<'_>, reason: &str) {
        self.tell(call, Some(reason));
    }

    fn count(&self, call: &Invocation<'_>, which: fn(&AttemptCounters) -> &Counter) {
        let Some(counters) = call.server.metrics.attempts.of(self.mechanism) else {
            return;
        };
        which(&counters.all).add(1);
        which(&counters.speculative).add(u64::from(self.is_speculative));
        let is_member = self.user == INTERNAL_USER && self.database == INTERNAL_DATABASE;
        which(&counters.cluster).add(u64::from(is_member));
    }

    fn tell(&self, call: &Invocation<'_>, failure: Option<&str>) {
        call.server.audit(|| {
            let param = doc! { "user": self.user, "db": self.database, "mechanism": self.mechanism };
            let code = failure.map_or(0, |_| ErrorCode::AuthenticationFailed.0);
            AuditEvent::of(call.client, "authenticate", param, code)
        });
        let mut attributes = doc! {
            "client": call.client.peer().as_str(),
            "mechanism": self.mechanism,
            "user": self.user,
            "db": self.database,
        };
        let context = format!("conn{}", call.client.id());
        let (id, message) = match failure {
            None => (id::AUTHENTICATED, "Successfully authenticated"),
            Some(reason) => {
                attributes.insert("error", reason);
                (id::AUTHENTICATION_FAILED, "Failed to authenticate")
            }
        };
        call.server.logger.log(id, &context, message, attributes);
    }
}

impl Server {
    /// A client is nobody any more.
    pub(crate) fn audit_logout(&self, client: &Client, left: &Identity, reason: &str) {
        self.audit(|| {
            let users = vec![Bson::from(doc! { "user": &left.user, "db": &left.database })];
            let param = doc! { "reason": reason, "initialUsers": users, "updatedUsers": [] };
            AuditEvent::of(client, "logout", param, 0)
        });
    }
}
