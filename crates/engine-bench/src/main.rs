//! `engine-bench`: see `docs/engine-bench.md`.
#![allow(clippy::disallowed_methods, reason = "a tool that measures real time and real files")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use codec::Codec;
use engine_bench::report::{Report, median_table, ratio_table};
use engine_bench::session::{LOAD_MAX, Plan};
use engine_bench::spec::RunSpec;
use engine_bench::subject::SubjectKind;
use engine_bench::workload::{self, Workload};
use engine_bench::{machine, session};
use std::path::PathBuf;

/// Measures storage engines side by side, WiredTiger included.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Workloads, such as W1,W3,W6; without it, the short set.
    #[arg(long, value_delimiter = ',', ignore_case = true)]
    only: Vec<Workload>,
    /// Every workload.
    #[arg(long, conflicts_with = "only")]
    all: bool,
    /// What to measure; without it, everything in the build but inMemory.
    #[arg(long, value_delimiter = ',')]
    subjects: Vec<SubjectKind>,
    /// Runs of each workload and subject, in turn.
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Rows of the workloads that fit the cache.
    #[arg(long, default_value_t = 250_000)]
    rows: u64,
    /// Their cache, in MiB.
    #[arg(long, default_value_t = 256)]
    cache: u64,
    /// Cache of the workloads with four times as much data, in MiB.
    #[arg(long, default_value_t = 64)]
    small_cache: u64,
    /// Length of a value.
    #[arg(long, default_value_t = 256)]
    value_bytes: usize,
    /// Compressor of documents: none, snappy, zlib, zstd, lz4.
    #[arg(long, default_value = "snappy")]
    codec: Codec,
    /// Longest time of a measured phase.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Time of W13.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Clients, each with a thread of its own, where the workload does not say.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Seconds between checkpoints.
    #[arg(long, default_value_t = 15.0)]
    checkpoint_seconds: f64,
    /// Raw MiB of W12's dirty data and of W19's log.
    #[arg(long, default_value_t = 256)]
    volume: u64,
    /// Leave out the open loops.
    #[arg(long)]
    closed_only: bool,
    /// Tenon's engines read past the system's cache, where they can.
    #[arg(long)]
    direct_io: bool,
    /// Where everything random comes from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the data, on the disk to measure; without it, the system's for temporary files.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// A cgroup without processes that this user may write to: runs join it, limited to 1.5 times the cache.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Write everything measured here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Refuse to measure when the machine is busy, instead of saying so.
    #[arg(long)]
    strict: bool,
    /// One run, described in JSON: what the program starts itself with.
    #[arg(long, hide = true)]
    run: Option<String>,
    /// Touch so many bytes and end: what the program starts before each run.
    #[arg(long, hide = true)]
    touch: Option<u64>,
}

fn main() -> Result<()> {
    allocator::use_huge_pages();
    let arguments = Arguments::parse();
    match (&arguments.run, arguments.touch) {
        (Some(spec), _) => run_one(spec),
        (None, Some(bytes)) => {
            session::touch_memory(bytes);
            Ok(())
        }
        (None, None) => run_session(arguments),
    }
}

fn run_one(spec: &str) -> Result<()> {
    let spec: RunSpec = serde_json::from_str(spec).context("reading the run")?;
    let outcome = workload::run(spec)?;
    println!("{}", serde_json::to_string(&outcome)?);
    // A subject that a workload left open, as a crash would, stays so.
    std::process::exit(0)
}

fn run_session(arguments: Arguments) -> Result<()> {
    let plan = plan(&arguments)?;
    let load = machine::load();
    if arguments.strict && load > LOAD_MAX {
        bail!("the machine is busy: load {load}, at most {LOAD_MAX} is allowed");
    }
    let save = |report: &Report| match &arguments.json {
        Some(path) => std::fs::write(path, serde_json::to_string_pretty(report)?)
            .with_context(|| format!("writing {}", path.display())),
        None => Ok(()),
    };
    let report = session::run(&plan, save)?;
    println!("\n{}", median_table(&report.runs));
    println!("{}", ratio_table(&report.comparisons));
    print_notes(&report);
    if let Some(path) = &arguments.json {
        println!("Everything measured: {}", path.display());
    }
    if !report.failures.is_empty() {
        bail!("{} runs failed", report.failures.len());
    }
    if !report.collapses.is_empty() {
        bail!("{} runs collapsed", report.collapses.len());
    }
    println!("No run collapsed.");
    Ok(())
}

fn print_notes(report: &Report) {
    let machine = &report.machine;
    println!(
        "{} processors ({}), {} GiB, kernel {}, {}",
        machine.processors,
        machine.processor,
        machine.memory_bytes >> 30,
        machine.kernel,
        machine.file_system
    );
    for note in report.notes.iter().chain(&report.failures).chain(&report.collapses) {
        println!("- {note}");
    }
}

fn plan(arguments: &Arguments) -> Result<Plan> {
    let workloads = match (arguments.all, arguments.only.is_empty()) {
        (true, _) => Workload::ALL.to_vec(),
        (false, true) => Workload::SHORT.to_vec(),
        (false, false) => arguments.only.clone(),
    };
    let subjects = if arguments.subjects.is_empty() {
        let in_build = SubjectKind::ALL.into_iter().filter(|subject| subject.is_available());
        in_build.filter(|subject| *subject != SubjectKind::InMemory).collect()
    } else {
        arguments.subjects.clone()
    };
    for subject in &subjects {
        if !subject.is_available() {
            bail!("{subject} is not in this build: see docs/engine-bench.md");
        }
    }
    if subjects.is_empty() {
        bail!("this build has nothing to compare: see docs/engine-bench.md");
    }
    if arguments.rows == 0 || arguments.pairs == 0 || arguments.clients == 0 || arguments.value_bytes < 16 {
        bail!("rows, pairs and clients begin at 1, value bytes at 16");
    }
    let directory = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
    let template = RunSpec {
        workload: workloads[0],
        subject: subjects[0],
        rows: arguments.rows,
        cache_bytes: arguments.cache << 20,
        small_cache_bytes: arguments.small_cache << 20,
        value_bytes: arguments.value_bytes,
        codec: arguments.codec,
        seconds: arguments.seconds,
        minutes: arguments.minutes,
        threads: arguments.clients,
        checkpoint_seconds: arguments.checkpoint_seconds,
        volume_mib: arguments.volume,
        open_loop: !arguments.closed_only,
        direct_io: arguments.direct_io,
        seed: arguments.seed,
        directory,
        memory_group: arguments.cgroup.clone(),
        second: false,
    };
    Ok(Plan {
        workloads,
        subjects,
        pairs: arguments.pairs,
        template,
    })
}
