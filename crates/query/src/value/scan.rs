//! Walking the bytes of a BSON document without decoding its values.
//!
//! A document here is the usual frame (length, elements, zero byte); an array body has the same frame. Nothing is
//! trusted: a length that leads outside the frame is [`Malformed`], never a panic. Names are compared as bytes and are
//! checked as UTF-8 only by those who ask for text.

use bson::RawDocument;

use crate::error::QueryError;

/// A BSON frame whose lengths or type bytes do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl From<Malformed> for QueryError {
    fn from(_: Malformed) -> Self {
        QueryError::new(wire::ErrorCode::InvalidBSON, "invalid BSON in a stored document")
    }
}

/// One element of a document: type byte, name, and the bytes of its value.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// The type byte of the BSON specification.
    pub kind: u8,
    /// The field's name without its zero byte.
    pub name: &'a [u8],
    /// The value's bytes, exactly.
    pub value: &'a [u8],
}

impl<'a> Element<'a> {
    /// The bytes that it takes in its document.
    pub(crate) fn length(&self) -> usize {
        // The type byte, and the zero byte behind the name.
        self.name.len() + self.value.len() + 2
    }

    /// The name as text.
    pub fn name_str(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.name).map_err(|_| Malformed)
    }
}

/// The elements of a document, in order; ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    rest: &'a [u8],
}

impl<'a> Elements<'a> {
    /// The elements of `document`.
    pub fn new(document: &'a RawDocument) -> Self {
        let bytes = document.as_bytes();
        Self {
            rest: bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or(&[]),
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, after_kind) = self.rest.split_first()?;
        let element = split_element(kind, after_kind);
        match element {
            Some((element, rest)) => {
                self.rest = rest;
                Some(Ok(element))
            }
            None => {
                self.rest = &[];
                Some(Err(Malformed))
            }
        }
    }
}

#[inline]
fn split_element(kind: u8, after_kind: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let end = after_kind.iter().position(|byte| *byte == 0)?;
    let (name, value_and_rest) = (after_kind.get(..end)?, after_kind.get(end + 1..)?);
    let size = value_size(kind, value_and_rest)?;
    let (value, rest) = value_and_rest.split_at_checked(size)?;
    Some((Element { kind, name, value }, rest))
}

/// The bytes that a value of type `kind` at the start of `bytes` occupies.
#[inline]
pub(crate) fn value_size(kind: u8, bytes: &[u8]) -> Option<usize> {
    let length = || {
        let prefix: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        usize::try_from(i32::from_le_bytes(prefix)).ok()
    };
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 | 0x0D | 0x0E => length()?.checked_add(4)?,
        0x03 | 0x04 | 0x0F => length()?.max(5),
        0x05 => length()?.checked_add(5)?,
        0x06 | 0x0A | 0x7F | 0xFF => 0,
        0x07 => 12,
        0x08 => 1,
        0x0B => {
            let pattern = bytes.iter().position(|byte| *byte == 0)? + 1;
            pattern + bytes.get(pattern..)?.iter().position(|byte| *byte == 0)? + 1
        }
        0x0C => length()?.checked_add(16)?,
        0x10 => 4,
        0x13 => 16,
        _ => return None,
    })
}

/// The first element of `document` called `name`.
#[inline]
pub fn find<'a>(document: &'a RawDocument, name: &[u8]) -> Result<Option<Element<'a>>, Malformed> {
    for element in Elements::new(document) {
        let element = element?;
        if element.name == name {
            return Ok(Some(element));
        }
    }
    Ok(None)
}

/// The frame in `bytes` as a document.
#[inline]
pub fn frame(bytes: &[u8]) -> Result<&RawDocument, Malformed> {
    RawDocument::from_bytes(bytes).map_err(|_| Malformed)
}
