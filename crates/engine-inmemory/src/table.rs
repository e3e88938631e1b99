//! One table: an ordered map of version chains under a lock.
//!
//! It knows nothing of batches and snapshots, only of positions. The lock is held for one write, or for one batch of
//! rows read; a reader that wants more comes back with the key it stopped at.

use crate::chain::Chain;
use crate::key::Key;
use bytes::Bytes;
use engine::{Direction, Seq, TableId, TableSpec};
use parking_lot::RwLock;
use pins::Horizon;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Memory of a row beside its value: its slots in the map's nodes, which are two thirds full on average, and the
/// allocator's and [`Bytes`]'s own headers. Measured, see `docs/engines/inmemory.md`.
pub(crate) const ROW_BYTES: usize = 160;
/// Memory of an older version beside its value.
const VERSION_BYTES: usize = 96;
/// Memory of an entry in the queue of what is to be cleared away.
const RESIDUE_BYTES: usize = 64;
/// Rows looked at under one lock at most, so that a long stretch of deleted keys does not keep writers out.
const EXAMINED_MAX: usize = 1024;
/// In [`Table::dropped`]: not dropped.
const LIVE: u64 = u64::MAX;

/// A table and when it lived.
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) spec: TableSpec,
    created: Seq,
    /// The position it was dropped at, or [`LIVE`].
    dropped: AtomicU64,
    rows: RwLock<RowMap>,
    /// The memory of the rows of all tables.
    total: Arc<AtomicUsize>,
}

/// The rows, and what they weigh.
#[derive(Default)]
pub(crate) struct RowMap {
    map: BTreeMap<Key, Chain>,
    /// Keys whose newest version is a value.
    live: u64,
    /// Key and value bytes of the newest versions.
    live_bytes: u64,
    /// All memory.
    memory_bytes: usize,
    /// Of it, that of older versions.
    history_bytes: usize,
}

/// What a write did to the older versions of its key, which will have to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Residue {
    /// There are some, and there were none before.
    pub(crate) is_new: bool,
    /// There are some.
    pub(crate) is_left: bool,
    /// By how much the memory that they take has grown.
    pub(crate) bytes: isize,
}

/// How much of a table is there, by its newest versions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableSize {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) memory_bytes: usize,
}

/// A stretch of keys, as a cursor has it left to read.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) lower: Bound<Key>,
    pub(crate) upper: Bound<Key>,
}

impl Span {
    pub(crate) fn of(range: &engine::KeyRange) -> Self {
        let own = |bound: &Bound<Vec<u8>>| bound.as_ref().map(|key| Key::new(key));
        Self {
            lower: own(&range.start),
            upper: own(&range.end),
        }
    }

    /// True when no key can lie inside. (The standard map panics on some of these.)
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
            _ => false,
        }
    }

    /// Leaves nothing.
    pub(crate) fn finish(&mut self) {
        (self.lower, self.upper) = (Bound::Excluded(Key::new(&[])), Bound::Excluded(Key::new(&[])));
    }

    /// Leaves what is at or behind `key` in `direction`.
    pub(crate) fn start_at(&mut self, key: Key, direction: Direction) {
        let (bound, outside) = match direction {
            Direction::Forward => (&mut self.lower, Ordering::Greater),
            Direction::Reverse => (&mut self.upper, Ordering::Less),
        };
        let stands = match bound {
            Bound::Included(old) => (*old).cmp(&key) == outside,
            Bound::Excluded(old) => *old == key || (*old).cmp(&key) == outside,
            Bound::Unbounded => false,
        };
        if !stands {
            *bound = Bound::Included(key);
        }
    }

    /// Leaves what follows `key` in `direction`.
    pub(crate) fn continue_after(&mut self, key: Key, direction: Direction) {
        match direction {
            Direction::Forward => self.lower = Bound::Excluded(key),
            Direction::Reverse => self.upper = Bound::Excluded(key),
        }
    }
}

/// Whether a reader wants more rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    More,
    Enough,
}

impl Table {
    pub(crate) fn new(id: TableId, spec: TableSpec, created: Seq) -> Self {
        Self {
            id,
            spec,
            created,
            dropped: AtomicU64::new(LIVE),
            rows: RwLock::default(),
            total: Arc::default(),
        }
    }

    /// Has its memory counted in the sum of all tables.
    pub(crate) fn count_in(&mut self, total: &Arc<AtomicUsize>) {
        total.fetch_add(self.rows.get_mut().memory_bytes, Relaxed);
        self.total = Arc::clone(total);
    }

    /// Changes the rows.
    fn change<T>(&self, work: impl FnOnce(&mut RowMap) -> T) -> T {
        let mut rows = self.rows.write();
        let before = rows.memory_bytes;
        let result = work(&mut rows);
        // It wraps. Under the lock: what is taken from the sum has always been added to it before.
        self.total.fetch_add(rows.memory_bytes.wrapping_sub(before), Relaxed);
        result
    }

    /// True when a snapshot at `seq` has the table.
    pub(crate) fn exists_at(&self, seq: Seq) -> bool {
        self.created <= seq && seq.0 < self.dropped.load(Acquire)
    }

    /// True when the newest batch applied has the table.
    pub(crate) fn is_live(&self) -> bool {
        self.dropped.load(Acquire) == LIVE
    }

    /// Marks the table as gone from `seq` on.
    pub(crate) fn drop_at(&self, seq: Seq) {
        self.dropped.store(seq.0, Release);
    }

    /// The value of a key at `seq`.
    #[inline]
    pub(crate) fn get(&self, key: &Key, seq: Seq) -> Option<Bytes> {
        self.rows.read().map.get(key)?.at(seq).cloned()
    }

    /// Hands the rows of `span` at `seq` to `visit` until it has enough, and narrows `span` to what it has not seen.
    pub(crate) fn scan(
        &self,
        span: &mut Span,
        direction: Direction,
        seq: Seq,
        mut visit: impl FnMut(&Key, &Bytes) -> Visit,
    ) {
        while !span.is_empty() {
            let rows = self.rows.read();
            let mut range = rows.map.range::<Key, _>((span.lower.as_ref(), span.upper.as_ref()));
            let mut examined = 0;
            let stopped = loop {
                let next = match direction {
                    Direction::Forward => range.next(),
                    Direction::Reverse => range.next_back(),
                };
                let Some((key, chain)) = next else { break None };
                examined += 1;
                let enough = chain.at(seq).is_some_and(|value| visit(key, value) == Visit::Enough);
                if enough || examined == EXAMINED_MAX {
                    break Some((key.clone(), enough));
                }
            };
            match stopped {
                None => span.finish(),
                Some((key, enough)) => {
                    span.continue_after(key, direction);
                    if enough {
                        return;
                    }
                }
            }
        }
    }

    /// Sets (`Some`) or removes (`None`) a key as of `seq`.
    pub(crate) fn write(&self, key: &[u8], value: Option<Bytes>, seq: Seq, horizon: &Horizon) -> Residue {
        self.change(|rows| rows.write(Key::new(key), value, seq, horizon))
    }

    /// Adds to a little-endian integer as of `seq`; what is not one counts as 0.
    pub(crate) fn add(&self, key: &[u8], amount: i64, seq: Seq, horizon: &Horizon) -> Residue {
        let key = Key::new(key);
        self.change(|rows| {
            let old = rows
                .map
                .get(&key)
                .and_then(Chain::newest)
                .and_then(|value| value.as_ref().try_into().ok());
            let sum = old.map_or(0, i64::from_le_bytes).wrapping_add(amount);
            rows.write(key, Some(Bytes::copy_from_slice(&sum.to_le_bytes())), seq, horizon)
        })
    }

    /// Removes up to `rows_max` keys of `span` as of `seq`, tells `residue` what each left, and narrows `span`.
    pub(crate) fn delete_span(
        &self,
        span: &mut Span,
        rows_max: usize,
        seq: Seq,
        horizon: &Horizon,
        mut residue: impl FnMut(Key, Residue),
    ) {
        if span.is_empty() {
            return;
        }
        self.change(|rows| {
            let range = rows.map.range::<Key, _>((span.lower.as_ref(), span.upper.as_ref()));
            let keys: Vec<Key> = range.map(|(key, _)| key.clone()).take(rows_max).collect();
            match keys.last() {
                Some(last) if keys.len() == rows_max => span.continue_after(last.clone(), Direction::Forward),
                _ => span.finish(),
            }
            for key in keys {
                let left = rows.write(key.clone(), None, seq, horizon);
                residue(key, left);
            }
        });
    }

    /// Forgets versions of a key that nobody needs any more.
    pub(crate) fn prune(&self, key: &Key, horizon: &Horizon) -> Residue {
        self.change(|rows| rows.prune(key, horizon))
    }

    /// Replaces the rows of an empty table; false when it is not empty.
    pub(crate) fn load(&self, rows: RowMap) -> bool {
        self.change(|current| {
            let is_empty = current.map.is_empty();
            if is_empty {
                *current = rows;
            }
            is_empty
        })
    }

    /// Takes all rows out, for a table that nobody can see any more. Their memory stays in the sum of all tables: who
    /// frees them takes it from there.
    pub(crate) fn take_rows(&self) -> RowMap {
        std::mem::take(&mut *self.rows.write())
    }

    pub(crate) fn size(&self) -> TableSize {
        let rows = self.rows.read();
        TableSize {
            rows: rows.live,
            bytes: rows.live_bytes,
            memory_bytes: rows.memory_bytes,
        }
    }

    /// Checks the order of all keys and the invariants of their chains, some rows at a time, and returns how many keys
    /// there are.
    pub(crate) fn check_invariants(&self) -> Result<u64, String> {
        let mut span = Span::of(&engine::KeyRange::all());
        let mut checked = 0;
        while !span.is_empty() {
            let rows = self.rows.read();
            let range = rows.map.range::<Key, _>((span.lower.as_ref(), span.upper.as_ref()));
            let mut before: Option<&Key> = None;
            for (key, chain) in range.take(EXAMINED_MAX) {
                let problem = match before {
                    Some(before) if before.as_slice() >= key.as_slice() => Err("it is out of order".to_owned()),
                    _ => chain.check_invariants(),
                };
                problem.map_err(|reason| format!("{:?}: key {:02x?}: {reason}", self.id, key.as_slice()))?;
                before = Some(key);
                checked += 1;
            }
            match before {
                Some(last) => span.continue_after(last.clone(), Direction::Forward),
                None => span.finish(),
            }
        }
        Ok(checked)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.total.fetch_sub(self.rows.get_mut().memory_bytes, Relaxed);
    }
}

impl RowMap {
    fn write(&mut self, key: Key, value: Option<Bytes>, seq: Seq, horizon: &Horizon) -> Residue {
        let key_bytes = key.len();
        let mut entry = match self.map.entry(key) {
            Entry::Vacant(entry) => {
                if let Some(value) = value {
                    self.live += 1;
                    self.live_bytes += (key_bytes + value.len()) as u64;
                    self.memory_bytes += ROW_BYTES + heap_bytes(key_bytes) + value.len();
                    entry.insert(Chain::new(seq, value));
                }
                return Residue::default();
            }
            Entry::Occupied(entry) => entry,
        };
        let had = entry.get().history();
        if value.is_none() && entry.get().newest().is_none() {
            return Residue::between(had, had);
        }
        if let Some(old) = entry.get().newest() {
            self.live -= 1;
            self.live_bytes -= (key_bytes + old.len()) as u64;
        }
        if let Some(new) = &value {
            self.live += 1;
            self.live_bytes += (key_bytes + new.len()) as u64;
        }
        self.memory_bytes -= memory_of(entry.key(), entry.get());
        entry.get_mut().push(seq, value);
        if !entry.get_mut().prune(horizon) {
            entry.remove();
            let residue = Residue::between(had, (0, 0));
            self.history_bytes = self.history_bytes.saturating_add_signed(residue.bytes);
            return residue;
        }
        self.memory_bytes += memory_of(entry.key(), entry.get());
        let residue = Residue::between(had, entry.get().history());
        self.history_bytes = self.history_bytes.saturating_add_signed(residue.bytes);
        residue
    }

    fn prune(&mut self, key: &Key, horizon: &Horizon) -> Residue {
        let Some(chain) = self.map.get_mut(key) else {
            return Residue::default();
        };
        let had = chain.history();
        self.memory_bytes -= memory_of(key, chain);
        let residue = if chain.prune(horizon) {
            self.memory_bytes += memory_of(key, chain);
            Residue::between(had, chain.history())
        } else {
            self.map.remove(key);
            Residue::between(had, (0, 0))
        };
        self.history_bytes = self.history_bytes.saturating_add_signed(residue.bytes);
        residue
    }

    /// The memory of all older versions.
    pub(crate) fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// All memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Rows of strictly rising keys, all of `seq`.
    pub(crate) fn from_sorted(rows: Vec<(Key, Bytes)>, seq: Seq) -> Self {
        let live = rows.len() as u64;
        let live_bytes = rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        let map: BTreeMap<Key, Chain> = rows
            .into_iter()
            .map(|(key, value)| (key, Chain::new(seq, value)))
            .collect();
        let memory_bytes = map.iter().map(|(key, chain)| memory_of(key, chain)).sum();
        Self {
            map,
            live,
            live_bytes,
            memory_bytes,
            history_bytes: 0,
        }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Frees up to `rows_max` rows; false when none are left. Of what the rows weigh, only the memory is kept true.
    pub(crate) fn free_some(&mut self, rows_max: usize) -> bool {
        for _ in 0..rows_max {
            let Some((key, chain)) = self.map.pop_first() else {
                return false;
            };
            self.memory_bytes -= memory_of(&key, &chain);
        }
        true
    }
}

impl Residue {
    /// Of a key whose older versions, their number and their bytes, were and are these.
    fn between(before: (usize, usize), now: (usize, usize)) -> Self {
        Self {
            is_new: before.0 == 0 && now.0 > 0,
            is_left: now.0 > 0,
            bytes: history_memory(now) as isize - history_memory(before) as isize,
        }
    }
}

/// Memory of so many older versions, with values of so many bytes together, and of the entry that sees to it that they
/// go.
fn history_memory((versions, value_bytes): (usize, usize)) -> usize {
    match versions {
        0 => 0,
        _ => versions * VERSION_BYTES + value_bytes + RESIDUE_BYTES,
    }
}

/// Bytes a key takes outside the map's nodes.
fn heap_bytes(key_bytes: usize) -> usize {
    if key_bytes > crate::key::INLINE_BYTES_MAX {
        key_bytes
    } else {
        0
    }
}

fn memory_of(key: &Key, chain: &Chain) -> usize {
    let (value_bytes, versions) = chain.weight();
    ROW_BYTES + heap_bytes(key.len()) + value_bytes + (versions - 1) * VERSION_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::TableKind;

    fn new_table() -> Table {
        let spec = TableSpec {
            kind: TableKind::Index,
            name: String::new(),
            compressor: None,
        };
        Table::new(TableId(1), spec, Seq(1))
    }

    /// The counters are kept by every write; here they are compared with the rows.
    #[test]
    fn counters_follow_the_rows() {
        let table = new_table();
        for step in 1..2000u64 {
            // A snapshot that stands still for a while, and a published position one behind.
            let horizon = Horizon::new(Seq(step - 1), vec![Seq(step / 100 * 100)]);
            let key = vec![7; (step * 31 % 40) as usize];
            let value = (step % 3 != 0).then(|| Bytes::from(vec![0; (step % 50) as usize]));
            match step % 7 {
                0 => table.add(&key, 1, Seq(step), &horizon),
                1 => table.prune(&Key::new(&key), &horizon),
                _ => table.write(&key, value, Seq(step), &horizon),
            };
            let rows = table.rows.read();
            let live: Vec<(&Key, &Bytes)> = rows
                .map
                .iter()
                .filter_map(|(key, chain)| Some((key, chain.newest()?)))
                .collect();
            let bytes: usize = live.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert_eq!(
                (rows.live, rows.live_bytes),
                (live.len() as u64, bytes as u64),
                "step {step}"
            );
            let memory: usize = rows.map.iter().map(|(key, chain)| memory_of(key, chain)).sum();
            assert_eq!(rows.memory_bytes, memory, "step {step}");
            assert_eq!(table.total.load(Relaxed), memory, "step {step}");
            let history: usize = rows.map.values().map(|chain| history_memory(chain.history())).sum();
            assert_eq!(rows.history_bytes, history, "step {step}");
        }
        assert!(table.check_invariants().expect("holds") > 10);
    }

    /// Keys inside and outside the map's nodes, and one with an older version.
    fn fill(table: &Table) {
        let horizon = Horizon::new(Seq(1), vec![Seq(1)]);
        for length in 1..60u8 {
            table.write(
                &vec![length; usize::from(length)],
                Some(Bytes::from_static(b"value")),
                Seq(1),
                &horizon,
            );
        }
        table.write(&[1], Some(Bytes::from_static(b"newer")), Seq(2), &horizon);
    }

    #[test]
    fn rows_that_were_taken_out_weigh_until_they_are_freed() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut table = new_table();
        table.count_in(&total);
        fill(&table);
        let memory = total.load(Relaxed);
        let mut rows = table.take_rows();
        assert_eq!((table.size().memory_bytes, rows.memory_bytes()), (0, memory));
        drop(table);
        assert_eq!(total.load(Relaxed), memory);
        assert!(rows.free_some(20));
        assert!((1..memory).contains(&rows.memory_bytes()));
        assert!(!rows.free_some(100));
        assert_eq!(rows.memory_bytes(), 0);
    }

    #[test]
    fn a_table_that_goes_with_its_rows_leaves_nothing_in_the_sum() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut table = new_table();
        fill(&table);
        table.count_in(&total);
        assert_eq!(total.load(Relaxed), table.size().memory_bytes);
        drop(table);
        assert_eq!(total.load(Relaxed), 0);
    }
}
