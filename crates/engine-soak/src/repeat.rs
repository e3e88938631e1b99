//! What the environment says of a test's runs: `TENON_SEED=n` repeats one, `TENON_STEPS=n` makes them longer.

use vfs::{Random, SystemRandom};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// So many seeds, or the one that is to be repeated.
pub fn seeds(count: usize) -> Vec<u64> {
    match number("TENON_SEED") {
        Some(seed) => vec![seed],
        None => (0..count).map(|_| SystemRandom::new().next_u64()).collect(),
    }
}

/// Steps of a run.
pub fn steps(usual: usize) -> usize {
    number("TENON_STEPS").map_or(usual, |steps| steps as usize)
}
