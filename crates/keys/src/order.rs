//! MongoDB's comparison order of BSON values.
//!
//! Types order first, by [`canonical_type`]; within a type: numbers by exact value over all four types, documents field
//! by field (type, then name, then value), arrays element by element, binaries by length, subtype, bytes. It knows
//! nothing of queries: type bracketing and "missing" are the callers' business.
//!
//! Invariants: a total order over all values, the same as that of [`crate::key`]'s bytes. Nesting below [`DEPTH_MAX`]
//! levels is compared as bytes, so that hostile input cannot exhaust the stack; such documents are refused when they
//! come in. Damage inside a nested document reads as its end.

use crate::Collator;
use crate::decimal::Decimal;
use crate::number::{INTEGER_LIMIT, Number};
use crate::raw::{BINARY_OLD, Elements, Value, with_value};
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::ElementType;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Levels of nesting that are looked into. Stored documents have at most 180, those of messages 201.
pub const DEPTH_MAX: u32 = 250;

/// The place of a type in the comparison order, rising: 1 for MinKey to 17 for MaxKey. Types with the same place (the
/// numbers; string and symbol) compare by value.
pub fn canonical_type(element_type: ElementType) -> u8 {
    match element_type {
        ElementType::MinKey => 1,
        ElementType::Undefined => 2,
        ElementType::Null => 3,
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => 4,
        ElementType::String | ElementType::Symbol => 5,
        ElementType::EmbeddedDocument => 6,
        ElementType::Array => 7,
        ElementType::Binary => 8,
        ElementType::ObjectId => 9,
        ElementType::Boolean => 10,
        ElementType::DateTime => 11,
        ElementType::Timestamp => 12,
        ElementType::RegularExpression => 13,
        ElementType::DbPointer => 14,
        ElementType::JavaScriptCode => 15,
        ElementType::JavaScriptCodeWithScope => 16,
        ElementType::MaxKey => 17,
    }
}

impl Value<'_> {
    /// As [`canonical_type`].
    pub(crate) fn canonical_type(&self) -> u8 {
        canonical_type(match self {
            Value::MinKey => ElementType::MinKey,
            Value::Undefined => ElementType::Undefined,
            Value::Null => ElementType::Null,
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => ElementType::Int32,
            Value::String(_) | Value::Symbol(_) => ElementType::String,
            Value::Document(_) => ElementType::EmbeddedDocument,
            Value::Array(_) => ElementType::Array,
            Value::Binary { .. } => ElementType::Binary,
            Value::ObjectId(_) => ElementType::ObjectId,
            Value::Bool(_) => ElementType::Boolean,
            Value::Date(_) => ElementType::DateTime,
            Value::Timestamp(_) => ElementType::Timestamp,
            Value::Regex { .. } => ElementType::RegularExpression,
            Value::DbPointer { .. } => ElementType::DbPointer,
            Value::Code(_) => ElementType::JavaScriptCode,
            Value::CodeWithScope { .. } => ElementType::JavaScriptCodeWithScope,
            Value::MaxKey => ElementType::MaxKey,
        })
    }

    /// The exact value of a number.
    pub(crate) fn number(&self) -> Option<Number> {
        Some(match *self {
            Value::Int32(v) => Number::of_integer(v.into()),
            Value::Int64(v) => Number::of_integer(v),
            Value::Double(v) => Number::of_double(v),
            Value::Decimal(bytes) => Number::of_decimal(Decimal::from_bits(u128::from_le_bytes(bytes))),
            _ => return None,
        })
    }
}

/// Compares two values, strings in binary order.
pub fn compare(a: RawBsonRef<'_>, b: RawBsonRef<'_>) -> Ordering {
    compare_with(a, b, None)
}

/// Compares two values, strings (nested ones too) by `collator`.
pub fn compare_with(a: RawBsonRef<'_>, b: RawBsonRef<'_>, collator: Option<&dyn Collator>) -> Ordering {
    match (a, b) {
        (RawBsonRef::Int32(a), RawBsonRef::Int32(b)) => a.cmp(&b),
        (RawBsonRef::Int64(a), RawBsonRef::Int64(b)) => a.cmp(&b),
        _ => with_value(a, |a| with_value(b, |b| compare_values(a, b, collator, 0))),
    }
}

/// Compares two documents, strings in binary order.
pub fn compare_documents(a: &RawDocument, b: &RawDocument) -> Ordering {
    compare_documents_with(a, b, None)
}

/// Compares two documents, strings (nested ones too) by `collator`.
pub fn compare_documents_with(a: &RawDocument, b: &RawDocument, collator: Option<&dyn Collator>) -> Ordering {
    compare_fields(a.as_bytes(), b.as_bytes(), Names::Count, collator, 0)
}

/// Feeds a value to a hasher so that values that compare equal hash alike.
pub fn hash_value<H: Hasher>(value: RawBsonRef<'_>, collator: Option<&dyn Collator>, state: &mut H) {
    with_value(value, |value| hash(value, collator, 0, state));
}

/// Whether field names count: in documents, not in arrays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Count,
    Ignored,
}

/// `depth` is the number of documents and arrays around the values.
pub(crate) fn compare_values(a: Value<'_>, b: Value<'_>, collator: Option<&dyn Collator>, depth: u32) -> Ordering {
    match (a, b) {
        (Value::Int32(a), Value::Int32(b)) => a.cmp(&b),
        (Value::Int64(a), Value::Int64(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(&b),
        (Value::Double(a), Value::Double(b)) => compare_doubles(a, b),
        (Value::Int32(a), Value::Double(b)) => compare_integer_with_double(a.into(), b),
        (Value::Int64(a), Value::Double(b)) => compare_integer_with_double(a, b),
        (Value::Double(a), Value::Int32(b)) => compare_integer_with_double(b.into(), a).reverse(),
        (Value::Double(a), Value::Int64(b)) => compare_integer_with_double(b, a).reverse(),
        (Value::Int32(a), Value::Int64(b)) => i64::from(a).cmp(&b),
        (Value::Int64(a), Value::Int32(b)) => a.cmp(&b.into()),
        (Value::String(a) | Value::Symbol(a), Value::String(b) | Value::Symbol(b)) => compare_strings(a, b, collator),
        (Value::Document(a), Value::Document(b)) => compare_fields(a, b, Names::Count, collator, depth),
        (Value::Array(a), Value::Array(b)) => compare_fields(a, b, Names::Ignored, collator, depth),
        (Value::Binary { subtype: s, bytes: a }, Value::Binary { subtype: t, bytes: b }) => {
            (binary_length(s, a), s, a).cmp(&(binary_length(t, b), t, b))
        }
        (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(&b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(&b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(&b),
        (Value::Regex { pattern: a, options: x }, Value::Regex { pattern: b, options: y }) => (a, x).cmp(&(b, y)),
        (Value::DbPointer { namespace: a, id: x }, Value::DbPointer { namespace: b, id: y }) => {
            (a.len(), a, x).cmp(&(b.len(), b, y))
        }
        (Value::Code(a), Value::Code(b)) => a.cmp(b),
        (Value::CodeWithScope { code: a, scope: x }, Value::CodeWithScope { code: b, scope: y }) => a
            .cmp(b)
            .then_with(|| compare_fields(x, y, Names::Count, collator, depth)),
        _ => match (a.number(), b.number()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.canonical_type().cmp(&b.canonical_type()),
        },
    }
}

/// Length that counts in comparisons: subtype 2 has its inner length in it.
pub(crate) fn binary_length(subtype: u8, bytes: &[u8]) -> usize {
    bytes.len() + if subtype == BINARY_OLD { 4 } else { 0 }
}

fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// As `Number` compares them, without taking the double apart.
fn compare_integer_with_double(a: i64, b: f64) -> Ordering {
    const LIMIT: f64 = INTEGER_LIMIT as f64;
    if b.is_nan() || b < -LIMIT {
        return Ordering::Greater;
    }
    if b >= LIMIT {
        return Ordering::Less;
    }
    let whole = b as i64;
    a.cmp(&whole).then_with(|| compare_doubles(0.0, b - whole as f64))
}

fn compare_strings(a: &[u8], b: &[u8], collator: Option<&dyn Collator>) -> Ordering {
    match collator {
        None => a.cmp(b),
        Some(collator) => collator.compare(&String::from_utf8_lossy(a), &String::from_utf8_lossy(b)),
    }
}

fn compare_fields(a: &[u8], b: &[u8], names: Names, collator: Option<&dyn Collator>, depth: u32) -> Ordering {
    if depth >= DEPTH_MAX {
        return a.cmp(b);
    }
    let (mut a, mut b) = (Elements::new(a), Elements::new(b));
    loop {
        let (x, y) = match (a.next_or_end(), b.next_or_end()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => (x, y),
        };
        let mut order = Ordering::Equal;
        if names == Names::Count {
            order = x
                .value
                .canonical_type()
                .cmp(&y.value.canonical_type())
                .then_with(|| x.name.cmp(y.name));
        }
        order = order.then_with(|| compare_values(x.value, y.value, collator, depth + 1));
        if order != Ordering::Equal {
            return order;
        }
    }
}

fn hash<H: Hasher>(value: Value<'_>, collator: Option<&dyn Collator>, depth: u32, state: &mut H) {
    state.write_u8(value.canonical_type());
    match value {
        Value::MinKey | Value::Undefined | Value::Null | Value::MaxKey => {}
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => value.number().hash(state),
        Value::String(text) | Value::Symbol(text) => match collator {
            None => text.hash(state),
            Some(collator) => {
                let mut key = Vec::new();
                collator.append_sort_key(&String::from_utf8_lossy(text), &mut key);
                key.hash(state);
            }
        },
        Value::Document(bytes) => hash_fields(bytes, Names::Count, collator, depth, state),
        Value::Array(bytes) => hash_fields(bytes, Names::Ignored, collator, depth, state),
        Value::Binary { subtype, bytes } => (subtype, bytes).hash(state),
        Value::ObjectId(id) => state.write(&id),
        Value::Bool(value) => value.hash(state),
        Value::Date(value) => value.hash(state),
        Value::Timestamp(value) => value.hash(state),
        Value::Regex { pattern, options } => (pattern, options).hash(state),
        Value::DbPointer { namespace, id } => (namespace, id).hash(state),
        Value::Code(text) => text.hash(state),
        Value::CodeWithScope { code, scope } => {
            code.hash(state);
            hash_fields(scope, Names::Count, collator, depth, state);
        }
    }
}

fn hash_fields<H: Hasher>(bytes: &[u8], names: Names, collator: Option<&dyn Collator>, depth: u32, state: &mut H) {
    if depth >= DEPTH_MAX {
        bytes.hash(state);
        return;
    }
    let mut elements = Elements::new(bytes);
    while let Some(element) = elements.next_or_end() {
        if names == Names::Count {
            element.name.hash(state);
        }
        hash(element.value, collator, depth + 1, state);
    }
    state.write_u8(0);
}

#[cfg(test)]
mod tests;
