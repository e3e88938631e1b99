//! What is sent to another member for consensus: in order, over a connection of its own, and lost when that breaks.
//!
//! Messages become a stream of bytes, each behind its length, which is cut into commands that are not answered: a
//! message may be larger than a document. The receiver begins anew with each connection.

use super::link::Link;
use bson::rawdoc;
use bson::spec::BinarySubtype;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The command that carries messages.
pub const CONSENSUS: &str = "_tenonConsensus";
/// Bytes of a piece of the stream.
const PIECE_BYTES: usize = 8 << 20;
/// More bytes than this do not wait: what is new is lost then, as it may be.
const QUEUE_BYTES_MAX: usize = 128 << 20;
/// No message is as long: what claims to be is no stream.
const STREAM_BYTES_MAX: usize = 256 << 20;
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

/// See the module.
pub struct Sender {
    /// `host:port`.
    pub host: String,
    set: String,
    own: u64,
    queue: Mutex<Queue>,
    filled: Condvar,
    /// Entries up to here are applied by this member.
    applied: Arc<AtomicU64>,
}

impl Sender {
    /// To `host`, from the member `own` of a set; its thread begins to work.
    pub fn start(host: &str, set: &str, own: u64, applied: Arc<AtomicU64>) -> Arc<Self> {
        let sender = Arc::new(Self {
            host: host.to_owned(),
            set: set.to_owned(),
            own,
            queue: Mutex::default(),
            filled: Condvar::new(),
            applied,
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
        while !self.queue.lock().stopped {
            if let Ok(mut link) = Link::open(&self.host, PATIENCE) {
                // What waited for the connection is old.
                self.empty();
                self.serve(&mut link);
            }
            let mut queue = self.queue.lock();
            if !queue.stopped {
                self.filled.wait_for(&mut queue, RETRY);
            }
        }
    }

    fn empty(&self) {
        let mut queue = self.queue.lock();
        queue.messages.clear();
        queue.bytes = 0;
    }

    /// Until the connection breaks.
    fn serve(&self, link: &mut Link) {
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
                    return;
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
                    CONSENSUS: self.own as i64,
                    "set": &*self.set,
                    "applied": applied as i64,
                    "wanted": wanted as i64,
                    "first": is_first,
                    "data": data,
                    "$db": "admin",
                };
                if link.send(&command).is_err() {
                    return;
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

/// The receiver's end of a stream.
#[derive(Default)]
pub struct Assembly {
    bytes: Vec<u8>,
}

impl Assembly {
    /// Takes the next piece, and hands over the messages that are whole.
    pub fn take(&mut self, is_first: bool, piece: &[u8], put: &mut dyn FnMut(&[u8])) {
        if is_first || self.bytes.len() > STREAM_BYTES_MAX {
            self.bytes.clear();
        }
        self.bytes.extend_from_slice(piece);
        let mut at = 0;
        while let Some(length) = self.bytes.get(at..at + 4) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let Some(message) = self.bytes.get(at + 4..at + 4 + length) else { break };
            put(message);
            at += 4 + length;
        }
        self.bytes.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_may_be_cut_anywhere() {
        let messages: Vec<Vec<u8>> = vec![vec![], vec![1], vec![2; 300], vec![], vec![3; 5]];
        let mut stream = Vec::new();
        for message in &messages {
            stream.extend_from_slice(&(message.len() as u32).to_le_bytes());
            stream.extend_from_slice(message);
        }
        for cut in 0..=stream.len() {
            let mut assembly = Assembly::default();
            let mut found = Vec::new();
            assembly.take(true, b"what another connection left", &mut |_| {});
            let mut put = |message: &[u8]| found.push(message.to_vec());
            assembly.take(true, &stream[..cut], &mut put);
            assembly.take(false, &stream[cut..], &mut put);
            assert_eq!(found, messages, "cut at {cut}");
        }
    }
}
