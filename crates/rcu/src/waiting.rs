//! How much was replaced and waits for readers before it is freed, over all cells of the process.
//!
//! Two sums that only rise, of what was retired and of what was freed; the difference is what waits. Each counts values
//! and bytes in one number, so that one addition does both. It wraps: differences stay right as long as fewer than
//! `VALUES_MAX` values and a terabyte wait.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes are counted below this bit, values above.
const BYTES_BITS: u32 = 40;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;

/// A line of the processor's cache each: writers retire, and whoever collects frees.
#[repr(align(64))]
struct Sum(AtomicU64);

static RETIRED: Sum = Sum(AtomicU64::new(0));
static FREED: Sum = Sum(AtomicU64::new(0));

/// One value and its bytes.
#[derive(Clone, Copy)]
pub(crate) struct Weight(u64);

impl Weight {
    #[inline]
    pub(crate) fn of(bytes: usize) -> Self {
        Self((1 << BYTES_BITS) | (bytes as u64 & BYTES_MASK))
    }

    /// Called before the value can be freed.
    #[inline]
    pub(crate) fn retired(self) {
        RETIRED.0.fetch_add(self.0, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn freed(self) {
        // What was retired is visible to whoever sees it freed.
        FREED.0.fetch_add(self.0, Ordering::Release);
    }
}

/// What waits to be freed, see [`waiting()`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Values that were replaced.
    pub values: u64,
    /// Their bytes, and those that whoever replaced them named.
    pub bytes: u64,
    /// Tells two looks apart between which something was freed.
    pub freed: u64,
}

/// What was replaced in cells, whosever they are, and is not freed yet because a reader may hold it, or because nobody
/// has come to free it ([`crate::Guard::flush`] does some). A moment old.
///
/// Under the schedule checker nothing ever seems to wait: the sums outlive an execution, which must not depend on
/// another.
pub fn waiting() -> Waiting {
    if cfg!(feature = "shuttle") {
        return Waiting::default();
    }
    // In this order, so that nothing seems freed before it was retired.
    let freed = FREED.0.load(Ordering::Acquire);
    let waits = RETIRED.0.load(Ordering::Relaxed).wrapping_sub(freed);
    Waiting {
        values: waits >> BYTES_BITS,
        bytes: waits & BYTES_MASK,
        freed,
    }
}

#[cfg(all(test, not(feature = "shuttle"), not(miri)))]
mod tests {
    use super::*;
    use crate::{Rcu, pin};

    const BYTES: u64 = 1 << 30;

    /// Other tests of the process retire a few bytes meanwhile; nobody else a gibibyte.
    #[test]
    fn what_a_reader_may_hold_is_counted_until_it_is_freed() {
        let cell = Rcu::new([0_u8; 100]);
        let reader = pin();
        let before = waiting();
        for _ in 0..5 {
            cell.replace_large([1; 100], BYTES as usize, &reader);
        }
        let full = waiting();
        assert!(full.bytes >= 5 * BYTES + 500, "{full:?}");
        assert!(full.values >= 5, "{full:?}");
        for _ in 0..100 {
            pin().flush();
        }
        assert!(waiting().bytes >= 5 * BYTES + 500, "the reader is still there");
        drop(reader);
        while waiting().bytes >= BYTES {
            pin().flush();
            std::thread::yield_now();
        }
        assert_ne!(waiting().freed, before.freed);
    }
}
