//! Where measurements were put last: the buckets that the next ones of the same source are likely to go to.
//!
//! Hints only. Whoever follows one locks the bucket and looks whether it takes the measurement; what is not known here
//! is looked for in the collection.

use parking_lot::Mutex;
use query::timeseries::MetaValue;
use std::collections::HashMap;
use storage::RecordId;

/// Sources that are remembered, of all collections; about 100 bytes each.
const SOURCES_MAX: usize = 100_000;
/// Buckets of one source that are remembered.
const BUCKETS_MAX: usize = 4;

/// Where a bucket is, and when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBucket {
    /// Its record in the buckets' collection.
    pub record: RecordId,
    /// Milliseconds since 1970.
    pub begin_ms: i64,
}

/// A collection and a value of its metaField.
type Source = ([u8; 16], MetaValue);

/// See the module.
#[derive(Default)]
pub struct OpenBuckets {
    /// By collection and source; the bucket that was written last comes last.
    known: Mutex<HashMap<Source, Vec<KnownBucket>>>,
}

impl OpenBuckets {
    /// The buckets of a source.
    pub fn of(&self, collection: [u8; 16], meta: &MetaValue) -> Vec<KnownBucket> {
        let known = self.known.lock();
        known.get(&(collection, meta.clone())).cloned().unwrap_or_default()
    }

    /// A bucket was written.
    pub fn wrote(&self, collection: [u8; 16], meta: &MetaValue, bucket: KnownBucket) {
        let mut known = self.known.lock();
        if known.len() >= SOURCES_MAX {
            known.clear();
        }
        let of_source = known.entry((collection, meta.clone())).or_default();
        of_source.retain(|other| other.record != bucket.record);
        if of_source.len() == BUCKETS_MAX {
            of_source.remove(0);
        }
        of_source.push(bucket);
    }
}
