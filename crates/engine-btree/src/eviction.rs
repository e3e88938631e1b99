//! Eviction: keeping memory within its bounds, in the background.
//!
//! Two things give memory back, and neither is done by a client:
//! - *Dropping a base*: rows that are on disk exactly as they are in memory. The leaf keeps its delta, so a leaf with
//!   fresh writes need not be written to leave memory: the writes stay, as they would for a leaf that was never read.
//! - *Writing back* leaves whose deltas have grown: the merge of many small writes with one image, once deltas take
//!   more than their share.
//!
//! Cold leaves go first (`clock_list`). Writers are slowed down a little, in proportion, when all that is not fast
//! enough (`throttle`). Whoever brings a page in when there is no room at all drops a cold one first
//! ([`Pages::make_room`]): so memory passes the limit by no more than a page for each thread, as long as there are
//! leaves that are on disk as they are.

use crate::budget::Use;
use crate::cache::PageCache;
use crate::checkpoint::Checkpointer;
use crate::clock_list::ClockEntry;
use crate::consolidator::Consolidator;
use crate::counters::Counters;
use crate::evict_inner::{InnerEviction, ROUNDS_MAX as INNER_ROUNDS_MAX};
use crate::foundation::Foundation;
use crate::leaf::{Base, Leaf, base_bytes};
use crate::pages::Pages;
use crate::readers::Readers;
use crate::write_back::WriteBack;
use engine::{EngineStatus, Result};
use std::sync::Arc;
use std::time::Duration;

/// Leaves looked at in one step.
const STEP: usize = 64;
/// Leaves that the hand passes in one step: the hottest are cold after four rounds.
const LOOKS_MAX: usize = 4 * STEP;
/// Rounds of the CLOCK after which nothing more can be had, and steps when its list is short.
const ROUNDS_MAX: usize = 2;
const STEPS_MIN: usize = 5;
/// Much is written where deltas take more than one part in so many of the limit.
const WRITES_PART: u64 = 16;
/// How long eviction waits at most, between two steps, for what it gave up to be freed.
const FREE_PATIENCE: Duration = Duration::from_millis(5);
/// Less than one part in so many of the limit is no gain: leaves that are written shrink and grow by a few bytes.
const GAIN_PART: u64 = 16_384;
/// So much always is: a step of a few leaves gives no more, however large the cache.
const GAIN_BYTES: u64 = 64 << 10;
/// Leaves that may be passed in vain to make room that need not be there yet.
const SLACK_LOOKS_MAX: usize = 4 * STEP;

/// See the module.
pub(crate) struct Evictor {
    cache: Arc<PageCache>,
    pages: Arc<Pages>,
    readers: Arc<Readers>,
    consolidator: Arc<Consolidator>,
    write_back: Arc<WriteBack>,
    inner: InnerEviction,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
    clock: Arc<dyn vfs::Clock>,
}

impl Evictor {
    /// Does what [`PageCache::evict_soon`] asks for.
    pub(crate) fn new(
        base: &Foundation,
        consolidator: Arc<Consolidator>,
        write_back: Arc<WriteBack>,
        checkpointer: Arc<Checkpointer>,
    ) -> Arc<Self> {
        let evictor = Arc::new(Self {
            cache: base.cache.clone(),
            pages: base.pages.clone(),
            readers: base.readers.clone(),
            consolidator,
            inner: InnerEviction::new(base, write_back.clone(), checkpointer),
            write_back,
            status: base.status.clone(),
            counters: base.counters.clone(),
            clock: base.clock.clone(),
        });
        let job = evictor.cache.eviction();
        job.set_work(&evictor, &evictor.status, "write-back", Self::evict);
        evictor
    }

    /// Evicts until there is room enough, or nothing more can go.
    fn evict(&self) -> Result<()> {
        let (cache, budget) = (&self.cache, self.cache.budget());
        cache.look_at_heap();
        self.merge_buffers()?;
        // Leaves looked at since the last that gave something. What clients bring in meanwhile does not count: as long
        // as there is something to be had, it is taken.
        let mut in_vain = 0;
        let floor = loop {
            // A little more than there has to be, as long as that comes easily: else the next page that is read would
            // be the next to wake this.
            let is_short = cache.is_short();
            if !is_short && (in_vain > SLACK_LOOKS_MAX || budget.has_slack()) {
                break None;
            }
            let looks = (ROUNDS_MAX * cache.clock_list().len()).max(INNER_ROUNDS_MAX * self.inner.count());
            if in_vain >= looks.max(STEPS_MIN * STEP) {
                break Some(budget.total());
            }
            self.status.check_running()?;
            cache.look_at_heap();
            // Where leaves have nothing to give, compressed blocks go before anything is written; and where much is
            // written they have taken more than that leaves them.
            if is_short && in_vain > 0 && budget.used(Use::Deltas) > budget.limit() / WRITES_PART {
                budget.give_writes_room();
            }
            cache.trim_blocks(if in_vain > 0 { budget.excess() } else { 0 });
            if !cache.is_short() && budget.has_slack() {
                continue;
            }
            let write = cache.deltas_excess() > 0 || cache.is_short() && in_vain > STEP;
            let freed = self.evict_leaves(write)?
                + match in_vain < cache.clock_list().len() {
                    true => self.inner.keep_pace(LOOKS_MAX)?,
                    false => self.inner.evict()?,
                };
            cache.free_replaced_in_background(FREE_PATIENCE);
            if freed as u64 > (budget.limit() / GAIN_PART).min(GAIN_BYTES) {
                in_vain = 0;
            } else {
                in_vain += STEP;
            }
            cache.room_was_made();
        };
        cache.set_floor(floor, self.readers.oldest());
        Ok(())
    }

    /// Merges writes that were buffered for leaves on disk.
    fn merge_buffers(&self) -> Result<()> {
        loop {
            let leaves = self.cache.take_to_merge(STEP);
            if leaves.is_empty() {
                return Ok(());
            }
            self.counters.buffers_merged.add(leaves.len() as u64);
            self.write_dirty(leaves)?;
        }
    }

    /// Writes those of `leaves` that differ from what is on disk, and measures how fast that is.
    fn write_dirty(&self, leaves: Vec<ClockEntry>) -> Result<()> {
        let started = self.clock.monotonic();
        let bytes = self.write_back.write_dirty(leaves)?;
        let took = self.clock.monotonic().saturating_sub(started);
        self.cache.budget().note_write_back(bytes, took);
        Ok(())
    }

    /// One step: cold leaves give up their bases; where deltas have to go (`write`), the larger ones are written.
    /// Returns the bytes that the leaves looked at gave.
    fn evict_leaves(&self, write: bool) -> Result<usize> {
        let cache = &self.cache;
        let leaves = cache.clock_list().len().max(1) as u64;
        let average = (cache.budget().used(Use::Deltas) / leaves) as usize;
        let mut to_write = Vec::new();
        let (mut before, mut after) = (0, 0);
        for (tree, leaf) in cache.clock_list().take_cold(STEP, LOOKS_MAX) {
            let mut state = leaf.state.lock();
            let guard = rcu::pin();
            let view = leaf.view.load(&guard);
            if view.retired || tree.is_dead() {
                state.in_clock = false;
                continue;
            }
            let delta = state.delta_bytes;
            before += delta + base_bytes(&view.base);
            let is_on_disk = matches!(view.base, Base::OnDisk(_));
            let is_droppable =
                matches!(view.base, Base::Image(_)) && state.base_is_disk_image && state.writing.is_none();
            let is_dirty = !state.is_clean();
            drop(state);
            let is_large = write && delta >= average;
            if is_dirty && is_on_disk && !is_large {
                // Nothing but writes that stay: many such leaves lie between those that have something to give.
                after += delta;
                cache.clock_list().push(tree, leaf);
                continue;
            }
            if !is_dirty {
                self.consolidator.shed_undo(&tree, &leaf);
            }
            if is_dirty && (is_large || !(is_droppable || is_on_disk)) {
                to_write.push((tree.clone(), leaf.clone()));
            } else {
                cache.drop_base(&tree, &leaf);
                after += resident_bytes(&leaf);
            }
            if !self.pages.unlink(&tree, &leaf) {
                cache.clock_list().push(tree, leaf);
            }
        }
        if !to_write.is_empty() {
            self.write_dirty(to_write.clone())?;
            for (tree, leaf) in to_write {
                cache.drop_base(&tree, &leaf);
                after += resident_bytes(&leaf);
            }
        }
        Ok(before.saturating_sub(after))
    }
}

/// Bytes of a leaf's base and delta; none of one that left the tree.
fn resident_bytes(leaf: &Leaf) -> usize {
    let guard = rcu::pin();
    let state = leaf.state.lock();
    let view = leaf.view.load(&guard);
    if view.retired {
        0
    } else {
        state.delta_bytes + base_bytes(&view.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store};
    use crate::options::BtreeOptions;
    use engine::Engine;

    #[test]
    fn rows_come_in_where_nothing_else_can_go() {
        let mut store = Store::new(BtreeOptions {
            threads: Some(1),
            ..BtreeOptions::default()
        });
        store.write(|batch| batch.put(ROWS, b"key".to_vec(), b"value".to_vec()));
        store.checkpoint();
        let base = store.base();
        let tree = store.tree(ROWS);
        let leaf = tree.leaf_in_memory(b"key", &rcu::pin()).expect("it was just written");
        base.cache.drop_base(&tree, &leaf);
        let Base::OnDisk(address) = leaf.view.load(&rcu::pin()).base.clone() else {
            panic!("its rows are on disk only");
        };
        // Memory is full of what cannot go, and the background has given up.
        base.cache.eviction().hold();
        let full = base.cache.budget().limit() as isize + 1;
        base.cache.budget().add(Use::Deltas, full);
        base.pages.bring_base_in(&tree, &leaf, address, None).expect("a read");
        assert!(
            matches!(leaf.view.load(&rcu::pin()).base, Base::Image(_)),
            "its rows are there"
        );
        base.cache.budget().add(Use::Deltas, -full);
    }

    #[test]
    fn what_is_read_next_finds_room_and_wakes_nobody() {
        let mut store = Store::new(BtreeOptions {
            cache_bytes: 512 << 20,
            threads: Some(1),
            ..BtreeOptions::default()
        });
        for number in 0..1000_u32 {
            store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![1; 4000]));
        }
        store.checkpoint();
        let base = store.base();
        let budget = base.cache.budget();
        let one_byte_too_much = (budget.target() - budget.total()) as isize + 1;
        budget.add(Use::Maps, one_byte_too_much);
        base.cache.evict_soon();
        base.workers.drain().expect("it evicts");
        assert!(budget.has_slack(), "{} of {}", budget.total(), budget.target());
        assert!(!budget.has_floor(), "it could do what it should");
        budget.add(Use::Maps, -one_byte_too_much);
    }

    #[test]
    fn writers_do_not_wait_for_what_nothing_can_free() {
        let mut store = Store::new(BtreeOptions {
            threads: Some(1),
            ..BtreeOptions::default()
        });
        let base = store.base();
        let full = 2 * base.cache.budget().limit() as isize;
        base.cache.budget().add(Use::Deltas, full);
        base.cache.evict_soon();
        base.workers.drain().expect("it gives up");
        assert!(base.cache.budget().excess() > 0 && base.cache.budget().has_floor());
        for number in 0..100_u32 {
            assert!(store.engine.throttle());
            store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![1; 10]));
        }
        assert_eq!(store.base().counters.delays.get(), 0);
        // Noticeably more than that may be evicted, and is worth a wait; `apply` itself never waits.
        let base = store.base();
        base.cache.eviction().hold();
        let more = base.cache.budget().limit() as isize / 10;
        base.cache.budget().add(Use::Deltas, more);
        store.write(|batch| batch.put(ROWS, vec![7], vec![1; 10]));
        assert_eq!(store.base().counters.delays.get(), 0);
        while !store.engine.throttle() {}
        assert_eq!(store.base().counters.delays.get(), 1);
        let base = store.base();
        base.cache.budget().add(Use::Deltas, -full - more);
    }
}
