//! What workloads share: opening a subject with its background threads, loading, phases, and the figures of every run.

use crate::Outcome;
use crate::data::{Choice, Numbers, fill_value, index_key, record_key, spread};
use crate::driver::{Limits, Operation, Pace, Phase, drive, own_cost_us};
use crate::machine::{Usage, disk_bytes, join_memory_group, peak_resident_bytes};
use crate::outcome::OVER_MEMORY;
use crate::spec::RunSpec;
use crate::subject::{
    Counters, Durability, Layout, Scanned, Session, SessionResult, Subject, Table, TableUse, open, transact,
};
use crate::ticker::Ticker;
use anyhow::{Result, bail};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The table of the documents.
pub const RECORDS: Table = 0;
/// Rows per transaction of a load that is not measured.
pub const LOAD_BATCH: u64 = 100;
/// Clients of an open loop ask for this share of what the closed loop reached.
const OPEN_SHARE: f64 = 0.7;
/// The longest time they do.
const OPEN_SECONDS_MAX: f64 = 60.0;

/// Memory over the cache at which data of four times the cache may lie in memory for the most part.
const MEMORY_VOID: f64 = 3.0;

/// The phase of a closed loop.
pub const CLOSED: u32 = 0;
/// The phase of an open loop.
pub const OPEN: u32 = 1;
/// What comes before these, so that the cache holds what reads leave in it.
pub const WARM_UP: u32 = 2;
/// What comes behind them.
pub const AFTER: u32 = 3;

/// Who draws random numbers: a client's thread in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// One of the phases above.
    pub phase: u32,
    /// The number of the thread.
    pub thread: usize,
}

impl Stream {
    fn numbers(self, seed: u64) -> Numbers {
        let of_phase = spread(seed).wrapping_add(u64::from(self.phase));
        Numbers::new(spread(of_phase).wrapping_add(self.thread as u64))
    }
}

/// A run in progress. Invariant: `subject` is open unless a workload has closed it on purpose.
pub struct Bench {
    /// What to do; `cache_bytes` is what subjects are opened with.
    pub spec: RunSpec,
    /// What was found so far.
    pub outcome: Outcome,
    subject: Option<Arc<dyn Subject>>,
    checkpointer: Option<Ticker>,
    checkpoints_ms: Arc<Mutex<Vec<f64>>>,
    watcher: Option<Ticker>,
    data_peak: Arc<AtomicU64>,
    resident_before: u64,
}

impl Bench {
    /// Prepares a run; opens nothing yet.
    pub fn new(spec: RunSpec) -> Result<Self> {
        let mut outcome = Outcome {
            workload: spec.workload,
            subject: spec.subject,
            pair: 0,
            seed: spec.seed,
            figures: BTreeMap::new(),
            slices: Vec::new(),
            notes: Vec::new(),
        };
        if let Some(group) = &spec.memory_group {
            let cache = if spec.workload.exceeds_cache() {
                spec.small_cache_bytes
            } else {
                spec.cache_bytes
            };
            if let Err(error) = join_memory_group(group, cache + cache / 2) {
                outcome.notes.push(format!("no memory limit: {error:#}"));
            }
        }
        Ok(Self {
            spec,
            outcome,
            subject: None,
            checkpointer: None,
            checkpoints_ms: Arc::default(),
            watcher: None,
            data_peak: Arc::default(),
            resident_before: peak_resident_bytes(),
        })
    }

    /// Where the subject keeps its files.
    pub fn layout(&self) -> Layout {
        self.spec.subject.layout(&self.spec.directory)
    }

    /// Opens the subject, with checkpoints in the background when asked.
    pub fn open(&mut self, background: Background) -> Result<Arc<dyn Subject>> {
        let subject = open(&self.spec)?;
        self.subject = Some(subject.clone());
        if background == Background::Checkpoints {
            let (checkpointed, times) = (subject.clone(), self.checkpoints_ms.clone());
            let interval = Duration::from_secs_f64(self.spec.checkpoint_seconds);
            self.checkpointer = Some(Ticker::start("checkpointer", interval, move || {
                let start = Instant::now();
                match checkpointed.checkpoint() {
                    Ok(()) => times.lock().push(start.elapsed().as_secs_f64() * 1e3),
                    Err(error) => eprintln!("a checkpoint failed: {error:#}"),
                }
            })?);
        }
        let (layout, peak) = (self.layout(), self.data_peak.clone());
        self.watcher = Some(Ticker::start("size-watcher", Duration::from_secs(1), move || {
            peak.fetch_max(data_bytes(&layout), Ordering::Relaxed);
        })?);
        Ok(subject)
    }

    /// Closes the subject with a last checkpoint; all other users must have let go of it.
    pub fn close(&mut self) -> Result<()> {
        self.checkpointer = None;
        self.watcher = None;
        match self.subject.take() {
            Some(subject) => subject.close(),
            None => Ok(()),
        }
    }

    /// Opens the subject, creates its tables and fills them with `rows` rows; a checkpoint ends it.
    pub fn open_loaded(&mut self, background: Background, rows: u64, indexes: u32) -> Result<Arc<dyn Subject>> {
        let subject = self.open(background)?;
        self.create_tables(&*subject, indexes)?;
        self.load(&*subject, rows, indexes)?;
        subject.checkpoint()?;
        Ok(subject)
    }

    /// The table of documents, and index tables 1, 2, ...
    pub fn create_tables(&self, subject: &dyn Subject, indexes: u32) -> Result<()> {
        subject.create_table(RECORDS, TableUse::Records)?;
        for index in 1..=indexes {
            subject.create_table(index, TableUse::Index)?;
        }
        Ok(())
    }

    /// Inserts rows `0..rows` in order, in batches.
    pub fn load(&self, subject: &dyn Subject, rows: u64, indexes: u32) -> Result<()> {
        let mut session = subject.session()?;
        let mut inserter = Inserter::new(&self.spec, indexes, 0, 1);
        while inserter.next_row() < rows {
            let batch = LOAD_BATCH.min(rows - inserter.next_row());
            inserter.insert(&mut *session, batch, Durability::Buffered)?;
        }
        Ok(())
    }

    /// Walks the table once; it must have so many rows.
    pub fn warm(&self, subject: &dyn Subject, rows: u64) -> Result<()> {
        let scanned = scan_once(&mut *subject.session()?)?;
        if scanned.rows != rows {
            bail!("{} rows after loading {rows}", scanned.rows);
        }
        Ok(())
    }

    /// A closed loop, whose figures become the run's, and an open loop at 70 % of its rate if the run has one. `make`
    /// gets the phase: the open one must not ask for the very rows that the closed one has left in memory.
    pub fn measure<'a>(
        &mut self,
        subject: &dyn Subject,
        limits: Limits<'_>,
        make: &(dyn Fn(Stream) -> Operation<'a> + Sync),
    ) -> Result<Phase> {
        let cost = own_cost_us(subject)?;
        self.outcome.set("driver_us_per_op", cost);
        let threads = self.spec.threads;
        let counters = subject.counters()?;
        let in_phase = |phase| move |thread: usize| make(Stream { phase, thread });
        let closed = drive(subject, threads, limits, Pace::Closed, &in_phase(CLOSED))?;
        self.outcome.set_closed(&closed);
        let operations = closed.operations.max(1) as f64;
        let after = subject.counters()?;
        self.outcome.set("syncs", (after.syncs - counters.syncs) as f64);
        if let Some(blocks) = blocks_between(&counters, &after) {
            self.outcome.set("block_reads_per_op", blocks / operations);
        }
        // What a checkpoint still has to write belongs to the operations before it.
        let closing = self.checkpoint(subject)?;
        let written = closed.usage.written_bytes + closing.written_bytes;
        self.outcome.set("written_b_per_op_closed", written as f64 / operations);
        let cpu = closed.usage.cpu + closing.cpu;
        self.outcome
            .set("cpu_us_per_op_closed", cpu.as_secs_f64() * 1e6 / operations);
        if self.spec.open_loop {
            let rate = closed.calls as f64 / closed.seconds.max(1e-9) * OPEN_SHARE;
            let limits = Limits::seconds(self.spec.seconds.min(OPEN_SECONDS_MAX));
            let open = drive(subject, threads, limits, Pace::Open { rate }, &in_phase(OPEN))?;
            self.outcome.set_open(&open);
        }
        Ok(closed)
    }

    /// A checkpoint that is waited for, as the figure `checkpoint_ms`; answers what it used.
    pub fn checkpoint(&mut self, subject: &dyn Subject) -> Result<Usage> {
        let (before, start) = (Usage::now(), Instant::now());
        subject.checkpoint()?;
        self.outcome.set("checkpoint_ms", start.elapsed().as_secs_f64() * 1e3);
        Ok(Usage::now().since(&before))
    }

    /// The figures every run has.
    pub fn finish(mut self) -> Result<Outcome> {
        let layout = self.layout();
        self.checkpointer = None;
        self.watcher = None;
        let (data, log) = (data_bytes(&layout), disk_bytes(&layout.log));
        let peak = self.data_peak.load(Ordering::Relaxed).max(data);
        let resident = peak_resident_bytes();
        let grown = resident.saturating_sub(self.resident_before);
        let checkpoints = std::mem::take(&mut *self.checkpoints_ms.lock());
        let outcome = &mut self.outcome;
        outcome.set("data_mib", mib(data));
        outcome.set("data_peak_mib", mib(peak));
        outcome.set("log_mib", mib(log));
        outcome.set("rss_peak_mib", mib(resident));
        let over_cache = grown as f64 / self.spec.cache_bytes.max(1) as f64;
        outcome.set("rss_over_cache", over_cache);
        if self.spec.workload.exceeds_cache() && over_cache >= MEMORY_VOID {
            outcome.set(OVER_MEMORY, over_cache);
            let note = format!("memory grew to {over_cache:.1} times the cache: not a run on data larger than memory");
            outcome.notes.push(note);
        }
        outcome.set("checkpoints", checkpoints.len() as f64);
        if let Some(longest) = checkpoints.iter().copied().reduce(f64::max) {
            outcome.set("checkpoint_max_ms", longest);
        }
        Ok(self.outcome)
    }
}

/// Whether a subject is opened with checkpoints in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Every `checkpoint_seconds`.
    Checkpoints,
    /// The workload says when.
    Nothing,
}

/// Blocks read from one look at the counters to another.
pub fn blocks_between(before: &Counters, after: &Counters) -> Option<f64> {
    let blocks = after.blocks_read?.saturating_sub(before.blocks_read?);
    Some(blocks as f64)
}

/// What the tables take on disk, the log left out wherever it lies.
pub fn data_bytes(layout: &Layout) -> u64 {
    let inside = layout.log.starts_with(&layout.data);
    let log = if inside { disk_bytes(&layout.log) } else { 0 };
    disk_bytes(&layout.data).saturating_sub(log)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// Walks the table of documents in a transaction of its own.
pub fn scan_once(session: &mut dyn Session) -> Result<Scanned> {
    session.begin()?;
    let scanned = session.scan(RECORDS)?;
    session.commit(Durability::Buffered)?;
    Ok(scanned)
}

/// Inserts rows in the order of their ids: thread `first` of `step` inserts every `step`-th one.
pub struct Inserter {
    next: u64,
    step: u64,
    indexes: u32,
    value_bytes: usize,
    value: Vec<u8>,
    numbers: Numbers,
}

impl Inserter {
    /// See the type.
    pub fn new(spec: &RunSpec, indexes: u32, first: u64, step: u64) -> Self {
        Self {
            next: first,
            step,
            indexes,
            value_bytes: spec.value_bytes,
            value: Vec::with_capacity(spec.value_bytes),
            numbers: Numbers::new(spec.seed ^ first),
        }
    }

    /// The row that comes next.
    pub fn next_row(&self) -> u64 {
        self.next
    }

    /// Inserts so many rows in one transaction.
    pub fn insert(&mut self, session: &mut dyn Session, rows: u64, durability: Durability) -> Result<u64> {
        self.insert_and(session, rows, durability, |_| Ok(()))
    }

    /// As [`Inserter::insert`], with something else in the same transaction.
    pub fn insert_and(
        &mut self,
        session: &mut dyn Session,
        rows: u64,
        durability: Durability,
        also: impl Fn(&mut dyn Session) -> SessionResult<()>,
    ) -> Result<u64> {
        let first = self.next;
        transact(session, durability, |session| {
            for row in (first..).step_by(self.step as usize).take(rows as usize) {
                fill_value(&mut self.value, self.value_bytes, row, &mut self.numbers);
                session.put(RECORDS, &record_key(row), &self.value)?;
                for index in 1..=self.indexes {
                    session.put(index, &index_key(row, index), &[])?;
                }
            }
            also(session)
        })?;
        self.next += rows * self.step;
        Ok(rows)
    }
}

/// Reads or updates rows at random.
pub struct Picker {
    choice: Choice,
    value_bytes: usize,
    found: Vec<u8>,
    value: Vec<u8>,
    numbers: Numbers,
}

impl Picker {
    /// Each thread picks its own, in each phase.
    pub fn new(spec: &RunSpec, choice: Choice, stream: Stream) -> Self {
        Self {
            choice,
            value_bytes: spec.value_bytes,
            found: Vec::with_capacity(spec.value_bytes),
            value: Vec::with_capacity(spec.value_bytes),
            numbers: stream.numbers(spec.seed),
        }
    }

    /// Whether a coin shows heads.
    pub fn coin(&mut self) -> bool {
        self.numbers.draw() & 1 == 1
    }

    /// Reads one row, which must be there and hold its own id.
    pub fn read(&mut self, session: &mut dyn Session) -> Result<u64> {
        let row = self.choice.draw(&mut self.numbers);
        session.begin()?;
        let is_there = session.get(RECORDS, &record_key(row), &mut self.found)?;
        session.commit(Durability::Buffered)?;
        self.check(row, is_there)?;
        Ok(1)
    }

    /// Reads one row and replaces its value.
    pub fn update(&mut self, session: &mut dyn Session) -> Result<u64> {
        let row = self.choice.draw(&mut self.numbers);
        fill_value(&mut self.value, self.value_bytes, row, &mut self.numbers);
        let mut is_there = false;
        transact(session, Durability::Buffered, |session| {
            is_there = session.get(RECORDS, &record_key(row), &mut self.found)?;
            session.put(RECORDS, &record_key(row), &self.value)
        })?;
        self.check(row, is_there)?;
        Ok(1)
    }

    /// Adds 1 to the counter of one row.
    pub fn count(&mut self, session: &mut dyn Session) -> Result<u64> {
        let row = self.choice.draw(&mut self.numbers);
        transact(session, Durability::Buffered, |session| {
            session.add(RECORDS, &record_key(row), 1)
        })?;
        Ok(1)
    }

    fn check(&self, row: u64, is_there: bool) -> Result<()> {
        if !is_there || !self.found.starts_with(&row.to_le_bytes()) || self.found.len() != self.value_bytes {
            bail!(
                "row {row} of {} has {} bytes: {:02x?}",
                self.choice.rows(),
                self.found.len(),
                self.found.get(..8)
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The open loop asked for the rows that the closed one had just brought into memory.
    #[test]
    fn no_two_phases_or_threads_draw_the_same() {
        let mut first = std::collections::BTreeSet::new();
        for phase in [CLOSED, OPEN, WARM_UP, AFTER] {
            for thread in 0..64 {
                let mut numbers = Stream { phase, thread }.numbers(7);
                assert!(first.insert(numbers.draw()), "{phase} {thread}");
            }
        }
        let again = || Stream { phase: OPEN, thread: 3 }.numbers(7).draw();
        assert_eq!(again(), again());
    }
}
