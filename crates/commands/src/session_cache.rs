//! The logical sessions that clients use: who, and when last. A session ends when nobody has used it for a while; its
//! cursors end with it. How long that is tells the monotonic clock: nobody puts that forward.
//!
//! Transactions, and what makes writes safe to send again, are kept elsewhere ([`crate::transactions`], and the
//! storage's records): a session that only reads is known here alone.

use crate::authentication::Identity;
use crate::error::{CommandError, Result};
use crate::rights::Rights;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use storage::SessionKey;
use wire::ErrorCode;

/// Sessions at a time, as MongoDB's `maxSessions` has it.
pub const SESSIONS_MAX: usize = 1_000_000;
/// Each look for sessions that have ended goes through one part of them.
const PARTS: usize = 16;

/// What is known of a session.
#[derive(Clone, Debug)]
pub struct SessionUse {
    /// Wall time, in milliseconds since the Unix epoch: for those who are shown it.
    pub last_ms: i64,
    /// The same by the monotonic clock.
    last: Duration,
    /// Whose it is, with access control.
    pub user: Option<Box<Identity>>,
}

/// See the module.
#[derive(Default)]
pub struct SessionCache {
    parts: [Mutex<HashMap<SessionKey, SessionUse>>; PARTS],
    count: AtomicUsize,
    next_part: AtomicUsize,
}

impl SessionCache {
    fn part(&self, key: &SessionKey) -> &Mutex<HashMap<SessionKey, SessionUse>> {
        &self.parts[usize::from(key.id[15]) % PARTS]
    }

    /// A session is used, at this time by the monotonic clock and by that on the wall.
    ///
    /// # Errors
    /// `TooManyLogicalSessions`.
    pub fn touch(&self, key: SessionKey, rights: &Rights, (now, now_ms): (Duration, i64)) -> Result<()> {
        let mut sessions = self.part(&key).lock();
        if let Some(session) = sessions.get_mut(&key) {
            (session.last, session.last_ms) = (now, now_ms);
            return Ok(());
        }
        if self.count.load(Ordering::Relaxed) >= SESSIONS_MAX {
            return Err(CommandError::new(
                ErrorCode::TooManyLogicalSessions,
                "Unable to add session into the cache because the number of active sessions is too high",
            ));
        }
        let user = rights.user().cloned().map(Box::new);
        let (last, last_ms) = (now, now_ms);
        sessions.insert(key, SessionUse { last_ms, last, user });
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A session has been ended by its user.
    pub fn remove(&self, key: &SessionKey) {
        if self.part(key).lock().remove(key).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes out, and answers, some of the sessions that nobody has used since `before`; all of them within as many
    /// calls as there are parts. `is_running` is asked about each.
    pub fn expire(&self, before: Duration, mut is_running: impl FnMut(&SessionKey) -> bool) -> Vec<SessionKey> {
        let part = self.next_part.fetch_add(1, Ordering::Relaxed) % PARTS;
        let mut ended = Vec::new();
        self.parts[part].lock().retain(|key, session| {
            let keeps = session.last >= before || is_running(key);
            if !keeps {
                ended.push(*key);
            }
            keeps
        });
        self.count.fetch_sub(ended.len(), Ordering::Relaxed);
        ended
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All of them that `is_meant`.
    pub fn list(&self, is_meant: impl Fn(&SessionKey) -> bool) -> Vec<(SessionKey, SessionUse)> {
        let mut all = Vec::new();
        for part in &self.parts {
            let sessions = part.lock();
            let meant = sessions.iter().filter(|(key, _)| is_meant(key));
            all.extend(meant.map(|(key, session)| (*key, session.clone())));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SessionKey {
        SessionKey {
            id: [n; 16],
            user: [0; 32],
        }
    }

    #[test]
    fn sessions_end_when_nobody_uses_them() {
        let cache = SessionCache::default();
        // Somebody turns the clock on the wall.
        let time = |n: u8| (Duration::from_secs(u64::from(n)), 1000 - i64::from(n));
        for n in 0..100 {
            cache.touch(key(n), &Rights::Unchecked, time(n)).unwrap();
        }
        cache.touch(key(3), &Rights::Unchecked, time(200)).unwrap();
        assert_eq!(cache.len(), 100);
        let mut ended: Vec<u8> = (0..PARTS)
            .flat_map(|_| cache.expire(Duration::from_secs(50), |key| key.id[0] == 7))
            .map(|key| key.id[0])
            .collect();
        ended.sort_unstable();
        let expected: Vec<u8> = (0..50).filter(|n| ![3, 7].contains(n)).collect();
        assert_eq!(ended, expected);
        assert_eq!((cache.len(), cache.list(|_| true).len()), (52, 52));
        cache.remove(&key(3));
        cache.remove(&key(3));
        assert_eq!(cache.len(), 51);
        assert_eq!(cache.list(|key| key.id[0] == 99)[0].1.last_ms, 901);
    }
}
