//! Checkpoints: the exact state at one position.
//!
//! 1. No tree changes while a checkpoint runs: it holds `structure` alone. Between two batches it takes a
//!    position, the published one, and freezes the memtables. Batches go on, into new ones.
//! 2. The frozen messages up to the position go into their trees, as in any flush, and nodes that are in memory
//!    only are written. So every tree has exactly the messages up to the position: whatever went into one
//!    before was published before.
//! 3. The roots go into the directory, which is a tree like any other, and whose root goes to the block store
//!    with the position.
//! 4. The log first, then the commit: two syncs.
//!
//! Blocks that are in use and no part of it, since readers have them or a load has not become visible, are left
//! out of what it records.

use crate::change::Change;
use crate::core::{Core, VOLUME, count};
use crate::directory;
use crate::flush::flush_oldest;
use crate::node::{Child, Node, UnitRef};
use crate::run::OpRef;
use crate::table::Table;
use blocks::BlockAddr;
use engine::{EngineError, ErrorKind, Result, Seq, TableId};
use parking_lot::Mutex;
use pins::Horizon;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A table has no more frozen memtables than so many from checkpoints that found the disk full: each lookup asks all of
/// them. A checkpoint takes a position only when such a table's are in its tree.
const FROZEN_MAX: usize = 4;

/// Whether a checkpoint is made where nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    IfChanged,
    Always,
}

/// Runs a checkpoint on up to `threads` threads and answers its position.
pub(crate) fn checkpoint(core: &Core, need: Need, threads: usize) -> Result<Seq> {
    let mut last = core.checkpoint.lock();
    core.status.check_running()?;
    let started = core.clock.monotonic();
    if need == Need::IfChanged && core.pins.published() <= *last && core.catalog.is_unchanged() {
        return Ok(*last);
    }
    let alone = core.structure.write();
    let written = write_state(core, threads);
    if let Err(error) = &written
        && error.kind() != ErrorKind::OutOfSpace
    {
        core.status.stop(format!("a checkpoint failed: {error}"));
    }
    drop(alone);
    let seq = written?;
    *last = seq;
    core.durable.store(seq.0, Ordering::Release);
    core.is_disk_full.store(false, Ordering::Release);
    let took = core.clock.monotonic().saturating_sub(started);
    count(&core.counters.checkpoints, 1);
    count(&core.counters.checkpoint_ms, took.as_millis() as u64);
    Ok(seq)
}

/// All four steps; answers the position. Whoever calls holds `structure` alone.
fn write_state(core: &Core, threads: usize) -> Result<Seq> {
    flush_crowded(core, threads)?;
    let (seq, changed) = {
        let _applied = core.applied.lock();
        let changed = core.catalog.take_changed();
        // All of them: a memtable that is written to forgets versions at the position as soon as no reader needs them.
        changed.iter().for_each(|table| drop(table.freeze()));
        (core.pins.published(), changed)
    };
    core.free_unread();
    core.store.begin_checkpoint();
    let result = Run { core, seq, threads }.write(&changed);
    if result.is_err() {
        core.store.abandon_checkpoint();
        changed.iter().for_each(|table| core.catalog.note_change(table));
    }
    result.map(|()| seq)
}

/// Makes room for what is frozen next, see [`FROZEN_MAX`]: an error comes before anything more is.
fn flush_crowded(core: &Core, threads: usize) -> Result<()> {
    let published = core.pins.published();
    let is_crowded = |table: &Arc<Table>| table.lives_at(published) && table.state().frozen.len() >= FROZEN_MAX;
    let tables = core.catalog.by_memory().into_iter().map(|(_, table)| table);
    let crowded: Vec<Arc<Table>> = tables.filter(is_crowded).collect();
    side_by_side(&crowded, threads, |table| {
        let _change = table.change.lock();
        while flush_oldest(core, table, published)? {}
        Ok(())
    })
    .map(drop)
}

/// Does the same with all tables, on up to `threads` threads. Answers what came of it, in no order; the first error
/// ends it.
fn side_by_side<T: Send>(
    tables: &[Arc<Table>],
    threads: usize,
    work_on: impl Fn(&Arc<Table>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tables.len()));
    let failed = Mutex::new(None);
    let work = || {
        while let Some(table) = tables.get(next.fetch_add(1, Ordering::Relaxed)) {
            match work_on(table) {
                Ok(one) => done.lock().push(one),
                Err(error) => {
                    failed.lock().get_or_insert(with_remedy(error, table));
                    next.store(tables.len(), Ordering::Relaxed);
                    return;
                }
            }
        }
    };
    let threads = threads.min(tables.len()).max(1);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let thread = std::thread::Builder::new().name("betree-tables".to_owned());
            // One that cannot start is not missed: this one takes all that is left.
            let _ = thread.spawn_scoped(scope, work);
        }
        work();
    });
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(done.into_inner()),
    }
}

struct Run<'c> {
    core: &'c Core,
    seq: Seq,
    threads: usize,
}

/// What the directory shall have of a table.
struct Row {
    table: Arc<Table>,
    root: Option<UnitRef>,
    disk_bytes: u64,
}

impl Run<'_> {
    fn write(&self, changed: &[Arc<Table>]) -> Result<()> {
        let (core, seq) = (self.core, self.seq);
        let lives = |table: &&Arc<Table>| table.lives_at(seq);
        let live: Vec<Arc<Table>> = changed.iter().filter(lives).cloned().collect();
        let rows = side_by_side(&live, self.threads, |table| self.write_table(table))?;
        // The log before the data.
        core.write_ahead.wait_for_log(seq)?;
        let mut excluded: Vec<BlockAddr> = Vec::new();
        let mut removed = Vec::new();
        for table in changed {
            if table.created() > seq {
                core.catalog.note_change(table);
            } else if table.dropped() <= seq {
                removed.push(table.id);
                if core.pins.oldest() >= table.dropped() {
                    self.free_table(table)?;
                } else {
                    excluded.extend(all_blocks(core, table)?);
                    core.catalog.note_change(table);
                }
            } else if !table.is_live() || table.memory_bytes() > 0 {
                core.catalog.note_change(table);
            }
        }
        let root = self.write_directory(&rows, &removed)?;
        excluded.extend(core.retired.lock().blocks());
        {
            let loads = core.loads.lock();
            let hidden = loads.iter().filter(|load| !load.is_installed || load.seq > seq);
            excluded.extend(hidden.flat_map(|load| load.blocks.iter().copied()));
        }
        for addr in excluded {
            core.store.exclude(VOLUME, addr);
        }
        core.store
            .commit_checkpoint(seq.0, &directory::encode_root(root.as_ref()))?;
        core.loads.lock().retain(|load| !load.is_installed || load.seq > seq);
        Ok(())
    }

    /// Step 2, for one table.
    fn write_table(&self, table: &Arc<Table>) -> Result<Row> {
        let is_hidden = {
            let loads = self.core.loads.lock();
            loads.iter().any(|load| load.table == table.id && load.seq > self.seq)
        };
        if is_hidden {
            // Its rows belong to a later position, and it has no others.
            self.core.catalog.note_change(table);
            return Ok(Row {
                table: table.clone(),
                root: None,
                disk_bytes: 0,
            });
        }
        let _change = table.change.lock();
        while flush_oldest(self.core, table, self.seq)? {}
        self.core.take_back(table);
        let root = self.write_tree(table)?;
        Ok(Row {
            table: table.clone(),
            root,
            disk_bytes: table.state().tree.disk_bytes,
        })
    }

    /// Writes the nodes of a tree that are in memory only. Answers where its root lies.
    fn write_tree(&self, table: &Table) -> Result<Option<UnitRef>> {
        let state = table.state();
        match &state.tree.root {
            None => Ok(None),
            Some(Child::Disk(unit)) => Ok(Some(unit.clone())),
            Some(root @ Child::Memory(_)) => {
                let mut change = Change::new(self.core, table);
                let unit = change.write_nodes(root)?;
                change.install(Some(Child::Disk(unit.clone())), None)?;
                Ok(Some(unit))
            }
        }
    }

    /// Step 3.
    fn write_directory(&self, rows: &[Row], removed: &[TableId]) -> Result<Option<UnitRef>> {
        let directory = &self.core.directory;
        let horizon = Horizon::new(Seq(u64::MAX), Vec::new());
        let memtable = directory.active();
        let write = |key: &[u8], op: OpRef<'_>| {
            let (added, gone) = memtable.write(key, self.seq, op, &horizon);
            self.core.held.change(added, gone);
        };
        for row in rows {
            let value = directory::encode_row(&row.table, row.root.as_ref(), row.disk_bytes);
            write(&directory::key_of(row.table.id), OpRef::Put(&value));
        }
        for table in removed {
            write(&directory::key_of(*table), OpRef::Delete);
        }
        let _change = directory.change.lock();
        // What an attempt on a full disk left goes first, as in any table.
        while flush_oldest(self.core, directory, self.seq)? {}
        directory.freeze();
        while flush_oldest(self.core, directory, self.seq)? {}
        self.write_tree(directory)
    }

    /// Gives back all of a table that nobody sees any more.
    fn free_table(&self, table: &Arc<Table>) -> Result<()> {
        let _change = table.change.lock();
        let blocks = all_blocks(self.core, table)?;
        let (tree, bytes) = table.clear();
        self.core.held.change(0, bytes as usize);
        self.core
            .loads
            .lock()
            .retain(|load| load.table != table.id || !load.is_installed);
        self.core.retired.lock().push(table.id, tree, blocks);
        self.core.catalog.forget(table.id);
        self.core.take_back(table);
        self.core.free_unread();
        Ok(())
    }
}

/// Every block of a table's tree. Below a node that is damaged nobody knows what there is: see
/// [`Core::lose_subtree`].
pub(crate) fn all_blocks(core: &Core, table: &Table) -> Result<Vec<BlockAddr>> {
    let mut blocks = Vec::new();
    if let Some(root) = &table.state().tree.root {
        collect(core, table.id, root, None, &mut blocks)?;
    }
    Ok(blocks)
}

/// All blocks of a subtree, as [`all_blocks`]: nodes are read, rows are not.
pub(crate) fn collect(
    core: &Core,
    table: TableId,
    child: &Child,
    height: Option<u8>,
    blocks: &mut Vec<BlockAddr>,
) -> Result<()> {
    if let Child::Disk(unit) = child {
        blocks.extend(unit.blocks());
    }
    let Some(node) = core.lose_subtree(core.load_node(table, child, height))? else {
        return Ok(());
    };
    blocks.extend(node.blocks());
    if let Node::Inner(inner) = &*node {
        for slot in &inner.slots {
            collect(core, table, &slot.child, Some(inner.height - 1), blocks)?;
        }
    }
    Ok(())
}

/// What an error that stops the engine says of a damaged table: who reads it can do something about it.
fn with_remedy(error: EngineError, table: &Table) -> EngineError {
    match error {
        EngineError::Corrupt { path, offset, reason } => EngineError::Corrupt {
            path,
            offset,
            reason: format!(
                "{reason}. It belongs to {}: drop that collection, or its index, within a minute after a start, or \
                 restore a backup",
                table.spec.name
            ),
        },
        error => error,
    }
}
