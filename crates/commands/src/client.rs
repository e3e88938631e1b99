//! A connected client: what the server knows of the other end, and the operation it is running.
//!
//! Invariant: `current.running` is there only between [`Client::begin`] and [`Client::end`].

use crate::api_versions::ToldVersions;
use crate::authentication::Authentication;
use crate::cursors::SessionId;
use crate::fail_points::Failure;
use crate::member_streams::Assembly;
use crate::parked::Parked;
use crate::replica_set::TopologyVersion;
use crate::shown_command::{Sequences, ShownCommand};
use crate::tickets::Waiting;
use auth::{Ends, SubjectName};
use bson::raw::{RawDocument, RawDocumentBuf};
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::Operation;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// TCP address, `127.0.0.1:54321`, and the server's own end when it is known.
    Tcp(String, Option<IpAddr>),
    /// A Unix-domain socket's path.
    Unix(String),
}

impl Peer {
    /// True when the client runs on this machine, as far as its address tells.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(..) => self.address().is_some_and(|address| address.is_loopback()),
            Self::Unix(_) => true,
        }
    }

    /// The client's address; none for a Unix-domain socket.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(address, _) => address
                .parse()
                .ok()
                .map(|address: SocketAddr| address.ip().to_canonical()),
            Self::Unix(_) => None,
        }
    }

    /// The addresses of both ends.
    pub(crate) fn ends(&self) -> Ends {
        Ends {
            client: self.address(),
            server: match self {
                Self::Tcp(_, server) => *server,
                Self::Unix(_) => None,
            },
        }
    }

    /// The text replies and log lines show.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tcp(address, _) => address,
            Self::Unix(path) => path,
        }
    }
}

/// A connection as commands see it. Shared with `currentOp` and `killOp`.
pub struct Client {
    id: u32,
    peer: Peer,
    metadata: Mutex<Option<RawDocumentBuf>>,
    /// Of the certificate that it has shown and TLS has verified.
    name: OnceLock<SubjectName>,
    pub(crate) authentication: Mutex<Authentication>,
    /// Messages of consensus that come over the connection.
    pub(crate) stream: Mutex<Assembly>,
    current: Mutex<Current>,
    /// The state of the replica set that it was told last.
    told: Mutex<Option<TopologyVersion>>,
    /// What it is known by beyond this server, once somebody has asked.
    uuid: OnceLock<[u8; 16]>,
    pub(crate) told_versions: ToldVersions,
    /// The cursor whose batches it gets without asking for each; 0: none. It may have come to its end.
    streamed: AtomicI64,
}

/// The operation a client is running. The buffers keep their memory from one operation to the next.
#[derive(Default)]
pub(crate) struct Current {
    pub running: Option<Arc<Operation>>,
    pub started: Duration,
    /// The logical session it runs in.
    pub session: Option<SessionId>,
    /// The number of the transaction that it is a statement of.
    pub transaction: Option<i64>,
    /// What it does when the other end is gone.
    without_client: WithoutClient,
    /// The session of the operation before, when that began in this second (monotonic).
    noted: (Option<SessionId>, u64),
    pub command: &'static str,
    pub namespace: String,
    pub shown: ShownCommand,
    pub plan_summary: String,
    /// It waits without a thread.
    put_off: Option<PutOff>,
}

/// What is told of an operation that begins.
pub(crate) struct Begun<'b> {
    pub command: &'static str,
    pub database: &'b str,
    pub body: &'b RawDocument,
    pub sequences: Sequences<'b>,
    /// By the monotonic clock.
    pub started: Duration,
    pub session: Option<SessionId>,
    /// The number of the transaction that it is a statement of.
    pub transaction: Option<i64>,
    /// What it does when its client is gone.
    pub without_client: WithoutClient,
}

/// What becomes of an operation whose client is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WithoutClient {
    /// It is of no use then.
    Ends,
    /// What it has begun it ends. It does not wait for a collection to begin.
    EndsUnlessBegun,
    /// It may have written, or nobody was to hear of it anyway.
    #[default]
    GoesOn,
}

/// What is kept of a request that waits without a thread: for its turn, or for an event.
pub(crate) struct PutOff {
    pub operation: Arc<Operation>,
    pub started: Duration,
    /// How long it had waited before: for its turn, and for events.
    pub waited: Duration,
    pub idle: Duration,
    /// Since when it waits, by the monotonic clock.
    pub since: Duration,
    /// What a fail point is still going to do.
    pub failure: Option<Failure>,
    pub waiting: Option<Waiting>,
    pub parked: Option<Parked>,
}

impl PutOff {
    /// How long it has waited until `now`, this time included: for its turn, and for events.
    pub(crate) fn waits(&self, now: Duration) -> (Duration, Duration) {
        let last = now.saturating_sub(self.since);
        match self.waiting {
            Some(_) => (self.waited + last, self.idle),
            None => (self.waited, self.idle + last),
        }
    }
}

impl Client {
    pub(crate) fn new(id: u32, peer: Peer) -> Self {
        Self {
            id,
            peer,
            metadata: Mutex::new(None),
            name: OnceLock::new(),
            authentication: Mutex::new(Authentication::default()),
            stream: Mutex::default(),
            current: Mutex::new(Current::default()),
            told: Mutex::new(None),
            uuid: OnceLock::new(),
            told_versions: ToldVersions::default(),
            streamed: AtomicI64::new(0),
        }
    }

    /// A name that no other connection has, to any server: `make` gives it to the first who asks.
    pub(crate) fn uuid(&self, make: impl FnOnce() -> [u8; 16]) -> [u8; 16] {
        *self.uuid.get_or_init(make)
    }

    /// The state of the replica set that it was told last.
    pub(crate) fn told_topology(&self) -> Option<TopologyVersion> {
        *self.told.lock()
    }

    /// It is told of this state.
    pub(crate) fn tell_topology(&self, version: TopologyVersion) {
        *self.told.lock() = Some(version);
    }

    /// The connection's number, from 1; log lines show it as `conn<id>`.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Keeps the name of the certificate that it has shown, once TLS has verified it.
    pub fn set_certificate_name(&self, name: SubjectName) {
        // One handshake, one certificate.
        let _ = self.name.set(name);
    }

    /// The name of its certificate.
    pub(crate) fn certificate_name(&self) -> Option<&SubjectName> {
        self.name.get()
    }

    /// What the client said of itself in its first hello.
    pub(crate) fn metadata(&self) -> Option<RawDocumentBuf> {
        self.metadata.lock().clone()
    }

    /// Keeps the metadata of the first hello; false when it was there already.
    pub(crate) fn set_metadata(&self, metadata: &RawDocument) -> bool {
        let mut slot = self.metadata.lock();
        let first = slot.is_none();
        if first {
            *slot = Some(metadata.to_owned());
            self.told_versions.forget();
        }
        first
    }

    pub(crate) fn application_name(&self) -> Option<String> {
        let metadata = self.metadata.lock();
        let application = metadata.as_ref()?.get_document("application").ok()?;
        application.get_str("name").ok().map(str::to_owned)
    }

    /// The application's name, empty where it has none; `None` of a client that has said nothing of itself.
    pub(crate) fn told_application(&self) -> Option<String> {
        let has_metadata = self.metadata.lock().is_some();
        has_metadata.then(|| self.application_name().unwrap_or_default())
    }

    /// Notes that `operation` begins. Answers whether the use of its session is to be noted: that was done in this
    /// second already for a connection that stays with a session.
    pub(crate) fn begin(&self, operation: Arc<Operation>, begun: &Begun<'_>) -> bool {
        let mut current = self.current.lock();
        current.running = Some(operation);
        current.command = begun.command;
        current.started = begun.started;
        current.session = begun.session;
        current.transaction = begun.transaction;
        current.without_client = begun.without_client;
        current.namespace.clear();
        current.namespace.push_str(begun.database);
        current.plan_summary.clear();
        current
            .shown
            .set(begun.body, begun.sequences, CURRENT_COMMAND_BYTES_MAX);
        let noted = (begun.session, begun.started.as_secs());
        std::mem::replace(&mut current.noted, noted) != noted && begun.session.is_some()
    }

    /// All that the running operation was asked to do is done. What it still waits for is for its client to know.
    pub(crate) fn only_waits(&self) {
        self.current.lock().without_client = WithoutClient::Ends;
    }

    /// Names the collection and the plan of the running operation, for `currentOp`.
    pub(crate) fn describe(&self, namespace: &str, plan_summary: &str) {
        let mut current = self.current.lock();
        current.namespace.clear();
        current.namespace.push_str(namespace);
        current.plan_summary.clear();
        current.plan_summary.push_str(plan_summary);
    }

    /// The request waits, and goes on running as far as others see.
    pub(crate) fn put_off(&self, request: PutOff) {
        self.current.lock().put_off = Some(request);
    }

    /// The request that was put off.
    pub(crate) fn take_put_off(&self) -> Option<PutOff> {
        self.current.lock().put_off.take()
    }

    /// Notes that the running operation has ended.
    pub(crate) fn end(&self) {
        self.current.lock().running = None;
    }

    /// The client gets the batches of a cursor without asking for each.
    pub(crate) fn streams(&self, cursor: i64) {
        self.streamed.store(cursor, Ordering::Relaxed);
    }

    /// The last cursor of which it did.
    pub(crate) fn streamed(&self) -> Option<i64> {
        Some(self.streamed.load(Ordering::Relaxed)).filter(|id| *id != 0)
    }

    /// Looks at the running operation, if any.
    pub(crate) fn with_current<T>(&self, look: impl FnOnce(&Current, &Arc<Operation>) -> T) -> Option<T> {
        let current = self.current.lock();
        current.running.as_ref().map(|operation| look(&current, operation))
    }

    /// The other end is gone: its operation is interrupted, unless it has to do what it was asked to without it.
    pub(crate) fn set_gone(&self) {
        self.with_current(|current, operation| match current.without_client {
            WithoutClient::Ends => operation.kill(),
            WithoutClient::EndsUnlessBegun => operation.abandon(),
            WithoutClient::GoesOn => {}
        });
    }
}

/// Of a running command longer than this `currentOp` shows the beginning.
const CURRENT_COMMAND_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::Peer;

    #[test]
    fn only_this_machines_addresses_are_local() {
        let local = |address: &str| Peer::Tcp(address.to_owned(), None).is_local();
        assert!(local("127.0.0.1:50000") && local("127.8.8.8:1") && local("[::1]:1") && local("[::ffff:127.0.0.1]:1"));
        assert!(!local("10.0.0.1:50000") && !local("[2001:db8::1]:1") && !local("[::ffff:10.0.0.1]:1") && !local(""));
        assert!(Peer::Unix("/tmp/mongodb-27017.sock".to_owned()).is_local());
    }
}
