//! Inserts into time-series collections: what is one unit, and which errors are told.

use super::*;
use bson::DateTime;

fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn made() -> Bench {
    let bench = Bench::new();
    let made = bench.run(doc! { "create": "x", "timeseries": { "timeField": "t", "metaField": "m" } });
    assert_eq!(made.get_f64("ok").ok(), Some(1.0), "{made}");
    bench
}

/// A bucket for each of many hours: a unit has some of them, whichever of them a source has.
#[test]
fn buckets_of_one_source_are_filled_in_few_units() {
    let bench = made();
    let insert = |second: i64| {
        let measurement = |hour: i64| doc! { "t": at(hour * 3600 + second), "m": 1 };
        let measurements: Vec<_> = (0..100).map(|hour| Bson::Document(measurement(hour))).collect();
        let before = bench.server.storage.last_seq().0;
        let reply = bench.run(doc! { "insert": "x", "documents": measurements });
        assert_eq!(reply.get_i32("n").ok(), Some(100), "{reply}");
        bench.server.storage.last_seq().0 - before
    };
    assert_eq!((insert(1), insert(2)), (2, 2), "units of 64 buckets");
    let counted = bench.run(doc! { "count": "system.buckets.x" });
    assert_eq!(counted.get_i32("n").ok(), Some(100), "{counted}");
}

#[test]
fn an_ordered_insert_tells_its_first_error() {
    let bench = made();
    // The first fails when it is stored, the other when it is looked at.
    let large = doc! { "t": at(0), "v": "x".repeat(7 << 20) };
    let documents = [doc! { "t": at(0) }, large, doc! { "v": 1 }, doc! { "t": at(1) }];
    for (ordered, n, places) in [(true, 1, vec![1]), (false, 2, vec![1, 2])] {
        let reply = bench.run(doc! { "insert": "x", "documents": documents.to_vec(), "ordered": ordered });
        assert_eq!(reply.get_i32("n").ok(), Some(n), "{reply}");
        let errors = reply.get_array("writeErrors").expect("errors");
        let found: Vec<_> = errors
            .iter()
            .map(|error| error.as_document().and_then(|error| error.get_i32("index").ok()))
            .collect();
        assert_eq!(found, places.into_iter().map(Some).collect::<Vec<_>>());
    }
}
