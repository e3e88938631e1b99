//! One running operation of a client: its deadline, its kill flag and the figures it collects.
//!
//! It knows no command and no connection. Everything is atomic, so that `currentOp` and `killOp` may look at it from
//! another thread; the counters are only written by the thread that runs the operation.

use crate::LockMode;
use crate::catalog_change::CatalogChange;
use crate::cluster_time::ClusterTime;
use crate::interrupt::{Interrupted, KillFlag};
use crate::memory::{MemoryAccount, MemoryBudget};
use crate::script_limits::ScriptLimits;
use engine::Seq;
use locks::{Claims, LockKey, Waiter};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use vfs::{Asleep, Clock};

/// Calls of [`Operation::check`] between two looks at the clock.
const CHECKS_PER_CLOCK_READ: u32 = 64;
const NO_DEADLINE: i64 = i64::MAX;
/// The modes of locks, in their order.
const MODES: [LockMode; 4] = [
    LockMode::IntentShared,
    LockMode::IntentExclusive,
    LockMode::Shared,
    LockMode::Exclusive,
];

/// A permission to run, of which there are so many. An operation that waits for a lock lets others have it: who is to
/// give the lock back, or has nothing to do with it, may wait for a permission.
pub trait RunPermit: Send + Sync {
    /// Lets another operation have it, unless too many have done so.
    fn lend(&self) -> bool;

    /// The operation goes on. This must not wait: others may wait for what it holds.
    fn take_back(&self);
}

/// See the module. One per client request; `getMore` makes a new one.
pub struct Operation {
    /// The number `currentOp` and `killOp` know it by.
    pub id: u32,
    clock: Arc<dyn Clock>,
    /// Wall time of its beginning: one `$$NOW` for all it evaluates.
    started_ms: i64,
    /// Of what members have seen when it began: one `$$CLUSTER_TIME`. `None` outside a replica set.
    cluster_time: Option<ClusterTime>,
    /// Milliseconds of the clock's monotonic time.
    deadline: AtomicI64,
    killed: Arc<KillFlag>,
    checks: AtomicU32,
    counters: OperationCounters,
    memory: Arc<MemoryAccount>,
    scripts: Arc<ScriptLimits>,
    /// Collection locks it holds. Whoever holds one never queues behind a waiting exclusive lock (see `docs/locks.md`).
    pub(crate) locks_held: Arc<AtomicU32>,
    /// The lock a unit of this operation met and could not wait for: the next unit waits for it first.
    pub(crate) awaited: Mutex<Option<LockKey>>,
    pub(crate) has_awaited: AtomicBool,
    /// The last entry of which it has seen something before it took effect, and the epoch of that entry.
    observed: AtomicU64,
    observed_epoch: AtomicU64,
    /// Units that it has committed ahead and not waited for yet, and the bytes of their rows.
    pub(crate) units_ahead: AtomicU32,
    pub(crate) bytes_ahead: AtomicU64,
    /// Milliseconds for which it waits until others have what it has written; `u32::MAX`: as long as it may.
    commit_patience_ms: AtomicU32,
    /// Until when it does, by the monotonic clock; `NO_DEADLINE` before the first wait since its last write.
    patient_until_ms: AtomicI64,
    /// The mode of the lock it waits for, from 1; 0 when it does not wait.
    waiting: AtomicU8,
    /// What it needed to run, if it has that, and whether others have it now.
    permit: Mutex<Option<Arc<dyn RunPermit>>>,
    has_lent: AtomicBool,
    /// It is a user's, who has no right to write while users' writes are held off.
    is_users: AtomicBool,
    /// Milliseconds that it waits for a document that somebody else has locked; `u32::MAX`: as long as it may.
    document_patience_ms: AtomicU32,
    /// What it has changed of the catalog, and whether there is any of it.
    catalog_changes: Mutex<Vec<CatalogChange>>,
    has_catalog_changes: AtomicBool,
    /// See [`Operation::abandon`] and [`Operation::outlives_client`].
    is_abandoned: AtomicBool,
    outlives_client: AtomicBool,
    /// See [`Operation::build_progress`]; both zero until it walks.
    walked: AtomicU64,
    to_walk: AtomicU64,
}

impl Operation {
    /// An operation without a deadline.
    pub fn new(clock: Arc<dyn Clock>, id: u32) -> Self {
        Self::with_kill_flag(clock, id, Arc::default())
    }

    /// As [`Operation::new`], ended by a flag that exists already.
    pub fn with_kill_flag(clock: Arc<dyn Clock>, id: u32, killed: Arc<KillFlag>) -> Self {
        Self::build(clock, id, killed, &MemoryBudget::unlimited(), Arc::default())
    }

    /// An operation without a deadline that charges what it gathers in memory to a budget.
    pub fn within(clock: Arc<dyn Clock>, id: u32, budget: &Arc<MemoryBudget>) -> Self {
        Self::for_client(clock, id, budget, Arc::default())
    }

    /// As [`Operation::within`], whose scripts have these limits.
    pub fn for_client(clock: Arc<dyn Clock>, id: u32, budget: &Arc<MemoryBudget>, scripts: Arc<ScriptLimits>) -> Self {
        Self::build(clock, id, Arc::default(), budget, scripts)
    }

    fn build(
        clock: Arc<dyn Clock>,
        id: u32,
        killed: Arc<KillFlag>,
        budget: &Arc<MemoryBudget>,
        scripts: Arc<ScriptLimits>,
    ) -> Self {
        Self {
            id,
            started_ms: clock.now_ms(),
            cluster_time: None,
            clock,
            deadline: AtomicI64::new(NO_DEADLINE),
            killed,
            checks: AtomicU32::new(0),
            counters: OperationCounters::default(),
            memory: MemoryAccount::new(budget),
            scripts,
            locks_held: Arc::default(),
            awaited: Mutex::new(None),
            has_awaited: AtomicBool::new(false),
            observed: AtomicU64::new(0),
            observed_epoch: AtomicU64::new(u64::MAX - 1),
            units_ahead: AtomicU32::new(0),
            bytes_ahead: AtomicU64::new(0),
            commit_patience_ms: AtomicU32::new(u32::MAX),
            patient_until_ms: AtomicI64::new(NO_DEADLINE),
            waiting: AtomicU8::new(0),
            permit: Mutex::new(None),
            has_lent: AtomicBool::new(false),
            is_users: AtomicBool::new(false),
            document_patience_ms: AtomicU32::new(u32::MAX),
            catalog_changes: Mutex::default(),
            has_catalog_changes: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            outlives_client: AtomicBool::new(false),
            walked: AtomicU64::new(0),
            to_walk: AtomicU64::new(0),
        }
    }

    /// What its scripts may have.
    pub fn scripts(&self) -> &Arc<ScriptLimits> {
        &self.scripts
    }

    /// The mode in which it waits for a lock, if it does now.
    pub fn waiting_for_lock(&self) -> Option<LockMode> {
        let position = usize::from(self.waiting.load(Ordering::Relaxed));
        position.checked_sub(1).and_then(|mode| MODES.get(mode)).copied()
    }

    /// It runs by this permission from here on; by none when it has given that back.
    pub fn set_permit(&self, permit: Option<Arc<dyn RunPermit>>) {
        debug_assert!(!self.has_lent.load(Ordering::Relaxed), "it does not wait now");
        *self.permit.lock() = permit;
    }

    fn lend_permit(&self) {
        if self.has_lent.load(Ordering::Relaxed) {
            return;
        }
        let permit = self.permit.lock().clone();
        if permit.is_some_and(|permit| permit.lend()) {
            self.has_lent.store(true, Ordering::Relaxed);
        }
    }

    fn take_permit_back(&self) {
        if self.has_lent.swap(false, Ordering::Relaxed)
            && let Some(permit) = &*self.permit.lock()
        {
            permit.take_back();
        }
    }

    /// What it has gathered in memory.
    pub fn memory(&self) -> &Arc<MemoryAccount> {
        &self.memory
    }

    /// Wall time of its beginning, in milliseconds since the Unix epoch.
    pub fn started_ms(&self) -> i64 {
        self.started_ms
    }

    /// The same operation, of a member of a replica set.
    pub fn at_cluster_time(self, time: ClusterTime) -> Self {
        Self {
            cluster_time: Some(time),
            ..self
        }
    }

    /// The cluster time of its beginning, of a member of a replica set.
    pub fn cluster_time(&self) -> Option<ClusterTime> {
        self.cluster_time
    }

    /// Sets the deadline `max_time_ms` from now; 0 means none.
    pub fn set_deadline_ms(&self, max_time_ms: u64) {
        let deadline = match i64::try_from(max_time_ms) {
            Ok(0) | Err(_) => NO_DEADLINE,
            Ok(ms) => self.now().saturating_add(ms),
        };
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// From here on nobody who has locked a document is waited for longer than so many milliseconds
    /// ([`Interrupted::LockTimeout`]).
    pub(crate) fn set_document_patience_ms(&self, patience_ms: u32) {
        self.document_patience_ms.store(patience_ms, Ordering::Relaxed);
    }

    /// See [`Operation::set_document_patience_ms`].
    pub(crate) fn document_patience(&self) -> Option<Duration> {
        match self.document_patience_ms.load(Ordering::Relaxed) {
            u32::MAX => None,
            patience_ms => Some(Duration::from_millis(u64::from(patience_ms))),
        }
    }

    /// Whether it does not even look twice at what somebody else has locked.
    pub(crate) fn passes_over(&self) -> bool {
        self.document_patience_ms.load(Ordering::Relaxed) == 0
    }

    /// Time left until the deadline; `None` without one.
    pub fn time_left(&self) -> Option<Duration> {
        match self.deadline.load(Ordering::Relaxed) {
            NO_DEADLINE => None,
            deadline => Some(Duration::from_millis(deadline.saturating_sub(self.now()).max(0) as u64)),
        }
    }

    /// The monotonic time at which it has to end, in milliseconds; `i64::MAX` without a deadline.
    pub fn deadline_ms(&self) -> i64 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Ends the operation at its next [`Operation::check`].
    pub fn kill(&self) {
        self.interrupt(Interrupted::Killed);
    }

    /// As [`Operation::kill`], for another reason.
    pub fn interrupt(&self, reason: Interrupted) {
        self.killed.set(reason);
    }

    /// Nobody waits for its reply any more. What it has begun it ends, but it waits for no collection before it changes
    /// a definition: that would keep others out.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// It has begun what is to be ended without its client, too.
    pub(crate) fn outlives_client(&self) {
        self.outlives_client.store(true, Ordering::Relaxed);
    }

    /// While it builds indexes: how many documents it has been through, and how many there were when it began, or as
    /// many as those where there are more.
    pub fn build_progress(&self) -> Option<(u64, u64)> {
        let to_walk = self.to_walk.load(Ordering::Relaxed);
        let walked = self.walked.load(Ordering::Relaxed);
        (to_walk > 0).then_some((walked, to_walk.max(walked)))
    }

    pub(crate) fn begins_walk(&self, documents: u64) {
        self.walked.store(0, Ordering::Relaxed);
        self.to_walk.store(documents.max(1), Ordering::Relaxed);
    }

    pub(crate) fn has_walked(&self, documents: u64) {
        self.walked.fetch_add(documents, Ordering::Relaxed);
    }

    fn check_wanted(&self) -> Result<(), Interrupted> {
        self.check_now()?;
        match self.is_abandoned.load(Ordering::Relaxed) && !self.outlives_client.load(Ordering::Relaxed) {
            true => Err(Interrupted::Killed),
            false => Ok(()),
        }
    }

    /// What others end the operation with.
    pub fn kill_handle(&self) -> Arc<KillFlag> {
        self.killed.clone()
    }

    /// Whether the operation may go on. One relaxed load; the clock is read every 64th call.
    pub fn check(&self) -> Result<(), Interrupted> {
        if let Some(reason) = self.killed.get() {
            return Err(reason);
        }
        if self.deadline.load(Ordering::Relaxed) == NO_DEADLINE {
            return Ok(());
        }
        let checks = self.checks.load(Ordering::Relaxed);
        self.checks.store(checks.wrapping_add(1), Ordering::Relaxed);
        if checks.is_multiple_of(CHECKS_PER_CLOCK_READ) {
            self.check_clock()
        } else {
            Ok(())
        }
    }

    /// As [`Operation::check`], reading the clock in any case: for places that may have waited.
    pub fn check_now(&self) -> Result<(), Interrupted> {
        match self.killed.get() {
            Some(reason) => Err(reason),
            None => self.check_clock(),
        }
    }

    fn check_clock(&self) -> Result<(), Interrupted> {
        let deadline = self.deadline.load(Ordering::Relaxed);
        if deadline != NO_DEADLINE && self.now() >= deadline {
            Err(Interrupted::TimeExpired)
        } else {
            Ok(())
        }
    }

    fn now(&self) -> i64 {
        self.clock.monotonic().as_millis() as i64
    }

    /// It has seen something of an entry that has not taken effect yet.
    pub(crate) fn observe(&self, seq: Seq, epoch: u64) {
        self.observed.fetch_max(seq.0, Ordering::Relaxed);
        // What was seen first may be lost first.
        self.observed_epoch.fetch_min(epoch, Ordering::Relaxed);
    }

    /// Whether it has committed units ahead and has not waited for them.
    pub fn is_ahead(&self) -> bool {
        self.units_ahead.load(Ordering::Relaxed) > 0
    }

    /// Its client may be told what it saw when this entry has taken effect: [`crate::Storage::wait_observed`]. With the
    /// entry's epoch.
    pub(crate) fn observed(&self) -> (Seq, u64) {
        let epoch = self.observed_epoch.load(Ordering::Relaxed);
        (Seq(self.observed.load(Ordering::Relaxed)), epoch)
    }

    /// From here on it waits for so long at most until others have what it has written (`wtimeout`), counted from the
    /// first such wait after its last write. `None`: as long as it may.
    pub fn set_commit_patience(&self, patience: Option<Duration>) {
        let patience_ms = patience.and_then(|patience| u32::try_from(patience.as_millis()).ok());
        self.commit_patience_ms
            .store(patience_ms.unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Until when it waits for others, by the monotonic clock, if not as long as it may. Only the thread that runs the
    /// operation asks.
    pub fn patient_until(&self) -> Option<Duration> {
        let patience_ms = match self.commit_patience_ms.load(Ordering::Relaxed) {
            u32::MAX => return None,
            patience_ms => i64::from(patience_ms),
        };
        let mut until_ms = self.patient_until_ms.load(Ordering::Relaxed);
        if until_ms == NO_DEADLINE {
            until_ms = self.now() + patience_ms;
            self.patient_until_ms.store(until_ms, Ordering::Relaxed);
        }
        Some(Duration::from_millis(until_ms as u64))
    }

    /// It has written: its next wait for others is a new one.
    pub(crate) fn has_written(&self) {
        self.patient_until_ms.store(NO_DEADLINE, Ordering::Relaxed);
    }

    /// Whether it is bound by [`crate::Storage::set_user_writes_blocked`]; one that nobody has told of is not.
    pub fn set_users(&self, is_users: bool) {
        self.is_users.store(is_users, Ordering::Relaxed);
    }

    /// See [`Operation::set_users`].
    pub fn is_users(&self) -> bool {
        self.is_users.load(Ordering::Relaxed)
    }

    /// It has changed these of the catalog.
    pub(crate) fn note_catalog_changes(&self, changes: Vec<CatalogChange>) {
        self.catalog_changes.lock().extend(changes);
        self.has_catalog_changes.store(true, Ordering::Relaxed);
    }

    /// What it has changed of the catalog since this was asked last, in the order in which it took effect.
    pub fn take_catalog_changes(&self) -> Vec<CatalogChange> {
        // Operations seldom change it, and each of them is asked.
        if !self.has_catalog_changes.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.has_catalog_changes.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.catalog_changes.lock())
    }

    /// The clock the operation measures with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The figures it has collected.
    pub fn counters(&self) -> &OperationCounters {
        &self.counters
    }
}

/// Waits for a lock on behalf of an operation, up to a time.
pub(crate) struct BriefWaiter<'a> {
    op: &'a Operation,
    patience: Duration,
    until: Duration,
    is_transaction: bool,
}

impl<'a> BriefWaiter<'a> {
    pub(crate) fn new(op: &'a Operation, patience: Duration) -> Self {
        let until = op.clock.monotonic() + patience;
        Self {
            op,
            patience,
            until,
            is_transaction: false,
        }
    }

    /// The same for a transaction, which keeps what it takes beyond the operation.
    pub(crate) fn of_transaction(op: &'a Operation, patience: Duration) -> Self {
        Self {
            is_transaction: true,
            ..Self::new(op, patience)
        }
    }
}

impl Waiter for BriefWaiter<'_> {
    type Interrupted = Interrupted;
    type Wait = Asleep;

    fn check(&self) -> Result<(), Interrupted> {
        self.op.check_now()?;
        match self.now() >= self.until {
            true => Err(Interrupted::LockTimeout(self.patience.as_millis() as u32)),
            false => Ok(()),
        }
    }

    fn now(&self) -> Duration {
        self.op.clock.monotonic()
    }

    fn locks_held(&self) -> &Arc<AtomicU32> {
        &self.op.locks_held
    }

    fn holds_for_long(&self) -> bool {
        self.is_transaction
    }

    fn number(&self) -> u32 {
        self.op.id
    }

    fn begins_to_wait(&self, mode: LockMode) -> Asleep {
        self.op.begins_to_wait(mode)
    }

    fn waits_on(&self) {
        self.op.waits_on();
    }

    fn ends_to_wait(&self) {
        self.op.ends_to_wait();
    }

    fn waited_for_document(&self, time: Duration) {
        self.op.waited_for_document(time);
    }
}

/// Waits for a collection on behalf of an operation that is to change its definition.
pub(crate) struct DefinitionWaiter<'a> {
    pub(crate) op: &'a Operation,
    /// What keeps others out meanwhile.
    pub(crate) claims: Option<&'a Claims>,
}

impl Waiter for DefinitionWaiter<'_> {
    type Interrupted = Interrupted;
    type Wait = Asleep;

    fn check(&self) -> Result<(), Interrupted> {
        self.op.check_wanted()
    }

    fn now(&self) -> Duration {
        self.op.clock.monotonic()
    }

    fn locks_held(&self) -> &Arc<AtomicU32> {
        &self.op.locks_held
    }

    fn number(&self) -> u32 {
        self.op.id
    }

    fn begins_to_wait(&self, mode: LockMode) -> Asleep {
        self.op.begins_to_wait(mode)
    }

    fn waits_on(&self) {
        if let Some(claims) = self.claims {
            claims.look_again();
        }
        self.op.waits_on();
    }

    fn ends_to_wait(&self) {
        self.op.ends_to_wait();
    }

    fn waited_for_document(&self, time: Duration) {
        self.op.waited_for_document(time);
    }
}

impl Waiter for Operation {
    type Interrupted = Interrupted;
    type Wait = Asleep;

    fn check(&self) -> Result<(), Interrupted> {
        self.check_now()
    }

    fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    fn locks_held(&self) -> &Arc<AtomicU32> {
        &self.locks_held
    }

    fn number(&self) -> u32 {
        self.id
    }

    fn begins_to_wait(&self, mode: LockMode) -> Asleep {
        self.waiting.store(mode as u8 + 1, Ordering::Relaxed);
        vfs::asleep()
    }

    fn waits_on(&self) {
        self.lend_permit();
    }

    fn ends_to_wait(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.take_permit_back();
    }

    fn waited_for_document(&self, time: Duration) {
        self.counters.document_wait_us.add(time.as_micros() as u64);
    }
}

/// A figure of [`OperationCounters`].
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the operation's own thread may (it is a load and a store).
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// The figure.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn since(&self, before: &Self) -> Self {
        Self(AtomicU64::new(self.get().saturating_sub(before.get())))
    }
}

/// Acquisitions of collection locks in one mode.
#[derive(Debug, Default)]
pub struct LockCounters {
    /// Times a lock was taken.
    pub acquired: Counter,
    /// Of those, times it had to wait.
    pub waited: Counter,
    /// Microseconds waited.
    pub wait_us: Counter,
}

/// What spills to temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spilling {
    /// SORT and `$sort`.
    Sort,
    /// `$group`
    Group,
    /// `$bucketAuto`
    BucketAuto,
    /// `$setWindowFields`
    SetWindowFields,
    /// `$densify`
    Densify,
}

/// What stages of one kind have written to temporary files.
#[derive(Debug, Default)]
pub struct SpillCounters {
    /// Times that memory was emptied into a file.
    pub spills: Counter,
    /// Rows, groups or documents written.
    pub records: Counter,
    /// Their bytes.
    pub bytes: Counter,
    /// Bytes of the files.
    pub stored_bytes: Counter,
}

/// What an operation did, for the profiler, slow-query lines and explain.
#[derive(Debug, Default)]
pub struct OperationCounters {
    /// Documents looked at.
    pub docs_examined: Counter,
    /// Index keys looked at.
    pub keys_examined: Counter,
    /// Times it gave up its locks and view in between.
    pub yields: Counter,
    /// Times it met a lock that another operation had, or evaluated again.
    pub write_conflicts: Counter,
    /// Index keys inserted.
    pub keys_inserted: Counter,
    /// Index keys deleted.
    pub keys_deleted: Counter,
    /// Microseconds waited for document and unique-key locks.
    pub document_wait_us: Counter,
    /// 1 when a plan sorted its rows itself.
    pub has_sort_stage: Counter,
    /// Plans taken from the plan cache.
    pub plan_cache_hits: Counter,
    /// Times that it was asked and had none.
    pub plan_cache_misses: Counter,
    /// Plans of the cache that failed their trial, so that there was a race.
    pub replanned: Counter,
    /// Times that the same plan won it.
    pub replanned_alike: Counter,
    /// Rows that sorts have taken in.
    pub keys_sorted: Counter,
    /// Bytes of those that they kept.
    pub sorted_bytes: Counter,
    /// By [`LockMode`], in its order.
    pub locks: [LockCounters; 4],
    /// By [`Spilling`], in its order.
    pub spilled: [SpillCounters; 5],
}

impl OperationCounters {
    /// The counters of one lock mode.
    pub fn lock(&self, mode: LockMode) -> &LockCounters {
        &self.locks[mode as usize]
    }

    /// What stages of one kind have spilled.
    pub fn spilled(&self, what: Spilling) -> &SpillCounters {
        &self.spilled[what as usize]
    }

    /// What has been added since the counters were as `before`.
    pub fn since(&self, before: &Self) -> Self {
        // All of them, so that a new one has its place here.
        let Self {
            docs_examined,
            keys_examined,
            yields,
            write_conflicts,
            keys_inserted,
            keys_deleted,
            document_wait_us,
            has_sort_stage,
            plan_cache_hits,
            plan_cache_misses,
            replanned,
            replanned_alike,
            keys_sorted,
            sorted_bytes,
            locks,
            spilled,
        } = before;
        let of_lock = |now: &LockCounters, before: &LockCounters| LockCounters {
            acquired: now.acquired.since(&before.acquired),
            waited: now.waited.since(&before.waited),
            wait_us: now.wait_us.since(&before.wait_us),
        };
        let of_spills = |now: &SpillCounters, before: &SpillCounters| SpillCounters {
            spills: now.spills.since(&before.spills),
            records: now.records.since(&before.records),
            bytes: now.bytes.since(&before.bytes),
            stored_bytes: now.stored_bytes.since(&before.stored_bytes),
        };
        Self {
            docs_examined: self.docs_examined.since(docs_examined),
            keys_examined: self.keys_examined.since(keys_examined),
            yields: self.yields.since(yields),
            write_conflicts: self.write_conflicts.since(write_conflicts),
            keys_inserted: self.keys_inserted.since(keys_inserted),
            keys_deleted: self.keys_deleted.since(keys_deleted),
            document_wait_us: self.document_wait_us.since(document_wait_us),
            has_sort_stage: self.has_sort_stage.since(has_sort_stage),
            plan_cache_hits: self.plan_cache_hits.since(plan_cache_hits),
            plan_cache_misses: self.plan_cache_misses.since(plan_cache_misses),
            replanned: self.replanned.since(replanned),
            replanned_alike: self.replanned_alike.since(replanned_alike),
            keys_sorted: self.keys_sorted.since(keys_sorted),
            sorted_bytes: self.sorted_bytes.since(sorted_bytes),
            locks: std::array::from_fn(|mode| of_lock(&self.locks[mode], &locks[mode])),
            spilled: std::array::from_fn(|what| of_spills(&self.spilled[what], &spilled[what])),
        }
    }

    /// A plan sorts its rows itself.
    pub fn note_sort(&self) {
        self.has_sort_stage.0.store(1, Ordering::Relaxed);
    }

    /// Whether one has; that it has is forgotten.
    pub fn forget_sort(&self) -> bool {
        self.has_sort_stage.0.swap(0, Ordering::Relaxed) > 0
    }

    /// Whether anything has been spilled.
    pub fn has_spilled(&self) -> bool {
        self.spilled.iter().any(|spilled| spilled.spills.get() > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use vfs::SimulatedClock;

    #[test]
    fn deadline_and_kill_end_an_operation() {
        let clock = Arc::new(SimulatedClock::new(1000));
        let op = Operation::new(clock.clone(), 7);
        assert_eq!(op.check_now(), Ok(()));
        op.set_deadline_ms(50);
        clock.advance(Duration::from_millis(49));
        assert_eq!(op.check_now(), Ok(()));
        clock.advance(Duration::from_millis(1));
        assert_eq!(op.check_now(), Err(Interrupted::TimeExpired));
        assert!(
            (0..=CHECKS_PER_CLOCK_READ).any(|_| op.check().is_err()),
            "the cheap check looks at the clock in time"
        );
        op.kill_handle().set(Interrupted::Shutdown);
        op.kill();
        assert_eq!(op.check(), Err(Interrupted::Shutdown), "the first reason stays");
        let free = Operation::new(clock, 8);
        free.set_deadline_ms(0);
        assert_eq!(free.check_now(), Ok(()));
    }
}
