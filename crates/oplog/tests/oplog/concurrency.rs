//! Many threads: positions without holes, acknowledgements that hold, readers beside writers.

use crate::support::{env, options};
use engine::Seq;
use oplog::{Log, LogError, LogOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;
use vfs::SimulatedFs;

const THREADS: u64 = 16;
const ENTRIES: u64 = 300;

#[test]
fn many_threads_append_wait_read_and_purge() {
    let fs = SimulatedFs::new(1);
    let options = LogOptions {
        background: true,
        segment_bytes: 64 * 1024,
        ..options()
    };
    let log = Log::open(&env(&fs, 1), options.clone(), Seq::ZERO).unwrap();
    let written = Mutex::new(BTreeMap::new());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (log, written) = (&log, &written);
                scope.spawn(move || {
                    for n in 0..ENTRIES {
                        let body = format!("{thread}/{n}/{}", "x".repeat((n % 100) as usize));
                        let seq = log.append(&[body.as_bytes()]).unwrap();
                        if (thread + n) % 3 == 0 {
                            log.wait_durable(seq).unwrap();
                            assert!(log.durable_seq() >= seq);
                        }
                        log.wait_for_room().unwrap();
                        assert!(
                            written.lock().unwrap().insert(seq, body).is_none(),
                            "a position is given once"
                        );
                    }
                })
            })
            .collect();
        let (log, done) = (&log, &done);
        let reader = scope.spawn(move || {
            let mut reader = log.read(Seq(1)).unwrap();
            let mut count = 0;
            loop {
                let finished = done.load(Ordering::SeqCst);
                for item in reader.by_ref() {
                    count += 1;
                    assert_eq!(item.unwrap().0, Seq(count));
                    if count % 500 == 0 {
                        log.purge(Seq(count - 400)).unwrap();
                    }
                }
                if finished {
                    return count;
                }
                std::thread::yield_now();
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        log.flush().unwrap();
        done.store(true, Ordering::SeqCst);
        assert_eq!(reader.join().unwrap(), THREADS * ENTRIES);
    });
    let stats = log.stats();
    assert_eq!(stats.entries, THREADS * ENTRIES);
    assert!(stats.groups < stats.entries, "waiters share syncs: {stats:?}");
    let first = log.first_seq();
    assert!(first > Seq(1), "something was purged");
    log.close().unwrap();

    let log = Log::open(&env(&fs, 2), options, Seq(first.0 - 1)).unwrap();
    let written = written.into_inner().unwrap();
    assert_eq!(written.len() as u64, THREADS * ENTRIES);
    let mut found = 0;
    for item in log.read(first).unwrap() {
        let (seq, bytes) = item.unwrap();
        assert_eq!(bytes, written[&seq]);
        found += 1;
    }
    assert_eq!(found, THREADS * ENTRIES - (first.0 - 1));
}

/// Bursts of waiters with silence after each: whoever is not woken then sleeps for ever, since nobody else comes by.
/// All of a burst have to return before the next one begins. (With traffic that never stops, later groups rescue those
/// that earlier ones forgot.)
#[test]
fn every_waiter_of_every_burst_returns() {
    const BURSTS: usize = 60;
    let directory = tempfile::tempdir().unwrap();
    let env = vfs::Env {
        fs: Arc::new(vfs::RealFs::new()),
        ..env(&SimulatedFs::new(1), 1)
    };
    let options = LogOptions {
        background: false,
        ..LogOptions::new(directory.path())
    };
    let log = Arc::new(Log::open(&env, options, Seq::ZERO).unwrap());
    let begin = Arc::new(Barrier::new(THREADS as usize + 1));
    let (back, returned) = mpsc::channel();
    for _ in 0..THREADS {
        let (log, begin, back) = (log.clone(), begin.clone(), back.clone());
        // Not joined: one that is stuck must not keep the test from saying so.
        std::thread::spawn(move || {
            for _ in 0..BURSTS {
                begin.wait();
                for n in 0..3_u64 {
                    let seq = log.append(&[b"entry", &n.to_le_bytes()]).unwrap();
                    log.wait_durable(seq).unwrap();
                }
                back.send(()).unwrap();
            }
        });
    }
    for burst in 0..BURSTS {
        begin.wait();
        for thread in 0..THREADS {
            let in_time = returned.recv_timeout(Duration::from_secs(60));
            assert!(
                in_time.is_ok(),
                "burst {burst}: {} waiters asleep, durable {:?} of {:?}",
                THREADS - thread,
                log.durable_seq(),
                log.last_seq()
            );
        }
        assert_eq!(log.durable_seq(), log.last_seq(), "nobody is left to flush for");
    }
    let stats = log.stats();
    assert!(stats.groups < stats.entries, "waiters share syncs: {stats:?}");
}

/// A wait that its operation ends returns, the entry goes its way, and the others are served.
#[test]
fn a_wait_can_be_ended() {
    let fs = SimulatedFs::new(1);
    let options = LogOptions {
        codec: codec::Codec::None,
        ..options()
    };
    let log = Log::open(&env(&fs, 1), options, Seq::ZERO).unwrap();
    let seq = log.append(&[b"entry"]).unwrap();
    // By its own hand: there is nobody to wait for.
    log.wait_durable_while(seq, &|| false).unwrap();
    let asked = AtomicBool::new(false);
    let answer = log.wait_durable_while(Seq(1), &|| {
        asked.store(true, Ordering::SeqCst);
        false
    });
    assert!(answer.is_ok() && !asked.load(Ordering::SeqCst), "it is durable already");
    // It has a file of its own, which is made when it is written.
    let waiting = log.append(&[&[0; 20_000]]).unwrap();
    fs.set_free_bytes(Some(0));
    let error = log.wait_durable_while(waiting, &|| true).unwrap_err();
    assert!(matches!(error, LogError::OutOfSpace { .. }), "{error}");
    fs.set_free_bytes(None);
    log.wait_durable(waiting).unwrap();
}
