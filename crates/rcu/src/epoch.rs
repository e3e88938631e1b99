//! Epochs: when nobody can still see what was taken out of a cell (Fraser, *Practical lock-freedom*, 2004, ch. 5).
//!
//! A number, the *epoch*, rises when every thread that reads has seen it. A thread that reads is *pinned* in the epoch
//! it found. What was retired by epoch `e` is out of everybody's sight when the epoch is `e + 2`: who was pinned before
//! it left its cell was in epoch `e` at most, and keeps the epoch from rising beyond the next one.
//!
//! Each thread frees what it has retired, a few values at a time and about as fast as it retires them, so that no
//! operation pays for many. What is too much for one thread to keep, and what a thread leaves behind that ends, is for
//! all (`garbage`), readers too, who free nothing else.
//!
//! The schedule checker runs all threads of a test on one thread of the system: there each checked thread is a
//! participant of its own, and each thread of the system has an epoch of its own.

use crate::garbage::{Garbage, Queue};
use crate::retired::Retired;
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

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

/// Where a thread says that it is pinned.
struct Participant {
    /// Twice the epoch and one while it is pinned, otherwise 0.
    state: Padded<AtomicU64>,
}

impl Participant {
    /// Whether it keeps the epoch from rising above `epoch`.
    fn is_behind(&self, epoch: u64) -> bool {
        let state = self.state.0.load(Ordering::Relaxed);
        state != 0 && state != pinned_in(epoch)
    }
}

fn pinned_in(epoch: u64) -> u64 {
    (epoch << 1) | 1
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
        let participant = Arc::new(Participant {
            state: Padded(AtomicU64::new(0)),
        });
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
    garbage: RefCell<Garbage>,
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
            garbage: RefCell::default(),
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

    /// Says that this thread is pinned, before it loads anything.
    #[inline]
    fn enter(&self) {
        // It may have risen meanwhile: the thread is then a little longer in the way than it need be.
        let state = pinned_in(epochs().epoch.0.load(Ordering::Relaxed));
        crate::schedule_point();
        // A full fence, and what was read under the guard before is released, too.
        if cfg!(all(target_arch = "x86_64", not(miri))) {
            // There a swap is a full fence, and the cheaper one. The language promises less, hence the second line.
            self.participant.state.0.swap(state, Ordering::SeqCst);
            compiler_fence(Ordering::SeqCst);
        } else {
            self.participant.state.0.store(state, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        crate::schedule_point();
    }

    #[inline]
    fn leave(&self) {
        let guards = self.guards.get();
        if guards == 1 {
            crate::schedule_point();
            self.participant.state.0.store(0, Ordering::Release);
        }
        self.guards.set(guards - 1);
    }

    /// Keeps a value until nobody can see it.
    #[inline]
    fn retire(&self, retired: Retired) {
        let is_group = self.garbage.borrow_mut().push(retired);
        if is_group {
            self.close_group();
        }
    }

    /// Notes by which epoch the values retired last are, and has the next first guard free some.
    #[cold]
    fn close_group(&self) {
        let epochs = epochs();
        crate::schedule_point();
        let overflow = self.garbage.borrow_mut().close(epochs.now());
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
        if self.garbage.borrow().waits_in(epoch) {
            epoch = self.ask();
        }
        let own = self.garbage.borrow_mut().take(epoch);
        if let Some(mut group) = own {
            // Where the garbage is not borrowed: values retire what they hold.
            group.free(STEP);
            self.garbage.borrow_mut().put_back(group);
        } else if let Some(mut group) = epochs.queue.take(epoch) {
            group.free(STEP);
            epochs.queue.put_back(group);
        }
        let goes_on = self.garbage.borrow().can_free(epoch);
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
        if self.garbage.borrow().has_open() {
            self.close_group();
        }
        let epoch = epochs.advance();
        let mut left = FLUSHED_MAX;
        while left > 0 {
            let own = self.garbage.borrow_mut().take(epoch);
            let Some(mut group) = own.or_else(|| epochs.queue.take(epoch)) else {
                return;
            };
            left = left.saturating_sub(group.free(usize::MAX));
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let epochs = epochs();
        for group in self.garbage.get_mut().take_all(epochs.now()) {
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
