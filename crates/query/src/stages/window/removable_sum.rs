//! A sum that numbers leave again.
//!
//! As in MongoDB what leaves is subtracted, and NaN and infinities are counted instead of added, so that they leave
//! nothing behind. The result has the widest type of the numbers inside, integers the narrowest that they fit.

use keys::Decimal;
use keys::decimal::Rounding;

use super::calculus::divide;
use crate::value::number::{Number, Sum};

/// The sum of the numbers that are inside.
#[derive(Default)]
pub(super) struct RemovableSum {
    /// Of the finite ones.
    sum: Sum,
    count: i64,
    doubles: i64,
    decimals: i64,
    nan: i64,
    positive_infinities: i64,
    negative_infinities: i64,
}

impl RemovableSum {
    pub(super) fn add(&mut self, number: Number) {
        if self.account(number, 1) {
            self.sum.add(number);
        }
    }

    /// Takes a number out that was added.
    pub(super) fn remove(&mut self, number: Number) {
        if !self.account(number, -1) {
            return;
        }
        let opposite = match number {
            Number::Int32(n) => Number::Int64(-i64::from(n)),
            // It has none.
            Number::Int64(i64::MIN) => {
                self.sum.add(Number::Int64(i64::MAX));
                Number::Int64(1)
            }
            Number::Int64(n) => Number::Int64(-n),
            Number::Double(n) => Number::Double(-n),
            Number::Decimal(n) => Number::Decimal(-n),
        };
        self.sum.add(opposite);
    }

    /// Counts a number; whether it is finite.
    fn account(&mut self, number: Number, by: i64) -> bool {
        self.count += by;
        match number {
            Number::Int32(_) | Number::Int64(_) => return true,
            Number::Double(_) => self.doubles += by,
            Number::Decimal(_) => self.decimals += by,
        }
        // A decimal that no double holds is finite all the same.
        let of_infinity = match number {
            Number::Decimal(Decimal::Infinity { negative }) => Some(negative),
            Number::Double(n) if n.is_infinite() => Some(n < 0.0),
            _ => None,
        };
        match of_infinity {
            Some(false) => self.positive_infinities += by,
            Some(true) => self.negative_infinities += by,
            None if number.is_nan() => self.nan += by,
            None => return true,
        }
        false
    }

    /// NaN or an infinity, where one is inside.
    fn non_finite(&self) -> Option<f64> {
        match (self.nan, self.positive_infinities, self.negative_infinities) {
            (0, 0, 0) => None,
            (0, _, 0) => Some(f64::INFINITY),
            (0, 0, _) => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }

    pub(super) fn total(&self) -> Number {
        if let Some(x) = self.non_finite() {
            return match self.decimals {
                0 => Number::Double(x),
                _ => Number::Decimal(Decimal::from_f64(x)),
            };
        }
        // The sum's own type is the widest that was ever inside.
        match self.sum.total() {
            Number::Decimal(total) if self.decimals == 0 => match total.to_i64(Rounding::HalfEven) {
                Some(n) if self.doubles == 0 => narrowest(n),
                _ => Number::Double(total.to_f64()),
            },
            Number::Double(total) if self.doubles == 0 => {
                let rounded = Number::Double(total.round());
                rounded.to_exact_i64().map_or(Number::Double(total), narrowest)
            }
            Number::Int64(total) => narrowest(total),
            total => total,
        }
    }

    /// `None` where nothing is inside.
    pub(super) fn average(&self) -> Option<Number> {
        (self.count > 0).then(|| divide(self.total(), Number::Int64(self.count)))
    }
}

fn narrowest(n: i64) -> Number {
    i32::try_from(n).map_or(Number::Int64(n), Number::Int32)
}
