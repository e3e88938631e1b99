//! Percentiles of a stream of numbers in little memory: the merging t-digest (Dunning, Ertl 2019).
//!
//! The first [`BUFFER_MAX`] numbers are kept as they are, and percentiles of no more than these are exact. Beyond that
//! sorted runs are merged into centroids whose weight is bounded by the scale function k2, small at both ends: the
//! extreme percentiles stay nearly exact.
//! - Infinities are counted apart, NaN is left out.
//! - `centroids` are in rising order of their means, and their weights add up to all numbers that have left the buffer.

use super::encode::{StateReader, StateWriter};
use crate::error::QueryError;

/// Numbers that are kept before they are merged.
const BUFFER_MAX: usize = 5000;

/// The compression parameter: about how many centroids there are at most.
const DELTA: f64 = 1000.0;

/// Neighbouring numbers, told by their mean.
#[derive(Clone, Copy, Debug)]
struct Centroid {
    mean: f64,
    weight: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    centroids: Vec<Centroid>,
    buffer: Vec<f64>,
    /// Finite numbers seen; those in the buffer, too.
    count: u64,
    least: f64,
    greatest: f64,
    below: u64,
    above: u64,
}

/// The position, from 0, of a percentile among `n` numbers in rising order; `n` is not 0.
pub(crate) fn rank(p: f64, n: usize) -> usize {
    let position = (p * n as f64).ceil() as usize;
    position.saturating_sub(1).min(n - 1)
}

impl Digest {
    /// Takes a number in; returns by how many bytes the digest has grown, roughly.
    pub fn add(&mut self, x: f64) -> usize {
        if x.is_nan() {
            return 0;
        }
        if x == f64::INFINITY {
            self.above += 1;
            return 0;
        }
        if x == f64::NEG_INFINITY {
            self.below += 1;
            return 0;
        }
        self.widen(x, x);
        self.count += 1;
        let before = self.buffer.capacity();
        self.buffer.push(x);
        let grown = (self.buffer.capacity() - before) * size_of::<f64>();
        if self.buffer.len() >= BUFFER_MAX {
            self.flush();
        }
        grown
    }

    /// Takes in what another digest has seen.
    pub fn merge(&mut self, mut other: Digest) {
        self.below += other.below;
        self.above += other.above;
        if other.count == 0 {
            return;
        }
        self.widen(other.least, other.greatest);
        other.flush();
        self.flush();
        self.count += other.count;
        self.compress(other.centroids);
    }

    pub(super) fn write(&self, out: &mut StateWriter<'_>) {
        out.u64(self.centroids.len() as u64);
        for centroid in &self.centroids {
            out.f64(centroid.mean);
            out.f64(centroid.weight);
        }
        out.u64(self.buffer.len() as u64);
        self.buffer.iter().for_each(|x| out.f64(*x));
        out.f64(self.least);
        out.f64(self.greatest);
        for count in [self.count, self.below, self.above] {
            out.u64(count);
        }
    }

    pub(super) fn read(bytes: &mut StateReader<'_>) -> Result<Self, QueryError> {
        let count = bytes.count()?;
        let centroid = |_| {
            Ok(Centroid {
                mean: bytes.f64()?,
                weight: bytes.f64()?,
            })
        };
        let centroids = (0..count).map(centroid).collect::<Result<_, QueryError>>()?;
        let count = bytes.count()?;
        Ok(Self {
            centroids,
            buffer: (0..count).map(|_| bytes.f64()).collect::<Result<_, _>>()?,
            least: bytes.f64()?,
            greatest: bytes.f64()?,
            count: bytes.u64()?,
            below: bytes.u64()?,
            above: bytes.u64()?,
        })
    }

    fn widen(&mut self, least: f64, greatest: f64) {
        if self.count == 0 {
            (self.least, self.greatest) = (least, greatest);
        } else {
            self.least = self.least.min(least);
            self.greatest = self.greatest.max(greatest);
        }
    }

    fn flush(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.sort_by(f64::total_cmp);
        self.compress(buffer.iter().map(|&mean| Centroid { mean, weight: 1.0 }).collect());
        buffer.clear();
        self.buffer = buffer;
    }

    /// Merges sorted centroids with the own ones, and neighbours as far as the scale function lets them.
    fn compress(&mut self, incoming: Vec<Centroid>) {
        let mut all = std::mem::take(&mut self.centroids);
        all.extend(incoming);
        // Two sorted runs, which the merge sort of the standard library finds.
        all.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let total: f64 = all.iter().map(|centroid| centroid.weight).sum();
        let scale = DELTA / (4.0 * (total / DELTA).max(1.0).ln() + 24.0);
        // The weight up to which a centroid may reach that begins after `weight`: one step of k2 further.
        let limit = |weight: f64| {
            let q = weight / total;
            let k = scale * (q / (1.0 - q)).ln() + 1.0;
            total / (1.0 + (-k / scale).exp())
        };
        let mut merged: Vec<Centroid> = Vec::new();
        let (mut before, mut reach) = (0.0, limit(0.0));
        for next in all {
            match merged.last_mut() {
                Some(last) if before + last.weight + next.weight <= reach => {
                    last.weight += next.weight;
                    last.mean += (next.mean - last.mean) * next.weight / last.weight;
                }
                last => {
                    before += last.map_or(0.0, |last| last.weight);
                    reach = limit(before);
                    merged.push(next);
                }
            }
        }
        self.centroids = merged;
    }

    /// The numbers at these percentiles, each from 0 to 1; `None` when there are no numbers.
    pub fn percentiles(&self, percentiles: &[f64]) -> Option<Vec<f64>> {
        let all = self.below + self.count + self.above;
        if all == 0 {
            return None;
        }
        let mut flushed = None;
        let mut sorted = None;
        if self.centroids.is_empty() {
            let buffer = sorted.insert(self.buffer.clone());
            buffer.sort_by(f64::total_cmp);
        } else {
            let digest = flushed.insert(self.clone());
            digest.flush();
        }
        let at = |p: &f64| {
            let rank = rank(*p, all as usize) as u64;
            if rank < self.below {
                return f64::NEG_INFINITY;
            }
            let rank = rank - self.below;
            if rank >= self.count {
                return f64::INFINITY;
            }
            match (&sorted, &flushed) {
                (Some(sorted), _) => sorted[rank as usize],
                (None, Some(digest)) => digest.at_rank(rank),
                (None, None) => f64::NAN,
            }
        };
        Some(percentiles.iter().map(at).collect())
    }

    /// The number at a position from 0, between the means of the centroids around it.
    fn at_rank(&self, rank: u64) -> f64 {
        if rank == 0 {
            return self.least;
        }
        if rank + 1 >= self.count {
            return self.greatest;
        }
        let rank = rank as f64;
        let mut begin = 0.0;
        // The middle of the centroid before: its rank and its mean.
        let mut left = (0.0, self.least);
        for centroid in &self.centroids {
            let middle = begin + (centroid.weight - 1.0) / 2.0;
            if middle >= rank {
                return between(left, (middle, centroid.mean), rank);
            }
            left = (middle, centroid.mean);
            begin += centroid.weight;
        }
        between(left, (self.count as f64 - 1.0, self.greatest), rank)
    }
}

fn between((x1, y1): (f64, f64), (x2, y2): (f64, f64), x: f64) -> f64 {
    if x2 <= x1 {
        return y2;
    }
    y1 + (y2 - y1) * ((x - x1) / (x2 - x1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize) -> Vec<f64> {
        let mut state = 0x1234_5678_9abc_def0_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn few_numbers_are_exact() {
        let mut digest = Digest::default();
        assert_eq!(digest.percentiles(&[0.5]), None);
        [2.0, 0.0, f64::NAN, 1.0].iter().for_each(|x| {
            digest.add(*x);
        });
        assert_eq!(
            digest.percentiles(&[0.5, 0.9, 0.1, 0.0, 1.0]),
            Some(vec![1.0, 2.0, 0.0, 0.0, 2.0])
        );
    }

    #[test]
    fn many_numbers_are_near_and_merging_changes_little() {
        let numbers = noise(200_000);
        let (mut whole, mut halves) = (Digest::default(), [Digest::default(), Digest::default()]);
        for (place, x) in numbers.iter().enumerate() {
            whole.add(*x);
            halves[place % 2].add(*x);
        }
        assert!(whole.centroids.len() < 2_000, "{} centroids", whole.centroids.len());
        let mut sorted = numbers;
        sorted.sort_by(f64::total_cmp);
        let [mut left, right] = halves;
        left.merge(right);
        let percentiles = [0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0];
        for digest in [whole, left] {
            let found = digest.percentiles(&percentiles).expect("there are numbers");
            for (p, x) in percentiles.iter().zip(found) {
                let place = sorted.partition_point(|other| *other < x) as f64;
                let wanted = rank(*p, sorted.len()) as f64;
                assert!(
                    (place - wanted).abs() <= 0.001 * sorted.len() as f64,
                    "p {p}: {place} for {wanted}"
                );
            }
        }
    }

    #[test]
    fn infinities_are_at_the_ends() {
        let mut digest = Digest::default();
        for x in [1.0, f64::INFINITY, 2.0, f64::NEG_INFINITY] {
            digest.add(x);
        }
        assert_eq!(
            digest.percentiles(&[0.0, 0.5, 0.75, 1.0]),
            Some(vec![f64::NEG_INFINITY, 1.0, 2.0, f64::INFINITY])
        );
    }
}
