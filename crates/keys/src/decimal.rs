//! Decimal128 arithmetic and conversion, as the query language needs it.
//!
//! A [`Decimal`] is a Decimal128 taken apart. Parsing and printing belong to `bson::Decimal128`. Results are rounded to
//! 34 digits, half to even, unless a method says otherwise; flags and signalling are not kept (a signalling NaN is a
//! NaN). Encoding: IEEE 754-2008 binary integer decimal, as in the BSON specification's decimal128 text.
//!
//! Invariant of `Finite`: the coefficient has at most 34 digits and the exponent lies in -6176..=6111.

mod u256;

use crate::number::Number;
use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use u256::U256;

/// Most digits of a coefficient.
pub const DIGITS_MAX: u32 = 34;
/// Smallest exponent of a coefficient.
pub const EXPONENT_MIN: i32 = -6176;
/// Largest exponent of a coefficient.
pub const EXPONENT_MAX: i32 = 6111;

const COEFFICIENT_MAX: u128 = POWERS_OF_TEN[34] - 1;
const COEFFICIENT_BITS: u32 = 113;

/// 10^0 to 10^38.
pub(crate) const POWERS_OF_TEN: [u128; 39] = {
    let mut powers = [1_u128; 39];
    let mut index = 1;
    while index < 39 {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// Decimal digits of a coefficient; 1 for zero.
pub(crate) fn digit_count(value: u128) -> u32 {
    value.checked_ilog10().unwrap_or(0) + 1
}

/// What to do with digits that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest, a tie to the even neighbour.
    HalfEven,
    /// Cut off.
    TowardZero,
    /// Towards minus infinity.
    Floor,
    /// Towards plus infinity.
    Ceiling,
}

/// A Decimal128 value. `==` compares representations (1.0 is not 1.00): use [`Decimal::compare`] for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// Not a number.
    NaN,
    /// Too large, or divided by zero.
    Infinity {
        /// Minus infinity.
        negative: bool,
    },
    /// `coefficient * 10^exponent`.
    Finite {
        /// The sign; zero has one too.
        negative: bool,
        /// At most 34 digits.
        coefficient: u128,
        /// From [`EXPONENT_MIN`] to [`EXPONENT_MAX`].
        exponent: i32,
    },
}

impl Decimal {
    /// Zero, exponent 0.
    pub const ZERO: Decimal = Decimal::Finite {
        negative: false,
        coefficient: 0,
        exponent: 0,
    };

    /// Takes the bits apart (as a little-endian integer). Coefficients of more than 34 digits read as 0, as IEEE says.
    pub(crate) fn from_bits(bits: u128) -> Self {
        let negative = bits >> 127 != 0;
        if bits >> 123 & 0xF == 0xF {
            return if bits >> 122 & 1 != 0 {
                Decimal::NaN
            } else {
                Decimal::Infinity { negative }
            };
        }
        // A leading 11 announces coefficients of 114 bits, none of which has 34 digits or fewer.
        let (exponent, coefficient) = if bits >> 125 & 3 == 3 {
            (bits >> 111 & 0x3FFF, 0)
        } else {
            (bits >> COEFFICIENT_BITS & 0x3FFF, bits & ((1 << COEFFICIENT_BITS) - 1))
        };
        let coefficient = if coefficient > COEFFICIENT_MAX { 0 } else { coefficient };
        Decimal::Finite {
            negative,
            coefficient,
            exponent: exponent as i32 + EXPONENT_MIN,
        }
    }

    pub(crate) fn to_bits(self) -> u128 {
        match self {
            Decimal::NaN => 0x1F << 122,
            Decimal::Infinity { negative } => u128::from(negative) << 127 | 0x1E << 122,
            Decimal::Finite {
                negative,
                coefficient,
                exponent,
            } => u128::from(negative) << 127 | ((exponent - EXPONENT_MIN) as u128) << COEFFICIENT_BITS | coefficient,
        }
    }

    /// The nearest decimal of 15 significant digits, trailing zeros kept: what MongoDB makes of a double (0.1 becomes
    /// 0.100000000000000).
    pub fn from_f64(value: f64) -> Self {
        if value.is_nan() {
            return Decimal::NaN;
        }
        if value.is_infinite() {
            return Decimal::Infinity { negative: value < 0.0 };
        }
        if value == 0.0 {
            return Decimal::Finite {
                negative: value.is_sign_negative(),
                coefficient: 0,
                exponent: 0,
            };
        }
        let text = format!("{:.14e}", value.abs());
        let (mantissa, exponent) = text.split_once('e').expect("the format has an exponent");
        let coefficient = mantissa
            .bytes()
            .filter(u8::is_ascii_digit)
            .fold(0, |c, d| c * 10 + u128::from(d - b'0'));
        let exponent: i32 = exponent.parse().expect("the format's exponent is a number");
        Decimal::Finite {
            negative: value < 0.0,
            coefficient,
            exponent: exponent - 14,
        }
    }

    /// The nearest double, half to even; infinite when too large.
    pub fn to_f64(self) -> f64 {
        match self {
            Decimal::NaN => f64::NAN,
            Decimal::Infinity { negative: false } => f64::INFINITY,
            Decimal::Infinity { negative: true } => f64::NEG_INFINITY,
            Decimal::Finite {
                negative,
                coefficient,
                exponent,
            } => {
                // Both operands exact, so one correctly rounded operation (Clinger 1990).
                let size = if coefficient < 1 << 53 && (-22..=22).contains(&exponent) {
                    let power = POWERS_OF_TEN[exponent.unsigned_abs() as usize] as f64;
                    if exponent < 0 {
                        coefficient as f64 / power
                    } else {
                        coefficient as f64 * power
                    }
                } else {
                    format!("{coefficient}e{exponent}")
                        .parse()
                        .expect("digits and an exponent are a number")
                };
                if negative { -size } else { size }
            }
        }
    }

    /// The value rounded to an integer, or `None` when it is not finite or does not fit.
    pub fn to_i64(self, rounding: Rounding) -> Option<i64> {
        match self.round(0, rounding) {
            Decimal::Finite {
                negative,
                coefficient,
                exponent,
            } => {
                let size = if coefficient == 0 {
                    0
                } else {
                    coefficient.checked_mul(*POWERS_OF_TEN.get(usize::try_from(exponent).ok()?)?)?
                };
                let size = i128::try_from(size).ok()?;
                i64::try_from(if negative { -size } else { size }).ok()
            }
            _ => None,
        }
    }

    /// True for NaN.
    pub fn is_nan(self) -> bool {
        self == Decimal::NaN
    }

    /// True for a zero of either sign and any exponent.
    pub fn is_zero(self) -> bool {
        matches!(self, Decimal::Finite { coefficient: 0, .. })
    }

    /// True for negative numbers and for minus zero.
    pub fn is_negative(self) -> bool {
        matches!(
            self,
            Decimal::Infinity { negative: true } | Decimal::Finite { negative: true, .. }
        )
    }

    /// True when finite and without digits after the point that are not zero.
    pub fn is_integer(self) -> bool {
        match self {
            Decimal::Finite {
                coefficient, exponent, ..
            } => {
                exponent >= 0
                    || coefficient == 0
                    || POWERS_OF_TEN
                        .get(exponent.unsigned_abs() as usize)
                        .is_some_and(|unit| coefficient % unit == 0)
            }
            _ => false,
        }
    }

    /// The order of values: NaN equals itself and is below all numbers, -0 equals 0.
    pub fn compare(self, other: Self) -> Ordering {
        Number::of_decimal(self).cmp(&Number::of_decimal(other))
    }

    /// The value without its sign.
    pub fn abs(self) -> Self {
        if self.is_negative() { -self } else { self }
    }

    /// Rounds to an integer and writes all its digits: its exponent is 0. NaN where there is no room for them.
    pub fn to_integral(self, rounding: Rounding) -> Self {
        let Decimal::Finite {
            negative,
            coefficient,
            exponent,
        } = self.round(0, rounding)
        else {
            return Decimal::NaN;
        };
        let unit = usize::try_from(exponent)
            .ok()
            .and_then(|zeros| POWERS_OF_TEN.get(zeros));
        let digits = match coefficient {
            0 => Some(0),
            _ => unit.and_then(|unit| coefficient.checked_mul(*unit)),
        };
        match digits.filter(|digits| *digits <= COEFFICIENT_MAX) {
            Some(coefficient) => Decimal::Finite {
                negative,
                coefficient,
                exponent: 0,
            },
            None => Decimal::NaN,
        }
    }

    /// Rounds to `places` digits after the point; negative: before it. Fewer places than that are left as they are.
    pub fn round(self, places: i32, rounding: Rounding) -> Self {
        let Decimal::Finite {
            negative,
            coefficient,
            exponent,
        } = self
        else {
            return self;
        };
        let target = places.saturating_neg();
        if exponent >= target {
            return self;
        }
        let target = target.min(EXPONENT_MAX);
        let drop = (target - exponent) as u32;
        // One unit is more than the coefficient can reach: what is left is 0 or 1 unit.
        let (quotient, position) = match POWERS_OF_TEN.get(drop as usize) {
            Some(unit) => {
                let (quotient, rest) = (coefficient / unit, coefficient % unit);
                (quotient, Remainder::of(rest, *unit))
            }
            None => (0, Remainder::of(coefficient.min(1), 3)),
        };
        let coefficient = quotient + u128::from(position.rounds_up(rounding, negative, quotient));
        finish(negative, U256::from(coefficient), target, false)
    }

    /// Cuts off what is after `places` digits after the point.
    pub fn trunc(self, places: i32) -> Self {
        self.round(places, Rounding::TowardZero)
    }
}

/// Where the digits cut off lie between two neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remainder {
    Zero,
    BelowHalf,
    Half,
    AboveHalf,
}

impl Remainder {
    fn of(rest: u128, unit: u128) -> Self {
        match (rest, rest.cmp(&(unit - rest))) {
            (0, _) => Remainder::Zero,
            (_, Ordering::Less) => Remainder::BelowHalf,
            (_, Ordering::Equal) => Remainder::Half,
            (_, Ordering::Greater) => Remainder::AboveHalf,
        }
    }

    /// The same when something more, less than the last digit, was cut off before.
    fn with_sticky(self, sticky: bool) -> Self {
        match self {
            Remainder::Zero if sticky => Remainder::BelowHalf,
            Remainder::Half if sticky => Remainder::AboveHalf,
            other => other,
        }
    }

    fn rounds_up(self, rounding: Rounding, negative: bool, quotient: u128) -> bool {
        match rounding {
            Rounding::TowardZero => false,
            Rounding::Floor => negative && self != Remainder::Zero,
            Rounding::Ceiling => !negative && self != Remainder::Zero,
            Rounding::HalfEven => self == Remainder::AboveHalf || self == Remainder::Half && quotient & 1 == 1,
        }
    }
}

/// Rounds a result to 34 digits and into the range of exponents. `sticky`: something below the last digit was cut off,
/// which callers only do when more than 34 digits are there.
fn finish(negative: bool, value: U256, exponent: i32, sticky: bool) -> Decimal {
    let (split, _) = value.divide(POWERS_OF_TEN[34]);
    let digits = if split.is_zero() {
        digit_count(value.low)
    } else {
        34 + wide_digit_count(split)
    };
    let drop = (digits as i32 - DIGITS_MAX as i32).max(EXPONENT_MIN - exponent).max(0) as u32;
    let (mut coefficient, mut exponent) = (value.low, exponent);
    if drop > 0 {
        let (quotient, remainder) = divide_power_of_ten(value, drop);
        coefficient = quotient;
        coefficient += u128::from(
            remainder
                .with_sticky(sticky)
                .rounds_up(Rounding::HalfEven, negative, coefficient),
        );
        exponent += drop as i32;
        if coefficient > COEFFICIENT_MAX {
            coefficient /= 10;
            exponent += 1;
        }
    }
    if coefficient == 0 {
        return Decimal::Finite {
            negative,
            coefficient,
            exponent: exponent.clamp(EXPONENT_MIN, EXPONENT_MAX),
        };
    }
    if exponent > EXPONENT_MAX {
        let pad = exponent - EXPONENT_MAX;
        if digit_count(coefficient) as i32 + pad > DIGITS_MAX as i32 {
            return Decimal::Infinity { negative };
        }
        coefficient *= POWERS_OF_TEN[pad as usize];
        exponent = EXPONENT_MAX;
    }
    Decimal::Finite {
        negative,
        coefficient,
        exponent,
    }
}

/// Digits of a number of at most 43 digits (what 2^256 leaves after 34 are gone).
fn wide_digit_count(value: U256) -> u32 {
    let (high, _) = value.divide(POWERS_OF_TEN[20]);
    if high.is_zero() {
        digit_count(value.low)
    } else {
        20 + digit_count(high.low)
    }
}

/// `value / 10^exponent`, of which at most 34 digits are left, and where the rest lies.
fn divide_power_of_ten(value: U256, exponent: u32) -> (u128, Remainder) {
    if exponent <= 38 {
        let unit = POWERS_OF_TEN[exponent as usize];
        let (quotient, rest) = value.divide(unit);
        return (quotient.low, Remainder::of(rest, unit));
    }
    if exponent > 77 {
        return (
            0,
            if value.is_zero() {
                Remainder::Zero
            } else {
                Remainder::BelowHalf
            },
        );
    }
    let (upper, lower) = value.divide(POWERS_OF_TEN[38]);
    let (quotient, remainder) = divide_power_of_ten(upper, exponent - 38);
    (quotient, remainder.with_sticky(lower != 0))
}

impl Neg for Decimal {
    type Output = Decimal;

    fn neg(self) -> Decimal {
        match self {
            Decimal::NaN => Decimal::NaN,
            Decimal::Infinity { negative } => Decimal::Infinity { negative: !negative },
            Decimal::Finite {
                negative,
                coefficient,
                exponent,
            } => Decimal::Finite {
                negative: !negative,
                coefficient,
                exponent,
            },
        }
    }
}

impl Add for Decimal {
    type Output = Decimal;

    fn add(self, other: Decimal) -> Decimal {
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (Decimal::Infinity { negative: a }, Decimal::Infinity { negative: b }) if a != b => Decimal::NaN,
            (infinity @ Decimal::Infinity { .. }, _) | (_, infinity @ Decimal::Infinity { .. }) => infinity,
            (
                Decimal::Finite {
                    negative: a,
                    coefficient: x,
                    exponent: e,
                },
                Decimal::Finite {
                    negative: b,
                    coefficient: y,
                    exponent: f,
                },
            ) if e >= f => add_finite((a, x, e), (b, y, f)),
            (Decimal::Finite { .. }, Decimal::Finite { .. }) => other + self,
        }
    }
}

/// The sum of two finite numbers; the first has the larger exponent or the same.
fn add_finite((a, x, e): (bool, u128, i32), (b, y, f): (bool, u128, i32)) -> Decimal {
    /// So many zeros behind 34 digits still fit 256 bits.
    const SHIFT_MAX: i32 = 42;
    if x == 0 && e != f {
        let negative = if y == 0 { a && b } else { b };
        return Decimal::Finite {
            negative,
            coefficient: y,
            exponent: f,
        };
    }
    // As many zeros as fit, so that the exponents come as near as they can.
    let pad = if x == 0 {
        0
    } else {
        (DIGITS_MAX - digit_count(x)).min((e - f) as u32)
    };
    let (x, e) = (x * POWERS_OF_TEN[pad as usize], e - pad as i32);
    let (x, y, exponent) = if e - f <= SHIFT_MAX {
        (U256::from(x).times_power_of_ten((e - f) as u32), U256::from(y), f)
    } else {
        // `y` is below a billionth of the last of the 34 digits of `x`: only that it is there counts.
        (U256::from(x).times_power_of_ten(3), U256::from(y.min(1)), e - 3)
    };
    if a == b {
        return finish(a, x.plus(y), exponent, false);
    }
    match x.cmp(&y) {
        Ordering::Greater => finish(a, x.minus(y), exponent, false),
        Ordering::Less => finish(b, y.minus(x), exponent, false),
        Ordering::Equal => finish(false, U256::from(0), exponent, false),
    }
}

impl Sub for Decimal {
    type Output = Decimal;

    fn sub(self, other: Decimal) -> Decimal {
        self + -other
    }
}

impl Mul for Decimal {
    type Output = Decimal;

    fn mul(self, other: Decimal) -> Decimal {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (Decimal::Infinity { .. }, zero) | (zero, Decimal::Infinity { .. }) if zero.is_zero() => Decimal::NaN,
            (Decimal::Infinity { .. }, _) | (_, Decimal::Infinity { .. }) => Decimal::Infinity { negative },
            (
                Decimal::Finite {
                    coefficient: x,
                    exponent: e,
                    ..
                },
                Decimal::Finite {
                    coefficient: y,
                    exponent: f,
                    ..
                },
            ) => finish(negative, U256::product(x, y), e + f, false),
        }
    }
}

impl Div for Decimal {
    type Output = Decimal;

    /// Division by zero gives an infinity, 0 / 0 NaN.
    fn div(self, other: Decimal) -> Decimal {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Decimal::NaN, _) | (_, Decimal::NaN) => Decimal::NaN,
            (Decimal::Infinity { .. }, Decimal::Infinity { .. }) => Decimal::NaN,
            (Decimal::Infinity { .. }, _) => Decimal::Infinity { negative },
            (_, Decimal::Infinity { .. }) => finish(negative, U256::from(0), EXPONENT_MIN, false),
            (
                Decimal::Finite {
                    coefficient: x,
                    exponent: e,
                    ..
                },
                Decimal::Finite {
                    coefficient: y,
                    exponent: f,
                    ..
                },
            ) => match (x, y) {
                (0, 0) => Decimal::NaN,
                (_, 0) => Decimal::Infinity { negative },
                (0, _) => finish(negative, U256::from(0), e - f, false),
                _ => divide_finite(negative, (x, e), (y, f)),
            },
        }
    }
}

fn divide_finite(negative: bool, (x, e): (u128, i32), (y, f): (u128, i32)) -> Decimal {
    // At least 35 digits, so that the remainder can only break ties.
    let shift = DIGITS_MAX + 1 + digit_count(y) - digit_count(x);
    let (mut quotient, rest) = U256::from(x).times_power_of_ten(shift).divide(y);
    let ideal = e - f;
    let mut exponent = ideal - shift as i32;
    if rest == 0 {
        // Exact: give back the zeros that the shift brought, as far as the ideal exponent.
        while exponent < ideal {
            let (shorter, digit) = quotient.divide(10);
            if digit != 0 {
                break;
            }
            quotient = shorter;
            exponent += 1;
        }
    }
    finish(negative, quotient, exponent, rest != 0)
}

impl Rem for Decimal {
    type Output = Decimal;

    /// What truncating division leaves; it has the sign of the dividend. By zero: NaN.
    fn rem(self, other: Decimal) -> Decimal {
        match (self, other) {
            (Decimal::NaN | Decimal::Infinity { .. }, _) | (_, Decimal::NaN) => Decimal::NaN,
            (_, Decimal::Infinity { .. }) => self,
            (_, zero) if zero.is_zero() => Decimal::NaN,
            (
                Decimal::Finite {
                    negative,
                    coefficient: x,
                    exponent: e,
                },
                Decimal::Finite {
                    coefficient: y,
                    exponent: f,
                    ..
                },
            ) => {
                let coefficient = if e >= f {
                    multiply_modulo(x % y, power_of_ten_modulo((e - f) as u32, y), y)
                } else if f - e > DIGITS_MAX as i32 {
                    x
                } else {
                    let divisor = U256::from(y).times_power_of_ten((f - e) as u32);
                    if divisor.high == 0 { x % divisor.low } else { x }
                };
                Decimal::Finite {
                    negative,
                    coefficient,
                    exponent: e.min(f),
                }
            }
        }
    }
}

fn multiply_modulo(a: u128, b: u128, modulus: u128) -> u128 {
    U256::product(a, b).divide(modulus).1
}

/// `10^exponent mod modulus`, by squaring.
fn power_of_ten_modulo(exponent: u32, modulus: u128) -> u128 {
    let (mut result, mut base, mut left) = (1 % modulus, 10 % modulus, exponent);
    while left > 0 {
        if left & 1 == 1 {
            result = multiply_modulo(result, base, modulus);
        }
        base = multiply_modulo(base, base, modulus);
        left >>= 1;
    }
    result
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Decimal::Finite {
            negative: value < 0,
            coefficient: u128::from(value.unsigned_abs()),
            exponent: 0,
        }
    }
}

impl From<bson::Decimal128> for Decimal {
    fn from(value: bson::Decimal128) -> Self {
        Decimal::from_bits(u128::from_le_bytes(value.bytes()))
    }
}

impl From<Decimal> for bson::Decimal128 {
    fn from(value: Decimal) -> Self {
        bson::Decimal128::from_bytes(value.to_bits().to_le_bytes())
    }
}

#[cfg(test)]
mod tests;
