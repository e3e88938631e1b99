//! Roots, exponentials, logarithms and trigonometry of decimals, rounded to 34 digits, half to even.
//!
//! The functions themselves are those of `astro-float-num`, at [`PRECISION`] bits: some sixty digits more than a result
//! has. Where all of those are zeros the result is taken to be exact, and has no more digits than it needs, as in IEEE
//! 754; all others have 34.
//!
//! Logarithms are those of a number of quadruple precision, rounded to that: MongoDB's library computes so, and the
//! last of 34 digits is not always that of the exact value.

use astro_float_num::{BigFloat, Consts, Radix, RoundingMode, Sign};
use keys::Decimal;
use keys::decimal::{DIGITS_MAX, EXPONENT_MAX, EXPONENT_MIN, Rounding};
use std::cell::RefCell;

/// Of what is computed, in bits.
const PRECISION: usize = 320;
/// Decimal digits of it that are surely right.
const DIGITS_SURE: usize = 80;
/// At least.
const BITS_PER_DIGIT: usize = 4;
/// Beyond this `exp` is infinite, or zero, whatever its argument's digits are.
const EXP_MAX: f64 = 20_000.0;
/// None: to round right, the library would compute more and more digits of a number that ends, and none would tell.
const ROUNDING: RoundingMode = RoundingMode::None;

/// Of the mantissa of a number of quadruple precision.
const QUAD_BITS: usize = 113;

thread_local! {
    /// Pi, the logarithms of 2 and 10: computed once for each thread. `None` without memory for them.
    static CONSTANTS: RefCell<Option<Consts>> = RefCell::new(Consts::new().ok());
}

/// A function of one number.
pub type Function = fn(Decimal) -> Decimal;

const INFINITY: Decimal = Decimal::Infinity { negative: false };
const MINUS_INFINITY: Decimal = Decimal::Infinity { negative: true };

fn one() -> Decimal {
    Decimal::from(1_i64)
}

/// What `compute` makes of a finite decimal.
fn of_finite(
    operands: &[Decimal],
    exact_exponent: i32,
    compute: impl FnOnce(&[BigFloat], &mut Consts) -> BigFloat,
) -> Decimal {
    CONSTANTS.with_borrow_mut(|constants| {
        let Some(constants) = constants else {
            return Decimal::NaN;
        };
        let operands: Vec<BigFloat> = operands.iter().map(|&operand| big(operand, constants)).collect();
        let result = compute(&operands, constants);
        decimal(&result, exact_exponent, constants)
    })
}

/// NaN for what is not finite: callers have looked at that.
fn big(number: Decimal, constants: &mut Consts) -> BigFloat {
    let Decimal::Finite {
        negative,
        coefficient,
        exponent,
    } = number
    else {
        return BigFloat::nan(None);
    };
    let text = format!("{}{coefficient}e{exponent}", if negative { "-" } else { "" });
    // All digits of a large number: its angle depends on the last ones.
    let digits = exponent.max(0) as usize + DIGITS_MAX as usize;
    let precision = PRECISION.max(digits * BITS_PER_DIGIT + PRECISION / 2);
    BigFloat::parse(&text, Radix::Dec, precision, ROUNDING, constants)
}

/// The nearest decimal. An exact one has `exact_exponent`, or the nearest one to it that it can have.
fn decimal(number: &BigFloat, exact_exponent: i32, constants: &mut Consts) -> Decimal {
    if number.is_inf() {
        return Decimal::Infinity {
            negative: number.is_inf_neg(),
        };
    }
    let Ok((sign, digits, point)) = number.convert_to_radix(Radix::Dec, ROUNDING, constants) else {
        return Decimal::NaN;
    };
    let negative = sign == Sign::Neg;
    let zero = |exponent: i32| Decimal::Finite {
        negative,
        coefficient: 0,
        exponent: exponent.clamp(EXPONENT_MIN, EXPONENT_MAX),
    };
    // The number is 0.d1 d2 d3 ... * 10^point; the first digit is not zero unless all are.
    let Some(first) = digits.iter().position(|&digit| digit != 0) else {
        return zero(exact_exponent);
    };
    let mut point = point - first as i32;
    let mut digits = digits[first..].to_vec();
    if round_up_to_sure(&mut digits) {
        point += 1;
    }
    if point < EXPONENT_MIN {
        return zero(EXPONENT_MIN);
    }
    let digit = |at: usize| u128::from(digits.get(at).copied().unwrap_or(0));
    // Fewer are left of a number below the smallest normal one.
    let room = (point - EXPONENT_MIN).min(DIGITS_MAX as i32) as usize;
    let rest = |from: usize| digits.iter().skip(from).any(|&digit| digit != 0);
    let mut coefficient = (0..room).fold(0, |sum, at| sum * 10 + digit(at));
    let mut exponent = point - room as i32;
    let exact = !rest(room);
    let tie_or_more = digit(room) >= 5;
    if tie_or_more && (digit(room) > 5 || rest(room + 1) || coefficient % 2 == 1) {
        coefficient += 1;
    }
    if exact {
        while exponent < exact_exponent && coefficient % 10 == 0 && coefficient != 0 {
            coefficient /= 10;
            exponent += 1;
        }
    }
    if coefficient == 10_u128.pow(DIGITS_MAX) {
        coefficient /= 10;
        exponent += 1;
    }
    if exponent > EXPONENT_MAX {
        return Decimal::Infinity { negative };
    }
    Decimal::Finite {
        negative,
        coefficient,
        exponent,
    }
}

/// Rounds to the digits that are sure. True when that made one more before the point.
fn round_up_to_sure(digits: &mut Vec<u8>) -> bool {
    let up = digits.get(DIGITS_SURE).is_some_and(|&digit| digit >= 5);
    digits.truncate(DIGITS_SURE);
    if !up {
        return false;
    }
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return false;
        }
        *digit = 0;
    }
    digits.insert(0, 1);
    true
}

fn is_infinite(number: Decimal) -> bool {
    matches!(number, Decimal::Infinity { .. })
}

/// A function whose value at the infinities is given, and which is odd or even about zero as `at_zero` says.
fn function(
    number: Decimal,
    at_infinities: [Decimal; 2],
    at_zero: Decimal,
    compute: impl FnOnce(&BigFloat, &mut Consts) -> BigFloat,
) -> Decimal {
    match number {
        Decimal::NaN => Decimal::NaN,
        Decimal::Infinity { negative } => at_infinities[usize::from(!negative)],
        number if number.is_zero() => at_zero,
        number => of_finite(&[number], 0, |operands, constants| compute(&operands[0], constants)),
    }
}

/// The square root; its exponent is half of the argument's where it is exact.
pub fn sqrt(number: Decimal) -> Decimal {
    match number {
        Decimal::Finite { exponent, .. } if number.is_zero() => match number {
            Decimal::Finite { negative, .. } => Decimal::Finite {
                negative,
                coefficient: 0,
                exponent: exponent.div_euclid(2),
            },
            other => other,
        },
        Decimal::Finite { negative: true, .. } | MINUS_INFINITY | Decimal::NaN => Decimal::NaN,
        INFINITY => INFINITY,
        Decimal::Finite { exponent, .. } => of_finite(&[number], exponent.div_euclid(2), |operands, _| {
            operands[0].sqrt(PRECISION, ROUNDING)
        }),
    }
}

/// e to the power of a number.
pub fn exp(number: Decimal) -> Decimal {
    if !is_infinite(number) && number.to_f64().abs() > EXP_MAX {
        return if number.is_negative() { TINIEST } else { INFINITY };
    }
    function(number, [Decimal::ZERO, INFINITY], one(), |x, constants| {
        x.exp(PRECISION, ROUNDING, constants)
    })
}

/// What is too small to be told from zero.
const TINIEST: Decimal = Decimal::Finite {
    negative: false,
    coefficient: 0,
    exponent: EXPONENT_MIN,
};

/// The nearest number of so many bits as the quadruple precision of IEEE 754 has.
fn to_quad(number: &BigFloat) -> BigFloat {
    let Some(exponent) = number.exponent() else {
        return number.clone();
    };
    let mut mantissa = number.clone();
    mantissa.set_exponent(0);
    let mut rounded = mantissa.round(QUAD_BITS, RoundingMode::ToEven);
    // It may have become one.
    let carried = rounded.exponent().unwrap_or(0);
    rounded.set_exponent(exponent + carried);
    rounded
}

/// The number whose logarithm is computed: near one the logarithm tells the digits behind those of a quad.
fn operand_of_logarithm(number: Decimal, exact: &BigFloat) -> BigFloat {
    match (0.9..1.1).contains(&number.to_f64()) {
        true => exact.clone(),
        false => to_quad(exact),
    }
}

/// The natural logarithm of a number above zero.
pub fn ln(number: Decimal) -> Decimal {
    function(number, [Decimal::NaN, INFINITY], MINUS_INFINITY, |x, constants| {
        to_quad(&operand_of_logarithm(number, x).ln(PRECISION, ROUNDING, constants))
    })
}

/// The logarithm to the base 10 of a number above zero.
pub fn log10(number: Decimal) -> Decimal {
    function(number, [Decimal::NaN, INFINITY], MINUS_INFINITY, |x, constants| {
        to_quad(&operand_of_logarithm(number, x).log10(PRECISION, ROUNDING, constants))
    })
}

/// The logarithm to a base above zero that is not 1, of a number above zero.
pub fn log(number: Decimal, base: Decimal) -> Decimal {
    if number.is_nan() || base.is_nan() || is_infinite(number) || is_infinite(base) {
        return Decimal::from_f64(number.to_f64().ln() / base.to_f64().ln());
    }
    // Both are rounded before, as in MongoDB: a power of the base may miss its exponent by the last digit.
    ln(number) / ln(base)
}

/// A power. As in MongoDB it has all digits there is room for, trailing zeros when it is exact.
pub fn pow(base: Decimal, exponent: Decimal) -> Decimal {
    let is_special = |number: Decimal| number.is_nan() || number.is_zero() || is_infinite(number);
    if is_special(base) || is_special(exponent) {
        return of_all_digits(Decimal::from_f64(base.to_f64().powf(exponent.to_f64())), false);
    }
    let is_negative = match exponent.to_i64(Rounding::TowardZero) {
        _ if !base.is_negative() => false,
        _ if !exponent.is_integer() => return Decimal::NaN,
        whole => whole.is_some_and(|whole| whole % 2 != 0),
    };
    let base = base.abs();
    let size = ln(base).to_f64() * exponent.to_f64();
    let power = match size.abs() > EXP_MAX {
        true if size < 0.0 => TINIEST,
        true => INFINITY,
        false => of_finite(&[base, exponent], 0, |operands, constants| {
            operands[0].pow(&operands[1], PRECISION, ROUNDING, constants)
        }),
    };
    of_all_digits(power, is_negative)
}

/// The same number with as many digits as it can have, negated where that is wanted.
fn of_all_digits(number: Decimal, is_negated: bool) -> Decimal {
    match number {
        Decimal::Finite { coefficient: 0, .. } => TINIEST,
        Decimal::Finite {
            negative,
            mut coefficient,
            mut exponent,
        } => {
            while coefficient < 10_u128.pow(DIGITS_MAX - 1) && exponent > EXPONENT_MIN {
                coefficient *= 10;
                exponent -= 1;
            }
            Decimal::Finite {
                negative: negative != is_negated,
                coefficient,
                exponent,
            }
        }
        Decimal::Infinity { negative } => Decimal::Infinity {
            negative: negative != is_negated,
        },
        Decimal::NaN => Decimal::NaN,
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $at_minus:expr, $at_plus:expr, $at_zero:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(number: Decimal) -> Decimal {
                function(number, [$at_minus, $at_plus], $at_zero(number), |x, constants| {
                    x.$name(PRECISION, ROUNDING, constants)
                })
            }
        )*
    };
}

fn itself(number: Decimal) -> Decimal {
    number
}

fn always_one(_: Decimal) -> Decimal {
    one()
}

functions! {
    /// The sine of an angle in radians.
    sin: Decimal::NaN, Decimal::NaN, itself;
    /// The cosine of an angle in radians.
    cos: Decimal::NaN, Decimal::NaN, always_one;
    /// The tangent of an angle in radians.
    tan: Decimal::NaN, Decimal::NaN, itself;
    /// The angle in radians whose sine this is.
    asin: Decimal::NaN, Decimal::NaN, itself;
    /// The angle in radians whose tangent this is.
    atan: negated(half_pi()), half_pi(), itself;
    /// The inverse of the hyperbolic sine.
    asinh: MINUS_INFINITY, INFINITY, itself;
}

fn negated(number: Decimal) -> Decimal {
    -number
}

/// `compute` of pi.
fn of_pi(compute: impl FnOnce(BigFloat, &mut Consts) -> BigFloat) -> Decimal {
    of_finite(&[], 0, |_, constants| {
        let pi = constants.pi(PRECISION, ROUNDING);
        compute(pi, constants)
    })
}

fn half_pi() -> Decimal {
    of_pi(|pi, _| pi.div(&BigFloat::from_i64(2, PRECISION), PRECISION, ROUNDING))
}

/// The angle in radians whose cosine this is.
pub fn acos(number: Decimal) -> Decimal {
    function(number, [Decimal::NaN; 2], half_pi(), |x, constants| {
        x.acos(PRECISION, ROUNDING, constants)
    })
}

/// The inverse of the hyperbolic cosine, for numbers from 1.
pub fn acosh(number: Decimal) -> Decimal {
    function(number, [Decimal::NaN, INFINITY], Decimal::NaN, |x, constants| {
        x.acosh(PRECISION, ROUNDING, constants)
    })
}

/// The inverse of the hyperbolic tangent, for numbers from -1 to 1.
pub fn atanh(number: Decimal) -> Decimal {
    if number.abs().compare(one()).is_eq() {
        return Decimal::Infinity {
            negative: number.is_negative(),
        };
    }
    function(number, [Decimal::NaN; 2], number, |x, constants| {
        x.atanh(PRECISION, ROUNDING, constants)
    })
}

/// The hyperbolic sine.
pub fn sinh(number: Decimal) -> Decimal {
    if number.to_f64().abs() > EXP_MAX {
        return Decimal::Infinity {
            negative: number.is_negative(),
        };
    }
    function(number, [MINUS_INFINITY, INFINITY], number, |x, constants| {
        x.sinh(PRECISION, ROUNDING, constants)
    })
}

/// The hyperbolic cosine.
pub fn cosh(number: Decimal) -> Decimal {
    if number.to_f64().abs() > EXP_MAX {
        return INFINITY;
    }
    function(number, [INFINITY; 2], one(), |x, constants| {
        x.cosh(PRECISION, ROUNDING, constants)
    })
}

/// The hyperbolic tangent.
pub fn tanh(number: Decimal) -> Decimal {
    // So near to 1 that no digit tells.
    if number.to_f64().abs() > 1000.0 {
        return if number.is_negative() { -one() } else { one() };
    }
    function(number, [-one(), one()], number, |x, constants| {
        x.tanh(PRECISION, ROUNDING, constants)
    })
}

/// The angle in radians of the point (x, y).
pub fn atan2(y: Decimal, x: Decimal) -> Decimal {
    if y.is_nan() || x.is_nan() {
        return Decimal::NaN;
    }
    let is_special = |number: Decimal| number.is_zero() || is_infinite(number);
    if is_special(y) || is_special(x) {
        // A multiple of a quarter of pi, which the double tells.
        let quarters = (y.to_f64().atan2(x.to_f64()) / std::f64::consts::FRAC_PI_4).round();
        if quarters == 0.0 {
            return if y.is_negative() { -Decimal::ZERO } else { Decimal::ZERO };
        }
        return of_pi(|pi, _| {
            let quarters = BigFloat::from_f64(quarters / 4.0, PRECISION);
            pi.mul(&quarters, PRECISION, ROUNDING)
        });
    }
    of_finite(&[y, x], 0, |operands, constants| {
        let (y, x) = (&operands[0], &operands[1]);
        let angle = y.div(x, PRECISION, ROUNDING).atan(PRECISION, ROUNDING, constants);
        let pi = constants.pi(PRECISION, ROUNDING);
        match (x.is_negative(), y.is_negative()) {
            (false, _) => angle,
            (true, false) => angle.add(&pi, PRECISION, ROUNDING),
            (true, true) => angle.sub(&pi, PRECISION, ROUNDING),
        }
    })
}

/// Degrees as radians.
pub fn to_radians(number: Decimal) -> Decimal {
    number * of_pi(|pi, _| pi.div(&BigFloat::from_i64(180, PRECISION), PRECISION, ROUNDING))
}

/// Radians as degrees.
pub fn to_degrees(number: Decimal) -> Decimal {
    number * of_pi(|pi, _| BigFloat::from_i64(180, PRECISION).div(&pi, PRECISION, ROUNDING))
}

#[cfg(test)]
mod tests;
