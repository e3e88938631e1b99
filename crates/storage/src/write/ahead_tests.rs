use crate::limits::{BYTES_AHEAD_MAX, QUEUED_BYTES_MAX, UNITS_AHEAD_MAX};
use crate::testing::*;
use crate::{Kept, Operation, RecordId, SessionKey, Storage, StorageError};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use engine::Seq;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Documents of numbers, on a server that does not decide alone: nothing stays from here on before the test says so.
fn undecided(documents: i64) -> (Machine, Arc<Storage>, Vec<RecordId>) {
    let machine = Machine::new(31);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    storage
        .commit_to(Seq(storage.last_seq().0 + 1 + documents as u64))
        .unwrap();
    storage.make(&op, "c", rawdoc! {});
    let ids = (0..documents).map(|id| storage.put(&op, "c", rawdoc! { "_id": id, "n": 0 }).unwrap());
    let ids = ids.collect();
    (machine, storage, ids)
}

/// Replaces a document by one that is made of its newest version. `before_commit` is called with all of it checked.
fn change(
    storage: &Arc<Storage>,
    op: &Operation,
    id: &RecordId,
    new: impl FnOnce(&RawDocument) -> RawDocumentBuf,
    before_commit: impl FnOnce(),
) -> Result<Seq, StorageError> {
    let guard = storage.locked(op, "c");
    let mut unit = storage.begin_write(op);
    let old = unit.lock_record(&guard, id)?.expect("nobody deletes it");
    let old = RawDocument::from_bytes(old.as_ref()).unwrap();
    unit.update(&guard, id, old, &new(old))?;
    before_commit();
    unit.commit_ahead()
}

fn one_more(old: &RawDocument) -> RawDocumentBuf {
    rawdoc! { "_id": old.get_i64("_id").unwrap(), "n": old.get_i32("n").unwrap() + 1 }
}

fn counts(storage: &Arc<Storage>) -> Vec<i32> {
    let all = storage.all("c");
    all.iter().map(|(_, document)| document.get_i32("n").unwrap()).collect()
}

/// A change of many documents waited for a majority once for each of them.
#[test]
fn one_wait_is_for_all_that_was_committed_ahead() {
    let (machine, storage, ids) = undecided(3);
    let op = machine.operation();
    // The second round finds what the first one made of them.
    for id in ids.iter().chain(&ids) {
        change(&storage, &op, id, one_more, || {}).unwrap();
    }
    assert_eq!(storage.stats().locks_held, 0);
    assert_eq!(counts(&storage), [0, 0, 0], "nobody sees what is not decided");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| storage.wait_ahead(&op));
        storage.commit_to(storage.log().last_seq()).unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(counts(&storage), [2, 2, 2]);
    storage.wait_ahead(&op).unwrap();
    storage.assert_valid(&op, "c");
}

/// What is ahead stays in memory, so that there is a bound to it.
#[test]
fn who_is_far_ahead_waits() {
    let (machine, storage, ids) = undecided(1);
    let interrupted = |result| matches!(result, Err(StorageError::Interrupted(_)));
    let op = machine.operation();
    for _ in 1..UNITS_AHEAD_MAX {
        change(&storage, &op, &ids[0], one_more, || {}).unwrap();
    }
    assert!(interrupted(change(&storage, &op, &ids[0], one_more, || op.kill())));
    assert_eq!(storage.stats().locks_held, 0);
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!(counts(&storage), [UNITS_AHEAD_MAX as i32]);

    let large = "x".repeat(BYTES_AHEAD_MAX as usize);
    let op = machine.operation();
    let enlarged = change(
        &storage,
        &op,
        &ids[0],
        |_| rawdoc! { "_id": 0_i64, "n": 1, "large": large },
        || op.kill(),
    );
    assert!(interrupted(enlarged));
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!(counts(&storage), [1]);
}

/// A write with a `wtimeout` waited for a majority as long as that took.
#[test]
fn who_has_lost_patience_leaves_ahead_what_it_wrote() {
    let (machine, storage, ids) = undecided(2);
    let impatient = || {
        let op = machine.operation();
        op.set_commit_patience(Some(Duration::ZERO));
        op
    };
    let (many, alone) = (impatient(), impatient());
    change(&storage, &many, &ids[0], one_more, || {}).unwrap();
    let guard = storage.locked(&alone, "c");
    let mut unit = storage.begin_write(&alone);
    let old = unit.lock_record(&guard, &ids[1]).unwrap().unwrap();
    let old = RawDocument::from_bytes(old.as_ref()).unwrap();
    unit.update(&guard, &ids[1], old, &one_more(old)).unwrap();
    unit.commit().unwrap();
    drop(guard);
    assert_eq!(storage.stats().locks_held, 0);
    for op in [&many, &alone] {
        storage.wait_ahead_patiently(op).unwrap();
        assert!(op.is_ahead() && !storage.wait_observed_patiently(op).unwrap());
    }
    assert_eq!(counts(&storage), [0, 0]);
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!(counts(&storage), [1, 1]);
    for op in [&many, &alone] {
        storage.wait_ahead_patiently(op).unwrap();
        assert!(!op.is_ahead() && storage.wait_observed_patiently(op).unwrap());
    }
    // What is ahead of one without patience has a bound as well.
    let op = impatient();
    for _ in 0..UNITS_AHEAD_MAX {
        change(&storage, &op, &ids[0], one_more, || {}).unwrap();
    }
    let beyond = change(&storage, &op, &ids[0], one_more, || op.kill());
    assert!(matches!(beyond, Err(StorageError::Interrupted(_))));
    // And what a lost leadership may have taken with it is not only late.
    let op = impatient();
    change(&storage, &op, &ids[1], one_more, || {}).unwrap();
    storage.pipeline.cease_to_lead();
    let lost = storage.wait_observed_patiently(&op);
    assert!(matches!(lost, Err(StorageError::Interrupted(_))));
}

/// Each write that was answered before a majority had it left its document in memory.
#[test]
fn where_much_is_ahead_of_the_majority_patience_does_not_end() {
    let (machine, storage, ids) = undecided(1);
    let op = machine.operation();
    op.set_commit_patience(Some(Duration::ZERO));
    let fill = |bytes: u64| rawdoc! { "_id": 0_i64, "n": 1, "fill": "x".repeat(bytes as usize) };
    change(&storage, &op, &ids[0], |_| fill(QUEUED_BYTES_MAX / 2), || {}).unwrap();
    assert!(!storage.wait_observed_patiently(&op).unwrap());
    change(&storage, &op, &ids[0], |_| fill(QUEUED_BYTES_MAX / 2), || {}).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| storage.wait_observed_patiently(&op));
        while storage.pipeline.waiters.load(Ordering::SeqCst) == 0 && !waiter.is_finished() {
            std::thread::yield_now();
        }
        storage.commit_to(storage.log().last_seq()).unwrap();
        assert!(waiter.join().unwrap().unwrap(), "it has waited");
    });
    // What has taken effect is not ahead any more.
    change(&storage, &op, &ids[0], |_| fill(QUEUED_BYTES_MAX / 2), || {}).unwrap();
    assert!(!storage.wait_observed_patiently(&op).unwrap());
    storage.commit_to(storage.log().last_seq()).unwrap();
}

/// What was proposed may be lost with the leadership: whoever waits for it is told, also when this server leads again.
#[test]
fn what_was_ahead_of_a_leadership_that_ends_is_not_acknowledged() {
    let (machine, storage, ids) = undecided(2);
    let op = machine.operation();
    change(&storage, &op, &ids[0], one_more, || {}).unwrap();
    storage.pipeline.cease_to_lead();
    storage.pipeline.begin_to_lead();
    change(&storage, &machine.operation(), &ids[1], one_more, || {}).unwrap();
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert!(matches!(storage.wait_ahead(&op), Err(StorageError::Interrupted(_))));
    // Whoever began then has lost nothing.
    let op = machine.operation();
    change(&storage, &op, &ids[1], one_more, || {}).unwrap();
    storage.commit_to(storage.log().last_seq()).unwrap();
    storage.wait_ahead(&op).unwrap();
}

/// Of an operation whose first unit was lost with a leadership the second one would be there alone.
#[test]
fn what_comes_behind_a_unit_of_another_leadership_is_refused() {
    let (machine, storage, ids) = undecided(2);
    let op = machine.operation();
    change(&storage, &op, &ids[0], one_more, || {}).unwrap();
    storage.pipeline.cease_to_lead();
    storage.pipeline.begin_to_lead();
    let refused = change(&storage, &op, &ids[1], one_more, || {});
    assert!(matches!(refused, Err(StorageError::Interrupted(_))));
    // Whoever begins then is not concerned.
    change(&storage, &machine.operation(), &ids[1], one_more, || {}).unwrap();
}

/// The record of a session's first statement would be lost if the second one followed from what was before both.
#[test]
fn statements_of_a_session_follow_from_each_other() {
    let (machine, storage, ids) = undecided(1);
    storage.commit_to(Seq(storage.last_seq().0 + 1)).unwrap();
    storage.keep_sessions().unwrap();
    let key = SessionKey {
        id: [1; 16],
        user: [0; 32],
    };
    let op = machine.operation();
    let change = |number: i64, statement: i32| {
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        unit.in_session(key, number);
        let old = unit.lock_record(&guard, &ids[0]).unwrap().unwrap();
        let old = RawDocument::from_bytes(old.as_ref()).unwrap();
        // Images are only in rows, which do not stay yet.
        let kept = if statement % 3 == 0 { Kept::After } else { Kept::Nothing };
        unit.statement(statement, kept);
        unit.update(&guard, &ids[0], old, &one_more(old)).unwrap();
        unit.commit_ahead().unwrap();
    };
    let known = |storage: &Storage, number: i64| -> Vec<i32> {
        let record = storage.session(&key).filter(|record| record.txn_number == number);
        let is_known = |statement: &i32| {
            let record = record.as_ref();
            record.is_some_and(|record| storage.statement(record, &key, *statement).unwrap().is_some())
        };
        (0..10).filter(is_known).collect()
    };
    [0, 1, 3, 9].into_iter().for_each(|statement| change(1, statement));
    assert_eq!(
        known(&storage, 1),
        [],
        "whoever sends it again asks for what has taken effect"
    );
    storage.commit_to(storage.log().last_seq()).unwrap();
    storage.wait_ahead(&op).unwrap();
    assert_eq!(known(&storage, 1), [0, 1, 3, 9]);
    // Of two numbers in a row nothing is left of the first one.
    [2, 4].into_iter().for_each(|statement| change(1, statement));
    change(2, 5);
    change(2, 7);
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!((known(&storage, 1), known(&storage, 2)), (vec![], vec![5, 7]));
    assert_eq!(counts(&storage), [8]);
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(storage);
    let again = machine.open().unwrap();
    assert_eq!((known(&again, 1), known(&again, 2)), (vec![], vec![5, 7]));
}
