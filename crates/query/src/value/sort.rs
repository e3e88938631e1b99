//! Sort patterns: `{a: 1, "b.c": -1}` turned into keys that memcmp orders.
//!
//! The key of a document is the smallest of the keys an index with the same pattern would have for it: an array counts by
//! its smallest element ascending and by its largest descending, a missing field as null, an empty array before null.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use keys::{ExtractError, FieldOrder, IndexPattern, KeyExtractor, KeySet};
use wire::ErrorCode;

use super::number::Number;
use super::scan::Malformed;
use super::{Comparer, SharedDocument, Value};
use crate::error::QueryError;

/// A parsed sort pattern.
#[derive(Clone)]
pub struct SortPattern {
    extractor: KeyExtractor,
    document: RawDocumentBuf,
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
        let mut normalised = RawDocumentBuf::new();
        for element in pattern {
            let (name, raw) = element.map_err(|_| Malformed)?;
            let direction = match raw {
                RawBsonRef::Document(meta) if meta.get("$meta").ok().flatten().is_some() => {
                    return Err(bad(
                        ErrorCode::NotImplemented.0,
                        "sorting by {$meta: ...} is not implemented",
                    ));
                }
                RawBsonRef::Document(_) => {
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
            normalised.append(name, direction);
        }
        if normalised.is_empty() {
            return Err(bad(15976, "$sort stage must have at least one sort key"));
        }
        let index = IndexPattern::parse(&normalised).map_err(|error| bad(ErrorCode::BadValue.0, error.to_string()))?;
        let collator = comparer.shared_collator();
        Ok(SortPattern {
            extractor: KeyExtractor::new(index, false, collator),
            document: normalised,
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
            other => bad(ErrorCode::BadValue.0, other.to_string()),
        })?;
        if let Some(first) = keys.get(0) {
            out.extend_from_slice(first.key);
        }
        Ok(())
    }

    /// Appends the sort key of a value; what is not a document has none of the fields.
    pub fn append_key_of_value(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), QueryError> {
        let mut keys = KeySet::new();
        match value.as_document() {
            Some(document) => self.append_key(document, &mut keys, out),
            None => self.append_key(&SharedDocument::empty(), &mut keys, out),
        }
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
