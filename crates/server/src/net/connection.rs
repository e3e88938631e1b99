//! One connection while a thread has it: reads requests, has them answered, writes replies.
//!
//! The buffers are the thread's, not the connection's: a parked connection keeps only the bytes of a request that has
//! not come in whole.

use super::Service;
use super::pool::Sockets;
use super::tls::{Over, Session, Tls, is_client_hello};
use commands::{Outcome, Request, Resume, Traffic};
use crew::Turn;
use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::Clock;
use wire::limits::STRANGER_MESSAGE_BYTES_MAX;
use wire::{Answer, Codecs, Compressor, Form, HEADER_BYTES, Header, Message, MsgFlags, OpCode, Rejection, WireError};

/// Bytes a thread's buffers keep while it waits.
const BUFFER_BYTES_KEPT: usize = 64 * 1024;
/// A larger buffer is given back after the request that needed it.
const BUFFER_BYTES_KEPT_ACTIVE: usize = 16 * 1024 * 1024;
/// So is one this many times as long as what it has held of late.
const BUFFER_SPARE_TIMES: usize = 8;
/// With each request, what a buffer held before weighs less by one part in so many.
const FORGET_PART: usize = 16;
/// A buffer grows by what has arrived, at least by this; never by what a header merely promises.
const BUFFER_GROWTH_BYTES_MIN: usize = 256 * 1024;

/// How long a busy connection may be quiet before it gives up its thread.
const QUIET_MAX: Duration = Duration::from_millis(250);
/// A connection is busy when it sends again so soon after it was parked. Others, such as monitors, are parked as soon
/// as they have been answered, so that ten thousand of them need few threads.
const BUSY_WITHIN: Duration = Duration::from_millis(100);

/// In a crowd, a request that found no thread for so long is looked at first, and comes behind others unless it is
/// urgent: what is urgent need not wait for it.
const LATE_AFTER: Duration = Duration::from_millis(20);
/// When more than [`Service::queue_max`] requests are behind and the first of them has waited for longer than this,
/// those that come are refused.
const BEHIND_MAX: Duration = Duration::from_secs(1);
/// A longer request is carried out at once: to read it twice would cost more.
const LATER_BYTES_MAX: usize = 16 * 1024;

/// The part of a connection that other threads may look at.
pub(super) struct Shared<S: Service> {
    pub(super) stream: OwnedFd,
    pub(super) client: Arc<S::Client>,
    pub(super) remote: String,
    /// Odd while a request is being answered; changes with every request.
    pub(super) progress: AtomicU64,
    /// At the server's end: [`Shared::progress`] when it was looked at last.
    pub(super) seen_at_end: AtomicU64,
}

/// A connection, owned by the thread that serves it or by the set of parked ones.
pub(super) struct Connection<S: Service> {
    pub(super) shared: Arc<Shared<S>>,
    /// Received bytes that do not make a whole request yet.
    pending: Vec<u8>,
    next_request_id: i32,
    encryption: Encryption,
    /// When it was parked the last time, or came, by the monotonic clock.
    parked_at: Duration,
    /// No request of it has been served.
    is_new: bool,
    /// How the first request that is pending has waited.
    waited: Waited,
    /// Of a chain of replies to the first request that is pending: the number of the last one.
    chain: Option<i32>,
}

/// See [`Connection::waited`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Waited {
    #[default]
    Not,
    /// It came behind others.
    Behind,
    /// So many are behind that it may not.
    TooMany,
    /// The layer above put it off.
    PutOff,
}

/// How a connection's bytes go over the socket.
enum Encryption {
    Plain,
    /// The first bytes will tell.
    Undecided(Arc<Tls>),
    Tls(Session, Arc<Tls>),
}

impl<S: Service> Connection<S> {
    /// `tls`: where the other end may, or must, speak it.
    pub(super) fn new(shared: Arc<Shared<S>>, tls: Option<Arc<Tls>>, now: Duration) -> rustix::io::Result<Self> {
        set_socket_timeout(&shared.stream, Timeout::Recv, Some(QUIET_MAX))?;
        Ok(Self {
            shared,
            pending: Vec::new(),
            next_request_id: 1,
            encryption: tls.map_or(Encryption::Plain, Encryption::Undecided),
            parked_at: now,
            is_new: true,
            waited: Waited::Not,
            chain: None,
        })
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Tells the other end, where it speaks TLS, that no more comes.
    pub(super) fn close_session(&mut self) {
        if let Encryption::Tls(session, _) = &mut self.encryption {
            session.close(&self.shared.stream);
        }
    }

    fn request_id(&mut self) -> i32 {
        let id = self.next_request_id;
        self.next_request_id = id.checked_add(1).unwrap_or(1);
        id
    }
}

/// Why a thread lets go of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Nothing came for a while, or others need the thread.
    Quiet,
    /// Its request waits for its turn.
    Held,
    /// Its request comes behind others.
    Later,
    /// The other end closed it, or it broke.
    Closed,
    /// It sent what cannot be answered.
    Rejected(WireError),
    /// It does not speak TLS as it has to.
    Insecure(String),
    /// The layer above asked for it, or the server ends.
    Asked,
}

/// What a thread needs to serve connections, kept from one to the next.
#[derive(Default)]
pub(super) struct Worker {
    /// Received bytes; those before `start` are done with.
    received: Vec<u8>,
    start: usize,
    decompressed: Vec<u8>,
    reply: Vec<u8>,
    compressed: Vec<u8>,
    codecs: Codecs,
    /// Bytes of TLS as they come in.
    encrypted: Vec<u8>,
    /// What is needed of late of the buffers above but the last, in this order.
    needs: [Need; 4],
    /// Who lends the thread to requests.
    pub(super) lender: Option<Arc<dyn vfs::Lender>>,
}

/// Bytes that a buffer held of late: most replies are short, and one long one is no reason to keep its memory.
#[derive(Clone, Copy, Default)]
struct Need(usize);

impl Need {
    /// Notes what a request took of a buffer of so many bytes; true when the buffer is longer than need be.
    fn note(&mut self, capacity: usize, held: usize) -> bool {
        self.0 = held.max(self.0 - self.0.div_ceil(FORGET_PART));
        let enough = (BUFFER_SPARE_TIMES * self.0).clamp(BUFFER_BYTES_KEPT, BUFFER_BYTES_KEPT_ACTIVE);
        capacity > enough
    }
}

/// The message that was read last, and how its reply goes out.
struct Incoming {
    header: Header,
    compressor: Option<Compressor>,
    /// Bytes on the wire.
    bytes: u64,
}

impl Worker {
    /// Serves a connection that has something to read, until it is quiet or ends.
    pub(super) fn serve<S: Service>(
        &mut self,
        service: &S,
        clock: &dyn Clock,
        connection: &mut Connection<S>,
        turn: &Turn<'_, Sockets<S>>,
    ) -> Leave {
        let parked = clock.monotonic().saturating_sub(connection.parked_at);
        let is_busy = !connection.is_new && parked < BUSY_WITHIN;
        let comes_later = turn.is_crowd() && parked > LATE_AFTER;
        self.received.clear();
        self.start = 0;
        if !connection.pending.is_empty() {
            self.received = std::mem::take(&mut connection.pending);
        }
        let leave = loop {
            let header = match self.receive(service, connection, turn, is_busy) {
                Ok(header) => header,
                Err(leave) => break leave,
            };
            let message = &self.received[self.start..self.start + header.length];
            let has_reply = wire::has_reply(&header, message);
            // Nobody would read the reply. What has none is carried out.
            if connection.waited == Waited::Behind && has_reply && is_gone(&connection.shared.stream) {
                break Leave::Closed;
            }
            let is_later = comes_later && self.is_put_later(service, connection, header);
            if is_later {
                let overdue = turn.overdue(service.queue_max());
                // Whoever hears of no refusal is not refused.
                if !has_reply || overdue.is_none_or(|waited| waited <= BEHIND_MAX) {
                    break Leave::Later;
                }
                connection.waited = Waited::TooMany;
            }
            if let Err(leave) = self.answer(service, connection, turn, header) {
                break leave;
            }
            self.start += header.length;
            self.shrink_to_need(header.length);
        };
        if matches!(leave, Leave::Quiet | Leave::Held | Leave::Later) {
            connection.pending = self.take_rest();
            connection.parked_at = clock.monotonic();
            connection.is_new = false;
            connection.waited = match leave {
                Leave::Later => Waited::Behind,
                Leave::Held => Waited::PutOff,
                _ => Waited::Not,
            };
        }
        self.received.clear();
        self.start = 0;
        self.shrink();
        leave
    }

    /// Whether the first request waits behind others: a short one that is not urgent, and has not waited yet.
    fn is_put_later<S: Service>(&self, service: &S, connection: &Connection<S>, header: Header) -> bool {
        if connection.waited != Waited::Not || header.length > LATER_BYTES_MAX {
            return false;
        }
        let message = &self.received[self.start..self.start + header.length];
        let Some(body) = wire::peek_body(&header, message) else {
            return false;
        };
        // Statements of transactions hold locks that others wait for.
        let is_statement = matches!(body.get("autocommit"), Ok(Some(_)));
        let first = body.into_iter().next();
        !is_statement && first.is_some_and(|first| first.is_ok_and(|(name, _)| !service.is_urgent(name.as_str())))
    }

    /// The received bytes that no request was made of yet. Many of them keep their buffer: a client that sends a long
    /// message a byte at a time must not have it copied every time.
    fn take_rest(&mut self) -> Vec<u8> {
        let rest = &self.received[self.start..];
        if rest.len() < BUFFER_BYTES_KEPT {
            return rest.to_vec();
        }
        self.received.drain(..self.start);
        std::mem::take(&mut self.received)
    }

    /// Gives back what the buffers have beyond what is kept while the thread waits.
    fn shrink(&mut self) {
        for buffer in [
            &mut self.received,
            &mut self.decompressed,
            &mut self.reply,
            &mut self.compressed,
            &mut self.encrypted,
        ] {
            if buffer.capacity() > BUFFER_BYTES_KEPT {
                *buffer = Vec::new();
            }
        }
    }

    /// Empties the buffers of a request of so many bytes, and gives back those that are longer than need be.
    fn shrink_to_need(&mut self, request_bytes: usize) {
        let [received, others @ ..] = &mut self.needs;
        let is_too_long = received.note(self.received.capacity(), request_bytes);
        if is_too_long && self.start == self.received.len() {
            self.received = Vec::new();
            self.start = 0;
        }
        let buffers = [&mut self.decompressed, &mut self.reply, &mut self.compressed];
        for (buffer, need) in buffers.into_iter().zip(others) {
            if need.note(buffer.capacity(), buffer.len()) {
                *buffer = Vec::new();
            }
            buffer.clear();
        }
        if self.encrypted.capacity() > BUFFER_BYTES_KEPT_ACTIVE {
            self.encrypted = Vec::new();
        }
    }

    /// Receives until a whole message stands at `start`.
    fn receive<S: Service>(
        &mut self,
        service: &S,
        connection: &mut Connection<S>,
        turn: &Turn<'_, Sockets<S>>,
        is_busy: bool,
    ) -> Result<Header, Leave> {
        loop {
            let available = &self.received[self.start..];
            let wanted = match available.first_chunk::<HEADER_BYTES>() {
                None => HEADER_BYTES,
                Some(head) if matches!(connection.encryption, Encryption::Undecided(_)) => {
                    let is_hello = is_client_hello(head);
                    self.decide(connection, is_hello)?;
                    continue;
                }
                Some(head) => {
                    let header = Header::parse(head).map_err(Leave::Rejected)?;
                    // Before anything is kept of it.
                    check_length(service, &connection.shared, header.length)?;
                    if available.len() >= header.length {
                        return Ok(header);
                    }
                    header.length
                }
            };
            if let Encryption::Tls(session, tls) = &mut connection.encryption
                && let Some(over) = session.take_over()
            {
                return Err(leave_over(over, tls));
            }
            let stay = if is_busy { turn.stay() } else { None };
            // Whether there is more already is told by the set, and nothing need ask.
            if stay.is_none() && self.start > 0 && self.start == self.received.len() {
                return Err(Leave::Quiet);
            }
            let patience = match stay {
                Some(_) => RecvFlags::empty(),
                None => RecvFlags::DONTWAIT,
            };
            if let Encryption::Tls(session, _) = &mut connection.encryption {
                self.receive_encrypted(session, &connection.shared.stream, patience)?;
                continue;
            }
            self.make_room(wanted);
            match rustix::net::recv(&connection.shared.stream, spare_capacity(&mut self.received), patience) {
                Ok((0, _)) => return Err(Leave::Closed),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(Leave::Quiet),
                Err(_) => return Err(Leave::Closed),
            }
        }
    }

    /// Takes a connection's first bytes for what they are.
    #[cold]
    fn decide<S: Service>(&mut self, connection: &mut Connection<S>, is_hello: bool) -> Result<(), Leave> {
        let Encryption::Undecided(tls) = &connection.encryption else {
            return Ok(());
        };
        let tls = tls.clone();
        if !is_hello {
            if tls.is_required() {
                tls.count_failure();
                let reason = "the server is configured to allow TLS connections only";
                return Err(Leave::Insecure(reason.to_owned()));
            }
            connection.encryption = Encryption::Plain;
            return Ok(());
        }
        let mut session = tls.begin().map_err(Leave::Insecure)?;
        let first = self.received.split_off(self.start);
        session.take(&first, &connection.shared.stream, &mut self.received);
        connection.encryption = Encryption::Tls(session, tls);
        Ok(())
    }

    /// Receives what there is of TLS; the plain bytes in it, if any, stand behind those received before.
    fn receive_encrypted(&mut self, session: &mut Session, stream: &OwnedFd, patience: RecvFlags) -> Result<(), Leave> {
        self.encrypted.clear();
        self.encrypted.reserve(BUFFER_BYTES_KEPT);
        match rustix::net::recv(stream, spare_capacity(&mut self.encrypted), patience) {
            Ok((0, _)) => Err(Leave::Closed),
            Ok(_) => {
                if self.start > 0 {
                    self.received.drain(..self.start);
                    self.start = 0;
                }
                session.take(&self.encrypted, stream, &mut self.received);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => Err(Leave::Quiet),
            Err(_) => Err(Leave::Closed),
        }
    }

    /// Makes room behind the received bytes for some more of a message of `wanted` bytes.
    fn make_room(&mut self, wanted: usize) {
        if self.start > 0 {
            self.received.drain(..self.start);
            self.start = 0;
        }
        let have = self.received.len();
        let room = (wanted - have).min(have.max(BUFFER_GROWTH_BYTES_MIN));
        if self.received.capacity() == 0 {
            self.received.reserve_exact(room.max(BUFFER_BYTES_KEPT));
        } else if self.received.capacity() - have < room {
            self.received.reserve_exact(room);
        }
    }

    /// Answers the message at `start`.
    fn answer<S: Service>(
        &mut self,
        service: &S,
        connection: &mut Connection<S>,
        turn: &Turn<'_, Sockets<S>>,
        header: Header,
    ) -> Result<(), Leave> {
        let message = &self.received[self.start..self.start + header.length];
        let bytes = header.length as u64;
        if header.op_code != OpCode::Compressed {
            let incoming = Incoming {
                header,
                compressor: None,
                bytes,
            };
            return respond(service, connection, turn, message, &incoming, &mut self.reply, None);
        }
        if let Some(compressor) = wire::compressor_of(message).filter(|used| !service.takes(*used)) {
            let id = compressor as u8;
            return Err(Leave::Rejected(WireError::UnknownCompressor { id }));
        }
        if let Some(uncompressed) = wire::uncompressed_bytes(message) {
            check_length(service, &connection.shared, uncompressed)?;
        }
        let (inner, compressor) = self
            .codecs
            .decompress(&header, message, &mut self.decompressed)
            .map_err(Leave::Rejected)?;
        let incoming = Incoming {
            header: inner,
            compressor: Some(compressor),
            bytes,
        };
        let squeeze = Some((&mut self.codecs, &mut self.compressed));
        respond(
            service,
            connection,
            turn,
            &self.decompressed,
            &incoming,
            &mut self.reply,
            squeeze,
        )
    }
}

/// Checks the length of a message, which is bounded further for clients that have still to prove who they are.
fn check_length<S: Service>(service: &S, shared: &Shared<S>, length: usize) -> Result<(), Leave> {
    match length > STRANGER_MESSAGE_BYTES_MAX && service.is_stranger(&shared.client) {
        true => Err(Leave::Rejected(WireError::StrangerMessageLength { length })),
        false => Ok(()),
    }
}

/// Whether the other end has closed the connection, and there is nothing more to read.
fn is_gone(stream: &OwnedFd) -> bool {
    let mut byte = [0_u8; 1];
    let peeked = rustix::net::recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    match peeked {
        Ok((read, _)) => read == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}

fn leave_over(over: Over, tls: &Tls) -> Leave {
    match over {
        Over::Closed => Leave::Closed,
        Over::Failed(reason) => {
            tls.count_failure();
            Leave::Insecure(reason)
        }
    }
}

type Squeeze<'w> = Option<(&'w mut Codecs, &'w mut Vec<u8>)>;

/// Parses a request, has it handled and sends the reply, or the replies when the layer above gives several.
fn respond<S: Service>(
    service: &S,
    connection: &mut Connection<S>,
    turn: &Turn<'_, Sockets<S>>,
    message: &[u8],
    incoming: &Incoming,
    reply: &mut Vec<u8>,
    mut squeeze: Squeeze<'_>,
) -> Result<(), Leave> {
    let masked;
    let (parsed, invalid) = match Message::parse(&incoming.header, message) {
        Ok(parsed) => (parsed, [].as_slice()),
        Err(rejection) => {
            masked = match rejection.error.is_of_content() {
                true => wire::mask_invalid(&incoming.header, message),
                false => None,
            };
            let parsed = masked.as_ref().and_then(|(message, invalid)| {
                let parsed = Message::parse(&incoming.header, message).ok()?;
                Some((parsed, invalid.as_slice()))
            });
            match parsed {
                Some(parsed) => parsed,
                None => return reject(service, connection, rejection, incoming, reply, squeeze),
            }
        }
    };
    if let Encryption::Tls(session, _) = &mut connection.encryption
        && let Some(name) = session.new_name()
    {
        service.certified(&connection.shared.client, name);
    }
    let form = parsed.form();
    let resume = || -> Resume { turn.resume() };
    let waited = std::mem::take(&mut connection.waited);
    let (is_resumed, is_too_many) = (waited == Waited::PutOff, waited == Waited::TooMany);
    let mut request = match &parsed {
        Message::Msg(msg) => Request {
            sequences: msg.sequences.as_slice(),
            invalid,
            has_reply: form.is_some(),
            exhaust_allowed: form.is_some() && msg.flags.has(MsgFlags::EXHAUST_ALLOWED),
            resume: Some(&resume),
            is_resumed,
            is_too_many,
            ..Request::of(msg.body)
        },
        Message::Query(query) => Request {
            legacy_database: Some(query.database),
            resume: Some(&resume),
            is_resumed,
            is_too_many,
            ..Request::of(query.body)
        },
    };
    let mut response_to = incoming.header.request_id;
    let (mut bytes_in, mut physical_bytes_in) = (message.len() as u64, incoming.bytes);
    if let Some(last) = connection.chain.take() {
        // It was counted when the first reply went out.
        (bytes_in, physical_bytes_in) = (0, 0);
        response_to = last;
        request.is_repeated = true;
    }
    loop {
        reply.clear();
        let shape = form.unwrap_or(Form::Msg { checksum: false });
        wire::begin(shape, reply);
        connection.shared.progress.fetch_add(1, Ordering::Relaxed);
        let outcome = service.handle(&connection.shared.client, &request, reply);
        connection.shared.progress.fetch_add(1, Ordering::Relaxed);
        if outcome.put_off {
            connection.chain = request.is_repeated.then_some(response_to);
            return Err(Leave::Held);
        }
        let mut traffic = Traffic {
            bytes_in,
            physical_bytes_in,
            ..Traffic::default()
        };
        if form.is_some() && !outcome.no_reply {
            let id = connection.request_id();
            let more = outcome.more_to_come && request.exhaust_allowed;
            let flags = MsgFlags(if more { MsgFlags::MORE_TO_COME } else { 0 });
            wire::finish(shape, reply, 0, id, response_to, flags).map_err(Leave::Rejected)?;
            traffic.bytes_out = reply.len() as u64;
            traffic.physical_bytes_out = send(connection, reply, incoming.compressor, &mut squeeze)?;
            response_to = id;
        }
        service.count_network(traffic);
        (bytes_in, physical_bytes_in) = (0, 0);
        match outcome {
            Outcome { shutdown: true, .. } => {
                service.request_shutdown();
                return Err(Leave::Asked);
            }
            Outcome { close: true, .. } => return Err(Leave::Asked),
            Outcome { more_to_come: true, .. } if request.exhaust_allowed => {
                (request.is_repeated, request.is_resumed) = (true, false);
            }
            _ => return Ok(()),
        }
    }
}

/// Does what a rejection asks for.
#[cold]
fn reject<S: Service>(
    service: &S,
    connection: &mut Connection<S>,
    rejection: Rejection,
    incoming: &Incoming,
    reply: &mut Vec<u8>,
    mut squeeze: Squeeze<'_>,
) -> Result<(), Leave> {
    let form = match rejection.answer {
        Answer::Close => return Err(Leave::Rejected(rejection.error)),
        Answer::Nothing => return Ok(()),
        Answer::Reply(form) | Answer::ReplyAndClose(form) => form,
    };
    let code = rejection.error.code();
    let error = bson::rawdoc! {
        "ok": 0.0, "errmsg": rejection.error.to_string(), "code": code.0, "codeName": code.name(),
    };
    reply.clear();
    wire::begin(form, reply);
    reply.extend_from_slice(error.as_bytes());
    let id = connection.request_id();
    wire::finish(form, reply, 0, id, incoming.header.request_id, MsgFlags::default()).map_err(Leave::Rejected)?;
    let bytes_out = reply.len() as u64;
    let sent = send(connection, reply, incoming.compressor, &mut squeeze)?;
    service.count_network(Traffic {
        bytes_in: incoming.header.length as u64,
        bytes_out,
        physical_bytes_in: incoming.bytes,
        physical_bytes_out: sent,
    });
    match rejection.answer {
        Answer::ReplyAndClose(_) => Err(Leave::Rejected(rejection.error)),
        _ => Ok(()),
    }
}

/// Sends a reply, compressed as the request was; returns the bytes sent.
fn send<S: Service>(
    connection: &mut Connection<S>,
    reply: &[u8],
    compressor: Option<Compressor>,
    squeeze: &mut Squeeze<'_>,
) -> Result<u64, Leave> {
    let mut rest = match (compressor, squeeze) {
        (Some(compressor), Some((codecs, compressed))) => {
            compressed.clear();
            codecs
                .compress(compressor, reply, compressed)
                .map_err(Leave::Rejected)?;
            compressed.as_slice()
        }
        _ => reply,
    };
    let bytes = rest.len() as u64;
    if let Encryption::Tls(session, _) = &mut connection.encryption {
        let sent = session.send(rest, &connection.shared.stream);
        return sent.map(|()| bytes).map_err(|_| Leave::Closed);
    }
    while !rest.is_empty() {
        let sent = send_some(&connection.shared.stream, rest).map_err(|_| Leave::Closed)?;
        rest = &rest[sent..];
    }
    Ok(bytes)
}

/// Sends some of the bytes. A thread that waits for the other end to take them sleeps: others work meanwhile.
pub(super) fn send_some(stream: &OwnedFd, bytes: &[u8]) -> rustix::io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut asleep = None;
    loop {
        match rustix::net::send(stream, bytes, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if asleep.is_none() => {
                asleep = Some(vfs::asleep());
                flags = SendFlags::NOSIGNAL;
            }
            sent => return sent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_buffer_goes_when_what_it_holds_is_short() {
        const LONG: usize = 3 << 20;
        let mut need = Need::default();
        for _ in 0..1000 {
            assert!(!need.note(2 * LONG, LONG), "it is needed each time");
        }
        // One long one in ten is often enough.
        for request in 0..1000 {
            let held = if request % 10 == 0 { LONG } else { 100 };
            assert!(!need.note(2 * LONG, held), "request {request}");
        }
        let kept = (0..1000).take_while(|_| !need.note(2 * LONG, 100)).count();
        assert!((10..100).contains(&kept), "{kept} requests");
        assert!(!need.note(BUFFER_BYTES_KEPT, 0), "so much is always kept");
        assert!(
            need.note(BUFFER_BYTES_KEPT_ACTIVE + 1, 1 << 30),
            "and never more than this"
        );
    }
}
