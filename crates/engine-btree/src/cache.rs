//! The page cache: what memory the pages of trees take, which of them leave first, and who waits when there is too
//! little.
//!
//! It counts ([`Budget`]), knows the leaves in memory in the order of the CLOCK ([`ClockList`]) and compressed blocks
//! of leaves that were read once ([`BlockCache`]). It gives memory back as far as that needs no disk: rows that are on
//! disk as they are, compressed blocks, and what was replaced and waits until no reader can hold it. What has to be
//! written first is the work of `eviction`, which is told here ([`PageCache::evict_soon`]) and done elsewhere.

use crate::block_cache::{BlockCache, BlockKey, BlockLookup, Pieces};
use crate::budget::{Budget, DELAY_MAX, Use};
use crate::clock_list::{ClockEntry, ClockList};
use crate::counters::Counters;
use crate::job::Job;
use crate::leaf::{Base, Leaf};
use crate::options::{BtreeOptions, Heap};
use crate::tree::Tree;
use crate::workers::{Class, Workers};
use engine::Seq;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Deltas may take so much of the cache before they are written back, in percent.
const DELTAS_PERCENT: u64 = 50;
/// Who has replaced much waits for it to be freed while it is more than one part in so many of the cache, or than so
/// many values.
const WAITING_PART: u64 = 64;
const WAITING_VALUES: u64 = 4096;
/// Readers and writers do when it is more than one part in so many.
const WAITING_PART_MAX: u64 = 24;
/// So many bytes may wait however small the cache.
const WAITING_BYTES_MIN: u64 = 1 << 20;
/// How long whoever waits for replaced memory sleeps in between.
const FREE_PAUSE: Duration = Duration::from_millis(1);
/// A flush frees up to 512 values: so many of them in one go, and so many by a client.
const FLUSHES_MAX: u32 = 1024;
const FLUSHES_OF_CLIENT: u32 = 8;
/// Flushes after which what can be freed has been: two let the epochs pass, and others' pins are in the way for a
/// moment.
const FREE_FLUSHES: u32 = 4;
/// Between two looks at the allocator.
const HEAP_INTERVAL: Duration = Duration::from_millis(50);
/// What a process needs whatever the size of the cache; it comes on top.
const HEAP_SPARED: u64 = 8 << 20;
/// Freed memory of more than one part in so many of the cache is given back at once when the whole is too much. It
/// costs as much as it saves when it happens often: what is freed is mostly used again in a moment, and goes back by
/// itself after some.
const IDLE_PART: u64 = 8;

/// Where writers wait when memory is short.
#[derive(Default)]
struct Room {
    lock: Mutex<()>,
    changed: parking_lot::Condvar,
}

/// See the module.
pub(crate) struct PageCache {
    budget: Budget,
    clock_list: ClockList,
    blocks: BlockCache,
    counters: Arc<Counters>,
    workers: Arc<Workers>,
    clock: Arc<dyn vfs::Clock>,
    /// As configured, in bytes.
    cache_bytes: u64,
    heap: Option<Heap>,
    /// When to look at the allocator again.
    next_look: Mutex<Duration>,
    room: Room,
    eviction: Arc<Job>,
    /// Leaves on disk with many buffered writes, which a worker shall merge with their rows.
    to_merge: Mutex<Vec<ClockEntry>>,
    /// The oldest position anybody read at when memory could not be brought below the budget's floor.
    floor_oldest: AtomicU64,
}

impl PageCache {
    pub(crate) fn new(
        options: &BtreeOptions,
        clock: Arc<dyn vfs::Clock>,
        workers: Arc<Workers>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            // The rest is for pages that were given up and that readers, or the allocator, still hold.
            budget: Budget::new(options.cache_bytes - options.cache_bytes / 12),
            clock_list: ClockList::default(),
            blocks: BlockCache::default(),
            counters,
            workers,
            clock,
            cache_bytes: options.cache_bytes,
            heap: options.heap,
            next_look: Mutex::default(),
            room: Room::default(),
            eviction: Job::new(Class::Urgent),
            to_merge: Mutex::default(),
            floor_oldest: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn clock_list(&self) -> &ClockList {
        &self.clock_list
    }

    /// As configured.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// The job behind [`PageCache::evict_soon`].
    pub(crate) fn eviction(&self) -> &Arc<Job> {
        &self.eviction
    }

    /// Whether somebody works in the background. Otherwise tests step the work, and nobody may wait for it.
    pub(crate) fn has_workers(&self) -> bool {
        self.workers.threads() > 0
    }

    /// Heap bytes of a tree's leaves rise or fall, by images and by deltas.
    #[inline]
    pub(crate) fn account(&self, tree: &Tree, images: isize, deltas: isize) {
        self.budget.add(Use::Images, images);
        self.budget.add(Use::Deltas, deltas);
        tree.account(images + deltas);
    }

    /// Heap bytes of a tree's inner nodes rise or fall.
    pub(crate) fn account_inner(&self, tree: &Tree, bytes: isize) {
        self.budget.add(Use::Inner, bytes);
        tree.account(bytes);
    }

    /// Makes the CLOCK know a leaf that takes memory.
    pub(crate) fn add_to_clock(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let mut state = leaf.state.lock();
        if !state.in_clock {
            state.in_clock = true;
            self.clock_list.push(tree.clone(), leaf.clone());
        }
    }

    /// Drops a leaf's rows from memory when they are on disk as they are.
    pub(crate) fn drop_base(&self, tree: &Tree, leaf: &Leaf) {
        let guard = rcu::pin();
        let state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        let (Base::Image(image), Some(address)) = (&view.base, state.disk_image) else {
            return;
        };
        if view.retired || !state.base_is_disk_image || state.writing.is_some() {
            return;
        }
        let bytes = image.memory_bytes();
        leaf.view
            .replace_large(view.with_base(Base::OnDisk(address)), bytes, &guard);
        self.account(tree, -(bytes as isize), 0);
        self.counters.pages_evicted.add(1);
        drop(state);
        self.blocks.note_gone_page((tree.shape.volume, address), bytes);
    }

    /// What a read of a row or a short range finds in the compressed blocks.
    pub(crate) fn look_up_block(&self, key: &BlockKey) -> BlockLookup {
        let found = self.blocks.look_up(key);
        if let Some(step) = self.blocks.take_step() {
            self.budget.move_blocks_share(step);
        }
        found
    }

    /// A compressed block, without a trace of the look.
    pub(crate) fn peek_block(&self, key: &BlockKey) -> Option<Arc<Pieces>> {
        self.blocks.peek(key)
    }

    /// Whether a compressed block is there.
    pub(crate) fn has_block(&self, key: &BlockKey) -> bool {
        self.blocks.has(key)
    }

    /// Takes a compressed block out.
    pub(crate) fn take_block(&self, key: &BlockKey) -> Option<Arc<Pieces>> {
        let block = self.blocks.take(key)?;
        self.budget.add(Use::Blocks, -(block.weight() as isize));
        Some(block)
    }

    /// Puts a compressed block in.
    pub(crate) fn put_block(&self, key: BlockKey, block: Pieces) {
        let limit = self.budget.blocks_limit() as usize;
        let change = self.blocks.put(key, Arc::new(block), limit);
        self.budget.add(Use::Blocks, change);
    }

    /// Has compressed blocks take no more than their share, and `give` bytes less than now.
    pub(crate) fn trim_blocks(&self, give: u64) {
        let left = self.budget.used(Use::Blocks).saturating_sub(give);
        let change = self.blocks.trim(self.budget.blocks_limit().min(left) as usize);
        self.budget.add(Use::Blocks, change);
    }

    /// Bytes of deltas beyond their share.
    pub(crate) fn deltas_excess(&self) -> u64 {
        self.budget
            .used(Use::Deltas)
            .saturating_sub(self.budget.limit() * DELTAS_PERCENT / 100)
    }

    /// Whether there is more than there should be.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.excess() > 0 || self.deltas_excess() > 0
    }

    /// Has a background thread evict when there is too little room. With no threads the caller does the work.
    pub(crate) fn evict_soon(&self) {
        if (self.is_short() && self.budget.has_grown()) || !self.to_merge.lock().is_empty() {
            // At the usual priority: who waits for memory waits for this.
            self.eviction.soon(&self.workers);
        }
    }

    /// Eviction has ended: with all done that was to do (`None`), or with nothing left that could go, `oldest` being
    /// the oldest position anybody read at.
    pub(crate) fn set_floor(&self, floor: Option<u64>, oldest: Seq) {
        self.floor_oldest.store(oldest.0, Ordering::Relaxed);
        self.budget.set_floor(floor);
    }

    /// Whether eviction gave up because of undo, perhaps for a reader at `seq`: when that goes, it is worth another
    /// try.
    #[inline]
    pub(crate) fn gave_up_at(&self, seq: Seq) -> bool {
        self.budget.has_floor() && seq.0 <= self.floor_oldest.load(Ordering::Relaxed)
    }

    /// Has a worker merge the writes that were buffered for a leaf with its rows: see [`PageCache::evict_soon`].
    pub(crate) fn merge_soon(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        self.to_merge.lock().push((tree.clone(), leaf.clone()));
    }

    /// Takes out some of the leaves with buffered writes.
    pub(crate) fn take_to_merge(&self, count: usize) -> Vec<ClockEntry> {
        let mut leaves = self.to_merge.lock();
        let start = leaves.len().saturating_sub(count);
        leaves.split_off(start)
    }

    /// Waits for `delay`, or less when room was made.
    pub(crate) fn wait_for_room(&self, delay: Duration) {
        let mut lock = self.room.lock.lock();
        self.room.changed.wait_for(&mut lock, delay);
    }

    /// Room was made: whoever waits for it goes on.
    pub(crate) fn room_was_made(&self) {
        self.room.changed.notify_all();
    }

    /// Frees at once what was replaced and nobody can see any more, as a client does that needs the memory.
    pub(crate) fn free_replaced_now(&self) {
        self.free_replaced(FLUSHES_OF_CLIENT, Duration::ZERO);
    }

    /// For whoever has replaced much in the background: frees it, and looks at what that left of the heap.
    pub(crate) fn free_replaced_in_background(&self, patience: Duration) {
        self.free_replaced(FLUSHES_MAX, patience);
        self.look_at_heap();
    }

    /// Frees what was replaced and nobody can see any more, until little of it is left. Where a thread that may still
    /// look at it does not run, waits for that up to `patience`; not a thread that is pinned itself. Memory that waits
    /// is beyond every limit, and the loads and consolidations that go on meanwhile make more of it. Answers how long
    /// it waited. Must not be called with a lock held.
    fn free_replaced(&self, flushes_max: u32, patience: Duration) -> Duration {
        rcu::pin().flush();
        let bytes_max = (self.cache_bytes / WAITING_PART).max(WAITING_BYTES_MIN);
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
            if waited >= patience || !self.has_workers() || rcu::is_pinned() {
                break;
            }
            self.wait_for_room(FREE_PAUSE);
            waited += FREE_PAUSE;
        }
        waited
    }

    /// For whoever is about to take memory: where much of what was replaced waits to be freed, helps, and waits a
    /// moment. Answers how long it waited. Must not be called with a lock held.
    pub(crate) fn keep_replaced_few(&self) -> Duration {
        let bytes_max = (self.cache_bytes / WAITING_PART_MAX).max(WAITING_BYTES_MIN);
        let waiting = rcu::waiting().bytes;
        if waiting > bytes_max {
            let patience = if waiting > 2 * bytes_max { DELAY_MAX } else { FREE_PAUSE };
            return self.free_replaced(FLUSHES_OF_CLIENT, patience);
        }
        Duration::ZERO
    }

    /// Lets the cache give way to what the process's heap takes beside it, and has the heap give back what it holds for
    /// nobody when that is much.
    pub(crate) fn look_at_heap(&self) {
        let Some(heap) = self.heap else {
            return;
        };
        let now = self.clock.monotonic();
        let Some(mut next_look) = self.next_look.try_lock() else {
            return;
        };
        if now < *next_look {
            return;
        }
        *next_look = now + HEAP_INTERVAL;
        let (cache, bytes) = (self.cache_bytes, (heap.bytes)());
        let beside = bytes.resident.saturating_sub(self.budget.total());
        self.budget
            .give_way(beside, cache - self.budget.limit_max() + HEAP_SPARED);
        if bytes.resident > cache + HEAP_SPARED && bytes.idle > cache / IDLE_PART {
            (heap.give_back)();
        }
    }
}
