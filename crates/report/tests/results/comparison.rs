//! Two sessions: what changed is found, what only wobbles is not.

use crate::fixture;
use report::measure::{Measure, Verdict};
use report::{TOLERANCE, compare};

#[test]
fn two_runs_of_the_same_are_not_worse() {
    for seed in 1..4 {
        let (before, after) = (fixture::repeated(seed, 1.0), fixture::repeated(seed + 100, 1.0));
        let comparison = compare(&before, &after, TOLERANCE);
        assert!(comparison.lines.len() > 200, "{}", comparison.summary());
        let changed = comparison.count(Verdict::Worse) + comparison.count(Verdict::Better);
        assert!(
            changed * 50 < comparison.lines.len(),
            "seed {seed}: {}",
            comparison.text()
        );
        assert!(
            comparison.notes.iter().all(|note| note.contains("failed")),
            "{:?}",
            comparison.notes
        );
    }
}

#[test]
fn a_session_is_the_same_as_itself() {
    let session = fixture::repeated(3, 1.0);
    let comparison = compare(&session, &session, TOLERANCE);
    assert_eq!(comparison.count(Verdict::Better) + comparison.count(Verdict::Worse), 0);
    assert!(comparison.count(Verdict::Same) > 50, "{}", comparison.summary());
    assert!(!comparison.is_worse());
}

#[test]
fn a_slower_release_is_found() {
    let (before, after) = (fixture::repeated(1, 1.0), fixture::repeated(2, 0.7));
    let comparison = compare(&before, &after, TOLERANCE);
    assert!(comparison.is_worse());
    let rates: Vec<_> = comparison
        .lines
        .iter()
        .filter(|line| line.measure == Measure::Throughput)
        .collect();
    let worse = rates.iter().filter(|line| line.verdict == Verdict::Worse).count();
    assert!(
        rates.len() > 30 && worse * 10 >= rates.len() * 9,
        "{worse} of {}",
        rates.len()
    );
    let ratio = rates[4].ratio.expect("both are positive");
    assert!(
        (0.6..0.8).contains(&ratio.value) && ratio.low < 0.7 && ratio.high > 0.7,
        "{ratio:?}"
    );
    let other_way = compare(&after, &before, TOLERANCE);
    assert_eq!(other_way.count(Verdict::Better), comparison.count(Verdict::Worse));
    assert!(comparison.text().contains("WORSE"));
}

#[test]
fn differences_below_the_tolerance_are_none() {
    let (before, after) = (fixture::repeated(1, 1.0), fixture::repeated(2, 0.7));
    let comparison = compare(&before, &after, 0.8);
    assert_eq!(comparison.count(Verdict::Worse), 0, "{}", comparison.text());
}

#[test]
fn what_cannot_be_compared_is_named() {
    let before = fixture::repeated(1, 1.0);
    let mut after = before.clone();
    after.machine.cores = 4;
    after.machine.disk = "another".to_owned();
    after
        .runs
        .retain(|run| run.workload != "scan" && !(run.workload == "iibench" && run.configuration.label == "btree"));
    for run in &mut after.runs {
        if run.configuration.label == "rocksdb" {
            run.configuration.options.clear();
        }
        if run.workload == "ycsb" && run.phase == "a" {
            run.clients = 16;
        }
    }
    let notes = compare(&before, &after, TOLERANCE).notes.join("\n");
    for part in [
        "Another disk",
        "4 processors",
        "scan, cold (1 client, closed loop, scale small) is only in the older one",
        "iibench, insert: btree is only in the older one",
        "rocksdb is set up differently",
        "ycsb, a (8 clients",
        "ycsb, a (16 clients",
        "inMemory failed in the older one: the server ended by itself",
    ] {
        assert!(notes.contains(part), "{part} is not in\n{notes}");
    }
}
