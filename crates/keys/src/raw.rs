//! BSON values and elements as borrowed bytes.
//!
//! The `bson` crate's raw values check strings for UTF-8 and keep a DBPointer's parts private; order and keys need
//! neither, only bytes. Lengths are checked against the buffer, contents are not looked at.
//!
//! Invariant: an [`Elements`] that has met damage answers `Malformed` once and then the end.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

/// A value whose bytes lie elsewhere. Strings are not checked for UTF-8.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    MinKey,
    Undefined,
    Null,
    Int32(i32),
    Int64(i64),
    Double(f64),
    /// Little-endian, as stored.
    Decimal([u8; 16]),
    String(&'a [u8]),
    Symbol(&'a [u8]),
    /// The whole document, length and final NUL included.
    Document(&'a [u8]),
    /// The whole array, as for a document.
    Array(&'a [u8]),
    Binary {
        subtype: u8,
        bytes: &'a [u8],
    },
    ObjectId([u8; 12]),
    Bool(bool),
    Date(i64),
    /// Seconds in the upper half, increment in the lower.
    Timestamp(u64),
    Regex {
        pattern: &'a [u8],
        options: &'a [u8],
    },
    DbPointer {
        namespace: &'a [u8],
        id: [u8; 12],
    },
    Code(&'a [u8]),
    CodeWithScope {
        code: &'a [u8],
        scope: &'a [u8],
    },
    MaxKey,
}

/// Binary subtype 2 carries a second length inside, which counts in comparisons.
pub(crate) const BINARY_OLD: u8 = 2;

/// Calls `f` with the value behind a `bson` reference.
pub(crate) fn with_value<T>(raw: RawBsonRef<'_>, f: impl FnOnce(Value<'_>) -> T) -> T {
    let value = match raw {
        RawBsonRef::Double(v) => Value::Double(v),
        RawBsonRef::String(v) => Value::String(v.as_bytes()),
        RawBsonRef::Array(v) => Value::Array(v.as_bytes()),
        RawBsonRef::Document(v) => Value::Document(v.as_bytes()),
        RawBsonRef::Boolean(v) => Value::Bool(v),
        RawBsonRef::Null => Value::Null,
        RawBsonRef::RegularExpression(v) => Value::Regex {
            pattern: v.pattern.as_str().as_bytes(),
            options: v.options.as_str().as_bytes(),
        },
        RawBsonRef::JavaScriptCode(v) => Value::Code(v.as_bytes()),
        RawBsonRef::JavaScriptCodeWithScope(v) => Value::CodeWithScope {
            code: v.code.as_bytes(),
            scope: v.scope.as_bytes(),
        },
        RawBsonRef::Int32(v) => Value::Int32(v),
        RawBsonRef::Int64(v) => Value::Int64(v),
        RawBsonRef::Timestamp(v) => Value::Timestamp(u64::from(v.time) << 32 | u64::from(v.increment)),
        RawBsonRef::Binary(v) => Value::Binary {
            subtype: v.subtype.into(),
            bytes: v.bytes,
        },
        RawBsonRef::ObjectId(v) => Value::ObjectId(v.bytes()),
        RawBsonRef::DateTime(v) => Value::Date(v.timestamp_millis()),
        RawBsonRef::Symbol(v) => Value::Symbol(v.as_bytes()),
        RawBsonRef::Decimal128(v) => Value::Decimal(v.bytes()),
        RawBsonRef::Undefined => Value::Undefined,
        RawBsonRef::MaxKey => Value::MaxKey,
        RawBsonRef::MinKey => Value::MinKey,
        RawBsonRef::DbPointer(_) => return with_db_pointer(raw, f),
    };
    f(value)
}

/// The parts of a DBPointer are private to `bson`; writing it into a document shows them. Deprecated type, cold path.
#[cold]
fn with_db_pointer<T>(raw: RawBsonRef<'_>, f: impl FnOnce(Value<'_>) -> T) -> T {
    let mut document = RawDocumentBuf::new();
    document.append(bson::raw::cstr!(""), raw);
    match Elements::of(&document).next() {
        Ok(Some(element)) => f(element.value),
        _ => f(Value::Undefined),
    }
}

/// A field of a document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: Value<'a>,
}

/// The bytes are not BSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Walks over the fields of a document.
#[derive(Clone)]
pub(crate) struct Elements<'a> {
    /// What is left, the document's final NUL included; empty after damage.
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    pub(crate) fn of(document: &'a RawDocument) -> Self {
        Self::new(document.as_bytes())
    }

    /// `document` is the whole document; its length field is taken as read.
    pub(crate) fn new(document: &'a [u8]) -> Self {
        Self {
            rest: document.get(4..).unwrap_or_default(),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<Element<'a>>, Malformed> {
        let Some((&tag, rest)) = self.rest.split_first() else {
            return Ok(None);
        };
        if tag == 0 {
            self.rest = &[];
            return if rest.is_empty() { Ok(None) } else { Err(Malformed) };
        }
        let parsed = split_cstring(rest).and_then(|(name, rest)| {
            let (value, rest) = split_value(tag, rest)?;
            Some((Element { name, value }, rest))
        });
        match parsed {
            Some((element, rest)) => {
                self.rest = rest;
                Ok(Some(element))
            }
            None => {
                self.rest = &[];
                Err(Malformed)
            }
        }
    }

    /// The next field, where damage reads as the end: for orders, which have no way to fail. Documents are validated
    /// when they come in.
    pub(crate) fn next_or_end(&mut self) -> Option<Element<'a>> {
        self.next().unwrap_or(None)
    }

    /// The first field of this name. Skips over others without looking into their values.
    pub(crate) fn find(mut self, name: &[u8]) -> Result<Option<Value<'a>>, Malformed> {
        loop {
            let Some((&tag, rest)) = self.rest.split_first() else {
                return Ok(None);
            };
            if tag == 0 {
                return if rest.is_empty() { Ok(None) } else { Err(Malformed) };
            }
            if rest.len() > name.len() && rest[name.len()] == 0 && &rest[..name.len()] == name {
                return match split_value(tag, &rest[name.len() + 1..]) {
                    Some((value, _)) => Ok(Some(value)),
                    None => Err(Malformed),
                };
            }
            let (_, rest) = split_cstring(rest).ok_or(Malformed)?;
            self.rest = rest.get(value_length(tag, rest).ok_or(Malformed)?..).ok_or(Malformed)?;
        }
    }
}

fn split_cstring(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

fn read_i32(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|chunk| i32::from_le_bytes(*chunk))
}

/// A length field, refused when negative.
fn read_length(bytes: &[u8]) -> Option<usize> {
    read_i32(bytes).and_then(|length| usize::try_from(length).ok())
}

/// Bytes the value takes, or `None` when the type is unknown or a length cannot be read.
fn value_length(tag: u8, rest: &[u8]) -> Option<usize> {
    Some(match tag {
        0x06 | 0x0A | 0x7F | 0xFF => 0,
        0x08 => 1,
        0x10 => 4,
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x07 => 12,
        0x13 => 16,
        0x02 | 0x0D | 0x0E => read_length(rest)? + 4,
        0x03 | 0x04 | 0x0F => read_length(rest)?,
        0x05 => read_length(rest)? + 5,
        0x0C => read_length(rest)? + 16,
        0x0B => {
            let (pattern, rest) = split_cstring(rest)?;
            let (options, _) = split_cstring(rest)?;
            pattern.len() + options.len() + 2
        }
        _ => return None,
    })
}

fn split_value(tag: u8, rest: &[u8]) -> Option<(Value<'_>, &[u8])> {
    let (bytes, rest) = rest.split_at_checked(value_length(tag, rest)?)?;
    let value = match tag {
        0x01 => Value::Double(f64::from_le_bytes(*bytes.first_chunk()?)),
        0x02 => Value::String(string(bytes)?),
        0x03 => Value::Document(document(bytes)?),
        0x04 => Value::Array(document(bytes)?),
        0x05 => binary(bytes)?,
        0x06 => Value::Undefined,
        0x07 => Value::ObjectId(*bytes.first_chunk()?),
        0x08 => Value::Bool(*bytes.first()? != 0),
        0x09 => Value::Date(i64::from_le_bytes(*bytes.first_chunk()?)),
        0x0A => Value::Null,
        0x0B => {
            let (pattern, rest) = split_cstring(bytes)?;
            Value::Regex {
                pattern,
                options: split_cstring(rest)?.0,
            }
        }
        0x0C => {
            let (namespace, id) = bytes.split_last_chunk()?;
            Value::DbPointer {
                namespace: string(namespace)?,
                id: *id,
            }
        }
        0x0D => Value::Code(string(bytes)?),
        0x0E => Value::Symbol(string(bytes)?),
        0x0F => {
            let bytes = bytes.get(4..)?;
            let (code, scope) = bytes.split_at_checked(read_length(bytes)?.checked_add(4)?)?;
            Value::CodeWithScope {
                code: string(code)?,
                scope: document(scope)?,
            }
        }
        0x10 => Value::Int32(i32::from_le_bytes(*bytes.first_chunk()?)),
        0x11 => Value::Timestamp(u64::from_le_bytes(*bytes.first_chunk()?)),
        0x12 => Value::Int64(i64::from_le_bytes(*bytes.first_chunk()?)),
        0x13 => Value::Decimal(*bytes.first_chunk()?),
        0x7F => Value::MaxKey,
        0xFF => Value::MinKey,
        _ => return None,
    };
    Some((value, rest))
}

/// The text of a length-prefixed string that fills `bytes`.
fn string(bytes: &[u8]) -> Option<&[u8]> {
    match bytes.get(4..)?.split_last() {
        Some((0, text)) => Some(text),
        _ => None,
    }
}

/// `bytes` when it is framed as a document that fills them.
fn document(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.len() >= 5 && read_length(bytes)? == bytes.len() && bytes.last() == Some(&0)).then_some(bytes)
}

fn binary(bytes: &[u8]) -> Option<Value<'_>> {
    let subtype = *bytes.get(4)?;
    let bytes = &bytes[5..];
    if subtype != BINARY_OLD {
        return Some(Value::Binary { subtype, bytes });
    }
    let inner = bytes.get(4..)?;
    (read_length(bytes)? == inner.len()).then_some(Value::Binary { subtype, bytes: inner })
}
