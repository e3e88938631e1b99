//! What reading costs: CPU time per operation of look-ups, hot shapes of queries and scans on the in-memory engine.
//!
//! `cargo run --release -p query --example query_cost [part of a name]`

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogMode, LogOptions};
use query::matcher::MatcherCompiler;
use query::{CountRequest, DocumentSink, ExecContext, ExecState, FindRequest, SinkState};
use std::path::Path;
use std::sync::Arc;
use storage::{IndexSpec, LockMode, Namespace, Operation, Storage, StorageOptions};
use vfs::{Clock, Env, FileSystem, SeededRandom, SimulatedFs, SystemClock};

const DOCUMENTS: i32 = 200_000;

struct Bytes(usize);

impl DocumentSink for Bytes {
    fn push(&mut self, document: &RawDocument) -> SinkState {
        self.0 += document.as_bytes().len();
        SinkState::Continue
    }
}

/// A number below `below`, far from those of neighbouring `i`.
fn scattered(i: i32, below: i32) -> i32 {
    (i64::from(i) * 7919 % i64::from(below)) as i32
}

fn main() {
    let clock = Arc::new(SystemClock::new());
    let fs = SimulatedFs::new(1);
    for directory in ["/db/inMemory", "/db/journal"] {
        fs.create_directory_all(Path::new(directory)).expect("created");
    }
    let env = Env {
        fs: Arc::new(fs),
        clock: clock.clone(),
        random: Arc::new(SeededRandom::new(1)),
    };
    let engine = InMemoryEngine::open(&env, Path::new("/db/inMemory"), InMemoryOptions::default()).expect("engine");
    let mut log = LogOptions::new("/db/journal");
    log.mode = LogMode::Off;
    log.background = false;
    let log = Arc::new(Log::open(&env, log, engine::Seq(0)).expect("log"));
    let mut options = StorageOptions::new(Arc::new(MatcherCompiler));
    options.background = false;
    options.journal = false;
    let storage = Storage::open(env, Arc::new(engine), log, options).expect("storage");
    let ns = Namespace::new("test", "c").expect("a name");
    let op = Arc::new(Operation::new(clock.clone(), 1));
    storage
        .create_collection(&op, &ns, &RawDocumentBuf::new())
        .expect("created");
    let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
    storage
        .create_indexes(&op, &ns, &[IndexSpec::from_document(&spec).expect("a specification")])
        .expect("indexed");
    let filler = "x".repeat(1000);
    let guard = storage
        .collection(&op, &ns, LockMode::IntentExclusive)
        .expect("locked")
        .expect("there");
    for i in 0..DOCUMENTS {
        let mut unit = storage.begin_write(&op);
        unit.insert(
            &guard,
            &rawdoc! { "_id": i, "a": i / 10, "b": i % 100, "filler": &*filler },
        )
        .expect("inserted");
        unit.commit().expect("committed");
    }
    drop(guard);
    let run = |request: &FindRequest<'_>| -> usize {
        let context = ExecContext {
            storage: &storage,
            op: &op,
            transaction: None,
            pinned: None,
            sources: None,
            settings: None,
            scripts: None,
        };
        let mut executor = query::find(&context, request).expect("planned");
        let mut sink = Bytes(0);
        while executor.next_documents(&context, &mut sink).expect("results") == ExecState::More {}
        sink.0
    };
    let only = std::env::args().nth(1).unwrap_or_default();
    let measure = |name: &str, times: i32, one: &mut dyn FnMut(i32) -> usize| {
        if !name.contains(&only) {
            return;
        }
        (0..times / 10).for_each(|i| assert!(one(i) > 0, "{name} found something"));
        let start = clock.monotonic();
        let bytes: usize = (0..times).map(&mut *one).sum();
        let each = (clock.monotonic() - start).as_nanos() as f64 / f64::from(times);
        println!("{name:<40} {each:>12.0} ns  ({} bytes each)", bytes / times as usize);
    };
    measure("find {_id: x}", 500_000, &mut |i| {
        run(&FindRequest::new(
            ns.clone(),
            &rawdoc! { "_id": scattered(i, DOCUMENTS) },
        ))
    });
    measure("view.find_unique + record", 500_000, &mut |i| {
        let guard = storage
            .collection(&op, &ns, LockMode::IntentShared)
            .expect("locked")
            .expect("there");
        let mut key = Vec::with_capacity(16);
        let id = bson::raw::RawBsonRef::Int32(scattered(i, DOCUMENTS));
        keys::key::encode_value(&mut key, id, keys::FieldOrder::Ascending, None);
        let view = storage.read().expect("a view");
        let record = view.find_unique(guard.id_index(), &key).expect("read").expect("there");
        view.record(&guard, &record)
            .expect("read")
            .map_or(0, |document| document.len())
    });
    measure("find {a: x}, 10 documents", 100_000, &mut |i| {
        run(&FindRequest::new(
            ns.clone(),
            &rawdoc! { "a": scattered(i, DOCUMENTS / 10) },
        ))
    });
    measure("find {a: x} limit 1", 100_000, &mut |i| {
        let filter = rawdoc! { "a": scattered(i, DOCUMENTS / 10) };
        run(&FindRequest {
            limit: Some(1),
            ..FindRequest::new(ns.clone(), &filter)
        })
    });
    measure("count {a: x}", 100_000, &mut |i| {
        let filter = rawdoc! { "a": scattered(i, DOCUMENTS / 10) };
        let context = ExecContext {
            storage: &storage,
            op: &op,
            transaction: None,
            pinned: None,
            sources: None,
            settings: None,
            scripts: None,
        };
        query::count(&context, &CountRequest::new(ns.clone(), &filter), &mut |_| {}).expect("counted") as usize
    });
    let filter = rawdoc! { "b": 7 };
    measure("find {b: 7}, scan of 200,000", 20, &mut |_| {
        run(&FindRequest::new(ns.clone(), &filter))
    });
    let filter = rawdoc! {};
    measure("find {}, all 200,000", 20, &mut |_| {
        run(&FindRequest::new(ns.clone(), &filter))
    });
    let filter = rawdoc! { "a": { "$gte": 0 } };
    measure("find {a: {$gte: 0}}, all by index", 20, &mut |_| {
        run(&FindRequest::new(ns.clone(), &filter))
    });
}
