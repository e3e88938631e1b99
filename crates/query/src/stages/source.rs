//! Sources that are not collections: documents from an iterator, `$documents`.

use bson::RawDocument;

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

impl Stage for IteratorSource {
    fn next(&mut self, _: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        self.documents.next().transpose()
    }
}
