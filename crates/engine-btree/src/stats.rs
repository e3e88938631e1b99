//! Figures for `serverStatus`.

use crate::budget::Use;
use crate::foundation::Foundation;
use engine::{CommonStats, StatValue};

/// The leaves in the cache.
struct Leaves {
    count: u64,
    bytes: u64,
    dirty: u64,
    dirty_bytes: u64,
}

impl Leaves {
    fn of(base: &Foundation) -> Self {
        let budget = base.cache.budget();
        let bytes = budget.used(Use::Images) + budget.used(Use::Deltas);
        let count = base.cache.clock_list().len() as u64;
        let dirty = base.catalog.dirty_leaves();
        // A checkpoint writes whole leaves. To look at each would hold up those who write to them: of middling size,
        // then.
        let dirty_bytes = (dirty * (bytes / count.max(1)))
            .max(budget.used(Use::Deltas))
            .min(budget.total());
        Self {
            count,
            bytes,
            dirty,
            dirty_bytes,
        }
    }
}

/// See [`engine::Engine::common_stats`].
pub(crate) fn common(base: &Foundation) -> CommonStats {
    let counters = &base.counters;
    let budget = base.cache.budget();
    let leaves = Leaves::of(base);
    CommonStats {
        cache_bytes: Some(budget.total()),
        cache_bytes_max: Some(base.cache.cache_bytes()),
        dirty_bytes: Some(leaves.dirty_bytes),
        pages_cached: Some(leaves.count),
        pages_dirty: Some(leaves.dirty),
        inner_bytes: Some(budget.used(Use::Inner)),
        leaf_bytes: Some(leaves.bytes),
        pages_read: Some(counters.pages_read.get()),
        pages_written: Some(counters.pages_written.get()),
        pages_evicted: Some(counters.pages_evicted.get()),
        write_delay_us: Some(counters.delay_us.get()),
        history_bytes: Some(base.readers.history().bytes()),
        snapshots_open: Some(base.readers.open().0 as u64),
        ..base.store.stats().common()
    }
}

/// See [`engine::Engine::stats`].
pub(crate) fn report(base: &Foundation, sink: &mut dyn FnMut(&str, StatValue)) {
    let counters = &base.counters;
    let store = base.store.stats();
    let budget = base.cache.budget();
    let leaves = Leaves::of(base);
    let numbers = [
        ("apply.batches", counters.batches.get()),
        ("apply.operations", counters.operations.get()),
        ("apply.blindWrites", counters.blind_writes.get()),
        ("apply.delays", counters.delays.get()),
        ("apply.delayMicros", counters.delay_us.get()),
        ("cache.bytes", budget.total()),
        ("cache.maxBytes", base.cache.cache_bytes()),
        ("cache.limitBytes", budget.limit()),
        ("cache.replacedBytes", rcu::waiting().bytes),
        ("cache.besideBytes", budget.beside()),
        ("cache.dirtyBytes", leaves.dirty_bytes),
        ("cache.imageBytes", budget.used(Use::Images)),
        ("cache.deltaBytes", budget.used(Use::Deltas)),
        ("cache.innerBytes", budget.used(Use::Inner)),
        ("cache.keptBytes", budget.used(Use::Blocks)),
        ("cache.keptPercent", budget.blocks_percent()),
        ("cache.mapBytes", budget.used(Use::Maps)),
        ("cache.leafBytes", leaves.bytes),
        ("cache.leaves", leaves.count),
        ("cache.dirtyLeaves", leaves.dirty),
        ("cache.pagesRead", counters.pages_read.get()),
        ("cache.pagesReadAgain", counters.read_again.get()),
        ("cache.pagesReadInPart", counters.read_in_part.get()),
        ("cache.rowsFromLastBlock", counters.read_from_last.get()),
        ("cache.pagesWalked", counters.pages_walked.get()),
        ("cache.pagesWritten", counters.pages_written.get()),
        ("cache.pagesWrittenBehind", counters.written_behind.get()),
        ("cache.pagesEvicted", counters.pages_evicted.get()),
        ("cache.innerPagesEvicted", counters.inner_evicted.get()),
        ("cache.pagesReadAhead", counters.prefetched.get()),
        ("cache.pagesExpected", counters.expected.get()),
        ("cache.buffersMerged", counters.buffers_merged.get()),
        ("tree.folds", counters.consolidations.get()),
        ("tree.foldsInBackground", counters.consolidations_queued.get()),
        ("tree.splits", counters.splits.get()),
        ("tree.merges", counters.merges.get()),
        ("reads.gets", counters.gets.get()),
        ("snapshots.opened", counters.snapshots.get()),
        ("snapshots.open", base.readers.open().0 as u64),
        ("snapshots.ended", counters.snapshots_ended.get()),
        ("history.bytes", base.readers.history().bytes()),
        ("history.limitBytes", base.readers.history().limit()),
        ("history.diskBytes", base.readers.history().file().bytes()),
        ("history.valuesSpilled", counters.values_spilled.get()),
        ("history.spillsRefused", counters.spills_refused.get()),
        ("checkpoint.count", counters.checkpoints.get()),
        ("checkpoint.deltasSaved", counters.deltas_saved.get()),
        ("checkpoint.leavesUnreadable", counters.leaves_unreadable.get()),
        ("checkpoint.totalMillis", counters.checkpoint_ms.get()),
        ("checkpoint.lastMillis", counters.checkpoint_ms_last.get()),
        ("files.bytes", store.total.file_bytes),
        ("files.usedBytes", store.total.used_bytes),
        ("files.freeBytes", store.total.free_bytes),
        ("files.waitingBytes", store.total.waiting_bytes),
        ("files.readDirectly", store.direct_volumes),
        ("files.blocksRead", store.blocks_read),
        ("files.bytesRead", store.bytes_read),
        ("files.blocksWritten", store.blocks_written),
        ("files.bytesWritten", store.bytes_written),
        ("files.blocksMoved", counters.relocated.get()),
        ("files.syncs", store.syncs),
    ];
    for (name, value) in numbers {
        sink(name, StatValue::Number(value as i64));
    }
}
