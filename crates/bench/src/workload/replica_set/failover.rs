//! The primary is killed, or steps down, while clients write.
//!
//! A round: 1. clients insert documents, each on a connection of its own, half of them with `w: 1` and half with
//! `w: "majority"`, and keep what was acknowledged; a write that fails is counted and not sent again; 2. the primary
//! is killed, or told to step down; 3. clients go to whoever leads next, which one thread finds out for all; 4. a while
//! after the first acknowledgement of another primary the clients end; 5. who was killed is started again; 6. what was
//! acknowledged is looked for, and all members are compared.

use super::{
    Choices, DATABASE, blank, field_bytes, keep, put_document, put_insert, same_everywhere, write_concern_error,
};
use crate::actor::affected;
use crate::connection::Connection;
use crate::context::Context;
use crate::error::{Error, Result, chain};
use crate::message::Message;
use crate::set::{Members, Role};
use crate::subject::Subject;
use crate::workload::transactions::WriteConcern;
use bson::rawdoc;
use report::{Operation, Outcome, Run};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: u32 = 16;
/// Clients write so long before the primary goes, and after the next one has acknowledged a write.
const LOAD: Duration = Duration::from_secs(2);
/// Another primary acknowledges writes by then.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(180);
/// Between two looks at who leads: the resolution of the time without a primary.
const LOOK: Duration = Duration::from_millis(2);
/// How long a member that steps down may not lead again. Less than a round or two take: with all others kept from
/// leading there would be nobody to hand over to.
const STEP_DOWN_SECONDS: i32 = 3;
/// A connection that broke.
const BROKEN: &str = "connection";
/// Nobody leads.
const NOBODY: usize = usize::MAX;

/// What happens to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Kill,
    StepDown,
}

/// What a round showed.
#[derive(Debug, Default)]
struct Round {
    /// From the cause until another member led, without the time in which the old one still did.
    without_primary: Duration,
    /// From the cause to the first acknowledgement by another member.
    first_write: Duration,
    /// From its start to the killed one following.
    rejoin: Option<Duration>,
    /// How long clients wrote, with a primary or without.
    writing: Duration,
    acknowledged: u64,
    lost: u64,
    /// By code, or [`BROKEN`].
    errors: BTreeMap<String, u64>,
}

/// Kills the primary with each election time-out, then has it step down.
pub(super) fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    for &timeout in &choices.election_timeouts {
        phase(context, subject, choices, Cause::Kill, timeout)?;
    }
    let timeout = choices.election_timeouts[0];
    phase(context, subject, choices, Cause::StepDown, timeout)
}

fn phase(
    context: &mut Context,
    subject: &mut Subject,
    choices: &Choices,
    cause: Cause,
    timeout: Duration,
) -> Result<()> {
    let clients = context.options.clients.unwrap_or(CLIENTS);
    let name = match cause {
        Cause::Kill => "failover",
        Cause::StepDown => "stepDown",
    };
    let mut run = blank(context, subject, name, clients);
    let parameters = &mut run.parameters;
    parameters.insert("documentBytes".to_owned(), choices.document_bytes.to_string());
    parameters.insert("electionTimeoutMillis".to_owned(), timeout.as_millis().to_string());
    let mut rounds: Vec<Round> = Vec::new();
    let result = (|| {
        subject.find_primary()?;
        if let Some((members, primary)) = subject.members() {
            members.reconfigure(primary, |config| {
                let mut settings = config.get_document("settings").cloned().unwrap_or_default();
                settings.insert("electionTimeoutMillis", timeout.as_millis() as i64);
                config.insert("settings", settings);
            })?;
        }
        for number in 0..choices.failovers {
            context.interrupt.check()?;
            let round = one(context, subject, choices, cause, clients, number)?;
            context.say(&format!(
                "{} {name} {} of {}: {:.2} s without a primary, first acknowledged write after {:.2} s, {} errors, {} of {} acknowledged writes lost",
                subject.configuration.label,
                number + 1,
                choices.failovers,
                round.without_primary.as_secs_f64(),
                round.first_write.as_secs_f64(),
                round.errors.values().sum::<u64>(),
                round.lost,
                round.acknowledged
            ));
            rounds.push(round);
        }
        Ok(())
    })();
    // Restarts and checks are no time of these writes.
    let writing: Duration = rounds.iter().map(|round| round.writing).sum();
    run.seconds = writing.as_secs_f64();
    fill(&mut run, &rounds);
    keep(context, run, result)
}

fn one(
    context: &Context,
    subject: &mut Subject,
    choices: &Choices,
    cause: Cause,
    clients: u32,
    number: u32,
) -> Result<Round> {
    subject.find_primary()?;
    subject.connect()?.drop_database(DATABASE)?;
    let collection = format!("failover{number}");
    let load = context.options.duration.unwrap_or(LOAD);
    let Some((members, old)) = subject.members() else {
        return Ok(Round::default());
    };
    let leader = Leader::new(old);
    let task = Task {
        members,
        leader: &leader,
        collection: &collection,
        seed: context.options.seed,
        field_bytes: field_bytes(choices.document_bytes),
    };
    let began = Instant::now();
    let (mut round, tallies, gone) = thread::scope(|scope| {
        // Whatever goes wrong here, the threads have to end.
        let _end = EndWhenDropped(&leader);
        scope.spawn(|| leader.watch(members));
        let writers: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || task.write(client)))
            .collect();
        pause(members, load)?;
        let gone = Instant::now();
        depose(members, old, cause)?;
        while !leader.acknowledged.load(Ordering::Relaxed) {
            members.interrupt().check()?;
            if gone.elapsed() > FAILOVER_TIMEOUT {
                let what = format!(
                    "nobody acknowledges writes {} s after the primary went",
                    FAILOVER_TIMEOUT.as_secs()
                );
                return Err(Error::Protocol(what));
            }
            thread::sleep(LOOK);
        }
        pause(members, load)?;
        let writing = began.elapsed();
        leader.over.store(true, Ordering::Relaxed);
        let joined = writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer does not panic"));
        let tallies: Vec<Tally> = joined.collect();
        let round = Round {
            writing,
            ..Round::default()
        };
        Ok((round, tallies, gone))
    })?;
    round.without_primary = leader.without(gone, old, cause);
    let firsts = tallies.iter().filter_map(|tally| tally.first_elsewhere);
    round.first_write = firsts.min().unwrap_or(gone).saturating_duration_since(gone);
    for (code, count) in tallies.iter().flat_map(|tally| &tally.errors) {
        *round.errors.entry(code.clone()).or_default() += count;
    }
    if cause == Cause::Kill {
        let began = Instant::now();
        members.start_again(old)?;
        members.wait_for_all()?;
        round.rejoin = Some(began.elapsed());
    }
    subject.find_primary()?;
    look_for(subject, &collection, &tallies, &mut round)?;
    Ok(round)
}

fn pause(members: &Members, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        members.interrupt().check()?;
        thread::sleep(LOOK * 5);
    }
    Ok(())
}

fn depose(members: &Members, primary: usize, cause: Cause) -> Result<()> {
    if cause == Cause::Kill {
        members.all()[primary].kill();
        return Ok(());
    }
    let command = rawdoc! { "replSetStepDown": STEP_DOWN_SECONDS, "secondaryCatchUpPeriodSecs": STEP_DOWN_SECONDS };
    members.open(primary)?.run("admin", &command).map(drop)
}

/// What was acknowledged and is not there is lost. All members hold the same.
fn look_for(subject: &Subject, collection: &str, tallies: &[Tally], round: &mut Round) -> Result<()> {
    let found = identifiers(&mut subject.connect()?, collection)?;
    let acknowledged = || tallies.iter().flat_map(|tally| &tally.acknowledged);
    round.acknowledged = acknowledged().count() as u64;
    round.lost = acknowledged().filter(|id| !found.contains(*id)).count() as u64;
    let begun: u64 = tallies.iter().map(|tally| tally.begun).sum();
    // What is lost is told as such.
    same_everywhere(subject, collection, round.acknowledged - round.lost, begun)
}

/// The `_id` of every document.
fn identifiers(connection: &mut Connection, collection: &str) -> Result<HashSet<i64>> {
    const BATCH: i32 = 10_000;
    let mut found = HashSet::new();
    let find = rawdoc! { "find": collection, "projection": { "_id": 1 }, "batchSize": BATCH };
    let mut reply = connection.run(DATABASE, &find)?;
    loop {
        let unclear = |error| Error::Protocol(format!("a batch of {collection}: {error}"));
        let cursor = reply.get_document("cursor").map_err(unclear)?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"));
        let documents = batch.map_err(unclear)?.iter().filter_map(bson::Bson::as_document);
        found.extend(documents.filter_map(|document| document.get_i64("_id").ok()));
        let id = cursor.get_i64("id").map_err(unclear)?;
        if id == 0 {
            return Ok(found);
        }
        let more = rawdoc! { "getMore": id, "collection": collection, "batchSize": BATCH };
        reply = connection.run(DATABASE, &more)?;
    }
}

/// Who leads, as one thread sees it for all clients.
struct Leader {
    old: usize,
    now: AtomicUsize,
    /// When somebody else, or nobody, led from then on.
    changes: Mutex<Vec<(Instant, usize)>>,
    /// Another member than the old primary has acknowledged a write.
    acknowledged: AtomicBool,
    over: AtomicBool,
}

struct EndWhenDropped<'a>(&'a Leader);

impl Drop for EndWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

impl Leader {
    fn new(old: usize) -> Self {
        Self {
            old,
            now: AtomicUsize::new(old),
            changes: Mutex::default(),
            acknowledged: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    fn watch(&self, members: &Members) {
        let mut connections: Vec<Option<Connection>> = members.all().iter().map(|_| None).collect();
        while !self.over.load(Ordering::Relaxed) && !members.interrupt().asked() {
            let mut leads = NOBODY;
            for (number, connection) in connections.iter_mut().enumerate() {
                if connection.is_none() {
                    *connection = members.open(number).ok();
                }
                let Some(open) = connection else { continue };
                match open.run("admin", &rawdoc! { "hello": 1 }) {
                    // One that was deposed may not know that yet: the last word is the newest member's.
                    Ok(hello) if Role::of(&hello) == Role::Primary && (leads == NOBODY || leads == self.old) => {
                        leads = number;
                    }
                    Ok(_) => {}
                    Err(_) => *connection = None,
                }
            }
            if self.now.swap(leads, Ordering::Relaxed) != leads {
                let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
                changes.push((Instant::now(), leads));
            }
            thread::sleep(LOOK);
        }
    }

    /// How long nobody led after a moment. Who is killed leads no more from then on.
    fn without(&self, gone: Instant, old: usize, cause: Cause) -> Duration {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        without(&changes, gone, old, cause)
    }
}

fn without(changes: &[(Instant, usize)], gone: Instant, old: usize, cause: Cause) -> Duration {
    let mut after = changes.iter().filter(|(at, _)| *at >= gone);
    let next = after.clone().find(|(_, leads)| *leads != NOBODY && *leads != old);
    let Some((next, _)) = next else { return Duration::ZERO };
    let from = match cause {
        Cause::Kill => Some(gone),
        Cause::StepDown => after.find(|(_, leads)| *leads == NOBODY).map(|(at, _)| *at),
    };
    from.map_or(Duration::ZERO, |from| next.saturating_duration_since(from))
}

/// What one client did.
#[derive(Debug, Default)]
struct Tally {
    begun: u64,
    /// Numbers of documents.
    acknowledged: Vec<i64>,
    errors: BTreeMap<String, u64>,
    /// The first acknowledgement of another member than the old primary.
    first_elsewhere: Option<Instant>,
}

/// What all clients do.
#[derive(Clone, Copy)]
struct Task<'a> {
    members: &'a Members,
    leader: &'a Leader,
    collection: &'a str,
    seed: u64,
    field_bytes: usize,
}

impl Task<'_> {
    fn write(self, client: u32) -> Tally {
        let mut tally = Tally::default();
        let concern = match client % 2 {
            0 => WriteConcern::One,
            _ => WriteConcern::Majority,
        };
        let mut message = Message::new(u128::from(client) << 64 | 0x6661_696C);
        let mut open: Option<(usize, Connection)> = None;
        while !self.leader.over.load(Ordering::Relaxed) && !self.members.interrupt().asked() {
            let Some((member, connection)) = &mut open else {
                let leads = self.leader.now.load(Ordering::Relaxed);
                open = match leads {
                    NOBODY => None,
                    leads => self.members.open(leads).ok().map(|connection| (leads, connection)),
                };
                if open.is_none() {
                    thread::sleep(LOOK);
                }
                continue;
            };
            let number = u64::from(client) << 32 | tally.begun;
            put_insert(&mut message, self.collection, concern, |message| {
                put_document(number, self.seed, self.field_bytes, message);
            });
            tally.begun += 1;
            match insert(connection, &message) {
                Ok(()) => {
                    tally.acknowledged.push(number as i64);
                    if *member != self.leader.old && tally.first_elsewhere.is_none() {
                        tally.first_elsewhere = Some(Instant::now());
                        self.leader.acknowledged.store(true, Ordering::Relaxed);
                    }
                }
                Err(error) => {
                    *tally.errors.entry(code_of(&error)).or_default() += 1;
                    open = None;
                    // As a driver does: it looks around before it goes on.
                    thread::sleep(LOOK);
                }
            }
        }
        tally
    }
}

fn insert(connection: &mut Connection, message: &Message) -> Result<()> {
    let reply = connection.call(message)?;
    if let Some(error) = write_concern_error(reply) {
        return Err(error);
    }
    match affected("insert", reply)? {
        1 => Ok(()),
        other => Err(Error::Protocol(format!("an insert of one document inserted {other}"))),
    }
}

fn code_of(error: &Error) -> String {
    match error {
        Error::Refused { code, .. } => code.to_string(),
        Error::Io { .. } => BROKEN.to_owned(),
        other => chain(other),
    }
}

/// Median and maximum of all rounds, and what clients saw in all of them.
fn fill(run: &mut Run, rounds: &[Round]) {
    run.figures.insert(report::FAILOVERS.to_owned(), rounds.len() as f64);
    let of = |value: fn(&Round) -> Option<Duration>| -> Option<(f64, f64)> {
        let mut values: Vec<f64> = rounds.iter().filter_map(value).map(|time| time.as_secs_f64()).collect();
        values.sort_by(f64::total_cmp);
        Some((*values.get(values.len().saturating_sub(1) / 2)?, *values.last()?))
    };
    let times = [
        (report::WITHOUT_PRIMARY, of(|round| Some(round.without_primary))),
        (report::FIRST_WRITE, of(|round| Some(round.first_write))),
        (report::REJOIN, of(|round| round.rejoin)),
    ];
    for ([median, max], value) in times {
        if let Some(value) = value {
            run.figures.insert(median.to_owned(), value.0);
            run.figures.insert(max.to_owned(), value.1);
        }
    }
    let mut errors = 0;
    for (code, count) in rounds.iter().flat_map(|round| &round.errors) {
        *run.figures.entry(format!("{}{code}", report::ERRORS)).or_default() += *count as f64;
        errors += count;
    }
    let acknowledged = rounds.iter().map(|round| round.acknowledged).sum();
    let lost: u64 = rounds.iter().map(|round| round.lost).sum();
    run.figures.insert(report::LOST_WRITES.to_owned(), lost as f64);
    let operation = Operation {
        count: acknowledged,
        errors,
        latency: None,
    };
    run.operations.insert("insert".to_owned(), operation);
    if lost > 0 {
        let message = format!("{lost} of {acknowledged} acknowledged writes are lost");
        run.outcome = Outcome::Failed { message };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_without_a_primary_begins_when_nobody_leads() {
        let gone = Instant::now();
        let at = |ms| gone + Duration::from_millis(ms);
        let changes = [(at(100), NOBODY), (at(400), 2)];
        assert_eq!(without(&changes, gone, 0, Cause::Kill), Duration::from_millis(400));
        assert_eq!(without(&changes, gone, 0, Cause::StepDown), Duration::from_millis(300));
        // Another one led before the old one was seen not to.
        assert_eq!(without(&[(at(100), 1)], gone, 0, Cause::StepDown), Duration::ZERO);
        assert_eq!(
            without(&[(at(100), 0)], gone, 0, Cause::Kill),
            Duration::ZERO,
            "there was none"
        );
        let earlier = [(gone - Duration::from_millis(1), 2), (at(50), 1)];
        assert_eq!(without(&earlier, gone, 0, Cause::Kill), Duration::from_millis(50));
    }

    #[test]
    fn a_lost_write_fails_the_run() {
        let round = |ms, lost| Round {
            without_primary: Duration::from_millis(ms),
            first_write: Duration::from_millis(2 * ms),
            acknowledged: 100,
            lost,
            errors: [("10107".to_owned(), 2)].into(),
            ..Round::default()
        };
        let mut run = Run::new("test", "a", report::Configuration::default());
        fill(&mut run, &[round(500, 0), round(100, 0), round(300, 0)]);
        assert!(run.is_complete());
        let [median, max] = report::WITHOUT_PRIMARY;
        assert_eq!((run.figures[median], run.figures[max]), (0.3, 0.5));
        assert_eq!(run.figures[report::FIRST_WRITE[1]], 1.0);
        assert_eq!(run.figures["errors.10107"], 6.0);
        assert!(!run.figures.contains_key(report::REJOIN[0]), "nobody was started again");
        assert_eq!((run.count(), run.errors()), (300, 6));
        fill(&mut run, &[round(500, 1)]);
        assert_eq!(run.outcome.message(), Some("1 of 100 acknowledged writes are lost"));
    }

    #[test]
    fn errors_are_told_by_code() {
        let refused = Error::Refused {
            command: "insert".to_owned(),
            code: 189,
            message: String::new(),
        };
        assert_eq!(code_of(&refused), "189");
        let broken = Error::Io {
            action: String::new(),
            source: std::io::ErrorKind::BrokenPipe.into(),
        };
        assert_eq!(code_of(&broken), "connection");
    }
}
