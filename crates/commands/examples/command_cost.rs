//! What one command costs from the message to the reply, without sockets: CPU time per operation of the
//! commands that applications send most, on the in-memory engine with a log.
//!
//! `cargo run --release -p commands --example command_cost [part of a name] [operations]`

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use commands::logger::{Destination, Logger, LoggerOptions};
use commands::{Peer, ProfilingLevel, Request, Server, Settings};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogOptions};
use query::matcher::MatcherCompiler;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::{Storage, StorageOptions};
use vfs::{Env, FileSystem, SeededRandom, SimulatedFs, SystemClock};

const DOCUMENTS: i32 = 10_000;

/// The command of a number.
type Shape = Box<dyn Fn(i32) -> Document>;

fn server() -> Arc<Server> {
    let fs = SimulatedFs::new(1);
    for directory in ["/db/inMemory", "/db/journal"] {
        fs.create_directory_all(Path::new(directory)).expect("created");
    }
    let clock = Arc::new(SystemClock::new());
    let env = Env {
        fs: Arc::new(fs),
        clock: clock.clone(),
        random: Arc::new(SeededRandom::new(1)),
    };
    let engine = InMemoryEngine::open(&env, Path::new("/db/inMemory"), InMemoryOptions::default()).expect("engine");
    let log = Arc::new(Log::open(&env, LogOptions::new("/db/journal"), engine::Seq(0)).expect("log"));
    let mut options = StorageOptions::new(Arc::new(MatcherCompiler));
    options.sync_period = Duration::ZERO;
    let storage = Storage::open(env.clone(), Arc::new(engine), log, options).expect("storage");
    let settings = Settings {
        argv: vec!["tenond".into()],
        parsed: doc! {},
        git_version: String::new(),
        host: "host".into(),
        port: 27017,
        db_path: "/db".into(),
        engine_path: PathBuf::from("/db/inMemory"),
        directory_per_db: false,
        spill_space: None,
        metadata_path: PathBuf::from("/db/storage.bson"),
        encryption: None,
        journal: true,
        emulated_version: [8, 0, 4],
        wire_version_max: 25,
        engines: vec!["inMemory".into()],
        parameters: Vec::new(),
        slow_ms: 100,
        slow_sample_rate: 1.0,
        profiling: ProfilingLevel::Off,
        access_control: false,
        cluster_auth: None,
        scripting: false,
        quiet: false,
        replica_set: None,
        connections_max: 100,
        compressors: wire::Compressor::NEGOTIABLE.to_vec(),
        tls: None,
        audit: None,
    };
    let options = LoggerOptions {
        destination: Destination::Rings,
        ..LoggerOptions::default()
    };
    let logger = Logger::new(clock, &options).expect("rings need no file");
    Server::new(env, storage, logger, settings).expect("a server")
}

fn processor_time() -> Duration {
    let mut time = [0; 2];
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    for (slot, number) in time.iter_mut().zip(text.split_whitespace()) {
        *slot = number.parse().expect("a number");
    }
    Duration::from_nanos(time[0])
}

fn document(id: i32) -> Document {
    let mut document = doc! { "_id": id };
    for field in 0..20 {
        document.insert(format!("field{field}"), format!("{:040}", id.wrapping_mul(field + 1)));
    }
    document
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let operations: i32 = arguments
        .next()
        .map_or(200_000, |number| number.parse().expect("a number"));
    let server = server();
    let client = server.connect(Peer::Tcp("127.0.0.1:1".into(), None));
    let session = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![7; 16],
    };
    let mut reply = Vec::new();
    let mut ask = |mut command: Document| {
        command.insert("lsid", doc! { "id": session.clone() });
        command.insert("$db", "test");
        let body = RawDocumentBuf::try_from(&command).expect("valid");
        reply.clear();
        handle(&server, &client, &body, &mut reply);
        let reply = RawDocument::from_bytes(&reply).expect("a reply");
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply:?}");
    };
    for first in (0..DOCUMENTS).step_by(1000) {
        let documents: Vec<_> = (first..first + 1000).map(document).collect();
        ask(doc! { "insert": "c", "documents": documents });
    }
    let ten: Document = (0..10).map(|field| (format!("field{field}"), 1.into())).collect();
    let id = |i: i32| i.wrapping_mul(7919).rem_euclid(DOCUMENTS);
    let shapes: [(&str, Shape); 6] = [
        ("ping", Box::new(|_| doc! { "ping": 1 })),
        (
            "find all of it by _id",
            Box::new(move |i| doc! { "find": "c", "filter": { "_id": id(i) }, "limit": 1, "singleBatch": true }),
        ),
        (
            "find ten of twenty fields by _id",
            Box::new(move |i| {
                doc! { "find": "c", "filter": { "_id": id(i) }, "projection": ten.clone(), "limit": 1, "singleBatch": true }
            }),
        ),
        (
            "update one field by _id",
            Box::new(
                move |i| doc! { "update": "c", "updates": [{ "q": { "_id": id(i) }, "u": { "$set": { "field3": i } } }] },
            ),
        ),
        (
            "insert of 1 KB",
            Box::new(|i| doc! { "insert": "d", "documents": [document(i)] }),
        ),
        (
            "delete by _id",
            Box::new(|i| doc! { "delete": "d", "deletes": [{ "q": { "_id": i }, "limit": 1 }] }),
        ),
    ];
    for (name, shape) in shapes.iter().filter(|(name, _)| name.contains(&wanted)) {
        let bodies: Vec<_> = (0..operations)
            .map(|i| {
                let mut command = shape(i);
                command.insert("lsid", doc! { "id": session.clone() });
                command.insert("$db", "test");
                RawDocumentBuf::try_from(&command).expect("valid")
            })
            .collect();
        let before = processor_time();
        measured(&server, &client, &bodies, &mut reply);
        let took = processor_time() - before;
        let last = RawDocument::from_bytes(&reply).expect("a reply");
        assert_eq!(last.get_f64("ok").ok(), Some(1.0), "{last:?}");
        println!("{name}: {:.2} us", took.as_secs_f64() * 1e6 / f64::from(operations));
    }
}

/// A function of its own, for profilers.
#[inline(never)]
fn measured(server: &Arc<Server>, client: &Arc<commands::Client>, bodies: &[RawDocumentBuf], reply: &mut Vec<u8>) {
    for body in bodies {
        reply.clear();
        handle(server, client, body, reply);
    }
}

fn handle(server: &Arc<Server>, client: &Arc<commands::Client>, body: &RawDocument, reply: &mut Vec<u8>) {
    let request = Request::of(body);
    server.handle(client, &request, reply);
}
