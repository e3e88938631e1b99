//! `connPoolStats`, `dropConnections`: the connections that this server makes to other members.
//!
//! A server that has no others makes none. There is one pool, as MongoDB has one for replication.

use crate::arguments::{missing_field, wrong_type};
use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::{MemberConnections, MemberThreads};
use crate::reply::{Reply, narrowed};
use auth::Action;
use bson::raw::RawBsonRef;
use bson::{Document, doc};
use std::sync::Arc;

/// `connPoolStats`.
pub const CONN_POOL_STATS: Command = Command::new(
    "connPoolStats",
    "Counts the connections to other members.",
    OperationKind::Command,
    Access::cluster(&[Action::ConnPoolStats]),
    stats,
)
.secondary_ok();
/// `dropConnections`.
pub const DROP_CONNECTIONS: Command = Command::new(
    "dropConnections",
    "Cuts the connections to other members by their host names.",
    OperationKind::Command,
    Access::cluster(&[Action::DropConnections]),
    drop_connections,
)
.admin_only()
.secondary_ok();

/// As MongoDB calls the pool.
const POOL: &str = "NetworkInterfaceTL-ReplNetwork";

fn threads(call: &Invocation<'_>) -> Option<Arc<dyn MemberThreads>> {
    call.server.replica_set()?.threads()
}

fn stats(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let connections = threads(call).map_or_else(Vec::new, |threads| threads.connections());
    let sum = |figure: fn(&MemberConnections) -> u64| narrowed(connections.iter().map(figure).sum::<u64>() as i64);
    let (in_use, available) = (sum(|of| of.in_use), sum(|of| of.available));
    let created = sum(|of| of.created);
    let hosts: Document = connections
        .iter()
        .map(|of| {
            let number = |number: u64| narrowed(number as i64);
            let figures = doc! {
                "inUse": number(of.in_use), "available": number(of.available), "leased": 0,
                "created": number(of.created), "refreshing": 0,
            };
            (of.host.clone(), figures.into())
        })
        .collect();
    let mut pools = Document::new();
    if !hosts.is_empty() {
        let mut pool = doc! {
            "poolInUse": in_use.clone(), "poolAvailable": available.clone(), "poolLeased": 0,
            "poolCreated": created.clone(), "poolRefreshing": 0,
        };
        pool.extend(hosts.clone());
        pools.insert(POOL, pool);
    }
    reply.append_all(&doc! {
        "numClientConnections": 0,
        "numAScopedConnections": 0,
        "totalInUse": in_use,
        "totalAvailable": available,
        "totalLeased": 0,
        "totalCreated": created,
        "totalRefreshing": 0,
        "pools": pools,
        "hosts": hosts,
        // Of sets that a router watches.
        "replicaSets": {},
    });
    Ok(())
}

fn drop_connections(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let mut hosts = None;
    call.for_each_field(|name, value| {
        if name != "hostAndPort" {
            return Ok(false);
        }
        let RawBsonRef::Array(array) = value else {
            return Err(wrong_type(call.command.name, name, value, "type 'array'"));
        };
        let mut named = Vec::new();
        for (position, element) in array.into_iter().enumerate() {
            match element? {
                RawBsonRef::String(host) => named.push(host.to_owned()),
                other => {
                    let field = format!("{name}.{position}");
                    return Err(wrong_type(call.command.name, &field, other, "type 'string'"));
                }
            }
        }
        hosts = Some(named);
        Ok(true)
    })?;
    let hosts = hosts.ok_or_else(|| missing_field(call.command.name, "hostAndPort"))?;
    if let Some(threads) = threads(call) {
        threads.drop_connections(&hosts);
    }
    Ok(())
}
