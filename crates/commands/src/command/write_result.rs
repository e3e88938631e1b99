//! `writeErrors` of write commands, and which errors end the whole command instead.

use crate::error::CommandError;
use crate::reply::Reply;
use bson::{Bson, doc};
use wire::ErrorCode;

/// Errors of single statements, in order.
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
        self.errors.push((index, error));
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

/// Errors that end the command, not only the statement: the operation was interrupted, or the server cannot go on.
pub fn is_fatal(error: &CommandError) -> bool {
    matches!(
        error.code,
        ErrorCode::MaxTimeMSExpired
            | ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::ShutdownInProgress
            | ErrorCode::CursorKilled
            | ErrorCode::InternalError
            | ErrorCode(14031)
    )
}
