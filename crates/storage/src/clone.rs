//! A copy of all data for a member that has none: the state at one position of the log, table by table.
//!
//! Tables hold rows whose bytes no engine chooses, index rows included, so the copy suits every engine. The state is
//! that of a snapshot: exact at its position, from which on the copy follows the log. Counts are not copied from their
//! table, which is behind, but as they are at the position.

use crate::StorageError;
use crate::catalog::rows::{self, AS_OF_KEY, STATISTICS};
use crate::cluster_time::ClusterTime;
use crate::storage::Storage;
use engine::{Batch, Direction, Engine, FillLimits, KeyRange, Op, Rows, Seq, Snapshot, TableId, TableSpec};
use oplog::PinnedLog;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

/// Where the rows of a copy come from.
pub trait CloneRows {
    /// Puts the next rows of a table, behind `after`, into `rows`; none at its end.
    ///
    /// # Errors
    /// A sentence: the source is gone.
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), String>;
}

/// Hands out a table's rows one by one.
struct OneByOne<'r> {
    rows: &'r mut dyn CloneRows,
    table: TableId,
    batch: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    last: Option<Vec<u8>>,
    failed: Option<String>,
}

impl Iterator for OneByOne<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(row) = self.batch.next() {
            return Some(row);
        }
        let mut batch = Vec::new();
        if let Err(reason) = self.rows.next(self.table, self.last.as_deref(), &mut batch) {
            self.failed = Some(reason);
            return None;
        }
        self.last = Some(batch.last()?.0.clone());
        self.batch = batch.into_iter();
        self.batch.next()
    }
}

/// Fills a new engine with a copy, durably. Of a copy that failed everything is to be thrown away.
///
/// # Errors
/// The source failed ([`StorageError::CloneFailed`]), or the engine did.
pub fn fill_from_clone(
    engine: &dyn Engine,
    header: &CloneHeader,
    rows: &mut dyn CloneRows,
) -> Result<(), StorageError> {
    let compressors = engine.info().capabilities.compressors;
    // A batch for each database, which an engine may keep in files of its own. Each was made by an entry at least.
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
    for (place, batch) in databases.values().enumerate() {
        if let Some(Op::CreateTable(_, spec)) = batch.ops().first() {
            engine.prepare_table(spec)?;
        }
        let seq = Seq(place as u64 + 1);
        engine.apply(batch, seq)?;
        engine.publish(seq);
    }
    for (table, _) in &header.tables {
        if *table == STATISTICS {
            engine.bulk_load(STATISTICS, &mut statistics(header).into_iter(), header.seq)?;
            continue;
        }
        let mut iterator = OneByOne {
            rows,
            table: *table,
            batch: Vec::new().into_iter(),
            last: None,
            failed: None,
        };
        engine.bulk_load(*table, &mut iterator, header.seq)?;
        if let Some(reason) = iterator.failed {
            return Err(StorageError::CloneFailed(reason));
        }
    }
    engine.publish(header.seq);
    let durable = engine.checkpoint()?;
    match durable == header.seq {
        true => Ok(()),
        false => Err(StorageError::CloneFailed(format!(
            "the engine keeps the state at {durable:?}, not at {:?}",
            header.seq
        ))),
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
