//! 256-bit unsigned integers: just what decimal arithmetic needs.
//!
//! Invariant: callers keep results below 2^256 (products of two 34-digit numbers, or 76 digits).

/// `high * 2^128 + low`; the derived order is the numeric one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct U256 {
    pub(crate) high: u128,
    pub(crate) low: u128,
}

impl From<u128> for U256 {
    fn from(low: u128) -> Self {
        Self { high: 0, low }
    }
}

impl U256 {
    /// `a * b`.
    pub(crate) fn product(a: u128, b: u128) -> Self {
        const HALF: u128 = (1 << 64) - 1;
        let (a_high, a_low, b_high, b_low) = (a >> 64, a & HALF, b >> 64, b & HALF);
        let low = a_low * b_low;
        let middle = a_high * b_low + (low >> 64);
        let other = a_low * b_high + (middle & HALF);
        Self {
            high: a_high * b_high + (middle >> 64) + (other >> 64),
            low: other << 64 | low & HALF,
        }
    }

    /// `self * 10^exponent`.
    pub(crate) fn times_power_of_ten(self, exponent: u32) -> Self {
        let mut value = self;
        let mut left = exponent;
        while left > 0 {
            let step = left.min(19);
            let factor = 10_u128.pow(step);
            let low = Self::product(value.low, factor);
            value = Self {
                high: low.high + value.high * factor,
                low: low.low,
            };
            left -= step;
        }
        value
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self {
            high: self.high + other.high + u128::from(carry),
            low,
        }
    }

    /// `self - other`, which must not be negative.
    pub(crate) fn minus(self, other: Self) -> Self {
        let (low, borrow) = self.low.overflowing_sub(other.low);
        Self {
            high: self.high - other.high - u128::from(borrow),
            low,
        }
    }

    /// Quotient and remainder by a divisor below 2^127. Binary long division, over the digits that are there.
    pub(crate) fn divide(self, divisor: u128) -> (Self, u128) {
        if self.high == 0 {
            return (Self::from(self.low / divisor), self.low % divisor);
        }
        let high = self.high / divisor;
        let mut rest = self.high % divisor;
        let mut low = 0_u128;
        for bit in (0..128).rev() {
            rest = rest << 1 | (self.low >> bit) & 1;
            low <<= 1;
            if rest >= divisor {
                rest -= divisor;
                low |= 1;
            }
        }
        (Self { high, low }, rest)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.high == 0 && self.low == 0
    }
}
