//! Sorting by key bytes, in memory as far as that goes and in temporary files beyond.
//!
//! 1. Rows are gathered until they outgrow the memory, or until the operation gets no more.
//! 2. They are sorted and written as one run; the memory goes back. 1 and 2 repeat.
//! 3. While there are more runs than the memory has room to read at once, neighbours are merged into longer ones.
//! 4. The rest is merged as it is asked for.
//!
//! With a limit no more than so many rows are held, in a heap whose top is the worst of them. Only when these outgrow
//! the memory they are spilled, too; as soon as a single run has as many rows as are wanted, its last key lets no worse
//! row in.
//!
//! Rows of equal keys stay in their order of arrival: inside a run, and between runs, whose order is that of their
//! rows.

mod merge;
#[cfg(test)]
mod tests;

use crate::error::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::limits::BlockingLimits;
use bson::Document;
use merge::Merge;
use spill::{Run, RunWriter, SpillWriter};
use std::collections::BinaryHeap;
use storage::Spilling;

/// Bookkeeping of one row in memory, about.
const ROW_BYTES: usize = 96;
/// Runs that are read at once: at least and at most.
const FAN_IN: std::ops::RangeInclusive<usize> = 2..=256;

/// What goes through a sort with its key.
pub(crate) trait Payload: Sized {
    /// Bytes of memory.
    fn memory_bytes(&self) -> usize;

    /// Appends what is written in front of [`Payload::body`].
    fn append_head(&self, head: &mut Vec<u8>);

    /// What is written as it is.
    fn body(&self) -> &[u8];
}

/// A row that comes out.
pub(crate) enum SortedRow<'s, T> {
    /// It was in memory throughout.
    Kept(T),
    /// Head and body of its payload, read back.
    Spilled(&'s [u8]),
}

/// What a sort did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SortStatistics {
    /// Bytes of the rows that were taken in, less those that better ones have replaced.
    pub(crate) data_bytes: u64,
    pub(crate) spill: SpillStatistics,
}

/// What a stage has written to temporary files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpillStatistics {
    /// Times that it emptied its memory, and runs it merged into longer ones.
    pub(crate) spills: u64,
    /// Rows written for the first time, and their bytes.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Bytes of the files.
    pub(crate) stored_bytes: u64,
}

impl SpillStatistics {
    /// Adds what has been written, and tells the operation.
    pub(crate) fn add(&mut self, more: SpillStatistics, what: Spilling, evaluation: &EvaluationContext<'_>) {
        self.spills += more.spills;
        self.records += more.records;
        self.bytes += more.bytes;
        self.stored_bytes += more.stored_bytes;
        let Some(operation) = evaluation.operation() else {
            return;
        };
        let counters = operation.counters().spilled(what);
        counters.spills.add(more.spills);
        counters.records.add(more.records);
        counters.bytes.add(more.bytes);
        counters.stored_bytes.add(more.stored_bytes);
    }

    /// Adds what explain tells of it.
    pub(crate) fn add_to(self, document: &mut Document) {
        document.insert("usedDisk", self.spills > 0);
        document.insert("spills", self.spills as i64);
        document.insert("spilledDataStorageSize", self.stored_bytes as i64);
        document.insert("spilledBytes", self.bytes as i64);
        document.insert("spilledRecords", self.records as i64);
    }
}

struct Item<T> {
    key: Box<[u8]>,
    arrival: u64,
    payload: T,
}

impl<T: Payload> Item<T> {
    fn bytes(&self) -> usize {
        self.key.len() + self.payload.memory_bytes() + ROW_BYTES
    }
}

impl<T> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Item<T> {}

impl<T> PartialOrd for Item<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Item<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key).then(self.arrival.cmp(&other.arrival))
    }
}

/// The rows in memory.
enum Rows<T> {
    /// As they came.
    All(Vec<Item<T>>),
    /// As many as are wanted, the worst of them at the top.
    Best(BinaryHeap<Item<T>>),
}

/// Where the runs are.
struct Spilled {
    file: SpillWriter,
    runs: Vec<Run>,
}

/// See the module.
pub(crate) struct Sorter<T> {
    what: Spilling,
    limit: Option<u64>,
    limits: BlockingLimits,
    rows: Rows<T>,
    bytes: usize,
    arrivals: u64,
    memory: StageMemory,
    spilled: Option<Spilled>,
    /// Rows of this key and of greater ones are not wanted any more.
    cutoff: Option<Box<[u8]>>,
    statistics: SortStatistics,
}

impl<T: Payload> Sorter<T> {
    /// A sort that gives all rows, or the first `limit` of them, for a stage of this kind.
    pub(crate) fn new(what: Spilling, limit: Option<u64>, limits: &BlockingLimits) -> Self {
        Self {
            what,
            limit,
            limits: limits.clone(),
            rows: Rows::All(Vec::new()),
            bytes: 0,
            arrivals: 0,
            memory: StageMemory::default(),
            spilled: None,
            cutoff: None,
            statistics: SortStatistics::default(),
        }
    }

    /// What it did so far.
    pub(crate) fn statistics(&self) -> SortStatistics {
        self.statistics
    }

    /// Takes a row in, whose payload is only made when it may be wanted.
    ///
    /// Errors: 292 when it outgrows its memory and may not use the disk, 146 when the operation does so, and those of
    /// writing.
    pub(crate) fn push(
        &mut self,
        evaluation: &EvaluationContext<'_>,
        key: &[u8],
        payload: impl FnOnce() -> T,
    ) -> Result<(), QueryError> {
        self.arrivals += 1;
        if self.cutoff.as_ref().is_some_and(|cutoff| key >= &**cutoff) {
            return Ok(());
        }
        if let Rows::Best(best) = &mut self.rows {
            // A later arrival loses ties, so only a smaller key gets in.
            match best.peek() {
                Some(worst) if key < &*worst.key => {}
                _ => return Ok(()),
            }
            if let Some(worst) = best.pop() {
                self.bytes -= worst.bytes();
                self.memory.shrink(worst.bytes());
                self.statistics.data_bytes -= worst.bytes() as u64;
            }
        }
        let item = Item {
            key: key.into(),
            arrival: self.arrivals,
            payload: payload(),
        };
        let bytes = item.bytes();
        self.make_room(evaluation, bytes)?;
        self.bytes += bytes;
        self.statistics.data_bytes += bytes as u64;
        match &mut self.rows {
            Rows::Best(best) => best.push(item),
            Rows::All(all) => {
                all.push(item);
                if self.limit.is_some_and(|limit| all.len() as u64 >= limit) {
                    self.rows = Rows::Best(std::mem::take(all).into());
                }
            }
        }
        Ok(())
    }

    /// Makes room for so many bytes more, in its own limit and in the operation's account.
    fn make_room(&mut self, evaluation: &EvaluationContext<'_>, bytes: usize) -> Result<(), QueryError> {
        if self.bytes + bytes > self.limits.bytes(self.what) {
            self.limits.disk(self.what)?;
            self.spill(evaluation)?;
        }
        match self.memory.grow(evaluation, bytes) {
            // Others need the memory, too.
            Err(_) if self.bytes > 0 && self.limits.disk.is_some() => {
                self.spill(evaluation)?;
                self.memory.grow(evaluation, bytes)
            }
            grown => grown,
        }
    }

    fn take_rows(&mut self) -> Vec<Item<T>> {
        match std::mem::replace(&mut self.rows, Rows::All(Vec::new())) {
            Rows::All(all) => all,
            Rows::Best(best) => best.into_vec(),
        }
    }

    /// Writes the rows in memory as a run.
    fn spill(&mut self, evaluation: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let rows = evaluation.sort(self.take_rows(), Item::cmp)?;
        if rows.is_empty() {
            return Ok(());
        }
        let disk = self.limits.disk(self.what)?;
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled {
                file: disk.create()?,
                runs: Vec::new(),
            }),
        };
        let stored_before = spilled.file.bytes();
        let (mut writer, mut head) = (RunWriter::new(), Vec::new());
        for item in rows {
            evaluation.step()?;
            head.clear();
            item.payload.append_head(&mut head);
            let key_bytes = (item.key.len() as u32).to_le_bytes();
            writer.push(&mut spilled.file, &[&key_bytes, &item.key, &head, item.payload.body()])?;
        }
        let run = writer.finish(&mut spilled.file)?;
        let written = SpillStatistics {
            spills: 1,
            records: run.rows(),
            bytes: run.bytes(),
            stored_bytes: spilled.file.bytes() - stored_before,
        };
        spilled.runs.push(run);
        self.statistics.spill.add(written, self.what, evaluation);
        self.memory.clear();
        self.bytes = 0;
        self.cut(evaluation)
    }

    /// With a limit: when the runs have twice as many rows as are wanted, leaves one run with the wanted ones.
    fn cut(&mut self, evaluation: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let Some(limit) = self.limit else { return Ok(()) };
        let Some(mut spilled) = self.spilled.take() else {
            return Ok(());
        };
        let rows: u64 = spilled.runs.iter().map(Run::rows).sum();
        if rows >= limit.saturating_mul(2) {
            spilled.file.flush()?;
            let runs = self.reduce(spilled.runs, evaluation)?;
            let mut file = self.limits.disk(self.what)?.create()?;
            let (run, last) = self.merge_run(runs, &mut file, evaluation)?;
            if run.rows() >= limit {
                self.cutoff = Some(last.into());
            }
            spilled = Spilled { file, runs: vec![run] };
        }
        self.spilled = Some(spilled);
        Ok(())
    }

    /// How many of these runs are read at once: what its memory has room for, which holds no rows meanwhile, and half
    /// of what the operation may still have.
    fn fan_in(&self, runs: &[Run], evaluation: &EvaluationContext<'_>) -> usize {
        let read_bytes = runs.iter().map(Run::read_bytes).max().unwrap_or(1).max(1);
        let operation = evaluation.operation();
        let left = operation.map_or(u64::MAX, |operation| operation.memory().left() / 2);
        let room = self
            .limits
            .bytes(self.what)
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        (room / read_bytes).clamp(*FAN_IN.start(), *FAN_IN.end())
    }

    /// Merges neighbours until no more runs are left than are read at once.
    fn reduce(&mut self, mut runs: Vec<Run>, evaluation: &EvaluationContext<'_>) -> Result<Vec<Run>, QueryError> {
        loop {
            let together = self.fan_in(&runs, evaluation);
            let mut excess = runs.len().saturating_sub(together);
            if excess == 0 {
                return Ok(runs);
            }
            let mut file = self.limits.disk(self.what)?.create()?;
            let mut merged = Vec::new();
            let mut rest = runs.into_iter();
            while excess > 0 {
                let group: Vec<Run> = rest.by_ref().take(together.min(excess + 1)).collect();
                if group.len() < 2 {
                    merged.extend(group);
                    break;
                }
                excess -= group.len() - 1;
                merged.push(self.merge_run(group, &mut file, evaluation)?.0);
            }
            merged.extend(rest);
            file.flush()?;
            runs = merged;
        }
    }

    /// Merges runs into one, of no more rows than are wanted; with the key of the last one.
    fn merge_run(
        &mut self,
        runs: Vec<Run>,
        file: &mut SpillWriter,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<(Run, Vec<u8>), QueryError> {
        let stored_before = file.bytes();
        let limit = self.limit.unwrap_or(u64::MAX);
        let (mut merge, mut writer, mut last) = (Merge::new(runs, evaluation)?, RunWriter::new(), Vec::new());
        while writer.rows() < limit {
            evaluation.step()?;
            if !merge.advance()? {
                break;
            }
            let Some(row) = merge.row() else { break };
            writer.push(file, &[row.whole])?;
            if self.limit.is_some() {
                last.clear();
                last.extend_from_slice(row.key);
            }
        }
        let run = writer.finish(file)?;
        let written = SpillStatistics {
            spills: 1,
            stored_bytes: file.bytes() - stored_before,
            ..SpillStatistics::default()
        };
        self.statistics.spill.add(written, self.what, evaluation);
        Ok((run, last))
    }

    /// Ends the input.
    pub(crate) fn finish(mut self, evaluation: &EvaluationContext<'_>) -> Result<Sorted<T>, QueryError> {
        if let Some(operation) = evaluation.operation().filter(|_| self.what == Spilling::Sort) {
            operation.counters().keys_sorted.add(self.arrivals);
            operation.counters().sorted_bytes.add(self.statistics.data_bytes);
        }
        if self.spilled.is_some() {
            self.spill(evaluation)?;
        }
        let Some(mut spilled) = self.spilled.take() else {
            let rows = evaluation.sort(self.take_rows(), Item::cmp)?;
            return Ok(Sorted {
                rows: SortedRows::InMemory(rows.into_iter()),
                left: u64::MAX,
                statistics: self.statistics,
                memory: self.memory,
            });
        };
        spilled.file.flush()?;
        let runs = self.reduce(spilled.runs, evaluation)?;
        Ok(Sorted {
            rows: SortedRows::Merged(Merge::new(runs, evaluation)?),
            left: self.limit.unwrap_or(u64::MAX),
            statistics: self.statistics,
            memory: self.memory,
        })
    }
}

enum SortedRows<T> {
    InMemory(std::vec::IntoIter<Item<T>>),
    Merged(Merge),
}

/// The rows of a [`Sorter`] in order.
pub(crate) struct Sorted<T> {
    rows: SortedRows<T>,
    left: u64,
    statistics: SortStatistics,
    memory: StageMemory,
}

impl<T> Sorted<T> {
    /// The next row.
    pub(crate) fn next(&mut self, evaluation: &EvaluationContext<'_>) -> Result<Option<SortedRow<'_, T>>, QueryError> {
        evaluation.step()?;
        let is_over = match &mut self.rows {
            SortedRows::InMemory(rows) => rows.len() == 0,
            SortedRows::Merged(merge) => self.left == 0 || !merge.advance()?,
        };
        if is_over {
            // Memory and temporary files go now, and not when the cursor does.
            self.rows = SortedRows::InMemory(Vec::new().into_iter());
            self.memory.clear();
            return Ok(None);
        }
        match &mut self.rows {
            SortedRows::InMemory(rows) => Ok(rows.next().map(|item| SortedRow::Kept(item.payload))),
            SortedRows::Merged(merge) => {
                self.left -= 1;
                Ok(merge.row().map(|row| SortedRow::Spilled(row.payload)))
            }
        }
    }

    /// What the sort did.
    pub(crate) fn statistics(&self) -> SortStatistics {
        self.statistics
    }
}
