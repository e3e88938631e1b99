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
/// Attempts that would have to wait longer, since others wait already, are refused unheard; those that wait, too, when
/// a failure of one before them makes each delay longer.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// So long after the last failure nothing of it is known any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is its turn.
    Now,
    /// It is to ask again after this time, if none of those before it leaves sooner.
    After(Duration),
    /// It is refused: it would wait too long.
    Refused,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Duration,
    /// The next attempt is heard no sooner.
    next: Duration,
}

impl Failures {
    fn wait(&self, now: Duration, before: usize, is_proven: bool) -> Duration {
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        let theirs = delay(self.count, is_proven).saturating_mul(before);
        self.next.saturating_sub(now).saturating_add(theirs)
    }
}

/// The failed attempts of late. Times are those of a clock that never goes back.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    failures: HashMap<u64, Failures>,
    /// When somebody last proved to be the user.
    proven: HashMap<u64, Duration>,
}

impl Attempts {
    /// An attempt of `key`, which stands for a user and an address, is to be made, and so many of the same that came
    /// sooner wait still. Only a turn that is taken makes others wait longer: who is refused does not, and neither
    /// does who gives up while it waits.
    pub fn admit(&mut self, key: u64, now: Duration, before: usize) -> Admission {
        let is_proven = self.is_proven(key, now);
        let Some(failures) = self.failures.get_mut(&key) else {
            return Admission::Now;
        };
        if now.saturating_sub(failures.last) > FORGOTTEN_AFTER {
            self.failures.remove(&key);
            return Admission::Now;
        }
        let wait = failures.wait(now, before, is_proven);
        if wait.is_zero() {
            failures.next = failures.next.max(now) + delay(failures.count, is_proven);
            return Admission::Now;
        }
        match wait > WAIT_MAX {
            true => Admission::Refused,
            false => Admission::After(wait),
        }
    }

    /// Whether somebody has proven to be the user of late.
    pub fn is_proven(&self, key: u64, now: Duration) -> bool {
        let proven = self.proven.get(&key);
        proven.is_some_and(|at| now.saturating_sub(*at) <= PROVEN_FOR)
    }

    /// How long an attempt would wait now, behind so many others.
    pub fn wait(&self, key: u64, now: Duration, before: usize) -> Duration {
        let is_proven = self.is_proven(key, now);
        let known = self.failures.get(&key);
        let counts = known.filter(|failures| now.saturating_sub(failures.last) <= FORGOTTEN_AFTER);
        counts.map_or(Duration::ZERO, |failures| failures.wait(now, before, is_proven))
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
            let wait = attempts.wait(1, now, 0);
            waits.push(wait.as_millis());
            now += wait;
            assert_eq!(attempts.admit(1, now, 0), Admission::Now);
            attempts.failed(1, now);
        }
        assert_eq!(waits[..7], [0, 0, 0, 0, 100, 200, 400]);
        assert_eq!(waits[13], 10_000);
        assert_eq!(attempts.admit(2, now, 0), Admission::Now, "others are not held up");
        attempts.succeeded(1, now);
        assert_eq!(attempts.admit(1, now, 0), Admission::Now);
    }

    /// Three clients with a wrong password had every attempt with the right one refused.
    #[test]
    fn guesses_do_not_hold_up_who_has_proven_itself_of_late() {
        let mut attempts = Attempts::default();
        attempts.succeeded(1, at(0));
        let mut now = at(0);
        for _ in 0..1000 {
            now += attempts.wait(1, now, 0);
            assert_eq!(attempts.admit(1, now, 0), Admission::Now);
            attempts.failed(1, now);
        }
        // Behind three that wait.
        assert!(attempts.wait(1, now, 3) <= at(80));
        // Guesses are still as slow as that.
        let heard = (0..).take_while(|before| attempts.wait(1, now, *before) <= at(10_000));
        assert_eq!(heard.count(), 500);
        let later = now + PROVEN_FOR + at(1);
        attempts.failed(1, later);
        assert!(attempts.wait(1, later, 1) > at(1000), "forgotten");
    }

    /// Attempts whose clients left while they waited had taken their time all the same, and the user was refused.
    #[test]
    fn who_is_refused_or_gives_up_makes_nobody_wait_longer() {
        let mut attempts = Attempts::default();
        attempts.succeeded(1, at(0));
        for _ in 0..9 {
            attempts.failed(1, at(0));
        }
        for _ in 0..1000 {
            assert_eq!(attempts.admit(1, at(0), 1000), Admission::Refused);
            assert_eq!(attempts.admit(1, at(0), 7), Admission::After(at(160)));
        }
        assert_eq!(attempts.admit(1, at(0), 0), Admission::After(at(20)));
        assert_eq!(attempts.admit(1, at(20), 0), Admission::Now);
        assert_eq!(
            (attempts.wait(1, at(20), 0), attempts.wait(2, at(20), 5)),
            (at(20), at(0))
        );
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
        while let Admission::After(wait) = attempts.admit(1, at(0), admitted.len()) {
            admitted.push(wait.as_millis());
        }
        assert_eq!(admitted, [3_200, 6_400, 9_600]);
        assert_eq!(attempts.admit(1, at(3_200), 0), Admission::Now);
        assert_eq!(attempts.admit(1, at(3_200), 0), Admission::After(at(3_200)));
        assert_eq!(attempts.admit(1, at(20_000), 0), Admission::Now, "the queue runs dry");
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
        assert_ne!(attempts.admit(u64::MAX, at(1), 0), Admission::Now);
        assert_eq!(attempts.admit(u64::MAX, at(1_000_000), 0), Admission::Now, "forgotten");
    }
}
