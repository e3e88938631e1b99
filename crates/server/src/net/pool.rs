//! The threads that serve connections, and the epoll set where quiet connections are parked.
//!
//! Idle threads all wait on the set; an event is one-shot and wakes one of them, which takes the connection out of the
//! parked ones and serves it. A thread that finds itself the last one waiting starts another before it serves, so that a
//! slow operation never delays another connection. Threads that wait in vain for a while end.

use super::Service;
use super::connection::{Connection, Leave, Shared, Worker};
use bson::doc;
use commands::Peer;
use commands::logger::{Component, Logger};
use parking_lot::{Condvar, Mutex};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use vfs::Clock;

/// Virtual size of a thread's stack: room for documents nested to the limit; only touched pages take memory.
const STACK_BYTES: usize = 2 * 1024 * 1024;
/// A thread that waits longer than this for a connection ends.
const THREAD_IDLE_S: i64 = 5;
/// Threads that stay however long they wait.
const THREADS_MIN: usize = 2;
/// The event that wakes every thread at the end. Connections count from 1.
const WAKE: u64 = 0;

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
    service: Arc<S>,
    logger: Arc<Logger>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    epoll: OwnedFd,
    wake: OwnedFd,
    parked: Mutex<HashMap<u64, Connection<S>>>,
    active: Mutex<HashMap<u64, Arc<Shared<S>>>>,
    /// Told when a connection has left `active`.
    left: Condvar,
    next_key: AtomicU64,
    open: AtomicUsize,
    waiting: AtomicUsize,
    threads: AtomicUsize,
    /// All threads that may be alive.
    handles: Mutex<Vec<JoinHandle<()>>>,
    ending: AtomicBool,
}

impl<S: Service> Pool<S> {
    /// A pool with its first threads.
    pub fn new(
        service: Arc<S>,
        logger: Arc<Logger>,
        clock: Arc<dyn Clock>,
        limits: Limits,
    ) -> std::io::Result<Arc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let pool = Arc::new(Self {
            service,
            logger,
            clock,
            limits,
            epoll,
            wake,
            parked: Mutex::default(),
            active: Mutex::default(),
            left: Condvar::new(),
            next_key: AtomicU64::new(WAKE + 1),
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            handles: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        for _ in 0..THREADS_MIN {
            pool.start_thread()?;
        }
        Ok(pool)
    }

    /// Takes over an accepted connection, or closes it when there are too many.
    pub fn accept(&self, stream: OwnedFd, peer: Peer) {
        let remote = match &peer {
            Peer::Tcp(address) => address.clone(),
            Peer::Unix(path) => path.clone(),
        };
        let open = self.open.fetch_add(1, Ordering::Relaxed) + 1;
        let is_full = stream.as_raw_fd() >= self.limits.descriptor_number_max || open > self.limits.connections_max;
        if is_full || self.ending.load(Ordering::Relaxed) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            if is_full {
                self.refused(&remote);
            }
            return;
        }
        let client = self.service.connect(peer);
        if !self.service.is_quiet() {
            let number = self.service.number(&client);
            let attributes = doc! { "remote": &remote, "connectionId": number, "connectionCount": open as i64 };
            self.logger
                .info(Component::Network, 22943, "listener", "Connection accepted", attributes);
        }
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared {
            stream,
            client,
            remote,
            progress: AtomicU64::new(0),
        });
        match Connection::new(shared.clone()) {
            Ok(connection) => self.park(key, connection, Arm::Add),
            Err(_) => self.ended(&shared, None),
        }
    }

    /// Takes note of a connection that was closed because there are too many.
    pub(super) fn refused(&self, remote: &str) {
        self.service.count_refused();
        let attributes = doc! { "remote": remote, "connectionCount": self.open() as i64 };
        let message = "Connection refused because there are too many open connections";
        self.logger
            .error(Component::Network, 22942, "listener", message, attributes);
    }

    /// Puts a quiet connection into the set. It may be served again before this returns.
    fn park(&self, key: u64, connection: Connection<S>, arm: Arm) {
        let shared = connection.shared.clone();
        {
            let mut parked = self.parked.lock();
            if self.ending.load(Ordering::SeqCst) {
                drop(parked);
                return self.ended(&shared, None);
            }
            parked.insert(key, connection);
        }
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ONESHOT;
        let result = match arm {
            Arm::Add => epoll::add(&self.epoll, &shared.stream, EventData::new_u64(key), flags),
            Arm::Again => epoll::modify(&self.epoll, &shared.stream, EventData::new_u64(key), flags),
        };
        if result.is_err() && self.parked.lock().remove(&key).is_some() {
            self.ended(&shared, None);
        }
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let pool = self.clone();
        self.threads.fetch_add(1, Ordering::SeqCst);
        let started = std::thread::Builder::new()
            .name("conn".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || pool.run_thread());
        match started {
            Ok(handle) => {
                let mut handles = self.handles.lock();
                handles.retain(|handle| !handle.is_finished());
                handles.push(handle);
                Ok(())
            }
            Err(error) => {
                self.threads.fetch_sub(1, Ordering::SeqCst);
                Err(error)
            }
        }
    }

    fn run_thread(self: &Arc<Self>) {
        let mut worker = Worker::default();
        let idle = Timespec {
            tv_sec: THREAD_IDLE_S,
            tv_nsec: 0,
        };
        loop {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let mut events = Vec::with_capacity(1);
            let result = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&idle));
            let waiting = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            if self.ending.load(Ordering::SeqCst) {
                break;
            }
            match (result, events.first()) {
                (Ok(_), Some(event)) => {
                    if waiting == 0 {
                        self.start_relief();
                    }
                    let key = event.data.u64();
                    let connection = self.parked.lock().remove(&key);
                    if let Some(connection) = connection {
                        self.serve(&mut worker, key, connection);
                    }
                }
                (Ok(_), None) if waiting >= THREADS_MIN => break,
                (Ok(_), None) | (Err(Errno::INTR), _) => {}
                (Err(error), _) => {
                    let attributes = doc! { "error": error.to_string() };
                    self.logger.fatal(
                        Component::Network,
                        8410001,
                        "conn",
                        "Waiting for connections failed",
                        attributes,
                    );
                    self.service.request_shutdown();
                    break;
                }
            }
        }
        self.threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// Starts a thread that waits while this one serves.
    fn start_relief(self: &Arc<Self>) {
        if let Err(error) = self.start_thread() {
            let attributes =
                doc! { "error": error.to_string(), "threads": self.threads.load(Ordering::Relaxed) as i64 };
            self.logger.warning(
                Component::Network,
                8410002,
                "conn",
                "Cannot start a thread for connections",
                attributes,
            );
        }
    }

    fn serve(&self, worker: &mut Worker, key: u64, mut connection: Connection<S>) {
        let shared = connection.shared.clone();
        self.active.lock().insert(key, shared.clone());
        // The end of the server looks at `active` after it has set `ending`: one of both sees the other.
        let leave = match self.ending.load(Ordering::SeqCst) {
            true => Leave::Asked,
            false => worker.serve(&*self.service, &*self.clock, &mut connection),
        };
        self.active.lock().remove(&key);
        self.left.notify_all();
        match leave {
            Leave::Quiet => self.park(key, connection, Arm::Again),
            Leave::Closed | Leave::Asked => self.ended(&shared, None),
            Leave::Rejected(error) => self.ended(&shared, Some(error)),
        }
    }

    fn ended(&self, shared: &Shared<S>, error: Option<wire::WireError>) {
        self.service.disconnect(&shared.client);
        // Closed for the other end now, even when the monitor holds the stream for a moment longer.
        let _ = rustix::net::shutdown(&shared.stream, rustix::net::Shutdown::Both);
        let open = self.open.fetch_sub(1, Ordering::Relaxed) - 1;
        let number = self.service.number(&shared.client);
        if let Some(error) = error {
            let attributes = doc! { "remote": &shared.remote, "error": error.to_string() };
            let context = format!("conn{number}");
            self.logger.info(
                Component::Network,
                22988,
                &context,
                "Error receiving request from client. Ending connection from remote",
                attributes,
            );
        }
        if !self.service.is_quiet() {
            let attributes = doc! { "remote": &shared.remote, "connectionId": number, "connectionCount": open as i64 };
            self.logger.info(
                Component::Network,
                22944,
                &format!("conn{number}"),
                "Connection ended",
                attributes,
            );
        }
    }

    /// Looks for clients that went away while their operation runs; to be called about once a second. `seen` is the
    /// caller's memory between calls: what was in progress the last time.
    pub fn find_gone(&self, seen: &mut HashMap<u64, u64>) {
        let long: Vec<Arc<Shared<S>>> = {
            let active = self.active.lock();
            let busy = |shared: &Arc<Shared<S>>| Some(shared.progress.load(Ordering::Relaxed)).filter(|p| p % 2 == 1);
            let long = active
                .iter()
                .filter(|(key, shared)| busy(shared).is_some_and(|progress| seen.get(key) == Some(&progress)))
                .map(|(_, shared)| shared.clone())
                .collect();
            *seen = active
                .iter()
                .filter_map(|(key, shared)| Some((*key, busy(shared)?)))
                .collect();
            long
        };
        for shared in long {
            let mut fds = [PollFd::new(&shared.stream, PollFlags::RDHUP)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if rustix::event::poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0) {
                self.service.disconnect(&shared.client);
            }
        }
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Threads alive now.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// Connections that have a thread now.
    pub fn active(&self) -> usize {
        self.active.lock().len()
    }

    /// Bytes of unfinished requests that parked connections hold.
    pub fn parked_bytes(&self) -> usize {
        self.parked.lock().values().map(Connection::pending_bytes).sum()
    }

    /// Closes all connections. Running requests get their reply first (the layer above has been told to interrupt them),
    /// for at most `patience`. Returns the number of connections that were left behind; when that is 0, the pool's threads have
    /// ended, and with them whatever they held of the service. A storage engine must not be closed by a thread that is still
    /// alive when the process ends.
    pub fn end(&self, patience: Duration) -> usize {
        self.ending.store(true, Ordering::SeqCst);
        let parked: Vec<_> = self.parked.lock().drain().map(|(_, connection)| connection).collect();
        for connection in parked {
            self.ended(&connection.shared, None);
        }
        let mut active = self.active.lock();
        for shared in active.values() {
            let _ = rustix::net::shutdown(&shared.stream, rustix::net::Shutdown::Read);
        }
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        while !active.is_empty() {
            if self.left.wait_for(&mut active, patience).timed_out() {
                break;
            }
        }
        let left = active.len();
        drop(active);
        if left == 0 {
            self.join();
        }
        left
    }

    /// Waits for all threads. Who starts another ends after that is in the list.
    fn join(&self) {
        loop {
            let handle = self.handles.lock().pop();
            let Some(handle) = handle else { return };
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

/// How a connection comes into the epoll set.
#[derive(Clone, Copy)]
enum Arm {
    /// For the first time.
    Add,
    /// It is there already, its one shot used up.
    Again,
}
