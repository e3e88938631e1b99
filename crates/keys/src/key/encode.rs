//! From values to key bytes.
//!
//! Everything is written ascending; a descending field's bytes are complemented at the end. Nothing is allocated but
//! what the output grows by, collated strings apart.

use super::format::{END, ESCAPE, LONG_LENGTH, SHORT_LENGTH_MAX, TAIL_BYTES, lead, number_code, string_code};
use super::{FieldOrder, KeyOrdering, TypeBits};
use crate::Collator;
use crate::decimal::{Decimal, EXPONENT_MAX, EXPONENT_MIN};
use crate::number::{INTEGER_LIMIT, Magnitude, Number, TAIL_BIAS, Tail};
use crate::order::{DEPTH_MAX, binary_length};
use crate::raw::{Elements, Value, with_value};
use bson::raw::RawBsonRef;

/// Appends one field to a key. Type information is lost; good for bounds, and for indexes that never cover.
pub fn encode_value(out: &mut Vec<u8>, value: RawBsonRef<'_>, order: FieldOrder, collator: Option<&dyn Collator>) {
    with_value(value, |value| encode_field(out, None, value, order, collator));
}

/// Appends one field to a key, and to `types` what its bytes lose.
pub fn encode_value_with_types(
    out: &mut Vec<u8>,
    types: &mut TypeBits,
    value: RawBsonRef<'_>,
    order: FieldOrder,
    collator: Option<&dyn Collator>,
) {
    with_value(value, |value| encode_field(out, Some(types), value, order, collator));
}

/// Appends the field of a document that has none: a null in order, "missing" in the type bits.
pub fn encode_missing(out: &mut Vec<u8>, types: &mut TypeBits, order: FieldOrder) {
    types.push_null(true);
    out.push(if order == FieldOrder::Descending {
        !lead::NULL
    } else {
        lead::NULL
    });
}

/// Appends the fields of a compound key (or of its first fields).
pub fn encode_key(
    out: &mut Vec<u8>,
    types: &mut TypeBits,
    values: &[RawBsonRef<'_>],
    ordering: KeyOrdering,
    collator: Option<&dyn Collator>,
) {
    for (index, value) in values.iter().enumerate() {
        encode_value_with_types(out, types, *value, ordering.field(index), collator);
    }
}

pub(crate) fn encode_field(
    out: &mut Vec<u8>,
    mut types: Option<&mut TypeBits>,
    value: Value<'_>,
    order: FieldOrder,
    collator: Option<&dyn Collator>,
) {
    let start = out.len();
    match (value, types.as_deref_mut()) {
        (Value::Null, Some(types)) => {
            types.push_null(false);
            out.push(lead::NULL);
        }
        _ => Encoder { out, types, collator }.value(value, 0),
    }
    if order == FieldOrder::Descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

struct Encoder<'e> {
    out: &'e mut Vec<u8>,
    types: Option<&'e mut TypeBits>,
    collator: Option<&'e dyn Collator>,
}

impl Encoder<'_> {
    /// `depth` is the number of documents and arrays around the value.
    fn value(&mut self, value: Value<'_>, depth: u32) {
        match value {
            Value::Int32(v) => self.integer(v.into(), number_code::DEFAULT),
            Value::Int64(v) => {
                // -2^63 is encoded as a large number, for which double is the default.
                let needs_code = i32::try_from(v).is_ok() || v == i64::MIN;
                self.integer(
                    v,
                    if needs_code {
                        number_code::INT64
                    } else {
                        number_code::DEFAULT
                    },
                );
            }
            Value::Double(v) => self.double(v),
            Value::Decimal(bytes) => self.decimal(u128::from_le_bytes(bytes)),
            Value::String(text) => self.string(text, string_code::STRING),
            Value::Symbol(text) => self.string(text, string_code::SYMBOL),
            Value::ObjectId(id) => {
                let mut bytes = [lead::OBJECT_ID; 13];
                bytes[1..].copy_from_slice(&id);
                self.out.extend_from_slice(&bytes);
            }
            Value::Bool(v) => self.out.push(if v { lead::TRUE } else { lead::FALSE }),
            Value::Date(v) => self.head(lead::DATE, (v as u64) ^ (1 << 63)),
            Value::Timestamp(v) => self.head(lead::TIMESTAMP, v),
            Value::Null => self.out.push(lead::NULL),
            Value::Undefined => self.out.push(lead::UNDEFINED),
            Value::MinKey => self.out.push(lead::MIN_KEY),
            Value::MaxKey => self.out.push(lead::MAX_KEY),
            Value::Document(bytes) => self.document(lead::OBJECT, bytes, depth),
            Value::Array(bytes) => self.array(bytes, depth),
            Value::Binary { subtype, bytes } => {
                self.out.push(lead::BINARY);
                self.length(binary_length(subtype, bytes));
                self.out.push(subtype);
                self.out.extend_from_slice(bytes);
            }
            Value::Regex { pattern, options } => {
                self.out.push(lead::REGEX);
                self.cstring(pattern);
                self.cstring(options);
            }
            Value::DbPointer { namespace, id } => {
                self.out.push(lead::DB_POINTER);
                self.length(namespace.len());
                self.out.extend_from_slice(namespace);
                self.out.extend_from_slice(&id);
            }
            Value::Code(text) => {
                self.out.push(lead::CODE);
                self.escaped(text);
            }
            Value::CodeWithScope { code, scope } => {
                self.out.push(lead::CODE_WITH_SCOPE);
                self.escaped(code);
                self.document(lead::OBJECT, scope, depth);
            }
        }
    }

    /// A first byte and eight more.
    fn head(&mut self, first: u8, rest: u64) {
        let mut bytes = [first; 9];
        bytes[1..].copy_from_slice(&rest.to_be_bytes());
        self.out.extend_from_slice(&bytes);
    }

    fn type_code(&mut self, code: u8) {
        if let Some(types) = self.types.as_deref_mut() {
            if code == number_code::DEFAULT {
                types.push_default()
            } else {
                types.push(code, &[])
            }
        }
    }

    fn integer(&mut self, value: i64, code: u8) {
        self.type_code(code);
        let whole = value.unsigned_abs();
        match whole {
            0 => self.out.push(lead::ZERO),
            INTEGER_LIMIT => self.number(Number::of_integer(value)),
            whole => self.whole(value < 0, whole << 1),
        }
    }

    /// The integer part (shifted left by one; the lowest bit says that a fraction follows).
    fn whole(&mut self, negative: bool, shifted: u64) {
        let width = 8 - shifted.leading_zeros() as usize / 8;
        let mut bytes = [0; 9];
        bytes[1..].copy_from_slice(&(shifted ^ mask(negative)).to_be_bytes());
        let start = 8 - width;
        bytes[start] = if negative {
            lead::NEGATIVE_INTEGER_1 + 1 - width as u8
        } else {
            lead::POSITIVE_INTEGER_1 - 1 + width as u8
        };
        self.out.extend_from_slice(&bytes[start..]);
    }

    fn double(&mut self, value: f64) {
        let as_integer = value as i64;
        let integral = as_integer as f64 == value && as_integer != i64::MAX;
        self.type_code(match value {
            0.0 if value.is_sign_negative() => number_code::DOUBLE_MINUS_ZERO,
            // An integer this large reads as a double only when it is beyond int64.
            _ if integral => number_code::DOUBLE,
            _ => number_code::DEFAULT,
        });
        self.number(Number::of_double(value));
    }

    fn decimal(&mut self, bits: u128) {
        let decimal = Decimal::from_bits(bits);
        let number = Number::of_decimal(decimal);
        if let Some(types) = self.types.as_deref_mut() {
            push_decimal_types(types, bits, decimal, number);
        }
        self.number(number);
    }

    fn number(&mut self, number: Number) {
        let Number::Real { negative, magnitude } = number else {
            return self.out.push(lead::NAN);
        };
        match magnitude {
            Magnitude::Zero => self.out.push(lead::ZERO),
            Magnitude::Infinite => {
                self.out.push(if negative {
                    lead::NEGATIVE_INFINITY
                } else {
                    lead::POSITIVE_INFINITY
                });
            }
            Magnitude::Small { head, tail } => {
                let first = if negative {
                    lead::NEGATIVE_SMALL
                } else {
                    lead::POSITIVE_SMALL
                };
                self.head_and_tail(first, negative, head, tail);
            }
            Magnitude::Large { head, tail } => {
                let first = if negative {
                    lead::NEGATIVE_LARGE
                } else {
                    lead::POSITIVE_LARGE
                };
                self.head_and_tail(first, negative, head, tail);
            }
            Magnitude::Integer { whole, fraction, tail } => {
                let more = fraction != 0 || tail.is_some();
                self.whole(negative, whole << 1 | u64::from(more));
                if more {
                    let fraction = fraction << 1 | u64::from(tail.is_some());
                    self.out.extend_from_slice(&(fraction ^ mask(negative)).to_be_bytes());
                    self.tail(negative, tail);
                }
            }
        }
    }

    /// Heads are positive doubles, so one bit is free to say that a tail follows.
    fn head_and_tail(&mut self, first: u8, negative: bool, head: u64, tail: Option<Tail>) {
        self.head(first, (head << 1 | u64::from(tail.is_some())) ^ mask(negative));
        self.tail(negative, tail);
    }

    fn tail(&mut self, negative: bool, tail: Option<Tail>) {
        let Some(tail) = tail else { return };
        let mut bytes = [0; TAIL_BYTES];
        bytes[..2].copy_from_slice(&tail.exponent.to_be_bytes());
        bytes[2..].copy_from_slice(&tail.coefficient.to_be_bytes()[1..]);
        if negative {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
        }
        self.out.extend_from_slice(&bytes);
    }

    fn string(&mut self, text: &[u8], code: u8) {
        self.type_code(code);
        match self.collator {
            None => {
                self.out.push(lead::STRING);
                self.escaped(text);
            }
            Some(collator) => {
                let mut key = Vec::new();
                collator.append_sort_key(&String::from_utf8_lossy(text), &mut key);
                self.out.push(lead::COLLATED_STRING);
                self.escaped(&key);
            }
        }
    }

    /// Bytes of any value, ended by `END`; `END` and `ESCAPE` themselves are escaped.
    fn escaped(&mut self, bytes: &[u8]) {
        // One pass without a branch per byte: text hardly ever has such bytes.
        if bytes.iter().fold(false, |found, byte| found | (*byte <= ESCAPE)) {
            for byte in bytes {
                if *byte <= ESCAPE {
                    self.out.push(ESCAPE);
                    self.out.push(*byte + 1);
                } else {
                    self.out.push(*byte);
                }
            }
            self.out.push(END);
        } else {
            self.cstring(bytes);
        }
    }

    /// Bytes without a NUL, ended by `END`.
    fn cstring(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 1);
        self.out.extend_from_slice(bytes);
        self.out.push(END);
    }

    fn length(&mut self, length: usize) {
        if length <= SHORT_LENGTH_MAX {
            self.out.push(length as u8);
        } else {
            self.out.push(LONG_LENGTH);
            self.out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }

    fn document(&mut self, first: u8, bytes: &[u8], depth: u32) {
        self.out.push(first);
        if depth >= DEPTH_MAX {
            return self.escaped(bytes);
        }
        let mut elements = Elements::new(bytes);
        while let Some(element) = elements.next_or_end() {
            self.out.push(element.value.canonical_type());
            self.cstring(element.name);
            self.value(element.value, depth + 1);
        }
        self.out.push(END);
    }

    fn array(&mut self, bytes: &[u8], depth: u32) {
        self.out.push(lead::ARRAY);
        if depth >= DEPTH_MAX {
            return self.escaped(bytes);
        }
        let mut elements = Elements::new(bytes);
        while let Some(element) = elements.next_or_end() {
            self.value(element.value, depth + 1);
        }
        self.out.push(END);
    }
}

/// All ones for negative numbers, whose bytes are complemented.
fn mask(negative: bool) -> u64 {
    if negative { u64::MAX } else { 0 }
}

/// The largest exponent that a decimal with this tail can have, and the coefficient that goes with it.
pub(super) fn shortest_decimal(tail: Tail) -> (u128, i32) {
    let (mut coefficient, mut exponent) = (tail.coefficient, i32::from(tail.exponent) - TAIL_BIAS - 33);
    while exponent < EXPONENT_MIN || coefficient % 10 == 0 && exponent < EXPONENT_MAX {
        coefficient /= 10;
        exponent += 1;
    }
    (coefficient, exponent)
}

fn push_decimal_types(types: &mut TypeBits, bits: u128, decimal: Decimal, number: Number) {
    let raw = |types: &mut TypeBits| types.push(number_code::DECIMAL_RAW, &bits.to_le_bytes());
    let (Number::Real { magnitude, .. }, true) = (number, decimal.to_bits() == bits) else {
        return if bits == Decimal::NaN.to_bits() {
            types.push(number_code::DECIMAL, &[])
        } else {
            raw(types)
        };
    };
    let Decimal::Finite { negative, exponent, .. } = decimal else {
        return types.push(number_code::DECIMAL, &[]);
    };
    let with_exponent =
        |types: &mut TypeBits| types.push(number_code::DECIMAL, &((exponent - EXPONENT_MIN) as u16).to_le_bytes());
    match magnitude {
        Magnitude::Zero if negative => raw(types),
        Magnitude::Zero
        | Magnitude::Integer {
            fraction: 0,
            tail: None,
            ..
        } => with_exponent(types),
        Magnitude::Small { tail: Some(tail), .. }
        | Magnitude::Integer { tail: Some(tail), .. }
        | Magnitude::Large { tail: Some(tail), .. } => {
            if shortest_decimal(tail).1 == exponent {
                types.push_default()
            } else {
                with_exponent(types)
            }
        }
        // The value is exactly a double with a fraction, or a large one.
        _ => raw(types),
    }
}
