//! The running tree of a plan.
//!
//! Rows are pushed: [`Stage::run`] hands each row, still borrowed from the batch it was read in, to the caller's
//! function until that says stop, the rows end, or the run has to yield. A stage that needs rows one at a time (a
//! merge) asks its input to run and stops it after one. All state is in the stages, so a run can be taken up again in
//! another view: [`Stage::save`] first drops every cursor, keeping only positions.

use super::context::Run;
use super::row::Row;
use super::{blocking, filter, index_scan, merge, near, scan, text};
use crate::QueryError;
use crate::matcher::Matcher;
use std::sync::Arc;

/// What a receiver of rows says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Next row.
    Continue,
    /// The row is taken; no more for now.
    Stop,
}

/// Why [`Stage::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// There are no more rows.
    Exhausted,
    /// The receiver said stop.
    Stopped,
    /// Save, take a new view, and run again.
    Yield,
    /// A tailable scan is at the end.
    CaughtUp,
}

/// A receiver of rows.
pub(crate) type Receiver<'f> = dyn FnMut(Row<'_>) -> Result<Flow, QueryError> + 'f;

/// What a stage did, for explain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageCounters {
    pub(crate) works: u64,
    pub(crate) advanced: u64,
    pub(crate) docs_examined: u64,
    pub(crate) keys_examined: u64,
    pub(crate) seeks: u64,
    pub(crate) dups_tested: u64,
    pub(crate) dups_dropped: u64,
    pub(crate) exhausted: bool,
}

/// A stage and its state.
pub(crate) enum Stage {
    Eof,
    CollectionScan(Box<scan::CollectionScan>),
    IndexScan(Box<index_scan::IndexScan>),
    Near(Box<near::Near>),
    TextOr(Box<text::TextOr>),
    TextMatch(Box<text::TextMatch>),
    Fetch(Box<filter::Fetch>),
    Or(Box<merge::Or>),
    SortMerge(Box<merge::SortMerge>),
    Sort(Box<blocking::Sort>),
    Skip(Box<filter::Skip>),
    Limit(Box<filter::Limit>),
    Project(Box<filter::Project>),
}

impl Stage {
    /// A FETCH over `input`.
    pub(crate) fn fetch(mut input: Stage, filter: Option<Arc<Matcher>>) -> Self {
        let first = match &mut input {
            // Of the others the union drops rows.
            Stage::Or(union) => union.inputs.first_mut(),
            input => Some(input),
        };
        if let Some(Stage::IndexScan(scan)) = first {
            scan.is_fetched = true;
        }
        Stage::Fetch(Box::new(filter::Fetch::new(input, filter)))
    }

    /// Pushes rows into `receive`. See the module.
    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        match self {
            Stage::Eof => Ok(Ran::Exhausted),
            Stage::CollectionScan(stage) => stage.run(run, receive),
            Stage::IndexScan(stage) => stage.run(run, receive),
            Stage::Near(stage) => stage.run(run, receive),
            Stage::TextOr(stage) => stage.run(run, receive),
            Stage::TextMatch(stage) => stage.run(run, receive),
            Stage::Fetch(stage) => stage.run(run, receive),
            Stage::Or(stage) => stage.run(run, receive),
            Stage::SortMerge(stage) => stage.run(run, receive),
            Stage::Sort(stage) => stage.run(run, receive),
            Stage::Skip(stage) => stage.run(run, receive),
            Stage::Limit(stage) => stage.run(run, receive),
            Stage::Project(stage) => stage.run(run, receive),
        }
    }

    /// Drops cursors and batches, so that nothing of a view stays pinned.
    pub(crate) fn save(&mut self) {
        match self {
            Stage::Eof => {}
            Stage::CollectionScan(stage) => stage.save(),
            Stage::IndexScan(stage) => stage.save(),
            Stage::TextOr(stage) => stage.save(),
            Stage::Fetch(stage) => stage.save(),
            _ => self.inputs_mut().into_iter().for_each(Stage::save),
        }
    }

    /// What the stage did so far.
    pub(crate) fn counters(&self) -> StageCounters {
        match self {
            Stage::Eof => StageCounters {
                exhausted: true,
                ..StageCounters::default()
            },
            Stage::CollectionScan(stage) => stage.counters,
            Stage::IndexScan(stage) => stage.counters,
            Stage::Near(stage) => stage.counters,
            Stage::TextOr(stage) => stage.counters,
            Stage::TextMatch(stage) => stage.counters,
            Stage::Fetch(stage) => stage.counters,
            Stage::Or(stage) => stage.counters,
            Stage::SortMerge(stage) => stage.counters,
            Stage::Sort(stage) => stage.counters,
            Stage::Skip(stage) => stage.counters,
            Stage::Limit(stage) => stage.counters,
            Stage::Project(stage) => stage.counters,
        }
    }

    /// The stages it reads from.
    pub(crate) fn inputs(&self) -> Vec<&Stage> {
        match self {
            Stage::Eof | Stage::CollectionScan(_) | Stage::IndexScan(_) => Vec::new(),
            Stage::Near(stage) => stage.ring.iter().collect(),
            Stage::TextOr(stage) => stage.inputs.iter().collect(),
            Stage::TextMatch(stage) => vec![&stage.input],
            Stage::Fetch(stage) => vec![&stage.input],
            Stage::Or(stage) => stage.inputs.iter().collect(),
            Stage::SortMerge(stage) => stage.inputs(),
            Stage::Sort(stage) => vec![&stage.input],
            Stage::Skip(stage) => vec![&stage.input],
            Stage::Limit(stage) => vec![&stage.input],
            Stage::Project(stage) => vec![&stage.input],
        }
    }

    fn inputs_mut(&mut self) -> Vec<&mut Stage> {
        match self {
            Stage::Eof | Stage::CollectionScan(_) | Stage::IndexScan(_) => Vec::new(),
            Stage::Near(stage) => stage.ring.iter_mut().collect(),
            Stage::TextOr(stage) => stage.inputs.iter_mut().collect(),
            Stage::TextMatch(stage) => vec![&mut stage.input],
            Stage::Fetch(stage) => vec![&mut stage.input],
            Stage::Or(stage) => stage.inputs.iter_mut().collect(),
            Stage::SortMerge(stage) => stage.inputs_mut(),
            Stage::Sort(stage) => vec![&mut stage.input],
            Stage::Skip(stage) => vec![&mut stage.input],
            Stage::Limit(stage) => vec![&mut stage.input],
            Stage::Project(stage) => vec![&mut stage.input],
        }
    }

    /// Sums over the tree: keys and documents examined.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let own = self.counters();
        self.inputs()
            .into_iter()
            .fold((own.keys_examined, own.docs_examined), |(keys, docs), input| {
                let (k, d) = input.totals();
                (keys + k, docs + d)
            })
    }
}
