//! Requests that wait for an event without a thread: a `hello` for a change of the set, a `getMore` for data.
//!
//! The command's function says so ([`Invocation::park`](crate::invocation::Invocation::park)) instead of waiting, and
//! is called anew when what it waits for may have come, its patience is over, or its operation has to end.

use crate::cursors::OpenCursor;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use storage::Operation;
use vfs::{Registration, Waker};

/// What a request waits for, and what it holds meanwhile.
pub(crate) struct Parked {
    /// When it waits no longer, by the monotonic clock.
    pub(crate) until: Duration,
    /// Of a `getMore`: its cursor, which nobody else may use.
    pub(crate) cursor: Option<Box<OpenCursor>>,
    _entry: Entry,
    _place: Registration,
}

/// Those that wait, to be found when they are late or killed.
#[derive(Default)]
pub(crate) struct ParkedRequests {
    waiting: Arc<Mutex<HashMap<u64, Late>>>,
    last: AtomicU64,
}

struct Late {
    operation: Arc<Operation>,
    until: Duration,
    waker: Arc<Waker>,
}

/// A place among them, left when this is dropped.
struct Entry {
    waiting: Arc<Mutex<HashMap<u64, Late>>>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.number);
    }
}

impl ParkedRequests {
    /// `operation` waits until `waker` is called, by what `place` is for, or at `until`.
    pub(crate) fn park(
        &self,
        operation: &Arc<Operation>,
        until: Duration,
        waker: Arc<Waker>,
        place: Registration,
        cursor: Option<Box<OpenCursor>>,
    ) -> Parked {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let late = Late {
            operation: operation.clone(),
            until,
            waker,
        };
        self.waiting.lock().insert(number, late);
        let waiting = self.waiting.clone();
        Parked {
            until,
            cursor,
            _entry: Entry { waiting, number },
            _place: place,
        }
    }

    /// Calls those whose patience is over or whose operation has to end. To be called several times a second.
    pub(crate) fn end_late(&self) {
        let called: Vec<_> = {
            let mut waiting = self.waiting.lock();
            let is_over =
                |late: &Late| late.operation.clock().monotonic() >= late.until || late.operation.check_now().is_err();
            waiting.extract_if(|_, late| is_over(late)).collect()
        };
        called.iter().for_each(|(_, late)| late.waker.wake());
    }
}
