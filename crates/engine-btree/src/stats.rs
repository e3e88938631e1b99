//! Figures for `serverStatus`.

use crate::budget::Use;
use crate::foundation::Foundation;
use engine::StatValue;

/// See [`engine::Engine::stats`].
pub(crate) fn report(base: &Foundation, sink: &mut dyn FnMut(&str, StatValue)) {
    let counters = &base.counters;
    let store = base.store.stats();
    let budget = base.cache.budget();
    let leaf_bytes = budget.used(Use::Images) + budget.used(Use::Deltas);
    let leaves = base.cache.clock_list().len() as u64;
    let dirty_leaves = base.catalog.dirty_leaves();
    // A checkpoint writes whole leaves. To look at each would hold up those who write to them: of middling size, then.
    let dirty = (dirty_leaves * (leaf_bytes / leaves.max(1)))
        .max(budget.used(Use::Deltas))
        .min(budget.total());
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
        ("cache.dirtyBytes", dirty),
        ("cache.imageBytes", budget.used(Use::Images)),
        ("cache.deltaBytes", budget.used(Use::Deltas)),
        ("cache.innerBytes", budget.used(Use::Inner)),
        ("cache.keptBytes", budget.used(Use::Blocks)),
        ("cache.keptPercent", budget.blocks_percent()),
        ("cache.mapBytes", budget.used(Use::Maps)),
        ("cache.leafBytes", leaf_bytes),
        ("cache.leaves", leaves),
        ("cache.dirtyLeaves", dirty_leaves),
        ("cache.pagesRead", counters.pages_read.get()),
        ("cache.pagesReadAgain", counters.read_again.get()),
        ("cache.pagesReadInPart", counters.read_in_part.get()),
        ("cache.pagesWalked", counters.pages_walked.get()),
        ("cache.pagesWritten", counters.pages_written.get()),
        ("cache.pagesWrittenBehind", counters.written_behind.get()),
        ("cache.pagesEvicted", counters.pages_evicted.get()),
        ("cache.innerPagesEvicted", counters.inner_evicted.get()),
        ("cache.pagesReadAhead", counters.prefetched.get()),
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
