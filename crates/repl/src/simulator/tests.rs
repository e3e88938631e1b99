//! Runs with many seeds. `TENON_SIMULATOR_SEED` and `TENON_SIMULATOR_STEPS` have one run of that seed and length,
//! `TENON_SIMULATOR_SEEDS` so many runs, from that seed or from 1.

use super::cluster::Cluster;
use super::faults::Fault;
use std::panic::{AssertUnwindSafe, catch_unwind};

const STEPS: usize = 4000;
/// Of each size: 10 million steps with those of all five.
const SEEDS: u64 = 500;
/// A fault is found within so many runs of each size.
const SEEDS_FOR_A_FAULT: u64 = 3000;
/// Faults that need much to go wrong at once are looked for from here on, and found soon.
const RARE: &[(Fault, u64)] = &[
    (Fault::ForgetsVotes, 280),
    (Fault::ForgetsTerms, 280),
    (Fault::AsksFormerMembers, 7600),
];

/// What a run came to.
struct Run {
    digest: u64,
    acknowledged: usize,
    terms: usize,
    restarts: usize,
}

fn run(members: u64, seed: u64, steps: usize, fault: Option<Fault>) -> Result<Run, String> {
    let mut cluster = Cluster::new(members, seed, fault)?;
    for step in 0..steps {
        cluster.step().map_err(|broken| format!("step {step}: {broken}"))?;
    }
    cluster.heal_and_agree()?;
    cluster.check_complete()?;
    Ok(Run {
        digest: cluster.digest(),
        acknowledged: cluster.checks.acknowledgements(),
        terms: cluster.checks.terms(),
        restarts: cluster.restarts,
    })
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn hold(members: u64) {
    let steps = from_environment("TENON_SIMULATOR_STEPS").map_or(STEPS, |steps| steps as usize);
    let first = from_environment("TENON_SIMULATOR_SEED");
    let count = from_environment("TENON_SIMULATOR_SEEDS").unwrap_or(if first.is_some() { 1 } else { SEEDS });
    let first = first.unwrap_or(1);
    let seeds = first..first.saturating_add(count);
    let (mut acknowledged, mut terms, mut restarts) = (0, 0, 0);
    for seed in seeds {
        let run = catch_unwind(AssertUnwindSafe(|| run(members, seed, steps, None)))
            .unwrap_or_else(|_| Err("a panic".to_owned()))
            .unwrap_or_else(|broken| panic!("{members} members, TENON_SIMULATOR_SEED={seed}: {broken}"));
        acknowledged += run.acknowledged;
        terms += run.terms;
        restarts += run.restarts;
    }
    println!("{members} members: {acknowledged} writes acknowledged, {terms} terms, {restarts} starts");
    assert!(acknowledged > 0 && terms > 0);
}

#[test]
fn a_member_whose_disk_was_put_back_catches_up() {
    for seed in 1..200 {
        let mut cluster = Cluster::new(3, seed, None).unwrap();
        let back = cluster.put_one_back(1 + seed as usize % 100, seed as usize % 8);
        back.and_then(|()| cluster.check_complete())
            .unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
}

#[test]
fn one_member_keeps_what_it_acknowledged() {
    hold(1);
}

#[test]
fn two_members_keep_what_they_acknowledged() {
    hold(2);
}

#[test]
fn three_members_keep_what_they_acknowledged() {
    hold(3);
}

#[test]
fn four_members_keep_what_they_acknowledged() {
    hold(4);
}

#[test]
fn five_members_keep_what_they_acknowledged() {
    hold(5);
}

#[test]
fn a_seed_says_what_happens() {
    for seed in 1..6 {
        let digests = [(); 2].map(|()| run(3, seed, STEPS, None).map(|run| run.digest));
        assert_eq!(digests[0], digests[1], "seed {seed}");
    }
}

#[test]
fn every_fault_is_found() {
    for fault in Fault::ALL {
        let first = RARE
            .iter()
            .find(|(rare, _)| *rare == fault)
            .map_or(1, |(_, first)| *first);
        let found = (first..first + SEEDS_FOR_A_FAULT).find_map(|seed| {
            [1, 3, 5, 4].into_iter().find_map(|members| {
                let run = catch_unwind(AssertUnwindSafe(|| run(members, seed, STEPS, Some(fault))));
                match run {
                    Ok(Ok(_)) => None,
                    Ok(Err(broken)) => Some((seed, members, broken)),
                    Err(_) => Some((seed, members, "a panic".to_owned())),
                }
            })
        });
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} was not found");
    }
}
