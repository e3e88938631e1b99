//! `currentOp`, `killOp`.

use super::filter::Filter;
use crate::Client;
use crate::authorization::refused;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::lock_report::locks_document;
use crate::logger::utc_text;
use crate::metrics::OperationKind;
use crate::reply::{Reply, narrowed};
use crate::shown_command::shown_namespace;
use auth::{Action, Target};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use query::plan::QueryShape;
use std::sync::Arc;
use std::time::Duration;
use storage::SessionKey;

/// `currentOp`.
pub const CURRENT_OP: Command = Command::new(
    "currentOp",
    "Shows the operations that are running.",
    OperationKind::Command,
    Access::Fields(current_op_access),
    current,
)
.admin_only()
.secondary_ok();
/// `killOp`.
pub const KILL_OP: Command = Command::new(
    "killOp",
    "Interrupts a running operation.",
    OperationKind::Command,
    Access::User,
    kill,
)
.admin_only()
.secondary_ok();

/// Which operations to show.
#[derive(Clone, Copy)]
pub struct Shown {
    /// Connections that run nothing, too.
    pub idle_connections: bool,
    /// Open cursors that no operation uses, too.
    pub idle_cursors: bool,
    /// Transactions that wait for their next statement, too: they hold locks.
    pub idle_sessions: bool,
    /// Only what the caller's user runs.
    pub own_only: bool,
    /// Long commands as the beginning of their text.
    pub truncate: bool,
}

/// Bytes of a command that is shown whole where long ones are not, and of the text of one that is not.
const COMMAND_BYTES_MAX: usize = 1024;

impl Default for Shown {
    fn default() -> Self {
        Self {
            idle_connections: false,
            idle_cursors: false,
            idle_sessions: true,
            own_only: false,
            truncate: false,
        }
    }
}

/// The running operations as `currentOp` and `$currentOp` show them.
pub fn operations(call: &Invocation<'_>, shown: Shown) -> Vec<Document> {
    let mut operations = Vec::new();
    for client in call.server.connected() {
        if shown.own_only && !call.is_own_client(&client) {
            continue;
        }
        match client.with_current(|_, _| ()) {
            Some(()) => operations.extend(describe(call, &client, shown.truncate)),
            None if shown.idle_connections => {
                let mut idle = of_connection(call, &client);
                idle.insert("active", false);
                operations.push(idle);
            }
            None => {}
        }
    }
    if shown.idle_cursors {
        call.server.cursors.for_each_idle(|cursor| {
            if shown.own_only && !call.rights.is_own(cursor.owner()) {
                return;
            }
            operations.push(doc! {
                "type": "idleCursor",
                "host": host(call),
                "ns": &*cursor.namespace,
                "planSummary": &*cursor.plan_summary.text,
                "cursor": cursor.shown().to_document(),
            });
        });
    }
    if shown.idle_sessions {
        idle_sessions(call, shown.own_only, &mut operations);
    }
    operations
}

/// Transactions that wait for their next statement.
fn idle_sessions(call: &Invocation<'_>, own_only: bool, operations: &mut Vec<Document>) {
    let now = call.server.env.clock.monotonic();
    let micros = |time: Duration| time.as_micros() as i64;
    let user = call.rights.session_user();
    let clients = call.server.connected();
    call.server.sessions.for_each_inactive(|session, number, open| {
        if own_only && session.user != user {
            return;
        }
        let is_open = now.saturating_sub(open.began);
        let lifetime = open.expires.saturating_sub(open.began);
        let client = clients.iter().find(|client| client.id() == open.connection);
        let mut document = match client {
            Some(client) => of_connection(call, client),
            None => doc! { "host": host(call), "connectionId": open.connection as i32 },
        };
        document.extend(doc! {
            "type": "idleSession",
            "desc": "inactive transaction",
            "active": false,
            "lsid": shown_session(session),
            "transaction": {
                // Whatever it began with, it reads one snapshot.
                "parameters": { "txnNumber": number, "autocommit": false, "readConcern": { "level": "snapshot" } },
                "startWallClockTime": utc_text(open.began_ms),
                "timeOpenMicros": micros(is_open),
                "timeActiveMicros": micros(open.worked),
                "timeInactiveMicros": micros(is_open.saturating_sub(open.worked)),
                "expiryTime": utc_text(open.began_ms + lifetime.as_millis() as i64),
            },
            "waitingForLock": false,
        });
        operations.push(document);
    });
}

fn shown_session(session: &SessionKey) -> Document {
    let binary = |subtype, bytes: &[u8]| Binary {
        subtype,
        bytes: bytes.to_vec(),
    };
    doc! {
        "id": binary(BinarySubtype::Uuid, &session.id),
        "uid": binary(BinarySubtype::Generic, &session.user),
    }
}

fn host(call: &Invocation<'_>) -> String {
    format!("{}:{}", call.server.settings.host, call.server.settings.port)
}

fn of_connection(call: &Invocation<'_>, client: &Client) -> Document {
    let mut document = doc! {
        "type": "op",
        "host": host(call),
        "desc": format!("conn{}", client.id()),
        "connectionId": client.id() as i32,
        "client": client.peer().as_str(),
    };
    if let Some(name) = client.application_name() {
        document.insert("appName", name);
    }
    if let Some(metadata) = client
        .metadata()
        .and_then(|metadata| Document::try_from(&*metadata).ok())
    {
        document.insert("clientMetadata", metadata);
    }
    if let Some(user) = &client.authentication.lock().user {
        let user = doc! { "user": &user.user, "db": &user.database };
        document.insert("effectiveUsers", vec![Bson::Document(user)]);
    }
    document
}

fn describe(call: &Invocation<'_>, client: &Client, truncate: bool) -> Option<Document> {
    let mut document = of_connection(call, client);
    let now = call.server.env.clock.monotonic();
    let user = call.server.session_user_of(client);
    let fetching = client.with_current(|current, operation| {
        let running = now.saturating_sub(current.started);
        let known = call.server.commands.find(current.command).map(|(command, _)| command);
        let op = known.map_or("command", |command| command.kind.op(command.name));
        let bytes_max = if truncate { COMMAND_BYTES_MAX } else { usize::MAX };
        let whole = current.shown.whole();
        let shape = whole.and_then(|body| QueryShape::of(body, body.get_str("$db").ok()?));
        let fields = current.shown.fields();
        let kind = known.map(|command| command.kind);
        let waiting = operation.waiting_for_lock().is_some();
        document.extend(doc! {
            "active": true,
            "currentOpTime": utc_text(call.server.env.clock.now_ms()),
            "opid": operation.id as i32,
            "secs_running": running.as_secs() as i64,
            "microsecs_running": running.as_micros() as i64,
            "op": op,
            "ns": shown_namespace(&current.namespace, current.command, kind, &fields),
            "command": current.shown.to_document(bytes_max),
            "numYields": operation.counters().yields.get() as i32,
            "locks": locks_document(operation.counters()),
            "waitingForLock": waiting,
            "killPending": operation.kill_handle().get().is_some(),
        });
        if let Some(id) = current.session {
            document.insert("lsid", shown_session(&SessionKey { id, user }));
        }
        if let Some(number) = current.transaction {
            let parameters = doc! { "txnNumber": number, "autocommit": false };
            document.insert("transaction", doc! { "parameters": parameters });
        }
        if let Some((done, total)) = operation.build_progress() {
            let text = "Index Build: scanning collection";
            let percent = 100 * done / total;
            document.insert("msg", format!("{text} {text}: {done}/{total} {percent}%"));
            let [done, total] = [done, total].map(|number| narrowed(number as i64));
            document.insert("progress", doc! { "done": done, "total": total });
        }
        if !current.plan_summary.is_empty() {
            document.insert("planSummary", &current.plan_summary);
        }
        if let Some(shape) = shape {
            document.insert("queryShapeHash", shape.hash().to_string());
        }
        let cursor = fields.get_i64("getMore").ok();
        cursor.map(|cursor| (Arc::clone(operation), cursor))
    })?;
    if let Some((operation, id)) = fetching
        && let Some(cursor) = call.server.cursors.used_by(&operation, id)
    {
        let mut shown = cursor.to_document();
        shown.insert("operationUsingCursorId", i64::from(operation.id));
        document.insert("cursor", shown);
    }
    Some(document)
}

/// What `currentOp` needs: nothing for the caller's own operations.
fn current_op_access(call: &Invocation<'_>) -> Result<bool> {
    if call.may(Target::Cluster, Action::Inprog) {
        return Ok(true);
    }
    let mut own = false;
    for element in call.body {
        let (name, value) = element?;
        if name.as_str() == "$ownOps" {
            if value != RawBsonRef::Boolean(true) {
                return Ok(false);
            }
            own = true;
        }
    }
    Ok(own)
}

fn current(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut shown = Shown::default();
    let mut filter = RawDocumentBuf::new();
    call.for_each_field(|name, value| {
        match name {
            "$all" => shown.idle_connections = arguments.boolean(name, value)?,
            "$ownOps" => shown.own_only = arguments.boolean(name, value)?,
            _ => {
                let key = bson::raw::CString::try_from(name)?;
                filter.append(key, value);
            }
        }
        Ok(true)
    })?;
    let filter = Filter::parse(&filter, &call.expressions())?;
    let mut shown_operations = Vec::new();
    let evaluation = call.evaluation();
    for operation in operations(call, shown) {
        if filter.matches(&operation, &evaluation)? {
            shown_operations.push(Bson::Document(operation));
        }
    }
    reply.value("inprog", &Bson::Array(shown_operations));
    if call.server.fsync_lock.count() > 0 {
        reply.boolean("fsyncLock", true);
        reply.string(
            "info",
            "use db.fsyncUnlock() to terminate the fsync write/snapshot lock",
        );
    }
    Ok(())
}

fn kill(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut wanted = None;
    call.for_each_field(|name, value| {
        if name == "op" {
            wanted = match value {
                RawBsonRef::String(text) => text.parse().ok(),
                other => crate::arguments::number_as_i64(other),
            };
            if wanted.is_none() {
                return Err(CommandError::new(
                    wire::ErrorCode::TypeMismatch,
                    "Expected field \"op\" to have numeric type",
                ));
            }
        }
        Ok(name == "op")
    })?;
    let wanted =
        wanted.ok_or_else(|| CommandError::new(wire::ErrorCode::NoSuchKey, "Missing expected field \"op\""))?;
    let any = call.may(Target::Cluster, Action::Killop);
    let mut own = false;
    for client in call.server.connected() {
        let may = any || call.is_own_client(&client);
        client.with_current(|_, operation| {
            if may && i64::from(operation.id) == wanted {
                operation.kill();
                own = true;
            }
        });
    }
    if !any && !own {
        return Err(refused(call));
    }
    // As MongoDB: whether an operation of that number was running is not told.
    reply.string("info", "attempting to kill op");
    Ok(())
}
