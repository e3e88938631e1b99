//! Holds up whoever tries passwords, see [`Attempts`].
//!
//! Who waits holds a thread of the server, so that only so many may wait at once, and only some of them for one user at
//! one address; more are refused unheard. Those who wait where a user has proven itself of late are counted by
//! themselves: nobody fills their places who guesses elsewhere.

use crate::error::Result;
use auth::{Admission, Attempts};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use storage::Operation;

/// Attempts that wait at the same time.
const WAITING_MAX: usize = 64;
/// Of them those of one user at one address.
const WAITING_OF_ONE_MAX: usize = 16;
/// How often a wait looks whether its operation was killed, as that of a client is that has gone, one or two seconds
/// later: until then it has its place.
const SLICE: Duration = Duration::from_millis(20);
/// The first 64 bits of an IPv6 address, which a host is given its network by.
const IPV6_NETWORK: u128 = !0 << 64;

/// The server's memory of failed attempts.
#[derive(Default)]
pub struct Throttle {
    // Locked under `waiting`, where both are.
    attempts: Mutex<Attempts>,
    waiting: Mutex<Waiting>,
    /// Somebody has left.
    left: Condvar,
}

/// Who waits.
#[derive(Default)]
struct Waiting {
    /// Where nobody has proven itself of late, and where somebody has.
    all: [usize; 2],
    /// In the order in which they came.
    by_key: HashMap<u64, VecDeque<u64>>,
    /// Numbers given.
    given: u64,
}

/// A place of one that waits.
#[derive(Clone, Copy)]
struct Place {
    key: u64,
    number: u64,
    is_proven: bool,
}

impl Waiting {
    /// Takes a place; `None` where there is none.
    fn enter(&mut self, key: u64, is_proven: bool) -> Option<Place> {
        if self.all[usize::from(is_proven)] >= WAITING_MAX || self.of(key) >= WAITING_OF_ONE_MAX {
            return None;
        }
        self.all[usize::from(is_proven)] += 1;
        self.given += 1;
        let number = self.given;
        self.by_key.entry(key).or_default().push_back(number);
        Some(Place { key, number, is_proven })
    }

    /// How many of a key wait.
    fn of(&self, key: u64) -> usize {
        self.by_key.get(&key).map_or(0, VecDeque::len)
    }

    /// How many of the same key came before.
    fn before(&self, place: Place) -> usize {
        let own = self.by_key.get(&place.key);
        own.map_or(0, |own| own.partition_point(|number| *number < place.number))
    }

    fn leave(&mut self, place: Place) {
        self.all[usize::from(place.is_proven)] -= 1;
        if let Some(own) = self.by_key.get_mut(&place.key) {
            own.retain(|number| *number != place.number);
            if own.is_empty() {
                self.by_key.remove(&place.key);
            }
        }
    }
}

/// A user, by name and database, and where the client is. `secret` keeps clients from choosing names that collide.
pub fn key(secret: &[u8], user: &str, database: &str, address: Option<IpAddr>) -> u64 {
    let address = address.map(network);
    let mut hasher = DefaultHasher::new();
    (secret, user, database, address).hash(&mut hasher);
    hasher.finish()
}

/// What counts as one address. Of IPv6 a single host has a whole network of them, and could come from another one for
/// every attempt.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into(),
    }
}

impl Throttle {
    /// Waits until an attempt may be heard; false when it is refused.
    ///
    /// # Errors
    /// `Interrupted` and the like, when the operation ends meanwhile.
    pub fn wait(&self, key: u64, operation: &Operation) -> Result<bool> {
        let mut waiting = self.waiting.lock();
        let now = operation.clock().monotonic();
        let place = {
            let mut attempts = self.attempts.lock();
            match attempts.admit(key, now, waiting.of(key)) {
                Admission::Now => return Ok(true),
                Admission::Refused => return Ok(false),
                Admission::After(_) => waiting.enter(key, attempts.is_proven(key, now)),
            }
        };
        let Some(place) = place else { return Ok(false) };
        let heard = self.wait_for_turn(place, &mut waiting, operation);
        waiting.leave(place);
        self.left.notify_all();
        heard
    }

    fn wait_for_turn(
        &self,
        place: Place,
        waiting: &mut MutexGuard<'_, Waiting>,
        operation: &Operation,
    ) -> Result<bool> {
        let _asleep = vfs::asleep();
        loop {
            operation.check_now()?;
            let now = operation.clock().monotonic();
            let admission = self.attempts.lock().admit(place.key, now, waiting.before(place));
            match admission {
                Admission::Now => return Ok(true),
                Admission::Refused => return Ok(false),
                Admission::After(wait) => {
                    self.left.wait_for(waiting, wait.min(SLICE));
                }
            }
        }
    }

    /// How long an attempt would have to wait now, if none before it fails.
    pub fn wait_of(&self, key: u64, now: Duration) -> Duration {
        let before = self.waiting.lock().of(key);
        self.attempts.lock().wait(key, now, before)
    }

    /// The attempt was heard and failed.
    pub fn failed(&self, key: u64, operation: &Operation) {
        self.attempts.lock().failed(key, operation.clock().monotonic());
    }

    /// Whose failures are remembered, for tests.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.attempts.lock().len()
    }

    /// As if attempts of `key` had failed on and on, for tests, and as many as may waited: the next one is refused.
    #[cfg(test)]
    pub fn crowd(&self, key: u64, now: Duration) {
        let mut waiting = self.waiting.lock();
        let mut attempts = self.attempts.lock();
        for _ in 0..20 {
            attempts.failed(key, now);
        }
        while waiting.enter(key, attempts.is_proven(key, now)).is_some() {}
    }

    /// Those who wait leave, for tests.
    #[cfg(test)]
    pub fn scatter(&self) {
        *self.waiting.lock() = Waiting::default();
    }

    /// The attempt was heard and succeeded.
    pub fn succeeded(&self, key: u64, operation: &Operation) {
        self.attempts.lock().succeeded(key, operation.clock().monotonic());
    }

    /// Whether an attempt has succeeded of late.
    pub fn is_proven(&self, key: u64, now: Duration) -> bool {
        self.attempts.lock().is_proven(key, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use vfs::{Clock, SimulatedClock};

    /// Guesses at one user took all places, and everybody who had to wait was refused.
    #[test]
    fn guesses_at_one_user_leave_places_for_others() {
        let mut waiting = Waiting::default();
        for is_proven in [true, false] {
            let base = 10 * u64::from(is_proven);
            let mut places = Vec::new();
            for key in base..base + 4 {
                let before = places.len();
                places.extend((0..100).filter_map(|_| waiting.enter(key, is_proven)));
                assert_eq!(places.len() - before, WAITING_OF_ONE_MAX);
            }
            assert!(waiting.enter(base + 5, is_proven).is_none());
            waiting.leave(places[0]);
            assert_eq!((waiting.before(places[1]), waiting.before(places[15])), (0, 14));
            assert!(waiting.enter(base + 1, is_proven).is_none() && waiting.enter(base + 5, is_proven).is_some());
        }
    }

    /// Attempts whose clients left took their time all the same, and the user itself was refused.
    #[test]
    fn attempts_that_are_given_up_hold_nobody_up() {
        let throttle = Throttle::default();
        let clock = Arc::new(SimulatedClock::new(0));
        let operation = |id| Operation::new(clock.clone(), id);
        throttle.succeeded(1, &operation(1));
        for _ in 0..9 {
            throttle.failed(1, &operation(1));
        }
        for id in 0..1000 {
            let gone = operation(id);
            gone.kill();
            assert!(throttle.wait(1, &gone).is_err());
        }
        let wait = throttle.wait_of(1, clock.monotonic());
        assert!(!wait.is_zero() && wait <= Duration::from_millis(20));
        assert_eq!(throttle.waiting.lock().of(1), 0);
        clock.advance(wait);
        assert!(throttle.wait(1, &operation(1)).is_ok_and(|heard| heard));
    }

    /// Each of the 2^64 addresses that one host has made three attempts for nothing.
    #[test]
    fn all_addresses_of_an_ipv6_network_count_as_one() {
        let key = |address: &str| key(b"secret", "amy", "shop", address.parse().ok());
        assert_eq!(key("2001:db8:1:2:3::4"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
