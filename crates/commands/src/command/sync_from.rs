//! `replSetSyncFrom`: of whom a member copies all data. The log comes from the primary, always.

use super::membership;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::Role;
use crate::reply::Reply;
use auth::Action;
use wire::ErrorCode;

/// `replSetSyncFrom`.
pub const REPL_SET_SYNC_FROM: Command = Command::new(
    "replSetSyncFrom",
    "Chooses the member that an initial sync copies the data of.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    sync_from,
)
.admin_only()
.secondary_ok();

fn refused(code: ErrorCode, message: impl Into<String>) -> Result<()> {
    Err(CommandError::new(code, message))
}

fn sync_from(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let host = call.arguments().string(call.command.name, call.target()?)?.to_owned();
    let set = membership::set(call)?;
    let before = set.copy.lock().source.clone();
    if set.with_member(|member| member.copies) {
        let mut copy = set.copy.lock();
        if !copy.sources.contains(&host) {
            return not_found(&host);
        }
        *set.copy_source.lock() = Some(host.clone());
        copy.is_outdated = true;
    } else {
        check_followed(call, &host)?;
    }
    reply.string("syncFromRequested", &host);
    if !before.is_empty() {
        reply.string("prevSyncTarget", &before);
    }
    Ok(())
}

fn not_found(host: &str) -> Result<()> {
    refused(
        ErrorCode::NodeNotFound,
        format!("Could not find member \"{host}\" in replica set"),
    )
}

/// Who has data follows the primary. To be told so changes nothing, and to be told otherwise is refused.
fn check_followed(call: &Invocation<'_>, host: &str) -> Result<()> {
    let (set, member, config) = membership::configured(call)?;
    let me = membership::own_member(&member, &config)?;
    if member.role == Role::Primary {
        return refused(ErrorCode::NotSecondary, "primaries don't sync");
    }
    if me.arbiter_only {
        return refused(ErrorCode::NotSecondary, "arbiters don't sync");
    }
    let Some(source) = config.members.iter().find(|of| of.host == host) else {
        return not_found(host);
    };
    if source.id == me.id {
        return refused(ErrorCode::InvalidOptions, "I cannot sync from myself");
    }
    if source.arbiter_only {
        return refused(
            ErrorCode::InvalidOptions,
            format!("Cannot sync from \"{host}\" because it is an arbiter"),
        );
    }
    if !set.peer(source.id).is_up {
        return refused(
            ErrorCode::HostUnreachable,
            format!("I cannot reach the requested member: {host}"),
        );
    }
    match member.primary == Some(source.id) {
        true => Ok(()),
        false => refused(
            ErrorCode::IllegalOperation,
            "the log comes from the primary; replSetSyncFrom chooses whose data an initial sync copies, while there is one",
        ),
    }
}
