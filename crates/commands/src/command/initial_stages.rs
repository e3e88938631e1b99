//! Stages that start a pipeline from what only the server knows: `$collStats`, `$indexStats`, `$currentOp`.
//!
//! Each yields documents that are made when the command runs; the rest of the pipeline works on them as on any others.

use super::current_op::{Shown, operations};
use super::maintenance::storage_stats;
use crate::arguments::Arguments;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{DateTime, Document, doc};
use query::plan::AggregateRequest;
use storage::Namespace;
use wire::ErrorCode;

/// The documents of the pipeline's first stage when it is one of these; `None` when the pipeline reads a collection.
pub fn documents(call: &Invocation<'_>, request: &AggregateRequest<'_>) -> Result<Option<Vec<Document>>> {
    let Some(first) = request.pipeline.into_iter().next() else {
        return Ok(None);
    };
    let RawBsonRef::Document(first) = first? else {
        return Ok(None);
    };
    let Some(element) = first.into_iter().next() else {
        return Ok(None);
    };
    let (name, options) = element?;
    let arguments = Arguments::of(name.as_str());
    match name.as_str() {
        "$collStats" => {
            let options = arguments.document("options", options)?;
            Ok(Some(vec![coll_stats(
                call,
                collection(request, name.as_str())?,
                options,
            )?]))
        }
        "$indexStats" => Ok(Some(index_stats(call, collection(request, name.as_str())?)?)),
        "$currentOp" => current_op(call, request, arguments.document("options", options)?).map(Some),
        _ => Ok(None),
    }
}

fn collection<'r>(request: &'r AggregateRequest<'_>, stage: &str) -> Result<&'r Namespace> {
    request.ns.as_ref().ok_or_else(|| {
        CommandError::new(
            ErrorCode::InvalidNamespace,
            format!("{stage} is only valid on a collection"),
        )
    })
}

fn host(call: &Invocation<'_>) -> String {
    format!("{}:{}", call.server.settings.host, call.server.settings.port)
}

fn coll_stats(call: &Invocation<'_>, namespace: &Namespace, options: &RawDocument) -> Result<Document> {
    let storage = &call.server.storage;
    if storage.catalog().view(namespace).is_some() {
        return Err(super::views::refused(namespace));
    }
    let mut document = doc! {
        "ns": namespace.as_str(),
        "host": host(call),
        "localTime": DateTime::from_millis(call.server.env.clock.now_ms()),
    };
    let stats = storage.collection_stats(namespace).map_err(|error| match error {
        storage::StorageError::NamespaceNotFound(_) => {
            CommandError::new(ErrorCode::NamespaceNotFound, format!("Unable to retrieve storageStats in $collStats stage :: caused by :: Collection [{namespace}] not found."))
        }
        other => other.into(),
    })?;
    for element in options {
        let (name, value) = element?;
        match name.as_str() {
            "latencyStats" => {
                let top = call.server.metrics.top.get(namespace.as_str());
                let usage = |usage: crate::metrics::Usage| doc! { "latency": usage.time_us, "ops": usage.count };
                document.insert("latencyStats", doc! { "reads": usage(top.read_lock), "writes": usage(top.write_lock), "commands": usage(top.commands) });
            }
            "storageStats" => {
                let scale = match value {
                    RawBsonRef::Document(inner) => inner
                        .get("scale")?
                        .and_then(crate::arguments::number_as_i64)
                        .unwrap_or(1),
                    _ => 1,
                };
                if scale < 1 {
                    return Err(CommandError::bad_value("scale has to be >= 1"));
                }
                document.insert("storageStats", storage_stats(&stats, scale));
            }
            "count" => drop(document.insert("count", stats.count as i64)),
            "queryExecStats" => return Err(CommandError::not_implemented("$collStats.queryExecStats")),
            other => return Err(crate::arguments::unknown_field("$collStats", other)),
        }
    }
    Ok(document)
}

fn index_stats(call: &Invocation<'_>, namespace: &Namespace) -> Result<Vec<Document>> {
    let Some(collection) = call.server.storage.catalog().collection(namespace) else {
        return Ok(Vec::new());
    };
    collection
        .indexes()
        .iter()
        .map(|index| {
            let (operations, since_ms) = index.accesses();
            Ok(doc! {
                "name": index.name(),
                "key": Document::try_from(index.key())?,
                "host": host(call),
                "accesses": { "ops": operations as i64, "since": DateTime::from_millis(since_ms) },
                "spec": Document::try_from(index.spec())?,
            })
        })
        .collect()
}

fn current_op(call: &Invocation<'_>, request: &AggregateRequest<'_>, options: &RawDocument) -> Result<Vec<Document>> {
    if request.ns.is_some() || request.db != "admin" {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "$currentOp must be run against the 'admin' database with {aggregate: 1}",
        ));
    }
    let arguments = Arguments::of("$currentOp");
    let mut shown = Shown::default();
    for element in options {
        let (name, value) = element?;
        let on = arguments.boolean(name.as_str(), value)?;
        match name.as_str() {
            "idleConnections" => shown.idle_connections = on,
            "idleCursors" => shown.idle_cursors = on,
            // There is one user, one server and there are no session catalogues: nothing to widen or to leave out.
            "allUsers" | "localOps" | "idleSessions" | "truncateOps" | "targetAllNodes" => {}
            other => {
                return Err(CommandError::new(
                    ErrorCode::FailedToParse,
                    format!("Unrecognized option '{other}' in $currentOp stage."),
                ));
            }
        }
    }
    Ok(operations(call, shown))
}
