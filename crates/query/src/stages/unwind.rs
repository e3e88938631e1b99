//! `$unwind`: one document per element of an array.
//!
//! The path leads through documents only. A value that is no array counts as an array of itself; a missing field, null
//! and an empty array yield nothing, or the document as it is (without the empty array) where these are preserved.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::FieldPath;
use crate::value::scan::Malformed;
use crate::value::{ArrayValue, SharedDocument, Value, with_path};

/// A parsed `$unwind`.
#[derive(Debug)]
pub struct UnwindSpec {
    written: RawDocumentBuf,
    path: FieldPath,
    index: Option<FieldPath>,
    preserve: bool,
}

impl UnwindSpec {
    /// Parses the argument of `$unwind`.
    pub(super) fn parse(raw: RawBsonRef<'_>) -> Result<Self, QueryError> {
        let (mut path, mut index, mut preserve) = (None, None, false);
        match raw {
            RawBsonRef::String(text) => path = Some(text),
            RawBsonRef::Document(document) => {
                for element in document {
                    let (name, raw) = element.map_err(|_| Malformed)?;
                    let found = Value::from_raw(raw).type_name();
                    match (name.as_str(), raw) {
                        ("path", RawBsonRef::String(text)) => path = Some(text),
                        ("path", _) => {
                            return failure(
                                28808,
                                format!("expected a string as the path for $unwind stage, got {found}"),
                            );
                        }
                        ("preserveNullAndEmptyArrays", RawBsonRef::Boolean(on)) => preserve = on,
                        ("preserveNullAndEmptyArrays", _) => {
                            return failure(
                                28809,
                                format!(
                                    "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got {found}"
                                ),
                            );
                        }
                        ("includeArrayIndex", RawBsonRef::String(text)) if !text.is_empty() => {
                            if text.starts_with('$') {
                                return failure(
                                    28822,
                                    format!(
                                        "includeArrayIndex option to $unwind stage should not be prefixed with a '$': {text}"
                                    ),
                                );
                            }
                            index = Some(text);
                        }
                        ("includeArrayIndex", _) => {
                            return failure(
                                28810,
                                format!(
                                    "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got {found}"
                                ),
                            );
                        }
                        (other, _) => return failure(28811, format!("unrecognized option to $unwind stage: {other}")),
                    }
                }
            }
            other => {
                let found = Value::from_raw(other).type_name();
                return failure(
                    15981,
                    format!("expected either a string or an object as specification for $unwind stage, got {found}"),
                );
            }
        }
        let Some(path) = path.filter(|path| !path.is_empty()) else {
            return failure(28812, "no path specified to $unwind stage");
        };
        let Some(path) = path.strip_prefix('$') else {
            return failure(
                28818,
                format!("path option to $unwind stage should be prefixed with a '$': {path}"),
            );
        };
        let index = index.map(FieldPath::parse).transpose()?;
        if path.contains('\0') {
            return failure(16419, "field path must not contain embedded null bytes");
        }
        let written = super::specification::stage_document("$unwind", &Value::from_raw(raw));
        Ok(Self {
            written,
            path: FieldPath::parse(path)?,
            index,
            preserve,
        })
    }

    /// The stage as written.
    pub fn written(&self) -> &RawDocument {
        &self.written
    }

    /// The array's path.
    pub fn path(&self) -> &FieldPath {
        &self.path
    }

    /// The path that the index is written to.
    pub fn index(&self) -> Option<&FieldPath> {
        self.index.as_ref()
    }
}

/// The value at a path through documents only.
fn nested_value<'a>(document: &'a RawDocument, parts: &[Box<str>]) -> Result<Value<'a>, Malformed> {
    let Some((first, rest)) = parts.split_first() else {
        return Ok(Value::Missing);
    };
    let mut value = Value::field(document, first)?;
    for part in rest {
        value = value.get_field(part)?;
    }
    Ok(value)
}

/// What unwinds one document after the other.
pub(super) struct Unwinder {
    spec: UnwindSpec,
    /// The document being unwound, its array, and the next element.
    current: Option<(SharedDocument, Vec<Value<'static>>, usize)>,
}

impl Unwinder {
    pub(super) fn new(spec: UnwindSpec) -> Self {
        Self { spec, current: None }
    }

    /// Forgets the document being unwound.
    pub(super) fn clear(&mut self) {
        self.current = None;
    }

    fn with_index(&self, document: SharedDocument, index: Value<'_>) -> Result<SharedDocument, QueryError> {
        match &self.spec.index {
            None => Ok(document),
            Some(path) => {
                let with_index = with_path(&document, path.parts(), &index)?;
                Ok(with_index.with_metadata(document.metadata().cloned()))
            }
        }
    }

    /// A document with an element of its array, of this index.
    pub(super) fn element(
        &self,
        document: &SharedDocument,
        item: &Value<'_>,
        index: i64,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<SharedDocument, QueryError> {
        evaluation.steps(1 + document.steps())?;
        let unwound = with_path(document, self.spec.path.parts(), item)?;
        let unwound = self.with_index(unwound, Value::Int64(index))?;
        Ok(unwound.with_metadata(document.metadata().cloned()))
    }

    /// Begins with a document. Returns what comes of one without elements.
    pub(super) fn begin(
        &mut self,
        document: SharedDocument,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Option<SharedDocument>, QueryError> {
        evaluation.steps(1 + document.steps())?;
        let path = self.spec.path.parts();
        let items = match nested_value(&document, path)? {
            Value::Array(array) if array.is_empty() && !self.spec.preserve => return Ok(None),
            Value::Array(array) if array.is_empty() => {
                let without = with_path(&document, path, &Value::Missing)?;
                let without = without.with_metadata(document.metadata().cloned());
                return self.with_index(without, Value::Null).map(Some);
            }
            Value::Array(array) => owned_items(&document, &array)?,
            nullish if nullish.is_nullish() && !self.spec.preserve => return Ok(None),
            _ => return self.with_index(document, Value::Null).map(Some),
        };
        self.current = Some((document, items, 0));
        Ok(None)
    }

    /// The next element of the current array.
    pub(super) fn next_element(
        &mut self,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Option<SharedDocument>, QueryError> {
        let Some((document, items, next)) = &self.current else {
            return Ok(None);
        };
        let next = *next;
        let Some(item) = items.get(next) else {
            self.current = None;
            return Ok(None);
        };
        let unwound = self.element(document, item, next as i64, evaluation)?;
        if let Some((.., at)) = &mut self.current {
            *at = next + 1;
        }
        Ok(Some(unwound))
    }
}

/// The running stage.
pub(super) struct UnwindStage {
    source: Box<dyn Stage>,
    unwinder: Unwinder,
}

impl UnwindStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: UnwindSpec) -> Self {
        Self {
            source,
            unwinder: Unwinder::new(spec),
        }
    }
}

impl Stage for UnwindStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some(document) = self.unwinder.next_element(context.evaluation)? {
                return Ok(Some(document));
            }
            let Some(document) = self.source.next(context)? else {
                return Ok(None);
            };
            if let Some(document) = self.unwinder.begin(document, context.evaluation)? {
                return Ok(Some(document));
            }
        }
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.unwinder.clear();
        self.source.restart(context)
    }
}

/// The elements, sharing the document's memory where they are documents or arrays.
fn owned_items(document: &SharedDocument, array: &ArrayValue<'_>) -> Result<Vec<Value<'static>>, QueryError> {
    array.iter().map(|item| Ok(item?.shared_in(document))).collect()
}
