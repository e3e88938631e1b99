//! How this server is a member of its set: where it begins, what configuration it has, and what it does of itself.
//!
//! The configuration that users see says who the members are; consensus follows it one step at a time. The primary
//! takes in data directories by their instances, first without a vote, gives them the vote that the configuration has
//! for them once they have caught up, and takes it away again. Each step is an entry of the log that changes one vote
//! at most, and is made when the one before is in force, so that two majorities always share a member (Ongaro's
//! dissertation, 4.1).

use super::step_down::heir;
use super::takeover::Takeover;
use super::update::{self, Images, Statement};
use super::{default_concerns, replication};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use crate::replica_set::{ConsensusMembers, Member, MemberConfig, PeerState, ReplicaSet, Role, SetConfig, date_of};
use crate::reply::Reply;
use crate::server::{SESSION_TIMEOUT, Server};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc, rawdoc};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{ClusterTime, ElectionReason, Interrupted, Membership, Namespace, Operation, Seq, Standing};
use wire::ErrorCode;

/// An idle primary writes a note after this long: drivers tell by it how far others are behind.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// A member may be so many entries behind and be given its vote.
const CAUGHT_UP_WITHIN: u64 = 1_000;
/// How long a step of consensus may take to be committed before the next look at what is to be done.
const STEP_PATIENCE_MS: u64 = 5_000;
/// Terms that a forced configuration leaves to others, who may still be electing leaders.
const TERMS_SKIPPED: u64 = 1 << 20;
/// A member with a higher priority is given the leadership when it has been there for so long.
const UP_FOR: Duration = Duration::from_secs(1);

pub(super) fn set<'i>(call: &Invocation<'i>) -> Result<&'i ReplicaSet> {
    call.server
        .replica_set()
        .ok_or_else(|| CommandError::new(ErrorCode::NoReplicationEnabled, "not running with --replSet"))
}

/// The set with its configuration.
pub(super) fn configured<'i>(call: &Invocation<'i>) -> Result<(&'i ReplicaSet, Member, SetConfig)> {
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

/// This server in the configuration.
pub(super) fn own_member<'c>(member: &Member, config: &'c SetConfig) -> Result<&'c MemberConfig> {
    config.member(member.id).ok_or_else(|| {
        CommandError::new(
            ErrorCode::InvalidReplicaSetConfig,
            "Our replica set config is invalid or we are not a member of it",
        )
    })
}

fn configurations() -> Result<Namespace> {
    Ok(Namespace::new("local", "system.replset")?)
}

/// Writes the configuration down, and waits until it is on disk and stays.
pub(super) fn keep_config(
    call: &mut Invocation<'_>,
    config: &SetConfig,
    consensus: Option<&ConsensusMembers>,
) -> Result<()> {
    let filter = RawDocumentBuf::try_from(&doc! { "_id": &config.name })?;
    let mut document = config.to_document();
    if let Some(consensus) = consensus {
        document.insert("consensus", consensus.to_document());
    }
    let change = RawDocumentBuf::try_from(&document)?;
    let mut statement = Statement::new(None);
    statement.filter = &filter;
    statement.change = RawBsonRef::Document(&change);
    statement.upsert = true;
    update::run(call, &configurations()?, &statement, Images::None)?;
    // It is committed. The members that it tells of may be far from having it.
    call.report.last_write.set(None);
    let storage = &call.server.storage;
    Ok(storage.wait_durable(storage.last_seq())?)
}

/// The document that is kept: what users see of it, and what consensus knows besides.
pub(super) fn read_config(document: &RawDocument, name: &str) -> Result<(SetConfig, Option<ConsensusMembers>)> {
    let mut document = Document::try_from(document)?;
    let consensus = ConsensusMembers::read(&document);
    document.remove("consensus");
    let seen = RawDocumentBuf::try_from(&document)?;
    // Hosts were checked when the configuration came; names may mean other machines now.
    Ok((SetConfig::read_kept(&seen, name)?, consensus))
}

impl Server {
    /// Takes up the place in the replica set that is written down, or initiates it when it was told to, or goes on as
    /// a configuration says that was forced. To be called once, before there are clients.
    ///
    /// # Errors
    /// A sentence: the configuration is another set's, or cannot be read; the log or the disk failed.
    pub fn join_set(self: &Arc<Self>, forced: Option<&Document>) -> std::result::Result<(), String> {
        let Some(set) = self.replica_set() else { return Ok(()) };
        let joined = match forced {
            Some(forced) => self.join_by_force(set, forced),
            None => self.join(set),
        };
        joined.map_err(|error| error.message)
    }

    /// Decides alone from here on, under a configuration that somebody gave who takes the others for lost.
    fn join_by_force(self: &Arc<Self>, set: &ReplicaSet, forced: &Document) -> Result<()> {
        let malformed = |_| {
            CommandError::new(
                ErrorCode::InvalidReplicaSetConfig,
                "the forced configuration is malformed",
            )
        };
        let me = forced.get_i32("me").map_err(malformed)?;
        let config = RawDocumentBuf::try_from(forced.get_document("config").map_err(malformed)?)?;
        let config = SetConfig::read_kept(&config, &set.name)?;
        // Of what was written down only the numbers are needed: the rest may be what is mended.
        let kept = self.storage.set_configuration()?;
        let kept = kept.map(|document| Document::try_from(&*document)).transpose()?;
        let known = kept.as_ref().and_then(ConsensusMembers::read);
        let known = known.unwrap_or_else(|| ConsensusMembers::of_one(me, set.instance));
        // Where one is forced on another member at the same time, the later term decides: who hears of that copies its
        // data (`heartbeat.rs`). It is the later version's, where both are forced from the same configuration in the
        // same term. Both have numbers of their own.
        let of_version = u64::try_from(config.version).unwrap_or(0);
        let consensus = known.alone(me, set.instance, of_version);
        self.logger.log(
            id::CONFIGURATION_FORCED,
            "ReplCoord",
            "A configuration is forced: this member goes on alone with what it has",
            doc! { "version": config.version },
        );
        self.storage.skip_terms(TERMS_SKIPPED + of_version)?;
        self.own_call(|call| keep_config(call, &config, Some(&consensus)))?;
        self.begin_set(set, config, Some(consensus), me)
    }

    /// Whether others have a say in what this server writes, from the start on: it must not write of itself.
    pub fn has_others(&self) -> bool {
        let kept = self.storage.set_configuration().ok().flatten();
        kept.is_some_and(|config| config.get("consensus").is_ok_and(|consensus| consensus.is_some()))
    }

    fn join(self: &Arc<Self>, set: &ReplicaSet) -> Result<()> {
        self.own_call(default_concerns::load)?;
        match self.storage.set_configuration()? {
            Some(document) => {
                let read = read_config(&document, &set.name).and_then(|(config, consensus)| {
                    let me = match &consensus {
                        None => Some(config.me(&|_| true)?.id),
                        Some(consensus) => consensus.of_instance(&set.instance).map(|known| known.member),
                    };
                    Ok((config, consensus, me))
                });
                match read {
                    Ok((config, consensus, Some(me))) => self.begin_set(set, config, consensus, me),
                    Ok((config, consensus, None)) => self.join_again(set, config, consensus),
                    Err(error) => {
                        SetConfig::check_kept_name(&document, &set.name)?;
                        self.wait_for_configuration(&error);
                        Ok(())
                    }
                }
            }
            None if set.initiates_itself => self.own_call(|call| {
                let body = rawdoc! { "replSetInitiate": 1 };
                let mut ignored = Vec::new();
                let mut call = Invocation::of_server(call.server, call.client, call.command, &body, "admin");
                replication::initiate(&mut call, &mut Reply::begin(&mut ignored))
            }),
            None => Ok(()),
        }
    }

    /// What is written down is no configuration. The member starts all the same, so that one can be forced on it.
    fn wait_for_configuration(&self, error: &CommandError) {
        self.logger.log(
            id::CONFIGURATION_UNUSABLE,
            "ReplCoord",
            "The configuration in local.system.replset cannot be used: this member reads and writes nothing until \
             replSetReconfig with force gives it another one",
            doc! { "error": &error.message },
        );
    }

    /// The data are those of a set that does not know this directory by its instance. It waits to be taken in.
    fn join_again(&self, set: &ReplicaSet, config: SetConfig, consensus: Option<ConsensusMembers>) -> Result<()> {
        let me = config.members.iter().find(|member| set.may_be_me(&member.host));
        let id = me.map_or(-1, |me| me.id);
        let message = "The data belong to another instance: they are copied anew when the primary takes this one in";
        self.logger
            .log(id::INSTANCE_UNKNOWN, "ReplCoord", message, doc! { "member": id });
        set.change(|member| {
            member.config = Some(config);
            member.consensus = consensus;
            member.id = id;
            member.joins_as = Some(set.instance);
        });
        Ok(())
    }

    /// Begins to be a member: by an election without others, or in consensus with them.
    pub(super) fn begin_set(
        &self,
        set: &ReplicaSet,
        config: SetConfig,
        consensus: Option<ConsensusMembers>,
        me: i32,
    ) -> Result<()> {
        self.storage.keep_history();
        let is_alone = |consensus: &ConsensusMembers| consensus.members.len() == 1 && consensus.of(me).is_some();
        let mut term = 0;
        // Who has never had another member beside it is elected at once, and its log is opened for the others then.
        if self.storage.leads() && self.storage.standing().is_none() && consensus.as_ref().is_none_or(is_alone) {
            self.storage.keep_sessions()?;
            let known = consensus.as_ref().and_then(|consensus| consensus.of(me));
            let id = known.map_or(me as u64 + 1, |known| known.id);
            term = self.storage.stand_for_election(id)?;
        }
        let leads = term > 0;
        // Until consensus has told how much it may have shown before it was started.
        let is_behind = !leads && consensus.is_some() && set.threads().is_some();
        let election_timeout = Duration::from_millis(config.settings.election_timeout_ms);
        set.change(|member| member.id = me);
        self.delay_applying(set, &config);
        set.change(|member| {
            member.config = Some(config);
            member.consensus = consensus.clone();
            member.id = me;
            member.term = member.term.max(term);
            (member.leads, member.steps_down, member.is_behind) = (leads, false, is_behind);
            if leads {
                member.elected_ms = self.env.clock.now_ms();
                member.primary = Some(me);
            }
        });
        self.log_role(&set.member());
        let (Some(consensus), Some(threads)) = (consensus, set.threads()) else {
            return Ok(());
        };
        let members = consensus.membership(&set.instance);
        threads.take_part(&members, election_timeout)?;
        if leads {
            let operation = self.new_operation();
            self.storage
                .wait_members(&operation, None, &|standing| standing.is_writable)?;
        }
        self.allow_candidacy(set);
        threads.wake();
        Ok(())
    }

    /// Reads the configuration as it is applied. On a member that follows, or leads.
    pub fn take_up_configuration(&self, set: &ReplicaSet) -> Result<()> {
        let Some(document) = self.storage.set_configuration()? else {
            return Ok(());
        };
        let (config, consensus) = read_config(&document, &set.name)?;
        self.storage
            .set_election_timeout(Duration::from_millis(config.settings.election_timeout_ms));
        self.delay_applying(set, &config);
        set.keep_peers(|id| config.member(id).is_some());
        set.change(|member| {
            member.consensus = consensus.or_else(|| member.consensus.take());
            member.config = Some(config);
            member.forget_told();
            if self.storage.standing().is_some() {
                member.find_primary();
            }
        });
        self.allow_candidacy(set);
        set.wake();
        Ok(())
    }

    /// One changes the configuration at a time, from the one that is in force: a change whose maker did not wait for it
    /// is waited for and taken up first.
    ///
    /// # Errors
    /// As for [`storage::Storage::wait_members_in_force`]; the configuration cannot be read.
    pub(super) fn configure<'s>(&self, set: &'s ReplicaSet, operation: &Operation) -> Result<MutexGuard<'s, ()>> {
        let configuring = set.configure();
        self.storage.wait_members_in_force(operation)?;
        if self.storage.standing().is_some()
            && let Some(document) = self.storage.set_configuration()?
        {
            let (config, consensus) = read_config(&document, &set.name)?;
            let is_known = set.with_member(|member| {
                member.config.as_ref() == Some(&config) && (consensus.is_none() || member.consensus == consensus)
            });
            if !is_known {
                self.take_up_configuration(set)?;
            }
        }
        Ok(configuring)
    }

    /// A member that stays behind on purpose.
    fn delay_applying(&self, set: &ReplicaSet, config: &SetConfig) {
        let id = set.with_member(|member| member.id);
        let delay_s = config.member(id).map_or(0, |me| me.secondary_delay_s);
        self.storage.set_apply_delay(Duration::from_secs(u64::from(delay_s)));
    }

    /// Has consensus know whether this member may stand for election.
    pub(crate) fn allow_candidacy(&self, set: &ReplicaSet) {
        let now = self.env.clock.monotonic();
        let may_stand = set.with_member(|member| member.may_stand(now));
        self.storage.set_may_stand(may_stand);
    }

    /// Consensus says something else of this member than before. Called on its thread: nothing here may wait.
    pub fn standing_changed(&self, standing: &Standing) {
        let Some(set) = self.replica_set() else { return };
        let before = set.with_member(|member| member.role);
        set.take_standing(standing, self.env.clock.now_ms());
        if set.with_member(|member| member.role != before) {
            self.log_role(&set.member());
        }
        set.wake();
    }

    /// Logs what this member is now.
    pub fn log_role(&self, member: &Member) {
        let attributes = doc! { "newState": member.role.name(), "term": member.term as i64 };
        self.logger.log(
            id::ROLE_CHANGED,
            "ReplCoord",
            "Replica set state transition",
            attributes,
        );
    }

    /// What a member that is alone does each second: stands for election when it may, lets time go on, forgets old
    /// sessions. It waits for no barrier: whoever calls it has other things to do. With others
    /// [`Server::look_after_members`] does it, on a thread that may wait.
    pub(crate) fn look_after_set(&self, set: &ReplicaSet) {
        if self.storage.standing().is_some() || set.with_member(|member| member.joins_as.is_some()) {
            return;
        }
        let member = set.member();
        self.storage.durable();
        let now = self.env.clock.monotonic();
        let done = match (member.role, member.config) {
            (Role::Secondary, Some(config)) if member.frozen_until <= now && !self.storage.holds_writes_back() => {
                self.begin_set(set, config, member.consensus, member.id)
            }
            (Role::Primary, _) => self.keep_time(set),
            _ => Ok(()),
        };
        self.note_upkeep(done);
    }

    fn note_upkeep(&self, done: Result<()>) {
        if let Err(error) = done {
            let attributes = doc! { "error": error.message };
            self.logger
                .log(id::UPKEEP_FAILED, "ReplCoord", "The member's upkeep failed", attributes);
        }
    }

    fn keep_time(&self, set: &ReplicaSet) -> Result<()> {
        let (storage, now_ms) = (&self.storage, self.env.clock.now_ms());
        let idle_ms = now_ms - date_of(storage.applied().time).timestamp_millis();
        if idle_ms >= NOTE_EVERY.as_millis() as i64 {
            storage.write_note_at_once(&rawdoc! { "msg": "periodic noop" })?;
        }
        storage.advance_consensus()?;
        let term = set.with_member(|member| member.term);
        let now = self.env.clock.monotonic();
        let unused = set.led.lock().note(term, now, now_ms, SESSION_TIMEOUT);
        if let Some(before_ms) = unused {
            storage.forget_sessions(before_ms)?;
        }
        Ok(())
    }

    /// What a member among others does now and then, and when something changed. It may wait for entries to stay.
    pub fn look_after_members(self: &Arc<Self>, upkeep: &mut Upkeep) {
        let Some(set) = self.replica_set() else { return };
        if self.storage.standing().is_none() {
            return;
        }
        self.storage.durable();
        self.stand_in(set, upkeep);
        self.allow_candidacy(set);
        let (role, term) = set.with_member(|member| (member.role, member.term));
        let is_primary = role == Role::Primary;
        if upkeep.was_primary && !is_primary {
            // What clients had open here would wait for a leader that this server is not.
            self.sessions.kill(|_| true, None, Interrupted::RoleChanged);
        }
        if !is_primary {
            // These change by what others write.
            let taken_up = self.own_call(default_concerns::load);
            self.note_upkeep(taken_up.and_then(|()| self.load_cluster_parameters()));
        }
        let is_new = is_primary && (!upkeep.was_primary || upkeep.term != term);
        if is_new {
            upkeep.takeover = Takeover::default();
        }
        (upkeep.was_primary, upkeep.term) = (is_primary, term);
        if !is_primary {
            return;
        }
        let done = match is_new {
            true => self.begin_to_lead(),
            false => Ok(()),
        };
        let done = done
            .and_then(|()| self.keep_time(set))
            .and_then(|()| self.answer_wanted(set))
            .and_then(|()| self.adjust_consensus(set));
        if set.is_writable() {
            self.note_upkeep(done);
            self.hand_over_to_higher(set, upkeep);
        }
    }

    /// What a new primary writes that its predecessor may not have written.
    fn begin_to_lead(self: &Arc<Self>) -> Result<()> {
        self.storage.keep_sessions()?;
        self.own_call(default_concerns::load)?;
        self.load_cluster_parameters()?;
        self.begin_to_write()
            .map_err(|reason| CommandError::new(ErrorCode::OperationFailed, reason))
    }

    /// Somebody waits for an entry of a time that nothing was written at.
    fn answer_wanted(&self, set: &ReplicaSet) -> Result<()> {
        let wanted = ClusterTime(set.wanted.load(Ordering::Acquire));
        if wanted > self.storage.applied().time {
            self.storage.saw_cluster_time(wanted);
            self.storage.write_note_at_once(&rawdoc! { "msg": "cluster time" })?;
        }
        Ok(())
    }

    /// Brings consensus to what the configuration says, step by step, as far as members are there and caught up.
    fn adjust_consensus(self: &Arc<Self>, set: &ReplicaSet) -> Result<()> {
        loop {
            let operation = self.new_operation();
            operation.set_deadline_ms(STEP_PATIENCE_MS);
            let _configuring = self.configure(set, &operation)?;
            let member = set.member();
            let (Some(config), Some(consensus), Some(standing)) =
                (&member.config, &member.consensus, self.storage.standing())
            else {
                return Ok(());
            };
            if !standing.is_writable {
                return Ok(());
            }
            let last = self.storage.log().last_seq();
            let Some((next, step)) = next_step(config, consensus, &set.peers(), &standing, last) else {
                return Ok(());
            };
            self.logger.log(
                id::CONSENSUS_STEP,
                "ReplCoord",
                "Consensus follows the configuration",
                doc! { "step": step },
            );
            self.own_call(|call| {
                call.operation.set_deadline_ms(STEP_PATIENCE_MS);
                keep_config(call, config, Some(&next))
            })?;
            self.take_up_configuration(set)?;
        }
    }

    /// Gives way to a member with a higher priority that has caught up.
    fn hand_over_to_higher(&self, set: &ReplicaSet, upkeep: &mut Upkeep) {
        let now = self.env.clock.monotonic();
        let member = set.member();
        let (Some(me), Some(standing)) = (member.me(), self.storage.standing()) else {
            return;
        };
        let last = Seq(self.storage.log().last_seq().0.saturating_sub(CAUGHT_UP_WITHIN));
        let version = member.config.as_ref().map_or(-1, |config| config.version);
        upkeep.takeover.forget(version, |heir, since| {
            let of = member.by_consensus_id(heir);
            of.map(|of| set.peer(of.id))
                .is_none_or(|peer| !peer.may_stand || peer.up_since != since)
        });
        if upkeep.takeover.is_under_way(now) {
            return;
        }
        let Some(heir) = heir(set, &member, &standing, last, &upkeep.takeover.not_due(now)) else {
            return;
        };
        let higher = member.by_consensus_id(heir).filter(|of| of.priority > me.priority);
        let is_up = higher.is_some_and(|of| {
            let peer = set.peer(of.id);
            peer.is_up && peer.may_stand && peer.role == Role::Secondary && now.saturating_sub(peer.up_since) >= UP_FOR
        });
        let settings = member.config.as_ref().map(|config| config.settings.election_timeout_ms);
        let election_timeout = Duration::from_millis(settings.unwrap_or(0));
        if let Some(higher) = higher.filter(|_| is_up) {
            let up_since = set.peer(higher.id).up_since;
            upkeep.takeover.begin(heir, up_since, now, election_timeout);
            self.storage.transfer_leadership(heir, ElectionReason::Priority);
        }
    }
}

impl Server {
    /// An arbiter may have entries that no other member which is up has: then nobody else can be elected. It stands
    /// when there has been no leader for long, takes no writes, brings the others what it has, and hands over.
    fn stand_in(&self, set: &ReplicaSet, upkeep: &mut Upkeep) {
        let member = set.member();
        let (Some(me), Some(config), Some(standing)) = (member.me(), &member.config, self.storage.standing()) else {
            return;
        };
        if !me.arbiter_only {
            return;
        }
        let now = self.env.clock.monotonic();
        // Who never stands does not notice by itself that a leader is silent.
        let leader = standing.leader.and_then(|id| member.by_consensus_id(id));
        let is_led = standing.is_writable || leader.is_some_and(|leader| set.peer(leader.id).role == Role::Primary);
        if is_led {
            upkeep.leaderless_since = now;
        }
        let patience = Duration::from_millis(config.settings.election_timeout_ms) * 3;
        let is_needed = now.saturating_sub(upkeep.leaderless_since) >= patience;
        set.change(|member| member.stands_in = is_needed);
        if standing.is_writable
            && let Some(heir) = heir(set, &member, &standing, self.storage.log().last_seq(), &[])
        {
            self.storage.transfer_leadership(heir, ElectionReason::Handover);
        }
    }
}

/// What [`Server::look_after_members`] remembers from one time to the next.
#[derive(Default)]
pub struct Upkeep {
    was_primary: bool,
    term: u64,
    /// Monotonic time when there last was a leader, of an arbiter.
    leaderless_since: Duration,
    takeover: Takeover,
}

/// The next change of consensus that the configuration asks for, and its name.
fn next_step(
    config: &SetConfig,
    consensus: &ConsensusMembers,
    peers: &BTreeMap<i32, PeerState>,
    standing: &Standing,
    last: Seq,
) -> Option<(ConsensusMembers, String)> {
    let mut next = consensus.clone();
    // Votes go before others come, so that no majority needs who is to leave.
    for known in &consensus.members {
        match config.member(known.member) {
            None => {
                next.keep(|member| member != known.member);
                return Some((next, format!("{} leaves", known.member)));
            }
            Some(member) if known.votes && !member.votes => {
                next.set_votes(known.member, false);
                return Some((next, format!("{} has no vote", member.host)));
            }
            Some(_) => {}
        }
    }
    for member in config.members.iter() {
        let Some(peer) = peers.get(&member.id).filter(|peer| peer.is_up) else {
            continue;
        };
        let known = consensus.of(member.id);
        if let Some(instance) = peer.instance
            && known.is_none_or(|known| known.instance != instance)
        {
            // A copy of another member's directory must not vote in that one's place.
            if consensus
                .of_instance(&instance)
                .is_some_and(|other| other.member != member.id)
            {
                continue;
            }
            next.take_in(member.id, instance);
            return Some((next, format!("{} is taken in", member.host)));
        }
        let Some(known) = known.filter(|known| member.votes && !known.votes) else {
            continue;
        };
        let progress = standing.progress.iter().find(|progress| progress.id == known.id);
        let has_caught_up = progress.is_some_and(|progress| progress.durable.0 + CAUGHT_UP_WITHIN >= last.0);
        if has_caught_up && peer.consensus_id == known.id {
            next.set_votes(member.id, true);
            return Some((next, format!("{} votes", member.host)));
        }
    }
    None
}

impl ConsensusMembers {
    /// As the state machine needs them, for the data directory `instance`.
    fn membership(&self, instance: &[u8; 16]) -> Membership {
        let of = |votes: bool| {
            let members = self.members.iter().filter(move |member| member.votes == votes);
            members.map(|member| member.id).collect()
        };
        Membership {
            voters: of(true),
            learners: of(false),
            own: self.of_instance(instance).map(|member| member.id),
            is_arbiter: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::MemberProgress;

    fn config(members: &[(i32, bool)]) -> SetConfig {
        let members: Vec<_> = members
            .iter()
            .map(|(id, votes)| {
                let priority = if *votes { 1.0 } else { 0.0 };
                doc! { "_id": id, "host": format!("h{id}:1"), "votes": i32::from(*votes), "priority": priority }
            })
            .collect();
        let config = doc! { "_id": "rs", "version": 1, "members": members };
        SetConfig::parse(&RawDocumentBuf::try_from(&config).expect("valid")).expect("parsed")
    }

    fn up(instance: u8, consensus_id: u64) -> PeerState {
        PeerState {
            is_up: true,
            role: Role::Secondary,
            instance: Some([instance; 16]),
            consensus_id,
            ..PeerState::default()
        }
    }

    fn progress(of: &[(u64, u64)]) -> Standing {
        let progress = |(id, durable): &(u64, u64)| MemberProgress {
            id: *id,
            durable: Seq(*durable),
            applied: Seq(*durable),
        };
        Standing {
            is_writable: true,
            progress: of.iter().map(progress).collect(),
            ..Standing::default()
        }
    }

    /// Every step changes one vote at most, and the last one is what the configuration says.
    #[test]
    fn consensus_follows_in_steps_of_one_vote() {
        let mut consensus = ConsensusMembers::of_one(0, [1; 16]);
        let wanted = config(&[(0, true), (1, true), (2, true), (3, false)]);
        let mut peers = BTreeMap::from([(1, up(2, 0)), (2, up(3, 0)), (3, up(4, 0))]);
        let mut steps = Vec::new();
        let votes = |of: &ConsensusMembers| of.members.iter().filter(|member| member.votes).count();
        let mut standing = progress(&[]);
        while let Some((next, step)) = next_step(&wanted, &consensus, &peers, &standing, Seq(5000)) {
            assert!(votes(&next).abs_diff(votes(&consensus)) <= 1);
            consensus = next;
            steps.push(step);
            // It starts under the number that it was given, and catches up.
            for known in &consensus.members {
                if let Some(peer) = peers.get_mut(&known.member) {
                    peer.consensus_id = known.id;
                }
            }
            let caught_up: Vec<_> = consensus.members.iter().map(|member| (member.id, 4500)).collect();
            standing = progress(&caught_up);
        }
        assert_eq!(steps.len(), 5, "{steps:?}");
        assert_eq!(votes(&consensus), 3);
        // One is wiped: the vote of what it was goes with that.
        peers.insert(2, up(9, 0));
        let (next, step) = next_step(&wanted, &consensus, &peers, &standing, Seq(5000)).expect("a step");
        assert_eq!((votes(&next), step.as_str()), (2, "h2:1 is taken in"));
        assert!(!next.of(2).expect("there").votes);
        // It is behind, and does not vote.
        let behind = progress(&[(next.of(2).expect("there").id, 10)]);
        assert_eq!(next_step(&wanted, &next, &peers, &behind, Seq(5000)), None);
        // A directory that is another member's is not taken in.
        peers.insert(2, up(2, 0));
        assert_eq!(next_step(&wanted, &next, &peers, &standing, Seq(5000)), None);
        // Members go one by one.
        let fewer = config(&[(0, true)]);
        while let Some((next, _)) = next_step(&fewer, &consensus, &peers, &standing, Seq(5000)) {
            assert!(votes(&next).abs_diff(votes(&consensus)) <= 1);
            consensus = next;
        }
        assert_eq!(consensus.members.len(), 1);
    }
}
