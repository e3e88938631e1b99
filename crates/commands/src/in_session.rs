//! Calls with a transaction number: they take their session, go on with its transaction or begin it, and leave both
//! as the call's end says.
//!
//! A statement that fails ends its transaction, as MongoDB's does: what came before it is taken back.

use crate::concerns::ReadLevel;
use crate::definition::{Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::{Invocation, Retry};
use crate::reply::Reply;
use crate::transactions::{CheckedOut, OpenTransaction, TransactionFields};
use bson::Document;
use bson::raw::RawBsonRef;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{Interrupted, SessionKey, StorageError};
use wire::ErrorCode;

/// Runs the command.
pub fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let Some(fields) = call.transaction_fields else {
        let server = call.server;
        if call.read_concern.level == ReadLevel::Linearizable {
            call.leadership = server.storage.leadership();
        }
        if call.read_concern.level == ReadLevel::Snapshot {
            let now = server.env.clock.monotonic();
            call.pinned = Some(server.pinned.at(&server.storage, call.read_concern.at, now)?);
        }
        return carry_out(call, reply);
    };
    let server = call.server;
    let key = SessionKey {
        id: call.session.expect("checked with the other fields"),
        user: call.rights.session_user(),
    };
    let session = server
        .sessions
        .check_out(key, fields.number, &call.operation, &server.storage)?;
    if !fields.is_transaction {
        // Before the record is read.
        let leadership = server.storage.leadership();
        let leadership = leadership.ok_or(StorageError::from(Interrupted::RoleChanged))?;
        session.begin_write(fields.number)?;
        let record = server.storage.session(&key);
        call.retry = Some(Retry {
            key,
            number: fields.number,
            record: record.filter(|record| record.txn_number == fields.number),
            leadership,
            retried: Vec::new(),
        });
        call.in_session = Some(session);
        let result = carry_out(call, reply);
        // An operation that is interrupted, or has lost patience, has not waited for what it has written.
        let has_waited = call.operation.check_now().is_ok() && !call.operation.is_ahead();
        let session = call.in_session.take();
        if let Some(session) = session.filter(|_| has_waited) {
            session.end_write();
        }
        return result;
    }
    if call.command.in_transactions == InTransactions::Ends {
        call.in_session = Some(session);
        let result = (call.command.run)(call, reply);
        call.in_session = None;
        // Then it goes on.
        let goes_on = |error: &CommandError| error.code == ErrorCode::APIMismatchError;
        if !call.report.had_no_cursors && !result.as_ref().is_err_and(goes_on) {
            server
                .cursors
                .kill_of_transaction(call.session, fields.number, &call.rights);
        }
        return result;
    }
    statement(call, reply, session, fields)
}

/// Runs a command outside transactions: what it has written has taken effect on return, or the wait for that has ended
/// as the error says, or with the call's patience: then it is ahead.
fn carry_out(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let result = (call.command.run)(call, reply);
    result.and(call.settle_at_last())
}

/// A statement of a transaction.
fn statement(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    session: CheckedOut,
    fields: TransactionFields,
) -> Result<()> {
    let server = call.server;
    let parameters = &server.parameters;
    let lifetime = Duration::from_secs(parameters.transaction_lifetime_s.load(Ordering::Relaxed) as u64);
    let now = || server.env.clock.monotonic();
    let began = now();
    let reads_snapshot = call.read_concern.level == ReadLevel::Snapshot;
    let begin = || -> Result<OpenTransaction> {
        let mut transaction = server.storage.begin_transaction()?;
        transaction.in_session(session.key(), fields.number);
        let timeout = parameters.transaction_lock_timeout_ms.load(Ordering::Relaxed);
        transaction.set_lock_timeout(Duration::from_millis(timeout as u64));
        Ok(OpenTransaction {
            transaction,
            reads_snapshot,
            api: fields.api,
            memory: server.account(),
            began,
            began_ms: server.env.clock.now_ms(),
            expires: began + lifetime,
            has_cursors: false,
            worked: Duration::ZERO,
            connection: call.client.id(),
        })
    };
    let mut open = session.take_transaction(fields, begin)?;
    call.transaction = Some(RefCell::new(open.transaction));
    let mut result = match open.reads_snapshot && call.command.in_transactions == InTransactions::AllowedUnlessSnapshot
    {
        true => Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!(
                "{} cannot be used in a transaction with readConcern 'snapshot'",
                call.command.name
            ),
        )),
        false => (call.command.run)(call, reply),
    };
    let transaction = call.transaction.take().map(RefCell::into_inner);
    if let Some(transaction) = &transaction
        && result.is_ok()
    {
        let more = transaction.bytes().saturating_sub(open.memory.bytes());
        result = open.memory.grow(more).map_err(|error| StorageError::from(error).into());
    }
    open.has_cursors |= call.report.cursor_id.is_some();
    let is_kept = result.is_ok() && !call.report.has_write_errors;
    match transaction.filter(|_| is_kept) {
        Some(transaction) => {
            open.transaction = transaction;
            open.worked += now().saturating_sub(began);
            open.connection = call.client.id();
            session.put_back(open);
        }
        None => {
            session.aborted();
            if open.has_cursors {
                server
                    .cursors
                    .kill_of_transaction(call.session, fields.number, &call.rights);
            }
        }
    }
    result
}

/// Adds to an error what tells a driver that it may try again. `is_refused`: the command did not begin, so that of two
/// errors in a row the other one tells more.
pub fn label(call: &Invocation<'_>, error: &mut CommandError, is_refused: bool) {
    let follows_changes = call.report.is_change_stream || is_refused && goes_on_with_changes(call);
    label_as(
        call.command,
        call.transaction_fields,
        follows_changes,
        error,
        is_refused,
    );
}

/// Whether a call that did not begin was to go on with a change stream.
fn goes_on_with_changes(call: &Invocation<'_>) -> bool {
    let is_of_stream = |id: RawBsonRef<'_>| id.as_i64().is_some_and(|id| call.server.cursors.follows_changes(id));
    call.command.name == "getMore" && call.target().is_ok_and(is_of_stream)
}

/// As [`label`], of a call that was refused before more was known of it, too.
pub fn label_as(
    command: &Command,
    fields: Option<TransactionFields>,
    follows_changes: bool,
    error: &mut CommandError,
    is_refused: bool,
) {
    if follows_changes {
        match error.code {
            ErrorCode::ChangeStreamFatalError | ErrorCode::ChangeStreamHistoryLost => {
                error.label("NonResumableChangeStreamError");
            }
            _ if error.is_resumable() => error.label("ResumableChangeStreamError"),
            _ => {}
        }
    }
    let Some(fields) = fields else { return };
    let ends = command.in_transactions == InTransactions::Ends;
    if fields.is_transaction && !ends {
        if error.is_transient() {
            error.label("TransientTransactionError");
        }
        return;
    }
    if error.is_retryable() {
        error.label("RetryableWriteError");
        if is_refused {
            error.label("NoWritesPerformed");
        }
    } else if ends && error.is_transient() {
        error.label("TransientTransactionError");
    }
}

/// Answers that the write concern was not met, beside what the command did. What was written may not stay when the
/// member's role changed meanwhile: drivers send it again by its label, as they do with errors (retryable writes
/// specification). A commit that is not on disk yet for want of space or of a descriptor is one whose outcome is not
/// known.
pub fn tell_write_concern_error(
    call: &Invocation<'_>,
    mut cannot: Document,
    result: &mut Result<()>,
    reply: &mut Reply<'_>,
) {
    let code = cannot.get_i32("code").map_or(ErrorCode::UnknownError, ErrorCode);
    let ends = call.command.in_transactions == InTransactions::Ends;
    let is_retryable = CommandError::new(code, "").is_retryable() && (call.may_be_sent_again() || ends);
    let label = match code {
        _ if is_retryable => Some("RetryableWriteError"),
        // Drivers that go by the code know of no such end of a commit, and would begin the transaction anew.
        ErrorCode::OutOfDiskSpace | ErrorCode::TooManyFilesOpen if ends => Some("UnknownTransactionCommitResult"),
        _ => None,
    };
    // Those of a fail point are in its place.
    let labels = cannot
        .remove("errorLabels")
        .or_else(|| label.map(|label| vec![label].into()));
    match result {
        Ok(()) => {
            if let Some(labels) = labels {
                reply.value("errorLabels", &labels);
            }
            reply.value("writeConcernError", &cannot.into());
        }
        Err(error) => {
            let extra = error.extra.get_or_insert_default();
            if let Some(labels) = labels {
                extra.insert("errorLabels", labels);
            }
            extra.insert("writeConcernError", cannot);
        }
    }
}
