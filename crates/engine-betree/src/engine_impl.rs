//! The engine, as the rest of Tenon sees it.

use crate::bulk;
use crate::catalog::Catalog;
use crate::checkpoint::{Need, checkpoint};
use crate::core::Core;
use crate::directory;
use crate::optimise;
use crate::options::BetreeOptions;
use crate::snapshot::BetreeSnapshot;
use crate::stats;
use crate::verify;
use crate::workers::Workers;
use blocks::{BlockStore, PinnedCheckpoint, StoreOptions};
use engine::{
    Backup, Batch, Capabilities, CheckpointCost, CloseMode, CommonStats, Engine, EngineError, EngineInfo,
    FailureHandler, LockGranularity, Maintenance, MaintenanceReport, Result, Seq, Snapshot, StatValue, TableId,
    TableSpec, TableStats, WriteAhead,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::Env;

/// Version of the files.
const FORMAT_VERSION: u32 = 1;

/// The `betree` engine. See the crate's documentation.
pub struct BetreeEngine {
    info: EngineInfo,
    pub(crate) core: Arc<Core>,
    workers: Workers,
}

impl BetreeEngine {
    /// Opens or creates an engine in a directory that exists.
    pub fn open(env: &Env, directory: &Path, options: BetreeOptions) -> Result<Self> {
        let options = options.bounded();
        let store_options = StoreOptions {
            segment_bytes: options.segment_bytes,
            direct_io: options.direct_io,
        };
        let (store, root) = BlockStore::open(env, directory, store_options)?;
        let corrupt = |what: &str| EngineError::Corrupt {
            path: directory.join("main.blocks"),
            offset: 0,
            reason: format!("{what} is not as it must be"),
        };
        let durable = root.as_ref().map_or(Seq::ZERO, |root| Seq(root.seq));
        let directory_root = match &root {
            None => None,
            Some(root) => directory::decode_root(&root.root).map_err(corrupt)?,
        };
        let core = Arc::new(Core::new(
            store,
            directory.to_owned(),
            options,
            env.clock.clone(),
            Catalog::default(),
            directory::table(directory_root),
            durable,
        ));
        for (key, row) in verify::directory_rows(&core, &core.directory)? {
            core.catalog
                .insert(Arc::new(directory::decode_row(&key, &row).map_err(corrupt)?));
        }
        let workers = Workers::start(core.clone()).map_err(|source| EngineError::Io {
            operation: "start threads for",
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self {
            info: EngineInfo {
                name: "betree",
                format_version: FORMAT_VERSION,
                capabilities: Capabilities {
                    lock_granularity: LockGranularity::Document,
                    concurrent_apply: false,
                    hot_backup: true,
                    checkpoint_cost: CheckpointCost::Changes,
                    cheap_range_delete: true,
                    ends_snapshots: false,
                    compressors: &["none", "snappy", "lz4", "zlib", "zstd"],
                },
            },
            core,
            workers,
        })
    }

    /// Compares what is marked as used on disk with what the trees refer to: a sentence for each block that is
    /// lost, not marked, or in two places. For tests: nobody may write, load or compact meanwhile.
    pub fn check_space(&self) -> Result<Vec<String>> {
        self.core.status.check_running()?;
        verify::check_space(&self.core)
    }

    /// Reads everything that the durable checkpoint refers to, from disk, as a start after a crash would: a
    /// sentence for each block that is damaged, in two places, or not recorded as used, and for what is
    /// recorded as used in vain. For tests.
    pub fn check_durable(&self) -> Result<Vec<String>> {
        self.core.status.check_running()?;
        verify::check_durable(&self.core)
    }

    fn checkpoint_with(&self, need: Need) -> Result<Seq> {
        checkpoint(&self.core, need, self.workers.parallel())
    }
}

impl Engine for BetreeEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>> {
        self.core.status.check_running()?;
        let at = self.core.pins.published();
        let tables = self.core.catalog.all();
        let live = tables.iter().filter(|table| table.lives_at(at));
        Ok(live.map(|table| (table.id, table.spec.clone())).collect())
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.core.status.check_running()?;
        Ok(Arc::new(BetreeSnapshot::new(&self.core)))
    }

    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        let mut applied = self.core.applied.lock();
        self.core.status.check_running()?;
        let result = if seq <= applied.last {
            Err(EngineError::Invalid {
                operation: "apply",
                reason: format!("{seq:?} does not rise above {:?}", applied.last),
            })
        } else {
            crate::apply::apply(&self.core, &mut applied, batch, seq)
        };
        if let Err(error) = &result {
            self.core.status.stop(format!("a batch failed: {error}"));
        }
        applied.last = seq.max(applied.last);
        let crowded = std::mem::take(&mut applied.freeze_after);
        crowded.iter().for_each(|table| drop(table.freeze()));
        drop(applied);
        let is_urgent = !crowded.is_empty();
        self.core.urgent.lock().extend(crowded);
        self.workers.note_batch(result?, is_urgent);
        Ok(())
    }

    /// Snapshots last, whatever they hold, and keep nothing in memory.
    fn set_history_percent(&self, _percent: u32) {}

    fn throttle(&self) -> bool {
        self.workers.throttle()
    }

    fn publish(&self, seq: Seq) {
        self.core.pins.publish(seq);
    }

    fn set_write_ahead(&self, log: WriteAhead) {
        self.core.write_ahead.set(log);
    }

    fn set_failure_handler(&self, handler: FailureHandler) {
        self.core.status.set_failure_handler(handler);
    }

    fn durable_seq(&self) -> Seq {
        Seq(self.core.durable.load(Ordering::Acquire))
    }

    fn checkpoint(&self) -> Result<Seq> {
        self.checkpoint_with(Need::IfChanged)
    }

    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, seq: Seq) -> Result<u64> {
        self.core.status.check_running()?;
        bulk::load(&self.core, table, rows, seq)
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.core.status.check_running()?;
        let table = self.core.catalog.live(table)?;
        Ok(TableStats {
            storage_bytes: table.state().tree.disk_bytes,
            free_bytes: 0,
            memory_bytes: table.memory_bytes(),
        })
    }

    /// On a full disk messages take no more memory than they may, but for what deletes and changes rows.
    fn check_growth(&self, _table: TableId, _bytes: usize) -> Result<()> {
        let core = &*self.core;
        let is_full =
            || core.is_disk_full.load(Ordering::Acquire) && core.held.bytes() >= core.options.messages_bytes();
        if is_full() {
            // Where all are refused nobody else would have it tried again.
            self.workers.flush_soon();
        }
        match is_full() {
            false => Ok(()),
            true => Err(EngineError::Io {
                operation: "make room for more in memory by writing to",
                path: core.path.join("main.blocks"),
                source: std::io::ErrorKind::StorageFull.into(),
            }),
        }
    }

    fn common_stats(&self) -> CommonStats {
        stats::common(&self.core)
    }

    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        stats::report(&self.core, sink);
    }

    fn maintain_while(&self, task: &Maintenance, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        self.core.status.check_running()?;
        let threads = self.workers.parallel();
        match task {
            Maintenance::Verify(table) => verify::verify(&self.core, *table, goes_on),
            Maintenance::Compact(tables) => optimise::compact(&self.core, tables.as_deref(), threads, goes_on),
        }
    }

    fn backup(&self) -> Result<Box<dyn Backup>> {
        self.core.status.check_running()?;
        self.checkpoint_with(Need::IfChanged)?;
        Ok(Box::new(PinnedBackup(self.core.store.pin()?)))
    }

    fn close(&self, mode: CloseMode) -> Result<()> {
        self.core.status.check_running()?;
        let result = match mode {
            CloseMode::Checkpoint => self.checkpoint_with(Need::IfChanged).map(|_| ()),
            CloseMode::Abandon => Ok(()),
        };
        {
            let _applied = self.core.applied.lock();
            self.core.status.close();
        }
        self.workers.close();
        result
    }
}

/// A pinned checkpoint of the block store.
struct PinnedBackup(PinnedCheckpoint);

impl Backup for PinnedBackup {
    fn seq(&self) -> Seq {
        Seq(self.0.seq())
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        self.0.files()
    }
}
