//! Whether the blocks of a table's leaves are compressed in sections.
//!
//! A point read then decompresses a part of a block. But each section is compressed without what came before, and that
//! makes blocks longer by what rows have in common: next to nothing for short ones, a tenth for documents with long
//! names of fields. Longer blocks mean that fewer have room in memory. A tenth longer, with a cache that has a third of
//! what is read, one read in thirty is one of the disk more: that is less than what the others save as long as the disk
//! answers within a quarter of a millisecond. But all that is written and scanned is longer, too. So it is measured,
//! now and then, on a leaf that is written, and sections may cost a part of what compression saves.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One leaf in so many is compressed both ways.
const MEASURED_PART: u64 = 64;
/// Sections may make blocks longer by one part in so many, whatever compression saves.
const SMALL_COST_PART: u64 = 20;
/// They may by one part in so many,
const LARGE_COST_PART: u64 = 7;
/// where that is one part in so many, or less, of what compression saves.
const SAVED_PART: u64 = 5;
/// Once the sums are so large they are halved: what was measured long ago counts less and less.
const SUM_MAX: u64 = 1 << 20;

/// What was measured of one table.
#[derive(Default)]
pub(crate) struct Cutting {
    written: AtomicU64,
    sums: Mutex<Measured>,
    /// What [`Measured::pays`] said last.
    pays: AtomicBool,
}

/// Of one leaf, and of all.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measured {
    /// Bytes that are compressed.
    pub(crate) raw: u64,
    /// Bytes of the block in sections.
    pub(crate) in_sections: u64,
    /// Bytes of the block without.
    pub(crate) whole: u64,
}

impl Cutting {
    /// A leaf of which there would be sections is written: whether it shall be measured.
    pub(crate) fn is_due(&self) -> bool {
        let written = self.written.fetch_add(1, Ordering::Relaxed);
        written.is_multiple_of(MEASURED_PART)
    }

    /// Takes in how long a leaf is, and its block in sections and without.
    pub(crate) fn note(&self, leaf: Measured) {
        let mut sums = self.sums.lock();
        sums.raw += leaf.raw.min(SUM_MAX);
        sums.in_sections += leaf.in_sections.min(SUM_MAX);
        sums.whole += leaf.whole.min(SUM_MAX);
        while sums.raw.max(sums.in_sections).max(sums.whole) > SUM_MAX {
            sums.raw /= 2;
            sums.in_sections /= 2;
            sums.whole /= 2;
        }
        self.pays.store(sums.pays(), Ordering::Relaxed);
    }

    /// Whether sections cost less than they give; not before that was measured.
    pub(crate) fn pays(&self) -> bool {
        self.pays.load(Ordering::Relaxed)
    }
}

impl Measured {
    fn pays(&self) -> bool {
        let cost = self.in_sections.saturating_sub(self.whole);
        let saved = self.raw.saturating_sub(self.whole);
        let is_small = cost * SMALL_COST_PART <= self.whole;
        let is_worth_it = cost * LARGE_COST_PART <= self.whole && cost * SAVED_PART <= saved;
        self.whole > 0 && (is_small || is_worth_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(raw: u64, in_sections: u64, whole: u64) -> Measured {
        Measured {
            raw,
            in_sections,
            whole,
        }
    }

    #[test]
    fn it_pays_where_it_costs_little_or_a_part_of_what_compression_saves() {
        assert!(!Cutting::default().pays(), "nothing is known");
        for (raw, in_sections, whole, expected) in [
            // A twentieth.
            (4000, 3900, 4000, true),
            (4000, 4000, 4000, true),
            (4000, 4200, 4000, true),
            (4000, 4201, 4000, false),
            // A fifth of what is saved.
            (6000, 4400, 4000, true),
            (5999, 4400, 4000, false),
            // A seventh of all.
            (16_000, 4571, 4000, true),
            (16_000, 4572, 4000, false),
            (16_000, 9000, 4000, false),
        ] {
            let cutting = Cutting::default();
            cutting.note(leaf(raw, in_sections, whole));
            assert_eq!(cutting.pays(), expected, "{raw} {in_sections} {whole}");
        }
    }

    #[test]
    fn what_is_measured_later_counts_in_time() {
        let cutting = Cutting::default();
        for (in_sections, expected) in [(8100, true), (9500, false), (8100, true)] {
            (0..1000).for_each(|_| cutting.note(leaf(16_000, in_sections, 8000)));
            assert_eq!(cutting.pays(), expected);
        }
        for (raw, in_sections, whole) in [(u64::MAX, u64::MAX, u64::MAX), (0, 0, 0), (0, 0, u64::MAX)] {
            (0..3).for_each(|_| cutting.note(leaf(raw, in_sections, whole)));
        }
        (0..1000).for_each(|_| cutting.note(leaf(16_000, 9500, 8000)));
        assert!(!cutting.pays(), "whatever was measured before");
    }

    #[test]
    fn one_leaf_in_so_many_is_measured() {
        let cutting = Cutting::default();
        let due: Vec<_> = (0..130).filter(|_| cutting.is_due()).collect();
        assert_eq!(due, [0, 64, 128]);
    }
}
