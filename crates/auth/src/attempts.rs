//! How often somebody may try passwords: every failure of one user from one address makes the next answer later.
//!
//! Whoever guesses from the address of somebody who logs in there must not shut that one out. Before an attempt is
//! heard nothing tells them apart, so that where a user has proven itself of late attempts only come one behind the
//! other, a short time apart.
//!
//! Invariant: there are never more than [`ATTEMPTS_MAX`] entries of failures, nor of proofs, whatever names clients
//! think of. When there are too many, the one that failed least, and of these the oldest, is given up; of proofs the
//! oldest.

use std::collections::HashMap;
use std::time::Duration;

/// Users and addresses that are remembered.
const ATTEMPTS_MAX: usize = 4096;
/// Failures that cost nothing: a typing error is not an attack.
const FREE_FAILURES: u32 = 3;
/// The first delay; it doubles with each failure.
const DELAY_FIRST: Duration = Duration::from_millis(100);
/// The longest delay between two attempts.
const DELAY_MAX: Duration = Duration::from_secs(10);
/// The longest delay where the user has proven itself of late.
const DELAY_PROVEN_MAX: Duration = Duration::from_millis(20);
/// So long after the last proof that is forgotten.
const PROVEN_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// Attempts that would have to wait longer, because others wait already, are refused unheard.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// So long after the last failure nothing of it is known any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is heard after this time, which may be none.
    After(Duration),
    /// The same where the user has proven itself of late.
    Proven(Duration),
    /// It is refused: too many wait.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Duration,
    /// The next attempt is heard no sooner.
    next: Duration,
}

/// The failed attempts of late. Times are those of a clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    failures: HashMap<u64, Failures>,
    /// When somebody last proved to be the user.
    proven: HashMap<u64, Duration>,
}

impl Attempts {
    /// An attempt of `key`, which stands for a user and an address, is to be made. Attempts at the same time queue
    /// up.
    pub fn admit(&mut self, key: u64, now: Duration) -> Admission {
        self.admit_where(key, now, |_| true)
    }

    /// The same where only so many may wait: `has_room` is asked before an attempt queues up, and told whether the
    /// user has proven itself of late. Whoever is refused makes nobody wait longer.
    pub fn admit_where(&mut self, key: u64, now: Duration, has_room: impl FnOnce(bool) -> bool) -> Admission {
        let is_proven = self.is_proven(key, now);
        let admitted = match is_proven {
            true => Admission::Proven,
            false => Admission::After,
        };
        let Some(failures) = self.failures.get_mut(&key) else {
            return admitted(Duration::ZERO);
        };
        if now.saturating_sub(failures.last) > FORGOTTEN_AFTER {
            self.failures.remove(&key);
            return admitted(Duration::ZERO);
        }
        let wait = failures.next.saturating_sub(now);
        if wait > WAIT_MAX || !wait.is_zero() && !has_room(is_proven) {
            return Admission::Refused;
        }
        failures.next = failures.next.max(now) + delay(failures.count, is_proven);
        admitted(wait)
    }

    /// Whether somebody has proven to be the user of late.
    pub fn is_proven(&self, key: u64, now: Duration) -> bool {
        let proven = self.proven.get(&key);
        proven.is_some_and(|at| now.saturating_sub(*at) <= PROVEN_FOR)
    }

    /// How long an attempt would wait now.
    pub fn wait(&self, key: u64, now: Duration) -> Duration {
        let known = self.failures.get(&key);
        let counts = known.filter(|failures| now.saturating_sub(failures.last) <= FORGOTTEN_AFTER);
        counts.map_or(Duration::ZERO, |failures| failures.next.saturating_sub(now))
    }

    /// The attempt failed.
    pub fn failed(&mut self, key: u64, now: Duration) {
        if !self.failures.contains_key(&key) && self.failures.len() >= ATTEMPTS_MAX {
            self.failures
                .retain(|_, failures| now.saturating_sub(failures.last) <= FORGOTTEN_AFTER);
            let least = self
                .failures
                .iter()
                .min_by_key(|(_, failures)| (failures.count, failures.last));
            let least = least.map(|(key, _)| *key);
            if let Some(least) = least.filter(|_| self.failures.len() >= ATTEMPTS_MAX) {
                self.failures.remove(&least);
            }
        }
        let is_proven = self.is_proven(key, now);
        let none = Failures {
            count: 0,
            last: now,
            next: now,
        };
        let failures = self.failures.entry(key).or_insert(none);
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.next = failures.next.max(now + delay(failures.count, is_proven));
    }

    /// How many users and addresses are remembered.
    pub fn len(&self) -> usize {
        self.failures.len()
    }

    /// Is nothing remembered?
    pub fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    /// The attempt succeeded: what failed before is forgotten.
    pub fn succeeded(&mut self, key: u64, now: Duration) {
        self.failures.remove(&key);
        if !self.proven.contains_key(&key) && self.proven.len() >= ATTEMPTS_MAX {
            let oldest = self.proven.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            oldest.and_then(|oldest| self.proven.remove(&oldest));
        }
        self.proven.insert(key, now);
    }
}

/// What so many failures cost.
fn delay(failures: u32, is_proven: bool) -> Duration {
    let longest = match is_proven {
        true => DELAY_PROVEN_MAX,
        false => DELAY_MAX,
    };
    match failures.checked_sub(FREE_FAILURES) {
        None | Some(0) => Duration::ZERO,
        Some(more) => DELAY_FIRST.saturating_mul(1 << (more - 1).min(10)).min(longest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn delays_grow_to_their_bound_and_end_with_a_success() {
        let mut attempts = Attempts::default();
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..14 {
            let Admission::After(wait) = attempts.admit(1, now) else {
                panic!("an attempt alone is never refused")
            };
            waits.push(wait.as_millis());
            now += wait;
            attempts.failed(1, now);
        }
        assert_eq!(waits[..7], [0, 0, 0, 0, 100, 200, 400]);
        assert_eq!(waits[13], 10_000);
        assert_eq!(
            attempts.admit(2, now),
            Admission::After(at(0)),
            "others are not held up"
        );
        attempts.succeeded(1, now);
        assert_eq!(attempts.admit(1, now), Admission::Proven(at(0)));
    }

    /// Three clients with a wrong password had every attempt with the right one refused.
    #[test]
    fn guesses_do_not_hold_up_who_has_proven_itself_of_late() {
        let mut attempts = Attempts::default();
        attempts.succeeded(1, at(0));
        let mut guesses = [at(0); 3];
        for _ in 0..1000 {
            guesses.sort_unstable();
            let Admission::Proven(wait) = attempts.admit(1, guesses[0]) else {
                panic!("it has proven itself")
            };
            guesses[0] += wait;
            attempts.failed(1, guesses[0]);
        }
        guesses.sort_unstable();
        match attempts.clone().admit(1, guesses[0]) {
            Admission::Proven(wait) => assert!(wait <= at(80), "{wait:?}"),
            other => panic!("{other:?}"),
        }
        // Guesses are still as slow as that.
        let mut heard = 0;
        let dry = guesses[2] + at(10_000);
        while let Admission::Proven(_) = attempts.admit(1, dry) {
            heard += 1;
        }
        assert_eq!(heard, 501);
        let later = dry + PROVEN_FOR;
        attempts.failed(1, later);
        assert!(matches!(attempts.admit(1, later), Admission::After(_)), "forgotten");
    }

    #[test]
    fn who_is_refused_makes_nobody_wait_longer() {
        let mut attempts = Attempts::default();
        attempts.succeeded(1, at(0));
        for _ in 0..9 {
            attempts.failed(1, at(0));
        }
        for _ in 0..1000 {
            assert_eq!(attempts.admit_where(1, at(0), |_| false), Admission::Refused);
        }
        assert_eq!(attempts.wait(1, at(0)), at(20));
        assert_eq!(attempts.admit(1, at(0)), Admission::Proven(at(20)));
        assert_eq!((attempts.wait(1, at(0)), attempts.wait(2, at(0))), (at(40), at(0)));
        // Who need not wait needs no room.
        let later = attempts.admit_where(1, at(1000), |_| false);
        assert_eq!(later, Admission::Proven(at(0)));
    }

    #[test]
    fn of_many_proofs_the_oldest_is_given_up() {
        let mut attempts = Attempts::default();
        for key in 0..=ATTEMPTS_MAX as u64 {
            attempts.succeeded(key, at(key));
        }
        assert_eq!(attempts.proven.len(), ATTEMPTS_MAX);
        let is_proven = |key| attempts.is_proven(key, at(ATTEMPTS_MAX as u64));
        assert!(!is_proven(0) && is_proven(1) && is_proven(ATTEMPTS_MAX as u64));
    }

    #[test]
    fn attempts_at_the_same_time_queue_up_until_they_are_refused() {
        let mut attempts = Attempts::default();
        for _ in 0..9 {
            attempts.failed(1, at(0));
        }
        // 3.2 seconds after nine failures.
        let mut admitted = Vec::new();
        while let Admission::After(wait) = attempts.admit(1, at(0)) {
            admitted.push(wait.as_millis());
        }
        assert_eq!(admitted, [3_200, 6_400, 9_600]);
        assert_eq!(
            attempts.admit(1, at(20_000)),
            Admission::After(at(0)),
            "the queue runs dry"
        );
    }

    #[test]
    fn many_names_do_not_fill_the_memory_nor_wash_out_the_worst() {
        let mut attempts = Attempts::default();
        for _ in 0..20 {
            attempts.failed(u64::MAX, at(0));
        }
        for key in 0..ATTEMPTS_MAX as u64 + 1000 {
            attempts.failed(key, at(1));
        }
        assert_eq!(attempts.failures.len(), ATTEMPTS_MAX);
        assert_ne!(attempts.admit(u64::MAX, at(1)), Admission::After(at(0)));
        assert_eq!(
            attempts.admit(u64::MAX, at(1_000_000)),
            Admission::After(at(0)),
            "forgotten"
        );
    }
}
