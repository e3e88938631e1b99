//! `writeErrors` of write commands.

use crate::arguments::Arguments;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::reply::Reply;
use bson::raw::RawBsonRef;
use bson::{Bson, RawDocumentBuf, doc};
use wire::ErrorCode;
use wire::limits::DOCUMENT_BYTES_MAX;

/// Bytes of messages in `writeErrors` behind which they are empty, as in MongoDB, and how many errors have theirs all
/// the same.
const MESSAGES_BYTES_MAX: usize = 1024 * 1024;
const MESSAGES_MIN: usize = 2;
/// Bytes of an error in an array, with an empty message and nothing beside.
const ERROR_BYTES_MIN: usize = 48;
/// Bytes of an element of `upserted` beside the identifier: type, number, length, `index`, name and two ends.
const UPSERTED_BYTES_MIN: usize = 28;
/// Bytes of an element of `retriedStmtIds`.
const RETRIED_BYTES: usize = 11;
/// Bytes of what errors have beside code and message, such as `keyValue`. With the messages and 100,000 errors (6 MiB)
/// they fit into a reply of 16 MiB.
pub const EXTRAS_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The numbers by which a session knows the statements of a command: `stmtIds`, or those from `stmtId` on.
#[derive(Clone, Debug)]
pub struct StatementIds {
    first: i32,
    /// `stmtId` was given.
    has_first: bool,
    each: Option<Vec<i32>>,
}

impl StatementIds {
    /// Those from the call's `stmtId` on.
    pub fn of_call(call: &Invocation<'_>) -> Self {
        Self {
            first: call.transaction_fields.map_or(0, |fields| fields.statement),
            has_first: call.transaction_fields.is_some() && call.body.get("stmtId").is_ok_and(|given| given.is_some()),
            each: None,
        }
    }

    /// Takes `stmtIds`; false for another field.
    pub fn take(&mut self, arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
        if name != "stmtIds" {
            return Ok(false);
        }
        let values = arguments.array(name, value)?.into_iter();
        let numbers = values.map(|value| arguments.statement_number(name, value?));
        self.each = Some(numbers.collect::<Result<_>>()?);
        Ok(true)
    }

    /// There must be one for each statement.
    pub fn check(&self, statements: usize) -> Result<()> {
        match &self.each {
            Some(_) if self.has_first => Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "May not specify both stmtId and stmtIds in write command",
            )),
            Some(each) if each.len() != statements => Err(CommandError::new(
                ErrorCode::InvalidLength,
                format!(
                    "Number of statement ids must match the number of batch entries. Got {} statement ids but {statements} operations",
                    each.len()
                ),
            )),
            _ if self.first as usize + statements > i32::MAX as usize => {
                Err(CommandError::bad_value("stmtId is too large for so many operations"))
            }
            _ => Ok(()),
        }
    }

    /// That of a statement by its place. Checked before.
    pub fn of(&self, index: usize) -> i32 {
        match &self.each {
            Some(each) => each[index],
            None => self.first + index as i32,
        }
    }
}

/// Appends `retriedStmtIds`: statements that had been carried out when the command came.
pub fn write_retried(call: &Invocation<'_>, reply: &mut Reply<'_>) {
    if let Some(retry) = call.retry.as_ref().filter(|retry| !retry.retried.is_empty()) {
        reply.value("retriedStmtIds", &Bson::from(retry.retried.clone()));
    }
}

/// Room in a reply for the identifiers of what upserts insert: the reply to what was written must be one that can be
/// sent. For each statement there is room beside for the error that it may end with.
pub struct UpsertedRoom(usize);

impl UpsertedRoom {
    /// In the reply to so many statements. That of one alone has room for every identifier.
    pub fn of(call: &Invocation<'_>, statements: usize) -> Self {
        if statements == 1 || call.write_concern.unacknowledged {
            return Self(usize::MAX);
        }
        let each = ERROR_BYTES_MIN + call.retry.as_ref().map_or(0, |_| RETRIED_BYTES);
        Self(DOCUMENT_BYTES_MAX.saturating_sub(2 * MESSAGES_BYTES_MAX + statements * each))
    }

    /// The longest identifier that the next statement may insert.
    pub fn id_bytes_max(&self) -> usize {
        self.0.saturating_add(ERROR_BYTES_MIN - UPSERTED_BYTES_MIN)
    }

    /// A statement has inserted a document: so many bytes are its element in `upserted`.
    pub fn take(&mut self, element_bytes: usize) {
        self.0 = self.0.saturating_sub(element_bytes.saturating_sub(ERROR_BYTES_MIN));
    }

    /// There is no room for an identifier.
    pub fn refused() -> CommandError {
        CommandError::new(
            ErrorCode::ExceededMemoryLimit,
            "the reply has no room for the identifier that this statement would insert: send the statement in a command of its own",
        )
    }
}

/// Writes to many documents cannot be sent again.
pub fn refuse_multi(call: &Invocation<'_>, what: &str) -> Result<()> {
    match call.retry {
        Some(_) => Err(CommandError::new(
            ErrorCode::InvalidOptions,
            format!("Cannot use (or request) retryable writes with {what}"),
        )),
        None => Ok(()),
    }
}

/// Errors of single statements, in the order of the statements.
#[derive(Default)]
pub struct WriteErrors {
    errors: Vec<(usize, CommandError)>,
}

impl WriteErrors {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Statement `index` failed.
    pub fn push(&mut self, index: usize, error: CommandError) {
        let place = self.errors.partition_point(|(before, _)| *before <= index);
        self.errors.insert(place, (index, error));
    }

    /// The errors with the places of their statements, in order.
    pub fn each(self) -> impl Iterator<Item = (usize, CommandError)> {
        self.errors.into_iter()
    }

    /// Appends `writeErrors`, if there are any. What was written must be told, however many statements failed: beyond
    /// the limits messages are empty, and further fields left out. [`write_retried`] has its room behind it.
    pub fn write(self, call: &Invocation<'_>, reply: &mut Reply<'_>) {
        if self.errors.is_empty() {
            return;
        }
        let retried = call.retry.as_ref().map_or(0, |retry| retry.retried.len());
        let taken = reply.len() + self.errors.len() * ERROR_BYTES_MIN + retried * RETRIED_BYTES + MESSAGES_BYTES_MAX;
        let extras_max = EXTRAS_BYTES_MAX.min(DOCUMENT_BYTES_MAX.saturating_sub(taken));
        let (mut message_bytes, mut extra_bytes) = (0, 0);
        let entries = self
            .each()
            .enumerate()
            .map(|(place, (index, error))| {
                let is_whole = message_bytes < MESSAGES_BYTES_MAX || place < MESSAGES_MIN;
                let message = if is_whole { error.message } else { String::new() };
                message_bytes += message.len();
                let mut entry = doc! { "index": index as i32, "code": error.code.0, "errmsg": message };
                if let Some(extra) = error.extra {
                    extra_bytes += RawDocumentBuf::try_from(&*extra).map_or(0, |extra| extra.as_bytes().len());
                    if extra_bytes <= extras_max {
                        entry.extend(*extra);
                    }
                }
                Bson::Document(entry)
            })
            .collect();
        reply.value("writeErrors", &Bson::Array(entries));
    }
}
