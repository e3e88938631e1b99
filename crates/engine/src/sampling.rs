//! Estimates for engines that keep no counts of ranges: short ranges are counted, long ones sampled.
//!
//! 1. Count up to [`COUNTED_MAX`] rows. If the range ends there, the answer is exact.
//! 2. Otherwise place the keys after the counted ones on a line from 0 to 1, so that evenly spread keys lie evenly: the
//!    bytes that the first and the last of them share are left out, and each further byte is a digit among the bytes
//!    that occur at its position ([`Line`]). Which occur is learnt from keys looked at; so decimal or hexadecimal text
//!    is as even as binary numbers are.
//! 3. Cut the line into [`SEGMENTS`] equal pieces and read up to [`SAMPLE`] rows at each piece's start: rows seen over
//!    length passed is the density, density times length the piece's rows.
//! 4. Split keys lie where the running sum of rows passes each share.
//!
//! It errs where density changes much inside a piece.

use crate::{Estimate, Result};

const COUNTED_MAX: usize = 2048;
const SEGMENTS: usize = 64;
const SAMPLE: u64 = 64;
/// Rounds of learning which bytes occur, each with one look per segment.
const LEARNING_ROUNDS: usize = 2;
/// Bytes of a key, after the shared ones, that place it.
const DIGITS_MAX: usize = 16;
/// So many bytes in a row that were not seen between seen ones are taken not to occur (as between `9` and `a`). With
/// fewer the samples may just have missed them.
const GAP_MIN: usize = 32;
/// Longer keys are remembered by their beginnings.
const KEPT_KEY_BYTES: usize = 256;

/// Whether [`SampledRange::scan`] goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Show the next row.
    More,
    /// That was enough.
    Enough,
}

/// A range of a table, as [`estimate_by_sampling`] looks at it.
pub trait SampledRange {
    /// Shows key and value length of the rows from the first key at or above `from` (the empty key: from the start of
    /// the range), in rising order, until `visit` has enough or the range ends.
    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()>;

    /// The last key of the range.
    fn last_key(&mut self) -> Result<Option<Vec<u8>>>;
}

/// Estimates a range. Costs at most about 6,000 rows read and 200 seeks.
pub fn estimate_by_sampling(range: &mut dyn SampledRange, splits: usize) -> Result<Estimate> {
    let mut counted = Estimate::default();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut uncounted = None;
    range.scan(&[], &mut |key, value_bytes| {
        let kept = &key[..key.len().min(KEPT_KEY_BYTES)];
        if keys.len() == COUNTED_MAX {
            uncounted = Some(kept.to_vec());
            return Sampling::Enough;
        }
        counted.rows += 1;
        counted.bytes += (key.len() + value_bytes) as u64;
        keys.push(kept.to_vec());
        Sampling::More
    })?;
    let last = if uncounted.is_some() { range.last_key()? } else { None };
    match (uncounted, last) {
        (Some(first), Some(last)) => {
            let line = Line::learn(range, &first, &last, &keys)?;
            sample(range, &line, splits, &counted, &keys)
        }
        _ => {
            let parts = (splits + 1).min(keys.len().max(1));
            counted.split_keys = (1..parts).map(|part| keys[keys.len() * part / parts].clone()).collect();
            counted.split_keys.dedup();
            Ok(counted)
        }
    }
}

/// Places keys between 0 and 1, in their order.
struct Line {
    /// Bytes that the first and the last key share.
    shared: Vec<u8>,
    first: Vec<u8>,
    last: Vec<u8>,
    digits: Vec<Digit>,
}

/// What occurs at one position of the keys.
#[derive(Clone)]
struct Digit {
    /// Bytes that occur, rising.
    bytes: Vec<u8>,
    /// 1 where keys may end before this position, which comes before every byte; otherwise 0.
    ends: usize,
}

impl Digit {
    fn radix(&self) -> f64 {
        (self.bytes.len() + self.ends) as f64
    }
}

impl Line {
    fn learn(range: &mut dyn SampledRange, first: &[u8], last: &[u8], counted: &[Vec<u8>]) -> Result<Self> {
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let any = Digit {
            bytes: (0..=u8::MAX).collect(),
            ends: 0,
        };
        let mut line = Self {
            shared: first[..shared].to_vec(),
            first: first.to_vec(),
            last: last.to_vec(),
            digits: vec![any; DIGITS_MAX],
        };
        let mut seen: Vec<Vec<u8>> = counted.to_vec();
        seen.extend([first.to_vec(), last.to_vec()]);
        for _ in 0..LEARNING_ROUNDS {
            let (start, step) = line.segments();
            for segment in 0..SEGMENTS {
                range.scan(&line.key(start + step * segment as f64), &mut |key, _| {
                    seen.push(key[..key.len().min(KEPT_KEY_BYTES)].to_vec());
                    Sampling::Enough
                })?;
            }
            line.digits = digits_of(&line.shared, &seen);
        }
        Ok(line)
    }

    /// Where the segments start, and how long each is.
    fn segments(&self) -> (f64, f64) {
        let start = self.place(&self.first);
        (
            start,
            ((self.place(&self.last) - start) / SEGMENTS as f64).max(f64::EPSILON),
        )
    }

    fn place(&self, key: &[u8]) -> f64 {
        let (mut place, mut width) = (0.0, 1.0);
        let rest = key.get(self.shared.len()..).unwrap_or_default();
        for (digit, byte) in self.digits.iter().zip(rest) {
            width /= digit.radix();
            match digit.bytes.binary_search(byte) {
                Ok(rank) => place += width * (rank + digit.ends) as f64,
                // Before the next byte that occurs, whatever follows.
                Err(rank) => return place + width * (rank + digit.ends) as f64,
            }
        }
        place
    }

    /// The first key of a place.
    fn key(&self, mut place: f64) -> Vec<u8> {
        let mut key = self.shared.clone();
        for digit in &self.digits {
            let scaled = (place * digit.radix()).max(0.0);
            let rank = (scaled as usize).min(digit.bytes.len() + digit.ends - 1);
            if rank < digit.ends {
                break;
            }
            key.push(digit.bytes[rank - digit.ends]);
            place = scaled - rank as f64;
        }
        key
    }
}

/// What occurs at the positions after `shared` in keys that begin with it.
fn digits_of(shared: &[u8], keys: &[Vec<u8>]) -> Vec<Digit> {
    let tails: Vec<&[u8]> = keys.iter().filter_map(|key| key.strip_prefix(shared)).collect();
    let mut digits = Vec::new();
    for position in 0..DIGITS_MAX {
        let mut occurs = [false; 256];
        let mut ends = 0;
        for tail in &tails {
            match tail.get(position) {
                Some(byte) => occurs[usize::from(*byte)] = true,
                None if tail.len() == position => ends = 1,
                None => {}
            }
        }
        let mut bytes: Vec<u8> = Vec::new();
        for byte in (0..=u8::MAX).filter(|byte| occurs[usize::from(*byte)]) {
            let before = bytes.last().copied().unwrap_or(byte);
            if usize::from(byte - before) <= GAP_MIN {
                bytes.extend(before.saturating_add(1)..byte);
            }
            bytes.push(byte);
        }
        if bytes.is_empty() {
            break;
        }
        digits.push(Digit { bytes, ends });
    }
    digits
}

fn sample(
    range: &mut dyn SampledRange,
    line: &Line,
    splits: usize,
    counted: &Estimate,
    counted_keys: &[Vec<u8>],
) -> Result<Estimate> {
    let (start, step) = line.segments();
    let mut rows_before = vec![counted.rows as f64];
    let (mut seen, mut seen_bytes) = (counted.rows, counted.bytes);
    for segment in 0..SEGMENTS {
        let from = start + step * segment as f64;
        let first = line.key(from);
        let (mut found, mut passed, mut whole) = (0, 0.0, true);
        range.scan(
            if segment == 0 { &line.first } else { &first },
            &mut |key, value_bytes| {
                let distance = (line.place(key) - from).max(0.0);
                if distance >= step && segment + 1 < SEGMENTS {
                    return Sampling::Enough;
                }
                if found == SAMPLE {
                    whole = false;
                    return Sampling::Enough;
                }
                found += 1;
                passed = distance;
                seen_bytes += (key.len() + value_bytes) as u64;
                Sampling::More
            },
        )?;
        seen += found;
        let stretch = if whole || passed <= 0.0 {
            1.0
        } else {
            (step / passed).max(1.0)
        };
        rows_before.push(rows_before[segment] + found as f64 * stretch);
    }
    let rows = rows_before[SEGMENTS] as u64;
    Ok(Estimate {
        rows,
        bytes: (rows as f64 * seen_bytes as f64 / seen as f64) as u64,
        split_keys: split_keys(line, &rows_before, splits, counted_keys),
    })
}

fn split_keys(line: &Line, rows_before: &[f64], splits: usize, counted_keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (start, step) = line.segments();
    let total = rows_before[SEGMENTS];
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for split in 1..=splits {
        let wanted = total * split as f64 / (splits + 1) as f64;
        let after = rows_before.partition_point(|&rows| rows <= wanted);
        let key = match counted_keys.get(wanted as usize) {
            Some(key) => key.clone(),
            None => {
                let segment = after.clamp(1, SEGMENTS) - 1;
                let rows = (rows_before[segment + 1] - rows_before[segment]).max(1.0);
                let inside = (wanted - rows_before[segment]) / rows;
                line.key(start + step * (segment as f64 + inside))
                    .max(line.first.clone())
            }
        };
        // Only keys strictly inside, so that no part is empty by construction.
        let inside = counted_keys.first().is_some_and(|first| *first < key) && key <= line.last;
        if inside && keys.last().is_none_or(|before| *before < key) {
            keys.push(key);
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    struct Keys(BTreeSet<Vec<u8>>);

    impl SampledRange for Keys {
        fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()> {
            let mut rows = self.0.range(from.to_vec()..);
            while rows.next().is_some_and(|key| visit(key, 10) == Sampling::More) {}
            Ok(())
        }

        fn last_key(&mut self) -> Result<Option<Vec<u8>>> {
            Ok(self.0.last().cloned())
        }
    }

    /// Within `factor`; the parts between split keys are unequal, but none is nearly everything.
    fn expect_near(factor: u64, keys: impl Iterator<Item = Vec<u8>>) {
        let mut keys = Keys(keys.collect());
        let rows = keys.0.len() as u64;
        let estimate = estimate_by_sampling(&mut keys, 7).unwrap();
        assert!(
            estimate.rows * factor >= rows && estimate.rows <= rows * factor,
            "{} for {rows}",
            estimate.rows
        );
        assert!(estimate.split_keys.is_sorted_by(|a, b| a < b));
        assert!(!estimate.split_keys.is_empty());
        let mut largest = 0;
        let mut before = 0;
        for key in &estimate.split_keys {
            let position = keys.0.range(..key.clone()).count();
            largest = largest.max(position - before);
            before = position;
        }
        largest = largest.max(keys.0.len() - before);
        assert!(largest <= keys.0.len() * 2 / 3, "a part of {largest} of {rows}");
    }

    #[test]
    fn short_ranges_are_exact() {
        for rows in [0, 1, 2, COUNTED_MAX as u64] {
            let mut keys = Keys((0..rows).map(|number| number.to_be_bytes().to_vec()).collect());
            let estimate = estimate_by_sampling(&mut keys, 3).unwrap();
            assert_eq!((estimate.rows, estimate.bytes), (rows, rows * 18));
            assert_eq!(estimate.split_keys.len() as u64, 3.min(rows.saturating_sub(1)));
        }
    }

    #[test]
    fn long_ranges_are_near() {
        let spread = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        expect_near(3, (0..50_000u64).map(|number| number.to_be_bytes().to_vec()));
        expect_near(3, (0..50_000u64).map(|number| spread(number).to_be_bytes().to_vec()));
        expect_near(
            3,
            (0..20_000u64).map(|number| [&b"a long prefix"[..], &spread(number).to_be_bytes()].concat()),
        );
        expect_near(3, (0..20_000u64).map(|number| (number * number).to_be_bytes().to_vec()));
        expect_near(3, (0..20_000u64).map(|number| format!("user{number}").into_bytes()));
        expect_near(
            3,
            (0..20_000u64).map(|number| format!("{:x}", spread(number)).into_bytes()),
        );
        expect_near(
            3,
            (0..20_000u64).map(|number| format!("{}@example.com", spread(number) >> 30).into_bytes()),
        );
        // The whole line, from end to end.
        expect_near(
            3,
            (0..20_000u64).map(|number| (number * (u64::MAX / 19_999)).to_be_bytes().to_vec()),
        );
    }
}
