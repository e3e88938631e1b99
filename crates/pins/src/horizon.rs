//! Which versions are needed.

use engine::Seq;

/// The positions at which versions are needed: those of open snapshots, the published one, and every later one.
///
/// An answer never becomes wrong with time: a snapshot opened later stands at the published position of the horizon or
/// behind it, and one that has gone since only makes the horizon keep more than it must. So a writer may go on with an
/// old one and bring it up to date now and then.
#[derive(Debug, Default)]
pub struct Horizon {
    pub(crate) published: Seq,
    /// Rising, each once.
    pub(crate) open: Vec<Seq>,
    /// Calls of [`crate::Pins::refresh`] until it is brought up to date.
    pub(crate) age: usize,
}

impl Horizon {
    /// Of a published position and the rising positions of open snapshots.
    pub fn new(published: Seq, open: Vec<Seq>) -> Self {
        debug_assert!(open.is_sorted_by(|a, b| a < b), "rising, each once: {open:?}");
        Self {
            published,
            open,
            age: 0,
        }
    }

    /// The published position; snapshots opened later stand at it or behind it.
    pub fn published(&self) -> Seq {
        self.published
    }

    /// Positions of open snapshots, rising, each once.
    pub fn open(&self) -> &[Seq] {
        &self.open
    }

    /// True when a version of `from` that is covered by a newer one of `covered_from` can still be seen.
    #[inline]
    pub fn needs(&self, from: Seq, covered_from: Seq) -> bool {
        if covered_from > self.published {
            return true;
        }
        let first = self.open.partition_point(|&seq| seq < from);
        self.open.get(first).is_some_and(|&seq| seq < covered_from)
    }

    /// The oldest position at which anybody reads or will read.
    #[inline]
    pub fn oldest(&self) -> Seq {
        self.open
            .first()
            .map_or(self.published, |&oldest| oldest.min(self.published))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_needed_where_a_snapshot_stands_between_it_and_the_next() {
        let horizon = Horizon::new(Seq(20), vec![Seq(5), Seq(9)]);
        assert_eq!(horizon.oldest(), Seq(5));
        let needed = |from, covered| horizon.needs(Seq(from), Seq(covered));
        assert!(needed(5, 6) && needed(3, 7) && needed(9, 10));
        assert!(!needed(3, 5), "5 sees the next one");
        assert!(!needed(6, 9) && !needed(10, 20));
        assert!(needed(10, 21), "20 is published: a snapshot may be opened there");
        assert_eq!(Horizon::new(Seq(7), Vec::new()).oldest(), Seq(7));
    }
}
