//! Counters, by dotted name.

use crate::core::Core;
use engine::{CommonStats, StatValue};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See [`engine::Engine::common_stats`].
pub(crate) fn common(core: &Core) -> CommonStats {
    let get = |counter: &AtomicU64| Some(counter.load(Relaxed));
    CommonStats {
        cache_bytes: Some(core.cache.bytes() + core.held.bytes()),
        cache_bytes_max: Some(core.options.cache_bytes),
        dirty_bytes: Some(core.held.bytes()),
        pages_read: get(&core.cache.counters.misses),
        pages_evicted: get(&core.cache.counters.evicted),
        write_delay_us: get(&core.counters.throttled_us),
        snapshots_open: Some(core.pins.open().0 as u64),
        ..core.store.stats().common()
    }
}

/// See [`engine::Engine::stats`].
pub(crate) fn report(core: &Core, sink: &mut dyn FnMut(&str, StatValue)) {
    let mut number = |name: &str, value: u64| sink(name, StatValue::Number(value as i64));
    let get = |counter: &AtomicU64| counter.load(Relaxed);
    let cached = core.cache.bytes();
    number("cache.bytes", cached + core.held.bytes());
    number("cache.bytes_max", core.options.cache_bytes);
    number("cache.units_bytes", cached);
    number("cache.messages_bytes", core.held.bytes());
    number("cache.hits", get(&core.cache.counters.hits));
    number("cache.misses", get(&core.cache.counters.misses));
    number("cache.evicted", get(&core.cache.counters.evicted));
    number("cache.filtered_segments", get(&core.counters.filter_misses));
    number("cursors.deleted_keys_passed", get(&core.counters.passed_keys));
    number("tables", core.catalog.all().len() as u64);
    let (snapshots, oldest) = core.pins.open();
    let published = core.pins.published();
    number("snapshots.open", snapshots as u64);
    number("snapshots.oldest_lag", published.0 - oldest.unwrap_or(published).0);
    number("apply.batches", get(&core.counters.batches));
    number("apply.operations", get(&core.counters.operations));
    number("apply.throttled_us", get(&core.counters.throttled_us));
    number("flush.memtables", get(&core.counters.flushes));
    number("flush.children", get(&core.counters.flushed_children));
    number("flush.dropped_children", get(&core.counters.dropped_children));
    number("flush.damaged_tables", core.damaged_tables.load(Relaxed) as u64);
    number("flush.sinks", get(&core.counters.sinks));
    number("flush.lost_subtrees", get(&core.counters.lost_subtrees));
    number("flush.basements_written", get(&core.counters.basements_written));
    number("flush.segments_written", get(&core.counters.segments_written));
    number("flush.nodes_written", get(&core.counters.nodes_written));
    number("checkpoint.count", get(&core.counters.checkpoints));
    number("checkpoint.total_ms", get(&core.counters.checkpoint_ms));
    number("checkpoint.durable_seq", get(&core.durable));
    let store = core.store.stats();
    number("blocks.file_bytes", store.total.file_bytes);
    number("blocks.used_bytes", store.total.used_bytes);
    number("blocks.free_bytes", store.total.free_bytes);
    number("blocks.waiting_bytes", store.total.waiting_bytes);
    number("blocks.bytes_written", store.bytes_written);
    number("blocks.bytes_read", store.bytes_read);
    number("blocks.written", store.blocks_written);
    number("blocks.read", store.blocks_read);
    number("blocks.syncs", store.syncs);
    number("blocks.files_read_directly", store.direct_volumes);
}
