//! How the locks of an operation are shown.

use bson::{Document, doc};
use storage::{LockMode, OperationCounters};

/// `locks` of a log line: acquisitions of the operation by level and mode, as `r w R W`.
pub(crate) fn locks_document(counters: &OperationCounters) -> Document {
    let modes = [
        (LockMode::IntentShared, "r"),
        (LockMode::IntentExclusive, "w"),
        (LockMode::Shared, "R"),
        (LockMode::Exclusive, "W"),
    ];
    let mut acquired = Document::new();
    let mut waited = Document::new();
    let mut waited_us = Document::new();
    for (mode, name) in modes {
        let counts = counters.lock(mode);
        for (figure, into) in [
            (&counts.acquired, &mut acquired),
            (&counts.waited, &mut waited),
            (&counts.wait_us, &mut waited_us),
        ] {
            if figure.get() > 0 {
                into.insert(name, figure.get() as i64);
            }
        }
    }
    let mut collection = doc! { "acquireCount": acquired };
    if !waited.is_empty() {
        collection.insert("acquireWaitCount", waited);
        collection.insert("timeAcquiringMicros", waited_us);
    }
    doc! { "Collection": collection }
}
