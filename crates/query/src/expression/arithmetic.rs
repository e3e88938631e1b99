//! Numbers: `$add` to `$trunc`, trigonometry, bits.
//!
//! Null or missing operands give null; anything else that is no number is an error. Promotion is [`Number`]'s; of
//! decimals all functions are computed to 34 digits (`value::decimal_functions`).

use keys::Decimal;
use keys::decimal::{DIGITS_MAX, Rounding};
use wire::ErrorCode;

use super::failure::failure;
use super::operator::{Apply, Arity, Computed, Operator};
use crate::error::QueryError;
use crate::value::Value;
use crate::value::decimal_functions as decimals;
use crate::value::number::{Number, as_integer, decimal_of_all_digits, exact_i64_of_f64};

const fn unary(name: &'static str, function: for<'a> fn(&'static str, Value<'a>) -> Computed<'a>) -> Operator {
    Operator {
        name,
        arity: Arity::Exactly(1),
        apply: Apply::Unary(function),
    }
}

const fn binary(
    name: &'static str,
    function: for<'a> fn(&'static str, Value<'a>, Value<'a>) -> Computed<'a>,
) -> Operator {
    Operator {
        name,
        arity: Arity::Exactly(2),
        apply: Apply::Binary(function),
    }
}

const fn many(
    name: &'static str,
    arity: Arity,
    function: for<'a> fn(&'static str, Vec<Value<'a>>) -> Computed<'a>,
) -> Operator {
    Operator {
        name,
        arity,
        apply: Apply::Many(function),
    }
}

/// The operators of this module.
pub(super) const OPERATORS: &[Operator] = &[
    many("$add", Arity::Any, add),
    binary("$subtract", subtract),
    many("$multiply", Arity::Any, multiply),
    binary("$divide", divide),
    binary("$mod", modulo),
    unary("$abs", abs),
    unary("$ceil", |name, value| whole(name, value, f64::ceil, Rounding::Ceiling)),
    unary("$floor", |name, value| whole(name, value, f64::floor, Rounding::Floor)),
    many("$round", Arity::Between(1, 2), |name, values| {
        to_place(name, values, Rounding::HalfEven)
    }),
    many("$trunc", Arity::Between(1, 2), |name, values| {
        to_place(name, values, Rounding::TowardZero)
    }),
    unary("$sqrt", sqrt),
    binary("$pow", pow),
    unary("$exp", |name, value| function(name, value, f64::exp, decimals::exp)),
    unary("$ln", |name, value| {
        logarithm(name, value, 28766, f64::ln, decimals::ln)
    }),
    unary("$log10", |name, value| {
        logarithm(name, value, 28761, f64::log10, decimals::log10)
    }),
    binary("$log", log),
    unary("$sin", |name, value| finite_angle(name, value, f64::sin, decimals::sin)),
    unary("$cos", |name, value| finite_angle(name, value, f64::cos, decimals::cos)),
    unary("$tan", |name, value| finite_angle(name, value, f64::tan, decimals::tan)),
    unary("$asin", |name, value| {
        bounded(name, value, -1.0, 1.0, f64::asin, decimals::asin)
    }),
    unary("$acos", |name, value| {
        bounded(name, value, -1.0, 1.0, f64::acos, decimals::acos)
    }),
    unary("$atan", |name, value| function(name, value, f64::atan, decimals::atan)),
    binary("$atan2", atan2),
    unary("$sinh", |name, value| function(name, value, f64::sinh, decimals::sinh)),
    unary("$cosh", |name, value| function(name, value, f64::cosh, decimals::cosh)),
    unary("$tanh", |name, value| function(name, value, f64::tanh, decimals::tanh)),
    unary("$asinh", |name, value| {
        function(name, value, f64::asinh, decimals::asinh)
    }),
    unary("$acosh", |name, value| {
        bounded(name, value, 1.0, f64::INFINITY, f64::acosh, decimals::acosh)
    }),
    unary("$atanh", |name, value| {
        bounded(name, value, -1.0, 1.0, f64::atanh, decimals::atanh)
    }),
    unary("$degreesToRadians", |name, value| {
        function(name, value, f64::to_radians, decimals::to_radians)
    }),
    unary("$radiansToDegrees", |name, value| {
        function(name, value, f64::to_degrees, decimals::to_degrees)
    }),
    many("$bitAnd", Arity::Any, |name, values| {
        bits(name, values, -1, |a, b| a & b)
    }),
    many("$bitOr", Arity::Any, |name, values| bits(name, values, 0, |a, b| a | b)),
    many("$bitXor", Arity::Any, |name, values| {
        bits(name, values, 0, |a, b| a ^ b)
    }),
    unary("$bitNot", bit_not),
];

fn mismatch<T>(message: String) -> Result<T, QueryError> {
    failure(ErrorCode::TypeMismatch.0, message)
}

fn add<'a>(_: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    // From left to right, unlike `$sum`: no compensation, and what has become a double stays one.
    let mut total = Number::Int32(0);
    let mut date = false;
    for operand in &operands {
        let number = match operand {
            Value::Date(_) if date => return failure(16612, "only one date allowed in an $add expression"),
            Value::Date(ms) => {
                date = true;
                total = whole_ms(total)?;
                Number::Int64(*ms)
            }
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => match Number::of(other) {
                Some(number) => number,
                None => {
                    return mismatch(format!(
                        "$add only supports numeric or date types, not {}",
                        other.type_name()
                    ));
                }
            },
        };
        let number = if date { whole_ms(number)? } else { number };
        // What was summed as doubles keeps its digits beside a decimal; a double that comes later is rounded to 15.
        if let (Number::Double(doubles), Number::Decimal(_)) = (total, number) {
            total = Number::Decimal(decimal_of_all_digits(doubles));
        }
        total = total.plus(number);
    }
    if date { date_of(total) } else { Ok(total.value()) }
}

/// What is added to a date: whole milliseconds, each operand rounded for itself.
fn whole_ms(ms: Number) -> Result<Number, QueryError> {
    let ms = match ms {
        Number::Int32(_) | Number::Int64(_) => as_integer(ms),
        Number::Double(ms) => exact_i64_of_f64(ms.round()),
        Number::Decimal(ms) => ms.to_i64(Rounding::HalfEven),
    };
    match ms {
        Some(ms) => Ok(Number::Int64(ms)),
        None => failure(ErrorCode::Overflow.0, "date overflow"),
    }
}

/// A date of a sum of whole milliseconds, which is an int64 where it did not overflow.
fn date_of<'a>(ms: Number) -> Computed<'a> {
    match ms {
        Number::Int64(ms) => Ok(Value::Date(ms)),
        _ => failure(ErrorCode::Overflow.0, "date overflow"),
    }
}

fn subtract<'a>(_: &'static str, a: Value<'a>, b: Value<'a>) -> Computed<'a> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    match (&a, &b) {
        (Value::Date(a), Value::Date(b)) => match a.checked_sub(*b) {
            Some(difference) => Ok(Value::Int64(difference)),
            None => failure(ErrorCode::Overflow.0, "date overflow"),
        },
        (Value::Date(date), other) => match Number::of(other) {
            Some(number) => date_of(Number::Int64(*date).minus(whole_ms(number)?)),
            None => mismatch(format!("can't $subtract {} from Date", other.type_name())),
        },
        _ => match (Number::of(&a), Number::of(&b)) {
            (Some(a), Some(b)) => Ok(a.minus(b).value()),
            _ => mismatch(format!("can't $subtract {} from {}", b.type_name(), a.type_name())),
        },
    }
}

fn multiply<'a>(_: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut product = Number::Int32(1);
    for operand in &operands {
        match Number::of(operand) {
            Some(number) => product = product.times(number),
            None if operand.is_nullish() => return Ok(Value::Null),
            None => {
                return mismatch(format!(
                    "$multiply only supports numeric types, not {}",
                    operand.type_name()
                ));
            }
        }
    }
    Ok(product.value())
}

fn divide<'a>(_: &'static str, a: Value<'a>, b: Value<'a>) -> Computed<'a> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    let (Some(dividend), Some(divisor)) = (Number::of(&a), Number::of(&b)) else {
        return mismatch(format!(
            "$divide only supports numeric types, not {} and {}",
            a.type_name(),
            b.type_name()
        ));
    };
    if divisor.is_zero() {
        return failure(ErrorCode::BadValue.0, "can't $divide by zero");
    }
    Ok(match (dividend, divisor) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(dividend.to_decimal() / divisor.to_decimal()).value()
        }
        _ => Value::Double(dividend.to_f64() / divisor.to_f64()),
    })
}

fn modulo<'a>(_: &'static str, a: Value<'a>, b: Value<'a>) -> Computed<'a> {
    if a.is_nullish() || b.is_nullish() {
        return Ok(Value::Null);
    }
    let (Some(dividend), Some(divisor)) = (Number::of(&a), Number::of(&b)) else {
        return failure(
            16611,
            format!(
                "$mod only supports numeric types, not {} and {}",
                a.type_name(),
                b.type_name()
            ),
        );
    };
    if divisor.is_zero() {
        let is_decimal = matches!(dividend, Number::Decimal(_)) || matches!(divisor, Number::Decimal(_));
        return failure(if is_decimal { 5733415 } else { 16610 }, "can't $mod by zero");
    }
    Ok(match (dividend, divisor) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(dividend.to_decimal() % divisor.to_decimal()).value()
        }
        (Number::Int32(a), Number::Int32(b)) => Value::Int32(a.wrapping_rem(b)),
        _ => match (as_integer(dividend), as_integer(divisor)) {
            (Some(a), Some(b)) => Value::Int64(a.wrapping_rem(b)),
            _ => Value::Double(dividend.to_f64() % divisor.to_f64()),
        },
    })
}

/// The number of a unary operator's operand; `None` for null.
fn numeric(name: &str, value: &Value<'_>) -> Result<Option<Number>, QueryError> {
    match Number::of(value) {
        Some(number) => Ok(Some(number)),
        None if value.is_nullish() => Ok(None),
        None => failure(
            28765,
            format!("{name} only supports numeric types, not {}", value.type_name()),
        ),
    }
}

fn abs<'a>(name: &'static str, value: Value<'a>) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    Ok(match number {
        Number::Int32(n) => match n.checked_abs() {
            Some(n) => Value::Int32(n),
            None => Value::Int64(i64::from(n).abs()),
        },
        Number::Int64(n) => match n.checked_abs() {
            Some(n) => Value::Int64(n),
            None => return failure(28680, "can't take $abs of long long min"),
        },
        Number::Double(n) => Value::Double(n.abs()),
        Number::Decimal(n) => Number::Decimal(n.abs()).value(),
    })
}

fn whole<'a>(name: &str, value: Value<'a>, double: fn(f64) -> f64, rounding: Rounding) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    Ok(match number {
        Number::Double(n) => Value::Double(double(n)),
        Number::Decimal(n) => Number::Decimal(n.to_integral(rounding)).value(),
        integer => integer.value(),
    })
}

/// `$round` and `$trunc`, with an optional place from -20 to 100.
fn to_place<'a>(name: &'static str, operands: Vec<Value<'a>>, rounding: Rounding) -> Computed<'a> {
    let Some(value) = operands.first().filter(|value| !value.is_nullish()) else {
        return Ok(Value::Null);
    };
    let Some(number) = Number::of(value) else {
        return failure(
            51081,
            format!("{name} only supports numeric types, not {}", value.type_name()),
        );
    };
    let place = match operands.get(1) {
        None => 0,
        Some(place) if place.is_nullish() => return Ok(Value::Null),
        Some(place) => place_of(name, place)?,
    };
    Ok(match number {
        Number::Double(n) => Value::Double(round_double(n, place, rounding)),
        Number::Decimal(n) => Number::Decimal(padded(n.round(place, rounding), place)).value(),
        integer if place >= 0 => integer.value(),
        integer => {
            let n = as_integer(integer).unwrap_or(0);
            let rounded = round_integer(n, place.unsigned_abs(), rounding);
            match (integer, i64::try_from(rounded)) {
                (Number::Int32(_), Ok(n)) => i32::try_from(n).map_or(Value::Int64(n), Value::Int32),
                (_, Ok(n)) => Value::Int64(n),
                (_, Err(_)) => {
                    return failure(
                        51080,
                        format!(
                            "invalid conversion from Decimal128 result in {name} resulting from arguments: [{n}, {place}]"
                        ),
                    );
                }
            }
        }
    })
}

/// The error of a double that no int64 is near to.
pub(crate) fn out_of_long<T>(double: f64) -> Result<T, QueryError> {
    failure(31109, format!("Can't coerce out of range value {double} to long"))
}

/// The place that `$round` and `$trunc` are told.
fn place_of(name: &str, place: &Value<'_>) -> Result<i32, QueryError> {
    let Some(number) = Number::of(place) else {
        return failure(
            16004,
            format!("can't convert from BSON type {} to long", place.type_name()),
        );
    };
    match (number, number.to_exact_i64()) {
        (_, Some(place)) if (-20..=100).contains(&place) => Ok(place as i32),
        (_, Some(place)) if i32::try_from(place).is_ok() => failure(
            51083,
            format!("cannot apply {name} with precision value {place} value must be in [-20, 100]"),
        ),
        (Number::Double(double), None) if exact_i64_of_f64(double.trunc()).is_none() => out_of_long(double),
        _ => failure(51082, format!("precision argument to {name} must be an integral value")),
    }
}

/// With all decimal places down to `place`, as far as there is room for them.
fn padded(number: Decimal, place: i32) -> Decimal {
    let Decimal::Finite {
        negative,
        coefficient,
        exponent,
    } = number
    else {
        return number;
    };
    let room = DIGITS_MAX - coefficient.checked_ilog10().map_or(1, |log| log + 1).min(DIGITS_MAX);
    let zeros = u32::try_from(exponent + place).unwrap_or(0).min(room);
    Decimal::Finite {
        negative,
        coefficient: coefficient * 10_u128.pow(zeros),
        exponent: exponent - zeros as i32,
    }
}

fn round_integer(n: i64, digits: u32, rounding: Rounding) -> i128 {
    let n = i128::from(n);
    let unit = 10_i128.pow(digits.min(20));
    let (quotient, rest) = (n / unit, n % unit);
    let up = match rounding {
        Rounding::HalfEven => {
            let doubled = rest.abs() * 2;
            doubled > unit || (doubled == unit && quotient % 2 != 0)
        }
        _ => false,
    };
    (quotient + if up { n.signum() } else { 0 }) * unit
}

/// Rounds at a decimal place by the double's exact decimal value, not by multiplying.
fn round_double(n: f64, place: i32, rounding: Rounding) -> f64 {
    if !n.is_finite() || (place >= 0 && n == n.trunc()) {
        return n;
    }
    if place == 0 {
        return if rounding == Rounding::HalfEven {
            n.round_ties_even()
        } else {
            n.trunc()
        };
    }
    let rounded = decimal_of_all_digits(n).round(place, rounding).to_f64();
    if rounded == 0.0 { rounded.copysign(n) } else { rounded }
}

/// Also for decimals that are too small for a double.
fn is_below_zero(number: Number) -> bool {
    match number {
        Number::Decimal(number) => number.is_negative() && !number.is_zero() && !number.is_nan(),
        number => number.to_f64() < 0.0,
    }
}

fn sqrt<'a>(name: &'static str, value: Value<'a>) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    if is_below_zero(number) {
        return failure(28714, "$sqrt's argument must be greater than or equal to 0");
    }
    Ok(match number {
        Number::Decimal(n) => Number::Decimal(decimals::sqrt(n)).value(),
        other => Value::Double(other.to_f64().sqrt()),
    })
}

fn pow<'a>(name: &'static str, base: Value<'a>, exponent: Value<'a>) -> Computed<'a> {
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(b) = Number::of(&base) else {
        return failure(
            28762,
            format!("{name}'s base must be numeric, not {}", base.type_name()),
        );
    };
    let Some(e) = Number::of(&exponent) else {
        return failure(
            28763,
            format!("{name}'s exponent must be numeric, not {}", exponent.type_name()),
        );
    };
    if b.is_zero() && is_below_zero(e) {
        return failure(28764, format!("{name} cannot take a base of 0 and a negative exponent"));
    }
    match (b, e) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Ok(Number::Decimal(decimals::pow(b.to_decimal(), e.to_decimal())).value())
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => Ok(Value::Double(b.to_f64().powf(e.to_f64()))),
        _ => {
            let narrow = matches!((b, e), (Number::Int32(_), Number::Int32(_)));
            let (base, exponent) = (as_integer(b).unwrap_or(0), as_integer(e).unwrap_or(0));
            Ok(match integer_pow(base, exponent) {
                Some(n) => match i32::try_from(n) {
                    Ok(n) if narrow => Value::Int32(n),
                    _ => Value::Int64(n),
                },
                None => Value::Double((base as f64).powf(exponent as f64)),
            })
        }
    }
}

/// The integer power when it is one and fits.
fn integer_pow(base: i64, exponent: i64) -> Option<i64> {
    match (base, exponent) {
        (1, _) => Some(1),
        (0, 1..) => Some(0),
        (-1, e) => Some(if e % 2 == 0 { 1 } else { -1 }),
        (_, e) => base.checked_pow(u32::try_from(e).ok()?),
    }
}

/// A function of doubles, and of decimals.
fn function<'a>(name: &str, value: Value<'a>, double: fn(f64) -> f64, decimal: decimals::Function) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    Ok(apply(number, double, decimal))
}

fn apply<'a>(number: Number, double: fn(f64) -> f64, decimal: decimals::Function) -> Value<'a> {
    match number {
        Number::Decimal(number) => Number::Decimal(decimal(number)).value(),
        number => Value::Double(double(number.to_f64())),
    }
}

fn logarithm<'a>(
    name: &'static str,
    value: Value<'a>,
    code: i32,
    double: fn(f64) -> f64,
    decimal: decimals::Function,
) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    if number.is_zero() || is_below_zero(number) {
        return failure(
            code,
            format!("{name}'s argument must be a positive number, but is {}", value.render()),
        );
    }
    if number.is_nan() {
        return Ok(Value::Double(f64::NAN));
    }
    Ok(apply(number, double, decimal))
}

fn log<'a>(name: &'static str, value: Value<'a>, base: Value<'a>) -> Computed<'a> {
    if value.is_nullish() || base.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(number) = Number::of(&value) else {
        return failure(
            28756,
            format!("{name}'s argument must be numeric, not {}", value.type_name()),
        );
    };
    let Some(b) = Number::of(&base) else {
        return failure(
            28757,
            format!("{name}'s base must be numeric, not {}", base.type_name()),
        );
    };
    if number.is_zero() || is_below_zero(number) {
        return failure(
            28758,
            format!("{name}'s argument must be a positive number, but is {}", value.render()),
        );
    }
    let is_one = match b {
        Number::Decimal(b) => b.compare(Decimal::from(1_i64)).is_eq(),
        b => b.to_f64() == 1.0,
    };
    if b.is_zero() || is_below_zero(b) || is_one {
        return failure(
            28759,
            format!(
                "{name}'s base must be a positive number not equal to 1, but is {}",
                base.render()
            ),
        );
    }
    Ok(match (number, b) {
        // A double also where the operand is a decimal, as `$ln` and `$log10`.
        _ if number.is_nan() || b.is_nan() => Value::Double(f64::NAN),
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(decimals::log(number.to_decimal(), b.to_decimal())).value()
        }
        _ => Value::Double(number.to_f64().ln() / b.to_f64().ln()),
    })
}

fn finite_angle<'a>(
    name: &'static str,
    value: Value<'a>,
    double: fn(f64) -> f64,
    decimal: decimals::Function,
) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    let is_infinite = match number {
        Number::Decimal(number) => matches!(number, Decimal::Infinity { .. }),
        number => number.to_f64().is_infinite(),
    };
    if is_infinite {
        return failure(
            50989,
            format!("cannot apply {name} to {}, value must be in (-inf,inf)", value.render()),
        );
    }
    Ok(apply(number, double, decimal))
}

fn bounded<'a>(
    name: &'static str,
    value: Value<'a>,
    low: f64,
    high: f64,
    double: fn(f64) -> f64,
    decimal: decimals::Function,
) -> Computed<'a> {
    let Some(number) = numeric(name, &value)? else {
        return Ok(Value::Null);
    };
    let is_outside = match number {
        // A decimal may lie between the bound and the next double.
        Number::Decimal(n) if !n.is_nan() => {
            n.compare(Decimal::from_f64(low)).is_lt() || n.compare(Decimal::from_f64(high)).is_gt()
        }
        number => number.to_f64() < low || number.to_f64() > high,
    };
    if is_outside {
        return failure(
            50989,
            format!(
                "cannot apply {name} to {}, value must be in [{low},{high}]",
                value.render()
            ),
        );
    }
    Ok(apply(number, double, decimal))
}

fn atan2<'a>(name: &'static str, y: Value<'a>, x: Value<'a>) -> Computed<'a> {
    if y.is_nullish() || x.is_nullish() {
        return Ok(Value::Null);
    }
    let (Some(a), Some(b)) = (Number::of(&y), Number::of(&x)) else {
        let (code, wrong) = if Number::of(&y).is_none() {
            (51044, &y)
        } else {
            (51045, &x)
        };
        return failure(
            code,
            format!("{name} only supports numeric types, not {}", wrong.type_name()),
        );
    };
    Ok(match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(decimals::atan2(a.to_decimal(), b.to_decimal())).value()
        }
        _ => Value::Double(a.to_f64().atan2(b.to_f64())),
    })
}

fn bits<'a>(name: &'static str, operands: Vec<Value<'a>>, start: i32, combine: fn(i64, i64) -> i64) -> Computed<'a> {
    let (mut total, mut wide) = (i64::from(start), false);
    for operand in &operands {
        match operand {
            Value::Int32(n) => total = combine(total, i64::from(*n)),
            Value::Int64(n) => {
                total = combine(total, *n);
                wide = true;
            }
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                return mismatch(format!(
                    "{name} only supports int and long operands, not {}",
                    other.type_name()
                ));
            }
        }
    }
    // Without an int64 among the operands the result is sign-extended and fits.
    Ok(if wide {
        Value::Int64(total)
    } else {
        Value::Int32(total as i32)
    })
}

fn bit_not<'a>(name: &'static str, value: Value<'a>) -> Computed<'a> {
    match value {
        Value::Int32(n) => Ok(Value::Int32(!n)),
        Value::Int64(n) => Ok(Value::Int64(!n)),
        nullish if nullish.is_nullish() => Ok(Value::Null),
        other if other.is_number() => mismatch(format!(
            "{name} only supports int and long, not: {}.",
            other.type_name()
        )),
        other => failure(
            28765,
            format!("{name} only supports numeric types, not {}", other.type_name()),
        ),
    }
}
