//! The cells. All `unsafe` code of the crate is here and in `retired`.
//!
//! Invariants that make it sound:
//! - a pointer in a cell came from a `Box<T>`, points to a live `T`, and is in one cell only;
//! - it leaves the cell only by a swap, and whoever swapped it out retires it exactly once: it is dropped when every
//!   guard that was pinned before has gone;
//! - a value that leaves a chain alone ([`RcuOption::take_over`], [`RcuOption::unlink`]) still points to the rest,
//!   which another cell has taken over: that pointer is cleared before the value is dropped, when nobody can load it
//!   any more;
//! - so a reference loaded under a guard stays good while that guard lives, even if the cell itself is dropped
//!   meanwhile.
//!
//! `T: Send + Sync + 'static`, because any thread may read it and any thread may drop it, at any later time.

use crate::epoch::Guard;
use crate::retired::Retired;
use crate::schedule_point;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A cell that always holds a value.
pub struct Rcu<T: Send + Sync + 'static> {
    pointer: AtomicPtr<T>,
    owned: PhantomData<T>,
}

impl<T: Send + Sync + 'static> Rcu<T> {
    /// A cell with its first value.
    pub fn new(value: T) -> Self {
        Self {
            pointer: AtomicPtr::new(boxed(value)),
            owned: PhantomData,
        }
    }

    /// The value now.
    #[inline]
    pub fn load<'g>(&self, _guard: &'g Guard) -> &'g T {
        schedule_point();
        // SAFETY: the cell is never empty, and what it held when loaded is freed only after `guard` has gone.
        unsafe { &*self.pointer.load(Ordering::Acquire) }
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
        let old = self.pointer.swap(boxed(value), Ordering::AcqRel);
        schedule_point();
        retire(old, bytes, guard);
    }
}

impl<T: Send + Sync + 'static> Drop for Rcu<T> {
    fn drop(&mut self) {
        drop_pointer(&mut self.pointer);
    }
}

/// A cell that may be empty.
pub struct RcuOption<T: Send + Sync + 'static> {
    pointer: AtomicPtr<T>,
    owned: PhantomData<T>,
}

impl<T: Send + Sync + 'static> RcuOption<T> {
    /// An empty cell.
    pub fn none() -> Self {
        Self::of(ptr::null_mut())
    }

    /// A cell with a value.
    pub fn some(value: T) -> Self {
        Self::of(boxed(value))
    }

    fn of(pointer: *mut T) -> Self {
        Self {
            pointer: AtomicPtr::new(pointer),
            owned: PhantomData,
        }
    }

    /// The value now.
    #[inline]
    pub fn load<'g>(&self, _guard: &'g Guard) -> Option<&'g T> {
        schedule_point();
        // SAFETY: as for `Rcu::load`; `as_ref` answers `None` for an empty cell.
        unsafe { self.pointer.load(Ordering::Acquire).as_ref() }
    }

    /// Puts another value in, or none; readers of the old one keep it.
    #[inline]
    pub fn replace(&self, value: Option<T>, guard: &Guard) {
        schedule_point();
        let old = self
            .pointer
            .swap(value.map_or(ptr::null_mut(), boxed), Ordering::AcqRel);
        schedule_point();
        retire(old, 0, guard);
    }

    /// Puts a value in whose `link` cell takes over what this cell held: a push onto a chain. The old value stays
    /// readable through the new one. One writer at a time: the caller holds the chain's lock.
    #[inline]
    pub fn push(&self, value: T, link: impl FnOnce(&T) -> &RcuOption<T>, _guard: &Guard) {
        schedule_point();
        let old = self.pointer.load(Ordering::Acquire);
        let link = &link(&value).pointer;
        assert!(
            link.load(Ordering::Relaxed).is_null(),
            "a pushed value has an empty link"
        );
        link.store(old, Ordering::Relaxed);
        schedule_point();
        let swapped = self.pointer.swap(boxed(value), Ordering::AcqRel);
        assert!(swapped == old, "one writer at a time pushes onto a chain");
    }

    /// Puts a value in the place of the first of a chain: its `link` cell takes over what the old value's held. Readers
    /// of the old value go on to the rest as before. One writer at a time: the caller holds the chain's lock.
    #[inline]
    pub fn take_over(&self, value: T, link: impl Fn(&T) -> &RcuOption<T>, guard: &Guard) {
        schedule_point();
        let old = self.pointer.load(Ordering::Acquire);
        // SAFETY: as for `load`.
        let first = unsafe { old.as_ref() }.expect("a chain with a first value");
        let rest = own_link(first, &link);
        let new_link = &own_link(&value, &link).pointer;
        assert!(
            new_link.load(Ordering::Relaxed).is_null(),
            "a new value has an empty link"
        );
        new_link.store(rest.pointer.load(Ordering::Acquire), Ordering::Relaxed);
        let rest = ptr::from_ref(rest);
        let swapped = self.pointer.swap(boxed(value), Ordering::AcqRel);
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
        let old = self.pointer.load(Ordering::Acquire);
        // SAFETY: as for `load`.
        let Some(first) = (unsafe { old.as_ref() }) else {
            return;
        };
        let rest = own_link(first, &link);
        let next = rest.pointer.load(Ordering::Acquire);
        let rest = ptr::from_ref(rest);
        let swapped = self.pointer.swap(next, Ordering::AcqRel);
        assert!(swapped == old, "one writer at a time changes a chain");
        schedule_point();
        retire_without_link(old, rest, guard);
    }

    /// Empties the cell and leaves what it held to another.
    pub(crate) fn forget(&self) {
        self.pointer.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

impl<T: Send + Sync + 'static> Drop for RcuOption<T> {
    fn drop(&mut self) {
        drop_pointer(&mut self.pointer);
    }
}

fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Retires a pointer that was swapped out; `bytes` go with it besides the value itself.
#[inline]
fn retire<T: Send + Sync + 'static>(old: *mut T, bytes: usize, guard: &Guard) {
    if !old.is_null() {
        // SAFETY: `old` came out of a cell by a swap, so nobody else retires it and no later reader finds it.
        guard.retire(unsafe { Retired::new(old, bytes) });
    }
}

/// The link of a value, which must be a part of it.
#[inline]
fn own_link<'v, T: Send + Sync + 'static>(value: &'v T, link: &impl Fn(&T) -> &RcuOption<T>) -> &'v RcuOption<T> {
    let link = link(value);
    let (start, at) = (ptr::from_ref(value).addr(), ptr::from_ref(link).addr());
    assert!(
        at >= start && at + size_of::<RcuOption<T>>() <= start + size_of::<T>(),
        "a value's link lies inside it"
    );
    link
}

/// As [`retire`], for a value that has left a chain whose rest stays: `link` is the cell inside it that points to the
/// rest.
#[inline]
fn retire_without_link<T: Send + Sync + 'static>(old: *mut T, link: *const RcuOption<T>, guard: &Guard) {
    // SAFETY: for `old` as in `retire`. `link` lies inside the value (`own_link`), which stays where it is until it is
    // dropped, and what it points to is in another cell, or was retired from there.
    guard.retire(unsafe { Retired::without_link(old, link) });
}

/// Empties a cell that is being dropped. The value may still be in use under a guard, so it is retired, not freed; that
/// also keeps the drop of a long chain from recursing.
fn drop_pointer<T: Send + Sync + 'static>(pointer: &mut AtomicPtr<T>) {
    let old = std::mem::replace(pointer.get_mut(), ptr::null_mut());
    if !old.is_null() {
        retire(old, 0, &crate::pin());
    }
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
            (0..if cfg!(miri) { 300 } else { 300_000 }).for_each(|_| drop(made()));
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
