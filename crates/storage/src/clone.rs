//! A copy of all data for a member that has none: the state at one position of the log, table by table.
//!
//! Tables hold rows whose bytes no engine chooses, index rows included, so the copy suits every engine. The state is
//! that of a snapshot: exact at its position, from which on the copy follows the log. Counts are not copied from their
//! table, which is behind, but as they are at the position.

use crate::StorageError;
use crate::catalog::rows::{self, AS_OF_KEY, CATALOG, STATISTICS};
use crate::cluster_time::ClusterTime;
use crate::membership::CONFIGURATION;
use crate::storage::Storage;
use bson::RawDocument;
use engine::{Batch, Direction, Engine, FillLimits, KeyRange, Op, Rows, Seq, Snapshot, TableId, TableSpec};
use oplog::PinnedLog;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What a copy begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneHeader {
    /// The position whose state it is.
    pub seq: Seq,
    /// The term of the entry there, and when it was made.
    pub term: u64,
    /// See `term`.
    pub time: ClusterTime,
    /// All tables.
    pub tables: Vec<(TableId, TableSpec)>,
    /// For each collection its table, documents and bytes.
    pub counts: Vec<(TableId, i64, i64)>,
}

/// The state that is copied. While it exists, the log keeps what comes behind it.
pub struct CloneSource {
    header: CloneHeader,
    snapshot: Arc<dyn Snapshot>,
    _log: PinnedLog,
}

impl Storage {
    /// Pins the newest state for a copy.
    ///
    /// # Errors
    /// Those of reading; [`StorageError::HistoryLost`] when the log cannot be kept.
    pub fn begin_clone(&self) -> Result<CloneSource, StorageError> {
        // A file takes a while to make: not while nothing is applied.
        self.log.prepare_segment().map_err(|error| self.log_error(error))?;
        // Nothing is applied meanwhile: the tables, the counts and the snapshot are those of one position.
        let applied = self.pipeline.applying.lock();
        let seq = self.last_seq();
        let snapshot = self.engine.snapshot()?;
        let tables = self.engine.tables()?;
        let counts = self.catalog.all_collections().into_iter().map(|collection| {
            let shared = &collection.shared;
            (
                collection.table(),
                shared.count.load(Ordering::Acquire),
                shared.data_bytes.load(Ordering::Acquire),
            )
        });
        let header = CloneHeader {
            seq,
            term: self.log.term_of(seq).map_err(|error| self.log_error(error))?,
            time: self.pipeline.applied_time(),
            tables,
            counts: counts.collect(),
        };
        let log = self.log.pin(seq).map_err(|error| self.log_error(error))?;
        drop(applied);
        Ok(CloneSource {
            header,
            snapshot,
            _log: log,
        })
    }
}

impl CloneSource {
    /// See [`CloneHeader`].
    pub fn header(&self) -> &CloneHeader {
        &self.header
    }

    /// The rows of a table behind a key, about so many bytes; none at its end.
    ///
    /// # Errors
    /// Those of reading; the engine may have given the snapshot up.
    pub fn rows(&self, table: TableId, after: Option<&[u8]>, bytes_max: usize) -> Result<Rows, StorageError> {
        let range = KeyRange {
            start: after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec())),
            end: Bound::Unbounded,
        };
        let mut cursor = self.snapshot.clone().cursor(table, range, Direction::Forward)?;
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: usize::MAX,
            bytes_max,
        };
        cursor.fill(&mut rows, limits)?;
        Ok(rows)
    }
}

/// Where the rows of a copy come from: one after another, over a connection of its own.
pub trait CloneRows {
    /// Puts the next rows of a table, behind `after`, into `rows`; none at its end.
    ///
    /// # Errors
    /// A sentence: the source is gone.
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), String>;
}

/// Opens as many of those as are used at a time.
pub trait CloneRowsSource: Sync {
    /// For one thread.
    ///
    /// # Errors
    /// A sentence: the source is gone.
    fn open(&self) -> Result<Box<dyn CloneRows + '_>, String>;
}

/// How a copy is made.
#[derive(Clone, Copy, Debug)]
pub struct FillOptions {
    /// The configuration alone is copied.
    pub is_arbiter: bool,
    /// Tables that are loaded at a time.
    pub threads: usize,
    /// Data after which what is there is made durable: a copy that is cut short goes on behind it.
    pub group_bytes: u64,
}

/// Hands out a table's rows one by one.
struct OneByOne<'r> {
    rows: &'r mut dyn CloneRows,
    table: TableId,
    batch: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    last: Option<Vec<u8>>,
    /// Another thread's table failed.
    is_over: &'r AtomicBool,
    failed: Option<String>,
}

impl OneByOne<'_> {
    /// A key that does not rise has the engine refuse the load, so that no table is there in part.
    fn fail(&mut self, reason: String) -> Option<(Vec<u8>, Vec<u8>)> {
        self.failed = Some(reason);
        self.last.take().map(|key| (key, Vec::new()))
    }
}

impl Iterator for OneByOne<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.batch.next() {
            return Some(row);
        }
        if self.failed.is_some() {
            return None;
        }
        if self.is_over.load(Ordering::Acquire) {
            return self.fail("another table could not be copied".to_owned());
        }
        let mut batch = Vec::new();
        if let Err(reason) = self.rows.next(self.table, self.last.as_deref(), &mut batch) {
            return self.fail(reason);
        }
        self.last = Some(batch.last()?.0.clone());
        self.batch = batch.into_iter();
        self.batch.next()
    }
}

/// What an arbiter takes of a copy: the configuration of the replica set, and what the catalog says of that.
struct ConfigurationOnly<'r> {
    rows: Box<dyn CloneRows + 'r>,
    /// The tables of the configuration.
    tables: &'r [TableId],
}

impl ConfigurationOnly<'_> {
    fn takes(&self, key: &[u8], value: &[u8]) -> bool {
        match key {
            rows::META_KEY => true,
            [rows::COLLECTION_PREFIX, ..] => {
                RawDocument::from_bytes(value).is_ok_and(|row| row.get_str("ns").is_ok_and(|ns| ns == CONFIGURATION))
            }
            [rows::MULTIKEY_PREFIX, a, b, c, d, ..] => {
                self.tables.contains(&TableId(u32::from_be_bytes([*a, *b, *c, *d])))
            }
            _ => false,
        }
    }
}

impl CloneRows for ConfigurationOnly<'_> {
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), String> {
        if table != CATALOG {
            return self.rows.next(table, after, rows);
        }
        // A batch of which nothing is taken is not the table's end.
        let mut after = after.map(<[u8]>::to_vec);
        loop {
            self.rows.next(table, after.as_deref(), rows)?;
            after = match rows.last() {
                Some((key, _)) => Some(key.clone()),
                None => return Ok(()),
            };
            rows.retain(|(key, value)| self.takes(key, value));
            if !rows.is_empty() {
                return Ok(());
            }
        }
    }
}

struct SourceOfConfiguration<'s> {
    source: &'s dyn CloneRowsSource,
    tables: Vec<TableId>,
}

impl CloneRowsSource for SourceOfConfiguration<'_> {
    fn open(&self) -> Result<Box<dyn CloneRows + '_>, String> {
        let (rows, tables) = (self.source.open()?, &*self.tables);
        Ok(Box::new(ConfigurationOnly { rows, tables }))
    }
}

/// Fills an engine with a copy, durably. The engine is new, or has been filled in part by a call with the same header
/// and options that was cut short: then it goes on behind what that made durable.
///
/// # Errors
/// The source failed ([`StorageError::CloneFailed`]), or the engine did.
pub fn fill_from_clone(
    engine: &dyn Engine,
    header: &CloneHeader,
    source: &dyn CloneRowsSource,
    options: FillOptions,
) -> Result<(), StorageError> {
    if !options.is_arbiter {
        return fill(engine, header, source, options);
    }
    let of_configuration = |spec: &TableSpec| spec.name == CONFIGURATION;
    let mut header = header.clone();
    header
        .tables
        .retain(|(table, spec)| [CATALOG, STATISTICS].contains(table) || of_configuration(spec));
    let tables: Vec<TableId> = header.tables.iter().map(|(table, _)| *table).collect();
    header.counts.retain(|(table, ..)| tables.contains(table));
    fill(engine, &header, &SourceOfConfiguration { source, tables }, options)
}

/// The tables of a copy by what is made durable at a time, with the position of each group: rising from that of the
/// tables' creation, the last one the copy's own.
fn groups(header: &CloneHeader, created: u64, group_bytes: u64) -> Vec<(Seq, Vec<TableId>)> {
    let bytes_of = |table: TableId| {
        header
            .counts
            .iter()
            .find(|(of, ..)| *of == table)
            .map_or(0, |count| count.2)
    };
    let mut groups = vec![Vec::new()];
    let mut bytes = 0;
    for (table, _) in &header.tables {
        if bytes >= group_bytes {
            groups.push(Vec::new());
            bytes = 0;
        }
        bytes += u64::try_from(bytes_of(*table)).unwrap_or(0);
        groups.last_mut().expect("there is one").push(*table);
    }
    let count = groups.len() as u64;
    if created + count > header.seq.0 {
        return vec![(header.seq, groups.concat())];
    }
    let numbered = groups.into_iter().zip(created + 1..);
    numbered
        .map(|(tables, seq)| match seq == created + count {
            true => (header.seq, tables),
            false => (Seq(seq), tables),
        })
        .collect()
}

fn fill(
    engine: &dyn Engine,
    header: &CloneHeader,
    source: &dyn CloneRowsSource,
    options: FillOptions,
) -> Result<(), StorageError> {
    let begun = engine.durable_seq();
    // A batch for each database, which an engine may keep in files of its own. Each was made by an entry at least.
    let databases = creation(engine, header);
    let created = databases.len() as u64;
    for (batch, seq) in databases.iter().zip((1..).map(Seq)).filter(|(_, seq)| *seq > begun) {
        if let Some(Op::CreateTable(_, spec)) = batch.ops().first() {
            engine.prepare_tables(std::slice::from_ref(spec))?;
        }
        engine.apply(batch, seq)?;
        engine.publish(seq);
    }
    for (seq, tables) in groups(header, created, options.group_bytes) {
        if engine.durable_seq() >= seq {
            continue;
        }
        let load = Load {
            engine,
            header,
            source,
            seq,
            goes_on: begun > Seq::ZERO,
        };
        load.tables(&tables, options.threads)?;
        engine.publish(seq);
        let durable = engine.checkpoint()?;
        if durable != seq {
            return Err(StorageError::CloneFailed(format!(
                "the engine keeps the state at {durable:?}, not at {seq:?}"
            )));
        }
    }
    Ok(())
}

/// What makes the tables, database by database.
fn creation(engine: &dyn Engine, header: &CloneHeader) -> Vec<Batch> {
    let compressors = engine.info().capabilities.compressors;
    let mut databases = BTreeMap::<&str, Batch>::new();
    for (table, spec) in &header.tables {
        let database = spec.name.split_once('.').map_or("", |(database, _)| database);
        let spec = TableSpec {
            // Another engine's word.
            compressor: spec
                .compressor
                .clone()
                .filter(|name| compressors.contains(&name.as_str())),
            ..spec.clone()
        };
        databases.entry(database).or_default().create_table(*table, spec);
    }
    databases.into_values().collect()
}

/// What tables are loaded with, all at one position.
struct Load<'l> {
    engine: &'l dyn Engine,
    header: &'l CloneHeader,
    source: &'l dyn CloneRowsSource,
    seq: Seq,
    /// Tables may be there that were loaded before the copy was cut short: whole, as every engine promises.
    goes_on: bool,
}

impl Load<'_> {
    /// Loads tables, some at a time.
    fn tables(&self, tables: &[TableId], threads: usize) -> Result<(), StorageError> {
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure = Mutex::new(None);
        let work = || {
            let take = || tables.get(next.fetch_add(1, Ordering::Relaxed)).copied();
            if let Err(error) = self.some(&take, &is_over) {
                // The first is the cause. In this order: the others fail because of it.
                failure.lock().get_or_insert(error);
                is_over.store(true, Ordering::Release);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.clamp(1, tables.len().max(1)) {
                let thread = std::thread::Builder::new().name("clone-tables".to_owned());
                // One that cannot start is not missed: this one takes all that is left.
                let _ = thread.spawn_scoped(scope, work);
            }
            work();
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Loads the tables that are left to one thread.
    fn some(&self, take: &dyn Fn() -> Option<TableId>, is_over: &AtomicBool) -> Result<(), StorageError> {
        let mut rows = self.source.open().map_err(StorageError::CloneFailed)?;
        while let Some(table) = take() {
            if self.goes_on && !self.is_empty(table)? {
                continue;
            }
            if table == STATISTICS {
                let mut counts = statistics(self.header).into_iter();
                self.engine.bulk_load(table, &mut counts, self.seq)?;
                continue;
            }
            let mut iterator = OneByOne {
                rows: &mut *rows,
                table,
                batch: Vec::new().into_iter(),
                last: None,
                is_over,
                failed: None,
            };
            let loaded = self.engine.bulk_load(table, &mut iterator, self.seq);
            if let Some(reason) = iterator.failed {
                return Err(StorageError::CloneFailed(reason));
            }
            loaded?;
        }
        Ok(())
    }

    fn is_empty(&self, table: TableId) -> Result<bool, StorageError> {
        let mut cursor = self
            .engine
            .snapshot()?
            .cursor(table, KeyRange::all(), Direction::Forward)?;
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 0,
        };
        Ok(!cursor.fill(&mut Rows::new(), limits)?)
    }
}

/// The counts at the position of the copy, in the order of keys.
fn statistics(header: &CloneHeader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of = |(table, count, bytes): &(TableId, i64, i64)| {
        let row = rows::counts_row(*count, *bytes, header.seq);
        (rows::counts_key(*table).to_vec(), row)
    };
    let mut all: Vec<_> = header.counts.iter().map(of).collect();
    all.push((AS_OF_KEY.to_vec(), rows::as_of_row(header.seq, header.time)));
    all.sort();
    all
}

#[cfg(test)]
#[path = "clone_tests.rs"]
mod tests;
