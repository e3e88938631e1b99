//! What a script costs a document, beside the same condition without one, in nanoseconds of one thread; and what the
//! first script of an operation does.
//!
//! `cargo run --release -p query --example script_cost`

use std::hint::black_box;
use std::sync::Arc;

use bson::{RawDocumentBuf, doc};
use query::EvaluationContext;
use query::expression::ExpressionContext;
use query::matcher::Matcher;
use storage::Operation;
use vfs::Clock;

const ROUNDS: u32 = 100_000;

fn raw(document: &bson::Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("the document is well-formed")
}

fn measure(name: &str, rounds: u32, mut work: impl FnMut()) {
    work();
    let clock = vfs::SystemClock::new();
    let start = clock.monotonic();
    for _ in 0..rounds {
        work();
    }
    println!(
        "{name:<100} {:>8.0} ns",
        (clock.monotonic() - start).as_nanos() as f64 / f64::from(rounds)
    );
}

fn main() {
    let small = doc! { "_id": 1, "a": 6, "b": "text", "c": 2.5 };
    let mut large = doc! { "_id": bson::oid::ObjectId::from_bytes([7; 12]), "a": 6 };
    for number in 0..10 {
        large.insert(format!("field{number}"), "x".repeat(100));
    }
    large.insert("list", vec![1, 2, 3, 4]);
    large.insert(
        "sub",
        doc! { "x": 1, "y": "text", "at": bson::DateTime::from_millis(0), "n": 5_i64 },
    );
    let operation = Arc::new(Operation::new(Arc::new(vfs::SystemClock::new()), 1));
    let context = ExpressionContext::new(0, Arc::new(vfs::SeededRandom::new(1))).for_operation(&operation);
    let function =
        |body: &str, args: Vec<&str>| doc! { "$expr": { "$function": { "body": body, "args": args, "lang": "js" } } };
    for filter in [
        doc! { "a": { "$gt": 5 } },
        doc! { "$expr": { "$gt": ["$a", 5] } },
        doc! { "$where": "this.a > 5" },
        doc! { "$where": "function() { for (let i = 0; i < 1000; i++) this.a += i; return this.a > 5 }" },
        function("function(a) { return a > 5 }", vec!["$a"]),
        function("function(d) { return d.a > 5 }", vec!["$$ROOT"]),
    ] {
        let matcher = Matcher::parse_ordered(&raw(&filter), &context).expect("the filter is well-formed");
        for document in [&small, &large] {
            let document = raw(document);
            let evaluation = EvaluationContext::new(&operation);
            measure(
                &format!("{filter} on {} bytes", document.as_bytes().len()),
                ROUNDS,
                || {
                    assert!(black_box(matcher.matches(black_box(&document), &evaluation)).expect("it matches"));
                },
            );
        }
    }
    let matcher = Matcher::parse_ordered(&raw(&doc! { "$where": "this.a > 5" }), &context);
    let matcher = matcher.expect("the filter is well-formed");
    let document = raw(&small);
    measure("the first call of a context", 1000, || {
        let evaluation = EvaluationContext::new(&operation);
        assert!(matcher.matches(&document, &evaluation).expect("it matches"));
    });
}
