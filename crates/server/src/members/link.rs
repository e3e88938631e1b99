//! A connection to another member: whole messages out, one document back, and an end to every wait.

use super::outgoing::{Entry, Outgoing};
use auth::ClusterAuth;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use commands::{MemberConnection, MemberLogin, MemberStream, TransportSecurity};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::Random;
use wire::{HEADER_BYTES, Header, MsgFlags, OpCode};

/// Flags and section kind, before the body.
const BODY_AT: usize = HEADER_BYTES + 4 + 1;
/// Longest reply that is read: a document of the largest size and what stands around it.
const REPLY_BYTES_MAX: usize = 49 << 20;

/// Between two looks at whether to go on waiting.
const LOOK: Duration = Duration::from_millis(100);

/// How members connect to each other.
pub struct Dialer {
    /// What proves that this server is a member; `None` where nobody asks.
    pub cluster_auth: Option<ClusterAuth>,
    /// For that proof.
    pub random: Arc<dyn Random>,
    /// What encrypts; `None` where members speak in the clear.
    pub tls: Option<Arc<dyn TransportSecurity>>,
    /// The connections that are open.
    pub outgoing: Arc<Outgoing>,
}

impl Dialer {
    /// Connects to `host:port` as a member. No wait for an answer takes longer than `patience`.
    ///
    /// # Errors
    /// A sentence.
    pub fn open(&self, host: &str, patience: Duration) -> Result<Link, String> {
        self.open_within(host, patience, patience)
    }

    /// The same with less patience until there is a connection.
    ///
    /// # Errors
    /// A sentence.
    pub fn open_within(&self, host: &str, connects: Duration, patience: Duration) -> Result<Link, String> {
        let stream = connect(host, connects, patience)?;
        let other_handle = stream.try_clone().map_err(|error| format!("{host}: {error}"))?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let stream: Box<dyn MemberStream> = match self.tls.as_ref().filter(|tls| tls.is_for_members()) {
            Some(tls) => tls.connect(stream, name.trim_matches(['[', ']']))?,
            None => Box::new(stream),
        };
        let mut link = Link {
            entry: self.outgoing.enter(host, other_handle),
            stream,
            patience,
            next_id: 1,
            buffer: Vec::new(),
        };
        if let Some(cluster_auth) = &self.cluster_auth {
            let login = MemberLogin::new(cluster_auth, &*self.random);
            login.run(&mut |command| link.call(command).map_err(CallError::into_sentence))?;
        }
        Ok(link)
    }
}

/// A fresh connection to `host:port`.
fn connect(host: &str, connects: Duration, patience: Duration) -> Result<TcpStream, String> {
    let failed = |error: std::io::Error| format!("{host}: {error}");
    let mut last = format!("{host}: the name has no address");
    for address in host.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&address, connects) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(failed)?;
                stream.set_read_timeout(Some(patience)).map_err(failed)?;
                stream.set_write_timeout(Some(patience)).map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}

/// Why a command has no reply that says `ok: 1`.
pub enum CallError {
    /// A sentence; the connection is of no use any more.
    Broken(String),
    /// What the reply says, or that nobody can make sense of it: asking again would not help.
    Refused(String),
}

impl CallError {
    /// What happened.
    pub fn into_sentence(self) -> String {
        match self {
            Self::Broken(sentence) | Self::Refused(sentence) => sentence,
        }
    }
}

/// See the module.
pub struct Link {
    entry: Entry,
    stream: Box<dyn MemberStream>,
    /// For a reply.
    patience: Duration,
    next_id: i32,
    buffer: Vec<u8>,
}

impl Link {
    /// It was cut on purpose: another one is as good.
    pub fn is_dropped(&self) -> bool {
        self.entry.is_dropped()
    }

    /// The other end has gone: another one is needed before anything is sent.
    pub fn is_hung_up(&self) -> bool {
        self.entry.is_hung_up()
    }

    /// Who waits for a reply looks often whether to go on.
    ///
    /// # Errors
    /// A sentence.
    pub fn look_often(self) -> Result<Self, String> {
        self.entry.set_read_timeout(LOOK).map_err(|error| error.to_string())?;
        Ok(self)
    }

    /// Sends a command that is not answered.
    ///
    /// # Errors
    /// A sentence; the connection is of no use any more.
    pub fn send(&mut self, command: &RawDocument) -> Result<(), String> {
        self.entry.set_used(true);
        let sent = self.write(command, MsgFlags::MORE_TO_COME);
        self.entry.set_used(false);
        sent
    }

    /// Sends a command and answers the reply, which says `ok: 1`.
    ///
    /// # Errors
    /// The connection broke, or the reply says something else.
    pub fn call(&mut self, command: &RawDocument) -> Result<RawDocumentBuf, CallError> {
        self.entry.set_used(true);
        let reply = self.exchange(command);
        self.entry.set_used(false);
        reply
    }

    /// The reply, if it says `ok: 1`.
    fn exchange(&mut self, command: &RawDocument) -> Result<RawDocumentBuf, CallError> {
        let reply = self.receive(command, &|| true)?;
        let is_ok = match reply.get("ok") {
            Ok(Some(RawBsonRef::Double(ok))) => ok == 1.0,
            Ok(Some(RawBsonRef::Int32(ok))) => ok == 1,
            _ => false,
        };
        match is_ok {
            true => Ok(reply),
            false => Err(CallError::Refused(
                reply.get_str("errmsg").unwrap_or("it said no").to_owned(),
            )),
        }
    }

    /// The reply, whatever it says, as long as `goes_on`.
    fn receive(&mut self, command: &RawDocument, goes_on: &dyn Fn() -> bool) -> Result<RawDocumentBuf, CallError> {
        self.write(command, 0).map_err(CallError::Broken)?;
        let broken = |error: std::io::Error| CallError::Broken(format!("the connection broke: {error}"));
        let malformed = |what: &str| CallError::Refused(format!("the reply is malformed: {what}"));
        let mut stream = Looking {
            stream: &mut *self.stream,
            until: Instant::now() + self.patience,
            goes_on,
        };
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).map_err(broken)?;
        let header = Header::parse(&header).map_err(|error| malformed(&error.to_string()))?;
        if header.op_code != OpCode::Msg || !(BODY_AT..=REPLY_BYTES_MAX).contains(&header.length) {
            return Err(malformed("its header"));
        }
        self.buffer.resize(header.length - HEADER_BYTES, 0);
        stream.read_exact(&mut self.buffer).map_err(broken)?;
        let reply = RawDocumentBuf::from_bytes(self.buffer[BODY_AT - HEADER_BYTES..].to_vec());
        reply.map_err(|error| malformed(&error.to_string()))
    }

    fn write(&mut self, command: &RawDocument, flags: u32) -> Result<(), String> {
        let bytes = command.as_bytes();
        let header = Header {
            length: BODY_AT + bytes.len(),
            request_id: self.next_id,
            response_to: 0,
            op_code: OpCode::Msg,
        };
        self.next_id = self.next_id.wrapping_add(1);
        self.buffer.clear();
        self.buffer.extend_from_slice(&header.to_bytes());
        self.buffer.extend_from_slice(&flags.to_le_bytes());
        self.buffer.push(0);
        self.buffer.extend_from_slice(bytes);
        let written = self.stream.write_all(&self.buffer);
        written.map_err(|error| format!("the connection broke: {error}"))
    }
}

impl MemberConnection for Link {
    fn call(&mut self, command: &RawDocument, goes_on: &dyn Fn() -> bool) -> Result<RawDocumentBuf, String> {
        self.entry.set_used(true);
        let reply = self.receive(command, goes_on);
        self.entry.set_used(false);
        reply.map_err(CallError::into_sentence)
    }
}

/// Reads with short waits in place of a long one, so that who waits can end it.
struct Looking<'l> {
    stream: &'l mut dyn MemberStream,
    until: Instant,
    goes_on: &'l dyn Fn() -> bool,
}

impl Read for Looking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if !(self.goes_on)() {
                        return Err(std::io::Error::other("nobody waits for the answer any more"));
                    }
                    if Instant::now() >= self.until {
                        return Err(error);
                    }
                }
                read => return read,
            }
        }
    }
}
