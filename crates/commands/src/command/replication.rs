//! Commands of replica sets, and the start and the upkeep of a member.

use super::update::{self, Images, Statement};
use super::{default_concerns, user_store};
use crate::arguments::{Arguments, missing_field};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::Component;
use crate::metrics::OperationKind;
use crate::replica_set::{Member, MemberConfig, ReplicaSet, Role, SetConfig, date_of, write_op_time};
use crate::reply::Reply;
use crate::server::{SESSION_TIMEOUT, Server};
use crate::{Client, Peer};
use auth::Action;
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime, doc, rawdoc};
use std::sync::Arc;
use std::time::Duration;
use storage::{Namespace, Storage};
use wire::ErrorCode;

/// `replSetInitiate`.
pub const REPL_SET_INITIATE: Command = Command::new(
    "replSetInitiate",
    "Configures a new replica set.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetConfigure]),
    initiate,
)
.admin_only()
.secondary_ok();
/// `replSetReconfig`.
pub const REPL_SET_RECONFIG: Command = Command::new(
    "replSetReconfig",
    "Changes the configuration of the replica set.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetConfigure]),
    reconfigure,
)
.admin_only()
.secondary_ok();
/// `replSetGetStatus`.
pub const REPL_SET_GET_STATUS: Command = Command::new(
    "replSetGetStatus",
    "State of the replica set.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetGetStatus]),
    status,
)
.admin_only()
.secondary_ok();
/// `replSetGetConfig`.
pub const REPL_SET_GET_CONFIG: Command = Command::new(
    "replSetGetConfig",
    "Configuration of the replica set.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetGetConfig]),
    config,
)
.admin_only()
.secondary_ok();
/// `replSetStepDown`.
pub const REPL_SET_STEP_DOWN: Command = Command::new(
    "replSetStepDown",
    "Has the primary become a secondary.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    step_down,
)
.admin_only()
.secondary_ok();
/// `replSetFreeze`.
pub const REPL_SET_FREEZE: Command = Command::new(
    "replSetFreeze",
    "Keeps a secondary from becoming the primary for a while.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    freeze,
)
.admin_only()
.secondary_ok();
/// `appendOplogNote`.
pub const APPEND_OPLOG_NOTE: Command = Command::new(
    "appendOplogNote",
    "Writes a note into the log.",
    OperationKind::Command,
    Access::cluster(&[Action::AppendOplogNote]),
    append_note,
)
.admin_only();
/// An idle primary writes a note after this long: drivers tell by it how far others are behind.
const NOTE_EVERY: Duration = Duration::from_secs(10);

pub(super) fn set<'i>(call: &Invocation<'i>) -> Result<&'i ReplicaSet> {
    call.server
        .replica_set()
        .ok_or_else(|| CommandError::new(ErrorCode::NoReplicationEnabled, "not running with --replSet"))
}

/// The set with its configuration.
fn configured<'i>(call: &Invocation<'i>) -> Result<(&'i ReplicaSet, Member, SetConfig)> {
    let set = set(call)?;
    let member = set.member();
    match member.config.clone() {
        Some(config) => Ok((set, member, config)),
        None => Err(CommandError::new(
            ErrorCode::NotYetInitialized,
            "no replset config has been received",
        )),
    }
}

/// The command's first field, as a document.
fn given<'i>(call: &Invocation<'i>) -> Result<Option<&'i RawDocument>> {
    match call.target()? {
        RawBsonRef::Document(config) if !config.is_empty() => Ok(Some(config)),
        RawBsonRef::Document(_) | RawBsonRef::Null | RawBsonRef::Undefined => Ok(None),
        // What shells send for "no configuration".
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Boolean(_) => Ok(None),
        other => Err(crate::arguments::wrong_type(
            call.command.name,
            call.command.name,
            other,
            "type 'object'",
        )),
    }
}

fn initiate(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let set = set(call)?;
    let _configuring = set.configure();
    if set.member().config.is_some() {
        return Err(CommandError::new(ErrorCode::AlreadyInitialized, "already initialized"));
    }
    let mut config = match given(call)? {
        Some(config) => {
            let config = parse(config)?;
            if config.settings.replica_set_id.is_some() {
                return Err(CommandError::new(
                    ErrorCode::InvalidReplicaSetConfig,
                    "replica set configuration cannot contain 'replicaSetId' field when called from replSetInitiate",
                ));
            }
            config
        }
        None => {
            reply.string(
                "info2",
                "no configuration specified. Using a default configuration for the set",
            );
            reply.string("me", set.own_host());
            let made = SetConfig::of_one(&set.name, set.own_host(), &ObjectId::new());
            parse(&RawDocumentBuf::try_from(&made)?)?
        }
    };
    let me = config.check_initial(&set.name, &|host| set.is_me(host))?.id;
    config.settings.replica_set_id.get_or_insert_with(ObjectId::new);
    keep_config(call, &config)?;
    call.server.begin_as_primary(set, config, me)
}

/// A configuration as a client gives it. The term is the server's to say.
fn parse(config: &RawDocument) -> Result<SetConfig> {
    let mut config = SetConfig::parse(config)?;
    config.term = None;
    if config.members.len() > 1 {
        return Err(CommandError::not_implemented("A replica set of several members"));
    }
    if !config.settings.modes.is_empty() {
        return Err(CommandError::not_implemented("settings.getLastErrorModes"));
    }
    Ok(config)
}

/// Only what concerns a single member can be changed: its host, priority and tags, and the settings.
fn reconfigure(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut force = false;
    call.for_each_field(|name, value| {
        match name {
            "force" => force = arguments.boolean(name, value)?,
            "maxTimeMS" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let _configuring = set(call)?.configure();
    let (set, member, old) = configured(call)?;
    if member.role != Role::Primary && !force {
        return Err(CommandError::new(
            ErrorCode::NotWritablePrimary,
            "Safe reconfig is only allowed on a writable PRIMARY.",
        ));
    }
    let config = given(call)?.ok_or_else(|| missing_field("replSetReconfig", "replSetReconfig"))?;
    let mut config = parse(config)?;
    config.inherit(&old, force);
    let me = config.check_successor(&old, force, &|host| set.is_me(host))?.id;
    if me != member.id {
        return Err(CommandError::new(
            ErrorCode::NewReplicaSetConfigurationIncompatible,
            format!(
                "New and old configurations differ in the _id of the only member: {me} and {}",
                member.id
            ),
        ));
    }
    keep_config(call, &config)?;
    set.change(|member| member.config = Some(config));
    Ok(())
}

fn configurations() -> Result<Namespace> {
    Ok(Namespace::new("local", "system.replset")?)
}

/// Writes the configuration down, and waits until it is on disk.
fn keep_config(call: &mut Invocation<'_>, config: &SetConfig) -> Result<()> {
    let filter = RawDocumentBuf::try_from(&doc! { "_id": &config.name })?;
    let change = RawDocumentBuf::try_from(&config.to_document())?;
    let mut statement = Statement::new(None);
    statement.filter = &filter;
    statement.change = RawBsonRef::Document(&change);
    statement.upsert = true;
    update::run(call, &configurations()?, &statement, Images::None)?;
    let storage = &call.server.storage;
    Ok(storage.wait_durable(storage.last_seq())?)
}

fn config(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    call.for_each_field(|name, value| {
        match name {
            "commitmentStatus" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (_, member, mut config) = configured(call)?;
    config.term = Some(member.term);
    reply.value("config", &config.to_document().into());
    Ok(())
}

fn status(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|name, _| Ok(name == "initialSync"))?;
    let (set, member, config) = configured(call)?;
    let me = own_member(&member, &config)?;
    let server = call.server;
    let durable = server.storage.durable();
    let applied = server.storage.applied();
    let now = DateTime::from_millis(server.env.clock.now_ms());
    let uptime = server.env.clock.monotonic().saturating_sub(server.started.1);
    let op_time = || doc! { "ts": applied.time.to_timestamp(), "t": member.term as i64 };
    let date = date_of(applied.time);
    reply.string("set", &set.name);
    reply.date("date", now);
    reply.int32("myState", member.role as i32);
    reply.int64("term", member.term as i64);
    reply.string("syncSourceHost", "");
    reply.int32("syncSourceId", -1);
    reply.int64("heartbeatIntervalMillis", config.settings.heartbeat_interval_ms as i64);
    for (name, count) in [
        ("majorityVoteCount", config.majority()),
        ("writeMajorityCount", config.write_majority()),
        ("votingMembersCount", config.voters().count()),
        ("writableVotingMembersCount", config.data_voters().count()),
    ] {
        reply.int32(name, count as i32);
    }
    reply.open_document("optimes");
    let durable_date = date_of(durable.time);
    for (name, point) in [
        ("lastCommittedOpTime", durable),
        ("readConcernMajorityOpTime", durable),
        ("appliedOpTime", applied),
        ("durableOpTime", durable),
        ("writtenOpTime", applied),
    ] {
        write_op_time(reply, name, point.time, member.term);
    }
    for (name, date) in [
        ("lastCommittedWallTime", durable_date),
        ("lastAppliedWallTime", date),
        ("lastDurableWallTime", durable_date),
        ("lastWrittenWallTime", date),
    ] {
        reply.date(name, date);
    }
    reply.close();
    let elected = DateTime::from_millis(member.elected_ms);
    if member.role == Role::Primary {
        let metrics = doc! {
            "lastElectionReason": "electionTimeout",
            "lastElectionDate": elected,
            "electionTerm": member.term as i64,
            "numVotesNeeded": 1,
            "priorityAtElection": me.priority,
            "electionTimeoutMillis": config.settings.election_timeout_ms as i64,
        };
        reply.value("electionCandidateMetrics", &metrics.into());
    }
    let mut this = doc! {
        "_id": me.id,
        "name": &me.host,
        "health": 1.0,
        "state": member.role as i32,
        "stateStr": member.role.name(),
        "uptime": uptime.as_secs() as i32,
        "optime": op_time(),
        "optimeDate": date,
        "lastAppliedWallTime": date,
        "lastDurableWallTime": durable_date,
        "syncSourceHost": "",
        "syncSourceId": -1,
        "infoMessage": "",
    };
    if member.role == Role::Primary {
        let seconds = u32::try_from(member.elected_ms / 1000).unwrap_or(0);
        this.insert(
            "electionTime",
            bson::Timestamp {
                time: seconds,
                increment: 1,
            },
        );
        this.insert("electionDate", elected);
    }
    this.extend(doc! {
        "configVersion": config.version,
        "configTerm": member.term as i64,
        "self": true,
        "lastHeartbeatMessage": "",
    });
    reply.value("members", &Bson::Array(vec![this.into()]));
    Ok(())
}

/// This server in the configuration.
fn own_member<'c>(member: &Member, config: &'c SetConfig) -> Result<&'c MemberConfig> {
    config.member(member.id).ok_or_else(|| {
        CommandError::new(
            ErrorCode::InvalidReplicaSetConfig,
            "Our replica set config is invalid or we are not a member of it",
        )
    })
}

/// Seconds as the first field of a command.
fn seconds(call: &Invocation<'_>, default: u64) -> Result<Duration> {
    let arguments = call.arguments();
    let seconds = match call.target()? {
        RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::Boolean(_) => default,
        value => arguments.non_negative(call.command.name, value)? as u64,
    };
    Ok(Duration::from_secs(seconds))
}

/// Without another member there is nobody to catch up: only by force.
fn step_down(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments: Arguments<'_> = call.arguments();
    let (mut force, mut catch_up) = (false, None);
    call.for_each_field(|name, value| {
        match name {
            "force" => force = arguments.boolean(name, value)?,
            "secondaryCatchUpPeriodSecs" => catch_up = Some(arguments.non_negative(name, value)? as u64),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let period = seconds(call, 60)?;
    let (set, member, _) = configured(call)?;
    if member.role != Role::Primary {
        return Err(CommandError::new(
            ErrorCode::NotWritablePrimary,
            "not primary so can't step down",
        ));
    }
    let catch_up = Duration::from_secs(catch_up.unwrap_or(if force { 0 } else { 10 }));
    if catch_up > period {
        return Err(CommandError::bad_value(
            "stepdown period must be longer than secondaryCatchUpPeriodSecs",
        ));
    }
    if !force {
        return Err(CommandError::new(
            ErrorCode::ExceededTimeLimit,
            "No electable secondaries caught up. Please use the replSetStepDown command with the argument {force: true} to force node to step down.",
        ));
    }
    let until = call.server.env.clock.monotonic() + period;
    set.change(|member| {
        member.role = Role::Secondary;
        member.frozen_until = until;
    });
    log_role(call.server, &set.member());
    call.server.sessions.kill(|_| true, Some(call.operation.id));
    Ok(())
}

fn freeze(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let period = seconds(call, 0)?;
    let (set, member, _) = configured(call)?;
    if member.role == Role::Primary {
        return Err(CommandError::new(
            ErrorCode::NotSecondary,
            "cannot freeze node when primary or running for election. state: Primary",
        ));
    }
    let until = call.server.env.clock.monotonic() + period;
    set.change(|member| member.frozen_until = until);
    if period.is_zero() {
        reply.string("info", "unfreezing");
    }
    Ok(())
}

fn append_note(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut data = None;
    call.for_each_field(|name, value| {
        match name {
            "data" => data = Some(arguments.document(name, value)?),
            "maxClusterTime" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    set(call)?;
    let data = data.ok_or_else(|| missing_field("appendOplogNote", "data"))?;
    let seq = call.server.storage.write_note(data)?;
    call.wrote(seq);
    Ok(())
}

fn log_role(server: &Server, member: &Member) {
    let attributes = doc! { "newState": member.role.name(), "term": member.term as i64 };
    server.logger.info(
        Component::Replication,
        21358,
        "ReplCoord",
        "Replica set state transition",
        attributes,
    );
}

impl Server {
    /// Takes up the place in the replica set that is written down, or initiates it when it was told to. To be called
    /// once, before there are clients.
    ///
    /// # Errors
    /// A sentence: the configuration is another set's, or cannot be read; the log or the disk failed.
    pub fn join_set(self: &Arc<Self>) -> std::result::Result<(), String> {
        let Some(set) = self.replica_set() else { return Ok(()) };
        self.join(set).map_err(|error| error.message)
    }

    fn join(self: &Arc<Self>, set: &ReplicaSet) -> Result<()> {
        let client = Arc::new(Client::new(0, Peer::Unix(String::new())));
        let body = rawdoc! { "replSetInitiate": 1 };
        let mut call = Invocation::of_server(self, &client, &REPL_SET_INITIATE, &body, "admin");
        let kept = user_store::find_in(&mut call, &configurations()?, &doc! {})?;
        default_concerns::load(&mut call)?;
        match kept.first() {
            Some(config) => {
                let config = RawDocumentBuf::try_from(config)?;
                // The host was checked when the configuration came; names may mean other machines now.
                let config = SetConfig::read(&config, &set.name, &|_| true)?;
                let me = config.me(&|_| true)?.id;
                self.begin_as_primary(set, config, me)
            }
            None if set.initiates_itself => {
                let mut ignored = Vec::new();
                initiate(&mut call, &mut Reply::begin(&mut ignored))
            }
            None => Ok(()),
        }
    }

    /// An election without anybody else to vote.
    fn begin_as_primary(&self, set: &ReplicaSet, config: SetConfig, me: i32) -> Result<()> {
        self.storage.keep_sessions()?;
        self.storage.keep_history();
        let member_id = me as u64 + 1;
        let term = self.storage.stand_for_election(member_id)?;
        set.change(|member| {
            member.config = Some(config);
            member.id = me;
            member.role = Role::Primary;
            member.term = term;
            member.elected_ms = self.env.clock.now_ms();
        });
        log_role(self, &set.member());
        Ok(())
    }

    /// What a member does each second: stands for election when it may, lets time go on, forgets old sessions.
    pub(crate) fn look_after_set(&self, set: &ReplicaSet) {
        let member = set.member();
        self.storage.durable();
        let now = self.env.clock.monotonic();
        let done = match (member.role, member.config) {
            (Role::Secondary, Some(config)) if member.frozen_until <= now => {
                self.begin_as_primary(set, config, member.id)
            }
            (Role::Primary, _) => self.keep_time(&self.storage),
            _ => Ok(()),
        };
        if let Err(error) = done {
            let attributes = doc! { "error": error.message };
            self.logger.warning(
                Component::Replication,
                8410006,
                "ReplCoord",
                "The member's upkeep failed",
                attributes,
            );
        }
    }

    fn keep_time(&self, storage: &Storage) -> Result<()> {
        let now_ms = self.env.clock.now_ms();
        let idle_ms = now_ms - date_of(storage.applied().time).timestamp_millis();
        if idle_ms >= NOTE_EVERY.as_millis() as i64 {
            storage.write_note(&rawdoc! { "msg": "periodic noop" })?;
        }
        storage.advance_consensus()?;
        storage.forget_sessions(now_ms - SESSION_TIMEOUT.as_millis() as i64)?;
        Ok(())
    }
}
