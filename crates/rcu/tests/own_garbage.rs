//! What a thread frees itself of what it has retired. In a program of its own, in which nobody flushes: who flushes
//! takes the garbage of threads that have no processor for a moment, and the rest of the crate's tests flush all the
//! time.

#![cfg(not(feature = "shuttle"))]

use rcu::{Rcu, pin};
use std::cell::Cell;

std::thread_local! {
    /// What this thread has freed of [`Counted`].
    static FREED: Cell<usize> = const { Cell::new(0) };
}

struct Counted;

impl Drop for Counted {
    fn drop(&mut self) {
        FREED.set(FREED.get() + 1);
    }
}

/// Not two tests, which would be two threads: what is too much for one thread the other may free.
#[test]
fn who_retires_frees_in_small_steps_and_who_only_reads_then_frees_the_rest() {
    const AT_ONCE: usize = 4;
    let cell = Rcu::new(Counted);
    let (mut most, rounds) = (0, if cfg!(miri) { 100 } else { 5000 });
    for _ in 0..rounds {
        let before = FREED.get();
        let guard = pin();
        most = most.max(FREED.get() - before);
        for _ in 0..AT_ONCE {
            cell.replace(Counted, &guard);
        }
    }
    assert!(most <= 8, "{most} values were freed at once");
    assert!(most > 0, "some were freed");

    // Readers are enough; nobody has to retire more, nor to flush. A group that is not full stays.
    let retired = rounds * AT_ONCE;
    for _ in 0..100 * retired {
        drop(pin());
        if FREED.get() + 16 > retired {
            return;
        }
    }
    panic!("{} of {retired} are freed", FREED.get());
}
