//! The exact value of a BSON number, in a form that orders, hashes and encodes alike for all four types.
//!
//! Comparing a decimal with a double exactly needs more than either type holds. A [`Number`] cuts a value into a head
//! that a double (or int64) can always express exactly, and a tail that only decimals have: what lies between the head
//! and the value. Heads order first; among equal heads no tail is the smallest; tails order as normalised decimals.
//!
//! Invariants: equal values give equal `Number`s whatever their type; the derived order of [`Magnitude`] is the order
//! of the values; a tail is present exactly when the value is not its head; zero is `Magnitude::Zero` without a sign.

use crate::decimal::{Decimal, POWERS_OF_TEN, digit_count};
use crate::wide::Wide;
use std::cmp::Ordering;

/// Integers below this are kept as such.
pub(crate) const INTEGER_LIMIT: u64 = 1 << 63;

/// Scale of [`Magnitude::Integer`]'s fraction: no double of at least 1 has a finer part than 2^-52.
pub(crate) const FRACTION_BITS: u32 = 62;

/// Added to a tail's decimal exponent, so that it is not negative.
pub(crate) const TAIL_BIAS: i32 = 6176;

/// What a decimal has beyond its head: the whole value as `0.d1 d2 ... d34 * 10^e`-like pair. Ordered as the value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tail {
    /// Exponent of the first digit, plus [`TAIL_BIAS`].
    pub(crate) exponent: u16,
    /// 34 digits, the first not zero.
    pub(crate) coefficient: u128,
}

/// A value without its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Magnitude {
    Zero,
    /// Below 1. The head is the bits of the largest double that is not greater.
    Small {
        head: u64,
        tail: Option<Tail>,
    },
    /// From 1 to below 2^63: integer part, then the rest in units of 2^-62, rounded down.
    Integer {
        whole: u64,
        fraction: u64,
        tail: Option<Tail>,
    },
    /// From 2^63 on. The head is as for `Small`.
    Large {
        head: u64,
        tail: Option<Tail>,
    },
    Infinite,
}

/// A number of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    NaN,
    Real { negative: bool, magnitude: Magnitude },
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Number::NaN, Number::NaN) => Ordering::Equal,
            (Number::NaN, Number::Real { .. }) => Ordering::Less,
            (Number::Real { .. }, Number::NaN) => Ordering::Greater,
            (
                Number::Real {
                    negative: a,
                    magnitude: x,
                },
                Number::Real {
                    negative: b,
                    magnitude: y,
                },
            ) => match (a, b) {
                (false, false) => x.cmp(y),
                (true, true) => y.cmp(x),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
            },
        }
    }
}

impl Number {
    fn new(negative: bool, magnitude: Magnitude) -> Self {
        Number::Real {
            negative: negative && magnitude != Magnitude::Zero,
            magnitude,
        }
    }

    pub(crate) fn of_integer(value: i64) -> Self {
        let whole = value.unsigned_abs();
        let magnitude = match whole {
            0 => Magnitude::Zero,
            INTEGER_LIMIT => Magnitude::Large {
                head: (INTEGER_LIMIT as f64).to_bits(),
                tail: None,
            },
            whole => Magnitude::Integer {
                whole,
                fraction: 0,
                tail: None,
            },
        };
        Number::new(value < 0, magnitude)
    }

    pub(crate) fn of_double(value: f64) -> Self {
        if value.is_nan() {
            return Number::NaN;
        }
        let size = value.abs();
        let magnitude = if size == 0.0 {
            Magnitude::Zero
        } else if size < 1.0 {
            Magnitude::Small {
                head: size.to_bits(),
                tail: None,
            }
        } else if size < INTEGER_LIMIT as f64 {
            let whole = size as u64;
            // Exact: both the difference and the product with a power of two are.
            let fraction = ((size - whole as f64) * (1_u64 << FRACTION_BITS) as f64) as u64;
            Magnitude::Integer {
                whole,
                fraction,
                tail: None,
            }
        } else if size.is_finite() {
            Magnitude::Large {
                head: size.to_bits(),
                tail: None,
            }
        } else {
            Magnitude::Infinite
        };
        Number::new(value < 0.0, magnitude)
    }

    pub(crate) fn of_decimal(value: Decimal) -> Self {
        match value {
            Decimal::NaN => Number::NaN,
            Decimal::Infinity { negative } => Number::new(negative, Magnitude::Infinite),
            Decimal::Finite {
                negative,
                coefficient,
                exponent,
            } => Number::new(negative, decimal_magnitude(coefficient, exponent)),
        }
    }
}

fn decimal_magnitude(coefficient: u128, exponent: i32) -> Magnitude {
    if coefficient == 0 {
        return Magnitude::Zero;
    }
    let digits = digit_count(coefficient) as i32;
    let first_digit = digits - 1 + exponent;
    let tail = |inexact: bool| {
        inexact.then(|| Tail {
            exponent: (first_digit + TAIL_BIAS) as u16,
            coefficient: coefficient * POWERS_OF_TEN[(34 - digits) as usize],
        })
    };
    if first_digit < 0 {
        let (head, inexact) = small_head(coefficient, exponent.unsigned_abs(), first_digit);
        return Magnitude::Small {
            head,
            tail: tail(inexact),
        };
    }
    if exponent >= 0 {
        let whole = match POWERS_OF_TEN.get(exponent as usize) {
            Some(power) if first_digit <= 18 => coefficient * power,
            _ => u128::MAX,
        };
        if whole < u128::from(INTEGER_LIMIT) {
            return Magnitude::Integer {
                whole: whole as u64,
                fraction: 0,
                tail: None,
            };
        }
        if first_digit > 308 {
            return Magnitude::Large {
                head: f64::MAX.to_bits(),
                tail: tail(true),
            };
        }
        let (head, inexact) = large_head(&Wide::from(coefficient).times_power_of_ten(exponent as u32));
        return Magnitude::Large {
            head,
            tail: tail(inexact),
        };
    }
    // At least 1 with digits after the point, so at most 33 of them.
    let unit = POWERS_OF_TEN[exponent.unsigned_abs() as usize];
    let (whole, mut rest) = (coefficient / unit, coefficient % unit);
    if whole >= u128::from(INTEGER_LIMIT) {
        let (head, inexact) = large_head(&Wide::from(whole));
        return Magnitude::Large {
            head,
            tail: tail(inexact || rest != 0),
        };
    }
    let fraction = if rest == 0 {
        0
    } else {
        quotient_bits(&mut rest, unit, FRACTION_BITS)
    };
    Magnitude::Integer {
        whole: whole as u64,
        fraction,
        tail: tail(rest != 0),
    }
}

/// The next `count` binary digits of `rest / unit`, for `rest < unit < 2^127`; leaves the remainder in `rest`.
fn quotient_bits(rest: &mut u128, unit: u128, count: u32) -> u64 {
    let mut bits = 0;
    for _ in 0..count {
        *rest <<= 1;
        bits <<= 1;
        if *rest >= unit {
            *rest -= unit;
            bits |= 1;
        }
    }
    bits
}

/// Bits of the largest double not above an integer of at least 2^63, and whether it is below.
fn large_head(value: &Wide) -> (u64, bool) {
    let length = value.bit_length();
    if length > 1024 {
        return (f64::MAX.to_bits(), true);
    }
    let (top, inexact) = value.top_53_bits();
    (u64::from(length - 1 + 1023) << 52 | top & ((1 << 52) - 1), inexact)
}

/// Bits of the largest double not above `coefficient / 10^places`, which is below 1, and whether it is below.
fn small_head(coefficient: u128, places: u32, first_digit: i32) -> (u64, bool) {
    // The smallest double is 4.9e-324.
    if first_digit < -324 {
        return (0, true);
    }
    if places <= 38 {
        let (mut rest, unit) = (coefficient, POWERS_OF_TEN[places as usize]);
        let mut power = 0_u64;
        while rest < unit {
            rest <<= 1;
            power += 1;
        }
        rest -= unit;
        let mantissa = quotient_bits(&mut rest, unit, 52);
        return ((1023 - power) << 52 | mantissa, rest != 0);
    }
    small_head_wide(coefficient, places)
}

/// As `small_head`, for more places than a `u128` can divide by: binary long division.
fn small_head_wide(coefficient: u128, places: u32) -> (u64, bool) {
    let mut rest = Wide::from(coefficient);
    let unit = Wide::from(1).times_power_of_ten(places);
    let mut power = unit.bit_length() - rest.bit_length();
    rest.shift_left(power);
    if rest.compare(&unit) == Ordering::Less {
        rest.shift_left(1);
        power += 1;
    }
    if power > 1074 {
        return (0, true);
    }
    // Subnormal doubles have fewer digits and no hidden one.
    let digits = if power <= 1022 { 53 } else { 1075 - power };
    let mut mantissa = 0_u64;
    for digit in 0..digits {
        if digit > 0 {
            rest.shift_left(1);
        }
        mantissa = mantissa << 1 | u64::from(rest.subtract_if_not_less(&unit));
    }
    let head = if power <= 1022 {
        u64::from(1023 - power) << 52 | mantissa & ((1 << 52) - 1)
    } else {
        mantissa
    };
    (head, !rest.is_zero())
}
