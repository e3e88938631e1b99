//! Pinned segments: they stay as they are, and copies of them are a log.

use crate::support::{DIRECTORY, Model, env, options, segments};
use engine::Seq;
use oplog::{Log, LogError, LogMode, LogOptions, PinnedLog};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Access, FileSystem, SimulatedFs};

fn read(fs: &SimulatedFs, (path, bytes): &(PathBuf, u64)) -> Vec<u8> {
    let file = fs.open(path, Access::Read).unwrap();
    let mut content = vec![0; *bytes as usize];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(file.len().unwrap(), *bytes, "{path:?}");
    content
}

/// Copies pinned files to a directory of their own; answers options that open it.
fn copy(fs: &SimulatedFs, pinned: &PinnedLog, name: &str) -> LogOptions {
    let directory = Path::new("/copies").join(name);
    fs.create_directory_all(&directory).unwrap();
    for file in pinned.files() {
        let path = directory.join(file.0.file_name().unwrap());
        let made = fs.open(&path, Access::CreateNew).unwrap();
        made.write_all_at(&read(fs, &file), 0).unwrap();
    }
    LogOptions {
        directory,
        position_file: None,
        ..options()
    }
}

#[test]
fn a_pinned_log_stays_as_it_is_while_the_log_goes_on() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let mut model = Model::default();
    let mut grow = |count: u64| {
        for _ in 0..count {
            model.append(&log, 1, 1_000).unwrap();
            log.flush().unwrap();
        }
        // Nobody has waited for this one.
        model.append(&log, 1, 1_000).unwrap();
        model.clone()
    };
    let mut at_pin = grow(150);
    let mark = Seq(at_pin.last().0 / 2);
    log.purge(mark).unwrap();
    let pinned = log.pin(mark).unwrap();
    let files = pinned.files();
    let before: Vec<_> = files.iter().map(|file| read(&fs, file)).collect();
    assert!(files.len() > 2, "{files:?}");
    assert_eq!(log.durable_seq(), at_pin.last(), "all appended is in it");

    let last = grow(150).last();
    log.purge(last).unwrap();
    assert!(segments(&fs).len() > files.len(), "the next entry began a new segment");
    assert_eq!(files.iter().map(|file| read(&fs, file)).collect::<Vec<_>>(), before);
    let from_copy = Log::open(&env(&fs, 2), copy(&fs, &pinned, "one"), mark).unwrap();
    assert_eq!(
        from_copy.last_seq(),
        at_pin.last(),
        "all that was appended before the pin, and no more"
    );
    at_pin.mark = mark.0;
    at_pin.compare(&from_copy);
    // The copy is a log that goes on.
    at_pin.append(&from_copy, 2, 1_000).unwrap();
    from_copy.flush().unwrap();
    at_pin.compare(&from_copy);

    drop(pinned);
    log.purge(last).unwrap();
    let left = segments(&fs);
    assert!(files.iter().all(|(path, _)| !left.contains(path)), "{left:?}");
    let gone = log.pin(mark).map(drop).unwrap_err();
    assert!(matches!(gone, LogError::Purged { .. }), "{gone}");
    drop(log);
    let log = Log::open(&env(&fs, 3), options(), last).unwrap();
    assert_eq!(log.last_seq(), last);
}

#[test]
fn however_full_the_segment_in_use_is_it_is_sealed() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    for entries in 1..50 {
        let after = log.last_seq();
        for _ in 0..entries {
            log.append(&[&[7; 300]]).unwrap();
        }
        let pinned = log.pin(after).unwrap();
        let [(path, _)] = &pinned.files()[..] else {
            panic!("{:?}", pinned.files())
        };
        assert_eq!(segments(&fs).last(), Some(path));
        log.append(&[b"later"]).unwrap();
        log.flush().unwrap();
        assert_eq!(
            segments(&fs).iter().rev().nth(1),
            Some(path),
            "the later entry has a segment of its own"
        );
        log.purge(after).unwrap();
    }
}

/// Behind a start it was the size of its file.
#[test]
fn a_start_finds_how_much_of_a_sealed_segment_is_written() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    log.append(&[b"first"]).unwrap();
    drop(log.pin(Seq::ZERO).unwrap());
    log.append(&[b"second"]).unwrap();
    log.flush().unwrap();
    assert_eq!(segments(&fs).len(), 2);
    let written = log.written_bytes(Seq(1));
    drop(log);
    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    assert_eq!(log.written_bytes(Seq(1)), written);
    assert!(
        log.written_bytes(Seq(2)) < written,
        "the first segment has nothing of it"
    );
}

#[test]
fn without_entries_after_the_mark_the_last_segment_is_pinned() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    assert!(log.pin(Seq::ZERO).unwrap().files().is_empty());
    let mut model = Model::default();
    model.append(&log, 1, 100).unwrap();
    let pinned = log.pin(Seq(1)).unwrap();
    let path = pinned.files()[0].0.clone();
    assert_eq!((pinned.files().len(), segments(&fs)), (1, vec![path.clone()]));
    // What comes then is kept, too, however much the engine has of it.
    model.append(&log, 1, 100).unwrap();
    log.flush().unwrap();
    log.purge(Seq(2)).unwrap();
    assert_eq!((segments(&fs).len(), segments(&fs)[0].clone()), (2, path));
    drop(pinned);
    log.purge(Seq(2)).unwrap();
    assert_eq!(segments(&fs).len(), 1);
    log.close().unwrap();
    assert!(matches!(log.pin(Seq::ZERO).map(drop), Err(LogError::Closed)));
    let off = LogOptions {
        directory: Path::new(DIRECTORY).join("off"),
        mode: LogMode::Off,
        position_file: None,
        ..options()
    };
    let log = Log::open(&env(&fs, 2), off, Seq::ZERO).unwrap();
    log.append(&[b"x"]).unwrap();
    assert!(log.pin(Seq::ZERO).unwrap().files().is_empty());
}

/// There is no background thread: nobody but the writers themselves wakes one that has met a pin.
#[test]
fn each_pin_beside_writers_has_what_was_acknowledged() {
    const THREADS: u64 = 8;
    const ENTRIES: u64 = 400;
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let acknowledged = AtomicU64::new(0);
    let copies = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    for n in 0..ENTRIES {
                        let seq = log.append(&[&vec![7; (n % 300) as usize]]).unwrap();
                        log.wait_durable(seq).unwrap();
                        acknowledged.fetch_max(seq.0, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let mut copies: u64 = 0;
        while !writers.iter().all(|writer| writer.is_finished()) {
            let before = acknowledged.load(Ordering::SeqCst);
            let mark = Seq(before.saturating_sub(50));
            let pinned = log.pin(mark).unwrap();
            log.purge(mark).unwrap();
            let options = copy(&fs, &pinned, &copies.to_string());
            drop(pinned);
            let copied = Log::open(&env(&fs, 100 + copies), options, mark).unwrap();
            assert!(
                copied.last_seq() >= Seq(before),
                "{before} acknowledged, found {:?}",
                copied.last_seq()
            );
            copies += 1;
        }
        copies
    });
    assert!(copies > 0);
    assert_eq!(log.last_seq(), Seq(THREADS * ENTRIES));
    assert_eq!(log.durable_seq(), log.last_seq());
}
