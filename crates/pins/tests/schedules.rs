//! The register under a schedule checker: snapshots come, go and are ended while positions are published and versions
//! freed.
//!
//! What is proved: a version that a horizon gave up is seen by no snapshot that is open and was not ended.
//! `TENON_SHUTTLE_SEED=n` repeats a run, `TENON_SHUTTLE_FACTOR=n` makes it n times as long.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::Seq;
use pins::{Holder, Horizon, Pins};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain};

fn check(name: &str, schedules: usize, test: fn()) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("TENON_SHUTTLE_SEED").unwrap_or_else(|| std::hash::RandomState::new().hash_one(name));
    let schedules = schedules * number("TENON_SHUTTLE_FACTOR").unwrap_or(1) as usize;
    println!("{name}: TENON_SHUTTLE_SEED={seed}");
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), Config::new()).run(test);
    for depth in [2, 4] {
        Runner::new(PctScheduler::new_from_seed(seed, depth, schedules / 2), Config::new()).run(test);
    }
}

/// The versions of one key, rising, as an engine keeps them. A plain lock: nothing is switched under it.
#[derive(Default)]
struct Versions(Plain<Vec<Seq>>);

impl Versions {
    fn at(&self, at: Seq) -> Option<Seq> {
        self.0.lock().unwrap().iter().rev().find(|&&seq| seq <= at).copied()
    }

    fn prune(&self, horizon: &Horizon) {
        let mut versions = self.0.lock().unwrap();
        let next: Vec<_> = versions.iter().skip(1).copied().collect();
        let mut index = 0;
        versions.retain(|&seq| {
            let covered = next.get(index).copied();
            index += 1;
            covered.is_none_or(|covered| horizon.needs(seq, covered))
        });
    }
}

#[test]
fn no_open_snapshot_misses_its_version() {
    check("no_open_snapshot_misses_its_version", 3000, || {
        let pins = Arc::new(Pins::new(Seq(1)));
        let versions = Arc::new(Versions(Plain::new(vec![Seq(1)])));
        let ended = Arc::new(AtomicU64::new(0));
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (pins, versions) = (pins.clone(), versions.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let pin = pins.pin(if reader == 0 { Holder::Engine } else { Holder::Reader });
                        for _ in 0..3 {
                            let found = versions.at(pin.seq());
                            if pins.is_expired(&pin) {
                                assert_ne!(reader, 0, "the engine's own work lasts");
                                break;
                            }
                            // Every position is a version of the key.
                            assert_eq!(found, Some(pin.seq()));
                            rcu::schedule_point();
                        }
                        pins.unpin(pin);
                    }
                })
            })
            .collect();
        let ender = {
            let (pins, ended) = (pins.clone(), ended.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    ended.fetch_add(u64::from(pins.expire_oldest().is_some()), Ordering::Relaxed);
                }
            })
        };
        let mut horizon = Horizon::default();
        for seq in 2..8 {
            versions.0.lock().unwrap().push(Seq(seq));
            if seq % 2 == 0 {
                pins.update(&mut horizon);
            }
            rcu::schedule_point();
            versions.prune(&horizon);
            pins.publish(Seq(seq));
        }
        for thread in readers.into_iter().chain([ender]) {
            thread.join().unwrap();
        }
        pins.update(&mut horizon);
        versions.prune(&horizon);
        assert_eq!(*versions.0.lock().unwrap(), [Seq(7)], "nothing is kept for nobody");
        assert_eq!(pins.open(), (0, None));
    });
}
