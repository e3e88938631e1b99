//! Crashes at every operation: what was acknowledged is found, what is found is a prefix, and the log goes on.

use crate::support::{DIRECTORY, Model, env, options, segments};
use codec::Codec;
use engine::Seq;
use oplog::{EngineAhead, Log, LogOptions, Result};
use std::path::Path;
use vfs::{Fault, FaultKind, FileSystem, Random, SeededRandom, SimulatedFs};

pub fn crash_options(seed: u64) -> LogOptions {
    let codec = Codec::ALL[(seed % 5) as usize];
    LogOptions {
        codec,
        frame_bytes: if seed.is_multiple_of(2) { 700 } else { 1 << 20 },
        spare_segments_max: (seed % 3) as usize,
        ..options()
    }
}

/// Appends, waits, purges and pins by chance, until done or until something fails.
fn work(log: &Log, model: &mut Model, life: u64, steps: u64, random: &SeededRandom) -> Result<()> {
    let mut _pinned = None;
    for _ in 0..steps {
        let max = if random.next_u64().is_multiple_of(8) {
            6_000
        } else {
            400
        };
        let seq = model.append(log, life, max)?;
        match random.next_u64() % 8 {
            0..3 => {
                log.wait_durable(seq)?;
                model.acknowledged = seq.0;
            }
            3 => {
                model.acknowledged = log.flush()?.0;
            }
            4 if model.acknowledged > 10 => {
                model.mark = model.mark.max(model.acknowledged - random.next_u64() % 10);
                log.purge(Seq(model.mark))?;
            }
            5 => {
                _pinned = Some(log.pin(Seq(model.mark))?);
                model.acknowledged = seq.0;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens after a crash, compares, and returns the log.
fn reopen(fs: &SimulatedFs, model: &mut Model, seed: u64) -> Log {
    let log = Log::open(&env(fs, seed), crash_options(seed), Seq(model.mark)).unwrap();
    model.compare(&log);
    log
}

/// One life that ends in a crash at operation `crash_at` (never, if 0); returns whether it came to that.
pub fn live_until(fs: &SimulatedFs, crash_at: u64, seed: u64) -> (Model, bool) {
    let mut model = Model::default();
    fs.crash_at(crash_at);
    let result = Log::open(&env(fs, seed), crash_options(seed), Seq::ZERO)
        .and_then(|log| work(&log, &mut model, 1, 60, &SeededRandom::new(seed)));
    assert_eq!(result.is_err(), fs.has_crashed(), "{:?}", result.err());
    (model, fs.has_crashed())
}

#[test]
fn acknowledged_entries_survive_a_crash_at_every_operation() {
    for seed in 0..12 {
        println!("seed {seed}");
        for crash_at in 1.. {
            let fs = SimulatedFs::new(seed * 1_000 + crash_at);
            let (mut model, crashed) = live_until(&fs, crash_at, seed);
            if !crashed {
                assert!(crash_at > 50, "the workload does something: {crash_at} operations");
                break;
            }
            println!("crash at operation {crash_at}");
            fs.restart();
            let log = reopen(&fs, &mut model, seed);
            // The second life writes over what the first one left.
            work(&log, &mut model, 2, 12, &SeededRandom::new(seed + 99)).unwrap();
            for after in 0..3 {
                reopen(&fs.after_crash(after), &mut model.clone(), seed + 1);
            }
        }
    }
}

/// The last segment went, with a lost directory entry or by hand, and the log ended where the one before it does: what
/// had been acknowledged in it was given up without a word.
#[test]
fn the_last_segment_does_not_go_unnoticed_after_a_crash_at_any_operation() {
    let (mut refused, mut empty) = (0, 0);
    for seed in 0..6 {
        for crash_at in 1.. {
            let fs = SimulatedFs::new(seed * 1_000 + crash_at);
            let (mut model, crashed) = live_until(&fs, crash_at, seed);
            if !crashed {
                break;
            }
            println!("seed {seed}, crash at operation {crash_at}");
            fs.restart();
            let Ok(true) = fs.exists(Path::new(DIRECTORY)) else {
                continue;
            };
            let Some(last) = segments(&fs).pop() else { continue };
            fs.remove_file(&last).unwrap();
            match Log::open(&env(&fs, seed), crash_options(seed), Seq(model.mark)) {
                // Nothing of it had been acknowledged.
                Ok(log) => {
                    model.compare(&log);
                    empty += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), engine::ErrorKind::Corrupt, "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 100 && empty > 0, "{refused} {empty}");
}

#[test]
fn recovery_survives_a_crash_at_every_operation() {
    let mut crashes = 0;
    for seed in 0..6 {
        for crash_at in 1.. {
            let fs = SimulatedFs::new(seed * 77 + crash_at);
            let (model, crashed) = live_until(&fs, crash_at, seed);
            if !crashed {
                break;
            }
            let base = fs.operations();
            for again_at in 1.. {
                let fs = fs.after_crash(crash_at);
                println!("seed {seed}, crash at operation {crash_at}, then at {again_at} of recovery");
                fs.crash_at(base + again_at);
                if Log::open(&env(&fs, seed), crash_options(seed), Seq(model.mark)).is_ok() {
                    break;
                }
                crashes += 1;
                fs.restart();
                let mut model = model.clone();
                let log = reopen(&fs, &mut model, seed);
                work(&log, &mut model, 2, 6, &SeededRandom::new(seed)).unwrap();
                reopen(&fs.after_crash(again_at), &mut model, seed);
            }
        }
    }
    assert!(crashes > 1_000, "{crashes}");
}

/// An engine that went on without the log: every segment is retired at opening, and a crash there must not leave a
/// hole.
#[test]
fn starting_behind_the_engines_mark_survives_a_crash_at_every_operation() {
    for seed in 0..4 {
        let fs = SimulatedFs::new(seed);
        let (model, _) = live_until(&fs, 0, seed);
        let mark = Seq(model.last().0 + 10);
        let base = fs.operations();
        for crash_at in 1.. {
            let fs = fs.after_crash(seed);
            fs.crash_at(base + crash_at);
            let options = LogOptions {
                engine_ahead: EngineAhead::BeginBehind,
                ..crash_options(seed)
            };
            let opened = Log::open(&env(&fs, seed), options.clone(), mark).and_then(|log| {
                log.append(&[b"first"])?;
                log.flush()
            });
            if opened.is_ok() {
                assert!(crash_at > 5);
                break;
            }
            fs.restart();
            let log = Log::open(&env(&fs, seed), options, mark).unwrap();
            let found: Vec<_> = log.read(mark.next()).unwrap().map(|item| item.unwrap()).collect();
            assert!(found.is_empty() || found == [(mark.next(), "first".into())]);
        }
    }
}

/// Many lives in a row, each ended by a crash, by a failed sync or write and the end of the process alone, or in peace.
#[test]
fn many_lives() {
    let (mut crashes, mut failures) = (0, 0);
    for seed in 0..150 {
        println!("seed {seed}");
        let random = SeededRandom::new(seed);
        let fs = SimulatedFs::new(seed);
        let mut model = Model::default();
        for life in 1..12 {
            let log = reopen(&fs, &mut model, seed);
            match random.next_u64() % 4 {
                0 => fs.crash_at(fs.operations() + 1 + random.next_u64() % 60),
                1 => fs.inject(Fault::new(FaultKind::SyncError).after(random.next_u64() % 30)),
                2 => fs.inject(Fault::new(FaultKind::WriteError).after(random.next_u64() % 20)),
                _ => {}
            }
            let result = work(&log, &mut model, life, 40, &random);
            drop(log);
            fs.clear_faults();
            fs.crash_at(0);
            if fs.has_crashed() {
                crashes += 1;
                fs.restart();
            } else if result.is_err() {
                // The process ends, the machine goes on: the page cache still shows what never reached the disk. What
                // the next life finds there it counts as durable, so it must make it so.
                failures += 1;
                reopen(&fs, &mut model, seed);
                fs.restart();
            }
        }
        reopen(&fs, &mut model, seed);
    }
    assert!(crashes > 100 && failures > 100, "{crashes} {failures}");
}

/// A crash loses the first frame of a group and keeps the second. The next life writes one frame of the same length in
/// the first one's place: if the second one were still there, it would follow seamlessly, an entry from a life that
/// never acknowledged it.
#[test]
fn frames_of_a_torn_group_do_not_come_back() {
    let one_entry_a_frame = LogOptions {
        codec: Codec::None,
        frame_bytes: 1,
        ..options()
    };
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), one_entry_a_frame.clone(), Seq::ZERO).unwrap();
    log.append(&[&[1; 984]]).unwrap();
    log.flush().unwrap();
    for _ in 0..3 {
        log.append(&[&[2; 984]]).unwrap();
    }
    fs.crash_at(fs.operations() + 2);
    log.flush().unwrap_err();
    drop(log);
    let mut stale = 0;
    for seed in 0..200 {
        println!("seed {seed}");
        let fs = fs.after_crash(seed);
        let report = oplog::verify_segment(&*env(&fs, 2).fs, &crate::support::segments(&fs)[0]).unwrap();
        let log = Log::open(&env(&fs, 2), one_entry_a_frame.clone(), Seq::ZERO).unwrap();
        assert_eq!(log.last_seq().0, report.entries);
        stale += u64::from(report.stale_frames > 0 && report.entries == 1);
        let seq = log.append(&[&[3; 984]]).unwrap();
        log.wait_durable(seq).unwrap();
        drop(log);
        let log = Log::open(&env(&fs, 3), one_entry_a_frame.clone(), Seq::ZERO).unwrap();
        assert_eq!(log.last_seq(), seq, "nothing behind the new entry");
        let last = log.read(seq).unwrap().next().unwrap().unwrap();
        assert_eq!(last.1, [3; 984].as_slice());
    }
    assert!(stale > 10, "the case arises: {stale}");
}
