//! The section `wiredTiger` of `serverStatus`: the names that monitoring tools read (`mongostat`, exporters,
//! dashboards), with what Tenon has to say under them. Names without such a figure are left out rather than filled with
//! zeros.

use super::server_status::{engine_counters, execution};
use crate::error::Result;
use crate::invocation::Invocation;
use bson::{Bson, Document, doc};
use storage::StorageStats;

/// Names in WiredTiger's section that tools read, and the engines' counters that say the same: each engine has one of
/// them, or none. The first three are there on every engine, because tools read them without asking; the others where
/// the engine counts such a thing.
const FOR_TOOLS: [(&str, &str, &[&str]); 19] = [
    ("cache", "bytes currently in the cache", &["cache.bytes"]),
    (
        "cache",
        "tracked dirty bytes in the cache",
        &[
            "cache.dirtyBytes",
            "cache.dirty_bytes",
            "cache.messages_bytes",
            "memtables.bytes",
        ],
    ),
    (
        "cache",
        "maximum bytes configured",
        &["cache.maxBytes", "cache.bytes_max", "cache.capacity"],
    ),
    ("cache", "pages currently held in the cache", &["cache.leaves"]),
    ("cache", "tracked dirty pages in the cache", &["cache.dirtyLeaves"]),
    (
        "cache",
        "tracked bytes belonging to internal pages in the cache",
        &["cache.innerBytes"],
    ),
    (
        "cache",
        "tracked bytes belonging to leaf pages in the cache",
        &["cache.leafBytes"],
    ),
    (
        "cache",
        "pages read into cache",
        &["cache.pagesRead", "cache.pages_read", "cache.misses"],
    ),
    ("cache", "pages written from cache", &["cache.pagesWritten"]),
    ("cache", "unmodified pages evicted", &["cache.pagesEvicted"]),
    (
        "cache",
        "bytes read into cache",
        &["files.bytesRead", "blocks.bytes_read"],
    ),
    (
        "cache",
        "bytes written from cache",
        &["files.bytesWritten", "blocks.bytes_written"],
    ),
    ("block-manager", "blocks read", &["files.blocksRead", "blocks.read"]),
    ("block-manager", "bytes read", &["files.bytesRead", "blocks.bytes_read"]),
    (
        "block-manager",
        "blocks written",
        &["files.blocksWritten", "blocks.written"],
    ),
    (
        "block-manager",
        "bytes written",
        &["files.bytesWritten", "blocks.bytes_written"],
    ),
    ("connection", "total fsync I/Os", &["files.syncs", "blocks.syncs"]),
    ("connection", "total read I/Os", &["files.blocksRead", "blocks.read"]),
    (
        "connection",
        "total write I/Os",
        &["files.blocksWritten", "blocks.written"],
    ),
];
/// How many of them every engine has.
const FOR_TOOLS_ALWAYS: usize = 3;

/// The section, from whatever the engine in use counts.
pub(super) fn section(call: &Invocation<'_>) -> Result<Bson> {
    let counters = engine_counters(call);
    let mut document = Document::new();
    let value_of = |counter: &&str| {
        let (head, rest) = counter.split_once('.')?;
        counters.get_document(head).ok()?.get_i64(rest).ok()
    };
    for (position, (section, name, names)) in FOR_TOOLS.iter().enumerate() {
        let value = names.iter().find_map(value_of);
        let missing = (position < FOR_TOOLS_ALWAYS).then_some(0);
        if let Some(value) = value.or(missing) {
            let inner = document
                .entry((*section).to_owned())
                .or_insert_with(|| Bson::Document(Document::new()));
            if let Bson::Document(inner) = inner {
                inner.insert(*name, value);
            }
        }
    }
    if let Ok(cache) = document.get_document_mut("cache")
        && cache.contains_key("unmodified pages evicted")
    {
        // An engine that counts evictions writes a page first: it never evicts a modified one.
        cache.insert("modified pages evicted", 0_i64);
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
