//! Holds up whoever tries passwords, see [`Attempts`].
//!
//! Who waits holds a thread of the server, so that only so many may wait at once; more are refused unheard. Those who
//! wait where a user has proven itself of late are counted by themselves: nobody else fills their places.

use crate::error::Result;
use auth::{Admission, Attempts};
use parking_lot::{Condvar, Mutex};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use storage::Operation;

/// Attempts that wait at the same time.
const WAITING_MAX: u32 = 64;
/// How often a wait looks whether its operation was killed.
const SLICE: Duration = Duration::from_millis(100);
/// The first 64 bits of an IPv6 address, which a host is given its network by.
const IPV6_NETWORK: u128 = !0 << 64;

/// The server's memory of failed attempts.
#[derive(Default)]
pub struct Throttle {
    attempts: Mutex<Attempts>,
    waiting: AtomicU32,
    /// Of them, those where the user has proven itself of late are here.
    waiting_proven: AtomicU32,
    // Nothing ever signals it: it is there to sleep on.
    clock: Mutex<()>,
    tick: Condvar,
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
        let admission = self.attempts.lock().admit(key, operation.clock().monotonic());
        let (wait, waiting) = match admission {
            Admission::Refused => return Ok(false),
            Admission::After(wait) => (wait, &self.waiting),
            Admission::Proven(wait) => (wait, &self.waiting_proven),
        };
        if wait.is_zero() {
            return Ok(true);
        }
        if waiting.fetch_add(1, Ordering::SeqCst) >= WAITING_MAX {
            waiting.fetch_sub(1, Ordering::SeqCst);
            return Ok(false);
        }
        let done = self.sleep(wait, operation);
        waiting.fetch_sub(1, Ordering::SeqCst);
        done.map(|()| true)
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

    /// Each of the 2^64 addresses that one host has made three attempts for nothing.
    #[test]
    fn all_addresses_of_an_ipv6_network_count_as_one() {
        let key = |address: &str| key(b"secret", "amy", "shop", address.parse().ok());
        assert_eq!(key("2001:db8:1:2:3::4"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
