//! Rows that are proposed and not applied yet, for those who evaluate the next change of them.
//!
//! Whoever has the lock of a row asks here first and takes a snapshot after that ([`Pending::get`]): what leaves in
//! between has been published before. Readers do not look: they see what is applied.
//!
//! Invariant: a key has the last proposed version of it, and only while that is not applied. A table of `ordered` has
//! the same rows as the shards have of it, but for those that [`Pending::add`] or [`Pending::remove`] is at.

use bytes::Bytes;
use engine::{Batch, Op, Seq, TableId};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: usize = 16;

type Rows = HashMap<(TableId, Bytes), Version>;

/// The rows of tables that were asked for by the beginning of keys: the entry that changes each, and whether it is
/// there then.
type OrderedRows = HashMap<TableId, BTreeMap<Bytes, (Seq, bool)>>;

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
    /// `ordered` has tables.
    has_ordered: AtomicBool,
    ordered: Mutex<OrderedRows>,
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
            has_ordered: AtomicBool::new(false),
            ordered: Mutex::default(),
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
        let mut ordered = self.ordered.lock();
        self.shards.iter().for_each(|shard| shard.lock().clear());
        ordered.clear();
        self.has_ordered.store(false, Ordering::Release);
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
        // Behind the shards: who makes a table of `ordered` from them has said so before it looked at them.
        if self.has_ordered.load(Ordering::Acquire) {
            let mut ordered = self.ordered.lock();
            for (table, key, value) in batch.ops().iter().filter_map(row_of) {
                if let Some(rows) = ordered.get_mut(&table) {
                    rows.insert(key.clone(), (seq, value.is_some()));
                }
            }
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
        if self.has_ordered.load(Ordering::Acquire) {
            let mut ordered = self.ordered.lock();
            for (table, key, _) in batch.ops().iter().filter_map(row_of) {
                if let Some(rows) = ordered.get_mut(&table)
                    && rows.get(key).is_some_and(|(at, _)| *at == seq)
                {
                    rows.remove(key);
                    if rows.is_empty() {
                        ordered.remove(&table);
                    }
                }
            }
            self.has_ordered.store(!ordered.is_empty(), Ordering::Release);
        }
    }

    /// The version of a row that is pending, and the entry that makes it.
    pub(crate) fn get(&self, table: TableId, key: &[u8]) -> Option<(Seq, Option<Bytes>)> {
        let shard = self.shard(table, key).lock();
        let version = shard.get(&(table, Bytes::copy_from_slice(key)))?;
        Some((version.seq, version.value.clone()))
    }

    /// The rows of a table whose keys begin with `prefix`, in the order of the keys: the entry that changes each, and
    /// whether it is there then.
    pub(crate) fn with_prefix(&self, table: TableId, prefix: &[u8]) -> Vec<(Bytes, Seq, bool)> {
        self.with_prefix_from(table, prefix, prefix)
    }

    /// As [`Pending::with_prefix`], from a key on that begins with `prefix`: those in front of it are not visited.
    pub(crate) fn with_prefix_from(&self, table: TableId, prefix: &[u8], from: &[u8]) -> Vec<(Bytes, Seq, bool)> {
        let mut ordered = self.ordered.lock();
        let rows = ordered.entry(table).or_insert_with(|| {
            self.has_ordered.store(true, Ordering::Release);
            let mut rows = BTreeMap::new();
            for shard in &self.shards {
                let shard = shard.lock();
                let of_table = shard.iter().filter(|((of, _), _)| *of == table);
                rows.extend(of_table.map(|((_, key), version)| (key.clone(), (version.seq, version.value.is_some()))));
            }
            rows
        });
        rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, (seq, is_there))| (key.clone(), *seq, *is_there))
            .collect()
    }

    /// Keeps whoever applies from installing what is published, if that has rows.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> Vec<parking_lot::MutexGuard<'_, impl Sized>> {
        self.shards.iter().map(Mutex::lock).collect()
    }

    /// Rows pending.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pick, seed_of};
    use vfs::SeededRandom;

    /// Whenever a table was asked for first, all of it is found that is pending.
    #[test]
    fn rows_by_the_beginning_of_keys_are_those_pending() {
        let seed = seed_of("PENDING_SEED");
        let random = SeededRandom::new(seed);
        let pending = Pending::new(true);
        let mut proposed: Vec<(Seq, Batch)> = Vec::new();
        for step in 1..3_000_u64 {
            if pick(&random, 2) == 0 || proposed.is_empty() {
                let mut batch = Batch::new();
                for _ in 0..pick(&random, 5) {
                    let (table, key) = (
                        TableId(pick(&random, 3) as u32),
                        vec![pick(&random, 4) as u8, pick(&random, 4) as u8],
                    );
                    match pick(&random, 3) {
                        0 => batch.delete(table, key),
                        _ => batch.put(table, key, vec![1]),
                    }
                }
                pending.add(Seq(step), &batch);
                proposed.push((Seq(step), batch));
            } else {
                let (seq, batch) = proposed.remove(0);
                pending.remove(seq, &batch);
            }
            // Of tables 1 and 2 rows are pending before they are asked for.
            let (table, prefix) = (
                TableId((pick(&random, 3) % (1 + step / 500)) as u32),
                [pick(&random, 4) as u8],
            );
            let mut expected = BTreeMap::new();
            for (seq, batch) in &proposed {
                for (of, key, value) in batch.ops().iter().filter_map(row_of) {
                    if of == table && key.starts_with(&prefix) {
                        expected.insert(key.clone(), (*seq, value.is_some()));
                    }
                }
            }
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(key, (seq, is_there))| (key, seq, is_there))
                .collect();
            assert_eq!(
                pending.with_prefix(table, &prefix),
                expected,
                "seed {seed}, step {step}"
            );
            let from = [prefix[0], pick(&random, 4) as u8];
            let behind = expected.into_iter().filter(|(key, ..)| key[..] >= from[..]);
            assert_eq!(
                pending.with_prefix_from(table, &prefix, &from),
                behind.collect::<Vec<_>>(),
                "seed {seed}, step {step}"
            );
        }
        pending.clear();
        assert_eq!(pending.with_prefix(TableId(0), &[]), []);
    }
}
