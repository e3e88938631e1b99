//! A session: every run in a process of its own, subjects in turn, so that what changes on the machine meets all alike.

use crate::interrupt::Interrupt;
use crate::machine::{Machine, available_bytes, drop_page_cache, load};
use crate::outcome::Outcome;
use crate::report::{Report, collapse, compare, run_line};
use crate::spec::RunSpec;
use crate::subject::{SubjectKind, wiredtiger_version};
use crate::ticker::Ticker;
use crate::workload::Workload;
use anyhow::{Context, Result, bail};
use process::Guard;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Above this load of the last minute, times are not to be trusted.
pub const LOAD_MAX: f64 = 0.5;
/// Between two looks at the page cache of data that shall not be in it.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
/// Memory that is touched before each run: more than a run without larger data takes.
const WARM_BYTES: u64 = 1 << 30;
const TOUCHED_PIECE_BYTES: u64 = 4 << 20;
/// The allocator that mongod is linked with, where Debian puts it.
const TCMALLOC: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
    "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
];

/// What to measure.
pub struct Plan {
    /// Workloads, in order.
    pub workloads: Vec<Workload>,
    /// Subjects, in order.
    pub subjects: Vec<SubjectKind>,
    /// Runs of each.
    pub pairs: usize,
    /// What all runs share; workload, subject and directory are filled in.
    pub template: RunSpec,
}

/// Makes all runs and compares them. A run that fails is reported and left out; a session without any run is an error.
/// `save` gets what has been measured after each run, should the session not come to its end.
pub fn run(plan: &Plan, save: impl Fn(&Report) -> Result<()>) -> Result<Report> {
    let machine = Machine::describe(&plan.template.directory);
    let mut report = Report {
        format: 1,
        version: env!("CARGO_PKG_VERSION").into(),
        wiredtiger: wiredtiger_version(),
        notes: notes(plan, &machine),
        machine,
        command: std::env::args().collect(),
        configuration: serde_json::to_value(&plan.template).context("the configuration as JSON")?,
        comparisons: Vec::new(),
        runs: Vec::new(),
        failures: Vec::new(),
        collapses: Vec::new(),
    };
    for note in &report.notes {
        eprintln!("note: {note}");
    }
    let interrupt = Interrupt::install()?;
    for &workload in &plan.workloads {
        for pair in 0..plan.pairs {
            for &subject in &plan.subjects {
                let spec = RunSpec {
                    workload,
                    subject,
                    seed: plan.template.seed.wrapping_add(pair as u64),
                    ..plan.template.clone()
                };
                match run_one(spec, &interrupt) {
                    Ok(mut outcome) => {
                        outcome.pair = pair;
                        println!("{}", run_line(&outcome));
                        if let Some(verdict) = collapse(&outcome) {
                            eprintln!("failed: {verdict}");
                            report.collapses.push(verdict);
                        }
                        report.runs.push(outcome);
                        report.comparisons = compare(&report.runs);
                        save(&report)?;
                    }
                    Err(_) if interrupt.asked() => bail!("stopped; nothing is left of the run that was under way"),
                    Err(error) => {
                        let failure = format!("{workload} {subject} #{pair}: {error:#}");
                        eprintln!("failed: {failure}");
                        report.failures.push(failure);
                    }
                }
            }
        }
    }
    if report.runs.is_empty() {
        bail!("no run succeeded");
    }
    let load = load();
    report.notes.push(format!(
        "load of the last minute at the end: {load}, the runs' own included"
    ));
    save(&report)?;
    Ok(report)
}

fn notes(plan: &Plan, machine: &Machine) -> Vec<String> {
    let mut notes = Vec::new();
    if machine.load > LOAD_MAX {
        notes.push(format!(
            "the machine is busy: load {} of at most {LOAD_MAX}; times and rates are not to be trusted, CPU per operation less so",
            machine.load
        ));
    }
    notes.push(match &plan.template.memory_group {
        Some(group) => format!("memory is limited by {}", group.display()),
        None => {
            "no memory limit (--cgroup): pages of files larger than the cache are dropped from the page cache four \
                 times a second instead"
                .into()
        }
    });
    if plan.subjects.iter().any(|subject| subject.engine().is_none()) {
        notes.push(match tcmalloc() {
            Some(path) => format!("WiredTiger runs with mongod's allocator, {path}"),
            None => "WiredTiger runs with the C library's allocator: libtcmalloc-minimal4 is not installed".into(),
        });
    }
    notes
}

fn tcmalloc() -> Option<&'static str> {
    TCMALLOC.iter().copied().find(|path| Path::new(path).exists())
}

/// One run: a directory, one process or two, and nothing left behind.
fn run_one(mut spec: RunSpec, interrupt: &Interrupt) -> Result<Outcome> {
    let directory = tempfile::Builder::new()
        .prefix("engine-bench-")
        .tempdir_in(&spec.directory)
        .with_context(|| format!("making a folder in {}", spec.directory.display()))?;
    spec.directory = directory.path().to_owned();
    let _sweeper = if spec.workload.exceeds_cache() && spec.memory_group.is_none() {
        Some(start_sweeper(spec.directory.clone())?)
    } else {
        None
    };
    warm_memory()?;
    let first = run_process(&spec, interrupt)?;
    if !spec.workload.opens_again() {
        return Ok(first);
    }
    spec.second = true;
    Ok(first.and_then(run_process(&spec, interrupt)?))
}

/// Starts this program to touch memory and end, so that the run finds pages that are there. Under a hypervisor that
/// takes free memory from its guests, a page costs ten times as much when it is touched for the first time since. That
/// would be counted for whoever takes huge pages: of those that are free none is left, of small ones some always are.
fn warm_memory() -> Result<()> {
    let bytes = WARM_BYTES.min(available_bytes() / 4);
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    let status = command.arg("--touch").arg(bytes.to_string()).status();
    let status = status.context("starting what touches memory")?;
    if !status.success() {
        bail!("what touches memory ended with {status}");
    }
    Ok(())
}

/// What [`run`] starts this program for before each run: touches memory, in the pieces that the allocator gets huge
/// pages for.
pub fn touch_memory(bytes: u64) {
    let pieces: Vec<_> = (0..bytes / TOUCHED_PIECE_BYTES)
        .map(|_| vec![1_u8; TOUCHED_PIECE_BYTES as usize])
        .collect();
    std::hint::black_box(pieces);
}

fn start_sweeper(directory: PathBuf) -> Result<Ticker> {
    Ticker::start("cache-sweeper", SWEEP_INTERVAL, move || {
        drop_page_cache(&directory, false);
    })
}

/// Starts this program again for one run, and reads the outcome from its output.
fn run_process(spec: &RunSpec, interrupt: &Interrupt) -> Result<Outcome> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(program);
    command
        .arg("--run")
        .arg(serde_json::to_string(spec).context("the run as JSON")?);
    if let (None, Some(allocator)) = (spec.subject.engine(), tcmalloc()) {
        command.env("LD_PRELOAD", allocator);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .context("starting a run")?;
    // The folder is that of this run alone.
    let guard = Guard::over(child.id(), Some(&spec.directory)).context("starting a guard over a run");
    if guard.is_err() {
        child.kill().context("ending a run")?;
    }
    let _guard = guard?;
    let _watched = interrupt.watch(&child);
    let output = child.wait_with_output().context("waiting for a run")?;
    if !output.status.success() {
        bail!("the run's process ended with {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("reading the run's outcome")
}
