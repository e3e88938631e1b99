//! From key bytes and type bits back to values.
//!
//! Values are appended to a document under construction, so that a covered projection builds its reply without a copy
//! in between. Key bytes come from disk: whatever they hold, the answer is a value or an error. Collated strings cannot
//! be decoded, their text is not in the key.

use super::encode::shortest_decimal;
use super::format::{
    END, ESCAPE, LONG_LENGTH, SHORT_LENGTH_MAX, TAIL_BYTES, lead, null_code, number_code, string_code,
};
use super::{FieldOrder, KeyOrdering};
use crate::decimal::{Decimal, EXPONENT_MAX, EXPONENT_MIN, POWERS_OF_TEN, digit_count};
use crate::number::{FRACTION_BITS, INTEGER_LIMIT, Magnitude, Number, Tail};
use crate::order::DEPTH_MAX;
use crate::raw::BINARY_OLD;
use bson::Bson;
use bson::raw::RawDocument;

/// Why a key cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a value.
    #[error("the key ends inside a value")]
    Truncated,
    /// No value starts with this byte.
    #[error("no value starts with byte {lead:#04x}, {left} bytes before the key's end")]
    UnknownLead {
        /// The byte, in ascending form.
        lead: u8,
        /// Bytes left, the byte included.
        left: usize,
    },
    /// The string was encoded by a collator; its text is lost.
    #[error("a collated string cannot be decoded")]
    CollatedString,
    /// The type bits do not belong to the key.
    #[error("the type bits do not fit the key")]
    BadTypeBits,
    /// What was decoded is not BSON (a string that is not UTF-8, say).
    #[error("the key does not hold BSON values")]
    NotBson,
}

/// Decodes all fields of a key (without a record id). `None` is a field that was missing in the document.
pub fn decode_key(key: &[u8], types: &[u8], ordering: KeyOrdering) -> Result<Vec<Option<Bson>>, DecodeError> {
    let mut decoder = KeyDecoder::new(key, types, ordering);
    let mut values = Vec::new();
    while !decoder.is_at_end() {
        let mut document = vec![0; 4];
        let present = decoder.append_field("", &mut document)?;
        document.push(0);
        let length = document.len() as i32;
        document[..4].copy_from_slice(&length.to_le_bytes());
        if !present {
            values.push(None);
            continue;
        }
        let document = RawDocument::from_bytes(&document).map_err(|_| DecodeError::NotBson)?;
        let value = document
            .get("")
            .map_err(|_| DecodeError::NotBson)?
            .ok_or(DecodeError::NotBson)?;
        values.push(Some(Bson::try_from(value).map_err(|_| DecodeError::NotBson)?));
    }
    Ok(values)
}

/// Decodes a key field by field.
pub struct KeyDecoder<'a> {
    /// Key bytes not read yet.
    rest: &'a [u8],
    /// Type bits not read yet; at the end every code is 0.
    types: &'a [u8],
    ordering: KeyOrdering,
    field: usize,
    /// 0xFF inside a descending field, else 0.
    flip: u8,
    /// What is decoded is thrown away, so that strings without their text will do.
    skipping: bool,
    /// Collated strings come as the text of their sort keys.
    shows_sort_keys: bool,
    /// Takes what is skipped.
    scratch: Vec<u8>,
}

impl<'a> KeyDecoder<'a> {
    /// Of a key without record id.
    pub fn new(key: &'a [u8], types: &'a [u8], ordering: KeyOrdering) -> Self {
        Self {
            rest: key,
            types,
            ordering,
            field: 0,
            flip: 0,
            skipping: false,
            shows_sort_keys: false,
            scratch: Vec::new(),
        }
    }

    /// A decoder that gives collated strings as what they sort by, as far as that is text: they themselves are lost.
    pub fn showing_sort_keys(self) -> Self {
        Self {
            shows_sort_keys: true,
            ..self
        }
    }

    /// True when all fields are decoded.
    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Appends the next field as a BSON element called `name` (no NUL in it) to `document`, whose length and end the
    /// caller writes. False, and nothing appended, when the document had no such field. After an error `document` holds
    /// half an element.
    pub fn append_field(&mut self, name: &str, document: &mut Vec<u8>) -> Result<bool, DecodeError> {
        self.flip = if self.ordering.field(self.field) == FieldOrder::Descending {
            0xFF
        } else {
            0
        };
        self.field += 1;
        if self.peek()? == lead::NULL && self.type_code()? == null_code::MISSING {
            self.byte()?;
            return Ok(false);
        }
        self.element(name.as_bytes(), document, 0)?;
        Ok(true)
    }

    /// Skips the next field (its type bits too), collated strings as well.
    pub fn skip_field(&mut self) -> Result<(), DecodeError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.skipping = true;
        let skipped = self.append_field("", &mut scratch).map(drop);
        self.skipping = false;
        self.scratch = scratch;
        skipped
    }

    fn peek(&self) -> Result<u8, DecodeError> {
        self.rest
            .first()
            .map(|byte| byte ^ self.flip)
            .ok_or(DecodeError::Truncated)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = self.peek()?;
        self.rest = &self.rest[1..];
        Ok(byte)
    }

    /// Appends `count` bytes of the key to `out`.
    fn bytes(&mut self, count: usize, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        out.extend(bytes.iter().map(|byte| byte ^ self.flip));
        self.rest = rest;
        Ok(())
    }

    fn array<const N: usize>(&mut self, mask: u8) -> Result<[u8; N], DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(bytes.map(|byte| byte ^ self.flip ^ mask))
    }

    fn word(&mut self, mask: u8) -> Result<u64, DecodeError> {
        self.array(mask).map(u64::from_be_bytes)
    }

    fn type_code(&mut self) -> Result<u8, DecodeError> {
        Ok(match self.types.split_first() {
            Some((code, rest)) => {
                self.types = rest;
                *code
            }
            None => 0,
        })
    }

    fn type_extra<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        // Trailing zeros are left out only where they are codes.
        let (extra, rest) = self.types.split_first_chunk::<N>().ok_or(DecodeError::BadTypeBits)?;
        self.types = rest;
        Ok(*extra)
    }

    /// Appends type, name and value. `depth` is the number of documents and arrays around it.
    fn element(&mut self, name: &[u8], out: &mut Vec<u8>, depth: u32) -> Result<(), DecodeError> {
        let tag_at = out.len();
        out.push(0);
        out.extend_from_slice(name);
        out.push(0);
        out[tag_at] = self.value(out, depth)?;
        Ok(())
    }

    /// Appends a value and returns its BSON type.
    fn value(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<u8, DecodeError> {
        let left = self.rest.len();
        let first = self.byte()?;
        Ok(match first {
            lead::MIN_KEY => 0xFF,
            lead::MAX_KEY => 0x7F,
            lead::UNDEFINED => 0x06,
            lead::NULL => 0x0A,
            lead::NAN..=lead::POSITIVE_INFINITY => {
                let number = self.number(first)?;
                self.typed_number(number, out)?
            }
            lead::STRING => {
                self.string(out)?;
                match self.type_code()? {
                    string_code::STRING => 0x02,
                    string_code::SYMBOL => 0x0E,
                    _ => return Err(DecodeError::BadTypeBits),
                }
            }
            lead::COLLATED_STRING if self.skipping => {
                self.escaped(out)?;
                self.type_code()?;
                0x02
            }
            lead::COLLATED_STRING if self.shows_sort_keys => {
                let mut key = Vec::new();
                self.escaped(&mut key)?;
                self.type_code()?;
                let text = String::from_utf8_lossy(&key);
                out.extend_from_slice(&(text.len() as u32 + 1).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
                out.push(END);
                0x02
            }
            lead::COLLATED_STRING => return Err(DecodeError::CollatedString),
            lead::OBJECT => {
                self.document(out, depth)?;
                0x03
            }
            lead::ARRAY => {
                self.elements_of_array(out, depth)?;
                0x04
            }
            lead::BINARY => {
                self.binary(out)?;
                0x05
            }
            lead::OBJECT_ID => {
                self.bytes(12, out)?;
                0x07
            }
            lead::FALSE | lead::TRUE => {
                out.push(first - lead::FALSE);
                0x08
            }
            lead::DATE => {
                let value = self.word(0)? ^ 1 << 63;
                out.extend_from_slice(&value.to_le_bytes());
                0x09
            }
            lead::TIMESTAMP => {
                let value = self.word(0)?;
                out.extend_from_slice(&value.to_le_bytes());
                0x11
            }
            lead::REGEX => {
                self.cstring(out)?;
                self.cstring(out)?;
                0x0B
            }
            lead::DB_POINTER => {
                let length = self.length()?;
                out.extend_from_slice(&(length as u32 + 1).to_le_bytes());
                self.bytes(length, out)?;
                out.push(0);
                self.bytes(12, out)?;
                0x0C
            }
            lead::CODE => {
                self.string(out)?;
                0x0D
            }
            lead::CODE_WITH_SCOPE => {
                let start = open(out);
                self.string(out)?;
                if self.byte()? != lead::OBJECT {
                    return Err(DecodeError::NotBson);
                }
                self.document(out, depth)?;
                close(out, start);
                0x0F
            }
            _ => return Err(DecodeError::UnknownLead { lead: first, left }),
        })
    }

    fn number(&mut self, first: u8) -> Result<Number, DecodeError> {
        if first == lead::NAN {
            return Ok(Number::NaN);
        }
        let negative = first < lead::ZERO;
        let mask = if negative { 0xFF } else { 0 };
        let magnitude = match first {
            lead::ZERO => Magnitude::Zero,
            lead::NEGATIVE_INFINITY | lead::POSITIVE_INFINITY => Magnitude::Infinite,
            lead::NEGATIVE_SMALL | lead::POSITIVE_SMALL => {
                let (head, tail) = self.head_and_tail(mask)?;
                Magnitude::Small { head, tail }
            }
            lead::NEGATIVE_LARGE | lead::POSITIVE_LARGE => {
                let (head, tail) = self.head_and_tail(mask)?;
                Magnitude::Large { head, tail }
            }
            _ => {
                let width = if negative {
                    lead::NEGATIVE_INTEGER_1 + 1 - first
                } else {
                    first + 1 - lead::POSITIVE_INTEGER_1
                };
                let mut shifted = 0;
                for _ in 0..width {
                    shifted = shifted << 8 | u64::from(self.byte()? ^ mask);
                }
                let (fraction, tail) = if shifted & 1 == 1 {
                    self.head_and_tail(mask)?
                } else {
                    (0, None)
                };
                Magnitude::Integer {
                    whole: shifted >> 1,
                    fraction,
                    tail,
                }
            }
        };
        Ok(Number::Real { negative, magnitude })
    }

    fn head_and_tail(&mut self, mask: u8) -> Result<(u64, Option<Tail>), DecodeError> {
        let word = self.word(mask)?;
        if word & 1 == 0 {
            return Ok((word >> 1, None));
        }
        let bytes: [u8; TAIL_BYTES] = self.array(mask)?;
        let exponent = u16::from(bytes[0]) << 8 | u16::from(bytes[1]);
        let coefficient = bytes[2..].iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
        Ok((word >> 1, Some(Tail { exponent, coefficient })))
    }

    /// Appends a number in the type that the type bits tell, and returns that type.
    fn typed_number(&mut self, number: Number, out: &mut Vec<u8>) -> Result<u8, DecodeError> {
        let mut decimal = |value: Decimal| {
            out.extend_from_slice(&value.to_bits().to_le_bytes());
            0x13
        };
        Ok(match self.type_code()? {
            number_code::DEFAULT => match (as_integer(number), default_decimal(number)?) {
                (Some(value), _) if number != Number::of_integer(i64::MIN) => match i32::try_from(value) {
                    Ok(value) => {
                        out.extend_from_slice(&value.to_le_bytes());
                        0x10
                    }
                    Err(_) => {
                        out.extend_from_slice(&value.to_le_bytes());
                        0x12
                    }
                },
                (_, Some(value)) => decimal(value),
                _ => {
                    out.extend_from_slice(&as_double(number).to_le_bytes());
                    0x01
                }
            },
            number_code::INT64 => {
                let value = as_integer(number).ok_or(DecodeError::BadTypeBits)?;
                out.extend_from_slice(&value.to_le_bytes());
                0x12
            }
            number_code::DOUBLE => {
                out.extend_from_slice(&as_double(number).to_le_bytes());
                0x01
            }
            number_code::DOUBLE_MINUS_ZERO => {
                out.extend_from_slice(&(-0.0_f64).to_le_bytes());
                0x01
            }
            number_code::DECIMAL => match number {
                Number::NaN => decimal(Decimal::NaN),
                Number::Real {
                    negative,
                    magnitude: Magnitude::Infinite,
                } => decimal(Decimal::Infinity { negative }),
                number => {
                    let exponent = i32::from(u16::from_le_bytes(self.type_extra()?)) + EXPONENT_MIN;
                    decimal(with_exponent(number, exponent).ok_or(DecodeError::BadTypeBits)?)
                }
            },
            number_code::DECIMAL_RAW => {
                let bytes: [u8; 16] = self.type_extra()?;
                out.extend_from_slice(&bytes);
                0x13
            }
            _ => return Err(DecodeError::BadTypeBits),
        })
    }

    /// Appends what an `escaped` encoded, and ends at its `END`.
    fn escaped(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        loop {
            match self.byte()? {
                END => return Ok(()),
                ESCAPE => out.push(self.byte()?.wrapping_sub(1)),
                byte => out.push(byte),
            }
        }
    }

    /// Appends a BSON string: length, text, NUL.
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        self.escaped(out)?;
        out.push(0);
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Appends bytes up to and with the NUL.
    fn cstring(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        loop {
            let byte = self.byte()?;
            out.push(byte);
            if byte == END {
                return Ok(());
            }
        }
    }

    fn length(&mut self) -> Result<usize, DecodeError> {
        let first = self.byte()?;
        let length = match usize::from(first) {
            short if short <= SHORT_LENGTH_MAX => short,
            _ if first == LONG_LENGTH => u32::from_be_bytes(self.array(0)?) as usize,
            _ => return Err(DecodeError::NotBson),
        };
        if length > self.rest.len() + 4 {
            Err(DecodeError::Truncated)
        } else {
            Ok(length)
        }
    }

    fn binary(&mut self, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let length = self.length()?;
        let subtype = self.byte()?;
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.push(subtype);
        if subtype != BINARY_OLD {
            return self.bytes(length, out);
        }
        let inner = length.checked_sub(4).ok_or(DecodeError::NotBson)?;
        out.extend_from_slice(&(inner as u32).to_le_bytes());
        self.bytes(inner, out)
    }

    fn document(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<(), DecodeError> {
        if depth >= DEPTH_MAX {
            return self.escaped(out);
        }
        let start = open(out);
        // The byte before each name is the value's type in order, which the value itself tells as well.
        while self.byte()? != END {
            let tag_at = out.len();
            out.push(0);
            self.cstring(out)?;
            out[tag_at] = self.value(out, depth + 1)?;
        }
        out.push(0);
        close(out, start);
        Ok(())
    }

    fn elements_of_array(&mut self, out: &mut Vec<u8>, depth: u32) -> Result<(), DecodeError> {
        if depth >= DEPTH_MAX {
            return self.escaped(out);
        }
        let start = open(out);
        let mut index = 0_u32;
        while self.peek()? != END {
            self.element(index.to_string().as_bytes(), out, depth + 1)?;
            index += 1;
        }
        self.byte()?;
        out.push(0);
        close(out, start);
        Ok(())
    }
}

/// Leaves room for a length field.
fn open(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Writes the length field that `open` left room for.
fn close(out: &mut [u8], start: usize) {
    let length = (out.len() - start) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// The value when it is an int64.
fn as_integer(number: Number) -> Option<i64> {
    match number {
        Number::Real {
            magnitude: Magnitude::Zero,
            ..
        } => Some(0),
        Number::Real {
            negative,
            magnitude:
                Magnitude::Integer {
                    whole,
                    fraction: 0,
                    tail: None,
                },
        } => {
            let value = i64::try_from(whole).ok()?;
            Some(if negative { -value } else { value })
        }
        number if number == Number::of_integer(i64::MIN) => Some(i64::MIN),
        _ => None,
    }
}

/// The value as a double; a tail, which no double has, is cut off.
fn as_double(number: Number) -> f64 {
    let Number::Real { negative, magnitude } = number else {
        return f64::NAN;
    };
    let size = match magnitude {
        Magnitude::Zero => 0.0,
        Magnitude::Small { head, .. } | Magnitude::Large { head, .. } => f64::from_bits(head),
        Magnitude::Integer { whole, fraction, .. } => whole as f64 + fraction as f64 / (1_u64 << FRACTION_BITS) as f64,
        Magnitude::Infinite => f64::INFINITY,
    };
    if negative { -size } else { size }
}

/// The decimal that a number with a tail is by default; `None` for one without.
fn default_decimal(number: Number) -> Result<Option<Decimal>, DecodeError> {
    let Some((negative, tail)) = tail_of(number) else {
        return Ok(None);
    };
    let (coefficient, exponent) = shortest_decimal(tail);
    decimal_in_range(negative, coefficient, exponent)
        .map(Some)
        .ok_or(DecodeError::NotBson)
}

fn tail_of(number: Number) -> Option<(bool, Tail)> {
    match number {
        Number::Real {
            negative,
            magnitude:
                Magnitude::Small { tail: Some(tail), .. }
                | Magnitude::Integer { tail: Some(tail), .. }
                | Magnitude::Large { tail: Some(tail), .. },
        } => Some((negative, tail)),
        _ => None,
    }
}

fn decimal_in_range(negative: bool, coefficient: u128, exponent: i32) -> Option<Decimal> {
    let in_range = coefficient < POWERS_OF_TEN[34] && (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
    in_range.then_some(Decimal::Finite {
        negative,
        coefficient,
        exponent,
    })
}

/// The decimal of this value and exponent, when there is one.
fn with_exponent(number: Number, exponent: i32) -> Option<Decimal> {
    let (negative, coefficient, from) = match (number, tail_of(number)) {
        (_, Some((negative, tail))) => {
            let (coefficient, from) = shortest_decimal(tail);
            (negative, coefficient, from)
        }
        (
            Number::Real {
                magnitude: Magnitude::Zero,
                ..
            },
            _,
        ) => return decimal_in_range(false, 0, exponent),
        (
            Number::Real {
                negative,
                magnitude: Magnitude::Integer { whole, fraction: 0, .. },
            },
            _,
        ) => {
            debug_assert!(whole < INTEGER_LIMIT, "the lowest bit is the flag");
            (negative, u128::from(whole), 0)
        }
        _ => return None,
    };
    let coefficient = if exponent <= from {
        let zeros = from.checked_sub(exponent)? as u32;
        if zeros + digit_count(coefficient) > 34 {
            return None;
        }
        coefficient * POWERS_OF_TEN[zeros as usize]
    } else {
        let unit = *POWERS_OF_TEN.get((exponent - from) as usize)?;
        if coefficient % unit != 0 {
            return None;
        }
        coefficient / unit
    };
    decimal_in_range(negative, coefficient, exponent)
}
