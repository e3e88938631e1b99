//! The configuration of a replica set, as clients ask for it and change it; what they ask of one member besides.

use super::membership::{configured, keep_config, own_member, set};
use crate::arguments::missing_field;
use crate::audited::AuditEvent;
use crate::concerns::Acknowledging;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::{ConsensusMembers, MemberConfig, ReplicaSet, Role, SetConfig, instance_in};
use crate::reply::Reply;
use auth::Action;
use bson::doc;
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;
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
/// `replSetMaintenance`.
pub const REPL_SET_MAINTENANCE: Command = Command::new(
    "replSetMaintenance",
    "Has a secondary answer no reads for a while.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    maintain,
)
.admin_only()
.secondary_ok();
/// `replSetResizeOplog`.
pub const REPL_SET_RESIZE_OPLOG: Command = Command::new(
    "replSetResizeOplog",
    "Changes how much history this member keeps.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetResizeOplog]),
    resize_oplog,
)
.admin_only()
.secondary_ok();
/// `replSetGetRBID`.
pub const REPL_SET_GET_RBID: Command = Command::new(
    "replSetGetRBID",
    "How often this member has rolled back, which it never does.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    rollback_id,
)
.admin_only()
.secondary_ok();
/// `replSetAbortPrimaryCatchUp`.
pub const REPL_SET_ABORT_PRIMARY_CATCH_UP: Command = Command::new(
    "replSetAbortPrimaryCatchUp",
    "Ends the catching up of a new primary, which members here do before they lead.",
    OperationKind::Command,
    Access::cluster(&[Action::ReplSetStateChange]),
    abort_catch_up,
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
.takes_write_concern()
.admin_only();

/// How long a server that is to be a member may take to answer.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);

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

pub(super) fn initiate(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
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
    let me = match config.members.len() {
        1 => config.check_initial(&set.name, &|host| set.may_be_me(host))?.id,
        _ => check_initial_members(set, &config)?,
    };
    config.settings.replica_set_id.get_or_insert_with(ObjectId::new);
    let consensus = (config.members.len() > 1).then(|| ConsensusMembers::of_one(me, set.instance));
    keep_config(call, &config, consensus.as_ref())?;
    call.server.begin_set(set, config, consensus, me)
}

/// A configuration as a client gives it. The term is the server's to say.
fn parse(config: &RawDocument) -> Result<SetConfig> {
    let mut config = SetConfig::parse(config)?;
    config.term = None;
    if config.members.iter().any(|member| !member.build_indexes) {
        return Err(CommandError::not_implemented("members.buildIndexes: false"));
    }
    Ok(config)
}

/// What servers answer, by host: an answer to a heartbeat, or why there is none.
type Answers = HashMap<String, std::result::Result<RawDocumentBuf, String>>;

/// Whether a host is this server, by its answer.
fn is_me(set: &ReplicaSet, answers: &Answers, host: &str) -> bool {
    let answer = answers.get(host).and_then(|answer| answer.as_ref().ok());
    answer.and_then(|answer| instance_in(answer)) == Some(set.instance)
}

/// Asks the servers of a configuration.
fn probe(set: &ReplicaSet, config: &SetConfig) -> Answers {
    let members = config.members.iter().map(|member| {
        let question = set.probe();
        let answer = match set.threads() {
            Some(threads) => threads.ask(&member.host, &question, PROBE_PATIENCE),
            None => Err("there are no connections to others".to_owned()),
        };
        (member.host.clone(), answer)
    });
    members.collect()
}

/// Whether the servers of a configuration can begin a set with this one, and this one's number in it. All have to
/// answer, and none but this one may have data or a set already.
fn check_initial_members(set: &ReplicaSet, config: &SetConfig) -> Result<i32> {
    let answers = probe(set, config);
    let me = config.check_initial(&set.name, &|host| is_me(set, &answers, host))?.id;
    for member in config.members.iter().filter(|member| member.id != me) {
        let failed = |code, reason: &str| {
            let message = format!(
                "replSetInitiate quorum check failed because not all proposed set members responded affirmatively: \
                 {} {reason}",
                member.host
            );
            Err(CommandError::new(code, message))
        };
        match answers.get(&member.host) {
            Some(Ok(answer)) if answer.get_i32("v").is_ok_and(|version| version > 0) => {
                return failed(ErrorCode::AlreadyInitialized, "is a member of a set already");
            }
            Some(Ok(answer)) if answer.get_bool("hasData").unwrap_or(false) => {
                return failed(ErrorCode::CannotInitializeNodeWithData, "has data already");
            }
            Some(Ok(_)) => {}
            Some(Err(reason)) => return failed(ErrorCode::NodeNotFound, &format!("failed with {reason}")),
            None => return failed(ErrorCode::NodeNotFound, "was not asked"),
        }
    }
    Ok(me)
}

/// As [`initiate`], of a set that there is. Consensus follows the new configuration step by step.
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
    let _configuring = call.server.configure(set(call)?, &call.operation)?;
    if force && set(call)?.member().config.is_none() && call.server.storage.set_configuration()?.is_some() {
        return replace_configuration(call, None);
    }
    let (set, member, old) = configured(call)?;
    if member.role != Role::Primary {
        return match force {
            // A backup of some member: its set does not know it, and may be lost. It begins another one.
            true if member.joins_as == Some(set.instance) => replace_configuration(call, Some(&old)),
            true if member.consensus.is_some() => go_on_alone(call, set, &old, member.id),
            true => reconfigure_to(call, set, old, member.id, true),
            false => Err(CommandError::new(
                ErrorCode::NotWritablePrimary,
                "Safe reconfig is only allowed on a writable PRIMARY.",
            )),
        };
    }
    reconfigure_to(call, set, old, member.id, force)
}

fn reconfigure_to(call: &mut Invocation<'_>, set: &ReplicaSet, old: SetConfig, me: i32, force: bool) -> Result<()> {
    let config = given(call)?.ok_or_else(|| missing_field("replSetReconfig", "replSetReconfig"))?;
    let mut config = parse(config)?;
    config.inherit(&old, force);
    let own_host = config.member(me).map(|member| member.host.clone());
    let is_me = |host: &str| match &own_host {
        Some(own) => host == own,
        // It was given another number, which is refused.
        None => old.member(me).is_some_and(|member| member.host == host),
    };
    let found = config.check_successor(&old, force, &is_me)?.id;
    if found != me {
        return Err(CommandError::new(
            ErrorCode::NewReplicaSetConfigurationIncompatible,
            format!("New and old configurations differ in the _id of this member: {found} and {me}"),
        ));
    }
    if !force {
        check_quorum(set, &config, &old, me)?;
    }
    check_default_write_concern(call, &old, &config)?;
    audit_reconfiguration(call, &old, &config);
    let before = set.member().consensus;
    let consensus = match &before {
        None if config.members.len() > 1 => Some(ConsensusMembers::of_one(me, set.instance)),
        known => known.clone(),
    };
    config.term = Some(set.member().term);
    keep_config(call, &config, consensus.as_ref())?;
    if before.is_none()
        && let Some(consensus) = consensus
    {
        return call.server.begin_set(set, config, Some(consensus), me);
    }
    call.server.take_up_configuration(set)
}

fn audit_reconfiguration(call: &Invocation<'_>, old: &SetConfig, new: &SetConfig) {
    call.server.audit(|| {
        let param = doc! { "old": old.to_document(), "new": new.to_document() };
        AuditEvent::of(call.client, "replSetReconfig", param, 0)
    });
}

/// Makes this member, and it alone, decide from here on: a majority of the others is lost, and what they had agreed on
/// and this member has not goes with them. The members of the new configuration that there are copy this one's data.
fn go_on_alone(call: &mut Invocation<'_>, set: &ReplicaSet, old: &SetConfig, me: i32) -> Result<()> {
    let config = given(call)?.ok_or_else(|| missing_field("replSetReconfig", "replSetReconfig"))?;
    let mut config = parse(config)?;
    config.inherit(old, true);
    raise_version(call, &mut config);
    let own_host = config.member(me).map(|member| member.host.clone());
    config.check_successor(old, true, &|host| own_host.as_deref() == Some(host))?;
    if !config.member(me).is_some_and(MemberConfig::is_electable) {
        return Err(CommandError::new(
            ErrorCode::NewReplicaSetConfigurationIncompatible,
            "this member leads under a forced configuration, so it must be one that can become the primary",
        ));
    }
    audit_reconfiguration(call, old, &config);
    start_alone(set, &config, me)
}

/// Later than what others who are not lost after all may make of the old one.
fn raise_version(call: &Invocation<'_>, config: &mut SetConfig) {
    let random = (call.server.env.random.next_u64() % 90_000) as i32;
    config.version = config.version.saturating_add(10_000 + random);
}

/// Has the server start anew, under a configuration in which it decides alone.
fn start_alone(set: &ReplicaSet, config: &SetConfig, me: i32) -> Result<()> {
    let threads = set.threads();
    let threads = threads.ok_or_else(|| CommandError::new(ErrorCode::OperationFailed, "this server ends"))?;
    let document = doc! { "me": me, "config": config.to_document() };
    threads
        .force(&document)
        .map_err(|reason| CommandError::new(ErrorCode::OperationFailed, reason))
}

/// As [`go_on_alone`], of a server that the kept configuration does not know, or whose kept one cannot be used: which
/// member it is to be is for the new one to say.
fn replace_configuration(call: &Invocation<'_>, old: Option<&SetConfig>) -> Result<()> {
    let set = set(call)?;
    let config = given(call)?.ok_or_else(|| missing_field("replSetReconfig", "replSetReconfig"))?;
    let mut config = parse(config)?;
    config.settings.replica_set_id = Some(match old {
        Some(old) => {
            config.inherit(old, true);
            // Another set than the one that the backup is of, whatever the document says: members of that one that come
            // back must not be taken for its own, nor take it for theirs.
            ObjectId::new()
        }
        None => match config.settings.replica_set_id {
            Some(given) => given,
            None => kept_id(call)?.unwrap_or_else(ObjectId::new),
        },
    });
    raise_version(call, &mut config);
    let me = match config.members.len() {
        1 => config.check_alone(&set.name, &|host| set.may_be_me(host))?.id,
        _ => {
            let answers = probe(set, &config);
            config.check_alone(&set.name, &|host| is_me(set, &answers, host))?.id
        }
    };
    call.server.audit(|| {
        let mut param = doc! { "new": config.to_document() };
        if let Some(old) = old {
            param.insert("old", old.to_document());
        }
        AuditEvent::of(call.client, "replSetReconfig", param, 0)
    });
    start_alone(set, &config, me)
}

/// The set's id in a kept configuration that cannot be used.
fn kept_id(call: &Invocation<'_>) -> Result<Option<ObjectId>> {
    let kept = call.server.storage.set_configuration()?;
    let settings = kept.as_ref().and_then(|kept| kept.get_document("settings").ok());
    let id = settings.and_then(|settings| settings.get_object_id("replicaSetId").ok());
    // No id may be that.
    Ok(id.filter(|id| id.bytes() != [0; 12]))
}

/// Writes that name no concern must go on having one, and the one that they have had: whoever wants another one says
/// so with `setDefaultRWConcern`.
fn check_default_write_concern(call: &Invocation<'_>, old: &SetConfig, new: &SetConfig) -> Result<()> {
    let refused = |message: &str| {
        Err(CommandError::new(
            ErrorCode::NewReplicaSetConfigurationIncompatible,
            message,
        ))
    };
    let default = call.server.default_concerns.read().write.clone();
    match default.map(|default| default.members) {
        None if old.implicit_default_is_majority() != new.implicit_default_is_majority() => refused(
            "Reconfig attempted to install a config that would change the implicit default write concern. Use the \
             setDefaultRWConcern command to set a cluster-wide write concern and try the reconfig again.",
        ),
        Some(Acknowledging::Mode(mode)) if new.check_mode(&mode).is_err() => refused(
            "May not remove custom write concern definition from config while it is in use as the default write \
             concern. Change the default write concern to a non-conflicting setting and try the reconfig again.",
        ),
        _ => Ok(()),
    }
}

/// Whether enough of the members that vote in a new configuration answer to make a majority of them.
fn check_quorum(set: &ReplicaSet, config: &SetConfig, old: &SetConfig, me: i32) -> Result<()> {
    let mut known = set.peers();
    // Somebody at another address has not answered yet.
    let address = |of: &SetConfig, id: i32| of.member(id).map(|member| member.host.clone());
    known.retain(|id, _| address(old, *id) == address(config, *id));
    let mut asked = config.clone();
    asked
        .members
        .retain(|member| member.id != me && !known.get(&member.id).is_some_and(|peer| peer.is_up));
    let answers = probe(set, &asked);
    check_hosts(set, &asked, config, &answers)?;
    let responds = |id: i32, host: &str| {
        id == me
            || answers
                .get(host)
                .map_or(known.contains_key(&id), std::result::Result::is_ok)
    };
    check_consensus_quorum(set, config, me)?;
    let up: Vec<&str> = config
        .voters()
        .filter(|member| responds(member.id, &member.host))
        .map(|member| &*member.host)
        .collect();
    if up.len() >= config.majority() {
        return Ok(());
    }
    let silent: Vec<String> = answers
        .iter()
        .filter_map(|(host, answer)| Some(format!("{host} failed with {}", answer.as_ref().err()?)))
        .collect();
    Err(CommandError::new(
        ErrorCode::NodeNotFound,
        format!(
            "Quorum check failed because not enough voting nodes responded; required {} but only the following {} \
             voting nodes responded: {}; the following nodes did not respond affirmatively: {}",
            config.majority(),
            up.len(),
            up.join(", "),
            silent.join(", ")
        ),
    ))
}

/// Whether those who answer are the servers that a configuration means: none of another set, whose data would give way
/// to this one's, and none that is a member under another name already.
fn check_hosts(set: &ReplicaSet, asked: &SetConfig, config: &SetConfig, answers: &Answers) -> Result<()> {
    let consensus = set.member().consensus;
    let known_as = |instance: [u8; 16]| {
        let known = consensus
            .as_ref()
            .and_then(|consensus| consensus.of_instance(&instance));
        known.and_then(|known| config.member(known.member))
    };
    for member in &asked.members {
        let Some(Ok(answer)) = answers.get(&member.host) else {
            continue;
        };
        let refused = |reason: String| {
            let message = format!("Quorum check failed because of {}: {reason}", member.host);
            Err(CommandError::new(
                ErrorCode::NewReplicaSetConfigurationIncompatible,
                message,
            ))
        };
        if let Some(reason) = set.is_anothers(answer) {
            return refused(reason);
        }
        match instance_in(answer) {
            Some(instance) if instance == set.instance => return refused("it is this server".to_owned()),
            Some(instance) => {
                if let Some(other) = known_as(instance).filter(|other| other.id != member.id) {
                    return refused(format!("it is {}, or has a copy of its data directory", other.host));
                }
            }
            None => {}
        }
    }
    Ok(())
}

/// Whether those whose votes stay can decide without those that go: a member whose directory was emptied answers, but
/// the vote that it had is lost.
fn check_consensus_quorum(set: &ReplicaSet, config: &SetConfig, me: i32) -> Result<()> {
    let (peers, consensus) = (set.peers(), set.member().consensus);
    let voting = consensus.iter().flat_map(|consensus| &consensus.members);
    let stay: Vec<_> = voting
        .filter(|known| known.votes && config.member(known.member).is_some_and(|member| member.votes))
        .collect();
    let has_vote = |member: i32, id: u64| {
        member == me
            || peers
                .get(&member)
                .is_some_and(|peer| peer.is_up && peer.consensus_id == id)
    };
    let present = stay.iter().filter(|known| has_vote(known.member, known.id)).count();
    if stay.is_empty() || present > stay.len() / 2 {
        return Ok(());
    }
    Err(CommandError::new(
        ErrorCode::NodeNotFound,
        format!(
            "Quorum check failed because of the {} members whose votes would stay only {present} can vote; wait until \
             members that copy all data vote again",
            stay.len()
        ),
    ))
}

fn config(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut commitment = false;
    call.for_each_field(|name, value| {
        match name {
            "commitmentStatus" => commitment = arguments.boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let (_, member, mut config) = configured(call)?;
    if commitment && member.role != Role::Primary {
        return Err(CommandError::new(
            ErrorCode::NotWritablePrimary,
            "commitmentStatus is only supported on primary.",
        ));
    }
    config.term = Some(config.term.unwrap_or(member.term));
    reply.value("config", &config.to_document().into());
    if commitment {
        // A configuration takes effect by being committed.
        reply.boolean("commitmentStatus", true);
    }
    Ok(())
}

/// Seconds as the first field of a command. As in MongoDB what is no number is none.
pub(super) fn seconds(call: &Invocation<'_>) -> Result<i64> {
    Ok(match call.target()? {
        RawBsonRef::Int32(seconds) => i64::from(seconds),
        RawBsonRef::Int64(seconds) => seconds,
        RawBsonRef::Double(seconds) => seconds as i64,
        _ => 0,
    })
}

fn freeze(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let period = Duration::from_secs(seconds(call)?.clamp(0, i64::from(i32::MAX)) as u64);
    let (set, member, _) = configured(call)?;
    if member.role == Role::Primary {
        return Err(CommandError::new(
            ErrorCode::NotSecondary,
            "cannot freeze node when primary or running for election. state: Primary",
        ));
    }
    let until = call.server.env.clock.monotonic() + period;
    set.change(|member| member.frozen_until = until);
    call.server.allow_candidacy(set);
    if period.is_zero() {
        reply.string("info", "unfreezing");
    }
    Ok(())
}

/// What is acknowledged is never taken back, so that the number stays what it is at first.
pub const ROLLBACK_ID: i32 = 1;

fn rollback_id(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    set(call)?;
    reply.int32("rbid", ROLLBACK_ID);
    Ok(())
}

/// A member is elected only with all that is committed: it never catches up as the primary.
fn abort_catch_up(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    set(call)?;
    Err(CommandError::new(
        ErrorCode::IllegalOperation,
        "This command can only be run when node is primary in catch-up mode.",
    ))
}

fn maintain(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let arguments = call.arguments();
    let begins = arguments.boolean(call.command.name, call.target()?)?;
    let (set, member, config) = configured(call)?;
    own_member(&member, &config)?;
    if member.role == Role::Primary {
        return Err(CommandError::new(
            ErrorCode::NotSecondary,
            "primaries can't modify maintenance mode",
        ));
    }
    if !begins && member.maintenance == 0 {
        return Err(CommandError::new(
            ErrorCode::OperationFailed,
            "already out of maintenance mode",
        ));
    }
    set.change(|member| match begins {
        true => member.maintenance += 1,
        false => member.maintenance = member.maintenance.saturating_sub(1),
    });
    call.server.allow_candidacy(set);
    Ok(())
}

/// Bounds of `size`, in megabytes, as MongoDB has them.
const OPLOG_MB: std::ops::RangeInclusive<f64> = 990.0..=1_073_741_824.0;

/// Two at a time would each write down what the other one has set. Not the lock of whoever changes the configuration,
/// which is held while other members are waited for.
static RESIZING: Mutex<()> = Mutex::new(());

fn resize_oplog(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut megabytes, mut hours) = (None, None);
    call.for_each_field(|name, value| {
        let number = match value {
            RawBsonRef::Double(number) => number,
            other if matches!(name, "size" | "minRetentionHours") => arguments.integer(name, other)? as f64,
            _ => return Ok(false),
        };
        match name {
            "size" if OPLOG_MB.contains(&number) => megabytes = Some(number),
            "size" => {
                return Err(CommandError::bad_value(format!(
                    "BSON field 'size' value must be >= {} and <= {}, actual value '{number}'",
                    OPLOG_MB.start(),
                    OPLOG_MB.end()
                )));
            }
            "minRetentionHours" if number >= 0.0 => hours = Some(number),
            "minRetentionHours" => {
                return Err(CommandError::bad_value(format!(
                    "BSON field 'minRetentionHours' value must be >= 0, actual value '{number}'"
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let set = set(call)?;
    let _resizing = RESIZING.lock();
    let log = call.server.storage.log();
    let mut retention = log.retention();
    if let Some(megabytes) = megabytes {
        retention.bytes = (megabytes * 1_048_576.0) as u64;
    }
    if let Some(hours) = hours {
        retention.time = Duration::from_secs_f64((hours * 3600.0).min(1e12));
    }
    // First of all: whose disk is full may want less to be kept for that reason, and nothing can be written down.
    log.set_retention(retention);
    if let Some(threads) = set.threads() {
        let kept = threads.keep_oplog_retention(retention.bytes, retention.time);
        kept.map_err(|reason| {
            let text = format!("it holds until the next start only, as it could not be written down: {reason}");
            CommandError::new(ErrorCode::OperationFailed, text)
        })?;
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
    let seq = call.server.storage.write_note_in(&call.operation, data, None)?;
    call.wrote(seq);
    Ok(())
}
