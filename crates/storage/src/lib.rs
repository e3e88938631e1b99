//! Catalog, records, indexes, locks and the write path from evaluation over the log to the engine.
//!
//! The layer between the query language and the engines. It knows documents, record ids, index keys and locks; it knows
//! no commands, no query operators (a partial index's filter comes compiled, as a [`Predicate`]) and no files: the log
//! (`oplog`) and the engine keep what it gives them.
//!
//! Reading the source: `storage.rs` is what everything shares; `write.rs` evaluates changes under locks; `commit.rs`
//! gives them their place in the log and takes them into the engine once they stay, `pending.rs` tells of them until
//! then; `index_keys.rs` turns a change into index rows; `entry.rs` is the log entry, `diff.rs` what an update
//! changed; `effect.rs` is what a unit does, `fold.rs` what an entry does that `recovery.rs` reads back; `ddl.rs`,
//! `build.rs` and `apply.rs` change definitions; `transaction.rs` holds a unit between statements, `transaction_ddl.rs`
//! what it defines, `sessions.rs` remembers what was sent, `consensus.rs` has the log agreed on; `backup.rs` pins what
//! is to be copied; `locks/` is `docs/locks.md` in code.
//!
//! Invariant: the engine's state at `Seq` s is the fold of `fold.rs` over the log's entries up to s.

mod apply;
mod awaited_states;
mod awaited_times;
mod background;
mod backup;
mod barrier;
mod build;
mod capped;
mod capped_evict;
mod catalog;
mod catalog_change;
mod checkpoint;
mod clone;
mod cluster_time;
mod clustered;
mod collection_change;
mod collection_guard;
mod commit;
mod configuration;
mod consensus;
mod consistency;
mod counts;
mod ddl;
mod definition;
mod diff;
mod driver;
mod duplicate_key;
mod duplicates;
mod effect;
mod entry;
mod entry_reader;
mod entry_text;
mod error;
mod failure;
mod flow_control;
mod fold;
mod follow;
mod history;
mod index_keys;
mod index_rows;
mod index_signature;
mod interrupt;
pub mod limits;
mod local_capped;
mod log_damage;
mod log_sync;
mod membership;
mod memory;
mod mutations;
mod namespace;
mod next_record;
mod notes;
mod operation;
mod overlay;
mod overlay_view;
mod pending;
mod pinned;
mod pipeline;
mod points;
mod predicate;
mod read;
mod record;
mod recovery;
mod remake;
mod report;
mod requests;
mod reserved;
mod script_limits;
mod session_key;
mod sessions;
mod standing;
mod statements;
mod stats;
mod storage;
mod table_options;
mod temporary;
mod timeseries;
mod transaction;
mod transaction_ddl;
mod ttl;
mod user_writes;
mod validate;
mod voter;
mod write;

#[cfg(test)]
mod simulator;
#[cfg(test)]
mod testing;

pub use awaited_states::AwaitedState;
pub use backup::StorageBackup;
pub use barrier::WriteBarrier;
pub use build::CreateIndexesReport;
pub use capped::{CappedLimits, CappedWaiter};
pub use catalog::Catalog;
pub use catalog::collection::{Collection, View};
pub use catalog::index::{Index, IndexSpec};
pub use catalog::timeseries::{BUCKETS_PREFIX, Granularity, TimeseriesOptions, buckets_namespace};
pub use catalog::validation::{Validation, ValidationAction, ValidationLevel};
pub use catalog_change::{CatalogChange, CatalogChangeHandler};
pub use clone::{CloneHeader, CloneRows, CloneRowsSource, CloneSource, FillOptions, fill_from_clone};
pub use cluster_time::ClusterTime;
pub use collection_change::{CollectionChange, IndexChange, ViewChange};
pub use collection_guard::CollectionGuard;
pub use ddl::DropReport;
pub use diff::{Target, Targets};
pub use driver::{Outlet, TRANSFER_PATIENCE};
pub use engine::{Direction, Estimate, FillLimits, KeyRange, Seq};
pub use entry_text::{TableNames, describe_entry};
pub use error::{DuplicateKey, StorageError};
pub use failure::FailureHandler;
pub use flow_control::{FlowControl, FlowControlFigures};
pub use history::{
    DOCUMENT_OPERATION_BYTES_MAX, HistoryChange, HistoryExtent, HistoryOperation, HistoryReader, HistorySession,
    HistoryUnit, LogPoint, OPLOG, document_key, log_points,
};
pub use interrupt::{Interrupted, KillFlag};
pub use keys::MultikeyPaths;
pub use local_capped::{LocalCapped, LocalNext};
pub use locks::{CollectionLockState, LevelStats, LockMode, LockStats, ModeStats};
pub use log_damage::LogDamageHandler;
pub use membership::Membership;
pub use memory::{Charge, MemoryAccount, MemoryBudget, MemoryExceeded};
pub use namespace::{Namespace, check_database_name};
pub use operation::{Counter, LockCounters, Operation, OperationCounters, RunPermit, SpillCounters, Spilling};
pub use pinned::PinnedView;
pub use points::AppliedPoint;
pub use predicate::{Check, NoPartialIndexes, Predicate, PredicateCompiler};
pub use read::{IndexBatch, IndexCursor, ReadView, RecordBatch, RecordCursor};
pub use record::{RecordId, RecordIds, RecordKey};
pub use repl::{Message, Role};
pub use report::{CollectionStats, CompactReport, IndexReport, IndexStats, ValidateReport};
pub use script_limits::{SCRIPT_CALL_MS_MAX, SCRIPT_HEAP_BYTES_MAX, ScriptLimits};
pub use session_key::{Kept, SessionKey};
pub use sessions::{SessionRecord, StatementKind, StatementResult};
pub use standing::{ElectionReason, MemberProgress, Standing};
pub use stats::StorageStats;
pub use storage::{
    ApplyWaitHandler, CheckpointFailureHandler, LogShortage, LogShortageHandler, ProgressHandler, RecoveryProgress,
    Storage, StorageOptions,
};
pub use table_options::table_compressor;
pub use temporary::{Temporary, TemporaryName};
pub use timeseries::{NewTimeseries, TimeseriesView};
pub use transaction::{Statement, Transaction};
pub use write::{UpdateForm, WriteUnit};
