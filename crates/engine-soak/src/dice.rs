//! Choices: from a seed, or from the bytes of a fuzzer.

use std::cell::{Cell, RefCell};
use vfs::{Random, SeededRandom};

/// Where choices come from.
pub struct Dice {
    random: SeededRandom,
    /// Bytes that are used up before `random` takes over, and how many of them have been.
    bytes: RefCell<Vec<u8>>,
    used: Cell<usize>,
}

impl Dice {
    /// The choices of a seed.
    pub fn new(seed: u64) -> Self {
        Self::from_bytes(seed, Vec::new())
    }

    /// The choices that `bytes` make, and then those of a seed.
    pub fn from_bytes(seed: u64, bytes: Vec<u8>) -> Self {
        Self {
            random: SeededRandom::new(seed),
            bytes: RefCell::new(bytes),
            used: Cell::new(0),
        }
    }

    /// True when the bytes given are used up.
    pub fn is_exhausted(&self) -> bool {
        self.used.get() >= self.bytes.borrow().len()
    }

    /// 64 bits.
    pub fn next(&self) -> u64 {
        let bytes = self.bytes.borrow();
        let at = self.used.get();
        if at >= bytes.len() {
            return self.random.next_u64();
        }
        let end = (at + 2).min(bytes.len());
        self.used.set(end);
        let mut number = [0; 8];
        number[..end - at].copy_from_slice(&bytes[at..end]);
        u64::from_le_bytes(number)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number in `low..=high`.
    pub fn within(&self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Bytes that compress to about half.
    pub fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.random.fill(&mut bytes[..length / 2]);
        let filler = self.random.next_u64() as u8;
        bytes[length / 2..].fill(filler);
        bytes
    }
}

/// A number that looks random, always the same for the same input (the finaliser of MurmurHash3).
pub fn scrambled(mut number: u64) -> u64 {
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ (number >> 33)
}
