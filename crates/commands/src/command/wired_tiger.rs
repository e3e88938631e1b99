//! The section `wiredTiger` of `serverStatus`: the names that monitoring tools read (`mongostat`, exporters,
//! dashboards), with what Tenon has to say under them. Names without such a figure are left out rather than filled with
//! zeros.

use super::server_status::execution;
use crate::error::Result;
use crate::invocation::Invocation;
use bson::{Bson, Document, doc};
use engine::CommonStats;
use storage::StorageStats;

/// How a figure is had of an engine's.
type Figure = fn(&CommonStats) -> Option<u64>;

/// Names in WiredTiger's section that tools read, and the figures of engines that say the same. The first three are
/// there on every engine, because tools read them without asking; the others where the engine counts such a thing.
const FOR_TOOLS: [(&str, &str, Figure); 18] = [
    ("cache", "bytes currently in the cache", |of| of.cache_bytes.or(Some(0))),
    ("cache", "tracked dirty bytes in the cache", |of| {
        of.dirty_bytes.or(Some(0))
    }),
    ("cache", "maximum bytes configured", |of| of.cache_bytes_max.or(Some(0))),
    ("cache", "pages currently held in the cache", |of| of.pages_cached),
    ("cache", "tracked dirty pages in the cache", |of| of.pages_dirty),
    (
        "cache",
        "tracked bytes belonging to internal pages in the cache",
        |of| of.inner_bytes,
    ),
    ("cache", "tracked bytes belonging to leaf pages in the cache", |of| {
        of.leaf_bytes
    }),
    ("cache", "pages read into cache", |of| of.pages_read),
    ("cache", "pages written from cache", |of| of.pages_written),
    ("cache", "unmodified pages evicted", |of| of.pages_evicted),
    // An engine that counts evictions writes a page first: it never evicts a modified one.
    ("cache", "modified pages evicted", |of| of.pages_evicted.map(|_| 0)),
    ("block-manager", "blocks read", |of| of.blocks_read),
    ("block-manager", "bytes read", |of| of.bytes_read),
    ("block-manager", "blocks written", |of| of.blocks_written),
    ("block-manager", "bytes written", |of| of.bytes_written),
    ("connection", "total fsync I/Os", |of| of.syncs),
    ("connection", "total read I/Os", |of| of.blocks_read),
    ("connection", "total write I/Os", |of| of.blocks_written),
];

/// The section, from whatever the engine in use counts.
pub(super) fn section(call: &Invocation<'_>) -> Result<Bson> {
    let of_engine = call.server.storage.engine().common_stats();
    let mut document = Document::new();
    for (section, name, figure) in FOR_TOOLS {
        if let Some(value) = figure(&of_engine) {
            let inner = document
                .entry(section.to_owned())
                .or_insert_with(|| Bson::Document(Document::new()));
            if let Bson::Document(inner) = inner {
                inner.insert(name, value as i64);
            }
        }
    }
    let log = call.server.storage.log().stats();
    document.insert(
        "log",
        doc! {
            "log bytes of payload data": log.entry_bytes as i64,
            "log bytes written": log.written_bytes as i64,
            "log sync operations": log.syncs as i64,
            "log sync time duration (usecs)": log.sync_us as i64,
            "log write operations": log.groups as i64,
        },
    );
    document.extend(checkpoints_for_tools(&call.server.storage.stats()));
    document.insert("concurrentTransactions", execution(call));
    Ok(document.into())
}

/// Figures of checkpoints where version 8.0 has them, and where the versions before have them, which many tools still
/// read.
fn checkpoints_for_tools(storage: &StorageStats) -> Document {
    let running = i64::from(storage.checkpoint_running);
    let [count, failed] = [storage.checkpoints, storage.checkpoints_failed].map(|number| number as i64);
    let [last, total, max, min] = [
        storage.checkpoint_last_ms,
        storage.checkpoint_ms,
        storage.checkpoint_max_ms,
        storage.checkpoint_min_ms,
    ]
    .map(|ms| ms as i64);
    doc! {
        "checkpoint": {
            "progress state": running,
            "number of checkpoints started by api": count + failed,
            "total succeed number of checkpoints": count,
            "total failed number of checkpoints": failed,
            "most recent time (msecs)": last,
            "total time (msecs)": total,
            "max time (msecs)": max,
            "min time (msecs)": min,
        },
        "transaction": {
            "transaction checkpoint currently running": running,
            "transaction checkpoint most recent time (msecs)": last,
            "transaction checkpoint total time (msecs)": total,
            "transaction checkpoint max time (msecs)": max,
            "transaction checkpoint min time (msecs)": min,
            "transaction checkpoints": count,
            "transactions committed": storage.commits as i64,
        },
    }
}
