//! A blocking connection that never hangs: every wait ends by an answer, by the user's wish to stop, or by a time
//! limit.
//!
//! Requests are whole messages, encoded by the caller. A request with `moreToCome` gets no reply, so it is only sent.
//!
//! Invariant: between requests nothing of a reply is left in the socket.

use crate::limits::REPLY_BYTES_MAX;
use bench::interrupt::Interrupt;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use wire::{HEADER_BYTES, Header, MsgFlags, OpCode};

/// Flags and section kind of an OP_MSG, before its body.
pub(crate) const BODY_AT: usize = HEADER_BYTES + 4 + 1;
/// Between two looks at whether the user wants to stop.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// A server that moves no byte for so long is broken, not slow.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Why a request got no good answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The server said no.
    #[error("{message} (code {code})")]
    Refused {
        /// `code`
        code: i32,
        /// `errmsg`
        message: String,
    },
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    /// Nothing moves.
    #[error("the server has moved no byte for {seconds} s")]
    Silent {
        /// The time that has passed.
        seconds: u64,
    },
    /// The reply is none.
    #[error("the server's reply is malformed: {0}")]
    Malformed(String),
    /// The user wants to stop.
    #[error("stopped")]
    Stopped,
}

impl From<bench::Error> for LinkError {
    fn from(error: bench::Error) -> Self {
        match error {
            bench::Error::Interrupted => Self::Stopped,
            bench::Error::Io { source, .. } => Self::Broken(source),
            bench::Error::Refused { code, message, .. } => Self::Refused { code, message },
            other => Self::Malformed(bench::chain(&other)),
        }
    }
}

/// A connection.
pub struct Link<'s> {
    stream: TcpStream,
    reply: Vec<u8>,
    /// Of the last reply.
    length: usize,
    stop: &'s Interrupt,
    silence_max: Duration,
}

impl<'s> Link<'s> {
    /// Connects. Waits end early when the user wants to stop.
    pub fn open(address: SocketAddr, stop: &'s Interrupt) -> Result<Self, LinkError> {
        let stream = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_AGAIN))?;
        stream.set_write_timeout(Some(LOOK_AGAIN))?;
        Ok(Self {
            stream,
            reply: vec![0; 64 << 10],
            length: BODY_AT,
            stop,
            silence_max: SILENCE_MAX,
        })
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), LinkError> {
        let mut sent = 0;
        let mut moved = Instant::now();
        while sent < message.len() {
            match self.stream.write(&message[sent..]) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero).into()),
                Ok(bytes) => {
                    sent += bytes;
                    moved = Instant::now();
                }
                Err(error) => self.may_go_on(error, moved)?,
            }
        }
        Ok(())
    }

    /// Sends a message and takes its reply.
    fn exchange(&mut self, message: &[u8]) -> Result<(), LinkError> {
        self.send(message)?;
        self.receive(0, HEADER_BYTES)?;
        let header = self.reply.first_chunk().expect("the buffer is longer than a header");
        let header = Header::parse(header).map_err(|error| LinkError::Malformed(error.to_string()))?;
        if header.op_code != OpCode::Msg || !(BODY_AT..=REPLY_BYTES_MAX).contains(&header.length) {
            return Err(LinkError::Malformed(format!("{header:?}")));
        }
        if self.reply.len() < header.length {
            self.reply.resize(header.length, 0);
        }
        self.receive(HEADER_BYTES, header.length)?;
        self.length = header.length;
        Ok(())
    }

    fn receive(&mut self, from: usize, to: usize) -> Result<(), LinkError> {
        let mut filled = from;
        let mut moved = Instant::now();
        while filled < to {
            match self.stream.read(&mut self.reply[filled..to]) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(bytes) => {
                    filled += bytes;
                    moved = Instant::now();
                }
                Err(error) => self.may_go_on(error, moved)?,
            }
        }
        Ok(())
    }

    fn may_go_on(&self, error: std::io::Error, moved: Instant) -> Result<(), LinkError> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut if self.stop.asked() => Err(LinkError::Stopped),
            ErrorKind::WouldBlock | ErrorKind::TimedOut if moved.elapsed() > self.silence_max => {
                let seconds = self.silence_max.as_secs();
                Err(LinkError::Silent { seconds })
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(()),
            _ => Err(error.into()),
        }
    }

    /// Sends a message whose reply must say `ok: 1` without errors of single writes.
    pub fn call_ok(&mut self, message: &[u8]) -> Result<&RawDocument, LinkError> {
        self.exchange(message)?;
        self.good_reply()
    }

    fn good_reply(&self) -> Result<&RawDocument, LinkError> {
        let reply = RawDocument::from_bytes(&self.reply[BODY_AT..self.length])
            .map_err(|error| LinkError::Malformed(error.to_string()))?;
        let refusal = |document: &RawDocument| LinkError::Refused {
            code: document.get_i32("code").unwrap_or(0),
            message: document.get_str("errmsg").unwrap_or("no reason given").to_owned(),
        };
        if !is_ok(reply) {
            return Err(refusal(reply));
        }
        if let Ok(errors) = reply.get_array("writeErrors")
            && let Some(Ok(RawBsonRef::Document(first))) = errors.into_iter().next()
        {
            return Err(refusal(first));
        }
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(refusal(error));
        }
        Ok(reply)
    }

    /// Sends a command.
    pub fn command(&mut self, database: &str, command: &RawDocument) -> Result<&RawDocument, LinkError> {
        self.call_ok(&message(database, command, None))
    }

    /// As [`Link::command`], for one that a server may be silent over for so long.
    pub fn command_within(
        &mut self,
        database: &str,
        command: &RawDocument,
        silence_max: Duration,
    ) -> Result<&RawDocument, LinkError> {
        let message = message(database, command, None);
        self.silence_max = silence_max;
        let sent = self.exchange(&message);
        self.silence_max = SILENCE_MAX;
        sent?;
        self.good_reply()
    }
}

fn is_ok(reply: &RawDocument) -> bool {
    match reply.get("ok") {
        Ok(Some(RawBsonRef::Double(ok))) => ok == 1.0,
        Ok(Some(RawBsonRef::Int32(ok))) => ok == 1,
        _ => false,
    }
}

/// The documents of a reply to `find`.
pub(crate) fn first_batch(reply: &RawDocument) -> Result<impl Iterator<Item = &[u8]>, LinkError> {
    let batch = reply
        .get_document("cursor")
        .and_then(|cursor| cursor.get_array("firstBatch"))
        .map_err(|error| LinkError::Malformed(error.to_string()))?;
    // What cannot be read as a document is a document with no right byte in it.
    Ok(batch.into_iter().map(|element| match element {
        Ok(RawBsonRef::Document(document)) => document.as_bytes(),
        _ => &[][..],
    }))
}

/// An OP_MSG of a command; with documents, the head of a sequence to which they are to be appended.
pub(crate) fn message(database: &str, command: &RawDocument, sequence: Option<&str>) -> Vec<u8> {
    let mut body: RawDocumentBuf = command.to_owned();
    body.append(bson::raw::cstr!("$db"), database);
    let mut bytes = vec![0; BODY_AT];
    bytes.extend_from_slice(body.as_bytes());
    if let Some(identifier) = sequence {
        bytes.push(1);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(identifier.as_bytes());
        bytes.push(0);
    }
    set_header(&mut bytes, 0);
    bytes
}

/// Sets length and flags.
pub(crate) fn set_header(bytes: &mut [u8], flags: u32) {
    let header = Header {
        length: bytes.len(),
        request_id: 1,
        response_to: 0,
        op_code: OpCode::Msg,
    };
    bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&flags.to_le_bytes());
}

/// The flag of a request that wants no reply.
pub(crate) const NO_REPLY: u32 = MsgFlags::MORE_TO_COME;

#[cfg(test)]
mod tests;
