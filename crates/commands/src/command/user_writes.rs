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
use bson::{Document, doc};
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

/// Who holds writes off says why, and takes that back with the same words: each of them is heard only by itself.
const REASON: &str = "blockUserWritesReason";
const REASONS: [&str; 3] = [
    "Unspecified",
    "ClusterToClusterMigrationInProgress",
    "DiskUseThresholdExceeded",
];

fn run(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut global, mut reason) = (None, REASONS[0]);
    call.for_each_field(|name, value| {
        match name {
            "global" => global = Some(arguments.flag(name, value)?),
            "reason" => {
                let given = arguments.string(name, value)?;
                let known = REASONS.into_iter().find(|known| *known == given);
                reason = known.ok_or_else(|| {
                    CommandError::bad_value(format!(
                        "Enumeration value '{given}' for field 'setUserWriteBlockMode.reason' is not a valid value."
                    ))
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let blocks = global.ok_or_else(|| missing_field(call.command.name, "global"))?;
    let Some(set) = call.server.replica_set() else {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "setUserWriteBlockMode cannot be run on standalones",
        ));
    };
    // One at a time: the reason is still the one in force when it is written.
    let configuring = set.configure();
    if let Some(other) = reason_in_force(&kept(call)?).filter(|other| other != reason) {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("user writes are blocked for the reason '{other}', not '{reason}'"),
        ));
    }
    let mut document = doc! { "_id": ID, "blockNewUserShardedDDL": blocks, "blockUserWrites": blocks };
    if blocks {
        document.insert(REASON, reason);
    }
    user_store::upsert_in(call, &Namespace::parse(USER_WRITES)?, &doc! { "_id": ID }, &document)?;
    drop(configuring);
    let storage = &call.server.storage;
    storage.set_user_writes_blocked(blocks);
    if blocks {
        // Those that were let in before are done when this answers.
        storage.wait_for_writes(&call.operation)?;
    }
    Ok(())
}

fn kept(call: &mut Invocation<'_>) -> Result<Option<Document>> {
    Ok(user_store::find_in(call, &Namespace::parse(USER_WRITES)?, &doc! { "_id": ID })?.pop())
}

/// Why writes are held off; none when they are not.
fn reason_in_force(kept: &Option<Document>) -> Option<String> {
    let kept = kept.as_ref().filter(|kept| blocks(kept))?;
    Some(kept.get_str(REASON).unwrap_or(REASONS[0]).to_owned())
}

fn blocks(kept: &Document) -> bool {
    kept.get_bool("blockUserWrites").unwrap_or(false)
}

/// Lives by what is kept.
pub fn load(call: &mut Invocation<'_>) -> Result<()> {
    let blocks = kept(call)?.is_some_and(|kept| blocks(&kept));
    call.server.storage.set_user_writes_blocked(blocks);
    Ok(())
}
