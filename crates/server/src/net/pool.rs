//! The connections of a server: what a crew of threads does not know of sockets.
//!
//! Quiet connections stand in an epoll set on which all idle threads wait; an event is one-shot and wakes one of them.
//! Crate `crew` has the threads, and who owns which connection when.

use super::Service;
use super::connection::{Connection, Leave, Shared, Worker};
use super::tls::Tls;
use bson::doc;
use commands::Peer;
use commands::logger::{Logger, id};
use crew::{Crew, Event, Host, Turn};
use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use vfs::Clock;
use wire::WireError;

/// A thread that waits longer than this for a connection ends.
const THREAD_IDLE_S: i64 = 5;
/// At the end requests that wait for their turn are told so for at most this long.
const PUT_OFF_PATIENCE: Duration = Duration::from_secs(2);
/// Failures to start a thread are logged this often at most.
const NO_THREAD_EVERY: Duration = Duration::from_secs(1);
/// The event that wakes every thread at the end. Connections count from [`Crew::KEY_MIN`].
const WAKE: u64 = 0;
/// The event that wakes one thread.
const CALL: u64 = u64::MAX;

/// Bounds of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at a time; more are refused.
    pub connections_max: usize,
    /// A connection whose descriptor has this number or a higher one is refused: the rest is for files.
    pub descriptor_number_max: i32,
}

/// Serves all connections of a server.
pub struct Pool<S: Service> {
    crew: Arc<Crew<Sockets<S>>>,
    limits: Limits,
    tls: Option<Arc<Tls>>,
}

/// The crew's host.
pub(super) struct Sockets<S: Service> {
    service: Arc<S>,
    logger: Arc<Logger>,
    clock: Arc<dyn Clock>,
    epoll: OwnedFd,
    wake: OwnedFd,
    call: OwnedFd,
    open: AtomicUsize,
    no_thread_logged: Mutex<Option<Duration>>,
}

/// The crew lends its threads to requests.
struct Lending<S: Service>(Arc<Crew<Sockets<S>>>);

impl<S: Service> vfs::Lender for Lending<S> {
    fn sleeps(&self) {
        self.0.sleeps();
    }

    fn wakes(&self) {
        self.0.wakes();
    }
}

/// Why a connection is over, beside the end of the server.
pub(super) enum Reason {
    Closed,
    Rejected(WireError),
    Insecure(String),
}

impl<S: Service> Pool<S> {
    /// A pool with its first threads.
    pub fn new(
        service: Arc<S>,
        logger: Arc<Logger>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        tls: Option<Arc<Tls>>,
    ) -> std::io::Result<Arc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // By edges: each call is one, and wakes one thread.
        epoll::add(&epoll, &call, EventData::new_u64(CALL), EventFlags::IN | EventFlags::ET)?;
        let sockets = Sockets {
            service,
            logger,
            clock,
            epoll,
            wake,
            call,
            open: AtomicUsize::new(0),
            no_thread_logged: Mutex::new(None),
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let crew = Crew::new(sockets, u32::try_from(processors).unwrap_or(u32::MAX))?;
        Ok(Arc::new(Self { crew, limits, tls }))
    }

    fn sockets(&self) -> &Sockets<S> {
        self.crew.host()
    }

    /// Takes over an accepted connection, or closes it when there are too many.
    pub fn accept(&self, stream: OwnedFd, peer: Peer) {
        let remote = match &peer {
            Peer::Tcp(address, _) => address.clone(),
            Peer::Unix(path) => path.clone(),
        };
        // The Unix-domain socket stays on this machine.
        let tls = self.tls.clone().filter(|_| matches!(peer, Peer::Tcp(..)));
        let sockets = self.sockets();
        let open = sockets.open.fetch_add(1, Ordering::Relaxed) + 1;
        let is_full = stream.as_raw_fd() >= self.limits.descriptor_number_max || open > self.limits.connections_max;
        if is_full || self.crew.has_ended() {
            sockets.open.fetch_sub(1, Ordering::Relaxed);
            if is_full {
                self.refused(&remote);
            }
            return;
        }
        let client = sockets.service.connect(peer);
        if !sockets.service.is_quiet() {
            let number = sockets.service.number(&client);
            let attributes = doc! { "remote": &remote, "connectionId": number, "connectionCount": open as i64 };
            sockets
                .logger
                .log(id::CONNECTION_ACCEPTED, "listener", "Connection accepted", attributes);
        }
        let shared = Arc::new(Shared {
            stream,
            client,
            remote,
            progress: AtomicU64::new(0),
            seen_at_end: AtomicU64::new(u64::MAX),
        });
        match Connection::new(shared.clone(), tls, sockets.clock.monotonic()) {
            Ok(connection) => self.crew.add(connection),
            Err(_) => sockets.let_go(&shared, None),
        }
    }

    /// Takes note of a connection that was closed because there are too many.
    pub(super) fn refused(&self, remote: &str) {
        let sockets = self.sockets();
        sockets.service.count_refused();
        let attributes = doc! { "remote": remote, "connectionCount": self.open() as i64 };
        let message = "Connection refused because there are too many open connections";
        sockets
            .logger
            .log(id::CONNECTION_REFUSED, "listener", message, attributes);
    }

    /// Looks for clients that went away while their operation runs; to be called about once a second. `seen` is the
    /// caller's memory between calls: what was in progress the last time.
    pub fn find_gone(&self, seen: &mut HashMap<u64, u64>) {
        let busy = |shared: &Arc<Shared<S>>| Some(shared.progress.load(Ordering::Relaxed)).filter(|p| p % 2 == 1);
        let (long, now) = self.crew.look_at_active(|active| {
            let was_seen = |(key, progress): (&u64, u64)| seen.get(key) == Some(&progress);
            let long: Vec<Arc<Shared<S>>> = active
                .iter()
                .filter(|(key, shared)| busy(shared).is_some_and(|progress| was_seen((key, progress))))
                .map(|(_, shared)| shared.clone())
                .collect();
            let now = active.iter().filter_map(|(key, shared)| Some((*key, busy(shared)?)));
            (long, now.collect())
        });
        *seen = now;
        for shared in long.into_iter().chain(self.crew.held()) {
            let mut fds = [PollFd::new(&shared.stream, PollFlags::RDHUP)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0) {
                self.sockets().service.abandon(&shared.client);
            }
        }
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.sockets().open.load(Ordering::Relaxed)
    }

    /// Threads alive now.
    pub fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// Connections that have a thread now.
    pub fn active(&self) -> usize {
        self.crew.look_at_active(HashMap::len)
    }

    /// Who holds the connections, the pool included: its threads do.
    #[cfg(test)]
    pub(super) fn holders(&self) -> usize {
        Arc::strong_count(&self.crew)
    }

    /// Bytes of unfinished requests that parked connections hold.
    pub fn parked_bytes(&self) -> usize {
        self.crew.sum_of_parked(Connection::pending_bytes)
    }

    /// Closes all connections. Running requests get their reply first (the layer above has been told to interrupt
    /// them), for at most `patience`. Returns the number of connections that were left behind; when that is 0, the
    /// pool's threads have ended, and with them whatever they held of the service. A storage engine must not be closed
    /// by a thread that is still alive when the process ends.
    pub fn end(&self, patience: Duration) -> usize {
        let sockets = self.sockets();
        sockets.service.end_late();
        let until = sockets.clock.monotonic() + PUT_OFF_PATIENCE.min(patience);
        while self.crew.has_put_off() && sockets.clock.monotonic() < until {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.crew.end(patience)
    }
}

impl<S: Service> Sockets<S> {
    fn event_within(&self, time: Timespec) -> Event {
        let mut events = Vec::with_capacity(1);
        let result = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&time));
        match (result, events.first().map(|event| event.data.u64())) {
            (Ok(_), Some(WAKE | CALL)) | (Err(Errno::INTR), _) => Event::Interrupted,
            (Ok(_), Some(key)) => Event::Ready(key),
            (Ok(_), None) => Event::Nothing,
            (Err(error), _) => {
                let attributes = doc! { "error": error.to_string() };
                let message = "Waiting for connections failed";
                self.logger
                    .log(id::WAITING_FOR_SOCKETS_FAILED, "conn", message, attributes);
                self.service.request_shutdown();
                Event::Failed
            }
        }
    }

    fn let_go(&self, shared: &Shared<S>, reason: Option<Reason>) {
        self.service.disconnect(&shared.client);
        // Closed for the other end now, even when the monitor holds the stream for a moment longer.
        let _ = rustix::net::shutdown(&shared.stream, rustix::net::Shutdown::Both);
        let open = self.open.fetch_sub(1, Ordering::Relaxed) - 1;
        let error = match reason {
            Some(Reason::Rejected(error)) => Some(error.to_string()),
            Some(Reason::Insecure(reason)) => Some(format!("TLS: {reason}")),
            Some(Reason::Closed) | None => None,
        };
        self.log_end(shared, error, open);
    }

    fn log_end(&self, shared: &Shared<S>, error: Option<String>, open: usize) {
        let number = self.service.number(&shared.client);
        let context = format!("conn{number}");
        if let Some(error) = error {
            let attributes = doc! { "remote": &shared.remote, "error": error };
            let message = "Error receiving request from client. Ending connection from remote";
            self.logger.log(id::CONNECTION_FAILED, &context, message, attributes);
        }
        if !self.service.is_quiet() {
            let attributes = doc! { "remote": &shared.remote, "connectionId": number, "connectionCount": open as i64 };
            self.logger
                .log(id::CONNECTION_ENDED, &context, "Connection ended", attributes);
        }
    }
}

impl<S: Service> Host for Sockets<S> {
    type Connection = Connection<S>;
    type Shared = Shared<S>;
    type Worker = Worker;
    type Reason = Reason;

    fn shared(&self, connection: &Connection<S>) -> Arc<Shared<S>> {
        connection.shared.clone()
    }

    fn arm(&self, key: u64, shared: &Shared<S>, first: bool) -> std::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
        let key = EventData::new_u64(key);
        let armed = match first {
            true => epoll::add(&self.epoll, &shared.stream, key, flags),
            false => epoll::modify(&self.epoll, &shared.stream, key, flags),
        };
        Ok(armed?)
    }

    fn wait(&self) -> Event {
        self.event_within(Timespec {
            tv_sec: THREAD_IDLE_S,
            tv_nsec: 0,
        })
    }

    fn look(&self) -> Event {
        self.event_within(Timespec { tv_sec: 0, tv_nsec: 0 })
    }

    fn call(&self) {
        // Nobody reads it. It is full after 2^64 calls.
        let _ = rustix::io::write(&self.call, &1u64.to_ne_bytes());
    }

    fn wake(&self) {
        // Nobody reads it: it stays readable for all.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn serve(&self, worker: &mut Worker, connection: &mut Connection<S>, turn: &Turn<'_, Self>) -> crew::Leave<Reason> {
        let lender = worker
            .lender
            .get_or_insert_with(|| Arc::new(Lending(turn.crew().clone())));
        let _lent = vfs::lend(lender.clone());
        match worker.serve(&*self.service, &*self.clock, connection, turn) {
            Leave::Quiet => crew::Leave::Quiet,
            Leave::Held => crew::Leave::Held,
            Leave::Later => crew::Leave::Later,
            Leave::Closed | Leave::Asked => crew::Leave::Over(Reason::Closed),
            Leave::Rejected(error) => crew::Leave::Over(Reason::Rejected(error)),
            Leave::Insecure(reason) => crew::Leave::Over(Reason::Insecure(reason)),
        }
    }

    fn tick(&self) {
        self.service.end_late();
    }

    fn interrupt(&self, shared: &Shared<S>) {
        let _ = rustix::net::shutdown(&shared.stream, rustix::net::Shutdown::Read);
    }

    fn press(&self, shared: &Shared<S>) {
        let progress = shared.progress.load(Ordering::Relaxed);
        let seen = shared.seen_at_end.swap(progress, Ordering::Relaxed);
        // It reads nothing any more and runs nothing: since then it waits for the other end to take its reply.
        if progress.is_multiple_of(2) && progress == seen {
            let _ = rustix::net::shutdown(&shared.stream, rustix::net::Shutdown::Both);
        }
    }

    fn ended(&self, connection: &mut Connection<S>, reason: Option<Reason>) {
        connection.close_session();
        self.let_go(&connection.shared, reason);
    }

    fn no_thread(&self, error: &std::io::Error, threads: usize) {
        let now = self.clock.monotonic();
        let mut logged = self.no_thread_logged.lock();
        if logged.is_some_and(|at| now.saturating_sub(at) < NO_THREAD_EVERY) {
            return;
        }
        *logged = Some(now);
        drop(logged);
        let attributes = doc! { "error": error.to_string(), "threads": threads as i64 };
        let message = "Cannot start a thread for connections";
        self.logger
            .log(id::NO_THREAD_FOR_CONNECTIONS, "conn", message, attributes);
    }

    fn processor_time(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }

    fn now(&self) -> Duration {
        self.clock.monotonic()
    }
}
