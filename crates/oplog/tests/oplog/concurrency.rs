//! Many threads: positions without holes, acknowledgements that hold, readers beside writers.

use crate::support::{env, options};
use engine::Seq;
use oplog::{Log, LogOptions};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Without the background flusher nobody rescues a waiter that is not woken: a lost wake-up would hang this test.
#[test]
fn waiters_wake_each_other_without_help() {
    let directory = tempfile::tempdir().unwrap();
    let env = vfs::Env {
        fs: std::sync::Arc::new(vfs::RealFs::new()),
        ..env(&SimulatedFs::new(1), 1)
    };
    let options = LogOptions {
        background: false,
        ..LogOptions::new(directory.path())
    };
    let log = Log::open(&env, options, Seq::ZERO).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for n in 0..ENTRIES / 2 {
                    let seq = log.append(&[b"entry of thread ", &thread.to_le_bytes()]).unwrap();
                    if (n + thread) % 4 != 0 {
                        log.wait_durable(seq).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(log.flush().unwrap(), Seq(THREADS * (ENTRIES / 2)));
}
