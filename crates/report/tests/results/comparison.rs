//! Two sessions: what changed is found, what only wobbles is not.

use crate::fixture;
use report::measure::{Measure, Verdict};
use report::{Outcome, TOLERANCE, compare};

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
fn files_that_do_not_tell_a_limit_yet_are_compared_with_those_that_do() {
    let before = fixture::repeated(3, 1.0);
    let mut after = before.clone();
    for run in &mut after.runs {
        run.parameters.insert("duration".to_owned(), "10".to_owned());
    }
    let comparison = compare(&before, &after, TOLERANCE);
    assert!(!comparison.lines.is_empty() && comparison.failures.is_empty());
    let is_told = |note: &String| note.contains("does not tell its duration");
    assert!(comparison.notes.iter().any(is_told), "{:?}", comparison.notes);
    assert!(
        !compare(&after, &before, TOLERANCE).failures.is_empty(),
        "the newer one lacks it"
    );
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

/// A check passed though the newer session had lost acknowledged writes, stood still, or lacked what was measured.
#[test]
fn what_does_not_work_any_more_is_worse() {
    let before = fixture::repeated(1, 1.0);
    let is_it = |run: &report::Run| run.workload == "ycsb" && run.phase == "a" && run.configuration.label == "btree";
    let changed = |change: &dyn Fn(&mut report::Run)| {
        let mut after = before.clone();
        let run = after.runs.iter_mut().find(|run| is_it(run)).expect("it is there");
        change(run);
        compare(&before, &after, TOLERANCE)
    };
    let message = "5 of 100 acknowledged writes are lost".to_owned();
    let lost = changed(&|run| {
        run.outcome = Outcome::Failed {
            message: message.clone(),
        }
    });
    assert!(lost.is_worse() && lost.text().contains("5 of 100"), "{}", lost.text());
    let collapsed = changed(&|run| {
        run.figures.insert(report::COLLAPSED.to_owned(), 0.01);
    });
    assert!(collapsed.is_worse() && collapsed.text().contains("btree collapsed"));
    let beside = changed(&|run| {
        run.figures.insert(report::COLLAPSED.to_owned(), 0.01);
        run.others_cpu_share = Some(0.5);
    });
    assert!(!beside.is_worse(), "{}", beside.text());
    assert!(
        beside
            .text()
            .contains("btree collapsed in the newer one, beside other programs that took 50 %")
    );
    let refused = changed(&|run| {
        run.operations.values_mut().for_each(|operation| operation.errors = 45);
    });
    assert!(refused.is_worse() && refused.text().contains("operations of a run of btree failed"));
    // Some are refused by nature, and a faster server refuses more of them in the same time.
    let shares = |errors: [u64; 2], times: u64| {
        let mut sessions = [before.clone(), before.clone()];
        for (session, errors) in sessions.iter_mut().zip(errors) {
            let run = session.runs.iter_mut().find(|run| is_it(run)).expect("it is there");
            let operation = run.operations.values_mut().next().expect("it did something");
            (operation.count, operation.errors) = (200_000, errors);
        }
        let run = sessions[1].runs.iter_mut().find(|run| is_it(run)).expect("it is there");
        run.operations
            .values_mut()
            .for_each(|operation| operation.count *= times);
        let [before, after] = sessions;
        let failures = compare(&before, &after, TOLERANCE).failures;
        failures
            .iter()
            .any(|failure| failure.contains("failed in the newer one"))
    };
    assert!(!shares([3, 4], 1), "one more");
    assert!(!shares([1000, 2000], 2), "of twice as many");
    assert!(shares([1000, 2000], 1) && shares([0, 1], 1));
    // Where the primary is killed some fail, but what was acknowledged is there.
    let killed = |lost: f64| {
        move |run: &mut report::Run| {
            run.operations.values_mut().for_each(|operation| operation.errors = 45);
            run.figures.insert(report::FAILOVERS.to_owned(), 3.0);
            run.figures.insert(report::LOST_WRITES.to_owned(), lost);
        }
    };
    let mut failover = before.clone();
    failover.runs.iter_mut().for_each(killed(0.0));
    let after = |lost: f64| {
        let mut after = before.clone();
        after.runs.iter_mut().for_each(killed(lost));
        compare(&failover, &after, TOLERANCE)
    };
    assert!(!after(0.0).is_worse(), "{}", after(0.0).text());
    assert!(after(2.0).is_worse() && after(2.0).text().contains("2 acknowledged writes that are not there"));
    let mut started = before.clone();
    let mut start = started.runs[0].clone();
    (start.phase, start.outcome) = ("start".to_owned(), Outcome::Failed { message });
    started.runs.push(start);
    assert!(compare(&before, &started, TOLERANCE).is_worse());
    for is_gone in [
        &(|run: &report::Run| is_it(run)) as &dyn Fn(&report::Run) -> bool,
        &|run| run.workload == "scan",
    ] {
        let mut fewer = before.clone();
        fewer.runs.retain(|run| !is_gone(run));
        assert!(compare(&before, &fewer, TOLERANCE).is_worse());
        // What is new is not worse, and what failed before need not work.
        assert!(!compare(&fewer, &before, TOLERANCE).is_worse());
    }
    let mut cut = before.clone();
    for run in cut.runs.iter_mut().filter(|run| is_it(run)) {
        run.outcome = Outcome::Interrupted;
    }
    assert!(compare(&before, &cut, TOLERANCE).is_worse());
}

/// Documents were torn or lost, and a check of `stress` passed: it looked at speed alone.
#[test]
fn documents_that_are_not_right_are_worse() {
    let session = |concern: &str, members: bool, figures: &[(&str, f64)]| {
        let mut configuration = report::Configuration::default();
        configuration
            .options
            .insert("writeConcern".to_owned(), concern.to_owned());
        if members {
            configuration.options.insert("members".to_owned(), "3".to_owned());
        }
        let mut run = report::Run::new("stress", "inRam.read", configuration);
        run.figures = figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        let mut session = report::Session::new("tenon", 0, Vec::new(), report::Machine::default());
        session.runs.push(run);
        session
    };
    let is_worse = |concern: &str, members: bool, name: &str, before: f64, after: f64| {
        let [before, after] = [before, after].map(|value| session(concern, members, &[(name, value)]));
        compare(&before, &after, TOLERANCE).is_worse()
    };
    for name in ["torn", "stale", "foreign", "lost"] {
        assert!(is_worse("SAFE", false, name, 0.0, 1.0), "{name}");
        assert!(!is_worse("SAFE", false, name, 1.0, 1.0), "{name}");
    }
    assert!(!is_worse("NORMAL", false, "lost", 0.0, 1.0), "nobody acknowledged it");
    assert!(is_worse("NORMAL", false, "torn", 0.0, 1.0));
    let share = report::CONSISTENT;
    assert!(is_worse("SAFE", false, share, 1.0, 0.999));
    assert!(is_worse("REPLICA_ALL", true, share, 1.0, 0.999));
    assert!(!is_worse("SAFE", true, share, 1.0, 0.1), "secondaries may be behind");
    assert!(!is_worse("NORMAL", false, share, 1.0, 0.1));
}

/// Everything was unclear, and the check was content.
#[test]
fn a_comparison_that_can_tell_nothing_says_so() {
    let repeated = fixture::repeated(1, 1.0);
    assert!(!compare(&repeated, &repeated, TOLERANCE).is_mute());
    let mut once = repeated.clone();
    once.runs.retain(|run| run.repetition == 0);
    let comparison = compare(&once, &once, TOLERANCE);
    assert!(
        comparison.is_mute() && !comparison.is_worse(),
        "{}",
        comparison.summary()
    );
    let mut disturbed = repeated.clone();
    for run in &mut disturbed.runs {
        run.others_cpu_share = Some(0.5);
    }
    assert!(compare(&repeated, &disturbed, TOLERANCE).is_mute());
}

/// A baseline of an earlier build made writers need more of the processor, and servers stop faster.
#[test]
fn what_builds_count_otherwise_is_not_compared() {
    use report::measure::Measure;
    let after = fixture::repeated(1, 1.0);
    let text = serde_json::to_string(&after).expect("it is plain data");
    let mut before: report::Session = serde_json::from_str(&text.replace("\"counting\":2,", "")).expect("as it was");
    assert!(before.runs.iter().all(|run| run.counting == 1));
    let comparison = compare(&before, &after, TOLERANCE);
    let has = |measure: &Measure| comparison.lines.iter().any(|line| line.measure == *measure);
    let others = [Measure::ServerCpu, Measure::Written, Measure::Stop];
    assert!(
        has(&Measure::Throughput) && !others.iter().any(has),
        "{}",
        comparison.text()
    );
    assert!(comparison.text().contains("the two builds count otherwise"));
    // What was only read was not flushed.
    let mut read = [before.clone(), after.clone()];
    let runs = read.iter_mut().flat_map(|session| &mut session.runs);
    runs.for_each(|run| run.document_bytes = None);
    let comparison = compare(&read[0], &read[1], TOLERANCE);
    assert!(comparison.lines.iter().any(|line| line.measure == Measure::Written));
    for run in &mut before.runs {
        run.counting = 2;
    }
    let comparison = compare(&before, &after, TOLERANCE);
    assert!(comparison.lines.iter().any(|line| line.measure == Measure::ServerCpu));
    assert!(!comparison.text().contains("count otherwise"));
}

/// The user ended a repetition early: what it had measured until then went into the mean with the whole ones.
#[test]
fn what_was_cut_short_counts_for_nothing() {
    let whole = fixture::repeated(1, 1.0);
    let mut cut = whole.clone();
    let mut run = cut
        .runs
        .iter()
        .find(|run| run.phase == "a")
        .expect("it is there")
        .clone();
    run.outcome = Outcome::Interrupted;
    run.seconds *= 50.0;
    cut.runs.push(run);
    let comparison = compare(&whole, &cut, TOLERANCE);
    assert!(!comparison.is_worse(), "{}", comparison.text());
}
