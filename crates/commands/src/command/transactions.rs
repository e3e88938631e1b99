//! `commitTransaction` and `abortTransaction`.

use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::transactions::{CheckedOut, OpenTransaction, Statement};
use bson::raw::RawBsonRef;
use storage::StorageError;
use wire::ErrorCode;

/// `commitTransaction`.
pub const COMMIT_TRANSACTION: Command = Command::new(
    "commitTransaction",
    "Makes a transaction's changes visible, all at once.",
    OperationKind::Command,
    Access::User,
    commit,
)
.takes_write_concern()
.admin_only()
.api_version_1()
.in_transactions(InTransactions::Ends);
/// `abortTransaction`.
pub const ABORT_TRANSACTION: Command = Command::new(
    "abortTransaction",
    "Takes a transaction's changes back.",
    OperationKind::Command,
    Access::User,
    abort,
)
.takes_write_concern()
.admin_only()
.api_version_1()
.in_transactions(InTransactions::Ends);

/// The session and its open transaction; `None` when that was committed.
fn open(call: &mut Invocation<'_>) -> Result<(CheckedOut, Option<Box<OpenTransaction>>)> {
    let arguments = call.arguments();
    call.for_each_field(|name, value| {
        match name {
            // For routers.
            "recoveryToken" => drop(arguments.document(name, value)?),
            "commitTimestamp" if matches!(value, RawBsonRef::Null) => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (Some(session), Some(fields)) = (call.in_session.take(), call.transaction_fields) else {
        return Err(CommandError::new(
            ErrorCode(125),
            format!("{} must be run within a transaction", call.command.name),
        ));
    };
    let open = session.take_open(fields, Statement::Ends)?;
    call.report.had_no_cursors = open.as_ref().is_some_and(|open| !open.has_cursors);
    Ok((session, open))
}

fn commit(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let (session, open) = open(call)?;
    let storage = &call.server.storage;
    match open {
        Some(open) => {
            // Dropped with its changes when that fails.
            match open.transaction.commit(&call.operation) {
                Ok(seq) => {
                    // Whoever has lost patience does not know yet whether it stays.
                    match call.operation.is_ahead() {
                        true => session.in_doubt(),
                        false => session.committed(),
                    }
                    call.wrote(seq);
                }
                // It may be in the log: a later one asks what became of it, and drivers are told to send it.
                Err(error @ StorageError::Interrupted(_)) => {
                    session.in_doubt();
                    let mut error = CommandError::from(error);
                    error.label("RetryableWriteError");
                    return Err(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // It was sent again: the answer to the first one may have been lost before the write concern was met.
        None => call.wrote(storage.last_seq()),
    }
    Ok(())
}

fn abort(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let (session, open) = open(call)?;
    match open {
        Some(open) => {
            drop(open);
            session.aborted();
            Ok(())
        }
        None => Err(CommandError::new(
            ErrorCode::TransactionCommitted,
            "Transaction has been committed.",
        )),
    }
}
