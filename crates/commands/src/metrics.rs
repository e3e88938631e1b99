//! Counters for `serverStatus` and `top`. All are cheap to bump from many threads; none is ever reset.

use crate::api_versions::ApiVersions;
use crate::attempt_metrics::AttemptMetrics;
use crate::counter::Counter;
use crate::spill_report::BlockingMetrics;
use bson::{Document, doc};
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;
use storage::{Namespace, OperationCounters};

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($field:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        #[allow(missing_docs, reason = "named as in serverStatus")]
        pub struct $name { $(pub $field: Counter,)* }
    };
}

counters! {
    /// `opcounters`.
    OpCounters { insert, query, update, delete, getmore, command }
}
counters! {
    /// `metrics.document`.
    DocumentCounters { inserted, returned, updated, deleted }
}
counters! {
    /// `metrics.queryExecutor` and `metrics.operation`.
    QueryCounters {
        scanned, scanned_objects, collection_scans, non_tailable_scans,
        scan_and_order, write_conflicts, document_wait_us,
    }
}
counters! {
    /// `metrics.query.planCache.classic`.
    PlanCacheCounters { hits, misses, replanned, replanned_alike }
}
counters! {
    /// `network`.
    NetworkCounters { bytes_in, bytes_out, physical_bytes_in, physical_bytes_out, requests }
}
counters! {
    /// `asserts`.
    AssertCounters { regular, user }
}

impl PlanCacheCounters {
    /// Adds what an operation did.
    pub(crate) fn add(&self, counters: &OperationCounters) {
        let added = [
            (&self.hits, &counters.plan_cache_hits),
            (&self.misses, &counters.plan_cache_misses),
            (&self.replanned, &counters.replanned),
            (&self.replanned_alike, &counters.replanned_alike),
        ];
        // Most operations ask it nothing, and all of them share these.
        for (sum, own) in added.into_iter().filter(|(_, own)| own.get() > 0) {
            sum.add(own.get());
        }
    }

    /// The section of `serverStatus`.
    pub(crate) fn document(&self) -> Document {
        doc! { "classic": {
            "hits": self.hits.get(),
            "misses": self.misses.get(),
            "replanned": self.replanned.get(),
            "replanned_plan_is_cached_plan": self.replanned_alike.get(),
        } }
    }
}

/// What an operation is counted as by `top` and `opLatencies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `find`, `count`, `distinct`, `aggregate`.
    Query,
    /// `getMore`.
    GetMore,
    /// `insert`.
    Insert,
    /// `update`, `findAndModify`.
    Update,
    /// `delete`.
    Remove,
    /// Everything else.
    Command,
}

impl OperationKind {
    /// How `currentOp` and the profiler call a command of this kind.
    pub fn op(self, command: &str) -> &'static str {
        match self {
            Self::Query if command == "find" => "query",
            Self::GetMore => "getmore",
            Self::Insert => "insert",
            Self::Update if command == "update" => "update",
            Self::Remove => "remove",
            Self::Query | Self::Update | Self::Command => "command",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Self::Insert | Self::Update | Self::Remove)
    }

    /// What `top` counts an operation of this kind as.
    pub fn usage(self) -> TopUse {
        TopUse {
            kind: self,
            column: self,
            is_write: self.writes(),
        }
    }
}

/// What an operation is counted as by `top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopUse {
    /// What `latencyStats` and `opLatencies` count it as.
    pub kind: OperationKind,
    /// Where it is counted beside the locks.
    pub column: OperationKind,
    /// It is under `writeLock`, and not under `readLock`.
    pub is_write: bool,
}

/// Time and number of operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Microseconds.
    pub time_us: i64,
    /// Operations.
    pub count: i64,
}

impl Usage {
    fn add(&mut self, time: Duration) {
        self.time_us += time.as_micros() as i64;
        self.count += 1;
    }
}

/// One namespace of `top`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "named as in top")]
pub struct TopEntry {
    pub total: Usage,
    pub read_lock: Usage,
    pub write_lock: Usage,
    pub queries: Usage,
    pub getmore: Usage,
    pub insert: Usage,
    pub update: Usage,
    pub remove: Usage,
    pub commands: Usage,
    /// By kind, for `latencyStats`.
    pub latencies: KindUsage,
    /// For `queryExecStats`.
    pub scans: Scans,
}

/// Operations that read a whole collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scans {
    /// All of them.
    pub total: i64,
    /// Those without a tailable cursor.
    pub non_tailable: i64,
}

/// Of one namespace what [`Latencies`] are of all.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "named as in latencyStats")]
pub struct KindUsage {
    pub reads: Usage,
    pub writes: Usage,
    pub commands: Usage,
}

impl TopEntry {
    fn each(&mut self) -> [&mut Usage; 12] {
        let Self {
            total,
            read_lock,
            write_lock,
            queries,
            getmore,
            insert,
            update,
            remove,
            commands,
            latencies,
            scans: _,
        } = self;
        let KindUsage {
            reads,
            writes,
            commands: others,
        } = latencies;
        [
            total, read_lock, write_lock, queries, getmore, insert, update, remove, commands, reads, writes, others,
        ]
    }
}

/// Time spent per namespace. Sharded by name so that connections seldom meet.
pub struct Top {
    hasher: DefaultHashBuilder,
    shards: [Mutex<HashTable<(String, TopEntry)>>; SHARDS],
}

const SHARDS: usize = 16;

impl Default for Top {
    fn default() -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Top {
    fn hash(&self, namespace: &str) -> u64 {
        self.hasher.hash_one(namespace)
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<(String, TopEntry)>> {
        // The tables use the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// Counts an operation that took `time`. `exists` is asked when the namespace is new here: one that is not in the
    /// catalog gets no entry, or commands on names that were never made or are gone would fill the memory.
    pub fn record(&self, namespace: &str, usage: TopUse, time: Duration, exists: impl FnOnce() -> bool) {
        let hash = self.hash(namespace);
        let mut shard = self.shard(hash).lock();
        let place = shard.entry(hash, |(name, _)| name == namespace, |(name, _)| self.hash(name));
        let mut place = match place {
            Entry::Occupied(place) => place,
            Entry::Vacant(_) if !exists() => return,
            Entry::Vacant(place) => place.insert((namespace.to_owned(), TopEntry::default())),
        };
        let (_, entry) = place.get_mut();
        entry.total.add(time);
        if usage.is_write {
            entry.write_lock.add(time);
        } else {
            entry.read_lock.add(time);
        }
        let of_latency = match usage.kind {
            OperationKind::Query | OperationKind::GetMore => &mut entry.latencies.reads,
            kind if kind.writes() => &mut entry.latencies.writes,
            _ => &mut entry.latencies.commands,
        };
        of_latency.add(time);
        let of_kind = match usage.column {
            OperationKind::Query => &mut entry.queries,
            OperationKind::GetMore => &mut entry.getmore,
            OperationKind::Insert => &mut entry.insert,
            OperationKind::Update => &mut entry.update,
            OperationKind::Remove => &mut entry.remove,
            OperationKind::Command => &mut entry.commands,
        };
        of_kind.add(time);
    }

    /// Counts a scan of a namespace that has been counted before.
    pub fn record_scan(&self, namespace: &str, is_tailable: bool) {
        let hash = self.hash(namespace);
        let mut shard = self.shard(hash).lock();
        if let Some((_, entry)) = shard.find_mut(hash, |(name, _)| name == namespace) {
            entry.scans.total += 1;
            entry.scans.non_tailable += i64::from(!is_tailable);
        }
    }

    /// Forgets a dropped namespace.
    pub fn forget(&self, namespace: &str) {
        let hash = self.hash(namespace);
        if let Ok(place) = self.shard(hash).lock().find_entry(hash, |(name, _)| name == namespace) {
            place.remove();
        }
    }

    /// What was done to a collection was done to the one whose place it takes.
    pub fn hand_over(&self, from: &str, to: &Namespace) {
        let mut figures = self.get(from);
        self.forget(from);
        if figures.total.count == 0 {
            return;
        }
        let hash = self.hash(to.as_str());
        let mut shard = self.shard(hash).lock();
        let place = shard.entry(hash, |(name, _)| name == to.as_str(), |(name, _)| self.hash(name));
        let mut place = place.or_insert_with(|| (to.as_str().to_owned(), TopEntry::default()));
        let (_, entry) = place.get_mut();
        for (into, from) in entry.each().into_iter().zip(figures.each()) {
            into.time_us += from.time_us;
            into.count += from.count;
        }
        entry.scans.total += figures.scans.total;
        entry.scans.non_tailable += figures.scans.non_tailable;
    }

    /// A copy of one namespace's figures.
    pub fn get(&self, namespace: &str) -> TopEntry {
        let hash = self.hash(namespace);
        let shard = self.shard(hash).lock();
        let found = shard.find(hash, |(name, _)| name == namespace);
        found.map(|(_, entry)| *entry).unwrap_or_default()
    }

    /// Forgets every namespace that is not to be kept.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|(name, _)| keep(name));
        }
    }

    /// A copy of all, sorted by name.
    pub fn all(&self) -> BTreeMap<String, TopEntry> {
        let mut all = BTreeMap::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().cloned());
        }
        all
    }
}

/// Ranges of a [`Histogram`].
const RANGES: usize = 51;
/// The first range that is half a power of two wide: 2048 microseconds.
const HALVES_FROM: usize = 11;
/// The first that is a whole one again: 2^21 microseconds, two seconds.
const HALVES_UNTIL: usize = 31;

/// Operations by how long they took. The ranges are MongoDB's: powers of two of microseconds, with half steps from 2 ms
/// to 2 s.
pub struct Histogram([Counter; RANGES]);

impl Default for Histogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Histogram {
    fn range_of(time_us: u64) -> usize {
        let power = time_us.max(1).ilog2() as usize;
        match power {
            0..HALVES_FROM => power,
            11..=20 => HALVES_FROM + 2 * (power - 11) + (time_us >> (power - 1) & 1) as usize,
            _ => (HALVES_UNTIL + power - 21).min(RANGES - 1),
        }
    }

    /// The shortest time of a range, in microseconds.
    fn lower_bound_us(range: usize) -> u64 {
        match range {
            0 => 0,
            1..HALVES_FROM => 1 << range,
            HALVES_FROM..HALVES_UNTIL => {
                let (power, half) = (11 + (range - HALVES_FROM) / 2, (range - HALVES_FROM) % 2);
                (2 + half as u64) << (power - 1)
            }
            _ => 1 << (21 + range - HALVES_UNTIL),
        }
    }

    fn add(&self, time_us: u64) {
        self.0[Self::range_of(time_us)].add(1);
    }

    /// `(shortest time in microseconds, operations)` of the ranges that have any, in their order.
    pub fn rows(&self) -> impl Iterator<Item = (i64, i64)> {
        let rows = self.0.iter().enumerate();
        rows.map(|(range, count)| (Self::lower_bound_us(range) as i64, count.get()))
            .filter(|(_, count)| *count > 0)
    }

    fn count(&self) -> i64 {
        self.0.iter().map(Counter::get).sum()
    }
}

/// Time and number of operations of one sort.
#[derive(Default)]
pub struct Latency {
    time_us: Counter,
    /// By time; together they are the number.
    pub histogram: Histogram,
}

impl Latency {
    /// Microseconds.
    pub fn time_us(&self) -> i64 {
        self.time_us.get()
    }

    /// Operations.
    pub fn operations(&self) -> i64 {
        self.histogram.count()
    }
}

/// `opLatencies`.
#[derive(Default)]
pub struct Latencies {
    reads: Latency,
    writes: Latency,
    commands: Latency,
}

impl Latencies {
    /// Counts an operation.
    pub fn record(&self, kind: OperationKind, time: Duration) {
        let latency = match kind {
            OperationKind::Query | OperationKind::GetMore => &self.reads,
            kind if kind.writes() => &self.writes,
            _ => &self.commands,
        };
        let time_us = time.as_micros() as u64;
        latency.time_us.add(time_us);
        latency.histogram.add(time_us);
    }

    /// By name.
    pub fn rows(&self) -> [(&'static str, &Latency); 3] {
        [
            ("reads", &self.reads),
            ("writes", &self.writes),
            ("commands", &self.commands),
        ]
    }
}

/// Everything counted here.
#[derive(Default)]
#[allow(missing_docs, reason = "each type says what it is")]
pub struct Metrics {
    pub operations: OpCounters,
    pub documents: DocumentCounters,
    pub queries: QueryCounters,
    pub(crate) blocking: BlockingMetrics,
    pub(crate) plan_cache: PlanCacheCounters,
    pub network: NetworkCounters,
    pub asserts: AssertCounters,
    pub(crate) attempts: AttemptMetrics,
    pub(crate) api_versions: ApiVersions,
    pub top: Top,
    pub latencies: Latencies,
    pub connections_created: Counter,
    pub connections_rejected: Counter,
}

/// Calls of one command: `metrics.commands.<name>`.
#[derive(Default)]
pub struct CommandCounters {
    /// Calls.
    pub total: Counter,
    /// Of those, the ones that answered an error.
    pub failed: Counter,
    /// Those that query settings rejected.
    pub rejected: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds as MongoDB's manual has them: doubled each time, with half steps between 2048 microseconds and two
    /// seconds.
    #[test]
    fn ranges_are_mongodbs() {
        let bounds: Vec<u64> = (0..RANGES).map(Histogram::lower_bound_us).collect();
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{bounds:?}");
        assert_eq!(bounds[..5], [0, 2, 4, 8, 16]);
        assert_eq!(bounds[10..16], [1024, 2048, 3072, 4096, 6144, 8192]);
        assert_eq!(bounds[29..33], [1 << 20, 3 << 19, 1 << 21, 1 << 22]);
        assert_eq!(bounds[RANGES - 1], 1 << 40);
        for (range, bound) in bounds.iter().enumerate() {
            assert_eq!(Histogram::range_of(*bound), range, "{bound}");
            let last = bounds.get(range + 1).map_or(u64::MAX, |next| next - 1);
            assert_eq!(Histogram::range_of(last), range, "{last}");
        }
    }

    #[test]
    fn operations_are_in_one_range_each() {
        let latencies = Latencies::default();
        for time_us in [0, 1, 3, 2500, 2500] {
            latencies.record(OperationKind::Insert, Duration::from_micros(time_us));
        }
        let [(_, reads), (_, writes), _] = latencies.rows();
        assert_eq!(
            (writes.time_us(), writes.operations(), reads.operations()),
            (5004, 5, 0)
        );
        let rows: Vec<_> = writes.histogram.rows().collect();
        assert_eq!(rows, [(0, 2), (2, 1), (2048, 2)]);
    }
}
