//! Many threads. Every assertion is about what is read, never about time.

use crate::driver::{Dice, Driver, OTHER, TABLE, fresh, key, scan};
use crate::fixture::{Fixture, tests};
use engine::{Batch, CloseMode, Direction, Engine, ErrorKind, KeyRange, Maintenance, Seq};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

tests![
    readers_see_whole_batches_while_a_writer_runs,
    a_snapshot_tells_its_seq_while_a_writer_runs,
    a_published_batch_is_visible_to_other_threads,
    checkpoints_and_compaction_run_beside_everything,
    closing_under_load_ends_every_call_cleanly,
];

/// Moves amounts between accounts: any view adds up to the same sum.
const ACCOUNTS: u64 = 50;
const EACH: i64 = 1000;

fn open_accounts(driver: &mut Driver) {
    driver.commit(|batch| {
        for table in [TABLE, OTHER] {
            (0..ACCOUNTS).for_each(|number| batch.add(table, key(number), EACH));
        }
    });
}

fn transfer(round: u64) -> Batch {
    let mut batch = Batch::new();
    let amount = (round % 97) as i64;
    batch.add(TABLE, key(round % ACCOUNTS), -amount);
    batch.add(OTHER, key(round * 7 % ACCOUNTS), amount);
    batch
}

fn expect_sum(engine: &dyn Engine) -> Seq {
    let snapshot = engine.snapshot().unwrap();
    let mut sum = 0;
    for (table, direction) in [(TABLE, Direction::Forward), (OTHER, Direction::Reverse)] {
        let rows = scan(&snapshot, table, KeyRange::all(), direction);
        assert_eq!(rows.len() as u64, ACCOUNTS);
        sum += rows
            .iter()
            .map(|row| i64::from_le_bytes(row.1[..].try_into().unwrap()))
            .sum::<i64>();
    }
    assert_eq!(
        sum,
        2 * EACH * ACCOUNTS as i64,
        "a view at {:?} shows half a batch",
        snapshot.seq()
    );
    snapshot.seq()
}

fn run_writer(engine: &dyn Engine, first: Seq, rounds: u64) -> Seq {
    let mut seq = first;
    for round in 0..rounds {
        seq = seq.next();
        engine.apply(&transfer(round), seq).unwrap();
        engine.publish(seq);
    }
    seq
}

fn readers_see_whole_batches_while_a_writer_runs(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    open_accounts(&mut driver);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut before = Seq::ZERO;
                while !done.load(Ordering::Relaxed) {
                    let seq = expect_sum(&*driver.engine);
                    assert!(before <= seq, "views go forward");
                    before = seq;
                }
            });
        }
        // Whatever becomes of this thread, the others stop.
        let _stop = scopeguard::guard(&done, |done| done.store(true, Ordering::Relaxed));
        driver.last = run_writer(&*driver.engine, driver.last, 3000);
    });
    assert_eq!(expect_sum(&*driver.engine), driver.last);
}

fn a_snapshot_tells_its_seq_while_a_writer_runs(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| batch.put(TABLE, &b"seq"[..], &b""[..]));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for reader in 1..=2 {
            let (engine, done) = (&driver.engine, &done);
            scope.spawn(move || {
                let dice = Dice::new(reader);
                while !done.load(Ordering::Relaxed) {
                    let snapshot = engine.snapshot().unwrap();
                    let value = snapshot.get(TABLE, b"seq").unwrap().unwrap();
                    assert!(value.is_empty() || value[..] == snapshot.seq().0.to_le_bytes());
                    // Pauses of different lengths, so that views are first asked for at all moments of a write.
                    (0..dice.below(2000)).for_each(|_| std::hint::spin_loop());
                }
            });
        }
        // Whatever becomes of this thread, the others stop.
        let _stop = scopeguard::guard(&done, |done| done.store(true, Ordering::Relaxed));
        for _ in 0..20_000 {
            let seq = driver.last.next();
            let mut batch = Batch::new();
            batch.put(TABLE, &b"seq"[..], seq.0.to_le_bytes().to_vec());
            driver.engine.apply(&batch, seq).unwrap();
            driver.engine.publish(seq);
            driver.last = seq;
        }
    });
}

fn a_published_batch_is_visible_to_other_threads(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let (send, receive) = std::sync::mpsc::channel::<Seq>();
    thread::scope(|scope| {
        let engine = Arc::clone(&driver.engine);
        scope.spawn(move || {
            for seq in receive {
                let snapshot = engine.snapshot().unwrap();
                assert!(snapshot.seq() >= seq);
                assert!(snapshot.get(TABLE, &key(seq.0)).unwrap().is_some());
            }
        });
        for _ in 0..1000 {
            let number = driver.last.next().0;
            send.send(driver.put(TABLE, &key(number), b"1")).unwrap();
        }
        drop(send);
    });
}

fn checkpoints_and_compaction_run_beside_everything(fixture: &dyn Fixture) {
    let (mut driver, mut site) = fresh(fixture);
    open_accounts(&mut driver);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                driver.engine.checkpoint().unwrap();
                driver
                    .engine
                    .maintain(&Maintenance::Compact(Some(vec![TABLE])))
                    .unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                expect_sum(&*driver.engine);
                let report = driver.engine.maintain(&Maintenance::Verify(None)).unwrap();
                assert_eq!(report.problems, Vec::<String>::new());
                driver.engine.stats(&mut |_, _| {});
            }
        });
        // Whatever becomes of this thread, the others stop.
        let _stop = scopeguard::guard(&done, |done| done.store(true, Ordering::Relaxed));
        let last = run_writer(&*driver.engine, driver.last, 2000);
        assert_eq!(driver.engine.snapshot().unwrap().seq(), last);
    });
    driver.engine.checkpoint().unwrap();
    let Driver { engine, .. } = driver;
    site.crash(engine);
    let driver = Driver::open(&*site);
    if fixture.keeps_data() {
        assert_eq!(expect_sum(&*driver.engine), driver.last);
    }
}

fn closing_under_load_ends_every_call_cleanly(fixture: &dyn Fixture) {
    for mode in [CloseMode::Checkpoint, CloseMode::Abandon] {
        let (mut driver, site) = fresh(fixture);
        open_accounts(&mut driver);
        thread::scope(|scope| {
            let engine = &driver.engine;
            let first = driver.last;
            scope.spawn(move || {
                let mut seq = first;
                loop {
                    seq = seq.next();
                    match engine.apply(&transfer(seq.0), seq) {
                        Ok(()) => engine.publish(seq),
                        Err(error) => {
                            return assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                        }
                    }
                }
            });
            scope.spawn(move || {
                loop {
                    match engine.snapshot() {
                        Ok(snapshot) => drop(snapshot.get(TABLE, &key(1))),
                        Err(error) => {
                            return assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
                        }
                    }
                }
            });
            while engine.snapshot().unwrap().seq().0 < first.0 + 200 {
                thread::yield_now();
            }
            engine.close(mode).unwrap();
        });
        drop(driver);
        let driver = Driver::open(&*site);
        if driver.last > Seq::ZERO {
            expect_sum(&*driver.engine);
        }
    }
}
