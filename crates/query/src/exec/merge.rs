//! OR and SORT_MERGE: the rows of several inputs, each record once.

use super::context::Run;
use super::record_set::RecordSet;
use super::row::{Row, RowDocument, as_document};
use super::sort_key::SortKeys;
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use storage::RecordId;

/// OR: one input after the other.
pub(crate) struct Or {
    pub(crate) inputs: Vec<Stage>,
    pub(crate) counters: StageCounters,
    current: usize,
    seen: RecordSet,
}

impl Or {
    pub(crate) fn new(inputs: Vec<Stage>) -> Self {
        Self {
            inputs,
            counters: StageCounters::default(),
            current: 0,
            seen: RecordSet::default(),
        }
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            inputs,
            counters,
            current,
            seen,
        } = self;
        let mut wanted = run.wanted();
        while let Some(input) = inputs.get_mut(*current) {
            let left = wanted;
            let mut receive = |row: Row<'_>| {
                counters.works += 1;
                counters.dups_tested += 1;
                if !seen.insert(&row.id, run.evaluation)? {
                    counters.dups_dropped += 1;
                    return Ok(Flow::Continue);
                }
                counters.advanced += 1;
                wanted = wanted.saturating_sub(1);
                receive(row)
            };
            let ran = run.wanting(left, || input.run(run, &mut receive))?;
            if ran != Ran::Exhausted {
                return Ok(ran);
            }
            *current += 1;
            // An input without rows is work, too.
            if run.tick()? {
                return Ok(Ran::Yield);
            }
        }
        counters.exhausted = true;
        Ok(Ran::Exhausted)
    }
}

struct Head {
    id: RecordId,
    document: Bytes,
}

struct Branch {
    input: Stage,
    head: Option<Head>,
}

/// SORT_MERGE: inputs that are each sorted by one pattern become one sorted run. Rows carry their documents.
pub(crate) struct SortMerge {
    pub(crate) keys: SortKeys,
    pub(crate) counters: StageCounters,
    branches: Vec<Branch>,
    /// Branches whose next row is not known.
    waiting: Vec<usize>,
    /// Sort key and branch of each head, the least on top; of equal ones that of the first branch.
    order: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    seen: RecordSet,
}

impl SortMerge {
    pub(crate) fn new(inputs: Vec<Stage>, keys: SortKeys) -> Self {
        let branches: Vec<Branch> = inputs.into_iter().map(|input| Branch { input, head: None }).collect();
        Self {
            keys,
            counters: StageCounters::default(),
            waiting: (0..branches.len()).rev().collect(),
            order: BinaryHeap::with_capacity(branches.len()),
            branches,
            seen: RecordSet::default(),
        }
    }

    pub(crate) fn inputs(&self) -> Vec<&Stage> {
        self.branches.iter().map(|branch| &branch.input).collect()
    }

    pub(crate) fn inputs_mut(&mut self) -> Vec<&mut Stage> {
        self.branches.iter_mut().map(|branch| &mut branch.input).collect()
    }

    /// Gives every branch that has rows left a head.
    fn advance(&mut self, run: &Run<'_>) -> Result<Ran, QueryError> {
        let Self {
            keys,
            counters,
            branches,
            waiting,
            order,
            seen,
        } = self;
        while let Some(place) = waiting.last().copied() {
            let Branch { input, head } = &mut branches[place];
            let mut receive = |row: Row<'_>| {
                counters.works += 1;
                counters.dups_tested += 1;
                if seen.contains(&row.id) {
                    counters.dups_dropped += 1;
                    return Ok(Flow::Continue);
                }
                let sort_key = keys
                    .key(as_document(row.document.bytes())?, row.metadata, run.evaluation)?
                    .to_vec();
                order.push(Reverse((sort_key, place)));
                *head = Some(Head {
                    id: row.id,
                    document: row.document.to_bytes(),
                });
                Ok(Flow::Stop)
            };
            let ran = run.wanting(1, || input.run(run, &mut receive))?;
            match ran {
                Ran::Exhausted | Ran::Stopped => waiting.pop(),
                Ran::Yield | Ran::CaughtUp => return Ok(Ran::Yield),
            };
        }
        Ok(Ran::Stopped)
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        loop {
            // An input that is stopped at its row does not tell that a yield is due.
            if run.is_due() || self.advance(run)? == Ran::Yield {
                return Ok(Ran::Yield);
            }
            let Some(Reverse((_, place))) = self.order.pop() else {
                self.counters.exhausted = true;
                return Ok(Ran::Exhausted);
            };
            self.waiting.push(place);
            let Some(head) = self.branches[place].head.take() else {
                continue;
            };
            if !self.seen.insert(&head.id, run.evaluation)? {
                self.counters.dups_dropped += 1;
                continue;
            }
            self.counters.advanced += 1;
            let row = Row {
                id: head.id,
                document: RowDocument::Shared(&head.document),
                key: None,
                metadata: None,
            };
            if receive(row)? == Flow::Stop {
                return Ok(Ran::Stopped);
            }
        }
    }
}
