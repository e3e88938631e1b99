//! Disks that crash, fail, fill up and lie. For engines that do their input and output through `vfs`.
//!
//! The workload writes the same rows as `durability`, so that the state at any mark is known; every test ends by
//! comparing with it.

use crate::driver::{Dice, Driver, expect_kind, for_seeds};
use crate::durability::{expect_fold, write_up_to};
use crate::fixture::{Fixture, tests};
use crate::lifecycle::expect_everything_closed;
use engine::{CloseMode, Engine, ErrorKind, Result, Seq};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Env, Fault, FaultKind, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

tests![
    a_crash_at_every_operation_leaves_a_fold,
    a_crash_during_recovery_leaves_a_fold,
    a_failed_sync_poisons_the_engine,
    a_failed_write_leaves_the_checkpoint_before,
    a_full_disk_is_an_error_that_passes,
    a_failed_read_is_an_error_and_no_damage,
    short_reads_are_read_on,
    a_flipped_bit_of_a_file_is_corrupt,
    lost_and_misdirected_writes_are_noticed,
    a_truncated_file_is_corrupt,
];

const DIRECTORY: &str = "/data";

/// A simulated disk with an empty directory; `None` when the engine does not use it.
fn disk(fixture: &dyn Fixture, seed: u64) -> Option<SimulatedFs> {
    let fs = SimulatedFs::new(seed);
    fs.create_directory_all(Path::new(DIRECTORY)).unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    open(fixture, &fs)?.unwrap().close(CloseMode::Abandon).unwrap();
    Some(fs)
}

fn open(fixture: &dyn Fixture, fs: &SimulatedFs) -> Option<Result<Arc<dyn Engine>>> {
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    fixture.open_on(&env, Path::new(DIRECTORY))
}

fn try_drive(fixture: &dyn Fixture, fs: &SimulatedFs) -> Result<Driver> {
    let engine = open(fixture, fs).expect("the fixture opened on this before")?;
    let last = engine.durable_seq();
    Ok(Driver { engine, last })
}

fn drive(fixture: &dyn Fixture, fs: &SimulatedFs) -> Driver {
    try_drive(fixture, fs).unwrap()
}

/// Writes and checkpoints until the disk crashes or all is done; the newest mark that a checkpoint answered with.
fn workload(fixture: &dyn Fixture, fs: &SimulatedFs) -> Seq {
    let Ok(mut driver) = try_drive(fixture, fs) else {
        return Seq::ZERO;
    };
    let mut acknowledged = driver.last;
    for step in 0..4 {
        let last = driver.last.0 + 5 + step;
        write_up_to(&mut driver, last);
        match driver.engine.checkpoint() {
            Ok(mark) => acknowledged = mark,
            Err(_) => return acknowledged,
        }
    }
    let _ = driver.engine.close(CloseMode::Checkpoint);
    acknowledged
}

/// Operations of a whole workload.
fn operations_of_workload(fixture: &dyn Fixture) -> Option<(u64, u64)> {
    let fs = disk(fixture, 0)?;
    let before = fs.operations();
    assert!(
        workload(fixture, &fs) > Seq::ZERO,
        "an undisturbed workload makes something durable"
    );
    Some((before + 1, fs.operations()))
}

fn a_crash_at_every_operation_leaves_a_fold(fixture: &dyn Fixture) {
    let Some((first, last)) = operations_of_workload(fixture) else {
        return;
    };
    assert!(last > first + 10, "the workload has operations to crash in");
    for_seeds("a_crash_at_every_operation_leaves_a_fold", 3, |seed| {
        for operation in first..=last + 1 {
            let fs = disk(fixture, seed ^ operation).expect("as before");
            fs.crash_at(operation);
            let acknowledged = workload(fixture, &fs);
            fs.restart();
            let mut driver = drive(fixture, &fs);
            assert!(
                driver.last >= acknowledged,
                "{acknowledged:?} was durable, {:?} came back (operation {operation})",
                driver.last
            );
            expect_fold(&driver);
            // And it goes on.
            let last = driver.last.0 + 3;
            write_up_to(&mut driver, last);
            assert_eq!(driver.engine.checkpoint().unwrap(), Seq(last));
            drop(driver);
            fs.restart();
            let driver = drive(fixture, &fs);
            assert_eq!(driver.last, Seq(last));
            expect_fold(&driver);
        }
    });
}

fn a_crash_during_recovery_leaves_a_fold(fixture: &dyn Fixture) {
    let Some((first, last)) = operations_of_workload(fixture) else {
        return;
    };
    for_seeds("a_crash_during_recovery_leaves_a_fold", 2, |seed| {
        for operation in first..=last + 1 {
            let fs = disk(fixture, seed ^ operation).expect("as before");
            fs.crash_at(operation);
            let acknowledged = workload(fixture, &fs);
            for step in 1..4 {
                fs.restart();
                fs.crash_at(fs.operations() + step);
                drop(open(fixture, &fs));
            }
            fs.restart();
            let driver = drive(fixture, &fs);
            assert!(driver.last >= acknowledged);
            expect_fold(&driver);
        }
    });
}

fn a_failed_sync_poisons_the_engine(fixture: &dyn Fixture) {
    for skipped in 0..4 {
        let Some(fs) = disk(fixture, skipped) else { return };
        let mut driver = drive(fixture, &fs);
        write_up_to(&mut driver, 10);
        driver.engine.checkpoint().unwrap();
        write_up_to(&mut driver, 20);
        let (struck, failures) = (fs.faults_struck(), driver.failures());
        fs.inject(Fault::new(FaultKind::SyncError).after(skipped));
        let result = driver.engine.checkpoint();
        if fs.faults_struck() == struck {
            assert!(skipped > 0, "a checkpoint syncs nothing");
            break;
        }
        expect_kind(result, ErrorKind::Io);
        expect_everything_closed(&driver);
        assert_eq!(
            failures.lock().unwrap().len(),
            1,
            "who owns the engine hears of it, once"
        );
        drop(driver);
        fs.restart();
        let driver = drive(fixture, &fs);
        assert!(driver.last >= Seq(10));
        expect_fold(&driver);
    }
}

fn a_failed_write_leaves_the_checkpoint_before(fixture: &dyn Fixture) {
    for kind in [FaultKind::WriteError, FaultKind::MetadataError] {
        for skipped in 0..12 {
            let Some(fs) = disk(fixture, skipped) else { return };
            let mut driver = drive(fixture, &fs);
            write_up_to(&mut driver, 10);
            driver.engine.checkpoint().unwrap();
            write_up_to(&mut driver, 20);
            fs.inject(Fault::new(kind).after(skipped));
            let failed = driver.engine.checkpoint().is_err();
            fs.clear_faults();
            assert!(
                failed || fs.faults_struck() == 0 || driver.engine.durable_seq() == Seq(20),
                "an error was swallowed"
            );
            drop(driver);
            fs.restart();
            let driver = drive(fixture, &fs);
            assert!(driver.last >= if failed { Seq(10) } else { Seq(20) });
            expect_fold(&driver);
        }
    }
}

fn a_full_disk_is_an_error_that_passes(fixture: &dyn Fixture) {
    for free in [0, 1, 100, 512, 1000, 2000, 4000] {
        let Some(fs) = disk(fixture, free) else { return };
        let mut driver = drive(fixture, &fs);
        write_up_to(&mut driver, 10);
        driver.engine.checkpoint().unwrap();
        write_up_to(&mut driver, 40);
        fs.set_free_bytes(Some(free));
        match driver.engine.checkpoint() {
            Ok(mark) => assert_eq!(mark, Seq(40)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                assert_eq!(driver.engine.durable_seq(), Seq(10));
            }
        }
        fs.set_free_bytes(None);
        // The engine may go on, or must be opened again: either way nothing is lost but what was never durable.
        if driver.engine.checkpoint().is_err() {
            driver = drive(fixture, &fs);
            write_up_to(&mut driver, 40);
            driver.engine.checkpoint().unwrap();
        }
        drop(driver);
        fs.restart();
        let driver = drive(fixture, &fs);
        assert_eq!(driver.last, Seq(40));
        expect_fold(&driver);
    }
}

/// A disk with one clean checkpoint of 30 positions.
fn disk_with_checkpoint(fixture: &dyn Fixture, seed: u64) -> Option<SimulatedFs> {
    let fs = disk(fixture, seed)?;
    let mut driver = drive(fixture, &fs);
    write_up_to(&mut driver, 30);
    driver.engine.close(CloseMode::Checkpoint).unwrap();
    Some(fs)
}

fn files(fs: &SimulatedFs) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    collect_files(fs, Path::new(DIRECTORY), &mut found);
    found
}

/// Files with content, those of directories below included.
fn collect_files(fs: &SimulatedFs, directory: &Path, found: &mut Vec<(PathBuf, u64)>) {
    for name in fs.list(directory).unwrap() {
        let path = directory.join(name);
        match fs.open(&path, vfs::Access::Read) {
            Ok(file) => found.extend(Some((path, file.len().unwrap())).filter(|file| file.1 > 0)),
            Err(_) => collect_files(fs, &path, found),
        }
    }
}

fn a_failed_read_is_an_error_and_no_damage(fixture: &dyn Fixture) {
    for skipped in 0..5 {
        let Some(fs) = disk_with_checkpoint(fixture, skipped) else {
            return;
        };
        fs.inject(Fault::new(FaultKind::ReadError).after(skipped));
        match try_drive(fixture, &fs) {
            Ok(driver) => match read_everything(&driver) {
                Ok(()) => expect_fold(&driver),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
            },
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
        fs.clear_faults();
        let driver = drive(fixture, &fs);
        assert_eq!(driver.last, Seq(30));
        expect_fold(&driver);
    }
}

fn short_reads_are_read_on(fixture: &dyn Fixture) {
    let Some(fs) = disk_with_checkpoint(fixture, 1) else {
        return;
    };
    fs.inject(Fault::new(FaultKind::ShortRead).times(1000));
    let driver = drive(fixture, &fs);
    assert_eq!(driver.last, Seq(30));
    expect_fold(&driver);
    assert!(fs.faults_struck() > 0);
}

/// Reads every row of every table.
fn read_everything(driver: &Driver) -> Result<()> {
    let snapshot = driver.engine.snapshot()?;
    let mut rows = engine::Rows::new();
    for (table, _) in driver.engine.tables()? {
        let mut cursor = snapshot
            .clone()
            .cursor(table, engine::KeyRange::all(), engine::Direction::Forward)?;
        while cursor.fill(&mut rows, engine::FillLimits::default())? {}
    }
    Ok(())
}

/// Opens a damaged disk: `Corrupt`, or the damage lies where nothing is kept.
fn expect_corrupt_or_whole(fixture: &dyn Fixture, fs: &SimulatedFs, what: &str) -> bool {
    match try_drive(fixture, fs) {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
            true
        }
        // An engine may look at its pages when they are asked for, and not before.
        Ok(driver) => match read_everything(&driver) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
                true
            }
            Ok(()) => {
                assert_eq!(driver.last, Seq(30), "{what}");
                expect_fold(&driver);
                false
            }
        },
    }
}

/// A bit of each byte with `TENON_EXTENT=all`, else of every so-many-th.
fn a_flipped_bit_of_a_file_is_corrupt(fixture: &dyn Fixture) {
    const USUAL_STEP: u64 = 13;
    let is_all = std::env::var("TENON_EXTENT").is_ok_and(|extent| extent == "all");
    let step = if is_all { 1 } else { USUAL_STEP };
    for_seeds("a_flipped_bit_of_a_file_is_corrupt", 1, |seed| {
        let Some(fs) = disk_with_checkpoint(fixture, 1) else {
            return;
        };
        let (dice, mut found) = (Dice::new(seed), 0);
        for (path, bytes) in files(&fs) {
            for offset in (dice.below(step)..bytes).step_by(step as usize) {
                let bit = (offset % 8) as u8;
                // Opening may repair the damage where there is a second copy: each bit has a disk of its own.
                let damaged = fs.after_crash(1);
                damaged.flip_bit(&path, offset, bit).unwrap();
                let what = format!("bit {bit} of {offset} in {path:?}");
                found += u64::from(expect_corrupt_or_whole(fixture, &damaged, &what));
            }
        }
        assert!(found > 0, "no file holds anything");
        expect_fold(&drive(fixture, &fs));
    });
}

fn lost_and_misdirected_writes_are_noticed(fixture: &dyn Fixture) {
    for kind in [
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite { by: 16 },
        FaultKind::MisdirectedWrite { by: 4096 },
    ] {
        let mut noticed = 0;
        for skipped in 0..12 {
            let Some(fs) = disk(fixture, skipped) else { return };
            let mut driver = drive(fixture, &fs);
            write_up_to(&mut driver, 30);
            fs.inject(Fault::new(kind).after(skipped));
            driver.engine.close(CloseMode::Checkpoint).unwrap();
            drop(driver);
            fs.restart();
            noticed += u64::from(expect_corrupt_or_whole(fixture, &fs, &format!("{kind:?} {skipped}")));
        }
        assert!(noticed > 0, "{kind:?} hit nothing");
    }
}

fn a_truncated_file_is_corrupt(fixture: &dyn Fixture) {
    for_seeds("a_truncated_file_is_corrupt", 1, |seed| {
        let dice = Dice::new(seed);
        for _ in 0..30 {
            let Some(fs) = disk_with_checkpoint(fixture, seed) else {
                return;
            };
            let files = files(&fs);
            let (path, bytes) = &files[dice.below(files.len() as u64) as usize];
            let left = dice.below(*bytes);
            fs.open(path, vfs::Access::ReadWrite).unwrap().set_len(left).unwrap();
            expect_corrupt_or_whole(fixture, &fs, &format!("{path:?} cut to {left} bytes"));
        }
    });
}
