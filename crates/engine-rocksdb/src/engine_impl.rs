//! The engine: batches in, views out, and the durable mark.
//!
//! A view must stand exactly at a `Seq`, but RocksDB shows a batch the moment it is written. Each batch has the mark in
//! it, so a view that is taken while one is written reads there where it stands. One is taken only when somebody reads,
//! and shared by all readers until the next batch is there; only a batch that changes which tables there are has the
//! view before it taken.
//!
//! The log is durable before what it led to. RocksDB makes a memtable durable when it likes, so it is not left to it
//! when a memtable ends: [`RocksEngine::end_memtable`] does that, when `apply` finds it full or a checkpoint wants it,
//! with the log flushed to the last batch before. RocksDB's own bound lies far above (`options.rs`). What flushes at a
//! moment of its own choice (a compaction of a range, a backup's checkpoint) runs under [`LogFirst`].
//!
//! Invariants: while a batch that changes the tables is being written `Current::view` is there. Everything in a
//! memtable that has ended is in the durable log.

use crate::backup;
use crate::bulk::{self, BulkFiles};
use crate::error::rocks_error;
use crate::layout::{
    FORMAT_VERSION, MARK_KEY, PREFIX_BYTES, TABLE_PREFIX, VERSION_KEY, check_table, decode_table, encode_spec, put_key,
    stored_range, table_key,
};
use crate::mark::{corrupt, read_mark};
use crate::options::{self, Built, RocksOptions};
use crate::pressure::Pressure;
use crate::range_deletes::RangeDeletes;
use crate::registry::Registry;
use crate::stats;
use crate::view::RocksSnapshot;
use engine::{
    Backup, Batch, Capabilities, CheckpointCost, CloseMode, CommonStats, Engine, EngineError, EngineInfo, EngineStatus,
    ErrorKind, FailureHandler, KEY_BYTES_MAX, KeyRange, LockGranularity, Maintenance, MaintenanceReport, Op, Result,
    Seq, Snapshot, StatValue, TableId, TableSpec, TableStats, VALUE_BYTES_MAX, WriteAhead, WriteAheadRule,
    check_wanted,
};
use parking_lot::Mutex;
use rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, FlushOptions, Range, ReadOptions, ReadTier, WriteBatch, WriteOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use vfs::Env;

/// What a row takes in a memtable beside its bytes, about.
const MEMTABLE_ROW_BYTES: usize = 48;
/// Verification asks whether it is still wanted each so many rows.
const ROWS_A_LOOK: u64 = 1024;
/// How often a checkpoint looks whether its memtable has been written.
const FLUSH_POLL: Duration = Duration::from_millis(2);

/// RocksDB behind the engine API.
///
/// Lock order: `writer`, then `current`. `current` is never held across a call that can wait.
pub struct RocksEngine {
    info: EngineInfo,
    env: Env,
    db: Arc<DB>,
    /// Kept as long as the database: RocksDB points to some of it.
    built: Built,
    write_options: WriteOptions,
    writer: Mutex<Writer>,
    current: Mutex<Current>,
    write_ahead: WriteAheadRule,
    pressure: Pressure,
    /// How many [`LogFirst`]s there are; changes with `writer` locked.
    log_first: AtomicUsize,
    status: EngineStatus,
    counters: Counters,
}

/// The writing side: one batch at a time.
struct Writer {
    /// Position of the last batch.
    applied: Seq,
    /// The mark in the newest memtable: `applied`, or a later position without a batch.
    mark: Seq,
    /// Bytes in that memtable, about.
    memtable_bytes: usize,
    key: Vec<u8>,
    dropped: Vec<Dropped>,
}

/// While it lives the log is durable up to each batch before RocksDB gets it: whatever memtable RocksDB ends, and
/// whenever, the log is not behind it. Writers wait for a sync of the log each, so it is for rare and short things.
struct LogFirst<'e>(&'e RocksEngine);

impl Drop for LogFirst<'_> {
    fn drop(&mut self) {
        let _writer = self.0.writer.lock();
        self.0.log_first.fetch_sub(1, Relaxed);
    }
}

/// A dropped table whose files can go when nobody can see it any more.
struct Dropped {
    table: TableId,
    seq: Seq,
    /// RocksDB's own number after the drop: its snapshots from here on do not have the table.
    sequence_number: u64,
}

/// What new views show.
struct Current {
    seq: Seq,
    registry: Arc<Registry>,
    /// The view at `seq`, or at the end of the batch that is being written, once somebody asked for it.
    view: Option<Arc<RocksSnapshot>>,
    /// A batch that ends here is being written, and changes no table: RocksDB may show it or not.
    writing: Option<Seq>,
}

impl Current {
    fn view(&mut self, db: &Arc<DB>, counters: &Counters) -> Result<Arc<RocksSnapshot>> {
        if let Some(view) = &self.view {
            return Ok(Arc::clone(view));
        }
        counters.views.fetch_add(1, Relaxed);
        let mut view = RocksSnapshot::new(db, self.seq, Arc::clone(&self.registry));
        if let Some(seq) = self.writing
            && view.read_mark()? == seq
        {
            // The whole batch is in it, as no part of one ever is.
            view = view.at_later(seq);
        }
        let view = Arc::new(view);
        self.view = Some(Arc::clone(&view));
        Ok(view)
    }
}

#[derive(Default)]
struct Counters {
    batches: AtomicU64,
    operations: AtomicU64,
    checkpoints: AtomicU64,
    /// Snapshots that RocksDB has taken.
    views: AtomicU64,
    /// Ranges that RocksDB was told to delete, those of whole tables aside.
    ranges: AtomicU64,
    /// Bytes of batches.
    bytes: AtomicU64,
    /// Names files and directories that are in the making.
    names: AtomicU64,
    /// The durable mark as last read.
    durable: AtomicU64,
}

impl RocksEngine {
    /// Opens the engine on `directory`, which must exist and belong to this process alone. A directory of RocksDB's
    /// that is not Tenon's, one of another format version, and bad options are `Invalid`.
    pub fn open(env: &Env, directory: &Path, choice: RocksOptions) -> Result<Self> {
        let built = options::build(&choice)?;
        backup::remove_leftovers(env, directory)?;
        bulk::prepare(env, directory)?;
        let db = Arc::new(DB::open(&built.options, directory).map_err(rocks_error("open"))?);
        let write_options = options::write_options();
        check_version(&db, &write_options)?;
        let mark = read_mark(&db, &ReadOptions::default())?;
        let registry = Arc::new(read_registry(&db)?);
        let counters = Counters {
            durable: AtomicU64::new(mark.0),
            ..Counters::default()
        };
        Ok(Self {
            info: info(),
            env: env.clone(),
            db,
            built,
            write_options,
            writer: Mutex::new(Writer {
                applied: mark,
                mark,
                memtable_bytes: 0,
                key: Vec::new(),
                dropped: Vec::new(),
            }),
            current: Mutex::new(Current {
                seq: mark,
                registry,
                view: None,
                writing: None,
            }),
            pressure: Pressure::default(),
            write_ahead: WriteAheadRule::default(),
            log_first: AtomicUsize::new(0),
            status: EngineStatus::default(),
            counters,
        })
    }

    fn check_open(&self) -> Result<()> {
        self.status.check_running()
    }

    /// Answers nothing from now on. The first failure stands.
    fn poison(&self, what: &str, error: &EngineError) {
        self.status.stop(format!("{what} failed: {error}"));
    }

    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.current.lock().registry)
    }

    /// Writes a batch that brings the engine to `seq`, with the mark in it.
    fn write(&self, writer: &mut Writer, mut batch: WriteBatch, seq: Seq, registry: Option<Registry>) -> Result<()> {
        batch.put(MARK_KEY, seq.0.to_le_bytes());
        if self.log_first.load(Relaxed) > 0
            && let Err(error) = self.write_ahead.wait_for_log(seq)
            && error.kind() != ErrorKind::OutOfSpace
        {
            return Err(error);
        }
        // A full disk ends a compaction before its next table, not the engine: the entry has its place in the log, and
        // the batch must follow it.
        let memtable_bytes = batch.size_in_bytes() + batch.len() * MEMTABLE_ROW_BYTES;
        {
            let mut current = self.current.lock();
            if registry.is_some() {
                // The view of the position before, for readers while RocksDB writes: with the tables of that position.
                current.view(&self.db, &self.counters)?;
            } else {
                current.writing = Some(seq);
            }
        }
        let written = self.db.write_opt(batch, &self.write_options);
        let mut current = self.current.lock();
        current.writing = None;
        if let Err(error) = written {
            return Err(rocks_error("apply")(error));
        }
        writer.mark = seq;
        writer.memtable_bytes += memtable_bytes;
        self.counters.bytes.fetch_add(memtable_bytes as u64, Relaxed);
        current.seq = current.seq.max(seq);
        if let Some(registry) = registry {
            current.registry = Arc::new(registry);
        }
        // One that was taken meanwhile and has the batch stays good.
        let outdated = current.view.take_if(|view| view.seq() < seq);
        drop(current);
        drop(outdated);
        Ok(())
    }

    fn apply_batch(&self, writer: &mut Writer, batch: &Batch, seq: Seq) -> Result<()> {
        if seq <= writer.applied {
            return Err(invalid_batch(format!("{seq:?} does not follow {:?}", writer.applied)));
        }
        let shared = self.registry();
        let mut changed: Option<Registry> = None;
        let mut dropped = Vec::new();
        let mut out = WriteBatch::new();
        let mut known = None;
        let mut ranges = RangeDeletes::new(batch);
        for (place, op) in batch.ops().iter().enumerate() {
            let table = table_of(op);
            let registry = changed.as_ref().unwrap_or(&shared);
            match op {
                Op::CreateTable(table, spec) => {
                    if create_table(registry, *table, spec)? {
                        changed
                            .get_or_insert_with(|| (*shared).clone())
                            .insert(*table, spec.clone());
                        out.put(table_key(*table), encode_spec(spec));
                    }
                }
                Op::DropTable(table) => {
                    known = None;
                    if changed.get_or_insert_with(|| (*shared).clone()).remove(*table) {
                        out.delete(table_key(*table));
                        let (from, to) = stored_range(*table, &KeyRange::all());
                        out.delete_range(from, to);
                        dropped.push(*table);
                    }
                }
                _ => {
                    if known != Some(table) {
                        registry.check(table)?;
                        known = Some(table);
                    }
                    match op {
                        Op::DeleteRange(table, range) => {
                            let is_range = ranges.add(&self.db, (place, *table, range), &mut out);
                            self.counters.ranges.fetch_add(u64::from(is_range), Relaxed);
                        }
                        op => encode_row_op(op, &mut writer.key, &mut out)?,
                    }
                }
            }
        }
        self.write(writer, out, seq, changed)?;
        writer.applied = seq;
        if !dropped.is_empty() {
            let sequence_number = self.db.latest_sequence_number();
            writer.dropped.extend(dropped.into_iter().map(|table| Dropped {
                table,
                seq,
                sequence_number,
            }));
        }
        Ok(())
    }

    /// Brings the mark up to the published position, where log entries without a batch came after the last one.
    fn write_mark(&self) -> Result<Seq> {
        let mut writer = self.writer.lock();
        self.check_open()?;
        let seq = self.current.lock().seq;
        if seq > writer.mark {
            self.write(&mut writer, WriteBatch::new(), seq, None)
                .inspect_err(|error| self.poison("writing the mark", error))?;
        }
        Ok(seq)
    }

    /// Ends the memtable: RocksDB writes it in the background from now on. The log is durable up to its last batch
    /// first.
    fn end_memtable(&self, writer: &mut Writer) -> Result<()> {
        self.write_ahead.wait_for_log(writer.mark)?;
        self.flush_memtables(false)?;
        writer.memtable_bytes = 0;
        Ok(())
    }

    /// Before a batch: ends a full memtable. A log whose disk is full keeps it, for as long as RocksDB does not end it
    /// itself.
    fn end_full_memtable(&self, writer: &mut Writer) -> Result<()> {
        if writer.memtable_bytes < self.built.memtable_bytes {
            return Ok(());
        }
        match self.end_memtable(writer) {
            Err(error)
                if error.kind() == ErrorKind::OutOfSpace && writer.memtable_bytes < self.built.memtable_bytes_kept =>
            {
                Ok(())
            }
            other => other,
        }
    }

    fn flush_memtables(&self, wait: bool) -> Result<()> {
        let mut options = FlushOptions::default();
        options.set_wait(wait);
        self.db
            .flush_opt(&options)
            .map_err(rocks_error("flush"))
            .inspect_err(|error| {
                if error.kind() != ErrorKind::Closed {
                    self.poison("a flush", error);
                }
            })
    }

    /// Returns when the mark in RocksDB's files is `wanted` or later. Writers wait for the start of it only.
    fn flush(&self, wanted: Seq) -> Result<()> {
        let errors_before = stats::property(&self.db, "rocksdb.background-errors");
        // Most of the log while nobody waits; then the rest, with no batch in between.
        self.write_ahead.wait_for_log(wanted)?;
        self.end_memtable(&mut self.writer.lock())?;
        while self.read_durable() < wanted {
            self.check_open()?;
            if stats::property(&self.db, "rocksdb.background-errors") > errors_before {
                // Whatever it was, a flush that is waited for says so, or does what the one before could not.
                let mut writer = self.writer.lock();
                self.write_ahead.wait_for_log(writer.mark)?;
                self.flush_memtables(true)?;
                writer.memtable_bytes = 0;
                break;
            }
            // The binding has no word for the end of a flush that it does not wait for.
            std::thread::park_timeout(FLUSH_POLL);
        }
        Ok(())
    }

    fn log_first(&self) -> Result<LogFirst<'_>> {
        let writer = self.writer.lock();
        self.write_ahead.wait_for_log(writer.mark)?;
        self.log_first.fetch_add(1, Relaxed);
        drop(writer);
        Ok(LogFirst(self))
    }

    /// Reads the mark from files only, never from memtables.
    fn read_durable(&self) -> Seq {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::Persisted);
        let found = read_mark(&self.db, &options).map_or(0, |mark| mark.0);
        Seq(self.counters.durable.fetch_max(found, Relaxed).max(found))
    }

    /// Removes the files of dropped tables whose drop is durable and that no snapshot sees. Files that hold rows of
    /// other tables too stay, and compaction clears them.
    fn reclaim_dropped(&self) -> Result<()> {
        let durable = self.read_durable();
        let mut writer = self.writer.lock();
        if writer.dropped.is_empty() {
            return Ok(());
        }
        drop(self.current.lock().view.take());
        let oldest = match stats::property(&self.db, "rocksdb.oldest-snapshot-sequence") {
            0 => u64::MAX,
            oldest => oldest,
        };
        let (gone, kept) = writer
            .dropped
            .drain(..)
            .partition(|dropped| dropped.seq <= durable && dropped.sequence_number <= oldest);
        writer.dropped = kept;
        drop(writer);
        for Dropped { table, .. } in Vec::from_iter::<Vec<Dropped>>(gone) {
            let (from, to) = stored_range(table, &KeyRange::all());
            self.db
                .delete_file_in_range(from, to)
                .map_err(rocks_error("drop a table"))?;
        }
        Ok(())
    }

    fn compact(&self, tables: Option<&[TableId]>, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        let before = stats::property(&self.db, "rocksdb.live-sst-files-size");
        drop(self.writer.lock());
        self.reclaim_dropped()?;
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        match tables {
            Some(tables) => {
                for table in tables {
                    check_wanted(goes_on)?;
                    // RocksDB flushes what lies in memtables of the range before it compacts. Anew for each: where the
                    // log's disk has become full meanwhile, it lacks batches that the next flush would have.
                    let _log_first = self.log_first()?;
                    let (from, to) = stored_range(*table, &KeyRange::all());
                    self.db.compact_range_opt(Some(from), Some(to), &options);
                }
            }
            None => {
                let _log_first = self.log_first()?;
                self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
            }
        }
        let after = stats::property(&self.db, "rocksdb.live-sst-files-size");
        Ok(MaintenanceReport {
            bytes_freed: before.saturating_sub(after),
            ..MaintenanceReport::default()
        })
    }

    /// Reads every row with its checksums, past the cache.
    fn verify(&self, table: Option<TableId>, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        let view = self.current.lock().view(&self.db, &self.counters)?;
        let tables: Vec<TableId> = match table {
            Some(table) => vec![table],
            None => view.registry().iter().map(|table| table.0).collect(),
        };
        let mut report = MaintenanceReport::default();
        for table in tables {
            let mut options = ReadOptions::default();
            options.fill_cache(false);
            options.set_readahead_size(1024 * 1024);
            let (from, to) = stored_range(table, &KeyRange::all());
            let mut iterator = view.iterate(from, to, options);
            iterator.seek_to_first();
            let mut before: Option<Vec<u8>> = None;
            while let Some(key) = iterator.key() {
                if report.rows_checked.is_multiple_of(ROWS_A_LOOK) {
                    check_wanted(goes_on)?;
                }
                if before.as_ref().is_some_and(|before| before[..] >= *key) {
                    report
                        .problems
                        .push(format!("{table:?}: key {:02x?} is out of order", &key[PREFIX_BYTES..]));
                }
                let kept = before.get_or_insert_default();
                kept.clear();
                kept.extend_from_slice(key);
                report.rows_checked += 1;
                iterator.next();
            }
            if let Err(error) = iterator.status() {
                report.problems.push(format!("{table:?}: {error}"));
            }
        }
        Ok(report)
    }

    fn expect_empty(&self, table: TableId) -> Result<()> {
        let view = RocksSnapshot::new(&self.db, Seq::ZERO, self.registry());
        let (from, to) = stored_range(table, &KeyRange::all());
        let mut iterator = view.iterate(from, to, ReadOptions::default());
        iterator.seek_to_first();
        iterator.status().map_err(rocks_error("bulk load"))?;
        if iterator.valid() {
            return Err(EngineError::Invalid {
                operation: "bulk load",
                reason: format!("{table:?} is not empty"),
            });
        }
        Ok(())
    }

    fn next_name(&self) -> u64 {
        self.counters.names.fetch_add(1, Relaxed)
    }
}

impl Engine for RocksEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }

    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>> {
        self.check_open()?;
        Ok(self.registry().iter().map(|(id, spec)| (id, spec.clone())).collect())
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.check_open()?;
        Ok(self.current.lock().view(&self.db, &self.counters)?)
    }

    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        let mut writer = self.writer.lock();
        self.check_open()?;
        self.counters.batches.fetch_add(1, Relaxed);
        self.counters.operations.fetch_add(batch.ops().len() as u64, Relaxed);
        self.end_full_memtable(&mut writer)
            .and_then(|()| self.apply_batch(&mut writer, batch, seq))
            .inspect_err(|error| self.poison("a batch", error))
    }

    /// Takes no notice: what old snapshots see stays in files, which grow.
    fn set_history_percent(&self, _percent: u32) {}

    /// What RocksDB would have a writer wait inside the write, it waits here, with no lock held.
    fn throttle(&self) -> bool {
        let written = self.counters.bytes.load(Relaxed);
        self.pressure.wait(&self.db, &*self.env.clock, written)
    }

    fn publish(&self, seq: Seq) {
        let mut current = self.current.lock();
        if seq > current.seq {
            current.seq = seq;
            // One that has the batch being written stands later already.
            if let Some(view) = current.view.as_ref().filter(|view| view.seq() < seq) {
                current.view = Some(Arc::new(view.at_later(seq)));
            }
        }
    }

    fn set_write_ahead(&self, log: WriteAhead) {
        self.write_ahead.set(log);
    }

    fn set_failure_handler(&self, handler: FailureHandler) {
        self.status.set_failure_handler(handler);
    }

    fn durable_seq(&self) -> Seq {
        self.read_durable()
    }

    fn checkpoint(&self) -> Result<Seq> {
        self.check_open()?;
        let wanted = self.write_mark()?;
        if self.read_durable() < wanted {
            self.flush(wanted)?;
            self.counters.checkpoints.fetch_add(1, Relaxed);
        }
        self.reclaim_dropped()?;
        Ok(self.read_durable())
    }

    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, _seq: Seq) -> Result<u64> {
        self.check_open()?;
        self.registry().check(table)?;
        self.expect_empty(table)?;
        let mut files = BulkFiles::new(&self.env, self.db.path(), self.next_name());
        files.write(&self.built.options, table, rows)?;
        if files.rows > 0 {
            // The table's creation must not come after its rows on disk; and taking the files in then waits for no
            // flush.
            let mark = self.writer.lock().mark;
            self.flush(mark)?;
            files.ingest(&self.db)?;
            let _writer = self.writer.lock();
            let outdated = self.current.lock().view.take();
            drop(outdated);
        }
        Ok(files.rows)
    }

    /// Sizes of files only, and about; what lies in memtables is not counted.
    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.check_open()?;
        self.registry().check(table)?;
        let (from, to) = stored_range(table, &KeyRange::all());
        let sizes = self.db.get_approximate_sizes(&[Range::new(&from, &to)]);
        Ok(TableStats {
            storage_bytes: sizes.first().copied().unwrap_or(0),
            ..TableStats::default()
        })
    }

    fn common_stats(&self) -> CommonStats {
        stats::common(&self.db, &self.pressure)
    }

    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        stats::report(&self.db, sink);
        let mut number = |name: &str, value: u64| sink(name, StatValue::Number(value as i64));
        number("tables", self.registry().len() as u64);
        number("apply.batches", self.counters.batches.load(Relaxed));
        number("apply.operations", self.counters.operations.load(Relaxed));
        number("apply.ranges", self.counters.ranges.load(Relaxed));
        number("checkpoint.count", self.counters.checkpoints.load(Relaxed));
        number("checkpoint.durable_seq", self.read_durable().0);
        number("snapshots.taken", self.counters.views.load(Relaxed));
        number("write.waited_us", self.pressure.waited_us());
        number("tables.dropped_pending", self.writer.lock().dropped.len() as u64);
        number("cache.usage", self.built.cache.get_usage() as u64);
    }

    /// A merge of one table, by RocksDB, is not interrupted.
    fn maintain_while(&self, task: &Maintenance, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        self.check_open()?;
        let tables = match task {
            Maintenance::Verify(table) => table.as_slice(),
            Maintenance::Compact(tables) => tables.as_deref().unwrap_or_default(),
        };
        for table in tables {
            self.registry().check(*table)?;
        }
        match task {
            Maintenance::Verify(table) => self.verify(*table, goes_on),
            Maintenance::Compact(tables) => self.compact(tables.as_deref(), goes_on),
        }
    }

    fn backup(&self) -> Result<Box<dyn Backup>> {
        self.check_open()?;
        self.write_mark()?;
        let _log_first = self.log_first()?;
        Ok(Box::new(backup::create(&self.env, &self.db, self.next_name())?))
    }

    /// What merges have replaced is removed afterwards. The manifest only grows: what a copy has of it refers to files
    /// that were there.
    fn keep_files(&self, keep: bool) -> Result<()> {
        self.check_open()?;
        match keep {
            true => self.db.disable_file_deletions(),
            false => self.db.enable_file_deletions(),
        }
        .map_err(rocks_error("keep files"))
    }

    /// The files stay open, and the directory locked, until the engine and its last snapshot are dropped.
    fn close(&self, mode: CloseMode) -> Result<()> {
        let result = match mode {
            CloseMode::Checkpoint => self.checkpoint().map(|_| ()),
            CloseMode::Abandon => self.check_open(),
        };
        let writer = self.writer.lock();
        self.status.close();
        drop(self.current.lock().view.take());
        self.db.cancel_all_background_work(true);
        drop(writer);
        result
    }
}

fn info() -> EngineInfo {
    EngineInfo {
        name: "rocksdb",
        format_version: FORMAT_VERSION,
        capabilities: Capabilities {
            lock_granularity: LockGranularity::Document,
            concurrent_apply: false,
            hot_backup: true,
            checkpoint_cost: CheckpointCost::Changes,
            cheap_range_delete: true,
            ends_snapshots: false,
            compressors: &[],
        },
    }
}

/// Refuses what is not ours, and marks a new database as ours.
fn check_version(db: &DB, write_options: &WriteOptions) -> Result<()> {
    let reason = match db.get(VERSION_KEY).map_err(rocks_error("open"))? {
        Some(version) if version == FORMAT_VERSION.to_le_bytes() => return Ok(()),
        Some(version) => {
            format!("the directory has format version {version:02x?}, and this program knows {FORMAT_VERSION}")
        }
        None => {
            let mut iterator = db.raw_iterator();
            iterator.seek_to_first();
            iterator.status().map_err(rocks_error("open"))?;
            if !iterator.valid() {
                let mut batch = WriteBatch::new();
                batch.put(VERSION_KEY, FORMAT_VERSION.to_le_bytes());
                return db.write_opt(batch, write_options).map_err(rocks_error("open"));
            }
            "the directory holds a RocksDB database of another program".to_owned()
        }
    };
    Err(EngineError::Invalid {
        operation: "open",
        reason,
    })
}

fn read_registry(db: &DB) -> Result<Registry> {
    let mut registry = Registry::default();
    let mut iterator = db.raw_iterator();
    iterator.seek(TABLE_PREFIX);
    while let Some((key, value)) = iterator.item() {
        if !key.starts_with(TABLE_PREFIX) {
            break;
        }
        let (id, spec) = decode_table(key, value)
            .ok_or_else(|| corrupt(db, format!("the options under {key:02x?} cannot be read")))?;
        registry.insert(id, spec);
        iterator.next();
    }
    iterator.status().map_err(rocks_error("open"))?;
    Ok(registry)
}

fn table_of(op: &Op) -> TableId {
    match op {
        Op::Put(table, ..) | Op::Delete(table, _) | Op::DeleteRange(table, _) | Op::Add(table, ..) => *table,
        Op::CreateTable(table, _) | Op::DropTable(table) => *table,
    }
}

/// True when the table is to be made.
fn create_table(registry: &Registry, table: TableId, spec: &TableSpec) -> Result<bool> {
    check_table("apply", table)?;
    match registry.get(table) {
        None => Ok(true),
        Some(there) if there.kind == spec.kind => Ok(false),
        Some(there) => Err(invalid_batch(format!(
            "{table:?} exists as {:?}, not {:?}",
            there.kind, spec.kind
        ))),
    }
}

fn encode_row_op(op: &Op, stored: &mut Vec<u8>, out: &mut WriteBatch) -> Result<()> {
    match op {
        Op::Put(table, key, value) => {
            check_length("value", value.len(), VALUE_BYTES_MAX)?;
            check_length("key", key.len(), KEY_BYTES_MAX)?;
            put_key(*table, key, stored);
            out.put(&stored, value);
        }
        Op::Delete(table, key) => {
            check_length("key", key.len(), KEY_BYTES_MAX)?;
            put_key(*table, key, stored);
            out.delete(&stored);
        }
        Op::Add(table, key, amount) => {
            check_length("key", key.len(), KEY_BYTES_MAX)?;
            put_key(*table, key, stored);
            out.merge(&stored, amount.to_le_bytes());
        }
        Op::DeleteRange(..) | Op::CreateTable(..) | Op::DropTable(_) => {
            unreachable!("the caller handles ranges and tables")
        }
    }
    Ok(())
}

fn check_length(what: &str, length: usize, max: usize) -> Result<()> {
    if length <= max {
        Ok(())
    } else {
        Err(invalid_batch(format!(
            "a {what} of {length} bytes is longer than {max}"
        )))
    }
}

fn invalid_batch(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "apply",
        reason,
    }
}
