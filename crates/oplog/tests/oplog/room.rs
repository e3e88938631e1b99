//! A disk that is nearly full: what is taken finds its place, a checkpoint has room, and history makes way.

use crate::support::{DIRECTORY, Model, env, options, segments};
use engine::{ErrorKind, Seq};
use oplog::{Log, LogError, LogOptions, Retention};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::{FileSystem, SimulatedFs};

fn uncompressed() -> LogOptions {
    LogOptions {
        codec: codec::Codec::None,
        ..options()
    }
}

/// Appends without waiting for the disk until that is refused.
fn fill(log: &Log, model: &mut Model) -> LogError {
    loop {
        if let Err(error) = log.wait_for_room() {
            return error;
        }
        if let Err(error) = model.append(log, 1, 900) {
            // It was not appended.
            return error;
        }
    }
}

/// What was taken, and acknowledged to those who do not wait for the disk, had no segment to go to: it stayed in memory
/// for as long as the disk was full, and was lost at the end. No checkpoint could be taken, as that writes to the log
/// first, and so no segment ever went.
#[test]
fn what_a_full_disk_takes_finds_its_place() {
    for segments_free in 0..4 {
        for extra in [0, 5_000, 12_000] {
            let fs = SimulatedFs::new(extra);
            let mut model = Model::default();
            let log = Log::open(&env(&fs, 1), uncompressed(), Seq::ZERO).unwrap();
            log.wait_for_room().unwrap();
            let bytes = uncompressed().segment_bytes;
            fs.set_free_bytes(Some(segments_free * bytes + extra + 100));
            let told = Arc::new(AtomicU64::new(0));
            let count = told.clone();
            log.set_shortage_handler(Arc::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            }));
            let error = fill(&log, &mut model);
            assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            assert!(log.is_short());
            assert_eq!(told.load(Ordering::SeqCst), 1, "told once");
            assert!(model.last().0 > 5, "{:?}", model.last());
            assert_eq!(log.flush().unwrap(), model.last(), "all of it is on disk");
            // As a checkpoint does.
            let counts = [7; 700];
            assert_eq!(log.append_for_checkpoint(&[&counts]).unwrap(), model.last().next());
            model.entries.push(counts.to_vec());
            assert_eq!(log.flush().unwrap(), model.last());
            model.acknowledged = model.last().0;
            let crashed = fs.after_crash(1);
            model
                .clone()
                .compare(&Log::open(&env(&crashed, 2), uncompressed(), Seq::ZERO).unwrap());
            model.mark = model.last().0;
            log.purge(model.last()).unwrap();
            if segments(&fs).len() as u64 == segments_free + 1 && segments_free > 0 {
                panic!("nothing went");
            }
            match segments_free {
                // The one segment there is cannot go.
                0 => assert!(log.wait_for_room().is_err()),
                _ => {
                    assert!(!log.is_short());
                    let before = model.last();
                    fill(&log, &mut model);
                    assert!(model.last() > before);
                }
            }
            log.close().unwrap();
            model.acknowledged = model.last().0;
            drop(log);
            fs.restart();
            model.compare(&Log::open(&env(&fs, 3), uncompressed(), Seq(model.mark)).unwrap());
        }
    }
}

/// Of entries that came at once those that the segment in use had no room for stayed in memory for as long as the disk
/// was full, and were lost at the end.
#[test]
fn long_entries_get_files_for_all_their_segments() {
    let fs = SimulatedFs::new(1);
    let options = LogOptions {
        frame_bytes: 1_000,
        ..uncompressed()
    };
    let log = Log::open(&env(&fs, 1), options, Seq::ZERO).unwrap();
    let entry = [7; 10_000];
    log.wait_for_room_for(4 * entry.len(), 4).unwrap();
    assert!(!log.lacks_room_for(4 * entry.len(), 4));
    // Less than a segment.
    fs.set_free_bytes(Some(5_000));
    for _ in 0..4 {
        log.append(&[&entry]).unwrap();
    }
    assert_eq!(log.flush().unwrap(), Seq(4), "all of it is on disk");
    assert!(log.lacks_room_for(4 * entry.len(), 4));
    let error = log.wait_for_room_for(4 * entry.len(), 4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    fs.set_free_bytes(None);
    log.wait_for_room_for(4 * entry.len(), 4).unwrap();
}

/// A flush that found the disk full told nobody, and no checkpoint made room.
#[test]
fn a_flush_that_finds_no_room_tells_of_it() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), uncompressed(), Seq::ZERO).unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    log.set_shortage_handler(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    fs.set_free_bytes(Some(0));
    log.append(&[b"a"]).unwrap();
    for _ in 0..2 {
        assert_eq!(log.flush().unwrap_err().kind(), ErrorKind::OutOfSpace);
        assert!(log.is_short());
        assert_eq!(told.load(Ordering::SeqCst), 1, "told once");
    }
    fs.set_free_bytes(None);
    log.flush().unwrap();
    assert!(!log.is_short());
}

/// Each refusal named another file that it had made and removed.
#[test]
fn a_refusal_names_the_directory() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), uncompressed(), Seq::ZERO).unwrap();
    fs.set_free_bytes(Some(uncompressed().segment_bytes));
    let first = fill(&log, &mut Model::default()).to_string();
    assert!(
        first.starts_with("no space to make a log segment in /data/oplog: it takes 16384 bytes: "),
        "{first}"
    );
    let operations = fs.operations();
    assert_eq!(log.wait_for_room().unwrap_err().to_string(), first);
    assert_eq!(fs.operations(), operations, "nothing was tried again so soon");
    let names = fs.list(Path::new(DIRECTORY)).unwrap();
    assert_eq!(names.len(), segments(&fs).len(), "{names:?}");
    fs.set_free_bytes(None);
    log.wait_for_room().unwrap();
}

/// A member with little disk kept history until nothing could be written any more.
#[test]
fn history_makes_way_before_writes_are_refused() {
    for time in [Duration::ZERO, Duration::from_secs(3600)] {
        let fs = SimulatedFs::new(1);
        let mut model = Model::default();
        let options = LogOptions {
            retention: Retention { bytes: 1 << 30, time },
            ..uncompressed()
        };
        let log = Log::open(&env(&fs, 1), options.clone(), Seq::ZERO).unwrap();
        log.wait_for_room().unwrap();
        fs.set_free_bytes(Some(5 * options.segment_bytes));
        fill(&log, &mut model);
        let made = segments(&fs).len();
        assert!(made >= 5, "{made}");
        log.flush().unwrap();
        log.purge(model.last()).unwrap();
        if !time.is_zero() {
            assert_eq!(segments(&fs).len(), made, "what is younger stays");
            assert!(log.wait_for_room().is_err());
            continue;
        }
        assert_eq!(segments(&fs).len(), made - 1, "no more than is needed");
        for _ in 0..10 {
            fill(&log, &mut model);
            log.flush().unwrap();
            log.purge(model.last()).unwrap();
            log.wait_for_room().unwrap();
            assert!(segments(&fs).len() >= made - 1, "as much as there is room for");
        }
        assert!(log.first_seq() > Seq(1));
        log.close().unwrap();
    }
}

/// What could not be brought to disk before the end is told, by number.
#[test]
fn closing_tells_what_is_given_up() {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let log = Log::open(&env(&fs, 1), uncompressed(), Seq::ZERO).unwrap();
    fs.set_free_bytes(Some(0));
    // By callers that do not wait for room first.
    for _ in 0..3 {
        model.append(&log, 1, 900).unwrap();
    }
    let error = log.close().unwrap_err();
    assert!(matches!(error, LogError::GivenUp { entries: 3, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
}
