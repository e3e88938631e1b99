//! Round trips, rolling, reading while writing, purging, recycling, switching off.

use crate::support::{DIRECTORY, Model, entry, env, options, segments};
use codec::Codec;
use engine::Seq;
use oplog::{ENTRY_BYTES_MAX, EngineAhead, Log, LogError, LogMode, LogOptions, verify_segment};
use std::path::Path;
use vfs::{Env, FileSystem, RealFs, SimulatedFs};

#[test]
fn entries_come_back_with_every_codec() {
    for codec in Codec::ALL {
        let fs = SimulatedFs::new(1);
        let mut model = Model::default();
        let options = LogOptions { codec, ..options() };
        let log = Log::open(&env(&fs, 1), options.clone(), Seq::ZERO).unwrap();
        assert_eq!((log.last_seq(), log.first_seq()), (Seq::ZERO, Seq(1)));
        for round in 0..60 {
            for _ in 0..round % 23 {
                model.append(&log, 1, 2_000).unwrap();
            }
            assert_eq!(log.flush().unwrap(), model.last());
        }
        model.compare(&log);
        let stats = log.stats();
        assert!(stats.segments > 5, "{stats:?}");
        assert_eq!(stats.entries, model.last().0);
        assert_eq!(
            stats.entry_bytes,
            model.entries.iter().map(|bytes| bytes.len() as u64).sum::<u64>()
        );
        assert_eq!(stats.raw_bytes, stats.entry_bytes + 4 * stats.entries);
        assert_eq!(stats.buffered_bytes, 0);
        if codec == Codec::None {
            assert_eq!(stats.stored_bytes, stats.raw_bytes);
        } else {
            assert!(stats.stored_bytes < stats.raw_bytes * 3 / 4, "{codec}: {stats:?}");
        }
        log.close().unwrap();
        assert!(matches!(log.append(&[b"x"]), Err(LogError::Closed)));
        assert!(matches!(log.wait_durable(Seq(1)), Err(LogError::Closed)));
        log.close().expect("closing twice is fine");

        let other_codec = LogOptions {
            codec: Codec::None,
            ..options
        };
        let log = Log::open(&env(&fs, 2), other_codec, Seq::ZERO).unwrap();
        model.compare(&log);
        let reports: Vec<_> = segments(&fs)
            .iter()
            .map(|path| verify_segment(&fs, path).unwrap())
            .collect();
        assert_eq!(reports.iter().map(|report| report.entries).sum::<u64>(), model.last().0);
    }
}

#[test]
fn an_entry_may_be_as_long_as_the_limit_and_no_longer() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(
        &env(&fs, 1),
        LogOptions {
            codec: Codec::None,
            ..options()
        },
        Seq::ZERO,
    )
    .unwrap();
    let long: Vec<u8> = (0..ENTRY_BYTES_MAX).map(|n| (n * 7 + n / 251) as u8).collect();
    let error = log.append(&[&long, b"x"]).unwrap_err();
    assert!(
        matches!(error, LogError::EntryTooLarge { bytes, max } if bytes == max + 1),
        "{error}"
    );
    assert_eq!(log.append(&[b"small"]).unwrap(), Seq(1));
    assert_eq!(log.append(&[&long]).unwrap(), Seq(2));
    assert_eq!(log.append(&[]).unwrap(), Seq(3));
    log.wait_durable(Seq(3)).unwrap();
    drop(log);
    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    let entries: Vec<_> = log.read(Seq(1)).unwrap().map(|item| item.unwrap().1).collect();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[0], "small");
    assert!(entries[1] == long);
    assert!(entries[2].is_empty());
}

#[test]
fn a_reader_follows_the_durable_mark() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let mut model = Model::default();
    let mut reader = log.read(Seq(1)).unwrap();
    let mut future = log.read(Seq(150)).unwrap();
    assert!(reader.next().is_none());
    for round in 0..300 {
        let seq = model.append(&log, 1, 300).unwrap();
        if round % 2 == 0 {
            assert!(reader.next().is_none(), "what is not durable is not seen");
        }
        if round % 2 == 1 {
            log.wait_durable(seq).unwrap();
            let got: Vec<Seq> = reader.by_ref().map(|item| item.unwrap().0).collect();
            assert_eq!(got, [Seq(seq.0 - 1), seq]);
            let got: Vec<Seq> = future.by_ref().map(|item| item.unwrap().0).collect();
            assert_eq!(
                got,
                if seq < Seq(150) {
                    vec![]
                } else {
                    vec![Seq(seq.0 - 1).max(Seq(150)), seq][usize::from(seq == Seq(150))..].to_vec()
                }
            );
        }
    }
    assert_eq!(reader.next_seq(), Seq(301));
    for from in 1..=300 {
        let (seq, bytes) = log.read(Seq(from)).unwrap().next().unwrap().unwrap();
        assert_eq!(
            (seq, &bytes[..]),
            (Seq(from), model.entries[from as usize - 1].as_slice())
        );
    }
}

#[test]
fn waiting_for_what_was_never_appended_is_refused() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let error = log.wait_durable(Seq(1)).unwrap_err();
    assert!(
        matches!(
            error,
            LogError::NotAppended {
                seq: Seq(1),
                last: Seq(0)
            }
        ),
        "{error}"
    );
}

#[test]
fn purging_recycles_files_and_old_frames_never_come_back() {
    let fs = SimulatedFs::new(5);
    let mut model = Model::default();
    let mut life = 1;
    let mut log = Log::open(
        &env(&fs, 5),
        LogOptions {
            codec: Codec::None,
            ..options()
        },
        Seq::ZERO,
    )
    .unwrap();
    let mut recycled = 0;
    for round in 0..40 {
        for _ in 0..20 {
            let seq = model.append(&log, life, 1_400).unwrap();
            log.wait_durable(seq).unwrap();
        }
        model.mark = model.last().0 - 15;
        log.purge(Seq(model.mark)).unwrap();
        assert!(log.stats().segments <= 4);
        assert!(log.first_seq() <= Seq(model.mark).next());
        if round % 5 == 4 {
            recycled += log.stats().segments_recycled;
            drop(log);
            life += 1;
            log = Log::open(
                &env(&fs, 5 + life),
                LogOptions {
                    codec: Codec::None,
                    ..options()
                },
                Seq(model.mark),
            )
            .unwrap();
            model.compare(&log);
        }
    }
    assert!(recycled > 20, "{recycled}");
    assert!(
        fs.list(Path::new(DIRECTORY)).unwrap().len() <= 6,
        "segments and two spare files"
    );
    let error = log.read(Seq(1)).map(drop).unwrap_err();
    assert!(matches!(error, LogError::Purged { wanted: Seq(1), .. }), "{error}");
    log.purge(Seq(u64::MAX)).unwrap();
    assert_eq!(log.stats().segments, 1, "the last segment stays");
}

#[test]
fn a_reader_keeps_the_segment_it_reads() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    let mut model = Model::default();
    let mut grow = || {
        for _ in 0..100 {
            model.append(&log, 1, 1_000).unwrap();
            log.flush().unwrap();
        }
        model.entries.clone()
    };
    let entries = grow();
    let mut reader = log.read(Seq(1)).unwrap();
    reader.next().unwrap().unwrap();
    let second = verify_segment(&fs, &segments(&fs)[1]).unwrap().first;
    let spares = || {
        let names = fs.list(Path::new(DIRECTORY)).unwrap();
        names
            .iter()
            .filter(|name| name.to_str().unwrap().starts_with("spare"))
            .count()
    };
    log.purge(Seq(second.0 - 1)).unwrap();
    assert_eq!(spares(), 0, "the file is not reused while it is read");
    log.purge(Seq(80)).unwrap();
    assert_eq!(spares(), 2);
    grow();
    let mut read = 1;
    let error = loop {
        match reader.next().unwrap() {
            Ok((seq, bytes)) => {
                assert_eq!(seq, Seq(read + 1));
                assert_eq!(bytes, entries[read as usize]);
                read += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(read > 2, "the rest of the segment it had opened: {read}");
    assert!(matches!(error, LogError::Purged { .. }), "then it is told: {error}");
    assert!(reader.next().is_none(), "and stays at its end");
}

/// By the write-ahead rule no crash leaves an engine ahead of its log: somebody removed the log, or put an older one
/// back.
#[test]
fn a_log_that_ends_before_the_engines_mark_is_refused_and_left_as_it_is() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    for seq in 1..=100 {
        log.append(&[&entry(Seq(seq), 1, 500)]).unwrap();
        log.flush().unwrap();
    }
    drop(log);
    let content = |fs: &SimulatedFs| -> Vec<_> { fs.list(Path::new(DIRECTORY)).unwrap() };
    let before = (content(&fs), fs.operations());
    for mode in [LogMode::On, LogMode::Off] {
        let error = Log::open(&env(&fs, 2), LogOptions { mode, ..options() }, Seq(101)).err();
        let Some(LogError::Behind { durable, last, .. }) = error else {
            panic!("{error:?}")
        };
        assert_eq!((durable, last), (Seq(101), Seq(100)));
    }
    assert_eq!(content(&fs), before.0);
    let log = Log::open(&env(&fs, 3), options(), Seq(100)).unwrap();
    assert_eq!(log.last_seq(), Seq(100), "the mark may be the last entry");
    drop(log);
    for segment in segments(&fs) {
        fs.remove_file(&segment).unwrap();
    }
    let error = Log::open(&env(&fs, 4), options(), Seq(100)).err();
    assert!(
        matches!(error, Some(LogError::Behind { last: Seq::ZERO, .. })),
        "{error:?}"
    );
}

#[test]
fn an_engine_that_has_everything_goes_on_behind_its_mark() {
    let fs = SimulatedFs::new(1);
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    for seq in 1..=100 {
        log.append(&[&entry(Seq(seq), 1, 500)]).unwrap();
        log.flush().unwrap();
    }
    drop(log);
    let behind = LogOptions {
        engine_ahead: EngineAhead::BeginBehind,
        ..options()
    };
    let log = Log::open(&env(&fs, 2), behind, Seq(150)).unwrap();
    assert_eq!(
        (log.last_seq(), log.durable_seq(), log.first_seq()),
        (Seq(150), Seq(150), Seq(151))
    );
    assert!(matches!(log.read(Seq(150)).err(), Some(LogError::Purged { .. })));
    drop(log);
    // The log has begun, though it has no entry yet: after a crash it is not taken for one that was lost.
    fs.crash();
    fs.restart();
    let log = Log::open(&env(&fs, 3), options(), Seq(150)).unwrap();
    assert_eq!(log.append(&[b"next"]).unwrap(), Seq(151));
    log.flush().unwrap();
    drop(log);
    let log = Log::open(&env(&fs, 3), options(), Seq(150)).unwrap();
    let all: Vec<_> = log.read(Seq(151)).unwrap().map(|item| item.unwrap()).collect();
    assert_eq!(all, [(Seq(151), "next".into())]);
}

#[test]
fn switched_off_it_counts_and_writes_nothing() {
    let fs = SimulatedFs::new(1);
    let off = LogOptions {
        mode: LogMode::Off,
        engine_ahead: EngineAhead::BeginBehind,
        ..options()
    };
    let log = Log::open(&env(&fs, 1), off.clone(), Seq(7)).unwrap();
    assert_eq!(log.append(&[b"a"]).unwrap(), Seq(8));
    assert_eq!(log.append(&[b"b"]).unwrap(), Seq(9));
    assert!(matches!(log.wait_durable(Seq(8)), Err(LogError::NoJournal)));
    assert_eq!(log.flush().unwrap(), Seq(7), "the mark does not move");
    log.wait_for_room().unwrap();
    log.purge(Seq(9)).unwrap();
    log.close().unwrap();
    assert_eq!(fs.operations(), 0);

    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    let mut model = Model::default();
    for _ in 0..50 {
        model.append(&log, 1, 500).unwrap();
    }
    log.close().unwrap();
    let operations = fs.operations();
    let log = Log::open(&env(&fs, 3), off, Seq(20)).unwrap();
    model.mark = 20;
    model.compare(&log);
    assert_eq!(log.append(&[b"c"]).unwrap(), Seq(51));
    assert_eq!(
        fs.operations(),
        operations,
        "what an earlier run left is read, not touched"
    );
}

#[test]
fn options_are_checked() {
    let fs = SimulatedFs::new(1);
    for segment_bytes in [0, oplog::SEGMENT_BYTES_MIN - 1, oplog::SEGMENT_BYTES_MAX + 1] {
        let error = Log::open(
            &env(&fs, 1),
            LogOptions {
                segment_bytes,
                ..options()
            },
            Seq::ZERO,
        )
        .map(drop)
        .unwrap_err();
        assert!(
            matches!(
                error,
                LogError::Option {
                    option: "segment_bytes",
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn it_runs_on_the_machines_files_with_its_thread() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env {
        fs: std::sync::Arc::new(RealFs::new()),
        clock: std::sync::Arc::new(vfs::SystemClock::new()),
        random: std::sync::Arc::new(vfs::SystemRandom::new()),
    };
    let options = LogOptions {
        segment_bytes: 1 << 20,
        commit_interval: std::time::Duration::from_millis(1),
        ..LogOptions::new(directory.path().join("a/oplog"))
    };
    let mut model = Model::default();
    let log = Log::open(&env, options.clone(), Seq::ZERO).unwrap();
    for _ in 0..3_000 {
        model.append(&log, 1, 3_000).unwrap();
        log.wait_for_room().unwrap();
    }
    // Nobody asks for a flush: the background does it.
    while log.durable_seq() < model.last() {
        std::thread::yield_now();
    }
    model.compare(&log);
    model.mark = 2_000;
    log.purge(Seq(2_000)).unwrap();
    log.close().unwrap();
    let log = Log::open(&env, options, Seq(2_000)).unwrap();
    model.compare(&log);
}
