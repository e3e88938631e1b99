//! Cursors: bounds, directions, seeks, limits, estimates.

use crate::driver::{Dice, Driver, TABLE, drain, for_seeds, fresh, key, open_cursor, scan};
use crate::fixture::{Fixture, tests};
use engine::{Direction, FillLimits, KeyRange, Rows};
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

tests![
    empty_and_single_row_tables,
    every_kind_of_bound_in_both_directions,
    bounds_that_leave_nothing,
    seek_hits_misses_and_stays_in_its_range,
    seek_after_the_end_goes_back,
    fill_stops_at_its_limits_and_always_advances,
    rows_memory_is_reused_and_values_outlive_it,
    large_rows_come_one_at_a_time,
    random_ranges_and_seeks_agree_with_a_map,
    a_long_stretch_of_deleted_keys_is_skipped,
    estimates_are_within_a_factor_of_three,
    split_keys_rise_inside_the_range_and_part_it,
];

fn filled(fixture: &dyn Fixture, rows: u64) -> (Driver, Box<dyn crate::fixture::Site>) {
    let (mut driver, site) = fresh(fixture);
    driver.commit(|batch| (0..rows).for_each(|number| batch.put(TABLE, key(number * 10), key(number))));
    (driver, site)
}

fn keys_of(driver: &Driver, range: KeyRange, direction: Direction) -> Vec<u64> {
    let rows = scan(&driver.snapshot(), TABLE, range, direction);
    rows.iter()
        .map(|row| u64::from_be_bytes(row.0[..].try_into().unwrap()))
        .collect()
}

fn range(start: Bound<u64>, end: Bound<u64>) -> KeyRange {
    KeyRange {
        start: start.map(key),
        end: end.map(key),
    }
}

fn empty_and_single_row_tables(fixture: &dyn Fixture) {
    for rows in [0, 1] {
        let (driver, _site) = filled(fixture, rows);
        for direction in [Direction::Forward, Direction::Reverse] {
            assert_eq!(keys_of(&driver, KeyRange::all(), direction).len() as u64, rows);
            let mut cursor = open_cursor(&driver.snapshot(), TABLE, KeyRange::all(), direction);
            cursor.seek(&key(0)).unwrap();
            assert_eq!(drain(&mut *cursor, FillLimits::default()).len() as u64, rows);
        }
    }
}

fn every_kind_of_bound_in_both_directions(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 10);
    let cases: [(Bound<u64>, Bound<u64>, &[u64]); 9] = [
        (Unbounded, Unbounded, &[0, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (Included(20), Included(40), &[20, 30, 40]),
        (Excluded(20), Included(40), &[30, 40]),
        (Included(20), Excluded(40), &[20, 30]),
        (Excluded(20), Excluded(40), &[30]),
        (Included(15), Included(45), &[20, 30, 40]),
        (Excluded(15), Excluded(25), &[20]),
        (Unbounded, Excluded(10), &[0]),
        (Excluded(80), Unbounded, &[90]),
    ];
    for (start, end, expected) in cases {
        assert_eq!(keys_of(&driver, range(start, end), Direction::Forward), expected);
        let mut reversed = keys_of(&driver, range(start, end), Direction::Reverse);
        reversed.reverse();
        assert_eq!(reversed, expected);
    }
    assert_eq!(
        keys_of(&driver, KeyRange::prefix(&key(20)[..7]), Direction::Forward).len(),
        10
    );
    assert_eq!(keys_of(&driver, KeyRange::prefix(&key(20)), Direction::Forward), [20]);
}

fn bounds_that_leave_nothing(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 10);
    let cases = [
        (Included(40), Included(20)),
        (Excluded(40), Excluded(20)),
        (Excluded(20), Excluded(20)),
        (Included(20), Excluded(20)),
        (Excluded(20), Included(20)),
        (Included(21), Included(29)),
        (Excluded(90), Unbounded),
        (Unbounded, Excluded(0)),
    ];
    for (start, end) in cases {
        for direction in [Direction::Forward, Direction::Reverse] {
            assert_eq!(
                keys_of(&driver, range(start, end), direction),
                [] as [u64; 0],
                "{start:?} {end:?}"
            );
            let mut cursor = open_cursor(&driver.snapshot(), TABLE, range(start, end), direction);
            cursor.seek(&key(20)).unwrap();
            assert_eq!(drain(&mut *cursor, FillLimits::default()), vec![], "{start:?} {end:?}");
        }
    }
}

fn seek_hits_misses_and_stays_in_its_range(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 10);
    let within = range(Included(20), Excluded(60));
    // What comes first after the seek, forward and in reverse.
    let cases = [
        (0, Some(20), None),
        (20, Some(20), Some(20)),
        (25, Some(30), Some(20)),
        (30, Some(30), Some(30)),
        (55, None, Some(50)),
        (60, None, Some(50)),
        (1000, None, Some(50)),
    ];
    for (target, forward, reverse) in cases {
        for (direction, expected) in [(Direction::Forward, forward), (Direction::Reverse, reverse)] {
            let mut cursor = open_cursor(&driver.snapshot(), TABLE, within.clone(), direction);
            cursor.seek(&key(target)).unwrap();
            let found = drain(
                &mut *cursor,
                FillLimits {
                    rows_max: 2,
                    bytes_max: usize::MAX,
                },
            );
            assert_eq!(
                found.first().map(|row| row.0.clone()),
                expected.map(key),
                "{target} {direction:?}"
            );
            assert!(found.iter().all(|row| within.contains(&row.0)));
        }
    }
}

fn seek_after_the_end_goes_back(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 10);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = open_cursor(&driver.snapshot(), TABLE, KeyRange::all(), direction);
        assert_eq!(drain(&mut *cursor, FillLimits::default()).len(), 10);
        assert!(
            !cursor.fill(&mut Rows::new(), FillLimits::default()).unwrap(),
            "the end stays the end"
        );
        cursor.seek(&key(50)).unwrap();
        let left = if direction == Direction::Forward { 5 } else { 6 };
        assert_eq!(drain(&mut *cursor, FillLimits::default()).len(), left);
    }
}

fn fill_stops_at_its_limits_and_always_advances(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 100);
    let mut rows = Rows::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut cursor = open_cursor(&driver.snapshot(), TABLE, KeyRange::all(), direction);
        cursor
            .fill(
                &mut rows,
                FillLimits {
                    rows_max: 7,
                    bytes_max: usize::MAX,
                },
            )
            .unwrap();
        assert_eq!(rows.len(), 7);
        // Rows are 16 bytes: the third reaches 33.
        cursor
            .fill(
                &mut rows,
                FillLimits {
                    rows_max: 100,
                    bytes_max: 33,
                },
            )
            .unwrap();
        assert_eq!(rows.len(), 3);
        cursor
            .fill(
                &mut rows,
                FillLimits {
                    rows_max: 100,
                    bytes_max: 0,
                },
            )
            .unwrap();
        assert_eq!(rows.len(), 1);
        cursor
            .fill(
                &mut rows,
                FillLimits {
                    rows_max: 0,
                    bytes_max: 100,
                },
            )
            .unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            drain(
                &mut *cursor,
                FillLimits {
                    rows_max: 13,
                    bytes_max: 100
                }
            )
            .len(),
            88
        );
    }
}

fn rows_memory_is_reused_and_values_outlive_it(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 10);
    let mut cursor = open_cursor(&driver.snapshot(), TABLE, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    cursor
        .fill(
            &mut rows,
            FillLimits {
                rows_max: 5,
                bytes_max: usize::MAX,
            },
        )
        .unwrap();
    let kept = rows.value_bytes(4);
    cursor.fill(&mut rows, FillLimits::default()).unwrap();
    assert_eq!(kept[..], key(4));
    assert_eq!(
        (rows.key(0), rows.value(0), rows.byte_size()),
        (&key(50)[..], &key(5)[..], 80)
    );
}

fn large_rows_come_one_at_a_time(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    for number in 0..6 {
        driver.put(TABLE, &key(number), &vec![number as u8; 4 << 20]);
    }
    let mut cursor = open_cursor(&driver.snapshot(), TABLE, KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    let mut seen = 0;
    while cursor.fill(&mut rows, FillLimits::default()).unwrap() {
        assert_eq!(rows.len(), 1, "a fill of 256 KiB holds one row of 4 MiB");
        assert_eq!(rows.value(0), vec![seen as u8; 4 << 20]);
        seen += 1;
    }
    assert_eq!(seen, 6);
}

fn random_ranges_and_seeks_agree_with_a_map(fixture: &dyn Fixture) {
    for_seeds("random_ranges_and_seeks_agree_with_a_map", 3, |seed| {
        let dice = Dice::new(seed);
        let (mut driver, _site) = fresh(fixture);
        let short_key = || {
            let length = dice.below(4) as usize;
            (0..length)
                .map(|_| [0x00, 0x01, 0x80, 0xFF][dice.below(4) as usize])
                .collect::<Vec<u8>>()
        };
        let mut model = BTreeMap::new();
        for _ in 0..60 {
            let (key, value) = (short_key(), dice.bytes(3));
            driver.put(TABLE, &key, &value);
            model.insert(key, value);
        }
        driver.engine.checkpoint().unwrap();
        let snapshot = driver.snapshot();
        let bound = || match dice.below(5) {
            0 => Unbounded,
            1 | 2 => Included(short_key()),
            _ => Excluded(short_key()),
        };
        for _ in 0..500 {
            let range = KeyRange {
                start: bound(),
                end: bound(),
            };
            let direction = if dice.below(2) == 0 {
                Direction::Forward
            } else {
                Direction::Reverse
            };
            let mut cursor = open_cursor(&snapshot, TABLE, range.clone(), direction);
            let mut from = None;
            for _ in 0..dice.below(3) {
                let target = short_key();
                cursor.seek(&target).unwrap();
                from = Some(target);
            }
            let limits = FillLimits {
                rows_max: 1 + dice.below(5) as usize,
                bytes_max: usize::MAX,
            };
            let found = drain(&mut *cursor, limits);
            let reached = |key: &Vec<u8>| match (&from, direction) {
                (None, _) => true,
                (Some(from), Direction::Forward) => key >= from,
                (Some(from), Direction::Reverse) => key <= from,
            };
            let mut expected: Vec<_> = model
                .iter()
                .filter(|(key, _)| range.contains(key) && reached(key))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            if direction == Direction::Reverse {
                expected.reverse();
            }
            assert_eq!(found, expected, "{range:?} {direction:?} from {from:?}");
        }
    });
}

fn a_long_stretch_of_deleted_keys_is_skipped(fixture: &dyn Fixture) {
    let (mut driver, _site) = filled(fixture, 20_000);
    let held = driver.snapshot();
    driver.commit(|batch| (1..19_999).for_each(|number| batch.delete(TABLE, key(number * 10))));
    assert_eq!(keys_of(&driver, KeyRange::all(), Direction::Forward), [0, 199_990]);
    assert_eq!(keys_of(&driver, KeyRange::all(), Direction::Reverse), [199_990, 0]);
    assert_eq!(scan(&held, TABLE, KeyRange::all(), Direction::Forward).len(), 20_000);
}

fn estimates_are_within_a_factor_of_three(fixture: &dyn Fixture) {
    let (mut driver, _site) = filled(fixture, 30_000);
    let check = |driver: &Driver, start: u64, end: u64| {
        let wanted = range(Included(start * 10), Excluded(end * 10));
        let estimate = driver.snapshot().estimate(TABLE, &wanted, 0).unwrap();
        let rows = end - start;
        assert!(
            estimate.rows * 3 >= rows && estimate.rows <= rows * 3,
            "{} for {rows}",
            estimate.rows
        );
        assert!(
            estimate.bytes * 3 >= rows * 16 && estimate.bytes <= rows * 48,
            "{} bytes for {rows} rows",
            estimate.bytes
        );
    };
    for _ in 0..2 {
        for (start, end) in [
            (0, 30_000),
            (0, 10_000),
            (5_000, 29_000),
            (100, 200),
            (7, 8),
            (29_999, 30_000),
            (50, 50),
        ] {
            check(&driver, start, end);
        }
        let all = driver.snapshot().estimate(TABLE, &KeyRange::all(), 0).unwrap();
        assert!(all.rows * 3 >= 30_000 && all.rows <= 90_000, "{all:?}");
        // Once more with the rows where a checkpoint puts them.
        driver.engine.checkpoint().unwrap();
        driver.put(TABLE, &key(0), &key(0));
    }
    let nothing = driver
        .snapshot()
        .estimate(TABLE, &range(Included(300_001), Unbounded), 4)
        .unwrap();
    assert_eq!((nothing.rows, nothing.bytes, nothing.split_keys.len()), (0, 0, 0));
}

fn split_keys_rise_inside_the_range_and_part_it(fixture: &dyn Fixture) {
    let (driver, _site) = filled(fixture, 20_000);
    let whole = range(Included(1_000), Excluded(190_000));
    for splits in [1, 3, 16] {
        let keys = driver.snapshot().estimate(TABLE, &whole, splits).unwrap().split_keys;
        assert!(
            keys.len() <= splits && !keys.is_empty(),
            "{} keys for {splits}",
            keys.len()
        );
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert!(keys.iter().all(|key| whole.contains(key)));
        let mut union = Vec::new();
        let mut start = whole.start.clone();
        let mut largest = 0;
        for end in keys.iter().map(|key| Excluded(key.clone())).chain([whole.end.clone()]) {
            let part = keys_of(
                &driver,
                KeyRange {
                    start: start.clone(),
                    end: end.clone(),
                },
                Direction::Forward,
            );
            largest = largest.max(part.len());
            union.extend(part);
            start = match end {
                Excluded(key) => Included(key),
                other => other,
            };
        }
        assert_eq!(
            union,
            keys_of(&driver, whole.clone(), Direction::Forward),
            "the parts' union is the whole"
        );
        assert!(
            largest <= 3 * union.len() / (keys.len() + 1),
            "a part of {largest} rows of {} in {}",
            union.len(),
            keys.len() + 1
        );
    }
    let few = driver
        .snapshot()
        .estimate(TABLE, &range(Included(0), Included(20)), 16)
        .unwrap()
        .split_keys;
    assert!(few.len() <= 3, "three rows cannot be parted {} times", few.len());
}
