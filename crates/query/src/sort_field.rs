//! A field that documents are sorted by: one of theirs, or something that is known of them beside their fields.

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::exec::row::as_document;
use crate::metadata::{Metadata, MetadataField};
use crate::value::{BYTES_PER_STEP, Value};
use bson::RawDocument;
use bson::raw::RawBsonRef;
use keys::{ExtractError, FieldOrder, KeyExtractor, KeySet};
use std::sync::Arc;
use wire::ErrorCode;

/// A field of a sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortField {
    pub(crate) path: String,
    pub(crate) order: FieldOrder,
    /// Sorts by what is known of a document beside its fields, under the name that the client gave: then the path is
    /// one that no document and no index has.
    pub(crate) metadata: Option<(MetadataField, String)>,
}

impl SortField {
    /// A field of documents.
    pub(crate) fn of(path: &str, order: FieldOrder) -> Self {
        Self {
            path: path.to_owned(),
            order,
            metadata: None,
        }
    }

    /// `{name: {$meta: ...}}`: the best first.
    pub(crate) fn of_metadata(field: MetadataField, name: &str) -> Self {
        let order = match field {
            MetadataField::NearDistance => FieldOrder::Ascending,
            _ => FieldOrder::Descending,
        };
        Self {
            path: metadata_path(field),
            order,
            metadata: Some((field, name.to_owned())),
        }
    }

    /// What it sorts by, if it is no field of documents.
    pub(crate) fn metadata_field(&self) -> Option<MetadataField> {
        self.metadata.as_ref().map(|(field, _)| *field)
    }
}

/// The path that metadata has while it is sorted by.
pub(crate) fn metadata_path(field: MetadataField) -> String {
    format!("\u{1}{}", field.name())
}

/// What `{$meta: ...}` in a sort sorts by; `None` of other documents.
pub(crate) fn metadata_sort(special: &RawDocument) -> Result<Option<MetadataField>, QueryError> {
    let Some((operator, name)) = special.iter().next().and_then(Result::ok) else {
        return Ok(None);
    };
    if operator.as_str() != "$meta" {
        return Ok(None);
    }
    if special.iter().count() != 1 {
        return Err(QueryError::failed_to_parse(
            "Cannot have additional keys in a $meta sort specification",
        ));
    }
    let RawBsonRef::String(name) = name else {
        return Err(QueryError::new(
            ErrorCode(31138),
            "Illegal $meta sort: it must be a string",
        ));
    };
    match MetadataField::parse(name) {
        Ok(field) if field.is_sorted_by() => Ok(Some(field)),
        _ => Err(QueryError::new(ErrorCode(31138), format!("Illegal $meta sort: {name}"))),
    }
}

/// Puts the least key of a document into `keys`: what it is sorted by.
pub(crate) fn least_key(
    extractor: &KeyExtractor,
    document: &RawDocument,
    keys: &mut KeySet,
    context: &EvaluationContext<'_>,
) -> Result<(), QueryError> {
    let mut ended = None;
    let extracted = extractor.extract_least(document, keys, &mut |bytes| {
        ended = context.steps(bytes / BYTES_PER_STEP).err();
        ended.is_none()
    });
    if let Some(ended) = ended {
        return Err(ended);
    }
    extracted.map_err(|error| match error {
        ExtractError::ParallelArrays { .. } => QueryError::bad_value("cannot sort with keys that are parallel arrays"),
        error @ ExtractError::AmbiguousPosition { .. } => QueryError::new(ErrorCode(16746), error.to_string()),
        other => QueryError::bad_value(other.to_string()),
    })
}

/// A copy of a document with what is known of it under the paths that sorts have for it.
pub(crate) fn extended<'e>(
    document: &RawDocument,
    metadata: Option<&Arc<Metadata>>,
    fields: impl Iterator<Item = MetadataField>,
    out: &'e mut Vec<u8>,
) -> Result<&'e RawDocument, QueryError> {
    out.clear();
    out.extend_from_slice(document.as_bytes());
    out.pop();
    for field in fields {
        let value = metadata.map_or(Value::Missing, |metadata| metadata.get(field));
        value.append_to(out, &metadata_path(field));
    }
    out.push(0);
    let length = out.len() as u32;
    if let Some(header) = out.first_chunk_mut::<4>() {
        *header = length.to_le_bytes();
    }
    as_document(out)
}
