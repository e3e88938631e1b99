//! Figures for `serverStatus`.

use crate::budget::Use;
use crate::core::Core;
use engine::StatValue;

impl Core {
    /// Leaves that the next checkpoint looks at, those that it finds written included.
    fn dirty_leaves(&self) -> u64 {
        let changed = self.changed.lock().clone();
        changed
            .iter()
            .map(|table| table.tree.dirty.lock().leaves.len() as u64)
            .sum()
    }

    /// See [`engine::Engine::stats`].
    pub(crate) fn report_stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        let counters = &self.counters;
        let store = self.store.stats();
        let budget = &self.budget;
        let leaf_bytes = budget.used(Use::Images) + budget.used(Use::Deltas);
        let leaves = self.ring.len() as u64;
        let dirty_leaves = self.dirty_leaves();
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
            ("cache.maxBytes", self.options.cache_bytes),
            ("cache.limitBytes", budget.limit()),
            ("cache.replacedBytes", rcu::waiting().bytes),
            ("cache.besideBytes", budget.beside()),
            ("cache.dirtyBytes", dirty),
            ("cache.imageBytes", budget.used(Use::Images)),
            ("cache.deltaBytes", budget.used(Use::Deltas)),
            ("cache.innerBytes", budget.used(Use::Inner)),
            ("cache.keptBytes", budget.used(Use::Kept)),
            ("cache.leafBytes", leaf_bytes),
            ("cache.leaves", leaves),
            ("cache.dirtyLeaves", dirty_leaves),
            ("cache.pagesRead", counters.pages_read.get()),
            ("cache.pagesReadAgain", counters.read_again.get()),
            ("cache.pagesWritten", counters.pages_written.get()),
            ("cache.pagesWrittenBehind", counters.written_behind.get()),
            ("cache.pagesEvicted", counters.pages_evicted.get()),
            ("cache.innerPagesEvicted", counters.inner_evicted.get()),
            ("cache.pagesReadAhead", counters.prefetched.get()),
            ("cache.buffersMerged", counters.buffers_merged.get()),
            ("tree.folds", counters.folds.get()),
            ("tree.splits", counters.splits.get()),
            ("tree.merges", counters.merges.get()),
            ("reads.gets", counters.gets.get()),
            ("snapshots.opened", counters.snapshots.get()),
            ("snapshots.open", self.pins.open().0 as u64),
            ("snapshots.ended", self.counters.snapshots_ended.get()),
            ("history.bytes", self.history.bytes()),
            ("history.limitBytes", self.history_limit()),
            ("checkpoint.count", counters.checkpoints.get()),
            ("checkpoint.totalMillis", counters.checkpoint_ms.get()),
            ("checkpoint.lastMillis", counters.checkpoint_ms_last.get()),
            ("files.bytes", store.total.file_bytes),
            ("files.usedBytes", store.total.used_bytes),
            ("files.freeBytes", store.total.free_bytes),
            ("files.waitingBytes", store.total.waiting_bytes),
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
}
