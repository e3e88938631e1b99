//! Batches: order inside, all or nothing, visibility, what an error leaves.

use crate::driver::{OTHER, TABLE, expect_kind, fresh, key, scan};
use crate::fixture::{Fixture, tests};
use crate::lifecycle::expect_everything_closed;
use bytes::Bytes;
use engine::{Batch, Direction, ErrorKind, KeyRange, Seq, TableId};

tests![
    later_operations_of_a_batch_win,
    a_range_delete_takes_its_place_among_the_operations,
    a_batch_is_visible_after_publish_as_a_whole,
    a_large_batch_is_applied_as_a_whole,
    an_empty_batch_is_fine,
    seqs_may_be_left_out,
    a_snapshot_tells_its_seq,
    publishing_back_is_ignored,
    a_seq_that_does_not_rise_is_invalid,
    a_failed_batch_poisons_the_engine,
    throttling_ends_when_nobody_writes,
    apply_lets_go_of_the_batchs_buffers,
];

fn later_operations_of_a_batch_win(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.put(TABLE, b"b", b"old");
    driver.commit(|batch| {
        batch.put(TABLE, &b"a"[..], &b"1"[..]);
        batch.put(TABLE, &b"a"[..], &b"2"[..]);
        batch.delete(TABLE, &b"b"[..]);
        batch.put(TABLE, &b"b"[..], &b"3"[..]);
        batch.put(TABLE, &b"c"[..], &b"4"[..]);
        batch.delete(TABLE, &b"c"[..]);
        batch.delete(TABLE, &b"d"[..]);
        batch.put(TABLE, &b"d"[..], &b"5"[..]);
    });
    let expected =
        [(&b"a"[..], &b"2"[..]), (b"b", b"3"), (b"d", b"5")].map(|(key, value)| (key.to_vec(), value.to_vec()));
    assert_eq!(driver.rows(TABLE), expected);
}

fn a_range_delete_takes_its_place_among_the_operations(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..10).for_each(|number| batch.put(TABLE, key(number), &b"old"[..])));
    driver.commit(|batch| {
        batch.put(TABLE, key(3), &b"gone"[..]);
        batch.put(TABLE, key(20), &b"new, and gone"[..]);
        batch.delete_range(TABLE, KeyRange::all());
        batch.put(TABLE, key(5), &b"new"[..]);
    });
    assert_eq!(driver.rows(TABLE), [(key(5), b"new".to_vec())]);
}

fn a_batch_is_visible_after_publish_as_a_whole(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let before = driver.snapshot();
    for round in 1..=20u64 {
        let mut batch = Batch::new();
        batch.put(TABLE, &b"a"[..], key(round));
        batch.put(OTHER, &b"a"[..], key(round));
        driver.last = driver.last.next();
        driver.engine.apply(&batch, driver.last).unwrap();
        // Not published yet: all of it or nothing.
        let early = driver.snapshot();
        assert_eq!(early.get(TABLE, b"a").unwrap(), early.get(OTHER, b"a").unwrap());
        driver.engine.publish(driver.last);
        let after = driver.snapshot();
        assert_eq!(after.seq(), driver.last);
        assert_eq!(after.get(TABLE, b"a").unwrap().as_deref(), Some(&key(round)[..]));
        assert_eq!(after.get(OTHER, b"a").unwrap().as_deref(), Some(&key(round)[..]));
    }
    assert_eq!(before.get(TABLE, b"a").unwrap(), None);
}

fn a_large_batch_is_applied_as_a_whole(fixture: &dyn Fixture) {
    const ROWS: u64 = 50_000;
    let (mut driver, _site) = fresh(fixture);
    driver.commit(|batch| (0..ROWS).for_each(|number| batch.put(TABLE, key(number), vec![number as u8; 1000])));
    assert_eq!(
        scan(&driver.snapshot(), TABLE, KeyRange::all(), Direction::Forward).len() as u64,
        ROWS
    );
}

fn an_empty_batch_is_fine(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let seq = driver.commit(|_| {});
    assert_eq!(driver.snapshot().seq(), seq);
}

fn seqs_may_be_left_out(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.last = Seq(driver.last.0 + 1000);
    let seq = driver.put(TABLE, b"a", b"1");
    assert_eq!(driver.snapshot().seq(), seq);
    driver.engine.publish(Seq(seq.0 + 10));
    assert_eq!(driver.snapshot().seq(), Seq(seq.0 + 10));
    assert_eq!(driver.get(TABLE, b"a").as_deref(), Some(&b"1"[..]));
}

fn a_snapshot_tells_its_seq(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    // A counter that equals the position, so that a view that is off by one batch shows.
    for _ in 0..50 {
        let seq = driver.last.next();
        let mut batch = Batch::new();
        batch.put(TABLE, &b"seq"[..], seq.0.to_le_bytes().to_vec());
        let early = driver.snapshot();
        driver.engine.apply(&batch, seq).unwrap();
        let between = driver.snapshot();
        driver.engine.publish(seq);
        driver.last = seq;
        for snapshot in [early, between, driver.snapshot()] {
            if let Some(value) = snapshot.get(TABLE, b"seq").unwrap() {
                assert_eq!(value[..], snapshot.seq().0.to_le_bytes());
            }
        }
    }
}

fn publishing_back_is_ignored(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    driver.put(TABLE, b"a", b"1");
    let last = driver.put(TABLE, b"a", b"2");
    driver.engine.publish(Seq(last.0 - 1));
    assert_eq!(driver.snapshot().seq(), last);
    assert_eq!(driver.get(TABLE, b"a").as_deref(), Some(&b"2"[..]));
}

fn a_seq_that_does_not_rise_is_invalid(fixture: &dyn Fixture) {
    for back in [0, 1] {
        let (mut driver, _site) = fresh(fixture);
        driver.put(TABLE, b"a", b"1");
        expect_kind(
            driver.engine.apply(&Batch::new(), Seq(driver.last.0 - back)),
            ErrorKind::Invalid,
        );
    }
}

fn a_failed_batch_poisons_the_engine(fixture: &dyn Fixture) {
    let (driver, _site) = fresh(fixture);
    let mut batch = Batch::new();
    batch.put(TABLE, &b"a"[..], &b"1"[..]);
    batch.put(TableId(99), &b"a"[..], &b"1"[..]);
    let failures = driver.failures();
    expect_kind(driver.engine.apply(&batch, driver.last.next()), ErrorKind::Invalid);
    expect_everything_closed(&driver);
    assert_eq!(
        failures.lock().unwrap().len(),
        1,
        "who owns the engine hears of it, once"
    );
}

fn throttling_ends_when_nobody_writes(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    // Much at once, as from a caller that does not ask.
    for _ in 0..64 {
        let mut batch = Batch::new();
        let seq = driver.last.next();
        for key in 0..64_u64 {
            batch.put(TABLE, (seq.0 << 8 | key).to_be_bytes().to_vec(), vec![key as u8; 1000]);
        }
        driver.engine.apply(&batch, seq).unwrap();
        driver.engine.publish(seq);
        driver.last = seq;
    }
    let asked = (0..100_000).position(|_| driver.engine.throttle());
    assert!(asked.is_some(), "a writer that stands alone goes on");
}

fn apply_lets_go_of_the_batchs_buffers(fixture: &dyn Fixture) {
    let (mut driver, _site) = fresh(fixture);
    let large = Bytes::from(vec![7u8; 1 << 20]);
    let mut batch = Batch::new();
    batch.put(TABLE, large.slice(0..40), large.slice(10..1000));
    batch.delete(TABLE, large.slice(0..50));
    batch.add(TABLE, large.slice(0..60), 1);
    driver.last = driver.last.next();
    driver.engine.apply(&batch, driver.last).unwrap();
    driver.engine.publish(driver.last);
    drop(batch);
    assert!(large.is_unique(), "the engine keeps a slice of the caller's megabyte");
    assert_eq!(driver.get(TABLE, &[7; 40]).as_deref(), Some(&[7; 990][..]));
}
