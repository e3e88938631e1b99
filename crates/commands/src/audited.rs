//! What is audited: an event with who did it, and which calls of commands are events.

mod commands;

use crate::audit::Audit;
use crate::client::{Client, Peer};
use crate::error::CommandError;
use crate::logger::id;
use crate::server::Server;
use auth::RoleName;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use std::io;

/// Who did something, what it was, and how it ended.
pub(crate) struct AuditEvent<'e> {
    client: Option<&'e Client>,
    action: &'static str,
    param: Document,
    result: i32,
}

impl<'e> AuditEvent<'e> {
    /// Of a client; `result` is 0 or an error's code.
    pub fn of(client: &'e Client, action: &'static str, param: Document, result: i32) -> Self {
        Self {
            client: Some(client),
            action,
            param,
            result,
        }
    }

    /// Of the server itself.
    pub fn own(action: &'static str, param: Document) -> Self {
        Self {
            client: None,
            action,
            param,
            result: 0,
        }
    }

    fn document(self, server: &Server, audit: &Audit) -> Document {
        let uuid = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: server.storage.new_uuid().to_vec(),
        };
        let (local, remote) = ends(self.client.map(Client::peer), server.settings.port);
        let (users, roles) = self.client.map(identity).unwrap_or_default();
        doc! {
            "atype": self.action,
            "ts": audit.now(),
            "uuid": uuid,
            "local": local,
            "remote": remote,
            "users": users,
            "roles": roles,
            "param": self.param,
            "result": self.result,
        }
    }
}

/// Both ends of the connection.
fn ends(peer: Option<&Peer>, port: u16) -> (Document, Document) {
    let system = || doc! { "isSystemUser": true };
    match peer {
        None => (system(), system()),
        Some(Peer::Unix(path)) => (doc! { "unix": path }, doc! { "unix": "anonymous" }),
        Some(Peer::Tcp(address, own)) => {
            let remote = match address.rsplit_once(':') {
                Some((host, port)) => {
                    let host = host.trim_start_matches('[').trim_end_matches(']');
                    doc! { "ip": host, "port": port.parse::<i32>().unwrap_or(0) }
                }
                None => doc! { "ip": address },
            };
            let own = own.map_or_else(String::new, |own| own.to_string());
            (doc! { "ip": own, "port": i32::from(port) }, remote)
        }
    }
}

/// Whom the client has proven to be, and the roles it holds by that.
fn identity(client: &Client) -> (Vec<Bson>, Vec<Bson>) {
    let state = client.authentication.lock();
    let user = state.user.iter();
    let users = user.map(|user| Bson::from(doc! { "user": &user.user, "db": &user.database }));
    let roles = state.grant.iter().flat_map(|grant| &grant.roles);
    let role = |role: &RoleName| Bson::from(doc! { "role": &role.role, "db": &role.database });
    (users.collect(), roles.map(role).collect())
}

impl Server {
    /// Writes an event, when there is an audit log.
    pub(crate) fn audit<'e>(&self, event: impl FnOnce() -> AuditEvent<'e>) {
        let Some(audit) = &self.settings.audit else { return };
        let event = event();
        let action = event.action;
        if let Err(error) = audit.record(&event.document(self, audit)) {
            let attributes = doc! { "atype": action, "error": error.to_string() };
            self.logger.log(
                id::EVENT_NOT_AUDITED,
                "audit",
                "An event could not be written to the audit log",
                attributes,
            );
        }
    }

    /// The server ends, because a client has asked for it or for another reason. Without a client, to be told when all
    /// connections have ended: it is the last event then.
    pub fn audit_end(&self, client: Option<&Client>) {
        let audit = self.settings.audit.as_ref();
        if audit.is_some_and(|audit| audit.begin_end()) {
            self.audit(|| match client {
                Some(client) => AuditEvent::of(client, "shutdown", doc! {}, 0),
                None => AuditEvent::own("shutdown", doc! {}),
            });
        }
        if let Some(audit) = audit.filter(|_| client.is_none()) {
            audit.flush();
        }
    }

    /// Begins a new audit file, which starts with how that went.
    ///
    /// # Errors
    /// The file could not be renamed or opened; the former one stays in use.
    pub fn rotate_audit(&self) -> io::Result<()> {
        let Some(audit) = &self.settings.audit else {
            return Ok(());
        };
        let former = audit.rotate()?;
        let path = former.map_or_else(String::new, |path| path.display().to_string());
        let status = doc! { "status": "OK", "rotatedLogPath": path, "errors": [] };
        let pid = i64::from(std::process::id());
        self.audit(|| AuditEvent::own("rotateLog", doc! { "pid": pid, "logRotationStatus": status }));
        Ok(())
    }
}

/// The code of how a call ended.
pub(crate) fn result_code(result: &crate::error::Result<()>) -> i32 {
    result.as_ref().err().map_or(0, |error: &CommandError| error.code.0)
}
