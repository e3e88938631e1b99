//! What all parts of an open engine share, and reading pages from disk.

use crate::budget::{Budget, Use};
use crate::history::History;
use crate::kept::{Kept, Look, Pieces};
use crate::large_values::LargeBook;
use crate::leaf::{Base, Found, Leaf, LeafView, with_added};
use crate::options::BtreeOptions;
use crate::page::{LARGE_CHUNK_BYTES, LargeRef, LeafImage, NewValue, PageDamage, decode_inner};
use crate::ring::Ring;
use crate::tables::Tables;
use crate::tree::{Child, Descent, Inner, Target, Tree, UsedInner, leaf_overhead};
use crate::workers::{Class, Workers};
use crate::write_behind::WriteBehind;
use blocks::{BlockAddr, BlockKind, BlockStore, Near, ReadScratch};
use bytes::Bytes;
use engine::{EngineError, ErrorKind, Result, Seq, WriteAheadRule};
use parking_lot::Mutex as PlainMutex;
use pins::Pins;
use rcu::{Guard, Mutex, RwLock};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// A counter that many threads raise.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Counters for statistics.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: Counter,
    pub(crate) operations: Counter,
    pub(crate) gets: Counter,
    pub(crate) pages_read: Counter,
    pub(crate) read_again: Counter,
    pub(crate) pages_written: Counter,
    pub(crate) pages_evicted: Counter,
    pub(crate) inner_evicted: Counter,
    pub(crate) folds: Counter,
    pub(crate) splits: Counter,
    pub(crate) merges: Counter,
    pub(crate) blind_writes: Counter,
    pub(crate) buffers_merged: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) checkpoint_ms: Counter,
    pub(crate) checkpoint_ms_last: Counter,
    pub(crate) delays: Counter,
    pub(crate) delay_us: Counter,
    pub(crate) prefetched: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) relocated: Counter,
    pub(crate) written_behind: Counter,
    pub(crate) snapshots_ended: Counter,
}

/// The checkpoint that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) number: u64,
    /// It holds the state at this position.
    pub(crate) cut: Seq,
}

/// Where writers wait when memory is short.
#[derive(Default)]
pub(crate) struct Room {
    lock: PlainMutex<()>,
    changed: parking_lot::Condvar,
}

impl Room {
    /// Waits for `delay`, or less when room was made.
    pub(crate) fn wait(&self, delay: std::time::Duration) {
        let mut lock = self.lock.lock();
        self.changed.wait_for(&mut lock, delay);
    }

    /// Room was made.
    pub(crate) fn made(&self) {
        self.changed.notify_all();
    }
}

/// Leaves that a worker shall look at.
#[derive(Default)]
pub(crate) struct Queue {
    leaves: PlainMutex<Vec<(Arc<Tree>, Arc<Leaf>)>>,
}

impl Queue {
    pub(crate) fn push(&self, tree: Arc<Tree>, leaf: Arc<Leaf>) {
        self.leaves.lock().push((tree, leaf));
    }

    pub(crate) fn len(&self) -> usize {
        self.leaves.lock().len()
    }

    /// Takes some out, of one tree where possible.
    pub(crate) fn take(&self, count: usize) -> Vec<(Arc<Tree>, Arc<Leaf>)> {
        let mut leaves = self.leaves.lock();
        let start = leaves.len().saturating_sub(count);
        leaves.split_off(start)
    }
}

/// See the module.
pub(crate) struct Core {
    /// For jobs, which must not keep a closed engine alive.
    pub(crate) me: Weak<Core>,
    pub(crate) env: vfs::Env,
    pub(crate) directory: PathBuf,
    pub(crate) options: BtreeOptions,
    pub(crate) store: Arc<BlockStore>,
    pub(crate) pins: Pins,
    pub(crate) history: History,
    pub(crate) tables: Tables,
    pub(crate) workers: Workers,
    pub(crate) budget: Budget,
    pub(crate) ring: Ring,
    pub(crate) kept: Kept,
    pub(crate) counters: Counters,
    /// The running checkpoint. Taken after a leaf's `state`, and for short: what an image that is being published replaces
    /// belongs to that checkpoint or does not, and the checkpoint must not begin in between.
    pub(crate) line: Mutex<Option<Line>>,
    /// The tree of the tables' rows: see `directory`.
    pub(crate) directory_tree: Arc<Tree>,
    /// Held during a checkpoint; the last one's cut.
    pub(crate) checkpointing: Mutex<Seq>,
    /// The durable mark.
    pub(crate) durable: AtomicU64,
    pub(crate) write_ahead: WriteAheadRule,
    /// Tables that the next checkpoint has to look at.
    pub(crate) changed: Mutex<Vec<Arc<crate::tables::Table>>>,
    /// Held for reading by whoever has appended blocks and not flushed them, for writing while a checkpoint
    /// records what is used.
    pub(crate) unflushed: RwLock<()>,
    /// Held from when a table's volume is looked up until the table is known, and while an unused volume is removed.
    /// The volume that was prepared last, if no table is in it yet.
    pub(crate) volumes: Mutex<Option<blocks::VolumeId>>,
    /// Large values whose standing changes.
    pub(crate) book: Arc<LargeBook>,
    /// Leaves on disk with many buffered writes.
    pub(crate) merge_queue: Queue,
    /// Why the engine stopped, once it has.
    stopped: PlainMutex<Option<String>>,
    /// Blocks of bulk loads that have not ended.
    pub(crate) loading: crate::bulk::Loading,
    /// Where eviction of inner nodes goes on.
    pub(crate) inner_hand: PlainMutex<crate::evict_inner::Hand>,
    /// Writers that wait for room.
    pub(crate) room: Room,
    /// A job that makes room is queued or runs.
    pub(crate) relieving: AtomicBool,
    /// See `write_behind`.
    pub(crate) behind: WriteBehind,
    /// A job that empties segments is queued or runs.
    pub(crate) relocating: AtomicBool,
    /// Held by whoever empties segments. A leaf that one has begun to write another cannot move.
    pub(crate) emptying: Mutex<()>,
    /// Compactions that run. The background leaves segments to them: at its priority it may hold up what it has begun for long.
    pub(crate) compactions: AtomicUsize,
    /// Leaves of the directory that the next checkpoint moves.
    pub(crate) directory_moves: PlainMutex<Vec<blocks::MovingBlock>>,
    /// The oldest position anybody read at when memory could not be brought below the budget's floor.
    pub(crate) relief_oldest: AtomicU64,
    /// Bytes of batches that nobody has waited for yet, applied while memory was short.
    pub(crate) unpaid: AtomicU64,
    /// Held by the one writer that waits for room: those behind it wait for it.
    pub(crate) paying: PlainMutex<()>,
    /// When to look at the allocator again.
    pub(crate) next_look: PlainMutex<std::time::Duration>,
    is_stopped: AtomicBool,
}

thread_local! {
    static SCRATCH: RefCell<ReadScratch> = RefCell::new(ReadScratch::default());
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "one call, at opening")]
    pub(crate) fn new(
        me: Weak<Core>,
        env: vfs::Env,
        directory: PathBuf,
        options: BtreeOptions,
        store: Arc<BlockStore>,
        workers: Workers,
        directory_tree: Arc<Tree>,
        durable: Seq,
    ) -> Self {
        Self {
            me,
            env,
            directory,
            store,
            pins: Pins::new(durable),
            history: History::default(),
            tables: Tables::default(),
            workers,
            // The rest is for pages that were given up and that readers, or the allocator, still hold.
            budget: Budget::new(options.cache_bytes - options.cache_bytes / 12),
            options,
            ring: Ring::default(),
            kept: Kept::default(),
            counters: Counters::default(),
            line: Mutex::new(None),
            directory_tree,
            checkpointing: Mutex::new(durable),
            durable: AtomicU64::new(durable.0),
            write_ahead: WriteAheadRule::default(),
            changed: Mutex::new(Vec::new()),
            unflushed: RwLock::new(()),
            volumes: Mutex::new(None),
            book: Arc::default(),
            merge_queue: Queue::default(),
            stopped: PlainMutex::new(None),
            loading: crate::bulk::Loading::default(),
            inner_hand: PlainMutex::default(),
            room: Room::default(),
            relieving: AtomicBool::new(false),
            behind: WriteBehind::default(),
            relocating: AtomicBool::new(false),
            emptying: Mutex::new(()),
            compactions: AtomicUsize::new(0),
            directory_moves: PlainMutex::default(),
            relief_oldest: AtomicU64::new(0),
            unpaid: AtomicU64::new(0),
            paying: PlainMutex::default(),
            next_look: PlainMutex::default(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Has a worker run `job` unless it is queued or runs already, which `flag` tells; with no threads the caller does the work. An
    /// error stops the engine unless the disk is full.
    pub(crate) fn run_soon(
        &self,
        class: Class,
        flag: fn(&Self) -> &AtomicBool,
        what: &'static str,
        job: fn(&Self) -> Result<()>,
    ) {
        if flag(self).swap(true, Ordering::AcqRel) {
            return;
        }
        let run = move |core: &Self| {
            let result = job(core);
            flag(core).store(false, Ordering::Release);
            if let Err(error) = result
                && !matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Closed)
            {
                core.stop(&format!("{what} failed: {error}"));
            }
        };
        if self.workers.threads() == 0 {
            return run(self);
        }
        let core = self.me.clone();
        let submitted = self.workers.submit(class, move || {
            if let Some(core) = core.upgrade() {
                run(&core);
            }
        });
        if submitted.is_err() {
            flag(self).store(false, Ordering::Release);
        }
    }

    /// An error after [`Core::stop`] and [`Core::close`].
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.is_stopped.load(Ordering::Acquire) {
            let failure = self.stopped.lock().clone();
            return Err(failure.map_or(EngineError::Closed, EngineError::Stopped));
        }
        Ok(())
    }

    /// Nothing works after this, and nothing has failed.
    pub(crate) fn close(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Nothing works after this. The first reason stays.
    pub(crate) fn stop(&self, reason: &str) {
        let mut stopped = self.stopped.lock();
        stopped.get_or_insert_with(|| reason.to_owned());
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Heap bytes of a tree's leaves rise or fall, by images and by deltas.
    pub(crate) fn account(&self, tree: &Tree, images: isize, deltas: isize) {
        self.budget.add(Use::Images, images);
        self.budget.add(Use::Deltas, deltas);
        account_in(tree, images + deltas);
    }

    /// Heap bytes of a tree's inner nodes rise or fall.
    pub(crate) fn account_inner(&self, tree: &Tree, bytes: isize) {
        self.budget.add(Use::Inner, bytes);
        account_in(tree, bytes);
    }

    /// Gives back the blocks of large values that nobody can read, before a checkpoint begins and before it (`line`) records what
    /// is used.
    pub(crate) fn free_lost_large(&self, line: Option<Line>) {
        let cut = line.map(|line| line.cut);
        let (published, low) = self.pins.oldest_but(cut);
        for (volume, cell) in self.book.take(published, low, cut) {
            let Some(large) = LargeRef::from_cell(&cell) else {
                continue;
            };
            for address in large.addresses() {
                let is_freed = self.store.free(volume, address, blocks::Referenced::No);
                debug_assert!(is_freed, "a large value at {address:?} is given back once");
            }
        }
    }

    fn damaged(&self, address: BlockAddr, damage: PageDamage) -> EngineError {
        EngineError::Corrupt {
            path: self.directory.clone(),
            offset: address.sector() * blocks::SECTOR_BYTES as u64,
            reason: damage.to_string(),
        }
    }

    /// What `take` makes of a block's raw bytes. It must not read a block itself.
    fn read_block<T>(
        &self,
        tree: &Tree,
        address: BlockAddr,
        kind: BlockKind,
        near: Near,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        debug_assert!(
            !rcu::is_pinned(),
            "what was replaced cannot be freed while a pinned thread reads"
        );
        self.counters.pages_read.add(1);
        let (volume, owner) = (tree.shape.volume, tree.id.0);
        SCRATCH
            .with_borrow_mut(|scratch| self.store.read_with(volume, &address, owner, kind, near, scratch, take))
            .map_err(EngineError::from)
    }

    /// A leaf's image from disk.
    pub(crate) fn read_leaf(&self, tree: &Tree, address: BlockAddr, near: Near) -> Result<LeafImage> {
        self.read_block(tree, address, BlockKind::Leaf, near, LeafImage::decode)?
            .map_err(|damage| self.damaged(address, damage))
    }

    /// A leaf's image, from its block when that was kept, or from disk.
    fn load_leaf(&self, tree: &Tree, address: BlockAddr, near: Near) -> Result<LeafImage> {
        let volume = tree.shape.volume;
        if let Some(block) = self.kept.take(&(volume, address)) {
            self.budget.add(Use::Kept, -(block.weight() as isize));
            let (owner, kind) = (tree.id.0, BlockKind::Leaf);
            let opened = SCRATCH.with_borrow_mut(|scratch| {
                self.store
                    .open_with(volume, &address, owner, kind, block.get(), scratch, LeafImage::decode)
            });
            if let Ok(Ok(image)) = opened {
                self.counters.read_again.add(1);
                return Ok(image);
            }
        }
        self.read_leaf(tree, address, near)
    }

    /// A row of a leaf on disk as its block has it, without bringing the leaf into memory; the block is kept. `None` when the
    /// leaf shall come into memory: there is room, it was read a moment ago, or something is wrong with its block, which loading
    /// it will tell.
    fn look_up_in_block(&self, tree: &Tree, address: BlockAddr, key: &[u8]) -> Option<Found> {
        let place = (tree.shape.volume, address);
        let (owner, kind) = (tree.id.0, BlockKind::Leaf);
        let limit = self.budget.kept_limit();
        if !self.budget.is_tight() || address.bytes() > limit / 64 {
            return None;
        }
        let look = |raw: &[u8]| {
            LeafImage::find_in(raw, key).map(|value| match value {
                None => Found::Nothing,
                Some(NewValue::Inline(value)) => Found::Inline(Bytes::copy_from_slice(value)),
                Some(NewValue::Large(large)) => Found::Large(Bytes::copy_from_slice(large.cell())),
            })
        };
        match self.kept.look(&place) {
            Look::Hot => return None,
            Look::Warm(block) => {
                self.counters.read_again.add(1);
                return SCRATCH.with_borrow_mut(|scratch| {
                    let opened = self
                        .store
                        .open_with(place.0, &address, owner, kind, block.get(), scratch, look);
                    opened.ok()?.ok()
                });
            }
            Look::Unknown => {}
        }
        debug_assert!(
            !rcu::is_pinned(),
            "what was replaced cannot be freed while a pinned thread reads"
        );
        self.make_page_room(None);
        self.counters.pages_read.add(1);
        let (found, block) = SCRATCH.with_borrow_mut(|scratch| {
            let read = self
                .store
                .read_with(place.0, &address, owner, kind, Near::Nothing, scratch, look);
            let block = scratch.last_block(&address)?;
            Some((read.ok()?.ok()?, Pieces::new(block)))
        })?;
        let change = self.kept.put(place, Arc::new(block), limit as usize);
        self.budget.add(Use::Kept, change);
        Some(found)
    }

    /// Has kept blocks take no more than their share, and `give` bytes less than now.
    pub(crate) fn trim_kept(&self, give: u64) {
        let left = self.budget.used(Use::Kept).saturating_sub(give);
        let change = self.kept.trim(self.budget.kept_limit().min(left) as usize);
        self.budget.add(Use::Kept, change);
    }

    /// An inner node from disk.
    pub(crate) fn read_inner(&self, tree: &Tree, address: BlockAddr, level: u8) -> Result<Inner> {
        let damaged = |reason: &str| EngineError::Corrupt {
            path: self.directory.clone(),
            offset: address.sector() * blocks::SECTOR_BYTES as u64,
            reason: reason.to_owned(),
        };
        let page = self
            .read_block(tree, address, BlockKind::Inner, Near::Nothing, decode_inner)?
            .map_err(|damage| self.damaged(address, damage))?;
        if page.level != level {
            return Err(damaged("an inner page of another level"));
        }
        let mut children = Vec::with_capacity(page.children.len());
        for address in page.children {
            children.push(Child::Stored {
                address,
                level: level - 1,
            });
        }
        Ok(Inner::loaded(level, page.separators, children, address))
    }

    /// The bytes of a large value.
    pub(crate) fn read_large(&self, tree: &Tree, cell: &[u8]) -> Result<Bytes> {
        let damaged = |reason: &str| EngineError::Corrupt {
            path: self.directory.clone(),
            offset: 0,
            reason: reason.to_owned(),
        };
        let large = LargeRef::from_cell(cell).ok_or_else(|| damaged("a cell of a large value that cannot be"))?;
        let mut value = Vec::with_capacity(large.total_bytes());
        for address in large.addresses() {
            let expected = (large.total_bytes() - value.len()).min(LARGE_CHUNK_BYTES);
            let found = self.read_block(tree, address, BlockKind::Large, Near::Nothing, |chunk| {
                if chunk.len() == expected {
                    value.extend_from_slice(chunk);
                }
                chunk.len()
            })?;
            if found != expected {
                return Err(damaged("a piece of a large value of another length"));
            }
        }
        Ok(value.into())
    }

    /// Brings a child that a way down met on disk into memory. A leaf comes with its rows when `rows` says so; otherwise as a
    /// place to write to.
    pub(crate) fn bring_in(
        &self,
        tree: &Arc<Tree>,
        target: Target<'_>,
        address: BlockAddr,
        level: u8,
        rows: Rows,
    ) -> Result<()> {
        let _parent = {
            let guard = rcu::pin();
            let parent = tree.descend(target, level, &guard).parent;
            parent.map(|(inner, _)| UsedInner::new(inner.clone()))
        };
        // Room first: made afterwards, it could be this page that has to go before anybody has looked at it.
        self.make_page_room(None);
        let is_there = || {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            is_stored_at(tree.descend(target, level, &guard).child, address)
        };
        let (inner, image, bytes) = if level > 0 {
            let Some(inner) = read_what_is_there(|| self.read_inner(tree, address, level), is_there)? else {
                return Ok(());
            };
            let bytes = inner.memory_bytes();
            (Some(Child::Inner(Arc::new(inner))), None, bytes)
        } else if rows != Rows::NotYet {
            let near = if rows == Rows::Wanted {
                Near::Nothing
            } else {
                Near::Others
            };
            let Some(image) = read_what_is_there(|| self.load_leaf(tree, address, near), is_there)? else {
                return Ok(());
            };
            let bytes = image.memory_bytes();
            (None, Some(image), bytes)
        } else {
            (None, None, 0)
        };
        let guard = rcu::pin();
        let structure = tree.structure.lock();
        let descent = tree.descend(target, level, &guard);
        if !is_stored_at(descent.child, address) {
            return Ok(());
        }
        if let Some(inner) = inner {
            descent.cell.replace(inner, &guard);
            self.account_inner(tree, bytes as isize);
            return Ok(());
        }
        let leaf = Arc::new(new_leaf(&descent, address, image));
        self.account(tree, (bytes + leaf_overhead(&leaf)) as isize, 0);
        descent.cell.replace(Child::Leaf(leaf.clone()), &guard);
        drop(structure);
        drop(guard);
        self.keep_in_ring(tree, &leaf);
        Ok(())
    }

    /// Gives a tree that has none its first leaf.
    pub(crate) fn begin_tree(&self, tree: &Tree) {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        if matches!(tree.root.load(&guard), Child::Nothing) {
            let leaf = Arc::new(Leaf::empty(Box::default()));
            self.account(tree, leaf_overhead(&leaf) as isize, 0);
            tree.root.replace(Child::Leaf(leaf), &guard);
        }
    }

    /// Brings a leaf's rows into memory.
    pub(crate) fn bring_base_in(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, address: BlockAddr) -> Result<()> {
        self.make_page_room(Some(leaf));
        let is_base = |view: &LeafView| !view.retired && matches!(view.base, Base::Stored(now) if now == address);
        let is_there = || {
            let _state = leaf.state.lock();
            is_base(leaf.view.load(&rcu::pin()))
        };
        let Some(image) = read_what_is_there(|| self.load_leaf(tree, address, Near::Nothing), is_there)? else {
            return Ok(());
        };
        let guard = rcu::pin();
        let state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if !is_base(view) {
            return Ok(());
        }
        self.account(tree, image.memory_bytes() as isize, 0);
        leaf.view.replace(view.with_base(Base::Image(image)), &guard);
        drop(state);
        drop(guard);
        self.keep_in_ring(tree, leaf);
        Ok(())
    }

    /// Makes the replacement policy know a leaf that takes memory.
    pub(crate) fn keep_in_ring(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let mut state = leaf.state.lock();
        if !state.in_ring {
            state.in_ring = true;
            self.ring.push(tree.clone(), leaf.clone());
        }
    }
}

/// Whether a child is on disk, there.
pub(crate) fn is_stored_at(child: &Child, address: BlockAddr) -> bool {
    matches!(child, Child::Stored { address: now, .. } if *now == address)
}

/// Reads a block outside of locks. Its place may be given back meanwhile and used for something else, which the checksum in
/// the address tells: that is damage only when the address is still in use. `None` when it is not. A second time, as the
/// block may have gone and come back to the very same place.
fn read_what_is_there<T>(read: impl Fn() -> Result<T>, is_there: impl Fn() -> bool) -> Result<Option<T>> {
    match read() {
        Ok(page) => Ok(Some(page)),
        Err(_) if !is_there() => Ok(None),
        Err(_) => match read() {
            Err(error) if is_there() => Err(error),
            Err(_) => Ok(None),
            Ok(page) => Ok(Some(page)),
        },
    }
}

fn account_in(tree: &Tree, bytes: isize) {
    if bytes >= 0 {
        tree.memory_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    } else {
        let _ = tree
            .memory_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| {
                Some(sum.saturating_add_signed(bytes as i64))
            });
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.workers.close();
    }
}

/// Whether a leaf that comes into memory brings its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    Wanted,
    /// As those of its neighbours, one after the other.
    WantedInOrder,
    NotYet,
}

fn new_leaf(descent: &Descent<'_>, address: BlockAddr, image: Option<LeafImage>) -> Leaf {
    let low = descent
        .low
        .map_or_else(Vec::new, crate::tree::Fence::to_vec)
        .into_boxed_slice();
    match image {
        None => Leaf::stored(low, address),
        Some(image) => Leaf::with(low, Base::Image(image), Some(address)),
    }
}

impl LeafView {
    /// The same with another base.
    pub(crate) fn with_base(&self, base: Base) -> Self {
        Self {
            base,
            hidden_from: self.hidden_from,
            arena: self.arena.clone(),
            order: self.order.copy(),
            retired: false,
        }
    }

    /// What a leaf that left the tree shows.
    pub(crate) fn retired() -> Self {
        let mut view = Self::new(Base::Empty);
        view.retired = true;
        view
    }
}

/// What a look for a key in memory comes to.
pub(crate) enum Looked {
    Known(Option<Bytes>),
    OnDisk(OnDisk),
}

/// What has to be read for a key.
pub(crate) enum OnDisk {
    /// A leaf's rows; the number, if any, counts on top of what they have.
    Base(Arc<Leaf>, BlockAddr, Option<i64>),
    /// A page on the way, and its level.
    Child(BlockAddr, u8),
    /// The large value of a cell.
    Large(Bytes),
}

/// The value of a key as of `at`, as far as it is in memory.
#[inline]
pub(crate) fn look_up(tree: &Tree, key: &[u8], at: Seq, guard: &Guard) -> Looked {
    loop {
        let descent = tree.descend(Target::At(key), 0, guard);
        match descent.child {
            Child::Leaf(leaf) => {
                let view = leaf.view.load(guard);
                if view.retired {
                    continue;
                }
                leaf.warm();
                return match view.get(key, at, guard) {
                    Found::Inline(bytes) => Looked::Known(Some(bytes)),
                    Found::Nothing => Looked::Known(None),
                    Found::Large(cell) => Looked::OnDisk(OnDisk::Large(cell)),
                    Found::NotLoaded(address, added) => Looked::OnDisk(OnDisk::Base(leaf.clone(), address, added)),
                };
            }
            Child::Stored { address, level } => {
                if let Some((parent, _)) = descent.parent {
                    parent.warm();
                }
                return Looked::OnDisk(OnDisk::Child(*address, *level));
            }
            Child::Nothing => return Looked::Known(None),
            Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
        }
    }
}

impl Core {
    /// The value of a key as of `at`, when it, or the way to it, is on disk. The caller has a snapshot there, which keeps the blocks of
    /// large values, and is not pinned: nothing that was replaced could be freed while the disk is read.
    pub(crate) fn get_from_disk(
        &self,
        tree: &Arc<Tree>,
        key: &[u8],
        at: Seq,
        mut on_disk: OnDisk,
    ) -> Result<Option<Bytes>> {
        loop {
            match on_disk {
                OnDisk::Large(cell) => return self.read_large(tree, &cell).map(Some),
                OnDisk::Base(leaf, address, added) => {
                    if let Some(found) = self.look_up_in_block(tree, address, key) {
                        return self.value_of(tree, with_added(found, added));
                    }
                    self.bring_base_in(tree, &leaf, address)?;
                }
                OnDisk::Child(address, level) => {
                    if level == 0
                        && let Some(found) = self.look_up_in_block(tree, address, key)
                    {
                        return self.value_of(tree, found);
                    }
                    self.bring_in(tree, Target::At(key), address, level, Rows::Wanted)?;
                }
            }
            match look_up(tree, key, at, &rcu::pin()) {
                Looked::Known(value) => return Ok(value),
                Looked::OnDisk(next) => on_disk = next,
            }
        }
    }

    fn value_of(&self, tree: &Tree, found: Found) -> Result<Option<Bytes>> {
        match found {
            Found::Inline(bytes) => Ok(Some(bytes)),
            Found::Nothing => Ok(None),
            Found::Large(cell) => self.read_large(tree, &cell).map(Some),
            Found::NotLoaded(..) => unreachable!("the base was looked at"),
        }
    }
}
