//! `fsync` and `fsyncUnlock`: makes everything durable, and holds writes back while files are copied.
//!
//! The lock is counted: each `fsync` with `lock: true` needs its own `fsyncUnlock`.

use crate::arguments::wrong_type;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::ReplicaSet;
use crate::reply::Reply;
use auth::Action;
use bson::raw::RawBsonRef;
use storage::StorageError;
use wire::ErrorCode;

/// `fsync`.
pub const FSYNC: Command = Command::new(
    "fsync",
    "Makes all data durable; with lock, holds writes back.",
    OperationKind::Command,
    Access::cluster(&[Action::Fsync]),
    fsync,
)
.admin_only()
.secondary_ok();
/// `fsyncUnlock`.
pub const FSYNC_UNLOCK: Command = Command::new(
    "fsyncUnlock",
    "Lets writes go on after fsync with lock.",
    OperationKind::Command,
    Access::cluster(&[Action::UnlockFsync]),
    unlock,
)
.admin_only()
.secondary_ok();

fn fsync(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut lock = false;
    call.for_each_field(|name, value| {
        match name {
            "lock" => lock = arguments.boolean(name, value)?,
            "fsyncLockAcquisitionTimeoutMillis" if !matches!(value, RawBsonRef::Int32(_)) => {
                return Err(wrong_type(arguments.command, name, value, "type 'int'"));
            }
            "fsyncLockAcquisitionTimeoutMillis" => {}
            "async" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let storage = &call.server.storage;
    if lock && storage.is_backup_open() {
        return Err(CommandError::new(
            ErrorCode(50884),
            "The existing backup cursor must be closed before fsyncLock can succeed.",
        ));
    }
    let barrier = lock.then(|| storage.block_writes(&call.operation)).transpose()?;
    // Under the barrier no copy begins; one that has begun replaces the files, and ends the lock.
    let is_replaced = |set: &ReplicaSet| set.with_member(|member| member.copies || member.joins_as.is_some());
    if lock && call.server.replica_set().is_some_and(is_replaced) {
        return Err(CommandError::new(
            ErrorCode::NotPrimaryOrSecondary,
            "this member's data are about to be replaced by an initial sync",
        ));
    }
    storage.checkpoint()?;
    if let Some(barrier) = barrier {
        // That took its time: nobody would take a lock back whose client has gone.
        call.operation.check_now().map_err(StorageError::from)?;
        let count = call.server.fsync_lock.push(barrier);
        reply.string("info", "now locked against writes, use db.fsyncUnlock() to unlock");
        reply.int64("lockCount", count as i64);
        reply.string(
            "seeAlso",
            "https://www.mongodb.com/docs/manual/reference/command/fsync/",
        );
    } else {
        // MongoDB answers 1, however many files there are.
        reply.int32("numFiles", 1);
    }
    Ok(())
}

fn unlock(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(left) = call.server.fsync_lock.pop() else {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "fsyncUnlock called when not locked",
        ));
    };
    reply.string("info", "fsyncUnlock completed");
    reply.int64("lockCount", left as i64);
    Ok(())
}
