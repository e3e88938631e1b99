//! `renameCollection`.

use super::collections::refuse_system;
use super::read_only::refuse_read_only;
use super::{collections_access as access, timeseries};
use crate::arguments::missing_field;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::server::Server;
use storage::Namespace;
use wire::ErrorCode;

/// `renameCollection`.
pub const RENAME_COLLECTION: Command = Command::new(
    "renameCollection",
    "Renames a collection.",
    OperationKind::Command,
    Access::Fields(access::rename),
    rename,
)
.takes_write_concern()
.admin_only();

/// What the server keeps of itself, the feature compatibility version too.
const SERVER_CONFIGURATION: &str = "admin.system.version";

fn rename(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let from = Namespace::parse(arguments.string("renameCollection", call.target()?)?)?;
    let mut to = None;
    let mut drop_target = false;
    call.for_each_field(|name, value| {
        match name {
            "to" => to = Some(Namespace::parse(arguments.string(name, value)?)?),
            "dropTarget" => drop_target = arguments.boolean(name, value)?,
            "stayTemp" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let to = to.ok_or_else(|| missing_field("renameCollection", "to"))?;
    check_names(call.server, &from, &to)?;
    if timeseries::buckets(call, &from).is_some() {
        return Err(refused(format!(
            "Renaming a timeseries collection is not allowed: {from}"
        )));
    }
    call.changes(&from);
    call.changes(&to);
    let storage = &call.server.storage;
    storage.rename_collection(&call.operation, &from, &to, drop_target)?;
    let seq = storage.last_seq();
    call.server.metrics.top.forget(from.as_str());
    call.wrote(seq);
    Ok(())
}

/// Refuses names that a collection cannot have before or after, whether there is one or not.
fn check_names(server: &Server, from: &Namespace, to: &Namespace) -> Result<()> {
    if from == to {
        return Err(refused("Can't rename a collection to itself"));
    }
    if query::is_oplog(&server.storage, from) {
        return Err(refused("can't rename live oplog while replicating"));
    }
    if query::is_oplog(&server.storage, to) {
        return Err(refused("can't rename to live oplog while replicating"));
    }
    if timeseries::definition::names_buckets(from) {
        return Err(refused(format!(
            "Renaming system.buckets collections is not allowed: {from}"
        )));
    }
    check_name(server, from, "source")?;
    check_name(server, to, "target")?;
    if [from, to].iter().any(|name| name.as_str() == SERVER_CONFIGURATION) {
        return Err(refused(
            "renaming the server configuration collection (admin.system.version) is not allowed",
        ));
    }
    for name in ["system.js", "system.users"] {
        if from.collection() == name || to.collection() == name {
            return Err(refused(format!(
                "renaming {name} collection or renaming to {name} is not allowed"
            )));
        }
    }
    // As in MongoDB, where `local` is each member's own.
    if server.replica_set().is_some() && (from.db() == "local") != (to.db() == "local") {
        return Err(refused(
            "Cannot rename collections between a replicated and an unreplicated database",
        ));
    }
    Ok(())
}

fn check_name(server: &Server, namespace: &Namespace, role: &str) -> Result<()> {
    refuse_read_only(server, namespace)
        .and_then(|()| refuse_system(server, namespace))
        .map_err(|error| refused(format!("error with {role} namespace: {}", error.message)))
}

fn refused(message: impl Into<String>) -> CommandError {
    CommandError::new(ErrorCode::IllegalOperation, message)
}
