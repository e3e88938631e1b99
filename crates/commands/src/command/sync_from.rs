//! `replSetSyncFrom`: of whom a member copies all data. The log comes from the primary, always.

use super::membership::{configured, own_member};
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

fn refused<T>(code: ErrorCode, message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(code, message))
}

fn sync_from(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let host = call.arguments().string(call.command.name, call.target()?)?.to_owned();
    let set = super::membership::set(call)?;
    let before = set.copy.lock().source.clone();
    let copies = set.with_member(|member| member.copies || member.joins_as.is_some());
    if copies && set.with_member(|member| member.config.is_none()) {
        // A newcomer knows nobody. Whoever is no member will not be copied.
        *set.copy_source.lock() = Some(host.clone());
        set.copy.lock().is_outdated = true;
    } else {
        let (_, member, config) = configured(call)?;
        let me = own_member(&member, &config)?;
        if member.role == Role::Primary {
            return refused(ErrorCode::NotSecondary, "primaries don't sync");
        }
        if me.arbiter_only {
            return refused(ErrorCode::NotSecondary, "arbiters don't sync");
        }
        let Some(source) = config.members.iter().find(|of| of.host == host) else {
            return refused(
                ErrorCode::NodeNotFound,
                format!("Could not find member \"{host}\" in replica set"),
            );
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
        if copies {
            *set.copy_source.lock() = Some(host.clone());
            set.copy.lock().is_outdated = true;
        } else if member.primary != Some(source.id) {
            return refused(
                ErrorCode::IllegalOperation,
                "the log comes from the primary; replSetSyncFrom chooses whose data an initial sync copies, while there is one",
            );
        }
    }
    reply.string("syncFromRequested", &host);
    if !before.is_empty() {
        reply.string("prevSyncTarget", &before);
    }
    Ok(())
}
