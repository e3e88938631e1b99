//! `setUserWriteBlockMode`: holds users' writes off, on every member, until it is taken back.

use super::user_store;
use crate::arguments::missing_field;
use crate::cluster_parameters::USER_WRITES;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::doc;
use storage::Namespace;
use wire::ErrorCode;

/// `setUserWriteBlockMode`.
pub const SET_USER_WRITE_BLOCK_MODE: Command = Command::new(
    "setUserWriteBlockMode",
    "Holds users' writes off, or takes them again.",
    OperationKind::Command,
    Access::cluster(&[Action::SetUserWriteBlockMode]),
    run,
)
.takes_write_concern()
.admin_only();

/// The one document there: for all namespaces.
const ID: &str = "";

fn run(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut global = None;
    call.for_each_field(|name, value| {
        if name == "global" {
            global = Some(arguments.flag(name, value)?);
        }
        Ok(name == "global")
    })?;
    let blocks = global.ok_or_else(|| missing_field(call.command.name, "global"))?;
    if call.server.replica_set().is_none() {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "setUserWriteBlockMode cannot be run on standalones",
        ));
    }
    let document = doc! { "_id": ID, "blockNewUserShardedDDL": blocks, "blockUserWrites": blocks };
    user_store::upsert_in(call, &Namespace::parse(USER_WRITES)?, &doc! { "_id": ID }, &document)?;
    let storage = &call.server.storage;
    storage.set_user_writes_blocked(blocks);
    if blocks {
        // Those that were let in before are done when this answers.
        drop(storage.block_writes(&call.operation)?);
    }
    Ok(())
}

/// Lives by what is kept.
pub fn load(call: &mut Invocation<'_>) -> Result<()> {
    let kept = user_store::find_in(call, &Namespace::parse(USER_WRITES)?, &doc! { "_id": ID })?;
    let blocks = kept
        .iter()
        .any(|kept| kept.get_bool("blockUserWrites").unwrap_or(false));
    call.server.storage.set_user_writes_blocked(blocks);
    Ok(())
}
