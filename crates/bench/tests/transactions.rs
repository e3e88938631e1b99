//! The workload of transactions against a server made up for it: conflicts and pauses are counted, and a server that
//! does not keep what it acknowledged is found out.

#![allow(
    clippy::disallowed_methods,
    reason = "a client program: time and files are the machine's own"
)]

use bench::context::{Context, Options};
use bench::interrupt::Interrupt;
use bench::subject::Subject;
use bench::workload::transactions::{self, Backoff, Choices, WriteConcern};
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};
use bson::rawdoc;
use report::{Machine, Outcome, RESTARTS, Run, SLOWEST_CLIENT, Session};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::Duration;
use wire::{HEADER_BYTES, Header, Message};

/// A server that counts what is committed, and nothing else.
#[derive(Clone, Default)]
struct Counting {
    /// What `hello` adds.
    set: Option<&'static str>,
    /// Each n-th update of a connection is a conflict; 0: none is.
    conflict_every: i64,
    /// Commits add so much less than what was updated.
    loses: i64,
    sum: Arc<AtomicI64>,
}

impl Counting {
    fn start(self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = self.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        address
    }

    /// Until the client is gone.
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let (mut updates, mut open) = (0, 0);
        loop {
            let mut message = vec![0; HEADER_BYTES];
            stream.read_exact(&mut message)?;
            let header = Header::parse(message.first_chunk().expect("it is whole")).expect("a header");
            message.resize(header.length, 0);
            stream.read_exact(&mut message[HEADER_BYTES..])?;
            let Ok(Message::Msg(request)) = Message::parse(&header, &message) else {
                panic!("an OP_MSG");
            };
            let documents: usize = request
                .sequences
                .as_slice()
                .iter()
                .map(|(_, all)| documents_of(all))
                .sum();
            let reply = self.answer(request.body, documents, &mut updates, &mut open);
            let mut bytes = vec![0; HEADER_BYTES + 5];
            bytes.extend_from_slice(reply.as_bytes());
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[12..14].copy_from_slice(&2013u16.to_le_bytes());
            stream.write_all(&bytes)?;
        }
    }

    /// `updates`: of the connection; `open`: those of its transaction.
    fn answer(&self, body: &RawDocument, documents: usize, updates: &mut i64, open: &mut i64) -> RawDocumentBuf {
        let command = body.iter().next().expect("a command").expect("it is sound").0;
        if body.get_bool("startTransaction").is_ok_and(|starts| starts) {
            *open = 0;
        }
        match &*command.to_string() {
            "hello" => match self.set {
                Some(name) => rawdoc! { "isWritablePrimary": true, "setName": name, "ok": 1.0 },
                None => rawdoc! { "isWritablePrimary": true, "ok": 1.0 },
            },
            "insert" => rawdoc! { "n": documents as i32, "ok": 1.0 },
            "update" => {
                *updates += 1;
                if self.conflict_every > 0 && *updates % self.conflict_every == 0 {
                    let mut labels = RawArrayBuf::new();
                    labels.push("TransientTransactionError");
                    return rawdoc! { "ok": 0.0, "code": 112, "errmsg": "conflict", "errorLabels": labels };
                }
                *open += 1;
                rawdoc! { "n": 1, "nModified": 1, "ok": 1.0 }
            }
            "commitTransaction" => {
                self.sum.fetch_add(*open - self.loses, Ordering::SeqCst);
                rawdoc! { "ok": 1.0 }
            }
            "aggregate" => {
                let mut batch = RawArrayBuf::new();
                batch.push(rawdoc! { "_id": null, "n": self.sum.load(Ordering::SeqCst) });
                rawdoc! { "cursor": { "firstBatch": batch, "id": 0_i64 }, "ok": 1.0 }
            }
            _ => rawdoc! { "ok": 1.0 },
        }
    }
}

fn documents_of(mut sequence: &[u8]) -> usize {
    let mut count = 0;
    while let Some(length) = sequence.first_chunk() {
        sequence = &sequence[u32::from_le_bytes(*length) as usize..];
        count += 1;
    }
    count
}

fn run_on(server: Counting, clients: u32, may_be_skipped: bool) -> (bench::Result<()>, Vec<Run>) {
    let options = Options {
        scale: 0.001,
        clients: Some(clients),
        duration: Some(Duration::from_secs(1)),
        warm_up: Duration::from_millis(100),
        seed: 7,
        rate: None,
        threads: Some(2),
        cache_bytes: None,
        repetitions: 1,
    };
    let session = Session::new("test", 1, Vec::new(), Machine::default());
    let mut context = Context::new(options, session, Interrupt::new(), None, true);
    let choices = Choices {
        hot_documents: 8,
        reads: 0,
        updates: 2,
        backoffs: vec![Backoff::None, Backoff::Exponential],
        write_concern: WriteConcern::One,
        may_be_skipped,
    };
    let mut subject = Subject::attach(&server.start().to_string(), &Interrupt::new()).expect("it answers");
    let ended = transactions::run(&mut context, &mut subject, &choices);
    (ended, context.session.runs)
}

#[test]
fn conflicts_are_counted_and_paused_for() {
    let server = Counting {
        set: Some("made-up"),
        conflict_every: 5,
        ..Counting::default()
    };
    // One client waits for its socket alone, several for any of theirs.
    for clients in [1, 5] {
        let (ended, runs) = run_on(server.clone(), clients, false);
        ended.expect("the counters add up");
        let phases: Vec<_> = runs
            .iter()
            .map(|run| (run.phase.as_str(), run.parameters.get("backoff")))
            .collect();
        assert_eq!(phases.len(), 4, "{phases:?}");
        assert_eq!((phases[0].0, phases[1].0, phases[3].0), ("load", "disjoint", "hot"));
        for run in &runs[1..] {
            assert!(run.is_complete() && run.errors() == 0, "{:?}", run.outcome);
            // Of five updates one is a conflict, so that two transactions are done and one attempt is not.
            let restarts = run.figures[RESTARTS];
            assert!((0.4..0.6).contains(&restarts), "{restarts}");
            assert!((0.0..=1.0).contains(&run.figures[SLOWEST_CLIENT]));
        }
        // A pause is 2.5 ms on average.
        let [at_once, paused] = [&runs[2], &runs[3]].map(|run| run.rate().expect("something was done"));
        let most = f64::from(clients) * 1000.0 / (0.4 * 2.0);
        assert!(paused < most && paused < at_once, "{paused} and {at_once} a second");
    }
}

#[test]
fn a_server_that_loses_what_was_committed_is_found_out() {
    let server = Counting {
        set: Some("made-up"),
        loses: 1,
        ..Counting::default()
    };
    let (ended, runs) = run_on(server, 2, false);
    ended.expect_err("half of it is gone");
    let run = runs.last().expect("it is kept");
    let Outcome::Failed { message } = &run.outcome else {
        panic!("{:?}", run.outcome)
    };
    assert!(message.contains("commits of 2 each were acknowledged"), "{message}");
    assert!(run.count() > 0, "what was measured is there");
}

#[test]
fn a_server_that_is_no_member_is_refused_or_passed_over() {
    let (ended, runs) = run_on(Counting::default(), 2, false);
    let error = ended.expect_err("it has no transactions").to_string();
    assert!(
        error.contains("start it with --replSet NAME --replSetInitiate"),
        "{error}"
    );
    assert!(runs.is_empty());
    let (ended, runs) = run_on(Counting::default(), 2, true);
    ended.expect("others go on");
    assert_eq!((runs.len(), runs[0].outcome.word()), (1, "skipped"));
}
