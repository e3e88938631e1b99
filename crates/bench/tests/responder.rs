//! The generator against a server that stores nothing: what is recorded, and how a run ends that cannot go on.

#![allow(
    clippy::disallowed_methods,
    reason = "a client program: time and files are the machine's own"
)]

use bench::context::{Context, Options};
use bench::interrupt::Interrupt;
use bench::responder;
use bench::subject::Subject;
use bench::workload::ycsb::{self, Choices};
use report::{Machine, Outcome, Pacing, Session};
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

fn respond() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || responder::serve(&listener));
    address
}

fn context(json: Option<std::path::PathBuf>) -> Context {
    let options = Options {
        scale: 0.02,
        clients: Some(4),
        duration: Some(Duration::from_secs(2)),
        warm_up: Duration::from_millis(100),
        seed: 7,
        rate: None,
        threads: Some(2),
        cache_bytes: None,
        repetitions: 1,
    };
    let session = Session::new("test", 1, Vec::new(), Machine::default());
    Context::new(options, session, Interrupt::new(), json, true)
}

fn choices(workloads: &str) -> Choices {
    Choices {
        workloads: workloads.to_owned(),
        journaled: false,
    }
}

#[test]
fn a_run_has_counts_latencies_and_a_series() {
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("session.json");
    let mut context = context(Some(json.clone()));
    let mut subject = Subject::attach(&respond().to_string(), &Interrupt::new()).expect("it answers");
    ycsb::run(&mut context, &mut subject, &choices("af")).expect("nothing goes wrong");
    let session = Session::read(&vfs::RealFs, &json).expect("it was written and is sound");
    let phases: Vec<&str> = session.runs.iter().map(|run| run.phase.as_str()).collect();
    assert_eq!(phases, ["load", "a", "f"]);
    assert_eq!(session.runs[0].operations["insert"].count, 2000);
    assert!(session.runs[0].document_bytes > Some(2000 * 1000));
    for run in &session.runs {
        assert!(run.is_complete(), "{:?}", run.outcome);
        assert_eq!((run.errors(), run.clients), (0, 4));
    }
    let (a, f) = (&session.runs[1], &session.runs[2]);
    let read = &a.operations["read"];
    // Each client may have one under way at the end, which is no operation of the run and has its latency.
    let measured = read.latency.as_ref().map_or(0, |latency| latency.count);
    assert!(
        (read.count..=read.count + 4).contains(&measured),
        "{measured} of {}",
        read.count
    );
    let total = a.series.total();
    assert!(!total.is_empty() && total.iter().sum::<u64>() <= a.count());
    assert!(a.generator_cpu_us > Some(0));
    assert!(f.operations.contains_key("readModifyWrite") && f.operations.contains_key("read"));
    assert!(!f.operations.contains_key("update"));
}

#[test]
fn an_open_loop_does_as_many_operations_as_are_due() {
    for clients in [1, 4] {
        let mut context = context(None);
        context.options.rate = Some(500.0);
        context.options.clients = Some(clients);
        let mut subject = Subject::attach(&respond().to_string(), &Interrupt::new()).expect("it answers");
        ycsb::run(&mut context, &mut subject, &choices("c")).expect("nothing goes wrong");
        let run = &context.session.runs[1];
        assert_eq!(run.pacing, Pacing::Open { rate: 500.0 });
        let rate = run.rate().expect("something was done");
        // A Poisson process of 1000 events has a deviation of 32.
        assert!((300.0..700.0).contains(&rate), "{rate}");
    }
}

#[test]
fn an_interrupted_run_is_kept() {
    let mut context = context(None);
    context.options.duration = Some(Duration::from_secs(600));
    let interrupt = context.interrupt.clone();
    let mut subject = Subject::attach(&respond().to_string(), &Interrupt::new()).expect("it answers");
    let asker = thread::spawn(move || {
        thread::sleep(Duration::from_millis(1500));
        interrupt.ask();
    });
    let error = ycsb::run(&mut context, &mut subject, &choices("c")).expect_err("it was stopped");
    assert!(matches!(error, bench::Error::Interrupted), "{error}");
    asker.join().expect("it has asked");
    let last = context.session.runs.last().expect("it was kept");
    assert_eq!(last.outcome, Outcome::Interrupted);
}

/// Takes connections, and closes each at its first request but those of setting up.
fn die_at_reads() -> SocketAddr {
    let inner = respond();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || pass_until_find(client, inner));
        }
    });
    address
}

fn pass_until_find(mut client: std::net::TcpStream, inner: SocketAddr) {
    use std::io::Write;
    let mut server = std::net::TcpStream::connect(inner).expect("it listens");
    let (mut to_client, mut from_server) = (client.try_clone().expect("shared"), server.try_clone().expect("shared"));
    thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count) = client.read(&mut buffer) {
        let is_find = buffer[..count].windows(5).any(|window| window == b"find\0");
        if count == 0 || is_find {
            let _ = server.shutdown(std::net::Shutdown::Both);
            let _ = client.shutdown(std::net::Shutdown::Both);
            return;
        }
        if server.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn a_connection_that_breaks_ends_the_run_with_a_reason() {
    let mut context = context(None);
    let mut subject = Subject::attach(&die_at_reads().to_string(), &Interrupt::new()).expect("it answers");
    ycsb::run(&mut context, &mut subject, &choices("c")).expect_err("the server is gone");
    assert_eq!(context.session.runs.len(), 2, "the load is kept as well");
    assert!(context.session.runs[0].is_complete());
    match &context.session.runs[1].outcome {
        Outcome::Failed { message } => {
            assert!(message.contains("closed") || message.contains("receiving"), "{message}")
        }
        other => panic!("{other:?}"),
    }
}
