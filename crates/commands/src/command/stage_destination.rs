//! Where the stages that write do so: the names they give, and documents that are inserted there.

use super::insert::{InsertBatch, insert_documents};
use super::write_result::WriteErrors;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use storage::Namespace;
use wire::ErrorCode;

pub(super) fn failure<T>(code: i32, message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(ErrorCode(code), message))
}

/// What `{db, coll}` names, and the first field that is neither.
pub(super) struct Named<'d> {
    pub(super) db: &'d str,
    pub(super) coll: Option<&'d str>,
    pub(super) other: Option<&'d str>,
    /// There is a document `timeseries`, which `$out` may have.
    pub(super) has_timeseries: bool,
}

/// Reads a collection's name, or a document with it; `None` for a value that is neither.
pub(super) fn named<'d>(call: &Invocation<'d>, value: RawBsonRef<'d>) -> Result<Option<Named<'d>>> {
    let mut named = Named {
        db: call.database,
        coll: None,
        other: None,
        has_timeseries: false,
    };
    match value {
        RawBsonRef::String(name) => named.coll = Some(name),
        RawBsonRef::Document(document) => {
            for field in document {
                match field? {
                    (name, RawBsonRef::String(text)) if name == "db" => named.db = text,
                    (name, RawBsonRef::String(text)) if name == "coll" => named.coll = Some(text),
                    (name, RawBsonRef::Document(_)) if name == "timeseries" => named.has_timeseries = true,
                    (name, _) => named.other = named.other.or(Some(name.as_str())),
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
    let batch = InsertBatch::of_results(&documents);
    let mut errors = WriteErrors::new();
    insert_documents(call, ns, &batch, &mut errors)?;
    first_error(errors)
}
