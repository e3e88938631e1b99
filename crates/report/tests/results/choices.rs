//! What is chosen among all engines, where the costs are known, and with which reasons.

use crate::fixture;
use report::choice::Choice;
use report::html::page;
use report::{COLLAPSED, Experiment, Outcome, Session, markdown};

fn choice<'a>(session: &'a Session, workload: &str, phase: &str) -> Choice<'a> {
    let all = Experiment::all(session);
    let found = all
        .iter()
        .find(|one| one.work.workload == workload && one.work.phase == phase);
    Choice::of(found.expect("it was run")).expect("several were measured")
}

/// One of the sentences begins so.
fn says(sentences: &[String], beginning: &str) -> bool {
    sentences.iter().any(|sentence| sentence.starts_with(beginning))
}

#[test]
fn the_fastest_is_chosen_and_its_counters_say_why() {
    for seed in 1..4 {
        let session = fixture::five_engines(seed);
        let inserts = choice(&session, "iibench", "insert");
        assert_eq!(
            (inserts.name().as_str(), inserts.first.as_slice()),
            ("betree", &["betree"][..])
        );
        for beginning in [
            "throughput 3",
            "bytes written per operation 1.60 KB, 1.94x better than rocksdb",
            "reads of the disk per operation 0.020, 7.5",
            "size on disk 1.10 GB, 1.45x better than rocksdb",
            "server CPU per operation 48.0 µs, 1.2",
        ] {
            assert!(says(&inserts.because, beginning), "{beginning}: {:?}", inserts.because);
        }
        assert!(says(&inserts.costs, "p99 of main "), "{:?}", inserts.costs);
        assert!(
            inserts.costs.iter().any(|cost| cost.contains("of rocksdb")),
            "{:?}",
            inserts.costs
        );
        assert!(
            says(&inserts.instead, "rocksdb for p99 of main "),
            "{:?}",
            inserts.instead
        );
        assert!(
            inserts
                .instead
                .iter()
                .any(|other| other.contains("% of the throughput)"))
        );
        assert_eq!(inserts.without, ["inMemory (skipped)"]);
    }
}

#[test]
fn what_it_costs_is_said_too() {
    let session = fixture::five_engines(1);
    let reads = choice(&session, "ycsb", "c");
    assert_eq!(reads.first, ["inMemory"]);
    assert!(
        says(&reads.because, "server CPU per operation 16.0 µs"),
        "{:?}",
        reads.because
    );
    assert!(
        says(&reads.costs, "size on disk 2.40 GB, of betree 1.00 GB, 2.40x better"),
        "{:?}",
        reads.costs
    );
    assert!(
        says(&reads.costs, "peak memory 4.40 GB, of betree 1.30 GB"),
        "{:?}",
        reads.costs
    );
    assert!(
        says(&reads.instead, "betree for size on disk 1.00 GB"),
        "{:?}",
        reads.instead
    );
    // Nothing was written or read from the disk.
    let all = [reads.because, reads.costs, reads.instead].concat();
    assert!(
        !all.iter()
            .any(|text| text.contains("written") || text.contains("disk per")),
        "{all:?}"
    );
}

#[test]
fn at_a_given_rate_latency_decides() {
    let session = fixture::five_engines(1);
    let updates = choice(&session, "ycsb", "a");
    assert_eq!(updates.first, ["mmapv1"]);
    assert!(says(&updates.because, "p99 of main "), "{:?}", updates.because);
    assert!(
        says(&updates.costs, "size on disk 8.00 GB, of betree 1.00 GB"),
        "{:?}",
        updates.costs
    );
    assert!(
        says(&updates.instead, "betree for bytes written per operation 1.20 KB"),
        "{:?}",
        updates.instead
    );
    assert!(
        !updates.because.iter().any(|text| text.contains("throughput")),
        "{:?}",
        updates.because
    );
}

/// Of two that are equally fast none is taken; what each is best by is said.
#[test]
fn equals_are_left_to_what_decides_for_the_reader() {
    let session = fixture::five_engines(1);
    let graph = choice(&session, "linkbench", "query");
    let mut first = graph.first.clone();
    first.sort_unstable();
    assert_eq!(first, ["btree", "rocksdb"]);
    assert!(graph.name().contains(" or "), "{}", graph.name());
    assert!(graph.because.is_empty() && graph.costs.is_empty());
    assert!(
        says(&graph.instead, "betree for bytes written per operation 4.00 KB"),
        "{:?}",
        graph.instead
    );
    assert!(
        graph
            .instead
            .iter()
            .any(|other| other.ends_with("(throughput not told apart)")),
        "{:?}",
        graph.instead
    );
}

#[test]
fn who_stands_still_is_not_chosen() {
    let mut session = fixture::five_engines(1);
    for run in &mut session.runs {
        if run.workload == "linkbench" && run.configuration.label == "btree" {
            run.figures.insert(COLLAPSED.to_owned(), 0.04);
        }
    }
    let graph = choice(&session, "linkbench", "query");
    assert_eq!(graph.first, ["rocksdb"]);
    // Where there is no other, it is said.
    for run in &mut session.runs {
        if run.workload == "iibench" && run.configuration.label == "betree" {
            run.figures.insert(COLLAPSED.to_owned(), 0.04);
        }
    }
    let inserts = choice(&session, "iibench", "insert");
    assert_eq!(inserts.first, ["betree"]);
    assert!(says(&inserts.costs, "its slowest second had 4"), "{:?}", inserts.costs);
}

#[test]
fn page_and_markdown_show_the_choices() {
    let session = fixture::five_engines(1);
    let shown = page(&session);
    for part in [
        "Which one for which workload",
        "because of",
        "without inMemory (skipped)",
        "Disk reads",
    ] {
        assert!(shown.contains(part), "{part}");
    }
    let text = markdown(&session, "Results", "");
    assert!(
        text.contains("## Which one for which workload\n\n- iibench, insert: **betree**. Because of throughput"),
        "{text}"
    );
    assert!(text.contains("Reads of the disk per operation"), "{text}");
    let mut failed = session;
    failed.runs.iter_mut().for_each(|run| {
        run.outcome = Outcome::Failed {
            message: "gone".to_owned(),
        }
    });
    assert!(!markdown(&failed, "Results", "").contains("Which one for which"));
    assert!(!page(&failed).contains("Which one for which"));
}
