#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{self, decimal};
use bson::raw::{RawBson, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Decimal128, bson, doc};
use proptest::prelude::*;
use std::hash::DefaultHasher;

fn raw(value: &Bson) -> RawBson {
    RawBson::try_from(value.clone()).unwrap()
}

fn order(a: &Bson, b: &Bson) -> Ordering {
    compare(raw(a).as_raw_bson_ref(), raw(b).as_raw_bson_ref())
}

fn hash_of(value: &Bson) -> u64 {
    let mut state = DefaultHasher::new();
    hash_value(raw(value).as_raw_bson_ref(), None, &mut state);
    state.finish()
}

fn assert_rising(values: &[Bson]) {
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            assert_eq!(order(a, b), i.cmp(&j), "{a:?} and {b:?}");
        }
    }
}

fn assert_equal(values: &[Bson]) {
    for a in values {
        for b in values {
            assert_eq!(order(a, b), Ordering::Equal, "{a:?} and {b:?}");
            assert_eq!(hash_of(a), hash_of(b), "{a:?} and {b:?}");
        }
    }
}

fn binary(subtype: u8, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary {
        subtype: BinarySubtype::from(subtype),
        bytes: bytes.to_vec(),
    })
}

#[test]
fn types_order_as_documented() {
    assert_rising(&[
        Bson::MinKey,
        Bson::Undefined,
        Bson::Null,
        bson!(1e300),
        bson!(""),
        bson!({}),
        bson!([]),
        binary(0, b""),
        Bson::ObjectId([0; 12].into()),
        bson!(false),
        bson!(true),
        Bson::DateTime(bson::DateTime::from_millis(i64::MIN)),
        Bson::Timestamp(bson::Timestamp { time: 0, increment: 0 }),
        Bson::RegularExpression(bson::Regex {
            pattern: String::new().try_into().unwrap(),
            options: String::new().try_into().unwrap(),
        }),
        testing::db_pointer("", [0; 12]),
        Bson::JavaScriptCode(String::new()),
        Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
            code: String::new(),
            scope: doc! {},
        }),
        Bson::MaxKey,
    ]);
}

#[test]
fn numbers_compare_exactly_over_types() {
    const TWO_53: i64 = 1 << 53;
    assert_rising(&[
        bson!(f64::NAN),
        bson!(f64::NEG_INFINITY),
        decimal("-9.999999999999999999999999999999999E+6144"),
        bson!(f64::MIN),
        bson!(i64::MIN),
        bson!(-TWO_53 - 1),
        bson!(-(TWO_53 as f64)),
        decimal("-0.5000000000000000000000000000000001"),
        bson!(-0.5),
        bson!(-5e-324),
        decimal("-1E-6176"),
        bson!(0),
        decimal("1E-6176"),
        bson!(5e-324),
        decimal("0.1"),
        bson!(0.1),
        decimal("0.1000000000000000055511151231257828"),
        bson!(1),
        decimal("1.000000000000000000000000000000001"),
        bson!(TWO_53 as f64),
        bson!(TWO_53 + 1),
        decimal("9007199254740993.5"),
        bson!(i64::MAX),
        decimal("9223372036854775807.5"),
        bson!(9223372036854775808.0),
        decimal("9223372036854775808.5"),
        bson!(f64::MAX),
        decimal("1.8E+308"),
        bson!(f64::INFINITY),
    ]);
    assert_equal(&[bson!(f64::NAN), bson!(-f64::NAN), decimal("NaN")]);
    assert_equal(&[
        bson!(0),
        bson!(0_i64),
        bson!(0.0),
        bson!(-0.0),
        decimal("0"),
        decimal("-0E+100"),
    ]);
    assert_equal(&[bson!(1), bson!(1_i64), bson!(1.0), decimal("1"), decimal("1.00")]);
    assert_equal(&[bson!(0.5), decimal("0.5"), decimal("0.50")]);
    assert_equal(&[
        bson!(i64::MIN),
        bson!(-9223372036854775808.0),
        decimal("-9223372036854775808"),
    ]);
    assert_equal(&[bson!(f64::INFINITY), decimal("Infinity")]);
    assert_equal(&[bson!(1e22), decimal("1E+22"), decimal("10000000000000000000000")]);
}

#[test]
fn within_a_type() {
    assert_equal(&[bson!("a\0b"), Bson::Symbol("a\0b".to_owned())]);
    assert_rising(&[
        bson!(""),
        bson!("\0"),
        bson!("a"),
        bson!("a\0"),
        bson!("a\u{1}"),
        bson!("ab"),
        bson!("b"),
    ]);
    // Length, subtype, bytes; subtype 2 counts its inner length.
    assert_rising(&[
        binary(5, b"\xFF"),
        binary(0, b"aaaa"),
        binary(2, b""),
        binary(4, b"aaaa"),
        binary(0, b"aaaaa"),
        binary(2, b"z"),
    ]);
    // A field's type counts before its name, its name before its value; a prefix comes first.
    assert_rising(&[
        bson!({}),
        bson!({"b": 1}),
        bson!({"b": 1, "a": 1}),
        bson!({"b": 2}),
        bson!({"c": 1}),
        bson!({"a": "x"}),
    ]);
    assert_rising(&[
        bson!([]),
        bson!([1]),
        bson!([1, 1]),
        bson!([2]),
        bson!(["a"]),
        bson!([[]]),
    ]);
    assert_rising(&[testing::db_pointer("b", [9; 12]), testing::db_pointer("aa", [0; 12])]);
    assert_rising(&[
        Bson::Timestamp(bson::Timestamp {
            time: 1,
            increment: u32::MAX,
        }),
        Bson::Timestamp(bson::Timestamp {
            time: u32::MAX,
            increment: 0,
        }),
    ]);
    let mut backwards = RawDocumentBuf::new();
    backwards.append(bson::raw::cstr!("7"), 1);
    let array = bson!([1]);
    let odd = [&[4, 0x61, 0][..], backwards.as_bytes(), &[0]].concat();
    let odd = [&(odd.len() as u32 + 4).to_le_bytes()[..], &odd].concat();
    let odd = RawDocument::from_bytes(&odd).unwrap().get("a").unwrap().unwrap();
    assert_eq!(
        compare(odd, raw(&array).as_raw_bson_ref()),
        Ordering::Equal,
        "names in arrays do not count"
    );
}

/// A million levels must not exhaust the stack, and the order must still be one.
#[test]
fn hostile_nesting_is_survived() {
    let nested = |levels: usize, last: u8| {
        let mut bytes = Vec::new();
        for level in 0..levels {
            bytes.extend_from_slice(&(8 * (levels - level) as u32 + 5).to_le_bytes());
            bytes.extend_from_slice(&[3, b'a', 0]);
        }
        bytes.extend_from_slice(&[5, 0, 0, 0, last]);
        bytes.resize(bytes.len() + levels, 0);
        bytes
    };
    let (a, b) = (nested(1_000_000, 0), nested(1_000_000, 1));
    let (a, b) = (
        RawDocument::from_bytes(&a).unwrap(),
        RawDocument::from_bytes(&b).unwrap(),
    );
    assert_eq!(compare_documents(a, a), Ordering::Equal);
    assert_eq!(compare_documents(a, b), Ordering::Less);
    hash_value(RawBsonRef::Document(a), None, &mut DefaultHasher::new());
}

struct IgnoresCase;

impl Collator for IgnoresCase {
    fn append_sort_key(&self, text: &str, out: &mut Vec<u8>) {
        out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
}

#[test]
fn a_collator_orders_strings_at_any_depth() {
    let (a, b) = (raw(&bson!({"x": ["B"]})), raw(&bson!({"x": ["b"]})));
    let (a, b) = (a.as_raw_bson_ref(), b.as_raw_bson_ref());
    assert_eq!(compare(a, b), Ordering::Less);
    assert_eq!(compare_with(a, b, Some(&IgnoresCase)), Ordering::Equal);
    let hash = |value| {
        let mut state = DefaultHasher::new();
        hash_value(value, Some(&IgnoresCase), &mut state);
        state.finish()
    };
    assert_eq!(hash(a), hash(b));
}

/// The value written out in full, as sign, integer digits and fraction digits: an order that shares nothing with the
/// one tested.
fn digits(value: &Bson) -> Option<(bool, String, String)> {
    let text = match value {
        Bson::Int32(v) => v.to_string(),
        Bson::Int64(v) => v.to_string(),
        Bson::Double(v) if v.is_nan() => return None,
        Bson::Double(v) if v.is_infinite() => {
            format!("{}1{}", if *v < 0.0 { "-" } else { "" }, "0".repeat(7000))
        }
        Bson::Double(v) => format!("{v:.1074}"),
        Bson::Decimal128(v) => return decimal_digits(*v),
        other => panic!("not a number: {other}"),
    };
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text.as_str()), |text| (true, text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    Some((negative, whole.to_owned(), fraction.to_owned()))
}

fn decimal_digits(value: Decimal128) -> Option<(bool, String, String)> {
    match Decimal::from(value) {
        Decimal::NaN => None,
        Decimal::Infinity { negative } => Some((negative, format!("1{}", "0".repeat(7000)), String::new())),
        Decimal::Finite {
            negative,
            coefficient,
            exponent,
        } if exponent >= 0 => Some((
            negative,
            format!("{coefficient}{}", "0".repeat(exponent as usize)),
            String::new(),
        )),
        Decimal::Finite {
            negative,
            coefficient,
            exponent,
        } => {
            let places = exponent.unsigned_abs() as usize;
            let text = format!("{coefficient:0>width$}", width = places + 1);
            let (whole, fraction) = text.split_at(text.len() - places);
            Some((negative, whole.to_owned(), fraction.to_owned()))
        }
    }
}

fn compare_digits(a: &Bson, b: &Bson) -> Ordering {
    let ((a_negative, a_whole, a_fraction), (b_negative, b_whole, b_fraction)) = match (digits(a), digits(b)) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Less,
        (Some(_), None) => return Ordering::Greater,
        (Some(a), Some(b)) => (a, b),
    };
    let strip = |whole: &str, fraction: &str| {
        let whole = whole.trim_start_matches('0').to_owned();
        (whole.len(), whole, fraction.trim_end_matches('0').to_owned())
    };
    let (a, b) = (strip(&a_whole, &a_fraction), strip(&b_whole, &b_fraction));
    let zero = (0, String::new(), String::new());
    match (a_negative && a != zero, b_negative && b != zero) {
        (false, false) => a.cmp(&b),
        (true, true) => b.cmp(&a),
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
    }
}

proptest! {
    #![proptest_config(testing::config())]

    #[test]
    fn numbers_order_as_their_digits_do(a in testing::number(), b in testing::number()) {
        prop_assert_eq!(order(&a, &b), compare_digits(&a, &b), "{:?} {:?}", a, b);
    }

    #[test]
    fn doubles_and_decimals_beside_them_order_as_their_digits_do((a, b) in testing::neighbours()) {
        prop_assert_eq!(order(&a, &b), compare_digits(&a, &b), "{:?} {:?}", a, b);
    }

    #[test]
    fn it_is_a_total_order(mut values in prop::collection::vec(testing::value(), 3)) {
        for value in &values {
            prop_assert_eq!(order(value, value), Ordering::Equal);
        }
        prop_assert_eq!(order(&values[0], &values[1]), order(&values[1], &values[0]).reverse());
        values.sort_by(order);
        prop_assert_ne!(order(&values[0], &values[2]), Ordering::Greater);
    }

    #[test]
    fn equal_values_hash_alike((a, b) in testing::pair()) {
        if order(&a, &b) == Ordering::Equal {
            prop_assert_eq!(hash_of(&a), hash_of(&b));
        }
    }
}
