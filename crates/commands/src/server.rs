//! The state all commands share.

use crate::client::Begun;
use crate::cluster_parameters::ClusterParameters;
use crate::command::timeseries::open_buckets::OpenBuckets;
use crate::concerns::{DefaultConcerns, Deployment};
use crate::copies::Copies;
use crate::cursors::{Cursors, SessionId};
use crate::definition::CommandTable;
use crate::fail_points::FailPoints;
use crate::fsync_lock::FsyncLock;
use crate::logger::Logger;
use crate::metrics::{CommandCounters, Metrics};
use crate::parameters::Parameters;
use crate::parked::ParkedRequests;
use crate::pinned::PinnedStates;
use crate::profiler::Profiler;
use crate::query_settings::SettingsOfShapes;
use crate::replica_set::ReplicaSet;
use crate::request::Traffic;
use crate::rights::{AccessControl, session_user};
use crate::session_cache::SessionCache;
use crate::standalone::Standalone;
use crate::throttle;
use crate::tickets::Tickets;
use crate::transactions::ServerSessions;
use crate::{Client, Peer, Settings};
use parking_lot::{Mutex, RwLock};
use query::BlockingLimits;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::{Charge, Interrupted, MemoryAccount, MemoryBudget, Operation, ScriptLimits, SessionKey, Storage};
use vfs::Env;

/// A session ends after this long without use.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Everything commands need, shared by all connections.
pub struct Server {
    /// Files, clock, randomness.
    pub env: Env,
    /// The data.
    pub storage: Arc<Storage>,
    /// Log lines.
    pub logger: Arc<Logger>,
    /// What the process was started with.
    pub settings: Settings,
    /// What can be changed at run time.
    pub parameters: Parameters,
    /// Counters.
    pub metrics: Metrics,
    /// What it can be asked to do.
    pub(crate) commands: &'static CommandTable,
    /// Calls by command, in the order of the table.
    pub command_counters: Vec<CommandCounters>,
    /// Open cursors.
    pub cursors: Cursors,
    /// Those of commands that name none.
    pub(crate) default_concerns: RwLock<DefaultConcerns>,
    /// What all members of the set go by.
    pub(crate) cluster_parameters: ClusterParameters,
    /// What is set for shapes of queries.
    pub(crate) query_settings: SettingsOfShapes,
    /// States that are read for a while.
    pub pinned: PinnedStates,
    /// Which operations are written down.
    pub(crate) profiler: Profiler,
    /// Where measurements of time-series collections were put last.
    pub(crate) open_buckets: OpenBuckets,
    /// Errors on demand.
    pub fail_points: FailPoints,
    /// Sessions with transaction numbers.
    pub sessions: ServerSessions,
    /// All sessions that are used.
    pub session_cache: SessionCache,
    /// Connections by number.
    pub clients: Mutex<HashMap<u32, Arc<Client>>>,
    /// Wall and monotonic time of the start.
    pub started: (i64, Duration),
    /// What all operations may gather in memory.
    memory: Arc<MemoryBudget>,
    scripts: Arc<ScriptLimits>,
    /// How many reads and writes run at a time.
    pub(crate) tickets: Tickets,
    /// Requests that wait for an event.
    pub(crate) parked: ParkedRequests,
    next_client: AtomicU32,
    pub(crate) next_operation: AtomicU32,
    last_timestamp: AtomicU64,
    shutting_down: AtomicBool,
    /// What it tells of itself when it is no member of a set.
    pub(crate) standalone: Standalone,
    /// Who may do what.
    pub(crate) access: AccessControl,
    /// Held while users and roles are changed: what is read of one is still so when it is written.
    pub(crate) user_changes: Mutex<()>,
    /// What users who do not exist are made up from.
    pub(crate) pretence: OnceLock<[u8; 32]>,
    /// Copies of the data that other members make.
    pub(crate) copies: Copies,
    /// Nested `fsync` locks, see the command.
    pub fsync_lock: FsyncLock,
}

impl Server {
    /// Puts the parts together.
    pub(crate) fn with_commands(
        commands: &'static CommandTable,
        env: Env,
        storage: Arc<Storage>,
        logger: Arc<Logger>,
        settings: Settings,
    ) -> Arc<Self> {
        let parameters = Parameters::new(settings.slow_ms, settings.quiet);
        let started = (env.clock.now_ms(), env.clock.monotonic());
        let server = Self {
            access: AccessControl::new(settings.access_control),
            cursors: Cursors::new(env.clone()),
            default_concerns: RwLock::default(),
            cluster_parameters: ClusterParameters::default(),
            query_settings: SettingsOfShapes::default(),
            pinned: PinnedStates::default(),
            profiler: Profiler::new(settings.profiling, settings.slow_sample_rate),
            open_buckets: OpenBuckets::default(),
            fail_points: FailPoints::default(),
            sessions: ServerSessions::default(),
            session_cache: SessionCache::default(),
            env,
            storage,
            logger,
            settings,
            parameters,
            metrics: Metrics::default(),
            commands,
            command_counters: commands.iter().map(|_| CommandCounters::default()).collect(),
            clients: Mutex::new(HashMap::new()),
            started,
            memory: MemoryBudget::unlimited(),
            scripts: Arc::default(),
            tickets: Tickets::new(),
            parked: ParkedRequests::default(),
            next_client: AtomicU32::new(1),
            next_operation: AtomicU32::new(1),
            last_timestamp: AtomicU64::new(0),
            shutting_down: AtomicBool::new(false),
            standalone: Standalone::new(),
            user_changes: Mutex::new(()),
            pretence: OnceLock::new(),
            copies: Copies::default(),
            fsync_lock: FsyncLock::default(),
        };
        Arc::new(server)
    }

    /// The replica set, for a member.
    pub fn replica_set(&self) -> Option<&ReplicaSet> {
        self.settings.replica_set.as_deref()
    }

    /// What concerns are read for.
    pub(crate) fn deployment(&self) -> Deployment {
        Deployment {
            journal: self.settings.journal,
            is_member: self.settings.replica_set.is_some(),
            defaults: self.default_concerns.read().clone(),
        }
    }

    /// Whether the begin and the end of connections go unlogged.
    pub fn is_quiet(&self) -> bool {
        self.parameters.quiet.load(Ordering::Relaxed)
    }

    /// Hands changed parameters to the parts that live by them.
    pub(crate) fn apply_parameters(&self) {
        let parameters = &self.parameters;
        let bytes = |parameter: &AtomicI64| parameter.load(Ordering::Relaxed).unsigned_abs();
        self.memory
            .set_operation_bytes_max(bytes(&parameters.operation_memory_bytes_max));
        self.memory
            .set_total_bytes_max(bytes(&parameters.total_operation_memory_bytes_max));
        self.scripts
            .set_heap_bytes_max(bytes(&parameters.script_heap_mb_max) << 20);
        self.scripts.set_call_ms_max(bytes(&parameters.script_call_ms_max));
        if !self.settings.scripting {
            self.scripts.disable();
        }
        let count = |parameter: &AtomicI64| parameter.load(Ordering::Relaxed) as usize;
        let waiting = count(&parameters.ticket_queue_max);
        self.tickets.read.set_bounds(count(&parameters.read_tickets), waiting);
        self.tickets.write.set_bounds(count(&parameters.write_tickets), waiting);
        if let Some(space) = &self.settings.spill_space {
            space.set_available_bytes_min(bytes(&parameters.spilling_available_bytes_min));
        }
        self.storage
            .set_ttl_enabled(parameters.ttl_monitor_enabled.load(Ordering::Relaxed));
        self.storage.set_ttl_sleep(Duration::from_secs(
            parameters.ttl_monitor_sleep_s.load(Ordering::Relaxed) as u64,
        ));
        self.storage.set_sync_period(Duration::from_secs(
            parameters.sync_delay_s.load(Ordering::Relaxed) as u64
        ));
        self.storage
            .engine()
            .set_history_percent(parameters.snapshot_history_percent.load(Ordering::Relaxed) as u32);
        self.storage.log().set_commit_interval(Duration::from_millis(
            parameters.journal_commit_interval_ms.load(Ordering::Relaxed) as u64,
        ));
    }

    /// What the blocking stages of a command may hold, and where they go on beyond it. `allow_disk_use` is what the
    /// command says.
    pub(crate) fn blocking_limits(&self, allow_disk_use: Option<bool>) -> BlockingLimits {
        let parameters = &self.parameters;
        let bytes = |parameter: &AtomicI64| parameter.load(Ordering::Relaxed).unsigned_abs();
        let uses_disk = allow_disk_use.unwrap_or_else(|| parameters.disk_use_by_default.load(Ordering::Relaxed));
        BlockingLimits {
            sort_bytes: bytes(&parameters.sort_bytes_max),
            group_bytes: bytes(&parameters.group_bytes_max),
            bucket_auto_bytes: bytes(&parameters.bucket_auto_bytes_max),
            window_bytes: bytes(&parameters.window_bytes_max),
            densify_bytes: bytes(&parameters.densify_bytes_max),
            disk: self.settings.spill_space.clone().filter(|_| uses_disk),
        }
    }

    /// A new connection. Call [`Server::disconnect`] when it ends.
    pub fn connect(&self, peer: Peer) -> Arc<Client> {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new(id, peer));
        self.clients.lock().insert(id, Arc::clone(&client));
        self.metrics.connections_created.add(1);
        client
    }

    /// A connection was refused because there are too many.
    pub fn count_refused(&self) {
        self.metrics.connections_rejected.add(1);
    }

    /// The client takes no replies any more: a read that runs for it ends, and what writes goes on. Requests that it
    /// has sent before may follow, so that it is known until [`Server::disconnect`].
    pub fn abandon(&self, client: &Client) {
        client.set_gone();
        if let Some(id) = client.streamed() {
            self.cursors.kill(id);
        }
    }

    /// The connection has ended: see [`Server::abandon`], and the cursor that only it was to get ends.
    pub fn disconnect(&self, client: &Client) {
        self.abandon(client);
        if self.settings.audit.is_some() {
            let left = client.authentication.lock().user.clone();
            if let Some(left) = left {
                self.audit_logout(client, &left, "the client has disconnected");
            }
        }
        self.clients.lock().remove(&client.id());
    }

    /// Whether a client has still to prove who it is. Without access control nobody has.
    pub fn is_stranger(&self, client: &Client) -> bool {
        self.access.is_enabled() && client.authentication.lock().user.is_none()
    }

    /// Whether somebody at the client's address has proven to be the user of late.
    pub fn has_proven_of_late(&self, client: &Client, database: &str, user: &str) -> bool {
        let key = throttle::key(self.pretence(), user, database, client.peer().address());
        self.access.throttle.is_proven(key, self.env.clock.monotonic())
    }

    /// How long an attempt to prove to be the user would have to wait, as others have failed at the client's address.
    pub fn wait_of_proof(&self, client: &Client, database: &str, user: &str) -> Duration {
        let key = throttle::key(self.pretence(), user, database, client.peer().address());
        self.access.throttle.wait_of(key, self.env.clock.monotonic())
    }

    /// What tells the sessions of a connection's user from those of others: nobody's without access control.
    pub(crate) fn session_user_of(&self, client: &Client) -> [u8; 32] {
        let state = client.authentication.lock();
        session_user(state.user.as_ref().filter(|_| self.access.is_enabled()))
    }

    /// Whether a command needs no ticket, and goes before those that do when there are many.
    pub fn is_urgent(&self, command: &str) -> bool {
        let found = self.commands.find(command);
        found.is_none_or(|(command, _)| self.tickets.of(command.kind).is_none())
    }

    /// So many reads, and as many writes, may wait for their turn.
    pub fn queue_max(&self) -> usize {
        self.parameters.ticket_queue_max.load(Ordering::Relaxed) as usize
    }

    /// Has requests that were put off, and are late or killed, handled. To be called several times a second while there
    /// are some.
    pub fn end_late(&self) {
        self.tickets.end_late();
        self.parked.end_late();
    }

    /// The clients connected now.
    pub(crate) fn connected(&self) -> Vec<Arc<Client>> {
        let mut clients: Vec<_> = self.clients.lock().values().cloned().collect();
        clients.sort_by_key(|client| client.id());
        clients
    }

    /// Nothing yet of the memory of all operations, for what outlives one.
    pub(crate) fn account(&self) -> Charge {
        Charge::new(&MemoryAccount::new(&self.memory))
    }

    /// The memory that all operations gather in.
    pub(crate) fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// A number for a new operation.
    pub(crate) fn new_operation(&self) -> Arc<Operation> {
        // Clients see, and name, 32 bits with a sign.
        let id = self.next_operation.fetch_add(1, Ordering::Relaxed) & i32::MAX as u32;
        let (clock, scripts) = (Arc::clone(&self.env.clock), Arc::clone(&self.scripts));
        let operation = Operation::for_client(clock, id, &self.memory, scripts);
        Arc::new(match self.settings.replica_set {
            Some(_) => operation.at_cluster_time(self.storage.applied().time),
            None => operation,
        })
    }

    /// A timestamp later than every one before: seconds since the epoch and a counter within the second.
    pub(crate) fn next_timestamp(&self) -> bson::Timestamp {
        let now = ((self.env.clock.now_ms() / 1000) as u64) << 32 | 1;
        let mut last = self.last_timestamp.load(Ordering::Relaxed);
        loop {
            let next = now.max(last + 1);
            match self
                .last_timestamp
                .compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    return bson::Timestamp {
                        time: (next >> 32) as u32,
                        increment: next as u32,
                    };
                }
                Err(found) => last = found,
            }
        }
    }

    /// Counts bytes of one request and its reply for `serverStatus.network`.
    pub fn count_network(&self, traffic: Traffic) {
        let network = &self.metrics.network;
        network.bytes_in.add(traffic.bytes_in);
        network.bytes_out.add(traffic.bytes_out);
        network.physical_bytes_in.add(traffic.physical_bytes_in);
        network.physical_bytes_out.add(traffic.physical_bytes_out);
        network.requests.add(1);
    }

    /// The orderly end: refuses new operations with `InterruptedAtShutdown`, interrupts running ones, ends cursors.
    pub fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
        for client in self.connected() {
            client.with_current(|current, operation| {
                if current.command != "shutdown" {
                    operation.kill_handle().set(Interrupted::Shutdown);
                }
            });
        }
        self.cursors.kill_all();
    }

    /// `operation` begins. See [`Client::begin`].
    pub(crate) fn begin(&self, client: &Client, operation: &Arc<Operation>, begun: &Begun<'_>) -> bool {
        let is_new_use = client.begin(Arc::clone(operation), begun);
        // [`Server::begin_shutdown`] sets its flag first, and then interrupts what it finds running: whatever has begun
        // behind its look finds the flag here.
        if self.is_shutting_down() && begun.command != "shutdown" {
            operation.interrupt(Interrupted::Shutdown);
        }
        is_new_use
    }

    /// Lets go on what a client holds up by `fsync` or a fail point, which nobody would end any more: before an orderly
    /// end.
    pub fn release_held(&self) {
        self.fsync_lock.release();
        self.fail_points.release();
    }

    /// Has the orderly end begun?
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Relaxed)
    }

    /// Sessions that nobody has used for a while end, and their cursors with them.
    fn end_unused_sessions(&self) {
        let Some(before) = self.env.clock.monotonic().checked_sub(SESSION_TIMEOUT) else {
            return;
        };
        let mut running: Option<HashSet<SessionId>> = None;
        let ended = self.session_cache.expire(before, |key| {
            running.get_or_insert_with(|| self.running_sessions()).contains(&key.id)
        });
        if !ended.is_empty() {
            let ended: HashSet<_> = ended.into_iter().collect();
            self.cursors.kill_of_sessions(|session, owner| {
                let user = session_user(owner);
                ended.contains(&SessionKey { id: *session, user })
            });
        }
    }

    fn running_sessions(&self) -> HashSet<SessionId> {
        let session = |client: Arc<Client>| client.with_current(|current, _| current.session).flatten();
        self.connected().into_iter().filter_map(session).collect()
    }

    /// Work to be done about once a second by a background thread: cursor time-outs.
    pub fn tick(&self) {
        let limit = self.parameters.cursor_timeout_ms.load(Ordering::Relaxed);
        self.cursors.expire(Duration::from_millis(limit as u64));
        self.sessions.expire(self.env.clock.monotonic(), SESSION_TIMEOUT);
        self.pinned.expire(self.env.clock.monotonic());
        self.copies.expire(self.env.clock.monotonic());
        self.end_unused_sessions();
        if let Some(set) = self.replica_set() {
            self.look_after_set(set);
            self.control_flow(set);
        }
    }
}
