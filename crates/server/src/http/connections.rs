//! The connections and their threads.
//!
//! There are [`CONNECTIONS_MAX`] at a time. When one more comes, the one that has kept its thread waiting longest is
//! cut off: clients that open connections and are silent, or read slowly, shut nobody out. Those that prove who they
//! are, which may take its time, have a few of the connections only.

use super::reply::Reply;
use super::request::{HEAD_BYTES_MAX, Malformed, Request, parse};
use super::site::{Site, Visitor};
use super::stream::Stream;
use crate::net::{Acceptor, Tls};
use commands::Peer;
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::Clock;

/// Connections at a time.
const CONNECTIONS_MAX: usize = 32;
/// How long a new one is kept waiting for the end of another one's thread. It is refused then.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);
/// How long the head of a request may take to come in whole.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be quiet between two requests.
const QUIET_MAX: Duration = Duration::from_secs(90);
/// How long a client may take to read an answer.
const REPLY_PATIENCE: Duration = Duration::from_secs(10);
/// How long the rest of what a client sends is waited for, so that it gets the answer before its connection ends.
const REST_PATIENCE: Duration = Duration::from_secs(1);
/// More of it is not read.
const REST_BYTES_MAX: usize = 64 * 1024;

/// A connection as others see it.
struct Slot {
    socket: Arc<TcpStream>,
    /// Since when its thread waits for the other end, in microseconds; [`ANSWERS`] while it does not.
    waits_since: AtomicU64,
}

const ANSWERS: u64 = u64::MAX;

#[derive(Default)]
struct Open {
    slots: HashMap<u64, Arc<Slot>>,
    next: u64,
    has_ended: bool,
}

/// See the module.
pub struct Connections {
    me: Weak<Self>,
    site: Site,
    tls: Option<Arc<Tls>>,
    clock: Arc<dyn Clock>,
    open: Mutex<Open>,
    left: Condvar,
}

impl Connections {
    /// No connections yet.
    pub fn new(site: Site, tls: Option<Arc<Tls>>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            site,
            tls,
            clock,
            open: Mutex::default(),
            left: Condvar::new(),
        })
    }

    /// Ends them all and waits for their threads, but no longer than `patience`.
    pub fn end(&self, patience: Duration) {
        let mut open = self.open.lock();
        open.has_ended = true;
        for slot in open.slots.values() {
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
        let until = self.clock.monotonic() + patience;
        while !open.slots.is_empty() {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            self.left.wait_for(&mut open, left);
        }
    }

    /// Makes room for one more; `None` where there is none to be had.
    fn enter(&self, socket: Arc<TcpStream>) -> Option<(u64, Arc<Slot>)> {
        let mut open = self.open.lock();
        let until = self.clock.monotonic() + ROOM_PATIENCE;
        if open.slots.len() == CONNECTIONS_MAX {
            open.cut_one_off();
        }
        while open.slots.len() == CONNECTIONS_MAX && !open.has_ended {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return None;
            }
            self.left.wait_for(&mut open, left);
        }
        if open.has_ended {
            return None;
        }
        let slot = Arc::new(Slot {
            socket,
            waits_since: AtomicU64::new(self.now()),
        });
        let number = open.next;
        open.next += 1;
        open.slots.insert(number, slot.clone());
        Some((number, slot))
    }

    fn leave(&self, number: u64) {
        self.open.lock().slots.remove(&number);
        self.left.notify_all();
    }

    fn now(&self) -> u64 {
        self.clock.monotonic().as_micros() as u64
    }

    fn serve(&self, slot: &Slot, peer: Peer) {
        let Ok(mut stream) = Stream::new(slot.socket.clone(), self.tls.as_deref(), self.clock.clone()) else {
            return;
        };
        let mut visitor = scopeguard::guard(self.site.visitor(peer), |visitor| self.site.leave(visitor));
        let mut received = Vec::new();
        let mut patience = HEAD_PATIENCE;
        loop {
            slot.waits_since.store(self.now(), Ordering::Relaxed);
            stream.allow(patience);
            let request = match next_request(&mut stream, &mut received) {
                Ok(Some(request)) => Ok(request),
                Ok(None) => break,
                Err(malformed) => Err(malformed),
            };
            slot.waits_since.store(ANSWERS, Ordering::Relaxed);
            let (bytes, goes_on) = self.answer(&mut visitor, request);
            slot.waits_since.store(self.now(), Ordering::Relaxed);
            stream.allow(REPLY_PATIENCE);
            if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
                break;
            }
            if !goes_on {
                let _ = slot.socket.shutdown(Shutdown::Write);
                stream.allow(REST_PATIENCE);
                let _ = std::io::copy(&mut (&mut stream).take(REST_BYTES_MAX as u64), &mut std::io::sink());
                break;
            }
            patience = QUIET_MAX;
        }
    }

    fn answer(&self, visitor: &mut Visitor, request: Result<Request, Malformed>) -> (Vec<u8>, bool) {
        match request {
            Ok(request) => {
                let reply = self.site.answer(visitor, &request);
                let goes_on = request.keeps_alive && !reply.closes;
                (reply.to_bytes(request.head_only, goes_on), goes_on)
            }
            Err(malformed) => (Reply::to_malformed(malformed).to_bytes(false, false), false),
        }
    }
}

impl Open {
    /// Cuts off the connection that has kept its thread waiting longest, if any has. Its thread ends at once.
    fn cut_one_off(&self) {
        let waits = |slot: &&Arc<Slot>| slot.waits_since.load(Ordering::Relaxed);
        let longest = self.slots.values().min_by_key(waits);
        if let Some(slot) = longest.filter(|slot| waits(slot) != ANSWERS) {
            let _ = slot.socket.shutdown(Shutdown::Both);
        }
    }
}

impl Acceptor for Connections {
    fn accept(&self, stream: OwnedFd, peer: Peer) {
        let Some(me) = self.me.upgrade() else { return };
        let Some((number, slot)) = self.enter(Arc::new(TcpStream::from(stream))) else {
            return;
        };
        let thread = std::thread::Builder::new().name("http".to_owned());
        let spawned = thread.spawn(move || {
            // Also when something panics.
            let me = scopeguard::guard(me, |me| me.leave(number));
            me.serve(&slot, peer);
        });
        if spawned.is_err() {
            self.leave(number);
        }
    }

    fn refused(&self, _remote: &str) {}
}

/// The next request; `None` when the other end is gone or silent.
fn next_request(stream: &mut Stream, received: &mut Vec<u8>) -> Result<Option<Request>, Malformed> {
    let mut is_begun = !received.is_empty();
    loop {
        if let Some((request, length)) = parse(received)? {
            received.drain(..length);
            return Ok(Some(request));
        }
        if !received.is_empty() && !is_begun {
            is_begun = true;
            stream.allow(HEAD_PATIENCE);
        }
        let mut buffer = [0; HEAD_BYTES_MAX];
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(read) => received.extend_from_slice(&buffer[..read]),
        }
    }
}
