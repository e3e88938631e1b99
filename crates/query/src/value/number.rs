//! Numbers across BSON's four types: promotion, overflow, sums.
//!
//! The result of an operation has the widest type of its operands (int32 < int64 < double < decimal128), except that an
//! int32 result that does not fit becomes an int64. Sums are kept exact for integers and compensated for doubles, so
//! that partial sums can be merged in any grouping.

use bson::Decimal128;
use keys::Decimal;
use keys::decimal::DIGITS_MAX;

use super::Value;

/// Whether a decimal is a zero of either sign.
pub fn decimal_is_zero(value: Decimal128) -> bool {
    Decimal::from(value).is_zero()
}

/// A BSON number taken apart.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// int32.
    Int32(i32),
    /// int64.
    Int64(i64),
    /// double.
    Double(f64),
    /// decimal128.
    Decimal(Decimal),
}

/// The integer of an int32 or int64.
pub fn as_integer(number: Number) -> Option<i64> {
    match number {
        Number::Int32(n) => Some(i64::from(n)),
        Number::Int64(n) => Some(n),
        _ => None,
    }
}

impl Number {
    /// The number of a value, when it is one.
    #[inline]
    pub fn of(value: &Value<'_>) -> Option<Number> {
        Some(match value {
            Value::Int32(n) => Number::Int32(*n),
            Value::Int64(n) => Number::Int64(*n),
            Value::Double(n) => Number::Double(*n),
            Value::Decimal(n) => Number::Decimal(Decimal::from(*n)),
            _ => return None,
        })
    }

    /// The value of this number.
    pub fn value(self) -> Value<'static> {
        match self {
            Number::Int32(n) => Value::Int32(n),
            Number::Int64(n) => Value::Int64(n),
            Number::Double(n) => Value::Double(n),
            Number::Decimal(n) => Value::Decimal(n.into()),
        }
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Int32(n) => f64::from(n),
            Number::Int64(n) => n as f64,
            Number::Double(n) => n,
            Number::Decimal(n) => n.to_f64(),
        }
    }

    /// The number as a decimal; doubles keep 15 significant digits.
    pub fn to_decimal(self) -> Decimal {
        match self {
            Number::Int32(n) => Decimal::from(i64::from(n)),
            Number::Int64(n) => Decimal::from(n),
            Number::Double(n) => Decimal::from_f64(n),
            Number::Decimal(n) => n,
        }
    }

    /// The number as an int64 when it is integral and fits.
    pub fn to_exact_i64(self) -> Option<i64> {
        match self {
            Number::Int32(n) => Some(i64::from(n)),
            Number::Int64(n) => Some(n),
            Number::Double(n) => exact_i64_of_f64(n),
            Number::Decimal(n) if n.is_integer() => n.to_i64(keys::decimal::Rounding::TowardZero),
            Number::Decimal(_) => None,
        }
    }

    /// The number as MongoDB takes it where an integer is meant: doubles cut off, decimals rounded half to even, what
    /// lies beyond as the outermost int64, NaN as 0.
    pub fn to_saturated_i64(self) -> i64 {
        match self {
            Number::Int32(n) => i64::from(n),
            Number::Int64(n) => n,
            Number::Double(n) => n as i64,
            Number::Decimal(n) if n.is_nan() => 0,
            Number::Decimal(n) => {
                let outermost = if n.is_negative() { i64::MIN } else { i64::MAX };
                n.to_i64(keys::decimal::Rounding::HalfEven).unwrap_or(outermost)
            }
        }
    }

    /// The number as an int32 when it is integral and fits.
    pub fn to_exact_i32(self) -> Option<i32> {
        self.to_exact_i64().and_then(|n| i32::try_from(n).ok())
    }

    /// Whether this is NaN.
    pub fn is_nan(self) -> bool {
        match self {
            Number::Double(n) => n.is_nan(),
            Number::Decimal(n) => n.is_nan(),
            _ => false,
        }
    }

    /// Whether this is zero.
    pub fn is_zero(self) -> bool {
        match self {
            Number::Int32(n) => n == 0,
            Number::Int64(n) => n == 0,
            Number::Double(n) => n == 0.0,
            Number::Decimal(n) => n.is_zero(),
        }
    }

    /// An int64 as an int32 where both operands were int32 and it fits.
    fn narrow(result: i64, narrow: bool) -> Number {
        match i32::try_from(result) {
            Ok(small) if narrow => Number::Int32(small),
            _ => Number::Int64(result),
        }
    }

    fn combine(
        self,
        other: Number,
        integers: fn(i64, i64) -> Option<i64>,
        doubles: fn(f64, f64) -> f64,
        decimals: fn(Decimal, Decimal) -> Decimal,
    ) -> Number {
        match (self, other) {
            (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
                Number::Decimal(decimals(self.to_decimal(), other.to_decimal()))
            }
            (Number::Double(_), _) | (_, Number::Double(_)) => Number::Double(doubles(self.to_f64(), other.to_f64())),
            _ => {
                let narrow = matches!((self, other), (Number::Int32(_), Number::Int32(_)));
                let (a, b) = (as_integer(self).unwrap_or(0), as_integer(other).unwrap_or(0));
                match integers(a, b) {
                    Some(result) => Number::narrow(result, narrow),
                    None => Number::Double(doubles(a as f64, b as f64)),
                }
            }
        }
    }

    /// The sum; an int64 that overflows becomes a double.
    pub fn plus(self, other: Number) -> Number {
        self.combine(other, i64::checked_add, |a, b| a + b, |a, b| a + b)
    }

    /// The difference; an int64 that overflows becomes a double.
    pub fn minus(self, other: Number) -> Number {
        self.combine(other, i64::checked_sub, |a, b| a - b, |a, b| a - b)
    }

    /// The product; an int64 that overflows becomes a double.
    pub fn times(self, other: Number) -> Number {
        self.combine(other, i64::checked_mul, |a, b| a * b, |a, b| a * b)
    }
}

/// The int64 equal to a double, if there is one.
pub fn exact_i64_of_f64(n: f64) -> Option<i64> {
    // 2^63 itself does not fit; every integral double below it does.
    (n.trunc() == n && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&n)).then_some(n as i64)
}

/// The integer, to 34 digits.
fn decimal_of_i128(n: i128) -> Decimal {
    const HALF: i64 = 1_000_000_000_000_000_000;
    match (i64::try_from(n), i64::try_from(n / i128::from(HALF))) {
        (Ok(n), _) => Decimal::from(n),
        (Err(_), Ok(high)) => Decimal::from(high) * Decimal::from(HALF) + Decimal::from((n % i128::from(HALF)) as i64),
        (Err(_), Err(_)) => Decimal::from_f64(n as f64),
    }
}

/// The double's own value with 34 significant digits, where [`Number::to_decimal`] gives 15. Where those are all it
/// has, without zeros behind the point: 2.0 is 2.
pub fn decimal_of_all_digits(n: f64) -> Decimal {
    if let Some(exact) = exact_decimal(n) {
        return exact;
    }
    let text = format!("{n:.33e}");
    text.parse::<Decimal128>()
        .map_or_else(|_| Decimal::from_f64(n), Decimal::from)
}

/// The decimal that is equal to a double, of an integer with the exponent 0, if 34 digits are enough.
fn exact_decimal(n: f64) -> Option<Decimal> {
    const MANTISSA_BITS: i32 = 52;
    const COEFFICIENT_END: u128 = 10_u128.pow(DIGITS_MAX);
    let bits = n.abs().to_bits();
    let biased = (bits >> MANTISSA_BITS) as i32;
    if n == 0.0 {
        return Some(Decimal::from_f64(n));
    }
    // Subnormal numbers have more digits, infinities and NaN none.
    if biased == 0 || !n.is_finite() {
        return None;
    }
    let mantissa = bits & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS;
    let zeros = mantissa.trailing_zeros();
    let odd = u128::from(mantissa >> zeros);
    let power_of_two = biased - 1023 - MANTISSA_BITS + zeros as i32;
    let (coefficient, exponent) = match u32::try_from(power_of_two) {
        Ok(power) => (odd.checked_mul(1_u128.checked_shl(power)?)?, 0),
        // odd / 2^p = odd * 5^p / 10^p
        Err(_) => {
            let fives = 5_u128.checked_pow(power_of_two.unsigned_abs())?;
            (odd.checked_mul(fives)?, power_of_two)
        }
    };
    (coefficient < COEFFICIENT_END).then_some(Decimal::Finite {
        negative: n < 0.0,
        coefficient,
        exponent,
    })
}

/// A running sum: the state behind `$sum` and `$avg`. Partial sums merge.
#[derive(Clone, Debug)]
pub struct Sum {
    integers: i128,
    /// Double part: the sum and its compensation (Neumaier 1974).
    double: f64,
    compensation: f64,
    decimal: Decimal,
    widest: Widest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Widest {
    Int32,
    Int64,
    Double,
    Decimal,
}

impl Default for Sum {
    fn default() -> Self {
        Self {
            integers: 0,
            double: 0.0,
            compensation: 0.0,
            decimal: Decimal::ZERO,
            widest: Widest::Int32,
        }
    }
}

impl Sum {
    /// Adds a number.
    #[inline]
    pub fn add(&mut self, number: Number) {
        match number {
            Number::Int32(n) => self.integers += i128::from(n),
            Number::Int64(n) => {
                self.integers += i128::from(n);
                self.widest = self.widest.max(Widest::Int64);
            }
            Number::Double(n) => {
                self.add_double(n);
                self.widest = self.widest.max(Widest::Double);
            }
            Number::Decimal(n) => {
                self.decimal = self.decimal + n;
                self.widest = Widest::Decimal;
            }
        }
    }

    fn add_double(&mut self, n: f64) {
        let total = self.double + n;
        // The part that rounding lost, from the operand that was larger.
        let lost = if self.double.abs() >= n.abs() {
            (self.double - total) + n
        } else {
            (n - total) + self.double
        };
        if lost.is_finite() {
            self.compensation += lost;
        }
        self.double = total;
    }

    /// Of [`Sum::to_parts`].
    pub(crate) const PARTS: usize = 7;

    /// The sum as numbers, for [`Sum::from_parts`].
    pub(crate) fn to_parts(&self) -> [u64; Self::PARTS] {
        let integers = self.integers as u128;
        let decimal = u128::from_le_bytes(Decimal128::from(self.decimal).bytes());
        [
            integers as u64,
            (integers >> 64) as u64,
            self.double.to_bits(),
            self.compensation.to_bits(),
            decimal as u64,
            (decimal >> 64) as u64,
            self.widest as u64,
        ]
    }

    /// The sum of [`Sum::to_parts`]; `None` when they are of none.
    pub(crate) fn from_parts(parts: [u64; Self::PARTS]) -> Option<Self> {
        let wide = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
        let all = [Widest::Int32, Widest::Int64, Widest::Double, Widest::Decimal];
        Some(Self {
            integers: wide(parts[0], parts[1]) as i128,
            double: f64::from_bits(parts[2]),
            compensation: f64::from_bits(parts[3]),
            decimal: Decimal128::from_bytes(wide(parts[4], parts[5]).to_le_bytes()).into(),
            widest: *all.get(usize::try_from(parts[6]).ok()?)?,
        })
    }

    /// Adds another partial sum.
    pub fn merge(&mut self, other: &Sum) {
        self.integers += other.integers;
        self.add_double(other.double);
        self.add_double(other.compensation);
        self.decimal = self.decimal + other.decimal;
        self.widest = self.widest.max(other.widest);
    }

    /// The integers and the doubles together, as a double.
    fn non_decimal(&self) -> f64 {
        let mut total = self.clone();
        // Two exact halves: the high bits, then what is left, which fits a double.
        let high = self.integers as f64;
        total.add_double(high);
        if let Some(rest) = self.integers.checked_sub(high as i128) {
            total.add_double(rest as f64);
        }
        total.double + total.compensation
    }

    /// With all digits of what was summed as integers and doubles.
    fn total_decimal(&self) -> Decimal {
        let mut total = self.decimal + decimal_of_i128(self.integers);
        for part in [self.double, self.compensation] {
            if part != 0.0 {
                total = total + decimal_of_all_digits(part);
            }
        }
        total
    }

    /// The sum in the widest type seen; int32 when nothing was added.
    pub fn total(&self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.total_decimal()),
            Widest::Double => Number::Double(self.non_decimal()),
            Widest::Int32 | Widest::Int64 => match i64::try_from(self.integers) {
                Ok(n) => Number::narrow(n, self.widest == Widest::Int32),
                Err(_) => Number::Double(self.integers as f64),
            },
        }
    }

    /// The sum divided by `count`: a decimal when one was seen, else a double. `count` is not zero.
    pub fn average(&self, count: i64) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.total_decimal() / Decimal::from(count)),
            _ => Number::Double(self.non_decimal() / count as f64),
        }
    }

    /// Whether a decimal was added.
    pub fn has_decimal(&self) -> bool {
        self.widest == Widest::Decimal
    }
}
