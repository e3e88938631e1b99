//! The engine: who may call what, and the order of the steps.

use crate::apply::Applier;
use crate::checkpoint::{self, Failure};
use crate::key::Key;
use crate::options::InMemoryOptions;
use crate::shared::Shared;
use crate::snapshot::InMemorySnapshot;
use crate::table::{ROW_BYTES, RowMap, Table};
use bytes::Bytes;
use engine::{
    Backup, Batch, Capabilities, CheckpointCost, CloseMode, CommonStats, Engine, EngineError, EngineInfo, ErrorKind,
    FailureHandler, HISTORY_PERCENT_DEFAULT, KEY_BYTES_MAX, LockGranularity, Maintenance, MaintenanceReport, Result,
    Seq, Snapshot, StatValue, TableId, TableSpec, TableStats, VALUE_BYTES_MAX, WriteAhead, WriteAheadRule,
    history_bytes,
};
use parking_lot::Mutex;
use pins::Holder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vfs::Env;

const NAME: &str = "inMemory";

/// All data in memory; a checkpoint file holds it between runs, unless [`InMemoryOptions::ephemeral`].
///
/// Lock order: `checkpoints`, `applier`, then those of the tables.
pub struct InMemoryEngine {
    info: EngineInfo,
    shared: Arc<Shared>,
    applier: Mutex<Applier>,
    /// `None` when ephemeral.
    store: Option<Store>,
    counters: Counters,
    /// See [`InMemoryOptions::memory_bytes`].
    memory_bytes: u64,
    /// See [`InMemoryOptions::memory_bytes_max`].
    memory_bytes_max: Option<u64>,
}

/// Where checkpoints go.
struct Store {
    env: Env,
    directory: PathBuf,
    /// One checkpoint at a time; holds the length of the newest file in bytes.
    checkpoints: Mutex<u64>,
    /// The `Seq` of the newest durable checkpoint.
    durable: AtomicU64,
    write_ahead: WriteAheadRule,
}

#[derive(Default)]
struct Counters {
    batches: AtomicU64,
    operations: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_bytes: AtomicU64,
}

impl InMemoryEngine {
    /// Opens the engine on `directory`, which must exist and belong to this process alone, and loads the newest
    /// checkpoint. Nothing in the directory is touched when ephemeral. A damaged checkpoint is `Corrupt`.
    pub fn open(env: &Env, directory: &Path, options: InMemoryOptions) -> Result<Self> {
        let (loaded, store) = if options.ephemeral {
            (None, None)
        } else {
            let loaded = checkpoint::load_newest(env, directory)?;
            let (seq, bytes) = loaded
                .as_ref()
                .map_or((Seq::ZERO, 0), |loaded| (loaded.seq, loaded.file_bytes));
            checkpoint::settle(env, directory, seq)?;
            let store = Store {
                env: env.clone(),
                directory: directory.to_owned(),
                checkpoints: Mutex::new(bytes),
                durable: AtomicU64::new(seq.0),
                write_ahead: WriteAheadRule::default(),
            };
            (loaded, Some(store))
        };
        let (seq, tables) = loaded.map_or((Seq::ZERO, Vec::new()), |loaded| (loaded.seq, loaded.tables));
        Ok(Self {
            info: info(options.ephemeral),
            shared: Arc::new(Shared::new(tables, seq)),
            applier: Mutex::new(Applier::new(
                seq,
                history_max(options.memory_bytes, HISTORY_PERCENT_DEFAULT),
            )),
            memory_bytes: options.memory_bytes,
            memory_bytes_max: options.memory_bytes_max,
            store,
            counters: Counters::default(),
        })
    }

    /// Clears everything that no snapshot needs, in slices, so that batches get in between.
    fn sweep_all(&self) {
        while self.applier.lock().sweep_slice(&self.shared) {}
    }

    fn write_checkpoint(&self, store: &Store) -> Result<Seq> {
        let mut file_bytes = store.checkpoints.lock();
        self.shared.check_open()?;
        self.sweep_all();
        let snapshot = InMemorySnapshot::new(&self.shared, Holder::Engine);
        let seq = snapshot.seq();
        if seq == self.durable_seq() {
            return Ok(seq);
        }
        store.write_ahead.wait_for_log(seq)?;
        match checkpoint::write(&store.env, &store.directory, &snapshot) {
            Ok(bytes) => *file_bytes = bytes,
            Err(Failure::Harmless(error)) => return Err(error),
            Err(Failure::Fatal(error)) => {
                self.shared.status.stop(format!("a checkpoint failed: {error}"));
                return Err(error);
            }
        }
        store.durable.store(seq.0, Relaxed);
        self.counters.checkpoints.fetch_add(1, Relaxed);
        self.counters.checkpoint_bytes.fetch_add(*file_bytes, Relaxed);
        checkpoint::remove_all_but(&store.env, &store.directory, seq)?;
        Ok(seq)
    }

    /// The rows of a bulk load, checked, as a map of their own.
    fn collect_rows(rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, seq: Seq) -> Result<RowMap> {
        let mut sorted: Vec<(Key, Bytes)> = Vec::new();
        for (key, value) in rows {
            if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
                return Err(invalid_load(format!(
                    "a row of {} and {} bytes is too long",
                    key.len(),
                    value.len()
                )));
            }
            let key = Key::new(&key);
            if sorted.last().is_some_and(|(last, _)| *last >= key) {
                return Err(invalid_load(format!(
                    "key {:02x?} does not follow the one before it",
                    key.as_slice()
                )));
            }
            sorted.push((key, Bytes::from(value.into_boxed_slice())));
        }
        Ok(RowMap::from_sorted(sorted, seq))
    }

    fn tables_for(&self, table: Option<TableId>) -> Result<Vec<Arc<Table>>> {
        match table {
            Some(id) => Ok(vec![self.shared.live_table(id)?]),
            None => Ok(self.shared.all_tables()),
        }
    }
}

impl Engine for InMemoryEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>> {
        self.shared.check_open()?;
        let tables = self.shared.tables_at(self.shared.pins.published());
        Ok(tables.iter().map(|table| (table.id, table.spec.clone())).collect())
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.shared.check_open()?;
        Ok(Arc::new(InMemorySnapshot::new(&self.shared, Holder::Reader)))
    }

    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        let mut applier = self.applier.lock();
        self.shared.check_open()?;
        self.counters.batches.fetch_add(1, Relaxed);
        self.counters.operations.fetch_add(batch.ops().len() as u64, Relaxed);
        applier
            .apply(&self.shared, batch, seq)
            .inspect_err(|error| self.shared.status.stop(format!("a batch failed: {error}")))
    }

    fn set_history_percent(&self, percent: u32) {
        self.applier
            .lock()
            .set_history_max(history_max(self.memory_bytes, percent));
    }

    fn publish(&self, seq: Seq) {
        self.shared.pins.publish(seq);
    }

    fn set_write_ahead(&self, log: WriteAhead) {
        if let Some(store) = &self.store {
            store.write_ahead.set(log);
        }
    }

    fn set_failure_handler(&self, handler: FailureHandler) {
        self.shared.status.set_failure_handler(handler);
    }

    fn durable_seq(&self) -> Seq {
        Seq(self.store.as_ref().map_or(0, |store| store.durable.load(Relaxed)))
    }

    fn checkpoint(&self) -> Result<Seq> {
        self.shared.check_open()?;
        match &self.store {
            Some(store) => self.write_checkpoint(store),
            None => Ok(Seq::ZERO),
        }
    }

    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, seq: Seq) -> Result<u64> {
        self.shared.check_open()?;
        let target = self.shared.live_table(table)?;
        let rows = Self::collect_rows(rows, seq)?;
        let count = rows.len();
        if target.load(rows) {
            Ok(count)
        } else {
            Err(invalid_load(format!("{table:?} is not empty")))
        }
    }

    /// Checkpoints hold all tables in one file, so a table has no bytes of its own on disk.
    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.shared.check_open()?;
        let size = self.shared.live_table(table)?.size();
        Ok(TableStats {
            storage_bytes: 0,
            free_bytes: 0,
            memory_bytes: size.memory_bytes as u64,
        })
    }

    /// The bound that was configured.
    fn check_growth(&self, _table: TableId, bytes: usize) -> Result<()> {
        let Some(bytes_max) = self.memory_bytes_max else {
            return Ok(());
        };
        let row_bytes = bytes.saturating_add(ROW_BYTES) as u64;
        let is_full = || self.shared.memory_bytes().saturating_add(row_bytes) > bytes_max;
        // What was deleted or dropped may wait for a batch to come and clear it away, and none comes where all are
        // refused.
        while is_full() && self.applier.lock().sweep_slice(&self.shared) {}
        match is_full() {
            false => Ok(()),
            true => Err(EngineError::Backend {
                operation: "insert a row",
                kind: ErrorKind::OutOfSpace,
                message: format!(
                    "the storage engine has {} bytes in memory, and may have {bytes_max} (inMemorySizeGB)",
                    self.shared.memory_bytes()
                ),
            }),
        }
    }

    fn common_stats(&self) -> CommonStats {
        CommonStats {
            cache_bytes: Some(self.shared.memory_bytes()),
            cache_bytes_max: self.memory_bytes_max,
            history_bytes: Some(self.applier.lock().history_bytes() as u64),
            snapshots_open: Some(self.shared.pins.open().0 as u64),
            ..CommonStats::default()
        }
    }

    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        let tables = self.shared.all_tables();
        let (mut rows, mut data_bytes) = (0, 0);
        for table in &tables {
            let size = table.size();
            rows += size.rows;
            data_bytes += size.bytes;
        }
        let (snapshots, oldest) = self.shared.pins.open();
        let (pending, history_bytes, ended) = {
            let applier = self.applier.lock();
            (applier.pending(), applier.history_bytes(), applier.ended())
        };
        let published = self.shared.pins.published();
        let mut number = |name: &str, value: u64| sink(name, StatValue::Number(value as i64));
        number("cache.bytes", self.shared.memory_bytes());
        if let Some(bytes_max) = self.memory_bytes_max {
            number("cache.maxBytes", bytes_max);
        }
        number("cache.data_bytes", data_bytes);
        number("cache.rows", rows);
        number("tables", tables.len() as u64);
        number("snapshots.open", snapshots as u64);
        number("snapshots.oldest_lag", published.0 - oldest.unwrap_or(published).0);
        number("snapshots.ended", ended);
        number("history.bytes", history_bytes as u64);
        number("cleanup.pending", pending as u64);
        number("apply.batches", self.counters.batches.load(Relaxed));
        number("apply.operations", self.counters.operations.load(Relaxed));
        number("checkpoint.count", self.counters.checkpoints.load(Relaxed));
        number("checkpoint.bytes_written", self.counters.checkpoint_bytes.load(Relaxed));
        number("checkpoint.durable_seq", self.durable_seq().0);
    }

    /// Soon over: there is no disk in it.
    fn maintain_while(&self, task: &Maintenance, _goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        self.shared.check_open()?;
        let mut report = MaintenanceReport::default();
        match task {
            Maintenance::Verify(table) => {
                for table in self.tables_for(*table)? {
                    match table.check_invariants() {
                        Ok(rows) => report.rows_checked += rows,
                        Err(problem) => report.problems.push(problem),
                    }
                }
            }
            Maintenance::Compact(tables) => {
                let tables = match tables {
                    None => self.tables_for(None)?,
                    Some(ids) => {
                        let of_each: Result<Vec<_>> = ids.iter().map(|id| self.tables_for(Some(*id))).collect();
                        of_each?.concat()
                    }
                };
                let memory = || tables.iter().map(|table| table.size().memory_bytes as u64).sum::<u64>();
                let before = memory();
                self.sweep_all();
                report.bytes_freed = before.saturating_sub(memory());
            }
        }
        Ok(report)
    }

    fn backup(&self) -> Result<Box<dyn Backup>> {
        self.shared.check_open()?;
        Err(EngineError::Unsupported {
            engine: NAME,
            operation: "backup",
        })
    }

    fn close(&self, mode: CloseMode) -> Result<()> {
        let result = match mode {
            CloseMode::Checkpoint => self.checkpoint().map(|_| ()),
            CloseMode::Abandon => self.shared.check_open(),
        };
        self.shared.status.close();
        result
    }
}

fn info(ephemeral: bool) -> EngineInfo {
    EngineInfo {
        name: NAME,
        format_version: checkpoint::FORMAT_VERSION,
        capabilities: Capabilities {
            lock_granularity: LockGranularity::Document,
            concurrent_apply: false,
            hot_backup: false,
            checkpoint_cost: if ephemeral {
                CheckpointCost::Never
            } else {
                CheckpointCost::AllData
            },
            cheap_range_delete: false,
            compressors: &[],
            ends_snapshots: true,
        },
    }
}

fn history_max(memory_bytes: u64, percent: u32) -> usize {
    usize::try_from(history_bytes(memory_bytes, percent)).unwrap_or(usize::MAX)
}

fn invalid_load(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "bulk load",
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::TableKind;
    use vfs::{SeededRandom, SimulatedClock, SimulatedFs};

    const TABLE: TableId = TableId(1);
    const BYTES_MAX: u64 = 1 << 20;

    fn bounded() -> InMemoryEngine {
        let env = Env {
            fs: Arc::new(SimulatedFs::new(1)),
            clock: Arc::new(SimulatedClock::new(0)),
            random: Arc::new(SeededRandom::new(1)),
        };
        let options = InMemoryOptions {
            ephemeral: true,
            memory_bytes_max: Some(BYTES_MAX),
            ..InMemoryOptions::default()
        };
        InMemoryEngine::open(&env, Path::new("/"), options).expect("nothing is read")
    }

    fn apply(engine: &InMemoryEngine, seq: u64, fill: impl FnOnce(&mut Batch)) {
        let mut batch = Batch::new();
        fill(&mut batch);
        engine.apply(&batch, Seq(seq)).expect("a batch");
        engine.publish(Seq(seq));
    }

    fn records() -> TableSpec {
        TableSpec {
            kind: TableKind::Records,
            name: "db.c".into(),
            compressor: None,
        }
    }

    /// The option had no effect: the server grew until the system ended it.
    #[test]
    fn rows_come_until_the_bound_is_reached_and_again_when_some_have_gone() {
        const VALUE_BYTES: usize = 10_000;
        let engine = bounded();
        apply(&engine, 1, |batch| batch.create_table(TABLE, records()));
        let key = |number: u64| number.to_be_bytes().to_vec();
        let mut rows = 0;
        let refused = loop {
            match engine.check_growth(TABLE, VALUE_BYTES) {
                Ok(()) => apply(&engine, 2 + rows, |batch| {
                    batch.put(TABLE, key(rows), vec![7; VALUE_BYTES])
                }),
                Err(error) => break error,
            }
            rows += 1;
        };
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace);
        assert!((95..105).contains(&rows), "{rows} rows of {VALUE_BYTES} bytes");
        let stats = engine.common_stats();
        assert_eq!(stats.cache_bytes_max, Some(BYTES_MAX));
        assert!(stats.cache_bytes.is_some_and(|bytes| bytes <= BYTES_MAX));
        // What a reader still sees is there; once it has gone nobody has to write before there is room.
        let snapshot = engine.snapshot().expect("a snapshot");
        apply(&engine, 1000, |batch| {
            batch.delete_range(TABLE, engine::KeyRange::all())
        });
        assert!(engine.check_growth(TABLE, VALUE_BYTES).is_err());
        drop(snapshot);
        engine.check_growth(TABLE, VALUE_BYTES).expect("there is room");
        assert_eq!(engine.common_stats().cache_bytes, Some(0));
    }

    /// There seemed to be room for as much again before any of it was freed.
    #[test]
    fn rows_of_a_dropped_table_count_until_they_are_freed() {
        const ROWS: u64 = 3000;
        let engine = bounded();
        apply(&engine, 1, |batch| batch.create_table(TABLE, records()));
        apply(&engine, 2, |batch| {
            (0..ROWS).for_each(|number| batch.put(TABLE, number.to_be_bytes().to_vec(), vec![7; 100]));
        });
        let memory = || engine.shared.memory_bytes();
        let sweep = || engine.applier.lock().sweep_slice(&engine.shared);
        let row = memory() / ROWS;
        assert_eq!(memory(), row * ROWS);
        apply(&engine, 3, |batch| batch.drop_table(TABLE));
        assert_eq!(memory(), row * ROWS);
        assert!(sweep(), "the table goes, and its rows are still there");
        assert_eq!((engine.shared.all_tables().len(), memory()), (0, row * ROWS));
        assert!(sweep());
        let left = memory();
        assert!(0 < left && left < row * ROWS, "{left} bytes");
        engine.stats(&mut |name, value| {
            assert!(name != "cache.bytes" || value == StatValue::Number(left as i64));
        });
        // No batch has to come for the rest.
        engine
            .check_growth(TABLE, BYTES_MAX as usize - ROW_BYTES)
            .expect("there is room");
        assert_eq!((memory(), sweep()), (0, false));
        let error = engine.check_growth(TABLE, usize::MAX).expect_err("more than the bound");
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    }
}
