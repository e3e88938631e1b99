//! Logical sessions. A standalone server keeps nothing per session but the cursors opened under it.

use crate::arguments::wrong_type;
use crate::cursors::SessionId;
use crate::definition::Command;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use bson::raw::RawBsonRef;
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
    end,
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

fn listed(call: &Invocation<'_>) -> Result<Vec<SessionId>> {
    let target = call.target()?;
    let RawBsonRef::Array(sessions) = target else {
        return Err(wrong_type(call.command.name, call.command.name, target, "type 'array'"));
    };
    sessions
        .into_iter()
        .map(|session| match session? {
            RawBsonRef::Document(document) => match document.get("id")? {
                Some(RawBsonRef::Binary(id)) if id.bytes.len() == 16 => {
                    let mut session = [0; 16];
                    session.copy_from_slice(id.bytes);
                    Ok(session)
                }
                _ => Err(CommandError::bad_value("a session's 'id' must be a UUID")),
            },
            other => Err(wrong_type(call.command.name, call.command.name, other, "type 'object'")),
        })
        .collect()
}

fn end(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    for session in listed(call)? {
        call.server.cursors.kill_session(&session);
    }
    Ok(())
}

fn kill_all(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    if !matches!(call.target()?, RawBsonRef::Array(_)) {
        return Err(wrong_type(
            call.command.name,
            call.command.name,
            call.target()?,
            "type 'array'",
        ));
    }
    call.server.cursors.kill_all_of_sessions();
    Ok(())
}

/// A session has no state here that ages, so that checking the list is all there is to do.
fn refresh(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    listed(call).map(drop)
}
