//! Who wins in the made-up sessions, where the truth is known.

use crate::fixture;
use report::measure::Measure;
use report::verdict::Standing;
use report::{Experiment, Session};

fn experiment<'a>(session: &'a Session, workload: &str, phase: &str) -> Experiment<'a> {
    let all = Experiment::all(session);
    all.into_iter()
        .find(|one| one.work.workload == workload && one.work.phase == phase)
        .expect("it was run")
}

fn winner(session: &Session, workload: &str, phase: &str, measure: Measure) -> Option<String> {
    let experiment = experiment(session, workload, phase);
    let standing = Standing::of(&experiment, measure).expect("it was measured");
    standing.winner().map(|place| place.label.to_owned())
}

#[test]
fn the_best_one_wins() {
    for seed in 1..4 {
        let session = fixture::repeated(seed, 1.0);
        let won = |workload, phase, measure| winner(&session, workload, phase, measure);
        let is = |label: &str| Some(label.to_owned());
        assert_eq!(
            won("linkbench", "query", Measure::Throughput),
            is("inMemory"),
            "seed {seed}"
        );
        assert_eq!(
            won("iibench", "insert", Measure::Throughput),
            is("rocksdb"),
            "seed {seed}"
        );
        assert_eq!(won("book", "insert", Measure::Size), is("btree zstd"), "seed {seed}");
        assert_eq!(won("book", "read", Measure::Cold), is("btree zstd"), "seed {seed}");
        assert_eq!(
            won("ycsb", "a", Measure::P99("read".to_owned())),
            is("inMemory"),
            "seed {seed}"
        );
    }
}

#[test]
fn equals_share_or_nobody_wins() {
    let session = fixture::repeated(1, 1.0);
    assert_eq!(winner(&session, "linkbench", "query", Measure::Memory), None);
    let experiment = experiment(&session, "linkbench", "query");
    let standing = Standing::of(&experiment, Measure::Memory).expect("it was measured");
    assert_eq!(standing.leaders, 4);
    assert!(standing.sentence().starts_with("no winner"), "{}", standing.sentence());
}

#[test]
fn failed_runs_do_not_compete() {
    let session = fixture::repeated(1, 1.0);
    let experiment = experiment(&session, "ycsb", "c");
    let standing = Standing::of(&experiment, Measure::Throughput).expect("three are left");
    assert!(standing.places.iter().all(|place| place.label != "inMemory"));
    assert_eq!(standing.places.len(), 3);
}

#[test]
fn sizes_after_unequal_work_are_not_compared() {
    let session = fixture::repeated(1, 1.0);
    assert!(Standing::of(&experiment(&session, "ycsb", "a"), Measure::Size).is_none());
    assert!(Standing::of(&experiment(&session, "book", "insert"), Measure::Size).is_some());
}

#[test]
fn nothing_read_is_better_than_something() {
    let mut session = fixture::repeated(1, 1.0);
    for run in &mut session.runs {
        let none = run.configuration.label == "inMemory";
        run.read_bytes = Some(if none { 0 } else { run.count() * 5_000 });
        run.series.read_bytes.clear();
    }
    let experiment = experiment(&session, "ycsb", "b");
    let standing = Standing::of(&experiment, Measure::Read).expect("it was measured");
    assert_eq!(standing.winner().map(|place| place.label), Some("inMemory"));
    assert!(
        standing.sentence().contains("against 5.00 KB of"),
        "{}",
        standing.sentence()
    );
}

#[test]
fn nobody_wins_what_was_measured_once_or_beside_others() {
    let once = fixture::session(1, 1.0);
    for experiment in Experiment::all(&once) {
        for standing in Standing::all(&experiment) {
            let is_nothing = standing.places[0].estimate.value <= standing.measure.none_below();
            assert!(standing.winner().is_none() || is_nothing, "{}", standing.sentence());
        }
    }
    let words = |session: &Session| {
        let experiment = experiment(session, "linkbench", "query");
        let standing = Standing::of(&experiment, Measure::Throughput).expect("it was measured");
        standing.sentence()
    };
    assert!(
        words(&once).starts_with("no winner: it was measured once"),
        "{}",
        words(&once)
    );
    let mut twice = fixture::repeated(1, 1.0);
    assert!(words(&twice).starts_with("inMemory: "), "{}", words(&twice));
    let disturbed = |share, session: &mut Session| {
        let run = session.runs.iter_mut().find(|run| run.phase == "query");
        run.expect("it was run").others_cpu_share = Some(share);
        words(session)
    };
    assert!(disturbed(0.05, &mut twice).starts_with("inMemory: "));
    let voided = disturbed(0.3, &mut twice);
    assert!(voided.starts_with("no winner: other programs took 30"), "{voided}");
}
