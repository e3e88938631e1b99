//! Initial sync: a copy of all data of another member, beside what this server has, which the copy replaces.
//!
//! The server answers questions about itself meanwhile. A copy is made in `initial-sync/` in the data directory, with
//! an engine and a log of its own, and is complete when its marker is on disk; the server then starts anew, in the same
//! process, and finds it there (`data_directory.rs`). What was begun and not completed is thrown away.

use super::Members;
use super::fetch::{FetchedRows, Fetcher};
use super::link::{CallError, Link};
use crate::config::Config;
use crate::data_directory::CopyPlace;
use crate::engines::Registry;
use crate::events::Event;
use crate::run;
use bson::doc;
use commands::logger::Component;
use commands::{CopyProgress, ask, read_copy_header};
use engine::{CloseMode, Engine};
use oplog::{EngineAhead, HardState, Log};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;
use storage::{CloneHeader, fill_from_clone};
use vfs::Env;

/// How long the source may take for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

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

impl Members {
    /// Makes the copy and asks for the restart; or notes why there is none, and may be asked again.
    pub(super) fn copy(&self, host: &str, instance: [u8; 16], is_arbiter: bool) {
        let server = &self.server;
        let now_ms = server.env.clock.now_ms();
        {
            let mut copy = self.set.copy.lock();
            let (failed, failure) = (copy.failed, std::mem::take(&mut copy.failure));
            *copy = CopyProgress {
                source: host.to_owned(),
                started_ms: now_ms,
                failed,
                failure,
                ..CopyProgress::default()
            };
        }
        self.set.change(|member| member.copies = true);
        server.log_role(&self.set.member());
        let attributes = doc! { "source": host };
        server.logger.info(
            Component::InitialSync,
            8410031,
            "initial-sync",
            "Initial sync begins",
            attributes,
        );
        let copied = self.try_to_copy(host, instance, is_arbiter);
        let progress = self.set.copy.lock().clone();
        match copied {
            Ok(()) => {
                let took = server.env.clock.now_ms() - now_ms;
                let attributes = doc! {
                    "rows": progress.rows as i64, "bytes": progress.bytes as i64, "durationMillis": took,
                };
                let message = "Initial sync is over; the server starts anew with the copy";
                server
                    .logger
                    .info(Component::InitialSync, 8410032, "initial-sync", message, attributes);
                let _ = self.events.send(Event::Restart);
            }
            Err(reason) => {
                let attributes = doc! { "reason": &reason };
                let message = "Initial sync failed and will be tried again";
                server
                    .logger
                    .warning(Component::InitialSync, 8410033, "initial-sync", message, attributes);
                {
                    let mut copy = self.set.copy.lock();
                    copy.failed += 1;
                    copy.failure = reason;
                }
                self.set.change(|member| member.copies = false);
                self.is_copying.store(false, Ordering::Release);
            }
        }
    }

    fn try_to_copy(&self, host: &str, instance: [u8; 16], is_arbiter: bool) -> Result<(), String> {
        let CopySettings {
            config,
            registry,
            engine,
            place,
            ..
        } = &self.copying;
        let env: &Env = &self.server.env;
        let mut link = self.dialer.open(host, PATIENCE)?;
        let begun = link
            .call(&ask::begin(&self.set.name, instance))
            .map_err(CallError::into_sentence)?;
        let (copy, header) = read_copy_header(&begun)?;
        self.set.copy.lock().tables.1 = header.tables.len() as u64;
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        place
            .begin(&*env.fs)
            .map_err(|error| failed("the copy's place", &error))?;
        let filled = registry.open(engine, env, &place.engine, &config.storage);
        let filled = filled.map_err(|error| failed("the copy's engine", &error))?;
        let fetcher = Fetcher {
            members: self,
            host,
            link,
            copy,
        };
        let (copied, mut link) = self.fill(&*filled, &header, fetcher, is_arbiter)?;
        let kept = match copied {
            Ok(()) => self.keep(filled, &header, &instance),
            Err(reason) => {
                let _ = filled.close(CloseMode::Abandon);
                Err(reason)
            }
        };
        // Until here the source keeps the log behind the copy.
        let _ = link.call(&ask::end(copy));
        kept
    }

    /// Closes the copy's engine and makes it complete, with a log of its own.
    fn keep(&self, filled: Arc<dyn Engine>, header: &CloneHeader, instance: &[u8; 16]) -> Result<(), String> {
        let CopySettings {
            config, engine, place, ..
        } = &self.copying;
        let env: &Env = &self.server.env;
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let closed = filled.close(CloseMode::Checkpoint);
        closed.map_err(|error| failed("the copy's engine", &error))?;
        drop(filled);
        // A log that begins behind the copy, in the term of its last entry. The instance is new to the set: nobody
        // has its vote.
        let (mut options, _) = run::storage_parts(config, engine, &place.journal, &place.journal_position)
            .map_err(|error| error.to_string())?;
        options.engine_ahead = EngineAhead::BeginBehind;
        options.term_before = header.term;
        options.background = false;
        let log = Log::open(env, options, header.seq).map_err(|error| failed("the copy's log", &error))?;
        let state = HardState {
            term: header.term,
            vote: 0,
            commit: header.seq,
        };
        let written = log.write_state(state).and_then(|()| log.close());
        written.map_err(|error| failed("the copy's log", &error))?;
        place
            .complete(&*env.fs, instance)
            .map_err(|error| failed("the copy's place", &error))
    }

    /// Whether the engine has all rows now; and the connection to the source.
    fn fill(
        &self,
        filled: &dyn Engine,
        header: &CloneHeader,
        fetcher: Fetcher<'_>,
        is_arbiter: bool,
    ) -> Result<(Result<(), String>, Link), String> {
        let (wanted, asked) = sync_channel(1);
        let (answer, fetched) = sync_channel(1);
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("copy-fetch".to_owned());
            let thread = thread.spawn_scoped(scope, move || fetcher.run(&asked, &answer));
            let thread = thread.map_err(|error| format!("no thread for the copy: {error}"))?;
            let mut rows = FetchedRows::new(self, wanted, fetched);
            let copied = fill_from_clone(filled, header, &mut rows, is_arbiter);
            // The thread ends with it.
            drop(rows);
            let link = thread.join().map_err(|_| "who fetches rows panicked".to_owned())?;
            Ok((copied.map_err(|error| error.to_string()), link))
        })
    }
}
