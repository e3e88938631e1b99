//! What encoding, comparing, extracting and decoding cost, in nanoseconds.
//!
//! `cargo run --release -p keys --example key_costs`

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocumentBuf};
use bson::{Bson, bson, doc};
use keys::key::{KeyDecoder, encode_value, value_length};
use keys::{FieldOrder, IndexPattern, KeyExtractor, KeyOrdering, KeySet, compare};
use std::hint::black_box;
use std::time::Instant;

#[allow(clippy::disallowed_methods, reason = "a benchmark measures the machine's time")]
fn measure(name: &str, mut operation: impl FnMut()) {
    const ROUNDS: u32 = 300_000;
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| operation());
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    println!("{name:<44} {best:>8.1} ns");
}

fn raw(value: Bson) -> RawBson {
    RawBson::try_from(value).expect("it is BSON")
}

fn document() -> RawDocumentBuf {
    let mut document = doc! { "_id": ObjectId::from_bytes([7; 12]) };
    for field in 0..10 {
        document.insert(format!("field{field}"), "x".repeat(96));
    }
    document.insert("k", 4711);
    document.insert("tags", vec!["red", "green", "blue", "white", "black"]);
    document.insert("lines", (0..100).map(|i| doc! { "sku": i, "n": 1 }).collect::<Vec<_>>());
    RawDocumentBuf::try_from(&document).expect("it is BSON")
}

fn main() {
    let mut out = Vec::new();
    let values = [
        ("int 42", bson!(42)),
        ("int 1,000,000", bson!(1_000_000)),
        ("double 19.99", bson!(19.99)),
        ("decimal 19.99", Bson::Decimal128("19.99".parse().expect("a number"))),
        ("decimal 0.99", Bson::Decimal128("0.99".parse().expect("a number"))),
        ("ObjectId", Bson::ObjectId(ObjectId::from_bytes([7; 12]))),
        ("string of 10", bson!("abcdefghij")),
        ("string of 1000", bson!("x".repeat(1000))),
        ("date", Bson::DateTime(bson::DateTime::from_millis(1_700_000_000_000))),
    ];
    for (name, value) in values {
        let value = raw(value);
        measure(&format!("encode {name}"), || {
            out.clear();
            encode_value(
                &mut out,
                black_box(value.as_raw_bson_ref()),
                FieldOrder::Ascending,
                None,
            );
            black_box(&out);
        });
    }
    let pairs = [
        ("int, int", bson!(1), bson!(2)),
        ("int, double", bson!(1), bson!(1.5)),
        ("strings", bson!("abc"), bson!("abd")),
    ];
    for (name, a, b) in pairs {
        let (a, b) = (raw(a), raw(b));
        measure(&format!("compare {name}"), || {
            black_box(compare(black_box(a.as_raw_bson_ref()), black_box(b.as_raw_bson_ref())));
        });
    }
    let document = document();
    println!("document of {} bytes", document.as_bytes().len());
    let patterns = [
        ("_id", doc! { "_id": 1 }),
        ("k, behind 11 fields", doc! { "k": 1 }),
        ("k and field9 descending", doc! { "k": 1, "field9": -1 }),
        ("missing", doc! { "none": 1 }),
        ("5 array elements", doc! { "tags": 1 }),
        ("lines.sku, 100 elements", doc! { "lines.sku": 1 }),
    ];
    let mut keys = KeySet::new();
    for (name, pattern) in patterns {
        let pattern = RawDocumentBuf::try_from(&pattern).expect("it is BSON");
        let extractor = KeyExtractor::new(IndexPattern::parse(&pattern).expect("a pattern"), false, None);
        measure(&format!("extract {name}"), || {
            extractor.extract(black_box(&document), &mut keys).expect("it has keys");
            black_box(&keys);
        });
    }
    let mut key = Vec::new();
    for value in [RawBsonRef::Int32(4711), RawBsonRef::String("abcdefghij")] {
        encode_value(&mut key, value, FieldOrder::Ascending, None);
    }
    measure("length of int, string of 10 in a key", || {
        let first = value_length(black_box(&key), FieldOrder::Ascending).expect("it is a key");
        black_box(value_length(&key[first..], FieldOrder::Ascending).expect("it is a key"));
    });
    measure("decode int and string of 10", || {
        out.clear();
        let mut decoder = KeyDecoder::new(black_box(&key), &[], KeyOrdering::ASCENDING);
        for name in ["k", "name"] {
            decoder.append_field(name, &mut out).expect("it is a key");
        }
        black_box(&out);
    });
}
