//! CPU cost of the storage layer's everyday calls on `inMemory`, one thread:
//! `cargo run --release -p storage --example storage_cost [documents] [directory]`. With a directory the log is on.

use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use engine::{Engine, Seq};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogMode, LogOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{LockMode, Namespace, NoPartialIndexes, Operation, Storage, StorageOptions};
use vfs::{Clock, Env, RealFs, SystemClock, SystemRandom};

fn document(id: i32) -> RawDocumentBuf {
    rawdoc! { "_id": id, "a": id % 1000, "s": "x".repeat(1050) }
}

fn open(directory: Option<PathBuf>) -> Result<Arc<Storage>, Box<dyn std::error::Error>> {
    let env = Env {
        fs: Arc::new(RealFs),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    let engine = InMemoryEngine::open(
        &env,
        Path::new("/nowhere"),
        InMemoryOptions {
            ephemeral: true,
            ..InMemoryOptions::default()
        },
    )?;
    let mut log = LogOptions::new(directory.clone().unwrap_or_default());
    log.mode = if directory.is_some() { LogMode::On } else { LogMode::Off };
    let log = Log::open(&env, log, engine.durable_seq().max(Seq::ZERO))?;
    Ok(Storage::open(
        env,
        Arc::new(engine),
        Arc::new(log),
        StorageOptions::new(Arc::new(NoPartialIndexes)),
    )?)
}

/// Runs `call` so many times and prints the time of each of its `steps`.
fn measure(what: &str, times: i32, steps: i32, mut call: impl FnMut(i32)) {
    let clock = SystemClock::new();
    (0..times).for_each(&mut call);
    let each = clock.monotonic().as_secs_f64() * 1e6 / f64::from(times) / f64::from(steps);
    println!("{what:40} {each:8.2} us");
}

/// Several threads that update one document.
fn hot_document(storage: &Arc<Storage>, ns: &Namespace, threads: u32, times: i32) {
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let op = Operation::new(Arc::new(SystemClock::new()), thread);
                let guard = storage
                    .collection(&op, ns, LockMode::IntentExclusive)
                    .expect("locked")
                    .expect("exists");
                for _ in 0..times {
                    let mut unit = storage.begin_write(&op);
                    let old = unit
                        .lock_record(&guard, &storage::RecordId::Number(1))
                        .expect("locked")
                        .expect("exists");
                    let old = RawDocument::from_bytes(old.as_ref()).expect("ok");
                    unit.update(&guard, &storage::RecordId::Number(1), old, old)
                        .expect("updated");
                    unit.commit().expect("committed");
                }
            });
        }
    });
    let each = clock.monotonic().as_secs_f64() * 1e6 / f64::from(times) / f64::from(threads);
    println!("{:40} {each:8.2} us", format!("update one document, {threads} threads"));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let n: i32 = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let storage = open(arguments.next().map(PathBuf::from))?;
    let op = Operation::new(Arc::new(SystemClock::new()), 1);
    let ns = Namespace::parse("test.c")?;
    storage.create_collection(&op, &ns, &rawdoc! {})?;
    let documents: Vec<_> = (0..1000).map(document).collect();

    let mut bytes = documents[0].clone().into_bytes();
    measure("insert, one per unit", n, 1, |id| {
        bytes[8 + 1..13].copy_from_slice(&id.to_le_bytes());
        let document = RawDocument::from_bytes(&bytes).expect("a document");
        let guard = storage
            .collection(&op, &ns, LockMode::IntentExclusive)
            .expect("locked")
            .expect("exists");
        let mut unit = storage.begin_write(&op);
        unit.insert(&guard, document).expect("inserted");
        unit.commit().expect("committed");
    });
    measure("insert, 1000 per unit, each", n / 1000, 1000, |batch| {
        let guard = storage
            .collection(&op, &ns, LockMode::IntentExclusive)
            .expect("locked")
            .expect("exists");
        let mut unit = storage.begin_write(&op);
        for i in 0..1000 {
            bytes[8 + 1..13].copy_from_slice(&(n + batch * 1000 + i).to_le_bytes());
            let document = RawDocument::from_bytes(&bytes).expect("a document");
            unit.insert(&guard, document).expect("inserted");
        }
        unit.commit().expect("committed");
    });
    let mut key = Vec::new();
    measure("find by _id", n, 1, |i| {
        let id = (i64::from(i) * 7919 % i64::from(n)) as i32;
        let guard = storage
            .collection(&op, &ns, LockMode::IntentShared)
            .expect("locked")
            .expect("exists");
        key.clear();
        keys::key::encode_value(&mut key, RawBsonRef::Int32(id), keys::FieldOrder::Ascending, None);
        let view = storage.read().expect("a view");
        let record = view.find_unique(guard.id_index(), &key).expect("read").expect("found");
        assert!(view.record(&guard, &record).expect("read").is_some());
    });
    measure("update by record id", n, 1, |i| {
        let id = (i64::from(i) * 7919 % i64::from(n)) as u64 + 1;
        let guard = storage
            .collection(&op, &ns, LockMode::IntentExclusive)
            .expect("locked")
            .expect("exists");
        let mut unit = storage.begin_write(&op);
        let old = unit
            .lock_record(&guard, &storage::RecordId::Number(id))
            .expect("locked")
            .expect("exists");
        let mut new = old.to_vec();
        new[13 + 3] ^= 1;
        let (old, new) = (
            RawDocument::from_bytes(old.as_ref()).expect("ok"),
            RawDocument::from_bytes(&new).expect("ok"),
        );
        unit.update(&guard, &storage::RecordId::Number(id), old, new)
            .expect("updated");
        unit.commit().expect("committed");
    });
    let clock = SystemClock::new();
    let guard = storage.collection(&op, &ns, LockMode::IntentShared)?.ok_or("exists")?;
    let mut cursor = storage.read()?.records(
        &guard,
        std::ops::Bound::Unbounded,
        std::ops::Bound::Unbounded,
        storage::Direction::Forward,
    )?;
    let (mut batch, mut rows) = (storage::RecordBatch::new(), 0);
    while cursor.fill(&mut batch, storage::FillLimits::default())? {
        rows += batch.len();
    }
    println!(
        "{:40} {:8.2} us",
        "scan, each",
        clock.monotonic().as_secs_f64() * 1e6 / rows as f64
    );
    drop(guard);
    for threads in [1, 2, 8] {
        hot_document(&storage, &ns, threads, 100_000 / threads as i32);
    }
    storage.close(false)?;
    Ok(())
}
