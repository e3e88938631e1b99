//! One cell, from an empty folder to a stopped server.
//!
//! 1. A fresh server and the plan's admin commands.
//! 2. Writers write documents 1 to N.
//! 3. At once, readers on connections of their own read N down to 1 and compare every byte.
//! 4. What was not there is asked for again once the server has taken all that the writers sent: then it was late, or
//!    it is lost.
//! 5. The server is told to flush.
//! 6. The server ends in an orderly way; its folder is removed.

use crate::document::{Documents, Tally};
use crate::event::{Event, Observer, Phase};
use crate::halt::{Halt, cannot_start_without_journal, refused_by_rule};
use crate::link::{Link, LinkError, first_batch};
use crate::load::{Batches, Broken, PhaseResult, run};
use crate::matrix::{Cell, Topology, mebibytes};
use crate::plan::{Admin, Place, Plan};
use crate::request::{Find, Insert};
use crate::settings::Settings;
use bench::chain;
use bench::connection::{FLUSH_TIMEOUT, whole_number};
use bench::interrupt::Interrupt;
use bench::procfs;
use bench::server::{STOP_TIMEOUT_INTERRUPTED, ServerCommand, ServerProcess};
use bson::raw::RawDocumentBuf;
use bson::rawdoc;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::time::Instant;

/// Bytes on disk per byte of documents that a cell may take at its worst: log, data, and what is being rewritten.
const DISK_FACTOR: u64 = 3;
/// Bytes that a server takes without any document.
const DISK_BASE: u64 = 256 << 20;
/// When so little is left on the disk, that is the likely cause of a failure.
const DISK_LOW: u64 = 64 << 20;
/// `CommandNotFound`, `CommandNotSupported` and `NotImplemented`.
const NO_SUCH_COMMAND: [i32; 3] = [59, 115, 238];

/// How a cell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellOutcome {
    /// As it was meant to.
    Complete,
    /// The server refuses this combination, in its own words.
    Refused(String),
    /// There is nothing to measure, for this reason.
    Impossible(String),
    /// The user stopped it.
    Interrupted,
    /// It broke; figures reach up to there.
    Failed(String),
}

/// What became of documents that readers did not find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// They were there a little later.
    pub late: u64,
    /// They were not.
    pub lost: u64,
}

/// What a set did when its primary was killed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failover {
    /// Documents that were written by then.
    pub documents: u64,
    /// From the kill to another primary.
    pub seconds: f64,
    /// From its start to the killed one being a secondary; `None` when the cell ended before.
    pub rejoin_seconds: Option<f64>,
    /// Batches that failed and were sent again.
    pub errors: u64,
    /// Why, by the words of the error, and how often.
    pub reasons: std::collections::BTreeMap<String, u64>,
}

/// What a cell showed.
#[derive(Debug)]
pub struct CellResult {
    /// Which.
    pub cell: Cell,
    /// How it ended.
    pub outcome: CellOutcome,
    /// The writers' part.
    pub write: Option<PhaseResult>,
    /// The readers' part.
    pub read: Option<PhaseResult>,
    /// What the readers found.
    pub tally: Tally,
    /// What became of the rest.
    pub missed: Missed,
    /// The readers' part on the primary of a set, after that on its secondaries.
    pub read_primary: Option<PhaseResult>,
    /// What they found.
    pub tally_primary: Tally,
    /// What came of the primary's death.
    pub failover: Option<Failover>,
    /// From the server's start to its first answer.
    pub start_seconds: Option<f64>,
    /// What it took the server to make durable what was written, when it was told to, before it was asked to stop.
    pub flush_seconds: Option<f64>,
    /// From asking it to stop to its end.
    pub stop_seconds: Option<f64>,
    /// Bytes of the data directory after the stop.
    pub file_bytes: Option<u64>,
    /// What was not possible, in sentences.
    pub notes: Vec<String>,
    /// What the servers were told, beside where they are.
    pub arguments: String,
    /// The memory of a server was to be limited, and is not.
    pub is_unlimited: bool,
}

impl CellResult {
    /// A cell of which nothing has been measured.
    pub fn new(cell: Cell, outcome: CellOutcome) -> Self {
        Self {
            cell,
            outcome,
            write: None,
            read: None,
            tally: Tally::default(),
            missed: Missed::default(),
            read_primary: None,
            tally_primary: Tally::default(),
            failover: None,
            start_seconds: None,
            flush_seconds: None,
            stop_seconds: None,
            file_bytes: None,
            notes: Vec::new(),
            arguments: String::new(),
            is_unlimited: false,
        }
    }
}

/// Measures a cell. Its folder is gone afterwards, but for the server's log when something broke.
pub(crate) fn measure(
    settings: &Settings,
    plan: &Plan,
    cell: &Cell,
    run_id: i64,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> CellResult {
    let mut result = CellResult::new(cell.clone(), CellOutcome::Complete);
    plan.start_lines().iter().for_each(|line| observer(Event::Line(line)));
    result.arguments = plan.arguments();
    let mut attempt = Attempt {
        settings,
        plan,
        run_id,
        interrupt,
    };
    let halt = match settings.topology {
        Topology::Standalone => attempt.whole(&mut result, observer),
        Topology::ReplicaSet => attempt.whole_set(&mut result, observer),
    };
    let halt = halt.err();
    result.outcome = match halt {
        None => CellOutcome::Complete,
        Some(Halt::Stopped) => CellOutcome::Interrupted,
        Some(Halt::Refused(reason)) => CellOutcome::Refused(reason),
        Some(Halt::Failed(reason)) => {
            let low = procfs::available_bytes(plan.directory()).filter(|left| *left < DISK_LOW);
            let full = low.map_or_else(String::new, |left| {
                format!(
                    "the disk under {} is full ({} left): ",
                    plan.directory().display(),
                    mebibytes(left)
                )
            });
            CellOutcome::Failed(format!("{full}{reason}"))
        }
    };
    forget_bytes_of_memory(plan, &mut result);
    clean_up(plan, &mut result);
    result
}

/// What goes to a file system in memory goes to no storage, and is counted nowhere.
fn forget_bytes_of_memory(plan: &Plan, result: &mut CellResult) {
    let mut folders = plan.servers.iter().map(|place| place.command.directory.as_path());
    let Some(folder) = folders.find(|folder| procfs::is_in_memory(folder)) else {
        return;
    };
    let phases = [&mut result.write, &mut result.read, &mut result.read_primary];
    for phase in phases.into_iter().flatten() {
        (phase.read_bytes, phase.written_bytes) = (None, None);
        phase.series.read_bytes.clear();
        phase.series.written_bytes.clear();
    }
    let told = format!("{} is in memory: no bytes are read or written", folder.display());
    result.notes.push(told);
}

fn clean_up(plan: &Plan, result: &mut CellResult) {
    for place in &plan.servers {
        clean_up_server(&place.command, plan.initiate.is_some(), result);
    }
}

fn clean_up_server(server: &ServerCommand, is_member: bool, result: &mut CellResult) {
    let keep_log = matches!(result.outcome, CellOutcome::Failed(_)) && server.log().exists();
    let path = if keep_log {
        server.data()
    } else {
        server.directory.clone()
    };
    if let Err(error) = std::fs::remove_dir_all(&path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        result.notes.push(format!("{} is left behind: {error}", path.display()));
    }
    if keep_log {
        let kept = match server.directory.parent().filter(|_| is_member) {
            Some(folder) => format!("The members' logs are kept: {}", folder.display()),
            None => format!("The server's log is kept: {}", server.log().display()),
        };
        if !result.notes.contains(&kept) {
            result.notes.push(kept);
        }
    } else if let Some(cell) = server.directory.parent().filter(|_| is_member) {
        // Fails as long as other members have something in it.
        let _ = std::fs::remove_dir(cell);
    }
}

pub(crate) struct Attempt<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) plan: &'a Plan,
    pub(crate) run_id: i64,
    pub(crate) interrupt: &'a Interrupt,
}

impl Attempt<'_> {
    fn whole(&mut self, result: &mut CellResult, observer: Observer<'_>) -> Result<(), Halt> {
        let place = &self.plan.servers[0];
        self.check_space(place, result)?;
        let mut server = self.start(place, result)?;
        result.start_seconds = Some(server.start_time.as_secs_f64());
        let measured = self.talk(&server, result, observer);
        if let Err(Halt::Failed(reason)) = measured {
            // A dead server explains a broken connection better than the connection does.
            return Err(Halt::Failed(why_dead(&mut server).unwrap_or(reason)));
        }
        self.tell_patience(observer);
        observer(Event::Line(&self.plan.stop_line(Some(server.pid()))));
        let stopped = server.stop();
        result.file_bytes = Some(procfs::directory_bytes(&place.command.data()));
        measured?;
        let stop_time = stopped.map_err(|error| match error {
            bench::Error::Interrupted => Halt::Stopped,
            other => Halt::Failed(chain(&other)),
        })?;
        result.stop_seconds = Some(stop_time.as_secs_f64());
        check_tally(&result.tally)?;
        check_lost(result)
    }

    /// A server on fresh data.
    pub(crate) fn start(&self, place: &Place, result: &mut CellResult) -> Result<ServerProcess, Halt> {
        place
            .command
            .make_fresh()
            .map_err(|error| Halt::Failed(chain(&error)))?;
        let started = ServerProcess::start_on(&place.command, place.port, self.interrupt);
        let mut server = started.map_err(|error| match error {
            bench::Error::Interrupted => Halt::Stopped,
            bench::Error::ServerDied { what, log, .. } if cannot_start_without_journal(&result.cell, &what, &log) => {
                Halt::Refused(log)
            }
            other => Halt::Failed(chain(&other)),
        })?;
        result.is_unlimited |= place.command.limits.any() && !server.is_limited();
        result.notes.append(&mut server.notes);
        Ok(server)
    }

    /// Whoever has asked to stop and sees nothing happen asks again.
    pub(crate) fn tell_patience(&self, observer: Observer<'_>) {
        if self.interrupt.asked() {
            let line = format!(
                "# stopping: a server has {} s to end; asking again kills it",
                STOP_TIMEOUT_INTERRUPTED.as_secs()
            );
            observer(Event::Line(&line));
        }
    }

    pub(crate) fn check_space(&self, place: &Place, result: &CellResult) -> Result<(), Halt> {
        let data = self.settings.data_bytes(result.cell.size);
        // Members may share a disk.
        let of_one = data.saturating_mul(DISK_FACTOR).saturating_add(DISK_BASE);
        let needed = of_one.saturating_mul(self.settings.servers());
        let directory = &place.command.directory;
        std::fs::create_dir_all(directory)
            .map_err(|error| Halt::Failed(format!("making {}: {error}", directory.display())))?;
        match procfs::available_bytes(directory) {
            Some(left) if left < needed => Err(Halt::Failed(format!(
                "the disk under {} has {} left, {} of documents may take {}",
                directory.display(),
                mebibytes(left),
                mebibytes(data),
                mebibytes(needed)
            ))),
            _ => Ok(()),
        }
    }

    fn talk(&self, server: &ServerProcess, result: &mut CellResult, observer: Observer<'_>) -> Result<(), Halt> {
        let mut admin = Link::open(server.address(), self.interrupt)?;
        self.plan
            .admin_lines()
            .iter()
            .for_each(|line| observer(Event::Line(line)));
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
        let open = |_| Link::open(server.address(), self.interrupt);
        // Readers connect beforehand, so that nothing is between the last write and the first read.
        let readers: Vec<Link<'_>> = (0..settings.threads).map(open).collect::<Result<_, _>>()?;
        let writers: Vec<Link<'_>> = (0..settings.threads).map(open).collect::<Result<_, _>>()?;
        let pid = server.pid();
        let written_before = written_bytes(pid);
        let mut writers = self.write(writers, &documents, pid, result, observer)?;
        let (phase, tally, gaps, broken) = self.read(readers, &documents, pid, Phase::Read, &result.cell, observer);
        (result.read, result.tally) = (phase, tally);
        broken?;
        if !gaps.is_empty() {
            result.missed = look_again(&mut admin, &mut writers, &documents, &gaps, result.tally.missing)?;
        }
        self.settle(&mut admin, pid, written_before, result, observer)
    }

    /// What was written may still be in memory only: flushing makes it count, as bytes of the writers, whenever they
    /// were sent. Of a server that has no such command nothing is told.
    pub(crate) fn settle(
        &self,
        admin: &mut Link<'_>,
        pid: u32,
        before: Option<u64>,
        result: &mut CellResult,
        observer: Observer<'_>,
    ) -> Result<(), Halt> {
        let Some(flush) = &self.plan.flush else { return Ok(()) };
        let lines = self.plan.flush_lines();
        lines.iter().for_each(|line| observer(Event::Line(line)));
        let start = Instant::now();
        match admin.command_within(&flush.database, &raw(flush)?, FLUSH_TIMEOUT) {
            Ok(_) => result.flush_seconds = Some(start.elapsed().as_secs_f64()),
            Err(LinkError::Refused { code, .. }) if NO_SUCH_COMMAND.contains(&code) => return Ok(()),
            Err(LinkError::Refused { code, message }) => {
                let words = format!("what was written could not be flushed: {message} (code {code})");
                return Err(Halt::Failed(words));
            }
            Err(error) => return Err(error.into()),
        }
        let after = written_bytes(pid);
        if let Some(write) = &mut result.write {
            write.written_bytes = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        }
        Ok(())
    }

    fn write<'s>(
        &self,
        links: Vec<Link<'s>>,
        documents: &Documents,
        pid: u32,
        result: &mut CellResult,
        observer: Observer<'_>,
    ) -> Result<Vec<Link<'s>>, Halt> {
        let (settings, cell) = (self.settings, result.cell.clone());
        let batches = Batches {
            documents: settings.documents(cell.size),
            size: settings.batch,
        };
        begin(Phase::Write, batches.documents, settings, observer);
        let insert = || Insert::new(cell.concern, settings.fsync);
        let workers: Vec<_> = links.into_iter().map(|link| (link, insert())).collect();
        let (phase, workers, broken) = run(
            workers,
            batches,
            Phase::Write.name(),
            pid,
            self.interrupt,
            observer,
            |(link, insert), batch| {
                let numbers = batches.upwards(batch);
                let count = numbers.end() - numbers.start() + 1;
                let message = insert.of(documents, numbers);
                if cell.concern.acknowledged() {
                    expect_written(link.call_ok(message)?, count)?;
                } else {
                    link.send(message)?;
                }
                Ok(count)
            },
        );
        observer(Event::End);
        let none_written = phase.documents == 0;
        result.write = (!none_written).then_some(phase);
        match broken {
            None => Ok(workers.into_iter().map(|(link, _)| link).collect()),
            Some(Broken::Stopped) => Err(Halt::Stopped),
            // Refused from the first batch on may be a rule; later it is an accident.
            Some(Broken::Failed(error)) if none_written => Err(refused_by_rule(error, &cell)),
            Some(Broken::Failed(error)) => Err(error.into()),
        }
    }

    /// What was measured and found, the ranges in which documents were missing, and how it ended.
    pub(crate) fn read(
        &self,
        links: Vec<Link<'_>>,
        documents: &Documents,
        pid: u32,
        kind: Phase,
        cell: &Cell,
        observer: Observer<'_>,
    ) -> Readings {
        let settings = self.settings;
        let batches = Batches {
            documents: settings.documents(cell.size),
            size: settings.read_batch,
        };
        begin(kind, batches.documents, settings, observer);
        let found: Mutex<(Tally, Vec<RangeInclusive<u64>>)> = Mutex::default();
        let workers: Vec<_> = links.into_iter().map(|link| (link, Find::new())).collect();
        let (phase, _, broken) = run(
            workers,
            batches,
            kind.name(),
            pid,
            self.interrupt,
            observer,
            |(link, find), batch| {
                let numbers = batches.downwards(batch);
                let tally = read_range(link, find, documents, numbers.clone())?;
                let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                found.0.add(&tally);
                let count = tally.asked();
                if tally.missing > 0 {
                    found.1.push(numbers);
                }
                Ok(count)
            },
        );
        observer(Event::End);
        let (tally, gaps) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let broken = match broken {
            None => Ok(()),
            Some(Broken::Stopped) => Err(Halt::Stopped),
            Some(Broken::Failed(error)) => Err(error.into()),
        };
        ((phase.documents > 0).then_some(phase), tally, gaps, broken)
    }
}

/// See [`Attempt::read`].
pub(crate) type Readings = (Option<PhaseResult>, Tally, Vec<RangeInclusive<u64>>, Result<(), Halt>);

/// Wrong documents are faults, whatever else went well.
pub(crate) fn check_tally(tally: &Tally) -> Result<(), Halt> {
    if !tally.is_wrong() {
        return Ok(());
    }
    Err(Halt::Failed(format!(
        "documents are wrong: {} torn, {} stale, {} that nobody asked for",
        tally.torn, tally.stale, tally.foreign
    )))
}

/// What a server has acknowledged and no longer has is a fault as well; of what it was not asked to acknowledge it is a
/// remark.
pub(crate) fn check_lost(result: &CellResult) -> Result<(), Halt> {
    let lost = result.missed.lost.max(result.tally_primary.missing);
    match result.cell.concern.acknowledged() && lost > 0 {
        true => Err(Halt::Failed(format!("{lost} acknowledged documents are lost"))),
        false => Ok(()),
    }
}

/// Has a server execute an admin command.
pub(crate) fn admit(link: &mut Link<'_>, step: &Admin, cell: &Cell) -> Result<(), Halt> {
    match link.command(&step.database, &raw(step)?) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused_by_rule(error, cell)),
    }
}

fn raw(step: &Admin) -> Result<RawDocumentBuf, Halt> {
    RawDocumentBuf::try_from(&step.command).map_err(|error| Halt::Failed(error.to_string()))
}

pub(crate) fn begin(phase: Phase, documents: u64, settings: &Settings, observer: Observer<'_>) {
    observer(Event::Begin {
        phase,
        documents,
        document_bytes: settings.document_bytes,
    });
}

pub(crate) fn expect_written(reply: &bson::RawDocument, count: u64) -> Result<(), LinkError> {
    match whole_number(reply, "n") {
        Ok(n) if u64::try_from(n) == Ok(count) => Ok(()),
        other => Err(LinkError::Malformed(format!(
            "an insert of {count} documents says n: {other:?}"
        ))),
    }
}

pub(crate) fn read_range(
    link: &mut Link<'_>,
    find: &mut Find,
    documents: &Documents,
    numbers: RangeInclusive<u64>,
) -> Result<Tally, LinkError> {
    let reply = link.call_ok(find.of(numbers.clone()))?;
    Ok(documents.check(numbers, first_batch(reply)?))
}

/// Asks again for what was missing, when each writer's connection has answered: then all before it has been applied.
fn look_again(
    reader: &mut Link<'_>,
    writers: &mut [Link<'_>],
    documents: &Documents,
    gaps: &[RangeInclusive<u64>],
    missing: u64,
) -> Result<Missed, LinkError> {
    for writer in writers {
        writer.command("admin", &rawdoc! { "ping": 1 })?;
    }
    let mut find = Find::new();
    let mut lost = 0;
    for numbers in gaps {
        lost += read_range(reader, &mut find, documents, numbers.clone())?.missing;
    }
    Ok(Missed {
        late: missing.saturating_sub(lost),
        lost,
    })
}

/// Bytes that a server has sent to storage up to now.
pub(crate) fn written_bytes(pid: u32) -> Option<u64> {
    procfs::usage(pid).ok()?.written_bytes
}

/// Why the server is gone; `None` when it is not.
pub(crate) fn why_dead(server: &mut ServerProcess) -> Option<String> {
    server.why_dead().map(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::cells;

    /// It was a remark, and the exit code of a check was 0.
    #[test]
    fn a_cell_fails_by_acknowledged_documents_that_are_lost() {
        let cells = cells(&Settings::default(), &["btree".to_owned()]);
        assert!(cells.iter().any(|cell| cell.concern.acknowledged()) && !cells.is_empty());
        for cell in cells {
            let fails = cell.concern.acknowledged();
            let mut result = CellResult::new(cell, CellOutcome::Complete);
            result.missed.late = 7;
            assert!(check_lost(&result).is_ok());
            result.missed.lost = 1;
            assert_eq!(check_lost(&result).is_err(), fails);
            result.missed.lost = 0;
            result.tally_primary.missing = 1;
            assert_eq!(check_lost(&result).is_err(), fails);
        }
    }
}
