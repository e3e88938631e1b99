//! Every workload on every subject of the build, with few rows: each must come to its end with the figures that the
//! targets look at.
#![allow(clippy::disallowed_methods, reason = "a test of a tool that works on real files")]

use engine_bench::spec::RunSpec;
use engine_bench::subject::SubjectKind;
use engine_bench::targets::TARGETS;
use engine_bench::workload::{self, Workload};
use engine_bench::{Outcome, report};
use std::path::Path;

fn spec(workload: Workload, subject: SubjectKind, directory: &Path) -> RunSpec {
    RunSpec {
        workload,
        subject,
        rows: 2_000,
        cache_bytes: 4 << 20,
        small_cache_bytes: 1 << 20,
        value_bytes: 256,
        codec: codec::Codec::Snappy,
        seconds: 0.05,
        minutes: 0.001,
        threads: 1,
        checkpoint_seconds: 0.2,
        volume_mib: 1,
        open_loop: true,
        direct_io: false,
        seed: 7,
        directory: directory.to_owned(),
        memory_group: None,
        second: false,
    }
}

fn run(workload: Workload, subject: SubjectKind) -> Outcome {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut spec = spec(workload, subject, directory.path());
    let outcome = if workload == Workload::W19 && subject.engine().is_none() {
        // WiredTiger locks its folder until the process that ends as a crash would has ended.
        let outcome = in_process(&spec);
        assert!(outcome.figures.contains_key("log_mib"));
        spec.second = true;
        in_process(&spec)
    } else if workload == Workload::W19 {
        workload::run(spec.clone()).expect("writes the log");
        // As a crash: the copy is what the disk has, whatever the first run still holds.
        let copy = tempfile::tempdir().expect("a temporary directory");
        copy_folder(&directory.path().join("log"), &copy.path().join("log"));
        spec.directory = copy.path().to_owned();
        spec.second = true;
        workload::run(spec).expect("recovers")
    } else {
        let process = |spec| workload::run(spec).unwrap_or_else(|error| panic!("{workload} on {subject}: {error:#}"));
        let first = process(spec.clone());
        spec.second = workload.opens_again();
        if spec.second {
            first.and_then(process(spec))
        } else {
            first
        }
    };
    check(&outcome);
    outcome
}

fn in_process(spec: &RunSpec) -> Outcome {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_engine-bench"))
        .arg("--run")
        .arg(serde_json::to_string(spec).expect("JSON"))
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("an outcome")
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

fn counts_blocks(subject: SubjectKind) -> bool {
    use SubjectKind::{Betree, Btree, WiredTiger, WiredTigerTuned};
    matches!(subject, Btree | Betree | WiredTiger | WiredTigerTuned)
}

fn check(outcome: &Outcome) {
    let (workload, subject) = (outcome.workload, outcome.subject);
    for target in TARGETS.iter().filter(|target| target.workload == workload) {
        if target.figure == "block_reads_per_op" && !counts_blocks(subject) {
            continue;
        }
        let value = outcome.figures.get(target.figure);
        let value = *value.unwrap_or_else(|| panic!("{workload} on {subject} has no {}: {outcome:?}", target.figure));
        assert!(
            value.is_finite() && value >= 0.0,
            "{workload} on {subject}: {} is {value}",
            target.figure
        );
    }
    assert!(!report::run_line(outcome).is_empty());
    assert!(outcome.figures["rss_peak_mib"] > 1.0);
}

fn run_all(subject: SubjectKind) {
    if !subject.is_available() {
        println!("{subject} is not in this build");
        return;
    }
    for workload in Workload::ALL {
        let outcome = run(workload, subject);
        match workload {
            Workload::W1 => {
                assert_eq!(outcome.figures["ops"], 2_000.0);
                assert!(outcome.figures["ops_per_s"] > 0.0 && outcome.figures["p99_us"] > 0.0);
                assert!(outcome.figures["open_p99_us"] > 0.0);
            }
            // 256 bytes, half of them compressible, and what a log adds.
            Workload::W15 => {
                let bytes = outcome.figures["log_b_per_op"];
                assert!((100.0..600.0).contains(&bytes), "{subject}: {bytes}");
            }
            Workload::W4z => {
                let kept = outcome.figures.contains_key("after_scan_block_reads_per_op");
                assert_eq!(kept, counts_blocks(subject), "{subject}");
            }
            Workload::W16 => assert!(outcome.figures["build_s"] > 0.0),
            Workload::W19 => assert!(outcome.figures["log_read_mib"] > 0.0),
            _ => {}
        }
    }
}

#[test]
fn in_memory() {
    run_all(SubjectKind::InMemory);
}

#[test]
fn rocksdb() {
    run_all(SubjectKind::Rocksdb);
}

#[test]
fn betree() {
    run_all(SubjectKind::Betree);
}

#[test]
fn btree() {
    run_all(SubjectKind::Btree);
}

#[test]
fn wiredtiger() {
    run_all(SubjectKind::WiredTiger);
}

#[test]
fn wiredtiger_tuned() {
    run_all(SubjectKind::WiredTigerTuned);
}
