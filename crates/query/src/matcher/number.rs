//! Integers out of BSON numbers, as the operators' arguments are read.

use bson::RawBsonRef;
use bson::spec::ElementType;

use crate::value::Value;
use crate::value::number::{Number, exact_i64_of_f64};

/// The int64 equal to a number of any type; `None` when it is not a number or not integral or out of range.
pub(crate) fn integral(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(number) => exact_i64_of_f64(number),
        RawBsonRef::Decimal128(_) => Number::of(&Value::from_raw(value))?.to_exact_i64(),
        _ => None,
    }
}

/// The number cut off to an int64; `None` when it is not a number, NaN, infinite or out of range.
pub(crate) fn truncated(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(number) => exact_i64_of_f64(number.trunc()),
        RawBsonRef::Decimal128(number) => keys::Decimal::from(number).to_i64(keys::decimal::Rounding::TowardZero),
        _ => None,
    }
}

/// Whether a value is a number of any type.
pub(crate) fn is_number(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_)
    )
}

/// The number by which `$type` names a type: BSON's type byte, -1 for MinKey.
pub(crate) fn type_code(element_type: ElementType) -> i32 {
    match element_type {
        ElementType::MinKey => -1,
        other => i32::from(other as u8),
    }
}
