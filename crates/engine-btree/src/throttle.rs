//! Slowing writers down when memory is short, so that eviction keeps up with them.
//!
//! Writers wait one after the other, so that all of them together are as slow as one would have to be: the first pays
//! for what was written since the last that paid. How long is told by the budget
//! ([`Budget::delay_for`](crate::budget::Budget::delay_for)).

use crate::budget::DELAY_MAX;
use crate::cache::PageCache;
use crate::counters::Counters;
use crate::foundation::Foundation;
use engine::{Batch, Op};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the module.
pub(crate) struct Throttle {
    cache: Arc<PageCache>,
    counters: Arc<Counters>,
    /// Bytes of batches that nobody has waited for yet, applied while memory was short.
    unpaid: AtomicU64,
    /// Held by the one writer that waits for room: those behind it wait for it.
    paying: Mutex<()>,
}

impl Throttle {
    pub(crate) fn new(base: &Foundation) -> Self {
        Self {
            cache: base.cache.clone(),
            counters: base.counters.clone(),
            unpaid: AtomicU64::new(0),
            paying: Mutex::default(),
        }
    }

    /// After a batch: the next writers wait for it where memory is short.
    pub(crate) fn note_batch(&self, batch: &Batch) {
        if self.is_short() {
            let bytes = batch.ops().iter().map(|op| match op {
                Op::Put(_, key, value) => key.len() + value.len(),
                Op::Delete(_, key) | Op::Add(_, key, _) => key.len(),
                Op::DeleteRange(..) | Op::CreateTable(..) | Op::DropTable(_) => 0,
            });
            self.unpaid.fetch_add(bytes.sum::<usize>() as u64, Ordering::Relaxed);
        }
    }

    /// Whether memory is short, and somebody is there to do something about it.
    pub(crate) fn is_short(&self) -> bool {
        self.cache.budget().evictable_excess() > 0 && self.cache.has_workers()
    }

    /// See [`engine::Engine::throttle`].
    pub(crate) fn wait(&self) -> bool {
        let waited = self.cache.keep_replaced_few();
        if !waited.is_zero() {
            self.note_delay(waited);
            return true;
        }
        let budget = self.cache.budget();
        if !self.is_short() {
            self.unpaid.store(0, Ordering::Relaxed);
            return true;
        }
        let Some(_paying) = self.paying.try_lock_for(DELAY_MAX) else {
            self.note_delay(DELAY_MAX);
            return false;
        };
        // At least one: where there is no room at all, each waits.
        let unpaid = self.unpaid.swap(0, Ordering::Relaxed).max(1);
        if let Some(delay) = budget.delay_for(unpaid) {
            self.note_delay(delay);
            self.cache.wait_for_room(delay);
        }
        true
    }

    fn note_delay(&self, delay: Duration) {
        self.counters.delays.add(1);
        self.counters.delay_us.add(delay.as_micros() as u64);
    }
}
