//! Threads that all wait together, and serve what they are told of.
//!
//! A thread that is told takes the connection out of the quiet ones and serves it. When it finds itself the last one
//! that waited it starts another before it serves, so that a slow request never delays another connection. Threads that
//! wait in vain for a while end.
//!
//! Invariants: a connection is owned by one thread, or quiet, never both. While the crew works at least one thread
//! waits, unless the system refuses new threads. What was added and is not over is in `quiet`, in `active`, or on its
//! way between them with a thread that looks at `ending` after it has put it there.

use crate::{Event, Host, Leave};
use rcu::thread::{self, JoinHandle};
use rcu::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Virtual size of a thread's stack: room for documents nested to the limit; only touched pages take memory.
const STACK_BYTES: usize = 2 * 1024 * 1024;
/// Threads that stay however long they wait.
const THREADS_MIN: usize = 2;

/// See the module.
pub struct Crew<H: Host> {
    host: H,
    quiet: Mutex<HashMap<u64, H::Connection>>,
    active: Mutex<HashMap<u64, Arc<H::Shared>>>,
    /// Told when a connection has left `active`.
    left: Condvar,
    next_key: AtomicU64,
    waiting: AtomicUsize,
    threads: AtomicUsize,
    /// All threads that may be alive.
    handles: Mutex<Vec<JoinHandle<()>>>,
    ending: AtomicBool,
}

impl<H: Host> Crew<H> {
    /// The first key of a connection; smaller ones are the host's.
    pub const KEY_MIN: u64 = 1;

    /// A crew with its first threads.
    pub fn new(host: H) -> std::io::Result<Arc<Self>> {
        let crew = Arc::new(Self {
            host,
            quiet: Mutex::default(),
            active: Mutex::default(),
            left: Condvar::new(),
            next_key: AtomicU64::new(Self::KEY_MIN),
            waiting: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            handles: Mutex::default(),
            ending: AtomicBool::new(false),
        });
        for _ in 0..THREADS_MIN {
            crew.start_thread()?;
        }
        Ok(crew)
    }

    /// The owner's side.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// Takes over a new connection.
    pub fn add(&self, connection: H::Connection) {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        self.park(key, connection, true);
    }

    /// Puts a connection to the quiet ones. It may be served again before this returns.
    fn park(&self, key: u64, connection: H::Connection, first: bool) {
        let shared = self.host.shared(&connection);
        {
            let mut quiet = self.quiet.lock();
            // Under the lock under which `end` takes all there are: either it finds this one, or this is seen.
            if self.is_ending() {
                drop(quiet);
                return self.host.ended(&shared, None);
            }
            quiet.insert(key, connection);
        }
        // Only now: who is told must find it.
        if self.host.arm(key, &shared, first).is_err() && self.quiet.lock().remove(&key).is_some() {
            self.host.ended(&shared, None);
        }
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let crew = self.clone();
        self.threads.fetch_add(1, Ordering::SeqCst);
        let started = thread::Builder::new()
            .name("conn".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || crew.run_thread());
        match started {
            Ok(handle) => {
                let mut handles = self.handles.lock();
                forget_finished(&mut handles);
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
        let mut worker = H::Worker::default();
        loop {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let event = self.host.wait();
            rcu::schedule_point();
            let waiting = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            if self.is_ending() {
                break;
            }
            match event {
                Event::Ready(key) => {
                    if waiting == 0
                        && let Err(error) = self.start_thread()
                    {
                        self.host.no_thread(&error, self.threads());
                    }
                    let connection = self.quiet.lock().remove(&key);
                    if let Some(connection) = connection {
                        self.serve(&mut worker, key, connection);
                    }
                }
                Event::Nothing if waiting >= THREADS_MIN => break,
                Event::Nothing | Event::Interrupted => {}
                Event::Failed => break,
            }
        }
        self.threads.fetch_sub(1, Ordering::SeqCst);
    }

    fn serve(&self, worker: &mut H::Worker, key: u64, mut connection: H::Connection) {
        let shared = self.host.shared(&connection);
        self.active.lock().insert(key, shared.clone());
        // `end` looks at `active` after it has set `ending`: one of both sees the other.
        let leave = (!self.is_ending()).then(|| self.host.serve(worker, &mut connection));
        self.active.lock().remove(&key);
        self.left.notify_all();
        match leave {
            Some(Leave::Quiet) => self.park(key, connection, false),
            Some(Leave::Over(reason)) => self.host.ended(&shared, Some(reason)),
            None => self.host.ended(&shared, None),
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// True once [`Crew::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.is_ending()
    }

    /// Threads alive now.
    pub fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    /// What is served now, by its key. Nothing begins or ends to be served while `look` has it.
    pub fn look_at_active<T>(&self, look: impl FnOnce(&HashMap<u64, Arc<H::Shared>>) -> T) -> T {
        look(&self.active.lock())
    }

    /// The sum of something over all quiet connections.
    pub fn sum_of_quiet(&self, of: impl Fn(&H::Connection) -> usize) -> usize {
        self.quiet.lock().values().map(of).sum()
    }

    /// Ends all connections. Those that are served are interrupted, and waited for for at most `patience`. Returns the
    /// number that were left behind; when that is 0, the threads have ended, and with them whatever they held.
    pub fn end(&self, patience: Duration) -> usize {
        let deadline = self.host.now().saturating_add(patience);
        self.ending.store(true, Ordering::SeqCst);
        let quiet: Vec<_> = self.quiet.lock().drain().map(|(_, connection)| connection).collect();
        for connection in quiet {
            self.host.ended(&self.host.shared(&connection), None);
        }
        let mut active = self.active.lock();
        for shared in active.values() {
            self.host.interrupt(shared);
        }
        self.host.wake();
        while !active.is_empty() {
            let left = deadline.saturating_sub(self.host.now());
            if left.is_zero() {
                break;
            }
            active = self.left.wait_for(active, left);
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

#[cfg(not(feature = "shuttle"))]
fn forget_finished(handles: &mut Vec<JoinHandle<()>>) {
    handles.retain(|handle| !handle.is_finished());
}

/// The checker's threads do not tell; there are few.
#[cfg(feature = "shuttle")]
fn forget_finished(_: &mut Vec<JoinHandle<()>>) {}
