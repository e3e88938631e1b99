//! The lock of one collection with the modes IS, IX, S and X.
//!
//! All of it is one word: counts of the three shared modes, a bit for X and three bits that say who waits and who may
//! pass. Taking and giving back an uncontended lock is one compare-and-swap and one subtraction; a *long holder*, which
//! keeps the lock also while it does nothing, is counted beside it. Waiters sleep on a condition variable; they set the
//! bits under its mutex before they look a last time, and who gives back looks at the bits, so that no wake-up is lost.
//! It wakes them when nobody is left in its mode: before that no other mode can be had.
//!
//! A waiting S or X keeps new holders out, so that it is not starved, except operations that hold a collection lock
//! already: those must never wait for somebody who waits (no cycle can form). While it waits for a long holder,
//! newcomers in IS pass as well: it would not get the lock one moment sooner without them, and they might wait for a
//! minute. Newcomers that would be long holders do not pass, so that their number falls; with the last one gone the
//! others wait, too, and those that are inside end by themselves. [`Claims`] keep newcomers out of several locks in the
//! same way, for who wants all of them and waits for one at a time.

use crate::waiter::WAIT_SLICE;
use crate::{LockMode, Waiter};
use rcu::{Condvar, Mutex, schedule_point};
use std::cell::Cell;
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
/// Who waits for S or X waits for a long holder: readers may pass.
const READERS_PASS: u64 = 1 << 63;
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

    /// Whether somebody who waits may come in now that one in this mode has gone, and the word is `left`.
    fn lets_in(self, left: u64) -> bool {
        match self {
            // It kept only X out, which all others do, too.
            LockMode::IntentShared => left & (PENDING - 1) == 0,
            LockMode::IntentExclusive => left & IX_MASK == 0,
            LockMode::Shared => left & S_MASK == 0,
            LockMode::Exclusive => true,
        }
    }
}

#[derive(Default)]
struct Waiting {
    sleepers: u32,
    /// Who waits for S or X, and claims.
    pending: u32,
    /// The claims among them that let readers pass, as they wait for a long holder of another lock.
    patient: u32,
    /// The sleepers, by their numbers, and the mode that each wants.
    queue: Vec<(u32, LockMode)>,
}

impl Waiting {
    /// What of it the word shows.
    fn bits(&self, has_long_holder: bool) -> u64 {
        // One who waits for this lock alone is not held up by the claims of others.
        let readers_pass = has_long_holder || (self.pending > 0 && self.patient == self.pending);
        (if self.sleepers > 0 { SLEEPERS } else { 0 })
            | (if self.pending > 0 { PENDING } else { 0 })
            | (if readers_pass { READERS_PASS } else { 0 })
    }
}

/// Who is not kept out by those who wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    /// Who holds a lock already, or wants S or X.
    Always,
    /// A reader that gives it back soon, while they wait for a long holder.
    LongWaits,
    Never,
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
    /// Whoever changes it from or to 0 shows it in the word afterwards, so that the last to show it shows what it is.
    long_holders: AtomicU32,
    waiting: Mutex<Waiting>,
    released: Condvar,
}

impl CollectionLock {
    fn try_take(&self, mode: LockMode, passes: Passes) -> bool {
        let is_kept_out = |word: u64| match passes {
            Passes::Always => false,
            Passes::LongWaits => word & (PENDING | READERS_PASS) == PENDING,
            Passes::Never => word & PENDING != 0,
        };
        schedule_point();
        let mut word = self.word.load(Ordering::Relaxed);
        while word & mode.conflicts() == 0 && !is_kept_out(word) {
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

    /// Whether all newcomers are kept out for somebody who waits for S or X. Readers are not while that one waits for
    /// a long holder.
    pub fn keeps_newcomers_out(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (PENDING | READERS_PASS) == PENDING
    }

    /// Changes what is known of waiters, and shows it, and whether there are long holders. Whoever may pass now is
    /// woken.
    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock();
        change(&mut waiting);
        self.show(&waiting);
    }

    fn show(&self, waiting: &Waiting) {
        const SHOWN: u64 = PENDING | SLEEPERS | READERS_PASS;
        schedule_point();
        let bits = waiting.bits(self.has_long_holder());
        schedule_point();
        // They change under the mutex alone.
        if self.word.load(Ordering::Relaxed) & SHOWN == bits {
            return;
        }
        let shown = |word: u64| Some(word & !SHOWN | bits);
        let before = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shown);
        let changed = before.unwrap_or_else(|same| same) ^ bits;
        if waiting.sleepers > 0 && changed & (PENDING | READERS_PASS) != 0 {
            self.released.notify_all();
        }
    }

    fn has_long_holder(&self) -> bool {
        self.long_holders.load(Ordering::Relaxed) > 0
    }

    fn add_long_holder(&self) {
        schedule_point();
        if self.long_holders.fetch_add(1, Ordering::Relaxed) == 0 {
            self.change(|_| {});
        }
    }

    fn remove_long_holder(&self) {
        schedule_point();
        if self.long_holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.change(|_| {});
        }
    }

    fn release(&self, mode: LockMode) {
        schedule_point();
        let before = self.word.fetch_sub(mode.unit(), Ordering::Release);
        if before & SLEEPERS != 0 && mode.lets_in(before - mode.unit()) {
            let _waiting = self.waiting.lock();
            self.released.notify_all();
        }
    }

    /// Waits until the lock is taken, or the operation has to end. Returns the time waited.
    fn wait<W: Waiter>(&self, waiter: &W, mode: LockMode, passes: Passes) -> Result<Duration, W::Interrupted> {
        let start = waiter.now();
        let _wait = waiter.begins_to_wait(mode);
        let exclusive = matches!(mode, LockMode::Shared | LockMode::Exclusive);
        let passes = if exclusive { Passes::Always } else { passes };
        let mut waiting = self.waiting.lock();
        waiting.sleepers += 1;
        waiting.pending += u32::from(exclusive);
        waiting.queue.push((waiter.number(), mode));
        self.show(&waiting);
        let result = loop {
            if self.try_take(mode, passes) {
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
        self.show(&waiting);
        result.map(|()| waiter.now().saturating_sub(start))
    }
}

/// Keep new holders out of several locks as a waiting X does, until they are dropped. Holders stay, and those who hold
/// another lock, or want S or X, pass; so do readers while any of the locks has a long holder.
pub struct Claims {
    locks: Vec<Arc<CollectionLock>>,
    is_patient: Cell<bool>,
}

impl Claims {
    /// Never waits.
    pub fn new(locks: Vec<Arc<CollectionLock>>) -> Self {
        let is_patient = locks.iter().any(|lock| lock.has_long_holder());
        for lock in &locks {
            lock.change(|waiting| {
                waiting.pending += 1;
                waiting.patient += u32::from(is_patient);
            });
        }
        let is_patient = Cell::new(is_patient);
        Self { locks, is_patient }
    }

    /// Looks again for long holders: the last one may have gone, and who holds another lock may have come as one.
    pub fn look_again(&self) {
        let is_patient = self.locks.iter().any(|lock| lock.has_long_holder());
        let was_patient = self.is_patient.replace(is_patient);
        if is_patient == was_patient {
            return;
        }
        for lock in &self.locks {
            lock.change(|waiting| {
                waiting.patient += u32::from(is_patient);
                waiting.patient -= u32::from(was_patient);
            });
        }
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        for lock in &self.locks {
            lock.change(|waiting| {
                waiting.pending -= 1;
                waiting.patient -= u32::from(self.is_patient.get());
            });
        }
    }
}

/// A collection lock held; given back on drop.
pub struct Held {
    lock: Arc<CollectionLock>,
    mode: LockMode,
    is_long: bool,
    held_by_waiter: Arc<AtomicU32>,
}

impl Held {
    /// Takes the lock, waiting as long as the waiter may. The second value is the time waited, `None` when not at all.
    pub fn take<W: Waiter>(
        lock: &Arc<CollectionLock>,
        waiter: &W,
        mode: LockMode,
    ) -> Result<(Held, Option<Duration>), W::Interrupted> {
        let passes = match mode {
            _ if waiter.locks_held().load(Ordering::Relaxed) > 0 => Passes::Always,
            LockMode::IntentShared if !waiter.holds_for_long() => Passes::LongWaits,
            _ => Passes::Never,
        };
        let waited = match lock.try_take(mode, passes) {
            true => None,
            false => Some(lock.wait(waiter, mode, passes)?),
        };
        Ok((Held::taken(lock, waiter, mode), waited))
    }

    /// Takes the lock only when nobody is in the way.
    pub fn try_take<W: Waiter>(lock: &Arc<CollectionLock>, waiter: &W, mode: LockMode) -> Option<Held> {
        lock.try_take(mode, Passes::Always)
            .then(|| Held::taken(lock, waiter, mode))
    }

    fn taken<W: Waiter>(lock: &Arc<CollectionLock>, waiter: &W, mode: LockMode) -> Held {
        let is_long = waiter.holds_for_long();
        if is_long {
            lock.add_long_holder();
        }
        waiter.locks_held().fetch_add(1, Ordering::Relaxed);
        Held {
            lock: lock.clone(),
            mode,
            is_long,
            held_by_waiter: waiter.locks_held().clone(),
        }
    }

    /// The mode it is held in.
    pub fn mode(&self) -> LockMode {
        self.mode
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_long {
            self.lock.remove_long_holder();
        }
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
        let claims = [Claims::new(vec![lock.clone()]), Claims::new(vec![lock.clone()])];
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

    /// A transaction that somebody had left open, and one `collMod`: every read of the collection waited with it until
    /// the transaction expired.
    #[test]
    fn readers_pass_who_waits_for_a_long_holder() {
        let lock = Arc::new(CollectionLock::default());
        let transaction = Held::take(&lock, &Client::long(), LockMode::IntentShared).unwrap().0;
        let [reader, newcomer] = [(); 2].map(|()| Client::default());
        reader.kill();
        newcomer.kill();
        let late = Client::long();
        late.kill();
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| Held::take(&lock, &Client::default(), LockMode::Exclusive).map(|(held, _)| held.mode()));
            while lock.word.load(Ordering::Relaxed) & PENDING == 0 {
                std::thread::yield_now();
            }
            let reads = Held::take(&lock, &reader, LockMode::IntentShared).unwrap();
            assert!(reads.1.is_none(), "a reader passes");
            assert!(!lock.keeps_newcomers_out());
            assert!(
                Held::take(&lock, &newcomer, LockMode::IntentExclusive).is_err(),
                "a writer waits"
            );
            assert!(
                Held::take(&lock, &late, LockMode::IntentShared).is_err(),
                "and so does another long holder"
            );
            drop(transaction);
            assert!(
                Held::take(&lock, &newcomer, LockMode::IntentShared).is_err(),
                "only readers are in the way: newcomers wait again"
            );
            assert!(lock.keeps_newcomers_out());
            drop(reads);
            assert_eq!(waiter.join().unwrap(), Ok(LockMode::Exclusive));
        });
        assert!(!lock.keeps_newcomers_out());
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn readers_pass_claims_while_one_of_the_locks_has_a_long_holder() {
        let locks = [(); 2].map(|()| Arc::new(CollectionLock::default()));
        let newcomer = Client::default();
        newcomer.kill();
        let passes = |mode| Held::take(&locks[1], &newcomer, mode).is_ok();
        let transaction = Held::take(&locks[0], &Client::long(), LockMode::IntentExclusive);
        let claims = Claims::new(locks.to_vec());
        assert!(passes(LockMode::IntentShared) && !passes(LockMode::IntentExclusive));
        let others = Claims::new(vec![locks[1].clone()]);
        assert!(
            !passes(LockMode::IntentShared),
            "who wants that lock alone waits for readers"
        );
        drop(others);
        assert!(passes(LockMode::IntentShared));
        drop(transaction);
        claims.look_again();
        assert!(!passes(LockMode::IntentShared), "there is nobody else to wait for");
        // Who holds another lock passes, a transaction too.
        let (elsewhere, transaction) = (Arc::default(), Client::long());
        let first = Held::take(&elsewhere, &transaction, LockMode::IntentShared);
        let second = Held::take(&locks[0], &transaction, LockMode::IntentShared).unwrap();
        claims.look_again();
        assert!(passes(LockMode::IntentShared));
        drop((first, second, claims));
        assert!(locks.iter().all(|lock| lock.word.load(Ordering::Relaxed) == 0));
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
