//! Where the stages that write do so: the names they give, and documents that are inserted there.

use super::insert::{InsertBatch, insert_documents};
use super::write_result::WriteErrors;
use crate::arguments::wrong_type;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use storage::Namespace;
use wire::ErrorCode;

pub(super) fn failure<T>(code: i32, message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(ErrorCode(code), message))
}

/// What `{db, coll}` names, and the first field that is neither.
#[derive(Default)]
pub(super) struct Named<'d> {
    pub(super) db: Option<&'d str>,
    pub(super) coll: Option<&'d str>,
    /// Options of a time-series collection, which `$out` may have.
    pub(super) timeseries: Option<&'d RawDocument>,
    pub(super) other: Option<&'d str>,
}

/// Reads a collection's name, or a document with it, for `within`; `None` for a value that is neither. Null is as if
/// there were no such field.
pub(super) fn named<'d>(within: &str, value: RawBsonRef<'d>) -> Result<Option<Named<'d>>> {
    let mut named = Named::default();
    match value {
        RawBsonRef::String(name) => named.coll = Some(name),
        RawBsonRef::Document(document) => {
            let mut seen = Vec::with_capacity(3);
            for field in document {
                let (name, value) = field?;
                let name = name.as_str();
                if !matches!(name, "db" | "coll" | "timeseries") {
                    named.other = named.other.or(Some(name));
                    continue;
                }
                if seen.contains(&name) {
                    return failure(40413, format!("BSON field '{within}.{name}' is a duplicate field"));
                }
                seen.push(name);
                match (name, value) {
                    (_, RawBsonRef::Null | RawBsonRef::Undefined) => {}
                    ("db", RawBsonRef::String(text)) => named.db = Some(text),
                    ("coll", RawBsonRef::String(text)) => named.coll = Some(text),
                    ("timeseries", RawBsonRef::Document(options)) => named.timeseries = Some(options),
                    ("timeseries", other) => return Err(wrong_type(within, name, other, "type 'object'")),
                    (_, other) => return Err(wrong_type(within, name, other, "type 'string'")),
                }
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(named))
}

pub(super) fn unknown_field<T>(field: &str) -> Result<T> {
    failure(40415, format!("BSON field '{field}' is an unknown field."))
}

/// A collection that may be written to so.
pub(super) fn target(db: &str, coll: &str, stage: &str, internal: i32, special: i32) -> Result<Namespace> {
    let ns = Namespace::new(db, coll)?;
    if matches!(db, "admin" | "config" | "local") {
        return failure(internal, format!("Can't {stage} to internal database: {db}"));
    }
    if coll.starts_with("system.") {
        return failure(special, format!("Can't {stage} to special collection: {coll}"));
    }
    Ok(ns)
}

pub(super) fn first_error(errors: WriteErrors) -> Result<()> {
    match errors.each().next() {
        None => Ok(()),
        Some((_, mut error)) => {
            error.message = format!(
                "PlanExecutor error during aggregation :: caused by :: {}",
                error.message
            );
            Err(error)
        }
    }
}

pub(super) fn insert(call: &mut Invocation<'_>, ns: &Namespace, documents: &[RawDocumentBuf]) -> Result<()> {
    let documents: Vec<&RawDocument> = documents.iter().map(|document| &**document).collect();
    insert_batch(call, ns, &InsertBatch::of_results(&documents))
}

/// As [`insert`].
pub(super) fn insert_batch(call: &mut Invocation<'_>, ns: &Namespace, batch: &InsertBatch<'_>) -> Result<()> {
    let mut errors = WriteErrors::new();
    insert_documents(call, ns, batch, &mut errors)?;
    first_error(errors)
}

#[cfg(test)]
mod tests {
    use super::named;
    use bson::rawdoc;

    #[test]
    fn a_name_is_given_once() {
        for twice in [
            rawdoc! { "db": "x", "coll": "d", "db": "x" },
            rawdoc! { "db": "x", "coll": "d", "coll": null },
        ] {
            let refused = named("$out", (&*twice).into()).err();
            assert_eq!(refused.map(|error| error.code.0), Some(40413), "{twice:?}");
        }
    }
}
