#![allow(clippy::unwrap_used)]
//! Pipelines over documents in memory.

mod blocks;
mod cases;
mod properties;
mod refusals;
mod streamed;

use std::collections::HashMap;
use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use vfs::SeededRandom;

use super::*;
use crate::matcher::Matcher;

/// Other collections, for `$lookup`.
#[derive(Default)]
pub(super) struct Memory {
    collections: HashMap<String, Vec<Document>>,
    opened: std::cell::Cell<usize>,
}

impl Execution for Memory {
    fn check(&self) -> Result<(), QueryError> {
        Ok(())
    }

    fn open_foreign(&self, request: ForeignRequest<'_>) -> Result<Box<dyn Stage>, QueryError> {
        self.opened.set(self.opened.get() + 1);
        let mut documents = Vec::new();
        for document in request
            .collection
            .and_then(|name| self.collections.get(name))
            .into_iter()
            .flatten()
        {
            let document = shared(document);
            let matches = match &request.filter {
                None => true,
                Some(filter) => {
                    Matcher::parse(filter, request.context)?.matches(&document, &EvaluationContext::uninterrupted())?
                }
            };
            if matches {
                documents.push(document);
            }
        }
        let pipeline = Pipeline::parse_stages(request.pipeline, request.context, request.depth)?;
        pipeline.run(Box::new(IteratorSource::new(documents)))
    }
}

pub(super) fn context() -> ExpressionContext {
    ExpressionContext::new(0, Arc::new(SeededRandom::new(11)))
}

pub(super) fn shared(document: &Document) -> SharedDocument {
    SharedDocument::from(RawDocumentBuf::try_from(document).unwrap())
}

pub(super) fn parse(stages: &[Document]) -> Result<Pipeline, QueryError> {
    let raw: Vec<RawDocumentBuf> = stages
        .iter()
        .map(|stage| RawDocumentBuf::try_from(stage).unwrap())
        .collect();
    Pipeline::parse_stages(&raw, &context(), 0)
}

pub(super) fn drain(pipeline: Pipeline, input: &[Document], memory: &Memory) -> Result<Vec<Document>, QueryError> {
    let source = IteratorSource::new(input.iter().map(shared).collect::<Vec<_>>());
    drain_from(pipeline, Box::new(source), memory)
}

/// A source that pauses before each document and before its end.
struct Pausing {
    documents: std::vec::IntoIter<SharedDocument>,
    has_paused: bool,
    has_ended: bool,
}

impl Stage for Pausing {
    fn next(&mut self, _: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        self.has_paused = !self.has_paused;
        if self.has_paused && !self.has_ended {
            return Err(QueryError::Paused);
        }
        let next = self.documents.next();
        self.has_ended = next.is_none();
        Ok(next)
    }
}

/// As [`drain`], of a source that pauses.
pub(super) fn drain_pausing(
    pipeline: Pipeline,
    input: &[Document],
    memory: &Memory,
) -> Result<Vec<Document>, QueryError> {
    let source = Pausing {
        documents: input.iter().map(shared).collect::<Vec<_>>().into_iter(),
        has_paused: false,
        has_ended: false,
    };
    drain_from(pipeline, Box::new(source), memory)
}

pub(super) fn drain_from(
    pipeline: Pipeline,
    source: Box<dyn Stage>,
    execution: &dyn Execution,
) -> Result<Vec<Document>, QueryError> {
    let mut top = pipeline.run(source)?;
    let evaluation = EvaluationContext::uninterrupted();
    let mut context = StageContext {
        execution,
        evaluation: &evaluation,
    };
    let mut found = Vec::new();
    loop {
        match top.next(&mut context) {
            Ok(Some(document)) => found.push(Document::try_from(document.as_raw()).unwrap()),
            Ok(None) => break,
            Err(QueryError::Paused) => {}
            Err(error) => return Err(error),
        }
    }
    assert!(top.next(&mut context)?.is_none(), "a stage that has ended stays so");
    Ok(found)
}

pub(super) fn run(stages: &[Document], input: &[Document]) -> Vec<Document> {
    drain(parse(stages).unwrap(), input, &Memory::default()).unwrap()
}

/// Checks the result, as written, of a source that pauses, and optimised.
#[track_caller]
pub(super) fn gives(stages: &[Document], input: &[Document], expected: &[Document]) {
    assert_eq!(run(stages, input), expected, "{stages:?}");
    let pausing = drain_pausing(parse(stages).unwrap(), input, &Memory::default());
    assert_eq!(pausing.unwrap(), expected, "{stages:?}, whose source pauses");
    let mut optimized = parse(stages).unwrap();
    optimized.optimize();
    assert_eq!(
        drain(optimized, input, &Memory::default()).unwrap(),
        expected,
        "{stages:?} optimised"
    );
}

/// The stages after optimising.
pub(super) fn optimized(stages: &[Document]) -> Vec<Document> {
    let mut pipeline = parse(stages).unwrap();
    pipeline.optimize();
    pipeline
        .to_documents()
        .iter()
        .map(|stage| Document::try_from(stage).unwrap())
        .collect()
}

/// The code that a stage is refused with.
#[track_caller]
pub(super) fn code(stage: Document, expected: i32) {
    match parse(std::slice::from_ref(&stage)) {
        Ok(_) => panic!("{stage} is accepted"),
        Err(error) => assert_eq!(error.code().unwrap().0, expected, "{stage}: {error}"),
    }
}

/// The code that running the stages fails with.
#[track_caller]
pub(super) fn run_error(stages: &[Document], input: &[Document]) -> i32 {
    let error = drain(parse(stages).unwrap(), input, &Memory::default()).unwrap_err();
    error.code().unwrap_or_else(|| panic!("{error}")).0
}

pub(super) fn numbers(values: std::ops::Range<i32>) -> Vec<Document> {
    values.map(|n| doc! {"_id": n, "x": n % 3}).collect()
}

pub(super) fn array(documents: Vec<Document>) -> Bson {
    Bson::Array(documents.into_iter().map(Bson::Document).collect())
}
