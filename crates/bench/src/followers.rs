//! What a replica set costs and how far its followers are behind, beside what is measured of its primary.
//!
//! How far: every [`INTERVAL`] each follower, then the primary, is asked up to which time of the log it shows what was
//! written. What the primary showed at which moment is kept, with the operations that were done by then; a follower is
//! behind by the time since the primary showed what it shows now, and by the operations that were done since.
//!
//! Invariant: the moments of the primary rise in time, position and operations.

use crate::connection::Connection;
use crate::driver::Shared;
use crate::error::Result;
use crate::message::Message;
use crate::procfs::{self, Usage};
use crate::set::{Member, Members, applied_of_raw};
use crate::subject::Subject;
use bson::{Document, rawdoc};
use report::Run;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Fewer looks than this say nothing of a follower's rate.
const RATE_LOOKS_MIN: usize = 10;
/// Between two looks at how far everybody is.
const INTERVAL: Duration = Duration::from_millis(50);

/// What the primary showed at a moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    /// Seconds, then a number within the second.
    position: u64,
    operations: u64,
}

/// How far a follower was behind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lag {
    at: Instant,
    seconds: f64,
    operations: f64,
}

#[derive(Debug, Default)]
struct Seen {
    primary: Vec<Moment>,
    /// Of each follower: its own positions, when it was asked.
    followers: Vec<Vec<(Instant, u64)>>,
    /// Bytes of the requests that asked one follower.
    request_bytes: u64,
}

/// Asks a set's members, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    fn start(primary: SocketAddr, followers: Vec<SocketAddr>, shared: &Arc<Shared>) -> Self {
        let (seen, over) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        lock(&seen).followers = vec![Vec::new(); followers.len()];
        let watch = Self {
            seen: Arc::clone(&seen),
            over: Arc::clone(&over),
        };
        let shared = Arc::clone(shared);
        // A member that does not answer any more is noticed by others; what was seen until then counts.
        thread::spawn(move || drop(ask(primary, &followers, &shared, &seen, &over)));
        watch
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(
    primary: SocketAddr,
    followers: &[SocketAddr],
    shared: &Shared,
    seen: &Mutex<Seen>,
    over: &AtomicBool,
) -> Result<()> {
    let mut hello = Message::new(u128::from(primary.port()) << 64 | 0x666F_6C6C_6F77);
    hello.whole(&rawdoc! { "hello": 1 }, "admin");
    let mut primary = Connection::open(primary)?;
    let mut followers = followers
        .iter()
        .map(|address| Connection::open(*address))
        .collect::<Result<Vec<_>>>()?;
    while !over.load(Ordering::Relaxed) {
        let mut of_followers = Vec::with_capacity(followers.len());
        for follower in &mut followers {
            let position = applied_of_raw(follower.call(&hello)?);
            of_followers.push((Instant::now(), position));
        }
        let operations = shared.counts().total();
        let position = applied_of_raw(primary.call(&hello)?);
        let at = Instant::now();
        let mut seen = lock(seen);
        seen.request_bytes += hello.bytes().len() as u64;
        if let Some(position) = position {
            let moment = Moment {
                at,
                position,
                operations,
            };
            seen.primary.push(moment);
        }
        for (column, (at, position)) in seen.followers.iter_mut().zip(of_followers) {
            column.extend(position.map(|position| (at, position)));
        }
        drop(seen);
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// How far who shows `position` at a moment is behind; `None` before the primary was asked.
fn lag(primary: &[Moment], at: Instant, position: u64) -> Option<Lag> {
    let now = interpolated(
        primary,
        primary.partition_point(|moment| moment.at <= at),
        |one, next| share(at - one.at, next.at - one.at),
    )?;
    let shown = primary.partition_point(|moment| moment.position <= position);
    // It shows all that the primary is known to have shown.
    let then = match shown == primary.len() {
        true => now,
        false => interpolated(primary, shown, |one, next| passed(one, next, position))?,
    };
    Some(Lag {
        at,
        seconds: now.0.saturating_duration_since(then.0).as_secs_f64(),
        operations: (now.1 - then.1).max(0.0),
    })
}

/// The part of the way from one moment to the next that `position` has come. Numbers begin anew with each second; how
/// far they came in the one before is not known, and each operation takes one.
fn passed(one: &Moment, next: &Moment, position: u64) -> f64 {
    let is_in = |moment: &Moment| position >> 32 == moment.position >> 32;
    let operations = (next.operations - one.operations).max(1) as f64;
    match (is_in(one), is_in(next)) {
        (true, true) => (position - one.position) as f64 / (next.position - one.position) as f64,
        (true, false) => (position - one.position) as f64 / operations,
        (false, _) => 1.0 - next.position.saturating_sub(position) as f64 / operations,
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    match whole.is_zero() {
        true => 0.0,
        false => part.as_secs_f64() / whole.as_secs_f64(),
    }
}

/// Time and operations between the moments before `next` and at it.
fn interpolated(moments: &[Moment], next: usize, part: impl Fn(&Moment, &Moment) -> f64) -> Option<(Instant, f64)> {
    let one = moments.get(next.checked_sub(1)?)?;
    let Some(next) = moments.get(next) else {
        return Some((one.at, one.operations as f64));
    };
    let part = part(one, next).clamp(0.0, 1.0);
    let operations = one.operations as f64 + part * (next.operations - one.operations) as f64;
    Some((one.at + (next.at - one.at).mul_f64(part), operations))
}

/// All members' counters at one moment.
#[derive(Clone, Debug)]
struct Counters {
    usage: Vec<Option<Usage>>,
    /// Bytes that each received, from whomever.
    received: Vec<Option<u64>>,
    /// Bytes that were used to ask a follower how far it is.
    asked: u64,
    /// Bytes that the clients sent to the primary.
    sent: u64,
    /// Bytes that the primary's disk has written, whoever asked for that.
    device: Option<u64>,
}

/// A set's figures, from the beginning of a run to its end.
pub struct Followers {
    watch: Watch,
    numbers: Vec<usize>,
    primary: usize,
    began: Option<(Instant, Counters)>,
    ended: Option<(Instant, u64)>,
    /// How long each took to show everything.
    took: Vec<Duration>,
}

impl Followers {
    /// Begins to ask the members of a set of our own; of anything else there is nothing to ask.
    pub fn of(subject: &Subject, shared: &Arc<Shared>) -> Option<Self> {
        let (members, primary) = subject.members()?;
        let numbers = subject.followers();
        let address = |number: usize| members.all()[number].address;
        let followers = numbers.iter().map(|number| address(*number)).collect();
        Some(Self {
            watch: Watch::start(address(primary), followers, shared),
            numbers,
            primary,
            began: None,
            ended: None,
            took: Vec::new(),
        })
    }

    /// From here on all that happens counts.
    pub fn begin(&mut self, subject: &Subject, shared: &Shared) {
        let Some((members, _)) = subject.members() else { return };
        self.began = Some((Instant::now(), self.counters(members, shared)));
    }

    /// The clients have ended, and sent so much.
    pub fn end(&mut self, shared: &Shared) {
        self.ended = Some((Instant::now(), shared.counts().sent_bytes));
    }

    /// Waits until all members show the same. Nothing comes between the load's end and this.
    pub fn catch_up(&mut self, subject: &Subject) -> Result<()> {
        if let (Some((members, _)), Some((ended, _))) = (subject.members(), self.ended) {
            self.took = members.catch_up(self.primary, &self.numbers, ended)?;
        }
        Ok(())
    }

    /// Waits until all members have it on disk, and fills the set's figures in.
    pub fn settle(self, run: &mut Run, subject: &Subject) -> Result<()> {
        let (Some((members, _)), Some((began, before)), Some((ended, sent))) =
            (subject.members(), &self.began, self.ended)
        else {
            return Ok(());
        };
        if run.document_bytes.is_some() {
            for number in &self.numbers {
                members.open(*number)?.flush()?;
            }
        }
        let mut after = self.counters_now(members);
        after.sent = sent;
        self.costs(run, before, &after);
        for (index, took) in self.took.iter().enumerate() {
            let name = format!("follower{}.{}", index + 1, report::CATCH_UP);
            run.figures.insert(name, took.as_secs_f64());
        }
        if let Some(slowest) = self.took.iter().max() {
            run.figures.insert(report::CATCH_UP.to_owned(), slowest.as_secs_f64());
        }
        self.lags(run, *began, ended);
        let engines = members.all().iter().map(|member| member.command.label.as_str());
        let engines: Vec<&str> = self
            .numbers
            .iter()
            .filter_map(|number| engines.clone().nth(*number))
            .collect();
        if engines.iter().any(|engine| *engine != engines[0]) {
            let named = engines.iter().enumerate();
            let named: Vec<String> = named
                .map(|(index, engine)| format!("follower{} is {engine}", index + 1))
                .collect();
            run.notes.push(named.join(", "));
        }
        Ok(())
    }

    fn counters(&self, members: &Members, shared: &Shared) -> Counters {
        Counters {
            sent: shared.counts().sent_bytes,
            ..self.counters_now(members)
        }
    }

    fn counters_now(&self, members: &Members) -> Counters {
        let numbers = 0..members.all().len();
        let received = |number| -> Option<u64> {
            let command = rawdoc! { "serverStatus": 1 };
            received(&members.open(number).ok()?.run("admin", &command).ok()?)
        };
        let usage = |member: &Member| procfs::usage_with_data(member.pid()?, Some(&member.command.directory)).ok();
        Counters {
            usage: members.all().iter().map(usage).collect(),
            received: numbers.map(received).collect(),
            asked: lock(&self.watch.seen).request_bytes,
            sent: 0,
            device: procfs::disk_written(&members.all()[self.primary].command.directory),
        }
    }

    /// What it took, for each operation.
    fn costs(&self, run: &mut Run, before: &Counters, after: &Counters) {
        let operations = run.count();
        if operations == 0 {
            return;
        }
        let mut figure = |name: String, value: f64| run.figures.insert(name, value / operations as f64);
        let usages = before.usage.iter().zip(&after.usage);
        let cpu: Option<Duration> = usages.map(|(a, b)| Some((*b)?.cpu.saturating_sub((*a)?.cpu))).sum();
        if let Some(cpu) = cpu.filter(|cpu| cpu.as_micros() as u64 >= report::CPU_US_MIN) {
            figure(report::ALL_CPU.to_owned(), cpu.as_secs_f64());
        }
        let written = |number: usize| -> Option<u64> {
            let (before, after) = (before.usage[number]?, after.usage[number]?);
            Some(after.written_bytes?.saturating_sub(before.written_bytes?))
        };
        let asked = after.asked - before.asked;
        let received = |number: usize, of_others: u64| -> Option<u64> {
            let bytes = after.received[number]?.saturating_sub(before.received[number]?);
            Some(bytes.saturating_sub(of_others))
        };
        let count = self.numbers.len() as f64;
        for (name, of) in [
            (report::FOLLOWER_WRITTEN, &written as &dyn Fn(usize) -> Option<u64>),
            (report::FOLLOWER_WIRE, &|number| received(number, asked)),
        ] {
            let of_each: Option<Vec<u64>> = self.numbers.iter().map(|number| of(*number)).collect();
            let Some(of_each) = of_each.filter(|of_each| !of_each.is_empty()) else {
                continue;
            };
            figure(name.to_owned(), of_each.iter().sum::<u64>() as f64 / count);
            for (index, bytes) in of_each.iter().enumerate() {
                figure(format!("follower{}.{name}", index + 1), *bytes as f64);
            }
        }
        if let (Some(before), Some(after)) = (before.device, after.device) {
            let members = 1.0 + count;
            figure(
                report::DEVICE_WRITTEN.to_owned(),
                after.saturating_sub(before) as f64 / members,
            );
        }
        if !self.numbers.is_empty()
            && let Some(bytes) = received(self.primary, after.sent.saturating_sub(before.sent) + asked)
        {
            figure(report::PRIMARY_WIRE.to_owned(), bytes as f64);
        }
    }

    /// How far the followers were behind while the run was recorded.
    fn lags(&self, run: &mut Run, began: Instant, ended: Instant) {
        let seen = lock(&self.watch.seen);
        let mut all = Vec::new();
        let mut slowest: Option<f64> = None;
        for (index, column) in seen.followers.iter().enumerate() {
            let within = column.iter().filter(|(at, _)| (began..=ended).contains(at));
            let lags: Vec<Lag> = within
                .filter_map(|(at, position)| lag(&seen.primary, *at, *position))
                .collect();
            lag_figures(run, &format!("follower{}.", index + 1), &lags);
            if let (Some(first), Some(last)) = (lags.first(), lags.last())
                && lags.len() >= RATE_LOOKS_MIN
            {
                let rate = 1.0 - (last.operations - first.operations) / (run.count() as f64).max(1.0);
                slowest = Some(slowest.map_or(rate, |slowest: f64| slowest.min(rate)));
                let name = format!("follower{}.{}", index + 1, report::FOLLOWER_RATE);
                run.figures.insert(name, rate);
            }
            all.extend(lags);
        }
        lag_figures(run, "", &all);
        run.figures
            .extend(slowest.map(|rate| (report::FOLLOWER_RATE.to_owned(), rate)));
    }
}

fn lag_figures(run: &mut Run, prefix: &str, lags: &[Lag]) {
    let of = |value: fn(&Lag) -> f64| {
        let mut values: Vec<f64> = lags.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        Some((*values.get(values.len().saturating_sub(1) / 2)?, *values.last()?))
    };
    let (Some(seconds), Some(operations)) = (of(|lag| lag.seconds), of(|lag| lag.operations)) else {
        return;
    };
    for (name, value) in [
        (report::LAG_MEDIAN, seconds.0),
        (report::LAG_MAX, seconds.1),
        (report::LAG_MEDIAN_OPERATIONS, operations.0),
        (report::LAG_MAX_OPERATIONS, operations.1),
    ] {
        run.figures.insert(format!("{prefix}{name}"), value);
    }
}

/// Bytes that a server has received, by its own count.
fn received(status: &Document) -> Option<u64> {
    let network = status.get_document("network").ok()?;
    let bytes = network.get("physicalBytesIn").or_else(|| network.get("bytesIn"))?;
    u64::try_from(bytes.as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1 << 32;

    fn moments(start: Instant, of: &[(u64, u64, u64)]) -> Vec<Moment> {
        let moment = |&(ms, position, operations): &(u64, u64, u64)| Moment {
            at: start + Duration::from_millis(ms),
            position,
            operations,
        };
        of.iter().map(moment).collect()
    }

    #[test]
    fn a_follower_is_behind_by_what_the_primary_showed_since() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let primary = moments(
            start,
            &[
                (0, SECOND, 0),
                (100, SECOND + 50, 50),
                (200, SECOND + 150, 150),
                (300, 2 * SECOND + 1, 200),
            ],
        );
        let of = |ms, position| lag(&primary, at(ms), position).map(|lag| (lag.seconds, lag.operations));
        let near = |found: Option<(f64, f64)>, seconds: f64, operations: f64| {
            let (a, b) = found.expect("there are moments");
            assert!((a - seconds).abs() < 1e-6 && (b - operations).abs() < 1e-6, "{found:?}");
        };
        near(of(200, SECOND + 100), 0.05, 50.0);
        near(of(200, SECOND + 150), 0.0, 0.0);
        near(of(250, SECOND + 50), 0.15, 125.0);
        // From one second to the next: by the operations, of which there were 50.
        near(of(300, SECOND + 160), 0.08, 40.0);
        near(of(300, 2 * SECOND), 0.002, 1.0);
        near(of(300, 3 * SECOND), 0.0, 0.0);
        assert_eq!(lag(&[], start, SECOND), None);
    }

    #[test]
    fn a_set_at_rest_is_not_behind() {
        let start = Instant::now();
        let primary = moments(start, &[(0, SECOND, 10), (100, SECOND, 10), (5000, SECOND, 10)]);
        let lag = lag(&primary, start + Duration::from_secs(4), SECOND).expect("there are moments");
        assert_eq!((lag.seconds, lag.operations), (0.0, 0.0));
    }

    #[test]
    fn medians_and_maxima_are_told() {
        let mut run = Run::new("test", "a", report::Configuration::default());
        lag_figures(&mut run, "", &[]);
        assert!(run.figures.is_empty());
        let lag = |seconds| Lag {
            at: Instant::now(),
            seconds,
            operations: seconds * 100.0,
        };
        lag_figures(&mut run, "follower1.", &[lag(3.0), lag(1.0), lag(2.0)]);
        let figures = ["follower1.lagMedianSeconds", "follower1.lagMaxOperations"].map(|name| run.figures[name]);
        assert_eq!(figures, [2.0, 300.0]);
    }
}
