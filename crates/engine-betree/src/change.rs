//! A change of one table's tree: what it reads and writes on the way, until a new tree takes the old one's place.
//!
//! A change writes new blocks and never touches old ones. When it ends well, what the new tree does not have
//! any more is retired with the old one; when it fails, what it wrote is given back and the old tree stays.

use crate::cache::Unit;
use crate::checkpoint::collect;
use crate::core::{Core, KIND_FILTER, KIND_NODE, KIND_ROWS, VOLUME, count};
use crate::filter::{self, Filter};
use crate::memtable::Memtable;
use crate::node::{Basement, Child, Node, Segment, SegmentPlace, UnitRef};
use crate::run::Run;
use crate::table::{Table, Tree};
use blocks::{BlockAddr, BlockKind, Purpose, RunWriter};
use codec::Codec;
use engine::{EngineError, Result, Seq};
use pins::Horizon;
use std::cell::Cell;
use std::sync::Arc;

/// A memtable is pushed in pieces of so many times what an inner node holds.
pub(crate) const PIECE_BUFFERS: usize = 16;

/// Bytes of a block before compression, at most: longer units take several.
const BLOCK_RAW_BYTES: usize = 4 << 20;

/// See [`Change::rewrite`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rewrite {
    Nothing,
    /// Those that hold what nobody may need any more.
    History,
    /// Those that lie where the block store wants room.
    Moving,
}

/// See the module. Lives while `structure` and the table's `change` are held.
pub(crate) struct Change<'c> {
    pub(crate) core: &'c Core,
    pub(crate) table: &'c Table,
    pub(crate) horizon: Horizon,
    /// Inner nodes keep no more than so many bytes of messages.
    pub(crate) buffer_bytes: u64,
    /// No row of the tree is newer.
    pub(crate) newest_row: Seq,
    /// Which basements are written anew though no message concerns them.
    pub(crate) rewrite: Rewrite,
    writer: RunWriter,
    /// Blocks in the file.
    flushed: Vec<BlockAddr>,
    /// Blocks in the writer.
    pending: Vec<BlockAddr>,
    /// Blocks that only the old tree has.
    retired: Vec<BlockAddr>,
    /// The last read failed for what is on disk.
    read_failed: Cell<bool>,
    is_done: bool,
}

/// Where a change stands, for [`Change::go_back`].
pub(crate) struct Mark {
    written: usize,
    retired: usize,
}

impl<'c> Change<'c> {
    pub(crate) fn new(core: &'c Core, table: &'c Table) -> Self {
        // Loaded rows may not be published yet.
        let loads = core.loads.lock();
        let loaded = loads
            .iter()
            .filter(|load| load.table == table.id)
            .map(|load| load.seq)
            .max();
        let newest_row = core.pins.published().max(loaded.unwrap_or(Seq::ZERO));
        drop(loads);
        Self {
            horizon: core.horizon_of(table),
            buffer_bytes: u64::from(core.options.buffer_bytes),
            newest_row,
            rewrite: Rewrite::Nothing,
            writer: core.store.writer(VOLUME, Purpose::Checkpoint),
            core,
            table,
            flushed: Vec::new(),
            pending: Vec::new(),
            retired: Vec::new(),
            read_failed: Cell::new(false),
            is_done: false,
        }
    }

    /// Bytes of a segment of messages, about.
    pub(crate) fn segment_bytes(&self) -> usize {
        4 * self.core.options.basement_bytes as usize
    }

    /// Whether a basement shall be written anew in any case.
    pub(crate) fn rewrites(&self, basement: &Basement) -> bool {
        match self.rewrite {
            Rewrite::Nothing => false,
            Rewrite::History => basement.has_history,
            Rewrite::Moving => self.moves(basement.unit.blocks()),
        }
    }

    /// Whether the block store wants one of them elsewhere.
    pub(crate) fn moves(&self, mut blocks: impl Iterator<Item = BlockAddr>) -> bool {
        self.rewrite == Rewrite::Moving && blocks.any(|addr| self.core.store.wants_move(VOLUME, &addr))
    }

    pub(crate) fn retire(&mut self, blocks: impl IntoIterator<Item = BlockAddr>) {
        self.retired.extend(blocks);
    }

    /// Retires all of a subtree, as far as it can be read.
    pub(crate) fn retire_all(&mut self, child: &Child, height: Option<u8>) -> Result<()> {
        collect(self.core, self.table.id, child, height, &mut self.retired)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            written: self.flushed.len() + self.pending.len(),
            retired: self.retired.len(),
        }
    }

    /// Undoes a step that could not be done: what it retired stays, and what it wrote nobody refers to.
    pub(crate) fn go_back(&mut self, mark: &Mark) {
        self.retired.truncate(mark.retired);
        let written = self.flushed.iter().chain(&self.pending).skip(mark.written);
        self.retired.extend(written);
    }

    /// Whether the error at hand is that of a read that failed for what is on disk, and of no write.
    pub(crate) fn met_damage(&self) -> bool {
        self.read_failed.get()
    }

    /// `None` where a read failed for what is on disk, for those who can do without it.
    pub(crate) fn if_readable<T>(&self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Err(_) if self.read_failed.take() => Ok(None),
            done => done.map(Some),
        }
    }

    fn note_read<T>(&self, read: Result<T>) -> Result<T> {
        self.read_failed.set(read.as_ref().is_err_and(EngineError::is_of_disk));
        read
    }

    pub(crate) fn load_node(&self, child: &Child, height: Option<u8>) -> Result<Arc<Node>> {
        self.note_read(self.core.load_node(self.table.id, child, height))
    }

    pub(crate) fn load_run(&mut self, unit: &UnitRef) -> Result<Arc<Run>> {
        // What this change wrote may still be in its writer, and the cache may let go of it at any moment.
        if self.pending.contains(&unit.first) {
            self.flush()?;
        }
        self.note_read(self.core.load_run(self.table.id, unit))
    }

    /// Brings the units in that are about to be read.
    pub(crate) fn read_ahead(&mut self, units: &mut dyn Iterator<Item = &UnitRef>) -> Result<()> {
        self.flush()?;
        self.core.read_ahead(self.table.id, units);
        Ok(())
    }

    pub(crate) fn load_segment(&mut self, segment: &Segment) -> Result<Arc<Run>> {
        match &segment.place {
            SegmentPlace::Pending(run) => Ok(run.clone()),
            SegmentPlace::Disk(unit) => self.load_run(&unit.clone()),
        }
    }

    fn write_unit(&mut self, kind: BlockKind, codec: Codec, raw: &[u8]) -> Result<UnitRef> {
        let mut addrs = Vec::with_capacity(1);
        let mut rest = raw;
        loop {
            let (chunk, after) = rest.split_at(rest.len().min(BLOCK_RAW_BYTES));
            let usual_level = None;
            let addr = self.writer.append(kind, self.table.id.0, codec, usual_level, chunk)?;
            self.pending.push(addr);
            addrs.push(addr);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let first = addrs.remove(0);
        Ok(UnitRef {
            first,
            rest: (!addrs.is_empty()).then(|| addrs.into()),
        })
    }

    pub(crate) fn write_basement(&mut self, run: Run) -> Result<UnitRef> {
        let unit = self.write_unit(KIND_ROWS, self.table.codec, run.raw())?;
        let cache = &self.core.cache;
        if unit.rest.is_some() || cache.takes_rows(&unit.first, run.memory_bytes()) {
            cache.insert(&unit.first, Unit::Run(Arc::new(run)));
        } else if let Some(block) = self.writer.last_block(&unit.first) {
            cache.insert(&unit.first, Unit::Block(block.into()));
        }
        count(&self.core.counters.basements_written, 1);
        Ok(unit)
    }

    /// Writes a segment that is only in memory.
    pub(crate) fn write_segment(&mut self, segment: &mut Segment) -> Result<()> {
        let SegmentPlace::Pending(run) = &segment.place else {
            return Ok(());
        };
        let run = run.clone();
        let unit = self.write_unit(KIND_ROWS, self.table.message_codec(), run.raw())?;
        if run.len() >= filter::KEYS_MIN {
            let hashes: Vec<u64> = (0..run.len()).map(|at| filter::hash(run.key(at))).collect();
            let filter = Filter::of(&hashes);
            let written = self.write_unit(KIND_FILTER, Codec::None, filter.raw())?;
            if written.rest.is_none() {
                self.core.cache.insert(&written.first, Unit::Filter(Arc::new(filter)));
                segment.filter = Some(written.first);
            } else {
                // Too long for one block: the segment does without.
                self.retired.extend(written.blocks());
            }
        }
        self.core.cache.insert(&unit.first, Unit::Run(run));
        segment.place = SegmentPlace::Disk(unit);
        count(&self.core.counters.segments_written, 1);
        Ok(())
    }

    /// Writes all nodes of a subtree that are only in memory, the lowest first.
    pub(crate) fn write_nodes(&mut self, child: &Child) -> Result<UnitRef> {
        let node = match child {
            Child::Disk(unit) => return Ok(unit.clone()),
            Child::Memory(node) => node,
        };
        let written = match &**node {
            Node::Leaf(_) => node.clone(),
            Node::Inner(inner) => {
                let mut inner = inner.clone();
                for slot in &mut inner.slots {
                    slot.child = Child::Disk(self.write_nodes(&slot.child)?);
                }
                Arc::new(Node::Inner(inner))
            }
        };
        let unit = self.write_unit(KIND_NODE, Codec::Lz4, &written.encode())?;
        self.core.cache.insert(&unit.first, Unit::Node(written));
        count(&self.core.counters.nodes_written, 1);
        Ok(unit)
    }

    fn flush(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            let flushed = self.writer.flush();
            if flushed.is_err() {
                self.void_pending();
            }
            flushed?;
            self.flushed.append(&mut self.pending);
        }
        Ok(())
    }

    /// After a failed write: these addresses are nobody's.
    fn void_pending(&mut self) {
        for addr in self.pending.drain(..) {
            self.core.cache.forget(&addr);
        }
    }

    /// What was written so far, all of it in the file; for a change that goes on.
    pub(crate) fn flushed_so_far(&mut self) -> Result<&[BlockAddr]> {
        self.flush()?;
        Ok(&self.flushed)
    }

    /// Puts the new tree in the place of the old one; `flushed` is the memtable that is in it now, and what it
    /// does not have of that.
    pub(crate) fn install(
        mut self,
        root: Option<Child>,
        flushed: Option<(&Arc<Memtable>, Option<Memtable>)>,
    ) -> Result<()> {
        self.flush()?;
        let bytes = |blocks: &[BlockAddr]| -> u64 { blocks.iter().map(BlockAddr::bytes).sum() };
        let before = self.table.state().tree.disk_bytes;
        let disk_bytes = (before + bytes(&self.flushed)).saturating_sub(bytes(&self.retired));
        let (given_back, kept) = flushed.as_ref().map_or((0, 0), |(memtable, rest)| {
            (memtable.memory_bytes(), rest.as_ref().map_or(0, Memtable::memory_bytes))
        });
        let old = self.table.install(Tree { root, disk_bytes }, flushed);
        self.core.held.change(kept as usize, given_back as usize);
        let retired = std::mem::take(&mut self.retired);
        self.core.retired.lock().push(self.table.id, old, retired);
        self.is_done = true;
        self.core.free_unread();
        Ok(())
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.void_pending();
            let flushed = std::mem::take(&mut self.flushed);
            self.core.free(&flushed);
        }
    }
}
