//! Threads that are lent to requests, and sleep: who lends them may have others work meanwhile.
//!
//! Whoever waits for a disk, a lock or other members says so by [`asleep`]. On threads that nobody lends this does
//! nothing.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Who lends threads.
pub trait Lender: Send + Sync {
    /// The calling thread is about to wait for something other than a processor.
    fn sleeps(&self);
    /// It waits no more.
    fn wakes(&self);
}

thread_local! {
    static LENDER: RefCell<Option<Arc<dyn Lender>>> = const { RefCell::new(None) };
    /// Whether it was told that this thread sleeps.
    static SLEEPS: Cell<bool> = const { Cell::new(false) };
}

/// This thread is lent from now on until the end of [`Lent`].
pub fn lend(lender: Arc<dyn Lender>) -> Lent {
    LENDER.set(Some(lender));
    Lent(())
}

/// See [`lend`].
#[must_use]
pub struct Lent(());

impl Drop for Lent {
    fn drop(&mut self) {
        LENDER.set(None);
    }
}

/// The thread waits for something other than a processor, until this is dropped.
#[must_use]
pub struct Asleep(bool);

/// See the module. Where a thread sleeps already this adds nothing.
pub fn asleep() -> Asleep {
    if SLEEPS.get() {
        return Asleep(false);
    }
    LENDER.with_borrow(|lender| {
        let Some(lender) = lender else { return Asleep(false) };
        SLEEPS.set(true);
        lender.sleeps();
        Asleep(true)
    })
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if !self.0 {
            return;
        }
        SLEEPS.set(false);
        LENDER.with_borrow(|lender| {
            if let Some(lender) = lender {
                lender.wakes();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counts {
        asleep: AtomicU32,
        ever: AtomicU32,
    }

    impl Lender for Counts {
        fn sleeps(&self) {
            self.asleep.fetch_add(1, Ordering::Relaxed);
            self.ever.fetch_add(1, Ordering::Relaxed);
        }

        fn wakes(&self) {
            self.asleep.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_thread_that_is_lent_sleeps_once_however_deep() {
        let counts = Arc::new(Counts::default());
        let figures = || {
            (
                counts.asleep.load(Ordering::Relaxed),
                counts.ever.load(Ordering::Relaxed),
            )
        };
        drop(asleep());
        assert_eq!(figures(), (0, 0));
        let lent = lend(counts.clone());
        let outer = asleep();
        drop(asleep());
        assert_eq!(figures(), (1, 1));
        drop(outer);
        drop(asleep());
        assert_eq!(figures(), (0, 2));
        drop(lent);
        drop(asleep());
        assert_eq!(figures(), (0, 2));
    }
}
