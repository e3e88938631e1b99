//! `serverStatus`: counters and gauges, with the types that monitoring tools insist on.

use super::host_info::{line_value, read_text};
use crate::arguments::Arguments;
use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::ReplicaSet;
use crate::reply::{Reply, narrowed};
use crate::server::Server;
use crate::tickets::{Pool, Tickets};
use auth::Action;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, DateTime, Document, doc};
use engine::StatValue;
use std::sync::atomic::Ordering;
use storage::{LevelStats, LockMode};

/// `serverStatus`.
pub const SERVER_STATUS: Command = Command::new(
    "serverStatus",
    "Counters and gauges of the server.",
    OperationKind::Command,
    Access::cluster(&[Action::ServerStatus]),
    run,
)
.secondary_ok();

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    reply.append_all(&status(call)?);
    Ok(())
}

/// A section and how to make it.
type Section = (&'static str, fn(&Invocation<'_>) -> Result<Bson>);

const SECTIONS: &[Section] = &[
    ("asserts", asserts),
    ("catalogStats", catalog_stats),
    ("connections", connections),
    ("encryptionAtRest", |call| {
        let encryption = call.server.settings.encryption.as_ref();
        let mut document = doc! { "encryptionEnabled": encryption.is_some() };
        if let Some(encryption) = encryption {
            document.insert("encryptionCipherMode", &encryption.cipher_mode);
            document.insert("encryptionKeyId", encryption.key_generation.to_string());
        }
        Ok(document.into())
    }),
    ("extra_info", extra_info),
    ("globalLock", global_lock),
    ("locks", locks),
    ("logicalSessionRecordCache", |call| {
        Ok(doc! { "activeSessionsCount": call.server.session_cache.len() as i32 }.into())
    }),
    ("mem", memory),
    ("metrics", metrics),
    ("network", network),
    ("opLatencies", latencies),
    ("opcounters", opcounters),
    ("opcountersRepl", |call| {
        let [insert, update, delete, command] = call
            .server
            .storage
            .stats()
            .followed_operations
            .map(|count| count as i64);
        Ok(doc! {
            "insert": insert, "query": 0_i64, "update": update, "delete": delete, "getmore": 0_i64, "command": command,
        }
        .into())
    }),
    ("flowControl", flow_control),
    ("querySettings", super::query_settings::section),
    ("queues", |call| Ok(doc! { "execution": execution(call) }.into())),
    ("security", |call| {
        Ok(doc! { "authentication": call.server.metrics.attempts.document() }.into())
    }),
    ("storageEngine", storage_engine),
    ("tenon", tenon),
    ("transactions", transactions),
    ("wiredTiger", super::wired_tiger::section),
];

/// The whole document, without `ok`.
pub fn status(call: &Invocation<'_>) -> Result<Document> {
    let server = call.server;
    let started = server.started.1;
    let uptime = server.env.clock.monotonic().saturating_sub(started);
    let mut document = doc! {
        "host": format!("{}:{}", server.settings.host, server.settings.port),
        "version": server.settings.version_string(),
        "process": "mongod",
        "service": ["mongod"],
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs() as f64,
        "uptimeMillis": uptime.as_millis() as i64,
        "uptimeEstimate": uptime.as_secs() as i64,
        "localTime": DateTime::from_millis(server.env.clock.now_ms()),
    };
    for (name, make) in SECTIONS {
        if !is_left_out(call, name)? {
            document.insert(*name, make(call)?);
        }
    }
    if let Some(set) = server.replica_set()
        && !is_left_out(call, "repl")?
    {
        document.insert("repl", repl(server, set)?);
    }
    Ok(document)
}

/// What writers are held back by while a majority shows late what is written.
fn flow_control(call: &Invocation<'_>) -> Result<Bson> {
    let figures = call.server.storage.flow_control().figures();
    Ok(doc! {
        "enabled": call.server.parameters.flow_control.load(Ordering::Relaxed),
        "targetRateLimit": figures.limit.map_or(1_000_000_000, |limit| limit as i32),
        "timeAcquiringMicros": figures.waited.as_micros() as i64,
        "sustainerRate": figures.sustained as i32,
        "isLagged": figures.is_lagged,
        "isLaggedCount": figures.lagged_count as i32,
        "isLaggedTimeMicros": figures.lagged.as_micros() as i64,
    }
    .into())
}

/// What `hello` tells of the set.
fn repl(server: &Server, set: &ReplicaSet) -> Result<Document> {
    let mut bytes = Vec::new();
    let mut reply = Reply::begin(&mut bytes);
    set.write_hello(&mut reply, "isWritablePrimary", &server.storage);
    reply.finish();
    let mut document = Document::try_from(RawDocument::from_bytes(&bytes)?)?;
    document.insert("rbid", super::replication::ROLLBACK_ID);
    // 1: users write, 2: they are held off.
    let blocks = server.storage.are_user_writes_blocked();
    document.insert("userWriteBlockMode", 1 + i32::from(blocks));
    Ok(document)
}

/// `{ serverStatus: 1, locks: 0 }` leaves a section out.
fn is_left_out(call: &Invocation<'_>, section: &str) -> Result<bool> {
    if call.command.name != "serverStatus" {
        return Ok(false);
    }
    Ok(match call.body.get(section)? {
        None => false,
        Some(RawBsonRef::Boolean(wanted)) => !wanted,
        Some(number) => crate::arguments::number_as_i64(number) == Some(0),
    })
}

fn asserts(call: &Invocation<'_>) -> Result<Bson> {
    let asserts = &call.server.metrics.asserts;
    let [regular, user] = [&asserts.regular, &asserts.user].map(|counter| counter.get() as i32);
    Ok(doc! { "regular": regular, "warning": 0, "msg": 0, "user": user, "tripwire": 0, "rollovers": 0 }.into())
}

fn catalog_stats(call: &Invocation<'_>) -> Result<Bson> {
    let catalog = call.server.storage.catalog();
    let (mut collections, mut capped, mut clustered, mut timeseries, mut views) = (0, 0, 0, 0, 0);
    let mut internal = 0;
    for database in catalog.databases() {
        for collection in catalog.collections(&database) {
            let is_internal = matches!(&*database, "admin" | "config" | "local");
            if is_internal || collection.namespace().collection().starts_with("system.") {
                internal += 1;
                continue;
            }
            collections += 1;
            capped += i32::from(collection.is_capped().is_some());
            clustered += i32::from(collection.clustered_index().is_some());
        }
        for view in catalog.views(&database) {
            match catalog.buckets_of(&view) {
                Some(_) => timeseries += 1,
                None => views += 1,
            }
        }
    }
    Ok(doc! {
        "collections": collections, "capped": capped, "clustered": clustered, "timeseries": timeseries, "views": views,
        "internalCollections": internal, "internalViews": 0,
    }
    .into())
}

/// What the connected clients do now.
#[derive(Default)]
struct Activity {
    connected: i32,
    /// Running `find`, `aggregate`, `getMore` and the like.
    reading: i32,
    /// Running an insert, update or delete.
    writing: i32,
    /// Running anything else.
    other: i32,
    /// Drivers' monitors: they wait in `hello` for a change of the topology.
    watching: i32,
}

fn activity(call: &Invocation<'_>) -> Activity {
    let mut activity = Activity::default();
    for client in call.server.connected() {
        activity.connected += 1;
        client.with_current(|current, _| {
            let command = call.server.commands.find(current.command).map(|(command, _)| command);
            let count = match command.map(|command| (command.name, command.kind)) {
                Some(("hello" | "isMaster", _)) => &mut activity.watching,
                Some((_, OperationKind::Insert | OperationKind::Update | OperationKind::Remove)) => {
                    &mut activity.writing
                }
                Some((_, OperationKind::Query | OperationKind::GetMore)) => &mut activity.reading,
                _ => &mut activity.other,
            };
            *count += 1;
        });
    }
    activity
}

fn connections(call: &Invocation<'_>) -> Result<Bson> {
    let activity = activity(call);
    let metrics = &call.server.metrics;
    let max = call.server.settings.connections_max as i32;
    let active = activity.reading + activity.writing + activity.other;
    Ok(doc! {
        "current": activity.connected,
        "available": (max - activity.connected).max(0),
        "totalCreated": metrics.connections_created.get(),
        "rejected": metrics.connections_rejected.get(),
        "active": active,
        "threaded": activity.connected,
        "awaitingTopologyChanges": activity.watching,
    }
    .into())
}

/// The tickets of reads and writes.
pub(super) fn execution(call: &Invocation<'_>) -> Document {
    let small = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let tickets = |pool: &Pool| {
        let figures = pool.figures();
        doc! {
            "out": small(figures.out),
            "available": small(figures.total.saturating_sub(figures.out)),
            "totalTickets": small(figures.total),
            "normalPriority": {
                "queueLength": small(figures.queued),
                "addedToQueue": figures.ever_queued as i64,
                "removedFromQueue": (figures.ever_queued - figures.queued as u64) as i64,
                "canceled": figures.canceled as i64,
                "refused": figures.refused as i64,
                "totalTimeQueuedMicros": figures.queued_time.as_micros() as i64,
            },
        }
    };
    let Tickets { read, write } = &call.server.tickets;
    doc! { "write": tickets(write), "read": tickets(read) }
}

/// Microseconds of one tick of the kernel's clock of processes, a hundred a second on every machine.
const TICK_US: i64 = 10_000;

fn extra_info(call: &Invocation<'_>) -> Result<Bson> {
    let stat = read_text(call, "/proc/self/stat");
    // The program's name stands in brackets and may hold anything; field 3 follows it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        let text = fields.split_whitespace().nth(number - 3);
        text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    let (page_reclaims, page_faults, user, system, threads) = (field(10), field(12), field(14), field(15), field(20));
    let peak = line_value(&read_text(call, "/proc/self/status"), "VmHWM", ':')
        .and_then(|value| value.split(' ').next()?.parse::<i64>().ok());
    Ok(doc! {
        "note": "fields vary by platform",
        "user_time_us": user * TICK_US,
        "system_time_us": system * TICK_US,
        "maximum_resident_set_kb": peak.unwrap_or(0),
        "page_reclaims": page_reclaims,
        "page_faults": page_faults,
        "threads": threads,
    }
    .into())
}

fn global_lock(call: &Invocation<'_>) -> Result<Bson> {
    let Activity { reading, writing, .. } = activity(call);
    let (readers, writers) = waiting(call);
    let uptime = call.server.env.clock.monotonic().saturating_sub(call.server.started.1);
    Ok(doc! {
        "totalTime": uptime.as_micros() as i64,
        "currentQueue": { "total": readers + writers, "readers": readers, "writers": writers },
        "activeClients": { "total": reading + writing, "readers": reading, "writers": writing },
    }
    .into())
}

/// Operations that wait for a lock, or for writes to be let on: those that read, and those that write.
fn waiting(call: &Invocation<'_>) -> (i32, i32) {
    let (mut readers, mut writers) = (0, 0);
    for client in call.server.connected() {
        client.with_current(|_, operation| match operation.waiting_for_lock() {
            Some(LockMode::IntentShared | LockMode::Shared) => readers += 1,
            Some(LockMode::IntentExclusive | LockMode::Exclusive) => writers += 1,
            None => {}
        });
    }
    let queued = |pool: &Pool| i32::try_from(pool.figures().queued).unwrap_or(i32::MAX);
    let Tickets { read, write } = &call.server.tickets;
    (readers + queued(read), writers + queued(write))
}

fn lock_level(level: &LevelStats) -> Document {
    let names = ["r", "w", "R", "W"];
    let collect = |figure: fn(&storage::ModeStats) -> u64| -> Document {
        names
            .iter()
            .zip(&level.modes)
            .filter(|(_, stats)| figure(stats) > 0)
            .map(|(name, stats)| ((*name).to_owned(), Bson::Int64(figure(stats) as i64)))
            .collect()
    };
    let mut document = doc! { "acquireCount": collect(|stats| stats.acquire_count) };
    let waits = collect(|stats| stats.acquire_wait_count);
    if !waits.is_empty() {
        document.insert("acquireWaitCount", waits);
        document.insert("timeAcquiringMicros", collect(|stats| stats.time_acquiring_us));
    }
    document
}

fn locks(call: &Invocation<'_>) -> Result<Bson> {
    let stats = call.server.storage.lock_stats();
    Ok(doc! {
        "Global": lock_level(&stats.global),
        "Database": lock_level(&stats.database),
        "Collection": lock_level(&stats.collection),
    }
    .into())
}

fn memory(call: &Invocation<'_>) -> Result<Bson> {
    let status = read_text(call, "/proc/self/status");
    let mib = |name| {
        let kib = line_value(&status, name, ':').and_then(|value| value.split(' ').next()?.parse::<i32>().ok());
        kib.unwrap_or(0) / 1024
    };
    Ok(doc! { "bits": 64, "resident": mib("VmRSS"), "virtual": mib("VmSize"), "supported": true }.into())
}

fn metrics(call: &Invocation<'_>) -> Result<Bson> {
    let server = call.server;
    let metrics = &server.metrics;
    let mut commands = Document::new();
    for (command, counters) in server.commands.iter().zip(&server.command_counters) {
        if counters.total.get() > 0 {
            let mut counted = doc! { "failed": counters.failed.get(), "total": counters.total.get() };
            if matches!(command.name, "aggregate" | "distinct" | "find") {
                counted.insert("rejected", counters.rejected.get());
            }
            commands.insert(command.name, counted);
        }
    }
    let open = server.cursors.counts();
    let storage = server.storage.stats();
    let documents = &metrics.documents;
    let queries = &metrics.queries;
    let mut query = metrics.blocking.document();
    query.insert("planCache", metrics.plan_cache.document());
    Ok(doc! {
        "apiVersions": metrics.api_versions.document(server.env.clock.monotonic()),
        "commands": commands,
        "cursor": {
            "timedOut": server.cursors.timed_out.get(),
            "totalOpened": server.cursors.opened.get(),
            "open": { "noTimeout": open.no_timeout, "pinned": open.pinned, "total": open.total },
        },
        "document": {
            "deleted": documents.deleted.get(),
            "inserted": documents.inserted.get(),
            "returned": documents.returned.get(),
            "updated": documents.updated.get(),
        },
        "operation": { "scanAndOrder": queries.scan_and_order.get(), "writeConflicts": queries.write_conflicts.get() },
        "query": query,
        "queryExecutor": {
            "scanned": queries.scanned.get(),
            "scannedObjects": queries.scanned_objects.get(),
            "collectionScans": {
                "nonTailable": queries.non_tailable_scans.get(),
                "total": queries.collection_scans.get(),
            },
        },
        "ttl": {
            "deletedDocuments": storage.ttl_deleted as i64,
            "failures": storage.ttl_failures as i64,
            "passes": storage.ttl_passes as i64,
        },
    }
    .into())
}

fn transactions(call: &Invocation<'_>) -> Result<Bson> {
    let sessions = &call.server.sessions;
    let (inactive, active) = sessions.open();
    let counters = &sessions.counters;
    Ok(doc! {
        "retriedStatementsCount": counters.retried.get(),
        "currentActive": active as i64,
        "currentInactive": inactive as i64,
        "currentOpen": (active + inactive) as i64,
        "totalAborted": counters.aborted.get(),
        "totalCommitted": counters.committed.get(),
        "totalStarted": counters.started.get(),
    }
    .into())
}

fn network(call: &Invocation<'_>) -> Result<Bson> {
    let network = &call.server.metrics.network;
    Ok(doc! {
        "bytesIn": network.bytes_in.get(),
        "bytesOut": network.bytes_out.get(),
        "physicalBytesIn": network.physical_bytes_in.get(),
        "physicalBytesOut": network.physical_bytes_out.get(),
        "numRequests": network.requests.get(),
    }
    .into())
}

/// `{ serverStatus: 1, opLatencies: { histograms: true } }` has how many operations took how long.
fn latencies(call: &Invocation<'_>) -> Result<Bson> {
    let with_histograms = wants_histograms(call)?;
    let mut document = Document::new();
    for (name, latency) in call.server.metrics.latencies.rows() {
        let mut of = doc! { "latency": latency.time_us(), "ops": latency.operations() };
        if with_histograms {
            let rows = latency.histogram.rows();
            let rows = rows.map(|(micros, count)| Bson::Document(doc! { "micros": micros, "count": count }));
            of.insert("histogram", rows.collect::<Vec<_>>());
        }
        document.insert(name, of);
    }
    Ok(document.into())
}

fn wants_histograms(call: &Invocation<'_>) -> Result<bool> {
    if call.command.name != "serverStatus" {
        return Ok(false);
    }
    let Some(RawBsonRef::Document(options)) = call.body.get("opLatencies")? else {
        return Ok(false);
    };
    let arguments = Arguments::of("serverStatus.opLatencies");
    let mut wanted = false;
    arguments.each(options, |name, value| {
        if name == "histograms" {
            wanted = arguments.flag(name, value)?;
        }
        Ok(name == "histograms")
    })?;
    Ok(wanted)
}

fn opcounters(call: &Invocation<'_>) -> Result<Bson> {
    let operations = &call.server.metrics.operations;
    Ok(doc! {
        "insert": operations.insert.get(),
        "query": operations.query.get(),
        "update": operations.update.get(),
        "delete": operations.delete.get(),
        "getmore": operations.getmore.get(),
        "command": operations.command.get(),
    }
    .into())
}

fn storage_engine(call: &Invocation<'_>) -> Result<Bson> {
    let info = call.server.storage.engine().info();
    Ok(doc! {
        "name": info.name,
        "supportsCommittedReads": true,
        "supportsSnapshotReadConcern": false,
        "readOnly": false,
        "persistent": call.server.settings.journal || info.capabilities.checkpoint_cost != engine::CheckpointCost::Never,
        "backupCursorOpen": call.server.storage.is_backup_open(),
    }
    .into())
}

/// Nested documents of the engine's dotted counters.
fn engine_counters(call: &Invocation<'_>) -> Document {
    let mut document = Document::new();
    let engine = call.server.storage.engine();
    engine.stats(&mut |name, value| insert_dotted(&mut document, name, shown(value)));
    document
}

fn shown(value: StatValue) -> Bson {
    match value {
        StatValue::Number(number) => Bson::Int64(number),
        StatValue::Float(number) => Bson::Double(number),
        StatValue::Text(text) => Bson::String(text),
    }
}

/// Adds what an engine alone can tell of a table or a database: bytes, whose names end in `Size`, are scaled.
pub(super) fn insert_detail(document: &mut Document, name: &str, value: StatValue, scale: i64) {
    let value = match shown(value) {
        Bson::Int64(number) if name.ends_with("Size") => narrowed(number / scale),
        Bson::Int64(number) => narrowed(number),
        value => value,
    };
    insert_dotted(document, name, value);
}

fn insert_dotted(document: &mut Document, name: &str, value: Bson) {
    match name.split_once('.') {
        None => drop(document.insert(name, value)),
        Some((head, rest)) => {
            let inner = document
                .entry(head.to_owned())
                .or_insert_with(|| Bson::Document(Document::new()));
            if let Bson::Document(inner) = inner {
                insert_dotted(inner, rest, value);
            }
        }
    }
}

/// Tenon's own section: the log, checkpoints, what all engines count (`common`) and what this one does (`engine`).
fn tenon(call: &Invocation<'_>) -> Result<Bson> {
    let storage = call.server.storage.stats();
    let log = call.server.storage.log().stats();
    let memory = call.server.memory();
    let common = call.server.storage.engine().common_stats();
    let common: Document = common
        .named()
        .map(|(name, figure)| (name.to_owned(), Bson::from(figure as i64)))
        .collect();
    let (audited, audit_lost) = call
        .server
        .settings
        .audit
        .as_ref()
        .map_or((0, 0), |audit| audit.counts());
    Ok(doc! {
        "version": super::build_info::TENON_VERSION,
        "log": {
            "on": call.server.settings.journal,
            "entries": log.entries as i64,
            "lastSeq": call.server.storage.last_seq().0 as i64,
            "durableSeq": call.server.storage.log().durable_seq().0 as i64,
            "bytesAppended": log.entry_bytes as i64,
            "bytesWritten": log.written_bytes as i64,
            "groups": log.groups as i64,
            "syncs": log.syncs as i64,
            "syncMicros": log.sync_us as i64,
            "bufferBytes": log.buffered_bytes as i64,
            "segments": log.segments as i64,
            "waitsForRoom": log.waits_for_room as i64,
            "lacksRoom": log.is_short,
            "shortages": log.shortages as i64,
            "historyGivenUpBytes": log.history_given_up_bytes as i64,
        },
        "checkpoints": {
            "count": storage.checkpoints as i64,
            "failed": storage.checkpoints_failed as i64,
            "running": storage.checkpoint_running,
            "lastMillis": storage.checkpoint_last_ms as i64,
            "maxMillis": storage.checkpoint_max_ms as i64,
            "totalMillis": storage.checkpoint_ms as i64,
            "durableSeq": call.server.storage.engine().durable_seq().0 as i64,
        },
        "commits": storage.commits as i64,
        "locks": {
            "held": storage.locks_held as i64,
            "conflicts": storage.conflicts as i64,
            "waitMicros": call.server.metrics.queries.document_wait_us.get(),
        },
        "indexBuilds": { "running": storage.index_builds as i64 },
        "operationMemory": {
            "bytes": memory.used() as i64,
            "bytesMax": i64::try_from(memory.total_bytes_max()).unwrap_or(i64::MAX),
            "refused": memory.refused() as i64,
        },
        "audit": { "events": audited, "lost": audit_lost },
        "serverLog": { "lostLines": call.server.logger.lost_lines() as i64 },
        "common": common,
        "engine": engine_counters(call),
    }
    .into())
}
