//! A blocking connection for what is not measured: setting up, asking for counters, stopping.
//!
//! Invariant of [`Incoming`]: `buffer[..filled]` is what was received of one reply; nothing is received beyond its end.

use crate::error::{Doing, Error, Result};
use crate::interrupt::Interrupt;
use crate::message::Message;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Document, rawdoc};
use rustix::net::{RecvFlags, recv, sockopt};
use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use wire::{HEADER_BYTES, Header, OpCode};

/// Flags and section kind of an OP_MSG, before its body.
const BODY_AT: usize = HEADER_BYTES + 4 + 1;

/// A server that takes longer than this for one operation is broken, not slow.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// Making an index is no operation: it takes as long as there is data.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// Writing everything to the disk, too: 16 GiB at 10 MB/s.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(1800);

/// A machine that says nothing for so long is asked whether it is there, and given up when it never answers.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_BETWEEN: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Between two looks at whether to go on waiting.
pub const LOOK: Duration = Duration::from_millis(100);

/// Connecting to a server of this machine or network takes no longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a socket to a server; nothing is sent.
pub fn connect(address: SocketAddr, read_timeout: Duration) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).doing(format!("connecting to {address}"))?;
    stream.set_nodelay(true).doing("switching Nagle's algorithm off")?;
    stream
        .set_read_timeout(Some(read_timeout))
        .and_then(|()| stream.set_write_timeout(Some(REPLY_TIMEOUT)))
        .doing("setting the timeouts of a connection")?;
    sockopt::set_socket_keepalive(&stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE))
        .and_then(|()| sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_BETWEEN))
        .and_then(|()| sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES))
        .doing("switching the keepalive of a connection on")?;
    Ok(stream)
}

/// A reply that is being received.
#[derive(Debug, Default)]
pub struct Incoming {
    buffer: Vec<u8>,
    filled: usize,
    length: usize,
}

/// What one look at a socket brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The reply is there.
    Whole,
    /// Some of it, and for the moment there is no more.
    Part,
    /// Some of it, and maybe there is more.
    Filled,
    /// Nothing within the socket's timeout.
    Nothing,
}

impl Incoming {
    /// Reads once from a socket, waiting for its timeout or, with `DONTWAIT`, not at all.
    pub fn receive(&mut self, stream: &TcpStream, flags: RecvFlags) -> Result<Received> {
        self.receive_by(|buffer| Ok(recv(stream, buffer, flags)?.0))
    }

    /// As [`Incoming::receive`], by whatever fills a buffer.
    fn receive_by(&mut self, read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>) -> Result<Received> {
        if self.buffer.is_empty() {
            self.buffer.resize(16 * 1024, 0);
        }
        let received = match read(&mut self.buffer[self.filled..]) {
            Ok(0) => {
                let source = std::io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection");
                return Err(source).doing("receiving a reply");
            }
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(Received::Nothing);
            }
            Err(error) => return Err(error).doing("receiving a reply"),
        };
        self.filled += received;
        let was_filled = self.filled == self.buffer.len();
        if self.length == 0 && self.filled >= HEADER_BYTES {
            self.length = self.reply_length()?;
            if self.buffer.len() < self.length {
                self.buffer.resize(self.length, 0);
            }
        }
        match self.length {
            length if length == 0 || self.filled < length => {
                Ok(if was_filled { Received::Filled } else { Received::Part })
            }
            length if self.filled == length => Ok(Received::Whole),
            length => Err(Error::Protocol(format!(
                "{} bytes more than the reply",
                self.filled - length
            ))),
        }
    }

    fn reply_length(&self) -> Result<usize> {
        let protocol = |error: String| Error::Protocol(error);
        let bytes = self
            .buffer
            .first_chunk()
            .ok_or_else(|| protocol("no header".to_owned()))?;
        let header = Header::parse(bytes).map_err(|error| protocol(error.to_string()))?;
        if header.op_code != OpCode::Msg || header.length < BODY_AT {
            return Err(protocol(format!("{:?} of {} bytes", header.op_code, header.length)));
        }
        Ok(header.length)
    }

    /// The body of a whole reply.
    pub fn body(&self) -> Result<&RawDocument> {
        let bytes = self.buffer.get(BODY_AT..self.length).unwrap_or_default();
        RawDocument::from_bytes(bytes).map_err(|error| Error::Protocol(error.to_string()))
    }

    fn is_whole(&self) -> bool {
        self.length > 0 && self.filled == self.length
    }

    /// Makes room for the next reply.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.length = 0;
    }
}

/// True when a reply says `ok: 1`.
pub fn is_ok(reply: &RawDocument) -> bool {
    matches!(
        reply.get("ok"),
        Ok(Some(
            RawBsonRef::Double(1.0) | RawBsonRef::Int32(1) | RawBsonRef::Int64(1) | RawBsonRef::Boolean(true)
        ))
    )
}

/// A whole number, in whichever of BSON's types a server gives it.
pub fn whole_number(reply: &RawDocument, name: &str) -> Result<i64> {
    match reply.get(name) {
        Ok(Some(RawBsonRef::Int32(value))) => Ok(i64::from(value)),
        Ok(Some(RawBsonRef::Int64(value))) => Ok(value),
        Ok(Some(RawBsonRef::Double(value))) if value.fract() == 0.0 => Ok(value as i64),
        Ok(other) => Err(Error::Protocol(format!("{name} is {other:?} and no whole number"))),
        Err(error) => Err(Error::Protocol(error.to_string())),
    }
}

/// The error of a reply that is not ok, that has write errors, or whose write concern was not met.
pub fn refusal(command: &str, reply: &RawDocument) -> Error {
    let first_write_error = reply
        .get_array("writeErrors")
        .ok()
        .and_then(|errors| errors.get_document(0).ok());
    let source = match is_ok(reply) {
        true => first_write_error.or_else(|| write_concern_error(reply)),
        false => first_write_error,
    };
    let source = source.unwrap_or(reply);
    Error::Refused {
        command: command.to_owned(),
        code: source.get_i32("code").unwrap_or(0),
        message: source.get_str("errmsg").unwrap_or("no message").to_owned(),
    }
}

/// Why what was written may be taken back: not as many members have it as were asked for.
pub fn write_concern_error(reply: &RawDocument) -> Option<&RawDocument> {
    reply.get_document("writeConcernError").ok()
}

/// What carries bytes both ways, an encrypted connection for example. Reading gives up after [`LOOK`].
pub trait Duplex: Read + Write + Send + Debug {}

impl<T: Read + Write + Send + Debug> Duplex for T {}

/// A connection to the server.
#[derive(Debug)]
pub struct Connection {
    stream: Box<dyn Duplex>,
    incoming: Incoming,
    message: Message,
    patience: Patience,
}

/// How long a reply is waited for.
#[derive(Debug)]
struct Patience {
    interrupt: Interrupt,
    /// Even when the user wants to stop.
    least: Duration,
    /// In all; for ever without one.
    most: Option<Duration>,
}

impl Patience {
    /// An error when a request that was sent at `began` is waited for no longer.
    fn check(&self, began: Instant) -> Result<()> {
        let waited = began.elapsed();
        if waited >= self.least {
            self.interrupt.check()?;
        }
        match self.most {
            Some(most) if waited >= most => Err(Error::NoReply {
                seconds: most.as_secs(),
            }),
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// Connects; nothing is sent.
    pub fn open(address: SocketAddr) -> Result<Self> {
        Self::open_until(address, &Interrupt::new())
    }

    /// Connects. Who waits for a reply is woken when the user wants to stop.
    pub fn open_until(address: SocketAddr, interrupt: &Interrupt) -> Result<Self> {
        let stream = connect(address, LOOK)?;
        Ok(Self::over(Box::new(stream), address, interrupt))
    }

    /// One whose bytes go over `stream`, to the server at `address`.
    pub fn over(stream: Box<dyn Duplex>, address: SocketAddr, interrupt: &Interrupt) -> Self {
        Self {
            stream,
            patience: Patience {
                interrupt: interrupt.clone(),
                least: Duration::ZERO,
                most: Some(COMMAND_TIMEOUT),
            },
            incoming: Incoming::default(),
            message: Message::new(u128::from(address.port()) << 64 | 0x7465_6E6F_6E5F_6261),
        }
    }

    /// Each reply is waited for so long even when the user wants to stop.
    pub fn with_patience(mut self, least: Duration) -> Self {
        self.patience.least = least;
        self
    }

    /// Each reply is waited for as long as the connection lasts: an index of much data takes hours. That the server's
    /// machine has gone is seen by the system.
    pub fn wait_for_ever(&mut self) {
        self.patience.most = None;
    }

    /// Each reply is waited for no longer than this.
    pub fn wait_at_most(&mut self, most: Duration) {
        self.patience.most = Some(most);
    }

    /// Whether the last request has its reply, and nothing else is to come.
    pub fn has_whole_reply(&self) -> bool {
        self.incoming.is_whole()
    }

    /// Sends a request and returns the body of the reply, whatever it says.
    pub fn call(&mut self, request: &Message) -> Result<&RawDocument> {
        Self::exchange(&mut *self.stream, &mut self.incoming, request.bytes(), &self.patience)?;
        self.incoming.body()
    }

    /// Sends a request that gets no reply.
    pub fn send(&mut self, request: &Message) -> Result<()> {
        self.stream.write_all(request.bytes()).doing("sending a request")
    }

    fn exchange(stream: &mut dyn Duplex, incoming: &mut Incoming, request: &[u8], patience: &Patience) -> Result<()> {
        incoming.clear();
        stream.write_all(request).doing("sending a request")?;
        let began = Instant::now();
        loop {
            if incoming.receive_by(|buffer| stream.read(buffer))? == Received::Whole {
                return Ok(());
            }
            patience.check(began)?;
        }
    }

    /// Runs a command; a reply that is not `ok: 1`, or has an error of a write or of its write concern, is an error.
    pub fn run(&mut self, database: &str, command: &RawDocument) -> Result<Document> {
        self.message.whole(command, database);
        let request = self.message.bytes();
        Self::exchange(&mut *self.stream, &mut self.incoming, request, &self.patience)?;
        let reply = self.incoming.body()?;
        let has = |name: &str| matches!(reply.get(name), Ok(Some(_)));
        if !is_ok(reply) || has("writeErrors") || has("writeConcernError") {
            return Err(refusal(&command_name(command), reply));
        }
        Document::try_from(reply).map_err(|error| Error::Protocol(error.to_string()))
    }

    /// As [`Connection::run`], and waits for the reply though the user wants to stop: of what it takes hold of on the
    /// server, it is known that it is to be given back.
    pub fn run_through(&mut self, database: &str, command: &RawDocument) -> Result<Document> {
        let least = std::mem::replace(&mut self.patience.least, COMMAND_TIMEOUT);
        let reply = self.run(database, command);
        self.patience.least = least;
        reply
    }

    /// As [`Connection::run`], and waits for so long, and no longer, whether or not the user wants to stop.
    pub fn run_within(&mut self, database: &str, command: &RawDocument, limit: Duration) -> Result<Document> {
        let least = std::mem::replace(&mut self.patience.least, limit);
        let most = self.patience.most.replace(limit);
        let reply = self.run(database, command);
        (self.patience.least, self.patience.most) = (least, most);
        reply
    }

    /// What [`Connection::run`] sends has this mode of `$readPreference` from here on.
    pub fn set_read_preference(&mut self, mode: Option<&'static str>) {
        self.message.set_read_preference(mode);
    }

    /// Says hello, as drivers do first. Servers before 4.4 know it by its older name.
    pub fn hello(&mut self) -> Result<Document> {
        match self.run("admin", &rawdoc! { "hello": 1 }) {
            Err(Error::Refused { .. }) => self.run("admin", &rawdoc! { "isMaster": 1 }),
            other => other,
        }
    }

    /// Runs a command that servers of this kind need not have. One that does not have it gives `None`.
    pub fn ask(&mut self, database: &str, command: &RawDocument) -> Result<Option<Document>> {
        match self.run(database, command) {
            Ok(reply) => Ok(Some(reply)),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a database; one that is not there is fine.
    pub fn drop_database(&mut self, database: &str) -> Result<()> {
        self.run(database, &rawdoc! { "dropDatabase": 1 }).map(drop)
    }

    /// Makes everything durable, and writes what engines have not written yet. A server without the command goes on.
    pub fn flush(&mut self) -> Result<()> {
        let longer = self.patience.most.map(|most| most.max(FLUSH_TIMEOUT));
        let most = std::mem::replace(&mut self.patience.most, longer);
        let flushed = self.ask("admin", &rawdoc! { "fsync": 1 });
        self.patience.most = most;
        flushed.map(drop)
    }
}

fn command_name(command: &RawDocument) -> String {
    command
        .iter_elements()
        .next()
        .and_then(std::result::Result::ok)
        .map_or_else(String::new, |element| element.key().as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index of much data takes hours, and ten minutes were the end of what had been restored before it.
    #[test]
    fn a_reply_is_waited_for_as_long_as_is_wanted() {
        let mut patience = Patience {
            interrupt: Interrupt::new(),
            least: Duration::ZERO,
            most: Some(Duration::ZERO),
        };
        let began = Instant::now();
        assert!(matches!(patience.check(began), Err(Error::NoReply { .. })));
        patience.most = None;
        assert!(patience.check(began).is_ok());
        patience.interrupt.ask();
        assert!(matches!(patience.check(began), Err(Error::Interrupted)));
    }

    #[test]
    fn a_refusal_is_told_by_what_went_wrong_first() {
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let there = rawdoc! { "index": 0, "code": 11000, "errmsg": "there" };
        let code = |reply: &RawDocument| match refusal("insert", reply) {
            Error::Refused { code, .. } => code,
            other => panic!("{other}"),
        };
        assert_eq!(code(&rawdoc! { "ok": 1, "writeConcernError": late.clone() }), 64);
        assert_eq!(
            code(&rawdoc! { "ok": 1, "writeErrors": [there], "writeConcernError": late.clone() }),
            11000
        );
        assert_eq!(
            code(&rawdoc! { "ok": 0, "code": 13, "errmsg": "no", "writeConcernError": late }),
            13
        );
    }
}
