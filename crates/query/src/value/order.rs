//! The order, the equality and the key bytes of values.
//!
//! Two values compare as `keys::order` compares BSON; missing and undefined are equal and come between MinKey and null.
//! Keys are `keys::key` bytes: equal values, of whatever numeric type, give equal bytes, which is what groups and sets
//! hash by. A collator, when there is one, applies to strings at any depth.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::{RawBson, RawBsonRef};
use keys::Collator;

use super::{ArrayValue, Value};

/// A shared collator.
pub type CollatorRef = Arc<dyn Collator>;

/// Compares values under an optional collation.
#[derive(Clone, Default)]
pub struct Comparer {
    collator: Option<CollatorRef>,
}

impl std::fmt::Debug for Comparer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Comparer(collated: {})", self.collator.is_some())
    }
}

/// Levels of nested arrays that are compared by value; deeper ones compare by their bytes.
const COMPARE_DEPTH_MAX: u16 = 256;

impl Comparer {
    /// A comparer; `None` compares strings by their bytes.
    pub fn new(collator: Option<CollatorRef>) -> Self {
        Self { collator }
    }

    /// The collator, if any.
    pub fn collator(&self) -> Option<&dyn Collator> {
        self.collator.as_deref()
    }

    /// The collator, to keep.
    pub fn shared_collator(&self) -> Option<CollatorRef> {
        self.collator.clone()
    }

    /// The order of two values.
    #[inline]
    pub fn compare(&self, a: &Value<'_>, b: &Value<'_>) -> Ordering {
        match (a, b) {
            (Value::Int32(a), Value::Int32(b)) => a.cmp(b),
            (Value::String(a), Value::String(b)) if self.collator.is_none() => a.as_bytes().cmp(b.as_bytes()),
            (Value::ObjectId(a), Value::ObjectId(b)) => a.cmp(b),
            (Value::Date(a), Value::Date(b)) => a.cmp(b),
            _ => self.compare_at(a, b, 0),
        }
    }

    /// Whether two values are equal.
    #[inline]
    pub fn equal(&self, a: &Value<'_>, b: &Value<'_>) -> bool {
        self.compare(a, b) == Ordering::Equal
    }

    fn compare_at(&self, a: &Value<'_>, b: &Value<'_>, depth: u16) -> Ordering {
        let by_type = type_rank(a).cmp(&type_rank(b));
        if by_type != Ordering::Equal {
            return by_type;
        }
        match (a, b) {
            (Value::Array(a), Value::Array(b)) => self.compare_arrays(a, b, depth),
            _ => match (a.as_raw(), b.as_raw()) {
                (Some(a), Some(b)) => keys::order::compare_with(a, b, self.collator()),
                // Missing against missing or undefined.
                _ => Ordering::Equal,
            },
        }
    }

    fn compare_arrays(&self, a: &ArrayValue<'_>, b: &ArrayValue<'_>, depth: u16) -> Ordering {
        if depth >= COMPARE_DEPTH_MAX {
            return match (a, b) {
                (ArrayValue::Raw(a), ArrayValue::Raw(b)) => a.as_bytes().cmp(b.as_bytes()),
                (ArrayValue::Raw(_), ArrayValue::List(_)) => Ordering::Less,
                (ArrayValue::List(_), ArrayValue::Raw(_)) => Ordering::Greater,
                (ArrayValue::List(a), ArrayValue::List(b)) => a.len().cmp(&b.len()),
            };
        }
        let (mut left, mut right) = (a.iter(), b.iter());
        loop {
            match (left.next(), right.next()) {
                (Some(Ok(a)), Some(Ok(b))) => match self.compare_at(&a, &b, depth + 1) {
                    Ordering::Equal => {}
                    unequal => return unequal,
                },
                (None | Some(Err(_)), None | Some(Err(_))) => return Ordering::Equal,
                (None | Some(Err(_)), Some(Ok(_))) => return Ordering::Less,
                (Some(Ok(_)), None | Some(Err(_))) => return Ordering::Greater,
            }
        }
    }

    /// Appends the key bytes of `value`: equal for equal values, ordered as the values are. Missing is as undefined.
    #[inline]
    pub fn append_key(&self, value: &Value<'_>, out: &mut Vec<u8>) {
        let mut encode = |raw| keys::key::encode_value(out, raw, keys::FieldOrder::Ascending, self.collator());
        match value {
            Value::Missing => encode(RawBsonRef::Undefined),
            Value::Array(_) => {
                let wrapped = value.wrapped();
                if let Some(Ok((_, raw))) = wrapped.iter().next() {
                    encode(raw);
                }
            }
            _ => {
                if let Some(raw) = value.as_raw() {
                    encode(raw);
                }
            }
        }
    }
}

/// The place of a value's type in the canonical order of types.
pub fn type_rank(value: &Value<'_>) -> u8 {
    match value {
        Value::MinKey => 0,
        Value::Missing | Value::Undefined => 1,
        Value::Null => 2,
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => 3,
        Value::String(_) | Value::Symbol(_) => 4,
        Value::Document(_) => 5,
        Value::Array(_) => 6,
        Value::Binary(..) => 7,
        Value::ObjectId(_) => 8,
        Value::Boolean(_) => 9,
        Value::Date(_) => 10,
        Value::Timestamp(_) => 11,
        Value::Other(other) => match **other {
            RawBson::RegularExpression(_) => 12,
            RawBson::DbPointer(_) => 13,
            _ => 15,
        },
        Value::JavaScript(_) => 14,
        Value::MaxKey => 16,
    }
}
