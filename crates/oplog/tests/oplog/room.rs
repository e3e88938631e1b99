//! A disk that is nearly full: what is taken finds its place, a checkpoint has room, and history makes way.

use crate::support::{DIRECTORY, Model, entry, env, options, segments};
use engine::{ErrorKind, Seq};
use oplog::{AppendPurpose, HardState, Log, LogError, LogOptions, Retention};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::{Access, DirectoryLock, Env, Fault, FaultKind, File, FileSystem, Random, SeededRandom, SimulatedFs, Space};

fn uncompressed() -> LogOptions {
    LogOptions {
        codec: codec::Codec::None,
        ..options()
    }
}

fn append_for_checkpoint(log: &Log, entry: &[u8]) -> oplog::Result<Seq> {
    log.append_all(None, &[&[entry]], AppendPurpose::Checkpoint)
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
            assert_eq!(log.stats().shortages, 1);
            let made = segments(&fs).len() as u64;
            assert!(
                told.load(Ordering::SeqCst) >= made.max(1),
                "early, and when it came to it"
            );
            assert!(model.last().0 > 5, "{:?}", model.last());
            assert_eq!(log.flush().unwrap(), model.last(), "all of it is on disk");
            // As a checkpoint does.
            let counts = [7; 700];
            assert_eq!(append_for_checkpoint(&log, &counts).unwrap(), model.last().next());
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
    // It has a file of its own, which is made when it is written.
    log.append(&[&[0; 20_000]]).unwrap();
    fs.set_free_bytes(Some(0));
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
    for _ in 0..3 {
        model.append(&log, 1, 900).unwrap();
    }
    // Not even the file that there is for them can be opened.
    fs.inject(Fault::new(FaultKind::NoDescriptors).times(u64::MAX));
    let error = log.close().unwrap_err();
    assert!(matches!(error, LogError::GivenUp { entries: 3, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
}

/// One file was taken for enough for any number of entries: many had found room at once, and what the file did not take
/// stayed in memory and was lost at the end.
#[test]
fn writers_at_once_are_taken_as_far_as_there_are_files() {
    for segments_free in 1..4 {
        let fs = SimulatedFs::new(segments_free);
        let options = LogOptions {
            frame_bytes: 1_000,
            position_file: None,
            ..uncompressed()
        };
        let log = Log::open(&env(&fs, 1), options.clone(), Seq::ZERO).unwrap();
        log.append(&[b"first"]).unwrap();
        log.flush().unwrap();
        fs.set_free_bytes(Some(segments_free * options.segment_bytes));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let taken = (0..50).take_while(|_| log.append(&[&[7; 1_700]]).is_ok()).count();
                    assert!(taken < 50, "there is not so much room");
                });
            }
        });
        assert!(log.last_seq() > Seq(5), "{:?}", log.last_seq());
        assert_eq!(log.flush().unwrap(), log.last_seq(), "all of it is on disk");
        // As a checkpoint does.
        append_for_checkpoint(&log, &[7; 700]).unwrap();
        assert_eq!(log.flush().unwrap(), log.last_seq());
        log.close().unwrap();
    }
}

/// Entries of any length, states, flushes, pins and tails that are taken back: on a full disk, too, all that was taken
/// finds its place, and a checkpoint can write.
#[test]
fn whatever_came_before_what_is_taken_finds_its_place() {
    let mut refused = 0;
    for seed in 0..60 {
        let (fs, random) = (SimulatedFs::new(seed), SeededRandom::new(seed));
        let options = LogOptions {
            codec: [codec::Codec::None, codec::Codec::Snappy][seed as usize % 2],
            frame_bytes: [1, 700, 100_000][seed as usize % 3],
            position_file: None,
            ..options()
        };
        let log = Log::open(&env(&fs, seed), options.clone(), Seq::ZERO).unwrap();
        fs.set_free_bytes(Some(
            (3 + random.next_u64() % 4) * options.segment_bytes + random.next_u64() % 8_000,
        ));
        log.append(&[b"first"]).unwrap();
        let mut term = 0;
        for step in 0..200 {
            match random.next_u64() % 20 {
                0 => {
                    term += 1;
                    let state = HardState {
                        term,
                        ..HardState::default()
                    };
                    log.write_state(state)
                        .unwrap_or_else(|error| panic!("{seed} {step}: {error}"));
                }
                1..3 => drop(log.flush().unwrap_or_else(|error| panic!("{seed} {step}: {error}"))),
                3 if step < 100 => drop(log.pin(Seq::ZERO)),
                4 => drop(log.truncate(Seq(log.last_seq().0.saturating_sub(3).max(2)))),
                of => {
                    let bytes = entry(Seq(step), seed, if of < 12 { 300 } else { 11_000 });
                    refused += u64::from(log.append(&[&bytes]).is_err());
                }
            }
        }
        assert_eq!(log.flush().unwrap(), log.last_seq(), "seed {seed}");
        append_for_checkpoint(&log, &[7; 700]).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        log.close().unwrap();
    }
    assert!(refused > 100, "{refused}");
}

/// Of entries that belong together the last ones were refused when the first ones had been taken, which stayed in the
/// log as the beginning of what never came.
#[test]
fn entries_that_belong_together_are_taken_as_a_whole() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..60 {
        let (fs, random) = (SimulatedFs::new(seed), SeededRandom::new(seed));
        let options = LogOptions {
            codec: [codec::Codec::None, codec::Codec::Snappy][seed as usize % 2],
            frame_bytes: [1, 700, 100_000][seed as usize % 3],
            ..options()
        };
        let log = Log::open(&env(&fs, seed), options.clone(), Seq::ZERO).unwrap();
        log.append(&[b"first"]).unwrap();
        fs.set_free_bytes(Some((1 + random.next_u64() % 4) * options.segment_bytes));
        for step in 0..40 {
            let before = log.last_seq();
            let texts: Vec<_> = (0..1 + random.next_u64() % 12)
                .map(|n| entry(Seq(100 * step + n), seed, if n % 3 == 0 { 2_500 } else { 50 }))
                .collect();
            let pieces: Vec<_> = texts.iter().map(|text| [text.as_slice()]).collect();
            let entries: Vec<_> = pieces.iter().map(|pieces| pieces.as_slice()).collect();
            match log.append_all(None, &entries, AppendPurpose::Write) {
                Ok(last) => {
                    taken += 1;
                    assert_eq!(last, Seq(before.0 + entries.len() as u64));
                    assert_eq!(log.last_seq(), last);
                    let read = log.read_appended(before.next()).unwrap();
                    let read: Vec<_> = read.map(|entry| entry.unwrap().1.to_vec()).collect();
                    assert_eq!(read, texts, "seed {seed}");
                }
                Err(error) => {
                    refused += u64::from(entries.len() > 1);
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                    assert_eq!(log.last_seq(), before, "seed {seed}");
                }
            }
            if random.next_u64() % 4 == 0 {
                log.flush().unwrap_or_else(|error| panic!("{seed} {step}: {error}"));
            }
        }
        assert_eq!(
            log.flush().unwrap(),
            log.last_seq(),
            "seed {seed}: all of it is on disk"
        );
        log.close().unwrap();
    }
    assert!(refused > 100 && taken > 100, "{refused} {taken}");
}

/// A disk that was full told nobody when a tail was to be taken back, and history stayed in the way.
#[test]
fn a_tail_that_cannot_be_taken_back_makes_history_go() {
    let fs = SimulatedFs::new(1);
    let options = LogOptions {
        retention: Retention {
            bytes: 1 << 30,
            ..Retention::default()
        },
        ..uncompressed()
    };
    let log = Log::open(&env(&fs, 1), options, Seq::ZERO).unwrap();
    let mut model = Model::default();
    while segments(&fs).len() < 4 {
        model.append(&log, 1, 900).unwrap();
        log.flush().unwrap();
    }
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    log.set_shortage_handler(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    fs.set_free_bytes(Some(0));
    assert!(!log.is_short());
    let from = model.last();
    assert_eq!(log.truncate(from).unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert!(log.is_short());
    assert_eq!(told.load(Ordering::SeqCst), 1, "told once");
    log.purge(Seq(from.0 - 1)).unwrap();
    assert!(!log.is_short());
    log.truncate(from).unwrap();
    assert_eq!(log.last_seq(), Seq(from.0 - 1));
    let stats = log.stats();
    assert!(stats.shortages == 1 && stats.history_given_up_bytes > 0, "{stats:?}");
}

/// Beside writers a pin ended the last segment that there was.
#[test]
fn a_pin_beside_writers_leaves_room_for_a_checkpoint() {
    for seed in 0..30 {
        let fs = SimulatedFs::new(seed);
        let options = LogOptions {
            position_file: None,
            ..uncompressed()
        };
        let log = Log::open(&env(&fs, 1), options.clone(), Seq::ZERO).unwrap();
        log.append(&[b"first"]).unwrap();
        fs.set_free_bytes(Some((2 + seed % 6) * options.segment_bytes));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| while log.append(&[&[7; 900]]).and_then(|seq| log.wait_durable(seq)).is_ok() {});
            }
            scope.spawn(|| while log.pin(Seq::ZERO).is_ok() {});
        });
        log.flush().unwrap();
        append_for_checkpoint(&log, &[7; 700]).unwrap();
        log.flush().unwrap();
        log.close().unwrap();
    }
}

/// Of the files for several segments those that there was room for stayed when that was refused, and each attempt was
/// counted as if there were no room for the next segment.
#[test]
fn who_wants_several_segments_and_is_refused_leaves_nothing_behind() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), uncompressed(), Seq::ZERO).unwrap();
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    log.set_shortage_handler(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    log.append(&[b"first"]).unwrap();
    log.flush().unwrap();
    let bytes = uncompressed().segment_bytes;
    let (entry, several) = ([7; 11_000], 5 * bytes as usize);
    let parts: &[&[u8]] = &[&entry];
    let available = || fs.space(Path::new(DIRECTORY)).unwrap().available_bytes;
    let names = || fs.list(Path::new(DIRECTORY)).unwrap();
    for has_file_for_next in [false, true] {
        fs.set_free_bytes(None);
        if has_file_for_next {
            log.prepare_segment().unwrap();
        }
        fs.set_free_bytes(Some(2 * bytes + 100));
        let before = names();
        for _ in 0..3 {
            let refused = [
                log.wait_for_room_for(several, 100).unwrap_err(),
                log.append_all(None, &[parts; 5], AppendPurpose::Write).unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
            }
            assert_eq!(names(), before);
            assert_eq!(available(), 2 * bytes + 100);
            assert!(!log.is_short(), "there is room for the next segment");
        }
        assert_eq!(log.stats().shortages, 0);
        assert_eq!(told.load(Ordering::SeqCst), 0);
        log.wait_for_room().unwrap();
        log.append(&[&[7; 900]]).unwrap();
    }
    // Without room for the next one it is short, and once.
    fs.set_free_bytes(Some(0));
    while log.append(&[&[7; 900]]).is_ok() {
        log.flush().unwrap();
    }
    for _ in 0..3 {
        assert!(log.wait_for_room().is_err() && log.is_short());
    }
    assert_eq!((log.stats().shortages, told.load(Ordering::SeqCst)), (1, 1));
}

/// A log of `count` segments that it keeps as history and a file for the next one; what it has, and a segment's bytes.
fn with_history(machine: &Env, fs: &SimulatedFs, count: usize) -> (Log, Model, usize) {
    let options = LogOptions {
        retention: Retention {
            bytes: 1 << 30,
            ..Retention::default()
        },
        ..uncompressed()
    };
    let bytes = options.segment_bytes as usize;
    let log = Log::open(machine, options, Seq::ZERO).unwrap();
    let mut model = Model::default();
    while segments(fs).len() < count {
        model.append(&log, 1, 900).unwrap();
        log.flush().unwrap();
    }
    log.prepare_segment().unwrap();
    (log, model, bytes)
}

/// Entries that need several segments at once were refused while history was kept that could make way for them, as
/// there was a file for the next segment.
#[test]
fn history_makes_way_for_what_needs_several_segments() {
    let fs = SimulatedFs::new(1);
    let (log, model, bytes) = with_history(&env(&fs, 1), &fs, 12);
    let told = Arc::new(AtomicU64::new(0));
    let count = told.clone();
    log.set_shortage_handler(Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    fs.set_free_bytes(Some(0));
    let error = log.wait_for_room_for(3 * bytes, 30).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert!(!log.is_short());
    log.purge(model.last()).unwrap();
    log.purge_for(model.last(), 30 * bytes, 300).unwrap();
    assert_eq!(segments(&fs).len(), 12, "nothing goes in vain");
    log.purge_for(model.last(), 3 * bytes, 30).unwrap();
    log.wait_for_room_for(3 * bytes, 30).unwrap();
    let left = segments(&fs).len();
    assert!((4..10).contains(&left), "{left}: no more than is needed");
    let stats = log.stats();
    assert_eq!(stats.history_given_up_bytes, ((12 - left) * bytes) as u64, "{stats:?}");
    assert_eq!(stats.shortages, 0, "{stats:?}");
    assert!(told.load(Ordering::SeqCst) > 0, "of what went");
    let entry = vec![7; bytes / 10];
    for _ in 0..30 {
        log.append(&[&entry]).unwrap();
    }
    assert_eq!(log.flush().unwrap(), log.last_seq(), "all of it is on disk");
}

/// As a file system whose space a quota lets nobody have: it says that there is much, and refuses.
struct Quota(Arc<dyn FileSystem>);

impl FileSystem for Quota {
    fn open(&self, path: &Path, access: Access) -> std::io::Result<Arc<dyn File>> {
        self.0.open(path, access)
    }

    fn remove_file(&self, path: &Path) -> std::io::Result<()> {
        self.0.remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> std::io::Result<()> {
        self.0.remove_directory_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.0.rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> std::io::Result<()> {
        self.0.create_directory_all(path)
    }

    fn list(&self, directory: &Path) -> std::io::Result<Vec<PathBuf>> {
        self.0.list(directory)
    }

    fn exists(&self, path: &Path) -> std::io::Result<bool> {
        self.0.exists(path)
    }

    fn sync_directory(&self, directory: &Path) -> std::io::Result<()> {
        self.0.sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> std::io::Result<Box<dyn DirectoryLock>> {
        self.0.lock(path)
    }

    fn space(&self, _path: &Path) -> std::io::Result<Space> {
        Ok(Space {
            total_bytes: 1 << 40,
            available_bytes: 1 << 39,
        })
    }

    fn check_descriptors(&self) -> std::io::Result<()> {
        self.0.check_descriptors()
    }

    fn keys(&self) -> Option<&Arc<crypt::Keys>> {
        self.0.keys()
    }
}

/// Where a quota refuses what the file system says it has space for, history went in vain for what all of it could not
/// make room for, and each attempt of whoever wants several segments counted as a shortage.
#[test]
fn a_quota_takes_no_history_in_vain() {
    let fs = SimulatedFs::new(1);
    let machine = env(&fs, 1);
    let machine = Env {
        fs: Arc::new(Quota(machine.fs.clone())),
        ..machine
    };
    let (log, model, bytes) = with_history(&machine, &fs, 12);
    fs.set_free_bytes(Some(0));
    for _ in 0..2 {
        let error = log.wait_for_room_for(30 * bytes, 300).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        log.purge_for(model.last(), 30 * bytes, 300).unwrap();
        assert_eq!(segments(&fs).len(), 12, "nothing goes in vain");
    }
    log.purge_for(model.last(), 3 * bytes, 30).unwrap();
    log.wait_for_room_for(3 * bytes, 30).unwrap();
    let left = segments(&fs).len();
    assert!((4..10).contains(&left), "{left}: no more than is needed");
    assert_eq!(log.stats().shortages, 0);
    // Without room for the next one it is short, and once.
    fs.set_free_bytes(Some(0));
    while log.append(&[&[7; 900]]).is_ok() {
        log.flush().unwrap();
    }
    let entry = [7; 11_000];
    let parts: &[&[u8]] = &[&entry];
    for _ in 0..3 {
        assert!(log.append_all(None, &[parts; 5], AppendPurpose::Write).is_err() && log.is_short());
        assert!(log.wait_for_room().is_err() && log.is_short());
    }
    assert_eq!(log.stats().shortages, 1);
}

/// A reader keeps the bytes of a file that has gone: what is read of history makes no room, and went for nothing.
#[test]
fn history_that_is_read_does_not_go_in_vain() {
    let fs = SimulatedFs::new(1);
    let (log, model, bytes) = with_history(&env(&fs, 1), &fs, 8);
    fs.set_free_bytes(Some(0));
    let mut readers = Vec::new();
    for seq in 1..=model.last().0 {
        let mut reader = log.read(Seq(seq)).unwrap();
        reader.next().unwrap().unwrap();
        readers.push(reader);
    }
    log.purge_for(model.last(), 3 * bytes, 30).unwrap();
    assert_eq!(segments(&fs).len(), 8, "nothing goes in vain");
    drop(readers);
    log.purge_for(model.last(), 3 * bytes, 30).unwrap();
    assert!(segments(&fs).len() < 8);
    log.wait_for_room_for(3 * bytes, 30).unwrap();
}

/// What is kept of history was given up for a descriptor that was not there.
#[test]
fn no_history_goes_for_want_of_descriptors() {
    let fs = SimulatedFs::new(1);
    let options = LogOptions {
        retention: Retention {
            bytes: 1 << 30,
            ..Retention::default()
        },
        position_file: None,
        ..uncompressed()
    };
    let log = Log::open(&env(&fs, 1), options, Seq::ZERO).unwrap();
    let mut model = Model::default();
    while segments(&fs).len() < 5 {
        model.append(&log, 1, 900).unwrap();
        log.flush().unwrap();
    }
    fs.inject(Fault::new(FaultKind::NoDescriptors).times(u64::MAX));
    let error = fill(&log, &mut model);
    assert!(matches!(error, LogError::NoDescriptors { .. }), "{error}");
    let before = segments(&fs).len();
    log.purge(log.durable_seq()).unwrap();
    log.purge_for(log.durable_seq(), 20_000, 20).unwrap();
    assert_eq!(segments(&fs).len(), before);
    let stats = log.stats();
    assert_eq!((stats.shortages, stats.history_given_up_bytes), (0, 0), "{stats:?}");
    fs.clear_faults();
    log.wait_for_room().unwrap();
    assert_eq!(log.flush().unwrap(), model.last(), "what was taken is on disk");
}
