//! A blocking connection: one request out, one reply in, every reply checked.
//!
//! Invariant: `buffer[..filled]` is what was received of the reply that is being read; it is empty between requests.

use crate::messages::Request;
use anyhow::{Context, Result, bail, ensure};
use bson::raw::{RawBsonRef, RawDocument};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use wire::{HEADER_BYTES, Header, OpCode};

/// Flags and section kind of an OP_MSG, before its body.
const BODY_AT: usize = HEADER_BYTES + 4 + 1;

/// A server that takes longer than this for one operation is broken, not slow.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to the server.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects; nothing is sent.
    pub fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true).context("switching Nagle's algorithm off")?;
        stream
            .set_read_timeout(Some(REPLY_TIMEOUT))
            .context("setting the read timeout")?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Sends a request and returns the body of the reply, whatever it says.
    pub fn call(&mut self, request: &Request) -> Result<&RawDocument> {
        // Grown on first use, so that an idle connection costs the generator little.
        if self.buffer.is_empty() {
            self.buffer.resize(16 * 1024, 0);
        }
        self.stream.write_all(request.bytes()).context("sending a request")?;
        let mut filled = 0;
        let mut length = HEADER_BYTES;
        while filled < length {
            let received = self
                .stream
                .read(&mut self.buffer[filled..])
                .context("receiving a reply")?;
            ensure!(received > 0, "the server closed the connection");
            let knew_length = filled >= HEADER_BYTES;
            filled += received;
            if !knew_length && filled >= HEADER_BYTES {
                length = self.reply_length()?;
                if self.buffer.len() < length {
                    self.buffer.resize(length, 0);
                }
            }
        }
        ensure!(
            filled == length,
            "the server sent {} bytes more than its reply",
            filled - length
        );
        RawDocument::from_bytes(&self.buffer[BODY_AT..length]).context("the reply's body")
    }

    fn reply_length(&self) -> Result<usize> {
        let bytes = self.buffer.first_chunk().context("a reply is longer than its header")?;
        let header = Header::parse(bytes).context("the reply's header")?;
        ensure!(
            header.op_code == OpCode::Msg,
            "the reply is no OP_MSG but {:?}",
            header.op_code
        );
        ensure!(header.length >= BODY_AT, "the reply has {} bytes", header.length);
        Ok(header.length)
    }

    /// Sends a request whose reply must say `ok: 1`.
    pub fn call_ok(&mut self, request: &Request) -> Result<&RawDocument> {
        let reply = self.call(request)?;
        match reply.get("ok") {
            Ok(Some(RawBsonRef::Double(1.0))) => Ok(reply),
            _ => bail!("the server refused: {reply:?} {:?}", reply.get_str("errmsg")),
        }
    }

    /// Keeps it open and gives its memory back.
    pub fn into_idle(self) -> TcpStream {
        self.stream
    }

    /// A read that must find one document.
    pub fn read_one(&mut self, request: &Request) -> Result<()> {
        let reply = self.call_ok(request)?;
        let batch = reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("firstBatch"));
        ensure!(
            batch.is_ok_and(|batch| !batch.is_empty()),
            "a document that was loaded is not found"
        );
        Ok(())
    }

    /// A write that must affect so many documents.
    pub fn write(&mut self, request: &Request, documents: usize) -> Result<()> {
        let reply = self.call_ok(request)?;
        let count = reply.get_i32("n");
        ensure!(
            count.as_ref().is_ok_and(|n| *n as usize == documents) && matches!(reply.get("writeErrors"), Ok(None)),
            "a write of {documents} documents affected {count:?}, writeErrors: {:?}",
            reply.get_array("writeErrors")
        );
        Ok(())
    }
}
