//! The engine, as the rest of Tenon sees it.

use crate::budget::Use;
use crate::directory::{self, DIRECTORY, decode_root};
use crate::options::BtreeOptions;
use crate::parts::Parts;
use crate::snapshot::BtreeSnapshot;
use crate::tree::{Child, Tree};
use crate::workers::{Workers, WorkersError};
use blocks::{BlockStore, StoreOptions};
use engine::{
    Backup, Batch, Capabilities, CheckpointCost, CloseMode, CommonStats, Engine, EngineError, EngineInfo,
    FailureHandler, LockGranularity, Maintenance, MaintenanceReport, Result, Seq, Snapshot, StatValue, TableId,
    TableSpec, TableStats, WriteAhead,
};
use pins::Horizon;
use rcu::Mutex;
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// Version of the files.
const FORMAT_VERSION: u32 = 1;

/// The `btree` engine. See the crate's documentation.
pub struct BtreeEngine {
    info: EngineInfo,
    parts: Parts,
    /// Held by `apply`.
    applied: Mutex<Applied>,
}

/// What the writing side knows.
struct Applied {
    /// The last batch.
    last: Seq,
    /// What is forgotten on the way; not always up to date.
    horizon: Horizon,
}

impl From<WorkersError> for EngineError {
    fn from(error: WorkersError) -> Self {
        match error {
            WorkersError::Closed => EngineError::Closed,
            WorkersError::Poisoned { .. } => EngineError::Stopped(error.to_string()),
        }
    }
}

impl BtreeEngine {
    /// Opens or creates an engine in a directory that exists.
    pub fn open(env: &Env, directory: &Path, options: BtreeOptions) -> Result<Self> {
        let store_options = StoreOptions {
            segment_bytes: options.segment_bytes,
            direct_io: options.direct_io,
        };
        crate::salvage::finish_exchange(env, directory)?;
        let (store, root) = BlockStore::open(env, directory, store_options)?;
        let workers = Workers::start(options.threads).map_err(|source| EngineError::Io {
            operation: "start threads for",
            path: directory.to_owned(),
            source,
        })?;
        let durable = root.as_ref().map_or(Seq::ZERO, |root| Seq(root.seq));
        let directory::Root {
            directory: directory_root,
            saved,
        } = match &root {
            None => directory::Root {
                directory: Child::Nothing,
                saved: None,
            },
            Some(root) => decode_root(&root.root).ok_or_else(|| EngineError::Corrupt {
                path: directory.to_owned(),
                offset: 0,
                reason: "a checkpoint's root that cannot be".to_owned(),
            })?,
        };
        let directory_tree = Arc::new(Tree::new(DIRECTORY, directory::shape(), directory_root));
        let options = BtreeOptions {
            cache_bytes: options.cache_bytes.max(BtreeOptions::CACHE_BYTES_MIN),
            ..options
        };
        let map_bytes = store.map_memory_bytes();
        let parts = Parts::new(env, directory, options, store, workers, directory_tree, durable)?;
        if let Some(index) = saved {
            parts.restore_saved(index, durable)?;
        }
        parts.base.cache.budget().set(Use::Maps, map_bytes);
        Ok(Self {
            info: EngineInfo {
                name: "btree",
                format_version: FORMAT_VERSION,
                capabilities: Capabilities {
                    lock_granularity: LockGranularity::Document,
                    concurrent_apply: false,
                    hot_backup: true,
                    checkpoint_cost: CheckpointCost::Changes,
                    cheap_range_delete: true,
                    ends_snapshots: true,
                    compressors: &["none", "snappy", "lz4", "zlib", "zstd"],
                },
            },
            parts,
            applied: Mutex::new(Applied {
                last: durable,
                horizon: Horizon::default(),
            }),
        })
    }

    #[inline]
    fn check_running(&self) -> Result<()> {
        self.parts.base.status.check_running()
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Compares what is marked as used on disk with what the trees refer to: a sentence for each block that is lost,
    /// not marked, or in two places. For tests: nobody may write, load, check or compact meanwhile, and every page is
    /// read.
    pub fn check_space(&self) -> Result<Vec<String>> {
        self.check_running()?;
        crate::audit::check_space(&self.parts)
    }

    /// Reads everything that the durable checkpoint refers to, from disk, as a start after a crash would: a sentence
    /// for each block that is damaged, in two places, or not recorded as used, and for what is recorded as used in
    /// vain. For tests: every page is read, and no checkpoint runs meanwhile.
    pub fn check_durable(&self) -> Result<Vec<String>> {
        self.check_running()?;
        {
            let _no_checkpoint = self.parts.checkpointer.hold();
            crate::durable_audit::check_durable(&self.parts.base.store)
        }
    }
}

impl Engine for BtreeEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>> {
        self.check_running()?;
        let at = self.parts.base.readers.published();
        let tables = self.parts.base.catalog.all();
        let live = tables.iter().filter(|table| table.lives_at(at));
        Ok(live.map(|table| (table.id, table.spec())).collect())
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.check_running()?;
        Ok(Arc::new(BtreeSnapshot::new(self.parts.read_side.clone())))
    }

    fn check_new_table(&self, spec: &TableSpec) -> Result<()> {
        self.check_running()?;
        self.parts.base.catalog.check_new_table(spec)
    }

    fn prepare_tables(&self, specs: &[TableSpec]) -> Result<()> {
        self.check_running()?;
        self.parts.base.catalog.prepare_tables(specs)
    }

    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        let mut applied = self.applied.lock();
        self.check_running()?;
        let Applied { last, horizon } = &mut *applied;
        let result = if seq <= *last {
            Err(EngineError::Invalid {
                operation: "apply",
                reason: format!("{seq:?} does not rise above {last:?}"),
            })
        } else {
            self.parts.base.readers.refresh(horizon);
            self.parts.applier.apply(batch, seq, horizon)
        };
        if let Err(error) = &result {
            self.parts.base.status.stop(format!("a batch failed: {error}"));
        }
        *last = seq.max(*last);
        drop(applied);
        result?;
        self.parts.note_batch(batch);
        Ok(())
    }

    fn set_history_percent(&self, percent: u32) {
        self.parts.base.readers.history().set_percent(percent);
    }

    fn throttle(&self) -> bool {
        self.parts.throttle.wait()
    }

    fn publish(&self, seq: Seq) {
        self.parts.base.readers.publish(seq);
    }

    fn set_write_ahead(&self, log: WriteAhead) {
        self.parts.checkpointer.write_ahead().set(log);
    }

    fn set_failure_handler(&self, handler: FailureHandler) {
        self.parts.base.status.set_failure_handler(handler);
    }

    fn durable_seq(&self) -> Seq {
        self.parts.checkpointer.durable()
    }

    fn checkpoint(&self) -> Result<Seq> {
        self.parts.checkpoint(false)
    }

    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, seq: Seq) -> Result<u64> {
        self.check_running()?;
        self.parts.loader.load(table, rows, seq)
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.check_running()?;
        self.parts.upkeep.table_stats(table)
    }

    fn common_stats(&self) -> CommonStats {
        crate::stats::common(&self.parts.base)
    }

    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        crate::stats::report(&self.parts.base, sink);
    }

    fn maintain_while(&self, task: &Maintenance, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        self.check_running()?;
        match task {
            Maintenance::Verify(table) => self.parts.upkeep.verify(*table, goes_on),
            Maintenance::Compact(tables) => self.parts.upkeep.compact(tables.as_deref(), goes_on),
        }
    }

    fn backup(&self) -> Result<Box<dyn Backup>> {
        self.check_running()?;
        self.parts.checkpoint(false)?;
        Ok(Box::new(crate::backup::PinnedBackup::new(self.parts.base.store.pin()?)))
    }

    fn close(&self, mode: CloseMode) -> Result<()> {
        let _applied = self.applied.lock();
        self.check_running()?;
        let result = match mode {
            CloseMode::Checkpoint => self.parts.checkpoint_whole().map(|_| ()),
            CloseMode::Abandon => Ok(()),
        };
        self.parts.base.status.close();
        self.parts.base.workers.close();
        self.parts.base.cache.clock_list().clear();
        result
    }
}
