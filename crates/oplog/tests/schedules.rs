//! Group commit under the schedule checker: thousands of orders in which threads append, flush, wait and are woken.
//!
//! A waiter that nobody wakes is a deadlock, which the checker reports: nothing rescues it, since there is no
//! background flusher, no traffic after the burst, and waits with a bound never end by it here. `TENON_SHUTTLE_SEED=n`
//! repeats a run, `TENON_SHUTTLE_FACTOR=n` makes it n times as long.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::Seq;
use oplog::{Log, LogError, LogOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Env, SeededRandom, SimulatedClock, SimulatedFs, Watch, WatchedFs};

/// Runs `test` in many schedules, random ones and such with few switches (PCT; Burckhardt and others, ASPLOS 2010).
fn check(name: &str, schedules: usize, test: fn()) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("TENON_SHUTTLE_SEED").unwrap_or_else(|| std::hash::RandomState::new().hash_one(name));
    let schedules = schedules * number("TENON_SHUTTLE_FACTOR").unwrap_or(1) as usize;
    println!("{name}: TENON_SHUTTLE_SEED={seed}");
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), config.clone()).run(test);
    for depth in [2, 4] {
        Runner::new(PctScheduler::new_from_seed(seed, depth, schedules / 2), config.clone()).run(test);
    }
}

/// Lets other threads run before and after each sync.
struct PauseAtSyncs;

/// On its way out other threads may run.
struct Pause;

impl Drop for Pause {
    fn drop(&mut self) {
        rcu::schedule_point();
    }
}

impl Watch for PauseAtSyncs {
    type Held<'w> = Option<Pause>;

    fn change(&self) -> Option<Pause> {
        None
    }

    fn sync(&self) -> Option<Pause> {
        rcu::schedule_point();
        Some(Pause)
    }
}

/// A log on a disk during whose syncs other threads may run, and the disk, for faults.
fn open(change: impl FnOnce(&mut LogOptions)) -> (Arc<Log>, SimulatedFs) {
    let fs = SimulatedFs::new(1);
    let env = Env {
        fs: Arc::new(WatchedFs::new(Arc::new(fs.clone()), PauseAtSyncs)),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    let mut options = LogOptions::new("/log");
    options.segment_bytes = oplog::SEGMENT_BYTES_MIN;
    options.background = false;
    change(&mut options);
    (Arc::new(Log::open(&env, options, Seq::ZERO).unwrap()), fs)
}

fn append_and_wait(log: &Log, entries: usize) {
    for _ in 0..entries {
        let seq = log.append(&[b"entry"]).unwrap();
        log.wait_durable(seq).unwrap();
        assert!(log.durable_seq() >= seq);
    }
}

/// A burst of `j: true` writers, and then silence: each of them returns. It takes a leader, another that leads before
/// the first one has woken anybody, and more served sleepers than there are wake-ups for single threads: hence so many.
#[test]
fn every_waiter_of_a_burst_returns() {
    check("every_waiter_of_a_burst_returns", 1000, || {
        let (log, _) = open(|_| {});
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let log = log.clone();
                thread::spawn(move || append_and_wait(&log, 2))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(log.durable_seq(), Seq(16));
    });
}

/// Frames of one entry and groups of one frame: a leader wakes some between its groups.
#[test]
fn waiters_of_several_groups_return_beside_a_pin() {
    check("waiters_of_several_groups_return_beside_a_pin", 1500, || {
        let (log, _) = open(|options| options.frame_bytes = 1);
        let writers = (0..3).map(|_| {
            let log = log.clone();
            thread::spawn(move || append_and_wait(&log, 2))
        });
        let writers: Vec<_> = writers.collect();
        let pins = log.clone();
        let pinner = thread::spawn(move || drop(pins.pin(Seq::ZERO).unwrap()));
        pinner.join().unwrap();
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(log.durable_seq(), Seq(6));
    });
}

/// A wait that is ended, perhaps just as it became this thread's turn to lead, leaves nobody behind.
#[test]
fn an_ended_wait_hands_its_turn_on() {
    check("an_ended_wait_hands_its_turn_on", 3000, || {
        let (log, _) = open(|_| {});
        let killed = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let log = log.clone();
                thread::spawn(move || append_and_wait(&log, 2))
            })
            .collect();
        let (its_log, flag) = (log.clone(), killed.clone());
        let victim = thread::spawn(move || {
            let seq = its_log.append(&[b"victim"]).unwrap();
            match its_log.wait_durable_while(seq, &|| !flag.load(Ordering::SeqCst)) {
                Ok(()) => assert!(its_log.durable_seq() >= seq),
                Err(LogError::Interrupted) => {}
                Err(error) => panic!("{error}"),
            }
        });
        killed.store(true, Ordering::SeqCst);
        // Time does not pass here: what a slice of the wait would do, this does.
        victim.thread().unpark();
        victim.join().unwrap();
        writers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Closing ends every wait: those whose entries were flushed succeed.
#[test]
fn closing_ends_every_wait() {
    check("closing_ends_every_wait", 1500, || {
        let (log, _) = open(|options| options.background = true);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let log = log.clone();
                thread::spawn(move || match log.append(&[b"entry"]) {
                    Ok(seq) => match log.wait_durable(seq) {
                        Ok(()) => assert!(log.durable_seq() >= seq),
                        Err(error) => assert!(matches!(error, LogError::Closed), "{error}"),
                    },
                    Err(error) => assert!(matches!(error, LogError::Closed), "{error}"),
                })
            })
            .collect();
        log.close().unwrap();
        waiters.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(log.durable_seq(), log.last_seq());
    });
}

/// A failed sync is told to everybody who waits.
#[test]
fn a_failed_sync_ends_every_wait() {
    check("a_failed_sync_ends_every_wait", 1500, || {
        let (log, fs) = open(|_| {});
        append_and_wait(&log, 1);
        fs.inject(vfs::Fault::new(vfs::FaultKind::SyncError));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let log = log.clone();
                thread::spawn(move || {
                    let result = log.append(&[b"entry"]).and_then(|seq| log.wait_durable(seq));
                    assert!(matches!(result, Err(LogError::Failed(_))), "{result:?}");
                })
            })
            .collect();
        waiters.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
