//! Disks that fill up while an engine works: errors that pass, and nothing lost that was durable.
//!
//! `TENON_SEED=n` repeats a run.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine_soak::{Dice, Place, Plan, Run, Weights};
use vfs::{Random, SystemRandom};

fn seeds(count: usize) -> Vec<u64> {
    match std::env::var("TENON_SEED") {
        Ok(text) => vec![text.parse().unwrap()],
        Err(_) => (0..count).map(|_| SystemRandom::new().next_u64()).collect(),
    }
}

/// Little room at first, then room again: the engine goes on, or is opened anew, and agrees with the model.
#[test]
fn a_full_disk_is_an_error_that_passes() {
    let mut struck = 0;
    for seed in seeds(24) {
        println!("TENON_SEED={seed}");
        let place = Place::simulated(seed);
        let Place::Simulated(fs) = &place else {
            unreachable!("the disk is simulated")
        };
        let fs = fs.clone();
        let plan = Plan::tiny(seed).for_betree();
        let mut run = Run::new(plan, Weights::default(), place, Dice::new(seed));
        run.steps(20).unwrap();
        for round in 0..4 {
            fs.set_free_bytes(Some((seed >> (8 * round)) % 30_000));
            if let Err(error) = run.steps(60) {
                assert!(Run::is_out_of_space(&error), "{error}");
                struck += 1;
            }
            fs.set_free_bytes(None);
            if !run.is_working() {
                run.crash();
                run.recover().unwrap();
            }
            run.steps(20).unwrap();
        }
        run.finish().unwrap();
    }
    assert!(struck > 0 || std::env::var("TENON_SEED").is_ok(), "no disk was full");
}
