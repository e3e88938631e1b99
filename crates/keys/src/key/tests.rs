#![allow(clippy::unwrap_used)]

use super::format::{self, lead, lead_range};
use super::*;
use crate::Collator;
use crate::order::{canonical_type, compare, compare_with};
use crate::testing::{self, decimal};
use bson::raw::{RawBson, RawBsonRef, RawDocument};
use bson::{Bson, bson};
use proptest::prelude::*;
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::ops::Bound;

use FieldOrder::{Ascending, Descending};

fn raw(value: &Bson) -> RawBson {
    RawBson::try_from(value.clone()).unwrap()
}

fn encode(value: &Bson, order: FieldOrder) -> Vec<u8> {
    let mut out = Vec::new();
    encode_value(&mut out, raw(value).as_raw_bson_ref(), order, None);
    out
}

fn encode_all(values: &[Bson], ordering: KeyOrdering) -> (Vec<u8>, TypeBits) {
    let raws: Vec<RawBson> = values.iter().map(raw).collect();
    let refs: Vec<RawBsonRef<'_>> = raws.iter().map(RawBson::as_raw_bson_ref).collect();
    let (mut key, mut types) = (Vec::new(), TypeBits::new());
    encode_key(&mut key, &mut types, &refs, ordering, None);
    (key, types)
}

fn order(a: &Bson, b: &Bson) -> Ordering {
    compare(raw(a).as_raw_bson_ref(), raw(b).as_raw_bson_ref())
}

/// Equal to the bit, but for the payload of a double NaN, which keys do not keep.
fn same(a: &Bson, b: &Bson) -> bool {
    match (a, b) {
        (Bson::Double(a), Bson::Double(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (Bson::Array(a), Bson::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Bson::Document(a), Bson::Document(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
        }
        (Bson::JavaScriptCodeWithScope(a), Bson::JavaScriptCodeWithScope(b)) => {
            a.code == b.code && same(&Bson::Document(a.scope.clone()), &Bson::Document(b.scope.clone()))
        }
        _ => a == b,
    }
}

#[test]
fn common_values_are_short() {
    let length = |value: Bson| encode(&value, Ascending).len();
    assert_eq!(length(bson!(0)), 1);
    assert_eq!([length(bson!(1)), length(bson!(127)), length(bson!(-127))], [2; 3]);
    assert_eq!(
        [length(bson!(128)), length(bson!(32767)), length(bson!(1000.0))],
        [3; 3]
    );
    assert_eq!([length(bson!(i64::MAX)), length(bson!(i64::MIN))], [9; 2]);
    assert_eq!(length(bson!(0.5)), 9);
    assert_eq!(length(bson!(1.5)), 10);
    assert_eq!(length(Bson::ObjectId([7; 12].into())), 13);
    assert_eq!(length(bson!("abc")), 5);
    assert_eq!(length(bson!(true)), 1);
    assert_eq!(length(Bson::DateTime(bson::DateTime::from_millis(0))), 9);
}

#[test]
fn type_bits_are_empty_for_the_commonest_types() {
    let types = |values: &[Bson]| encode_all(values, KeyOrdering::ASCENDING).1.as_bytes().to_vec();
    let common = [
        bson!(1),
        bson!(i64::MAX),
        bson!(2.5),
        bson!("a"),
        bson!(null),
        Bson::ObjectId([0; 12].into()),
    ];
    assert_eq!(types(&common), []);
    assert_eq!(types(&[decimal("19.99"), bson!(f64::NAN), bson!(f64::MAX)]), []);
    assert_eq!(types(&[bson!("a"), bson!(1_i64), bson!("a")]), [0, 1]);
    assert_eq!(types(&[bson!(1.0)]), [2]);
    assert_eq!(
        types(&[decimal("5.00")]),
        [3, (6176 - 2) as u8, ((6176 - 2) >> 8) as u8]
    );
}

#[test]
fn a_missing_field_orders_as_null_and_decodes_as_missing() {
    for order in [Ascending, Descending] {
        let (mut key, mut types) = (Vec::new(), TypeBits::new());
        encode_missing(&mut key, &mut types, order);
        encode_value_with_types(&mut key, &mut types, RawBsonRef::Null, order, None);
        assert_eq!(key[0], key[1]);
        let ordering = KeyOrdering::new([order, order]);
        assert_eq!(
            decode_key(&key, types.as_bytes(), ordering).unwrap(),
            [None, Some(Bson::Null)]
        );
    }
}

#[test]
fn record_ids_order_equal_keys() {
    let mut key = encode(&bson!("a"), Ascending);
    let plain = key.clone();
    append_record_id(&mut key, 258);
    assert_eq!(split_record_id(&key), Some((plain.as_slice(), 258)));
    let mut next = plain.clone();
    append_record_id(&mut next, 1 << 40);
    assert!(key < next);
    assert_eq!(split_record_id(&[0; 7]), None);
}

struct IgnoresCase;

impl Collator for IgnoresCase {
    fn append_sort_key(&self, text: &str, out: &mut Vec<u8>) {
        out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
}

#[test]
fn collated_strings_order_by_sort_key_and_do_not_decode() {
    let encode = |value: &Bson| {
        let mut out = Vec::new();
        encode_value(&mut out, raw(value).as_raw_bson_ref(), Ascending, Some(&IgnoresCase));
        out
    };
    let words = [
        bson!("A"),
        bson!("a"),
        bson!("B"),
        bson!(["b"]),
        bson!(["B"]),
        bson!({"Z": "q"}),
        bson!(3),
    ];
    for a in &words {
        for b in &words {
            let expected = compare_with(raw(a).as_raw_bson_ref(), raw(b).as_raw_bson_ref(), Some(&IgnoresCase));
            assert_eq!(encode(a).cmp(&encode(b)), expected, "{a} {b}");
        }
    }
    for word in &words {
        let mut key = encode(word);
        let length = key.len();
        key.extend_from_slice(&[0x40, 0, 0xFF]);
        assert_eq!(value_length(&key, Ascending), Ok(length), "{word}");
    }
    assert_eq!(
        decode_key(&encode(&words[0]), &[], KeyOrdering::ASCENDING),
        Err(DecodeError::CollatedString)
    );
}

/// A covered projection of fields around a collated string: the type bits must stay in step.
#[test]
fn collated_strings_can_be_skipped() {
    let values = [
        bson!(1.0),
        bson!({ "a": ["Q", 2.0] }),
        Bson::Symbol("S".to_owned()),
        bson!(3_i64),
    ];
    let (mut key, mut types) = (Vec::new(), TypeBits::new());
    for value in &values {
        encode_value_with_types(
            &mut key,
            &mut types,
            raw(value).as_raw_bson_ref(),
            Descending,
            Some(&IgnoresCase),
        );
    }
    let mut decoder = KeyDecoder::new(&key, types.as_bytes(), KeyOrdering::new([Descending; 4])).showing_sort_keys();
    let mut shown = Vec::new();
    decoder.skip_field().unwrap();
    decoder.skip_field().unwrap();
    assert_eq!(decoder.append_field("s", &mut shown), Ok(true));
    assert_eq!(shown, b"\x02s\0\x02\0\0\0s\0");
    let mut decoder = KeyDecoder::new(&key, types.as_bytes(), KeyOrdering::new([Descending; 4]));
    for _ in 0..3 {
        decoder.skip_field().unwrap();
    }
    let mut field = Vec::new();
    assert_eq!(decoder.append_field("n", &mut field), Ok(true));
    assert_eq!(field, [&[0x12, b'n', 0][..], &3_i64.to_le_bytes()].concat());
    assert!(decoder.is_at_end());
}

#[test]
fn hostile_nesting_encodes_and_decodes() {
    let mut value = bson!(1);
    for level in 0..400 {
        value = if level % 2 == 0 {
            bson!([value])
        } else {
            bson!({ "a": value })
        };
    }
    let (key, types) = encode_all(std::slice::from_ref(&value), KeyOrdering::ASCENDING);
    assert_eq!(value_length(&key, Ascending), Ok(key.len()));
    assert_eq!(
        decode_key(&key, types.as_bytes(), KeyOrdering::ASCENDING).unwrap(),
        [Some(value)]
    );
}

/// All values of the ranges that a planner asks for, against the comparison itself.
#[test]
fn intervals_hold_exactly_the_values_asked_for() {
    let values = [
        Bson::MinKey,
        bson!(null),
        bson!(f64::NAN),
        bson!(f64::NEG_INFINITY),
        bson!(-1),
        bson!(0),
        bson!(0.5),
        bson!(5),
        bson!(f64::INFINITY),
        bson!(""),
        bson!("a"),
        bson!("a\0"),
        bson!("a\u{1}"),
        bson!("ab"),
        bson!({}),
        bson!([]),
        bson!(false),
        bson!(true),
        Bson::MaxKey,
    ];
    let number = canonical_type(bson::spec::ElementType::Int32);
    let prefix = raw(&bson!("p"));
    let prefix = [prefix.as_raw_bson_ref()];
    for directions in [
        [Ascending, Ascending],
        [Ascending, Descending],
        [Descending, Ascending],
        [Descending; 2],
    ] {
        let ordering = KeyOrdering::new(directions);
        let key_of = |first: &Bson, value: &Bson, id: u64| {
            let mut key = encode_all(&[first.clone(), value.clone()], ordering).0;
            append_record_id(&mut key, id);
            key
        };
        let check = |lower: Edge<'_>, upper: Edge<'_>, holds: &dyn Fn(&Bson) -> bool| {
            let interval = KeyInterval::new(&prefix, lower, upper, ordering, None);
            for value in &values {
                for id in [0, u64::MAX] {
                    let inside = interval.contains(&key_of(&bson!("p"), value, id));
                    assert_eq!(
                        inside,
                        holds(value),
                        "{value} in {lower:?} to {upper:?}, {directions:?}"
                    );
                    for other in [bson!("o"), bson!("p\0"), bson!("q")] {
                        assert!(!interval.contains(&key_of(&other, value, id)), "another prefix");
                    }
                }
            }
        };
        for bound in &values {
            let bound_raw = raw(bound);
            let reference = bound_raw.as_raw_bson_ref();
            check(Edge::Excluded(reference), Edge::Open, &|v| order(v, bound).is_gt());
            check(Edge::Included(reference), Edge::Open, &|v| order(v, bound).is_ge());
            check(Edge::Open, Edge::Excluded(reference), &|v| order(v, bound).is_lt());
            check(Edge::Open, Edge::Included(reference), &|v| order(v, bound).is_le());
            check(Edge::Included(reference), Edge::Included(reference), &|v| {
                order(v, bound).is_eq()
            });
        }
        let is_number = |v: &Bson| canonical_type(v.element_type()) == number;
        check(Edge::Bracket(number), Edge::Bracket(number), &is_number);
        check(Edge::Excluded(RawBsonRef::Int32(0)), Edge::Bracket(number), &|v| {
            is_number(v) && order(v, &bson!(0)).is_gt()
        });
        check(Edge::Open, Edge::Open, &|_| true);
    }
    assert_eq!(
        KeyInterval::new(&[], Edge::Open, Edge::Open, KeyOrdering::ASCENDING, None),
        KeyInterval {
            start: Bound::Unbounded,
            end: Bound::Unbounded
        }
    );
}

#[test]
fn bounds_stand_before_and_after_what_starts_alike() {
    let ordering = KeyOrdering::ASCENDING;
    let values = [RawBsonRef::Int32(7)];
    let before = encode_bound(&values, Discriminator::Before, ordering, None);
    let after = encode_bound(&values, Discriminator::After, ordering, None);
    let longer = encode_all(&[bson!(7), Bson::MaxKey], ordering).0;
    assert!(before <= encode_all(&[bson!(7)], ordering).0 && before < longer && longer < after);
    assert!(after < encode_all(&[bson!(7.5)], ordering).0);
    assert_eq!(successor(vec![1, 0xFF]), Some(vec![2]));
    assert_eq!(successor(vec![0xFF]), None);
}

/// The numbers of the format, as `docs/formats/keys.md` describes them. A difference here is a format change.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own checked-in file")]
fn layout_is_as_the_snapshot_says() {
    let mut text = String::from("# canonical type: first bytes\n");
    for canonical in 1..=17 {
        let (first, end) = lead_range(canonical);
        writeln!(text, "{canonical}: {first:#04x}..{end:#04x}").unwrap();
    }
    writeln!(text, "\n# constants").unwrap();
    let constants = [
        ("END", u32::from(format::END)),
        ("ESCAPE", u32::from(format::ESCAPE)),
        ("SHORT_LENGTH_MAX", format::SHORT_LENGTH_MAX as u32),
        ("LONG_LENGTH", u32::from(format::LONG_LENGTH)),
        ("TAIL_BYTES", format::TAIL_BYTES as u32),
        ("RECORD_ID_BYTES", RECORD_ID_BYTES as u32),
        ("FIELDS_MAX", FIELDS_MAX as u32),
        ("DEPTH_MAX", crate::order::DEPTH_MAX),
        ("FRACTION_BITS", crate::number::FRACTION_BITS),
        ("TAIL_BIAS", crate::number::TAIL_BIAS as u32),
        ("number INT64", u32::from(format::number_code::INT64)),
        ("number DOUBLE", u32::from(format::number_code::DOUBLE)),
        ("number DECIMAL", u32::from(format::number_code::DECIMAL)),
        (
            "number DOUBLE_MINUS_ZERO",
            u32::from(format::number_code::DOUBLE_MINUS_ZERO),
        ),
        ("number DECIMAL_RAW", u32::from(format::number_code::DECIMAL_RAW)),
        ("string SYMBOL", u32::from(format::string_code::SYMBOL)),
        ("null MISSING", u32::from(format::null_code::MISSING)),
    ];
    for (name, value) in constants {
        writeln!(text, "{name} = {value}").unwrap();
    }
    writeln!(text, "\n# values: ascending; descending; type bits").unwrap();
    let mut values = vec![Bson::MinKey, Bson::Undefined, Bson::Null];
    values.extend([
        bson!(f64::NAN),
        bson!(f64::NEG_INFINITY),
        decimal("-1E+400"),
        bson!(-1e300),
        bson!(i64::MIN),
    ]);
    values.extend([
        bson!(-1_000_000_000_000_i64),
        bson!(-1.5),
        bson!(-1),
        bson!(-0.5),
        bson!(0),
        bson!(-0.0),
        decimal("-0.00"),
    ]);
    values.extend([
        decimal("1E-6176"),
        bson!(5e-324),
        decimal("0.1"),
        bson!(0.1),
        decimal("0.50"),
        bson!(1),
        bson!(1_i64),
    ]);
    values.extend([
        bson!(1.0),
        decimal("1.0"),
        bson!(1.5),
        decimal("1.1"),
        decimal("1.10"),
        bson!(127),
        bson!(128),
    ]);
    values.extend([
        bson!(65536),
        bson!(i64::MAX),
        bson!(9223372036854775808.0),
        decimal("1E+400"),
        bson!(f64::INFINITY),
    ]);
    values.extend([
        bson!("a"),
        bson!("\0\u{1}\u{2}"),
        Bson::Symbol("a".to_owned()),
        bson!({"a": 1, "b": "x"}),
        bson!([1, [2.0]]),
    ]);
    values.push(Bson::Binary(bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: vec![1, 2],
    }));
    values.push(Bson::Binary(bson::Binary {
        subtype: bson::spec::BinarySubtype::BinaryOld,
        bytes: vec![1, 2],
    }));
    values.extend([Bson::ObjectId([5; 12].into()), bson!(false), bson!(true)]);
    values.push(Bson::DateTime(bson::DateTime::from_millis(-1)));
    values.push(Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }));
    let c = |text: &str| bson::raw::CString::try_from(text.to_owned()).unwrap();
    values.push(Bson::RegularExpression(bson::Regex {
        pattern: c("^a"),
        options: c("i"),
    }));
    values.push(testing::db_pointer("d.c", [6; 12]));
    values.push(Bson::JavaScriptCode("f()".to_owned()));
    let scope = bson::doc! { "x": 1 };
    values.push(Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
        code: "f()".to_owned(),
        scope,
    }));
    values.push(Bson::MaxKey);
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    for value in values {
        let (key, types) = encode_all(std::slice::from_ref(&value), KeyOrdering::ASCENDING);
        let name = format!("{value:?}").replace('\0', "\\0");
        writeln!(
            text,
            "{name}: {}; {}; {}",
            hex(&key),
            hex(&encode(&value, Descending)),
            hex(types.as_bytes())
        )
        .unwrap();
    }
    let path = "testdata/layout.snapshot";
    if std::env::var_os("TENON_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let snapshot = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, snapshot, "the key format differs from testdata/layout.snapshot");
}

proptest! {
    #![proptest_config(testing::config())]

    #[test]
    fn bytes_order_as_values_do((a, b) in testing::pair()) {
        let expected = order(&a, &b);
        prop_assert_eq!(encode(&a, Ascending).cmp(&encode(&b, Ascending)), expected);
        prop_assert_eq!(encode(&a, Descending).cmp(&encode(&b, Descending)), expected.reverse());
    }

    #[test]
    fn no_value_is_a_prefix_of_another((a, b) in testing::pair(), descending in any::<bool>()) {
        let direction = if descending { Descending } else { Ascending };
        let (a_bytes, b_bytes) = (encode(&a, direction), encode(&b, direction));
        prop_assert!(a_bytes == b_bytes || !a_bytes.starts_with(&b_bytes) && !b_bytes.starts_with(&a_bytes));
        prop_assert!((0x04..=0xFB).contains(&a_bytes[0]));
        let both = [a_bytes.as_slice(), &b_bytes].concat();
        prop_assert_eq!(value_length(&both, direction), Ok(a_bytes.len()));
        prop_assert!(value_length(&a_bytes[..a_bytes.len() - 1], direction).is_err());
    }

    #[test]
    fn compound_keys_order_field_by_field(
        pairs in prop::collection::vec(testing::pair(), 1..4),
        shared in 0..4_usize,
        directions in any::<u32>(),
    ) {
        let ordering = KeyOrdering(directions);
        let a: Vec<Bson> = pairs.iter().map(|pair| pair.0.clone()).collect();
        let b: Vec<Bson> = pairs
            .iter()
            .enumerate()
            .map(|(index, pair)| if index < shared { pair.0.clone() } else { pair.1.clone() })
            .collect();
        let expected = a.iter().zip(&b).enumerate().fold(Ordering::Equal, |so_far, (index, (a, b))| {
            let order = order(a, b);
            so_far.then(if ordering.field(index) == Descending { order.reverse() } else { order })
        });
        prop_assert_eq!(encode_all(&a, ordering).0.cmp(&encode_all(&b, ordering).0), expected);
    }

    #[test]
    fn keys_decode_to_what_was_encoded(values in prop::collection::vec(testing::value(), 1..4), directions in any::<u32>()) {
        let ordering = KeyOrdering(directions);
        let (key, types) = encode_all(&values, ordering);
        let decoded = decode_key(&key, types.as_bytes(), ordering);
        let decoded = decoded.map_err(|error| TestCaseError::fail(format!("{error}")))?;
        prop_assert_eq!(decoded.len(), values.len());
        for (value, decoded) in values.iter().zip(&decoded) {
            let decoded = decoded.as_ref().ok_or_else(|| TestCaseError::fail("missing"))?;
            prop_assert!(same(value, decoded), "{:?} became {:?}", value, decoded);
        }
    }

    #[test]
    fn damaged_keys_are_errors_or_values(
        value in testing::value(),
        cut in any::<prop::sample::Index>(),
        patch in (any::<prop::sample::Index>(), any::<u8>()),
        types in prop::collection::vec(prop_oneof![0_u8..7, any::<u8>()], 0..8),
    ) {
        let mut key = encode(&value, Ascending);
        let at = patch.0.index(key.len());
        key[at] = patch.1;
        let decoded = decode_key(&key, &types, KeyOrdering::ASCENDING);
        let length = value_length(&key, Ascending);
        prop_assert!(length.is_ok_and(|length| length <= key.len()) || decoded.is_err());
        key.truncate(cut.index(key.len() + 1));
        let _ = decode_key(&key, &types, KeyOrdering(u32::MAX));
        let _ = RawDocument::from_bytes(&key).map(|document| compare(RawBsonRef::Document(document), RawBsonRef::Null));
    }
}

#[test]
fn every_lead_byte_is_of_one_type() {
    let mut last = 0x04;
    for canonical in 1..=17 {
        let (first, end) = lead_range(canonical);
        assert!(last <= first && first < end && end <= 0xFB, "{canonical}");
        last = end;
    }
    assert_eq!(lead_range(17).0, lead::MAX_KEY);
}
