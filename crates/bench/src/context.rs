//! One call of the tool: the user's choices, where results go, and how progress is shown.
//!
//! Invariant: every run that was begun is in the session, and the session's file is written after each run.

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::{Outcome, Run, Session};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The choices that all workloads share.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the data: 1 is the workload's own.
    pub scale: f64,
    /// Connections; `None`: the workload's own number.
    pub clients: Option<u32>,
    /// How long each timed phase lasts; `None`: the workload's own time.
    pub duration: Option<Duration>,
    /// Before a timed phase.
    pub warm_up: Duration,
    /// Decides all random choices.
    pub seed: u64,
    /// Operations per second of an open loop; `None`: closed loop.
    pub rate: Option<f64>,
    /// Threads of the generator; `None`: half the processors.
    pub threads: Option<usize>,
    /// Cache of the engine in bytes.
    pub cache_bytes: Option<u64>,
    /// How often everything is measured.
    pub repetitions: u32,
}

impl Options {
    /// A number of things at this scale, at least `least`.
    pub fn scaled(&self, count: u64, least: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(least)
    }

    /// The pacing that was chosen.
    pub fn pacing(&self) -> report::Pacing {
        match self.rate {
            None => report::Pacing::Closed,
            Some(rate) => report::Pacing::Open { rate },
        }
    }

    /// Threads of the generator for so many clients. Half the processors are left to the server.
    pub fn threads(&self, clients: usize) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.threads.unwrap_or((processors / 2).max(1)).clamp(1, clients.max(1))
    }
}

/// See the module.
pub struct Context {
    /// The user's choices.
    pub options: Options,
    /// What was measured.
    pub session: Session,
    /// Which of the repetitions is under way, from 0.
    pub repetition: u32,
    /// Ctrl-C.
    pub interrupt: Interrupt,
    json: Option<PathBuf>,
    quiet: bool,
}

impl Context {
    /// `json`: the session's file. `quiet`: show no progress.
    pub fn new(options: Options, session: Session, interrupt: Interrupt, json: Option<PathBuf>, quiet: bool) -> Self {
        Self {
            options,
            session,
            repetition: 0,
            interrupt,
            json,
            quiet,
        }
    }

    /// Says what is being done.
    pub fn say(&self, what: &str) {
        if !self.quiet {
            // A terminal that has gone away must not end a measurement.
            let _ = writeln!(std::io::stderr(), "==> {what}");
        }
    }

    /// Keeps a run. One that should be complete and is not is an error, for the workload to end by.
    pub fn keep(&mut self, mut run: Run) -> Result<()> {
        run.notes.dedup();
        let outcome = run.outcome.clone();
        self.session.runs.push(run);
        self.write()?;
        match outcome {
            Outcome::Complete | Outcome::Skipped { .. } => Ok(()),
            Outcome::Interrupted => Err(Error::Interrupted),
            Outcome::Failed { message } | Outcome::Refused { message } => Err(Error::Kept(message)),
        }
    }

    /// Writes the session's file, if one was asked for.
    pub fn write(&self) -> Result<()> {
        if let Some(path) = &self.json {
            self.session.write(&vfs::RealFs, path)?;
        }
        Ok(())
    }

    /// The session's file.
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// A bar that moves with time or, when it is known, with the work.
    pub fn bar(&self, what: &str, length: Option<u64>) -> ProgressBar {
        let bar = match length {
            Some(length) => ProgressBar::new(length),
            None => ProgressBar::no_length(),
        };
        if self.quiet {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let template = match length {
            Some(_) => "    {prefix} {bar:24} {percent:>3} %  {msg}  {eta} left",
            None => "    {prefix} {spinner}  {msg}  {elapsed}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.set_prefix(what.to_owned());
        bar
    }
}
