//! The storage layer as a whole: what is shared by all operations, and the way in.
//!
//! Invariants: entries are applied and published in the order of the log, see `commit.rs`; after a failure of log or
//! engine, whoever met it, nothing is written any more.

use crate::awaited_times::AwaitedTimes;
use crate::background::{Checkpointer, TtlMonitor};
use crate::catalog::Entry;
use crate::catalog::collection::CollectionShared;
use crate::catalog_change::CatalogChangeHandler;
use crate::collection_guard::CollectionGuard;
use crate::failure::{Failure, FailureHandler};
use crate::flow_control::FlowControl;
use crate::history::Recent;
use crate::local_capped::LocalCollections;
use crate::log_damage::{LogDamageHandler, LogHistory};
use crate::mutations::mutated;
use crate::pending::Pending;
use crate::pipeline::Pipeline;
use crate::points::DurablePoints;
use crate::reserved::ReservedNames;
use crate::sessions::Sessions;
use crate::stats::Figures;
use crate::temporary::TemporaryNames;
use crate::voter::Consensus;
use crate::{
    Catalog, CollectionLockState, Interrupted, LockMode, LockStats, Namespace, Operation, PredicateCompiler, ReadView,
    StorageError, StorageStats,
};
use engine::{Engine, LockGranularity, Seq, TableId};
use locks::{Held, LockCounts, LockTable, Waiter};
use oplog::{Log, LogError};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::Env;

/// A step of recovery, for the server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryProgress {
    /// Replay begins after the engine's durable mark.
    Started {
        /// The mark.
        durable: Seq,
        /// The last entry of the log.
        last: Seq,
    },
    /// So far.
    Replayed {
        /// The engine's mark when replay began.
        durable: Seq,
        /// The last entry replayed.
        seq: Seq,
        /// The last entry of the log.
        last: Seq,
    },
    /// Replay is over.
    Finished {
        /// Entries replayed.
        entries: u64,
    },
    /// Index builds that a stop interrupted go on in the background.
    ResumingIndexBuilds {
        /// How many indexes.
        indexes: usize,
    },
}

/// Told of [`RecoveryProgress`].
pub type ProgressHandler = Arc<dyn Fn(RecoveryProgress) + Send + Sync>;
/// Told of a checkpoint of the background thread that could not be taken, and will be tried again. It must not call the
/// storage.
pub type CheckpointFailureHandler = Arc<dyn Fn(&StorageError) + Send + Sync>;
/// Told once of each change of another member that waits until there is room for the files it needs, with what is
/// missing. Nothing after it is applied meanwhile. It must not call the storage.
pub type ApplyWaitHandler = Arc<dyn Fn(&StorageError) + Send + Sync>;
/// Told when the disk has no room for what the log is to hold, by the background thread, once it has done about that
/// what it can. It must not call the storage.
pub type LogShortageHandler = Arc<dyn Fn(LogShortage) + Send + Sync>;
/// What the log came to on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogShortage {
    /// Nothing has room in it but what is left of the segment in use.
    pub is_short: bool,
    /// Bytes of history that went since the last call, though they were to be kept.
    pub history_given_up_bytes: u64,
}
/// Told of a record or index of a collection that a TTL pass left because it could not be read. It must not call the
/// storage.
pub type TtlFailureHandler = Arc<dyn Fn(&Namespace, &StorageError) + Send + Sync>;

/// Options of [`Storage::open`]; start from [`StorageOptions::new`].
#[derive(Clone)]
pub struct StorageOptions {
    /// Time between checkpoints; zero: only on demand and at close.
    pub sync_period: Duration,
    /// Checkpoint earlier when the log has grown by so many bytes since the last one.
    pub checkpoint_log_bytes: u64,
    /// While checkpoints find no space, nothing is written when the log has grown by so many bytes since the last one:
    /// the engine holds all of that in memory.
    pub unwritten_bytes_max: u64,
    /// Compiles the filters of partial indexes.
    pub predicates: Arc<dyn PredicateCompiler>,
    /// Whether the log is on; must agree with its mode. Without one, only checkpoints make anything durable, and
    /// engines whose checkpoints write everything take them every period all the same.
    pub journal: bool,
    /// Time between TTL passes; zero: only on demand.
    pub ttl_sleep: Duration,
    /// Compressor of new collections' tables by name; `None`: the engine's choice.
    pub collection_compressor: Option<String>,
    /// Told how recovery goes.
    pub on_progress: Option<ProgressHandler>,
    /// Told of checkpoints that fail and are tried again.
    pub on_checkpoint_failure: Option<CheckpointFailureHandler>,
    /// Told of what others wrote and cannot be applied yet.
    pub on_apply_wait: Option<ApplyWaitHandler>,
    /// Told of a log that has no room on its disk.
    pub on_log_shortage: Option<LogShortageHandler>,
    /// Told of damage in the log that was stepped over while the server works.
    pub on_log_damage: Option<LogDamageHandler>,
    /// Told of what TTL passes leave.
    pub on_ttl_failure: Option<TtlFailureHandler>,
    /// Told of changes of the catalog that no caller has asked for.
    pub on_catalog_change: Option<CatalogChangeHandler>,
    /// What this server appends to the log stays there. Else an entry takes effect when [`Storage::commit_to`] says
    /// that it does, which whoever decides about the log with others has to call.
    pub decides_alone: bool,
    /// All that the log has stays, whatever others who had a say in it have: somebody decided that they are lost.
    pub takes_all: bool,
    /// The data directory's own number, by which the configuration of a replica set names it.
    pub instance: Option<[u8; 16]>,
    /// Run background threads (checkpoints, TTL, resumed index builds). Without them (simulation) only calls do work,
    /// and interrupted index builds end within `open`.
    pub background: bool,
}

impl StorageOptions {
    /// The defaults: a checkpoint each 60 s or 2 GiB of log, a TTL pass each 60 s.
    pub fn new(predicates: Arc<dyn PredicateCompiler>) -> Self {
        Self {
            sync_period: Duration::from_secs(60),
            checkpoint_log_bytes: 2 << 30,
            unwritten_bytes_max: 1 << 30,
            predicates,
            journal: true,
            ttl_sleep: Duration::from_secs(60),
            collection_compressor: None,
            on_progress: None,
            on_checkpoint_failure: None,
            on_apply_wait: None,
            on_log_shortage: None,
            on_log_damage: None,
            on_ttl_failure: None,
            on_catalog_change: None,
            decides_alone: true,
            takes_all: false,
            instance: None,
            background: true,
        }
    }
}

/// See the module.
pub struct Storage {
    pub(crate) env: Env,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) log: Arc<Log>,
    pub(crate) options: StorageOptions,
    pub(crate) catalog: Catalog,
    pub(crate) locks: LockTable,
    pub(crate) lock_counts: LockCounts,
    pub(crate) pipeline: Pipeline,
    pub(crate) pending: Pending,
    pub(crate) sessions: Sessions,
    pub(crate) recent: Recent,
    pub(crate) locals: LocalCollections,
    pub(crate) consensus: Consensus,
    pub(crate) flow_control: FlowControl,
    pub(crate) durable_points: DurablePoints,
    pub(crate) awaited_times: AwaitedTimes,
    pub(crate) keeps_history: AtomicBool,
    /// See `barrier.rs`.
    pub(crate) barriers: AtomicU32,
    /// Those of them while which the log stays as it is, too.
    pub(crate) file_barriers: AtomicU32,
    /// Held while it is written down how much of the log stays.
    pub(crate) noting_commit: Mutex<()>,
    /// Compactions under way.
    pub(crate) compactions: AtomicU32,
    pub(crate) unblocked: Condvar,
    sync_period_ms: AtomicU64,
    /// 0: as long as the log has them.
    pre_image_life_ms: AtomicU64,
    /// Held by one data-definition operation at a time; holds the next table id.
    pub(crate) definitions: Mutex<u32>,
    /// Held by a compaction from start to end, before all other locks: see `docs/locks.md`.
    pub(crate) compacting: Mutex<()>,
    /// The epoch in which the turn was taken that somebody has.
    pub(crate) definitions_epoch: AtomicU64,
    /// The last entry with definitions, and its epoch, that whoever proposed it has not waited for. Changed by who has
    /// the turn (`definitions`).
    pub(crate) defined_meanwhile: Mutex<Option<(Seq, Option<u64>)>>,
    /// Counts changes of definitions; `definitions_changed` tells of them.
    pub(crate) definition_changes: Mutex<u64>,
    /// See `user_writes.rs`. Set under nothing, and looked at with `order` locked.
    pub(crate) user_writes_blocked: AtomicBool,
    pub(crate) definitions_changed: Condvar,
    /// See [`Storage::access_changes`].
    pub(crate) access_changes: AtomicU64,
    pub(crate) owners: AtomicU64,
    /// What open transactions are about to make.
    pub(crate) reserved: ReservedNames,
    pub(crate) temporaries: TemporaryNames,
    pub(crate) figures: Figures,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) backup_open: Arc<AtomicBool>,
    pub(crate) ttl: TtlMonitor,
    /// This member of a replica set votes and keeps nothing but the configuration.
    pub(crate) is_arbiter: AtomicBool,
    pub(crate) closed: AtomicBool,
    failure: Arc<Failure>,
    whole_collection_locks: bool,
    pub(crate) me: Weak<Storage>,
}

impl Storage {
    /// Opens the storage: loads the catalog at the engine's durable mark, replays the log from there, and goes on with
    /// index builds that were interrupted (in the background). Counts are exact afterwards.
    ///
    /// Errors: an entry or row that cannot be understood ([`StorageError::CorruptEntry`],
    /// [`StorageError::CorruptCatalog`]), and what log and engine report.
    pub fn open(
        env: Env,
        engine: Arc<dyn Engine>,
        log: Arc<Log>,
        options: StorageOptions,
    ) -> Result<Arc<Storage>, StorageError> {
        let whole_collection_locks = engine.info().capabilities.lock_granularity == LockGranularity::Collection;
        let storage = Arc::new_cyclic(|me| Storage {
            checkpointer: Checkpointer::default(),
            backup_open: Arc::default(),
            ttl: TtlMonitor::new(options.ttl_sleep),
            env,
            engine,
            log,
            catalog: Catalog::default(),
            locks: LockTable::new(),
            lock_counts: LockCounts::default(),
            pipeline: Pipeline::new(),
            pending: Pending::new(!options.decides_alone),
            sessions: Sessions::default(),
            recent: Recent::default(),
            locals: LocalCollections::default(),
            consensus: Consensus::default(),
            flow_control: FlowControl::default(),
            durable_points: DurablePoints::default(),
            awaited_times: AwaitedTimes::default(),
            keeps_history: AtomicBool::new(false),
            barriers: AtomicU32::new(0),
            file_barriers: AtomicU32::new(0),
            noting_commit: Mutex::default(),
            compactions: AtomicU32::new(0),
            unblocked: Condvar::new(),
            sync_period_ms: AtomicU64::new(options.sync_period.as_millis() as u64),
            pre_image_life_ms: AtomicU64::new(0),
            options,
            definitions: Mutex::new(crate::limits::FIRST_USER_TABLE),
            compacting: Mutex::default(),
            definitions_epoch: AtomicU64::new(0),
            defined_meanwhile: Mutex::default(),
            user_writes_blocked: AtomicBool::new(false),
            definition_changes: Mutex::default(),
            definitions_changed: Condvar::new(),
            access_changes: AtomicU64::new(0),
            owners: AtomicU64::new(1),
            reserved: ReservedNames::default(),
            temporaries: TemporaryNames::default(),
            figures: Figures::default(),
            is_arbiter: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            failure: Arc::default(),
            whole_collection_locks,
            me: me.clone(),
        });
        let failure = storage.failure.clone();
        storage.engine.set_failure_handler(Box::new(move |reason| {
            failure.stop(reason);
        }));
        if storage.options.journal {
            storage.engine.set_write_ahead(write_ahead(storage.log.clone()));
        }
        storage.recover()?;
        // What the log has besides is decided upon with others.
        if !storage.options.takes_all && storage.membership()?.is_some() {
            storage.wait_for_leader();
        }
        let (decides_alone, background) = (storage.options.decides_alone, storage.options.background);
        // Builds that end within this call write what nobody could decide about before it returns.
        if !background && storage.leads() {
            storage.resume_index_builds()?;
        }
        if !decides_alone {
            storage.pipeline.await_commits();
        }
        if background {
            if storage.leads() {
                storage.resume_index_builds()?;
            }
            storage.start_background();
        }
        Ok(storage)
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The log for who reads it on behalf of other members.
    pub(crate) fn log_history(&self) -> LogHistory {
        LogHistory {
            log: self.log.clone(),
            engine: self.engine.clone(),
            on_damage: self.options.on_log_damage.clone(),
        }
    }

    /// What holds writers back while others show late what is written.
    pub fn flow_control(&self) -> &FlowControl {
        &self.flow_control
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Files, clock, randomness.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The collections and views there are.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Access to a collection for one operation: looks it up and locks it. `None` when there is no such collection;
    /// [`StorageError::IsView`] for a view. Engines that lock whole collections turn the intent modes into S and X, but
    /// on members of replica sets.
    pub fn collection(
        &self,
        op: &Operation,
        ns: &Namespace,
        mode: LockMode,
    ) -> Result<Option<CollectionGuard>, StorageError> {
        // Not on members of sets: a writer keeps what it locks until its effect is there, and alone in a collection
        // none would travel to other members with another; transactions keep it until they end.
        let is_whole = self.whole_collection_locks && !self.keeps_history();
        let mode = match mode {
            LockMode::IntentShared if is_whole => LockMode::Shared,
            LockMode::IntentExclusive if is_whole => LockMode::Exclusive,
            mode => mode,
        };
        self.collection_for(op, op, ns, mode)
    }

    /// As [`Storage::collection`] in the very mode given, while `waiter` lets it wait.
    pub(crate) fn collection_for<W: Waiter<Interrupted = Interrupted>>(
        &self,
        op: &Operation,
        waiter: &W,
        ns: &Namespace,
        mode: LockMode,
    ) -> Result<Option<CollectionGuard>, StorageError> {
        if matches!(mode, LockMode::IntentExclusive | LockMode::Exclusive) {
            self.check_user_write(op, ns)?;
        }
        loop {
            let collection = match self.catalog.entry(ns) {
                None => return Ok(None),
                Some(Entry::View(_)) => return Err(StorageError::IsView(ns.clone())),
                Some(Entry::Collection(collection)) => collection,
            };
            let held = self.lock_for(op, waiter, &collection.shared, mode)?;
            if !collection.is_outdated() {
                return Ok(Some(CollectionGuard::from_parts(collection, held)));
            }
        }
    }

    /// As [`Storage::collection`], but the collection has to exist.
    pub(crate) fn existing(
        &self,
        op: &Operation,
        ns: &Namespace,
        mode: LockMode,
    ) -> Result<CollectionGuard, StorageError> {
        self.collection(op, ns, mode)?
            .ok_or_else(|| StorageError::NamespaceNotFound(ns.clone()))
    }

    pub(crate) fn lock_for<W: Waiter<Interrupted = Interrupted>>(
        &self,
        op: &Operation,
        waiter: &W,
        shared: &CollectionShared,
        mode: LockMode,
    ) -> Result<Held, StorageError> {
        let (held, waited) = Held::take(&shared.lock, waiter, mode)?;
        self.lock_counts.acquired(op.id, mode, waited);
        let counters = op.counters().lock(mode);
        counters.acquired.add(1);
        if let Some(waited) = waited {
            counters.waited.add(1);
            counters.wait_us.add(waited.as_micros() as u64);
        }
        Ok(held)
    }

    /// The newest published state.
    pub fn read(&self) -> Result<ReadView, StorageError> {
        Ok(ReadView::new(self.engine.snapshot()?))
    }

    /// What a table of documents was called at a position of the log, and its collection's identity. Answers for as
    /// long as the log has the position, whether the collection was renamed or dropped since.
    pub fn name_of_table(&self, table: TableId, at: Seq) -> Option<(Namespace, [u8; 16])> {
        self.catalog.name_of_table(table, at)
    }

    /// How long change streams may have the earlier versions of changed documents; `None`: as long as the log has
    /// them.
    pub fn set_pre_image_life(&self, life: Option<Duration>) {
        let millis = life.map_or(0, |life| life.as_millis() as u64);
        self.pre_image_life_ms.store(millis, Ordering::Relaxed);
    }

    /// Are the earlier versions that an entry of that age has still to be had?
    pub fn has_pre_images(&self, age_ms: i64) -> bool {
        let life_ms = self.pre_image_life_ms.load(Ordering::Relaxed);
        life_ms == 0 || age_ms <= i64::try_from(life_ms).unwrap_or(i64::MAX)
    }

    /// Changes the time between checkpoints (`syncdelay`); zero: only on demand and at close. In force after the next
    /// one.
    pub fn set_sync_period(&self, period: Duration) {
        self.sync_period_ms.store(period.as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn sync_period(&self) -> Duration {
        Duration::from_millis(self.sync_period_ms.load(Ordering::Relaxed))
    }

    /// Waits until the log entry, and every one before it, survives a crash (`j: true`). [`StorageError::NoJournal`]
    /// when the log is off.
    pub fn wait_durable(&self, seq: Seq) -> Result<(), StorageError> {
        if mutated!(AcknowledgesEarly) {
            return Ok(());
        }
        match self.log.wait_durable(seq) {
            Err(LogError::NoJournal) => Err(StorageError::NoJournal),
            other => other.map_err(|error| self.log_error(error)),
        }
    }

    /// As [`Storage::wait_durable`], as long as the operation may: its end is [`StorageError::Interrupted`], and says
    /// nothing of the entry, which goes its way.
    pub fn wait_durable_in(&self, op: &Operation, seq: Seq) -> Result<(), StorageError> {
        match self.log.wait_durable_while(seq, &|| op.check_now().is_ok()) {
            Err(LogError::NoJournal) => Err(StorageError::NoJournal),
            Err(LogError::Interrupted) => Err(op.check_now().err().unwrap_or(Interrupted::Killed).into()),
            other => other.map_err(|error| self.log_error(error)),
        }
    }

    /// Counts entries that took effect, whoever wrote them, and changed a collection that is about access
    /// ([`Namespace::is_about_access`]). What is read behind a count is as new as the count.
    pub fn access_changes(&self) -> u64 {
        self.access_changes.load(Ordering::SeqCst)
    }

    /// The last log entry published.
    pub fn last_seq(&self) -> Seq {
        self.pipeline.published()
    }

    /// The collections whose locks somebody has or waits for.
    pub fn collection_locks(&self) -> Vec<(Namespace, CollectionLockState)> {
        let collections = self.catalog.all_collections().into_iter();
        collections
            .filter_map(|collection| Some((collection.namespace().clone(), collection.shared.lock.state()?)))
            .collect()
    }

    /// Acquisitions of locks since the start.
    pub fn lock_stats(&self) -> LockStats {
        self.lock_counts.snapshot()
    }

    /// Figures of the write path and the background work.
    pub fn stats(&self) -> StorageStats {
        self.figures
            .snapshot(self.locks.len() as u64, self.checkpointer.is_running())
    }

    /// Tells `handler` once when writing stops for good. At once, if it has.
    pub fn subscribe_failure(&self, handler: FailureHandler) {
        self.failure.subscribe(handler);
    }

    /// Whether writing is possible at all.
    pub(crate) fn check_running(&self) -> Result<(), StorageError> {
        self.check_not_stopped()?;
        match self.closed.load(Ordering::Acquire) {
            true => Err(StorageError::Closed),
            false => Ok(()),
        }
    }

    /// Whether log and engine work. Closing takes what is committed to its end.
    pub(crate) fn check_not_stopped(&self) -> Result<(), StorageError> {
        self.failure.check()
    }

    /// Stops writing for good and tells who wants to know.
    pub(crate) fn stop(&self, reason: &str) -> StorageError {
        self.failure.stop(reason)
    }

    /// Sorts an error of the log: full is an error of this call only, a failed log stops everything.
    pub(crate) fn log_error(&self, error: LogError) -> StorageError {
        match error {
            LogError::OutOfSpace { .. } | LogError::BufferFull { .. } => StorageError::OutOfSpace(error.to_string()),
            LogError::NoDescriptors { .. } => StorageError::OutOfDescriptors(error.to_string()),
            LogError::Failed(_) | LogError::Io { .. } => self.stop(&error.to_string()),
            LogError::Closed if self.closed.load(Ordering::Acquire) => StorageError::Closed,
            error => StorageError::Log(error),
        }
    }
}

/// The log's side of the write-ahead rule: a checkpoint is never ahead of the log.
fn write_ahead(log: Arc<Log>) -> engine::WriteAhead {
    Arc::new(move |seq| {
        log.wait_durable(seq).map_err(|error| match error {
            // It stays what it is: descriptors are no space.
            LogError::NoDescriptors {
                operation,
                path,
                source,
            } => engine::EngineError::Io {
                operation,
                path,
                source,
            },
            error => engine::EngineError::Backend {
                operation: "flush the log",
                kind: error.kind(),
                message: error.to_string(),
            },
        })
    })
}
