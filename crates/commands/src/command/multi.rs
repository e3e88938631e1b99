//! Statements on many documents: where other servers decide with this one, they wait for them once, and not for each
//! document.

use super::update::Statement;
use crate::error::Result;
use crate::invocation::Invocation;
use storage::WriteUnit;

/// Commits what a statement does to one document. Of many, readers see it when the statement has ended.
pub fn commit(call: &Invocation<'_>, statement: &Statement<'_>, unit: WriteUnit<'_>) -> Result<()> {
    call.before_commit(1)?;
    let seq = match statement.multi {
        true => unit.commit_ahead()?,
        false => unit.commit()?,
    };
    call.wrote(seq);
    Ok(())
}

/// Ends a statement: what it has done has taken effect on return, however it ended, as the next one looks for documents
/// among those that readers see. A fatal error ends the command, which is answered after a wait of its own.
pub fn end<T>(call: &Invocation<'_>, done: Result<T>) -> Result<T> {
    if done.as_ref().is_err_and(|error| call.is_fatal(error)) {
        return done;
    }
    call.server.storage.wait_ahead(&call.operation)?;
    done
}
