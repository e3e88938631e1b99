//! Holds up whoever tries passwords, see [`Attempts`].
//!
//! Who waits holds a thread of the server, so that only so many may wait at once, and only some of them for one user at
//! one address; more are refused unheard. Those who wait where a user has proven itself of late are counted by
//! themselves: nobody fills their places who guesses elsewhere.

use crate::error::Result;
use auth::{Admission, Attempts};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use storage::Operation;

/// Attempts that wait at the same time.
const WAITING_MAX: usize = 64;
/// Of them those of one user at one address.
const WAITING_OF_ONE_MAX: usize = 16;
/// How often a wait looks whether its operation was killed.
const SLICE: Duration = Duration::from_millis(100);
/// The first 64 bits of an IPv6 address, which a host is given its network by.
const IPV6_NETWORK: u128 = !0 << 64;

/// The server's memory of failed attempts.
#[derive(Default)]
pub struct Throttle {
    attempts: Mutex<Attempts>,
    waiting: Mutex<Waiting>,
    // Nothing ever signals it: it is there to sleep on.
    clock: Mutex<()>,
    tick: Condvar,
}

/// Who waits.
#[derive(Default)]
struct Waiting {
    /// Where nobody has proven itself of late, and where somebody has.
    all: [usize; 2],
    by_key: HashMap<u64, usize>,
}

impl Waiting {
    /// Takes a place; false where there is none.
    fn enter(&mut self, key: u64, is_proven: bool) -> bool {
        let all = &mut self.all[usize::from(is_proven)];
        let own = self.by_key.get(&key).copied().unwrap_or(0);
        let has_room = *all < WAITING_MAX && own < WAITING_OF_ONE_MAX;
        if has_room {
            *all += 1;
            self.by_key.insert(key, own + 1);
        }
        has_room
    }

    fn leave(&mut self, key: u64, is_proven: bool) {
        self.all[usize::from(is_proven)] -= 1;
        match self.by_key.get_mut(&key) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(self.by_key.remove(&key)),
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
        let enter = |is_proven| self.waiting.lock().enter(key, is_proven);
        let now = operation.clock().monotonic();
        let admission = self.attempts.lock().admit_where(key, now, enter);
        let (wait, is_proven) = match admission {
            Admission::Refused => return Ok(false),
            Admission::After(wait) => (wait, false),
            Admission::Proven(wait) => (wait, true),
        };
        if wait.is_zero() {
            return Ok(true);
        }
        let done = self.sleep(wait, operation);
        self.waiting.lock().leave(key, is_proven);
        done.map(|()| true)
    }

    /// How long an attempt would have to wait now.
    pub fn wait_of(&self, key: u64, now: Duration) -> Duration {
        self.attempts.lock().wait(key, now)
    }

    fn sleep(&self, wait: Duration, operation: &Operation) -> Result<()> {
        let _asleep = vfs::asleep();
        let mut left = wait;
        while !left.is_zero() {
            operation.check_now()?;
            let slice = left.min(SLICE);
            self.tick.wait_for(&mut self.clock.lock(), slice);
            left -= slice;
        }
        Ok(())
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

    /// As if attempts of `key` had failed on and on, for tests: the next one would have to wait too long.
    #[cfg(test)]
    pub fn crowd(&self, key: u64, now: Duration) {
        let mut attempts = self.attempts.lock();
        for _ in 0..20 {
            attempts.failed(key, now);
        }
        while attempts.admit(key, now) != Admission::Refused {}
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

    /// Guesses at one user took all places, and everybody who had to wait was refused.
    #[test]
    fn guesses_at_one_user_leave_places_for_others() {
        let mut waiting = Waiting::default();
        let taken = |waiting: &mut Waiting, key, is_proven| (0..100).filter(|_| waiting.enter(key, is_proven)).count();
        for is_proven in [true, false] {
            let base = 10 * u64::from(is_proven);
            for key in base..base + 4 {
                assert_eq!(taken(&mut waiting, key, is_proven), WAITING_OF_ONE_MAX);
            }
            assert!(!waiting.enter(base + 5, is_proven));
            waiting.leave(base, is_proven);
            assert!(!waiting.enter(base + 1, is_proven) && waiting.enter(base + 5, is_proven));
        }
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
