//! Measures validation: `cargo run --release -p wire --example validation_speed`.
#![allow(clippy::unwrap_used)]

use bson::{RawDocumentBuf, doc};

#[allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn measure(name: &str, document: &RawDocumentBuf) {
    let bytes = document.as_bytes();
    let rounds = 300_000_000 / bytes.len();
    let start = std::time::Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(wire::validate_document(std::hint::black_box(bytes)).unwrap());
    }
    let ns = start.elapsed().as_nanos() as f64 / rounds as f64;
    println!(
        "{name}: {} bytes, {ns:.0} ns, {:.2} GB/s",
        bytes.len(),
        bytes.len() as f64 / ns
    );
}

fn raw(document: bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&document).unwrap()
}

fn main() {
    let mut ycsb = doc! { "_id": "user1234567890123456789" };
    for i in 0..10 {
        ycsb.insert(format!("field{i}"), "x".repeat(100));
    }
    measure("1.1 KB, ten strings", &raw(ycsb));
    let small = doc! { "find": "things", "filter": { "_id": 123_456_i64 }, "limit": 1, "singleBatch": true, "$db": "test",
    "lsid": { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] } } };
    measure("find by _id", &raw(small));
    let mut order =
        doc! { "_id": bson::oid::ObjectId::new(), "customer": 17, "date": bson::DateTime::now(), "paid": true };
    let line = |i: i32| doc! { "item": i, "price": 9.99, "quantity": 3, "name": "a thing of some sort" };
    order.insert("lines", (0..20).map(line).collect::<Vec<_>>());
    measure("order with twenty lines", &raw(order));
}
