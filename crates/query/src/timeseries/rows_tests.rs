#![allow(clippy::unwrap_used)]
//! Buckets that inserting would not make.

use super::*;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use std::sync::Arc;
use storage::{KillFlag, Operation};

fn bucket(rows: i64, meta_bytes: usize) -> RawDocumentBuf {
    let (mut times, mut values) = (Document::new(), Document::new());
    for row in 0..rows {
        times.insert(row.to_string(), DateTime::from_millis(row));
        if row % 3 > 0 {
            values.insert(row.to_string(), row);
        }
    }
    let bucket = doc! {
        "_id": ObjectId::from_bytes([0; 12]),
        "control": { "version": 1, "min": { "t": DateTime::from_millis(0) }, "max": {} },
        "meta": "m".repeat(meta_bytes),
        "data": { "v": values, "t": times, "none": {} },
    };
    RawDocumentBuf::try_from(&bucket).unwrap()
}

const ALL: Unpacking<'static> = Unpacking {
    time_field: b"t",
    meta_field: Some(b"m"),
    bounds: TimeBounds::ALL,
    is_made: &|_| true,
};

#[test]
fn measurements_are_made_in_batches_of_bounded_size() {
    for (rows, meta_bytes, batches) in [(2500, 1, 3), (2500, 100_000, 228), (50, 3 << 20, 51)] {
        let bucket = bucket(rows, meta_bytes);
        let evaluation = EvaluationContext::uninterrupted();
        let (mut position, mut made, mut row) = (UnpackPosition::default(), 0, 0);
        while !position.is_done() {
            let batch = ALL.run(&bucket, &mut position, &evaluation, &mut |_| Ok(true)).unwrap();
            assert!(batch.bytes.len() < BATCH_BYTES_MAX + meta_bytes + 64 && batch.ends.len() <= 1000);
            let mut begin = 0;
            for end in batch.ends {
                let measurement = RawDocument::from_bytes(&batch.bytes[begin..end]).unwrap();
                begin = end;
                assert_eq!(measurement.get_datetime("t").unwrap().timestamp_millis(), row);
                assert_eq!(measurement.get_str("m").unwrap().len(), meta_bytes);
                assert_eq!(measurement.get("v").unwrap().is_some(), row % 3 > 0);
                assert!(row % 3 == 0 || measurement.get_i64("v").unwrap() == row);
                row += 1;
            }
            made += 1;
        }
        assert_eq!((row, made), (rows, batches), "metaField of {meta_bytes} bytes");
    }
}

/// Rows that nobody wants are work, too.
#[test]
fn an_operation_ends_inside_a_bucket() {
    let bucket = bucket(50_000, 1000);
    let killed = Arc::<KillFlag>::default();
    let clock = Arc::new(vfs::SimulatedClock::new(0));
    let operation = Operation::with_kill_flag(clock, 0, killed.clone());
    let evaluation = EvaluationContext::new(&operation);
    let mut seen = 0;
    let result = ALL.run(&bucket, &mut UnpackPosition::default(), &evaluation, &mut |_| {
        seen += 1;
        killed.set(storage::Interrupted::Killed);
        Ok(false)
    });
    assert!(matches!(&result, Err(error) if crate::evaluation::is_interruption(error)));
    assert!(seen < 5000, "{seen} rows");
}
