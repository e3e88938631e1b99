//! The plan cache: which candidate won for a shape of query, and how much work it took.
//!
//! Bounded, in memory, shared by the process. An entry is a hint that the planner checks; it is dropped when the plan
//! turns out to work much more than it did in its race.

use super::hashes::QueryHashes;
use super::planner::Choice;
use super::query_settings::QuerySettings;
use bson::{Document, RawDocumentBuf};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries of one shard; a full shard is emptied.
const SHARD_ENTRIES_MAX: usize = 512;
const SHARDS: usize = 16;
/// A plan may work so many times as much as in its race.
const WORKS_FACTOR: u64 = 10;
/// Work that is never too much.
const WORKS_MIN: u64 = 1000;

/// What is remembered of a shape.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) choice: Choice,
    /// Rows looked at in the race, per result.
    pub(crate) works: u64,
    pub(crate) entry: Arc<CacheEntry>,
}

/// What clients are shown of it.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    pub(crate) collection: [u8; 16],
    /// Of the collection's definition: with another one the plan is not looked for any more.
    pub(crate) version: u64,
    pub(crate) hashes: QueryHashes,
    /// `query`, `sort` and `projection` of the query that raced.
    pub(crate) pattern: RawDocumentBuf,
    pub(crate) plan: Document,
    /// An index filter was in force.
    pub(crate) is_filtered: bool,
    /// Those that were in force.
    pub(crate) settings: Option<Arc<QuerySettings>>,
    pub(crate) created_ms: i64,
}

/// See the module.
pub(crate) struct PlanCache {
    shards: [Mutex<HashMap<u64, Remembered>>; SHARDS],
}

/// The one cache.
pub(crate) fn plan_cache() -> &'static PlanCache {
    static CACHE: std::sync::LazyLock<PlanCache> = std::sync::LazyLock::new(|| PlanCache {
        shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
    });
    &CACHE
}

impl PlanCache {
    fn shard(&self, shape: u64) -> &Mutex<HashMap<u64, Remembered>> {
        &self.shards[shape as usize % SHARDS]
    }

    /// What won for this shape.
    pub(crate) fn get(&self, shape: u64) -> Option<Remembered> {
        self.shard(shape).lock().get(&shape).cloned()
    }

    /// Remembers a winner.
    pub(crate) fn put(&self, shape: u64, remembered: Remembered) {
        let mut shard = self.shard(shape).lock();
        if shard.len() >= SHARD_ENTRIES_MAX {
            shard.clear();
        }
        shard.insert(shape, remembered);
    }

    /// What is remembered for a collection in this version of its definition, oldest first.
    pub(crate) fn of(&self, collection: [u8; 16], version: u64) -> Vec<Remembered> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let ours = |one: &&Remembered| one.entry.collection == collection && one.entry.version == version;
            found.extend(shard.values().filter(ours).cloned());
        }
        found.sort_by(|a, b| {
            let key = |one: &Remembered| (one.entry.created_ms, one.entry.hashes.shape.clone());
            key(a).cmp(&key(b))
        });
        found
    }

    /// Forgets what is remembered for a collection, or for the shape of that hash there.
    pub(crate) fn remove(&self, collection: [u8; 16], shape: Option<&str>) {
        let goes = |entry: &CacheEntry| {
            entry.collection == collection && shape.is_none_or(|shape| entry.hashes.shape == shape)
        };
        for shard in &self.shards {
            shard.lock().retain(|_, remembered| !goes(&remembered.entry));
        }
    }

    /// A remembered plan has ended: forget it when it worked much more than in its race.
    pub(crate) fn report(&self, shape: u64, remembered_works: u64, works: u64) {
        if works > WORKS_MIN.max(remembered_works.saturating_mul(WORKS_FACTOR)) {
            self.shard(shape).lock().remove(&shape);
        }
    }
}
