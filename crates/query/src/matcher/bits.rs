//! `$bitsAllSet`, `$bitsAnySet`, `$bitsAllClear`, `$bitsAnyClear`.

use std::borrow::Cow;

use bson::RawBsonRef;
use bson::raw::RawBinaryRef;
use bson::spec::BinarySubtype;

use super::number::{integral, is_number};
use super::tree::{BitOp, BitTest};
use crate::QueryError;
use crate::raw::{self, Element, Elements};
use crate::value::scan::{Malformed, frame};

/// Highest bit position accepted: as many as MongoDB's.
const POSITION_MAX: i64 = i32::MAX as i64;

impl BitTest {
    /// Parses the argument: a list of positions, a mask as a number or as a binary.
    pub(super) fn parse(op: BitOp, name: &str, value: RawBsonRef<'_>) -> Result<Self, QueryError> {
        let positions = match value {
            RawBsonRef::Array(positions) => Self::listed(name, positions.as_bytes())?,
            RawBsonRef::Binary(mask) => set_bits(&stored(mask)),
            value if is_number(value) => {
                let mask = integral(value).ok_or_else(|| {
                    QueryError::failed_to_parse(format!("Expected an integer: {name}: {}", raw::describe(value)))
                })?;
                if mask < 0 {
                    let message = format!("Expected a non-negative number in: {name}: {}", raw::describe(value));
                    return Err(QueryError::failed_to_parse(message));
                }
                set_bits(&mask.to_le_bytes())
            }
            value => {
                let given = raw::describe(value);
                let message = format!("{name} takes an Array, a number, or a BinData but received: {name}: {given}");
                return Err(QueryError::bad_value(message));
            }
        };
        Ok(Self { op, positions })
    }

    fn listed(name: &str, array: &[u8]) -> Result<Vec<u32>, QueryError> {
        let mut positions = Vec::new();
        for item in Elements::new(frame(array)?) {
            let value = item?.value()?;
            let position = integral(value).ok_or_else(|| {
                let given = raw::describe(value);
                QueryError::failed_to_parse(format!(
                    "Failed to parse bit position. Expected a number in: {name}: {given}"
                ))
            })?;
            if !(0..=POSITION_MAX).contains(&position) {
                let message =
                    format!("Failed to parse bit position. Expected a non-negative number in: {name}: {position}");
                return Err(QueryError::failed_to_parse(message));
            }
            positions.push(position as u32);
        }
        positions.sort_unstable();
        positions.dedup();
        Ok(positions)
    }

    /// Whether a number or a binary has its bits so.
    pub(super) fn passes(&self, element: Element<'_>) -> Result<bool, Malformed> {
        let value = element.value()?;
        if let RawBsonRef::Binary(binary) = value {
            let bytes = stored(binary);
            return Ok(self.test(|position| {
                bytes
                    .get(position as usize / 8)
                    .is_some_and(|byte| byte >> (position % 8) & 1 == 1)
            }));
        }
        // Two's complement: the sign goes on beyond bit 63.
        Ok(integral(value).is_some_and(|number| self.test(|position| number >> position.min(63) & 1 == 1)))
    }

    fn test(&self, is_set: impl Fn(u32) -> bool) -> bool {
        let mut positions = self.positions.iter().copied();
        match self.op {
            BitOp::AllSet => positions.all(is_set),
            BitOp::AnySet => positions.any(is_set),
            BitOp::AllClear => !positions.any(is_set),
            BitOp::AnyClear => !positions.all(is_set),
        }
    }
}

/// The bytes as they are stored: those of subtype 2 begin with their own length.
fn stored(binary: RawBinaryRef<'_>) -> Cow<'_, [u8]> {
    match binary.subtype {
        BinarySubtype::BinaryOld => {
            let length = (binary.bytes.len() as i32).to_le_bytes();
            Cow::Owned([&length, binary.bytes].concat())
        }
        _ => Cow::Borrowed(binary.bytes),
    }
}

fn set_bits(mask: &[u8]) -> Vec<u32> {
    let bit = |position: &u32| mask[*position as usize / 8] >> (position % 8) & 1 == 1;
    (0..mask.len() as u32 * 8).filter(bit).collect()
}
