//! The values of the types that are made of others: arrays, binary data, regexes, pointers, code with its scope.
//!
//! Each is decoded from its own bytes. Walking the document up to it, as `bson`'s iterator does, would make all
//! arrays of an array quadratic. References to arrays and pointers can be made by `bson` alone: it borrows them from
//! bytes through its deserializers.

use bson::raw::{CStr, RawArray, RawDbPointerRef, RawJavaScriptCodeWithScopeRef, RawRegexRef};
use bson::{RawBinaryRef, RawBsonRef, RawDocument};
use serde::de::value::{BorrowedBytesDeserializer, Error, MapDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::text_str;
use crate::value::scan::Malformed;

/// The value of this type with these bytes.
pub(super) fn value(kind: u8, bytes: &[u8]) -> Result<RawBsonRef<'_>, Malformed> {
    Ok(match kind {
        0x04 => RawBsonRef::Array(array(bytes)?),
        0x05 => RawBsonRef::Binary(binary(bytes)?),
        0x0B => RawBsonRef::RegularExpression(regex(bytes)?),
        0x0C => RawBsonRef::DbPointer(pointer(bytes)?),
        0x0F => RawBsonRef::JavaScriptCodeWithScope(scoped_code(bytes)?),
        _ => return Err(Malformed),
    })
}

fn array(bytes: &[u8]) -> Result<&RawArray, Malformed> {
    <&RawArray>::deserialize(BorrowedBytesDeserializer::<Error>::new(bytes)).map_err(|_| Malformed)
}

fn binary(bytes: &[u8]) -> Result<RawBinaryRef<'_>, Malformed> {
    let (subtype, contents) = (*bytes.get(4).ok_or(Malformed)?, &bytes[5..]);
    // Subtype 2 repeats its length inside.
    let contents = match subtype {
        2 => {
            let (length, rest) = contents.split_first_chunk().ok_or(Malformed)?;
            let fits = usize::try_from(i32::from_le_bytes(*length)).is_ok_and(|length| length == rest.len());
            fits.then_some(rest).ok_or(Malformed)?
        }
        _ => contents,
    };
    Ok(RawBinaryRef {
        subtype: subtype.into(),
        bytes: contents,
    })
}

fn regex(bytes: &[u8]) -> Result<RawRegexRef<'_>, Malformed> {
    let mut texts = bytes.splitn(3, |byte| *byte == 0);
    let mut next = || -> Result<&CStr, Malformed> {
        let text = std::str::from_utf8(texts.next().ok_or(Malformed)?).map_err(|_| Malformed)?;
        text.try_into().map_err(|_| Malformed)
    };
    Ok(RawRegexRef {
        pattern: next()?,
        options: next()?,
    })
}

fn pointer(bytes: &[u8]) -> Result<RawDbPointerRef<'_>, Malformed> {
    let (namespace, id) = bytes.split_last_chunk::<12>().ok_or(Malformed)?;
    let body = [
        (Piece::Text("$ref"), Piece::Text(text_str(namespace)?)),
        (Piece::Text("$id"), Piece::Bytes(id)),
    ];
    let body = MapDeserializer::new(body.into_iter());
    let pointer = MapDeserializer::new(std::iter::once((Piece::Text("$dbPointer"), body)));
    RawDbPointerRef::deserialize(pointer).map_err(|_| Malformed)
}

/// A name or a value of what a pointer is deserialized from.
#[derive(Clone, Copy)]
enum Piece<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'de> Deserializer<'de> for Piece<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => visitor.visit_borrowed_str(text),
            Self::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de> for Piece<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn scoped_code(bytes: &[u8]) -> Result<RawJavaScriptCodeWithScopeRef<'_>, Malformed> {
    let (_, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed)?;
    let (length, _) = rest.split_first_chunk().ok_or(Malformed)?;
    let code_end = usize::try_from(i32::from_le_bytes(*length)).map_err(|_| Malformed)?;
    let (code, scope) = rest.split_at_checked(code_end.saturating_add(4)).ok_or(Malformed)?;
    Ok(RawJavaScriptCodeWithScopeRef {
        code: text_str(code)?,
        scope: RawDocument::from_bytes(scope).map_err(|_| Malformed)?,
    })
}
