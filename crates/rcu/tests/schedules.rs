//! The cells under a schedule checker: thousands of orders in which threads load, replace, push, come and go.
//!
//! What is proved of a value: nobody who loaded it under a guard finds it freed while the guard lives; it is freed
//! once; and in the end nothing is left. `TENON_SHUTTLE_SEED=n` repeats a run, `TENON_SHUTTLE_FACTOR=n` makes it n
//! times as long.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use rcu::{Guard, Mutex, Rcu, RcuOption, RwLock, pin, schedule_point};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain};

/// Flushes after which nothing that can be freed is left: a chain goes one link at a time.
const FLUSHES: usize = 200;

/// Runs `test` in many schedules, random ones and such with few switches (PCT; Burckhardt and others, ASPLOS 2010).
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

/// Which values were made and freed. Plain locks: nothing is switched under them.
#[derive(Clone, Default)]
struct Register {
    freed: Arc<Plain<HashSet<u64>>>,
    made: Arc<AtomicU64>,
}

struct Tracked {
    id: u64,
    /// What the test keeps in it.
    number: u64,
    register: Register,
}

impl Register {
    fn make(&self, number: u64) -> Tracked {
        Tracked {
            id: self.made.fetch_add(1, Ordering::Relaxed),
            number,
            register: self.clone(),
        }
    }

    #[track_caller]
    fn expect_alive(&self, ids: &[u64]) {
        let freed = self.freed.lock().unwrap();
        let dead: Vec<_> = ids.iter().filter(|id| freed.contains(id)).collect();
        assert!(dead.is_empty(), "{dead:?} were freed under a guard");
    }

    /// At the end, when every cell and guard has gone.
    fn expect_all_freed(&self) {
        for _ in 0..FLUSHES {
            pin().flush();
        }
        let freed = self.freed.lock().unwrap().len() as u64;
        assert_eq!(freed, self.made.load(Ordering::Relaxed), "freed, of so many made");
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        assert!(
            self.register.freed.lock().unwrap().insert(self.id),
            "{} was freed twice",
            self.id
        );
    }
}

/// Collects as eagerly as can be.
fn collect() {
    for _ in 0..4 {
        pin().flush();
    }
}

/// Looks at a cell a few times under one guard: values rise, and all of them stay alive.
fn look(cell: &Rcu<Tracked>, register: &Register) {
    let guard = pin();
    let mut ids = Vec::new();
    let mut last = 0;
    for _ in 0..3 {
        let value = cell.load(&guard);
        let (id, number) = (value.id, value.number);
        ids.push(id);
        assert!(number >= last, "values never go back: {number} after {last}");
        last = number;
        schedule_point();
        register.expect_alive(&ids);
    }
}

fn a_reader_keeps_what_it_loaded() {
    let register = Register::default();
    let cell = Arc::new(Rcu::new(register.make(0)));
    let spawned: Vec<_> = (0..2)
        .map(|_| {
            let (cell, register) = (cell.clone(), register.clone());
            thread::spawn(move || {
                look(&cell, &register);
                collect();
                look(&cell, &register);
            })
        })
        .collect();
    for number in 1..4 {
        cell.replace(register.make(number), &pin());
        collect();
    }
    drop(cell);
    collect();
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    register.expect_all_freed();
}

#[test]
fn replaced_values_outlive_their_readers() {
    check(
        "replaced_values_outlive_their_readers",
        2000,
        a_reader_keeps_what_it_loaded,
    );
}

fn many_writers_one_cell() {
    let register = Register::default();
    let cell = Arc::new(RcuOption::none());
    let spawned: Vec<_> = (0..3)
        .map(|writer| {
            let (cell, register) = (cell.clone(), register.clone());
            thread::spawn(move || {
                for round in 0..2 {
                    let guard = pin();
                    let seen: Option<u64> = cell.load(&guard).map(|value: &Tracked| value.id);
                    let value = (writer + round != 2).then(|| register.make(writer));
                    cell.replace(value, &guard);
                    schedule_point();
                    register.expect_alive(seen.as_slice());
                    drop(guard);
                    collect();
                }
            })
        })
        .collect();
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    drop(cell);
    register.expect_all_freed();
}

#[test]
fn a_cell_that_many_replace_frees_each_value_once() {
    check(
        "a_cell_that_many_replace_frees_each_value_once",
        2000,
        many_writers_one_cell,
    );
}

fn nested_guards() {
    let register = Register::default();
    let cell = Arc::new(Rcu::new(register.make(0)));
    let reader = {
        let (cell, register) = (cell.clone(), register.clone());
        thread::spawn(move || {
            let outer = pin();
            let first = cell.load(&outer).id;
            let second = {
                let inner = pin();
                let second = cell.load(&inner).id;
                schedule_point();
                second
                // The inner guard goes, the outer one protects still.
            };
            collect();
            schedule_point();
            register.expect_alive(&[first, second]);
            // Guards that go in the order of their coming: what the first saw is the second's no more, and the other
            // way round.
            let later = pin();
            let third = cell.load(&later).id;
            drop(outer);
            schedule_point();
            register.expect_alive(&[third]);
        })
    };
    for number in 1..4 {
        cell.replace(register.make(number), &pin());
        collect();
    }
    reader.join().unwrap();
    drop(cell);
    register.expect_all_freed();
}

#[test]
fn an_inner_guard_ends_nothing_that_an_outer_one_protects() {
    check(
        "an_inner_guard_ends_nothing_that_an_outer_one_protects",
        2000,
        nested_guards,
    );
}

fn threads_come_and_go() {
    let register = Register::default();
    let cell = Arc::new(Rcu::new(register.make(0)));
    let writer = {
        let (cell, register) = (cell.clone(), register.clone());
        thread::spawn(move || {
            for number in 1..4 {
                // Its garbage is still in its own bag when it ends.
                let (cell, register) = (cell.clone(), register.clone());
                let short = thread::spawn(move || cell.replace(register.make(number), &pin()));
                short.join().unwrap();
            }
        })
    };
    for _ in 0..2 {
        let short = {
            let (cell, register) = (cell.clone(), register.clone());
            thread::spawn(move || look(&cell, &register))
        };
        look(&cell, &register);
        collect();
        short.join().unwrap();
    }
    writer.join().unwrap();
    drop(cell);
    register.expect_all_freed();
}

#[test]
fn threads_that_end_leave_nothing_behind_and_free_nothing_too_early() {
    check(
        "threads_that_end_leave_nothing_behind_and_free_nothing_too_early",
        1500,
        threads_come_and_go,
    );
}

/// A thread gives values up, rests, and comes back, beside one that reads them; another flushes all the time, and in
/// the end, while the first still rests, has freed all of it.
fn a_thread_rests() {
    let register = Register::default();
    let cell = Arc::new(RcuOption::none());
    let (resting, rested) = shuttle::sync::mpsc::channel();
    let (go, gone) = shuttle::sync::mpsc::channel::<()>();
    let writer = {
        let (cell, register) = (cell.clone(), register.clone());
        thread::spawn(move || {
            for number in 0..4 {
                let guard = pin();
                let seen = cell.load(&guard).map(|value: &Tracked| value.id);
                cell.replace(Some(register.make(number)), &guard);
                schedule_point();
                register.expect_alive(seen.as_slice());
            }
            cell.replace(None, &pin());
            resting.send(()).unwrap();
            gone.recv().unwrap();
        })
    };
    let reader = {
        let (cell, register) = (cell.clone(), register.clone());
        thread::spawn(move || {
            for _ in 0..4 {
                let guard = pin();
                let seen = cell.load(&guard).map(|value: &Tracked| value.id);
                for _ in 0..3 {
                    schedule_point();
                    register.expect_alive(seen.as_slice());
                }
            }
        })
    };
    for _ in 0..4 {
        collect();
    }
    rested.recv().unwrap();
    reader.join().unwrap();
    register.expect_all_freed();
    go.send(()).unwrap();
    writer.join().unwrap();
}

#[test]
fn what_a_thread_has_that_rests_is_freed_by_others() {
    check("what_a_thread_has_that_rests_is_freed_by_others", 2000, a_thread_rests);
}

struct Link {
    value: Tracked,
    older: RcuOption<Link>,
}

/// Ids and numbers of a chain, from its head on.
fn walk(head: &RcuOption<Link>, guard: &Guard) -> (Vec<u64>, Vec<u64>) {
    let (mut ids, mut numbers) = (Vec::new(), Vec::new());
    let mut next = head.load(guard);
    while let Some(link) = next {
        ids.push(link.value.id);
        numbers.push(link.value.number);
        next = link.older.load(guard);
    }
    (ids, numbers)
}

/// Writers push under a lock, one trims: a reader always finds a run of numbers without a gap that starts at the
/// newest.
fn a_chain_without_gaps() {
    let register = Register::default();
    let head = Arc::new(RcuOption::none());
    let newest = Arc::new(Mutex::new(0_u64));
    let mut spawned = Vec::new();
    for _ in 0..2 {
        let (head, newest, register) = (head.clone(), newest.clone(), register.clone());
        spawned.push(thread::spawn(move || {
            for _ in 0..3 {
                let mut newest = newest.lock();
                *newest += 1;
                let guard = pin();
                let link = Link {
                    value: register.make(*newest),
                    older: RcuOption::none(),
                };
                head.push(link, |link| &link.older, &guard);
                if *newest % 3 == 0 {
                    let top: &Link = head.load(&guard).expect("it was just pushed");
                    top.older
                        .load(&guard)
                        .expect("three were pushed")
                        .older
                        .replace(None, &guard);
                }
                drop(guard);
                collect();
            }
        }));
    }
    let mut last = 0;
    for _ in 0..3 {
        let guard = pin();
        let (ids, numbers) = walk(&head, &guard);
        schedule_point();
        register.expect_alive(&ids);
        if let Some(&first) = numbers.first() {
            let run: Vec<u64> = (0..numbers.len() as u64).map(|back| first - back).collect();
            assert_eq!(numbers, run, "no gap in a chain");
            // The third push and every third after it cut below the second link.
            let end = numbers[numbers.len() - 1];
            assert!(end == 1 || end % 3 == 2, "{numbers:?} lacks what was pushed before");
            assert!(first >= last, "the newest never goes back");
            last = first;
        } else {
            assert_eq!(last, 0, "a chain is never empty again");
        }
    }
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    drop(head);
    register.expect_all_freed();
}

#[test]
fn a_chain_that_grows_and_is_trimmed_has_no_gaps() {
    check(
        "a_chain_that_grows_and_is_trimmed_has_no_gaps",
        1500,
        a_chain_without_gaps,
    );
}

/// A writer pushes, and takes out of the middle what is not at an end or even; another puts new values in the head's
/// place.
fn a_chain_that_loses_its_middle() {
    let register = Register::default();
    let head = Arc::new(RcuOption::some(Link {
        value: register.make(0),
        older: RcuOption::none(),
    }));
    let newest = Arc::new(Mutex::new(0_u64));
    let mut spawned = Vec::new();
    for writer in 0..2 {
        let (head, newest, register) = (head.clone(), newest.clone(), register.clone());
        spawned.push(thread::spawn(move || {
            for _ in 0..3 {
                let mut newest = newest.lock();
                let guard = pin();
                let link = |number| Link {
                    value: register.make(number),
                    older: RcuOption::none(),
                };
                if writer == 0 {
                    head.take_over(link(*newest), |link| &link.older, &guard);
                }
                *newest += 1;
                head.push(link(*newest), |link| &link.older, &guard);
                let below = head.load(&guard).expect("it was just pushed").older.load(&guard);
                let cell = &below.expect("0 stays").older;
                if cell.load(&guard).is_some_and(|link| link.value.number % 2 == 1) {
                    cell.unlink(|link| &link.older, &guard);
                }
                drop(guard);
                collect();
            }
        }));
    }
    let reader = {
        let (head, register) = (head.clone(), register.clone());
        thread::spawn(move || {
            for _ in 0..3 {
                let guard = pin();
                let (ids, numbers) = walk(&head, &guard);
                schedule_point();
                register.expect_alive(&ids);
                assert!(numbers.is_sorted_by(|a, b| a > b), "{numbers:?} falls");
                let even: Vec<u64> = numbers.iter().copied().filter(|number| number % 2 == 0).collect();
                let all: Vec<u64> = (0..=numbers[0]).rev().filter(|number| number % 2 == 0).collect();
                assert_eq!(even, all, "nothing is lost but what was taken out: {numbers:?}");
            }
        })
    };
    spawned.into_iter().for_each(|thread| thread.join().unwrap());
    reader.join().unwrap();
    drop(head);
    register.expect_all_freed();
}

#[test]
fn values_leave_the_middle_of_a_chain_alone() {
    check(
        "values_leave_the_middle_of_a_chain_alone",
        1500,
        a_chain_that_loses_its_middle,
    );
}

fn readers_exclude_a_writer() {
    let lock = Arc::new(RwLock::new(()));
    let inside = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (lock, inside) = (lock.clone(), inside.clone());
            thread::spawn(move || {
                let outer = lock.read();
                inside.0.fetch_add(1, Ordering::SeqCst);
                // Whoever reads may read again, a waiting writer notwithstanding.
                let inner = lock.read_recursive();
                assert_eq!(inside.1.load(Ordering::SeqCst), 0, "nobody writes beside a reader");
                drop(inner);
                schedule_point();
                assert_eq!(inside.1.load(Ordering::SeqCst), 0, "nobody writes beside a reader");
                inside.0.fetch_sub(1, Ordering::SeqCst);
                drop(outer);
            })
        })
        .collect();
    {
        let _writes = lock.write();
        inside.1.fetch_add(1, Ordering::SeqCst);
        schedule_point();
        assert_eq!(inside.0.load(Ordering::SeqCst), 0, "nobody reads beside a writer");
        inside.1.fetch_sub(1, Ordering::SeqCst);
    }
    readers.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_lock_for_many_lets_its_readers_read_again() {
    check(
        "the_lock_for_many_lets_its_readers_read_again",
        1000,
        readers_exclude_a_writer,
    );
}
