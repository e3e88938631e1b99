//! Series of preferred numbers, to whose members `$bucketAuto` rounds its boundaries.
//!
//! A series is the numbers of one decade; all others are these times a power of ten. The R series are those of ISO 3,
//! the E series those of IEC 60063: from E48 on they are the rounded powers of a root of ten, before that they are as
//! tradition has them. Two are as MongoDB has them: its R40 lacks 335, and its R80 is what the standard's has between
//! the members of R40.

use keys::Decimal;
use wire::ErrorCode;

use super::failure;
use crate::error::QueryError;
use crate::value::Value;
use crate::value::number::Number;

/// A series.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Granularity {
    /// Powers of two.
    PowersOfTwo,
    /// Integers of one decade in rising order.
    Preferred(Vec<u32>),
}

const R5: &[u32] = &[10, 16, 25, 40, 63];
const R10: &[u32] = &[100, 125, 160, 200, 250, 315, 400, 500, 630, 800];
const R20: &[u32] = &[
    100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900,
];
const R40: &[u32] = &[
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280, 300, 315, 355, 375,
    400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850, 900, 950,
];
const R80: &[u32] = &[
    103, 109, 115, 122, 128, 136, 145, 155, 165, 175, 185, 195, 206, 218, 230, 243, 258, 272, 290, 307, 325, 345, 365,
    387, 412, 437, 462, 487, 515, 545, 575, 615, 650, 690, 730, 775, 825, 875, 925, 975,
];
const ONE_TWO_FIVE: &[u32] = &[10, 20, 50];
const E6: &[u32] = &[10, 15, 22, 33, 47, 68];
const E12: &[u32] = &[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82];
const E24: &[u32] = &[
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];

/// E48, E96, E192.
fn geometric(members: u32) -> Vec<u32> {
    let member = |k: u32| match (10_f64.powf(f64::from(k) / f64::from(members)) * 100.0).round() as u32 {
        // The standard says so.
        919 => 920,
        other => other,
    };
    (0..members).map(member).collect()
}

impl Granularity {
    /// The series of a name.
    pub(super) fn parse(name: &str) -> Result<Self, QueryError> {
        let series = match name {
            "POWERSOF2" => return Ok(Self::PowersOfTwo),
            "R5" => R5.to_vec(),
            "R10" => R10.to_vec(),
            "R20" => R20.to_vec(),
            "R40" => R40.to_vec(),
            "R80" => R80.to_vec(),
            "1-2-5" => ONE_TWO_FIVE.to_vec(),
            "E6" => E6.to_vec(),
            "E12" => E12.to_vec(),
            "E24" => E24.to_vec(),
            "E48" => geometric(48),
            "E96" => geometric(96),
            "E192" => geometric(192),
            other => return failure(40257, format!("Unknown rounding granularity '{other}'")),
        };
        Ok(Self::Preferred(series))
    }

    /// Checks that a value can be rounded.
    pub(super) fn check(value: &Value<'_>) -> Result<Number, QueryError> {
        let Some(number) = Number::of(value) else {
            return failure(
                40258,
                format!(
                    "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a value with type: {}",
                    value.type_name()
                ),
            );
        };
        if number.is_nan() {
            return failure(
                40259,
                "$bucketAuto can specify a 'granularity' with numeric boundaries only, but found a NaN",
            );
        }
        if number.to_f64() < 0.0 {
            return failure(
                40260,
                format!(
                    "$bucketAuto can specify a 'granularity' with non-negative numbers only, but found a negative number: {}",
                    value.render()
                ),
            );
        }
        Ok(number)
    }

    /// The least member that is greater; zero stays zero.
    pub(super) fn round_up(&self, number: Number) -> Result<Value<'static>, QueryError> {
        self.round(number, Direction::Up)
    }

    /// The greatest member that is less; zero stays zero.
    pub(super) fn round_down(&self, number: Number) -> Result<Value<'static>, QueryError> {
        self.round(number, Direction::Down)
    }

    fn round(&self, number: Number, direction: Direction) -> Result<Value<'static>, QueryError> {
        if number.is_zero() {
            return Ok(number.value());
        }
        let x = number.to_f64();
        if !x.is_finite() || x == 0.0 {
            // An infinity has no neighbours, nor has a decimal that no double is near to.
            return failure(
                ErrorCode::BadValue.0,
                "$bucketAuto cannot round this number to the granularity",
            );
        }
        Ok(match self {
            Self::PowersOfTwo => power_of_two(x, direction, matches!(number, Number::Decimal(_))),
            Self::Preferred(series) => match (number, direction) {
                (Number::Decimal(_), _) => preferred_decimal(series, number, direction),
                (_, Direction::Up) => Value::Double(preferred_above(series, x)),
                (_, Direction::Down) => Value::Double(preferred_below(series, x)),
            },
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

fn power_of_two(x: f64, direction: Direction, is_decimal: bool) -> Value<'static> {
    let mut exponent = x.log2().floor() as i32;
    // The logarithm may be off by one at powers.
    while 2_f64.powi(exponent) > x {
        exponent -= 1;
    }
    while 2_f64.powi(exponent + 1) <= x {
        exponent += 1;
    }
    let power = match direction {
        Direction::Up => exponent + 1,
        Direction::Down if 2_f64.powi(exponent) == x => exponent - 1,
        Direction::Down => exponent,
    };
    match power {
        _ if is_decimal => Number::Decimal(Decimal::from_f64(2_f64.powi(power))).value(),
        0..=30 => Value::Int32(1 << power),
        31..=62 => Value::Int64(1 << power),
        _ => Value::Double(2_f64.powi(power)),
    }
}

/// The least member that is greater. Powers of ten are multiplied up, so that members have MongoDB's last digits; those
/// beyond all doubles are zero.
fn preferred_above(series: &[u32], x: f64) -> f64 {
    let (first, last) = ends(series);
    let mut scale = 1.0;
    while x >= last * scale {
        scale *= 10.0;
    }
    while x < first * scale {
        let least = first * scale;
        scale /= 10.0;
        if x >= last * scale {
            return least;
        }
    }
    let mut members = series.iter().map(|member| f64::from(*member) * scale);
    members.find(|member| x < *member).unwrap_or(f64::INFINITY)
}

/// The greatest member that is less, zero where there is none. See [`preferred_above`].
fn preferred_below(series: &[u32], x: f64) -> f64 {
    let (first, last) = ends(series);
    let mut scale = 1.0;
    while x <= first * scale {
        scale /= 10.0;
    }
    if scale == 0.0 {
        return 0.0;
    }
    while x > last * scale {
        let greatest = last * scale;
        scale *= 10.0;
        if x <= first * scale {
            return greatest;
        }
    }
    let members = series.iter().rev().map(|member| f64::from(*member) * scale);
    members.into_iter().find(|member| *member < x).unwrap_or(0.0)
}

fn ends(series: &[u32]) -> (f64, f64) {
    let end = |member: Option<&u32>| member.map_or(0.0, |member| f64::from(*member));
    (end(series.first()), end(series.last()))
}

/// The member of the series that lies next to a decimal in that direction.
fn preferred_decimal(series: &[u32], number: Number, direction: Direction) -> Value<'static> {
    let comparer = crate::value::Comparer::default();
    let own = number.value();
    let digits = if series[0] >= 100 { 2 } else { 1 };
    let member = |index: i64| {
        let len = series.len() as i64;
        let (decade, place) = (index.div_euclid(len) as i32, index.rem_euclid(len) as usize);
        let exponent = decade - digits;
        let base = Decimal::from(i64::from(series[place]));
        let member = match exponent {
            ..0 => base / decimal_power(-exponent),
            _ => base * decimal_power(exponent),
        };
        Number::Decimal(member).value()
    };
    let decade = number.to_f64().log10().floor() as i64;
    let start = (decade - 1) * series.len() as i64;
    let end = start + 3 * series.len() as i64;
    let mut found = member(start);
    for index in start..end {
        let next = member(index);
        let order = comparer.compare(&next, &own);
        match direction {
            Direction::Up if order.is_gt() => return next,
            Direction::Down if order.is_ge() => return found,
            _ => found = next,
        }
    }
    found
}

fn decimal_power(exponent: i32) -> Decimal {
    let ten = Decimal::from(10);
    (0..exponent).fold(Decimal::from(1), |power, _| power * ten)
}
