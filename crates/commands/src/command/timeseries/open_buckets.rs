//! Where measurements were put last: the buckets that the next ones of the same source are likely to go to.
//!
//! Hints only. Whoever follows one locks the bucket and looks whether it takes the measurement; what is not known here
//! is looked for in the collection.

use parking_lot::Mutex;
use query::timeseries::MetaValue;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use storage::RecordId;

/// Sources that are remembered, of all collections; about 100 bytes each.
const SOURCES_MAX: usize = 100_000;
/// Buckets of one source that are remembered.
const BUCKETS_MAX: usize = 4;

/// Where a bucket is, and when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownBucket {
    /// Its record in the buckets' collection.
    pub record: RecordId,
    /// Milliseconds since 1970.
    pub begin_ms: i64,
    /// How large it was when it was written.
    pub bytes: usize,
}

/// By the hash of a source's metaField, which may have megabytes; the bucket that was written last comes last. Sources
/// of one hash would share hints.
type OfSources = HashMap<u128, Vec<KnownBucket>>;

/// See the module.
#[derive(Default)]
pub struct OpenBuckets {
    hashers: [RandomState; 2],
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    collections: HashMap<[u8; 16], OfSources>,
    /// Sources of all of them.
    sources: usize,
}

impl OpenBuckets {
    fn source(&self, meta: &MetaValue) -> u128 {
        let [high, low] = &self.hashers;
        u128::from(high.hash_one(meta)) << 64 | u128::from(low.hash_one(meta))
    }

    /// The buckets of a source.
    pub fn of(&self, collection: [u8; 16], meta: &MetaValue) -> Vec<KnownBucket> {
        let source = self.source(meta);
        let known = self.known.lock();
        let of_collection = known.collections.get(&collection);
        of_collection
            .and_then(|sources| sources.get(&source))
            .cloned()
            .unwrap_or_default()
    }

    /// A bucket was written.
    pub fn wrote(&self, collection: [u8; 16], meta: &MetaValue, bucket: KnownBucket) {
        let source = self.source(meta);
        let mut known = self.known.lock();
        let known = &mut *known;
        if known.sources >= SOURCES_MAX {
            *known = Known::default();
        }
        let of_collection = known.collections.entry(collection).or_default();
        let of_source = of_collection.entry(source).or_insert_with(|| {
            known.sources += 1;
            Vec::new()
        });
        of_source.retain(|other| other.record != bucket.record);
        if of_source.len() == BUCKETS_MAX {
            of_source.remove(0);
        }
        of_source.push(bucket);
    }

    /// Forgets a collection.
    pub fn forget(&self, collection: [u8; 16]) {
        self.retain(|other| *other != collection);
    }

    /// Forgets the collections that are no longer there.
    pub fn retain(&self, is_there: impl Fn(&[u8; 16]) -> bool) {
        let mut known = self.known.lock();
        known.collections.retain(|collection, _| is_there(collection));
        known.sources = known.collections.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;
    use query::raw::Elements;

    fn meta(text: &str) -> MetaValue {
        let document = rawdoc! { "m": text };
        let element = Elements::new(&document).next().expect("a field").expect("well-formed");
        MetaValue::of(element).expect("well-formed")
    }

    #[test]
    fn sources_are_kept_without_their_values_and_go_with_their_collection() {
        let open = OpenBuckets::default();
        let bucket = |n: i64| KnownBucket {
            record: RecordId::Number(n as u64),
            begin_ms: n,
            bytes: 1,
        };
        let large = meta(&"x".repeat(1 << 20));
        for n in 0..6 {
            open.wrote([1; 16], &large, bucket(n));
        }
        open.wrote([2; 16], &large, bucket(7));
        open.wrote([2; 16], &meta("y"), bucket(8));
        let begins = |collection, meta: &MetaValue| -> Vec<i64> {
            let known = open.of(collection, meta);
            known.iter().map(|known| known.begin_ms).collect()
        };
        assert_eq!(begins([1; 16], &large), [2, 3, 4, 5]);
        assert_eq!(
            (begins([2; 16], &large), begins([2; 16], &meta("y"))),
            (vec![7], vec![8])
        );
        assert!(begins([2; 16], &meta("z")).is_empty());
        open.retain(|collection| *collection == [1; 16]);
        assert_eq!(begins([1; 16], &large), [2, 3, 4, 5]);
        assert!(begins([2; 16], &large).is_empty());
        assert_eq!(open.known.lock().sources, 1);
    }
}
