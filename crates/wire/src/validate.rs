//! Validates BSON from the network: structure, sizes, UTF-8, C strings, types, depth.
//!
//! One pass, no recursion, no allocation. A document that passes can be read to its last value by the `bson` crate's
//! raw types without an error. Where that crate is stricter than MongoDB (strings must be UTF-8, the inner length of
//! the old binary subtype must fit) so is this one. A fault of the content alone, text that is not UTF-8 or a boolean
//! that is neither 0 nor 1, can be told from those of the structure: such a document can be walked and made valid.

use crate::limits::{DOCUMENT_INTERNAL_BYTES_MAX, NESTING_MAX};
use bson::RawDocument;

/// The shortest document: length and terminator.
const DOCUMENT_BYTES_MIN: usize = 5;
/// The shortest code with scope: its length, an empty string, an empty document.
const CODE_WITH_SCOPE_BYTES_MIN: usize = 4 + 5 + DOCUMENT_BYTES_MIN;

/// A malformed document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid BSON at offset {offset}: {fault}")]
pub struct BsonError {
    /// Byte offset in the validated bytes, about.
    pub offset: usize,
    /// What is wrong there.
    pub fault: BsonFault,
}

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BsonFault {
    /// An element does not fit into its document.
    #[error("element runs past the end of its document")]
    Truncated,
    /// A length field does not fit.
    #[error("length field is wrong")]
    Length,
    /// No NUL where one must be.
    #[error("not terminated with NUL")]
    Terminator,
    /// Text that is not UTF-8.
    #[error("not valid UTF-8")]
    Utf8,
    /// A type byte that means nothing.
    #[error("unrecognized BSON type {0}")]
    UnknownType(u8),
    /// A boolean that is neither 0 nor 1.
    #[error("boolean is neither 0 nor 1")]
    Boolean,
    /// More levels than [`NESTING_MAX`].
    #[error("BSON exceeds the nesting limit of {NESTING_MAX}")]
    TooDeep,
    /// More bytes than [`DOCUMENT_INTERNAL_BYTES_MAX`].
    #[error("document of {bytes} bytes is larger than {DOCUMENT_INTERNAL_BYTES_MAX}")]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
}

impl BsonFault {
    /// Whether the document can be walked all the same: it is text, or a boolean, that is wrong.
    pub fn is_of_content(self) -> bool {
        matches!(self, Self::Utf8 | Self::Boolean)
    }
}

type Result<T> = std::result::Result<T, BsonError>;

#[cold]
fn fault<T>(offset: usize, fault: BsonFault) -> Result<T> {
    Err(BsonError { offset, fault })
}

/// Validates the document that `bytes` consists of, to the last byte.
pub fn validate_document(bytes: &[u8]) -> Result<&RawDocument> {
    match validate_structure(bytes)? {
        None => RawDocument::from_bytes(bytes).or_else(|_| fault(0, BsonFault::Length)),
        Some(content) => Err(content),
    }
}

/// Validates the structure of the document that `bytes` consists of; answers the first fault of its content, which is
/// looked at as well.
pub fn validate_structure(bytes: &[u8]) -> Result<Option<BsonError>> {
    let length = document_length(bytes, 0, bytes.len())?;
    if length != bytes.len() {
        return fault(0, BsonFault::Length);
    }
    if length > DOCUMENT_INTERNAL_BYTES_MAX {
        return fault(0, BsonFault::TooLarge { bytes: length });
    }
    elements(bytes)
}

/// Validates documents that stand back to back and fill `bytes`; returns their number.
pub fn validate_documents(bytes: &[u8]) -> Result<usize> {
    let mut offset = 0;
    let mut count = 0;
    while offset < bytes.len() {
        let length = document_length(bytes, offset, bytes.len())?;
        validate_document(&bytes[offset..offset + length]).map_err(|error| BsonError {
            offset: offset + error.offset,
            ..error
        })?;
        offset += length;
        count += 1;
    }
    Ok(count)
}

/// The document that `bytes` begin with, not validated yet.
pub(crate) fn document_at(bytes: &[u8]) -> Result<&[u8]> {
    document_length(bytes, 0, bytes.len()).map(|length| &bytes[..length])
}

#[inline]
fn length_field(bytes: &[u8], at: usize) -> Option<usize> {
    let field = bytes.get(at..)?.first_chunk::<4>()?;
    usize::try_from(i32::from_le_bytes(*field)).ok()
}

/// The length of the document at `at`, which must end at or before `limit` with a NUL.
#[inline]
fn document_length(bytes: &[u8], at: usize, limit: usize) -> Result<usize> {
    match length_field(bytes, at) {
        Some(length) if length >= DOCUMENT_BYTES_MIN && length <= limit - at => match bytes[at + length - 1] {
            0 => Ok(length),
            _ => fault(at + length - 1, BsonFault::Terminator),
        },
        _ => fault(at, BsonFault::Length),
    }
}

/// The documents being read, outermost first: where each ends.
struct Frames {
    ends: [u32; NESTING_MAX],
    depth: usize,
}

impl Frames {
    #[inline]
    fn push(&mut self, end: usize) -> Result<()> {
        if self.depth == NESTING_MAX {
            return fault(end, BsonFault::TooDeep);
        }
        self.ends[self.depth] = end as u32;
        self.depth += 1;
        Ok(())
    }
}

/// The first fault of a document's content.
#[derive(Default)]
struct Content(Option<BsonError>);

impl Content {
    #[cold]
    fn fault(&mut self, offset: usize, fault: BsonFault) {
        self.0.get_or_insert(BsonError { offset, fault });
    }
}

/// Walks all elements of a document whose length and terminator have been checked.
///
/// Invariant of the loop: `position <= end < bytes.len()`, `end` is the offset of the innermost document's terminator,
/// and the byte there is 0.
fn elements(bytes: &[u8]) -> Result<Option<BsonError>> {
    let mut content = Content::default();
    let mut frames = Frames {
        ends: [0; NESTING_MAX],
        depth: 0,
    };
    let mut end = bytes.len() - 1;
    let mut position = 4;
    frames.push(end)?;
    loop {
        while position == end {
            position += 1;
            frames.depth -= 1;
            match frames.depth.checked_sub(1) {
                Some(outer) => end = frames.ends[outer] as usize,
                None => return Ok(content.0),
            }
        }
        let kind = bytes[position];
        let value = c_string(bytes, position + 1, end, &mut content)?;
        position = match kind {
            0x10 => value + 4,
            0x01 | 0x09 | 0x11 | 0x12 => value + 8,
            0x02 | 0x0D | 0x0E => string(bytes, value, end, &mut content)?,
            0x03 | 0x04 => {
                let length = document_length(bytes, value, end)?;
                end = value + length - 1;
                frames.push(end)?;
                value + 4
            }
            0x07 => value + 12,
            0x08 => {
                if !matches!(bytes.get(value), Some(0 | 1)) {
                    content.fault(value, BsonFault::Boolean);
                }
                value + 1
            }
            0x06 | 0x0A | 0x7F | 0xFF => value,
            0x05 => binary(bytes, value, end)?,
            0x0B => {
                let options = c_string(bytes, value, end, &mut content)?;
                c_string(bytes, options, end, &mut content)?
            }
            0x0C => string(bytes, value, end, &mut content)? + 12,
            0x0F => {
                let scope = code_before_scope(bytes, value, end, &mut content)?;
                end = scope.end - 1;
                frames.push(end)?;
                scope.start + 4
            }
            0x13 => value + 16,
            other => return fault(position, BsonFault::UnknownType(other)),
        };
        if position > end {
            return fault(position, BsonFault::Truncated);
        }
    }
}

/// Checks a C string at `start` that must end before `end`; returns the offset behind its NUL.
///
/// Eight bytes a step: `zeros` has the high bit of every NUL byte set (exact for the first one, which is all that
/// counts).
#[inline]
fn c_string(bytes: &[u8], start: usize, end: usize, content: &mut Content) -> Result<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let mut position = start;
    let mut seen = 0u64;
    let nul = loop {
        let Some(chunk) = bytes.get(position..).and_then(|rest| rest.first_chunk::<8>()) else {
            let rest = bytes.get(position..).unwrap_or_default();
            let Some(length) = rest.iter().position(|byte| *byte == 0) else {
                return fault(start, BsonFault::Truncated);
            };
            seen |= rest[..length].iter().fold(0, |all, byte| all | u64::from(*byte));
            break position + length;
        };
        let word = u64::from_le_bytes(*chunk);
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            let length = zeros.trailing_zeros() / 8;
            seen |= word & ((1u64 << (8 * length)) - 1);
            break position + length as usize;
        }
        seen |= word;
        position += 8;
    };
    if nul >= end {
        return fault(start, BsonFault::Truncated);
    }
    if seen & HIGH != 0 && std::str::from_utf8(&bytes[start..nul]).is_err() {
        content.fault(start, BsonFault::Utf8);
    }
    Ok(nul + 1)
}

/// Checks a length-prefixed string at `at`; returns the offset behind it.
#[inline]
fn string(bytes: &[u8], at: usize, end: usize, content: &mut Content) -> Result<usize> {
    let length = match length_field(bytes, at) {
        Some(length) if length >= 1 => length,
        _ => return fault(at, BsonFault::Length),
    };
    let start = at + 4;
    if start > end || length > end - start {
        return fault(at, BsonFault::Truncated);
    }
    let text = &bytes[start..start + length - 1];
    if bytes[start + length - 1] != 0 {
        return fault(start + length - 1, BsonFault::Terminator);
    }
    if !text.is_ascii() && std::str::from_utf8(text).is_err() {
        content.fault(start, BsonFault::Utf8);
    }
    Ok(start + length)
}

fn binary(bytes: &[u8], at: usize, end: usize) -> Result<usize> {
    const OLD_BINARY: u8 = 2;
    let start = at + 5;
    let Some(length) = length_field(bytes, at) else {
        return fault(at, BsonFault::Length);
    };
    if start > end || length > end - start {
        return fault(at, BsonFault::Truncated);
    }
    if bytes[at + 4] == OLD_BINARY && (length < 4 || length_field(bytes, start) != Some(length - 4)) {
        return fault(start, BsonFault::Length);
    }
    Ok(start + length)
}

/// Checks a code with scope up to its scope, and returns where the scope stands.
fn code_before_scope(bytes: &[u8], at: usize, end: usize, content: &mut Content) -> Result<std::ops::Range<usize>> {
    let length = match length_field(bytes, at) {
        Some(length) if length >= CODE_WITH_SCOPE_BYTES_MIN && length <= end - at => length,
        _ => return fault(at, BsonFault::Length),
    };
    let scope = string(bytes, at + 4, at + length, content)?;
    match document_length(bytes, scope, at + length)? {
        inner if scope + inner == at + length => Ok(scope..at + length),
        _ => fault(scope, BsonFault::Length),
    }
}

#[cfg(test)]
mod tests;
