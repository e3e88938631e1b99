//! Single keys: sizes, shapes, put, get, delete, add.

use crate::driver::{Dice, Driver, OTHER, TABLE, expect_kind, fresh, key, scan, spec};
use crate::fixture::{Fixture, tests};
use bytes::Bytes;
use engine::{
    Batch, CloseMode, Direction, ErrorKind, KEY_BYTES_MAX, KeyRange, Maintenance, TableId, TableKind, VALUE_BYTES_MAX,
};
use std::collections::BTreeMap;
use std::ops::Bound;

tests![
    values_of_all_sizes_come_back,
    keys_of_all_shapes_come_back,
    a_clustered_table_has_long_values_under_keys_of_all_shapes,
    tables_do_not_see_each_others_keys,
    a_value_past_the_limit_is_invalid,
    a_key_past_the_limit_is_invalid,
    overwriting_and_deleting,
    deleting_a_missing_key_is_fine,
    add_counts_from_nothing_after_delete_and_over_other_values,
    add_wraps,
    add_gives_the_same_after_compaction_and_reopening,
];

fn values_of_all_sizes_come_back(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let dice = Dice::new(1);
    let sizes = [
        0,
        1,
        7,
        511,
        512,
        513,
        4095,
        4096,
        4097,
        16383,
        16384,
        16385,
        65536,
        1 << 20,
        VALUE_BYTES_MAX,
    ];
    let values: Vec<Vec<u8>> = sizes.iter().map(|&size| dice.bytes(size)).collect();
    for (number, value) in values.iter().enumerate() {
        driver.put(TABLE, &key(number as u64), value);
    }
    driver.engine.checkpoint().unwrap();
    for (number, value) in values.iter().enumerate() {
        assert_eq!(
            driver.get(TABLE, &key(number as u64)).as_deref(),
            Some(&value[..]),
            "{} bytes",
            value.len()
        );
    }
    assert!(driver.rows(TABLE).iter().map(|row| &row.1).eq(&values));
}

fn keys_of_all_shapes_come_back(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let mut keys: Vec<Vec<u8>> = [0, 1, 7, 8, 9, 29, 30, 31, 32, 255, 256, 70_000]
        .into_iter()
        .flat_map(|length| [0x00, 0x01, 0x7F, 0x80, 0xFF].map(|fill| vec![fill; length]))
        .chain([KEY_BYTES_MAX].map(|length| vec![0xFF; length]))
        .chain([
            b"ab".to_vec(),
            b"ab\0".to_vec(),
            b"ab\0\0".to_vec(),
            b"ab\xFF".to_vec(),
            b"abc".to_vec(),
        ])
        .collect();
    for key in &keys {
        let value = key.len().to_le_bytes();
        driver.put(TABLE, key, &value);
    }
    keys.sort();
    keys.dedup();
    driver.engine.checkpoint().unwrap();
    for key in &keys {
        let found = driver.get(TABLE, key);
        assert_eq!(
            found.as_deref(),
            Some(&key.len().to_le_bytes()[..]),
            "a key of {} bytes",
            key.len()
        );
    }
    assert!(
        driver.rows(TABLE).iter().map(|row| &row.0).eq(&keys),
        "keys come in memcmp order"
    );
    assert_eq!(driver.get(TABLE, b"ab\0\0\0"), None);
}

fn a_clustered_table_has_long_values_under_keys_of_all_shapes(fixture: &dyn Fixture) {
    const CLUSTERED: TableId = TableId(40);
    let site = fixture.site();
    let mut driver = Driver::with_tables(&*site);
    driver.commit(|batch| batch.create_table(CLUSTERED, spec(TableKind::Clustered)));
    let dice = Dice::new(1);
    let keys = [0, 1, 7, 8, 9, 40, 300, 5000, 70_000, 1 << 20]
        .into_iter()
        .flat_map(|length| [0x00, 0x80, 0xFF].map(|fill| vec![fill; length]));
    let lengths = [VALUE_BYTES_MAX, 0, 100, 511, 5000, 16_384, 70_000, 1 << 20];
    let mut expected = BTreeMap::new();
    for (key, length) in keys.zip(lengths.into_iter().cycle()) {
        let value = dice.bytes(length);
        driver.put(CLUSTERED, &key, &value);
        expected.insert(key, value);
    }
    driver.engine.checkpoint().unwrap();
    // Shorter, longer, and gone.
    for (place, key) in expected.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
        match place % 4 {
            0 => {
                driver.commit(|batch| batch.delete(CLUSTERED, key.clone()));
                expected.remove(&key);
            }
            1 => {
                let value = dice.bytes(lengths[place % lengths.len()]);
                driver.put(CLUSTERED, &key, &value);
                expected.insert(key, value);
            }
            _ => {}
        }
    }
    let check = |driver: &Driver| {
        for (key, value) in &expected {
            assert!(
                driver.get(CLUSTERED, key).as_deref() == Some(&value[..]),
                "a key of {} bytes",
                key.len()
            );
        }
        let rows = |range, direction| scan(&driver.snapshot(), CLUSTERED, range, direction);
        let all = expected.iter().map(|(key, value)| (key.clone(), value.clone()));
        assert!(rows(KeyRange::all(), Direction::Forward).into_iter().eq(all.clone()));
        assert!(rows(KeyRange::all(), Direction::Reverse).into_iter().eq(all.rev()));
        let some = KeyRange {
            start: Bound::Excluded(vec![0x00; 8]),
            end: Bound::Included(vec![0x80; 300]),
        };
        let inside = expected.range::<[u8], _>((Bound::Excluded(&[0; 8][..]), Bound::Included(&[0x80; 300][..])));
        let inside = inside.map(|(key, value)| (key.clone(), value.clone()));
        assert!(rows(some, Direction::Reverse).into_iter().eq(inside.rev()));
    };
    check(&driver);
    if fixture.keeps_data() {
        driver.engine.close(CloseMode::Checkpoint).unwrap();
        drop(driver);
        check(&Driver::open(&*site));
    }
}

fn tables_do_not_see_each_others_keys(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    for edge in [vec![], vec![0], vec![0xFF; 40]] {
        driver.put(TABLE, &edge, b"here");
    }
    assert_eq!(driver.rows(OTHER), vec![]);
    assert_eq!(driver.get(OTHER, &[]), None);
    driver.put(OTHER, &[], b"there");
    driver.commit(|batch| batch.delete_range(OTHER, engine::KeyRange::all()));
    assert_eq!(driver.rows(TABLE).len(), 3);
    assert_eq!(driver.rows(OTHER), vec![]);
}

fn a_value_past_the_limit_is_invalid(fixture: &dyn Fixture) {
    let (driver, _site) = fresh(fixture);
    let mut batch = Batch::new();
    batch.put(TABLE, &b"a"[..], vec![0; VALUE_BYTES_MAX + 1]);
    expect_kind(driver.engine.apply(&batch, driver.last.next()), ErrorKind::Invalid);
}

fn a_key_past_the_limit_is_invalid(fixture: &dyn Fixture) {
    let (driver, _site) = fresh(fixture);
    let mut batch = Batch::new();
    batch.put(TABLE, vec![0; KEY_BYTES_MAX + 1], &b""[..]);
    expect_kind(driver.engine.apply(&batch, driver.last.next()), ErrorKind::Invalid);
}

fn overwriting_and_deleting(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let steps: [Option<&[u8]>; 7] = [
        Some(b"1"),
        Some(b""),
        None,
        Some(b"3"),
        None,
        None,
        Some(b"longer than before"),
    ];
    for step in steps {
        driver.commit(|batch| match step {
            Some(value) => batch.put(TABLE, &b"k"[..], value.to_vec()),
            None => batch.delete(TABLE, &b"k"[..]),
        });
        assert_eq!(driver.get(TABLE, b"k").as_deref(), step);
        assert_eq!(driver.rows(TABLE).len(), usize::from(step.is_some()));
    }
}

fn deleting_a_missing_key_is_fine(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.put(TABLE, b"b", b"1");
    driver.commit(|batch| batch.delete(TABLE, &b"a"[..]));
    assert_eq!(driver.rows(TABLE), [(b"b".to_vec(), b"1".to_vec())]);
}

fn number(value: Option<Bytes>) -> Option<i64> {
    value.map(|value| i64::from_le_bytes(value[..].try_into().unwrap()))
}

fn add_counts_from_nothing_after_delete_and_over_other_values(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| batch.add(TABLE, &b"n"[..], 5));
    driver.commit(|batch| batch.add(TABLE, &b"n"[..], -7));
    assert_eq!(number(driver.get(TABLE, b"n")), Some(-2));
    let before = driver.snapshot();
    driver.commit(|batch| batch.delete(TABLE, &b"n"[..]));
    driver.commit(|batch| batch.add(TABLE, &b"n"[..], 3));
    assert_eq!(number(driver.get(TABLE, b"n")), Some(3));
    driver.put(TABLE, b"n", b"not a number");
    driver.commit(|batch| batch.add(TABLE, &b"n"[..], 4));
    assert_eq!(number(driver.get(TABLE, b"n")), Some(4));
    driver.commit(|batch| {
        batch.put(TABLE, &b"n"[..], 10i64.to_le_bytes().to_vec());
        batch.add(TABLE, &b"n"[..], 1);
        batch.add(TABLE, &b"n"[..], 1);
        batch.add(OTHER, &b"n"[..], 1);
    });
    assert_eq!(number(driver.get(TABLE, b"n")), Some(12));
    assert_eq!(number(driver.get(OTHER, b"n")), Some(1));
    assert_eq!(number(before.get(TABLE, b"n").unwrap()), Some(-2));
}

fn add_wraps(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| batch.add(TABLE, &b"n"[..], i64::MAX));
    driver.commit(|batch| batch.add(TABLE, &b"n"[..], 1));
    assert_eq!(number(driver.get(TABLE, b"n")), Some(i64::MIN));
}

fn add_gives_the_same_after_compaction_and_reopening(fixture: &dyn Fixture) {
    let (mut driver, site) = fresh(fixture);
    for round in 0..200 {
        driver.commit(|batch| batch.add(TABLE, &b"n"[..], 1));
        if round % 50 == 0 {
            driver.engine.checkpoint().unwrap();
        }
    }
    driver
        .engine
        .maintain(&Maintenance::Compact(Some(vec![TABLE])))
        .unwrap();
    assert_eq!(number(driver.get(TABLE, b"n")), Some(200));
    if fixture.keeps_data() {
        driver.engine.close(CloseMode::Checkpoint).unwrap();
        drop(driver);
        let mut driver = crate::driver::Driver::open(&*site);
        driver.commit(|batch| batch.add(TABLE, &b"n"[..], 1));
        assert_eq!(number(driver.get(TABLE, b"n")), Some(201));
    }
}
