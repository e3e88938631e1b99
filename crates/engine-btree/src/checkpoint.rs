//! Checkpoints: the exact state at one position, written while everything goes on.
//!
//! 1. Draw the line: the cut is the published position, a snapshot is pinned there, the block store begins a checkpoint, and
//!    the tables that changed are those it writes. All of that is one step for whoever gives blocks back.
//! 2. Write every leaf whose image is not good for the cut, in parallel, in key order.
//! 3. From the lowest level up, write each inner node above a changed address. A node's children are looked at together
//!    under `structure`, so that they part its range without gap or overlap; a child that has no image for this checkpoint
//!    (because a split just made it) is written first, and the node looked at again. A change of structure takes back what was
//!    written of the nodes above it, as that refers to blocks which are given back, and they are written again. When the root
//!    is written and nothing was taken back, the checkpoint has the tree: from then on what it refers to is kept for it.
//! 4. Put the new roots into the directory, write that like any tree, exclude what has blocks and is not part of it
//!    (`large_values`), and commit: two syncs.
//!
//! A node's image may belong to this checkpoint only (a later one exists already): then the node stays dirty.

use crate::apply::is_dead;
use crate::core::{Core, Line};
use crate::directory;
use crate::large_values::Standing;
use crate::leaf::{Base, Leaf, LeafView};
use crate::page::{CellValue, LargeRef, LeafImage, encode_inner};
use crate::tables::Table;
use crate::tree::{Child, Inner, Target, Tree};
use crate::workers::Class;
use crate::write_back::{Need, PageWriter, Written};
use blocks::{BlockAddr, Near, Referenced, VolumeId};
use engine::{EngineError, ErrorKind, Result, Seq};
use parking_lot::Mutex as PlainMutex;
use pins::{Holder, Horizon, Pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Leaves that one worker writes in a row.
const UNIT_LEAVES: usize = 128;

/// Rounds over a tree's levels, and looks at one node, after which the tree is to be still.
const ROUNDS_BEFORE_STILL: u32 = 2;
const LOOKS_BEFORE_STILL: u32 = 3;

/// Leaves of one tree that one worker writes.
type Unit<'t> = (&'t Arc<Tree>, Vec<Arc<Leaf>>);

/// Where a tree's root lies; `None` for a tree without rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootAddress {
    pub(crate) address: BlockAddr,
    pub(crate) level: u8,
}

/// A node that was appended and not flushed: what it holds begins at `from`.
struct AppendedInner {
    inner: Arc<Inner>,
    from: Option<Vec<u8>>,
    address: BlockAddr,
    /// Where its children lie, as the node says.
    children: Vec<BlockAddr>,
}

/// A node of a tree as the running checkpoint has to find it.
enum Gathered {
    /// Nothing below changed, or it was written already.
    Has,
    /// All children have addresses.
    Ready(Arc<Inner>, Vec<BlockAddr>),
    /// These leaves must be written first.
    Leaves(Vec<Arc<Leaf>>),
    /// An inner node of this level must be written first.
    Below(u8),
}

impl Core {
    /// Runs a checkpoint and answers its cut. With nothing new to keep, and no `force`, it answers the last one's.
    pub(crate) fn checkpoint(&self, force: bool) -> Result<Seq> {
        let cut = self.run_checkpoint(force)?;
        self.relocate_soon();
        Ok(cut)
    }

    fn run_checkpoint(&self, force: bool) -> Result<Seq> {
        let mut last = self.checkpointing.lock();
        self.check_running()?;
        let started = self.env.clock.monotonic();
        if !force && self.pins.published() <= *last && self.changed.lock().is_empty() {
            return Ok(*last);
        }
        self.free_lost_large(None);
        let (line, pin, changed) = self.draw_line();
        self.behind.begin_cycle(started);
        // Clients wait for room: the priority of the work that makes it must not be the lowest.
        self.workers.set_pressure(self.budget.is_pressing());
        let result = self.write_checkpoint(line, &changed);
        self.workers.set_pressure(false);
        let result = match result {
            Ok(()) => Ok(line.cut),
            Err(error) => {
                self.store.abandon_checkpoint();
                if error.kind() != ErrorKind::OutOfSpace {
                    self.stop(&format!("a checkpoint failed: {error}"));
                }
                Err(error)
            }
        };
        *self.line.lock() = None;
        self.unpin(pin);
        let cut = result?;
        #[cfg(debug_assertions)]
        self.assert_durable_is_whole();
        *last = cut;
        self.book.settle(cut);
        self.durable.store(cut.0, Ordering::Release);
        let took = self.env.clock.monotonic().saturating_sub(started).as_millis() as u64;
        self.counters.checkpoints.add(1);
        self.counters.checkpoint_ms.add(took);
        self.counters.checkpoint_ms_last.set(took);
        Ok(cut)
    }

    /// Step 1: the line, and the tables that changed since the last one.
    fn draw_line(&self) -> (Line, Pin, Vec<Arc<Table>>) {
        let mut line = self.line.lock();
        let pin = self.pins.pin(Holder::Engine);
        let cut = pin.seq();
        let number = self.loading.hand_on(&self.store, || self.store.begin_checkpoint());
        let changed: Vec<Arc<Table>> = std::mem::take(&mut *self.changed.lock());
        for table in &changed {
            table.listed.store(false, Ordering::Release);
            table.tree.written_by.store(number, Ordering::Release);
        }
        self.directory_tree.written_by.store(number, Ordering::Release);
        (*line.insert(Line { number, cut }), pin, changed)
    }

    fn write_checkpoint(&self, line: Line, changed: &[Arc<Table>]) -> Result<()> {
        let result = self.write_tables(changed, line);
        if result.is_err() {
            // They are as changed as before.
            changed.iter().for_each(|table| self.table_changed(table.id));
        }
        result
    }

    fn write_tables(&self, changed: &[Arc<Table>], line: Line) -> Result<()> {
        // Readers from before a drop keep a table's blocks, which move like any other's: it is written as long as they read.
        let low = self.low_but_the_line(line);
        let is_kept =
            |table: &Table| table.lives_at(line.cut) || (table.dropped() <= line.cut && table.dropped() > low);
        let alive: Vec<&Arc<Table>> = changed.iter().filter(|table| is_kept(table)).collect();
        self.write_dirty_leaves(&alive)?;
        // The log before the data. Here, since no lock is held, little is left to flush after the leaves' time, and an error
        // finds nothing given back yet.
        self.write_ahead.wait_for_log(line.cut)?;
        // Trees are independent of each other from here on.
        let roots: PlainMutex<Vec<(usize, Option<RootAddress>)>> = PlainMutex::new(Vec::with_capacity(alive.len()));
        self.in_parallel((0..alive.len()).collect(), |index| {
            let root = self.write_inner_nodes(&alive[index].tree, line)?;
            roots.lock().push((index, root));
            Ok(())
        })?;
        let mut rows = Vec::with_capacity(changed.len());
        for (index, root) in roots.into_inner() {
            rows.push(directory::row(alive[index], root, line.cut));
            if alive[index].dropped() <= line.cut {
                // The next start frees it, the next checkpoint looks whether it is read still.
                self.table_changed(alive[index].id);
            }
        }
        let mut freed = Vec::new();
        for table in changed
            .iter()
            .filter(|table| table.dropped() <= line.cut && !is_kept(table))
        {
            self.free_tree(table)?;
            freed.push(table.clone());
            rows.push(directory::removed(table.id));
        }
        // What came after the cut is for the next one.
        let later = |table: &Table| {
            table.created > line.cut || (table.dropped() > line.cut && table.dropped() != crate::leaf::SEQ_MAX)
        };
        for table in changed.iter().filter(|table| later(table)) {
            self.table_changed(table.id);
        }
        let directory = &self.directory_tree;
        let mut horizon = Horizon::default();
        self.pins.update(&mut horizon);
        for (key, change) in rows {
            self.write(directory, &key, change, line.cut, &horizon)?;
        }
        let directory_leaves = directory.take_dirty();
        self.write_leaves(directory, directory_leaves, Need::Checkpoint)?;
        self.move_directory_leaves()?;
        let root = self.write_inner_nodes(directory, line)?;
        let _all_is_flushed = self.unflushed.write();
        self.free_lost_large(Some(line));
        self.exclude_others(changed, line)?;
        self.store
            .commit_checkpoint(line.cut.0, &directory::encode_root(root))?;
        for table in freed {
            self.tables.remove(table.id);
        }
        self.store.plan_relocation(blocks::Urgency::Background);
        Ok(())
    }

    /// Blocks that are in use and that the checkpoint does not refer to are not recorded as used. No block is on its way.
    fn exclude_others(&self, changed: &[Arc<Table>], line: Line) -> Result<()> {
        for (volume, cell) in self
            .book
            .not_in(line.cut, |standing| self.is_in_place(standing, line.cut))
        {
            for address in LargeRef::from_cell(&cell).iter().flat_map(LargeRef::addresses) {
                self.store.exclude(volume, address);
            }
        }
        // Tables that came after the cut, and were loaded or written back already.
        for table in changed.iter().filter(|table| table.created > line.cut) {
            let tree = &table.tree;
            let (mut blocks, mut leaves) = (Vec::new(), Vec::new());
            {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                blocks_below(tree.root.load(&guard), line, &mut blocks, &mut leaves, &guard);
            }
            if tree.has_large.load(Ordering::Acquire) {
                for leaf in leaves {
                    // One that was written anew meanwhile is of the checkpoint after this one.
                    let Ok(image) = self.read_leaf(tree, leaf, Near::Others) else {
                        continue;
                    };
                    for index in 0..image.len() {
                        if let CellValue::Large(large) = image.value(index) {
                            blocks.extend(large.addresses());
                        }
                    }
                }
            }
            for address in blocks {
                self.store.exclude(tree.shape.volume, address);
            }
        }
        Ok(())
    }

    /// Whether a large value that only a delta held when it was looked up in the book is what a reader at `at` finds.
    fn is_in_place(&self, standing: &Standing, at: Seq) -> bool {
        let Some((tree, key)) = standing
            .place
            .as_ref()
            .and_then(|place| Some((place.tree.upgrade()?, &place.key)))
        else {
            return false;
        };
        loop {
            let guard = rcu::pin();
            if tree.dead.load(Ordering::Acquire) {
                return false;
            }
            let in_base = || self.book.is_in_base(tree.shape.volume, &standing.cell, at);
            let Child::Leaf(leaf) = tree.descend(Target::At(key), 0, &guard).child else {
                return in_base();
            };
            let view = leaf.view.load(&guard);
            if view.retired {
                continue;
            }
            return match view.get(key, at, &guard) {
                crate::leaf::Found::Large(cell) => cell == standing.cell,
                crate::leaf::Found::NotLoaded(..) => in_base(),
                _ => false,
            };
        }
    }

    /// The oldest position of any reader, the running checkpoint's own pin left out where nobody else stands there.
    fn low_but_the_line(&self, line: Line) -> Seq {
        self.with_readers(|published, readers| match readers.first() {
            Some(&oldest) if oldest < line.cut => oldest,
            _ => line.cut.min(published),
        })
    }

    /// Runs `work` for all items on all workers; the first error ends it.
    pub(crate) fn in_parallel<T: Send>(&self, items: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
        self.workers.for_each(Class::Background, items, work)
    }

    fn write_dirty_leaves(&self, tables: &[&Arc<Table>]) -> Result<()> {
        let mut units: Vec<Unit<'_>> = Vec::new();
        let mut all: Vec<Unit<'_>> = Vec::new();
        for table in tables {
            let mut leaves = table.tree.take_dirty();
            for leaf in &leaves {
                leaf.state.lock().listed = false;
            }
            leaves.sort_unstable_by(|a, b| a.low.cmp(&b.low));
            all.push((&table.tree, leaves.clone()));
            let mut leaves = leaves.into_iter().peekable();
            while leaves.peek().is_some() {
                units.push((&table.tree, leaves.by_ref().take(UNIT_LEAVES).collect()));
            }
        }
        // Small trees share a writer: a page each for thousands of tables makes few long runs.
        let mut groups: Vec<Vec<Unit<'_>>> = Vec::new();
        let mut room = 0;
        for unit in units {
            if room < unit.1.len() || groups.is_empty() {
                groups.push(Vec::new());
                room = UNIT_LEAVES;
            }
            room = room.saturating_sub(unit.1.len());
            groups.last_mut().expect("just pushed").push(unit);
        }
        let result = self.in_parallel(groups, |group| {
            let mut writer = PageWriter::new(self);
            for (tree, leaves) in group {
                for leaf in leaves {
                    if writer.write(tree, &leaf, Need::Checkpoint)? == Written::Busy {
                        mark_place(tree, &leaf);
                    }
                }
            }
            writer.flush()
        });
        // Whatever has changes beyond what is on disk stays listed.
        for (tree, leaves) in all {
            for leaf in leaves {
                let state = leaf.state.lock();
                let is_dirty = state.valid_to != crate::leaf::SEQ_MAX || state.stored.is_none();
                let retired = leaf.view.load(&rcu::pin()).retired;
                drop(state);
                if is_dirty && !retired {
                    self.list(tree, &leaf);
                }
            }
        }
        result
    }

    /// Writes leaves of one tree on the caller's thread.
    pub(crate) fn write_leaves(&self, tree: &Arc<Tree>, leaves: Vec<Arc<Leaf>>, need: Need) -> Result<()> {
        let mut writer = PageWriter::new(self);
        let mut leaves = leaves.into_iter();
        while let Some(leaf) = leaves.next() {
            leaf.state.lock().listed = false;
            let written = match writer.write(tree, &leaf, need) {
                Ok(written) => written,
                Err(error) => {
                    // Those that were not reached stay listed.
                    self.list(tree, &leaf);
                    tree.dirty.lock().leaves.extend(leaves);
                    return Err(error);
                }
            };
            if written == Written::Busy {
                mark_place(tree, &leaf);
            }
            let state = leaf.state.lock();
            let is_dirty = state.valid_to != crate::leaf::SEQ_MAX || state.stored.is_none();
            drop(state);
            if written != Written::Retired && is_dirty {
                self.list(tree, &leaf);
            }
        }
        writer.flush()
    }

    /// Writes every inner node whose children's addresses changed, and answers where the root lies. Leaves split meanwhile, and
    /// what is above those has to be written again, until there is a moment in which all of the tree is on disk.
    fn write_inner_nodes(&self, tree: &Arc<Tree>, line: Line) -> Result<Option<RootAddress>> {
        let mut writer = PageWriter::new(self);
        let _moves_again = Moving(tree);
        for round in 1.. {
            if round > ROUNDS_BEFORE_STILL {
                tree.is_still.store(true, Ordering::Release);
            }
            let level = {
                let guard = rcu::pin();
                match tree.root.load(&guard) {
                    Child::Leaf(_) | Child::Nothing => 0,
                    Child::Inner(inner) => inner.level,
                    // Nothing of it is in memory, so nothing changed.
                    Child::Stored { .. } => 0,
                }
            };
            // Level by level, so that a node's children are there when it is looked at.
            for level in 1..=level {
                self.write_level(tree, level, line, &mut writer)?;
            }
            let guard = rcu::pin();
            let structure = tree.structure.lock();
            let root = tree.root.load(&guard).clone();
            let found = match &root {
                Child::Stored { address, level } => Some(RootAddress {
                    address: *address,
                    level: *level,
                }),
                Child::Nothing => None,
                Child::Leaf(leaf) => leaf_address(leaf, line).map(|address| RootAddress { address, level: 0 }),
                Child::Inner(inner) => inner.address_for(line.number).map(|address| RootAddress {
                    address,
                    level: inner.level,
                }),
            };
            if let Some(found) = found {
                self.expect_recorded(tree, &[found.address])?;
                tree.root_taken.store(line.number, Ordering::Release);
                return Ok(Some(found));
            }
            if has_nothing(&root) {
                tree.root_taken.store(line.number, Ordering::Release);
                return Ok(None);
            }
            if let Child::Leaf(leaf) = &root {
                drop(structure);
                self.write_for_checkpoint(tree, std::slice::from_ref(leaf), &mut writer)?;
            }
        }
        unreachable!("the rounds have no end")
    }

    /// An error when the running checkpoint is about to refer to blocks that it does not record as used: they were given back, or
    /// are for the next one. It would be durable and could not be read after a crash, and nobody would notice before. Under
    /// `structure`.
    fn expect_recorded(&self, tree: &Tree, addresses: &[BlockAddr]) -> Result<()> {
        match self.store.find_unrecorded(tree.shape.volume, addresses) {
            None => Ok(()),
            Some(address) => Err(EngineError::Corrupt {
                path: self.directory.clone(),
                offset: address.sector() * blocks::SECTOR_BYTES as u64,
                reason: format!(
                    "a checkpoint refers to {address:?} of {:?}, which is not in use",
                    tree.id
                ),
            }),
        }
    }

    /// Writes the changed nodes of one level, from the left to the right.
    fn write_level(&self, tree: &Arc<Tree>, level: u8, line: Line, writer: &mut PageWriter<'_>) -> Result<()> {
        let mut appended = Vec::new();
        self.append_level(tree, level, line, writer, &mut appended)?;
        self.flush_inner(tree, &mut appended, line, writer)
    }

    fn append_level(
        &self,
        tree: &Arc<Tree>,
        level: u8,
        line: Line,
        writer: &mut PageWriter<'_>,
        appended: &mut Vec<AppendedInner>,
    ) -> Result<()> {
        let mut raw = Vec::new();
        let mut from: Option<Vec<u8>> = None;
        let mut looks = 0;
        loop {
            looks += 1;
            if looks > LOOKS_BEFORE_STILL {
                tree.is_still.store(true, Ordering::Release);
            }
            let target = from.as_deref().map_or(Target::First, Target::At);
            let (gathered, high) = {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                // Only under dirty nodes there is something to do.
                let mut stop_level = level;
                let mut child = tree.root.load(&guard);
                while let Child::Inner(inner) = child
                    && inner.level > level
                {
                    if inner.address_for(line.number).is_some() {
                        stop_level = inner.level;
                        break;
                    }
                    let index = match target {
                        Target::At(key) => inner.separators.child_for(key),
                        _ => 0,
                    };
                    child = inner.children[index].load(&guard);
                }
                let descent = tree.descend(target, stop_level, &guard);
                let high = descent.high.map(crate::tree::Fence::to_vec);
                let gathered = match descent.child {
                    Child::Inner(inner) if inner.level == level => Some(gather(inner, line, &guard)),
                    _ => None,
                };
                (gathered, high)
            };
            if matches!(gathered, Some(Gathered::Leaves(_) | Gathered::Below(_))) {
                // What follows has the same writer: after an error nobody could tell which of these blocks are flushed. And nodes
                // that are written are not looked at again.
                self.flush_inner(tree, appended, line, writer)?;
            }
            match gathered {
                Some(Gathered::Leaves(leaves)) => {
                    self.write_for_checkpoint(tree, &leaves, writer)?;
                    continue;
                }
                Some(Gathered::Below(below)) => {
                    self.write_level(tree, below, line, writer)?;
                    continue;
                }
                Some(Gathered::Ready(inner, addresses)) => {
                    raw.clear();
                    encode_inner(inner.level, &inner.separators, &addresses, &mut raw);
                    let low = from.as_deref().unwrap_or_default();
                    let address = writer.append_inner(tree, &raw, inner.separators.len(), low)?;
                    appended.push(AppendedInner {
                        inner,
                        from: from.clone(),
                        address,
                        children: addresses,
                    });
                    if appended.len() == UNIT_LEAVES {
                        self.flush_inner(tree, appended, line, writer)?;
                    }
                }
                Some(Gathered::Has) | None => {}
            }
            match high {
                None => return Ok(()),
                Some(high) => from = Some(high),
            }
            looks = 0;
        }
    }

    fn write_for_checkpoint(&self, tree: &Arc<Tree>, leaves: &[Arc<Leaf>], writer: &mut PageWriter<'_>) -> Result<()> {
        for leaf in leaves {
            if writer.write(tree, leaf, Need::Checkpoint)? == Written::Busy {
                // Another worker publishes it in a moment.
                rcu::yield_now();
            }
        }
        writer.flush()
    }

    /// Gives appended and flushed nodes their addresses. Before the flush nobody may learn them: a split would free a block
    /// whose bytes are on their way, and they would be written over whatever took its place.
    fn install_inner(&self, tree: &Arc<Tree>, appended: Vec<AppendedInner>, line: Line) -> Result<()> {
        for AppendedInner {
            inner,
            from,
            address,
            children,
        } in appended
        {
            let guard = rcu::pin();
            let _structure = tree.structure.lock();
            let target = from.as_deref().map_or(Target::First, Target::At);
            let child = tree.descend(target, inner.level, &guard).child;
            let is_there = matches!(child, Child::Inner(now) if Arc::ptr_eq(now, &inner));
            // A change of structure replaced it, or something below it: its successors are written instead, or itself again.
            if !is_there || !has_children(&inner, &children, line, &guard) {
                self.free_block(tree, address, Referenced::No);
                continue;
            }
            self.expect_recorded(tree, &children)?;
            inner
                .dirty
                .store(!is_current(&inner, &children, &guard), Ordering::Release);
            let old = inner.disk.lock().address.replace(address);
            inner.set_address_for(line.number, address);
            if let Some(old) = old {
                self.free_block(tree, old, Referenced::No);
            }
        }
        Ok(())
    }

    /// Flushes what was appended and installs it; after an error the nodes are still to be written.
    fn flush_inner(
        &self,
        tree: &Arc<Tree>,
        appended: &mut Vec<AppendedInner>,
        line: Line,
        writer: &mut PageWriter<'_>,
    ) -> Result<()> {
        writer.flush()?;
        self.install_inner(tree, std::mem::take(appended), line)
    }

    /// Gives back every block of a dropped table that nobody reads any more.
    fn free_tree(&self, table: &Table) -> Result<()> {
        let tree = &table.tree;
        let root = {
            let guard = rcu::pin();
            // What runs under this lock goes down from the root: from now on nobody finds, or replaces, what hangs below.
            let _structure = tree.structure.lock();
            tree.dead.store(true, Ordering::Release);
            drop(tree.take_dirty());
            *tree.last_leaf.lock() = None;
            let root = tree.root.load(&guard).clone();
            tree.root.replace(Child::Nothing, &guard);
            root
        };
        let mut deltas = 0;
        self.free_child(tree, &root, &mut deltas)?;
        let bytes = tree.memory_bytes.load(Ordering::Relaxed);
        self.account(
            tree,
            -((bytes as usize).saturating_sub(deltas) as isize),
            -(deltas as isize),
        );
        self.remove_volume_if_unused(tree.shape.volume);
        Ok(())
    }

    /// Has the file of a volume go when no table is in it.
    pub(crate) fn remove_volume_if_unused(&self, volume: VolumeId) {
        let volumes = self.volumes.lock();
        let is_used = |other: &Arc<Table>| other.tree.shape.volume == volume && !is_dead(&other.tree);
        if *volumes != Some(volume) && !self.tables.all().iter().any(is_used) {
            self.store.remove_volume_if_empty(volume);
        }
    }

    /// Not while pinned: it reads what is on disk.
    fn free_child(&self, tree: &Tree, child: &Child, deltas: &mut usize) -> Result<()> {
        match child {
            Child::Nothing => {}
            Child::Leaf(leaf) => {
                // Retired first, so that nothing is read under the lock.
                let (stored, kept, base, dropped_large) = {
                    let guard = rcu::pin();
                    let mut state = leaf.state.lock();
                    let base = leaf.view.load(&guard).base.clone();
                    leaf.view.replace(LeafView::retired(), &guard);
                    *deltas += state.delta_bytes;
                    state.set_undo(self, 0);
                    let dropped = std::mem::take(&mut state.dropped_large);
                    (state.stored.take(), state.checkpoint.take(), base, dropped)
                };
                if tree.has_large.load(Ordering::Acquire) {
                    self.free_large_of_leaf(tree, &base, &dropped_large)?;
                }
                if let Some(address) = stored {
                    self.free_block(tree, address, Referenced::No);
                }
                if let Some((number, Some(address))) = kept
                    && self.line.lock().is_some_and(|line| line.number == number)
                {
                    // Kept for the checkpoint that takes the table out.
                    self.store.forsake(tree.shape.volume, address);
                }
            }
            Child::Inner(inner) => {
                self.account_inner(tree, -(inner.memory_bytes() as isize));
                for cell in &inner.children {
                    let child = cell.load(&rcu::pin()).clone();
                    self.free_child(tree, &child, deltas)?;
                }
                if let Some(address) = inner.disk.lock().address.take() {
                    self.free_block(tree, address, Referenced::No);
                }
            }
            Child::Stored { address, level: 0 } => {
                if tree.has_large.load(Ordering::Acquire) {
                    self.free_large_of(tree, *address)?;
                }
                self.free_block(tree, *address, Referenced::No);
            }
            Child::Stored { address, level } => {
                let inner = self.read_inner(tree, *address, *level)?;
                for cell in &inner.children {
                    let child = cell.load(&rcu::pin()).clone();
                    self.free_child(tree, &child, deltas)?;
                }
                self.free_block(tree, *address, Referenced::No);
            }
        }
        Ok(())
    }

    /// Gives back the blocks of the large values that a leaf in memory owns: those of its base, and those that a base before had
    /// and whose image is stored still. Values in its delta have owners of their own.
    fn free_large_of_leaf(&self, tree: &Tree, base: &Base, dropped: &[bytes::Bytes]) -> Result<()> {
        match base {
            Base::Empty => {}
            Base::Image(image) => self.free_large_of_image(tree, image),
            Base::Stored(address) => self.free_large_of(tree, *address)?,
        }
        for cell in dropped {
            self.free_large(tree, cell);
        }
        Ok(())
    }

    /// Gives back the blocks of the large values that a leaf's image on disk points to.
    fn free_large_of(&self, tree: &Tree, address: BlockAddr) -> Result<()> {
        let image = self.read_leaf(tree, address, Near::Nothing)?;
        self.free_large_of_image(tree, &image);
        Ok(())
    }

    fn free_large_of_image(&self, tree: &Tree, image: &LeafImage) {
        for index in 0..image.len() {
            if let CellValue::Large(large) = image.value(index) {
                self.free_large(tree, large.cell());
            }
        }
    }

    fn free_large(&self, tree: &Tree, cell: &[u8]) {
        self.book.forget(tree.shape.volume, cell);
        for address in LargeRef::from_cell(cell).iter().flat_map(LargeRef::addresses) {
            self.free_block(tree, address, Referenced::No);
        }
    }
}

/// Somebody else is writing a leaf: the inner nodes above it are looked at, which waits until that is done. What gets to disk
/// may not be what the checkpoint needs.
fn mark_place(tree: &Tree, leaf: &Leaf) {
    let guard = rcu::pin();
    let _structure = tree.structure.lock();
    tree.mark_path(&leaf.low, &guard);
}

/// A leaf's address as the running checkpoint has it.
fn leaf_address(leaf: &Leaf, line: Line) -> Option<BlockAddr> {
    let state = leaf.state.lock();
    match state.checkpoint {
        Some((number, address)) if number == line.number => address,
        _ => state
            .stored
            .filter(|_| state.valid_from <= line.cut && line.cut < state.valid_to),
    }
}

/// Whether the children of a node lie where its appended image says, as far as the checkpoint goes, and nothing was replaced on any
/// level below them. Under `structure`.
fn has_children(inner: &Inner, addresses: &[BlockAddr], line: Line, guard: &rcu::Guard) -> bool {
    let mut children = inner.children.iter().zip(addresses);
    children.all(|(cell, address)| match cell.load(guard) {
        Child::Stored { address: now, .. } => now == address,
        Child::Leaf(leaf) => leaf_address(leaf, line) == Some(*address),
        Child::Nothing => false,
        Child::Inner(child) => child.address_for(line.number) == Some(*address),
    })
}

/// Whether the next checkpoint, too, finds every child where this one does. Under `structure`.
fn is_current(inner: &Inner, addresses: &[BlockAddr], guard: &rcu::Guard) -> bool {
    let mut children = inner.children.iter().zip(addresses);
    children.all(|(cell, address)| match cell.load(guard) {
        Child::Stored { address: now, .. } => now == address,
        Child::Leaf(leaf) => leaf.state.lock().stored == Some(*address),
        Child::Nothing => false,
        Child::Inner(child) => !child.dirty.load(Ordering::Acquire) && child.disk.lock().address == Some(*address),
    })
}

/// Has a tree's structure change as usual again, when it goes.
struct Moving<'t>(&'t Tree);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.is_still.store(false, Ordering::Release);
    }
}

/// Where everything below a child lies that is not a large value, and its leaves apart.
fn blocks_below(
    child: &Child,
    line: Line,
    blocks: &mut Vec<BlockAddr>,
    leaves: &mut Vec<BlockAddr>,
    guard: &rcu::Guard,
) {
    match child {
        Child::Nothing => {}
        Child::Leaf(leaf) => {
            let state = leaf.state.lock();
            let of_line = state.checkpoint.filter(|(number, _)| *number == line.number);
            blocks.extend(of_line.and_then(|(_, address)| address));
            blocks.extend(state.stored);
            leaves.extend(state.stored);
        }
        Child::Inner(inner) => {
            blocks.extend(inner.disk.lock().address);
            for cell in &inner.children {
                blocks_below(cell.load(guard), line, blocks, leaves, guard);
            }
        }
        Child::Stored { address, level } => {
            // A tree that no checkpoint has had yet has its inner nodes in memory.
            blocks.push(*address);
            if *level == 0 {
                leaves.push(*address);
            }
        }
    }
}

/// True for a root that never had an image and has no rows.
fn has_nothing(root: &Child) -> bool {
    let leaf = match root {
        Child::Nothing => return true,
        Child::Leaf(leaf) => leaf,
        Child::Inner(_) | Child::Stored { .. } => return false,
    };
    let guard = rcu::pin();
    let state = leaf.state.lock();
    let view = leaf.view.load(&guard);
    state.stored.is_none()
        && state.writing.is_none()
        && matches!(view.base, crate::leaf::Base::Empty)
        && view.order.len() == 0
}

/// Looks at the children of a node. Under `structure`.
fn gather(inner: &Arc<Inner>, line: Line, guard: &rcu::Guard) -> Gathered {
    if inner.address_for(line.number).is_some() {
        return Gathered::Has;
    }
    let mut addresses: Vec<BlockAddr> = Vec::with_capacity(inner.children.len());
    let mut missing = Vec::new();
    for cell in &inner.children {
        let address = match cell.load(guard) {
            Child::Stored { address, .. } => *address,
            Child::Leaf(leaf) => match leaf_address(leaf, line) {
                Some(address) => address,
                None => {
                    missing.push(leaf.clone());
                    continue;
                }
            },
            Child::Nothing => unreachable!("only a root is that"),
            Child::Inner(child) => match child.address_for(line.number) {
                Some(address) => {
                    // Leaves below one that was not written may change from now on.
                    child.set_address_for(line.number, address);
                    address
                }
                None => return Gathered::Below(child.level),
            },
        };
        addresses.push(address);
    }
    if !missing.is_empty() {
        return Gathered::Leaves(missing);
    }
    Gathered::Ready(inner.clone(), addresses)
}

#[cfg(test)]
mod tests;
