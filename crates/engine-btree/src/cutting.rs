//! Whether the blocks of a table's leaves are compressed in sections.
//!
//! A point read then decompresses a part of a block. But each section is compressed without what came before, and that
//! makes blocks longer by what rows have in common: next to nothing for short ones, a tenth for documents with long
//! names of fields. Longer blocks mean that fewer have room in memory. A twentieth longer, with a cache that has a
//! third of what is read, one read in sixty is one of the disk more: that is less than what the others save as long as
//! the disk answers within half a millisecond. So it is measured, now and then, on a leaf that is written.

use std::sync::atomic::{AtomicU64, Ordering};

/// One leaf in so many is compressed both ways.
const MEASURED_PART: u32 = 64;
/// Sections may make blocks longer by one part in so many.
const COST_PART: u64 = 20;
/// Once the sums are so large they are halved: what was measured long ago counts less and less.
const SUM_MAX: u32 = 1 << 20;

/// What was measured of one table. Measurements of several threads at once may get lost.
#[derive(Default)]
pub(crate) struct Cutting {
    /// Bytes of blocks in sections (upper half), and of the same leaves' blocks without.
    sums: AtomicU64,
    written: AtomicU64,
}

impl Cutting {
    fn sums(&self) -> [u32; 2] {
        let sums = self.sums.load(Ordering::Relaxed);
        [(sums >> 32) as u32, sums as u32]
    }

    /// A leaf of which there would be sections is written: whether it shall be measured.
    pub(crate) fn is_due(&self) -> bool {
        let written = self.written.fetch_add(1, Ordering::Relaxed);
        written.is_multiple_of(u64::from(MEASURED_PART))
    }

    /// Takes in how long a leaf's block is in sections, and how long without.
    pub(crate) fn note(&self, in_sections: usize, whole: usize) {
        let add = |sum: u32, bytes: usize| sum.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let [cut_sum, whole_sum] = self.sums();
        let mut sums = [add(cut_sum, in_sections), add(whole_sum, whole)];
        while sums[0].max(sums[1]) > SUM_MAX {
            sums = sums.map(|sum| sum / 2);
        }
        self.sums
            .store(u64::from(sums[0]) << 32 | u64::from(sums[1]), Ordering::Relaxed);
    }

    /// Whether sections cost little; not before that was measured.
    pub(crate) fn pays(&self) -> bool {
        let [in_sections, whole] = self.sums().map(u64::from);
        whole > 0 && in_sections * COST_PART <= whole * (COST_PART + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pays_where_blocks_get_a_twentieth_longer_at_most() {
        assert!(!Cutting::default().pays(), "nothing is known");
        for (in_sections, expected) in [(3900, true), (4000, true), (4200, true), (4201, false), (9000, false)] {
            let cutting = Cutting::default();
            cutting.note(in_sections, 4000);
            assert_eq!(cutting.pays(), expected, "{in_sections}");
        }
    }

    #[test]
    fn what_is_measured_later_counts_in_time() {
        let cutting = Cutting::default();
        for (in_sections, expected) in [(8100, true), (9000, false), (8100, true)] {
            (0..1000).for_each(|_| cutting.note(in_sections, 8000));
            assert_eq!(cutting.pays(), expected);
        }
        for (in_sections, whole) in [(usize::MAX, usize::MAX), (0, 0), (0, usize::MAX)] {
            (0..3).for_each(|_| cutting.note(in_sections, whole));
        }
        assert!(cutting.pays());
    }

    #[test]
    fn the_first_leaf_and_then_few_are_measured() {
        let cutting = Cutting::default();
        let due: Vec<_> = (0..130).filter(|_| cutting.is_due()).collect();
        assert_eq!(due, [0, 64, 128]);
    }
}
