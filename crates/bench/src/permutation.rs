//! A permutation of `0..count` that a seed decides, without a table: ranks become ids, so that hot ids are no
//! neighbours.
//!
//! A Feistel network (Luby, Rackoff, 1988) over the next even power of two, walked until it falls into the range again
//! (Black, Rogaway, 2002). It is invertible, which is what makes it a permutation.

use crate::random::mix;

const ROUNDS: u64 = 4;

/// A permutation of `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// The permutation of a seed. A count of 0 is taken as 1.
    pub fn new(count: u64, seed: u64) -> Self {
        let count = count.max(1);
        let bits = u64::BITS - (count - 1).leading_zeros();
        Self {
            count,
            half_bits: bits.div_ceil(2).clamp(1, 31),
            seed,
        }
    }

    /// What a position is mapped to.
    pub fn map(&self, position: u64) -> u64 {
        self.walk(position, |value| self.encrypt(value))
    }

    /// The position that is mapped to this.
    pub fn invert(&self, mapped: u64) -> u64 {
        self.walk(mapped, |value| self.decrypt(value))
    }

    fn walk(&self, start: u64, step: impl Fn(u64) -> u64) -> u64 {
        assert!(start < self.count, "{start} is not below {}", self.count);
        let mut value = step(start);
        while value >= self.count {
            value = step(value);
        }
        value
    }

    fn round(&self, round: u64, half: u64) -> u64 {
        mix(half ^ mix(self.seed.wrapping_add(round))) & ((1 << self.half_bits) - 1)
    }

    fn encrypt(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.half_bits, value & ((1 << self.half_bits) - 1));
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        (left << self.half_bits) | right
    }

    fn decrypt(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.half_bits, value & ((1 << self.half_bits) - 1));
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_reached_once_and_back() {
        for count in [1, 2, 3, 17, 1024, 9999] {
            let permutation = Permutation::new(count, 53_238_253_823_453);
            let mut mapped: Vec<u64> = (0..count).map(|position| permutation.map(position)).collect();
            for (position, value) in mapped.iter().enumerate() {
                assert_eq!(permutation.invert(*value), position as u64);
            }
            mapped.sort_unstable();
            assert!(mapped.into_iter().eq(0..count));
        }
    }

    #[test]
    fn seeds_make_different_orders_without_correlation() {
        let count = 10_000u64;
        let (one, two) = (Permutation::new(count, 1), Permutation::new(count, 2));
        let mean = (count - 1) as f64 / 2.0;
        let variance = ((count * count - 1) as f64) / 12.0;
        for (a, b) in [
            (
                Box::new(move |i| one.map(i)) as Box<dyn Fn(u64) -> u64>,
                Box::new(|i| i) as Box<dyn Fn(u64) -> u64>,
            ),
            (Box::new(move |i| one.map(i)), Box::new(move |i| two.map(i))),
        ] {
            let sum: f64 = (0..count).map(|i| (a(i) as f64 - mean) * (b(i) as f64 - mean)).sum();
            let correlation = sum / count as f64 / variance;
            assert!(correlation.abs() < 0.04, "{correlation}");
        }
    }
}
