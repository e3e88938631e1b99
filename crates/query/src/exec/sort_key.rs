//! Sort keys: bytes whose memcmp order is the order of a sort.
//!
//! The sort key of a document is the smallest key that an index on the sort's fields would have for it: of an array the
//! smallest element ascending, the largest descending. So a sort and a scan of such an index agree.

use crate::QueryError;
use crate::plan::access::SortField;
use crate::value::CollatorRef;
use bson::{RawDocument, RawDocumentBuf};
use collation::Collation;
use keys::{ExtractError, FieldOrder, IndexPattern, KeyExtractor, KeySet};
use std::sync::Arc;
use wire::ErrorCode;

/// Makes sort keys. Keeps its buffers from document to document.
pub(crate) struct SortKeys {
    pub(crate) fields: Vec<SortField>,
    extractor: KeyExtractor,
    keys: KeySet,
}

impl SortKeys {
    /// For a sort by these fields, at least one.
    pub(crate) fn new(fields: &[SortField], collation: Option<&Arc<Collation>>) -> Result<Self, QueryError> {
        let pattern =
            IndexPattern::parse(&sort_document(fields)).map_err(|error| QueryError::bad_value(error.to_string()))?;
        let collator = collation.map(|collation| Arc::clone(collation) as CollatorRef);
        Ok(Self {
            fields: fields.to_vec(),
            extractor: KeyExtractor::new(pattern, false, collator),
            keys: KeySet::new(),
        })
    }

    /// The key of a document, valid until the next call.
    pub(crate) fn key(&mut self, document: &RawDocument) -> Result<&[u8], QueryError> {
        self.extractor
            .extract(document, &mut self.keys)
            .map_err(|error| match error {
                ExtractError::ParallelArrays { .. } => {
                    QueryError::bad_value("cannot sort with keys that are parallel arrays")
                }
                other => QueryError::new(ErrorCode::BadValue, other.to_string()),
            })?;
        Ok(self.keys.get(0).map_or(&[], |key| key.key))
    }
}

/// `{a: 1, b: -1}`.
pub(crate) fn sort_document(fields: &[SortField]) -> RawDocumentBuf {
    let mut document = bson::Document::new();
    for field in fields {
        document.insert(
            field.path.clone(),
            if field.order == FieldOrder::Ascending { 1 } else { -1 },
        );
    }
    RawDocumentBuf::try_from(&document).unwrap_or_default()
}
