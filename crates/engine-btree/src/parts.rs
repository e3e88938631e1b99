//! The parts of an open engine, put together: each has what it stands on, and nobody has all of it but the engine
//! itself.

use crate::apply::Applier;
use crate::block_mover::BlockMover;
use crate::budget::DELAY_MAX;
use crate::bulk::Loader;
use crate::checkpoint::Checkpointer;
use crate::consolidator::Consolidator;
use crate::directory;
use crate::eviction::Evictor;
use crate::foundation::Foundation;
use crate::history_limit::HistoryLimit;
use crate::loads::LoadsInProgress;
use crate::maintain::Upkeep;
use crate::options::BtreeOptions;
use crate::relocate::Relocator;
use crate::restructure::Structure;
use crate::snapshot::ReadSide;
use crate::table_removal::TableRemoval;
use crate::throttle::Throttle;
use crate::tree::Tree;
use crate::workers::Workers;
use crate::write_back::WriteBack;
use crate::write_behind::WriteBehind;
use blocks::{BlockAddr, BlockStore};
use engine::{Batch, Result, Seq};
use pins::Horizon;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// Delays of a start for room in memory: a disk without room shall not keep it from starting.
const RESTORE_DELAYS_MAX: usize = 12_000;

/// See the module. Jobs hold the parts they work on weakly: none of them keeps a closed engine alive.
pub(crate) struct Parts {
    pub(crate) base: Foundation,
    pub(crate) read_side: Arc<ReadSide>,
    pub(crate) applier: Arc<Applier>,
    pub(crate) throttle: Throttle,
    pub(crate) checkpointer: Arc<Checkpointer>,
    pub(crate) loader: Loader,
    pub(crate) loads: Arc<LoadsInProgress>,
    pub(crate) relocator: Arc<Relocator>,
    pub(crate) upkeep: Upkeep,
    pub(crate) history_limit: Arc<HistoryLimit>,
    pub(crate) write_behind: Arc<WriteBehind>,
    /// Works when the cache asks for it.
    _evictor: Arc<Evictor>,
    #[cfg(test)]
    pub(crate) mover: Arc<BlockMover>,
    #[cfg(test)]
    pub(crate) structure: Arc<Structure>,
}

impl Parts {
    /// For a store in `path` whose durable checkpoint, at `durable`, has `directory_tree`; the tables are read from
    /// that.
    pub(crate) fn new(
        env: &vfs::Env,
        path: &Path,
        options: BtreeOptions,
        store: Arc<BlockStore>,
        workers: Workers,
        directory_tree: Arc<Tree>,
        durable: Seq,
    ) -> Result<Self> {
        let cache_bytes = options.cache_bytes;
        let base = Foundation::new(env, path, options, store, workers, directory_tree, durable);
        directory::load_tables(&base.catalog, &base.pages, durable)?;
        let consolidator = Arc::new(Consolidator::new(&base));
        let structure = Arc::new(Structure::new(&base, consolidator.clone()));
        let write_back = Arc::new(WriteBack::new(&base, structure.clone()));
        let applier = Arc::new(Applier::new(&base, structure.clone(), write_back.clone()));
        let mover = Arc::new(BlockMover::new(&base, applier.clone(), write_back.clone()));
        let loads = Arc::new(LoadsInProgress::default());
        let checkpointer = Arc::new(Checkpointer::new(
            &base,
            applier.clone(),
            write_back.clone(),
            mover.clone(),
            TableRemoval::new(&base, structure.clone()),
            loads.clone(),
            durable,
        ));
        let relocator = Relocator::new(&base, mover.clone());
        Ok(Self {
            read_side: ReadSide::new(&base),
            applier,
            throttle: Throttle::new(&base),
            loader: Loader::new(
                &base,
                structure.clone(),
                write_back.clone(),
                checkpointer.clone(),
                loads.clone(),
            ),
            loads,
            upkeep: Upkeep::new(
                &base,
                structure.clone(),
                consolidator.clone(),
                checkpointer.clone(),
                relocator.clone(),
            ),
            relocator,
            history_limit: HistoryLimit::new(&base, consolidator.clone()),
            write_behind: WriteBehind::new(&base, write_back.clone(), cache_bytes),
            _evictor: Evictor::new(&base, consolidator, write_back, checkpointer.clone()),
            checkpointer,
            base,
            #[cfg(test)]
            mover,
            #[cfg(test)]
            structure,
        })
    }

    /// Puts the deltas that the durable checkpoint, at `durable`, saved back into their leaves.
    pub(crate) fn restore_saved(&self, index: BlockAddr, durable: Seq) -> Result<()> {
        let nobody_reads = Horizon::default();
        let delays = Cell::new(0);
        crate::saved_deltas::restore(&self.base, index, |page| {
            for (tree, key, change) in page {
                self.applier.write(&tree, &key, change, durable, &nobody_reads)?;
            }
            // The cache may be smaller than it was.
            self.base.cache.evict_soon();
            while self.throttle.is_short() && delays.get() < RESTORE_DELAYS_MAX {
                self.base.status.check_running()?;
                self.base.cache.wait_for_room(DELAY_MAX);
                delays.set(delays.get() + 1);
            }
            self.base.status.check_running()
        })
    }

    /// Runs a checkpoint, see [`Checkpointer::checkpoint`], has segments emptied that it has chosen, and gives back
    /// what history's file no longer needs.
    pub(crate) fn checkpoint(&self, force: bool) -> Result<Seq> {
        let position = self.checkpointer.checkpoint(force)?;
        self.after_checkpoint();
        Ok(position)
    }

    /// The same for a clean end, see [`Checkpointer::checkpoint_whole`].
    pub(crate) fn checkpoint_whole(&self) -> Result<Seq> {
        let position = self.checkpointer.checkpoint_whole()?;
        self.after_checkpoint();
        Ok(position)
    }

    fn after_checkpoint(&self) {
        self.relocator.relocate_soon();
        self.base.readers.history().file().trim();
    }

    /// After a batch: has the background do what there is to do now.
    pub(crate) fn note_batch(&self, batch: &Batch) {
        self.base.cache.evict_soon();
        self.write_behind.write_soon();
        self.history_limit.enforce_soon();
        self.throttle.note_batch(batch);
    }
}
