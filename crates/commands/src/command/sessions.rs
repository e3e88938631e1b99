//! Logical sessions: the commands that begin, use and end them, and what is shown of them.

use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::authentication::Identity;
use crate::cursors::SessionId;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::generic::session_id;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::{Rights, session_user};
use crate::session_cache::SessionUse;
use auth::{Action, Target};
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Document, doc};
use std::collections::HashSet;
use storage::{Interrupted, SessionKey};
use wire::ErrorCode;

/// `startSession`.
pub const START_SESSION: Command = Command::new(
    "startSession",
    "Makes a new logical session.",
    OperationKind::Command,
    Access::User,
    start,
)
.secondary_ok();
/// `endSessions`.
pub const END_SESSIONS: Command = Command::new(
    "endSessions",
    "Ends logical sessions and their cursors.",
    OperationKind::Command,
    Access::Open,
    end,
)
.secondary_ok()
.api_version_1();
/// `killSessions`.
pub const KILL_SESSIONS: Command = Command::new(
    "killSessions",
    "Kills sessions and their cursors.",
    OperationKind::Command,
    Access::User,
    kill_sessions,
)
.secondary_ok();
/// `killAllSessions`.
pub const KILL_ALL_SESSIONS: Command = Command::new(
    "killAllSessions",
    "Kills all sessions and their cursors.",
    OperationKind::Command,
    Access::cluster(&[Action::KillAnySession]),
    kill_all,
)
.secondary_ok();
/// `killAllSessionsByPattern`.
pub const KILL_ALL_SESSIONS_BY_PATTERN: Command = Command::new(
    "killAllSessionsByPattern",
    "Kills the sessions that fit patterns, and their cursors.",
    OperationKind::Command,
    Access::cluster(&[Action::KillAnySession]),
    kill_by_pattern,
)
.secondary_ok();
/// `refreshSessions`.
pub const REFRESH_SESSIONS: Command = Command::new(
    "refreshSessions",
    "Notes that sessions are in use.",
    OperationKind::Command,
    Access::User,
    refresh,
)
.secondary_ok()
.api_version_1();

/// Sessions end after this long without use; what `startSession` answers.
const TIMEOUT_MINUTES: i32 = 30;

/// As in MongoDB it takes any field.
fn start(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut bytes = [0; 16];
    call.server.env.random.fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0F) | 0x40;
    bytes[8] = (bytes[8] & 0x3F) | 0x80;
    touch(call, bytes)?;
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: bytes.to_vec(),
    };
    reply.append_all(&doc! { "id": { "id": id }, "timeoutMinutes": TIMEOUT_MINUTES });
    Ok(())
}

fn touch(call: &Invocation<'_>, id: SessionId) -> Result<()> {
    let user = call.rights.session_user();
    let clock = &call.server.env.clock;
    let now = (clock.monotonic(), clock.now_ms());
    call.server
        .session_cache
        .touch(SessionKey { id, user }, &call.rights, now)
}

/// The documents of the array that is the command's first field. Nulls are passed over.
fn documents<'i>(call: &Invocation<'i>) -> Result<Vec<&'i RawDocument>> {
    let name = call.command.name;
    let target = call.required_target()?;
    let RawBsonRef::Array(array) = target else {
        return Err(wrong_type(name, name, target, "type 'array'"));
    };
    let mut documents = Vec::new();
    for (index, element) in array.into_iter().enumerate() {
        match element? {
            RawBsonRef::Document(document) => documents.push(document),
            RawBsonRef::Null | RawBsonRef::Undefined => {}
            other => return Err(wrong_type(name, &format!("{name}.{index}"), other, "type 'object'")),
        }
    }
    Ok(documents)
}

/// Each once. There may be as many as a message holds, and as many sessions: they are looked up, not compared.
fn listed(call: &Invocation<'_>) -> Result<HashSet<SessionId>> {
    documents(call)?.into_iter().map(session_id).collect()
}

/// Ends what runs in the sessions that are meant, but for the call itself, and the cursors opened in them. Sessions are
/// their users': the same number of another user is another session.
fn kill(call: &Invocation<'_>, is_meant: &dyn Fn(SessionKey) -> bool) {
    let is_meant_of = |id: &SessionId, owner: Option<&Identity>| {
        is_meant(SessionKey {
            id: *id,
            user: session_user(owner),
        })
    };
    for client in call.server.connected() {
        let user = call.server.session_user_of(&client);
        client.with_current(|current, operation| {
            let is_own = operation.id == call.operation.id;
            if !is_own && current.session.is_some_and(|id| is_meant(SessionKey { id, user })) {
                operation.kill();
            }
        });
    }
    call.server.sessions.kill(
        |session| is_meant(*session),
        Some(call.operation.id),
        Interrupted::Killed,
    );
    call.server.cursors.kill_of_sessions(is_meant_of);
}

fn end(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let sessions = listed(call)?;
    // Whoever has not proven to be anybody has no sessions.
    if matches!(call.rights, Rights::Nobody | Rights::First) {
        return Ok(());
    }
    call.server
        .cursors
        .kill_of_sessions(|session, owner| call.rights.is_own(owner) && sessions.contains(session));
    let user = call.rights.session_user();
    for id in sessions {
        let key = SessionKey { id, user };
        let own = Some(call.operation.id);
        call.server.sessions.kill_one(&key, own, Interrupted::Killed);
        call.server.session_cache.remove(&key);
    }
    Ok(())
}

/// `[]` means all of the caller's own. As in MongoDB it takes any field.
fn kill_sessions(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let sessions = listed(call)?;
    let own = call.rights.session_user();
    let kills_any = call.may(Target::Cluster, Action::KillAnySession);
    kill(call, &|key| match sessions.is_empty() {
        true => key.user == own,
        false => (kills_any || key.user == own) && sessions.contains(&key.id),
    });
    Ok(())
}

/// `[]` means every session; `[{user, db}]` those of users.
fn kill_all(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let owners = documents(call)?
        .into_iter()
        .map(|user| owner(call.command.name, user))
        .collect::<Result<HashSet<_>>>()?;
    kill(call, &|key| owners.is_empty() || owners.contains(&key.user));
    Ok(())
}

/// `[]` means every session, else those that one of the patterns means. As in MongoDB it takes any field.
fn kill_by_pattern(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let patterns = documents(call)?
        .into_iter()
        .map(Pattern::read)
        .collect::<Result<Vec<_>>>()?;
    kill(call, &|key| {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.means(key))
    });
    Ok(())
}

/// A pattern of `killAllSessionsByPattern`: a session has to fit all that is given.
#[derive(Default)]
struct Pattern {
    /// `lsid.id`.
    id: Option<SessionId>,
    /// `lsid.uid`: whose session that is.
    owner: Option<[u8; 32]>,
    /// `uid`.
    user: Option<[u8; 32]>,
    users: Option<HashSet<[u8; 32]>>,
}

impl Pattern {
    fn read(document: &RawDocument) -> Result<Self> {
        let within = "killAllSessionsByPattern";
        let arguments = Arguments::of(within);
        let mut pattern = Self::default();
        arguments.each(document, |name, value| {
            match name {
                "lsid" => {
                    let lsid = arguments.document(name, value)?;
                    pattern.id = Some(session_id(lsid)?);
                    pattern.owner = lsid.get("uid")?.map(|uid| digest("lsid.uid", uid)).transpose()?;
                }
                "uid" => pattern.user = Some(digest(name, value)?),
                "users" => pattern.users = Some(owners(within, arguments.array(name, value)?)?),
                "roles" => return Err(CommandError::not_implemented(format!("{within}.roles"))),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(pattern)
    }

    fn means(&self, key: SessionKey) -> bool {
        self.id.is_none_or(|id| id == key.id)
            && self.owner.is_none_or(|owner| owner == key.user)
            && self.user.is_none_or(|user| user == key.user)
            && self.users.as_ref().is_none_or(|users| users.contains(&key.user))
    }
}

/// What tells a user's sessions from those of others, as clients write it.
fn digest(field: &str, value: RawBsonRef<'_>) -> Result<[u8; 32]> {
    let RawBsonRef::Binary(binary) = value else {
        return Err(wrong_type("killAllSessionsByPattern", field, value, "type 'binData'"));
    };
    binary
        .bytes
        .try_into()
        .map_err(|_| CommandError::bad_value(format!("{field} is a digest of 32 bytes")))
}

fn refresh(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    listed(call)?.into_iter().try_for_each(|id| touch(call, id))
}

/// The documents of `$listSessions` and `$listLocalSessions`: the caller's sessions, everybody's, or some users'.
pub fn list(call: &Invocation<'_>, stage: &str, options: &RawDocument) -> Result<Vec<Document>> {
    let arguments = Arguments::of(stage);
    let (mut all, mut users) = (matches!(call.rights, Rights::Unchecked), None);
    arguments.each(options, |name, value| {
        match name {
            "allUsers" => all |= arguments.flag(name, value)?,
            "users" => {
                let RawBsonRef::Array(array) = value else {
                    return Err(wrong_type(stage, name, value, "type 'array'"));
                };
                users = Some(owners(stage, array)?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // An empty list is as none.
    let users = users.filter(|users: &HashSet<_>| !users.is_empty());
    if users.is_some() && options.get("allUsers")?.and_then(|all| all.as_bool()) == Some(true) {
        return Err(CommandError::new(
            ErrorCode::UnsupportedFormat,
            format!("{stage} may not specify {{allUsers:true}} and {{users:[...]}} at the same time"),
        ));
    }
    let own = call.rights.session_user();
    let is_meant = |key: &SessionKey| match &users {
        Some(users) => users.contains(&key.user),
        None => all || key.user == own,
    };
    let binary = |subtype, bytes: &[u8]| Binary {
        subtype,
        bytes: bytes.to_vec(),
    };
    let document = |(key, used): (SessionKey, SessionUse)| {
        let (id, uid) = (
            binary(BinarySubtype::Uuid, &key.id),
            binary(BinarySubtype::Generic, &key.user),
        );
        let mut document = doc! { "_id": { "id": id, "uid": uid }, "lastUse": DateTime::from_millis(used.last_ms) };
        if let Some(user) = used.user {
            document.insert("user", format!("{}@{}", user.user, user.database));
        }
        document
    };
    Ok(call
        .server
        .session_cache
        .list(is_meant)
        .into_iter()
        .map(document)
        .collect())
}

/// `[{user, db}, …]`, as sessions name them. Nulls are passed over.
fn owners(within: &str, array: &RawArray) -> Result<HashSet<[u8; 32]>> {
    let arguments = Arguments::of(within);
    let mut owners = HashSet::new();
    for element in array {
        let element = element?;
        if !matches!(element, RawBsonRef::Null | RawBsonRef::Undefined) {
            owners.insert(owner(within, arguments.document("users", element)?)?);
        }
    }
    Ok(owners)
}

/// `{user, db}`, as sessions name it.
fn owner(within: &str, document: &RawDocument) -> Result<[u8; 32]> {
    let arguments = Arguments::of(within);
    let (mut user, mut db) = (None, None);
    arguments.each(document, |name, value| {
        match name {
            "user" => user = Some(arguments.string(name, value)?),
            "db" => db = Some(arguments.string(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let user = user.ok_or_else(|| missing_field(within, "user"))?;
    Ok(auth::session_user(user, db.ok_or_else(|| missing_field(within, "db"))?))
}
