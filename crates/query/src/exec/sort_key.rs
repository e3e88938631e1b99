//! Sort keys: bytes whose memcmp order is the order of a sort.
//!
//! The sort key of a document is the smallest key that an index on the sort's fields would have for it: of an array the
//! smallest element ascending, the largest descending. So a sort and a scan of such an index agree.

use super::key_document::KeyDocument;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::metadata::Metadata;
use crate::sort_field::{SortField, extended, least_key};
use crate::value::CollatorRef;
use bson::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf};
use collation::Collation;
use keys::key::KeyDecoder;
use keys::{FieldOrder, IndexPattern, KeyExtractor, KeySet};
use std::sync::Arc;

/// Makes sort keys. Keeps its buffers from document to document.
pub(crate) struct SortKeys {
    pub(crate) fields: Vec<SortField>,
    extractor: KeyExtractor,
    keys: KeySet,
    /// A document with what is known of it, where that is sorted by.
    extended: Vec<u8>,
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
            extended: Vec::new(),
        })
    }

    /// The key of a document, valid until the next call.
    pub(crate) fn key(
        &mut self,
        document: &RawDocument,
        metadata: Option<&Arc<Metadata>>,
        context: &EvaluationContext<'_>,
    ) -> Result<&[u8], QueryError> {
        let by_metadata = self.fields.iter().filter_map(SortField::metadata_field);
        let document = match self.fields.iter().any(|field| field.metadata.is_some()) {
            true => extended(document, metadata, by_metadata, &mut self.extended)?,
            false => document,
        };
        least_key(&self.extractor, document, &mut self.keys, context)?;
        Ok(self.keys.get(0).map_or(&[], |key| key.key))
    }
}

impl SortKeys {
    /// The values that a document is sorted by, where its key tells them: a collation's does not.
    pub(crate) fn values(
        &mut self,
        document: &RawDocument,
        metadata: Option<&Arc<Metadata>>,
        context: &EvaluationContext<'_>,
    ) -> Result<Option<RawArrayBuf>, QueryError> {
        self.key(document, metadata, context)?;
        let (Some(key), ordering) = (self.keys.get(0), self.extractor.pattern().ordering()) else {
            return Ok(None);
        };
        let mut decoder = KeyDecoder::new(key.key, key.types, ordering);
        let (mut values, mut scratch) = (RawArrayBuf::new(), KeyDocument::default());
        for _ in &self.fields {
            let Ok(value) = scratch.value(&mut decoder) else {
                return Ok(None);
            };
            values.push(value.map_or(RawBson::Null, RawBson::from));
        }
        Ok(Some(values))
    }
}

/// The sort as clients write it.
pub(crate) fn shown_sort(fields: &[SortField]) -> RawDocumentBuf {
    let mut document = bson::Document::new();
    for field in fields {
        match &field.metadata {
            Some((metadata, name)) => document.insert(name.clone(), bson::doc! { "$meta": metadata.name() }),
            None => document.insert(
                field.path.clone(),
                if field.order == FieldOrder::Ascending { 1 } else { -1 },
            ),
        };
    }
    RawDocumentBuf::try_from(&document).unwrap_or_default()
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
