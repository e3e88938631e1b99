//! `writeErrors` of write commands.

use crate::arguments::Arguments;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::reply::Reply;
use bson::raw::RawBsonRef;
use bson::{Bson, doc};
use wire::ErrorCode;

/// The numbers by which a session knows the statements of a command: `stmtIds`, or those from `stmtId` on.
#[derive(Clone, Debug)]
pub struct StatementIds {
    first: i32,
    each: Option<Vec<i32>>,
}

impl StatementIds {
    /// Those from the call's `stmtId` on.
    pub fn of_call(call: &Invocation<'_>) -> Self {
        Self {
            first: call.transaction_fields.map_or(0, |fields| fields.statement),
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

    /// Appends `writeErrors`, if there are any.
    pub fn write(self, reply: &mut Reply<'_>) {
        if self.errors.is_empty() {
            return;
        }
        let entries = self
            .each()
            .map(|(index, error)| {
                let mut entry = doc! { "index": index as i32, "code": error.code.0, "errmsg": error.message };
                if let Some(extra) = error.extra {
                    entry.extend(*extra);
                }
                Bson::Document(entry)
            })
            .collect();
        reply.value("writeErrors", &Bson::Array(entries));
    }
}
