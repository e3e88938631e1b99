//! One measurement: some connections, each on a thread of its own, doing one thing over and over.
//!
//! Numbered steps of a run: 1. every thread connects and warms up; 2. the figures of the server are read and the threads
//! told to record; 3. after the time is over the figures are read again and the threads told to stop; 4. what they
//! recorded is added up. A thread that fails stops the run, and the run is an error.
//!
//! Invariant: the phase only goes forward, so a thread that has seen `Stop` is never asked to go on.

use crate::connection::Connection;
use crate::messages::{BATCH, INSERTS, Random, Request, Templates};
use crate::process::{Usage, usage};
use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a connection does over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Insert one document.
    Insert,
    /// Insert [`BATCH`] documents at once; each document counts as an operation.
    InsertBatch,
    /// Find one document by `_id`.
    Read,
    /// `$set` one field of a document by `_id`.
    Update,
    /// Read and update in turn.
    Mix,
}

impl Workload {
    /// All, in the order they are run.
    pub const ALL: [Workload; 5] = [
        Workload::Insert,
        Workload::InsertBatch,
        Workload::Read,
        Workload::Update,
        Workload::Mix,
    ];

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Insert => "insert",
            Workload::InsertBatch => "insert-1000",
            Workload::Read => "read",
            Workload::Update => "update",
            Workload::Mix => "mix",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// True when it leaves documents in [`INSERTS`].
    pub fn inserts(self) -> bool {
        matches!(self, Workload::Insert | Workload::InsertBatch)
    }

    /// True when it changes anything.
    pub fn writes(self) -> bool {
        self != Workload::Read
    }

    /// Operations that one request counts for.
    fn operations(self) -> u64 {
        if self == Workload::InsertBatch { BATCH as u64 } else { 1 }
    }
}

/// Says to all threads of a run how far it is.
#[derive(Debug, Default)]
pub struct Phase(AtomicU8);

impl Phase {
    const WARM_UP: u8 = 0;
    const RECORD: u8 = 1;
    const STOP: u8 = 2;

    /// Threads shall warm up.
    pub fn new() -> Self {
        Self(AtomicU8::new(Self::WARM_UP))
    }

    /// Threads shall record from now on, if they have not been stopped.
    pub fn record(&self) {
        self.0.fetch_max(Self::RECORD, Ordering::Relaxed);
    }

    /// Threads shall end.
    pub fn stop(&self) {
        self.0.fetch_max(Self::STOP, Ordering::Relaxed);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The same for all threads of a run.
pub struct Target {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Documents loaded before.
    pub documents: u64,
    /// Numbers for inserted documents, so that no two are the same.
    pub next_insert: AtomicU64,
}

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// What was done.
    pub workload: Workload,
    /// By how many connections.
    pub connections: usize,
    /// Operations (documents, for batches) recorded.
    pub operations: u64,
    /// How long was recorded.
    pub elapsed: Duration,
    /// CPU time of the server while recording, when its process is known.
    pub server_cpu: Option<Duration>,
    /// Bytes the server wrote, from the start of the recording until all was made durable.
    pub written_bytes: Option<u64>,
    /// Time of each request in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Measurement {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Server CPU per operation in microseconds.
    pub fn cpu_us(&self) -> Option<f64> {
        let cpu = self.server_cpu?;
        (self.operations > 0).then(|| cpu.as_secs_f64() * 1e6 / self.operations as f64)
    }

    /// Bytes written to disk per operation.
    pub fn written_per_operation(&self) -> Option<f64> {
        let written = self.written_bytes?;
        (self.operations > 0).then(|| written as f64 / self.operations as f64)
    }
}

/// How long to run.
#[derive(Clone, Copy, Debug)]
pub struct Durations {
    /// Before recording.
    pub warm_up: Duration,
    /// Recorded.
    pub record: Duration,
}

/// Runs a workload. `pid`: the server's process, to read what it uses.
pub fn run(
    target: &Target,
    workload: Workload,
    connections: usize,
    durations: Durations,
    pid: Option<u32>,
) -> Result<Measurement> {
    let phase = Phase::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..connections)
            .map(|index| {
                let phase = &phase;
                scope.spawn(move || {
                    let result = work(target, workload, index as u64, phase);
                    // One that has failed must not leave the others running for nothing.
                    result.inspect_err(|_| phase.stop())
                })
            })
            .collect();
        wait(&phase, durations.warm_up);
        let before = pid.map(usage).transpose();
        let start = Instant::now();
        phase.record();
        wait(&phase, durations.record);
        let after = pid.map(usage).transpose();
        let elapsed = start.elapsed();
        phase.stop();

        let mut latency = new_histogram()?;
        for worker in workers {
            let recorded = worker
                .join()
                .map_err(|_| anyhow!("a thread of the generator panicked"))??;
            latency.add(&recorded).context("adding up latencies")?;
        }
        let (before, after): (Option<Usage>, Option<Usage>) = (before?, after?);
        let written = match (before, pid) {
            (Some(before), Some(pid)) => Some(written_when_durable(target, workload, pid)? - before.written_bytes),
            _ => None,
        };
        Ok(Measurement {
            workload,
            connections,
            operations: latency.len() * workload.operations(),
            elapsed,
            server_cpu: before.zip(after).map(|(before, after)| after.cpu - before.cpu),
            written_bytes: written,
            latency,
        })
    })
}

/// Waits, but not for a run that has failed.
fn wait(phase: &Phase, duration: Duration) {
    let end = Instant::now() + duration;
    while phase.get() != Phase::STOP {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// What was inserted may still be in memory only: `fsync` makes it count. A server without the command is asked in vain.
fn written_when_durable(target: &Target, workload: Workload, pid: u32) -> Result<u64> {
    if workload.writes() {
        let request = Templates::new(0).command(bson::rawdoc! { "fsync": 1 }, "admin");
        Connection::open(target.address)?.call(&request)?;
    }
    Ok(usage(pid)?.written_bytes)
}

/// Up to two minutes in nanoseconds, three digits.
fn new_histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).context("making a histogram")
}

/// What one thread does. Returns the latencies of its recorded requests.
pub fn work(target: &Target, workload: Workload, thread: u64, phase: &Phase) -> Result<Histogram<u64>> {
    let mut connection = Connection::open(target.address)?;
    let mut requests = Requests::new(workload, thread);
    let mut latency = new_histogram()?;
    let mut began = Instant::now();
    loop {
        let recording = match phase.get() {
            Phase::STOP => return Ok(latency),
            phase => phase == Phase::RECORD,
        };
        requests.once(target, &mut connection)?;
        let now = Instant::now();
        if recording {
            latency.saturating_record((now - began).as_nanos() as u64);
        }
        began = now;
    }
}

/// The requests of one thread, and which is next.
struct Requests {
    workload: Workload,
    random: Random,
    turn: u64,
    read: Request,
    update: Request,
    inserts: Vec<Request>,
}

impl Requests {
    fn new(workload: Workload, thread: u64) -> Self {
        let templates = Templates::new(thread + 1);
        let inserts = match workload {
            Workload::Insert => templates.inserts(),
            Workload::InsertBatch => vec![templates.batch_insert(INSERTS)],
            _ => Vec::new(),
        };
        Self {
            workload,
            random: Random::new(thread),
            turn: 0,
            read: templates.point_read(),
            update: templates.update(),
            inserts,
        }
    }

    fn once(&mut self, target: &Target, connection: &mut Connection) -> Result<()> {
        self.turn += 1;
        let reads = match self.workload {
            Workload::Insert | Workload::InsertBatch => return self.insert(target, connection),
            Workload::Read => true,
            Workload::Update => false,
            Workload::Mix => self.turn.is_multiple_of(2),
        };
        let number = self.random.below(target.documents);
        if reads {
            self.read.set_id(0, number);
            return connection.read_one(&self.read);
        }
        self.update.set_id(0, number);
        self.update.set_value(self.random.next() as i64);
        connection.write(&self.update, 1)
    }

    fn insert(&mut self, target: &Target, connection: &mut Connection) -> Result<()> {
        let which = self.turn as usize % self.inserts.len();
        let request = &mut self.inserts[which];
        let count = request.id_count();
        let first = target.next_insert.fetch_add(count as u64, Ordering::Relaxed);
        (0..count).for_each(|index| request.set_id(index, first + index as u64));
        connection.write(request, count)
    }
}

#[cfg(test)]
mod tests;
