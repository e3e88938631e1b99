//! A fixed-width unsigned integer, wide enough for exact comparison of decimals with doubles.
//!
//! Invariant: results fit. The widest number needed is twice 10^358 (a decimal of 34 digits at the smallest double) or
//! 10^34 * 10^308 (a decimal at the largest): 1,191 and 1,136 bits; the callers keep to that.

use std::cmp::Ordering;

const LIMBS: usize = 20;

/// Largest power of ten in a limb, and its exponent.
const LIMB_POWER: u64 = 10_000_000_000_000_000_000;
const LIMB_POWER_EXPONENT: u32 = 19;

/// 1,280 bits, least significant limb first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wide {
    limbs: [u64; LIMBS],
}

impl From<u128> for Wide {
    fn from(value: u128) -> Self {
        let mut limbs = [0; LIMBS];
        limbs[0] = value as u64;
        limbs[1] = (value >> 64) as u64;
        Self { limbs }
    }
}

impl Wide {
    /// `self * 10^exponent`.
    pub(crate) fn times_power_of_ten(mut self, mut exponent: u32) -> Self {
        while exponent >= LIMB_POWER_EXPONENT {
            self.multiply(LIMB_POWER);
            exponent -= LIMB_POWER_EXPONENT;
        }
        self.multiply(10_u64.pow(exponent));
        self
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0_u128;
        for limb in &mut self.limbs {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        debug_assert_eq!(carry, 0, "the product must fit");
    }

    /// Position of the highest bit plus one; 0 for zero.
    pub(crate) fn bit_length(&self) -> u32 {
        for (index, limb) in self.limbs.iter().enumerate().rev() {
            if *limb != 0 {
                return index as u32 * 64 + (64 - limb.leading_zeros());
            }
        }
        0
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
    }

    pub(crate) fn shift_left(&mut self, bits: u32) {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        for index in (0..LIMBS).rev() {
            let high = index.checked_sub(limbs).map_or(0, |from| self.limbs[from]);
            let low = index.checked_sub(limbs + 1).map_or(0, |from| self.limbs[from]);
            self.limbs[index] = if bits == 0 {
                high
            } else {
                high << bits | low >> (64 - bits)
            };
        }
    }

    /// The 53 highest bits of a number that has at least so many, and whether a lower bit is set.
    pub(crate) fn top_53_bits(&self) -> (u64, bool) {
        let low = self.bit_length() - 53;
        let (limb, bit) = ((low / 64) as usize, low % 64);
        let next = self.limbs.get(limb + 1).copied().unwrap_or(0);
        let window = (u128::from(next) << 64 | u128::from(self.limbs[limb])) >> bit;
        let rest = self.limbs[..limb].iter().any(|limb| *limb != 0) || self.limbs[limb] & ((1 << bit) - 1) != 0;
        (window as u64 & ((1 << 53) - 1), rest)
    }

    /// `self - other` when that is not negative.
    pub(crate) fn subtract_if_not_less(&mut self, other: &Wide) -> bool {
        if self.compare(other) == Ordering::Less {
            return false;
        }
        let mut borrow = false;
        for (limb, other) in self.limbs.iter_mut().zip(&other.limbs) {
            let (difference, first) = limb.overflowing_sub(*other);
            let (difference, second) = difference.overflowing_sub(u64::from(borrow));
            *limb = difference;
            borrow = first || second;
        }
        true
    }

    pub(crate) fn compare(&self, other: &Wide) -> Ordering {
        self.limbs.iter().rev().cmp(other.limbs.iter().rev())
    }
}
