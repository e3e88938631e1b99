//! What the tests of plans start from: a storage on the in-memory engine without a journal.

use crate::exec::{DocumentSink, ExecContext, ExecState, PlanExecutor, SinkState};
use crate::matcher::MatcherCompiler;
use bson::{Document, RawDocument, RawDocumentBuf, rawdoc};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{Log, LogMode, LogOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::{IndexSpec, LockMode, Namespace, Operation, RecordId, Storage, StorageError, StorageOptions};
use vfs::{Env, FileSystem, Random, SeededRandom, SimulatedClock, SimulatedFs};

pub(super) struct Fixture {
    pub(super) storage: Arc<Storage>,
    pub(super) clock: Arc<SimulatedClock>,
}

impl Fixture {
    pub(super) fn new(seed: u64) -> Self {
        let fs = SimulatedFs::new(seed);
        for directory in ["/db/inMemory", "/db/journal"] {
            fs.create_directory_all(Path::new(directory)).expect("created");
        }
        let clock = Arc::new(SimulatedClock::new(1_700_000_000_000));
        let env = Env {
            fs: Arc::new(fs),
            clock: clock.clone(),
            random: Arc::new(SeededRandom::new(seed)),
        };
        let engine = InMemoryEngine::open(&env, Path::new("/db/inMemory"), InMemoryOptions::default()).expect("engine");
        let mut log = LogOptions::new("/db/journal");
        log.mode = LogMode::Off;
        log.background = false;
        let log = Arc::new(Log::open(&env, log, engine::Seq(0)).expect("log"));
        let mut options = StorageOptions::new(Arc::new(MatcherCompiler));
        options.background = false;
        options.journal = false;
        options.sync_period = Duration::ZERO;
        let storage = Storage::open(env, Arc::new(engine), log, options).expect("storage");
        Self { storage, clock }
    }

    pub(super) fn op(&self) -> Arc<Operation> {
        Arc::new(Operation::new(self.clock.clone(), 1))
    }

    pub(super) fn create(&self, name: &str, options: RawDocumentBuf) {
        self.storage
            .create_collection(&self.op(), &ns(name), &options)
            .expect("created");
    }

    pub(super) fn index(&self, name: &str, key: RawDocumentBuf, options: RawDocumentBuf) -> Result<(), StorageError> {
        let index_name = key
            .iter()
            .flatten()
            .map(|(field, value)| format!("{}_{value:?}", field.as_str()))
            .collect::<String>();
        let mut spec = rawdoc! { "v": 2, "key": key, "name": format!("{index_name}{options:?}") };
        options
            .iter()
            .flatten()
            .for_each(|(name, value)| spec.append(name, value));
        let spec = IndexSpec::from_document(&spec)?;
        self.storage.create_indexes(&self.op(), &ns(name), &[spec]).map(|_| ())
    }

    pub(super) fn insert(&self, name: &str, document: &RawDocument) -> Result<RecordId, StorageError> {
        let op = self.op();
        let guard = self
            .storage
            .collection(&op, &ns(name), LockMode::IntentExclusive)?
            .expect("the collection exists");
        let mut unit = self.storage.begin_write(&op);
        let id = unit.insert(&guard, document)?;
        unit.commit()?;
        Ok(id)
    }

    pub(super) fn replace(&self, name: &str, id: RecordId, new: &RawDocument) {
        self.try_replace(name, id, new).expect("replaced");
    }

    /// Replaces a document, or leaves it where an index refuses the new one.
    pub(super) fn try_replace(&self, name: &str, id: RecordId, new: &RawDocument) -> Result<(), StorageError> {
        let op = self.op();
        let guard = self
            .storage
            .collection(&op, &ns(name), LockMode::IntentExclusive)?
            .expect("there");
        let mut unit = self.storage.begin_write(&op);
        let old = unit.lock_record(&guard, &id)?.expect("the record exists");
        unit.update(&guard, &id, RawDocument::from_bytes(&old).expect("stored"), new)?;
        unit.commit()?;
        Ok(())
    }

    pub(super) fn delete(&self, name: &str, id: RecordId) {
        let op = self.op();
        let guard = self
            .storage
            .collection(&op, &ns(name), LockMode::IntentExclusive)
            .expect("locked")
            .expect("there");
        let mut unit = self.storage.begin_write(&op);
        let old = unit
            .lock_record(&guard, &id)
            .expect("locked")
            .expect("the record exists");
        unit.delete(&guard, &id, RawDocument::from_bytes(&old).expect("stored"))
            .expect("deleted");
        unit.commit().expect("committed");
    }

    /// Runs `use_it` with a context.
    pub(super) fn with<T>(&self, use_it: impl FnOnce(&ExecContext<'_>) -> T) -> T {
        use_it(&self.context(&self.op()))
    }

    /// Where plans of an operation run.
    pub(super) fn context<'a>(&'a self, op: &'a Arc<Operation>) -> ExecContext<'a> {
        ExecContext {
            storage: &self.storage,
            op,
            transaction: None,
            pinned: None,
            sources: None,
            settings: None,
            scripts: None,
        }
    }

    /// All results, in batches of `batch`.
    pub(super) fn all(&self, executor: &mut PlanExecutor, batch: usize) -> Vec<RawDocumentBuf> {
        let mut documents = Vec::new();
        while self.batch(executor, batch, &mut documents) == ExecState::More {}
        documents
    }

    /// One batch, added to `documents`.
    pub(super) fn batch(
        &self,
        executor: &mut PlanExecutor,
        batch: usize,
        documents: &mut Vec<RawDocumentBuf>,
    ) -> ExecState {
        self.with(|context| {
            executor
                .next_documents(context, &mut Limited(documents, batch))
                .expect("results")
        })
    }
}

/// Takes so many results.
pub(super) struct Limited<'s>(pub(super) &'s mut Vec<RawDocumentBuf>, pub(super) usize);

impl DocumentSink for Limited<'_> {
    fn push(&mut self, document: &RawDocument) -> SinkState {
        self.0.push(document.to_owned());
        self.1 -= 1;
        if self.1 == 0 {
            SinkState::Full
        } else {
            SinkState::Continue
        }
    }
}

pub(super) fn ns(name: &str) -> Namespace {
    Namespace::new("test", name).expect("a valid name")
}

pub(super) fn plain(document: &RawDocument) -> Document {
    Document::try_from(document).expect("valid BSON")
}

/// A random number below `below`.
pub(crate) fn pick(random: &SeededRandom, below: u64) -> u64 {
    random.next_u64() % below
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many cases a random test takes instead of these: `TENON_RANDOM_FACTOR` times as many.
pub(crate) fn times(cases: u64) -> u64 {
    cases * number("TENON_RANDOM_FACTOR").unwrap_or(1)
}

/// The same for the tests whose cases proptest makes.
pub(crate) fn generated(cases: u32) -> proptest::test_runner::Config {
    proptest::test_runner::Config::with_cases(times(cases.into()) as u32)
}

/// The seeds of a property test: `times` so many from the first one, or as `SEED` and `CASES` say. Printed.
pub(crate) fn seeds(cases: u64) -> std::ops::Range<u64> {
    let first = number("SEED").unwrap_or(1);
    let seeds = first..first + number("CASES").unwrap_or_else(|| times(cases));
    println!("seeds {seeds:?}");
    seeds
}
