//! Key patterns of indexes: as users of a time-series collection say them, and as its buckets' collection has them.
//!
//! The metaField and what is in it become `meta`, the time and every field of measurements become the two ends that
//! buckets keep of them, the one that comes first in the direction first.

use bson::raw::{CString, RawBsonRef};
use bson::{RawDocument, RawDocumentBuf};
use storage::{Collection, Index, TimeseriesOptions};
use wire::ErrorCode;

use crate::error::QueryError;
use crate::value::Value;
use crate::value::number::Number;

const LEAST: &str = "control.min.";
const GREATEST: &str = "control.max.";

fn cannot<T>(text: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::new(ErrorCode::CannotCreateIndex, text))
}

fn push(key: &mut RawDocumentBuf, name: &str, value: RawBsonRef<'_>) -> Result<(), QueryError> {
    let name = CString::try_from(name.to_owned()).map_err(|_| QueryError::bad_value("a NUL in a field's name"))?;
    key.append(name, value);
    Ok(())
}

/// What of a path is behind a field, a dot included: empty for the field itself; `None` for other paths.
pub(super) fn below<'p>(path: &'p str, field: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(field)?;
    (rest.is_empty() || rest.starts_with('.')).then_some(rest)
}

/// The buckets' key pattern for one of measurements.
///
/// Errors: a pattern that buckets cannot have (67), or that is not built (238).
pub fn index_key_of_buckets(key: &RawDocument, options: &TimeseriesOptions) -> Result<RawDocumentBuf, QueryError> {
    if key.is_empty() {
        return cannot("Empty object is not a valid index spec");
    }
    let mut of_buckets = RawDocumentBuf::new();
    for element in key {
        let (name, value) = element.map_err(|error| QueryError::bad_value(error.to_string()))?;
        let name = name.as_str();
        if name.starts_with('$') && !name.starts_with("$**") {
            return cannot(format!("Invalid index spec for time-series collection: {name}"));
        }
        if let Some(rest) = options.meta_field.as_deref().and_then(|meta| below(name, meta)) {
            push(&mut of_buckets, &format!("meta{rest}"), value)?;
            continue;
        }
        if name.contains("$**") {
            return cannot("Wildcard indexes are only supported on the metaField of a time-series collection");
        }
        let Some(direction) = Number::of(&Value::from_raw(value)) else {
            return match value {
                RawBsonRef::String("2dsphere") => Err(QueryError::not_implemented(
                    "a 2dsphere index on measurements of a time-series collection",
                )),
                _ => cannot(format!(
                    "Invalid index spec for time-series collection: {name} is neither the metaField nor ascending or descending"
                )),
            };
        };
        let is_rising = direction.to_f64() >= 0.0;
        let (first, second) = if is_rising {
            (LEAST, GREATEST)
        } else {
            (GREATEST, LEAST)
        };
        push(&mut of_buckets, &format!("{first}{name}"), value)?;
        push(&mut of_buckets, &format!("{second}{name}"), value)?;
    }
    Ok(of_buckets)
}

/// Whether an index of buckets is shown with this key pattern.
pub fn is_shown_as(index: &Index, key: &RawDocument, options: &TimeseriesOptions) -> bool {
    let shown = index_key_of_measurements(index.key(), options);
    shown.is_some_and(|shown| keys::compare_documents(&shown, key).is_eq())
}

/// The buckets' key pattern of the index that is shown with this one. Two are possible: of an index by which
/// measurements expire buckets have the begin alone. The pair goes first: the other may be a partial one, and not have
/// all that a plain one has.
pub fn index_key_shown_as<'b>(
    buckets: &'b Collection,
    key: &RawDocument,
    options: &TimeseriesOptions,
) -> Option<&'b RawDocument> {
    let pair = index_key_of_buckets(key, options).ok();
    let is_pair = |index: &Index| {
        let pair = pair.as_deref();
        pair.is_some_and(|pair| keys::compare_documents(index.key(), pair).is_eq())
    };
    let indexes = buckets.indexes().iter();
    let shown = indexes.filter(|index| is_shown_as(index, key, options));
    shown.min_by_key(|index| !is_pair(index)).map(|index| index.key())
}

/// The measurements' key pattern for one of buckets; `None` when there is none: the index is that of the buckets' own.
pub fn index_key_of_measurements(key: &RawDocument, options: &TimeseriesOptions) -> Option<RawDocumentBuf> {
    let mut of_measurements = RawDocumentBuf::new();
    let mut fields = key.iter().flatten().peekable();
    while let Some((name, value)) = fields.next() {
        let name = name.as_str();
        if let (Some(rest), Some(meta)) = (below(name, "meta"), &options.meta_field) {
            push(&mut of_measurements, &format!("{meta}{rest}"), value).ok()?;
            continue;
        }
        let is_rising = Number::of(&Value::from_raw(value))?.to_f64() >= 0.0;
        let (first, second) = if is_rising {
            (LEAST, GREATEST)
        } else {
            (GREATEST, LEAST)
        };
        let field = name.strip_prefix(first)?;
        let is_pair = |(name, other): &(&bson::raw::CStr, RawBsonRef<'_>)| {
            name.as_str().strip_prefix(second) == Some(field) && *other == value
        };
        match fields.next_if(is_pair) {
            Some(_) => {}
            // Of an index that lets measurements expire there is the begin alone.
            None if field == options.time_field && key.iter().count() == 1 => {}
            None => return None,
        }
        push(&mut of_measurements, field, value).ok()?;
    }
    (!of_measurements.is_empty()).then_some(of_measurements)
}
