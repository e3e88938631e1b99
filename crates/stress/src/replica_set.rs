//! A cell that is a replica set: the article's second half.
//!
//! 1. All members on fresh data, one of them told that they are a set, and a primary waited for.
//! 2. Writers write documents 1 to N to the primary. In a cell with a failover the primary is killed when half of them
//!    are written, and started again when another member leads; writers find the new primary and send again what
//!    failed.
//! 3. At once, readers read N down to 1 from the secondaries, spread over them evenly.
//! 4. When the secondaries have what the primary has, they are asked again for what was missing; then the same is read
//!    from the primary.
//!
//! Batches that are sent again may be there already: those inserts are not ordered, and what is a duplicate then is
//! written. What really is there is seen by reading.

use crate::cell::{
    Attempt, CellResult, Failover, Missed, admit, begin, check_lost, check_tally, expect_written, read_range, why_dead,
    written_bytes,
};
use crate::document::Documents;
use crate::event::{Event, Observer, Phase};
use crate::halt::{Halt, refused_by_rule};
use crate::link::{Link, LinkError};
use crate::load::{Batches, Broken, run};
use crate::matrix::Cell;
use crate::request::{Find, Insert};
use bench::chain;
use bench::interrupt::Interrupt;
use bench::procfs;
use bench::set::{Member, Members, Role};
use bson::raw::{RawBsonRef, RawDocument};
use bson::rawdoc;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Between two looks at how far something is.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Between two looks at what a member is, which each need a connection: readers are measured meanwhile.
const LOOK_AT_ROLE: Duration = Duration::from_millis(100);
/// Errors of a member that does not lead any more: `PrimarySteppedDown`, `ShutdownInProgress`, `InterruptedAtShutdown`,
/// `InterruptedDueToReplStateChange`, `NotWritablePrimary`, `NotPrimaryNoSecondaryOk`, `NotPrimaryOrSecondary`.
const NOT_LEADING: [i32; 7] = [189, 91, 11600, 11602, 10107, 13435, 13436];
/// A document with the `_id` is there.
const DUPLICATE: i32 = 11000;
/// Different reasons of failed batches that are kept.
const REASONS_MAX: usize = 8;

/// The servers of the cell, for those who write and read.
struct Set<'a> {
    members: Members,
    interrupt: &'a Interrupt,
}

impl<'a> Set<'a> {
    fn open(&self, number: usize) -> Result<Link<'a>, LinkError> {
        Link::open(self.members.all()[number].address, self.interrupt)
    }

    fn pid(&self, number: usize) -> u32 {
        self.members.all()[number].pid().unwrap_or(0)
    }

    /// A connection to whoever leads, when somebody does.
    fn open_primary(&self) -> Result<Link<'a>, LinkError> {
        let primary = self.members.wait(|_| true)?;
        self.open(primary)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What writers of a cell with a failover share.
#[derive(Default)]
struct Troubles {
    errors: AtomicU64,
    reasons: Mutex<BTreeMap<String, u64>>,
}

impl Troubles {
    fn note(&self, error: &LinkError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut reasons = lock(&self.reasons);
        let words = error.to_string();
        if reasons.contains_key(&words) || reasons.len() < REASONS_MAX {
            *reasons.entry(words).or_default() += 1;
        }
    }
}

impl Attempt<'_> {
    /// As `whole`, of a set.
    pub(crate) fn whole_set(&mut self, result: &mut CellResult, observer: Observer<'_>) -> Result<(), Halt> {
        let start = Instant::now();
        let mut started = Vec::new();
        for place in &self.plan.servers {
            self.check_space(place, result)?;
            let server = self.start(place, result)?;
            started.push(Member::new(place.command.clone(), server));
        }
        let set = Set {
            members: Members::new(started, self.interrupt),
            interrupt: self.interrupt,
        };
        let measured = self.talk_to_set(&set, start, result, observer);
        if let Err(Halt::Failed(reason)) = measured {
            let mut servers = set.members.all().iter().map(Member::process);
            // A dead member explains more than what followed from it.
            let dead = servers.find_map(|mut server| why_dead(server.as_mut()?));
            return Err(Halt::Failed(dead.unwrap_or(reason)));
        }
        self.stop_set(&set, result, observer, measured)?;
        check_tally(&result.tally)?;
        check_tally(&result.tally_primary)?;
        check_lost(result)
    }

    fn stop_set(
        &self,
        set: &Set<'_>,
        result: &mut CellResult,
        observer: Observer<'_>,
        measured: Result<(), Halt>,
    ) -> Result<(), Halt> {
        let start = Instant::now();
        self.tell_patience(observer);
        for pid in set.members.all().iter().filter_map(Member::pid) {
            observer(Event::Line(&self.plan.stop_line(Some(pid))));
        }
        let failed = set.members.stop().err();
        let bytes = self
            .plan
            .servers
            .iter()
            .map(|place| procfs::directory_bytes(&place.command.data()));
        result.file_bytes = Some(bytes.sum());
        measured?;
        match failed {
            Some(bench::Error::Interrupted) => return Err(Halt::Stopped),
            Some(other) => return Err(Halt::Failed(chain(&other))),
            None => {}
        }
        result.stop_seconds = Some(start.elapsed().as_secs_f64());
        Ok(())
    }

    fn talk_to_set(
        &self,
        set: &Set<'_>,
        start: Instant,
        result: &mut CellResult,
        observer: Observer<'_>,
    ) -> Result<(), Halt> {
        let lines = self.plan.admin_lines();
        lines.iter().for_each(|line| observer(Event::Line(line)));
        if let Some(initiate) = &self.plan.initiate {
            admit(&mut set.open(0)?, initiate, &result.cell)?;
        }
        let primary = set.members.wait_for_all()?;
        result.start_seconds = Some(start.elapsed().as_secs_f64());
        let mut admin = set.open(primary)?;
        for step in &self.plan.admin {
            admit(&mut admin, step, &result.cell)?;
        }
        let settings = self.settings;
        let documents = Documents::new(
            settings.document_bytes as usize,
            settings.compressible,
            settings.seed,
            self.run_id,
        );
        // Readers connect beforehand, so that nothing is between the last write and the first read. After a failover
        // they have to look for the secondaries first.
        let readers = match result.cell.failover {
            true => Vec::new(),
            false => self.open_secondaries(set)?,
        };
        let written_before = written_bytes(set.pid(primary));
        let (writers, restarted) = self.write_set(set, primary, &documents, result, observer)?;
        let missing = restarted.filter(|_| {
            result
                .failover
                .as_ref()
                .is_some_and(|known| known.rejoin_seconds.is_none())
        });
        let over = AtomicBool::new(false);
        let (read, rejoined) = std::thread::scope(|scope| {
            let over = &over;
            let watcher = missing.map(|at| scope.spawn(move || watch_rejoin(set, primary, at, over)));
            let read = self.read_set(set, (writers, readers), &documents, result, observer);
            over.store(true, Ordering::Relaxed);
            (read, watcher.and_then(|watcher| watcher.join().ok().flatten()))
        });
        let leads = read?;
        if let (Some(at), Some(failover)) = (missing, &mut result.failover) {
            // The readers may be done before.
            if rejoined.is_none() {
                set.members.check()?;
                set.members.wait(|roles| roles[primary] != Role::Neither)?;
            }
            failover.rejoin_seconds = Some(rejoined.unwrap_or_else(|| at.elapsed()).as_secs_f64());
        }
        let before = written_before.filter(|_| leads == primary);
        self.settle(&mut admin, set.pid(leads), before, result, observer)
    }

    /// What comes behind the writers. Returns who leads.
    fn read_set<'m>(
        &self,
        set: &Set<'m>,
        (mut writers, mut readers): (Vec<Link<'m>>, Vec<Link<'m>>),
        documents: &Documents,
        result: &mut CellResult,
        observer: Observer<'_>,
    ) -> Result<usize, Halt> {
        if result.cell.failover {
            set.members.wait(|roles| roles.contains(&Role::Secondary))?;
            readers = self.open_secondaries(set)?;
        }
        let primary = set.members.wait(|_| true)?;
        let pid = set.pid(primary);
        let (phase, tally, gaps, broken) = self.read(readers, documents, pid, Phase::Read, &result.cell, observer);
        (result.read, result.tally) = (phase, tally);
        broken?;
        // When each writer's connection has answered, all that they sent has been taken.
        for writer in &mut writers {
            match writer.command("admin", &rawdoc! { "ping": 1 }) {
                Err(error) if !result.cell.failover => return Err(error.into()),
                _ => {}
            }
        }
        if !gaps.is_empty() {
            result.missed = self.look_again_at_secondary(set, documents, &gaps, result.tally.missing)?;
        }
        let links = (0..self.settings.threads).map(|_| set.open(primary));
        let links = links.collect::<Result<Vec<_>, _>>()?;
        let (phase, tally, _, broken) = self.read(links, documents, pid, Phase::ReadPrimary, &result.cell, observer);
        (result.read_primary, result.tally_primary) = (phase, tally);
        broken?;
        Ok(primary)
    }

    /// A connection for each reader, to the secondaries in turn.
    fn open_secondaries<'m>(&self, set: &Set<'m>) -> Result<Vec<Link<'m>>, Halt> {
        let roles = set.members.roles();
        let secondaries = (0..roles.len()).filter(|number| roles[*number] == Role::Secondary);
        let threads = self.settings.threads as usize;
        let links = secondaries.cycle().take(threads).map(|number| set.open(number));
        Ok(links.collect::<Result<Vec<_>, _>>()?)
    }

    /// The writers' connections, when all is written, and when the killed member was started again.
    fn write_set<'m>(
        &self,
        set: &Set<'m>,
        primary: usize,
        documents: &Documents,
        result: &mut CellResult,
        observer: Observer<'_>,
    ) -> Result<(Vec<Link<'m>>, Option<Instant>), Halt> {
        let (settings, cell) = (self.settings, result.cell.clone());
        let batches = Batches {
            documents: settings.documents(cell.size),
            size: settings.batch,
        };
        let insert = || Insert::into_set(cell.concern, settings.fsync, settings.servers(), cell.failover);
        let workers = (0..settings.threads).map(|_| Ok((set.open(primary)?, insert())));
        let workers = workers.collect::<Result<Vec<_>, LinkError>>()?;
        begin(Phase::Write, batches.documents, settings, observer);
        let (troubles, written, over) = (Troubles::default(), AtomicU64::new(0), AtomicBool::new(false));
        let (teller, told) = channel();
        let ((phase, workers, broken), failover) = std::thread::scope(|scope| {
            let killer = cell.failover.then(|| {
                let (written, over) = (&written, &over);
                let line = self.plan.servers[primary].start_line();
                scope.spawn(move || kill_primary(set, primary, batches.documents / 2, written, over, line, &teller))
            });
            // What the other thread does is told between two figures.
            let mut both = |event: Event<'_>| {
                told.try_iter().for_each(|line: String| observer(Event::Line(&line)));
                observer(event);
            };
            let ended = run(
                workers,
                batches,
                Phase::Write.name(),
                set.pid(primary),
                self.interrupt,
                &mut both,
                |(link, insert), batch| {
                    let numbers = batches.upwards(batch);
                    let count = numbers.end() - numbers.start() + 1;
                    write_batch(set, &cell, link, insert, documents, numbers, &troubles)?;
                    written.fetch_add(count, Ordering::Relaxed);
                    Ok(count)
                },
            );
            over.store(true, Ordering::Relaxed);
            let failover = killer.map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Halt::Failed("the thread that kills the primary broke off".to_owned())))
            });
            told.try_iter().for_each(|line: String| observer(Event::Line(&line)));
            (ended, failover)
        });
        observer(Event::End);
        let none_written = phase.documents == 0;
        result.write = (!none_written).then_some(phase);
        match broken {
            None => {}
            Some(Broken::Stopped) => return Err(Halt::Stopped),
            // Refused from the first batch on may be a rule; later it is an accident.
            Some(Broken::Failed(error)) if none_written => return Err(refused_by_rule(error, &cell)),
            Some(Broken::Failed(error)) => return Err(error.into()),
        }
        let mut restarted = None;
        if let Some(failover) = failover {
            let (mut failover, at) = failover?;
            restarted = Some(at);
            failover.errors = troubles.errors.load(Ordering::Relaxed);
            failover.reasons = std::mem::take(&mut lock(&troubles.reasons));
            result.failover = Some(failover);
        }
        Ok((workers.into_iter().map(|(link, _)| link).collect(), restarted))
    }

    /// Asks a secondary again for what was missing, when it has all that the primary has.
    fn look_again_at_secondary(
        &self,
        set: &Set<'_>,
        documents: &Documents,
        gaps: &[RangeInclusive<u64>],
        missing: u64,
    ) -> Result<Missed, Halt> {
        let start = Instant::now();
        let mut link = set.open_primary()?;
        loop {
            let status = link.command("admin", &rawdoc! { "replSetGetStatus": 1 })?;
            if stands_at_one_time(status) {
                break;
            }
            if start.elapsed() > bench::set::CATCH_UP_TIMEOUT {
                return Err(Halt::Failed("the secondaries do not catch up".to_owned()));
            }
            if self.interrupt.asked() {
                return Err(Halt::Stopped);
            }
            std::thread::sleep(LOOK_AGAIN * 10);
        }
        let roles = set.members.roles();
        let secondary = roles.iter().position(|role| *role == Role::Secondary);
        let mut link = set.open(secondary.unwrap_or(0))?;
        let mut find = Find::new();
        let mut lost = 0;
        for numbers in gaps {
            lost += read_range(&mut link, &mut find, documents, numbers.clone())?.missing;
        }
        Ok(Missed {
            late: missing.saturating_sub(lost),
            lost,
        })
    }
}

/// Writes one batch, again and again in a cell with a failover, until a primary has taken it.
fn write_batch<'a>(
    set: &Set<'a>,
    cell: &Cell,
    link: &mut Link<'a>,
    insert: &mut Insert,
    documents: &Documents,
    numbers: RangeInclusive<u64>,
    troubles: &Troubles,
) -> Result<(), LinkError> {
    let count = numbers.end() - numbers.start() + 1;
    let mut is_repeated = false;
    loop {
        let message = insert.of(documents, numbers.clone());
        let done = match cell.concern.acknowledged() {
            true => link.call_ok(message).and_then(|reply| expect_written(reply, count)),
            false => link.send(message),
        };
        let error = match done {
            Ok(()) => return Ok(()),
            Err(LinkError::Refused { code: DUPLICATE, .. }) if is_repeated => return Ok(()),
            Err(error) => error,
        };
        let is_failover = match &error {
            LinkError::Broken(_) => true,
            LinkError::Refused { code, .. } => NOT_LEADING.contains(code),
            _ => false,
        };
        if !cell.failover || !is_failover {
            return Err(error);
        }
        troubles.note(&error);
        is_repeated = true;
        // Whoever leads now may stop leading before the connection is made.
        *link = loop {
            match set.open_primary() {
                Err(LinkError::Broken(_)) => {}
                opened => break opened?,
            }
        };
    }
}

/// Kills the primary when enough is written, and starts it again when another member leads.
fn kill_primary(
    set: &Set<'_>,
    primary: usize,
    after: u64,
    written: &AtomicU64,
    over: &AtomicBool,
    start_line: String,
    teller: &Sender<String>,
) -> Result<(Failover, Instant), Halt> {
    let tell = |line: String| drop(teller.send(line));
    while written.load(Ordering::Relaxed) < after {
        if over.load(Ordering::Relaxed) || set.interrupt.asked() {
            return Err(Halt::Stopped);
        }
        std::thread::sleep(LOOK_AGAIN / 5);
    }
    let mut failover = Failover {
        documents: written.load(Ordering::Relaxed),
        ..Failover::default()
    };
    tell(format!("CMD> kill -KILL {}", set.pid(primary)));
    let start = Instant::now();
    set.members.all()[primary].kill();
    let heir = set.members.wait(|_| true)?;
    failover.seconds = start.elapsed().as_secs_f64();
    let address = set.members.all()[heir].address;
    tell(format!(
        "# {:.2} s without a primary; {address} is it now",
        failover.seconds
    ));
    tell(start_line);
    let restarted = Instant::now();
    set.members.start_again(primary)?;
    let rejoined = watch_rejoin(set, primary, restarted, over);
    failover.rejoin_seconds = rejoined.map(|time| time.as_secs_f64());
    Ok((failover, restarted))
}

/// How long a member needed from its start until it followed, or led; `None` when nobody wants to know any more.
fn watch_rejoin(set: &Set<'_>, number: usize, start: Instant, over: &AtomicBool) -> Option<Duration> {
    while !over.load(Ordering::Relaxed) && !set.interrupt.asked() && start.elapsed() < bench::set::CATCH_UP_TIMEOUT {
        if set.members.role(number) != Role::Neither {
            return Some(start.elapsed());
        }
        // It will not follow any more; whoever waits for it then has the reason.
        if set.members.check().is_err() {
            return None;
        }
        std::thread::sleep(LOOK_AT_ROLE);
    }
    None
}

/// Whether all members have applied the same.
fn stands_at_one_time(status: &RawDocument) -> bool {
    let Ok(members) = status.get_array("members") else {
        return false;
    };
    let mut times = members.into_iter().map(|member| match member {
        Ok(RawBsonRef::Document(member)) => {
            let time = member.get_document("optime").and_then(|time| time.get_timestamp("ts"));
            time.ok()
        }
        _ => None,
    });
    let first = times.next().flatten();
    first.is_some() && times.all(|time| time == first)
}

#[cfg(test)]
mod tests {
    use super::stands_at_one_time;
    use bson::{Timestamp, rawdoc};

    #[test]
    fn members_stand_at_one_time_or_do_not() {
        let at = |increment| rawdoc! { "optime": { "ts": Timestamp { time: 5, increment }, "t": 1_i64 } };
        assert!(stands_at_one_time(&rawdoc! { "members": [at(1), at(1), at(1)] }));
        assert!(!stands_at_one_time(&rawdoc! { "members": [at(1), at(1), at(2)] }));
        assert!(!stands_at_one_time(&rawdoc! { "members": [at(1), { "state": 8 }] }));
        assert!(!stands_at_one_time(&rawdoc! { "members": [] }));
    }
}
