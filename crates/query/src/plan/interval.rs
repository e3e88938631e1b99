//! Sets of values of one indexed field, as ranges of encoded key bytes.
//!
//! An interval is a half-open range of byte strings in the ascending encoding of the `keys` crate. That encoding orders
//! by memcmp and no value's encoding is a prefix of another's, so every kind of bound becomes one of two byte strings:
//! the encoding itself, or the smallest string above everything that starts with it. Knows nothing of BSON or of
//! indexes.
//!
//! A set may have millions of intervals and be in hundreds of scans: sets share their list, and its complement is made
//! once.
//!
//! Invariants of [`Intervals`]: sorted, disjoint, not touching (unless two neighbouring points), none empty.

use engine::successor_of_prefix;
use std::sync::{Arc, OnceLock};

/// Above every encoded value: stands where a byte string has no successor.
const ABOVE_ALL: [u8; 16] = [0xFF; 16];

/// The smallest byte string above everything that starts with `prefix`.
pub(crate) fn successor(prefix: &[u8]) -> Vec<u8> {
    successor_of_prefix(prefix).unwrap_or_else(|| ABOVE_ALL.to_vec())
}

/// One range of encoded values: a single value, or `start <= x < end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    start: Vec<u8>,
    /// Empty for a point: then the end is the successor of `start`.
    end: Vec<u8>,
}

impl Interval {
    /// Just the value with this encoding.
    pub(crate) fn point(encoded: Vec<u8>) -> Self {
        Self {
            start: encoded,
            end: Vec::new(),
        }
    }

    /// `start <= x < end`; `end` must not be empty.
    pub(crate) fn range(start: Vec<u8>, end: Vec<u8>) -> Self {
        debug_assert!(!end.is_empty(), "an empty end means a point");
        Self { start, end }
    }

    /// True when the interval is one value.
    pub(crate) fn is_point(&self) -> bool {
        self.end.is_empty()
    }

    /// Inclusive lower bound.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// Exclusive upper bound.
    pub(crate) fn end(&self) -> Vec<u8> {
        if self.is_point() {
            successor(&self.start)
        } else {
            self.end.clone()
        }
    }

    /// Where an encoded value lies.
    pub(crate) fn place(&self, encoded: &[u8]) -> Place {
        if encoded < self.start.as_slice() {
            Place::Before
        } else if self.is_point() {
            if encoded == self.start {
                Place::Inside
            } else {
                Place::After
            }
        } else if encoded < self.end.as_slice() {
            Place::Inside
        } else {
            Place::After
        }
    }

    /// Whether all of `other` lies in this one.
    fn contains(&self, other: &Self) -> bool {
        match (self.is_point(), other.is_point()) {
            (true, true) => self.start == other.start,
            (true, false) => false,
            (false, true) => self.place(&other.start) == Place::Inside,
            (false, false) => self.start <= other.start && other.end <= self.end,
        }
    }

    fn is_empty(&self) -> bool {
        !self.is_point() && self.start >= self.end
    }

    /// The memory it takes.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.start.capacity() + self.end.capacity()
    }

    /// The same values in the encoding of a descending field.
    fn complemented(&self) -> Self {
        let complement = |bytes: &[u8]| bytes.iter().map(|byte| !byte).collect::<Vec<u8>>();
        if self.is_point() {
            return Self::point(complement(&self.start));
        }
        Self::range(successor(&complement(&self.end)), successor(&complement(&self.start)))
    }
}

/// Where a value lies relative to an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below the start.
    Before,
    /// In the interval.
    Inside,
    /// At or above the end.
    After,
}

/// A set of values as a sorted list of intervals. A clone shares the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intervals(Arc<IntervalList>);

#[derive(Debug, Default)]
struct IntervalList {
    list: Vec<Interval>,
    /// Every interval is a single value.
    all_points: bool,
    /// The same set in the encoding of a descending field, once it was asked for.
    complement: OnceLock<Intervals>,
}

impl PartialEq for Intervals {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.list() == other.list()
    }
}

impl Eq for Intervals {}

impl Intervals {
    fn new(list: Vec<Interval>) -> Self {
        Self(Arc::new(IntervalList {
            all_points: list.iter().all(Interval::is_point),
            list,
            complement: OnceLock::new(),
        }))
    }

    /// No value.
    pub(crate) fn none() -> Self {
        Self::new(Vec::new())
    }

    /// One interval.
    pub(crate) fn one(interval: Interval) -> Self {
        if interval.is_empty() {
            Self::none()
        } else {
            Self::new(vec![interval])
        }
    }

    /// The union of arbitrary intervals.
    pub(crate) fn from_unsorted(mut list: Vec<Interval>) -> Self {
        list.retain(|interval| !interval.is_empty());
        list.sort_by(|a, b| a.start.cmp(&b.start));
        let mut merged: Vec<Interval> = Vec::with_capacity(list.len());
        for interval in list {
            match merged.last_mut() {
                Some(last) if last.is_point() && interval.is_point() => {
                    if last.start != interval.start {
                        merged.push(interval);
                    }
                }
                Some(last) if interval.start < last.end() || interval.start == last.end() => {
                    let end = last.end().max(interval.end());
                    if !(last.is_point() && interval.is_point()) {
                        last.end = end;
                    }
                }
                _ => merged.push(interval),
            }
        }
        Self::new(merged)
    }

    /// The intervals, rising.
    pub(crate) fn list(&self) -> &[Interval] {
        &self.0.list
    }

    /// Which list it shares: the same for all clones.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Nobody else has the list.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The set, and behind it the complement that it keeps.
    pub(crate) fn with_complements(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |set| set.0.complement.get())
    }

    /// The memory that the list takes, without its complement.
    pub(crate) fn own_bytes(&self) -> usize {
        self.list().iter().map(Interval::bytes).sum()
    }

    /// The memory that the list and its complement take.
    pub(crate) fn bytes(&self) -> usize {
        self.with_complements().map(Self::own_bytes).sum()
    }

    /// True without a value.
    pub(crate) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// The only value, if there is just one.
    pub(crate) fn single_point(&self) -> Option<&[u8]> {
        match self.list() {
            [only] if only.is_point() => Some(only.start()),
            _ => None,
        }
    }

    /// True when every interval is a single value.
    pub(crate) fn all_points(&self) -> bool {
        self.0.all_points
    }

    /// Values in both.
    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let mut list = Vec::new();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.list().get(i), other.list().get(j)) {
            let (a_end, b_end) = (a.end(), b.end());
            let start = a.start.as_slice().max(b.start.as_slice());
            let end = a_end.as_slice().min(b_end.as_slice());
            if start < end {
                let point = [a, b].into_iter().find(|x| x.is_point());
                list.push(match point {
                    Some(point) => point.clone(),
                    None => Interval::range(start.to_vec(), end.to_vec()),
                });
            }
            if a_end <= b_end {
                i += 1;
            } else {
                j += 1;
            }
        }
        Self::new(list)
    }

    /// Whether all values are in `other`, too.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let mut rest = other.list();
        self.list().iter().all(|own| {
            let passed = rest.iter().take_while(|one| one.place(own.start()) == Place::After);
            rest = &rest[passed.count()..];
            rest.first().is_some_and(|one| one.contains(own))
        })
    }

    /// Values in all of these sets; `None` without a set. Pairs are joined, then pairs of what they have in common, so
    /// that an interval is copied as often as a sort moves it: joined one by one, sets of two intervals each (`$ne`)
    /// would be copied once for each other one.
    pub(crate) fn common_to_all(sets: impl IntoIterator<Item = Self>) -> Option<Self> {
        let mut sets: Vec<Self> = sets.into_iter().collect();
        while sets.len() > 1 {
            let pairs = sets.chunks(2).map(|pair| match pair {
                [a, b] => a.intersect(b),
                rest => rest[0].clone(),
            });
            sets = pairs.collect();
        }
        sets.pop()
    }

    /// Values of `all` that are not in this set.
    pub(crate) fn complement_in(&self, all: &Interval) -> Self {
        let mut list = Vec::new();
        let mut start = all.start.clone();
        for interval in self.list() {
            if start < interval.start {
                list.push(Interval::range(start, interval.start.clone()));
            }
            start = interval.end();
        }
        let end = all.end();
        if start < end {
            list.push(Interval::range(start, end));
        }
        Self::new(list)
    }

    /// The same set in the encoding of a descending field.
    pub(crate) fn complemented(&self) -> Self {
        let complement = || Self::new(self.list().iter().rev().map(Interval::complemented).collect());
        self.0.complement.get_or_init(complement).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u8, end: u8) -> Interval {
        Interval::range(vec![start], vec![end])
    }

    fn point(value: u8) -> Interval {
        Interval::point(vec![value])
    }

    fn members(set: &Intervals) -> Vec<u8> {
        (0..=255u8)
            .filter(|v| set.list().iter().any(|i| i.place(&[*v]) == Place::Inside))
            .collect()
    }

    #[test]
    fn set_operations_agree_with_sets_of_bytes() {
        let sets = [
            Intervals::from_unsorted(vec![range(3, 9), point(20), range(30, 40)]),
            Intervals::from_unsorted(vec![range(5, 25), point(39)]),
            Intervals::from_unsorted(vec![point(1), point(2), point(2), range(2, 4)]),
            Intervals::none(),
        ];
        let all = range(0, 200);
        for a in &sets {
            let of_a = members(a);
            let outside: Vec<u8> = (0..200).filter(|v| !of_a.contains(v)).collect();
            assert_eq!(members(&a.complement_in(&all)), outside);
            for b in &sets {
                let of_b = members(b);
                let both: Vec<u8> = of_a.iter().copied().filter(|v| of_b.contains(v)).collect();
                assert_eq!(members(&a.intersect(b)), both);
                assert_eq!(a.is_within(b), a.intersect(b) == *a);
                assert!(a.intersect(b).is_within(a) && a.intersect(b).is_within(b));
                let mut either = [of_a.clone(), of_b].concat();
                either.sort_unstable();
                either.dedup();
                let union = Intervals::from_unsorted(a.list().iter().chain(b.list()).cloned().collect());
                assert_eq!(members(&union), either);
            }
        }
    }

    /// Ten thousand `$ne` on one field were planned for minutes, and took gigabytes on the way.
    #[test]
    fn many_sets_have_in_common_what_a_loop_over_them_finds() {
        assert_eq!(Intervals::common_to_all([]), None);
        let all = range(0, 200);
        for count in [1, 2, 3, 7, 64, 150] {
            let mut sets: Vec<Intervals> = (0..count)
                .map(|v| Intervals::one(point(v)).complement_in(&all))
                .collect();
            sets.push(Intervals::one(range(10, 160)));
            let mut one_by_one = sets[0].clone();
            for set in &sets[1..] {
                one_by_one = one_by_one.intersect(set);
            }
            assert_eq!(Intervals::common_to_all(sets), Some(one_by_one), "{count}");
        }
        let encoded = |v: u32| Interval::point((2 * v).to_be_bytes().to_vec());
        let all = Interval::range(vec![0], vec![1]);
        let many = (0..20_000).map(|v| Intervals::one(encoded(v)).complement_in(&all));
        assert_eq!(Intervals::common_to_all(many).map(|set| set.list().len()), Some(20_001));
    }

    #[test]
    fn a_descending_field_holds_the_same_values() {
        let set = Intervals::from_unsorted(vec![range(3, 9), point(20), range(30, 40)]);
        let down: Vec<u8> = members(&set.complemented()).into_iter().rev().map(|v| !v).collect();
        assert_eq!(down, members(&set));
    }

    /// 200 scans of one `$in` had a copy each, and the copy of a descending field besides.
    #[test]
    fn clones_share_their_list_and_its_complement() {
        let set = Intervals::from_unsorted((0..100).map(point).collect());
        let clones = vec![set.clone(); 200];
        assert!(clones.iter().all(|clone| clone.identity() == set.identity()));
        let complement = set.complemented();
        assert!(
            clones
                .iter()
                .all(|clone| clone.complemented().identity() == complement.identity())
        );
        assert_eq!(set.bytes(), 2 * complement.bytes());
        // Each list is met once, and under its own name: whoever counts both counts no list twice.
        let met: Vec<usize> = set.with_complements().map(Intervals::identity).collect();
        assert_eq!(met, [set.identity(), complement.identity()]);
        assert!(Intervals::one(point(1)).is_unshared() && !set.is_unshared());
    }

    #[test]
    fn neighbouring_points_stay_points() {
        let set = Intervals::from_unsorted(vec![point(2), point(1), point(2)]);
        assert_eq!(set.list(), &[point(1), point(2)]);
        assert!(set.all_points());
        assert_eq!(
            set.intersect(&Intervals::one(range(2, 9))).single_point(),
            Some(&[2u8][..])
        );
    }
}
