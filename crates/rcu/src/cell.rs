//! The cells. All `unsafe` code of the crate is here.
//!
//! Invariants that make it sound:
//! - a pointer in a cell was made from an `Owned<T>`, points to a live `T`, and is in one cell only;
//! - it leaves the cell only by a swap, and whoever swapped it out hands it to the epoch collector exactly once, whose
//!   deferred drop runs when every guard that was pinned before has gone;
//! - so a reference loaded under a guard stays good while that guard lives, even if the cell itself is dropped meanwhile.
//!
//! `T: Send + Sync + 'static`, because any thread may read it and any thread may run the deferred drop, at any later time.

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

    /// Puts a value in whose `link` cell takes over what this cell held: a push onto a chain. The old value stays readable
    /// through the new one. One writer at a time: the caller holds the chain's lock.
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

/// Empties a cell that is being dropped. The value may still be in use under a guard, so it is retired, not freed; that also
/// keeps the drop of a long chain from recursing.
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
