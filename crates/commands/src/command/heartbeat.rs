//! `replSetHeartbeat`: what members ask each other now and then, and what they answer.
//!
//! Beside how each is, heartbeats carry what a server has to know that cannot follow the log yet: the configuration,
//! with the number in consensus that its data directory was given. Who finds itself taken in copies all data from
//! the primary; who finds that it was given another number than it has, or that it fell behind the primary's log,
//! becomes another instance first, since a log that was lost must not vote in the name of one that was kept.
//!
//! A primary that was deposed, or given up by a forced configuration, may not know it yet and goes on saying so. What
//! it says of another member's place is of a term that is over, and is not acted on. So where configurations were
//! forced on two members, the one with the later term takes the other one in: that of the later version, where both
//! were forced from the same configuration.

use super::membership::{read_config, set};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use crate::metrics::OperationKind;
use crate::replica_set::{ConsensusMembers, Member, PeerState, ReplicaSet, Role, SetConfig, WantedCopy, term_of};
use crate::reply::Reply;
use crate::server::Server;
use auth::Action;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, DateTime, doc};
use std::time::Duration;
use storage::Standing;
use wire::ErrorCode;

/// `replSetHeartbeat`.
pub const REPL_SET_HEARTBEAT: Command = Command::new(
    "replSetHeartbeat",
    "Tells another member of the set how this one is. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    heartbeat,
)
.admin_only()
.secondary_ok();

/// What another member says of itself when it asks.
#[derive(Default)]
struct Asker<'a> {
    id: Option<i32>,
    host: &'a str,
    /// The number of the member that it means to ask.
    to: Option<i32>,
    /// The newest term that it knows: its own, when it is the primary.
    term: u64,
    version: i64,
    is_primary: bool,
    /// The asked member's next entry is not in the asker's log any more.
    left_behind: bool,
    config: Option<&'a RawDocument>,
}

fn heartbeat(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut asker = Asker {
        version: -1,
        ..Asker::default()
    };
    let number = |field: &str, value| -> Result<Option<i32>> {
        Ok(i32::try_from(arguments.integer(field, value)?)
            .ok()
            .filter(|id| *id >= 0))
    };
    call.for_each_field(|field, value| {
        match field {
            "fromId" => asker.id = number(field, value)?,
            "toId" => asker.to = number(field, value)?,
            "from" => asker.host = arguments.string(field, value)?,
            "term" => asker.term = u64::try_from(arguments.integer(field, value)?).unwrap_or(0),
            "configVersion" => asker.version = arguments.integer(field, value)?,
            "primary" => asker.is_primary = arguments.boolean(field, value)?,
            "leftBehind" => asker.left_behind = arguments.boolean(field, value)?,
            "config" => asker.config = Some(arguments.document(field, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let set = set(call)?;
    let name = arguments.string(call.command.name, call.target()?)?;
    if name != set.name {
        return Err(CommandError::new(
            ErrorCode::InvalidReplicaSetConfig,
            format!("this server is of the replica set {}, not of {name}", set.name),
        ));
    }
    if let Some(id) = asker.id {
        set.has_asked(id, call.server.env.clock.now_ms());
    }
    if asker.is_primary {
        call.server.hear_primary(set, &asker)?;
    }
    let member = set.member();
    answer(call, set, &member, reply);
    // Who was dropped from the configuration hears of it here: the log no longer comes to it.
    let version = member.config.as_ref().map_or(-1, |config| i64::from(config.version));
    if asker.version >= 0 && asker.version < version && member.role == Role::Primary {
        write_config(reply, &member);
    }
    Ok(())
}

fn answer(call: &Invocation<'_>, set: &ReplicaSet, member: &Member, reply: &mut Reply<'_>) {
    let storage = &call.server.storage;
    // In this order: what is durable is never later than what is applied then.
    let (durable, applied) = (storage.durable(), storage.applied());
    let known = member.config.as_ref().filter(|_| member.joins_as.is_none());
    reply.string("set", &set.name);
    reply.int32("state", member.role as i32);
    reply.int64("term", member.term as i64);
    reply.int32("v", known.map_or(-1, |config| config.version));
    if let Some(id) = member.config.as_ref().and_then(|config| config.settings.replica_set_id) {
        reply.value("setId", &Bson::ObjectId(id));
    }
    if let Some(consensus) = &member.consensus {
        reply.int64("numbersGiven", consensus.numbers_given() as i64);
    }
    reply.generic_binary("instance", &member.joins_as.unwrap_or(set.instance));
    reply.int64(
        "consensusId",
        storage.standing().map_or(0, |standing| standing.id as i64),
    );
    let may_stand = member.may_stand(call.server.env.clock.monotonic()) && !storage.holds_writes_back();
    reply.boolean("mayStand", may_stand);
    for (name, term, point) in [("applied", "appliedTerm", applied), ("durable", "durableTerm", durable)] {
        reply.timestamp(name, point.time.to_timestamp());
        reply.int64(term, term_of(storage, point, member.term) as i64);
    }
    reply.int32("primaryId", member.primary.unwrap_or(-1));
    if member.role == Role::Primary {
        reply.date("electionTime", DateTime::from_millis(member.elected_ms));
    }
    // What a server makes of itself is no data.
    let has_data = storage
        .catalog()
        .all_collections()
        .iter()
        .any(|collection| !matches!(collection.namespace().db(), "admin" | "config" | "local"));
    reply.boolean("hasData", has_data);
}

fn write_config(reply: &mut Reply<'_>, member: &Member) {
    if let Some(config) = &member.config {
        let mut document = config.to_document();
        if let Some(consensus) = &member.consensus {
            document.insert("consensus", consensus.to_document());
        }
        reply.value("config", &Bson::Document(document));
    }
}

impl ReplicaSet {
    /// What a server is asked that may become a member.
    pub fn probe(&self) -> RawDocumentBuf {
        let question = doc! { "replSetHeartbeat": &self.name, "configVersion": -1_i64, "$db": "admin" };
        RawDocumentBuf::try_from(&question).unwrap_or_default()
    }

    /// What another member is asked, and told.
    pub fn question(&self, to: i32, standing: Option<&Standing>) -> RawDocumentBuf {
        let member = self.member();
        let me = member.me().map_or("", |me| &me.host);
        let version = member.config.as_ref().map_or(-1, |config| config.version);
        let is_primary = member.role == Role::Primary;
        let mut question = doc! {
            "replSetHeartbeat": &self.name,
            "fromId": member.id,
            "from": me,
            "toId": to,
            "term": member.term as i64,
            "configVersion": i64::from(version),
            "primary": is_primary,
            "$db": "admin",
        };
        if is_primary {
            let peer = self.peer(to);
            let known = member.consensus.as_ref().and_then(|consensus| consensus.of(to));
            if let (Some(known), Some(standing)) = (known, standing) {
                // What is silent may be another set's member, at the address that this one had.
                let same = peer.is_up && peer.instance == Some(known.instance);
                question.insert("leftBehind", same && standing.left_behind.contains(&known.id));
            }
            if self.is_in_the_dark(&member, &peer, to)
                && let Some(config) = &member.config
            {
                let mut document = config.to_document();
                if let Some(consensus) = &member.consensus {
                    document.insert("consensus", consensus.to_document());
                }
                question.insert("config", document);
            }
        }
        RawDocumentBuf::try_from(&question).unwrap_or_default()
    }

    /// Whether a member has to be told of the configuration: it does not follow the log, or has not applied it yet.
    fn is_in_the_dark(&self, member: &Member, peer: &PeerState, to: i32) -> bool {
        let version = member.config.as_ref().map_or(-1, |config| config.version);
        let consensus = member.consensus.as_ref();
        let known = consensus.and_then(|consensus| consensus.of(to));
        let numbers = consensus.zip(peer.numbers_given);
        let lacks_numbers = numbers.is_some_and(|(consensus, given)| given < consensus.numbers_given());
        peer.is_up
            && (peer.version < version || lacks_numbers || known.is_none_or(|known| known.id != peer.consensus_id))
    }
}

/// A number for a data directory that nobody else has.
pub fn new_instance(random: &dyn vfs::Random) -> [u8; 16] {
    let mut instance = [0; 16];
    instance[..8].copy_from_slice(&random.next_u64().to_le_bytes());
    instance[8..].copy_from_slice(&random.next_u64().to_le_bytes());
    instance
}

impl Server {
    /// The primary says something of this member's place.
    fn hear_primary(&self, set: &ReplicaSet, asker: &Asker<'_>) -> Result<()> {
        let told = match asker.config {
            Some(document) => Some(read_config(document, &set.name)?),
            None => None,
        };
        let id = told.as_ref().and_then(|(config, _)| config.settings.replica_set_id);
        // Who took this one for a member would have it copy other data in place of its own.
        if let Some(reason) = set.is_another(id) {
            return Err(CommandError::new(ErrorCode::InvalidReplicaSetConfig, reason));
        }
        let standing = self.storage.standing();
        let takes_part = set.with_member(|member| member.joins_as.is_none() && !member.copies);
        // This member may have stood for election since. It takes part in the asker's consensus, which settles that.
        let is_deposed = standing.as_ref().is_some_and(|standing| asker.term < standing.term);
        if asker.left_behind && takes_part && !is_deposed {
            self.become_another(set, "the primary's log begins behind what this member has");
        }
        let Some((config, consensus)) = told else { return Ok(()) };
        // Of another consensus it would never hear: that the asker's term is over is told by what others have written.
        if takes_part && standing.is_some() && asker.term < self.storage.last_term()? {
            return Ok(());
        }
        let Some(consensus) = consensus else { return Ok(()) };
        let member = set.member();
        // Two leaders of one term are of sets that were forced on two members: one of them stays.
        let version = member.config.as_ref().map_or(-1, |config| config.version);
        let is_rival = takes_part
            && member.role == Role::Primary
            && standing.as_ref().is_some_and(|standing| standing.term == asker.term);
        if is_rival && (config.version, asker.id) < (version, Some(member.id)) {
            return Ok(());
        }
        let instance = member.joins_as.unwrap_or(set.instance);
        let given = consensus.of_instance(&instance).copied();
        if given.is_some_and(|given| asker.to.is_some_and(|to| to != given.member)) {
            let message = "Two servers have the same data directory's number: remove the data of the copy";
            self.logger.log(id::TWO_OF_ONE_INSTANCE, "ReplCoord", message, doc! {});
            return Ok(());
        }
        match (standing, given) {
            // It follows the log, which has the configuration or will have it. That may be long after others came, whom
            // it votes for.
            (Some(standing), Some(given)) if member.joins_as.is_none() => match given.id == standing.id {
                true => {
                    set.change(|member| member.hear_configuration(config, consensus));
                    set.wake();
                }
                false => self.become_another(set, "it was given another number in consensus than it has"),
            },
            (Some(_), None) if member.joins_as.is_none() => {
                let is_member = asker.to.is_some_and(|to| config.member(to).is_some());
                match is_member {
                    // Another instance has its place, or none yet.
                    true => {}
                    false => self.leave(set, config, consensus),
                }
            }
            (_, Some(given)) => {
                if let Some(threads) = set.threads()
                    && !member.copies
                    && !self.storage.holds_writes_back()
                {
                    threads.copy(self.wanted_copy(set, &config, asker, given.member, instance));
                }
            }
            // Not taken in yet.
            (_, None) => {}
        }
        Ok(())
    }

    fn wanted_copy(
        &self,
        set: &ReplicaSet,
        config: &SetConfig,
        asker: &Asker<'_>,
        own: i32,
        instance: [u8; 16],
    ) -> WantedCopy {
        let source = set.copy_source.lock().clone();
        let knows = |host: &String| config.members.iter().any(|of| of.host == *host && of.id != own);
        let secondaries = config.members.iter().filter(|of| {
            let is_primary = asker.id == Some(of.id);
            of.id != own && !is_primary && !of.arbiter_only && of.secondary_delay_s == 0
        });
        WantedCopy {
            instance,
            is_arbiter: config.member(own).is_some_and(|me| me.arbiter_only),
            primary: asker.host.to_owned(),
            secondaries: secondaries.map(|of| of.host.clone()).collect(),
            source: source.filter(knows),
        }
    }

    /// Its log can no longer be the set's: it waits to be taken in as another instance, and copies all data. Not while
    /// writes are held back: who copies the files would find others, and the lock would end with the new start. The
    /// primary says again what it said.
    fn become_another(&self, set: &ReplicaSet, reason: &str) {
        if self.storage.holds_writes_back() {
            return;
        }
        // The one as which it had begun to copy, if it was cut short in that.
        let begun = set.begun_as.lock().take();
        let instance = begun.unwrap_or_else(|| new_instance(&*self.env.random));
        let message = "This member has to copy all data anew";
        self.logger
            .log(id::COPY_NEEDED, "ReplCoord", message, doc! { "reason": reason });
        set.change(|member| member.joins_as = Some(instance));
        self.allow_candidacy(set);
        // Nobody else stands for election while there is a leader, and this one takes no writes.
        self.storage.give_leadership_up();
    }

    /// The configuration has it no more.
    fn leave(&self, set: &ReplicaSet, config: SetConfig, consensus: ConsensusMembers) {
        let newer = set.with_member(|member| {
            member
                .config
                .as_ref()
                .is_none_or(|known| known.version < config.version)
        });
        if newer {
            set.change(|member| {
                member.config = Some(config);
                member.consensus = Some(consensus);
            });
            self.allow_candidacy(set);
            self.log_role(&set.member());
            set.wake();
        }
    }

    /// Another member has answered a heartbeat, or has not.
    pub fn heard(&self, member: i32, reply: std::result::Result<&RawDocument, &str>, ping: Duration) {
        let Some(set) = self.replica_set() else { return };
        let clock = &self.env.clock;
        let before = set.peer(member);
        set.heard(member, reply, (clock.now_ms(), clock.monotonic()), ping);
        let now = set.peer(member);
        // Who was dropped hears of it from the primary's answer.
        if let Ok(reply) = reply
            && now.role == Role::Primary
            && let Ok(document) = reply.get_document("config")
            && let Ok((config, Some(consensus))) = read_config(document, &set.name)
            && set.with_member(|me| config.member(me.id).is_none())
        {
            self.leave(set, config, consensus);
        }
        let is_news = (before.is_up, before.role, before.instance, before.consensus_id)
            != (now.is_up, now.role, now.instance, now.consensus_id);
        if is_news {
            set.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::copies::instance_binary;
    use crate::replica_set::{ConsensusMembers, ReplicaSet, SetConfig, instance_in};
    use bson::oid::ObjectId;
    use bson::rawdoc;
    use std::time::Duration;
    use storage::Standing;

    #[test]
    fn an_instance_is_read_back() {
        let binary = instance_binary([7; 16]);
        assert_eq!(instance_in(&rawdoc! { "instance": binary }), Some([7; 16]));
        assert_eq!(instance_in(&rawdoc! {}), None);
    }

    /// Who hears it gives its data up: another set's member must not, at the address of one that fell behind.
    #[test]
    fn only_who_answered_last_is_told_that_it_is_left_behind() {
        let set = ReplicaSet::new("rs".into(), false, ("localhost", 27017), [1; 16]);
        let config = rawdoc! {
            "_id": "rs",
            "version": 1,
            "members": [{ "_id": 0, "host": "a:1" }, { "_id": 1, "host": "b:1" }],
            "settings": { "replicaSetId": ObjectId::new() },
        };
        let mut consensus = ConsensusMembers::of_one(0, [1; 16]);
        consensus.take_in(1, [2; 16]);
        let standing = Standing {
            left_behind: consensus.of(1).map(|known| known.id).into_iter().collect(),
            ..Standing::default()
        };
        set.change(|member| {
            member.config = Some(SetConfig::parse(&config).expect("valid"));
            member.consensus = Some(consensus);
            (member.id, member.leads) = (0, true);
        });
        let is_told = || set.question(1, Some(&standing)).get_bool("leftBehind").ok();
        assert_eq!(is_told(), Some(false));
        let now = (5, Duration::from_secs(1));
        let own = rawdoc! { "state": 2, "v": 1, "instance": instance_binary([2; 16]) };
        set.heard(1, Ok(&own), now, Duration::ZERO);
        assert_eq!(is_told(), Some(true));
        let foreign = rawdoc! { "state": 2, "v": 1, "setId": ObjectId::new() };
        set.heard(1, Ok(&foreign), now, Duration::ZERO);
        assert_eq!(is_told(), Some(false));
    }
}
