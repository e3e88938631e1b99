//! What a finished call waits for before its reply goes out.

use crate::concerns::ReadLevel;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use bson::{Document, rawdoc};
use storage::{Interrupted, StorageError};

/// The reply waits until what it tells is as safe as was asked for: the log is on disk beyond the call's newest
/// write, or beyond what it read. A wait that is ended (`maxTimeMS`, `killOp`, shutdown) takes no write back: the
/// reply tells what was done, and of the wait in `writeConcernError`, which is answered here.
///
/// A write that changed nothing, or failed, was decided by what others wrote: for that it waits.
pub(crate) fn wait_for_concerns(
    invocation: &Invocation<'_>,
    result: &Result<()>,
    has_write_concern: bool,
) -> Result<Option<Document>> {
    if let Some(told) = &invocation.report.primary_waited {
        return Ok(told.clone());
    }
    let storage = &invocation.server.storage;
    let writes = matches!(
        invocation.command.kind,
        OperationKind::Insert | OperationKind::Update | OperationKind::Remove
    );
    let seq = match invocation.report.last_write.get() {
        Some(seq) => seq,
        // What a transaction reads and writes is waited for when it is committed.
        None if invocation.transaction_number().is_some() => return Ok(None),
        // It was refused here, and nothing was decided.
        None if result.as_ref().is_err_and(CommandError::is_of_another_member) => return Ok(None),
        None if writes || has_write_concern => storage.last_seq(),
        None => return wait_for_read_concern(invocation, result).map(|()| None),
    };
    if result.as_ref().is_err_and(CommandError::is_fatal) {
        return Ok(None);
    }
    invocation.server.wait_acknowledged(invocation, seq)
}

/// What a call is told, beside what it did, that has written or seen what no majority had when `wtimeout` was over.
pub(crate) fn not_in_time(invocation: &Invocation<'_>, result: &Result<()>) -> Option<Document> {
    let is_told = !result.as_ref().is_err_and(CommandError::is_fatal);
    is_told.then(|| invocation.server.not_acknowledged_in_time(&invocation.write_concern))
}

fn wait_for_read_concern(invocation: &Invocation<'_>, result: &Result<()>) -> Result<()> {
    let deployment = invocation.server.deployment();
    if result.is_err() || invocation.transaction_fields.is_some() || !deployment.journal {
        return Ok(());
    }
    let storage = &invocation.server.storage;
    let with_others = storage.standing().is_some();
    match invocation.read_concern.level {
        ReadLevel::Local | ReadLevel::Available => Ok(()),
        ReadLevel::Majority if !deployment.is_member => Ok(()),
        // A leader that is one no more does not know it at once. An entry that stays, behind what was read, was made by
        // one that still is; if it is one again, what it has read is of the time before.
        ReadLevel::Linearizable if with_others => {
            let leadership = invocation
                .leadership
                .ok_or(StorageError::from(Interrupted::RoleChanged))?;
            storage.write_note_in(
                &invocation.operation,
                &rawdoc! { "msg": "linearizable read" },
                Some(leadership),
            )?;
            Ok(())
        }
        // What is applied with others has been agreed on.
        ReadLevel::Majority | ReadLevel::Snapshot if with_others => Ok(()),
        ReadLevel::Majority | ReadLevel::Linearizable | ReadLevel::Snapshot => {
            Ok(storage.wait_durable_in(&invocation.operation, storage.last_seq())?)
        }
    }
}
