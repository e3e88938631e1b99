//! The engine: who may call what, and the order of the steps.
//!
//! Lock order: `files`, then `view`. `view` is held for a batch and for taking a view, never over input or output.

use crate::cursor::{DeltaSnapshot, View};
use crate::files::{Failure, Files};
use crate::table::Table;
use bytes::Bytes;
use engine::{
    Backup, Batch, Capabilities, CheckpointCost, CloseMode, CommonStats, Engine, EngineError, EngineInfo, EngineStatus,
    FailureHandler, KEY_BYTES_MAX, LockGranularity, Maintenance, MaintenanceReport, Op, Result, Seq, Snapshot,
    StatValue, TableId, TableSpec, TableStats, VALUE_BYTES_MAX, WriteAhead, WriteAheadRule,
};
use parking_lot::{Mutex, RwLock};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vfs::Env;

const NAME: &str = "deltas";

/// All rows in memory, their changes in files.
pub struct DeltaEngine {
    info: EngineInfo,
    /// What the next snapshot sees: batches are visible when they are applied.
    view: RwLock<Arc<View>>,
    /// The last batch, which need not be the view's position.
    applied: AtomicU64,
    files: Mutex<Files>,
    durable: AtomicU64,
    batches: AtomicU64,
    operations: AtomicU64,
    write_ahead: WriteAheadRule,
    status: EngineStatus,
}

impl DeltaEngine {
    /// Opens the engine on `directory`, which must exist and belong to this process alone.
    pub fn open(env: &Env, directory: &Path) -> Result<Self> {
        let files = Files::open(env.fs.clone(), directory)?;
        let view = files.view.clone();
        Ok(Self {
            info: info(),
            applied: AtomicU64::new(view.seq.0),
            durable: AtomicU64::new(view.seq.0),
            batches: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            view: RwLock::new(view),
            files: Mutex::new(files),
            write_ahead: WriteAheadRule::default(),
            status: EngineStatus::default(),
        })
    }

    fn check_open(&self) -> Result<()> {
        self.status.check_running()
    }

    fn write_checkpoint(&self, everything: bool) -> Result<Seq> {
        let mut files = self.files.lock();
        self.check_open()?;
        // From here on batches copy what they change: the view that is written stays.
        let view = self.view.read().clone();
        let is_new = (view.seq, view.changes) != (files.view.seq, files.view.changes);
        if !is_new && !everything {
            return Ok(view.seq);
        }
        self.write_ahead.wait_for_log(view.seq)?;
        match files.write(&view, everything) {
            Ok(()) => {
                self.durable.store(view.seq.0, Relaxed);
                Ok(view.seq)
            }
            Err(Failure::Harmless(error)) => Err(error),
            Err(Failure::Fatal(error)) => {
                self.status.stop(format!("a checkpoint failed: {error}"));
                Err(error)
            }
        }
    }

    fn apply_batch(&self, view: &mut View, batch: &Batch, seq: Seq) -> Result<()> {
        let before = self.applied.swap(seq.0, Relaxed);
        if seq.0 <= before {
            return Err(invalid("apply", format!("{seq:?} does not follow {before}")));
        }
        for op in batch.ops() {
            apply_one(view, op, seq)?;
        }
        view.seq = view.seq.max(seq);
        view.changes += 1;
        Ok(())
    }
}

impl Engine for DeltaEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>> {
        self.check_open()?;
        let view = self.view.read();
        Ok(view
            .tables
            .iter()
            .map(|(id, table)| (*id, table.spec.clone()))
            .collect())
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.check_open()?;
        Ok(Arc::new(DeltaSnapshot(self.view.read().clone())))
    }

    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        let mut view = self.view.write();
        self.check_open()?;
        self.batches.fetch_add(1, Relaxed);
        self.operations.fetch_add(batch.ops().len() as u64, Relaxed);
        self.apply_batch(Arc::make_mut(&mut view), batch, seq)
            .inspect_err(|error| self.status.stop(format!("a batch failed: {error}")))
    }

    /// Snapshots last, whatever they hold.
    fn set_history_percent(&self, _percent: u32) {}

    fn publish(&self, seq: Seq) {
        let mut view = self.view.write();
        if seq > view.seq {
            Arc::make_mut(&mut view).seq = seq;
        }
    }

    fn set_write_ahead(&self, log: WriteAhead) {
        self.write_ahead.set(log);
    }

    fn set_failure_handler(&self, handler: FailureHandler) {
        self.status.set_failure_handler(handler);
    }

    fn durable_seq(&self) -> Seq {
        Seq(self.durable.load(Relaxed))
    }

    fn checkpoint(&self) -> Result<Seq> {
        self.write_checkpoint(false)
    }

    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, _seq: Seq) -> Result<u64> {
        self.check_open()?;
        let mut sorted: Vec<(Bytes, Bytes)> = Vec::new();
        for (key, value) in rows {
            check_length("bulk load", "key", key.len(), KEY_BYTES_MAX)?;
            check_length("bulk load", "value", value.len(), VALUE_BYTES_MAX)?;
            if sorted.last().is_some_and(|(last, _)| *last >= key) {
                return Err(invalid(
                    "bulk load",
                    format!("key {key:02x?} does not follow the one before it"),
                ));
            }
            sorted.push((key.into(), value.into()));
        }
        let count = sorted.len() as u64;
        let mut view = self.view.write();
        let view = Arc::make_mut(&mut view);
        let loaded = view.tables.get_mut(&table).ok_or(EngineError::NoSuchTable(table))?;
        if loaded.rows > 0 {
            return Err(invalid("bulk load", format!("{table:?} is not empty")));
        }
        Arc::make_mut(loaded).fill(sorted);
        view.changes += 1;
        Ok(count)
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.check_open()?;
        let bytes = self.view.read().table(table)?.bytes;
        Ok(TableStats {
            storage_bytes: bytes,
            free_bytes: 0,
            memory_bytes: bytes,
        })
    }

    fn common_stats(&self) -> CommonStats {
        let view = self.view.read().clone();
        CommonStats {
            cache_bytes: Some(view.tables.values().map(|table| table.bytes).sum()),
            file_bytes: Some(self.files.lock().bytes()),
            ..CommonStats::default()
        }
    }

    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        let view = self.view.read().clone();
        let sum = |of: fn(&Table) -> u64| view.tables.values().map(|table| of(table)).sum::<u64>();
        let mut number = |name: &str, value: u64| sink(name, StatValue::Number(value as i64));
        number("apply.batches", self.batches.load(Relaxed));
        number("apply.operations", self.operations.load(Relaxed));
        number("tables", view.tables.len() as u64);
        number("cache.rows", sum(|table| table.rows));
        number("cache.bytes", sum(|table| table.bytes));
        number("files.bytes", self.files.lock().bytes());
        number("checkpoint.durable_seq", self.durable_seq().0);
    }

    fn maintain_while(&self, task: &Maintenance, _goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        self.check_open()?;
        let mut report = MaintenanceReport::default();
        let view = self.view.read().clone();
        match task {
            Maintenance::Verify(table) => {
                for (id, checked) in &view.tables {
                    if table.is_none_or(|table| table == *id) {
                        report.rows_checked += checked.rows;
                        report
                            .problems
                            .extend(checked.problem().map(|problem| format!("{id:?}: {problem}")));
                    }
                }
                if let Some(table) = table {
                    view.table(*table)?;
                }
                self.files.lock().verify()?;
            }
            Maintenance::Compact(tables) => {
                tables
                    .iter()
                    .flatten()
                    .try_for_each(|table| view.table(*table).map(|_| ()))?;
                let before = self.files.lock().bytes();
                self.write_checkpoint(true)?;
                report.bytes_freed = before.saturating_sub(self.files.lock().bytes());
            }
        }
        Ok(report)
    }

    fn backup(&self) -> Result<Box<dyn Backup>> {
        self.check_open()?;
        Err(EngineError::Unsupported {
            engine: NAME,
            operation: "backup",
        })
    }

    fn close(&self, mode: CloseMode) -> Result<()> {
        let result = match mode {
            CloseMode::Checkpoint => self.checkpoint().map(|_| ()),
            CloseMode::Abandon => self.check_open(),
        };
        self.status.close();
        result
    }
}

fn apply_one(view: &mut View, op: &Op, seq: Seq) -> Result<()> {
    match op {
        Op::Put(id, key, value) => {
            check_length("apply", "value", value.len(), VALUE_BYTES_MAX)?;
            // The batch's buffers are the caller's.
            table(view, *id, key)?.put(key, Bytes::copy_from_slice(value));
        }
        Op::Delete(id, key) => table(view, *id, key)?.delete(key),
        Op::DeleteRange(id, range) => table(view, *id, &[])?.delete_range(range),
        Op::Add(id, key, amount) => {
            let table = table(view, *id, key)?;
            let old = table.get(key).and_then(|value| value[..].try_into().ok());
            let sum = old.map_or(0, i64::from_le_bytes).wrapping_add(*amount);
            table.put(key, Bytes::copy_from_slice(&sum.to_le_bytes()));
        }
        Op::CreateTable(id, spec) => match view.tables.get(id) {
            None => {
                // Unlike that of any table that had this id before.
                let incarnation = seq.0 << 20 | view.changes & 0xF_FFFF;
                view.changes += 1;
                view.tables.insert(*id, Arc::new(Table::new(spec.clone(), incarnation)));
            }
            Some(table) if table.spec.kind == spec.kind => {}
            Some(table) => {
                return Err(invalid(
                    "apply",
                    format!("{id:?} exists as {:?}, not {:?}", table.spec.kind, spec.kind),
                ));
            }
        },
        Op::DropTable(id) => drop(view.tables.remove(id)),
    }
    Ok(())
}

/// A table that is to be changed, at a key.
fn table<'v>(view: &'v mut View, id: TableId, key: &[u8]) -> Result<&'v mut Table> {
    check_length("apply", "key", key.len(), KEY_BYTES_MAX)?;
    let table = view.tables.get_mut(&id).ok_or(EngineError::NoSuchTable(id))?;
    Ok(Arc::make_mut(table))
}

fn info() -> EngineInfo {
    EngineInfo {
        name: NAME,
        format_version: 1,
        capabilities: Capabilities {
            lock_granularity: LockGranularity::Document,
            concurrent_apply: false,
            hot_backup: false,
            checkpoint_cost: CheckpointCost::Changes,
            cheap_range_delete: false,
            ends_snapshots: false,
            compressors: &[],
        },
    }
}

fn invalid(operation: &'static str, reason: String) -> EngineError {
    EngineError::Invalid { operation, reason }
}

fn check_length(operation: &'static str, what: &str, bytes: usize, max: usize) -> Result<()> {
    match bytes > max {
        true => Err(invalid(
            operation,
            format!("a {what} of {bytes} bytes, {max} are the limit"),
        )),
        false => Ok(()),
    }
}
