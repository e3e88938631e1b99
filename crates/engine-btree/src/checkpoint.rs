//! Checkpoints: the exact state at one position, written while everything goes on.
//!
//! 1. Take a position: the published one. A snapshot is pinned there, the block store begins a checkpoint, and the
//!    tables that changed are those it writes. All of that is one step for whoever gives blocks back.
//! 2. Write every leaf whose image is not good for the position, in parallel, in key order (`leaves`). Where few rows
//!    changed, the image stays, and they are saved beside it (`saved`).
//! 3. From the lowest level up, write each inner node above a changed address (`inner`), until the checkpoint has the
//!    root of each tree: from then on what that refers to stays for it.
//! 4. Put the new roots into the directory, write that like any tree, exclude what has blocks and is not part of the
//!    checkpoint (`exclude`), and commit: two syncs.
//!
//! A node's image may belong to this checkpoint only (a later one exists already): then the node stays dirty.

mod exclude;
mod inner;
mod leaves;
mod saved;

use crate::apply::Applier;
use crate::block_mover::BlockMover;
use crate::budget::Use;
use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::directory;
use crate::foundation::Foundation;
use crate::large_values::LargeValues;
use crate::loads::LoadsInProgress;
use crate::page::LargeRef;
use crate::pages::Pages;
use crate::readers::Readers;
use crate::running::{CheckpointPosition, RunningCheckpoint};
use crate::saved_deltas::{SavedBlock, SavedDeltas};
use crate::table_removal::TableRemoval;
use crate::tables::Table;
use crate::workers::{Class, Workers};
use crate::write_back::{Need, WriteBack};
use blocks::{BlockStore, Referenced};
use directory::RootAddress;
use engine::{EngineStatus, ErrorKind, Result, Seq, WriteAheadRule};
use parking_lot::Mutex as PlainMutex;
use pins::{Holder, Horizon, Pin};
use rcu::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Leaves that one worker writes in a row, and inner nodes that are flushed together.
const UNIT_PAGES: usize = 128;

/// What a checkpointer works with.
struct CheckpointParts {
    store: Arc<BlockStore>,
    catalog: Arc<Catalog>,
    pages: Arc<Pages>,
    cache: Arc<PageCache>,
    readers: Arc<Readers>,
    applier: Arc<Applier>,
    write_back: Arc<WriteBack>,
    mover: Arc<BlockMover>,
    removal: TableRemoval,
    large_values: Arc<LargeValues>,
    loads: Arc<LoadsInProgress>,
    running: Arc<RunningCheckpoint>,
    saved_deltas: Arc<SavedDeltas>,
    workers: Arc<Workers>,
    status: Arc<EngineStatus>,
    counters: Arc<Counters>,
    clock: Arc<dyn vfs::Clock>,
}

/// Runs one checkpoint at a time.
pub(crate) struct Checkpointer {
    parts: CheckpointParts,
    write_ahead: WriteAheadRule,
    /// Held during a checkpoint; the last one's position.
    last: Mutex<Seq>,
    /// The durable mark.
    durable: AtomicU64,
    /// What was found at opening was whole: what is made of it has to be, too.
    #[cfg(debug_assertions)]
    is_audited: bool,
}

impl Checkpointer {
    pub(crate) fn new(
        base: &Foundation,
        applier: Arc<Applier>,
        write_back: Arc<WriteBack>,
        mover: Arc<BlockMover>,
        removal: TableRemoval,
        loads: Arc<LoadsInProgress>,
        durable: Seq,
    ) -> Self {
        Self {
            parts: CheckpointParts {
                store: base.store.clone(),
                catalog: base.catalog.clone(),
                pages: base.pages.clone(),
                cache: base.cache.clone(),
                readers: base.readers.clone(),
                applier,
                write_back,
                mover,
                removal,
                large_values: base.large_values.clone(),
                loads,
                running: base.running.clone(),
                saved_deltas: base.saved_deltas.clone(),
                workers: base.workers.clone(),
                status: base.status.clone(),
                counters: base.counters.clone(),
                clock: base.clock.clone(),
            },
            write_ahead: WriteAheadRule::default(),
            last: Mutex::new(durable),
            durable: AtomicU64::new(durable.0),
            #[cfg(debug_assertions)]
            is_audited: crate::durable_audit::was_whole(&base.store),
        }
    }

    /// The log that has to be on disk before a checkpoint is.
    pub(crate) fn write_ahead(&self) -> &WriteAheadRule {
        &self.write_ahead
    }

    /// The position of the last checkpoint that is on disk.
    pub(crate) fn durable(&self) -> Seq {
        Seq(self.durable.load(Ordering::Acquire))
    }

    /// Waits for a checkpoint that runs; none runs as long as the guard lives.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Seq> {
        self.last.lock()
    }

    /// The same if no checkpoint runs.
    pub(crate) fn try_hold(&self) -> Option<MutexGuard<'_, Seq>> {
        self.last.try_lock()
    }

    /// Runs a checkpoint and answers its position. With nothing new to write, and no `force`, it answers the last
    /// one's. With `force` every leaf that changed is written.
    pub(crate) fn checkpoint(&self, force: bool) -> Result<Seq> {
        self.run(if force { Saves::Never } else { Saves::Allowed })
    }

    /// The same, after which nothing is saved beside images: for a clean end, behind which any version of this format
    /// can start, at once. That may read and write far more than a checkpoint that saves. Such a one comes first: who
    /// does not wait for the end finds nothing to replay at the next start.
    pub(crate) fn checkpoint_whole(&self) -> Result<Seq> {
        self.run(Saves::Allowed)?;
        self.run(Saves::Undone)
    }

    fn run(&self, saves: Saves) -> Result<Seq> {
        let parts = &self.parts;
        let mut last = self.last.lock();
        parts.status.check_running()?;
        let started = parts.clock.monotonic();
        let force = match saves {
            Saves::Allowed => false,
            Saves::Never => true,
            // Asked under the lock: another checkpoint may just have saved some.
            Saves::Undone => parts.saved_deltas.are_there(),
        };
        if !force && parts.readers.published() <= *last && parts.catalog.is_unchanged() {
            return Ok(*last);
        }
        parts.list_saved();
        parts.free_unread_large(None);
        let (position, pin, changed) = parts.take_position();
        parts.catalog.pace().begin_cycle(started);
        // Clients wait for room: the priority of the work that makes it must not be the lowest.
        parts.workers.set_pressure(parts.cache.budget().is_pressing());
        let mut run = Run::new(parts, position, &changed);
        run.may_save = saves == Saves::Allowed;
        let result = run.write(&self.write_ahead);
        parts.workers.set_pressure(false);
        if let Err(error) = &result {
            // They are as changed as before.
            changed.iter().for_each(|table| parts.catalog.table_changed(table.id));
            run.give_up_saved();
            parts.store.abandon_checkpoint();
            if error.kind() != ErrorKind::OutOfSpace {
                parts.status.stop(format!("a checkpoint failed: {error}"));
            }
        }
        *parts.running.lock() = None;
        parts.readers.unpin(pin);
        result?;
        #[cfg(debug_assertions)]
        if self.is_audited {
            crate::durable_audit::assert_durable_is_whole(&parts.store);
        }
        *last = position.seq;
        parts.large_values.settle(position.seq);
        parts.cache.clock_list().forget_gone();
        self.durable.store(position.seq.0, Ordering::Release);
        let took = parts.clock.monotonic().saturating_sub(started).as_millis() as u64;
        parts.counters.checkpoints.add(1);
        parts.counters.checkpoint_ms.add(took);
        parts.counters.checkpoint_ms_last.set(took);
        Ok(position.seq)
    }
}

impl CheckpointParts {
    /// Step 1: the position, and the tables that changed since the last one.
    fn take_position(&self) -> (CheckpointPosition, Pin, Vec<Arc<Table>>) {
        let mut running = self.running.lock();
        let pin = self.readers.pin(Holder::Engine);
        let number = self.loads.hand_on(&self.store, || self.store.begin_checkpoint());
        let changed = self.catalog.take_changed();
        for table in &changed {
            table.tree.written_by.store(number, Ordering::Release);
        }
        let directory = self.catalog.directory_tree();
        directory.written_by.store(number, Ordering::Release);
        let position = CheckpointPosition { number, seq: pin.seq() };
        (*running.insert(position), pin, changed)
    }

    /// Gives back the blocks of large values that nobody can read, before a checkpoint begins and before it
    /// (`position`) records what is used.
    fn free_unread_large(&self, position: Option<CheckpointPosition>) {
        let seq = position.map(|position| position.seq);
        let (published, low) = self.readers.oldest_but(seq);
        for (volume, cell) in self.large_values.take(published, low, seq) {
            for address in LargeRef::from_cell(&cell).iter().flat_map(LargeRef::addresses) {
                let is_freed = self.store.free(volume, address, Referenced::No);
                debug_assert!(is_freed, "a large value at {address:?} is given back once");
            }
        }
    }

    /// Runs `work` for all items on all workers; the first error ends it.
    fn in_parallel<T: Send>(&self, items: Vec<T>, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
        self.workers.for_each(Class::Background, items, work)
    }
}

/// What a checkpoint makes of changes that could be saved beside images.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saves {
    Allowed,
    /// It writes every leaf that changed, and runs also where nothing is new.
    Never,
    /// It writes every leaf that changed, and runs also where some are saved.
    Undone,
}

/// How a changed table stands to a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Membership {
    /// The checkpoint has it.
    Live,
    /// It was dropped, and readers from before have it: its blocks move like any other's, so that it is written as long
    /// as they read.
    Dropped,
    /// It was dropped, and nobody reads it any more.
    Unread,
    /// It was made after the position.
    Later,
}

/// One run of a checkpoint.
struct Run<'c> {
    parts: &'c CheckpointParts,
    position: CheckpointPosition,
    /// The tables that it looks at.
    changed: &'c [Arc<Table>],
    /// Changes may be saved beside the images that lack them.
    may_save: bool,
    /// The blocks of its saved deltas, as far as they are written.
    saved: PlainMutex<Vec<SavedBlock>>,
}

impl<'c> Run<'c> {
    fn new(parts: &'c CheckpointParts, position: CheckpointPosition, changed: &'c [Arc<Table>]) -> Self {
        Self {
            parts,
            position,
            changed,
            may_save: true,
            saved: PlainMutex::default(),
        }
    }

    /// Steps 2 to 4.
    fn write(&self, write_ahead: &WriteAheadRule) -> Result<()> {
        let oldest = self.oldest_reader();
        let is_written =
            |table: &&Arc<Table>| matches!(self.membership(table, oldest), Membership::Live | Membership::Dropped);
        let written: Vec<&Arc<Table>> = self.changed.iter().filter(is_written).collect();
        self.write_dirty_leaves(&written)?;
        self.complete(&written, oldest, write_ahead)
    }

    /// Steps 3 and 4, for these tables; `oldest` is the oldest reader's position when the checkpoint began.
    fn complete(&self, written: &[&Arc<Table>], oldest: Seq, write_ahead: &WriteAheadRule) -> Result<()> {
        let parts = self.parts;
        // The log before the data. Here, since no lock is held, little is left to flush after the leaves' time, and an
        // error finds nothing given back yet.
        write_ahead.wait_for_log(self.position.seq)?;
        let roots = self.write_roots(written)?;
        let mut rows = Vec::with_capacity(self.changed.len());
        for (table, root) in written.iter().zip(roots) {
            rows.push(directory::row(table, root, self.position.seq));
        }
        let (mut freed, mut left_volumes) = (Vec::new(), BTreeSet::new());
        for table in self.changed {
            match self.membership(table, oldest) {
                Membership::Live => {}
                // The next start frees it, the next checkpoint looks whether it is read still.
                Membership::Dropped => parts.catalog.table_changed(table.id),
                Membership::Unread => {
                    parts.removal.free_table(table)?;
                    left_volumes.insert(table.tree.shape.volume);
                    freed.push(table.id);
                    rows.push(directory::removed(table.id));
                }
                Membership::Later => parts.catalog.table_changed(table.id),
            }
            // What came after the position is for the next one.
            if !table.is_live() && table.dropped() > self.position.seq {
                parts.catalog.table_changed(table.id);
            }
        }
        parts.catalog.remove_unused_volumes(left_volumes);
        let root = self.write_directory(rows)?;
        let saved = self.write_saved_index()?;
        let later_large = self.read_large_of_later();
        // Eviction stands still from the lock to the end of the commit, and the cache's bound with it: the sync of all
        // that was written since the last checkpoint is not to be part of that.
        parts.store.sync_written()?;
        // From here on no block is on its way.
        let _all_is_flushed = parts.write_back.all_flushed();
        parts.free_unread_large(Some(self.position));
        self.exclude_others(&later_large);
        parts
            .store
            .commit_checkpoint(self.position.seq.0, &directory::encode_root(root, saved))?;
        parts.cache.budget().set(Use::Maps, parts.store.map_memory_bytes());
        freed.into_iter().for_each(|table| parts.catalog.forget(table));
        parts.store.plan_relocation(blocks::Urgency::Background);
        Ok(())
    }

    fn membership(&self, table: &Table, oldest_reader: Seq) -> Membership {
        let seq = self.position.seq;
        if table.lives_at(seq) {
            Membership::Live
        } else if table.dropped() > seq {
            Membership::Later
        } else if table.dropped() > oldest_reader {
            Membership::Dropped
        } else {
            Membership::Unread
        }
    }

    /// The oldest position of any reader, the checkpoint's own pin left out where nobody else stands there.
    fn oldest_reader(&self) -> Seq {
        let seq = self.position.seq;
        self.parts
            .readers
            .with_positions(|published, readers| match readers.first() {
                Some(&oldest) if oldest < seq => oldest,
                _ => seq.min(published),
            })
    }

    /// Step 3: where the roots of these tables lie. Trees are independent of each other here.
    fn write_roots(&self, tables: &[&Arc<Table>]) -> Result<Vec<Option<RootAddress>>> {
        let roots: PlainMutex<Vec<Option<RootAddress>>> = PlainMutex::new(vec![None; tables.len()]);
        self.parts.in_parallel((0..tables.len()).collect(), |index| {
            let root = self.write_inner_nodes(&tables[index].tree)?;
            roots.lock()[index] = root;
            Ok(())
        })?;
        Ok(roots.into_inner())
    }

    /// Writes the rows of tables, and the directory above them. Answers where its root lies.
    fn write_directory(&self, rows: Vec<directory::RowChange>) -> Result<Option<RootAddress>> {
        let parts = self.parts;
        let directory = parts.catalog.directory_tree();
        let mut horizon = Horizon::default();
        parts.readers.update(&mut horizon);
        for (key, change) in rows {
            parts
                .applier
                .write(directory, &key, change, self.position.seq, &horizon)?;
        }
        self.write_leaves(directory, directory.take_dirty(), Need::Checkpoint)?;
        parts.mover.move_directory_leaves()?;
        self.write_inner_nodes(directory)
    }
}

#[cfg(test)]
mod tests;
