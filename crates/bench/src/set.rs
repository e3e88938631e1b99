//! A replica set on this machine: the servers of its members, who of them leads, and how far each has come.
//!
//! A member keeps its number, address and command for as long as the set exists, whether or not its server lives: one
//! that was killed is started again on its data and its port.

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::server::{ServerCommand, ServerProcess};
use bson::raw::RawDocument;
use bson::{Bson, Document, doc, rawdoc};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crate::role::Role;

/// A set has a primary by then, whatever happened: several elections.
const PRIMARY_TIMEOUT: Duration = Duration::from_secs(120);
/// Secondaries have what the primary has by then, when nobody writes.
pub const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(300);
/// Between two looks at who leads.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A member, whose server lives or does not.
#[derive(Debug)]
pub struct Member {
    /// How its server is started.
    pub command: ServerCommand,
    /// Where it listens.
    pub address: SocketAddr,
    process: Mutex<Option<ServerProcess>>,
}

impl Member {
    /// One whose server runs.
    pub fn new(command: ServerCommand, process: ServerProcess) -> Self {
        Self {
            command,
            address: process.address(),
            process: Mutex::new(Some(process)),
        }
    }

    /// The id of its process; `None` when that does not live.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(ServerProcess::pid)
    }

    /// Its process, when that lives.
    pub fn process(&self) -> MutexGuard<'_, Option<ServerProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its server as SIGKILL does. The data stays.
    pub fn kill(&self) {
        // Dropping it kills it.
        drop(self.process().take());
    }

    /// Ends its server in an orderly way. Returns how long that took; `None`: it did not live.
    pub fn stop(&self) -> Result<Option<Duration>> {
        let process = self.process().take();
        process.map(ServerProcess::stop).transpose()
    }
}

/// The members of a set.
#[derive(Debug)]
pub struct Members {
    members: Vec<Member>,
    interrupt: Interrupt,
}

impl Members {
    /// Members whose servers run.
    pub fn new(members: Vec<Member>, interrupt: &Interrupt) -> Self {
        Self {
            members,
            interrupt: interrupt.clone(),
        }
    }

    /// All of them, by number.
    pub fn all(&self) -> &[Member] {
        &self.members
    }

    /// The user's wish to stop, which ends every wait.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// A connection to one.
    pub fn open(&self, number: usize) -> Result<Connection> {
        Connection::open_until(self.members[number].address, &self.interrupt)
    }

    /// What one says it is.
    pub fn role(&self, number: usize) -> Role {
        let hello = self
            .open(number)
            .and_then(|mut connection| connection.run("admin", &rawdoc! { "hello": 1 }));
        hello.map_or(Role::Neither, |hello| Role::of(&hello))
    }

    /// What each says it is.
    pub fn roles(&self) -> Vec<Role> {
        (0..self.members.len()).map(|number| self.role(number)).collect()
    }

    /// Waits until a member leads, and `met` is true of all roles. Returns who leads.
    pub fn wait(&self, met: impl Fn(&[Role]) -> bool) -> Result<usize> {
        let start = Instant::now();
        loop {
            let roles = self.roles();
            if let Some(primary) = roles.iter().position(|role| *role == Role::Primary)
                && met(&roles)
            {
                return Ok(primary);
            }
            self.interrupt.check()?;
            if start.elapsed() > PRIMARY_TIMEOUT {
                return Err(Error::NoPrimary {
                    seconds: PRIMARY_TIMEOUT.as_secs(),
                    roles,
                });
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until one leads, all others follow, and all have their votes.
    pub fn wait_for_all(&self) -> Result<usize> {
        self.wait(|roles| {
            let primary = roles.iter().position(|role| *role == Role::Primary);
            !roles.contains(&Role::Neither) && primary.is_some_and(|primary| self.all_vote(primary))
        })
    }

    /// Whether all members have the votes that the configuration gives them: in a set that was just made, new ones get
    /// theirs one after the other, and a majority of those that have one may need each of them. What tells nothing of
    /// that gives them at once.
    fn all_vote(&self, primary: usize) -> bool {
        let question = rawdoc! { "find": "system.replset", "limit": 1, "singleBatch": true };
        let kept = self
            .open(primary)
            .and_then(|mut connection| connection.ask("local", &question));
        let Ok(kept) = kept else { return false };
        let votes = |document: &Document| {
            let members = document.get_array("members").ok()?.iter();
            let has_vote = |member: &Bson| match member.as_document().and_then(|member| member.get("votes")) {
                Some(Bson::Boolean(votes)) => *votes,
                Some(votes) => votes.as_i32() != Some(0) && votes.as_i64() != Some(0),
                None => true,
            };
            Some(members.filter(|member| has_vote(member)).count())
        };
        let config = kept.as_ref().and_then(|reply| {
            let batch = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
            batch.first()?.as_document()
        });
        config.is_none_or(|config| match config.get_document("consensus") {
            Ok(consensus) => votes(consensus) == votes(config),
            Err(_) => true,
        })
    }

    /// Ends all servers in an orderly way, all at once: one that is alone would wait for others to hand over to.
    /// Returns how long that took.
    pub fn stop(&self) -> Result<Duration> {
        let began = Instant::now();
        std::thread::scope(|scope| {
            let ends: Vec<_> = self
                .members
                .iter()
                .map(|member| scope.spawn(|| member.stop()))
                .collect();
            let mut ends = ends.into_iter().map(|end| end.join().expect("stopping does not panic"));
            ends.try_for_each(|end| end.map(drop))
        })?;
        Ok(began.elapsed())
    }

    /// Starts a member's server again on its data. It answers then; what it is shows later.
    pub fn start_again(&self, number: usize) -> Result<()> {
        let member = &self.members[number];
        let server = ServerProcess::start_on(&member.command, member.address.port(), &self.interrupt)?;
        *member.process() = Some(server);
        Ok(())
    }

    /// An error when a server has ended by itself.
    pub fn check(&self) -> Result<()> {
        let mut processes = self.members.iter().map(Member::process);
        processes.try_for_each(|mut process| process.as_mut().map_or(Ok(()), ServerProcess::check))
    }

    /// Waits until these show all that the primary shows now, and returns how long each took. Nobody writes meanwhile.
    pub fn catch_up(&self, primary: usize, numbers: &[usize], since: Instant) -> Result<Vec<Duration>> {
        let goal = self.open(primary).and_then(|mut connection| applied(&mut connection))?;
        let mut took = vec![None; numbers.len()];
        let mut connections = numbers
            .iter()
            .map(|&number| self.open(number))
            .collect::<Result<Vec<_>>>()?;
        loop {
            for (took, connection) in took.iter_mut().zip(&mut connections) {
                if took.is_none() && applied(connection)? >= goal {
                    *took = Some(since.elapsed());
                }
            }
            if let Some(took) = took.iter().copied().collect() {
                return Ok(took);
            }
            self.interrupt.check()?;
            if since.elapsed() > CATCH_UP_TIMEOUT {
                let what = format!("a member does not catch up in {} s", CATCH_UP_TIMEOUT.as_secs());
                return Err(Error::Protocol(what));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Has the primary take another configuration of the set.
    pub fn reconfigure(&self, primary: usize, change: impl FnOnce(&mut Document)) -> Result<()> {
        let mut connection = self.open(primary)?;
        let reply = connection.run("admin", &rawdoc! { "replSetGetConfig": 1 })?;
        let unclear = || Error::Protocol("replSetGetConfig has no such configuration".to_owned());
        let mut config = reply.get_document("config").map_err(|_| unclear())?.clone();
        let version = config.get_i32("version").map_err(|_| unclear())?;
        config.insert("version", version + 1);
        change(&mut config);
        let command = raw(&doc! { "replSetReconfig": config })?;
        connection.run("admin", &command).map(drop)
    }
}

/// The command that makes a set of the servers at these addresses.
pub fn initiate(
    name: &str,
    addresses: impl Iterator<Item = SocketAddr>,
    election_timeout: Option<Duration>,
) -> Document {
    let members: Vec<Bson> = addresses
        .enumerate()
        .map(|(number, address)| doc! { "_id": number as i32, "host": address.to_string() }.into())
        .collect();
    let mut config = doc! { "_id": name, "members": members };
    if let Some(timeout) = election_timeout {
        let timeout = timeout.as_millis() as i64;
        config.insert("settings", doc! { "electionTimeoutMillis": timeout });
    }
    doc! { "replSetInitiate": config }
}

/// The time in the log up to which a member shows what was written: seconds, then a number within the second.
pub fn applied(connection: &mut Connection) -> Result<u64> {
    applied_of(&connection.run("admin", &rawdoc! { "hello": 1 })?)
}

/// As [`applied`], of a reply to `hello`.
fn applied_of(hello: &Document) -> Result<u64> {
    let time = hello
        .get_document("lastWrite")
        .and_then(|write| write.get_document("opTime"))
        .and_then(|time| time.get_timestamp("ts"))
        .map_err(|error| Error::Protocol(format!("hello has no lastWrite.opTime: {error}")))?;
    Ok(u64::from(time.time) << 32 | u64::from(time.increment))
}

/// As [`applied_of`], of a reply that was not copied.
pub(crate) fn applied_of_raw(hello: &RawDocument) -> Option<u64> {
    let time = hello.get_document("lastWrite").ok()?.get_document("opTime").ok()?;
    let time = time.get_timestamp("ts").ok()?;
    Some(u64::from(time.time) << 32 | u64::from(time.increment))
}

/// A command as it is sent.
pub(crate) fn raw(command: &Document) -> Result<bson::RawDocumentBuf> {
    bson::RawDocumentBuf::try_from(command).map_err(|error| Error::Protocol(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::Timestamp;

    #[test]
    fn roles_and_positions_are_read_from_hello() {
        let time = Timestamp { time: 5, increment: 7 };
        let hello = doc! { "isWritablePrimary": false, "secondary": true, "lastWrite": { "opTime": { "ts": time, "t": 1_i64 } } };
        assert_eq!(Role::of(&hello), Role::Secondary);
        assert_eq!(Role::of(&doc! { "isWritablePrimary": true }), Role::Primary);
        assert_eq!(Role::of(&doc! {}), Role::Neither);
        assert_eq!(applied_of(&hello).ok(), Some(5 << 32 | 7));
        assert_eq!(applied_of_raw(&raw(&hello).expect("BSON")), Some(5 << 32 | 7));
        assert!(applied_of(&doc! { "ok": 1 }).is_err());
    }

    #[test]
    fn a_set_is_named_with_its_members() {
        let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().expect("an address"));
        let command = initiate("x", addresses.into_iter(), Some(Duration::from_secs(1)));
        let members = doc! { "_id": 0, "host": "127.0.0.1:1" };
        let config = command.get_document("replSetInitiate").expect("a configuration");
        let first = config.get_array("members").expect("members")[0].as_document();
        assert_eq!(first, Some(&members));
        let settings = config.get_document("settings").expect("settings");
        assert_eq!(settings.get_i64("electionTimeoutMillis").ok(), Some(1000));
    }
}
