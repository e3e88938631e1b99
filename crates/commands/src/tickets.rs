//! Admission: so many reads and writes run at a time, and who comes later waits for a ticket, first come, first served.
//!
//! Beyond a few for each processor, more operations side by side finish none sooner: they take memory and processor
//! time from each other, and from those that answer `hello` and `ping`. A queue bounds what overload costs, and a bound
//! on the queue tells clients of it while they can still be told. A request of a connection waits without a thread: it
//! is handled anew when it has its ticket ([`crate::Request::resume`]).
//!
//! Nobody waits for a ticket who holds what a holder of a ticket may wait for. So none is taken by commands that are
//! neither reads nor writes (who ends something others wait for: `commitTransaction`, `fsyncUnlock`, `killOp`; who
//! builds or drops; monitors; members) and by statements of transactions, which hold locks; and it is taken before a
//! session is checked out. A cursor that waits for data gives its ticket back first. An operation that waits for a lock
//! lends its ticket: the lock may be an idle transaction's, and others have work that needs none of it. It goes on with
//! its own, without waiting, so that more than there are tickets may run for a moment.

use crate::error::{CommandError, Result};
use crate::metrics::OperationKind;
use crate::request::Resume;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use storage::{Operation, RunPermit, StorageError};

/// Between two looks at whether a waiting operation was killed.
const LOOK: Duration = Duration::from_millis(50);

/// So many of a pool's tickets may be lent at a time: who waits for a lock has a thread.
const LENT_MAX: usize = 1024;

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

    /// Has requests that wait without a thread, and are late or killed, told so. To be called now and then.
    pub(crate) fn end_late(&self) {
        self.read.end_late();
        self.write.end_late();
    }
}

/// A permission to run, until it is dropped.
pub(crate) struct Ticket {
    pool: Arc<Pool>,
    operation: Arc<Operation>,
}

impl Ticket {
    fn new(pool: &Arc<Pool>, operation: &Arc<Operation>) -> Self {
        operation.set_permit(Some(pool.clone()));
        Self {
            pool: pool.clone(),
            operation: operation.clone(),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.operation.set_permit(None);
        self.pool.give_back();
    }
}

impl RunPermit for Pool {
    fn lend(&self) -> bool {
        let mut state = self.state.lock();
        if state.lent >= LENT_MAX {
            return false;
        }
        state.lent += 1;
        state.figures.out -= 1;
        let called = state.hand_out();
        drop(state);
        called.inspect(|place| call(place));
        true
    }

    fn take_back(&self) {
        let mut state = self.state.lock();
        state.lent -= 1;
        state.figures.out += 1;
    }
}

/// How many may wait before one that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// As many as are set; beyond them it is refused.
    Bounded,
    /// However many do: it is never refused.
    Unbounded,
}

/// A permission, or a place in the queue.
pub(crate) enum Turn {
    Now(Ticket),
    Later(Waiting),
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
    /// Tickets of those that wait for a lock. They are not out.
    lent: usize,
    queue_max: usize,
    queue: VecDeque<Arc<Place>>,
}

/// A place in the queue. Its fields change under the pool's lock.
struct Place {
    operation: Arc<Operation>,
    since: Duration,
    state: Mutex<PlaceState>,
    wake: Condvar,
}

struct PlaceState {
    has_ticket: bool,
    /// Of a request that waits without a thread.
    resume: Option<Resume>,
}

/// How a place was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Its ticket is the caller's now.
    WithTicket,
    WithoutTicket,
}

impl Place {
    fn has_ticket(&self) -> bool {
        self.state.lock().has_ticket
    }
}

impl State {
    /// Takes a ticket that nobody waits for.
    fn take_now(&mut self) -> bool {
        debug_assert!(
            self.queue.is_empty() || self.figures.out >= self.figures.total,
            "nobody waits while there is a ticket"
        );
        let is_free = self.queue.is_empty() && self.figures.out < self.figures.total;
        self.figures.out += usize::from(is_free);
        is_free
    }

    /// Gives a ticket to the one that waits first, if there is one. It has to be called once the lock is free.
    #[must_use]
    fn hand_out(&mut self) -> Option<Arc<Place>> {
        if self.figures.out >= self.figures.total {
            return None;
        }
        let first = self.queue.pop_front()?;
        self.figures.out += 1;
        self.figures.queued_time += first.operation.clock().monotonic().saturating_sub(first.since);
        first.state.lock().has_ticket = true;
        Some(first)
    }

    /// Gives a place up. Whether it has a ticket is known under the pool's lock only: once that is free somebody may
    /// hand one out, which nobody would give back then.
    #[must_use]
    fn leave(&mut self, place: &Arc<Place>) -> Left {
        if place.has_ticket() {
            return Left::WithTicket;
        }
        let before = self.queue.len();
        self.queue.retain(|waiting| !Arc::ptr_eq(waiting, place));
        if self.queue.len() < before {
            self.figures.canceled += 1;
            self.figures.queued_time += place.operation.clock().monotonic().saturating_sub(place.since);
        }
        Left::WithoutTicket
    }
}

fn call(place: &Place) {
    let resume = place.state.lock().resume.take();
    match resume {
        Some(resume) => resume(),
        None => {
            place.wake.notify_one();
        }
    }
}

/// A request that waits, or has waited, without a thread. Dropped it leaves the queue, or gives its ticket back.
pub(crate) struct Waiting {
    pool: Arc<Pool>,
    /// `None` once it is over.
    place: Option<Arc<Place>>,
}

impl Waiting {
    /// Its ticket, once it was called.
    ///
    /// Errors: why the operation has to end.
    pub(crate) fn finish(mut self) -> Result<Ticket> {
        let place = self.place.take().expect("it is finished once");
        if self.pool.state.lock().leave(&place) == Left::WithTicket {
            return Ok(Ticket::new(&self.pool, &place.operation));
        }
        place.operation.check_now().map_err(StorageError::from)?;
        // It was called for another reason, and waits on with a thread.
        self.pool.take(&place.operation, Queue::Unbounded)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let left = self.pool.state.lock().leave(&place);
        if left == Left::WithTicket {
            self.pool.give_back();
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
                lent: 0,
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
        let called: Vec<_> = std::iter::from_fn(|| state.hand_out()).collect();
        drop(state);
        called.iter().for_each(|place| call(place));
    }

    /// Takes a ticket, or waits for one.
    ///
    /// Errors: `IngressRequestRateLimitExceeded` when too many wait already; why the operation has to end.
    pub(crate) fn take(self: &Arc<Self>, operation: &Arc<Operation>, bound: Queue) -> Result<Ticket> {
        let mut state = self.state.lock();
        if state.take_now() {
            return Ok(Ticket::new(self, operation));
        }
        let place = self.queue(&mut state, operation, bound, None)?;
        let _asleep = vfs::asleep();
        let ended = loop {
            let left = operation
                .time_left()
                .unwrap_or(LOOK)
                .clamp(Duration::from_millis(1), LOOK);
            place.wake.wait_for(&mut state, left);
            if place.has_ticket() {
                drop(state);
                return Ok(Ticket::new(self, operation));
            }
            if let Err(reason) = operation.check_now() {
                break reason;
            }
        };
        let left = state.leave(&place);
        debug_assert_eq!(left, Left::WithoutTicket, "the lock was held since it was looked for");
        Err(StorageError::from(ended).into())
    }

    /// Takes a ticket, or a place in the queue without a thread: `resume` is made then, and called once there is a
    /// ticket or the operation has to end. Errors as those of [`Pool::take`].
    pub(crate) fn take_or_queue(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        bound: Queue,
        resume: &dyn Fn() -> Resume,
    ) -> Result<Turn> {
        let mut state = self.state.lock();
        if state.take_now() {
            return Ok(Turn::Now(Ticket::new(self, operation)));
        }
        let place = self.queue(&mut state, operation, bound, Some(resume()))?;
        drop(state);
        Ok(Turn::Later(Waiting {
            pool: self.clone(),
            place: Some(place),
        }))
    }

    fn queue(
        &self,
        state: &mut State,
        operation: &Arc<Operation>,
        bound: Queue,
        resume: Option<Resume>,
    ) -> Result<Arc<Place>> {
        if bound == Queue::Bounded && state.queue.len() >= state.queue_max {
            return Err(self.refusal(state));
        }
        let place = Arc::new(Place {
            operation: operation.clone(),
            since: operation.clock().monotonic(),
            state: Mutex::new(PlaceState {
                has_ticket: false,
                resume,
            }),
            wake: Condvar::new(),
        });
        state.queue.push_back(place.clone());
        state.figures.ever_queued += 1;
        Ok(place)
    }

    /// The error for who does not even get a place in the queue, because too many wait for a thread.
    pub(crate) fn refuse(&self) -> CommandError {
        self.refusal(&mut self.state.lock())
    }

    #[cold]
    fn refusal(&self, state: &mut State) -> CommandError {
        state.figures.refused += 1;
        CommandError::overloaded(format!(
            "the server is overloaded: {} operations run, {} wait for a {} ticket, and more than may for either",
            state.figures.out,
            state.queue.len(),
            self.what
        ))
    }

    fn give_back(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.figures.out > 0, "a ticket is given back once");
        state.figures.out -= 1;
        let called = state.hand_out();
        drop(state);
        if let Some(place) = called {
            call(&place);
        }
    }

    /// See [`Tickets::end_late`].
    fn end_late(&self) {
        let mut state = self.state.lock();
        let has_ended = |place: &Arc<Place>| place.operation.check_now().is_err();
        // Who waits with a thread looks by itself.
        let is_called = |place: &Arc<Place>| place.state.lock().resume.is_some() && has_ended(place);
        let called: Vec<_> = state.queue.iter().filter(|place| is_called(place)).cloned().collect();
        for place in &called {
            let left = state.leave(place);
            debug_assert_eq!(left, Left::WithoutTicket, "a place in the queue has none");
        }
        drop(state);
        called.iter().for_each(|place| call(place));
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
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use vfs::SystemClock;
    use wire::ErrorCode;

    fn operation() -> Arc<Operation> {
        Arc::new(Operation::new(Arc::new(SystemClock::new()), 1))
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
        let first = pool.take(&operation(), Queue::Bounded).expect("there is one");
        let order = Arc::new(Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for number in 0..4 {
                let (waiting, order) = (pool.clone(), order.clone());
                scope.spawn(move || {
                    let _ticket = waiting.take(&operation(), Queue::Bounded).expect("in time");
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
        let held = pool.take(&operation(), Queue::Bounded).expect("there is one");
        let (killed, late) = (operation(), operation());
        late.set_deadline_ms(1);
        thread::scope(|scope| {
            let (waiting, operation_killed) = (pool.clone(), killed.clone());
            let ended = scope.spawn(move || waiting.take(&operation_killed, Queue::Bounded).map(drop));
            until(|| pool.figures().queued == 1);
            let error = pool
                .take(&late, Queue::Bounded)
                .map(drop)
                .expect_err("its time is over");
            assert_eq!(error.code, ErrorCode::MaxTimeMSExpired);
            let waiting = pool.clone();
            let served = scope.spawn(move || waiting.take(&operation(), Queue::Bounded).map(drop));
            until(|| pool.figures().queued == 2);
            let error = pool
                .take(&operation(), Queue::Bounded)
                .map(drop)
                .expect_err("the queue is full");
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
    fn who_waits_for_a_lock_lends_its_ticket_and_goes_on_without_waiting() {
        let pool = Pool::new("write");
        pool.set_bounds(1, 10);
        let first = pool.take(&operation(), Queue::Bounded).expect("there is one");
        let called = Arc::new(AtomicUsize::new(0));
        let second = later(
            pool.take_or_queue(&operation(), Queue::Bounded, &calls(&called))
                .expect("a place"),
        );
        assert!(pool.lend());
        let second = second.finish().expect("the first one's");
        pool.take_back();
        assert_eq!(pool.figures().out, 2, "one too many");
        let third = later(
            pool.take_or_queue(&operation(), Queue::Bounded, &calls(&called))
                .expect("a place"),
        );
        drop(second);
        assert_eq!((pool.figures().out, pool.figures().queued), (1, 1));
        drop(first);
        drop(third.finish().expect("in time"));
        assert_eq!((pool.figures().out, called.load(Ordering::SeqCst)), (0, 2));
    }

    /// Writes without a reply were thrown away under load, and nobody was told.
    #[test]
    fn whoever_would_not_hear_of_a_refusal_waits_however_many_do() {
        let pool = Pool::new("write");
        pool.set_bounds(1, 1);
        let called = Arc::new(AtomicUsize::new(0));
        let resume = calls(&called);
        let first = pool.take(&operation(), Queue::Bounded).expect("there is one");
        let full = later(
            pool.take_or_queue(&operation(), Queue::Bounded, &resume)
                .expect("a place"),
        );
        let refused = pool.take_or_queue(&operation(), Queue::Bounded, &resume).map(drop);
        assert!(refused.is_err());
        let unheard: Vec<_> = (0..100)
            .map(|_| {
                later(
                    pool.take_or_queue(&operation(), Queue::Unbounded, &resume)
                        .expect("a place"),
                )
            })
            .collect();
        assert_eq!((pool.figures().queued, pool.figures().refused), (101, 1));
        drop(first);
        drop(full);
        for waiting in unheard {
            drop(waiting.finish().expect("its turn"));
        }
        assert_eq!(called.load(Ordering::SeqCst), 101);
    }

    #[test]
    fn more_tickets_serve_who_waits_and_fewer_count_once_they_are_back() {
        let pool = Pool::new("read");
        pool.set_bounds(1, 10);
        let first = pool.take(&operation(), Queue::Bounded).expect("there is one");
        thread::scope(|scope| {
            let waiting = pool.clone();
            let second = scope.spawn(move || waiting.take(&operation(), Queue::Bounded).expect("in time"));
            until(|| pool.figures().queued == 1);
            pool.set_bounds(2, 10);
            let second = second.join().expect("no panic");
            pool.set_bounds(1, 10);
            drop(first);
            assert_eq!(pool.figures().out, 1);
            let waiting = pool.clone();
            let third = scope.spawn(move || drop(waiting.take(&operation(), Queue::Bounded).expect("in time")));
            until(|| pool.figures().queued == 1);
            drop(second);
            third.join().expect("no panic");
        });
        assert_eq!(pool.figures().out, 0);
    }

    /// Counts the calls, and answers what is to be called.
    fn calls(count: &Arc<AtomicUsize>) -> impl Fn() -> Resume {
        let count = count.clone();
        move || {
            let count = count.clone();
            Box::new(move || {
                count.fetch_add(1, Ordering::SeqCst);
            })
        }
    }

    fn later(turn: Turn) -> Waiting {
        match turn {
            Turn::Later(waiting) => waiting,
            Turn::Now(_) => panic!("there is no ticket"),
        }
    }

    #[test]
    fn who_waits_without_a_thread_is_called_once_in_turn() {
        let pool = Pool::new("read");
        pool.set_bounds(1, 2);
        let called = Arc::new(AtomicUsize::new(0));
        let resume = calls(&called);
        let first = pool.take(&operation(), Queue::Bounded).expect("there is one");
        let second = later(
            pool.take_or_queue(&operation(), Queue::Bounded, &resume)
                .expect("a place"),
        );
        let third = later(
            pool.take_or_queue(&operation(), Queue::Bounded, &resume)
                .expect("a place"),
        );
        let error = pool.take_or_queue(&operation(), Queue::Bounded, &resume).map(drop);
        assert_eq!(
            error.expect_err("the queue is full").code,
            ErrorCode::IngressRequestRateLimitExceeded
        );
        assert_eq!(called.load(Ordering::SeqCst), 0);
        drop(first);
        assert_eq!((called.load(Ordering::SeqCst), pool.figures().queued), (1, 1));
        let second = second.finish().expect("it has one");
        assert_eq!(pool.figures().out, 1);
        drop(second);
        // Who leaves with a ticket that it has not taken gives it back, and the queue is empty.
        assert_eq!(called.load(Ordering::SeqCst), 2);
        drop(third);
        let Figures {
            out, queued, canceled, ..
        } = pool.figures();
        assert_eq!((out, queued, canceled), (0, 0, 0));
    }

    /// A ticket that was handed out while its place was given up was lost.
    #[test]
    fn whoever_is_handed_a_ticket_while_it_gives_up_gives_it_back() {
        let pool = Pool::new("read");
        pool.set_bounds(1, 1);
        let called = Arc::new(AtomicUsize::new(0));
        let resume = calls(&called);
        for round in 0..2000 {
            let held = pool.take(&operation(), Queue::Bounded).expect("there is one");
            let ended = operation();
            let waiting = later(pool.take_or_queue(&ended, Queue::Bounded, &resume).expect("a place"));
            ended.kill();
            thread::scope(|scope| {
                scope.spawn(move || drop(held));
                match round % 2 {
                    0 => drop(waiting.finish()),
                    _ => drop(waiting),
                }
            });
            assert_eq!((pool.figures().out, pool.figures().queued), (0, 0));
        }
    }

    #[test]
    fn who_waits_without_a_thread_and_is_late_or_gone_leaves_the_queue() {
        let pool = Pool::new("read");
        pool.set_bounds(1, 9);
        let called = Arc::new(AtomicUsize::new(0));
        let resume = calls(&called);
        let first = pool.take(&operation(), Queue::Bounded).expect("there is one");
        let (late, killed) = (operation(), operation());
        let late_waiting = later(pool.take_or_queue(&late, Queue::Bounded, &resume).expect("a place"));
        let killed_waiting = later(pool.take_or_queue(&killed, Queue::Bounded, &resume).expect("a place"));
        let gone = later(
            pool.take_or_queue(&operation(), Queue::Bounded, &resume)
                .expect("a place"),
        );
        pool.end_late();
        assert_eq!((called.load(Ordering::SeqCst), pool.figures().queued), (0, 3));
        late.set_deadline_ms(1);
        until(|| late.check_now().is_err());
        killed.kill();
        pool.end_late();
        pool.end_late();
        assert_eq!((called.load(Ordering::SeqCst), pool.figures().queued), (2, 1));
        let codes =
            [late_waiting, killed_waiting].map(|waiting| waiting.finish().map(drop).map_err(|error| error.code));
        assert_eq!(codes, [Err(ErrorCode::MaxTimeMSExpired), Err(ErrorCode::Interrupted)]);
        drop(gone);
        drop(first);
        let Figures {
            out, queued, canceled, ..
        } = pool.figures();
        assert_eq!((out, queued, canceled), (0, 0, 3));
    }
}
