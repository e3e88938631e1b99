//! Keeping memory within its bounds, in the background.
//!
//! Two things give memory back, and neither is done by a client:
//! - *Dropping a base*: rows that are on disk exactly as they are in memory. The leaf keeps its delta, so a leaf with fresh
//!   writes need not be written to leave memory: the writes stay, as they would for a leaf that was never read.
//! - *Writing back* leaves whose deltas have grown: the merge of many small writes with one image, once deltas take more than
//!   their share.
//!
//! Cold leaves go first (`ring`). Writers are slowed down a little, in proportion, when all that is not fast enough
//! (`budget`). Whoever brings a page in when there is no room at all drops a cold one first: so memory passes the limit by no
//! more than a page for each thread, as long as there are leaves that are on disk as they are.

use crate::budget::{DELAY_MAX, Use};
use crate::core::Core;
use crate::evict_inner::ROUNDS_MAX as INNER_ROUNDS_MAX;
use crate::leaf::{Base, Leaf, LeafView, SEQ_MAX};
use crate::tree::{Child, Target, Tree, base_bytes, leaf_overhead};
use crate::workers::Class;
use crate::write_back::{Need, PageWriter};
use engine::{Batch, Op, Result};
use pins::{Holder, Pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Leaves looked at in one step.
const STEP: usize = 64;
/// Deltas may take so much of the cache before they are written back, in percent.
const DELTAS_PERCENT: u64 = 50;
/// Leaves that the hand passes in one step, and for one that a client gives up: the hottest are cold after four rounds.
const LOOKS_MAX: usize = 4 * STEP;
const LOOKS_OF_CLIENT: usize = 64;
/// Rounds of the ring after which nothing more can be had, and steps when it is short.
const ROUNDS_MAX: usize = 2;
const STEPS_MIN: usize = 5;
/// Leaves that one call of [`Core::make_page_room`] looks at, at most.
const ROOM_STEPS_MAX: usize = 64;
/// Who has replaced much waits for it to be freed while it is more than one part in so many of the cache, or than so many values.
const WAITING_PART: u64 = 64;
const WAITING_VALUES: u64 = 4096;
/// Readers and writers do when it is more than one part in so many.
const WAITING_PART_MAX: u64 = 24;
/// So many bytes may wait however small the cache.
const WAITING_BYTES_MIN: u64 = 1 << 20;
/// How long relief waits between two steps at most, and how long it, or a client, sleeps in between.
const FREE_PATIENCE: Duration = Duration::from_millis(5);
const FREE_PAUSE: Duration = Duration::from_millis(1);
/// A flush frees up to 512 values: so many of them in one go, and so many by a client.
const FLUSHES_MAX: u32 = 1024;
const FLUSHES_OF_CLIENT: u32 = 8;
/// Flushes after which what can be freed has been: two let the epochs pass, and others' pins are in the way for a moment.
const FREE_FLUSHES: u32 = 4;
/// Between two looks at the allocator.
const HEAP_INTERVAL: Duration = Duration::from_millis(50);
/// What a process needs whatever the size of the cache; it comes on top.
const HEAP_SPARED: u64 = 8 << 20;
/// Freed memory of more than one part in so many of the cache is given back at once when the whole is too much. It costs as much
/// as it saves when it happens often: what is freed is mostly used again in a moment, and goes back by itself after some.
const IDLE_PART: u64 = 8;

impl Core {
    /// After a batch: has room made when there is too little. The next writers wait for it, see [`Core::throttle`].
    pub(crate) fn note_batch(&self, batch: &Batch) {
        self.relieve_soon();
        self.write_behind_soon();
        self.bound_history_soon();
        if self.budget.evictable_excess() > 0 && self.workers.threads() > 0 {
            let bytes = batch.ops().iter().map(|op| match op {
                Op::Put(_, key, value) => key.len() + value.len(),
                Op::Delete(_, key) | Op::Add(_, key, _) => key.len(),
                Op::DeleteRange(..) | Op::CreateTable(..) | Op::DropTable(_) => 0,
            });
            self.unpaid.fetch_add(bytes.sum::<usize>() as u64, Ordering::Relaxed);
        }
    }

    /// See [`engine::Engine::throttle`]. Writers wait one after the other, so that all of them together are as slow as one would
    /// have to be: the first pays for what was written since the last that paid.
    pub(crate) fn throttle(&self) -> bool {
        let waited = self.keep_replaced_few();
        if !waited.is_zero() {
            self.note_delay(waited);
            return true;
        }
        if self.budget.evictable_excess() == 0 || self.workers.threads() == 0 {
            self.unpaid.store(0, Ordering::Relaxed);
            return true;
        }
        let Some(_paying) = self.paying.try_lock_for(DELAY_MAX) else {
            self.note_delay(DELAY_MAX);
            return false;
        };
        // At least one: where there is no room at all, each waits.
        let unpaid = self.unpaid.swap(0, Ordering::Relaxed).max(1);
        if let Some(delay) = self.budget.delay_for(unpaid) {
            self.note_delay(delay);
            self.room.wait(delay);
        }
        true
    }

    fn note_delay(&self, delay: Duration) {
        self.counters.delays.add(1);
        self.counters.delay_us.add(delay.as_micros() as u64);
    }

    /// Has a background thread make room when there is too little. With no threads the caller does the work.
    pub(crate) fn relieve_soon(&self) {
        let is_short = || self.budget.excess() > 0 || self.deltas_excess() > 0;
        if (is_short() && self.budget.has_grown()) || self.merge_queue.len() > 0 {
            // At the usual priority: who waits for memory waits for this.
            self.run_soon(Class::Urgent, |core| &core.relieving, "write-back", Self::make_relief);
        }
    }

    /// Gives back a position. When making room was given up because of undo for the oldest one, it is worth another try.
    pub(crate) fn unpin(&self, pin: Pin) {
        let (seq, holder) = (pin.seq(), pin.holder());
        self.pins.unpin(pin);
        if holder == Holder::Engine {
            self.history.try_again();
        }
        let was_oldest = seq.0 <= self.relief_oldest.load(Ordering::Relaxed);
        if self.budget.has_floor() && was_oldest && seq < self.pins.published() {
            self.budget.set_floor(None);
        }
    }

    /// Before a page comes in: has room made, and makes it here when there is none left at all. Of the leaf for whose rows the room is,
    /// not even its place is given up: whoever wants them would go down to it again and again when nothing else can go.
    pub(crate) fn make_page_room(&self, wanted: Option<&Leaf>) {
        self.relieve_soon();
        self.keep_replaced_few();
        if self.budget.total() <= self.budget.limit() || self.workers.threads() == 0 {
            return;
        }
        for _ in 0..ROOM_STEPS_MAX {
            // Those that were not cold are colder now.
            for (tree, leaf) in self.ring.take_cold(1, LOOKS_OF_CLIENT) {
                self.drop_base(&tree, &leaf);
                let is_wanted = wanted.is_some_and(|wanted| std::ptr::eq(wanted, &*leaf));
                if is_wanted || !self.unlink(&tree, &leaf) {
                    self.ring.push(tree, leaf);
                }
            }
            if self.budget.total() <= self.budget.limit() {
                break;
            }
        }
        let beyond = self.budget.total().saturating_sub(self.budget.limit());
        if beyond > 0 {
            self.trim_kept(beyond);
        }
        // Not some time: that is the memory the page needs.
        self.free_replaced(FLUSHES_OF_CLIENT, Duration::ZERO);
    }

    /// For whoever has replaced much in the background: frees it, and looks at what that left of the heap.
    pub(crate) fn free_replaced_in_background(&self, patience: Duration) {
        self.free_replaced(FLUSHES_MAX, patience);
        self.look_at_heap();
    }

    /// Frees what was replaced and nobody can see any more, until little of it is left. Where a thread that may still look at it
    /// does not run, waits for that up to `patience`; not a thread that is pinned itself. Memory that waits is beyond every
    /// limit, and the loads and folds that go on meanwhile make more of it. Answers how long it waited. Nobody calls it with a lock.
    fn free_replaced(&self, flushes_max: u32, patience: Duration) -> Duration {
        rcu::pin().flush();
        let bytes_max = (self.options.cache_bytes / WAITING_PART).max(WAITING_BYTES_MIN);
        let is_much = |waiting: rcu::Waiting| waiting.bytes > bytes_max || waiting.values > WAITING_VALUES;
        let mut now = rcu::waiting();
        let (mut in_vain, mut waited) = (0, Duration::ZERO);
        for _ in 0..flushes_max {
            if !is_much(now) {
                break;
            }
            rcu::pin().flush();
            let next = rcu::waiting();
            in_vain = if next.freed == now.freed { in_vain + 1 } else { 0 };
            now = next;
            if in_vain < FREE_FLUSHES {
                continue;
            }
            if waited >= patience || self.workers.threads() == 0 || rcu::is_pinned() {
                break;
            }
            self.room.wait(FREE_PAUSE);
            waited += FREE_PAUSE;
        }
        waited
    }

    /// For whoever is about to take memory: where much of what was replaced waits to be freed, helps, and waits a moment. Answers how
    /// long it waited.
    fn keep_replaced_few(&self) -> Duration {
        let bytes_max = (self.options.cache_bytes / WAITING_PART_MAX).max(WAITING_BYTES_MIN);
        let waiting = rcu::waiting().bytes;
        if waiting > bytes_max {
            let patience = if waiting > 2 * bytes_max { DELAY_MAX } else { FREE_PAUSE };
            return self.free_replaced(FLUSHES_OF_CLIENT, patience);
        }
        Duration::ZERO
    }

    /// Lets the cache give way to what the process's heap takes beside it, and has the heap give back what it holds for nobody
    /// when that is much.
    fn look_at_heap(&self) {
        let Some(heap) = self.options.heap else {
            return;
        };
        let now = self.env.clock.monotonic();
        let Some(mut next_look) = self.next_look.try_lock() else {
            return;
        };
        if now < *next_look {
            return;
        }
        *next_look = now + HEAP_INTERVAL;
        let (cache, bytes) = (self.options.cache_bytes, (heap.bytes)());
        let beside = bytes.resident.saturating_sub(self.budget.total());
        self.budget
            .give_way(beside, cache - self.budget.limit_max() + HEAP_SPARED);
        if bytes.resident > cache + HEAP_SPARED && bytes.idle > cache / IDLE_PART {
            (heap.give_back)();
        }
    }

    /// Bytes of deltas beyond their share.
    fn deltas_excess(&self) -> u64 {
        self.budget
            .used(Use::Deltas)
            .saturating_sub(self.budget.limit() * DELTAS_PERCENT / 100)
    }

    /// Makes room until there is enough.
    fn make_relief(&self) -> Result<()> {
        self.look_at_heap();
        self.merge_buffers()?;
        // Leaves looked at since the last that gave something. What clients bring in meanwhile does not count: as long as
        // there is something to be had, it is taken.
        let mut in_vain = 0;
        let floor = loop {
            if self.budget.excess() == 0 && self.deltas_excess() == 0 {
                break None;
            }
            let looks = (ROUNDS_MAX * self.ring.len()).max(INNER_ROUNDS_MAX * self.inner_count());
            if in_vain >= looks.max(STEPS_MIN * STEP) {
                break Some(self.budget.total());
            }
            self.check_running()?;
            self.look_at_heap();
            // Where leaves have nothing to give, kept blocks go before anything is written.
            self.trim_kept(if in_vain > 0 { self.budget.excess() } else { 0 });
            if self.budget.excess() == 0 && self.deltas_excess() == 0 {
                continue;
            }
            let write = self.deltas_excess() > 0 || in_vain > STEP;
            let freed = self.evict_some(write)? + self.evict_inner()?;
            self.free_replaced_in_background(FREE_PATIENCE);
            // Next to nothing is no gain: leaves that are written shrink and grow by a few bytes.
            if freed as u64 > self.budget.limit() / 16_384 {
                in_vain = 0;
            } else {
                in_vain += STEP;
            }
            self.room.made();
        };
        self.relief_oldest.store(self.pins.oldest().0, Ordering::Relaxed);
        self.budget.set_floor(floor);
        Ok(())
    }

    /// Merges writes that were buffered for leaves on disk.
    fn merge_buffers(&self) -> Result<()> {
        loop {
            let leaves = self.merge_queue.take(STEP);
            if leaves.is_empty() {
                return Ok(());
            }
            self.counters.buffers_merged.add(leaves.len() as u64);
            self.write_dirty(leaves)?;
        }
    }

    /// Writes those of `leaves` that differ from what is on disk, neighbours together.
    fn write_dirty(&self, mut leaves: Vec<(Arc<Tree>, Arc<Leaf>)>) -> Result<()> {
        leaves.sort_unstable_by(|a, b| (a.0.id, &a.1.low).cmp(&(b.0.id, &b.1.low)));
        let started = self.env.clock.monotonic();
        let mut writer = PageWriter::new(self);
        let mut bytes = 0;
        for (tree, leaf) in &leaves {
            bytes += leaf.state.lock().delta_bytes;
            writer.write(tree, leaf, Need::Dirty)?;
        }
        writer.flush()?;
        let took = self.env.clock.monotonic().saturating_sub(started);
        self.budget.note_write_back(bytes as u64, took);
        Ok(())
    }

    /// One step: cold leaves give up their bases; where deltas have to go, the larger ones are written. Returns the bytes that
    /// the leaves looked at gave.
    fn evict_some(&self, write: bool) -> Result<usize> {
        let ring = self.ring.len().max(1) as u64;
        let average = (self.budget.used(Use::Deltas) / ring) as usize;
        let mut to_write = Vec::new();
        let (mut held, mut kept) = (0, 0);
        for (tree, leaf) in self.ring.take_cold(STEP, LOOKS_MAX) {
            let mut state = leaf.state.lock();
            let guard = rcu::pin();
            let view = leaf.view.load(&guard);
            if view.retired || tree.dead.load(Ordering::Acquire) {
                state.in_ring = false;
                continue;
            }
            let droppable = match view.base {
                Base::Image(_) => state.base_is_stored && state.writing.is_none(),
                Base::Empty | Base::Stored(_) => false,
            };
            let delta = state.delta_bytes;
            held += delta + base_bytes(&view.base);
            let dirty = state.stored.is_none() || state.valid_to != SEQ_MAX;
            drop(state);
            let is_stored = matches!(view.base, Base::Stored(_));
            if dirty && is_stored && !(write && delta >= average) {
                // Nothing but writes that stay: many such leaves lie between those that have something to give.
                kept += delta;
                self.ring.push(tree, leaf);
                continue;
            }
            if !dirty {
                self.shed_delta(&tree, &leaf);
            }
            if dirty && ((write && delta >= average) || (!droppable && !is_stored)) {
                to_write.push((tree.clone(), leaf.clone()));
            } else {
                self.drop_base(&tree, &leaf);
                kept += Self::held_bytes(&leaf);
            }
            if !self.unlink(&tree, &leaf) {
                self.ring.push(tree, leaf);
            }
        }
        if !to_write.is_empty() {
            let written: Vec<_> = to_write.clone();
            self.write_dirty(to_write)?;
            for (tree, leaf) in written {
                self.drop_base(&tree, &leaf);
                kept += Self::held_bytes(&leaf);
            }
        }
        Ok(held.saturating_sub(kept))
    }

    /// Bytes of a leaf's base and delta; none of one that left the tree.
    fn held_bytes(leaf: &Leaf) -> usize {
        let guard = rcu::pin();
        let state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if view.retired {
            0
        } else {
            state.delta_bytes + base_bytes(&view.base)
        }
    }

    /// Drops the undo of a leaf when its image has all that anybody still reads.
    pub(crate) fn shed_delta(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let is_clean = state.stored.is_some() && state.valid_to == SEQ_MAX && state.writing.is_none();
        if view.retired || view.order.len() == 0 || !is_clean || state.valid_from > self.pins.oldest() {
            return;
        }
        if !state.base_is_stored && !matches!(view.base, Base::Stored(_)) {
            // The base has moved on since the image was written, or holds what blocks of their own should: fold instead.
            let _ = self.fold_in_place(tree, leaf, &mut state, None, &guard);
            return;
        }
        let bytes = std::mem::take(&mut state.delta_bytes);
        state.entries = 0;
        state.delta_rows = 0;
        state.versions = 0;
        state.set_undo(self, 0);
        leaf.view.replace_large(LeafView::new(view.base.clone()), bytes, &guard);
        self.account(tree, 0, -(bytes as isize));
    }

    /// Drops a leaf's rows from memory when they are on disk as they are.
    pub(crate) fn drop_base(&self, tree: &Tree, leaf: &Leaf) {
        let guard = rcu::pin();
        let state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let (Base::Image(image), Some(address)) = (&view.base, state.stored) else {
            return;
        };
        if view.retired || !state.base_is_stored || state.writing.is_some() {
            return;
        }
        let bytes = image.memory_bytes();
        leaf.view
            .replace_large(view.with_base(Base::Stored(address)), bytes, &guard);
        self.account(tree, -(bytes as isize), 0);
        self.counters.pages_evicted.add(1);
    }

    /// Takes a leaf out of memory when nothing of it is there any more but the place. True when it need not be looked at again.
    pub(crate) fn unlink(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) -> bool {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if view.retired {
            state.in_ring = false;
            return true;
        }
        let Base::Stored(address) = view.base else { return false };
        let line = *self.line.lock();
        let idle = view.order.len() == 0
            && view.hidden_from == SEQ_MAX
            && state.valid_to == SEQ_MAX
            && state.stored == Some(address)
            && state.writing.is_none()
            && state.dropped_large.is_empty();
        // A running checkpoint finds the image that it needs at the leaf; on disk only if that is this one.
        let settled = line.is_none_or(|line| {
            state.valid_from <= line.cut && state.checkpoint.is_none_or(|(number, _)| number != line.number)
        });
        if !idle || !settled {
            return false;
        }
        let descent = tree.descend(Target::At(&leaf.low), 0, &guard);
        let is_it = matches!(descent.child, Child::Leaf(there) if Arc::ptr_eq(there, leaf));
        if !is_it {
            return false;
        }
        descent.cell.replace(Child::Stored { address, level: 0 }, &guard);
        leaf.view.replace(LeafView::retired(), &guard);
        state.in_ring = false;
        self.account(tree, -(leaf_overhead(leaf) as isize), -(state.delta_bytes as isize));
        true
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
        let core = store.core();
        let tree = core.tables.get(ROWS, &rcu::pin()).expect("the table").tree.clone();
        let leaf = tree.leaf_in_memory(b"key", &rcu::pin()).expect("it was just written");
        core.drop_base(&tree, &leaf);
        let Base::Stored(address) = leaf.view.load(&rcu::pin()).base.clone() else {
            panic!("its rows are on disk only");
        };
        // Memory is full of what cannot go, and the background has given up.
        core.relieving.store(true, Ordering::Release);
        let full = core.budget.limit() as isize + 1;
        core.budget.add(Use::Deltas, full);
        core.bring_base_in(&tree, &leaf, address).expect("a read");
        assert!(
            matches!(leaf.view.load(&rcu::pin()).base, Base::Image(_)),
            "its rows are there"
        );
        core.budget.add(Use::Deltas, -full);
    }

    #[test]
    fn writers_do_not_wait_for_what_nothing_can_free() {
        let mut store = Store::new(BtreeOptions {
            threads: Some(1),
            ..BtreeOptions::default()
        });
        let core = store.core();
        let full = 2 * core.budget.limit() as isize;
        core.budget.add(Use::Deltas, full);
        core.relieve_soon();
        core.workers.drain().expect("it gives up");
        assert!(core.budget.excess() > 0 && core.budget.has_floor());
        for number in 0..100_u32 {
            assert!(store.engine.throttle());
            store.write(|batch| batch.put(ROWS, number.to_be_bytes().to_vec(), vec![1; 10]));
        }
        assert_eq!(store.core().counters.delays.get(), 0);
        // Noticeably more than that may be evicted, and is worth a wait; `apply` itself never waits.
        let core = store.core();
        core.relieving.store(true, Ordering::Release);
        let more = core.budget.limit() as isize / 10;
        core.budget.add(Use::Deltas, more);
        store.write(|batch| batch.put(ROWS, vec![7], vec![1; 10]));
        assert_eq!(store.core().counters.delays.get(), 0);
        while !store.engine.throttle() {}
        assert_eq!(store.core().counters.delays.get(), 1);
        let core = store.core();
        core.budget.add(Use::Deltas, -full - more);
    }
}
