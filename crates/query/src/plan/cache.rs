//! The plan cache: which candidate won for a shape of query, and how much work it took.
//!
//! Bounded in number and in bytes, in memory, shared by the process. An entry is a hint that the planner checks. Once
//! its plan has failed a trial the entry is inactive: it gives no plan, but its work stays known. The winner of a race
//! that worked no more takes its place. One that worked more does not, so that queries that are dear by every plan do
//! not have the cheap ones run by a plan that is bad for them; the work that is taken for good doubles each time.
//!
//! Where no candidate came to an end in its race, the work of the winner is only known to be more than the race allows.
//! When such a plan fails its trial and the next race ends the same way, it is remembered with the work that it failed
//! at: so a query that is dear by every plan fails few trials, and then none.

use super::hashes::QueryHashes;
use super::planner::Choice;
use super::query_settings::QuerySettings;
use bson::RawDocumentBuf;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Entries of one shard; a full shard is emptied.
const SHARD_ENTRIES_MAX: usize = 512;
/// Bytes of one shard's entries, likewise: 32 MiB in all shards.
const SHARD_BYTES_MAX: usize = 2 << 20;
/// Pattern and plan of a query that are kept to be shown. They have all the query's values.
pub(crate) const SHOWN_BYTES_MAX: usize = 16 << 10;
/// About what an entry takes beside that.
const ENTRY_BYTES: usize = 512;
const SHARDS: usize = 16;
/// Less work than this is not told from it: another race costs more.
pub(crate) const WORKS_MIN: u64 = 100;
/// A cached plan may work so many times as much as in its race.
pub(crate) const WORKS_FACTOR: u64 = 10;
/// What the work of an inactive entry grows by when a race took more.
const WORKS_GROWTH: u64 = 2;

/// What is remembered of a shape.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    pub(crate) choice: Choice,
    /// Rows looked at in the race, or in trials since.
    pub(crate) works: u64,
    /// The plan had given a first batch, or had ended, with so much work.
    pub(crate) is_decided: bool,
    pub(crate) is_active: bool,
    pub(crate) entry: Arc<CacheEntry>,
}

/// What clients are shown of it.
#[derive(Debug)]
pub(crate) struct CacheEntry {
    pub(crate) collection: [u8; 16],
    /// Of the collection's definition: with another one the plan is not looked for any more.
    pub(crate) version: u64,
    pub(crate) hashes: QueryHashes,
    /// `None` where that is large.
    pub(crate) shown: Option<ShownPlan>,
    /// An index filter was in force.
    pub(crate) is_filtered: bool,
    /// Those that were in force.
    pub(crate) settings: Option<Arc<QuerySettings>>,
    pub(crate) created_ms: i64,
}

/// The query that raced, and its plan.
#[derive(Debug)]
pub(crate) struct ShownPlan {
    /// `query`, `sort` and `projection`.
    pub(crate) pattern: RawDocumentBuf,
    pub(crate) plan: RawDocumentBuf,
}

impl ShownPlan {
    pub(crate) fn bytes(&self) -> usize {
        self.pattern.as_bytes().len() + self.plan.as_bytes().len()
    }
}

impl Remembered {
    fn bytes(&self) -> usize {
        let path = match &self.choice {
            Choice::Path(_, path) => path.len(),
            _ => 0,
        };
        ENTRY_BYTES + path + self.entry.shown.as_ref().map_or(0, ShownPlan::bytes)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct PlanCache {
    shards: [Mutex<HashMap<u64, Remembered>>; SHARDS],
}

/// The one cache.
pub(crate) fn plan_cache() -> &'static PlanCache {
    static CACHE: std::sync::LazyLock<PlanCache> = std::sync::LazyLock::new(PlanCache::default);
    &CACHE
}

impl PlanCache {
    fn shard(&self, shape: u64) -> &Mutex<HashMap<u64, Remembered>> {
        &self.shards[shape as usize % SHARDS]
    }

    /// What won for this shape and has stood its trials since.
    pub(crate) fn get(&self, shape: u64) -> Option<Remembered> {
        let shard = self.shard(shape).lock();
        shard.get(&shape).filter(|remembered| remembered.is_active).cloned()
    }

    /// Remembers a winner, unless it worked more than an inactive entry.
    pub(crate) fn put(&self, shape: u64, mut remembered: Remembered) {
        let own = remembered.bytes();
        if own > SHARD_BYTES_MAX {
            return;
        }
        let mut shard = self.shard(shape).lock();
        if let Some(inactive) = shard.get_mut(&shape).filter(|there| !there.is_active) {
            if !remembered.is_decided && !inactive.is_decided {
                let failed_at = inactive.works.max(WORKS_MIN).saturating_mul(WORKS_FACTOR);
                remembered.works = remembered.works.max(failed_at);
            } else if remembered.works > inactive.works.max(WORKS_MIN) {
                inactive.works = inactive.works.max(WORKS_MIN).saturating_mul(WORKS_GROWTH);
                return;
            }
        }
        let bytes: usize = shard.values().map(Remembered::bytes).sum();
        if shard.len() >= SHARD_ENTRIES_MAX || bytes + own > SHARD_BYTES_MAX {
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

    /// The plan has failed its trial. What was put in its place meanwhile stays.
    pub(crate) fn deactivate(&self, shape: u64, choice: &Choice, works: u64) {
        if let Some(remembered) = self.shard(shape).lock().get_mut(&shape)
            && remembered.choice == *choice
            && remembered.works == works
        {
            remembered.is_active = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    fn remembered(works: u64, choice: Choice) -> Remembered {
        let large = rawdoc! { "query": "x".repeat(SHOWN_BYTES_MAX / 2) };
        Remembered {
            choice,
            works,
            is_decided: true,
            is_active: true,
            entry: Arc::new(CacheEntry {
                collection: [0; 16],
                version: 0,
                hashes: QueryHashes {
                    shape: String::new(),
                    key: String::new(),
                },
                shown: Some(ShownPlan {
                    pattern: large.clone(),
                    plan: large,
                }),
                is_filtered: false,
                settings: None,
                created_ms: 0,
            }),
        }
    }

    /// Queries that are dear by every plan do not have the cheap ones of their shape run by theirs.
    #[test]
    fn the_work_of_an_inactive_entry_grows_before_a_dearer_plan_takes_its_place() {
        let cache = PlanCache::default();
        let works_of = |cache: &PlanCache| cache.get(7).map(|remembered| remembered.works);
        cache.put(7, remembered(WORKS_MIN, Choice::Union));
        cache.deactivate(7, &Choice::Merge, WORKS_MIN);
        cache.deactivate(7, &Choice::Union, WORKS_MIN + 1);
        assert_eq!(works_of(&cache), Some(WORKS_MIN), "that was tried before it was put");
        cache.deactivate(7, &Choice::Union, WORKS_MIN);
        assert_eq!(works_of(&cache), None);
        for _ in 0..3 {
            cache.put(7, remembered(5 * WORKS_MIN, Choice::Merge));
            assert_eq!(works_of(&cache), None);
            let shown = cache.of([0; 16], 0);
            assert!(shown.len() == 1 && !shown[0].is_active && shown[0].choice == Choice::Union);
        }
        cache.put(7, remembered(5 * WORKS_MIN, Choice::Merge));
        assert_eq!(works_of(&cache), Some(5 * WORKS_MIN));
        cache.deactivate(7, &Choice::Merge, 5 * WORKS_MIN);
        cache.put(7, remembered(3, Choice::Union));
        assert_eq!(works_of(&cache), Some(3));
    }

    /// Its trial ended at ten times the work that a race allows, each time anew.
    #[test]
    fn what_is_dear_by_every_plan_is_remembered_with_the_work_that_it_failed_at() {
        let cache = PlanCache::default();
        let race_max = 50 * WORKS_MIN;
        let undecided = || Remembered {
            is_decided: false,
            ..remembered(race_max, Choice::Union)
        };
        let mut works = race_max;
        for _ in 0..5 {
            cache.put(7, undecided());
            assert_eq!(cache.get(7).map(|remembered| remembered.works), Some(works));
            cache.deactivate(7, &Choice::Union, works);
            works *= WORKS_FACTOR;
        }
        // Which is forgotten once a race was decided.
        cache.put(7, remembered(3, Choice::Merge));
        assert_eq!(cache.get(7).map(|remembered| remembered.works), Some(3));
    }

    #[test]
    fn it_is_bounded_in_bytes() {
        let cache = PlanCache::default();
        let bytes = |cache: &PlanCache| -> usize {
            let shards = cache.shards.iter();
            shards
                .flat_map(|shard| shard.lock().values().map(Remembered::bytes).collect::<Vec<_>>())
                .sum()
        };
        for shape in 0..10_000 {
            cache.put(shape, remembered(1, Choice::Union));
            assert!(cache.get(shape).is_some(), "{shape}");
        }
        let all = bytes(&cache);
        assert!(all > SHARD_BYTES_MAX && all <= SHARDS * SHARD_BYTES_MAX, "{all}");
        let path = Choice::Path(engine::TableId(16), "p".repeat(SHARD_BYTES_MAX).into());
        cache.put(10_000, remembered(1, path));
        assert!(cache.get(10_000).is_none());
        assert_eq!(bytes(&cache), all, "it is not worth all others");
    }
}
