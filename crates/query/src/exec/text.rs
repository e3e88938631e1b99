//! TEXT_OR and TEXT_MATCH: documents that have what `$text` looks for.
//!
//! Each term of the search is a scan of the index. Where nobody asks for scores the scans are an OR, which FETCH reads
//! the documents of. Else TEXT_OR reads all of them first and adds up each record's scores, then it gives the records:
//! the best first, if that is the order that is wanted. TEXT_MATCH looks at what terms do not tell: phrases, what must
//! not be there, case and diacritics.

use super::context::Run;
use super::key_document::KeyDocument;
use super::row::{Row, RowDocument, as_document};
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use crate::evaluation::StageMemory;
use crate::matcher::{Matcher, TextTest};
use crate::metadata::Metadata;
use crate::plan::encode::value_length;
use bson::Document;
use keys::key::KeyDecoder;
use keys::{FieldKind, IndexPattern, KeyOrdering};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use storage::{Index, RecordId, Seq};
use wire::ErrorCode;

/// What it takes to know a record and its score, about.
const RECORD_BYTES: usize = 48;

/// The order of what TEXT_OR gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextOrder {
    Any,
    BestFirst,
}

/// See the module.
pub(crate) struct TextOr {
    pub(crate) inputs: Vec<Stage>,
    pub(crate) filter: Option<Arc<Matcher>>,
    pub(crate) counters: StageCounters,
    order: TextOrder,
    test: Arc<TextTest>,
    current: usize,
    scores: HashMap<RecordId, f64>,
    /// Set when all inputs are read: what is still to be given, by rank, record and the bits of the score.
    left: Option<BinaryHeap<(u64, Reverse<RecordId>, u64)>>,
    /// The view that the first keys were met in.
    met_at: Option<Seq>,
    /// It has rested since.
    has_rested: bool,
    /// Keys were met in another view than the one that documents are read in: these may have changed.
    is_outdated: bool,
    /// Whoever is asked for the documents' texts anyway, TEXT_MATCH, asks for the terms, too.
    is_looked_at_above: bool,
    memory: StageMemory,
    scratch: KeyDocument,
}

impl TextOr {
    pub(crate) fn new(inputs: Vec<Stage>, filter: Option<Arc<Matcher>>, order: TextOrder, test: Arc<TextTest>) -> Self {
        Self {
            inputs,
            filter,
            counters: StageCounters::default(),
            order,
            test,
            current: 0,
            scores: HashMap::new(),
            left: None,
            met_at: None,
            has_rested: false,
            is_outdated: false,
            is_looked_at_above: false,
            memory: StageMemory::default(),
            scratch: KeyDocument::default(),
        }
    }

    /// As [`Stage::save`].
    pub(crate) fn save(&mut self) {
        self.has_rested = true;
        self.inputs.iter_mut().for_each(Stage::save);
    }

    /// Whether documents may have changed since their keys were met.
    fn is_outdated_in(&mut self, run: &Run<'_>) -> bool {
        let seq = Some(run.view.seq());
        if self.left.is_none() && self.scores.is_empty() {
            self.met_at = seq;
            self.has_rested = false;
        }
        // A transaction's view has the position of its beginning, whatever it wrote itself.
        let may_have_written = self.has_rested && run.context.transaction.is_some();
        self.is_outdated |= self.met_at != seq || may_have_written;
        self.is_outdated
    }

    fn gather(&mut self, run: &Run<'_>) -> Result<Ran, QueryError> {
        let Self {
            inputs,
            counters,
            current,
            scores,
            memory,
            scratch,
            ..
        } = self;
        while let Some(input) = inputs.get_mut(*current) {
            let mut receive = |row: Row<'_>| {
                counters.works += 1;
                let Some(key) = row.key else {
                    return Ok(Flow::Continue);
                };
                let score = score_of(key.index.pattern(), key.key, scratch)?;
                let room = scores.len();
                *scores.entry(row.id).or_default() += score;
                if scores.len() > room {
                    memory.grow(run.evaluation, RECORD_BYTES)?;
                }
                Ok(Flow::Continue)
            };
            let ran = run.wanting(u64::MAX, || input.run(run, &mut receive))?;
            if ran != Ran::Exhausted {
                return Ok(ran);
            }
            *current += 1;
            // A term that is nowhere is work, too.
            if run.tick()? {
                return Ok(Ran::Yield);
            }
        }
        Ok(Ran::Exhausted)
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let looks = self.is_outdated_in(run) && !self.is_looked_at_above;
        if self.left.is_none() {
            let ran = self.gather(run)?;
            if ran != Ran::Exhausted {
                return Ok(ran);
            }
            let best_first = self.order == TextOrder::BestFirst;
            let ranked = |(id, score): (RecordId, f64)| {
                // Scores are positive: their bits are in their order.
                let bits = score.to_bits();
                (if best_first { bits } else { 0 }, Reverse(id), bits)
            };
            // Of a heap those alone are put in order that are asked for.
            let left: Vec<_> = std::mem::take(&mut self.scores).into_iter().map(ranked).collect();
            self.left = Some(left.into());
        }
        while let Some((_, Reverse(id), score)) = self.left.as_mut().and_then(BinaryHeap::pop) {
            self.memory.shrink(RECORD_BYTES);
            self.counters.works += 1;
            self.counters.docs_examined += 1;
            let due = run.tick()?;
            if let Some(document) = run.view.record(run.collection, &id)? {
                let found = as_document(&document)?;
                let passes = match &self.filter {
                    Some(filter) => filter.matches(found, run.evaluation)?,
                    None => true,
                };
                if passes && (!looks || self.test.matches(found, run.evaluation)?) {
                    self.counters.advanced += 1;
                    let metadata = Arc::new(Metadata {
                        text_score: Some(f64::from_bits(score)),
                        ..Metadata::default()
                    });
                    let flow = receive(Row {
                        id,
                        document: RowDocument::Shared(&document),
                        key: None,
                        metadata: Some(&metadata),
                    })?;
                    if flow == Flow::Stop {
                        return Ok(Ran::Stopped);
                    }
                }
            }
            if due {
                return Ok(Ran::Yield);
            }
        }
        self.counters.exhausted = true;
        Ok(Ran::Exhausted)
    }
}

/// The score in a key of a text index.
fn score_of(pattern: &IndexPattern, key: &[u8], scratch: &mut KeyDocument) -> Result<f64, QueryError> {
    let mut rest = key;
    for (field, kind) in pattern.fields().iter().map(|field| field.kind()).enumerate() {
        if kind == FieldKind::Score {
            // Type bits tell an int from a double alone.
            let mut decoder = KeyDecoder::new(rest, &[], KeyOrdering::ASCENDING);
            let value = scratch.value(&mut decoder).ok().flatten();
            if let Some(score) = value.and_then(geometry::read::number) {
                return Ok(score);
            }
            break;
        }
        let length = value_length(pattern, field, rest).min(rest.len());
        rest = &rest[length..];
    }
    Err(QueryError::new(
        ErrorCode::InternalError,
        "a key of a text index has no score",
    ))
}

/// See the module.
pub(crate) struct TextMatch {
    pub(crate) input: Stage,
    pub(crate) index: Arc<Index>,
    pub(crate) test: Arc<TextTest>,
    pub(crate) counters: StageCounters,
    /// What the fields in front of the terms equal.
    pub(crate) prefix: Document,
    /// Terms do not tell.
    looks: bool,
    /// Of the search and its scans; there from the first run on.
    memory: Option<StageMemory>,
}

impl TextMatch {
    pub(crate) fn new(input: Stage, index: Arc<Index>, test: Arc<TextTest>, prefix: Document) -> Self {
        let looks = test.search().is_none_or(|search| !search.is_answered_by_terms());
        Self {
            input,
            index,
            test,
            counters: StageCounters::default(),
            prefix,
            looks,
            memory: None,
        }
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            input,
            test,
            counters,
            looks,
            memory,
            ..
        } = self;
        if memory.is_none() {
            let charged = memory.insert(StageMemory::default());
            charged.grow(run.evaluation, test.bytes())?;
        }
        let is_outdated = match input {
            Stage::TextOr(scored) if *looks => {
                scored.is_looked_at_above = true;
                scored.is_outdated_in(run)
            }
            _ => false,
        };
        let matches = match is_outdated {
            true => TextTest::matches,
            false => TextTest::matches_found,
        };
        let ran = input.run(run, &mut |row| {
            counters.works += 1;
            if *looks && !matches(test, as_document(row.document.bytes())?, run.evaluation)? {
                return Ok(Flow::Continue);
            }
            counters.advanced += 1;
            receive(row)
        })?;
        counters.exhausted = ran == Ran::Exhausted;
        Ok(ran)
    }
}
