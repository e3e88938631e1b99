//! `replSetGetStatus`: what this member knows of itself and of the others.

use super::membership::{configured, own_member};
use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::{
    Member, MemberConfig, PeerState, ReplicaSet, Role, SetConfig, date_of, majority_point, term_of, write_op_time,
};
use crate::reply::Reply;
use auth::Action;
use bson::{Bson, DateTime, Document, Timestamp, doc};
use engine::Seq;
use std::time::Duration;
use storage::{AppliedPoint, ClusterTime, ElectionReason, MemberProgress};

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

fn status(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|name, _| Ok(name == "initialSync"))?;
    write_status(call, reply)
}

/// Writes all of it but `ok`. Fails on a server that is of no set, and before the set is configured.
pub fn write_status(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    if let Some(set) = call.server.replica_set() {
        let member = set.member();
        if member.config.is_none() && member.copies {
            write_newcomer(call, reply, set, &member);
            return Ok(());
        }
    }
    let (set, member, config) = configured(call)?;
    let me = own_member(&member, &config)?;
    let server = call.server;
    // In this order: none is later than the one before it.
    let own = Own {
        majority: majority_point(&server.storage),
        durable: server.storage.durable(),
        applied: server.storage.applied(),
        written: server.storage.written(),
        uptime: server.env.clock.monotonic().saturating_sub(server.started.1),
        followers: server
            .storage
            .standing()
            .map_or_else(Vec::new, |standing| standing.progress),
    };
    let source = source(&member, &config);
    reply.string("set", &set.name);
    reply.date("date", DateTime::from_millis(server.env.clock.now_ms()));
    reply.int32("myState", member.role as i32);
    reply.int64("term", member.term as i64);
    reply.string("syncSourceHost", source.map_or("", |source| &source.host));
    reply.int32("syncSourceId", source.map_or(-1, |source| source.id));
    reply.int64("heartbeatIntervalMillis", config.settings.heartbeat_interval_ms as i64);
    let counted = member.clone().counting_votes().config;
    let counted = counted.as_ref().unwrap_or(&config);
    for (name, count) in [
        ("majorityVoteCount", counted.majority()),
        ("writeMajorityCount", counted.write_majority()),
        ("votingMembersCount", counted.voters().count()),
        ("writableVotingMembersCount", counted.data_voters().count()),
    ] {
        reply.int32(name, count as i32);
    }
    reply.open_document("optimes");
    for (name, point) in [
        ("lastCommittedOpTime", own.majority),
        ("readConcernMajorityOpTime", own.majority),
        ("appliedOpTime", own.applied),
        ("durableOpTime", own.durable),
        ("writtenOpTime", own.written),
    ] {
        write_op_time(reply, name, point.time, term_of(&server.storage, point, member.term));
    }
    for (name, point) in [
        ("lastCommittedWallTime", own.majority),
        ("lastAppliedWallTime", own.applied),
        ("lastDurableWallTime", own.durable),
        ("lastWrittenWallTime", own.written),
    ] {
        reply.date(name, date_of(point.time));
    }
    reply.close();
    if member.role == Role::Primary {
        let metrics = doc! {
            "lastElectionReason": reason_name(member.elected_for),
            "lastElectionDate": DateTime::from_millis(member.elected_ms),
            "electionTerm": member.term as i64,
            "numVotesNeeded": counted.majority() as i32,
            "priorityAtElection": me.priority,
            "electionTimeoutMillis": config.settings.election_timeout_ms as i64,
        };
        reply.value("electionCandidateMetrics", &metrics.into());
    }
    write_copy(reply, set, member.role, server.env.clock.now_ms());
    let peers = set.peers();
    let members = config.members.iter().map(|of| {
        let document = match of.id == me.id {
            true => own.describe(call, &member, of, source),
            false => {
                let mut peer = peers.get(&of.id).cloned().unwrap_or_default();
                own.bring_up_to_date(&mut peer, call, member.primary == Some(of.id));
                other(&peer, of, call, &config)
            }
        };
        Bson::Document(document)
    });
    reply.value("members", &Bson::Array(members.collect()));
    Ok(())
}

fn reason_name(reason: ElectionReason) -> &'static str {
    match reason {
        ElectionReason::Timeout => "electionTimeout",
        ElectionReason::StepUp => "stepUpRequest",
        ElectionReason::Handover => "stepUpRequestSkipDryRun",
        ElectionReason::Priority => "priorityTakeover",
    }
}

/// A member that copies all data, the configuration with them: it knows of itself and of its source.
fn write_newcomer(call: &Invocation<'_>, reply: &mut Reply<'_>, set: &ReplicaSet, member: &Member) {
    let server = call.server;
    let uptime = server.env.clock.monotonic().saturating_sub(server.started.1);
    reply.string("set", &set.name);
    reply.date("date", DateTime::from_millis(server.env.clock.now_ms()));
    reply.int32("myState", member.role as i32);
    reply.int64("term", member.term as i64);
    reply.string("syncSourceHost", &set.copy.lock().source);
    reply.int32("syncSourceId", -1);
    write_copy(reply, set, member.role, server.env.clock.now_ms());
    let own = doc! {
        // Not known yet.
        "_id": -1, "name": set.own_host(), "health": 1.0, "state": member.role as i32, "stateStr": member.role.name(),
        "uptime": uptime.as_secs() as i64, "self": true,
    };
    reply.value("members", &Bson::Array(vec![own.into()]));
}

/// Whom the log comes from: always the primary.
fn source<'c>(member: &Member, config: &'c SetConfig) -> Option<&'c MemberConfig> {
    let primary = member.primary.filter(|primary| *primary != member.id)?;
    matches!(member.role, Role::Secondary | Role::Recovering | Role::Arbiter)
        .then(|| config.member(primary))
        .flatten()
}

/// This server's own figures.
struct Own {
    majority: AppliedPoint,
    durable: AppliedPoint,
    applied: AppliedPoint,
    written: AppliedPoint,
    uptime: Duration,
    /// How far the others are, while this one leads.
    followers: Vec<MemberProgress>,
}

impl Own {
    /// A heartbeat comes every few seconds, or is lost. What consensus knows of another member since then is later: of
    /// a follower what it has acknowledged, of the leader that it has whatever this member shows, since that is what a
    /// majority has. What this member has written beyond that the leader may lack.
    fn bring_up_to_date(&self, peer: &mut PeerState, call: &Invocation<'_>, is_leader: bool) {
        let storage = &call.server.storage;
        // Nobody is told to be ahead of the leader.
        let point = |seq: Seq| match seq {
            seq if seq >= self.applied.seq => Some(self.applied),
            seq => Some(AppliedPoint {
                seq,
                time: storage.entry_time(seq)?,
            }),
        };
        let follower = self.followers.iter().find(|follower| follower.id == peer.consensus_id);
        let (applied, durable) = match (is_leader, follower) {
            (true, _) if self.durable.seq > self.applied.seq => (Some(self.applied), Some(self.applied)),
            (true, _) => (Some(self.applied), Some(self.durable)),
            (false, Some(follower)) => (point(follower.applied), point(follower.durable)),
            (false, None) => return,
        };
        let later = |point: Option<AppliedPoint>, told: ClusterTime| point.filter(|point| point.time > told);
        if let Some(applied) = later(applied, peer.applied) {
            (peer.applied, peer.applied_term) = (applied.time, term_of(storage, applied, peer.term));
        }
        if let Some(durable) = later(durable, peer.durable) {
            (peer.durable, peer.durable_term) = (durable.time, term_of(storage, durable, peer.term));
        }
    }

    fn describe(
        &self,
        call: &Invocation<'_>,
        member: &Member,
        me: &MemberConfig,
        source: Option<&MemberConfig>,
    ) -> Document {
        let term = term_of(&call.server.storage, self.applied, member.term);
        let mut document = head(me, member.role, self.uptime);
        if member.role != Role::Arbiter {
            document.extend(doc! {
                "optime": op_time(self.applied.time, term),
                "optimeDate": date_of(self.applied.time),
                "lastAppliedWallTime": date_of(self.applied.time),
                "lastDurableWallTime": date_of(self.durable.time),
            });
        }
        document.extend(doc! {
            "syncSourceHost": source.map_or("", |source| &source.host),
            "syncSourceId": source.map_or(-1, |source| source.id),
            "infoMessage": "",
        });
        if member.role == Role::Primary {
            write_election(&mut document, member.elected_ms);
        }
        let version = member.config.as_ref().map_or(-1, |config| config.version);
        document.extend(doc! {
            "configVersion": version,
            "configTerm": member.term as i64,
            "self": true,
            "lastHeartbeatMessage": "",
        });
        document
    }
}

fn head(of: &MemberConfig, role: Role, uptime: Duration) -> Document {
    doc! {
        "_id": of.id,
        "name": &of.host,
        "health": if role == Role::Down || role == Role::Unknown { 0.0 } else { 1.0 },
        "state": role as i32,
        "stateStr": role.name(),
        "uptime": uptime.as_secs() as i32,
    }
}

fn op_time(time: ClusterTime, term: u64) -> Document {
    doc! { "ts": time.to_timestamp(), "t": term as i64 }
}

fn write_election(document: &mut Document, elected_ms: i64) {
    let seconds = u32::try_from(elected_ms / 1000).unwrap_or(0);
    let time = Timestamp {
        time: seconds,
        increment: 1,
    };
    document.insert("electionTime", time);
    document.insert("electionDate", DateTime::from_millis(elected_ms));
}

/// Another member, by what it said last.
fn other(peer: &PeerState, of: &MemberConfig, call: &Invocation<'_>, config: &SetConfig) -> Document {
    let now = call.server.env.clock.monotonic();
    let uptime = if peer.is_up {
        now.saturating_sub(peer.up_since)
    } else {
        Duration::ZERO
    };
    let mut document = head(of, peer.role, uptime);
    if !of.arbiter_only {
        document.extend(doc! {
            "optime": op_time(peer.applied, peer.applied_term),
            "optimeDurable": op_time(peer.durable, peer.durable_term),
            "optimeDate": date_of(peer.applied),
            "optimeDurableDate": date_of(peer.durable),
            "lastAppliedWallTime": date_of(peer.applied),
            "lastDurableWallTime": date_of(peer.durable),
        });
    }
    let primary = peer.primary.filter(|primary| *primary != of.id);
    let source = primary.and_then(|primary| config.member(primary));
    document.extend(doc! {
        "lastHeartbeat": DateTime::from_millis(peer.answered_ms),
        "lastHeartbeatRecv": DateTime::from_millis(peer.asked_ms),
        "pingMs": peer.ping.as_millis() as i64,
        "lastHeartbeatMessage": &peer.message,
        "syncSourceHost": source.map_or("", |source| &source.host),
        "syncSourceId": source.map_or(-1, |source| source.id),
        "infoMessage": "",
    });
    if peer.role == Role::Primary {
        write_election(&mut document, peer.elected_ms);
    }
    document.extend(doc! { "configVersion": peer.version, "configTerm": peer.term as i64 });
    document
}

/// `initialSyncStatus`, while all data is copied, or when a copy failed.
fn write_copy(reply: &mut Reply<'_>, set: &ReplicaSet, role: Role, now_ms: i64) {
    let copy = set.copy.lock().clone();
    if role != Role::Startup2 && copy.failed == 0 {
        return;
    }
    let mut status = doc! {
        "method": if copy.by_files { "fileCopyBased" } else { "logical" },
        "syncSourceHost": copy.source,
        "initialSyncStart": DateTime::from_millis(copy.started_ms),
        "failedInitialSyncAttempts": i64::from(copy.failed),
        "lastFailure": copy.failure,
        "tablesCopied": copy.tables.0 as i64,
        "tablesTotal": copy.tables.1 as i64,
        "rowsCopied": copy.rows as i64,
        "approxTotalBytesCopied": copy.bytes as i64,
    };
    let took_ms = (now_ms - copy.started_ms).max(0);
    status.insert("totalInitialSyncElapsedMillis", took_ms);
    if copy.bytes_total > 0 {
        // At the rate so far.
        let left = copy.bytes_total.saturating_sub(copy.bytes) as f64;
        let left_ms = (copy.bytes > 0).then(|| (left * took_ms as f64 / copy.bytes as f64) as i64);
        status.insert("approxTotalDataSize", copy.bytes_total as i64);
        if let Some(left_ms) = left_ms {
            status.insert("remainingInitialSyncEstimatedMillis", left_ms);
        }
    }
    reply.value("initialSyncStatus", &status.into());
}
