//! IXSCAN, COUNT_SCAN and DISTINCT_SCAN: a walk over the part of an index inside some bounds.
//!
//! Gaps between the bounds' ranges are jumped over by seeking; a jump that ends inside the batch at hand costs no seek.
//! On an index with several keys per record each record is given once. A distinct walk jumps behind every prefix it
//! gave. Entries of a clustering index are given with the documents that they carry, those alone that match the filter.
//! The documents of a clustered collection are walked over as if they were entries of such an index, and have no key.

use super::batch::{BATCH_ROWS_MAX, GrowingBatch};
use super::context::Run;
use super::record_set::RecordSet;
use super::row::{Row, RowDocument, RowKey, Upcoming, as_document};
use super::stage::{Flow, Ran, Receiver, StageCounters};
use crate::QueryError;
use crate::matcher::Matcher;
use crate::plan::access::multikey_bits;
use crate::plan::encode::{field_is_missing, value_length};
use crate::plan::index_bounds::{Check, IndexBounds};
use crate::plan::interval::{Intervals, successor};
use crate::plan::wildcard::WildcardPath;
use engine::{Direction, KeyRange};
use std::ops::Bound;
use std::sync::Arc;
use storage::{Index, IndexBatch, IndexCursor, RecordId};

/// Points that are asked for where as many as rows are wanted were not enough, at least; each time four times as many.
const POINTS_AGAIN: u64 = 16;

/// What an index scan does with the entries it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanKind {
    /// Gives every entry.
    Entries,
    /// Gives every entry; nothing else is read (explain calls it COUNT_SCAN).
    Count,
    /// Gives one entry for each value of so many leading fields.
    Distinct(usize),
}

enum Resume {
    Start,
    /// Behind this entry.
    After(Vec<u8>, RecordId),
    /// At the first key at or after (forward) or below (reverse) these bytes.
    At(Vec<u8>),
}

/// The values that a scan looks up one by one, where it has nothing but these and each is in one entry at most: several
/// entries are read at once then, and so are their documents.
struct Points {
    values: Intervals,
    /// How many have been asked for, in the direction of the scan.
    asked: usize,
    /// How many are done with: what there is under them was given.
    done: usize,
}

impl Points {
    /// `None` where the index, or the bounds, are other ones.
    fn of(index: &Index, bounds: &IndexBounds, kind: ScanKind) -> Option<Self> {
        let [values] = bounds.fields() else { return None };
        let is_plain = kind == ScanKind::Entries && !index.is_clustered() && !index.clustering();
        let is_whole_key = index.pattern().fields().len() == 1 && index.has_unique_rows();
        (is_plain && is_whole_key && values.all_points() && values.list().len() > 1).then(|| Self {
            values: values.clone(),
            asked: 0,
            done: 0,
        })
    }

    /// The next ones, `rows_max` at most.
    fn next(&mut self, rows_max: usize, direction: Direction) -> Vec<&[u8]> {
        let list = self.values.list();
        let start = self.asked;
        self.asked = list.len().min(start + rows_max);
        let point = |place: usize| match direction {
            Direction::Forward => list[place].start(),
            Direction::Reverse => list[list.len() - 1 - place].start(),
        };
        (start..self.asked).map(point).collect()
    }

    /// All up to the one of this key are done with, and those behind it are asked for again.
    fn rest_at(&mut self, key: &[u8], direction: Direction) {
        let list = self.values.list();
        let place = list.partition_point(|value| value.start() < key);
        self.done = match direction {
            Direction::Forward => place + 1,
            Direction::Reverse => list.len() - place,
        };
        self.asked = self.done;
    }
}

/// See the module.
pub(crate) struct IndexScan {
    pub(crate) index: Arc<Index>,
    pub(crate) bounds: IndexBounds,
    pub(crate) direction: Direction,
    pub(crate) kind: ScanKind,
    /// The path of a wildcard index that is scanned.
    pub(crate) wildcard: Option<WildcardPath>,
    /// Only of a scan that gives documents.
    pub(crate) filter: Option<Arc<Matcher>>,
    pub(crate) counters: StageCounters,
    needs_check: bool,
    points: Option<Points>,
    seen: Option<RecordSet>,
    resume: Resume,
    cursor: Option<IndexCursor>,
    batch: IndexBatch,
    next: usize,
    batch_size: GrowingBatch,
    /// Entries of the batch before this one need not be judged: from `next` on they are inside the bounds.
    inside_end: usize,
    /// Its documents are read by a FETCH that gets all of its rows.
    pub(crate) is_fetched: bool,
}

impl IndexScan {
    /// `once`: an index entry's record may come again (several keys per record, or keys that writes move along).
    pub(crate) fn new(
        index: Arc<Index>,
        bounds: IndexBounds,
        direction: Direction,
        kind: ScanKind,
        once: bool,
    ) -> Self {
        Self {
            needs_check: bounds.needs_check(),
            points: Points::of(&index, &bounds, kind),
            index,
            bounds,
            direction,
            kind,
            wildcard: None,
            filter: None,
            counters: StageCounters::default(),
            seen: once.then(RecordSet::default),
            resume: Resume::Start,
            cursor: None,
            batch: IndexBatch::new(),
            next: 0,
            batch_size: GrowingBatch::new(),
            inside_end: 0,
            is_fetched: false,
        }
    }

    /// The same of a path of a wildcard index.
    pub(crate) fn on_path(mut self, wildcard: Option<&WildcardPath>) -> Self {
        self.wildcard = wildcard.cloned();
        self
    }

    /// True when its rows have documents.
    pub(crate) fn gives_documents(&self) -> bool {
        self.kind == ScanKind::Entries && self.index.clustering()
    }

    fn open(&mut self, run: &Run<'_>) -> Result<(), QueryError> {
        let mut range = self.bounds.range();
        if let (Resume::At(target), Direction::Reverse) = (&self.resume, self.direction) {
            range = KeyRange {
                start: range.start,
                end: Bound::Excluded(target.clone()),
            };
        }
        let mut cursor = run.view.index_entries(&self.index, range, self.direction)?;
        self.counters.seeks += 1;
        match (&self.resume, self.direction) {
            (Resume::After(key, id), _) => cursor.seek(key, Some(id))?,
            (Resume::At(target), Direction::Forward) => cursor.seek(target, None)?,
            _ => {}
        }
        self.cursor = Some(cursor);
        Ok(())
    }

    /// `None` when the range has no more entries. Else how many points have none: the batch may be empty then. At most
    /// `points_max` points are asked for: each is a look-up of its own.
    fn refill(&mut self, run: &Run<'_>, points_max: u64) -> Result<Option<usize>, QueryError> {
        if let Some(points) = &mut self.points {
            if self.next > 0 {
                points.done = points.asked;
            }
            let rows_max = points_max.clamp(1, BATCH_ROWS_MAX as u64);
            // What is looked up and not given when the run yields is looked up in vain.
            let rows_max = rows_max.min((run.rows_until_yield_check() - 1).max(1)) as usize;
            let keys = points.next(rows_max, self.direction);
            run.view
                .index_entries_at(&self.index, &keys, self.direction, &mut self.batch)?;
            let (asked, found) = (keys.len(), self.batch.len());
            (self.next, self.inside_end) = (0, found);
            self.counters.seeks += asked as u64;
            if found == 0 {
                points.done = points.asked;
            }
            return Ok((asked > 0).then(|| asked - found));
        }
        let reopened = self.cursor.is_none();
        if reopened {
            self.open(run)?;
        }
        (self.next, self.inside_end) = (0, 0);
        let Some(cursor) = self.cursor.as_mut() else {
            return Ok(None);
        };
        if !cursor.fill(&mut self.batch, self.batch_size.next())? {
            return Ok(None);
        }
        if !self.needs_check {
            self.inside_end = self.batch.len();
        }
        if let (true, Resume::After(key, id)) = (reopened, &self.resume)
            && self.batch.key(0) == key.as_slice()
            && self.batch.id(0) == *id
        {
            self.next = 1;
        }
        Ok(Some(0))
    }

    fn judge(&self, entry: usize) -> Check {
        let (pattern, key) = (self.index.pattern(), self.batch.key(entry));
        self.bounds
            .check(key, self.direction, |field, bytes| value_length(pattern, field, bytes))
    }

    /// Judges the entries behind one that is inside the bounds, until one is not, so that their documents can be read
    /// together; `wanted` entries at most, the first among them.
    fn judge_ahead(&mut self, first: usize, wanted: u64) {
        self.inside_end = first + 1;
        if !self.is_fetched {
            return;
        }
        let end = self
            .batch
            .len()
            .min(first.saturating_add(wanted.min(BATCH_ROWS_MAX as u64) as usize));
        while self.inside_end < end && self.judge(self.inside_end) == Check::Inside {
            self.inside_end += 1;
        }
    }

    /// Goes on at `target`: inside the batch when it reaches so far, else by a seek.
    fn jump(&mut self, target: Vec<u8>) -> Result<(), QueryError> {
        let reached = |i: usize| match self.direction {
            Direction::Forward => self.batch.key(i) >= target.as_slice(),
            Direction::Reverse => self.batch.key(i) < target.as_slice(),
        };
        let length = self.batch.len();
        if length > 0 && reached(length - 1) {
            let (mut low, mut high) = (self.next.min(length - 1), length - 1);
            while low < high {
                let middle = low + (high - low) / 2;
                if reached(middle) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            self.next = low;
            return Ok(());
        }
        self.next = length;
        self.batch_size = GrowingBatch::new();
        match (self.direction, self.cursor.as_mut()) {
            (Direction::Forward, Some(cursor)) => {
                cursor.seek(&target, None)?;
                self.counters.seeks += 1;
            }
            _ => self.cursor = None,
        }
        self.batch = IndexBatch::new();
        (self.next, self.inside_end) = (0, 0);
        self.resume = Resume::At(target);
        Ok(())
    }

    /// The target behind all entries that share the leading fields of `key`.
    fn behind_prefix(&self, key: &[u8], fields: usize) -> Vec<u8> {
        let pattern = self.index.pattern();
        let mut length = 0;
        for field in 0..fields {
            length += value_length(pattern, field, key.get(length..).unwrap_or_default());
        }
        let prefix = &key[..length.min(key.len())];
        match self.direction {
            Direction::Forward => successor(prefix),
            Direction::Reverse => prefix.to_vec(),
        }
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        if self.counters.exhausted || self.bounds.is_empty() {
            self.counters.exhausted = true;
            return Ok(Ran::Exhausted);
        }
        let gives_documents = self.gives_documents();
        if self.kind == ScanKind::Entries && !self.needs_check {
            self.batch_size.grow_to(run.wanted().min(u64::from(run.rows_left())));
        }
        let (mut points_min, mut was_due) = (1, false);
        let given_before = self.counters.advanced;
        loop {
            if self.next >= self.batch.len() {
                let left = run.wanted().saturating_sub(self.counters.advanced - given_before);
                let Some(absent) = self.refill(run, left.max(points_min))? else {
                    self.counters.exhausted = true;
                    return Ok(Ran::Exhausted);
                };
                if (absent + self.batch.len()) as u64 >= left {
                    // When it comes here again, some were not there, or were dropped above.
                    points_min = (points_min * 4).clamp(POINTS_AGAIN, BATCH_ROWS_MAX as u64);
                }
                for _ in 0..absent {
                    self.counters.works += 1;
                    was_due |= run.tick()?;
                }
                if was_due && self.batch.is_empty() {
                    return Ok(Ran::Yield);
                }
            }
            while self.next < self.batch.len() {
                let i = self.next;
                self.next += 1;
                self.counters.works += 1;
                match self.index.is_clustered() {
                    true => self.counters.docs_examined += 1,
                    false => self.counters.keys_examined += 1,
                }
                let due = run.tick()? | std::mem::take(&mut was_due);
                if i >= self.inside_end {
                    match self.judge(i) {
                        Check::Inside => self.judge_ahead(i, run.wanted()),
                        Check::Done => {
                            self.counters.exhausted = true;
                            return Ok(Ran::Exhausted);
                        }
                        Check::Seek(target) => {
                            self.jump(target)?;
                            if due {
                                return Ok(Ran::Yield);
                            }
                            continue;
                        }
                    }
                }
                let id = self.batch.id(i);
                if let Some(seen) = &mut self.seen {
                    self.counters.dups_tested += 1;
                    if !seen.insert(&id, run.evaluation)? {
                        self.counters.dups_dropped += 1;
                        if due {
                            return Ok(Ran::Yield);
                        }
                        continue;
                    }
                }
                let document = match self.kind {
                    ScanKind::Entries if gives_documents => RowDocument::InIndex(&self.batch, i),
                    ScanKind::Entries if self.is_fetched => RowDocument::Unread(Upcoming {
                        batch: &self.batch,
                        start: self.next,
                        end: self.inside_end,
                        given: self.seen.as_ref(),
                    }),
                    _ => RowDocument::None,
                };
                if let Some(filter) = &self.filter
                    && !filter.matches(as_document(document.bytes())?, run.evaluation)?
                {
                    if due {
                        return Ok(Ran::Yield);
                    }
                    continue;
                }
                self.counters.advanced += 1;
                let key = (!self.index.is_clustered()).then(|| RowKey {
                    index: &self.index,
                    key: self.batch.key(i),
                    type_bits: self.batch.type_bits(i),
                });
                let flow = receive(Row {
                    id,
                    document,
                    key,
                    metadata: None,
                })?;
                // Since there are arrays, a document may be under several values: those that come have to be looked at.
                if let ScanKind::Distinct(fields) = self.kind
                    && multikey_bits(&self.index) == 0
                {
                    let (pattern, key) = (self.index.pattern(), self.batch.key(i));
                    // Behind a missing field may come a null under the same key.
                    if !field_is_missing(pattern, key, self.batch.type_bits(i), fields - 1) {
                        let target = self.behind_prefix(key, fields);
                        self.jump(target)?;
                    }
                }
                if flow == Flow::Stop {
                    return Ok(Ran::Stopped);
                }
                if due {
                    return Ok(Ran::Yield);
                }
            }
        }
    }

    pub(crate) fn save(&mut self) {
        if let Some(points) = &mut self.points {
            match self.next.checked_sub(1) {
                Some(last) if last < self.batch.len() => points.rest_at(self.batch.key(last), self.direction),
                _ => points.asked = points.done,
            }
        } else if self.next > 0 && self.next <= self.batch.len() {
            self.resume = Resume::After(self.batch.key(self.next - 1).to_vec(), self.batch.id(self.next - 1));
        }
        self.cursor = None;
        self.batch = IndexBatch::new();
        (self.next, self.inside_end) = (0, 0);
        // Of what was read ahead the rest was in vain, and a merge has many inputs.
        self.batch_size = GrowingBatch::new();
    }
}
