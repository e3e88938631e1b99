//! Latencies counted while others look on: the p99 of a single second, from differences of counts.
//!
//! Buckets are a 32nd of a power of two wide, so that a percentile is right within 3 %. The exact histogram of the
//! whole run is another, which only its thread sees.
//!
//! Invariant: one thread adds; counts never fall, but wrap.

use std::sync::atomic::{AtomicU32, Ordering};

/// Buckets of a power of two, as a power of two.
const WITHIN_BITS: u32 = 5;
const WITHIN: u64 = 1 << WITHIN_BITS;
/// Latencies of an hour and more share the last bucket.
const LATENCY_BITS_MAX: u32 = 42;
/// Values below 64 have a bucket each; then there are 32 for each power of two.
const BUCKETS: usize = ((LATENCY_BITS_MAX - WITHIN_BITS) as usize + 1) * WITHIN as usize;

/// Counts of one kind of operation of one thread.
#[derive(Debug)]
pub struct Buckets(Box<[AtomicU32]>);

impl Default for Buckets {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Buckets {
    /// Counts a latency. Only the thread that owns the buckets calls this.
    pub fn add(&self, ns: u64) {
        let bucket = &self.0[index(ns)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Adds the counts to a sum of those of several threads.
    pub fn sum_into(&self, sum: &mut [u32; BUCKETS]) {
        for (sum, bucket) in sum.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
        }
    }
}

/// The counts of one kind of operation at the last look.
#[derive(Debug)]
pub struct Seen(Box<[u32; BUCKETS]>);

impl Default for Seen {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl Seen {
    /// The latency that 99 % of what was counted since the last look did not exceed; 0 when nothing was.
    pub fn p99_ns<'b>(&mut self, threads: impl Iterator<Item = &'b Buckets>) -> u64 {
        let mut now = Box::new([0; BUCKETS]);
        threads.for_each(|buckets| buckets.sum_into(&mut now));
        let difference = |at: usize| u64::from(now[at].wrapping_sub(self.0[at]));
        let total: u64 = (0..BUCKETS).map(difference).sum();
        let wanted = total - total / 100;
        let mut passed = 0;
        let found = (0..BUCKETS).find(|at| {
            passed += difference(*at);
            passed >= wanted
        });
        let p99 = found.filter(|_| total > 0).map_or(0, middle);
        self.0 = now;
        p99
    }
}

fn index(ns: u64) -> usize {
    let ns = ns.min((1 << LATENCY_BITS_MAX) - 1);
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(WITHIN_BITS + 1);
    (u64::from(shift) * WITHIN + (ns >> shift)) as usize
}

/// The middle of a bucket.
fn middle(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index / WITHIN).saturating_sub(1);
    ((index - shift * WITHIN) << shift) + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_bucket_is_near_what_it_counts() {
        for bits in 0..LATENCY_BITS_MAX {
            for ns in [1u64 << bits, (1 << bits) + 1, (1 << bits) * 3 / 2, (2 << bits) - 1] {
                let found = middle(index(ns)) as f64;
                assert!(
                    (found / ns as f64 - 1.0).abs() <= 1.0 / 64.0 + 1e-9,
                    "{ns} is counted as {found}"
                );
            }
        }
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        assert_eq!(index(0), 0);
    }

    #[test]
    fn each_look_tells_of_its_own_time() {
        let threads = [Buckets::default(), Buckets::default()];
        let mut seen = Seen::default();
        assert_eq!(seen.p99_ns(threads.iter()), 0);
        let mut random = Random::new(5);
        for scale in [1_000, 50_000_000] {
            for number in 0..20_000 {
                threads[number % 2].add(random.below(scale));
            }
            let found = seen.p99_ns(threads.iter()) as f64 / scale as f64;
            assert!((found - 0.99).abs() < 0.02, "{found}");
        }
        assert_eq!(seen.p99_ns(threads.iter()), 0, "nothing new");
    }
}
