#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing;
use bson::Decimal128;
use proptest::prelude::*;

fn parse(text: &str) -> Decimal {
    Decimal::from(
        text.parse::<Decimal128>()
            .unwrap_or_else(|error| panic!("{text}: {error}")),
    )
}

/// The results of another implementation (Python's), bit for bit.
#[test]
fn arithmetic_gives_what_the_vectors_say() {
    let mut count = 0;
    for line in include_str!("../../testdata/decimal_vectors.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [operation, a, b, expected] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let a = parse(a);
        let result = match operation {
            "add" => a + parse(b),
            "sub" => a - parse(b),
            "mul" => a * parse(b),
            "div" => a / parse(b),
            "rem" => a % parse(b),
            "round-halfeven" => a.round(b.parse().unwrap(), Rounding::HalfEven),
            "round-down" => a.trunc(b.parse().unwrap()),
            "round-floor" => a.round(b.parse().unwrap(), Rounding::Floor),
            "round-ceiling" => a.round(b.parse().unwrap(), Rounding::Ceiling),
            other => panic!("unknown operation {other}"),
        };
        assert_eq!(result, parse(expected), "{line}");
        count += 1;
    }
    assert!(count > 1500, "the vectors are there: {count}");
}

#[test]
fn conversions_to_and_from_doubles() {
    assert_eq!(
        parse("0.100000000000000"),
        Decimal::from_f64(0.1),
        "15 digits, zeros kept, as MongoDB"
    );
    assert_eq!(parse("2.50000000000000"), Decimal::from_f64(2.5));
    assert_eq!(parse("-1.79769313486232E+308"), Decimal::from_f64(-f64::MAX));
    assert_eq!(parse("4.94065645841247E-324"), Decimal::from_f64(5e-324));
    assert_eq!(parse("-0"), Decimal::from_f64(-0.0));
    assert!(Decimal::from_f64(f64::NAN).is_nan());
    for (text, expected) in [
        ("0.1", 0.1),
        ("9007199254740993", 9007199254740992.0),
        ("1E+400", f64::INFINITY),
        ("-1E-400", -0.0),
        ("1.7976931348623157E+308", f64::MAX),
        ("2.5E-324", 5e-324),
    ] {
        assert_eq!(parse(text).to_f64().to_bits(), expected.to_bits(), "{text}");
    }
}

#[test]
fn conversions_to_and_from_integers() {
    assert_eq!(Decimal::from(i64::MIN).to_i64(Rounding::TowardZero), Some(i64::MIN));
    assert_eq!(parse("9223372036854775808").to_i64(Rounding::TowardZero), None);
    assert_eq!(
        parse("9223372036854775807.9").to_i64(Rounding::TowardZero),
        Some(i64::MAX)
    );
    assert_eq!(parse("-2.5").to_i64(Rounding::HalfEven), Some(-2));
    assert_eq!(parse("-2.5").to_i64(Rounding::Floor), Some(-3));
    assert_eq!(
        parse("1E+18").to_i64(Rounding::TowardZero),
        Some(1_000_000_000_000_000_000)
    );
    assert_eq!(parse("0E+6000").to_i64(Rounding::TowardZero), Some(0));
    assert_eq!(parse("1E+6000").to_i64(Rounding::TowardZero), None);
    assert_eq!(Decimal::NaN.to_i64(Rounding::TowardZero), None);
    assert!(parse("3.00").is_integer() && parse("1E+30").is_integer() && parse("0E-6000").is_integer());
    assert!(!parse("3.01").is_integer() && !parse("1E-50").is_integer() && !Decimal::NaN.is_integer());
}

#[test]
fn signs_and_floors() {
    assert_eq!(parse("-1.5").abs(), parse("1.5"));
    assert_eq!(parse("-1.5").to_integral(Rounding::Floor), parse("-2"));
    assert_eq!(parse("-1.5").to_integral(Rounding::Ceiling), parse("-1"));
    assert_eq!(parse("1E-6176").to_integral(Rounding::Ceiling), parse("1"));
    assert_eq!(parse("7E+3").to_integral(Rounding::Floor), parse("7000"));
    assert_eq!(parse("0E+6000").to_integral(Rounding::Floor), parse("0"));
    assert_eq!(parse("1E+34").to_integral(Rounding::Floor), Decimal::NaN);
    assert_eq!(parse("Infinity").to_integral(Rounding::Floor), Decimal::NaN);
    assert_eq!(parse("9.99").round(1, Rounding::HalfEven), parse("10.0"));
    assert_eq!(parse("5").round(i32::MIN, Rounding::HalfEven), parse("0E+6111"));
    assert_eq!(parse("5").round(i32::MAX, Rounding::HalfEven), parse("5"));
}

/// Coefficients of more than 34 digits, and the form that only they need, read as zero.
#[test]
fn bits_outside_the_canonical_encoding_read_as_zero() {
    let too_long = Decimal::from_bits(3040_u128 << 113 | ((1 << 113) - 1));
    assert_eq!(
        too_long,
        Decimal::Finite {
            negative: false,
            coefficient: 0,
            exponent: 3040 - 6176
        }
    );
    let large_form = Decimal::from_bits(3 << 125 | 5 << 111 | 7);
    assert_eq!(
        large_form,
        Decimal::Finite {
            negative: false,
            coefficient: 0,
            exponent: 5 - 6176
        }
    );
}

proptest! {
    #![proptest_config(testing::config())]

    #[test]
    fn bits_round_trip_and_agree_with_bson(bits in testing::decimal_bits()) {
        let decimal = Decimal::from_bits(bits);
        prop_assert_eq!(Decimal::from_bits(decimal.to_bits()), decimal);
        let text = Decimal128::from_bytes(bits.to_le_bytes()).to_string();
        prop_assert_eq!(parse(&text), decimal, "{}", text);
    }

    #[test]
    fn doubles_come_back_from_17_digits(value in any::<f64>()) {
        prop_assume!(value.is_finite());
        let text = format!("{value:.16e}");
        prop_assert_eq!(parse(&text).to_f64().to_bits(), value.to_bits());
    }

    #[test]
    fn any_operation_keeps_the_invariants(a in testing::decimal_bits(), b in testing::decimal_bits(), places in -7000..7000) {
        let (a, b) = (Decimal::from_bits(a), Decimal::from_bits(b));
        for result in [a + b, a - b, a * b, a / b, a % b, a.round(places, Rounding::Ceiling), a.to_integral(Rounding::Floor)] {
            if let Decimal::Finite { coefficient, exponent, .. } = result {
                prop_assert!(coefficient <= COEFFICIENT_MAX);
                prop_assert!((EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent), "{}", exponent);
            }
        }
    }
}
