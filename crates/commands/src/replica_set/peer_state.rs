//! What is known of another member by its answers to heartbeats.

use super::Role;
use bson::{DateTime, RawDocument, Timestamp};
use std::time::Duration;
use storage::ClusterTime;

/// What a member said last.
#[derive(Clone, Debug)]
pub struct PeerState {
    /// It answered the last time.
    pub is_up: bool,
    /// What it is.
    pub role: Role,
    /// Its data directory.
    pub instance: Option<[u8; 16]>,
    /// The number under which it takes part in consensus, 0: it does not.
    pub consensus_id: u64,
    /// It may be elected now: it is not frozen, for one.
    pub may_stand: bool,
    /// The newest term it knows.
    pub term: u64,
    /// The version of its configuration.
    pub version: i32,
    /// [`super::ConsensusMembers::numbers_given`] of that; `None` of an older server.
    pub numbers_given: Option<u64>,
    /// The newest entry whose effect it shows.
    pub applied: ClusterTime,
    /// As far as its own disk has it.
    pub durable: ClusterTime,
    /// The terms of these two entries.
    pub applied_term: u64,
    /// See `applied_term`.
    pub durable_term: u64,
    /// Wall time when it was elected, while it is the primary.
    pub elected_ms: i64,
    /// A round trip.
    pub ping: Duration,
    /// Wall time of the last answer.
    pub answered_ms: i64,
    /// Wall time of the last question that it asked.
    pub asked_ms: i64,
    /// Monotonic time since when it has answered.
    pub up_since: Duration,
    /// Why it did not answer.
    pub message: String,
    /// The member that it takes for the primary.
    pub primary: Option<i32>,
}

impl Default for PeerState {
    fn default() -> Self {
        Self {
            is_up: false,
            role: Role::Unknown,
            instance: None,
            consensus_id: 0,
            may_stand: false,
            term: 0,
            version: -1,
            numbers_given: None,
            applied: ClusterTime::default(),
            durable: ClusterTime::default(),
            applied_term: 0,
            durable_term: 0,
            elected_ms: 0,
            ping: Duration::ZERO,
            answered_ms: 0,
            asked_ms: 0,
            up_since: Duration::ZERO,
            message: String::new(),
            primary: None,
        }
    }
}

impl PeerState {
    /// It did not answer, for the reason given.
    pub(super) fn silent(&mut self, reason: &str) {
        self.is_up = false;
        self.role = Role::Down;
        self.message = reason.to_owned();
    }

    /// It answered, at a wall and a monotonic time.
    pub(super) fn answered(&mut self, reply: &RawDocument, (now_ms, now): (i64, Duration), ping: Duration) {
        if !self.is_up {
            self.up_since = now;
        }
        let time = |name| {
            let found = reply.get_timestamp(name);
            found.map_or(ClusterTime::default(), |time: Timestamp| time.into())
        };
        let number = |name| u64::try_from(reply.get_i64(name).unwrap_or(0)).unwrap_or(0);
        self.is_up = true;
        self.role = Role::of_number(reply.get_i32("state").unwrap_or(-1));
        self.instance = instance_in(reply);
        self.consensus_id = number("consensusId");
        self.may_stand = reply.get_bool("mayStand").unwrap_or(false);
        self.term = number("term");
        self.version = reply.get_i32("v").unwrap_or(-1);
        let given = reply.get_i64("numbersGiven").ok();
        self.numbers_given = given.and_then(|given| u64::try_from(given).ok());
        (self.applied, self.durable) = (time("applied"), time("durable"));
        // An older server tells its own term only.
        let term_of = |name| reply.get(name).ok().flatten().map_or(self.term, |_| number(name));
        (self.applied_term, self.durable_term) = (term_of("appliedTerm"), term_of("durableTerm"));
        self.elected_ms = reply.get_datetime("electionTime").map_or(0, DateTime::timestamp_millis);
        self.ping = ping;
        self.answered_ms = now_ms;
        self.message.clear();
        self.primary = reply.get_i32("primaryId").ok().filter(|id| *id >= 0);
    }
}

/// The data directory that a document tells of.
pub fn instance_in(document: &RawDocument) -> Option<[u8; 16]> {
    document.get_binary("instance").ok()?.bytes.try_into().ok()
}
