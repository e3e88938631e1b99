//! Range deletes.

use crate::driver::{Dice, OTHER, TABLE, for_seeds, fresh, key};
use crate::fixture::{Fixture, tests};
use engine::KeyRange;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

tests![
    a_range_delete_obeys_its_bounds,
    an_empty_or_inverted_range_deletes_nothing,
    overlapping_range_deletes,
    a_whole_table_is_emptied_and_filled_again,
    trimming_the_front_while_a_reader_stands_there,
    random_range_deletes_agree_with_a_map,
];

fn a_range_delete_obeys_its_bounds(fixture: &dyn Fixture) {
    let cases = [
        (Included(2), Included(4), vec![0, 1, 5, 6]),
        (Included(2), Excluded(4), vec![0, 1, 4, 5, 6]),
        (Excluded(2), Included(4), vec![0, 1, 2, 5, 6]),
        (Excluded(2), Excluded(4), vec![0, 1, 2, 4, 5, 6]),
        (Unbounded, Excluded(3), vec![3, 4, 5, 6]),
        (Excluded(3), Unbounded, vec![0, 1, 2, 3]),
        (Unbounded, Unbounded, vec![]),
    ];
    for (start, end, left) in cases {
        let (mut driver, _site) = fresh(fixture);
        driver.commit(|batch| (0..7).for_each(|number| batch.put(TABLE, key(number), &b""[..])));
        driver.put(OTHER, &key(3), b"stays");
        let before = driver.snapshot();
        driver.commit(|batch| {
            batch.delete_range(
                TABLE,
                KeyRange {
                    start: start.map(key),
                    end: end.map(key),
                },
            )
        });
        let found: Vec<Vec<u8>> = driver.rows(TABLE).into_iter().map(|row| row.0).collect();
        assert_eq!(
            found,
            left.into_iter().map(key).collect::<Vec<_>>(),
            "{start:?} {end:?}"
        );
        assert_eq!(driver.rows(OTHER).len(), 1);
        assert!(before.get(TABLE, &key(3)).unwrap().is_some());
    }
}

fn an_empty_or_inverted_range_deletes_nothing(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..7).for_each(|number| batch.put(TABLE, key(number), &b""[..])));
    for (start, end) in [
        (Included(4), Included(2)),
        (Excluded(3), Excluded(3)),
        (Included(3), Excluded(3)),
        (Excluded(5), Excluded(1)),
    ] {
        driver.commit(|batch| {
            batch.delete_range(
                TABLE,
                KeyRange {
                    start: start.map(key),
                    end: end.map(key),
                },
            )
        });
    }
    driver.commit(|batch| {
        batch.delete_range(
            TABLE,
            KeyRange {
                start: Included(vec![9]),
                end: Unbounded,
            },
        )
    });
    assert_eq!(driver.rows(TABLE).len(), 7);
}

fn overlapping_range_deletes(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..100).for_each(|number| batch.put(TABLE, key(number), &b""[..])));
    for (start, end) in [(10, 30), (20, 50), (5, 12), (40, 41)] {
        driver.commit(|batch| {
            batch.delete_range(
                TABLE,
                KeyRange {
                    start: Included(key(start)),
                    end: Excluded(key(end)),
                },
            )
        });
    }
    driver.put(TABLE, &key(25), b"back");
    driver.engine.checkpoint().unwrap();
    assert_eq!(driver.rows(TABLE).len(), 5 + 50 + 1);
    assert_eq!(driver.get(TABLE, &key(25)).as_deref(), Some(&b"back"[..]));
    assert_eq!(driver.get(TABLE, &key(24)), None);
}

fn a_whole_table_is_emptied_and_filled_again(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    for round in 0..5u8 {
        driver.commit(|batch| (0..3000).for_each(|number| batch.put(TABLE, key(number), vec![round])));
        assert!(driver.rows(TABLE).iter().all(|row| row.1 == [round]));
        assert_eq!(driver.rows(TABLE).len(), 3000);
        driver.commit(|batch| batch.delete_range(TABLE, KeyRange::all()));
        assert_eq!(driver.rows(TABLE), vec![]);
        if round % 2 == 0 {
            driver.engine.checkpoint().unwrap();
        }
    }
}

fn trimming_the_front_while_a_reader_stands_there(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..1000).for_each(|number| batch.put(TABLE, key(number), &b"v"[..])));
    let snapshot = driver.snapshot();
    let mut reader = crate::driver::open_cursor(&snapshot, TABLE, KeyRange::all(), engine::Direction::Forward);
    let mut rows = engine::Rows::new();
    let mut read = 0;
    while reader
        .fill(
            &mut rows,
            engine::FillLimits {
                rows_max: 100,
                bytes_max: usize::MAX,
            },
        )
        .unwrap()
    {
        read += rows.len() as u64;
        driver.commit(|batch| {
            batch.delete_range(
                TABLE,
                KeyRange {
                    start: Unbounded,
                    end: Excluded(key(read + 50)),
                },
            )
        });
    }
    assert_eq!(read, 1000);
    assert_eq!(driver.rows(TABLE), vec![]);
}

fn random_range_deletes_agree_with_a_map(fixture: &dyn Fixture) {
    for_seeds("random_range_deletes_agree_with_a_map", 2, |seed| {
        let dice = Dice::new(seed);
        let (mut driver, _site) = fresh(fixture);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for _ in 0..300 {
            if dice.below(3) == 0 {
                let (start, end) = (dice.below(200), dice.below(200));
                let range = KeyRange {
                    start: Included(key(start)),
                    end: Excluded(key(end)),
                };
                model.retain(|key, _| !range.contains(key));
                driver.commit(|batch| batch.delete_range(TABLE, range));
            } else {
                let (key, value) = (key(dice.below(200)), dice.bytes(4));
                driver.put(TABLE, &key, &value);
                model.insert(key, value);
            }
            if dice.below(50) == 0 {
                driver.engine.checkpoint().unwrap();
                assert_eq!(driver.rows(TABLE), model.clone().into_iter().collect::<Vec<_>>());
            }
        }
        assert_eq!(driver.rows(TABLE), model.into_iter().collect::<Vec<_>>());
    });
}
