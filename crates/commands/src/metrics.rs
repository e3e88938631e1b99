//! Counters for `serverStatus` and `top`. All are cheap to bump from many threads; none is ever reset.

use crate::spill_report::BlockingMetrics;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        // Most operations have nothing to add to most counters, and an atomic addition is dear.
        if amount > 0 {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }
}

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
    QueryCounters { scanned, scanned_objects, collection_scans, scan_and_order, write_conflicts }
}
counters! {
    /// `network`.
    NetworkCounters { bytes_in, bytes_out, physical_bytes_in, physical_bytes_out, requests }
}
counters! {
    /// `asserts`.
    AssertCounters { regular, user }
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

    /// Counts an operation that took `time`. `exists` is asked when the namespace is new here: one that is not in the catalog
    /// gets no entry, or commands on names that were never made or are gone would fill the memory.
    pub fn record(&self, namespace: &str, kind: OperationKind, time: Duration, exists: impl FnOnce() -> bool) {
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
        if kind.writes() {
            entry.write_lock.add(time);
        } else {
            entry.read_lock.add(time);
        }
        let of_kind = match kind {
            OperationKind::Query => &mut entry.queries,
            OperationKind::GetMore => &mut entry.getmore,
            OperationKind::Insert => &mut entry.insert,
            OperationKind::Update => &mut entry.update,
            OperationKind::Remove => &mut entry.remove,
            OperationKind::Command => &mut entry.commands,
        };
        of_kind.add(time);
    }

    /// Forgets a dropped namespace.
    pub fn forget(&self, namespace: &str) {
        let hash = self.hash(namespace);
        if let Ok(place) = self.shard(hash).lock().find_entry(hash, |(name, _)| name == namespace) {
            place.remove();
        }
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

/// `opLatencies`: microseconds and operations of reads, writes and commands.
#[derive(Default)]
pub struct Latencies {
    reads: [Counter; 2],
    writes: [Counter; 2],
    commands: [Counter; 2],
}

impl Latencies {
    /// Counts an operation.
    pub fn record(&self, kind: OperationKind, time: Duration) {
        let [latency, operations] = match kind {
            OperationKind::Query | OperationKind::GetMore => &self.reads,
            kind if kind.writes() => &self.writes,
            _ => &self.commands,
        };
        latency.add(time.as_micros() as u64);
        operations.add(1);
    }

    /// `(name, microseconds, operations)`.
    pub fn rows(&self) -> [(&'static str, i64, i64); 3] {
        [
            ("reads", &self.reads),
            ("writes", &self.writes),
            ("commands", &self.commands),
        ]
        .map(|(name, [latency, operations])| (name, latency.get(), operations.get()))
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
    pub network: NetworkCounters,
    pub asserts: AssertCounters,
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
}
