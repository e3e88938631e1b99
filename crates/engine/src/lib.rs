//! The storage-engine API: an ordered store of bytes with atomic batches, snapshots and a durable mark.
//!
//! It knows no BSON, no replication, no locks. The log above it (crate `oplog`) makes writes durable; an engine only
//! promises that what it has on disk is the exact fold of the log up to its [`Engine::durable_seq`], over all tables
//! together, table creation and removal included: those are operations in a [`Batch`] like any other.
//!
//! Every "must" in this crate's documentation has a named test in `engine-tests`.

mod batch;
mod common_stats;
mod error;
mod info;
mod range;
mod rows;
mod sampling;
mod status;
mod table;
mod write_ahead;

pub use batch::{Batch, Op};
pub use common_stats::CommonStats;
pub use error::{EngineError, ErrorKind, Result, check_wanted};
pub use info::{Capabilities, CheckpointCost, EngineInfo, LockGranularity};
pub use range::{Direction, KeyRange, successor_of_prefix};
pub use rows::{FillLimits, PageIndex, Rows};
pub use sampling::{SampledRange, Sampling, estimate_by_sampling};
pub use status::{EngineStatus, FailureHandler};
pub use table::{Seq, TableId, TableKind, TableSpec};
pub use write_ahead::{WriteAhead, WriteAheadRule};

use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest key in bytes: an index key may hold a whole document, as MongoDB allows since 4.2.
pub const KEY_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;
/// Longest value in bytes: a document of 16 MiB and 16 KiB for what the server adds.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024 + 16 * 1024;

/// See [`Engine::set_history_percent`].
pub const HISTORY_PERCENT_DEFAULT: u32 = 20;
/// So much may be kept for snapshots, however small the memory; nothing with a percentage of 0.
const HISTORY_BYTES_MIN: u64 = 4 << 20;

/// What [`Engine::set_history_percent`] comes to, of so much memory.
pub fn history_bytes(memory_bytes: u64, percent: u32) -> u64 {
    match percent {
        0 => 0,
        _ => (memory_bytes / 100 * u64::from(percent)).max(HISTORY_BYTES_MIN),
    }
}

/// A storage engine, opened on its directory. Object-safe; shared by all threads.
pub trait Engine: Send + Sync {
    /// Name, format version and abilities. Constant while open.
    fn info(&self) -> &EngineInfo;

    /// The live tables as of the newest published `Seq`, by id.
    fn tables(&self) -> Result<Vec<(TableId, TableSpec)>>;

    /// A view of all tables at the newest published `Seq`, or at a later applied one where [`Engine::apply`] makes
    /// batches visible at once; [`Snapshot::seq`] **must** tell which, exactly. The view **must** not change
    /// afterwards, whatever is applied, and **must** keep rows of a table dropped later readable. Cheap (well under a
    /// microsecond is the aim).
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Does what may fail about creating tables: files of their own are made and opened here, not in
    /// [`Engine::apply`], which **must not** fail for want of them. Called before the log gets the entry that creates
    /// the tables, all of them, one caller at a time, and followed by that batch or by nothing; nothing of the tables
    /// is to be seen meanwhile, and only the last call counts.
    ///
    /// Errors: `OutOfSpace` (of file descriptors too), `Io`; everything is as it was then.
    fn prepare_tables(&self, _specs: &[TableSpec]) -> Result<()> {
        Ok(())
    }

    /// Puts a batch into the engine as of `seq`. Blind: never reads to obey. Calls come in rising `Seq` order, one at a
    /// time unless `Capabilities::concurrent_apply`; a `seq` may be left out. The batch **must** become visible as a
    /// whole, to snapshots taken after [`Engine::publish`] of its `seq` or a later one. Engines without
    /// `concurrent_apply` may make it visible at once. The engine **must not** keep the batch's buffers after the call:
    /// the caller may hand in slices of a larger buffer and reuse it. It **must not** wait for memory or for background
    /// work: writers do that in [`Engine::throttle`], before they take the lock under which they call this.
    ///
    /// Errors: `Invalid` for a `seq` that does not rise, an operation on a table that does not exist, a key or value
    /// beyond its limit, a table that exists as another kind. A caller that keeps the rules sees none. After an error
    /// the engine is poisoned (part of the batch may be in): every later call **must** answer `Closed`.
    fn apply(&self, batch: &Batch, seq: Seq) -> Result<()>;

    /// Bounds what is kept in memory for open snapshots to this part of the engine's memory, in percent, from now on;
    /// it is [`HISTORY_PERCENT_DEFAULT`] after opening. See [`Snapshot`]. An engine whose snapshots last whatever they
    /// hold ([`Capabilities::ends_snapshots`] is false) keeps nothing in memory for them. [`history_bytes`] tells what
    /// that comes to.
    fn set_history_percent(&self, percent: u32);

    /// Back-pressure: a writer calls it before it begins what ends in [`Engine::apply`], with no lock held, as long as
    /// it answers false; between two calls the caller looks whether it was interrupted. Where the engine falls behind,
    /// it waits in proportion, at most 10 ms a call. It **must** answer true after finitely many calls when nobody
    /// writes, and it **must not** wait for memory that nothing can free. An engine that never falls behind answers
    /// true at once.
    fn throttle(&self) -> bool {
        true
    }

    /// Whether the engine has as much in memory as it may and the disk has no room for it: who begins a write is then
    /// refused. It **must** try by itself whether there is room again. Never, by default.
    fn is_full(&self) -> bool {
        false
    }

    /// Makes everything applied at or below `seq` visible to new snapshots. The caller has applied all of it; `seq` may
    /// lie above the last batch when log entries came between that concern no engine. Going back is ignored.
    fn publish(&self, seq: Seq);

    /// Hands in the log's side of the write-ahead rule, once, before the first batch. From then on the engine **must
    /// not** make a state durable before it has called `log` with the `Seq` the state stands at, or a later one, and
    /// got no error: not by [`Engine::checkpoint`], between drawing the cut and committing it, nor by
    /// [`Engine::close`], by maintenance, by a backup, or on its own. Otherwise a crash could leave an engine ahead of
    /// its log, and a hole in the log's history. An error of `log` is the error of the call that needed it, and leaves
    /// the durable mark where it was. Without a log nothing is handed in, and nothing waits.
    fn set_write_ahead(&self, log: WriteAhead);

    /// Hands in who is told why the engine stopped, once, before the first batch. An engine that is poisoned, by a call
    /// or by work of its own, **must** tell at once: until another call meets the error nobody would know. At once,
    /// too, where that was before this call; never of [`Engine::close`].
    fn set_failure_handler(&self, handler: FailureHandler);

    /// The newest `Seq` whose fold would be found after a crash now; `Seq::ZERO` when nothing is.
    fn durable_seq(&self) -> Seq;

    /// Makes everything published at the time of the call durable, the log first ([`Engine::set_write_ahead`]), and
    /// returns the new durable mark (`Seq::ZERO` from an engine that keeps nothing, [`CheckpointCost::Never`]). Runs
    /// beside `apply` without blocking it. With nothing new to keep it **must** write nothing. A sync that fails
    /// **must** poison the engine. `OutOfSpace` leaves the checkpoint before as it was; whether the engine goes on when
    /// space returns, or must be reopened, is its own affair.
    fn checkpoint(&self) -> Result<Seq>;

    /// Fills an empty, freshly created table from strictly rising keys, faster than batches would, and returns the
    /// number of rows. Runs beside `apply`; until it returns and `seq` is published nobody else reads or writes the
    /// table. The rows belong to `seq`, which lies at or above the table's creation: snapshots at or above it, taken
    /// after the return, **must** see all of them. After a crash **either all or none** of them **must** be there, and
    /// all of them once a [`Engine::checkpoint`] that began after the return has succeeded. Unsorted or duplicate keys,
    /// a row beyond its limit, or a table that is not empty are `Invalid`; the table is then as it was and the engine
    /// goes on.
    fn bulk_load(&self, table: TableId, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, seq: Seq) -> Result<u64>;

    /// Bytes a table takes, see [`TableStats`].
    fn table_stats(&self, table: TableId) -> Result<TableStats>;

    /// What this engine alone can tell of a table, by dotted name, for `collStats`; names ending in `Size` are bytes.
    /// Nothing by default.
    fn table_details(&self, _table: TableId, _sink: &mut dyn FnMut(&str, StatValue)) -> Result<()> {
        Ok(())
    }

    /// What this engine alone can tell of the files of a database, as [`Engine::table_details`], for `dbStats`.
    /// Nothing by default.
    fn database_details(&self, _database: &str, _sink: &mut dyn FnMut(&str, StatValue)) {}

    /// Whether such a table may be made: limits that were configured allow it, and its files leave the descriptors that
    /// are kept for what cannot wait. Asked before [`Engine::prepare_tables`], by who decides that there shall be one:
    /// what others have decided is applied whatever this says, and so a limit may be passed by what they make, and by
    /// what was under way. Yes by default.
    ///
    /// Errors: `OutOfSpace` for a limit, `Invalid` for a name that cannot be kept.
    fn check_new_table(&self, _spec: &TableSpec) -> Result<()> {
        Ok(())
    }

    /// Whether a table may grow by a row of so many bytes. Asked before the log gets the entry, by who inserts: what
    /// is in the log is applied whatever this says, so a limit may be passed by what was under way. Yes by default.
    ///
    /// Errors: `OutOfSpace` for a limit that was configured, or for a full disk.
    fn check_growth(&self, _table: TableId, _bytes: usize) -> Result<()> {
        Ok(())
    }

    /// The figures that engines have in common, for `serverStatus` and all that reads it.
    fn common_stats(&self) -> CommonStats;

    /// Counters of the whole engine, by dotted name, for `serverStatus`: what it counts beyond
    /// [`Engine::common_stats`], too.
    fn stats(&self, sink: &mut dyn FnMut(&str, StatValue));

    /// Maintenance, as long as `goes_on`, which is asked often: it may take hours. What the engine cannot do is
    /// `Unsupported`, never a silent no-op.
    ///
    /// Errors: `Interrupted` when it was ended by `goes_on`; what was done until then stays done.
    fn maintain_while(&self, task: &Maintenance, goes_on: &dyn Fn() -> bool) -> Result<MaintenanceReport>;

    /// As [`Engine::maintain_while`], to its end.
    fn maintain(&self, task: &Maintenance) -> Result<MaintenanceReport> {
        self.maintain_while(task, &|| true)
    }

    /// Pins a checkpoint and lists the files that hold it. `Unsupported` where `Capabilities::hot_backup` is false.
    fn backup(&self) -> Result<Box<dyn Backup>>;

    /// For copies of files as they lie, one by one, while nobody writes: no file that is there goes, and of its own
    /// accord, or for [`Engine::maintain`], the engine writes to none behind the next checkpoint. Counted: that lasts
    /// until it was called with false as often as with true. Nothing to do for an engine that removes files only in a
    /// checkpoint that has something to write, and takes none by itself.
    fn keep_files(&self, _keep: bool) -> Result<()> {
        Ok(())
    }

    /// Stops background work. With `CloseMode::Checkpoint` everything published is durable on return and reopening
    /// needs no replay. Later calls **must** answer `Closed`; snapshots and cursors that are still open may go on or
    /// answer it.
    fn close(&self, mode: CloseMode) -> Result<()>;
}

/// A consistent view of all tables. Dropping it releases what it pins.
///
/// An engine that keeps in memory what old snapshots see may bound that, and end the oldest snapshot when it takes
/// more: from then on every call on it and on its cursors **must** answer [`EngineError::SnapshotTooOld`], and none of
/// them anything wrong before. A snapshot at the newest published position **must not** be ended, nor the engine's own,
/// from which a checkpoint is written.
pub trait Snapshot: Send + Sync {
    /// The `Seq` the view stands at.
    fn seq(&self) -> Seq;

    /// The value of a key, `None` when there is none. A table that does not exist in the view is `NoSuchTable`.
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>>;

    /// Says which keys of a table will be asked for next, in rising order, so that an engine can have its disk read
    /// what they lie in at once, and not one after the other. A hint: it changes no answer, and no error is told.
    fn expect(&self, _table: TableId, _keys: &[&[u8]]) {}

    /// A cursor over a range of a table, standing before the first row in its direction. It keeps the snapshot alive,
    /// so that a plan can hold view and cursor side by side.
    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>>;

    /// Estimated rows and bytes of a range, and up to `splits` sorted keys inside it that part it into about equal
    /// shares.
    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate>;
}

/// Reads rows in key order, a batch at a time.
pub trait Cursor: Send {
    /// Moves so that the next row is the first one at or after `key` in the cursor's direction, within its range.
    fn seek(&mut self, key: &[u8]) -> Result<()>;

    /// Clears `rows` and appends the next rows until a limit is reached (always at least one row when one is left,
    /// however large). Returns false when nothing is left, and then `rows` is empty.
    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool>;
}

/// See [`Snapshot::estimate`].
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    /// Rows, about.
    pub rows: u64,
    /// Key and value bytes, about.
    pub bytes: u64,
    /// Split keys, strictly rising, all inside the range.
    pub split_keys: Vec<Vec<u8>>,
}

/// Space a table takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Bytes on disk (estimated where tables share files); 0 for memory-only engines.
    pub storage_bytes: u64,
    /// Of those, bytes that could be reused.
    pub free_bytes: u64,
    /// Bytes held in memory for it, when known.
    pub memory_bytes: u64,
}

/// A value handed to the sink of [`Engine::stats`].
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A counter or gauge.
    Number(i64),
    /// A ratio or a time.
    Float(f64),
    /// Free text.
    Text(String),
}

/// What [`Engine::maintain`] shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// Check every block and the order of every key of a table (`None`: of all).
    Verify(Option<TableId>),
    /// Give space back, of these tables or of all. One call for tables that belong together: where tables share files,
    /// each call works on the files as a whole.
    Compact(Option<Vec<TableId>>),
}

/// What [`Engine::maintain`] found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceReport {
    /// Damage found, one sentence each; empty when clean.
    pub problems: Vec<String>,
    /// Rows looked at.
    pub rows_checked: u64,
    /// Bytes given back.
    pub bytes_freed: u64,
}

/// How [`Engine::close`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Make everything durable first.
    Checkpoint,
    /// Stop where it stands, as a crash would.
    Abandon,
}

/// A pinned checkpoint; its files stay as they are until it is dropped.
pub trait Backup: Send {
    /// The `Seq` of the checkpoint.
    fn seq(&self) -> Seq;
    /// The directory the files lie in, relative to the engine's own. A copy of the files, under their names below this
    /// directory, is an engine's directory again.
    fn root(&self) -> PathBuf {
        PathBuf::new()
    }
    /// Files to copy, relative to [`Backup::root`], each with the number of bytes that belong to the checkpoint.
    fn files(&self) -> Vec<(PathBuf, u64)>;
}
