//! The values that expressions, accumulators and stages compute with.
//!
//! A [`Value`] borrows from the document (or the parsed expression) it came from, or shares what was computed by
//! reference counts: cloning never copies a string, an array or a document. It knows nothing of expressions.
//! - `Value<'static>` owns what it holds; [`Value::into_owned`] gets there, copying only what was borrowed.
//! - A document value is always complete BSON bytes; an array is either the bytes of a stored array or a list of
//!   values.
//! - `Missing` is not BSON: it stands for a field that is not there, and writing it writes nothing.

mod compare_op;
mod convert;
pub mod decimal_functions;
mod depth;
mod document;
mod edit;
pub mod number;
mod order;
mod render;
pub mod scan;
mod sort;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Deref;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Decimal128, RawBson, RawDocument, Timestamp};

pub use compare_op::CompareOp;
pub(crate) use depth::check_depth;
pub(crate) use document::COPIED_BYTES;
pub use document::SharedDocument;
pub use edit::with_path;
pub use order::{CollatorRef, Comparer, type_rank};
pub use sort::SortPattern;
pub(crate) use sort::{SortNames, SortPart};
pub use write::{ArrayWriter, DocumentWriter, append_element_header};

use crate::error::QueryError;
use scan::{Elements, Malformed};

/// Bytes that count as one step where they are scanned, copied or hashed as a whole.
pub(crate) const BYTES_PER_STEP: usize = 128;

/// Text that is borrowed or shared.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of a document or an expression.
    Borrowed(&'a str),
    /// Computed.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl Text<'_> {
    fn into_owned(self) -> Text<'static> {
        match self {
            Text::Borrowed(text) => Text::Shared(text.into()),
            Text::Shared(text) => Text::Shared(text),
        }
    }
}

/// Bytes of a BinData value, borrowed or shared.
#[derive(Clone, Debug)]
pub enum Blob<'a> {
    /// Part of a document or an expression.
    Borrowed(&'a [u8]),
    /// Computed.
    Shared(Arc<[u8]>),
}

impl Deref for Blob<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Blob::Borrowed(bytes) => bytes,
            Blob::Shared(bytes) => bytes,
        }
    }
}

/// A document inside a value.
#[derive(Clone, Debug)]
pub enum DocumentValue<'a> {
    /// Part of a document or an expression.
    Borrowed(&'a RawDocument),
    /// Computed, or kept.
    Shared(SharedDocument),
}

impl Deref for DocumentValue<'_> {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        match self {
            DocumentValue::Borrowed(document) => document,
            DocumentValue::Shared(document) => document,
        }
    }
}

impl DocumentValue<'_> {
    fn into_owned(self) -> DocumentValue<'static> {
        DocumentValue::Shared(match self {
            DocumentValue::Borrowed(document) => SharedDocument::copy_of(document),
            DocumentValue::Shared(document) => document,
        })
    }

    /// The document as one that can be kept; copies when it is borrowed.
    pub fn to_shared(&self) -> SharedDocument {
        match self {
            DocumentValue::Borrowed(document) => SharedDocument::copy_of(document),
            DocumentValue::Shared(document) => document.clone(),
        }
    }
}

/// An array inside a value.
#[derive(Clone, Debug)]
pub enum ArrayValue<'a> {
    /// The body of a stored array: a BSON frame whose names are of no interest.
    Raw(DocumentValue<'a>),
    /// Computed.
    List(Arc<List<'a>>),
}

/// The elements of a computed array.
#[derive(Debug)]
pub struct List<'a> {
    items: Vec<Value<'a>>,
    /// Levels of computed arrays, this one included: at most [`DEPTH_MAX`], so that walking and dropping may recurse.
    depth: u16,
    /// Bytes of the elements, those of shared ones each time they appear: at most [`ARRAY_BYTES_MAX`], so that an array
    /// of arrays that share their elements can be written out.
    bytes: usize,
}

/// How deep computed arrays may nest as long as they are no part of a document, which is bounded by itself.
pub const DEPTH_MAX: u16 = 250;

/// Bytes that the elements of a computed array may take.
pub(crate) const ARRAY_BYTES_MAX: usize = 100 << 20;

/// The error for an array beyond [`ARRAY_BYTES_MAX`].
#[cold]
pub(crate) fn array_too_large() -> QueryError {
    QueryError::new(
        wire::ErrorCode::ExceededMemoryLimit,
        format!("an array computed by an expression would exceed the memory limit of {ARRAY_BYTES_MAX} bytes"),
    )
}

impl<'a> Deref for List<'a> {
    type Target = [Value<'a>];

    fn deref(&self) -> &[Value<'a>] {
        &self.items
    }
}

/// A value of the aggregation language. See the module's documentation.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// No value: the field is not there.
    Missing,
    /// BSON undefined (deprecated).
    Undefined,
    /// BSON null.
    Null,
    /// BSON MinKey.
    MinKey,
    /// BSON MaxKey.
    MaxKey,
    /// BSON boolean.
    Boolean(bool),
    /// BSON int32.
    Int32(i32),
    /// BSON int64.
    Int64(i64),
    /// BSON double.
    Double(f64),
    /// BSON decimal128.
    Decimal(Decimal128),
    /// BSON date: milliseconds since the Unix epoch.
    Date(i64),
    /// BSON timestamp.
    Timestamp(Timestamp),
    /// BSON ObjectId.
    ObjectId(ObjectId),
    /// BSON string.
    String(Text<'a>),
    /// BSON symbol (deprecated).
    Symbol(Text<'a>),
    /// BSON code without scope.
    JavaScript(Text<'a>),
    /// BSON BinData: subtype byte and contents.
    Binary(u8, Blob<'a>),
    /// BSON document.
    Document(DocumentValue<'a>),
    /// BSON array.
    Array(ArrayValue<'a>),
    /// Regex, DBPointer, code with scope.
    Other(Arc<RawBson>),
}

impl<'a> Value<'a> {
    /// A string value of computed text.
    pub fn string(text: impl Into<Arc<str>>) -> Value<'a> {
        Value::String(Text::Shared(text.into()))
    }

    /// A string value borrowing `text`.
    pub fn borrowed_str(text: &'a str) -> Value<'a> {
        Value::String(Text::Borrowed(text))
    }

    /// An array value of computed elements. A missing element becomes null. Fails when arrays nest too deeply (15) or
    /// take too much memory (146).
    pub fn array(mut items: Vec<Value<'a>>) -> Result<Value<'a>, QueryError> {
        let (mut depth, mut bytes) = (0, 0_usize);
        for item in &mut items {
            match item {
                Value::Missing => *item = Value::Null,
                Value::Array(ArrayValue::List(list)) => depth = depth.max(list.depth),
                _ => {}
            }
            bytes = bytes.saturating_add(item.approximate_bytes());
        }
        if bytes > ARRAY_BYTES_MAX {
            return Err(array_too_large());
        }
        if depth >= DEPTH_MAX {
            return Err(QueryError::new(
                wire::ErrorCode::Overflow,
                format!("an array computed by an expression nests more than {DEPTH_MAX} levels"),
            ));
        }
        Ok(Value::Array(ArrayValue::List(Arc::new(List {
            items,
            depth: depth + 1,
            bytes,
        }))))
    }

    /// The array without elements.
    pub fn empty_array() -> Value<'a> {
        Value::Array(ArrayValue::List(Arc::new(List {
            items: Vec::new(),
            depth: 1,
            bytes: 0,
        })))
    }

    /// A document value of computed bytes.
    pub fn document(document: SharedDocument) -> Value<'a> {
        Value::Document(DocumentValue::Shared(document))
    }

    /// Whether this is null, undefined or missing.
    pub fn is_nullish(&self) -> bool {
        matches!(self, Value::Missing | Value::Null | Value::Undefined)
    }

    /// Whether the field is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Value::Missing)
    }

    /// Whether this is int32, int64, double or decimal128.
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_)
        )
    }

    /// The text of a string value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes of a document value.
    pub fn as_document(&self) -> Option<&RawDocument> {
        match self {
            Value::Document(document) => Some(document),
            _ => None,
        }
    }

    /// The array value.
    pub fn as_array(&self) -> Option<&ArrayValue<'a>> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Whether other values are in it, or may be.
    pub(crate) fn has_levels(&self) -> bool {
        matches!(self, Self::Document(_) | Self::Array(_) | Self::Other(_))
    }

    /// The value as error messages show it.
    pub fn render(&self) -> String {
        let mut text = String::new();
        match self.as_raw() {
            Some(raw) => render::render(raw, 0, &mut text),
            None => match self.wrapped().iter().next() {
                Some(Ok((_, raw))) => render::render(raw, 0, &mut text),
                _ => text.push_str("MISSING"),
            },
        }
        text
    }

    /// MongoDB's truth: everything but false, zero, null, undefined and missing.
    pub fn is_true(&self) -> bool {
        match self {
            Value::Missing | Value::Undefined | Value::Null | Value::Boolean(false) => false,
            Value::Int32(n) => *n != 0,
            Value::Int64(n) => *n != 0,
            Value::Double(n) => *n != 0.0,
            Value::Decimal(n) => !number::decimal_is_zero(*n),
            _ => true,
        }
    }

    /// The type's name as `$type` and error messages give it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Missing => "missing",
            Value::Undefined => "undefined",
            Value::Null => "null",
            Value::MinKey => "minKey",
            Value::MaxKey => "maxKey",
            Value::Boolean(_) => "bool",
            Value::Int32(_) => "int",
            Value::Int64(_) => "long",
            Value::Double(_) => "double",
            Value::Decimal(_) => "decimal",
            Value::Date(_) => "date",
            Value::Timestamp(_) => "timestamp",
            Value::ObjectId(_) => "objectId",
            Value::String(_) => "string",
            Value::Symbol(_) => "symbol",
            Value::JavaScript(_) => "javascript",
            Value::Binary(..) => "binData",
            Value::Document(_) => "object",
            Value::Array(_) => "array",
            Value::Other(other) => match **other {
                RawBson::RegularExpression(_) => "regex",
                RawBson::DbPointer(_) => "dbPointer",
                _ => "javascriptWithScope",
            },
        }
    }

    /// The same value, owning all it holds. Copies what was borrowed, nothing else.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Missing => Value::Missing,
            Value::Undefined => Value::Undefined,
            Value::Null => Value::Null,
            Value::MinKey => Value::MinKey,
            Value::MaxKey => Value::MaxKey,
            Value::Boolean(v) => Value::Boolean(v),
            Value::Int32(v) => Value::Int32(v),
            Value::Int64(v) => Value::Int64(v),
            Value::Double(v) => Value::Double(v),
            Value::Decimal(v) => Value::Decimal(v),
            Value::Date(v) => Value::Date(v),
            Value::Timestamp(v) => Value::Timestamp(v),
            Value::ObjectId(v) => Value::ObjectId(v),
            Value::String(text) => Value::String(text.into_owned()),
            Value::Symbol(text) => Value::Symbol(text.into_owned()),
            Value::JavaScript(text) => Value::JavaScript(text.into_owned()),
            Value::Binary(subtype, Blob::Borrowed(bytes)) => Value::Binary(subtype, Blob::Shared(bytes.into())),
            Value::Binary(subtype, Blob::Shared(bytes)) => Value::Binary(subtype, Blob::Shared(bytes)),
            Value::Document(document) => Value::Document(document.into_owned()),
            Value::Array(array) => Value::Array(array.into_owned()),
            Value::Other(other) => Value::Other(other),
        }
    }

    /// The bytes of memory that an owned copy of this value takes, roughly: for memory limits.
    pub fn approximate_bytes(&self) -> usize {
        let held = match self {
            Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) => text.len() + 16,
            Value::Binary(_, bytes) => bytes.len() + 16,
            Value::Document(document) => document.as_bytes().len() + 32,
            Value::Array(ArrayValue::Raw(array)) => array.as_bytes().len() + 32,
            Value::Array(ArrayValue::List(list)) => list.bytes + 48,
            Value::Other(_) => 64,
            _ => 0,
        };
        held + size_of::<Value<'_>>()
    }

    /// As [`Value::approximate_bytes`], without what is borrowed.
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Value::String(Text::Borrowed(_))
            | Value::Symbol(Text::Borrowed(_))
            | Value::JavaScript(Text::Borrowed(_))
            | Value::Binary(_, Blob::Borrowed(_))
            | Value::Document(DocumentValue::Borrowed(_))
            | Value::Array(ArrayValue::Raw(DocumentValue::Borrowed(_))) => size_of::<Value<'_>>(),
            owned => owned.approximate_bytes(),
        }
    }

    /// Steps that it takes to run once through this value.
    #[inline]
    pub(crate) fn steps(&self) -> usize {
        match self {
            Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) => text.len() / BYTES_PER_STEP,
            Value::Binary(_, bytes) => bytes.len() / BYTES_PER_STEP,
            Value::Document(document) | Value::Array(ArrayValue::Raw(document)) => {
                document.as_bytes().len() / BYTES_PER_STEP
            }
            Value::Array(ArrayValue::List(list)) => list.bytes / BYTES_PER_STEP,
            Value::Decimal(number) => decimal_steps(*number),
            _ => 0,
        }
    }
}

/// Steps of a function of a decimal: those of angles reduce it by as many digits of pi as its exponent has places.
#[inline]
fn decimal_steps(number: Decimal128) -> usize {
    const BIAS: u16 = 6176;
    let [.., low, high] = number.bytes();
    // Where both of these bits are set it is no number, or has a zero for its digits.
    match u16::from_le_bytes([low, high]) & 0x7FFF {
        0x6000.. => 0,
        head => usize::from((head >> 1).abs_diff(BIAS)),
    }
}

impl<'a> ArrayValue<'a> {
    /// The elements, decoded one by one.
    pub fn iter(&self) -> ArrayIter<'a, '_> {
        match self {
            ArrayValue::Raw(DocumentValue::Borrowed(frame)) => ArrayIter::Raw(Elements::new(frame)),
            ArrayValue::Raw(DocumentValue::Shared(frame)) => ArrayIter::Shared(frame, Elements::new(frame)),
            ArrayValue::List(items) => ArrayIter::List(items.iter()),
        }
    }

    /// The elements, decoded.
    pub fn to_vec(&self) -> Result<Vec<Value<'a>>, Malformed> {
        self.iter().collect()
    }

    /// The number of elements.
    pub fn len(&self) -> Result<usize, Malformed> {
        match self {
            ArrayValue::Raw(frame) => Elements::new(frame).try_fold(0, |n, element| element.map(|_| n + 1)),
            ArrayValue::List(items) => Ok(items.len()),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        match self {
            ArrayValue::Raw(frame) => frame.is_empty(),
            ArrayValue::List(items) => items.is_empty(),
        }
    }

    /// The element at `index`, when there is one.
    pub fn get(&self, index: usize) -> Result<Option<Value<'a>>, Malformed> {
        match self {
            ArrayValue::Raw(_) => self.iter().nth(index).transpose(),
            ArrayValue::List(items) => Ok(items.get(index).cloned()),
        }
    }

    /// Bytes of memory that it takes, without what is borrowed.
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            ArrayValue::Raw(DocumentValue::Borrowed(_)) => 0,
            ArrayValue::Raw(DocumentValue::Shared(array)) => array.as_bytes().len(),
            ArrayValue::List(list) => list.bytes,
        }
    }

    fn into_owned(self) -> ArrayValue<'static> {
        match self {
            ArrayValue::Raw(frame) => ArrayValue::Raw(frame.into_owned()),
            ArrayValue::List(list) => {
                let (depth, bytes) = (list.depth, list.bytes);
                let items = match Arc::try_unwrap(list) {
                    Ok(list) => list.items.into_iter().map(Value::into_owned).collect(),
                    Err(list) => list.iter().cloned().map(Value::into_owned).collect(),
                };
                ArrayValue::List(Arc::new(List { items, depth, bytes }))
            }
        }
    }
}

/// Iterates an [`ArrayValue`].
pub enum ArrayIter<'a, 'l> {
    /// Over borrowed bytes.
    Raw(Elements<'a>),
    /// Over shared bytes: the values are made independent of the borrow.
    Shared(&'l SharedDocument, Elements<'l>),
    /// Over computed values.
    List(std::slice::Iter<'l, Value<'a>>),
}

impl<'a> Iterator for ArrayIter<'a, '_> {
    type Item = Result<Value<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            ArrayIter::Raw(elements) => elements.next().map(|element| element.and_then(Value::from_element)),
            ArrayIter::Shared(owner, elements) => elements
                .next()
                .map(|element| Ok(convert::shared_value(owner, Value::from_element(element?)?))),
            ArrayIter::List(items) => items.next().cloned().map(Ok),
        }
    }
}
