//! `writeErrors` of write commands.

use crate::arguments::Arguments;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::reply::Reply;
use bson::raw::RawBsonRef;
use bson::{Bson, doc};
use wire::ErrorCode;

/// The numbers by which a session knows the statements of a command: `stmtId`, `stmtIds`.
#[derive(Clone, Debug, Default)]
pub struct StatementIds {
    first: i32,
    each: Option<Vec<i32>>,
}

impl StatementIds {
    /// Takes one of the two fields; false for another one.
    pub fn take(&mut self, arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>) -> Result<bool> {
        let number = |value| {
            let number = arguments.integer(name, value)?;
            i32::try_from(number).ok().filter(|number| *number >= 0).ok_or_else(|| {
                CommandError::bad_value(format!(
                    "BSON field '{name}' has the value {number}, which is no statement number"
                ))
            })
        };
        match name {
            "stmtId" => self.first = number(value)?,
            "stmtIds" => {
                let values = arguments.array(name, value)?.into_iter();
                self.each = Some(values.map(|value| number(value?)).collect::<Result<_>>()?);
            }
            _ => return Ok(false),
        }
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
