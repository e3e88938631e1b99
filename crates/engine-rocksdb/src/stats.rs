//! Counters, from RocksDB's properties.

use crate::pressure::Pressure;
use engine::{CommonStats, StatValue};
use rocksdb::DB;

/// Our name, RocksDB's property.
const PROPERTIES: &[(&str, &str)] = &[
    ("cache.capacity", "rocksdb.block-cache-capacity"),
    ("cache.blocks", "rocksdb.block-cache-usage"),
    ("cache.pinned", "rocksdb.block-cache-pinned-usage"),
    ("memtables.bytes", "rocksdb.cur-size-all-mem-tables"),
    ("memtables.immutable", "rocksdb.num-immutable-mem-table"),
    ("memtables.flushes_running", "rocksdb.num-running-flushes"),
    ("compaction.pending", "rocksdb.compaction-pending"),
    ("compaction.pending_bytes", "rocksdb.estimate-pending-compaction-bytes"),
    ("compaction.running", "rocksdb.num-running-compactions"),
    ("write.delayed_rate", "rocksdb.actual-delayed-write-rate"),
    ("write.stopped", "rocksdb.is-write-stopped"),
    ("files.bytes", "rocksdb.total-sst-files-size"),
    ("files.live_bytes", "rocksdb.live-sst-files-size"),
    ("files.level0", "rocksdb.num-files-at-level0"),
    ("rows.estimated", "rocksdb.estimate-num-keys"),
    ("snapshots.open", "rocksdb.num-snapshots"),
    ("background_errors", "rocksdb.background-errors"),
];

/// A property, 0 where RocksDB does not say.
pub(crate) fn property(db: &DB, name: &str) -> u64 {
    db.property_int_value(name).ok().flatten().unwrap_or(0)
}

/// What is in memory: blocks of files, and what is on its way to them.
fn cached(db: &DB) -> u64 {
    property(db, "rocksdb.block-cache-usage") + property(db, "rocksdb.cur-size-all-mem-tables")
}

/// See [`engine::Engine::common_stats`].
pub(crate) fn common(db: &DB, pressure: &Pressure) -> CommonStats {
    CommonStats {
        cache_bytes: Some(cached(db)),
        cache_bytes_max: Some(property(db, "rocksdb.block-cache-capacity")),
        dirty_bytes: Some(property(db, "rocksdb.cur-size-all-mem-tables")),
        file_bytes: Some(property(db, "rocksdb.total-sst-files-size")),
        write_delay_us: Some(pressure.waited_us()),
        snapshots_open: Some(property(db, "rocksdb.num-snapshots")),
        ..CommonStats::default()
    }
}

/// Hands everything RocksDB says to `sink`.
pub(crate) fn report(db: &DB, sink: &mut dyn FnMut(&str, StatValue)) {
    sink("cache.bytes", StatValue::Number(cached(db) as i64));
    for (name, source) in PROPERTIES {
        sink(name, StatValue::Number(property(db, source) as i64));
    }
}
