//! Drives a server from few threads: each waits for many connections at once, so that the generator's own cost per
//! operation stays small.
//!
//! Closed loop: a client starts its next operation when the last one was answered. Open loop: operations are due at the
//! ticks of a Poisson process, whether or not a client is free; latency counts from when an operation was due, so that
//! a server that stands still is seen by all operations that should have run meanwhile (no coordinated omission). Those
//! that the end of the run finds under way, or due and not begun, are no operations of the run, but their latencies
//! are: what they had waited by then, or until they were answered soon after.
//!
//! Sockets block. A thread reads only from sockets that the kernel called readable, and from its only one directly.
//!
//! Invariant: the phase only goes forward, so a thread that has seen `STOP` is never asked to go on.

use crate::actor::{Actor, Progress};
use crate::buckets::{Buckets, Seen};
use crate::connection::{Incoming, REPLY_TIMEOUT, Received, connect};
use crate::error::{Doing, Error, Result};
use crate::interrupt::Interrupt;
use crate::message::Message;
use crate::schedule::Schedule;
use crate::turns::Turns;
use hdrhistogram::Histogram;
use report::Pacing;
use rustix::event::epoll;
use rustix::net::RecvFlags;
use rustix::time::Timespec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at whether the run is over.
const LOOK: Duration = Duration::from_millis(100);
/// Operations that are under way when a run ends have so long.
const DRAIN: Duration = Duration::from_secs(10);
/// When the user wants to stop, the server has so long to end the connections.
const HANG_UP: Duration = Duration::from_secs(2);
/// More refused operations of one thread end the run: something is wrong with the set-up.
pub const ERRORS_MAX: u64 = 100;
/// The timer among the connections.
const TIMER: u64 = u64::MAX;
/// The longest latency that is told apart from longer ones.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// What decides the driver's part of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names of the operations.
    pub names: &'static [&'static str],
    /// When operations start.
    pub pacing: Pacing,
    /// For the times of an open loop.
    pub seed: u64,
}

/// What the threads tell while they work.
#[derive(Debug)]
pub struct Shared {
    phase: AtomicU8,
    /// When threads were told to end.
    end: OnceLock<Instant>,
    threads: Vec<Counters>,
}

/// Written by one thread, read by others.
#[derive(Debug)]
struct Counters {
    counts: Vec<AtomicU64>,
    latencies: Vec<Buckets>,
    errors: Vec<AtomicU64>,
    restarts: AtomicU64,
    commands: AtomicU64,
    document_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    turns: Turns,
    ended: AtomicBool,
    failed: AtomicBool,
}

const WARM_UP: u8 = 0;
const RECORD: u8 = 1;
const STOP: u8 = 2;
const ABANDON: u8 = 3;

/// A look at the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Successful operations by kind.
    pub operations: Vec<u64>,
    /// Failed ones.
    pub errors: Vec<u64>,
    /// How often an operation of any kind began again.
    pub restarts: u64,
    /// Commands that the successful operations came with.
    pub commands: u64,
    /// Bytes of documents written.
    pub document_bytes: u64,
    /// Bytes of requests.
    pub sent_bytes: u64,
}

impl Counts {
    /// All operations.
    pub fn total(&self) -> u64 {
        self.operations.iter().sum()
    }
}

impl Shared {
    /// For so many threads; nothing is recorded yet.
    pub fn new(threads: usize, operations: usize) -> Self {
        let zeros = || (0..operations).map(|_| AtomicU64::new(0)).collect();
        let counters = |_| Counters {
            counts: zeros(),
            latencies: (0..operations).map(|_| Buckets::default()).collect(),
            errors: zeros(),
            restarts: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            document_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            turns: Turns::new(),
            ended: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        };
        Self {
            phase: AtomicU8::new(WARM_UP),
            end: OnceLock::new(),
            threads: (0..threads).map(counters).collect(),
        }
    }

    /// Threads shall record from now on, if they have not been stopped.
    pub fn record(&self) {
        self.phase.fetch_max(RECORD, Ordering::Relaxed);
    }

    /// Threads shall end.
    pub fn stop(&self) {
        self.end.get_or_init(Instant::now);
        self.phase.fetch_max(STOP, Ordering::Relaxed);
    }

    /// Threads shall end at once: nobody wants to know how the operations that are under way end.
    pub fn abandon(&self) {
        self.end.get_or_init(Instant::now);
        self.phase.fetch_max(ABANDON, Ordering::Relaxed);
    }

    /// True when an error has ended a thread.
    pub fn any_failed(&self) -> bool {
        self.threads.iter().any(|thread| thread.failed.load(Ordering::Relaxed))
    }

    /// True when all threads have ended, by having nothing left to do or by an error.
    pub fn all_ended(&self) -> bool {
        self.threads.iter().all(|thread| thread.ended.load(Ordering::Relaxed))
    }

    /// True when a thread has ended, for whichever reason.
    pub fn any_ended(&self) -> bool {
        self.threads.iter().any(|thread| thread.ended.load(Ordering::Relaxed))
    }

    /// The p99 of each kind since the last look, in nanoseconds.
    pub fn p99_ns(&self, seen: &mut [Seen]) -> Vec<u64> {
        let of_kind = |(kind, seen): (usize, &mut Seen)| {
            let threads = self.threads.iter().filter_map(|thread| thread.latencies.get(kind));
            seen.p99_ns(threads)
        };
        seen.iter_mut().enumerate().map(of_kind).collect()
    }

    /// For how long none of the threads that work got to run, at most, since the last time this was asked.
    pub fn longest_halt(&self) -> Duration {
        let works = |thread: &&Counters| !thread.ended.load(Ordering::Relaxed);
        let halts = self.threads.iter().filter(works);
        halts
            .map(|thread| thread.turns.longest_halt())
            .min()
            .unwrap_or_default()
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    /// What has been recorded up to now.
    pub fn counts(&self) -> Counts {
        let kinds = self.threads.first().map_or(0, |thread| thread.counts.len());
        let mut counts = Counts {
            operations: vec![0; kinds],
            errors: vec![0; kinds],
            ..Counts::default()
        };
        for thread in &self.threads {
            for kind in 0..kinds {
                counts.operations[kind] += thread.counts[kind].load(Ordering::Relaxed);
                counts.errors[kind] += thread.errors[kind].load(Ordering::Relaxed);
            }
            counts.restarts += thread.restarts.load(Ordering::Relaxed);
            counts.commands += thread.commands.load(Ordering::Relaxed);
            counts.document_bytes += thread.document_bytes.load(Ordering::Relaxed);
            counts.sent_bytes += thread.sent_bytes.load(Ordering::Relaxed);
        }
        counts
    }
}

/// What one thread recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Latencies in nanoseconds by kind of operation.
    pub latencies: Vec<Histogram<u64>>,
    /// Operations among these that were due or under way at the end and not answered: they would have taken longer.
    pub unfinished: u64,
    /// Each client's progress.
    pub clients: Vec<ClientProgress>,
    /// The first error that the server answered.
    pub first_error: Option<String>,
    /// What ended the thread before its time. What it recorded until then counts.
    pub failure: Option<Error>,
}

/// What one client achieved while it was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientProgress {
    /// Its operations that were done.
    pub operations: u64,
    /// The longest that one of them took. One still under way at the end counts with its time until then.
    pub longest: Duration,
}

enum State {
    Idle,
    Waiting { operation: usize, began: Instant },
    Finished,
}

struct Client {
    /// The thread that it belongs to.
    thread: usize,
    stream: TcpStream,
    incoming: Incoming,
    message: Message,
    actor: Box<dyn Actor>,
    state: State,
    /// When the request that waits for its reply was sent, or will be, to notice silence.
    sent: Instant,
    progress: ClientProgress,
}

impl Client {
    /// Sends the request. A server that takes nothing any more is noticed, and so is the end of the run.
    fn send(&mut self, shared: &Shared) -> Result<()> {
        let mut rest = self.message.bytes();
        let mut blocked: Option<Instant> = None;
        while !rest.is_empty() {
            shared.threads[self.thread].turns.note();
            match self.stream.write(rest) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::WriteZero)).doing("sending a request"),
                Ok(sent) => rest = &rest[sent..],
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    let since = blocked.get_or_insert_with(Instant::now).elapsed();
                    let patience = match shared.phase() {
                        ABANDON => Duration::ZERO,
                        STOP => DRAIN,
                        _ => REPLY_TIMEOUT,
                    };
                    if since > patience {
                        return Err(Error::NoReply {
                            seconds: since.as_secs(),
                        });
                    }
                }
                Err(error) => return Err(error).doing("sending a request"),
            }
        }
        if shared.phase() >= RECORD {
            add(
                &shared.threads[self.thread].sent_bytes,
                self.message.bytes().len() as u64,
            );
        }
        Ok(())
    }
}

/// One thread of the driver with its clients.
pub struct Worker<'s> {
    plan: &'s Plan,
    shared: &'s Shared,
    index: usize,
    clients: Vec<Client>,
    epoll: Option<OwnedFd>,
    schedule: Option<Schedule>,
    /// Clients whose request is not to be sent yet, and when it is. They count as waiting.
    pauses: BinaryHeap<Reverse<(Instant, usize)>>,
    latencies: Vec<Histogram<u64>>,
    unfinished: u64,
    errors: u64,
    first_error: Option<String>,
    waiting: usize,
}

impl<'s> Worker<'s> {
    /// Connects a thread's clients, unless the user wants to stop meanwhile: there may be many.
    pub fn connect(
        plan: &'s Plan,
        shared: &'s Shared,
        index: usize,
        address: SocketAddr,
        actors: Vec<Box<dyn Actor>>,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let mut clients = Vec::with_capacity(actors.len());
        for (number, actor) in actors.into_iter().enumerate() {
            interrupt.check()?;
            let stream = connect(address, LOOK)?;
            stream
                .set_write_timeout(Some(LOOK))
                .doing("setting the timeouts of a connection")?;
            let session = (u128::from(plan.seed) << 64) | ((index as u128) << 32) | number as u128;
            clients.push(Client {
                thread: index,
                stream,
                incoming: Incoming::default(),
                message: Message::new(session),
                actor,
                state: State::Idle,
                sent: Instant::now(),
                progress: ClientProgress::default(),
            });
        }
        let schedule = match plan.pacing {
            Pacing::Closed => None,
            Pacing::Open { rate } => {
                let rate = rate / shared.threads.len() as f64;
                Some(Schedule::new(plan.seed, rate, index, clients.len())?)
            }
        };
        let epoll = match (&schedule, clients.len()) {
            (None, 1) => None,
            _ => Some(watch(&clients, schedule.as_ref())?),
        };
        let latencies = plan
            .names
            .iter()
            .map(|_| Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are in order"))
            .collect();
        Ok(Self {
            plan,
            shared,
            index,
            clients,
            epoll,
            schedule,
            pauses: BinaryHeap::new(),
            latencies,
            unfinished: 0,
            errors: 0,
            first_error: None,
            waiting: 0,
        })
    }

    /// Works until the run is over or there is nothing left to do.
    pub fn run(mut self) -> Recorded {
        let failure = self.work().err();
        if self.shared.phase() == ABANDON {
            self.hang_up();
        }
        let counters = &self.shared.threads[self.index];
        counters.failed.store(failure.is_some(), Ordering::Relaxed);
        counters.ended.store(true, Ordering::Relaxed);
        Recorded {
            latencies: self.latencies,
            unfinished: self.unfinished,
            clients: self.clients.iter().map(|client| client.progress).collect(),
            first_error: self.first_error,
            failure,
        }
    }

    /// The server still carries out what it has received, and a statement may begin a transaction, or an insert make a
    /// collection: whoever cleans up after this run has to come behind them. That a connection is closed tells.
    fn hang_up(&mut self) {
        let until = Instant::now() + HANG_UP;
        for client in &self.clients {
            let _ = client.stream.shutdown(Shutdown::Write);
        }
        let mut dropped = [0; 4096];
        for client in &mut self.clients {
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() || client.stream.set_read_timeout(Some(left)).is_err() {
                    return;
                }
                match client.stream.read(&mut dropped) {
                    Ok(0) => break,
                    Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                    _ => {}
                }
            }
        }
    }

    fn work(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.schedule.is_none() {
            for client in 0..self.clients.len() {
                self.start(client, now, now)?;
            }
        }
        let mut events = Vec::with_capacity(self.clients.len() + 1);
        let mut stop_seen: Option<Instant> = None;
        let mut last_look = now;
        loop {
            self.shared.threads[self.index].turns.note();
            self.start_due()?;
            self.end_pauses()?;
            let any = self.wait(&mut events)?;
            for event in events.drain(..) {
                if event != TIMER {
                    self.receive(event as usize)?;
                }
            }
            let phase = self.shared.phase();
            if phase >= STOP {
                let since = *stop_seen.get_or_insert_with(|| self.note_unfinished());
                if phase == ABANDON || self.waiting == 0 || since.elapsed() > DRAIN {
                    self.record_unanswered();
                    return Ok(());
                }
            } else if self.waiting == 0
                && self
                    .clients
                    .iter()
                    .all(|client| matches!(client.state, State::Finished))
            {
                return Ok(());
            }
            if !any || last_look.elapsed() > LOOK {
                last_look = Instant::now();
                self.look_for_silence(last_look)?;
            }
        }
    }

    /// Fills in which clients can be read from. False when none can for a while.
    fn wait(&self, events: &mut Vec<u64>) -> Result<bool> {
        let pause = self
            .pauses
            .peek()
            .map(|Reverse((end, _))| end.saturating_duration_since(Instant::now()));
        let Some(epoll) = &self.epoll else {
            match pause {
                None => events.push(0),
                Some(pause) => std::thread::sleep(pause.min(LOOK)),
            }
            return Ok(true);
        };
        let mut ready: [epoll::Event; 64] = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 64];
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: pause.map_or(LOOK, |pause| pause.min(LOOK)).as_nanos() as i64,
        };
        let count = match epoll::wait(epoll, &mut ready, Some(&timeout)) {
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error).doing("waiting for replies"),
        };
        events.extend(ready[..count].iter().map(|event| event.data.u64()));
        Ok(count > 0)
    }

    fn receive(&mut self, index: usize) -> Result<()> {
        let client = &mut self.clients[index];
        if !matches!(client.state, State::Waiting { .. }) && self.epoll.is_none() {
            return Ok(());
        }
        let flags = match self.epoll {
            Some(_) => RecvFlags::DONTWAIT,
            None => RecvFlags::empty(),
        };
        loop {
            match client.incoming.receive(&client.stream, flags)? {
                Received::Whole => break,
                // The buffer was full, so that there may be more that the kernel does not tell of again.
                Received::Filled => {}
                Received::Part | Received::Nothing => return Ok(()),
            }
        }
        let State::Waiting { operation, began } = client.state else {
            return Err(Error::Protocol("a reply to no request".to_owned()));
        };
        let reply = client.incoming.body()?;
        let progress = match client.actor.advance(reply, &mut client.message) {
            Ok(Progress::Next) => {
                client.incoming.clear();
                client.sent = Instant::now();
                return client.send(self.shared);
            }
            Ok(Progress::Again { after }) => {
                client.incoming.clear();
                return self.begin_again(index, after);
            }
            other => other,
        };
        client.incoming.clear();
        client.state = State::Idle;
        self.waiting -= 1;
        let now = Instant::now();
        match progress {
            Ok(Progress::Next | Progress::Again { .. }) => {}
            Ok(Progress::Done { count, document_bytes }) => {
                self.record(index, operation, count, document_bytes, now - began)
            }
            Err(error @ Error::Refused { .. }) => self.refused(operation, error)?,
            Err(error) => return Err(error),
        }
        match &mut self.schedule {
            None => self.start(index, now, now),
            Some(schedule) => {
                schedule.idle.push_back(index);
                Ok(())
            }
        }
    }

    /// Starts a client's next operation, unless the run is over.
    fn start(&mut self, index: usize, began: Instant, now: Instant) -> Result<()> {
        let client = &mut self.clients[index];
        if self.shared.phase() >= STOP {
            return Ok(());
        }
        match client.actor.begin(&mut client.message) {
            None => {
                client.state = State::Finished;
                Ok(())
            }
            Some(operation) => {
                client.state = State::Waiting { operation, began };
                client.sent = now;
                self.waiting += 1;
                client.send(self.shared)
            }
        }
    }

    /// Sends the first request of an operation that begins again, at once or when its pause is over.
    fn begin_again(&mut self, index: usize, after: Duration) -> Result<()> {
        if self.shared.phase() == RECORD {
            add(&self.shared.threads[self.index].restarts, 1);
        }
        let client = &mut self.clients[index];
        client.sent = Instant::now() + after;
        if after.is_zero() {
            return client.send(self.shared);
        }
        self.pauses.push(Reverse((client.sent, index)));
        Ok(())
    }

    /// Sends the requests whose pause is over.
    fn end_pauses(&mut self) -> Result<()> {
        while let Some(Reverse((end, index))) = self.pauses.peek().copied()
            && end <= Instant::now()
        {
            self.pauses.pop();
            self.clients[index].send(self.shared)?;
        }
        Ok(())
    }

    /// The run is over: a client that has waited long for its operation must not go unseen, and neither must operations
    /// that were due and found no free client. Returns the moment.
    fn note_unfinished(&mut self) -> Instant {
        let now = Instant::now();
        for client in &mut self.clients {
            if let State::Waiting { began, .. } = client.state {
                client.progress.add(0, now.saturating_duration_since(began));
            }
        }
        let end = *self.shared.end.get_or_init(|| now);
        if let Some(schedule) = &mut self.schedule {
            // Of which kind they would have been is drawn from those that were.
            let waiting = self.clients.iter().filter_map(|client| match client.state {
                State::Waiting { operation, .. } => Some(operation),
                _ => None,
            });
            let mut kinds: Vec<u64> = self.latencies.iter().map(Histogram::len).collect();
            waiting.for_each(|kind| kinds[kind] += 1);
            for (latency, count) in schedule.overdue(end) {
                let kind = schedule.random_kind(&kinds);
                self.latencies[kind].saturating_record_n(latency.as_nanos() as u64, count);
                self.unfinished += count;
            }
        }
        now
    }

    /// Nobody waits for these any more.
    fn record_unanswered(&mut self) {
        let now = Instant::now();
        for client in &self.clients {
            if let State::Waiting { operation, began } = client.state {
                let ns = now.saturating_duration_since(began).as_nanos() as u64;
                self.latencies[operation].saturating_record(ns);
                self.unfinished += 1;
            }
        }
    }

    /// Open loop: gives what is due to clients that are free, and sets the timer for what comes next.
    fn start_due(&mut self) -> Result<()> {
        while let Some(schedule) = &mut self.schedule {
            if schedule.idle.is_empty() || self.shared.phase() >= STOP {
                return schedule.disarm();
            }
            let now = Instant::now();
            if schedule.next() > now {
                return schedule.arm(now);
            }
            let due = schedule.advance();
            if let Some(index) = schedule.idle.pop_front() {
                self.start(index, due, now)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, index: usize, operation: usize, count: u64, document_bytes: u64, took: Duration) {
        let ns = took.as_nanos() as u64;
        let phase = self.shared.phase();
        if phase == RECORD {
            let counters = &self.shared.threads[self.index];
            add(&counters.counts[operation], count);
            add(&counters.commands, 1);
            add(&counters.document_bytes, document_bytes);
            counters.latencies[operation].add(ns);
            self.clients[index].progress.add(count, took);
        }
        // What was under way at the end counts by how long it took alone.
        if phase >= RECORD {
            self.latencies[operation].saturating_record(ns);
        }
    }

    fn refused(&mut self, operation: usize, error: Error) -> Result<()> {
        self.errors += 1;
        // One that the end overtakes is an error as well.
        if self.shared.phase() >= RECORD {
            add(&self.shared.threads[self.index].errors[operation], 1);
            self.first_error
                .get_or_insert_with(|| format!("{}: {error}", self.plan.names[operation]));
        }
        if self.errors > ERRORS_MAX { Err(error) } else { Ok(()) }
    }

    fn look_for_silence(&self, now: Instant) -> Result<()> {
        let silent = |client: &Client| {
            matches!(client.state, State::Waiting { .. }) && now.saturating_duration_since(client.sent) > REPLY_TIMEOUT
        };
        if self.clients.iter().any(silent) {
            return Err(Error::NoReply {
                seconds: REPLY_TIMEOUT.as_secs(),
            });
        }
        Ok(())
    }
}

impl ClientProgress {
    fn add(&mut self, operations: u64, took: Duration) {
        self.operations += operations;
        self.longest = self.longest.max(took);
    }
}

/// One thread writes each counter, so that no atomic addition is needed.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

fn watch(clients: &[Client], schedule: Option<&Schedule>) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).doing("making an epoll")?;
    for (index, client) in clients.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        // Told once for what arrives: a reply is read whole, or read on until nothing is left.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &client.stream, data, flags).doing("watching a connection")?;
    }
    if let Some(schedule) = schedule {
        let data = epoll::EventData::new_u64(TIMER);
        epoll::add(&epoll, schedule.timer(), data, epoll::EventFlags::IN).doing("watching a timer")?;
    }
    Ok(epoll)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::RawDocument;
    use std::net::TcpListener;

    /// Asks for one thing.
    struct Once;

    impl Actor for Once {
        fn begin(&mut self, message: &mut Message) -> Option<usize> {
            message.begin("ping", "x");
            message.end_body("admin");
            Some(0)
        }

        fn advance(&mut self, _: &RawDocument, _: &mut Message) -> Result<Progress> {
            panic!("nobody answers")
        }
    }

    /// Half of what was due waited for seconds, and nothing of that was told: the server seemed to be fast.
    #[test]
    fn an_open_loop_counts_what_the_end_finds_undone() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let plan = Plan {
            names: &["ping"],
            pacing: Pacing::Open { rate: 1000.0 },
            seed: 1,
        };
        let shared = Shared::new(1, 1);
        shared.record();
        let actors: Vec<Box<dyn Actor>> = vec![Box::new(Once)];
        let worker = Worker::connect(&plan, &shared, 0, address, actors, &Interrupt::new()).expect("connected");
        let recorded = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                stream.read_exact(&mut [0; 16]).expect("a request");
                std::thread::sleep(Duration::from_millis(500));
                shared.stop();
                shared.abandon();
                stream.read_to_end(&mut Vec::new()).expect("the rest of it");
            });
            worker.run()
        });
        let latency = &recorded.latencies[0];
        assert_eq!((latency.len(), shared.counts().total()), (recorded.unfinished, 0));
        // Some 500 were due; each waited longer than those behind it.
        assert!((300..5000).contains(&latency.len()), "{}", latency.len());
        assert!(
            latency.max() >= 500_000_000 && latency.min() < 100_000_000,
            "{latency:?}"
        );
    }

    #[test]
    fn who_stops_waits_until_the_server_has_carried_out_what_it_received() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let plan = Plan {
            names: &["ping"],
            pacing: Pacing::Closed,
            seed: 1,
        };
        let shared = Shared::new(1, 1);
        let is_done = AtomicBool::new(false);
        let actors: Vec<Box<dyn Actor>> = vec![Box::new(Once)];
        let worker = Worker::connect(&plan, &shared, 0, address, actors, &Interrupt::new()).expect("connected");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut begun = [0; 16];
                stream.read_exact(&mut begun).expect("a request");
                shared.stop();
                shared.abandon();
                // To the end, which the client tells of: only then is all of it carried out.
                stream.read_to_end(&mut Vec::new()).expect("the rest of it");
                std::thread::sleep(LOOK);
                is_done.store(true, Ordering::SeqCst);
            });
            worker.run();
            assert!(is_done.load(Ordering::SeqCst));
        });
    }
}
