//! Field paths of expressions: `a.b.c`, through documents and arrays of documents.
//!
//! An array on the way yields the array of what its documents have there; elements that are not documents, or lack the
//! field, are skipped. Path components are names only: digits do not index arrays here.

use std::fmt;

use bson::RawDocument;

use super::failure::failure;
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::path::is_reference_field;
use crate::value::{ArrayValue, BYTES_PER_STEP, DocumentValue, Value};

/// A checked field path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    parts: Box<[Box<str>]>,
}

/// Components a path may have; documents nest no deeper.
const PARTS_MAX: usize = 200;

impl FieldPath {
    /// Parses a dotted path without its `$`.
    pub fn parse(path: &str) -> Result<FieldPath, QueryError> {
        if path.is_empty() {
            return failure(40352, "FieldPath cannot be constructed with empty string");
        }
        if path.ends_with('.') {
            return failure(40353, "FieldPath must not end with a '.'.");
        }
        let mut parts = Vec::new();
        for part in path.split('.') {
            check_part(part)?;
            parts.push(Box::from(part));
        }
        if parts.len() > PARTS_MAX {
            return failure(15, "FieldPath is too long");
        }
        Ok(FieldPath { parts: parts.into() })
    }

    /// The components.
    pub fn parts(&self) -> &[Box<str>] {
        &self.parts
    }

    /// The value in `document`.
    #[inline]
    pub fn of_document<'a>(&self, document: &'a RawDocument) -> Result<Value<'a>, QueryError> {
        match &*self.parts {
            [only] => Ok(Value::field(document, only)?),
            parts => walk(&Value::Document(DocumentValue::Borrowed(document)), parts),
        }
    }

    /// As [`FieldPath::of_document`], counting steps: a name that is not there is looked for in all of the document.
    #[inline]
    pub(super) fn look_up<'a>(
        &self,
        document: &'a RawDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<Value<'a>, QueryError> {
        context.steps(1 + document.as_bytes().len() / BYTES_PER_STEP)?;
        self.of_document(document)
    }

    /// As [`FieldPath::of_value`], counting steps.
    pub(super) fn look_up_in<'a>(
        &self,
        value: &Value<'a>,
        context: &EvaluationContext<'_>,
    ) -> Result<Value<'a>, QueryError> {
        context.steps(1 + value.steps())?;
        self.of_value(value)
    }

    /// The value in `value`, when that is a document or an array of documents.
    pub fn of_value<'a>(&self, value: &Value<'a>) -> Result<Value<'a>, QueryError> {
        walk(value, &self.parts)
    }
}

/// Checks one component of a path.
pub(crate) fn check_part(part: &str) -> Result<(), QueryError> {
    if part.is_empty() {
        return failure(15998, "FieldPath field names may not be empty strings.");
    }
    if part.starts_with('$') && !is_reference_field(part.as_bytes()) {
        return failure(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        );
    }
    if part.contains('\0') {
        return failure(16411, "FieldPath field names may not contain '\\0'.");
    }
    if part.contains('.') {
        return failure(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
        );
    }
    Ok(())
}

fn walk<'a>(value: &Value<'a>, parts: &[Box<str>]) -> Result<Value<'a>, QueryError> {
    let Some((first, rest)) = parts.split_first() else {
        return Ok(value.clone());
    };
    match value {
        Value::Document(_) => {
            let field = value.get_field(first)?;
            if rest.is_empty() { Ok(field) } else { walk(&field, rest) }
        }
        Value::Array(array) => walk_array(array, parts),
        _ => Ok(Value::Missing),
    }
}

fn walk_array<'a>(array: &ArrayValue<'a>, parts: &[Box<str>]) -> Result<Value<'a>, QueryError> {
    let mut found = Vec::new();
    for item in array.iter() {
        let item = item?;
        if let Value::Document(_) = item {
            let inside = walk(&item, parts)?;
            if !inside.is_missing() {
                found.push(inside);
            }
        }
    }
    Value::array(found)
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str(".")?;
            }
            f.write_str(part)?;
        }
        Ok(())
    }
}
