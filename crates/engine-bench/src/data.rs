//! Keys and values: everything follows from seeds, and costs little next to an operation.
//!
//! Numbers come from SplitMix64 (Steele, Lea, Flood 2014). Values are half random letters and half one repeated
//! pattern: what only looks for repetition (snappy, lz4) halves them, and what counts letters, too (zlib, zstd), leaves
//! a third.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

/// Spreads a number over all 64 bits; a bijection.
pub fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Numbers {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(spread(seed))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let number = spread(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        number
    }

    /// Evenly among `0..bound` (`bound` at least 1), by the high half of a product.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound.max(1))) >> 64) as u64
    }
}

/// How rows are picked.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// Each of `0..rows` as often as the others.
    Even(u64),
    /// Few of them often: see [`Zipf`].
    Zipf(Zipf),
}

impl Choice {
    /// Rows to choose from.
    pub fn rows(self) -> u64 {
        match self {
            Self::Even(rows) => rows,
            Self::Zipf(zipf) => zipf.rows,
        }
    }

    /// The next row.
    pub fn draw(self, numbers: &mut Numbers) -> u64 {
        match self {
            Self::Even(rows) => numbers.below(rows),
            Self::Zipf(zipf) => zipf.draw(numbers),
        }
    }
}

/// Rows by Zipf's law, the most wanted ones scattered over all: the row of rank `r` comes as often as `1 / r^0.99`.
/// Ranks are drawn as Gray and others do (*Quickly generating billion-record synthetic databases*, 1994).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    rows: u64,
    /// The sum of all ranks' shares, in shares of the first.
    sum: f64,
    eta: f64,
}

impl Zipf {
    const THETA: f64 = 0.99;

    /// Among `0..rows`, at least 1. Looks at each rank once.
    pub fn new(rows: u64) -> Self {
        let share = |rank: u64| (rank as f64).powf(-Self::THETA);
        let sum: f64 = (1..=rows).map(share).sum();
        let first_two: f64 = (1..=2).map(share).sum();
        let eta = (1.0 - (2.0 / rows as f64).powf(1.0 - Self::THETA)) / (1.0 - first_two / sum);
        Self { rows, sum, eta }
    }

    fn draw(self, numbers: &mut Numbers) -> u64 {
        let part = (numbers.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = match part * self.sum {
            first if first < 1.0 => 0,
            second if second < 1.0 + 0.5_f64.powf(Self::THETA) => 1,
            _ => {
                let base = self.eta * part - self.eta + 1.0;
                (self.rows as f64 * base.powf(1.0 / (1.0 - Self::THETA))) as u64
            }
        };
        spread(rank.min(self.rows - 1)) % self.rows
    }
}

/// The key of a record.
pub fn record_key(record: u64) -> [u8; 8] {
    record.to_be_bytes()
}

/// Length of an index key: 16 bytes that look random and the record's id.
pub const INDEX_KEY_BYTES: usize = 24;

/// The entry of a record in an index table.
pub fn index_key(record: u64, index: u32) -> [u8; INDEX_KEY_BYTES] {
    let mut key = [0; INDEX_KEY_BYTES];
    let first = spread(record ^ (u64::from(index) << 56));
    key[..8].copy_from_slice(&first.to_be_bytes());
    key[8..16].copy_from_slice(&spread(first).to_be_bytes());
    key[16..].copy_from_slice(&record.to_be_bytes());
    key
}

/// Eight letters from `a` to `p`, one for each half of a byte.
fn letters(number: u32) -> [u8; 8] {
    let mut halves = u64::from(number);
    halves = (halves | (halves << 16)) & 0x0000_FFFF_0000_FFFF;
    halves = (halves | (halves << 8)) & 0x00FF_00FF_00FF_00FF;
    halves = (halves | (halves << 4)) & 0x0F0F_0F0F_0F0F_0F0F;
    (halves + 0x6161_6161_6161_6161).to_le_bytes()
}

/// Fills `value` with `bytes` bytes for a record: the record's id, random letters up to the half, a pattern to the end.
pub fn fill_value(value: &mut Vec<u8>, bytes: usize, record: u64, numbers: &mut Numbers) {
    const PATTERN: &[u8; 16] = b"field: some text";
    value.clear();
    value.extend_from_slice(&record.to_le_bytes());
    while value.len() < bytes / 2 {
        let number = numbers.draw();
        value.extend_from_slice(&letters(number as u32));
        value.extend_from_slice(&letters((number >> 32) as u32));
    }
    while value.len() < bytes {
        value.extend_from_slice(PATTERN);
    }
    value.truncate(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_below_a_bound_are_even() {
        let seed = 42;
        let mut numbers = Numbers::new(seed);
        let mut counts = [0u64; 10];
        for _ in 0..100_000 {
            counts[numbers.below(10) as usize] += 1;
        }
        // Pearson's statistic with 9 degrees of freedom: above 27.9 once in a thousand seeds.
        let statistic: f64 = counts.iter().map(|&n| (n as f64 - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(statistic < 27.9, "seed {seed}: {statistic} {counts:?}");
        assert_ne!(Numbers::new(1).draw(), Numbers::new(2).draw());
    }

    #[test]
    fn few_rows_are_drawn_often_and_lie_apart() {
        const ROWS: u64 = 10_000;
        const DRAWS: u64 = 200_000;
        let (choice, mut numbers) = (Choice::Zipf(Zipf::new(ROWS)), Numbers::new(5));
        let mut counts = vec![0_u64; ROWS as usize];
        for _ in 0..DRAWS {
            counts[choice.draw(&mut numbers) as usize] += 1;
        }
        // The first rank's share is 1 / 10.2 of all, as is the sum of 1 / r^0.99 to 10,000.
        let first = counts[(spread(0) % ROWS) as usize] as f64 / DRAWS as f64;
        assert!((0.09..0.11).contains(&first), "{first}");
        let mut sorted = counts.clone();
        sorted.sort_unstable();
        let often: u64 = sorted.iter().rev().take(ROWS as usize / 100).sum();
        let share = often as f64 / DRAWS as f64;
        assert!(
            (0.45..0.60).contains(&share),
            "a hundredth of the rows has {share} of all"
        );
        let neighbours = counts[(spread(0) % ROWS) as usize + 1];
        assert!(neighbours < DRAWS / 100, "{neighbours}");
        assert_eq!(Choice::Zipf(Zipf::new(1)).draw(&mut numbers), 0);
    }

    #[test]
    fn spreading_keeps_numbers_apart() {
        let spread: BTreeSet<u64> = (0..100_000).map(spread).collect();
        assert_eq!(spread.len(), 100_000);
    }

    #[test]
    fn values_are_half_compressible() {
        let mut numbers = Numbers::new(7);
        let (mut page, mut value) = (Vec::new(), Vec::new());
        for record in 0..128 {
            fill_value(&mut value, 256, record, &mut numbers);
            assert_eq!((value.len(), &value[..8]), (256, &record.to_le_bytes()[..]));
            page.extend_from_slice(&value);
        }
        let share = |codec| {
            let mut packed = Vec::new();
            codec::Compressor::new(codec)
                .unwrap()
                .compress(&page, &mut packed)
                .unwrap();
            packed.len() as f64 / page.len() as f64
        };
        for codec in [codec::Codec::Snappy, codec::Codec::Lz4] {
            assert!((0.45..0.62).contains(&share(codec)), "{codec:?}: {}", share(codec));
        }
        for codec in [codec::Codec::Zlib, codec::Codec::Zstd] {
            assert!((0.25..0.42).contains(&share(codec)), "{codec:?}: {}", share(codec));
        }
    }

    #[test]
    fn letters_are_the_halves_of_the_bytes() {
        assert_eq!(letters(0), *b"aaaaaaaa");
        assert_eq!(letters(0x7654_3210), *b"abcdefgh");
        assert_eq!(letters(u32::MAX), *b"pppppppp");
    }

    #[test]
    fn index_keys_are_spread_and_name_their_record() {
        let mut low_half = 0;
        let mut seen = BTreeSet::new();
        for record in 0..10_000 {
            for index in 1..=3 {
                let key = index_key(record, index);
                assert_eq!(key[16..], record.to_be_bytes());
                low_half += u64::from(key[0] < 128);
                assert!(seen.insert(key));
            }
        }
        assert!((14_400..15_600).contains(&low_half), "{low_half}");
    }
}
