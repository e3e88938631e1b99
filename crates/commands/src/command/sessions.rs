//! Logical sessions. A standalone server keeps nothing per session but the cursors opened under it.

use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::cursors::SessionId;
use crate::definition::Command;
use crate::error::Result;
use crate::invocation::{Invocation, session_id};
use crate::metrics::OperationKind;
use crate::reply::Reply;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Binary, doc};

/// `startSession`.
pub const START_SESSION: Command = Command::new(
    "startSession",
    "Makes a new logical session.",
    OperationKind::Command,
    start,
)
.secondary_ok();
/// `endSessions`.
pub const END_SESSIONS: Command = Command::new(
    "endSessions",
    "Ends logical sessions and their cursors.",
    OperationKind::Command,
    end,
)
.without_auth()
.secondary_ok()
.api_version_1();
/// `killSessions`.
pub const KILL_SESSIONS: Command = Command::new(
    "killSessions",
    "Kills sessions and their cursors.",
    OperationKind::Command,
    kill_sessions,
)
.secondary_ok();
/// `killAllSessions`.
pub const KILL_ALL_SESSIONS: Command = Command::new(
    "killAllSessions",
    "Kills all sessions and their cursors.",
    OperationKind::Command,
    kill_all,
)
.secondary_ok();
/// `refreshSessions`.
pub const REFRESH_SESSIONS: Command = Command::new(
    "refreshSessions",
    "Notes that sessions are in use.",
    OperationKind::Command,
    refresh,
)
.secondary_ok()
.api_version_1();

/// Sessions end after this long without use; what `startSession` answers.
const TIMEOUT_MINUTES: i32 = 30;

fn start(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let mut bytes = [0; 16];
    call.server.env.random.fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0F) | 0x40;
    bytes[8] = (bytes[8] & 0x3F) | 0x80;
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: bytes.to_vec(),
    };
    reply.append_all(&doc! { "id": { "id": id }, "timeoutMinutes": TIMEOUT_MINUTES });
    Ok(())
}

/// The sessions that a command names; none of them means all.
#[derive(Clone, Copy)]
enum Sessions<'s> {
    All,
    These(&'s [SessionId]),
}

/// The documents of the array that is the command's first field.
fn documents<'i>(call: &Invocation<'i>) -> Result<Vec<&'i RawDocument>> {
    let name = call.command.name;
    let target = call.target()?;
    let RawBsonRef::Array(array) = target else {
        return Err(wrong_type(name, name, target, "type 'array'"));
    };
    let mut documents = Vec::new();
    for (index, element) in array.into_iter().enumerate() {
        match element? {
            RawBsonRef::Document(document) => documents.push(document),
            other => return Err(wrong_type(name, &format!("{name}.{index}"), other, "type 'object'")),
        }
    }
    Ok(documents)
}

fn listed(call: &Invocation<'_>) -> Result<Vec<SessionId>> {
    call.for_each_field(|_, _| Ok(false))?;
    documents(call)?.into_iter().map(session_id).collect()
}

/// Ends what runs in sessions, but for the call itself, and the cursors opened in them.
fn kill(call: &Invocation<'_>, sessions: Sessions<'_>) {
    let is_meant = |session: &SessionId| match sessions {
        Sessions::All => true,
        Sessions::These(these) => these.contains(session),
    };
    for client in call.server.connected() {
        client.with_current(|current, operation| {
            if operation.id != call.operation.id && current.session.as_ref().is_some_and(is_meant) {
                operation.kill();
            }
        });
    }
    call.server
        .sessions
        .kill(|session| is_meant(&session.id), Some(call.operation.id));
    call.server.cursors.kill_of_sessions(is_meant);
}

fn end(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let sessions = listed(call)?;
    call.server
        .sessions
        .kill(|session| sessions.contains(&session.id), Some(call.operation.id));
    call.server
        .cursors
        .kill_of_sessions(|session| sessions.contains(session));
    Ok(())
}

fn kill_sessions(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let sessions = listed(call)?;
    kill(
        call,
        match sessions.as_slice() {
            [] => Sessions::All,
            these => Sessions::These(these),
        },
    );
    Ok(())
}

/// `[]` means every session; `[{user, db}]` those of users, of whom there are none without access control.
fn kill_all(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let patterns = documents(call)?;
    let arguments = Arguments::of("killAllSessions");
    for pattern in &patterns {
        let (mut user, mut db) = (None, None);
        arguments.each(pattern, |name, value| {
            match name {
                "user" => user = Some(arguments.string(name, value)?),
                "db" => db = Some(arguments.string(name, value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        user.ok_or_else(|| missing_field("killAllSessions", "user"))?;
        db.ok_or_else(|| missing_field("killAllSessions", "db"))?;
    }
    let sessions = if patterns.is_empty() {
        Sessions::All
    } else {
        Sessions::These(&[])
    };
    kill(call, sessions);
    Ok(())
}

/// A session has no state here that ages, so that checking the list is all there is to do.
fn refresh(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    listed(call).map(drop)
}
