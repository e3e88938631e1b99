//! Which figures of `serverStatus` are metrics: name, sort, meaning, and where the figure stands.
//!
//! Names follow Prometheus' conventions: base units, and `_total` for what only grows. A figure that the engine in use
//! does not have is left out.

/// What a scraper may do with a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

impl Kind {
    /// As the format calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// Where the figures of a metric stand, by dotted paths.
pub enum Source {
    /// There.
    One(&'static str),
    /// One for each value of a label.
    Labelled(&'static str, &'static [(&'static str, &'static str)]),
    /// One for each field of the document at the path, below it at the second one.
    Each(&'static str, &'static str, &'static str),
}

/// A metric.
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its sort.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
    /// The figure is so many of the metric's unit.
    pub divisor: f64,
    /// Where it stands.
    pub source: Source,
}

const fn counter(name: &'static str, help: &'static str, source: Source) -> Family {
    Family {
        name,
        kind: Kind::Counter,
        help,
        divisor: 1.0,
        source,
    }
}

const fn gauge(name: &'static str, help: &'static str, source: Source) -> Family {
    Family {
        kind: Kind::Gauge,
        ..counter(name, help, source)
    }
}

impl Family {
    /// The figure is in this part of a second, or of another unit.
    const fn divided_by(self, divisor: f64) -> Self {
        Self { divisor, ..self }
    }
}

const MICROS: f64 = 1e6;
const MILLIS: f64 = 1e3;
/// The figure is in KiB.
const KIB: f64 = 1.0 / 1024.0;

use Source::{Each, Labelled, One};

/// All of them, in the order in which they are shown.
pub const FAMILIES: &[Family] = &[
    gauge(
        "tenon_uptime_seconds",
        "Time since the server started.",
        One("uptimeMillis"),
    )
    .divided_by(MILLIS),
    counter(
        "tenon_operations_total",
        "Operations by type.",
        Labelled(
            "type",
            &[
                ("insert", "opcounters.insert"),
                ("query", "opcounters.query"),
                ("update", "opcounters.update"),
                ("delete", "opcounters.delete"),
                ("getmore", "opcounters.getmore"),
                ("command", "opcounters.command"),
            ],
        ),
    ),
    counter(
        "tenon_replicated_operations_total",
        "Operations applied from the log, by type.",
        Labelled(
            "type",
            &[
                ("insert", "opcountersRepl.insert"),
                ("update", "opcountersRepl.update"),
                ("delete", "opcountersRepl.delete"),
                ("command", "opcountersRepl.command"),
            ],
        ),
    ),
    counter(
        "tenon_commands_total",
        "Calls of each command.",
        Each("command", "metrics.commands", "total"),
    ),
    counter(
        "tenon_commands_failed_total",
        "Calls of each command that answered an error.",
        Each("command", "metrics.commands", "failed"),
    ),
    counter("tenon_errors_total", "Errors answered to clients.", One("asserts.user")),
    counter(
        "tenon_documents_total",
        "Documents by what was done with them.",
        Labelled(
            "action",
            &[
                ("inserted", "metrics.document.inserted"),
                ("returned", "metrics.document.returned"),
                ("updated", "metrics.document.updated"),
                ("deleted", "metrics.document.deleted"),
            ],
        ),
    ),
    counter(
        "tenon_keys_examined_total",
        "Index keys that queries looked at.",
        One("metrics.queryExecutor.scanned"),
    ),
    counter(
        "tenon_documents_examined_total",
        "Documents that queries looked at.",
        One("metrics.queryExecutor.scannedObjects"),
    ),
    counter(
        "tenon_collection_scans_total",
        "Queries that read a collection from end to end.",
        One("metrics.queryExecutor.collectionScans.total"),
    ),
    counter(
        "tenon_sorts_total",
        "Queries that sorted in memory.",
        One("metrics.operation.scanAndOrder"),
    ),
    counter(
        "tenon_write_conflicts_total",
        "Times that a write met another one, and waited or was tried again.",
        One("metrics.operation.writeConflicts"),
    ),
    gauge("tenon_connections", "Connections open.", One("connections.current")),
    gauge(
        "tenon_connections_active",
        "Connections that run an operation.",
        One("connections.active"),
    ),
    gauge(
        "tenon_connections_available",
        "Connections that could still come.",
        One("connections.available"),
    ),
    counter(
        "tenon_connections_created_total",
        "Connections accepted.",
        One("connections.totalCreated"),
    ),
    counter(
        "tenon_connections_rejected_total",
        "Connections refused.",
        One("connections.rejected"),
    ),
    gauge(
        "tenon_active_operations",
        "Operations that run.",
        Labelled(
            "kind",
            &[
                ("read", "globalLock.activeClients.readers"),
                ("write", "globalLock.activeClients.writers"),
            ],
        ),
    ),
    gauge(
        "tenon_waiting_operations",
        "Operations that wait for a lock.",
        Labelled(
            "kind",
            &[
                ("read", "globalLock.currentQueue.readers"),
                ("write", "globalLock.currentQueue.writers"),
            ],
        ),
    ),
    counter(
        "tenon_network_bytes_total",
        "Bytes of requests and replies as they went over the network.",
        Labelled(
            "direction",
            &[("in", "network.physicalBytesIn"), ("out", "network.physicalBytesOut")],
        ),
    ),
    counter("tenon_network_requests_total", "Requests.", One("network.numRequests")),
    gauge(
        "tenon_cursors_open",
        "Cursors open, and those of them that never time out or that an operation uses.",
        Labelled(
            "state",
            &[
                ("total", "metrics.cursor.open.total"),
                ("noTimeout", "metrics.cursor.open.noTimeout"),
                ("pinned", "metrics.cursor.open.pinned"),
            ],
        ),
    ),
    counter(
        "tenon_cursors_opened_total",
        "Cursors opened.",
        One("metrics.cursor.totalOpened"),
    ),
    counter(
        "tenon_cursors_timed_out_total",
        "Cursors that nobody asked for more.",
        One("metrics.cursor.timedOut"),
    ),
    gauge(
        "tenon_sessions",
        "Logical sessions in use.",
        One("logicalSessionRecordCache.activeSessionsCount"),
    ),
    gauge(
        "tenon_transactions_open",
        "Transactions open, by whether a statement of them runs.",
        Labelled(
            "state",
            &[
                ("active", "transactions.currentActive"),
                ("inactive", "transactions.currentInactive"),
            ],
        ),
    ),
    counter(
        "tenon_transactions_total",
        "Transactions by what became of them.",
        Labelled(
            "event",
            &[
                ("started", "transactions.totalStarted"),
                ("committed", "transactions.totalCommitted"),
                ("aborted", "transactions.totalAborted"),
            ],
        ),
    ),
    gauge("tenon_collections", "Collections.", One("catalogStats.collections")),
    gauge("tenon_views", "Views.", One("catalogStats.views")),
    gauge(
        "tenon_cache_bytes",
        "Bytes in the engine's cache, or in memory for an engine that keeps all of it there.",
        One("tenon.common.cacheBytes"),
    ),
    gauge(
        "tenon_cache_max_bytes",
        "Bytes that the engine's cache may have.",
        One("tenon.common.cacheBytesMax"),
    ),
    gauge(
        "tenon_cache_dirty_bytes",
        "Bytes in memory that the next checkpoint or flush writes.",
        One("tenon.common.dirtyBytes"),
    ),
    counter(
        "tenon_cache_evictions_total",
        "Pages evicted from the engine's cache.",
        One("tenon.common.pagesEvicted"),
    ),
    counter(
        "tenon_cache_reads_total",
        "Pages read into the engine's cache.",
        One("tenon.common.pagesRead"),
    ),
    gauge(
        "tenon_history_bytes",
        "Versions kept for open snapshots.",
        One("tenon.common.historyBytes"),
    ),
    gauge(
        "tenon_snapshots_open",
        "Snapshots open.",
        One("tenon.common.snapshotsOpen"),
    ),
    gauge(
        "tenon_data_files_bytes",
        "Bytes of the engine's files.",
        One("tenon.common.fileBytes"),
    ),
    counter(
        "tenon_data_files_read_bytes_total",
        "Bytes read from the engine's files.",
        One("tenon.common.bytesRead"),
    ),
    counter(
        "tenon_data_files_written_bytes_total",
        "Bytes written to the engine's files.",
        One("tenon.common.bytesWritten"),
    ),
    counter(
        "tenon_write_delay_seconds_total",
        "Time for which writers were held back because the engine could not keep up.",
        One("tenon.common.writeDelayMicros"),
    )
    .divided_by(MICROS),
    counter(
        "tenon_checkpoints_total",
        "Checkpoints taken.",
        One("tenon.checkpoints.count"),
    ),
    counter(
        "tenon_checkpoints_failed_total",
        "Checkpoints that failed.",
        One("tenon.checkpoints.failed"),
    ),
    counter(
        "tenon_checkpoint_seconds_total",
        "Time that checkpoints took.",
        One("tenon.checkpoints.totalMillis"),
    )
    .divided_by(MILLIS),
    gauge(
        "tenon_checkpoint_last_seconds",
        "Time that the last one took.",
        One("tenon.checkpoints.lastMillis"),
    )
    .divided_by(MILLIS),
    gauge(
        "tenon_checkpoint_running",
        "1 while a checkpoint is taken.",
        One("tenon.checkpoints.running"),
    ),
    counter(
        "tenon_log_entries_total",
        "Entries appended to the log.",
        One("tenon.log.entries"),
    ),
    counter(
        "tenon_log_entry_bytes_total",
        "Bytes of those entries.",
        One("tenon.log.bytesAppended"),
    ),
    counter(
        "tenon_log_written_bytes_total",
        "Bytes written to the log's files.",
        One("tenon.log.bytesWritten"),
    ),
    counter(
        "tenon_log_groups_total",
        "Group commits: entries divided by them is how many share one.",
        One("tenon.log.groups"),
    ),
    counter("tenon_log_syncs_total", "Syncs of the log.", One("tenon.log.syncs")),
    counter(
        "tenon_log_sync_seconds_total",
        "Time that those took.",
        One("tenon.log.syncMicros"),
    )
    .divided_by(MICROS),
    gauge(
        "tenon_log_buffer_bytes",
        "Bytes of the log that are not on disk yet.",
        One("tenon.log.bufferBytes"),
    ),
    gauge("tenon_log_segments", "Files of the log.", One("tenon.log.segments")),
    counter(
        "tenon_log_waits_total",
        "Writers that waited for room in the log's buffer.",
        One("tenon.log.waitsForRoom"),
    ),
    counter(
        "tenon_log_shortages_total",
        "Times that the disk had no room for the next file of the log.",
        One("tenon.log.shortages"),
    ),
    counter(
        "tenon_log_history_given_up_bytes_total",
        "Bytes of the log's history that went for want of room on the disk.",
        One("tenon.log.historyGivenUpBytes"),
    ),
    counter("tenon_commits_total", "Writes committed.", One("tenon.commits")),
    gauge(
        "tenon_locks_held",
        "Locks of documents and unique keys that are held.",
        One("tenon.locks.held"),
    ),
    counter(
        "tenon_lock_conflicts_total",
        "Locks that another operation held.",
        One("tenon.locks.conflicts"),
    ),
    counter(
        "tenon_lock_wait_seconds_total",
        "Time that operations waited for documents and unique keys that others had locked.",
        One("tenon.locks.waitMicros"),
    )
    .divided_by(MICROS),
    gauge(
        "tenon_operation_memory_bytes",
        "Memory that operations gather results in.",
        One("tenon.operationMemory.bytes"),
    ),
    gauge(
        "tenon_operation_memory_max_bytes",
        "What all of them together may have.",
        One("tenon.operationMemory.bytesMax"),
    ),
    counter(
        "tenon_operation_memory_refused_total",
        "Times that an operation was refused memory.",
        One("tenon.operationMemory.refused"),
    ),
    gauge(
        "tenon_index_builds_running",
        "Index builds that run.",
        One("tenon.indexBuilds.running"),
    ),
    counter(
        "tenon_server_log_lost_lines_total",
        "Lines that the server's log could not be written to.",
        One("tenon.serverLog.lostLines"),
    ),
    counter(
        "tenon_ttl_passes_total",
        "Passes over collections with a TTL index.",
        One("metrics.ttl.passes"),
    ),
    counter(
        "tenon_ttl_deleted_documents_total",
        "Documents deleted because they expired.",
        One("metrics.ttl.deletedDocuments"),
    ),
    counter(
        "tenon_ttl_failures_total",
        "What such passes could not read.",
        One("metrics.ttl.failures"),
    ),
    gauge(
        "tenon_flow_control_lagged",
        "1 while writers are held back for followers.",
        One("flowControl.isLagged"),
    ),
    counter(
        "tenon_flow_control_lagged_seconds_total",
        "Time for which they were.",
        One("flowControl.isLaggedTimeMicros"),
    )
    .divided_by(MICROS),
    counter(
        "tenon_flow_control_wait_seconds_total",
        "Time that writers waited for it.",
        One("flowControl.timeAcquiringMicros"),
    )
    .divided_by(MICROS),
    gauge(
        "tenon_resident_memory_peak_bytes",
        "Most memory that the process had.",
        One("extra_info.maximum_resident_set_kb"),
    )
    .divided_by(KIB),
    gauge(
        "tenon_resident_memory_bytes",
        "Memory of the process, to the MiB.",
        One("mem.resident"),
    )
    .divided_by(KIB / 1024.0),
    counter(
        "tenon_cpu_seconds_total",
        "Processor time of the process.",
        Labelled(
            "mode",
            &[
                ("user", "extra_info.user_time_us"),
                ("system", "extra_info.system_time_us"),
            ],
        ),
    )
    .divided_by(MICROS),
    counter(
        "tenon_page_faults_total",
        "Page faults that read from disk.",
        One("extra_info.page_faults"),
    ),
    gauge("tenon_threads", "Threads of the process.", One("extra_info.threads")),
];
