//! The one place where it is checked whether a caller may run a command.
//!
//! Each command says in the table what it needs ([`Access`]); [`check`] is called between reading a request and
//! running it, with what the caller may do ([`Rights`]) known.

use crate::definition::Access;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::rights::Rights;
use crate::server::Server;
use crate::shown_command::without_inserted;
use auth::Target;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::sync::atomic::Ordering;
use storage::{Namespace, StorageError};
use wire::ErrorCode;

/// Is the command among what the caller may do?
///
/// # Errors
/// `Unauthorized` when it is not.
pub fn check(call: &mut Invocation<'_>) -> Result<()> {
    if matches!(call.command.access, Access::Open) {
        return Ok(());
    }
    match &call.rights {
        Rights::Unchecked => Ok(()),
        Rights::Nobody if may_make_the_first(call)? => {
            call.rights = Rights::First;
            Ok(())
        }
        Rights::Nobody | Rights::First => Err(CommandError::new(
            ErrorCode::Unauthorized,
            format!("Command {} requires authentication", call.command.name),
        )),
        Rights::Of(_) if permitted(call)? => Ok(()),
        Rights::Of(_) => Err(refused(call)),
    }
}

/// May the caller run the call, by what the table says?
pub fn permitted(call: &Invocation<'_>) -> Result<bool> {
    let rights = &call.rights;
    Ok(match call.command.access {
        Access::Open | Access::User => true,
        Access::Cluster(actions) => rights.allow(Target::Cluster, actions),
        Access::Database(actions) => rights.allow(Target::Database(call.database), actions),
        Access::Collection(actions) => rights.allow(target(call)?, actions),
        Access::Fields(find) => matches!(rights, Rights::Unchecked) || find(call)?,
    })
}

/// The collection that the first field names. What is no name is refused by the command; who may do it to all of the
/// database is told so.
pub fn target<'i>(call: &Invocation<'i>) -> Result<Target<'i>> {
    Ok(match call.target()? {
        RawBsonRef::String(name) => Target::Collection(call.database, name),
        _ => Target::Database(call.database),
    })
}

/// The error for who may not.
pub fn refused(call: &Invocation<'_>) -> CommandError {
    let shown = call.command.shown(call.body);
    // The text goes to where no documents are told: to log lines, and to the profile.
    let without = without_inserted(&shown, usize::MAX);
    let without = without.map(|bytes| RawDocumentBuf::from_bytes(bytes).unwrap_or_default());
    let shown: &RawDocument = match &without {
        Some(without) => without,
        None => &shown,
    };
    let text = match shown.as_bytes().len() {
        0..=SHOWN_BYTES_MAX => keys::describe::describe_whole(RawBsonRef::Document(shown)),
        _ => keys::describe::describe(RawBsonRef::Document(shown)),
    };
    CommandError::new(
        ErrorCode::Unauthorized,
        format!("not authorized on {} to execute command {text}", call.database),
    )
}

/// The beginning of longer commands is shown.
const SHOWN_BYTES_MAX: usize = 2048;

/// The way in for who sets a server up: as long as no user was seen, somebody on the same machine may make one, or
/// a role for one, on `admin`. Behind a proxy on this machine everybody is; the one who starts the server can shut it.
fn may_make_the_first(call: &Invocation<'_>) -> Result<bool> {
    // The only member of a set takes no write before it is initiated.
    let makes =
        matches!(call.command.name, "createUser" | "createRole" | "replSetInitiate") && call.database == "admin";
    let is_open = call.server.access.lets_local_begin();
    Ok(is_open && makes && call.client.peer().is_local() && !users_exist(call.server)?)
}

/// Is there a user, or was there one since the start? Asked again when the first is written, with other changes
/// shut out.
pub fn users_exist(server: &Server) -> Result<bool> {
    let seen = &server.access.users_seen;
    if !seen.load(Ordering::SeqCst) {
        let users = Namespace::new("admin", "system.users")?;
        let count = match server.storage.collection_stats(&users) {
            Ok(stats) => stats.count,
            Err(StorageError::NamespaceNotFound(_)) => 0,
            Err(error) => return Err(error.into()),
        };
        seen.fetch_or(count > 0, Ordering::SeqCst);
    }
    Ok(seen.load(Ordering::SeqCst))
}
