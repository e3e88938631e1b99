//! The lock of one collection with the modes IS, IX, S and X.
//!
//! All of it is one word: counts of the three shared modes, a bit for X and two bits that say somebody waits. Taking
//! and giving back an uncontended lock is one compare-and-swap and one subtraction. Waiters sleep on a condition
//! variable; they set the bits under its mutex before they look a last time, and who gives back looks at the bits, so
//! that no wake-up is lost.
//!
//! A waiting S or X keeps new holders out, so that it is not starved, except operations that hold a collection lock
//! already: those must never wait for somebody who waits (no cycle can form). A [`Claim`] keeps them out, too, for who
//! wants several locks and waits for one of them at a time.

use crate::waiter::WAIT_SLICE;
use crate::{LockMode, Waiter};
use rcu::{Condvar, Mutex, schedule_point};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const IS_ONE: u64 = 1;
const IX_ONE: u64 = 1 << 20;
const S_ONE: u64 = 1 << 40;
const X: u64 = 1 << 60;
/// Somebody waits for S or X.
const PENDING: u64 = 1 << 61;
/// Somebody sleeps.
const SLEEPERS: u64 = 1 << 62;
const IX_MASK: u64 = (S_ONE - 1) & !(IX_ONE - 1);
const S_MASK: u64 = (X - 1) & !(S_ONE - 1);

impl LockMode {
    fn unit(self) -> u64 {
        match self {
            LockMode::IntentShared => IS_ONE,
            LockMode::IntentExclusive => IX_ONE,
            LockMode::Shared => S_ONE,
            LockMode::Exclusive => X,
        }
    }

    /// The bits that keep this mode out.
    fn conflicts(self) -> u64 {
        match self {
            LockMode::IntentShared => X,
            LockMode::IntentExclusive => X | S_MASK,
            LockMode::Shared => X | IX_MASK,
            LockMode::Exclusive => PENDING - 1,
        }
    }
}

#[derive(Default)]
struct Waiting {
    sleepers: u32,
    pending: u32,
    /// The sleepers, by their numbers, and the mode that each wants.
    queue: Vec<(u32, LockMode)>,
}

/// Who has a lock and who waits for it, at about one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionLockState {
    /// Holders by mode, in the order of [`LockMode`].
    pub held: [u32; 4],
    /// The numbers of those who wait, and the modes they want.
    pub waiting: Vec<(u32, LockMode)>,
}

/// See the module.
#[derive(Default)]
pub struct CollectionLock {
    word: AtomicU64,
    waiting: Mutex<Waiting>,
    released: Condvar,
}

impl CollectionLock {
    fn try_take(&self, mode: LockMode, pass_pending: bool) -> bool {
        let conflicts = mode.conflicts() | if pass_pending { 0 } else { PENDING };
        schedule_point();
        let mut word = self.word.load(Ordering::Relaxed);
        while word & conflicts == 0 {
            schedule_point();
            match self
                .word
                .compare_exchange_weak(word, word + mode.unit(), Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Who has it and who waits for it; `None` when that is nobody.
    pub fn state(&self) -> Option<CollectionLockState> {
        let word = self.word.load(Ordering::Relaxed);
        if word == 0 {
            return None;
        }
        let waiting = self.waiting.lock().queue.clone();
        let held = [
            word & (IX_ONE - 1),
            (word & IX_MASK) / IX_ONE,
            (word & S_MASK) / S_ONE,
            (word & X) / X,
        ];
        Some(CollectionLockState {
            held: held.map(|count| count as u32),
            waiting,
        })
    }

    /// Whether somebody sleeps until it is given back.
    pub fn is_waited_for(&self) -> bool {
        self.word.load(Ordering::Relaxed) & SLEEPERS != 0
    }

    fn release(&self, mode: LockMode) {
        schedule_point();
        let before = self.word.fetch_sub(mode.unit(), Ordering::Release);
        if before & SLEEPERS != 0 {
            let _waiting = self.waiting.lock();
            self.released.notify_all();
        }
    }

    /// Waits until the lock is taken, or the operation has to end. Returns the time waited.
    fn wait<W: Waiter>(&self, waiter: &W, mode: LockMode, pass_pending: bool) -> Result<Duration, W::Interrupted> {
        let start = waiter.now();
        let _wait = waiter.begins_to_wait(mode);
        let exclusive = matches!(mode, LockMode::Shared | LockMode::Exclusive);
        let mut waiting = self.waiting.lock();
        waiting.sleepers += 1;
        waiting.pending += u32::from(exclusive);
        waiting.queue.push((waiter.number(), mode));
        schedule_point();
        self.word
            .fetch_or(SLEEPERS | if exclusive { PENDING } else { 0 }, Ordering::Relaxed);
        let result = loop {
            if self.try_take(mode, pass_pending || exclusive) {
                break Ok(());
            }
            waiting = self.released.wait_for(waiting, WAIT_SLICE);
            if let Err(interrupted) = waiter.check() {
                break Err(interrupted);
            }
            if waiter.now().saturating_sub(start) >= WAIT_SLICE {
                // What is given back meanwhile is found by the next try, which comes before the next sleep.
                drop(waiting);
                waiter.waits_on();
                waiting = self.waiting.lock();
            }
        };
        waiter.ends_to_wait();
        waiting.sleepers -= 1;
        waiting.pending -= u32::from(exclusive);
        let place = waiting.queue.iter().position(|of| *of == (waiter.number(), mode));
        waiting.queue.remove(place.expect("it was put there"));
        if waiting.pending == 0 {
            self.word.fetch_and(!PENDING, Ordering::Relaxed);
        }
        if waiting.sleepers == 0 {
            self.word.fetch_and(!SLEEPERS, Ordering::Relaxed);
        } else if exclusive && waiting.pending == 0 {
            // Those held back by the pending bit may pass now.
            self.released.notify_all();
        }
        result.map(|()| waiter.now().saturating_sub(start))
    }
}

/// Keeps new holders out of a lock as a waiting X does, until it is dropped. Holders stay, and those who hold another
/// lock, or want S or X, pass.
pub struct Claim {
    lock: Arc<CollectionLock>,
}

impl Claim {
    /// Never waits.
    pub fn new(lock: &Arc<CollectionLock>) -> Self {
        let mut waiting = lock.waiting.lock();
        waiting.pending += 1;
        schedule_point();
        lock.word.fetch_or(PENDING, Ordering::Relaxed);
        drop(waiting);
        Self { lock: lock.clone() }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut waiting = self.lock.waiting.lock();
        waiting.pending -= 1;
        if waiting.pending == 0 {
            schedule_point();
            self.lock.word.fetch_and(!PENDING, Ordering::Relaxed);
            if waiting.sleepers > 0 {
                self.lock.released.notify_all();
            }
        }
    }
}

/// A collection lock held; given back on drop.
pub struct Held {
    lock: Arc<CollectionLock>,
    mode: LockMode,
    held_by_waiter: Arc<AtomicU32>,
}

impl Held {
    /// Takes the lock, waiting as long as the waiter may. The second value is the time waited, `None` when not at all.
    pub fn take<W: Waiter>(
        lock: &Arc<CollectionLock>,
        waiter: &W,
        mode: LockMode,
    ) -> Result<(Held, Option<Duration>), W::Interrupted> {
        let pass_pending = waiter.locks_held().load(Ordering::Relaxed) > 0;
        let waited = match lock.try_take(mode, pass_pending) {
            true => None,
            false => Some(lock.wait(waiter, mode, pass_pending)?),
        };
        waiter.locks_held().fetch_add(1, Ordering::Relaxed);
        Ok((
            Held {
                lock: lock.clone(),
                mode,
                held_by_waiter: waiter.locks_held().clone(),
            },
            waited,
        ))
    }

    /// Takes the lock only when nobody is in the way.
    pub fn try_take<W: Waiter>(lock: &Arc<CollectionLock>, waiter: &W, mode: LockMode) -> Option<Held> {
        lock.try_take(mode, true).then(|| {
            waiter.locks_held().fetch_add(1, Ordering::Relaxed);
            Held {
                lock: lock.clone(),
                mode,
                held_by_waiter: waiter.locks_held().clone(),
            }
        })
    }

    /// The mode it is held in.
    pub fn mode(&self) -> LockMode {
        self.mode
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.lock.release(self.mode);
        self.held_by_waiter.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::test_waiter::Client;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn compatibility_matrix() {
        use LockMode::*;
        let modes = [IntentShared, IntentExclusive, Shared, Exclusive];
        let compatible = [
            [true, true, true, false],
            [true, true, false, false],
            [true, false, true, false],
            [false, false, false, false],
        ];
        for (i, held) in modes.iter().enumerate() {
            for (j, wanted) in modes.iter().enumerate() {
                let (lock, op) = (Arc::new(CollectionLock::default()), Client::default());
                let _first = Held::try_take(&lock, &op, *held).unwrap();
                assert_eq!(
                    Held::try_take(&lock, &op, *wanted).is_some(),
                    compatible[i][j],
                    "{held:?} then {wanted:?}"
                );
            }
        }
    }

    #[test]
    fn a_waiting_exclusive_keeps_newcomers_out_but_not_holders() {
        let (lock, holder) = (Arc::new(CollectionLock::default()), Client::default());
        let first = Held::take(&lock, &holder, LockMode::IntentShared).unwrap().0;
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                Held::take(&lock, &Client::default(), LockMode::Exclusive)
                    .unwrap()
                    .1
                    .is_some()
            });
            while lock.word.load(Ordering::Relaxed) & PENDING == 0 {
                std::thread::yield_now();
            }
            let state = lock.state().expect("it is held");
            assert_eq!(
                (state.held, &*state.waiting),
                ([1, 0, 0, 0], &[(7, LockMode::Exclusive)][..])
            );
            let newcomer = Client::default();
            newcomer.kill();
            assert!(
                Held::take(&lock, &newcomer, LockMode::IntentShared).is_err(),
                "a newcomer waits, and may be killed"
            );
            let second = Held::take(&lock, &holder, LockMode::IntentExclusive).unwrap();
            assert!(second.1.is_none(), "a holder passes");
            drop((first, second));
            assert!(waiter.join().unwrap());
            let _held = Held::take(&lock, &Client::default(), LockMode::Exclusive).unwrap();
            assert_eq!(lock.state().map(|of| of.held), Some([0, 0, 0, 1]));
        });
        assert_eq!((lock.word.load(Ordering::Relaxed), lock.state()), (0, None));
    }

    #[test]
    fn a_claim_keeps_newcomers_out_until_it_is_dropped() {
        let (lock, holder) = (Arc::new(CollectionLock::default()), Client::default());
        let first = Held::take(&lock, &holder, LockMode::IntentShared).unwrap().0;
        let claims = [Claim::new(&lock), Claim::new(&lock)];
        let newcomer = Client::default();
        newcomer.kill();
        assert!(Held::take(&lock, &newcomer, LockMode::IntentShared).is_err());
        drop(Held::take(&lock, &holder, LockMode::IntentExclusive).unwrap());
        drop(first);
        // Who waits for X gives up or has it, and the claims stay.
        drop(Held::take(&lock, &newcomer, LockMode::Exclusive).unwrap());
        assert!(Held::take(&lock, &newcomer, LockMode::IntentShared).is_err());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| Held::take(&lock, &Client::default(), LockMode::IntentShared).is_ok());
            while !lock.is_waited_for() {
                std::thread::yield_now();
            }
            drop(claims);
            assert!(waits.join().unwrap());
        });
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn exclusive_excludes_under_load() {
        let lock = Arc::new(CollectionLock::default());
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (lock, inside) = (&lock, &inside);
                scope.spawn(move || {
                    let op = Client::default();
                    for round in 0..500 {
                        let exclusive = (round + thread) % 5 == 0;
                        let mode = if exclusive {
                            LockMode::Exclusive
                        } else {
                            LockMode::IntentExclusive
                        };
                        let _held = Held::take(lock, &op, mode).unwrap();
                        let before = inside.fetch_add(if exclusive { 1000 } else { 1 }, Ordering::SeqCst);
                        assert!(if exclusive { before == 0 } else { before < 1000 });
                        inside.fetch_sub(if exclusive { 1000 } else { 1 }, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
    }
}
