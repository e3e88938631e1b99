#![allow(clippy::unwrap_used)]
//! Columns written by hand, by the tables of the format.

use super::*;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};

const COUNTED: u8 = 0x80;

fn raw_of(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

/// An element without a name.
fn value(value: impl Into<Bson>) -> Vec<u8> {
    let bytes = raw_of(&doc! { "": value.into() }).into_bytes();
    bytes[4..bytes.len() - 1].to_vec()
}

fn block(selector: u64, rest: u64) -> Vec<u8> {
    (rest << 4 | selector).to_le_bytes().to_vec()
}

/// A block of one number.
fn one(number: u64) -> Vec<u8> {
    block(14, number)
}

/// Numbers of four bits; the rest of the block has no values.
fn fours(numbers: &[u64]) -> Vec<u8> {
    let mut rest = 0;
    for place in 0..15 {
        rest |= numbers.get(place).copied().unwrap_or(15) << (4 * place);
    }
    block(4, rest)
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn decoded(parts: &[Vec<u8>]) -> Result<Document, QueryError> {
    let mut bytes = parts.concat();
    bytes.push(0);
    let mut out = Vec::new();
    let frame = Frame::begin(&mut out);
    decode(&bytes, &mut out, &mut VALUES_MAX.clone())?;
    frame.finish(&mut out);
    Ok(Document::try_from(&*RawDocumentBuf::from_bytes(out).unwrap()).unwrap())
}

/// By row number, as a bucket's column has it.
fn rows(values: &[Option<Bson>]) -> Document {
    let rows = values.iter().enumerate();
    rows.filter_map(|(row, value)| Some((row.to_string(), value.clone()?)))
        .collect()
}

fn some<T: Into<Bson>>(values: impl IntoIterator<Item = T>) -> Vec<Option<Bson>> {
    values.into_iter().map(|value| Some(value.into())).collect()
}

#[test]
fn a_published_column_has_what_it_says() {
    // A double, and blocks by every kind of selector that has zeros: a run, two bits, seven bits, sixty bits.
    let column = [
        value(2.0),
        vec![0x93],
        0x7F_u64.to_le_bytes().to_vec(),
        2_u64.to_le_bytes().to_vec(),
        7_u64.to_le_bytes().to_vec(),
        14_u64.to_le_bytes().to_vec(),
    ];
    assert_eq!(decoded(&column).unwrap(), rows(&some(vec![2.0; 1000])));
}

#[test]
fn deltas_are_added_and_rows_may_be_left_out() {
    let numbers = [vec![COUNTED], fours(&[zigzag(3), 0, 15, zigzag(-5)])].concat();
    let expected = [Some(7), Some(10), Some(10), None, Some(5)];
    for (first, made) in [
        (Bson::Int32(7), (|n: i64| Bson::Int32(n as i32)) as fn(i64) -> Bson),
        (Bson::Int64(7), Bson::Int64),
    ] {
        let expected: Vec<_> = expected.iter().map(|n| n.map(made)).collect();
        assert_eq!(decoded(&[value(first), numbers.clone()]).unwrap(), rows(&expected));
    }
    let doubles = [vec![0xA0], fours(&[zigzag(5), zigzag(-7)])].concat();
    assert_eq!(decoded(&[value(1.5), doubles]).unwrap(), rows(&some([1.5, 2.0, 1.3])));
    let bools = [vec![COUNTED], fours(&[zigzag(1), zigzag(-1)])].concat();
    assert_eq!(
        decoded(&[value(false), bools]).unwrap(),
        rows(&some([false, true, false]))
    );
    // A value of another type, and one that is only repeated.
    let column = [
        value("long enough not to be a number"),
        vec![COUNTED],
        fours(&[0, 0]),
        value(Bson::Null),
        value(1),
    ];
    let long = Bson::from("long enough not to be a number");
    let expected = [long.clone(), long.clone(), long, Bson::Null, Bson::Int32(1)];
    let mut found = decoded(&column).unwrap();
    // What no row has does not count, but for its place.
    assert_eq!(found.remove("16"), Some(Bson::Null));
    assert_eq!(found.remove("17"), Some(Bson::Int32(1)));
    assert_eq!(found, rows(&some(expected[..3].to_vec())));
}

#[test]
fn times_and_ids_have_deltas_of_deltas() {
    let date = |ms| Bson::DateTime(DateTime::from_millis(ms));
    let column = [value(date(1000)), vec![COUNTED], fours(&[zigzag(5), 0, 0, zigzag(-2)])];
    assert_eq!(
        decoded(&column).unwrap(),
        rows(&[1000, 1005, 1010, 1015, 1018].map(|ms| Some(date(ms))))
    );
    let id = |counter: u8| Bson::ObjectId(ObjectId::from_bytes([0, 0, 0, 9, 1, 2, 3, 4, 5, 0, 0, counter]));
    let column = [value(id(7)), vec![COUNTED], fours(&[zigzag(1), 0])];
    assert_eq!(
        decoded(&column).unwrap(),
        rows(&[7, 8, 9].map(|counter| Some(id(counter))))
    );
    // A run of deltas repeats the one before it, from the blocks of another control byte, too.
    let column = [
        value(date(0)),
        vec![COUNTED],
        one(zigzag(10)),
        vec![COUNTED],
        one(0),
        vec![COUNTED],
        block(15, 0),
    ];
    let expected: Vec<_> = [0]
        .into_iter()
        .chain((1..=122).map(|n| n * 10))
        .map(|ms| Some(date(ms)))
        .collect();
    assert_eq!(decoded(&column).unwrap(), rows(&expected));
}

#[test]
fn wide_values_have_wide_deltas() {
    let text = |text: &str| -> i128 { text.bytes().fold(0, |number, byte| number << 8 | i128::from(byte)) };
    let delta = text("ac") - text("ab");
    assert_eq!(delta, 1);
    let column = [value("ab"), vec![COUNTED], fours(&[zigzag(1)])];
    assert_eq!(decoded(&column).unwrap(), rows(&some(["ab", "ac"])));
    // Five bits count nibbles of zeros: "b" behind 15 letters is one with 120 zero bits.
    let number = zigzag(1) << 5 | 30;
    let column = [value("abcdefghijklmnop"), vec![COUNTED], block(8, 13 | number << 4)];
    assert_eq!(
        decoded(&column).unwrap(),
        rows(&some(["abcdefghijklmnop", "bbcdefghijklmnop"]))
    );
}

#[test]
fn documents_come_leaf_by_leaf() {
    let reference = raw_of(&doc! { "a": 1, "s": { "b": 5.0 }, "e": {} }).into_bytes();
    // The first needs a block of each leaf; `b` is missing in the second row, with the document around it.
    let column = [
        vec![0xF1],
        reference,
        vec![COUNTED],
        block(13, zigzag(0) | zigzag(2) << 30),
        vec![0x90],
        block(13, zigzag(1) | ((1 << 30) - 1) << 30),
        vec![0],
        value(3),
    ];
    let expected = [
        Bson::from(doc! { "a": 1, "s": { "b": 6.0 }, "e": {} }),
        Bson::from(doc! { "a": 3, "e": {} }),
        Bson::Int32(3),
    ];
    assert_eq!(decoded(&column).unwrap(), rows(&some(expected)));
}

#[test]
fn a_bucket_is_one_of_version_one_behind() {
    let binary = |parts: &[Vec<u8>]| {
        let mut bytes = parts.concat();
        bytes.push(0);
        let subtype = bson::spec::BinarySubtype::Column;
        Bson::Binary(bson::Binary { subtype, bytes })
    };
    let date = |ms| Bson::DateTime(DateTime::from_millis(ms));
    let compressed = |v: Bson| {
        doc! {
            "_id": ObjectId::from_bytes([0; 12]),
            "control": { "version": 2, "min": { "t": date(0), "v": 1 }, "max": { "t": date(1500), "v": 4 }, "count": 3 },
            "meta": "m",
            "data": {
                "t": binary(&[value(date(500)), vec![COUNTED | 1], [one(zigzag(500)), one(0)].concat()]),
                "v": v,
            },
        }
    };
    let options = doc! { "timeseries": { "timeField": "t", "metaField": "m" } };
    let options = storage::TimeseriesOptions::of(&raw_of(&options)).unwrap();
    let bucket = raw_of(&compressed(binary(&[value(1), vec![COUNTED], fours(&[15, zigzag(3)])])));
    let plain = RawDocumentBuf::from_bytes(uncompressed(&bucket).unwrap().into_owned()).unwrap();
    super::super::check_bucket(&plain, &options).unwrap();
    let found = super::super::measurements(&plain, &options).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|found| Document::try_from(&**found).unwrap())
        .collect();
    assert_eq!(
        found,
        [
            doc! { "t": date(500), "m": "m", "v": 1 },
            doc! { "t": date(1000), "m": "m" },
            doc! { "t": date(1500), "m": "m", "v": 4 },
        ]
    );
    assert_eq!(uncompressed(&plain).unwrap().as_ref(), plain.as_bytes(), "as it is");
    // Control fields that do not fit tell of what was decoded otherwise than it was encoded.
    let other = raw_of(&compressed(binary(&[value(1), vec![COUNTED], fours(&[15, zigzag(4)])])));
    let other = RawDocumentBuf::from_bytes(uncompressed(&other).unwrap().into_owned()).unwrap();
    assert!(super::super::check_bucket(&other, &options).is_err());
}

#[test]
fn no_bytes_make_it_stumble() {
    let column = [
        value(1),
        vec![COUNTED],
        fours(&[1, 2, 3]),
        vec![0xF1],
        raw_of(&doc! { "a": 1 }).into_bytes(),
    ]
    .concat();
    for end in 0..column.len() {
        assert!(decoded(&[column[..end].to_vec()]).is_ok() || end > 0);
        for byte in 0..=255 {
            let mut damaged = column[..end].to_vec();
            damaged.push(byte);
            drop(decoded(&[damaged]));
        }
    }
    // Runs of runs end at a bound.
    let runs = [vec![0x8F], block(15, 15).repeat(16)].concat();
    assert!(decoded(&[value(1), runs.repeat(10)]).is_err());
}

/// A document in documents.
fn nested(levels: usize) -> Document {
    (1..levels).fold(doc! {}, |inner, _| doc! { "a": inner })
}

#[test]
fn values_nest_as_deep_as_stored_documents_may() {
    let levels = |levels| decoded(&[value(nested(levels))]);
    assert!(levels(DEPTH_MAX).is_ok() && levels(DEPTH_MAX + 1).is_err());
    // Made as bytes: too deep for what would build it.
    let mut deep = raw::EMPTY_DOCUMENT.to_vec();
    for _ in 0..5000 {
        let length = (deep.len() as i32 + 8).to_le_bytes();
        deep = [&length, [0x04, b'0', 0].as_slice(), &deep, &[0]].concat();
    }
    let deep = [vec![0x04, 0], deep].concat();
    assert!(decoded(std::slice::from_ref(&deep)).is_err());
    let column = [vec![0xF0], raw_of(&doc! { "a": 1 }).into_bytes(), deep, vec![0]];
    assert!(decoded(&column).is_err());
    // What is below the bound in its column, and no longer in its bucket.
    let bytes = [value(nested(DEPTH_MAX)), vec![0]].concat();
    let subtype = bson::spec::BinarySubtype::Column;
    let bucket = raw_of(&doc! {
        "control": { "version": 2 },
        "data": { "v": Bson::Binary(bson::Binary { subtype, bytes }) },
    });
    assert!(uncompressed(&bucket).is_err());
}

/// 129 bytes of runs stand for 30,720 values: none is made before a row needs it.
#[test]
fn runs_are_not_expanded() {
    let runs = [vec![0x8F], block(15, 15).repeat(16)].concat();
    let mut stream = Stream::new(Some(Value {
        kind: 0x0A,
        bytes: Vec::new(),
    }));
    assert!(stream.load(0x8F, &runs[1..]).unwrap().is_empty());
    assert_eq!(stream.slots.blocks.len(), 16);
    for _ in 0..16 * 1920 {
        assert!(stream.next().unwrap().is_some());
    }
    assert!(stream.next().unwrap().is_none());
}

#[test]
fn leaves_and_values_are_bounded() {
    let wide = |leaves: usize| -> Document { (0..leaves).map(|n| (n.to_string(), Bson::Null)).collect() };
    let refused = |column: &[Vec<u8>]| {
        let error = decoded(column).unwrap_err().to_string();
        assert!(error.contains("larger than a bucket may be"), "{error}");
    };
    refused(&[vec![0xF0], raw_of(&wide(LEAVES_MAX + 1)).into_bytes(), vec![0]]);
    // No leaf has a value, so that there are no bytes.
    let missing = [vec![0x8F], block(1, (1 << 60) - 1), block(15, 15).repeat(15)].concat();
    let column = [
        vec![0xF0],
        raw_of(&wide(1000)).into_bytes(),
        missing.repeat(1000),
        vec![0],
    ];
    refused(&column);
}

/// A bucket with one row, and a column `a` of these bytes.
fn bucket_with(column: &[u8]) -> RawDocumentBuf {
    let binary = |bytes: Vec<u8>| bson::Binary {
        subtype: bson::spec::BinarySubtype::Column,
        bytes,
    };
    let date = || Bson::DateTime(DateTime::from_millis(60_000));
    let times = [value(date()), vec![0]].concat();
    raw_of(&doc! {
        "_id": ObjectId::from_bytes([0; 12]),
        "control": { "version": 2, "min": { "t": date() }, "max": { "t": date() }, "count": 1 },
        "data": { "t": binary(times), "a": binary(column.to_vec()) },
    })
}

/// Values of columns are bytes of a binary to whoever validated the bucket. What clients cannot read would make every
/// read of the collection fail.
#[test]
fn values_that_may_not_be_stored_are_refused() {
    let document = |inner: &[u8]| [&[3, 0][..], &(inner.len() as i32 + 5).to_le_bytes(), inner, &[0, 0]].concat();
    assert!(uncompressed(&bucket_with(&document(b"\x08x\0\x01"))).is_ok());
    for column in [
        vec![8, 0, 7, 0],
        document(b"\x08x\0\x07"),
        document(b"\x02x\0\x02\0\0\0\xE9\0"),
        document(b"\x0A\xE9\0"),
        b"\x02\0\x02\0\0\0\xE9\0\0".to_vec(),
        // What is no BSON at all.
        b"\x03\0\x05\0\0\0\x01\0".to_vec(),
        b"\xF1\x06\0\0\0\0\0\0".to_vec(),
    ] {
        if matches!(column[..], [2 | 8, ..]) {
            // Who does not store it may look at it.
            let plain = bucket_with(&column);
            let plain = with_plain_columns(&plain).unwrap();
            assert!(wire::validate_structure(&plain).unwrap().is_some());
        }
        let error = uncompressed(&bucket_with(&column)).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::BadValue), "{column:?}: {error}");
        assert!(
            error.to_string().contains("a compressed column cannot be read"),
            "{error}"
        );
    }
}
