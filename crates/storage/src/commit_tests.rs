use crate::catalog::rows::CATALOG;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::testing::*;
use crate::{HistoryExtent, LockMode, Namespace, RecordId, Storage, StorageError};
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use engine::{KEY_BYTES_MAX, Seq, VALUE_BYTES_MAX};
use oplog::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::SeededRandom;

const COUNTERS: u64 = 3;

/// Adds 1 to a counter.
fn count(storage: &Arc<Storage>, op: &crate::Operation, id: RecordId) -> Result<(), StorageError> {
    let guard = storage.locked(op, "c");
    loop {
        let mut unit = storage.begin_write(op);
        let old = unit.lock_record(&guard, &id)?.expect("counters are never deleted");
        let old = RawDocument::from_bytes(old.as_ref()).unwrap();
        let mut new = RawDocumentBuf::new();
        for (name, value) in old.iter().flatten() {
            match name.as_str() {
                "n" => new.append(name, value.as_i64().unwrap() + 1),
                _ => new.append(name, value),
            }
        }
        match unit.update(&guard, &id, old, &new) {
            Ok(()) => return unit.commit().map(drop),
            Err(StorageError::WouldWait) => {}
            Err(other) => return Err(other),
        }
    }
}

fn counter_of(storage: &Arc<Storage>, id: RecordId) -> i64 {
    let all = storage.all("c");
    let (_, document) = all.iter().find(|(found, _)| *found == id).unwrap();
    document.get_i64("n").unwrap()
}

/// A client that is there until it ends, by whatever.
struct Present<'a>(&'a AtomicU64);

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What happened in [`busy_hour`].
struct Outcome {
    machine: Machine,
    storage: Arc<Storage>,
    counters: Vec<RecordId>,
    /// Additions to each counter that were answered.
    answered: Vec<u64>,
    /// Documents of thread `t` that were answered: `(t, n)`.
    inserted: Vec<(u64, u64)>,
    /// Operations that saw something pending.
    observers: u64,
}

/// Four clients write while somebody else decides when entries stay, in steps of any length. At the end a tail may be
/// left that was never decided about.
fn busy_hour(seed: u64, rounds: u64, commits_all: bool) -> Outcome {
    let machine = Machine::new(seed);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let (present, observers) = (AtomicU64::new(5), AtomicU64::new(0));
    let (mut counters, mut answered, mut inserted) = (Vec::new(), vec![0; COUNTERS as usize], Vec::new());
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| {
            let random = SeededRandom::new(seed ^ 1);
            while present.load(Ordering::SeqCst) > 0 {
                let (published, last) = (storage.last_seq().0, storage.log().last_seq().0);
                storage
                    .commit_to(Seq(published + pick(&random, last - published + 1)))
                    .unwrap();
                if pick(&random, 3) == 0 {
                    for _ in 0..pick(&random, 100) {
                        std::thread::yield_now();
                    }
                }
            }
        });
        let maker = Present(&present);
        let op = machine.operation();
        storage.make(&op, "c", rawdoc! {});
        let unique = index("u_1", rawdoc! { "u": 1 }, rawdoc! { "unique": true });
        storage.create_indexes(&op, &ns("c"), &[unique]).unwrap();
        storage.make(&op, "capped", rawdoc! { "capped": true, "size": 100_000, "max": 7 });
        for n in 0..COUNTERS {
            let document = rawdoc! { "_id": format!("counter{n}"), "u": format!("counter{n}"), "n": 0_i64 };
            counters.push(storage.put(&op, "c", document).unwrap());
        }
        let clients: Vec<_> = (0..4)
            .map(|thread: u64| {
                let (storage, machine, counters) = (&storage, &machine, &counters);
                let (present, observers) = (&present, &observers);
                scope.spawn(move || {
                    let _present = Present(present);
                    let random = SeededRandom::new(seed ^ (thread + 2));
                    let (mut answered, mut inserted) = (vec![0; COUNTERS as usize], Vec::new());
                    for n in 0..rounds {
                        let op = machine.operation();
                        match pick(&random, 10) {
                            0..5 => {
                                let which = pick(&random, COUNTERS);
                                count(storage, &op, counters[which as usize].clone()).unwrap();
                                answered[which as usize] += 1;
                            }
                            5..8 => {
                                // Half of the keys are another client's, too.
                                let u = if n % 2 == 0 {
                                    n as i64
                                } else {
                                    (thread * 100_000 + n) as i64
                                };
                                let document = rawdoc! { "_id": (thread * 1_000_000 + n) as i64, "u": u };
                                match storage.put(&op, "c", document) {
                                    Ok(_) => inserted.push((thread, n)),
                                    Err(StorageError::DuplicateKey(_)) => {
                                        // The answer stands on an entry: it may be told when that has taken effect.
                                        storage.wait_observed(&op).unwrap();
                                        let taken =
                                            storage.all("c").iter().any(|(_, d)| d.get_i64("u").ok() == Some(u));
                                        assert!(taken, "the key {u} is somebody's");
                                    }
                                    Err(other) => panic!("{other}"),
                                }
                            }
                            8 => {
                                storage
                                    .put(&op, "capped", rawdoc! { "_id": (thread * 1_000_000 + n) as i64 })
                                    .unwrap();
                            }
                            _ => {
                                let view = storage.read().unwrap();
                                assert!(view.seq() <= storage.last_seq());
                                assert!(storage.all("capped").len() <= 7, "more than the cap");
                            }
                        }
                        observers.fetch_add(u64::from(op.observed().0 > Seq::ZERO), Ordering::SeqCst);
                    }
                    (answered, inserted)
                })
            })
            .collect();
        drop(maker);
        for client in clients {
            let (theirs, documents) = client.join().unwrap();
            answered.iter_mut().zip(theirs).for_each(|(sum, n)| *sum += n);
            inserted.extend(documents);
        }
        committer.join().unwrap();
    });
    if commits_all {
        storage.commit_to(storage.log().last_seq()).unwrap();
    }
    let observers = observers.into_inner();
    Outcome {
        machine,
        storage,
        counters,
        answered,
        inserted,
        observers,
    }
}

#[test]
fn writers_build_on_what_is_not_committed_yet_and_nothing_is_lost() {
    let seed = seed_of("TENON_COMMIT_SEED");
    let Outcome {
        machine,
        storage,
        counters,
        answered,
        inserted,
        observers,
    } = busy_hour(seed, 400, true);
    assert!(observers > 0, "nobody met a pending row: the test shows nothing");
    assert_eq!(storage.pending.len(), 0, "rows left that are applied");
    assert_eq!(storage.stats().locks_held, 0);
    let op = machine.operation();
    storage.assert_valid(&op, "c");
    storage.assert_valid(&op, "capped");
    assert_eq!(storage.all("capped").len(), 7);
    for (counter, answered) in counters.iter().zip(&answered) {
        assert_eq!(
            counter_of(&storage, counter.clone()),
            *answered as i64,
            "additions to {counter:?}"
        );
    }
    assert_eq!(storage.all("c").len() as u64, COUNTERS + inserted.len() as u64);

    // What was applied by those who wrote is what the log says when it is read from its beginning.
    let (before, capped) = (storage.all("c"), storage.all("capped"));
    storage.log().flush().unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!((storage.all("c"), storage.all("capped")), (before, capped));
    storage.assert_valid(&op, "c");
}

/// A server that loses the others' trust loses what was not decided, and only that.
#[test]
fn what_was_answered_outlives_a_tail_that_is_cut_off() {
    let seed = seed_of("TENON_COMMIT_SEED");
    let outcome = busy_hour(seed, 150, false);
    let (machine, storage) = (outcome.machine, outcome.storage);
    let committed = storage.last_seq();
    // Proposed, and never committed: nobody is answered, and no reader sees it.
    let op = machine.operation();
    let before = storage.all("c");
    std::thread::scope(|scope| {
        let tail: Vec<_> = (0..3)
            .map(|n: i64| {
                let (storage, op) = (&storage, machine.operation());
                let kill = op.kill_handle();
                let client = scope.spawn(move || storage.put(&op, "c", rawdoc! { "_id": -1 - n, "u": -1 - n }));
                (kill, client)
            })
            .collect();
        while storage.log().last_seq().0 < committed.0 + 3 {
            std::thread::yield_now();
        }
        assert_eq!(storage.all("c"), before, "a reader sees what is not committed");
        for (kill, client) in tail {
            kill.set(crate::Interrupted::Killed);
            assert!(matches!(client.join().unwrap(), Err(StorageError::Interrupted(_))));
        }
    });
    // A change of definitions waits for them, and is given up like any other.
    let late = machine.operation();
    late.kill();
    assert!(matches!(
        storage.drop_collection(&late, &ns("c")),
        Err(StorageError::Interrupted(_))
    ));
    storage.log().flush().unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    {
        let log = Log::open(&machine.env(), machine.log_options(), Seq::ZERO).unwrap();
        log.truncate(committed.next()).unwrap();
        log.flush().unwrap();
        log.close().unwrap();
    }
    let storage = machine.open().unwrap();
    assert_eq!(storage.all("c"), before);
    for (counter, answered) in outcome.counters.iter().zip(&outcome.answered) {
        assert_eq!(
            counter_of(&storage, counter.clone()),
            *answered as i64,
            "additions to {counter:?}"
        );
    }
    assert_eq!(before.len() as u64, COUNTERS + outcome.inserted.len() as u64);
    storage.assert_valid(&op, "c");
}

/// Counts are those of the entry's place in the log, whatever of what is before it has taken effect.
#[test]
fn counts_are_written_down_beside_writes_that_wait() {
    let machine = Machine::new(3);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| storage.make(&op, "c", rawdoc! {}));
        while !maker.is_finished() {
            storage.commit_to(storage.log().last_seq()).unwrap();
        }
        maker.join().unwrap();
        let place = storage.log().last_seq();
        let clients: Vec<_> = (0..4)
            .map(|n| {
                let (storage, machine) = (&storage, &machine);
                scope.spawn(move || storage.put(&machine.operation(), "c", rawdoc! { "_id": n }).unwrap())
            })
            .collect();
        while storage.log().last_seq().0 < place.0 + 4 {
            std::thread::yield_now();
        }
        storage.commit_to(Seq(place.0 + 2)).unwrap();
        storage.write_counts().unwrap();
        storage.commit_to(storage.log().last_seq()).unwrap();
        for client in clients {
            client.join().unwrap();
        }
    });
    storage.engine().checkpoint().unwrap();
    storage.log().flush().unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    let storage = machine.open().unwrap();
    assert_eq!(storage.catalog().collection(&ns("c")).unwrap().count(), 4);
    storage.assert_valid(&op, "c");
}

/// The counts were written down while a change was proposed and not applied, the first of its collection since: they
/// were said to be complete as of a place behind it, and lacked it.
#[test]
fn counts_written_down_behind_a_proposed_change_have_it() {
    let machine = Machine::new(12);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    storage.commit_to(Seq(storage.last_seq().0 + 3)).unwrap();
    storage.make(&op, "a", rawdoc! {});
    storage.make(&op, "b", rawdoc! {});
    storage.put(&op, "b", rawdoc! { "_id": 1 }).unwrap();
    // Its client does not wait until the entry stays.
    let killed = machine.operation();
    let guard = storage.locked(&killed, "a");
    let mut unit = storage.begin_write(&killed);
    unit.insert(&guard, &rawdoc! { "_id": 1 }).unwrap();
    killed.kill();
    assert!(matches!(unit.commit(), Err(StorageError::Interrupted(_))));
    storage.checkpoint().unwrap();
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!(storage.all("a").len(), 1);
    storage.checkpoint().unwrap();
    drop(guard);
    drop(storage);
    machine.fs.restart();
    let storage = machine.open().unwrap();
    storage.assert_valid(&op, "a");
    storage.assert_valid(&op, "b");
}

/// Two made from the same one could differ by two votes, and have majorities that share nobody.
#[test]
fn a_change_of_the_members_is_made_when_the_one_before_is_in_force() {
    let machine = Machine::new(13);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    storage.commit_to(Seq(storage.last_seq().0 + 1)).unwrap();
    let configurations = Namespace::parse(crate::membership::CONFIGURATION).unwrap();
    storage.create_collection(&op, &configurations, &rawdoc! {}).unwrap();
    let change = |op: &crate::Operation, id: i32| {
        let guard = storage.collection(op, &configurations, LockMode::IntentExclusive)?;
        let guard = guard.expect("it was made");
        let mut unit = storage.begin_write(op);
        unit.insert(&guard, &rawdoc! { "_id": id })?;
        op.kill();
        unit.commit()
    };
    storage.commit_to(storage.log().last_seq()).unwrap();
    storage.wait_members_in_force(&op).unwrap();
    // Its maker does not wait.
    let first = change(&machine.operation(), 1);
    assert!(matches!(first, Err(StorageError::Interrupted(_))), "{first:?}");
    let second = change(&machine.operation(), 2);
    assert!(matches!(second, Err(StorageError::MembersAreChanging)), "{second:?}");
    let impatient = machine.operation();
    impatient.kill();
    let waited = storage.wait_members_in_force(&impatient);
    assert!(matches!(waited, Err(StorageError::Interrupted(_))), "{waited:?}");
    storage.commit_to(storage.log().last_seq()).unwrap();
    storage.wait_members_in_force(&op).unwrap();
    let second = change(&machine.operation(), 2);
    assert!(matches!(second, Err(StorageError::Interrupted(_))), "{second:?}");
}

/// Who made a collection waited as long as the others did not have it, with everybody behind who wanted to define
/// something. Who gives up leaves the next one to wait for what is on its way.
#[test]
fn who_gives_up_a_collection_leaves_it_on_its_way() {
    let machine = Machine::new(14);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let create = |op: &crate::Operation, name: &str| storage.create_collection(op, &ns(name), &rawdoc! {});
    let interrupted = |result| matches!(result, Err(StorageError::Interrupted(_)));
    let (first, second, third) = (machine.operation(), machine.operation(), machine.operation());
    let before = storage.log().last_seq();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| create(&first, "c"));
        while storage.log().last_seq() == before {
            std::thread::yield_now();
        }
        let proposed = storage.log().last_seq();
        first.kill();
        assert!(interrupted(maker.join().unwrap()));
        let next = scope.spawn(|| create(&second, "c"));
        second.kill();
        assert!(interrupted(next.join().unwrap()));
        assert_eq!(storage.log().last_seq(), proposed, "nothing is defined beside it");
        let (storage, create) = (&storage, &create);
        let after = scope.spawn(move || {
            let again = create(&third, "c");
            storage.make(&third, "d", rawdoc! {});
            storage.put(&third, "c", rawdoc! { "_id": 1 }).unwrap();
            storage.put(&third, "d", rawdoc! { "_id": 2 }).unwrap();
            again
        });
        while !after.is_finished() {
            storage.commit_to(storage.log().last_seq()).unwrap();
        }
        assert!(matches!(after.join().unwrap(), Err(StorageError::NamespaceExists(_))));
    });
    assert_eq!((storage.all("c").len(), storage.all("d").len()), (1, 1));
    storage.assert_valid(&machine.operation(), "c");
    storage.assert_valid(&machine.operation(), "d");
}

/// What the engine refuses for its length it refused behind the log: that ended every server, at each start.
#[test]
fn nothing_is_proposed_that_the_engine_would_refuse() {
    let machine = Machine::new(22);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let last = storage.log().last_seq();
    for (key_bytes, value_bytes) in [(1, VALUE_BYTES_MAX + 1), (KEY_BYTES_MAX + 1, 1)] {
        let mut entry = EntryWriter::default();
        entry.note(&rawdoc! {});
        let refused = storage.propose(&mut entry, |_| {
            let mut effect = Effect::default();
            effect
                .overlay
                .batch
                .put(CATALOG, vec![b'x'; key_bytes], vec![0; value_bytes]);
            effect
        });
        assert!(
            matches!(refused, Err(StorageError::DocumentTooLarge { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(storage.log().last_seq(), last);
    storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
}

/// Who waited for an entry once went on when it was published, a moment before the catalog and the sessions had it: a
/// second collection of the name was made, a session's statements were forgotten.
#[test]
fn nobody_goes_on_before_an_effect_is_installed() {
    let machine = Machine::new(21);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| storage.create_collection(&machine.operation(), &ns("c"), &rawdoc! {}));
        let seq = loop {
            if let Some(proposed) = storage.pipeline.queue.lock().back() {
                break proposed.seq;
            }
            std::thread::yield_now();
        };
        let held = storage.pending.hold();
        let committer = scope.spawn({
            let storage = &storage;
            move || storage.commit_to(seq)
        });
        while storage.last_seq() < seq {
            std::thread::yield_now();
        }
        assert_eq!(storage.newest().seq, seq);
        assert!(storage.catalog().collection(&ns("c")).is_none());
        assert!(!storage.wait_applied(&op, seq, None, Duration::ZERO).unwrap());
        assert!(storage.applied().seq < seq);
        assert!(storage.history_end(HistoryExtent::Applied) < seq);
        let hurried = machine.operation();
        hurried.kill();
        let shown = storage.wait_shown(&hurried);
        assert!(matches!(shown, Err(StorageError::Interrupted(_))), "{shown:?}");
        drop(held);
        committer.join().unwrap().unwrap();
        maker.join().unwrap().unwrap();
        assert!(storage.wait_applied(&op, seq, None, Duration::ZERO).unwrap());
        storage.wait_shown(&op).unwrap();
        assert!(storage.catalog().collection(&ns("c")).is_some());
        assert_eq!((storage.applied(), storage.newest().seq), (storage.newest(), seq));
    });
}

/// Whoever changed users gave up waiting, and what the users might do was read once more before that had taken effect:
/// it was kept for what they might do from then on.
#[test]
fn a_change_of_users_is_counted_when_it_has_taken_effect() {
    let machine = Machine::new(22);
    let storage = machine.open_with(|options| options.decides_alone = false).unwrap();
    let op = machine.operation();
    let users = Namespace::new("admin", "system.users").unwrap();
    storage.commit_to(Seq(storage.last_seq().0 + 2)).unwrap();
    storage.make(&op, "c", rawdoc! {});
    let unrelated = storage.access_changes();
    storage.create_collection(&op, &users, &rawdoc! {}).unwrap();
    let made = storage.access_changes();
    assert!(made > unrelated);
    let change = |name: &Namespace| {
        let killed = machine.operation();
        let guard = storage.collection(&killed, name, LockMode::IntentExclusive).unwrap();
        let guard = guard.expect("it was made");
        let mut unit = storage.begin_write(&killed);
        unit.insert(&guard, &rawdoc! { "_id": 1 }).unwrap();
        killed.kill();
        assert!(matches!(unit.commit(), Err(StorageError::Interrupted(_))));
    };
    change(&ns("c"));
    change(&users);
    assert_eq!(storage.access_changes(), made);
    storage.commit_to(Seq(storage.log().last_seq().0 - 1)).unwrap();
    assert_eq!(storage.access_changes(), made, "other collections do not count");
    storage.commit_to(storage.log().last_seq()).unwrap();
    assert_eq!(storage.access_changes(), made + 1);
    // To take the collection away by another name is a change, too.
    let seq = storage.log().last_seq();
    storage.commit_to(Seq(seq.0 + 1)).unwrap();
    storage.rename_collection(&op, &users, &ns("away"), false).unwrap();
    assert_eq!(storage.access_changes(), made + 2);
}
