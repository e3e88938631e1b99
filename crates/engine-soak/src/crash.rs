//! Crashes at every moment of a run on a simulated disk: after opening again, all tables are exactly what the model has
//! at the recovered position, every node is whole, and no space is lost or used twice.

use crate::{Dice, Place, Plan, Run, Weights};

/// Things done in a run.
const STEPS: usize = 60;
/// Crashes of one run, at most, spread over its operations.
const CRASHES_MAX: u64 = 120;

fn weights() -> Weights {
    Weights {
        checkpoint: 120,
        compact: 20,
        backup: 0,
        crash: 0,
        read_all: 0,
        ..Weights::default()
    }
}

fn run_of(plan: &Plan) -> Run {
    Run::new(
        plan.clone(),
        weights(),
        Place::simulated(plan.seed),
        Dice::new(plan.seed),
    )
}

fn operations(run: &Run) -> u64 {
    match run.place() {
        Place::Simulated(fs) => fs.operations(),
        Place::Real { .. } => unreachable!("the run is on a simulated disk"),
    }
}

/// One run to its end. The last thing is a checkpoint: one run in two thousand comes to none by chance, and would have
/// nothing to crash in.
fn to_its_end(run: &mut Run) -> engine::Result<()> {
    run.steps(STEPS)?;
    run.checkpoint()
}

/// Crashes a run of `plan` at operation `at`; then opens, compares, and goes on for a while.
fn crash_at(plan: &Plan, at: u64) {
    let mut run = run_of(plan);
    let Place::Simulated(fs) = run.place() else {
        unreachable!("as above")
    };
    let fs = fs.clone();
    fs.crash_at(at);
    let ended = to_its_end(&mut run);
    assert!(ended.is_ok() || fs.has_crashed(), "operation {at}: {ended:?}");
    // A second crash, while the first one is recovered from.
    run.crash();
    fs.crash_at(fs.operations() + 1 + at % 5);
    let recovered = run.recover();
    assert!(recovered.is_ok() || fs.has_crashed(), "operation {at}: {recovered:?}");
    run.crash();
    run.recover().unwrap();
    run.steps(15).unwrap();
    run.finish().unwrap();
}

/// Prints the plan's seed, and crashes its run at operation after operation.
pub fn crash_everywhere(plan: &Plan) {
    println!("TENON_SEED={}", plan.seed);
    let mut whole = run_of(plan);
    whole.steps(0).unwrap();
    let opened = operations(&whole);
    to_its_end(&mut whole).unwrap();
    whole.finish().unwrap();
    let last = operations(&whole);
    assert!(
        last > opened,
        "a run writes more than a new folder, of {opened} operations"
    );
    let stride = last.div_ceil(CRASHES_MAX).max(1);
    for at in (1 + plan.seed % stride..=last).step_by(stride as usize) {
        crash_at(plan, at);
    }
}
