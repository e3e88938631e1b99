//! The engine: who may call what, and the order of the steps.

use crate::apply::Applier;
use crate::checkpoint::{self, Disk, Failure, Written};
use crate::compact::{compact_table, drop_free_files, is_worth_it};
use crate::database::database_of;
use crate::namespaces::{SLOT_BYTES, slots_for};
use crate::open;
use crate::options::Mmapv1Options;
use crate::room::no_room;
use crate::sealing::stored_page_bytes;
use crate::shared::Shared;
use crate::snapshot::Mmapv1Snapshot;
use crate::stats::{self, Counts};
use crate::table::Table;
use crate::{bulk, verify};
use engine::{
    Backup, Batch, Capabilities, CheckpointCost, CloseMode, CommonStats, Engine, EngineError, EngineInfo, ErrorKind,
    FailureHandler, HISTORY_PERCENT_DEFAULT, LockGranularity, Maintenance, MaintenanceReport, Result, Seq, Snapshot,
    StatValue, TableId, TableSpec, TableStats, WriteAhead, WriteAheadRule, check_wanted, history_bytes,
};
use parking_lot::{Condvar, Mutex};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vfs::Env;

const NAME: &str = "mmapv1";
/// A writer waits so long at a call of [`Engine::throttle`].
const THROTTLE: Duration = Duration::from_millis(5);
/// Where writers are refused, a checkpoint is tried again so often.
const FULL_RETRY: Duration = Duration::from_secs(5);

/// See the crate.
pub struct Mmapv1Engine {
    core: Arc<Core>,
    checkpointer: Mutex<Option<JoinHandle<()>>>,
}

/// What the engine shares with the thread that writes checkpoints when too much is dirty.
///
/// Lock order: `disk`, `applier`, then `kept` and those of [`Shared`].
struct Core {
    info: EngineInfo,
    shared: Arc<Shared>,
    applier: Mutex<Applier>,
    disk: Mutex<Disk>,
    durable: AtomicU64,
    write_ahead: WriteAheadRule,
    /// Those of the disk, to be read while a checkpoint is under way.
    written: Mutex<Written>,
    /// Something changed that no position tells of: a table was loaded.
    owes_checkpoint: AtomicBool,
    /// Space of files is given back by the next checkpoint, of which no position tells either, and which can wait.
    gives_back: AtomicBool,
    kept: Mutex<KeptFiles>,
    /// The last checkpoint found no room: writers need not wait for the next.
    is_stuck: AtomicBool,
    wanted: Mutex<Wanted>,
    changed: Condvar,
    batches: AtomicU64,
    operations: AtomicU64,
}

/// Files that lie as they are, for who copies them.
#[derive(Default)]
struct KeptFiles {
    /// How often they were asked for.
    count: usize,
    /// A checkpoint was taken since: somebody may be copying what it wrote.
    are_settled: bool,
}

/// What the checkpointer is to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Checkpoint,
    End,
}

impl Mmapv1Engine {
    /// Opens the engine on `directory`, which must exist and belong to this process alone. Damage is `Corrupt`.
    pub fn open(env: &Env, directory: &Path, options: Mmapv1Options) -> Result<Self> {
        let (shared, disk) = open::open(env, directory, options)?;
        let seq = disk.root.seq;
        let history = history_max(shared.options.cache_bytes, HISTORY_PERCENT_DEFAULT);
        let core = Arc::new(Core {
            info: info(),
            shared: Arc::new(shared),
            applier: Mutex::new(Applier::new(seq, history)),
            disk: Mutex::new(disk),
            durable: AtomicU64::new(seq.0),
            write_ahead: WriteAheadRule::default(),
            written: Mutex::default(),
            owes_checkpoint: AtomicBool::new(false),
            gives_back: AtomicBool::new(false),
            kept: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            wanted: Mutex::new(Wanted::Nothing),
            changed: Condvar::new(),
            batches: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        });
        let run = Arc::clone(&core);
        let thread = thread::Builder::new()
            .name("mmapv1-checkpoint".into())
            .spawn(move || run.write_when_wanted());
        let thread = thread.map_err(|source| EngineError::Io {
            operation: "start a thread for",
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self {
            core,
            checkpointer: Mutex::new(Some(thread)),
        })
    }

    fn end_checkpointer(&self) {
        *self.core.wanted.lock() = Wanted::End;
        self.core.changed.notify_all();
        if let Some(thread) = self.checkpointer.lock().take() {
            // It panics on broken logic alone, and has said so.
            let _ = thread.join();
        }
    }
}

impl Drop for Mmapv1Engine {
    fn drop(&mut self) {
        self.end_checkpointer();
    }
}

impl Core {
    /// A checkpoint begins beyond this many dirty bytes; writers wait beyond twice as many.
    fn dirty_aim(&self) -> u64 {
        self.shared.options.cache_bytes / 4
    }

    fn write_when_wanted(&self) {
        let mut wanted = self.wanted.lock();
        loop {
            match *wanted {
                Wanted::End => return,
                Wanted::Nothing if self.is_stuck.load(Relaxed) => {
                    let waited = self.changed.wait_for(&mut wanted, FULL_RETRY);
                    // Nobody writes then, and so nobody asks for it.
                    if waited.timed_out() && *wanted == Wanted::Nothing && self.is_full() {
                        *wanted = Wanted::Checkpoint;
                    }
                }
                Wanted::Nothing => self.changed.wait(&mut wanted),
                Wanted::Checkpoint => {
                    *wanted = Wanted::Nothing;
                    drop(wanted);
                    // A failure is told to who asks for a checkpoint next, or has stopped the engine.
                    self.is_stuck.store(self.checkpoint_unasked().is_err(), Relaxed);
                    wanted = self.wanted.lock();
                    self.changed.notify_all();
                }
            }
        }
    }

    fn want_checkpoint(&self) {
        let mut wanted = self.wanted.lock();
        if *wanted == Wanted::Nothing {
            *wanted = Wanted::Checkpoint;
            self.changed.notify_all();
        }
    }

    /// As much as the cache is to hold is dirty, and the disk has no room for it.
    fn is_full(&self) -> bool {
        self.is_stuck.load(Relaxed) && self.shared.cache.dirty_bytes() > self.shared.options.cache_bytes
    }

    /// Holds a load or a compaction up while too much is dirty, which it could do without end. A compaction says
    /// whether it `goes_on`, and does not wait where no checkpoint comes because files are to lie as they are; a load
    /// does.
    ///
    /// Errors: those of a checkpoint, without which it cannot go on, and `Interrupted`.
    fn pace(&self, goes_on: Option<&dyn Fn() -> bool>) -> Result<()> {
        while self.shared.cache.dirty_bytes() > 2 * self.dirty_aim() {
            if let Some(goes_on) = goes_on {
                check_wanted(goes_on)?;
            }
            // No position tells of it: a checkpoint would find nothing to do where nobody else writes.
            self.owes_checkpoint.store(true, Relaxed);
            if self.is_stuck.load(Relaxed) {
                self.checkpoint_unasked()?;
            }
            if goes_on.is_some() && self.kept.lock().count > 0 {
                // No checkpoint comes before somebody has copied the files.
                break;
            }
            if self.throttle() {
                break;
            }
        }
        Ok(())
    }

    fn throttle(&self) -> bool {
        if self.shared.cache.dirty_bytes() <= 2 * self.dirty_aim() || self.is_stuck.load(Relaxed) {
            return true;
        }
        self.want_checkpoint();
        let mut wanted = self.wanted.lock();
        if *wanted != Wanted::End {
            self.changed.wait_for(&mut wanted, THROTTLE);
        }
        self.shared.check_open().is_err()
    }

    fn checkpoint(&self) -> Result<Seq> {
        let mut disk = self.disk.lock();
        let seq = self.checkpoint_on(&mut disk)?;
        let mut kept = self.kept.lock();
        kept.are_settled = kept.count > 0;
        Ok(seq)
    }

    /// A checkpoint of the engine's own accord: none while files are to lie as they are.
    fn checkpoint_unasked(&self) -> Result<()> {
        let mut disk = self.disk.lock();
        // Under the lock of the disk: whoever copies takes a checkpoint first, and none may begin behind that one.
        if self.kept.lock().count > 0 {
            return Ok(());
        }
        self.checkpoint_on(&mut disk).map(drop)
    }

    fn checkpoint_on(&self, disk: &mut Disk) -> Result<Seq> {
        let (cut, has_more) = {
            let mut applier = self.applier.lock();
            // Under the applier: a batch waited for may have failed half way, and no half of one may become durable.
            self.shared.check_open()?;
            let seq = applier.last.max(self.shared.pins.published());
            let gives_back = self.gives_back.load(Relaxed) && !self.kept.lock().are_settled;
            if seq.0 == self.durable.load(Relaxed) && !self.owes_checkpoint.load(Relaxed) && !gives_back {
                return Ok(seq);
            }
            applier.sweep_history(&self.shared);
            self.owes_checkpoint.store(false, Relaxed);
            self.gives_back.store(false, Relaxed);
            let cut = checkpoint::draw(&self.shared, &mut applier);
            (cut, applier.has_released())
        };
        match checkpoint::write(&self.shared, disk, &cut, &self.write_ahead) {
            Ok(()) => {
                self.durable.store(cut.seq.0, Relaxed);
                *self.written.lock() = disk.written;
                self.is_stuck.store(false, Relaxed);
                if has_more {
                    // The rest of what was dropped goes with the next ones.
                    self.gives_back.store(true, Relaxed);
                    self.want_checkpoint();
                }
                Ok(cut.seq)
            }
            Err(Failure::Harmless(error)) => {
                checkpoint::undo(&self.shared, cut);
                self.owes_checkpoint.store(true, Relaxed);
                Err(error)
            }
            Err(Failure::Fatal(error)) => {
                self.shared.status.stop(format!("a checkpoint failed: {error}"));
                Err(error)
            }
        }
    }

    fn tables_for(&self, ids: Option<&[TableId]>) -> Result<Vec<Arc<Table>>> {
        match ids {
            Some(ids) => ids.iter().map(|id| self.shared.live_table(*id)).collect(),
            None => Ok(self
                .shared
                .all_tables()
                .into_iter()
                .filter(|table| table.is_live())
                .collect()),
        }
    }

    fn verify(&self, table: Option<TableId>, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        let mut report = MaintenanceReport::default();
        for table in self.tables_for(table.as_ref().map(std::slice::from_ref))? {
            verify::verify_table(&self.shared, &table, goes_on, &mut report)?;
            verify::verify_disk(&table, &self.disk, goes_on, &mut report)?;
        }
        if table.is_none() {
            for database in self.shared.all_databases() {
                let checked = database.space.lock().check();
                report
                    .problems
                    .extend(checked.err().map(|problem| format!("{}: {problem}", database.name)));
            }
        }
        Ok(report)
    }

    fn compact(&self, ids: Option<&[TableId]>, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        let file_bytes = || -> u64 {
            let files = self
                .shared
                .all_databases()
                .into_iter()
                .flat_map(|database| database.files());
            files
                .map(|file| u64::from(file.pages) * stored_page_bytes(file.sealing.is_some()))
                .sum()
        };
        let before = file_bytes();
        let out_of_space = match self.compact_tables(ids, goes_on) {
            Ok(()) => None,
            // No more is copied, and files in which nothing is left can go all the same.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => Some(error),
            Err(error) => return Err(error),
        };
        let dropped = {
            let mut applier = self.applier.lock();
            applier.sweep_all(&self.shared);
            drop_free_files(&self.shared)
        };
        let mut written = Ok(());
        if dropped {
            self.gives_back.store(true, Relaxed);
            written = self.checkpoint_unasked();
        }
        if let Some(error) = out_of_space {
            return Err(error);
        }
        written?;
        Ok(MaintenanceReport {
            bytes_freed: before.saturating_sub(file_bytes()),
            ..MaintenanceReport::default()
        })
    }

    /// Copies those of the tables, or of all, that are worth it.
    fn compact_tables(&self, ids: Option<&[TableId]>, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let is_wanted = |table: &Table| table.is_live() && is_worth_it(table);
        for table in self.tables_for(ids)? {
            check_wanted(goes_on)?;
            self.shared.check_open()?;
            if !is_wanted(&table) {
                continue;
            }
            // Each copy may make as much dirty as one table's may be.
            self.pace(Some(goes_on))?;
            let mut applier = self.applier.lock();
            self.shared.check_open()?;
            // Batches came while it waited.
            if is_wanted(&table) {
                match compact_table(&self.shared, &mut applier, &table, self.dirty_aim()) {
                    // Asked for all, it does what it can.
                    Err(error) if error.kind() == ErrorKind::Unsupported && ids.is_none() => {}
                    done => done?,
                }
            }
        }
        Ok(())
    }
}

impl Engine for Mmapv1Engine {
    fn info(&self) -> &EngineInfo {
        &self.core.info
    }

    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>> {
        let shared = &self.core.shared;
        shared.check_open()?;
        let published = shared.pins.published();
        let tables = shared.all_tables();
        let live = tables.iter().filter(|table| table.exists_at(published));
        Ok(live.map(|table| (table.id, table.spec.clone())).collect())
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.core.shared.check_open()?;
        Ok(Arc::new(Mmapv1Snapshot::new(&self.core.shared)))
    }

    /// Descriptors where a database is new.
    fn prepare_tables(&self, specs: &[TableSpec]) -> Result<()> {
        let shared = &self.core.shared;
        shared.check_open()?;
        let mut new: Vec<_> = specs.iter().map(|spec| database_of(&spec.name)).collect();
        new.sort_unstable();
        new.dedup();
        let databases = shared.databases.read();
        new.retain(|name| !databases.contains_key(*name));
        drop(databases);
        shared.prepare_databases(&new)
    }

    /// Room in the namespace file, and the quota; for a new database descriptors beside those that are kept for others.
    fn check_new_table(&self, spec: &TableSpec) -> Result<()> {
        let shared = &self.core.shared;
        shared.check_open()?;
        let slots = slots_for(spec).ok_or_else(|| EngineError::Invalid {
            operation: "create a table",
            reason: format!("a name of {} bytes is too long", spec.name.len()),
        })?;
        let name = database_of(&spec.name);
        let Some(database) = shared.databases.read().get(name).cloned() else {
            return shared.check_descriptors();
        };
        let used = database.namespaces.lock().used_bytes() + (slots * SLOT_BYTES) as u64;
        if used > shared.options.namespace_bytes {
            let bytes = shared.options.namespace_bytes;
            return Err(no_room(format!(
                "the namespace file of database {name} is full: it has {bytes} bytes (nsSize)"
            )));
        }
        let has_all_files = shared
            .options
            .files_per_database_max
            .is_some_and(|max| database.file_count() >= max as usize);
        if has_all_files && database.space.lock().largest_free_run() == 0 {
            return Err(no_room(format!(
                "quota exceeded: database {name} has all its files (maxFilesPerDB)"
            )));
        }
        Ok(())
    }

    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()> {
        let core = &self.core;
        {
            let mut applier = core.applier.lock();
            core.shared.check_open()?;
            core.batches.fetch_add(1, Relaxed);
            core.operations.fetch_add(batch.ops().len() as u64, Relaxed);
            applier
                .apply(&core.shared, batch, seq)
                .inspect_err(|error| core.shared.status.stop(format!("a batch failed: {error}")))?;
        }
        if core.shared.cache.dirty_bytes() > core.dirty_aim() && !core.is_stuck.load(Relaxed) {
            core.want_checkpoint();
        }
        Ok(())
    }

    fn set_history_percent(&self, percent: u32) {
        let max = history_max(self.core.shared.options.cache_bytes, percent);
        self.core.applier.lock().set_history_max(max);
    }

    fn throttle(&self) -> bool {
        self.core.throttle()
    }

    fn is_full(&self) -> bool {
        self.core.is_full()
    }

    fn publish(&self, seq: Seq) {
        self.core.shared.pins.publish(seq);
    }

    fn set_write_ahead(&self, log: WriteAhead) {
        self.core.write_ahead.set(log);
    }

    fn set_failure_handler(&self, handler: FailureHandler) {
        self.core.shared.status.set_failure_handler(handler);
    }

    fn durable_seq(&self) -> Seq {
        Seq(self.core.durable.load(Relaxed))
    }

    fn checkpoint(&self) -> Result<Seq> {
        self.core.checkpoint()
    }

    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, _seq: Seq) -> Result<u64> {
        let core = &self.core;
        core.shared.check_open()?;
        let pace = || core.pace(None);
        let loaded = bulk::load(&core.shared, &core.applier, table, rows, &pace)?;
        core.owes_checkpoint.store(true, Relaxed);
        Ok(loaded)
    }

    fn table_stats(&self, table: TableId) -> Result<TableStats> {
        self.core.shared.check_open()?;
        let table = self.core.shared.live_table(table)?;
        let state = table.state.read();
        let storage_bytes = state.store.storage_bytes();
        Ok(TableStats {
            storage_bytes,
            free_bytes: storage_bytes.saturating_sub(state.store.used_bytes),
            memory_bytes: state.history.bytes() as u64,
        })
    }

    fn table_details(&self, table: TableId, sink: &mut dyn FnMut(&str, StatValue)) -> Result<()> {
        self.core.shared.check_open()?;
        stats::table_details(&*self.core.shared.live_table(table)?, sink);
        Ok(())
    }

    fn database_details(&self, database: &str, sink: &mut dyn FnMut(&str, StatValue)) {
        stats::database_details(&self.core.shared, database, sink);
    }

    /// The quota: a database that has all its files grows no further than they have room.
    fn check_growth(&self, table: TableId, bytes: usize) -> Result<()> {
        let shared = &self.core.shared;
        let Some(files_max) = shared.options.files_per_database_max else {
            return Ok(());
        };
        let table = shared.live_table(table)?;
        if table.database.file_count() < files_max as usize || table.has_room_for(bytes) {
            return Ok(());
        }
        Err(no_room(format!(
            "quota exceeded: database {} has its {files_max} files (maxFilesPerDB)",
            table.database.name
        )))
    }

    fn common_stats(&self) -> CommonStats {
        let history_bytes = self.core.applier.lock().history_bytes() as u64;
        stats::common(&self.core.shared, history_bytes)
    }

    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue)) {
        let core = &self.core;
        let (history_bytes, pending, ended) = {
            let applier = core.applier.lock();
            (
                applier.history_bytes() as u64,
                applier.pending() as u64,
                applier.ended(),
            )
        };
        let counts = Counts {
            batches: core.batches.load(Relaxed),
            operations: core.operations.load(Relaxed),
            history_bytes,
            pending,
            ended,
            durable_seq: self.durable_seq().0,
            dirty_max: 2 * core.dirty_aim(),
            written: *core.written.lock(),
        };
        stats::engine_stats(&core.shared, &counts, sink);
    }

    fn maintain_while(&self, task: &Maintenance, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport> {
        self.core.shared.check_open()?;
        match task {
            Maintenance::Verify(table) => self.core.verify(*table, goes_on),
            Maintenance::Compact(tables) => self.core.compact(tables.as_deref(), goes_on),
        }
    }

    fn backup(&self) -> Result<Box<dyn Backup>> {
        self.core.shared.check_open()?;
        Err(EngineError::Unsupported {
            engine: NAME,
            operation: "backup",
        })
    }

    /// The files change in checkpoints alone: the engine takes none by itself, and one that is asked for at the
    /// position of the one before gives nothing back.
    fn keep_files(&self, keep: bool) -> Result<()> {
        let core = &self.core;
        core.shared.check_open()?;
        let mut kept = core.kept.lock();
        if keep {
            kept.count += 1;
            return Ok(());
        }
        kept.count -= 1;
        if kept.count == 0 {
            kept.are_settled = false;
            drop(kept);
            if core.owes_checkpoint.load(Relaxed) || core.gives_back.load(Relaxed) {
                core.want_checkpoint();
            }
        }
        Ok(())
    }

    fn close(&self, mode: CloseMode) -> Result<()> {
        let result = match mode {
            CloseMode::Checkpoint => self.checkpoint().map(|_| ()),
            CloseMode::Abandon => self.core.shared.check_open(),
        };
        self.core.shared.status.close();
        self.end_checkpointer();
        result
    }
}

fn info() -> EngineInfo {
    EngineInfo {
        name: NAME,
        format_version: crate::files::FORMAT_VERSION,
        capabilities: Capabilities {
            lock_granularity: LockGranularity::Collection,
            concurrent_apply: false,
            hot_backup: false,
            checkpoint_cost: CheckpointCost::Changes,
            cheap_range_delete: false,
            compressors: &[],
            ends_snapshots: true,
        },
    }
}

fn history_max(cache_bytes: u64, percent: u32) -> usize {
    usize::try_from(history_bytes(cache_bytes, percent)).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "engine_impl_tests.rs"]
mod tests;
