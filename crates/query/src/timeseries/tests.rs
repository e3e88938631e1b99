#![allow(clippy::unwrap_used)]
//! Buckets of random measurements: what goes in comes out, and no predicate on buckets leaves out what is looked for.

use super::*;
use crate::exec::tests::fixture::{pick, seeds};
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::{EvaluationContext, QueryError};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Decimal128, Document, RawDocument, RawDocumentBuf, doc};
use bytes::Bytes;
use std::sync::Arc;
use storage::TimeseriesOptions;
use vfs::SeededRandom;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

fn options() -> Arc<TimeseriesOptions> {
    let options = doc! { "timeseries": { "timeField": "t", "metaField": "m" } };
    TimeseriesOptions::of(&raw(&options)).unwrap()
}

fn context() -> ExpressionContext {
    ExpressionContext::new(0, Arc::new(SeededRandom::new(11)))
}

/// As inserting does it: the youngest bucket that takes a measurement.
fn bucketed(measurements: &[RawDocumentBuf], options: &TimeseriesOptions) -> Vec<OpenBucket> {
    let mut buckets: Vec<OpenBucket> = Vec::new();
    for measurement in measurements {
        let measurement = Measurement::of(measurement, options).unwrap();
        let admits = |bucket: &&mut OpenBucket| bucket.admits(&measurement, options).unwrap();
        match buckets.iter_mut().rev().find(admits) {
            Some(bucket) => bucket.add(&measurement, options).unwrap(),
            None => {
                let mut bucket = OpenBucket::begin(&measurement, options, ObjectId::new());
                bucket.add(&measurement, options).unwrap();
                buckets.push(bucket);
            }
        }
    }
    buckets
}

fn stored(bucket: &OpenBucket) -> RawDocumentBuf {
    RawDocumentBuf::from_bytes(bucket.to_document()).unwrap()
}

fn date(ms: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(ms))
}

const TIMES: [i64; 7] = [
    1_600_000_000_000,
    0,
    -5_000_000_000,
    2_500_000_000_000,
    5_000_000_000_000,
    i64::MAX - 10_000,
    i64::MIN + 4_000_000,
];

fn time(random: &SeededRandom) -> i64 {
    let near = TIMES[pick(random, TIMES.len() as u64) as usize];
    near.saturating_add(pick(random, 9000) as i64 * 1000 - 4_000_000 + pick(random, 3) as i64)
}

fn scalar(random: &SeededRandom) -> Bson {
    match pick(random, 14) {
        0 => Bson::Int32(pick(random, 9) as i32 - 4),
        1 => Bson::Int64(pick(random, 9) as i64 - 4),
        2 => Bson::Double(pick(random, 9) as f64 / 2.0),
        3 => Bson::Double(f64::NAN),
        4 => Bson::Decimal128(
            ["NaN", "1.5", "-2", "Infinity"][pick(random, 4) as usize]
                .parse::<Decimal128>()
                .unwrap(),
        ),
        5 => Bson::String(["", "a", "ab", "b"][pick(random, 4) as usize].to_owned()),
        6 => Bson::Null,
        7 => Bson::Boolean(pick(random, 2) == 0),
        8 => date(pick(random, 5) as i64),
        9 => Bson::ObjectId(ObjectId::from_bytes([pick(random, 3) as u8; 12])),
        10 => Bson::MinKey,
        11 => Bson::MaxKey,
        _ => Bson::Int32(pick(random, 5) as i32),
    }
}

fn value(random: &SeededRandom, depth: u32) -> Bson {
    match pick(random, 8) {
        0 if depth < 3 => Bson::Array((0..pick(random, 4)).map(|_| value(random, depth + 1)).collect()),
        1 if depth < 3 => {
            let mut document = Document::new();
            for name in ["x", "y"] {
                if pick(random, 3) > 0 {
                    document.insert(name, value(random, depth + 1));
                }
            }
            Bson::Document(document)
        }
        _ => scalar(random),
    }
}

fn measurement(random: &SeededRandom, id: i32) -> RawDocumentBuf {
    let mut document = doc! { "_id": id };
    for name in ["t", "m", "a", "b", "c"] {
        match name {
            "t" => drop(document.insert("t", date(time(random)))),
            "m" if pick(random, 3) > 0 => drop(document.insert("m", value(random, 1))),
            name if pick(random, 3) > 0 => drop(document.insert(name, value(random, 0))),
            _ => {}
        }
    }
    raw(&document)
}

fn filter(random: &SeededRandom, depth: u32) -> Document {
    let several = |random: &SeededRandom| -> Bson {
        let parts = (0..1 + pick(random, 3)).map(|_| Bson::Document(filter(random, depth + 1)));
        Bson::Array(parts.collect())
    };
    if pick(random, 12) == 0 {
        return doc! { ["m", "a"][pick(random, 2) as usize]: { "$in": [] } };
    }
    let paths = ["a", "b", "c", "a.x", "b.y.x", "a.0", "b.1.x", "c.x.0", "_id"];
    let operators = ["$eq", "$lt", "$lte", "$gt", "$gte", "$ne"];
    let operator = operators[pick(random, 6) as usize];
    let path = paths[pick(random, paths.len() as u64) as usize];
    match pick(random, 16) {
        0 if depth < 3 => doc! { "$or": several(random) },
        1 if depth < 3 => doc! { "$and": several(random) },
        2 if depth < 3 => doc! { "$nor": several(random) },
        3..6 => doc! { "t": { operator: date(time(random)) } },
        6 => doc! { "t": { "$in": [date(time(random)), date(time(random))] } },
        7 => doc! { "t": { operator: scalar(random) } },
        8 => doc! { ["m", "m.x", "m.0"][pick(random, 3) as usize]: { operator: value(random, 1) } },
        9 => doc! { "m": { "$exists": pick(random, 2) == 0 } },
        10 => doc! { path: { "$in": [scalar(random), scalar(random)] } },
        11 => doc! { path: { "$not": { operator: scalar(random) } } },
        12 => doc! { path: { "$elemMatch": { operator: scalar(random) } } },
        13 => doc! { path: { operator: value(random, 0) } },
        _ => doc! { path: { operator: scalar(random) } },
    }
}

/// The measurement as it comes back: the metaField's documents have their fields in order, the time comes first.
fn sorted_fields(document: &RawDocumentBuf) -> Document {
    fn ordered(value: Bson) -> Bson {
        match value {
            Bson::Document(document) => {
                let mut fields: Vec<_> = document
                    .into_iter()
                    .map(|(name, value)| (name, ordered(value)))
                    .collect();
                fields.sort_by(|a, b| a.0.cmp(&b.0));
                Bson::Document(fields.into_iter().collect())
            }
            Bson::Array(items) => Bson::Array(items.into_iter().map(ordered).collect()),
            other => other,
        }
    }
    match ordered(Bson::Document(Document::try_from(&**document).unwrap())) {
        Bson::Document(document) => document,
        _ => unreachable!("a document stays one"),
    }
}

#[test]
fn measurements_come_back_out_of_their_buckets() {
    for seed in seeds(40) {
        let random = SeededRandom::new(seed);
        let options = options();
        let measurements: Vec<_> = (0..200).map(|id| measurement(&random, id)).collect();
        let buckets = bucketed(&measurements, &options);
        let mut back = Vec::new();
        for bucket in &buckets {
            let document = stored(bucket);
            check_bucket(&document, &options).unwrap_or_else(|error| panic!("seed {seed}: {error} in {document:?}"));
            assert_eq!(measurements_in(&document, &options).unwrap(), bucket.rows() as u64);
            let bytes = document.as_bytes().len();
            assert!(bucket.bytes().abs_diff(bytes) < 128, "{} of {bytes}", bucket.bytes());
            let read = OpenBucket::read(&Bytes::copy_from_slice(document.as_bytes()), &options).unwrap();
            assert_eq!(
                read.to_document(),
                bucket.to_document(),
                "seed {seed}: read and written again"
            );
            back.extend(super::measurements(&document, &options).unwrap());
        }
        let bytes = |document: &Document| raw(document).into_bytes();
        let sorted = |documents: &[RawDocumentBuf]| {
            let mut sorted: Vec<_> = documents
                .iter()
                .map(|document| bytes(&sorted_fields(document)))
                .collect();
            sorted.sort();
            sorted
        };
        assert_eq!(sorted(&back), sorted(&measurements), "seed {seed}");
    }
}

/// What replaces a text need not sort where it did.
#[test]
fn a_rebuilt_bucket_has_the_extents_of_its_measurements() {
    let options = options();
    let text = |text: &str| raw(&doc! { "t": date(TIMES[0]), "m": { "k": "#" }, "v": text, "n": 1 });
    let measurements = [text("caf#"), text("caf\u{AC00}"), text("b")];
    let buckets = bucketed(&measurements, &options);
    assert_eq!(buckets.len(), 1, "one source, one time");
    let bucket = stored(&buckets[0]);
    let rebuilt_by = |each: &dyn Fn(&RawDocument) -> Option<RawDocumentBuf>| {
        let rebuilt = rebuilt::<QueryError>(&bucket, &options, &mut |measurement, put| {
            if let Some(measurement) = each(measurement) {
                assert!(put(&measurement)?);
            }
            Ok(())
        });
        rebuilt.unwrap()
    };
    let replaced = rebuilt_by(&|measurement| {
        let mut document = Document::try_from(measurement).unwrap();
        document.insert("m", doc! { "k": "\u{FFFD}" });
        let text = document.get_str("v").unwrap().replace('#', "\u{FFFD}");
        document.insert("v", text);
        Some(raw(&document))
    });
    let replaced = RawDocumentBuf::from_bytes(replaced.unwrap()).unwrap();
    check_bucket(&replaced, &options).unwrap();
    let back = super::measurements(&replaced, &options).unwrap();
    let texts: Vec<_> = back.iter().map(|document| document.get_str("v").unwrap()).collect();
    assert_eq!(texts, ["caf\u{FFFD}", "caf\u{AC00}", "b"]);
    assert_eq!(back[0].get_document("m").unwrap().get_str("k").unwrap(), "\u{FFFD}");
    let fewer = rebuilt_by(&|measurement| (measurement.get_str("v").ok() != Some("b")).then(|| measurement.to_owned()));
    let fewer = RawDocumentBuf::from_bytes(fewer.unwrap()).unwrap();
    check_bucket(&fewer, &options).unwrap();
    assert_eq!(measurements_in(&fewer, &options).unwrap(), 2);
    assert_eq!(rebuilt_by(&|_| None), None);
}

/// Two names that have become one made a column of two types, and a measurement with both cost the whole bucket.
#[test]
fn a_rebuilt_bucket_takes_no_measurement_of_other_types() {
    let options = options();
    let with = |more: Document| {
        let mut document = doc! { "t": date(TIMES[0]), "m": 1 };
        document.extend(more);
        raw(&document)
    };
    let measurements = [
        with(doc! { "a": 1 }),
        with(doc! { "b": "x" }),
        with(doc! { "b": "x", "a": 2 }),
        with(doc! { "c": { "a": 1 } }),
        with(doc! { "c": { "b": "x" } }),
        with(doc! { "d": { "b": 2 } }),
    ];
    let buckets = bucketed(&measurements, &options);
    assert_eq!(buckets.len(), 1, "one source, one time");
    let mut put_in = Vec::new();
    let rebuilt = rebuilt::<QueryError>(&stored(&buckets[0]), &options, &mut |measurement, put| {
        // Names are one byte, and values have none of this.
        let mut bytes = measurement.as_bytes().to_vec();
        while let Some(place) = bytes.windows(2).position(|pair| pair == b"b\0") {
            bytes[place] = b'a';
        }
        put_in.push(put(&RawDocumentBuf::from_bytes(bytes).unwrap())?);
        Ok(())
    });
    assert_eq!(put_in, [true, false, false, true, false, true]);
    let rebuilt = RawDocumentBuf::from_bytes(rebuilt.unwrap().unwrap()).unwrap();
    check_bucket(&rebuilt, &options).unwrap();
    assert_eq!(measurements_in(&rebuilt, &options).unwrap(), 3);
}

/// No bucket with a measurement that is looked for is left out; an exact predicate on buckets finds no others.
#[test]
fn predicates_on_buckets_are_sound() {
    let (mut left_out, mut exact) = (0, 0);
    for seed in seeds(60) {
        let random = SeededRandom::new(seed);
        let options = options();
        let measurements: Vec<_> = (0..150).map(|id| measurement(&random, id)).collect();
        let buckets: Vec<_> = bucketed(&measurements, &options).iter().map(stored).collect();
        for _ in 0..60 {
            let filter = filter(&random, 0);
            let Ok(matcher) = Matcher::parse(&raw(&filter), &context()) else {
                continue;
            };
            let fields = Fields {
                time: "t",
                meta: Some("m"),
                span_ms: options.span_ms(),
                is_collated: false,
            };
            let rewritten = rewrite(fields, matcher.root()).unwrap();
            let Some(of_buckets) = rewritten.buckets else {
                assert!(!rewritten.is_exact);
                continue;
            };
            let shown = of_buckets.to_document();
            let of_buckets = Matcher::from_expr(of_buckets, None);
            // What explain shows and plans are made of says the same.
            let parsed = Matcher::parse(&shown, &context()).unwrap();
            for bucket in &buckets {
                let evaluation = EvaluationContext::uninterrupted();
                let is_found = of_buckets.matches(bucket, &evaluation).unwrap();
                assert_eq!(
                    parsed.matches(bucket, &evaluation).unwrap(),
                    is_found,
                    "seed {seed}: {shown:?}"
                );
                for measurement in super::measurements(bucket, &options).unwrap() {
                    let is_wanted = matcher.matches(&measurement, &evaluation).unwrap();
                    assert!(
                        is_found || !is_wanted,
                        "seed {seed}: {filter} as {shown:?} leaves out {measurement:?} of {bucket:?}"
                    );
                    assert!(
                        !rewritten.is_exact || is_found == is_wanted,
                        "seed {seed}: {filter} as {shown:?} is not exact for {measurement:?}"
                    );
                }
                left_out += u64::from(!is_found);
            }
            exact += u64::from(rewritten.is_exact);
        }
    }
    assert!(
        left_out > 1000 && exact > 100,
        "{left_out} buckets left out, {exact} exact"
    );
}

#[test]
fn a_bucket_ends_at_its_span_its_rows_and_its_bytes() {
    let options = options();
    let at = |ms: i64, pad: usize| raw(&doc! { "t": date(ms), "m": 1, "v": "x".repeat(pad) });
    let fits = |bucket: &OpenBucket, document: &RawDocumentBuf| {
        bucket
            .admits(&Measurement::of(document, &options).unwrap(), &options)
            .unwrap()
    };
    let first = at(90_000, 1);
    let first = Measurement::of(&first, &options).unwrap();
    let mut bucket = OpenBucket::begin(&first, &options, ObjectId::new());
    bucket.add(&first, &options).unwrap();
    assert_eq!(bucket.begin_ms(), 60_000);
    assert!(fits(&bucket, &at(60_000, 1)) && !fits(&bucket, &at(59_999, 1)));
    assert!(fits(&bucket, &at(3_659_999, 1)) && !fits(&bucket, &at(3_660_000, 1)));
    assert!(!fits(&bucket, &raw(&doc! { "t": date(90_000), "m": 2 })));
    assert!(
        !fits(&bucket, &raw(&doc! { "t": date(90_000), "m": 1, "v": 7 })),
        "another type"
    );
    assert!(fits(&bucket, &at(90_000, 1 << 20)), "few large ones");
    for row in 1..BUCKET_MEASUREMENTS_MAX {
        let next = at(90_000 + row as i64, 1);
        assert!(fits(&bucket, &next), "row {row}");
        bucket
            .add(&Measurement::of(&next, &options).unwrap(), &options)
            .unwrap();
    }
    assert!(!fits(&bucket, &at(90_000, 1)), "as many rows as there may be");
    let mut wide = OpenBucket::begin(&first, &options, ObjectId::new());
    let next = at(90_000, 6_000);
    while fits(&wide, &next) {
        wide.add(&Measurement::of(&next, &options).unwrap(), &options).unwrap();
    }
    assert_eq!(wide.rows(), 19, "125 KiB, with the least and the greatest value");
    assert!(stored(&wide).as_bytes().len() < 125 * 1024);
}

/// MongoDB's `_id` of a bucket from before 1970 has the low 32 bits of its seconds; buckets are looked for by the `_id`
/// that Tenon gives them.
#[test]
fn a_bucket_that_comes_in_gets_the_id_of_its_time() {
    let options = options();
    for (begin, seconds) in [(-315_619_200_000, 0), (90_000, 60), (5_000_000_000_000, u32::MAX)] {
        let measurement = raw(&doc! { "t": date(begin), "v": 1 });
        let measurement = Measurement::of(&measurement, &options).unwrap();
        let mut bucket = OpenBucket::begin(&measurement, &options, ObjectId::new());
        bucket.add(&measurement, &options).unwrap();
        let own = stored(&bucket);
        check_bucket(&own, &options).unwrap();
        assert_eq!(adopted(&own, &options).unwrap().as_ref(), own.as_bytes(), "as it is");
        let mut foreign = Document::try_from(&*own).unwrap();
        let mut id = own.get_object_id("_id").unwrap().bytes();
        assert_eq!(id[..4], u32::to_be_bytes(seconds));
        id[..4].copy_from_slice(&0xED30_0880_u32.to_be_bytes());
        foreign.insert("_id", ObjectId::from_bytes(id));
        let foreign = raw(&foreign);
        check_bucket(&foreign, &options).unwrap_err();
        assert_eq!(adopted(&foreign, &options).unwrap().as_ref(), own.as_bytes());
    }
}

/// How many rows a bucket has is told by the length of its times; what else it has is not looked at.
#[test]
fn rows_are_counted_by_the_last_one() {
    let options = options();
    let first = raw(&doc! { "t": date(90_000) });
    let first = Measurement::of(&first, &options).unwrap();
    let mut bucket = OpenBucket::begin(&first, &options, ObjectId::new());
    let read = |document: &Document| {
        let bytes = raw(document).into_bytes();
        OpenBucket::read(&Bytes::from(bytes), &options).map(|bucket| bucket.rows())
    };
    for rows in 1..=BUCKET_MEASUREMENTS_MAX {
        bucket.add(&first, &options).unwrap();
        let document = Document::try_from(&*stored(&bucket)).unwrap();
        assert_eq!(read(&document).unwrap(), rows);
        if rows % 97 > 1 {
            continue;
        }
        for broken in [("1001", date(1)), (&*rows.to_string(), Bson::Int32(1))] {
            let mut document = document.clone();
            let times = document
                .get_document_mut("data")
                .unwrap()
                .get_document_mut("t")
                .unwrap();
            times.insert(broken.0, broken.1);
            let error = read(&document).unwrap_err();
            assert!(error.to_string().contains("gaps"), "{rows} rows: {error}");
            assert!(check_bucket(&raw(&document), &options).is_err());
        }
    }
}

/// A value that no other is compared with is in the column, and the least and the greatest one.
#[test]
fn a_few_large_measurements_fit_into_a_stored_document() {
    let options = options();
    let large = |name: &str, bytes: usize| raw(&doc! { "t": date(90_000), name: "x".repeat(bytes) });
    let mut buckets = Vec::new();
    for (name, bytes) in [
        ("a", 1),
        ("b", 3 << 20),
        ("c", 3 << 20),
        ("d", 1 << 20),
        ("d", 4 << 20),
        ("b", 1 << 20),
    ] {
        buckets.push(large(name, bytes));
    }
    let buckets = bucketed(&buckets, &options);
    let rows: Vec<_> = buckets.iter().map(OpenBucket::rows).collect();
    assert_eq!(rows, [2, 2, 2]);
    for bucket in &buckets {
        assert!(bucket.to_document().len() <= 16 << 20);
    }
}

#[test]
fn key_patterns_are_translated_and_back() {
    let options = options();
    for (key, of_buckets) in [
        (doc! { "m": 1 }, doc! { "meta": 1 }),
        (
            doc! { "m.a": -1, "t": 1 },
            doc! { "meta.a": -1, "control.min.t": 1, "control.max.t": 1 },
        ),
        (doc! { "t": -1 }, doc! { "control.max.t": -1, "control.min.t": -1 }),
        (doc! { "v.x": 1 }, doc! { "control.min.v.x": 1, "control.max.v.x": 1 }),
        (doc! { "m": "hashed" }, doc! { "meta": "hashed" }),
        (
            doc! { "metal": 1 },
            doc! { "control.min.metal": 1, "control.max.metal": 1 },
        ),
    ] {
        let translated = index_key_of_buckets(&raw(&key), &options).unwrap();
        assert_eq!(translated, raw(&of_buckets));
        assert_eq!(index_key_of_measurements(&translated, &options).unwrap(), raw(&key));
    }
    for key in [doc! {}, doc! { "v": "2d" }, doc! { "$natural": 1 }, doc! { "$**": 1 }] {
        assert!(index_key_of_buckets(&raw(&key), &options).is_err(), "{key}");
    }
    for own in [
        doc! { "v": 1 },
        doc! { "control.min.v": 1 },
        doc! { "control.min.v": 1, "control.max.w": 1 },
    ] {
        assert_eq!(index_key_of_measurements(&raw(&own), &options), None, "{own}");
    }
}

#[test]
fn schemas_of_the_meta_field_are_asked_of_buckets() {
    let translated = |schema: Document| {
        let filter = raw(&doc! { "$jsonSchema": schema });
        let matcher = Matcher::parse(&filter, &context()).unwrap();
        meta_filter(&matcher, Some("m")).unwrap()
    };
    let schema = doc! { "bsonType": "object", "required": ["m"], "properties": { "m": { "required": ["m"] } } };
    let of_buckets =
        doc! { "bsonType": "object", "required": ["meta"], "properties": { "meta": { "required": ["m"] } } };
    assert_eq!(translated(schema), Some(raw(&doc! { "$jsonSchema": of_buckets })));
    for other in [
        doc! { "required": ["m.a"] },
        doc! { "required": ["m", "t"] },
        doc! { "properties": { "m": {}, "a": {} } },
        doc! { "minProperties": 1 },
        doc! { "required": ["m"], "additionalProperties": false },
    ] {
        assert_eq!(translated(other.clone()), None, "{other}");
    }
}

#[test]
fn a_bucket_has_each_column_once() {
    let options = options();
    let own = doc! {
        "_id": id_of(60_000, &[7; 8]),
        "control": { "version": 1, "min": { "t": date(60_000), "a": 1 }, "max": { "t": date(60_001), "a": 2 } },
        "meta": 1,
    };
    let with_columns = |columns: &[(&'static str, Document)]| {
        let mut data = RawDocumentBuf::new();
        for (name, column) in columns {
            data.append(bson::raw::CString::try_from(*name).unwrap(), raw(column));
        }
        let mut bucket = raw(&own);
        bucket.append(bson::raw::cstr!("data"), data);
        bucket
    };
    let times = || ("t", doc! { "0": date(60_000), "1": date(60_001) });
    check_bucket(&with_columns(&[times(), ("a", doc! { "0": 1, "1": 2 })]), &options).unwrap();
    for twice in [
        [times(), ("a", doc! { "0": 1 }), ("a", doc! { "1": 2 })],
        [times(), ("a", doc! { "0": 1, "1": 2 }), times()],
    ] {
        let error = check_bucket(&with_columns(&twice), &options).unwrap_err();
        assert!(error.to_string().contains("two columns"), "{error}");
    }
}

/// Buckets of earlier versions and of other servers may have another order: what others are deleted from, or added to,
/// keeps it.
#[test]
fn the_meta_field_of_a_stored_bucket_stays_as_it_is() {
    let options = options();
    let measurement = raw(&doc! { "t": date(60_000), "m": { "a": 1, "b": [{ "c": 2, "d": 3 }] } });
    let measurement = Measurement::of(&measurement, &options).unwrap();
    let mut bucket = OpenBucket::begin(&measurement, &options, ObjectId::new());
    bucket.add(&measurement, &options).unwrap();
    let ordered = stored(&bucket);
    assert_eq!(with_ordered_meta(&ordered).unwrap(), None);
    let mut unordered = Document::try_from(&*ordered).unwrap();
    unordered.insert("meta", doc! { "b": [{ "d": 3, "c": 2 }], "a": 1 });
    let unordered = raw(&unordered);
    let read = OpenBucket::read(&Bytes::copy_from_slice(unordered.as_bytes()), &options).unwrap();
    assert_eq!(read.to_document(), unordered.as_bytes());
    let mut kept = read.emptied(&options);
    kept.add(&measurement, &options).unwrap();
    assert_eq!(kept.to_document(), unordered.as_bytes());
    assert!(!read.admits(&measurement, &options).unwrap(), "it is of another source");
    assert_eq!(
        with_ordered_meta(&unordered).unwrap().as_deref(),
        Some(ordered.as_bytes())
    );
    assert_eq!(adopted(&unordered, &options).unwrap().as_ref(), ordered.as_bytes());
}
