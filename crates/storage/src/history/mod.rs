//! The log as history: what clients changed, in order, with names instead of tables.
//!
//! [`Storage::history`] gives a reader. What was read lately is kept, decoded once, for all readers ([`Recent`]): those
//! that follow the end of the log share one reader of it, and one that lies further back reads by itself until it has
//! caught up. Nobody reads, nothing is decoded.
//!
//! A unit of the log is one point of cluster time to its writer. As documents of at most 16 MiB it may be several: its
//! writer reserves a point for each ([`size::documents_max`]), of which the last is the unit's own.

#[cfg(test)]
mod beginning_tests;
pub(crate) mod commands;
mod recent;
pub(crate) mod size;
#[cfg(test)]
mod tests;
mod unit;

pub use recent::HistoryReader;
pub(crate) use recent::Recent;
pub use size::DOCUMENT_OPERATION_BYTES_MAX;
pub use unit::{HistoryChange, HistoryOperation, HistorySession, HistoryUnit, document_key};

use crate::cluster_time::ClusterTime;
use crate::entry::EntryReader;
use crate::mutations::mutated;
use crate::operation::Operation;
use crate::storage::Storage;
use crate::{CappedLimits, CollectionStats, StorageError};
use engine::Seq;
use oplog::{Log, LogError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::{Await, Waker};

/// What the log is read as.
pub const OPLOG: &str = "local.oplog.rs";

/// What of the log a reader is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryExtent {
    /// What has taken effect.
    Applied,
    /// What no crash takes back.
    Durable,
}

impl Storage {
    /// What is logged is read as history from now on, by change streams and as `local.oplog.rs`.
    pub fn keep_history(&self) {
        self.keeps_history.store(true, Ordering::Relaxed);
    }

    /// See [`Storage::keep_history`].
    pub fn keeps_history(&self) -> bool {
        self.keeps_history.load(Ordering::Relaxed)
    }

    /// The log's figures as those of a capped collection. An entry counts as one document.
    pub(crate) fn history_stats(&self) -> CollectionStats {
        let log = self.log.stats();
        // What cannot be read is counted.
        let first = self.history_first().unwrap_or_else(|_| self.log.first_seq());
        CollectionStats {
            count: self.last_seq().next().0.saturating_sub(first.0),
            data_bytes: self.log.written_bytes(first),
            storage_bytes: self.log.segment_bytes(),
            memory_bytes: log.buffered_bytes,
            capped: Some(CappedLimits {
                size_bytes: self.log.retained_bytes(),
                max_documents: None,
            }),
            ..CollectionStats::default()
        }
    }

    /// No entry before this one is told: it is gone, or what its tables were called is forgotten.
    pub(crate) fn history_floor(&self) -> Seq {
        self.log.first_seq().max(self.catalog.names_from())
    }

    /// The first entry of the first unit that can be told; the one to come where there is none. The log may begin
    /// within a chain: of that one nothing is told.
    pub fn history_first(&self) -> Result<Seq, StorageError> {
        loop {
            let floor = self.history_floor();
            if let Some(first) = self.recent.first_unit_behind(floor) {
                return Ok(first);
            }
            match self.find_unit_behind(floor) {
                Err(StorageError::HistoryLost) if self.history_floor() > floor => {}
                found => return found,
            }
        }
    }

    fn find_unit_behind(&self, floor: Seq) -> Result<Seq, StorageError> {
        let mut reader = self
            .log
            .read_appended(floor)
            .map_err(|error| self.history_error(error))?;
        while let Some((seq, bytes)) = reader.next().transpose().map_err(|error| self.history_error(error))? {
            let chain_first = EntryReader::new(seq, &bytes)?.header().chain_first;
            if chain_first.is_none_or(|first| first >= floor) {
                self.recent.set_first_unit_behind(floor, seq);
                return Ok(seq);
            }
        }
        Ok(reader.next_seq())
    }

    /// The first entry of the unit that an entry belongs to.
    pub fn history_unit_start(&self, seq: Seq) -> Result<Seq, StorageError> {
        let mut reader = self.log.read_appended(seq).map_err(|error| self.history_error(error))?;
        match reader.next().transpose().map_err(|error| self.history_error(error))? {
            Some((at, bytes)) => Ok(EntryReader::new(at, &bytes)?.header().chain_first.unwrap_or(at)),
            None => Ok(seq),
        }
    }

    /// The last entry that history may be read up to: names of tables are known up to there.
    pub fn history_end(&self, extent: HistoryExtent) -> Seq {
        let installed = self.pipeline.installed();
        match extent {
            HistoryExtent::Applied => installed,
            HistoryExtent::Durable if mutated!(ShowsUndurable) => installed,
            HistoryExtent::Durable => installed.min(self.log.durable_seq()),
        }
    }

    /// A reader of the units from the entry at `from` on. Without a journal there is no history.
    pub fn history(&self, from: Seq, extent: HistoryExtent) -> HistoryReader {
        HistoryReader::new(self.me.upgrade().expect("it is borrowed"), from, extent)
    }

    /// The first entry that was made at `time` or later; the one to be shown next when there is none yet.
    ///
    /// Errors: [`StorageError::HistoryLost`] when entries of that time may have been recycled.
    pub fn history_position(&self, time: ClusterTime) -> Result<Seq, StorageError> {
        loop {
            let first = self.history_first()?;
            match self.search_history(first, time) {
                // What was looked at went meanwhile; what is wanted may be there.
                Err(StorageError::HistoryLost) if self.history_first()? > first => {}
                found => return found,
            }
        }
    }

    fn search_history(&self, first: Seq, time: ClusterTime) -> Result<Seq, StorageError> {
        let (mut low, mut high) = (first, self.history_end(HistoryExtent::Applied).next());
        // Of a log that begins with the first entry ever made nothing is lost.
        if low > Seq(1) && (low >= high || self.time_of(low)? > time) {
            return match self.applied().time < time {
                true => Ok(high),
                false => Err(StorageError::HistoryLost),
            };
        }
        // Invariant: entries before `low` are earlier, those from `high` on are not.
        while low < high {
            let middle = Seq(low.0 + (high.0 - low.0) / 2);
            match self.time_of(middle)? < time {
                true => low = middle.next(),
                false => high = middle,
            }
        }
        Ok(low)
    }

    /// When an entry was made that is in the log.
    pub fn entry_time(&self, seq: Seq) -> Option<ClusterTime> {
        self.time_of(seq).ok()
    }

    fn time_of(&self, seq: Seq) -> Result<ClusterTime, StorageError> {
        let mut reader = self.log.read_appended(seq).map_err(|error| self.history_error(error))?;
        match reader.next().transpose().map_err(|error| self.history_error(error))? {
            Some((at, bytes)) => Ok(EntryReader::new(at, &bytes)?.header().time.cluster),
            None => Err(StorageError::HistoryLost),
        }
    }

    /// Waits until there is history behind `seq`, for `timeout` at most, and says whether there is.
    pub fn wait_history(&self, op: &Operation, seq: Seq, timeout: Duration) -> Result<bool, StorageError> {
        let until = op.clock().monotonic() + timeout;
        let interrupted = || op.check_now().err();
        let go_on = || interrupted().is_none() && op.clock().monotonic() < until;
        let is_there = self
            .log
            .wait_beyond(seq, &go_on)
            .map_err(|error| self.log_error(error))?;
        // On disk, and about to take effect.
        let is_there = is_there && self.wait_applied(op, seq.next(), None, until)?;
        match interrupted() {
            Some(reason) if !is_there => Err(reason.into()),
            _ => Ok(is_there),
        }
    }

    /// Has `waker` called when there may be history behind `seq`.
    pub fn call_at_history(&self, seq: Seq, waker: &Arc<Waker>) -> Result<Await, StorageError> {
        let durable = self.log.call_when_durable(waker);
        let durable = durable.map_err(|error| self.log_error(error))?;
        if self.log.durable_seq() <= seq {
            return Ok(Await::Later(durable));
        }
        // On disk, and about to take effect.
        let applied = self.pipeline.wait_list.enter(waker);
        Ok(match self.pipeline.installed() <= seq {
            true => Await::Later(applied),
            false => Await::Now,
        })
    }

    fn history_error(&self, error: LogError) -> StorageError {
        match error {
            LogError::Purged { .. } => StorageError::HistoryLost,
            // Nothing that is needed is lost: old entries are read for whoever asks, who would ask again at each start.
            error @ LogError::Io { .. } => StorageError::Log(error),
            error => self.log_error(error),
        }
    }
}

/// A place in a log, and when its entry was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPoint {
    /// The entry.
    pub seq: Seq,
    /// By cluster time.
    pub time: ClusterTime,
    /// By the clock, in milliseconds since the Unix epoch.
    pub wall_ms: i64,
}

/// The last entry, from `from` on, before the first of which `is_within` says no, and that one; of a log that nobody
/// writes.
///
/// Errors: those of reading, and entries that cannot be read.
pub fn log_points(
    log: &Log,
    from: Seq,
    is_within: impl Fn(&LogPoint) -> bool,
) -> Result<(Option<LogPoint>, Option<LogPoint>), StorageError> {
    let mut last = None;
    for entry in log.read(from).map_err(StorageError::Log)? {
        let (seq, bytes) = entry.map_err(StorageError::Log)?;
        let time = EntryReader::new(seq, &bytes)?.header().time;
        let point = LogPoint {
            seq,
            time: time.cluster,
            wall_ms: time.wall_ms,
        };
        if !is_within(&point) {
            return Ok((last, Some(point)));
        }
        last = Some(point);
    }
    Ok((last, None))
}
