//! Files are written whole or not at all, and nothing in them is trusted.

use crate::fixture;
use report::{Error, Latency, Operation, Session, limits};
use std::path::Path;
use vfs::{Access, Fault, FaultKind, FileSystem, Random, SeededRandom, SimulatedFs};

const PATH: &str = "/session.json";

fn disk_with(bytes: &[u8]) -> SimulatedFs {
    let fs = SimulatedFs::new(1);
    let file = fs.open(Path::new(PATH), Access::CreateNew).expect("the disk is empty");
    file.write_all_at(bytes, 0).expect("the disk is not full");
    fs
}

#[test]
fn what_is_written_is_read() {
    let fs = SimulatedFs::new(1);
    let session = fixture::session(1, 1.0);
    assert!(session.runs.len() > 20);
    session.write(&fs, Path::new(PATH)).expect("the disk works");
    let read = Session::read(&fs, Path::new(PATH)).expect("it was just written");
    assert!(read == session, "another session is read");
    assert_eq!(fs.list(Path::new("/")).expect("it exists"), [Path::new("session.json")]);
}

#[test]
fn a_failed_write_leaves_the_old_file() {
    for kind in [FaultKind::WriteError, FaultKind::SyncError, FaultKind::MetadataError] {
        let fs = SimulatedFs::new(2);
        let old = fixture::session(1, 1.0);
        old.write(&fs, Path::new(PATH)).expect("the disk works");
        fs.inject(Fault::new(kind));
        let new = fixture::session(2, 1.0);
        let failure = new.write(&fs, Path::new(PATH));
        assert!(matches!(failure, Err(Error::Io { .. })), "{kind:?}: {failure:?}");
        let read = Session::read(&fs, Path::new(PATH)).expect("the old one is there");
        assert!(read == old, "{kind:?}: not the old one");
        new.write(&fs, Path::new(PATH)).expect("the disk works again");
        assert!(Session::read(&fs, Path::new(PATH)).expect("the new one is there") == new);
    }
}

#[test]
fn a_full_disk_is_an_error_and_gets_its_space_back() {
    let fs = SimulatedFs::new(3);
    fs.set_free_bytes(Some(10_000));
    let failure = fixture::session(1, 1.0).write(&fs, Path::new(PATH));
    assert!(
        matches!(failure, Err(Error::Io { action: "writing", .. })),
        "{failure:?}"
    );
    assert!(fs.list(Path::new("/")).expect("it exists").is_empty());
}

#[test]
fn a_crash_leaves_the_old_or_the_new_file() {
    let short = |seed| {
        let mut session = fixture::session(seed, 1.0);
        session.runs.truncate(2);
        session
    };
    let (old, new) = (short(1), short(2));
    let mut seen_old = false;
    for operation in 1..20 {
        let fs = SimulatedFs::new(operation);
        old.write(&fs, Path::new(PATH)).expect("the disk works");
        fs.crash_at(fs.operations() + operation);
        let written = new.write(&fs, Path::new(PATH)).is_ok();
        fs.restart();
        let read = Session::read(&fs, Path::new(PATH)).expect("one of the two is there");
        assert!(read == old || read == new, "operation {operation}: neither");
        assert!(
            !written || read == new,
            "operation {operation}: what was reported durable is lost"
        );
        seen_old |= read == old;
    }
    assert!(seen_old, "no crash came early enough");
}

#[test]
fn other_formats_and_other_files_are_refused() {
    let read = |text: &str| Session::read(&disk_with(text.as_bytes()), Path::new(PATH));
    assert!(matches!(
        read(r#"{"format": 2, "anything": []}"#),
        Err(Error::Format {
            found: 2,
            expected: 1,
            ..
        })
    ));
    assert!(matches!(read(r#"{"runs": []}"#), Err(Error::Json { .. })));
    assert!(matches!(read(""), Err(Error::Json { .. })));
    assert!(matches!(read(&"[".repeat(100_000)), Err(Error::Json { .. })));
    let missing = Session::read(&SimulatedFs::new(1), Path::new(PATH));
    assert!(matches!(missing, Err(Error::Io { action: "reading", .. })));
}

#[test]
fn damaged_files_are_errors() {
    let mut session = fixture::session(1, 1.0);
    session.runs.truncate(3);
    let fs = SimulatedFs::new(1);
    session.write(&fs, Path::new(PATH)).expect("the disk works");
    let file = fs.open(Path::new(PATH), Access::Read).expect("it is there");
    let mut bytes = vec![0; file.len().expect("it is open") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is as long");
    let random = SeededRandom::new(11);
    let mut refused = 0;
    for _ in 0..100 {
        let mut damaged = bytes.clone();
        let at = random.next_u64() as usize % damaged.len();
        match random.next_u64() % 3 {
            0 => damaged[at] = random.next_u64() as u8,
            1 => damaged.truncate(at),
            _ => drop(damaged.drain(at..(at + 7).min(bytes.len()))),
        }
        match Session::parse(&damaged, Path::new(PATH)) {
            // What passes the checks can be shown.
            Ok(session) => assert!(report::html::page(&session).contains("</html>"), "seed 11"),
            Err(Error::Json { .. } | Error::Format { .. } | Error::Invalid { .. } | Error::TooMany { .. }) => {
                refused += 1
            }
            Err(other) => panic!("seed 11: {other}"),
        }
    }
    assert!(refused > 50, "seed 11: only {refused} of 100 damages were seen");
}

#[test]
fn limits_hold_at_one_past() {
    let session = || {
        let mut session = fixture::session(1, 1.0);
        session.runs.truncate(1);
        session
    };
    let too_many = |session: Session| matches!(session.validate(), Err(Error::TooMany { .. }));
    let fits = |session: Session| session.validate().is_ok();

    let with_runs = |count| Session {
        runs: vec![report::Run::new("x", "y", report::Configuration::default()); count],
        ..session()
    };
    assert!(fits(with_runs(limits::RUNS_MAX)) && too_many(with_runs(limits::RUNS_MAX + 1)));

    let with_text = |bytes| Session {
        tool: "x".repeat(bytes),
        ..session()
    };
    assert!(fits(with_text(limits::TEXT_BYTES_MAX)) && too_many(with_text(limits::TEXT_BYTES_MAX + 1)));

    let with_notes = |count| {
        let mut session = session();
        session.runs[0].notes = vec![String::new(); count];
        session
    };
    assert!(fits(with_notes(limits::ENTRIES_MAX)) && too_many(with_notes(limits::ENTRIES_MAX + 1)));

    let with_operations = |count: usize| {
        let mut session = session();
        let operation = Operation {
            count: 1,
            errors: 0,
            latency: None,
        };
        session.runs[0].operations = (0..count)
            .map(|number| (number.to_string(), operation.clone()))
            .collect();
        session
    };
    assert!(fits(with_operations(limits::OPERATIONS_MAX)) && too_many(with_operations(limits::OPERATIONS_MAX + 1)));

    let with_points = |count| {
        let mut session = session();
        session.runs[0].series = report::Series::default();
        session.runs[0].series.rss_bytes = vec![1; count];
        session
    };
    assert!(fits(with_points(limits::POINTS_MAX)) && too_many(with_points(limits::POINTS_MAX + 1)));

    let with_buckets = |count: u64| {
        let mut session = session();
        let buckets = (0..count).map(|value| (value, 1)).collect();
        let latency = Some(Latency {
            count,
            buckets,
            ..Latency::default()
        });
        session.runs[0].operations.insert(
            "x".to_owned(),
            Operation {
                count,
                errors: 0,
                latency,
            },
        );
        session
    };
    let most = limits::BUCKETS_MAX as u64;
    assert!(fits(with_buckets(most)) && too_many(with_buckets(most + 1)));
}

#[test]
fn contradictions_are_refused() {
    let broken = |change: fn(&mut report::Run)| {
        let mut session = fixture::session(1, 1.0);
        change(&mut session.runs[0]);
        matches!(session.validate(), Err(Error::Invalid { .. }))
    };
    assert!(broken(|run| run.seconds = -1.0));
    assert!(broken(|run| run.start_seconds = Some(f64::NAN)));
    assert!(broken(|run| run.series.interval_seconds = 0.0));
    assert!(broken(|run| run.series.rss_bytes.truncate(3)));
    assert!(broken(|run| run.figures.extend([("x".to_owned(), f64::INFINITY)])));
    assert!(broken(|run| run.pacing = report::Pacing::Open { rate: 0.0 }));
    let latency = |run: &mut report::Run, change: fn(&mut Latency)| {
        let operation = run.operations.values_mut().next().expect("there is one");
        change(operation.latency.as_mut().expect("it was measured"));
    };
    let mut session = fixture::session(1, 1.0);
    latency(&mut session.runs[0], |latency| latency.buckets.swap(0, 1));
    assert!(matches!(session.validate(), Err(Error::Invalid { .. })));
    let mut session = fixture::session(1, 1.0);
    latency(&mut session.runs[0], |latency| latency.count += 1);
    assert!(matches!(session.validate(), Err(Error::Invalid { .. })));
    let mut session = fixture::session(1, 1.0);
    latency(&mut session.runs[0], |latency| latency.p50_ns = u64::MAX);
    assert!(matches!(session.validate(), Err(Error::Invalid { .. })));
}
