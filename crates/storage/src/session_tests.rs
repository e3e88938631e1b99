use super::*;
use crate::testing::*;
use crate::{Operation, RecordId, Seq, limits};
use bson::rawdoc;
use std::collections::BTreeMap;
use vfs::SeededRandom;

fn key(number: u8) -> SessionKey {
    SessionKey {
        id: [number; 16],
        user: [0xE3; 32],
    }
}

/// A storage with a collection, whose sessions are kept.
fn storage(machine: &Machine) -> Arc<Storage> {
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.keep_sessions().unwrap();
    if storage.catalog().collection(&ns("c")).is_none() {
        storage.make(&op, "c", rawdoc! {});
    }
    storage
}

/// Inserts documents as statements of one unit.
fn insert(storage: &Arc<Storage>, op: &Operation, session: (u8, i64), statements: &[(i32, Kept)]) -> Vec<RecordId> {
    let guard = storage.locked(op, "c");
    let mut unit = storage.begin_write(op);
    unit.in_session(key(session.0), session.1);
    let insert = |(statement, kept): &(i32, Kept)| {
        unit.statement(*statement, *kept);
        let id = format!("{} {} {statement}", session.0, session.1);
        unit.insert(&guard, &rawdoc! { "_id": id, "n": *statement }).unwrap()
    };
    let ids = statements.iter().map(insert).collect();
    unit.commit().unwrap();
    ids
}

fn known(storage: &Storage, session: (u8, i64), statement: i32) -> Option<StatementResult> {
    let record = storage
        .session(&key(session.0))
        .filter(|record| record.txn_number == session.1)?;
    storage.statement(&record, &key(session.0), statement).unwrap()
}

fn inserted() -> Option<StatementResult> {
    Some(StatementResult {
        kind: StatementKind::Inserted,
        key: None,
        image: None,
    })
}

#[test]
fn statements_are_known_until_the_sessions_next_number() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    insert(&storage, &op, (1, 5), &[0, 1, 2, 5].map(|n| (n, Kept::Nothing)));
    insert(&storage, &op, (1, 5), &[(7, Kept::Key)]);
    insert(&storage, &op, (2, 5), &[(0, Kept::Nothing)]);
    let all = |storage: &Storage| -> Vec<bool> { (0..9).map(|n| known(storage, (1, 5), n).is_some()).collect() };
    let expected = [true, true, true, false, false, true, false, true, false];
    assert_eq!(all(&storage), expected);
    let upserted = known(&storage, (1, 5), 7).unwrap();
    assert_eq!(upserted.key, Some(rawdoc! { "_id": "1 5 7" }));
    assert_eq!(known(&storage, (1, 4), 0), None);
    insert(&storage, &op, (1, 6), &[(1, Kept::Nothing)]);
    assert_eq!(all(&storage), [false; 9]);
    let of_new: Vec<_> = (0..9).filter(|n| known(&storage, (1, 6), *n).is_some()).collect();
    assert_eq!(of_new, [1], "rows of the number before are gone");
    assert_eq!(known(&storage, (2, 5), 0), inserted());
}

#[test]
fn results_have_what_was_asked_for() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    let id = &insert(&storage, &op, (9, 1), &[(0, Kept::Nothing)])[0];
    let guard = storage.locked(&op, "c");
    let old = rawdoc! { "_id": "9 1 0", "n": 0 };
    let new = rawdoc! { "_id": "9 1 0", "n": 1 };
    for (number, kept, old, new) in [
        (2, Kept::Before, &old, Some(&new)),
        (3, Kept::After, &new, Some(&old)),
        (4, Kept::Before, &old, None),
    ] {
        let mut unit = storage.begin_write(&op);
        unit.in_session(key(9), number);
        unit.statement(0, kept);
        assert!(unit.lock_record(&guard, id).unwrap().is_some());
        match new {
            Some(new) => unit.update(&guard, id, old, new).unwrap(),
            None => unit.delete(&guard, id, old).unwrap(),
        }
        unit.commit().unwrap();
    }
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(guard);
    drop(storage);
    // Only the last number's are known; the one before is asked for on the way.
    let storage = self::storage(&machine);
    let result = known(&storage, (9, 4), 0).unwrap();
    assert_eq!(result.id(), Some(bson::RawBsonRef::String("9 1 0")));
    assert_eq!(result.key, None, "the image has it");
    assert_eq!((result.kind, result.image), (StatementKind::Deleted, Some(old.clone())));
    let record = storage.session(&key(9)).unwrap();
    assert!(!record.is_transaction && record.wall_ms > 0 && record.time > ClusterTime::default());
}

/// A statement kept the document and its `_id` beside it: of a largest document with a long `_id` that was more than a
/// row may have, which the engine refused when the log had the entry, on every server and at each start.
#[test]
fn a_largest_document_is_kept_whatever_its_id() {
    let machine = Machine::new(2);
    let (storage, op) = (storage(&machine), machine.operation());
    let id = "i".repeat(8_000_000);
    let largest = |n: i32| {
        let padding = limits::DOCUMENT_BYTES_MAX - rawdoc! { "_id": &*id, "n": n, "p": "" }.as_bytes().len();
        rawdoc! { "_id": &*id, "n": n, "p": "x".repeat(padding) }
    };
    let guard = storage.locked(&op, "c");
    let mut record = None;
    let steps = [
        (1, Kept::Key, None, Some(0)),
        (2, Kept::Before, Some(0), None),
        (3, Kept::After, None, Some(0)),
        (4, Kept::After, Some(0), Some(1)),
        (5, Kept::Before, Some(1), Some(2)),
        (6, Kept::Before, Some(2), None),
    ];
    for (number, kept, old, new) in steps {
        let mut unit = storage.begin_write(&op);
        unit.in_session(key(1), number);
        unit.statement(0, kept);
        match (old.map(largest), new.map(largest)) {
            (None, Some(new)) => record = Some(unit.insert(&guard, &new).unwrap()),
            (Some(old), new) => {
                let record = record.as_ref().unwrap();
                unit.lock_record(&guard, record).unwrap();
                match new {
                    Some(new) => unit.update(&guard, record, &old, &new).unwrap(),
                    None => unit.delete(&guard, record, &old).unwrap(),
                }
            }
            (None, None) => unreachable!("each does something"),
        }
        unit.commit().unwrap();
        let result = known(&storage, (1, number), 0).unwrap();
        assert_eq!(result.id(), Some(bson::RawBsonRef::String(&id)), "{number}");
        let image = match kept {
            Kept::Before => old,
            Kept::After => new,
            Kept::Key | Kept::Nothing => None,
        };
        assert!(result.image == image.map(largest), "{number}");
    }
    storage.wait_durable(storage.last_seq()).unwrap();
    drop((guard, storage));
    let storage = self::storage(&machine);
    assert!(known(&storage, (1, 6), 0).unwrap().image == Some(largest(2)));
}

#[test]
fn statements_may_have_the_last_number() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    insert(&storage, &op, (1, 1), &[i32::MAX, 0].map(|n| (n, Kept::Nothing)));
    for (statement, result) in [(0, inserted()), (i32::MAX, inserted()), (1, None)] {
        assert_eq!(known(&storage, (1, 1), statement), result);
    }
}

/// The layout as it is on disk, and what is read of one that is not as it should be.
#[test]
fn layout_snapshot() {
    let first = Statements {
        first: 2,
        last: 3,
        result: StatementResult {
            kind: StatementKind::Updated,
            key: Some(rawdoc! {}),
            image: None,
        },
    };
    let record = SessionRecord {
        txn_number: 5,
        is_transaction: false,
        seq: Seq(6),
        time: ClusterTime(7 << 32 | 1),
        wall_ms: 8,
        first: Some(first.remembered()),
        has_rows: true,
    };
    let row = record.row(Some(&first));
    let hex: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        "0500000000000000 00 0600000000000000 0100000007000000 0800000000000000 01",
        "02000000 03000000 02 0500000000 00000000",
    ];
    assert_eq!(hex, expected.concat().replace(' ', ""));
    assert_eq!(SessionRecord::read(&row), Some((record, Some(first))));
    for end in (0..row.len()).filter(|end| *end != RECORD_BYTES) {
        assert_eq!(SessionRecord::read(&row[..end]), None, "cut at {end}");
    }
    for (place, byte) in [(8, 2), (33, 2), (42, 4), (43, 0xFF), (46, 0xFF)] {
        let mut damaged = row.clone();
        damaged[place] = byte;
        assert_eq!(SessionRecord::read(&damaged), None, "{byte} at {place}");
    }
}

/// Bytes of what is remembered of a session.
fn remembered_bytes(storage: &Storage, session: u8) -> usize {
    let first = storage.session(&key(session)).unwrap().first;
    let result = first.and_then(|first| first.result);
    let documents = result.map_or([None, None], |result| [result.key, result.image]);
    documents
        .iter()
        .flatten()
        .map(|document| document.as_bytes().len())
        .sum()
}

/// Memory had the document that each session's last `findAndModify` had answered, also after a start.
#[test]
fn large_results_are_read_from_their_rows() {
    let machine = Machine::new(1);
    let (mut storage, op) = (storage(&machine), machine.operation());
    let large = |session: u8| rawdoc! { "_id": session as i32, "text": "x".repeat(100_000) };
    let long_id = rawdoc! { "_id": "y".repeat(5_000) };
    let find_and_modify = |storage: &Arc<Storage>, session: u8, number: i64, statement: i32| {
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        unit.in_session(key(session), number);
        unit.statement(statement, Kept::After);
        unit.insert(&guard, &large(session)).unwrap();
        unit.commit().unwrap();
    };
    let image = |storage: &Storage, session: (u8, i64), statement: i32| known(storage, session, statement)?.image;
    for session in 1..=3 {
        find_and_modify(&storage, session, 1, 0);
    }
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.in_session(key(4), 1);
    unit.statement(2, Kept::Key);
    unit.insert(&guard, &long_id).unwrap();
    unit.commit().unwrap();
    drop(guard);
    for restarts in 0..2 {
        for session in 1..=4 {
            assert_eq!(
                remembered_bytes(&storage, session),
                0,
                "{session} after {restarts} restarts"
            );
        }
        for session in 1..=3 {
            assert_eq!(image(&storage, (session, 1), 0), Some(large(session)));
            assert_eq!(known(&storage, (session, 1), 1), None);
        }
        assert_eq!(known(&storage, (4, 1), 2).unwrap().key, Some(long_id.clone()));
        storage.wait_durable(storage.last_seq()).unwrap();
        storage.checkpoint().unwrap();
        drop(storage);
        machine.fs.restart();
        storage = self::storage(&machine);
    }
    // A statement behind it, of the same number: the large one is known all the same.
    insert(&storage, &op, (1, 1), &[(1, Kept::Nothing), (4, Kept::Key)]);
    insert(&storage, &op, (2, 1), &[(7, Kept::After)]);
    let check = |storage: &Arc<Storage>| {
        assert_eq!(image(storage, (1, 1), 0), Some(large(1)));
        assert_eq!(known(storage, (1, 1), 1), inserted());
        assert_eq!(known(storage, (1, 1), 4).unwrap().key, Some(rawdoc! { "_id": "1 1 4" }));
        assert_eq!(image(storage, (2, 1), 0), Some(large(2)));
        assert_eq!(image(storage, (2, 1), 7), Some(rawdoc! { "_id": "2 1 7", "n": 7 }));
        assert_eq!((remembered_bytes(storage, 1), remembered_bytes(storage, 2)), (0, 0));
    };
    check(&storage);
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(storage);
    machine.fs.restart();
    let storage = self::storage(&machine);
    check(&storage);
    // And of the next number nothing of it is left.
    insert(&storage, &op, (2, 2), &[(1, Kept::Nothing)]);
    assert_eq!((known(&storage, (2, 2), 0), known(&storage, (2, 2), 7)), (None, None));
}

#[test]
fn a_statement_without_a_change_leaves_nothing() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    insert(&storage, &op, (1, 1), &[(0, Kept::Nothing)]);
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.in_session(key(1), 2);
    unit.statement(0, Kept::Nothing);
    let twice = unit.insert(&guard, &rawdoc! { "_id": "1 1 0" });
    assert!(matches!(twice, Err(StorageError::DuplicateKey(_))), "{twice:?}");
    assert!(unit.is_empty());
    unit.statement(1, Kept::Nothing);
    unit.insert(&guard, &rawdoc! { "_id": "other" }).unwrap();
    unit.commit().unwrap();
    assert_eq!(
        (known(&storage, (1, 2), 0), known(&storage, (1, 2), 1)),
        (None, inserted())
    );
}

/// All sessions of a busy day were forgotten at once, by one entry.
#[test]
fn of_many_old_sessions_the_oldest_are_forgotten_first() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    for session in 1..=5 {
        insert(&storage, &op, (session, 1), &[(0, Kept::Nothing)]);
        machine.clock.advance(std::time::Duration::from_secs(1));
    }
    // Of these it cannot be told which is older.
    for session in 6..=9 {
        insert(&storage, &op, (session, 1), &[(0, Kept::Nothing)]);
    }
    let now_ms = storage.env().clock.now_ms() + 1;
    for (forgotten, left) in [(2, 7), (2, 5), (1, 4), (4, 0), (0, 0)] {
        assert_eq!(storage.forget_sessions(now_ms).unwrap(), forgotten);
        let oldest = 10 - left;
        let sessions = (1..=9).filter(|session| storage.session(&key(*session)).is_some());
        assert_eq!(sessions.collect::<Vec<_>>(), (oldest..=9).collect::<Vec<_>>());
    }
}

/// As long as others wrote all the time no session was ever forgotten. And what was written in one that was about to be
/// forgotten was taken for more of the same.
#[test]
fn sessions_are_forgotten_while_entries_are_on_their_way() {
    let machine = Machine::new(1);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    storage.commit_to(Seq(storage.last_seq().0 + 4)).unwrap();
    storage.keep_sessions().unwrap();
    storage.make(&op, "c", rawdoc! {});
    insert(&storage, &op, (1, 1), &[0, 5].map(|n| (n, Kept::Nothing)));
    insert(&storage, &op, (2, 1), &[(0, Kept::Nothing)]);
    let propose = |session: (u8, i64), statement| {
        let op = machine.operation();
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        unit.in_session(key(session.0), session.1);
        unit.statement(statement, Kept::Nothing);
        let id = format!("{} {} {statement}", session.0, session.1);
        unit.insert(&guard, &rawdoc! { "_id": id }).unwrap();
        op.kill();
        assert!(matches!(unit.commit(), Err(StorageError::Interrupted(_))));
    };
    // This one is old as it is in effect, and is not any more.
    machine.clock.advance(std::time::Duration::from_secs(100));
    propose((2, 2), 0);
    let before_ms = storage.env().clock.now_ms() - 50_000;
    assert_eq!(storage.forget_sessions(before_ms).unwrap(), 1);
    assert_eq!(storage.forget_sessions(before_ms).unwrap(), 0, "it is on its way");
    assert_eq!(storage.session_count(), 2);
    propose((1, 1), 9);
    let check = |storage: &Arc<Storage>| {
        assert_eq!(storage.session_count(), 2);
        for (session, statement, result) in [
            ((1, 1), 0, None),
            ((1, 1), 5, None),
            ((1, 1), 9, inserted()),
            ((2, 2), 0, inserted()),
        ] {
            assert_eq!(known(storage, session, statement), result, "{session:?} {statement}");
        }
        [1, 2].map(|session| storage.session(&key(session)).unwrap())
    };
    storage.commit_to(storage.log().last_seq()).unwrap();
    let records = check(&storage);
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(storage);
    machine.fs.restart();
    assert_eq!(check(&machine.open().unwrap()), records, "replay derives the same");
}

#[test]
fn a_transaction_is_known_by_its_number() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    let mut transaction = storage.begin_transaction().unwrap();
    transaction.in_session(key(3), 8);
    let guard = storage.locked(&op, "c");
    let mut unit = transaction.resume(&op);
    unit.insert(&guard, &rawdoc! { "_id": 1 }).unwrap();
    unit.commit().unwrap();
    assert_eq!(storage.session(&key(3)), None);
    let seq = transaction.commit(&op).unwrap();
    storage.wait_durable(seq).unwrap();
    drop((guard, storage));
    machine.fs.restart();
    let record = self::storage(&machine).session(&key(3)).unwrap();
    assert_eq!((record.txn_number, record.is_transaction, record.seq), (8, true, seq));
}

#[test]
fn old_sessions_are_forgotten_and_stay_so() {
    let machine = Machine::new(1);
    let (storage, op) = (storage(&machine), machine.operation());
    insert(&storage, &op, (1, 1), &[0, 5].map(|n| (n, Kept::Nothing)));
    machine.clock.advance(std::time::Duration::from_secs(100));
    insert(&storage, &op, (2, 1), &[0, 5].map(|n| (n, Kept::Nothing)));
    let now_ms = storage.env().clock.now_ms();
    let barrier = storage.block_writes(&op).unwrap();
    assert_eq!(
        storage.forget_sessions(now_ms - 50_000).unwrap(),
        0,
        "writes are held back"
    );
    drop(barrier);
    assert_eq!(storage.forget_sessions(now_ms - 50_000).unwrap(), 1);
    assert_eq!(storage.forget_sessions(now_ms - 50_000).unwrap(), 0);
    let check = |storage: &Arc<Storage>| {
        assert_eq!(storage.session_count(), 1);
        assert_eq!(known(storage, (2, 1), 5), inserted());
        let rows = storage.engine().snapshot().unwrap();
        let range = key(1).statement_rows();
        let mut cursor = rows.cursor(SESSIONS, range, Direction::Forward).unwrap();
        assert!(
            !cursor.fill(&mut Rows::new(), FillLimits::default()).unwrap(),
            "rows of statements go as well"
        );
    };
    check(&storage);
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(storage);
    machine.fs.restart();
    check(&self::storage(&machine));
}

/// Whatever a crash leaves: a statement is known if and only if its document is there, as long as no later number is.
#[test]
fn after_crashes_statements_are_known_exactly_when_their_documents_are_there() {
    let seed = seed_of("SESSION_SEED");
    let random = SeededRandom::new(seed);
    let machine = Machine::new(seed);
    let mut storage = storage(&machine);
    storage.wait_durable(storage.last_seq()).unwrap();
    // Statements sent, by session and number.
    let mut sent: BTreeMap<(u8, i64), Vec<i32>> = BTreeMap::new();
    let mut newest = [1_i64; 4];
    for _ in 0..300 {
        let op = machine.operation();
        let session = pick(&random, 4) as u8;
        match pick(&random, 20) {
            0 => drop(storage.checkpoint().unwrap()),
            1 | 2 => {
                if pick(&random, 2) == 0 {
                    storage.wait_durable(storage.last_seq()).unwrap();
                }
                drop(storage);
                machine.fs.restart();
                storage = self::storage(&machine);
                check(&storage, &sent);
                // Clients know no more than the server.
                let there = documents(&storage);
                sent.retain(|(session, number), statements| {
                    statements.retain(|statement| there.contains(&format!("{session} {number} {statement}")));
                    !statements.is_empty()
                });
            }
            3..=6 => newest[usize::from(session)] += 1,
            _ => {
                let number = newest[usize::from(session)];
                let known = sent.entry((session, number)).or_default();
                let begin = known.iter().max().map_or(0, |last| last + 1) + pick(&random, 2) as i32;
                let kept = [Kept::Nothing, Kept::Key, Kept::After][pick(&random, 3) as usize];
                let statements: Vec<_> = (begin..=begin + pick(&random, 3) as i32).map(|n| (n, kept)).collect();
                insert(&storage, &op, (session, number), &statements);
                known.extend(statements.iter().map(|(statement, _)| *statement));
            }
        }
        check(&storage, &sent);
    }
}

fn documents(storage: &Arc<Storage>) -> Vec<String> {
    let all = storage.all("c").into_iter();
    all.map(|(_, document)| document.get_str("_id").unwrap().to_owned())
        .collect()
}

fn check(storage: &Arc<Storage>, sent: &BTreeMap<(u8, i64), Vec<i32>>) {
    let there = documents(storage);
    for (&(session, number), statements) in sent {
        let record = storage.session(&key(session));
        if record.as_ref().is_some_and(|record| record.txn_number != number) {
            continue;
        }
        for &statement in statements {
            let id = format!("{session} {number} {statement}");
            let result = known(storage, (session, number), statement);
            assert_eq!(result.is_some(), there.contains(&id), "{id}: {record:?}");
            if let Some(known) = result.as_ref().and_then(StatementResult::id) {
                assert_eq!(known, bson::RawBsonRef::String(&id));
            }
        }
        assert_eq!(known(storage, (session, number), 1 << 20), None);
        assert!(record.is_none_or(|record| record.seq > Seq::ZERO));
    }
}
