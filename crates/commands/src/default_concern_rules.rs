//! What the document of the default concerns may say, whoever writes it (see `command/default_concerns.rs`).

use crate::arguments::Arguments;
use crate::concerns::{ReadConcern, WriteConcern, is_about_defaults};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::{RawBsonRef, RawDocument};
use storage::Namespace;

/// `_id` of their document.
pub const ID: &str = "ReadWriteConcernDefaults";
/// Its fields.
pub const READ: &str = "defaultReadConcern";
/// See `READ`.
pub const WRITE: &str = "defaultWriteConcern";

/// To be called with each document that is to be stored. Refuses one of the defaults that could not be taken up.
pub fn check_stored(call: &Invocation<'_>, namespace: &Namespace, document: &RawDocument) -> Result<()> {
    if !is_about_defaults(namespace) || call.server.replica_set().is_none() {
        return Ok(());
    }
    if !matches!(document.get("_id")?, Some(RawBsonRef::String(ID))) {
        return Ok(());
    }
    let arguments = Arguments::of(ID);
    if let Some(read) = document.get(READ)? {
        check_read(call, arguments.document(READ, read)?)?;
    }
    match document.get(WRITE)? {
        Some(write) => check_write(call, arguments.document(WRITE, write)?),
        None => Ok(()),
    }
}

/// Only what any read can be made with.
pub fn check_read(call: &Invocation<'_>, given: &RawDocument) -> Result<()> {
    let concern = ReadConcern::read(given, &call.server.deployment())?;
    if concern.after.is_some() || concern.at.is_some() {
        return Err(CommandError::bad_value(
            "Default read concern must contain only 'level' and 'provenance' fields",
        ));
    }
    match given.get("level")? {
        None if given.is_empty() => Ok(()),
        None => Err(CommandError::bad_value("Default read concern must have 'level' field")),
        Some(RawBsonRef::String("local" | "available" | "majority")) => Ok(()),
        Some(_) => Err(CommandError::bad_value(
            "Default read concern level must be one of 'local', 'available' or 'majority'",
        )),
    }
}

/// Not `w: 0`, of which nobody hears, and nothing that every write would fail with.
pub fn check_write(call: &Invocation<'_>, given: &RawDocument) -> Result<()> {
    let concern = WriteConcern::read(given, &call.server.deployment())?;
    if given.get("w")?.is_none() {
        return Err(CommandError::bad_value("Default write concern must have 'w' field"));
    }
    if concern.unacknowledged {
        return Err(CommandError::bad_value(
            "Default write concern 'w' must be something other than 0",
        ));
    }
    call.server.check_acknowledging(&concern.members)
}
