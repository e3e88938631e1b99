//! Crashes at every moment. `TENON_SEED=n` repeats a run.

use engine_soak::{Plan, crash_everywhere, seeds};

fn with_large(seed: u64, large_percent: u64) -> Plan {
    Plan {
        large_percent,
        ..Plan::tiny(seed)
    }
}

#[test]
fn a_crash_leaves_the_fold_of_all_tables() {
    for seed in seeds(6) {
        crash_everywhere(&with_large(seed, 0));
    }
}

#[test]
fn a_crash_leaves_the_fold_of_tables_with_large_values() {
    for seed in seeds(6) {
        crash_everywhere(&with_large(seed, 15));
    }
}
