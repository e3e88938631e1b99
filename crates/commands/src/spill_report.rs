//! What sorts and groups have done, and what of it on disk: for `serverStatus`, log lines and the profiler.

use crate::counter::Counter;
use bson::{Document, doc};
use storage::{OperationCounters, Spilling};

/// What spills, by the names of `serverStatus` and of log lines.
const NAMES: [(Spilling, &str); 5] = [
    (Spilling::Sort, "sort"),
    (Spilling::Group, "group"),
    (Spilling::BucketAuto, "bucketAuto"),
    (Spilling::SetWindowFields, "setWindowFields"),
    (Spilling::Densify, "densify"),
];

/// Sums over all operations of what stages of one kind have spilled.
#[derive(Default)]
struct SpillTotals {
    spills: Counter,
    records: Counter,
    bytes: Counter,
    stored_bytes: Counter,
}

/// `metrics.query`: sums over all operations.
#[derive(Default)]
pub(crate) struct BlockingMetrics {
    keys_sorted: Counter,
    sorted_bytes: Counter,
    /// As [`NAMES`].
    spilled: [SpillTotals; 5],
}

impl BlockingMetrics {
    /// Adds what an operation did.
    pub(crate) fn add(&self, counters: &OperationCounters) {
        // Of nearly every operation there is nothing to add, and all of them share these.
        if counters.keys_sorted.get() > 0 {
            self.keys_sorted.add(counters.keys_sorted.get());
            self.sorted_bytes.add(counters.sorted_bytes.get());
        }
        if !counters.has_spilled() {
            return;
        }
        for ((what, _), total) in NAMES.iter().zip(&self.spilled) {
            let spilled = counters.spilled(*what);
            total.spills.add(spilled.spills.get());
            total.records.add(spilled.records.get());
            total.bytes.add(spilled.bytes.get());
            total.stored_bytes.add(spilled.stored_bytes.get());
        }
    }

    /// The section of `serverStatus`.
    pub(crate) fn document(&self) -> Document {
        let mut section = Document::new();
        for ((what, name), total) in NAMES.iter().zip(&self.spilled) {
            let of_stage = match what {
                Spilling::Sort => doc! {
                    "spillToDisk": total.spills.get(),
                    "spillToDiskBytes": total.stored_bytes.get(),
                    "totalBytesSorted": self.sorted_bytes.get(),
                    "totalKeysSorted": self.keys_sorted.get(),
                },
                _ => doc! {
                    "spills": total.spills.get(),
                    "spilledBytes": total.bytes.get(),
                    "spilledRecords": total.records.get(),
                    "spilledDataStorageSize": total.stored_bytes.get(),
                },
            };
            section.insert(*name, of_stage);
        }
        section
    }
}

/// Adds what an operation has spilled to its log line.
pub(crate) fn add_spills(counters: &OperationCounters, attributes: &mut Document) {
    if !counters.has_spilled() {
        return;
    }
    attributes.insert("usedDisk", true);
    for (what, name) in NAMES {
        let spilled = counters.spilled(what);
        if spilled.spills.get() > 0 {
            attributes.insert(format!("{name}Spills"), spilled.spills.get() as i64);
            attributes.insert(format!("{name}SpilledBytes"), spilled.bytes.get() as i64);
            attributes.insert(format!("{name}SpilledRecords"), spilled.records.get() as i64);
            let stored = spilled.stored_bytes.get() as i64;
            attributes.insert(format!("{name}SpilledDataStorageSize"), stored);
        }
    }
}
