//! A member of a replica set: its configuration, its role, and what it knows of the others.
//!
//! A server started with `--replSet` has no role before the set is initiated, or before it has copied the data of a
//! set that took it in. A member that is alone decides alone: it is the primary, but for the time after
//! `replSetStepDown`. With others, consensus (`storage`'s driver) says who leads, and [`ReplicaSet::take_standing`]
//! makes roles of that. Threads and connections are not here: [`MemberThreads`] is how they are reached.
//!
//! Invariants: `is_writable` says of the role whether it is that of the primary, and is set under `member`. A role
//! follows from the other fields of [`Member`] and is never set by itself.

mod config;
mod consensus_members;
mod hello;
mod peer_state;
mod role;

pub use config::{MemberConfig, SetConfig};
pub use consensus_members::ConsensusMembers;
pub use hello::{date_of, majority_point, term_of, write_op_time};
pub use peer_state::{PeerState, instance_in};
pub use role::Role;

use crate::error::{CommandError, Result};
use crate::led::Led;
use crate::reply::Reply;
use bson::oid::ObjectId;
use bson::{Document, RawDocument, RawDocumentBuf};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use storage::{ClusterTime, ElectionReason, Membership, Operation, Standing, StorageError};
use vfs::{Registration, WaitList, Waker};
use wire::ErrorCode;

/// How long a waiter sleeps between two looks at its operation.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// Connections of this server to one other member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConnections {
    /// `name:port`.
    pub host: String,
    /// Those over which an answer is waited for, or something is sent.
    pub in_use: u64,
    /// Those that are open besides.
    pub available: u64,
    /// Those there have been since the start.
    pub created: u64,
}

/// A connection to another member.
pub trait MemberConnection: Send {
    /// Sends a command and waits for the reply, whatever it says, as long as `goes_on`.
    ///
    /// # Errors
    /// A sentence: the connection is of no use any more.
    fn call(
        &mut self,
        command: &RawDocument,
        goes_on: &dyn Fn() -> bool,
    ) -> std::result::Result<RawDocumentBuf, String>;
}

/// The threads and connections of a member, which are where sockets are.
pub trait MemberThreads: Send + Sync {
    /// Asks another server something and waits for its answer.
    ///
    /// # Errors
    /// A sentence: it cannot be reached, or what it says instead.
    fn ask(
        &self,
        host: &str,
        question: &RawDocument,
        patience: Duration,
    ) -> std::result::Result<RawDocumentBuf, String>;

    /// Connects to another server, as a member. No wait for an answer takes longer than `patience`.
    ///
    /// # Errors
    /// A sentence: it cannot be reached.
    fn connect(&self, host: &str, patience: Duration) -> std::result::Result<Box<dyn MemberConnection>, String>;

    /// The configuration changed, or there is something to do for who looks after the set.
    fn wake(&self);

    /// Asks all others at once how they are.
    fn ask_all(&self);

    /// Takes part in consensus with others from here on.
    ///
    /// # Errors
    /// Those of [`storage::Storage::take_part`].
    fn take_part(&self, members: &Membership, election_timeout: Duration) -> std::result::Result<(), StorageError>;

    /// Begins to copy all data of another member. Nothing is done when that goes on already.
    fn copy(&self, wanted: WantedCopy);

    /// Keeps a configuration, and this server's number in it, that is to be forced, and has the server start anew.
    ///
    /// # Errors
    /// A sentence: it cannot be written.
    fn force(&self, configuration: &Document) -> std::result::Result<(), String>;

    /// Keeps how many bytes of history the log keeps, and nothing younger than `time` leaves it, for the next start.
    ///
    /// # Errors
    /// A sentence: it cannot be written.
    fn keep_oplog_retention(&self, bytes: u64, time: Duration) -> std::result::Result<(), String>;

    /// The connections to other members that this server has made, by host.
    fn connections(&self) -> Vec<MemberConnections>;

    /// Cuts those to these hosts, each `name:port`. Who needs one makes another.
    fn drop_connections(&self, hosts: &[String]);

    /// Asks the primary, which has the number, for an entry of at least this time.
    fn want(&self, primary: u64, time: ClusterTime);
}

/// The configuration, the role, and what the role follows from.
#[derive(Clone)]
pub struct Member {
    /// Of the set; `None` before it is initiated.
    pub config: Option<SetConfig>,
    /// How consensus knows the members; `None` when there has only been one.
    pub consensus: Option<ConsensusMembers>,
    /// Both as the primary has them, while this member has not applied that yet. Who counts is what it has applied; by
    /// what it was told it reaches those who came since.
    pub told: Option<(SetConfig, ConsensusMembers)>,
    /// This server's number in the configuration.
    pub id: i32,
    /// Of this server.
    pub role: Role,
    /// The newest term of the log that it knows.
    pub term: u64,
    /// Wall time of the last election that it won, in milliseconds since the Unix epoch.
    pub elected_ms: i64,
    /// Why it stood for that.
    pub elected_for: ElectionReason,
    /// A secondary does not stand for election before this (monotonic) time.
    pub frozen_until: Duration,
    /// The member that it takes for the primary.
    pub primary: Option<i32>,
    /// That one's number in consensus, which the configuration may come to know later.
    leader: Option<u64>,
    /// It was elected, and may write.
    pub leads: bool,
    /// It shows less than it may have shown before it was started.
    pub is_behind: bool,
    /// It leads and takes no writes any more: others catch up.
    pub steps_down: bool,
    /// `replSetMaintenance` has been asked for so many times more than it was ended.
    pub maintenance: u32,
    /// It is an arbiter, and there has been no leader for long.
    pub stands_in: bool,
    /// It is to become another instance, with a copy of another member's data.
    pub joins_as: Option<[u8; 16]>,
    /// The copy is being made.
    pub copies: bool,
    /// Rises with each change that drivers are to hear of.
    counter: i64,
}

impl Member {
    /// What the other fields make of it.
    fn role_now(&self) -> Role {
        let me = self.config.as_ref().map(|config| config.member(self.id));
        match me {
            _ if self.copies => Role::Startup2,
            None => Role::Startup,
            Some(None) => Role::Removed,
            Some(Some(_)) if self.joins_as.is_some() => Role::Recovering,
            Some(Some(me)) if me.arbiter_only => Role::Arbiter,
            Some(Some(_)) if self.leads && !self.steps_down => Role::Primary,
            Some(Some(_)) if self.maintenance > 0 || self.is_behind => Role::Recovering,
            Some(Some(_)) => Role::Secondary,
        }
    }

    /// The member of the configuration with a number in consensus.
    pub fn by_consensus_id(&self, id: u64) -> Option<&MemberConfig> {
        let known = self.consensus.as_ref()?.by_id(id)?;
        self.config.as_ref()?.member(known.member)
    }

    /// Whether it may be elected at a (monotonic) time.
    pub fn may_stand(&self, now: Duration) -> bool {
        let is_electable = self.me().is_some_and(MemberConfig::is_electable);
        let is_free = self.frozen_until <= now && self.maintenance == 0;
        self.joins_as.is_none() && ((is_electable && is_free) || self.stands_in)
    }

    /// Says which member leads, among others: when the leader is another one, or members are known by other numbers.
    pub fn find_primary(&mut self) {
        let told = |id: u64| {
            let (config, consensus) = self.told.as_ref()?;
            config.member(consensus.by_id(id)?.member)
        };
        let leader = self.leader.and_then(|id| self.by_consensus_id(id).or_else(|| told(id)));
        // An arbiter that stands in takes no writes.
        self.primary = leader.filter(|leader| !leader.arbiter_only).map(|leader| leader.id);
    }

    /// Takes note of what the primary has, unless this member has that, too.
    pub fn hear_configuration(&mut self, config: SetConfig, consensus: ConsensusMembers) {
        self.told = Some((config, consensus));
        self.forget_told();
        self.find_primary();
    }

    /// Forgets what the primary told of the configuration when this member has applied it.
    pub fn forget_told(&mut self) {
        let of = |config: &SetConfig, consensus: &ConsensusMembers| (config.version, consensus.numbers_given());
        let applied = self.config.as_ref().zip(self.consensus.as_ref());
        let applied = applied.map(|(config, consensus)| of(config, consensus));
        self.told
            .take_if(|(config, consensus)| applied.is_some_and(|applied| of(config, consensus) <= applied));
    }

    /// The newest configuration that this member knows of, applied or not, with its members' numbers.
    pub fn newest_configuration(&self) -> Option<(&SetConfig, Option<&ConsensusMembers>)> {
        match &self.told {
            Some((config, consensus)) => Some((config, Some(consensus))),
            None => Some((self.config.as_ref()?, self.consensus.as_ref())),
        }
    }

    /// This server in the configuration.
    pub fn me(&self) -> Option<&MemberConfig> {
        self.config.as_ref()?.member(self.id)
    }

    /// Leaves the votes out of its configuration that consensus has not given: who was added or is made anew has none
    /// before it has caught up, and no majority waits for it.
    #[must_use]
    pub fn counting_votes(mut self) -> Self {
        if let (Some(config), Some(consensus)) = (&mut self.config, &self.consensus) {
            for member in &mut config.members {
                member.votes &= consensus.of(member.id).is_some_and(|known| known.votes);
            }
        }
        self
    }

    /// What drivers and the log hear of.
    fn shown(&self) -> (Role, u64, Option<i32>, Option<i32>, u64) {
        let version = self.config.as_ref().map(|config| config.version);
        (self.role, self.term, self.primary, version, self.elected_ms as u64)
    }
}

/// A copy of all data that this server is to make.
#[derive(Clone, Debug)]
pub struct WantedCopy {
    /// To become this instance.
    pub instance: [u8; 16],
    /// Of the configuration only.
    pub is_arbiter: bool,
    /// Where the primary is.
    pub primary: String,
    /// Where secondaries are that show what is new.
    pub secondaries: Vec<String>,
    /// The one that it is to be made of, if somebody said so.
    pub source: Option<String>,
}

/// How far a copy of all data has come.
#[derive(Clone, Debug, Default)]
pub struct CopyProgress {
    /// Whom it is made of; empty: none is, or was.
    pub source: String,
    /// Wall time of its begin.
    pub started_ms: i64,
    /// Of whom it can be made.
    pub sources: Vec<String>,
    /// Another source was chosen since it began.
    pub is_outdated: bool,
    /// The files are copied, not the rows.
    pub by_files: bool,
    /// Tables copied, and all of them; files, where those are copied.
    pub tables: (u64, u64),
    /// Rows and bytes copied.
    pub rows: u64,
    /// See `rows`.
    pub bytes: u64,
    /// Bytes of all files; 0 where rows are copied, whose sum nobody knows.
    pub bytes_total: u64,
    /// Copies that failed.
    pub failed: u32,
    /// Why the last one did.
    pub failure: String,
}

/// See the module.
pub struct ReplicaSet {
    /// The set's name (`--replSet`).
    pub name: String,
    /// Initiate the set at the first start.
    pub initiates_itself: bool,
    /// How this server calls itself when nobody else does.
    own_host: String,
    port: u16,
    /// The data directory, which another one never has the number of.
    pub instance: [u8; 16],
    /// What time it was while this server led.
    pub(crate) led: Mutex<Led>,
    /// Of this process, for `topologyVersion`.
    process: ObjectId,
    member: Mutex<Member>,
    changed: Condvar,
    /// Drivers that wait for a change without a thread.
    wait_list: Arc<WaitList>,
    is_writable: AtomicBool,
    /// Held while the configuration is changed: what was checked is still so when it is written.
    configuring: Mutex<()>,
    peers: Mutex<BTreeMap<i32, PeerState>>,
    threads: OnceLock<Weak<dyn MemberThreads>>,
    /// Of the copy that this member makes, or made.
    pub copy: Mutex<CopyProgress>,
    /// Of whom it is to be made (`replSetSyncFrom`); as `initialSyncSourceReadPreference` says when nobody is.
    pub copy_source: Mutex<Option<String>>,
    /// The instance as which a copy was begun before this start.
    pub begun_as: Mutex<Option<[u8; 16]>>,
    /// The latest cluster time that a member waits for.
    pub wanted: AtomicU64,
}

/// `topologyVersion` as a driver sends it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyVersion {
    /// The process that gave it.
    pub process: ObjectId,
    /// The state of that process.
    pub counter: i64,
}

impl TopologyVersion {
    /// Fails when nobody can have been told of this state, as the process has come to `counter`.
    pub(crate) fn check_not_ahead(self, counter: i64) -> Result<()> {
        match self.counter > counter {
            true => Err(CommandError::new(
                ErrorCode(31382),
                format!(
                    "Received a topology version with counter: {} which is greater than the server topology version counter: {counter}",
                    self.counter
                ),
            )),
            false => Ok(()),
        }
    }

    /// Appends `topologyVersion`.
    pub(crate) fn write(self, reply: &mut Reply<'_>) {
        reply.open_document("topologyVersion");
        reply.value("processId", &self.process.into());
        reply.int64("counter", self.counter);
        reply.close();
    }
}

impl ReplicaSet {
    /// A server of the set `name` without a configuration. `own_host` is how it is reached, `instance` its data
    /// directory's own number.
    pub fn new(name: String, initiates_itself: bool, (own_host, port): (&str, u16), instance: [u8; 16]) -> Self {
        Self {
            name,
            initiates_itself,
            own_host: format!("{own_host}:{port}"),
            port,
            instance,
            led: Mutex::default(),
            process: ObjectId::new(),
            member: Mutex::new(Member {
                config: None,
                consensus: None,
                told: None,
                id: 0,
                role: Role::Startup,
                term: 0,
                elected_ms: 0,
                elected_for: ElectionReason::Timeout,
                frozen_until: Duration::ZERO,
                primary: None,
                leader: None,
                leads: false,
                steps_down: false,
                is_behind: false,
                maintenance: 0,
                stands_in: false,
                joins_as: None,
                copies: false,
                counter: 0,
            }),
            changed: Condvar::new(),
            wait_list: Arc::default(),
            is_writable: AtomicBool::new(false),
            configuring: Mutex::default(),
            peers: Mutex::default(),
            threads: OnceLock::new(),
            copy: Mutex::default(),
            copy_source: Mutex::default(),
            begun_as: Mutex::default(),
            wanted: AtomicU64::new(0),
        }
    }

    /// Connects it with its threads. Once.
    pub fn set_threads(&self, threads: Weak<dyn MemberThreads>) {
        let is_first = self.threads.set(threads).is_ok();
        debug_assert!(is_first, "a member has its threads for good");
    }

    /// Its threads; `None` where there are none, as in tests of a set of one.
    pub fn threads(&self) -> Option<Arc<dyn MemberThreads>> {
        self.threads.get()?.upgrade()
    }

    /// The time between two questions to another member, and how long its answer may take.
    pub fn heartbeat_times(&self) -> (Duration, Duration) {
        self.with_member(|member| {
            let settings = member.config.as_ref().map(|config| &config.settings);
            settings.map_or((Duration::from_secs(2), Duration::from_secs(10)), |settings| {
                (
                    Duration::from_millis(settings.heartbeat_interval_ms),
                    Duration::from_secs(settings.heartbeat_timeout_s),
                )
            })
        })
    }

    /// Has its threads look at what changed.
    pub fn wake(&self) {
        if let Some(threads) = self.threads() {
            threads.wake();
        }
    }

    /// One changes the configuration at a time.
    pub fn configure(&self) -> MutexGuard<'_, ()> {
        self.configuring.lock()
    }

    /// The state now.
    pub fn member(&self) -> Member {
        self.member.lock().clone()
    }

    /// Looks at the state without a copy of it.
    pub fn with_member<T>(&self, look: impl FnOnce(&Member) -> T) -> T {
        look(&self.member.lock())
    }

    /// What this server is now.
    pub fn role(&self) -> Role {
        self.member.lock().role
    }

    /// Whether it takes writes.
    pub fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Acquire)
    }

    /// How this server calls itself when nobody else does, `host:port`.
    pub fn own_host(&self) -> &str {
        &self.own_host
    }

    /// Whether `host:port` may be this server, as far as can be told without asking there: its port is.
    pub fn may_be_me(&self, host: &str) -> bool {
        let port = host.rsplit_once(':').map_or("27017", |(_, port)| port);
        host == self.own_host || port.parse() == Ok(self.port)
    }

    /// Changes the state; drivers that wait hear of it when it is one that they are told of.
    pub fn change(&self, change: impl FnOnce(&mut Member)) {
        let mut member = self.member.lock();
        let before = member.shown();
        change(&mut member);
        member.role = member.role_now();
        self.is_writable.store(member.role == Role::Primary, Ordering::Release);
        if member.shown() != before {
            member.counter += 1;
            self.changed.notify_all();
            drop(member);
            self.wait_list.wake_all();
        }
    }

    /// Takes up what consensus says of this member.
    pub fn take_standing(&self, standing: &Standing, now_ms: i64) {
        self.change(|member| {
            let leads = standing.is_writable;
            member.term = member.term.max(standing.term);
            member.leader = standing.leader;
            member.find_primary();
            member.is_behind = !standing.is_caught_up;
            if leads && !member.leads {
                member.elected_ms = now_ms;
                member.elected_for = standing.reason;
                member.steps_down = false;
            }
            member.leads = leads;
        });
    }

    /// Waits until the state is another one than a driver knows, at most `until` (monotonic). Where `waker` makes one
    /// it does not wait: that one is called when the state changes.
    ///
    /// # Errors
    /// The operation was interrupted; the driver knows a later state than there is (`TypeMismatch` is the parser's).
    pub(crate) fn wait_for_change(
        &self,
        operation: &Operation,
        known: TopologyVersion,
        until: Duration,
        waker: impl FnOnce() -> Option<Arc<Waker>>,
    ) -> Result<Option<(Arc<Waker>, Registration)>> {
        let mut member = self.member.lock();
        if known.process != self.process {
            return Ok(None);
        }
        known.check_not_ahead(member.counter)?;
        let left = || until.saturating_sub(operation.clock().monotonic());
        if member.counter == known.counter && !left().is_zero() {
            operation.check_now().map_err(StorageError::from)?;
            // Under the lock that changes are made under.
            if let Some(waker) = waker() {
                let place = self.wait_list.enter(&waker);
                return Ok(Some((waker, place)));
            }
        }
        let _asleep = vfs::asleep();
        while member.counter == known.counter && !left().is_zero() {
            operation.check_now().map_err(StorageError::from)?;
            self.changed.wait_for(&mut member, left().min(WAIT_SLICE));
        }
        Ok(None)
    }

    /// What the others said last, by their numbers.
    pub fn peers(&self) -> BTreeMap<i32, PeerState> {
        self.peers.lock().clone()
    }

    /// What one of them said last.
    pub fn peer(&self, member: i32) -> PeerState {
        self.peers.lock().get(&member).cloned().unwrap_or_default()
    }

    /// To whom messages of consensus can be brought: the others' hosts by their numbers, those that the newest
    /// configuration gives them and those that they go by. A member that was taken in anew may ask for votes before
    /// this one has applied, or been told, what number it was given. Who counts is not said by this.
    pub fn receivers(&self, own: u64) -> HashMap<u64, String> {
        let peers = self.peers();
        self.with_member(|member| {
            let Some((config, consensus)) = member.newest_configuration() else {
                return HashMap::new();
            };
            let host = |id: i32| config.member(id).filter(|_| id != member.id).map(|of| of.host.clone());
            let said = peers.iter().map(|(id, peer)| (peer.consensus_id, *id));
            let given = consensus.into_iter().flat_map(|consensus| &consensus.members);
            // What is given goes before what is said: of two that go by one number it is one.
            said.chain(given.map(|known| (known.id, known.member)))
                .filter(|(number, _)| *number != 0 && *number != own)
                .filter_map(|(number, id)| Some((number, host(id)?)))
                .collect()
        })
    }

    /// A member has answered, or has not.
    pub fn heard(
        &self,
        member: i32,
        reply: std::result::Result<&RawDocument, &str>,
        now: (i64, Duration),
        ping: Duration,
    ) {
        let foreign = reply.ok().and_then(|reply| self.is_anothers(reply));
        let mut peers = self.peers.lock();
        let peer = peers.entry(member).or_default();
        match (reply, foreign) {
            (Ok(reply), None) => peer.answered(reply, now, ping),
            // Its data are another set's: it must neither be taken in nor told what to copy.
            (Ok(_), Some(reason)) => peer.silent(&reason),
            (Err(reason), _) => peer.silent(reason),
        }
    }

    /// Why an answer to a heartbeat is not from this set; see [`ReplicaSet::is_another`]. An older server does not
    /// tell.
    pub fn is_anothers(&self, answer: &RawDocument) -> Option<String> {
        self.is_another(answer.get_object_id("setId").ok())
    }

    /// Why a set of this name is another one than this, as far as both have an id.
    pub fn is_another(&self, id: Option<ObjectId>) -> Option<String> {
        let own = self.with_member(|member| member.config.as_ref().and_then(|config| config.settings.replica_set_id));
        let (own, id) = own.zip(id).filter(|(own, id)| own != id)?;
        Some(format!(
            "replica set IDs do not match, ours: {own}; remote node's: {id}"
        ))
    }

    /// A member has asked.
    pub fn has_asked(&self, member: i32, now_ms: i64) {
        if let Some(peer) = self.peers.lock().get_mut(&member) {
            peer.asked_ms = now_ms;
        }
    }

    /// Forgets members that the configuration has no more.
    pub fn keep_peers(&self, is_kept: impl Fn(i32) -> bool) {
        self.peers.lock().retain(|member, _| is_kept(*member));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{doc, rawdoc};

    fn set() -> ReplicaSet {
        ReplicaSet::new("rs".into(), false, ("localhost", 27017), [1; 16])
    }

    #[test]
    fn a_host_with_this_port_may_be_me() {
        let set = set();
        assert!(set.may_be_me("localhost:27017") && set.may_be_me("db.example.org:27017"));
        assert!(set.may_be_me("db.example.org"));
        assert!(!set.may_be_me("localhost:27018") && !set.may_be_me("localhost:x"));
    }

    #[test]
    fn roles_follow_from_what_is_known() {
        let set = set();
        let config = |arbiter: bool| {
            let config = doc! { "_id": "rs", "version": 1, "members": [
                { "_id": 0, "host": "a:1" }, { "_id": 1, "host": "b:1", "arbiterOnly": arbiter },
            ] };
            SetConfig::parse(&RawDocumentBuf::try_from(&config).expect("valid")).expect("parsed")
        };
        assert_eq!(set.role(), Role::Startup);
        set.change(|member| member.copies = true);
        assert_eq!(set.role(), Role::Startup2);
        set.change(|member| (member.copies, member.config, member.id) = (false, Some(config(true)), 1));
        assert_eq!(set.role(), Role::Arbiter);
        set.change(|member| member.config = Some(config(false)));
        assert_eq!(set.role(), Role::Secondary);
        let standing = Standing {
            id: 2,
            is_writable: true,
            is_caught_up: true,
            term: 3,
            leader: Some(2),
            ..Standing::default()
        };
        set.change(|member| {
            let mut consensus = ConsensusMembers::of_one(0, [9; 16]);
            consensus.take_in(1, [1; 16]);
            member.consensus = Some(consensus);
        });
        set.take_standing(&standing, 7);
        set.take_standing(&standing, 8);
        let member = set.member();
        assert_eq!(
            (member.role, member.term, member.primary, member.elected_ms),
            (Role::Primary, 3, Some(1), 7)
        );
        assert!(set.is_writable());
        set.change(|member| member.steps_down = true);
        assert_eq!(set.role(), Role::Secondary);
        assert!(!set.is_writable());
        set.change(|member| member.maintenance = 1);
        assert_eq!(set.role(), Role::Recovering);
        set.change(|member| member.id = 7);
        assert_eq!(set.role(), Role::Removed);
        // A leader that the configuration does not know yet.
        let mut later = set.member().consensus.expect("known");
        later.take_in(0, [8; 16]);
        let unknown = Standing {
            leader: later.of(0).map(|known| known.id),
            is_writable: false,
            ..standing
        };
        set.take_standing(&unknown, 9);
        assert_eq!(set.member().primary, None);
        set.change(|member| {
            member.consensus = Some(later);
            member.find_primary();
        });
        assert_eq!(set.member().primary, Some(0));
    }

    #[test]
    fn drivers_hear_of_what_they_are_told_of() {
        let set = set();
        let counter = || set.with_member(|member| member.counter);
        let before = counter();
        set.change(|member| member.frozen_until = Duration::from_secs(1));
        assert_eq!(counter(), before);
        set.change(|member| member.term = 1);
        assert_eq!(counter(), before + 1);
    }

    /// One that was made anew was not answered by a member that had not applied its number, and had been started since
    /// the primary told it: with no other majority nobody was elected any more.
    #[test]
    fn members_are_reached_by_the_number_that_they_go_by() {
        let set = set();
        assert!(set.receivers(1).is_empty());
        let config = doc! { "_id": "rs", "version": 1, "members": [
            { "_id": 0, "host": "a:1" }, { "_id": 1, "host": "b:1" }, { "_id": 2, "host": "c:1" },
        ] };
        let mut consensus = ConsensusMembers::of_one(0, [1; 16]);
        consensus.take_in(1, [2; 16]);
        consensus.take_in(2, [3; 16]);
        set.change(|member| {
            member.config = SetConfig::parse(&RawDocumentBuf::try_from(&config).expect("valid")).ok();
            member.consensus = Some(consensus);
        });
        let of = |hosts: &[(u64, &str)]| -> HashMap<u64, String> {
            hosts
                .iter()
                .map(|(number, host)| (*number, (*host).to_owned()))
                .collect()
        };
        assert_eq!(set.receivers(1), of(&[(2, "b:1"), (3, "c:1")]));
        let goes_by = |member: i32, number: i64| {
            let answer = rawdoc! { "state": 2, "v": 1, "consensusId": number };
            set.heard(member, Ok(&answer), (5, Duration::from_secs(1)), Duration::ZERO);
        };
        goes_by(1, 1001);
        assert_eq!(set.receivers(1), of(&[(1001, "b:1"), (2, "b:1"), (3, "c:1")]));
        // They take no part; this server's own and another member's number are no news; it has no such member.
        goes_by(1, 0);
        for (member, number) in [(2, 1), (1, 3), (7, 1002)] {
            goes_by(member, number);
        }
        assert_eq!(set.receivers(1), of(&[(2, "b:1"), (3, "c:1")]));
    }

    #[test]
    fn a_peer_is_what_it_said_last() {
        let set = set();
        let answer = rawdoc! { "state": 2, "v": 4, "term": 3_i64 };
        set.heard(1, Ok(&answer), (5, Duration::from_secs(1)), Duration::from_millis(2));
        assert_eq!((set.peer(1).role, set.peer(1).version), (Role::Secondary, 4));
        set.heard(1, Err("gone"), (6, Duration::from_secs(2)), Duration::ZERO);
        assert_eq!((set.peer(1).role, set.peer(1).message), (Role::Down, "gone".to_owned()));
    }
}
