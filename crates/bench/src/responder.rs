//! A server that stores nothing: it answers every request of the generator at once, from one thread, with replies made
//! beforehand.
//!
//! For tests of the generator, and to see what sockets and the generator alone cost on a machine: the floor below every
//! server's figures (`examples/responder.rs`). It checks no more than it needs to know which reply to send.

use crate::error::{Doing, Error, Result};
use bson::raw::{RawArrayBuf, RawDocumentBuf};
use bson::rawdoc;
use rustix::event::epoll;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use wire::{HEADER_BYTES, Header};

/// Flags and section kind of an OP_MSG, before its body.
const BODY_AT: usize = HEADER_BYTES + 4 + 1;
/// The listener among the connections.
const LISTENER: u64 = u64::MAX;
/// Bytes of the document that every read finds.
const DOCUMENT_BYTES: usize = 1100;

struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

/// Replies by the kind of command.
struct Replies {
    found: Vec<u8>,
    ok: Vec<u8>,
    hello: Vec<u8>,
}

fn encoded(body: &RawDocumentBuf) -> Vec<u8> {
    let mut bytes = vec![0; BODY_AT];
    bytes.extend_from_slice(body.as_bytes());
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..14].copy_from_slice(&2013u16.to_le_bytes());
    bytes
}

impl Replies {
    fn new() -> Self {
        let mut batch = RawArrayBuf::new();
        batch.push(rawdoc! { "text": "x".repeat(DOCUMENT_BYTES) });
        let found = rawdoc! { "cursor": { "firstBatch": batch, "id": 0_i64, "ns": "none.none" }, "ok": 1.0 };
        let hello = rawdoc! {
            "isWritablePrimary": true, "maxWireVersion": 21, "version": "none", "pid": 0_i64,
            "storageEngine": { "name": "none" }, "ok": 1.0,
        };
        Self {
            found: encoded(&found),
            ok: encoded(&rawdoc! { "ok": 1.0 }),
            hello: encoded(&hello),
        }
    }

    /// Sends the reply to a whole message.
    fn answer(&self, message: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let name_at = BODY_AT + 5;
        let name = message
            .get(name_at..)
            .unwrap_or_default()
            .split(|byte| *byte == 0)
            .next();
        match name.unwrap_or_default() {
            b"find" | b"aggregate" => out.extend_from_slice(&self.found),
            b"insert" | b"update" | b"delete" => {
                let n = documents_of(message) as i32;
                out.extend_from_slice(&encoded(&rawdoc! { "n": n, "nModified": n, "ok": 1.0 }));
            }
            b"hello" | b"buildInfo" | b"serverStatus" => out.extend_from_slice(&self.hello),
            _ => out.extend_from_slice(&self.ok),
        }
        // "In reply to", as clients may check it.
        out[8..12].copy_from_slice(&message[4..8]);
    }
}

/// Documents in the sequence behind the body.
fn documents_of(message: &[u8]) -> usize {
    let length = |at: usize| {
        let bytes = message.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let Some(body) = length(BODY_AT) else { return 0 };
    let Some(name_at) = BODY_AT.checked_add(body).map(|at| at + 1 + 4) else {
        return 0;
    };
    let name = message
        .get(name_at..)
        .unwrap_or_default()
        .iter()
        .position(|byte| *byte == 0);
    let Some(mut at) = name.map(|name| name_at + name + 1) else {
        return 0;
    };
    let mut count = 0;
    while let Some(size) = length(at).filter(|size| *size >= 5) {
        at += size;
        count += 1;
    }
    count
}

/// Serves for ever. Returns when the system refuses to.
pub fn serve(listener: &TcpListener) -> Result<()> {
    let replies = Replies::new();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).doing("making an epoll")?;
    let readable = epoll::EventFlags::IN;
    epoll::add(&epoll, listener, epoll::EventData::new_u64(LISTENER), readable).doing("watching a listener")?;
    let mut peers: HashMap<u64, Peer> = HashMap::new();
    let mut next = 0;
    let mut out = Vec::new();
    let mut events = [epoll::Event {
        flags: epoll::EventFlags::empty(),
        data: epoll::EventData::new_u64(0),
    }; 64];
    loop {
        let count = match epoll::wait(&epoll, &mut events, None) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).doing("waiting for requests"),
        };
        for event in &events[..count] {
            let key = event.data.u64();
            if key == LISTENER {
                let (stream, _) = listener.accept().doing("accepting a connection")?;
                stream.set_nodelay(true).doing("switching Nagle's algorithm off")?;
                epoll::add(&epoll, &stream, epoll::EventData::new_u64(next), readable)
                    .doing("watching a connection")?;
                let buffer = vec![0; 4096];
                peers.insert(
                    next,
                    Peer {
                        stream,
                        buffer,
                        filled: 0,
                    },
                );
                next += 1;
                continue;
            }
            let ended = peers
                .get_mut(&key)
                .is_none_or(|peer| peer.serve(&replies, &mut out).is_err());
            if ended {
                // Closing a socket takes it out of the epoll.
                peers.remove(&key);
            }
        }
    }
}

impl Peer {
    /// Reads once, and answers when a message is complete. An error ends the connection.
    fn serve(&mut self, replies: &Replies, out: &mut Vec<u8>) -> Result<()> {
        let received = match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => return Err(Error::Protocol("the connection has ended".to_owned())),
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error).doing("receiving a request"),
        };
        self.filled += received;
        let Some(header) = self.buffer[..self.filled].first_chunk::<HEADER_BYTES>() else {
            return Ok(());
        };
        let length = Header::parse(header)
            .map_err(|error| Error::Protocol(error.to_string()))?
            .length;
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        if self.filled < length {
            return Ok(());
        }
        replies.answer(&self.buffer[..length], out);
        self.filled = 0;
        self.stream.write_all(out).doing("sending a reply")
    }
}
