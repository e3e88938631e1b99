//! Stages that start a pipeline from what only the server knows: `$collStats`, `$indexStats`, `$currentOp`,
//! `$planCacheStats`, `$querySettings`, `$listSessions`.
//!
//! Each yields documents that are made when the pipeline is opened, the client's or one inside it; the rest of the
//! pipeline works on them as on any others.

use super::current_op::{Shown, operations};
use super::maintenance::{bucket_stats, storage_stats};
use super::{sessions, timeseries};
use crate::arguments::Arguments;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::{Scans, Usage};
use crate::reply::narrowed;
use crate::rights::Rights;
use bson::raw::{CStr, RawBsonRef, RawDocument};
use bson::{DateTime, Document, doc};
use query::QueryError;
use query::exec::InitialSources;
use storage::{CollectionStats, Namespace};
use wire::ErrorCode;

impl InitialSources for Invocation<'_> {
    fn documents(
        &self,
        stage: &str,
        specification: &RawDocument,
        ns: Option<&Namespace>,
        db: &str,
    ) -> std::result::Result<Vec<Document>, QueryError> {
        Ok(documents(self, stage, specification, (ns, db))?)
    }
}

/// What a stage is run on: a collection, if any, and its database.
type Subject<'s> = (Option<&'s Namespace>, &'s str);

fn documents(
    call: &Invocation<'_>,
    stage: &str,
    specification: &RawDocument,
    subject: Subject<'_>,
) -> Result<Vec<Document>> {
    match stage {
        "$collStats" => {
            let namespace = timeseries::of_buckets(call, collection(subject, stage)?);
            Ok(vec![coll_stats(call, &namespace, specification)?])
        }
        "$indexStats" if !specification.is_empty() => Err(CommandError::new(
            ErrorCode(28803),
            "The $indexStats stage specification must be an empty object",
        )),
        "$indexStats" => index_stats(call, &under_views(call, collection(subject, stage)?)?),
        "$planCacheStats" => {
            let namespace = timeseries::of_buckets(call, collection(subject, stage)?);
            plan_cache_stats(call, &namespace, specification)
        }
        "$querySettings" => super::query_settings::documents(call, subject.0, specification),
        "$currentOp" => current_op(call, subject, specification),
        "$listLocalSessions" if subject.0.is_none() => sessions::list(call, stage, specification),
        "$listLocalSessions" => Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "$listLocalSessions must be run against the database with {aggregate: 1}, not a collection",
        )),
        "$listSessions" if subject.0.is_some_and(|ns| ns.as_str() == "config.system.sessions") => {
            sessions::list(call, stage, specification)
        }
        "$listSessions" => Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "$listSessions may be run only on the collection config.system.sessions",
        )),
        "$backupCursor" => Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "$backupCursor is only valid as the first stage of a database's pipeline",
        )),
        _ => Err(CommandError::not_implemented(format!("the stage {stage}"))),
    }
}

fn collection<'s>((ns, _): Subject<'s>, stage: &str) -> Result<&'s Namespace> {
    ns.ok_or_else(|| {
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
    let is_view = storage.catalog().view(namespace).is_some();
    let asks_storage = |(name, _): (&CStr, RawBsonRef<'_>)| name.as_str() != "latencyStats";
    let needs_storage = options.into_iter().flatten().any(asks_storage);
    if is_view && needs_storage {
        return Err(super::views::refused(namespace));
    }
    let mut document = doc! {
        "ns": namespace.as_str(),
        "host": host(call),
        "localTime": DateTime::from_millis(call.server.env.clock.now_ms()),
    };
    let stats = match needs_storage {
        false => CollectionStats::default(),
        true => storage.collection_stats(namespace).map_err(|error| match error {
            storage::StorageError::NamespaceNotFound(_) => {
                CommandError::new(ErrorCode::NamespaceNotFound, format!("Unable to retrieve storageStats in $collStats stage :: caused by :: Collection [{namespace}] not found."))
            }
            other => other.into(),
        })?,
    };
    // What is done to a time-series collection is counted under its own name.
    let own = namespace.collection().strip_prefix(storage::BUCKETS_PREFIX);
    let own = own.map(|own| Namespace::new(namespace.db(), own)).transpose()?;
    let counted = own.as_ref().unwrap_or(namespace).as_str();
    let top = call.server.metrics.top.get(counted);
    let arguments = Arguments::of("$collStats");
    arguments.each(options, |name, value| {
        match name {
            "latencyStats" => {
                check_options(arguments.document(name, value)?, "histograms")?;
                let usage = |usage: Usage| doc! { "latency": usage.time_us, "ops": usage.count };
                // Of transactions only the server as a whole keeps figures.
                let none = doc! { "latency": 0_i64, "ops": 0_i64 };
                document.insert(
                    name,
                    doc! {
                        "reads": usage(top.latencies.reads),
                        "writes": usage(top.latencies.writes),
                        "commands": usage(top.latencies.commands),
                        "transactions": none,
                    },
                );
            }
            "storageStats" => {
                let mut scale = 1;
                let storage = Arguments::of("$collStats.storageStats");
                storage.each(arguments.document(name, value)?, |name, value| {
                    match name {
                        "scale" => scale = storage.integer(name, value)?,
                        "verbose" | "waitForLock" | "numericOnly" => drop(storage.boolean(name, value)?),
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                if scale < 1 {
                    return Err(CommandError::bad_value("scale has to be >= 1"));
                }
                let collection = call.server.storage.catalog().collection(namespace);
                let is_of_buckets = collection.is_some_and(|collection| collection.timeseries().is_some());
                document.insert(
                    name,
                    match is_of_buckets {
                        true => bucket_stats(namespace, &stats, scale),
                        false => storage_stats(&stats, scale),
                    },
                );
            }
            "count" => {
                check_options(arguments.document(name, value)?, "")?;
                document.insert(name, narrowed(stats.count as i64));
            }
            "queryExecStats" => {
                check_options(arguments.document(name, value)?, "")?;
                let Scans { total, non_tailable } = top.scans;
                document.insert(
                    name,
                    doc! { "collectionScans": { "total": total, "nonTailable": non_tailable } },
                );
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(document)
}

/// An option's own options: booleans of these names, or none.
fn check_options(options: &RawDocument, name: &str) -> Result<()> {
    let arguments = Arguments::of("$collStats");
    arguments.each(options, |given, value| {
        if given == name && arguments.flag(given, value)? {
            return Err(CommandError::not_implemented(format!("$collStats.{name}")));
        }
        Ok(given == name)
    })
}

/// The collection whose indexes reads of a view use: views without stages alone can have one at the front.
fn under_views(call: &Invocation<'_>, namespace: &Namespace) -> Result<Namespace> {
    let catalog = call.server.storage.catalog();
    if catalog.buckets(namespace).is_some() {
        return Ok(namespace.clone());
    }
    Ok(query::exec::under_views(&call.server.storage, namespace)?)
}

fn index_stats(call: &Invocation<'_>, namespace: &Namespace) -> Result<Vec<Document>> {
    let catalog = call.server.storage.catalog();
    let buckets = catalog.buckets(namespace);
    let Some(collection) = catalog.collection(namespace).or_else(|| buckets.clone()) else {
        return Ok(Vec::new());
    };
    let mut stats = Vec::new();
    for index in collection.indexes() {
        // Those of a time-series collection are told as its users know them.
        let spec = match buckets.as_ref().and_then(|buckets| buckets.timeseries()) {
            Some(options) => timeseries::indexes::shown_spec(index, options)?,
            None => Some(index.spec().to_owned()),
        };
        let Some(spec) = spec else { continue };
        let (operations, since_ms) = index.accesses();
        stats.push(doc! {
            "name": index.name(),
            "key": Document::try_from(spec.get_document("key").unwrap_or(index.key()))?,
            "host": host(call),
            "accesses": { "ops": operations as i64, "since": DateTime::from_millis(since_ms) },
            "spec": Document::try_from(&*spec)?,
        });
    }
    Ok(stats)
}

/// The plans that are remembered. There are no routers, so that all are this server's.
fn plan_cache_stats(call: &Invocation<'_>, namespace: &Namespace, options: &RawDocument) -> Result<Vec<Document>> {
    let arguments = Arguments::of("$planCacheStats");
    arguments.each(options, |name, value| match name {
        "allHosts" if arguments.boolean(name, value)? => Err(CommandError::new(
            ErrorCode(4_503_200),
            "$planCacheStats with allHosts: true is only supported in sharded clusters",
        )),
        name => Ok(name == "allHosts"),
    })?;
    let mut plans = query::exec::cached_plans(&call.context(), namespace);
    for plan in &mut plans {
        plan.insert("host", host(call));
    }
    Ok(plans)
}

fn current_op(call: &Invocation<'_>, (ns, db): Subject<'_>, options: &RawDocument) -> Result<Vec<Document>> {
    if ns.is_some() || db != "admin" {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            "$currentOp must be run against the 'admin' database with {aggregate: 1}",
        ));
    }
    let arguments = Arguments::of("$currentOp");
    let mut shown = Shown {
        own_only: !matches!(call.rights, Rights::Unchecked),
        ..Shown::default()
    };
    arguments.each(options, |name, value| {
        match name {
            "idleConnections" => shown.idle_connections = arguments.flag(name, value)?,
            "idleCursors" => shown.idle_cursors = arguments.flag(name, value)?,
            "idleSessions" => shown.idle_sessions = arguments.flag(name, value)?,
            "allUsers" => shown.own_only &= !arguments.flag(name, value)?,
            "truncateOps" => shown.truncate = arguments.flag(name, value)?,
            // There is one server: nothing to widen.
            "localOps" | "targetAllNodes" => {
                arguments.flag(name, value)?;
            }
            other => {
                return Err(CommandError::new(
                    ErrorCode::FailedToParse,
                    format!("Unrecognized option '{other}' in $currentOp stage."),
                ));
            }
        }
        Ok(true)
    })?;
    Ok(operations(call, shown))
}
