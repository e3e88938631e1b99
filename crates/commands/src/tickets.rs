//! Admission: so many reads and writes run at a time, and who comes later waits for a ticket, first come, first served.
//!
//! Beyond a few for each processor, more operations side by side finish none sooner: they take memory and processor
//! time from each other, and from those that answer `hello` and `ping`. A queue bounds what overload costs, and a bound
//! on the queue tells clients of it while they can still be told.
//!
//! Nobody waits for a ticket who holds what a holder of a ticket may wait for. So none is taken by commands that are
//! neither reads nor writes (who ends something others wait for: `commitTransaction`, `fsyncUnlock`, `killOp`; who
//! builds or drops; monitors; members), by statements of transactions, which hold locks, and before a session is
//! checked out. A cursor that waits for data gives its ticket back first.

use crate::error::{CommandError, Result};
use crate::metrics::OperationKind;
use bson::doc;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use storage::{Operation, StorageError};
use wire::ErrorCode;

/// Between two looks at whether a waiting operation was killed.
const LOOK: Duration = Duration::from_millis(50);

/// The tickets of reads and those of writes.
pub(crate) struct Tickets {
    pub(crate) read: Arc<Pool>,
    pub(crate) write: Arc<Pool>,
}

impl Tickets {
    /// Without bounds until they are set.
    pub(crate) fn new() -> Self {
        Self {
            read: Pool::new("read"),
            write: Pool::new("write"),
        }
    }

    /// Those that commands of a kind need.
    pub(crate) fn of(&self, kind: OperationKind) -> Option<&Arc<Pool>> {
        match kind {
            OperationKind::Query | OperationKind::GetMore => Some(&self.read),
            OperationKind::Insert | OperationKind::Update | OperationKind::Remove => Some(&self.write),
            OperationKind::Command => None,
        }
    }
}

/// A permission to run, until it is dropped.
pub(crate) struct Ticket(Arc<Pool>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Tickets of one sort.
pub(crate) struct Pool {
    what: &'static str,
    state: Mutex<State>,
}

/// What a pool did, for `serverStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) total: usize,
    pub(crate) out: usize,
    pub(crate) queued: usize,
    /// Ever.
    pub(crate) ever_queued: u64,
    pub(crate) canceled: u64,
    pub(crate) refused: u64,
    pub(crate) queued_time: Duration,
}

/// Invariant: nobody waits while there is a ticket, and a place in the queue has none.
struct State {
    figures: Figures,
    queue_max: usize,
    queue: VecDeque<Arc<Place>>,
}

/// Who waits.
#[derive(Default)]
struct Place {
    has_ticket: AtomicBool,
    wake: Condvar,
}

impl State {
    /// Gives tickets to those that wait, as far as there are any.
    fn hand_out(&mut self) {
        while self.figures.out < self.figures.total
            && let Some(first) = self.queue.pop_front()
        {
            self.figures.out += 1;
            first.has_ticket.store(true, Ordering::Relaxed);
            first.wake.notify_one();
        }
    }
}

impl Pool {
    fn new(what: &'static str) -> Arc<Self> {
        let figures = Figures {
            total: usize::MAX,
            ..Figures::default()
        };
        Arc::new(Self {
            what,
            state: Mutex::new(State {
                figures,
                queue_max: usize::MAX,
                queue: VecDeque::new(),
            }),
        })
    }

    /// So many tickets there are, and so many may wait for one. Those that are out stay out.
    pub(crate) fn set_bounds(&self, total: usize, queue_max: usize) {
        let mut state = self.state.lock();
        state.figures.total = total;
        state.queue_max = queue_max;
        state.hand_out();
    }

    /// Takes a ticket, or waits for one.
    ///
    /// Errors: `IngressRequestRateLimitExceeded` when too many wait already; why the operation has to end.
    pub(crate) fn take(self: &Arc<Self>, operation: &Operation) -> Result<Ticket> {
        let mut state = self.state.lock();
        debug_assert!(
            state.queue.is_empty() || state.figures.out >= state.figures.total,
            "nobody waits while there is a ticket"
        );
        if state.queue.is_empty() && state.figures.out < state.figures.total {
            state.figures.out += 1;
            return Ok(Ticket(self.clone()));
        }
        if state.queue.len() >= state.queue_max {
            state.figures.refused += 1;
            let mut error = CommandError::new(
                ErrorCode::IngressRequestRateLimitExceeded,
                format!(
                    "the server is overloaded: {} operations run, and {} wait for a {} ticket",
                    state.figures.out,
                    state.queue.len(),
                    self.what
                ),
            );
            // By these, drivers wait a moment and send it again.
            let labels = doc! { "errorLabels": ["SystemOverloadedError", "RetryableError"] };
            error.extra = Some(Box::new(labels));
            return Err(error);
        }
        let place = Arc::new(Place::default());
        state.queue.push_back(place.clone());
        state.figures.ever_queued += 1;
        let clock = operation.clock();
        let since = clock.monotonic();
        let ended = loop {
            let left = operation
                .time_left()
                .unwrap_or(LOOK)
                .clamp(Duration::from_millis(1), LOOK);
            place.wake.wait_for(&mut state, left);
            if place.has_ticket.load(Ordering::Relaxed) {
                break Ok(());
            }
            if let Err(reason) = operation.check_now() {
                break Err(reason);
            }
        };
        state.figures.queued_time += clock.monotonic().saturating_sub(since);
        if let Err(reason) = ended {
            state.figures.canceled += 1;
            state.queue.retain(|waiting| !Arc::ptr_eq(waiting, &place));
            return Err(StorageError::from(reason).into());
        }
        Ok(Ticket(self.clone()))
    }

    fn give_back(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.figures.out > 0, "a ticket is given back once");
        state.figures.out -= 1;
        state.hand_out();
    }

    /// What it did until now.
    pub(crate) fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures {
            queued: state.queue.len(),
            ..state.figures
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use vfs::SystemClock;

    fn operation() -> Operation {
        Operation::new(Arc::new(SystemClock::new()), 1)
    }

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    #[test]
    fn who_comes_first_runs_first() {
        let pool = Pool::new("read");
        pool.set_bounds(1, 10);
        let first = pool.take(&operation()).expect("there is one");
        let order = Arc::new(Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for number in 0..4 {
                let (waiting, order) = (pool.clone(), order.clone());
                scope.spawn(move || {
                    let _ticket = waiting.take(&operation()).expect("in time");
                    order.lock().push(number);
                });
                until(|| pool.figures().queued == number + 1);
            }
            drop(first);
        });
        assert_eq!(*order.lock(), [0, 1, 2, 3]);
        let Figures {
            out,
            queued,
            ever_queued,
            ..
        } = pool.figures();
        assert_eq!((out, queued, ever_queued), (0, 0, 4));
    }

    #[test]
    fn who_is_killed_or_late_leaves_the_queue_and_a_full_one_is_told() {
        let pool = Pool::new("write");
        pool.set_bounds(1, 2);
        let held = pool.take(&operation()).expect("there is one");
        let (killed, late) = (Arc::new(operation()), operation());
        late.set_deadline_ms(1);
        thread::scope(|scope| {
            let (waiting, operation_killed) = (pool.clone(), killed.clone());
            let ended = scope.spawn(move || waiting.take(&operation_killed).map(drop));
            until(|| pool.figures().queued == 1);
            let error = pool.take(&late).map(drop).expect_err("its time is over");
            assert_eq!(error.code, ErrorCode::MaxTimeMSExpired);
            let waiting = pool.clone();
            let served = scope.spawn(move || waiting.take(&operation()).map(drop));
            until(|| pool.figures().queued == 2);
            let error = pool.take(&operation()).map(drop).expect_err("the queue is full");
            assert_eq!(error.code, ErrorCode::IngressRequestRateLimitExceeded);
            killed.kill();
            let error = ended.join().expect("no panic").expect_err("it was killed");
            assert_eq!(error.code, ErrorCode::Interrupted);
            drop(held);
            assert!(served.join().expect("no panic").is_ok());
        });
        let Figures {
            out,
            queued,
            canceled,
            refused,
            ..
        } = pool.figures();
        assert_eq!((out, queued, canceled, refused), (0, 0, 2, 1));
    }

    #[test]
    fn more_tickets_serve_who_waits_and_fewer_count_once_they_are_back() {
        let pool = Pool::new("read");
        pool.set_bounds(1, 10);
        let first = pool.take(&operation()).expect("there is one");
        thread::scope(|scope| {
            let waiting = pool.clone();
            let second = scope.spawn(move || waiting.take(&operation()).expect("in time"));
            until(|| pool.figures().queued == 1);
            pool.set_bounds(2, 10);
            let second = second.join().expect("no panic");
            pool.set_bounds(1, 10);
            drop(first);
            assert_eq!(pool.figures().out, 1);
            let waiting = pool.clone();
            let third = scope.spawn(move || drop(waiting.take(&operation()).expect("in time")));
            until(|| pool.figures().queued == 1);
            drop(second);
            third.join().expect("no panic");
        });
        assert_eq!(pool.figures().out, 0);
    }
}
