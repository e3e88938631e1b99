//! The generator against a trivial responder: what it sends is counted there and compared with what it reports.

use super::*;
use crate::messages::{DOCUMENT_BYTES, id_of};
use crate::responder::{Answer, affirm, serve};
use bson::raw::{RawArrayBuf, RawDocument};
use bson::rawdoc;
use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// What the responder saw. It stops the run by itself, so that no test depends on time.
#[derive(Default)]
struct Seen {
    reads: AtomicU64,
    updates: AtomicU64,
    inserted: Mutex<HashSet<[u8; 12]>>,
    requests: AtomicU64,
    /// Answers reads with no document.
    finds_nothing: AtomicBool,
}

/// Starts a responder. After `limit` requests it stops the phase.
fn respond(phase: Arc<Phase>, seen: Arc<Seen>, limit: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let answer: Arc<Answer> = Arc::new(move |body, sequences| {
        seen.note(body, sequences);
        if seen.requests.fetch_add(1, Ordering::Relaxed) + 1 >= limit {
            phase.stop();
        }
        if seen.finds_nothing.load(Ordering::Relaxed) {
            return rawdoc! { "cursor": { "firstBatch": RawArrayBuf::new(), "id": 0_i64, "ns": "x.y" }, "ok": 1.0 };
        }
        affirm(body, sequences)
    });
    thread::spawn(move || serve(&listener, &answer));
    address
}

impl Seen {
    fn note(&self, body: &RawDocument, sequences: &[(&str, &[u8])]) {
        match body
            .iter_elements()
            .next()
            .expect("a command")
            .expect("it is valid")
            .key()
            .as_str()
        {
            "find" => self.reads.fetch_add(1, Ordering::Relaxed),
            "update" => self.updates.fetch_add(1, Ordering::Relaxed),
            "insert" => {
                let mut inserted = self.inserted.lock().expect("nobody panicked");
                for bytes in sequences[0].1.chunks_exact(DOCUMENT_BYTES) {
                    let document = RawDocument::from_bytes(bytes).expect("a document");
                    let new = inserted.insert(document.get_object_id("_id").expect("an _id").bytes());
                    assert!(new, "an _id came twice");
                }
                0
            }
            _ => 0,
        };
    }
}

fn target(address: SocketAddr) -> Target {
    Target {
        address,
        documents: 50,
        next_insert: AtomicU64::new(7000),
    }
}

/// Runs one thread until the responder has seen `limit` requests.
fn drive(workload: Workload, limit: u64) -> (Histogram<u64>, Arc<Seen>) {
    let (phase, seen) = (Arc::new(Phase::new()), Arc::new(Seen::default()));
    let address = respond(Arc::clone(&phase), Arc::clone(&seen), limit);
    phase.record();
    let latency = work(&target(address), workload, 0, &phase).expect("the responder answers");
    (latency, seen)
}

#[test]
fn every_request_is_recorded_once() {
    let (latency, seen) = drive(Workload::Read, 300);
    assert_eq!((latency.len(), seen.reads.load(Ordering::Relaxed)), (300, 300));
    let (latency, seen) = drive(Workload::Update, 300);
    assert_eq!((latency.len(), seen.updates.load(Ordering::Relaxed)), (300, 300));
}

#[test]
fn a_mix_is_half_and_half() {
    let (latency, seen) = drive(Workload::Mix, 400);
    let counts = (seen.reads.load(Ordering::Relaxed), seen.updates.load(Ordering::Relaxed));
    assert_eq!((latency.len(), counts), (400, (200, 200)));
}

#[test]
fn inserts_have_ids_of_their_own() {
    let (latency, seen) = drive(Workload::Insert, 600);
    let inserted = seen.inserted.lock().expect("nobody panicked");
    assert_eq!((latency.len(), inserted.len()), (600, 600));
    assert!(inserted.contains(&id_of(7000)) && inserted.contains(&id_of(7599)));
    let (latency, seen) = drive(Workload::InsertBatch, 5);
    assert_eq!(
        (latency.len(), seen.inserted.lock().expect("nobody panicked").len()),
        (5, 5 * BATCH)
    );
}

#[test]
fn nothing_is_recorded_while_warming_up() {
    let (phase, seen) = (Arc::new(Phase::new()), Arc::new(Seen::default()));
    let address = respond(Arc::clone(&phase), Arc::clone(&seen), 100);
    let latency = work(&target(address), Workload::Read, 0, &phase).expect("the responder answers");
    assert_eq!((latency.len(), seen.reads.load(Ordering::Relaxed)), (0, 100));
}

/// Several threads, with the figures of a process (this one).
#[test]
fn a_run_adds_up_its_threads() {
    let seen = Arc::new(Seen::default());
    // A phase that nobody looks at: the run stops by its duration.
    let address = respond(Arc::new(Phase::new()), Arc::clone(&seen), u64::MAX);
    let durations = Durations {
        warm_up: Duration::ZERO,
        record: Duration::from_millis(50),
    };
    let pid = Some(std::process::id());
    let measured = run(&target(address), Workload::Insert, 3, durations, pid).expect("the responder answers");
    let inserted = seen.inserted.lock().expect("nobody panicked").len() as u64;
    assert!(measured.operations <= inserted, "{} of {inserted}", measured.operations);
    assert_eq!(measured.operations, measured.latency.len());
    assert!(measured.server_cpu.is_some() && measured.written_bytes.is_some());
}

/// A read that finds nothing is no fast read but a failed run, and it does not wait for the time to be over.
#[test]
fn a_wrong_reply_fails_the_run() {
    let seen = Arc::new(Seen::default());
    seen.finds_nothing.store(true, Ordering::Relaxed);
    let address = respond(Arc::new(Phase::new()), seen, u64::MAX);
    let durations = Durations {
        warm_up: Duration::from_secs(3600),
        record: Duration::from_secs(3600),
    };
    let error = run(&target(address), Workload::Read, 2, durations, None).expect_err("nothing is found");
    assert!(error.to_string().contains("not found"), "{error:#}");
}

#[test]
fn batches_count_documents() {
    assert_eq!(Workload::InsertBatch.operations(), BATCH as u64);
    assert!(
        Workload::ALL
            .iter()
            .all(|workload| Workload::by_name(workload.name()) == Some(*workload))
    );
}
