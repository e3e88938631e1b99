//! What is known of the other members by asking each of them now and then.

use super::Role;
use super::link::Link;
use bson::{DateTime, RawDocumentBuf, Timestamp, rawdoc};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use storage::ClusterTime;

/// The command that asks.
pub const HEARTBEAT: &str = "replSetHeartbeat";
/// Members that are on their way to being useful are asked more often.
const OFTEN: Duration = Duration::from_millis(200);

/// What a member said last.
#[derive(Clone, Debug)]
pub struct PeerState {
    /// It answered the last time.
    pub is_up: bool,
    /// What it is.
    pub role: Role,
    /// Its data directory.
    pub instance: Option<[u8; 16]>,
    /// The newest term it knows.
    pub term: u64,
    /// The version of its configuration.
    pub version: i32,
    /// The newest entry whose effect it shows.
    pub applied: ClusterTime,
    /// As far as its own disk has it.
    pub durable: ClusterTime,
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
    /// Its initial sync runs.
    pub is_copying: bool,
}

impl Default for PeerState {
    fn default() -> Self {
        Self {
            is_up: false,
            role: Role::Unknown,
            instance: None,
            term: 0,
            version: -1,
            applied: ClusterTime::default(),
            durable: ClusterTime::default(),
            elected_ms: 0,
            ping: Duration::ZERO,
            answered_ms: 0,
            asked_ms: 0,
            up_since: Duration::ZERO,
            message: String::new(),
            primary: None,
            is_copying: false,
        }
    }
}

/// A member that is asked.
pub struct Peer {
    /// Its `_id` in the configuration.
    pub member: i32,
    /// `host:port`.
    pub host: String,
    state: Mutex<PeerState>,
    rung: Mutex<Rung>,
    alarm: Condvar,
}

#[derive(Default)]
struct Rung {
    at_once: bool,
    stopped: bool,
}

/// What is told with each question, and what an answer is given to.
pub trait Asker: Send + Sync {
    /// The question; `None` when this server is about to end.
    fn question(&self) -> Option<RawDocumentBuf>;

    /// The time between two questions, and how long an answer may take.
    fn times(&self) -> (Duration, Duration);

    /// Wall time in milliseconds, and monotonic time.
    fn now(&self) -> (i64, Duration);

    /// A member has answered, or has not.
    fn heard(&self, reply: Option<&RawDocumentBuf>);
}

impl Peer {
    /// Begins to ask a member.
    pub fn start(member: i32, host: &str, asker: Arc<dyn Asker>) -> Arc<Self> {
        let peer = Arc::new(Self {
            member,
            host: host.to_owned(),
            state: Mutex::default(),
            rung: Mutex::default(),
            alarm: Condvar::new(),
        });
        let of_thread = peer.clone();
        let spawned = std::thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || of_thread.run(&*asker));
        if spawned.is_err() {
            peer.stop();
        }
        peer
    }

    /// What it said last.
    pub fn state(&self) -> PeerState {
        self.state.lock().clone()
    }

    /// It has asked this server.
    pub fn has_asked(&self, now_ms: i64) {
        self.state.lock().asked_ms = now_ms;
    }

    /// Asks it at once.
    pub fn ask(&self) {
        self.rung.lock().at_once = true;
        self.alarm.notify_all();
    }

    /// It is asked no more.
    pub fn stop(&self) {
        self.rung.lock().stopped = true;
        self.alarm.notify_all();
    }

    fn run(&self, asker: &dyn Asker) {
        let mut link = None;
        loop {
            let (every, patience) = asker.times();
            let Some(question) = asker.question() else { return };
            let (_, before) = asker.now();
            let reply = match &mut link {
                Some(link) => Link::call(link, &question),
                None => Link::open(&self.host, patience).and_then(|mut new| {
                    let reply = new.call(&question);
                    link = reply.is_ok().then_some(new);
                    reply
                }),
            };
            if reply.is_err() {
                link = None;
            }
            let (now_ms, now) = asker.now();
            self.note(reply.as_ref(), now_ms, now, now.saturating_sub(before));
            asker.heard(reply.as_ref().ok());
            let is_settled = {
                let state = self.state.lock();
                state.is_up && matches!(state.role, Role::Primary | Role::Secondary | Role::Arbiter)
            };
            let pause = if is_settled { every } else { OFTEN.min(every) };
            let mut rung = self.rung.lock();
            if !rung.at_once && !rung.stopped {
                self.alarm.wait_for(&mut rung, pause);
            }
            rung.at_once = false;
            if rung.stopped {
                return;
            }
        }
    }

    fn note(&self, reply: Result<&RawDocumentBuf, &String>, now_ms: i64, now: Duration, ping: Duration) {
        let mut state = self.state.lock();
        let reply = match reply {
            Ok(reply) => reply,
            Err(reason) => {
                state.is_up = false;
                state.role = Role::Down;
                state.message.clone_from(reason);
                return;
            }
        };
        if !state.is_up {
            state.up_since = now;
        }
        let time = |name| {
            let found = reply.get_timestamp(name);
            found.map_or(ClusterTime::default(), |time: Timestamp| time.into())
        };
        let number = |name| reply.get_i64(name).unwrap_or(0);
        state.is_up = true;
        state.role = Role::of_number(reply.get_i32("state").unwrap_or(-1));
        let instance = reply.get_binary("instance").ok();
        state.instance = instance.and_then(|instance| instance.bytes.try_into().ok());
        state.term = number("term") as u64;
        state.version = reply.get_i32("v").unwrap_or(-1);
        (state.applied, state.durable) = (time("applied"), time("durable"));
        state.elected_ms = reply.get_datetime("electionTime").map_or(0, DateTime::timestamp_millis);
        state.ping = ping;
        state.answered_ms = now_ms;
        state.message.clear();
        state.primary = reply.get_i32("primaryId").ok().filter(|id| *id >= 0);
        state.is_copying = reply.get_bool("initialSync").unwrap_or(false);
    }
}

/// What a server is asked, and asks, before it knows of a configuration.
pub fn question(set: &str, member: i32, host: &str, term: u64, version: i32) -> RawDocumentBuf {
    rawdoc! {
        HEARTBEAT: set,
        "fromId": member,
        "from": host,
        "term": term as i64,
        "configVersion": version,
        "$db": "admin",
    }
}
