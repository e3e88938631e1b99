//! Numbers across BSON's four types: promotion, overflow, sums.
//!
//! The result of an operation has the widest type of its operands (int32 < int64 < double < decimal128), except that an
//! int32 result that does not fit becomes an int64. Sums are MongoDB's to the last digit, which depends on the order of
//! what is added.

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

/// A running sum: the state behind `$sum` and `$avg`.
///
/// What is no decimal is added in the order of arrival to an unevaluated sum of two doubles (Boldo, Graillat, Muller:
/// On the robustness of the 2Sum and Fast2Sum algorithms, 2016), which is exact for integers. As in MongoDB the greater
/// of the two is the result for doubles: [1e16, 1.0, -1e16] is 0.
#[derive(Clone, Debug)]
pub struct Sum {
    sum: f64,
    /// What rounding took from `sum`.
    addend: f64,
    /// Without compensation: the result where infinities have made NaN of `sum`.
    plain: f64,
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
            sum: 0.0,
            addend: 0.0,
            plain: 0.0,
            decimal: Decimal::ZERO,
            widest: Widest::Int32,
        }
    }
}

/// The sum of two numbers, and what rounding took from it. Dekker 1971: exact where `|a| >= |b|`.
fn fast_two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// The sum of two numbers, and what rounding took from it. Møller 1965, Knuth: exact for all.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_a = sum - b;
    let of_b = sum - of_a;
    (sum, (a - of_a) + (b - of_b))
}

impl Sum {
    /// Adds a number.
    #[inline]
    pub fn add(&mut self, number: Number) {
        match number {
            Number::Int32(n) => self.add_integer(i64::from(n)),
            Number::Int64(n) => {
                self.add_integer(n);
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

    #[inline]
    fn add_integer(&mut self, n: i64) {
        /// Below it every integer is a double.
        const EXACT_END: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
        let exact = |n: f64| n.abs() < EXACT_END;
        let total = self.sum + n as f64;
        // Integers alone, and small: nothing is lost, and the long way gives the same.
        if self.widest <= Widest::Int64 && self.addend == 0.0 && exact(self.sum) && exact(n as f64) && exact(total) {
            self.sum = total;
            self.plain += n as f64;
            return;
        }
        // Two halves that are doubles, the lower first. An int32 is its lower half.
        let low = n % (1 << 32);
        self.add_double(low as f64);
        if low != n {
            self.add_double((n - low) as f64);
        }
    }

    fn add_double(&mut self, n: f64) {
        self.plain += n;
        let (n, addend) = fast_two_sum(n, self.addend);
        let (sum, lost) = two_sum(self.sum, n);
        self.sum = sum;
        self.addend = addend + lost;
    }

    /// Of [`Sum::to_parts`].
    pub(crate) const PARTS: usize = 6;

    /// The sum as numbers, for [`Sum::from_parts`].
    pub(crate) fn to_parts(&self) -> [u64; Self::PARTS] {
        let decimal = u128::from_le_bytes(Decimal128::from(self.decimal).bytes());
        [
            self.sum.to_bits(),
            self.addend.to_bits(),
            self.plain.to_bits(),
            decimal as u64,
            (decimal >> 64) as u64,
            self.widest as u64,
        ]
    }

    /// The sum of [`Sum::to_parts`]; `None` when they are of none.
    pub(crate) fn from_parts(parts: [u64; Self::PARTS]) -> Option<Self> {
        let decimal = u128::from(parts[3]) | u128::from(parts[4]) << 64;
        let all = [Widest::Int32, Widest::Int64, Widest::Double, Widest::Decimal];
        Some(Self {
            sum: f64::from_bits(parts[0]),
            addend: f64::from_bits(parts[1]),
            plain: f64::from_bits(parts[2]),
            decimal: Decimal128::from_bytes(decimal.to_le_bytes()).into(),
            widest: *all.get(usize::try_from(parts[5]).ok()?)?,
        })
    }

    /// Adds another partial sum.
    pub fn merge(&mut self, other: &Sum) {
        self.add_double(other.double());
        // An infinity leaves NaN as what it lost.
        if other.sum.is_finite() {
            self.add_double(other.addend);
        }
        self.decimal = self.decimal + other.decimal;
        self.widest = self.widest.max(other.widest);
    }

    /// The integers and the doubles together, as a double.
    fn double(&self) -> f64 {
        if self.sum.is_nan() { self.plain } else { self.sum }
    }

    /// The sum of integers alone, where it fits.
    fn integer(&self) -> Option<i64> {
        i64::try_from((self.sum as i128).saturating_add(self.addend as i128)).ok()
    }

    /// With all digits of what was summed as integers and doubles.
    fn total_decimal(&self) -> Decimal {
        match self.sum.is_finite() {
            true => self.decimal + (decimal_of_all_digits(self.sum) + decimal_of_all_digits(self.addend)),
            false => self.decimal + Decimal::from_f64(self.plain),
        }
    }

    /// The sum in the widest type seen; int32 when nothing was added.
    pub fn total(&self) -> Number {
        match self.widest {
            Widest::Decimal => Number::Decimal(self.total_decimal()),
            Widest::Double => Number::Double(self.double()),
            Widest::Int32 | Widest::Int64 => match self.integer() {
                Some(n) => Number::narrow(n, self.widest == Widest::Int32),
                None => Number::Double(self.sum),
            },
        }
    }

    /// The sum divided by `count`: a decimal when one was seen, else a double. `count` is not zero.
    pub fn average(&self, count: i64) -> Number {
        match self.total() {
            Number::Decimal(total) => Number::Decimal(total / Decimal::from(count)),
            total => Number::Double(total.to_f64() / count as f64),
        }
    }
}
