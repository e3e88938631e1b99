//! OR and SORT_MERGE: the rows of several inputs, each record once.

use super::context::Run;
use super::row::{Row, RowDocument, as_document};
use super::sort_key::SortKeys;
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use bytes::Bytes;
use std::collections::HashSet;
use storage::RecordId;

/// OR: one input after the other.
pub(crate) struct Or {
    pub(crate) inputs: Vec<Stage>,
    pub(crate) counters: StageCounters,
    current: usize,
    seen: HashSet<RecordId>,
}

impl Or {
    pub(crate) fn new(inputs: Vec<Stage>) -> Self {
        Self {
            inputs,
            counters: StageCounters::default(),
            current: 0,
            seen: HashSet::new(),
        }
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            inputs,
            counters,
            current,
            seen,
        } = self;
        while let Some(input) = inputs.get_mut(*current) {
            let ran = input.run(run, &mut |row| {
                counters.works += 1;
                counters.dups_tested += 1;
                if !seen.insert(row.id.clone()) {
                    counters.dups_dropped += 1;
                    return Ok(Flow::Continue);
                }
                counters.advanced += 1;
                receive(row)
            })?;
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
    sort_key: Vec<u8>,
    id: RecordId,
    document: Bytes,
}

struct Branch {
    input: Stage,
    head: Option<Head>,
    ended: bool,
}

/// SORT_MERGE: inputs that are each sorted by one pattern become one sorted run. Rows carry their documents.
pub(crate) struct SortMerge {
    pub(crate) keys: SortKeys,
    pub(crate) counters: StageCounters,
    branches: Vec<Branch>,
    seen: HashSet<RecordId>,
}

impl SortMerge {
    pub(crate) fn new(inputs: Vec<Stage>, keys: SortKeys) -> Self {
        let branches = inputs
            .into_iter()
            .map(|input| Branch {
                input,
                head: None,
                ended: false,
            })
            .collect();
        Self {
            keys,
            counters: StageCounters::default(),
            branches,
            seen: HashSet::new(),
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
            seen,
        } = self;
        for branch in branches
            .iter_mut()
            .filter(|branch| branch.head.is_none() && !branch.ended)
        {
            let head = &mut branch.head;
            let ran = branch.input.run(run, &mut |row| {
                counters.works += 1;
                counters.dups_tested += 1;
                if seen.contains(&row.id) {
                    counters.dups_dropped += 1;
                    return Ok(Flow::Continue);
                }
                let sort_key = keys.key(as_document(row.document.bytes())?, row.metadata)?.to_vec();
                *head = Some(Head {
                    sort_key,
                    id: row.id,
                    document: row.document.to_bytes(),
                });
                Ok(Flow::Stop)
            })?;
            match ran {
                Ran::Exhausted => branch.ended = true,
                Ran::Stopped => {}
                Ran::Yield | Ran::CaughtUp => return Ok(Ran::Yield),
            }
        }
        Ok(Ran::Stopped)
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        loop {
            if self.advance(run)? == Ran::Yield {
                return Ok(Ran::Yield);
            }
            let first = self
                .branches
                .iter_mut()
                .filter(|branch| branch.head.is_some())
                .min_by(|a, b| {
                    a.head
                        .as_ref()
                        .map(|h| &h.sort_key)
                        .cmp(&b.head.as_ref().map(|h| &h.sort_key))
                });
            let Some(head) = first.and_then(|branch| branch.head.take()) else {
                self.counters.exhausted = true;
                return Ok(Ran::Exhausted);
            };
            if !self.seen.insert(head.id.clone()) {
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
