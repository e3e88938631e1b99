//! Stages that pass rows on one by one: FETCH, SKIP, LIMIT and the projections.

use super::context::Run;
use super::documents_ahead::DocumentsAhead;
use super::key_document::KeyDocument;
use super::known::RowMetadata;
use super::row::{Row, RowDocument, as_document};
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use crate::matcher::Matcher;
use crate::project::Projection;
use std::sync::Arc;

/// FETCH: reads the record of each row and keeps those that match.
pub(crate) struct Fetch {
    pub(crate) input: Stage,
    pub(crate) filter: Option<Arc<Matcher>>,
    pub(crate) counters: StageCounters,
    ahead: DocumentsAhead,
}

impl Fetch {
    pub(crate) fn new(input: Stage, filter: Option<Arc<Matcher>>) -> Self {
        Self {
            input,
            filter,
            counters: StageCounters::default(),
            ahead: DocumentsAhead::default(),
        }
    }

    /// As [`Stage::save`].
    pub(crate) fn save(&mut self) {
        self.ahead.clear();
        self.input.save();
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            input,
            filter,
            counters,
            ahead,
        } = self;
        let mut wanted = run.wanted();
        let ran = input.run(run, &mut |row| {
            counters.works += 1;
            let read;
            let row = if row.document.is_some() {
                row
            } else {
                counters.docs_examined += 1;
                match ahead.take(run, &row.id, row.document.upcoming(), wanted)? {
                    None => return Ok(Flow::Continue),
                    Some(bytes) => read = bytes,
                }
                Row {
                    document: RowDocument::Shared(&read),
                    ..row
                }
            };
            if let Some(filter) = filter
                && !filter.matches(as_document(row.document.bytes())?, run.evaluation)?
            {
                return Ok(Flow::Continue);
            }
            counters.advanced += 1;
            wanted = wanted.saturating_sub(1);
            receive(row)
        })?;
        counters.exhausted = ran == Ran::Exhausted;
        Ok(ran)
    }
}

/// SKIP: drops the first rows.
pub(crate) struct Skip {
    pub(crate) input: Stage,
    /// Rows to drop in all.
    pub(crate) amount: u64,
    pub(crate) left: u64,
    pub(crate) counters: StageCounters,
}

impl Skip {
    pub(crate) fn new(input: Stage, amount: u64) -> Self {
        Self {
            input,
            amount,
            left: amount,
            counters: StageCounters::default(),
        }
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            input, left, counters, ..
        } = self;
        let wanted = run.wanted().saturating_add(*left);
        let mut receive = |row: Row<'_>| {
            counters.works += 1;
            if *left > 0 {
                *left -= 1;
                return Ok(Flow::Continue);
            }
            counters.advanced += 1;
            receive(row)
        };
        let ran = run.wanting(wanted, || input.run(run, &mut receive))?;
        counters.exhausted = ran == Ran::Exhausted;
        Ok(ran)
    }
}

/// LIMIT: ends after so many rows.
pub(crate) struct Limit {
    pub(crate) input: Stage,
    pub(crate) amount: u64,
    pub(crate) left: u64,
    pub(crate) counters: StageCounters,
}

impl Limit {
    pub(crate) fn new(input: Stage, amount: u64) -> Self {
        Self {
            input,
            amount,
            left: amount,
            counters: StageCounters::default(),
        }
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            input, left, counters, ..
        } = self;
        if *left == 0 {
            counters.exhausted = true;
            return Ok(Ran::Exhausted);
        }
        let mut full = false;
        let wanted = run.wanted().min(*left);
        let mut receive = |row: Row<'_>| {
            counters.works += 1;
            counters.advanced += 1;
            *left -= 1;
            full = *left == 0;
            let flow = receive(row)?;
            Ok(if full { Flow::Stop } else { flow })
        };
        let ran = run.wanting(wanted, || input.run(run, &mut receive))?;
        let ran = if full { Ran::Exhausted } else { ran };
        counters.exhausted = ran == Ran::Exhausted;
        Ok(ran)
    }
}

/// What a projection stage makes of a row.
pub(crate) enum Shape {
    /// Applies a projection to the document.
    Document,
    /// Applies a projection to what the index key holds; reads the record only for keys that cannot tell null from
    /// missing.
    Covered,
    /// The index key itself.
    ReturnKey,
}

/// PROJECTION_SIMPLE, PROJECTION_DEFAULT, PROJECTION_COVERED, RETURN_KEY, and `$recordId`.
pub(crate) struct Project {
    pub(crate) input: Stage,
    pub(crate) projection: Option<Arc<Projection>>,
    pub(crate) shape: Shape,
    pub(crate) show_record_id: bool,
    /// The filter, whose matched array position a positional projection needs.
    pub(crate) matcher: Option<Arc<Matcher>>,
    pub(crate) key_document: KeyDocument,
    pub(crate) known: RowMetadata,
    pub(crate) scratch: Vec<u8>,
    pub(crate) counters: StageCounters,
}

impl Project {
    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        let Self {
            input,
            projection,
            shape,
            show_record_id,
            matcher,
            key_document,
            known,
            scratch,
            counters,
        } = self;
        let ran = input.run(run, &mut |row| {
            counters.works += 1;
            counters.advanced += 1;
            scratch.clear();
            let metadata = known.of(&row, run.evaluation)?;
            run.evaluation.on(metadata.as_ref());
            let read;
            let source = match (&*shape, row.key) {
                (Shape::ReturnKey, Some(key)) => key_document.flat(key)?,
                (Shape::ReturnKey, None) => super::EMPTY_DOCUMENT,
                (Shape::Covered, Some(key)) if !row.document.is_some() => match key_document.nested(key)? {
                    Some(document) => document,
                    None => {
                        counters.docs_examined += 1;
                        match run.view.record(run.collection, &row.id)? {
                            None => return Ok(Flow::Continue),
                            Some(bytes) => read = bytes,
                        }
                        &read
                    }
                },
                _ => row.document.bytes(),
            };
            match projection {
                Some(projection) => {
                    // What was left open before does not excuse a failure here.
                    run.evaluation.take_skipped();
                    let made = projection.apply(as_document(source)?, matcher.as_deref(), run.evaluation, scratch);
                    // In a race, where scripts do not run, nobody gets what is made, and that it fails without them
                    // says nothing of the plan.
                    match made {
                        Err(QueryError::Code(_)) if run.evaluation.take_skipped() => {
                            scratch.clear();
                            scratch.extend_from_slice(super::EMPTY_DOCUMENT);
                        }
                        made => made?,
                    }
                }
                None => scratch.extend_from_slice(source),
            }
            if *show_record_id {
                super::key_document::append_record_id(scratch, &row.id);
            }
            receive(Row {
                id: row.id,
                document: RowDocument::Made(scratch),
                key: row.key,
                metadata: row.metadata,
            })
        })?;
        counters.exhausted = ran == Ran::Exhausted;
        Ok(ran)
    }
}
