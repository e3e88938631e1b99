//! `getDiagnosticData`: what monitoring tools (exporters, advisors) want to know of a server and its machine, at once.
//!
//! MongoDB answers with its last sample of a second, which it also keeps in files. Here the sample is taken when asked
//! for, and there are no files.

use super::replica_status::write_status;
use super::{maintenance, server_status, system_metrics};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, Target};
use bson::raw::RawDocument;
use bson::{Bson, DateTime, Document, doc};
use storage::Namespace;

/// `getDiagnosticData`.
pub const GET_DIAGNOSTIC_DATA: Command = Command::new(
    "getDiagnosticData",
    "Figures of the server, its replica set and its machine.",
    OperationKind::Command,
    Access::Fields(access),
    run,
)
.admin_only()
.secondary_ok();

/// What the parts need that it is made of.
fn access(call: &Invocation<'_>) -> Result<bool> {
    let oplog = Namespace::parse(storage::OPLOG)?;
    let of_cluster = [Action::ServerStatus, Action::ReplSetGetStatus];
    Ok(of_cluster.iter().all(|action| call.may(Target::Cluster, *action))
        && call.may(Target::Collection(oplog.db(), oplog.collection()), Action::CollStats))
}

/// A part of the sample, without the times at its ends; none where the server has nothing of the kind.
type Part = fn(&mut Invocation<'_>) -> Result<Option<Document>>;

const PARTS: [(&str, Part); 4] = [
    ("serverStatus", |call| Ok(Some(server_status::status(call)?))),
    ("replSetGetStatus", replica_status),
    ("local.oplog.rs.stats", oplog_stats),
    ("systemMetrics", |call| Ok(Some(system_metrics::system_metrics(call)))),
];

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let mut data = Document::new();
    data.insert("start", now(call));
    for (name, part) in PARTS {
        let start = now(call);
        // What one part cannot tell keeps nobody from the others, unless it is that the call has ended.
        let figures = part(call).unwrap_or_else(|error| Some(told(&error)));
        call.operation.check_now()?;
        if let Some(figures) = figures {
            let mut timed = Document::from_iter([("start".to_owned(), start)]);
            timed.extend(figures);
            timed.insert("end", now(call));
            data.insert(name, timed);
        }
    }
    data.insert("end", now(call));
    reply.value("data", &data.into());
    Ok(())
}

fn now(call: &Invocation<'_>) -> Bson {
    DateTime::from_millis(call.server.env.clock.now_ms()).into()
}

fn told(error: &CommandError) -> Document {
    doc! { "ok": 0.0, "errmsg": &error.message, "code": error.code.0, "codeName": error.code.name() }
}

/// Nothing before the set is configured.
fn replica_status(call: &mut Invocation<'_>) -> Result<Option<Document>> {
    let is_configured = |set: &crate::replica_set::ReplicaSet| set.member().config.is_some();
    if !call.server.replica_set().is_some_and(is_configured) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut status = Reply::begin(&mut bytes);
    write_status(call, &mut status)?;
    status.finish();
    Ok(Some(Document::try_from(RawDocument::from_bytes(&bytes)?)?))
}

fn oplog_stats(call: &mut Invocation<'_>) -> Result<Option<Document>> {
    maintenance::stats_of(call, &Namespace::parse(storage::OPLOG)?)
}
