//! Indexes of time-series collections: as clients say them, and as the buckets' collection has them.
//!
//! What cannot be read back from the buckets' index, a partial filter, is kept beside it as `originalSpec`.

use super::invalid;
use crate::arguments::Arguments;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::Document;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use query::matcher::Matcher;
use query::timeseries::{index_key_of_buckets, index_key_of_measurements, index_key_shown_as, meta_filter};
use storage::{Collection, Index, IndexSpec, TimeseriesOptions};

const ORIGINAL: &str = "originalSpec";

/// The buckets' index for a specification of a client's.
pub fn spec_of_buckets(
    call: &Invocation<'_>,
    given: &RawDocument,
    options: &TimeseriesOptions,
    parse: impl Fn(&RawDocument) -> Result<IndexSpec>,
) -> Result<IndexSpec> {
    let arguments = Arguments::of("createIndexes.indexes");
    let mut of_buckets = RawDocumentBuf::new();
    let (mut key, mut expires, mut filter) = (None, false, None);
    for element in given {
        let (name, value) = element?;
        match name.as_str() {
            "key" => key = Some(arguments.document("key", value)?),
            option @ ("unique" | "prepareUnique") if arguments.boolean(option, value)? => {
                return Err(invalid("Unique indexes are not supported on time-series collections"));
            }
            "partialFilterExpression" => filter = Some(arguments.document("partialFilterExpression", value)?),
            "expireAfterSeconds" => {
                expires = true;
                of_buckets.append(name, value);
            }
            _ => of_buckets.append(name, value),
        }
    }
    if let Some(key) = key {
        let is_text = |value: RawBsonRef<'_>| matches!(value, RawBsonRef::String("text"));
        if key.iter().flatten().any(|(_, value)| is_text(value)) {
            return Err(invalid("Text indexes are not supported on time-series collections"));
        }
        let translated = index_key_of_buckets(key, options)?;
        let is_sparse = given
            .get("sparse")?
            .is_some_and(|sparse| !matches!(sparse, RawBsonRef::Boolean(false)));
        let is_of_measurements = |name: &str| {
            let of_time = |end: &str| name.strip_prefix(end) == Some(options.time_field.as_str());
            name.starts_with("control.") && !of_time("control.min.") && !of_time("control.max.")
        };
        if is_sparse
            && translated
                .iter()
                .flatten()
                .any(|(name, _)| is_of_measurements(name.as_str()))
        {
            return Err(invalid("Sparse indexes are not supported on time-series measurements"));
        }
        if expires {
            of_buckets.append(cstr!("key"), expiring_key(key, filter.is_some(), options)?);
        } else {
            of_buckets.append(cstr!("key"), translated);
        }
    }
    if let Some(filter) = filter {
        let matcher = Matcher::parse(filter, &call.expressions())?;
        let of_meta = meta_filter(&matcher, options.meta_field.as_deref())?.ok_or_else(|| match expires {
            true => {
                invalid("TTL indexes on time-series collections have a partialFilterExpression on the metaField alone")
            }
            false => CommandError::not_implemented(
                "partialFilterExpression on other fields than the metaField of a time-series collection",
            ),
        })?;
        of_buckets.append(cstr!("partialFilterExpression"), of_meta);
    }
    let mut spec = parse(&of_buckets)?;
    if filter.is_some() {
        spec.spec.append(cstr!("originalSpec"), given.to_owned());
    }
    Ok(spec)
}

/// The key of an index by which measurements expire: buckets go by their begin.
fn expiring_key(key: &RawDocument, has_filter: bool, options: &TimeseriesOptions) -> Result<RawDocumentBuf> {
    if !has_filter {
        return Err(invalid(
            "TTL indexes on time-series collections require a partialFilterExpression on the metaField",
        ));
    }
    let mut fields = key.iter().flatten();
    match (fields.next(), fields.next()) {
        (Some((name, direction)), None) if name.as_str() == options.time_field => {
            let mut of_begin = RawDocumentBuf::new();
            let name = bson::raw::CString::try_from(format!("control.min.{}", options.time_field));
            let name = name.map_err(|_| CommandError::bad_value("a NUL in the timeField"))?;
            of_begin.append(name, direction);
            Ok(of_begin)
        }
        (_, Some(_)) => Err(CommandError::new(
            wire::ErrorCode::CannotCreateIndex,
            "TTL indexes are single-field indexes, compound indexes do not support TTL",
        )),
        _ => Err(invalid(
            "TTL indexes on non-time fields are not supported on time-series collections",
        )),
    }
}

/// An index of buckets as clients see it; `None` for one that they do not see.
pub fn shown_spec(index: &Index, options: &TimeseriesOptions) -> Result<Option<RawDocumentBuf>> {
    if index.is_id() {
        return Ok(None);
    }
    let spec = Document::try_from(index.spec())?;
    let Some(key) = index_key_of_measurements(index.key(), options) else {
        return Ok(None);
    };
    let mut shown = Document::new();
    for (name, value) in &spec {
        match name.as_str() {
            "key" => drop(shown.insert("key", Document::try_from(&*key)?)),
            ORIGINAL => {}
            "partialFilterExpression" => {
                let original = spec.get_document(ORIGINAL).ok().and_then(|given| given.get(name));
                shown.insert(name, original.unwrap_or(value).clone());
            }
            _ => drop(shown.insert(name, value.clone())),
        }
    }
    Ok(Some(RawDocumentBuf::try_from(&shown)?))
}

/// The argument `index` of `collMod` as one about the buckets' index.
pub fn change_of_buckets(
    given: &RawDocument,
    buckets: &Collection,
    options: &TimeseriesOptions,
) -> Result<RawDocumentBuf> {
    let mut of_buckets = RawDocumentBuf::new();
    for element in given {
        let (name, value) = element?;
        match (name.as_str(), value) {
            // Others stay what they are, and are not found.
            ("keyPattern", RawBsonRef::Document(key)) => {
                let found = index_key_shown_as(buckets, key, options).unwrap_or(key);
                of_buckets.append(name, found.to_owned());
            }
            ("expireAfterSeconds", _) => {
                return Err(invalid(
                    "TTL indexes are not supported on time-series collections: expireAfterSeconds of an index cannot be changed",
                ));
            }
            ("unique" | "prepareUnique", _) => {
                return Err(invalid("Unique indexes are not supported on time-series collections"));
            }
            (_, value) => of_buckets.append(name, value),
        }
    }
    Ok(of_buckets)
}
