//! Runs of the simulator.

use super::run::{Figures, Setup, Simulator};
use super::{Checked, Violation};
use crate::mutations::{Mutation, Switched};
use crate::testing::{Kind, seed_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Replays a run.
const SEED: &str = "TENON_SIMULATOR_SEED";
/// Steps of a run, for a long one.
const STEPS: &str = "TENON_SIMULATOR_STEPS";

fn setups(seed: u64) -> Vec<Setup> {
    let of = |(kind, decides_alone)| Setup {
        seed,
        kind,
        decides_alone,
    };
    let all = [
        (Kind::InMemory, true),
        (Kind::InMemory, false),
        (Kind::Btree, true),
        (Kind::Btree, false),
    ];
    all.map(of).into()
}

fn run(setup: Setup, steps: u64) -> Result<(Figures, u64), String> {
    let mut simulator = Simulator::new(setup).map_err(|Violation(text)| format!("{setup:?}: {text}"))?;
    for _ in 0..steps {
        let stepped = catch_unwind(AssertUnwindSafe(|| simulator.step()));
        let text = match stepped {
            Ok(Ok(())) => continue,
            Ok(Err(Violation(text))) => text,
            Err(panic) => panic
                .downcast::<String>()
                .map_or_else(|other| format!("{other:?}"), |text| *text),
        };
        return Err(format!(
            "{setup:?}\nstep {}: {text}\nthe last steps were\n{}",
            simulator.figures.steps,
            simulator.last_steps()
        ));
    }
    let last: Checked = simulator.restart();
    match last {
        Ok(()) => Ok((simulator.figures, simulator.fingerprint())),
        Err(Violation(text)) => Err(format!("{setup:?}: {text}\n{}", simulator.last_steps())),
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_replica_set_of_one_keeps_what_it_promises() {
    let seed = seed_of(SEED);
    let steps = number(STEPS).unwrap_or(2_500);
    for setup in setups(seed) {
        match run(setup, steps) {
            Ok((figures, _)) => println!("{setup:?}: {figures:?}"),
            Err(text) => panic!("{text}"),
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let seed = seed_of(SEED);
    for setup in setups(seed) {
        // What waits to be freed is counted for the whole process, and tells `btree` when to evict: another test beside
        // this one may make two runs differ, but not again and again.
        let mut runs = [run(setup, 800), run(setup, 800)];
        for _ in 0..4 {
            if runs[0] == runs[1] {
                break;
            }
            runs = [run(setup, 800), run(setup, 800)];
        }
        assert_eq!(runs[0], runs[1], "{setup:?}");
    }
    let other = setups(seed ^ 1)[0];
    assert_ne!(run(setups(seed)[0], 100), run(other, 100));
}

/// The simulator finds what was put in on purpose, and nothing where it was not.
fn finds(mutation: Mutation) {
    const SEEDS_MAX: u64 = 20;
    const STEPS: u64 = 1_500;
    for seed in 1..=SEEDS_MAX {
        for setup in setups(seed) {
            let found = {
                let _switched = Switched::on(mutation);
                run(setup, STEPS)
            };
            let Err(text) = found else { continue };
            let what: Vec<_> = text.lines().skip(1).take(1).collect();
            println!("{mutation:?} is found by seed {seed}, {setup:?}: {what:?}");
            if let Err(text) = run(setup, STEPS) {
                panic!("without {mutation:?}: {text}");
            }
            return;
        }
    }
    panic!("{mutation:?} is not found by {SEEDS_MAX} seeds");
}

macro_rules! found {
    ($($name:ident: $mutation:ident,)+) => {$(
        #[test]
        fn $name() {
            finds(Mutation::$mutation);
        }
    )+};
}

found! {
    it_finds_early_acknowledgement: AcknowledgesEarly,
    it_finds_pending_changes_forgotten: ForgetsPending,
    it_finds_partial_chains_applied: AppliesPartialChains,
    it_finds_sessions_forgotten: ForgetsSessions,
    it_finds_the_log_recycled_early: RecyclesEarly,
    it_finds_the_log_recycled_before_counts: RecyclesCounts,
    it_finds_pre_images_lost: LosesPreImages,
    it_finds_index_rows_kept: KeepsIndexRows,
    it_finds_carried_documents_kept: KeepsCarriedDocuments,
    it_finds_undurable_history: ShowsUndurable,
    it_finds_conflicts_missed: MissesConflicts,
}
