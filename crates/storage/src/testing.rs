//! What this crate's tests start from: a storage on the in-memory engine and a simulated disk.

use crate::{
    Check, CollectionGuard, IndexSpec, LockMode, Namespace, Operation, Predicate, PredicateCompiler, RecordId,
    RecordIds, Storage, StorageError, StorageOptions,
};
use bson::raw::RawBsonRef;
use bson::{Document, RawDocument, RawDocumentBuf, rawdoc};
use engine::Engine;
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use oplog::{EngineAhead, Log, LogMode, LogOptions, Retention};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::{Env, FileSystem, Random, SeededRandom, SimulatedClock, SimulatedFs};

/// `{p: true}` and the like: the fields of the filter have to be equal.
struct Equal(RawDocumentBuf);

impl Predicate for Equal {
    fn matches(&self, document: &RawDocument, check: &Check<'_>) -> Result<bool, StorageError> {
        check()?;
        let is_equal = |(name, value)| document.get(name).ok().flatten() == Some(value);
        Ok(self.0.iter().flatten().all(is_equal))
    }
}

pub(crate) struct EqualCompiler;

impl PredicateCompiler for EqualCompiler {
    fn compile(
        &self,
        filter: &RawDocument,
        _collator: Option<Arc<dyn keys::Collator>>,
    ) -> Result<Arc<dyn Predicate>, String> {
        Ok(Arc::new(Equal(filter.to_owned())))
    }
}

/// The engines that repeat a run exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    InMemory,
    Btree,
}

/// A simulated machine to open storages on.
pub(crate) struct Machine {
    pub(crate) fs: SimulatedFs,
    pub(crate) clock: Arc<SimulatedClock>,
    random: Arc<SeededRandom>,
    pub(crate) kind: Kind,
    pub(crate) retention: Retention,
    /// Length of a frame of the log: what is written and torn as one.
    pub(crate) frame_bytes: Option<usize>,
    /// Bytes of the log in memory that are waited for, and those with which it takes nothing more.
    pub(crate) buffer_bytes: Option<(usize, usize)>,
    pub(crate) journal: bool,
    pub(crate) background: bool,
    /// The B-tree has a file for each database.
    pub(crate) directory_per_db: bool,
    /// The last entry found by the newest `open`.
    pub(crate) found: AtomicU64,
    pub(crate) is_encrypted: bool,
}

impl Machine {
    pub(crate) fn new(seed: u64) -> Self {
        let fs = SimulatedFs::new(seed);
        for directory in ["/db/inMemory", "/db/btree", "/db/journal"] {
            fs.create_directory_all(Path::new(directory)).expect("created");
        }
        for directory in ["/db/inMemory", "/db/btree", "/db/journal", "/db", "/"] {
            fs.sync_directory(Path::new(directory)).expect("synced");
        }
        Self {
            fs,
            clock: Arc::new(SimulatedClock::new(1_700_000_000_000)),
            random: Arc::new(SeededRandom::new(seed)),
            kind: Kind::InMemory,
            retention: Retention::default(),
            frame_bytes: None,
            buffer_bytes: None,
            journal: true,
            background: false,
            directory_per_db: false,
            found: AtomicU64::new(0),
            // Whatever is tested holds for encrypted files, too.
            is_encrypted: seed % 2 == 1,
        }
    }

    pub(crate) fn env(&self) -> Env {
        let env = Env {
            fs: Arc::new(self.fs.clone()),
            clock: self.clock.clone(),
            random: self.random.clone(),
        };
        match self.is_encrypted {
            true => engine_tests::encrypted(&env),
            false => env,
        }
    }

    pub(crate) fn open(&self) -> Result<Arc<Storage>, StorageError> {
        self.open_with(|_| {})
    }

    /// As `open`, with options changed.
    pub(crate) fn open_with(&self, change: impl FnOnce(&mut StorageOptions)) -> Result<Arc<Storage>, StorageError> {
        let env = self.env();
        let engine = self.open_engine(&env)?;
        let log = self.log_options();
        let durable = engine.durable_seq();
        let log = Arc::new(Log::open(&env, log, durable).map_err(StorageError::Log)?);
        self.found.store(log.last_seq().max(durable).0, Ordering::SeqCst);
        let mut options = StorageOptions::new(Arc::new(EqualCompiler));
        options.background = self.background;
        options.journal = self.journal;
        options.sync_period = Duration::ZERO;
        change(&mut options);
        Storage::open(env, engine, log, options)
    }

    fn open_engine(&self, env: &Env) -> Result<Arc<dyn Engine>, StorageError> {
        Ok(match self.kind {
            Kind::InMemory => Arc::new(InMemoryEngine::open(
                env,
                Path::new("/db/inMemory"),
                InMemoryOptions::default(),
            )?),
            Kind::Btree => {
                let options = BtreeOptions {
                    cache_bytes: BtreeOptions::CACHE_BYTES_MIN,
                    record_leaf_bytes: 1 << 10,
                    index_leaf_bytes: 1 << 10,
                    threads: Some(0),
                    directory_per_db: self.directory_per_db,
                    ..BtreeOptions::default()
                };
                Arc::new(BtreeEngine::open(env, Path::new("/db/btree"), options)?)
            }
        })
    }

    pub(crate) fn log_options(&self) -> LogOptions {
        let mut log = LogOptions::new("/db/journal");
        log.segment_bytes = oplog::SEGMENT_BYTES_MIN;
        log.background = false;
        log.retention = self.retention;
        log.frame_bytes = self.frame_bytes.unwrap_or(log.frame_bytes);
        let buffer_bytes = (log.buffer_bytes_max, log.buffer_bytes_refused);
        (log.buffer_bytes_max, log.buffer_bytes_refused) = self.buffer_bytes.unwrap_or(buffer_bytes);
        (log.mode, log.engine_ahead) = match self.journal {
            true => (LogMode::On, EngineAhead::Refuse),
            false => (LogMode::Off, EngineAhead::BeginBehind),
        };
        log
    }

    pub(crate) fn operation(&self) -> Operation {
        Operation::new(self.clock.clone(), 1)
    }
}

/// The seed that the variable gives, or any; printed, so that a failure can be repeated.
pub(crate) fn seed_of(variable: &str) -> u64 {
    let given = std::env::var(variable).ok();
    let seed = given.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let mut bytes = [0; 8];
        vfs::SystemRandom::new().fill(&mut bytes);
        u64::from_le_bytes(bytes)
    });
    println!("{variable}={seed}");
    seed
}

/// A number below `below`.
pub(crate) fn pick(random: &SeededRandom, below: u64) -> u64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    u64::from_le_bytes(bytes) % below
}

/// A record id as models have it: its number, or the whole number that is the `_id` of the document.
pub(crate) fn number_of(id: &RecordId) -> u64 {
    match id {
        RecordId::Number(number) => *number,
        RecordId::Key(key) => {
            let values = keys::key::decode_key(key, &[], keys::KeyOrdering::ASCENDING).expect("a key");
            let number = values.into_iter().next().flatten().and_then(|value| value.as_i32());
            number.expect("a whole number") as u64
        }
    }
}

/// The record id that a model has as a number, see [`number_of`].
pub(crate) fn record_of(ids: RecordIds, number: u64) -> RecordId {
    match ids {
        RecordIds::Numbers => RecordId::Number(number),
        RecordIds::Keys => {
            let mut key = Vec::new();
            let id = RawBsonRef::Int32(i32::try_from(number).expect("models count up to there"));
            keys::key::encode_value(&mut key, id, keys::FieldOrder::Ascending, None);
            RecordId::Key(key.into())
        }
    }
}

/// What makes a collection a clustered one.
pub(crate) fn clustered_options() -> RawDocumentBuf {
    rawdoc! { "clusteredIndex": { "v": 2, "key": { "_id": 1 }, "name": "_id_", "unique": true } }
}

pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::new("test", name).expect("a valid name")
}

/// `index("a_1", {a: 1}, {unique: true})`.
pub(crate) fn index(name: &str, key: RawDocumentBuf, options: RawDocumentBuf) -> IndexSpec {
    let mut spec = rawdoc! { "v": 2, "key": key, "name": name };
    options
        .iter()
        .flatten()
        .for_each(|(name, value)| spec.append(name, value));
    IndexSpec::from_document(&spec).expect("a valid specification")
}

/// The calls most tests make.
pub(crate) trait Calls {
    fn make(&self, op: &Operation, name: &str, options: RawDocumentBuf);
    fn locked(&self, op: &Operation, name: &str) -> CollectionGuard;
    fn put(&self, op: &Operation, name: &str, document: RawDocumentBuf) -> Result<RecordId, StorageError>;
    fn replace(&self, op: &Operation, name: &str, id: RecordId, new: RawDocumentBuf) -> Result<(), StorageError>;
    fn remove(&self, op: &Operation, name: &str, id: RecordId) -> Result<(), StorageError>;
    fn all(&self, name: &str) -> Vec<(RecordId, Document)>;
    fn assert_valid(&self, op: &Operation, name: &str);
}

impl Calls for Arc<Storage> {
    fn make(&self, op: &Operation, name: &str, options: RawDocumentBuf) {
        self.create_collection(op, &ns(name), &options).expect("created");
    }

    fn locked(&self, op: &Operation, name: &str) -> CollectionGuard {
        let guard = self
            .collection(op, &ns(name), LockMode::IntentExclusive)
            .expect("locked");
        guard.expect("the collection exists")
    }

    fn put(&self, op: &Operation, name: &str, document: RawDocumentBuf) -> Result<RecordId, StorageError> {
        let guard = self.locked(op, name);
        let mut unit = self.begin_write(op);
        let id = unit.insert(&guard, &document)?;
        unit.commit()?;
        Ok(id)
    }

    fn replace(&self, op: &Operation, name: &str, id: RecordId, new: RawDocumentBuf) -> Result<(), StorageError> {
        let guard = self.locked(op, name);
        loop {
            let mut unit = self.begin_write(op);
            let old = unit.lock_record(&guard, &id)?.expect("the record exists");
            match unit.update(
                &guard,
                &id,
                RawDocument::from_bytes(old.as_ref()).expect("stored"),
                &new,
            ) {
                Err(StorageError::WouldWait) => {}
                other => return other.and_then(|()| unit.commit().map(drop)),
            }
        }
    }

    fn remove(&self, op: &Operation, name: &str, id: RecordId) -> Result<(), StorageError> {
        let guard = self.locked(op, name);
        let mut unit = self.begin_write(op);
        if let Some(old) = unit.lock_record(&guard, &id)? {
            unit.delete(&guard, &id, RawDocument::from_bytes(old.as_ref()).expect("stored"))?;
        }
        unit.commit().map(drop)
    }

    fn all(&self, name: &str) -> Vec<(RecordId, Document)> {
        let collection = self.catalog().collection(&ns(name)).expect("the collection exists");
        let view = self.read().expect("a view");
        let mut cursor = view
            .records(
                &collection,
                Bound::Unbounded,
                Bound::Unbounded,
                crate::Direction::Forward,
            )
            .expect("a cursor");
        let (mut batch, mut all) = (crate::RecordBatch::new(), Vec::new());
        while cursor.fill(&mut batch, crate::FillLimits::default()).expect("filled") {
            for row in 0..batch.len() {
                let document = RawDocument::from_bytes(batch.document(row)).expect("stored");
                all.push((batch.id(row), Document::try_from(document).expect("stored")));
            }
        }
        all
    }

    fn assert_valid(&self, op: &Operation, name: &str) {
        let report = self.validate(op, &ns(name), true).expect("validated");
        assert!(report.is_valid(), "{name}: {report:#?}");
        let collection = self.catalog().collection(&ns(name)).expect("the collection exists");
        assert_eq!(collection.count(), report.n_records, "the count in memory");
    }
}
