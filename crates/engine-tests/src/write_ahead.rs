//! The log before the data: nothing is durable in the engine that is not durable in the log.

use crate::driver::{Driver, OTHER, TABLE, expect_kind, key};
use crate::durability::{expect_fold, write_up_to};
use crate::fixture::{Fixture, Site, tests};
use engine::{CloseMode, Engine, EngineError, ErrorKind, Maintenance, Seq};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

tests![
    the_log_is_durable_before_a_checkpoint_is,
    nothing_else_makes_the_engine_pass_the_log,
    the_mark_stays_behind_the_log_beside_a_writer,
    a_log_that_cannot_be_flushed_stops_the_checkpoint,
];

/// A log that is durable as far as the engine asked it to be.
#[derive(Default)]
struct TestLog {
    durable: AtomicU64,
    full: AtomicBool,
}

impl TestLog {
    fn of(engine: &Arc<dyn Engine>) -> Arc<TestLog> {
        let log = Arc::new(TestLog::default());
        // What the engine holds already came from a log that was durable so far.
        log.durable.store(engine.durable_seq().0, Ordering::SeqCst);
        let asked = Arc::clone(&log);
        engine.set_write_ahead(Arc::new(move |seq| {
            if asked.full.load(Ordering::SeqCst) {
                return Err(EngineError::Backend {
                    operation: "flush the log",
                    kind: ErrorKind::OutOfSpace,
                    message: "no space".to_owned(),
                });
            }
            asked.durable.fetch_max(seq.0, Ordering::SeqCst);
            Ok(())
        }));
        log
    }

    fn expect_ahead_of(&self, engine: &dyn Engine) {
        // In this order: the mark read is older than the log's.
        let mark = engine.durable_seq();
        let durable = Seq(self.durable.load(Ordering::SeqCst));
        assert!(
            mark <= durable,
            "the engine is durable to {mark:?}, the log to {durable:?}"
        );
    }

    /// A crash now leaves no engine ahead of the log.
    fn expect_ahead_after_crash(&self, driver: Driver, site: &mut dyn Site) -> Driver {
        site.crash(driver.engine);
        let durable = Seq(self.durable.load(Ordering::SeqCst));
        let driver = Driver::open(site);
        let mark = driver.engine.durable_seq();
        assert!(mark <= durable, "found {mark:?}, the log was durable to {durable:?}");
        driver
    }
}

fn the_log_is_durable_before_a_checkpoint_is(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::open(&*site);
    let log = TestLog::of(&driver.engine);
    for last in [1, 2, 50] {
        write_up_to(&mut driver, last);
        log.expect_ahead_of(&*driver.engine);
        let mark = driver.engine.checkpoint().unwrap();
        assert_eq!(mark, if fixture.keeps_data() { Seq(last) } else { Seq::ZERO });
        log.expect_ahead_of(&*driver.engine);
    }
    write_up_to(&mut driver, 70);
    driver.engine.close(CloseMode::Checkpoint).unwrap();
    let driver = log.expect_ahead_after_crash(driver, &mut *site);
    expect_fold(&driver);
    assert!(!fixture.keeps_data() || driver.last == Seq(70), "{:?}", driver.last);
}

/// Rows in abundance, maintenance, a backup: some engines write these without being asked for a checkpoint.
fn nothing_else_makes_the_engine_pass_the_log(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::with_tables(&*site);
    let log = TestLog::of(&driver.engine);
    let value = vec![7; 64 << 10];
    for round in 0..3 {
        for number in 0..400 {
            driver.put(TABLE, &key(round * 1000 + number), &value);
            if number % 16 == 0 {
                log.expect_ahead_of(&*driver.engine);
            }
        }
        driver.put(OTHER, b"round", &key(round));
        match round {
            0 => {
                driver.engine.maintain(&Maintenance::Compact(None)).unwrap();
            }
            1 if driver.engine.info().capabilities.hot_backup => drop(driver.engine.backup().unwrap()),
            _ => {}
        }
        log.expect_ahead_of(&*driver.engine);
    }
    let driver = log.expect_ahead_after_crash(driver, &mut *site);
    let tables = driver.engine.tables().unwrap();
    assert!(tables.is_empty() || tables.len() == 2);
}

fn the_mark_stays_behind_the_log_beside_a_writer(fixture: &dyn Fixture) {
    let mut site = fixture.site();
    let mut driver = Driver::with_tables(&*site);
    let log = TestLog::of(&driver.engine);
    let engine = Arc::clone(&driver.engine);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..3000 {
                driver.put(TABLE, &key(number % 500), &[number as u8; 4000]);
            }
        });
        let compact = || engine.maintain(&Maintenance::Compact(Some(vec![TABLE])));
        let (mut rounds, mut is_refused) = (0, false);
        // A writer that panics has finished, too.
        while rounds < 3 || !writer.is_finished() {
            rounds += 1;
            engine.checkpoint().unwrap();
            log.expect_ahead_of(&*engine);
            if rounds % 4 == 0 {
                match compact() {
                    Err(error) if error.kind() == ErrorKind::Unsupported => is_refused = true,
                    compacted => drop(compacted.unwrap()),
                }
                log.expect_ahead_of(&*engine);
            }
        }
        // What an engine has no room for it refuses without a writer, too.
        writer.join().unwrap();
        engine.checkpoint().unwrap();
        assert!(!is_refused || compact().is_err());
    });
    drop(engine);
    log.expect_ahead_after_crash(driver, &mut *site);
}

fn a_log_that_cannot_be_flushed_stops_the_checkpoint(fixture: &dyn Fixture) {
    if !fixture.keeps_data() {
        return;
    }
    let mut site = fixture.site();
    let mut driver = Driver::open(&*site);
    let log = TestLog::of(&driver.engine);
    write_up_to(&mut driver, 40);
    assert_eq!(driver.engine.checkpoint().unwrap(), Seq(40));
    write_up_to(&mut driver, 60);
    log.full.store(true, Ordering::SeqCst);
    expect_kind(driver.engine.checkpoint(), ErrorKind::OutOfSpace);
    assert_eq!(driver.engine.durable_seq(), Seq(40), "the checkpoint before stands");
    let mut driver = log.expect_ahead_after_crash(driver, &mut *site);
    assert_eq!(driver.last, Seq(40));
    expect_fold(&driver);
    write_up_to(&mut driver, 60);
    assert_eq!(
        driver.engine.checkpoint().unwrap(),
        Seq(60),
        "without a log nothing waits"
    );
    expect_fold(&driver);
}
