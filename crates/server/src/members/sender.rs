//! What is sent to another member for consensus: in order, over a connection of its own, and lost when that breaks.
//!
//! Messages become a stream of bytes, each behind its length, which is cut into commands that are not answered: a
//! message may be larger than a document. The receiver (`commands`) begins anew with each connection.

use super::link::{CallError, Dialer, Link};
use bson::rawdoc;
use bson::spec::BinarySubtype;
use commands::ReplicaSet;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a piece of the stream.
const PIECE_BYTES: usize = 8 << 20;
/// More bytes than this do not wait: what is new is lost then, as it may be.
const QUEUE_BYTES_MAX: usize = 128 << 20;
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);
/// How long a member may take to accept a connection or a piece.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Say how far this member is, even without a message.
    tells: bool,
    /// A cluster time that somebody here waits for.
    wanted: u64,
    stopped: bool,
}

/// How a connection came to its end.
enum Served {
    /// It was found to have ended. What is to be sent next waits for another one.
    Ended { has_sent: bool },
    /// What was to be sent is lost.
    Lost,
}

/// Why there is no connection.
enum Unconnected {
    /// It may be there at any moment.
    Unreachable,
    /// Another set's member is there: it is asked again as seldom as members are asked how they are.
    Refused,
}

/// See the module.
pub struct Sender {
    /// `host:port`.
    pub host: String,
    set: Arc<ReplicaSet>,
    own: u64,
    dialer: Arc<Dialer>,
    queue: Mutex<Queue>,
    filled: Condvar,
    /// This member has applied entries up to here.
    applied: Arc<AtomicU64>,
}

impl Sender {
    /// To `host`, from the member `own` of a set; its thread begins to work.
    pub fn start(
        host: &str,
        set: &Arc<ReplicaSet>,
        own: u64,
        applied: &Arc<AtomicU64>,
        dialer: &Arc<Dialer>,
    ) -> Arc<Self> {
        let sender = Arc::new(Self {
            host: host.to_owned(),
            set: set.clone(),
            own,
            queue: Mutex::default(),
            filled: Condvar::new(),
            dialer: dialer.clone(),
            applied: applied.clone(),
        });
        let of_thread = sender.clone();
        let spawned = std::thread::Builder::new()
            .name("consensus-send".to_owned())
            .spawn(move || of_thread.run());
        if spawned.is_err() {
            sender.stop();
        }
        sender
    }

    /// To be sent next.
    pub fn push(&self, message: Vec<u8>) {
        let mut queue = self.queue.lock();
        if queue.bytes + message.len() <= QUEUE_BYTES_MAX {
            queue.bytes += message.len();
            queue.messages.push_back(message);
            self.filled.notify_one();
        }
    }

    /// Tells how far this member is.
    pub fn tell(&self) {
        self.queue.lock().tells = true;
        self.filled.notify_one();
    }

    /// Asks for an entry of at least this cluster time.
    pub fn want(&self, time: u64) {
        let mut queue = self.queue.lock();
        queue.wanted = queue.wanted.max(time);
        self.filled.notify_one();
    }

    /// The thread ends.
    pub fn stop(&self) {
        self.queue.lock().stopped = true;
        self.filled.notify_one();
    }

    fn run(&self) {
        // Whether the connection before this one took nothing either: a member that hangs up at once is given time.
        let mut took_nothing = false;
        while !self.queue.lock().stopped {
            let served = match self.connect() {
                Ok(mut link) => self.serve(&mut link),
                Err(unconnected) => {
                    if matches!(unconnected, Unconnected::Refused) {
                        self.rest();
                    }
                    // What waited for the connection is old by the time there is one.
                    self.empty();
                    Served::Lost
                }
            };
            match served {
                Served::Ended { has_sent } if has_sent || !took_nothing => {
                    took_nothing = !has_sent;
                    continue;
                }
                served => took_nothing = matches!(served, Served::Ended { has_sent: false }),
            }
            let mut queue = self.queue.lock();
            if !queue.stopped {
                self.filled.wait_for(&mut queue, RETRY);
            }
        }
    }

    /// A connection to the member. A server that has got its address may be of another set of the same name, where
    /// members have the same numbers: what is said here would count there.
    fn connect(&self) -> Result<Link, Unconnected> {
        let opened = self.dialer.open(&self.host, PATIENCE);
        let mut link = opened.map_err(|_| Unconnected::Unreachable)?;
        let answer = link.call(&self.set.probe()).map_err(|error| match error {
            CallError::Broken(_) => Unconnected::Unreachable,
            CallError::Refused(_) => Unconnected::Refused,
        })?;
        match self.set.is_anothers(&answer) {
            None => Ok(link),
            Some(_) => Err(Unconnected::Refused),
        }
    }

    /// Waits for the time between two heartbeats, whatever is to be sent, or until the thread is to end.
    fn rest(&self) {
        let (every, _) = self.set.heartbeat_times();
        let mut queue = self.queue.lock();
        self.filled.wait_while_for(&mut queue, |queue| !queue.stopped, every);
    }

    fn empty(&self) {
        let mut queue = self.queue.lock();
        queue.messages.clear();
        queue.bytes = 0;
    }

    /// Until the connection breaks, or is found to have ended while there was nothing to send.
    fn serve(&self, link: &mut Link) -> Served {
        let mut is_first = true;
        loop {
            let mut stream = Vec::new();
            let wanted;
            {
                let mut queue = self.queue.lock();
                while queue.messages.is_empty() && !queue.tells && queue.wanted == 0 && !queue.stopped {
                    self.filled.wait(&mut queue);
                }
                if queue.stopped {
                    return Served::Lost;
                }
                // A member that began anew, with a copy of the data say. What is to be sent goes over the next
                // connection.
                if link.is_hung_up() {
                    return Served::Ended { has_sent: !is_first };
                }
                queue.tells = false;
                wanted = std::mem::take(&mut queue.wanted);
                while stream.len() < PIECE_BYTES
                    && let Some(message) = queue.messages.pop_front()
                {
                    queue.bytes -= message.len();
                    stream.extend_from_slice(&(message.len() as u32).to_le_bytes());
                    stream.extend_from_slice(&message);
                }
            }
            let mut pieces = stream.chunks(PIECE_BYTES);
            let mut next = pieces.next();
            loop {
                let data = bson::Binary {
                    subtype: BinarySubtype::Generic,
                    bytes: next.unwrap_or_default().to_vec(),
                };
                let applied = self.applied.load(Ordering::Acquire);
                let command = rawdoc! {
                    "_tenonConsensus": self.own as i64,
                    "set": &*self.set.name,
                    "applied": applied as i64,
                    "wanted": wanted as i64,
                    "first": is_first,
                    "data": data,
                    "$db": "admin",
                };
                if link.send(&command).is_err() {
                    return Served::Lost;
                }
                is_first = false;
                next = pieces.next();
                if next.is_none() {
                    break;
                }
            }
        }
    }
}
