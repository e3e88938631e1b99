//! `convertToCapped` and `cloneCollectionAsCapped`.

use super::collections::{CAPPED_BYTES_MAX, refuse_system};
use super::views;
use crate::arguments::{missing_field, number_as_i64};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, ActionSet, Target};
use bson::raw::RawBsonRef;
use storage::{Namespace, StorageError};
use wire::ErrorCode;

/// `convertToCapped`.
pub const CONVERT_TO_CAPPED: Command = Command::new(
    "convertToCapped",
    "Makes a collection a capped one, of its newest documents that fit.",
    OperationKind::Command,
    Access::collection(&[Action::ConvertToCapped]),
    convert,
)
.takes_write_concern();
/// `cloneCollectionAsCapped`.
pub const CLONE_COLLECTION_AS_CAPPED: Command = Command::new(
    "cloneCollectionAsCapped",
    "Makes a capped collection of another's newest documents that fit.",
    OperationKind::Command,
    Access::Fields(clone_access),
    clone,
)
.takes_write_concern();

/// What `cloneCollectionAsCapped` needs: to read the one, and to make the other.
fn clone_access(call: &Invocation<'_>) -> Result<bool> {
    let RawBsonRef::String(from) = call.target()? else {
        return Ok(call.may(Target::Database(call.database), Action::Find));
    };
    if !call.may(Target::Collection(call.database, from), Action::Find) {
        return Ok(false);
    }
    let mut is_named = false;
    let made = ActionSet::of(&[Action::Insert, Action::CreateIndex, Action::ConvertToCapped]);
    for element in call.body {
        match element? {
            (name, RawBsonRef::String(to)) if name.as_str() == "toCollection" => {
                is_named = true;
                if !call.rights.allow(Target::Collection(call.database, to), made) {
                    return Ok(false);
                }
            }
            _ => {}
        }
    }
    Ok(is_named || call.rights.allow(Target::Database(call.database), made))
}

/// The bytes that a capped collection is to have.
fn size(size: i64) -> Result<u64> {
    if size <= 0 {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "Capped collection size must be greater than zero",
        ));
    }
    if size > CAPPED_BYTES_MAX {
        return Err(CommandError::bad_value(format!(
            "BSON field 'size' value must be <= {CAPPED_BYTES_MAX}, actual value '{size}'"
        )));
    }
    Ok(size.unsigned_abs())
}

fn explained(error: StorageError) -> CommandError {
    match error {
        StorageError::NamespaceNotFound(ns) => CommandError::new(
            ErrorCode::NamespaceNotFound,
            format!("source collection {ns} does not exist"),
        ),
        StorageError::IsView(ns) => views::refused(&ns),
        other => other.into(),
    }
}

/// Documents of a capped collection are in the order of their insertion, those of a clustered one are not.
fn refuse_clustered(call: &Invocation<'_>, namespace: &Namespace) -> Result<()> {
    let collection = call.server.storage.catalog().collection(namespace);
    match collection.is_some_and(|collection| collection.clustered_index().is_some()) {
        true => Err(CommandError::new(
            ErrorCode::CommandNotSupported,
            format!("a clustered collection cannot be made a capped one: {namespace}"),
        )),
        false => Ok(()),
    }
}

fn convert(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    refuse_special(call, &namespace)?;
    refuse_clustered(call, &namespace)?;
    let mut bytes = None;
    call.for_each_field(|name, value| {
        if name == "size" {
            bytes = Some(size(call.arguments().integer(name, value)?)?);
        }
        Ok(name == "size")
    })?;
    let bytes = bytes.ok_or_else(|| missing_field("convertToCapped", "size"))?;
    let storage = &call.server.storage;
    storage
        .convert_to_capped(&call.operation, &namespace, bytes)
        .map_err(explained)?;
    call.wrote(storage.last_seq());
    Ok(())
}

fn clone(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let from = call.namespace()?;
    let arguments = call.arguments();
    let (mut to, mut bytes) = (None, None);
    call.for_each_field(|name, value| {
        match name {
            "toCollection" => to = Some(Namespace::new(call.database, arguments.string(name, value)?)?),
            "size" => bytes = number_as_i64(value).map(size).transpose()?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let to = to.ok_or_else(|| missing_field("cloneCollectionAsCapped", "toCollection"))?;
    // What is no number is as if it were not there.
    let bytes = bytes.map_or_else(|| size(0), Ok)?;
    refuse_special(call, &to)?;
    refuse_clustered(call, &from)?;
    let storage = &call.server.storage;
    storage
        .clone_as_capped(&call.operation, &from, &to, bytes)
        .map_err(explained)?;
    call.wrote(storage.last_seq());
    Ok(())
}

/// Collections of the server itself have the form that it needs.
fn refuse_special(call: &Invocation<'_>, namespace: &Namespace) -> Result<()> {
    refuse_system(call.server, namespace)?;
    match namespace.collection().starts_with("system.") {
        true => Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("a system collection cannot be made capped: {namespace}"),
        )),
        false => Ok(()),
    }
}
