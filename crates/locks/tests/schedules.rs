//! Locks under the schedule checker: who waits is woken, also when others give up, and nobody has what another one
//! has.
//!
//! A wait ends by a wake-up only: the checker knows no time, so one that is lost is a deadlock, which it reports.
//! `TENON_SHUTTLE_SEED=n` repeats a run, `TENON_SHUTTLE_FACTOR=n` makes it n times as long.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{Seq, TableId};
use locks::{Changed, Claims, CollectionLock, Held, LockKey, LockMode, LockTable, Taken, Waiter};
use rcu::schedule_point;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

fn check(name: &str, schedules: usize, test: fn()) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("TENON_SHUTTLE_SEED").unwrap_or_else(|| std::hash::RandomState::new().hash_one(name));
    let schedules = schedules * number("TENON_SHUTTLE_FACTOR").unwrap_or(1) as usize;
    println!("{name}: TENON_SHUTTLE_SEED={seed}");
    let mut config = Config::new();
    config.stack_size = 256 << 10;
    Runner::new(RandomScheduler::new_from_seed(seed, schedules), config.clone()).run(test);
    for depth in [2, 4] {
        Runner::new(PctScheduler::new_from_seed(seed, depth, schedules / 2), config.clone()).run(test);
    }
}

/// An operation that may give up whenever it looks.
#[derive(Default)]
struct Client {
    gives_up: bool,
    is_long: bool,
    held: Arc<AtomicU32>,
}

impl Client {
    fn any() -> Self {
        Self {
            gives_up: thread_rng().gen_bool(0.3),
            is_long: thread_rng().gen_bool(0.3),
            held: Arc::default(),
        }
    }
}

impl Waiter for Client {
    type Interrupted = ();
    type Wait = ();

    fn check(&self) -> Result<(), ()> {
        if self.gives_up && thread_rng().gen_bool(0.5) {
            Err(())
        } else {
            Ok(())
        }
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn locks_held(&self) -> &Arc<AtomicU32> {
        &self.held
    }

    fn holds_for_long(&self) -> bool {
        self.is_long
    }

    fn number(&self) -> u32 {
        0
    }

    fn begins_to_wait(&self, _: LockMode) {}

    fn waits_on(&self) {}

    fn ends_to_wait(&self) {}

    fn waited_for_document(&self, _: Duration) {}
}

/// A collection, and how many hold it in each mode.
#[derive(Default)]
struct Collection {
    lock: Arc<CollectionLock>,
    holders: [AtomicU32; 4],
}

impl Collection {
    /// Takes the lock, sees who else has it, and calls `inside`.
    fn hold(&self, client: &Client, mode: LockMode, inside: impl FnOnce()) {
        let Ok((held, _)) = Held::take(&self.lock, client, mode) else {
            return;
        };
        let excluded = match mode {
            LockMode::IntentShared => &[3][..],
            LockMode::IntentExclusive => &[2, 3],
            LockMode::Shared => &[1, 3],
            LockMode::Exclusive => &[0, 1, 2, 3],
        };
        for &other in excluded {
            assert_eq!(self.holders[other].load(Ordering::SeqCst), 0, "{mode:?} beside {other}");
        }
        self.holders[mode as usize].fetch_add(1, Ordering::SeqCst);
        schedule_point();
        inside();
        self.holders[mode as usize].fetch_sub(1, Ordering::SeqCst);
        drop(held);
    }
}

/// Operations that hold up to two collections, as transactions do, beside others that want one for themselves.
#[test]
fn a_collection_is_given_to_everybody_who_waits() {
    check("a_collection_is_given_to_everybody_who_waits", 3000, || {
        let collections: Arc<[Collection; 2]> = Arc::default();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let collections = collections.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let client = Client::any();
                        let first = thread_rng().gen_range(0..2);
                        let [outer, inner] = [first, 1 - first].map(|which: usize| &collections[which]);
                        match thread_rng().gen_range(0..7) {
                            6 => {
                                let locks = collections.iter().map(|collection| collection.lock.clone());
                                let claims = Claims::new(locks.collect());
                                outer.hold(&client, LockMode::Exclusive, || ());
                                claims.look_again();
                                inner.hold(&client, LockMode::Exclusive, || ());
                            }
                            0 => outer.hold(&client, LockMode::Shared, || ()),
                            1 | 2 => outer.hold(&client, LockMode::Exclusive, || ()),
                            3 => outer.hold(&client, LockMode::IntentShared, || ()),
                            _ => outer.hold(&client, LockMode::IntentExclusive, || {
                                inner.hold(&client, LockMode::IntentExclusive, || ());
                            }),
                        }
                        assert_eq!(client.held.load(Ordering::SeqCst), 0);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for collection in collections.iter() {
            assert!(!collection.lock.is_waited_for());
            assert!(Held::try_take(&collection.lock, &Client::default(), LockMode::Exclusive).is_some());
        }
    });
}

/// Readers and writers come and go beside a long holder while two want the collection for themselves: whoever goes
/// last in its mode wakes them.
#[test]
fn who_goes_last_wakes_who_waits() {
    use LockMode::{Exclusive, IntentExclusive, IntentShared, Shared};
    check("who_goes_last_wakes_who_waits", 2000, || {
        let collection: Arc<Collection> = Arc::default();
        let threads: Vec<_> = [
            (true, [IntentShared, IntentExclusive]),
            (false, [Exclusive, Shared]),
            (false, [IntentShared, IntentShared]),
            (false, [IntentExclusive, IntentShared]),
        ]
        .into_iter()
        .map(|(is_long, modes)| {
            let collection = collection.clone();
            thread::spawn(move || {
                let client = Client {
                    is_long,
                    ..Client::default()
                };
                modes
                    .into_iter()
                    .for_each(|mode| collection.hold(&client, mode, schedule_point));
            })
        })
        .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!collection.lock.is_waited_for());
        assert!(Held::try_take(&collection.lock, &Client::default(), LockMode::Exclusive).is_some());
    });
}

fn key(number: u64) -> LockKey {
    LockKey {
        table: TableId(16),
        key: number,
    }
}

/// Takes a lock; false when the client gave up.
fn take(table: &LockTable, key: LockKey, owner: u64, client: &Client) -> bool {
    loop {
        match table.try_take(key, owner) {
            Taken::New => return true,
            Taken::Already => panic!("it has it"),
            Taken::Busy if table.wait_until_free(key, client).is_err() => return false,
            Taken::Busy => {}
        }
    }
}

#[test]
fn a_document_is_given_to_everybody_who_waits() {
    check("a_document_is_given_to_everybody_who_waits", 3000, || {
        let table = Arc::new(LockTable::new());
        let inside: Arc<[AtomicU32; 2]> = Arc::default();
        let threads: Vec<_> = (1..=4)
            .map(|owner| {
                let (table, inside) = (table.clone(), inside.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        let which = thread_rng().gen_range(0..2_usize);
                        if take(&table, key(which as u64), owner, &Client::any()) {
                            assert_eq!(inside[which].fetch_add(1, Ordering::SeqCst), 0);
                            schedule_point();
                            inside[which].fetch_sub(1, Ordering::SeqCst);
                            table.release(&[key(which as u64)], owner, None);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(table.len(), 0);
    });
}

/// What the write path does, with a number for each row: the entry that wrote it last.
#[derive(Default)]
struct Rows {
    table: LockTable,
    rows: [AtomicU64; 2],
    entries: rcu::Mutex<Entries>,
    published: AtomicU64,
}

#[derive(Default)]
struct Entries {
    last: u64,
    /// Behind the published position, and may be published.
    decided: BTreeSet<u64>,
}

impl Rows {
    fn published(&self) -> Seq {
        schedule_point();
        Seq(self.published.load(Ordering::SeqCst))
    }

    fn propose(&self, which: usize) -> Seq {
        let mut entries = self.entries.lock();
        entries.last += 1;
        self.rows[which].store(entries.last, Ordering::SeqCst);
        Seq(entries.last)
    }

    /// Entries are published in their order.
    fn decide(&self, seq: Seq) {
        let mut entries = self.entries.lock();
        entries.decided.insert(seq.0);
        schedule_point();
        let mut published = self.published.load(Ordering::SeqCst);
        while entries.decided.remove(&(published + 1)) {
            published += 1;
        }
        self.published.store(published, Ordering::SeqCst);
    }

    /// Locks are given back when the entry is published, or while it waits for that.
    fn write(&self, which: usize, owner: u64) {
        assert!(take(&self.table, key(which as u64), owner, &Client::default()));
        let seq = self.propose(which);
        let release = || {
            let changed = Changed {
                seq,
                published: self.published(),
            };
            self.table.release(&[key(which as u64)], owner, Some(changed));
        };
        if thread_rng().gen_bool(0.5) {
            self.decide(seq);
            release();
        } else {
            release();
            self.decide(seq);
        }
    }

    /// Reads, and then locks what it has read: it must learn whether that has changed.
    fn transact(&self, which: usize, owner: u64) {
        let opened = self.published();
        self.table.open(opened);
        let snapshot = self.published();
        schedule_point();
        assert!(take(&self.table, key(which as u64), owner, &Client::default()));
        let is_newer = self.rows[which].load(Ordering::SeqCst) > snapshot.0;
        assert_eq!(self.table.has_changed_since(key(which as u64), snapshot), is_newer);
        self.table.release(&[key(which as u64)], owner, None);
        self.table.close(opened, self.published());
    }
}

/// "The first who commits wins": a transaction learns of each change that its snapshot lacks, and of no other.
#[test]
fn a_transaction_learns_of_changes_behind_its_snapshot() {
    check("a_transaction_learns_of_changes_behind_its_snapshot", 3000, || {
        let rows = Arc::new(Rows::default());
        let threads: Vec<_> = (1..=4)
            .map(|owner| {
                let rows = rows.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let which = thread_rng().gen_range(0..2);
                        if owner % 2 == 0 {
                            rows.write(which, owner);
                        } else {
                            rows.transact(which, owner);
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // What was published after the last one looked goes with the next.
        let published = rows.published();
        rows.table.open(published);
        rows.table.close(published, published);
        assert_eq!((rows.table.len(), rows.table.remembered()), (0, 0), "nobody needs them");
    });
}
