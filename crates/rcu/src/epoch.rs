//! Epochs: when nobody can still see what was taken out of a cell (Fraser, *Practical lock-freedom*, 2004, ch. 5).
//!
//! A number, the *epoch*, rises when every thread that reads has seen it. A thread that reads is *pinned* in the epoch
//! it found. What was retired by epoch `e` is out of everybody's sight when the epoch is `e + 2`: who was pinned before
//! it left its cell was in epoch `e` at most, and keeps the epoch from rising beyond the next one.
//!
//! Each thread frees what it has retired, a few values at a time and about as fast as it retires them, so that no
//! operation pays for many. What is too much for one thread to keep, and what a thread leaves behind that ends, is for
//! all (`garbage`), readers too, who free nothing else. And what a thread has that rests, any thread may take that
//! flushes: values own more than memory, blocks of files among it, and a thread may rest for days.
//!
//! The schedule checker runs all threads of a test on one thread of the system: there each checked thread is a
//! participant of its own, and each thread of the system has an epoch of its own.

use crate::garbage::{EPOCHS_IN_SIGHT, Garbage, Group, Queue};
use crate::retired::Retired;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};

/// Values that are freed with a guard.
const STEP: usize = 8;
/// And by a flush.
const FLUSHED_MAX: usize = 512;
/// Pins after which a thread that retires nothing any more looks after what it still has.
const PINS_BETWEEN_LOOKS: u32 = 64;
/// A thread leaves it to others to ask for the next epoch once for so many participants: to ask costs a line of the
/// processor's cache each.
const PARTICIPANTS_PER_TURN: usize = 16;

/// A line of the processor's cache, and the one that is fetched with it.
#[repr(align(128))]
struct Padded<T>(T);

/// What a thread says of itself, and what it has retired.
struct Participant {
    /// Twice the epoch in which it is or was pinned, and one more while it is ([`PINNED`]). Or one of the two below.
    state: Padded<AtomicU64>,
    /// Says to a thread that came back while it was [`CLAIMED`] that its garbage is its own again.
    is_given_back: AtomicBool,
    /// Of the thread while it is pinned; else of whoever has made the state `CLAIMED`.
    garbage: RefCell<Garbage>,
}

/// Of a state: the thread has a guard.
const PINNED: u64 = 1;
/// The thread rests and has no garbage.
const NOTHING: u64 = 0;
/// The thread rests, or did a moment ago, and another takes its garbage.
const CLAIMED: u64 = !PINNED;

fn pinned_in(epoch: u64) -> u64 {
    (epoch << 1) | PINNED
}

/// The epoch in which a thread that rests was pinned last; `None` of one that is pinned, claimed or has nothing.
fn rested_since(state: u64) -> Option<u64> {
    (state & PINNED == 0 && state != NOTHING && state != CLAIMED).then_some(state >> 1)
}

// SAFETY: `garbage` alone is not `Sync`. Its thread uses it between `enter` and `leave`, and `claim` between two
// exchanges of the state, from rest to `CLAIMED` and back. `enter` waits where it comes between the two; a state that
// is pinned or claimed is not claimed. Each of these changes releases, and acquires what the one before it released.
unsafe impl Sync for Participant {}

impl Participant {
    fn new() -> Self {
        Self {
            state: Padded(AtomicU64::new(NOTHING)),
            is_given_back: AtomicBool::new(false),
            garbage: RefCell::default(),
        }
    }

    /// Whether it keeps the epoch from rising above `epoch`.
    fn is_behind(&self, epoch: u64) -> bool {
        let state = self.state.0.load(Ordering::Relaxed);
        state & PINNED != 0 && state != pinned_in(epoch)
    }

    /// Whether its thread has not been seen for as long as garbage waits.
    fn has_rested(&self, epoch: u64) -> bool {
        rested_since(self.state.0.load(Ordering::Relaxed)).is_some_and(|last| last + EPOCHS_IN_SIGHT < epoch)
    }

    /// Says that its thread is pinned, before that loads anything.
    #[inline]
    fn enter(&self, epoch: u64) {
        let state = pinned_in(epoch);
        crate::schedule_point();
        // A full fence, and what was read under the guard before is released, too.
        let before = if cfg!(all(target_arch = "x86_64", not(miri))) {
            // There a swap is a full fence, and the cheaper one. The language promises less, hence the second line.
            let before = self.state.0.swap(state, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
            before
        } else {
            let before = self.state.0.swap(state, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            before
        };
        if before == CLAIMED {
            self.wait_for_garbage();
        }
        crate::schedule_point();
    }

    #[cold]
    fn wait_for_garbage(&self) {
        while !self.is_given_back.swap(false, Ordering::Acquire) {
            crate::yield_now();
        }
    }

    /// Says that its thread has no guard any more.
    #[inline]
    fn leave(&self) {
        crate::schedule_point();
        let state = self.state.0.load(Ordering::Relaxed);
        self.state.0.store(state & !PINNED, Ordering::Release);
    }

    /// Takes the garbage of a thread that rests. Nothing where that is over, or another was faster. `now` tells the
    /// epoch by which all of it is retired; that in which the thread was pinned does not: it may have pinned itself in
    /// one that was over by then, and what it gave up can have been seen in any until now.
    fn claim(&self, now: impl FnOnce() -> u64) -> Vec<Group> {
        let state = self.state.0.load(Ordering::Relaxed);
        crate::schedule_point();
        let claims = |state| {
            let claim = self
                .state
                .0
                .compare_exchange(state, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
            claim.is_ok()
        };
        if rested_since(state).is_none() || !claims(state) {
            return Vec::new();
        }
        let mut garbage = self.garbage.borrow_mut();
        crate::schedule_point();
        let groups = garbage.take_all(now()).collect();
        drop(garbage);
        let rests = self
            .state
            .0
            .compare_exchange(CLAIMED, NOTHING, Ordering::Release, Ordering::Relaxed);
        if rests.is_err() {
            // It has come back, and waits.
            self.is_given_back.store(true, Ordering::Release);
        }
        groups
    }
}

/// The epoch, who takes part, and the garbage that is for all.
struct Epochs {
    epoch: Padded<AtomicU64>,
    participants: Mutex<Vec<Arc<Participant>>>,
    queue: Queue,
}

#[cfg(not(feature = "shuttle"))]
fn epochs() -> &'static Epochs {
    static EPOCHS: Epochs = Epochs::new();
    &EPOCHS
}

#[cfg(feature = "shuttle")]
fn epochs() -> &'static Epochs {
    std::thread_local! {
        /// Never dropped: what it still has to free belongs to executions that are over.
        static EPOCHS: &'static Epochs = Box::leak(Box::new(Epochs::new()));
    }
    EPOCHS.with(|epochs| *epochs)
}

impl Epochs {
    const fn new() -> Self {
        Self {
            epoch: Padded(AtomicU64::new(1)),
            participants: Mutex::new(Vec::new()),
            queue: Queue::new(),
        }
    }

    fn register(&self) -> Arc<Participant> {
        let participant = Arc::new(Participant::new());
        self.participants.lock().push(participant.clone());
        participant
    }

    fn leave(&self, participant: &Arc<Participant>) {
        let mut participants = self.participants.lock();
        let at = participants.iter().position(|other| Arc::ptr_eq(other, participant));
        participants.swap_remove(at.expect("it was registered"));
    }

    /// The epoch by which everything is retired that has left its cell before the call.
    fn now(&self) -> u64 {
        // Pairs with the one in `enter`: a reader that has not seen it leave is in this epoch at most.
        fence(Ordering::SeqCst);
        self.epoch.0.load(Ordering::Relaxed)
    }

    /// Lets the epoch rise if everybody who is pinned has seen it. Answers the epoch.
    #[cold]
    fn advance(&self) -> u64 {
        let epoch = self.now();
        crate::schedule_point();
        let is_seen = self
            .participants
            .try_lock()
            .is_some_and(|participants| !participants.iter().any(|participant| participant.is_behind(epoch)));
        // What they read before is over before anything is freed.
        fence(Ordering::Acquire);
        crate::schedule_point();
        if is_seen {
            // Where another thread was faster, it may have risen since they were asked.
            let _ = self
                .epoch
                .0
                .compare_exchange(epoch, epoch + 1, Ordering::Release, Ordering::Relaxed);
        }
        self.epoch.0.load(Ordering::Acquire)
    }

    /// Makes what threads have that rest everybody's.
    fn take_from_rested(&self, epoch: u64) {
        let rested = |participant: &&Arc<Participant>| participant.has_rested(epoch);
        let rested: Vec<_> = match self.participants.try_lock() {
            Some(participants) => participants.iter().filter(rested).cloned().collect(),
            None => return,
        };
        for participant in rested {
            let groups = participant.claim(|| self.now());
            groups.into_iter().for_each(|group| self.queue.push(group));
        }
    }
}

/// A thread's part in the epochs.
struct Local {
    participant: Arc<Participant>,
    /// Guards of this thread.
    guards: Cell<usize>,
    /// Pins until it looks after its garbage without having retired more.
    pins_left: Cell<u32>,
    /// Times that it leaves it to others to ask for the next epoch.
    turns_left: Cell<usize>,
}

crate::thread_local! {
    static LOCAL: Rc<Local> = Local::register();
}

impl Local {
    fn register() -> Rc<Self> {
        Rc::new(Self {
            participant: epochs().register(),
            guards: Cell::new(0),
            pins_left: Cell::new(PINS_BETWEEN_LOOKS),
            turns_left: Cell::new(0),
        })
    }

    #[inline]
    fn pin(self: &Rc<Self>) -> Guard {
        let guards = self.guards.get();
        self.guards.set(guards + 1);
        let guard = Guard { local: self.clone() };
        if guards == 0 {
            self.enter();
            let pins_left = self.pins_left.get();
            if pins_left == 0 {
                self.tend();
            } else {
                self.pins_left.set(pins_left - 1);
            }
        }
        guard
    }

    #[inline]
    fn enter(&self) {
        // It may have risen meanwhile: the thread is then a little longer in the way than it need be.
        self.participant.enter(epochs().epoch.0.load(Ordering::Relaxed));
    }

    #[inline]
    fn leave(&self) {
        let guards = self.guards.get();
        if guards == 1 {
            self.participant.leave();
        }
        self.guards.set(guards - 1);
    }

    /// What this thread has retired; only while it is pinned.
    #[inline]
    fn garbage(&self) -> RefMut<'_, Garbage> {
        debug_assert!(
            self.participant.state.0.load(Ordering::Relaxed) & PINNED != 0,
            "another thread may take it"
        );
        self.participant.garbage.borrow_mut()
    }

    /// Keeps a value until nobody can see it.
    #[inline]
    fn retire(&self, retired: Retired) {
        let is_group = self.garbage().push(retired);
        if is_group {
            self.close_group();
        }
    }

    /// Notes by which epoch the values retired last are, and has the next first guard free some.
    #[cold]
    fn close_group(&self) {
        let epochs = epochs();
        crate::schedule_point();
        let overflow = self.garbage().close(epochs.now());
        if let Some(group) = overflow {
            epochs.queue.push(group);
        }
        self.pins_left.set(0);
    }

    /// Frees a few of those that can be freed; the next first guard goes on if there are more. With a thread's first
    /// guard, under which it holds no lock that a value's drop may take.
    #[cold]
    fn tend(&self) {
        let epochs = epochs();
        let mut epoch = epochs.epoch.0.load(Ordering::Acquire);
        if self.garbage().waits_in(epoch) {
            epoch = self.ask();
        }
        let own = self.garbage().take(epoch);
        if let Some(mut group) = own {
            // Where the garbage is not borrowed: values retire what they hold.
            group.free(STEP);
            self.garbage().put_back(group);
        } else if let Some(mut group) = epochs.queue.take(epoch) {
            group.free(STEP);
            epochs.queue.put_back(group);
        }
        let goes_on = self.garbage().can_free(epoch);
        self.pins_left.set(if goes_on { 0 } else { PINS_BETWEEN_LOOKS });
    }

    /// Asks for the next epoch, or leaves that to others. Answers the epoch.
    fn ask(&self) -> u64 {
        let epochs = epochs();
        match self.turns_left.get() {
            0 => {
                let participants = epochs
                    .participants
                    .try_lock()
                    .map_or(0, |participants| participants.len());
                self.turns_left.set(participants / PARTICIPANTS_PER_TURN);
                epochs.advance()
            }
            left => {
                self.turns_left.set(left - 1);
                epochs.epoch.0.load(Ordering::Acquire)
            }
        }
    }

    /// Frees what can be freed, up to a bound.
    fn flush(&self) {
        let epochs = epochs();
        if self.garbage().has_open() {
            self.close_group();
        }
        let epoch = epochs.advance();
        let mut left = FLUSHED_MAX;
        while left > 0 {
            let own = self.garbage().take(epoch);
            let found = own.or_else(|| epochs.queue.take(epoch));
            let Some(mut group) = found.or_else(|| {
                epochs.take_from_rested(epoch);
                epochs.queue.take(epoch)
            }) else {
                return;
            };
            left = left.saturating_sub(group.free(usize::MAX));
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let epochs = epochs();
        // Without a guard, and for good: nobody claims it any more.
        self.enter();
        for group in self.garbage().take_all(epochs.now()) {
            epochs.queue.push(group);
        }
        epochs.leave(&self.participant);
    }
}

/// Keeps what is loaded under it from being freed. Of one thread.
pub struct Guard {
    local: Rc<Local>,
}

impl Guard {
    /// Frees some of what nobody can see any more, whoever retired it. A call does not do all: the epoch rises once,
    /// and what is freed may retire more.
    pub fn flush(&self) {
        self.local.flush();
    }

    /// Keeps a value until no guard of now is left.
    #[inline]
    pub(crate) fn retire(&self, retired: Retired) {
        self.local.retire(retired);
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        self.local.leave();
    }
}

/// Whether this thread has a guard.
#[inline]
pub fn is_pinned() -> bool {
    LOCAL.try_with(|local| local.guards.get() > 0).unwrap_or(false)
}

/// Pins the current epoch for this thread.
#[inline]
pub fn pin() -> Guard {
    // A thread that is ending has no part in the epochs any more, and may still drop cells.
    LOCAL.try_with(Local::pin).unwrap_or_else(|_| Local::register().pin())
}

/// A point where the schedule checker may switch threads; nothing at all without it.
#[inline(always)]
pub fn schedule_point() {
    #[cfg(feature = "shuttle")]
    {
        // Not a yield: schedulers that have priorities take a yield as a wish to come last.
        use shuttle::sync::atomic::{AtomicBool, Ordering};
        AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

/// Lets other threads run, for who waits for one of them.
pub fn yield_now() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
    #[cfg(not(feature = "shuttle"))]
    std::thread::yield_now();
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::RcuOption;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Flushes, until so many are freed; tests beside this one may hold guards for a while.
    #[track_caller]
    fn flush_until(freed: &AtomicUsize, expected: usize) {
        const TRIES: usize = 100_000;
        for _ in 0..TRIES {
            if freed.load(Ordering::SeqCst) == expected {
                return;
            }
            pin().flush();
            crate::yield_now();
        }
        panic!("{} are freed, not {expected}", freed.load(Ordering::SeqCst));
    }

    /// One value or a hundred, of which a thread keeps the last few in a group that is still open: each time it rests
    /// anew, and comes back for more.
    #[test]
    fn what_a_thread_has_that_rests_others_free() {
        let freed = Arc::new(AtomicUsize::new(0));
        let (order, orders) = mpsc::channel::<usize>();
        let (done, dones) = mpsc::channel();
        let resting = {
            let freed = freed.clone();
            std::thread::spawn(move || {
                for count in orders {
                    let cell = RcuOption::none();
                    for _ in 0..count {
                        cell.replace(Some(Counted(freed.clone())), &pin());
                    }
                    cell.replace(None, &pin());
                    done.send(()).expect("the test listens");
                }
            })
        };
        let mut expected = 0;
        for count in [1, 100, 1, 40] {
            order.send(count).expect("the thread listens");
            dones.recv().expect("it is done");
            expected += count;
            flush_until(&freed, expected);
        }
        drop(order);
        resting.join().expect("it ends");
        assert_eq!(freed.load(Ordering::SeqCst), expected, "each once");
    }

    /// Threads that come back all the time, beside one that takes what they have.
    #[test]
    fn a_thread_that_comes_back_while_its_garbage_is_taken_waits_for_it() {
        const THREADS: usize = 3;
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        let freed = Arc::new(AtomicUsize::new(0));
        let running: Vec<_> = (0..THREADS)
            .map(|_| {
                let freed = freed.clone();
                std::thread::spawn(move || {
                    let cell = RcuOption::none();
                    for round in 0..rounds {
                        cell.replace(Some(Counted(freed.clone())), &pin());
                        if round % 8 == 0 {
                            crate::yield_now();
                        }
                    }
                })
            })
            .collect();
        while running.iter().any(|thread| !thread.is_finished()) {
            pin().flush();
        }
        running.into_iter().for_each(|thread| thread.join().expect("it ends"));
        flush_until(&freed, THREADS * rounds);
    }
}
