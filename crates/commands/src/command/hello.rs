//! `hello` and its older names: what kind of server this is and what it can do.

use super::authenticate;
use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::audited::AuditEvent;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::TopologyVersion;
use crate::reply::Reply;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{DateTime, Document, doc};
use std::time::Duration;
use wire::limits::{DOCUMENT_BYTES_MAX, MESSAGE_BYTES_MAX, WRITE_BATCH_MAX};
use wire::{Compressor, ErrorCode};

/// `hello`.
pub const HELLO: Command = Command::new(
    "hello",
    "Describes the server to a driver.",
    OperationKind::Command,
    Access::Open,
    |call, reply| run(call, reply, "isWritablePrimary"),
)
.ends_with_client()
.secondary_ok()
.api_version_1()
.secret(&["speculativeAuthenticate"]);

/// `isMaster`, the legacy name.
pub const IS_MASTER: Command = Command::new(
    "isMaster",
    "Legacy name of hello.",
    OperationKind::Command,
    Access::Open,
    |call, reply| run(call, reply, "ismaster"),
)
.ends_with_client()
.aliases(&["ismaster"])
.secondary_ok()
.secret(&["speculativeAuthenticate"]);

/// Longest `client` metadata document, see the handshake specification.
const METADATA_BYTES_MAX: usize = 512;

/// A reply that follows another one unasked waits so long for news, whatever its request says: without a wait, one
/// request of somebody who need not have logged in would keep a thread at work for ever.
const REPEATED_PATIENCE_MIN: Duration = Duration::from_millis(100);

/// No request waits for longer: whoever sends it need not have logged in. A chain of replies goes on behind it.
const PATIENCE_MAX: Duration = Duration::from_secs(10 * 60);

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>, writable: &str) -> Result<()> {
    let arguments = call.arguments();
    let mut hello_ok = false;
    let mut compression = Vec::new();
    let (mut user, mut speculative) = (None, None);
    let (mut known, mut patience) = (None, None);
    for element in call.body {
        let (name, value) = element?;
        match (name.as_str(), value) {
            ("helloOk", value) => hello_ok = arguments.boolean("helloOk", value)?,
            ("client", value) => keep_metadata(call, arguments.document("client", value)?)?,
            ("saslSupportedMechs", value) => user = Some(arguments.string("saslSupportedMechs", value)?),
            ("speculativeAuthenticate", value) => {
                speculative = Some(arguments.document("speculativeAuthenticate", value)?);
            }
            ("topologyVersion", value) => {
                known = Some(topology_version(arguments.document("topologyVersion", value)?)?);
            }
            ("maxAwaitTimeMS", value) => {
                let patience_ms = arguments.integer("maxAwaitTimeMS", value)?;
                let patience_ms = u64::try_from(patience_ms).map_err(|_| {
                    CommandError::new(ErrorCode(31373), "maxAwaitTimeMS must be a non-negative integer")
                })?;
                patience = Some(Duration::from_millis(patience_ms));
            }
            ("compression", RawBsonRef::Array(offered)) => {
                for name in offered.into_iter().flatten() {
                    if let RawBsonRef::String(name) = name
                        && let Some(offered) = Compressor::by_name(name)
                        && call.server.settings.compressors.contains(&offered)
                    {
                        compression.push(name);
                    }
                }
            }
            _ => {}
        }
    }
    if known.is_some() != patience.is_some() {
        let message = match known {
            Some(_) => "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
            None => "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
        };
        return Err(CommandError::new(ErrorCode(31368), message));
    }
    if hello_ok {
        reply.boolean("helloOk", true);
    }
    let (server, set) = (call.server, call.server.replica_set());
    if let (Some(known), Some(patience)) = (known, patience) {
        // A chain of replies goes on from what the one before told, not from what its request knew.
        let told = call.client.told_topology().filter(|_| call.is_repeated);
        let patience_min = match call.is_repeated {
            true => REPEATED_PATIENCE_MIN,
            false => Duration::ZERO,
        };
        let until = call.patient_until(patience.clamp(patience_min, PATIENCE_MAX));
        let known = told.unwrap_or(known);
        let waits = call.idle(|| match set {
            Some(set) => set.wait_for_change(&call.operation, known, until, || call.waker()),
            None => server
                .standalone
                .wait_for_change(&call.operation, known, until, || call.waker()),
        })?;
        if let Some((waker, place)) = waits {
            call.park(waker, place, until, None);
            return Ok(());
        }
        call.report.more_to_come = call.exhaust_allowed;
    }
    let told = match set {
        Some(set) => set.write_hello(reply, writable, &server.storage),
        None => {
            reply.boolean(writable, true);
            server.standalone.version().write(reply);
            server.standalone.version()
        }
    };
    call.client.tell_topology(told);
    reply.int32("maxBsonObjectSize", DOCUMENT_BYTES_MAX as i32);
    reply.int32("maxMessageSizeBytes", MESSAGE_BYTES_MAX as i32);
    reply.int32("maxWriteBatchSize", WRITE_BATCH_MAX as i32);
    reply.date("localTime", DateTime::from_millis(call.server.env.clock.now_ms()));
    reply.int32("logicalSessionTimeoutMinutes", 30);
    reply.int32("connectionId", call.client.id() as i32);
    reply.int32("minWireVersion", 0);
    reply.int32("maxWireVersion", call.server.settings.wire_version_max);
    reply.boolean("readOnly", false);
    if !compression.is_empty() {
        reply.open_array("compression");
        for (index, name) in compression.iter().enumerate() {
            reply.string(&index.to_string(), name);
        }
        reply.close();
    }
    if let Some(user) = user {
        reply.open_array("saslSupportedMechs");
        for (index, name) in authenticate::supported(call, user)?.into_iter().enumerate() {
            reply.string(&index.to_string(), name);
        }
        reply.close();
    }
    if let Some(request) = speculative {
        authenticate::speculate(call, request, reply);
    }
    Ok(())
}

fn topology_version(document: &RawDocument) -> Result<TopologyVersion> {
    let (mut process, mut counter) = (None, None);
    Arguments::of("topologyVersion").each(document, |name, value| {
        match (name, value) {
            ("processId", RawBsonRef::ObjectId(id)) => process = Some(id),
            ("counter", RawBsonRef::Int64(number)) if number >= 0 => counter = Some(number),
            ("counter", RawBsonRef::Int64(_)) => {
                let message = "topologyVersion must have a non-negative counter";
                return Err(CommandError::new(ErrorCode(31372), message));
            }
            ("processId", other) => return Err(wrong_type("topologyVersion", name, other, "type 'objectId'")),
            ("counter", other) => return Err(wrong_type("topologyVersion", name, other, "type 'long'")),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(TopologyVersion {
        process: process.ok_or_else(|| missing_field("topologyVersion", "processId"))?,
        counter: counter.ok_or_else(|| missing_field("topologyVersion", "counter"))?,
    })
}

fn keep_metadata(call: &Invocation<'_>, metadata: &RawDocument) -> Result<()> {
    if metadata.as_bytes().len() > METADATA_BYTES_MAX {
        return Err(CommandError::new(
            ErrorCode(34357),
            format!("The client metadata document must be less then or equal to {METADATA_BYTES_MAX} bytes"),
        ));
    }
    let unchanged = || {
        call.client
            .metadata()
            .is_some_and(|kept| kept.as_bytes() == metadata.as_bytes())
    };
    let is_first = call.client.set_metadata(metadata);
    if is_first {
        call.server.audit(|| {
            let metadata = Document::try_from(metadata).unwrap_or_default();
            AuditEvent::of(call.client, "clientMetadata", doc! { "clientMetadata": metadata }, 0)
        });
    } else if !unchanged() {
        return Err(CommandError::new(
            ErrorCode::ClientMetadataCannotBeMutated,
            "The client metadata document may only be sent in the first hello",
        ));
    }
    Ok(())
}
