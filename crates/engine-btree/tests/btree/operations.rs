//! Random streams of operations, crashes and full disks: what the fuzz target `btree_operations` runs, some of it in
//! every test.
//!
//! A failure prints the shortest stream that proptest found; `PROPTEST_CASES=n` makes a run longer, and `TENON_SEED=n`
//! repeats one whole run.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use crate::driver;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use vfs::{Random, SeededRandom, SystemRandom};

/// Streams of a run.
const STREAMS: u32 = 300;

#[test]
fn any_stream_of_operations_agrees_with_the_model() {
    let seed =
        std::env::var("TENON_SEED").map_or_else(|_| SystemRandom::new().next_u64(), |text| text.parse().unwrap());
    println!("TENON_SEED={seed}");
    let mut bytes = [0; 32];
    SeededRandom::new(seed).fill(&mut bytes);
    let cases = std::env::var("PROPTEST_CASES").map_or(STREAMS, |text| text.parse().unwrap());
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let streams = prop::collection::vec(any::<u8>(), driver::HEAD_BYTES..1500);
    let checked = runner.run(&streams, |stream| {
        driver::run(&stream);
        Ok(())
    });
    checked.unwrap();
}
