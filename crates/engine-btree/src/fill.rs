//! Where a leaf of appended rows ends.
//!
//! A block takes whole sectors; the last one is half empty on average, which is a thirtieth of a compressed leaf of 16
//! KiB. Where rows come in order, by appending or by a bulk load, a leaf may as well end some rows sooner, where its
//! block fills its sectors. How long the block will be is estimated from the blocks before: the mean of their bytes for
//! each byte of rows and its mean deviation, both smoothed exponentially, as TCP estimates its round-trip time
//! (Jacobson 1988, *Congestion Avoidance and Control*, appendix A). What the allocator rounds a leaf in memory to
//! counts, too, half as much.

use crate::budget::good_size;
use blocks::SECTOR_BYTES;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Weight of one block in the mean, and in the deviation.
const MEAN_GAIN: f32 = 1.0 / 8.0;
const DEVIATION_GAIN: f32 = 1.0 / 4.0;
/// Room for blocks that get longer than the mean says, in mean deviations.
const DEVIATIONS: f32 = 3.0;
/// So many blocks say enough; before, leaves are measured that are not written yet.
const SAMPLES: u8 = 8;
/// What is taken for the deviation after the first block, in parts of the mean.
const DEVIATION_PART: f32 = 128.0;
/// No block is longer for its rows, whatever they are.
const SHARE_MAX: f32 = 8.0;
/// Lengths of blocks that are compared, at most: more than there are for a leaf of some ten KiB.
const CANDIDATES: usize = 64;
/// A leaf ends by at most this part of its target sooner.
const SOONER_PART: usize = 8;

/// The estimate for the blocks of one table's leaves. Measurements of several threads at once may get lost.
#[derive(Default)]
pub(crate) struct Fill {
    estimate: AtomicU64,
    /// Blocks measured, up to [`SAMPLES`].
    samples: AtomicU8,
}

/// Block bytes for each byte of rows; zeros before the first block.
#[derive(Clone, Copy)]
struct Estimate {
    mean: f32,
    deviation: f32,
}

impl Fill {
    fn estimate(&self) -> Estimate {
        let bits = self.estimate.load(Ordering::Relaxed);
        Estimate {
            mean: f32::from_bits((bits >> 32) as u32),
            deviation: f32::from_bits(bits as u32),
        }
    }

    /// Takes in that a leaf of `row_bytes` became a block of `block_bytes`, not counting what its last sector has left.
    /// `target` is the size of full leaves: smaller ones compress less.
    pub(crate) fn note(&self, row_bytes: usize, block_bytes: usize, target: usize) {
        if row_bytes == 0 || row_bytes < lowest(target) {
            return;
        }
        let measured = (block_bytes as f32 / row_bytes as f32).min(SHARE_MAX);
        let Estimate { mean, deviation } = self.estimate();
        let error = measured - mean;
        let (mean, deviation) = if mean == 0.0 {
            (measured, measured / DEVIATION_PART)
        } else {
            (
                mean + MEAN_GAIN * error,
                deviation + DEVIATION_GAIN * (error.abs() - deviation),
            )
        };
        let bits = u64::from(mean.to_bits()) << 32 | u64::from(deviation.to_bits());
        self.estimate.store(bits, Ordering::Relaxed);
        let samples = self.samples.load(Ordering::Relaxed);
        self.samples.store(SAMPLES.min(samples + 1), Ordering::Relaxed);
    }

    /// Whether a leaf of `row_bytes` should be measured before it is written: too few were.
    pub(crate) fn wants(&self, row_bytes: usize, target: usize) -> bool {
        self.samples.load(Ordering::Relaxed) < SAMPLES && row_bytes >= lowest(target)
    }

    /// Row bytes with which a leaf is full, so that it takes little for its rows when these are of `each` bytes, on
    /// disk and in memory, and has at most `target` bytes of them. Long rows, which leave no choice, fill it with
    /// `target` bytes and more.
    pub(crate) fn full_at(&self, target: usize, each: usize) -> usize {
        if each == 0 || each > target / SOONER_PART {
            return target;
        }
        // With one row more it would be beyond.
        self.end(target, each).saturating_sub(each) + 1
    }

    /// Row bytes that a leaf has at most.
    fn end(&self, target: usize, each: usize) -> usize {
        let Estimate { mean, deviation } = self.estimate();
        if mean == 0.0 {
            return target;
        }
        let lowest = lowest(target);
        let expected = mean + DEVIATIONS * deviation;
        let sectors_for = |row_bytes: usize| row_bytes as f32 * expected / SECTOR_BYTES as f32;
        let (fewest, most) = (
            sectors_for(lowest).floor() as usize,
            sectors_for(target).ceil() as usize,
        );
        let mut best = (f32::INFINITY, target);
        for sectors in (fewest..=most).take(CANDIDATES) {
            let end = (((sectors * SECTOR_BYTES) as f32 / expected) as usize).min(target);
            let rows_end = end / each * each;
            let (on_disk, in_memory) = ((sectors * SECTOR_BYTES) as f32, good_size(rows_end) as f32);
            let cost = on_disk * on_disk * in_memory / (rows_end as f32).powi(3);
            if rows_end >= lowest && cost < best.0 {
                best = (cost, end);
            }
        }
        best.1
    }
}

/// The fewest row bytes of a full leaf.
fn lowest(target: usize) -> usize {
    target - target / SOONER_PART
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: usize = 16 << 10;

    /// After so many blocks with `share` of the rows' bytes, give or take `spread`.
    fn fill(share: f32, spread: f32) -> Fill {
        let fill = Fill::default();
        for block in 0..64 {
            let error = if block % 2 == 0 { spread } else { -spread };
            fill.note(TARGET, (TARGET as f32 * (share + error)) as usize, TARGET);
        }
        fill
    }

    /// Bytes of the rows of a leaf that ends when it is full.
    fn leaf_bytes(fill: &Fill, each: usize) -> usize {
        fill.full_at(TARGET, each).next_multiple_of(each)
    }

    #[test]
    fn nothing_is_known_before_the_first_block_and_of_small_ones() {
        let fill = Fill::default();
        assert_eq!(leaf_bytes(&fill, 100), TARGET / 100 * 100);
        fill.note(lowest(TARGET) - 1, 1000, TARGET);
        fill.note(0, 1000, 0);
        assert_eq!(leaf_bytes(&fill, 100), TARGET / 100 * 100);
        for sample in 0..SAMPLES {
            assert!(
                fill.wants(TARGET, TARGET) && !fill.wants(TARGET / 2, TARGET),
                "{sample}"
            );
            fill.note(TARGET, 8000, TARGET);
        }
        assert!(!fill.wants(TARGET, TARGET));
    }

    #[test]
    fn long_rows_fill_a_leaf() {
        let long = TARGET / SOONER_PART + 1;
        assert_eq!(fill(0.5, 0.001).full_at(TARGET, long), TARGET);
        assert!(fill(0.5, 0.001).full_at(TARGET, long - 1) < TARGET);
    }

    #[test]
    fn little_of_the_last_sector_is_left() {
        for share in [0.16, 0.33, 0.41, 0.54, 0.55, 0.56, 0.57, 0.9, 0.99, 1.02] {
            let fill = fill(share, share * 0.001);
            for each in [24, 100, 264] {
                let rows = leaf_bytes(&fill, each);
                assert!((lowest(TARGET)..=TARGET).contains(&rows), "{share} {each}: {rows}");
                let block_bytes = (rows as f32 * share) as usize;
                let over = block_bytes.next_multiple_of(SECTOR_BYTES) as f32 / block_bytes as f32;
                // Three deviations, and what two rows would take: one because none is cut, one for memory's sake.
                let row = each as f32 / rows as f32;
                assert!(over < 1.015 + 2.0 * row, "{share} {each}: {over}");
            }
        }
    }

    #[test]
    fn blocks_of_many_lengths_make_no_leaf_small() {
        for spread in [0.05, 0.2, 0.5] {
            let rows = leaf_bytes(&fill(0.5, spread), 100);
            assert!((lowest(TARGET)..=TARGET).contains(&rows), "{spread}: {rows}");
        }
    }

    #[test]
    fn any_lengths_are_taken() {
        for (row_bytes, block_bytes) in [(1, usize::MAX), (usize::MAX, 1), (usize::MAX, usize::MAX), (1, 0)] {
            let fill = Fill::default();
            for _ in 0..3 {
                fill.note(row_bytes, block_bytes, 1);
                for (target, each) in [(0, 0), (1, 1), (TARGET, 1), (TARGET, usize::MAX), (1 << 40, 1 << 30)] {
                    assert!(fill.full_at(target, each) <= target);
                }
            }
        }
    }
}
