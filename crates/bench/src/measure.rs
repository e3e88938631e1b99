//! One run: clients at work, looked at every second.
//!
//! Numbered steps: 1. the threads connect and warm up; 2. counters are read, the threads told to record; 3. every
//! second the counters are read again, until the time is over, the work is done, or something ends the run; 4. the
//! threads are told to stop; 5. what was written is made durable, so that it counts; 6. all is put into one [`Run`].
//!
//! Whatever goes wrong, what was measured until then is in the run, and the run says how it ended.

use crate::actor::Actor;
use crate::buckets::Seen;
use crate::context::Context;
use crate::driver::{ClientProgress, Counts, Plan, Recorded, Shared, Worker};
use crate::error::{Error, Result, chain};
use crate::followers::Followers;
use crate::limits;
use crate::procfs::{self, Usage};
use crate::subject::Subject;
use crate::watch::Watch;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use report::{Latency, Operation, Outcome, Pacing, Run, Series};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// One point of a series.
const INTERVAL: Duration = Duration::from_secs(1);
/// A point that comes so much too late is none when no client got to run meanwhile.
const LATE: Duration = Duration::from_millis(500);
/// Points of intervals that are so much shorter or longer are taken to the usual length.
const UNEVEN: Duration = Duration::from_millis(50);
/// Between two looks at whether something ended the run.
const LOOK: Duration = Duration::from_millis(50);
/// A disk with less left is about to be full; stopping now leaves room for the results.
const DISK_LEFT_MIN: u64 = 64 << 20;

/// What is done in a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The workload's name.
    pub workload: &'static str,
    /// The phase's name.
    pub phase: String,
    /// Names of the operations.
    pub names: &'static [&'static str],
    /// When operations start.
    pub pacing: Pacing,
    /// Before recording; not for work that ends by itself.
    pub warm_up: Duration,
    /// How long is recorded; `None`: until the work is done.
    pub duration: Option<Duration>,
    /// How much work there is, when that is known.
    pub expected: Option<u64>,
    /// What makes runs comparable.
    pub parameters: BTreeMap<String, String>,
    /// Seed of the run.
    pub seed: u64,
    /// Operations that a command counts for, so that a rate is that of operations.
    pub batch: u64,
    /// Drop the pages of the server's files every second: an I/O-bound run on a machine with much memory.
    pub drop_pages: bool,
    /// Operations may have to begin again: report how often they did, and how evenly the clients progressed.
    pub contended: bool,
}

impl Phase {
    /// Work that ends by itself, in a closed loop.
    pub fn work(workload: &'static str, phase: &str, names: &'static [&'static str], expected: Option<u64>) -> Self {
        Self {
            workload,
            phase: phase.to_owned(),
            names,
            pacing: Pacing::Closed,
            warm_up: Duration::ZERO,
            duration: None,
            expected,
            parameters: BTreeMap::new(),
            seed: 0,
            batch: 1,
            drop_pages: false,
            contended: false,
        }
    }

    /// Work for the time and at the pace that the user chose.
    pub fn timed(
        workload: &'static str,
        phase: &str,
        names: &'static [&'static str],
        context: &Context,
        duration: Duration,
    ) -> Self {
        Self {
            pacing: context.options.pacing(),
            warm_up: context.options.warm_up,
            duration: Some(context.options.duration.unwrap_or(duration)),
            ..Self::work(workload, phase, names, None)
        }
    }

    /// Adds a parameter.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.parameters.insert(name.to_owned(), value.to_string());
        self
    }
}

/// All counters at one moment.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    server: Option<Usage>,
    own: Option<Usage>,
    /// Processor time of everybody else, since whenever.
    others: Option<Duration>,
    disk_reads: Option<u64>,
}

impl Look {
    fn now(subject: &Subject) -> Self {
        Self {
            at: Instant::now(),
            server: subject
                .pid()
                .and_then(|pid| procfs::usage_with_data(pid, subject.data()).ok()),
            own: procfs::usage(std::process::id()).ok(),
            others: None,
            disk_reads: subject.data().and_then(procfs::disk_reads),
        }
    }

    /// With that of others, which takes longer to find out.
    fn at_edge(subject: &Subject) -> Self {
        Self {
            others: procfs::others_cpu(subject.pid()),
            ..Self::now(subject)
        }
    }
}

/// Runs a phase with one client per actor. The result is not kept yet.
pub fn measure(context: &Context, subject: &mut Subject, phase: &Phase, actors: Vec<Box<dyn Actor>>) -> Run {
    let mut run = blank(context, subject, phase, actors.len());
    if let Err(error) = measure_into(&mut run, context, subject, phase, actors) {
        run.outcome = outcome(&explained(error, subject));
    }
    run
}

/// Keeps a run that says why a phase makes no sense here.
pub fn skip(context: &mut Context, subject: &Subject, phase: &Phase, clients: usize, reason: &str) -> Result<()> {
    let mut run = blank(context, subject, phase, clients);
    run.outcome = Outcome::Skipped {
        message: reason.to_owned(),
    };
    context.keep(run)
}

/// A run of which nothing has been measured yet.
fn blank(context: &Context, subject: &Subject, phase: &Phase, clients: usize) -> Run {
    let mut run = Run::new(phase.workload, phase.phase.as_str(), subject.configuration.clone());
    run.parameters.clone_from(&phase.parameters);
    run.parameters
        .insert("scale".to_owned(), context.options.scale.to_string());
    let (limits, is_limited) = subject.limits_now();
    let limit = |bytes: u64| match is_limited {
        true => bytes.to_string(),
        false => "NOT limited".to_owned(),
    };
    let duration = context.options.duration.filter(|_| phase.duration.is_some());
    let chosen = [
        ("memoryBytes", limits.memory_bytes.map(limit)),
        ("diskBytesPerSecond", limits.read_bytes_per_second.map(limit)),
        ("duration", duration.map(|time| time.as_secs_f64().to_string())),
    ];
    let chosen = chosen
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    run.parameters.extend(chosen);
    run.seed = context.options.seed;
    run.repetition = context.repetition;
    run.clients = clients as u32;
    run.pacing = phase.pacing;
    run.started_ms = procfs::now_ms();
    run.notes.clone_from(&subject.notes);
    run
}

/// How a run ended that an error ended.
pub fn outcome(error: &Error) -> Outcome {
    if matches!(error, Error::Interrupted) {
        return Outcome::Interrupted;
    }
    Outcome::Failed { message: chain(error) }
}

fn measure_into(
    run: &mut Run,
    context: &Context,
    subject: &mut Subject,
    phase: &Phase,
    actors: Vec<Box<dyn Actor>>,
) -> Result<()> {
    let plan = Plan {
        names: phase.names,
        pacing: match phase.pacing {
            Pacing::Closed => Pacing::Closed,
            Pacing::Open { rate } => Pacing::Open {
                rate: rate / phase.batch as f64,
            },
        },
        seed: phase.seed ^ context.options.seed,
    };
    let threads = context.options.threads(actors.len());
    let shared = Arc::new(Shared::new(threads, phase.names.len()));
    let mut followers = Followers::of(subject, &shared);
    let address = subject.address();
    let watch = Watch::start(address);
    let mut parts: Vec<Vec<Box<dyn Actor>>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, actor) in actors.into_iter().enumerate() {
        parts[index % threads].push(actor);
    }
    let title = format!("{} {} {}", subject.configuration.label, phase.workload, phase.phase);
    let bar = context.bar(
        &title,
        phase.duration.map(|time| time.as_millis() as u64).or(phase.expected),
    );
    thread::scope(|scope| {
        let mut connected = Vec::with_capacity(threads);
        for (index, part) in parts.into_iter().enumerate() {
            connected.push(Worker::connect(
                &plan,
                &shared,
                index,
                address,
                part,
                &context.interrupt,
            )?);
        }
        // Work that ends by itself counts from its first operation on.
        let from_the_start = phase
            .warm_up
            .is_zero()
            .then(|| begin(subject, &shared, followers.as_mut()));
        let workers: Vec<_> = connected
            .into_iter()
            .map(|worker| scope.spawn(move || worker.run()))
            .collect();
        let mut ended = warm_up(context, subject, phase, &shared);
        let before = from_the_start.unwrap_or_else(|| begin(subject, &shared, followers.as_mut()));
        let mut series = Sampler::new(phase, &before);
        if ended.is_ok() {
            ended = observe(context, subject, phase, &shared, &watch, &mut series, &bar);
        }
        let after = Look::at_edge(subject);
        shared.stop();
        bar.finish_and_clear();
        if matches!(ended, Err(Error::Interrupted)) {
            // Nobody waits for operations that are under way, least of all for those of a server that stands still.
            shared.abandon();
            subject.abandon();
        }
        let recorded: Vec<Recorded> = workers
            .into_iter()
            .map(|worker| worker.join().expect("a thread of the driver does not panic"))
            .collect();
        if let Some(followers) = &mut followers {
            followers.end(&shared);
        }
        // Only now do the counters stand still.
        let counts = shared.counts();
        series.finish(run, phase, &watch, &after, counts.commands);
        fill(run, &counts, &before, &after);
        if phase.contended {
            let clients: Vec<ClientProgress> = recorded.iter().flat_map(|thread| &thread.clients).copied().collect();
            contention(run, &counts, &clients);
        }
        let failure = combine(run, phase, &counts, recorded);
        ended = match (ended, failure) {
            (Err(error @ (Error::Interrupted | Error::ServerDied { .. })), _) => Err(error),
            (_, Some(error)) => Err(error),
            (ended, None) => ended,
        };
        ended?;
        run.notes.extend(missed_rate(run, phase, &counts));
        if let Some(followers) = &mut followers {
            followers.catch_up(subject)?;
        }
        settle(run, subject, &before, &after)?;
        match followers {
            Some(followers) => followers.settle(run, subject),
            None => Ok(()),
        }
    })
}

/// From here on all that happens counts.
fn begin(subject: &Subject, shared: &Shared, followers: Option<&mut Followers>) -> Look {
    if let Some(followers) = followers {
        followers.begin(subject, shared);
    }
    let before = Look::at_edge(subject);
    shared.record();
    before
}

/// A dead server shows as a broken connection first, and a full disk as anything: these say more than what went wrong.
pub(crate) fn explained(error: Error, subject: &mut Subject) -> Error {
    use Error::{DiskFull, Interrupted, Io, Kept, NoPrimary, NoReply, Protocol, Refused, Report};
    let may_be_its_end = matches!(
        error,
        Io { .. } | Protocol(_) | NoReply { .. } | NoPrimary { .. } | Refused { .. }
    );
    let died = may_be_its_end.then(|| subject.why_dead()).flatten();
    let error = died.unwrap_or(error);
    match (&error, check_disk(subject)) {
        (Interrupted | DiskFull { .. } | Kept(_) | Report(_), _) | (_, Ok(())) => error,
        (
            _,
            Err(Error::DiskFull {
                directory,
                available_bytes,
                ..
            }),
        ) => Error::DiskFull {
            directory,
            available_bytes,
            source: Some(Box::new(error)),
        },
        (_, Err(other)) => other,
    }
}

fn warm_up(context: &Context, subject: &mut Subject, phase: &Phase, shared: &Shared) -> Result<()> {
    let end = Instant::now() + phase.warm_up;
    while Instant::now() < end && !shared.any_failed() {
        context.interrupt.check()?;
        subject.check()?;
        thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Looks at the run until it is over.
fn observe(
    context: &Context,
    subject: &mut Subject,
    phase: &Phase,
    shared: &Shared,
    watch: &Watch,
    series: &mut Sampler,
    bar: &ProgressBar,
) -> Result<()> {
    let start = series.start;
    let end = phase.duration.map(|duration| start + duration);
    let mut tick = start + INTERVAL;
    loop {
        context.interrupt.check()?;
        let now = Instant::now();
        let counts = shared.counts();
        if now >= tick {
            series.sample(subject, &counts, watch, shared);
            tick = series.next_tick();
            if phase.drop_pages
                && let Some(data) = subject.data()
            {
                limits::drop_file_pages(data);
            }
            subject.check()?;
            check_disk(subject)?;
        }
        if end.is_some_and(|end| now >= end) || shared.all_ended() || shared.any_failed() {
            return Ok(());
        }
        let elapsed = now.duration_since(start);
        let total = counts.total();
        bar.set_position(if end.is_some() {
            elapsed.as_millis() as u64
        } else {
            total
        });
        bar.set_message(format!("{:.0}/s", series.last_rate));
        let next = tick.min(end.unwrap_or(tick));
        // Work that is done soon is noticed soon, so that its time is right.
        let look = if phase.expected.is_none() {
            LOOK
        } else {
            Duration::from_millis(2)
        };
        thread::sleep(next.saturating_duration_since(Instant::now()).min(look));
    }
}

fn check_disk(subject: &Subject) -> Result<()> {
    let Some(directory) = subject.data() else { return Ok(()) };
    match procfs::available_bytes(directory) {
        Some(available_bytes) if available_bytes < DISK_LEFT_MIN => Err(Error::DiskFull {
            directory: directory.to_path_buf(),
            available_bytes,
            source: None,
        }),
        _ => Ok(()),
    }
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

fn cpu_us(usage: Option<Usage>) -> Option<u64> {
    usage.map(|usage| usage.cpu.as_micros() as u64)
}

fn fill(run: &mut Run, counts: &Counts, before: &Look, after: &Look) {
    run.seconds = after.at.duration_since(before.at).as_secs_f64();
    run.server_cpu_us = difference(cpu_us(before.server), cpu_us(after.server));
    run.generator_cpu_us = difference(cpu_us(before.own), cpu_us(after.own));
    // The system counts in hundredths of a second.
    let others = before.others.zip(after.others).filter(|_| run.seconds >= 0.5);
    run.others_cpu_share = others.map(|(before, after)| {
        let available = run.seconds * std::thread::available_parallelism().map_or(1, usize::from) as f64;
        (after.saturating_sub(before).as_secs_f64() / available).min(1.0)
    });
    run.read_bytes = difference(
        before.server.and_then(|usage| usage.read_bytes),
        after.server.and_then(|usage| usage.read_bytes),
    );
    run.read_requests = difference(before.disk_reads, after.disk_reads);
    run.document_bytes = (counts.document_bytes > 0).then_some(counts.document_bytes);
    if let (Some(server), Some(own)) = (run.server_cpu_us, run.generator_cpu_us)
        && server + own >= report::CPU_US_MIN
    {
        let share = own as f64 / (server + own) as f64;
        run.figures.insert("generatorCpuShare".to_owned(), share);
    }
}

/// How often operations began again, and how evenly the clients progressed.
fn contention(run: &mut Run, counts: &Counts, clients: &[ClientProgress]) {
    let mut figure = |name: &str, value: f64| run.figures.insert(name.to_owned(), value);
    if counts.total() > 0 {
        figure(report::RESTARTS, counts.restarts as f64 / counts.total() as f64);
    }
    let operations = || clients.iter().map(|client| client.operations);
    if let (Some(least), Some(most)) = (operations().min(), operations().max())
        && most > 0
    {
        figure(report::SLOWEST_CLIENT, least as f64 / most as f64);
    }
    if let Some(longest) = clients.iter().map(|client| client.longest).max() {
        figure(report::LONGEST_OPERATION, longest.as_secs_f64());
    }
}

/// Says so when an open loop that ran to its end did clearly less than it was to do: by a twentieth, and more than the
/// times that operations are due at, which are random, explain.
fn missed_rate(run: &Run, phase: &Phase, counts: &Counts) -> Option<String> {
    let Pacing::Open { rate } = phase.pacing else {
        return None;
    };
    let due = rate * run.seconds;
    let missed = due - counts.total() as f64;
    // The standard deviation of a Poisson process, of which each command counts for a batch.
    let spread = (due * phase.batch as f64).sqrt();
    (missed > due * 0.05 && missed > 4.0 * spread).then(|| {
        let [reached, rate] = [counts.total() as f64 / run.seconds.max(1e-9), rate].map(report::number::short);
        format!(
            "{reached} operations a second instead of {rate}: the server does not keep up, or there are too few clients"
        )
    })
}

/// Puts latencies and errors in. Returns what ended a thread before its time.
fn combine(run: &mut Run, phase: &Phase, counts: &Counts, recorded: Vec<Recorded>) -> Option<Error> {
    let mut failure = None;
    let mut latencies: Vec<Option<Histogram<u64>>> = vec![None; phase.names.len()];
    let unfinished: u64 = recorded.iter().map(|thread| thread.unfinished).sum();
    if unfinished > 0 && matches!(phase.pacing, Pacing::Open { .. }) {
        run.notes.push(format!(
            "{unfinished} operations that were due had no answer at the end: their latency is that up to then, and would be longer"
        ));
    }
    for thread in recorded {
        for (sum, latency) in latencies.iter_mut().zip(thread.latencies) {
            match sum {
                None => *sum = Some(latency),
                // Histograms of equal bounds always add up.
                Some(sum) => sum.add(&latency).expect("the bounds are equal"),
            }
        }
        if let Some(error) = thread.first_error {
            run.notes.push(format!("first refused operation: {error}"));
        }
        failure = failure.or(thread.failure);
    }
    for (index, name) in phase.names.iter().enumerate() {
        let (count, errors) = (counts.operations[index], counts.errors[index]);
        let latency = latencies[index].as_ref().and_then(Latency::from_histogram);
        if count + errors == 0 && latency.is_none() {
            continue;
        }
        run.operations
            .insert((*name).to_owned(), Operation { count, errors, latency });
    }
    failure
}

/// What was written may still be in memory only: flushing makes it count. Then sizes are taken.
fn settle(run: &mut Run, subject: &mut Subject, before: &Look, after: &Look) -> Result<()> {
    if run.document_bytes.is_some() {
        subject.connect()?.flush()?;
    }
    let server = match subject.pid() {
        Some(pid) => Some(procfs::usage_with_data(pid, subject.data())?),
        None => after.server,
    };
    // Work that an engine puts off is work for these operations, as its bytes are.
    if run.document_bytes.is_some()
        && let (Some(cpu), Some(late)) = (&mut run.server_cpu_us, difference(cpu_us(after.server), cpu_us(server)))
    {
        *cpu += late;
    }
    run.written_bytes = difference(
        before.server.and_then(|usage| usage.written_bytes),
        server.and_then(|usage| usage.written_bytes),
    );
    // After work that only read, the size is that of whatever was written before, maybe unequally.
    if run.document_bytes.is_some() {
        run.file_bytes = subject.data().map(procfs::directory_bytes);
    }
    Ok(())
}

/// What it would have been in an interval of the usual length.
fn per_interval(count: u64, elapsed: Duration) -> u64 {
    if elapsed.abs_diff(INTERVAL) <= UNEVEN {
        return count;
    }
    (count as f64 * INTERVAL.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)).round() as u64
}

/// Makes the series.
struct Sampler {
    start: Instant,
    /// Operations of each kind, in the phase's order.
    columns: Vec<Vec<u64>>,
    /// The p99 of each kind.
    p99_ns: Vec<Vec<u64>>,
    latencies: Vec<Seen>,
    series: Series,
    last: Look,
    last_counts: Counts,
    last_rate: f64,
    rss_peak: u64,
    /// Points up to now.
    points: u32,
    /// Those before the first thread ended.
    full: u32,
    /// Times that are in no interval, and how many points were before them.
    gaps: Vec<(u32, Duration)>,
}

impl Sampler {
    fn new(phase: &Phase, before: &Look) -> Self {
        Self {
            start: before.at,
            columns: vec![Vec::new(); phase.names.len()],
            p99_ns: vec![Vec::new(); phase.names.len()],
            latencies: phase.names.iter().map(|_| Seen::default()).collect(),
            series: Series {
                interval_seconds: INTERVAL.as_secs_f64(),
                ..Series::default()
            },
            last: before.clone(),
            last_counts: Counts {
                operations: vec![0; phase.names.len()],
                ..Counts::default()
            },
            last_rate: 0.0,
            rss_peak: before.server.map_or(0, |usage| usage.resident_bytes),
            points: 0,
            full: 0,
            gaps: Vec::new(),
        }
    }

    fn left_out(&self) -> Duration {
        self.gaps.iter().map(|(_, time)| *time).sum()
    }

    /// When the next point is due.
    fn next_tick(&self) -> Instant {
        self.start + self.left_out() + INTERVAL * (self.points + 1)
    }

    /// Operations of each kind since the last point, as those of one interval, and of how many. Goes on to this one;
    /// `None` when it is much too late, and no client got to run meanwhile.
    fn advance(&mut self, look: &Look, counts: &Counts, halt: Duration) -> Option<(Vec<u64>, u32)> {
        let now = counts.operations.iter().zip(&self.last_counts.operations);
        let deltas: Vec<u64> = now.map(|(now, last)| now - last).collect();
        let elapsed = look.at.duration_since(self.last.at);
        self.last_rate = deltas.iter().sum::<u64>() as f64 / elapsed.as_secs_f64().max(1e-9);
        self.last_counts = counts.clone();
        if elapsed > INTERVAL + LATE && halt > LATE {
            self.gaps.push((self.points, elapsed));
            return None;
        }
        let measured = look.at.duration_since(self.start).saturating_sub(self.left_out());
        let due = (measured.as_secs_f64() / INTERVAL.as_secs_f64()).round() as u32;
        let points = due.saturating_sub(self.points).max(1);
        self.points += points;
        let of_one = deltas.into_iter().map(|delta| per_interval(delta, elapsed));
        Some((of_one.collect(), points))
    }

    fn sample(&mut self, subject: &Subject, counts: &Counts, watch: &Watch, shared: &Shared) {
        let look = Look::now(subject);
        let p99_ns = shared.p99_ns(&mut self.latencies);
        let Some((deltas, points)) = self.advance(&look, counts, shared.longest_halt()) else {
            self.last = look;
            return;
        };
        for _ in 0..points {
            self.push(&look, &deltas, &p99_ns, watch);
        }
        if !shared.any_ended() {
            self.full = self.points;
        }
        self.last = look;
    }

    fn push(&mut self, look: &Look, deltas: &[u64], p99_ns: &[u64], watch: &Watch) {
        let elapsed = look.at.duration_since(self.last.at);
        let of_one = |bytes: u64| per_interval(bytes, elapsed);
        for (column, delta) in self.columns.iter_mut().zip(deltas) {
            column.push(*delta);
        }
        for (column, p99) in self.p99_ns.iter_mut().zip(p99_ns) {
            column.push(*p99);
        }
        if let (Some(now), Some(last)) = (look.server, self.last.server) {
            self.rss_peak = self.rss_peak.max(now.resident_bytes);
            let cpu = now.cpu.saturating_sub(last.cpu);
            self.series.server_cpu_us.push(of_one(cpu.as_micros() as u64));
            self.series.rss_bytes.push(now.resident_bytes);
            if let Some(bytes) = difference(last.read_bytes, now.read_bytes) {
                self.series.read_bytes.push(of_one(bytes));
            }
            if let Some(bytes) = difference(last.written_bytes, now.written_bytes) {
                self.series.written_bytes.push(of_one(bytes));
            }
        }
        let cache = watch.cache();
        self.series.cache_bytes.push(cache.bytes);
        self.series.dirty_bytes.push(cache.dirty_bytes);
    }

    fn finish(&mut self, run: &mut Run, phase: &Phase, watch: &Watch, after: &Look, commands: u64) {
        let mut series = std::mem::take(&mut self.series);
        let by_name = |columns: &mut Vec<Vec<u64>>| {
            let named = phase.names.iter().zip(std::mem::take(columns));
            named
                .filter(|(_, column)| column.iter().any(|value| *value > 0))
                .map(|(name, column)| ((*name).to_owned(), column))
                .collect()
        };
        series.operations = by_name(&mut self.columns);
        series.latency_p99_ns = by_name(&mut self.p99_ns);
        let points = series.cache_bytes.len();
        for column in [
            &mut series.server_cpu_us,
            &mut series.rss_bytes,
            &mut series.read_bytes,
            &mut series.written_bytes,
        ] {
            // A column with holes, of a server that died, says nothing about when.
            if column.len() != points {
                column.clear();
            }
        }
        for column in [&mut series.cache_bytes, &mut series.dirty_bytes] {
            if column.iter().all(|bytes| *bytes == 0) {
                column.clear();
            }
        }
        run.stalls = report::stalls(&series, commands);
        for span in &mut run.stalls {
            let at = (span.at_seconds / INTERVAL.as_secs_f64()).round() as u32;
            let before = self.gaps.iter().filter(|(points, _)| *points <= at);
            span.at_seconds += before.map(|(_, time)| time.as_secs_f64()).sum::<f64>();
        }
        if let Some(part) = report::collapse(&series, commands, self.full as usize) {
            run.figures.insert(report::COLLAPSED.to_owned(), part);
        }
        if !self.gaps.is_empty() {
            run.notes.push(format!(
                "the load generator itself did not get to run: {:.1} s are left out of the seconds that are told one by one",
                self.left_out().as_secs_f64()
            ));
        }
        run.series = series;
        run.checkpoints = watch.checkpoints(self.start);
        if let Some(count) = watch.checkpoint_count(self.start) {
            run.figures.insert(report::CHECKPOINTS.to_owned(), count as f64);
        }
        self.rss_peak = self.rss_peak.max(after.server.map_or(0, |usage| usage.resident_bytes));
        run.rss_peak_bytes = (self.rss_peak > 0).then_some(self.rss_peak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program was stopped for seconds, and the server was said to have collapsed.
    #[test]
    fn seconds_in_which_the_generator_did_not_run_are_no_points() {
        let at = Instant::now();
        let look = |ms| Look {
            at: at + Duration::from_millis(ms),
            server: None,
            own: None,
            others: None,
            disk_reads: None,
        };
        let counts = |count| Counts {
            operations: vec![count],
            ..Counts::default()
        };
        let phase = Phase::work("test", "a", &["read"], None);
        let mut series = Sampler::new(&phase, &look(0));
        let mut point = |ms, count, halt_ms| {
            let look = look(ms);
            let point = series.advance(&look, &counts(count), Duration::from_millis(halt_ms));
            series.last = look;
            point
        };
        assert_eq!(point(1000, 100, 0), Some((vec![100], 1)));
        assert_eq!(point(2100, 210, 0), Some((vec![100], 1)), "110 in 1.1 s");
        assert_eq!(point(4700, 211, 2600), None);
        assert_eq!(point(5700, 311, 2600), Some((vec![100], 1)));
        // Clients that were at work did little because of the server.
        assert_eq!(point(8700, 314, 90), Some((vec![1], 3)));
        assert_eq!(series.left_out(), Duration::from_millis(2600));
        assert_eq!(series.next_tick(), at + Duration::from_millis(9600));
    }

    #[test]
    fn contention_tells_of_clients_that_got_nothing() {
        let mut run = Run::new("test", "a", report::Configuration::default());
        let client = |operations, seconds| ClientProgress {
            operations,
            longest: Duration::from_secs(seconds),
        };
        contention(&mut run, &Counts::default(), &[client(0, 0)]);
        assert_eq!(
            run.figures.keys().collect::<Vec<_>>(),
            [report::LONGEST_OPERATION],
            "nothing was done"
        );
        let counts = Counts {
            operations: vec![40, 10],
            restarts: 125,
            ..Counts::default()
        };
        contention(&mut run, &counts, &[client(40, 1), client(10, 2), client(0, 9)]);
        let figures =
            [report::RESTARTS, report::SLOWEST_CLIENT, report::LONGEST_OPERATION].map(|name| run.figures[name]);
        assert_eq!(figures, [2.5, 0.0, 9.0]);
    }

    #[test]
    fn a_rate_is_missed_when_chance_does_not_explain_it() {
        let note = |rate: f64, batch: u64, seconds: f64, count: u64| {
            let mut run = Run::new("test", "a", report::Configuration::default());
            run.seconds = seconds;
            let phase = Phase {
                pacing: Pacing::Open { rate },
                batch,
                ..Phase::work("test", "a", &["read"], None)
            };
            let counts = Counts {
                operations: vec![count],
                ..Counts::default()
            };
            missed_rate(&run, &phase, &counts)
        };
        let told = note(1000.0, 1, 10.0, 9000).expect("a tenth is missing");
        assert!(told.starts_with("900 operations a second instead of 1,000:"), "{told}");
        assert_eq!(note(1000.0, 1, 10.0, 9600), None, "less than a twentieth");
        assert_eq!(note(5.0, 1, 10.0, 40), None, "50, give or take 7");
        assert_eq!(note(0.1, 1, 1.0, 0), None);
        assert_eq!(note(1000.0, 1000, 10.0, 7000), None, "ten commands, give or take three");
        assert_eq!(note(1000.0, 1, 0.0, 0), None, "nothing was due");
    }
}
