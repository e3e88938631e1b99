//! What a document costs the executor: scans, groups, joins, sorts in memory and on disk, and point reads, in
//! nanoseconds of this thread's processor time. A million documents of 300 bytes, unless told otherwise, in the cache;
//! files are in memory.
//!
//! `cargo run --release -p query --example executor_cost [btree | inMemory] [part of a name] [documents]`

use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use engine::Engine;
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogMode, LogOptions};
use query::matcher::MatcherCompiler;
use query::{
    AggregateRequest, BLOCKING_BYTES_MAX, BlockingLimits, DocumentSink, ExecContext, ExecState, FindRequest, SinkState,
};
use spill::SpillSpace;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use storage::{IndexSpec, LockMode, Namespace, Operation, Storage, StorageOptions};
use vfs::{Env, FileSystem, SeededRandom, SimulatedFs, SystemClock};

const DOCUMENTS: i32 = 1_000_000;
const DOCUMENT_BYTES: usize = 300;
/// Documents of the collection that is joined.
const JOINED: i32 = 10_000;
const POINT_READS: i32 = 200_000;
const CACHE_BYTES: u64 = 4 << 30;
/// Memory of what has to spill: a tenth of the documents.
fn spilling_bytes(documents: i32) -> u64 {
    documents as u64 * DOCUMENT_BYTES as u64 / 10
}

struct Count(u64);

impl DocumentSink for Count {
    fn push(&mut self, _: &RawDocument) -> SinkState {
        self.0 += 1;
        SinkState::Continue
    }
}

/// Nanoseconds that this thread was on a processor.
fn processor_ns() -> Result<u64, Box<dyn Error>> {
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(figures.split(' ').next().ok_or("no figure")?.parse()?)
}

/// A number below `below`, far from those of neighbouring `i`.
fn scattered(i: i32, below: i32) -> i32 {
    (i64::from(i) * 7919 % i64::from(below)) as i32
}

struct Bench {
    storage: Arc<Storage>,
    op: Arc<Operation>,
    disk: Arc<SpillSpace>,
    only: String,
    documents: i32,
}

impl Bench {
    fn open(engine: &str, only: String, documents: i32) -> Result<Self, Box<dyn Error>> {
        let clock = Arc::new(SystemClock::new());
        let fs = SimulatedFs::new(1);
        for directory in ["/db/engine", "/db/journal", "/db/_tmp"] {
            fs.create_directory_all(Path::new(directory))?;
        }
        let env = Env {
            fs: Arc::new(fs),
            clock: clock.clone(),
            random: Arc::new(SeededRandom::new(1)),
        };
        let directory = Path::new("/db/engine");
        let engine: Arc<dyn Engine> = match engine {
            "btree" => {
                let options = BtreeOptions {
                    cache_bytes: CACHE_BYTES,
                    ..BtreeOptions::default()
                };
                Arc::new(BtreeEngine::open(&env, directory, options)?)
            }
            "inMemory" => Arc::new(InMemoryEngine::open(&env, directory, InMemoryOptions::default())?),
            other => return Err(format!("an engine is btree or inMemory, not {other}").into()),
        };
        let mut log = LogOptions::new("/db/journal");
        log.mode = LogMode::Off;
        log.background = false;
        let log = Arc::new(Log::open(&env, log, engine::Seq(0))?);
        let mut options = StorageOptions::new(Arc::new(MatcherCompiler));
        options.background = false;
        options.journal = false;
        let disk = SpillSpace::open(env.fs.clone(), "/db/_tmp".into())?;
        let bench = Self {
            storage: Storage::open(env, engine, log, options)?,
            op: Arc::new(Operation::new(clock, 1)),
            disk,
            only,
            documents,
        };
        bench.load("c", documents, |i| {
            rawdoc! {
                "_id": i, "k": scattered(i, documents), "city": i % 50, "amount": f64::from(i % 997),
                "customer": scattered(i, JOINED), "name": format!("name {}", i % 5000),
            }
        })?;
        bench.load(
            "joined",
            JOINED,
            |i| rawdoc! { "_id": i, "region": i % 7, "number": i, "parent": i / 4 - 1 },
        )?;
        bench.storage.checkpoint()?;
        Ok(bench)
    }

    fn load(&self, name: &str, count: i32, document: impl Fn(i32) -> RawDocumentBuf) -> Result<(), Box<dyn Error>> {
        let ns = Namespace::new("test", name)?;
        self.storage.create_collection(&self.op, &ns, &RawDocumentBuf::new())?;
        if name == "c" {
            let spec = IndexSpec::from_document(&rawdoc! { "v": 2, "key": { "k": 1 }, "name": "k_1" })?;
            self.storage.create_indexes(&self.op, &ns, &[spec])?;
        }
        for first in (0..count).step_by(1000) {
            let guard = self.storage.collection(&self.op, &ns, LockMode::IntentExclusive)?;
            let guard = guard.ok_or("it was created")?;
            let mut unit = self.storage.begin_write(&self.op);
            for i in first..count.min(first + 1000) {
                let mut document = document(i);
                let bytes = document.as_bytes().len();
                document.append(
                    bson::raw::cstr!("pad"),
                    "x".repeat(DOCUMENT_BYTES.saturating_sub(bytes + 10)),
                );
                unit.insert(&guard, &document)?;
            }
            unit.commit()?;
        }
        Ok(())
    }

    fn context(&self) -> ExecContext<'_> {
        ExecContext {
            storage: &self.storage,
            op: &self.op,
            transaction: None,
            pinned: None,
            sources: None,
            settings: None,
            scripts: None,
        }
    }

    /// Runs `work`, which answers how many results it has, and tells what each of `units` cost.
    fn measure(
        &self,
        name: &str,
        units: i32,
        work: impl FnOnce() -> Result<u64, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        if !name.contains(&self.only) {
            return Ok(());
        }
        let start = processor_ns()?;
        let results = work()?;
        let each = (processor_ns()? - start) as f64 / f64::from(units);
        println!(
            "{name:<44} {each:>7.0} ns  {:>10.0} a second  {results} results",
            1e9 / each
        );
        Ok(())
    }

    fn pipeline(&self, name: &str, stages: &[RawDocumentBuf], memory_bytes: u64) -> Result<(), Box<dyn Error>> {
        self.pipeline_on("c", self.documents, name, stages, memory_bytes)
    }

    fn pipeline_on(
        &self,
        collection: &str,
        units: i32,
        name: &str,
        stages: &[RawDocumentBuf],
        memory_bytes: u64,
    ) -> Result<(), Box<dyn Error>> {
        let mut pipeline = RawArrayBuf::new();
        stages.iter().for_each(|stage| pipeline.push(stage.clone()));
        let request = AggregateRequest {
            blocking: BlockingLimits {
                sort_bytes: memory_bytes,
                group_bytes: memory_bytes,
                bucket_auto_bytes: memory_bytes,
                window_bytes: memory_bytes,
                densify_bytes: memory_bytes,
                disk: Some(self.disk.clone()),
            },
            ..AggregateRequest::new(Namespace::new("test", collection)?, "test", &pipeline)
        };
        self.measure(name, units, || {
            let context = self.context();
            let mut executor = query::aggregate(&context, &request)?;
            let mut count = Count(0);
            while executor.next_documents(&context, &mut count)? == ExecState::More {}
            Ok(count.0)
        })
    }

    /// Joins of all documents with the small collection, and of a few of the small collection with all documents.
    fn joins(&self, memory: u64) -> Result<(), Box<dyn Error>> {
        let regions = rawdoc! { "$group": { "_id": "$j.region", "n": { "$sum": 1 } } };
        let by_equality = |field: &str| {
            rawdoc! { "$lookup": { "from": "joined", "localField": "customer", "foreignField": field, "as": "j" } }
        };
        let correlated = |from: &str, local: &str, predicate: RawDocumentBuf, rest: Option<RawDocumentBuf>| {
            let mut stages = RawArrayBuf::new();
            stages.push(rawdoc! { "$match": { "$expr": predicate } });
            rest.into_iter().for_each(|stage| stages.push(stage));
            rawdoc! { "$lookup": { "from": from, "let": { "v": local }, "pipeline": stages, "as": "j" } }
        };
        let equal = |field: &str| rawdoc! { "$eq": [format!("${field}"), "$$v"] };
        let region = rawdoc! { "$project": { "region": 1 } };
        for (way, field) in [("an index", "_id"), ("a table", "number")] {
            self.pipeline(
                &format!("$lookup by equality, {way}"),
                &[by_equality(field), regions.clone()],
                memory,
            )?;
            self.pipeline(
                &format!("$lookup by $expr, {way}"),
                &[correlated("joined", "$customer", equal(field), None), regions.clone()],
                memory,
            )?;
            self.pipeline(
                &format!("$lookup by $expr and $project, {way}"),
                &[
                    correlated("joined", "$customer", equal(field), Some(region.clone())),
                    regions.clone(),
                ],
                memory,
            )?;
            let graph = rawdoc! { "$graphLookup": {
                "from": "joined", "startWith": "$customer", "connectFromField": "parent", "connectToField": field,
                "as": "j", "maxDepth": 3,
            } };
            self.pipeline(
                &format!("$graphLookup of 4 levels, {way}"),
                &[graph, regions.clone()],
                memory,
            )?;
        }
        let range = rawdoc! { "$and": [{ "$gt": ["$_id", "$$v"] }, { "$lt": ["$_id", { "$add": ["$$v", 5] }] }] };
        let some = [
            rawdoc! { "$limit": 2000 },
            correlated("joined", "$customer", range, None),
        ];
        self.pipeline_on("c", 2000, "$lookup by an $expr that bounds nothing", &some, memory)?;
        let point = rawdoc! { "$match": { "_id": 7 } };
        let sum = rawdoc! { "$project": { "n": { "$add": ["$number", "$$v"] } } };
        let mut stages = RawArrayBuf::new();
        [point, sum].into_iter().for_each(|stage| stages.push(stage));
        let same = rawdoc! {
            "$lookup": { "from": "joined", "let": { "v": "$customer" }, "pipeline": stages, "as": "j" }
        };
        self.pipeline("$lookup of the same document", &[same, regions], memory)?;
        let few = [
            rawdoc! { "$limit": 20 },
            correlated("c", "$_id", equal("customer"), None),
        ];
        self.pipeline_on("joined", 20, "$lookup of 20 by $expr in all documents", &few, memory)
    }

    fn points(&self, name: &str, filter: impl Fn(i32) -> RawDocumentBuf) -> Result<(), Box<dyn Error>> {
        let ns = Namespace::new("test", "c")?;
        self.measure(name, POINT_READS, || {
            let mut count = Count(0);
            for i in 0..POINT_READS {
                let filter = filter(scattered(i, self.documents));
                let context = self.context();
                let request = FindRequest {
                    limit: Some(1),
                    ..FindRequest::new(ns.clone(), &filter)
                };
                let mut executor = query::find(&context, &request)?;
                while executor.next_documents(&context, &mut count)? == ExecState::More {}
            }
            Ok(count.0)
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let engine = arguments.next().unwrap_or_else(|| "btree".to_owned());
    let only = arguments.next().unwrap_or_default();
    let documents = arguments.next().map_or(Ok(DOCUMENTS), |documents| documents.parse())?;
    let bench = Bench::open(&engine, only, documents)?;
    let memory = BLOCKING_BYTES_MAX;
    let by_amount = rawdoc! { "$sort": { "amount": 1, "_id": -1 } };
    let none = rawdoc! { "$match": { "_id": { "$lt": 0 } } };
    bench.pipeline(
        "scan, 1 of 1,000 matches",
        &[rawdoc! { "$match": { "amount": 7 } }],
        memory,
    )?;
    bench.pipeline(
        "$group by 50 values, $sum",
        &[rawdoc! { "$group": { "_id": "$city", "n": { "$sum": "$amount" } } }],
        memory,
    )?;
    bench.joins(memory)?;
    bench.pipeline(
        "$sort, the first 100",
        &[by_amount.clone(), rawdoc! { "$limit": 100 }],
        memory,
    )?;
    bench.pipeline(
        "$sort of all at ten times its memory",
        std::slice::from_ref(&by_amount),
        spilling_bytes(documents),
    )?;
    bench.pipeline(
        "$group by _id at ten times its memory",
        &[
            rawdoc! { "$group": { "_id": "$_id", "all": { "$push": "$$ROOT" } } },
            none,
        ],
        spilling_bytes(documents),
    )?;
    bench.points("find {_id: x}", |x| rawdoc! { "_id": x })?;
    bench.points("find {k: x}, by an index", |x| rawdoc! { "k": x })
}
