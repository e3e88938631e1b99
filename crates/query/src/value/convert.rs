//! Values from BSON: from raw elements, from `RawBsonRef`, and fields out of documents.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Decimal128, RawBson, RawBsonRef, RawDocument, Timestamp};

use super::scan::{self, Element, Malformed};
use super::{ArrayValue, Blob, DocumentValue, SharedDocument, Text, Value};

fn text(value: &[u8]) -> Result<Text<'_>, Malformed> {
    // Length prefix (4 bytes, counts the final zero), text, zero.
    let body = value.get(4..value.len().wrapping_sub(1)).ok_or(Malformed)?;
    Ok(match std::str::from_utf8(body) {
        Ok(text) => Text::Borrowed(text),
        Err(_) => Text::Shared(String::from_utf8_lossy(body).into()),
    })
}

fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed)
}

impl<'a> Value<'a> {
    /// The value of one raw element.
    #[inline]
    pub fn from_element(element: Element<'a>) -> Result<Value<'a>, Malformed> {
        let bytes = element.value;
        Ok(match element.kind {
            0x01 => Value::Double(f64::from_le_bytes(fixed(bytes)?)),
            0x02 => Value::String(text(bytes)?),
            0x03 => Value::Document(DocumentValue::Borrowed(scan::frame(bytes)?)),
            0x04 => Value::Array(ArrayValue::Raw(DocumentValue::Borrowed(scan::frame(bytes)?))),
            0x05 => {
                let subtype = *bytes.get(4).ok_or(Malformed)?;
                // The old binary subtype repeats the length inside; every other holds the contents directly.
                let start = if subtype == 2 && bytes.len() >= 9 { 9 } else { 5 };
                Value::Binary(subtype, Blob::Borrowed(bytes.get(start..).ok_or(Malformed)?))
            }
            0x06 => Value::Undefined,
            0x07 => Value::ObjectId(ObjectId::from_bytes(fixed(bytes)?)),
            0x08 => Value::Boolean(bytes.first().is_some_and(|byte| *byte != 0)),
            0x09 => Value::Date(i64::from_le_bytes(fixed(bytes)?)),
            0x0A => Value::Null,
            0x0D => Value::JavaScript(text(bytes)?),
            0x0E => Value::Symbol(text(bytes)?),
            0x10 => Value::Int32(i32::from_le_bytes(fixed(bytes)?)),
            0x11 => {
                let both = u64::from_le_bytes(fixed(bytes)?);
                Value::Timestamp(Timestamp {
                    time: (both >> 32) as u32,
                    increment: both as u32,
                })
            }
            0x12 => Value::Int64(i64::from_le_bytes(fixed(bytes)?)),
            0x13 => Value::Decimal(Decimal128::from_bytes(fixed(bytes)?)),
            0x7F => Value::MaxKey,
            0xFF => Value::MinKey,
            0x0B | 0x0C | 0x0F => Value::Other(Arc::new(rare(element)?)),
            _ => return Err(Malformed),
        })
    }

    /// The value of a borrowed BSON value.
    pub fn from_raw(raw: RawBsonRef<'a>) -> Value<'a> {
        match raw {
            RawBsonRef::Double(v) => Value::Double(v),
            RawBsonRef::String(v) => Value::String(Text::Borrowed(v)),
            RawBsonRef::Array(v) => match scan::frame(v.as_bytes()) {
                Ok(frame) => Value::Array(ArrayValue::Raw(DocumentValue::Borrowed(frame))),
                Err(Malformed) => Value::empty_array(),
            },
            RawBsonRef::Document(v) => Value::Document(DocumentValue::Borrowed(v)),
            RawBsonRef::Boolean(v) => Value::Boolean(v),
            RawBsonRef::Null => Value::Null,
            RawBsonRef::JavaScriptCode(v) => Value::JavaScript(Text::Borrowed(v)),
            RawBsonRef::Int32(v) => Value::Int32(v),
            RawBsonRef::Int64(v) => Value::Int64(v),
            RawBsonRef::Timestamp(v) => Value::Timestamp(v),
            RawBsonRef::Binary(v) => Value::Binary(v.subtype.into(), Blob::Borrowed(v.bytes)),
            RawBsonRef::ObjectId(v) => Value::ObjectId(v),
            RawBsonRef::DateTime(v) => Value::Date(v.timestamp_millis()),
            RawBsonRef::Symbol(v) => Value::Symbol(Text::Borrowed(v)),
            RawBsonRef::Decimal128(v) => Value::Decimal(v),
            RawBsonRef::Undefined => Value::Undefined,
            RawBsonRef::MaxKey => Value::MaxKey,
            RawBsonRef::MinKey => Value::MinKey,
            other => Value::Other(Arc::new(RawBson::from(other))),
        }
    }

    /// The field `name` of `document`; missing when there is none.
    #[inline]
    pub fn field(document: &'a RawDocument, name: &str) -> Result<Value<'a>, Malformed> {
        match scan::find(document, name.as_bytes())? {
            Some(element) => Value::from_element(element),
            None => Ok(Value::Missing),
        }
    }

    /// The field `name` of this value when it is a document; missing otherwise.
    pub fn get_field(&self, name: &str) -> Result<Value<'a>, Malformed> {
        match self {
            Value::Document(DocumentValue::Borrowed(document)) => Value::field(document, name),
            Value::Document(DocumentValue::Shared(document)) => shared_field(document, name),
            _ => Ok(Value::Missing),
        }
    }

    /// The same value owning all it holds; documents and arrays inside `owner` share its memory.
    pub fn shared_in(self, owner: &SharedDocument) -> Value<'static> {
        shared_value(owner, self)
    }

    /// This value as a borrowed BSON value; `None` for missing and for arrays, which have no such form.
    pub fn as_raw(&self) -> Option<RawBsonRef<'_>> {
        Some(match self {
            Value::Missing | Value::Array(_) => return None,
            Value::Undefined => RawBsonRef::Undefined,
            Value::Null => RawBsonRef::Null,
            Value::MinKey => RawBsonRef::MinKey,
            Value::MaxKey => RawBsonRef::MaxKey,
            Value::Boolean(v) => RawBsonRef::Boolean(*v),
            Value::Int32(v) => RawBsonRef::Int32(*v),
            Value::Int64(v) => RawBsonRef::Int64(*v),
            Value::Double(v) => RawBsonRef::Double(*v),
            Value::Decimal(v) => RawBsonRef::Decimal128(*v),
            Value::Date(v) => RawBsonRef::DateTime(bson::DateTime::from_millis(*v)),
            Value::Timestamp(v) => RawBsonRef::Timestamp(*v),
            Value::ObjectId(v) => RawBsonRef::ObjectId(*v),
            Value::String(v) => RawBsonRef::String(v),
            Value::Symbol(v) => RawBsonRef::Symbol(v),
            Value::JavaScript(v) => RawBsonRef::JavaScriptCode(v),
            Value::Binary(subtype, bytes) => RawBsonRef::Binary(bson::raw::RawBinaryRef {
                subtype: BinarySubtype::from(*subtype),
                bytes,
            }),
            Value::Document(v) => RawBsonRef::Document(v),
            Value::Other(v) => v.as_raw_bson_ref(),
        })
    }
}

/// A field of a shared document, sharing its memory where it is a document.
fn shared_field(document: &SharedDocument, name: &str) -> Result<Value<'static>, Malformed> {
    Ok(shared_value(document, Value::field(document, name)?))
}

/// A value that lies in `owner`, made independent of the borrow.
pub(super) fn shared_value(owner: &SharedDocument, value: Value<'_>) -> Value<'static> {
    match value {
        Value::Document(DocumentValue::Borrowed(part)) => Value::document(owner.share(part)),
        Value::Array(ArrayValue::Raw(DocumentValue::Borrowed(part))) => {
            Value::Array(ArrayValue::Raw(DocumentValue::Shared(owner.share(part))))
        }
        other => other.into_owned(),
    }
}

/// Regex, DBPointer and code with scope go through the `bson` crate: they are rare.
fn rare(element: Element<'_>) -> Result<RawBson, Malformed> {
    let mut bytes = Vec::with_capacity(element.value.len() + 7);
    bytes.extend_from_slice(&[0, 0, 0, 0, element.kind, 0]);
    bytes.extend_from_slice(element.value);
    bytes.push(0);
    let length = i32::try_from(bytes.len()).map_err(|_| Malformed)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let document = RawDocument::from_bytes(&bytes).map_err(|_| Malformed)?;
    match document.iter().next() {
        Some(Ok((_, raw))) => Ok(RawBson::from(raw)),
        _ => Err(Malformed),
    }
}
