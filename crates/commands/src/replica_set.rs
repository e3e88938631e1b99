//! A replica set of one member: its configuration, this server's role in it, and what drivers are told of both.
//!
//! A server started with `--replSet` has no role before the set is initiated. Then it is the primary: a term of the
//! log begins with each election, and an election is won at once, there being nobody else to vote. After
//! `replSetStepDown` it is a secondary until the time asked for has passed.
//!
//! Invariant: `is_writable` says of the role whether it is that of the primary; it is set under `member`.

mod config;

pub use config::{MemberConfig, SetConfig};

use crate::error::{CommandError, Result};
use crate::reply::Reply;
use bson::DateTime;
use bson::oid::ObjectId;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::{ClusterTime, Operation, Storage};
use wire::ErrorCode;

/// How long a waiter sleeps between two looks at its operation.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The set has not been initiated.
    Startup = 0,
    /// Takes writes.
    Primary = 1,
    /// Takes none for a while.
    Secondary = 2,
}

impl Role {
    /// The name that `replSetGetStatus` shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Startup => "STARTUP",
            Self::Primary => "PRIMARY",
            Self::Secondary => "SECONDARY",
        }
    }
}

/// The configuration and the role.
#[derive(Clone)]
pub struct Member {
    /// Of the set; `None` before it is initiated.
    pub config: Option<SetConfig>,
    /// This server's number in the configuration.
    pub id: i32,
    /// Of this server.
    pub role: Role,
    /// The term of the log that it is, or was last, the primary in.
    pub term: u64,
    /// Wall time of the last election, in milliseconds since the Unix epoch.
    pub elected_ms: i64,
    /// A secondary does not stand for election before this (monotonic) time.
    pub frozen_until: Duration,
    /// Rises with each change that drivers are to hear of.
    counter: i64,
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
    /// Of this process, for `topologyVersion`.
    process: ObjectId,
    member: Mutex<Member>,
    changed: Condvar,
    is_writable: AtomicBool,
    /// Held while the configuration is changed: what was checked is still so when it is written.
    configuring: Mutex<()>,
}

/// `topologyVersion` as a driver sends it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyVersion {
    /// The process that gave it.
    pub process: ObjectId,
    /// The state of that process.
    pub counter: i64,
}

impl ReplicaSet {
    /// A server of the set `name` without a configuration. `own_host` is how it is reached.
    pub fn new(name: String, initiates_itself: bool, own_host: &str, port: u16) -> Self {
        Self {
            name,
            initiates_itself,
            own_host: format!("{own_host}:{port}"),
            port,
            process: ObjectId::new(),
            member: Mutex::new(Member {
                config: None,
                id: 0,
                role: Role::Startup,
                term: 0,
                elected_ms: 0,
                frozen_until: Duration::ZERO,
                counter: 0,
            }),
            changed: Condvar::new(),
            is_writable: AtomicBool::new(false),
            configuring: Mutex::default(),
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

    /// Whether it takes writes.
    pub fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Acquire)
    }

    /// How this server calls itself when nobody else does, `host:port`.
    pub fn own_host(&self) -> &str {
        &self.own_host
    }

    /// Whether `host:port` is this server, as far as can be told without asking there: its port is.
    pub fn is_me(&self, host: &str) -> bool {
        let port = host.rsplit_once(':').map_or("27017", |(_, port)| port);
        host == self.own_host || port.parse() == Ok(self.port)
    }

    /// Changes the state; drivers that wait hear of it.
    pub fn change(&self, change: impl FnOnce(&mut Member)) {
        let mut member = self.member.lock();
        change(&mut member);
        member.counter += 1;
        self.is_writable.store(member.role == Role::Primary, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits until the state is another one than a driver knows, at most for `patience`.
    ///
    /// # Errors
    /// The operation was interrupted; the driver knows a later state than there is (`TypeMismatch` is the parser's).
    pub fn wait_for_change(&self, operation: &Operation, known: TopologyVersion, patience: Duration) -> Result<()> {
        let until = operation.clock().monotonic() + patience;
        let mut member = self.member.lock();
        if known.process != self.process {
            return Ok(());
        }
        if known.counter > member.counter {
            return Err(CommandError::new(
                ErrorCode(31382),
                format!(
                    "Received a topology version with counter: {} which is greater than the server topology version counter: {}",
                    known.counter, member.counter
                ),
            ));
        }
        while member.counter == known.counter {
            let left = until.saturating_sub(operation.clock().monotonic());
            if left.is_zero() {
                break;
            }
            operation.check_now().map_err(storage::StorageError::from)?;
            self.changed.wait_for(&mut member, left.min(WAIT_SLICE));
        }
        Ok(())
    }

    /// The fields of `hello` that tell of the set. `primary` is the name of the field that says whether it takes
    /// writes.
    pub fn write_hello(&self, reply: &mut Reply<'_>, primary: &str, storage: &Storage) {
        let member = self.member();
        self.write_topology_version(reply);
        let configured = member.config.as_ref();
        let Some((config, me)) = configured.and_then(|config| Some((config, config.member(member.id)?))) else {
            reply.boolean(primary, false);
            reply.boolean("secondary", false);
            reply.boolean("isreplicaset", true);
            reply.string("info", "Does not have a valid replica set config");
            return;
        };
        let is_primary = member.role == Role::Primary;
        reply.open_array("hosts");
        reply.string("0", &me.host);
        reply.close();
        reply.string("setName", &self.name);
        reply.int32("setVersion", config.version);
        reply.boolean(primary, is_primary);
        reply.boolean("secondary", !is_primary);
        if is_primary {
            reply.string("primary", &me.host);
        }
        reply.string("me", &me.host);
        if !me.tags.is_empty() {
            reply.value("tags", &me.tags.clone().into());
        }
        if is_primary {
            reply.value("electionId", &election_id(member.term).into());
        }
        reply.open_document("lastWrite");
        // Durable first: it is never later than what is applied then.
        let durable = storage.durable().time;
        let applied = storage.applied().time;
        for (name, date, time) in [
            ("opTime", "lastWriteDate", applied),
            ("majorityOpTime", "majorityWriteDate", durable),
        ] {
            write_op_time(reply, name, time, member.term);
            reply.date(date, date_of(time));
        }
        reply.close();
    }

    /// `topologyVersion`.
    pub fn write_topology_version(&self, reply: &mut Reply<'_>) {
        reply.open_document("topologyVersion");
        reply.value("processId", &self.process.into());
        reply.int64("counter", self.member.lock().counter);
        reply.close();
    }
}

/// What drivers tell later terms from earlier ones by: 0x7fffffff and the term, big-endian.
fn election_id(term: u64) -> ObjectId {
    let mut bytes = [0x7F, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// The second of a cluster time.
pub fn date_of(time: ClusterTime) -> DateTime {
    DateTime::from_millis((time.0 >> 32) as i64 * 1000)
}

/// A position in the log as drivers see it: `{ts, t}`.
pub fn write_op_time(reply: &mut Reply<'_>, name: &str, time: ClusterTime, term: u64) {
    reply.open_document(name);
    reply.timestamp("ts", time.to_timestamp());
    reply.int64("t", term as i64);
    reply.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn election_ids_rise_with_the_term() {
        assert_eq!(election_id(1).to_hex(), "7fffffff0000000000000001");
        assert!(election_id(255) < election_id(256));
    }

    #[test]
    fn a_host_with_this_port_is_me() {
        let set = ReplicaSet::new("rs".into(), false, "localhost", 27017);
        assert!(set.is_me("localhost:27017") && set.is_me("db.example.org:27017") && set.is_me("db.example.org"));
        assert!(!set.is_me("localhost:27018") && !set.is_me("localhost:x"));
    }
}
