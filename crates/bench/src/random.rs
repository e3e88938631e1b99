//! Random numbers that a seed decides, and what the workloads' definitions draw from them.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of a part of what a seed decides: the same for the same numbers, unlike those of other parts.
    pub fn of_part(seed: u64, part: u64) -> Self {
        Self(mix(seed ^ mix(part.wrapping_add(0x9E37_79B9_7F4A_7C15))))
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in `0..bound` (Lemire, 2019, without the correction, which matters for bounds near 2^64 only).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// True so often.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Normal with mean 0 and deviation 1 (Box, Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Log-normal with so much as its median.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.normal()).exp()
    }

    /// Appends random bytes.
    pub fn bytes(&mut self, count: usize, out: &mut Vec<u8>) {
        let end = out.len() + count;
        while out.len() < end {
            let eight = self.next().to_le_bytes();
            out.extend_from_slice(&eight[..(end - out.len()).min(8)]);
        }
    }

    /// Appends random characters of an alphabet of at most 64.
    pub fn text(&mut self, alphabet: &[u8], count: usize, out: &mut Vec<u8>) {
        for _ in 0..count {
            out.push(alphabet[self.below(alphabet.len() as u64) as usize]);
        }
    }
}

/// SplitMix64's output function: a bijection.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// FNV-1a of a number's eight bytes, least significant first.
pub fn fnv64(value: u64) -> u64 {
    value.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(count: u32, mut draw: impl FnMut() -> f64) -> f64 {
        (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut random = Random::new(1);
        assert!((mean(200_000, || random.unit()) - 0.5).abs() < 0.005);
        assert!((mean(200_000, || random.exponential()) - 1.0).abs() < 0.02);
        assert!(mean(200_000, || random.normal()).abs() < 0.02);
        assert!((mean(200_000, || random.normal().powi(2)) - 1.0).abs() < 0.03);
        let below = mean(200_000, || f64::from(u8::from(random.log_normal(128.0, 1.0) < 128.0)));
        assert!((below - 0.5).abs() < 0.01, "the median splits in half: {below}");
    }

    #[test]
    fn parts_have_streams_of_their_own_and_repeat() {
        let first: Vec<u64> = (0..1000).map(|part| Random::of_part(7, part).next()).collect();
        let again: Vec<u64> = (0..1000).map(|part| Random::of_part(7, part).next()).collect();
        let other: Vec<u64> = (0..1000).map(|part| Random::of_part(8, part).next()).collect();
        assert_eq!(first, again);
        assert!(first.iter().zip(&other).all(|(a, b)| a != b));
        let mut sorted = first;
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 1000);
    }

    #[test]
    fn fnv_has_its_published_values() {
        // FNV-1a of eight zero bytes, computed by the definition.
        let mut expected = 0xCBF2_9CE4_8422_2325u64;
        for _ in 0..8 {
            expected = expected.wrapping_mul(0x0000_0100_0000_01B3);
        }
        assert_eq!(fnv64(0), expected);
        assert_ne!(fnv64(1), fnv64(2));
    }
}
