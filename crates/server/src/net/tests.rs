#![allow(clippy::unwrap_used)]
mod addresses;
mod slow_readers;
mod strangers;

use super::*;
use bson::raw::RawDocument;
use bson::{RawDocumentBuf, rawdoc};
use commands::logger::{Logger, Ring};
use commands::{Outcome, Peer, Request, Resume, Traffic};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use wire::{Codecs, Compressor, Form, Header, MsgFlags, OpCode};

/// A service whose commands are `ping`, `block` (until released or the client is gone), `queue` (put off until it is
/// resumed), `slow`, `count` (an exhaust chain), `flood` (one without end) and `shutdown`.
#[derive(Default)]
struct Bench {
    connected: AtomicU32,
    disconnected: AtomicU32,
    abandoned: AtomicU32,
    /// Its number; none has 0 that is refused.
    refused_compressor: AtomicU32,
    handled: AtomicU64,
    refused: AtomicU64,
    gate: Mutex<Gate>,
    change: Condvar,
    stopped: AtomicBool,
    queue: Mutex<Vec<Resume>>,
    /// How many requests may be behind; 0: any number.
    queue_max: AtomicUsize,
    /// Requests of which too many came.
    too_many: AtomicU32,
    /// The clients have still to prove who they are.
    are_strangers: AtomicBool,
}

#[derive(Default)]
struct Gate {
    blocked: u32,
    released: bool,
}

struct BenchClient {
    number: u32,
    gone: AtomicBool,
}

impl Bench {
    fn release(&self) {
        self.gate.lock().released = true;
        self.change.notify_all();
    }

    fn wait_blocked(&self, count: u32) {
        let mut gate = self.gate.lock();
        while gate.blocked < count {
            self.change.wait(&mut gate);
        }
    }
}

impl Service for Bench {
    type Client = BenchClient;

    fn connect(&self, _peer: Peer) -> Arc<BenchClient> {
        let number = self.connected.fetch_add(1, Ordering::SeqCst) + 1;
        Arc::new(BenchClient {
            number,
            gone: AtomicBool::new(false),
        })
    }

    fn disconnect(&self, client: &Arc<BenchClient>) {
        self.disconnected.fetch_add(1, Ordering::SeqCst);
        self.abandon(client);
    }

    fn abandon(&self, client: &Arc<BenchClient>) {
        self.abandoned.fetch_add(1, Ordering::SeqCst);
        client.gone.store(true, Ordering::SeqCst);
        let _order = self.gate.lock();
        self.change.notify_all();
    }

    fn certified(&self, _client: &Arc<BenchClient>, _name: auth::SubjectName) {}

    fn is_stranger(&self, _client: &BenchClient) -> bool {
        self.are_strangers.load(Ordering::SeqCst)
    }

    fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }

    fn number(&self, client: &BenchClient) -> u32 {
        client.number
    }

    fn handle(&self, client: &Arc<BenchClient>, request: &Request<'_>, reply: &mut Vec<u8>) -> Outcome {
        let name = request.body.iter().next().unwrap().unwrap().0.to_string();
        let mut outcome = Outcome::default();
        self.too_many
            .fetch_add(u32::from(request.is_too_many), Ordering::SeqCst);
        match name.as_str() {
            _ if request.is_too_many => {}
            "busy" => {
                let until = std::time::Instant::now() + Duration::from_millis(10);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
            }
            "block" => {
                let mut gate = self.gate.lock();
                gate.blocked += 1;
                self.change.notify_all();
                while !gate.released && !client.gone.load(Ordering::SeqCst) {
                    self.change.wait(&mut gate);
                }
            }
            "queue" if !request.is_resumed => {
                let resume = request.resume.expect("it can be put off");
                self.queue.lock().push(resume());
                outcome.put_off = true;
                return outcome;
            }
            // Each reply of the chain waits.
            "chain" if !request.is_resumed => {
                let resume = request.resume.expect("it can be put off");
                self.queue.lock().push(resume());
                outcome.put_off = true;
                return outcome;
            }
            "chain" => outcome.more_to_come = request.exhaust_allowed && self.handled.load(Ordering::SeqCst) < 2,
            "slow" => std::thread::park_timeout(Duration::from_millis(2)),
            "flood" => outcome.more_to_come = request.exhaust_allowed,
            "count" => outcome.more_to_come = self.handled.load(Ordering::SeqCst) < 3,
            "shutdown" => outcome.shutdown = true,
            _ => {}
        }
        let handled = self.handled.fetch_add(1, Ordering::SeqCst);
        let documents: usize = request.sequences.iter().map(|(_, bytes)| bytes.len()).sum();
        let answer = rawdoc! { "ok": 1.0, "you": client.number as i32, "handled": handled as i64, "bytes": documents as i64,
        "db": request.legacy_database.unwrap_or("") };
        reply.extend_from_slice(answer.as_bytes());
        outcome
    }

    fn is_urgent(&self, command: &str) -> bool {
        !matches!(command, "block" | "slow" | "busy")
    }

    fn queue_max(&self) -> usize {
        match self.queue_max.load(Ordering::SeqCst) {
            0 => usize::MAX,
            most => most,
        }
    }

    fn end_late(&self) {
        let late: Vec<Resume> = match self.stopped.load(Ordering::SeqCst) {
            true => self.queue.lock().drain(..).collect(),
            false => Vec::new(),
        };
        late.into_iter().for_each(|resume| resume());
    }

    fn takes(&self, compressor: Compressor) -> bool {
        compressor == Compressor::Noop || compressor as u32 != self.refused_compressor.load(Ordering::SeqCst)
    }

    fn count_network(&self, _traffic: Traffic) {}

    fn is_quiet(&self) -> bool {
        false
    }

    fn request_shutdown(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

struct Site {
    bench: Arc<Bench>,
    pool: Arc<Pool<Bench>>,
    listeners: Listeners,
    logger: Arc<Logger>,
    directory: tempfile::TempDir,
}

impl Site {
    fn with_limit(connections_max: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let endpoints = Endpoints {
            bind: vec!["127.0.0.1".to_owned()],
            port: 0,
            ipv6: false,
            unix: Some((directory.path().to_owned(), 0o700)),
        };
        let clock = Arc::new(vfs::SystemClock::new());
        let logger = Logger::for_tests(clock.clone());
        let bench = Arc::new(Bench::default());
        let limits = Limits {
            connections_max,
            descriptor_number_max: i32::MAX,
        };
        let pool = Pool::new(bench.clone(), logger.clone(), clock, limits, None).unwrap();
        let mut listeners = Listeners::bind(&endpoints).unwrap();
        listeners.start(pool.clone(), logger.clone()).unwrap();
        Self {
            bench,
            pool,
            listeners,
            logger,
            directory,
        }
    }

    fn new() -> Self {
        Self::with_limit(1000)
    }

    fn connect(&self) -> Peering<TcpStream> {
        Peering(TcpStream::connect(("127.0.0.1", self.listeners.port())).unwrap())
    }

    fn logged(&self, id: i32) -> bool {
        let (_, lines) = self.logger.ring(Ring::Global);
        lines.iter().any(|line| line.contains(&format!("\"id\":{id},")))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.bench.release();
        self.listeners.stop();
        self.pool.end(Duration::from_secs(10));
    }
}

/// The client's side.
struct Peering<S>(S);

fn request(flags: u32, body: &RawDocument) -> Vec<u8> {
    let mut out = Vec::new();
    let form = Form::Msg {
        checksum: flags & MsgFlags::CHECKSUM_PRESENT != 0,
    };
    wire::begin(form, &mut out);
    out.extend_from_slice(body.as_bytes());
    wire::finish(form, &mut out, 0, 77, 0, MsgFlags(flags)).unwrap();
    out
}

fn command(name: &str) -> RawDocumentBuf {
    let mut body = RawDocumentBuf::new();
    let name: bson::raw::CString = name.try_into().unwrap();
    body.append(&*name, 1);
    body
}

impl<S: Read + Write> Peering<S> {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn receive(&mut self) -> (Header, Vec<u8>) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        let header = Header::parse(&head).unwrap();
        let mut message = head.to_vec();
        message.resize(header.length, 0);
        self.0.read_exact(&mut message[16..]).unwrap();
        (header, message)
    }

    fn ask(&mut self, flags: u32, body: &RawDocument) -> (Header, MsgFlags, bson::Document) {
        self.send(&request(flags, body));
        self.reply()
    }

    fn reply(&mut self) -> (Header, MsgFlags, bson::Document) {
        let (header, message) = self.receive();
        assert_eq!(header.op_code, OpCode::Msg);
        let wire::Message::Msg(msg) = wire::Message::parse(&header, &message).unwrap() else {
            panic!()
        };
        (header, msg.flags, msg.body.try_into().unwrap())
    }

    fn ping(&mut self) -> bson::Document {
        self.ask(0, &command("ping")).2
    }

    /// True when the other side has closed the connection without another byte.
    fn closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

#[test]
fn requests_are_answered_over_tcp_and_unix_sockets() {
    let site = Site::new();
    let mut tcp = site.connect();
    let path = site
        .directory
        .path()
        .join(format!("mongodb-{}.sock", site.listeners.port()));
    let mut unix = Peering(UnixStream::connect(&path).unwrap());
    for _ in 0..3 {
        assert_eq!(tcp.ping().get_f64("ok").unwrap(), 1.0);
        assert_eq!(unix.ping().get_f64("ok").unwrap(), 1.0);
    }
    assert_ne!(tcp.ping().get_i32("you").unwrap(), unix.ping().get_i32("you").unwrap());
    drop(site);
    assert!(!path.exists(), "the socket file is removed at the end");
}

#[test]
fn replies_name_the_request_and_have_numbers_of_their_own() {
    let site = Site::new();
    let mut client = site.connect();
    let (first, ..) = client.ask(0, &command("ping"));
    let (second, ..) = client.ask(0, &command("ping"));
    assert_eq!((first.response_to, second.response_to), (77, 77));
    assert_ne!(first.request_id, second.request_id);
}

/// Requests sent together, cut anywhere, or one byte at a time are the same requests.
#[test]
fn framing_does_not_depend_on_packets() {
    let site = Site::new();
    let mut client = site.connect();
    let one = request(0, &command("ping"));
    client.send(&one.repeat(50));
    for _ in 0..50 {
        client.reply();
    }
    for cut in 1..one.len() {
        client.send(&one[..cut]);
        client.0.flush().unwrap();
        client.send(&one[cut..]);
        client.reply();
    }
    for byte in &one {
        client.send(&[*byte]);
    }
    client.reply();
}

/// A connection that has sent half a request is parked with it; the half is not lost, and others are served meanwhile.
#[test]
fn a_half_request_survives_parking() {
    let site = Site::new();
    let mut large = RawDocumentBuf::new();
    large.append(bson::raw::cstr!("ping"), "x".repeat(3_000_000));
    for body in [command("ping"), large] {
        let bytes = request(0, &body);
        let mut client = site.connect();
        client.send(&bytes[..bytes.len() / 2]);
        // The connection is quiet long enough to be parked: other connections make the threads go round meanwhile.
        wait_until(|| {
            site.connect().ping();
            site.pool.parked_bytes() >= bytes.len() / 2
        });
        client.send(&bytes[bytes.len() / 2..]);
        client.reply();
    }
}

/// Polls a condition that other threads bring about. The bound is generous: reaching it is a failure.
fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("the condition did not come about");
}

#[test]
fn requests_that_are_put_off_have_no_thread_and_are_answered_when_they_are_resumed() {
    let site = Site::new();
    let mut clients: Vec<_> = (0..60).map(|_| site.connect()).collect();
    for client in &mut clients {
        client.send(&request(0, &command("queue")));
        // What comes behind it waits with it.
        client.send(&request(0, &command("ping")));
    }
    wait_until(|| site.bench.queue.lock().len() == 60 && site.pool.active() == 0);
    assert!(site.pool.threads() < 20, "{}", site.pool.threads());
    assert_eq!(site.bench.handled.load(Ordering::SeqCst), 0);
    assert_eq!(site.connect().ping().get_f64("ok").unwrap(), 1.0);
    let resumes = std::mem::take(&mut *site.bench.queue.lock());
    resumes.into_iter().for_each(|resume| resume());
    for client in &mut clients {
        let you = client.reply().2.get_i32("you").unwrap();
        assert_eq!(client.reply().2.get_i32("you").unwrap(), you);
    }
    assert_eq!(site.bench.handled.load(Ordering::SeqCst), 121);
}

#[test]
fn a_chain_of_replies_goes_on_where_each_of_them_was_put_off() {
    let site = Site::new();
    let mut client = site.connect();
    client.send(&request(MsgFlags::EXHAUST_ALLOWED, &command("chain")));
    client.send(&request(0, &command("ping")));
    let mut answered = None;
    for number in 0..3 {
        wait_until(|| site.bench.queue.lock().len() == 1 && site.pool.active() == 0);
        let resume = site.bench.queue.lock().remove(0);
        resume();
        let (header, flags, body) = client.reply();
        assert_eq!(body.get_i64("handled").ok(), Some(number));
        assert_eq!(flags.has(MsgFlags::MORE_TO_COME), number < 2);
        if let Some(before) = answered.replace(header.request_id) {
            assert_eq!(header.response_to, before, "each reply answers the one before");
        }
    }
    assert_eq!(client.reply().2.get_i64("handled").ok(), Some(3));
}

#[test]
fn clients_that_are_put_off_and_go_away_are_found_and_so_are_those_at_the_end() {
    let site = Site::new();
    let mut gone = site.connect();
    gone.send(&request(0, &command("queue")));
    let mut waits = site.connect();
    waits.send(&request(0, &command("queue")));
    wait_until(|| site.bench.queue.lock().len() == 2 && site.pool.active() == 0);
    let mut seen = HashMap::new();
    site.pool.find_gone(&mut seen);
    assert_eq!(site.bench.abandoned.load(Ordering::SeqCst), 0);
    drop(gone);
    wait_until(|| {
        site.pool.find_gone(&mut seen);
        site.bench.abandoned.load(Ordering::SeqCst) > 0
    });
    // The layer above resumes it then, to have it end.
    let first = site.bench.queue.lock().remove(0);
    first();
    wait_until(|| site.pool.open() == 1);
    site.bench.stopped.store(true, Ordering::SeqCst);
    assert_eq!(site.pool.end(Duration::from_secs(10)), 0);
    assert_eq!(waits.reply().2.get_f64("ok").unwrap(), 1.0);
    assert!(waits.closed());
    assert_eq!(site.pool.open(), 0);
}

#[test]
fn what_is_urgent_does_not_wait_for_all_that_came_before() {
    const CROWD: usize = 900;
    let site = Site::new();
    let over = AtomicBool::new(false);
    let began = AtomicU32::new(0);
    let between = std::thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                let mut client = site.connect();
                while !over.load(Ordering::SeqCst) {
                    client.ask(0, &command("slow"));
                    began.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        wait_until(|| began.load(Ordering::SeqCst) as usize > 3 * CROWD);
        let mut client = site.connect();
        let handled = || site.bench.handled.load(Ordering::SeqCst);
        let between = (0..9).map(|_| {
            let before = handled();
            client.ping();
            handled() - before
        });
        let mut between: Vec<u64> = between.collect();
        between.sort_unstable();
        over.store(true, Ordering::SeqCst);
        between
    });
    // In their order it would be about as many as there are connections.
    assert!(between[6] < CROWD as u64 / 2, "{between:?}");
}

#[test]
fn of_more_work_than_can_be_done_some_is_refused() {
    let site = Site::new();
    site.bench.queue_max.store(50, Ordering::SeqCst);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..400 {
            scope.spawn(|| {
                let mut client = site.connect();
                while !over.load(Ordering::SeqCst) {
                    client.ask(0, &command("busy"));
                }
            });
        }
        wait_until(|| site.bench.too_many.load(Ordering::SeqCst) > 100);
        // Neither of those that are urgent nor for ever.
        let mut client = site.connect();
        client.ping();
        over.store(true, Ordering::SeqCst);
    });
    let refused = site.bench.too_many.load(Ordering::SeqCst);
    site.connect().ask(0, &command("busy"));
    assert_eq!(site.bench.too_many.load(Ordering::SeqCst), refused);
}

/// What a crowd has left behind is not carried out, and delays nobody.
#[test]
fn nobody_works_for_those_who_are_gone() {
    const CROWD: usize = 600;
    let site = Site::new();
    let began = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                let mut client = site.connect();
                client.ask(0, &command("busy"));
                client.ask(0, &command("busy"));
                client.send(&request(0, &command("busy")));
                began.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(began.load(Ordering::SeqCst) as usize, CROWD);
    site.connect().ping();
    wait_until(|| site.pool.open() <= 1);
    let handled = site.bench.handled.load(Ordering::SeqCst) as usize;
    // Some were at work when their clients went.
    assert!((2 * CROWD..3 * CROWD).contains(&handled), "{handled}");
}

#[test]
fn blocked_operations_delay_nobody() {
    let site = Site::new();
    let mut blocked: Vec<_> = (0..40).map(|_| site.connect()).collect();
    for client in &mut blocked {
        client.send(&request(0, &command("block")));
    }
    site.bench.wait_blocked(40);
    for _ in 0..5 {
        site.connect().ping();
    }
    site.bench.release();
    for client in &mut blocked {
        client.reply();
    }
}

#[test]
fn a_client_that_is_gone_has_its_operation_interrupted() {
    let site = Site::new();
    let mut client = site.connect();
    client.send(&request(0, &command("block")));
    site.bench.wait_blocked(1);
    drop(client);
    let mut seen = HashMap::new();
    wait_until(|| {
        site.pool.find_gone(&mut seen);
        site.pool.open() == 0
    });
    assert!(!site.bench.gate.lock().released);
    // It was known until it was closed: what it had sent before could have followed.
    assert_eq!(site.bench.disconnected.load(Ordering::SeqCst), 1);
}

#[test]
fn requests_with_more_to_come_get_no_reply() {
    let site = Site::new();
    let mut client = site.connect();
    client.send(&request(MsgFlags::MORE_TO_COME, &command("ping")));
    client.send(&request(MsgFlags::MORE_TO_COME, &command("ping")));
    assert_eq!(client.ping().get_i64("handled").unwrap(), 2);
}

#[test]
fn exhaust_replies_form_a_chain() {
    let site = Site::new();
    let mut client = site.connect();
    client.send(&request(MsgFlags::EXHAUST_ALLOWED, &command("count")));
    let mut response_to = 77;
    for i in 0..4 {
        let (header, flags, _) = client.reply();
        assert_eq!(header.response_to, response_to);
        assert_eq!(flags.has(MsgFlags::MORE_TO_COME), i < 3);
        response_to = header.request_id;
    }
    site.bench.handled.store(0, Ordering::SeqCst);
    let (_, flags, _) = client.ask(0, &command("count"));
    assert!(!flags.has(MsgFlags::MORE_TO_COME), "not without leave");
    client.ping();
}

#[test]
fn checksums_and_compression_are_returned_in_kind() {
    let site = Site::new();
    let mut client = site.connect();
    let (_, flags, _) = client.ask(MsgFlags::CHECKSUM_PRESENT, &command("ping"));
    assert!(flags.has(MsgFlags::CHECKSUM_PRESENT));
    let mut codecs = Codecs::default();
    for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut bytes = Vec::new();
        codecs
            .compress(compressor, &request(0, &command("ping")), &mut bytes)
            .unwrap();
        client.send(&bytes);
        let (header, message) = client.receive();
        assert_eq!(header.op_code, OpCode::Compressed);
        let mut out = Vec::new();
        let (inner, found) = codecs.decompress(&header, &message, &mut out).unwrap();
        assert_eq!((found, inner.op_code, inner.response_to), (compressor, OpCode::Msg, 77));
    }
    let refused = &site.bench.refused_compressor;
    refused.store(Compressor::Zlib as u32, Ordering::SeqCst);
    let mut bytes = Vec::new();
    codecs
        .compress(Compressor::Zlib, &request(0, &command("ping")), &mut bytes)
        .unwrap();
    client.send(&bytes);
    assert!(client.closed());
}

#[test]
fn legacy_queries_get_legacy_replies() {
    let site = Site::new();
    let mut client = site.connect();
    let hello = rawdoc! { "isMaster": 1, "helloOk": true };
    let body = [&[0; 4], &b"admin.$cmd\0"[..], &[0; 4], &[0xFF; 4], hello.as_bytes()].concat();
    let header = Header {
        length: 16 + body.len(),
        request_id: 5,
        response_to: 0,
        op_code: OpCode::Query,
    };
    client.send(&[&header.to_bytes()[..], &body].concat());
    let (header, message) = client.receive();
    assert_eq!((header.op_code, header.response_to), (OpCode::Reply, 5));
    let document = RawDocument::from_bytes(&message[36..]).unwrap();
    assert_eq!(document.get_str("db").unwrap(), "admin");
}

#[test]
fn bad_documents_are_answered_and_bad_frames_closed() {
    let site = Site::new();
    let mut client = site.connect();
    let mut bad = request(0, &command("ping"));
    bad[25] = 0x55;
    client.send(&bad);
    let (_, _, error) = client.reply();
    assert_eq!(
        (error.get_f64("ok").unwrap(), error.get_i32("code").unwrap()),
        (0.0, 22)
    );
    client.ping();
    let mut flags = request(0, &command("ping"));
    flags[16] = 4;
    client.send(&flags);
    assert_eq!(client.reply().2.get_i32("code").unwrap(), 223);
    assert!(client.closed());
    let garbage = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let short = [8, 0, 0, 0].repeat(4);
    let unknown = request(0, &command("ping"))
        .iter()
        .enumerate()
        .map(|(i, b)| if i == 12 { 99 } else { *b })
        .collect();
    for bytes in [garbage, short, unknown] {
        let mut client = site.connect();
        client.send(&bytes);
        assert!(client.closed());
    }
    assert!(site.logged(22988));
    site.connect().ping();
}

#[test]
fn too_many_connections_are_refused() {
    let site = Site::with_limit(2);
    let (mut one, mut two) = (site.connect(), site.connect());
    one.ping();
    two.ping();
    assert!(site.connect().closed());
    assert!(site.logged(22942));
    assert_eq!(site.bench.refused.load(Ordering::SeqCst), 1);
    drop(one);
    wait_until(|| site.pool.open() == 1);
    site.connect().ping();
}

#[test]
fn the_shutdown_command_gets_its_reply_first() {
    let site = Site::new();
    let mut client = site.connect();
    client.ask(0, &command("shutdown"));
    assert!(client.closed());
    assert!(site.bench.stopped.load(Ordering::SeqCst));
}

/// At the end parked connections are closed at once, and a running request still gets its reply.
#[test]
fn the_end_closes_connections_after_their_replies() {
    let mut site = Site::new();
    let (mut idle, mut busy) = (site.connect(), site.connect());
    idle.ping();
    busy.send(&request(0, &command("block")));
    site.bench.wait_blocked(1);
    site.listeners.stop();
    let (pool, bench) = (site.pool.clone(), site.bench.clone());
    let end = std::thread::spawn(move || pool.end(Duration::from_secs(60)));
    assert!(idle.closed());
    bench.release();
    busy.reply();
    assert!(busy.closed());
    assert_eq!(end.join().unwrap(), 0);
    assert_eq!(site.pool.threads(), 0);
    assert_eq!(site.pool.holders(), 1, "no thread has it");
}

#[test]
fn connections_whose_machine_is_gone_are_found_within_minutes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = rustix::fd::OwnedFd::from(listener.accept().unwrap().0);
    listener::keep_alive(&stream);
    use rustix::net::sockopt::{socket_keepalive, tcp_keepidle, tcp_keepintvl};
    assert!(socket_keepalive(&stream).unwrap());
    assert!(tcp_keepidle(&stream).unwrap() <= Duration::from_secs(300));
    assert!(tcp_keepintvl(&stream).unwrap() <= Duration::from_secs(1));
}

/// A few hundred connections in bursts: all served, then few threads left waiting.
#[test]
fn idle_connections_hold_no_threads() {
    let site = Site::new();
    let mut clients: Vec<_> = (0..300).map(|_| site.connect()).collect();
    for _ in 0..2 {
        for client in &mut clients {
            client.ping();
        }
    }
    wait_until(|| site.pool.active() == 0);
    assert_eq!(site.pool.open(), 300);
    for client in &mut clients {
        client.ping();
    }
}
