use crate::testing::*;
use crate::{
    HistoryChange, HistoryExtent, LockMode, Namespace, Operation, RecordId, RunPermit, SessionKey, Storage,
    StorageError, Transaction,
};
use bson::{RawDocumentBuf, rawdoc};
use engine::Seq;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use vfs::{Fault, FaultKind};

fn put(
    transaction: &mut Transaction,
    op: &Operation,
    ns: &Namespace,
    document: RawDocumentBuf,
) -> Result<RecordId, StorageError> {
    let guard = transaction.collection(op, ns, LockMode::IntentExclusive)?;
    let guard = guard.expect("the collection is there for the transaction");
    let mut unit = transaction.resume(op);
    let id = unit.insert(&guard, &document)?;
    unit.commit()?;
    Ok(id)
}

/// Makes the collection `c` with a unique index on `n` and so many documents.
fn fill(transaction: &mut Transaction, op: &Operation, documents: i32) {
    transaction.create_collection(op, &ns("c"), &rawdoc! {}).unwrap();
    let unique = index("n_1", rawdoc! { "n": 1 }, rawdoc! { "unique": true });
    let report = transaction
        .create_indexes(op, &ns("c"), std::slice::from_ref(&unique))
        .unwrap();
    assert_eq!((report.before, report.after, report.all_existed), (1, 2, false));
    assert!(transaction.create_indexes(op, &ns("c"), &[unique]).unwrap().all_existed);
    for n in 0..documents {
        put(transaction, op, &ns("c"), rawdoc! { "_id": n, "n": n, "a": [n, n + 1] }).unwrap();
    }
}

fn restarted(machine: &Machine, storage: Arc<Storage>) -> Arc<Storage> {
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    machine.open().unwrap()
}

#[test]
fn what_a_transaction_makes_is_its_own_until_it_is_committed() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let mut transaction = storage.begin_transaction().unwrap();
    fill(&mut transaction, &op, 3);
    let twice = put(&mut transaction, &op, &ns("c"), rawdoc! { "_id": 9, "n": 2 });
    assert!(matches!(twice, Err(StorageError::DuplicateKey(_))), "{twice:?}");
    let again = transaction.create_collection(&op, &ns("c"), &rawdoc! {});
    assert!(matches!(again, Err(StorageError::NamespaceExists(_))), "{again:?}");
    assert!(storage.catalog().collection(&ns("c")).is_none());
    assert!(!storage.catalog().database_exists("test"));
    let other = storage
        .begin_transaction()
        .unwrap()
        .create_collection(&op, &ns("c"), &rawdoc! {});
    assert!(matches!(other, Err(StorageError::WriteConflict)), "{other:?}");
    transaction.commit(&op).unwrap();
    assert_eq!(storage.all("c").len(), 3);
    storage.assert_valid(&op, "c");
    assert_eq!(storage.catalog().collection(&ns("c")).unwrap().indexes().len(), 2);
    assert_eq!(storage.stats().locks_held, 0);
    // It is a collection as others are.
    storage.put(&op, "c", rawdoc! { "_id": 3, "n": 3 }).unwrap();
    storage.log().flush().unwrap();
    let before = storage.all("c");
    let storage = restarted(&machine, storage);
    assert_eq!(storage.all("c"), before);
    storage.assert_valid(&op, "c");
    storage.drop_collection(&op, &ns("c")).unwrap().unwrap();
    storage.make(&op, "c", rawdoc! {});
}

#[test]
fn an_aborted_transaction_leaves_no_collection_and_no_table_is_used_twice() {
    let machine = Machine::new(2);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let (mut kept, mut dropped) = (
        storage.begin_transaction().unwrap(),
        storage.begin_transaction().unwrap(),
    );
    kept.create_collection(&op, &ns("kept"), &rawdoc! {}).unwrap();
    fill(&mut dropped, &op, 2);
    let refused = kept.create_collection(&op, &Namespace::new("TEST", "x").unwrap(), &rawdoc! {});
    assert!(
        matches!(refused, Err(StorageError::DatabaseDiffersInCase { .. })),
        "{refused:?}"
    );
    drop(dropped);
    storage.make(&machine.operation(), "c", rawdoc! {});
    put(&mut kept, &op, &ns("kept"), rawdoc! { "_id": 1 }).unwrap();
    kept.commit(&op).unwrap();
    storage.checkpoint().unwrap();
    let storage = restarted(&machine, storage);
    storage.make(&op, "later", rawdoc! {});
    storage.put(&op, "later", rawdoc! { "_id": 2 }).unwrap();
    storage.put(&op, "c", rawdoc! { "_id": 3 }).unwrap();
    for (name, n) in [("kept", 1), ("later", 2), ("c", 3)] {
        let all = storage.all(name);
        assert_eq!((all.len(), all[0].1.get_i32("_id").ok()), (1, Some(n)), "{name}");
        storage.assert_valid(&op, name);
    }
}

#[test]
fn others_wait_for_a_name_that_a_transaction_is_about_to_give() {
    for commits in [false, true] {
        let machine = Machine::new(3);
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "source", rawdoc! {});
        let mut transaction = storage.begin_transaction().unwrap();
        fill(&mut transaction, &op, 1);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (storage, ended, machine) = (&storage, &ended, &machine);
            let create = scope.spawn(move || {
                let created = storage.create_collection(&machine.operation(), &ns("c"), &rawdoc! {});
                (created, ended.load(Ordering::SeqCst))
            });
            let rename = scope.spawn(move || {
                let renamed = storage.rename_collection(&machine.operation(), &ns("source"), &ns("c"), false);
                (renamed, ended.load(Ordering::SeqCst))
            });
            std::thread::yield_now();
            ended.store(true, Ordering::SeqCst);
            match commits {
                true => drop(transaction.commit(&op).unwrap()),
                false => drop(transaction),
            }
            let (created, renamed) = (create.join().unwrap(), rename.join().unwrap());
            assert!(created.1 && renamed.1, "nobody came before the transaction's end");
            let exists = [created.0, renamed.0]
                .iter()
                .filter(|result| matches!(result, Err(StorageError::NamespaceExists(_))))
                .count();
            assert_eq!(exists, if commits { 2 } else { 1 });
        });
        storage.assert_valid(&op, "c");
    }
}

/// A permission to write, how often it is lent, and who is told when it is.
struct Permit(AtomicUsize, Sender<()>);

impl RunPermit for Permit {
    fn lend(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.send(()).is_ok()
    }

    fn take_back(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Writers of a collection that an idle transaction had made kept all permissions to write.
#[test]
fn who_waits_for_a_name_lends_its_permission() {
    let machine = Machine::new(3);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let mut transaction = storage.begin_transaction().unwrap();
    fill(&mut transaction, &op, 1);
    let (tell, told) = mpsc::channel();
    let (permit, creates) = (Arc::new(Permit(AtomicUsize::new(0), tell)), machine.operation());
    creates.set_permit(Some(permit.clone()));
    std::thread::scope(|scope| {
        let create = scope.spawn(|| storage.create_collection(&creates, &ns("c"), &rawdoc! {}));
        let lent = told.recv_timeout(Duration::from_secs(30));
        let waits = creates.waiting_for_lock();
        drop(transaction);
        create.join().unwrap().unwrap();
        assert!(lent.is_ok(), "it kept it");
        assert_eq!(waits, Some(LockMode::IntentExclusive));
    });
    assert_eq!((permit.0.load(Ordering::SeqCst), creates.waiting_for_lock()), (0, None));
}

#[test]
fn only_its_own_empty_collections_get_indexes() {
    let machine = Machine::new(4);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "there", rawdoc! {});
    let a = || [index("a_1", rawdoc! { "a": 1 }, rawdoc! {})];
    storage
        .create_indexes(&op, &ns("there"), &[index("b_1", rawdoc! { "b": 1 }, rawdoc! {})])
        .unwrap();
    let mut transaction = storage.begin_transaction().unwrap();
    let refused = transaction.create_indexes(&op, &ns("there"), &a());
    assert!(matches!(refused, Err(StorageError::NotInTransaction(_))), "{refused:?}");
    let b = index("b_1", rawdoc! { "b": 1 }, rawdoc! {});
    assert!(transaction.create_indexes(&op, &ns("there"), &[b]).unwrap().all_existed);
    let report = transaction.create_indexes(&op, &ns("new"), &a()).unwrap();
    assert!(report.created_collection && report.after == 2);
    put(&mut transaction, &op, &ns("new"), rawdoc! { "_id": 1, "a": 1 }).unwrap();
    let refused = transaction.create_indexes(&op, &ns("new"), &[index("c_1", rawdoc! { "c": 1 }, rawdoc! {})]);
    assert!(matches!(refused, Err(StorageError::NotInTransaction(_))), "{refused:?}");
    transaction.commit(&op).unwrap();
    storage.assert_valid(&op, "new");
}

#[test]
fn a_crash_leaves_all_of_it_or_nothing() {
    let long = "x".repeat(300_000);
    for (seed, documents, is_flushed) in [(5, 1, true), (6, 400, true), (7, 1, false), (8, 400, false)] {
        let machine = Machine::new(seed);
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.make(&op, "before", rawdoc! {});
        storage.log().flush().unwrap();
        let mut transaction = storage.begin_transaction().unwrap();
        transaction.create_collection(&op, &ns("c"), &rawdoc! {}).unwrap();
        // Beyond 40 MiB it is a chain of entries.
        for n in 0..documents {
            put(
                &mut transaction,
                &op,
                &ns("c"),
                rawdoc! { "_id": n, "long": long.as_str() },
            )
            .unwrap();
        }
        transaction.commit(&op).unwrap();
        if is_flushed {
            storage.log().flush().unwrap();
        }
        let storage = restarted(&machine, storage);
        match storage.catalog().collection(&ns("c")) {
            Some(collection) => assert_eq!(collection.count(), documents as u64),
            None => assert!(!is_flushed, "what is on disk stays"),
        }
    }
}

#[test]
fn history_tells_the_collection_before_what_is_in_it() {
    let machine = Machine::new(9);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.keep_history();
    storage.keep_sessions().unwrap();
    let mut transaction = storage.begin_transaction().unwrap();
    transaction.in_session(
        SessionKey {
            id: [1; 16],
            user: [2; 32],
        },
        7,
    );
    fill(&mut transaction, &op, 2);
    transaction.commit(&op).unwrap();
    let mut reader = storage.history(Seq(1), HistoryExtent::Applied);
    let mut units = Vec::new();
    while let Some(unit) = reader.next_unit().unwrap() {
        units.push(unit);
    }
    let unit = units.iter().find(|unit| unit.session.is_some()).unwrap();
    let told: Vec<_> = unit
        .operations
        .iter()
        .map(|operation| match &operation.change {
            HistoryChange::Command { .. } => "command",
            HistoryChange::Insert { .. } => "insert",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, ["command", "command", "insert", "insert"]);
    assert_eq!(unit.operations[3].ns.as_ref().unwrap(), &ns("c"));
    assert_eq!(unit.documents().len(), 1, "a transaction is told as a whole");
}

/// Where no majority answered, a commit that made a collection heeded neither `maxTimeMS` nor `killOp`, and nobody else
/// could define anything.
#[test]
fn who_gives_up_a_commit_leaves_its_collections_on_their_way() {
    let machine = Machine::new(9);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    let mut transaction = storage.begin_transaction().unwrap();
    fill(&mut transaction, &op, 2);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| transaction.commit(&op));
        while storage.pipeline.queue.lock().is_empty() {
            std::thread::yield_now();
        }
        op.kill();
        let given_up = committer.join().unwrap();
        assert!(matches!(given_up, Err(StorageError::Interrupted(_))), "{given_up:?}");
    });
    assert!(storage.catalog().collection(&ns("c")).is_none());
    assert_eq!(storage.stats().locks_held, 0);
    let hurried = machine.operation();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| storage.create_collection(&hurried, &ns("c"), &rawdoc! {}));
        hurried.kill();
        let given_up = waiter.join().unwrap();
        assert!(matches!(given_up, Err(StorageError::Interrupted(_))), "{given_up:?}");
        let after = scope.spawn(|| storage.create_collection(&machine.operation(), &ns("c"), &rawdoc! {}));
        storage.commit_to(storage.log().last_seq()).unwrap();
        let after = after.join().unwrap();
        assert!(matches!(after, Err(StorageError::NamespaceExists(_))), "{after:?}");
    });
    assert_eq!(storage.all("c").len(), 2);
    storage.assert_valid(&machine.operation(), "c");
}

/// What a statement had prepared was given up when others defined something, and a commit that then found no descriptor
/// stopped the storage.
#[test]
fn what_may_fail_about_the_files_of_new_tables_fails_the_commit() {
    let mut machine = Machine::new(1);
    (machine.kind, machine.directory_per_db) = (Kind::Btree, true);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let of = |db: &str| Namespace::new(db, "c").unwrap();
    for has_descriptors in [false, true] {
        let mut transaction = storage.begin_transaction().unwrap();
        transaction.create_collection(&op, &of("one"), &rawdoc! {}).unwrap();
        put(&mut transaction, &op, &of("one"), rawdoc! { "_id": 1 }).unwrap();
        transaction.create_collection(&op, &of("more"), &rawdoc! {}).unwrap();
        let others = if has_descriptors { "three" } else { "two" };
        storage
            .create_collection(&machine.operation(), &of(others), &rawdoc! {})
            .unwrap();
        // With it the files that are not used go.
        storage.checkpoint().unwrap();
        if !has_descriptors {
            let none_left = Fault::new(FaultKind::NoDescriptors).times(u64::MAX);
            machine.fs.inject(none_left);
        }
        let committed = transaction.commit(&op);
        machine.fs.clear_faults();
        assert_eq!(committed.is_ok(), has_descriptors, "{committed:?}");
        assert!(
            matches!(committed, Ok(_) | Err(StorageError::OutOfDescriptors(_))),
            "{committed:?}"
        );
        assert_eq!(storage.catalog().collection(&of("one")).is_some(), has_descriptors);
    }
    storage.wait_durable(storage.last_seq()).unwrap();
    let storage = restarted(&machine, storage);
    assert!(storage.validate(&op, &of("one"), true).unwrap().is_valid());
}

/// What had changed the first of two definitions, as `collMod` of a time-series collection does, was given up in front
/// of the second one.
#[test]
fn what_has_changed_something_waits_on_without_its_client() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "a", rawdoc! {});
    let mut transaction = storage.begin_transaction().unwrap();
    let guard = transaction.collection(&op, &ns("a"), LockMode::IntentShared).unwrap();
    let waits_for = guard.unwrap().shared.lock.clone();
    let abandoned = machine.operation();
    abandoned.abandon();
    storage.create_collection(&abandoned, &ns("b"), &rawdoc! {}).unwrap();
    std::thread::scope(|scope| {
        let drops = scope.spawn(|| storage.drop_collection(&abandoned, &ns("a")));
        while !waits_for.is_waited_for() {
            assert!(!drops.is_finished());
            std::thread::yield_now();
        }
        drop(transaction);
        assert!(drops.join().unwrap().unwrap().is_some());
    });
}

/// A transaction that nobody goes on with, and a definition that waits for it: readers of all collections concerned
/// waited, too.
#[test]
fn readers_pass_a_definition_that_waits_for_an_idle_transaction() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    ["a", "b"].iter().for_each(|name| storage.make(&op, name, rawdoc! {}));
    let mut transaction = storage.begin_transaction().unwrap();
    let guard = transaction.collection(&op, &ns("b"), LockMode::IntentShared).unwrap();
    let waits_for = guard.unwrap().shared.lock.clone();
    let abandoned = machine.operation();
    abandoned.abandon();
    let gone = storage.drop_database(&abandoned, "test");
    assert!(matches!(
        gone,
        Err(StorageError::Interrupted(crate::Interrupted::Killed))
    ));
    std::thread::scope(|scope| {
        let drops = scope.spawn(|| storage.drop_database(&machine.operation(), "test"));
        while !waits_for.is_waited_for() {
            assert!(!drops.is_finished());
            std::thread::yield_now();
        }
        for name in ["a", "b"] {
            // It may not wait at all.
            let reader = machine.operation();
            reader.kill();
            let read = storage.collection(&reader, &ns(name), LockMode::IntentShared);
            assert!(read.unwrap().is_some(), "{name}");
            let written = storage.collection(&reader, &ns(name), LockMode::IntentExclusive);
            assert!(written.is_err(), "{name}");
        }
        drop(transaction);
        assert!(drops.join().unwrap().unwrap());
    });
    assert!(storage.catalog().databases().is_empty());
}
