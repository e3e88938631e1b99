//! Failing writes and syncs end the log; a full disk does not.

use crate::support::{DIRECTORY, Model, env, options};
use engine::{ErrorKind, Seq};
use oplog::{HardState, Log, LogError, LogOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Fault, FaultKind, FileSystem, SimulatedFs};

#[test]
fn a_failed_write_or_sync_ends_the_log_for_ever_and_is_told_once() {
    for kind in [FaultKind::SyncError, FaultKind::WriteError, FaultKind::MetadataError] {
        for nth in 0..6 {
            let fs = SimulatedFs::new(nth);
            let told = Arc::new(AtomicU64::new(0));
            let count = told.clone();
            let on_failure: oplog::FailureHandler = Arc::new(move |error: &LogError| {
                assert!(matches!(error, LogError::Io { .. }), "{error}");
                count.fetch_add(1, Ordering::SeqCst);
            });
            let options = LogOptions {
                on_failure: Some(on_failure),
                ..options()
            };
            let log = Log::open(&env(&fs, 1), options, Seq::ZERO).unwrap();
            let mut model = Model::default();
            // A file that cannot be made ahead of time is none of it: the segment itself meets what is wrong.
            fs.inject(Fault::new(kind).after(nth).times(u64::MAX));
            let error = loop {
                let seq = model.append(&log, 1, 900).unwrap();
                match log.wait_durable(seq) {
                    Ok(()) => model.acknowledged = seq.0,
                    Err(error) => break error,
                }
            };
            fs.clear_faults();
            assert!(matches!(error, LogError::Failed(_)), "{error}");
            assert_eq!(error.kind(), ErrorKind::Closed);
            let failed = |result: oplog::Result<()>| assert!(matches!(result, Err(LogError::Failed(_))));
            failed(log.append(&[b"x"]).map(drop));
            failed(log.wait_durable(Seq(1)));
            failed(log.wait_durable(log.last_seq()));
            failed(log.flush().map(drop));
            failed(log.wait_for_room());
            failed(log.read(Seq(1)).map(drop));
            failed(log.purge(Seq(1)));
            failed(log.close());
            assert_eq!(told.load(Ordering::SeqCst), 1);
            assert_eq!(
                log.durable_seq(),
                Seq(model.acknowledged),
                "nothing is acknowledged after a failure"
            );
            drop(log);
            fs.restart();
            model.compare(&Log::open(&env(&fs, 2), self::options(), Seq::ZERO).unwrap());
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_ends_when_space_returns() {
    // Every budget from none to enough for some segments: the disk is full at every kind of operation.
    for budget in (0..80_000).step_by(1_234) {
        let fs = SimulatedFs::new(budget);
        let mut model = Model::default();
        let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
        fs.set_free_bytes(Some(budget));
        // By callers that do not look for room before.
        let error = loop {
            let appended = model.append(&log, 1, 900);
            match appended.and_then(|seq| log.wait_durable(seq).map(|()| seq)) {
                Ok(seq) => model.acknowledged = seq.0,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        // Refused with room left to checkpoints, or for want of a few bytes elsewhere than in a segment.
        let refused = (0..20).find_map(|_| model.append(&log, 1, 900).err());
        assert!(
            refused.is_some() || log.flush().is_err(),
            "and before the next write: {budget}"
        );
        assert_eq!(log.durable_seq(), Seq(model.acknowledged));
        // A crash now loses only what was not acknowledged.
        let crashed = fs.after_crash(1);
        crashed.set_free_bytes(None);
        model
            .clone()
            .compare(&Log::open(&env(&crashed, 2), options(), Seq::ZERO).unwrap());

        fs.set_free_bytes(Some(100_000));
        log.wait_for_room().unwrap();
        assert_eq!(log.durable_seq(), model.last(), "what waited is on disk");
        for _ in 0..30 {
            model.append(&log, 1, 900).unwrap();
        }
        log.flush().unwrap();
        drop(log);
        model.acknowledged = model.last().0;
        fs.restart();
        model.compare(&Log::open(&env(&fs, 3), options(), Seq::ZERO).unwrap());
    }
}

/// All entries were on disk, and so nobody tried: whoever waited for room asked again and again, for ever.
#[test]
fn a_state_that_finds_the_disk_full_is_tried_again_by_who_waits_for_room() {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    model.append(&log, 1, 900).unwrap();
    log.flush().unwrap();
    // What comes next needs a new segment.
    drop(log.pin(Seq::ZERO).unwrap());
    let names = fs.list(Path::new(DIRECTORY)).unwrap();
    let spare = names.iter().find(|name| name.to_str().unwrap().starts_with("spare"));
    fs.remove_file(&Path::new(DIRECTORY).join(spare.unwrap())).unwrap();
    fs.set_free_bytes(Some(0));
    let state = HardState {
        term: 3,
        ..HardState::default()
    };
    let full = |result: oplog::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::OutOfSpace);
    full(log.write_state(state));
    full(log.wait_for_room());
    let buffered = log.stats().buffered_bytes;
    full(log.write_state(state));
    assert_eq!(log.stats().buffered_bytes, buffered, "one that waits is enough");
    fs.set_free_bytes(None);
    log.wait_for_room().unwrap();
    assert_eq!(log.stats().buffered_bytes, 0);
    drop(log);
    fs.crash();
    fs.restart();
    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    assert_eq!(log.hard_state(), Some(state));
    model.compare(&log);
}

#[test]
fn purging_makes_room_on_a_full_disk() {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let options = LogOptions {
        codec: codec::Codec::None,
        ..options()
    };
    let log = Log::open(&env(&fs, 1), options.clone(), Seq::ZERO).unwrap();
    fs.set_free_bytes(Some(4 * options.segment_bytes));
    for _ in 0..10 {
        while let Ok(seq) = model.append(&log, 1, 900) {
            log.wait_durable(seq).expect("what is taken has its place");
        }
        model.mark = model.last().0;
        log.purge(Seq(model.mark)).unwrap();
        log.wait_for_room().expect("the recycled segments are room");
    }
    model.acknowledged = log.durable_seq().0;
    assert!(log.stats().segments_recycled >= 10);
    fs.restart();
    model.compare(&Log::open(&env(&fs, 2), options, Seq(model.mark)).unwrap());
}

#[test]
fn writers_wait_for_room_and_those_who_do_not_are_refused_in_the_end() {
    let fs = SimulatedFs::new(1);
    let options = LogOptions {
        buffer_bytes_max: 10_000,
        buffer_bytes_refused: 40_000,
        ..options()
    };
    let log = Log::open(&env(&fs, 1), options, Seq::ZERO).unwrap();
    let mut appended = 0;
    let error = loop {
        match log.append(&[&[0; 996]]) {
            Ok(_) => appended += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::BufferFull { bytes: 41_000 }), "{error}");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert_eq!(
        (appended, log.last_seq()),
        (41, Seq(41)),
        "a refused entry takes no position"
    );
    log.wait_for_room().unwrap();
    let stats = log.stats();
    assert_eq!((stats.buffered_bytes, stats.waits_for_room), (0, 1));
    for _ in 0..100 {
        log.wait_for_room().unwrap();
        log.append(&[&[0; 996]]).unwrap();
        assert!(log.stats().buffered_bytes <= 11_000);
    }
}

#[test]
fn a_failed_purge_may_be_tried_again() {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    for _ in 0..100 {
        model.append(&log, 1, 900).unwrap();
        log.flush().unwrap();
    }
    // The position is known then.
    log.purge(Seq::ZERO).unwrap();
    for nth in 0..2 {
        let before = log.stats().segments;
        fs.inject(Fault::new(FaultKind::MetadataError).after(nth));
        assert_eq!(log.purge(Seq(90)).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(log.stats().segments, before - nth);
        reopened_after_crashes(&fs, &model);
    }
    log.purge(Seq(90)).unwrap();
    log.append(&[b"x"]).unwrap();
    log.flush().expect("the log itself has not failed");
}

fn reopened_after_crashes(fs: &SimulatedFs, model: &Model) {
    for seed in 0..10 {
        let fs = fs.after_crash(seed);
        let mut model = Model {
            mark: 90,
            ..model.clone()
        };
        model.compare(&Log::open(&env(&fs, 2), options(), Seq(90)).unwrap());
    }
}

/// The directory's changes may be lost, and no later sync would bring them back: purging on would leave a hole.
#[test]
fn a_failed_directory_sync_of_a_purge_ends_the_log() {
    for seed in 0..20 {
        let fs = SimulatedFs::new(seed);
        let mut model = Model::default();
        let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
        for _ in 0..100 {
            model.append(&log, 1, 900).unwrap();
            log.flush().unwrap();
        }
        // The position is known then.
        log.purge(Seq::ZERO).unwrap();
        fs.inject(Fault::new(FaultKind::SyncError).after(seed % 2));
        assert!(matches!(log.purge(Seq(90)), Err(LogError::Failed(_))));
        assert!(matches!(log.append(&[b"x"]), Err(LogError::Failed(_))));
        drop(log);
        reopened_after_crashes(&fs, &model);
        // The next process purges on the same machine, which has forgotten the lost names.
        model.mark = 90;
        let log = Log::open(&env(&fs, 2), options(), Seq(90)).unwrap();
        model.compare(&log);
        log.purge(Seq(90)).unwrap();
        reopened_after_crashes(&fs, &model);
    }
}

/// Without a descriptor for the next segment the log waits, as on a full disk, until others have given theirs back.
/// That was told as a full disk, and history went for it.
#[test]
fn too_many_open_files_end_when_some_are_closed() {
    for opened in 0..4 {
        let fs = SimulatedFs::new(opened);
        let mut model = Model::default();
        let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
        fs.inject(Fault::new(FaultKind::NoDescriptors).after(opened).times(u64::MAX));
        let error = loop {
            let appended = model.append(&log, 1, 900);
            match appended.and_then(|seq| log.wait_durable(seq).map(|()| seq)) {
                Ok(seq) => model.acknowledged = seq.0,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LogError::NoDescriptors { .. }), "{error}");
        assert!(error.to_string().contains("descriptor"), "{error}");
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "it is to be tried again");
        let again = log.wait_for_room().err();
        assert!(
            matches!(again, None | Some(LogError::NoDescriptors { .. })),
            "{again:?}"
        );
        assert!(!log.is_short() && log.stats().shortages == 0, "{:?}", log.stats());
        assert_eq!(log.durable_seq(), Seq(model.acknowledged));
        fs.clear_faults();
        log.wait_for_room().unwrap();
        assert_eq!(log.durable_seq(), model.last(), "what waited is on disk");
        for _ in 0..30 {
            model.append(&log, 1, 900).unwrap();
        }
        log.flush().unwrap();
        drop(log);
        model.acknowledged = model.last().0;
        fs.restart();
        model.compare(&Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap());
    }
}
