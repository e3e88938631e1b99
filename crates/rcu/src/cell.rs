//! The cells. All `unsafe` code of the crate is here.
//!
//! Invariants that make it sound:
//! - a pointer in a cell was made from an `Owned<T>`, points to a live `T`, and is in one cell only;
//! - it leaves the cell only by a swap, and whoever swapped it out hands it to the epoch collector exactly once, whose
//!   deferred drop runs when every guard that was pinned before has gone;
//! - a value that leaves a chain alone ([`RcuOption::take_over`], [`RcuOption::unlink`]) still points to the rest,
//!   which another cell has taken over: the deferred drop clears that pointer first, when nobody can load it any more;
//! - so a reference loaded under a guard stays good while that guard lives, even if the cell itself is dropped
//!   meanwhile.
//!
//! `T: Send + Sync + 'static`, because any thread may read it and any thread may run the deferred drop, at any later
//! time.

use crate::schedule_point;
use crate::waiting::Weight;
use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use std::sync::atomic::Ordering;

/// A cell that always holds a value.
pub struct Rcu<T: Send + Sync + 'static> {
    pointer: Atomic<T>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A cell with its first value.
    pub fn new(value: T) -> Self {
        Self {
            pointer: Atomic::new(value),
        }
    }

    /// The value now.
    #[inline]
    pub fn load<'g>(&self, guard: &'g Guard) -> &'g T {
        schedule_point();
        // SAFETY: the cell is never empty, and what it held when loaded is freed only after `guard` has gone.
        unsafe { self.pointer.load(Ordering::Acquire, guard).deref() }
    }

    /// Puts another value in; readers of the old one keep it.
    #[inline]
    pub fn replace(&self, value: T, guard: &Guard) {
        self.replace_large(value, 0, guard);
    }

    /// As [`Rcu::replace`]; `bytes` of heap memory go with the old value, for [`crate::waiting()`].
    #[inline]
    pub fn replace_large(&self, value: T, bytes: usize, guard: &Guard) {
        schedule_point();
        let old = self.pointer.swap(Owned::new(value), Ordering::AcqRel, guard);
        schedule_point();
        retire(old, bytes, guard);
    }
}

impl<T: Send + Sync + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        drop_pointer(&self.pointer);
    }
}

/// A cell that may be empty.
pub struct RcuOption<T: Send + Sync + 'static> {
    pointer: Atomic<T>,
}

impl<T: Send + Sync + 'static> RcuOption<T> {
    /// An empty cell.
    pub fn none() -> Self {
        Self {
            pointer: Atomic::null(),
        }
    }

    /// A cell with a value.
    pub fn some(value: T) -> Self {
        Self {
            pointer: Atomic::new(value),
        }
    }

    /// The value now.
    #[inline]
    pub fn load<'g>(&self, guard: &'g Guard) -> Option<&'g T> {
        schedule_point();
        // SAFETY: as for `Rcu::load`; `as_ref` answers `None` for an empty cell.
        unsafe { self.pointer.load(Ordering::Acquire, guard).as_ref() }
    }

    /// Puts another value in, or none; readers of the old one keep it.
    #[inline]
    pub fn replace(&self, value: Option<T>, guard: &Guard) {
        schedule_point();
        let old = match value {
            Some(value) => self.pointer.swap(Owned::new(value), Ordering::AcqRel, guard),
            None => self.pointer.swap(Shared::null(), Ordering::AcqRel, guard),
        };
        schedule_point();
        retire(old, 0, guard);
    }

    /// Puts a value in whose `link` cell takes over what this cell held: a push onto a chain. The old value stays
    /// readable through the new one. One writer at a time: the caller holds the chain's lock.
    #[inline]
    pub fn push(&self, value: T, link: impl FnOnce(&T) -> &RcuOption<T>, guard: &Guard) {
        schedule_point();
        let old = self.pointer.load(Ordering::Acquire, guard);
        let new = Owned::new(value);
        let link = link(&new);
        assert!(
            link.pointer.load(Ordering::Relaxed, guard).is_null(),
            "a pushed value has an empty link"
        );
        link.pointer.store(old, Ordering::Relaxed);
        schedule_point();
        let swapped = self.pointer.swap(new, Ordering::AcqRel, guard);
        assert!(swapped == old, "one writer at a time pushes onto a chain");
    }

    /// Puts a value in the place of the first of a chain: its `link` cell takes over what the old value's held. Readers
    /// of the old value go on to the rest as before. One writer at a time: the caller holds the chain's lock.
    #[inline]
    pub fn take_over(&self, value: T, link: impl Fn(&T) -> &RcuOption<T>, guard: &Guard) {
        schedule_point();
        let old = self.pointer.load(Ordering::Acquire, guard);
        // SAFETY: as for `load`.
        let first = unsafe { old.as_ref() }.expect("a chain with a first value");
        let rest = own_link(first, &link);
        let new = Owned::new(value);
        let new_link = own_link(&*new, &link);
        assert!(
            new_link.pointer.load(Ordering::Relaxed, guard).is_null(),
            "a new value has an empty link"
        );
        new_link
            .pointer
            .store(rest.pointer.load(Ordering::Acquire, guard), Ordering::Relaxed);
        let rest = std::ptr::from_ref(rest);
        let swapped = self.pointer.swap(new, Ordering::AcqRel, guard);
        assert!(swapped == old, "one writer at a time changes a chain");
        schedule_point();
        retire_without_link(old, rest, guard);
    }

    /// Takes the first value out of a chain; what its `link` cell holds comes into its place. Readers that stand on it
    /// go on to the rest as before. Does nothing to an empty cell. One writer at a time: the caller holds the chain's
    /// lock.
    #[inline]
    pub fn unlink(&self, link: impl Fn(&T) -> &RcuOption<T>, guard: &Guard) {
        schedule_point();
        let old = self.pointer.load(Ordering::Acquire, guard);
        // SAFETY: as for `load`.
        let Some(first) = (unsafe { old.as_ref() }) else {
            return;
        };
        let rest = own_link(first, &link);
        let next = rest.pointer.load(Ordering::Acquire, guard);
        let rest = std::ptr::from_ref(rest);
        let swapped = self.pointer.swap(next, Ordering::AcqRel, guard);
        assert!(swapped == old, "one writer at a time changes a chain");
        schedule_point();
        retire_without_link(old, rest, guard);
    }
}

impl<T: Send + Sync + 'static> Drop for RcuOption<T> {
    fn drop(&mut self) {
        drop_pointer(&self.pointer);
    }
}

/// Hands a pointer that was swapped out to the collector; `bytes` go with it besides the value itself.
#[inline]
fn retire<T: Send + Sync + 'static>(old: Shared<'_, T>, bytes: usize, guard: &Guard) {
    if !old.is_null() {
        let weight = Weight::of(size_of::<T>() + bytes);
        weight.retired();
        // SAFETY: `old` came out of a cell by a swap, so nobody else retires it and no later reader finds it: when the
        // collector calls this, once, it is the only pointer left. `T` is `Send`, so any thread may drop it.
        unsafe {
            guard.defer_unchecked(move || {
                drop(old.into_owned());
                weight.freed();
            });
        }
    }
}

/// The link of a value, which must be a part of it.
#[inline]
fn own_link<'v, T: Send + Sync + 'static>(value: &'v T, link: &impl Fn(&T) -> &RcuOption<T>) -> &'v RcuOption<T> {
    let link = link(value);
    let (start, at) = (std::ptr::from_ref(value).addr(), std::ptr::from_ref(link).addr());
    assert!(
        at >= start && at + size_of::<RcuOption<T>>() <= start + size_of::<T>(),
        "a value's link lies inside it"
    );
    link
}

/// As [`retire`], for a value that has left a chain whose rest stays: `link` is the cell inside it that points to the
/// rest.
#[inline]
fn retire_without_link<T: Send + Sync + 'static>(old: Shared<'_, T>, link: *const RcuOption<T>, guard: &Guard) {
    let weight = Weight::of(size_of::<T>());
    weight.retired();
    // SAFETY: for `old` as in `retire`. `link` lies inside the value that `old` points to (`own_link`), which stays
    // where it is until it is dropped here, so it is good until then. No guard that could load it is left, and what it
    // points to is in another cell, or was handed to the collector from there: cleared, it is not retired a second
    // time.
    unsafe {
        guard.defer_unchecked(move || {
            let value = old.into_owned();
            (*link).pointer.store(Shared::null(), Ordering::Relaxed);
            drop(value);
            weight.freed();
        });
    }
}

/// Empties a cell that is being dropped. The value may still be in use under a guard, so it is retired, not freed; that
/// also keeps the drop of a long chain from recursing.
fn drop_pointer<T: Send + Sync + 'static>(pointer: &Atomic<T>) {
    let guard = crate::pin();
    let old = pointer.swap(Shared::null(), Ordering::AcqRel, &guard);
    retire(old, 0, &guard);
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    struct Counted(u64, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    struct Link(u64, RcuOption<Link>);

    #[test]
    fn a_loaded_value_outlives_its_replacement_and_its_cell() {
        let drops = Arc::new(AtomicUsize::new(0));
        let cell = Rcu::new(Counted(1, drops.clone()));
        let guard = pin();
        let first = cell.load(&guard);
        cell.replace(Counted(2, drops.clone()), &guard);
        let second = cell.load(&guard);
        drop(cell);
        assert_eq!((first.0, second.0), (1, 2));
        assert_eq!(drops.load(Ordering::SeqCst), 0, "nothing is freed under the guard");
    }

    #[test]
    fn a_pushed_value_keeps_what_was_there() {
        let guard = pin();
        let head = RcuOption::none();
        for number in 0..100 {
            head.push(Link(number, RcuOption::none()), |link| &link.1, &guard);
        }
        let mut numbers = Vec::new();
        let mut next = head.load(&guard);
        while let Some(link) = next {
            numbers.push(link.0);
            next = link.1.load(&guard);
        }
        assert_eq!(numbers, (0..100).rev().collect::<Vec<_>>());
        head.load(&guard).expect("pushed").1.replace(None, &guard);
        assert!(head.load(&guard).expect("kept").1.load(&guard).is_none());
    }

    struct Knot(u64, RcuOption<Knot>, Arc<AtomicUsize>);

    impl Drop for Knot {
        fn drop(&mut self) {
            self.2.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_value_leaves_a_chain_alone() {
        let drops = Arc::new(AtomicUsize::new(0));
        let guard = pin();
        let head = RcuOption::none();
        let knot = |number| Knot(number, RcuOption::none(), drops.clone());
        for number in 0..5 {
            head.push(knot(number), |knot| &knot.1, &guard);
        }
        let from = |first: Option<&Knot>| {
            let mut numbers = Vec::new();
            let mut next = first;
            while let Some(knot) = next {
                numbers.push(knot.0);
                next = knot.1.load(&guard);
            }
            numbers
        };
        let all = || from(head.load(&guard));
        let four = head.load(&guard).expect("4");
        let three = four.1.load(&guard).expect("3");
        four.1.unlink(|knot| &knot.1, &guard);
        assert_eq!(all(), [4, 2, 1, 0]);
        assert_eq!(from(Some(three)), [3, 2, 1, 0], "who stands there goes on");
        four.1.unlink(|knot| &knot.1, &guard);
        assert_eq!(all(), [4, 1, 0]);
        head.take_over(knot(9), |knot| &knot.1, &guard);
        assert_eq!((all(), from(Some(four))), (vec![9, 1, 0], vec![4, 1, 0]));
        head.unlink(|knot| &knot.1, &guard);
        assert_eq!(all(), [1, 0]);
        assert_eq!(drops.load(Ordering::SeqCst), 0, "nothing is freed under the guard");
        drop(guard);
        // Tests beside this one may hold guards for a while.
        let flush_until = |expected| {
            while drops.load(Ordering::SeqCst) < expected {
                pin().flush();
                crate::yield_now();
            }
            (0..10).for_each(|_| pin().flush());
            assert_eq!(drops.load(Ordering::SeqCst), expected, "each once");
        };
        flush_until(4);
        drop(head);
        flush_until(6);
    }

    #[test]
    fn the_end_of_a_chain_can_leave_it() {
        let guard = pin();
        let head = RcuOption::some(Link(1, RcuOption::none()));
        head.unlink(|link| &link.1, &guard);
        assert!(head.load(&guard).is_none());
        head.unlink(|link| &link.1, &guard);
        assert!(head.load(&guard).is_none());
    }

    #[test]
    fn a_long_chain_is_dropped_without_recursion() {
        let guard = pin();
        let head = RcuOption::none();
        let (links, flushes) = if cfg!(miri) { (40, 20) } else { (200_000, 1000) };
        for number in 0..links {
            head.push(Link(number, RcuOption::none()), |link| &link.1, &guard);
        }
        drop(guard);
        drop(head);
        (0..flushes).for_each(|_| pin().flush());
    }

    /// What a thread drops at its end, when it is no participant any more, frees others' garbage, whose drops retire
    /// again: that went as deep as there was garbage, and over the end of the stack.
    #[test]
    fn a_thread_that_ends_frees_much_garbage_on_a_small_stack() {
        std::thread_local! {
            static HELD: std::cell::RefCell<Option<RcuOption<Link>>> = const { std::cell::RefCell::new(None) };
        }
        let made = || RcuOption::some(Link(1, RcuOption::some(Link(2, RcuOption::none()))));
        let (held, release) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = pin();
                held.wait();
                release.wait();
            });
            held.wait();
            (0..300_000).for_each(|_| drop(made()));
            release.wait();
        });
        let ending = std::thread::Builder::new().stack_size(64 << 10);
        let ended = ending.spawn(move || {
            // It lives longer than the participant, which comes later.
            HELD.set(Some(RcuOption::none()));
            drop(pin());
            HELD.set(Some(made()));
        });
        ended.expect("a thread").join().expect("no panic");
    }

    #[test]
    fn readers_see_whole_values_while_a_writer_replaces_them() {
        let rounds = if cfg!(miri) { 30 } else { 20_000 };
        let cell = Arc::new(Rcu::new((0_u64, 0_u64)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let cell = cell.clone();
                scope.spawn(move || {
                    let mut last = 0;
                    while last < rounds {
                        let guard = pin();
                        let &(a, b) = cell.load(&guard);
                        assert_eq!(a * 3, b);
                        assert!(a >= last, "values never go back");
                        last = a;
                    }
                });
            }
            for number in 1..=rounds {
                cell.replace((number, number * 3), &pin());
            }
        });
    }
}
