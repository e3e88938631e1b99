//! Random operations against a model of all versions: snapshots at many positions, read whole and by ranges
//! both ways, beside checkpoints, flushes, compaction, backups and reopenings; after each the pages and the
//! space are looked at.
//!
//! `TENON_SEED=n` repeats a run; `TENON_STEPS=n` makes it longer.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine_soak::{Dice, Place, Plan, Run, Weights, seeds, steps};
use proptest::prelude::*;

fn run(plan: Plan, steps: usize) {
    let seed = plan.seed;
    let mut run = Run::new(
        plan.for_betree(),
        Weights::default(),
        Place::simulated(seed),
        Dice::new(seed),
    );
    run.steps(steps).unwrap();
    run.finish().unwrap();
}

#[test]
fn tiny_nodes_agree_with_the_model() {
    for seed in seeds(16) {
        println!("TENON_SEED={seed}");
        run(Plan::tiny(seed), steps(400));
    }
}

#[test]
fn nodes_of_all_sizes_agree_with_the_model() {
    for seed in seeds(5) {
        println!("TENON_SEED={seed}");
        run(Plan::wide(seed), steps(300));
    }
}

#[test]
fn threads_in_the_background_change_nothing() {
    for seed in seeds(4) {
        println!("TENON_SEED={seed}");
        let mut plan = Plan::tiny(seed);
        plan.options.threads = Some(2);
        plan.value_bytes_max = 2000;
        plan.keys = 3000;
        run(plan, steps(400));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The choices are a list of bytes, which proptest shortens when a run fails.
    #[test]
    fn any_choices_agree_with_the_model(seed in 0_u64..64, choices in prop::collection::vec(any::<u8>(), 0..1200)) {
        let dice = Dice::from_bytes(seed, choices);
        let plan = Plan::tiny(seed).for_betree();
        let mut run = Run::new(plan, Weights::default(), Place::simulated(seed), dice);
        while !run.dice().is_exhausted() {
            run.steps(1).unwrap();
        }
        run.steps(1).unwrap();
        run.finish().unwrap();
    }
}
