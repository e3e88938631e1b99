//! A log directory that is not what it was: an older copy, another log, nothing at all. The engine's mark alone does
//! not tell.

use crate::support::{DIRECTORY, Model, POSITION_FILE, env, options, segments};
use engine::Seq;
use oplog::{EngineAhead, Log, LogError, LogMode, LogOptions, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;
use vfs::{Access, FileSystem, SimulatedFs, Watch, WatchedFs};

/// The bytes of all files of the log.
fn copy(fs: &SimulatedFs) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |name: PathBuf| {
        let path = Path::new(DIRECTORY).join(name);
        let file = fs.open(&path, Access::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (path, bytes)
    };
    fs.list(Path::new(DIRECTORY)).unwrap().into_iter().map(read).collect()
}

/// Puts such files in the place of what is there.
fn replace(fs: &SimulatedFs, files: &[(PathBuf, Vec<u8>)]) {
    for name in fs.list(Path::new(DIRECTORY)).unwrap() {
        fs.remove_file(&Path::new(DIRECTORY).join(name)).unwrap();
    }
    for (path, bytes) in files {
        let file = fs.open(path, Access::CreateNew).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.sync_data().unwrap();
    }
    fs.sync_directory(Path::new(DIRECTORY)).unwrap();
}

fn append(log: &Log, model: &mut Model, entries: usize) {
    for _ in 0..entries {
        model.append(log, 1, 300).unwrap();
    }
    assert_eq!(log.flush().unwrap(), model.last());
}

fn open(fs: &SimulatedFs, durable: Seq, change: impl FnOnce(&mut LogOptions)) -> Result<Log> {
    let mut options = options();
    change(&mut options);
    Log::open(&env(fs, 2), options, durable)
}

fn expect_older(opened: Result<Log>, wanted: (u64, u64)) {
    match opened.err().unwrap() {
        LogError::Older { reached, last, .. } => assert_eq!((reached.0, last.0), wanted),
        other => panic!("{other:?}"),
    }
}

/// The engine stands at 5, the copy at 10, and a checkpoint was taken when the log stood at 160: the others would be
/// gone.
#[test]
fn an_older_copy_that_reaches_the_mark_is_refused() {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let log = open(&fs, Seq::ZERO, |_| {}).unwrap();
    append(&log, &mut model, 10);
    let older = copy(&fs);
    append(&log, &mut model, 150);
    log.purge(Seq(5)).unwrap();
    let newest = copy(&fs);
    assert!(newest.len() > older.len());
    drop(log);
    fs.restart();
    replace(&fs, &older);
    for _ in 0..2 {
        expect_older(open(&fs, Seq(5), |_| {}), (160, 10));
        assert_eq!(copy(&fs), older, "nothing is changed");
    }
    // Without its file nobody notices.
    assert!(open(&fs, Seq(5), |options| options.position_file = None).is_ok());
    replace(&fs, &newest);
    model.mark = 5;
    model.compare(&open(&fs, Seq(5), |_| {}).unwrap());
}

/// From its first acknowledged entry on, without a checkpoint or an orderly end in between.
#[test]
fn the_last_segment_is_missed() {
    let (mut made, mut model) = (0, Model::default());
    let fs = SimulatedFs::new(1);
    let log = open(&fs, Seq::ZERO, |_| {}).unwrap();
    while made < 4 {
        let before = segments(&fs).len();
        append(&log, &mut model, 1);
        let paths = segments(&fs);
        if paths.len() == before {
            continue;
        }
        made += 1;
        let (fs, number) = (fs.after_crash(made), paths.len() as u64);
        fs.remove_file(&paths[before]).unwrap();
        let left = Seq(model.last().0 - 1);
        // Of the second the engine has everything but what was in it.
        for durable in [Seq::ZERO, left] {
            let error = open(&fs, durable, |_| {}).err().unwrap();
            assert!(
                matches!(error, LogError::MissingSegment { number: missing, .. } if missing == number),
                "{error}"
            );
            assert!(error.can_be_cut());
        }
        // What is given up, or in the engine, is not missed.
        let for_repair = |options: &mut LogOptions| {
            (options.mode, options.ends_at_damage) = (LogMode::Off, true);
        };
        let log = open(&fs, Seq::ZERO, for_repair).unwrap();
        assert_eq!(log.last_seq(), left);
        let begin_behind = |options: &mut LogOptions| options.engine_ahead = EngineAhead::BeginBehind;
        let log = open(&fs, model.last(), begin_behind).unwrap();
        assert_eq!(log.last_seq(), model.last());
    }
}

/// An engine that has everything the log ever had misses nothing; what comes then is looked after again.
#[test]
fn what_the_engine_has_may_be_missing() {
    let fs = SimulatedFs::new(1);
    let mut model = Model::default();
    let log = open(&fs, Seq::ZERO, |_| {}).unwrap();
    append(&log, &mut model, 10);
    log.close().unwrap();
    drop(log);
    let before = copy(&fs);
    replace(&fs, &[]);
    expect_older(open(&fs, Seq::ZERO, |_| {}), (10, 0));
    let begin_behind = |options: &mut LogOptions| options.engine_ahead = EngineAhead::BeginBehind;
    let log = open(&fs, Seq(10), begin_behind).unwrap();
    assert_eq!(log.last_seq(), Seq(10));
    append(&log, &mut model, 5);
    log.purge(Seq(12)).unwrap();
    drop(log);
    fs.restart();
    replace(&fs, &before);
    expect_older(open(&fs, Seq(10), |_| {}), (15, 10));
}

/// A log of another server has entries behind the mark, too, and they are none of this engine's.
#[test]
fn another_log_is_refused() {
    let (fs, other) = (SimulatedFs::new(1), SimulatedFs::new(2));
    for (seed, fs, entries) in [(2, &fs, 10), (3, &other, 40)] {
        let log = Log::open(&env(fs, seed), options(), Seq::ZERO).unwrap();
        append(&log, &mut Model::default(), entries);
        log.close().unwrap();
    }
    replace(&fs, &copy(&other));
    expect_older(open(&fs, Seq(10), |_| {}), (10, 40));
    let begin_behind = |options: &mut LogOptions| options.engine_ahead = EngineAhead::BeginBehind;
    expect_older(open(&fs, Seq(10), begin_behind), (10, 40));
}

/// A position that was not written whole says nothing, whatever it is, and is written anew.
#[test]
fn a_damaged_position_is_none() {
    let fs = SimulatedFs::new(1);
    let log = open(&fs, Seq::ZERO, |_| {}).unwrap();
    append(&log, &mut Model::default(), 10);
    log.close().unwrap();
    drop(log);
    let log_files = copy(&fs);
    let file = fs.open(Path::new(POSITION_FILE), Access::ReadWrite).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    for at in 0..bytes.len() {
        replace(&fs, &[]);
        file.write_all_at(&bytes, 0).unwrap();
        expect_older(open(&fs, Seq::ZERO, |_| {}), (10, 0));
        file.write_all_at(&[bytes[at] ^ 4], at as u64).unwrap();
        assert!(open(&fs, Seq::ZERO, |_| {}).is_ok(), "byte {at}");
        replace(&fs, &log_files);
        assert_eq!(open(&fs, Seq::ZERO, |_| {}).unwrap().last_seq(), Seq(10));
        let mut anew = vec![0; bytes.len()];
        file.read_exact_at(&mut anew, 0).unwrap();
        assert_eq!(anew, bytes, "byte {at}");
    }
}

/// Calls it before the change of files that is counted down to.
struct CallAtChange {
    left: AtomicI64,
    call: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Watch for CallAtChange {
    type Held<'w> = ();

    fn change(&self) {
        if let Some(call) = self.call.get()
            && self.left.fetch_sub(1, Ordering::SeqCst) == 0
        {
            call();
        }
    }

    fn sync(&self) {}
}

/// The file named the segment that a truncation makes the last one to hold what is durable, and a purge under way that
/// went by what the file had said before took that away: the log was refused after a crash.
#[test]
fn a_truncation_beside_a_purge_leaves_the_segment_that_is_named() {
    for change in 0..16 {
        let fs = SimulatedFs::new(1);
        let watch = CallAtChange {
            left: AtomicI64::new(change),
            call: OnceLock::new(),
        };
        let (watched, machine) = (Arc::new(WatchedFs::new(env(&fs, 1).fs, watch)), env(&fs, 1));
        let machine = vfs::Env {
            fs: watched.clone(),
            ..machine
        };
        let log = Arc::new(Log::open(&machine, options(), Seq::ZERO).unwrap());
        let mut model = Model::default();
        for _ in 0..3 {
            append(&log, &mut model, 20);
            drop(log.pin(model.last()).unwrap());
        }
        let mark = Seq(40);
        // It may have to wait for the purge.
        let truncating = Arc::new(Mutex::new(None));
        let (its_log, thread) = (log.clone(), truncating.clone());
        let call = move || {
            let (log, (done, is_done)) = (its_log.clone(), mpsc::channel());
            *thread.lock().unwrap() = Some(std::thread::spawn(move || {
                log.truncate(mark.next()).unwrap();
                let _ = done.send(());
            }));
            let _ = is_done.recv_timeout(Duration::from_millis(50));
        };
        assert!(watched.watch().call.set(Box::new(call)).is_ok());
        log.purge(mark).unwrap();
        watched.watch().left.store(-1, Ordering::SeqCst);
        let under_way = truncating.lock().unwrap().take();
        match under_way {
            Some(thread) => thread.join().unwrap(),
            None => log.truncate(mark.next()).unwrap(),
        }
        model.entries.truncate(mark.0 as usize);
        append(&log, &mut model, 5);
        fs.crash();
        fs.restart();
        (model.mark, model.acknowledged) = (mark.0, model.last().0);
        model.compare(&open(&fs, mark, |_| {}).unwrap_or_else(|error| panic!("at change {change}: {error}")));
    }
}
