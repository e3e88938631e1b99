//! The range tombstones of a memtable: a batch may bring thousands of them, and each write and each lookup asks for
//! those over one key.
//!
//! Invariants: they stand by their start; `reach` is the greatest end up to there, so that a look that goes back from
//! a key stops where nothing further on reaches it.

use crate::memtable::OVERHEAD_BYTES;
use crate::run::{Key, Tombstone};
use engine::Seq;
use pins::Horizon;

struct Entry {
    tombstone: Tombstone,
    /// `None`: behind all keys.
    reach: Option<Key>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ranges {
    entries: Vec<Entry>,
}

impl Ranges {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tombstone> {
        self.entries.iter().map(|entry| &entry.tombstone)
    }

    /// Those that have keys of a range, which is not empty.
    pub(crate) fn overlapping<'r>(&'r self, low: &'r [u8], high: Option<&[u8]>) -> impl Iterator<Item = &'r Tombstone> {
        let end = high.map_or(self.entries.len(), |high| self.first_from(high));
        let reaching = self.entries[..end]
            .iter()
            .rev()
            .take_while(move |entry| is_below(low, &entry.reach));
        let inside = reaching.filter(move |entry| is_below(low, &entry.tombstone.end));
        inside.map(|entry| &entry.tombstone)
    }

    /// Positions of those over a key that a reader at `seq` sees, newest first.
    pub(crate) fn covering(&self, key: &[u8], seq: Seq) -> Vec<Seq> {
        let end = self.entries.partition_point(|entry| *entry.tombstone.start <= *key);
        let reaching = self.entries[..end]
            .iter()
            .rev()
            .take_while(|entry| is_below(key, &entry.reach));
        let over = reaching.map(|entry| &entry.tombstone);
        let seen = over.filter(|tombstone| tombstone.seq <= seq && tombstone.covers(key));
        let mut covering: Vec<Seq> = seen.map(|tombstone| tombstone.seq).collect();
        covering.sort_by(|a, b| b.cmp(a));
        covering
    }

    /// Takes one in that is no older than any, and lets those go that it covers and nobody needs. Answers the memory
    /// that was added and given back.
    pub(crate) fn add(&mut self, new: Tombstone, horizon: &Horizon) -> (usize, usize) {
        let covers_new = |old: &Tombstone| old.seq == new.seq && old.covers_all(&new.start, new.end.as_deref());
        if self
            .overlapping(&new.start, Some(&crate::run::behind(&new.start)))
            .any(covers_new)
        {
            return (0, 0);
        }
        let first = self.first_from(&new.start);
        let last = new
            .end
            .as_deref()
            .map_or(self.entries.len(), |end| self.first_from(end));
        let stays = |old: &Tombstone| {
            let is_covered = new.covers_all(&old.start, old.end.as_deref());
            !(is_covered && (old.seq == new.seq || !horizon.needs(old.seq, new.seq)))
        };
        let (mut removed, mut kept) = (0, Vec::new());
        for entry in self.entries.drain(first..last) {
            match stays(&entry.tombstone) {
                true => kept.push(entry),
                false => removed += memory_bytes(&entry.tombstone),
            }
        }
        let added = memory_bytes(&new);
        let changed_end = first + 1 + kept.len();
        let reach = new.end.clone();
        let new = Entry { tombstone: new, reach };
        self.entries.splice(first..first, std::iter::once(new).chain(kept));
        self.set_reach(first, changed_end);
        (added, removed)
    }

    /// Takes one in as it is. Answers its memory.
    pub(crate) fn insert(&mut self, tombstone: Tombstone) -> usize {
        let (bytes, at) = (memory_bytes(&tombstone), self.first_from(&tombstone.start));
        let reach = tombstone.end.clone();
        self.entries.insert(at, Entry { tombstone, reach });
        self.set_reach(at, at + 1);
        bytes
    }

    /// The first that starts at a key or behind it.
    fn first_from(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|entry| *entry.tombstone.start < *key)
    }

    /// After the entries up to `changed_end` were put in.
    fn set_reach(&mut self, first: usize, changed_end: usize) {
        let mut before = match first.checked_sub(1) {
            None => Some(Key::from(&[][..])),
            Some(before) => self.entries[before].reach.clone(),
        };
        for (at, entry) in self.entries.iter_mut().enumerate().skip(first) {
            let end = &entry.tombstone.end;
            let reach = match (&before, end) {
                (Some(before), Some(end)) => Some(before.max(end).clone()),
                _ => None,
            };
            if at >= changed_end && reach == entry.reach {
                return;
            }
            entry.reach = reach.clone();
            before = reach;
        }
    }
}

fn is_below(key: &[u8], end: &Option<Key>) -> bool {
    end.as_ref().is_none_or(|end| *key < **end)
}

fn memory_bytes(tombstone: &Tombstone) -> usize {
    tombstone.start.len() + tombstone.end.as_ref().map_or(0, |end| end.len()) + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::coalesce;
    use vfs::{Random, SeededRandom};

    fn sorted<'t>(tombstones: impl Iterator<Item = &'t Tombstone>) -> Vec<(Vec<u8>, Option<Vec<u8>>, u64)> {
        let parts = tombstones.map(|t| (t.start.to_vec(), t.end.as_ref().map(|end| end.to_vec()), t.seq.0));
        let mut all: Vec<_> = parts.collect();
        all.sort();
        all
    }

    /// Random ones, many of them within others, against a list that is gone through.
    #[test]
    fn they_are_what_a_list_of_all_would_be() {
        let random = SeededRandom::new(7);
        let below = |bound: u64| (random.next_u64() % bound) as u8;
        for round in 0..200 {
            let width = 2 + u64::from(below(30));
            let horizon = Horizon::new(Seq(20), vec![Seq(u64::from(below(20)))]);
            let (mut ranges, mut list, mut memory) = (Ranges::default(), Vec::new(), 0);
            for step in 0..40 {
                let start = below(60);
                let tombstone = Tombstone {
                    start: [start][..].into(),
                    end: (below(12) > 0).then(|| [start + 1 + below(width)][..].into()),
                    seq: Seq(step / 2),
                };
                list.push(tombstone.clone());
                coalesce(&mut list, &horizon);
                let (added, removed) = ranges.add(tombstone, &horizon);
                memory = memory + added - removed;
                assert_eq!(sorted(ranges.iter()), sorted(list.iter()), "round {round}");
                assert_eq!(memory, list.iter().map(memory_bytes).sum::<usize>());
                let (low, at) = ([below(100)], Seq(u64::from(below(20))));
                let mut covering: Vec<Seq> = list.iter().filter(|t| t.covers(&low)).map(|t| t.seq).collect();
                covering.retain(|seq| *seq <= at);
                covering.sort_by(|a, b| b.cmp(a));
                assert_eq!(ranges.covering(&low, at), covering);
                let high = (below(5) > 0).then(|| [low[0] + 1 + below(20)]);
                let high = high.as_ref().map(|high| &high[..]);
                let overlapping = list.iter().filter(|t| t.clipped(&low, high).is_some());
                assert_eq!(
                    sorted(ranges.overlapping(&low, high)),
                    sorted(overlapping),
                    "round {round}"
                );
            }
            let mut copy = Ranges::default();
            for tombstone in ranges.iter() {
                copy.insert(tombstone.clone());
            }
            assert_eq!(sorted(copy.iter()), sorted(list.iter()));
        }
    }
}
