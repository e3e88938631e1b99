//! Which term an entry has.
//!
//! Terms never fall from entry to entry, so a list of where each begins is enough. It reaches back to where the walk at
//! opening began; older entries are asked for on disk.

use crate::format::SegmentHeader;
use engine::Seq;

/// Where terms begin. Both columns rise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    /// The first entry that the list speaks of, and the term of the one before it.
    from: Option<(Seq, u64)>,
    begins: Vec<(Seq, u64)>,
}

impl Terms {
    /// A segment begins: what it takes back goes.
    pub fn begin_segment(&mut self, segment: &SegmentHeader) {
        self.from.get_or_insert((segment.first, segment.term_before));
        if segment.truncates {
            self.truncate(segment.first);
        }
    }

    /// Forgets everything: the next entry is `first`, behind one of the term `before` at least.
    pub fn begin(&mut self, first: Seq, before: u64) {
        *self = Self {
            from: Some((first, self.last().max(before))),
            begins: Vec::new(),
        };
    }

    /// Without segments the list begins with the entry to come.
    pub fn reach_back_to(&mut self, next: Seq) {
        self.from.get_or_insert((next, 0));
    }

    /// The entries from `first` on have that term.
    pub fn note(&mut self, first: Seq, term: u64) {
        if self.last() != term {
            debug_assert!(
                self.begins
                    .last()
                    .is_none_or(|&(before, last)| before < first && last < term)
            );
            self.begins.push((first, term));
        }
    }

    /// There are no entries from `from` on any more.
    pub fn truncate(&mut self, from: Seq) {
        self.begins.retain(|&(first, _)| first < from);
    }

    /// The term of the last entry.
    pub fn last(&self) -> u64 {
        let before = self.from.map_or(0, |(_, term)| term);
        self.begins.last().map_or(before, |&(_, term)| term)
    }

    /// The term of an entry; `None` when the list does not reach back to it.
    pub fn of(&self, seq: Seq) -> Option<u64> {
        match self.begins.partition_point(|&(first, _)| first <= seq).checked_sub(1) {
            Some(index) => Some(self.begins[index].1),
            None => self
                .from
                .filter(|&(first, _)| seq.next() >= first)
                .map(|(_, term)| term),
        }
    }
}
