//! Sources that are not collections: documents from an iterator, `$documents`.

use bson::RawDocument;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use super::{Stage, StageContext, failure};
use crate::error::QueryError;
use crate::value::{SharedDocument, Value};

/// A source that takes its documents from an iterator: for commands such as `$indexStats` and for tests.
pub struct IteratorSource {
    documents: Box<dyn Iterator<Item = Result<SharedDocument, QueryError>> + Send>,
}

impl IteratorSource {
    /// The documents of `documents`.
    pub fn new<I>(documents: I) -> Self
    where
        I: IntoIterator<Item = SharedDocument>,
        I::IntoIter: Send + 'static,
    {
        Self {
            documents: Box::new(documents.into_iter().map(Ok)),
        }
    }

    /// The elements of the array in the document `{"": [...]}`.
    pub(super) fn of_array(wrapped: &RawDocument) -> Result<Self, QueryError> {
        let Value::Array(array) = Value::field(wrapped, "")? else {
            return failure(5858203, "$documents must evaluate to an array of objects");
        };
        let mut documents = Vec::new();
        for item in array.iter() {
            match item? {
                Value::Document(document) => documents.push(document.to_shared()),
                other => {
                    return failure(
                        40228,
                        format!("$documents: expected an object, found {}", other.type_name()),
                    );
                }
            }
        }
        Ok(Self::new(documents))
    }
}

/// Documents that a stage fills in, over and over, for the stages on top of it.
#[derive(Clone, Default)]
pub(super) struct FilledSource(Arc<Mutex<Filled>>);

#[derive(Default)]
struct Filled {
    documents: VecDeque<SharedDocument>,
    /// More are to come.
    pauses: bool,
}

impl FilledSource {
    /// Puts these documents in place of what is left of those before. There are no more.
    pub(super) fn fill(&self, documents: impl IntoIterator<Item = SharedDocument>) {
        self.put(documents, false);
    }

    /// As [`FilledSource::fill`], but the source pauses behind them, until it is filled again.
    pub(super) fn fill_part(&self, documents: impl IntoIterator<Item = SharedDocument>) {
        self.put(documents, true);
    }

    fn put(&self, documents: impl IntoIterator<Item = SharedDocument>, pauses: bool) {
        let mut filled = self.0.lock();
        filled.documents.clear();
        filled.documents.extend(documents);
        filled.pauses = pauses;
    }
}

impl Stage for FilledSource {
    fn next(&mut self, _: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let mut filled = self.0.lock();
        match filled.documents.pop_front() {
            None if filled.pauses => Err(QueryError::Paused),
            next => Ok(next),
        }
    }

    fn restart(&mut self, _: &StageContext<'_>) -> Result<bool, QueryError> {
        Ok(true)
    }
}

impl Stage for IteratorSource {
    fn next(&mut self, _: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        self.documents.next().transpose()
    }
}
