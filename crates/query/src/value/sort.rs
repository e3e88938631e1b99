//! Sort patterns: `{a: 1, "b.c": -1}` turned into keys that memcmp orders.
//!
//! The key of a document is the smallest of the keys an index with the same pattern would have for it: an array counts
//! by its smallest element ascending and by its largest descending, a missing field as null, an empty array before
//! null.

use bson::raw::CString;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use keys::{ExtractError, FieldOrder, IndexPattern, KeyExtractor, KeySet};
use wire::ErrorCode;

use super::number::Number;
use super::scan::Malformed;
use super::{Comparer, SharedDocument, Value};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::exec::sort_key::extended;
use crate::metadata::{MetadataField, MetadataNeeds};
use crate::plan::access::SortField;
use crate::plan::query::metadata_sort;

/// A parsed sort pattern.
#[derive(Clone)]
pub struct SortPattern {
    extractor: KeyExtractor,
    document: RawDocumentBuf,
    /// What it sorts by beside fields.
    metadata: Vec<MetadataField>,
}

impl std::fmt::Debug for SortPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.document.fmt(f)
    }
}

fn bad(code: i32, message: impl Into<String>) -> QueryError {
    QueryError::new(ErrorCode(code), message.into())
}

impl SortPattern {
    /// Parses a pattern of 1 to 32 fields whose values are 1 or -1.
    pub fn parse(pattern: &RawDocument, comparer: &Comparer) -> Result<SortPattern, QueryError> {
        let (mut document, mut keys, mut metadata) = (RawDocumentBuf::new(), RawDocumentBuf::new(), Vec::new());
        for element in pattern {
            let (name, raw) = element.map_err(|_| Malformed)?;
            let direction = match raw {
                RawBsonRef::Document(special) => {
                    if let Some(field) = metadata_sort(special)? {
                        document.append(name, special.to_owned());
                        let of_field = SortField::of_metadata(field, name.as_str());
                        let order = if of_field.order == FieldOrder::Ascending { 1 } else { -1 };
                        let path = CString::try_from(of_field.path).map_err(|_| Malformed)?;
                        keys.append(&path, order);
                        metadata.push(field);
                        continue;
                    }
                    return Err(bad(17312, "$meta is the only expression supported by $sort right now"));
                }
                other => Number::of(&Value::from_raw(other)),
            };
            let Some(direction) = direction else {
                let shown = Value::from_raw(raw).render();
                return Err(bad(
                    15974,
                    format!("Illegal key in $sort specification: {}: {shown}", name.as_str()),
                ));
            };
            // Truncated: 1.9 is 1.
            let direction = match direction.to_f64().trunc() {
                1.0 => 1,
                -1.0 => -1,
                _ => {
                    return Err(bad(
                        15975,
                        "$sort key ordering must be 1 (for ascending) or -1 (for descending)",
                    ));
                }
            };
            if name.as_str().split('.').any(str::is_empty) {
                return Err(bad(15998, "FieldPath field names may not be empty strings."));
            }
            if name.as_str().split('.').any(|part| part.starts_with('$')) {
                return Err(bad(
                    16410,
                    "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
                ));
            }
            document.append(name, direction);
            keys.append(name, direction);
        }
        if document.is_empty() {
            return Err(bad(15976, "$sort stage must have at least one sort key"));
        }
        let index = IndexPattern::parse(&keys).map_err(|error| bad(ErrorCode::BadValue.0, error.to_string()))?;
        let collator = comparer.shared_collator();
        Ok(SortPattern {
            extractor: KeyExtractor::new(index, false, collator),
            document,
            metadata,
        })
    }

    /// The pattern as a document, values 1 or -1.
    pub fn document(&self) -> &RawDocument {
        &self.document
    }

    /// Appends the sort key of `document`.
    pub fn append_key(&self, document: &RawDocument, keys: &mut KeySet, out: &mut Vec<u8>) -> Result<(), QueryError> {
        self.extractor.extract(document, keys).map_err(|error| match error {
            ExtractError::ParallelArrays { .. } => {
                bad(ErrorCode::BadValue.0, "cannot sort with keys that are parallel arrays")
            }
            error @ ExtractError::AmbiguousPosition { .. } => bad(16746, error.to_string()),
            other => bad(ErrorCode::BadValue.0, other.to_string()),
        })?;
        if let Some(first) = keys.get(0) {
            out.extend_from_slice(first.key);
        }
        Ok(())
    }

    /// What it sorts by beside fields.
    pub(crate) fn metadata_needs(&self) -> MetadataNeeds {
        let needs = self.metadata.iter().copied().map(MetadataNeeds::of);
        needs.fold(MetadataNeeds::default(), MetadataNeeds::and)
    }

    /// As [`SortPattern::append_key`], with what is known of the document beside its fields.
    pub(crate) fn append_key_of(
        &self,
        document: &SharedDocument,
        keys: &mut KeySet,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        if self.metadata.is_empty() {
            return self.append_key(document, keys, out);
        }
        let mut buffer = Vec::new();
        let fields = self.metadata.iter().copied();
        self.append_key(extended(document, document.metadata(), fields, &mut buffer)?, keys, out)
    }

    /// As [`SortPattern::append_key`], of the document that is evaluated on now.
    pub(crate) fn append_key_on(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
        keys: &mut KeySet,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        if self.metadata.is_empty() {
            return self.append_key(document, keys, out);
        }
        let (known, mut buffer) = (context.current(), Vec::new());
        let fields = self.metadata.iter().copied();
        self.append_key(extended(document, known.as_ref(), fields, &mut buffer)?, keys, out)
    }

    /// Whether the first `n` fields of both patterns, n being this one's length, are the same.
    pub fn is_prefix_of(&self, other: &SortPattern) -> bool {
        let (own, others) = (self.extractor.pattern().fields(), other.extractor.pattern().fields());
        own.len() <= others.len()
            && own
                .iter()
                .zip(others)
                .all(|(a, b)| a.path() == b.path() && a.order() == b.order())
    }

    /// The paths sorted by, with their directions.
    pub fn fields(&self) -> impl Iterator<Item = (&str, FieldOrder)> {
        self.extractor
            .pattern()
            .fields()
            .iter()
            .map(|field| (field.path(), field.order()))
    }
}
