//! An engine of Tenon with the one log in front, as the storage layer drives it: one entry per transaction is appended,
//! applied and published under a short mutex; the log is flushed by its own thread, or by the caller that asks for it.
//!
//! Document locks live above the engines and are not part of this. Index entries are not logged, as in the storage
//! layer: recovery makes them from the record's id.

use super::counting::{CountingFs, counting_fs};
use super::entry::{EntryOp, EntryWriter, read_entry};
use super::kind::{EngineKind, Layout};
use super::subject::{
    Counters, Durability, Replayed, Scanned, Session, SessionError, SessionResult, Subject, Table, TableUse,
};
use crate::data::index_key;
use crate::spec::RunSpec;
use anyhow::{Context, Result, anyhow};
use bytes::{Bytes, BytesMut};
use engine::{
    Batch, CloseMode, Direction, Engine, EngineError, FillLimits, KeyRange, Maintenance, Rows, Seq, Snapshot,
    StatValue, TableId, TableKind, TableSpec,
};
use oplog::{Log, LogError, LogOptions};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// The heap of a run.
#[cfg(feature = "btree")]
const HEAP: engine_btree::Heap = engine_btree::Heap {
    bytes: || {
        let heap = allocator::heap_use();
        engine_btree::HeapBytes {
            resident: heap.resident,
            idle: heap.idle(),
        }
    },
    give_back: allocator::give_back,
};

/// What engines that read blocks call their number.
const BLOCKS_READ: [&str; 2] = ["files.blocksRead", "blocks.read"];

/// See the module's documentation.
pub(super) struct TenonSubject {
    engine: Arc<dyn Engine>,
    log: Log,
    files: Arc<CountingFs>,
    /// Held from `append` to `publish`.
    commit: Mutex<()>,
    compressor: &'static str,
    replayed: Replayed,
}

impl TenonSubject {
    pub fn open(kind: EngineKind, layout: &Layout, spec: &RunSpec) -> Result<Self> {
        let files = Arc::new(counting_fs());
        let env = Env {
            fs: files.clone(),
            clock: Arc::new(vfs::SystemClock::new()),
            random: Arc::new(vfs::SystemRandom::new()),
        };
        let engine = open_engine(kind, &env, &layout.data, spec)?;
        let durable = engine.durable_seq();
        let mut log_options = LogOptions::new(&layout.log);
        log_options.buffer_bytes_max = LogOptions::buffer_bytes_for(spec.cache_bytes);
        let log = Log::open(&env, log_options, durable)?;
        let mut subject = Self {
            engine,
            log,
            files,
            commit: Mutex::new(()),
            compressor: spec.codec.name(),
            replayed: Replayed::default(),
        };
        subject.replayed = subject.replay(durable)?;
        Ok(subject)
    }

    /// Applies what the log has after the engine's mark.
    fn replay(&self, durable: Seq) -> Result<Replayed> {
        let mut indexes: Vec<Table> = Vec::new();
        for (id, spec) in self.engine.tables()? {
            if spec.kind == TableKind::Index {
                indexes.push(id.0 - 1);
            }
        }
        let mut replayed = Replayed::default();
        let mut batch = Batch::new();
        for entry in self.log.read_ahead(durable.next())? {
            let (seq, entry) = entry?;
            read_entry(&entry, &mut |op| {
                match op {
                    EntryOp::Create(table, table_use) => {
                        batch.create_table(table_id(table), self.table_spec(table, table_use));
                        if table_use == TableUse::Index {
                            indexes.push(table);
                        }
                    }
                    EntryOp::Put(table, key, value) => {
                        batch.put(table_id(table), entry.slice_ref(key), entry.slice_ref(value));
                        for index in &indexes {
                            let key = index_key(u64::from_be_bytes(*key), *index);
                            batch.put(table_id(*index), key.to_vec(), Bytes::new());
                        }
                    }
                    EntryOp::Add(table, key, amount) => batch.add(table_id(table), entry.slice_ref(key), amount),
                    EntryOp::Delete(table, key) => batch.delete(table_id(table), entry.slice_ref(key)),
                }
                Ok(())
            })?;
            while !self.engine.throttle() {}
            self.engine.apply(&batch, seq)?;
            self.engine.publish(seq);
            batch.clear();
            replayed.entries += 1;
        }
        Ok(replayed)
    }

    fn table_spec(&self, table: Table, table_use: TableUse) -> TableSpec {
        TableSpec {
            kind: match table_use {
                TableUse::Records => TableKind::Records,
                TableUse::Index => TableKind::Index,
            },
            name: format!("bench.t{table}"),
            // Indexes have what the engine gives them, as in WiredTiger under mongod.
            compressor: (table_use == TableUse::Records).then(|| self.compressor.into()),
        }
    }

    /// Log, engine, visibility: one transaction at a time.
    fn commit(&self, entry: &[u8], batch: &Batch) -> Result<Seq> {
        self.log.wait_for_room()?;
        while !self.engine.throttle() {}
        let _commit = self.commit.lock();
        let seq = self.log.append(&[entry])?;
        self.engine.apply(batch, seq)?;
        self.engine.publish(seq);
        Ok(seq)
    }
}

/// Ids begin at 1.
fn table_id(table: Table) -> TableId {
    TableId(table + 1)
}

impl Subject for TenonSubject {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(TenonSession {
            subject: self,
            snapshot: None,
            batch: Batch::new(),
            entry: EntryWriter::default(),
            arena: BytesMut::with_capacity(64 * 1024),
            rows: Rows::new(),
        }))
    }

    fn create_table(&self, table: Table, table_use: TableUse) -> Result<()> {
        let mut entry = EntryWriter::default();
        entry.create(table, table_use);
        let mut batch = Batch::new();
        batch.create_table(table_id(table), self.table_spec(table, table_use));
        self.commit(entry.finish(), &batch)?;
        Ok(())
    }

    fn bulk_load(&self, table: Table, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        let seq = self.log.last_seq();
        let loaded = self.engine.bulk_load(table_id(table), rows, seq)?;
        self.engine.publish(seq);
        Ok(loaded)
    }

    fn checkpoint(&self) -> Result<()> {
        self.log.flush()?;
        let durable = self.engine.checkpoint()?;
        self.log.purge(durable)?;
        Ok(())
    }

    fn flush_log(&self) -> Result<()> {
        self.log.flush()?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        match self.engine.maintain(&Maintenance::Compact(None)) {
            Ok(_) => Ok(()),
            Err(EngineError::Unsupported { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn table_bytes(&self, table: Table) -> Result<u64> {
        Ok(self.engine.table_stats(table_id(table))?.storage_bytes)
    }

    fn counters(&self) -> Result<Counters> {
        let mut blocks_read = None;
        self.engine.stats(&mut |name, value| {
            if let (true, StatValue::Number(number)) = (BLOCKS_READ.contains(&name), value) {
                blocks_read = u64::try_from(number).ok();
            }
        });
        Ok(Counters {
            log_bytes: self.log.stats().written_bytes,
            syncs: self.files.watch().syncs(),
            blocks_read,
        })
    }

    fn replayed(&self) -> Replayed {
        self.replayed
    }

    fn close(&self) -> Result<()> {
        self.log.flush()?;
        self.engine.close(CloseMode::Checkpoint)?;
        self.log.close().context("closing the log")
    }
}

struct TenonSession<'s> {
    subject: &'s TenonSubject,
    snapshot: Option<Arc<dyn Snapshot>>,
    batch: Batch,
    entry: EntryWriter,
    /// Keys and values of the batch; its memory comes back when the batch is cleared.
    arena: BytesMut,
    rows: Rows,
}

impl TenonSession<'_> {
    fn snapshot(&mut self) -> SessionResult<&Arc<dyn Snapshot>> {
        if self.snapshot.is_none() {
            self.snapshot = Some(self.subject.engine.snapshot()?);
        }
        Ok(self.snapshot.as_ref().expect("taken above"))
    }

    fn keep(&mut self, bytes: &[u8]) -> Bytes {
        self.arena.extend_from_slice(bytes);
        self.arena.split().freeze()
    }

    fn forget(&mut self) {
        self.snapshot = None;
        self.batch.clear();
        self.entry.clear();
    }
}

/// Record tables have 8-byte keys; index entries are longer and not logged.
fn is_record(key: &[u8]) -> bool {
    key.len() == 8
}

impl Session for TenonSession<'_> {
    fn begin(&mut self) -> SessionResult<()> {
        self.forget();
        Ok(())
    }

    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> SessionResult<bool> {
        let found = self.snapshot()?.get(table_id(table), key)?;
        value.clear();
        if let Some(found) = &found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> SessionResult<()> {
        if is_record(key) {
            self.entry.put(table, key, value);
        }
        let (key, value) = (self.keep(key), self.keep(value));
        self.batch.put(table_id(table), key, value);
        Ok(())
    }

    fn add(&mut self, table: Table, key: &[u8], amount: i64) -> SessionResult<()> {
        if is_record(key) {
            self.entry.add(table, key, amount);
        }
        let key = self.keep(key);
        self.batch.add(table_id(table), key, amount);
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> SessionResult<()> {
        if is_record(key) {
            self.entry.delete(table, key);
        }
        let key = self.keep(key);
        self.batch.delete(table_id(table), key);
        Ok(())
    }

    fn scan(&mut self, table: Table) -> SessionResult<Scanned> {
        let snapshot = self.snapshot()?.clone();
        let mut cursor = snapshot.cursor(table_id(table), KeyRange::all(), Direction::Forward)?;
        let mut scanned = Scanned::default();
        while cursor.fill(&mut self.rows, FillLimits::default())? {
            scanned.rows += self.rows.len() as u64;
            for row in 0..self.rows.len() {
                let value = self.rows.value(row);
                scanned.value_bytes += value.len() as u64;
                scanned.sum += u64::from(value.first().copied().unwrap_or(0));
            }
        }
        Ok(scanned)
    }

    fn commit(&mut self, durability: Durability) -> SessionResult<()> {
        self.snapshot = None;
        if self.batch.is_empty() {
            return Ok(());
        }
        let entry = self.entry.finish();
        if entry.is_empty() {
            return Err(anyhow!("index entries without their record cannot be recovered").into());
        }
        let seq = self.subject.commit(entry, &self.batch)?;
        self.forget();
        if durability == Durability::Synced {
            self.subject.log.wait_durable(seq)?;
        }
        Ok(())
    }

    fn abandon(&mut self) -> SessionResult<()> {
        self.forget();
        Ok(())
    }
}

impl From<EngineError> for SessionError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<LogError> for SessionError {
    fn from(error: LogError) -> Self {
        Self::Failed(error.into())
    }
}

fn open_engine(kind: EngineKind, env: &Env, directory: &Path, spec: &RunSpec) -> Result<Arc<dyn Engine>> {
    env.fs.create_directory_all(directory)?;
    match kind {
        EngineKind::InMemory => {
            let options = engine_inmemory::InMemoryOptions::default();
            Ok(Arc::new(engine_inmemory::InMemoryEngine::open(
                env, directory, options,
            )?))
        }
        EngineKind::Mmapv1 => {
            let options = engine_mmapv1::Mmapv1Options::with_cache(spec.cache_bytes);
            Ok(Arc::new(engine_mmapv1::Mmapv1Engine::open(env, directory, options)?))
        }
        #[cfg(feature = "rocksdb")]
        EngineKind::Rocksdb => {
            let options = engine_rocksdb::RocksOptions {
                cache_size_bytes: spec.cache_bytes,
                compression: spec.codec.name().into(),
                ..engine_rocksdb::RocksOptions::default()
            };
            Ok(Arc::new(engine_rocksdb::RocksEngine::open(env, directory, options)?))
        }
        #[cfg(feature = "btree")]
        EngineKind::Btree => {
            let options = engine_btree::BtreeOptions {
                cache_bytes: spec.cache_bytes,
                collection_compressor: spec.codec,
                heap: Some(HEAP),
                direct_io: spec.direct_io,
                ..engine_btree::BtreeOptions::default()
            };
            Ok(Arc::new(engine_btree::BtreeEngine::open(env, directory, options)?))
        }
        EngineKind::Betree => {
            let options = engine_betree::BetreeOptions {
                cache_bytes: spec.cache_bytes,
                collection_compressor: spec.codec,
                direct_io: spec.direct_io,
                ..engine_betree::BetreeOptions::default()
            };
            Ok(Arc::new(engine_betree::BetreeEngine::open(env, directory, options)?))
        }
        #[cfg(not(all(feature = "rocksdb", feature = "btree")))]
        other => anyhow::bail!(
            "{other:?} is not in this build (it was asked for {} bytes of cache)",
            spec.cache_bytes
        ),
    }
}
