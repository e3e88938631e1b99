//! The messages of consensus between members: a stream of bytes, cut into commands that are not answered; a connection
//! carries the stream of one member (`member_streams::Assembly`).

use super::membership::set;
use crate::arguments::{missing_field, wrong_type};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::ReplicaSet;
use crate::reply::Reply;
use auth::Action;
use bson::raw::RawBsonRef;
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

pub(super) fn not_of_the_set(set: &ReplicaSet, name: &str) -> Result<()> {
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
    let own = storage.standing().map(|standing| standing.id);
    if own.is_some() {
        storage.receive(None, from, Seq(applied));
    }
    // Without one piece the next ones would have no beginning.
    call.client.stream.lock().take(is_first, data, &mut |bytes| {
        // What was meant for the instance that this place had before is not for this one.
        if let Ok(message) = Message::decode(bytes)
            && Some(message.to()) == own
            && message.from() == from
        {
            storage.receive(Some(message), from, Seq(applied));
        }
    });
    Ok(())
}
