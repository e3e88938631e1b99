//! Ranges of bits in slices of words. Bit `i` is bit `i % 64` of word `i / 64`; ranges are half open and inside the
//! slice.

use std::ops::Range;

/// Calls `each` with the index of every word a range touches and the mask of the range in it.
fn for_words(range: Range<usize>, mut each: impl FnMut(usize, u64)) {
    let mut at = range.start;
    while at < range.end {
        let bit = at % 64;
        let count = (64 - bit).min(range.end - at);
        let mask = if count == 64 {
            u64::MAX
        } else {
            ((1 << count) - 1) << bit
        };
        each(at / 64, mask);
        at += count;
    }
}

pub(crate) fn set(words: &mut [u64], range: Range<usize>) {
    for_words(range, |word, mask| words[word] |= mask);
}

pub(crate) fn clear(words: &mut [u64], range: Range<usize>) {
    for_words(range, |word, mask| words[word] &= !mask);
}

pub(crate) fn all(words: &[u64], range: Range<usize>) -> bool {
    let mut result = true;
    for_words(range, |word, mask| result &= words[word] & mask == mask);
    result
}

pub(crate) fn any(words: &[u64], range: Range<usize>) -> bool {
    let mut result = false;
    for_words(range, |word, mask| result |= words[word] & mask != 0);
    result
}

pub(crate) fn count(words: &[u64]) -> u32 {
    words.iter().map(|word| word.count_ones()).sum()
}

pub(crate) fn is_zero(words: &[u64]) -> bool {
    words.iter().all(|word| *word == 0)
}

/// The first bit at or after `from` that is `wanted`; the number of bits when there is none.
pub(crate) fn next(words: &[u64], from: usize, wanted: bool) -> usize {
    let flip = if wanted { 0 } else { u64::MAX };
    let mut at = from;
    while let Some(word) = words.get(at / 64) {
        let rest = (word ^ flip) >> (at % 64);
        if rest != 0 {
            return at + rest.trailing_zeros() as usize;
        }
        at = (at / 64 + 1) * 64;
    }
    words.len() * 64
}

/// One past the last set bit before `to`, 0 for none.
pub(crate) fn end_before(words: &[u64], to: usize) -> usize {
    let (full, rest) = (to / 64, to % 64);
    if rest > 0 {
        let word = words[full] << (64 - rest);
        if word != 0 {
            return to - word.leading_zeros() as usize;
        }
    }
    end(&words[..full])
}

/// One past the last set bit, 0 for none.
pub(crate) fn end(words: &[u64]) -> usize {
    words
        .iter()
        .rposition(|word| *word != 0)
        .map_or(0, |at| at * 64 + 64 - words[at].leading_zeros() as usize)
}

/// The runs of bits that are `wanted`.
pub(crate) fn runs(words: &[u64], wanted: bool) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next(words, at, wanted);
        if start >= words.len() * 64 {
            return None;
        }
        at = next(words, start, !wanted);
        Some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::{Random, SeededRandom};

    #[test]
    fn ranges_behave_as_single_bits_do() {
        let random = SeededRandom::new(7);
        for _ in 0..500 {
            let mut words = [random.next_u64(), 0, u64::MAX, random.next_u64()];
            let mut model: Vec<bool> = (0..256).map(|i| words[i / 64] >> (i % 64) & 1 == 1).collect();
            let a = random.next_u64() as usize % 257;
            let b = random.next_u64() as usize % 257;
            let range = a.min(b)..a.max(b);
            assert_eq!(all(&words, range.clone()), model[range.clone()].iter().all(|bit| *bit));
            assert_eq!(any(&words, range.clone()), model[range.clone()].iter().any(|bit| *bit));
            for wanted in [true, false] {
                let expected = model[a.min(b)..].iter().position(|bit| *bit == wanted);
                assert_eq!(next(&words, a.min(b), wanted), expected.map_or(256, |at| at + a.min(b)));
                let covered: usize = runs(&words, wanted).map(|run| run.len()).sum();
                assert_eq!(covered, model.iter().filter(|bit| **bit == wanted).count());
            }
            let wanted = random.next_u64().is_multiple_of(2);
            if wanted {
                set(&mut words, range.clone());
            } else {
                clear(&mut words, range.clone());
            }
            model[range].fill(wanted);
            assert!((0..256).all(|i| (words[i / 64] >> (i % 64) & 1 == 1) == model[i]));
            let last = model[..b].iter().rposition(|bit| *bit);
            assert_eq!(end_before(&words, b), last.map_or(0, |at| at + 1));
            assert_eq!(end(&words), model.iter().rposition(|bit| *bit).map_or(0, |at| at + 1));
            assert_eq!(count(&words) as usize, model.iter().filter(|bit| **bit).count());
        }
    }
}
