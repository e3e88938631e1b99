//! Capped collections: their limits, and the wake-up of those who wait for new documents.
//!
//! Invariant: in a capped collection record-id order is commit order (inserts are serialised), so that who has read up
//! to one record misses none by waiting for a higher one.

use crate::limits::WAIT_SLICE;
use crate::{Interrupted, Operation};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use vfs::{Await, WaitList, Waker};

/// What a capped collection holds at most; the tighter limit rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CappedLimits {
    /// Bytes of documents.
    pub size_bytes: u64,
    /// Documents; `None` when only the size limits.
    pub max_documents: Option<u64>,
}

#[derive(Default)]
pub(crate) struct CappedTail {
    last: AtomicU64,
    closed: AtomicBool,
    waiters: AtomicU32,
    mutex: Mutex<()>,
    grown: Condvar,
    /// Those who wait without a thread.
    wait_list: Arc<WaitList>,
}

impl CappedTail {
    /// A record is visible. Costs a store and a load unless somebody waits.
    pub(crate) fn published(&self, last: u64) {
        self.last.fetch_max(last, Ordering::SeqCst);
        self.wake();
    }

    /// The collection is gone: nobody waits any longer.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _mutex = self.mutex.lock();
            self.grown.notify_all();
        }
        self.wait_list.wake_all();
    }
}

/// Waits for new documents in a capped collection (`awaitData`).
#[derive(Clone)]
pub struct CappedWaiter {
    tail: Arc<CappedTail>,
}

impl CappedWaiter {
    pub(crate) fn new(tail: Arc<CappedTail>) -> Self {
        Self { tail }
    }

    /// Has `waker` called once a record beyond the number `after` is visible, or the collection is dropped.
    pub fn call(&self, after: u64, waker: &Arc<Waker>) -> Await {
        let place = self.tail.wait_list.enter(waker);
        if self.tail.last.load(Ordering::SeqCst) > after {
            return Await::Now;
        }
        match self.tail.closed.load(Ordering::SeqCst) {
            true => Await::Never,
            false => Await::Later(place),
        }
    }

    /// Waits until a record beyond the number `after` is visible (true), or until `timeout` has passed or the
    /// collection is dropped (false). Holds nothing; call it without guards and views.
    pub fn wait(&self, op: &Operation, after: u64, timeout: Duration) -> Result<bool, Interrupted> {
        let tail = &self.tail;
        if tail.last.load(Ordering::SeqCst) > after {
            return Ok(true);
        }
        let end = op.clock().monotonic().saturating_add(timeout);
        let _asleep = vfs::asleep();
        let mut mutex = tail.mutex.lock();
        tail.waiters.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            if tail.last.load(Ordering::SeqCst) > after {
                break Ok(true);
            }
            let now = op.clock().monotonic();
            if tail.closed.load(Ordering::SeqCst) || now >= end {
                break Ok(false);
            }
            if let Err(interrupted) = op.check_now() {
                break Err(interrupted);
            }
            tail.grown.wait_for(&mut mutex, WAIT_SLICE.min(end.saturating_sub(now)));
        };
        tail.waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }
}
