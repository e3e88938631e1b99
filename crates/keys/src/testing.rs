//! Random values for the tests of this crate, with a bent for those that are nearly equal.

use bson::oid::ObjectId;
use bson::raw::RawDocument;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Prints the seed; `TENON_SEED` replays one, `TENON_CASES` sets how many cases a property gets.
pub(crate) fn config() -> Config {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = variable("TENON_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let cases = variable("TENON_CASES").map_or(2000, |cases| cases as u32);
    eprintln!("replay with TENON_SEED={seed}");
    Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

pub(crate) fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// `bson` has no way to make one but from bytes.
pub(crate) fn db_pointer(namespace: &str, id: [u8; 12]) -> Bson {
    let mut bytes = vec![0, 0, 0, 0, 0x0C, 0];
    bytes.extend_from_slice(&(namespace.len() as u32 + 1).to_le_bytes());
    bytes.extend_from_slice(namespace.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&id);
    bytes.push(0);
    bytes[0] = bytes.len() as u8;
    let document = RawDocument::from_bytes(&bytes).expect("it is framed");
    let value = document.get("").expect("it is valid").expect("it has the field");
    Bson::try_from(value).expect("it is valid")
}

pub(crate) fn decimal_bits() -> impl Strategy<Value = u128> {
    let coefficient = prop_oneof![
        0_u128..200,
        Just(10_u128.pow(34) - 1),
        (0_u32..34).prop_map(|digits| 10_u128.pow(digits)),
        any::<i64>().prop_map(|value| u128::from(value.unsigned_abs())),
        0..10_u128.pow(34),
    ];
    let exponent = prop_oneof![Just(0), -3..4, -40..41, -400..400, -6176..6112];
    let finite = (any::<bool>(), coefficient, exponent).prop_map(|(negative, coefficient, exponent)| {
        u128::from(negative) << 127 | ((exponent + 6176) as u128) << 113 | coefficient
    });
    let special = prop_oneof![
        Just(0x1F_u128 << 122),
        Just(0x3F_u128 << 122),
        Just(0x1E_u128 << 122),
        Just(0x3E_u128 << 122),
        any::<u128>(),
    ];
    prop_oneof![12 => finite, 1 => special]
}

/// Numbers of all types, many of them equal or neighbours.
pub(crate) fn number() -> impl Strategy<Value = Bson> {
    let place = prop_oneof![
        -3_i64..4,
        prop_oneof![
            Just(127_i64),
            Just(128),
            Just(255),
            Just(256),
            Just(32767),
            Just(32768),
            Just(i64::from(i32::MAX))
        ],
        (0_u32..63, -1_i64..2).prop_map(|(bit, near)| (1_i64 << bit) + near),
        any::<i32>().prop_map(i64::from),
        any::<i64>(),
        prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(i64::MIN + 1)],
    ];
    let signed =
        (place, any::<bool>()).prop_map(|(value, negative)| if negative { value.wrapping_neg() } else { value });
    let integral = (signed, 0..8).prop_map(|(value, form)| match form {
        0 | 1 => Bson::Int64(value),
        2 | 3 => i32::try_from(value).map_or(Bson::Int64(value), Bson::Int32),
        4 => Bson::Double(value as f64),
        5 => Bson::Double((value as f64).next_up()),
        6 => decimal(&value.to_string()),
        _ => decimal(&format!("{value}.0000000000001")),
    });
    let fractional = (prop_oneof![-20_i32..21, any::<i32>()], 0_i32..60, 0..6).prop_map(|(numerator, shift, form)| {
        let value = f64::from(numerator) / 2_f64.powi(shift);
        match form {
            0 | 1 => Bson::Double(value),
            2 => Bson::Double(value / 10.0),
            // Exactly the double where it has at most 34 digits, else just beside it.
            3 => decimal(&in_34_digits(value)),
            4 => decimal(&format!("{value:.17e}")),
            _ => decimal(&format!("{:e}", f64::from(numerator) / 10_f64.powi(shift % 7))),
        }
    });
    let special = prop_oneof![
        Just(Bson::Double(f64::NAN)),
        Just(Bson::Double(f64::INFINITY)),
        Just(Bson::Double(f64::NEG_INFINITY)),
        Just(Bson::Double(-0.0)),
        Just(Bson::Double(f64::MAX)),
        Just(Bson::Double(f64::MIN_POSITIVE)),
        Just(Bson::Double(5e-324)),
        Just(Bson::Double(2.0_f64.powi(63))),
        Just(Bson::Double(-(2.0_f64.powi(63)))),
        Just(decimal("9223372036854775808")),
        Just(decimal("9223372036854775807.5")),
        Just(decimal("-9223372036854775808.000000")),
        Just(decimal("1.797693134862315708145274237317043E+308")),
        Just(decimal("1.7976931348623158E+308")),
        Just(decimal("4.940656458412465441765687928682214E-324")),
        Just(decimal("4.9E-324")),
        Just(decimal("1E-6176")),
        Just(decimal("9.999999999999999999999999999999999E+6144")),
        Just(decimal("1E+6144")),
        Just(decimal("-0E-3")),
    ];
    let raw = decimal_bits().prop_map(|bits| Bson::Decimal128(Decimal128::from_bytes(bits.to_le_bytes())));
    prop_oneof![4 => integral, 4 => fractional, 1 => special, 2 => raw, 1 => any::<f64>().prop_map(Bson::Double)]
}

fn in_34_digits(value: f64) -> String {
    format!("{value:.33e}")
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(
            prop_oneof![Just('\0'), Just('\u{1}'), Just('\u{2}'), Just('a'), Just('\u{FF}')],
            0..5
        )
        .prop_map(String::from_iter),
        "[ab\u{10FFFF}]{0,4}",
        ".{0,12}",
    ]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab\u{1}]{0,2}", 1 => "[^\0]{0,6}"]
}

fn id() -> impl Strategy<Value = [u8; 12]> {
    prop_oneof![any::<[u8; 12]>(), (0_u8..3).prop_map(|last| [last; 12])]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(0_u8), Just(0xFF), 0_u8..3], 0..6),
        1 => prop::collection::vec(any::<u8>(), 245..262),
    ]
}

fn leaf() -> impl Strategy<Value = Bson> {
    let date = prop_oneof![any::<i64>(), -2_i64..3].prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms)));
    let timestamp = (prop_oneof![0_u32..3, any::<u32>()], prop_oneof![0_u32..3, any::<u32>()])
        .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment }));
    let binary = (prop_oneof![Just(0_u8), Just(2), Just(4), Just(0x80)], bytes()).prop_map(|(subtype, bytes)| {
        Bson::Binary(Binary {
            subtype: BinarySubtype::from(subtype),
            bytes,
        })
    });
    let regex = (name(), "[imsx]{0,2}").prop_map(|(pattern, options)| {
        let mut options: Vec<char> = options.chars().collect();
        options.sort_unstable();
        options.dedup();
        Bson::RegularExpression(Regex {
            pattern: pattern.try_into().expect("it has no NUL"),
            options: String::from_iter(options).try_into().expect("it has no NUL"),
        })
    });
    prop_oneof![
        8 => number(),
        3 => text().prop_map(Bson::String),
        1 => text().prop_map(Bson::Symbol),
        1 => prop_oneof![Just(Bson::Null), Just(Bson::Undefined), Just(Bson::MinKey), Just(Bson::MaxKey)],
        1 => any::<bool>().prop_map(Bson::Boolean),
        1 => id().prop_map(|id| Bson::ObjectId(ObjectId::from_bytes(id))),
        1 => date,
        1 => timestamp,
        1 => binary,
        1 => regex,
        1 => text().prop_map(Bson::JavaScriptCode),
        1 => (text(), id()).prop_map(|(namespace, id)| db_pointer(&namespace, id)),
    ]
}

fn document(inner: impl Strategy<Value = Bson> + Clone) -> impl Strategy<Value = Document> {
    prop::collection::vec((name(), inner), 0..4).prop_map(Document::from_iter)
}

/// Any value, nested up to three levels.
pub(crate) fn value() -> impl Strategy<Value = Bson> {
    leaf().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            2 => document(inner.clone()).prop_map(Bson::Document),
            2 => prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            1 => (text(), document(inner)).prop_map(|(code, scope)| {
                Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

/// A double of any size and a decimal as near to it as 34 digits allow, or nearly so.
pub(crate) fn neighbours() -> impl Strategy<Value = (Bson, Bson)> {
    let double = prop_oneof![
        any::<f64>(),
        // Few digits: exactly a decimal, often with more than 38 places.
        (1_u32..9, 0_i32..50).prop_map(|(numerator, shift)| f64::from(numerator) / 2_f64.powi(shift)),
        // Subnormal and just above.
        (1_u64..1 << 54).prop_map(f64::from_bits),
        (0_u32..54).prop_map(|bit| f64::from_bits(1 << bit)),
        // Where integers end.
        (50_i32..70, 0_u64..3).prop_map(|(power, up)| f64::from_bits(2_f64.powi(power).to_bits() + up)),
    ];
    (double, any::<bool>(), -1_i64..2)
        .prop_filter("it has digits", |(double, ..)| double.is_finite())
        .prop_map(|(double, negative, off)| {
            let double = if negative { -double } else { double };
            let near = decimal(&in_34_digits(double));
            let other = f64::from_bits((double.to_bits() as i64).wrapping_add(off) as u64);
            (Bson::Double(other), near)
        })
}

/// Two values, often of one type, sometimes the same.
pub(crate) fn pair() -> impl Strategy<Value = (Bson, Bson)> {
    prop_oneof![
        4 => (value(), value()),
        4 => (number(), number()),
        2 => neighbours(),
        1 => value().prop_map(|value| (value.clone(), value)),
        1 => (text().prop_map(Bson::String), text().prop_map(Bson::String)),
        1 => (prop::collection::vec(number(), 0..3), prop::collection::vec(number(), 0..3))
            .prop_map(|(a, b)| (Bson::Array(a), Bson::Array(b))),
    ]
}
