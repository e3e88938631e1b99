//! What a test says about the keys of fields that hold hashes or geometries.

use super::encode::{StringKeys, may_have_strings, point};
use super::interval::{Interval, Intervals, successor};
use crate::matcher::{CompareOp, Test};
use bson::raw::RawBsonRef;
use keys::FieldKind;

/// For each of the kinds that the test says something of, keys of which every document that passes has one.
pub(crate) fn sets(test: &Test, kinds: &[FieldKind], keys: StringKeys<'_>) -> Vec<(FieldKind, Intervals)> {
    let set_of = |kind: &FieldKind| Some((*kind, set(test, *kind, keys)?));
    kinds.iter().filter_map(set_of).collect()
}

fn set(test: &Test, kind: FieldKind, keys: StringKeys<'_>) -> Option<Intervals> {
    match (kind, test) {
        (
            FieldKind::Hashed,
            Test::Compare {
                op: CompareOp::Eq,
                value,
            },
        ) => hashes([value.value()].into_iter(), keys),
        (FieldKind::Hashed, Test::In(list)) if list.regexes.is_empty() => {
            hashes(list.values.iter().map(|value| value.value()), keys)
        }
        (FieldKind::Sphere, Test::Geo(test)) => test.cells().map(of_numbers),
        (FieldKind::Plane(grid), Test::Geo(test)) => test.squares(&grid).map(|squares| of_numbers(&squares)),
        _ => None,
    }
}

fn hashes<'v>(values: impl Iterator<Item = RawBsonRef<'v>>, keys: StringKeys<'_>) -> Option<Intervals> {
    let mut points = Vec::new();
    for value in values {
        // Equal strings of a collation have different hashes.
        if !keys.is_binary() && may_have_strings(value) {
            return None;
        }
        points.push(hash_point(value));
        if matches!(value, RawBsonRef::Null) {
            points.push(hash_point(RawBsonRef::Undefined));
        }
    }
    Some(Intervals::from_unsorted(points))
}

fn hash_point(value: RawBsonRef<'_>) -> Interval {
    point(RawBsonRef::Int64(keys::hash(value)))
}

/// Intervals of numbers, their ends with them.
pub(crate) fn of_numbers(intervals: &[(i64, i64)]) -> Intervals {
    let interval = |&(low, high): &(i64, i64)| {
        let [low, high] = [low, high].map(|number| super::encode::encode(RawBsonRef::Int64(number)));
        Interval::range(low, successor(&high))
    };
    Intervals::from_unsorted(intervals.iter().map(interval).collect())
}
