//! Runs the test programs of cargo, several at a time: cargo's own runner waits for each before it starts the next, and
//! most of ours end in one long test that leaves the other processors idle.
//!
//! What a program prints is shown only if it fails. Examples in documentation are not run; [`crate::tidy`] sees to it
//! that there are none.

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Programs that run for long, in the order in which they are started; the others follow.
const LONGEST_FIRST: &[&str] = &[
    "btree",
    "schedules",
    "store",
    "storage",
    "memory",
    "query",
    "oplog",
    "conformance",
    "rocksdb",
    "workloads",
    "server",
];

/// What runs for longer hangs, and is stopped: its output says in which test. The longest take a tenth of it, and ten
/// times as long where `TENON_EXTENT` asks for all.
const SECONDS_MAX: i64 = 1200;

/// A built test program.
struct Program {
    name: String,
    executable: PathBuf,
    /// Where its package lies: the directory that cargo runs it in.
    package: PathBuf,
}

/// How a program ended.
struct End {
    passed: bool,
    output: String,
    took: Duration,
    /// Processor time of the program and of what it started, in seconds.
    processor_seconds: f64,
}

/// Builds what `cargo test ARGUMENTS` would build and runs it.
pub fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let mut programs = build(root, arguments)?;
    if programs.is_empty() {
        bail!("no tests: cargo test {}", arguments.join(" "));
    }
    let rank = |program: &Program| {
        LONGEST_FIRST
            .iter()
            .position(|name| *name == program.name)
            .unwrap_or(LONGEST_FIRST.len())
    };
    programs.sort_by_key(rank);
    let at_once = std::thread::available_parallelism()?.get();
    let (count, began) = (programs.len(), Instant::now());
    let queue = Mutex::new(programs.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = next(&queue) {
                    let end = run_one(&program);
                    report(&program, end, &failed);
                }
            });
        }
    });
    let failed = failed.into_inner().context("a runner panicked")?;
    println!(
        "{count} test programs, {} failed, {:.0} s",
        failed.len(),
        began.elapsed().as_secs_f64()
    );
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("failed: {}", failed.join(", "))
    }
}

fn next(queue: &Mutex<impl Iterator<Item = Program>>) -> Option<Program> {
    queue.lock().ok()?.next()
}

/// Has cargo build the test programs, and takes from its messages which they are.
fn build(root: &Path, arguments: &[&str]) -> Result<Vec<Program>> {
    let output = Command::new("cargo")
        .args([
            "test",
            "--quiet",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(arguments)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cargo test --no-run {} failed", arguments.join(" "));
    }
    let mut programs = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        let (Some(executable), true) = (message["executable"].as_str(), is_test) else {
            continue;
        };
        let manifest = message["manifest_path"]
            .as_str()
            .context("an artifact without a package")?;
        programs.push(Program {
            name: message["target"]["name"].as_str().unwrap_or_default().to_owned(),
            executable: executable.into(),
            package: Path::new(manifest)
                .parent()
                .context("a manifest in no directory")?
                .to_owned(),
        });
    }
    Ok(programs)
}

fn run_one(program: &Program) -> Result<End> {
    let began = Instant::now();
    // One pipe for both streams would need a thread; a file keeps their order, too.
    let log = program.executable.with_extension("output");
    // Appended to by the program and by us.
    let mut to = fs::File::options().create(true).append(true).open(&log)?;
    to.set_len(0)?;
    let mut child = Command::new(&program.executable)
        .current_dir(&program.package)
        .env("CARGO_MANIFEST_DIR", &program.package)
        .stdin(Stdio::null())
        .stdout(to.try_clone()?)
        .stderr(to.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot start {}", program.executable.display()))?;
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let is_all = std::env::var("TENON_EXTENT").is_ok_and(|extent| extent == "all");
    let limit = Timespec {
        tv_sec: if is_all { 10 * SECONDS_MAX } else { SECONDS_MAX },
        tv_nsec: 0,
    };
    if poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit))? == 0 {
        writeln!(to, "stopped after {} s: it hangs", limit.tv_sec)?;
        child.kill()?;
    }
    // Ended but not waited for, it still has its figures in /proc.
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let processor_seconds = processor_seconds(pid).unwrap_or_default();
    let status = child.wait()?;
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    fs::remove_file(&log)?;
    Ok(End {
        passed: status.success(),
        output,
        took: began.elapsed(),
        processor_seconds,
    })
}

/// User and system time of a process and of its children that are over.
fn processor_seconds(pid: Pid) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may hold anything; utime, stime, cutime and cstime are fields 14 to 17.
    let ticks = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn report(program: &Program, end: Result<End>, failed: &Mutex<Vec<String>>) {
    let package = program.package.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{package} {}", program.name);
    let passed = match end {
        Ok(end) => {
            let word = if end.passed { "ok" } else { "FAILED" };
            let (took, processor) = (end.took.as_secs_f64(), end.processor_seconds);
            println!("{word:<6} {name:<32} {took:7.1} s {processor:8.1} s of processors");
            if !end.passed {
                println!("{}", end.output);
            }
            end.passed
        }
        Err(error) => {
            println!("FAILED {name}: {error:#}");
            false
        }
    };
    if !passed && let Ok(mut failed) = failed.lock() {
        failed.push(name);
    }
}
