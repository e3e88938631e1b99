//! Reading pages: a key of a snapshot, a leaf's rows, a page on the way, from memory or from disk.
//!
//! Who has this can bring pages in and drop what is on disk as it is; it cannot write or give back a block. It makes
//! room for what comes in, as far as that needs no disk.
//!
//! A block is read outside of all locks and without a pin. Its address holds its checksum, so that a reader notices
//! when the block was given back meanwhile and its place used for something else; then it looks again.

use crate::block_cache::{BlockLookup, Pieces};
use crate::budget::Use;
use crate::cache::PageCache;
use crate::counters::Counters;
use crate::leaf::{Base, Elsewhere, Found, Leaf, LeafView, with_added};
use crate::page::{LARGE_CHUNK_BYTES, LargeRef, LeafImage, PageDamage, decode_inner};
use crate::raw_leaf::{HeldStretch, RawLeaf, WalkMemory};
use crate::running::RunningCheckpoint;
use crate::tree::{Child, Descent, Fence, Inner, Target, Tree, UsedInner};
use crate::workers::{Class, Workers};
use blocks::{BlockAddr, BlockKind, BlockStore, Near, ReadScratch, Sections, Source};
use bytes::Bytes;
use engine::{EngineError, EngineStatus, ErrorKind, Result, Seq};
use rcu::Guard;
use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Leaves that the hand of the CLOCK passes for one that a client gives up: the hottest are cold after four rounds.
const LOOKS_OF_CLIENT: usize = 64;
/// Of the leaves that long walks read while memory is short, the blocks of one in so many stay.
const WALKED_PART: u64 = 32;
/// Leaves that one call of [`Pages::make_room`] looks at, at most.
const ROOM_STEPS_MAX: usize = 64;

thread_local! {
    pub(crate) static SCRATCH: RefCell<ReadScratch> = RefCell::new(ReadScratch::default());
}

/// See the module.
pub(crate) struct Pages {
    store: Arc<BlockStore>,
    cache: Arc<PageCache>,
    running: Arc<RunningCheckpoint>,
    workers: Arc<Workers>,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
    /// The store's, for errors.
    directory: PathBuf,
}

impl Pages {
    pub(crate) fn new(
        store: Arc<BlockStore>,
        cache: Arc<PageCache>,
        running: Arc<RunningCheckpoint>,
        workers: Arc<Workers>,
        status: Arc<EngineStatus>,
        counters: Arc<Counters>,
        directory: PathBuf,
    ) -> Self {
        Self {
            store,
            cache,
            running,
            workers,
            status,
            counters,
            directory,
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// Has a worker read ahead by calling `job`; false when there is none to do so.
    pub(crate) fn read_ahead_soon(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.workers.submit(Class::Urgent, job).is_ok()
    }

    /// Brings a page in before anybody has asked for it. The error, if any, comes again to whoever needs it.
    pub(crate) fn read_ahead(&self, tree: &Arc<Tree>, key: &[u8], address: BlockAddr, level: u8) {
        let _ = self.bring_in(tree, Target::At(key), address, level, LoadRows::WantedInOrder);
        self.note_read_ahead();
    }

    /// Counts a page that was brought in before anybody has asked for it.
    pub(crate) fn note_read_ahead(&self) {
        self.counters.prefetched.add(1);
    }

    /// Counts a read that decompressed a part of a block.
    pub(crate) fn note_read_in_part(&self) {
        self.counters.read_in_part.add(1);
    }

    /// An error when the engine was closed or has failed.
    #[inline]
    pub(crate) fn check_running(&self) -> Result<()> {
        self.status.check_running()
    }

    /// Tells the system which sectors of a tree's volume will be read soon.
    pub(crate) fn expect_read(&self, tree: &Tree, sectors: std::ops::Range<u64>) {
        self.store.expect_read(tree.shape.volume, sectors);
    }

    /// Tells the system of a block that will be read soon, before others that it is told of as well.
    pub(crate) fn expect_block(&self, tree: &Tree, address: BlockAddr) {
        if self.store.expect_block(tree.shape.volume, &address) {
            self.counters.expected.add(1);
        }
    }

    /// Whether to read a block would be to wait for the disk.
    pub(crate) fn would_wait(&self, tree: &Tree, address: BlockAddr) -> bool {
        self.store.would_wait(tree.shape.volume, &address)
    }

    /// An error that says that a block, or what refers to it, cannot be right; `address` where that is known.
    pub(crate) fn corrupt(&self, address: Option<BlockAddr>, reason: String) -> EngineError {
        EngineError::Corrupt {
            path: self.directory.clone(),
            offset: address.map_or(0, |address| address.sector() * blocks::SECTOR_BYTES as u64),
            reason,
        }
    }

    pub(crate) fn damaged(&self, address: BlockAddr, damage: PageDamage) -> EngineError {
        self.corrupt(Some(address), damage.to_string())
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
            .with_borrow_mut(|scratch| {
                self.store
                    .read_with(volume, &address, owner, kind, Source::Disk(near), scratch, take)
            })
            .map_err(EngineError::from)
    }

    /// What `take` makes of the raw bytes of a page of saved deltas, or of their index.
    pub(crate) fn read_saved<T>(
        &self,
        directory: &Tree,
        address: BlockAddr,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.read_block(directory, address, BlockKind::Large, Near::Others, take)
    }

    /// A leaf's image from disk.
    pub(crate) fn read_leaf(&self, tree: &Tree, address: BlockAddr, near: Near) -> Result<LeafImage> {
        self.read_block(tree, address, BlockKind::Leaf, near, LeafImage::decode)?
            .map_err(|damage| self.damaged(address, damage))
    }

    /// A leaf's image, from its compressed block where that is in memory, or from disk.
    fn load_leaf(&self, tree: &Tree, address: BlockAddr, near: Near) -> Result<LeafImage> {
        let volume = tree.shape.volume;
        if let Some(block) = self.cache.take_block(&(volume, address)) {
            let (owner, kind) = (tree.id.0, BlockKind::Leaf);
            let opened = SCRATCH.with_borrow_mut(|scratch| {
                let source = Source::Memory(block.get());
                self.store
                    .read_with(volume, &address, owner, kind, source, scratch, LeafImage::decode)
            });
            if let Ok(Ok(image)) = opened {
                self.counters.read_again.add(1);
                return Ok(image);
            }
        }
        self.read_leaf(tree, address, near)
    }

    /// The raw bytes of a leaf on disk for a walk that is long: they do not become a page, which would push out others
    /// that are read more often. Where there is room their block stays, compressed, and where there is none that of
    /// one leaf in so many, so that what is walked over again and again comes to stay. `None` when the leaf shall come
    /// into memory: it was read before, and there is room. `stretch` may have the block; `buffer` has memory for the
    /// raw bytes.
    pub(crate) fn read_for_walk(
        &self,
        tree: &Arc<Tree>,
        target: Target<'_>,
        address: BlockAddr,
        stretch: Option<&HeldStretch>,
        buffer: impl FnOnce() -> Vec<u8>,
    ) -> Result<Option<RawLeaf>> {
        let is_there = || {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            is_on_disk_at(tree.descend(target, 0, &guard).child, address)
        };
        let key = (tree.shape.volume, address);
        let is_tight = self.cache.budget().is_tight();
        let kept = self.cache.peek_block(&key);
        if kept.is_some() && !is_tight {
            return Ok(None);
        }
        let mut raw = buffer();
        if let Some(block) = kept {
            let (owner, kind) = (tree.id.0, BlockKind::Leaf);
            let opened = SCRATCH.with_borrow_mut(|scratch| {
                let source = Source::Memory(block.get());
                self.store
                    .read_into(key.0, &address, owner, kind, source, scratch, &mut raw)
            });
            if opened.is_ok() {
                self.counters.read_again.add(1);
                return Ok(Some(RawLeaf::new(&self.cache, raw)));
            }
        }
        // What walks have ahead of them takes the place of blocks, those that were used longest ago, and not of pages.
        // They give up nothing for what others take beyond the target.
        let budget = self.cache.budget();
        let excess = budget.excess().min(budget.used(Use::Walks));
        if excess > 0 {
            self.cache.trim_blocks(excess);
        }
        self.make_room(None);
        // Another block may be there by now than when the stretch was read, or was read then.
        if let Some(block) = stretch.and_then(|stretch| stretch.block(key.0, &address))
            && self.open_walked(tree, address, !is_tight, block, &mut raw)
        {
            return Ok(Some(RawLeaf::new(&self.cache, raw)));
        }
        let raw = RefCell::new(raw);
        let read = || self.read_walked(tree, address, !is_tight, &mut raw.borrow_mut());
        let is_read = read_what_is_there(read, is_there)?.is_some();
        Ok(is_read.then(|| RawLeaf::new(&self.cache, raw.into_inner())))
    }

    fn read_walked(&self, tree: &Tree, address: BlockAddr, has_room: bool, raw: &mut Vec<u8>) -> Result<()> {
        debug_assert!(
            !rcu::is_pinned(),
            "what was replaced cannot be freed while a pinned thread reads"
        );
        let keeps = self.keeps_walked(address, has_room);
        let (volume, owner) = (tree.shape.volume, tree.id.0);
        let block = SCRATCH.with_borrow_mut(|scratch| {
            let (kind, disk) = (BlockKind::Leaf, Source::Disk(Near::Others));
            self.store
                .read_into(volume, &address, owner, kind, disk, scratch, raw)?;
            Ok::<_, EngineError>(scratch.last_block(&address).filter(|_| keeps).map(Pieces::new))
        })?;
        if let Some(block) = block {
            self.cache.put_block((volume, address), block);
        }
        Ok(())
    }

    /// As [`Pages::read_walked`], of a block in memory. False when it is not the one.
    fn open_walked(&self, tree: &Tree, address: BlockAddr, has_room: bool, block: &[u8], raw: &mut Vec<u8>) -> bool {
        let (volume, owner, kind) = (tree.shape.volume, tree.id.0, BlockKind::Leaf);
        let opened = SCRATCH.with_borrow_mut(|scratch| {
            let source = Source::Memory([block, &[]]);
            self.store
                .read_into(volume, &address, owner, kind, source, scratch, raw)
        });
        if opened.is_ok() && self.keeps_walked(address, has_room) {
            self.cache.put_block((volume, address), Pieces::new(block));
        }
        opened.is_ok()
    }

    /// A leaf from a stretch that may have its block.
    fn open_held(&self, tree: &Tree, address: BlockAddr, stretch: &HeldStretch) -> Option<LeafImage> {
        let (volume, owner, kind) = (tree.shape.volume, tree.id.0, BlockKind::Leaf);
        let source = Source::Memory([stretch.block(volume, &address)?, &[]]);
        let opened = SCRATCH.with_borrow_mut(|scratch| {
            self.store
                .read_with(volume, &address, owner, kind, source, scratch, LeafImage::decode)
        });
        let image = opened.ok()?.ok()?;
        self.counters.pages_read.add(1);
        Some(image)
    }

    /// Counts a leaf that a long walk has read; whether its block stays.
    fn keeps_walked(&self, address: BlockAddr, has_room: bool) -> bool {
        self.counters.pages_read.add(1);
        let walked = self.counters.pages_walked.add_one();
        (has_room || walked.is_multiple_of(WALKED_PART)) && address.bytes() <= self.cache.budget().blocks_limit() / 64
    }

    /// Sectors of a tree's volume, as they are on disk, in `buffer`, which `memory` counts.
    pub(crate) fn read_stretch(
        &self,
        tree: &Tree,
        sectors: Range<u64>,
        buffer: Vec<u8>,
        memory: WalkMemory,
    ) -> Result<HeldStretch> {
        let stretch = self.store.read_stretch(tree.shape.volume, sectors.clone(), buffer)?;
        Ok(HeldStretch::new(sectors, stretch, memory))
    }

    /// What `take` makes of the block of a leaf on disk, without bringing the leaf into memory; the block stays there
    /// compressed. `is_next`: the same operation has just read it, which counts once. `None` when the leaf shall come
    /// into memory: there is room, it was read a moment ago, or something is wrong with its block, which loading it
    /// will tell.
    pub(crate) fn read_in_block<T>(
        &self,
        tree: &Tree,
        address: BlockAddr,
        is_next: bool,
        take: impl FnOnce(&mut Sections<'_>) -> Option<T>,
    ) -> Option<T> {
        let block_key = (tree.shape.volume, address);
        let (owner, kind) = (tree.id.0, BlockKind::Leaf);
        let budget = self.cache.budget();
        if !budget.is_tight() || address.bytes() > budget.blocks_limit() / 64 {
            return None;
        }
        let found = match is_next.then(|| self.cache.peek_block(&block_key)).flatten() {
            Some(block) => BlockLookup::Warm(block),
            None => self.cache.look_up_block(&block_key),
        };
        match found {
            BlockLookup::Hot => return None,
            BlockLookup::Warm(block) => {
                self.counters.read_again.add(1);
                let source = Source::Memory(block.get());
                return SCRATCH.with_borrow_mut(|scratch| {
                    self.store
                        .read_sections_with(block_key.0, &address, owner, kind, source, scratch, take)
                        .ok()?
                });
            }
            BlockLookup::Unknown => {}
        }
        debug_assert!(
            !rcu::is_pinned(),
            "what was replaced cannot be freed while a pinned thread reads"
        );
        self.make_room(None);
        self.counters.pages_read.add(1);
        let (taken, block) = SCRATCH.with_borrow_mut(|scratch| {
            let source = Source::Disk(Near::Nothing);
            let taken = self
                .store
                .read_sections_with(block_key.0, &address, owner, kind, source, scratch, take)
                .ok()??;
            let block = scratch.last_block(&address)?;
            Some((taken, Pieces::new(block)))
        })?;
        self.cache.put_block(block_key, block);
        Some(taken)
    }

    /// An inner node from disk.
    pub(crate) fn read_inner(&self, tree: &Tree, address: BlockAddr, level: u8) -> Result<Inner> {
        let page = self
            .read_block(tree, address, BlockKind::Inner, Near::Nothing, decode_inner)?
            .map_err(|damage| self.damaged(address, damage))?;
        if page.level != level {
            return Err(self.corrupt(Some(address), "an inner page of another level".to_owned()));
        }
        let mut children = Vec::with_capacity(page.children.len());
        for address in page.children {
            children.push(Child::OnDisk {
                address,
                level: level - 1,
            });
        }
        Ok(Inner::loaded(level, page.separators, children, address))
    }

    /// The bytes of a value that is not in its leaf. The caller has a snapshot that sees it.
    pub(crate) fn fetch(&self, tree: &Tree, place: &Elsewhere) -> Result<Bytes> {
        match place {
            Elsewhere::Large(cell) => self.read_large(tree, cell),
            Elsewhere::Spilled(spilled) => spilled.read(),
        }
    }

    /// The bytes of a large value.
    pub(crate) fn read_large(&self, tree: &Tree, cell: &[u8]) -> Result<Bytes> {
        let damaged = |reason: &str| self.corrupt(None, reason.to_owned());
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

    /// Brings a child that a way down met on disk into memory. A leaf comes with its rows when `rows` says so;
    /// otherwise as a place to write to. Such a place comes for an inner page that is damaged, too.
    pub(crate) fn bring_in(
        &self,
        tree: &Arc<Tree>,
        target: Target<'_>,
        address: BlockAddr,
        level: u8,
        rows: LoadRows,
    ) -> Result<()> {
        let _parent = {
            let guard = rcu::pin();
            let parent = tree.descend(target, level, &guard).parent;
            parent.map(|(inner, _)| UsedInner::new(inner.clone()))
        };
        // Room first: made afterwards, it could be this page that has to go before anybody has looked at it.
        self.make_room(None);
        let is_there = || {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            is_on_disk_at(tree.descend(target, level, &guard).child, address)
        };
        let (inner, image, bytes) = if level > 0 {
            match read_what_is_there(|| self.read_inner(tree, address, level), is_there) {
                Ok(Some(inner)) => {
                    let bytes = inner.memory_bytes();
                    (Some(Child::Inner(Arc::new(inner))), None, bytes)
                }
                Ok(None) => return Ok(()),
                // Whoever reads below it is told, and who writes goes on: the log has what he writes.
                Err(error) if rows == LoadRows::NotYet && error.kind() == ErrorKind::Corrupt => (None, None, 0),
                Err(error) => return Err(error),
            }
        } else if rows != LoadRows::NotYet {
            let near = if rows == LoadRows::Wanted {
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
        if !is_on_disk_at(descent.child, address) {
            return Ok(());
        }
        if let Some(inner) = inner {
            descent.cell.replace(inner, &guard);
            self.cache.account_inner(tree, bytes as isize);
            return Ok(());
        }
        let leaf = Arc::new(new_leaf(&descent, address, level, image));
        self.cache.account(tree, (bytes + leaf.overhead_bytes()) as isize, 0);
        descent.cell.replace(Child::Leaf(leaf.clone()), &guard);
        drop(structure);
        drop(guard);
        self.cache.add_to_clock(tree, &leaf);
        Ok(())
    }

    /// Gives a tree that has none its first leaf.
    pub(crate) fn begin_tree(&self, tree: &Tree) {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        if matches!(tree.root.load(&guard), Child::Nothing) {
            let leaf = Arc::new(Leaf::empty(Box::default()));
            self.cache.account(tree, leaf.overhead_bytes() as isize, 0);
            tree.root.replace(Child::Leaf(leaf), &guard);
        }
    }

    /// Brings the rows of a leaf into memory of which only the changes are there. `stretch` may have its block.
    pub(crate) fn bring_base_in(
        &self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        address: BlockAddr,
        stretch: Option<&HeldStretch>,
    ) -> Result<()> {
        let is_base = |view: &LeafView| !view.retired && matches!(view.base, Base::OnDisk(now) if now == address);
        let is_there = || {
            let _state = leaf.state.lock();
            is_base(leaf.view.load(&rcu::pin()))
        };
        if !is_base(leaf.view.load(&rcu::pin())) {
            // Others were faster.
            return Ok(());
        }
        self.make_room(Some(leaf));
        let image = match stretch.and_then(|stretch| self.open_held(tree, address, stretch)) {
            Some(image) => Some(image),
            None => read_what_is_there(|| self.load_leaf(tree, address, Near::Nothing), is_there)?,
        };
        let Some(image) = image else { return Ok(()) };
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if !is_base(view) {
            return Ok(());
        }
        // With rows it would be written, as a leaf: what lies below the inner page would be lost.
        debug_assert_eq!(leaf.level, 0, "a block of an inner page is no leaf's");
        self.cache.account(tree, image.memory_bytes() as isize, 0);
        leaf.view.replace(view.with_base(Base::Image(image)), &guard);
        state.is_unreadable = false;
        drop(state);
        drop(guard);
        self.cache.add_to_clock(tree, leaf);
        Ok(())
    }

    /// Before a page comes in: has room made, and makes it here when there is none left at all. Of the leaf for whose
    /// rows the room is, not even its place is given up: whoever wants them would go down to it again and again when
    /// nothing else can go.
    pub(crate) fn make_room(&self, wanted: Option<&Leaf>) {
        let budget = self.cache.budget();
        self.cache.evict_soon();
        self.cache.keep_replaced_few();
        if budget.total() <= budget.limit() || !self.cache.has_workers() {
            return;
        }
        for _ in 0..ROOM_STEPS_MAX {
            // Those that were not cold are colder now.
            for (tree, leaf) in self.cache.clock_list().take_cold(1, LOOKS_OF_CLIENT) {
                self.cache.drop_base(&tree, &leaf);
                let is_wanted = wanted.is_some_and(|wanted| std::ptr::eq(wanted, &*leaf));
                if is_wanted || !self.unlink(&tree, &leaf) {
                    self.cache.clock_list().push(tree, leaf);
                }
            }
            if budget.total() <= budget.limit() {
                break;
            }
        }
        let beyond = budget.total().saturating_sub(budget.limit());
        if beyond > 0 {
            self.cache.trim_blocks(beyond);
        }
        // Not some time: that is the memory the page needs.
        self.cache.free_replaced_now();
    }

    /// Takes a leaf out of memory when nothing of it is there any more but the place. True when it need not be looked
    /// at again.
    pub(crate) fn unlink(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) -> bool {
        let guard = rcu::pin();
        let _structure = tree.structure.lock();
        let mut state = leaf.state.lock();
        let view = leaf.view.load(&guard);
        if view.retired {
            state.in_clock = false;
            return true;
        }
        let Base::OnDisk(address) = view.base else { return false };
        let position = self.running.get();
        let is_idle =
            view.has_no_delta() && state.is_clean() && state.writing.is_none() && state.dropped_large.is_empty();
        // A running checkpoint finds the image that it needs at the leaf; on disk only if that is this one.
        let is_settled =
            position.is_none_or(|position| state.valid_from <= position.seq && !state.is_noted_for(position));
        if !is_idle || !is_settled {
            return false;
        }
        let descent = tree.descend(Target::At(&leaf.low), 0, &guard);
        let is_it = matches!(descent.child, Child::Leaf(there) if Arc::ptr_eq(there, leaf));
        if !is_it {
            return false;
        }
        let level = leaf.level;
        descent.cell.replace(Child::OnDisk { address, level }, &guard);
        leaf.view.replace(LeafView::retired(), &guard);
        state.in_clock = false;
        self.cache
            .account(tree, -(leaf.overhead_bytes() as isize), -(state.delta_bytes as isize));
        true
    }
}

/// Whether a child is on disk, there.
pub(crate) fn is_on_disk_at(child: &Child, address: BlockAddr) -> bool {
    matches!(child, Child::OnDisk { address: now, .. } if *now == address)
}

/// What a read came to; `None` where it failed for what is on disk, for those who can do without the page: whoever
/// asks for its rows is told.
pub(crate) fn if_readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.is_of_disk() => Ok(None),
        read => read.map(Some),
    }
}

/// Reads a block outside of locks. Its place may be given back meanwhile and used for something else, which the
/// checksum in the address tells: that is damage only when the address is still in use. `None` when it is not. A second
/// time, as the block may have gone and come back to the very same place.
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

/// Whether a leaf that comes into memory brings its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadRows {
    Wanted,
    /// As those of its neighbours, one after the other.
    WantedInOrder,
    NotYet,
}

fn new_leaf(descent: &Descent<'_>, address: BlockAddr, level: u8, image: Option<LeafImage>) -> Leaf {
    debug_assert!(
        level == 0 || image.is_none(),
        "an inner page of level {level} has no rows"
    );
    let low = descent.low.map_or_else(Vec::new, Fence::to_vec).into_boxed_slice();
    match image {
        None => Leaf::on_disk(low, address, level),
        Some(image) => Leaf::with(low, Base::Image(image), Some(address)),
    }
}

/// What a look for a key in memory comes to.
pub(crate) enum Lookup {
    Known(Option<Bytes>),
    Missing(Missing),
}

/// What has to be read for a key.
pub(crate) enum Missing {
    /// A leaf's rows; the number, if any, counts on top of what they have.
    Base(Arc<Leaf>, BlockAddr, Option<i64>),
    /// A page on the way, and its level.
    Child(BlockAddr, u8),
    /// A value that is not in its leaf.
    Elsewhere(Elsewhere),
}

/// The value of a key as of `at`, as far as it is in memory.
#[inline]
pub(crate) fn look_up(tree: &Tree, key: &[u8], at: Seq, guard: &Guard) -> Lookup {
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
                    Found::Inline(bytes) => Lookup::Known(Some(bytes)),
                    Found::Nothing => Lookup::Known(None),
                    Found::Elsewhere(place) => Lookup::Missing(Missing::Elsewhere(place)),
                    Found::NotLoaded(address, added) => Lookup::Missing(Missing::Base(leaf.clone(), address, added)),
                };
            }
            Child::OnDisk { address, level } => {
                if let Some((parent, _)) = descent.parent {
                    parent.warm();
                }
                return Lookup::Missing(Missing::Child(*address, *level));
            }
            Child::Nothing => return Lookup::Known(None),
            Child::Inner(_) => unreachable!("a way down ends at a leaf or on disk"),
        }
    }
}

impl Pages {
    /// The value of a key as of `at`, when it, or the way to it, is on disk. The caller has a snapshot there, which
    /// keeps the blocks of large values, and is not pinned: nothing that was replaced could be freed while the disk is
    /// read.
    pub(crate) fn get_from_disk(
        &self,
        tree: &Arc<Tree>,
        key: &[u8],
        at: Seq,
        mut missing: Missing,
    ) -> Result<Option<Bytes>> {
        loop {
            match missing {
                Missing::Elsewhere(place) => return self.fetch(tree, &place).map(Some),
                Missing::Base(leaf, address, added) => {
                    if let Some(found) = self.look_up_in_block(tree, address, key) {
                        return self.value_of(tree, with_added(found, added));
                    }
                    self.bring_base_in(tree, &leaf, address, None)?;
                }
                Missing::Child(address, level) => {
                    if level == 0
                        && let Some(found) = self.look_up_in_block(tree, address, key)
                    {
                        return self.value_of(tree, found);
                    }
                    self.bring_in(tree, Target::At(key), address, level, LoadRows::Wanted)?;
                }
            }
            match look_up(tree, key, at, &rcu::pin()) {
                Lookup::Known(value) => return Ok(value),
                Lookup::Missing(next) => missing = next,
            }
        }
    }

    fn value_of(&self, tree: &Tree, found: Found) -> Result<Option<Bytes>> {
        match found {
            Found::Inline(bytes) => Ok(Some(bytes)),
            Found::Nothing => Ok(None),
            Found::Elsewhere(place) => self.fetch(tree, &place).map(Some),
            Found::NotLoaded(..) => unreachable!("the base was looked at"),
        }
    }
}
