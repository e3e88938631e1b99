//! The audit log: who did what to users, roles, collections and the server itself, who was let in, and who was refused.
//!
//! An event has the fields of MongoDB's audit messages: `atype`, `ts`, `uuid`, `local`, `remote`, `users`, `roles`,
//! `param`, `result` (0, or the error's code). It is handed to the system before the client has its reply; a crash of
//! the process loses none, one of the machine may. An event that cannot be written is counted, and the server's log
//! tells of it.
//!
//! The file is written with the standard library, as the server's log is ([`crate::logger`]).

mod commands;

use crate::client::{Client, Peer};
use crate::error::CommandError;
use crate::logger::{Component, LogFile, Rotate};
use crate::metrics::Counter;
use crate::server::Server;
use auth::RoleName;
use bson::raw::RawDocument;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, RawDocumentBuf, doc};
use extjson::JsonForm;
use query::EvaluationContext;
use query::expression::ExpressionContext;
use query::matcher::Matcher;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::Operation;
use vfs::{Clock, Env};

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// Standard output, as lines of JSON.
    Console,
    /// A file, which is appended to.
    File {
        /// Its path.
        path: PathBuf,
        /// What [`Audit::rotate`] does.
        rotate: Rotate,
        /// How events are written.
        format: AuditFormat,
    },
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFormat {
    /// A line of relaxed Extended JSON each.
    Json,
    /// BSON documents, one behind the other.
    Bson,
}

/// What auditing is set up with (`auditLog`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Where events go.
    pub destination: AuditDestination,
    /// A query filter, as Extended JSON: events that it does not find are left out.
    pub filter: Option<String>,
}

enum Sink {
    Console,
    File(LogFile, AuditFormat),
}

/// The audit log of a server. Shared by all threads.
pub struct Audit {
    sink: Sink,
    filter: Option<Matcher>,
    clock: Arc<dyn Clock>,
    written: Counter,
    lost: Counter,
    /// The server's end is told once, of who has asked for it.
    has_end: AtomicBool,
}

impl Audit {
    /// Opens the log.
    ///
    /// # Errors
    /// A sentence: the filter is no query, or the file cannot be opened.
    pub fn open(options: &AuditOptions, env: &Env) -> Result<Self, String> {
        let filter = options.filter.as_deref().map(|text| {
            let parsing = ExpressionContext::new(env.clock.now_ms(), Arc::clone(&env.random));
            let parsed = extjson::parse(text).map_err(|error| error.to_string());
            parsed.and_then(|document| Matcher::parse(&document, &parsing).map_err(|error| error.to_string()))
        });
        let filter = filter
            .transpose()
            .map_err(|error| format!("auditLog.filter: {error}"))?;
        let sink = match &options.destination {
            AuditDestination::Console => Sink::Console,
            AuditDestination::File { path, rotate, format } => {
                let opened = LogFile::open(path, true, *rotate, env.clock.now_ms());
                let (file, _) =
                    opened.map_err(|error| format!("the audit log {} cannot be opened: {error}", path.display()))?;
                Sink::File(file, *format)
            }
        };
        Ok(Self {
            sink,
            filter,
            clock: Arc::clone(&env.clock),
            written: Counter::default(),
            lost: Counter::default(),
            has_end: AtomicBool::new(false),
        })
    }

    /// Events written, and events that could not be.
    pub(crate) fn counts(&self) -> (i64, i64) {
        (self.written.get(), self.lost.get())
    }

    /// Writes an event, unless the filter leaves it out.
    fn record(&self, event: Document) -> io::Result<()> {
        let document = RawDocumentBuf::try_from(&event).map_err(io::Error::other)?;
        if !self.is_wanted(&document) {
            return Ok(());
        }
        let written = match &self.sink {
            Sink::File(file, AuditFormat::Bson) => file.put(document.as_bytes()),
            Sink::File(file, AuditFormat::Json) => file.put(line(&document)?.as_bytes()),
            Sink::Console => io::stdout().lock().write_all(line(&document)?.as_bytes()),
        };
        match written {
            Ok(()) => self.written.add(1),
            Err(_) => self.lost.add(1),
        }
        written
    }

    fn is_wanted(&self, event: &RawDocument) -> bool {
        let Some(filter) = &self.filter else { return true };
        let operation = Operation::new(Arc::clone(&self.clock), 0);
        // What it cannot be asked about is kept.
        filter
            .matches(event, &EvaluationContext::new(&operation))
            .unwrap_or(true)
    }

    /// Begins a new file; the name of the former one, where it was renamed. Nothing happens without a file.
    pub fn rotate(&self) -> io::Result<Option<PathBuf>> {
        match &self.sink {
            Sink::Console => Ok(None),
            Sink::File(file, _) => file.rotate(self.clock.now_ms()),
        }
    }
}

fn line(event: &RawDocument) -> io::Result<String> {
    let mut line = String::with_capacity(512);
    extjson::write(event.as_bytes(), JsonForm::Relaxed, &mut line).map_err(io::Error::other)?;
    line.push('\n');
    Ok(line)
}

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
            "ts": DateTime::from_millis(audit.clock.now_ms()),
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
        if let Err(error) = audit.record(event.document(self, audit)) {
            let attributes = doc! { "atype": action, "error": error.to_string() };
            self.logger.error(
                Component::Access,
                8_410_060,
                "audit",
                "An event could not be written to the audit log",
                attributes,
            );
        }
    }

    /// The server ends, because a client has asked for it or for another reason.
    pub(crate) fn audit_end(&self, client: Option<&Client>) {
        let audit = self.settings.audit.as_ref();
        if audit.is_some_and(|audit| !audit.has_end.swap(true, Ordering::Relaxed)) {
            self.audit(|| match client {
                Some(client) => AuditEvent::of(client, "shutdown", doc! {}, 0),
                None => AuditEvent::own("shutdown", doc! {}),
            });
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
