//! What matching, updating and projecting one document of about 1.1 KB costs, in nanoseconds of one thread.
//!
//! `cargo run --release -p query --example document_cost`

use std::hint::black_box;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocumentBuf, Timestamp, doc};
use query::EvaluationContext;
use query::expression::ExpressionContext;
use query::matcher::{MatchDetails, Matcher};
use query::project::Projection;
use query::update::{Update, UpdateContext};
use vfs::Clock;

const ROUNDS: u32 = 1_000_000;

fn raw(document: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("the document is well-formed")
}

fn measure(name: &str, mut work: impl FnMut()) {
    for _ in 0..ROUNDS / 10 {
        work();
    }
    let clock = vfs::SystemClock::new();
    let start = clock.monotonic();
    for _ in 0..ROUNDS {
        work();
    }
    println!(
        "{name:<44} {:>6.0} ns",
        (clock.monotonic() - start).as_nanos() as f64 / f64::from(ROUNDS)
    );
}

fn main() {
    let mut document = doc! {"_id": bson::oid::ObjectId::from_bytes([7; 12]), "a": 5};
    for number in 0..10 {
        document.insert(format!("field{number}"), "x".repeat(100));
    }
    document.insert("n", 1);
    document.insert("list", vec![1, 2, 3, 4]);
    document.insert("sub", doc! {"x": 1, "y": "text"});
    let raw_document = raw(&document);
    println!(
        "document of {} bytes, {} fields",
        raw_document.as_bytes().len(),
        document.len()
    );
    let context = ExpressionContext::new(0, Arc::new(vfs::SeededRandom::new(1)));
    let evaluation = EvaluationContext::uninterrupted();

    for filter in [
        doc! {"_id": document["_id"].clone()},
        doc! {"a": 5},
        doc! {"n": {"$gt": 0}},
        doc! {"missing": 5},
        doc! {"sub.x": 1},
        doc! {"list": 4},
        doc! {"n": {"$in": [1, 2, 3]}, "a": 5},
        doc! {"field9": {"$regex": "^xx"}},
    ] {
        let matcher = Matcher::parse(&raw(&filter), &context).expect("the filter is well-formed");
        measure(&format!("match {filter}"), || {
            black_box(matcher.matches(black_box(&raw_document), &evaluation)).expect("matching succeeds");
        });
    }

    let around = UpdateContext {
        now_ms: 0,
        timestamp: Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
        details: MatchDetails::default(),
    };
    for operators in [
        doc! {"$set": {"field5": "y"}},
        doc! {"$set": {"sub.x": 2}},
        doc! {"$set": {"new": 1}},
        doc! {"$inc": {"n": 1}},
        doc! {"$push": {"list": 5}},
    ] {
        let operators_raw = raw(&operators);
        let update = Update::parse(RawBsonRef::Document(&operators_raw), None, &context).expect("it is well-formed");
        measure(&format!("update {operators}"), || {
            black_box(update.apply(black_box(&raw_document), &around, &evaluation)).expect("updating succeeds");
        });
    }
    let set = raw(&doc! {"$set": {"field5": "y"}});
    measure("parse {$set: {field5: \"y\"}}", || {
        black_box(Update::parse(RawBsonRef::Document(&set), None, &context)).expect("it is well-formed");
    });
    let by_id = raw(&doc! {"_id": document["_id"].clone()});
    measure("parse {_id: x}", || {
        black_box(Matcher::parse(&by_id, &context)).expect("it is well-formed");
    });

    let mut out = Vec::new();
    for spec in [
        doc! {"a": 1, "n": 1},
        doc! {"field1": 0},
        doc! {"sub.x": 1},
        doc! {"a": 1, "sum": {"$add": ["$a", "$n"]}},
    ] {
        let projection = Projection::parse(&raw(&spec), &context).expect("the projection is well-formed");
        measure(&format!("project {spec}"), || {
            out.clear();
            projection
                .apply(black_box(&raw_document), None, &evaluation, &mut out)
                .expect("projecting succeeds");
        });
    }
}
