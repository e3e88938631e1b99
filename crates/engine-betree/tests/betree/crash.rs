//! Crashes at every moment. `TENON_SEED=n` repeats a run.

use engine_soak::{Plan, crash_everywhere, seeds};

#[test]
fn a_crash_leaves_the_fold_of_all_tables() {
    for seed in seeds(8) {
        crash_everywhere(&Plan::tiny(seed).for_betree());
    }
}
