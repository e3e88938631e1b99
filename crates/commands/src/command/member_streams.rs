//! What flows between members: the messages of consensus, and copies of all data.
//!
//! Messages come as a stream of bytes, cut into commands that are not answered; a connection carries the stream of one
//! member (`member_streams::Assembly`). A copy is the state at one position of the log, asked for table by table;
//! whoever makes it keeps its place.

use super::membership::set;
use crate::arguments::{missing_field, wrong_type};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::member_streams::write_header;
use crate::metrics::OperationKind;
use crate::replica_set::{ReplicaSet, Role};
use crate::reply::Reply;
use auth::Action;
use bson::raw::RawBsonRef;
use engine::TableId;
use std::sync::atomic::Ordering;
use storage::{Message, Seq};
use wire::ErrorCode;

/// `_tenonConsensus`.
pub const CONSENSUS: Command = Command::new(
    "_tenonConsensus",
    "Brings messages of consensus from another member. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    consensus,
)
.admin_only()
.secondary_ok()
.secret(&["data"]);
/// `_tenonCopyBegin`.
pub const COPY_BEGIN: Command = Command::new(
    "_tenonCopyBegin",
    "Begins a copy of all data for a member that has none. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_begin,
)
.admin_only()
.secondary_ok();
/// `_tenonCopyRows`.
pub const COPY_ROWS: Command = Command::new(
    "_tenonCopyRows",
    "Rows of a table of a copy. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_rows,
)
.admin_only()
.secondary_ok();
/// `_tenonCopyEnd`.
pub const COPY_END: Command = Command::new(
    "_tenonCopyEnd",
    "Ends a copy. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_end,
)
.admin_only()
.secondary_ok();

/// Rows of a copy in one answer, beyond one row.
const COPY_BYTES_MAX: usize = 4 << 20;

fn not_of_the_set(set: &ReplicaSet, name: &str) -> Result<()> {
    match name == set.name {
        true => Ok(()),
        false => Err(CommandError::new(
            ErrorCode::InvalidReplicaSetConfig,
            format!("this server is of the replica set {}, not of {name}", set.name),
        )),
    }
}

fn consensus(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut applied, mut wanted, mut is_first) = (0, 0, false);
    let (mut name, mut data) = ("", None);
    call.for_each_field(|field, value| {
        match (field, value) {
            ("set", value) => name = arguments.string(field, value)?,
            ("applied", value) => applied = arguments.non_negative(field, value)? as u64,
            ("wanted", value) => wanted = arguments.integer(field, value)? as u64,
            ("first", value) => is_first = arguments.boolean(field, value)?,
            ("data", RawBsonRef::Binary(binary)) => data = Some(binary.bytes),
            ("data", other) => return Err(wrong_type("_tenonConsensus", "data", other, "type 'binData'")),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let set = set(call)?;
    let from = arguments.non_negative(call.command.name, call.target()?)? as u64;
    not_of_the_set(set, name)?;
    let data = data.ok_or_else(|| missing_field("_tenonConsensus", "data"))?;
    let storage = &call.server.storage;
    if wanted > 0 {
        set.wanted.fetch_max(wanted, Ordering::AcqRel);
        set.wake();
    }
    let Some(own) = storage.standing().map(|standing| standing.id) else {
        return Ok(());
    };
    storage.receive(None, from, Seq(applied));
    call.client.stream.lock().take(is_first, data, &mut |bytes| {
        // What was meant for the instance that this place had before is not for this one.
        if let Ok(message) = Message::decode(bytes)
            && message.to() == own
            && message.from() == from
        {
            storage.receive(Some(message), from, Seq(applied));
        }
    });
    Ok(())
}

fn copy_begin(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut name, mut instance) = ("", None);
    call.for_each_field(|field, value| {
        match (field, value) {
            ("set", value) => name = arguments.string(field, value)?,
            ("instance", RawBsonRef::Binary(binary)) => instance = binary.bytes.try_into().ok(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let set = set(call)?;
    not_of_the_set(set, name)?;
    let instance: [u8; 16] = instance.ok_or_else(|| missing_field("_tenonCopyBegin", "instance"))?;
    let (role, is_known) = set.with_member(|member| {
        let consensus = member.consensus.as_ref();
        (
            member.role,
            consensus.is_some_and(|consensus| consensus.of_instance(&instance).is_some()),
        )
    });
    // The copy must have the entry by which the copying member was taken in.
    if role != Role::Primary || !is_known {
        return Err(CommandError::new(
            ErrorCode::NotWritablePrimary,
            "the copy is of the primary's data, for a member that it has taken in",
        ));
    }
    let source = call.server.storage.begin_clone()?;
    write_header(reply, source.header());
    let id = call.server.copies.open(source, call.server.env.clock.monotonic());
    reply.int64("copy", id);
    Ok(())
}

fn copy_rows(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut table, mut after) = (None, None);
    call.for_each_field(|field, value| {
        match (field, value) {
            ("table", value) => table = u32::try_from(arguments.integer(field, value)?).ok(),
            ("after", RawBsonRef::Binary(binary)) => after = Some(binary.bytes),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let id = arguments.integer(call.command.name, call.target()?)?;
    let table = table.ok_or_else(|| missing_field("_tenonCopyRows", "table"))?;
    let source = call.server.copies.source(id, call.server.env.clock.monotonic())?;
    let rows = source.rows(TableId(table), after, COPY_BYTES_MAX)?;
    let mut bytes = Vec::with_capacity(COPY_BYTES_MAX / 2);
    for row in 0..rows.len() {
        let (key, value) = (rows.key(row), rows.value(row));
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    reply.generic_binary("rows", &bytes);
    Ok(())
}

fn copy_end(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let arguments = call.arguments();
    let id = arguments.integer(call.command.name, call.target()?)?;
    call.server.copies.end(id);
    Ok(())
}
