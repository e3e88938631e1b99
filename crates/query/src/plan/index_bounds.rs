//! The part of an index that a plan reads: one set of values per field of the pattern, and the walk over it.
//!
//! Works on encoded keys only. Fields are in the encoding of their own direction (a descending field complemented), so
//! that everything here compares bytes. Trailing fields without a bound are left out.
//!
//! A walk covers one byte range from the smallest to the largest key inside the bounds. When several ranges lie in it
//! [`IndexBounds::check`] says, for a key outside, where to seek: a compound index with a gap in an early field is
//! skipped through, not scanned.

use super::interval::{Intervals, Place, successor};
use engine::{Direction, KeyRange};
use std::ops::Bound;

/// The bounds of an index scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexBounds {
    fields: Vec<Intervals>,
    /// Whole keys: from the first, to before the second; instead of bounds by field.
    keys: Option<KeyBounds>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyBounds {
    start: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
}

/// What [`IndexBounds::check`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The key is inside the bounds.
    Inside,
    /// Outside: go on at the first key `>=` these bytes (forward), or the last key `<` them (reverse).
    Seek(Vec<u8>),
    /// Nothing further in this direction is inside.
    Done,
}

impl IndexBounds {
    /// From the sets of the leading fields, each in its field's encoding.
    pub(crate) fn new(fields: Vec<Intervals>) -> Self {
        Self { fields, keys: None }
    }

    /// The keys from `start` on that are below `end`.
    pub(crate) fn between(start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> Self {
        Self {
            fields: Vec::new(),
            keys: Some(KeyBounds { start, end }),
        }
    }

    /// The sets of the leading fields.
    pub(crate) fn fields(&self) -> &[Intervals] {
        &self.fields
    }

    /// Of whole keys the first, and the one that all are below, where there are such; `None` of bounds by field.
    pub(crate) fn whole_keys(&self) -> Option<[Option<&[u8]>; 2]> {
        let keys = self.keys.as_ref()?;
        Some([keys.start.as_deref(), keys.end.as_deref()])
    }

    /// True when no key can be inside.
    pub(crate) fn is_empty(&self) -> bool {
        let reversed = matches!(&self.keys, Some(KeyBounds { start: Some(start), end: Some(end) }) if start >= end);
        reversed || self.fields.iter().any(Intervals::is_empty)
    }

    /// From the first to the last key that may be inside.
    pub(crate) fn range(&self) -> KeyRange {
        if let Some(KeyBounds { start, end }) = &self.keys {
            let start = start.clone().map_or(Bound::Unbounded, Bound::Included);
            return KeyRange {
                start,
                end: end.clone().map_or(Bound::Unbounded, Bound::Excluded),
            };
        }
        if self.fields.is_empty() {
            return KeyRange::all();
        }
        let mut start = Vec::with_capacity(24);
        self.append_first(&mut start, 0);
        KeyRange {
            start: Bound::Included(start),
            end: Bound::Excluded(self.upper_end()),
        }
    }

    /// True when [`IndexBounds::range`] holds keys that are outside: then each key needs [`IndexBounds::check`].
    pub(crate) fn needs_check(&self) -> bool {
        let last = self.fields.len().saturating_sub(1);
        self.fields.iter().enumerate().any(|(i, field)| {
            if i < last {
                field.single_point().is_none()
            } else {
                field.list().len() > 1
            }
        })
    }

    /// Appends the smallest bytes that fields `from..` allow.
    fn append_first(&self, key: &mut Vec<u8>, from: usize) {
        for field in &self.fields[from..] {
            let Some(first) = field.list().first() else { return };
            key.extend_from_slice(first.start());
            if !first.is_point() {
                return;
            }
        }
    }

    fn upper_end(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(24);
        for field in &self.fields {
            let Some(last) = field.list().last() else { break };
            if !last.is_point() {
                key.extend_from_slice(&last.end());
                return key;
            }
            key.extend_from_slice(last.start());
        }
        successor(&key)
    }

    /// Judges a key. `value_length(field, bytes)` is the length of the encoded value that `bytes` start with.
    pub(crate) fn check(
        &self,
        key: &[u8],
        direction: Direction,
        value_length: impl Fn(usize, &[u8]) -> usize,
    ) -> Check {
        let mut offset = 0;
        for (i, field) in self.fields.iter().enumerate() {
            let rest = key.get(offset..).unwrap_or_default();
            let length = value_length(i, rest).min(rest.len());
            let value = &rest[..length];
            let list = field.list();
            let outside = match direction {
                Direction::Forward => {
                    let next = list.partition_point(|interval| interval.place(value) == Place::After);
                    match list.get(next) {
                        Some(interval) if interval.place(value) == Place::Inside => None,
                        Some(interval) => {
                            let mut target = key[..offset].to_vec();
                            target.extend_from_slice(interval.start());
                            if interval.is_point() {
                                self.append_first(&mut target, i + 1);
                            }
                            Some(Check::Seek(target))
                        }
                        None if i == 0 => Some(Check::Done),
                        None => Some(Check::Seek(successor(&key[..offset]))),
                    }
                }
                Direction::Reverse => {
                    let after = list.partition_point(|interval| interval.place(value) != Place::Before);
                    match after.checked_sub(1).and_then(|i| list.get(i)) {
                        Some(interval) if interval.place(value) == Place::Inside => None,
                        Some(interval) => {
                            let mut target = key[..offset].to_vec();
                            target.extend_from_slice(&interval.end());
                            Some(Check::Seek(target))
                        }
                        None if i == 0 => Some(Check::Done),
                        None => Some(Check::Seek(key[..offset].to_vec())),
                    }
                }
            };
            if let Some(outside) = outside {
                return outside;
            }
            offset += length;
        }
        Check::Inside
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::Interval;
    use super::*;

    fn bounds() -> IndexBounds {
        let point = |v: u8| Interval::point(vec![v]);
        let range = |a: u8, b: u8| Interval::range(vec![a], vec![b]);
        IndexBounds::new(vec![
            Intervals::from_unsorted(vec![point(3), range(7, 9)]),
            Intervals::from_unsorted(vec![range(2, 4), point(9)]),
        ])
    }

    /// One-byte values; every key of two fields.
    fn walk(bounds: &IndexBounds, direction: Direction) -> (Vec<[u8; 2]>, usize) {
        let mut keys: Vec<[u8; 2]> = (0..12).flat_map(|a| (0..12).map(move |b| [a, b])).collect();
        if direction == Direction::Reverse {
            keys.reverse();
        }
        let range = bounds.range();
        keys.retain(|key| range.contains(key));
        let (mut found, mut looked_at, mut i) = (Vec::new(), 0, 0);
        while let Some(key) = keys.get(i) {
            looked_at += 1;
            match bounds.check(key, direction, |_, _| 1) {
                Check::Inside => {
                    found.push(*key);
                    i += 1;
                }
                Check::Done => break,
                Check::Seek(target) => {
                    let next = (i + 1..keys.len()).find(|&j| match direction {
                        Direction::Forward => keys[j].as_slice() >= target.as_slice(),
                        Direction::Reverse => keys[j].as_slice() < target.as_slice(),
                    });
                    i = next.unwrap_or(keys.len());
                }
            }
        }
        (found, looked_at)
    }

    #[test]
    fn a_walk_skips_what_lies_outside() {
        let wanted: Vec<[u8; 2]> = [3, 7, 8].into_iter().flat_map(|a| [2, 3, 9].map(|b| [a, b])).collect();
        let (found, looked_at) = walk(&bounds(), Direction::Forward);
        assert_eq!(found, wanted);
        assert!(looked_at <= 2 * wanted.len(), "{looked_at} keys");
        let (mut found, looked_at) = walk(&bounds(), Direction::Reverse);
        found.reverse();
        assert_eq!(found, wanted);
        assert!(looked_at <= 2 * wanted.len() + 2, "{looked_at} keys");
    }

    #[test]
    fn a_prefix_of_points_and_one_range_needs_no_check() {
        let point = Intervals::one(Interval::point(vec![3]));
        let range = Intervals::one(Interval::range(vec![4], vec![6]));
        let bounds = IndexBounds::new(vec![point, range]);
        assert!(!bounds.needs_check());
        assert_eq!(
            bounds.range(),
            KeyRange {
                start: Bound::Included(vec![3, 4]),
                end: Bound::Excluded(vec![3, 6])
            }
        );
        assert!(super::tests::bounds().needs_check());
    }
}
