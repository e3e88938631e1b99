//! Numbers as text, and as bytes of binData: `$toDouble` and its like read them, `$convert` writes them.

use bson::Decimal128;
use keys::decimal::DIGITS_MAX;
use wire::ErrorCode;

use super::super::failure::failure;
use super::super::operator::Computed;
use super::{NO_HANDLER, Target, unconvertible};
use crate::error::QueryError;
use crate::value::{Blob, Value};

const OLD_BINARY_SUBTYPE: u8 = 2;

/// How `$convert` lays out numbers in binData.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn of(given: Option<&Value<'_>>) -> Result<Self, QueryError> {
        match given {
            None => Ok(Self::Little),
            Some(nullish) if nullish.is_nullish() => Ok(Self::Little),
            Some(Value::String(name)) if &**name == "little" => Ok(Self::Little),
            Some(Value::String(name)) if &**name == "big" => Ok(Self::Big),
            Some(other) => failure(
                ErrorCode::FailedToParse.0,
                format!(
                    "$convert's 'byteOrder' must be 'little' or 'big', found: {}",
                    other.render()
                ),
            ),
        }
    }

    /// From or to little-endian bytes.
    fn arrange(self, bytes: &mut [u8]) {
        if self == Self::Big {
            bytes.reverse();
        }
    }
}

/// The number whose bytes these are: integers of two's complement, doubles also of single precision.
pub(super) fn number_of_bytes<'a>(subtype: u8, bytes: &[u8], target: Target, order: ByteOrder) -> Computed<'a> {
    // The old subtype has its length in front.
    let mut little = match subtype {
        OLD_BINARY_SUBTYPE => (bytes.len() as u32).to_le_bytes().to_vec(),
        _ => Vec::new(),
    };
    little.extend_from_slice(bytes);
    order.arrange(&mut little);
    let integer = match *little {
        [a] => Some(i64::from(a as i8)),
        [a, b] => Some(i64::from(i16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(i64::from_le_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    };
    match (target, integer, little.len()) {
        (Target::Int, Some(number), 1 | 2 | 4) => Ok(Value::Int32(number as i32)),
        (Target::Long, Some(number), _) => Ok(Value::Int64(number)),
        (Target::Double, Some(bits), 4) => Ok(Value::Double(f64::from(f32::from_bits(bits as u32)))),
        (Target::Double, Some(bits), 8) => Ok(Value::Double(f64::from_bits(bits as u64))),
        (_, _, length) => unconvertible(format!(
            "binData of {length} bytes is not converted to {} {NO_HANDLER}",
            target.name()
        )),
    }
}

pub(super) fn bytes_of_number<'a>(number: &Value<'_>, subtype: u8, order: ByteOrder) -> Computed<'a> {
    let mut bytes = match number {
        Value::Int32(number) => number.to_le_bytes().to_vec(),
        Value::Int64(number) => number.to_le_bytes().to_vec(),
        Value::Double(number) => number.to_le_bytes().to_vec(),
        other => {
            return unconvertible(format!(
                "Unsupported conversion from {} to binData {NO_HANDLER}",
                other.type_name()
            ));
        }
    };
    order.arrange(&mut bytes);
    Ok(Value::Binary(subtype, Blob::Shared(bytes.into())))
}

/// The double of numeric text; spaces are refused. `Some(None)` for a number beyond the doubles.
pub(super) fn parse_double(text: &str) -> Option<Option<f64>> {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let word = ["inf", "infinity", "nan"]
        .iter()
        .any(|word| bare.eq_ignore_ascii_case(word));
    let digits = bare
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match (word, digits) {
        (true, _) => Some(text.parse().ok()),
        (false, true) => {
            let double = text.parse().ok()?;
            let coefficient = text.split(['e', 'E']).next().unwrap_or_default();
            let is_zero = || !coefficient.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
            Some(Some(double).filter(|double| !is_beyond_doubles(*double, is_zero)))
        }
        (false, false) => parse_hexadecimal(text),
    }
}

/// Whether a decimal number that became this double, the nearest one, is too large or too small for doubles. Below the
/// normal ones no number of fewer than 700 digits is a double.
pub(super) fn is_beyond_doubles(double: f64, is_zero: impl FnOnce() -> bool) -> bool {
    double.is_infinite() || double.is_subnormal() || (double == 0.0 && !is_zero())
}

/// The double of hexadecimal text, `+0x1.8p1`. As in MongoDB not of one that begins with `0x`.
fn parse_hexadecimal(text: &str) -> Option<Option<f64>> {
    if text.starts_with("0x") {
        return None;
    }
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let bare = bare.strip_prefix("0x").or_else(|| bare.strip_prefix("0X"))?;
    let (mantissa, exponent) = match bare.split_once(['p', 'P']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (bare, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // What is beyond the digits that a double has is only told from nothing.
    let (mut bits, mut dropped, mut is_inexact) = (0_u64, 0_i32, false);
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(digit.to_digit(16)?);
        if bits >> 59 == 0 {
            bits = bits << 4 | digit;
        } else {
            dropped += 1;
            is_inexact |= digit != 0;
        }
    }
    let places = dropped - i32::try_from(fraction.len()).ok()?;
    let size = scale(
        bits | u64::from(is_inexact),
        places.checked_mul(4)?.checked_add(exponent)?,
    );
    Some(size.map(|size| if text.starts_with('-') { -size } else { size }))
}

/// The double nearest to `bits * 2^exponent`, rounded once, to even. `None` where that is infinite, or has lost digits
/// below the normal ones.
fn scale(bits: u64, exponent: i32) -> Option<f64> {
    let length = i64::from(u64::BITS - bits.leading_zeros());
    if length == 0 {
        return Some(0.0);
    }
    let exponent = i64::from(exponent);
    let is_tiny = exponent + length < i64::from(f64::MIN_EXP);
    let lowest = i64::from(f64::MIN_EXP) - i64::from(f64::MANTISSA_DIGITS);
    let dropped = (length - i64::from(f64::MANTISSA_DIGITS)).max(lowest - exponent).max(0);
    let (kept, rest) = match u32::try_from(dropped) {
        Ok(dropped @ 0..64) => (bits >> dropped, bits & ((1 << dropped) - 1)),
        // Nothing is left of it.
        _ => return None,
    };
    if is_tiny && rest > 0 {
        return None;
    }
    let half = 1_u64 << dropped >> 1;
    let up = rest > half || (rest == half && rest > 0 && kept & 1 == 1);
    let exponent = i32::try_from((exponent + dropped).min(2_000)).ok()?;
    // In two steps: the power alone may be none.
    let size = (kept + u64::from(up)) as f64 * 2_f64.powi(exponent / 2) * 2_f64.powi(exponent - exponent / 2);
    Some(size).filter(|size| size.is_finite())
}

/// Whether there is something before the exponent: the parser of decimals takes nothing for zero.
pub(super) fn has_coefficient(text: &str) -> bool {
    let coefficient = text.split(['e', 'E']).next().unwrap_or_default();
    coefficient.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// The decimal of numeric text. As in MongoDB digits beyond the 34th are cut off.
pub(super) fn parse_decimal(text: &str) -> Option<Decimal128> {
    if let Ok(decimal) = text.parse() {
        return Some(decimal);
    }
    // The parser takes no more.
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let bare = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = bare.split_once('.').unwrap_or((bare, ""));
    let digits = [whole, fraction].concat();
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    let (kept, dropped) = digits.split_at_checked(DIGITS_MAX as usize)?;
    let exponent = exponent - fraction.len() as i64 + dropped.len() as i64;
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    format!("{sign}{kept}E{exponent}").parse().ok()
}
