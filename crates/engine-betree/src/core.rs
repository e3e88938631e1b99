//! What every part of an open engine stands on: the block store, the cache, the tables, who reads where, and
//! what stops all.

use crate::bytes_io::Damage;
use crate::cache::{Cache, Unit};
use crate::catalog::Catalog;
use crate::filter::Filter;
use crate::memtable::Held;
use crate::node::{Child, Node, UnitRef};
use crate::options::BetreeOptions;
use crate::run::{Key, Run};
use crate::table::{Retired, Table};
use blocks::{BlockAddr, BlockKind, BlockStore, Near, ReadScratch, Referenced, Source, VolumeId};
use engine::{EngineError, EngineStatus, Result, Seq, TableId, WriteAheadRule};
use parking_lot::{Mutex, RwLock};
use pins::{Horizon, Pins};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use vfs::Clock;

/// The only volume there is.
pub(crate) const VOLUME: VolumeId = VolumeId::MAIN;
pub(crate) const KIND_ROWS: BlockKind = BlockKind::Leaf;
pub(crate) const KIND_NODE: BlockKind = BlockKind::Inner;
pub(crate) const KIND_FILTER: BlockKind = BlockKind::Meta;
/// Scratch memory of readers that is kept.
const SCRATCHES_MAX: usize = 16;

/// What the writing side knows.
pub(crate) struct Applied {
    /// The last batch.
    pub(crate) last: Seq,
    /// What is forgotten on the way; not always up to date.
    pub(crate) horizon: Horizon,
    /// The table of the last operation.
    pub(crate) recent: Option<Arc<Table>>,
    /// Tables whose memtables shall be frozen when the batch is in.
    pub(crate) freeze_after: Vec<Arc<Table>>,
}

/// A table whose rows were loaded at a position that is not durable yet: its blocks, which an earlier
/// checkpoint must not have.
pub(crate) struct Load {
    pub(crate) table: TableId,
    pub(crate) seq: Seq,
    pub(crate) blocks: Vec<BlockAddr>,
    /// Its tree is the table's.
    pub(crate) is_installed: bool,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) operations: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoint_ms: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_children: AtomicU64,
    pub(crate) basements_written: AtomicU64,
    pub(crate) segments_written: AtomicU64,
    pub(crate) nodes_written: AtomicU64,
    pub(crate) dropped_children: AtomicU64,
    pub(crate) throttled_us: AtomicU64,
    pub(crate) filter_misses: AtomicU64,
    pub(crate) lost_subtrees: AtomicU64,
    /// Deleted keys that cursors passed over.
    pub(crate) passed_keys: AtomicU64,
    pub(crate) sinks: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

/// A place in a table where readers pass over much that was deleted: see `sink`.
pub(crate) struct Sinking {
    pub(crate) table: Arc<Table>,
    pub(crate) at: Key,
}

/// See the module.
pub(crate) struct Core {
    pub(crate) store: Arc<BlockStore>,
    pub(crate) path: PathBuf,
    pub(crate) options: BetreeOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cache: Cache,
    pub(crate) pins: Pins,
    pub(crate) catalog: Catalog,
    /// The table of tables.
    pub(crate) directory: Arc<Table>,
    pub(crate) status: Arc<EngineStatus>,
    pub(crate) counters: Counters,
    pub(crate) write_ahead: WriteAheadRule,
    /// Held by `apply`: whoever holds it stands between two batches.
    pub(crate) applied: Mutex<Applied>,
    /// Shared by changes of trees, alone by checkpoints: see `checkpoint`.
    pub(crate) structure: RwLock<()>,
    /// Held by a compaction from start to end, before all other locks.
    pub(crate) compacting: Mutex<()>,
    pub(crate) retired: Mutex<Retired>,
    pub(crate) loads: Mutex<Vec<Load>>,
    /// Held during a checkpoint; the position of the last one.
    pub(crate) checkpoint: Mutex<Seq>,
    pub(crate) durable: AtomicU64,
    /// Memory of all messages that are in no tree.
    pub(crate) held: Arc<Held>,
    /// Tables to be flushed though they take little memory.
    pub(crate) urgent: Mutex<Vec<Arc<Table>>>,
    pub(crate) sinking: Mutex<Vec<Sinking>>,
    /// Wakes the threads in the background, where there are some.
    pub(crate) wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The last flush found the disk full: nothing gives memory back now.
    pub(crate) is_disk_full: AtomicBool,
    /// When flushes are tried again then, in milliseconds of the clock.
    pub(crate) flush_again_ms: AtomicU64,
    /// Those whose messages cannot be flushed, see [`Table::is_damaged`].
    pub(crate) damaged_tables: AtomicUsize,
    scratches: Mutex<Vec<ReadScratch>>,
}

impl Core {
    pub(crate) fn new(
        store: Arc<BlockStore>,
        path: PathBuf,
        options: BetreeOptions,
        clock: Arc<dyn Clock>,
        catalog: Catalog,
        directory: Table,
        durable: Seq,
    ) -> Self {
        let held = Arc::new(Held::default());
        let status = Arc::new(EngineStatus::default());
        let of_store = status.clone();
        // Whoever met the failure.
        store.set_failure_handler(Box::new(move |failure| {
            of_store.stop(format!("the block store failed: {failure}"));
        }));
        Self {
            cache: Cache::new(options.cache_bytes, held.clone()),
            store,
            path,
            options,
            clock,
            pins: Pins::new(durable),
            catalog,
            directory: Arc::new(directory),
            status,
            counters: Counters::default(),
            write_ahead: WriteAheadRule::default(),
            applied: Mutex::new(Applied {
                last: durable,
                horizon: Horizon::default(),
                recent: None,
                freeze_after: Vec::new(),
            }),
            structure: RwLock::new(()),
            compacting: Mutex::new(()),
            retired: Mutex::default(),
            loads: Mutex::default(),
            checkpoint: Mutex::new(durable),
            durable: AtomicU64::new(durable.0),
            held,
            urgent: Mutex::default(),
            sinking: Mutex::default(),
            wake: OnceLock::new(),
            is_disk_full: AtomicBool::new(false),
            flush_again_ms: AtomicU64::new(0),
            damaged_tables: AtomicUsize::new(0),
            scratches: Mutex::default(),
        }
    }

    fn with_scratch<T>(&self, work: impl FnOnce(&mut ReadScratch) -> T) -> T {
        let mut scratch = self.scratches.lock().pop().unwrap_or_default();
        let result = work(&mut scratch);
        let mut scratches = self.scratches.lock();
        if scratches.len() < SCRATCHES_MAX {
            scratches.push(scratch);
        }
        result
    }

    /// The raw bytes of a unit.
    pub(crate) fn read_unit(&self, table: TableId, unit: &UnitRef, kind: BlockKind) -> Result<Vec<u8>> {
        self.with_scratch(|scratch| {
            let mut raw = self.store.read(VOLUME, &unit.first, table.0, kind, scratch)?;
            for addr in unit.rest.iter().flat_map(|rest| rest.iter()) {
                raw.extend(self.store.read(VOLUME, addr, table.0, kind, scratch)?);
            }
            Ok(raw)
        })
    }

    pub(crate) fn damage(&self, unit: &UnitRef, what: Damage) -> EngineError {
        EngineError::Corrupt {
            path: self.path.join("main.blocks"),
            offset: unit.first.sector() * blocks::SECTOR_BYTES as u64,
            reason: format!("{what} is not as it must be"),
        }
    }

    pub(crate) fn load_run(&self, table: TableId, unit: &UnitRef) -> Result<Arc<Run>> {
        match self.cache.get(&unit.first) {
            Some(Unit::Run(run)) => Ok(run),
            cached => self.load_run_from(table, unit, cached),
        }
    }

    /// A unit of rows or messages that is not cached, or in compressed form only.
    pub(crate) fn load_run_from(&self, table: TableId, unit: &UnitRef, cached: Option<Unit>) -> Result<Arc<Run>> {
        let raw = match cached {
            Some(Unit::Block(block)) => self.open_block(table, unit, &block, <[u8]>::to_vec)?,
            _ => self.read_unit(table, unit, KIND_ROWS)?,
        };
        let run = Arc::new(Run::decode(raw.into()).map_err(|damage| self.damage(unit, damage))?);
        self.cache.insert(&unit.first, Unit::Run(run.clone()));
        Ok(run)
    }

    /// Lends what a unit of one block decompresses to; the block stays in the cache, compressed.
    pub(crate) fn look_in_block(
        &self,
        table: TableId,
        unit: &UnitRef,
        cached: Option<Unit>,
        look: impl FnOnce(&[u8]) -> std::result::Result<(), Damage>,
    ) -> Result<()> {
        debug_assert!(unit.rest.is_none(), "a unit of one block");
        let looked = match cached {
            Some(Unit::Block(block)) => self.open_block(table, unit, &block, look)?,
            _ => {
                let (looked, block) = self.with_scratch(|scratch| {
                    let addr = &unit.first;
                    let looked = self.store.read_with(
                        VOLUME,
                        addr,
                        table.0,
                        KIND_ROWS,
                        Source::Disk(Near::Nothing),
                        scratch,
                        look,
                    );
                    looked.map(|looked| (looked, scratch.last_block(addr).map(Arc::from)))
                })?;
                if let Some(block) = block {
                    self.cache.insert(&unit.first, Unit::Block(block));
                }
                looked
            }
        };
        looked.map_err(|damage| self.damage(unit, damage))
    }

    fn open_block<T>(&self, table: TableId, unit: &UnitRef, block: &[u8], take: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let opened = self.with_scratch(|scratch| {
            let source = Source::Memory([block, &[]]);
            self.store
                .read_with(VOLUME, &unit.first, table.0, KIND_ROWS, source, scratch, take)
        });
        Ok(opened?)
    }

    /// Brings units of one block each in that are not cached, those that lie side by side with one read. What
    /// cannot be read is left for whoever asks for it.
    pub(crate) fn read_ahead(&self, table: TableId, units: &mut dyn Iterator<Item = &UnitRef>) {
        let wanted: Vec<BlockAddr> = units
            .filter(|unit| unit.rest.is_none() && !self.cache.has(&unit.first))
            .map(|unit| unit.first)
            .collect();
        if wanted.len() < 2 {
            return;
        }
        self.with_scratch(|scratch| {
            self.store
                .read_run(VOLUME, &wanted, table.0, KIND_ROWS, scratch, |at, raw| {
                    if let Ok(run) = raw.map_err(drop).and_then(|raw| Run::decode(raw.into()).map_err(drop)) {
                        self.cache.insert(&wanted[at], Unit::Run(Arc::new(run)));
                    }
                });
        });
    }

    pub(crate) fn load_filter(&self, table: TableId, addr: &BlockAddr) -> Result<Arc<Filter>> {
        if let Some(Unit::Filter(filter)) = self.cache.get(addr) {
            return Ok(filter);
        }
        let unit = UnitRef {
            first: *addr,
            rest: None,
        };
        let raw = self.read_unit(table, &unit, KIND_FILTER)?;
        let filter = Arc::new(Filter::decode(raw).map_err(|damage| self.damage(&unit, damage))?);
        self.cache.insert(addr, Unit::Filter(filter.clone()));
        Ok(filter)
    }

    /// The node of a child that must be `height` high, or any where that is not known.
    pub(crate) fn load_node(&self, table: TableId, child: &Child, height: Option<u8>) -> Result<Arc<Node>> {
        let unit = match child {
            Child::Memory(node) => return Ok(node.clone()),
            Child::Disk(unit) => unit,
        };
        let (node, is_cached) = match self.cache.get(&unit.first) {
            Some(Unit::Node(node)) => (node, true),
            _ => {
                let raw = self.read_unit(table, unit, KIND_NODE)?;
                let node = Node::decode(&raw).map_err(|damage| self.damage(unit, damage))?;
                (Arc::new(node), false)
            }
        };
        // A circle of nodes would be walked for ever; the root, whose height nobody knows before, may be in it.
        if height.is_some_and(|height| node.height() != height) {
            return Err(self.damage(unit, "the height of a node"));
        }
        if !is_cached {
            self.cache.insert(&unit.first, Unit::Node(node.clone()));
        }
        Ok(node)
    }

    /// For what is thrown away: `None` for a node that cannot be read. What lies below it stays marked as used, and is
    /// lost space.
    pub(crate) fn lose_subtree(&self, loaded: Result<Arc<Node>>) -> Result<Option<Arc<Node>>> {
        match loaded {
            Err(error) if error.is_of_disk() => {
                count(&self.counters.lost_subtrees, 1);
                Ok(None)
            }
            loaded => loaded.map(Some),
        }
    }

    /// A flush met damage in a table, above which nothing can wait.
    pub(crate) fn set_aside(&self, table: &Table) {
        if !table.is_damaged.swap(true, Ordering::AcqRel) {
            self.damaged_tables.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// What was set aside could be flushed after all, or has gone.
    pub(crate) fn take_back(&self, table: &Table) {
        if table.is_damaged.swap(false, Ordering::AcqRel) {
            self.damaged_tables.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Memory of messages that writers can wait for: flushes give it back, unless the disk is full.
    pub(crate) fn flushable_bytes(&self) -> u64 {
        let set_aside = match self.damaged_tables.load(Ordering::Acquire) {
            0 => 0,
            _ => {
                let tables = self.catalog.by_memory().into_iter();
                let damaged = tables.filter(|(_, table)| table.is_damaged.load(Ordering::Acquire));
                damaged.map(|(bytes, _)| bytes).sum()
            }
        };
        self.held.bytes().saturating_sub(set_aside)
    }

    /// What is not needed to be kept, as of now.
    pub(crate) fn horizon(&self) -> Horizon {
        let mut horizon = Horizon::default();
        self.pins.update(&mut horizon);
        horizon
    }

    /// For the directory, of which only the newest state is read.
    pub(crate) fn horizon_of(&self, table: &Table) -> Horizon {
        if table.id == crate::directory::DIRECTORY {
            Horizon::new(Seq(u64::MAX), Vec::new())
        } else {
            self.horizon()
        }
    }

    /// Gives back the blocks that nobody can read any more. Whoever calls holds `structure`.
    pub(crate) fn free_unread(&self) {
        let unread = self.retired.lock().take_unread();
        self.free(&unread);
    }

    pub(crate) fn free(&self, blocks: &[BlockAddr]) {
        for addr in blocks {
            self.cache.forget(addr);
            let is_freed = self.store.free(VOLUME, *addr, Referenced::No);
            debug_assert!(is_freed, "{addr:?} is given back once");
        }
    }
}
