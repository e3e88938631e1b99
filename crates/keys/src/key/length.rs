//! Where a value ends, without decoding it: for scans that check or skip fields of every key they meet.
//!
//! It allocates nothing, needs no type bits, and takes collated strings, which cannot be decoded. Like decoding it
//! trusts no byte: the answer is a length inside the key or an error.

use super::format::{END, LONG_LENGTH, SHORT_LENGTH_MAX, TAIL_BYTES, lead};
use super::{DecodeError, FieldOrder};
use crate::order::DEPTH_MAX;
use crate::raw::BINARY_OLD;

/// Length of the encoded value that `key` starts with, a field of this direction.
pub fn value_length(key: &[u8], order: FieldOrder) -> Result<usize, DecodeError> {
    let flip = if order == FieldOrder::Descending { 0xFF } else { 0 };
    let mut walker = Walker { rest: key, flip };
    walker.value(0)?;
    Ok(key.len() - walker.rest.len())
}

/// Whether an ascending key starts with a string of an index with a collation, of which it has the sort key only.
pub fn is_collated_string(key: &[u8]) -> bool {
    key.first() == Some(&lead::COLLATED_STRING)
}

struct Walker<'a> {
    /// Bytes behind what was walked over.
    rest: &'a [u8],
    /// 0xFF in a descending field, else 0.
    flip: u8,
}

impl Walker<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(byte ^ self.flip)
    }

    /// Goes over `count` bytes and returns the last of them.
    fn bytes(&mut self, count: usize) -> Result<u8, DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(bytes.last().map_or(0, |byte| byte ^ self.flip))
    }

    /// Goes over everything up to and with the next `END`: a name, or escaped bytes, which have none inside.
    fn past_end(&mut self) -> Result<(), DecodeError> {
        let end = END ^ self.flip;
        let at = self.rest.iter().position(|byte| *byte == end);
        self.rest = &self.rest[at.ok_or(DecodeError::Truncated)? + 1..];
        Ok(())
    }

    /// `depth` is the number of documents and arrays around the value.
    fn value(&mut self, depth: u32) -> Result<(), DecodeError> {
        let left = self.rest.len();
        let first = self.byte()?;
        match first {
            lead::NAN..=lead::POSITIVE_INFINITY => self.number(first),
            lead::MIN_KEY | lead::UNDEFINED | lead::NULL | lead::FALSE | lead::TRUE | lead::MAX_KEY => Ok(()),
            lead::STRING | lead::COLLATED_STRING | lead::CODE => self.past_end(),
            lead::OBJECT_ID => self.bytes(12).map(drop),
            lead::DATE | lead::TIMESTAMP => self.bytes(8).map(drop),
            lead::OBJECT => self.document(depth),
            lead::ARRAY => self.array(depth),
            lead::BINARY => {
                let length = self.length()?;
                let inner = if self.byte()? == BINARY_OLD { 4 } else { 0 };
                self.bytes(length.checked_sub(inner).ok_or(DecodeError::NotBson)?)
                    .map(drop)
            }
            lead::REGEX => {
                self.past_end()?;
                self.past_end()
            }
            lead::DB_POINTER => {
                let length = self.length()?;
                self.bytes(length)?;
                self.bytes(12).map(drop)
            }
            lead::CODE_WITH_SCOPE => {
                self.past_end()?;
                if self.byte()? != lead::OBJECT {
                    return Err(DecodeError::NotBson);
                }
                self.document(depth)
            }
            _ => Err(DecodeError::UnknownLead { lead: first, left }),
        }
    }

    fn number(&mut self, first: u8) -> Result<(), DecodeError> {
        let negative = first < lead::ZERO;
        // The lowest bit of each part says whether another follows; negative numbers are complemented.
        let more = |last: u8| (last & 1 == 1) != negative;
        match first {
            lead::NAN | lead::ZERO | lead::NEGATIVE_INFINITY | lead::POSITIVE_INFINITY => return Ok(()),
            lead::NEGATIVE_SMALL | lead::POSITIVE_SMALL | lead::NEGATIVE_LARGE | lead::POSITIVE_LARGE => {}
            _ => {
                let width = if negative {
                    lead::NEGATIVE_INTEGER_1 + 1 - first
                } else {
                    first + 1 - lead::POSITIVE_INTEGER_1
                };
                if !more(self.bytes(width.into())?) {
                    return Ok(());
                }
            }
        }
        if more(self.bytes(8)?) {
            self.bytes(TAIL_BYTES)?;
        }
        Ok(())
    }

    fn length(&mut self) -> Result<usize, DecodeError> {
        let first = self.byte()?;
        match usize::from(first) {
            short if short <= SHORT_LENGTH_MAX => Ok(short),
            _ if first == LONG_LENGTH => {
                let (bytes, rest) = self.rest.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
                self.rest = rest;
                Ok(u32::from_be_bytes(bytes.map(|byte| byte ^ self.flip)) as usize)
            }
            _ => Err(DecodeError::NotBson),
        }
    }

    fn document(&mut self, depth: u32) -> Result<(), DecodeError> {
        if depth >= DEPTH_MAX {
            return self.past_end();
        }
        while self.byte()? != END {
            self.past_end()?;
            self.value(depth + 1)?;
        }
        Ok(())
    }

    fn array(&mut self, depth: u32) -> Result<(), DecodeError> {
        if depth >= DEPTH_MAX {
            return self.past_end();
        }
        while self.rest.first().ok_or(DecodeError::Truncated)? ^ self.flip != END {
            self.value(depth + 1)?;
        }
        self.byte().map(drop)
    }
}
