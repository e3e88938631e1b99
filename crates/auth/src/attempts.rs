//! How often somebody may try passwords: every failure of one user from one address makes the next answer later.
//!
//! Invariant: there are never more than [`ATTEMPTS_MAX`] entries, whatever names clients think of. When there are
//! too many, the one that failed least, and of these the oldest, is given up.

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
/// Attempts that would have to wait longer, because others wait already, are refused unheard.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// So long after the last failure nothing of it is known any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15 * 60);

/// What becomes of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is heard after this time, which may be none.
    After(Duration),
    /// It is refused: too many wait before it.
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
#[derive(Debug, Default)]
pub struct Attempts {
    failures: HashMap<u64, Failures>,
}

impl Attempts {
    /// An attempt of `key`, which stands for a user and an address, is to be made. Attempts at the same time queue
    /// up.
    pub fn admit(&mut self, key: u64, now: Duration) -> Admission {
        let Some(failures) = self.failures.get_mut(&key) else {
            return Admission::After(Duration::ZERO);
        };
        if now.saturating_sub(failures.last) > FORGOTTEN_AFTER {
            self.failures.remove(&key);
            return Admission::After(Duration::ZERO);
        }
        let wait = failures.next.saturating_sub(now);
        if wait > WAIT_MAX {
            return Admission::Refused;
        }
        failures.next = failures.next.max(now) + delay(failures.count);
        Admission::After(wait)
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
        let none = Failures {
            count: 0,
            last: now,
            next: now,
        };
        let failures = self.failures.entry(key).or_insert(none);
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.next = failures.next.max(now + delay(failures.count));
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
    pub fn succeeded(&mut self, key: u64) {
        self.failures.remove(&key);
    }
}

/// What so many failures cost.
fn delay(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES) {
        None | Some(0) => Duration::ZERO,
        Some(more) => DELAY_FIRST.saturating_mul(1 << (more - 1).min(10)).min(DELAY_MAX),
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
        attempts.succeeded(1);
        assert_eq!(attempts.admit(1, now), Admission::After(at(0)));
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
