//! CPU and log bytes of single inserts, updates and point reads through the storage layer, on one thread: `cargo run
//! --release -p storage --example write_path -- [btree|inMemory] [documents]`, files below the current directory.
//!
//! Each workload runs five times; the least CPU of a run is what it costs without disturbance by others.

#![allow(clippy::unwrap_used)]

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use engine::Engine;
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::{CollectionGuard, LockMode, Namespace, NoPartialIndexes, Operation, RecordId, Storage, StorageOptions};
use vfs::{Env, RealFs, SeededRandom, SystemClock};

const ROUNDS: usize = 5;

/// Fields of 100 bytes, as YCSB has them; `changed` is the value of one.
fn document(id: u64, changed: &str) -> RawDocumentBuf {
    let mut document = rawdoc! { "_id": format!("user{id:019}") };
    for field in 0..10 {
        let name = bson::raw::CString::try_from(format!("field{field}")).unwrap();
        let value = if field == 4 {
            changed.to_owned()
        } else {
            "v".repeat(100)
        };
        document.append(name, value);
    }
    document
}

fn open(name: &str, directory: &Path) -> Arc<Storage> {
    let env = Env {
        fs: Arc::new(RealFs),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SeededRandom::new(1)),
    };
    env.fs.create_directory_all(&directory.join("engine")).unwrap();
    let engine: Arc<dyn Engine> = match name {
        "btree" => {
            let options = BtreeOptions::default();
            Arc::new(BtreeEngine::open(&env, &directory.join("engine"), options).unwrap())
        }
        _ => Arc::new(InMemoryEngine::open(&env, &directory.join("engine"), InMemoryOptions::default()).unwrap()),
    };
    let log = Log::open(&env, LogOptions::new(directory.join("journal")), engine.durable_seq()).unwrap();
    let mut options = StorageOptions::new(Arc::new(NoPartialIndexes));
    options.background = false;
    options.sync_period = Duration::ZERO;
    Storage::open(env, engine, Arc::new(log), options).unwrap()
}

/// CPU of this thread, in nanoseconds.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn measure(name: &str, storage: &Storage, documents: u64, mut work: impl FnMut(usize, u64)) {
    let (mut best, before) = (u64::MAX, storage.log().stats());
    for round in 0..ROUNDS {
        let start = cpu_ns();
        (0..documents).for_each(|n| work(round, n));
        best = best.min(cpu_ns() - start);
    }
    let after = storage.log().stats();
    let bytes = (after.entry_bytes - before.entry_bytes) as f64 / (documents * ROUNDS as u64) as f64;
    let cpu = best as f64 / documents as f64;
    println!("{name}: {cpu:.0} ns of CPU, {bytes:.0} bytes of log entries");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let engine = arguments.next().unwrap_or_else(|| "btree".to_owned());
    let documents = arguments.next().map_or(100_000, |number| number.parse().unwrap());
    let directory = tempfile::tempdir_in(".").unwrap();
    let storage = open(&engine, directory.path());
    let (ns, op) = (
        Namespace::new("bench", "c").unwrap(),
        Operation::new(storage.env().clock.clone(), 1),
    );
    storage.create_collection(&op, &ns, &rawdoc! {}).unwrap();
    let lock = |mode| -> CollectionGuard { storage.collection(&op, &ns, mode).unwrap().unwrap() };
    let values: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(|letter| letter.repeat(100)).into();
    measure("insert", &storage, documents, |round, n| {
        let document = document(round as u64 * documents + n, &values[5]);
        let guard = lock(LockMode::IntentExclusive);
        let mut unit = storage.begin_write(&op);
        unit.insert(&guard, &document).unwrap();
        unit.commit().unwrap();
    });
    measure("update", &storage, documents, |round, n| {
        let guard = lock(LockMode::IntentExclusive);
        let mut unit = storage.begin_write(&op);
        let id = RecordId::Number(n * 7919 % documents + 1);
        let old = unit.lock_record(&guard, &id).unwrap().unwrap();
        let new = document(id.number() - 1, &values[round % 5]);
        unit.update(&guard, &id, RawDocument::from_bytes(old.as_ref()).unwrap(), &new)
            .unwrap();
        unit.commit().unwrap();
    });
    measure(
        "making the document of an insert or update",
        &storage,
        documents,
        |round, n| {
            std::hint::black_box(document(n, &values[round % 5]));
        },
    );
    measure("read", &storage, documents, |_, n| {
        let guard = lock(LockMode::IntentShared);
        let view = storage.read().unwrap();
        let id = RecordId::Number(n * 7919 % documents + 1);
        std::hint::black_box(view.record(&guard, &id).unwrap().unwrap());
    });
    storage.close(false).unwrap();
}
