//! COLLSCAN: the records of a collection in natural order, either way, filtered where they lie.
//!
//! A tailable scan never ends: at the end it reports [`Ran::CaughtUp`] and goes on behind its position in a later run.
//! It reports `CappedPositionLost` when the record it stopped at was evicted meanwhile.

use super::batch::GrowingBatch;
use super::context::Run;
use super::row::{Row, RowDocument, as_document};
use super::stage::{Flow, Ran, Receiver, StageCounters};
use crate::QueryError;
use crate::matcher::Matcher;
use engine::Direction;
use std::ops::Bound;
use std::sync::Arc;
use storage::{RecordBatch, RecordCursor, RecordId};
use wire::ErrorCode;

/// See the module.
pub(crate) struct CollectionScan {
    pub(crate) direction: Direction,
    pub(crate) filter: Option<Arc<Matcher>>,
    pub(crate) tailable: bool,
    for_write: bool,
    pub(crate) counters: StageCounters,
    /// The last record given or passed over, of the batches before this one.
    position: Option<RecordId>,
    cursor: Option<RecordCursor>,
    batch: RecordBatch,
    next: usize,
    batch_size: GrowingBatch,
    /// The cursor has nothing behind the batch.
    drained: bool,
}

impl CollectionScan {
    pub(crate) fn new(direction: Direction, filter: Option<Arc<Matcher>>, tailable: bool, for_write: bool) -> Self {
        Self {
            direction,
            filter,
            tailable,
            for_write,
            counters: StageCounters::default(),
            position: None,
            cursor: None,
            batch: RecordBatch::new(),
            next: 0,
            batch_size: GrowingBatch::new(),
            drained: false,
        }
    }

    /// The last record passed; 0 before the first.
    pub(crate) fn position(&self) -> RecordId {
        self.position.clone().unwrap_or_default()
    }

    fn open(&mut self, run: &Run<'_>) -> Result<(), QueryError> {
        // A capped collection that has come round would be read on as if nothing were missing. Who deletes what it
        // finds has taken the place away itself.
        let keeps_place = !self.for_write && run.collection.is_capped().is_some();
        if let (true, Some(position)) = (keeps_place, &self.position)
            && run.view.record(run.collection, position)?.is_none()
        {
            return Err(QueryError::new(
                ErrorCode::CappedPositionLost,
                format!(
                    "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId({})",
                    position.number()
                ),
            ));
        }
        let edge = self.position.clone().map_or(Bound::Unbounded, Bound::Excluded);
        let (from, to) = match self.direction {
            Direction::Forward => (edge, Bound::Unbounded),
            Direction::Reverse => (Bound::Unbounded, edge),
        };
        self.cursor = Some(run.view.records(run.collection, from, to, self.direction)?);
        self.drained = false;
        Ok(())
    }

    /// False when there are no more rows in this view.
    fn refill(&mut self, run: &Run<'_>) -> Result<bool, QueryError> {
        self.remember_position();
        if self.cursor.is_none() {
            self.open(run)?;
        }
        self.next = 0;
        match self.cursor.as_mut() {
            Some(cursor) if !self.drained => self.drained = !cursor.fill(&mut self.batch, self.batch_size.next())?,
            _ => self.batch = RecordBatch::new(),
        }
        Ok(!self.batch.is_empty())
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        if self.counters.exhausted {
            return Ok(Ran::Exhausted);
        }
        loop {
            if self.next >= self.batch.len() && !self.refill(run)? {
                if self.tailable {
                    return Ok(Ran::CaughtUp);
                }
                self.counters.exhausted = true;
                return Ok(Ran::Exhausted);
            }
            while self.next < self.batch.len() {
                let i = self.next;
                self.next += 1;
                self.counters.works += 1;
                self.counters.docs_examined += 1;
                let due = run.tick()?;
                let wanted = match &self.filter {
                    None => true,
                    Some(filter) => filter.matches(as_document(self.batch.document(i))?, run.evaluation)?,
                };
                if wanted {
                    self.counters.advanced += 1;
                    let row = Row {
                        id: self.batch.id(i),
                        document: RowDocument::InBatch(&self.batch, i),
                        key: None,
                        metadata: None,
                    };
                    if receive(row)? == Flow::Stop {
                        return Ok(Ran::Stopped);
                    }
                }
                if due {
                    return Ok(Ran::Yield);
                }
            }
        }
    }

    /// What is passed of the batch is passed for good.
    fn remember_position(&mut self) {
        if self.next > 0 && self.next <= self.batch.len() {
            self.position = Some(self.batch.id(self.next - 1));
        }
    }

    pub(crate) fn save(&mut self) {
        self.remember_position();
        self.cursor = None;
        self.batch = RecordBatch::new();
        self.next = 0;
        self.drained = false;
    }
}
