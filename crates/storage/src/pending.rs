//! Rows that are proposed and not applied yet, for those who evaluate the next change of them.
//!
//! Whoever has the lock of a row asks here first and takes a snapshot after that ([`Pending::get`]): what leaves in
//! between has been published before. Readers do not look: they see what is applied.
//!
//! Invariant: a key has the last proposed version of it, and only while that is not applied.

use bytes::Bytes;
use engine::{Batch, Op, Seq, TableId};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: usize = 16;

type Rows = HashMap<(TableId, Bytes), Version>;

/// A version of a row.
struct Version {
    /// The entry that makes it.
    seq: Seq,
    /// `None`: the row goes.
    value: Option<Bytes>,
}

/// See the module.
pub(crate) struct Pending {
    is_used: AtomicBool,
    shards: [Mutex<Rows>; SHARDS],
    hasher: hashbrown::DefaultHashBuilder,
}

/// The row that an operation changes. Definitions of tables wait until nothing is pending.
fn row_of(op: &Op) -> Option<(TableId, &Bytes, Option<&Bytes>)> {
    match op {
        Op::Put(table, key, value) => Some((*table, key, Some(value))),
        Op::Delete(table, key) => Some((*table, key, None)),
        _ => None,
    }
}

impl Pending {
    /// `is_used`: entries take effect later than they are proposed.
    pub(crate) fn new(is_used: bool) -> Self {
        Self {
            is_used: AtomicBool::new(is_used),
            shards: Default::default(),
            hasher: hashbrown::DefaultHashBuilder::default(),
        }
    }

    /// Whether rows may be pending at all.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// From here on rows may be pending. Under `order`.
    pub(crate) fn begin_use(&self) {
        self.is_used.store(true, Ordering::Release);
    }

    /// What was proposed is lost.
    pub(crate) fn clear(&self) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
    }

    fn shard(&self, table: TableId, key: &[u8]) -> &Mutex<Rows> {
        let hash = self.hasher.hash_one((table, key));
        &self.shards[hash as usize % SHARDS]
    }

    /// The rows of a batch that is proposed at `seq`. In the order of the log.
    pub(crate) fn add(&self, seq: Seq, batch: &Batch) {
        for (table, key, value) in batch.ops().iter().filter_map(row_of) {
            let value = value.cloned();
            let version = Version { seq, value };
            self.shard(table, key).lock().insert((table, key.clone()), version);
        }
    }

    /// The batch at `seq` has been published.
    pub(crate) fn remove(&self, seq: Seq, batch: &Batch) {
        for (table, key, _) in batch.ops().iter().filter_map(row_of) {
            let mut shard = self.shard(table, key).lock();
            let row = (table, key.clone());
            if shard.get(&row).is_some_and(|version| version.seq == seq) {
                shard.remove(&row);
            }
        }
    }

    /// The version of a row that is pending, and the entry that makes it.
    pub(crate) fn get(&self, table: TableId, key: &[u8]) -> Option<(Seq, Option<Bytes>)> {
        let shard = self.shard(table, key).lock();
        let version = shard.get(&(table, Bytes::copy_from_slice(key)))?;
        Some((version.seq, version.value.clone()))
    }

    /// The rows of a table whose keys begin with `prefix`: the entry that changes each, and whether it is there then.
    /// Looks at all that is pending.
    pub(crate) fn with_prefix(&self, table: TableId, prefix: &[u8]) -> Vec<(Bytes, Seq, bool)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let rows = shard
                .iter()
                .filter(|((of, key), _)| *of == table && key.starts_with(prefix));
            found.extend(rows.map(|((_, key), version)| (key.clone(), version.seq, version.value.is_some())));
        }
        found
    }

    /// Rows pending.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
