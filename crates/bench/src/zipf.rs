//! Zipf-distributed ranks, by the method of Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly generating
//! billion-record synthetic databases" (SIGMOD 1994).
//!
//! Rank 0 is drawn most often; rank `r` with a probability close to `1 / (r + 1)^theta`. The method is exact for the
//! first two ranks and approximates the others by the continuous distribution.

use crate::random::Random;

/// Below this many ranks the normalising sum is added up term by term.
const EXACT_TERMS: u64 = 100_000;

/// A Zipf distribution over `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Over `0..count` with `0 < theta < 1`. A count of 0 is taken as 1.
    pub fn new(count: u64, theta: f64) -> Self {
        assert!(
            theta > 0.0 && theta < 1.0,
            "the method is for exponents between 0 and 1, not {theta}"
        );
        let count = count.max(1);
        let zeta = generalised_harmonic(count, theta);
        let zeta_two = generalised_harmonic(2.min(count), theta);
        Self {
            count,
            theta,
            zeta,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta),
        }
    }

    /// Number of ranks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// A rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 || self.count == 1 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }

    /// The probability of a rank by the definition.
    pub fn probability(&self, rank: u64) -> f64 {
        1.0 / ((rank + 1) as f64).powf(self.theta) / self.zeta
    }
}

/// The sum of `1 / i^theta` for `i` in `1..=count`; the tail of a long one by Euler and Maclaurin.
fn generalised_harmonic(count: u64, theta: f64) -> f64 {
    let exact = count.min(EXACT_TERMS);
    let head: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
    if count == exact {
        return head;
    }
    let (from, to) = (exact as f64, count as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    head + integral + (to.powf(-theta) - from.powf(-theta)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_sum_is_the_sum() {
        let exact: f64 = (1..=1_000_000u64).map(|i| (i as f64).powf(-0.8)).sum();
        assert!((generalised_harmonic(1_000_000, 0.8) / exact - 1.0).abs() < 1e-9);
    }

    #[test]
    fn ranks_are_as_frequent_as_defined() {
        for theta in [0.606, 0.741, 0.8, 0.99] {
            let zipf = Zipf::new(10_000, theta);
            let mut random = Random::new(11);
            let draws = 400_000;
            let mut counts = vec![0u32; 10_000];
            (0..draws).for_each(|_| counts[zipf.draw(&mut random) as usize] += 1);
            for (from, to) in [(0, 1), (1, 2), (2, 10), (10, 100), (100, 1000), (1000, 10_000)] {
                let expected: f64 = (from..to).map(|rank| zipf.probability(rank)).sum();
                let found = f64::from(counts[from as usize..to as usize].iter().sum::<u32>()) / f64::from(draws);
                // The continuous part is an approximation: published as "close", measured within 10 %.
                assert!(
                    (found / expected - 1.0).abs() < 0.1,
                    "theta {theta}, ranks {from}..{to}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn small_counts_stay_in_range() {
        for count in [0, 1, 2, 3] {
            let zipf = Zipf::new(count, 0.99);
            let mut random = Random::new(3);
            assert!((0..1000).all(|_| zipf.draw(&mut random) < count.max(1)));
        }
    }
}
