//! All that one call measures: each workload on each configuration, one after the other.
//!
//! Repetitions of a workload go through the configurations in turns, there and back, so that a machine that grows
//! slower or faster does so for all of them. A configuration that fails does not keep the others from being measured.
//! Ctrl-C ends everything.

use crate::configuration::Setup;
use crate::context::Context;
use crate::error::{Doing, Error, Result};
use crate::limits::Wanted;
use crate::measure::{explained, outcome};
use crate::subject::{Subject, parse_uri};
use crate::workload::Workload;
use bson::rawdoc;
use report::{Configuration, Run};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A collection that tells databases of an earlier call, which were to be kept, from those of somebody else.
const MARKER: &str = "tenon.bench";
/// How long a server that was running may take to drop a workload's database when the user wants to stop.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

/// What is measured.
pub enum Target {
    /// A server that is running.
    Running {
        /// Where.
        uri: String,
        /// Leave the databases there.
        keep: bool,
        /// Remove databases of their names that are there already, whosever they are.
        drop: bool,
    },
    /// Servers of our own, one per configuration.
    Own(Own),
}

/// Servers of our own.
pub struct Own {
    /// The server's program.
    pub program: PathBuf,
    /// The configurations.
    pub setups: Vec<Setup>,
    /// Where the data directories are made; removed at the end.
    pub directory: TempDir,
    /// Do not remove the data of a configuration after measuring it.
    pub keep: bool,
    /// Limits that the system shall put on each.
    pub limits: Wanted,
}

/// Makes the directory that all data of this call goes into.
pub fn data_directory(parent: Option<&Path>) -> Result<TempDir> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
    fs::create_dir_all(&parent).doing(format!("making {}", parent.display()))?;
    tempfile::Builder::new()
        .prefix("tenon-bench-")
        .tempdir_in(&parent)
        .doing(format!("making a directory in {}", parent.display()))
}

/// How everything went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All runs are complete.
    Complete,
    /// At least one run failed.
    SomeFailed,
    /// The user stopped it.
    Interrupted,
}

/// Measures everything. An error means that results cannot be kept.
pub fn run(context: &mut Context, workloads: &[Workload], target: &Target) -> Result<Ended> {
    let mut ended = Ended::Complete;
    for workload in workloads {
        let setups = match target {
            Target::Running { uri, .. } => vec![(label_of(uri), None)],
            Target::Own(own) => {
                let setups = workload.setups(&own.setups, &context.options)?;
                setups
                    .into_iter()
                    .map(|setup| (setup.label.clone(), Some(setup)))
                    .collect()
            }
        };
        for (repetition, index) in turns(context.options.repetitions, setups.len()) {
            context.repetition = repetition;
            let (label, setup) = &setups[index];
            match measure_one(context, workload, target, label, setup.as_ref()) {
                Ok(true) => {}
                Ok(false) => ended = Ended::SomeFailed,
                Err(Error::Interrupted) => return Ok(Ended::Interrupted),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(ended)
}

/// What a running server is called in results: the address that [`Subject::attach`] connects to.
fn label_of(uri: &str) -> String {
    parse_uri(uri).map_or_else(|_| uri.to_owned(), |address| address.to_string())
}

/// Repetition and index of each of so many things: forwards, then backwards, then forwards again.
fn turns(repetitions: u32, things: usize) -> Vec<(u32, usize)> {
    let order = |repetition: u32| {
        (0..things).map(move |index| match repetition % 2 {
            0 => (repetition, index),
            _ => (repetition, things - 1 - index),
        })
    };
    (0..repetitions.max(1)).flat_map(order).collect()
}

/// Measures one configuration. False: it failed, and a run says so.
fn measure_one(
    context: &mut Context,
    workload: &Workload,
    target: &Target,
    label: &str,
    setup: Option<&Setup>,
) -> Result<bool> {
    let times = match context.options.repetitions {
        0 | 1 => String::new(),
        all => format!(" ({} of {all})", context.repetition + 1),
    };
    context.say(&format!("{label}: {}{times}", workload.name()));
    let first = context.session.runs.len();
    let result = match (target, setup) {
        (Target::Own(own), Some(setup)) => measure_own(context, workload, own, setup),
        (Target::Running { uri, keep, drop }, _) => measure_running(context, workload, uri, *keep, *drop),
        (Target::Own(_), None) => Ok(()),
    };
    match result {
        Ok(()) => Ok(true),
        Err(error @ (Error::Report(_) | Error::Interrupted)) => Err(error),
        Err(error) => keep_failure(context, workload, label.to_owned(), setup, first, &error).map(|()| false),
    }
}

/// An error that no run tells of gets a run of its own.
fn keep_failure(
    context: &mut Context,
    workload: &Workload,
    label: String,
    setup: Option<&Setup>,
    first: usize,
    error: &Error,
) -> Result<()> {
    let told = matches!(error, Error::Kept(_)) && context.session.runs.len() > first;
    if !told {
        let configuration = Configuration {
            label: label.clone(),
            engine: setup.map(|setup| setup.engine.clone()).unwrap_or_default(),
            options: setup.map(|setup| setup.options.clone()).unwrap_or_default(),
            ..Configuration::default()
        };
        // Without a run, it was the server's start; otherwise what comes between the runs, such as stopping it.
        let phase = match context.session.runs.len() > first {
            true => "between",
            false => "start",
        };
        let mut run = Run::new(workload.name(), phase, configuration);
        run.seed = context.options.seed;
        run.repetition = context.repetition;
        run.outcome = outcome(error);
        context.session.runs.push(run);
        context.write()?;
    }
    if let Some(report::Outcome::Failed { message }) = context.session.runs.last().map(|run| &run.outcome) {
        context.say(&format!("{label}: {} FAILED: {message}", workload.name()));
    }
    Ok(())
}

fn measure_own(context: &mut Context, workload: &Workload, own: &Own, setup: &Setup) -> Result<()> {
    context.interrupt.check()?;
    let name: String = setup
        .label
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let directory = own.directory.path().join(format!("{}-{name}", workload.name()));
    let first = context.session.runs.len();
    let result = (|| {
        let mut subject = Subject::start(&own.program, setup, &directory, own.limits, &context.interrupt)?;
        let start_time = subject.start_time();
        let done = workload.run(context, &mut subject);
        done.map_err(|error| explained(error, &mut subject))?;
        let stop_time = subject.stop()?;
        // A workload that stops and starts its server tells of that itself.
        let runs = context.session.runs.get_mut(first..).unwrap_or_default();
        if let Some(run) = runs.first_mut()
            && run.start_seconds.is_none()
        {
            run.start_seconds = start_time.map(|time| time.as_secs_f64());
        }
        if let (Some(run), Some(time)) = (runs.last_mut(), stop_time) {
            run.stop_seconds = Some(time.as_secs_f64());
        }
        context.write()
    })();
    if directory.exists() && !own.keep {
        let removed = fs::remove_dir_all(&directory).doing(format!("removing {}", directory.display()));
        // What went wrong before says more.
        return result.and(removed);
    }
    result
}

fn measure_running(context: &mut Context, workload: &Workload, uri: &str, keep: bool, may_drop: bool) -> Result<()> {
    let mut subject = Subject::attach(uri, &context.interrupt)?;
    if !may_drop {
        check_databases(&subject, workload.databases())?;
    }
    let result = workload.run(context, &mut subject);
    if keep {
        let marked = mark_databases(&subject, workload.databases());
        return result.and(marked);
    }
    let removed = remove_databases(&subject, workload.databases());
    if removed.is_err() && result.is_err() {
        let names = workload.databases().join(", ");
        context.say(&format!("{}: its database {names} may be left behind", label_of(uri)));
    }
    result.and(removed)
}

/// The workload drops its databases before anything else: they must not be somebody's.
fn check_databases(subject: &Subject, databases: &[&str]) -> Result<()> {
    let mut connection = subject.connect()?;
    for database in databases {
        let reply = connection.run(database, &rawdoc! { "listCollections": 1, "nameOnly": true })?;
        let listed = reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("firstBatch"));
        let listed = listed.map(Vec::as_slice).unwrap_or_default();
        let mut names = listed
            .iter()
            .filter_map(|entry| entry.as_document()?.get_str("name").ok());
        if !listed.is_empty() && !names.any(|name| name == MARKER) {
            return Err(Error::Choice(format!(
                "the server has a database {database}, which this workload would drop: --drop allows it to"
            )));
        }
    }
    Ok(())
}

/// So that the next call knows whose they are.
fn mark_databases(subject: &Subject, databases: &[&str]) -> Result<()> {
    let mut connection = subject.connect()?.with_patience(LAST_PATIENCE);
    let mark = rawdoc! {
        "update": MARKER,
        "updates": [{ "q": { "_id": "tenon bench" }, "u": { "$set": { "keep": true } }, "upsert": true }],
    };
    databases
        .iter()
        .try_for_each(|database| connection.run(database, &mark).map(drop))
}

/// Whatever came before: it is somebody's server, and its disk. When the user wants to stop, the server has
/// [`LAST_PATIENCE`] for each.
fn remove_databases(subject: &Subject, databases: &[&str]) -> Result<()> {
    let mut connection = subject.connect()?.with_patience(LAST_PATIENCE);
    databases
        .iter()
        .try_for_each(|database| connection.drop_database(database))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_go_there_and_back() {
        assert_eq!(turns(3, 2), [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(turns(0, 2), [(0, 0), (0, 1)], "once at least");
        assert_eq!(turns(2, 0), []);
    }
}
