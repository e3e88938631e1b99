//! Initial sync: a copy of all data of another member, beside what this server has, which the copy replaces.
//!
//! The server answers questions about itself meanwhile. A copy is made in `initial-sync/` in the data directory, with
//! an engine and a log of its own, and is complete when its marker is on disk; the server then starts anew, in the same
//! process, and finds it there (`data_directory.rs`). One that was cut short goes on, after a new start of the server,
//! too, as long as the source keeps its state; else it is thrown away and begun anew.
//!
//! The source decides how: by files, where it can give some that this server's engine can open, or by rows.

use super::Members;
use super::copy_files::copy_files;
use super::copy_rows::{TablesOf, fill_options};
use super::fetch::PATIENCE;
use super::link::{CallError, Link};
use crate::config::Config;
use crate::data_directory::{BegunCopy, CopyPlace};
use crate::engines::Registry;
use crate::events::Event;
use crate::run;
use bson::doc;
use bson::raw::RawDocumentBuf;
use commands::logger::id;
use commands::{CopyBegin, CopyContent, CopyProgress, FileLayout, WantedCopy, ask, read_copy_begin};
use engine::{CloseMode, Engine, Seq};
use oplog::{EngineAhead, HardState, Log};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{StorageError, fill_from_clone};
use vfs::Env;

/// How long the source may take to begin: it takes a checkpoint before it gives its files.
const BEGIN_PATIENCE: Duration = Duration::from_secs(600);
/// Between two lines of the log that tell how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Between two looks whether writes are still held back.
const HELD_PAUSE: Duration = Duration::from_millis(100);

/// What a copy is made with.
pub struct CopySettings {
    /// The server's.
    pub config: Config,
    /// The engines that there are.
    pub registry: Registry,
    /// The engine, by its own name.
    pub engine: &'static str,
    /// Where.
    pub place: CopyPlace,
    /// The data directory.
    pub data: std::path::PathBuf,
}

/// Why there is no copy.
enum Failure {
    /// What has been copied may be of use yet.
    Source(String),
    /// It is of none.
    Copy(String),
}

impl Failure {
    fn into_sentence(self) -> String {
        match self {
            Self::Source(sentence) | Self::Copy(sentence) => sentence,
        }
    }
}

/// What failed, and how.
fn local<E: Display>(what: &str) -> impl Fn(E) -> Failure {
    move |error| Failure::Copy(format!("{what}: {error}"))
}

impl Members {
    /// Makes the copy and asks for the restart; or notes why there is none, and may be asked again.
    pub(super) fn make_copy(self: &Arc<Self>, wanted: &WantedCopy) {
        let server = &self.server;
        let now_ms = server.env.clock.now_ms();
        {
            let mut copy = self.set.copy.lock();
            let (failed, failure) = (copy.failed, std::mem::take(&mut copy.failure));
            *copy = CopyProgress {
                sources: [vec![wanted.primary.clone()], wanted.secondaries.clone()].concat(),
                started_ms: now_ms,
                failed,
                failure,
                ..CopyProgress::default()
            };
        }
        *self.told.lock() = server.env.clock.monotonic();
        self.set.change(|member| member.copies = true);
        server.log_role(&self.set.member());
        let copied = self.try_to_copy(wanted);
        let progress = self.set.copy.lock().clone();
        match copied {
            Ok(()) => {
                let took = server.env.clock.now_ms() - now_ms;
                let attributes = doc! {
                    "rows": progress.rows as i64, "bytes": progress.bytes as i64, "durationMillis": took,
                };
                let message = "Initial sync is over; the server starts anew with the copy";
                // A lock ends with the new start, and whoever copies the files would find others.
                while server.storage.holds_writes_back() && !self.is_stopped() {
                    #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
                    std::thread::sleep(HELD_PAUSE);
                }
                server.logger.log(id::COPY_IS_OVER, "initial-sync", message, attributes);
                let _ = self.events.send(Event::Restart);
            }
            Err(failure) => {
                if matches!(failure, Failure::Copy(_)) {
                    let _ = self.copying.place.throw_away(&*server.env.fs);
                }
                let reason = failure.into_sentence();
                let attributes = doc! { "reason": &reason };
                let message = "Initial sync failed and will be tried again";
                server.logger.log(id::COPY_FAILED, "initial-sync", message, attributes);
                let is_outdated = {
                    let mut copy = self.set.copy.lock();
                    copy.failed += 1;
                    copy.failure = reason;
                    copy.is_outdated
                };
                // Who was chosen has had his turn.
                if !is_outdated {
                    *self.set.copy_source.lock() = None;
                }
                self.set.change(|member| member.copies = false);
                self.is_copying.store(false, Ordering::Release);
            }
        }
    }

    /// Whether the copy is to go on.
    ///
    /// # Errors
    /// A sentence: it is not.
    pub(super) fn check_copy(&self) -> Result<(), String> {
        if self.is_stopped() {
            return Err("the server ends".to_owned());
        }
        match self.set.copy.lock().is_outdated {
            true => Err("another source was chosen".to_owned()),
            false => Ok(()),
        }
    }

    /// Notes how far the copy has come, and tells the log now and then.
    pub(super) fn note_copied(&self, note: impl FnOnce(&mut CopyProgress)) {
        let progress = {
            let mut progress = self.set.copy.lock();
            note(&mut progress);
            progress.clone()
        };
        let server = &self.server;
        let now = server.env.clock.monotonic();
        {
            let mut told = self.told.lock();
            if now.saturating_sub(*told) < TELL_EVERY {
                return;
            }
            *told = now;
        }
        let unit = if progress.by_files { "files" } else { "tables" };
        let attributes = doc! {
            unit: progress.tables.0 as i64, format!("{unit}Total"): progress.tables.1 as i64,
            "rows": progress.rows as i64, "bytes": progress.bytes as i64, "bytesTotal": progress.bytes_total as i64,
        };
        let message = "Initial sync goes on";
        server.logger.log(id::COPY_GOES_ON, "initial-sync", message, attributes);
    }

    fn try_to_copy(self: &Arc<Self>, wanted: &WantedCopy) -> Result<(), Failure> {
        let place = &self.copying.place;
        let fs = &*self.server.env.fs;
        let begun = place.begun(fs).map_err(local("the copy's place"))?;
        let begun = begun.filter(|begun| begun.instance == wanted.instance);
        if let Some(begun) = begun {
            if wanted.source.as_ref().is_some_and(|source| *source != begun.source) {
                self.end_copy(&begun);
                return self.copy_anew(wanted);
            }
            let mut link = self.dialer.open(&begun.source, PATIENCE).map_err(Failure::Source)?;
            let question = ask::begin_again(&self.set.name, wanted.instance, begun.copy);
            match link.call(&question) {
                Ok(reply) => return self.copy_begun(wanted, begun, &reply, "Initial sync goes on where it was"),
                Err(CallError::Broken(reason)) => return Err(Failure::Source(reason)),
                // The source does not have its state any more.
                Err(CallError::Refused(_)) => {}
            }
        }
        self.copy_anew(wanted)
    }

    fn copy_anew(self: &Arc<Self>, wanted: &WantedCopy) -> Result<(), Failure> {
        let place = &self.copying.place;
        let fs = &*self.server.env.fs;
        place.begin(fs).map_err(local("the copy's place"))?;
        let (source, reply) = self.find_source(wanted).map_err(Failure::Source)?;
        let CopyBegin { copy, .. } = read_copy_begin(&reply).map_err(Failure::Source)?;
        let begun = BegunCopy {
            source,
            copy,
            instance: wanted.instance,
            file: 0,
            offset: 0,
        };
        place.note_begun(fs, &begun).map_err(local("the copy's place"))?;
        self.copy_begun(wanted, begun, &reply, "Initial sync begins")
    }

    /// Begins a copy of the first member that gives one.
    fn find_source(&self, wanted: &WantedCopy) -> Result<(String, RawDocumentBuf), String> {
        let layout = FileLayout {
            engine: self.copying.engine.to_owned(),
            directory_per_db: self.copying.config.storage.directory_per_db,
        };
        // Files would come as they are, and not sealed with this member's keys.
        let is_sealed = self.server.env.fs.keys().is_some();
        let by_files = self.server.parameters.copies_files() && !wanted.is_arbiter && !is_sealed;
        let question = ask::begin(&self.set.name, wanted.instance, Some(&layout).filter(|_| by_files));
        let mut failure = "there is no member whose data could be copied".to_owned();
        for source in self.sources(wanted) {
            let begun = self.dialer.open(&source, BEGIN_PATIENCE);
            let begun = begun.and_then(|mut link| link.call(&question).map_err(CallError::into_sentence));
            match begun {
                Ok(reply) => return Ok((source, reply)),
                Err(reason) => failure = format!("{source}: {reason}"),
            }
        }
        Err(failure)
    }

    /// Whom to ask for a copy, in this order.
    fn sources(&self, wanted: &WantedCopy) -> Vec<String> {
        if let Some(source) = &wanted.source {
            return vec![source.clone()];
        }
        let primary = || vec![wanted.primary.clone()];
        let secondaries = || self.by_distance(wanted.secondaries.clone());
        match self.server.parameters.sync_source() {
            "primaryPreferred" => [primary(), secondaries()].concat(),
            "secondary" => secondaries(),
            "secondaryPreferred" => [secondaries(), primary()].concat(),
            "nearest" => self.by_distance([primary(), wanted.secondaries.clone()].concat()),
            _ => primary(),
        }
    }

    /// Those that answer, the nearest first.
    fn by_distance(&self, hosts: Vec<String>) -> Vec<String> {
        let clock = &self.server.env.clock;
        let ping = bson::rawdoc! { "ping": 1, "$db": "admin" };
        let near = hosts.into_iter().filter_map(|host| {
            let mut link: Link = self.dialer.open(&host, PATIENCE).ok()?;
            let asked = clock.monotonic();
            link.call(&ping).ok()?;
            Some((clock.monotonic().saturating_sub(asked), host))
        });
        let mut near: Vec<_> = near.collect();
        near.sort();
        near.into_iter().map(|(_, host)| host).collect()
    }

    fn copy_begun(
        self: &Arc<Self>,
        wanted: &WantedCopy,
        mut begun: BegunCopy,
        reply: &RawDocumentBuf,
        message: &str,
    ) -> Result<(), Failure> {
        let content = read_copy_begin(reply).map_err(Failure::Source)?.content;
        let by_files = matches!(content, CopyContent::Files { .. });
        let attributes = doc! { "source": &begun.source, "method": if by_files { "fileCopyBased" } else { "logical" } };
        self.server
            .logger
            .log(id::COPY_BEGINS, "initial-sync", message, attributes);
        {
            let mut progress = self.set.copy.lock();
            progress.source.clone_from(&begun.source);
            progress.by_files = by_files;
        }
        let place = &self.copying.place;
        let kept = match content {
            CopyContent::Files { seq, term, files } => {
                copy_files(self, place, &files, &mut begun).map_err(Failure::Source)?;
                self.check_engine(seq)?;
                // There are none of the log where it has nothing behind the checkpoint.
                let engine_ahead = match files.iter().any(|file| file.is_log) {
                    true => EngineAhead::Refuse,
                    false => EngineAhead::BeginBehind,
                };
                self.keep(seq, term, engine_ahead, &wanted.instance)
            }
            CopyContent::Rows(header) => {
                self.set.copy.lock().tables.1 = header.tables.len() as u64;
                let tables = TablesOf {
                    members: self.clone(),
                    host: begun.source.clone(),
                    copy: begun.copy,
                };
                self.fill(&header, &tables, wanted.is_arbiter)?;
                self.keep(header.seq, header.term, EngineAhead::BeginBehind, &wanted.instance)
            }
        };
        // Until here the source keeps the log behind the copy.
        self.end_copy(&begun);
        kept
    }

    /// The source need not keep its state. It forgets it by itself when it does not hear of that.
    fn end_copy(&self, begun: &BegunCopy) {
        let end = |mut link: Link| link.call(&ask::end(begun.copy)).map_err(CallError::into_sentence);
        let _ = self.dialer.open(&begun.source, PATIENCE).and_then(end);
    }

    /// Has all rows in an engine, durably.
    fn fill(&self, header: &storage::CloneHeader, tables: &TablesOf, is_arbiter: bool) -> Result<(), Failure> {
        let what = "the copy's engine";
        let filled = self.open_engine()?;
        match fill_from_clone(&*filled, header, tables, fill_options(is_arbiter)) {
            Ok(()) => filled.close(CloseMode::Checkpoint).map_err(local(what)),
            Err(error) => {
                let _ = filled.close(CloseMode::Abandon);
                Err(match error {
                    StorageError::CloneFailed(reason) => Failure::Source(reason),
                    error => local(what)(error),
                })
            }
        }
    }

    fn open_engine(&self) -> Result<Arc<dyn Engine>, Failure> {
        let CopySettings {
            config,
            registry,
            engine,
            place,
            ..
        } = &self.copying;
        let opened = registry.open(engine, &self.server.env, &place.engine, &config.storage);
        opened.map_err(local("the copy's engine"))
    }

    /// Whether files that were copied can be opened, and are what they are said to be.
    fn check_engine(&self, seq: Seq) -> Result<(), Failure> {
        let opened = self.open_engine()?;
        let found = opened.durable_seq();
        let _ = opened.close(CloseMode::Abandon);
        match found == seq {
            true => Ok(()),
            false => Err(Failure::Copy(format!("the copy stands at {found:?}, not at {seq:?}"))),
        }
    }

    /// Makes the copy complete, with a log whose last entry it shows, or that begins behind it.
    fn keep(&self, seq: Seq, term: u64, engine_ahead: EngineAhead, instance: &[u8; 16]) -> Result<(), Failure> {
        let CopySettings {
            config, engine, place, ..
        } = &self.copying;
        let env: &Env = &self.server.env;
        let (mut options, _) = run::storage_parts(config, engine, &place.journal, &place.journal_position)
            .map_err(|error| Failure::Copy(error.to_string()))?;
        options.engine_ahead = engine_ahead;
        options.term_before = term;
        options.background = false;
        let log = Log::open(env, options, seq).map_err(local("the copy's log"))?;
        // The instance is new to the set: nobody has its vote.
        let known = log.hard_state().unwrap_or_default();
        let state = HardState {
            term: known.term.max(term),
            vote: 0,
            commit: known.commit.max(seq).min(log.last_seq()),
        };
        let written = log.write_state(state).and_then(|()| log.close());
        written.map_err(local("the copy's log"))?;
        place.complete(&*env.fs, instance).map_err(local("the copy's place"))
    }
}
