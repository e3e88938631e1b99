//! Upserts that lose the race for a unique key.

use crate::error::CommandError;
use bson::raw::{RawBsonRef, RawDocument};

/// An upsert that met a duplicate key tries again when every field of that key is fixed by equality in the filter: then
/// another client has inserted the document meanwhile, and it can be updated.
pub fn collides_with_filter(filter: &RawDocument, error: &CommandError) -> bool {
    let Some(pattern) = error
        .extra
        .as_ref()
        .and_then(|extra| extra.get_document("keyPattern").ok())
    else {
        return false;
    };
    pattern.keys().all(|field| has_equality(filter, field))
}

/// True for `{ field: value }`, `{ field: { $eq: value } }`, and those inside a top-level `$and`.
fn has_equality(filter: &RawDocument, field: &str) -> bool {
    filter
        .into_iter()
        .flatten()
        .any(|(name, value)| match (name.as_str(), value) {
            ("$and", RawBsonRef::Array(parts)) => parts.into_iter().flatten().any(|part| {
                part.as_document().is_some_and(|part| {
                    part.into_iter()
                        .flatten()
                        .any(|(name, value)| name.as_str() == field && is_equality(value))
                })
            }),
            (name, value) => name == field && is_equality(value),
        })
}

fn is_equality(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => match document.into_iter().next() {
            Some(Ok((name, _))) => !name.as_str().starts_with('$') || name.as_str() == "$eq",
            _ => true,
        },
        RawBsonRef::RegularExpression(_) => false,
        _ => true,
    }
}
