//! `$unwind`: one document per element of an array.
//!
//! The path leads through documents only. A value that is no array counts as an array of itself; a missing field, null
//! and an empty array yield nothing, or the document as it is (without the empty array) where these are preserved.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{Stage, StageContext, failure};
use crate::error::QueryError;
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

/// The running stage.
pub(super) struct UnwindStage {
    source: Box<dyn Stage>,
    spec: UnwindSpec,
    /// The document being unwound, its array, and the next element.
    current: Option<(SharedDocument, Vec<Value<'static>>, usize)>,
}

impl UnwindStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: UnwindSpec) -> Self {
        Self {
            source,
            spec,
            current: None,
        }
    }

    /// `document` with its index; `whole` is what it was made of, and what is known beside its fields is that one's.
    fn with_index(
        &self,
        document: SharedDocument,
        index: Value<'_>,
        whole: &SharedDocument,
    ) -> Result<SharedDocument, QueryError> {
        let indexed = match &self.spec.index {
            None => document,
            Some(path) => with_path(&document, path.parts(), &index)?,
        };
        Ok(indexed.with_metadata(whole.metadata().cloned()))
    }

    /// A document without an array to take apart.
    fn unchanged(&self, document: SharedDocument) -> Result<SharedDocument, QueryError> {
        self.with_index(document.clone(), Value::Null, &document)
    }

    /// The next element of the current array.
    fn next_element(&mut self) -> Result<Option<SharedDocument>, QueryError> {
        let Some((document, items, next)) = &mut self.current else {
            return Ok(None);
        };
        let Some(item) = items.get(*next) else {
            self.current = None;
            return Ok(None);
        };
        let unwound = with_path(document, self.spec.path.parts(), item)?;
        let (index, whole) = (Value::Int64(*next as i64), document.clone());
        *next += 1;
        self.with_index(unwound, index, &whole).map(Some)
    }
}

impl Stage for UnwindStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some(document) = self.next_element()? {
                return Ok(Some(document));
            }
            let Some(document) = self.source.next(context)? else {
                return Ok(None);
            };
            let items = match nested_value(&document, self.spec.path.parts())? {
                Value::Array(array) => {
                    if array.is_empty() {
                        if !self.spec.preserve {
                            continue;
                        }
                        let without = with_path(&document, self.spec.path.parts(), &Value::Missing)?;
                        return self.with_index(without, Value::Null, &document).map(Some);
                    }
                    owned_items(&document, &array)?
                }
                nullish if nullish.is_nullish() => {
                    if !self.spec.preserve {
                        continue;
                    }
                    return self.unchanged(document).map(Some);
                }
                _ => return self.unchanged(document).map(Some),
            };
            self.current = Some((document, items, 0));
        }
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.current = None;
        self.source.restart(context)
    }
}

/// The elements, sharing the document's memory where they are documents or arrays.
fn owned_items(document: &SharedDocument, array: &ArrayValue<'_>) -> Result<Vec<Value<'static>>, QueryError> {
    array.iter().map(|item| Ok(item?.shared_in(document))).collect()
}
