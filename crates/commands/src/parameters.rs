//! Server parameters: what `getParameter` shows and `setParameter` changes.
//!
//! A parameter is here only when something reads it. Values that cannot be changed at run time are answered from the
//! settings by `getParameter` itself.

use crate::arguments::number_as_i64;
use crate::error::{CommandError, Result};
use bson::Bson;
use bson::raw::RawBsonRef;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use wire::ErrorCode;

/// The parameters that can be changed while the server runs.
pub struct Parameters {
    /// `cursorTimeoutMillis`: an idle cursor ends after this long.
    pub cursor_timeout_ms: AtomicI64,
    /// `auditAuthorizationSuccess`: the audit log has what was allowed, too.
    pub audits_success: AtomicBool,
    /// `ttlMonitorSleepSecs`: pause between passes of the TTL monitor.
    pub ttl_monitor_sleep_s: AtomicI64,
    /// `ttlMonitorEnabled`.
    pub ttl_monitor_enabled: AtomicBool,
    /// `syncdelay`: seconds between checkpoints.
    pub sync_delay_s: AtomicI64,
    /// `journalCommitInterval`: milliseconds between flushes of the log.
    pub journal_commit_interval_ms: AtomicI64,
    /// `slowms` of `profile`, and of the slow-operation log lines.
    pub slow_ms: AtomicI64,
    /// `snapshotHistoryCachePercent`: the part of the cache that may be kept for old snapshots.
    pub snapshot_history_percent: AtomicI64,
    /// `operationMemoryBytesMax`: what one operation may gather in memory: rows to sort, groups, values, index keys.
    pub operation_memory_bytes_max: AtomicI64,
    /// `totalOperationMemoryBytesMax`: what all operations together may.
    pub total_operation_memory_bytes_max: AtomicI64,
    /// `transactionLifetimeLimitSeconds`: a transaction ends after this long.
    pub transaction_lifetime_s: AtomicI64,
    /// `maxTransactionLockRequestTimeoutMillis`: how long a transaction waits for a collection.
    pub transaction_lock_timeout_ms: AtomicI64,
    /// `enableFlowControl`: a primary lets fewer writes begin while a majority shows them late.
    pub flow_control: AtomicBool,
    /// `flowControlTargetLagSeconds`: how late that may be.
    pub flow_control_lag_s: AtomicI64,
    /// `initialSyncMethod`, by its place in [`SYNC_METHODS`].
    pub sync_method: AtomicUsize,
    /// `initialSyncSourceReadPreference`, by its place in [`SYNC_SOURCES`].
    pub sync_source: AtomicUsize,
    /// `quiet`: the begin and the end of connections are not logged.
    pub quiet: AtomicBool,
    /// `allowDiskUseByDefault`: blocking stages may use the disk where the command does not say.
    pub disk_use_by_default: AtomicBool,
    /// `internalQueryMaxBlockingSortMemoryUsageBytes`: what a sort holds in memory.
    pub sort_bytes_max: AtomicI64,
    /// `internalDocumentSourceGroupMaxMemoryBytes`: what a `$group` does.
    pub group_bytes_max: AtomicI64,
    /// `internalDocumentSourceBucketAutoMaxMemoryBytes`: what a `$bucketAuto` does.
    pub bucket_auto_bytes_max: AtomicI64,
    /// `internalDocumentSourceSetWindowFieldsMaxMemoryBytes`: what a `$setWindowFields` does.
    pub window_bytes_max: AtomicI64,
    /// `internalDocumentSourceDensifyMaxMemoryBytes`: what a `$densify` does.
    pub densify_bytes_max: AtomicI64,
    /// `storageEngineConcurrentReadTransactions`: so many reads run at a time.
    pub read_tickets: AtomicI64,
    /// `storageEngineConcurrentWriteTransactions`: so many writes do.
    pub write_tickets: AtomicI64,
    /// `ticketQueueMax`: so many reads, and as many writes, may wait to run.
    pub ticket_queue_max: AtomicI64,
    /// `internalQuerySpillingMinAvailableDiskSpaceBytes`: nothing spills that would leave less free space.
    pub spilling_available_bytes_min: AtomicI64,
    /// `jsHeapLimitMB`: what the heap of one operation's scripts may have.
    pub script_heap_mb_max: AtomicI64,
    /// `internalQueryJavaScriptFnTimeoutMillis`: how long one call of a script may take.
    pub script_call_ms_max: AtomicI64,
}

/// How a member that has no data comes to them.
const SYNC_METHODS: [&str; 2] = ["fileCopyBased", "logical"];
/// Of whom it copies them.
const SYNC_SOURCES: [&str; 5] = [
    "primary",
    "primaryPreferred",
    "secondary",
    "secondaryPreferred",
    "nearest",
];
/// What one operation may gather in memory when nothing is set.
const OPERATION_MEMORY_BYTES_MAX: i64 = 1 << 30;
/// A limit of memory below what a single step of an account takes would refuse everything.
const MEMORY_BYTES_RANGE: std::ops::RangeInclusive<i64> = 1 << 20..=i64::MAX;
/// Reads, and writes, that run at a time when nothing is set, and that may wait.
const TICKETS: i64 = 128;
const TICKET_QUEUE_MAX: i64 = 4096;
/// With fewer, a few slow operations would hold everybody up.
const TICKETS_RANGE: std::ops::RangeInclusive<i64> = 5..=1_000_000;
/// Free disk space that spilling leaves when nothing is set.
const SPILLING_AVAILABLE_BYTES_MIN: i64 = 500 << 20;

/// A heap with less has no room for what every script finds.
const SCRIPT_HEAP_MB_RANGE: std::ops::RangeInclusive<i64> = 4..=1 << 20;

/// A value that a parameter can have, and where it goes.
pub enum Change<'p> {
    /// A number.
    Integer(&'p AtomicI64, i64),
    /// On or off.
    Boolean(&'p AtomicBool, bool),
    /// One of some words, by its place among them.
    Word(&'p AtomicUsize, usize),
}

impl Change<'_> {
    /// Makes it so.
    pub fn make(self) {
        match self {
            Self::Integer(slot, number) => slot.store(number, Ordering::Relaxed),
            Self::Boolean(slot, on) => slot.store(on, Ordering::Relaxed),
            Self::Word(slot, place) => slot.store(place, Ordering::Relaxed),
        }
    }
}

enum Slot<'p> {
    Integer(&'p AtomicI64, std::ops::RangeInclusive<i64>),
    Boolean(&'p AtomicBool),
    Word(&'p AtomicUsize, &'static [&'static str]),
}

impl Parameters {
    /// The defaults.
    pub fn new(slow_ms: i64, quiet: bool) -> Self {
        Self {
            cursor_timeout_ms: AtomicI64::new(600_000),
            audits_success: AtomicBool::new(false),
            ttl_monitor_sleep_s: AtomicI64::new(60),
            ttl_monitor_enabled: AtomicBool::new(true),
            sync_delay_s: AtomicI64::new(60),
            journal_commit_interval_ms: AtomicI64::new(100),
            slow_ms: AtomicI64::new(slow_ms),
            snapshot_history_percent: AtomicI64::new(i64::from(engine::HISTORY_PERCENT_DEFAULT)),
            operation_memory_bytes_max: AtomicI64::new(OPERATION_MEMORY_BYTES_MAX),
            total_operation_memory_bytes_max: AtomicI64::new(2 * OPERATION_MEMORY_BYTES_MAX),
            transaction_lifetime_s: AtomicI64::new(60),
            transaction_lock_timeout_ms: AtomicI64::new(5),
            flow_control: AtomicBool::new(true),
            flow_control_lag_s: AtomicI64::new(10),
            sync_method: AtomicUsize::new(0),
            sync_source: AtomicUsize::new(0),
            quiet: AtomicBool::new(quiet),
            disk_use_by_default: AtomicBool::new(true),
            sort_bytes_max: AtomicI64::new(query::BLOCKING_BYTES_MAX as i64),
            group_bytes_max: AtomicI64::new(query::BLOCKING_BYTES_MAX as i64),
            bucket_auto_bytes_max: AtomicI64::new(query::BLOCKING_BYTES_MAX as i64),
            window_bytes_max: AtomicI64::new(query::BLOCKING_BYTES_MAX as i64),
            densify_bytes_max: AtomicI64::new(query::BLOCKING_BYTES_MAX as i64),
            read_tickets: AtomicI64::new(TICKETS),
            write_tickets: AtomicI64::new(TICKETS),
            ticket_queue_max: AtomicI64::new(TICKET_QUEUE_MAX),
            spilling_available_bytes_min: AtomicI64::new(SPILLING_AVAILABLE_BYTES_MIN),
            script_heap_mb_max: AtomicI64::new((storage::SCRIPT_HEAP_BYTES_MAX >> 20) as i64),
            script_call_ms_max: AtomicI64::new(storage::SCRIPT_CALL_MS_MAX as i64),
        }
    }

    /// Names, sorted.
    pub const NAMES: [&'static str; 28] = [
        "allowDiskUseByDefault",
        "auditAuthorizationSuccess",
        "cursorTimeoutMillis",
        "enableFlowControl",
        "flowControlTargetLagSeconds",
        "initialSyncMethod",
        "initialSyncSourceReadPreference",
        "internalDocumentSourceBucketAutoMaxMemoryBytes",
        "internalDocumentSourceDensifyMaxMemoryBytes",
        "internalDocumentSourceGroupMaxMemoryBytes",
        "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
        "internalQueryJavaScriptFnTimeoutMillis",
        "internalQueryMaxBlockingSortMemoryUsageBytes",
        "internalQuerySpillingMinAvailableDiskSpaceBytes",
        "journalCommitInterval",
        "jsHeapLimitMB",
        "maxTransactionLockRequestTimeoutMillis",
        "operationMemoryBytesMax",
        "quiet",
        "snapshotHistoryCachePercent",
        "storageEngineConcurrentReadTransactions",
        "storageEngineConcurrentWriteTransactions",
        "syncdelay",
        "ticketQueueMax",
        "totalOperationMemoryBytesMax",
        "transactionLifetimeLimitSeconds",
        "ttlMonitorEnabled",
        "ttlMonitorSleepSecs",
    ];

    /// Whether a member without data copies files where it can.
    pub fn copies_files(&self) -> bool {
        SYNC_METHODS[self.sync_method.load(Ordering::Relaxed)] == "fileCopyBased"
    }

    /// See [`SYNC_SOURCES`].
    pub fn sync_source(&self) -> &'static str {
        SYNC_SOURCES[self.sync_source.load(Ordering::Relaxed)]
    }

    fn slot(&self, name: &str) -> Option<Slot<'_>> {
        Some(match name {
            "cursorTimeoutMillis" => Slot::Integer(&self.cursor_timeout_ms, 1..=i64::from(i32::MAX)),
            "auditAuthorizationSuccess" => Slot::Boolean(&self.audits_success),
            "ttlMonitorSleepSecs" => Slot::Integer(&self.ttl_monitor_sleep_s, 1..=i64::from(i32::MAX)),
            "syncdelay" => Slot::Integer(&self.sync_delay_s, 0..=9_000_000),
            "snapshotHistoryCachePercent" => Slot::Integer(&self.snapshot_history_percent, 0..=80),
            "operationMemoryBytesMax" => Slot::Integer(&self.operation_memory_bytes_max, MEMORY_BYTES_RANGE),
            "totalOperationMemoryBytesMax" => Slot::Integer(&self.total_operation_memory_bytes_max, MEMORY_BYTES_RANGE),
            "transactionLifetimeLimitSeconds" => Slot::Integer(&self.transaction_lifetime_s, 1..=i64::from(i32::MAX)),
            "maxTransactionLockRequestTimeoutMillis" => {
                Slot::Integer(&self.transaction_lock_timeout_ms, 0..=i64::from(i32::MAX))
            }
            "journalCommitInterval" => Slot::Integer(&self.journal_commit_interval_ms, 1..=500),
            "allowDiskUseByDefault" => Slot::Boolean(&self.disk_use_by_default),
            "internalDocumentSourceBucketAutoMaxMemoryBytes" => {
                Slot::Integer(&self.bucket_auto_bytes_max, 1..=i64::MAX)
            }
            "internalDocumentSourceDensifyMaxMemoryBytes" => Slot::Integer(&self.densify_bytes_max, 1..=i64::MAX),
            "internalDocumentSourceGroupMaxMemoryBytes" => Slot::Integer(&self.group_bytes_max, 1..=i64::MAX),
            "internalDocumentSourceSetWindowFieldsMaxMemoryBytes" => {
                Slot::Integer(&self.window_bytes_max, 1..=i64::MAX)
            }
            "internalQueryMaxBlockingSortMemoryUsageBytes" => Slot::Integer(&self.sort_bytes_max, 1..=i64::MAX),
            "internalQuerySpillingMinAvailableDiskSpaceBytes" => {
                Slot::Integer(&self.spilling_available_bytes_min, 0..=i64::MAX)
            }
            "storageEngineConcurrentReadTransactions" => Slot::Integer(&self.read_tickets, TICKETS_RANGE),
            "storageEngineConcurrentWriteTransactions" => Slot::Integer(&self.write_tickets, TICKETS_RANGE),
            "jsHeapLimitMB" => Slot::Integer(&self.script_heap_mb_max, SCRIPT_HEAP_MB_RANGE),
            "internalQueryJavaScriptFnTimeoutMillis" => {
                Slot::Integer(&self.script_call_ms_max, 1..=i64::from(i32::MAX))
            }
            "ticketQueueMax" => Slot::Integer(&self.ticket_queue_max, 0..=1_000_000),
            "ttlMonitorEnabled" => Slot::Boolean(&self.ttl_monitor_enabled),
            "quiet" => Slot::Boolean(&self.quiet),
            "enableFlowControl" => Slot::Boolean(&self.flow_control),
            "flowControlTargetLagSeconds" => Slot::Integer(&self.flow_control_lag_s, 1..=i64::from(i32::MAX)),
            "initialSyncMethod" => Slot::Word(&self.sync_method, &SYNC_METHODS),
            "initialSyncSourceReadPreference" => Slot::Word(&self.sync_source, &SYNC_SOURCES),
            _ => return None,
        })
    }

    /// A parameter's value, or `None` when there is none of that name.
    pub fn get(&self, name: &str) -> Option<Bson> {
        Some(match self.slot(name)? {
            Slot::Integer(slot, _) => match i32::try_from(slot.load(Ordering::Relaxed)) {
                Ok(value) => Bson::Int32(value),
                Err(_) => Bson::Int64(slot.load(Ordering::Relaxed)),
            },
            Slot::Boolean(slot) => Bson::Boolean(slot.load(Ordering::Relaxed)),
            Slot::Word(slot, words) => Bson::String(words[slot.load(Ordering::Relaxed)].to_owned()),
        })
    }

    /// What becomes of a parameter that is set to `value`.
    pub fn change(&self, name: &str, value: &Bson) -> Result<Change<'_>> {
        let Some(slot) = self.slot(name) else {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                format!("attempted to set unrecognized parameter [{name}], use help:true to see options "),
            ));
        };
        Ok(match slot {
            Slot::Integer(slot, range) => {
                let number = as_integer(value).ok_or_else(|| mistyped(name, value))?;
                if !range.contains(&number) {
                    return Err(CommandError::bad_value(format!(
                        "Invalid value for parameter {name}: {number} is not between {} and {}",
                        range.start(),
                        range.end()
                    )));
                }
                Change::Integer(slot, number)
            }
            Slot::Boolean(slot) => Change::Boolean(slot, as_boolean(value).ok_or_else(|| mistyped(name, value))?),
            Slot::Word(slot, words) => {
                let word = value.as_str().ok_or_else(|| mistyped(name, value))?;
                let place = words.iter().position(|known| *known == word).ok_or_else(|| {
                    let all = words.join(", ");
                    CommandError::bad_value(format!("Invalid value for parameter {name}: {word} is none of {all}"))
                })?;
                Change::Word(slot, place)
            }
        })
    }
}

fn mistyped(name: &str, value: &Bson) -> CommandError {
    CommandError::bad_value(format!("Invalid value for parameter {name}: {value}"))
}

pub fn as_integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(v) => Some(i64::from(*v)),
        Bson::Int64(v) => Some(*v),
        Bson::Double(v) => Some(*v as i64),
        Bson::Decimal128(v) => number_as_i64(RawBsonRef::Decimal128(*v)),
        Bson::String(v) => v.trim().parse().ok(),
        _ => None,
    }
}

/// Every value is true or false, but for words, which are what they say.
fn as_boolean(value: &Bson) -> Option<bool> {
    match value {
        Bson::Boolean(v) => Some(*v),
        Bson::Double(v) => Some(*v != 0.0),
        Bson::String(v) => match v.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        },
        Bson::Null | Bson::Undefined => Some(false),
        other => Some(as_integer(other) != Some(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_parameter_can_be_read_and_set_back() {
        let parameters = Parameters::new(100, false);
        for name in Parameters::NAMES {
            let value = parameters.get(name).expect("listed");
            parameters.change(name, &value).expect("own value").make();
            assert_eq!(parameters.get(name), Some(value));
        }
    }

    #[test]
    fn values_out_of_range_and_unknown_names_are_refused() {
        let parameters = Parameters::new(100, false);
        assert!(parameters.change("cursorTimeoutMillis", &Bson::Int32(0)).is_err());
        assert!(parameters.change("journalCommitInterval", &Bson::Int32(501)).is_err());
        let unknown = parameters
            .change("nonesuch", &Bson::Int32(1))
            .map(drop)
            .expect_err("unknown");
        assert_eq!(unknown.code, ErrorCode::InvalidOptions);
    }
}
